//! One permit, one sleeper: a worker thread waits for work.
//!
//! | word | meaning | `unpark` makes it | `park` makes it |
//! |---|---|---|---|
//! | 0 `EMPTY` | no permit, no sleeper | `PERMIT` | `ASLEEP` |
//! | 1 `PERMIT` | a permit waits | `PERMIT` | `EMPTY`, returns |
//! | 2 `ASLEEP` | the owner sleeps | `PERMIT`, wakes it | |
//!
//! `unpark` swaps, so that the `park` that takes the permit sees everything that earlier calls of `unpark` published.
//! It enters the kernel only if the owner has announced that it sleeps. What may never happen: a permit is given and
//! the owner stays asleep; or two threads park on one parker and share one permit.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;

use crate::{Atomic, Platform, Real, lock_order, profile};

const EMPTY: u32 = 0;
const PERMIT: u32 = 1;
const ASLEEP: u32 = 2;

/// A sleeping place for one thread. See the head of this file.
pub struct Parker<P: Platform = Real> {
    word: P::AtomicU32,
    /// Written only by wakers that enter the kernel anyway.
    wakes_sent: P::AtomicU64,
}

impl<P: Platform> Parker<P> {
    /// A parker without a permit.
    pub fn new() -> Self {
        Self { word: P::AtomicU32::new(EMPTY), wakes_sent: P::AtomicU64::new(0) }
    }

    /// Takes the permit, sleeping until there is one, at most `timeout`. True if a permit was taken; false after the
    /// timeout, and sometimes before it: a caller with a deadline checks its clock.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock (invariant G4) or another thread is parked here.
    pub fn park(&self, timeout: Option<Duration>) -> bool {
        lock_order::assert_none_held::<P>("parking");
        match self.word.compare_exchange(EMPTY, ASLEEP, Acquire, Acquire) {
            Ok(_) => {}
            Err(found) => {
                debug_assert_ne!(found, ASLEEP, "two threads park on one parker; give each thread its own");
                return self.word.swap(EMPTY, Acquire) == PERMIT;
            }
        }
        loop {
            P::futex_wait(&self.word, ASLEEP, timeout);
            if self.word.load(Relaxed) == PERMIT || timeout.is_some() {
                return self.word.swap(EMPTY, Acquire) == PERMIT;
            }
        }
    }

    /// Gives the permit, waking the owner if it sleeps. Permits do not add up. Returns whether it had to be woken.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the stack (invariant G4).
    pub fn unpark(&self) -> bool {
        lock_order::assert_only_users_held::<P>("waking a thread");
        self.ring()
    }

    /// [`unpark`](Self::unpark) by a device, as a network interface raises an interrupt: frames are handed to a device
    /// inside the guards that order them, and it is the device that wakes their receiver.
    pub fn ring(&self) -> bool {
        let asleep = self.word.swap(PERMIT, AcqRel) == ASLEEP;
        if asleep {
            P::futex_wake(&self.word, 1);
            self.wakes_sent.fetch_add(1, Relaxed);
        }
        profile::wake::<P>(asleep);
        asleep
    }

    /// How many calls of [`unpark`](Self::unpark) had to wake the owner. The others are counted per waking thread,
    /// which is cheap: see [`profile::handoffs`](crate::profile::handoffs).
    pub fn wakes_sent(&self) -> u64 {
        self.wakes_sent.load(Relaxed)
    }
}

impl<P: Platform> Default for Parker<P> {
    fn default() -> Self {
        Self::new()
    }
}
