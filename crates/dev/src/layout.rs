//! The offsets of a frame's headers.
//!
//! Hashing, segmenting and coalescing all need to know whether a frame is an unfragmented TCP or UDP datagram, and at
//! which offsets its headers and data begin. [`Headers`] has that in one word; [`Layout::of`] unpacks it for code that
//! computes with offsets.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pktbuf::{Checksum, PktBuf};
use wire::{FourTuple, Framing, Headers, checksum};

/// Protocol number of TCP.
pub const TCP: u8 = wire::protocol::TCP;
/// Protocol number of UDP.
pub const UDP: u8 = wire::protocol::UDP;

/// Offsets into a frame that carries TCP or UDP, from the frame's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The IP header.
    pub l3: usize,
    /// The TCP or UDP header.
    pub l4: usize,
    /// The first byte of data.
    pub data: usize,
    /// One past the last byte of data; Ethernet padding follows.
    pub end: usize,
    /// [`TCP`] or [`UDP`].
    pub protocol: u8,
    /// IPv6 rather than IPv4.
    pub v6: bool,
}

impl Layout {
    /// The layout of an unfragmented TCP or UDP frame; `None` for anything else: other protocols, fragments, IPv6
    /// extension headers, lengths that do not fit the frame.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Layout> {
        Layout::framed(Framing::Ethernet, frame)
    }

    /// As [`of`](Layout::of), for a frame of this framing.
    #[inline]
    pub fn framed(framing: Framing, frame: &[u8]) -> Option<Layout> {
        let headers = Headers::of(framing, frame);
        headers.has_flow().then(|| Layout {
            l3: headers.network(),
            l4: headers.transport(),
            data: headers.payload(),
            end: headers.end(),
            protocol: if headers.is_tcp() { TCP } else { UDP },
            v6: headers.is_v6(),
        })
    }

    /// Source and destination address, in that order.
    pub fn addresses(&self, frame: &[u8]) -> (IpAddr, IpAddr) {
        if self.v6 {
            let at = |offset: usize| {
                let mut bytes = [0u8; 16];
                bytes.copy_from_slice(&frame[self.l3 + offset..self.l3 + offset + 16]);
                IpAddr::V6(Ipv6Addr::from(bytes))
            };
            (at(8), at(24))
        } else {
            let at = |offset: usize| {
                let mut bytes = [0u8; 4];
                bytes.copy_from_slice(&frame[self.l3 + offset..self.l3 + offset + 4]);
                IpAddr::V4(Ipv4Addr::from(bytes))
            };
            (at(12), at(16))
        }
    }

    /// The four-tuple of the frame's receiver: local is the destination.
    pub fn receiver_tuple(&self, frame: &[u8]) -> FourTuple {
        let (src, dst) = self.addresses(frame);
        let port = |offset: usize| u16::from_be_bytes([frame[self.l4 + offset], frame[self.l4 + offset + 1]]);
        FourTuple { local_addr: dst, remote_addr: src, local_port: port(2), remote_port: port(0) }
    }

    /// Whether the checksums of the frame can be trusted: the device verified them, or they are right. Also checks an
    /// IPv4 header; a UDP checksum of zero means none (RFC 768) and passes.
    pub fn checksum_is_good(&self, frame: &PktBuf) -> bool {
        if frame.meta().checksum != Checksum::None {
            return true;
        }
        if !self.v6 && !checksum::sum(&frame[self.l3..self.l4]).is_valid() {
            return false;
        }
        let field = self.checksum_field();
        if self.protocol == UDP && frame[field..field + 2] == [0, 0] {
            return !self.v6;
        }
        let (src, dst) = self.addresses(frame);
        let len = (self.end - self.l4) as u32;
        checksum::pseudo_header(src, dst, self.protocol, len).add(pktbuf::sum(&frame[self.l4..self.end])).is_valid()
    }

    /// Offset of the transport checksum field.
    pub fn checksum_field(&self) -> usize {
        self.l4 + if self.protocol == TCP { 16 } else { 6 }
    }
}

/// Completes the transport checksum of a frame marked `Checksum::Partial { start, offset }`: sums from the transport
/// header to the end (the checksum field holding the pseudo-header sum), stores the complement, and marks the frame
/// `Checksum::None`. A frame that is not `Partial`, or whose range lies outside it, is left as it is.
///
/// For plain TCP or UDP the frame's headers determine the range, so Ethernet padding is left out; for everything else
/// `start` and `offset` do.
pub fn complete_checksum(frame: &mut PktBuf) {
    complete_checksum_framed(Framing::Ethernet, frame);
}

/// As [`complete_checksum`], for a frame of this framing.
pub fn complete_checksum_framed(framing: Framing, frame: &mut PktBuf) {
    let Checksum::Partial { start, offset } = frame.meta().checksum else { return };
    let (start, field, end) = match Layout::framed(framing, frame) {
        Some(layout) => (layout.l4, layout.checksum_field(), layout.end),
        None => (usize::from(start), usize::from(start) + usize::from(offset), frame.len()),
    };
    if start > field || field + 2 > end {
        return;
    }
    let sum = pktbuf::sum(&frame[start..end]);
    let is_udp = field - start == 6;
    let checksum = if is_udp { sum.finish_udp() } else { sum.finish() };
    frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    frame.meta_mut().checksum = Checksum::None;
}
