//! A condition variable for [`Lock`](crate::Lock): the mutex-and-condvar message queue that ConnP-T was built on.
//!
//! A waiter counts itself while it still holds the lock. A thread that changes the condition under the same lock
//! therefore either runs first, and the waiter sees the change, or runs later, and sees the waiter; a notification that
//! finds none costs one read. What may never happen: the condition changed without the lock.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

use crate::{Atomic, Guard, Platform, Real, lock_order, profile};

/// See the head of this file.
pub struct Condvar<P: Platform = Real> {
    epoch: P::AtomicU32,
    waiters: P::AtomicU32,
}

impl<P: Platform> Condvar<P> {
    /// No thread waits.
    pub fn new() -> Self {
        Self { epoch: P::AtomicU32::new(0), waiters: P::AtomicU32::new(0) }
    }

    /// Releases the lock, sleeps until notified, takes the lock again. May wake spuriously: loop on the condition, or
    /// use [`wait_while`](Self::wait_while).
    pub fn wait<'a, T>(&self, guard: Guard<'a, T, P>) -> Guard<'a, T, P> {
        self.sleep(guard, None)
    }

    /// As [`wait`](Self::wait), sleeping at most `timeout`. May return early: check the condition and the clock.
    pub fn wait_timeout<'a, T>(&self, guard: Guard<'a, T, P>, timeout: Duration) -> Guard<'a, T, P> {
        self.sleep(guard, Some(timeout))
    }

    /// Waits as long as `blocked` holds.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: Guard<'a, T, P>,
        mut blocked: impl FnMut(&mut T) -> bool,
    ) -> Guard<'a, T, P> {
        while blocked(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    fn sleep<'a, T>(&self, guard: Guard<'a, T, P>, timeout: Option<Duration>) -> Guard<'a, T, P> {
        let (lock, index) = (guard.lock, guard.index);
        self.waiters.fetch_add(1, Relaxed);
        let epoch = self.epoch.load(Relaxed);
        drop(guard);
        lock_order::assert_only_users_held::<P>("waiting for a condition");
        P::futex_wait(&self.epoch, epoch, timeout);
        self.waiters.fetch_sub(1, Relaxed);
        match index {
            Some(index) => lock.lock_nested(index),
            None => lock.lock(),
        }
    }

    /// Wakes one waiter, if there is any. Call after changing the condition under the lock; the lock may have been
    /// released since, which spares the woken thread a second wait.
    pub fn notify_one(&self) -> bool {
        self.notify(1)
    }

    /// Wakes every waiter. Call as [`notify_one`](Self::notify_one).
    pub fn notify_all(&self) -> bool {
        self.notify(u32::MAX)
    }

    fn notify(&self, n: u32) -> bool {
        let needed = self.waiters.load(Relaxed) != 0;
        if needed {
            self.epoch.fetch_add(1, Release);
            P::futex_wake(&self.epoch, n);
        }
        profile::wake::<P>(needed);
        needed
    }
}

impl<P: Platform> Default for Condvar<P> {
    fn default() -> Self {
        Self::new()
    }
}
