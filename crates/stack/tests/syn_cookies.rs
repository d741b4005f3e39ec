//! Floods of SYNs against a listener, for every architecture: honest clients are accepted, and no state is kept for the
//! others.

use std::time::Duration;

use every_arch::every_arch;
use observe::{Counter, DropReason};
use stack::Architecture;
use sync::Real;
use tcp::config::SynCookies;
use testbed::frames::{ISS, Segment, tcp_of};
use testbed::node::{Node, NodeConfig};
use wire::tcp::TcpFlags;

const PORT: u16 = 80;
/// Places for handshakes of a listener with a small backlog.
const LIMIT: u16 = 1024;

fn node(arch: Architecture, cookies: SynCookies) -> Node<Real> {
    let mut terms = NodeConfig::new(arch);
    terms.tcp.syn_cookies = cookies;
    terms.tcp.syn_backlog = u32::from(LIMIT);
    Node::with_known_peer(terms)
}

/// The SYN of the peer at `port`; the sequence number of the SYN-ACK, if there is one.
fn syn(node: &mut Node<Real>, port: u16) -> Option<u32> {
    let answers = node.exchange(&Segment::syn(port, PORT).frame());
    let (header, _) = tcp_of(answers.first()?).expect("the answer is TCP");
    assert_eq!(header.flags, TcpFlags::SYN | TcpFlags::ACK);
    Some(header.seq.0)
}

fn ack(port: u16, theirs: u32) -> Vec<u8> {
    let (seq, ack) = (ISS.wrapping_add(1), theirs.wrapping_add(1));
    Segment::ack((port, PORT), seq, ack).frame()
}

/// Fills the queue of half-open connections.
fn flood(node: &mut Node<Real>) {
    for n in 0..LIMIT {
        assert!(syn(node, 10_000 + n).is_some(), "SYN number {n} finds room");
    }
}

#[every_arch]
fn honest_clients_get_in_while_the_queue_is_full(arch: Architecture) {
    let mut node = node(arch, SynCookies::WhenFull);
    let listener = node.listen(PORT, 64);
    flood(&mut node);
    let before = node.stack.stats();
    for port in 2000..2032 {
        let bytes = node.stack.stats().bytes;
        let theirs = syn(&mut node, port).expect("a cookie");
        assert_eq!(node.stack.stats().bytes, bytes, "a cookie takes no memory");
        assert!(node.exchange(&ack(port, theirs)).is_empty());
    }
    assert_eq!(listener.occupancy(), (usize::from(LIMIT), 32));
    let counters = node.stack.stats().counters - before.counters;
    assert_eq!((counters.get(Counter::SynCookiesOut), counters.get(Counter::SynCookiesIn)), (32, 32));
    assert_eq!(counters.dropped_total(), 0);
    // The connection works like any other.
    let child = listener.accept().expect("a child waits");
    let peer = child.tuple().remote_port;
    node.call(&child, testbed::node::send(b"hello"));
    let sent = node.settle();
    let (header, data) = sent.iter().find_map(|frame| tcp_of(frame)).expect("a segment");
    assert_eq!((header.dst_port, data), (peer, b"hello".as_slice()));
}

#[every_arch]
fn acknowledgements_without_a_valid_cookie_are_reset(arch: Architecture) {
    let mut node = node(arch, SynCookies::WhenFull);
    let listener = node.listen(PORT, 64);
    let reset = |node: &mut Node<Real>, port, theirs| {
        let answers = node.exchange(&ack(port, theirs));
        tcp_of(answers.first().expect("an answer")).expect("TCP").0.flags.contains(TcpFlags::RST)
    };
    // No cookie was sent: none is checked.
    assert!(reset(&mut node, 2000, 77));
    assert_eq!(node.stack.stats().counters.dropped(DropReason::TcpNoListener), 1);
    flood(&mut node);
    let theirs = syn(&mut node, 2000).expect("a cookie");
    assert!(reset(&mut node, 2001, theirs), "another port's cookie");
    assert!(reset(&mut node, 2000, theirs ^ 1), "a forged one");
    assert_eq!(node.stack.stats().counters.dropped(DropReason::SynCookieInvalid), 2);
    node.pass(Duration::from_secs(130), Duration::from_secs(1));
    assert!(reset(&mut node, 2000, theirs), "an old one");
    assert_eq!((listener.occupancy(), node.stack.stats().connections), ((0, 0), 0));
}

#[every_arch]
fn cookies_can_be_had_always(arch: Architecture) {
    let mut node = node(arch, SynCookies::Always);
    let listener = node.listen(PORT, 1);
    let theirs = syn(&mut node, 2000).expect("a cookie");
    assert_eq!((listener.occupancy(), node.stack.stats().connections), ((0, 0), 0));
    node.exchange(&ack(2000, theirs));
    assert_eq!(listener.occupancy(), (0, 1));
    assert!(syn(&mut node, 2001).is_none(), "the accept queue is full");
}

#[every_arch]
fn a_small_backlog_alone_is_no_reason_for_cookies(arch: Architecture) {
    let mut node = node(arch, SynCookies::WhenFull);
    let listener = node.listen(PORT, 1);
    let theirs = syn(&mut node, 2000).expect("a SYN-ACK");
    assert_eq!(listener.occupancy(), (1, 0), "it is remembered");
    node.exchange(&ack(2000, theirs));
    assert_eq!(node.stack.stats().counters.get(Counter::SynCookiesOut), 0);
}

/// A crowded listener retransmits a SYN-ACK at most twice; one with room as often as configured.
#[every_arch]
fn under_a_flood_syn_acks_are_sent_again_twice(arch: Architecture) {
    // Half of the flood has been given up after the second; with the other half the listener is not crowded any more.
    let all = usize::from(LIMIT);
    for (syns, again) in [(all, 2 * all + 3 * all / 2), (8, 8 * 5)] {
        let mut node = node(arch, SynCookies::WhenFull);
        let listener = node.listen(PORT, 64);
        for n in 0..syns as u16 {
            syn(&mut node, 10_000 + n);
        }
        let sent = node.pass(Duration::from_secs(100), Duration::from_millis(500));
        assert_eq!(sent.len(), again, "SYN-ACKs sent again after {syns} SYNs");
        assert_eq!(listener.occupancy(), (0, 0));
        assert_eq!((node.stack.stats().connections, node.stack.stats().timers), (0, 0));
    }
}

#[every_arch]
fn a_half_open_connection_takes_little_memory(arch: Architecture) {
    let mut node = node(arch, SynCookies::Never);
    let _listener = node.listen(PORT, 64);
    let empty = node.stack.stats().bytes;
    flood(&mut node);
    let each = (node.stack.stats().bytes - empty) / usize::from(LIMIT);
    // An entry of 120 bytes and its place in an index; with many groups the last chunks are half empty.
    let slack = if arch.properties().groups { 2400 } else { 144 };
    assert!(each <= slack, "{each} bytes for each half-open connection");
}
