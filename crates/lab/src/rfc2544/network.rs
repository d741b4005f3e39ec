//! A bridge between two interfaces of the kernel, and trials on it: Heddle's between TAP interfaces, the kernel's own between
//! veth interfaces, or a veth pair without a bridge. `rfc2544/wires.rs` shows the cables.
//!
//! Heddle's bridge has its worker threads, each on its CPU, from CPU 0 on. The kernel's has no thread: it forwards a frame on
//! the CPU on which the frame arrives, which is that of the sender, or, steered, CPU 0, as a worker of Heddle does. The
//! tester's thread is on the last CPU during a trial.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use dev::Device;
use dev_tap::{Offloads, Tap, TapOptions};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use switch::Switch;
use sync::{Platform, Real};

use super::bench::{Bench, BenchConfig, Between, FlushedTrial, join_bridge, start_bridge};
use super::line::{FCS, Offer, PORTS, Pace, TrialCount};
use super::method::TrialBed;
use super::tester::Tester;
use super::wires::Wires;
use crate::machine;

/// Time limit for the cables to come up and the addresses to be learned.
const PATIENCE: Duration = Duration::from_secs(20);

/// See the head of the file.
pub struct NetworkBench {
    config: BenchConfig,
    tester: Tester,
    bridge: Option<Switch<Real>>,
    threads: Vec<<Real as Platform>::JoinHandle>,
}

impl NetworkBench {
    /// Makes interfaces and bridge, in the network namespace of the calling thread ([`super::wires::enter_namespace`]), and has
    /// the bridge learn all addresses. `number` is another one for each bench of the namespace; frames have at most
    /// `longest` bytes, with their check sequence.
    ///
    /// # Errors
    /// The interfaces cannot be made, or the bridge does not start or learn. Heddle's bridge has one worker only, because the
    /// kernel takes the test frames for one flow, and a flow has one queue of a TAP interface.
    pub fn start(config: BenchConfig, number: usize, longest: usize) -> io::Result<NetworkBench> {
        let BenchConfig { ring, stations, .. } = config;
        if config.workers != 1 {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "over TAP interfaces a bridge has one worker"));
        }
        let mtu = (longest - FCS - wire::ethernet::HEADER_LEN).max(1500);
        let wires = Wires::new(number, mtu, ring);
        let (bridge, threads) = match config.between {
            Between::Bridge(exclusion) => {
                let (mut a, mut b) = (open_tap(&wires.outer(0), mtu)?, open_tap(&wires.outer(1), mtu)?);
                wires.set_rings()?;
                let mut ports: [&mut dyn Device; PORTS] = [&mut a, &mut b];
                let (switch, threads) = start_bridge(&config, exclusion, stations, &mut ports)?;
                (Some(switch), threads)
            }
            Between::Linux { steered } => {
                wires.make_linux_bridge(steered)?;
                (None, Vec::new())
            }
            Between::Cable => {
                wires.make_cable()?;
                (None, Vec::new())
            }
        };
        let tester = wires.open_ports().map(|ports| Tester::new(ports, ring, stations));
        let tester = match tester {
            Ok(tester) => tester,
            Err(error) => {
                join_bridge(bridge.as_ref(), threads);
                return Err(error);
            }
        };
        let mut bench = NetworkBench { config, tester, bridge, threads };
        bench.teach()?;
        Ok(bench)
    }

    /// Sends frames of all stations until all are learned, so that no trial floods. The kernel notices a moment after a cable
    /// is there that it is up.
    fn teach(&mut self) -> io::Result<()> {
        let stations = self.config.stations;
        let (begun, mut lessons) = (Instant::now(), 0);
        while begun.elapsed() < PATIENCE {
            let count = self.trial(&Offer::new(64, 2 * stations as u64, Pace::AsTaken))?;
            lessons += u32::from(count.arrived > 0);
            let learned = match &self.bridge {
                Some(bridge) => bridge.look(|bridge, _| bridge.entries().len()) >= PORTS * stations,
                // The kernel's bridge learns an address before it forwards the frame; a second turn is without floods.
                None => lessons > 1,
            };
            if learned && lessons > 0 {
                return Ok(());
            }
            thread::park_timeout(Duration::from_millis(u64::from(lessons)));
        }
        Err(io::Error::other(match lessons {
            0 => "no frame arrives at the other side".to_owned(),
            _ => format!("the bridge does not learn {} addresses", PORTS * stations),
        }))
    }

    /// The interfaces at the bridge's end of the cables, for the kernel's bridge.
    #[cfg(test)]
    fn inner(number: usize) -> [String; PORTS] {
        let wires = Wires::new(number, 1500, 1000);
        [wires.inner(0), wires.inner(1)]
    }
}

/// A TAP interface as `heddle bridge run` opens it.
fn open_tap(name: &str, mtu: usize) -> io::Result<Tap> {
    let options = TapOptions { offloads: Offloads::Checksum, mtu: Some(mtu), ..TapOptions::default() };
    Tap::open(name, options).map_err(io::Error::other)
}

impl TrialBed for NetworkBench {
    fn trial(&mut self, offer: &Offer) -> io::Result<TrialCount> {
        let _seat = Seat::take();
        self.tester.trial(offer)
    }
}

impl Bench for NetworkBench {
    fn between(&self) -> Between {
        self.config.between
    }

    fn workers(&self) -> usize {
        self.config.workers
    }

    fn flushed_trial(&mut self, _: &Offer) -> io::Result<Option<FlushedTrial>> {
        Ok(None)
    }
}

impl Drop for NetworkBench {
    fn drop(&mut self) {
        join_bridge(self.bridge.as_ref(), std::mem::take(&mut self.threads));
    }
}

/// The tester's CPU, for the time of a trial: the last of the process, if there is another.
struct Seat(Option<CpuSet>);

impl Seat {
    fn take() -> Seat {
        let before = sched_getaffinity(None).ok().filter(|_| machine::cores() > 1);
        let last = before.as_ref().and_then(|set| (0..CpuSet::MAX_CPU).rev().find(|cpu| set.is_set(*cpu)));
        // A CPU that may not be used only costs speed.
        let _ = last.map(Real::pin);
        Seat(before)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use switch::BridgeExclusion;

    use super::super::line::Buffers;
    use super::super::wires::enter_namespace;
    use super::*;

    /// Runs `test` on a thread in a network namespace of its own, if that is permitted.
    fn in_namespace(test: impl FnOnce() + Send + 'static) {
        let inside = move || {
            let permitted = Path::new("/dev/net/tun").exists() && Command::new("ip").arg("-V").output().is_ok();
            if !permitted || enter_namespace().is_err() {
                println!("skipped: a network namespace, /dev/net/tun or the command `ip` is not available here");
                return;
            }
            test();
        };
        thread::spawn(inside).join().expect("the test in the namespace failed");
    }

    fn config(between: Between) -> BenchConfig {
        BenchConfig { between, workers: 1, work: None, ring: 1000, stations: 40, buffers: Buffers::Copied }
    }

    /// Frames received at the bridge's ports, as the kernel counts them.
    fn received(interfaces: &[String; PORTS]) -> u64 {
        let of = |name: &String| {
            let output = Command::new("ip").args(["-j", "-d", "-s", "link", "show", "dev", name]).output().expect("ip");
            let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert_eq!(shown[0]["linkinfo"]["info_slave_kind"], "bridge", "{name}");
            shown[0]["stats64"]["rx"]["packets"].as_u64().expect("a number")
        };
        interfaces.iter().map(of).sum()
    }

    /// 100 frames of each size in both directions, all of which arrive, in order; and the bridge has had them. `generic` drains its
    /// interface into a bounded queue: this many frames fit at once.
    #[test]
    fn every_frame_crosses_the_bridge_that_is_named() {
        in_namespace(|| {
            let heddle = BridgeExclusion::ALL.map(Between::Bridge);
            let linux = [false, true].map(|steered| Between::Linux { steered });
            for (number, between) in heddle.into_iter().chain(linux).enumerate() {
                let mut bench = match NetworkBench::start(config(between), number, 1518) {
                    // Steering needs Linux 6.3.
                    Err(error)
                        if between == (Between::Linux { steered: true }) && error.to_string().contains("6.3") =>
                    {
                        println!("skipped: {error}");
                        continue;
                    }
                    bench => bench.expect("it starts"),
                };
                let has_had = |bench: &NetworkBench| match &bench.bridge {
                    Some(bridge) => {
                        bridge.look(|_, ports| ports.iter().flatten().map(|port| port.traffic.rx_frames).sum())
                    }
                    None => received(&NetworkBench::inner(number)),
                };
                let before: u64 = has_had(&bench);
                for frame_bytes in [64, 1518] {
                    let count = bench.trial(&Offer::new(frame_bytes, 100, Pace::AsTaken)).expect("it ends");
                    let name = between.name();
                    assert_eq!(
                        (count.arrived, count.out_of_order, count.taken),
                        (200, 0, 200),
                        "{name}, {frame_bytes}"
                    );
                    assert!(count.latencies.len() == 200 && count.seconds > 0.0, "{name}");
                }
                assert!(has_had(&bench) >= before + 400, "{}: the frames passed it", between.name());
            }
        });
    }

    /// A rate beyond every machine is not kept, although each frame that the interface takes arrives.
    #[test]
    fn a_rate_beyond_the_machine_is_not_free_of_loss() {
        in_namespace(|| {
            let mut bench = NetworkBench::start(config(Between::Cable), 0, 64).expect("it starts");
            let count = bench.trial(&Offer::new(64, 1_000_000, Pace::At(1e8))).expect("it ends");
            assert!(count.arrived > 0 && count.lost() > 0 && count.offered == 2_000_000, "{count:?}");
            let count = bench.trial(&Offer::new(64, 10, Pace::AsTaken)).expect("it ends");
            assert_eq!((count.arrived, count.lost()), (20, 0), "no frame of the trial before is counted");
        });
    }
}
