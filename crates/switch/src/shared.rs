//! [`SharedBridge`]: a bridge that several workers run at once: the member list and the table that they read, and the
//! control plane that changes them.
//!
//! | state | readers | writers |
//! |---|---|---|
//! | member list, with the ports ([`MemberList`]) | workers, in a read section | the control plane: a new list, then a grace period |
//! | table | workers, in a read section; a hit replaces one word | mutex; removal waits for one grace period |
//! | port | workers, by a reference or inside the section | removal: off the list, grace period, references |
//! | receive queue | its worker | - |
//! | storm control of a port | the workers that poll it | the same, one word a limit by compare-and-exchange |
//! | rules of configuration, spanning tree | control plane, one lock | the same |
//!
//! [`SharedBridge::keep_house`] is the worker that may sleep: it ages the table, runs spanning tree, learns what workers
//! under `rcu` have posted, and takes down ports whose device has vanished. Workers send it the work that they must not
//! do themselves.
//!
//! *What may never happen.* A worker waits for the control plane, or for another worker except by the lock of a transmit
//! queue and the mutex of the table, both outside its read section. A port transmits after its removal has returned.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bridge::{
    Bridge, FdbConfig, FdbControl, LearnedSource, Member, Members, PortConfig, PortNumber, PortState, TagAction,
    count_learned,
};
use dev::{Device, RxQueue, TxQueue};
use observe::{CounterSnapshot, Counters, DropReason, Time};
use pktbuf::PktBuf;
use sync::ring::spsc;
use sync::{Atomic, DoorbellLike, Lock, LockClass, LockKind, Ordering, Parker, Platform, Qsbr, RcuCell, class};

use crate::affinity::{Affinity, QueueMove, Relocation};
use crate::configure::Configure;
use crate::generic::Work;
use crate::interrupt::{AffinityError, InterruptKind, InterruptReport, VectorRole};
use crate::port::{self, BridgePort, Opening, PortReport, Transmitter};
use crate::port_error::PortError;
use crate::table::{ConcurrentFdb, TableControl};
use crate::worker::Parting;

/// How workers share the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// As in the paper: a read section for each frame, references because transmission may wait, an insert under the
    /// mutex.
    Mpsafe,
    /// A read section for each batch, which includes its transmission; new addresses are posted. A worker takes no lock if
    /// each port has a transmit queue for each worker.
    Rcu,
}

/// The configuration of a bridge of this kind.
#[derive(Clone, Copy, Debug)]
pub struct SharedConfig {
    /// How workers share it.
    pub sharing: Sharing,
    /// Size and ageing of the forwarding database.
    pub fdb: FdbConfig,
    /// Work per interrupt: the frames taken from a receive queue before the next queue has its turn.
    pub work: Work,
    /// Number of workers, at least 1.
    pub workers: usize,
    /// How ports signal, if there are enough vectors.
    pub interrupts: InterruptKind,
}

/// The member list for workers: the list of the rules, and the ports by number.
pub(crate) struct MemberList<P: Platform> {
    /// Differs from those of all earlier lists.
    pub(crate) version: u64,
    pub(crate) members: Members,
    pub(crate) ports: Vec<Option<Arc<BridgePort<P>>>>,
}

/// A receive queue of a worker.
pub(crate) struct Inlet<P: Platform> {
    pub(crate) port: Arc<BridgePort<P>>,
    pub(crate) index: usize,
    /// The index of its frames' transmit queues: the number of its first worker.
    pub(crate) lane: usize,
    pub(crate) queue: Box<dyn RxQueue>,
    /// The device has vanished, and the housekeeper was notified.
    pub(crate) gone: bool,
}

impl<P: Platform> Drop for Inlet<P> {
    fn drop(&mut self) {
        self.port.given_up();
    }
}

/// A message to a worker.
pub(crate) enum SeatDelivery<P: Platform> {
    /// A receive queue to poll.
    Receive(Inlet<P>),
    /// A transmit queue of its own.
    Transmit(Arc<BridgePort<P>>, Box<dyn TxQueue>),
    /// A frame to transmit by its own queue, from the control plane.
    Frame(Arc<BridgePort<P>>, PktBuf),
    /// An order to pass a receive queue to another worker.
    Part(Parting<P>),
}

/// The place of a worker.
pub(crate) struct Seat<P: Platform> {
    deliveries: Lock<Deliveries<P>, P>,
    has_deliveries: P::AtomicBool,
    pub(crate) bell: P::Doorbell,
    /// Written by the worker alone.
    pub(crate) counters: Counters,
}

/// The messages that wait for a worker.
struct Deliveries<P: Platform> {
    waiting: Vec<SeatDelivery<P>>,
    /// The worker has ended, perhaps by a panic, and accepts no more messages.
    left: bool,
}

/// A message to the housekeeper.
pub(crate) enum HouseMail {
    /// A frame for spanning tree.
    Bpdu(PortNumber, PktBuf),
    /// The device of a port has vanished.
    Gone(PortNumber),
}

/// Maximum number of waiting messages; further BPDUs are dropped and counted.
const MOST_MAIL: usize = 256;
/// Maximum number of addresses that one worker under `rcu` has posted and the housekeeper has not learned yet.
const MOST_POSTED: usize = 1024;
/// Period of the search for aged entries, as in NetBSD.
const PRUNE: Duration = Duration::from_secs(300);

struct ControlPlane<P: Platform> {
    bridge: Bridge<TableControl<P>>,
    ports: Vec<Option<Arc<BridgePort<P>>>>,
    posted: Vec<spsc::Consumer<LearnedSource, P>>,
    /// Empty, kept for its memory.
    sources: Vec<LearnedSource>,
    next_prune: Time,
    affinity: Affinity,
}

/// See the head of the file.
pub struct SharedBridge<P: Platform> {
    pub(crate) sharing: Sharing,
    /// [`Work::most`].
    work: P::AtomicUsize,
    pub(crate) domain: Arc<Qsbr<P>>,
    pub(crate) list: RcuCell<MemberList<P>, P>,
    pub(crate) table: Arc<ConcurrentFdb<P>>,
    pub(crate) seats: Box<[Seat<P>]>,
    /// The parts of workers that have not begun.
    producers: Lock<Vec<Option<spsc::Producer<LearnedSource, P>>>, P>,
    control: Lock<ControlPlane<P>, P, class::Control>,
    mail: Lock<VecDeque<HouseMail>, P, class::Handoff>,
    housekeeper: Parker<P>,
    stopping: P::AtomicBool,
    /// The state of the control plane and the housekeeper.
    counters: Counters,
}

impl<P: Platform> SharedBridge<P> {
    /// A bridge without ports.
    ///
    /// # Errors
    /// No descriptor is left to wake the workers.
    pub fn new(config: SharedConfig) -> io::Result<Arc<SharedBridge<P>>> {
        let workers = config.workers.max(1);
        let domain = Qsbr::<P>::new();
        let table = Arc::new(ConcurrentFdb::new(config.fdb, domain.clone()));
        let list = MemberList { version: 0, members: Members::new(), ports: Vec::new() };
        let (producers, posted) = (0..workers).map(|_| spsc::channel(MOST_POSTED)).unzip::<_, _, Vec<_>, Vec<_>>();
        let nothing = || Deliveries { waiting: Vec::new(), left: false };
        let seat = |_| {
            Ok::<_, io::Error>(Seat {
                deliveries: Lock::new(LockKind::Blocking, LockClass::Handoff, nothing()),
                has_deliveries: P::AtomicBool::new(false),
                bell: P::Doorbell::new()?,
                counters: Counters::new(),
            })
        };
        let control = ControlPlane {
            bridge: Bridge::with_table(TableControl(table.clone())),
            ports: Vec::new(),
            posted,
            sources: Vec::new(),
            next_prune: Time::ZERO,
            affinity: Affinity::new(workers, config.interrupts),
        };
        let kind = LockKind::Blocking;
        Ok(Arc::new(SharedBridge {
            sharing: config.sharing,
            work: P::AtomicUsize::new(config.work.most()),
            list: RcuCell::new(domain.clone(), LockClass::BridgeMembers, list),
            domain,
            table,
            seats: (0..workers).map(seat).collect::<Result<_, _>>()?,
            producers: Lock::new(kind, LockClass::Pool, producers.into_iter().map(Some).collect()),
            control: Lock::ordered(kind, control),
            mail: Lock::ordered(kind, VecDeque::new()),
            housekeeper: Parker::new(),
            stopping: P::AtomicBool::new(false),
            counters: Counters::shared(),
        }))
    }

    /// Adds a device as a port, which forwards at once or, with spanning tree, when the tree allows it. The MTU of the
    /// port is that of the device if that is smaller than the configured one.
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
        let mut control = self.control.lock();
        if self.is_stopping() {
            return Err(PortError::Stopped);
        }
        let number = port::free_number(&control.ports, name)?;
        let give_away = self.sharing == Sharing::Rcu && !control.affinity.has_moved;
        let opening = Opening {
            workers: self.seats.len(),
            give_away,
            kind: control.affinity.kind,
            controller: &mut control.affinity.controller,
        };
        let (port, receivers, transmitters) = BridgePort::open(number, name, device, opening)?;
        let workers = control.affinity.place(&port, receivers.len());
        port::enter(&mut control.bridge, &port, config, now);
        port::put(&mut control.ports, port.clone());
        self.settle(&mut control);
        // Under the lock, so that no queue is moved before its worker has it.
        for (worker, queue) in transmitters.into_iter().enumerate() {
            self.deliver(worker, SeatDelivery::Transmit(port.clone(), queue));
        }
        // A queue is polled by one worker, or frames of one flow could overtake each other.
        for ((index, queue), worker) in receivers.into_iter().enumerate().zip(workers) {
            let inlet = Inlet { port: port.clone(), index, lane: worker, queue, gone: false };
            self.deliver(worker, SeatDelivery::Receive(inlet));
        }
        Ok(number)
    }

    /// Removes a port: when this returns no frame of it is forwarded, and none is transmitted by it. Its receive queues are
    /// closed by the workers that poll them; [`PortRemoval::wait`] waits for that. `None`: there is no such port.
    pub fn remove_port(&self, number: PortNumber, now: Time) -> Option<PortRemoval<P>> {
        let port = self.unlink_port(number, now)?;
        port.wait_unused();
        port.close();
        let mut control = self.control.lock();
        // Removes the addresses that a worker has learned meanwhile.
        control.bridge.table_mut().forget_port(number);
        control.affinity.forget(&port);
        drop(control);
        Some(PortRemoval { port })
    }

    /// Takes a port off the member list and waits for a grace period: no worker takes a reference to it any more.
    pub(crate) fn unlink_port(&self, number: PortNumber, now: Time) -> Option<Arc<BridgePort<P>>> {
        let mut control = self.control.lock();
        let port = control.ports.get_mut(number.index())?.take()?;
        port.stop();
        control.bridge.remove_port(number, now);
        self.settle(&mut control);
        drop(control);
        self.wake_workers();
        Some(port)
    }

    /// Applies `change` to the configuration, and waits until every worker uses the result.
    pub fn configure<R>(&self, change: impl FnOnce(&mut dyn Configure) -> R) -> R {
        let mut control = self.control.lock();
        let result = change(&mut control.bridge);
        self.settle(&mut control);
        result
    }

    /// Calls `look` with the state of the rules and the ports by number.
    pub fn look<R>(&self, look: impl FnOnce(&dyn Configure, &[Option<PortReport>]) -> R) -> R {
        let control = self.control.lock();
        let report = |port: &Option<Arc<BridgePort<P>>>| port.as_deref().map(PortReport::of);
        let ports: Vec<_> = control.ports.iter().map(report).collect();
        look(&control.bridge, &ports)
    }

    /// The counters of all threads: drops, learned addresses, and others.
    pub fn counters(&self) -> CounterSnapshot {
        Counters::fold(self.seats.iter().map(|seat| &seat.counters).chain([&self.counters]))
    }

    /// Grace periods that writers have waited for.
    pub fn grace_periods(&self) -> u64 {
        self.domain.grace_periods()
    }

    /// Runs the timers due at `now`, and processes the messages of workers. Returns the time of the next call, if no
    /// message comes before. The calling thread may have to wait.
    pub fn keep_house(&self, now: Time) -> Time {
        let mut control = self.control.lock();
        self.learn_posted(&mut control, now);
        loop {
            // In a statement of its own, so that the lock is not held while the message is processed.
            let letter = self.mail.lock_after(&control).pop_front();
            match letter {
                Some(HouseMail::Bpdu(port, frame)) => control.bridge.take_bpdu(port, &frame, &self.counters, now),
                Some(HouseMail::Gone(port)) => control.bridge.set_up(port, false, now),
                None => break,
            }
            // Before the next message, so that a state is in effect before the BPDU that announces it is transmitted.
            self.settle(&mut control);
        }
        if control.bridge.next_deadline().is_some_and(|due| due <= now) {
            control.bridge.advance(now);
        }
        self.settle(&mut control);
        if control.next_prune <= now {
            control.bridge.table_mut().age(now);
            control.next_prune = now + PRUNE;
        }
        control.bridge.next_deadline().unwrap_or(Time::MAX).min(control.next_prune)
    }

    /// Calls [`SharedBridge::keep_house`] until the bridge [stops](SharedBridge::stop). Needs a thread of its own.
    pub fn run_housekeeper(&self) {
        while !self.is_stopping() {
            let now = Time::from_nanos(P::now());
            let next = self.keep_house(now);
            self.housekeeper.park((next != Time::MAX).then(|| next - now));
        }
    }

    /// Ends the bridge: workers and housekeeper return from their calls. Frames that have arrived and are not forwarded
    /// are dropped and counted.
    pub fn stop(&self) {
        // Under the lock for adding ports, so that each port is stopped.
        let control = self.control.lock();
        self.stopping.store(true, Ordering::Release);
        control.ports.iter().flatten().for_each(|port| port.stop());
        drop(control);
        self.wake_workers();
        self.housekeeper.unpark();
    }

    /// Whether [`SharedBridge::stop`] was called.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Maximum number of frames that one interrupt takes.
    #[inline]
    pub(crate) fn most_work(&self) -> usize {
        self.work.load(Ordering::Relaxed)
    }

    /// Work per interrupt.
    pub fn work(&self) -> Work {
        Work::of_most(self.most_work())
    }

    /// Sets it, from the next interrupt of each worker on.
    pub fn set_work(&self, work: Work) {
        self.work.store(work.most(), Ordering::Relaxed);
    }

    /// The vectors of all ports.
    pub fn interrupts(&self) -> Vec<InterruptReport> {
        let control = self.control.lock();
        control.ports.iter().flatten().flat_map(|port| port.interrupts()).collect()
    }

    /// Moves a vector of a port, and with it the polling of its receive queues, to another processor. No frame is lost,
    /// and no frame overtakes another. [`Relocation::wait`] waits until the move is done.
    ///
    /// # Errors
    /// See [`AffinityError`].
    pub fn set_affinity(
        &self,
        port: &str,
        role: VectorRole,
        processor: usize,
    ) -> Result<Relocation<'_, P>, AffinityError> {
        let mut control = self.control.lock();
        let found = control.ports.iter().flatten().find(|listed| listed.name == port).cloned();
        let port = found.ok_or(AffinityError::NoVector)?;
        let queues = match port.vectors.moved_with(role) {
            Some(queues) => queues,
            None if port.vectors.has(role) => return Err(AffinityError::Follows),
            None => return Err(AffinityError::NoVector),
        };
        if !self.is_manned(processor) {
            return Err(AffinityError::NoProcessor);
        }
        let moves = control.affinity.move_to(&port, queues, processor)?;
        Ok(self.relocate(&mut control, moves))
    }

    /// Keeps interrupts away from a processor: its vectors go to the others. Or allows them again: new ports and
    /// [`SharedBridge::distribute`] then use the processor.
    ///
    /// # Errors
    /// There is no such processor, or no other takes interrupts.
    pub fn shield(&self, processor: usize, shielded: bool) -> Result<Relocation<'_, P>, AffinityError> {
        let mut control = self.control.lock();
        let ports: Vec<_> = control.ports.iter().flatten().cloned().collect();
        let moves = control.affinity.shield(&ports, processor, shielded)?;
        Ok(self.relocate(&mut control, moves))
    }

    /// Spreads all vectors over the processors that take interrupts, as when their ports were added.
    pub fn distribute(&self) -> Relocation<'_, P> {
        let mut control = self.control.lock();
        let ports: Vec<_> = control.ports.iter().flatten().cloned().collect();
        let moves = control.affinity.distribute(&ports);
        self.relocate(&mut control, moves)
    }

    /// Processors that take no interrupts.
    pub fn shielded(&self) -> Vec<usize> {
        self.control.lock().affinity.shielded()
    }

    fn relocate(&self, control: &mut ControlPlane<P>, mut moves: Vec<QueueMove<P>>) -> Relocation<'_, P> {
        // A worker that has ended neither passes queues on nor takes any.
        moves.retain(|of| self.is_manned(of.from) && self.is_manned(of.to));
        control.affinity.has_moved |= !moves.is_empty();
        for QueueMove { port, index, from, to, .. } in &moves {
            self.deliver(*from, SeatDelivery::Part(Parting { port: port.clone(), index: *index, to: *to }));
        }
        Relocation::new(self, moves)
    }

    /// Whether the worker of this number has not ended.
    pub(crate) fn is_manned(&self, worker: usize) -> bool {
        self.seats.get(worker).is_some_and(|seat| !seat.deliveries.lock().left)
    }

    /// Wakes the housekeeper, which then learns the posted addresses.
    pub(crate) fn wake_housekeeper(&self) {
        self.housekeeper.unpark();
    }

    /// Sends a message to the housekeeper.
    pub(crate) fn send_mail(&self, letter: HouseMail, counters: &Counters) {
        let mut mail = self.mail.lock();
        if mail.len() >= MOST_MAIL && matches!(letter, HouseMail::Bpdu(..)) {
            return counters.count_drop(DropReason::InputQueueFull);
        }
        mail.push_back(letter);
        drop(mail);
        self.wake_housekeeper();
    }

    /// The exclusive parts of a worker; `None`: a worker of this number has begun.
    pub(crate) fn take_seat(&self, worker: usize) -> Option<spsc::Producer<LearnedSource, P>> {
        self.producers.lock().get_mut(worker)?.take()
    }

    /// Whether messages were delivered to a worker: one load.
    #[inline]
    pub(crate) fn has_deliveries(&self, worker: usize) -> bool {
        self.seats[worker].has_deliveries.load(Ordering::Acquire)
    }

    /// The messages delivered to a worker.
    pub(crate) fn deliveries(&self, worker: usize) -> Vec<SeatDelivery<P>> {
        let seat = &self.seats[worker];
        let mut deliveries = seat.deliveries.lock();
        seat.has_deliveries.store(false, Ordering::Relaxed);
        std::mem::take(&mut deliveries.waiting)
    }

    /// Sends a message to a worker. If the worker has ended, the message is dropped, and a queue in it closed.
    pub(crate) fn deliver(&self, worker: usize, delivery: SeatDelivery<P>) {
        let seat = &self.seats[worker];
        let mut deliveries = seat.deliveries.lock();
        if deliveries.left {
            // The queue's own locks are not taken below this one.
            drop(deliveries);
            return drop(delivery);
        }
        deliveries.waiting.push(delivery);
        seat.has_deliveries.store(true, Ordering::Release);
        drop(deliveries);
        seat.bell.ring();
    }

    /// A worker has ended: its waiting messages, and later ones, are dropped.
    pub(crate) fn leave_seat(&self, worker: usize) {
        let mut deliveries = self.seats[worker].deliveries.lock();
        deliveries.left = true;
        let waiting = std::mem::take(&mut deliveries.waiting);
        drop(deliveries);
        drop(waiting);
    }

    fn wake_workers(&self) {
        self.seats.iter().for_each(|seat| _ = seat.bell.ring());
    }

    fn learn_posted(&self, control: &mut ControlPlane<P>, now: Time) {
        let ControlPlane { posted, sources, ports, .. } = control;
        posted.iter_mut().for_each(|queue| _ = queue.pop_batch(sources, MOST_POSTED));
        // A port that was removed meanwhile has no stations.
        sources.retain(|source| ports.get(source.port.index()).is_some_and(Option::is_some));
        if !sources.is_empty() {
            self.table.learn_all(sources, now, |learned| count_learned(learned, &self.counters));
            sources.clear();
        }
    }

    /// Publishes the member list if it has changed, and then transmits BPDUs.
    fn settle(&self, control: &mut ControlPlane<P>) {
        self.publish(control);
        while let Some((number, bytes)) = control.bridge.next_bpdu() {
            let Some(port) = control.ports.get(number.index()).and_then(Option::as_ref) else { continue };
            let Some(frame) = PktBuf::from_slice(&bytes) else {
                self.counters.count_drop(DropReason::NoBuffer);
                continue;
            };
            let Some(frame) = port.prepare(frame, TagAction::Keep, &self.counters) else { continue };
            let by = Transmitter { worker: self.seats.len(), lane: 0 };
            if port.is_given_away() {
                self.deliver(0, SeatDelivery::Frame(port.clone(), frame));
            } else {
                port.transmit(by, frame, &self.counters);
            }
        }
    }

    fn publish(&self, control: &mut ControlPlane<P>) {
        let same_ports = |list: &MemberList<P>| {
            let same = |(a, b): (&Option<Arc<_>>, &Option<Arc<_>>)| match (a, b) {
                (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                (None, None) => true,
                _ => false,
            };
            list.ports.len() == control.ports.len() && list.ports.iter().zip(&control.ports).all(same)
        };
        let mut reader = self.domain.section_reader();
        let section = reader.enter();
        let current = self.list.read(&section);
        let unchanged = same_ports(current) && current.members == *control.bridge.members();
        let version = current.version + 1;
        drop(section);
        drop(reader);
        if unchanged {
            return;
        }
        let next = MemberList { version, members: control.bridge.members().clone(), ports: control.ports.clone() };
        drop(self.list.replace(|_| next));
        // Removes addresses that a worker learned from the old list, behind a port that does not learn any more.
        let silent = |(port, member): (PortNumber, &Member)| (member.state() == PortState::Discarding).then_some(port);
        let silent: Vec<PortNumber> = control.bridge.members().iter().filter_map(silent).collect();
        for port in silent {
            control.bridge.table_mut().flush_port(port);
        }
    }
}

/// The completion of a removal.
pub struct PortRemoval<P: Platform> {
    port: Arc<BridgePort<P>>,
}

impl<P: Platform> PortRemoval<P> {
    /// Whether the workers have closed the port's receive queues.
    pub fn is_complete(&self) -> bool {
        !self.port.is_polled()
    }

    /// Waits until they are closed. The workers must be running, on other threads.
    pub fn wait(&self) {
        let mut spins = 0;
        while !self.is_complete() {
            P::relax(spins);
            spins = spins.saturating_add(1);
        }
    }
}
