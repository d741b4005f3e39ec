//! SEGMENT ARRIVES (RFC 9293 section 3.10.7), one file per group of its steps.
//!
//! | step of the RFC | file |
//! |---|---|
//! | CLOSED | [`crate::closed`] |
//! | LISTEN | [`crate::handshake::listen`] |
//! | SYN-SENT | `syn_sent` |
//! | otherwise | `otherwise`: the order of the steps, RST, SYN, FIN |
//! | first: sequence number | `sequence` |
//! | fifth: ACK | `acknowledgement`; `disorder` for what it says about losses |
//! | sixth: URG | `urgent` in `otherwise` |
//! | seventh: text | `text` |
//!
//! The steps are taken in the RFC's order for every combination of control bits; no combination is judged before them.
//! Only LISTEN drops a SYN with FIN.
//!
//! The steps `sequence`, `acknowledgement` and `text` are written against one side of the connection each, so that the
//! established path (`fast_path.rs`) can take them hold-set by hold-set. Every other segment takes all parts at once.

pub(crate) mod acknowledgement;
pub(crate) mod disorder;
mod otherwise;
pub(crate) mod sequence;
mod syn_sent;
pub(crate) mod text;

use observe::{Counter, DropReason, Time};

use super::Event;
use crate::access::{PcbAccess, PcbMut};
use crate::closed;
use crate::fast_path;
use crate::outbox::Outbox;
use crate::output;
use crate::pcb::{Ack, Path};
use crate::segment::Segment;
use crate::state::State;

pub(crate) use otherwise::{finish, release, take_text};

/// A segment of this connection has arrived. It is taken from where it was parsed, piece by piece: a segment is the largest
/// of the values that go through the stack, and to move it costs as much as a step of processing it.
#[derive(Debug)]
pub struct SegmentArrives<'s>(pub &'s mut Option<Segment>);

/// What became of a segment.
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

impl Event for SegmentArrives<'_> {
    type Reply = Disposition;

    #[inline]
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Disposition {
        let Some(segment) = &*self.0 else {
            debug_assert!(false, "there is no segment");
            return Disposition::Done;
        };
        out.count(Counter::SegmentsIn, 1);
        let judged = pcb.header_in(|header_in| {
            // Inside the hold-set, if that is where the configuration puts the work.
            if segment.checksum_holds() { Ok(header_in.judge(segment, now)) } else { Err(DropReason::TcpBadChecksum) }
        });
        match judged {
            Ok(Path::Established) => match fast_path::take_header(segment, pcb, out, now) {
                Some(disposition) => disposition,
                None => match self.0.take() {
                    Some(segment) => fast_path::take_text(segment, pcb, out, now),
                    None => Disposition::Done,
                },
            },
            Ok(Path::Whole) => {
                out.count(Counter::SlowPathIn, 1);
                pcb.whole(out, |parts, out| whole(self.0, parts, out, now))
            }
            Err(reason) => Disposition::Dropped(out.dropped(reason)),
        }
    }
}

/// Every segment that is not plain text or acknowledgement for an established connection.
#[cold]
fn whole(arrival: &mut Option<Segment>, parts: PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> Disposition {
    let Some(segment) = arrival else { return Disposition::Done };
    match parts.header_in.state {
        State::Closed | State::Listen => {
            closed::deny(segment, out);
            Disposition::Dropped(out.dropped(DropReason::TcpClosed))
        }
        State::SynSent => syn_sent::arrives(arrival, parts, out, now),
        _ => otherwise::arrives(arrival, parts, out, now),
    }
}

/// Tell the peer at once, in a segment of its own, what we expect.
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

/// The same, within the connection's own rate limit: the answer to what an attacker may have sent (RFC 5961 section 7).
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

/// The answer to a segment outside the window: at once if it takes sequence space, for its sender may have lost our
/// acknowledgement; else within the rate limit, or two confused ends would answer each other for ever.
#[cold]
pub(crate) fn refuse<A: PcbAccess>(
    refused: sequence::Unacceptable,
    pcb: &mut A,
    out: &mut Outbox<'_>,
    now: Time,
) -> Disposition {
    match refused.answer {
        sequence::Answer::None => {}
        sequence::Answer::AtOnce => answer(pcb, out, now),
        sequence::Answer::Limited => challenge(pcb, out, now),
    }
    Disposition::Dropped(out.dropped(refused.reason))
}
