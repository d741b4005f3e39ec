//! The workload of Nahum et al. on a small scale: every byte arrives, and the shapes that the paper's text names come
//! out of the shipped stack.

use std::process::Command;

use observe::{Counter, DropReason};
use vsmp::workload::packets::{Carried, Packets, Side, Traffic};
use vsmp::{Arena, Preset};

#[global_allocator]
static ARENA: Arena = Arena::new();

/// Marks a process that makes one run and prints its trace.
const SEED: &str = "HEDDLE_VSMP_SEED";

/// A run on so many CPUs: of a tenth of a second, unless its line says another time. An unfair lock takes longer to lose the order.
fn run(line: &str, cpus: usize) -> Carried {
    run_with_seed(line, cpus, 1)
}

fn run_with_seed(line: &str, cpus: usize, seed: u64) -> Carried {
    let preset = Preset::named("sgi-challenge").expect("it is built in");
    let packets = Packets::parse(&line.replacen(' ', " ms=100 ", 1), cpus, seed, &preset).expect("it is a run");
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
        "msgp-pool+mcs+unordered receive after",
        "msgp-pool:6+tas receive after tickets ipv6",
        "msgp-pool:6+tas receive tickets conns=3",
        "msgp-pool+tas+unordered send checksum bytes=4016",
        "msgp-pool:6+tas+unordered send bytes=4016 ipv6",
        "msgp-pool+tas+unordered udp send",
        "msgp-pool+tas+unordered udp receive checksum ipv6",
        "msgp-pool+tas+unordered receive checksum fddi",
        "msgp-pool:6+tas receive after tickets fddi ipv6",
        "msgp-pool+tas+unordered send checksum bytes=4016 fddi",
        "msgp-pool:2+mcs+unordered send bytes=4016 fddi ipv6",
        "msgp-pool+tas+unordered udp send fddi",
        "msgp-pool+tas+unordered udp receive checksum fddi ipv6",
    ] {
        run(line, 3);
    }
}

/// Two CPUs of the real machine: the driver and the stack are the same, but threads run at once. On a busy host a run this short
/// may carry nothing, but not all of them.
#[test]
fn every_byte_arrives_at_its_place_on_the_real_machine() {
    let preset = Preset::named("sgi-challenge").expect("it is built in");
    let (mut bytes, mut held) = (0, [0, 0]);
    for line in [
        "msgp-pool+tas+unordered ms=20 receive checksum",
        "msgp-pool:2+mcs+unordered ms=20 receive inside ipv6 conns=3",
        "msgp-pool:6+tas ms=20 receive after tickets",
        "msgp-pool+mcs+unordered ms=20 receive bytes=300 tickets each counts=atomic",
        "msgp-pool+tas+unordered ms=20 send checksum bytes=4016",
        "msgp-pool:6+tas+unordered ms=20 send each ipv6 counts=locked",
        "msgp-pool+tas+unordered ms=20 udp send checksum",
        "msgp-pool+tas+unordered ms=20 udp receive checksum ipv6",
    ] {
        let packets = Packets::parse(line, 2, 1, &preset).expect("it is a run");
        for timed in [false, true] {
            let carried = packets.run_here(timed);
            assert_eq!(carried.wrong, 0, "{line}: bytes at the wrong place");
            assert!(carried.time >= packets.traffic.time, "{line}: {:?}", carried.time);
            if let Some(account) = carried.packets {
                // An acknowledgment of a handshake may be dropped because data has overtaken it: no packet with data is.
                assert_eq!(account.accounted() - account.dropped(), account.made, "{line}: {account}");
            }
            if packets.traffic.tickets {
                assert_eq!(carried.disorder.inversions, 0, "{line}");
            }
            bytes += carried.bytes;
            held[usize::from(timed)] += carried.locks.iter().map(|lock| lock.hold_ns).sum::<u64>();
        }
    }
    assert!(bytes > 0, "nothing arrives");
    assert!(held[0] == 0 && held[1] > 0, "locks were held for {held:?} ns");
}

/// The MTU of FDDI has room for 4312 bytes, but packets have the bytes that are asked for, in both directions.
#[test]
fn packets_over_fddi_have_their_size() {
    for (words, payload) in [("receive", 4096), ("receive bytes=3000", 3000), ("receive bytes=4312", 4312)] {
        let carried = run(&format!("msgp-pool+mcs+unordered {words} checksum fddi"), 2);
        // The beginning and the end of the measurement divide the packets of each thread.
        let (packets, taken) = (carried.segments, carried.bytes / payload);
        assert!(packets > 100 && packets.abs_diff(taken) <= 16, "{words}: {packets} segments for {taken} packets");
    }
    let sent = run("msgp-pool+mcs+unordered send checksum fddi", 2);
    assert!(sent.bytes.is_multiple_of(4096), "{} bytes in order", sent.bytes);
}

/// Made by the remote end = taken + in queues + dropped, each counted at its place. Of the first line 771 segments were made while 649
/// packets were taken: the rest waited in the receive queue.
#[test]
fn every_packet_that_is_made_is_accounted_for() {
    for (line, cpus) in [
        ("msgp-pool+mcs+unordered receive bytes=1024 checksum", 2),
        ("msgp-pool+mcs receive bytes=1024 checksum fddi", 4),
        ("msgp-pool+tas+unordered receive", 8),
        ("msgp-pool:6+tas+unordered receive after each ipv6", 3),
        ("msgp-pool+tas+unordered receive bytes=100", 4),
        ("msgp-pool:2+tas+unordered receive bytes=1 tickets", 8),
        ("msgp-pool+tas+unordered udp receive checksum", 3),
        ("msgp-pool+tas+unordered udp receive bytes=1 ipv6", 3),
    ] {
        let carried = run(line, cpus);
        let (balance, account) = (carried.balance.expect("it receives"), carried.packets.expect("it receives"));
        assert_eq!(account.accounted(), account.made, "{line}: {account}");
        assert_eq!(account.dropped(), 0, "{line}: {account}");
        assert!(balance.taken > 100 && account.made >= balance.under_way[0] + balance.made, "{line}: {balance:?}");
        assert_eq!(balance.made + balance.under_way[0], balance.taken + balance.under_way[1], "{line}: {balance:?}");
        if line.contains("tickets") {
            assert_eq!(carried.disorder.inversions, 0, "{line}: {:?}", carried.disorder);
        }
    }
}

/// The difference of the first line, and where it is.
#[test]
fn packets_that_are_made_and_not_taken_are_in_the_receive_queue() {
    let carried = run("msgp-pool+mcs+unordered receive bytes=1024 checksum", 2);
    let (balance, account) = (carried.balance.expect("it receives"), carried.packets.expect("it receives"));
    assert!(balance.made > balance.taken + 50, "{balance:?}");
    // The threads finish what they have begun when the measurement ends: they may carry up more packets, and take one more each.
    assert!(account.unread > 50 && account.unread + 2 >= balance.under_way[1], "{balance:?}: {account}");
    assert_eq!(account.taken + account.unread + account.in_driver, account.made, "{account}");
}

/// TCP puts the data of short segments into one buffer, and the application takes fewer pieces than segments.
#[test]
fn short_segments_are_counted_by_their_place() {
    let carried = run("msgp-pool+mcs+unordered receive bytes=100", 4);
    let balance = carried.balance.expect("it receives");
    assert!(balance.taken > carried.disorder.packets + 10, "{balance:?}, {:?}", carried.disorder);
    assert!(balance.taken.abs_diff(carried.bytes / 100) <= 100, "{balance:?}, {} bytes", carried.bytes);
}

/// Protocol, version, and the most data that their headers leave: 65535 is the greatest length of an IPv4 packet with its
/// header, and of an IPv6 packet without.
const LARGEST: [(&str, &str, u64); 4] =
    [("", "", 65_495), ("", "ipv6", 65_515), ("udp", "", 65_507), ("udp", "ipv6", 65_527)];

/// Runs one side with packets of one byte and of the most, with and without checksums, and checks what was carried: the protocol,
/// the bytes of a packet, and the line that ran are given besides.
fn each_end(side: &str, check: impl Fn(Carried, &str, u64, &str)) {
    for (protocol, version, most) in LARGEST {
        for (bytes, sums) in [(1, ""), (1, "checksum"), (most, ""), (most, "checksum")] {
            let line =
                format!("msgp-pool+mcs+unordered {side} {protocol} {version} {sums} bytes={bytes} locks=mcs ms=40");
            check(run(&line, 2), protocol, bytes, &line);
        }
    }
}

#[test]
fn packets_from_one_byte_to_the_largest_arrive_as_received() {
    each_end("receive", |carried, _, bytes, line| {
        let account = carried.packets.expect("it receives");
        assert!(account.taken > 3, "{line}: {account}");
        assert_eq!((account.accounted(), account.dropped()), (account.made, 0), "{line}: {account}");
        assert_eq!(account.bytes, account.taken * bytes, "{line}: {account}");
    });
}

#[test]
fn packets_from_one_byte_to_the_largest_leave_as_sent() {
    each_end("send", |carried, protocol, bytes, line| {
        let counted = |counter| carried.counters.get(counter);
        assert_eq!((counted(Counter::FragmentsOut), carried.counters.dropped_total()), (0, 0), "{line}");
        assert!(carried.bytes >= 3 * bytes && carried.bytes.is_multiple_of(bytes), "{line}: {}", carried.bytes);
        if protocol.is_empty() {
            // The beginning and the end of the measurement divide the segments that are out of order.
            let whole = carried.segments * bytes;
            assert!(whole.abs_diff(carried.bytes) <= 2 * bytes, "{line}: {} in {}", carried.bytes, carried.segments);
        }
    });
}

/// The stack cuts what it sends, and nothing longer than a packet is received, because the remote end cuts nothing.
#[test]
fn datagrams_longer_than_fddi_takes_leave_in_fragments() {
    for (version, most, fragments) in [("", 65_507, 16), ("ipv6", 65_527, 16)] {
        let carried = run(&format!("msgp-pool+mcs+unordered udp send checksum fddi bytes={most} {version}"), 2);
        let counted = |counter| carried.counters.get(counter);
        assert!(counted(Counter::PacketsFragmented) > 3, "{:?}", carried.counters);
        assert_eq!(counted(Counter::FragmentsOut), fragments * counted(Counter::PacketsFragmented));
        assert_eq!(carried.counters.dropped(DropReason::TooBigToSend), 0);
    }
    for (version, most) in [("", 4324), ("ipv6", 4304)] {
        let carried = run(&format!("msgp-pool+mcs+unordered udp receive checksum fddi bytes={most} {version}"), 2);
        assert_eq!(carried.packets.expect("it receives").dropped(), 0);
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
    // Behind two locks one packet in fifty comes after a later one, but in some runs of a tenth of a second none does.
    let race = run("msgp-pool:2+tas+unordered receive ms=1000", 8);
    let turns = run("msgp-pool:2+tas+unordered receive tickets", 8);
    assert!(race.disorder.inversions > 0 && turns.disorder.packets > 0);
    assert_eq!(race.disorder.inversions, race.disorder.distances.iter().sum::<u64>());
    assert_eq!(turns.disorder.inversions, 0);
}

#[test]
fn connections_and_datagrams_scale() {
    let one = run("msgp-pool+tas+unordered receive ms=1000", 8);
    let each = run("msgp-pool+tas+unordered receive each", 8);
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

/// The test starts itself again for each run, because a second machine of a process finds other addresses free.
#[test]
fn a_seed_has_one_trace_in_every_process_and_another_seed_another() {
    if let Some(seed) = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()) {
        let carried = run_with_seed("msgp-pool+tas+unordered receive checksum ms=20", 8, seed);
        return println!("trace {:016x}, {} bytes.", carried.trace, carried.bytes);
    }
    let trace = |seed: &str, environment: &str| {
        let mut again = Command::new(std::env::current_exe().expect("this program"));
        again.args(["a_seed_has_one_trace", "--nocapture", "--test-threads=1"]);
        let output = again.env(SEED, seed).env("HEDDLE_VSMP_PADDING", environment).output().expect("it starts again");
        let text = String::from_utf8(output.stdout).expect("lines");
        let from = text.find("trace ").unwrap_or_else(|| panic!("no trace: {text}"));
        text[from..].split('.').next().unwrap_or_default().to_owned()
    };
    let one = trace("1", "");
    assert!(one.ends_with(" bytes"), "{one}");
    assert_eq!(one, trace("1", "another environment, longer by far"));
    assert_ne!(one, trace("2", ""));
}

/// Acquisitions of a class of locks, in a run.
fn acquired(carried: &Carried, class: &str) -> u64 {
    carried.locks.iter().find(|lock| lock.class.name() == class).map_or(0, |lock| lock.acquired)
}

/// A count costs time. Under a lock it costs two acquisitions for each look-up, for which threads of one connection wait.
#[test]
fn counting_has_its_price() {
    let words = ["each", "each counts=atomic", "each counts=locked", "counts=locked"];
    let [free, atomic, locked, shared] = words.map(|words| run(&format!("msgp-pool+tas+unordered receive {words}"), 4));
    assert_eq!([&free, &atomic].map(|carried| acquired(carried, "holders")), [0, 0]);
    for carried in [&locked, &shared] {
        let (counts, look_ups) = (acquired(carried, "holders"), acquired(carried, "conn-table"));
        // The beginning and the end of the measurement divide an event of each thread.
        assert!(look_ups > 1000 && counts.abs_diff(2 * look_ups) <= 8, "{counts} for {look_ups}");
    }
    assert!(
        free.megabits() > atomic.megabits() && free.megabits() > locked.megabits(),
        "{free:?} {atomic:?} {locked:?}"
    );
    let waits = shared.locks.iter().find(|lock| lock.class.name() == "holders").map(|lock| lock.first_try_failed);
    assert!(waits > Some(100), "{shared:?}");
}

/// The lock of the connection is held for longer while data is summed inside, and not where that is done before or after. What
/// reaches TCP out of order is summed inside in any case.
#[test]
fn a_checksum_after_the_lock_does_not_lengthen_its_hold() {
    let of = |word: &str| run(&format!("msgp-pool+mcs+unordered receive {word} locks=mcs"), 4);
    let [card, before, inside, after] = ["", "checksum", "inside", "after"].map(of);
    let each = |carried: &Carried| {
        let held: u64 =
            carried.locks.iter().filter(|lock| lock.class.name().starts_with("pcb-")).map(|l| l.hold_ns).sum();
        held / carried.segments
    };
    let [early, under, late] = [&before, &inside, &after].map(each);
    assert!(under > 2 * early.max(late), "{early}, {under}, {late}");
    assert!(card.megabits() > after.megabits(), "it is not free");
    assert!(after.megabits() > inside.megabits());
}

/// Without magazines every buffer that is allocated or released takes a lock, for which threads wait.
#[test]
fn global_caches_are_behind_a_lock() {
    let line = "msgp-pool+tas+unordered receive each";
    let [own, global] = ["", " global-caches"].map(|word| run(&format!("{line}{word}"), 4));
    assert!(acquired(&own, "buffer-pool") < own.segments / 16, "{own:?}");
    assert!(acquired(&global, "buffer-pool") >= 2 * global.segments, "{global:?}");
    assert!(global.megabits() < own.megabits());
}

#[test]
fn the_name_of_a_workload_says_its_traffic() {
    for name in [
        "receive",
        "send+udp",
        "receive+checksum+tickets+each",
        "receive+inside+bytes=1024+locks=mcs+ms=10",
        "receive+after+tickets",
        "send+each+counts=atomic+global-caches",
        "receive+counts=locked+ms=10",
        "receive+checksum+fddi",
        "send+udp+fddi+bytes=1024",
    ] {
        assert_eq!(name.parse::<Traffic>().expect("traffic").to_string(), name);
        let workload: vsmp::simulation::Workload = format!("packets-{name}").parse().expect("a workload");
        assert_eq!(workload.to_string(), format!("packets-{name}"));
    }
    let traffic: Traffic = "send+udp+bytes=64".parse().expect("traffic");
    assert_eq!((traffic.side, traffic.udp, traffic.payload), (Side::Send, true, 64));
    let refused = |name: &str| name.parse::<vsmp::simulation::Workload>().expect_err("it is refused");
    assert_eq!(refused("packets-recieve"), "`recieve` means nothing to the packets' workload");
    assert!(refused("packets").contains("packets-receive"));
    assert_eq!(refused("packets-send+counts=twice"), "`counts=twice` means nothing to the packets' workload");
}

#[test]
fn a_line_that_means_nothing_is_refused_by_name() {
    let preset = Preset::named("sgi-challenge").expect("it is built in");
    let refused = |line| Packets::parse(line, 2, 1, &preset).expect_err("it is refused").to_string();
    assert_eq!(refused("msgp-pool recieve"), "`recieve` means nothing to the packets' workload");
    assert!(refused("up receive").contains("one thread"));
    assert!(refused("msgp-pool conns=0").contains("connections"));
    let said = "over FDDI packets have 1 to 4312 bytes, because its MTU is 4352";
    assert_eq!(refused("msgp-pool fddi bytes=4313"), said);
    assert_eq!(refused("msgp-pool fddi bytes=0"), said);
    assert_eq!(refused("msgp-pool fddi bytes=4293 ipv6"), said.replace("4312", "4292"));
    assert!(Packets::parse("msgp-pool fddi bytes=4292 ipv6", 2, 1, &preset).is_ok());
    let said = "over FDDI received datagrams have 1 to 4324 bytes, because its MTU is 4352 and the remote end makes no fragments";
    assert_eq!(refused("msgp-pool udp fddi bytes=4325"), said);
}

#[test]
fn a_size_out_of_its_range_is_refused_with_the_range() {
    let preset = Preset::named("sgi-challenge").expect("it is built in");
    for (protocol, version, most) in LARGEST {
        for side in ["receive", "send"] {
            let line = |bytes| format!("msgp-pool {side} {protocol} {version} bytes={bytes}");
            let parse = |bytes| Packets::parse(&line(bytes), 2, 1, &preset);
            let [version, protocol] = [(version, "IPv6", "IPv4"), (protocol, "UDP", "TCP")]
                .map(|(word, with, without)| if word.is_empty() { without } else { with });
            let said = format!("packets have 1 to {most} bytes, because {version} and {protocol} carry no more");
            for bytes in [0, most + 1, u64::from(u32::MAX) + 2] {
                assert_eq!(parse(bytes).expect_err("it is refused").to_string(), said);
            }
            assert!(parse(1).is_ok() && parse(most).is_ok());
        }
    }
}
