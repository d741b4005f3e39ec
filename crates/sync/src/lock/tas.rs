//! Test-and-set.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::RawLock;
use crate::{Atomic, Platform, Real};

/// Waiters test-and-set until they succeed, taking the cache line from the holder each time. Nahum et al. measured the
/// unfairness and traffic of this lock, so it does not back off. On [`Real`] a long spin yields (see
/// [`Platform::relax`]).
pub struct Tas<P: Platform = Real> {
    held: P::AtomicU32,
}

impl<P: Platform> RawLock for Tas<P> {
    fn new() -> Self {
        Self { held: P::AtomicU32::new(0) }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.held.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    fn lock(&self) {
        let mut spins = 0;
        // A failed compare-exchange takes the line as a swap does, and unlike a swap it adds no write that a release
        // could be ordered behind, so a model checker sees the loop end.
        while !self.try_lock() {
            P::relax(spins);
            spins = spins.saturating_add(1);
        }
    }

    #[inline(always)]
    fn unlock(&self) {
        self.held.store(0, Release);
    }
}
