use super::*;
use crate::testing::*;
use frames::{Packet, Payload};
use proptest::prelude::*;
use wire::{Framing, fddi};

const L3: usize = ethernet::HEADER_LEN;

fn v4_frame() -> PktBuf {
    framed(packet_v4(protocol::UDP, b"0123456789abcdef"))
}

fn v6_frame() -> PktBuf {
    framed(packet_v6(protocol::UDP, b"0123456789abcdef"))
}

/// An IPv6 frame whose payload is `extensions` in front of sixteen bytes of UDP.
fn extended(first: u8, extensions: &[u8]) -> PktBuf {
    framed(packet_v6(first, &[extensions, b"0123456789abcdef"].concat()))
}

fn reason(input: Input) -> DropReason {
    match input {
        Input::Drop(reason) | Input::Refused(Refused { reason, .. }) => reason,
        Input::Elsewhere { .. } => DropReason::NotForUs,
        other => panic!("not dropped: {other:?}"),
    }
}

/// A packet that arrives on one interface for the address of another: accepted, unless it concerns the link only.
#[test]
fn packets_for_the_address_of_another_interface_are_taken_but_for_what_concerns_a_link() {
    let by = InterfaceView::new(1, PEER_MAC, 1500).with_address(ip("10.0.1.1"), 24).unwrap();
    let taken = |packet: PktBuf| match super::packet(packet, &by, &Counters::new()) {
        Input::Elsewhere { packet, .. } => for_another(packet, &interface(), &Counters::new()),
        other => panic!("{other:?}"),
    };
    for make in [packet_v4, packet_v6] {
        assert!(matches!(taken(make(protocol::TCP, &[0; 20])), Input::Tcp(_)));
        assert!(matches!(taken(make(protocol::UDP, &[0; 8])), Input::Udp(_)));
    }
    let icmp = |kind: u8| matches!(taken(packet_v4(protocol::ICMP, &[kind; 8])), Input::Icmp(_));
    assert_eq!((0..=255).filter(|kind| icmp(*kind)).collect::<Vec<_>>(), [0, 3, 8, 11, 12]);
    let icmp = |kind: u8| matches!(taken(packet_v6(protocol::ICMPV6, &[kind; 24])), Input::Icmp(_));
    assert_eq!((0..=255).filter(|kind| icmp(*kind)).collect::<Vec<_>>(), [1, 2, 3, 4, 128, 129]);
    assert_eq!(reason(taken(packet_v4(protocol::IGMP, &[0x11; 8]))), DropReason::NotForUs);
}

/// RFC 8200 section 4.7: such a packet is complete, and a host reports no error.
#[test]
fn a_packet_with_no_next_header_is_answered_by_nobody() {
    let taken = received(framed(packet_v6(protocol::IPV6_NO_NEXT, b"ignored")));
    assert!(matches!(taken, Input::Drop(DropReason::IpUnknownProtocol)), "{taken:?}");
}

#[test]
fn the_destination_is_read_from_the_header_alone() {
    assert_eq!(destination(&packet_v4(protocol::UDP, &[0; 8])), Some(IpAddr::V4(OURS)));
    assert_eq!(destination(&packet_v6(protocol::UDP, &[0; 8])), Some(IpAddr::V6(OURS6)));
    for nothing in [&[][..], &[0x45], &[0x60; 39], &[0x50; 60]] {
        assert_eq!(destination(nothing), None);
    }
}

#[test]
fn what_no_interface_has_and_what_was_sent_to_all_is_no_business_of_another() {
    let by = InterfaceView::new(1, PEER_MAC, 1500);
    let mut broadcast = v4_frame();
    broadcast[..6].fill(0xff);
    assert!(matches!(super::ethernet(broadcast, &by, &Counters::new()), Input::Drop(_)));
    let nobodys = for_another(packet_v4(protocol::UDP, &[0; 8]), &by, &Counters::new());
    assert_eq!(reason(nobodys), DropReason::NotForUs);
}

type Mutation = fn(&mut PktBuf);

#[test]
fn frames_that_are_not_for_us_end_in_a_reason() {
    let mutants: [(&str, Mutation, DropReason); 8] = [
        ("no header", |f| f.truncate(13), DropReason::FrameTooShort),
        ("another station", |f| f[5] = 9, DropReason::NotForUs),
        ("group source", |f| f[6] = 3, DropReason::FrameBadSource),
        ("zero source", |f| f[6..12].fill(0), DropReason::FrameBadSource),
        ("802.3 length", |f| (f[12], f[13]) = (0, 46), DropReason::LlcUnsupported),
        ("unknown type", |f| (f[12], f[13]) = (0x88, 0xcc), DropReason::UnknownEtherType),
        ("a VLAN", |f| f[12..16].copy_from_slice(&[0x81, 0, 0, 5]), DropReason::UnknownVlan),
        ("short ARP", |f| (f[12], f[13]) = (8, 6), DropReason::ArpBadPacket),
    ];
    for (name, mutate, expected) in mutants {
        let mut frame = v4_frame();
        mutate(&mut frame);
        assert_eq!(reason(received(frame)), expected, "{name}");
    }
}

#[test]
fn malformed_ipv4_ends_in_a_reason() {
    let mutants: [(&str, Mutation, DropReason); 26] = [
        ("nothing", |f| f.truncate(L3), DropReason::IpTruncated),
        ("half a header", |f| f.truncate(L3 + 10), DropReason::IpTruncated),
        ("one byte less than a header", |f| f.truncate(L3 + 19), DropReason::IpTruncated),
        ("a header that announces more", |f| f.truncate(L3 + 20), DropReason::IpBadLength),
        ("version 5", |f| f[L3] = 0x55, DropReason::IpBadVersion),
        ("version 6 in an IPv4 frame", |f| f[L3] = 0x65, DropReason::IpBadVersion),
        ("header of four words", |f| f[L3] = 0x44, DropReason::Ipv4BadHeader),
        ("header beyond the packet", |f| f[L3] = 0x4f, DropReason::Ipv4BadHeader),
        ("total length beyond the frame", |f| f[L3 + 3] += 1, DropReason::IpBadLength),
        ("total length below the header", |f| f[L3 + 3] = 19, DropReason::Ipv4BadHeader),
        ("checksum", |f| f[L3 + 10] ^= 1, DropReason::IpBadChecksum),
        ("LAND", |f| f[L3 + 12..L3 + 16].copy_from_slice(&OURS.octets()), DropReason::IpMartianSource),
        ("loop-back source", |f| f[L3 + 12] = 127, DropReason::IpMartianSource),
        ("source in network zero", |f| f[L3 + 12] = 0, DropReason::IpMartianSource),
        ("unspecified source", |f| f[L3 + 12..L3 + 16].fill(0), DropReason::IpMartianSource),
        ("multicast source", |f| f[L3 + 12] = 224, DropReason::IpMartianSource),
        ("class E source", |f| f[L3 + 12] = 240, DropReason::IpMartianSource),
        ("broadcast source", |f| f[L3 + 12..L3 + 16].fill(255), DropReason::IpMartianSource),
        ("directed broadcast source", |f| f[L3 + 15] = 255, DropReason::IpMartianSource),
        ("loop-back destination", |f| f[L3 + 16] = 127, DropReason::IpMartianDestination),
        ("unspecified destination", |f| f[L3 + 16..L3 + 20].fill(0), DropReason::IpMartianDestination),
        ("another host", |f| f[L3 + 19] = 77, DropReason::NotForUs),
        ("a group not joined", |f| f[L3 + 16..L3 + 20].copy_from_slice(&[224, 0, 0, 9]), DropReason::NotForUs),
        ("unicast in a broadcast frame", |f| f[..6].fill(0xff), DropReason::IpBroadcastTransport),
        (
            "TCP to the broadcast",
            |f| {
                f[L3 + 9] = protocol::TCP;
                f[L3 + 19] = 255;
            },
            DropReason::IpBroadcastTransport,
        ),
        ("unknown protocol", |f| f[L3 + 9] = 143, DropReason::IpUnknownProtocol),
    ];
    for (name, mutate, expected) in mutants {
        let mut frame = v4_frame();
        mutate(&mut frame);
        if expected != DropReason::IpBadChecksum && frame.len() >= L3 + 20 {
            repair(&mut frame, L3);
        }
        assert_eq!(reason(received(frame)), expected, "{name}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2
//= type=test
//# When received options are passed up to TCP from the IP layer, a TCP implementation MUST ignore options that it does
//# not understand (MUST-50).
#[test]
fn malformed_ipv4_options_end_in_a_reason() {
    let options: [(&str, [u8; 8], Option<DropReason>); 8] = [
        ("none but padding", [1, 1, 1, 1, 1, 1, 1, 0], None),
        ("end, then garbage", [0, 9, 9, 9, 9, 9, 9, 9], None),
        ("router alert", [148, 4, 0, 0, 0, 0, 0, 0], None),
        ("loose source route", [131, 7, 4, 10, 0, 0, 9, 0], Some(DropReason::IpSourceRoute)),
        ("strict source route", [1, 137, 7, 4, 10, 0, 0, 9], Some(DropReason::IpSourceRoute)),
        ("length zero", [148, 0, 0, 0, 0, 0, 0, 0], Some(DropReason::IpBadOption)),
        ("length one", [148, 1, 0, 0, 0, 0, 0, 0], Some(DropReason::IpBadOption)),
        ("length beyond the header", [148, 9, 0, 0, 0, 0, 0, 0], Some(DropReason::IpBadOption)),
    ];
    for (name, bytes, expected) in options {
        let packet = ENDS.packet(Payload::Other(protocol::UDP, b"0123456789abcdef"));
        let packet = buffer(&Packet { options: &bytes, ..packet }.bytes());
        match (received(framed(packet)), expected) {
            (Input::Udp(datagram), None) => assert_eq!(&*datagram.buf, b"0123456789abcdef", "{name}"),
            (input, Some(expected)) => assert_eq!(reason(input), expected, "{name}"),
            (input, None) => panic!("{name}: {input:?}"),
        }
    }
}

#[test]
fn malformed_ipv6_ends_in_a_reason() {
    let mutants: [(&str, Mutation, DropReason); 17] = [
        ("nothing", |f| f.truncate(L3), DropReason::IpTruncated),
        ("half a header", |f| f.truncate(L3 + 20), DropReason::IpTruncated),
        ("one byte less than a header", |f| f.truncate(L3 + 39), DropReason::IpTruncated),
        ("a header that announces more", |f| f.truncate(L3 + 40), DropReason::IpBadLength),
        ("version 4 in an IPv6 frame", |f| f[L3] = 0x40, DropReason::IpBadVersion),
        ("payload beyond the frame", |f| f[L3 + 5] += 1, DropReason::IpBadLength),
        ("LAND", |f| f[L3 + 8..L3 + 24].copy_from_slice(&OURS6.octets()), DropReason::IpMartianSource),
        ("multicast source", |f| f[L3 + 8] = 0xff, DropReason::IpMartianSource),
        ("unspecified source", |f| f[L3 + 8..L3 + 24].fill(0), DropReason::IpMartianSource),
        (
            "loop-back source",
            |f| f[L3 + 8..L3 + 24].copy_from_slice(&Ipv6Addr::LOCALHOST.octets()),
            DropReason::IpMartianSource,
        ),
        (
            "mapped source",
            |f| f[L3 + 8..L3 + 24].copy_from_slice(&PEER.to_ipv6_mapped().octets()),
            DropReason::IpMartianSource,
        ),
        ("another host", |f| f[L3 + 39] = 77, DropReason::NotForUs),
        ("a group not joined", |f| f[L3 + 24..L3 + 26].copy_from_slice(&[0xff, 5]), DropReason::NotForUs),
        ("unspecified destination", |f| f[L3 + 24..L3 + 40].fill(0), DropReason::IpMartianDestination),
        ("unicast in a group frame", |f| f[..6].fill(0x33), DropReason::IpBroadcastTransport),
        (
            "TCP to all nodes",
            |f| {
                f[L3 + 6] = protocol::TCP;
                f[L3 + 24..L3 + 40].copy_from_slice(&crate::interface::ALL_NODES.octets());
            },
            DropReason::IpBroadcastTransport,
        ),
        ("no next header", |f| f[L3 + 6] = protocol::IPV6_NO_NEXT, DropReason::IpUnknownProtocol),
    ];
    for (name, mutate, expected) in mutants {
        let mut frame = v6_frame();
        mutate(&mut frame);
        assert_eq!(reason(received(frame)), expected, "{name}");
    }
}

#[test]
fn ipv6_extension_headers_are_walked_bounded_and_answered() {
    use protocol::{HOP_BY_HOP, IPV6_DESTINATION, IPV6_ROUTING, UDP};
    let option = |action: u8| [UDP, 0, action << 6 | 0x1e, 1, 0, 0, 0, 0];
    let refused: [(&str, u8, Vec<u8>, ErrorKind); 6] = [
        ("RH0 with segments left", IPV6_ROUTING, vec![UDP, 0, 0, 1, 0, 0, 0, 0], ErrorKind::BadHeader { pointer: 42 }),
        ("option, action 2", IPV6_DESTINATION, option(2).into(), ErrorKind::UnknownOption { pointer: 42 }),
        ("option, action 3", IPV6_DESTINATION, option(3).into(), ErrorKind::UnknownOption { pointer: 42 }),
        (
            "hop-by-hop not first",
            IPV6_DESTINATION,
            [[HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0], [UDP, 0, 1, 4, 0, 0, 0, 0]].concat(),
            ErrorKind::UnknownNextHeader { pointer: 40 },
        ),
        ("unknown header", 143, vec![0; 8], ErrorKind::UnknownNextHeader { pointer: 6 }),
        (
            "first fragment without its transport header",
            protocol::IPV6_FRAGMENT,
            vec![IPV6_DESTINATION, 0, 0, 1, 0, 0, 0, 9],
            ErrorKind::IncompleteHeaderChain,
        ),
    ];
    for (name, first, bytes, expected) in refused {
        match received(extended(first, &bytes)) {
            Input::Refused(refused) => assert_eq!(refused.error, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    let dropped: [(&str, u8, Vec<u8>, DropReason); 4] = [
        ("option, action 1", IPV6_DESTINATION, option(1).into(), DropReason::Ipv6UnknownOption),
        ("option beyond its header", IPV6_DESTINATION, vec![UDP, 0, 1, 9, 0, 0, 0, 0], DropReason::Ipv6BadExtension),
        ("header beyond the packet", IPV6_DESTINATION, vec![UDP, 9, 1, 4, 0, 0, 0, 0], DropReason::Ipv6BadExtension),
        (
            "nine headers",
            IPV6_DESTINATION,
            [IPV6_DESTINATION, 0, 1, 4, 0, 0, 0, 0].repeat(9),
            DropReason::Ipv6ExtensionChainTooLong,
        ),
    ];
    for (name, first, bytes, expected) in dropped {
        assert_eq!(reason(received(extended(first, &bytes))), expected, "{name}");
    }
    let taken: [(&str, u8, Vec<u8>); 4] = [
        ("option, action 0", IPV6_DESTINATION, option(0).into()),
        ("hop-by-hop first", HOP_BY_HOP, vec![UDP, 0, 1, 4, 0, 0, 0, 0]),
        ("routing without segments left", IPV6_ROUTING, vec![UDP, 0, 0, 0, 0, 0, 0, 0]),
        ("atomic fragment", protocol::IPV6_FRAGMENT, vec![UDP, 0, 0, 0, 1, 2, 3, 4]),
    ];
    for (name, first, bytes) in taken {
        match received(extended(first, &bytes)) {
            Input::Udp(datagram) => assert_eq!(&*datagram.buf, b"0123456789abcdef", "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn an_option_unknown_to_a_group_is_dropped_or_answered_by_its_action() {
    for (action, answered) in [(2u8, true), (3, false)] {
        let bytes = [protocol::UDP, 0, action << 6 | 0x1e, 1, 0, 0, 0, 0];
        let mut frame = extended(protocol::IPV6_DESTINATION, &bytes);
        frame[L3 + 24..L3 + 40].copy_from_slice(&crate::interface::ALL_NODES.octets());
        frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
        assert_eq!(matches!(received(frame), Input::Refused(_)), answered, "action {action}");
    }
}

#[test]
fn padding_is_trimmed_and_the_header_stays_within_reach() {
    for frame in [v4_frame(), v6_frame()] {
        let packet = frame[L3..].to_vec();
        let mut padded = frame;
        assert!(padded.extend_from_slice(&[0xee; 30]));
        let Input::Udp(datagram) = received(padded) else { panic!("a UDP datagram") };
        assert_eq!(&*datagram.buf, b"0123456789abcdef");
        assert_eq!(datagram.packet(), packet);
        assert_eq!(datagram.network_header_len(), packet.len() - 16);
        assert_eq!((datagram.ttl, datagram.cast), (64, Cast::Unicast));
    }
}

#[test]
fn a_priority_tag_is_stepped_over() {
    let frame = v4_frame();
    let tagged = [&frame[..12], &[0x81, 0, 0xa0, 0], &frame[12..]].concat();
    assert!(matches!(received(PktBuf::from_slice(&tagged).unwrap()), Input::Udp(_)));
}

/// A packet that a host sends to itself may come from each of its addresses and from loop-back ones (RFC 1122 section
/// 3.2.1.3 g, RFC 4291 section 2.5.3). The same packet from a link is dropped: as one from us, or one that cannot be on
/// a link.
#[test]
fn only_the_host_itself_sends_from_its_own_and_from_loopback_addresses() {
    let (host, link) = (InterfaceView::of_host(1, 65_535), interface());
    let (source, destination) = (DropReason::IpMartianSource, DropReason::IpMartianDestination);
    let own: [IpAddr; 2] = [OURS.into(), OURS6.into()];
    let home: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    for (own, home) in own.into_iter().zip(home) {
        let cases = [(own, own, source), (home, own, source), (home, home, destination), (own, home, destination)];
        for (src, dst, reason) in cases {
            let sent = || {
                let mut packet = PktBuf::from_slice(b"to myself").unwrap();
                crate::output::header(&mut packet, src, dst, protocol::UDP, 0, 64);
                packet
            };
            let counters = Counters::new();
            let owner = if dst == home { &host } else { &link };
            let Input::Udp(datagram) = looped_back(sent(), owner, &counters) else { panic!("{src} to {dst}") };
            assert_eq!((datagram.src, datagram.dst, datagram.cast), (src, dst, Cast::Unicast));
            for input in [super::packet(sent(), &link, &counters), without_link(sent(), &link, &counters)] {
                assert!(matches!(input, Input::Drop(dropped) if dropped == reason), "{src} to {dst}: {input:?}");
            }
        }
    }
}

/// No source makes sense of an unspecified or group address, wherever the packet comes from; nor is one for another
/// host any of ours.
#[test]
fn what_a_host_sends_to_itself_is_checked_all_the_same() {
    let v4 = |src: [u8; 4], dst: [u8; 4]| (IpAddr::from(src), IpAddr::from(dst));
    let us = OURS.octets();
    let cases = [
        (v4([0, 0, 0, 0], us), DropReason::IpMartianSource),
        (v4([224, 0, 0, 1], us), DropReason::IpMartianSource),
        (v4(us, [10, 99, 0, 1]), DropReason::NotForUs),
    ];
    for ((src, dst), reason) in cases {
        let mut packet = PktBuf::from_slice(b"astray").unwrap();
        crate::output::header(&mut packet, src, dst, protocol::UDP, 0, 64);
        let input = looped_back(packet, &interface(), &Counters::new());
        assert!(matches!(input, Input::Drop(dropped) if dropped == reason), "{src} to {dst}: {input:?}");
    }
}

/// The classification of a frame as text, with the metadata of its buffer and the counters.
fn told(input: Input, counters: &Counters) -> String {
    let meta = match &input {
        Input::Tcp(datagram) | Input::Udp(datagram) | Input::Icmp(datagram) => Some(*datagram.buf.meta()),
        _ => None,
    };
    format!("{input:?} {meta:?} {:?}", counters.snapshot())
}

/// A segment of a connection, and the link's padding.
fn segment(framing: Framing, ends: frames::Ends, text: &[u8], padding: usize) -> PktBuf {
    let frame = ends.bytes(frames::Segment::data((40_000, 80), 1, 1, text));
    let (header, packet) = frame.split_first_chunk().expect("a header");
    let header = if framing == Framing::Fddi { fddi::of_ethernet(header).to_vec() } else { header.to_vec() };
    buffer(&[&header[..], packet, &vec![0; padding]].concat())
}

/// Links with a path for plain segments.
const LINKS: [Framing; 2] = [Framing::Ethernet, Framing::Fddi];

fn framing() -> impl Strategy<Value = Framing> {
    prop::sample::select(&LINKS[..])
}

proptest! {
    /// Known headers save steps and do not change the result.
    #[test]
    fn the_fast_and_the_slow_path_come_to_the_same(
        framing in framing(),
        v6 in any::<bool>(),
        text in prop::collection::vec(any::<u8>(), 0..40),
        padding in 0usize..9,
        changes in prop::collection::vec((0usize..70, any::<u8>()), 0..3),
        bits in any::<bool>(),
        repaired in any::<bool>(),
    ) {
        let mut frame = segment(framing, if v6 { ENDS6 } else { ENDS }, &text, padding);
        for (at, value) in changes {
            let at = at % frame.len();
            frame[at] = if bits { frame[at] ^ 1 << (value & 7) } else { value };
        }
        if repaired && !v6 {
            repair(&mut frame, framing.header_len());
        }
        let (plain, long) = (Counters::new(), Counters::new());
        let copy = frame.duplicate().unwrap();
        let (short, all): (Way, Way) = match framing {
            Framing::Fddi => (super::fddi, fddi_frame::checked),
            _ => (ethernet, slow_path),
        };
        let expected = told(all(copy, &interface(), &long), &long);
        prop_assert_eq!(told(short(frame, &interface(), &plain), &plain), expected);
    }
}

/// A way to classify a frame.
type Way = fn(PktBuf, &InterfaceView, &Counters) -> Input;

/// Whether the frame takes the fast path.
fn is_plain(
    framing: Framing,
    frame: PktBuf,
    interface: &InterfaceView,
    last: &mut LastAccepted,
    counters: &Counters,
) -> bool {
    let headers = Headers::of(framing, &frame);
    let view = (interface, last);
    if framing == Framing::Fddi {
        fddi_to(frame, headers, view, counters, |_| true, |_| false)
    } else if headers.is_plain_v6() {
        ethernet_v6_to(frame, headers, view, counters, |_| true, |_| false)
    } else {
        ethernet_to(frame, headers, view, counters, |_| true, |_| false)
    }
}

proptest! {
    /// After a packet from the same host, or from another: a packet is accepted if it would be accepted as the first.
    #[test]
    fn what_was_accepted_last_decides_nothing(
        framing in framing(),
        v6: bool,
        before: bool,
        changes in proptest::collection::vec((0usize..61, any::<u8>()), 0..3),
    ) {
        let ends = if v6 { ENDS6 } else { ENDS };
        let (interface, counters) = (interface(), Counters::new());
        let (mut last, mut frame) = (LastAccepted::default(), segment(framing, ends, b"data", 0));
        if before {
            prop_assert!(is_plain(framing, segment(framing, ends, b"before", 0), &interface, &mut last, &counters));
        }
        for (at, value) in changes {
            let at = at % frame.len();
            frame[at] ^= value;
        }
        if !v6 {
            repair(&mut frame, framing.header_len());
        }
        let (copy, alone) = (frame.duplicate().unwrap(), &mut LastAccepted::default());
        let expected = is_plain(framing, copy, &interface, alone, &counters);
        prop_assert_eq!(is_plain(framing, frame, &interface, &mut last, &counters), expected);
    }
}

/// The address has moved to another interface.
#[test]
fn another_view_accepts_by_its_own_addresses() {
    for (ends, framing) in [ENDS, ENDS6].into_iter().flat_map(|ends| LINKS.map(|framing| (ends, framing))) {
        let (interface, counters, last) = (interface(), Counters::new(), &mut LastAccepted::default());
        let data = || segment(framing, ends, b"data", 0);
        assert!(is_plain(framing, data(), &interface, last, &counters));
        let mut other = interface.clone();
        assert!(other.remove_address(ends.dst));
        assert!(!is_plain(framing, data(), &other, last, &counters));
        assert!(is_plain(framing, data(), &interface, last, &counters));
    }
}

#[test]
fn a_plain_segment_takes_the_fast_path() {
    for (ends, framing) in [ENDS, ENDS6].into_iter().flat_map(|ends| LINKS.map(|framing| (ends, framing))) {
        let frame = segment(framing, ends, b"data", 3);
        let (interface, counters) = (interface(), Counters::new());
        let plain = is_plain(framing, frame, &interface, &mut LastAccepted::default(), &counters);
        assert!(plain && counters.get(Counter::PacketsIn) == 1, "{ends:?}, {framing:?}");
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), known: bool, v6: bool) {
        let mut frame = PktBuf::from_slice(&bytes).unwrap();
        if known && frame.len() >= L3 {
            let model = if v6 { v6_frame() } else { v4_frame() };
            frame[..L3].copy_from_slice(&model[..L3]);
        }
        drop(received(frame));
    }

    #[test]
    fn damaged_packets_never_panic(
        damage in proptest::collection::vec((0usize..120, any::<u8>()), 1..6),
        v6: bool,
        first in prop::sample::select(vec![0u8, 43, 44, 60, 17]),
    ) {
        let mut frame = if v6 { extended(first, &[17, 0, 1, 4, 0, 0, 0, 0]) } else { v4_frame() };
        for (at, value) in damage {
            let at = L3 + at % (frame.len() - L3);
            frame[at] = value;
        }
        if !v6 {
            repair(&mut frame, L3);
        }
        match received(frame) {
            Input::Tcp(d) | Input::Udp(d) | Input::Icmp(d) => prop_assert!(d.packet().len() >= d.buf.len()),
            Input::Fragment(f) => prop_assert!(f.offset % 8 == 0),
            _ => {}
        }
    }
}

#[test]
fn the_traffic_class_reaches_the_transport_with_every_codepoint() {
    for class in [0u8, 1, 2, 3, 0xb8 | 3] {
        for ends in [ENDS, ENDS6] {
            let packet = Packet { tos: class, ..ends.packet(Payload::Other(protocol::UDP, b"0123456789abcdef")) };
            let Input::Udp(datagram) = received(framed(buffer(&packet.bytes()))) else { panic!("a UDP datagram") };
            assert_eq!((datagram.tos, datagram.ecn()), (class, class & 3));
            assert_eq!((datagram.buf.meta().traffic_class, datagram.buf.meta().ecn()), (class, class & 3));
        }
    }
}
