//! Time-outs (RFC 9293 section 3.10.8, RFC 6298, RFC 1122 section 4.2).
//!
//! Deadlines are kept in the parts; the stack only has one time for the whole connection, the earliest requested. At
//! that time this event checks every deadline, acts on those that are due, and requests the next. A wake that finds
//! nothing due is normal: deadlines that move later are not cancelled (invariant G8).

use core::time::Duration;

use observe::{Counter, Time};

use super::TcpEvent;
use super::fast_open;
use super::icmp::suspect_black_hole;
use super::segment_arrives::disorder;
use crate::access::{PcbAccess, PcbMut};
use crate::config::Config;
use crate::ecn;
use crate::error::Error;
use crate::outbox::{Outbox, TableChange};
use crate::output;
use crate::pcb::{Ack, FrtoState, IDLE_CHECK, RecoveryMode, RetransmitQueue, SendWindow, TIMER_SLACK, TimerPurpose};
use crate::state::{Cause, State};
use crate::tick::since;
use crate::user_timeout;

/// Time-outs and window probes, answered or not, after the user has closed the connection: 51 s at the least RTO.
const ORPHAN_RETRIES: u8 = 8;

/// Largest error of the recorded time of the last arrival.
const TOLERANCE: Duration = Duration::from_nanos(1 << 20);

/// Run every timer that is due.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts;

impl TcpEvent for Timeouts {
    /// When to run it again; the same as `out.deadline`.
    type Reply = Option<Time>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Option<Time> {
        pcb.whole(out, |mut parts, out| {
            // The wake that led here is used up: every deadline must be requested again.
            parts.receive_window.armed = Time::MAX;
            parts.send_window.armed = Time::MAX;
            if now >= parts.header_in.state_deadline {
                expire(&mut parts, out, now);
                if out.table == TableChange::Remove {
                    return out.deadline;
                }
            }
            keep_alive(&mut parts, out, now);
            user_timeout(&mut parts, out, now);
            if now >= parts.receive_window.ack_deadline {
                delayed_ack(&mut parts, out, now);
            }
            if now >= parts.send_window.timer {
                send_timer(&mut parts, out, now);
            }
            pace(&mut parts, out, now);
            shrink(&mut parts, out, now);
            parts.header_in.arm(out);
            parts.receive_window.arm(out);
            parts.send_window.arm(out);
            parts.wait(out);
            out.deadline
        })
    }
}

/// TIME-WAIT is over, or an orphaned FIN-WAIT-2.
fn expire(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    parts.header_in.state_deadline = Time::MAX;
    if matches!(parts.header_in.state, State::TimeWait | State::FinWait2) {
        out.count(Counter::ConnectionsClosed, 1);
        parts.enter(Cause::Expired, out, now);
        parts.release(out);
    }
}

fn delayed_ack(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    out.count(Counter::DelayedAckTimeouts, 1);
    let rw = &mut *parts.receive_window;
    rw.delay.missed(parts.send_window.rtt.srtt(), out.config);
    rw.open_window();
    let snapshot = rw.snapshot(parts.reassembly);
    rw.acked(snapshot.nxt, snapshot.edge);
    rw.ack_deadline = Time::MAX;
    parts.header_out.merge(snapshot);
    parts.transmit(out, |sw, rq, ho, out| output::transmit(sw, rq, ho, out, now, Ack::Now));
}

/// The timer of the send window.
fn send_timer(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    match parts.send_window.timer_kind {
        TimerPurpose::Off => parts.send_window.stop_timer(),
        TimerPurpose::Cork => {
            let progress = parts.send_window.progress;
            parts.send_window.stop_timer();
            push(parts, out, now);
            if parts.send_window.flight() == 0 {
                // Nothing was sent: the data has waited for as long as before.
                parts.send_window.progress = progress;
            }
        }
        TimerPurpose::Persist => persist(parts, out, now),
        TimerPurpose::Probe => tail_loss_probe(parts, out, now),
        TimerPurpose::Reorder => reordering_settled(parts, out, now),
        TimerPurpose::Retransmit => retransmit(parts, out, now),
    }
}

/// The pacer's gap is over.
fn pace(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let sw = &*parts.send_window;
    match sw.shaping.as_ref().and_then(|shaping| shaping.due(sw.data_segments_out)) {
        Some(due) if now >= due => {
            let advertised = parts.transmit(out, |sw, rq, ho, out| output::transmit(sw, rq, ho, out, now, Ack::None));
            if let Some((nxt, edge)) = advertised {
                parts.receive_window.acked(nxt, edge);
            }
        }
        Some(due) => out.wake_by(due),
        None => {}
    }
}

/// Sends held-back data although it does not fill a segment. True if anything was sent.
fn push(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> bool {
    let before = out.segments.len();
    parts.transmit(out, |sw, rq, ho, out| output::send_data(sw, rq, ho, out, now, true));
    out.segments.len() > before
}

/// The peer's window is closed: probe it as long as the peer answers (RFC 9293 section 3.8.6.1). A probe is data if the
/// window has any room; else a segment without data just before SND.UNA, which the peer must answer.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//# If the window shrinks to zero, the TCP implementation MUST probe it in the standard way (described below) (MUST-35).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
//# Probing of zero (offered) windows MUST be supported (MUST-36).
fn persist(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    // No user waits for an orphan: the peer must not be able to hold its memory for ever.
    let orphan_expired =
        parts.header_in.is_orphan() && parts.send_window.rtt.backoff_count() >= u32::from(orphan_retries(out.config));
    let limit = if orphan_expired { 0 } else { out.config.retries };
    if gives_up(parts, limit, out, now) {
        return;
    }
    let sw = &mut *parts.send_window;
    sw.unanswered = sw.unanswered.saturating_add(1);
    sw.rtt.backoff();
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
    //# and SHOULD increase exponentially the interval between successive probes (SHLD-30).
    sw.set_timer(TimerPurpose::Persist, sw.rtt.deadline(now));
    // Data that only waits for the device needs no probe.
    if !push(parts, out, now) && parts.send_window.timer_kind == TimerPurpose::Persist {
        out.count(Counter::WindowProbesOut, 1);
        output::probe(parts.send_window, parts.header_out, out, now);
    }
}

/// When a probe is due, when the newest segment was sent, and the retransmission time-out of the oldest if a probe must
/// not be later.
fn probe_times(sw: &SendWindow, rq: &RetransmitQueue, config: &Config, now: Time) -> (Time, Time, Time) {
    let clock = now.as_micros() as u32;
    let recovers = sw.mode.recovers();
    let resent = sw.loss.as_ref().filter(|_| recovers).map_or(u32::MAX, |loss| since(clock, loss.last_resent));
    let newest = now - Duration::from_micros(u64::from(since(clock, rq.log.newest()).min(resent)));
    let oldest = now - Duration::from_micros(u64::from(since(clock, rq.log.time_of(sw.una))));
    let limit = if recovers { Time::MAX } else { sw.rtt.deadline(oldest) };
    let due = sw.rtt.probe_deadline(newest, sw.ack_delay(config)).min(limit);
    // A thread that runs the timer late has also received or sent late: those segments get their round trips first.
    let late = now - sw.timer > TIMER_SLACK;
    let again = sw.rtt.probe_deadline(now, TIMER_SLACK);
    let due = if late && again < sw.rtt.deadline(oldest) { due.max(again) } else { due };
    (due, newest, limit)
}

/// No acknowledgement for two round trips: send one segment more; its acknowledgement shows what is lost (RFC 8985
/// section 7.3). Segments sent since the timer was set have their own two round trips, but not beyond the
/// retransmission time-out of the oldest.
fn tail_loss_probe(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let (sw, rq) = (&mut *parts.send_window, &*parts.retransmit_queue);
    if sw.flight() == 0 {
        sw.stop_timer();
        return;
    }
    let recovers = sw.mode.recovers();
    let (due, newest, limit) = probe_times(sw, rq, out.config, now);
    if due > now {
        sw.set_timer(TimerPurpose::Probe, due);
        return;
    }
    if gives_up(parts, out.config.retries, out, now) {
        return;
    }
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
    //# When the PTO timer expires, the sender MUST check whether both of the following conditions are met before
    //# sending a loss probe:
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
    //# If either one of these two conditions is not met, then the sender MUST skip sending a loss probe and MUST proceed
    //# to re-arm the RTO timer, as specified at the end of this section.
    let sw = &mut *parts.send_window;
    let alone = sw.mode == RecoveryMode::Open || sw.loss.as_ref().is_none_or(|loss| loss.probe.is_none());
    if !(recovers || alone && sw.rtt.is_current()) {
        // At least a microsecond: a deadline in the past would expire again at once.
        sw.set_timer(TimerPurpose::Retransmit, limit.max(now + Duration::from_micros(1)));
        return;
    }
    let probed = parts.send_window.state.may_transmit()
        && parts.transmit(out, |sw, rq, ho, out| match recovers {
            true => output::probe_recovery(sw, rq, ho, out, now),
            false => output::probe_tail(sw, rq, ho, out, now),
        });
    if probed {
        out.count(Counter::TailLossProbes, 1);
    }
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
    //# After attempting to send a loss probe, regardless of whether a loss probe was sent, the sender MUST re-arm the
    //# RTO timer, not the PTO timer, if the FlightSize is not zero.
    let sw = &mut *parts.send_window;
    if recovers {
        // At least the slack from now: without new data the next probe runs from the same segment, and a thread that is
        // late now must first process what has arrived meanwhile.
        sw.guard_flight(out.config, if probed { now } else { newest });
        sw.timer = sw.timer.max(now + TIMER_SLACK);
    } else {
        sw.set_timer(TimerPurpose::Retransmit, sw.rtt.deadline(now));
    }
}

/// Segments that have not arrived within the reordering window are lost (RFC 8985 section 6.3).
fn reordering_settled(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    parts.send_side(|sw, rq| disorder::reordering_settled(sw, rq, out, now));
    parts.transmit(out, |sw, rq, ho, out| output::transmit(sw, rq, ho, out, now, Ack::None));
}

/// RFC 6298 section 5.4 to 5.7.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//# SYN retransmissions MUST be handled in the general way just described for data retransmissions, including
//# notification of the application layer.
fn retransmit(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let limit = match parts.header_in.state {
        State::SynSent => {
            let own = parts.header_in.settings.as_ref().and_then(|settings| settings.syn_retries);
            own.unwrap_or(out.config.syn_retries)
        }
        State::SynReceived => out.config.syn_ack_retries,
        _ if parts.header_in.is_orphan() => orphan_retries(out.config).min(out.config.retries),
        // Its user has set R2 as a time.
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
        //# An application MUST (MUST-21) be able to set the value for R2 for a particular connection.
        _ if !parts.header_in.user_timeout().is_zero() => u8::MAX,
        _ => out.config.retries,
    };
    if gives_up(parts, limit, out, now) {
        return;
    }
    let state = parts.header_in.state;
    let sw = &mut *parts.send_window;
    sw.unanswered = sw.unanswered.saturating_add(1);
    reach_r1(parts, out, now);
    suspect_black_hole(parts, out, now);
    let sw = &mut *parts.send_window;
    sw.rtt.cancel();
    if state != State::SynSent || sw.unanswered > out.config.syn_linear_timeouts {
        sw.rtt.backoff();
    }
    sw.set_timer(TimerPurpose::Retransmit, sw.rtt.deadline(now));
    out.count(Counter::Timeouts, 1);
    if matches!(state, State::SynSent | State::SynReceived) {
        out.count(Counter::Retransmits, 1);
        if state == State::SynSent {
            parts.header_out.marks.set_echo(ecn::syn_flags(out.config, sw.unanswered));
            fast_open::silent(parts, out);
        }
        let rare = user_timeout::of_syn(parts.header_in);
        output::syn(parts.send_window, &rare, parts.header_out, out, now);
        return;
    }
    if sw.flight() == 0 {
        sw.stop_timer();
        return;
    }
    lose_everything(parts, out, now);
    parts.transmit(out, |sw, rq, ho, out| output::transmit(sw, rq, ho, out, now, Ack::None));
}

/// All outstanding data that is not SACKed counts as lost. The peer's SACK information is kept: if the peer reneged
/// (RFC 2018 section 8), the acknowledgement of the first segment will show that. If the time-out repeats, SACK
/// information is no longer relied upon.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//# A TCP endpoint MUST implement the basic congestion control algorithms slow start, congestion avoidance, and
//# exponential backoff of RTO to avoid creating congestion collapse conditions (MUST-19).
fn lose_everything(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let sw = &mut *parts.send_window;
    out.count(Counter::CongestionEvents, 1);
    let (una, nxt) = (sw.una, sw.nxt);
    // RFC 5682 section 2.1, step 1: recovery under way is evidence of losses, unless no segment at all has arrived
    // since the last time-out.
    let doubted = out.config.frto != 0 && (!sw.mode.recovers() || sw.unanswered > 1);
    let saved = (!sw.mode.recovers()).then(|| sw.congestion.save());
    sw.congestion.on_timeout(sw.outstanding(out.config), now);
    let repeated = sw.rtt.backoff_count() > 2;
    let first = sw.unanswered <= 1;
    let loss = sw.begin_disorder();
    loss.totals.timed_out(first, now);
    if let Some(saved) = saved {
        loss.undo.arm(saved);
    }
    if repeated {
        loss.forget_board();
    }
    loss.lose_everything(una, nxt);
    if doubted {
        loss.doubt = FrtoState::FirstAck;
    }
    //= https://www.rfc-editor.org/rfc/rfc6675#section-5.1
    //# Further, the new value of RecoveryPoint MUST be preserved and the loss recovery algorithm outlined in this
    //# document MUST be terminated.
    sw.set_mode(RecoveryMode::Loss);
}

/// R1 is reached (RFC 9293 section 3.8.3): report to IP that the path may be dead, and a soft error to the user, unless
/// a router has reported the cause already.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//# The following procedure MUST be used to handle excessive retransmissions of data segments (MUST-20):
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//# TCP implementations SHOULD inform the application of the delivery problem (unless such information has been disabled
//# by the application; see the "Asynchronous Reports" section (Section 3.9.1.8)), when R1 is reached and before R2
//# (SHLD-9).
fn reach_r1(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    if parts.send_window.unanswered == out.config.suspicious_retries {
        out.suspect_path();
        let known = parts.header_in.soft_error().unwrap_or(Error::Unanswered);
        parts.header_in.note_soft_error(known, out, now);
    }
}

fn orphan_retries(config: &Config) -> u8 {
    if config.orphan_retries == 0 { ORPHAN_RETRIES } else { config.orphan_retries }
}

/// R2 is reached: the connection fails. True if it did. 255 `retries` mean no limit.
fn gives_up(parts: &mut PcbMut<'_>, retries: u8, out: &mut Outbox<'_>, now: Time) -> bool {
    let over = retries != u8::MAX && parts.send_window.unanswered >= retries;
    if over {
        give_up(parts, out, now);
    }
    over
}

fn give_up(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    // The soft error explains why an open fails. An established connection ends because answers are missing, not
    // because of a router's report.
    let synchronised = parts.header_in.state.is_synchronised();
    let soft = parts.header_in.soft_error().filter(|error| !synchronised && *error != Error::Unanswered);
    let error = soft.unwrap_or(Error::TimedOut);
    if synchronised && out.config.reset_on_timeout {
        output::reset(parts.send_window, parts.header_out, out, now);
    }
    parts.fail(error, out, now);
    parts.release(out);
}

/// The user time-out (RFC 9293 section 3.9.1, RFC 5482): data or a FIN has waited for so long, sent and not
/// acknowledged or never sent, regardless of the cause: the network, the peer's window, or a device that accepts no
/// frames.
fn user_timeout(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let limit = parts.header_in.user_timeout();
    let sw = &*parts.send_window;
    let waits = sw.flight() > 0 || parts.retransmit_queue.len > 0 || sw.fin_queued() && !sw.fin_sent;
    if limit.is_zero() || !waits {
        return;
    }
    let passed = sw.progress.elapsed(now);
    if passed >= limit {
        give_up(parts, out, now);
    } else {
        out.wake_by(now + (limit - passed));
    }
}

/// RFC 9293 section 3.8.4: probe a peer that was silent for too long.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//# Implementers MAY include "keep-alives" in their TCP implementations (MAY-5), although this practice is not
//# universally accepted.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//# Keep-alive packets MUST only be sent when no sent data is outstanding, and no data or acknowledgment packets have
//# been received for the connection within an interval (MUST-26).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//# Consequently, if a keep-alive mechanism is implemented it MUST NOT interpret failure to respond to any specific
//# probe as a dead connection (MUST-29).
fn keep_alive(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let silence = parts.header_in.silence(now);
    let synchronised = parts.header_in.state.is_synchronised();
    let limit = parts.header_in.user_timeout();
    let Some(settings) = parts.header_in.settings.as_mut().filter(|settings| now >= settings.deadline) else { return };
    // A segment has arrived since the last check, or retransmission is under way, which has its own limit.
    let quiet = silence + TOLERANCE >= settings.idle();
    let busy = !synchronised || parts.send_window.flight() > 0 || parts.retransmit_queue.len > 0;
    if !quiet || busy {
        settings.sent = 0;
        settings.restart(if quiet { now } else { now - silence });
        return;
    }
    // If the probe interval exceeds the idle time, an answer does not make the connection count as not idle. An answer
    // is recognised because it arrived after the last segment before the first probe, by more than the tolerance.
    let heard = now - silence;
    if settings.sent > 0 && heard > settings.probed + TOLERANCE {
        settings.sent = 0;
    }
    if settings.sent == 0 {
        settings.probed = heard;
    }
    // A user time-out takes the place of the number of probes.
    let over = if limit.is_zero() {
        settings.sent >= settings.timing.probes
    } else {
        settings.sent > 0 && silence + TOLERANCE >= limit
    };
    if over {
        output::reset(parts.send_window, parts.header_out, out, now);
        parts.fail(Error::TimedOut, out, now);
        parts.release(out);
        return;
    }
    settings.sent = settings.sent.saturating_add(1);
    settings.deadline = now + settings.timing.interval;
    out.count(Counter::KeepAlivesOut, 1);
    output::probe(parts.send_window, parts.header_out, out, now);
}

/// Frees the memory of empty queues; checks the others again later.
fn shrink(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    parts.receive_window.queue.shrink();
    parts.retransmit_queue.shrink();
    if let Some(loss) = &mut parts.send_window.loss {
        loss.shrink();
    }
    if parts.receive_window.queue.is_spilled() || parts.retransmit_queue.is_spilled() {
        out.wake_by(now + IDLE_CHECK);
    }
}
