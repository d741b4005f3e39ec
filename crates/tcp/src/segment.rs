//! A received segment: header as a value, data as the buffer it came in.

use core::net::IpAddr;

use observe::DropReason;
use pktbuf::{Checksum, PktBuf};
use wire::checksum::{Sum, pseudo_header, sum_kernel};
use wire::tcp::{ExtraOptions, HEADER_LEN, Header, TIMESTAMPED_LEN, TcpFlags};
use wire::{FourTuple, ParseError, SeqNumber};

/// IP protocol number of TCP.
const PROTOCOL: u8 = 6;

/// Whether [`Segment::parse`] checks the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Check it now, unless the device has.
    Now,
    /// Leave it to `SegmentArrives` (`ChecksumPlacement::Inside`).
    Later,
    /// Leave that of data to the thread that takes it (`ChecksumPlacement::After`).
    After,
}

/// What is left of the check of a checksum, with the sum of the header and the pseudo-header.
#[derive(Clone, Copy, Debug)]
enum Unchecked {
    Nothing,
    Inside(Sum),
    After(Sum),
}

/// The result of [`Segment::check`].
#[derive(Debug)]
pub struct Checked {
    header: Header,
    unchecked: Unchecked,
}

/// A parsed segment.
#[derive(Debug)]
pub struct Segment {
    /// The header.
    pub header: Header,
    /// The data; the header's bytes are still in its headroom.
    pub data: PktBuf,
    /// Both ends, as our connection names them.
    pub tuple: FourTuple,
    /// The next frame of the batch has data of the same connection. One acknowledgement is enough for both.
    pub followed: bool,
    unchecked: Unchecked,
}

impl Segment {
    /// How many segments on the wire it was: more than one for a super-segment.
    #[inline]
    pub fn parts(&self) -> usize {
        match usize::from(self.data.meta().segment_size) {
            0 => 1,
            size => self.data.len().div_ceil(size).max(1),
        }
    }

    /// Parse the segment in `buf`, which begins at the TCP header and ends with the data. `local` is the address it was
    /// sent to, `remote` the one it came from.
    ///
    /// # Errors
    /// The reason for which the segment must be dropped; nothing has been counted.
    #[inline(always)]
    pub fn parse(local: IpAddr, remote: IpAddr, mut buf: PktBuf, verify: Verify) -> Result<Segment, DropReason> {
        let checked = Segment::check(local, remote, &mut buf, verify)?;
        Ok(Segment::assemble(local, remote, buf, checked, false))
    }

    /// The first half of [`Segment::parse`]: checks the segment in `buf` and advances it to the data. For callers that
    /// construct the segment in place, with [`Segment::assemble`].
    ///
    /// # Errors
    /// As [`Segment::parse`].
    #[inline(always)]
    pub fn check(local: IpAddr, remote: IpAddr, buf: &mut PktBuf, verify: Verify) -> Result<Checked, DropReason> {
        let header = wire::tcp::parse(buf).map_err(reason)?;
        let len = usize::from(header.header_len);
        let pseudo = |len: usize| pseudo_header(remote, local, PROTOCOL, len as u32);
        let unchecked = match (buf.meta().checksum, verify) {
            (Checksum::None, Verify::Now) => {
                // Header and data in one pass.
                //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
                //# and the receiver MUST check it (MUST-3).
                if !pktbuf::sum(buf).add(pseudo(buf.len())).is_valid() {
                    return Err(DropReason::TcpBadChecksum);
                }
                Unchecked::Nothing
            }
            (Checksum::None, Verify::Later) => Unchecked::Inside(pktbuf::sum(&buf[..len]).add(pseudo(buf.len()))),
            (Checksum::None, Verify::After) => Unchecked::After(pktbuf::sum(&buf[..len]).add(pseudo(buf.len()))),
            (Checksum::Verified | Checksum::Partial { .. } | Checksum::Later { .. }, _) => Unchecked::Nothing,
        };
        buf.pull_front(len);
        Ok(Checked { header, unchecked })
    }

    /// The second half of [`Segment::parse`]; `followed` as in the segment.
    #[inline(always)]
    pub fn assemble(local: IpAddr, remote: IpAddr, data: PktBuf, checked: Checked, followed: bool) -> Segment {
        let Checked { header, unchecked } = checked;
        let tuple = FourTuple {
            local_addr: local,
            remote_addr: remote,
            local_port: header.dst_port,
            remote_port: header.src_port,
        };
        Segment { header, data, tuple, followed, unchecked }
    }

    /// The header of the segment in `buf`, if it has the timestamp option alone and the checksum is correct: nearly every
    /// segment. [`Segment::of_timestamped`] then makes the segment; otherwise [`Segment::check`] decides.
    #[inline(always)]
    pub fn timestamped_header(local: IpAddr, remote: IpAddr, buf: &PktBuf) -> Option<[u8; TIMESTAMPED_LEN]> {
        let (header, data) = buf.split_first_chunk()?;
        if !wire::tcp::is_timestamped(header) {
            return None;
        }
        if buf.meta().checksum != Checksum::None {
            return Some(*header);
        }
        // The header's length is known when this is compiled: its sum is four additions.
        let head = sum_kernel(header).add(pseudo_header(remote, local, PROTOCOL, buf.len() as u32));
        let sum = if data.is_empty() { head } else { head.add(pktbuf::sum(data)) };
        sum.is_valid().then_some(*header)
    }

    /// The segment in `buf`, which begins with this [header](Segment::timestamped_header); `followed` as in the segment.
    /// Its fields are read from the header straight to their place.
    #[inline(always)]
    pub fn of_timestamped(
        local: IpAddr,
        remote: IpAddr,
        header: &[u8; TIMESTAMPED_LEN],
        mut buf: PktBuf,
        followed: bool,
    ) -> Segment {
        buf.pull_front(TIMESTAMPED_LEN);
        let header = wire::tcp::parse_timestamped(header);
        Segment::assemble(local, remote, buf, Checked { header, unchecked: Unchecked::Nothing }, followed)
    }

    /// Parse and leave the checksum for `SegmentArrives` to check.
    ///
    /// # Errors
    /// As [`Segment::parse`], without the checksum.
    #[inline]
    pub fn parse_unverified(local: IpAddr, remote: IpAddr, buf: PktBuf) -> Result<Segment, DropReason> {
        Segment::parse(local, remote, buf, Verify::Later)
    }

    /// Whether the checksum is correct. Free if it was checked before, by us or by the device; else a pass over the
    /// data.
    #[inline]
    pub fn checksum_holds(&self) -> bool {
        // The header's length is even, so the data's sum joins without a byte swap.
        match self.unchecked {
            Unchecked::Nothing => true,
            Unchecked::Inside(header) | Unchecked::After(header) => header.add(pktbuf::sum(&self.data)).is_valid(),
        }
    }

    /// Whether the checksum may be checked after the connection has been released: there is data, and the configuration says so.
    #[inline]
    pub(crate) fn may_wait(&self) -> bool {
        matches!(self.unchecked, Unchecked::After(_)) && !self.data.is_empty()
    }

    /// The checksum was found to be correct.
    pub(crate) fn pass(&mut self) {
        self.unchecked = Unchecked::Nothing;
    }

    /// Leaves the check to the thread that takes the data: [`holds_later`].
    pub(crate) fn put_off(&mut self) {
        if let Unchecked::After(header) = self.unchecked {
            self.data.meta_mut().checksum = Checksum::Later { rest: header.fold() };
            self.unchecked = Unchecked::Nothing;
        }
    }

    /// Whether the checksum was checked before, by us or by the device.
    #[inline]
    pub(crate) fn is_checked(&self) -> bool {
        matches!(self.unchecked, Unchecked::Nothing)
    }

    /// Whether the checksum is to be checked inside `SegmentArrives`, whatever the segment is.
    #[inline]
    pub(crate) fn is_checked_inside(&self) -> bool {
        matches!(self.unchecked, Unchecked::Inside(_))
    }

    /// The options that few segments carry, read from the header's bytes; none once these are gone.
    #[cold]
    pub fn rare_options(&self) -> ExtraOptions {
        let options = usize::from(self.header.header_len).saturating_sub(HEADER_LEN);
        self.data.before(options).map_or(ExtraOptions::NONE, ExtraOptions::parse)
    }

    /// SEG.LEN: bytes of sequence space, SYN and FIN included.
    #[inline]
    pub fn seq_len(&self) -> u32 {
        let flags = self.header.flags;
        self.data.len() as u32 + u32::from(flags.contains(TcpFlags::SYN)) + u32::from(flags.contains(TcpFlags::FIN))
    }

    /// The SYN has been processed: the rest begins after it.
    pub(crate) fn pass_syn(&mut self) {
        let header = &mut self.header;
        header.seq += 1;
        header.flags.remove(TcpFlags::SYN);
        // The urgent pointer counts from the segment's sequence number, which was the SYN's.
        header.urgent = header.urgent.saturating_sub(1);
    }

    /// The ECN codepoint that the segment's IP header carried (RFC 3168 section 5): 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3
    /// CE. A segment to send says its own in [`pktbuf::Meta::traffic_class`] of the buffer.
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.data.meta().ecn()
    }

    /// The sequence number after the last byte.
    #[inline]
    pub fn end(&self) -> SeqNumber {
        self.header.seq + self.seq_len()
    }
}

/// Whether the check of this data was [put off](Segment::put_off).
#[inline]
pub(crate) fn is_put_off(data: &PktBuf) -> bool {
    matches!(data.meta().checksum, Checksum::Later { .. })
}

/// Whether data is as it was sent, if its check was [put off](Segment::put_off): it is done now.
pub(crate) fn holds_later(data: &mut PktBuf) -> bool {
    let holds = is_as_sent(data);
    if holds && is_put_off(data) {
        data.meta_mut().checksum = Checksum::Verified;
    }
    holds
}

/// [`holds_later`] for data that stays where it is, and is checked again when it is taken.
pub(crate) fn is_as_sent(data: &PktBuf) -> bool {
    match data.meta().checksum {
        Checksum::Later { rest } => pktbuf::sum(data).add_u16(rest).is_valid(),
        _ => true,
    }
}

#[cold]
fn reason(error: ParseError) -> DropReason {
    match error {
        ParseError::Truncated => DropReason::TcpTruncated,
        ParseError::BadOption => DropReason::TcpBadOption,
        _ => DropReason::TcpBadHeaderLength,
    }
}
