//! A run: segments of one connection that were received directly after one another, as one event.
//!
//! A sender in bulk sends many segments at a time, and they arrive in one batch. What concerns the connection and not the
//! segment is then done once a run: the look-up, the exclusive use, the outbox and its effects. Each segment still has
//! the effects that it would have alone, in the same order: the predicted segments ([`super::predicted`]) are processed
//! one after the other, and the first segment that is not predicted ends the event. So does an effect that has to be
//! performed before the next segment.

use observe::Time;

use super::predicted;
use crate::access::PcbAccess;
use crate::event::TcpEvent;
use crate::outbox::{Outbox, PathUpdate, TableChange};
use crate::segment::Segment;

/// The most segments that a run may have put into its outbox before its next segment: as many fit without an allocation,
/// with those that one more segment may add.
const MOST_OUT: usize = 4;

/// Segments of this connection that were received directly after one another; their checksums have been checked. Those at
/// the front that the event takes are taken from their places; the reply is their number. The next one, if any, must
/// arrive by itself ([`crate::SegmentArrives`]).
///
/// Only for a connection whose parts are all held at once; otherwise none is taken.
#[derive(Debug)]
pub struct RunArrives<'s>(pub &'s mut [Option<Segment>]);

impl TcpEvent for RunArrives<'_> {
    type Reply = usize;

    /// None yet: how many it takes is its reply.
    #[inline]
    fn segments(&self) -> usize {
        0
    }

    #[inline]
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> usize {
        let Some(pcb) = pcb.all().filter(|_| out.config.fast_lane) else { return 0 };
        let mut taken = 0;
        for arrival in self.0 {
            let Some(predicted) = predicted::receive(arrival, taken > 0, pcb, out, now) else { break };
            predicted.send(pcb, out, now);
            taken += 1;
            if !may_continue(out) {
                break;
            }
        }
        taken
    }
}

/// Whether the effects so far may wait for those of the next segment.
#[inline(always)]
fn may_continue(out: &Outbox<'_>) -> bool {
    let waits = out.tx_blocked || out.path != PathUpdate::None || out.table != TableChange::None;
    !waits && out.standing.is_none() && out.segments.len() < MOST_OUT
}
