//! A lock reserved for the one thread that uses it (Kawachiya, Koseki and Onodera 2002, "Lock reservation").
//!
//! For what may be used by any thread, and as a rule is used by one: a stream's leftovers, the transmit queue of a
//! stack that one thread drives. After some acquisitions in a row the thread that made them has the lock *reserved*:
//! from then on it says that it holds the lock with a plain store, and looks whether the reservation still stands; no
//! instruction locks the bus. Another thread takes the word behind, which it always could, ends the reservation with a
//! heavy fence, and waits until its former owner is out. So owner and newcomer are the two sides of
//! [`Platform::light_fence`].
//!
//! | thread | takes | must find |
//! |---|---|---|
//! | the owner | `held`, by a store | the reservation standing, after a light fence |
//! | any other | `word` | the reservation ended, after a heavy fence, and `held` clear |
//!
//! Each ending doubles the acquisitions that it takes to reserve again: two threads that share soon have a plain lock.
//! What may never happen: a thread that goes in by the word while `held` was not seen clear after the reservation
//! ended; a second thread that writes `held`. A former owner may have read the reservation and not have stored yet,
//! however long ago that was; it would then clear the `held` of the other. So a lock is only ever reserved for the
//! first thread it was reserved for.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::RawLock;
use super::blocking::Blocking;
use crate::{Atomic, Platform, Real};

/// Instead of an owner's index: the lock is not reserved.
const NOBODY: u32 = u32::MAX;
/// Acquisitions in a row by one thread after which it is the owner, as a power of two, at first. One under a checker:
/// it explores what follows.
const FIRST_STREAK: u32 = 6;
/// The upper bound of the same.
const MOST_STREAK: u32 = 20;

/// See the head of this file.
pub struct Reserved<P: Platform = Real> {
    /// Index of the thread that need not take the word.
    owner: P::AtomicU32,
    /// The owner is in, or was about to be when the reservation ended.
    held: P::AtomicBool,
    word: Blocking<P>,
    /// The holder acquired through the word. Written by the holder, as are the fields below.
    by_word: P::AtomicBool,
    /// The last thread that acquired through the word; from the first reservation on, the thread that it and all later
    /// ones are for.
    heir: P::AtomicU32,
    /// How many times in a row the heir came, how many it takes as a power of two, and whether the heir is settled.
    streak: P::AtomicU32,
}

/// Where the patience stands in [`Reserved::streak`].
const SHIFT: u32 = 24;
/// Where the count of acquisitions stands in it.
const COUNT: u32 = (1 << SHIFT) - 1;
/// The heir is settled.
const SETTLED: u32 = 1 << 31;

impl<P: Platform> Reserved<P> {
    /// The owner's way in. False: the lock is not reserved for the calling thread any more, or was not, or it is in
    /// already.
    #[inline(always)]
    fn enter_as_owner(&self) -> bool {
        let me = P::known_thread_index();
        if self.owner.load(Relaxed) as usize != me || self.held.load(Relaxed) {
            return false;
        }
        self.held.store(true, Relaxed);
        P::light_fence();
        if self.owner.load(Relaxed) as usize == me {
            return true;
        }
        self.held.store(false, Release);
        false
    }

    /// The word has been taken: ends a reservation. Whether its owner is out.
    fn end_reservation(&self) -> bool {
        if self.owner.load(Relaxed) != NOBODY {
            self.owner.store(NOBODY, Relaxed);
            let patience = ((self.streak.load(Relaxed) & !SETTLED) >> SHIFT) + 1;
            self.streak.store(SETTLED | patience.min(MOST_STREAK) << SHIFT, Relaxed);
            P::heavy_fence();
        }
        !self.held.load(Acquire)
    }

    /// The calling thread is in, by the word.
    fn entered(&self) {
        self.by_word.store(true, Relaxed);
        let me = P::thread_index() as u32;
        let streak = self.streak.load(Relaxed);
        let (count, rest) = (streak & COUNT, streak & !COUNT);
        let count = if self.heir.load(Relaxed) == me {
            // More than the patience only where the owner's way was missed: `held` was not clear for a moment.
            (count + 1).min(COUNT)
        } else if rest & SETTLED != 0 {
            0
        } else {
            self.heir.store(me, Relaxed);
            1
        };
        self.streak.store(rest | count, Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn try_word(&self) -> bool {
        if !self.word.try_lock() {
            return false;
        }
        if !self.end_reservation() {
            self.word.unlock();
            return false;
        }
        self.entered();
        true
    }

    #[cold]
    #[inline(never)]
    fn leave_word(&self) {
        let streak = self.streak.load(Relaxed);
        if streak & COUNT >= 1 << ((streak & !SETTLED) >> SHIFT) {
            self.streak.store(streak | SETTLED, Relaxed);
            self.owner.store(self.heir.load(Relaxed), Relaxed);
        }
        self.by_word.store(false, Relaxed);
        self.word.unlock();
    }
}

impl<P: Platform> RawLock for Reserved<P> {
    fn new() -> Self {
        Reserved {
            owner: P::AtomicU32::new(NOBODY),
            held: P::AtomicBool::new(false),
            word: Blocking::new(),
            by_word: P::AtomicBool::new(false),
            heir: P::AtomicU32::new(NOBODY),
            streak: P::AtomicU32::new(if P::EXPLORED { 0 } else { FIRST_STREAK << SHIFT }),
        }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.enter_as_owner() || self.try_word()
    }

    fn lock(&self) {
        self.word.lock();
        let mut spins = 0;
        while !self.end_reservation() {
            // The former owner is in: it took no word to sleep on, and what it does is short.
            P::relax(spins);
            spins = spins.saturating_add(1);
        }
        self.entered();
    }

    #[inline(always)]
    fn unlock(&self) {
        if self.by_word.load(Relaxed) { self.leave_word() } else { self.held.store(false, Release) }
    }
}
