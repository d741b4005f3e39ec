//! Test-and-test-and-set.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::RawLock;
use crate::{Atomic, Platform, Real};

/// Waiters read their own copy of the line until the holder's release takes it away, and only then swap.
pub struct Ttas<P: Platform = Real> {
    held: P::AtomicU32,
}

impl<P: Platform> RawLock for Ttas<P> {
    fn new() -> Self {
        Self { held: P::AtomicU32::new(0) }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.held.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    fn lock(&self) {
        let mut spins = 0;
        while self.held.load(Relaxed) != 0 || self.held.swap(1, Acquire) != 0 {
            P::relax(spins);
            spins = spins.saturating_add(1);
        }
    }

    #[inline(always)]
    fn unlock(&self) {
        self.held.store(0, Release);
    }
}
