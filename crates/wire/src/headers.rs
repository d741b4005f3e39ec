//! The offsets of a frame's headers, found once and carried with the frame.
//!
//! The choice of a queue, IP, TCP and UDP input, coalescing and segmentation, and the hint that a segment is followed
//! by another of its connection all need the offsets of a frame's headers and data. [`Headers::of_frame`] computes them
//! from a few loads. It reads only lengths and types, never outside the frame, whatever the bytes are, and verifies no
//! checksum and no address.
//!
//! A frame has a *flow* if it carries a whole TCP segment or UDP datagram: not a fragment, no IPv6 extension header, at
//! most one tag, all lengths within the frame. For any other frame only the network header is found.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ethernet::{self, EtherType};
use crate::{FourTuple, fddi, ipv4, ipv6, protocol, tcp, udp};

/// The first header of a device's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// An Ethernet header.
    #[default]
    Ethernet,
    /// An FDDI header with LLC and SNAP headers, 21 bytes ([`fddi`]).
    Fddi,
    /// The IP header: the link has no header of its own, and no addresses.
    Packet,
}

impl Framing {
    /// Bytes of the link header, without a tag.
    #[inline]
    pub const fn header_len(self) -> usize {
        match self {
            Framing::Ethernet => ethernet::HEADER_LEN,
            Framing::Fddi => fddi::HEADER_LEN,
            Framing::Packet => 0,
        }
    }

    /// Bytes of the longest link header: with a tag.
    #[inline]
    pub const fn longest_header(self) -> usize {
        match self {
            Framing::Ethernet => ethernet::TAGGED_HEADER_LEN,
            Framing::Fddi => fddi::HEADER_LEN,
            Framing::Packet => 0,
        }
    }

    /// Bytes of the shortest frame: a link header, or the shortest packet.
    #[inline]
    pub const fn least(self) -> usize {
        match self {
            Framing::Ethernet => ethernet::HEADER_LEN,
            Framing::Fddi => fddi::HEADER_LEN,
            Framing::Packet => ipv4::HEADER_LEN,
        }
    }

    /// Whether the link has headers with addresses, and so neighbours.
    #[inline]
    pub const fn has_addresses(self) -> bool {
        !matches!(self, Framing::Packet)
    }
}

/// See the head of the file. One word, so that it is carried in a register.
///
/// | bits | |
/// |---|---|
/// | 0 to 31 | end of the packet; padding follows |
/// | 32 to 39 | offset of the network header |
/// | 40 to 47 | offset of the transport header |
/// | 48 to 55 | kind: bits 0 and 1 the network, bit 2 a flow, bit 3 UDP rather than TCP |
/// | 56 to 63 | offset of the data behind the transport header |
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Headers(u64);

const V4: u64 = 1;
const V6: u64 = 2;
const NETWORK: u64 = 3;
const FLOW: u64 = 4;
const UDP: u64 = 8;

const KIND: u32 = 48;
const PAYLOAD: u32 = 56;

/// The bits for the offsets and kinds of network and transport, except which transport it is.
const SHAPE: u64 = 0x00f7_ffff << 32;
const PLAIN_V4: u64 = shape(ethernet::HEADER_LEN, ipv4::HEADER_LEN, V4 | FLOW);
const PLAIN_V6: u64 = shape(ethernet::HEADER_LEN, ipv6::HEADER_LEN, V6 | FLOW);
const PLAIN_FDDI_V4: u64 = shape(fddi::HEADER_LEN, ipv4::HEADER_LEN, V4 | FLOW);
const PLAIN_FDDI_V6: u64 = shape(fddi::HEADER_LEN, ipv6::HEADER_LEN, V6 | FLOW);
const PLAIN_V4_LEN: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + tcp::HEADER_LEN;
const PLAIN_V6_LEN: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + tcp::HEADER_LEN;

const fn shape(network: usize, header: usize, kind: u64) -> u64 {
    (network as u64) << 32 | ((network + header) as u64) << 40 | kind << KIND
}

impl Headers {
    /// Neither a network nor a transport header was found: no IP, or a frame that is too short.
    pub const UNKNOWN: Headers = Headers(0);

    /// The headers of a frame with this framing.
    #[inline]
    pub fn of(framing: Framing, frame: &[u8]) -> Headers {
        if framing == Framing::Ethernet { Headers::of_frame(frame) } else { Headers::of_other(framing, frame) }
    }

    #[inline(never)]
    fn of_other(framing: Framing, frame: &[u8]) -> Headers {
        if framing == Framing::Fddi { Headers::of_fddi(frame) } else { Headers::of_packet(frame) }
    }

    /// The headers of a frame that begins at its Ethernet header.
    #[inline]
    pub fn of_frame(frame: &[u8]) -> Headers {
        // Nearly all frames: TCP without tag, options and fragments.
        match frame.first_chunk::<PLAIN_V4_LEN>() {
            Some(head) if head[12..15] == [0x08, 0x00, 0x45] && is_whole_tcp(head) => {
                let end = ethernet::HEADER_LEN + usize::from(u16::from_be_bytes([head[16], head[17]]));
                let payload = ethernet::HEADER_LEN + ipv4::HEADER_LEN + usize::from(head[46] >> 4) * 4;
                if payload >= PLAIN_V4_LEN && payload <= end && end <= frame.len() {
                    return Headers(PLAIN_V4 | end as u64 | (payload as u64) << PAYLOAD);
                }
            }
            Some(head) if head[12..14] == [0x86, 0xdd] => return Headers::of_v6_frame(frame),
            _ => {}
        }
        Headers::of_rarer_frame(frame)
    }

    #[inline]
    fn of_v6_frame(frame: &[u8]) -> Headers {
        if let Some(head) = frame.first_chunk::<PLAIN_V6_LEN>()
            && head[14] >> 4 == 6
            && head[20] == protocol::TCP
        {
            const TRANSPORT: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN;
            let end = TRANSPORT + usize::from(u16::from_be_bytes([head[18], head[19]]));
            let payload = TRANSPORT + usize::from(head[TRANSPORT + 12] >> 4) * 4;
            if payload >= PLAIN_V6_LEN && payload <= end && end <= frame.len() {
                return Headers(PLAIN_V6 | end as u64 | (payload as u64) << PAYLOAD);
            }
        }
        Headers::of_rarer_frame(frame)
    }

    #[inline(never)]
    fn of_rarer_frame(frame: &[u8]) -> Headers {
        match ethernet::parse(frame) {
            Ok((header, network)) => Headers::of_network(frame, network, header.ethertype),
            Err(_) => Headers::UNKNOWN,
        }
    }

    /// The headers of a frame that begins at its FDDI header.
    fn of_fddi(frame: &[u8]) -> Headers {
        match fddi::parse(frame) {
            Ok(header) => Headers::of_network(frame, fddi::HEADER_LEN, header.ethertype),
            Err(_) => Headers::UNKNOWN,
        }
    }

    /// The headers of a packet that begins at its IP header.
    pub fn of_packet(packet: &[u8]) -> Headers {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => Headers::of_network(packet, 0, EtherType::Ipv4),
            Some(6) => Headers::of_network(packet, 0, EtherType::Ipv6),
            _ => Headers::UNKNOWN,
        }
    }

    fn of_network(frame: &[u8], network: usize, ethertype: EtherType) -> Headers {
        let packet = frame.get(network..).unwrap_or_default();
        let (kind, flow) = match ethertype {
            EtherType::Ipv4 => (V4, flow_v4(packet)),
            EtherType::Ipv6 => (V6, flow_v6(packet)),
            _ => return Headers::UNKNOWN,
        };
        let Some(TransportOffsets { header, payload, len, udp }) = flow else {
            return Headers(frame.len() as u64 & 0xffff_ffff | (network as u64) << 32 | kind << KIND);
        };
        let kind = kind | FLOW | if udp { UDP } else { 0 };
        Headers(shape(network, header, kind) | (network + len) as u64 | ((network + payload) as u64) << PAYLOAD)
    }

    #[inline]
    fn has(self, bits: u64) -> bool {
        self.0 >> KIND & bits == bits
    }

    /// Whether the frame has a flow: a whole TCP segment or UDP datagram.
    #[inline]
    pub fn has_flow(self) -> bool {
        self.has(FLOW)
    }

    /// Whether the flow is of TCP.
    #[inline]
    pub fn is_tcp(self) -> bool {
        self.0 >> KIND & (FLOW | UDP) == FLOW
    }

    /// Whether the flow is of UDP.
    #[inline]
    pub fn is_udp(self) -> bool {
        self.has(FLOW | UDP)
    }

    /// Whether the packet is IPv4, by the link's type field.
    #[inline]
    pub fn is_v4(self) -> bool {
        self.0 >> KIND & NETWORK == V4
    }

    /// Whether the packet is IPv6, by the link's type field.
    #[inline]
    pub fn is_v6(self) -> bool {
        self.0 >> KIND & NETWORK == V6
    }

    /// Whether it is a flow over IPv4 behind an Ethernet header without tag, and without IP options.
    #[inline]
    pub fn is_plain_v4(self) -> bool {
        self.0 & SHAPE == PLAIN_V4
    }

    /// Whether it is a flow over IPv6 behind an Ethernet header without tag.
    #[inline]
    pub fn is_plain_v6(self) -> bool {
        self.0 & SHAPE == PLAIN_V6
    }

    /// Whether it is a flow over IPv4 behind an FDDI header, and without IP options.
    #[inline]
    pub fn is_plain_fddi_v4(self) -> bool {
        self.0 & SHAPE == PLAIN_FDDI_V4
    }

    /// Whether it is a flow over IPv6 behind an FDDI header.
    #[inline]
    pub fn is_plain_fddi_v6(self) -> bool {
        self.0 & SHAPE == PLAIN_FDDI_V6
    }

    /// Offset of the network header, in bytes from the first of the frame: 14, or 18 behind a tag, 21 behind an
    /// FDDI header, or 0 of a packet without link header. 0 if there is none.
    #[inline]
    pub fn network(self) -> usize {
        usize::from((self.0 >> 32) as u8)
    }

    /// Offset of the transport header; 0 without a flow.
    #[inline]
    pub fn transport(self) -> usize {
        usize::from((self.0 >> 40) as u8)
    }

    /// Offset of the data behind the transport header; 0 without a flow.
    #[inline]
    pub fn payload(self) -> usize {
        usize::from((self.0 >> PAYLOAD) as u8)
    }

    /// One past the last byte of the packet: the link's padding begins there. Without a flow, where the frame ends.
    #[inline]
    pub fn end(self) -> usize {
        self.0 as u32 as usize
    }

    /// Whether the frame has a tag (IEEE 802.1Q), the priority tags of clause 6.9 among them.
    #[inline]
    pub fn is_tagged(self) -> bool {
        self.network() == ethernet::TAGGED_HEADER_LEN
    }

    /// Source and destination address of `frame`, which has these headers, in that order; `None` without a flow.
    pub fn addresses(self, frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
        let network = frame.get(self.network()..).filter(|_| self.has_flow())?;
        Some(if self.is_v6() {
            let (source, destination) =
                (*network.get(8..)?.first_chunk::<16>()?, *network.get(24..)?.first_chunk::<16>()?);
            (IpAddr::V6(Ipv6Addr::from(source)), IpAddr::V6(Ipv6Addr::from(destination)))
        } else {
            let (source, destination) =
                (*network.get(12..)?.first_chunk::<4>()?, *network.get(16..)?.first_chunk::<4>()?);
            (IpAddr::V4(Ipv4Addr::from(source)), IpAddr::V4(Ipv4Addr::from(destination)))
        })
    }

    /// Source and destination port of `frame`, which has these headers, in that order; `None` without a flow.
    #[inline]
    pub fn ports(self, frame: &[u8]) -> Option<(u16, u16)> {
        let [a, b, c, d] = *frame.get(self.transport()..).filter(|_| self.has_flow())?.first_chunk::<4>()?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// The flow of `frame`, which has these headers, as seen by its receiver: local is the destination. `None` without
    /// a flow.
    pub fn receiver_tuple(self, frame: &[u8]) -> Option<FourTuple> {
        let (remote_addr, local_addr) = self.addresses(frame)?;
        let (remote_port, local_port) = self.ports(frame)?;
        Some(FourTuple { local_addr, remote_addr, local_port, remote_port })
    }

    /// Whether the frame `next` carries data of the same TCP connection and direction as `frame`, which has these
    /// headers. A receiver then acknowledges once for both (RFC 9293 section 3.10.7.4).
    ///
    /// False for uncommon frames: options in the IP header, different tags.
    #[inline]
    pub fn continues(self, frame: &[u8], next: (Headers, &[u8])) -> bool {
        let (next, next_frame) = next;
        if !self.is_tcp() || (self.0 ^ next.0) & (SHAPE | UDP << KIND) != 0 || next.payload() >= next.end() {
            return false;
        }
        if self.is_plain_v4() {
            // Addresses and ports.
            let (Some(a), Some(b)) = (frame.first_chunk::<PLAIN_V4_LEN>(), next_frame.first_chunk::<PLAIN_V4_LEN>())
            else {
                return false;
            };
            // Ports first: frames of different connections usually differ there.
            return a[34..38] == b[34..38] && a[26..34] == b[26..34];
        }
        if self.is_plain_v6() {
            let (Some(a), Some(b)) = (frame.first_chunk::<PLAIN_V6_LEN>(), next_frame.first_chunk::<PLAIN_V6_LEN>())
            else {
                return false;
            };
            return a[54..58] == b[54..58] && a[22..54] == b[22..54];
        }
        self.continues_slow(frame, next_frame)
    }

    /// The same for tagged frames, FDDI, and packets without a link header.
    #[inline(never)]
    fn continues_slow(self, frame: &[u8], next: &[u8]) -> bool {
        let (network, transport) = (self.network(), self.transport());
        let before = if self.is_v6() { 32 } else { 8 };
        let plain = transport == network + if self.is_v6() { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
        let same = |from: usize, to: usize| frame.get(from..to).is_some_and(|bytes| next.get(from..to) == Some(bytes));
        let tag = if self.is_tagged() { same(12, network) } else { true };
        plain && tag && same(transport - before, transport + 4)
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = if self.is_v4() {
            "IPv4"
        } else if self.is_v6() {
            "IPv6"
        } else {
            return f.write_str("Headers(none)");
        };
        write!(f, "Headers({network} at {}", self.network())?;
        if self.has_flow() {
            let transport = if self.is_tcp() { "TCP" } else { "UDP" };
            write!(f, ", {transport} at {}, data at {}", self.transport(), self.payload())?;
        }
        write!(f, ", end {})", self.end())
    }
}

/// Whether a frame of IPv4 without tag carries TCP, and no fragment of it.
#[inline(always)]
fn is_whole_tcp(head: &[u8; PLAIN_V4_LEN]) -> bool {
    head[23] == protocol::TCP && head[20] & 0x3f == 0 && head[21] == 0
}

/// A whole segment or datagram, in offsets from the network header.
struct TransportOffsets {
    header: usize,
    payload: usize,
    len: usize,
    udp: bool,
}

fn flow_v4(packet: &[u8]) -> Option<TransportOffsets> {
    const FRAGMENT: u16 = 0x3fff;
    let head = packet.first_chunk::<{ ipv4::HEADER_LEN }>()?;
    let header = usize::from(head[0] & 0x0f) * 4;
    let fragment = u16::from_be_bytes([head[6], head[7]]) & FRAGMENT;
    if head[0] >> 4 != 4 || header < ipv4::HEADER_LEN || fragment != 0 {
        return None;
    }
    flow(packet, header, u16::from_be_bytes([head[2], head[3]]).into(), head[9])
}

fn flow_v6(packet: &[u8]) -> Option<TransportOffsets> {
    let head = packet.first_chunk::<{ ipv6::HEADER_LEN }>()?;
    if head[0] >> 4 != 6 {
        return None;
    }
    let len = ipv6::HEADER_LEN + usize::from(u16::from_be_bytes([head[4], head[5]]));
    flow(packet, ipv6::HEADER_LEN, len, head[6])
}

/// The flow of a packet of this length with a network header of `header` bytes.
fn flow(packet: &[u8], header: usize, len: usize, transport: u8) -> Option<TransportOffsets> {
    if len > packet.len() {
        return None;
    }
    let (least, payload) = match transport {
        protocol::TCP => (tcp::HEADER_LEN, header + usize::from(*packet.get(header + 12)? >> 4) * 4),
        protocol::UDP => (udp::HEADER_LEN, header + udp::HEADER_LEN),
        _ => return None,
    };
    let fits = payload >= header + least && payload <= len;
    fits.then_some(TransportOffsets { header, payload, len, udp: transport == protocol::UDP })
}

#[cfg(test)]
mod tests;
