//! Shorthands for frames from a host at [`PEER`] to the stack at [`STACK`], and for parsing the answers.

use wire::ethernet::{self, EtherType, MacAddr};
use wire::icmpv6::Message;
use wire::{arp, icmpv4, ipv4, protocol, tcp};

pub use frames::*;

const L3: usize = ethernet::HEADER_LEN;

/// A UDP datagram from the peer.
pub fn datagram(from: u16, to: u16, data: &[u8]) -> Vec<u8> {
    Datagram::new(from, to, data).frame()
}

/// An ICMP message from the peer about `offending`, a frame that the stack sent.
pub fn icmp_error(message: icmpv4::Message, offending: &[u8]) -> Vec<u8> {
    let quoted = &offending[L3..offending.len().min(L3 + ipv4::HEADER_LEN + 8)];
    let mut body = vec![0; icmpv4::HEADER_LEN];
    body.extend_from_slice(quoted);
    message.emit(&mut body);
    Ends::PEER_TO_STACK.bytes(Payload::Other(protocol::ICMP, &body))
}

/// The peer requests the stack's link address, which announces its own.
pub fn arp_request() -> Vec<u8> {
    let tha = MacAddr::UNSPECIFIED;
    arp_frame(arp::Packet { op: arp::Operation::Request, sha: PEER_MAC, spa: PEER, tha, tpa: STACK })
}

/// The peer solicits the stack's link address over IPv6, which announces its own.
pub fn neighbour_solicitation() -> Vec<u8> {
    neighbour_discovery(PEER6, STACK6, &Message::NeighbourSolicit { target: STACK6, source: Some(PEER_MAC) })
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
    wanted.then(|| arp_frame(reply))
}

fn arp_frame(packet: arp::Packet) -> Vec<u8> {
    Ends::PEER_TO_STACK.frame(packet).bytes()
}

/// Whether `frame` carries ARP.
pub fn is_arp(frame: &[u8]) -> bool {
    ethernet::parse(frame).is_ok_and(|(header, _)| header.ethertype == EtherType::Arp)
}

/// The TCP header and the data in an IPv4 or IPv6 frame.
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
