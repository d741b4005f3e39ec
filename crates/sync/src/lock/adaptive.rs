//! A lock with waiters that spin while its holder is running and otherwise sleep: the adaptive mutex of Solaris and
//! FreeBSD.
//!
//! The word identifies the holder, so that a waiter can query whether that thread is running ([`Platform::runs`]):
//!
//! | word | meaning | unlock |
//! |---|---|---|
//! | 0 `FREE` | free | |
//! | `n + 1` | held by thread `n`, no sleeper | store 0, done |
//! | the same with bit 31, `SLEEPERS` | there may be sleepers | store 0, wake one |
//!
//! A thread that has slept takes the lock with `SLEEPERS` set, because it cannot know whether it was the last sleeper.
//! Newcomers may overtake sleepers and spinners: a thread that finds the word free takes it.
//!
//! On a platform with turnstiles ([`Platform::has_turnstiles`]) a waiter consults the queue for each holder that it waits
//! for, and sets `SLEEPERS` before it spins; a holder that finds it set consults the queue before it unlocks. FreeBSD's
//! kernel of 2006 did so (`_mtx_lock_sleep`).
//!
//! If the platform cannot tell whether a thread is running, as on a real machine without a system call, waiters spin
//! for a bounded time and then sleep, as in [`SpinPark`](super::spin_park::SpinPark), except that newcomers spin even
//! if there are sleepers.
//!
//! **Priorities.** With `LENDS`, a waiter that goes to sleep lends its priority to the holder until the holder unlocks
//! ([`Platform::lend`]), so that a thread of medium priority cannot block both (Sha, Rajkumar and Lehoczky 1990,
//! "Priority inheritance protocols"; turnstiles do this in both systems).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::RawLock;
use crate::{Atomic, Platform, Real};

/// See the head of the file.
pub struct Adaptive<P: Platform = Real, const LENDS: bool = false> {
    word: P::AtomicU32,
}

const FREE: u32 = 0;
const SLEEPERS: u32 = 1 << 31;

/// Turns before sleeping if it is unknown whether the holder is running: as [`SpinPark`](super::spin_park::SpinPark).
const SPINS: u32 = 300;

/// The word of a lock that the calling thread holds.
#[inline(always)]
fn mine<P: Platform>() -> u32 {
    // A thread without a number, at the end of its life, gets a truncated value.
    (P::thread_index() as u32 & (SLEEPERS / 2 - 1)) + 1
}

/// The thread that a word identifies; the word is not free.
fn holder(word: u32) -> usize {
    (word & !SLEEPERS) as usize - 1
}

impl<P: Platform, const LENDS: bool> Adaptive<P, LENDS> {
    /// Whether a waiter that has spun for `spins` turns continues, with the holder in `word`.
    fn spins_on(word: u32, spins: u32) -> bool {
        // A model checker must explore the sleep: after one turn of spinning, loom would run the holder first.
        let bound = if P::EXPLORED { 0 } else { SPINS };
        P::runs(holder(word)).unwrap_or(spins < bound)
    }

    /// Consults the queue and marks the lock. Returns the word of its holder without the mark; `FREE`: the lock was
    /// released, or its word changed meanwhile.
    #[cold]
    fn announce(&self) -> u32 {
        P::consult_turnstile(&self.word);
        let word = self.word.load(Relaxed);
        let marked = word | SLEEPERS;
        let is_marked =
            word == marked || word != FREE && self.word.compare_exchange(word, marked, Relaxed, Relaxed).is_ok();
        if is_marked { word & !SLEEPERS } else { FREE }
    }

    /// Sleeps until the holder in `word` unlocks, if the lock's word is still `word`.
    fn sleep(&self, word: u32) {
        let marked = word | SLEEPERS;
        if word != marked && self.word.compare_exchange(word, marked, Relaxed, Relaxed).is_err() {
            return;
        }
        if LENDS {
            P::lend(holder(word));
        }
        P::futex_wait(&self.word, marked, None);
    }
}

impl<P: Platform, const LENDS: bool> RawLock for Adaptive<P, LENDS> {
    fn new() -> Self {
        Self { word: P::AtomicU32::new(FREE) }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.word.compare_exchange(FREE, mine::<P>(), Acquire, Relaxed).is_ok()
    }

    fn lock(&self) {
        let (mut taken, mut spins) = (mine::<P>(), 0);
        // The word of the holder for which the queue was consulted, without the mark.
        let mut consulted = FREE;
        loop {
            match self.word.load(Relaxed) {
                FREE => {
                    if self.word.compare_exchange(FREE, taken, Acquire, Relaxed).is_ok() {
                        return;
                    }
                    consulted = FREE;
                }
                word if P::has_turnstiles() && word & !SLEEPERS != consulted => consulted = self.announce(),
                word if Self::spins_on(word, spins) => {
                    P::relax(spins);
                    spins += 1;
                }
                word => {
                    self.sleep(word);
                    (taken, spins) = (mine::<P>() | SLEEPERS, 0);
                }
            }
        }
    }

    #[inline(always)]
    fn unlock(&self) {
        if P::has_turnstiles() && self.word.load(Relaxed) & SLEEPERS != 0 {
            P::consult_turnstile(&self.word);
        }
        if self.word.swap(FREE, Release) & SLEEPERS != 0 {
            wake_one::<P, LENDS>(&self.word);
        }
    }
}

#[cold]
fn wake_one<P: Platform, const LENDS: bool>(word: &P::AtomicU32) {
    P::futex_wake(word, 1);
    // Not before: the thread that lent its priority would wait for this one to run at its own.
    if LENDS {
        P::repay();
    }
}
