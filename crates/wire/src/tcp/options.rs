//! TCP options: maximum segment size (RFC 9293), window scale and timestamps (RFC 7323), selective acknowledgement (RFC
//! 2018). Others are skipped.
//!
//! ```text
//! usual data segment   01 01 08 0a vvvv eeee            NOP NOP TS
//! with SACK            01 01 05 (2+8n) llll rrrr ...    NOP NOP SACK
//! Linux SYN            02 04 mm | 04 02 08 0a vvvv eeee | 01 03 03 ss
//! ```

use core::fmt;

use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ExtraOptions;
use crate::SeqNumber;

/// Bytes of options that a header has room for.
pub const MAX_OPTIONS_LEN: usize = 40;
/// Largest shift of the window (RFC 7323 section 2.3).
pub const MAX_WINDOW_SCALE: u8 = 14;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// The option bytes of the usual data segment.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct PaddedTimestamps {
    lead: U32,
    value: U32,
    echo: U32,
}

impl PaddedTimestamps {
    /// Whether they are two no-operations and the timestamps.
    #[inline(always)]
    pub(super) fn is_padded(&self) -> bool {
        self.lead == PADDED_LEAD
    }

    /// The timestamps, if they are.
    #[inline(always)]
    pub(super) fn timestamps(&self) -> Timestamps {
        Timestamps { value: self.value.get(), echo: self.echo.get() }
    }
}

/// NOP NOP TS with its length.
pub(super) const PADDED_LEAD: U32 = U32::from_bytes([NOP, NOP, TIMESTAMPS, 10]);

/// Bytes of the options of the usual SYN.
pub(super) const SYN_OPTIONS_LEN: usize = 20;
/// SACK-permitted and TS with their lengths: the second word of these options.
const SYN_LEAD: u32 = u32::from_be_bytes([SACK_PERMITTED, 2, TIMESTAMPS, 10]);
/// MSS with its length: the upper half of the first word.
const SYN_MSS: u32 = u32::from_be_bytes([MSS, 4, 0, 0]);
/// NOP and the window scale with its length, without the shift: the last word.
const SYN_SCALE: u32 = u32::from_be_bytes([NOP, WINDOW_SCALE, 3, 0]);

/// The options of the usual SYN, which also permits SACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynOptions {
    /// See [`Options::mss`].
    pub mss: u16,
    /// See [`Options::window_scale`].
    pub window_scale: u8,
    /// See [`Options::timestamps`].
    pub timestamps: Timestamps,
}

impl SynOptions {
    /// In Linux's order.
    #[inline(always)]
    pub(super) fn words(self) -> [u32; SYN_OPTIONS_LEN / 4] {
        let SynOptions { mss, window_scale, timestamps: Timestamps { value, echo } } = self;
        [SYN_MSS | u32::from(mss), SYN_LEAD, value, echo, SYN_SCALE | u32::from(window_scale)]
    }
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct BlockView {
    left: U32,
    right: U32,
}

/// The timestamp option (RFC 7323 section 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the receiver's clock, echoed; valid only with the ACK flag.
    pub echo: u32,
}

impl Timestamps {
    /// The timestamps of option bytes that are two no-operations, the timestamps and nothing else.
    #[inline]
    pub(super) fn from_padded(bytes: &[u8]) -> Option<Self> {
        match PaddedTimestamps::ref_from_bytes(bytes) {
            Ok(padded) if padded.is_padded() => Some(padded.timestamps()),
            _ => None,
        }
    }
}

/// At most four ranges of received bytes, left edge included, right edge excluded (RFC 2018 section 3).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SackBlocks {
    // Entries from `len` on stay zero, so that `==` compares the blocks.
    blocks: [(SeqNumber, SeqNumber); Self::CAPACITY],
    len: u8,
}

impl SackBlocks {
    /// Most blocks that fit 40 bytes of options. Beside timestamps three fit, and [`Header::emit`](super::Header::emit)
    /// leaves the fourth out.
    pub const CAPACITY: usize = 4;
    /// No block.
    pub const EMPTY: Self = Self { blocks: [(SeqNumber(0), SeqNumber(0)); Self::CAPACITY], len: 0 };

    /// Adds a block behind the others; `false` if there were four.
    #[inline]
    pub fn push(&mut self, left: SeqNumber, right: SeqNumber) -> bool {
        match self.blocks.get_mut(usize::from(self.len)) {
            Some(free) => {
                *free = (left, right);
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// Keeps the first `count` blocks.
    pub fn truncate(&mut self, count: usize) {
        for dropped in self.blocks.iter_mut().skip(count) {
            *dropped = (SeqNumber(0), SeqNumber(0));
        }
        self.len = self.len.min(count.min(Self::CAPACITY) as u8);
    }

    /// The blocks in the order of the option: the first holds the segment that was received last.
    #[inline]
    pub fn as_slice(&self) -> &[(SeqNumber, SeqNumber)] {
        self.blocks.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The blocks in the order of the option.
    #[inline]
    pub fn iter(&self) -> core::iter::Copied<core::slice::Iter<'_, (SeqNumber, SeqNumber)>> {
        self.as_slice().iter().copied()
    }

    /// How many blocks, 0 to 4.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is no block.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<'a> IntoIterator for &'a SackBlocks {
    type Item = (SeqNumber, SeqNumber);
    type IntoIter = core::iter::Copied<core::slice::Iter<'a, (SeqNumber, SeqNumber)>>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Takes the first four and drops the rest.
impl FromIterator<(SeqNumber, SeqNumber)> for SackBlocks {
    fn from_iter<I: IntoIterator<Item = (SeqNumber, SeqNumber)>>(blocks: I) -> Self {
        let mut all = Self::EMPTY;
        for (left, right) in blocks.into_iter().take(Self::CAPACITY) {
            all.push(left, right);
        }
        all
    }
}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(left, right)| left.0..right.0)).finish()
    }
}

/// The options of a segment. If one appears twice, the last counts.
///
/// In this order in memory: of a segment with timestamps alone, all that is before the blocks is written, and then the
/// blocks become zero where they stay. Behind a field that is written in part they would be copied there, by loads that
/// wait for several stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Options {
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// Selective acknowledgements.
    pub sack: SackBlocks,
    /// Largest segment the sender can receive, in bytes of data, never zero when parsed. Valid on a SYN only.
    pub mss: Option<u16>,
    /// Shift of the sender's window, 0 to 14; larger ones are parsed as 14 (RFC 7323 section 2.3). Valid on a SYN only.
    pub window_scale: Option<u8>,
    /// The sender can use selective acknowledgements. Valid on a SYN only.
    pub sack_permitted: bool,
}

/// The stack whose option order is used. All orders have the same length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OptionOrder {
    /// `mss,sackOK,TS,nop,wscale`; without timestamps `mss,nop,nop,sackOK,nop,wscale`.
    #[default]
    Linux,
    /// `mss,nop,wscale,sackOK,TS`; without timestamps `mss,nop,wscale,sackOK,eol`.
    FreeBsd,
}

impl Options {
    /// No option.
    pub const NONE: Self =
        Self { mss: None, window_scale: None, sack_permitted: false, timestamps: None, sack: SackBlocks::EMPTY };

    /// Reads the option bytes of a header. A length of 0 or 1, or one that overruns, ends the walk; an option of a
    /// known kind with a wrong length is skipped.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Self {
        match Timestamps::from_padded(bytes) {
            Some(timestamps) => Self { timestamps: Some(timestamps), ..Self::NONE },
            None => Self::walk(bytes),
        }
    }

    /// [`walk`](Self::walk) of bytes that are the options of the usual SYN, all four in Linux's order: compared word by
    /// word. `None`: they are not.
    #[inline]
    pub(super) fn of_usual_syn(bytes: &[u8]) -> Option<Self> {
        let words: &[U32; SYN_OPTIONS_LEN / 4] = FromBytes::ref_from_bytes(bytes).ok()?;
        let [mss, lead, value, echo, scale] = words.map(U32::get);
        // A maximum of zero is no option.
        if mss & 0xffff_0000 != SYN_MSS || mss == SYN_MSS || lead != SYN_LEAD || scale & 0xffff_ff00 != SYN_SCALE {
            return None;
        }
        Some(Self {
            mss: Some(mss as u16),
            window_scale: Some((scale as u8).min(MAX_WINDOW_SCALE)),
            sack_permitted: true,
            timestamps: Some(Timestamps { value, echo }),
            sack: SackBlocks::EMPTY,
        })
    }

    /// These options, if they are those of the usual SYN.
    #[inline]
    pub(super) fn usual_syn(&self) -> Option<SynOptions> {
        match *self {
            Options {
                mss: Some(mss),
                window_scale: Some(window_scale),
                sack_permitted: true,
                timestamps: Some(timestamps),
                sack,
            } if sack.is_empty() => Some(SynOptions { mss, window_scale, timestamps }),
            _ => None,
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //# the following options MUST be supported (MUST-4
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.2
    //# receivers MUST be prepared to process options even if they do not begin on a word boundary (MUST-64).
    pub(super) fn walk(mut rest: &[u8]) -> Self {
        let mut options = Self::NONE;
        loop {
            rest = match *rest {
                [] | [END, ..] => return options,
                [NOP, ref after @ ..] => after,
                //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
                //# A TCP implementation MUST (MUST-6) ignore without error any TCP Option it does not implement,
                //# assuming that the option has a length field.
                //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
                //# All TCP Options except End of Option List Option (EOL) and No-Operation (NOP) MUST have length
                //# fields, including all future options (MUST-68).
                [kind, len, ref after @ ..] => {
                    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
                    //# TCP implementations MUST be prepared to handle an illegal option length (e.g., zero); a
                    //# suggested procedure is to reset the connection and log the error cause (MUST-7).
                    let Some((body, after)) = usize::from(len).checked_sub(2).and_then(|n| after.split_at_checked(n))
                    else {
                        return options;
                    };
                    options.take(kind, body);
                    after
                }
                // A kind without a length.
                [_] => return options,
            };
        }
    }

    fn take(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            // Like Linux, treats a maximum of zero as no option.
            (MSS, &[high, low]) if (high, low) != (0, 0) => self.mss = Some(u16::from_be_bytes([high, low])),
            //= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
            //# If a Window Scale option is received with a shift.cnt value larger than 14, the TCP SHOULD log the error
            //# but MUST use 14 instead of the specified value.
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(MAX_WINDOW_SCALE)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
                self.timestamps = Some(Timestamps {
                    value: u32::from_be_bytes([a, b, c, d]),
                    echo: u32::from_be_bytes([e, f, g, h]),
                });
            }
            (SACK, [_, ..]) => {
                if let Ok(blocks) = <[BlockView]>::ref_from_bytes(body) {
                    self.sack = blocks.iter().map(|b| (SeqNumber(b.left.get()), SeqNumber(b.right.get()))).collect();
                }
            }
            _ => {}
        }
    }

    /// The timestamps, if they are the only option, as in the usual data segment.
    #[inline]
    pub(super) fn only_timestamps(&self) -> Option<Timestamps> {
        let others = self.mss.is_some() || self.window_scale.is_some() || self.sack_permitted || !self.sack.is_empty();
        if others { None } else { self.timestamps }
    }

    /// How many SACK blocks fit after the other options and `extra` bytes of rarer ones.
    #[inline]
    fn emitted_blocks(&self, extra: usize) -> usize {
        let room = MAX_OPTIONS_LEN.saturating_sub(self.len_before_sack() + extra);
        self.sack.len().min(room.saturating_sub(4) / 8)
    }

    #[inline]
    fn len_before_sack(&self) -> usize {
        let mss = if self.mss.is_some() { 4 } else { 0 };
        let scale = if self.window_scale.is_some() { 4 } else { 0 };
        let rest = match (self.timestamps.is_some(), self.sack_permitted) {
            (true, _) => 12,
            (false, true) => 4,
            (false, false) => 0,
        };
        mss + scale + rest
    }

    /// Bytes of options that are written: 0 to 40, a multiple of 4.
    #[inline]
    pub fn emitted_len(&self) -> usize {
        self.len_beside(0)
    }

    /// As [`emitted_len`](Self::emitted_len), with rarer options: more than 40 if they do not fit.
    pub(super) fn emitted_len_with(&self, extra: &ExtraOptions) -> usize {
        let len = extra.emitted_len();
        self.len_beside(len) + len
    }

    #[inline]
    fn len_beside(&self, extra: usize) -> usize {
        let sack = match self.emitted_blocks(extra) {
            0 => 0,
            blocks => 4 + 8 * blocks,
        };
        self.len_before_sack() + sack
    }

    /// Writes the options into `out`, of exactly [`emitted_len`](Self::emitted_len) bytes.
    #[inline]
    pub(super) fn emit(&self, order: OptionOrder, out: &mut [u8]) {
        if let (Some(timestamps), Ok(padded)) = (self.timestamps, PaddedTimestamps::mut_from_bytes(&mut *out))
            && !self.sack_permitted
        {
            // 12 bytes with timestamps are only timestamps.
            *padded = padded_timestamps(timestamps);
        } else if !out.is_empty() {
            self.emit_any(order, &ExtraOptions::NONE, out);
        }
    }

    pub(super) fn emit_any(&self, order: OptionOrder, extra: &ExtraOptions, out: &mut [u8]) {
        let blocks = self.emitted_blocks(extra.emitted_len());
        let mut writer = OptionWriter { rest: out };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            writer.put([MSS, 4, high, low]);
        }
        match order {
            OptionOrder::Linux => {
                if self.timestamps.is_none() {
                    writer.rest = extra.put_ecn(core::mem::take(&mut writer.rest));
                }
                self.put_timestamps(&mut writer, [NOP, NOP, SACK_PERMITTED, 2]);
                if self.timestamps.is_some() {
                    writer.rest = extra.put_ecn(core::mem::take(&mut writer.rest));
                }
                self.put_scale(&mut writer);
            }
            OptionOrder::FreeBsd => {
                self.put_scale(&mut writer);
                let last = blocks == 0 && *extra == ExtraOptions::NONE;
                //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
                //# The content of the header beyond the End of Option List Option MUST be header padding of zeros
                //# (MUST-69).
                let pad = if last { END } else { NOP };
                self.put_timestamps(&mut writer, [SACK_PERMITTED, 2, pad, pad]);
                writer.rest = extra.put_ecn(core::mem::take(&mut writer.rest));
            }
        }
        self.put_sack(&mut writer, blocks);
        let rest = extra.put_user_timeout(writer.rest);
        extra.put_fast_open(rest);
    }

    fn put_scale(&self, writer: &mut OptionWriter<'_>) {
        if let Some(shift) = self.window_scale {
            writer.put([NOP, WINDOW_SCALE, 3, shift]);
        }
    }

    /// Timestamps and SACK-permitted share one word of padding; `alone` is the latter without the former.
    fn put_timestamps(&self, writer: &mut OptionWriter<'_>, alone: [u8; 4]) {
        if let Some(timestamps) = self.timestamps {
            let mut bytes: [u8; 12] = zerocopy::transmute!(padded_timestamps(timestamps));
            if self.sack_permitted {
                bytes[0] = SACK_PERMITTED;
                bytes[1] = 2;
            }
            writer.put(bytes);
        } else if self.sack_permitted {
            writer.put(alone);
        }
    }

    fn put_sack(&self, writer: &mut OptionWriter<'_>, blocks: usize) {
        if blocks == 0 {
            return;
        }
        writer.put([NOP, NOP, SACK, 2 + 8 * blocks as u8]);
        for (left, right) in self.sack.iter().take(blocks) {
            writer.put(left.0.to_be_bytes());
            writer.put(right.0.to_be_bytes());
        }
    }
}

#[inline]
fn padded_timestamps(timestamps: Timestamps) -> PaddedTimestamps {
    PaddedTimestamps { lead: PADDED_LEAD, value: U32::new(timestamps.value), echo: U32::new(timestamps.echo) }
}

/// Fills a slice from the front. The slice was sized by `emitted_len`, so nothing is ever cut off.
struct OptionWriter<'a> {
    rest: &'a mut [u8],
}

impl OptionWriter<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some((front, rest)) = core::mem::take(&mut self.rest).split_first_chunk_mut::<N>() {
            *front = bytes;
            self.rest = rest;
        }
    }
}
