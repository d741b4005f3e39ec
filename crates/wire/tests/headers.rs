//! [`Headers`] agrees with the parsers of the crate: for valid frames, for all their prefixes, for frames with bytes
//! changed at random, and for noise; over both families, with and without a tag, over FDDI, and without a link.

use frames::{Body, Datagram, Ends, Frame, Icmp, Segment, TcpOptions};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::ethernet::{self, EtherType, VlanTag};
use wire::{FourTuple, Framing, Headers, fddi, ipv4, ipv6, protocol, tcp, udp};

/// The parsers' result for a frame: network header, transport header, data, end, and the flow.
#[derive(Debug, PartialEq)]
struct Found {
    v6: bool,
    network: usize,
    flow: Option<(usize, usize, usize, u8, FourTuple)>,
}

fn parsed(framing: Framing, frame: &[u8]) -> Option<Found> {
    let (ethertype, network) = match framing {
        Framing::Ethernet => ethernet::parse(frame).ok().map(|(header, at)| (header.ethertype, at))?,
        Framing::Fddi => fddi::parse(frame).ok().map(|header| (header.ethertype, fddi::HEADER_LEN))?,
        Framing::Packet => match frame.first()? >> 4 {
            4 => (EtherType::Ipv4, 0),
            6 => (EtherType::Ipv6, 0),
            _ => return None,
        },
    };
    let packet = frame.get(network..)?;
    match ethertype {
        EtherType::Ipv4 => Some(Found { v6: false, network, flow: parsed_v4(network, packet) }),
        EtherType::Ipv6 => Some(Found { v6: true, network, flow: parsed_v6(network, packet) }),
        _ => None,
    }
}

type Flow = (usize, usize, usize, u8, FourTuple);

fn parsed_v4(network: usize, packet: &[u8]) -> Option<Flow> {
    let header = ipv4::parse_unverified(packet).ok().filter(|header| !header.is_fragment())?;
    let (from, to) = (usize::from(header.header_len), usize::from(header.total_len));
    let (data, ports) = parsed_transport(header.protocol, packet.get(from..to)?)?;
    let tuple = FourTuple {
        local_addr: header.dst.into(),
        remote_addr: header.src.into(),
        local_port: ports.1,
        remote_port: ports.0,
    };
    Some((network + from, network + from + data, network + to, header.protocol, tuple))
}

fn parsed_v6(network: usize, packet: &[u8]) -> Option<Flow> {
    let header = ipv6::parse(packet).ok()?;
    let to = ipv6::HEADER_LEN + usize::from(header.payload_len);
    let (data, ports) = parsed_transport(header.next_header, packet.get(ipv6::HEADER_LEN..to)?)?;
    let tuple = FourTuple {
        local_addr: header.dst.into(),
        remote_addr: header.src.into(),
        local_port: ports.1,
        remote_port: ports.0,
    };
    let transport = network + ipv6::HEADER_LEN;
    Some((transport, transport + data, network + to, header.next_header, tuple))
}

/// Bytes of the transport header, and the ports. UDP checks the length of a datagram itself.
fn parsed_transport(transport: u8, bytes: &[u8]) -> Option<(usize, (u16, u16))> {
    let port = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    match transport {
        protocol::TCP => {
            let header = tcp::parse(bytes).ok()?;
            Some((header.header_len.into(), (header.src_port, header.dst_port)))
        }
        protocol::UDP if bytes.len() >= udp::HEADER_LEN => Some((udp::HEADER_LEN, (port(0)?, port(2)?))),
        _ => None,
    }
}

fn carried(framing: Framing, frame: &[u8]) -> Option<Found> {
    let headers = Headers::of(framing, frame);
    let flow = headers.receiver_tuple(frame).map(|tuple| {
        let protocol = if headers.is_tcp() { protocol::TCP } else { protocol::UDP };
        (headers.transport(), headers.payload(), headers.end(), protocol, tuple)
    });
    assert_eq!(flow.is_some(), headers.has_flow());
    assert_eq!(headers.has_flow(), headers.is_tcp() || headers.is_udp());
    let found = Found { v6: headers.is_v6(), network: headers.network(), flow };
    (headers.is_v4() || headers.is_v6()).then_some(found)
}

#[track_caller]
fn agree(frame: &[u8]) {
    for framing in [Framing::Ethernet, Framing::Fddi, Framing::Packet] {
        assert_eq!(carried(framing, frame), parsed(framing, frame), "{framing:?} {frame:02x?}");
    }
}

const TAG: VlanTag = VlanTag { priority: 5, drop_eligible: false, id: 0 };

/// Frames of every kind, over both families, followed by link padding; and the same without their link headers.
fn all_kinds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for ends in Ends::BOTH_FAMILIES {
        let (v6, ethertype) = family(ends);
        let segment =
            Segment::data((40_000, 80), 1, 1, b"data that is cut in two").options(TcpOptions::new(TIMESTAMPS));
        all.push(ends.bytes(segment));
        all.push(ends.bytes(Segment::syn(40_000, 80).options(TcpOptions::new(MSS))));
        all.push(ends.bytes(Datagram::new(4711, 53, b"question")));
        all.push(ends.bytes(Datagram::new(4711, 53, b"")));
        all.push(ends.bytes(Icmp::echo_request(v6, b"ping")));
        for piece in ends.packet(segment).pieces(7, if v6 { 80 } else { 60 }) {
            all.push(ends.frame(Body::Other(ethertype, &piece)).bytes());
        }
        all.push(ends.frame(ends.packet(segment)).fddi_bytes());
        all.push(ends.frame(ends.packet(Datagram::new(4711, 53, b"question"))).fddi_bytes());
        all.push(Frame { tags: &[TAG], ..ends.frame(ends.packet(segment)) }.bytes());
        all.push(Frame { tags: &[TAG, TAG], ..ends.frame(ends.packet(segment)) }.bytes());
    }
    let padded: Vec<Vec<u8>> = all.iter().map(|frame| [&frame[..], &[0; 9]].concat()).collect();
    let bare: Vec<Vec<u8>> = all.iter().map(|frame| frame[ethernet::HEADER_LEN..].to_vec()).collect();
    [all, padded, bare].concat()
}

const MSS: &[u8] = &[2, 4, 5, 0xb4];
const TIMESTAMPS: &[u8] = &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];

fn family(ends: Ends) -> (bool, EtherType) {
    if ends.src.is_ipv6() { (true, EtherType::Ipv6) } else { (false, EtherType::Ipv4) }
}

#[test]
fn headers_are_where_the_parsers_find_them() {
    let all = all_kinds();
    let flows = all.iter().filter(|frame| Headers::of_frame(frame).has_flow()).count();
    assert!(flows >= 16, "segments and datagrams of both families have flows, not {flows}");
    for frame in &all {
        (0..=frame.len()).for_each(|len| agree(&frame[..len]));
    }
}

#[test]
fn a_tag_shifts_headers_by_four_bytes_and_fddi_by_seven() {
    for ends in Ends::BOTH_FAMILIES {
        let packet = ends.packet(Segment::data((1, 2), 1, 1, b"data"));
        let v6 = ends.src.is_ipv6();
        let plain = Headers::of_frame(&ends.frame(packet).bytes());
        let tagged = Headers::of_frame(&Frame { tags: &[TAG], ..ends.frame(packet) }.bytes());
        let fddi = Headers::of(Framing::Fddi, &ends.frame(packet).fddi_bytes());
        assert!(fddi.is_tcp() && !fddi.is_plain_v4() && !fddi.is_plain_v6() && !fddi.is_tagged());
        let packet = packet.bytes();
        let bare = Headers::of_packet(&packet);
        assert!(plain.is_plain_v4() != plain.is_plain_v6() && tagged.is_tagged() && !plain.is_tagged());
        assert!(!tagged.is_plain_v4() && !tagged.is_plain_v6() && !bare.is_plain_v4() && !bare.is_plain_v6());
        assert!(fddi.is_plain_fddi_v4() != fddi.is_plain_fddi_v6() && fddi.is_plain_fddi_v4() == plain.is_plain_v4());
        assert!([plain, tagged, bare].iter().all(|it| !it.is_plain_fddi_v4() && !it.is_plain_fddi_v6()));
        for (headers, network) in [(plain, 14), (tagged, 18), (fddi, 21), (bare, 0)] {
            let offsets = [headers.transport(), headers.payload(), headers.end()].map(|at| at - network);
            let header = if v6 { 40 } else { 20 };
            assert_eq!((headers.network(), offsets), (network, [header, header + 20, packet.len()]));
        }
    }
}

/// The hint that a segment is followed by another holds for frames of FDDI of one connection only.
#[test]
fn segments_of_a_connection_continue_over_fddi() {
    for ends in Ends::BOTH_FAMILIES {
        let frame = |from, at| ends.frame(ends.packet(Segment::data((from, 2), at, 1, b"data"))).fddi_bytes();
        let follows = |next: &[u8]| {
            let first = frame(1, 1);
            Headers::of(Framing::Fddi, &first).continues(&first, (Headers::of(Framing::Fddi, next), next))
        };
        assert!(follows(&frame(1, 5)) && !follows(&frame(3, 5)));
    }
}

proptest! {
    #[test]
    fn changed_bytes_are_found_as_the_parsers_find_them(
        kind in any::<prop::sample::Index>(),
        changes in vec((0usize..64, any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut frame = kind.get(&all_kinds()).clone();
        let len = frame.len();
        for (at, value) in changes {
            frame[at % len] = value;
        }
        agree(&frame);
        agree(&frame[..cut.index(len)]);
    }

    #[test]
    fn noise_is_found_as_the_parsers_find_it(mut frame in vec(any::<u8>(), 0..120), ethertype in 0usize..4) {
        if let (Some(field), Some(value)) = (frame.get_mut(12..14), [[8, 0], [0x86, 0xdd], [0x81, 0]].get(ethertype)) {
            field.copy_from_slice(value);
        }
        agree(&frame);
    }
}
