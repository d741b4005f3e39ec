//! Segments that wait in a device's queue together are acknowledged together (RFC 9293 section 3.10.7.4), over IPv4 and
//! over IPv6, in plain frames and in frames with a priority tag.
//!
//! Some architectures take such segments as one event, a run (`StackConfig::runs`): under one lock, and with the effects
//! that the segments have one by one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use every_arch::every_arch;
use observe::{Counter, CounterSnapshot};
use pktbuf::PktBuf;
use stack::Architecture;
use stack::call::Call;
use stack::socket::TcpSocket;
use stack::socket::handler::{Conn, ConnectionHandler};
use sync::{LockClass, Object, Platform, Real, Step};
use testbed::counting::{Counting, charged, spent};
use testbed::dice::Dice;
use testbed::frames::{self, Ends as FrameEnds, PEER, STACK, Segment, tcp_of};
use testbed::node::{Node, NodeConfig, received, send};
use wire::tcp::TcpFlags;

/// Segments that are queued together: as many as in the initial congestion window.
const SEGMENTS: usize = 10;

/// Both ends, each on its own link; the test carries the frames.
struct Ends<P: Platform> {
    client: Node<P>,
    server: Node<P>,
}

impl<P: Platform> Ends<P> {
    /// `runs`: of the server.
    fn new(arch: Architecture, runs: bool) -> Self {
        let server = Node::new(NodeConfig { runs, ..NodeConfig::new(arch) });
        let addresses = vec![(PEER.into(), 24), ("fd00::2".parse().expect("an address"), 64)];
        let client = Node::new(NodeConfig { addresses, second: true, seed: 2, ..NodeConfig::new(arch) });
        Ends { client, server }
    }

    /// Carries frames until none is left.
    fn rest(&mut self) {
        loop {
            let (there, back) = (self.client.settle(), self.server.settle());
            there.iter().for_each(|frame| self.server.put(frame));
            back.iter().for_each(|frame| self.client.put(frame));
            if there.is_empty() && back.is_empty() {
                return;
            }
        }
    }

    /// The client's end and the server's.
    fn connect(&mut self, to: IpAddr) -> [Arc<TcpSocket<P>>; 2] {
        let options = tcp::config::ConnectionOptions { no_delay: true, ..Default::default() };
        let address = SocketAddr::new(to, 80);
        let listener = self.server.stack.listen(address, 8, options.clone()).expect("the port is free");
        let client = self.client.stack.connect(None, address, &options).expect("a port is free");
        self.rest();
        let server = listener.accept().expect("the handshake is complete");
        self.server.stack.unlisten(&listener);
        [client, server]
    }

    /// The same, where the server's end has a handler.
    fn connect_to_handler(&mut self, to: IpAddr, handler: fn() -> Box<dyn ConnectionHandler<P>>) -> Arc<TcpSocket<P>> {
        let options = tcp::config::ConnectionOptions { no_delay: true, ..Default::default() };
        let address = SocketAddr::new(to, 80);
        let make = move |_: &_| handler();
        self.server.stack.listen_with_handlers(address, 8, options.clone(), make).expect("the port is free");
        let client = self.client.stack.connect(None, address, &options).expect("a port is free");
        self.rest();
        client
    }

    /// The frames with segments that follow when the client sends `data`.
    fn sent_by(&mut self, client: &TcpSocket<P>, data: &[u8]) -> Vec<Vec<u8>> {
        self.client.call(client, send(data));
        let mut sent = self.client.settle();
        sent.retain(|frame| !frames::is_arp(frame));
        sent
    }
}

/// With a priority tag and no VLAN (IEEE 802.1Q clause 6.9).
fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0xa0, 0], &frame[12..]].concat()
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# In general, the processing of received segments MUST be implemented to aggregate ACK segments whenever possible
//# (MUST-58).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# For example, if the TCP endpoint is processing a series of queued segments, it MUST process them all before sending
//# any ACK segments (MUST-59).
//
// A pool of workers is given one segment at a time, and has no series of them.
#[every_arch(except(msgp_pool))]
fn ten_segments_queued_at_once_get_one_acknowledgement(arch: Architecture) {
    for (to, acknowledged, end) in acknowledgements_of_ten(arch) {
        assert_eq!(acknowledged, [end], "{to}");
    }
}

/// Any worker may take the next segment, so the pool never sees a run: every second segment is acknowledged.
#[every_arch(only(msgp_pool))]
fn a_pool_is_given_no_runs(arch: Architecture) {
    for (to, acknowledged, end) in acknowledgements_of_ten(arch) {
        assert!(acknowledged.len() >= SEGMENTS / 2, "{to}: {acknowledged:?}");
        assert_eq!(acknowledged.last(), Some(&end), "{to}");
    }
}

/// Ten segments queued at once, with and without a VLAN tag: the address that they are sent to, the acknowledgements, and
/// the end of the last segment.
fn acknowledgements_of_ten(arch: Architecture) -> Vec<(IpAddr, Vec<u32>, u32)> {
    let mut all = Vec::new();
    for to in both_families() {
        for tag in [false, true] {
            let mut ends = Ends::<Real>::new(arch, true);
            let [client, _] = ends.connect(to);
            let queued = ends.sent_by(&client, &[7; SEGMENTS * 1448]);
            assert!(queued.len() >= SEGMENTS, "{to}: {} frames", queued.len());
            let end = queued
                .iter()
                .filter_map(|frame| tcp_of(frame))
                .map(|(h, data)| h.seq.0.wrapping_add(data.len() as u32))
                .next_back()
                .expect("segments");
            for frame in &queued {
                ends.server.put(&if tag { tagged(frame) } else { frame.to_vec() });
            }
            let answers = ends.server.settle();
            let acknowledged: Vec<_> = answers.iter().filter_map(|frame| tcp_of(frame)).map(|(h, _)| h.ack.0).collect();
            all.push((to, acknowledged, end));
        }
    }
    all
}

fn both_families() -> [IpAddr; 2] {
    [STACK.into(), "fd00::1".parse().expect("an address")]
}

/// The group locks and the steps of work with which the server processes ten segments that are queued at once, and the
/// bytes of the connection that it touches, which are all of them in each event.
fn ten_segments(arch: Architecture, to: IpAddr, runs: bool) -> (u64, usize, usize) {
    let mut ends = Ends::<Counting>::new(arch, runs);
    let [client, server] = ends.connect(to);
    // The first data of a connection is processed by the general code.
    for frame in ends.sent_by(&client, &[7; 100]) {
        ends.server.put(&frame);
    }
    ends.rest();
    ends.client.clock.advance(Duration::from_millis(300));
    ends.server.clock.advance(Duration::from_millis(300));
    ends.rest();
    let queued = ends.sent_by(&client, &[7; SEGMENTS * 1448]);
    assert!(queued.len() >= SEGMENTS, "{to}: {} frames", queued.len());
    queued.iter().take(SEGMENTS).for_each(|frame| ends.server.put(frame));
    let data: usize = queued.iter().take(SEGMENTS).filter_map(|frame| tcp_of(frame)).map(|(_, data)| data.len()).sum();
    let ((_, spent), charged) = charged(|| spent(|| ends.server.driver.poll()));
    let reply = ends.server.call(&server, Call::Receive(tcp::Receive { max: 1 << 20 }));
    assert_eq!(received(reply).map(|(data, _)| data.len()), Some(100 + data));
    let groups = spent.locks.iter().find(|(class, _)| *class == LockClass::Group);
    let touched = charged.bytes(Object::Connection);
    (groups.map_or(0, |(_, taken)| *taken), charged.steps(Step::Event), touched)
}

/// "Exactly one stack lock per run", and without runs one for each segment. The work of a run is that of its segments;
/// where they are predicted it is one event.
#[every_arch(only(giant, connp_l_4, connp_l_128, connp_l_1024))]
fn a_run_takes_one_lock_and_is_one_event(arch: Architecture) {
    for to in both_families() {
        let (locks, steps, touched) = ten_segments(arch, to, true);
        assert_eq!((locks, steps), (1, SEGMENTS), "{to}");
        assert_eq!(ten_segments(arch, to, false), (SEGMENTS as u64, SEGMENTS, SEGMENTS * touched), "{to}");
    }
}

/// A cell that belongs to the threads that poll, or to one of them, has no lock: a run is one event all the same. So are the entries that
/// `adaptive` counts.
#[every_arch(only(up, shared_nothing, adaptive))]
fn a_run_is_one_event_where_a_thread_owns_the_cell(arch: Architecture) {
    for to in both_families() {
        let (locks, steps, touched) = ten_segments(arch, to, true);
        assert_eq!((locks, steps), (0, SEGMENTS), "{to}");
        assert_eq!(ten_segments(arch, to, false), (0, SEGMENTS, SEGMENTS * touched), "{to}");
    }
}

/// Answers each callback with a byte of its own.
struct Answers;

impl ConnectionHandler<Real> for Answers {
    fn data(&mut self, conn: &mut Conn<'_, Real>, data: PktBuf) {
        assert_eq!(conn.send(&data[..1]), Ok(1));
    }
}

/// A handler is called where each segment arrives, also within a run: its answers leave one by one.
#[every_arch]
fn a_handler_is_called_for_each_segment_of_a_run(arch: Architecture) {
    for to in both_families() {
        let answers = |runs| {
            let mut ends = Ends::<Real>::new(arch, runs);
            let client = ends.connect_to_handler(to, || Box::new(Answers));
            for frame in ends.sent_by(&client, &[7; 100]) {
                ends.server.put(&frame);
            }
            ends.rest();
            let queued = ends.sent_by(&client, &[8; SEGMENTS * 1448]);
            assert!(queued.len() >= SEGMENTS, "{to}: {} frames", queued.len());
            queued.iter().for_each(|frame| ends.server.put(frame));
            ends.server.settle()
        };
        assert_eq!(answers(true), answers(false), "{to}");
    }
}

/// What a server's peer and user see of it.
#[derive(Debug, PartialEq)]
struct Transcript {
    /// After each round, the frames that the server sent, and the data that its user got.
    rounds: Vec<(Vec<Vec<u8>>, Vec<u8>)>,
    counters: CounterSnapshot,
}

/// The rounds of a conversation.
const ROUNDS: usize = 150;

/// A conversation of two connections in which batches arrive at the server: of bulk data, with lost, repeated, reordered
/// and marked segments, resets of neither, and a FIN; its user answers some of it.
fn conversation(arch: Architecture, to: IpAddr, runs: bool, seed: u64) -> Transcript {
    let mut dice = Dice(seed);
    let mut ends = Ends::<Real>::new(arch, runs);
    let connections = [ends.connect(to), ends.connect(to)];
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let [client, server] = &connections[dice.below(2)];
        let most = if dice.below(3) == 0 { 40_000 } else { 3_000 };
        let data: Vec<u8> = (0..1 + dice.below(most)).map(|at| (at + round) as u8).collect();
        let mut batch = ends.sent_by(client, &data);
        if round + 1 == ROUNDS {
            ends.client.call(client, Call::Shutdown(tcp::Shutdown::Write));
            batch.extend(ends.client.settle());
        }
        if batch.len() > 1 && dice.below(4) == 0 {
            let (from, to) = (dice.below(batch.len()), dice.below(batch.len()));
            match dice.below(5) {
                4 => batch.insert(to, reset_in_window(&batch[from])),
                0 => drop(batch.remove(from)),
                1 => batch.insert(to, batch[from].clone()),
                2 => batch.swap(from, to),
                // A flag that no header prediction allows, or damage.
                _ => spoil(&mut batch[from], dice.below(2) == 0),
            }
        }
        batch.iter().for_each(|frame| ends.server.put(frame));
        let mut sent = ends.server.settle();
        let mut got = Vec::new();
        if dice.below(3) > 0 {
            let max = 1 + dice.below(60_000);
            if let Some((data, _)) = received(ends.server.call(server, Call::Receive(tcp::Receive { max }))) {
                got = data;
            }
        }
        if dice.below(2) == 0 {
            let answer = vec![round as u8; 1 + dice.below(9_000)];
            ends.server.call(server, send(&answer));
        }
        sent.extend(ends.server.settle());
        sent.iter().filter(|_| dice.below(40) > 0).for_each(|frame| ends.client.put(frame));
        rounds.push((sent, got));
        ends.client.call(client, Call::Receive(tcp::Receive { max: 1 << 20 }));
        let span = Duration::from_millis([1, 5, 60, 400][dice.below(4)]);
        ends.client.clock.advance(span);
        ends.server.clock.advance(span);
    }
    Transcript { rounds, counters: ends.server.stack.stats().counters }
}

/// A reset of the same flow at a place of the window that is not the next: it gets an acknowledgment (RFC 5961 section 3.2),
/// which tells what has arrived before it. It has no timestamps, so that no header prediction takes it, and data, so that
/// segments before it are followed by it.
fn reset_in_window(frame: &[u8]) -> Vec<u8> {
    let (header, data) = tcp_of(frame).expect("a segment");
    let (ports, seq) = ((header.src_port, header.dst_port), header.seq.0.wrapping_add(data.len() as u32 + 4000));
    let flags = TcpFlags::RST.union(TcpFlags::ACK);
    let reset = Segment { flags, data: b"x", ..Segment::ack(ports, seq, header.ack.0) };
    let v4 = frame[12..14] == [8, 0];
    reset.frame_over(FrameEnds::BOTH_FAMILIES[usize::from(!v4)])
}

/// Sets URG in the segment of a frame, with a right checksum, or damages its last byte.
fn spoil(frame: &mut [u8], urgent: bool) {
    let transport = if frame[12..14] == [8, 0] { 34 } else { 54 };
    if urgent {
        frame[transport + 13] |= TcpFlags::URG.0 as u8;
        // Data at an even place: the sum falls by what the word grows.
        let sum = u16::from_be_bytes([frame[transport + 16], frame[transport + 17]]);
        let (less, borrow) = sum.overflowing_sub(TcpFlags::URG.0);
        frame[transport + 16..transport + 18].copy_from_slice(&less.wrapping_sub(u16::from(borrow)).to_be_bytes());
    } else if let Some(last) = frame.last_mut() {
        *last ^= 0x10;
    }
}

/// A run of n segments has the effects that the n segments have one by one: on the wire, for the user, and in every
/// counter.
#[every_arch(only(up, giant, shared_nothing, connp_l_4, connp_l_128, connp_l_1024, adaptive))]
fn a_run_has_the_effects_of_its_segments(arch: Architecture) {
    for (to, seed) in both_families().into_iter().zip([11, 12]) {
        let (with, without) = (conversation(arch, to, true, seed), conversation(arch, to, false, seed));
        for (number, (a, b)) in with.rounds.iter().zip(&without.rounds).enumerate() {
            assert_eq!(a, b, "{to}, round {number}");
        }
        assert_eq!(with.counters, without.counters, "{to}");
        for counter in [Counter::FastPathIn, Counter::SlowPathIn, Counter::OutOfOrderAtEntry] {
            assert!(with.counters.get(counter) > 0, "{to}: {counter:?} was not part of it");
        }
    }
}
