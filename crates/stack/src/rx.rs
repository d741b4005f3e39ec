//! The receive path: from a device's queue to `post`, the one line where architectures differ.
//!
//! A driver belongs to one thread at a time and serves one queue pair of each device. It takes a batch of frames, has
//! IP check them, classifies segments into flows and posts them; answers ARP, ND and ICMP by itself; then gives the
//! architecture its tick, and connections that ran out of device credit their turn. No stack lock is held here.

use std::sync::Arc;
use std::time::Duration;

use dev::{RxQueue, WaitOutcome, Wake};
use ip::Input;
use ip::icmp::ReceivedIcmp;
use ip::input::{Ipv6Frame, Other};
use observe::{Counter, Counters, DropReason, Time};
use path::{Consume, Emitter, Frame, Inspection, TransmitQueue, Vector};
use pktbuf::PktBuf;
use sync::{Atomic, Ordering, Parker, Platform, model_is_over};
use tcp::Verify;
use wire::rss::Toeplitz;
use wire::{FourTuple, Framing};

use crate::alarm::ROOM_NAP;
use crate::arch::RunningArchitecture;
use crate::arch::running::ArchitectureSlot;
use crate::attempt::{Panic, attempt};
use crate::call::{ArrivingDatagram, ArrivingSegment, ControlRequest, Ingress};
use crate::charge;
use crate::containment::{FaultScope, PANICS_IN_A_ROW};
use crate::deferred::DeferredEffects;
use crate::flow::Target;
use crate::interface::{Port, Ports};
use crate::loopback::LoopbackReceiver;
use crate::shared::Shared;

/// The most batches that a driver takes before it runs expired timers: together the default size of a queue.
const MOST_BATCHES: usize = 16;
/// The most connections waiting for room in a device that get a turn after each batch.
const ROOM_TURNS: usize = 64;

/// A receive queue of a driver.
pub(crate) struct RxSource<P: Platform> {
    /// The port that it belongs to.
    pub port: usize,
    /// The interface over the port.
    pub interface: Option<usize>,
    /// The framing of the device's frames.
    pub framing: Framing,
    /// The verdict step before IP, where there is one.
    pub inspected: Option<Box<Inspected<P>>>,
    /// The queue.
    pub queue: Box<dyn RxQueue>,
}

/// A verdict step, and the bridge for the frames that are not for the stack.
pub(crate) struct Inspected<P: Platform> {
    inspection: Inspection<P>,
    bridge: Option<Box<dyn Consume<P, Target>>>,
    /// Frames for the bridge; empty between vectors.
    bridged: Vector,
}

impl<P: Platform> Inspected<P> {
    /// Keeps in `vector` the frames for the stack, and gives the others to the bridge.
    #[inline(never)]
    fn inspect(
        &mut self,
        port: usize,
        vector: &mut Vector,
        ports: &Ports<P>,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        let bridged = &mut self.bridged;
        self.inspection.inspect(port, vector, bridged, counters);
        match &mut self.bridge {
            _ if bridged.is_empty() => {}
            Some(bridge) => bridge.consume(port, bridged, &mut Emitter::new(ports, counters, deferred.dirty())),
            None => {
                counters.drop_many(DropReason::NotForUs, bridged.len() as u64);
                bridged.clear();
            }
        }
    }
}

/// A driver's batches from its queues.
struct DriverBatches {
    /// The clock's reading before the last batch.
    now: Time,
    frames: usize,
    /// A queue may hold more frames than its last batch.
    full: bool,
}

/// One receive thread's view of the devices.
pub struct Driver<P: Platform> {
    shared: Arc<Shared<P>>,
    /// The slot with the current architecture; a switch replaces it.
    slot: Arc<ArchitectureSlot<P>>,
    /// The architecture in `slot` when the latest batch began.
    active: Arc<dyn RunningArchitecture<P>>,
    version: u32,
    /// See [`Properties::keeps_batches_together`](crate::Properties::keeps_batches_together).
    keeps_batches: bool,
    rss: Toeplitz,
    index: usize,
    sources: Vec<RxSource<P>>,
    /// The loopback queue. Not one of the sources, which end with their devices.
    loopback: Option<LoopbackReceiver<P>>,
    /// It was given queues; when all are gone it has no devices left.
    has_devices: bool,
    /// Empty between polls; kept for its memory.
    vector: Vector,
    /// Empty between polls; kept for its memory.
    deferred: DeferredEffects<P>,
    counters: Arc<Counters>,
    idle: Arc<Idle<P>>,
    /// Ports whose device was found to have vanished.
    lost: Vec<usize>,
    /// Frames taken from a queue and not processed yet.
    unserved: u64,
    /// The source in use; `sources.len()` if none.
    at: usize,
    /// Panics since the last progress.
    panics: u32,
}

/// Where a driver sleeps after its device has vanished: timers and callers still need it.
struct Idle<P: Platform>(Parker<P>);

impl<P: Platform> Wake for Idle<P> {
    fn wake(&self) {
        self.0.unpark();
    }
}

impl<P: Platform> Drop for Driver<P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.shared.links().alarms().leave(self.index);
            self.slot.get().active.retire();
        }
    }
}

impl<P: Platform> Driver<P> {
    pub(crate) fn new(
        shared: &Arc<Shared<P>>,
        slot: &Arc<ArchitectureSlot<P>>,
        rss: &Toeplitz,
        index: usize,
        (sources, loopback): (Vec<RxSource<P>>, Option<LoopbackReceiver<P>>),
    ) -> Self {
        let idle = Arc::new(Idle(Parker::new()));
        let own: Arc<dyn Wake> = idle.clone();
        shared.links().alarms().add_wakers(index, sources.iter().map(|source| source.queue.waker()).chain([own]));
        let running = slot.get();
        Driver {
            shared: shared.clone(),
            slot: slot.clone(),
            active: running.active.clone(),
            version: running.version,
            keeps_batches: running.arch.properties().keeps_batches_together,
            rss: rss.clone(),
            index,
            has_devices: !sources.is_empty(),
            sources,
            loopback,
            vector: Vector::new(),
            deferred: DeferredEffects::default(),
            counters: Arc::new(Counters::new()),
            idle,
            lost: Vec::new(),
            unserved: 0,
            at: 0,
            panics: 0,
        }
    }

    /// The loop of a receive thread: batches while there are frames, sleep when there are none, until `stop` is set and
    /// the thread woken. It outlives its devices: timers and, under `up`, callers still need it. Calls `on_gone` once,
    /// when every device has vanished or been given up.
    ///
    /// A panic loses the work in progress. After repeated panics without progress in between, the device that they come
    /// from is given up, as if unplugged; if they come from no device, the thread is given up with all its devices.
    pub fn serve(&mut self, stop: &P::AtomicBool, on_gone: impl FnOnce()) {
        let mut on_gone = Some(on_gone);
        while !stop.load(Ordering::Acquire) && self.panics <= PANICS_IN_A_ROW {
            match self.contained(Self::turn) {
                Some(0) => {}
                Some(_) => {
                    self.panics = 0;
                    continue;
                }
                None => continue,
            }
            if self.gone()
                && let Some(on_gone) = on_gone.take()
            {
                self.contained(|_, _| on_gone());
            }
            if self.contained(|driver, _| driver.wait(None)).is_some() {
                self.panics = 0;
            }
        }
        if let Some(on_gone) = on_gone.filter(|_| self.panics > PANICS_IN_A_ROW) {
            on_gone();
        }
    }

    /// Does one piece of work. `None`: it panicked.
    fn contained<R>(&mut self, work: impl FnOnce(&mut Self, &mut DeferredEffects<P>) -> R) -> Option<R> {
        let mut deferred = std::mem::take(&mut self.deferred);
        let done = attempt(|| work(self, &mut deferred)).map_err(|panic| self.survive(panic, &mut deferred)).ok();
        self.deferred = deferred;
        done
    }

    /// Records a panic, gives up a device or thread that panicked too often, and performs the effects of earlier
    /// events.
    #[cold]
    fn survive(&mut self, panic: Panic, deferred: &mut DeferredEffects<P>) {
        // A frame was consumed, so this counts as progress: the next one may not panic.
        self.panics = if self.unserved > 0 { 0 } else { self.panics + 1 };
        let source = self.sources.get(self.at).map(|source| source.port);
        let scope = match source {
            _ if self.panics < PANICS_IN_A_ROW => FaultScope::Work,
            Some(port) => FaultScope::Device(port),
            None => FaultScope::Thread,
        };
        self.shared.failures.note(panic, scope.clone(), &self.shared.counters);
        Counters::drop_many(&self.counters, DropReason::ReceiverPanicked, std::mem::take(&mut self.unserved));
        // The effects of the events before it must still be performed.
        let rest = attempt(|| {
            self.shared.failures.notify_pending();
            deferred.flush(self.shared.links());
            self.active.end_of_batch(deferred);
        });
        if rest.is_err() {
            *deferred = DeferredEffects::default();
        }
        match scope {
            FaultScope::Device(_) => {
                let source = self.sources.remove(self.at);
                self.take_down(source);
                self.panics = 0;
            }
            FaultScope::Thread => {
                while let Some(source) = self.sources.pop() {
                    self.take_down(source);
                }
                self.panics = PANICS_IN_A_ROW + 1;
            }
            _ => {}
        }
        self.at = self.sources.len();
    }

    /// Takes a device out of use. If it was its interface's last, connections through the interface end, and none can
    /// be opened through it.
    fn take_down(&self, RxSource { port, interface, queue, .. }: RxSource<P>) {
        let _ = attempt(|| drop(queue));
        let last = self.shared.routes().set_port_down(self.shared.links(), port, interface, true);
        if let Some(interface) = interface.filter(|_| last) {
            let _ = attempt(|| self.active.control(ControlRequest::LinkDown(interface)));
        }
    }

    /// The calling thread stops polling for a while: other threads may use its cells meanwhile.
    pub fn rest(&mut self) {
        self.find_architecture();
        self.active.retire();
    }

    /// Checks whether the stack has been switched to another architecture.
    #[inline]
    fn find_architecture(&mut self) {
        let running = self.slot.get();
        if running.version != self.version {
            self.active = running.active.clone();
            self.version = running.version;
            self.keeps_batches = running.arch.properties().keeps_batches_together;
        }
    }

    /// From now on frames that this driver receives by `port` are inspected before IP; those for a bridge are given to
    /// `bridge`, which may transmit by every port of the stack. Without a bridge such frames are dropped and counted as
    /// [`DropReason::NotForUs`]. False: the driver serves no queue of that port. Call it between polls. Loopback
    /// packets use no port of a device, and are not inspected.
    pub fn inspect(
        &mut self,
        port: usize,
        inspection: Inspection<P>,
        bridge: Option<Box<dyn Consume<P, Target>>>,
    ) -> bool {
        let source = self.sources.iter_mut().find(|source| source.port == port);
        source.is_some_and(|source| {
            source.inspected = Some(Box::new(Inspected { inspection, bridge, bridged: Vector::new() }));
            true
        })
    }

    /// Takes no more than `most` frames at once from each queue from now on; see
    /// [`StackConfig::receive_batch`](crate::StackConfig::receive_batch).
    pub(crate) fn limit_batches(&mut self, most: usize) {
        self.vector.limit(most);
    }

    /// Which queue pair it serves.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its own counters: frames dropped before they reached a connection.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Takes one batch from each queue and delivers it; runs due timers. Returns the number of frames, which is not 0
    /// while loopback packets wait.
    pub fn poll(&mut self) -> usize {
        let mut deferred = std::mem::take(&mut self.deferred);
        let frames = self.turn(&mut deferred);
        self.deferred = deferred;
        frames
    }

    #[inline]
    fn turn(&mut self, deferred: &mut DeferredEffects<P>) -> usize {
        self.find_architecture();
        self.shared.links().alarms().run_here(self.index);
        let mut taken = self.take(deferred);
        if taken.full {
            self.catch_up(&mut taken, deferred);
        }
        if taken.frames == 0 {
            self.check_devices();
        }
        self.housekeeping(taken.now, deferred);
        taken.frames.max(usize::from(self.has_looped()))
    }

    /// Whether there are loopback packets for this driver.
    #[inline]
    fn has_looped(&self) -> bool {
        self.loopback.as_ref().is_some_and(LoopbackReceiver::has_frames)
    }

    /// A queue returned a full batch, and may hold frames that arrived before a deadline that has passed since. They
    /// are processed first, or a thread that was delayed would time out although the peer had answered. The number of
    /// batches is bounded, because frames may arrive as fast as they are processed.
    #[cold]
    fn catch_up(&mut self, taken: &mut DriverBatches, deferred: &mut DeferredEffects<P>) {
        for _ in 0..MOST_BATCHES {
            let due = self.active.next_deadline().is_some_and(|deadline| deadline <= taken.now);
            if !due || !taken.full {
                return;
            }
            let more = self.take(deferred);
            *taken = DriverBatches { frames: taken.frames + more.frames, ..more };
        }
    }

    /// Takes one batch from each queue.
    #[inline]
    fn take(&mut self, deferred: &mut DeferredEffects<P>) -> DriverBatches {
        let now = self.shared.clock().now();
        self.shared.clock().begin_batch(now);
        let mut taken = DriverBatches { now, frames: 0, full: false };
        for index in 0..self.sources.len() {
            let mut vector = std::mem::take(&mut self.vector);
            let RxSource { port, interface, framing, inspected, queue } = &mut self.sources[index];
            let (interface, framing) = (*interface, *framing);
            self.at = index;
            charge::batch::<P>();
            let count = vector.receive(queue.as_mut(), framing, self.keeps_batches);
            taken.frames += count;
            if count != 0 {
                self.counters.add(Counter::FramesIn, count as u64);
                self.counters.increment(Counter::RxBatches);
            }
            taken.full |= count == vector.most();
            if let Some(inspected) = inspected {
                inspected.inspect(*port, &mut vector, self.shared.links().ports(), &self.counters, deferred);
            }
            if let Some(interface) = interface {
                self.unserved = vector.len() as u64;
                for frame in vector.drain() {
                    self.ingress(interface, frame.ingress(framing), now, deferred);
                    self.unserved -= 1;
                }
            } else {
                Counters::drop_many(&self.counters, DropReason::NotForUs, vector.len() as u64);
                vector.clear();
            }
            self.vector = vector;
        }
        self.at = self.sources.len();
        if self.has_looped() {
            self.take_loopback(&mut taken, deferred);
        }
        deferred.flush(self.shared.links());
        self.active.end_of_batch(deferred);
        taken
    }

    /// Takes one batch of loopback packets.
    #[cold]
    #[inline(never)]
    fn take_loopback(&mut self, taken: &mut DriverBatches, deferred: &mut DeferredEffects<P>) {
        let Some(receiver) = &mut self.loopback else { return };
        let mut vector = std::mem::take(&mut self.vector);
        receiver.begin();
        let count = vector.receive(receiver.queue.as_mut(), Framing::Packet, self.keeps_batches);
        if count == vector.most() {
            receiver.keep_raised();
        }
        if count != 0 {
            self.counters.add(Counter::FramesIn, count as u64);
            self.counters.increment(Counter::RxBatches);
        }
        taken.frames += count;
        taken.full |= count == vector.most();
        self.unserved = count as u64;
        for Frame { buffer, followed, .. } in vector.drain() {
            self.looped(buffer, followed, taken.now, deferred);
            self.unserved -= 1;
        }
        self.vector = vector;
    }

    /// A loopback packet: it arrives at the interface that has its destination or, to a group, is a member of it.
    fn looped(&mut self, packet: PktBuf, followed: bool, now: Time, deferred: &mut DeferredEffects<P>) {
        let destination = ip::input::destination(&packet);
        let Some(owner) = destination.and_then(|destination| self.shared.links().owner_including_loopback(destination))
        else {
            // The address was given up meanwhile.
            return Counters::drop(&self.counters, DropReason::NotForUs);
        };
        let view = self.shared.links().view(owner);
        let input = ip::input::looped_back(packet, view, &self.counters);
        self.input(owner, (input, followed), now, deferred);
    }

    /// The connections of a vanished device end, and none can be opened through it until it is back.
    fn check_devices(&mut self) {
        for RxSource { port, interface, queue, .. } in &self.sources {
            let (gone, known) = (queue.gone(), self.lost.contains(port));
            if gone && !known {
                self.lost.push(*port);
                let last = self.shared.routes().set_port_down(self.shared.links(), *port, *interface, true);
                if let Some(interface) = interface.filter(|_| last) {
                    self.active.control(ControlRequest::LinkDown(interface));
                }
            } else if known && !gone {
                self.lost.retain(|lost| lost != port);
                self.shared.routes().set_port_down(self.shared.links(), *port, *interface, false);
            }
        }
    }

    fn housekeeping(&mut self, now: Time, deferred: &mut DeferredEffects<P>) {
        self.active.tick(now);
        self.shared.failures.notify_pending();
        self.shared.control().weigh_memory(now);
        if self.shared.internet().deadline() <= now {
            let ways = (self.shared.egress(), self.shared.control());
            for error in self.shared.internet().timeouts(ways, now, &self.counters, deferred) {
                let hash = self.rss.hash_tcp(&error.tuple);
                self.active.post(&mut Ingress::IcmpError { hash, error }, now, deferred);
            }
            self.active.end_of_batch(deferred);
        }
        for address in self.shared.addresses().take_lost() {
            // It may be on another interface as well.
            if !self.shared.links().is_local(address) {
                self.active.control(ControlRequest::AddressLost(address));
            }
        }
        for port in 0..self.shared.links().ports().iter().len() {
            self.serve_waiting(port, now, deferred);
        }
        deferred.flush(self.shared.links());
    }

    /// Connections that wait for room in this driver's device queue get their turn, longest waiting first, each once.
    fn serve_waiting(&self, port: usize, now: Time, deferred: &mut DeferredEffects<P>) {
        for queue in self.served_queues(&self.shared.links().ports()[port]) {
            if queue.drain() {
                queue.flush();
            }
            for before in 0..queue.blocked().min(ROOM_TURNS) {
                let Some(target) = queue.pop_ready_sender(before) else { break };
                self.counters.add(Counter::RoomTurns, 1);
                self.active.post(&mut Ingress::TransmitReady(target), now, deferred);
            }
        }
        self.active.end_of_batch(deferred);
    }

    /// When it next has work that no frame or call triggers: a timer, a delayed frame of a device, a connection or
    /// frame that waits for room in a device. Never late; early wakes are harmless.
    pub fn next_deadline(&self) -> Time {
        let now = self.shared.clock().now();
        if self.has_looped() || self.transmit_queues().any(|queue| queue.has_blocked()) {
            return now;
        }
        let nap = self.waits_for_room().then(|| now + ROOM_NAP);
        let devices = self.sources.iter().filter_map(|source| source.queue.next_due());
        let others = devices.chain(nap).chain(self.slot.get().active.next_deadline()).min().unwrap_or(Time::MAX);
        others.min(self.shared.internet().deadline())
    }

    /// Sleeps until a frame arrives, a timer is due, the driver is woken, or `limit` has passed.
    pub fn wait(&mut self, limit: Option<Duration>) -> WaitOutcome {
        self.find_architecture();
        let now = self.shared.clock().now();
        let until = self.shared.links().alarms().park(self.index, || self.wake_deadline(now));
        let timeout = limit.into_iter().chain((until != Time::MAX).then(|| until - now)).min();
        let outcome = if self.has_looped() { WaitOutcome::Ready } else { self.sleep(timeout) };
        self.shared.links().alarms().unpark(self.index);
        outcome
    }

    /// The latest time at which it must check for work.
    fn wake_deadline(&self, now: Time) -> Time {
        if self.has_looped() {
            return now;
        }
        // With several devices the thread sleeps on the first and polls the others often enough.
        let nap = (self.sources.len() > 1 || self.waits_for_room()).then(|| now + ROOM_NAP);
        let others = nap.into_iter().chain(self.active.next_deadline()).min().unwrap_or(Time::MAX);
        others.min(self.shared.internet().deadline())
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        // Waiting on a queue that is gone returns at once, and a vanished device is reported at once. After that only
        // timers, callers and a returning device are left to wait for.
        if self.gone() {
            let now = self.shared.clock().now();
            let back = self.sources.iter().filter_map(|source| source.queue.next_due()).map(|due| due - now).min();
            self.idle.0.park(timeout.into_iter().chain(back).min());
            return WaitOutcome::Gone;
        }
        self.at = 0;
        let outcome = self.sources.first_mut().map_or(WaitOutcome::Gone, |source| source.queue.wait(timeout));
        if outcome == WaitOutcome::Gone && !self.gone() {
            self.idle.0.park(timeout);
        }
        outcome
    }

    /// Whether connections or frames wait for room in a device queue of this driver.
    fn waits_for_room(&self) -> bool {
        self.transmit_queues().any(|queue| queue.may_have_waiters())
    }

    /// The transmit queues that this driver serves.
    fn transmit_queues(&self) -> impl Iterator<Item = &TransmitQueue<P, Target>> {
        self.shared.links().ports().iter().flat_map(|port| self.served_queues(port))
    }

    /// Those of one port: the queue of this driver, and all that the calling thread has claimed.
    #[inline]
    fn served_queues<'a>(&self, port: &'a Port<P>) -> impl Iterator<Item = &'a TransmitQueue<P, Target>> + use<'a, P> {
        let own = self.index;
        let queues = port.queues().iter().enumerate();
        queues.filter(move |(index, queue)| *index == own || queue.is_claimed_here()).map(|(_, queue)| queue)
    }

    /// Whether every device has vanished.
    pub fn gone(&self) -> bool {
        self.has_devices && self.sources.iter().all(|source| source.queue.gone())
    }

    #[inline]
    fn ingress(&mut self, interface: usize, ingress: path::StackInput, now: Time, deferred: &mut DeferredEffects<P>) {
        match ingress {
            path::StackInput::Frame(frame) => self.frame(interface, frame, now, deferred),
            path::StackInput::Packet(packet) => self.packet(interface, packet, now, deferred),
        }
    }

    /// A packet from a link without headers.
    #[inline(never)]
    fn packet(&mut self, interface: usize, packet: Frame, now: Time, deferred: &mut DeferredEffects<P>) {
        charge::frame::<P>(&packet.buffer);
        let view = self.shared.links().view(interface);
        let input = ip::input::without_link(packet.buffer, view, &self.counters);
        self.input(interface, (input, packet.followed), now, deferred);
    }

    #[inline]
    fn frame(&mut self, interface: usize, frame: Frame, now: Time, deferred: &mut DeferredEffects<P>) {
        sync::walk::note(file!(), "takes a frame from the device's queue");
        let Frame { buffer, headers, followed } = frame;
        charge::frame::<P>(&buffer);
        let (view, counters) = (self.shared.links().view(interface), &*self.counters);
        let segment = |datagram| {
            Self::tcp(&self.shared, &*self.active, &self.rss, counters, (datagram, followed), now, deferred);
            None
        };
        match ip::input::ethernet_to(buffer, headers, view, counters, segment, Some) {
            None => {}
            Some(Other::Ipv6(frame)) => self.ipv6(interface, (frame, followed), now, deferred),
            Some(Other::Input(input)) => self.input(interface, (input, followed), now, deferred),
        }
    }

    /// The same for IPv6, in a function of its own: IPv4 has the same code whether there is IPv6 or not.
    #[inline(never)]
    fn ipv6(
        &mut self,
        interface: usize,
        (frame, followed): (Ipv6Frame, bool),
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) {
        let (view, counters) = (self.shared.links().view(interface), &*self.counters);
        let segment = |datagram| {
            Self::tcp(&self.shared, &*self.active, &self.rss, counters, (datagram, followed), now, deferred);
            None
        };
        if let Some(input) = ip::input::ipv6_to(frame, view, counters, segment, Some) {
            self.input(interface, (input, followed), now, deferred);
        }
    }

    /// Classifies a frame that is not a plain segment. `followed`: data of the same connection follows directly.
    #[inline(never)]
    fn input(
        &mut self,
        interface: usize,
        (input, followed): (Input, bool),
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) {
        match input {
            Input::Tcp(datagram) => {
                Self::tcp(&self.shared, &*self.active, &self.rss, &self.counters, (datagram, followed), now, deferred);
            }
            Input::Udp(datagram) => self.udp(datagram, now, deferred),
            Input::Icmp(datagram) => self.icmp(interface, datagram, now, deferred),
            Input::Igmp(datagram) => match ip::igmp::receive(&datagram, &self.counters) {
                Ok(query) => self.shared.addresses().group_query_arrives(
                    self.shared.egress(),
                    interface,
                    &query,
                    now,
                    &self.counters,
                    deferred,
                ),
                Err(reason) => Counters::drop(&self.counters, reason),
            },
            Input::Fragment(fragment) => {
                if let Some(whole) = self.shared.internet().fragment_arrives(
                    (self.shared.egress(), self.shared.control()),
                    fragment,
                    now,
                    &self.counters,
                    deferred,
                ) {
                    self.input(interface, (ip::input::reassembled(whole), false), now, deferred);
                }
            }
            Input::Arp(packet) => self.shared.internet().arp_arrives(
                self.shared.egress(),
                interface,
                &packet,
                now,
                &self.counters,
                deferred,
            ),
            Input::Elsewhere { packet, src, dst } => match self.shared.links().owner_of(dst) {
                Some(owner) if !self.shared.links().is_local(src) => {
                    let view = self.shared.links().view(owner);
                    let input = ip::input::for_another(packet, view, &self.counters);
                    self.input(owner, (input, followed), now, deferred);
                }
                _ => Counters::drop(&self.counters, DropReason::NotForUs),
            },
            Input::Refused(refused) => {
                Counters::drop(&self.counters, refused.reason);
                self.shared.egress().refuse(&refused.datagram, refused.error, &self.counters, deferred);
            }
            Input::Drop(reason) => Counters::drop(&self.counters, reason),
        }
    }

    /// Parses a segment, classifies it and posts it.
    #[inline(always)]
    fn tcp(
        shared: &Shared<P>,
        active: &dyn RunningArchitecture<P>,
        rss: &Toeplitz,
        counters: &Counters,
        (datagram, followed): (ip::Datagram, bool),
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) {
        sync::walk::note(file!(), "ip/src/input.rs has checked it; parses the segment, classifies it, posts it");
        let known = datagram.buf.meta().flow_hash;
        let verify = match shared.control().tcp().checksum_placement {
            tcp::config::ChecksumPlacement::Before => Verify::Now,
            tcp::config::ChecksumPlacement::Inside => Verify::Later,
        };
        let ip::Datagram { dst: local, src: remote, mut buf, .. } = datagram;
        let checked = match tcp::Segment::check(local, remote, &mut buf, verify) {
            Ok(checked) => checked,
            Err(reason) => return Counters::drop(counters, reason),
        };
        // Built in one expression, so that it is constructed in place: a move right after its stores would stall.
        let mut ingress = Ingress::Segment(ArrivingSegment {
            hash: known.unwrap_or_default(),
            segment: Some(tcp::Segment::assemble(local, remote, buf, checked, followed)),
        });
        if known.is_none() {
            ingress.rehash(rss);
        }
        active.post(&mut ingress, now, deferred);
    }

    fn udp(&mut self, datagram: ip::Datagram, now: Time, deferred: &mut DeferredEffects<P>) {
        let Ok(header) = wire::udp::parse(&datagram.buf) else {
            return Counters::drop(&self.counters, DropReason::UdpBadLength);
        };
        let tuple = FourTuple {
            local_addr: datagram.dst,
            local_port: header.dst_port,
            remote_addr: datagram.src,
            remote_port: header.src_port,
        };
        self.active.post(&mut Ingress::Datagram(ArrivingDatagram { tuple, datagram }), now, deferred);
    }

    fn icmp(&mut self, interface: usize, datagram: ip::Datagram, now: Time, deferred: &mut DeferredEffects<P>) {
        let view = self.shared.links().view(interface);
        let (local, protocol) = (datagram.dst, datagram.protocol);
        match ip::icmp::receive(datagram, view, &self.counters) {
            ReceivedIcmp::Reply { packet, destination } => {
                self.shared.egress().send_fragmented(packet, local, destination, protocol, &self.counters, deferred);
            }
            ReceivedIcmp::EchoReply { datagram, ident, seq } => self.shared.pings.arrived(&datagram, ident, seq, now),
            ReceivedIcmp::Error(error) if self.shared.routes().is_settled(self.shared.links(), &error) => {
                Counters::drop(&self.counters, DropReason::IcmpSettledPath);
            }
            ReceivedIcmp::Error(error) => {
                let hash = self.rss.hash_tcp(&error.tuple);
                self.active.post(&mut Ingress::IcmpError { hash, error }, now, deferred);
            }
            ReceivedIcmp::Neighbour(discovery) => {
                self.shared.internet().discovery_arrives(
                    self.shared.egress(),
                    interface,
                    &discovery,
                    now,
                    &self.counters,
                    deferred,
                );
            }
            ReceivedIcmp::RouterAdvert { from, advert } => {
                self.shared.addresses().router_advert_arrives(
                    self.shared.egress(),
                    interface,
                    (from, &advert),
                    now,
                    &self.counters,
                    deferred,
                );
            }
            ReceivedIcmp::ListenerQuery(query) => {
                self.shared.addresses().group_query_arrives(
                    self.shared.egress(),
                    interface,
                    &query,
                    now,
                    &self.counters,
                    deferred,
                );
            }
            ReceivedIcmp::Redirect(redirect) => {
                self.shared.addresses().redirect_arrives(
                    self.shared.egress(),
                    interface,
                    &redirect,
                    now,
                    &self.counters,
                    deferred,
                );
            }
            ReceivedIcmp::Nothing => {}
        }
    }
}
