//! Loss detection by acknowledgements: duplicates (RFC 5681, 6582), SACK and D-SACK blocks (RFC 2018, 2883), deliveries
//! and the losses that follow from them (RACK, RFC 8985), the beginning and end of recovery, the window in it (PRR, RFC
//! 9937), and the undoing of spurious reductions (RFC 3522, 4015).
//!
//! Called by `acknowledgement` for every acknowledgement that is a duplicate, carries blocks, or arrives during
//! recovery; and by the time-outs at the end of the reordering window. Written against the send side alone. What may
//! never happen: more than one cut of the window for one window of data.

use core::time::Duration;

use observe::{Counter, Time};
use wire::SeqNumber;
use wire::tcp::Header;

use crate::outbox::Outbox;
use crate::pcb::{
    Delivery, Detected, FrtoState, Loss, RecoveryMode, RetransmitQueue, SendWindow, TIMER_SLACK, TimerPurpose,
};
use crate::rack::{DeliveredSegment, LONGEST_US, NO_DUP_THRESH, STATIC_WINDOW};
use crate::sack::{DUP_THRESH, dsack};
use crate::tick::{since, until};

/// Facts about the acknowledgement so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckFacts {
    /// Bytes by which SND.UNA moved.
    pub(super) advance: u32,
    /// It is a duplicate in the sense of RFC 5681 section 2.
    pub(super) duplicate: bool,
    /// It reports something behind a hole for the first time.
    pub(super) sacked: bool,
    /// The deliveries of the cumulative acknowledgement.
    pub(super) delivery: Delivery,
}

/// The deliveries of the cumulative acknowledgement `ack`, before SND.UNA moves.
#[cold]
pub(super) fn deliver_up_to(sw: &mut SendWindow, rq: &RetransmitQueue, ack: SeqNumber) -> Delivery {
    let una = sw.una;
    match &mut sw.loss {
        Some(loss) if ack.gt(una) => loss.deliver_up_to(&rq.log, una, ack),
        _ => Delivery::default(),
    }
}

/// Of the `advance` bytes by which SND.UNA moves, the number that had left the network before: SACKed, or implied by
/// duplicate acknowledgements. They do not open the window: limited transmit has already sent for them (RFC 3042), and
/// they would count twice.
#[cold]
pub(super) fn known_before(sw: &SendWindow, delivery: &Delivery, advance: u32) -> u32 {
    if sw.sack {
        return advance - delivery.bytes;
    }
    let (mss, duplicates) = (u32::from(sw.mss), sw.loss.as_ref().map_or(0, |loss| u32::from(loss.duplicates)));
    // One segment at least filled the hole.
    (duplicates * mss).min(advance.saturating_sub(mss))
}

/// SND.UNA, the window and the round trip are up to date: draw the conclusions about losses.
#[cold]
pub(super) fn settle(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    header: &Header,
    seen: AckFacts,
    out: &mut Outbox<'_>,
    now: Time,
) {
    let timed_out = sw.mode == RecoveryMode::Loss;
    conclude(sw, rq, header, seen, out, now);
    if timed_out
        && sw.mode != RecoveryMode::Loss
        && let Some(loss) = &mut sw.loss
    {
        loss.totals.recovered(now);
    }
}

fn conclude(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    header: &Header,
    mut seen: AckFacts,
    out: &mut Outbox<'_>,
    now: Time,
) {
    //= https://www.rfc-editor.org/rfc/rfc8985#section-4
    //# The connection MUST use selective acknowledgment (SACK) options [RFC2018], and the sender MUST keep SACK
    //# scoreboard information on a per-connection basis ("SACK scoreboard" has the same meaning here as in [RFC6675],
    //# Section 3).
    if !sw.sack {
        settle_without_sack(sw, rq, header, seen, out, now);
        return;
    }
    let quiet = sw.mode == RecoveryMode::Open;
    let duplicate = duplicate_reported(sw, header, out);
    if quiet && header.options.sack.iter().all(|(_, right)| right.le(sw.una)) {
        // Only a D-SACK, or blocks that were known.
        if duplicate {
            undo_reduction(sw, out);
        }
        return;
    }
    if seen.advance > 0
        && let Some(loss) = &mut sw.loss
        && !sw.mode.recovers()
    {
        //= https://www.rfc-editor.org/rfc/rfc6675#section-5
        //# If the incoming ACK is a cumulative acknowledgment, the TCP MUST reset DupAcks to zero.
        loss.duplicates = 0;
    }
    let cumulative = seen.delivery.bytes;
    take_blocks(sw, rq, header, &mut seen, out);
    observe(sw, header, &seen, out, now);
    // After the round trip is known: a sample ends the back-off.
    guard_recovery(sw, rq, &seen, out, now);
    let needless = seen.advance > 0 && detect_eifel(sw, header);
    let spurious = detect_spurious_rto(sw, rq, &seen);
    if needless || duplicate || spurious {
        undo_reduction(sw, out);
    }
    process_tlp_ack(sw, header, &seen, out, now);
    let more_lost = detect(sw, rq, seen.delivery.bytes, out, now);
    finish(sw, out, now);
    if sw.mode == RecoveryMode::Recovery {
        reduce(sw, seen.delivery.bytes, seen.advance > 0 && !more_lost);
    } else if seen.sacked
        && sw.mode == RecoveryMode::Disorder
        && sw.loss.as_ref().is_some_and(|loss| loss.rack.reordering)
    {
        // Where reordering is usual, SACKed bytes open the window at once; otherwise they never would.
        let (bytes, srtt, limited) = (seen.delivery.bytes - cumulative, sw.rtt.srtt(), sw.cwnd_limited);
        sw.congestion.on_ack(bytes, (sw.flight() + bytes).saturating_sub(sw.sacked()), srtt, now, limited);
    }
}

/// Something arrived: the probe time-out starts again. The retransmission time-out does not, while SND.UNA stays: data
/// arriving behind a hole does not show that the retransmission into it is still under way, and must not delay sending
/// it once more. If the arrived data had left before that retransmission, the round trip is longer than estimated, and
/// the retransmission has the time-out from now.
fn guard_recovery(sw: &mut SendWindow, rq: &RetransmitQueue, seen: &AckFacts, out: &mut Outbox<'_>, now: Time) {
    if !sw.mode.recovers() || seen.delivery.bytes == 0 || sw.flight() == 0 {
        return;
    }
    if let Some(loss) = &mut sw.loss {
        loss.probes = 0;
    }
    sw.guard_flight(out.config, now);
    let clock = now.as_micros() as u32;
    let head = since(clock, first_left(sw, rq));
    let older = |sent: DeliveredSegment| since(clock, sent.at) > head;
    if seen.advance == 0 && !seen.delivery.again.or(seen.delivery.first).is_some_and(older) {
        let limit = first_deadline(sw, rq, now);
        if limit < sw.timer {
            sw.set_timer(TimerPurpose::Retransmit, limit);
        }
    }
    sw.arm(out);
}

/// When the first segment of the flight was last sent.
fn first_left(sw: &SendWindow, rq: &RetransmitQueue) -> u32 {
    sw.loss.as_ref().and_then(|loss| loss.first_left_again(sw.una)).unwrap_or(rq.log.time_of(sw.una))
}

/// The retransmission time-out of the first segment of the flight: it runs from its last transmission, or from the last
/// move of SND.UNA.
fn first_deadline(sw: &SendWindow, rq: &RetransmitQueue, now: Time) -> Time {
    let left = since(now.as_micros() as u32, first_left(sw, rq));
    let age = Duration::from_micros(left.into()).min(sw.progress.elapsed(now));
    // At least a microsecond: a deadline in the past would expire again at once.
    sw.rtt.deadline(now - age).max(now + Duration::from_micros(1))
}

/// Read the SACK blocks.
//= https://www.rfc-editor.org/rfc/rfc6675#section-5
//# Upon the receipt of any ACK containing SACK information, the scoreboard MUST be updated via the Update () routine.
//= https://www.rfc-editor.org/rfc/rfc6675#section-5
//# Upon receipt of an ACK that does not cover RecoveryPoint, the following actions MUST be taken:
fn take_blocks(sw: &mut SendWindow, rq: &RetransmitQueue, header: &Header, seen: &mut AckFacts, out: &mut Outbox<'_>) {
    let (una, nxt) = (sw.una, sw.nxt);
    let began = sw.mode == RecoveryMode::Open;
    let loss = sw.begin_disorder();
    let fack = loss.board.highest();
    if seen.advance > 0 {
        loss.overtaken = None;
    }
    if loss.board.ack_to(una) {
        out.count(Counter::SackReneges, 1);
        loss.renege(una);
    }
    if header.options.sack.is_empty() {
        return;
    }
    out.count(Counter::SacksIn, 1);
    let mut runs = smallvec::SmallVec::<[(SeqNumber, SeqNumber); 8]>::new();
    loss.board.update(&header.options.sack, una, nxt, |left, right| runs.push((left, right)));
    for &run in &runs {
        loss.deliver(&rq.log, run, fack, &mut seen.delivery);
    }
    seen.sacked = !runs.is_empty();
    if seen.sacked {
        out.count(Counter::DupAcksIn, 1);
        //= https://www.rfc-editor.org/rfc/rfc6675#section-5
        //# If the incoming ACK is a duplicate acknowledgment per the definition in Section 2 (regardless of its status
        //# as a cumulative acknowledgment), and the TCP is not currently in loss recovery, the TCP MUST increase
        //# DupAcks by one and take the following steps:
        loss.duplicates = loss.duplicates.saturating_add(1);
    }
    if began {
        // From here on each delivery is timed; a single timed segment would wait for the hole to be filled.
        sw.rtt.cancel();
    }
}

/// Updates RACK and the round-trip estimate with the deliveries.
fn observe(sw: &mut SendWindow, header: &Header, seen: &AckFacts, out: &mut Outbox<'_>, now: Time) {
    let clock = now.as_micros() as u32;
    let min_rtt = sw.rtt.min_rtt_us();
    let echo_age = echo_age_us(sw, header, now);
    let (una, mss) = (sw.una, u32::from(sw.mss));
    let Some(loss) = &mut sw.loss else { return };
    let delivery = &seen.delivery;
    if let Some(low) = delivery.reordered {
        loss.rack.reordering = true;
        let newest = loss.board.highest().map_or(una, |highest| if highest.gt(una) { highest } else { una });
        loss.totals.reordered(((newest - low).max(0) as u32).div_ceil(mss));
        out.count(Counter::ReordersSeen, 1);
    }
    if let Some(sent) = delivery.first {
        loss.rack.delivered(sent, false, clock, min_rtt);
    }
    // An echo older than the retransmission is that of the original (the clock of timestamps ticks in ms). As long as
    // SND.UNA stays, so does the echo, and it proves nothing (RFC 7323 section 4.3): then the least round trip is used,
    // or no retransmission behind one that was lost again would ever count.
    let proven = echo_age.filter(|_| seen.advance > 0);
    let again =
        delivery.again.filter(|sent| proven.is_none_or(|age| age <= since(clock, sent.at).saturating_add(1_000)));
    if let Some(sent) = again {
        loss.rack.delivered(sent, true, clock, min_rtt);
    }
    // A segment that was retransmitted and was not lost was overtaken. RFC 8985 (section 6.2, step 3) counts only
    // segments sent once as reordered, and would keep a zero reordering window for the whole recovery. A delivery
    // within half of the least round trip cannot be a retransmission's, even if a queue has stood for as long as the
    // minimum is remembered.
    let original = delivery.again.is_some_and(|sent| again.is_none() || since(clock, sent.at) < min_rtt / 2);
    loss.rack.reordering |= original && sw.mode == RecoveryMode::Recovery;
    // Karn: an acknowledgement caused by a retransmission, spurious or not, gives no sample for segments sent once, and
    // one for the retransmission itself only if its own timestamp is echoed.
    let drawn = delivery.again.is_some() || dsack(&header.options.sack, header.ack).is_some();
    if let Some(sent) = delivery.first.filter(|_| !drawn) {
        let expected = sw.flight() / (2 * u32::from(sw.mss)) + 1;
        let elapsed = Duration::from_micros(u64::from(since(clock, sent.at)));
        sw.rtt.sample_one_of(elapsed, expected, now, &out.config.rto);
        out.count(Counter::RttSamples, 1);
    } else if again.is_some() && seen.advance > 0 && echo_age.is_some() {
        sw.sample_echo(header, out, now);
    }
}

/// Age of the timestamp that `header` echoes, in microseconds.
fn echo_age_us(sw: &SendWindow, header: &Header, now: Time) -> Option<u32> {
    let timestamps = header.options.timestamps.filter(|_| sw.timestamps)?;
    let sent = timestamps.echo.wrapping_sub(sw.ts_offset);
    let ms = (now.as_millis() as u32).wrapping_sub(sent);
    (ms < 1 << 21).then(|| ms * 1000)
}

/// RFC 3522: was the acknowledgement that moves SND.UNA triggered by a segment from before the first retransmission?
fn detect_eifel(sw: &mut SendWindow, header: &Header) -> bool {
    let echo = header.options.timestamps.filter(|_| sw.timestamps).map(|timestamps| timestamps.echo);
    let recovers = sw.mode.recovers();
    sw.loss.as_mut().is_some_and(|loss| loss.undo.first_advance(echo) && recovers)
}

/// F-RTO (RFC 5682 section 3.1; section 2.1 without SACK): whether the time-out was spurious. It was if data is
/// acknowledged that was sent before it and not retransmitted. If instead a hole appears, something is lost.
fn detect_spurious_rto(sw: &mut SendWindow, rq: &RetransmitQueue, seen: &AckFacts) -> bool {
    let (una, wnd_end, unsent) = (sw.una, sw.right_edge(), rq.len > sw.sent_data());
    let (nxt, sack) = (sw.nxt, sw.sack);
    let Some(loss) = sw.loss.as_mut().filter(|loss| sw.mode == RecoveryMode::Loss && loss.doubt != FrtoState::None)
    else {
        return false;
    };
    // Without SACK the first acknowledgement covers data that had arrived behind the loss before the time-out.
    let decides = sack || loss.doubt == FrtoState::NewData;
    if seen.delivery.original && decides {
        return true;
    }
    let first = loss.doubt == FrtoState::FirstAck && seen.advance > 0 && una.lt(loss.recover);
    let may_go_on = first && !seen.sacked && unsent && wnd_end.gt(nxt);
    // Without SACK it is unknown whether segments sent in the meantime have arrived: room is made for one segment (step
    // 3a).
    loss.resend_first |= !sack && loss.doubt == FrtoState::NewData;
    loss.doubt = if may_go_on { FrtoState::NewData } else { FrtoState::None };
    false
}

/// A D-SACK block, if there is one, widens the reordering window. True if every retransmission since the last cut is
/// now known to have been spurious.
fn duplicate_reported(sw: &mut SendWindow, header: &Header, out: &mut Outbox<'_>) -> bool {
    let Some((left, right)) = dsack(&header.options.sack, header.ack) else { return false };
    out.count(Counter::DsacksIn, 1);
    let (una, nxt) = (sw.una, sw.nxt);
    let Some(loss) = &mut sw.loss else { return false };
    loss.totals.duplicates = loss.totals.duplicates.saturating_add(1);
    let probed = loss.probe.is_some_and(|probe| probe.again && probe.right == right);
    if !probed && !loss.undo.expects_duplicates() {
        // The network duplicates: we sent it once.
        return false;
    }
    out.count(Counter::SpuriousRetransmits, 1);
    if probed {
        return false;
    }
    loss.rack.duplicate_reported(una, nxt);
    loss.undo.duplicate((right - left) as u32)
}

/// The last cut was spurious: undo it, and continue as if nothing had been lost.
fn undo_reduction(sw: &mut SendWindow, out: &mut Outbox<'_>) {
    let una = sw.una;
    let Some(loss) = &mut sw.loss else { return };
    let Some(saved) = loss.undo.take() else { return };
    sw.congestion.restore(saved);
    out.count(Counter::UndoneReductions, 1);
    // The segments were only late; RACK decides about the rest with a wider reordering window.
    loss.rack.reordering |= sw.mode != RecoveryMode::Loss;
    if sw.mode.recovers() {
        loss.lose_nothing(una);
        sw.set_mode(RecoveryMode::Disorder);
    }
}

/// TLP_process_ack (RFC 8985 section 7.4.2): the result of a tail loss probe.
//= https://www.rfc-editor.org/rfc/rfc8985#section-7.4.2
//# If the TLP sender does not receive such an indication, then it MUST assume that the original data segment, the TLP
//# retransmission, or a corresponding ACK was lost for congestion control purposes.
fn process_tlp_ack(sw: &mut SendWindow, header: &Header, seen: &AckFacts, out: &mut Outbox<'_>, now: Time) {
    let (ack, flight) = (sw.una, sw.flight());
    let recovers = sw.mode.recovers();
    let Some(loss) = &mut sw.loss else { return };
    let Some(probe) = loss.probe.filter(|probe| ack.ge(probe.right)) else { return };
    let reported = dsack(&header.options.sack, header.ack).is_some_and(|(_, right)| right == probe.right);
    let answered_twice = seen.duplicate && header.options.sack.is_empty();
    if !probe.again || reported || answered_twice {
        loss.probe = None;
    } else if ack.gt(probe.right) {
        // The probe repaired a loss that nothing else has shown: the window is reduced nevertheless.
        loss.probe = None;
        if !recovers {
            out.count(Counter::CongestionEvents, 1);
            let outstanding = sw.outstanding(out.config).max(seen.advance);
            sw.congestion.on_congestion(outstanding, now);
            sw.congestion.on_recovery_exit(flight, now);
        }
    }
}

/// Detects losses, begins recovery if there are any, and arms the timer for segments that may be lost later. True if
/// new losses were found.
//= https://www.rfc-editor.org/rfc/rfc8985#section-9.2
//# Therefore, the algorithm [RFC6675] MUST NOT be used with RACK-TLP; instead, a modified recovery algorithm that
//# carefully addresses such a case is needed.
fn detect(sw: &mut SendWindow, rq: &RetransmitQueue, delivered: u32, out: &mut Outbox<'_>, now: Time) -> bool {
    let clock = now.as_micros() as u32;
    let (una, nxt, mss) = (sw.una, sw.nxt, u32::from(sw.mss));
    let (min_rtt, srtt) = (sw.rtt.min_rtt_us(), sw.rtt.srtt_us());
    let recovers = sw.mode.recovers();
    let Some(loss) = &mut sw.loss else { return false };
    let segments = (loss.board.sacked_bytes() / mss).max(loss.board.ranges() as u32).max(u32::from(loss.duplicates));
    let switches = out.config.recovery;
    let certain = recovers || segments >= DUP_THRESH && switches & NO_DUP_THRESH == 0;
    let window = loss.rack.window(min_rtt, srtt, certain, switches & STATIC_WINDOW != 0);
    let (found, settles) = match overtaken_window_left(loss, rq, (una, nxt), clock, window) {
        Some(left) => (Detected::default(), Some(left)),
        None => {
            let found = loss.detect(&rq.log, una, nxt, clock, window);
            (found, found.waiting.then(|| loss.rack.settles_in(window, clock)))
        }
    };
    // Where segments are reordered, acknowledgements are too, and the next one may report the missing segments.
    let slack = if loss.rack.reordering { TIMER_SLACK.min(Duration::from_micros(srtt.into())) } else { Duration::ZERO };
    //= https://www.rfc-editor.org/rfc/rfc6675#section-5.1
    //# a new recovery phase (as described in Section 5) MUST NOT be initiated until HighACK is greater than or equal to
    //# the new value of RecoveryPoint.
    if !recovers && loss.any_lost(una) {
        enter_recovery(sw, delivered, out, now);
    }
    if let Some(us) = settles {
        // At least a microsecond: a deadline in the past would expire again at once.
        let at = now + Duration::from_micros(u64::from(us).max(1)) + slack;
        let limit = if recovers { first_deadline(sw, rq, now) } else { sw.rtt.deadline(now) };
        if at < limit {
            sw.set_timer(TimerPurpose::Reorder, at);
            sw.arm(out);
        }
    } else if sw.timer_kind == TimerPurpose::Reorder {
        guard_again(sw, rq, out, now);
        sw.arm(out);
    } else if sw.timer_kind == TimerPurpose::Probe && sw.mode == RecoveryMode::Disorder {
        sw.guard_flight(out.config, now);
        sw.arm(out);
    }
    found.newly
}

/// On a path that reorders, a segment sent long before its successor may still be overtaken by it and arrive right
/// after it. RFC 8985 counts from its transmission, and declares it lost at once; here the reordering window begins
/// when the overtaking is first seen. Returns the rest of the window in microseconds; `None`: the RFC's rule applies.
fn overtaken_window_left(
    loss: &mut Loss,
    rq: &RetransmitQueue,
    (una, nxt): (SeqNumber, SeqNumber),
    clock: u32,
    window: u32,
) -> Option<u32> {
    let waits = loss.rack.reordering && loss.detect(&rq.log, una, nxt, clock, LONGEST_US).waiting;
    if !waits {
        loss.overtaken = None;
        return None;
    }
    let seen = *loss.overtaken.get_or_insert(clock);
    Some(until(seen.wrapping_add(window), clock)).filter(|left| *left > 0)
}

/// The timer that served the reordering window guards the flight again. The retransmission time-out runs from the first
/// segment's last transmission, or from the last acknowledgement, not from now: else successive reordering windows
/// would postpone it for ever (RFC 6298 section 5.3).
fn guard_again(sw: &mut SendWindow, rq: &RetransmitQueue, out: &Outbox<'_>, now: Time) {
    if sw.flight() == 0 {
        sw.stop_timer();
        return;
    }
    sw.guard_flight(out.config, now);
    let limit = first_deadline(sw, rq, now);
    if sw.timer_kind == TimerPurpose::Retransmit || sw.mode.recovers() && limit < sw.timer {
        sw.set_timer(TimerPurpose::Retransmit, limit);
    }
}

/// The reordering window has ended (RFC 8985 section 6.3): segments that have not arrived are lost.
pub(crate) fn reordering_settled(sw: &mut SendWindow, rq: &RetransmitQueue, out: &mut Outbox<'_>, now: Time) {
    guard_again(sw, rq, out, now);
    if sw.mode == RecoveryMode::Open {
        return;
    }
    detect(sw, rq, 0, out, now);
    if sw.mode == RecoveryMode::Recovery {
        let (pipe, ssthresh, mss) = (sw.pipe(), sw.congestion.ssthresh(), u32::from(sw.mss));
        if let Some(loss) = &sw.loss {
            sw.congestion.set_recovery_window(loss.prr.window_after_timer(pipe, ssthresh, mss));
        }
    }
}

/// Begin fast recovery with SACK; this acknowledgement delivered `delivered` bytes.
fn enter_recovery(sw: &mut SendWindow, delivered: u32, out: &mut Outbox<'_>, now: Time) {
    if mtu_probe_lost(sw, out, now) {
        return;
    }
    let (flight, nxt) = (sw.flight(), sw.nxt);
    let Some(loss) = &mut sw.loss else { return };
    loss.undo.arm(sw.congestion.save());
    //= https://www.rfc-editor.org/rfc/rfc9937#section-6.1
    //# At the beginning of a congestion control response episode initiated by the congestion control algorithm, a data
    //# sender using PRR MUST initialize the PRR state.
    loss.prr = crate::congestion::Prr::begin((flight + delivered).saturating_sub(loss.board.sacked_bytes()));
    loss.recover = nxt;
    loss.probe = None;
    loss.probes = 0;
    sw.set_mode(RecoveryMode::Recovery);
    sw.rtt.cancel();
    sw.congestion.on_congestion(sw.outstanding(out.config), now);
    sw.guard_flight(out.config, now);
    sw.arm(out);
    out.count(Counter::FastRetransmits, 1);
    out.count(Counter::CongestionEvents, 1);
}

/// If only a path MTU probe is lost, its data is sent again in smaller segments, and the window stays as it is (RFC
/// 4821 section 7.4, RFC 8899 section 3). True in that case.
fn mtu_probe_lost(sw: &mut SendWindow, out: &mut Outbox<'_>, now: Time) -> bool {
    let (una, nxt) = (sw.una, sw.nxt);
    let Some(end) = sw.mtu_search().and_then(|search| search.lost(una)) else { return false };
    let Some(loss) = &mut sw.loss else { return false };
    if loss.more_lost_than(end) {
        // The network is congested as well.
        return false;
    }
    loss.lose_first(una, end, nxt);
    sw.set_mode(RecoveryMode::Loss);
    sw.rtt.cancel();
    sw.guard_flight(out.config, now);
    sw.arm(out);
    true
}

/// The window in recovery (RFC 9937).
fn reduce(sw: &mut SendWindow, delivered: u32, safe: bool) {
    let (pipe, ssthresh, mss) = (sw.pipe(), sw.congestion.ssthresh(), u32::from(sw.mss));
    if let Some(loss) = &mut sw.loss
        && let Some(window) = loss.prr.window(delivered, pipe, ssthresh, mss, safe)
    {
        sw.congestion.set_recovery_window(window);
    }
}

/// Ends recovery when all data outstanding at its beginning has arrived, and disorder when nothing is SACKed any more.
fn finish(sw: &mut SendWindow, out: &mut Outbox<'_>, now: Time) {
    let (una, pipe, flight) = (sw.una, sw.pipe(), sw.flight());
    let Some(loss) = &mut sw.loss else { return };
    //= https://www.rfc-editor.org/rfc/rfc6675#section-5
    //# An incoming cumulative ACK for a sequence number greater than RecoveryPoint signals the end of loss recovery,
    //# and the loss recovery phase MUST be terminated.
    if sw.mode.recovers() && una.ge(loss.recover) {
        loss.rack.recovery_ended();
        loss.resend_first = false;
        loss.probe = None;
        sw.congestion.on_recovery_exit(pipe, now);
        loss.duplicates = 0;
        let more_lost = loss.any_lost(una);
        sw.set_mode(RecoveryMode::Disorder);
        if more_lost {
            // Segments sent during recovery are lost, too: a new window of data, a new cut.
            enter_recovery(sw, 0, out, now);
            return;
        }
    }
    let Some(loss) = &mut sw.loss else { return };
    if sw.mode == RecoveryMode::Disorder && loss.board.is_empty() && loss.probe.is_none() {
        loss.duplicates = 0;
        sw.set_mode(RecoveryMode::Open);
        if flight > 0 {
            sw.guard_flight(out.config, now);
            sw.arm(out);
        }
    }
}

/// Duplicates and partial acknowledgements without SACK (RFC 5681 section 3.2, RFC 6582).
fn settle_without_sack(
    sw: &mut SendWindow,
    rq: &RetransmitQueue,
    header: &Header,
    seen: AckFacts,
    out: &mut Outbox<'_>,
    now: Time,
) {
    if seen.advance > 0 {
        if detect_eifel(sw, header) || detect_spurious_rto(sw, rq, &seen) {
            undo_reduction(sw, out);
        }
        advance_without_sack(sw, seen.advance, out, now);
    } else if seen.duplicate {
        detect_spurious_rto(sw, rq, &seen);
        duplicate_without_sack(sw, out, now);
    }
}

fn advance_without_sack(sw: &mut SendWindow, advance: u32, out: &mut Outbox<'_>, now: Time) {
    let (una, flight, mss) = (sw.una, sw.flight(), u32::from(sw.mss));
    let Some(loss) = &mut sw.loss else { return };
    if !sw.mode.recovers() || una.ge(loss.recover) {
        if sw.mode.recovers() {
            sw.congestion.on_recovery_exit(flight, now);
        }
        //= https://www.rfc-editor.org/rfc/rfc6675#section-5
        //# If the incoming ACK is a cumulative acknowledgment, the TCP MUST reset DupAcks to zero.
        loss.duplicates = 0;
        loss.resend_first = false;
        sw.set_mode(RecoveryMode::Open);
    } else if sw.mode == RecoveryMode::Recovery {
        // A partial acknowledgement (RFC 6582 section 3.2): the next segment is lost as well. Segments acknowledged now
        // that were already counted as arrived have left the flight.
        let arrived = (advance / mss).saturating_sub(1).min(loss.duplicates.into());
        loss.duplicates -= arrived as u16;
        loss.resend_first = true;
        reduce(sw, advance - arrived * mss, true);
    }
    if flight > 0 {
        sw.guard_flight(out.config, now);
        sw.arm(out);
    }
}

fn duplicate_without_sack(sw: &mut SendWindow, out: &mut Outbox<'_>, now: Time) {
    out.count(Counter::DupAcksIn, 1);
    let (una, nxt, mss, flight) = (sw.una, sw.nxt, u32::from(sw.mss), sw.flight());
    let recovers = sw.mode == RecoveryMode::Recovery;
    let loss = sw.begin_disorder();
    // Forged duplicates must not claim more arrivals than there are segments; in recovery, than there were at its
    // beginning, or each would release another segment, which could be claimed as well (RFC 5681 section 3.2).
    let outstanding = if recovers { (loss.recover - una).max(0) as u32 } else { flight };
    let before = loss.duplicates;
    loss.duplicates = before.saturating_add(1).min((outstanding / mss).clamp(1, u32::from(u16::MAX)) as u16);
    let (duplicates, recover) = (u32::from(loss.duplicates), loss.recover);
    if recovers {
        if loss.duplicates > before {
            reduce(sw, mss, false);
        }
        return;
    }
    // RFC 6582 section 3.2 step 2: duplicates of the recovery point may be caused by spurious retransmissions.
    if duplicates < DUP_THRESH || una == recover || sw.mode != RecoveryMode::Disorder {
        return;
    }
    if mtu_probe_lost(sw, out, now) {
        return;
    }
    let saved = sw.congestion.save();
    let loss = sw.begin_disorder();
    loss.recover = nxt;
    loss.resend_first = true;
    loss.undo.arm(saved);
    //= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
    //# For non-SACK-enabled connections, instead of subtracting out bytes SACKed in the SACK scoreboard, senders MUST
    //# subtract out: min(RecoverFS, 1 SMSS for each preceding duplicate ACK in the fast recovery episode)
    loss.prr = crate::congestion::Prr::begin(flight.saturating_sub((duplicates - 1) * mss));
    sw.set_mode(RecoveryMode::Recovery);
    sw.rtt.cancel();
    sw.congestion.on_congestion(sw.outstanding(out.config), now);
    reduce(sw, mss, false);
    sw.set_timer(TimerPurpose::Retransmit, sw.rtt.deadline(now));
    sw.arm(out);
    out.count(Counter::FastRetransmits, 1);
    out.count(Counter::CongestionEvents, 1);
}
