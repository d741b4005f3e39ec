//! Frames by hand: what a host at [`PEER`] sends to the stack at [`STACK`], and what it reads of the answers.

use std::net::{IpAddr, Ipv4Addr};

use wire::ethernet::{EtherType, MacAddr};
use wire::tcp::{Options, TcpFlags};
use wire::{SeqNumber, arp, checksum, ethernet, icmpv4, ipv4, protocol, tcp, udp};

/// The stack under test.
pub const STACK: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The host that the test plays.
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The stack's link address: that of the first port of a pair.
pub const STACK_MAC: MacAddr = MacAddr([0x02, 0x68, 0x65, 0x64, 0x00, 0x0a]);
/// The peer's link address: that of the second port.
pub const PEER_MAC: MacAddr = MacAddr([0x02, 0x68, 0x65, 0x64, 0x00, 0x0b]);

const L3: usize = ethernet::HEADER_LEN;
const L4: usize = L3 + ipv4::HEADER_LEN;

/// A TCP segment from the peer.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The peer's port and the stack's.
    pub ports: (u16, u16),
    /// Control bits.
    pub flags: TcpFlags,
    /// SEG.SEQ.
    pub seq: u32,
    /// SEG.ACK.
    pub ack: u32,
    /// The text.
    pub text: &'a [u8],
}

impl Segment<'_> {
    /// A SYN that begins a connection.
    pub fn syn(from: u16, to: u16) -> Self {
        Segment { ports: (from, to), flags: TcpFlags::SYN, seq: ISS, ack: 0, text: &[] }
    }

    /// The frame, checksums right, without options and with the widest window.
    pub fn frame(&self) -> Vec<u8> {
        let header = tcp::Header {
            src_port: self.ports.0,
            dst_port: self.ports.1,
            seq: SeqNumber(self.seq),
            ack: SeqNumber(self.ack),
            flags: self.flags,
            window: 0xffff,
            urgent: 0,
            header_len: 20,
            options: Options::NONE,
        };
        let mut transport = vec![0; header.emitted_len()];
        header.emit(&mut transport);
        transport.extend_from_slice(self.text);
        finish(&mut transport, protocol::TCP, tcp::CHECKSUM_OFFSET);
        packet(protocol::TCP, &transport)
    }
}

/// The peer's initial sequence number.
pub const ISS: u32 = 0x1234_5678;

/// A UDP datagram from the peer.
pub fn datagram(from: u16, to: u16, text: &[u8]) -> Vec<u8> {
    let len = (udp::HEADER_LEN + text.len()) as u16;
    let mut transport = vec![0; udp::HEADER_LEN];
    transport[..2].copy_from_slice(&from.to_be_bytes());
    transport[2..4].copy_from_slice(&to.to_be_bytes());
    transport[4..6].copy_from_slice(&len.to_be_bytes());
    transport.extend_from_slice(text);
    finish(&mut transport, protocol::UDP, 6);
    packet(protocol::UDP, &transport)
}

/// An ICMP message from the peer about `offending`, a frame that the stack sent.
pub fn icmp_error(message: icmpv4::Message, offending: &[u8]) -> Vec<u8> {
    let quoted = &offending[L3..offending.len().min(L4 + 8)];
    let mut body = vec![0; icmpv4::HEADER_LEN];
    body.extend_from_slice(quoted);
    message.emit(&mut body);
    packet(protocol::ICMP, &body)
}

/// The peer asks for the stack's link address, and so tells its own.
pub fn arp_request() -> Vec<u8> {
    let request =
        arp::Packet { op: arp::Operation::Request, sha: PEER_MAC, spa: PEER, tha: MacAddr::UNSPECIFIED, tpa: STACK };
    arp_frame(&request)
}

/// The answer to `frame`, if that is an ARP request for the peer.
pub fn arp_reply(frame: &[u8]) -> Option<Vec<u8>> {
    let (header, start) = ethernet::parse(frame).ok()?;
    if header.ethertype != EtherType::Arp {
        return None;
    }
    let request = arp::parse(&frame[start..]).ok()?;
    let wanted = request.op == arp::Operation::Request && request.tpa == PEER;
    let reply = arp::Packet { op: arp::Operation::Reply, sha: PEER_MAC, spa: PEER, tha: request.sha, tpa: request.spa };
    wanted.then(|| arp_frame(&reply))
}

/// Whether `frame` carries ARP.
pub fn is_arp(frame: &[u8]) -> bool {
    ethernet::parse(frame).is_ok_and(|(header, _)| header.ethertype == EtherType::Arp)
}

/// The TCP header and the text in an IPv4 or IPv6 frame.
pub fn tcp_of(frame: &[u8]) -> Option<(tcp::Header, &[u8])> {
    let (header, start) = ethernet::parse(frame).ok()?;
    let transport = match header.ethertype {
        EtherType::Ipv4 => {
            let ip = ipv4::parse(&frame[start..]).ok()?;
            let end = start + usize::from(ip.total_len);
            (ip.protocol == protocol::TCP && !ip.is_fragment())
                .then(|| &frame[start + usize::from(ip.header_len)..end])?
        }
        EtherType::Ipv6 => {
            let ip = wire::ipv6::parse(&frame[start..]).ok()?;
            let from = start + wire::ipv6::HEADER_LEN;
            (ip.next_header == protocol::TCP).then(|| &frame[from..from + usize::from(ip.payload_len)])?
        }
        _ => return None,
    };
    let header = tcp::parse(transport).ok()?;
    Some((header, &transport[usize::from(header.header_len)..]))
}

fn arp_frame(packet: &arp::Packet) -> Vec<u8> {
    let mut frame = vec![0; L3 + arp::PACKET_LEN];
    link(&mut frame, EtherType::Arp);
    packet.emit((&mut frame[L3..]).try_into().expect("the frame was made this long"));
    frame
}

fn link(frame: &mut [u8], ethertype: EtherType) {
    let header = ethernet::Header { dst: STACK_MAC, src: PEER_MAC, ethertype };
    header.emit((&mut frame[..L3]).try_into().expect("a frame begins with its link header"));
}

fn finish(transport: &mut [u8], protocol: u8, field: usize) {
    let (from, to) = (IpAddr::V4(PEER), IpAddr::V4(STACK));
    let pseudo = checksum::pseudo_header(from, to, protocol, transport.len() as u32);
    let sum = pseudo.add(checksum::sum(transport)).finish();
    transport[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

fn packet(protocol: u8, transport: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; L4];
    link(&mut frame, EtherType::Ipv4);
    let header = ipv4::Header {
        src: PEER,
        dst: STACK,
        protocol,
        ttl: 64,
        tos: 0,
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        header_len: ipv4::HEADER_LEN as u8,
        total_len: (ipv4::HEADER_LEN + transport.len()) as u16,
    };
    header.emit((&mut frame[L3..L4]).try_into().expect("the frame was made this long"));
    frame.extend_from_slice(transport);
    frame
}
