//! The segments by which an undisturbed connection changes its state: the acknowledgement that completes a listener's
//! handshake, the peer's FIN, the acknowledgement of ours. A connection has four or five of them, and many connections
//! have hardly any others.
//!
//! As in `predicted.rs`, [`is_predicted`] compares first, and nothing has changed if a comparison fails: the segment begins
//! at RCV.NXT, has ACK and perhaps FIN as its control bits, timestamps as its option and no data, and acknowledges
//! something in flight or finds nothing in flight; no loss is being repaired, no segment waits out of order, and there is
//! no ECN. Then each question of `otherwise.rs` has one answer, and [`arrives`] does in that order what remains. It holds
//! no rule of its own: the steps are those of the other files. Where one owner holds the connection, they are taken
//! before the general code. What may never happen: a difference to `otherwise.rs`; `tests/lane.rs` runs both on the same
//! inputs.

use observe::{Counter, Time};
use wire::tcp::{Header, TIMESTAMPED_LEN, TcpFlags};

use super::acknowledgement::{acknowledge, note_answer, update_window};
use super::otherwise::{acknowledge_fin, establish_passively, schedule_ack_of_fin, transmit};
use super::sequence;
use crate::access::PcbMut;
use crate::config::Config;
use crate::outbox::{Outbox, Readiness};
use crate::pcb::{Ack, Pcb, RecoveryMode};
use crate::segment::Segment;
use crate::state::{Cause, State};

/// Whether the segment is a predicted one.
#[inline(always)]
pub(super) fn is_predicted(segment: &Segment, parts: &PcbMut<'_>, config: &Config) -> bool {
    let Some(timestamps) = segment.header.options.timestamps else { return false };
    let (rw, sw, header) = (&*parts.receive_window, &*parts.send_window, &segment.header);
    let (flight, advance) = (sw.flight(), (header.ack - sw.una) as u32);
    let fin = header.flags.contains(TcpFlags::FIN);
    let expected = match parts.header_in.state {
        State::Established | State::FinWait1 | State::FinWait2 => true,
        State::CloseWait | State::Closing | State::LastAck => !fin,
        // Our SYN alone is in flight.
        State::SynReceived => !fin && (advance, flight) == (1, 1) && parts.header_in.is_passive() && !parts.is_early(),
        _ => false,
    };
    expected
        && config.fast_lane
        && header.flags.difference(TcpFlags::FIN.union(TcpFlags::PSH)) == TcpFlags::ACK
        && usize::from(header.header_len) == TIMESTAMPED_LEN
        && segment.data.is_empty()
        && rw.timestamps()
        && header.seq == rw.nxt
        && timestamps.value.wrapping_sub(rw.ts_recent) as i32 >= 0
        && (if advance == 0 { flight == 0 } else { advance <= flight })
        && sw.mode == RecoveryMode::Open
        && parts.header_out.ecn.is_none()
        && !parts.reassembly.has_blocks()
}

/// Whether the segment is a predicted one, and the general code would hold all parts for it: in ESTABLISHED it takes all
/// but a FIN hold-set by hold-set.
#[inline(always)]
pub(super) fn changes_state(segment: &Segment, pcb: &mut Pcb, config: &Config) -> bool {
    let whole = pcb.header_in.state != State::Established || segment.header.flags.contains(TcpFlags::FIN);
    whole && segment.is_checked() && is_predicted(segment, &pcb.parts(), config)
}

/// Processes a predicted segment.
#[inline(never)]
pub(super) fn arrives(segment: &Segment, parts: PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    process(segment, parts, out, now);
}

/// [`arrives`], where it is the last step of the caller.
#[inline(always)]
pub(super) fn process(segment: &Segment, mut parts: PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let header = &segment.header;
    let echo = sequence::new_ts_recent(parts.receive_window, header);
    // Fifth: the ACK field.
    if parts.header_in.state == State::SynReceived {
        establish_passively(&mut parts, header, out, now);
    }
    acknowledged(header, &mut parts, out, now);
    if echo.is_some() {
        sequence::take_timestamp(parts.receive_window, header, now);
    }
    parts.header_out.ts_recent = echo.unwrap_or(parts.header_out.ts_recent);
    if parts.header_in.state == State::Closed {
        return;
    }
    // Eighth.
    let ack = if header.flags.contains(TcpFlags::FIN) { take_fin(&mut parts, out, now) } else { Ack::None };
    if ack == Ack::Now || parts.send_window.has_work(parts.retransmit_queue) {
        transmit(&mut parts, ack, out, now);
    }
}

/// An acknowledgement of a part of what is in flight, with its window.
#[inline(always)]
fn acknowledged(header: &Header, parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let (sw, rq) = (&mut *parts.send_window, &mut *parts.retransmit_queue);
    let advance = (header.ack - sw.una) as u32;
    if advance > 0 {
        acknowledge(sw, rq, header, (advance, 0), out, now);
    }
    update_window(sw, header, advance, out);
    note_answer(sw, rq, advance, out);
    if sw.fin_sent && header.ack == sw.nxt {
        acknowledge_fin(parts, out, now);
    }
}

/// The FIN at RCV.NXT, without data: `data::accept` and `otherwise::take_fin` in one. Its acknowledgement carries what the
/// first of the two would have advertised, and more.
#[inline(always)]
fn take_fin(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> Ack {
    out.count(Counter::FastPathIn, 1);
    let rw = &mut *parts.receive_window;
    rw.note_fin(true);
    rw.grow(out.config, out.scarcity, now);
    rw.open_window();
    rw.expect_close(out.config);
    let _ = rw.schedule_ack(false, out, now);
    rw.take_fin();
    // The stream has ended: nothing more can fill the window.
    if rw.edge.lt(rw.nxt) {
        rw.edge = rw.nxt;
    }
    parts.reassembly.give_up(out);
    let ack = schedule_ack_of_fin(parts, out, now);
    let rw = &mut *parts.receive_window;
    if ack == Ack::Now {
        rw.acked(rw.nxt, rw.edge);
    }
    parts.header_out.advance(rw.nxt, rw.edge, rw.ts_recent, rw.delay.is_quick());
    out.ready |= Readiness::READABLE | Readiness::PEER_CLOSED;
    match parts.header_in.state {
        State::Established => parts.leave(State::Established, Cause::Fin, out, now),
        State::FinWait2 => parts.leave(State::FinWait2, Cause::Fin, out, now),
        _ => parts.enter(Cause::Fin, out, now),
    }
    ack
}
