//! A result with plausible numbers, for tests of reports and recommendations. The shapes are those of Willmann et al.
//! 2006; nothing here was measured.

use std::time::Duration;

use lab::cpu::Switches;
use lab::machine::{Machine, Spread};
use lab::result::{KERNEL, Key, Results, Row, Workload};
use lab::sampling::{Exact, LockCount, Samples, Slice, Wakes};

/// Loads of the synthetic run.
pub const LOADS: [u32; 4] = [6, 192, 3072, 16_384];

/// Gb/s at the four loads, percent of lock acquisitions not immediate, switches a slice.
type Shape = (&'static str, Option<u32>, [f64; 4], [u64; 4], u64);

const SHAPES: [Shape; 10] = [
    ("up", None, [31.0, 27.5, 20.0, 15.8], [0; 4], 40),
    ("giant", None, [28.0, 24.0, 18.0, 14.0], [41, 44, 47, 52], 900),
    ("msgp", None, [25.4, 33.0, 30.2, 24.1], [89, 100, 100, 100], 2900),
    ("connp-t", None, [22.9, 23.5, 22.8, 22.0], [0; 4], 5200),
    ("squeue", None, [34.0, 41.0, 37.0, 31.5], [33, 12, 7, 5], 700),
    ("connp-l", Some(4), [30.0, 35.4, 30.0, 26.4], [60, 56, 54, 52], 1500),
    ("connp-l", Some(16), [33.0, 40.3, 35.2, 30.1], [49, 18, 16, 14], 1000),
    ("connp-l", Some(64), [34.5, 42.4, 38.7, 33.0], [37, 6, 5, 4], 700),
    ("connp-l", Some(128), [35.0, 43.0, 39.5, 33.9], [33, 5, 3, 2], 600),
    (KERNEL, None, [46.0, 44.0, 37.0, 24.0], [0; 4], 300),
];

fn samples(shape: &Shape, load: usize) -> Samples {
    let (arch, _, gbps, failed, switches) = shape;
    let slice = |round: usize| {
        // A drift of a few percent, the same for every contender.
        let drift = 1.0 + 0.02 * [1.0, -1.5, 0.4, 1.2, -1.1][round % 5] + 0.004 * (round as f64 - 2.0);
        let bytes = (gbps[load] * drift * 1e9 / 8.0) as u64;
        let acquired = bytes / 1448;
        let lock = |class: &str, share: u64| LockCount {
            class: class.into(),
            acquired,
            first_try_failed: acquired * share / 100,
            wait_ns: Some(acquired * share * 3),
            hold_ns: Some(acquired * 400),
        };
        let locks = match *arch {
            "up" | "connp-t" | KERNEL => Vec::new(),
            "msgp" => vec![lock("ConnTable", failed[load]), lock("PcbHeaderIn", 3)],
            "squeue" => vec![lock("Squeue", failed[load])],
            _ => vec![lock("Group", failed[load])],
        };
        let handoffs = if *arch == "connp-t" { bytes / 1448 } else { 0 };
        Slice {
            round_trip_ns: Some(80.0),
            fairness: None,
            bytes,
            operations: bytes / 65_536,
            wall: Duration::from_secs(1),
            cpu: Duration::from_millis(1900 + 20 * round as u64),
            switches: Switches { voluntary: switches + 7 * round as u64, involuntary: 12 },
            exact: Exact {
                locks,
                handoffs,
                wakes: Wakes { sent: handoffs / 20, suppressed: handoffs / 4 },
                ..Exact::default()
            },
        }
    };
    Samples { name: (*arch).into(), slices: (0..5).map(slice).collect(), failed: None }
}

/// The whole result, on a fictitious machine.
pub fn results() -> Results {
    let mut rows = Vec::new();
    for (load, &connections) in LOADS.iter().enumerate() {
        let kernel = samples(&SHAPES[9], load);
        for shape in &SHAPES {
            let ours = shape.0 != KERNEL;
            let key = Key {
                workload: Workload::Bulk,
                arch: shape.0.into(),
                lock: (ours && shape.0 != "up" && shape.0 != "connp-t").then(|| "spin-park".into()),
                groups: shape.1,
                connections,
                threads: 2,
            };
            let mut row = Row::new(key, &samples(shape, load), Some(&kernel)).expect("five slices make a row");
            row.bytes_per_connection = ours.then_some(1024);
            if !ours {
                row.notes.push("loopback MTU 65536, no checksums; sendfile without a copy".into());
            }
            rows.push(row);
        }
    }
    let machine = Machine {
        cpu_model: "Synthetic processor (these numbers were made up)".into(),
        cores: 2,
        kernel: "6.18.0".into(),
        governor: None,
        load_before: Some([0.1, 0.2, 0.3]),
        load_after: Some([2.0, 1.1, 0.6]),
        round_trip_ns: Spread::of(&[81.0, 79.0, 84.0]),
        other_programs_percent: Some(0.4),
        steal_percent: Some(2.5),
        clock_source: Some("tsc".into()),
        memory_bytes: Some(8 << 30),
        mitigations: "active: spectre_v1; left vulnerable: none".into(),
        nominal_megahertz: Some(2600.0),
        no_scheduler_samples: None,
        no_cache_misses: Some("the kernel finds no hardware counter of cache misses".into()),
        rustc: "rustc 1.95.0".into(),
        profile: "release".into(),
    };
    let parameters = serde_json::json!({
        "connections": LOADS, "threads": 2, "message_bytes": 65_536, "mtu": 1500, "repetitions": 5,
        "warmup_slices": 1, "slice_ms": 1000, "checksums": true, "congestion_control": "cubic",
    });
    let serde_json::Value::Object(parameters) = parameters else { unreachable!("written as an object above") };
    Results::new(machine, parameters, rows)
}
