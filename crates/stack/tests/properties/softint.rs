//! Hard handlers and soft-interrupt threads (Nakahara et al. 2015, section 3.3): the number of frames taken at once,
//! the thread that does the work of the protocols, the number of frames that may wait, and the differences with
//! polling.
//!
//! The thread of the test polls all queues, and is the hard handler of each.

use std::net::SocketAddr;
use std::sync::Arc;

use observe::DropReason;
use stack::{Architecture, Driver};
use sync::LockClass::Handoff;
use sync::walk::{WalkStep, record};
use testbed::frames::{self, Datagram, Ends, Icmp};

use crate::agents::ToldBy;
use crate::scene::TEST;
use crate::two_queues::{CPUS, QUEUES, TwoQueues, fin};

/// Every variant, with the frames that it takes at once.
const ALL: [(&str, usize); 10] = [
    ("softint", 16),
    ("softint:1", 1),
    ("softint:4", 4),
    ("softint:64", 64),
    ("softint:all", FRAMES),
    ("softint+polling", 16),
    ("softint:1+polling", 1),
    ("softint:4+polling", 4),
    ("softint:64+polling", 64),
    ("softint:all+polling", FRAMES),
];
/// More than any batch.
const FRAMES: usize = 150;
/// Frames that may wait for a soft-interrupt thread (NetBSD: `IFQ_MAXLEN`).
const LIMIT: usize = 256;

/// The soft-interrupt thread of a CPU.
fn soft(cpu: usize) -> String {
    format!("heddle-si{cpu}")
}

fn is_polling(arch: &str) -> bool {
    arch.ends_with("+polling")
}

fn in_both_families() -> impl Iterator<Item = (Ends, (&'static str, usize))> {
    Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| ALL.map(|variant| (ends, variant)))
}

/// "It reduces execution periods of hardware interrupt handlers": one turn takes a bounded number of frames, though more
/// wait in the device; `all` has no bound. Frames that were not taken are taken in later turns, and none is lost.
#[test]
fn a_turn_takes_no_more_frames_than_the_name_says() {
    for (ends, (arch, bound)) in in_both_families() {
        let mut bench = TwoQueues::new(arch, ends);
        let mut connection = bench.connect((1, 0));
        (0..FRAMES).for_each(|n| {
            let segment = connection.data(&[n as u8]);
            bench.put(&segment);
        });
        let mut left = FRAMES;
        while left > 0 {
            let taken = bench.drivers[1].poll();
            assert_eq!(taken, bound.min(left), "{arch}, {left} left");
            left -= taken;
        }
        bench.settle();
        assert_eq!(bench.read(&connection), (0..FRAMES).map(|n| n as u8).collect::<Vec<_>>(), "{arch}");
        assert_eq!(bench.misordered(), 0, "{arch}");
    }
}

/// "The architecture runs most packet processing in softint context", on the CPU that has received the packet. With
/// polling there is no hard handler, and the thread that polls does all of it.
#[test]
fn the_soft_interrupt_thread_of_the_receiving_cpu_processes_segments_and_datagrams() {
    const UDP_PORT: u16 = 53;
    for (ends, (arch, _)) in in_both_families() {
        let mut bench = TwoQueues::new(arch, ends);
        let socket = bench.stack.bind_udp(SocketAddr::new(ends.dst, UDP_PORT)).expect("the port is free");
        let told = Arc::new(ToldBy::default());
        socket.ready.watch(told.clone());
        for (queue, cpu) in (0..QUEUES).flat_map(|queue| (0..CPUS).map(move |cpu| (queue, cpu))) {
            let by = if is_polling(arch) { TEST.to_owned() } else { soft(queue) };
            let mut connection = bench.connect((queue, cpu));
            bench.bring(&fin(&mut connection), queue);
            bench.settle();
            assert_eq!(bench.scene.state().senders(connection.port), [by.as_str()], "{arch}: queue {queue}");
            told.0.lock().expect("no test has failed in it").clear();
            let from = bench.port(UDP_PORT, (queue, cpu), 2000);
            bench.bring(&Datagram::new(from, UDP_PORT, b"text").frame_over(ends), queue);
            bench.settle();
            assert!(bench.stack.receive_udp(&socket).is_ok(), "it was delivered");
            let told = told.0.lock().expect("no test has failed in it");
            let told: Vec<&str> = told.iter().map(|by| if by.starts_with("heddle-si") { by } else { TEST }).collect();
            assert_eq!(told, [by.as_str()], "{arch}: queue {queue}");
        }
        bench.stack.unbind_udp(&socket);
    }
}

/// "A hardware interrupt handler just queues incoming packets to the softint": its walk has the lock of the queue and nothing
/// else, whatever the frame is; IP, ARP and ICMP are left to the soft-interrupt thread too.
#[test]
fn a_hard_handler_does_no_work_of_the_protocols() {
    for (ends, (arch, _)) in in_both_families().filter(|(_, (arch, _))| !is_polling(arch)) {
        let mut bench = TwoQueues::new(arch, ends);
        let mut connection = bench.connect((0, 1));
        // Each is answered.
        let all = [
            fin(&mut connection),
            Datagram::new(2000, 53, b"text").frame_over(ends),
            frames::arp_request(),
            frames::neighbour_solicitation(),
            ends.bytes(Icmp::echo_request(ends.dst.is_ipv6(), b"text")),
        ];
        for frame in all {
            bench.put(&frame);
            let drivers = &mut bench.drivers;
            let (_, walk) = record(|| drivers.iter_mut().map(Driver::poll).sum::<usize>());
            let locks: Vec<_> = walk
                .iter()
                .filter_map(|step| if let WalkStep::Take(class) = step { Some(*class) } else { None })
                .collect();
            assert_eq!(locks, [Handoff], "{arch}: {walk:?}");
            assert!(walk.contains(&WalkStep::HandOff), "{arch}: {walk:?}");
            assert!(!bench.settle().is_empty(), "{arch}: it was answered");
        }
    }
}

/// One soft-interrupt thread for each CPU, and none with polling.
#[test]
fn each_cpu_has_one_soft_interrupt_thread() {
    for (ends, (arch, _)) in in_both_families() {
        let bench = TwoQueues::new(arch, ends);
        let state = bench.scene.state();
        let threads: Vec<_> = state.asleep.keys().cloned().collect();
        let expected: Vec<_> = if is_polling(arch) { Vec::new() } else { (0..CPUS).map(soft).collect() };
        assert_eq!(threads, expected, "{arch}");
    }
}

/// The queue of a CPU is bounded. Frames that exceed it are dropped and counted; the queues of other CPUs are not
/// affected; and the hard handler does not wait.
#[test]
fn a_full_queue_drops_and_counts() {
    const BEYOND: usize = 44;
    for (ends, (arch, _)) in in_both_families().filter(|(_, (arch, _))| !is_polling(arch)) {
        let mut bench = TwoQueues::new(arch, ends);
        let opens = bench.scene.opens();
        let (mut connection, mut other) = (bench.connect((0, 1)), bench.connect((1, 2)));
        bench.stop(&soft(0), (0, 0));
        let segments: Vec<Vec<u8>> = (0..LIMIT + BEYOND).map(|n| connection.data(&[n as u8])).collect();
        segments[..LIMIT].iter().for_each(|segment| bench.bring(segment, 0));
        let dropped = |bench: &TwoQueues| {
            let by_drivers: u64 =
                bench.drivers.iter().map(|driver| driver.counters().dropped(DropReason::InputQueueFull)).sum();
            bench.stack.stats().counters.dropped(DropReason::InputQueueFull) + by_drivers
        };
        assert_eq!(dropped(&bench), 0, "{arch}");
        segments[LIMIT..].iter().for_each(|segment| bench.bring(segment, 0));
        assert_eq!(dropped(&bench), BEYOND as u64, "{arch}");
        let data = other.data(b"text");
        bench.bring(&data, 1);
        drop(bench.scene.until(|state| state.sleeps(&soft(1), &[])));
        assert_eq!(bench.read(&other), b"text", "the soft-interrupt thread of another CPU has processed its frame");
        drop(opens);
        bench.settle();
        segments[LIMIT..].iter().for_each(|segment| drop(bench.exchange(segment)));
        let all: Vec<u8> = (0..LIMIT + BEYOND).map(|n| n as u8).collect();
        assert_eq!(bench.read(&connection), all, "{arch}: what was dropped is accepted when it is sent again");
        assert_eq!(bench.misordered(), 0, "{arch}");
    }
}

/// Frames that wait when the architecture is changed are not lost, and keep their order (G9). The soft-interrupt thread ends
/// after the frame that it carries.
#[test]
fn frames_that_wait_are_processed_when_the_architecture_is_changed() {
    for (ends, next) in
        Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| Architecture::all().map(move |next| (ends, next)))
    {
        let mut bench = TwoQueues::new("softint", ends);
        let mut connection = bench.connect((0, 1));
        let opens = bench.scene.opens();
        bench.stop(&soft(0), (0, 0));
        for data in [&b"one "[..], b"two ", b"three"] {
            bench.bring(&connection.data(data), 0);
        }
        bench.drivers.iter_mut().for_each(Driver::rest);
        bench.scene.state().sent.clear();
        let stack = bench.stack.clone();
        let switches = bench.scene.spawn("switches", move || drop(stack.switch(next).expect("it can be switched")));
        drop(bench.scene.until(|state| state.done.contains(&soft(1))));
        drop(opens);
        switches.join();
        assert!(
            !bench.scene.state().senders(connection.port).contains(&&*soft(0)),
            "{next}: {:?}",
            *bench.scene.state()
        );
        bench.settle();
        assert_eq!(bench.read(&connection), b"one two three", "{next}");
        assert_eq!(bench.misordered(), 0, "{next}");
    }
}
