//! [`Switch`]: a running bridge with any way of sharing: ports, configuration, threads.
//!
//! Under `generic` the whole bridge is behind one lock, which its one thread takes for each poll. Under `mpsafe` and `rcu`
//! there are workers, and a housekeeper.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bridge::{FdbConfig, PortConfig, PortNumber};
use dev::Device;
use observe::{CounterSnapshot, Time};
use sync::{Atomic, DoorbellLike, Lock, LockClass, LockKind, Ordering, Platform, ThreadClass};

use crate::affinity::Relocation;
use crate::configure::Configure;
use crate::generic::{Generic, GenericConfig, Work};
use crate::interrupt::{AffinityError, InterruptKind, InterruptReport, VectorRole};
use crate::port::PortReport;
use crate::port_error::PortError;
use crate::shared::{SharedBridge, SharedConfig, Sharing};
use crate::worker::BridgeWorker;

/// How threads share the bridge; see [`Generic`] and [`Sharing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeExclusion {
    /// One lock.
    Generic,
    /// Read sections and references, as in the paper.
    Mpsafe,
    /// Read sections as long as a batch, no lock on the forwarding path.
    Rcu,
}

impl BridgeExclusion {
    /// All of them.
    pub const ALL: [BridgeExclusion; 3] = [BridgeExclusion::Generic, BridgeExclusion::Mpsafe, BridgeExclusion::Rcu];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            BridgeExclusion::Generic => "generic",
            BridgeExclusion::Mpsafe => "mpsafe",
            BridgeExclusion::Rcu => "rcu",
        }
    }

    /// Its default work per interrupt: all frames in the ring, one frame (as in the paper), or a vector.
    pub const fn usual_work(self) -> Work {
        match self {
            BridgeExclusion::Generic => Work::Drain,
            BridgeExclusion::Mpsafe => Work::Frames(1),
            BridgeExclusion::Rcu => Work::Frames(path::VECTOR_LEN),
        }
    }
}

/// The name of an unknown exclusion; [`BridgeExclusion::ALL`] has the known ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownBridgeExclusion;

impl fmt::Display for UnknownBridgeExclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ways to share a bridge are generic, mpsafe and rcu")
    }
}

impl std::error::Error for UnknownBridgeExclusion {}

impl FromStr for BridgeExclusion {
    type Err = UnknownBridgeExclusion;

    fn from_str(name: &str) -> Result<BridgeExclusion, UnknownBridgeExclusion> {
        BridgeExclusion::ALL.into_iter().find(|exclusion| exclusion.name() == name).ok_or(UnknownBridgeExclusion)
    }
}

/// The configuration of a bridge.
#[derive(Clone, Copy, Debug)]
pub struct SwitchConfig {
    /// How threads share it.
    pub exclusion: BridgeExclusion,
    /// Size and ageing of the forwarding database.
    pub fdb: FdbConfig,
    /// Work per interrupt.
    pub work: Work,
    /// Number of workers; `generic` always has one.
    pub workers: usize,
    /// Maximum number of frames that wait for the software interrupt, under `generic`.
    pub input_queue: usize,
    /// How ports signal, if there are enough vectors; `generic` always uses lines.
    pub interrupts: InterruptKind,
}

impl SwitchConfig {
    /// The default configuration, with two workers.
    pub fn new(exclusion: BridgeExclusion) -> SwitchConfig {
        let GenericConfig { fdb, input_queue, .. } = GenericConfig::default();
        let (work, interrupts) = (exclusion.usual_work(), InterruptKind::Msix);
        SwitchConfig { exclusion, fdb, work, workers: 2, input_queue, interrupts }
    }
}

/// See the head of the file. Any thread.
pub struct Switch<P: Platform> {
    exclusion: BridgeExclusion,
    engine: Engine<P>,
}

enum Engine<P: Platform> {
    Generic(Arc<KernelLock<P>>),
    Shared(Arc<SharedBridge<P>>),
}

/// The bridge of one thread, behind the one lock.
struct KernelLock<P: Platform> {
    generic: Lock<Generic<P>, P>,
    bell: P::Doorbell,
    stopping: P::AtomicBool,
}

/// How long the thread of `generic` sleeps if one of its devices cannot wake it.
const NAP: Duration = Duration::from_millis(1);
/// Number of polls without a frame before it sleeps.
const IDLE_POLLS: u32 = 64;

impl<P: Platform> Switch<P> {
    /// A bridge without ports and threads.
    ///
    /// # Errors
    /// No descriptor is left to wake its threads.
    pub fn new(config: SwitchConfig) -> io::Result<Switch<P>> {
        let SwitchConfig { exclusion, fdb, work, workers, input_queue, interrupts } = config;
        let shared =
            |sharing| SharedBridge::new(SharedConfig { sharing, fdb, work, workers, interrupts }).map(Engine::Shared);
        let engine = match exclusion {
            BridgeExclusion::Generic => {
                let generic = Generic::new(GenericConfig { fdb, work, input_queue });
                Engine::Generic(Arc::new(KernelLock {
                    // A first-come, first-served lock, because its thread takes it again at once and must not starve
                    // others.
                    generic: Lock::new(LockKind::Ticket, LockClass::Control, generic),
                    bell: P::Doorbell::new()?,
                    stopping: P::AtomicBool::new(false),
                }))
            }
            BridgeExclusion::Mpsafe => shared(Sharing::Mpsafe)?,
            BridgeExclusion::Rcu => shared(Sharing::Rcu)?,
        };
        Ok(Switch { exclusion, engine })
    }

    /// How threads share it.
    pub fn exclusion(&self) -> BridgeExclusion {
        self.exclusion
    }

    /// Its threads.
    pub fn workers(&self) -> usize {
        match &self.engine {
            Engine::Generic(_) => 1,
            Engine::Shared(shared) => shared.seats.len(),
        }
    }

    /// Starts its threads, each on a processor of its own if there are enough. They end after [`Switch::stop`].
    pub fn start(&self) -> Vec<P::JoinHandle> {
        match &self.engine {
            Engine::Generic(lock) => {
                let lock = lock.clone();
                vec![P::spawn("heddle-bridge", Some(0), ThreadClass::Receive, move || lock.run())]
            }
            Engine::Shared(shared) => {
                let worker = |number: usize| {
                    let shared = shared.clone();
                    let body = move || _ = BridgeWorker::begin(&shared, number).map(BridgeWorker::run);
                    P::spawn(&format!("heddle-br-{number}"), Some(number), ThreadClass::Receive, body)
                };
                let mut threads: Vec<P::JoinHandle> = (0..shared.seats.len()).map(worker).collect();
                let shared = shared.clone();
                threads.push(P::spawn("heddle-br-house", None, ThreadClass::Worker, move || shared.run_housekeeper()));
                threads
            }
        }
    }

    /// Ends its threads. Frames that have arrived and are not forwarded are dropped, counted.
    pub fn stop(&self) {
        match &self.engine {
            Engine::Generic(lock) => {
                lock.stopping.store(true, Ordering::Release);
                lock.bell.ring();
            }
            Engine::Shared(shared) => shared.stop(),
        }
    }

    /// Adds a device as a port of this name, which forwards at once or, with spanning tree, when the tree allows it.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn add_port(
        &self,
        name: &str,
        device: &mut dyn Device,
        config: PortConfig,
        now: Time,
    ) -> Result<PortNumber, PortError> {
        match &self.engine {
            Engine::Generic(lock) => {
                let added = lock.generic.lock().add_port(name, device, config, now);
                lock.bell.ring();
                added
            }
            Engine::Shared(shared) => shared.add_port(name, device, config, now),
        }
    }

    /// Removes a port and closes its device; the threads must be running. Returns whether the port existed.
    pub fn remove_port(&self, number: PortNumber, now: Time) -> bool {
        match &self.engine {
            Engine::Generic(lock) => {
                let removed = lock.generic.lock().remove_port(number, now);
                lock.bell.ring();
                removed
            }
            Engine::Shared(shared) => match shared.remove_port(number, now) {
                Some(removal) => {
                    removal.wait();
                    true
                }
                None => false,
            },
        }
    }

    /// Applies `change` to the configuration, which is in effect when this returns.
    pub fn configure<R>(&self, change: impl FnOnce(&mut dyn Configure) -> R) -> R {
        match &self.engine {
            Engine::Generic(lock) => {
                let result = change(lock.generic.lock().bridge_mut());
                // Its thread transmits the BPDUs that result.
                lock.bell.ring();
                result
            }
            Engine::Shared(shared) => shared.configure(change),
        }
    }

    /// The configuration and state of the bridge, and its ports by number.
    pub fn look<R>(&self, look: impl FnOnce(&dyn Configure, &[Option<PortReport>]) -> R) -> R {
        match &self.engine {
            Engine::Generic(lock) => {
                let generic = lock.generic.lock();
                look(generic.bridge(), &generic.ports())
            }
            Engine::Shared(shared) => shared.look(look),
        }
    }

    /// The interrupt vectors of all ports.
    pub fn interrupts(&self) -> Vec<InterruptReport> {
        match &self.engine {
            Engine::Generic(lock) => lock.generic.lock().interrupts(),
            Engine::Shared(shared) => shared.interrupts(),
        }
    }

    /// Moves a vector of a port to another processor, and with it the polling of its receive queues; returns how many of them
    /// have moved. The threads must be running.
    ///
    /// # Errors
    /// See [`AffinityError`].
    pub fn set_affinity(&self, port: &str, role: VectorRole, processor: usize) -> Result<usize, AffinityError> {
        match &self.engine {
            Engine::Generic(_) => Err(AffinityError::OneThread),
            Engine::Shared(shared) => shared.set_affinity(port, role, processor).map(carried_out),
        }
    }

    /// Keeps interrupts away from a processor, or allows them again; returns how many queues have moved. The threads
    /// must be running.
    ///
    /// # Errors
    /// See [`AffinityError`].
    pub fn shield(&self, processor: usize, shielded: bool) -> Result<usize, AffinityError> {
        match &self.engine {
            Engine::Generic(_) => Err(AffinityError::OneThread),
            Engine::Shared(shared) => shared.shield(processor, shielded).map(carried_out),
        }
    }

    /// Spreads all vectors over the processors that take interrupts; returns how many queues have moved. The threads must be
    /// running.
    ///
    /// # Errors
    /// There is one processor.
    pub fn distribute(&self) -> Result<usize, AffinityError> {
        match &self.engine {
            Engine::Generic(_) => Err(AffinityError::OneThread),
            Engine::Shared(shared) => Ok(carried_out(shared.distribute())),
        }
    }

    /// Processors that take no interrupts.
    pub fn shielded(&self) -> Vec<usize> {
        match &self.engine {
            Engine::Generic(_) => Vec::new(),
            Engine::Shared(shared) => shared.shielded(),
        }
    }

    /// Work per interrupt.
    pub fn work(&self) -> Work {
        match &self.engine {
            Engine::Generic(lock) => lock.generic.lock().work(),
            Engine::Shared(shared) => shared.work(),
        }
    }

    /// Sets that.
    pub fn set_work(&self, work: Work) {
        match &self.engine {
            Engine::Generic(lock) => lock.generic.lock().set_work(work),
            Engine::Shared(shared) => shared.set_work(work),
        }
    }

    /// The counters: drops, learned addresses, and others.
    pub fn counters(&self) -> CounterSnapshot {
        match &self.engine {
            Engine::Generic(lock) => lock.generic.lock().counters().snapshot(),
            Engine::Shared(shared) => shared.counters(),
        }
    }
}

fn carried_out<P: Platform>(relocation: Relocation<'_, P>) -> usize {
    relocation.wait();
    relocation.queues()
}

impl<P: Platform> KernelLock<P> {
    fn run(&self) {
        let mut idle = 0;
        while !self.stopping.load(Ordering::Acquire) {
            let taken = self.poll();
            idle = if taken > 0 { 0 } else { idle + 1 };
            if idle > IDLE_POLLS {
                self.sleep();
                idle = 0;
            }
        }
    }

    fn poll(&self) -> usize {
        self.generic.lock().poll(Time::from_nanos(P::now()))
    }

    fn sleep(&self) {
        self.bell.arm();
        if self.poll() == 0 && !self.stopping.load(Ordering::Acquire) {
            let generic = self.generic.lock();
            let ((descriptors, all), due) = (generic.descriptors(), generic.next_deadline());
            drop(generic);
            let until_due = (due != Time::MAX).then(|| due - Time::from_nanos(P::now()));
            self.bell.sleep(&descriptors, until_due.into_iter().chain((!all).then_some(NAP)).min());
        }
        self.bell.drain();
    }
}
