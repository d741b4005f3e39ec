//! When the Internet layer next has work: one time for neighbours, fragments, path MTUs and addresses, and for memory
//! that the whole stack may give back.
//!
//! Each of them records its next deadline after a change; a receive thread checks the earliest once a batch. Any
//! thread.

use observe::Time;
use sync::{Atomic, ClaimLock, LockClass, LockKind, Ordering, Platform};

/// Period of the removal of expired path MTUs, and of the search for unused memory after a peak. Path MTUs live for ten
/// minutes.
const SWEEP_NS: u64 = 10_000_000_000;
/// How soon memory is looked for again while a part of it awaits that.
const AGAIN_NS: u64 = 1_000_000_000;

/// Where a new earliest deadline is recorded for the receive threads, which may have to be woken.
pub(crate) trait DeadlineEffect {
    /// Work for a receive thread is due at `nanos`.
    fn due_at(&mut self, nanos: u64);
}

/// See the head of the file.
#[repr(C)]
pub(crate) struct InternetDeadline<P: Platform> {
    /// In nanoseconds.
    earliest: P::AtomicU64,
    /// When memory is looked for next, in nanoseconds.
    trim: P::AtomicU64,
    /// Claimed by the thread that alone records deadlines, if there is one.
    writer: ClaimLock<(), P>,
}

impl<P: Platform> Default for InternetDeadline<P> {
    /// Only the sweep is scheduled.
    fn default() -> Self {
        let writer = ClaimLock::new(LockKind::Blocking, LockClass::Neighbours, ());
        InternetDeadline { earliest: P::AtomicU64::new(SWEEP_NS), trim: P::AtomicU64::new(SWEEP_NS), writer }
    }
}

impl<P: Platform> InternetDeadline<P> {
    /// Only the calling thread records deadlines from now on.
    pub(crate) fn claim(&self) {
        self.writer.claim();
    }

    /// Ends the calling thread's claim, if it has one.
    pub(crate) fn release_claim(&self) {
        self.writer.release_claim();
    }

    /// The earliest deadline.
    #[inline]
    pub(crate) fn get(&self) -> Time {
        Time::from_nanos(self.earliest.load(Ordering::Relaxed))
    }

    /// Records a deadline at which a receive thread must do work.
    pub(crate) fn note(&self, deadline: Option<Time>, deferred: &mut impl DeadlineEffect) {
        let Some(deadline) = deadline.map(Time::as_nanos) else { return };
        let mut seen = self.earliest.load(Ordering::Relaxed);
        if self.writer.is_claimed_here() && deadline < seen {
            self.earliest.store(deadline, Ordering::Relaxed);
            return deferred.due_at(deadline);
        }
        while deadline < seen {
            match self.earliest.compare_exchange_weak(seen, deadline, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return deferred.due_at(deadline),
                Err(other) => seen = other,
            }
        }
    }

    /// Resets the deadline after the work; remaining work is recorded again.
    pub(crate) fn start_again(&self, now: Time) {
        let trim = self.trim.load(Ordering::Relaxed);
        self.earliest.store(trim.max(now.as_nanos().saturating_add(1)), Ordering::Relaxed);
    }

    /// Whether the calling thread must look for memory to give back now. Others need not until the next time.
    pub(crate) fn takes_trim(&self, now: Time) -> bool {
        let (due, next) = (self.trim.load(Ordering::Relaxed), now.as_nanos().saturating_add(SWEEP_NS));
        due <= now.as_nanos() && self.trim.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Memory must be looked for again soon.
    pub(crate) fn trim_again(&self, now: Time, deferred: &mut impl DeadlineEffect) {
        let next = now.as_nanos().saturating_add(AGAIN_NS);
        self.trim.store(next, Ordering::Relaxed);
        self.note(Some(Time::from_nanos(next)), deferred);
    }
}
