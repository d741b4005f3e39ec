//! The workload of Nahum et al. on a small scale: every byte arrives, and the shapes that the paper's text names come
//! out of the shipped stack.

use vsmp::workload::packets::{Carried, Packets};
use vsmp::{Arena, Preset};

#[global_allocator]
static ARENA: Arena = Arena::new();

/// A run on so many CPUs: of a tenth of a second, unless its line says another time. An unfair lock takes longer to lose the order.
fn run(line: &str, cpus: usize) -> Carried {
    let preset = Preset::named("sgi-challenge").expect("it is built in");
    let packets = Packets::parse(&line.replacen(' ', " ms=100 ", 1), cpus, 1, &preset).expect("it is a run");
    let carried = packets.simulate();
    assert!(carried.bytes > 0, "{line}: nothing arrives");
    assert_eq!(carried.wrong, 0, "{line}: bytes at the wrong place");
    carried
}

/// Received data is compared with the stream at its place, sent data by the remote end: 4016 bytes are whole periods.
#[test]
fn every_byte_arrives_at_its_place() {
    for line in [
        "msgp-pool+tas+unordered receive checksum",
        "msgp-pool:2+mcs+unordered receive inside ipv6",
        "msgp-pool:6+tas receive tickets conns=3",
        "msgp-pool+tas+unordered send checksum bytes=4016",
        "msgp-pool:6+tas+unordered send bytes=4016 ipv6",
        "msgp-pool+tas+unordered udp send",
        "msgp-pool+tas+unordered udp receive checksum ipv6",
    ] {
        run(line, 3);
    }
}

/// A machine that is not the first of its process finds other addresses free, so the bounds leave room for that.
#[test]
fn an_unfair_lock_loses_the_order_and_a_queue_keeps_it() {
    let tas = run("msgp-pool+tas+unordered receive checksum ms=1000", 8);
    let mcs = run("msgp-pool+mcs+unordered receive checksum locks=mcs ms=1000", 8);
    let peak = run("msgp-pool+tas+unordered receive checksum ms=1000", 4);
    assert!(tas.out_of_order_percent() > 20.0, "{}", tas.out_of_order_percent());
    assert!(mcs.out_of_order_percent() < 2.0, "{}", mcs.out_of_order_percent());
    assert!(tas.megabits() < 0.9 * peak.megabits(), "{} after {}", tas.megabits(), peak.megabits());
    assert!(mcs.megabits() > tas.megabits());
}

#[test]
fn tickets_keep_the_order_of_the_application() {
    let race = run("msgp-pool:2+tas+unordered receive", 8);
    let turns = run("msgp-pool:2+tas+unordered receive tickets", 8);
    assert!(race.disorder.inversions > 0 && turns.disorder.packets > 0);
    assert_eq!(race.disorder.inversions, race.disorder.distances.iter().sum::<u64>());
    assert_eq!(turns.disorder.inversions, 0);
}

#[test]
fn connections_and_datagrams_scale() {
    let one = run("msgp-pool+tas+unordered receive ms=1000", 8);
    let each = run("msgp-pool+tas+unordered receive conns=each", 8);
    assert!(each.megabits() > 3.0 * one.megabits() && each.waiting_percent(8) < 5.0);
    assert!(one.waiting_percent(8) > 50.0);
    let [alone, eight] = [1, 8].map(|cpus| run("msgp-pool+tas+unordered udp receive", cpus).megabits());
    assert!(eight > 5.0 * alone, "{eight} and {alone}");
    let [alone, eight] = [1, 8].map(|cpus| run("msgp-pool+tas+unordered udp send", cpus).megabits());
    assert!(eight > 5.0 * alone, "{eight} and {alone}");
}

/// One processor finds no lock held, and each lock more costs it something.
#[test]
fn alone_one_lock_is_not_slower_than_six() {
    let of = |arch: &str| run(&format!("{arch}+tas+unordered receive"), 1).megabits();
    let [one, two, six] = ["msgp-pool", "msgp-pool:2", "msgp-pool:6"].map(of);
    assert!(one >= two && two >= six, "{one}, {two}, {six}");
}

#[test]
fn a_line_that_means_nothing_is_refused_by_name() {
    let preset = Preset::named("sgi-challenge").expect("it is built in");
    let refused = |line| Packets::parse(line, 2, 1, &preset).expect_err("it is refused").to_string();
    assert_eq!(refused("msgp-pool recieve"), "`recieve` means nothing to the packets' workload");
    assert!(refused("up receive").contains("one thread"));
    assert!(refused("msgp-pool conns=0").contains("connections"));
    assert!(refused("msgp-pool tickets bytes=502").contains("251"));
}
