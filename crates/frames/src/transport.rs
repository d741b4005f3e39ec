//! TCP segments, UDP datagrams and ICMP messages.

use std::net::IpAddr;

use wire::protocol;
use wire::tcp::{Header, Options, TcpFlags};

use crate::{Checksum, Ends, ISS, pseudo_header};

/// The payload of an IP packet.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// TCP.
    Tcp(Segment<'a>),
    /// UDP.
    Udp(Datagram<'a>),
    /// ICMP or ICMPv6, according to the packet's family.
    Icmp(Icmp<'a>),
    /// Bytes of this protocol. They may begin with extension headers.
    Other(u8, &'a [u8]),
}

impl Payload<'_> {
    /// Its protocol number.
    pub fn protocol(&self, v6: bool) -> u8 {
        match self {
            Payload::Tcp(_) => protocol::TCP,
            Payload::Udp(_) => protocol::UDP,
            Payload::Icmp(_) if v6 => protocol::ICMPV6,
            Payload::Icmp(_) => protocol::ICMP,
            Payload::Other(protocol, _) => *protocol,
        }
    }

    /// Its bytes between these ends, with its checksum.
    pub fn bytes(&self, src: IpAddr, dst: IpAddr) -> Vec<u8> {
        let pseudo = |len| pseudo_header(src, dst, self.protocol(src.is_ipv6()), len);
        let (mut bytes, at, checksum) = match self {
            Payload::Tcp(segment) => (segment.unchecked(), 16, segment.checksum),
            Payload::Udp(datagram) => (datagram.unchecked(), 6, datagram.checksum),
            Payload::Icmp(message) => (message.unchecked(), 2, message.checksum),
            Payload::Other(_, bytes) => return bytes.to_vec(),
        };
        // ICMP over IPv4 has no pseudo-header.
        let plain = matches!(self, Payload::Icmp(_)) && src.is_ipv4();
        let mut field = checksum.field(if plain { 0 } else { pseudo(bytes.len()) }, &bytes);
        // Zero means that there is none (RFC 768).
        if matches!(self, Payload::Udp(_)) && checksum == Checksum::Right && field == 0 {
            field = 0xffff;
        }
        bytes[at..at + 2].copy_from_slice(&field.to_be_bytes());
        bytes
    }
}

impl<'a> From<Segment<'a>> for Payload<'a> {
    fn from(segment: Segment<'a>) -> Self {
        Payload::Tcp(segment)
    }
}

impl<'a> From<Datagram<'a>> for Payload<'a> {
    fn from(datagram: Datagram<'a>) -> Self {
        Payload::Udp(datagram)
    }
}

impl<'a> From<Icmp<'a>> for Payload<'a> {
    fn from(message: Icmp<'a>) -> Self {
        Payload::Icmp(message)
    }
}

/// The options of a TCP header: any bytes, in words of four.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TcpOptions {
    bytes: [u8; 40],
    len: u8,
}

impl TcpOptions {
    /// None.
    pub const NONE: TcpOptions = TcpOptions { bytes: [0; 40], len: 0 };

    /// These bytes. Padded to a multiple of four bytes with end-of-list options.
    ///
    /// # Panics
    /// If they are more than 40.
    pub fn new(options: &[u8]) -> TcpOptions {
        assert!(options.len() <= 40, "{} bytes of options; a header has room for 40", options.len());
        let mut bytes = [0; 40];
        bytes[..options.len()].copy_from_slice(options);
        TcpOptions { bytes, len: options.len().next_multiple_of(4) as u8 }
    }

    /// The options as bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for TcpOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl From<Options> for TcpOptions {
    /// In the order in which Linux writes them.
    fn from(options: Options) -> TcpOptions {
        let mut out = Vec::new();
        if let Some(mss) = options.mss {
            out.extend([2, 4]);
            out.extend(mss.to_be_bytes());
        }
        match (options.sack_permitted, options.timestamps.is_some()) {
            (true, true) => out.extend([4, 2]),
            (true, false) => out.extend([1, 1, 4, 2]),
            (false, true) => out.extend([1, 1]),
            (false, false) => {}
        }
        if let Some(timestamps) = options.timestamps {
            out.extend([8, 10]);
            out.extend(timestamps.value.to_be_bytes());
            out.extend(timestamps.echo.to_be_bytes());
        }
        if let Some(shift) = options.window_scale {
            out.extend([1, 3, 3, shift]);
        }
        // As many blocks as fit.
        let blocks = options.sack.len().min((40 - out.len()).saturating_sub(4) / 8);
        if blocks > 0 {
            out.extend([1, 1, 5, 2 + 8 * blocks as u8]);
            for (left, right) in options.sack.iter().take(blocks) {
                out.extend(left.0.to_be_bytes());
                out.extend(right.0.to_be_bytes());
            }
        }
        TcpOptions::new(&out)
    }
}

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The sender's port and the receiver's.
    pub ports: (u16, u16),
    /// Control bits.
    pub flags: TcpFlags,
    /// SEG.SEQ.
    pub seq: u32,
    /// SEG.ACK.
    pub ack: u32,
    /// SEG.WND, before scaling.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options.
    pub options: TcpOptions,
    /// Data offset in words of four bytes, if not the right one.
    pub header_words: Option<u8>,
    /// Checksum.
    pub checksum: Checksum,
    /// The segment's data.
    pub data: &'a [u8],
}

impl<'a> Segment<'a> {
    /// A SYN that begins a connection: sequence number [`ISS`], no options, the widest window.
    pub fn syn(from: u16, to: u16) -> Segment<'a> {
        Segment { flags: TcpFlags::SYN, seq: ISS, ..Segment::ack((from, to), 0, 0) }
    }

    /// A bare acknowledgement.
    pub fn ack(ports: (u16, u16), seq: u32, ack: u32) -> Segment<'a> {
        Segment {
            ports,
            flags: TcpFlags::ACK,
            seq,
            ack,
            window: 0xffff,
            urgent: 0,
            options: TcpOptions::NONE,
            header_words: None,
            checksum: Checksum::Right,
            data: &[],
        }
    }

    /// Data of a connection that began with [`Segment::syn`], `at` bytes after the first.
    pub fn data(ports: (u16, u16), at: u32, ack: u32, data: &'a [u8]) -> Segment<'a> {
        Segment { data, ..Segment::ack(ports, ISS.wrapping_add(1).wrapping_add(at), ack) }
    }

    /// A segment with this header; its length field is ignored.
    pub fn of(header: &Header, data: &'a [u8]) -> Segment<'a> {
        Segment {
            flags: header.flags,
            window: header.window,
            urgent: header.urgent,
            options: header.options.into(),
            data,
            ..Segment::ack((header.src_port, header.dst_port), header.seq.0, header.ack.0)
        }
    }

    /// The same with this window.
    pub fn window(self, window: u16) -> Segment<'a> {
        Segment { window, ..self }
    }

    /// The same with these options.
    pub fn options(self, options: impl Into<TcpOptions>) -> Segment<'a> {
        Segment { options: options.into(), ..self }
    }

    /// The same with these control bits besides.
    pub fn and(self, flags: TcpFlags) -> Segment<'a> {
        Segment { flags: self.flags | flags, ..self }
    }

    /// The segment in a frame from the peer to the stack, over IPv4.
    pub fn frame(&self) -> Vec<u8> {
        self.frame_over(Ends::PEER_TO_STACK)
    }

    /// The segment in a frame between these ends.
    pub fn frame_over(&self, ends: Ends) -> Vec<u8> {
        ends.bytes(*self)
    }

    /// The segment in a frame from this host, through the peer, to the stack.
    pub fn frame_from(&self, host: impl Into<IpAddr>) -> Vec<u8> {
        let v4 = Ends::PEER_TO_STACK.from(host);
        let ends = if v4.src.is_ipv4() { v4 } else { Ends::PEER_TO_STACK_V6.from(v4.src) };
        self.frame_over(ends)
    }

    /// Header and data between these ends, as the payload of a packet.
    pub fn bytes(&self, src: impl Into<IpAddr>, dst: impl Into<IpAddr>) -> Vec<u8> {
        Payload::from(*self).bytes(src.into(), dst.into())
    }

    fn unchecked(&self) -> Vec<u8> {
        let options = self.options.as_slice();
        let words = self.header_words.unwrap_or(5 + options.len() as u8 / 4);
        let mut out = [self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes()].concat();
        out.extend(self.seq.to_be_bytes());
        out.extend(self.ack.to_be_bytes());
        out.extend((u16::from(words) << 12 | self.flags.0 & 0x0fff).to_be_bytes());
        out.extend(self.window.to_be_bytes());
        out.extend([0, 0]);
        out.extend(self.urgent.to_be_bytes());
        out.extend(options);
        out.extend(self.data);
        out
    }
}

/// A UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The sender's port and the receiver's.
    pub ports: (u16, u16),
    /// The length field, if not the right one.
    pub len: Option<u16>,
    /// Checksum.
    pub checksum: Checksum,
    /// The data.
    pub data: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// A usual datagram.
    pub fn new(from: u16, to: u16, data: &'a [u8]) -> Datagram<'a> {
        Datagram { ports: (from, to), len: None, checksum: Checksum::Right, data }
    }

    /// The datagram in a frame from the peer to the stack, over IPv4.
    pub fn frame(&self) -> Vec<u8> {
        Ends::PEER_TO_STACK.bytes(*self)
    }

    /// The datagram in a frame between these ends.
    pub fn frame_over(&self, ends: Ends) -> Vec<u8> {
        ends.bytes(*self)
    }

    fn unchecked(&self) -> Vec<u8> {
        let mut out = [self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes()].concat();
        out.extend(self.len.unwrap_or(8 + self.data.len() as u16).to_be_bytes());
        out.extend([0, 0]);
        out.extend(self.data);
        out
    }
}

/// An ICMP or ICMPv6 message; IGMP messages have the same beginning.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<'a> {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Checksum.
    pub checksum: Checksum,
    /// The second word: identifier and sequence number, next-hop MTU, pointer, or nothing.
    pub word: [u8; 4],
    /// The body: echoed data, or the quoted packet.
    pub body: &'a [u8],
}

impl<'a> Icmp<'a> {
    /// A usual message.
    pub fn new(kind: u8, code: u8, word: [u8; 4], body: &'a [u8]) -> Icmp<'a> {
        Icmp { kind, code, checksum: Checksum::Right, word, body }
    }

    /// An echo request, number 1 of identifier 1.
    pub fn echo_request(v6: bool, data: &'a [u8]) -> Icmp<'a> {
        Icmp::new(if v6 { 128 } else { 8 }, 0, [0, 1, 0, 1], data)
    }

    fn unchecked(&self) -> Vec<u8> {
        [&[self.kind, self.code, 0, 0][..], &self.word, self.body].concat()
    }
}
