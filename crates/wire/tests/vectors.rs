//! Bytes from specifications or captures of other systems, and rules that a round trip cannot test.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::ethernet::{EtherType, MacAddr, VlanTag};
use wire::ipv6::ProblemKind;
use wire::rss::{MICROSOFT_KEY, SYMMETRIC_KEY, Toeplitz};
use wire::tcp::{OptionOrder, Options, SackBlocks, TcpFlags, Timestamps};
use wire::{FourTuple, ParseError, SeqNumber, arp, checksum, ethernet, icmpv4, icmpv6, ipv4, ipv6, protocol, tcp, udp};

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

mod sums {
    use super::*;

    /// RFC 1071 section 3.
    #[test]
    fn rfc_1071_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum::sum(&bytes).fold(), 0xddf2);
        assert_eq!(checksum::sum(&bytes).finish(), 0x220d);
    }

    /// RFC 1624 section 4: where the older equation gave 0xffff, this gives 0.
    #[test]
    fn rfc_1624_example() {
        assert_eq!(checksum::update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn zero_is_not_a_valid_sum_and_not_a_udp_checksum() {
        assert!(!checksum::sum(&[0; 20]).is_valid());
        assert_eq!(checksum::sum(&[0xff; 2]).finish(), 0);
        assert_eq!(checksum::sum(&[0xff; 2]).finish_udp(), 0xffff);
        assert_eq!(checksum::sum(&[0x12, 0x34]).finish_udp(), !0x1234);
    }

    /// Sums far beyond a 32-bit accumulator, joined many times.
    #[test]
    fn carries_are_never_lost() {
        let ones = vec![0xff; 1 << 20];
        let mut total = checksum::sum(&ones);
        for _ in 0..70 {
            total = total + total;
        }
        assert!(total.is_valid());
        total += checksum::Sum::zero().add_u16(0x1234);
        assert_eq!(total.fold(), 0x1234);
    }
}

mod ethernet_frames {
    use super::*;

    const FRAME: [u8; 18] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0x00, 0xf1, 0x23, 0x86, 0xdd];

    #[test]
    fn one_tag_is_skipped_and_reported() {
        let (header, offset) = ethernet::parse(&FRAME).unwrap();
        assert_eq!((header.ethertype, offset), (EtherType::Ipv6, 18));
        let tag = ethernet::vlan_tag(&FRAME).unwrap();
        assert_eq!(tag, VlanTag { priority: 7, drop_eligible: true, id: 0x123 });
        let mut out = [0; 18];
        header.emit_tagged(tag, &mut out);
        assert_eq!(out, FRAME);
        assert_eq!(ethernet::parse(&FRAME[..17]), Err(ParseError::Truncated));
        assert_eq!(ethernet::parse(&FRAME[..13]), Err(ParseError::Truncated));
    }

    #[test]
    fn a_second_tag_is_not_skipped() {
        let mut frame = [0; 22];
        frame[12..14].copy_from_slice(&[0x81, 0x00]);
        frame[16..18].copy_from_slice(&[0x81, 0x00]);
        let (header, offset) = ethernet::parse(&frame).unwrap();
        assert_eq!((header.ethertype, offset), (EtherType::Vlan, 18));
    }

    #[test]
    fn untagged() {
        let header = ethernet::Header { dst: MacAddr::BROADCAST, src: MacAddr([2; 6]), ethertype: EtherType::Arp };
        let mut out = [0; 14];
        header.emit(&mut out);
        assert_eq!(out, [255, 255, 255, 255, 255, 255, 2, 2, 2, 2, 2, 2, 8, 6]);
        assert_eq!(ethernet::parse(&out), Ok((header, 14)));
        assert_eq!(ethernet::vlan_tag(&out), None);
    }

    #[test]
    fn addresses() {
        let mac: MacAddr = "02:00:5e:10:00:fF".parse().unwrap();
        assert_eq!(mac, MacAddr([2, 0, 0x5e, 0x10, 0, 0xff]));
        assert_eq!(mac.to_string(), "02:00:5e:10:00:ff");
        assert!(mac.is_unicast() && !mac.is_multicast() && !MacAddr::UNSPECIFIED.is_unicast());
        for bad in
            ["", "02:00:5e:10:00", "02:00:5e:10:00:ff:01", "2:0:0:0:0:0", "02:00:5e:10:00:+f", "02:00:5e:10:00:é"]
        {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
        assert_eq!(MacAddr::from_ipv4_multicast([224, 129, 2, 3].into()).to_string(), "01:00:5e:01:02:03");
        assert_eq!(MacAddr::from_ipv6_multicast(v6("ff02::1:ff00:12ab")).to_string(), "33:33:ff:00:12:ab");
        assert_eq!(ipv6::solicited_node(v6("fe80::2aa:ff:fe28:9c5a")), v6("ff02::1:ff28:9c5a"));
    }
}

mod arp_packets {
    use super::*;

    #[test]
    fn request() {
        let packet = arp::Packet {
            op: arp::Operation::Request,
            sha: MacAddr([2, 0, 0, 0, 0, 1]),
            spa: [10, 0, 0, 1].into(),
            tha: MacAddr::UNSPECIFIED,
            tpa: [10, 0, 0, 2].into(),
        };
        let mut out = [0; 28];
        packet.emit(&mut out);
        let bytes = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
        assert_eq!(out, bytes);
        assert_eq!(arp::parse(&bytes), Ok(packet));
        let spoil = |at: usize, value: u8| {
            let mut bytes = bytes;
            bytes[at] = value;
            arp::parse(&bytes)
        };
        assert_eq!(spoil(1, 6), Err(ParseError::Unsupported));
        assert_eq!(spoil(2, 9), Err(ParseError::Unsupported));
        assert_eq!(spoil(4, 8), Err(ParseError::BadLength));
        assert_eq!(spoil(5, 16), Err(ParseError::BadLength));
        assert_eq!(arp::parse(&bytes[..27]), Err(ParseError::Truncated));
    }
}

mod ipv4_headers {
    use super::*;

    /// A header from a capture, with its checksum.
    const HEADER: [u8; 20] =
        [0x45, 0, 0, 0x14, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0xc0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];

    #[test]
    fn capture() {
        let header = ipv4::parse(&HEADER).unwrap();
        assert_eq!(header.src, Ipv4Addr::new(192, 168, 0, 1));
        assert_eq!(header.dst, Ipv4Addr::new(192, 168, 0, 199));
        assert_eq!((header.protocol, header.ttl), (protocol::UDP, 64));
        assert!(header.dont_fragment && !header.is_fragment());
        assert_eq!((header.header_len, header.total_len, header.payload_len()), (20, 20, 0));
        let mut out = [0; 20];
        header.emit(&mut out);
        assert_eq!(out, HEADER);
    }

    #[test]
    fn faults() {
        let spoil = |at: usize, value: u8| {
            let mut bytes = HEADER;
            bytes[at] = value;
            bytes[10..12].fill(0);
            let sum = checksum::sum(&bytes).finish().to_be_bytes();
            bytes[10..12].copy_from_slice(&sum);
            ipv4::parse(&bytes)
        };
        assert!(spoil(8, 63).is_ok());
        assert_eq!(spoil(0, 0x65), Err(ParseError::BadVersion));
        assert_eq!(spoil(0, 0x44), Err(ParseError::BadLength));
        assert_eq!(spoil(0, 0x46), Err(ParseError::BadLength));
        assert_eq!(spoil(3, 19), Err(ParseError::BadLength));
        assert_eq!(spoil(3, 21), Err(ParseError::Truncated));
        let mut bytes = HEADER;
        bytes[8] = 63;
        assert_eq!(ipv4::parse(&bytes), Err(ParseError::BadChecksum));
        assert!(ipv4::parse_unverified(&bytes).is_ok());
        assert_eq!(ipv4::parse(&HEADER[..19]), Err(ParseError::Truncated));
    }

    #[test]
    fn options_are_tolerated_and_covered_by_the_checksum() {
        let mut bytes = [0u8; 24];
        bytes[..20].copy_from_slice(&HEADER);
        bytes[0] = 0x46;
        bytes[3] = 24;
        bytes[20..].copy_from_slice(&[0x94, 4, 0, 0]);
        bytes[10..12].fill(0);
        let sum = checksum::sum(&bytes).finish().to_be_bytes();
        bytes[10..12].copy_from_slice(&sum);
        assert_eq!(ipv4::parse(&bytes).unwrap().header_len, 24);
        bytes[21] ^= 1;
        assert_eq!(ipv4::parse(&bytes), Err(ParseError::BadChecksum));
    }

    #[test]
    fn fragment_offset_is_in_bytes() {
        let mut header = ipv4::parse(&HEADER).unwrap();
        header.dont_fragment = false;
        header.more_fragments = true;
        header.fragment_offset = 65528;
        let mut out = [0; 20];
        header.emit(&mut out);
        assert_eq!(out[6..8], [0x3f, 0xff]);
        assert_eq!(ipv4::parse(&out), Ok(header));
        assert!(header.is_fragment());
    }
}

mod ipv6_headers {
    use super::*;

    #[test]
    fn fixed_header() {
        let header = ipv6::Header {
            src: v6("2001:db8::1"),
            dst: v6("2001:db8::2"),
            next_header: protocol::TCP,
            hop_limit: 64,
            traffic_class: 0xb9,
            flow_label: 0x12345,
            payload_len: 0,
        };
        let mut out = [0; 40];
        header.emit(&mut out);
        assert_eq!(out[..8], [0x6b, 0x91, 0x23, 0x45, 0, 0, 6, 64]);
        assert_eq!(ipv6::parse(&out), Ok(header));
        out[5] = 1;
        assert_eq!(ipv6::parse(&out), Err(ParseError::Truncated));
        assert!(ipv6::parse_unverified(&out).is_ok());
        out[0] = 0x45;
        assert_eq!(ipv6::parse(&out), Err(ParseError::BadVersion));
        assert_eq!(ipv6::parse(&out[..39]), Err(ParseError::Truncated));
    }

    #[test]
    fn no_extension_costs_nothing() {
        let chain = ipv6::walk(protocol::TCP, &[]).unwrap();
        assert_eq!((chain.next_header, chain.offset, chain.next_header_pointer), (protocol::TCP, 0, 6));
    }

    /// Hop-by-hop with padding, routing with no segment left, destination options with padding, then UDP.
    #[test]
    fn a_full_chain() {
        let bytes = [
            [43, 0, 1, 4, 0, 0, 0, 0],    // hop-by-hop: PadN
            [60, 0, 4, 0, 0, 0, 0, 0],    // routing, type 4, no segment left
            [17, 0, 0, 0, 0x1e, 0, 1, 0], // destination: Pad1, Pad1, an unknown option that may be skipped, PadN
        ]
        .concat();
        let chain = ipv6::walk(protocol::HOP_BY_HOP, &bytes).unwrap();
        assert_eq!((chain.next_header, chain.offset, chain.next_header_pointer), (protocol::UDP, 24, 56));
        assert_eq!((chain.fragment, chain.problem), (None, None));
    }

    #[test]
    fn the_walk_stops_at_a_fragment_but_not_at_an_atomic_one() {
        let fragment =
            ipv6::FragmentHeader { next_header: protocol::IPV6_DESTINATION, offset: 0, more: true, ident: 7 };
        let mut bytes = [0; 16];
        fragment.emit(bytes.first_chunk_mut().unwrap());
        bytes[8..].copy_from_slice(&[6, 0, 1, 4, 0, 0, 0, 0]);
        let chain = ipv6::walk(protocol::IPV6_FRAGMENT, &bytes).unwrap();
        assert!(chain.is_fragment());
        assert_eq!((chain.fragment, chain.offset, chain.next_header), (Some(fragment), 8, protocol::IPV6_DESTINATION));
        bytes[3] = 0;
        let chain = ipv6::walk(protocol::IPV6_FRAGMENT, &bytes).unwrap();
        assert!(!chain.is_fragment() && chain.fragment.unwrap().is_atomic());
        assert_eq!((chain.offset, chain.next_header, chain.next_header_pointer), (16, protocol::TCP, 48));
    }

    fn problem(first: u8, bytes: &[u8]) -> (ProblemKind, u16) {
        let problem = ipv6::walk(first, bytes).unwrap().problem.unwrap();
        (problem.kind, problem.pointer)
    }

    /// The pointers of RFC 4443 section 3.4 and RFC 8200 section 4.
    #[test]
    fn problems_point_at_the_offending_byte() {
        let option = |kind| [6, 0, 0, kind, 1, 0, 0, 0];
        let hop = protocol::HOP_BY_HOP;
        assert_eq!(problem(hop, &option(0x40)), (ProblemKind::DiscardOption, 43));
        assert_eq!(problem(hop, &option(0x80)), (ProblemKind::UnknownOption, 43));
        assert_eq!(problem(hop, &option(0xc2)), (ProblemKind::UnknownOptionUnlessMulticast, 43));
        assert_eq!(problem(43, &[6, 0, 0, 1, 0, 0, 0, 0]), (ProblemKind::UnknownRouting, 42));
        let misplaced = [[0, 0, 1, 4, 0, 0, 0, 0], [6, 0, 1, 4, 0, 0, 0, 0]].concat();
        assert_eq!(problem(60, &misplaced), (ProblemKind::MisplacedHopByHop, 40));
    }

    #[test]
    fn bounds() {
        let pad = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
        let mut eight = [pad(60); 8].concat();
        eight[56] = 6;
        assert_eq!(ipv6::walk(60, &eight).unwrap().offset, 64);
        let nine = [pad(60); 9].concat();
        assert_eq!(ipv6::walk(60, &nine), Err(ParseError::ChainTooLong));
        let mut long = vec![0; 264];
        long[..4].copy_from_slice(&[6, 31, 1, 252]);
        assert_eq!(ipv6::walk(60, &long).unwrap().offset, 256);
        long[1] = 32;
        assert_eq!(ipv6::walk(60, &long), Err(ParseError::ChainTooLong));
        let mut pads = [0; 16];
        pads[..2].copy_from_slice(&[6, 1]);
        assert_eq!(ipv6::walk(60, &pads), Err(ParseError::ChainTooLong), "more than seven Pad1 in a row");
        assert_eq!(ipv6::walk(60, &pad(6)[..7]), Err(ParseError::Truncated));
        assert_eq!(ipv6::walk(60, &[6]), Err(ParseError::Truncated));
        assert_eq!(ipv6::walk(60, &[6, 0, 1, 5, 0, 0, 0, 0]), Err(ParseError::BadOption));
        assert_eq!(ipv6::walk(60, &[6, 0, 1, 3, 0, 0, 0, 1]), Err(ParseError::BadOption));
    }
}

mod icmp_messages {
    use super::*;

    #[test]
    fn echo_over_ipv4() {
        // A request of ping(8): identifier 1, sequence 2, eight bytes of data.
        let mut bytes = [8, 0, 0, 0, 0, 1, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8];
        let message = icmpv4::Message::EchoRequest { ident: 1, seq: 2 };
        assert_eq!(message.emit(&mut bytes), 8);
        assert_eq!(bytes[2..4], (!0x1817u16).to_be_bytes());
        assert_eq!(bytes[8..], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(icmpv4::parse(&bytes), Ok(message));
        bytes[15] ^= 1;
        assert_eq!(icmpv4::parse(&bytes), Err(ParseError::BadChecksum));
        assert_eq!(message.emit(&mut bytes[..7]), 0);
    }

    #[test]
    fn only_fragmentation_needed_has_an_mtu() {
        for (code, mtu) in [(icmpv4::unreachable::FRAGMENTATION_NEEDED, 1400), (icmpv4::unreachable::PORT, 0)] {
            let mut bytes = [3, code, 0, 0, 0, 0, 0x05, 0x78];
            let sum = checksum::sum(&bytes).finish().to_be_bytes();
            bytes[2..4].copy_from_slice(&sum);
            let message = icmpv4::parse(&bytes).unwrap();
            assert_eq!(message, icmpv4::Message::Unreachable { code, mtu });
            assert!(message.is_error());
        }
    }

    fn emitted(message: icmpv6::Message, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        let mut bytes = vec![0xee; message.header_len()];
        assert_eq!(message.emit(src, dst, &mut bytes), bytes.len());
        bytes
    }

    #[test]
    fn neighbour_solicitation_bytes() {
        let (src, target) = (v6("fe80::1"), v6("fe80::2"));
        let dst = ipv6::solicited_node(target);
        let message = icmpv6::Message::NeighbourSolicit { target, source: Some(MacAddr([2, 0, 0, 0, 0, 1])) };
        let bytes = emitted(message, src, dst);
        assert_eq!(bytes[..2], [135, 0]);
        assert_eq!(bytes[4..8], [0; 4]);
        assert_eq!(bytes[8..24], target.octets());
        assert_eq!(bytes[24..], [1, 1, 2, 0, 0, 0, 0, 1]);
        assert_eq!(icmpv6::parse(&bytes, src, dst), Ok(message));
        // The checksum covers the addresses.
        assert_eq!(icmpv6::parse(&bytes, v6("fe80::3"), dst), Err(ParseError::BadChecksum));
    }

    /// RFC 4861 sections 6.1, 7.1 and 8.1: what receivers must drop.
    #[test]
    fn discovery_rules() {
        let (any, link, group) = (Ipv6Addr::UNSPECIFIED, v6("fe80::1"), v6("ff02::1:ff00:2"));
        let mac = Some(MacAddr([2; 6]));
        let check = |message: icmpv6::Message, src, dst| icmpv6::parse(&emitted(message, src, dst), src, dst);
        let solicit = |target, source| icmpv6::Message::NeighbourSolicit { target, source };
        let target = v6("fe80::2");
        assert!(check(solicit(target, None), any, group).is_ok());
        assert_eq!(check(solicit(target, mac), any, group), Err(ParseError::BadField));
        assert_eq!(check(solicit(target, None), any, target), Err(ParseError::BadField));
        assert_eq!(check(solicit(group, None), link, group), Err(ParseError::BadField));
        let advert = |solicited| icmpv6::Message::NeighbourAdvert {
            target,
            target_mac: mac,
            router: true,
            solicited,
            override_flag: true,
        };
        assert!(check(advert(false), target, v6("ff02::1")).is_ok());
        assert_eq!(check(advert(true), target, v6("ff02::1")), Err(ParseError::BadField));
        let router = icmpv6::Message::RouterAdvert(icmpv6::RouterAdvert::default());
        assert!(check(router, link, v6("ff02::1")).is_ok());
        assert_eq!(check(router, v6("2001:db8::1"), v6("ff02::1")), Err(ParseError::BadField));
        assert_eq!(
            check(icmpv6::Message::RouterSolicit { source: mac }, any, v6("ff02::2")),
            Err(ParseError::BadField)
        );
        let redirect = |target, destination| icmpv6::Message::Redirect { target, destination, target_mac: mac };
        let far = v6("2001:db8::9");
        assert!(check(redirect(link, far), link, target).is_ok());
        assert!(check(redirect(far, far), link, target).is_ok());
        assert_eq!(check(redirect(v6("2001:db8::8"), far), link, target), Err(ParseError::BadField));
        assert_eq!(check(redirect(link, far), far, target), Err(ParseError::BadField));
    }

    #[test]
    fn discovery_options_of_length_zero_or_overrunning_make_the_message_invalid() {
        let (src, dst) = (v6("fe80::1"), v6("ff02::1"));
        for (option, expected) in [
            (vec![14u8, 1, 0, 0, 0, 0, 0, 0], Ok(())),
            (vec![14, 0, 0, 0, 0, 0, 0, 0], Err(ParseError::BadOption)),
            (vec![14, 2, 0, 0, 0, 0, 0, 0], Err(ParseError::BadOption)),
            (vec![14], Err(ParseError::BadOption)),
        ] {
            let mut bytes = vec![133, 0, 0, 0, 0, 0, 0, 0];
            bytes.extend(option);
            let pseudo = checksum::pseudo_header(src.into(), dst.into(), protocol::ICMPV6, bytes.len() as u32);
            let sum = pseudo.add(checksum::sum(&bytes)).finish().to_be_bytes();
            bytes[2..4].copy_from_slice(&sum);
            assert_eq!(icmpv6::parse(&bytes, src, dst).map(|_| ()), expected);
        }
    }

    #[test]
    fn errors_are_known_as_errors() {
        assert!(icmpv6::Message::PacketTooBig { mtu: 1280 }.is_error());
        assert!(icmpv6::Message::Other { kind: 100, code: 0, rest: 0 }.is_error());
        assert!(!icmpv6::Message::Other { kind: 143, code: 0, rest: 0 }.is_error());
        assert!(!icmpv6::Message::EchoRequest { ident: 0, seq: 0 }.is_error());
        assert!(icmpv6::Message::RouterSolicit { source: None }.is_discovery());
    }
}

mod udp_headers {
    use super::*;

    #[test]
    fn lengths() {
        let bytes = [0x12, 0x67, 0, 53, 0, 9, 0xab, 0xcd, 1];
        let header = udp::parse(&bytes).unwrap();
        assert_eq!(header, udp::Header { src_port: 4711, dst_port: 53, len: 9, checksum: 0xabcd });
        let mut out = [0; 8];
        header.emit(&mut out);
        assert_eq!(out, bytes[..8]);
        assert_eq!(udp::parse(&bytes[..8]), Err(ParseError::Truncated));
        assert_eq!(udp::parse(&bytes[..7]), Err(ParseError::Truncated));
        assert_eq!(udp::parse(&[0, 1, 0, 2, 0, 7, 0, 0]), Err(ParseError::BadLength));
    }

    #[test]
    fn checksum_covers_the_pseudo_header() {
        let header = udp::Header { src_port: 1, dst_port: 2, len: 8, checksum: 0 };
        let mut out = [0; 8];
        header.emit(&mut out);
        let (src, dst) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let sum = header.pseudo_header(src, dst).add(checksum::sum(&out));
        // 0a00+0001+0a00+0002 + 0011 + 0008 + 0001+0002+0008
        assert_eq!(sum.fold(), 0x1427);
    }
}

mod tcp_segments {
    use super::*;

    fn options(bytes: &[u8]) -> Options {
        Options::parse(bytes)
    }

    fn header(options: Options) -> tcp::Header {
        tcp::Header {
            src_port: 80,
            dst_port: 4711,
            seq: SeqNumber(1),
            ack: SeqNumber(2),
            flags: TcpFlags::ACK,
            window: 3,
            urgent: 0,
            header_len: 20,
            options,
        }
    }

    fn emitted(options: Options, order: OptionOrder) -> Vec<u8> {
        let mut out = [0xee; 60];
        let header = header(options);
        let len = header.emit_ordered(order, &mut out);
        assert_eq!(len, header.emitted_len());
        assert_eq!(out[len..], vec![0xee; 60 - len]);
        assert_eq!(out[..20], [0, 80, 0x12, 0x67, 0, 0, 0, 1, 0, 0, 0, 2, (len as u8) << 2, 0x10, 0, 3, 0, 0, 0, 0]);
        out[20..len].to_vec()
    }

    const TS: Option<Timestamps> = Some(Timestamps { value: 0x01020304, echo: 0x05060708 });
    const SYN: Options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: TS,
        sack: SackBlocks::EMPTY,
    };

    #[test]
    fn linux_order() {
        let linux = |options| emitted(options, OptionOrder::Linux);
        assert_eq!(linux(SYN), [2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7]);
        assert_eq!(linux(Options { timestamps: None, ..SYN }), [2, 4, 5, 0xb4, 1, 1, 4, 2, 1, 3, 3, 7]);
        assert_eq!(
            linux(Options { sack_permitted: false, window_scale: None, ..SYN }),
            [2, 4, 5, 0xb4, 1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]
        );
        assert_eq!(linux(Options { timestamps: TS, ..Options::NONE }), [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(
            linux(Options { timestamps: TS, sack_permitted: true, ..Options::NONE }),
            [4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]
        );
        assert_eq!(linux(Options::NONE), []);
        let sack = [(SeqNumber(1), SeqNumber(2))].into_iter().collect();
        assert_eq!(linux(Options { sack, ..Options::NONE }), [1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(
            linux(Options { sack, timestamps: TS, ..Options::NONE }),
            [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]
        );
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //= type=test
    //# The content of the header beyond the End of Option List Option MUST be header padding of zeros (MUST-69).
    #[test]
    fn freebsd_order() {
        let freebsd = |options| emitted(options, OptionOrder::FreeBsd);
        assert_eq!(freebsd(SYN), [2, 4, 5, 0xb4, 1, 3, 3, 7, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(freebsd(Options { timestamps: None, ..SYN }), [2, 4, 5, 0xb4, 1, 3, 3, 7, 4, 2, 0, 0]);
    }

    /// Beside timestamps only three blocks fit.
    #[test]
    fn the_fourth_sack_block_is_left_out_beside_timestamps() {
        let sack: SackBlocks = (0..5).map(|i| (SeqNumber(10 * i), SeqNumber(10 * i + 5))).collect();
        assert_eq!(sack.len(), 4);
        let alone = header(Options { sack, ..Options::NONE });
        assert_eq!(alone.emitted_len(), 56);
        let beside = header(Options { sack, timestamps: TS, ..Options::NONE });
        assert_eq!(beside.emitted_len(), 60);
        let mut out = [0; 60];
        assert_eq!(beside.emit(&mut out), 60);
        assert_eq!(tcp::parse(&out).unwrap().options.sack.as_slice(), &sack.as_slice()[..3]);
        // A SYN has no room for any.
        assert_eq!(header(Options { sack, ..SYN }).emitted_len(), 20 + 20 + 20);
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.2
    //= type=test
    //# receivers MUST be prepared to process options even if they do not begin on a word boundary (MUST-64).
    #[test]
    fn both_timestamp_layouts_are_read() {
        let expected = Options { timestamps: TS, ..Options::NONE };
        assert_eq!(options(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]), expected);
        assert_eq!(options(&[8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]), expected);
        assert_eq!(options(&[8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1]), expected);
        assert_eq!(options(&[1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1]), expected);
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //= type=test
    //# the following options MUST be supported (MUST-4
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //= type=test
    //# All TCP Options except End of Option List Option (EOL) and No-Operation (NOP) MUST have length fields, including
    //# all future options (MUST-68).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //= type=test
    //# TCP implementations MUST be prepared to handle an illegal option length (e.g., zero); a suggested procedure is
    //# to reset the connection and log the error cause (MUST-7).
    #[test]
    fn malformed_lengths_end_the_walk_and_keep_what_came_before() {
        let kept = Options { mss: Some(1460), ..Options::NONE };
        let mss = [2, 4, 5, 0xb4];
        for tail in [
            &[3, 0, 7, 1, 3, 3, 7, 1][..], // length zero
            &[3, 1, 7, 1, 3, 3, 7, 1],     // length one
            &[3, 5, 7, 1],                 // overruns by one byte
            &[9, 255, 0, 0, 3, 3, 7, 1],   // overruns by far
            &[1, 1, 1, 3],                 // kind without a length
            &[0, 3, 3, 7],                 // end of list
        ] {
            assert_eq!(options(&[&mss, tail].concat()), kept, "{tail:?}");
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //= type=test
    //# A TCP implementation MUST (MUST-6) ignore without error any TCP Option it does not implement, assuming that the
    //# option has a length field.
    #[test]
    fn known_kinds_of_foreign_length_are_stepped_over() {
        let bytes = [2, 3, 5, 3, 4, 7, 7, 4, 3, 0, 5, 2, 5, 9, 0, 0, 0, 0, 0, 0, 0, 8, 4, 1, 1, 3, 3, 200];
        assert_eq!(options(&bytes), Options { window_scale: Some(14), ..Options::NONE });
        assert_eq!(options(&[2, 4, 0, 0]), Options::NONE);
        assert_eq!(options(&[254, 4, 0xf9, 0x89, 4, 2, 1, 1]), Options { sack_permitted: true, ..Options::NONE });
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //= type=test
    //# A TCP implementation MUST be able to receive a TCP Option in any segment (MUST-5).
    #[test]
    fn options_are_read_whatever_the_flags() {
        for flags in (0..=0x1ff).map(TcpFlags) {
            let mut out = [0; 60];
            let len = tcp::Header { flags, ..header(SYN) }.emit(&mut out);
            assert_eq!(tcp::parse(&out[..len]).map(|header| (header.flags, header.options)), Ok((flags, SYN)));
        }
    }

    #[test]
    fn data_offset() {
        let mut bytes = [0; 24];
        for (offset, expected) in [
            (0, Err(ParseError::BadLength)),
            (4, Err(ParseError::BadLength)),
            (5, Ok(20)),
            (6, Ok(24)),
            (7, Err(ParseError::Truncated)),
            (15, Err(ParseError::Truncated)),
        ] {
            bytes[12] = offset << 4 | 0x0f;
            assert_eq!(tcp::parse(&bytes).map(|h| h.header_len), expected, "{offset}");
        }
        assert_eq!(tcp::parse(&bytes[..19]), Err(ParseError::Truncated));
    }

    #[test]
    fn a_short_buffer_is_left_alone() {
        let mut out = [0xee; 39];
        assert_eq!(header(SYN).emit(&mut out), 0);
        assert_eq!(out, [0xee; 39]);
    }

    #[test]
    fn an_error_quotes_ports_and_sequence_number() {
        let quoted = [0, 80, 0x12, 0x67, 0, 0, 1, 0];
        assert_eq!(tcp::parse_quoted(&quoted), Ok((80, 4711, SeqNumber(256))));
        assert_eq!(tcp::parse_quoted(&quoted[..7]), Err(ParseError::Truncated));
    }
}

mod receive_side_scaling {
    use super::*;

    /// The verification suite of the Microsoft RSS specification: destination, source, hash of the addresses, hash with
    /// the ports.
    const SUITE: [(&str, u16, &str, u16, u32, u32); 8] = [
        ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e8fc2, 0x51ccc178),
        ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718262a, 0xc626b0ea),
        ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0a5de, 0x5c2b394a),
        ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x82989176, 0xafc7327f),
        ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d1809c5, 0x10e828a2),
        ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc18cd5, 0x40207d3d),
        ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c461c, 0xdde51bbf),
        ("fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, 0x4b61e985, 0x02d1feef),
    ];

    fn tuple((dst, dst_port, src, src_port, ..): (&str, u16, &str, u16, u32, u32)) -> FourTuple {
        FourTuple {
            local_addr: dst.parse().unwrap(),
            remote_addr: src.parse().unwrap(),
            local_port: dst_port,
            remote_port: src_port,
        }
    }

    #[test]
    fn microsoft_suite() {
        let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
        assert!(!toeplitz.is_symmetric());
        for line in SUITE {
            let tuple = tuple(line);
            assert_eq!(toeplitz.hash_tcp(&tuple), line.5, "{tuple}");
            assert_eq!(toeplitz.hash_ip(tuple.remote_addr, tuple.local_addr), line.4, "{tuple}");
        }
    }

    #[test]
    fn the_default_key_hashes_both_directions_alike() {
        let toeplitz = Toeplitz::default();
        assert!(toeplitz.is_symmetric());
        assert_eq!(toeplitz.key(), &SYMMETRIC_KEY);
        for line in SUITE {
            let tuple = tuple(line);
            assert_eq!(toeplitz.hash_tcp(&tuple), toeplitz.hash_tcp(&tuple.reversed()), "{tuple}");
            assert_ne!(toeplitz.hash_tcp(&tuple), 0);
        }
    }
}

#[test]
fn every_error_says_what_to_look_at() {
    use std::error::Error;
    let errors = [
        ParseError::Truncated,
        ParseError::BadLength,
        ParseError::BadVersion,
        ParseError::BadChecksum,
        ParseError::BadOption,
        ParseError::BadField,
        ParseError::ChainTooLong,
        ParseError::Unsupported,
    ];
    for error in errors {
        let error: Box<dyn Error> = error.into();
        assert!(error.to_string().contains(';'), "{error}");
    }
}
