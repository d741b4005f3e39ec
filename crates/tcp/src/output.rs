//! Output: the only place that makes segments of a connection (RFC 9293 sections 3.7 and 3.8).
//!
//! Called under the send side and the header-out part, it decides what may leave now, and makes it: first what must be
//! sent again, then new text as far as the peer's window, the congestion window, Nagle's rule, the device's credit and
//! the silly-window rule allow, then an acknowledgement if none of that carried it. What may never happen: new octets
//! that leave in another order than that of their sequence numbers, or an ACK number that moves back.

mod probe_mtu;
mod recover;

use core::time::Duration;

use observe::{Counter, Time};
use pktbuf::{Checksum, PktBuf};
use wire::SeqNumber;
use wire::checksum::Sum;
use wire::tcp::{
    CHECKSUM_OFFSET, FastOpen, HEADER_LEN, Header, MAX_HEADER_LEN, Options, RareOptions, SackBlocks, TcpFlags,
    Timestamps, UserTimeout,
};

use crate::config::Config;
use crate::ecn::NOT_ECT;
use crate::event::segment_arrives::text::IDLE_CHECK;
use crate::outbox::{Outbox, Readiness};
use crate::pcb::{Ack, Doubt, HeaderOut, Limit, Mode, RetransmitQueue, SKEW_MS, SendWindow, Tick, Timer};
use crate::state::State;

pub(crate) use recover::{probe_recovery, probe_tail};

/// Text octets of a super-segment at most: what remains of 65 535 behind the longest IP and TCP headers.
const LARGEST_SUPER_SEGMENT: usize = 65_535 - 60 - 60;

const ACK: TcpFlags = TcpFlags::ACK;

/// What an emission told the peer about the receive side, if that was news.
pub(crate) type Told = Option<(SeqNumber, SeqNumber)>;

/// How a segment is made.
struct Draft {
    seq: SeqNumber,
    /// Octets of text.
    len: u32,
    flags: TcpFlags,
    options: Options,
    window: u16,
    /// The device cuts the text into pieces of this size; 0: one segment.
    segment_size: u16,
    /// The urgent pointer; means something if URG is set.
    urgent: u16,
    /// ECN field of the IP header.
    class: u8,
}

/// Send whatever may be sent now, and an acknowledgement if `ack` asks for one.
#[inline]
pub(crate) fn transmit(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    ack: Ack,
) -> Told {
    let news = ho.has_news();
    let before = out.segments.len();
    if ack == Ack::Pure {
        pure_ack(sw, ho, out, now);
    }
    if sw.has_work(rq) {
        send_text(sw, rq, ho, out, now, false);
    }
    let sent = out.segments.len() > before;
    // Between two hold-sets another thread may have told all of it; the peer would take a repetition for a sign of loss.
    if ack == Ack::Now && !sent && news {
        pure_ack(sw, ho, out, now);
    }
    (news && out.segments.len() > before).then_some((ho.acked, ho.told_edge))
}

impl SendWindow {
    /// Were all text and the FIN, if the user has closed, sent at least once?
    #[inline]
    fn nothing_unsent(&self, rq: &RetransmitQueue) -> bool {
        rq.len == self.sent_text() && self.fin_sent == self.fin_queued
    }

    /// Is there text or a FIN to send, or to send again?
    #[inline]
    pub(crate) fn has_work(&self, rq: &RetransmitQueue) -> bool {
        self.state.may_transmit() && (!self.nothing_unsent(rq) || self.mode.recovers())
    }
}

/// Send text and FIN as far as they may leave. `push`: the silly-window rule, Nagle's and the cork are overridden,
/// because their time is over.
pub(crate) fn send_text(
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

/// What a sender with limits of its own does after a transmission: the account, and those who wait.
#[cold]
fn shaped(sw: &mut SendWindow, rq: &RetransmitQueue, (from, hold): (SeqNumber, Hold), out: &mut Outbox<'_>, now: Time) {
    if sw.blocked && sw.is_writable(rq, out.config) {
        sw.blocked = false;
        out.ready |= Readiness::WRITABLE;
    }
    let (waits, unsent, progress) = (sw.flight() > 0 || rq.len > 0, !sw.nothing_unsent(rq), sw.progress);
    let (blocked, una, nxt, delivered) = (sw.blocked, sw.una, sw.nxt, sw.delivered_octets());
    let Some(shaping) = sw.shaping.as_mut() else { return };
    if let Some(rate) = &mut shaping.rate {
        if nxt != from {
            rate.sent(una, (from, nxt), delivered, now.as_micros() as u32);
        }
        if hold == Hold::Empty && waits { rate.ran_dry(nxt) } else { rate.is_busy() }
    }
    shaping.acknowledged(una);
    if waits && shaping.user_timeout > 0 {
        let limit = Duration::from_millis(shaping.user_timeout.into());
        out.wake_by(now + limit.saturating_sub(progress.elapsed(now)));
    }
    if let Some(account) = &mut shaping.account {
        account.note(
            match hold {
                _ if !waits => Limit::Idle,
                Hold::Window if unsent => Limit::Window,
                Hold::Empty if blocked => Limit::Buffer,
                _ => Limit::Network,
            },
            now,
        );
    }
}

/// New octets left from `from` on: remember when.
#[inline]
fn note_sent(sw: &SendWindow, rq: &mut RetransmitQueue, from: SeqNumber, out: &mut Outbox<'_>, now: Time) {
    if sw.nxt != from && rq.log.sent(sw.una, from, now.as_micros() as u32, sw.slice_width()) {
        out.wake_by(now + IDLE_CHECK);
    }
}

/// Why no (more) new text left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
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
    Starved,
    /// The pacer.
    Paced,
}

/// RFC 5681 section 4.1: after an idle time the congestion window says nothing about the network any more.
#[inline]
fn restart_after_idle(sw: &mut SendWindow, config: &Config, now: Time) {
    if sw.flight() == 0 && config.slow_start_after_idle && sw.last_sent.elapsed_ms(now) > sw.rtt.rto_ms() {
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
) -> Hold {
    let mut pipe = sw.pipe();
    loop {
        let room = sw.congestion.cwnd().saturating_sub(pipe);
        match send_one_new(sw, rq, ho, out, now, Room { congestion: room, push }) {
            // Mostly that was all there is.
            Ok(_) if sw.nothing_unsent(rq) => return Hold::Empty,
            Ok(octets) => pipe += octets,
            Err(hold) => return hold,
        }
    }
}

/// What limits the next new segment, beside what the send window knows.
#[derive(Clone, Copy)]
struct Room {
    /// Octets that the congestion window has room for.
    congestion: u32,
    push: bool,
}

/// Send one new segment (or super-segment); its octets of sequence space.
#[inline]
fn send_one_new(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    mut room: Room,
) -> Result<u32, Hold> {
    let mut unsent = rq.len - sw.sent_text();
    let mut fin = sw.fin_queued && !sw.fin_sent;
    if unsent == 0 && !fin {
        return Err(Hold::Empty);
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
            // Behind it there is more, which cannot join it.
            (unsent, fin) = (record, false);
            room.push |= record <= window;
        } else if let Some(sent) = probe_mtu::send_probe(sw, rq, ho, out, now, room) {
            return sent;
        }
    }
    let super_segments = if ho.marks.are_plain() { out.prefer_super_segments } else { 0 };
    let len = next_len(sw, unsent, window, room, super_segments).inspect_err(|&hold| {
        sw.cwnd_limited |= hold == Hold::Congestion;
    })?;
    // The FIN takes an octet of window, too.
    let fin = fin && len == unsent && (window > len || room.push);
    if len == 0 && !fin {
        return Err(Hold::Window);
    }
    if len > 0 && out.credit == 0 {
        out.starved = true;
        return Err(Hold::Starved);
    }
    // Text that its user did not push is pushed when its time is over, or by the FIN.
    let pushed = sw.hold.is_pushed() || room.push || fin;
    put_new(sw, rq, ho, out, now, NewText { len, fin, pushed: len == unsent && pushed, whole: false })
}

/// New text that is to leave as one segment, or one super-segment.
#[derive(Clone, Copy)]
struct NewText {
    len: u32,
    fin: bool,
    /// Nothing else waits, and the user wants it to be seen.
    pushed: bool,
    /// No device may cut it.
    whole: bool,
}

/// Make a segment of new text, and note that it left; its octets of sequence space.
#[inline(always)]
fn put_new(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    NewText { len, fin, pushed, whole }: NewText,
) -> Result<u32, Hold> {
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
    let mut draft = text_draft(sw, ho, sw.nxt, len, flags, now);
    if whole {
        draft.segment_size = 0;
    }
    if len > u32::from(sw.mss) && draft.segment_size != 0 && out.config.push_super_segments {
        draft.flags.insert(TcpFlags::PSH);
    }
    if len > 0 {
        draft.class = ho.marks.class();
        if ho.marks.tells_reduction() {
            draft.flags.insert(TcpFlags::CWR);
        }
    }
    if !emit_text(ho, out, draft, |dst, sum| rq.copy_unsent(dst, sum)) {
        return Err(Hold::Starved);
    }
    if len > 0 {
        ho.marks.reduction_told();
    }
    out.count(Counter::TextBytesOut, u64::from(len));
    advance(sw, len, fin, now);
    if sw.shaping.is_some() {
        let rate = sw.pacing_rate(out.config);
        sw.shaping.iter_mut().for_each(|shaping| shaping.sent(len, sw.data_segments_out, rate, now));
    }
    Ok(len + u32::from(fin))
}

/// May the pacer let a new segment go? If not, it says when. Else: how much of what is `unsent` belongs to one record.
#[cold]
fn pace(sw: &mut SendWindow, out: &mut Outbox<'_>, now: Time, unsent: u32) -> Result<u32, Hold> {
    let (sent, nxt) = (sw.data_segments_out, sw.nxt);
    let Some(shaping) = sw.shaping.as_mut() else { return Ok(unsent) };
    match shaping.hold_until(sent, now) {
        Some(at) => {
            out.wake_by(at);
            Err(Hold::Paced)
        }
        None => Ok(shaping.record(nxt, unsent)),
    }
}

/// Note that `len` new octets (and the FIN) left.
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
    // Mostly it is less than a segment, or just one: no division.
    if len < mss || len != mss && !len.is_multiple_of(mss) {
        sw.small_end = sw.nxt;
    }
    //= https://www.rfc-editor.org/rfc/rfc6298#section-3
    //# A TCP implementation MUST take at least one RTT measurement per RTT (unless that is not possible per Karn's
    //# algorithm).
    if !sw.rtt.is_timing() && sw.mode == Mode::Open {
        sw.timed = sw.nxt;
        sw.rtt.start();
    }
}

/// Segments that the device makes of a super-segment.
#[cold]
fn pieces(sw: &SendWindow, len: u32) -> u32 {
    len.div_ceil(u32::from(sw.mss))
}

/// How many octets of text the next new segment carries; 0 for a FIN alone.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//# However, a TCP implementation SHOULD send a maximum-sized segment whenever possible (SHLD-28) to improve performance
//# (see Section 3.8.6.2.1).
#[inline]
fn next_len(sw: &SendWindow, unsent: u32, window: u32, room: Room, super_segments: usize) -> Result<u32, Hold> {
    let mss = u32::from(sw.mss);
    let largest = if super_segments == 0 { mss } else { super_segments.min(LARGEST_SUPER_SEGMENT) as u32 / mss * mss };
    let fit = unsent.min(window);
    if fit > room.congestion && room.congestion < mss {
        return Err(Hold::Congestion);
    }
    let len = fit.min(room.congestion).min(largest.max(mss));
    if len < unsent || len >= mss {
        // There is more than this, or a full segment: only whole segments leave early.
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
    if unsent > 0 && !sw.fin_queued {
        small_may_leave(sw, room.push)?;
    }
    Ok(len)
}

/// Less than a segment fits although there is more: the sender's silly-window rule (RFC 9293 section 3.8.6.2.1, case 3).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.2.1
//# A TCP implementation MUST include a SWS avoidance algorithm in the sender (MUST-38).
#[cold]
fn silly_window(sw: &SendWindow, len: u32, window: u32, room: Room) -> Result<u32, Hold> {
    let window_limits = window < room.congestion;
    if len > 0 && (room.push || window_limits && len >= sw.max_wnd / 2) {
        Ok(len)
    } else if window_limits {
        Err(Hold::Window)
    } else {
        Err(Hold::Congestion)
    }
}

/// May a segment leave that is not full: the cork, and Nagle's rule as modified by Minshall (it waits only while another
/// such segment is unacknowledged).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//# When an application issues a series of SEND calls without setting the PUSH flag, the TCP implementation MAY
//# aggregate the data internally without sending it (MAY-16).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.4
//# A TCP implementation SHOULD implement the Nagle algorithm to coalesce short segments (SHLD-7).
#[inline]
fn small_may_leave(sw: &SendWindow, push: bool) -> Result<(), Hold> {
    if push {
        Ok(())
    } else if sw.hold.holds() {
        Err(Hold::Cork)
    } else if sw.no_delay || sw.small_end.le(sw.una) {
        Ok(())
    } else {
        Err(Hold::Nagle)
    }
}

/// One timer guards whatever is under way: retransmission while anything is unacknowledged, else the probe of a closed
/// window, else the end of a cork.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//# If PUSH flags are not implemented, then the sending TCP peer: (1) MUST NOT buffer data indefinitely (MUST-60),
#[inline]
fn set_timer_after_sending(sw: &mut SendWindow, rq: &RetransmitQueue, hold: Hold, out: &mut Outbox<'_>, now: Time) {
    if sw.flight() > 0 {
        if !sw.timer_kind.guards_flight() {
            sw.guard_flight(out.config, now);
        }
    } else if rq.len > 0 || sw.fin_queued && !sw.fin_sent {
        if sw.timer_kind == Timer::Off {
            // What has waited until now was acknowledged: the user time-out begins here.
            sw.progress = Tick::of(now);
        }
        match hold {
            // The stack continues a starved connection with `TransmitReady`; nobody's answer is awaited.
            Hold::Starved if sw.timer_kind == Timer::Persist => sw.stop_timer(),
            // A device that never takes anything again must not hold text for ever: see `user_timeout`.
            Hold::Starved if sw.timer_kind == Timer::Off => sw.set_timer(Timer::Cork, sw.rtt.deadline(now)),
            Hold::Starved => {}
            // Its own deadline wakes it.
            Hold::Paced if sw.timer_kind == Timer::Persist => sw.stop_timer(),
            Hold::Paced => {}
            // No sooner than what is sent would be sent again, as in Linux.
            Hold::Cork if sw.timer_kind != Timer::Cork => {
                sw.set_timer(Timer::Cork, sw.rtt.deadline(now).max(now + out.config.cork_timeout));
            }
            Hold::Cork => {}
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
            //# The transmitting host SHOULD send the first zero-window probe when a zero window has existed for the
            //# retransmission timeout period (SHLD-29)
            _ if sw.timer_kind != Timer::Persist => sw.set_timer(Timer::Persist, sw.rtt.deadline(now)),
            _ => {}
        }
    }
    sw.arm(out);
}

/// Octets of options beside the SACK blocks at most (timestamps, kind and length, padding), and of one block.
const SACK_BESIDE: usize = 16;
const SACK_BLOCK: usize = 8;

/// A segment without text, at SND.NXT.
pub(crate) fn pure_ack(sw: &SendWindow, ho: &mut HeaderOut, out: &mut Outbox<'_>, now: Time) {
    acknowledge_at(sw.nxt, None, ho, out, now);
}

/// The same, with our user time-out.
#[cold]
pub(crate) fn tell_user_timeout(
    sw: &SendWindow,
    user_timeout: UserTimeout,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
) {
    acknowledge_at(sw.nxt, Some(user_timeout), ho, out, now);
}

/// A segment without text at an old sequence number: the peer must answer with what it expects and its window.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//# An implementation SHOULD send a keep-alive segment with no data (SHLD-12);
pub(crate) fn probe(sw: &SendWindow, ho: &mut HeaderOut, out: &mut Outbox<'_>, now: Time) {
    acknowledge_at(sw.una + u32::MAX, None, ho, out, now);
}

#[inline]
fn acknowledge_at(
    seq: SeqNumber,
    user_timeout: Option<UserTimeout>,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
) {
    let mut options = usual_options(ho, now);
    if let Some(blocks) = &ho.sack {
        options.sack = **blocks;
        // On a link with a very small MTU not even an acknowledgement has room for all of them.
        let room = usize::from(ho.announce_mss).saturating_sub(SACK_BESIDE);
        if room < SackBlocks::CAPACITY * SACK_BLOCK {
            options.sack.truncate(room / SACK_BLOCK);
        }
        out.count(Counter::SacksOut, 1);
        ho.drop_dsack();
    }
    let flags = ACK | ho.marks.echo();
    let draft =
        Draft { seq, len: 0, flags, options, window: ho.window_field(), segment_size: 0, urgent: 0, class: NOT_ECT };
    let sent = if ho.ecn.is_some() || user_timeout.is_some() {
        let rare = RareOptions { ecn: ho.ecn_option(out.config), user_timeout, ..RareOptions::NONE };
        emit_rare(ho, out, draft, &rare, |_, _| Sum::zero())
    } else {
        emit(ho, out, draft, |_, _| Sum::zero())
    };
    if sent {
        out.count(Counter::PureAcksOut, 1);
    }
}

/// Our SYN, or SYN-ACK once the peer's SYN is known, with `rare` options.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//# TCP endpoints MUST implement both sending and receiving the MSS Option (MUST-14).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//# TCP implementations SHOULD send an MSS Option in every SYN segment when its receive MSS differs from the default 536
//# for IPv4 or 1220 for IPv6 (SHLD-5),
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//# and MAY send it always (MAY-3).
pub(crate) fn syn(sw: &SendWindow, rare: &RareOptions, ho: &mut HeaderOut, out: &mut Outbox<'_>, now: Time) {
    if sw.state != State::SynSent {
        // Of a connection that is open early the SYN no longer counts in SND.UNA.
        let iss = if sw.state == State::SynReceived { sw.una } else { sw.una + u32::MAX };
        return syn_ack(iss, sw.sack, rare, ho, out, now);
    }
    let options = syn_options(ho, out.config, now);
    emit_syn(sw.una, TcpFlags::SYN, options, rare, ho, out);
}

fn syn_options(ho: &mut HeaderOut, config: &Config, now: Time) -> Options {
    Options {
        mss: Some(ho.announce_mss),
        //= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
        //# This option is an offer, not a promise; both sides MUST send Window Scale options in their <SYN> segments to
        //# enable window scaling in either direction.
        //= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
        //# The Window Scale option MUST be sent with shift.cnt = R, where R is the value that the TCP would like to use
        //# for its receive window.
        window_scale: config.window_scaling.then(|| config.window_shift()),
        sack_permitted: config.sack,
        timestamps: config.timestamps.then(|| Timestamps { value: ho.clock(now), echo: 0 }),
        sack: SackBlocks::EMPTY,
    }
}

/// Our SYN with a Fast Open option and `len` octets of text, for the first time. False if there is no buffer.
pub(crate) fn fast_syn(
    sw: &SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    (option, len): (Option<FastOpen>, u32),
    out: &mut Outbox<'_>,
    now: Time,
) -> bool {
    let options = syn_options(ho, out.config, now);
    let flags = TcpFlags::SYN | ho.marks.echo();
    let window = (ho.edge - ho.nxt).clamp(0, i32::from(u16::MAX)) as u16;
    let draft = Draft { seq: sw.una, len, flags, options, window, segment_size: 0, urgent: 0, class: NOT_ECT };
    let rare = RareOptions { fast_open: option, ..RareOptions::NONE };
    let sent = emit_rare(ho, out, draft, &rare, |dst, sum| rq.copy_unsent(dst, sum));
    if sent {
        out.count(Counter::TextBytesOut, u64::from(len));
    }
    sent
}

/// Our SYN-ACK: an option appears only if the peer offered it (RFC 7323 sections 2.2 and 3.2, RFC 2018 section 2).
pub(crate) fn syn_ack(
    iss: SeqNumber,
    sack: bool,
    rare: &RareOptions,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
) {
    let options = Options {
        mss: Some(ho.announce_mss),
        window_scale: ho.scales().then(|| out.config.window_shift()),
        sack_permitted: sack,
        timestamps: ho.timestamps().then(|| Timestamps { value: ho.clock(now), echo: ho.ts_recent }),
        sack: SackBlocks::EMPTY,
    };
    if emit_syn(iss, TcpFlags::SYN.union(ACK), options, rare, ho, out) {
        out.count(Counter::SynAcksOut, 1);
    }
}

fn emit_syn(
    seq: SeqNumber,
    flags: TcpFlags,
    options: Options,
    rare: &RareOptions,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
) -> bool {
    let flags = flags | ho.marks.echo();
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
    //# The window field in a segment where the SYN bit is set (i.e., a <SYN> or <SYN,ACK>) MUST NOT be scaled.
    let window = (ho.edge - ho.nxt).clamp(0, i32::from(u16::MAX)) as u16;
    let draft = Draft { seq, len: 0, flags, options, window, segment_size: 0, urgent: 0, class: NOT_ECT };
    emit_rare(ho, out, draft, rare, |_, _| Sum::zero())
}

/// A reset that the peer must accept: it continues our sequence numbers.
pub(crate) fn reset(sw: &SendWindow, ho: &mut HeaderOut, out: &mut Outbox<'_>, now: Time) {
    let options = usual_options(ho, now);
    let flags = TcpFlags::RST.union(ACK);
    let draft = Draft { seq: sw.nxt, len: 0, flags, options, window: 0, segment_size: 0, urgent: 0, class: NOT_ECT };
    if emit(ho, out, draft, |_, _| Sum::zero()) {
        out.count(Counter::ResetsOut, 1);
    }
}

/// A reset in answer to an unacceptable acknowledgement (RFC 9293 section 3.10.7.4): at its ACK number, without ACK.
pub(crate) fn reset_at(seq: SeqNumber, ho: &mut HeaderOut, out: &mut Outbox<'_>) {
    let draft = Draft {
        seq,
        len: 0,
        flags: TcpFlags::RST,
        options: Options::NONE,
        window: 0,
        segment_size: 0,
        urgent: 0,
        class: NOT_ECT,
    };
    if emit(ho, out, draft, |_, _| Sum::zero()) {
        out.count(Counter::ResetsOut, 1);
    }
}

impl HeaderOut {
    /// Our timestamp clock: milliseconds, with the connection's own offset (RFC 7323 section 5.4).
    //= https://www.rfc-editor.org/rfc/rfc7323#section-4.1
    //# Values of this clock MUST be at least approximately proportional to real time, in order to measure actual RTT.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-5.4
    //# It MUST tick at least once for each 2^31 bytes sent.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-5.4
    //# The recycling time of the timestamp clock MUST be greater than MSL seconds.
    #[inline]
    pub(crate) fn clock(&mut self, now: Time) -> u32 {
        let clock = (now.as_millis() as u32).wrapping_add(self.ts_offset);
        if self.ts_sent.wrapping_sub(clock) > SKEW_MS {
            self.ts_sent = clock;
        }
        self.ts_sent
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.2
//# and MUST NOT be sent in other segments (MUST-65).
//= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
//# When the ACK bit is set in an outgoing segment, the sender MUST echo a recently received TSval sent by the remote
//# TCP in the TSval field of a Timestamps option.
//= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
//# The exact rules on which TSval MUST be echoed are given in Section 4.3.
//= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
//# Once TSopt has been successfully negotiated, that is both <SYN> and <SYN,ACK> contain TSopt, the TSopt MUST be sent
//# in every non-<RST> segment for the duration of the connection, and SHOULD be sent in an <RST> segment (see Section
//# 5.2 for details).
#[inline]
fn usual_options(ho: &mut HeaderOut, now: Time) -> Options {
    let mut options = Options::NONE;
    if ho.timestamps() {
        options.timestamps = Some(Timestamps { value: ho.clock(now), echo: ho.ts_recent });
    }
    options
}

#[inline]
fn text_draft(sw: &SendWindow, ho: &mut HeaderOut, seq: SeqNumber, len: u32, flags: TcpFlags, now: Time) -> Draft {
    let (flags, urgent) = if sw.shaping.is_some() { urgency(sw, seq, flags) } else { (flags, 0) };
    Draft {
        seq,
        len,
        flags: flags | ho.marks.echo(),
        options: usual_options(ho, now),
        window: ho.window_field(),
        segment_size: if len > u32::from(sw.mss) { sw.mss } else { 0 },
        urgent,
        class: NOT_ECT,
    }
}

/// While urgent text is not acknowledged, every segment before its end points at the octet behind it (RFC 9293 section
/// 3.8.5, RFC 6093), or as far as a pointer reaches.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
//# The urgent pointer MUST point to the sequence number of the octet following the urgent data (MUST-62).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
//# A TCP implementation MUST support a sequence of urgent data of any length (MUST-31) [19].
#[cold]
fn urgency(sw: &SendWindow, seq: SeqNumber, flags: TcpFlags) -> (TcpFlags, u16) {
    match sw.shaping.as_ref().and_then(|shaping| shaping.urgent) {
        Some(end) if end.gt(seq) => (flags.union(TcpFlags::URG), (end - seq).min(i32::from(u16::MAX)) as u16),
        _ => (flags, 0),
    }
}

/// Emit a segment with text, which takes a credit.
#[inline]
fn emit_text(
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    draft: Draft,
    fill: impl FnOnce(&mut [u8], bool) -> Sum,
) -> bool {
    let charged = draft.len > 0;
    if !emit(ho, out, draft, fill) {
        return false;
    }
    if charged {
        out.credit -= 1;
    }
    true
}

/// Make the segment and put it into the outbox. `fill` writes the text, and sums it if asked to. False if there is no
/// buffer.
#[inline]
fn emit(ho: &mut HeaderOut, out: &mut Outbox<'_>, draft: Draft, fill: impl FnOnce(&mut [u8], bool) -> Sum) -> bool {
    make(ho, out, draft, None, fill)
}

/// [`emit`] with options that few segments carry; those that find no room are left out.
#[cold]
fn emit_rare(
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    draft: Draft,
    rare: &RareOptions,
    fill: impl FnOnce(&mut [u8], bool) -> Sum,
) -> bool {
    let fixed = HEADER_LEN + draft.options.emitted_len();
    // SACK blocks are worth more than counters.
    let fits = fixed + rare.emitted_len() <= MAX_HEADER_LEN;
    make(ho, out, draft, fits.then_some(rare), fill)
}

/// Leave the checksum to the device: the field holds what it cannot know.
fn leave_checksum(buf: &mut PktBuf, pseudo: Sum) {
    buf[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
    buf.meta_mut().checksum = Checksum::Partial { start: 0, offset: CHECKSUM_OFFSET as u16 };
}

/// The segment itself.
#[inline(always)]
fn make(
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    draft: Draft,
    rare: Option<&RareOptions>,
    fill: impl FnOnce(&mut [u8], bool) -> Sum,
) -> bool {
    let Some(mut buf) = PktBuf::alloc(draft.len as usize) else {
        out.starved = true;
        return false;
    };
    let left_to_device = draft.segment_size > 0 || out.config.tx_checksum_offload;
    let text = fill(buf.append(draft.len as usize), !left_to_device);
    let header = Header {
        src_port: ho.local_port,
        dst_port: ho.remote_port,
        seq: draft.seq,
        ack: if draft.flags.contains(ACK) { ho.nxt } else { SeqNumber(0) },
        flags: draft.flags,
        window: draft.window,
        urgent: draft.urgent,
        header_len: 0,
        options: draft.options,
    };
    let len = rare.map_or_else(|| header.emitted_len(), |rare| header.emitted_len_with(rare));
    let pseudo = Sum::zero().add_u16(ho.pseudo).add_u16((len + draft.len as usize) as u16);
    let front = buf.push_front(len);
    match rare {
        None if !left_to_device => {
            // The header's length is even, so the text's sum joins without a byte swap.
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
            //# The sender MUST generate it (MUST-2)
            header.emit_sealed(out.config.option_order, pseudo.add(text), front);
        }
        None => {
            header.emit_ordered(out.config.option_order, front);
            leave_checksum(&mut buf, pseudo);
        }
        Some(rare) => {
            header.emit_with(out.config.option_order, rare, front);
            if left_to_device {
                leave_checksum(&mut buf, pseudo);
            } else {
                let sum = pseudo.add(pktbuf::sum(front)).add(text).finish();
                front[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.to_be_bytes());
            }
        }
    }
    let meta = buf.meta_mut();
    meta.flow_hash = (ho.flow_hash != 0).then_some(ho.flow_hash);
    meta.segment_size = draft.segment_size;
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
    //# TCP implementations SHOULD pass the current Differentiated Services field value without change to the IP layer,
    //# when it sends segments on the connection (SHLD-22).
    meta.traffic_class = draft.class | ho.class();
    meta.hop_limit = ho.hop_limit;
    if draft.flags.contains(ACK) {
        if draft.window == 0 && ho.told_edge != ho.acked && !draft.flags.contains(TcpFlags::RST) {
            out.count(Counter::ZeroWindowsOut, 1);
        }
        ho.acked = ho.nxt;
        ho.told_edge = ho.edge;
    }
    ho.segments_out = ho.segments_out.wrapping_add(1);
    out.segments.push(buf);
    out.count(Counter::SegmentsOut, 1);
    true
}
