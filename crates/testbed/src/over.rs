//! A platform that differs from another in how it sleeps and where it counts locks.
//!
//! The model checkers' platforms are fixed; a test that needs one of them without time-outs, or with a lock profile,
//! defines a [`Variant`]. [`Patient`] is the one that most models use.

use std::marker::PhantomData;
use std::time::Duration;

use sync::profile::ThreadCounters;
use sync::{NoDoorbell, Platform};

/// The differences of a platform from the one below.
pub trait Variant: Copy + Clone + Default + std::fmt::Debug + Send + Sync + 'static {
    /// A sleeping thread is woken by another thread or never. On shuttle's own platform a sleep with a time limit may
    /// end at once, which is permitted; but then a thread recovers from a lost wake-up by polling, and the loss does
    /// not show.
    const WITHOUT_TIMEOUTS: bool = false;

    /// Where the calling thread counts locks.
    fn lock_counters() -> Option<&'static ThreadCounters> {
        None
    }
}

/// The variant without time-outs.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTimeouts;

impl Variant for NoTimeouts {
    const WITHOUT_TIMEOUTS: bool = true;
}

/// The platform `P`, on which a sleeping thread is woken by another thread or never, so that a lost wake-up shows.
pub type Patient<P> = Variation<P, NoTimeouts>;

/// The platform `P` with the manner `M`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Variation<P, M>(PhantomData<(P, M)>);

impl<P: Platform, M: Variant> Platform for Variation<P, M> {
    sync::forward_platform!(P: atomics cells join spawn spin now random thread runs priority fences held);

    type Doorbell = NoDoorbell<Self>;

    fn futex_wait(atom: &Self::AtomicU32, expected: u32, timeout: Option<Duration>) {
        P::futex_wait(atom, expected, timeout.filter(|_| !M::WITHOUT_TIMEOUTS));
    }
    fn futex_wake(atom: &Self::AtomicU32, n: u32) {
        P::futex_wake(atom, n);
    }
    fn lock_counters() -> Option<&'static ThreadCounters> {
        M::lock_counters()
    }
}
