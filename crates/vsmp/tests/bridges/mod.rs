//! The bridge between two cards with a tester: every frame is accounted for, the wire bounds what arrives, and CPUs add
//! up under
//! `mpsafe` and not under `generic`.

use std::sync::Arc;
use std::time::Duration;

use dev::Device;
use observe::DropReason;
use pktbuf::PktBuf;
use sync::Step;
use vsmp::preset::{Kernel, Preset};
use vsmp::test_card::{Flows, TestCard, Totals, Vectors};
use vsmp::workload::bridges::{BridgeLoad, BridgeTrial, Forwarded, cpu_of};
use vsmp::{Costs, Machine};

/// A trial on the paper's machine, at a rate for each port.
fn trial(load: &str, cpus: usize, rate: u64) -> BridgeTrial {
    let preset = Preset::named("atom-c2758").expect("it is built in");
    let load = load.parse().expect("words of the workload");
    BridgeTrial { load, cpus, rate, preset, kernel: Kernel::OfThePaper, seed: 1 }
}

fn run(load: &str, cpus: usize, rate: u64) -> Forwarded {
    let forwarded = trial(load, cpus, rate).simulate();
    assert_eq!(forwarded.check(), Ok(()), "{load} on {cpus}");
    forwarded
}

/// Kilo frames a second without loss, in short trials.
fn throughput(load: &str, cpus: usize) -> f64 {
    throughput_of(load, cpus, 1)
}

fn throughput_of(load: &str, cpus: usize, seed: u64) -> f64 {
    let found = BridgeTrial { seed, ..trial(&format!("{load}+ms=5"), cpus, 1) }.throughput();
    found.unwrap_or_else(|error| panic!("{load} on {cpus}: {error}")).rate / 1e3
}

/// The paper's plateaus: 162.5 kfps at 1518 bytes on one core, 469.9 at 512 on two.
#[test]
fn large_frames_arrive_at_the_rate_of_the_wire() {
    for (bytes, cpus, wire) in [(1518, 1, 162.5), (512, 2, 469.9)] {
        let found = throughput(&format!("mpsafe+bytes={bytes}"), cpus);
        assert!((found / wire - 1.0).abs() < 0.01, "{bytes} bytes on {cpus}: {found} kfps");
        let full = run(&format!("mpsafe+ms=5+bytes={bytes}"), cpus, trial(&format!("bytes={bytes}"), 1, 1).line_rate());
        assert!((full.rate() / wire / 1e3 - 1.0).abs() < 0.01, "{bytes} bytes on {cpus}: {}", full.rate());
    }
}

/// Under twice its capacity every bridge drops frames, each for a reason: where the card's ring is full, and under
/// `generic`, with a handler that drains the ring, where the soft interrupt's queue is.
#[test]
fn every_frame_is_delivered_or_dropped_for_a_reason() {
    for (load, cpus, rate) in
        [("mpsafe", 1, 400_000), ("mpsafe", 4, 1_000_000), ("rcu", 2, 900_000), ("generic", 1, 400_000)]
    {
        let forwarded = run(&format!("{load}+ms=10"), cpus, rate);
        assert_eq!(forwarded.offered(), 2 * rate / 100, "{load}");
        assert!(forwarded.ports.iter().all(|port| port.delivered > 100 && port.ring_full > 0), "{load}: {forwarded:?}");
        let queue_full = forwarded.drops.iter().find(|(reason, _)| *reason == DropReason::InputQueueFull);
        assert_eq!(queue_full.is_some(), load == "generic", "{load}: {:?}", forwarded.drops);
        assert!(!forwarded.is_free_of_loss());
    }
    let idle = run("mpsafe+ms=10", 1, 100_000);
    assert!(idle.is_free_of_loss() && idle.dropped() == 0, "{idle:?}");
}

/// B-2 within its 20 %, means of four seeds, because flows hash differently over four and eight cores with each; the first two are
/// those that the machine was fitted to.
#[test]
fn cores_add_up_under_mpsafe() {
    let kfps = [1, 2, 4, 8].map(|cpus| (1..=4).map(|seed| throughput_of("mpsafe", cpus, seed)).sum::<f64>() / 4.0);
    for (found, paper) in kfps.into_iter().zip([329.0, 527.7, 705.4, 1147.1]) {
        assert!((found / paper - 1.0).abs() < 0.20, "{kfps:?}");
    }
    let generic = throughput("generic", 8);
    assert!((generic / 99.3 - 1.0).abs() < 0.10, "eight cores are of no use to it: {generic}");
}

/// The paper's handler of MSI-X takes one frame, that of INTx all.
#[test]
fn work_per_interrupt_is_what_the_bridge_is_told() {
    let interrupts = |load: &str, rate| {
        let forwarded = run(&format!("{load}+ms=5"), 1, rate);
        let steps = forwarded.account.steps;
        steps[Step::Frame as usize] as f64 / steps[Step::Batch as usize] as f64
    };
    assert_eq!(interrupts("mpsafe", 150_000), 1.0);
    assert!(interrupts("mpsafe+work=drain", 400_000) > 4.0);
    assert!(interrupts("generic", 400_000) > 4.0);
    assert_eq!(interrupts("generic+work=1", 40_000), 1.0);
}

#[test]
fn flows_are_spread_over_the_queues_by_their_hash() {
    let flows = |number| Flows::new(0, number, 74, 4, 1).largest_share();
    assert_eq!(flows(1), 1.0);
    assert!((0.25..0.30).contains(&flows(1000)), "{}", flows(1000));
    // Table 2: one core, a core for each port, a core for two queues, a core for each queue.
    let cpus = |cpus| [0, 1].map(|port| [0, 1, 2, 3].map(|queue| cpu_of(port, queue, 4, cpus)));
    assert_eq!(cpus(1), [[0; 4]; 2]);
    assert_eq!(cpus(2), [[0; 4], [1; 4]]);
    assert_eq!(cpus(4), [[0, 1, 2, 3]; 2]);
    assert_eq!(cpus(8), [[0, 1, 2, 3], [4, 5, 6, 7]]);
}

/// The tester finds a changed frame, one that arrives twice, and one behind a later frame of its flow.
#[test]
fn the_tester_compares_every_byte() {
    let (totals, _) = Machine::new(1, Costs::opteron_275()).run(|| {
        let config = Preset::named("atom-c2758").expect("it is built in").card;
        let flows = [0, 1].map(|port| Arc::new(Flows::new(port, 2, 128, config.queues, 1)));
        let mut card = TestCard::new(config, Vectors::new(1), flows[0].clone(), flows[1].clone());
        let tester = card.tester();
        let mut tx = card.take_queues().remove(0).tx;
        let mut send = |number, change: fn(&mut [u8])| {
            let mut frame = flows[1].frame(number);
            change(&mut frame);
            tx.transmit(PktBuf::from_slice(&frame).expect("a buffer")).expect("there is room");
        };
        let same = |_: &mut [u8]| {};
        send(4, same);
        send(1, same);
        // Of another flow, and the same again.
        send(3, same);
        send(3, same);
        // Behind frame 4 of its flow.
        send(2, same);
        send(6, |frame| frame[100] ^= 1);
        send(8, |frame| frame.copy_within(0..6, 6));
        tester.totals()
    });
    assert_eq!(totals, Totals { delivered: 4, wrong: 3, misordered: 1, ..Totals::default() });
}

#[test]
fn words_describe_a_load() {
    for words in ["mpsafe", "generic+bytes=1518", "rcu+flows=64+work=32+rate=1000+ms=3", "generic+work=drain"] {
        assert_eq!(words.parse::<BridgeLoad>().map(|load| load.to_string()), Ok(words.to_owned()));
    }
    let load: BridgeLoad = "".parse().expect("no word at all");
    assert_eq!((load.to_string().as_str(), load.time), ("mpsafe", Duration::from_millis(20)));
    for (words, says) in [
        ("bytes=63", "frames have 64 to 1518 bytes"),
        ("flows=0", "there are 1 to 4096 flows"),
        ("ms=0", "nothing is measured in no time, or at no rate"),
        ("giant", "`giant` means nothing to the bridge's workload"),
        ("bytes=x", "`bytes=x` means nothing to the bridge's workload"),
    ] {
        assert_eq!(words.parse::<BridgeLoad>().map_err(|error| error.to_string()), Err(says.to_owned()));
    }
}
