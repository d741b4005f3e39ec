//! A thread for each layer (Schmidt and Suda 1995, section 2: processes associated "with protocol layers"): which
//! thread does which work, that a layer continues while the one above is busy, and that the queues between them are
//! bounded and keep the order.
//!
//! The thread of the test polls all queues, and is the link's.

use every_arch::every_arch;
use observe::DropReason;
use stack::{Architecture, Driver};
use sync::LockClass::Handoff;
use sync::walk::{WalkStep, record};
use testbed::frames::{self, Ends, Icmp};
use testbed::node::send;

use crate::scene::TEST;
use crate::two_queues::{CPUS, QUEUES, TwoQueues, fin};

const IP: &str = "heddle-ip0";
const TRANSPORT: &str = "heddle-pt0";
/// Messages that may wait for the thread of the transport protocols.
const LIMIT: usize = 4096;

fn echo_request(ends: Ends) -> Vec<u8> {
    ends.bytes(Icmp::echo_request(ends.dst.is_ipv6(), b"text"))
}

/// The parallelism "is a function of the number of layers or tasks, which are determined statically": one thread for IP and one
/// for the transport protocols, whatever the number of CPUs and of receive queues.
#[every_arch(only(layer))]
fn each_layer_has_one_thread(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let bench = TwoQueues::new(arch.to_string().as_str(), ends);
        let threads: Vec<_> = bench.scene.state().asleep.keys().cloned().collect();
        assert_eq!(threads, [IP, TRANSPORT]);
    }
}

/// "Moving messages between protocol layers" requires "a context switch": the link's thread passes each frame to the next layer by a queue, whatever is in it, and does nothing else.
#[every_arch(only(layer))]
fn the_links_thread_does_no_work_of_the_layers_above(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = TwoQueues::new(arch.to_string().as_str(), ends);
        let mut connection = bench.connect((0, 1));
        // Each is answered.
        let all = [fin(&mut connection), frames::arp_request(), frames::neighbour_solicitation(), echo_request(ends)];
        for frame in all {
            bench.put(&frame);
            let drivers = &mut bench.drivers;
            let (_, walk) = record(|| drivers.iter_mut().map(Driver::poll).sum::<usize>());
            let taken = |step: &WalkStep| if let WalkStep::Take(class) = step { Some(*class) } else { None };
            assert_eq!(walk.iter().filter_map(taken).collect::<Vec<_>>(), [Handoff], "{walk:?}");
            assert!(walk.contains(&WalkStep::HandOff), "{walk:?}");
            assert!(!bench.settle().is_empty(), "it was answered");
        }
    }
}

/// One thread has all connections, whichever queue receives their segments: it answers them, and runs the calls of
/// users.
#[every_arch(only(layer))]
fn the_transports_thread_answers_segments_and_runs_calls(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = TwoQueues::new(arch.to_string().as_str(), ends);
        for (queue, cpu) in (0..QUEUES).flat_map(|queue| (0..CPUS).map(move |cpu| (queue, cpu))) {
            let mut connection = bench.connect((queue, cpu));
            let (stack, target) = (bench.stack.clone(), connection.socket.target());
            bench.scene.spawn("caller", move || drop(stack.call(&target, send(b"text")))).join();
            bench.settle();
            bench.bring(&fin(&mut connection), queue);
            bench.settle();
            let senders = bench.scene.state();
            let senders = senders.senders(connection.port);
            assert!(senders.len() >= 2 && senders.iter().all(|by| *by == TRANSPORT), "queue {queue}: {senders:?}");
        }
    }
}

/// Layers work at the same time: while the thread of the transport protocols is stopped, IP's answers an echo request, and so
/// it does not run on that thread; nor on the link's, which is the test's and does not poll meanwhile.
#[every_arch(only(layer))]
fn ip_goes_on_while_the_layer_above_is_busy(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = TwoQueues::new(arch.to_string().as_str(), ends);
        let opens = bench.scene.opens();
        bench.stop(TRANSPORT, (0, 0));
        bench.sent();
        bench.put(&echo_request(ends));
        let (_, walk) = record(|| bench.drivers.iter_mut().map(Driver::poll).sum::<usize>());
        assert!(walk.contains(&WalkStep::HandOff), "{TEST} only passes it on: {walk:?}");
        drop(bench.scene.until(|state| state.sleeps(IP, &[])));
        assert_eq!(bench.sent().len(), 1, "the echo reply");
        drop(opens);
        bench.settle();
    }
}

/// The queue of a layer is bounded: packets that exceed it are dropped and counted, no layer below waits, and the rest
/// arrives in order.
#[every_arch(only(layer))]
fn a_full_queue_drops_and_counts(arch: Architecture) {
    const BEYOND: usize = 44;
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = TwoQueues::new(arch.to_string().as_str(), ends);
        let opens = bench.scene.opens();
        let mut connection = bench.connect((0, 1));
        bench.stop(TRANSPORT, (0, 0));
        let segments: Vec<Vec<u8>> = (0..LIMIT + BEYOND).map(|n| connection.data(&[n as u8])).collect();
        for segment in &segments {
            bench.bring(segment, 0);
            drop(bench.scene.until(|state| state.sleeps(IP, &[])));
        }
        drop(opens);
        bench.settle();
        assert_eq!(bench.stack.stats().counters.dropped(DropReason::InputQueueFull), BEYOND as u64);
        segments[LIMIT..].iter().for_each(|segment| drop(bench.exchange(segment)));
        let all: Vec<u8> = (0..LIMIT + BEYOND).map(|n| n as u8).collect();
        assert_eq!(bench.read(&connection), all, "what was dropped is accepted when it is sent again");
        assert_eq!(bench.misordered(), 0);
    }
}

/// Packets that wait between two layers when the architecture is changed are not lost, and keep their order (G9).
#[every_arch(only(layer))]
fn what_waits_is_processed_when_the_architecture_is_changed(arch: Architecture) {
    for (ends, next) in
        Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| Architecture::all().map(move |next| (ends, next)))
    {
        let mut bench = TwoQueues::new(arch.to_string().as_str(), ends);
        let mut connection = bench.connect((0, 1));
        let opens = bench.scene.opens();
        bench.stop(TRANSPORT, (0, 0));
        for data in [&b"one "[..], b"two ", b"three"] {
            bench.bring(&connection.data(data), 0);
        }
        bench.drivers.iter_mut().for_each(Driver::rest);
        let stack = bench.stack.clone();
        let switches = bench.scene.spawn("switches", move || drop(stack.switch(next).expect("it can be switched")));
        drop(bench.scene.until(|state| state.done.contains(IP)));
        drop(opens);
        switches.join();
        bench.settle();
        assert_eq!(bench.read(&connection), b"one two three", "{next}");
        assert_eq!(bench.misordered(), 0, "{next}");
    }
}
