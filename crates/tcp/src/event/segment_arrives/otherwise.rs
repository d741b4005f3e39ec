//! SEGMENT ARRIVES in every state after SYN-SENT (RFC 9293 section 3.10.7.4): the order of the steps, and those that
//! change the state. All parts are held.

use observe::{Counter, DropReason, Time};
use wire::tcp::{Header, TcpFlags};

use super::super::early;
use super::acknowledgement::{self, AckCheck};
use super::answers::{Disposition, answer, challenge, refuse};
use super::{data, our_syn, sequence};
use crate::access::{PcbAccess, PcbMut};
use crate::config::Config;
use crate::ecn;
use crate::error::Error;
use crate::lane;
use crate::outbox::{Outbox, Readiness, TableChange};
use crate::output::{self, Advertised};
use crate::pcb::{Ack, ReceiveWindow};
use crate::segment::Segment;
use crate::state::{Cause, State};
use crate::user_timeout;

pub(super) fn arrives(
    arrival: &mut Option<Segment>,
    mut parts: PcbMut<'_>,
    out: &mut Outbox<'_>,
    now: Time,
) -> Disposition {
    let Some(segment) = arrival else { return Disposition::Done };
    match parts.header_in.state {
        State::TimeWait if reopens(segment, &parts, out.config) => return recycle(arrival, parts, out, now),
        State::SynReceived if repeats_syn(segment, &parts) => {
            if !segment.header.flags.contains(TcpFlags::ACK) {
                our_syn::syn_again(&mut parts, out, now);
                return Disposition::Done;
            }
            // A simultaneous open: the SYN was processed before, the ACK counts.
            segment.pass_syn();
        }
        _ => {}
    }
    // First.
    let echo = match parts.receive_side(|rw, ra| sequence::check(rw, ra, segment, out.config, now)) {
        Ok(echo) => echo,
        Err(refused) => return refused_segment(refused, segment, &mut parts, out, now),
    };
    // Second.
    if segment.header.flags.contains(TcpFlags::RST) {
        return reset(segment, parts, out, now);
    }
    // Fourth.
    //= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
    //# If the SYN bit is set, irrespective of the sequence number, TCP MUST send an ACK (also referred to as challenge
    //# ACK) to the remote peer:
    //= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
    //# After sending the acknowledgment, TCP MUST drop the unacceptable segment and stop processing further.
    if segment.header.flags.contains(TcpFlags::SYN) {
        challenge(&mut parts, out, now);
        return Disposition::Dropped(out.dropped(DropReason::TcpUnexpectedSyn));
    }
    // Fifth.
    if !segment.header.flags.contains(TcpFlags::ACK) {
        return Disposition::Dropped(out.dropped(DropReason::TcpNoAck));
    }
    let (state, before) = (parts.header_in.state, ecn::CountersBefore::of(&parts));
    if let Err(disposition) = acknowledge(segment, &mut parts, out, now) {
        return disposition;
    }
    sequence::take_timestamp(parts.receive_window, &segment.header, now);
    parts.header_out.ts_recent = echo.unwrap_or(parts.header_out.ts_recent);
    // The segment that completes a simultaneous open is a SYN, whose bits do not count.
    let simultaneous = state == State::SynReceived && !parts.header_in.is_passive();
    let marked = match before.filter(|_| !simultaneous) {
        Some(before) => ecn::arrives(segment, before, &mut parts, out, now),
        None => ecn::EcnEcho::default(),
    };
    user_timeout::receive(segment, &mut parts, out, now);
    let least = match () {
        () if simultaneous => deliver_syn_data(&mut parts, out, now),
        () if marked.now => Ack::Now,
        () if marked.pure => Ack::Pure,
        () => Ack::None,
    };
    // Sixth, seventh, eighth.
    urgent(segment, &mut parts, out);
    after_acknowledgement(arrival, least, parts, out, now)
}

/// Delivers data of a SYN that arrived in SYN-SENT: the connection is established now.
fn deliver_syn_data(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> Ack {
    if !parts.header_in.state.accepts_data() {
        return Ack::None;
    }
    if parts.receive_window.urgent_valid {
        out.ready |= Readiness::URGENT;
    }
    let Some(snapshot) = parts.receive_side(|rw, ra| data::deliver_syn_data(rw, ra, out, now)) else {
        return Ack::None;
    };
    parts.header_out.merge(snapshot);
    take_fin(parts, false, out, now).max(Ack::Now)
}

/// Sixth: URG.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
//# However, TCP implementations MUST still include support for the urgent mechanism (MUST-30).
pub(super) fn urgent(segment: &Segment, parts: &mut PcbMut<'_>, out: &mut Outbox<'_>) {
    if parts.receive_window.state.accepts_data() && note_urgent(segment, parts.receive_window) {
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
        //# A TCP implementation MUST (MUST-32) inform the application layer asynchronously whenever it receives an
        //# urgent pointer and there was previously no pending urgent data, or whenever the urgent pointer advances in
        //# the data stream.
        out.ready |= Readiness::URGENT;
    }
}

/// RFC 6093: the byte stays in the stream, only the mark is kept; the urgent pointer is one past it. True if the mark
/// has moved.
pub(super) fn note_urgent(segment: &Segment, rw: &mut ReceiveWindow) -> bool {
    if !segment.header.flags.contains(TcpFlags::URG) {
        return false;
    }
    let mark = segment.header.seq + u32::from(segment.header.urgent);
    let is_newer = (!rw.urgent_valid || mark.gt(rw.urgent)) && mark.gt(rw.nxt - rw.queued);
    if is_newer {
        rw.urgent = mark;
        rw.urgent_valid = true;
        rw.note_rare();
    }
    is_newer
}

/// Processes data and FIN, then sends all that may be sent, with an acknowledgement that is at least as urgent as
/// `least`.
fn after_acknowledgement(
    arrival: &mut Option<Segment>,
    least: Ack,
    mut parts: PcbMut<'_>,
    out: &mut Outbox<'_>,
    now: Time,
) -> Disposition {
    let Some(segment) = arrival.as_ref().filter(|_| parts.header_in.state != State::Closed) else {
        return Disposition::Done;
    };
    let mut ack = least;
    let mut dropped = None;
    if segment.seq_len() > 0 {
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
        //# If such a host issues a CLOSE call while received data is still pending in the TCP connection, or if new
        //# data is received after CLOSE is called, its TCP implementation SHOULD send a RST to show that data was lost
        //# (SHLD-3).
        if data_after_close(segment, &parts) {
            // With the number that the peer expects, regardless of the flight.
            output::reset_at(segment.header.ack, parts.header_out, out);
            parts.fail(Error::Aborted, out, now);
            parts.release(out);
            return Disposition::Dropped(out.dropped(DropReason::TcpAfterClose));
        }
        let taken = take_data(arrival, &mut parts, out, now);
        ack = ack.max(taken.0);
        dropped = taken.1;
    }
    transmit(&mut parts, ack, out, now);
    match dropped {
        Some(reason) => Disposition::Dropped(out.dropped(reason)),
        None => Disposition::Done,
    }
}

/// New data cannot be delivered to a user that has closed: the peer must learn that (RFC 9293 section 3.6.1, MAY; RFC
/// 1122 section 4.2.2.13, SHOULD).
fn data_after_close(segment: &Segment, parts: &PcbMut<'_>) -> bool {
    let end = segment.header.seq + segment.data.len() as u32;
    parts.header_in.is_orphan()
        && parts.header_in.state.accepts_data()
        && !segment.data.is_empty()
        && end.gt(parts.receive_window.nxt)
}

/// Seventh and eighth.
pub(crate) fn take_data(
    arrival: &mut Option<Segment>,
    parts: &mut PcbMut<'_>,
    out: &mut Outbox<'_>,
    now: Time,
) -> (Ack, Option<DropReason>) {
    let Some(segment) = arrival else { return (Ack::None, None) };
    let fin = segment.header.flags.contains(TcpFlags::FIN);
    // Data of a SYN may be taken before the connection is established.
    if !parts.receive_window.state.accepts_data() {
        return beyond_the_stream(segment, fin, parts, out, now);
    }
    // Only the handle of the data is moved.
    let Some(Segment { header: Header { seq, .. }, data, .. }) = arrival.take() else { return (Ack::None, None) };
    let alone = data.is_empty();
    let taken = parts.receive_side(|rw, ra| data::accept(rw, ra, (seq, data, fin), false, out, now));
    parts.header_out.merge(taken.snapshot);
    let mut ack = taken.ack;
    if taken.fin {
        ack = ack.max(take_fin(parts, alone, out, now));
    }
    (ack, taken.dropped)
}

/// Data or FIN in a state that expects none: the peer's FIN was retransmitted, or the peer violates the protocol.
fn beyond_the_stream(
    segment: &Segment,
    fin: bool,
    parts: &mut PcbMut<'_>,
    out: &mut Outbox<'_>,
    now: Time,
) -> (Ack, Option<DropReason>) {
    if fin && parts.header_in.state == State::TimeWait {
        parts.header_in.state_deadline = now + out.config.time_wait;
        parts.header_in.arm(out);
    }
    let reason = if segment.data.is_empty() { None } else { Some(DropReason::TcpAfterFin) };
    (Ack::Pure, reason)
}

/// Eighth: the FIN is next in sequence. `alone`: it has arrived without data.
fn take_fin(parts: &mut PcbMut<'_>, alone: bool, out: &mut Outbox<'_>, now: Time) -> Ack {
    let rw = &mut *parts.receive_window;
    if !rw.fin_next() {
        return Ack::None;
    }
    rw.take_fin();
    // The stream has ended: nothing more can fill the window.
    if rw.edge.lt(rw.nxt) {
        rw.edge = rw.nxt;
    }
    parts.reassembly.give_up(out);
    let ack = if alone { schedule_ack_of_fin(parts, out, now) } else { Ack::Now };
    let snapshot = parts.receive_window.snapshot(parts.reassembly);
    if ack == Ack::Now || parts.header_out.sack.is_some() {
        parts.receive_window.acked(snapshot.nxt, snapshot.edge);
    }
    parts.header_out.merge_last(snapshot);
    out.ready |= Readiness::READABLE | Readiness::PEER_CLOSED;
    parts.enter(Cause::Fin, out, now);
    // A duplicate is reported at once; data would not carry the block.
    if parts.header_out.sack.is_some() { Ack::Pure } else { ack }
}

/// How urgent the acknowledgement of the FIN is that has just been taken, and came without data. It waits for the user's segment if
/// that may come ([`ReceiveWindow::expect_close`]).
#[inline(always)]
pub(super) fn schedule_ack_of_fin(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> Ack {
    if !out.config.delay_fin_acks || parts.header_in.state != State::Established {
        return Ack::Now;
    }
    parts.receive_window.schedule_ack(false, out, now)
}

/// The established path found the FIN next in sequence: take it, and acknowledge it.
#[cold]
pub(crate) fn finish<A: PcbAccess>(pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
    pcb.whole(out, |mut parts, out| {
        let ack = if parts.header_in.state.accepts_data() { take_fin(&mut parts, false, out, now) } else { Ack::None };
        if ack >= Ack::Now {
            transmit(&mut parts, ack, out, now);
        }
    });
}

/// Sends all that may be sent, with an acknowledgement that is as urgent as `ack`.
#[inline(never)]
pub(super) fn transmit(parts: &mut PcbMut<'_>, ack: Ack, out: &mut Outbox<'_>, now: Time) {
    let advertised = parts.transmit(out, |sw, rq, ho, out| lane::transmit(sw, rq, ho, out, now, ack));
    note_advertised(parts, advertised);
}

/// A segment was sent that carried the newest acknowledgement and window.
pub(super) fn note_advertised(parts: &mut PcbMut<'_>, advertised: Advertised) {
    if let Some((nxt, edge)) = advertised {
        parts.receive_window.acked(nxt, edge);
    }
}

/// Fifth: the ACK field, in the states where more than the send window depends on it.
fn acknowledge(segment: &Segment, parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> Result<(), Disposition> {
    if parts.header_in.state == State::SynReceived {
        let early = parts.is_early();
        let (sw, ack) = (&*parts.send_window, segment.header.ack);
        if !(if early { early::covers(sw, ack) } else { acknowledgement::covers_syn(sw, ack) }) {
            output::reset_at(segment.header.ack, parts.header_out, out);
            return Err(Disposition::Dropped(out.dropped(DropReason::TcpBadAck)));
        }
        if early {
            early::complete(parts, &segment.header, out, now);
            synchronised(parts, &segment.header, out, now);
        } else {
            establish_passively(parts, &segment.header, out, now);
        }
    }
    let len = segment.seq_len();
    let acked = parts.send_side(|sw, rq| acknowledgement::process(sw, rq, &segment.header, len, out, now));
    match acked {
        //= https://www.rfc-editor.org/rfc/rfc5961#section-5.2
        //# All incoming segments whose ACK value doesn't satisfy the above condition MUST be discarded and an ACK sent
        //# back.
        AckCheck::Invalid => {
            challenge(parts, out, now);
            Err(Disposition::Dropped(out.dropped(DropReason::TcpBadAck)))
        }
        AckCheck::Valid { fin: true, .. } => {
            acknowledge_fin(parts, out, now);
            Ok(())
        }
        AckCheck::Valid { .. } => Ok(()),
    }
}

/// Our SYN, and nothing else, is acknowledged by the segment with this `header`, in SYN-RECEIVED.
pub(super) fn establish_passively(parts: &mut PcbMut<'_>, header: &Header, out: &mut Outbox<'_>, now: Time) {
    our_syn::establish(parts, header, out, now);
    parts.header_in.set_held(true);
    synchronised(parts, header, out, now);
}

/// Leaves SYN-RECEIVED.
fn synchronised(parts: &mut PcbMut<'_>, header: &Header, out: &mut Outbox<'_>, now: Time) {
    ecn::established(parts, out.config);
    parts.leave(State::SynReceived, Cause::AckOfSyn, out, now);
    // The first window that is scaled.
    let sw = &mut *parts.send_window;
    sw.wnd = u32::from(header.window) << sw.shift;
    sw.max_wnd = sw.max_wnd.max(sw.wnd);
    sw.wl1 = header.seq;
    sw.wl2 = header.ack;
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.5
    //# Note that a TCP implementation MUST keep track of whether a connection has reached SYN-RECEIVED state as the
    //# result of a passive OPEN or an active OPEN (MUST-11).
    if parts.header_in.is_passive() {
        out.table = TableChange::Established;
        out.ready |= Readiness::ACCEPTABLE | Readiness::WRITABLE;
    } else {
        out.ready |= Readiness::CONNECTED | Readiness::WRITABLE;
        parts.opened(out);
    }
    super::super::close::continue_close(parts, out, now);
}

pub(super) fn acknowledge_fin(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    out.ready |= Readiness::FLUSHED;
    match parts.header_in.state {
        State::FinWait1 => {
            parts.leave(State::FinWait1, Cause::AckOfFin, out, now);
            super::super::close::watch_fin_wait_2(parts, out, now);
        }
        State::Closing => parts.enter(Cause::AckOfFin, out, now),
        State::LastAck => {
            out.count(Counter::ConnectionsClosed, 1);
            parts.leave(State::LastAck, Cause::AckOfFin, out, now);
            parts.release(out);
        }
        _ => {}
    }
}

/// Second: the RST bit (RFC 5961 section 3.2): only an exact sequence number resets.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.5.3
//# TCP implementations SHOULD allow a received RST segment to include data (SHLD-2).
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//# If the RST bit is set and the sequence number exactly matches the next expected sequence number (RCV.NXT), then TCP
//# MUST reset the connection.
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//# If the RST bit is set and the sequence number does not exactly match the next expected sequence value, yet is within
//# the current receive window (RCV.NXT < SEG.SEQ < RCV.NXT+RCV.WND), TCP MUST send an acknowledgment (challenge ACK):
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//# After sending the challenge ACK, TCP MUST drop the unacceptable segment and stop processing the incoming packet
//# further.
//= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
//# Upon receipt of a valid RST, the local TCP endpoint MUST terminate its connection.
fn reset(segment: &Segment, mut parts: PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> Disposition {
    if segment.header.seq != parts.receive_window.nxt {
        challenge(&mut parts, out, now);
        return Disposition::Dropped(out.dropped(DropReason::TcpBadReset));
    }
    // RFC 1337: a reset does not end TIME-WAIT early, or old segments would meet a new connection.
    if parts.header_in.state == State::TimeWait {
        return Disposition::Dropped(out.dropped(DropReason::TcpTimeWait));
    }
    out.count(Counter::ResetsIn, 1);
    let error = match parts.header_in.state {
        // A connection that Fast Open opened early may have been accepted already, and so was not refused.
        State::SynReceived if !parts.is_early() => Error::Refused,
        // The peer had finished sending, and now does not receive either: a broken pipe, as on Linux.
        State::CloseWait => Error::Shutdown,
        _ => Error::Reset,
    };
    parts.fail(error, out, now);
    parts.release(out);
    Disposition::Done
}

fn refused_segment(
    refused: sequence::Unacceptable,
    segment: &Segment,
    parts: &mut PcbMut<'_>,
    out: &mut Outbox<'_>,
    now: Time,
) -> Disposition {
    let judged_before_fin = TcpFlags::RST | TcpFlags::SYN;
    let fin = segment.header.flags.contains(TcpFlags::FIN) && !segment.header.flags.intersects(judged_before_fin);
    match parts.header_in.state {
        // The peer did not get our last acknowledgement.
        State::TimeWait if fin => {
            parts.header_in.state_deadline = now + out.config.time_wait;
            parts.header_in.arm(out);
            answer(parts, out, now);
            Disposition::Dropped(out.dropped(refused.reason))
        }
        _ => refuse(refused, parts, out, now),
    }
}

/// Whether it repeats the SYN that we are answering. A listener answers no SYN with FIN, and a peer that answers a
/// listener does not acknowledge with a SYN.
fn repeats_syn(segment: &Segment, parts: &PcbMut<'_>) -> bool {
    let flags = segment.header.flags;
    let others = if parts.header_in.is_passive() { TcpFlags::ACK | TcpFlags::FIN } else { TcpFlags::NONE };
    flags.contains(TcpFlags::SYN)
        && !flags.intersects(others | TcpFlags::RST)
        && segment.header.seq == parts.send_window.wl1
}

/// RFC 9293 section 3.10.7.4, TIME-WAIT, and RFC 6191: a SYN that cannot be an old one begins a new incarnation.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
//# However, it MAY accept a new SYN from the remote TCP endpoint to reopen the connection directly from TIME-WAIT state
//# (MAY-2), if it:
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
//# This algorithm for reducing TIME-WAIT is a Best Current Practice that SHOULD be implemented since Timestamp Options
//# are commonly used, and using them to reduce TIME-WAIT provides benefits for busy Internet servers (SHLD-4).
fn reopens(segment: &Segment, parts: &PcbMut<'_>, config: &Config) -> bool {
    let flags = segment.header.flags;
    // While a user still reads from the old connection, it cannot be replaced. A listener takes no SYN with FIN.
    let others = TcpFlags::ACK | TcpFlags::RST | TcpFlags::FIN;
    if parts.header_in.is_held() || !flags.contains(TcpFlags::SYN) || flags.intersects(others) {
        return false;
    }
    // RFC 6191 section 2. The last sequence number of the old connection is that of its FIN, right before RCV.NXT. The
    // new one has timestamps if the SYN has them and our SYN-ACK would.
    let rw = &parts.receive_window;
    let larger = segment.header.seq.ge(rw.nxt);
    match segment.header.options.timestamps.filter(|_| config.timestamps) {
        None => larger,
        Some(_) if !rw.timestamps() => true,
        Some(ts) => match ts.value.wrapping_sub(rw.ts_recent) as i32 {
            0 => larger,
            age => age > 0,
        },
    }
}

fn recycle(arrival: &mut Option<Segment>, mut parts: PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> Disposition {
    out.count(Counter::TimeWaitReused, 1);
    parts.enter(Cause::Expired, out, now);
    parts.release(out);
    arrival.take().map_or(Disposition::Done, |segment| Disposition::Recycled(Box::new(segment)))
}
