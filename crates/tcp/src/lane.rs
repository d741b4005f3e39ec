//! The fast lane: the segments of an established connection on which nothing rare is going on.
//!
//! Nearly every segment of a connection is one of a kind: data in order, an acknowledgement of what is in flight, or
//! new data that the windows have room for, with the timestamp option alone. The general code (`event`, `output`) decides
//! for each of them about retransmission, pacing, records, urgent data, ECN signals, super-segments, FIN and the options
//! of each header. The lane compares first, and then does in a straight line what the general code would do.
//!
//! # What may never happen
//! A difference. A segment has the same effects, byte by byte and counter by counter, whether the lane takes it or not:
//! whatever a condition here excludes goes through the general code, and `tests/lane.rs` runs both on the same inputs.
//! So the lane holds no rule of its own; a rule that changes in the general code changes here, and the test finds it if
//! it does not. [`Config::fast_lane`](crate::Config::fast_lane) switches it off.
//!
//! # What is asked, and where
//! Whether anything rare is going on is one byte for each side of the connection (`pcb/rare.rs`), which the code that
//! changes it keeps exact. The lane compares these bytes with zero: a loss under repair, a close, limits of the user, an
//! urgent mark, a state other than ESTABLISHED and some more cost one comparison together. What depends on the segment or
//! on the moment is compared itself: sequence numbers, the windows, the queue of segments out of order, memory pressure.
//!
//! # Receiving
//! The header of nearly every segment has the timestamp option alone. Two comparisons of bytes recognise it
//! ([`Segment::timestamped_header`](crate::Segment::timestamped_header)), and its fields are read straight to the place
//! where the event finds them. Where one owner holds all parts of the connection, `event/segment_arrives/predicted.rs`
//! predicts the segment with a few comparisons; what they do not hold for, and every segment where the parts have locks
//! of their own, takes the other files there. The user's call has a lane as well (`event/receive.rs`): usually what has
//! arrived is one buffer. A handler has no call: where it takes data as it arrives, the data does not pass through the receive
//! queue ([`SegmentArrives::hand_on`](crate::SegmentArrives::hand_on)). The window is opened as by the arrival and then as by the
//! call, because the edge that the arrival advertises counts the data as unread.
//!
//! # Sending
//! [`transmit`] is `output::transmit` for the events that nearly all segments come from: a segment arrives, the user sends
//! or closes. The header of each segment is four words computed in registers from the header-out part, summed as they are
//! stored. There are five kinds:
//! * [`transmit_piece`]: the user's data on a connection at rest. Nothing is queued and nothing in flight, so there is no
//!   cursor to move, no Nagle rule to ask and no list of times to search. Where one owner holds all parts,
//!   `event/send/alone.rs` does it without an outbox: the segment is the result.
//! * [`send_bytes`]: the same for bytes of the user's, mostly the answer of a handler in the event in which the request has
//!   arrived. One pass over them fills the buffer that keeps them until they are acknowledged, and the segment. That buffer
//!   is the one that the acknowledgement in the same event has freed ([`LocalEffects::spare`](crate::LocalEffects::spare)).
//! * `send`: all new data that fits into both windows leaves in one loop, as whole segments and then the tail.
//! * [`acknowledge`]: no data, also for a SYN-ACK and a FIN.
//! * `send_fin`: the FIN behind all data.
//!
//! What does not fit is left to the general code, in the state in which that would have come to it.

use observe::{Counter, Counters, Time};
use pktbuf::{PktBuf, copy_twice_and_sum};
use wire::SeqNumber;
use wire::checksum::Sum;
use wire::tcp::{Header, Options, TIMESTAMPED_LEN, TcpFlags, Timestamps};

use crate::config::Config;
use crate::ecn_state::NOT_ECT;
use crate::error::Error;
use crate::outbox::Outbox;
use crate::output::{self, Advertised};
use crate::pcb::{Ack, HeaderOut, Pcb, Push, RetransmitQueue, SendWindow};
use crate::tick::Tick;

/// Sends all that may be sent now, and an acknowledgement if `ack` requests one: `output::transmit`, through the lane if
/// that is possible.
#[inline(always)]
pub(crate) fn transmit(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    ack: Ack,
) -> Advertised {
    let unadvertised = ho.has_unadvertised();
    if ack == Ack::Pure {
        return output::transmit(sw, rq, ho, out, now, ack);
    }
    let before = ho.segments_out;
    if sw.has_work(rq) {
        send(sw, rq, ho, out, now);
    }
    if ack == Ack::Now && unadvertised && ho.segments_out == before {
        acknowledge(sw, ho, out, now);
    }
    (ho.segments_out != before && (unadvertised || ho.take_quick())).then_some((ho.acked, ho.advertised_edge))
}

/// [`transmit`] after the user has queued `len` bytes, at least 1, in one piece, and pushed them. Mostly a request or
/// an answer: the connection was at rest, all of the piece fits, and it leaves as the one segment that is in flight then.
#[inline(never)]
pub(crate) fn transmit_piece(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    len: u32,
) -> Advertised {
    let window = ho.window_field();
    let fits = rq.len == len && fits_alone(sw, len) && out.credit > 0 && window != 0;
    if !(fits && is_plain(ho, out.config) & (out.prefer_super_segments == 0)) {
        return transmit(sw, rq, ho, out, now, Ack::None);
    }
    begin_alone(sw, out.config, now);
    let Some(mut buffer) = PktBuf::alloc_around(out.region, TIMESTAMPED_LEN, len as usize) else {
        return no_room(sw, rq, ho, out, now);
    };
    let sum = buffer.get_mut(TIMESTAMPED_LEN..).map_or(Sum::zero(), |data| rq.copy_first(data));
    let (segment, advertised) = piece(sw, rq, ho, (buffer, sum), window, (out.config, out.counters), now);
    put_alone(segment, sw, out);
    advertised
}

/// There was no buffer for a piece. As in the general code the clock is read all the same.
#[cold]
fn no_room(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
) -> Advertised {
    ho.clock(now);
    out.tx_blocked = true;
    output::no_room(sw, rq, sw.nxt, out, now);
    None
}

/// The segment of a piece goes into the outbox.
#[inline(always)]
fn put_alone(segment: PktBuf, sw: &mut SendWindow, out: &mut Outbox<'_>) {
    out.credit -= 1;
    out.segments.push(segment);
    sw.arm(out);
}

/// Whether `len` bytes may leave at once as one segment, if nothing else is queued.
#[inline(always)]
pub(crate) fn fits_alone(sw: &SendWindow, len: u32) -> bool {
    sw.is_usual() && !sw.hold.cork() && len <= u32::from(sw.mss).min(sw.wnd)
}

/// A piece that fits alone is about to leave.
#[inline(always)]
pub(crate) fn begin_alone(sw: &mut SendWindow, config: &Config, now: Time) {
    output::restart_after_idle(sw, config, now);
    sw.cwnd_limited = false;
}

/// Makes the segment of all data in the queue, which is one piece and fits alone, in a buffer that has its size and the data with
/// this sum.
#[inline(always)]
pub(crate) fn piece(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    (buffer, sum): (PktBuf, Sum),
    window: u16,
    (config, counters): (&Config, &Counters),
    now: Time,
) -> (PktBuf, Advertised) {
    let unadvertised = ho.has_unadvertised();
    let (from, len) = (sw.nxt, rq.len);
    debug_assert!(len <= sw.congestion.cwnd(), "the window is at least one segment");
    let flags = TcpFlags::ACK.union(TcpFlags::PSH);
    let plain = PlainSegment { seq: from, len, flags, window, class: ho.marks.class() };
    let timestamps = Timestamps { value: ho.clock(now), echo: ho.ts_recent };
    // Not filled by a closure here: as a function of its own that would be called.
    let segment = make(buffer, ho, plain, |_| sum, timestamps);
    output::count_out(ho, counters);
    note_data_segment(sw, len);
    book(sw, 0, from, counters, now);
    rq.log.sent_alone(now.as_micros() as u32);
    if !sw.timer_kind.guards_flight() {
        sw.guard_flight(config, now);
    }
    (segment, (unadvertised || ho.take_quick()).then_some((ho.acked, ho.advertised_edge)))
}

/// The whole of a [`SendBytes`](crate::SendBytes) on a connection at rest, of which one owner holds all parts: [`transmit_piece`] of a buffer
/// that is filled while the segment is made. False: it is not, or the bytes are not one segment, and nothing has changed.
///
/// # Errors
/// [`Error::NoBuffer`], and nothing has changed.
#[inline(always)]
pub(crate) fn send_bytes(
    pcb: &mut Pcb,
    (data, leaving): (&[u8], usize),
    out: &mut Outbox<'_>,
    now: Time,
) -> Result<bool, Error> {
    let Pcb { receive_window: rw, send_window: sw, retransmit_queue: rq, header_out: ho, .. } = pcb;
    let len = data.len() as u32;
    let window = ho.window_field();
    let fits = rq.len == 0 && len > 0 && fits_alone(sw, len) && out.credit > 0 && window != 0;
    let plain = is_plain(ho, out.config) & (out.prefer_super_segments == 0);
    let room = !out.scarcity.is_severe() && sw.fits_easily(rq, data.len(), out.config);
    if !(fits && plain && room) {
        return Ok(false);
    }
    let mut kept = PktBuf::alloc_from(out.spare.take(), data.len(), leaving).ok_or(Error::NoBuffer)?;
    sw.hold.set_push(Push::Asked);
    begin_alone(sw, out.config, now);
    let Some(mut buffer) = PktBuf::alloc_around(out.region, TIMESTAMPED_LEN, data.len()) else {
        kept.copy_from_slice(data);
        out.memory += i64::from(rq.push_alone(kept));
        no_room(sw, rq, ho, out, now);
        return Ok(true);
    };
    let sum = buffer.get_mut(TIMESTAMPED_LEN..).map_or(Sum::zero(), |part| copy_twice_and_sum(&mut kept, part, data));
    out.memory += i64::from(rq.push_sent(kept));
    let (segment, advertised) = piece(sw, rq, ho, (buffer, sum), window, (out.config, out.counters), now);
    put_alone(segment, sw, out);
    if let Some(advertised) = advertised {
        rw.data_sent(advertised, out.config, now);
    }
    Ok(true)
}

/// Whether the header-out part makes plain headers: timestamps, no ECN signal, the checksum computed here.
#[inline(always)]
pub(crate) fn is_plain(ho: &HeaderOut, config: &Config) -> bool {
    config.fast_lane & ho.timestamps() & ho.marks.are_quiet() & !config.tx_checksum_offload
}

/// Sends new data: `output::send_data` without `push`.
#[inline(never)]
fn send(sw: &mut SendWindow, rq: &mut RetransmitQueue, ho: &mut HeaderOut, out: &mut Outbox<'_>, now: Time) {
    let plain = is_plain(ho, out.config) & (out.prefer_super_segments == 0);
    let window = ho.window_field();
    if !plain || !sw.is_usual() || window == 0 {
        if plain && window != 0 && sw.only_fin_waits(rq) {
            return send_fin(sw, rq, ho, out, now, window);
        }
        return output::send_data(sw, rq, ho, out, now, false);
    }
    output::restart_after_idle(sw, out.config, now);
    sw.cwnd_limited = false;
    let from = sw.nxt;
    let flight = sw.flight();
    let usable = ((sw.right_edge() - from).max(0) as u32).min(sw.congestion.cwnd().saturating_sub(flight));
    let mss = u32::from(sw.mss);
    let unsent = rq.len - flight;
    let one = unsent <= mss.min(usable) && out.credit > 0;
    let made = if one && (unsent == mss || output::small_may_leave(sw, false).is_ok()) {
        let pushed = sw.hold.is_pushed();
        if put_data(sw, rq, ho, out, LaneData { len: unsent, pushed, window }, now) { Made::All } else { Made::NoRoom }
    } else {
        burst(sw, rq, ho, out, (usable, window), now)
    };
    if sw.nxt != from {
        book(sw, flight, from, out.counters, now);
    }
    match made {
        Made::All => {}
        Made::Some => return output::send_rest(sw, rq, ho, out, now, from),
        Made::NoRoom => return output::no_room(sw, rq, from, out, now),
    }
    output::note_sent(sw, rq, from, out, now);
    if !sw.timer_kind.guards_flight() {
        sw.guard_flight(out.config, now);
    }
    sw.arm(out);
}

/// Sends the FIN behind all data, as the last of `output::send_data`.
#[inline(never)]
fn send_fin(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    window: u16,
) {
    output::restart_after_idle(sw, out.config, now);
    sw.cwnd_limited = false;
    let (from, flight) = (sw.nxt, sw.flight());
    let plain = PlainSegment { seq: from, len: 0, flags: TcpFlags::ACK.union(TcpFlags::FIN), window, class: NOT_ECT };
    if !put(ho, out, plain, |_| Sum::zero(), now) {
        return output::no_room(sw, rq, from, out, now);
    }
    sw.nxt += 1;
    sw.fin_sent = true;
    sw.small_end = sw.nxt;
    sw.data_segments_out = sw.data_segments_out.wrapping_add(1);
    book(sw, flight, from, out.counters, now);
    output::note_sent(sw, rq, from, out, now);
    if !sw.timer_kind.guards_flight() {
        sw.guard_flight(out.config, now);
    }
    sw.arm(out);
}

/// How much of the new data has been sent.
enum Made {
    /// All of it.
    All,
    /// What the windows, the credit and Nagle's rule allow.
    Some,
    /// There was no buffer.
    NoRoom,
}

/// New data as whole segments, and then the tail, as far as `usable` bytes.
#[inline(never)]
fn burst(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    (mut usable, window): (u32, u16),
    now: Time,
) -> Made {
    let (mss, mut unsent) = (u32::from(sw.mss), rq.len - sw.flight());
    // All at once, where they exceed the room that an outbox has of its own.
    out.segments.reserve((unsent.min(usable) / mss).min(out.credit) as usize);
    while unsent > 0 {
        let len = unsent.min(mss);
        // Of a partial segment Nagle's rule and the cork decide.
        let may_leave = len <= usable && out.credit > 0 && (len == mss || output::small_may_leave(sw, false).is_ok());
        if !may_leave {
            return Made::Some;
        }
        let pushed = len == unsent && sw.hold.is_pushed();
        if !put_data(sw, rq, ho, out, LaneData { len, pushed, window }, now) {
            return Made::NoRoom;
        }
        (unsent, usable) = (unsent - len, usable - len);
    }
    Made::All
}

/// Notes that new data, or the FIN, was sent from `from` on, with `flight` bytes in flight before it.
#[inline(always)]
fn book(sw: &mut SendWindow, flight: u32, from: SeqNumber, counters: &Counters, now: Time) {
    let (sent, tick) = ((sw.nxt - from) as u32, Tick::of(now));
    if flight == 0 {
        sw.progress = tick;
    }
    sw.last_sent = tick;
    counters.add(Counter::DataBytesOut, u64::from(sent - u32::from(sw.fin_sent)));
    if !sw.rtt.is_timing() {
        // The first of them is timed.
        sw.timed = from + sent.min(sw.mss.into());
        sw.rtt.start();
    }
}

/// A segment of new data.
struct LaneData {
    /// Bytes, at least 1 and at most the MSS.
    len: u32,
    pushed: bool,
    window: u16,
}

/// Makes a segment of the next unsent data. False: there is no buffer.
#[inline(always)]
fn put_data(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    LaneData { len, pushed, window }: LaneData,
    now: Time,
) -> bool {
    let flags = if pushed { TcpFlags::ACK.union(TcpFlags::PSH) } else { TcpFlags::ACK };
    let plain = PlainSegment { seq: sw.nxt, len, flags, window, class: ho.marks.class() };
    if !put(ho, out, plain, |data| rq.copy_unsent(data, true), now) {
        return false;
    }
    out.credit -= 1;
    note_data_segment(sw, len);
    true
}

/// A segment of `len` new bytes was made.
#[inline(always)]
fn note_data_segment(sw: &mut SendWindow, len: u32) {
    sw.nxt += len;
    sw.data_segments_out = sw.data_segments_out.wrapping_add(1);
    if len < sw.mss.into() {
        sw.small_end = sw.nxt;
    }
}

/// Sends an acknowledgement without data: `output::pure_ack`.
#[inline(never)]
pub(crate) fn acknowledge(sw: &SendWindow, ho: &mut HeaderOut, out: &mut Outbox<'_>, now: Time) {
    let window = ho.window_field();
    if !is_plain(ho, out.config) || ho.sack.is_some() || ho.ecn.is_some() || window == 0 {
        return output::pure_ack(sw, ho, out, now);
    }
    let plain = PlainSegment { seq: sw.nxt, len: 0, flags: TcpFlags::ACK, window, class: ho.marks.pure_class() };
    if put(ho, out, plain, |_| Sum::zero(), now) {
        out.count(Counter::PureAcksOut, 1);
    }
}

/// A segment with ACK and timestamps.
struct PlainSegment {
    seq: SeqNumber,
    /// Bytes of data.
    len: u32,
    flags: TcpFlags,
    /// Not 0.
    window: u16,
    /// ECN field of the IP header.
    class: u8,
}

/// Makes the segment, whose data `fill` writes and sums, and puts it into the outbox. False: there is no buffer.
#[inline(always)]
fn put(
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    plain: PlainSegment,
    fill: impl FnOnce(&mut [u8]) -> Sum,
    now: Time,
) -> bool {
    // As in the general code the clock is read even if there is no buffer.
    let timestamps = Timestamps { value: ho.clock(now), echo: ho.ts_recent };
    let Some(buffer) = PktBuf::alloc_around(out.region, TIMESTAMPED_LEN, plain.len as usize) else {
        out.tx_blocked = true;
        return false;
    };
    let segment = make(buffer, ho, plain, fill, timestamps);
    output::leave(segment, ho, out);
    true
}

/// Makes the segment in a buffer that has its size.
#[inline(always)]
fn make(
    mut buffer: PktBuf,
    ho: &mut HeaderOut,
    plain: PlainSegment,
    fill: impl FnOnce(&mut [u8]) -> Sum,
    timestamps: Timestamps,
) -> PktBuf {
    let PlainSegment { seq, len, flags, window, class } = plain;
    let header = Header {
        src_port: ho.local_port,
        dst_port: ho.remote_port,
        seq,
        ack: ho.nxt,
        flags,
        window,
        urgent: 0,
        header_len: 0,
        options: Options::NONE,
    };
    let pseudo = Sum::zero().add_u16(ho.pseudo).add_u16((TIMESTAMPED_LEN as u32 + len) as u16);
    if let Some((front, data)) = buffer.split_first_chunk_mut() {
        *front = header.timestamped(timestamps, pseudo.add(fill(data)));
    }
    ho.describe(buffer.meta_mut(), class);
    ho.acked = ho.nxt;
    ho.advertised_edge = ho.edge;
    buffer
}
