//! A whole stack on an FDDI ring: its frames byte for byte as RFC 1390 and RFC 2467 give them, in both directions, and a
//! reason for each frame that is none of IP or ARP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use dev::mem::MemConfig;
use every_arch::every_arch;
use observe::DropReason;
use pktbuf::PktBuf;
use stack::{Addressing, Architecture};
use sync::Real;
use testbed::frames::{Body, Datagram, Ends, Frame, Icmp, PEER, PEER_MAC, PEER6, STACK, STACK_MAC, STACK6};
use testbed::node::{Node, NodeConfig};
use wire::arp::{Operation, Packet as ArpPacket};
use wire::ethernet::{EtherType, MacAddr};
use wire::icmpv6::Message;
use wire::ipv6;

/// Where frame control, LLC and SNAP are in a frame.
const FRAME_CONTROL: usize = 0;
const SERVICE_POINT: usize = 13;
const CONTROL: usize = 15;
const ORGANISATION: usize = 16;
const TYPE: usize = 19;

fn node(arch: Architecture) -> Node<Real> {
    Node::new(NodeConfig { link: MemConfig::fddi(), ..NodeConfig::new(arch) })
}

/// The header of a frame of the stack: "asynchronous", priority 0, "LLC", 48-bit addresses; SNAP; no organisation.
fn header(dst: [u8; 6], ethertype: [u8; 2]) -> Vec<u8> {
    [&[0x50][..], &dst, &STACK_MAC.0, &[0xaa, 0xaa, 0x03], &[0, 0, 0], &ethertype].concat()
}

fn arp(op: Operation, dst: MacAddr) -> Frame<'static> {
    Frame::new(PEER_MAC, dst, ArpPacket { op, sha: PEER_MAC, spa: PEER, tha: STACK_MAC, tpa: STACK })
}

/// Delivers a frame; the stack answers with one frame.
#[track_caller]
fn answer(node: &mut Node<Real>, frame: &[u8]) -> Vec<u8> {
    node.put(frame);
    let mut sent = node.settle();
    assert_eq!(sent.len(), 1, "{sent:02x?}");
    sent.remove(0)
}

fn echo(ends: Ends) -> Vec<u8> {
    ends.frame(ends.packet(Icmp::echo_request(ends.src.is_ipv6(), b"across the ring"))).fddi_bytes()
}

/// RFC 1390, "Address Resolution Protocol": hardware type 1, hardware addresses of six bytes in the same order as in the
/// frame's header, which on the ring itself is another one.
#[every_arch]
fn a_request_of_arp_is_answered_with_hardware_type_1(arch: Architecture) {
    let mut node = node(arch);
    let reply = answer(&mut node, &arp(Operation::Request, MacAddr::BROADCAST).fddi_bytes());
    let packet = [&[0, 1, 8, 0, 6, 4, 0, 2][..], &STACK_MAC.0, &STACK.octets(), &PEER_MAC.0, &PEER.octets()].concat();
    assert_eq!(reply, [header(PEER_MAC.0, [0x08, 0x06]), packet].concat());
}

#[every_arch]
fn an_echo_of_each_family_comes_back(arch: Architecture) {
    let mut node = node(arch);
    answer(&mut node, &arp(Operation::Request, MacAddr::BROADCAST).fddi_bytes());
    let reply = answer(&mut node, &echo(Ends::PEER_TO_STACK));
    assert_eq!(reply[..21], header(PEER_MAC.0, [0x08, 0x00]));
    assert_eq!((reply[21 + 9], &reply[21 + 20..21 + 22], &reply[49..]), (1, &[0, 0][..], &b"across the ring"[..]));

    // The solicitation is sent to the group 33-33-ff-xx-xx-xx (RFC 2467 section 7), and its answer to the peer.
    let group = ipv6::solicited_node(STACK6);
    let solicit = Message::NeighbourSolicit { target: STACK6, source: Some(PEER_MAC) };
    let ends = Ends::PEER_TO_STACK_V6.to(group);
    assert_eq!(ends.dst_mac.0[..3], [0x33, 0x33, 0xff]);
    let advert = answer(&mut node, &discovery(ends, &solicit).fddi_bytes());
    assert_eq!(advert[..21], header(PEER_MAC.0, [0x86, 0xdd]));
    // Target link-layer address: one unit of eight bytes, with the address in canonical order (RFC 2467 section 6).
    assert_eq!(advert[advert.len() - 8..], [&[2, 1][..], &STACK_MAC.0].concat());
    let reply = answer(&mut node, &echo(Ends::PEER_TO_STACK_V6));
    assert_eq!(reply[..21], header(PEER_MAC.0, [0x86, 0xdd]));
    assert_eq!((reply[21 + 6], reply[21 + 40], &reply[69..]), (58, 129, &b"across the ring"[..]));
}

/// A message of neighbour discovery between these ends.
fn discovery(ends: Ends, message: &Message) -> Frame<'static> {
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (ends.src, ends.dst) else { panic!("discovery is of IPv6") };
    let ethernet = testbed::frames::neighbour_discovery(src, dst, message);
    let packet: &'static [u8] = ethernet[14..].to_vec().leak();
    ends.frame(Body::Other(EtherType::Ipv6, packet))
}

/// The stack asks for its neighbours: broadcast, and to the solicited-node group.
#[every_arch]
fn neighbours_are_found_by_arp_and_by_discovery(arch: Architecture) {
    let mut node = node(arch);
    let send = |node: &mut Node<Real>, from: IpAddr, to: IpAddr| {
        let socket = node.stack.bind_udp((from, 4711).into()).expect("the port is free");
        let data = PktBuf::from_slice(b"datagram").expect("a packet buffer");
        node.stack.send_udp(&socket, data, Some((to, 53).into())).expect("it is taken");
        node.settle()
    };
    let asked = send(&mut node, STACK.into(), PEER.into());
    let packet = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &STACK_MAC.0, &STACK.octets(), &[0; 6], &PEER.octets()].concat();
    assert_eq!(asked, [[header([0xff; 6], [0x08, 0x06]), packet].concat()]);
    let sent = answer(&mut node, &arp(Operation::Reply, STACK_MAC).fddi_bytes());
    assert_eq!((&sent[..21], &sent[49..]), (&header(PEER_MAC.0, [0x08, 0x00])[..], &b"datagram"[..]));

    let asked = send(&mut node, STACK6.into(), PEER6.into());
    let [.., x, y, z] = PEER6.octets();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0][..21], header([0x33, 0x33, 0xff, x, y, z], [0x86, 0xdd]));
    let advert = Message::NeighbourAdvert {
        target: PEER6,
        target_mac: Some(PEER_MAC),
        router: false,
        solicited: true,
        override_flag: true,
    };
    let sent = answer(&mut node, &discovery(Ends::PEER_TO_STACK_V6, &advert).fddi_bytes());
    assert_eq!((&sent[..21], &sent[69..]), (&header(PEER_MAC.0, [0x86, 0xdd])[..], &b"datagram"[..]));
}

/// Every priority of received frames is accepted (frame control 0x50 to 0x57), and bytes after the packet are ignored.
#[every_arch]
fn a_frame_of_any_priority_is_received(arch: Architecture) {
    let mut node = node(arch);
    answer(&mut node, &arp(Operation::Request, MacAddr::BROADCAST).fddi_bytes());
    for priority in 0..8 {
        let mut frame = echo(Ends::PEER_TO_STACK);
        frame[FRAME_CONTROL] |= priority;
        frame.extend([0; 3]);
        let reply = answer(&mut node, &frame);
        assert_eq!((reply[FRAME_CONTROL], &reply[49..]), (0x50, &b"across the ring"[..]));
    }
}

/// One byte of a good frame is changed, and nothing is answered.
#[every_arch]
fn other_frames_of_the_ring_are_dropped_with_a_reason(arch: Architecture) {
    let group = [STACK_MAC.0[0] | 1, 0, 0, 0, 0, 0];
    let cases: [(&str, usize, &[u8], DropReason); 13] = [
        ("synchronous LLC", FRAME_CONTROL, &[0xd0], DropReason::FddiFrameControl),
        ("16-bit addresses", FRAME_CONTROL, &[0x10], DropReason::FddiFrameControl),
        ("station management", FRAME_CONTROL, &[0x41], DropReason::FddiFrameControl),
        ("a claim frame of the MAC", FRAME_CONTROL, &[0xc3], DropReason::FddiFrameControl),
        ("implementer", FRAME_CONTROL, &[0x60], DropReason::FddiFrameControl),
        ("reserved bit", FRAME_CONTROL, &[0x58], DropReason::FddiFrameControl),
        ("spanning tree", SERVICE_POINT, &[0x42, 0x42], DropReason::LlcUnsupported),
        ("source service point", SERVICE_POINT + 1, &[0xab], DropReason::LlcUnsupported),
        ("XID", CONTROL, &[0xaf], DropReason::LlcUnsupported),
        ("AppleTalk's organisation", ORGANISATION, &[0x08, 0x00, 0x07], DropReason::SnapUnknownOrganisation),
        ("another type", TYPE, &[0x81, 0x37], DropReason::UnknownEtherType),
        ("below the types", TYPE, &[0x00, 0x40], DropReason::UnknownEtherType),
        ("a source route", 7, &group, DropReason::FrameBadSource),
    ];
    let mut node = node(arch);
    for (name, at, bytes, reason) in cases {
        let mut frame = echo(Ends::PEER_TO_STACK);
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        let before = dropped(&node, reason);
        node.put(&frame);
        assert_eq!(node.settle(), [[0; 0]; 0], "{name}");
        assert_eq!(dropped(&node, reason) - before, 1, "{name}");
    }
    let before = dropped(&node, DropReason::NotForUs);
    node.put(&Ends::PEER_TO_STACK.to_mac(PEER_MAC).frame(Body::Other(EtherType::Ipv4, &[0; 20])).fddi_bytes());
    assert_eq!(node.settle(), [[0; 0]; 0]);
    assert_eq!(dropped(&node, DropReason::NotForUs) - before, 1);
}

fn dropped(node: &Node<Real>, reason: DropReason) -> u64 {
    (node.stack.stats().counters + node.driver.counters().snapshot()).dropped(reason)
}

/// A frame without tag on an FDDI ring: a type of 802.1Q is none of IP or ARP, and no header is looked for behind it.
#[every_arch]
fn a_tag_is_no_header_of_fddi(arch: Architecture) {
    let mut node = node(arch);
    let mut frame = echo(Ends::PEER_TO_STACK);
    frame.splice(TYPE..TYPE, [0x81, 0x00, 0x00, 0x00]);
    let before = dropped(&node, DropReason::UnknownVlan);
    node.put(&frame);
    assert_eq!(node.settle(), [[0; 0]; 0]);
    assert_eq!(dropped(&node, DropReason::UnknownVlan) - before, 1);
}

/// Addresses are tested on the ring (ARP probes, neighbour solicitations), groups are reported to their link addresses,
/// and the interface identifier is the EUI-64 of the address (RFC 2467 section 4).
#[every_arch]
fn addresses_are_tested_and_groups_reported_as_on_ethernet(arch: Architecture) {
    let addressing = Addressing { from_routers: true, ..Addressing::default() };
    let mut node = Node::<Real>::new(NodeConfig { link: MemConfig::fddi(), addressing, ..NodeConfig::new(arch) });
    let mut sent = node.settle();
    for _ in 0..200 {
        node.clock.advance(Duration::from_millis(50));
        sent.extend(node.settle());
    }
    let [a, b, c, d, e, f] = STACK_MAC.0;
    let own: Ipv6Addr = Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    let all_routers = header([0x33, 0x33, 0, 0, 0, 2], [0x86, 0xdd]);
    let router_solicit = sent.iter().find(|frame| frame[..21] == all_routers).expect("a router solicitation");
    assert_eq!(router_solicit[21 + 8..21 + 24], own.octets());
    let probe = header([0xff; 6], [0x08, 0x06]);
    assert!(sent.iter().any(|frame| frame[..21] == probe && frame[21 + 14..21 + 18] == [0; 4]), "an ARP probe");
    let tested = header([0x33, 0x33, 0xff, d, e, f], [0x86, 0xdd]);
    assert!(sent.iter().any(|frame| frame[..21] == tested && frame[21 + 8..21 + 24] == [0; 16]), "a test of `own`");

    let group = Ipv4Addr::new(224, 1, 2, 3);
    let socket = node.stack.bind_udp((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 4711).into()).expect("the port is free");
    node.stack.join_group(&socket, group.into(), None).expect("it joins");
    let sent = node.settle();
    // IGMPv3 reports are sent to 224.0.0.22 (RFC 3376 section 4.2.14).
    assert_eq!(sent.first().map(|frame| &frame[..21]), Some(&header([0x01, 0, 0x5e, 0, 0, 22], [0x08, 0x00])[..]));
    let ends = Ends::PEER_TO_STACK.to(group);
    let datagram = ends.frame(ends.packet(Datagram::new(53, 4711, b"to the group"))).fddi_bytes();
    assert_eq!(datagram[1..7], [0x01, 0, 0x5e, 1, 2, 3]);
    node.put(&datagram);
    node.settle();
    let received = node.stack.receive_udp(&socket).expect("a member receives it");
    assert_eq!(&received.buf[..], b"to the group");
}
