//! Segments of one peer that are made to be expensive: single bytes out of order (CVE-2018-5390), minimal segments with
//! selective acknowledgements (CVE-2019-11477 to 11479), divided and forged acknowledgements (Savage and others 1999).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use every_arch::every_arch;
use observe::{Counter, DropReason};
use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::TcpSocket;
use sync::Real;
use tcp::pcb::reassembly::MAX_RUNS;
use testbed::frames::{PEER, Segment};
use testbed::node::{Node, send};
use wire::SeqNumber;
use wire::tcp::{Options, SackBlocks, TcpFlags};

use super::cost;
use super::peers::{PORT, answer, routed, turn};

const HOST: (Ipv4Addr, u16) = (PEER, 2000);
/// Receive and send buffer.
const BUFFER: u32 = 256 << 10;

/// A connection opened by a SYN with these options, and the stack's first sequence number.
fn connected(node: &mut Node<Real>, options: Options) -> (Arc<TcpSocket<Real>>, u32) {
    let listener = node.listen(PORT, 8);
    let answers = node.exchange(&Segment::syn(HOST.1, PORT).options(options).frame_from(HOST.0));
    let theirs = answer(&answers[0]).expect("a SYN-ACK").1.seq.0.wrapping_add(1);
    node.exchange(&Segment::data((HOST.1, PORT), 0, theirs, &[]).frame_from(HOST.0));
    let socket = listener.accept().expect("a child waits");
    node.stack.unlisten(&listener);
    (socket, theirs)
}

fn fixed(arch: Architecture) -> Node<Real> {
    routed(arch, |terms| {
        terms.tcp.receive_buffer = tcp::config::BufferSizes { min: 4096, initial: BUFFER, max: BUFFER };
        terms.tcp.send_buffer = tcp::config::BufferSizes { min: 4096, initial: BUFFER, max: BUFFER };
    })
}

fn selective() -> Options {
    Options { mss: Some(1460), sack_permitted: true, ..Options::NONE }
}

fn status(node: &Node<Real>, socket: &TcpSocket<Real>) -> tcp::StatusReport {
    match node.call(socket, Call::Status(tcp::Status)) {
        Reply::Status(status) => *status,
        _ => panic!("the connection is gone"),
    }
}

/// Single bytes at `places`, as frames.
fn bytes(ack: u32, places: impl Iterator<Item = u32>) -> Vec<Vec<u8>> {
    places.map(|at| Segment::data((HOST.1, PORT), at, ack, b"x").frame_from(HOST.0)).collect()
}

fn feed(node: &mut Node<Real>, frames: &[Vec<u8>]) {
    for batch in frames.chunks(64) {
        batch.iter().for_each(|frame| node.put(frame));
        node.settle();
    }
}

/// The bytes that a hostile sender sends: every second one, so that no two are adjacent.
fn holes(reverse: bool, count: u32) -> Box<dyn Iterator<Item = u32>> {
    // As many as the window has, then again from the start.
    let places = (0..count).map(move |n| 1 + 2 * (n % 30_000));
    if reverse { Box::new(places.map(|at| 60_002 - at)) } else { Box::new(places) }
}

/// Bytes in `count` holes: the queue keeps its bound, and its memory stays within the receive buffer.
fn segment_smack(arch: Architecture, reverse: bool, count: u32) {
    let _turn = turn();
    let live = pktbuf::live();
    let mut node = fixed(arch);
    let (socket, ack) = connected(&mut node, selective());
    feed(&mut node, &bytes(ack, 0..20_000));
    let got = node.call(&socket, Call::Receive(tcp::Receive { max: 1 << 20 }));
    assert_eq!(testbed::node::received(got).map(|(data, _)| data.len()), Some(20_000));
    feed(&mut node, &bytes(ack, holes(reverse, count).map(|at| 20_000 + at)));
    let status = status(&node, &socket);
    assert!(status.out_of_order as usize <= MAX_RUNS, "{} bytes are queued", status.out_of_order);
    assert!(node.stack.stats().counters.dropped(DropReason::TcpReassemblyFull) >= u64::from(count / 2));
    // Each hole may need its own block.
    let held = pktbuf::live() - live;
    assert!(held <= MAX_RUNS + 64, "{held} buffers are held");
    // The missing data is still accepted.
    let rest: Vec<u8> = vec![b'x'; 1000];
    node.exchange(&Segment::data((HOST.1, PORT), 20_000, ack, &rest).frame_from(HOST.0));
    let got = node.call(&socket, Call::Receive(tcp::Receive { max: 1 << 20 }));
    assert!(testbed::node::received(got).is_some_and(|(data, _)| data.len() >= 1000));
    let reset = Segment::ack((HOST.1, PORT), status_next(&node, &socket), ack).and(TcpFlags::RST);
    node.exchange(&reset.frame_from(HOST.0));
    node.settle();
    assert_eq!(pktbuf::live(), live, "a reset gives all of it back");
}

/// A byte in a hole costs at most three times as much as one in order, in the median of many comparisons. Parts of both
/// kinds alternate, so that both see the same machine load.
fn holes_are_cheap(reverse: bool) {
    let _turn = turn();
    let [mut usual, mut hostile] = [fixed(Architecture::named("up")), fixed(Architecture::named("up"))];
    let ((_reader, ack), (_victim, theirs)) =
        (connected(&mut usual, selective()), connected(&mut hostile, selective()));
    let (in_order, in_holes) = (bytes(ack, 0..100_000), bytes(theirs, holes(reverse, 100_000)));
    let ratio = |(order, holes): (&[Vec<u8>], &[Vec<u8>])| {
        let plain = cost::of(|| feed(&mut usual, order));
        cost::of(|| feed(&mut hostile, holes)) as f64 / plain as f64
    };
    let mut ratios: Vec<f64> = in_order.chunks(1280).zip(in_holes.chunks(1280)).map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    assert!(ratio <= 3.0, "{ratio:.2} times the work");
}

#[test]
fn bytes_out_of_order_cost_little_more_forwards() {
    holes_are_cheap(false);
}

#[test]
fn bytes_out_of_order_cost_little_more_backwards() {
    holes_are_cheap(true);
}

/// Unread data in order, in segments of the least favourable lengths, pins at most three times the buffer.
#[every_arch]
fn small_segments_in_order_pin_no_more_than_their_window(arch: Architecture) {
    let _turn = turn();
    for length in [1, 257, 700, 1025] {
        let live = pktbuf::live();
        let mut node = fixed(arch);
        let (socket, ack) = connected(&mut node, Options { window_scale: Some(7), ..selective() });
        let data = vec![b'x'; length];
        let mut at = 0;
        while at < BUFFER.min(40_000 * length as u32) {
            node.put(&Segment::data((HOST.1, PORT), at, ack, &data).frame_from(HOST.0));
            at += length as u32;
            if (at / length as u32).is_multiple_of(64) {
                node.settle();
            }
        }
        node.settle();
        let taken = status(&node, &socket).traffic.bytes_received as usize;
        assert!(taken + length > at.min(BUFFER) as usize, "{taken} bytes were taken of {at}");
        let memory = (pktbuf::live() - live) * 2048;
        assert!(memory <= 3 * taken + (64 << 10), "{memory} bytes for {taken} in segments of {length}");
        node.call(&socket, Call::Abort(tcp::Abort));
        node.settle();
        drop(socket);
        assert_eq!(pktbuf::live(), live);
    }
}

fn status_next(node: &Node<Real>, socket: &TcpSocket<Real>) -> u32 {
    testbed::frames::ISS.wrapping_add(1).wrapping_add(status(node, socket).traffic.bytes_received as u32)
}

#[test]
fn a_hundred_thousand_bytes_out_of_order_forwards() {
    segment_smack(Architecture::named("up"), false, 100_000);
}

#[test]
fn a_hundred_thousand_bytes_out_of_order_backwards() {
    segment_smack(Architecture::named("up"), true, 100_000);
}

#[every_arch]
fn bytes_out_of_order_are_bounded(arch: Architecture) {
    segment_smack(arch, true, 4000);
}

/// A client with an MSS of eight bytes gets no such segments, and its selective acknowledgements of every second
/// segment cost as much as plain ones, in memory bounded by the send buffer.
#[every_arch]
fn the_least_segments_and_alternating_selective_acknowledgements(arch: Architecture) {
    let _turn = turn();
    let live = pktbuf::live();
    let mut node = fixed(arch);
    let (socket, first) = connected(&mut node, Options { mss: Some(8), ..selective() });
    assert!(status(&node, &socket).mss >= 200, "a segment is never as small as that");
    node.call(&socket, send(&vec![5; 2 * BUFFER as usize]));
    let mut sent = node.settle();
    let mss = u32::from(status(&node, &socket).mss);
    let mut most = 0;
    for round in 0..2000u32 {
        let mut sack = SackBlocks::EMPTY;
        for block in 0..3 {
            let left = first.wrapping_add(mss * (1 + 2 * ((round * 3 + block) % 120)));
            sack.push(SeqNumber(left), SeqNumber(left.wrapping_add(mss)));
        }
        node.put(
            &Segment::data((HOST.1, PORT), 0, first, &[]).options(Options { sack, ..Options::NONE }).frame_from(HOST.0),
        );
        if round % 32 == 0 {
            sent.extend(node.settle());
            node.clock.advance(Duration::from_millis(1));
        }
        most = most.max(pktbuf::live() - live);
    }
    sent.extend(node.settle());
    assert!(sent.iter().filter_map(|frame| answer(frame)).all(|(_, _, data)| data.len() <= mss as usize));
    // The figure includes the queue of the ring and the segments in flight.
    let bound = 2 * (BUFFER as usize / 1024) + 256 + 2 * 64;
    assert!(most <= bound, "{most} buffers, {bound} at most");
    // The connection then ends normally.
    let _ = node.call(&socket, Call::Abort(tcp::Abort));
    node.settle();
    drop((socket, sent));
    assert_eq!(pktbuf::live(), live);
}

/// Data that was never sent cannot be acknowledged, and an acknowledgement divided into a thousand opens the window no
/// further than whole ones (RFC 3465).
#[every_arch]
fn invented_and_divided_acknowledgements_open_nothing(arch: Architecture) {
    let _turn = turn();
    let window = |pieces: u32| {
        let mut node = fixed(arch);
        let (socket, first) = connected(&mut node, selective());
        node.call(&socket, send(&vec![5; BUFFER as usize]));
        node.settle();
        let flight = status(&node, &socket).cwnd.min(14_600);
        for piece in 1..=pieces {
            let acked = u64::from(flight) * u64::from(piece) / u64::from(pieces);
            node.put(&Segment::data((HOST.1, PORT), 0, first.wrapping_add(acked as u32), &[]).frame_from(HOST.0));
            node.settle();
        }
        let honest = status(&node, &socket).cwnd;
        // The peer acknowledges the whole buffer before receiving it.
        let ahead = first.wrapping_add(BUFFER);
        for _ in 0..100 {
            node.put(&Segment::data((HOST.1, PORT), 0, ahead, &[]).frame_from(HOST.0));
            node.settle();
        }
        let counters = node.stack.stats().counters;
        assert_eq!(counters.dropped(DropReason::TcpBadAck), 100);
        assert!(counters.get(Counter::ChallengeAcksOut) <= 1, "and is told so once in half a second");
        assert_eq!(status(&node, &socket).cwnd, honest);
        honest
    };
    let (whole, divided) = (window(10), window(1000));
    assert!(divided <= whole + 1460, "{divided} bytes against {whole}");
}
