//! Two stacks on one link, on one thread, in virtual time: what happens is a function of the calls.
//!
//! Time jumps from one thing that is to happen to the next. It stands still while frames move: a link without delay
//! takes no time at all.

#![allow(dead_code)] // each test file uses its part

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use heddle::config::Config;
use heddle::device::Device;
use heddle::device::fault::{Fault, FaultPlan};
use heddle::device::pcap::Tap;
use heddle::{Interface, Polled, Stack, VirtualClock, mem};
use observe::{CounterSnapshot, Counters, Time};
use sync::Real;

pub const A: &str = "10.0.0.1";
pub const B: &str = "10.0.0.2";

const START: Time = Time::from_nanos(1_000_000_000);
/// Time passes by this much at least, so that a deadline that is never met cannot stop the clock.
const LEAST_STEP: Duration = Duration::from_micros(50);
/// So many steps may find a deadline in the past.
const OVERDUE: u32 = 100;

/// What a world is like.
pub struct Terms {
    /// Architectures of `a` and of `b`.
    pub plans: [stack::Plan; 2],
    pub tcp: Config,
    pub link: mem::MemConfig,
    /// Faults of `a`'s device, whose directions are those of the link.
    pub faults: FaultPlan,
    pub seeds: [u64; 2],
    /// Where to record what crosses `a`'s device.
    pub recorder: Option<Box<dyn Write + Send>>,
}

impl Terms {
    pub fn new(plans: [stack::Plan; 2]) -> Terms {
        let (tcp, link, faults) = (Config::default(), mem::MemConfig::default(), FaultPlan::default());
        Terms { plans, tcp, link, faults, seeds: [1, 2], recorder: None }
    }
}

pub struct World {
    pub clock: Arc<VirtualClock<Real>>,
    pub a: Stack,
    pub b: Stack,
    /// What the fault device counted.
    faults: Option<Arc<Counters>>,
    /// Those of `a` first, one for each of its queue pairs.
    drivers: Vec<Polled>,
    /// Queue pairs of each device.
    queues: usize,
    /// Drivers that nobody polls any more.
    silent: Vec<Polled>,
    /// Steps in a row that found a deadline in the past.
    overdue: u32,
}

impl World {
    pub fn new(plan: stack::Plan) -> World {
        World::on(Terms::new([plan; 2]))
    }

    pub fn with(plan: stack::Plan, tune: impl Fn(&mut Config), link: mem::MemConfig) -> World {
        let mut terms = Terms { link, ..Terms::new([plan; 2]) };
        tune(&mut terms.tcp);
        World::on(terms)
    }

    /// On a link with faults in both directions.
    pub fn lossy(plan: stack::Plan, faults: &str) -> World {
        World::on(Terms { faults: faults.parse().expect("a fault plan"), ..Terms::new([plan; 2]) })
    }

    pub fn on(terms: Terms) -> World {
        let clock = VirtualClock::new(START);
        let queues = terms.link.queues;
        let (left, right) = mem::pair(terms.link);
        let mut left: Box<dyn Device> = Box::new(left);
        let mut faults = None;
        if terms.faults != FaultPlan::default() {
            let time = clock.clone();
            let device = Fault::new(left, terms.faults, move || time.now());
            faults = device.counters();
            left = Box::new(device);
        }
        if let Some(recorder) = terms.recorder {
            let time = clock.clone();
            left = Box::new(Tap::<Real>::on_platform(left, recorder, move || time.now(), 0));
        }
        let build = |device: Box<dyn Device>, cidrs: [&str; 2], end: usize| {
            let builder = Stack::builder()
                .interface(Interface::new(device).addresses(cidrs).expect("addresses"))
                .plan(terms.plans[end])
                .cpus(2)
                .own_threads(false);
            let builder = builder.tcp(terms.tcp.clone()).seed(terms.seeds[end]).clock(clock.clone());
            builder.build_polled().expect("the stack builds")
        };
        let (a, mut drivers) = build(left, ["10.0.0.1/24", "fd00::1/64"], 0);
        let (b, more) = build(Box::new(right), ["10.0.0.2/24", "fd00::2/64"], 1);
        drivers.extend(more);
        World { clock, a, b, faults, drivers, queues, silent: Vec::new(), overdue: 0 }
    }

    /// Lets everything happen that happens at this moment.
    pub fn settle(&mut self) {
        while self.drivers.iter_mut().map(Polled::poll).sum::<usize>() > 0 {}
    }

    /// Lets `span` pass.
    pub fn pass(&mut self, span: Duration) {
        let end = self.clock.now() + span;
        self.settle();
        while self.clock.now() < end {
            self.step(end);
        }
    }

    /// Lets time pass until something is to happen, or `end` has come, and that happen.
    pub fn step(&mut self, end: Time) {
        let next = self.drivers.iter().map(Polled::next_deadline).min();
        let now = self.clock.now();
        // A deadline in the past that is not met would keep a driver from ever sleeping.
        self.overdue = if next.is_some_and(|next| next < now) { self.overdue + 1 } else { 0 };
        assert!(self.overdue < OVERDUE, "a deadline at {next:?} is not met at {now:?}");
        let next = next.map_or(end, |next| next.max(now + LEAST_STEP));
        self.clock.advance_to(next.min(end));
        self.settle();
    }

    /// From now on `b` neither hears nor says anything.
    pub fn lose_b(&mut self) {
        self.silent = self.drivers.split_off(self.queues);
    }

    pub fn drivers(&mut self) -> &mut [Polled] {
        &mut self.drivers
    }

    /// What both stacks have counted, frames that reached no connection included.
    pub fn counters(&self) -> CounterSnapshot {
        let mut sum = self.a.census().counters + self.b.census().counters;
        self.drivers.iter().for_each(|driver| sum.absorb(driver.counters()));
        sum
    }

    /// What the fault device has counted.
    pub fn injected(&self) -> CounterSnapshot {
        self.faults.as_ref().map(|faults| faults.snapshot()).unwrap_or_default()
    }
}
