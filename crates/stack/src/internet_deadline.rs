//! When the Internet layer next has work: one time for neighbours, fragments, path MTUs and addresses.
//!
//! Each of them records its next deadline after a change; a receive thread checks the earliest once a batch. Any
//! thread.

use observe::Time;
use sync::{Atomic, Ordering, Platform};

use crate::deferred::DeferredEffects;

/// How often expired path MTUs are removed. They live for ten minutes.
const PATH_MTU_SWEEP_NS: u64 = 60_000_000_000;

/// See the head of the file.
pub(crate) struct InternetDeadline<P: Platform> {
    /// In nanoseconds.
    earliest: P::AtomicU64,
}

impl<P: Platform> Default for InternetDeadline<P> {
    /// Only the sweep of path MTUs is scheduled.
    fn default() -> Self {
        InternetDeadline { earliest: P::AtomicU64::new(PATH_MTU_SWEEP_NS) }
    }
}

impl<P: Platform> InternetDeadline<P> {
    /// The earliest deadline.
    #[inline]
    pub(crate) fn get(&self) -> Time {
        Time::from_nanos(self.earliest.load(Ordering::Relaxed))
    }

    /// Records a deadline at which a receive thread must do work.
    pub(crate) fn note(&self, deadline: Option<Time>, deferred: &mut DeferredEffects<P>) {
        let Some(deadline) = deadline.map(Time::as_nanos) else { return };
        let mut seen = self.earliest.load(Ordering::Relaxed);
        while deadline < seen {
            match self.earliest.compare_exchange_weak(seen, deadline, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return deferred.due(deadline),
                Err(other) => seen = other,
            }
        }
    }

    /// Resets the deadline after the work; remaining work is recorded again.
    pub(crate) fn start_again(&self, now: Time) {
        self.earliest.store(now.as_nanos().saturating_add(PATH_MTU_SWEEP_NS), Ordering::Relaxed);
    }
}
