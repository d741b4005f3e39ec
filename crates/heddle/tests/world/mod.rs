//! Two stacks on one link, on one thread, in virtual time: what happens is a function of the calls.

#![allow(dead_code)] // each test file uses its part

use std::sync::Arc;
use std::time::Duration;

use heddle::device::{Device, fault::Fault};
use heddle::{Polled, Stack, VirtualClock, mem};
use observe::Time;
use sync::Real;

pub const A: &str = "10.0.0.1";
pub const B: &str = "10.0.0.2";

const START: Time = Time::from_nanos(1_000_000_000);

pub struct World {
    pub clock: Arc<VirtualClock<Real>>,
    pub a: Stack,
    pub b: Stack,
    drivers: Vec<Polled>,
}

impl World {
    pub fn new(plan: stack::Plan) -> World {
        World::with(plan, |_| {}, Default::default())
    }

    pub fn with(plan: stack::Plan, tune: impl Fn(&mut heddle::config::Config), link: mem::MemConfig) -> World {
        let (left, right) = mem::pair(link);
        World::on(plan, tune, left, right, VirtualClock::new(START))
    }

    /// On a link with faults in both directions.
    pub fn lossy(plan: stack::Plan, faults: &str) -> World {
        let clock = VirtualClock::new(START);
        let (left, right) = mem::pair(Default::default());
        let [left, right] = [left, right].map(|device| {
            let plan = faults.parse().expect("a fault plan");
            let clock = clock.clone();
            Fault::new(Box::new(device), plan, move || clock.now())
        });
        World::on(plan, |_| {}, left, right, clock)
    }

    fn on<D: Device + 'static>(
        plan: stack::Plan,
        tune: impl Fn(&mut heddle::config::Config),
        left: D,
        right: D,
        clock: Arc<VirtualClock<Real>>,
    ) -> World {
        let mut config = heddle::config::Config::default();
        tune(&mut config);
        let build = |device: D, cidrs: [&str; 2], seed: u64| {
            let builder = Stack::builder().device(device, cidrs).plan(plan).cpus(2).own_threads(false);
            builder.tcp(config.clone()).seed(seed).clock(clock.clone()).build_polled().expect("the stack builds")
        };
        let (a, mut drivers) = build(left, ["10.0.0.1/24", "fd00::1/64"], 1);
        let (b, more) = build(right, ["10.0.0.2/24", "fd00::2/64"], 2);
        drivers.extend(more);
        World { clock, a, b, drivers }
    }

    /// Lets everything happen that happens at this moment.
    pub fn settle(&mut self) {
        while self.drivers.iter_mut().map(Polled::poll).sum::<usize>() > 0 {}
    }

    /// Lets `span` pass in steps of a millisecond.
    pub fn pass(&mut self, span: Duration) {
        self.settle();
        let mut left = span;
        while !left.is_zero() {
            let step = left.min(Duration::from_millis(1));
            self.clock.advance(step);
            self.settle();
            left -= step;
        }
    }

    pub fn drivers(&mut self) -> &mut [Polled] {
        &mut self.drivers
    }
}
