//! A table of throughput over a simulated link of 12.5 MB/s, by congestion control, receive buffer, delay and loss. It
//! is committed: a change of behaviour shows as a change of the table. To take over a wanted change, run this test with
//! `UPDATE_SNAPSHOTS=1`.

mod support;

use std::fmt::Write;
use std::time::Duration;

use support::endpoint::Setup;
use support::link::{Faults, World};
use support::{data, ms};
use tcp::congestion::Kind;
use tcp::{Close, State};

const RATE: u64 = 12_500_000;

/// Patterns of loss over which a figure is averaged: a single one depends more on its time-outs than on the algorithm.
const SEEDS: u64 = 6;

/// Throughput in kB/s over a link that loses `loss` segments of 1000.
fn throughput(kind: Kind, buffer: Option<u32>, delay: u64, loss: u32) -> u64 {
    let seeds = if loss > 0 { SEEDS } else { 1 };
    (0..seeds).map(|seed| throughput_of(kind, buffer, delay, loss, 42 + seed)).sum::<u64>() / seeds
}

/// Throughput in kB/s of one transfer that takes about ten seconds, or less with loss.
fn throughput_of(kind: Kind, buffer: Option<u32>, delay: u64, loss: u32, seed: u64) -> u64 {
    let mut setup = Setup::default();
    setup.config.congestion = kind;
    setup.options.receive_buffer = buffer;
    let faults = Faults { delay: ms(delay), loss, rate: RATE, seed, ..Faults::default() };
    let mut world = World::pair(setup, faults);
    let total = if loss > 0 { 1_000_000 } else { 8_000_000 };
    let block = data(0, 64 << 10);
    let start = world.now;
    let (mut written, mut finish) = (0, start);
    world.run_until(
        Duration::from_secs(3600),
        |ends, now| {
            if ends[1].driver.is_some() && ends[1].read(now) > 0 {
                finish = now;
            }
            if ends[0].state() == State::Established {
                while written < total {
                    let n = block.len().min(total - written);
                    let accepted = ends[0].send(&block[..n], now);
                    written += accepted;
                    if accepted < n {
                        break;
                    }
                }
                if written == total {
                    ends[0].run(Close, now);
                }
            }
        },
        |ends| ends[1].received.len() == total,
    );
    let elapsed = (finish - start).as_micros() as u64;
    total as u64 * 1000 / elapsed.max(1)
}

fn table() -> String {
    let mut data = String::from("kB/s over a link of 12 500 kB/s, queue without limit\n");
    for &kind in Kind::ALL {
        let _ = writeln!(data, "\n{kind:<8} {:>8} | loss 0     0.1%       1%       5%", "buffer");
        for (buffer, name) in [(Some(16 << 10), "16 KiB"), (Some(64 << 10), "64 KiB"), (None, "grows")] {
            for delay in [1, 10, 50] {
                let _ = write!(data, "{:>5} ms {name:>8} |", 2 * delay);
                for loss in [0, 1, 10, 50] {
                    let _ = write!(data, " {:>8}", throughput(kind, buffer, delay, loss));
                }
                data.push('\n');
            }
        }
    }
    data
}

#[test]
fn the_throughput_table_is_the_committed_one() {
    let table = table();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/netsim.txt");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(path, &table).expect("the table can be written");
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(table, committed, "throughput changed; if that is wanted, run with UPDATE_SNAPSHOTS=1\n{table}");
}

#[test]
fn a_clean_link_is_used_fully_and_a_lossy_one_sensibly() {
    assert!(throughput(Kind::Cubic, None, 10, 0) > 10_000, "a clean link is full");
    // RFC 5681 over p = 1 %: about 1.22 * MSS / (RTT * sqrt(p)) = 870 kB/s at 20 ms.
    let lossy = throughput(Kind::NewReno, None, 10, 10);
    assert!((450..1700).contains(&lossy), "{lossy} kB/s at 1 % loss");
    assert!(throughput(Kind::Cubic, Some(16 << 10), 50, 0) < 180, "16 KiB per 100 ms");
}
