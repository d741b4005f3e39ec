//! The UDP header (RFC 768).

use core::net::IpAddr;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ParseError, checksum, protocol};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// Offset of the checksum field.
pub const CHECKSUM_OFFSET: usize = 6;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct View {
    src_port: U16,
    dst_port: U16,
    len: U16,
    checksum: U16,
}

/// A UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Source port; zero if the sender expects no answer.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Length of header and payload, in bytes, 8 to 65535.
    pub len: u16,
    /// Checksum as on the wire; zero means none, legal over IPv4 only (RFC 8200 section 8.1).
    pub checksum: u16,
}

/// Reads a header and checks its length against `datagram`. Bytes after the length are ignored.
///
/// # Errors
/// [`ParseError::Truncated`] if `datagram` is shorter than the header or its length field, [`ParseError::BadLength`] if
/// the length field is below 8.
#[inline]
pub fn parse(datagram: &[u8]) -> Result<Header, ParseError> {
    let (view, _) = View::ref_from_prefix(datagram).map_err(|_| ParseError::Truncated)?;
    let len = view.len.get();
    if usize::from(len) < HEADER_LEN {
        return Err(ParseError::BadLength);
    }
    if usize::from(len) > datagram.len() {
        return Err(ParseError::Truncated);
    }
    Ok(Header { src_port: view.src_port.get(), dst_port: view.dst_port.get(), len, checksum: view.checksum.get() })
}

impl Header {
    /// Writes the header, with `checksum` unchanged.
    #[inline]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) {
        *out = zerocopy::transmute!(View {
            src_port: U16::new(self.src_port),
            dst_port: U16::new(self.dst_port),
            len: U16::new(self.len),
            checksum: U16::new(self.checksum),
        });
    }

    /// The sum over the pseudo-header of this datagram, to which the sum over its `len` bytes is to be added.
    #[inline]
    pub fn pseudo_header(&self, src: IpAddr, dst: IpAddr) -> checksum::Sum {
        checksum::pseudo_header(src, dst, protocol::UDP, u32::from(self.len))
    }
}
