//! A received segment: header as a value, text as the buffer it came in.

use core::net::IpAddr;

use observe::DropReason;
use pktbuf::{Checksum, PktBuf};
use wire::checksum::pseudo_header;
use wire::tcp::{Header, TcpFlags};
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
}

/// A parsed segment.
#[derive(Debug)]
pub struct Segment {
    /// The header.
    pub header: Header,
    /// The text; the header's octets still stand in front of it, in its headroom.
    pub text: PktBuf,
    /// Both ends, as our connection names them.
    pub tuple: FourTuple,
    /// The checksum has been checked, by us or by the device.
    pub verified: bool,
}

impl Segment {
    /// Parse the segment in `buf`, which begins at the TCP header and ends with the text. `local` is the address it was
    /// sent to, `remote` the one it came from.
    ///
    /// # Errors
    /// The reason for which the segment must be dropped; nothing has been counted.
    #[inline]
    pub fn parse(local: IpAddr, remote: IpAddr, mut buf: PktBuf, verify: Verify) -> Result<Segment, DropReason> {
        let header = wire::tcp::parse(&buf).map_err(reason)?;
        let verified = !matches!(buf.meta().checksum, Checksum::None);
        let tuple = FourTuple {
            local_addr: local,
            remote_addr: remote,
            local_port: header.dst_port,
            remote_port: header.src_port,
        };
        if verify == Verify::Now && !verified && !checksum_holds(&buf, &tuple) {
            return Err(DropReason::TcpBadChecksum);
        }
        buf.pull_front(usize::from(header.header_len));
        Ok(Segment { header, text: buf, tuple, verified: verified || verify == Verify::Now })
    }

    /// Parse and leave the checksum for `SegmentArrives` to check.
    ///
    /// # Errors
    /// As [`Segment::parse`], without the checksum.
    #[inline]
    pub fn parse_unverified(local: IpAddr, remote: IpAddr, buf: PktBuf) -> Result<Segment, DropReason> {
        Segment::parse(local, remote, buf, Verify::Later)
    }

    /// Check the checksum now if nobody has.
    ///
    /// # Errors
    /// [`DropReason::TcpBadChecksum`].
    #[inline]
    pub fn verify(&mut self) -> Result<(), DropReason> {
        if self.verified {
            return Ok(());
        }
        let len = usize::from(self.header.header_len);
        self.text.restore_front(len);
        self.verified = checksum_holds(&self.text, &self.tuple);
        self.text.pull_front(len);
        if self.verified { Ok(()) } else { Err(DropReason::TcpBadChecksum) }
    }

    /// SEG.LEN: octets of sequence space, SYN and FIN included.
    #[inline]
    pub fn seq_len(&self) -> u32 {
        let flags = self.header.flags;
        self.text.len() as u32 + u32::from(flags.contains(TcpFlags::SYN)) + u32::from(flags.contains(TcpFlags::FIN))
    }

    /// The sequence number after the last octet.
    #[inline]
    pub fn end(&self) -> SeqNumber {
        self.header.seq + self.seq_len()
    }
}

fn checksum_holds(segment: &[u8], tuple: &FourTuple) -> bool {
    let pseudo = pseudo_header(tuple.remote_addr, tuple.local_addr, PROTOCOL, segment.len() as u32);
    pktbuf::sum(segment).add(pseudo).is_valid()
}

#[cold]
fn reason(error: ParseError) -> DropReason {
    match error {
        ParseError::Truncated => DropReason::TcpTruncated,
        ParseError::BadOption => DropReason::TcpBadOption,
        _ => DropReason::TcpBadHeaderLength,
    }
}
