//! A lock with waiters that spin for about the cost of a sleep, then sleep.

use super::RawLock;
use super::blocking::Blocking;
use crate::{Platform, Real};

/// [`Blocking`] with a spin before the sleep: at most twice the cost of the better of the two choices (Karlin et al.
/// 1991, "Empirical studies of competitive spinning").
pub struct SpinPark<P: Platform = Real>(Blocking<P>);

/// Turns before sleeping: a few microseconds, the order of a futex sleep and wake.
const SPINS: u32 = 300;

impl<P: Platform> RawLock for SpinPark<P> {
    fn new() -> Self {
        Self(Blocking::new())
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    fn lock(&self) {
        // On a checked platform each turn is a scheduling point: one check before sleeping explores the same races.
        self.0.spin_then_sleep(if P::EXPLORED { 1 } else { SPINS });
    }

    #[inline(always)]
    fn unlock(&self) {
        self.0.unlock();
    }
}
