//! The Internet layer under attack, observed from outside a whole stack: the packets that it answers, the rate of the
//! answers, and the state that it keeps.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use every_arch::every_arch;
use observe::{Counter, DropReason};

use stack::Architecture;
use stack::call::Call;
use stack::deferred::DeferredEffects;
use sync::Real;
use testbed::frames::{self, Datagram, Ends, PEER, Payload, STACK, STACK_MAC, Segment, tcp_of};
use testbed::node::{Node, NodeConfig, send};
use wire::ethernet::{self, MacAddr};
use wire::tcp::TcpFlags;
use wire::{icmpv4, ipv4};

const L3: usize = ethernet::HEADER_LEN;

fn node(arch: Architecture) -> Node<Real> {
    Node::with_known_peer(NodeConfig { ring_frames: 4096, ..NodeConfig::new(arch) })
}

/// P6 with transports behind the Internet layer: no SYN-ACK, no reset, no error.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
//= type=test
//# A TCP implementation MUST silently discard an incoming SYN segment that is addressed to a broadcast or multicast
//# address [(MUST-57)].
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
//= type=test
//# An incoming SYN with an invalid source address MUST be ignored either by TCP or by the IP layer [(MUST-63)] (see
//# Section 3.2.1.3).
#[every_arch]
fn impossible_senders_and_misdirected_segments_are_met_with_silence(arch: Architecture) {
    let mut node = node(arch);
    let _listener = node.listen(80, 8);
    let (unicast, broadcast) = (STACK_MAC, MacAddr::BROADCAST);
    let v4 = Ipv4Addr::new;
    let cases = [
        ("LAND", STACK, STACK, unicast),
        ("loop-back", v4(127, 0, 0, 1), STACK, unicast),
        ("network zero", v4(0, 1, 2, 3), STACK, unicast),
        ("unspecified", v4(0, 0, 0, 0), STACK, unicast),
        ("a group", v4(224, 0, 0, 1), STACK, unicast),
        ("class E", v4(240, 0, 0, 1), STACK, unicast),
        ("the limited broadcast", v4(255, 255, 255, 255), STACK, unicast),
        ("the subnet's broadcast", v4(10, 0, 0, 255), STACK, unicast),
        ("to loop-back", PEER, v4(127, 0, 0, 1), unicast),
        ("to another", PEER, v4(10, 0, 0, 77), unicast),
        ("to another's link address", PEER, STACK, MacAddr([2, 0, 0, 0, 0, 9])),
        ("in a broadcast frame", PEER, STACK, broadcast),
        ("in a group frame", PEER, STACK, MacAddr([1, 0, 0x5e, 0, 0, 1])),
        ("to the broadcast", PEER, v4(10, 0, 0, 255), broadcast),
    ];
    for (port, (name, src, dst, link)) in (2000u16..).zip(cases) {
        let ends = Ends { dst_mac: link, ..Ends::PEER_TO_STACK.from(src).to(dst) };
        let open = Payload::from(Segment::syn(port, 80));
        let closed = Segment { flags: TcpFlags::ACK, ..Segment::syn(port, 81) }.into();
        for payload in [open, closed, Datagram::new(port, 99, b"nobody there").into()] {
            let answers = node.exchange(&ends.bytes(payload));
            assert!(answers.is_empty(), "{name}: {} answers to {payload:?}", answers.len());
        }
    }
    assert_eq!(node.exchange(&Segment::syn(3000, 80).frame()).len(), 1, "the control");
}

/// T8: neither ICMP errors nor a worker's resets beyond a thousand a second, no more than a quarter of either to one,
/// none longer than the packet that caused it.
#[test]
fn errors_and_resets_are_limited_and_never_longer_than_their_cause() {
    let gateways = vec![PEER.into()];
    let mut node = Node::<Real>::with_known_peer(NodeConfig {
        ring_frames: 4096,
        gateways,
        ..NodeConfig::new(Architecture::named("up"))
    });
    let from = |host: u8| Ends::PEER_TO_STACK.from(Ipv4Addr::new(192, 168, 7, host));
    let noisy: Vec<_> = (0..8).map(|host| Datagram::new(2000, 99, &[7; 64]).frame_over(from(host))).collect();
    let stray = Segment { flags: TcpFlags::ACK, ..Segment::syn(2000, 81) };
    let strays: Vec<_> = (0..8).map(|host| stray.frame_over(from(host))).collect();
    let (mut resets, mut errors, mut to_one) = (0, 0, [0; 2]);
    for _ in 0..200 {
        for n in 0..100 {
            node.put(&strays[n % strays.len()]);
            node.put(&noisy[n % noisy.len()]);
        }
        for answer in node.settle() {
            let cause = if tcp_of(&answer).is_some() { &strays[0] } else { &noisy[0] };
            assert!(answer.len() <= cause.len(), "{} bytes for {}", answer.len(), cause.len());
            if tcp_of(&answer).is_some() {
                resets += 1
            } else {
                errors += 1
            }
            let kind = usize::from(tcp_of(&answer).is_some());
            to_one[kind] += u32::from(answer[L3 + 16..L3 + 20] == [192, 168, 7, 3]);
        }
        node.clock.advance(Duration::from_millis(5));
    }
    // Two workers, each with limits of its own.
    assert!((1600..=2000).contains(&resets), "{resets} resets in a second");
    assert!((800..=1000).contains(&errors), "{errors} errors in a second");
    assert!(to_one.iter().all(|count| (50..=250).contains(count)), "{to_one:?} of them to one");
    let limited = node.stack.stats().counters.dropped(DropReason::RateLimited);
    let counted = limited + node.driver.counters().dropped(DropReason::RateLimited);
    assert_eq!(counted, 40_000 - resets - errors, "every one that was withheld is counted");
}

fn connected(node: &mut Node<Real>, port: u16) -> (std::sync::Arc<stack::socket::TcpSocket<Real>>, u32) {
    let listener = node.listen(80, 8);
    let answers = node.exchange(&Segment::syn(port, 80).frame());
    let theirs = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
    node.exchange(&data(port, 0, theirs, b"").frame());
    let socket = listener.accept().expect("a child waits");
    node.stack.unlisten(&listener);
    (socket, theirs)
}

fn data(port: u16, at: u32, ack: u32, data: &[u8]) -> Segment<'_> {
    let seq = frames::ISS.wrapping_add(1).wrapping_add(at);
    Segment { data, ..Segment::ack((port, 80), seq, ack) }.and(TcpFlags::PSH)
}

/// T7: an error about a segment that was never sent is ignored; one about a real segment reduces the path MTU, but not
/// below the minimum; a port unreachable does not end an established connection.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
//= type=test
//# TCP implementations MUST act on an ICMP error message passed up from the IP layer, directing it to the connection
//# that created the error (MUST-54).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
//= type=test
//# Since these Unreachable messages indicate soft error conditions, a TCP implementation MUST NOT abort the connection
//# (MUST-56),
#[every_arch]
fn icmp_errors_are_believed_only_of_what_is_in_flight(arch: Architecture) {
    let mut node = node(arch);
    let (socket, next) = connected(&mut node, 2000);
    node.call(&socket, send(&[5; 400]));
    let sent = node.settle();
    let segment = sent.iter().find(|frame| tcp_of(frame).is_some()).expect("the data").clone();
    let too_big = |mtu| icmpv4::Message::Unreachable { code: icmpv4::unreachable::FRAGMENTATION_NEEDED, mtu };
    let mut old = segment.clone();
    let before = next.wrapping_sub(1_000_000).to_be_bytes();
    old[L3 + 24..L3 + 28].copy_from_slice(&before);
    for lie in [too_big(600), icmpv4::Message::Unreachable { code: icmpv4::unreachable::PORT, mtu: 0 }] {
        assert!(node.exchange(&frames::icmp_error(lie, &old)).is_empty());
    }
    let known = |node: &Node<Real>| {
        let now = node.clock.now();
        node.stack.shared().routes().reported_mtu(PEER.into(), now)
    };
    assert_eq!(known(&node), None, "the path is as wide as before");
    node.exchange(&frames::icmp_error(
        icmpv4::Message::Unreachable { code: icmpv4::unreachable::PORT, mtu: 0 },
        &segment,
    ));
    node.exchange(&frames::icmp_error(too_big(68), &segment));
    assert_eq!(known(&node), Some(552), "68 is not taken");
    node.exchange(&data(2000, 0, next.wrapping_add(400), b"still here").frame());
    let got = node.call(&socket, Call::Receive(tcp::Receive { max: 100 }));
    assert_eq!(testbed::node::received(got).map(|(data, _)| data), Some(b"still here".to_vec()));
}

/// T7: on a path with a reported MTU below the minimum, segments have the minimum size, and routers may fragment them;
/// on any other path segments have DF set. After ten minutes a larger MTU is tried again.
#[every_arch]
fn segments_may_be_fragmented_on_a_path_below_the_floor_and_on_no_other(arch: Architecture) {
    for (reported, least, whole) in [
        (0, 512, false),
        (1, 512, false),
        (67, 512, false),
        (68, 512, false),
        (300, 512, false),
        (551, 512, false),
        (552, 512, true),
        (560, 520, true),
    ] {
        let mut node = node(arch);
        let (socket, next) = connected(&mut node, 2000);
        node.call(&socket, send(&[5; 536]));
        let segment = node.settle().into_iter().find(|frame| tcp_of(frame).is_some()).expect("the data");
        let too_big = icmpv4::Message::Unreachable { code: icmpv4::unreachable::FRAGMENTATION_NEEDED, mtu: reported };
        let again = node.exchange(&frames::icmp_error(too_big, &segment));
        assert_eq!(tcp_of(&again[0]).map(|(_, data)| data.len()), Some(least), "{reported}");
        node.exchange(&data(2000, 0, next.wrapping_add(536), b"").frame());
        node.call(&socket, send(&[5; 1000]));
        let later = node.settle();
        assert_eq!(tcp_of(&later[0]).map(|(_, data)| data.len()), Some(least), "{reported}");
        for frame in &later {
            let header = ipv4::parse(&frame[L3..]).expect("IPv4");
            assert_eq!(header.dont_fragment, whole, "{reported}");
        }
        node.exchange(&data(2000, 0, next.wrapping_add(1536), b"").frame());
        node.pass(Duration::from_secs(700), Duration::from_secs(10));
        node.exchange(&data(2000, 0, next.wrapping_add(1536), b"!").frame());
        node.pass(Duration::from_secs(1), Duration::from_millis(100));
        node.call(&socket, send(&[5; 536]));
        let later = node.settle();
        let frame = later.iter().find(|frame| tcp_of(frame).is_some()).expect("the data");
        assert_eq!(tcp_of(frame).map(|(_, data)| data.len()), Some(536), "{reported}: as before");
        assert!(ipv4::parse(&frame[L3..]).expect("IPv4").dont_fragment, "{reported}: as before");
    }
}

/// T7: a UDP socket gets the same estimate as TCP: the router's value, not below the minimum, or the plateau below the
/// length of its datagram. It is not stored: an attacker that guesses two ports could have sent the report.
#[every_arch]
fn a_udp_socket_is_told_no_less_than_the_floor(arch: Architecture) {
    for (reported, told) in
        [(0, 1006), (1, 552), (67, 552), (68, 552), (300, 552), (551, 552), (552, 552), (576, 576), (1400, 1400)]
    {
        let mut node = node(arch);
        let socket = node.stack.bind_udp((STACK, 4000).into()).expect("a free port");
        node.stack.connect_udp(&socket, (PEER, 99).into()).expect("a route");
        let send = |node: &Node<Real>| {
            node.stack.send_udp(&socket, pktbuf::PktBuf::from_slice(&[7; 1450]).expect("a packet buffer"), None)
        };
        send(&node).expect("sent");
        let sent = node.settle();
        let too_big = icmpv4::Message::Unreachable { code: icmpv4::unreachable::FRAGMENTATION_NEEDED, mtu: reported };
        assert!(node.exchange(&frames::icmp_error(too_big, &sent[0])).is_empty());
        assert_eq!(send(&node), Err(udp::SendError::PathTooNarrow { mtu: told }), "{reported}");
        let known = node.stack.shared().routes().reported_mtu(PEER.into(), node.clock.now());
        assert_eq!(known, None, "{reported}");
    }
}

/// T9: a packet that may not be fragmented has DF set and identification zero.
#[test]
fn segments_are_atomic_and_have_no_identification() {
    let mut node = node(Architecture::named("connp-l:4"));
    let (socket, _) = connected(&mut node, 2000);
    node.call(&socket, send(&[5; 4000]));
    let sent = node.settle();
    assert!(sent.len() >= 3);
    for frame in sent {
        let header = ipv4::parse(&frame[L3..]).expect("IPv4");
        assert_eq!((header.ident, header.dont_fragment, header.is_fragment()), (0, true, false));
    }
}

/// A busy connection keeps its neighbour confirmed, so no probe is sent; an idle one that sends again causes a probe.
#[every_arch]
fn progress_spares_the_question_whether_the_neighbour_is_there(arch: Architecture) {
    let mut node = node(arch);
    let (socket, next) = connected(&mut node, 2000);
    let mut asked = 0;
    // A request and an answer each second for three minutes: at least four reachable times.
    for second in 0..180u32 {
        node.put(&data(2000, second, next.wrapping_add(second), b"?").frame());
        let mut sent = node.settle();
        node.call(&socket, Call::Receive(tcp::Receive { max: 100 }));
        node.call(&socket, send(b"!"));
        sent.extend(node.settle());
        node.clock.advance(Duration::from_secs(1));
        sent.extend(node.settle());
        asked += sent.iter().filter(|frame| frames::is_arp(frame)).count();
    }
    // The peer's own request made the entry, unconfirmed: that is checked once.
    assert!(asked <= 1, "asked {asked} times");
    let one_sided = (0..60).filter(|_| {
        node.clock.advance(Duration::from_secs(1));
        node.settle().iter().any(|frame| frames::is_arp(frame))
    });
    assert!(one_sided.count() > 0, "text that is never acknowledged proves nothing");
}

/// Acknowledged data also confirms reachability, even if the peer sends no data; and one lossy path does not cause
/// probes of a neighbour through which other peers are reached.
#[every_arch]
fn acknowledgements_spare_the_question_too(arch: Architecture) {
    let mut node = node(arch);
    let (socket, next) = connected(&mut node, 2000);
    let mut asked = 0;
    for second in 0..180u32 {
        node.call(&socket, send(b"!"));
        let mut sent = node.settle();
        node.put(&data(2000, 0, next.wrapping_add(second + 1), b"").frame());
        sent.extend(node.settle());
        node.clock.advance(Duration::from_secs(1));
        sent.extend(node.settle());
        let questions: Vec<_> = sent.iter().filter_map(|frame| frames::arp_reply(frame)).collect();
        asked += questions.len();
        questions.iter().for_each(|reply| node.put(reply));
        if second % 20 == 10 {
            node.stack.shared().egress().suspect_path(PEER.into(), &mut DeferredEffects::default());
        }
    }
    // The peer's own request made the entry, unconfirmed: that is checked once, and a suspicion long after the last
    // proof.
    assert!(asked <= 4, "asked {asked} times");
}

/// No host answers for the address: the handshake fails in seconds, not after all its retransmissions.
#[test]
fn a_neighbour_that_does_not_exist_is_reported() {
    let mut node = node(Architecture::named("connp-l:4"));
    let nobody = std::net::SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 99)), 80);
    let socket = node.stack.connect(None, nobody, &Default::default()).expect("a port is free");
    let mut questions = 0;
    for _ in 0..50 {
        questions += node.settle().iter().filter(|frame| frames::is_arp(frame)).count();
        node.clock.advance(Duration::from_millis(100));
    }
    assert!(questions >= 3, "{questions}");
    let counters = node.driver.counters();
    assert!(counters.get(Counter::NeighboursFailed) >= 1 && counters.dropped(DropReason::NeighbourUnresolved) >= 1);
    drop(socket);
}

/// Counted for every frame of a kind, whatever becomes of it.
const ON_THE_WAY: [Counter; 6] = [
    Counter::FramesIn,
    Counter::RxBatches,
    Counter::PacketsIn,
    Counter::SegmentsIn,
    Counter::ChecksumsVerified,
    Counter::ChecksumsOffloaded,
];

/// What was counted beside [`ON_THE_WAY`]: that something was done with a frame, or the reason why it was dropped.
fn fates(node: &Node<Real>) -> u64 {
    let counters = node.stack.stats().counters + node.driver.counters().snapshot();
    let done = counters.counters().filter(|(counter, _)| !ON_THE_WAY.contains(counter)).map(|(_, count)| count);
    done.sum::<u64>() + counters.dropped_total()
}

/// Frames of every kind, whole and with damage anywhere: each is counted for what was done with it, or as a drop with its
/// reason.
#[every_arch]
fn no_frame_disappears_without_a_count(arch: Architecture) {
    let mut node = node(arch);
    node.exchange(&frames::neighbour_solicitation());
    let _listener = node.listen(80, 8);
    let _socket = node.stack.bind_udp("[::]:53".parse().expect("an address")).expect("a free port");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = move |n: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 33) as usize % n
    };
    for ends in Ends::BOTH_FAMILIES {
        let answers = node.exchange(&Segment::syn(2000, 80).frame_over(ends));
        let next = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
        node.exchange(&Segment::data((2000, 80), 0, next, &[]).frame_over(ends));
        let v6 = ends.src.is_ipv6();
        let whole = [
            Segment::data((2000, 80), 0, next, b"in order").frame_over(ends),
            Segment::data((2000, 80), 1 << 20, next, b"beyond the window").frame_over(ends),
            Segment::data((2001, 80), 0, 1, b"no connection").frame_over(ends),
            Segment::syn(2002, 80).frame_over(ends),
            Datagram::new(2000, 53, b"a query").frame_over(ends),
            Datagram::new(2000, 54, b"no socket").frame_over(ends),
            ends.bytes(frames::Icmp::echo_request(v6, b"ping")),
            ends.bytes(Payload::Other(200, b"no protocol of ours")),
            frames::arp_request(),
            frames::neighbour_solicitation(),
        ];
        for round in 0..600 {
            let mut frame = whole[below(whole.len())].clone();
            match round % 4 {
                0 => {}
                1 => frame.truncate(below(frame.len())),
                _ => (0..=below(3)).for_each(|_| {
                    let at = below(frame.len());
                    frame[at] ^= 1 << below(8);
                }),
            }
            if frame.len() < 14 {
                continue;
            }
            // Errors and resets have limits in time.
            node.clock.advance(Duration::from_millis(10));
            node.settle();
            let before = fates(&node);
            node.exchange(&frame);
            assert!(fates(&node) > before, "{arch}, round {round}: nothing was counted for {frame:02x?}");
        }
    }
}
