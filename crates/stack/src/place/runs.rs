//! A run arrives: segments of one connection under one look-up and one exclusion.
//!
//! Only in a cell, which holds its connections whole. Segments that the fast lane does not predict arrive by themselves, in
//! their turn; so do all segments of a connection with a handler, which is called after each.
//!
//! What may never happen: a segment overtakes another one of its run.

use observe::Time;
use sync::Platform;

use super::Cell;
use crate::call::{ArrivingRun, ArrivingSegment, Ingress};
use crate::charge;
use crate::connections::{Arrivals, Events, Place, ResetOnPanic};
use crate::deferred::DeferredEffects;

impl<P: Platform> Cell<P> {
    /// [`Arrivals::ingress`], also for a run.
    #[inline(always)]
    pub fn arrival(&mut self, ingress: &mut Ingress, now: Time, deferred: &mut DeferredEffects<P>) {
        match ingress {
            Ingress::Run(run) => self.run_arrives(run, now, deferred),
            other => self.ingress(other, now, deferred),
        }
    }

    #[inline(never)]
    fn run_arrives(&mut self, run: &mut ArrivingRun, now: Time, deferred: &mut DeferredEffects<P>) {
        let ArrivingRun { hash, segments } = run;
        let mut rest = &mut segments[..];
        while !rest.is_empty() {
            let taken = self.predicted(*hash, rest, now, deferred);
            rest = &mut rest[taken..];
            if taken == 0
                && let Some((next, behind)) = std::mem::take(&mut rest).split_first_mut()
            {
                let next = ArrivingSegment { hash: *hash, segment: next.take() };
                self.ingress(&mut Ingress::Segment(next), now, deferred);
                rest = behind;
            }
        }
    }

    /// Runs the predicted segments at the front as one event; returns their number.
    #[inline(always)]
    fn predicted(
        &mut self,
        hash: u32,
        segments: &mut [Option<tcp::Segment>],
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> usize {
        let Some(Some(first)) = segments.first() else { return 0 };
        let Ok((slot, ())) = self.find(&first.tuple, hash) else { return 0 };
        if self.is_handled(slot) {
            return 0;
        }
        let guard = ResetOnPanic { place: self, id: &slot, now, deferred };
        let taken = guard.place.run(&slot, (), tcp::RunArrives(segments), now, guard.deferred);
        std::mem::forget(guard);
        let taken = taken.unwrap_or(0);
        charge::segments::<P>(taken);
        taken
    }
}
