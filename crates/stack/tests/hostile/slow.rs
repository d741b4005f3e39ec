//! Deliberately slow clients: they read a byte at a time, send only the beginning of a request (slowloris), or fill a
//! buffer that the application does not read. Their memory is bounded for each and, if a limit is set, for all
//! together; honest clients are not affected; user timeouts, keep-alives and the rules for orphans end them.

use std::time::Duration;

use every_arch::every_arch;
use observe::{Counter, DropReason};
use stack::Architecture;
use stack::call::{Call, Reply};
use sync::Real;
use tcp::config::{BufferSizes, KeepAlive, MemoryLimits};
use testbed::frames::{self, Segment};
use testbed::node::{Node, send};
use wire::tcp::TcpFlags;

use super::held::{BUFFER, Before, Held, open, small};
use super::peers::{PORT, answer, routed, turn};

/// The memory that one connection may pin beside its data: PCB, places in tables, and the overhead of packet buffers
/// over their data. Where few connections are spread over many groups, each has its own tables.
fn overhead(arch: Architecture) -> usize {
    if arch.properties().groups { 16 << 10 } else { 6 << 10 }
}

/// Lets `seconds` pass in quarters. `heard` returns a peer's answer to a segment.
fn pass(node: &mut Node<Real>, held: &mut [Held], seconds: u32, heard: impl Fn(&mut Held, u32, usize) -> Vec<u8>) {
    for _ in 0..seconds * 4 {
        node.clock.advance(Duration::from_millis(250));
        for (number, frame) in node.settle().into_iter().enumerate() {
            frames::arp_reply(&frame).iter().for_each(|reply| node.put(reply));
            let Some((to, header, data)) = answer(&frame) else { continue };
            let Some(peer) = held.iter_mut().find(|peer| peer.from == to) else { continue };
            if header.flags.contains(TcpFlags::RST) {
                continue;
            }
            let reply = heard(peer, header.seq.0, data.len());
            if !reply.is_empty() {
                node.put(&reply);
            }
            if number % 64 == 63 {
                node.settle();
            }
        }
    }
}

/// Accepts one byte of those offered, and keeps the window that small.
fn sip(peer: &mut Held, seq: u32, len: usize) -> Vec<u8> {
    if len > 0 && seq == peer.next {
        peer.next = peer.next.wrapping_add(1);
    }
    Segment::data((peer.from.1, PORT), peer.sent, peer.next, &[]).window(1).frame_from(peer.from.0)
}

/// Slow readers pin only the contents of their send buffers. An occasional byte is progress, so no time-out ends them;
/// the application does, and then all memory is released at once.
fn slow_readers(arch: Architecture, count: usize) {
    let _turn = turn();
    let mut node = small(arch);
    let before = Before::measure(&mut node);
    let mut held = open(&mut node, count, 1);
    for Held { socket, .. } in &held {
        node.call(socket, send(&[9; 4 * BUFFER as usize]));
    }
    pass(&mut node, &mut held, 10, sip);
    before.honest_notice_nothing(&mut node);
    pass(&mut node, &mut held, 10, sip);
    assert!(held.iter().all(|peer| matches!(node.call(&peer.socket, Call::Status(tcp::Status)), Reply::Status(_))));
    let each = before.pinned(&node) / count;
    assert!(each <= BUFFER as usize + overhead(arch), "{each} bytes are pinned by each");
    for Held { socket, .. } in &held {
        node.call(socket, Call::Abort(tcp::Abort));
    }
    node.settle();
    before.nothing_is_left(&node, held);
}

#[test]
fn a_thousand_slow_readers() {
    slow_readers(Architecture::named("up"), 1000);
}

#[every_arch]
fn slow_readers_pin_their_buffers(arch: Architecture) {
    slow_readers(arch, 40);
}

/// A user timeout also ends connections to peers with closed windows that answer every probe.
#[every_arch]
fn a_user_timeout_ends_peers_whose_windows_stay_closed(arch: Architecture) {
    let _turn = turn();
    let mut node = small(arch);
    let before = Before::measure(&mut node);
    let mut held = open(&mut node, 40, 0);
    for Held { socket, .. } in &held {
        let limit = tcp::event::SocketOption::UserTimeout(Some(Duration::from_secs(10)));
        node.call(socket, Call::SetOption(tcp::SetOption(limit)));
        node.call(socket, send(&[9; BUFFER as usize]));
    }
    let closed =
        |peer: &mut Held, _, _| Segment::data((peer.from.1, PORT), 0, peer.next, &[]).window(0).frame_from(peer.from.0);
    pass(&mut node, &mut held, 9, closed);
    assert_eq!(node.stack.stats().connections, 40, "not before");
    pass(&mut node, &mut held, 3, closed);
    for Held { socket, .. } in &held {
        let failed = node.call(socket, Call::Receive(tcp::Receive { max: 1 }));
        assert!(matches!(failed, Reply::Received(Err(tcp::Error::TimedOut)) | Reply::Gone));
        node.call(socket, Call::Close(tcp::Close));
    }
    node.settle();
    before.nothing_is_left(&node, held);
}

/// The beginning of a request, and then silence.
fn mute(node: &mut Node<Real>, held: &mut [Held]) {
    const BEGINNING: &[u8] = b"GET / HTTP/1.1\r\nX-a: ";
    for peer in held {
        node.put(&Segment::data((peer.from.1, PORT), 0, peer.next, BEGINNING).frame_from(peer.from.0));
        peer.sent = BEGINNING.len() as u32;
        node.settle();
    }
}

/// Connections that never send: each holds a PCB and one packet buffer; honest clients are not affected; after the
/// application closes, connections to silent peers end after the retransmissions of an orphan.
fn slowloris(arch: Architecture, count: usize) {
    let _turn = turn();
    let mut node = small(arch);
    let before = Before::measure(&mut node);
    let mut held = open(&mut node, count, 60_000);
    mute(&mut node, &mut held);
    before.honest_notice_nothing(&mut node);
    pass(&mut node, &mut held, 60, |_, _, _| Vec::new());
    assert_eq!(node.stack.stats().connections, count);
    let buffers = pktbuf::live() - before.buffers;
    assert!(buffers <= count + 64, "{buffers} buffers for {count} beginnings");
    let each = (node.stack.stats().bytes - before.tables) / count;
    assert!(each <= overhead(arch), "{each} bytes for each");
    for Held { socket, .. } in &held {
        node.call(socket, Call::Receive(tcp::Receive { max: 100 }));
        node.call(socket, Call::Close(tcp::Close));
    }
    pass(&mut node, &mut held, 150, |_, _, _| Vec::new());
    before.nothing_is_left(&node, held);
}

#[test]
fn three_thousand_that_never_send() {
    slowloris(Architecture::named("up"), 3000);
}

#[every_arch]
fn connections_that_never_send_are_small_and_end(arch: Architecture) {
    slowloris(arch, 40);
}

/// Keep-alive probes end connections to peers that have vanished.
#[every_arch]
fn keep_alives_end_those_who_have_vanished(arch: Architecture) {
    let _turn = turn();
    let mut node = small(arch);
    let mut held = open(&mut node, 40, 60_000);
    mute(&mut node, &mut held);
    let second = Duration::from_secs(1);
    for Held { socket, .. } in &held {
        let timing = KeepAlive { idle: 5 * second, interval: second, probes: 3 };
        let keep_alive = tcp::event::SocketOption::KeepAlive(Some(timing));
        node.call(socket, Call::SetOption(tcp::SetOption(keep_alive)));
        node.call(socket, Call::Receive(tcp::Receive { max: 100 }));
    }
    pass(&mut node, &mut held, 12, |_, _, _| Vec::new());
    for Held { socket, .. } in &held {
        let failed = node.call(socket, Call::Receive(tcp::Receive { max: 1 }));
        assert!(matches!(failed, Reply::Received(Err(tcp::Error::TimedOut)) | Reply::Gone));
    }
}

/// Memory for all of them together: peers that fill unread receive buffers stop at the limit, whatever their windows
/// were.
#[every_arch]
fn full_buffers_that_nobody_reads_stop_at_the_limit_for_all(arch: Architecture) {
    const LIMIT: u64 = 3 << 20;
    const WINDOW: u32 = 256 << 10;
    // The minimum buffer of each connection, the segment that exceeds it, and the overhead of blocks over their data.
    const SLACK: u64 = 60 * 2 * (4096 + 1400);
    let _turn = turn();
    let live = pktbuf::live();
    let mut node = routed(arch, |terms| {
        terms.tcp.receive_buffer = BufferSizes { min: 4096, initial: WINDOW, max: WINDOW };
        terms.tcp.memory = Some(MemoryLimits { low: LIMIT / 2, pressure: LIMIT * 3 / 4, high: LIMIT });
    });
    let mut held = open(&mut node, 60, 60_000);
    let mut most = 0;
    let mut data = [7; 1400];
    for round in 0..100u32 {
        for peer in &mut held {
            data[0] = round as u8;
            // Ignores the window: it keeps sending whatever was advertised.
            node.put(&Segment::data((peer.from.1, PORT), peer.sent, peer.next, &data).frame_from(peer.from.0));
            peer.sent += data.len() as u32;
        }
        node.settle();
        most = most.max(node.stack.shared().control().memory());
        node.clock.advance(Duration::from_millis(2));
    }
    let all = 60 * u64::from(WINDOW);
    assert!(most <= LIMIT + SLACK && most < all / 3, "{most} bytes, {LIMIT} are the limit, {all} the windows");
    assert!(most >= LIMIT / 2, "{most} bytes: the limit was felt");
    assert_eq!(node.stack.stats().connections, 60, "nobody is cut off for it");
    assert!(node.stack.stats().counters.get(Counter::DataBytesIn) > 0);
    for Held { socket, .. } in &held {
        node.call(socket, Call::Abort(tcp::Abort));
    }
    node.settle();
    assert_eq!(node.stack.shared().control().memory(), 0, "all of it is given back");
    drop(held);
    assert_eq!(pktbuf::live(), live);
}

/// Memory that the application shares with the stack counts as well. Beyond the limit send buffers accept only the
/// minimum, and passive opens are refused; open connections stay, and all continues when memory is released.
#[every_arch]
fn memory_shared_with_the_application_stops_at_the_limit_for_all(arch: Architecture) {
    const LIMIT: u64 = 1 << 20;
    const WINDOW: u32 = 256 << 10;
    // The minimum buffer of each, and a call that began below the limit.
    const SLACK: u64 = 40 * 4096 + (128 << 10);
    let _turn = turn();
    let mut node = routed(arch, |terms| {
        terms.tcp.send_buffer = BufferSizes { min: 4096, initial: WINDOW, max: WINDOW };
        terms.tcp.memory = Some(MemoryLimits { low: LIMIT / 2, pressure: LIMIT * 3 / 4, high: LIMIT });
    });
    let held = open(&mut node, 40, 1);
    let file: std::sync::Arc<[u8]> = vec![7; 32 << 10].into();
    let mut most = 0;
    for _ in 0..8 {
        for Held { socket, .. } in &held {
            let chunks = tcp::Chunks::from_iter([pktbuf::Chunk::shared(file.clone())]);
            let sent = node.call(socket, Call::Send(tcp::Send { chunks }));
            assert!(matches!(sent, Reply::Sent(Ok(_))), "it is connected");
            most = most.max(node.stack.shared().control().memory());
        }
        node.settle();
        node.clock.advance(Duration::from_millis(2));
    }
    assert!(most <= LIMIT + SLACK, "{most} bytes, {LIMIT} are the limit");
    assert!(most >= LIMIT, "{most} bytes: the limit was reached");
    assert_eq!(node.stack.stats().connections, 40, "nobody is cut off for it");
    let _listener = node.listen(PORT, 8);
    let mut syn = |port| node.exchange(&Segment::syn(port, PORT).frame_from(frames::PEER)).len();
    assert_eq!(syn(7000), 0, "nobody new is let in");
    assert!(node.stack.stats().counters.dropped(DropReason::MemoryShort) > 0);
    let remote = (frames::PEER, 99).into();
    let ours =
        node.stack.connect(None, remote, &Default::default()).expect("what the host itself opens is not refused");
    for socket in held.iter().map(|held| &held.socket).chain([&ours]) {
        node.call(socket, Call::Abort(tcp::Abort));
    }
    node.settle();
    node.clock.advance(Duration::from_millis(2));
    node.settle();
    assert_eq!(node.stack.shared().control().memory(), 0, "all of it is given back");
    let mut syn = |port| node.exchange(&Segment::syn(port, PORT).frame_from(frames::PEER)).len();
    assert_eq!(syn(7001), 1, "and new clients are welcome");
}
