//! Ticket lock: first come, first served.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::RawLock;
use crate::{Atomic, Platform, Real};

/// Draw a ticket, wait until it is served (Mellor-Crummey and Scott 1991, section 2.2). Numbers wrap; fewer than 2^32
/// threads wait at a time.
pub struct Ticket<P: Platform = Real> {
    next: P::AtomicU32,
    serving: P::AtomicU32,
}

/// Turns that a waiter spins while it is next in line. Those behind it yield at once: with fewer processors than
/// threads, a spinning queue could keep the next thread from running.
const SPINS_WHEN_NEXT: u32 = 400;

impl<P: Platform> Ticket<P> {
    /// How many threads wait, a moment ago.
    pub fn queued(&self) -> u32 {
        let serving = self.serving.load(Acquire);
        self.next.load(Relaxed).wrapping_sub(serving).saturating_sub(1)
    }
}

impl<P: Platform> RawLock for Ticket<P> {
    fn new() -> Self {
        Self { next: P::AtomicU32::new(0), serving: P::AtomicU32::new(0) }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        let serving = self.serving.load(Acquire);
        // Succeeds only if no thread has drawn a ticket since: no waiter is overtaken. The Acquire above synchronises
        // with the last holder; drawing a ticket does not.
        self.next.compare_exchange(serving, serving.wrapping_add(1), Relaxed, Relaxed).is_ok()
    }

    fn lock(&self) {
        let mine = self.next.fetch_add(1, Relaxed);
        let mut spins = 0;
        loop {
            let ahead = mine.wrapping_sub(self.serving.load(Acquire));
            if ahead == 0 {
                return;
            }
            if ahead == 1 && spins < SPINS_WHEN_NEXT {
                P::relax(spins);
                spins += 1;
            } else {
                P::yield_now();
            }
        }
    }

    #[inline(always)]
    fn unlock(&self) {
        // Only the holder writes `serving`, so a load and a store do.
        self.serving.store(self.serving.load(Relaxed).wrapping_add(1), Release);
    }
}
