//! The IPv4 header (RFC 791). Options, source routes included, are skipped and never acted on; none is sent.

use core::net::Ipv4Addr;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ParseError, checksum};

/// Bytes of a header without options: every header that is sent.
pub const HEADER_LEN: usize = 20;
/// Bytes of the longest header with options.
pub const MAX_HEADER_LEN: usize = 60;
/// Offset of the header checksum.
pub const CHECKSUM_OFFSET: usize = 10;
/// Every host must accept a datagram of this many bytes, and every link carry one of 68 (RFC 791, RFC 1191).
pub const MIN_MTU: usize = 68;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct View {
    version_ihl: u8,
    tos: u8,
    total_len: U16,
    ident: U16,
    flags_offset: U16,
    ttl: u8,
    protocol: u8,
    checksum: U16,
    src: [u8; 4],
    dst: [u8; 4],
}

/// An IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Protocol of the payload, see [`crate::protocol`].
    pub protocol: u8,
    /// Time to live, in hops.
    pub ttl: u8,
    /// DSCP (high six bits) and ECN (low two bits).
    pub tos: u8,
    /// Identification: names a datagram among its fragments.
    pub ident: u16,
    /// The datagram may not be fragmented.
    pub dont_fragment: bool,
    /// Another fragment follows.
    pub more_fragments: bool,
    /// Position of the payload in the unfragmented datagram, in bytes: a multiple of 8, at most 65528.
    pub fragment_offset: u16,
    /// Length of the header with its options, in bytes: 20 to 60. [`emit`](Self::emit) always writes 20.
    pub header_len: u8,
    /// Length of header and payload, in bytes. Bytes after it are the frame's padding.
    pub total_len: u16,
}

/// Reads and checks a header: version, lengths against `packet`, and the header checksum.
///
/// # Errors
/// [`ParseError::Truncated`] if `packet` is shorter than the header or than the total length,
/// [`ParseError::BadVersion`], [`ParseError::BadLength`] if the header length is below 20 or above the total length,
/// [`ParseError::BadChecksum`].
#[inline]
pub fn parse(packet: &[u8]) -> Result<Header, ParseError> {
    let header = parse_unverified(packet)?;
    if usize::from(header.total_len) > packet.len() {
        return Err(ParseError::Truncated);
    }
    let covered = packet.get(..usize::from(header.header_len)).ok_or(ParseError::Truncated)?;
    let sum = match covered.first_chunk::<HEADER_LEN>() {
        // The size is a constant here, so the sum is five loads and four additions.
        Some(plain) if covered.len() == HEADER_LEN => checksum::sum_kernel(plain),
        _ => checksum::sum(covered),
    };
    if !sum.is_valid() {
        return Err(ParseError::BadChecksum);
    }
    Ok(header)
}

/// Reads a header without options that [`Headers`](crate::Headers) has checked for version and lengths, and checks its
/// checksum.
///
/// # Errors
/// [`ParseError::BadChecksum`].
#[inline(always)]
pub fn parse_plain(header: &[u8; HEADER_LEN]) -> Result<Header, ParseError> {
    if !checksum::sum_kernel(header).is_valid() {
        return Err(ParseError::BadChecksum);
    }
    let view: View = zerocopy::transmute!(*header);
    Ok(view.header())
}

/// Reads a header without checking its checksum or the presence of the payload, as quoted by an ICMP error (RFC 1122
/// section 3.2.2 guarantees only eight bytes of payload).
///
/// # Errors
/// As [`parse`], but for the checksum and the total length.
#[inline]
pub fn parse_unverified(packet: &[u8]) -> Result<Header, ParseError> {
    let (view, _) = View::ref_from_prefix(packet).map_err(|_| ParseError::Truncated)?;
    if view.version_ihl >> 4 != 4 {
        return Err(ParseError::BadVersion);
    }
    let header_len = (view.version_ihl & 0x0f) * 4;
    let total_len = view.total_len.get();
    if usize::from(header_len) < HEADER_LEN || u16::from(header_len) > total_len {
        return Err(ParseError::BadLength);
    }
    if usize::from(header_len) > packet.len() {
        return Err(ParseError::Truncated);
    }
    Ok(view.header())
}

impl View {
    #[inline(always)]
    fn header(&self) -> Header {
        let flags_offset = self.flags_offset.get();
        Header {
            src: self.src.into(),
            dst: self.dst.into(),
            protocol: self.protocol,
            ttl: self.ttl,
            tos: self.tos,
            ident: self.ident.get(),
            dont_fragment: flags_offset & DONT_FRAGMENT != 0,
            more_fragments: flags_offset & MORE_FRAGMENTS != 0,
            fragment_offset: (flags_offset & OFFSET_MASK) << 3,
            header_len: (self.version_ihl & 0x0f) * 4,
            total_len: self.total_len.get(),
        }
    }
}

/// Bytes of a header with a router alert.
pub const ROUTER_ALERT_HEADER_LEN: usize = HEADER_LEN + ROUTER_ALERT.len();
/// The option that makes every router examine the packet (RFC 2113).
const ROUTER_ALERT: [u8; 4] = [148, 4, 0, 0];

impl Header {
    /// Whether this is a fragment of a datagram and not the whole of it.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// Length of the payload, in bytes; zero if the lengths are inconsistent.
    #[inline]
    pub const fn payload_len(&self) -> usize {
        self.total_len.saturating_sub(self.header_len as u16) as usize
    }

    /// Writes a header of 20 bytes with its checksum. `header_len` is ignored; the low three bits of `fragment_offset`
    /// are dropped.
    #[inline(always)]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) {
        let mut flags_offset = self.fragment_offset >> 3;
        if self.dont_fragment {
            flags_offset |= DONT_FRAGMENT;
        }
        if self.more_fragments {
            flags_offset |= MORE_FRAGMENTS;
        }
        let mut view = View {
            version_ihl: 0x45,
            tos: self.tos,
            total_len: U16::new(self.total_len),
            ident: U16::new(self.ident),
            flags_offset: U16::new(flags_offset),
            ttl: self.ttl,
            protocol: self.protocol,
            checksum: U16::ZERO,
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        view.checksum = U16::new(checksum::sum_kernel(view.as_bytes()).finish());
        *out = zerocopy::transmute!(view);
    }

    /// As [`emit`](Self::emit), with a router alert (RFC 2113): 24 bytes, which `total_len` counts.
    pub fn emit_with_router_alert(&self, out: &mut [u8; ROUTER_ALERT_HEADER_LEN]) {
        if let Some((plain, option)) = out.split_first_chunk_mut::<HEADER_LEN>() {
            self.emit(plain);
            option.copy_from_slice(&ROUTER_ALERT);
        }
        if let Ok((view, _)) = View::mut_from_prefix(out) {
            (view.version_ihl, view.checksum) = (0x46, U16::ZERO);
        }
        let checksum = checksum::sum(out).finish();
        if let Ok((view, _)) = View::mut_from_prefix(out) {
            view.checksum = U16::new(checksum);
        }
    }
}
