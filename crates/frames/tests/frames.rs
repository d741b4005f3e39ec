//! Default values are right: the frames equal those of `etherparse`, and `wire` parses them. Explicit values appear in
//! the frames.

use etherparse::{EtherType as Type, PacketBuilder, PacketBuilderStep, TcpOptionElement, VlanId, ether_type};
use frames::*;
use wire::ethernet::{EtherType, MacAddr, VlanTag};
use wire::tcp::{Options, TcpFlags, Timestamps};
use wire::{SeqNumber, arp, icmpv4, icmpv6, ipv4, ipv6, protocol, tcp, udp};

/// An odd number of bytes.
const DATA: &[u8] = b"payload";

fn begin(ends: Ends) -> PacketBuilderStep<etherparse::IpHeaders> {
    let link = PacketBuilder::ethernet2(ends.src_mac.0, ends.dst_mac.0);
    match (ends.src, ends.dst) {
        (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => link.ipv4(src.octets(), dst.octets(), 64),
        (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => link.ipv6(src.octets(), dst.octets(), 64),
        _ => unreachable!("one family"),
    }
}

#[test]
fn what_is_not_stated_is_right() {
    for ends in Ends::BOTH_FAMILIES {
        let mut expected = Vec::new();
        let header = begin(ends).tcp(2000, 80, 7, 1000).ack(9).psh();
        let stamps = [TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(5, 6)];
        header.options(&stamps).expect("room").write(&mut expected, DATA).expect("written");
        let options = Options { timestamps: Some(Timestamps { value: 5, echo: 6 }), ..Options::NONE };
        let segment = Segment { data: DATA, ..Segment::ack((2000, 80), 7, 9).and(TcpFlags::PSH) };
        assert_eq!(segment.window(1000).options(options).frame_over(ends), expected, "{ends:?}");

        let mut expected = Vec::new();
        begin(ends).udp(53, 5353).write(&mut expected, DATA).expect("written");
        assert_eq!(Datagram::new(53, 5353, DATA).frame_over(ends), expected, "{ends:?}");

        let mut expected = Vec::new();
        let echo = begin(ends);
        match ends.src.is_ipv6() {
            false => echo.icmpv4_echo_request(1, 1).write(&mut expected, DATA),
            true => echo.icmpv6_echo_request(1, 1).write(&mut expected, DATA),
        }
        .expect("written");
        assert_eq!(ends.bytes(Icmp::echo_request(ends.src.is_ipv6(), DATA)), expected, "{ends:?}");
    }
}

#[test]
fn a_tag_stands_before_the_type() {
    let mut expected = Vec::new();
    let ends = Ends::PEER_TO_STACK;
    let link = PacketBuilder::ethernet2(PEER_MAC.0, STACK_MAC.0).single_vlan(VlanId::try_new(77).expect("a name"));
    link.ipv4(PEER.octets(), STACK.octets(), 64).udp(1, 2).write(&mut expected, DATA).expect("written");
    let tag = VlanTag { priority: 0, drop_eligible: false, id: 77 };
    let frame = Frame { tags: &[tag], ..ends.frame(ends.packet(Datagram::new(1, 2, DATA))) };
    assert_eq!(frame.bytes(), expected);
    assert_eq!(Type(u16::from(EtherType::Vlan)), ether_type::VLAN_TAGGED_FRAME);
}

/// Every option at once, and SACK blocks in the remaining room.
#[test]
fn options_are_read_back() {
    let mut options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 1, echo: 2 }),
        ..Options::NONE
    };
    options.sack.push(SeqNumber(10), SeqNumber(20));
    for options in [options, Options { timestamps: None, ..options }, Options { sack_permitted: false, ..options }] {
        let bytes = Segment::syn(1, 2).options(options).bytes(PEER, STACK);
        assert_eq!(tcp::parse(&bytes).expect("a header").options, options);
        assert_eq!(sum(&bytes, pseudo_header(PEER.into(), STACK.into(), protocol::TCP, bytes.len())), 0xffff);
    }
}

#[test]
fn a_chain_of_extension_headers_names_what_follows() {
    let chain = [
        Extension { kind: protocol::HOP_BY_HOP, bytes: &[0, 1, 4, 0, 0, 0, 0] },
        Extension { kind: protocol::IPV6_DESTINATION, bytes: &[0, 1, 4, 0, 0, 0, 0] },
    ];
    let fragment = Fragment { ident: 0xdead_beef, offset: 0, more: true };
    let packet = Ends::PEER_TO_STACK_V6.packet(Segment::syn(1, 2));
    let bytes = Packet { extensions: &chain, fragment: Some(fragment), ..packet }.bytes();
    let header = ipv6::parse(&bytes).expect("a header");
    let walked = ipv6::walk(header.next_header, &bytes[ipv6::HEADER_LEN..]).expect("a chain");
    let found = walked.fragment.expect("a fragment header");
    assert_eq!((walked.next_header, walked.offset), (protocol::TCP, 24));
    assert_eq!((found.ident, found.offset, found.more), (0xdead_beef, 0, true));
}

#[test]
fn a_fragment_of_ipv4_says_where_it_begins() {
    let fragment = Some(Fragment { ident: 77, offset: 1480, more: true });
    let packet = Ends::PEER_TO_STACK.packet(Payload::Other(protocol::UDP, &[7; 16]));
    let bytes = Packet { fragment, dont_fragment: false, options: &[1, 1, 1], ..packet }.bytes();
    let header = ipv4::parse(&bytes).expect("a header");
    assert_eq!((header.ident, header.fragment_offset, header.more_fragments), (77, 1480, true));
    assert_eq!((header.header_len, header.dont_fragment), (24, false));
}

#[test]
fn what_is_stated_stands_in_the_frame() {
    for ends in Ends::BOTH_FAMILIES {
        let v6 = ends.src.is_ipv6();
        let wrong = Segment { checksum: Checksum::OffBy(1), header_words: Some(15), ..Segment::syn(1, 2) };
        let bytes = wrong.bytes(ends.src, ends.dst);
        assert_ne!(sum(&bytes, pseudo_header(ends.src, ends.dst, protocol::TCP, 20)), 0xffff);
        assert_eq!(bytes[12] >> 4, 15);
        let pseudo = Datagram { checksum: Checksum::Pseudo, len: Some(3), ..Datagram::new(1, 2, DATA) };
        let bytes = Payload::from(pseudo).bytes(ends.src, ends.dst);
        let expected = pseudo_header(ends.src, ends.dst, protocol::UDP, 15);
        assert_eq!(udp::parse(&bytes).map(|header| header.checksum), Err(wire::ParseError::BadLength));
        assert_eq!((&bytes[4..6], &bytes[6..8]), (&[0, 3][..], &expected.to_be_bytes()[..]));
        let mut packet = ends.packet(Segment::syn(1, 2));
        (packet.len, packet.version, packet.protocol) = (Some(4000), Some(5), Some(99));
        let mut frame = ends.frame(packet);
        (frame.ethertype, frame.padded_to) = (Some(EtherType::Other(0x88b5)), 100);
        let bytes = frame.bytes();
        assert_eq!((bytes.len(), &bytes[12..14], bytes[14] >> 4), (100, &[0x88, 0xb5][..], 5));
        let (len, protocol) = if v6 { (18, 20) } else { (16, 23) };
        assert_eq!((&bytes[len..len + 2], bytes[protocol]), (&4000u16.to_be_bytes()[..], 99));
        frame.truncate_to = 17;
        assert_eq!(frame.bytes().len(), 17);
    }
    let mut packet = Ends::PEER_TO_STACK.packet(Segment::syn(1, 2));
    packet.checksum = Checksum::OffBy(1);
    let mut bytes = packet.bytes();
    assert!(ipv4::parse(&bytes).is_err());
    repair(&mut bytes, 0);
    assert!(ipv4::parse(&bytes).is_ok());
}

#[test]
fn neighbours_are_read_back() {
    let thief = MacAddr([2, 0, 0, 0, 0, 66]);
    let bytes = frames::arp(arp::Operation::Reply, thief, PEER);
    let packet = arp::Packet { op: arp::Operation::Reply, sha: thief, spa: PEER, tha: STACK_MAC, tpa: STACK };
    assert_eq!(arp::parse(&bytes[14..]), Ok(packet));
    let asks = icmpv6::Message::NeighbourSolicit { target: STACK6, source: Some(PEER_MAC) };
    let group = ipv6::solicited_node(STACK6);
    let bytes = neighbour_discovery(PEER6, group, &asks);
    assert_eq!(bytes[..6], [0x33, 0x33, 0xff, 0, 0, 1]);
    let header = ipv6::parse(&bytes[14..]).expect("a header");
    assert_eq!((header.hop_limit, icmpv6::parse(&bytes[54..], PEER6, group)), (255, Ok(asks)));
}

/// An error quotes the packet that caused it, and `wire` parses the quotation.
#[test]
fn an_error_quotes_its_cause() {
    let cause = Ends::PEER_TO_STACK.reversed().packet(Segment::syn(80, 2000)).bytes();
    let error = Icmp::new(3, 4, [0, 0, 2, 88], &cause[..28]);
    let bytes = Payload::from(error).bytes(PEER.into(), STACK.into());
    let said = icmpv4::Message::Unreachable { code: icmpv4::unreachable::FRAGMENTATION_NEEDED, mtu: 600 };
    assert_eq!(icmpv4::parse(&bytes), Ok(said));
}
