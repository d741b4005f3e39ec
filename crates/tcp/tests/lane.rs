//! The fast lane changes nothing: the same inputs, with the lane on and off, give the same segments at the same times,
//! the same counters, and the same state of the connection after every step.

mod support;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use observe::{Counter, DropReason, Time};
use proptest::prelude::*;
use support::endpoint::{Driver, Endpoint, Setup};
use support::link::{Faults, Random, World};
use support::{data, ms};
use tcp::{Close, Shutdown};

/// Steps of a run: enough for every connection here to end, or to be stuck in its last retransmissions.
const STEPS: usize = 4000;

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// All that can be observed of one end.
fn state_of(end: &Endpoint) -> u64 {
    let pcb = match &end.driver {
        Some(Driver::Whole(pcb)) => format!("{pcb:?}"),
        _ => String::new(),
    };
    let counted: Vec<u64> = Counter::ALL.iter().map(|&counter| end.count(counter)).collect();
    let dropped: Vec<u64> = DropReason::ALL.iter().map(|&reason| end.counters.dropped(reason)).collect();
    let rest = (end.memory, end.wake, end.ready.bits(), end.credit, end.tx_blocked, end.end, end.received.len());
    digest(&(pcb, counted, dropped, rest, format!("{:?}", end.last)))
}

/// How two users use their connection.
#[derive(Clone, Debug)]
struct Use {
    len: [usize; 2],
    write: usize,
    /// In 1000 chances to read, so many are taken.
    reads: u32,
    /// Frames that the device takes between two turns; 0: any number.
    credit: u32,
    seed: u64,
}

/// What was observed of a run.
struct Observed {
    /// Both ends after each step.
    states: Vec<u64>,
    /// Every segment: when, by which end, its bytes.
    segments: Vec<(Time, usize, Vec<u8>)>,
    /// Segments of data that arrived in order.
    in_order: u64,
}

/// Runs the two users.
fn run(setup: &Setup, faults: &Faults, usage: &Use, lane: bool) -> Observed {
    let mut setup = setup.clone();
    setup.config.fast_lane = lane;
    let mut world = World::pair(setup, faults.clone());
    world.trace = Some(Vec::new());
    let (mut written, mut shut, mut states) = ([0; 2], [false; 2], Vec::new());
    let mut random = Random::new(usage.seed);
    let end_of_time = world.now + Duration::from_secs(1000);
    let mut act = |ends: &mut [Endpoint; 2], now: Time| {
        for (i, end) in ends.iter_mut().enumerate() {
            if end.driver.is_none() || end.removed || !end.state().is_synchronised() {
                continue;
            }
            if usage.credit > 0 {
                end.credit = usage.credit;
                if std::mem::take(&mut end.tx_blocked) {
                    end.run(tcp::TransmitReady, now);
                }
            }
            if random.chance(usage.reads) {
                end.read(now);
            }
            while written[i] < usage.len[i] {
                let n = usage.write.min(usage.len[i] - written[i]);
                let accepted = end.try_send(&data(written[i] as u64, n), now).unwrap_or(0);
                written[i] += accepted;
                if accepted < n || random.chance(100) {
                    break;
                }
            }
            if written[i] == usage.len[i] && !shut[i] && random.chance(300) {
                shut[i] = true;
                let _ = end.run(Shutdown::Write, now);
            }
            if end.end && shut[i] {
                end.run(Close, now);
            }
        }
        states.push(digest(&(now, state_of(&ends[0]), state_of(&ends[1]))));
    };
    for _ in 0..STEPS {
        if !world.step(end_of_time, &mut act) {
            break;
        }
    }
    let in_order = world.ends.iter().map(|end| end.count(Counter::FastPathIn)).sum();
    Observed { states, segments: world.trace.take().unwrap_or_default(), in_order }
}

/// Returns the segments of data that arrived in order.
fn same_with_and_without(setup: &Setup, faults: &Faults, usage: &Use) -> u64 {
    let (with, without) = (run(setup, faults, usage, true), run(setup, faults, usage, false));
    for (at, (a, b)) in with.segments.iter().zip(&without.segments).enumerate() {
        assert_eq!(a, b, "segment {at}, with the lane and without");
    }
    assert_eq!(with.segments.len(), without.segments.len());
    for (step, (a, b)) in with.states.iter().zip(&without.states).enumerate() {
        assert_eq!(a, b, "state and counters after step {step}");
    }
    assert_eq!(with.states.len(), without.states.len());
    with.in_order
}

fn setup(ipv6: bool) -> Setup {
    let mut setup = Setup::default();
    if ipv6 {
        setup.tuple.local_addr = "2001:db8::1".parse().unwrap();
        setup.tuple.remote_addr = "2001:db8::2".parse().unwrap();
        setup.mss = 1440;
    }
    setup.config = tcp::Config::default();
    setup
}

#[test]
fn requests_and_bulk_over_a_clean_link() {
    for ipv6 in [false, true] {
        let setup = setup(ipv6);
        let usage = Use { len: [200_000, 100_000], write: 9_000, reads: 1000, credit: 0, seed: 1 };
        assert!(same_with_and_without(&setup, &Faults::default(), &usage) > 100);
        let small = Use { len: [6_400, 6_400], write: 64, ..usage };
        same_with_and_without(&setup, &Faults { delay: ms(1), ..Faults::default() }, &small);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any link, any use, and segments that no honest peer sends.
    #[test]
    fn no_input_tells_the_lane(
        link in (0u32..100, 0u32..60, 0u64..10, 0u32..80, any::<u64>()),
        usage in ((0usize..60_000, 0usize..30_000), 1usize..20_000, 100u32..1000, 0u32..6, any::<u64>()),
        features in any::<u16>(),
        iss in any::<u32>(),
    ) {
        let on = |bit: u32| features >> bit & 1 != 0;
        let mut setup = setup(on(0));
        (setup.iss, setup.staged) = (iss, on(1));
        setup.config.sack = on(2) || on(3);
        setup.config.timestamps = on(4) || on(5) || on(6);
        setup.options.no_delay = on(7);
        setup.options.cork = on(8) && on(9) && on(10);
        setup.config.ecn = if on(11) && on(12) { tcp::config::Ecn::Request } else { setup.config.ecn };
        setup.super_segments = if on(13) && on(14) { 20_000 } else { 0 };
        setup.config.slow_start_after_idle = on(15);
        if on(10) {
            setup.options.receive_buffer = Some(3_000 + u32::from(features));
        }
        let (loss, duplicate, jitter, forged, seed) = link;
        let faults = Faults { loss, duplicate, jitter: ms(jitter), forged, seed, ..Faults::default() };
        let ((a, b), write, reads, credit, seed) = usage;
        same_with_and_without(&setup, &faults, &Use { len: [a, b], write, reads, credit, seed });
    }
}
