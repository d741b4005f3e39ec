//! The IPv6 header and its extension headers (RFC 8200).

mod extension;

use core::net::Ipv6Addr;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ParseError;

pub use extension::{
    ExtChain, FRAGMENT_HEADER_LEN, FragmentHeader, MAX_CHAIN_LEN, MAX_HEADERS, MAX_STEPS, Problem, ProblemKind, walk,
};

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Every link must carry packets of this many bytes (RFC 8200 section 5).
pub const MIN_MTU: usize = 1280;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct View {
    version_class_label: U32,
    payload_len: U16,
    next_header: u8,
    hop_limit: u8,
    src: [u8; 16],
    dst: [u8; 16],
}

/// The fixed IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Type of the first header after this one, see [`crate::protocol`].
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// DSCP (high six bits) and ECN (low two bits).
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes after this header, extension headers included. Bytes after them are the frame's padding.
    pub payload_len: u16,
}

/// Reads and checks the fixed header: version, and payload length against `packet`. Jumbograms (payload length zero
/// with a hop-by-hop option, RFC 2675) are not supported.
///
/// # Errors
/// [`ParseError::Truncated`] if `packet` is shorter than header and payload, [`ParseError::BadVersion`].
#[inline]
pub fn parse(packet: &[u8]) -> Result<Header, ParseError> {
    let header = parse_unverified(packet)?;
    if HEADER_LEN + usize::from(header.payload_len) > packet.len() {
        return Err(ParseError::Truncated);
    }
    Ok(header)
}

/// Reads a header that [`Headers`](crate::Headers) has checked for version and length.
#[inline(always)]
pub fn parse_plain(header: &[u8; HEADER_LEN]) -> Header {
    let view: View = zerocopy::transmute!(*header);
    view.header()
}

/// Reads a header without checking the presence of the payload, as quoted by an ICMPv6 error.
///
/// # Errors
/// [`ParseError::Truncated`] below 40 bytes, [`ParseError::BadVersion`].
#[inline]
pub fn parse_unverified(packet: &[u8]) -> Result<Header, ParseError> {
    let (view, _) = View::ref_from_prefix(packet).map_err(|_| ParseError::Truncated)?;
    if view.version_class_label.get() >> 28 != 6 {
        return Err(ParseError::BadVersion);
    }
    Ok(view.header())
}

impl View {
    #[inline(always)]
    fn header(&self) -> Header {
        let word = self.version_class_label.get();
        Header {
            src: self.src.into(),
            dst: self.dst.into(),
            next_header: self.next_header,
            hop_limit: self.hop_limit,
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0x000f_ffff,
            payload_len: self.payload_len.get(),
        }
    }
}

impl Header {
    /// Writes the header. Bits of `flow_label` above 20 are dropped.
    #[inline(always)]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) {
        *out = zerocopy::transmute!(View {
            version_class_label: U32::new(
                6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff
            ),
            payload_len: U16::new(self.payload_len),
            next_header: self.next_header,
            hop_limit: self.hop_limit,
            src: self.src.octets(),
            dst: self.dst.octets(),
        });
    }
}

/// The solicited-node group of an address, to which neighbour solicitations for it go (RFC 4291 section 2.7.1).
pub const fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b] = addr.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (a & 0xff), b)
}
