//! Fifth: check the ACK field (RFC 9293 section 3.10.7.4), with RFC 5961 section 5, and the send window. Duplicate
//! acknowledgements and SACK blocks are evaluated in `disorder`.
//!
//! Written against the send side alone. Its result about data to send is a hint for the caller: the transmission that
//! follows decides again.

use observe::{Counter, Time};
use wire::SeqNumber;
use wire::tcp::Header;

use super::disorder::{self, AckFacts};
use crate::outbox::{LocalEffects, Outbox, Readiness};
use crate::pcb::{Awaited, Delivery, RecoveryMode, RetransmitQueue, SendWindow, TimerPurpose};
use crate::tick::{Tick, since};

/// The result of checking the ACK field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckCheck {
    /// It acknowledges unsent data, or is impossibly old: challenge, and drop the segment.
    Invalid,
    /// It is acceptable.
    Valid {
        /// There may be something to send now.
        work: bool,
        /// It acknowledges our FIN.
        fin: bool,
    },
}

/// Process the ACK field, the window and the SACK blocks of `header`, of a segment with `data_len` bytes of sequence
/// space.
#[inline]
pub(crate) fn process(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    header: &Header,
    data_len: u32,
    out: &mut Outbox<'_>,
    now: Time,
) -> AckCheck {
    let ack = header.ack;
    let advance = ack - sw.una;
    if advance < 0 {
        // RFC 5961 section 5: not older than the largest window that the peer ever had, nor than our SYN: nothing
        // before that was ever sent, so only a guess can acknowledge it. The ISS itself is acceptable, because the SYN
        // was sent and SND.UNA was the ISS then; so does Linux, which counts the SYN in `bytes_acked` of an active
        // open.
        let age = advance.unsigned_abs();
        let sent = sw.bytes_acked + 1;
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
        //# RFC 5961 [9], Section 5 describes a potential blind data injection attack, and mitigation that
        //# implementations MAY choose to include (MAY-12).
        //= https://www.rfc-editor.org/rfc/rfc5961#section-5.2
        //# TCP stacks that implement this mitigation MUST add an additional input check to any incoming segment.
        let possible = age <= sw.max_wnd && u64::from(age) <= sent;
        return if possible { overtaken(sw, rq, header, out, now) } else { AckCheck::Invalid };
    }
    if advance as u32 > sw.flight() {
        return AckCheck::Invalid;
    }
    let old_window = sw.wnd;
    let delivery = (sw.mode != RecoveryMode::Open).then(|| disorder::deliver_up_to(sw, rq, ack));
    if advance > 0 {
        let known = delivery.as_ref().map_or(0, |delivery| disorder::known_before(sw, delivery, advance as u32));
        acknowledge(sw, rq, header, (advance as u32, known), out, now);
    }
    update_window(sw, header, advance as u32, out);
    note_answer(sw, rq, advance as u32, out);
    if delivery.is_some() || advance == 0 && sw.flight() > 0 || !header.options.sack.is_empty() {
        let duplicate = advance == 0 && data_len == 0 && sw.wnd == old_window && sw.flight() > 0;
        let delivery = delivery.unwrap_or_default();
        let seen = AckFacts { advance: advance as u32, duplicate, sacked: false, delivery };
        disorder::settle(sw, rq, header, seen, out, now);
    }
    AckCheck::Valid { work: sw.has_work(rq), fin: sw.fin_sent && ack == sw.nxt }
}

/// Takes the peer's window from the segment, if it is the latest one that advertises it; `advance`: how far SND.UNA has
/// moved.
#[inline(always)]
pub(crate) fn update_window(sw: &mut SendWindow, header: &Header, advance: u32, out: &mut LocalEffects<'_>) {
    // The window counts from the acknowledgement of the same segment: an acknowledgement that fills a hole and moves
    // SND.UNA updates it, even if data behind the hole had arrived before, or the right edge would move with SND.UNA
    // beyond the granted one.
    if advance == 0 && !sw.wl1.lt(header.seq) && !(sw.wl1 == header.seq && sw.wl2.le(header.ack)) {
        return;
    }
    let old_window = sw.wnd;
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //# The window size MUST be treated as an unsigned number, or else large window sizes will appear like negative
    //# windows and TCP will not work (MUST-1).
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
    //# The window field (SEG.WND) in the header of every incoming segment, with the exception of <SYN> segments,
    //# MUST be left-shifted by Snd.Wind.Shift bits before updating SND.WND:
    sw.wnd = u32::from(header.window) << sw.shift;
    sw.max_wnd = sw.max_wnd.max(sw.wnd);
    if sw.wnd == 0 && old_window > 0 {
        out.count(Counter::ZeroWindowsIn, 1);
    }
    if sw.wl1.lt(header.seq) {
        sw.wl1 = header.seq;
    }
    sw.wl2 = header.ack;
    if sw.timer_kind == TimerPurpose::Persist && sw.wnd > 0 {
        // The back-off was that of the probes, and does not apply to the data that follows.
        sw.rtt.reset_backoff();
    }
}

/// The peer has answered, which our user may wait for, and which ends a row of unanswered probes; `advance`: how far
/// SND.UNA has moved.
#[inline(always)]
pub(crate) fn note_answer(sw: &mut SendWindow, rq: &RetransmitQueue, advance: u32, out: &mut LocalEffects<'_>) {
    if !sw.awaited.is_empty() && advance > 0 {
        tell(sw, rq, out);
    }
    // A closed window is an answer; any other acknowledgement must make progress, or R2 would never be reached while
    // the peer talks but nothing of ours arrives.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
    //# As long as the receiving TCP peer continues to send acknowledgments in response to the probe segments, the
    //# sending TCP peer MUST allow the connection to stay open (MUST-37).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
    //# but SHOULD NOT time out the connection if data beyond the right window edge is not acknowledged (SHLD-17).
    if advance > 0 || sw.wnd == 0 || !sw.timer_kind.guards_flight() {
        sw.unanswered = 0;
    }
}

/// An acknowledgement that was overtaken: SND.UNA and the window have gone on, but its SACK blocks may be new.
#[cold]
fn overtaken(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    header: &Header,
    out: &mut Outbox<'_>,
    now: Time,
) -> AckCheck {
    //= https://www.rfc-editor.org/rfc/rfc6675#section-5
    //# Upon the receipt of any ACK containing SACK information, the scoreboard MUST be updated via the Update () routine.
    let has_sack = !header.options.sack.is_empty();
    if has_sack {
        let seen = AckFacts { advance: 0, duplicate: false, sacked: false, delivery: Delivery::default() };
        disorder::settle(sw, rq, header, seen, out, now);
    }
    AckCheck::Valid { work: has_sack && sw.has_work(rq), fin: false }
}

/// SND.UNA moves by `advance`, at least 1; `known` bytes of that were already known to have arrived.
#[inline(always)]
pub(crate) fn acknowledge(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    header: &Header,
    (advance, known): (u32, u32),
    out: &mut LocalEffects<'_>,
    now: Time,
) {
    let flight = sw.flight();
    // The queue's part before SND.NXT: only the FIN exceeds it.
    let data = advance.min(sw.sent_data());
    //= https://www.rfc-editor.org/rfc/rfc6675#section-4
    //# SACK information is advisory and therefore SACKed data MUST NOT be removed from the TCP's retransmission buffer
    //# until the data is cumulatively acknowledged [RFC2018].
    rq.acknowledge(data, out);
    sw.bytes_acked += u64::from(data);
    sw.una = header.ack;
    out.progress = true;
    sw.progress = Tick::of(now);
    if sw.small_end.lt(sw.una) {
        sw.small_end = sw.una;
    }
    sample_round_trip(sw, rq, header, out, now);
    let left_at = rq.log.acknowledge(sw.una);
    // Before recovery ends: the acknowledgement that ends it does not also open the window (RFC 6582 section 3.2).
    let limited = sw.cwnd_limited;
    if limited && sw.mode == RecoveryMode::Open && sw.congestion.watches_round_trips() {
        sw.congestion.on_round_trip(since(now.as_micros() as u32, left_at), sw.una, sw.nxt);
    }
    let srtt = if sw.congestion.may_avoid(advance - known) { sw.rtt.srtt() } else { None };
    sw.congestion.on_ack(advance - known, flight - known, srtt, now, limited);
    if sw.flight() == 0 {
        sw.stop_timer();
    } else {
        // RFC 6298 section 5.3. Moving the deadline later needs no new timer, but the sample may have made it earlier.
        //= https://www.rfc-editor.org/rfc/rfc6298#section-5
        //# An implementation MUST manage the retransmission timer(s) in such a way that a segment is never
        //# retransmitted too early, i.e., less than one RTO after the previous transmission of that segment.
        sw.guard_flight(out.config, now);
        sw.arm(out);
    }
    if sw.shaping.is_some() {
        sw.measure(rq.len, now);
    }
}

/// Notifies a user that waits for its data to be acknowledged, or for room.
#[cold]
fn tell(sw: &mut SendWindow, rq: &RetransmitQueue, out: &mut LocalEffects<'_>) {
    if sw.awaited.contains(Awaited::ACKNOWLEDGEMENT) {
        sw.awaited.remove(Awaited::ACKNOWLEDGEMENT);
        out.ready |= Readiness::ACKNOWLEDGED;
    }
    if sw.awaited.contains(Awaited::ROOM) {
        sw.grow(rq, out.config, out.scarcity);
        if sw.is_writable(rq, out.config, out.scarcity) {
            sw.awaited.remove(Awaited::ROOM);
            out.ready |= Readiness::WRITABLE;
        }
    }
}

/// One sample per round trip from our own clock, which has the resolution; after a retransmission (Karn) only the
/// timestamp's echo can tell which transmission was acknowledged.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.1
//# The RTO MUST be computed according to the algorithm in [10], including Karn's algorithm for taking RTT samples
//# (MUST-18).
#[inline(always)]
fn sample_round_trip(sw: &mut SendWindow, rq: &RetransmitQueue, header: &Header, out: &LocalEffects<'_>, now: Time) {
    if sw.rtt.is_timing() {
        if sw.una.ge(sw.timed) {
            let elapsed = since(now.as_micros() as u32, rq.log.time_of(sw.timed - 1));
            sw.rtt.finish(elapsed, now, &out.config.rto);
            out.count(Counter::RttSamples, 1);
        }
    } else if sw.timestamps && !sw.sack && sw.mode != RecoveryMode::Open {
        sw.sample_echo(header, out, now);
    }
}

/// Whether `ack` acknowledges our unacknowledged SYN and nothing unsent.
pub(crate) fn covers_syn(sw: &SendWindow, ack: SeqNumber) -> bool {
    ack.gt(sw.una) && ack.le(sw.nxt)
}
