//! Output: which segments of a connection are sent, and when (RFC 9293 sections 3.7 and 3.8). `segments.rs` makes
//! them, the fast lane (`lane.rs`) the plain ones, and `usual_syn.rs` the usual SYNs.
//!
//! Called under the send side and the header-out part, it decides what may be sent now: first retransmissions, then new
//! data as far as the peer's window, the congestion window, Nagle's rule, the device's credit and the silly-window rule
//! allow, then an acknowledgement if none of that carried it. What may never happen: new bytes sent out of the order of
//! their sequence numbers, or an ACK number that moves back.

mod probe_mtu;
mod recover;
mod segments;
mod usual_syn;

use core::time::Duration;

use observe::{Counter, Counters, Time};
use pktbuf::PktBuf;
use wire::SeqNumber;
use wire::tcp::TcpFlags;

use crate::config::Config;
use crate::outbox::{Outbox, Readiness};
use crate::pcb::{
    Ack, Awaited, FrtoState, HeaderOut, IDLE_CHECK, RecoveryMode, RetransmitQueue, SendWindow, SenderLimit,
    TimerPurpose,
};
use crate::tick::Tick;

pub(crate) use recover::{probe_recovery, probe_tail};
use segments::{COUNTERS, Draft, data_draft, emit_data, emit_data_with_counters};
pub(crate) use segments::{advertise_user_timeout, fast_syn, probe, pure_ack, reset, reset_at, syn, syn_ack};
pub(crate) use usual_syn::UsualAnswer;

/// Largest data of a super-segment: 65 535 less the longest IP and TCP headers.
const LARGEST_SUPER_SEGMENT: usize = 65_535 - 60 - 60;

const ACK: TcpFlags = TcpFlags::ACK;

/// The values that an emission advertised about the receive side, if these had changed or the receive side must be
/// notified that data was sent: it may begin a dialogue.
pub(crate) type Advertised = Option<(SeqNumber, SeqNumber)>;

/// A finished segment is counted, and leaves.
#[inline(always)]
pub(crate) fn leave(segment: PktBuf, ho: &mut HeaderOut, out: &mut Outbox<'_>) {
    out.segments.push(segment);
    count_out(ho, out.counters);
}

/// A finished segment is counted.
#[inline(always)]
pub(crate) fn count_out(ho: &mut HeaderOut, counters: &Counters) {
    ho.segments_out = ho.segments_out.wrapping_add(1);
    counters.add(Counter::SegmentsOut, 1);
}

/// Sends all that may be sent now, and an acknowledgement if `ack` requests one.
pub(crate) fn transmit(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    ack: Ack,
) -> Advertised {
    let unadvertised = ho.has_unadvertised();
    let before = out.segments.len();
    if ack == Ack::Pure {
        pure_ack(sw, ho, out, now);
    }
    if sw.has_work(rq) {
        send_data(sw, rq, ho, out, now, false);
    }
    let sent = out.segments.len() > before;
    // Between two hold-sets another thread may have advertised all of it. The peer would treat a repetition as a sign
    // of loss.
    if ack == Ack::Now && !sent && unadvertised {
        pure_ack(sw, ho, out, now);
    }
    (out.segments.len() > before && (unadvertised || ho.take_quick())).then_some((ho.acked, ho.advertised_edge))
}

impl SendWindow {
    /// Whether all data, and the FIN if the user has closed, were sent at least once.
    #[inline]
    fn nothing_unsent(&self, rq: &RetransmitQueue) -> bool {
        rq.len == self.sent_data() && self.fin_sent == self.fin_queued()
    }

    /// Whether there is data or a FIN to send or to retransmit.
    #[inline]
    pub(crate) fn has_work(&self, rq: &RetransmitQueue) -> bool {
        self.state.may_transmit() && (!self.nothing_unsent(rq) || self.mode.recovers())
    }
}

/// Sends data and FIN as far as allowed. `push`: the silly-window rule, Nagle's and the cork are overridden, because
/// their time has expired.
pub(crate) fn send_data(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    push: bool,
) {
    if !sw.state.may_transmit() {
        return;
    }
    restart_after_idle(sw, out.config, now);
    sw.cwnd_limited = false;
    let from = sw.nxt;
    let hold =
        if sw.mode.recovers() { recover::recover(sw, rq, ho, out, now) } else { send_new(sw, rq, ho, out, now, push) };
    note_sent(sw, rq, from, out, now);
    set_timer_after_sending(sw, rq, hold, out, now);
    if sw.shaping.is_some() {
        shaped(sw, rq, (from, hold), out, now);
    }
}

/// The second half of [`send_data`], after the fast lane has sent the data from `from` up to SND.NXT.
#[cold]
pub(crate) fn send_rest(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    from: SeqNumber,
) {
    let hold = send_new(sw, rq, ho, out, now, false);
    note_sent(sw, rq, from, out, now);
    set_timer_after_sending(sw, rq, hold, out, now);
}

/// The same, if there is no buffer for more.
#[cold]
pub(crate) fn no_room(sw: &mut SendWindow, rq: &mut RetransmitQueue, from: SeqNumber, out: &mut Outbox<'_>, now: Time) {
    note_sent(sw, rq, from, out, now);
    set_timer_after_sending(sw, rq, StopReason::NoRoom, out, now);
}

/// After a transmission of a sender with limits of its own: update the account, and wake waiting writers.
#[cold]
fn shaped(
    sw: &mut SendWindow,
    rq: &RetransmitQueue,
    (from, hold): (SeqNumber, StopReason),
    out: &mut Outbox<'_>,
    now: Time,
) {
    if sw.awaited.contains(Awaited::ROOM) && sw.is_writable(rq, out.config, out.scarcity) {
        sw.awaited.remove(Awaited::ROOM);
        out.ready |= Readiness::WRITABLE;
    }
    let (waits, unsent, progress) = (sw.flight() > 0 || rq.len > 0, !sw.nothing_unsent(rq), sw.progress);
    let (blocked, una, nxt, delivered) = (sw.awaited.contains(Awaited::ROOM), sw.una, sw.nxt, sw.delivered_bytes());
    let Some(shaping) = sw.shaping.as_mut() else { return };
    if let Some(rate) = &mut shaping.rate {
        if nxt != from {
            rate.sent(una, (from, nxt), delivered, now.as_micros() as u32);
        }
        if hold == StopReason::Empty && waits { rate.ran_dry(nxt) } else { rate.is_busy() }
    }
    shaping.acknowledged(una);
    if waits && shaping.user_timeout > 0 {
        let limit = Duration::from_millis(shaping.user_timeout.into());
        out.wake_by(now + limit.saturating_sub(progress.elapsed(now)));
    }
    if let Some(account) = &mut shaping.account {
        account.note(
            match hold {
                _ if !waits => SenderLimit::Idle,
                StopReason::Window if unsent => SenderLimit::Window,
                StopReason::Empty if blocked => SenderLimit::Buffer,
                _ => SenderLimit::Network,
            },
            now,
        );
    }
}

/// New bytes from `from` on were sent: record the time.
#[inline(always)]
pub(crate) fn note_sent(sw: &SendWindow, rq: &mut RetransmitQueue, from: SeqNumber, out: &mut Outbox<'_>, now: Time) {
    if sw.nxt == from {
        return;
    }
    let clock = now.as_micros() as u32;
    let clock = sw.loss.as_ref().filter(|_| sw.mode.recovers()).map_or(clock, |loss| loss.leaves_at(clock));
    if rq.log.sent(sw.una, from, clock, sw.slice_width()) {
        out.wake_by(now + IDLE_CHECK);
    }
}

/// Why no (more) new data was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// There is none.
    Empty,
    /// The peer's window, or the silly-window rule.
    Window,
    /// The congestion window.
    Congestion,
    /// Nagle's rule.
    Nagle,
    /// The cork.
    Cork,
    /// The device or the buffer pool.
    NoRoom,
    /// The pacer.
    Paced,
    /// Waiting for the stack to report the path's MTU.
    Path,
}

/// RFC 5681 section 4.1: after an idle time the congestion window no longer reflects the network.
#[inline(always)]
pub(crate) fn restart_after_idle(sw: &mut SendWindow, config: &Config, now: Time) {
    if sw.flight() == 0 && config.slow_start_after_idle && sw.rtt.is_exceeded_by(sw.last_sent.elapsed_ms(now)) {
        sw.congestion.on_idle_restart(sw.initial_window(config));
        sw.last_sent = Tick::of(now);
    }
}

fn send_new(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    push: bool,
) -> StopReason {
    let mut pipe = sw.pipe();
    loop {
        let room = sw.congestion.cwnd().saturating_sub(pipe);
        match send_one_new(sw, rq, ho, out, now, NewSegmentLimits { congestion: room, push }) {
            // Usually that was all.
            Ok(_) if sw.nothing_unsent(rq) => return StopReason::Empty,
            Ok(bytes) => pipe += bytes,
            Err(hold) => return hold,
        }
    }
}

/// Limits of the next new segment, beside those in the send window.
#[derive(Clone, Copy)]
struct NewSegmentLimits {
    /// Bytes that the congestion window has room for.
    congestion: u32,
    push: bool,
}

/// Sends one new segment (or super-segment); returns its bytes of sequence space.
#[inline]
fn send_one_new(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    mut room: NewSegmentLimits,
) -> Result<u32, StopReason> {
    let mut unsent = rq.len - sw.sent_data();
    let mut fin = sw.fin_queued() && !sw.fin_sent;
    if unsent == 0 && !fin {
        return Err(StopReason::Empty);
    }
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
    //# If this happens, the sender SHOULD NOT send new data (SHLD-15),
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
    //# However, a sending TCP peer MUST be robust against window shrinking, which may cause the "usable window" (see
    //# Section 3.8.6.2.1) to become negative (MUST-34).
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
    //# Implementations MUST ensure that they handle a shrinking window, as specified in Section 4.2.2.16 of [RFC1122].
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
    //# The initial transmission MUST be within the window announced by the most recent <ACK>.
    let window = (sw.right_edge() - sw.nxt).max(0) as u32;
    if sw.shaping.is_some() {
        let record = pace(sw, out, now, unsent)?;
        if record < unsent {
            // More data follows, which cannot join it.
            (unsent, fin) = (record, false);
            room.push |= record <= window;
        } else if let Some(sent) = probe_mtu::send_probe(sw, rq, ho, out, now, room) {
            return sent;
        }
    }
    let super_segments = if ho.marks.are_plain() { out.prefer_super_segments } else { 0 };
    let len = next_len(sw, unsent, window, room, super_segments).inspect_err(|&hold| {
        sw.cwnd_limited |= hold == StopReason::Congestion;
    })?;
    // The FIN takes a byte of window, too.
    let fin = fin && len == unsent && (window > len || room.push);
    if len == 0 && !fin {
        return Err(StopReason::Window);
    }
    if len > 0 && out.credit == 0 {
        out.tx_blocked = true;
        return Err(StopReason::NoRoom);
    }
    // Data that the user did not push is pushed when its time has expired, or by the FIN.
    let pushed = sw.hold.is_pushed() || room.push || fin;
    put_new(sw, rq, ho, out, now, NewData { len, fin, pushed: len == unsent && pushed, whole: false })
}

/// New data to send as one segment, or one super-segment.
#[derive(Clone, Copy)]
struct NewData {
    len: u32,
    fin: bool,
    /// Nothing else waits, and the user has pushed it.
    pushed: bool,
    /// The device must not cut it.
    whole: bool,
}

/// Makes a segment of new data, and records that it was sent; returns its bytes of sequence space.
#[inline(always)]
fn put_new(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    NewData { len, fin, pushed, whole }: NewData,
) -> Result<u32, StopReason> {
    let mut flags = ACK;
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
    //# The transmitter SHOULD collapse successive bits when it packetizes data, to send the largest possible segment
    //# (SHLD-27).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
    //# and (2) MUST set the PSH bit in the last buffered segment (i.e., when there is no more queued data to be sent)
    //# (MUST-61).
    if len > 0 && pushed {
        flags.insert(TcpFlags::PSH);
    }
    if fin {
        flags.insert(TcpFlags::FIN);
    }
    let mut draft = data_draft(sw, ho, sw.nxt, len, flags, now);
    if whole {
        draft.segment_size = 0;
    }
    if len > u32::from(sw.mss) && draft.segment_size != 0 && out.config.push_super_segments {
        draft.flags.insert(TcpFlags::PSH);
    }
    if len > 0 {
        draft.class = ho.marks.class();
        if ho.marks.may_have_signal() {
            return put_with_signal(sw, rq, ho, out, now, (draft, fin, whole));
        }
    }
    if !emit_data(ho, out, draft, |dst, sum| rq.copy_unsent(dst, sum)) {
        return Err(StopReason::NoRoom);
    }
    Ok(note_new(sw, out, (len, fin), now))
}

/// New data that may have an ECN signal: CWR, which is sent once, or the counters of accurate ECN, which take room from
/// the data.
#[cold]
fn put_with_signal(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    (mut draft, mut fin, whole): (Draft, bool, bool),
) -> Result<u32, StopReason> {
    if ho.marks.needs_cwr() {
        draft.flags.insert(TcpFlags::CWR);
    }
    let counters = ho.marks.needs_option() || !whole && ho.repeats_ecn_option(sw.rtt.srtt_us(), out.config, now);
    let most = u32::from(sw.mss).saturating_sub(COUNTERS).max(1);
    let cut = counters && draft.len > most;
    if cut {
        (draft.len, draft.segment_size, fin) = (most, 0, false);
        draft.flags = draft.flags.difference(TcpFlags::PSH.union(TcpFlags::FIN));
    }
    let (len, small_end) = (draft.len, sw.small_end);
    let fill = |dst: &mut [u8], sum| rq.copy_unsent(dst, sum);
    let sent =
        if counters { emit_data_with_counters(ho, out, draft, now, fill) } else { emit_data(ho, out, draft, fill) };
    if !sent {
        return Err(StopReason::NoRoom);
    }
    ho.marks.cwr_sent();
    let bytes = note_new(sw, out, (len, fin), now);
    if cut {
        // The option made it small, not the user: Nagle's rule does not wait for it.
        sw.small_end = small_end;
    }
    Ok(bytes)
}

/// A segment of new data has left; its bytes of sequence space.
#[inline(always)]
fn note_new(sw: &mut SendWindow, out: &mut Outbox<'_>, (len, fin): (u32, bool), now: Time) -> u32 {
    out.count(Counter::DataBytesOut, u64::from(len));
    advance(sw, len, fin, now);
    if sw.shaping.is_some() {
        let rate = sw.pacing_rate(out.config);
        sw.shaping.iter_mut().for_each(|shaping| shaping.sent(len, sw.data_segments_out, rate, now));
    }
    len + u32::from(fin)
}

/// Whether the pacer allows a new segment; if not, it sets the time. Else returns how much of `unsent` belongs to one
/// record.
#[cold]
fn pace(sw: &mut SendWindow, out: &mut Outbox<'_>, now: Time, unsent: u32) -> Result<u32, StopReason> {
    let (sent, nxt) = (sw.data_segments_out, sw.nxt);
    let Some(shaping) = sw.shaping.as_mut() else { return Ok(unsent) };
    match shaping.hold_until(sent, now) {
        Some(at) => {
            out.wake_by(at);
            Err(StopReason::Paced)
        }
        None => Ok(shaping.record(nxt, unsent)),
    }
}

/// Note that `len` new bytes (and the FIN) left.
#[inline]
fn advance(sw: &mut SendWindow, len: u32, fin: bool, now: Time) {
    if sw.flight() == 0 {
        sw.progress = Tick::of(now);
    }
    sw.nxt += len + u32::from(fin);
    sw.data_segments_out =
        sw.data_segments_out.wrapping_add(if len <= u32::from(sw.mss) { 1 } else { pieces(sw, len) });
    sw.fin_sent |= fin;
    sw.last_sent = Tick::of(now);
    let mss = u32::from(sw.mss);
    // Usually it is at most one segment: no division.
    if len < mss || len != mss && !len.is_multiple_of(mss) {
        sw.small_end = sw.nxt;
    }
    //= https://www.rfc-editor.org/rfc/rfc6298#section-3
    //# A TCP implementation MUST take at least one RTT measurement per RTT (unless that is not possible per Karn's
    //# algorithm).
    if !sw.rtt.is_timing() && sw.mode == RecoveryMode::Open {
        sw.timed = sw.nxt;
        sw.rtt.start();
    }
}

/// Segments that the device makes of a super-segment.
#[cold]
fn pieces(sw: &SendWindow, len: u32) -> u32 {
    len.div_ceil(u32::from(sw.mss))
}

/// The bytes of data of the next new segment; 0 for a FIN alone.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//# However, a TCP implementation SHOULD send a maximum-sized segment whenever possible (SHLD-28) to improve performance
//# (see Section 3.8.6.2.1).
#[inline]
fn next_len(
    sw: &SendWindow,
    unsent: u32,
    window: u32,
    room: NewSegmentLimits,
    super_segments: usize,
) -> Result<u32, StopReason> {
    let mss = u32::from(sw.mss);
    let largest = if super_segments == 0 { mss } else { super_segments.min(LARGEST_SUPER_SEGMENT) as u32 / mss * mss };
    let fit = unsent.min(window);
    if fit > room.congestion && room.congestion < mss {
        return Err(StopReason::Congestion);
    }
    let len = fit.min(room.congestion).min(largest.max(mss));
    if len < unsent || len >= mss {
        // There is more than this, or a full segment: only whole segments are sent now.
        let whole = len / mss * mss;
        let tail_may_go = len == unsent && (whole == len || small_may_leave(sw, room.push).is_ok());
        if tail_may_go {
            return Ok(len);
        }
        if whole > 0 {
            return Ok(whole);
        }
        return silly_window(sw, len, window, room);
    }
    if unsent > 0 && !sw.fin_queued() {
        small_may_leave(sw, room.push)?;
    }
    Ok(len)
}

/// Less than a segment fits although there is more: the sender's silly-window rule (RFC 9293 section 3.8.6.2.1, case
/// 3).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.2.1
//# A TCP implementation MUST include a SWS avoidance algorithm in the sender (MUST-38).
#[cold]
fn silly_window(sw: &SendWindow, len: u32, window: u32, room: NewSegmentLimits) -> Result<u32, StopReason> {
    let window_limits = window < room.congestion;
    if len > 0 && (room.push || window_limits && len >= sw.max_wnd / 2) {
        Ok(len)
    } else if window_limits {
        Err(StopReason::Window)
    } else {
        Err(StopReason::Congestion)
    }
}

/// Whether a partial segment may be sent: the cork, and Nagle's rule as modified by Minshall (it waits only while
/// another partial segment is unacknowledged).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//# When an application issues a series of SEND calls without setting the PUSH flag, the TCP implementation MAY
//# aggregate the data internally without sending it (MAY-16).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.4
//# A TCP implementation SHOULD implement the Nagle algorithm to coalesce short segments (SHLD-7).
#[inline]
pub(crate) fn small_may_leave(sw: &SendWindow, push: bool) -> Result<(), StopReason> {
    if push {
        Ok(())
    } else if sw.hold.holds() {
        Err(StopReason::Cork)
    } else if sw.no_delay || sw.small_end.le(sw.una) {
        Ok(())
    } else {
        Err(StopReason::Nagle)
    }
}

/// One timer serves three purposes: retransmission while anything is unacknowledged, else the probe of a closed
/// window, else the end of a cork.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//# If PUSH flags are not implemented, then the sending TCP peer: (1) MUST NOT buffer data indefinitely (MUST-60),
#[inline]
fn set_timer_after_sending(
    sw: &mut SendWindow,
    rq: &RetransmitQueue,
    hold: StopReason,
    out: &mut Outbox<'_>,
    now: Time,
) {
    if sw.flight() > 0 {
        if !sw.timer_kind.guards_flight() {
            sw.guard_flight(out.config, now);
        }
    } else if rq.len > 0 || sw.fin_queued() && !sw.fin_sent {
        if sw.timer_kind == TimerPurpose::Off {
            // Everything before was acknowledged: the user time-out begins here.
            sw.progress = Tick::of(now);
        }
        match hold {
            // The stack continues a blocked connection with `TransmitReady`; no answer from the peer is needed.
            StopReason::NoRoom if sw.timer_kind == TimerPurpose::Persist => sw.stop_timer(),
            // A device that stays blocked must not hold data for ever: see `user_timeout`.
            StopReason::NoRoom if sw.timer_kind == TimerPurpose::Off => {
                sw.set_timer(TimerPurpose::Cork, sw.rtt.deadline(now))
            }
            StopReason::NoRoom => {}
            // The stack runs the next event at once.
            StopReason::Path => {}
            // Its own deadline wakes it.
            StopReason::Paced if sw.timer_kind == TimerPurpose::Persist => sw.stop_timer(),
            StopReason::Paced => {}
            // No sooner than the retransmission time-out, as on Linux.
            StopReason::Cork if sw.timer_kind != TimerPurpose::Cork => {
                sw.set_timer(TimerPurpose::Cork, sw.rtt.deadline(now).max(now + out.config.cork_timeout));
            }
            StopReason::Cork => {}
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
            //# The transmitting host SHOULD send the first zero-window probe when a zero window has existed for the
            //# retransmission timeout period (SHLD-29)
            _ if sw.timer_kind != TimerPurpose::Persist => sw.set_timer(TimerPurpose::Persist, sw.rtt.deadline(now)),
            _ => {}
        }
    }
    sw.arm(out);
}
