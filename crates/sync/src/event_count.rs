//! Waiting for "something has changed" without a lock around the something.
//!
//! A waiter takes a ticket, looks at the condition once more, and sleeps only if nothing was announced since it took
//! the ticket. An announcement that finds no waiter is one fence and one read: the line stays shared, producers do not
//! take it from each other. What may never happen: the waiter looks too early, the announcer looks too early, and
//! the waiter sleeps. Each side has a full fence between its write and its look, so one of them sees the other
//! (Dekker's argument).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

use crate::platform::model_is_over;
use crate::{Atomic, Platform, Real, lock_order, profile};

/// See the head of this file. Any number of threads may wait and announce.
pub struct EventCount<P: Platform = Real> {
    epoch: P::AtomicU32,
    waiters: P::AtomicU32,
}

/// A waiter that has announced itself. Look at the condition, then [`wait`](Self::wait) or drop.
#[must_use = "look at the condition again, then wait or drop"]
pub struct Listening<'a, P: Platform = Real> {
    events: &'a EventCount<P>,
    epoch: u32,
}

impl<P: Platform> EventCount<P> {
    /// Nobody waits, nothing has happened.
    pub fn new() -> Self {
        Self { epoch: P::AtomicU32::new(0), waiters: P::AtomicU32::new(0) }
    }

    /// Announces a waiter. What the caller reads after this is fresh: a change that it does not see will wake it.
    pub fn listen(&self) -> Listening<'_, P> {
        self.waiters.fetch_add(1, Relaxed);
        P::fence(SeqCst);
        Listening { events: self, epoch: self.epoch.load(Acquire) }
    }

    /// Sleeps until `ready` holds.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock (invariant G4).
    pub fn wait_until(&self, mut ready: impl FnMut() -> bool) {
        while !ready() {
            let listening = self.listen();
            if ready() {
                return;
            }
            listening.wait(None);
        }
    }

    /// Wakes one waiter, if there is any; returns whether there was. Call after publishing the change.
    #[inline]
    pub fn notify_one(&self) -> bool {
        self.notify(1)
    }

    /// Wakes every waiter; returns whether there was any. Call after publishing the change.
    #[inline]
    pub fn notify_all(&self) -> bool {
        self.notify(u32::MAX)
    }

    #[inline]
    fn notify(&self, n: u32) -> bool {
        P::fence(SeqCst);
        let needed = self.waiters.load(Relaxed) != 0;
        if needed {
            self.wake(n);
        }
        profile::wake::<P>(needed);
        needed
    }

    #[cold]
    fn wake(&self, n: u32) {
        self.epoch.fetch_add(1, Release);
        P::futex_wake(&self.epoch, n);
    }
}

impl<P: Platform> Default for EventCount<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> Listening<'_, P> {
    /// Sleeps until the next announcement since [`EventCount::listen`], at most `timeout`. May return early.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock (invariant G4).
    pub fn wait(self, timeout: Option<Duration>) {
        lock_order::assert_none_held::<P>("waiting for an event");
        P::futex_wait(&self.events.epoch, self.epoch, timeout);
    }
}

impl<P: Platform> Drop for Listening<'_, P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        self.events.waiters.fetch_sub(1, Relaxed);
    }
}
