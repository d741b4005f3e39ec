//! The receive side of the fast lane ([`crate::lane`]): header prediction.
//!
//! Van Jacobson's observation is that the next segment of a connection can be predicted: it begins at RCV.NXT, has ACK
//! and perhaps PSH as its control bits and timestamps as its option, and carries data, an acknowledgement, or both. The
//! steps of RFC 9293 section 3.10.7.4 have nothing to decide about such a segment: the sequence number is acceptable,
//! there is no RST, SYN, URG or FIN, the ACK is between SND.UNA and SND.NXT, and no loss is being repaired.
//!
//! So [`receive`] compares first, and changes nothing until every comparison has held. The flag bytes of both sides
//! (`pcb/rare.rs`) answer most of the questions at once; those about data do not concern an acknowledgement, so a
//! connection that only sends takes the lane as well. The code below has the general code's effects in the general
//! code's order: first the ACK field and the window (`acknowledgement.rs`), then the timestamp, the data (`data.rs`)
//! and the transmission (`fast_path.rs`). Whatever is rarer takes those files.
//!
//! What is sent then comes last ([`Predicted::send`]). So an owner of the connection can have a segment predicted before it
//! makes an outbox ([`SegmentArrives::predict`](super::SegmentArrives::predict)), and mostly needs none.
//!
//! In a run ([`super::run`]) the headers of most segments say the same as the one before, but for the sequence number. The
//! effects of such a header are there already, so only its data is processed.
//!
//! Only for a connection whose parts are all held at once. A staged driver takes the general code's hold-sets, one at a
//! time.

use observe::{Counter, Time};
use pktbuf::PktBuf;
use wire::tcp::{TIMESTAMPED_LEN, TcpFlags, Timestamps};

use super::acknowledgement::{acknowledge, note_answer, update_window};
use super::data;
use crate::event::receive::{PassedData, take_passed};
use crate::lane::transmit;
use crate::outbox::{LocalEffects, Outbox};
use crate::pcb::{Ack, HeaderIn, Pcb, Reassembly, ReceiveWindow, SendWindow, TimerPurpose};
use crate::segment::Segment;

/// A segment that was predicted, and processed but for what is to be sent now.
#[must_use]
pub struct Predicted(Option<Ack>);

impl Predicted {
    /// Whether anything is to be sent.
    #[inline(always)]
    pub fn has_to_send(&self) -> bool {
        self.0.is_some()
    }

    /// Sends it: an acknowledgement, or the data that there is room for now, which carries any delayed acknowledgement.
    #[inline(always)]
    pub fn send(self, pcb: &mut Pcb, out: &mut Outbox<'_>, now: Time) {
        let Some(ack) = self.0 else { return };
        let Pcb { receive_window: rw, send_window: sw, retransmit_queue: rq, header_out: ho, .. } = pcb;
        match transmit(sw, rq, ho, out, now, ack) {
            Some(advertised) if ack != Ack::Now => rw.data_sent(advertised, out.config, now),
            None if ack == Ack::Delayed => out.count(Counter::AcksDelayed, 1),
            _ => {}
        }
    }
}

/// Processes the segment if it is the predicted one, but for what is to be sent. `None`: it is not, and nothing has changed.
/// `follows`: the event has processed another segment that was predicted, just before.
#[inline(always)]
pub(crate) fn receive(
    arrival: &mut Option<Segment>,
    follows: bool,
    pcb: &mut Pcb,
    out: &mut LocalEffects<'_>,
    now: Time,
) -> Option<Predicted> {
    let segment = arrival.as_mut()?;
    let timestamps = segment.header.options.timestamps?;
    if follows && is_only_data(segment, timestamps, pcb, out) {
        let Pcb { header_in, send_window: sw, .. } = pcb;
        out.count(Counter::SegmentsIn, 1);
        header_in.hear(now);
        if sw.wl1.lt(segment.header.seq) {
            sw.wl1 = segment.header.seq;
        }
    } else {
        match header(segment, timestamps, pcb, out, now) {
            PredictedHeader::Data => {}
            PredictedHeader::Alone => return Some(Predicted((!is_all_sent(pcb)).then_some(Ack::None))),
            PredictedHeader::Fails => return None,
        }
    }
    let followed = segment.followed;
    Some(Predicted(take(arrival.take()?.data, followed, pcb, out, now)))
}

/// What became of a segment in [`SegmentArrives::hand_on`](super::SegmentArrives::hand_on).
#[must_use]
pub enum HandedOn {
    /// It is not predicted, and nothing has changed.
    Unpredicted,
    /// It was processed, but for what is to be sent.
    Processed(Predicted),
    /// The same, and its data is for the user, after what is to be sent ([`SegmentArrives::passed`](super::SegmentArrives::passed)).
    Passed(Predicted),
    /// It was processed, nothing is to be sent, and the user has taken its data, which is still in its place
    /// ([`SegmentArrives::taken`](super::SegmentArrives::taken)).
    Taken,
}

/// [`receive`] for a user that takes data where it arrives: data that makes the connection readable, and that none is unread
/// before, is not queued. The user is given it after what is to be sent has been sent.
///
/// Not inlined: beside the code around a handler there are too few registers for it.
#[inline(never)]
pub(crate) fn hand_on(arrival: &mut Option<Segment>, pcb: &mut Pcb, out: &mut LocalEffects<'_>, now: Time) -> HandedOn {
    let Some(segment) = arrival else { return HandedOn::Unpredicted };
    let Some(timestamps) = segment.header.options.timestamps else { return HandedOn::Unpredicted };
    match header(segment, timestamps, pcb, out, now) {
        PredictedHeader::Data => {}
        PredictedHeader::Alone => return HandedOn::Processed(Predicted((!is_all_sent(pcb)).then_some(Ack::None))),
        PredictedHeader::Fails => return HandedOn::Unpredicted,
    }
    let followed = segment.followed;
    if out.ready.is_empty() && PassedData::may_pass(&pcb.receive_window, &segment.data) {
        out.count(Counter::FastPathIn, 1);
        data::pass(&mut pcb.receive_window, &segment.data, out, now);
        let ack = acknowledge_data(followed, pcb, out, now);
        // Nearly always nothing is to be sent, and the window is open.
        return if ack.is_none() && take_passed(&mut pcb.receive_window, segment.data.len()) {
            HandedOn::Taken
        } else {
            HandedOn::Passed(Predicted(ack))
        };
    }
    let Some(Segment { data, .. }) = arrival.take() else { return HandedOn::Unpredicted };
    HandedOn::Processed(Predicted(take(data, followed, pcb, out, now)))
}

/// Whether the prediction holds for a segment.
enum PredictedHeader {
    /// It does, and the header was processed; the data was not yet.
    Data,
    /// It does, and there is no data: the segment was processed.
    Alone,
    /// It does not, and nothing has changed.
    Fails,
}

/// Processes the header of the segment, if it is the predicted one and so is its data.
#[inline(always)]
fn header(
    segment: &Segment,
    timestamps: Timestamps,
    pcb: &mut Pcb,
    out: &mut LocalEffects<'_>,
    now: Time,
) -> PredictedHeader {
    let Pcb { header_in, receive_window: rw, reassembly: ra, send_window: sw, retransmit_queue: rq, .. } = pcb;
    let (header, len) = (&segment.header, segment.data.len() as u32);
    let (flight, advance) = (sw.flight(), (header.ack - sw.una) as u32);
    let age = timestamps.value.wrapping_sub(rw.ts_recent) as i32;
    let predicted = are_usual(rw, sw)
        && is_plain(segment, header_in)
        // First: the sequence number.
        && header.seq == rw.nxt
        && age >= 0
        // Fifth: the ACK field. Without an advance it would be a duplicate while data is in flight.
        && (if advance == 0 { flight == 0 && len > 0 } else { advance <= flight });
    if !predicted {
        return PredictedHeader::Fails;
    }
    // Seventh: the data.
    if len > 0 && !takes_data(len, rw, ra, out) {
        return PredictedHeader::Fails;
    }
    out.count(Counter::SegmentsIn, 1);
    header_in.hear(now);
    if advance > 0 {
        acknowledge(sw, rq, header, (advance, 0), out, now);
    }
    update_window(sw, header, advance, out);
    note_answer(sw, rq, advance, out);
    let echoed = age > 0 && header.seq.le(rw.last_ack_sent);
    if echoed {
        rw.ts_recent = timestamps.value;
        rw.confirm_timestamp(now);
    }
    if len > 0 {
        return PredictedHeader::Data;
    }
    out.count(Counter::PureAcksIn, 1);
    if echoed {
        pcb.header_out.echo(timestamps.value);
    }
    PredictedHeader::Alone
}

/// Whether a segment that follows a predicted one is predicted as well, and its header says nothing that the other's has
/// not said: the acknowledgement, the window and the timestamp are the latest, so that they would change nothing.
#[inline(always)]
fn is_only_data(segment: &Segment, timestamps: Timestamps, pcb: &Pcb, out: &LocalEffects<'_>) -> bool {
    let Pcb { header_in, receive_window: rw, reassembly: ra, send_window: sw, .. } = pcb;
    let (header, len) = (&segment.header, segment.data.len() as u32);
    header.seq == rw.nxt
        && header.ack == sw.una
        && header.ack == sw.wl2
        && sw.una == sw.nxt
        && u32::from(header.window) << sw.shift == sw.wnd
        && sw.timer_kind != TimerPurpose::Persist
        && timestamps.value == rw.ts_recent
        && len > 0
        && are_usual(rw, sw)
        && is_plain(segment, header_in)
        && takes_data(len, rw, ra, out)
}

/// Whether the segment is one of ESTABLISHED with ACK and perhaps PSH, timestamps alone, and a valid checksum.
#[inline(always)]
fn is_plain(segment: &Segment, header_in: &HeaderIn) -> bool {
    let header = &segment.header;
    header.flags.union(TcpFlags::PSH) == TcpFlags::ACK.union(TcpFlags::PSH)
        && usize::from(header.header_len) == TIMESTAMPED_LEN
        && segment.is_checked()
        && header_in.takes_lane(segment.ecn())
}

/// Whether `len` bytes at RCV.NXT are queued as they are.
#[inline(always)]
fn takes_data(len: u32, rw: &ReceiveWindow, ra: &Reassembly, out: &LocalEffects<'_>) -> bool {
    rw.is_usual() && len <= rw.window() && !ra.has_blocks() && !out.scarcity.is_severe()
}

/// Whether nothing is rare about either side that concerns every segment: one comparison, because one owner holds both.
#[inline(always)]
fn are_usual(rw: &ReceiveWindow, sw: &SendWindow) -> bool {
    debug_assert_eq!((rw.rare, sw.rare), (rw.recomputed(), sw.recomputed()));
    rw.rare.or(sw.rare).is_only_of_data()
}

/// Queues data at RCV.NXT; returns the acknowledgement that is to be sent, if anything is.
#[inline(always)]
fn take(data: PktBuf, followed: bool, pcb: &mut Pcb, out: &mut LocalEffects<'_>, now: Time) -> Option<Ack> {
    out.count(Counter::FastPathIn, 1);
    data::in_order(&mut pcb.receive_window, data, true, out, now);
    acknowledge_data(followed, pcb, out, now)
}

/// After data was received at RCV.NXT: opens the window, and returns the acknowledgement that is to be sent, if anything is.
#[inline(always)]
fn acknowledge_data(followed: bool, pcb: &mut Pcb, out: &mut LocalEffects<'_>, now: Time) -> Option<Ack> {
    let Pcb { receive_window: rw, header_out: ho, .. } = pcb;
    rw.grow(out.config, out.scarcity, now);
    rw.open_usual_window();
    let ack = rw.schedule_ack(followed, out, now);
    let (nxt, edge) = (rw.nxt, rw.edge);
    if ack == Ack::Now {
        rw.acked(nxt, edge);
    }
    ho.advance(nxt, edge, rw.ts_recent, rw.delay.is_quick());
    if ack == Ack::Delayed && is_all_sent(pcb) {
        out.count(Counter::AcksDelayed, 1);
        return None;
    }
    Some(ack)
}

/// Whether nothing waits to be sent, for a sender about which nothing is rare. `SendWindow::has_work` has the rest of
/// the rule.
#[inline(always)]
fn is_all_sent(pcb: &Pcb) -> bool {
    pcb.retransmit_queue.len == pcb.send_window.flight()
}
