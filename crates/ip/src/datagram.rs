//! The result of IP input: a datagram or a fragment whose header has been checked.

use core::net::IpAddr;

use pktbuf::PktBuf;

use crate::interface::Cast;

/// A packet past IP input. The buffer begins at the transport header; the network header is marked in its metadata and
/// still in the headroom, where ICMP reads it to quote the packet.
#[derive(Debug)]
pub struct Datagram {
    /// The packet, beginning at the transport header.
    pub buf: PktBuf,
    /// Source address: always a valid unicast address, never a martian.
    pub src: IpAddr,
    /// Destination address; `cast` has its kind.
    pub dst: IpAddr,
    /// Protocol number of the transport header.
    pub protocol: u8,
    /// Type of service or traffic class: DSCP and ECN. Also in the buffer's metadata, for callers that keep only the
    /// buffer.
    pub tos: u8,
    /// Time to live or hop limit as received.
    pub ttl: u8,
    /// Whether `dst` is one of our addresses, a broadcast or a group. Link-layer broadcast counts as broadcast.
    pub cast: Cast,
}

impl Datagram {
    /// The ECN codepoint (RFC 3168 section 5): 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.tos & 3
    }

    /// Bytes from the network header to the transport header: what
    /// [`PktBuf::restore_front`] takes to undo input.
    pub(crate) fn network_header_len(&self) -> usize {
        self.buf.headroom() - usize::from(self.buf.meta().l3)
    }

    /// The packet from its network header on.
    pub(crate) fn packet(&self) -> &[u8] {
        self.buf.network_packet().unwrap_or(&self.buf)
    }
}

/// A fragment past IP input. `datagram.buf` begins at the fragment's share of the payload.
#[derive(Debug)]
pub struct Fragment {
    /// The fragment. `protocol` is that of the whole packet (in IPv6, only the first fragment's counts).
    pub datagram: Datagram,
    /// Identification: 16 bits in IPv4, 32 in IPv6.
    pub ident: u32,
    /// Offset of the payload in the whole packet, in bytes; a multiple of eight.
    pub offset: u32,
    /// Whether more fragments follow.
    pub more: bool,
}
