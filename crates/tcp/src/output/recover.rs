//! Output in loss recovery: lost data is retransmitted in the order of its sequence numbers, then new data is sent, as
//! far as the congestion window has room above the pipe; and the tail loss probe (RFC 8985 section 7).
//!
//! Losses are detected elsewhere, and every segment sent here is recorded there. Without SACK, recovery retransmits one
//! segment per partial acknowledgement (RFC 6582). What may never happen: a retransmitted byte that the peer is known
//! to hold.

use super::*;
use crate::pcb::{RECOVERY_PROBES, RECOVERY_SLACK};
use crate::tick::not_before;

/// Retransmits lost data, and sends new data where the pipe has room.
#[cold]
pub(super) fn recover(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
) -> StopReason {
    if let Some(hold) = resend_first(sw, rq, ho, out, now) {
        return hold;
    }
    if let Some(hold) = doubt_time_out(sw, rq, ho, out, now) {
        return hold;
    }
    let mss = u32::from(sw.mss);
    let mut pipe = sw.pipe();
    let mut new_data = true;
    loop {
        let room = sw.congestion.cwnd().saturating_sub(pipe);
        //= https://www.rfc-editor.org/rfc/rfc8985#section-9.3
        //# A segment marked as lost by RACK-TLP MUST NOT be retransmitted until congestion control deems this
        //# appropriate.
        if room < mss && !small_hole_fits(sw, room) {
            sw.cwnd_limited = true;
            return StopReason::Congestion;
        }
        match recover_one(sw, rq, ho, out, now, (room, &mut new_data)) {
            Ok(bytes) => pipe += bytes,
            Err(hold) => return hold,
        }
    }
}

/// Whether the next lost piece is less than a segment and fits into `room`. It is small where records end, and its
/// acknowledgement makes no more room.
fn small_hole_fits(sw: &SendWindow, room: u32) -> bool {
    let mss = u32::from(sw.mss);
    let Some(loss) = sw.loss.as_ref().filter(|_| sw.sack && room > 0) else { return false };
    loss.next_lost(sw.una, mss).is_some_and(|(left, right)| (within_record(sw, left, right) - left) as u32 <= room)
}

/// Retransmits the first segment of the flight, if required regardless of the window.
fn resend_first(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
) -> Option<StopReason> {
    let (una, nxt, mss) = (sw.una, sw.nxt, u32::from(sw.mss));
    let loss = sw.loss.as_mut().filter(|loss| loss.resend_first)?;
    let right = loss.first_end(una, nxt, mss);
    let right = within_record(sw, una, right);
    if !resend(sw, rq, ho, out, now, (una, right)) {
        return Some(StopReason::NoRoom);
    }
    if let Some(loss) = &mut sw.loss {
        loss.resend_first = false;
    }
    None
}

/// The end of a segment from `left` on that is to end at `right`, unless a record ends before.
fn within_record(sw: &SendWindow, left: SeqNumber, right: SeqNumber) -> SeqNumber {
    match &sw.shaping {
        Some(shaping) => left + shaping.record(left, (right - left).max(0) as u32),
        None => right,
    }
}

/// F-RTO (RFC 5682, step 2b): while the time-out is in doubt new data is sent and nothing is retransmitted; its
/// acknowledgement will resolve the doubt. `None`: there is no doubt, or no data to resolve it with.
fn doubt_time_out(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
) -> Option<StopReason> {
    sw.loss.as_ref().filter(|loss| sw.mode == RecoveryMode::Loss && loss.doubt == FrtoState::NewData)?;
    let hold = send_new(sw, rq, ho, out, now, false);
    let (nxt, loss) = (sw.nxt, sw.loss.as_mut()?);
    if nxt == loss.recover {
        loss.doubt = FrtoState::None;
        return None;
    }
    Some(hold)
}

/// Sends one segment of recovery; returns how much it adds to the pipe. New data that may not be sent is not tried
/// again.
//= https://www.rfc-editor.org/rfc/rfc6675#section-4
//# NextSeg () MUST return the sequence number range of the next segment that is to be transmitted, per the following
//# rules:
//= https://www.rfc-editor.org/rfc/rfc6675#section-5
//# Once a TCP is in the loss recovery phase, the following procedure MUST be used for each arriving ACK:
fn recover_one(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    (room, new_data): (u32, &mut bool),
) -> Result<u32, StopReason> {
    let (una, mss) = (sw.una, u32::from(sw.mss));
    let by_range = sw.sack || sw.mode == RecoveryMode::Loss;
    //= https://www.rfc-editor.org/rfc/rfc6675#section-4
    //# If there exists a smallest unSACKed sequence number 'S2' that meets the following three criteria for determining
    //# loss, the sequence range of one segment of up to SMSS octets starting with S2 MUST be returned.
    //= https://www.rfc-editor.org/rfc/rfc6675#section-5
    //# The scoreboard MUST be queried via NextSeg () for the sequence number range of the next segment to transmit (if
    //# any), and the given segment sent.
    if by_range && let Some(range) = sw.loss.as_ref().and_then(|loss| loss.next_lost(una, mss)) {
        let range = (range.0, within_record(sw, range.0, range.1));
        let sent = resend(sw, rq, ho, out, now, range);
        return if sent { Ok((range.1 - range.0) as u32) } else { Err(StopReason::NoRoom) };
    }
    if *new_data {
        //= https://www.rfc-editor.org/rfc/rfc6675#section-4
        //# If no sequence number 'S2' per rule (1) exists but there exists available unsent data and the receiver's
        //# advertised window allows, the sequence range of one segment of up to SMSS octets of previously unsent data
        //# starting with sequence number HighData+1 MUST be returned.
        match send_one_new(sw, rq, ho, out, now, NewSegmentLimits { congestion: room, push: false }) {
            Ok(bytes) => {
                if let Some(loss) = &mut sw.loss {
                    loss.prr.sent(bytes);
                }
                return Ok(bytes);
            }
            Err(StopReason::NoRoom) => return Err(StopReason::NoRoom),
            Err(_) => *new_data = false,
        }
        return Ok(0);
    }
    //= https://www.rfc-editor.org/rfc/rfc6675#section-4
    //# NextSeg () MUST indicate failure, and no segment is returned.
    Err(StopReason::Empty)
}

/// A tail loss probe: new data if it may be sent, else the end of the flight again (RFC 8985 section 7.3). False if
/// neither was possible.
//= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
//# The sender MUST follow the RACK transmission procedures in the "Upon Transmitting a Data Segment" section upon
//# sending either a retransmission or a new data loss probe.
pub(crate) fn probe_tail(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
) -> bool {
    let (una, from, mss) = (sw.una, sw.nxt, u32::from(sw.mss));
    let clock = not_before(now.as_micros() as u32, rq.log.newest());
    if probe_with_new(sw, rq, ho, out, now).is_some() {
        let range = (from, sw.nxt);
        sw.rtt.probed();
        sw.begin_disorder().probe_sent(range, clock, false);
        return true;
    }
    // A FIN that was sent alone is retransmitted alone.
    let fin_alone = sw.fin_sent && sw.flight() > 1 && rq.log.time_of(from - 1) != rq.log.time_of(from - 2);
    let last = (if fin_alone { from - 1 } else { una.max(from - mss) }, from);
    if sw.flight() == 0 || !retransmit(sw, rq, ho, out, now, last) {
        return false;
    }
    sw.rtt.probed();
    let loss = sw.begin_disorder();
    loss.probe_sent(last, clock, true);
    loss.totals.sent_again((last.1 - last.0) as u32);
    true
}

/// Sends a segment of new data as a probe, regardless of the congestion window; returns its bytes.
fn probe_with_new(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
) -> Option<u32> {
    let (from, room) = (sw.nxt, NewSegmentLimits { congestion: u32::from(sw.mss), push: true });
    // The next wake is for the retransmission time-out, whatever is sent.
    let super_segments = core::mem::take(&mut out.prefer_super_segments);
    let sent = send_one_new(sw, rq, ho, out, now, room).ok();
    out.prefer_super_segments = super_segments;
    if sent.is_some() {
        note_sent(sw, rq, from, out, now);
    }
    sent
}

/// A probe during recovery: new data, whose acknowledgement shows whether the retransmissions are lost. If that changes
/// nothing, or the time-out would be earlier, the first segment of the flight once more: a peer that drops further data
/// out of order does not answer new data. Both ignore the window. False if nothing could be sent.
pub(crate) fn probe_recovery(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
) -> bool {
    let Some(loss) = &mut sw.loss else { return false };
    let first = core::mem::replace(&mut loss.probes, RECOVERY_PROBES) == 0;
    if first && sw.rtt.has_time_for_two_probes(RECOVERY_SLACK) {
        loss.probes = 1;
        let sent = probe_with_new(sw, rq, ho, out, now);
        if let (Some(bytes), Some(loss)) = (sent, &mut sw.loss) {
            loss.prr.sent(bytes);
        }
        return sent.is_some();
    }
    loss.resend_first = true;
    resend_first(sw, rq, ho, out, now).is_none()
}

/// Retransmits the lost bytes `[left, right)`, and records it. False if there is no credit or no buffer.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//# but SHOULD retransmit normally the old unacknowledged data between SND.UNA and SND.UNA+SND.WND (SHLD-16).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//# The sender MAY also retransmit old data beyond SND.UNA+SND.WND (MAY-7),
fn resend(
    sw: &mut SendWindow,
    rq: &RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    range: (SeqNumber, SeqNumber),
) -> bool {
    if !retransmit(sw, rq, ho, out, now, range) {
        return false;
    }
    let (width, clock) = (sw.slice_width(), not_before(now.as_micros() as u32, rq.log.newest()));
    let first = range.0 == sw.una;
    if let Some(loss) = &mut sw.loss {
        let bytes = (range.1 - range.0) as u32;
        loss.sent_again(range.0, range.1, loss.leaves_at(clock), width);
        loss.prr.sent(bytes);
        loss.undo.sent_again(bytes, first.then(|| ho.clock(now)));
        loss.totals.sent_again(bytes);
    }
    if first && sw.timer_kind == TimerPurpose::Retransmit {
        // Never less than a time-out after the previous transmission of the segment (RFC 6298 section 5).
        sw.guard_flight(out.config, now);
        sw.arm(out);
    }
    true
}

/// Makes the segment `[left, right)` again, which may end with the FIN. False if there is no credit or no buffer.
fn retransmit(
    sw: &mut SendWindow,
    rq: &RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    (left, right): (SeqNumber, SeqNumber),
) -> bool {
    if out.credit == 0 {
        out.tx_blocked = true;
        return false;
    }
    let data_end = sw.una + sw.sent_data().min(rq.len);
    let len = (right.min(data_end) - left).max(0) as u32;
    let mut flags = ACK;
    let ends_record = sw.shaping.as_ref().is_some_and(|shaping| shaping.records.contains(&right));
    if len > 0 && (right.ge(data_end) && sw.sent_data() == rq.len || ends_record) {
        flags.insert(TcpFlags::PSH);
    }
    if sw.fin_sent && right.gt(data_end) {
        flags.insert(TcpFlags::FIN);
    }
    let offset = (left - sw.una).max(0) as u32;
    let draft = data_draft(sw, ho, left, len, flags, now);
    if !emit_data(ho, out, draft, |dst, sum| rq.copy_sent(offset, dst, sum)) {
        return false;
    }
    // Karn: its acknowledgement is no round-trip sample.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.1
    //# The RTO MUST be computed according to the algorithm in [10], including Karn's algorithm for taking RTT samples
    //# (MUST-18).
    //= https://www.rfc-editor.org/rfc/rfc6298#section-3
    //# TCP MUST use Karn's algorithm [KP87] for taking RTT samples.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-3
    //# That is, RTT samples MUST NOT be made using segments that were retransmitted (and thus for which it is ambiguous
    //# whether the reply was for the first instance of the packet or a later instance).
    sw.rtt.cancel();
    sw.last_sent = Tick::of(now);
    out.count(Counter::Retransmits, 1);
    out.count(Counter::RetransmittedBytes, u64::from(len));
    true
}
