//! The frames a peer sends, and the byte pattern that its data follow.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;

use observe::DropReason;
use pktbuf::{Checksum, PktBuf};
use wire::ethernet::{EtherType, MacAddr};
use wire::{FourTuple, Framing, arp, checksum, ethernet, fddi, icmpv6, ipv4, ipv6, protocol, tcp, udp};

use crate::mem::MemConfig;

/// Period of the pattern: a prime, so that a loss or repetition of a power of two of bytes is detected.
const PERIOD: usize = 251;
/// Longest run of data in one frame.
pub const LONGEST_DATA: usize = 65_535;

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| (0..LONGEST_DATA + PERIOD).map(|i| (i % PERIOD) as u8).collect());

/// The `len` bytes (at most 65,535) at `offset` of the stream that every source sends: byte k is k mod 251.
pub fn pattern(offset: u64, len: usize) -> &'static [u8] {
    let start = (offset % PERIOD as u64) as usize;
    &PATTERN[start..start + len]
}

/// Builds frames from the peer to the stack.
#[derive(Clone, Debug)]
pub struct Frames {
    /// The link's framing.
    pub framing: Framing,
    /// The peer's hardware address.
    pub mac: MacAddr,
    /// The stack's hardware address.
    pub stack_mac: MacAddr,
    /// Checksums are left out and frames marked as verified, as by receive checksum offload.
    pub verified: bool,
}

impl Frames {
    /// From the peer's end of a link to the stack's.
    pub fn between(link: &MemConfig) -> Frames {
        let MemConfig { framing, mac_a: stack_mac, mac_b: mac, checksum_offload: verified, .. } = *link;
        Frames { framing, mac, stack_mac, verified }
    }

    /// A TCP segment of the connection `tuple` (local: the peer). A `segment_size` above 0 marks a super-segment.
    pub fn tcp(&self, tuple: &FourTuple, header: &tcp::Header, data: &[u8], segment_size: u16) -> Option<PktBuf> {
        let header_len = header.emitted_len();
        let network_len = if tuple.local_addr.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let l4 = self.framing.header_len() + network_len;
        let mut frame = PktBuf::alloc(l4 + header_len + data.len())?;
        let head = frame.append(l4 + header_len);
        header.emit(&mut head[l4..]);
        let transport_len = header_len + data.len();
        self.link_and_network(&mut head[..l4], tuple.local_addr, tuple.remote_addr, protocol::TCP, transport_len);
        if self.verified {
            frame.append(data.len()).copy_from_slice(data);
            frame.meta_mut().checksum = Checksum::Verified;
        } else {
            let data_sum = pktbuf::copy_and_sum(frame.append(data.len()), data);
            let sum = checksum::pseudo_header(tuple.local_addr, tuple.remote_addr, protocol::TCP, transport_len as u32)
                .add(checksum::sum(&frame[l4..l4 + header_len]))
                .add(data_sum);
            let field = l4 + tcp::CHECKSUM_OFFSET;
            frame[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
        }
        frame.meta_mut().segment_size = segment_size;
        Some(frame)
    }

    /// A datagram from the first of these to the second, both of one family. With a checksum, unless the stack's end verifies
    /// none and it may be left out: over IPv6 a datagram without one is invalid (RFC 8200 section 8.1).
    pub fn udp(&self, from: SocketAddr, to: SocketAddr, data: &[u8]) -> Option<PktBuf> {
        let network_len = if from.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let (l4, len) = (self.framing.header_len() + network_len, udp::HEADER_LEN + data.len());
        let mut frame = PktBuf::alloc(l4 + len)?;
        let head = frame.append(l4 + udp::HEADER_LEN);
        self.link_and_network(&mut head[..l4], from.ip(), to.ip(), protocol::UDP, len);
        for (at, word) in [(0, from.port()), (2, to.port()), (4, len as u16), (6, 0)] {
            head[l4 + at..l4 + at + 2].copy_from_slice(&word.to_be_bytes());
        }
        frame.append(data.len()).copy_from_slice(data);
        if self.verified {
            frame.meta_mut().checksum = Checksum::Verified;
        }
        if !self.verified || from.is_ipv6() {
            let pseudo = checksum::pseudo_header(from.ip(), to.ip(), protocol::UDP, len as u32);
            let sum = pseudo.add(checksum::sum(&frame[l4..])).finish();
            // RFC 768: zero says that there is none.
            let sum = if sum == 0 { u16::MAX } else { sum };
            frame[l4 + 6..l4 + 8].copy_from_slice(&sum.to_be_bytes());
        }
        Some(frame)
    }

    /// The answer to an ARP request for `address`.
    pub fn arp_reply(&self, request: &arp::Packet, address: Ipv4Addr) -> Option<PktBuf> {
        let reply =
            arp::Packet { op: arp::Operation::Reply, sha: self.mac, spa: address, tha: request.sha, tpa: request.spa };
        let header_len = self.framing.header_len();
        let mut frame = PktBuf::alloc(header_len + arp::PACKET_LEN)?;
        let (link, packet) = frame.append(header_len + arp::PACKET_LEN).split_at_mut(header_len);
        self.link(link, EtherType::Arp);
        if let Ok(packet) = packet.try_into() {
            reply.emit(packet);
        }
        Some(frame)
    }

    /// The answer to a neighbour solicitation for `address` (RFC 4861 section 7.2.4).
    pub fn neighbour_advert(&self, address: Ipv6Addr, asker: Ipv6Addr) -> Option<PktBuf> {
        let advert = icmpv6::Message::NeighbourAdvert {
            target: address,
            target_mac: Some(self.mac),
            router: false,
            solicited: true,
            override_flag: true,
        };
        let l4 = self.framing.header_len() + ipv6::HEADER_LEN;
        let len = advert.header_len();
        let mut frame = PktBuf::alloc(l4 + len)?;
        let (head, message) = frame.append(l4 + len).split_at_mut(l4);
        self.link_and_network(head, IpAddr::V6(address), IpAddr::V6(asker), protocol::ICMPV6, len);
        advert.emit(address, asker, message);
        Some(frame)
    }

    /// The type and the bytes behind the link header of a frame from the stack. A link without headers has neither
    /// neighbours nor types.
    pub fn payload<'f>(&self, frame: &'f [u8]) -> Result<(EtherType, &'f [u8]), DropReason> {
        let (ethertype, at) = match self.framing {
            Framing::Ethernet => {
                let (header, at) = ethernet::parse(frame).map_err(|_| DropReason::FrameTooShort)?;
                (header.ethertype, at)
            }
            Framing::Fddi => {
                let header = fddi::parse(frame).map_err(|_| DropReason::UnknownEtherType)?;
                (header.ethertype, fddi::HEADER_LEN)
            }
            Framing::Packet => return Err(DropReason::UnknownEtherType),
        };
        Ok((ethertype, &frame[at..]))
    }

    fn link(&self, out: &mut [u8], ethertype: EtherType) {
        let header = ethernet::Header { dst: self.stack_mac, src: self.mac, ethertype };
        match self.framing {
            Framing::Ethernet => {
                if let Ok(out) = out.try_into() {
                    header.emit(out);
                }
            }
            Framing::Fddi => {
                if let Ok(out) = out.try_into() {
                    fddi::emit(&header, out);
                }
            }
            Framing::Packet => {}
        }
    }

    fn link_and_network(&self, out: &mut [u8], src: IpAddr, dst: IpAddr, protocol: u8, payload_len: usize) {
        let (link, network) = out.split_at_mut(self.framing.header_len());
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                self.link(link, EtherType::Ipv4);
                if let Ok(network) = network.try_into() {
                    ipv4_header(src, dst, protocol, payload_len).emit(network);
                }
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                self.link(link, EtherType::Ipv6);
                if let Ok(network) = network.try_into() {
                    ipv6_header(src, dst, protocol, payload_len).emit(network);
                }
            }
            // A connection's two addresses are of one family by construction.
            _ => {}
        }
    }
}

fn ipv4_header(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload_len: usize) -> ipv4::Header {
    ipv4::Header {
        src,
        dst,
        protocol,
        ttl: 64,
        tos: 0,
        // Atomic datagrams need no identification (RFC 6864).
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        header_len: ipv4::HEADER_LEN as u8,
        total_len: (ipv4::HEADER_LEN + payload_len) as u16,
    }
}

fn ipv6_header(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, payload_len: usize) -> ipv6::Header {
    ipv6::Header {
        src,
        dst,
        next_header,
        // Neighbour discovery requires 255 (RFC 4861 section 7.1.2); it is valid for everything else.
        hop_limit: 255,
        traffic_class: 0,
        flow_label: 0,
        payload_len: payload_len as u16,
    }
}
