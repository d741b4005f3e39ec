//! The turns of the hosts of a test, in virtual time: drivers are polled, and whatever forwards frames between the hosts,
//! and time advances from one deadline to the next.

use std::sync::Arc;
use std::time::Duration;

use observe::{CounterSnapshot, Time};
use stack::{Driver, VirtualClock};
use sync::{Platform, Real};

use crate::node::START;

/// The minimum advance of time, so that a deadline that is never met cannot stop the clock.
const LEAST_STEP: Duration = Duration::from_micros(50);
/// The most steps in a row with a deadline in the past.
const OVERDUE: u32 = 100;

/// What forwards frames between hosts, such as bridges.
pub trait Forwards {
    /// Forwards the frames that have come; returns how many.
    fn poll(&mut self, now: Time) -> usize;
    /// When it next has work without a frame; [`Time::MAX`]: never.
    fn next_deadline(&self) -> Time;
}

/// Links alone connect the hosts.
impl Forwards for () {
    fn poll(&mut self, _: Time) -> usize {
        0
    }

    fn next_deadline(&self) -> Time {
        Time::MAX
    }
}

/// See the head of this file.
pub struct Turns<P: Platform = Real, F = ()> {
    /// The clock of all.
    pub clock: Arc<VirtualClock<P>>,
    /// Those that are polled.
    pub drivers: Vec<Driver<P>>,
    /// What is between the hosts.
    pub between: F,
    /// Steps in a row that found a deadline in the past.
    overdue: u32,
}

impl<P: Platform> Turns<P> {
    /// From [`START`], with nothing to poll yet.
    pub fn new() -> Turns<P> {
        Turns { clock: VirtualClock::new(START), drivers: Vec::new(), between: (), overdue: 0 }
    }

    /// With this between the hosts.
    pub fn with<F: Forwards>(self, between: F) -> Turns<P, F> {
        Turns { clock: self.clock, drivers: self.drivers, between, overdue: self.overdue }
    }
}

impl<P: Platform> Default for Turns<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform, F: Forwards> Turns<P, F> {
    /// Runs everything that is due at this moment.
    pub fn settle(&mut self) {
        loop {
            let now = self.clock.now();
            if self.drivers.iter_mut().map(Driver::poll).sum::<usize>() + self.between.poll(now) == 0 {
                return;
            }
        }
    }

    /// Advances the clock by `span`.
    pub fn pass(&mut self, span: Duration) {
        let end = self.clock.now() + span;
        self.settle();
        while self.clock.now() < end {
            self.step(end);
        }
    }

    /// Advances time to the next deadline, or to `end`, and runs the timers that are due.
    ///
    /// # Panics
    /// If deadlines in the past are not met.
    pub fn step(&mut self, end: Time) {
        let next = self.drivers.iter().map(Driver::next_deadline).chain([self.between.next_deadline()]).min();
        let now = self.clock.now();
        // A deadline in the past that is not met would keep a driver from ever sleeping.
        self.overdue = if next.is_some_and(|next| next < now) { self.overdue + 1 } else { 0 };
        assert!(self.overdue < OVERDUE, "a deadline at {next:?} is not met at {now:?}");
        let next = next.map_or(end, |next| next.max(now + LEAST_STEP));
        self.clock.advance_to(next.min(end));
        self.settle();
    }

    /// The drivers' counters: frames that reached no connection.
    pub fn drivers_counters(&self) -> CounterSnapshot {
        let mut sum = CounterSnapshot::default();
        self.drivers.iter().for_each(|driver| sum.absorb(driver.counters()));
        sum
    }
}
