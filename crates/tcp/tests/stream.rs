//! Whole streams over a bad link: whatever the link does, each user reads exactly the other's data; and the staged
//! driver sends, byte for byte, the same as the whole driver.

mod support;

use std::time::Duration;

use observe::Counter;
use proptest::prelude::*;
use support::endpoint::{Endpoint, Setup};
use support::link::{Faults, World};
use support::{data, ms};
use tcp::{Close, Config, Shutdown, State};

/// Both users write `len[i]` bytes in writes of `write`, read everything, shut down writing at the end, and close when
/// the other end did.
struct Users {
    len: [usize; 2],
    written: [usize; 2],
    write: usize,
    shut: [bool; 2],
    closed: [bool; 2],
}

impl Users {
    fn new(len: [usize; 2], write: usize) -> Self {
        Users { len, written: [0; 2], write, shut: [false; 2], closed: [false; 2] }
    }

    fn act(&mut self, ends: &mut [Endpoint; 2], now: observe::Time) {
        for (i, end) in ends.iter_mut().enumerate() {
            if end.driver.is_none() || end.removed || !end.state().is_synchronised() {
                continue;
            }
            end.read(now);
            while self.written[i] < self.len[i] {
                let n = self.write.min(self.len[i] - self.written[i]);
                let accepted = end.send(&data((self.written[i] + 1000 * i) as u64, n), now);
                self.written[i] += accepted;
                if accepted < n {
                    break;
                }
            }
            if self.written[i] == self.len[i] && !self.shut[i] {
                self.shut[i] = true;
                end.run(Shutdown::Write, now).expect("a connection to shut down");
            }
            if end.end && self.shut[i] && !self.closed[i] {
                self.closed[i] = true;
                end.run(Close, now);
            }
        }
    }
}

fn transfer(setup: Setup, faults: Faults, len: [usize; 2], write: usize) -> World {
    let mut world = World::pair(setup, faults);
    let mut users = Users::new(len, write);
    world.run_until(
        Duration::from_secs(100_000),
        |ends, now| users.act(ends, now),
        |ends| ends.iter().all(|end| end.removed),
    );
    for (i, len) in len.into_iter().enumerate() {
        assert_eq!(world.ends[1 - i].received, data(1000 * i as u64, len), "the stream of end {i}");
    }
    world
}

#[test]
fn a_clean_link_needs_no_retransmission() {
    let world = transfer(Setup::default(), Faults::default(), [3_000_000, 100_000], 10_000);
    for end in &world.ends {
        assert_eq!(end.count(Counter::Retransmits), 0);
        assert_eq!(end.count(Counter::Timeouts), 0);
        assert_eq!(end.count(Counter::OutOfOrderAtEntry), 0);
    }
}

#[test]
fn every_mechanism_off_still_delivers() {
    let mut setup = Setup::default();
    setup.config.timestamps = false;
    setup.config.sack = false;
    setup.config.window_scaling = false;
    let faults = Faults { loss: 30, duplicate: 20, jitter: ms(4), ..Faults::default() };
    transfer(setup, faults, [300_000, 50_000], 3_000);
}

#[test]
fn thirty_per_cent_loss() {
    transfer(Setup::default(), Faults { loss: 300, ..Faults::default() }, [40_000, 40_000], 5_000);
}

#[test]
fn sequence_numbers_wrap() {
    for back in [1, 5, 1461, 100_000] {
        let setup = Setup { iss: 0u32.wrapping_sub(back), ..Setup::default() };
        transfer(setup, Faults { loss: 20, ..Faults::default() }, [300_000, 10_000], 7_000);
    }
}

#[test]
fn timestamps_wrap() {
    // 2^32 ms is 49.7 days; begin just before.
    let setup = Setup::default();
    let mut world =
        World::new(setup.clone(), support::link::mirrored(&setup), Faults { loss: 20, ..Faults::default() });
    world.now = observe::Time::from_millis((1 << 32) - 300);
    world.ends[1].listening = true;
    let now = world.now;
    world.ends[0].open(now);
    let mut users = Users::new([400_000, 5_000], 10_000);
    world.run_until(
        Duration::from_secs(1000),
        |ends, now| users.act(ends, now),
        |ends| ends.iter().all(|end| end.removed),
    );
    assert_eq!(world.ends[1].received, data(0, 400_000));
}

#[test]
fn tiny_receive_buffers() {
    for buffer in [1, 7, 100, 536, 3000] {
        let mut setup = Setup::default();
        setup.options.receive_buffer = Some(buffer);
        transfer(setup, Faults::default(), [2_000, 100], 500);
    }
}

#[test]
fn super_segments() {
    let setup = Setup { super_segments: 60_000, mss: 8_000, ..Setup::default() };
    let world = transfer(setup, Faults { loss: 10, ..Faults::default() }, [3_000_000, 10], 50_000);
    assert!(world.sent[0] < 375 / 2, "{} segments carry what takes 375 of one MSS", world.sent[0]);
}

#[test]
fn a_device_with_little_credit() {
    let mut world = World::pair(Setup::default(), Faults::default());
    let mut users = Users::new([200_000, 0], 50_000);
    let mut tx_blocked = 0;
    world.run_until(
        Duration::from_secs(1000),
        |ends, now| {
            ends[0].credit = 2;
            if ends[0].tx_blocked {
                tx_blocked += 1;
                ends[0].tx_blocked = false;
                ends[0].run(tcp::TransmitReady, now);
            }
            users.act(ends, now);
        },
        |ends| ends.iter().all(|end| end.removed),
    );
    assert_eq!(world.ends[1].received, data(0, 200_000));
    assert!(tx_blocked > 10);
    assert_eq!(world.ends[0].count(Counter::Retransmits), 0);
}

/// Both worlds run the same input; every byte sent, and its time, must be equal (invariant G3).
fn differential(faults: Faults, len: [usize; 2], write: usize, change: impl Fn(&mut Config)) {
    let traces = [false, true].map(|staged| {
        let mut setup = Setup { staged, ..Setup::default() };
        change(&mut setup.config);
        let mut world = World::pair(setup, faults.clone());
        world.trace = Some(Vec::new());
        let mut users = Users::new(len, write);
        world.run_until(
            Duration::from_secs(100_000),
            |ends, now| users.act(ends, now),
            |ends| ends.iter().all(|end| end.removed),
        );
        world.trace.unwrap()
    });
    let [whole, staged] = traces;
    assert!(whole.len() > 4);
    for (i, (a, b)) in whole.iter().zip(&staged).enumerate() {
        assert_eq!(a, b, "segment {i}");
    }
    assert_eq!(whole.len(), staged.len());
}

#[test]
fn staged_and_whole_send_the_same_bytes() {
    differential(Faults::default(), [500_000, 300_000], 9_000, |_| {});
    differential(
        Faults { loss: 30, duplicate: 30, jitter: ms(3), ..Faults::default() },
        [200_000, 100_000],
        4_000,
        |_| {},
    );
    let old = |config: &mut Config| {
        config.sack = false;
        config.timestamps = false;
    };
    differential(Faults { loss: 20, seed: 5, ..Faults::default() }, [200_000, 1_000], 1_000, old);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_link_delivers(
        loss in 0u32..200,
        duplicate in 0u32..100,
        jitter in 0u64..30,
        seed in any::<u64>(),
        iss in any::<u32>(),
        len in (0usize..120_000, 0usize..60_000),
        write in 1usize..30_000,
        features in 0u8..8,
        staged in any::<bool>(),
    ) {
        let mut setup = Setup { iss, staged, ..Setup::default() };
        setup.config.timestamps = features & 1 != 0;
        setup.config.sack = features & 2 != 0;
        setup.options.no_delay = features & 4 != 0;
        // With a loss of one in five each way, all eight tries of a closed connection fail once in 10 000 times.
        setup.config.orphan_retries = setup.config.retries;
        // Nor may the test depend on one of seven SYNs arriving.
        (setup.config.syn_retries, setup.config.syn_ack_retries) = (60, 60);
        let faults = Faults { loss, duplicate, jitter: ms(jitter), seed, ..Faults::default() };
        transfer(setup, faults, [len.0, len.1], write.max(len.0.max(len.1) / 200 + 1));
    }

    #[test]
    fn the_driver_makes_no_difference(
        loss in 0u32..100,
        jitter in 0u64..10,
        seed in any::<u64>(),
        len in (1usize..60_000, 0usize..30_000),
        write in 300usize..20_000,
    ) {
        differential(Faults { loss, jitter: ms(jitter), seed, ..Faults::default() }, [len.0, len.1], write, |_| {});
    }
}

/// Invariant G7: new bytes are sent in the order of their sequence numbers.
fn assert_new_bytes_leave_in_order(trace: &[(observe::Time, usize, Vec<u8>)]) {
    let mut next: [Option<wire::SeqNumber>; 2] = [None; 2];
    for (_, end, segment) in trace {
        let header = wire::tcp::parse(segment).expect("a good segment");
        let len = segment.len() as u32 - u32::from(header.header_len);
        let syn = u32::from(header.flags.contains(wire::tcp::TcpFlags::SYN));
        if len + syn == 0 {
            continue;
        }
        let expected = *next[*end].get_or_insert(header.seq);
        assert!(header.seq.le(expected), "a gap before {:?} of end {end}", header.seq);
        next[*end] = Some(expected.max(header.seq + (len + syn)));
    }
}

/// The advertised values of the receive side are merged monotonically: neither the acknowledgement nor the window's
/// right edge ever moves back.
fn assert_acknowledgements_only_advance(trace: &[(observe::Time, usize, Vec<u8>)]) {
    let shift = Config::default().window_shift();
    let mut told: [Option<(wire::SeqNumber, wire::SeqNumber)>; 2] = [None; 2];
    for (_, end, segment) in trace {
        let header = wire::tcp::parse(segment).expect("a good segment");
        if header.flags.intersects(wire::tcp::TcpFlags::SYN.union(wire::tcp::TcpFlags::RST)) {
            continue;
        }
        let edge = header.ack + (u32::from(header.window) << shift);
        let (ack, right) = *told[*end].get_or_insert((header.ack, edge));
        assert!(header.ack.ge(ack), "ACK {:?} after {ack:?}", header.ack);
        // The field is rounded up to its unit.
        assert!((edge + (1 << shift)).gt(right), "right edge {edge:?} after {right:?}");
        told[*end] = Some((header.ack, right.max(edge)));
    }
}

#[test]
fn events_that_interleave_at_every_hold_set_lose_nothing() {
    let mut nested = 0;
    for seed in 0..40 {
        let setup = Setup { interleave: Some(seed), ..Setup::default() };
        let faults = Faults { loss: (seed % 4) as u32 * 10, seed, ..Faults::default() };
        let mut world = World::pair(setup, faults);
        world.trace = Some(Vec::new());
        let mut users = Users::new([200_000, 150_000], 20_000);
        world.run_until(
            Duration::from_secs(10_000),
            |ends, now| users.act(ends, now),
            |ends| ends.iter().all(|end| end.removed),
        );
        for i in 0..2 {
            assert_eq!(world.ends[1 - i].received, data(1000 * i as u64, users.len[i]), "seed {seed}");
        }
        let trace = world.trace.unwrap();
        assert_new_bytes_leave_in_order(&trace);
        assert_acknowledgements_only_advance(&trace);
        for end in &world.ends {
            if let Some(support::endpoint::Driver::Interleaved(pcb)) = &end.driver {
                nested += pcb.nested;
            }
        }
    }
    assert!(nested > 1000, "only {nested} events ran inside others");
}

#[test]
fn both_ends_are_gone_at_the_end() {
    let mut world = transfer(Setup::default(), Faults::default(), [1000, 1000], 100);
    for end in &mut world.ends {
        assert_eq!(end.state(), State::Closed);
        assert_eq!(end.wake, None, "nothing is armed for a connection that is gone");
    }
}
