//! The disposition of a segment, and the answers to segments that are not accepted.

use observe::{Counter, DropReason, Time};

use super::sequence;
use crate::access::PcbAccess;
use crate::outbox::Outbox;
use crate::output;
use crate::pcb::Ack;
use crate::segment::Segment;

/// The disposition of a segment.
#[derive(Debug)]
#[must_use]
pub enum Disposition {
    /// It was processed.
    Done,
    /// It was dropped for this reason, which has been counted; an answer may be in the outbox.
    Dropped(DropReason),
    /// It is a SYN that may begin a new incarnation of this connection, which was in TIME-WAIT and is now closed (RFC
    /// 9293 section 3.10.7.4, first check; `out.table` says to remove it): give the segment to the listener.
    Recycled(Box<Segment>),
}

impl Disposition {
    /// The segment, if it is for a new connection.
    #[inline(always)]
    pub fn recycled(self) -> Option<Box<Segment>> {
        if let Disposition::Recycled(segment) = self { Some(segment) } else { None }
    }
}

/// Sends a pure acknowledgement at once.
pub(crate) fn answer<A: PcbAccess>(pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
    let snapshot = pcb.receive_side(|rw, ra| {
        let snapshot = rw.snapshot(ra);
        rw.acked(snapshot.nxt, snapshot.edge);
        snapshot
    });
    pcb.transmit(out, |sw, rq, ho, out| {
        ho.merge(snapshot);
        output::transmit(sw, rq, ho, out, now, Ack::Pure)
    });
}

/// The same, within the connection's own rate limit: the answer to a possible attack (RFC 5961 section 7).
#[cold]
pub(crate) fn challenge<A: PcbAccess>(pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
    let interval = out.config.challenge_ack_interval;
    if pcb.header_in(|header_in| header_in.may_challenge(now, interval)) {
        out.count(Counter::ChallengeAcksOut, 1);
        answer(pcb, out, now);
    } else {
        out.count(Counter::ChallengeAcksLimited, 1);
    }
}

/// The answer to a segment outside the window: at once if it takes sequence space, because our acknowledgement may have
/// been lost; else within the rate limit, or two desynchronised ends would answer each other for ever.
#[cold]
pub(crate) fn refuse<A: PcbAccess>(
    refused: sequence::Unacceptable,
    pcb: &mut A,
    out: &mut Outbox<'_>,
    now: Time,
) -> Disposition {
    match refused.answer {
        sequence::UnacceptableReply::None => {}
        sequence::UnacceptableReply::AtOnce => answer(pcb, out, now),
        sequence::UnacceptableReply::Limited => challenge(pcb, out, now),
    }
    Disposition::Dropped(out.dropped(refused.reason))
}
