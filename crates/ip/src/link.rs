//! Link headers: Ethernet's, FDDI's (RFC 1390), or none.
//!
//! Made for an interface and a neighbour ([`InterfaceView::link_header`](crate::InterfaceView::link_header)), cached by
//! frequent senders, and written into the headroom of each packet.

use core::net::IpAddr;

use pktbuf::{Checksum, PktBuf};
use wire::ethernet::{self, EtherType, MacAddr};
use wire::{Framing, fddi};

/// The link header of a resolved path. Frequent senders cache it: 14 bytes copied in front of a packet, 21 over FDDI, or
/// nothing where the link has no headers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LinkHeader {
    /// An Ethernet header.
    Ethernet([u8; ethernet::HEADER_LEN]),
    /// An FDDI header with these addresses and this type, which are kept as an Ethernet header: the rest is constant.
    Fddi([u8; ethernet::HEADER_LEN]),
    /// None.
    None,
}

/// This end of a link: the form of its headers, and the source in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkEnd {
    pub framing: Framing,
    pub mac: MacAddr,
}

impl LinkEnd {
    /// The header to `dst` for packets of `destination`'s family.
    pub(crate) fn header_to(self, dst: MacAddr, destination: IpAddr) -> LinkHeader {
        let ethertype = if destination.is_ipv4() { EtherType::Ipv4 } else { EtherType::Ipv6 };
        self.header_of_type(dst, ethertype)
    }

    /// The header to `dst` for a payload of this type.
    pub(crate) fn header_of_type(self, dst: MacAddr, ethertype: EtherType) -> LinkHeader {
        let mut bytes = [0; ethernet::HEADER_LEN];
        ethernet::Header { dst, src: self.mac, ethertype }.emit(&mut bytes);
        match self.framing {
            Framing::Ethernet => LinkHeader::Ethernet(bytes),
            Framing::Fddi => LinkHeader::Fddi(bytes),
            Framing::Packet => LinkHeader::None,
        }
    }
}

impl LinkHeader {
    /// The neighbour whose link address the header carries; unspecified without a header.
    pub fn destination(&self) -> MacAddr {
        match self {
            Self::Ethernet([a, b, c, d, e, f, ..]) | Self::Fddi([a, b, c, d, e, f, ..]) => {
                MacAddr([*a, *b, *c, *d, *e, *f])
            }
            Self::None => MacAddr::UNSPECIFIED,
        }
    }

    /// Puts the header in front of `packet`, which is then a frame.
    ///
    /// # Panics
    /// When the packet has less headroom than the header bytes: 14, or 21 over FDDI.
    #[inline]
    pub fn prepend(&self, packet: &mut PktBuf) {
        if let Self::Ethernet(header) = self {
            *front(packet) = *header;
        } else {
            self.prepend_other(packet);
        }
    }

    #[inline(never)]
    fn prepend_other(&self, packet: &mut PktBuf) {
        if let Self::Fddi(header) = self {
            *front(packet) = fddi::of_ethernet(header);
        }
    }
}

impl core::fmt::Debug for LinkHeader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "LinkHeader(to {})", self.destination())
    }
}

/// Makes room for `N` more bytes in front of the packet, and moves a partial checksum's start along.
#[inline(always)]
pub(crate) fn front<const N: usize>(packet: &mut PktBuf) -> &mut [u8; N] {
    if let Checksum::Partial { start, .. } = &mut packet.meta_mut().checksum {
        *start += N as u16;
    }
    packet.push_front(N).first_chunk_mut().expect("push_front returns as many bytes as asked for")
}
