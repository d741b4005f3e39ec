//! HyStart++ (RFC 9406) on a simulated link: the first slow start ends when a queue builds up, not when it overflows.

mod support;

use std::time::Duration;

use support::endpoint::Setup;
use support::link::{Faults, World};
use support::{data, ms};
use tcp::State;
use tcp::congestion::Kind;

/// The largest congestion window, and the threshold at the end, of a transfer over 12.5 MB/s and 40 ms (a
/// bandwidth-delay product of 500 kB) with a queue without limit.
fn slow_start(kind: Kind) -> (u32, u32) {
    let mut setup = Setup::default();
    setup.config.congestion = kind;
    setup.options.receive_buffer = Some(8 << 20);
    setup.options.send_buffer = Some(8 << 20);
    setup.config.receive_buffer.max = 8 << 20;
    let faults = Faults { delay: ms(20), rate: 12_500_000, ..Faults::default() };
    let mut world = World::pair(setup, faults);
    let block = data(0, 64 << 10);
    let mut largest = 0;
    world.run_until(
        Duration::from_secs(100),
        |ends, now| {
            if ends[1].driver.is_some() {
                ends[1].read(now);
            }
            if ends[0].state() == State::Established {
                while ends[0].send(&block, now) == block.len() {}
                largest = largest.max(ends[0].status().cwnd);
            }
        },
        |ends| ends[1].received.len() > 24_000_000,
    );
    (largest, world.ends[0].status().ssthresh)
}

#[test]
fn the_first_slow_start_ends_when_the_queue_grows() {
    let (largest, ssthresh) = slow_start(Kind::Cubic);
    assert!(ssthresh < 4_500_000, "slow start has ended at {ssthresh}");
    assert!(ssthresh > 500_000, "but not before the pipe was full: {ssthresh}");
    let (without, reno) = slow_start(Kind::NewReno);
    assert!(reno > 1 << 29, "without it nothing ends slow start but loss");
    assert!(largest * 3 < without * 2, "{largest} against {without}");
}
