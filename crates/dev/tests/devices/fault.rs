//! Fault injection: determinism, rates, order and time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dev::fault::{Fault, FaultPlan, ParsePlanError, PlatformClock};
use dev::layout::Layout;
use dev::mem::{MemConfig, pair};
use dev::{Device, QueuePair, WaitOutcome};
use frames::Segment;
use observe::{Counter, DropReason, Time};
use pktbuf::Checksum;
use sync::Real;

use crate::build::{self, Flow, drain, only_queue};

/// A clock set by the test.
#[derive(Clone, Default)]
struct TestClock(Arc<AtomicU64>);

impl TestClock {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// A device with faults, the plain device at its other end, and the clock.
struct Bench {
    fault: QueuePair,
    plain: QueuePair,
    device: Fault,
    clock: TestClock,
}

fn bench(plan: &str) -> Bench {
    let (a, mut b) = pair::<Real>(MemConfig { ring_frames: 4096, ..MemConfig::default() });
    let clock = TestClock::default();
    let time = clock.clone();
    let plan: FaultPlan = plan.parse().expect("a plan");
    let mut device = Fault::new(Box::new(a), plan, move || Time::from_nanos(time.0.load(Ordering::Relaxed)));
    Bench { fault: only_queue(&mut device), plain: only_queue(&mut b), device, clock }
}

impl Bench {
    /// Sends frames 0..count from the plain end; returns what the faulty end received, driving time by `step` per
    /// frame.
    fn receive(&mut self, count: u32, step: Duration) -> Vec<pktbuf::PktBuf> {
        let mut received = Vec::new();
        for seq in 0..count {
            self.plain.tx.transmit(build::data(Flow::v4(1), seq, &[seq as u8; 100])).expect("room");
            received.append(&mut drain(&mut self.fault));
            self.clock.advance(step);
        }
        self.clock.advance(Duration::from_secs(10));
        received.append(&mut drain(&mut self.fault));
        received
    }

    fn receive_numbers(&mut self, count: u32, step: Duration) -> Vec<u32> {
        self.receive(count, step).iter().map(|frame| build::parts(frame).0).collect()
    }

    fn dropped(&self) -> u64 {
        self.device.counters().expect("a fault device counts").dropped(DropReason::FaultInjected)
    }
}

#[test]
fn a_plan_prints_as_it_parses() {
    let texts = [
        "",
        "loss 1% reorder 2% distance 5 delay 5ms jitter 1ms dup 0.5% corrupt 0.1% truncate 0.1% rate 100mbit seed 7",
        "burst 0.1% 30% 100% reorder 5ms limit 20",
        "corrupt 100% bits 3 rate 1500kbit mtu 1400 flap 10s 100ms",
        "loss 0.0001% delay 1500us",
        "in burst 0.1% 30% 100% reorder 5ms out loss 2% loss 3% delay 1ms",
        "out corrupt 1% bits 2 scramble 1% 40 forge 0.1% pad 5% ce 2%",
        "full 100ms 5ms stall 2s 1s lostwake 1% spuriouswake 10% unplug 2s seed 9 in dup 1%",
        "unplug 2s back 500ms",
    ];
    for text in texts {
        let plan: FaultPlan = text.parse().expect(text);
        assert_eq!(plan.to_string().parse::<FaultPlan>(), Ok(plan.clone()), "{text}");
        assert_eq!(words(&plan.to_string()), words(text));
    }
    let two_words: FaultPlan = "burst 1% 50% delay 0.5ms".parse().expect("the loss inside a burst may be left out");
    assert_eq!(two_words.to_string(), "burst 1% 50% 100% delay 500us");
    let scoped: FaultPlan = "loss 1% in dup 2% both delay 1ms".parse().expect("scopes end");
    assert_eq!(scoped.to_string(), "in loss 1% dup 2% delay 1ms out loss 1% delay 1ms");
}

fn words(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    words.sort_unstable();
    words
}

#[test]
fn errors_name_the_word_and_what_is_allowed() {
    let error = "loss 1% lossy 3".parse::<FaultPlan>().expect_err("no such word");
    assert_eq!(error, ParsePlanError::UnknownWord("lossy".to_owned()));
    assert!(error.to_string().contains("\"lossy\"") && error.to_string().contains("reorder"), "{error}");
    for text in [
        "loss",
        "loss 101%",
        "loss 1",
        "loss -1%",
        "loss .5%",
        "loss 0.00001%",
        "delay 5",
        "delay ms",
        "delay 1.0000000001s",
        "rate 0mbit",
        "rate 5",
        "mtu 0",
        "distance 0",
        "bits x",
        "flap 1s",
        "flap 0s 1s",
        "bits 2",
        "scramble 1%",
        "scramble 1% 0",
        "full 1s",
        "stall 0ms 1s",
        "unplug 5",
        "back 5s",
        "lostwake 3",
        "seed -1",
        "burst 1%",
        "delay 99999999999999999999s",
        "delay 99999999999s",
        "reorder 3",
    ] {
        let word = text.split(' ').next().expect("a word");
        let error = text.parse::<FaultPlan>().expect_err(text).to_string();
        assert!(error.contains(&format!("\"{word}\"")), "{text}: {error}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    let plan = "loss 5% burst 1% 40% reorder 4% distance 3 jitter 3ms dup 3% corrupt 3% bits 2 truncate 3%";
    let trace = |seed: u64| -> Vec<Vec<u8>> {
        let frames = bench(&format!("{plan} seed {seed}")).receive(2000, Duration::from_millis(1));
        frames.iter().map(|frame| frame.to_vec()).collect()
    };
    let first = trace(1);
    assert!(first == trace(1));
    assert!(first != trace(2));
}

#[test]
fn one_fault_does_not_move_another() {
    let lost = |plan: &str| {
        let mut numbers = bench(plan).receive_numbers(3000, Duration::from_millis(1));
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    assert_eq!(lost("loss 3% seed 4"), lost("loss 3% reorder 10% distance 4 dup 5% seed 4"));
}

#[test]
fn rates_are_those_of_the_plan() {
    const FRAMES: u32 = 20_000;
    // Four standard deviations of a binomial at these rates are below 0.65 points.
    let near = |count: usize, percent: f64| {
        let measured = 100.0 * count as f64 / f64::from(FRAMES);
        assert!((measured - percent).abs() < 0.65, "{measured} % instead of {percent} %");
    };
    let mut lossy = bench("loss 5% seed 1");
    let arrived = lossy.receive_numbers(FRAMES, Duration::ZERO).len();
    near(FRAMES as usize - arrived, 5.0);
    assert_eq!(lossy.dropped(), u64::from(FRAMES) - arrived as u64);
    near(bench("dup 5% seed 1").receive_numbers(FRAMES, Duration::ZERO).len() - FRAMES as usize, 5.0);
    let corrupt = bench("corrupt 5% bits 3 seed 1").receive(FRAMES, Duration::ZERO);
    let flipped = |frame: &[u8], seq: usize| {
        let original = build::data(Flow::v4(1), seq as u32, &[seq as u8; 100]);
        frame.iter().zip(original.iter()).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>()
    };
    let bits: Vec<u32> = corrupt.iter().enumerate().map(|(seq, frame)| flipped(frame, seq)).collect();
    assert!(bits.iter().all(|bits| *bits == 0 || *bits == 3));
    near(bits.iter().filter(|bits| **bits == 3).count(), 5.0);
    let whole = build::data(Flow::v4(1), 0, &[0; 100]).len();
    let short = bench("truncate 5% seed 1").receive(FRAMES, Duration::ZERO);
    near(short.iter().filter(|frame| frame.len() < whole).count(), 5.0);
    assert!(short.iter().all(|frame| !frame.is_empty()));
}

#[test]
fn losses_of_the_burst_model_come_in_bursts() {
    // Stationary share of the bad state: 1 / (1 + 20) = 4.8 %; mean burst: 5 frames.
    let arrived = bench("burst 1% 20% seed 3").receive_numbers(50_000, Duration::ZERO);
    let gaps: Vec<u32> = arrived.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|gap| *gap > 0).collect();
    let lost: u32 = gaps.iter().sum();
    let mean = f64::from(lost) / gaps.len() as f64;
    assert!((4.0..6.0).contains(&mean), "mean burst {mean}");
    assert!((1_900..2_900).contains(&lost), "{lost} lost");
}

#[test]
fn reordered_frames_are_overtaken_by_the_distance() {
    let numbers = bench("reorder 2% distance 5 seed 9").receive_numbers(5000, Duration::from_micros(10));
    assert_eq!(numbers.len(), 5000);
    let mut late = 0;
    let mut highest = 0;
    for (position, number) in numbers.iter().enumerate() {
        if *number < highest {
            late += 1;
            let overtaken_by = numbers[..position].iter().filter(|other| *other > number).count();
            // Later frames may be held back too, so at least five have passed, and few more.
            assert!((5..=8).contains(&overtaken_by), "{number} was overtaken by {overtaken_by}");
        }
        highest = highest.max(*number);
    }
    assert!((60..150).contains(&late), "{late} reordered");
}

#[test]
fn the_last_frame_is_late_but_not_lost() {
    let mut bench = bench("reorder 100% distance 50");
    bench.plain.tx.transmit(build::data(Flow::v4(1), 1, b"x")).expect("room");
    assert_eq!(drain(&mut bench.fault).len(), 0);
    bench.clock.advance(Duration::from_millis(20));
    assert_eq!(drain(&mut bench.fault).len(), 1);
}

#[test]
fn delay_holds_frames_for_exactly_its_time_in_both_directions() {
    let mut bench = bench("delay 5ms");
    bench.plain.tx.transmit(build::data(Flow::v4(1), 1, b"in")).expect("room");
    bench.fault.tx.transmit(build::data(Flow::v4(1), 2, b"out")).expect("room");
    bench.fault.tx.flush();
    assert_eq!(drain(&mut bench.fault).len(), 0);
    bench.clock.advance(Duration::from_nanos(4_999_999));
    assert_eq!(drain(&mut bench.fault).len(), 0);
    assert_eq!(drain(&mut bench.plain).len(), 0);
    bench.clock.advance(Duration::from_nanos(1));
    assert_eq!(bench.fault.rx.wait(None), WaitOutcome::Ready);
    assert_eq!(drain(&mut bench.fault).len(), 1);
    assert_eq!(drain(&mut bench.plain).len(), 1, "the receive queue drives the way out");
}

#[test]
fn jitter_keeps_order_and_reordering_in_time_does_not() {
    let in_order = |plan: &str| {
        let numbers = bench(plan).receive_numbers(500, Duration::from_micros(100));
        assert_eq!(numbers.len(), 500);
        numbers.is_sorted()
    };
    assert!(in_order("delay 5ms jitter 5ms seed 2"));
    assert!(!in_order("delay 5ms reorder 5ms seed 2"));
}

#[test]
fn rate_spaces_frames_and_the_limit_drops_the_excess() {
    // A frame of 166 bytes takes 166 * 8 / 1e6 s = 1.328 ms at 1 Mbit/s.
    let mut bench = bench("rate 1mbit limit 10");
    for seq in 0..20 {
        bench.plain.tx.transmit(build::data(Flow::v4(1), seq, &[0; 100])).expect("room");
    }
    assert_eq!(drain(&mut bench.fault).len(), 0);
    let counters = bench.device.counters().expect("counters");
    assert_eq!(counters.dropped(DropReason::RxRingFull), 10);
    for _ in 0..10 {
        bench.clock.advance(Duration::from_nanos(1_327_999));
        assert_eq!(drain(&mut bench.fault).len(), 0);
        bench.clock.advance(Duration::from_nanos(1));
        assert_eq!(drain(&mut bench.fault).len(), 1);
    }
}

#[test]
fn directions_black_holes_and_flaps() {
    let mut out_only = bench("out loss 100%");
    assert_eq!(out_only.receive_numbers(10, Duration::ZERO).len(), 10);
    out_only.fault.tx.transmit(build::data(Flow::v4(1), 1, b"x")).expect("taken");
    out_only.fault.tx.flush();
    assert_eq!(drain(&mut out_only.plain).len(), 0);
    assert_eq!(out_only.dropped(), 1);

    let mut black_hole = bench("mtu 152");
    black_hole.plain.tx.transmit(build::data(Flow::v4(1), 1, &[0; 100])).expect("room");
    black_hole.plain.tx.transmit(build::data(Flow::v4(1), 2, &[0; 101])).expect("room");
    assert_eq!(drain(&mut black_hole.fault).len(), 1, "152 bytes pass, 153 do not");

    let numbers = bench("flap 10ms 5ms").receive_numbers(45, Duration::from_millis(1));
    let expected: Vec<u32> = (0..45).filter(|ms| ms % 15 < 10).collect();
    assert_eq!(numbers, expected);
}

/// The one frame that crosses from the plain end under `plan`, and its original.
fn one(plan: &str, flow: Flow, data: &[u8]) -> (pktbuf::PktBuf, Vec<u8>, Bench) {
    let mut bench = bench(plan);
    let frame = build::data(flow, 1, data);
    let before = frame.to_vec();
    bench.plain.tx.transmit(frame).expect("room");
    let after = drain(&mut bench.fault).pop().expect("it arrives");
    (after, before, bench)
}

fn injected(bench: &Bench, counter: Counter) -> u64 {
    bench.device.counters().expect("a fault device counts").get(counter)
}

#[test]
fn a_forged_text_keeps_its_checksum_and_a_scrambled_one_does_not() {
    let text: Vec<u8> = (0..200).collect();
    for flow in [Flow::v4(1), Flow::v6(1)] {
        let (after, before, bench) = one("forge 100%", flow, &text);
        let layout = Layout::of(&after).expect("still a segment");
        assert!(*after != *before && layout.checksum_is_good(&after));
        assert_eq!(after[..layout.data], before[..layout.data], "headers are left alone");
        assert_eq!(injected(&bench, Counter::FaultsForged), 1);
        let (after, before, bench) = one("scramble 100% 9", flow, &text);
        let changed: Vec<usize> = (0..before.len()).filter(|at| after[*at] != before[*at]).collect();
        assert_eq!((changed.len(), changed[8] - changed[0]), (9, 8), "nine bytes in a row");
        assert!(changed[0] >= 14, "the link header is spared");
        assert_eq!(injected(&bench, Counter::FaultsCorrupted), 1);
    }
    let (after, before, bench) = one("forge 100%", Flow::v4(1), &[7; 50]);
    assert_eq!((&*after, injected(&bench, Counter::FaultsForged)), (&*before, 0), "nothing to exchange");
}

#[test]
fn padding_lies_behind_the_packet_and_keeps_within_the_mtu() {
    let (after, before, bench) = one("pad 100%", Flow::v4(1), b"short");
    assert!(after.len() > before.len() && after[..before.len()] == before);
    assert_eq!(Layout::of(&after).map(|layout| layout.end), Some(before.len()));
    assert_eq!(injected(&bench, Counter::FaultsPadded), 1);
    let (after, before, bench) = one("pad 100%", Flow::v4(1), &[0; 1448]);
    assert_eq!((after.len(), before.len(), injected(&bench, Counter::FaultsPadded)), (1514, 1514, 0));
}

#[test]
fn only_willing_packets_are_marked() {
    for (flow, at, willing, marked) in
        [(Flow::v4(1), 15, 0b10, 0b11), (Flow::v4(1), 15, 0b01, 0b11), (Flow::v6(1), 15, 0b10_0000, 0b11_0000)]
    {
        for byte in [0, willing] {
            let mut bench = bench("ce 100%");
            let segment = Segment { data: b"data", ..Segment::ack((1, 80), 1, 77) };
            let mut packet = flow.packet(segment);
            packet.tos = if packet.src.is_ipv6() { byte >> 4 } else { byte };
            bench.plain.tx.transmit(flow.frame(packet)).expect("room");
            let after = drain(&mut bench.fault).pop().expect("it arrives");
            assert_eq!(after[at], if byte == 0 { 0 } else { marked });
            let layout = Layout::of(&after).expect("a segment");
            assert!(layout.checksum_is_good(&after), "the header's checksum is made anew");
            assert_eq!(injected(&bench, Counter::FaultsMarked), u64::from(byte != 0));
        }
    }
}

#[test]
fn rules_are_met_in_their_order() {
    let copies = |plan: &str| bench(plan).receive_numbers(4000, Duration::ZERO).len();
    // A frame lost before duplication is lost whole; after duplication each copy is lost independently.
    assert_eq!(copies("loss 50% dup 100% seed 3") % 2, 0);
    let numbers = bench("dup 100% loss 50% seed 3").receive_numbers(4000, Duration::ZERO);
    let single = numbers.iter().filter(|number| numbers.iter().filter(|other| other == number).count() == 1).count();
    assert!((1800..2200).contains(&single), "{single} of 4000 lost one copy");
    assert!((900..1100).contains(&copies("loss 50% loss 50% seed 3")), "two rules of a kind draw for themselves");
}

#[test]
fn a_full_queue_and_a_stalled_one_have_their_times() {
    let mut bench = bench("full 10ms 5ms stall 20ms 5ms");
    let offered = |bench: &mut Bench, at: u64| {
        let late = at - bench.clock.0.load(Ordering::Relaxed) / 1_000_000;
        bench.clock.advance(Duration::from_millis(late));
        let frame = build::data(Flow::v4(1), at as u32, b"x");
        let room = bench.fault.tx.credit() > 0;
        assert_eq!(bench.fault.tx.transmit(frame).is_ok(), room, "credit tells what becomes of a frame");
        bench.fault.tx.flush();
        room
    };
    assert!(offered(&mut bench, 9));
    assert!(!offered(&mut bench, 10));
    assert_eq!(bench.fault.rx.next_due(), Some(Time::from_nanos(15_000_000)));
    assert!(!offered(&mut bench, 14));
    assert!(offered(&mut bench, 15));
    bench.plain.tx.transmit(build::data(Flow::v4(1), 1, b"x")).expect("room");
    bench.clock.advance(Duration::from_millis(5));
    assert_eq!(drain(&mut bench.fault).len(), 0, "stalled");
    bench.clock.advance(Duration::from_millis(5));
    assert_eq!(drain(&mut bench.fault).len(), 1, "late, not lost");
}

#[test]
fn an_unplugged_device_is_gone_and_counts_what_it_had() {
    let mut bench = bench("unplug 1s delay 10ms");
    bench.clock.advance(Duration::from_millis(995));
    for end in [&mut bench.fault, &mut bench.plain] {
        end.tx.transmit(build::data(Flow::v4(1), 1, b"x")).expect("room");
    }
    assert!(drain(&mut bench.fault).is_empty() && !bench.fault.rx.gone());
    assert_eq!(bench.fault.rx.next_due(), Some(Time::from_nanos(1_000_000_000)));
    bench.clock.advance(Duration::from_millis(50));
    assert!(bench.fault.rx.gone());
    assert_eq!(bench.fault.rx.wait(None), WaitOutcome::Gone);
    assert!(drain(&mut bench.fault).is_empty() && drain(&mut bench.plain).is_empty());
    bench.fault.tx.transmit(build::data(Flow::v4(1), 1, b"x")).expect("taken, and dropped");
    let counters = bench.device.counters().expect("counters");
    assert_eq!(counters.dropped(DropReason::InterfaceDown), 3);
}

#[test]
fn a_device_that_comes_back_has_missed_what_was_sent_meanwhile() {
    let mut bench = bench("unplug 1s back 500ms");
    assert_eq!(bench.fault.rx.next_due(), Some(Time::from_nanos(1_000_000_000)));
    bench.clock.advance(Duration::from_secs(1));
    assert!(bench.fault.rx.gone());
    assert_eq!(bench.fault.rx.next_due(), Some(Time::from_nanos(1_500_000_000)));
    for end in [&mut bench.fault, &mut bench.plain] {
        end.tx.transmit(build::data(Flow::v4(1), 1, b"x")).expect("room");
        end.tx.flush();
    }
    assert!(drain(&mut bench.fault).is_empty() && drain(&mut bench.plain).is_empty());
    bench.clock.advance(Duration::from_millis(500));
    assert!(!bench.fault.rx.gone());
    assert_eq!(bench.fault.rx.next_due(), None);
    assert!(drain(&mut bench.fault).is_empty());
    for end in [&mut bench.fault, &mut bench.plain] {
        end.tx.transmit(build::data(Flow::v4(1), 1, b"x")).expect("room");
        end.tx.flush();
    }
    assert_eq!((drain(&mut bench.fault).len(), drain(&mut bench.plain).len()), (1, 1));
    assert_eq!(bench.device.counters().expect("counters").dropped(DropReason::InterfaceDown), 2);
}

#[test]
fn a_lost_wake_up_is_made_up_for_and_a_spurious_one_brings_nothing() {
    let real = |plan: &str| {
        let (a, mut b) = pair::<Real>(MemConfig::default());
        let mut device = Fault::new(Box::new(a), plan.parse().expect("a plan"), PlatformClock::<Real>::default());
        (only_queue(&mut device), only_queue(&mut b))
    };
    let (mut faulty, mut plain) = real("lostwake 100%");
    plain.tx.transmit(build::data(Flow::v4(1), 1, b"x")).expect("room");
    plain.tx.flush();
    let before = Instant::now();
    while faulty.rx.wait(None) != WaitOutcome::Ready {}
    assert!(before.elapsed() >= Duration::from_millis(20), "{:?}", before.elapsed());
    assert_eq!(drain(&mut faulty).len(), 1);
    faulty.rx.waker().wake();
    assert_eq!(faulty.rx.wait(None), WaitOutcome::Woken, "other wakes are heard");

    let (mut faulty, _plain) = real("spuriouswake 100%");
    assert_eq!(faulty.rx.wait(None), WaitOutcome::Ready);
    assert!(drain(&mut faulty).is_empty());
}

#[test]
fn a_full_device_pushes_back_through_the_faults() {
    let (a, mut b) = pair::<Real>(MemConfig { ring_frames: 4, ..MemConfig::default() });
    let mut device = Fault::new(Box::new(a), FaultPlan::default(), || Time::ZERO);
    let (mut faulty, mut plain) = (only_queue(&mut device), only_queue(&mut b));
    let mut taken = 0;
    while faulty.tx.credit() > 0 {
        faulty.tx.transmit(build::data(Flow::v4(1), taken, b"x")).expect("credit promised room");
        taken += 1;
    }
    assert_eq!(taken, 4);
    assert!(faulty.tx.transmit(build::data(Flow::v4(1), taken, b"x")).is_err());
    faulty.tx.flush();
    assert_eq!(drain(&mut plain).len(), 4);
    assert_eq!(faulty.tx.credit(), 4);
}

#[test]
fn corruption_is_seen_by_the_receiver_even_with_checksum_offload() {
    let (a, mut b) = pair::<Real>(MemConfig { checksum_offload: true, ..MemConfig::default() });
    let plan: FaultPlan = "out corrupt 100%".parse().expect("a plan");
    let mut device = Fault::new(Box::new(a), plan, || Time::ZERO);
    let (mut faulty, mut plain) = (only_queue(&mut device), only_queue(&mut b));
    let mut frame = build::data(Flow::v4(1), 1, &[7; 400]);
    frame.meta_mut().checksum = Checksum::Verified;
    faulty.tx.transmit(frame).expect("room");
    faulty.tx.flush();
    assert_eq!(drain(&mut plain)[0].meta().checksum, Checksum::None);
}
