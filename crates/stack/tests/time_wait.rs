//! Connections in TIME-WAIT without a user: where a cell keeps them they take about 64 bytes, and under every
//! architecture they answer, are counted, give way, end and move as connections do.

use std::net::SocketAddr;
use std::time::Duration;

use every_arch::every_arch;
use observe::{Counter, DropReason};
use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::ListenerShared;
use sync::Real;
use testbed::frames::{self, Ends, ISS, Segment, tcp_of};
use testbed::node::{Node, NodeConfig, send};
use wire::tcp::{Options, TcpFlags, Timestamps};

const PORT: u16 = 80;
const FIRST: u16 = 2000;
/// What a connection takes beside an entry of 64 bytes: its place in the index, and its part of a chunk begun.
const INDEX: usize = 32;

/// Architectures that keep connections behind locks, where they stay what they are.
fn has_cells(arch: Architecture) -> bool {
    !["msgp", "msgp-pool", "netisr", "softint", "backlog", "steal"].contains(&arch.family())
}

fn node(arch: Architecture) -> Node<Real> {
    let mut node = Node::new(NodeConfig::new(arch));
    announce(&mut node);
    node
}

/// The peer announces its address of either family.
fn announce(node: &mut Node<Real>) {
    node.exchange(&frames::arp_request());
    node.exchange(&frames::neighbour_solicitation());
}

/// One peer's side of a connection that the stack has closed first.
#[derive(Clone, Copy)]
struct Peer {
    ends: Ends,
    port: u16,
    /// The number of its FIN, and the next that it expects.
    seq: u32,
    expects: u32,
}

impl Peer {
    /// A segment of it, with timestamp `ts`, which begins at its FIN.
    fn segment(&self, flags: TcpFlags, ts: u32) -> Vec<u8> {
        let options = Options { timestamps: Some(Timestamps { value: ts, echo: 0 }), ..Options::NONE };
        Segment::ack((self.port, PORT), self.seq, self.expects).and(flags).options(options).frame_over(self.ends)
    }

    /// Its FIN again.
    fn fin(&self) -> Vec<u8> {
        self.segment(TcpFlags::FIN, 100)
    }
}

/// Opens a connection, closes it from here, and closes it from there: TIME-WAIT.
fn close_first(node: &mut Node<Real>, listener: &ListenerShared<Real>, ends: Ends, port: u16) -> Peer {
    let timestamps = Some(Timestamps { value: 100, echo: 0 });
    let offer = Options { timestamps, window_scale: Some(7), sack_permitted: true, mss: Some(1400), ..Options::NONE };
    let answers = node.exchange(&Segment::syn(port, PORT).options(offer).frame_over(ends));
    let (syn_ack, _) = answers.iter().find_map(|frame| tcp_of(frame)).expect("a SYN-ACK");
    let mut peer = Peer { ends, port, seq: ISS.wrapping_add(1), expects: syn_ack.seq.0.wrapping_add(1) };
    node.exchange(&peer.segment(TcpFlags::NONE, 100));
    let socket = listener.accept().expect("a child waits");
    assert!(matches!(node.call(&socket, Call::Close(tcp::Close)), Reply::Done));
    node.settle();
    peer.expects = peer.expects.wrapping_add(1);
    node.exchange(&peer.fin());
    peer
}

fn close_many(node: &mut Node<Real>, listener: &ListenerShared<Real>, each: u16) -> Vec<Peer> {
    let pairs = Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| (FIRST..FIRST + each).map(move |port| (ends, port)));
    pairs.map(|(ends, port)| close_first(node, listener, ends, port)).collect()
}

/// The connections, and those in TIME-WAIT.
fn pcbs_and_time_wait(node: &Node<Real>) -> (usize, usize) {
    let stats = node.stack.stats();
    (stats.connections, stats.time_wait)
}

/// Whether the answer to a FIN that is repeated acknowledges it.
fn answers(node: &mut Node<Real>, peer: &Peer) -> bool {
    let frames = node.exchange(&peer.fin());
    let headers: Vec<_> = frames.iter().filter_map(|frame| tcp_of(frame)).map(|(header, _)| header).collect();
    headers.len() == 1
        && (headers[0].flags, headers[0].seq.0, headers[0].ack.0)
            == (TcpFlags::ACK, peer.expects, peer.seq.wrapping_add(1))
}

#[every_arch]
fn those_that_wait_take_little_memory_and_end_in_time(arch: Architecture) {
    const EACH: u16 = 400;
    let mut node = node(arch);
    let listener = node.listen(PORT, 8);
    close_first(&mut node, &listener, Ends::PEER_TO_STACK, 1999);
    let before = node.stack.stats();
    let peers = close_many(&mut node, &listener, EACH);
    let stats = node.stack.stats();
    assert_eq!((stats.connections, stats.time_wait, stats.timers), (801, 801, 801));
    let cells = node.stack.shared().control().accounts();
    let each = (stats.bytes - before.bytes) / peers.len();
    println!("{arch}: {each} bytes each, {cells} accounts");
    // With a few connections in each of many cells, the least size of a cell's tables is what counts.
    if has_cells(arch) && cells <= 8 {
        // Each cell has an index of its own, and a chunk of 1 KiB that is not full.
        assert!(each <= 64 + INDEX + cells * 2048 / peers.len(), "{arch}: {each} bytes each");
        assert!(each >= 64, "{each}: they are there");
    }
    node.pass(Duration::from_millis(59_000), Duration::from_millis(500));
    assert_eq!(pcbs_and_time_wait(&node), (801, 801), "{arch}");
    node.pass(Duration::from_millis(1500), Duration::from_millis(100));
    assert_eq!(pcbs_and_time_wait(&node), (0, 0), "{arch}");
    let stats = node.stack.stats();
    assert_eq!((stats.timers, stats.counters.get(Counter::ConnectionsClosed)), (0, 801), "{arch}");
}

/// Each answers its peer's FIN, and waits again from then on; the others do not.
#[every_arch]
fn a_repeated_fin_is_answered_and_begins_the_wait_again(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 8);
    let peers = close_many(&mut node, &listener, 70);
    let bytes = node.stack.stats().bytes;
    node.pass(Duration::from_secs(40), Duration::from_secs(1));
    announce(&mut node);
    for peer in peers.iter().step_by(2) {
        assert!(answers(&mut node, peer), "{arch}: {}", peer.port);
    }
    assert_eq!(pcbs_and_time_wait(&node), (140, 140));
    if has_cells(arch) {
        let cells = node.stack.shared().control().accounts();
        let grown = node.stack.stats().bytes.saturating_sub(bytes);
        assert!(grown <= 70 * 64 + (cells + 1) * (8 << 10), "{arch}: {grown} bytes more: they went back");
    }
    node.pass(Duration::from_secs(21), Duration::from_millis(500));
    assert_eq!(pcbs_and_time_wait(&node), (70, 70), "{arch}: those that heard a FIN");
    node.pass(Duration::from_secs(40), Duration::from_millis(500));
    assert_eq!(pcbs_and_time_wait(&node), (0, 0), "{arch}");
}

/// Old duplicates and resets end no TIME-WAIT; a SYN with a newer timestamp does, and opens a new connection.
#[every_arch]
fn a_new_syn_opens_again_and_nothing_else_does(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 8);
    let peers = close_many(&mut node, &listener, 20);
    let dropped = |node: &Node<Real>, reason| node.stack.stats().counters.dropped(reason);
    for (number, peer) in peers.iter().enumerate() {
        let next = Peer { seq: peer.seq.wrapping_add(1), ..*peer };
        assert!(node.exchange(&next.segment(TcpFlags::RST, 100)).is_empty());
        assert_eq!(dropped(&node, DropReason::TcpTimeWait), number as u64 + 1, "{arch}");
        let old = Peer { seq: peer.seq.wrapping_sub(7), ..*peer };
        let refused = node.exchange(&old.segment(TcpFlags::PSH, 50));
        assert_eq!(refused.len(), 1, "{arch}: an acknowledgement");
        assert_eq!(pcbs_and_time_wait(&node).1, 40 - number);
        let offer = Options { timestamps: Some(Timestamps { value: 101, echo: 0 }), ..Options::NONE };
        let syn = Segment { seq: ISS.wrapping_sub(9), ..Segment::syn(peer.port, PORT) }.options(offer);
        let answers = node.exchange(&syn.frame_over(peer.ends));
        let (syn_ack, _) = answers.iter().find_map(|frame| tcp_of(frame)).expect("a SYN-ACK");
        assert_eq!(syn_ack.flags, TcpFlags::SYN | TcpFlags::ACK);
        assert_eq!(
            (pcbs_and_time_wait(&node), dropped(&node, DropReason::TcpNoListener)),
            ((40, 39 - number), 0),
            "{arch}"
        );
    }
    assert_eq!(node.stack.stats().counters.get(Counter::TimeWaitReused), 40);
}

/// They move to the next architecture and back, each to its cell.
#[every_arch]
fn they_move_with_the_stack(arch: Architecture) {
    for to in ["up", "connp-l:8", "squeue", "msgp", "adaptive"].map(Architecture::named) {
        let mut node = node(arch);
        let listener = node.listen(PORT, 8);
        let peers = close_many(&mut node, &listener, 20);
        for next in [to, arch] {
            let before = node.stack.stats();
            node.stack.switch(next).unwrap_or_else(|refused| panic!("{arch} to {next}: {refused}"));
            let stats = node.stack.stats();
            assert_eq!(
                (stats.connections, stats.time_wait, stats.timers),
                (before.connections, before.time_wait, before.timers),
                "{arch} to {next}"
            );
            if has_cells(next) {
                let cells = node.stack.shared().control().accounts();
                assert!(stats.bytes <= 40 * (64 + INDEX) + cells * (16 << 10), "{arch} to {next}: {}", stats.bytes);
            }
            node.pass(Duration::from_secs(10), Duration::from_secs(1));
            announce(&mut node);
            for peer in &peers {
                assert!(answers(&mut node, peer), "{arch} to {next}: {}", peer.port);
            }
        }
        node.pass(Duration::from_secs(59), Duration::from_millis(500));
        assert_eq!(pcbs_and_time_wait(&node), (40, 40), "{arch} by {to}");
        node.pass(Duration::from_secs(2), Duration::from_millis(500));
        assert_eq!(pcbs_and_time_wait(&node), (0, 0), "{arch} by {to}");
    }
}

/// The wheel moves its entries when it gives back the memory of a peak, that of the TIME-WAITs, too.
#[every_arch]
fn their_wake_up_is_known_after_memory_was_given_back(arch: Architecture) {
    const OTHERS: u16 = 300;
    let mut node = node(arch);
    let listener = node.listen(PORT, 8);
    let others: Vec<_> = (FIRST..FIRST + OTHERS)
        .map(|port| {
            let answers = node.exchange(&Segment::syn(port, PORT).frame());
            let (syn_ack, _) = answers.iter().find_map(|frame| tcp_of(frame)).expect("a SYN-ACK");
            node.exchange(&Segment::ack((port, PORT), ISS.wrapping_add(1), syn_ack.seq.0.wrapping_add(1)).frame());
            let socket = listener.accept().expect("a child waits");
            assert!(matches!(node.call(&socket, send(b"text")), Reply::Sent(Ok(_))));
            node.settle();
            socket
        })
        .collect();
    let peer = close_first(&mut node, &listener, Ends::PEER_TO_STACK, 1999);
    assert_eq!(node.stack.stats().timers, usize::from(OTHERS) + 1);
    for socket in &others {
        node.call(socket, Call::Abort(tcp::Abort));
    }
    // Longer than a stack takes to return memory that was not needed for some time.
    node.pass(Duration::from_secs(35), Duration::from_millis(500));
    assert_eq!((pcbs_and_time_wait(&node), node.stack.stats().timers), ((1, 1), 1), "{arch}");
    announce(&mut node);
    assert!(answers(&mut node, &peer), "{arch}");
    assert_eq!((pcbs_and_time_wait(&node), node.stack.stats().timers), ((1, 1), 1), "{arch}");
    node.pass(Duration::from_secs(61), Duration::from_millis(500));
    assert_eq!((pcbs_and_time_wait(&node), node.stack.stats().timers), ((0, 0), 0), "{arch}");
}

/// What is kept of a connection has its times in short: they are right however long the stack has run.
#[every_arch]
fn they_end_in_time_after_the_stack_has_run_for_months(arch: Architecture) {
    let mut node = node(arch);
    node.clock.advance(Duration::from_secs(200 * 24 * 3600));
    node.settle();
    announce(&mut node);
    let listener = node.listen(PORT, 8);
    let peers = close_many(&mut node, &listener, 4);
    node.pass(Duration::from_secs(30), Duration::from_secs(1));
    announce(&mut node);
    let next = Peer { seq: peers[0].seq.wrapping_add(1), ..peers[0] };
    assert!(node.exchange(&next.segment(TcpFlags::RST, 100)).is_empty());
    assert!(answers(&mut node, &peers[1]), "{arch}");
    node.pass(Duration::from_secs(29), Duration::from_millis(500));
    assert_eq!(pcbs_and_time_wait(&node), (8, 8), "{arch}");
    node.pass(Duration::from_secs(2), Duration::from_millis(500));
    assert_eq!(pcbs_and_time_wait(&node), (1, 1), "{arch}: the one that heard a FIN");
    node.pass(Duration::from_secs(30), Duration::from_millis(500));
    assert_eq!(pcbs_and_time_wait(&node), (0, 0), "{arch}");
}

/// A user that keeps the socket of a connection that it has closed finds nothing, from TIME-WAIT on.
#[every_arch]
fn the_name_of_a_closed_connection_finds_nothing(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 8);
    let syn_ack = node.exchange(&Segment::syn(FIRST, PORT).frame());
    let (syn_ack, _) = syn_ack.iter().find_map(|frame| tcp_of(frame)).expect("a SYN-ACK");
    let mut peer = Segment::data((FIRST, PORT), 0, syn_ack.seq.0.wrapping_add(1), &[]);
    node.exchange(&peer.frame());
    let socket = listener.accept().expect("a child waits");
    node.call(&socket, Call::Shutdown(tcp::Shutdown::Write));
    node.settle();
    peer.ack = peer.ack.wrapping_add(1);
    node.exchange(&peer.and(TcpFlags::FIN).frame());
    assert!(matches!(node.call(&socket, Call::TakeError(tcp::TakeError)), Reply::Failure(None)), "{arch}: it is held");
    assert_eq!(pcbs_and_time_wait(&node), (1, 1));
    assert!(matches!(node.call(&socket, Call::Close(tcp::Close)), Reply::Done));
    for _ in 0..3 {
        assert!(matches!(node.call(&socket, Call::TakeError(tcp::TakeError)), Reply::Gone), "{arch}");
        assert_eq!(pcbs_and_time_wait(&node), (1, 1));
        node.exchange(&peer.and(TcpFlags::FIN).frame());
    }
}

/// RFC 6191: where timestamps tell old segments from new ones, an active open takes over a tuple that waits, once
/// nothing has been heard of it for a second, with a sequence number beyond the last.
#[every_arch]
fn an_active_open_takes_over_a_tuple_that_waits(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut terms = NodeConfig::new(arch);
        terms.tcp.reuse_time_wait = 1;
        let mut node = Node::<Real>::new(terms);
        announce(&mut node);
        let listener = node.listen(PORT, 8);
        let peer = close_first(&mut node, &listener, ends, FIRST);
        node.stack.unlisten(&listener);
        node.settle();
        let (local, remote) = (SocketAddr::new(ends.dst, PORT), SocketAddr::new(ends.src, FIRST));
        let connect = |node: &Node<Real>| node.stack.connect(Some(local), remote, &Default::default());
        assert!(connect(&node).is_err(), "{arch}: its peer was heard a moment ago");
        node.clock.advance(Duration::from_secs(2));
        node.settle();
        let socket = connect(&node).expect("the tuple is taken over");
        let sent = node.settle();
        let (syn, _) = sent.iter().find_map(|frame| tcp_of(frame)).expect("a SYN");
        assert_eq!((syn.flags.contains(TcpFlags::SYN), syn.seq.0), (true, peer.expects.wrapping_add(65_535 + 2)));
        assert_eq!(pcbs_and_time_wait(&node), (1, 0));
        assert_eq!(node.stack.stats().counters.get(Counter::TimeWaitReused), 1);
        drop(socket);
    }
}
