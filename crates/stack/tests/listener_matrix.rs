//! Listeners that open and close during handshakes, for every architecture.
//!
//! The peer consists of hand-made segments, so that each case is at an exact point of the handshake. The tests do not
//! depend on the number of replicas of a listener; the peer's ports are spread so that every cell is reached. Each case
//! ends with no handshake counted.

use std::sync::Arc;
use std::time::Duration;

use every_arch::every_arch;
use observe::{Counter, DropReason};
use stack::Architecture;
use stack::call::Call;
use stack::socket::{ListenerShared, Readiness, TcpSocket};
use sync::Real;
use testbed::frames::{ISS, Segment, tcp_of};
use testbed::node::{Node, NodeConfig, received, send};
use wire::tcp::TcpFlags;

#[path = "../examples/cpu_groups/architecture.rs"]
mod cpu_groups;

/// For `#[every_arch]`: the architectures that are declared outside the crate.
fn register_architectures() {
    stack::register::<Real, _>(&cpu_groups::DECLARATION, cpu_groups::new).expect("its name is its own");
}

const PORT: u16 = 80;
/// Enough peers that some hash to each of the two cells, or to most of the many groups.
const PEERS: std::ops::Range<u16> = 2000..2064;

fn node(arch: Architecture) -> Node<Real> {
    Node::with_known_peer(NodeConfig::new(arch))
}

/// The flags of the one segment that answers `frame`.
fn answer(node: &mut Node<Real>, frame: &[u8]) -> (TcpFlags, u32) {
    let answers = node.exchange(frame);
    assert_eq!(answers.len(), 1, "one segment answers");
    let (header, _) = tcp_of(&answers[0]).expect("the answer is TCP");
    (header.flags, header.seq.0)
}

/// The peer at `port` sends its SYN and gets its SYN-ACK; the stack's sequence number.
fn half_open(node: &mut Node<Real>, port: u16) -> u32 {
    let (flags, seq) = answer(node, &Segment::syn(port, PORT).frame());
    assert_eq!(flags, TcpFlags::SYN | TcpFlags::ACK);
    seq
}

fn ack(port: u16, theirs: u32) -> Segment<'static> {
    let (seq, ack) = (ISS.wrapping_add(1), theirs.wrapping_add(1));
    Segment::ack((port, PORT), seq, ack)
}

/// The peer at `port` completes a handshake; the stack's sequence number.
fn open(node: &mut Node<Real>, port: u16) -> u32 {
    let seq = half_open(node, port);
    assert!(node.exchange(&ack(port, seq).frame()).is_empty(), "an acknowledgement is not answered");
    seq
}

fn refused(node: &mut Node<Real>, port: u16) {
    let (flags, _) = answer(node, &Segment::syn(port, PORT).frame());
    assert_eq!(flags, TcpFlags::RST | TcpFlags::ACK, "a SYN from port {port} to a closed listener");
}

fn at_rest(node: &Node<Real>, listener: &ListenerShared<Real>, connections: usize) {
    assert_eq!(listener.occupancy(), (0, 0), "handshakes counted, children waiting");
    assert_eq!(node.stack.stats().connections, connections, "connections");
    assert!(node.stack.is_quiescent());
}

fn close(node: &mut Node<Real>, socket: &Arc<TcpSocket<Real>>) {
    node.call(socket, Call::Abort(tcp::Abort));
    node.settle();
}

#[every_arch]
fn a_syn_before_listen_is_refused_and_after_it_answered(arch: Architecture) {
    let mut node = node(arch);
    for peer in PEERS {
        refused(&mut node, peer);
    }
    let listener = node.listen(PORT, 128);
    for peer in PEERS {
        // The same port as before: the refusal has left no state.
        open(&mut node, peer);
    }
    assert_eq!(listener.occupancy(), (0, PEERS.len()));
    while let Some(child) = listener.accept() {
        assert!(child.ready.get().contains(Readiness::WRITABLE), "it has all its room");
        close(&mut node, &child);
    }
    at_rest(&node, &listener, 0);
}

#[every_arch]
fn after_unlisten_no_cell_answers_a_syn(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 128);
    node.stack.unlisten(&listener);
    for peer in PEERS {
        refused(&mut node, peer);
    }
    at_rest(&node, &listener, 0);
    assert_eq!(node.stack.stats().counters.get(Counter::SynAcksOut), 0);
}

#[every_arch]
fn close_between_syn_and_ack_resets_the_peer(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 128);
    let half: Vec<u32> = PEERS.map(|peer| half_open(&mut node, peer)).collect();
    assert_eq!(listener.occupancy(), (PEERS.len(), 0));
    node.stack.unlisten(&listener);
    node.settle();
    for (peer, seq) in PEERS.zip(half) {
        let (flags, _) = answer(&mut node, &ack(peer, seq).frame());
        assert!(flags.contains(TcpFlags::RST), "the peer at {peer} believes in a connection that nobody will accept");
    }
    assert!(listener.accept().is_none());
    at_rest(&node, &listener, 0);
}

/// The peer never completes the handshake: it times out.
#[every_arch]
fn close_after_a_syn_that_nobody_completes(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 128);
    for peer in PEERS {
        half_open(&mut node, peer);
    }
    node.stack.unlisten(&listener);
    node.pass(Duration::from_secs(200), Duration::from_millis(250));
    at_rest(&node, &listener, 0);
    assert_eq!(node.stack.stats().timers, 0, "timers of connections that are gone");
}

#[every_arch]
fn an_accepted_child_outlives_its_listener(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 128);
    let seq = open(&mut node, 2000);
    let child = listener.accept().expect("a child waits");
    node.stack.unlisten(&listener);
    assert!(node.settle().is_empty(), "nobody is told");
    at_rest(&node, &listener, 1);
    let data = Segment { data: b"still here?", flags: TcpFlags::ACK | TcpFlags::PSH, ..ack(2000, seq) };
    node.exchange(&data.frame());
    let reply = node.call(&child, Call::Receive(tcp::Receive { max: 100 }));
    assert_eq!(received(reply), Some((b"still here?".to_vec(), false)));
    node.call(&child, send(b"yes"));
    let sent = node.settle();
    assert!(sent.iter().filter_map(|frame| tcp_of(frame)).any(|(_, data)| data == b"yes"));
    close(&mut node, &child);
    at_rest(&node, &listener, 0);
}

#[every_arch]
fn children_that_nobody_accepted_are_reset(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 128);
    for peer in PEERS {
        open(&mut node, peer);
    }
    node.stack.unlisten(&listener);
    let sent = node.settle();
    let mut reset: Vec<u16> = sent
        .iter()
        .filter_map(|frame| tcp_of(frame))
        .filter(|(header, _)| header.flags.contains(TcpFlags::RST))
        .map(|(header, _)| header.dst_port)
        .collect();
    reset.sort_unstable();
    assert_eq!(reset, PEERS.collect::<Vec<_>>(), "each peer is reset once");
    at_rest(&node, &listener, 0);
}

#[every_arch]
fn a_port_can_be_listened_on_again_at_once(arch: Architecture) {
    let mut node = node(arch);
    let first = node.listen(PORT, 128);
    let waiting = half_open(&mut node, 2000);
    open(&mut node, 2001);
    node.stack.unlisten(&first);
    let second = node.listen(PORT, 128);
    node.settle();
    // The old listener's handshake does not end in the new listener's queue.
    let (flags, _) = answer(&mut node, &ack(2000, waiting).frame());
    assert!(flags.contains(TcpFlags::RST));
    assert_eq!(second.occupancy(), (0, 0));
    // The same peers again, at once.
    open(&mut node, 2000);
    open(&mut node, 2001);
    let children = [second.accept().expect("one"), second.accept().expect("two")];
    assert!(first.accept().is_none());
    children.iter().for_each(|child| close(&mut node, child));
    at_rest(&node, &first, 0);
    at_rest(&node, &second, 0);
}

/// The address is taken until the listener is closed, and free from then on.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
//= type=test
//# Every passive OPEN call either creates a new connection record in LISTEN state, or it returns an error; it MUST NOT
//# affect any previously created connection record (MUST-41).
#[every_arch]
fn two_listeners_cannot_share_an_address(arch: Architecture) {
    let node = node(arch);
    let any = "[::]:80".parse().unwrap();
    let listener = node.listen(PORT, 1);
    let clash = node.stack.listen(any, 1, Default::default());
    assert_eq!(clash.err(), Some(stack::BindRefused::InUse));
    node.stack.unlisten(&listener);
    assert!(node.stack.listen(any, 1, Default::default()).is_ok());
}

/// A peer that resets its half-open connection frees its place.
#[every_arch]
fn a_reset_during_the_handshake_frees_the_place(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 128);
    for peer in PEERS {
        half_open(&mut node, peer);
        let reset = Segment { flags: TcpFlags::RST, seq: ISS.wrapping_add(1), ..Segment::syn(peer, PORT) };
        assert!(node.exchange(&reset.frame()).is_empty());
    }
    at_rest(&node, &listener, 0);
}

/// More SYNs than the limit: memory stays bounded, and clients after the flood are accepted.
#[every_arch]
fn a_flood_fills_the_syn_queue_and_no_more(arch: Architecture) {
    const LIMIT: usize = 1024;
    let mut terms = NodeConfig::new(arch);
    terms.tcp.syn_cookies = tcp::config::SynCookies::Never;
    terms.tcp.syn_backlog = LIMIT as u32;
    let mut node = Node::<Real>::with_known_peer(terms);
    let listener = node.listen(PORT, 16);
    let mut bytes = 0;
    for n in 0..4 * LIMIT as u16 {
        let answers = node.exchange(&Segment::syn(10_000 + n, PORT).frame());
        assert_eq!(answers.len(), usize::from(usize::from(n) < LIMIT), "SYN number {n}");
        if usize::from(n) == LIMIT {
            bytes = node.stack.stats().bytes;
        }
    }
    assert_eq!(listener.occupancy(), (LIMIT, 0));
    let stats = node.stack.stats();
    assert_eq!(stats.connections, LIMIT);
    assert_eq!(stats.bytes, bytes, "refused SYNs cost no memory");
    assert_eq!(stats.counters.dropped(DropReason::SynQueueFull), 3 * LIMIT as u64);
    // The half-open connections time out.
    node.pass(Duration::from_secs(200), Duration::from_secs(1));
    at_rest(&node, &listener, 0);
    open(&mut node, 2000);
    close(&mut node, &listener.accept().expect("the legitimate client"));
    at_rest(&node, &listener, 0);
}

/// A full accept queue drops SYNs silently, and accepts them again when there is room.
#[every_arch]
fn the_accept_queue_is_bounded(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 2);
    open(&mut node, 2000);
    open(&mut node, 2001);
    for _ in 0..2 {
        assert!(node.exchange(&Segment::syn(2002, PORT).frame()).is_empty(), "the SYN is dropped: the peer repeats it");
    }
    assert_eq!(node.stack.stats().counters.dropped(DropReason::AcceptQueueFull), 2);
    let first = listener.accept().expect("a child waits");
    assert_eq!(first.tuple().remote_port, 2000, "the one that has waited longest");
    open(&mut node, 2002);
    let mut children = vec![first];
    children.extend(std::iter::from_fn(|| listener.accept()));
    assert_eq!(children.len(), 3);
    children.iter().for_each(|child| close(&mut node, child));
    at_rest(&node, &listener, 0);
}
