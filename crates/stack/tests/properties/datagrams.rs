//! Datagram sockets live under the architecture, as connections do: which locks a datagram and a call take, and that
//! all datagrams for a port meet in one place.

use std::net::SocketAddr;

use every_arch::every_arch;
use pktbuf::PktBuf;
use stack::Architecture;
use sync::LockClass::{self, *};
use sync::walk::{WalkStep, record};
use testbed::frames::{Datagram, Ends};

use crate::bench::Bench;

const PORT: u16 = 53;

/// The locks that a walk takes, except those of IP and of the device.
fn locks(steps: &[WalkStep]) -> Vec<LockClass> {
    let of_ip = |class: &LockClass| matches!(class, Routes | Neighbours | DeviceTx);
    let taken = steps.iter().filter_map(|step| match step {
        WalkStep::Take(class) => Some(*class),
        _ => None,
    });
    taken.filter(|class| !of_ip(class)).collect()
}

/// The locks taken by an arriving datagram, by a call that receives it, and by a call that sends another.
fn walks(arch: Architecture, ends: Ends) -> [Vec<LockClass>; 3] {
    let mut bench = Bench::on_one_thread(arch, ends);
    let socket = bench.stack.bind_udp(SocketAddr::new(ends.dst, PORT)).expect("the port is free");
    let arrival = locks(&bench.walk(&[Datagram::new(2000, PORT, b"question").frame_over(ends)]));
    bench.settle();
    let (received, receive) = record(|| bench.stack.receive_udp(&socket));
    assert_eq!(&*received.expect("it has come").buf, b"question");
    let answer = PktBuf::from_slice(b"answer").expect("a packet buffer");
    let to = Some(SocketAddr::new(ends.src, 2000));
    let (sent, send) = record(|| bench.stack.send_udp(&socket, answer, to));
    assert_eq!(sent, Ok(6));
    [arrival, locks(&receive), locks(&send)]
}

#[every_arch(only(up))]
fn up_uses_a_datagram_socket_without_a_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        assert_eq!(walks(arch, ends), [[], [], []]);
    }
}

#[every_arch(only(giant, connp_l_4, connp_l_128, connp_l_1024))]
fn a_cell_with_a_lock_has_no_other_for_its_datagram_sockets(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        assert_eq!(walks(arch, ends), [[Group], [Group], [Group]]);
    }
}

#[every_arch(only(
    msgp_1,
    msgp_2,
    msgp_6,
    msgp_1_coupled,
    msgp_2_coupled,
    msgp_6_coupled,
    backlog,
    backlog_processor,
    steal
))]
fn msgp_has_a_table_and_a_lock_for_each_datagram_socket(arch: Architecture) {
    // The socket's match with the datagram is evaluated under the table's lock.
    let (arrival, call) = (vec![ConnTable, SocketBuffer, SocketBuffer], vec![ConnTable, SocketBuffer]);
    for ends in Ends::BOTH_FAMILIES {
        assert_eq!(walks(arch, ends), [arrival.clone(), call.clone(), call.clone()]);
    }
}

/// For datagrams of all flows: a queue has one consuming end, and replicas in several cells would fill it in any order.
/// The pool's tickets keep the order of one flow only, so that its workers need not wait for each other.
#[every_arch(except(msgp_pool))]
fn datagrams_of_all_flows_reach_their_socket_in_the_order_of_arrival(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let socket = bench.stack.bind_udp(SocketAddr::new(ends.dst, PORT)).expect("the port is free");
        for n in 0..64 {
            bench.put(&Datagram::new(2000 + u16::from(n), PORT, &[n]).frame_over(ends));
        }
        bench.settle();
        let received = std::iter::from_fn(|| bench.stack.receive_udp(&socket).ok()).map(|datagram| datagram.buf[0]);
        assert_eq!(received.collect::<Vec<_>>(), (0..64).collect::<Vec<_>>());
        bench.stack.unbind_udp(&socket);
    }
}
