//! Fifth: check the ACK field (RFC 9293 section 3.10.7.4), with RFC 5961 section 5, SACK (RFC 6675), fast retransmit
//! (RFC 5681, 6582) and the send window.
//!
//! Written against the send side alone. What it learns about text to send is a hint for the caller: the transmission
//! that follows decides again.

use core::time::Duration;

use observe::{Counter, Pressure, Time};
use wire::SeqNumber;
use wire::tcp::Header;

use crate::outbox::{Outbox, Readiness};
use crate::pcb::{Mode, RetransmitQueue, SendWindow, Tick, Timer};
use crate::sack::DUP_THRESH;

/// What the ACK field meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acked {
    /// It acknowledges what was never sent, or is impossibly old: challenge, and drop the segment.
    Invalid,
    /// It is acceptable.
    Valid {
        /// There may be something to send now.
        work: bool,
        /// It acknowledges our FIN.
        fin: bool,
    },
}

/// Process the ACK field, the window and the SACK blocks of `header`, of a segment with `text_len` octets of sequence
/// space.
#[inline]
pub(crate) fn process(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    header: &Header,
    text_len: u32,
    out: &mut Outbox<'_>,
    now: Time,
) -> Acked {
    let ack = header.ack;
    let advance = ack - sw.una;
    if advance < 0 {
        // RFC 5961 section 5: not older than the largest window that the peer ever had.
        let age = advance.unsigned_abs();
        return if age > sw.max_wnd { Acked::Invalid } else { Acked::Valid { work: false, fin: false } };
    }
    if advance as u32 > sw.flight() {
        return Acked::Invalid;
    }
    let old_window = sw.wnd;
    let update = sw.wl1.lt(header.seq) || sw.wl1 == header.seq && sw.wl2.le(ack);
    if advance > 0 {
        acknowledge(sw, rq, header, advance as u32, out, now);
    }
    if update {
        sw.wnd = u32::from(header.window) << sw.shift;
        sw.max_wnd = sw.max_wnd.max(sw.wnd);
        if sw.wnd == 0 && old_window > 0 {
            out.count(Counter::ZeroWindowsIn, 1);
        }
        sw.wl1 = header.seq;
        sw.wl2 = ack;
        if sw.timer_kind == Timer::Persist && sw.wnd > 0 {
            // The back-off was that of the probes, and says nothing about the text that follows.
            sw.rtt.reset_backoff();
        }
    }
    // A closed window is an answer; any other acknowledgement must make progress, or R2 would never be reached while
    // the peer talks but nothing of ours arrives.
    if advance > 0 || sw.wnd == 0 || sw.timer_kind != Timer::Retransmit {
        sw.unanswered = 0;
    }
    if advance == 0 && sw.flight() > 0 || !header.options.sack.is_empty() {
        let duplicate = advance == 0 && text_len == 0 && sw.wnd == old_window;
        in_disorder(sw, rq, header, duplicate, out, now);
    }
    Acked::Valid { work: sw.has_work(rq), fin: sw.fin_sent && ack == sw.nxt }
}

/// SND.UNA moves by `advance`, at least 1.
#[inline]
fn acknowledge(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    header: &Header,
    advance: u32,
    out: &mut Outbox<'_>,
    now: Time,
) {
    let flight = sw.flight();
    // All of the queue before SND.NXT, so only the FIN exceeds it.
    let text = advance.min(sw.sent_text());
    rq.acknowledge(text);
    sw.bytes_acked += u64::from(text);
    sw.una = header.ack;
    sw.progress = Tick::of(now);
    if sw.small_end.lt(sw.una) {
        sw.small_end = sw.una;
    }
    sample_round_trip(sw, header, out, now);
    if !rq.scoreboard.is_empty() {
        rq.scoreboard.ack_to(sw.una);
    }
    // Before recovery ends: the acknowledgement that ends it does not also open the window (RFC 6582 section 3.2).
    let limited = sw.cwnd_limited;
    sw.congestion.on_ack(advance, flight, sw.rtt.srtt(), now, limited);
    if sw.mode == Mode::Open {
        sw.duplicates = 0;
        sw.recover = sw.una - 1;
    } else {
        acknowledge_in_recovery(sw, advance, now);
    }
    if sw.flight() == 0 {
        sw.stop_timer();
        if rq.len == 0 && sw.shaping.is_some() {
            sw.idle(now);
        }
    } else {
        // RFC 6298 section 5.3. Moved later it needs no new wake, but the sample may have made it earlier.
        sw.set_timer(Timer::Retransmit, sw.rtt.deadline(now));
        sw.arm(out);
    }
    grow_send_buffer(sw, out);
    if sw.blocked && sw.is_writable(rq) {
        sw.blocked = false;
        out.ready |= Readiness::WRITABLE;
    }
}

/// Let the user fill twice what the network takes.
#[inline]
fn grow_send_buffer(sw: &mut SendWindow, out: &Outbox<'_>) {
    let wanted = sw.congestion.cwnd().saturating_mul(2);
    if sw.grows && sw.limit < wanted && out.config.gauges.pressure() == Pressure::None {
        sw.limit = wanted.min(out.config.send_buffer.max.max(sw.limit));
    }
}

/// One sample per round trip from our own clock, which has the resolution; after a retransmission (Karn) only the
/// timestamp's echo can tell which transmission was acknowledged.
#[inline]
fn sample_round_trip(sw: &mut SendWindow, header: &Header, out: &Outbox<'_>, now: Time) {
    if sw.rtt.is_timing() {
        if sw.una.ge(sw.timed) {
            sw.rtt.finish(now);
            out.count(Counter::RttSamples, 1);
        }
    } else if sw.timestamps && (sw.mode != Mode::Open || sw.rtt.backoff_count() > 0) {
        sample_echo(sw, header, out, now);
    }
}

#[cold]
fn sample_echo(sw: &mut SendWindow, header: &Header, out: &Outbox<'_>, now: Time) {
    let Some(timestamps) = header.options.timestamps else { return };
    let sent = timestamps.echo.wrapping_sub(sw.ts_offset);
    let elapsed = (now.as_millis() as u32).wrapping_sub(sent);
    // An echo from the future, or of an age that no round trip has, is no measurement.
    if elapsed < 1 << 22 {
        let expected = sw.flight() / (2 * u32::from(sw.mss)) + 1;
        sw.rtt.sample_one_of(Duration::from_millis(u64::from(elapsed)), expected);
        out.count(Counter::RttSamples, 1);
    }
}

#[cold]
fn acknowledge_in_recovery(sw: &mut SendWindow, advance: u32, now: Time) {
    sw.high_rxt = sw.high_rxt.max(sw.una);
    if sw.una.ge(sw.recover) {
        sw.mode = Mode::Open;
        sw.duplicates = 0;
        sw.resend_first = false;
        sw.congestion.on_recovery_exit(now);
    } else if sw.mode == Mode::Recovery && !sw.sack {
        // A partial acknowledgement (RFC 6582 section 3.2): the next segment is lost as well. The segments that were
        // acknowledged now and had been counted as arrived are no longer part of the flight.
        let arrived = (advance / u32::from(sw.mss)).saturating_sub(1);
        sw.duplicates = sw.duplicates.saturating_sub(arrived.min(u32::from(u16::MAX)) as u16);
        sw.high_rxt = sw.una;
        sw.resend_first = true;
    }
}

/// A duplicate acknowledgement, or one with SACK blocks.
#[cold]
fn in_disorder(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    header: &Header,
    duplicate: bool,
    out: &mut Outbox<'_>,
    now: Time,
) {
    let blocks = &header.options.sack;
    let news = if sw.sack && !blocks.is_empty() {
        out.count(Counter::SacksIn, 1);
        if crate::sack::dsack(blocks, header.ack).is_some() {
            out.count(Counter::DsacksIn, 1);
        }
        rq.scoreboard.update(blocks, sw.una, sw.nxt) > 0
    } else {
        false
    };
    // RFC 6675 section 2: with SACK, news of arrivals makes a duplicate, and nothing else does; the acknowledgement
    // number may advance.
    if if sw.sack { news } else { duplicate } {
        out.count(Counter::DupAcksIn, 1);
        let flight = sw.flight() / u32::from(sw.mss);
        // An attacker who invents duplicates must not be able to claim more arrivals than there are segments.
        sw.duplicates = sw.duplicates.saturating_add(1).min(flight.min(u32::from(u16::MAX)).max(1) as u16);
        // RFC 6582 section 3.2 step 2: without SACK, duplicates of the recovery point may be answers to what was sent
        // again without need.
        if sw.mode == Mode::Open && (sw.sack || sw.una.gt(sw.recover)) && lost(sw, rq) {
            enter_recovery(sw, out, now);
        }
    }
}

fn lost(sw: &SendWindow, rq: &RetransmitQueue) -> bool {
    u32::from(sw.duplicates) >= DUP_THRESH || rq.scoreboard.is_lost(sw.una, u32::from(sw.mss), DUP_THRESH)
}

fn enter_recovery(sw: &mut SendWindow, out: &mut Outbox<'_>, now: Time) {
    sw.mode = Mode::Recovery;
    sw.recover = sw.nxt;
    sw.high_rxt = sw.una;
    sw.resend_first = true;
    sw.rescue = true;
    sw.rtt.cancel();
    sw.congestion.on_congestion(sw.flight(), now);
    sw.set_timer(Timer::Retransmit, sw.rtt.deadline(now));
    out.count(Counter::FastRetransmits, 1);
    out.count(Counter::CongestionEvents, 1);
}

/// Is `ack` within what the peer may acknowledge of an unacknowledged SYN?
pub(crate) fn covers_syn(sw: &SendWindow, ack: SeqNumber) -> bool {
    ack.gt(sw.una) && ack.le(sw.nxt)
}
