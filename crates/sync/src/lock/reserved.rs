//! A lock reserved for the one thread that uses it (Kawachiya, Koseki and Onodera 2002, "Lock reservation").
//!
//! For data that any thread may use, but usually one thread does: a stream's leftovers, the transmit queue of a stack
//! that one thread drives. After some acquisitions in a row the lock is *reserved* for the thread that made them. From
//! then on it takes the lock by a plain store and a check that the reservation is still valid, without a locked
//! instruction. Another thread takes the underlying word, ends the reservation with a heavy fence, and waits until the
//! former owner has left. So owner and newcomer are the two sides of [`Platform::light_fence`].
//!
//! | thread | takes | must find |
//! |---|---|---|
//! | the owner | `held`, by a store | the reservation valid, after a light fence |
//! | any other | `word` | the reservation ended, after a heavy fence, and `held` clear |
//!
//! Each ending doubles the acquisitions needed for the next reservation: two threads that share soon have a plain lock.
//! What may never happen: a thread enters by the word without having seen `held` clear after the reservation ended; a
//! second thread writes `held`. A former owner may have read the reservation and be interrupted before its store for
//! any length of time; its store would then clear the `held` of a second owner. So a lock is only ever reserved for the
//! first thread that it was reserved for.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::RawLock;
use super::blocking::Blocking;
use crate::{Atomic, Platform, Real};

/// Instead of an owner's index: the lock is not reserved.
const NO_THREAD: u32 = u32::MAX;
/// Initial number of acquisitions in a row by one thread after which it becomes the owner, as a power of two. One under
/// a checker, which explores the states that follow.
const FIRST_STREAK: u32 = 6;
/// The upper bound of that number.
const MOST_STREAK: u32 = 20;

/// See the head of this file.
pub struct Reserved<P: Platform = Real> {
    /// Index of the thread that the lock is reserved for.
    owner: P::AtomicU32,
    /// The owner is inside, or was about to enter when the reservation ended.
    held: P::AtomicBool,
    word: Blocking<P>,
    /// The holder acquired through the word. Written by the holder, as are the fields below.
    by_word: P::AtomicBool,
    /// The last thread that acquired through the word; from the first reservation on, the only thread of all
    /// reservations.
    candidate: P::AtomicU32,
    /// Acquisitions in a row by the candidate, the number needed as a power of two, and whether the candidate is settled.
    streak: P::AtomicU32,
}

/// Position of the exponent in [`Reserved::streak`].
const SHIFT: u32 = 24;
/// Mask of the count of acquisitions in it.
const COUNT: u32 = (1 << SHIFT) - 1;
/// The candidate is settled.
const FIXED: u32 = 1 << 31;

impl<P: Platform> Reserved<P> {
    /// The owner's fast path. False: the lock is not reserved for the calling thread, or that thread is already inside.
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

    /// Ends a reservation, with the word taken. Returns whether its owner is outside.
    fn end_reservation(&self) -> bool {
        if self.owner.load(Relaxed) != NO_THREAD {
            self.owner.store(NO_THREAD, Relaxed);
            let threshold_log2 = ((self.streak.load(Relaxed) & !FIXED) >> SHIFT) + 1;
            self.streak.store(FIXED | threshold_log2.min(MOST_STREAK) << SHIFT, Relaxed);
            P::heavy_fence();
        }
        !self.held.load(Acquire)
    }

    /// The calling thread has entered by the word.
    fn entered(&self) {
        self.by_word.store(true, Relaxed);
        let me = P::thread_index() as u32;
        let streak = self.streak.load(Relaxed);
        let (count, rest) = (streak & COUNT, streak & !COUNT);
        let count = if self.candidate.load(Relaxed) == me {
            // Exceeds the number needed only if the owner's fast path failed because `held` was set for a moment.
            (count + 1).min(COUNT)
        } else if rest & FIXED != 0 {
            0
        } else {
            self.candidate.store(me, Relaxed);
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
        if streak & COUNT >= 1 << ((streak & !FIXED) >> SHIFT) {
            self.streak.store(streak | FIXED, Relaxed);
            self.owner.store(self.candidate.load(Relaxed), Relaxed);
        }
        self.by_word.store(false, Relaxed);
        self.word.unlock();
    }
}

impl<P: Platform> RawLock for Reserved<P> {
    fn new() -> Self {
        Reserved {
            owner: P::AtomicU32::new(NO_THREAD),
            held: P::AtomicBool::new(false),
            word: Blocking::new(),
            by_word: P::AtomicBool::new(false),
            candidate: P::AtomicU32::new(NO_THREAD),
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
            // The former owner is inside: it holds no word to sleep on, and its critical sections are short.
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
