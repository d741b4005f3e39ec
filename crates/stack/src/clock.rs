//! The clock a stack reads: the platform's, or one that a test or a simulation moves by hand.
//!
//! Protocol code receives `now` as an argument; this is its source. Any thread may read it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use observe::Time;
use sync::{Atomic, Ordering, PerThread, Platform};

/// A clock that moves only when it is advanced: virtual time for tests.
pub struct VirtualClock<P: Platform> {
    nanos: P::AtomicU64,
}

impl<P: Platform> fmt::Debug for VirtualClock<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualClock").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl<P: Platform> VirtualClock<P> {
    /// A clock that shows `start`.
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

/// The platform's clock, which can be stopped. While it is stopped no time passes for the stack, so a stack that rests
/// between two phases of a measurement keeps its timers unchanged.
pub struct StoppableClock<P: Platform> {
    /// Offset subtracted from the platform's time.
    behind: P::AtomicU64,
    /// The time shown while it is stopped; 0 while it runs.
    standing: P::AtomicU64,
}

impl<P: Platform> fmt::Debug for StoppableClock<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoppableClock").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl<P: Platform> StoppableClock<P> {
    /// A clock that runs.
    pub fn new() -> Arc<Self> {
        Arc::new(StoppableClock { behind: P::AtomicU64::new(0), standing: P::AtomicU64::new(0) })
    }

    /// The time it shows.
    #[inline]
    pub fn now(&self) -> Time {
        match self.standing.load(Ordering::Acquire) {
            0 => Time::from_nanos(P::now().saturating_sub(self.behind.load(Ordering::Relaxed))),
            standing => Time::from_nanos(standing),
        }
    }

    /// Stops it. Called by one controlling thread.
    pub fn stop(&self) {
        self.standing.store(self.now().as_nanos().max(1), Ordering::Release);
    }

    /// Continues from the time at which it was stopped.
    pub fn go_on(&self) {
        let standing = self.standing.load(Ordering::Acquire);
        if standing != 0 {
            self.behind.store(P::now().saturating_sub(standing), Ordering::Relaxed);
            self.standing.store(0, Ordering::Release);
        }
    }
}

/// Where a stack's `now` comes from.
#[derive(Clone)]
pub enum Clock<P: Platform> {
    /// The platform's monotonic clock.
    Platform,
    /// A clock moved by hand.
    Virtual(Arc<VirtualClock<P>>),
    /// The platform's clock, which can be stopped.
    Stoppable(Arc<StoppableClock<P>>),
}

impl<P: Platform> Clock<P> {
    /// The time now. Costs a clock read on the real platform: the receive path reads it once for each batch.
    #[inline]
    pub fn now(&self) -> Time {
        match self {
            Clock::Platform => Time::from_nanos(P::now()),
            Clock::Virtual(clock) => clock.now(),
            Clock::Stoppable(clock) => clock.now(),
        }
    }

    /// Whether time passes by itself, so that sleeping until a deadline makes sense.
    pub fn passes(&self) -> bool {
        !matches!(self, Clock::Virtual(_))
    }
}

/// The clock's reading before the latest batch of one thread, in nanoseconds; 0: it does not poll.
pub(crate) struct BatchTime<P: Platform>(P::AtomicU64);

impl<P: Platform> Default for BatchTime<P> {
    fn default() -> Self {
        BatchTime(P::AtomicU64::new(0))
    }
}

/// A stack's clock, and its reading when the calling thread took its latest batch. Each thread has its own: a word for all
/// would be a cache line that every batch of every thread writes.
pub struct BatchClock<'a, P: Platform> {
    clock: &'a Clock<P>,
    /// Spares a clock read for each segment.
    batch: &'a PerThread<BatchTime<P>, P>,
}

impl<'a, P: Platform> BatchClock<'a, P> {
    /// Of these two.
    #[inline(always)]
    pub(crate) fn new(clock: &'a Clock<P>, batch: &'a PerThread<BatchTime<P>, P>) -> Self {
        BatchClock { clock, batch }
    }

    /// See [`Clock::now`].
    #[inline]
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Time of the calling thread's batch; the time now, if it does not poll.
    #[inline]
    pub fn batch_now(&self) -> Time {
        if !self.clock.passes() {
            return self.clock.now();
        }
        match self.batch.here().0.load(Ordering::Relaxed) {
            0 => self.clock.now(),
            batch => Time::from_nanos(batch),
        }
    }

    /// The calling thread starts a batch at `now`.
    #[inline]
    pub(crate) fn begin_batch(&self, now: Time) {
        self.batch.here().0.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// The calling thread stops polling for a while.
    pub(crate) fn end_batches(&self) {
        self.batch.here().0.store(0, Ordering::Relaxed);
    }
}
