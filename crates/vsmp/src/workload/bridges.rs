//! The workload of Nakahara et al. (AsiaBSDCon 2015): RFC 2544 over a bridge of two gigabit ports, both directions at
//! once.
//!
//! The bridge is the crate `switch`: a [`switch::BridgeWorker`] on each CPU, or [`switch::Generic`] on one. A port is a
//! [`TestCard`] with the preset's receive and transmit queues. The interrupt of a receive queue wakes the thread of the
//! CPU that has its vector, as table 2 of the paper says ([`cpu_of`]); that thread polls until its queues are empty.
//!
//! A *trial* ([`BridgeTrial`]) offers a number of frames to each port at a rate, and accounts for each: delivered with
//! the bytes that were sent, lost by the card, or dropped by the bridge with a reason. `search.rs` searches for the
//! throughput.
//!
//! One more CPU measures, and keeps the bridge's house. All of a trial is one machine; each trial has a new one.
//!
//! What may never happen: the load depends on the forwarding of frames.

mod search;
mod spec;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bridge::{FdbConfig, PortConfig};
use observe::{CounterSnapshot, DropReason, Time};
use switch::{
    BridgeExclusion, BridgeWorker, Configure, Generic, GenericConfig, InterruptKind, SharedBridge, SharedConfig,
    Sharing, VectorRole, Work,
};
use sync::profile::{ClassProfile, HandoffProfile};
use sync::{Lock, LockClass, LockKind, Platform, ThreadClass};

use super::measured::Measured;
use super::nap;
use crate::account::Account;
use crate::ledger::Part;
use crate::preset::{Kernel, Preset};
use crate::test_card::{Flows, PORTS, TestCard, Tester, Totals, Vectors};
use crate::{Machine, Vsmp, lock_profile, machine};

pub use search::Throughput;
pub use spec::{BridgeLoad, BridgeLoadError};

/// How long frames may take after the last one was offered.
const RESIDUE: Duration = Duration::from_millis(100);
/// Time between two looks at a trial that is about to end.
const LOOK: Duration = Duration::from_micros(50);

/// The CPU of a receive queue's vector, as in table 2 of the paper: with two CPUs each port has one; else the vectors
/// go round. The text that was read has the rows of the table and not its columns, so this is how we read it.
pub fn cpu_of(port: usize, queue: usize, queues: usize, cpus: usize) -> usize {
    if cpus == PORTS { port } else { (port * queues + queue) % cpus }
}

/// A trial; see the head of the file.
#[derive(Clone, Debug)]
pub struct BridgeTrial {
    /// Exclusion, frames and flows.
    pub load: BridgeLoad,
    /// CPUs that forward; `generic` uses one.
    pub cpus: usize,
    /// Frames a second that each port is offered.
    pub rate: u64,
    /// The machine.
    pub preset: Preset,
    /// The kernel whose footprint counts.
    pub kernel: Kernel,
    /// The flows, and the phase between the ports.
    pub seed: u64,
}

/// The frames of a trial, by what became of them, and what the machine has done.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// By port.
    pub ports: [Totals; PORTS],
    /// Frames that the bridge has dropped, by reason; not one without a drop.
    pub drops: Vec<(DropReason, u64)>,
    /// Frames offered and not delivered yet, at half of the load's time and at its end.
    pub backlog: [u64; 2],
    /// Virtual time of the load.
    pub time: Duration,
    /// The account of the machine in this time, without the CPU that measures.
    pub account: Account,
    /// The locks, by class.
    pub locks: Vec<ClassProfile>,
    /// Hand-offs between threads.
    pub handoffs: HandoffProfile,
    /// The hash of all that has happened on the machine.
    pub trace: u64,
}

impl Forwarded {
    fn sum(&self, of: impl Fn(&Totals) -> u64) -> u64 {
        self.ports.iter().map(of).sum()
    }

    /// Frames offered.
    pub fn offered(&self) -> u64 {
        self.sum(|port| port.offered)
    }

    /// Frames delivered at the other port, with the bytes that were sent.
    pub fn delivered(&self) -> u64 {
        self.sum(|port| port.delivered)
    }

    /// Frames that were dropped for a reason: by the cards and by the bridge.
    pub fn dropped(&self) -> u64 {
        self.sum(|port| port.ring_full + port.no_buffer) + self.drops.iter().map(|(_, frames)| frames).sum::<u64>()
    }

    /// What is wrong with the trial: a frame that is unaccounted for, changed, delivered twice, or out of order.
    ///
    /// # Errors
    /// The numbers.
    pub fn check(&self) -> Result<(), String> {
        let (offered, delivered, dropped) = (self.offered(), self.delivered(), self.dropped());
        let (wrong, misordered) = (self.sum(|port| port.wrong), self.sum(|port| port.misordered));
        if offered != delivered + dropped || wrong > 0 || misordered > 0 {
            return Err(format!(
                "of {offered} frames {delivered} were delivered and {dropped} dropped; {wrong} are wrong, {misordered} out of order"
            ));
        }
        Ok(())
    }

    /// Frames delivered a second, both directions together.
    pub fn rate(&self) -> f64 {
        self.delivered() as f64 / self.time.as_secs_f64()
    }

    /// The same in the form of the other workloads, for frames of this length.
    pub fn measured(self, bytes: usize) -> Measured {
        let (delivered, trace) = (self.delivered(), self.trace);
        Measured {
            warm_up: Duration::ZERO,
            steady: true,
            time: self.time,
            bytes: delivered * bytes as u64,
            windows: Vec::new(),
            account: Account { trace, ..self.account },
            locks: self.locks,
            handoffs: self.handoffs,
            cards: Vec::new(),
            out_of_order: self.ports.iter().map(|port| port.misordered).sum(),
            by_connection: Vec::new(),
            placement: Vec::new(),
            timeline: None,
            capture: None,
            packets: None,
        }
    }
}

impl BridgeTrial {
    /// CPUs that forward.
    pub fn used_cpus(&self) -> usize {
        if self.load.exclusion == BridgeExclusion::Generic { 1 } else { self.cpus }
    }

    /// Frames that each port is offered.
    pub fn frames(&self) -> u64 {
        (self.rate as f64 * self.load.time.as_secs_f64()).round().max(2.0) as u64
    }

    /// The frames that each port is offered.
    pub fn flows(&self) -> [Arc<Flows>; PORTS] {
        let (BridgeLoad { bytes, flows, .. }, queues) = (self.load, self.preset.card.queues);
        [0, 1].map(|port| Arc::new(Flows::new(port, flows, bytes, queues, self.seed)))
    }

    /// Runs it on a machine with one CPU more.
    ///
    /// # Panics
    /// See [`BridgeTrial::run`] and [`Machine::run`].
    pub fn simulate(&self) -> Forwarded {
        let (trial, cpus) = (self.clone(), self.used_cpus());
        let machine = Machine::new(cpus + 1, self.preset.costs(self.kernel)).seed(self.seed);
        let (mut forwarded, outcome) = machine.run(move || trial.run());
        forwarded.trace = outcome.account.trace;
        let others = forwarded.account.cpus.split_off(cpus);
        forwarded.account.idle -= others.iter().map(|ledger| ledger.of(Part::Idle)).sum::<u64>();
        forwarded
    }

    /// To be run by the first thread of a machine with one CPU more than forward.
    ///
    /// # Panics
    /// The bridge cannot be built or does not learn, or a thread of it panics.
    pub fn run(&self) -> Forwarded {
        let vectors = Vectors::new(self.used_cpus());
        let [a, b] = self.flows();
        let card = |offers: &Arc<Flows>, expects: &Arc<Flows>| {
            TestCard::new(self.preset.card.clone(), vectors.clone(), offers.clone(), expects.clone())
        };
        let cards = [card(&a, &b), card(&b, &a)];
        let testers = [0, 1].map(|port: usize| cards[port].tester());
        let bridge = BridgeUnderTest::start(self, cards, &testers, &vectors);
        teach(&bridge, &testers);
        let mut forwarded = self.measure(&testers);
        bridge.stop(&vectors);
        forwarded.drops = bridge.counters().drops().filter(|(_, frames)| *frames > 0).collect();
        forwarded
    }

    fn measure(&self, testers: &[Tester; PORTS]) -> Forwarded {
        let totals = || [0, 1].map(|port: usize| testers[port].totals());
        let before = totals();
        let backlog = || {
            let sum = |of: fn(&Totals) -> u64| totals().iter().map(of).sum::<u64>();
            sum(|port| port.offered) - sum(|port| port.delivered)
        };
        let waiting = backlog();
        lock_profile().reset();
        let (account, began) = (machine::account(), Vsmp::now());
        let gap = machine::cycles(1_000_000_000) / self.rate.max(1);
        for tester in testers {
            tester.offer(self.frames(), self.rate, machine::clock() + machine::random() % (gap + 1));
        }
        nap::<Vsmp>(self.load.time / 2);
        let middle = backlog() - waiting;
        nap::<Vsmp>(self.load.time - self.load.time / 2);
        let time = Duration::from_nanos(Vsmp::now() - began);
        let (account, locks) = (machine::account().since(&account), lock_profile().snapshot().to_vec());
        let (handoffs, end) = (lock_profile().handoffs(), backlog() - waiting);
        // Until all have gone, or have had the time to.
        for _ in 0..RESIDUE.as_micros() / LOOK.as_micros() {
            if testers.iter().all(Tester::is_done) && backlog() == waiting {
                break;
            }
            nap::<Vsmp>(LOOK);
        }
        let ports = totals();
        let ports = [0, 1].map(|port: usize| ports[port].since(&before[port]));
        Forwarded { ports, drops: Vec::new(), backlog: [middle, end], time, account, locks, handoffs, trace: 0 }
    }
}

/// Frames of both stations, so that the bridge learns their addresses and no frame of the trial is flooded (RFC 2544
/// section 23).
fn teach(bridge: &BridgeUnderTest, testers: &[Tester; PORTS]) {
    for lesson in 0.. {
        if bridge.addresses() == PORTS {
            return;
        }
        assert!(lesson < 100, "the bridge does not learn");
        testers.iter().for_each(|tester| tester.offer(1, 1_000_000, machine::clock()));
        nap::<Vsmp>(Duration::from_millis(1));
    }
}

/// The bridge, and its threads.
struct BridgeUnderTest {
    engine: Engine,
    stop: Arc<AtomicBool>,
    threads: Vec<usize>,
}

enum Engine {
    /// The kernel's one lock, as in [`switch::Switch`].
    Generic(Arc<Lock<Generic<Vsmp>, Vsmp>>),
    Shared(Arc<SharedBridge<Vsmp>>),
}

impl BridgeUnderTest {
    fn start(
        trial: &BridgeTrial,
        cards: [TestCard; PORTS],
        testers: &[Tester; PORTS],
        vectors: &Arc<Vectors>,
    ) -> BridgeUnderTest {
        let stop = Arc::new(AtomicBool::new(false));
        let BridgeLoad { exclusion, work, .. } = trial.load;
        let work = work.unwrap_or(exclusion.usual_work());
        let sharing = match exclusion {
            BridgeExclusion::Generic => {
                let generic = start_generic(work, cards);
                let lock = generic.clone();
                let poll = move || lock.lock().poll(Time::from_nanos(Vsmp::now()));
                let threads = vec![handler(0, &stop, vectors, move || poll)];
                return BridgeUnderTest { engine: Engine::Generic(generic), stop, threads };
            }
            BridgeExclusion::Mpsafe => Sharing::Mpsafe,
            BridgeExclusion::Rcu => Sharing::Rcu,
        };
        let (workers, interrupts) = (trial.used_cpus(), InterruptKind::Msix);
        let config = SharedConfig { sharing, fdb: FdbConfig::default(), work, workers, interrupts };
        let shared = SharedBridge::<Vsmp>::new(config).expect("a machine has no descriptors to run out of");
        let mut threads: Vec<usize> = (0..workers)
            .map(|cpu| {
                let shared = shared.clone();
                handler(cpu, &stop, vectors, move || {
                    let mut worker = BridgeWorker::begin(&shared, cpu).expect("each begins once");
                    move || worker.poll(Time::from_nanos(Vsmp::now()))
                })
            })
            .collect();
        for mut card in cards {
            let (name, now) = (dev::Device::name(&card).to_owned(), Time::from_nanos(Vsmp::now()));
            shared.add_port(&name, &mut card, PortConfig::default(), now).expect("the card has queues");
        }
        spread(&shared, testers, vectors, trial);
        let house = shared.clone();
        threads.push(Vsmp::spawn("house", Some(workers), ThreadClass::Worker, move || house.run_housekeeper()));
        BridgeUnderTest { engine: Engine::Shared(shared), stop, threads }
    }

    fn addresses(&self) -> usize {
        match &self.engine {
            Engine::Generic(lock) => Configure::entries(lock.lock().bridge()).len(),
            Engine::Shared(shared) => shared.look(|bridge, _| bridge.entries().len()),
        }
    }

    fn counters(&self) -> CounterSnapshot {
        match &self.engine {
            Engine::Generic(lock) => lock.lock().counters().snapshot(),
            Engine::Shared(shared) => shared.counters(),
        }
    }

    /// Ends its threads.
    fn stop(&self, vectors: &Vectors) {
        self.stop.store(true, Relaxed);
        if let Engine::Shared(shared) = &self.engine {
            shared.stop();
        }
        vectors.kick();
        for &thread in &self.threads {
            if let Err(panic) = Vsmp::join(thread) {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// The bridge of one CPU: both cards have a line, which is that of CPU 0.
fn start_generic(work: Work, cards: [TestCard; PORTS]) -> Arc<Lock<Generic<Vsmp>, Vsmp>> {
    let mut generic = Generic::<Vsmp>::new(GenericConfig { work, ..GenericConfig::default() });
    for mut card in cards {
        let (name, now) = (dev::Device::name(&card).to_owned(), Time::from_nanos(Vsmp::now()));
        generic.add_port(&name, &mut card, PortConfig::default(), now).expect("the card has queues");
    }
    Arc::new(Lock::new(LockKind::Ticket, LockClass::Control, generic))
}

/// The thread that handles the interrupts of a CPU, with the polling that `begin` makes there.
fn handler<F: FnMut() -> usize>(
    cpu: usize,
    stop: &Arc<AtomicBool>,
    vectors: &Arc<Vectors>,
    begin: impl FnOnce() -> F + Send + 'static,
) -> usize {
    let (stop, vectors) = (stop.clone(), vectors.clone());
    Vsmp::spawn(&format!("cpu{cpu}"), Some(cpu), ThreadClass::Receive, move || {
        let mut poll = begin();
        while !stop.load(Relaxed) {
            if poll() == 0 {
                vectors.wait(cpu, None);
            }
        }
        poll();
    })
}

/// Gives each vector to its CPU, as `intrctl(8)` does.
fn spread(shared: &SharedBridge<Vsmp>, testers: &[Tester; PORTS], vectors: &Vectors, trial: &BridgeTrial) {
    let queues = trial.preset.card.queues;
    let names = shared.look(|_, ports| ports.iter().flatten().map(|port| port.name.clone()).collect::<Vec<_>>());
    for (port, name) in names.iter().enumerate() {
        for queue in 0..queues {
            let cpu = cpu_of(port, queue, queues, trial.used_cpus());
            testers[port].set_affinity(queue, cpu);
            let relocation = shared.set_affinity(name, VectorRole::Rx(queue), cpu).expect("there is such a vector");
            while !relocation.is_complete() {
                vectors.kick();
                nap::<Vsmp>(LOOK);
            }
        }
    }
}
