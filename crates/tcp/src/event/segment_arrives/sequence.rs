//! First: check the sequence number (RFC 9293 section 3.10.7.4), after PAWS (RFC 7323 section 5.3).

use observe::{DropReason, Time};
use wire::tcp::{Header, TcpFlags};

use crate::config::Config;
use crate::pcb::{Reassembly, ReceiveWindow};
use crate::segment::Segment;

/// How to answer a segment that is not acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnacceptableReply {
    None,
    AtOnce,
    Limited,
}

/// A segment that is dropped here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unacceptable {
    pub(crate) reason: DropReason,
    pub(crate) answer: UnacceptableReply,
}

/// Check timestamps and sequence number. A new timestamp to echo is returned, for [`take_timestamp`] once the
/// acknowledgement is found acceptable: else one forged segment could advance TS.Recent, and PAWS would then refuse the
/// peer's own segments.
#[inline]
pub(crate) fn check(
    rw: &mut ReceiveWindow,
    ra: &mut Reassembly,
    segment: &Segment,
    config: &Config,
    now: Time,
) -> Result<Option<u32>, Unacceptable> {
    let header = &segment.header;
    //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
    //# If a TSopt is received on a connection where TSopt was not negotiated in the initial three-way handshake, the
    //# TSopt MUST be ignored and the packet processed normally.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
    //# If the PAWS algorithm is used, the following processing MUST be performed on all incoming segments for a
    //# synchronized connection.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
    //# Also, PAWS processing MUST take precedence over the regular TCP acceptability check (Section 3.3 in [RFC0793]),
    //# which is performed after verification of the received Timestamps option:
    //= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
    //# It is important to note that the timestamp MUST be checked only when a segment first arrives at the receiver,
    //# regardless of whether it is in sequence or it must be queued for later delivery.
    if rw.timestamps() {
        paws(rw, segment, config, now)?;
    }
    if !is_acceptable(rw, header, segment.seq_len()) {
        return Err(outside(rw, ra, segment, config));
    }
    Ok(new_ts_recent(rw, header))
}

/// Whether the segment, of `len` bytes of sequence space, is acceptable. The only place that decides this; the rule
/// differs for resets, acknowledgements and data:
///
/// * A reset must lie in the advertised window, from RCV.NXT on, regardless of its other contents (RFC 5961 section
///   3.2). The caller resets the connection if it is at RCV.NXT and challenges it elsewhere.
/// * A segment without data is accepted from Last.ACK.sent on and up to the window's right edge inclusive, which is a
///   little more than RFC 9293's table: otherwise an acknowledgement overtaken by data, or sent behind a full window,
///   would be lost. Behind the peer's FIN it is RFC 9293's table, also while the acknowledgement of the FIN is delayed:
///   the peer sends nothing new before it, so a segment from there may ask whether our acknowledgement was lost.
/// * Of any other segment one byte at least must lie in the window.
#[inline]
fn is_acceptable(rw: &ReceiveWindow, header: &Header, len: u32) -> bool {
    let seq = header.seq;
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.4
    //# A TCP receiver MUST process the RST and URG fields of all incoming segments, even when the receive window is
    //# zero (MUST-66).
    if seq == rw.nxt {
        // Even into a closed window: the ACK counts (RFC 9293 section 3.10.7.4).
        true
    } else if header.flags.contains(TcpFlags::RST) {
        //= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
        //# In all other cases, where the SEQ-field does not match and is outside the window, the receiver MUST
        //# silently discard the segment.
        seq.gt(rw.nxt) && seq.lt(rw.advertised_right_edge())
    } else if len == 0 {
        seq.ge(if rw.finished() { rw.nxt } else { rw.last_ack_sent }) && seq.le(rw.accept_edge())
    } else {
        (seq + len).gt(rw.nxt) && seq.lt(rw.accept_edge())
    }
}

/// RFC 7323 section 4.3: only a segment that covers Last.ACK.sent may set TS.Recent, so that a delayed acknowledgement
/// echoes the older timestamp.
//= https://www.rfc-editor.org/rfc/rfc7323#section-4.3
//# Thus, the timestamp from the latest segment (which filled the hole) MUST be echoed.
#[inline]
pub(super) fn new_ts_recent(rw: &ReceiveWindow, header: &Header) -> Option<u32> {
    let timestamps = header.options.timestamps?;
    let sets = rw.timestamps() && !header.flags.contains(TcpFlags::RST) && header.seq.le(rw.last_ack_sent);
    (sets && timestamps.value != rw.ts_recent).then_some(timestamps.value)
}

/// Stores the timestamp of a segment with an acceptable acknowledgement, if it is one to echo.
//= https://www.rfc-editor.org/rfc/rfc7323#section-5.2
//# The choice of incoming timestamps to be saved for this comparison MUST guarantee a value that is monotonically
//# non-decreasing.
#[inline]
pub(crate) fn take_timestamp(rw: &mut ReceiveWindow, header: &Header, now: Time) {
    // Between two hold-sets of a staged driver another segment may have brought a later one.
    if let Some(value) = new_ts_recent(rw, header)
        && (value.wrapping_sub(rw.ts_recent) as i32 > 0 || !rw.timestamp_is_fresh(now))
    {
        rw.ts_recent = value;
        rw.confirm_timestamp(now);
    }
}

/// Protection against wrapped sequence numbers.
//= https://www.rfc-editor.org/rfc/rfc7323#section-5.2
//# When an <RST> segment is received, it MUST NOT be subjected to the PAWS check by verifying an acceptable value in
//# SEG.TSval, and information from the Timestamps option MUST NOT be used to update connection state information.
#[inline]
fn paws(rw: &ReceiveWindow, segment: &Segment, config: &Config, now: Time) -> Result<(), Unacceptable> {
    // RFC 7323 section 5.2: a reset is never dropped for its timestamp, or a restarted peer could not reset the
    // connection.
    if segment.header.flags.contains(TcpFlags::RST) {
        return Ok(());
    }
    let Some(timestamps) = segment.header.options.timestamps else {
        // A SYN is answered further down, even without an acceptable timestamp or number (RFC 5961 section 4).
        if segment.header.flags.contains(TcpFlags::SYN) || !config.strict_timestamps {
            return Ok(());
        }
        //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
        //# A TCP MUST NOT abort a TCP connection because any segment lacks an expected TSopt.
        return Err(Unacceptable { reason: DropReason::TcpMissingTimestamp, answer: UnacceptableReply::None });
    };
    let age = timestamps.value.wrapping_sub(rw.ts_recent) as i32;
    if age < 0 && is_old(age, config) && rw.timestamp_is_fresh(now) {
        return Err(old_timestamp(segment));
    }
    Ok(())
}

/// Whether a segment with a timestamp `age` ticks (a negative number) from TS.Recent is too old. One tick does not
/// prove a wrapped sequence number, which takes 2^31 bytes; but a retransmission that fills a hole sometimes overtakes
/// data sent just before it, and by RFC 7323 (section 5.3) that would be dropped. Linux accepts it as well.
#[cold]
fn is_old(age: i32, config: &Config) -> bool {
    age < -i32::from(config.paws_window)
}

#[cold]
fn old_timestamp(segment: &Segment) -> Unacceptable {
    Unacceptable { reason: DropReason::TcpPaws, answer: urgency(segment) }
}

/// Data or FIN is answered at once, because our acknowledgement may have been lost. Other segments could belong to a
/// loop of two desynchronised ends, or to an attacker's guesses.
fn urgency(segment: &Segment) -> UnacceptableReply {
    let guess = segment.seq_len() == 0 || segment.header.flags.contains(TcpFlags::SYN);
    if guess { UnacceptableReply::Limited } else { UnacceptableReply::AtOnce }
}

/// Why the segment is outside the window. Data that was received before is reported with a D-SACK block (RFC 2883).
/// A reset is never answered.
#[cold]
fn outside(rw: &ReceiveWindow, ra: &mut Reassembly, segment: &Segment, config: &Config) -> Unacceptable {
    if segment.header.flags.contains(TcpFlags::RST) {
        return Unacceptable { reason: DropReason::TcpOutOfWindow, answer: UnacceptableReply::None };
    }
    let seq = segment.header.seq;
    let end = segment.end();
    let len = segment.seq_len();
    let old = len > 0 && end.le(rw.nxt) && (rw.nxt - seq) as u32 <= rw.limit.max(1 << 16);
    if config.dsack && old && !segment.data.is_empty() && !segment.header.flags.contains(TcpFlags::SYN) {
        ra.record_duplicate(seq, end);
    }
    let reason = if old { DropReason::TcpOldDuplicate } else { DropReason::TcpOutOfWindow };
    Unacceptable { reason, answer: urgency(segment) }
}
