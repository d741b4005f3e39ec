//! Runs: segments of one flow that directly follow one another in a batch enter the architecture together, as one event
//! ([`Ingress::Run`]), if it takes runs. [`StackConfig::runs`](crate::StackConfig::runs) switches that off.
//!
//! A run has the segments that the fast lane may predict. Any other segment ends it, and so does the end of the vector: a
//! run never waits for the next batch. What may never happen: an event of a flow is posted before a run of that flow
//! which arrived earlier.

use observe::Time;
use sync::Platform;
use wire::rss::Toeplitz;

use crate::arch::RunningArchitecture;
use crate::call::{ArrivingRun, Ingress};
use crate::deferred::DeferredEffects;

/// The run of a driver that is being collected.
#[derive(Default)]
pub(super) struct PendingRun {
    /// Runs are collected.
    enabled: bool,
    /// The segments so far; kept for its memory.
    run: ArrivingRun,
}

impl PendingRun {
    /// Collects runs from now on, or not. Call it between batches.
    pub(super) fn enable(&mut self, enabled: bool) {
        debug_assert!(self.is_empty(), "a run ends with its batch");
        self.enabled = enabled;
    }

    /// Whether no segment is waiting.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.run.segments.is_empty()
    }

    /// Whether a segment of the lane joins the run. `followed`: data of the same connection follows directly.
    #[inline(always)]
    pub(super) fn takes(&self, followed: bool) -> bool {
        !self.is_empty() || followed && self.enabled
    }

    /// Adds a segment, with the hash of its flow if the device has computed it. Its predecessor, if any, is of the same flow.
    ///
    /// Its place exists before it is made, and holds nothing to be dropped, so it is made there. Otherwise it would be made on
    /// the stack and moved, and a move right after the stores stalls.
    #[inline(always)]
    pub(super) fn push(&mut self, known: Option<u32>, rss: &Toeplitz, segment: impl FnOnce() -> tcp::Segment) {
        self.run.segments.push(None);
        if let Some(place) = self.run.segments.last_mut() {
            std::mem::forget(place.replace(segment()));
        }
        match known {
            Some(hash) => self.run.hash = hash,
            None => self.rehash(rss),
        }
    }

    /// Hashes the flow of segments that the device has not hashed.
    #[cold]
    fn rehash(&mut self, rss: &Toeplitz) {
        if let Some(Some(segment)) = self.run.segments.last() {
            self.run.hash = rss.hash_tcp(&segment.tuple);
        }
    }

    /// Posts the run.
    #[inline(never)]
    pub(super) fn post<P: Platform>(
        &mut self,
        active: &dyn RunningArchitecture<P>,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) {
        let mut ingress = Ingress::Run(std::mem::take(&mut self.run));
        active.post(&mut ingress, now, deferred);
        // It was run here, and not handed over.
        if let Ingress::Run(mut run) = ingress {
            run.segments.clear();
            self.run = run;
        }
    }

    /// Drops the segments: they have been counted as lost.
    #[cold]
    pub(super) fn clear(&mut self) {
        self.run.segments.clear();
    }
}
