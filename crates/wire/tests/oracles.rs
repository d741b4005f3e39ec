//! Differential tests: two independent packet libraries must read the same from the same bytes, and write the same from
//! the same values, wherever they claim to.

mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{IpNumber, Ipv4HeaderSlice, Ipv6ExtensionsSlice, TcpHeaderSlice, TcpOptionElement, UdpHeaderSlice};
use proptest::collection::vec;
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire as oracle;
use wire::ethernet::{self, EtherType, MacAddr};
use wire::icmpv6::Message;
use wire::tcp::{Options, SackBlocks, TcpFlags};
use wire::{SeqNumber, arp, checksum, icmpv4, icmpv6, ipv4, ipv6, protocol, tcp, udp};

const SRC: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const DST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// smoltcp refuses whole segments for these, so they are compared on segments that it accepts.
fn plain_flags(header: &tcp::Header) -> tcp::Header {
    let kept = TcpFlags::ACK | TcpFlags::PSH;
    tcp::Header {
        flags: header.flags & kept,
        src_port: header.src_port.max(1),
        dst_port: header.dst_port.max(1),
        ..*header
    }
}

fn read_by_smoltcp(segment: &[u8]) -> Option<oracle::TcpRepr<'_>> {
    let packet = oracle::TcpPacket::new_checked(segment).ok()?;
    oracle::TcpRepr::parse(&packet, &SRC.into(), &DST.into(), &ChecksumCapabilities::ignored()).ok()
}

/// The options smoltcp saw, in our terms; it keeps three SACK blocks.
fn options_of(repr: &oracle::TcpRepr<'_>) -> Options {
    Options {
        mss: repr.max_seg_size.filter(|mss| *mss != 0),
        window_scale: repr.window_scale,
        sack_permitted: repr.sack_permitted,
        timestamps: repr.timestamp.map(|ts| tcp::Timestamps { value: ts.tsval, echo: ts.tsecr }),
        sack: repr.sack_ranges.iter().flatten().map(|(l, r)| (SeqNumber(*l), SeqNumber(*r))).collect(),
    }
}

fn three_blocks(options: Options) -> Options {
    Options { sack: options.sack.iter().take(3).collect::<SackBlocks>(), ..options }
}

/// Option lists as senders build them: known and unknown kinds in any order, right and wrong lengths.
fn option_bytes() -> impl Strategy<Value = Vec<u8>> {
    let option = prop_oneof![
        Just(vec![1]),
        any::<[u8; 2]>().prop_map(|v| [&[2, 4], &v[..]].concat()),
        any::<u8>().prop_map(|v| vec![3, 3, v]),
        Just(vec![4, 2]),
        any::<[u8; 8]>().prop_map(|v| [&[5, 10], &v[..]].concat()),
        any::<[u8; 16]>().prop_map(|v| [&[5, 18], &v[..]].concat()),
        any::<[u8; 8]>().prop_map(|v| [&[8, 10], &v[..]].concat()),
        (30..255u8, vec(any::<u8>(), 0..6)).prop_map(|(kind, v)| [&[kind, 2 + v.len() as u8], &v[..]].concat()),
        any::<[u8; 3]>().prop_map(|v| v.to_vec()),
    ];
    vec(option, 0..6).prop_map(|options| {
        let mut bytes = options.concat();
        bytes.truncate(40);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    })
}

fn segment_with(options: &[u8]) -> Vec<u8> {
    let mut segment = vec![0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, (20 + options.len() as u8) << 2, 0x10, 0, 5, 0, 0, 0, 0];
    segment.extend(options);
    segment
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn smoltcp_reads_the_tcp_headers_we_write(header in support::tcp_header()) {
        let header = plain_flags(&header);
        let mut out = [0; 60];
        let len = header.emit(&mut out);
        let repr = read_by_smoltcp(&out[..len]).expect("smoltcp takes the segment");
        prop_assert_eq!((repr.src_port, repr.dst_port, repr.window_len), (header.src_port, header.dst_port, header.window));
        prop_assert_eq!(repr.seq_number.0 as u32, header.seq.0);
        prop_assert_eq!(repr.ack_number.map(|n| n.0 as u32), header.flags.contains(TcpFlags::ACK).then_some(header.ack.0));
        prop_assert_eq!(options_of(&repr), three_blocks(header.options));
    }

    #[test]
    fn etherparse_reads_the_tcp_headers_we_write(header in support::tcp_header()) {
        let mut out = [0; 60];
        let len = header.emit(&mut out);
        let slice = TcpHeaderSlice::from_slice(&out[..len]).unwrap();
        prop_assert_eq!(
            (slice.source_port(), slice.destination_port(), slice.window_size(), slice.urgent_pointer()),
            (header.src_port, header.dst_port, header.window, header.urgent)
        );
        prop_assert_eq!(
            (slice.sequence_number(), slice.acknowledgment_number(), slice.slice().len()),
            (header.seq.0, header.ack.0, usize::from(header.header_len))
        );
        let low = [slice.fin(), slice.syn(), slice.rst(), slice.psh(), slice.ack(), slice.urg(), slice.ece(), slice.cwr()];
        // The former bit of the nonce sum is that of accurate ECN.
        let bits = low.into_iter().chain([slice.ns()]);
        let flags = bits.rev().fold(0, |flags, bit| flags << 1 | u16::from(bit));
        prop_assert_eq!(TcpFlags(flags), header.flags);
        let mut options = Options::NONE;
        for element in slice.options_iterator() {
            match element.unwrap() {
                TcpOptionElement::Noop => {}
                TcpOptionElement::MaximumSegmentSize(mss) => options.mss = Some(mss),
                TcpOptionElement::WindowScale(shift) => options.window_scale = Some(shift),
                TcpOptionElement::SelectiveAcknowledgementPermitted => options.sack_permitted = true,
                TcpOptionElement::Timestamp(value, echo) => options.timestamps = Some(tcp::Timestamps { value, echo }),
                TcpOptionElement::SelectiveAcknowledgement(first, rest) => {
                    let blocks = [Some(first)].into_iter().chain(rest).flatten();
                    options.sack = blocks.map(|(l, r)| (SeqNumber(l), SeqNumber(r))).collect();
                }
            }
        }
        prop_assert_eq!(options, header.options);
    }

    /// Where smoltcp accepts a list of options, we read the same. (Where it refuses, we keep the earlier options.)
    #[test]
    fn options_are_read_as_smoltcp_reads_them(bytes in option_bytes()) {
        let segment = segment_with(&bytes);
        let ours = tcp::parse(&segment).unwrap().options;
        if let Some(repr) = read_by_smoltcp(&segment) {
            let mut theirs = options_of(&repr);
            if ours.mss.is_some() && theirs.mss.is_none() {
                // An earlier maximum and a later one of zero: we ignore the later one.
                theirs.mss = ours.mss;
            }
            prop_assert_eq!(three_blocks(ours), theirs);
        }
    }

    /// smoltcp puts the timestamps first and pads behind them: not our fast path, but the same value.
    #[test]
    fn we_read_the_tcp_headers_smoltcp_writes(header in support::tcp_header(), syn: bool) {
        let header = plain_flags(&header);
        let repr = oracle::TcpRepr {
            src_port: header.src_port,
            dst_port: header.dst_port,
            control: if syn { oracle::TcpControl::Syn } else { oracle::TcpControl::None },
            seq_number: oracle::TcpSeqNumber(header.seq.0 as i32),
            ack_number: Some(oracle::TcpSeqNumber(header.ack.0 as i32)),
            window_len: header.window,
            window_scale: header.options.window_scale,
            max_seg_size: header.options.mss,
            sack_permitted: header.options.sack_permitted,
            sack_ranges: [None; 3],
            timestamp: header.options.timestamps.map(|ts| oracle::TcpTimestampRepr::new(ts.value, ts.echo)),
            payload: &[],
        };
        let mut out = vec![0; repr.buffer_len()];
        let caps = ChecksumCapabilities::default();
        repr.emit(&mut oracle::TcpPacket::new_unchecked(&mut out[..]), &SRC.into(), &DST.into(), &caps);
        let sum = checksum::pseudo_header(SRC, DST, protocol::TCP, out.len() as u32).add(checksum::sum(&out));
        prop_assert!(sum.is_valid());
        let read = tcp::parse(&out).unwrap();
        prop_assert_eq!((read.seq, read.ack, read.window), (header.seq, header.ack, header.window));
        prop_assert_eq!(read.flags.contains(TcpFlags::SYN), syn);
        let expected = Options { sack: SackBlocks::EMPTY, ..header.options };
        prop_assert_eq!(read.options, expected);
    }

    #[test]
    fn both_read_the_ipv4_headers_we_write(header in support::ipv4_header(0)) {
        let mut out = [0; 20];
        header.emit(&mut out);
        let packet = oracle::Ipv4Packet::new_checked(&out[..]).unwrap();
        prop_assert!(packet.verify_checksum());
        prop_assert_eq!((packet.src_addr(), packet.dst_addr()), (header.src, header.dst));
        prop_assert_eq!(
            (packet.more_frags(), packet.dont_frag(), packet.frag_offset()),
            (header.more_fragments, header.dont_fragment, header.fragment_offset)
        );
        let slice = Ipv4HeaderSlice::from_slice(&out).unwrap();
        prop_assert_eq!(
            (slice.ttl(), slice.protocol().0, slice.identification(), slice.total_len()),
            (header.ttl, header.protocol, header.ident, header.total_len)
        );
        prop_assert_eq!(slice.dcp().value() << 2 | slice.ecn().value(), header.tos);
    }

    /// Any bytes: we accept a header exactly when etherparse accepts its lengths and smoltcp its checksum. (etherparse
    /// sums the fields it knows, and so misses a set reserved bit.)
    #[test]
    fn ipv4_headers_are_taken_as_the_oracles_take_them(mut bytes in vec(any::<u8>(), 20..80), ihl in 0..16u8, right: bool) {
        bytes[0] = 0x40 | ihl;
        bytes[2] = 0;
        let header_len = usize::from(ihl) * 4;
        if right && let Some(covered) = bytes.get_mut(..header_len) && header_len >= 20 {
            covered[10..12].fill(0);
            let sum = checksum::sum(covered).finish().to_be_bytes();
            covered[10..12].copy_from_slice(&sum);
        }
        let theirs = Ipv4HeaderSlice::from_slice(&bytes).ok().filter(|header| {
            let total = usize::from(header.total_len());
            (header_len..=bytes.len()).contains(&total)
                && oracle::Ipv4Packet::new_unchecked(&bytes[..]).verify_checksum()
        });
        prop_assert_eq!(ipv4::parse(&bytes).is_ok(), theirs.is_some());
    }

    #[test]
    fn smoltcp_reads_the_ipv6_headers_we_write(header in support::ipv6_header(0)) {
        let mut out = [0; 40];
        header.emit(&mut out);
        let packet = oracle::Ipv6Packet::new_checked(&out[..]).unwrap();
        prop_assert_eq!((packet.src_addr(), packet.dst_addr()), (header.src, header.dst));
        prop_assert_eq!((packet.traffic_class(), packet.flow_label()), (header.traffic_class, header.flow_label));
        prop_assert_eq!((packet.hop_limit(), u8::from(packet.next_header())), (header.hop_limit, header.next_header));
    }

    /// Chains of padding-only headers, with and without a fragment header that fragments nothing.
    #[test]
    fn extension_chains_end_where_etherparse_ends_them(
        hop: bool,
        kinds in vec((prop_oneof![Just(60u8), Just(43), Just(44)], 0..3u8), 0..5),
        cut in 0..300usize,
    ) {
        let mut list: Vec<(u8, u8)> = hop.then_some((0, 1)).into_iter().chain(kinds).collect();
        list.push((17, 0));
        let mut bytes = Vec::new();
        for pair in list.windows(2) {
            let ((kind, len8), (next, _)) = (pair[0], pair[1]);
            let len8 = if kind == 44 { 0 } else { len8 };
            let body = 6 + 8 * usize::from(len8);
            let end = bytes.len() + 2 + body;
            bytes.extend([next, len8]);
            if matches!(kind, 0 | 60) {
                // One PadN: a longer run of Pad1 is refused here.
                bytes.extend([1, body as u8 - 2]);
            }
            bytes.resize(end, 0);
        }
        bytes.truncate(cut);
        let first = list[0].0;
        let theirs = Ipv6ExtensionsSlice::from_slice(IpNumber(first), &bytes).ok();
        let theirs = theirs.map(|(extensions, next, _)| (extensions.slice().len(), next.0));
        let ours = ipv6::walk(first, &bytes).ok().map(|chain| (chain.offset, chain.next_header));
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn udp_headers(src_port: u16, dst_port: u16, payload in vec(any::<u8>(), 0..40), v6: bool) {
        let (src, dst) = if v6 {
            (IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::UNSPECIFIED))
        } else {
            (SRC, DST)
        };
        let mut header = udp::Header { src_port, dst_port, len: 8 + payload.len() as u16, checksum: 0 };
        let mut out = vec![0; 8];
        header.emit(out.first_chunk_mut().unwrap());
        out.extend(&payload);
        header.checksum = header.pseudo_header(src, dst).add(checksum::sum(&out)).finish_udp();
        header.emit(out.first_chunk_mut().unwrap());
        let packet = oracle::UdpPacket::new_checked(&out[..]).unwrap();
        prop_assert!(packet.verify_checksum(&src.into(), &dst.into()));
        let slice = UdpHeaderSlice::from_slice(&out).unwrap();
        prop_assert_eq!((slice.source_port(), slice.destination_port(), slice.length()), (src_port, dst_port, header.len));
        prop_assert_eq!(udp::parse(&out), Ok(header));
    }

    #[test]
    fn ethernet_and_arp_packets(dst in support::mac(), src in support::mac(), spa: u32, tpa: u32, reply: bool) {
        let mut frame = [0; 42];
        ethernet::Header { dst, src, ethertype: EtherType::Arp }.emit(frame.first_chunk_mut().unwrap());
        let op = if reply { arp::Operation::Reply } else { arp::Operation::Request };
        arp::Packet { op, sha: src, spa: spa.into(), tha: dst, tpa: tpa.into() }.emit(frame.last_chunk_mut().unwrap());
        let theirs = oracle::EthernetFrame::new_checked(&frame[..]).unwrap();
        prop_assert_eq!((theirs.dst_addr().0, theirs.src_addr().0), (dst.0, src.0));
        prop_assert_eq!(theirs.ethertype(), oracle::EthernetProtocol::Arp);
        let packet = oracle::ArpPacket::new_checked(theirs.payload()).unwrap();
        let expected = oracle::ArpRepr::EthernetIpv4 {
            operation: if reply { oracle::ArpOperation::Reply } else { oracle::ArpOperation::Request },
            source_hardware_addr: oracle::EthernetAddress(src.0),
            source_protocol_addr: spa.into(),
            target_hardware_addr: oracle::EthernetAddress(dst.0),
            target_protocol_addr: tpa.into(),
        };
        prop_assert_eq!(oracle::ArpRepr::parse(&packet), Ok(expected));
    }

    #[test]
    fn icmpv4_echo(ident: u16, seq: u16, data in vec(any::<u8>(), 0..40)) {
        let mut bytes = vec![0; 8];
        bytes.extend(&data);
        icmpv4::Message::EchoRequest { ident, seq }.emit(&mut bytes);
        let packet = oracle::Icmpv4Packet::new_checked(&bytes[..]).unwrap();
        let repr = oracle::Icmpv4Repr::parse(&packet, &ChecksumCapabilities::default());
        prop_assert_eq!(repr, Ok(oracle::Icmpv4Repr::EchoRequest { ident, seq_no: seq, data: &data }));
    }

    /// Byte for byte what smoltcp writes, checksum included.
    #[test]
    fn neighbour_discovery_is_written_as_smoltcp_writes_it(host: u64, target: u64, mac in support::mac(), with_mac: bool, bits in 0..8u8) {
        let (src, dst) = (Ipv6Addr::from(0xfe80 << 112 | u128::from(host)), Ipv6Addr::from(0xfe80 << 112 | u128::from(target)));
        let source = with_mac.then_some(mac);
        let lladdr = source.map(|mac| oracle::RawHardwareAddress::from(oracle::EthernetAddress(mac.0)));
        let advert = Message::NeighbourAdvert {
            target: dst,
            target_mac: source,
            router: bits & 4 != 0,
            solicited: bits & 2 != 0,
            override_flag: bits & 1 != 0,
        };
        let flags = oracle::NdiscNeighborFlags::from_bits_truncate(bits << 5);
        let pairs = [
            (Message::RouterSolicit { source }, oracle::NdiscRepr::RouterSolicit { lladdr }),
            (
                Message::NeighbourSolicit { target: dst, source },
                oracle::NdiscRepr::NeighborSolicit { target_addr: dst, lladdr },
            ),
            (advert, oracle::NdiscRepr::NeighborAdvert { flags, target_addr: dst, lladdr }),
        ];
        for (ours, theirs) in pairs {
            let repr = oracle::Icmpv6Repr::Ndisc(theirs);
            let mut expected = vec![0; repr.buffer_len()];
            let caps = ChecksumCapabilities::default();
            repr.emit(&src, &dst, &mut oracle::Icmpv6Packet::new_unchecked(&mut expected[..]), &caps);
            let mut out = vec![0xee; ours.header_len()];
            ours.emit(src, dst, &mut out);
            prop_assert_eq!(&out, &expected);
            prop_assert_eq!(icmpv6::parse(&expected, src, dst), Ok(ours));
        }
    }

    #[test]
    fn sums_are_smoltcps_sums(bytes in vec(any::<u8>(), 0..2000)) {
        prop_assert_eq!(checksum::sum(&bytes).fold(), oracle::checksum::data(&bytes));
    }
}

/// A router advertisement as smoltcp writes it, with one prefix.
#[test]
fn router_advertisement() {
    let (src, dst) = (Ipv6Addr::from(0xfe80 << 112 | 1), Ipv6Addr::from(0xff02 << 112 | 1));
    let prefix = Ipv6Addr::from(0x2001_0db8 << 96);
    let repr = oracle::Icmpv6Repr::Ndisc(oracle::NdiscRepr::RouterAdvert {
        hop_limit: 64,
        flags: oracle::NdiscRouterFlags::MANAGED,
        router_lifetime: smoltcp::time::Duration::from_secs(1800),
        reachable_time: smoltcp::time::Duration::from_millis(30_000),
        retrans_time: smoltcp::time::Duration::from_millis(1000),
        lladdr: Some(oracle::EthernetAddress([2, 0, 0, 0, 0, 1]).into()),
        mtu: Some(1400),
        prefix_info: Some(oracle::NdiscPrefixInformation {
            prefix_len: 64,
            flags: oracle::NdiscPrefixInfoFlags::ADDRCONF,
            valid_lifetime: smoltcp::time::Duration::from_secs(600),
            preferred_lifetime: smoltcp::time::Duration::from_secs(300),
            prefix,
        }),
    });
    let mut bytes = vec![0; repr.buffer_len()];
    let caps = ChecksumCapabilities::default();
    repr.emit(&src, &dst, &mut oracle::Icmpv6Packet::new_unchecked(&mut bytes[..]), &caps);
    let mut prefixes = icmpv6::Prefixes::EMPTY;
    prefixes.push(icmpv6::PrefixInfo {
        prefix,
        prefix_len: 64,
        on_link: false,
        autonomous: true,
        valid_lifetime: 600,
        preferred_lifetime: 300,
    });
    let expected = icmpv6::RouterAdvert {
        hop_limit: 64,
        managed: true,
        other_config: false,
        router_lifetime: 1800,
        reachable_time: 30_000,
        retrans_timer: 1000,
        source: Some(MacAddr([2, 0, 0, 0, 0, 1])),
        mtu: Some(1400),
        prefixes,
    };
    assert_eq!(icmpv6::parse(&bytes, src, dst), Ok(Message::RouterAdvert(expected)));
}
