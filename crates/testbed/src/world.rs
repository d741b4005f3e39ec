//! Two stacks on one link, or on several, on one thread, in virtual time: the behaviour is a function of the calls.
//!
//! Time advances from one deadline to the next ([`Turns`]). It does not advance while frames move: a link without delay
//! takes no time at all. The link may have several queues, lose, delay, damage and reorder frames, and record them.
//!
//! The stacks are those of the crate `stack`, or built by the caller ([`World::built_by`]), such as the library's own
//! tests. More hosts are made one by one ([`End::build`]), and share their [`Turns`]. Other kinds of test worlds are elsewhere: `lab` runs real threads and measures them, `tcp` runs PCBs without
//! a stack, `drill` runs scripts, and [`Subject`](crate::subject::Subject)s are compared, not linked.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dev::fault::{Fault, FaultPlan};
use dev::pcap::CaptureDevice;
use dev::{Device, mem};
use observe::{CounterSnapshot, Counters, Time};
use stack::{
    Addressing, Architecture, Clock, Driver, InterfaceConfig, InterfaceOverPorts, Stack, StackConfig, VirtualClock,
};
use sync::{Platform, Real};

use crate::frames::{PEER, PEER6, STACK, STACK6};
use crate::turns::Turns;

/// The configuration of a world.
pub struct WorldConfig {
    /// Architectures of `a` and of `b`.
    pub architectures: [Architecture; 2],
    /// Cells of each, where there is one for each CPU.
    pub cpus: usize,
    /// Number of links between the two. A capture is of the first.
    pub links: usize,
    /// Parameters of TCP at both ends.
    pub tcp: tcp::Config,
    /// Each link: its queues, its MTU, its offloads.
    pub link: mem::MemConfig,
    /// Faults of `a`'s first device, for both directions of the link.
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
        WorldConfig { architectures, cpus: 2, links: 1, tcp, link, faults, seeds: [1, 2], recorder: None }
    }
}

/// The parts of one end. It must not have threads of its own.
pub struct End<P: Platform = Real> {
    /// Its ends of the links, at least one.
    pub devices: Vec<Box<dyn Device>>,
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
    /// The clock of all ends.
    pub clock: Arc<VirtualClock<P>>,
}

impl<P: Platform> End<P> {
    /// Its device, where there is one link.
    ///
    /// # Panics
    /// If there are several.
    pub fn device(&mut self) -> Box<dyn Device> {
        assert_eq!(self.devices.len(), 1, "several links");
        self.devices.remove(0)
    }

    /// A stack with one interface over the link.
    pub fn build(mut self) -> (Stack<P>, Vec<Driver<P>>) {
        let (device, addresses) = (self.device(), self.addresses.to_vec());
        let interface = InterfaceConfig { device, addresses, gateways: vec![], addressing: Addressing::default() };
        Stack::build(self.config(), vec![interface]).expect("the stack builds")
    }

    /// A stack with these interfaces over the links' ports; `None`: one over all of them.
    pub fn build_over_ports(mut self, interfaces: Option<Vec<InterfaceOverPorts>>) -> (Stack<P>, Vec<Driver<P>>) {
        let devices = std::mem::take(&mut self.devices);
        let interfaces = interfaces.unwrap_or_else(|| {
            let (ports, addresses) = ((0..devices.len()).collect(), self.addresses.to_vec());
            vec![InterfaceOverPorts { ports, addresses, gateways: vec![], addressing: Addressing::default() }]
        });
        Stack::build_over_ports(self.config(), devices, interfaces).expect("the stack builds")
    }

    fn config(self) -> StackConfig<P> {
        let mut config = StackConfig::new(self.arch);
        (config.cpus, config.own_threads, config.seed) = (self.cpus, false, Some(self.seed));
        (config.tcp, config.clock) = (self.tcp, Clock::Virtual(self.clock));
        config
    }
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
    /// The drivers of `a` first, as many as a device has queue pairs.
    turns: Turns<P>,
    /// Number of drivers of `a`.
    drivers_of_a: usize,
    /// Drivers that are no longer polled.
    unpolled: Vec<Driver<P>>,
}

impl<P: Platform> World<Stack<P>, P> {
    /// Two stacks of the crate `stack`.
    pub fn new(terms: WorldConfig) -> World<Stack<P>, P> {
        World::built_by(terms, End::build)
    }

    /// The same where `a` has one interface over all links, and `b` these.
    pub fn over_ports(terms: WorldConfig, b: Vec<InterfaceOverPorts>) -> World<Stack<P>, P> {
        let mut interfaces = [None, Some(b)].into_iter();
        World::built_by(terms, |end| end.build_over_ports(interfaces.next().flatten()))
    }

    /// The counters of both stacks, including frames that reached no connection.
    pub fn counters(&self) -> CounterSnapshot {
        self.a.stats().counters + self.b.stats().counters + self.drivers_counters()
    }
}

impl<S, P: Platform> World<S, P> {
    /// Two stacks made by `build`, `a` first.
    pub fn built_by(terms: WorldConfig, mut build: impl FnMut(End<P>) -> (S, Vec<Driver<P>>)) -> World<S, P> {
        let mut turns = Turns::<P>::new();
        let clock = turns.clock.clone();
        let link = |_| mem::pair::<P>(terms.link.clone());
        let (left, right): (Vec<_>, Vec<_>) = (0..terms.links).map(link).unzip();
        let [mut left, right] =
            [left, right].map(|ends| ends.into_iter().map(|end| Box::new(end) as Box<dyn Device>).collect::<Vec<_>>());
        let (first, faults) = around(left.remove(0), terms.faults, terms.recorder, &clock);
        left.insert(0, first);
        let hosts: [[(IpAddr, u8); 2]; 2] =
            [[(STACK.into(), 24), (STACK6.into(), 64)], [(PEER.into(), 24), (PEER6.into(), 64)]];
        let mut end = |devices, index: usize| {
            let (arch, seed, addresses) = (terms.architectures[index], terms.seeds[index], hosts[index]);
            build(End {
                devices,
                addresses,
                arch,
                cpus: terms.cpus,
                tcp: terms.tcp.clone(),
                seed,
                clock: clock.clone(),
            })
        };
        let (a, drivers) = end(left, 0);
        let (b, more) = end(right, 1);
        let drivers_of_a = drivers.len();
        turns.drivers.extend(drivers.into_iter().chain(more));
        World { clock, a, b, faults, turns, drivers_of_a, unpolled: Vec::new() }
    }

    /// Runs everything that is due at this moment.
    pub fn settle(&mut self) {
        self.turns.settle();
    }

    /// Advances the clock by `span`.
    pub fn pass(&mut self, span: Duration) {
        self.turns.pass(span);
    }

    /// Advances time to the next deadline, or to `end`, and runs the timers that are due.
    ///
    /// # Panics
    /// If deadlines in the past are not met.
    pub fn step(&mut self, end: Time) {
        self.turns.step(end);
    }

    /// From now on `b` neither receives nor sends.
    pub fn disconnect_b(&mut self) {
        self.unpolled = self.turns.drivers.split_off(self.drivers_of_a);
    }

    /// The drivers that are polled: those of `a` first.
    pub fn drivers(&mut self) -> &mut [Driver<P>] {
        &mut self.turns.drivers
    }

    /// The drivers of `b`, one for each of its queue pairs.
    pub fn drivers_of_b(&mut self) -> &mut [Driver<P>] {
        &mut self.turns.drivers[self.drivers_of_a..]
    }

    /// The drivers' counters: frames that reached no connection.
    pub fn drivers_counters(&self) -> CounterSnapshot {
        self.turns.drivers_counters()
    }

    /// The counters of the fault device.
    pub fn injected(&self) -> CounterSnapshot {
        self.faults.as_ref().map(|faults| faults.snapshot()).unwrap_or_default()
    }
}

/// A device with faults and a capture around it, and the counters of the faults.
fn around<P: Platform>(
    mut device: Box<dyn Device>,
    plan: FaultPlan,
    recorder: Option<Box<dyn Write + Send>>,
    clock: &Arc<VirtualClock<P>>,
) -> (Box<dyn Device>, Option<Arc<Counters>>) {
    let mut faults = None;
    if plan != FaultPlan::default() {
        let time = clock.clone();
        let faulty = Fault::new(device, plan, move || time.now());
        faults = faulty.counters();
        device = Box::new(faulty);
    }
    if let Some(recorder) = recorder {
        let time = clock.clone();
        device = Box::new(CaptureDevice::<P>::on_platform(device, recorder, move || time.now(), 0));
    }
    (device, faults)
}
