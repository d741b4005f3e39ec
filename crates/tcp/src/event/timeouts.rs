//! Time-outs (RFC 9293 section 3.10.8, RFC 6298, RFC 1122 section 4.2).
//!
//! Deadlines live in the parts; the stack only knows one time for the whole connection, the earliest that was asked
//! for. When that comes, this event looks at every deadline, acts on those that are due, and asks for the next. A wake
//! that finds nothing due is normal: deadlines that move later are not taken back (invariant G8).

use core::time::Duration;

use observe::{Counter, Time};

use super::Event;
use super::segment_arrives::release;
use super::segment_arrives::text::IDLE_CHECK;
use crate::access::{PcbAccess, PcbMut};
use crate::error::Error;
use crate::outbox::Outbox;
use crate::output;
use crate::pcb::{Ack, Mode, Timer};
use crate::state::{Cause, State};

/// Window probes, answered or not, for a connection whose user has closed it: 51 s at the least RTO.
const ORPHAN_PROBES: u32 = 8;

/// Act on whatever is due.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts;

impl Event for Timeouts {
    /// When to run it again; the same as `out.deadline` asks for.
    type Reply = Option<Time>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Option<Time> {
        pcb.whole(out, |mut parts, out| {
            // The wake that brought us here is used up: everything must be asked for again.
            parts.receive_window.armed = Time::MAX;
            parts.send_window.armed = Time::MAX;
            if now >= parts.header_in.state_deadline {
                expire(&mut parts, out, now);
            }
            keep_alive(&mut parts, out, now);
            if now >= parts.receive_window.ack_deadline {
                delayed_ack(&mut parts, out, now);
            }
            if now >= parts.send_window.timer {
                send_timer(&mut parts, out, now);
            }
            shrink(&mut parts, out, now);
            parts.header_in.arm(out);
            parts.receive_window.arm(out);
            parts.send_window.arm(out);
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
        release(parts, out);
    }
}

fn delayed_ack(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    out.count(Counter::DelayedAckTimeouts, 1);
    let rw = &mut *parts.receive_window;
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
        Timer::Off => parts.send_window.stop_timer(),
        Timer::Cork => {
            parts.send_window.stop_timer();
            push(parts, out, now);
        }
        Timer::Persist => persist(parts, out, now),
        Timer::Retransmit => retransmit(parts, out, now),
    }
}

/// Send held-back text although it does not fill a segment. True if anything left.
fn push(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> bool {
    let before = out.segments.len();
    parts.transmit(out, |sw, rq, ho, out| output::send_text(sw, rq, ho, out, now, true));
    out.segments.len() > before
}

/// The peer's window is closed: probe it, for ever as long as it answers (RFC 9293 section 3.8.6.1). What is sent is
/// text if the window has any room; else a segment without text just before SND.UNA, which the peer must answer.
fn persist(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    // Nobody waits for an orphan: its memory is not the peer's to keep for ever.
    let orphan_expired = parts.header_in.orphan && parts.send_window.rtt.backoff_count() >= ORPHAN_PROBES;
    let limit = if orphan_expired { 0 } else { out.config.retries };
    if gives_up(parts, limit, out, now) {
        return;
    }
    let sw = &mut *parts.send_window;
    sw.unanswered = sw.unanswered.saturating_add(1);
    sw.rtt.backoff();
    sw.set_timer(Timer::Persist, sw.rtt.deadline(now));
    // Text that only waits for the device needs no probe.
    if !push(parts, out, now) && parts.send_window.timer_kind == Timer::Persist {
        out.count(Counter::WindowProbesOut, 1);
        output::probe(parts.send_window, parts.header_out, out, now);
    }
}

/// RFC 6298 section 5.4 to 5.7.
fn retransmit(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let limit = match parts.header_in.state {
        State::SynSent => out.config.syn_retries,
        State::SynReceived => out.config.syn_ack_retries,
        _ => out.config.retries,
    };
    if gives_up(parts, limit, out, now) {
        return;
    }
    let state = parts.header_in.state;
    let sw = &mut *parts.send_window;
    sw.unanswered = sw.unanswered.saturating_add(1);
    sw.rtt.cancel();
    sw.rtt.backoff();
    sw.set_timer(Timer::Retransmit, sw.rtt.deadline(now));
    out.count(Counter::Timeouts, 1);
    if matches!(state, State::SynSent | State::SynReceived) {
        out.count(Counter::Retransmits, 1);
        output::syn(sw, parts.header_out, out, now);
        return;
    }
    if sw.flight() == 0 {
        sw.stop_timer();
        return;
    }
    lose_everything(parts, out, now);
    parts.transmit(out, |sw, rq, ho, out| output::transmit(sw, rq, ho, out, now, Ack::None));
}

/// All that is out counts as lost, and what the peer said by SACK may have been taken back (RFC 2018 section 8).
fn lose_everything(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let sw = &mut *parts.send_window;
    out.count(Counter::CongestionEvents, 1);
    sw.congestion.on_timeout(sw.flight(), now);
    parts.retransmit_queue.scoreboard.clear();
    sw.mode = Mode::Loss;
    sw.recover = sw.nxt;
    sw.high_rxt = sw.una;
    sw.duplicates = 0;
    sw.resend_first = true;
}

/// R2 or the user time-out is reached: the connection fails. True if it did.
fn gives_up(parts: &mut PcbMut<'_>, retries: u8, out: &mut Outbox<'_>, now: Time) -> bool {
    let limit = Duration::from_millis(u64::from(parts.header_in.user_timeout));
    let sw = &*parts.send_window;
    let timed_out = !limit.is_zero() && sw.progress.elapsed(now) >= limit;
    if sw.unanswered < retries && !timed_out {
        return false;
    }
    let error = parts.header_in.soft_error.unwrap_or(Error::TimedOut);
    if parts.header_in.state.is_synchronised() {
        output::reset(parts.send_window, parts.header_out, out, now);
    }
    parts.fail(error, out, now);
    release(parts, out);
    true
}

/// RFC 9293 section 3.8.4: probe a peer that was silent for too long.
fn keep_alive(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let heard = parts.header_in.last_heard;
    let synchronised = parts.header_in.state.is_synchronised();
    let Some(state) = parts.header_in.keep_alive.as_mut() else { return };
    if now < state.deadline {
        return;
    }
    // Heard since the last look, or busy with retransmission, which has its own limit.
    let quiet = now - heard >= state.timing.idle;
    let busy = !synchronised || parts.send_window.flight() > 0 || parts.retransmit_queue.len > 0;
    if !quiet || busy {
        state.sent = 0;
        let from = if quiet { now } else { heard };
        state.deadline = from + state.timing.idle;
        return;
    }
    if state.sent >= state.timing.probes {
        output::reset(parts.send_window, parts.header_out, out, now);
        parts.fail(Error::TimedOut, out, now);
        release(parts, out);
        return;
    }
    state.sent += 1;
    state.deadline = now + state.timing.interval;
    out.count(Counter::KeepAlivesOut, 1);
    output::probe(parts.send_window, parts.header_out, out, now);
}

/// Give back the memory of queues that have run empty; look again later at those that have not.
fn shrink(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    parts.receive_window.queue.shrink();
    parts.retransmit_queue.shrink();
    if parts.receive_window.queue.is_spilled() || parts.retransmit_queue.is_spilled() {
        out.wake_by(now + IDLE_CHECK);
    }
}
