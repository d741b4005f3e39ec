//! Work streams (FreeBSD: `netisr.c`): which thread processes a packet under which policies, when one is processed
//! directly, how many may wait, and their order.
//!
//! The thread of the test polls all queues: where a packet is processed directly, by that thread.

use std::net::SocketAddr;
use std::sync::Arc;

use observe::DropReason;
use stack::{Architecture, Driver};
use sync::LockClass::PcbHeaderIn;
use testbed::frames::{Datagram, Ends};

use crate::agents::ToldBy;
use crate::events::walks;
use crate::scene::TEST;
use crate::two_queues::{CPUS, QUEUES, TwoQueues, fin};
use crate::walk::{What, count};

/// Packets that may wait in a work stream (`net.isr.defaultqlimit`).
const LIMIT: usize = 256;
/// Every way to dispatch with every policy that matters to it.
const ALL: [&str; 7] = [
    "netisr:direct",
    "netisr:hybrid",
    "netisr:hybrid+source",
    "netisr:hybrid+cpu",
    "netisr:deferred",
    "netisr:deferred+source",
    "netisr:deferred+cpu",
];

/// The thread of a CPU's work stream.
fn swi(cpu: usize) -> String {
    format!("heddle-ni{cpu}")
}

/// `netisr_dispatch_src` and `netisr_select_cpuid`: the thread that processes a packet for the stream of `cpu`,
/// received by the thread of `queue`.
fn processed_by(arch: &str, queue: usize, cpu: usize) -> String {
    let cpu = if arch.ends_with("+source") { queue } else { cpu };
    match arch.split('+').next() {
        Some("netisr:direct") => TEST.to_owned(),
        Some("netisr:hybrid") if cpu == queue => TEST.to_owned(),
        _ => swi(cpu),
    }
}

/// `NETISR_POLICY_SOURCE`, `_FLOW`, `_CPU`, and the three ways to dispatch, for segments of all queues and CPUs.
#[test]
fn a_segment_is_processed_by_the_thread_that_the_policies_choose() {
    for (ends, arch) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| ALL.map(|arch| (ends, arch))) {
        let mut bench = TwoQueues::new(arch, ends);
        for (queue, cpu) in (0..QUEUES).flat_map(|queue| (0..CPUS).map(move |cpu| (queue, cpu))) {
            let mut connection = bench.connect((queue, cpu));
            bench.bring(&fin(&mut connection), queue);
            bench.settle();
            let state = bench.scene.state();
            assert_eq!(state.senders(connection.port), [processed_by(arch, queue, cpu)], "{arch}: {queue}, {cpu}");
        }
    }
}

/// `NETISR_DISPATCH_DIRECT`: the receive thread runs each packet, and puts none into a work stream.
#[test]
fn direct_dispatch_queues_nothing() {
    for ends in Ends::BOTH_FAMILIES {
        for walk in walks(Architecture::named("netisr:direct"), ends).all() {
            assert_eq!(count(walk, What::HandsOver), 0, "{walk:?}");
        }
    }
}

/// "It's possible for a protocol not to have a good idea about where to process a packet": a datagram has no hash, so that
/// `flow` falls back to its source; with `cpu` its protocol names the CPU of its port, whatever its flow.
#[test]
fn a_datagram_without_a_hash_goes_by_its_source_unless_its_protocol_says_a_cpu() {
    const UDP_PORT: u16 = 53;
    let home = usize::from(UDP_PORT) % CPUS;
    for (ends, arch) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| ALL.map(|arch| (ends, arch))) {
        let mut bench = TwoQueues::new(arch, ends);
        let socket = bench.stack.bind_udp(SocketAddr::new(ends.dst, UDP_PORT)).expect("the port is free");
        let told = Arc::new(ToldBy::default());
        socket.ready.watch(told.clone());
        for queue in 0..QUEUES {
            told.0.lock().expect("no test has failed in it").clear();
            let from = bench.port(UDP_PORT, (queue, (home + 1) % CPUS), 2000);
            bench.bring(&Datagram::new(from, UDP_PORT, b"text").frame_over(ends), queue);
            bench.settle();
            assert!(bench.stack.receive_udp(&socket).is_ok(), "it was delivered");
            let cpu = if arch.ends_with("+cpu") { home } else { queue };
            let told = told.0.lock().expect("no test has failed in it");
            let by: Vec<&str> = told.iter().map(|by| if by.starts_with("heddle-ni") { by } else { TEST }).collect();
            assert_eq!(by, [processed_by(arch, queue, cpu)], "{arch}: queue {queue}");
        }
        bench.stack.unbind_udp(&socket);
    }
}

/// "We are willing to direct dispatch only if three conditions hold": while the swi processes a packet, packets from
/// the thread of its own CPU wait behind it; once the stream is idle, packets are processed directly again.
#[test]
fn hybrid_defers_a_packet_for_its_own_cpu_while_the_swi_runs() {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = TwoQueues::new("netisr:hybrid", ends);
        let opens = bench.scene.opens();
        let mut connection = bench.connect((1, 1));
        bench.stop(&swi(1), (0, 1));
        bench.bring(&connection.data(b"first "), 1);
        bench.bring(&connection.data(b"second "), 1);
        assert_eq!(bench.scene.state().senders(connection.port), [""; 0], "neither was processed");
        assert!(bench.read(&connection).is_empty() && !bench.stack.is_quiescent(), "they wait");
        drop(opens);
        bench.settle();
        let senders = bench.scene.state().senders(connection.port).into_iter().map(str::to_owned).collect::<Vec<_>>();
        assert!(!senders.is_empty() && senders.iter().all(|by| *by == swi(1)), "{senders:?}");
        bench.scene.state().sent.clear();
        bench.bring(&fin(&mut connection), 1);
        assert_eq!(bench.scene.state().senders(connection.port), [TEST], "the stream was idle");
        assert_eq!(bench.read(&connection), b"first second the end");
        assert_eq!(bench.misordered(), 0);
    }
}

/// A stream's packets change from deferred to directly processed while they arrive: the flow keeps its order (O1).
#[test]
fn hybrid_keeps_the_order_of_a_flow_when_it_changes_between_the_two() {
    const SEGMENTS: u8 = 200;
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = TwoQueues::new("netisr:hybrid", ends);
        let mut opens = Some(bench.scene.opens());
        let mut connection = bench.connect((1, 1));
        bench.stop(&swi(1), (0, 1));
        for n in 0..SEGMENTS {
            bench.bring(&connection.data(&[n]), 1);
            if n == 20 {
                opens = None;
            }
        }
        bench.settle();
        drop(opens);
        assert_eq!(bench.read(&connection), (0..SEGMENTS).collect::<Vec<_>>());
        assert_eq!(bench.misordered(), 0);
        let senders = bench.scene.state().senders(connection.port).into_iter().map(str::to_owned).collect::<Vec<_>>();
        assert!(senders.iter().all(|by| *by == swi(1) || by == TEST), "{senders:?}");
    }
}

/// `netisr_queue_workstream`: "if (npwp->nw_len < npwp->nw_limit)", else the packet is freed and counted (`nw_qdrops`).
/// The stream continues, and other streams are not affected.
#[test]
fn a_full_work_stream_drops_and_counts() {
    const BEYOND: usize = 44;
    for (ends, arch) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| [ALL[1], ALL[4]].map(|arch| (ends, arch))) {
        let mut bench = TwoQueues::new(arch, ends);
        let opens = bench.scene.opens();
        let (mut connection, mut other) = (bench.connect((0, 1)), bench.connect((0, 2)));
        bench.stop(&swi(1), (0, 1));
        let segments: Vec<Vec<u8>> = (0..LIMIT + BEYOND).map(|n| connection.data(&[n as u8])).collect();
        segments[..LIMIT].iter().for_each(|segment| bench.bring(segment, 0));
        let dropped = |bench: &TwoQueues| bench.stack.stats().counters.dropped(DropReason::InputQueueFull);
        assert_eq!(dropped(&bench), 0, "{arch}");
        segments[LIMIT..].iter().for_each(|segment| bench.bring(segment, 0));
        assert_eq!(dropped(&bench), BEYOND as u64, "{arch}");
        bench.bring(&fin(&mut other), 0);
        // Up to the device, in which the other thread is stopped.
        drop(bench.scene.until(|state| state.sleeps(&swi(2), &[PcbHeaderIn])));
        assert_eq!(dropped(&bench), BEYOND as u64, "the stream of another CPU has room");
        drop(opens);
        bench.settle();
        segments[LIMIT..].iter().for_each(|segment| drop(bench.exchange(segment)));
        let all: Vec<u8> = (0..LIMIT + BEYOND).map(|n| n as u8).collect();
        assert_eq!(bench.read(&connection), all, "{arch}: what was dropped is accepted when it is sent again");
        assert_eq!(bench.misordered(), 0, "{arch}");
    }
}

/// The next architecture processes the packets that wait when the architecture is changed, in their order (G9): the swi
/// ends after the packet that it processes.
#[test]
fn packets_that_wait_are_processed_under_the_next_architecture() {
    for (ends, next) in
        Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| Architecture::all().map(move |next| (ends, next)))
    {
        let mut bench = TwoQueues::new("netisr:deferred", ends);
        let mut connection = bench.connect((0, 1));
        let opens = bench.scene.opens();
        bench.stop(&swi(1), (0, 1));
        for data in [&b"one "[..], b"two ", b"three"] {
            bench.bring(&connection.data(data), 0);
        }
        bench.drivers.iter_mut().for_each(Driver::rest);
        bench.scene.state().sent.clear();
        let stack = bench.stack.clone();
        let switches = bench.scene.spawn("switches", move || drop(stack.switch(next).expect("it can be switched")));
        drop(bench.scene.until(|state| state.done.contains(&swi(0))));
        drop(opens);
        switches.join();
        bench.settle();
        let by_swi = bench.scene.state().sent.iter().any(|sent| sent.to == connection.port && sent.by == swi(1));
        assert!(!by_swi || next.family() == "netisr", "{next}");
        assert_eq!(bench.read(&connection), b"one two three", "{next}");
        assert_eq!(bench.misordered(), 0, "{next}");
    }
}
