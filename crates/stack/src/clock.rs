//! The clock a stack reads: the platform's, or one that a test or a simulation moves by hand.
//!
//! Protocol code is given `now` as an argument; this is where the argument comes from. Any thread may read it.

use std::sync::Arc;
use std::time::Duration;

use observe::Time;
use sync::{Atomic, Ordering, Platform};

/// A clock that moves only when it is told to: virtual time for tests.
pub struct VirtualClock<P: Platform> {
    nanos: P::AtomicU64,
}

impl<P: Platform> VirtualClock<P> {
    /// A clock that stands at `start`.
    pub fn new(start: Time) -> Arc<Self> {
        Arc::new(VirtualClock { nanos: P::AtomicU64::new(start.as_nanos()) })
    }

    /// The time it shows.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.nanos.load(Ordering::Acquire))
    }

    /// Moves it forward by `step`.
    pub fn advance(&self, step: Duration) {
        self.nanos.fetch_add(step.as_nanos() as u64, Ordering::AcqRel);
    }

    /// Moves it to `time`; a time in the past leaves it where it is.
    pub fn advance_to(&self, time: Time) {
        let behind = time.as_nanos().saturating_sub(self.nanos.load(Ordering::Acquire));
        self.nanos.fetch_add(behind, Ordering::AcqRel);
    }
}

/// Where a stack's `now` comes from.
#[derive(Clone)]
pub enum Clock<P: Platform> {
    /// The platform's monotonic clock.
    Platform,
    /// A clock moved by hand.
    Virtual(Arc<VirtualClock<P>>),
}

impl<P: Platform> Clock<P> {
    /// The time now. Costs a clock read on the real platform: the receive path reads it once for each batch.
    #[inline]
    pub fn now(&self) -> Time {
        match self {
            Clock::Platform => Time::from_nanos(P::now()),
            Clock::Virtual(clock) => clock.now(),
        }
    }

    /// Whether time passes by itself, so that sleeping until a deadline makes sense.
    pub fn passes(&self) -> bool {
        matches!(self, Clock::Platform)
    }
}
