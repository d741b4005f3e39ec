//! The chain of IPv6 extension headers (RFC 8200 section 4), walked once and bounded.
//!
//! The walk stops at the first header that is not an extension this stack reads, or at the fragment header of a real
//! fragment, because a slice of a packet and not a header follows it. An atomic fragment (offset zero, no more
//! fragments) is walked through (RFC 6946). A header that the receiver must answer with an error is not a parse error
//! but a [`Problem`]: `ip` decides whether an ICMPv6 error may be sent for it.

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ParseError, protocol};

use super::HEADER_LEN;

/// Most extension headers walked.
pub const MAX_HEADERS: usize = 8;
/// Most bytes of extension headers walked.
pub const MAX_CHAIN_LEN: usize = 256;
/// The most steps of a walk: each header, each option and each run of padding inside one is a step. A packet that
/// exceeds them with many small options is dropped, so that no packet costs much more than a plain one (RFC 8504
/// section 5.3 lets a host set such limits). Eight headers of three options each are accepted.
pub const MAX_STEPS: u16 = 32;
/// Bytes of a fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;

/// Most bytes of Pad1 in a row.
const MAX_PADDING: usize = 7;

/// Offset of the next-header field in the fixed header.
const FIXED_NEXT_HEADER_AT: u16 = 6;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FragmentView {
    next_header: u8,
    reserved: u8,
    offset_more: U16,
    ident: U32,
}

/// A fragment header (RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentHeader {
    /// Type of the first header of the fragmentable part.
    pub next_header: u8,
    /// Position of this fragment in the fragmentable part, in bytes: a multiple of 8.
    pub offset: u16,
    /// Another fragment follows.
    pub more: bool,
    /// Names the packet among its fragments, together with both addresses.
    pub ident: u32,
}

impl FragmentHeader {
    /// Reads a fragment header.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] below eight bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (view, _) = FragmentView::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        let offset_more = view.offset_more.get();
        Ok(Self {
            next_header: view.next_header,
            offset: offset_more & 0xfff8,
            more: offset_more & 1 != 0,
            ident: view.ident.get(),
        })
    }

    /// Writes the header. The low three bits of `offset` are dropped.
    pub fn emit(&self, out: &mut [u8; FRAGMENT_HEADER_LEN]) {
        *out = zerocopy::transmute!(FragmentView {
            next_header: self.next_header,
            reserved: 0,
            offset_more: U16::new(self.offset & 0xfff8 | u16::from(self.more)),
            ident: U32::new(self.ident),
        });
    }

    /// Whether the packet is whole in spite of the header (RFC 6946).
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// A receiver's reaction to a header that must not be skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// An option that requires a silent discard (action bits 01).
    DiscardOption,
    /// An option that requires Parameter Problem code 2 (action bits 10).
    UnknownOption,
    /// The same, unless the packet went to a multicast group (action bits 11).
    UnknownOptionUnlessMulticast,
    /// A routing header with segments left, of any type: Parameter Problem code 0 (RFC 8200 section 4.4, RFC 5095).
    UnknownRouting,
    /// A hop-by-hop header that is not the first: Parameter Problem code 1 (RFC 8200 section 4).
    MisplacedHopByHop,
}

/// The first header or option of a chain that forbids delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// The error.
    pub kind: ProblemKind,
    /// The pointer of the ICMPv6 error: the offending byte, counted from the start of the IPv6 header.
    pub pointer: u16,
}

/// The result of walking a chain of extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtChain {
    /// Type of the header at `offset`: a transport protocol, an extension this stack does not read, or
    /// [`protocol::IPV6_NO_NEXT`].
    pub next_header: u8,
    /// Bytes of extension headers walked: the offset of the header of type `next_header`, from the first byte after the
    /// fixed header.
    pub offset: usize,
    /// The byte that holds `next_header`, counted from the start of the IPv6 header: the pointer of a Parameter Problem
    /// code 1.
    pub next_header_pointer: u16,
    /// The fragment header, of a real or an atomic fragment. For a real one the walk has stopped directly after it.
    pub fragment: Option<FragmentHeader>,
    /// Set if the packet may not be delivered; the walk has stopped at the header before the faulty one.
    pub problem: Option<Problem>,
    /// Headers, options and runs of padding that were processed: the work of the walk, at most [`MAX_STEPS`].
    pub steps: u16,
}

impl ExtChain {
    /// Whether this is a fragment of a packet and not the whole of it.
    pub const fn is_fragment(&self) -> bool {
        matches!(&self.fragment, Some(fragment) if !fragment.is_atomic())
    }
}

/// Walks the chain that begins with a header of type `first` at `payload[0]`, the first byte after the fixed header.
///
/// # Errors
/// [`ParseError::Truncated`] if a header ends after `payload`, [`ParseError::ChainTooLong`] beyond [`MAX_HEADERS`],
/// [`MAX_CHAIN_LEN`] or [`MAX_STEPS`], [`ParseError::BadOption`] if an option overruns its header.
#[inline]
pub fn walk(first: u8, payload: &[u8]) -> Result<ExtChain, ParseError> {
    let mut chain = ExtChain {
        next_header: first,
        offset: 0,
        next_header_pointer: FIXED_NEXT_HEADER_AT,
        fragment: None,
        problem: None,
        steps: 0,
    };
    // Almost every packet: no extension at all.
    if !is_extension(first) {
        return Ok(chain);
    }
    for _ in 0..MAX_HEADERS {
        step(&mut chain, payload)?;
        if chain.is_fragment() || chain.problem.is_some() || !is_extension(chain.next_header) {
            return Ok(chain);
        }
    }
    Err(ParseError::ChainTooLong)
}

#[inline]
const fn is_extension(kind: u8) -> bool {
    matches!(kind, protocol::HOP_BY_HOP | protocol::IPV6_ROUTING | protocol::IPV6_FRAGMENT | protocol::IPV6_DESTINATION)
}

/// Steps over the extension header at `chain.offset`.
fn step(chain: &mut ExtChain, payload: &[u8]) -> Result<(), ParseError> {
    let rest = payload.get(chain.offset..).ok_or(ParseError::Truncated)?;
    let &[next_header, len8, ..] = rest else {
        return Err(ParseError::Truncated);
    };
    let kind = chain.next_header;
    let len = if kind == protocol::IPV6_FRAGMENT { FRAGMENT_HEADER_LEN } else { 8 + 8 * usize::from(len8) };
    if chain.offset + len > MAX_CHAIN_LEN {
        return Err(ParseError::ChainTooLong);
    }
    let header = rest.get(..len).ok_or(ParseError::Truncated)?;
    let base = pointer(chain.offset);
    chain.steps += 1;
    chain.problem = match kind {
        protocol::IPV6_FRAGMENT => {
            chain.fragment = Some(FragmentHeader::parse(header)?);
            None
        }
        protocol::IPV6_ROUTING => routing_problem(header, base),
        protocol::HOP_BY_HOP if chain.offset != 0 => {
            Some(Problem { kind: ProblemKind::MisplacedHopByHop, pointer: chain.next_header_pointer })
        }
        _ => option_problem(header, base, &mut chain.steps)?,
    };
    if chain.problem.is_none() {
        chain.next_header = next_header;
        chain.next_header_pointer = base;
        chain.offset += len;
    }
    Ok(())
}

/// `offset` after the fixed header as a pointer from its start. The chain is bounded, so nothing is cut off.
const fn pointer(offset: usize) -> u16 {
    (HEADER_LEN + offset) as u16
}

/// A routing header is skipped only if no segment is left; then its type does not matter.
fn routing_problem(header: &[u8], base: u16) -> Option<Problem> {
    match header {
        &[_, _, _, segments_left, ..] if segments_left != 0 => {
            Some(Problem { kind: ProblemKind::UnknownRouting, pointer: base + 2 })
        }
        _ => None,
    }
}

/// Looks for an option that must not be skipped: only padding is known here (RFC 8200 section 4.2).
fn option_problem(header: &[u8], base: u16, steps: &mut u16) -> Result<Option<Problem>, ParseError> {
    let mut at = 2;
    while let Some(&kind) = header.get(at) {
        *steps += 1;
        if *steps > MAX_STEPS {
            return Err(ParseError::ChainTooLong);
        }
        if kind == 0 {
            // Padding is for alignment: more than seven bytes in a row serve no purpose (RFC 8504 section 5.3).
            let run = header.iter().skip(at).take(MAX_PADDING + 1).take_while(|byte| **byte == 0).count();
            if run > MAX_PADDING {
                return Err(ParseError::ChainTooLong);
            }
            at += run;
            continue;
        }
        let len = usize::from(*header.get(at + 1).ok_or(ParseError::BadOption)?);
        if at + 2 + len > header.len() {
            return Err(ParseError::BadOption);
        }
        let action = match kind >> 6 {
            1 => Some(ProblemKind::DiscardOption),
            2 => Some(ProblemKind::UnknownOption),
            3 => Some(ProblemKind::UnknownOptionUnlessMulticast),
            _ => None,
        };
        if let Some(kind) = action {
            // `at` is below the header's length, which the chain bound keeps under 256.
            return Ok(Some(Problem { kind, pointer: base + at as u16 }));
        }
        at += 2 + len;
    }
    Ok(None)
}
