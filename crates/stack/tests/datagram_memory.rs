//! Datagrams in the receive queues of sockets, fragments that wait for the rest of a packet, and packets that wait for
//! the link address of a neighbour are all in the one account of a stack's memory. If the common limit (`tcp_mem`) is
//! reached, these queues stop growing and no connection is admitted, but a socket with an empty queue still gets its
//! datagram.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use every_arch::every_arch;
use observe::DropReason;
use pktbuf::PktBuf;
use stack::Architecture;
use stack::socket::UdpShared;
use sync::Real;
use tcp::config::MemoryLimits;
use testbed::frames::{self, Body, Datagram, Ends, Icmp, Segment};
use testbed::node::{Node, NodeConfig};
use wire::ethernet::EtherType;

const LIMIT: u64 = 1 << 20;
const SOCKETS: u16 = 32;
const PORT: u16 = 4000;
const TCP: u16 = 80;
/// The memory of a full frame, and the minimum limit of a queue including the datagram that exceeds it.
const BLOCK: u64 = 2048;
const LEAST: u64 = udp::LEAST_RECEIVE_LIMIT as u64 + BLOCK;

fn node(arch: Architecture, limit: u64) -> Node<Real> {
    let mut config = NodeConfig::new(arch);
    config.tcp.memory = Some(MemoryLimits { low: limit / 2, pressure: limit * 3 / 4, high: limit });
    let mut node = Node::with_known_peer(config);
    node.exchange(&frames::neighbour_solicitation());
    node
}

fn memory(node: &Node<Real>) -> u64 {
    node.stack.shared().control().memory()
}

/// So many datagrams for each socket, in turns.
fn flood(node: &mut Node<Real>, ends: Ends, each: usize) {
    for _ in 0..each {
        for socket in 0..SOCKETS {
            node.put(&Datagram::new(99, PORT + socket, &[7; 1200]).frame_over(ends));
        }
        node.settle();
    }
}

fn take_all(node: &Node<Real>, socket: &UdpShared<Real>) -> usize {
    std::iter::from_fn(|| node.stack.receive_udp(socket).ok()).count()
}

#[every_arch]
fn queues_of_datagrams_count_and_stop_growing_while_memory_is_short(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch, LIMIT);
        let listener = node.listen(TCP, 8);
        let bind = |port| node.stack.bind_udp(SocketAddr::new(ends.dst, port)).expect("the port is free");
        let sockets: Vec<Arc<_>> = (0..SOCKETS).map(|socket| bind(PORT + socket)).collect();
        let quiet = bind(PORT + SOCKETS);
        assert_eq!(memory(&node), 0);
        flood(&mut node, ends, 1);
        assert_eq!(memory(&node), u64::from(SOCKETS) * BLOCK, "each counts with its whole block");
        flood(&mut node, ends, 39);
        let most = LIMIT + LIMIT / 16 + u64::from(SOCKETS) * LEAST;
        assert!((LIMIT..=most).contains(&memory(&node)), "{} bytes, {LIMIT} are the limit", memory(&node));
        assert!(node.stack.stats().counters.dropped(DropReason::UdpMemoryShort) > 0);
        assert!(node.exchange(&Segment::syn(2000, TCP).frame_over(ends)).is_empty(), "nobody new is let in");
        node.put(&Datagram::new(99, PORT + SOCKETS, b"question").frame_over(ends));
        node.settle();
        assert_eq!(take_all(&node, &quiet), 1, "a socket with room gets its datagram");
        let (closed, read) = sockets.split_at(5);
        assert!(read.iter().all(|socket| take_all(&node, socket) >= 1));
        closed.iter().for_each(|socket| node.stack.unbind_udp(socket));
        node.settle();
        assert_eq!(memory(&node), 0, "read or closed: all of it is given back");
        node.clock.advance(Duration::from_millis(2));
        node.settle();
        assert_eq!(node.exchange(&Segment::syn(2001, TCP).frame_over(ends)).len(), 1, "and new clients are welcome");
        drop(listener);
    }
}

/// Pieces of packets that never become whole are in the account until they are given up, and count for the limit.
#[every_arch]
fn fragments_count_until_they_are_given_up(arch: Architecture) {
    // A part of the limit for the fragments of one source.
    let limit = ip::reassembly::MEMORY_CAP as u64 / 8;
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch, limit);
        let listener = node.listen(TCP, 8);
        for ident in 0..1000 {
            let datagram = ends.packet(Datagram::new(99, PORT, &[7; 3000]));
            let pieces = datagram.pieces(ident, 1500);
            let kind = if ends.src.is_ipv4() { EtherType::Ipv4 } else { EtherType::Ipv6 };
            node.put(&ends.frame(Body::Other(kind, &pieces[0])).bytes());
            if ident % 64 == 0 {
                node.settle();
            }
        }
        node.settle();
        assert!(memory(&node) > limit, "{} bytes", memory(&node));
        assert!(node.exchange(&Segment::syn(2000, TCP).frame_over(ends)).is_empty(), "nobody new is let in");
        node.clock.advance(ip::reassembly::LIFETIME_V6);
        node.settle();
        assert_eq!(memory(&node), 0, "all of it is given back");
        assert_eq!(node.exchange(&Segment::syn(2001, TCP).frame_over(ends)).len(), 1, "and new clients are welcome");
        drop(listener);
    }
}

fn unknown_neighbour(ends: Ends, number: u8) -> IpAddr {
    match ends.src {
        IpAddr::V4(_) => [10, 0, 0, 100 + number].into(),
        IpAddr::V6(_) => [0xfd00, 0, 0, 0, 0, 0, 1, number.into()].into(),
    }
}

fn give_up_neighbours(node: &mut Node<Real>) {
    for _ in 0..=ip::neighbour::MAX_SOLICITS {
        node.clock.advance(ip::neighbour::RETRANS_TIMER + Duration::from_millis(1));
        node.settle();
    }
}

/// Packets that wait for a neighbour's link address are in the account until it answers or is given up (RFC 4861 section
/// 7.2.2), and count for the limit; while memory is short few may wait, and the others are dropped with a reason.
#[every_arch]
fn packets_that_wait_for_a_neighbour_count_until_it_is_given_up(arch: Architecture) {
    let limit = ip::neighbour::MAX_PENDING_BYTES as u64 / 4;
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch, limit);
        let listener = node.listen(TCP, 8);
        let socket = node.stack.bind_udp(SocketAddr::new(ends.dst, PORT)).expect("the port is free");
        let send = |node: &mut Node<Real>, host: u8| {
            let host = unknown_neighbour(ends, host);
            let payload = PktBuf::from_slice(&[7; 1200]).expect("a packet buffer");
            let sent = node.stack.send_udp(&socket, payload, Some(SocketAddr::new(host, 9)));
            assert_eq!(sent, Ok(1200));
            node.settle();
        };
        send(&mut node, 0);
        assert_eq!(memory(&node), BLOCK, "it counts with its whole block");
        assert_eq!(node.stack.stats().counters.dropped(DropReason::NeighbourQueueFull), 0);
        (1..120).for_each(|host| send(&mut node, host));
        let waiting = memory(&node);
        assert!((limit..limit + (16 << 10) + BLOCK).contains(&waiting), "{waiting} bytes, {limit} are the limit");
        let dropped = node.stack.stats().counters.dropped(DropReason::NeighbourQueueFull);
        assert_eq!(dropped + waiting / BLOCK, 120, "each waits or is counted");
        assert!(node.exchange(&Segment::syn(2000, TCP).frame_over(ends)).is_empty(), "nobody new is let in");
        give_up_neighbours(&mut node);
        assert_eq!(memory(&node), 0, "given up: all of it is given back");
        assert_eq!(node.exchange(&Segment::syn(2001, TCP).frame_over(ends)).len(), 1, "and new clients are welcome");
        drop(listener);
    }
}

/// ICMP has no queue but that of packets that wait for a neighbour: its answers to echo requests from hosts whose link
/// address is unknown are in the account as well, and stop at the limit.
#[every_arch]
fn answers_of_icmp_that_wait_for_a_neighbour_count_too(arch: Architecture) {
    let limit = ip::neighbour::MAX_PENDING_BYTES as u64 / 4;
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch, limit);
        let listener = node.listen(TCP, 8);
        let ask = |node: &mut Node<Real>, host| {
            let asked = ends.from(unknown_neighbour(ends, host));
            node.put(&asked.frame(asked.packet(Icmp::echo_request(ends.src.is_ipv6(), &[7; 1200]))).bytes());
            node.settle();
        };
        ask(&mut node, 0);
        assert_eq!(memory(&node), BLOCK, "an answer counts with its whole block");
        (1..120).for_each(|host| ask(&mut node, host));
        let waiting = memory(&node);
        assert!((limit..limit + (16 << 10) + BLOCK).contains(&waiting), "{waiting} bytes, {limit} are the limit");
        let dropped = node.driver.counters().dropped(DropReason::NeighbourQueueFull);
        assert_eq!(dropped + waiting / BLOCK, 120, "each waits or is counted");
        assert!(node.exchange(&Segment::syn(2000, TCP).frame_over(ends)).is_empty(), "nobody new is let in");
        give_up_neighbours(&mut node);
        assert_eq!(memory(&node), 0, "given up: all of it is given back");
        drop(listener);
    }
}
