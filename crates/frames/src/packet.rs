//! IPv4 and IPv6 packets.

use std::net::{IpAddr, Ipv6Addr};

use wire::{icmpv6, protocol};

use crate::{Checksum, Ends, Payload};

/// A fragment of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// Identification; IPv4 has room for 16 bits.
    pub ident: u32,
    /// Offset of the fragment in the original payload, in bytes; the wire counts in units of eight.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
}

/// An extension header of IPv6.
#[derive(Clone, Copy, Debug)]
pub struct Extension<'a> {
    /// Its number, which is in the header before it.
    pub kind: u8,
    /// The bytes after its next-header field. Its own length field, if any, is the first of these bytes.
    pub bytes: &'a [u8],
}

/// An IP packet. Its family is that of `src`.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Sender.
    pub src: IpAddr,
    /// Receiver, of the same family.
    pub dst: IpAddr,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Flow label; IPv6 only.
    pub flow_label: u32,
    /// DF; IPv4 only.
    pub dont_fragment: bool,
    /// IPv4: identification, offset and MF. IPv6: a fragment header behind the other extension headers, if there is
    /// one.
    pub fragment: Option<Fragment>,
    /// Options of the IPv4 header. Padded to a multiple of four bytes with end-of-list options.
    pub options: &'a [u8],
    /// Extension headers; IPv6 only.
    pub extensions: &'a [Extension<'a>],
    /// The payload after the headers.
    pub payload: Payload<'a>,
    /// The protocol, or the last next-header value, if not that of the payload.
    pub protocol: Option<u8>,
    /// The version, if not the right one.
    pub version: Option<u8>,
    /// IHL in words of four bytes, if not the right one; IPv4 only.
    pub header_words: Option<u8>,
    /// Total length of IPv4, payload length of IPv6, if not the right one.
    pub len: Option<u16>,
    /// Checksum of the IPv4 header.
    pub checksum: Checksum,
}

impl<'a> Packet<'a> {
    /// A usual packet: time to live 64, DF set, no options, no extension headers.
    pub fn new(src: impl Into<IpAddr>, dst: impl Into<IpAddr>, payload: impl Into<Payload<'a>>) -> Packet<'a> {
        Packet {
            src: src.into(),
            dst: dst.into(),
            ttl: 64,
            tos: 0,
            flow_label: 0,
            dont_fragment: true,
            fragment: None,
            options: &[],
            extensions: &[],
            payload: payload.into(),
            protocol: None,
            version: None,
            header_words: None,
            len: None,
            checksum: Checksum::Right,
        }
    }

    /// The packet from its IP header on.
    ///
    /// # Panics
    /// If its addresses are of two families, or it has more options than a header has room for.
    pub fn bytes(&self) -> Vec<u8> {
        let payload = self.payload.bytes(self.src, self.dst);
        let protocol = self.protocol.unwrap_or(self.payload.protocol(self.src.is_ipv6()));
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.v4(src.octets(), dst.octets(), protocol, &payload),
            (IpAddr::V6(src), IpAddr::V6(dst)) => self.v6(src.octets(), dst.octets(), protocol, &payload),
            (src, dst) => panic!("{src} and {dst} are of two families"),
        }
    }

    /// The packet in fragments of at most `mtu` bytes, as made by a sender or a router; each from its IP header on.
    ///
    /// # Panics
    /// As [`Packet::bytes`].
    pub fn pieces(&self, ident: u32, mtu: usize) -> Vec<Vec<u8>> {
        let v6 = self.src.is_ipv6();
        let headers = if v6 { 40 + 8 } else { 20 + self.options.len().next_multiple_of(4) };
        let room = (mtu - headers - self.extensions.iter().map(|header| 1 + header.bytes.len()).sum::<usize>()) & !7;
        let (whole, protocol) = (self.payload.bytes(self.src, self.dst), self.payload.protocol(v6));
        let piece = |(at, bytes): (usize, &[u8])| {
            let fragment = Fragment { ident, offset: (at * room) as u16, more: at * room + bytes.len() < whole.len() };
            let payload = Payload::Other(protocol, bytes);
            Packet { payload, fragment: Some(fragment), dont_fragment: false, ..*self }.bytes()
        };
        whole.chunks(room).enumerate().map(piece).collect()
    }

    fn v4(&self, src: [u8; 4], dst: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let header_len = 20 + self.options.len().next_multiple_of(4);
        assert!(header_len <= 60, "a header has room for 40 bytes of options");
        let fragment = self.fragment.unwrap_or_default();
        let cut = u16::from(self.dont_fragment) << 14 | u16::from(fragment.more) << 13 | fragment.offset >> 3;
        let words = self.header_words.unwrap_or(header_len as u8 / 4);
        let mut out = vec![self.version.unwrap_or(4) << 4 | words & 0x0f, self.tos];
        out.extend(self.len.unwrap_or((header_len + payload.len()) as u16).to_be_bytes());
        out.extend((fragment.ident as u16).to_be_bytes());
        out.extend(cut.to_be_bytes());
        out.extend([self.ttl, protocol, 0, 0]);
        out.extend([src, dst].concat());
        out.extend(self.options);
        out.resize(header_len, 0);
        // A receiver sums as many bytes as the header length field states.
        let checked = (usize::from(words) * 4).max(20);
        let whole = [&out[..], payload].concat();
        let field = self.checksum.field(0, &whole[..checked.min(whole.len())]);
        out[10..12].copy_from_slice(&field.to_be_bytes());
        out.extend(payload);
        out
    }

    fn v6(&self, src: [u8; 16], dst: [u8; 16], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let fragment = self.fragment.map(|fragment| {
            let [high, low] = (fragment.offset & !7 | u16::from(fragment.more)).to_be_bytes();
            let [a, b, c, d] = fragment.ident.to_be_bytes();
            [0, high, low, a, b, c, d]
        });
        let fragment = fragment.as_ref().map(|bytes| Extension { kind: protocol::IPV6_FRAGMENT, bytes });
        let chain: Vec<Extension<'_>> = self.extensions.iter().copied().chain(fragment).collect();
        let mut behind = Vec::new();
        for (at, extension) in chain.iter().enumerate() {
            behind.push(chain.get(at + 1).map_or(protocol, |next| next.kind));
            behind.extend(extension.bytes);
        }
        behind.extend(payload);
        let version = u32::from(self.version.unwrap_or(6));
        let first = version << 28 | u32::from(self.tos) << 20 | self.flow_label & 0xf_ffff;
        let mut out = first.to_be_bytes().to_vec();
        out.extend(self.len.unwrap_or(behind.len() as u16).to_be_bytes());
        out.extend([chain.first().map_or(protocol, |first| first.kind), self.ttl]);
        out.extend([src, dst].concat());
        out.extend(behind);
        out
    }
}

/// A message of neighbour discovery from the peer's link address, in a frame: the hop limit is 255, and the frame goes
/// to a group if `dst` is one.
pub fn neighbour_discovery(src: Ipv6Addr, dst: Ipv6Addr, message: &icmpv6::Message) -> Vec<u8> {
    let mut bytes = vec![0; message.header_len()];
    message.emit(src, dst, &mut bytes);
    let ends = Ends::PEER_TO_STACK_V6.from(src).to(dst);
    let mut packet = ends.packet(Payload::Other(protocol::ICMPV6, &bytes));
    packet.ttl = icmpv6::DISCOVERY_HOP_LIMIT;
    ends.frame(packet).bytes()
}
