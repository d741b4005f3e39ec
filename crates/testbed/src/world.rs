//! Two stacks on one link, on one thread, in virtual time: the behaviour is a function of the calls.
//!
//! Time advances from one deadline to the next. It does not advance while frames move: a link without delay takes no
//! time at all. The link may have several queues, lose, delay, damage and reorder frames, and record them.
//!
//! The stacks are those of the crate `stack`, or built by the caller ([`World::built_by`]), such as the library's own
//! tests. Other kinds of test worlds are elsewhere: `lab` runs real threads and measures them, `tcp` runs PCBs without
//! a stack, `drill` runs scripts, and [`Subject`](crate::subject::Subject)s are compared, not linked.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dev::fault::{Fault, FaultPlan};
use dev::pcap::CaptureDevice;
use dev::{Device, mem};
use observe::{CounterSnapshot, Counters, Time};
use stack::{Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig, VirtualClock};
use sync::{Platform, Real};

use crate::frames::{PEER, PEER6, STACK, STACK6};
use crate::node::START;

/// The minimum advance of time, so that a deadline that is never met cannot stop the clock.
const LEAST_STEP: Duration = Duration::from_micros(50);
/// The most steps in a row with a deadline in the past.
const OVERDUE: u32 = 100;

/// The configuration of a world.
pub struct WorldConfig {
    /// Architectures of `a` and of `b`.
    pub architectures: [Architecture; 2],
    /// Parameters of TCP at both ends.
    pub tcp: tcp::Config,
    /// The link: its queues, its MTU, its offloads.
    pub link: mem::MemConfig,
    /// Faults of `a`'s device, for both directions of the link.
    pub faults: FaultPlan,
    /// Seeds of the secrets of `a` and of `b`.
    pub seeds: [u64; 2],
    /// Destination of a capture of `a`'s device.
    pub recorder: Option<Box<dyn Write + Send>>,
}

impl WorldConfig {
    /// A link without faults between two stacks with these architectures.
    pub fn new(architectures: [Architecture; 2]) -> WorldConfig {
        let (tcp, link, faults) = (tcp::Config::default(), mem::MemConfig::default(), FaultPlan::default());
        WorldConfig { architectures, tcp, link, faults, seeds: [1, 2], recorder: None }
    }
}

/// The parts of one end. It must not have threads of its own.
pub struct End<P: Platform = Real> {
    /// Its end of the link.
    pub device: Box<dyn Device>,
    /// Its IPv4 and its IPv6 address, with the lengths of their prefixes.
    pub addresses: [(IpAddr, u8); 2],
    /// Its architecture.
    pub arch: Architecture,
    /// Cells, where there is one for each CPU.
    pub cpus: usize,
    /// Parameters of TCP.
    pub tcp: tcp::Config,
    /// Seed of its secrets.
    pub seed: u64,
    /// The clock of both ends.
    pub clock: Arc<VirtualClock<P>>,
}

/// See the head of this file. `S` is the type of the stacks.
pub struct World<S, P: Platform = Real> {
    /// The clock of both.
    pub clock: Arc<VirtualClock<P>>,
    /// The stack at [`STACK`] and [`STACK6`].
    pub a: S,
    /// The stack at [`PEER`] and [`PEER6`].
    pub b: S,
    /// The counters of the fault device.
    faults: Option<Arc<Counters>>,
    /// Those of `a` first, one for each of its queue pairs.
    drivers: Vec<Driver<P>>,
    /// Queue pairs of each device.
    queues: usize,
    /// Drivers that are no longer polled.
    unpolled: Vec<Driver<P>>,
    /// Steps in a row that found a deadline in the past.
    overdue: u32,
}

impl<P: Platform> World<Stack<P>, P> {
    /// Two stacks of the crate `stack`.
    pub fn new(terms: WorldConfig) -> World<Stack<P>, P> {
        World::built_by(terms, |end: End<P>| {
            let mut config = StackConfig::new(end.arch);
            (config.cpus, config.own_threads, config.seed) = (end.cpus, false, Some(end.seed));
            (config.tcp, config.clock) = (end.tcp, Clock::Virtual(end.clock));
            let addresses = end.addresses.to_vec();
            let interface =
                InterfaceConfig { device: end.device, addresses, gateways: vec![], addressing: Default::default() };
            Stack::build(config, vec![interface]).expect("the stack builds")
        })
    }

    /// The counters of both stacks, including frames that reached no connection.
    pub fn counters(&self) -> CounterSnapshot {
        self.a.stats().counters + self.b.stats().counters + self.drivers_counters()
    }
}

impl<S, P: Platform> World<S, P> {
    /// Two stacks made by `build`, `a` first.
    pub fn built_by(terms: WorldConfig, mut build: impl FnMut(End<P>) -> (S, Vec<Driver<P>>)) -> World<S, P> {
        let clock = VirtualClock::<P>::new(START);
        let queues = terms.link.queues;
        let (left, right) = mem::pair::<P>(terms.link);
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
            left = Box::new(CaptureDevice::<P>::on_platform(left, recorder, move || time.now(), 0));
        }
        let hosts: [[(IpAddr, u8); 2]; 2] =
            [[(STACK.into(), 24), (STACK6.into(), 64)], [(PEER.into(), 24), (PEER6.into(), 64)]];
        let mut end = |device, index: usize| {
            let (arch, seed, addresses) = (terms.architectures[index], terms.seeds[index], hosts[index]);
            build(End { device, addresses, arch, cpus: 2, tcp: terms.tcp.clone(), seed, clock: clock.clone() })
        };
        let (a, mut drivers) = end(left, 0);
        let (b, more) = end(Box::new(right), 1);
        drivers.extend(more);
        World { clock, a, b, faults, drivers, queues, unpolled: Vec::new(), overdue: 0 }
    }

    /// Runs everything that is due at this moment.
    pub fn settle(&mut self) {
        while self.drivers.iter_mut().map(Driver::poll).sum::<usize>() > 0 {}
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
        let next = self.drivers.iter().map(Driver::next_deadline).min();
        let now = self.clock.now();
        // A deadline in the past that is not met would keep a driver from ever sleeping.
        self.overdue = if next.is_some_and(|next| next < now) { self.overdue + 1 } else { 0 };
        assert!(self.overdue < OVERDUE, "a deadline at {next:?} is not met at {now:?}");
        let next = next.map_or(end, |next| next.max(now + LEAST_STEP));
        self.clock.advance_to(next.min(end));
        self.settle();
    }

    /// From now on `b` neither receives nor sends.
    pub fn disconnect_b(&mut self) {
        self.unpolled = self.drivers.split_off(self.queues);
    }

    /// The drivers that are polled: those of `a` first, one for each of its queue pairs.
    pub fn drivers(&mut self) -> &mut [Driver<P>] {
        &mut self.drivers
    }

    /// The drivers' counters: frames that reached no connection.
    pub fn drivers_counters(&self) -> CounterSnapshot {
        let mut sum = CounterSnapshot::default();
        self.drivers.iter().for_each(|driver| sum.absorb(driver.counters()));
        sum
    }

    /// The counters of the fault device.
    pub fn injected(&self) -> CounterSnapshot {
        self.faults.as_ref().map(|faults| faults.snapshot()).unwrap_or_default()
    }
}
