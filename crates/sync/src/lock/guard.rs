//! The guard: proof that its thread holds the lock, and access to the value.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::Lock;
use crate::lock_class::class;
use crate::lock_order::{self, LockIndex};
use crate::platform::model_is_over;
use crate::{CellLike, LockStep, Platform, Real, profile};

/// Exclusive use of a [`Lock`]'s value; dropping it releases the lock, also while a panic unwinds.
///
/// Not `Send`: the counters and the lock order belong to the thread that took the lock.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard<'a, T, P: Platform = Real, C = class::Unstated> {
    pub(crate) lock: &'a Lock<T, P, C>,
    pub(crate) index: LockIndex,
    /// When the lock was obtained, if it is timed; 0 if not.
    since: u64,
    _stays_on_its_thread: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: Sync, P: Platform, C> Sync for Guard<'_, T, P, C> {}

impl<'a, T, P: Platform, C> Guard<'a, T, P, C> {
    /// Wraps a lock that the caller has just obtained, and counts it.
    #[inline(always)]
    pub(super) fn enter(lock: &'a Lock<T, P, C>, index: LockIndex) -> Self {
        lock_order::acquired::<P>(lock.class, index);
        lock.tell(LockStep::Takes);
        if let Some(counters) = P::lock_counters() {
            counters.acquired(lock.class);
        }
        let since = if profile::is_timed::<P>() { P::now() } else { 0 };
        Self { lock, index, since, _stays_on_its_thread: PhantomData }
    }

    #[cold]
    fn count_hold(&self) {
        if let Some(counters) = P::lock_counters() {
            counters.held(self.lock.class, P::now().saturating_sub(self.since));
        }
    }
}

impl<T, P: Platform, C> Deref for Guard<'_, T, P, C> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard's thread holds the lock, so no other reference to the value exists but those borrowed from
        // this guard.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T, P: Platform, C> DerefMut for Guard<'_, T, P, C> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes this borrow the only one.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T, P: Platform, C> Drop for Guard<'_, T, P, C> {
    #[inline]
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        if self.since != 0 {
            self.count_hold();
        }
        self.lock.tell(LockStep::Releases);
        // Read before: the next holder may free the lock (`CountedRef`).
        let class = self.lock.class;
        self.lock.raw.unlock();
        lock_order::released::<P>(class, self.index);
    }
}

impl<T: fmt::Debug, P: Platform, C> fmt::Debug for Guard<'_, T, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
