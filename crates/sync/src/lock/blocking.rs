//! A lock whose waiters sleep.
//!
//! One word, three states (Drepper, "Futexes are tricky", section 6, mutex 2):
//!
//! | word | meaning | unlock |
//! |---|---|---|
//! | 0 `FREE` | free | |
//! | 1 `HELD` | held, no sleeper | store 0, done |
//! | 2 `SLEEPERS` | held, there may be sleepers | store 0, wake one |
//!
//! A woken thread takes the word to 2, not 1, because it cannot know whether it was the last sleeper.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::RawLock;
use crate::{Atomic, Platform, Real};

/// Sleeps at once when the lock is held.
pub struct Blocking<P: Platform = Real> {
    word: P::AtomicU32,
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const SLEEPERS: u32 = 2;

impl<P: Platform> Blocking<P> {
    /// Spins up to `bound` turns for the lock to be released, then sleeps until it is.
    pub(super) fn spin_then_sleep(&self, bound: u32) {
        for spins in 0..bound {
            match self.word.load(Relaxed) {
                FREE if self.try_lock() => return,
                // Other threads sleep already: a thread that spins now would only overtake them.
                SLEEPERS => break,
                _ => P::relax(spins),
            }
        }
        while self.word.swap(SLEEPERS, Acquire) != FREE {
            P::futex_wait(&self.word, SLEEPERS, None);
        }
    }
}

impl<P: Platform> RawLock for Blocking<P> {
    fn new() -> Self {
        Self { word: P::AtomicU32::new(FREE) }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    fn lock(&self) {
        self.spin_then_sleep(0);
    }

    #[inline(always)]
    fn unlock(&self) {
        if self.word.swap(FREE, Release) == SLEEPERS {
            wake_one::<P>(&self.word);
        }
    }
}

#[cold]
fn wake_one<P: Platform>(word: &P::AtomicU32) {
    P::futex_wake(word, 1);
}
