//! SEGMENT ARRIVES in CLOSED (RFC 9293 section 3.10.7.1): the reset for a segment that belongs to no connection.

use observe::Counter;
use pktbuf::PktBuf;
use wire::SeqNumber;
use wire::checksum::pseudo_header;
use wire::tcp::{CHECKSUM_OFFSET, Header, Options, TcpFlags};

use crate::outbox::Outbox;
use crate::segment::Segment;

/// IP protocol number of TCP.
const PROTOCOL: u8 = 6;

/// The answer to `segment`, which matches no connection and no listener: a whole TCP segment to send back, checksum
/// done. `None` for a reset, for a wrong checksum that was not checked yet, and when there is no buffer. The caller
/// limits the rate.
pub fn segment_arrives(segment: &Segment) -> Option<PktBuf> {
    let header = &segment.header;
    let flags = header.flags;
    if !segment.checksum_holds() || flags.contains(TcpFlags::RST) {
        return None;
    }
    let (seq, ack, flags) = if flags.contains(TcpFlags::ACK) {
        (header.ack, SeqNumber(0), TcpFlags::RST)
    } else {
        (SeqNumber(0), segment.end(), TcpFlags::RST.union(TcpFlags::ACK))
    };
    let tuple = &segment.tuple;
    let header = Header {
        src_port: tuple.local_port,
        dst_port: tuple.remote_port,
        seq,
        ack,
        flags,
        window: 0,
        urgent: 0,
        header_len: 0,
        options: Options::NONE,
    };
    let mut buf = PktBuf::alloc(0)?;
    let len = header.emitted_len();
    header.emit(buf.push_front(len));
    let sum = pseudo_header(tuple.local_addr, tuple.remote_addr, PROTOCOL, len as u32).add(pktbuf::sum(&buf));
    buf[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.finish().to_be_bytes());
    buf.meta_mut().flow_hash = segment.data.meta().flow_hash;
    Some(buf)
}

/// Answers a segment that matches no state of ours with a reset, as in CLOSED (RFC 9293 section 3.10.7.1).
#[cold]
pub(crate) fn deny(segment: &Segment, out: &mut Outbox<'_>) {
    if let Some(reset) = segment_arrives(segment) {
        out.count(Counter::SegmentsOut, 1);
        out.count(Counter::ResetsOut, 1);
        out.segments.push(reset);
    }
}
