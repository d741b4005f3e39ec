//! SEGMENT ARRIVES (RFC 9293 section 3.10.7), one file per group of its steps.
//!
//! | step of the RFC | file |
//! |---|---|
//! | CLOSED | [`crate::closed`] |
//! | LISTEN | [`crate::handshake::listen`] |
//! | SYN-SENT | `syn_sent` |
//! | otherwise | `otherwise`: the order of the steps, RST, SYN, FIN |
//! | first: sequence number | `sequence` |
//! | fifth: ACK | `acknowledgement`; `disorder` for loss detection |
//! | sixth: URG | `urgent` in `otherwise` |
//! | seventh: data | `data` |
//! | several predicted segments as one event | `run` |
//! | the usual segments of a handshake and of a close, all at once | `transitions` |
//!
//! The steps are taken in the RFC's order for every combination of control bits; no combination is rejected before
//! them. Only LISTEN drops a SYN with FIN.
//!
//! The steps `sequence`, `acknowledgement` and `data` are written against one side of the connection each, so that the
//! established path (`fast_path.rs`) can take them hold-set by hold-set. Every other segment takes all parts at once.

pub(crate) mod acknowledgement;
mod answers;
pub(crate) mod data;
pub(crate) mod disorder;
pub(crate) mod fast_path;
mod otherwise;
mod our_syn;
mod predicted;
mod run;
pub(crate) mod sequence;
mod syn_sent;
mod transitions;

use observe::{Counter, DropReason, Time};
use pktbuf::PktBuf;

use super::TcpEvent;
use super::receive::PassedData;
use crate::access::{PcbAccess, PcbMut};
use crate::closed;
use crate::outbox::{LocalEffects, Outbox};
use crate::pcb::{Pcb, SegmentPath};
use crate::segment::Segment;
use crate::state::State;

pub use answers::Disposition;
pub(crate) use otherwise::take_data;
pub use predicted::{HandedOn, Predicted};
pub use run::RunArrives;

/// A segment of this connection has arrived. It is consumed in place, piece by piece: a segment is the largest value
/// that passes through the stack, and moving it costs as much as a step of processing it.
#[derive(Debug)]
pub struct SegmentArrives<'s>(pub &'s mut Option<Segment>);

impl TcpEvent for SegmentArrives<'_> {
    type Reply = Disposition;

    #[inline]
    fn segments(&self) -> usize {
        self.0.as_ref().map_or(1, Segment::parts)
    }

    /// Header, sequence number, acknowledgement, and data or transmission.
    #[inline]
    fn hold_sets(&self) -> usize {
        4
    }

    #[inline]
    fn unchecked(&self) -> &[u8] {
        self.0.as_ref().filter(|segment| segment.is_checked_inside()).map_or(&[], |segment| &segment.data)
    }

    #[inline]
    fn checked_late(&self) -> &[u8] {
        self.0.as_ref().filter(|segment| segment.may_wait()).map_or(&[], |segment| &segment.data)
    }

    #[inline]
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Disposition {
        debug_assert!(self.0.is_some(), "there is no segment");
        if out.config.fast_lane
            && let Some(pcb) = pcb.all()
            && let Some(predicted) = predicted::receive(self.0, false, pcb, out, now)
        {
            predicted.send(pcb, out, now);
            return Disposition::Done;
        }
        arrives_beside_lane(self.0, pcb, out, now)
    }
}

impl<'s> SegmentArrives<'s> {
    /// The first half of the event, for the owner of all parts of a connection: a predicted segment is processed, but for
    /// what is to be sent, and needs no outbox for that.
    ///
    /// # Errors
    /// The segment is not a predicted one, and nothing has changed: run this event instead.
    #[inline(always)]
    pub fn predict(
        self,
        pcb: &mut Pcb,
        effects: &mut LocalEffects<'_>,
        now: Time,
    ) -> Result<Predicted, UnpredictedArrives<'s>> {
        let predicted =
            if effects.config.fast_lane { predicted::receive(self.0, false, pcb, effects, now) } else { None };
        predicted.ok_or(UnpredictedArrives(self.0))
    }

    /// [`SegmentArrives::predict`], where the connection's user is called for what arrives and takes data at once: data that it
    /// alone is to be called for is not queued. After [`Predicted::send`] the user is given it ([`PassedData::take`]).
    #[inline(always)]
    pub fn hand_on(&mut self, pcb: &mut Pcb, effects: &mut LocalEffects<'_>, now: Time) -> HandedOn {
        if effects.config.fast_lane { predicted::hand_on(self.0, pcb, effects, now) } else { HandedOn::Unpredicted }
    }

    /// The data, after [`HandedOn::Passed`].
    pub fn passed(self) -> Option<PassedData> {
        self.0.take().map(|segment| PassedData::new(segment.data))
    }

    /// The data, after [`HandedOn::Taken`].
    #[inline(always)]
    pub fn taken(self) -> Option<PktBuf> {
        self.0.take().map(|segment| segment.data)
    }

    /// The same segment, after [`HandedOn::Unpredicted`].
    #[inline(always)]
    pub fn unpredicted(self) -> UnpredictedArrives<'s> {
        UnpredictedArrives(self.0)
    }
}

/// [`SegmentArrives`] of a segment that is not a predicted one ([`SegmentArrives::predict`]).
#[derive(Debug)]
pub struct UnpredictedArrives<'s>(&'s mut Option<Segment>);

impl TcpEvent for UnpredictedArrives<'_> {
    type Reply = Disposition;

    #[inline(always)]
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Disposition {
        arrives_beside_lane(self.0, pcb, out, now)
    }
}

/// A segment that the lane does not take: the general code, unless one owner holds all parts of the connection, and the
/// segment is a predicted one, or one for a connection in SYN-SENT. Then the counts of the general code are made here.
#[inline(never)]
pub(crate) fn arrives_beside_lane<A: PcbAccess>(
    arrival: &mut Option<Segment>,
    pcb: &mut A,
    out: &mut Outbox<'_>,
    now: Time,
) -> Disposition {
    let Some(segment) = &*arrival else { return Disposition::Done };
    let predicted = pcb.all().is_some_and(|pcb| {
        let predicted = transitions::changes_state(segment, pcb, out.config);
        if predicted {
            pcb.header_in.hear(now);
        }
        predicted
    });
    if !predicted {
        return beside_prediction(arrival, pcb, out, now);
    }
    out.count(Counter::SegmentsIn, 1);
    out.count(Counter::SlowPathIn, 1);
    pcb.whole(out, |parts, out| transitions::process(segment, parts, out, now));
    Disposition::Done
}

/// Nor is it a predicted one. The answer to our SYN needs no more of the general code than its counts.
#[inline(never)]
fn beside_prediction<A: PcbAccess>(
    arrival: &mut Option<Segment>,
    pcb: &mut A,
    out: &mut Outbox<'_>,
    now: Time,
) -> Disposition {
    let checked = arrival.as_ref().is_some_and(Segment::is_checked);
    match pcb.all() {
        Some(pcb) if checked && pcb.header_in.state == State::SynSent => pcb.header_in.hear(now),
        _ => return general(arrival, pcb, out, now),
    }
    out.count(Counter::SegmentsIn, 1);
    out.count(Counter::SlowPathIn, 1);
    pcb.whole(out, |parts, out| syn_sent::arrives(arrival, parts, out, now))
}

/// The general code, which processes any segment. Not part of the lane's code: there it would only be in the way.
#[inline(never)]
fn general<A: PcbAccess>(arrival: &mut Option<Segment>, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Disposition {
    let Some(segment) = arrival else { return Disposition::Done };
    out.count(Counter::SegmentsIn, 1);
    let may_wait = segment.may_wait();
    let judged = pcb.header_in(|header_in| {
        let waits = may_wait && header_in.path(segment) == SegmentPath::Established;
        // Inside the hold-set, if the configuration places the check there.
        if waits || segment.checksum_holds() {
            Ok(header_in.classify(segment, now))
        } else {
            Err(DropReason::TcpBadChecksum)
        }
    });
    match judged {
        Ok(SegmentPath::Established) => match fast_path::take_header(segment, pcb, out, now) {
            Some(disposition) => disposition,
            None => match arrival.take() {
                Some(segment) => fast_path::take_data(segment, pcb, out, now),
                None => Disposition::Done,
            },
        },
        Ok(SegmentPath::Whole) => {
            out.count(Counter::SlowPathIn, 1);
            if may_wait {
                out.count(Counter::ChecksumsInside, 1);
            }
            pcb.whole(out, |parts, out| whole(arrival, parts, out, now))
        }
        Err(reason) => Disposition::Dropped(out.dropped(reason)),
    }
}

/// Every segment that is not plain data or acknowledgement for an established connection.
#[cold]
fn whole(arrival: &mut Option<Segment>, mut parts: PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> Disposition {
    let Some(segment) = arrival else { return Disposition::Done };
    match parts.header_in.state {
        State::Closed | State::Listen => {
            closed::deny(segment, out);
            Disposition::Dropped(out.dropped(DropReason::TcpClosed))
        }
        State::SynSent => syn_sent::arrives(arrival, parts, out, now),
        _ if transitions::is_predicted(segment, &parts, out.config) => {
            transitions::arrives(segment, parts, out, now);
            Disposition::Done
        }
        _ => {
            let disposition = otherwise::arrives(arrival, parts.reborrow(), out, now);
            parts.wait(out);
            disposition
        }
    }
}
