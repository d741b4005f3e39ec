//! The null lock: never waits, and checks that no thread would have to.
//!
//! On a simulated machine with one processor it keeps that processor, and so excludes all other threads: the kernel for
//! one processor that the papers compare with ([`Platform::mask`]).
//!
//! For cells that the structure already limits to one thread at a time. It costs an uncontended test-and-set, because
//! without an atomic check an error would be undefined behaviour.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::RawLock;
use crate::{Atomic, Platform, Real};

/// A lock that refuses instead of waiting.
pub struct Null<P: Platform = Real> {
    held: P::AtomicU32,
}

impl<P: Platform> RawLock for Null<P> {
    fn new() -> Self {
        Self { held: P::AtomicU32::new(0) }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        P::mask();
        let taken = self.held.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        if !taken {
            P::unmask();
        }
        taken
    }

    /// # Panics
    /// If the lock is held.
    fn lock(&self) {
        assert!(
            self.try_lock(),
            "a lock of kind `null` is held by another user: this architecture shares a cell that it declares \
             private; choose a real lock kind, or keep the cell to one thread"
        );
    }

    #[inline(always)]
    fn unlock(&self) {
        self.held.store(0, Release);
        P::unmask();
    }
}
