//! The TCP header and its options (RFC 9293 section 3.1).
//!
//! [`parse`] reads a segment from the network. Almost every data segment has no options, or the timestamp option after
//! two no-operations (RFC 7323 appendix A); those two cases cost one comparison, all others are walked.
//! [`Header::emit`] writes options in the order of a given sender, because receivers' fast paths and packet scripts
//! expect it.
//!
//! The checksum is not verified here: it needs the pseudo-header and the payload, and a device may have verified it.

mod extra_options;
mod flags;
mod options;

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{Sum, sum};
use crate::{ParseError, SeqNumber};

pub use extra_options::{Cookie, EcnCounters, ExtraOptions, FastOpen, UserTimeout};
pub use flags::TcpFlags;
pub use options::{MAX_OPTIONS_LEN, MAX_WINDOW_SCALE, OptionOrder, Options, SackBlocks, SynOptions, Timestamps};

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Bytes of the longest header.
pub const MAX_HEADER_LEN: usize = 60;
/// Offset of the checksum field.
pub const CHECKSUM_OFFSET: usize = 16;
/// Bytes of a header whose only option is that of timestamps.
pub const TIMESTAMPED_LEN: usize = 32;
/// Bytes of the header of the usual SYN.
pub const SYN_LEN: usize = HEADER_LEN + options::SYN_OPTIONS_LEN;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct View {
    src_port: U16,
    dst_port: U16,
    seq: U32,
    ack: U32,
    data_offset: u8,
    flags: u8,
    window: U16,
    checksum: U16,
    urgent: U16,
}

/// A header whose only option is that of timestamps.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Timestamped {
    view: View,
    options: options::PaddedTimestamps,
}

/// A TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// SEG.SEQ: sequence number of the first byte of data, or of the SYN.
    pub seq: SeqNumber,
    /// SEG.ACK: next sequence number expected; valid only with the ACK flag.
    pub ack: SeqNumber,
    /// Control bits.
    pub flags: TcpFlags,
    /// SEG.WND as on the wire, not scaled.
    pub window: u16,
    /// SEG.UP: urgent pointer; valid only with the URG flag.
    pub urgent: u16,
    /// Length of the header with its options, in bytes: 20 to 60, the offset of the data. [`emit`](Self::emit) uses
    /// [`emitted_len`](Self::emitted_len) instead.
    pub header_len: u8,
    /// Options.
    pub options: Options,
}

/// Reads the header of a segment; the data begins at [`Header::header_len`].
///
/// A malformed option ends the option walk: earlier options are used, later ones ignored, and the segment stays valid
/// (as in Linux; RFC 9293 MUST-7 requires only that it is handled).
///
/// # Errors
/// [`ParseError::Truncated`] if `segment` is shorter than the header, [`ParseError::BadLength`] if the data offset is
/// below five.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//# A TCP implementation MUST be able to receive a TCP Option in any segment (MUST-5).
#[inline(always)]
pub fn parse(segment: &[u8]) -> Result<Header, ParseError> {
    let (view, _) = View::ref_from_prefix(segment).map_err(|_| ParseError::Truncated)?;
    let header_len = usize::from(view.data_offset >> 4) * 4;
    if header_len < HEADER_LEN {
        return Err(ParseError::BadLength);
    }
    let options = segment.get(HEADER_LEN..header_len).ok_or(ParseError::Truncated)?;
    // Three return paths, so that in the first two the options are constants and never built in memory.
    if options.is_empty() {
        Ok(view.header(Options::NONE))
    } else if let Some(timestamps) = Timestamps::from_padded(options) {
        Ok(view.header(Options { timestamps: Some(timestamps), ..Options::NONE }))
    } else {
        Ok(parse_walked(view, options))
    }
}

/// Whether the header is of [`TIMESTAMPED_LEN`] bytes, with the timestamp option after two no-operations: two
/// comparisons of bytes, and nothing is parsed.
#[inline(always)]
pub fn is_timestamped(header: &[u8; TIMESTAMPED_LEN]) -> bool {
    let header: &Timestamped = zerocopy::transmute_ref!(header);
    header.view.data_offset >> 4 == (TIMESTAMPED_LEN / 4) as u8 && header.options.is_padded()
}

/// [`parse`] of a header for which [`is_timestamped`] holds: without a branch, so that each field is written once, to the
/// place where it stays.
#[inline(always)]
pub fn parse_timestamped(header: &[u8; TIMESTAMPED_LEN]) -> Header {
    let header: &Timestamped = zerocopy::transmute_ref!(header);
    header.view.header(Options { timestamps: Some(header.options.timestamps()), ..Options::NONE })
}

#[inline(never)]
fn parse_walked(view: &View, options: &[u8]) -> Header {
    match Options::of_usual_syn(options) {
        Some(options) => view.header(options),
        None => view.header(Options::walk(options)),
    }
}

/// Reads the ports, in the order source, destination, and the sequence number of the first eight bytes of a segment:
/// the minimum that an ICMP error quotes (RFC 792).
///
/// # Errors
/// [`ParseError::Truncated`] below eight bytes.
pub fn parse_quoted(segment: &[u8]) -> Result<(u16, u16, SeqNumber), ParseError> {
    #[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    struct Quoted {
        src_port: U16,
        dst_port: U16,
        seq: U32,
    }
    let (view, _) = Quoted::ref_from_prefix(segment).map_err(|_| ParseError::Truncated)?;
    Ok((view.src_port.get(), view.dst_port.get(), SeqNumber(view.seq.get())))
}

/// The acknowledgement number of an outgoing segment, if its ACK bit is set; also `None` if the header is truncated.
#[inline]
pub fn acknowledgement(segment: &[u8]) -> Option<SeqNumber> {
    let (number, flags) = (segment.get(8..12)?, *segment.get(13)?);
    let number: [u8; 4] = number.try_into().ok()?;
    TcpFlags(flags.into()).contains(TcpFlags::ACK).then(|| SeqNumber(u32::from_be_bytes(number)))
}

/// Bytes of a segment's header with its options, by its data offset; 0 if it is truncated.
#[inline]
pub fn header_len(segment: &[u8]) -> usize {
    segment.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4)
}

impl View {
    #[inline(always)]
    fn header(&self, options: Options) -> Header {
        Header {
            src_port: self.src_port.get(),
            dst_port: self.dst_port.get(),
            seq: SeqNumber(self.seq.get()),
            ack: SeqNumber(self.ack.get()),
            flags: TcpFlags(u16::from(self.flags) | u16::from(self.data_offset & 1) << 8),
            window: self.window.get(),
            urgent: self.urgent.get(),
            header_len: (self.data_offset >> 4) * 4,
            options,
        }
    }
}

impl Header {
    /// Length of the header that [`emit`](Self::emit) writes, in bytes: 20 to 60, a multiple of 4, the same for every
    /// [`OptionOrder`].
    #[inline]
    pub fn emitted_len(&self) -> usize {
        HEADER_LEN + self.options.emitted_len()
    }

    /// Writes the header in Linux's option order, checksum field zero, and returns its length. Returns 0 and writes
    /// nothing if `out` is shorter than [`emitted_len`](Self::emitted_len).
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        self.emit_ordered(OptionOrder::Linux, out)
    }

    /// [`emit`](Self::emit) with the option order of another sender.
    #[inline]
    pub fn emit_ordered(&self, order: OptionOrder, out: &mut [u8]) -> usize {
        let len = self.emitted_len();
        let Some(options) = self.emit_fixed(len, out) else { return 0 };
        self.options.emit(order, options);
        len
    }

    /// [`emit_ordered`](Self::emit_ordered) with the checksum filled in: over the header and over the pseudo-header and
    /// data that `rest` is the sum of. A header with only timestamps is written and summed from registers.
    #[inline]
    pub fn emit_sealed(&self, order: OptionOrder, rest: Sum, out: &mut [u8]) -> usize {
        match (self.options.only_timestamps(), out.first_chunk_mut::<TIMESTAMPED_LEN>()) {
            (Some(timestamps), Some(out)) => {
                *out = self.timestamped(timestamps, rest);
                TIMESTAMPED_LEN
            }
            _ => self.emit_any_sealed(order, rest, out),
        }
    }

    /// The bytes of the header with these timestamps instead of its options, with the checksum filled in as by
    /// [`emit_sealed`](Self::emit_sealed). Written and summed from registers.
    #[inline(always)]
    pub fn timestamped(&self, timestamps: Timestamps, rest: Sum) -> [u8; TIMESTAMPED_LEN] {
        zerocopy::transmute!(self.timestamped_words(timestamps, rest))
    }

    /// The same as words in network order.
    #[inline(always)]
    fn timestamped_words(&self, timestamps: Timestamps, rest: Sum) -> [U64; TIMESTAMPED_LEN / 8] {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let offset = (TIMESTAMPED_LEN as u32 / 4) << 28 | u32::from(self.flags.0 & 0x1ff) << 16;
        let ports = u32::from(self.src_port) << 16 | u32::from(self.dst_port);
        let (first, second) = (pair(ports, self.seq.0), pair(self.ack.0, offset | u32::from(self.window)));
        let third = pair(u32::from(self.urgent), options::PADDED_LEAD.get());
        let fourth = pair(timestamps.value, timestamps.echo);
        let checksum = rest.add_u64(first).add_u64(second).add_u64(third).add_u64(fourth).finish();
        [first, second, third | u64::from(checksum) << 48, fourth].map(U64::new)
    }

    /// The same for the header of a SYN with `options` in Linux's order.
    #[inline(always)]
    pub fn synchronising(&self, options: SynOptions, rest: Sum) -> [u8; SYN_LEN] {
        let [mss, lead, value, echo, scale] = options.words();
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let offset = (SYN_LEN as u32 / 4) << 28 | u32::from(self.flags.0 & 0x1ff) << 16;
        let ports = u32::from(self.src_port) << 16 | u32::from(self.dst_port);
        let (first, second) = (pair(ports, self.seq.0), pair(self.ack.0, offset | u32::from(self.window)));
        let (third, fourth, fifth) = (pair(u32::from(self.urgent), mss), pair(lead, value), pair(echo, scale));
        let sum = rest.add_u64(first).add_u64(second).add_u64(third).add_u64(fourth).add_u64(fifth);
        let third = third | u64::from(sum.finish()) << 48;
        zerocopy::transmute!([first, second, third, fourth, fifth].map(U64::new))
    }

    #[inline(never)]
    fn emit_any_sealed(&self, order: OptionOrder, rest: Sum, out: &mut [u8]) -> usize {
        if order == OptionOrder::Linux
            && let Some(options) = self.options.usual_syn()
            && let Some(out) = out.first_chunk_mut()
        {
            *out = self.synchronising(options, rest);
            return SYN_LEN;
        }
        let len = self.emit_ordered(order, out);
        let Some(header) = out.get_mut(..len) else { return 0 };
        let [high, low] = rest.add(sum(header)).finish().to_be_bytes();
        if let [.., field_high, field_low] = header.get_mut(..CHECKSUM_OFFSET + 2).unwrap_or_default() {
            (*field_high, *field_low) = (high, low);
        }
        len
    }

    /// Length of the header that [`emit_with`](Self::emit_with) writes, in bytes.
    pub fn emitted_len_with(&self, extra: &ExtraOptions) -> usize {
        HEADER_LEN + self.options.emitted_len_with(extra)
    }

    /// [`emit_ordered`](Self::emit_ordered) with rarer options: the counters of accurate ECN are after the timestamps,
    /// as in Linux, and the cookie is last. SACK blocks without room beside them are left out. Returns 0 and writes
    /// nothing if `out` is too short or they need more than 40 bytes.
    pub fn emit_with(&self, order: OptionOrder, extra: &ExtraOptions, out: &mut [u8]) -> usize {
        let len = self.emitted_len_with(extra);
        if len > MAX_HEADER_LEN {
            return 0;
        }
        let Some(options) = self.emit_fixed(len, out) else { return 0 };
        self.options.emit_any(order, extra, options);
        len
    }

    /// Writes all but the options of a header of `len` bytes; returns the room for the options.
    #[inline]
    fn emit_fixed<'a>(&self, len: usize, out: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let (fixed, options) = out.get_mut(..len)?.split_first_chunk_mut::<HEADER_LEN>()?;
        *fixed = zerocopy::transmute!(View {
            src_port: U16::new(self.src_port),
            dst_port: U16::new(self.dst_port),
            seq: U32::new(self.seq.0),
            ack: U32::new(self.ack.0),
            // At most 60, so a quarter of it fits the high four bits.
            data_offset: (len as u8 / 4) << 4 | (self.flags.0 >> 8) as u8 & 1,
            flags: self.flags.0 as u8,
            window: U16::new(self.window),
            checksum: U16::ZERO,
            urgent: U16::new(self.urgent),
        });
        Some(options)
    }
}
