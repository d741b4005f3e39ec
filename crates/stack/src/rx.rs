//! The receive path: from a device's queue to `post`, the one line where architectures differ.
//!
//! A driver belongs to one thread at a time and serves one queue pair of each device, or as the stack is configured
//! ([`DriverLayout`](crate::DriverLayout)). It takes a batch of frames, has IP check them, classifies segments into flows and posts them; answers ARP, ND and ICMP by itself; then gives the
//! architecture its tick, and connections that ran out of device credit their turn. No stack lock is held here.
//!
//! This file has the path of a segment. In `rx/`: the loop of a receive thread (`serve.rs`), its sleep (`sleep.rs`), its
//! work between batches (`housekeeping.rs`), other packets (`input.rs`, `loopback.rs`), and the verdict step
//! (`inspected.rs`).

mod carry;
mod housekeeping;
mod input;
mod inspected;
mod internet;
mod loopback;
mod ring;
mod runs;
mod serve;
mod sleep;

use std::ops::Range;
use std::sync::{Arc, Weak};

use dev::{RxQueue, Wake};
use ip::input::LastAccepted;
use observe::{Counter, Counters, DropReason, Time};
use path::{ArrivingFlow, Consume, Frame, Inspection, Vector};
use smallvec::SmallVec;
use sync::{Parker, Platform, model_is_over};
use tcp::Verify;
use wire::Framing;
use wire::rss::Toeplitz;

use crate::active_flows::ActiveFlows;
use crate::arch::RunningArchitecture;
use crate::arch::frame_input::{ArrivedFrame, FrameBound, FrameInput};
use crate::arch::running::ArchitectureSlot;
use crate::batch_checks::BatchChecks;
use crate::call::{ArrivingSegment, Ingress};
use crate::charge;
use crate::deferred::DeferredEffects;
use crate::flow::Target;
use crate::gate::Gate;
use crate::loopback::LoopbackReceiver;
use crate::shared::Shared;
use inspected::Inspected;
use runs::PendingRun;
use sleep::Idle;

/// The most frames that a driver takes before it runs expired timers: twice the default size of a queue.
const MOST_FRAMES: usize = 16 * path::VECTOR_LEN;
/// Frames of a batch from which it is worth asking for their connections at once.
const WORTH_EXPECTING: u64 = 4;
/// The most batches of a turn that takes all that there is: more than a queue holds. Frames may arrive as fast as they are
/// taken, and a thread that switches the architecture waits for the end of the turn.
const MOST_DRAINED: usize = 64;

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

/// What a segment's way needs of a driver.
type DriverParts<'a, P> = (&'a Shared<P>, &'a dyn RunningArchitecture<P>, &'a Toeplitz, &'a Counters);

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
    /// The same slot, for work that may outlive the stack.
    weak_slot: Weak<ArchitectureSlot<P>>,
    /// The architecture in `slot` when the latest batch began.
    active: Arc<dyn RunningArchitecture<P>>,
    /// The input of that architecture, if it has one: frames are put there and not processed here.
    input: Option<Arc<FrameInput<P>>>,
    /// How many frames it takes in a turn, if the architecture says that.
    bound: Option<FrameBound>,
    /// The architecture is asked before frames are taken.
    polled: bool,
    /// It has refused, and wakes the thread later.
    shut: bool,
    /// The most frames that it takes from a queue at once otherwise.
    batch: usize,
    /// Frames for that input; empty between batches, kept for its memory.
    arrived: Vec<ArrivedFrame>,
    /// The address of the slot's entry that `active` is from. Entries are neither moved nor freed while the slot lives.
    entry: usize,
    /// The gate of the stack, between its passages.
    gate: Option<Arc<Gate<P>>>,
    /// Its checks once a batch.
    checks: Arc<BatchChecks<P>>,
    /// Index of the thread that polled it last.
    thread: Option<usize>,
    /// See [`Properties::keeps_batches_together`](crate::Properties::keeps_batches_together).
    keeps_batches: bool,
    rss: Toeplitz,
    index: usize,
    sources: Vec<RxSource<P>>,
    /// By port, the transmit queues that it serves.
    served: Box<[Range<usize>]>,
    /// The loopback queue. Not one of the sources, which end with their devices.
    loopback: Option<LoopbackReceiver<P>>,
    /// It was given queues; when all are gone it has no devices left.
    has_devices: bool,
    /// The addresses of the latest packets: the views of interfaces are kept until the stack ends.
    accepted: LastAccepted,
    /// Empty between batches; kept for its memory, and taken while there are frames in it.
    vector: Option<Box<Vector>>,
    /// Empty between polls; kept for its memory.
    run: PendingRun,
    /// See [`StackConfig::runs`](crate::StackConfig::runs).
    runs: bool,
    /// Without effects between polls; kept for its memory, and taken while a poll uses it.
    deferred: Option<Box<DeferredEffects<P>>>,
    /// The flows that it has in use.
    flows: ActiveFlows,
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

impl<P: Platform> Drop for Driver<P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.shared.links().alarms().leave(self.index);
            self.rest();
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
        let served = (0..shared.links().ports().iter().len()).map(|port| shared.links().served(index, port)).collect();
        let mut driver = Driver {
            shared: shared.clone(),
            slot: slot.clone(),
            weak_slot: Arc::downgrade(slot),
            input: None,
            bound: None,
            polled: false,
            shut: false,
            batch: path::VECTOR_LEN,
            arrived: Vec::new(),
            active: running.active.clone(),
            entry: std::ptr::from_ref(running).addr(),
            gate: Some(shared.gate().clone()),
            checks: shared.links().checks().clone(),
            thread: None,
            keeps_batches: running.arch.properties().keeps_batches_together,
            rss: rss.clone(),
            index,
            has_devices: !sources.is_empty(),
            sources,
            served,
            loopback,
            accepted: LastAccepted::default(),
            vector: None,
            run: PendingRun::default(),
            runs: true,
            deferred: None,
            flows: ActiveFlows::default(),
            counters: Arc::new(Counters::new()),
            idle,
            lost: Vec::new(),
            unserved: 0,
            at: 0,
            panics: 0,
        };
        driver.find_input();
        driver
    }

    /// The calling thread stops polling for a while: other threads may use its cells meanwhile.
    pub fn rest(&mut self) {
        self.shared.clock().end_batches();
        self.release_set();
        self.inside(|driver| driver.active.retire());
    }

    /// Keeps no poll set alive while it does nothing.
    fn release_set(&mut self) {
        if let Some(deferred) = &mut self.deferred {
            deferred.release_set();
        }
    }

    /// Does `work` where the stack is not switched to another architecture. If a thread is about to switch it, gives up
    /// the cells of the calling thread and waits until it has.
    #[inline]
    fn inside<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        // Moved out, because the guard borrows it: a clone would be a read-modify-write. A panic leaves none here.
        let gate = self.gate.take().unwrap_or_else(|| self.shared.gate().clone());
        let guard = gate.enter_as_driver(|| self.slot.get().active.retire());
        self.find_architecture();
        let result = work(self);
        drop(guard);
        self.gate = Some(gate);
        result
    }

    /// Checks whether the stack has been switched to another architecture.
    #[inline]
    fn find_architecture(&mut self) {
        let running = self.slot.get();
        let entry = std::ptr::from_ref(running).addr();
        if entry != self.entry {
            self.active = running.active.clone();
            self.entry = entry;
            self.keeps_batches = running.arch.properties().keeps_batches_together;
            self.find_input();
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
        self.batch = most;
        self.find_input();
    }

    /// Whether segments of a flow that follow one another enter the architecture together, if it takes that; see
    /// [`StackConfig::runs`](crate::StackConfig::runs).
    pub(crate) fn collect_runs(&mut self, runs: bool) {
        self.runs = runs;
        self.find_input();
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
        let mut deferred = self.deferred.take().unwrap_or_default();
        let frames = self.turn(&mut deferred);
        self.deferred = Some(deferred);
        frames
    }

    #[inline]
    fn turn(&mut self, deferred: &mut DeferredEffects<P>) -> usize {
        self.inside(|driver| driver.turn_inside(deferred))
    }

    #[inline]
    fn turn_inside(&mut self, deferred: &mut DeferredEffects<P>) -> usize {
        let thread = Some(P::thread_index());
        if thread != self.thread {
            self.thread = thread;
            self.shared.links().alarms().run_here(self.index);
        }
        deferred.brought_by(self.index);
        let mut taken = self.take(deferred);
        if taken.full {
            self.take_more(&mut taken, deferred);
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

    /// A queue returned a full batch: takes further frames for this turn.
    #[cold]
    fn take_more(&mut self, taken: &mut DriverBatches, deferred: &mut DeferredEffects<P>) {
        match self.bound {
            // Further frames would not be processed before the timers run, either.
            Some(FrameBound::AtMost(_)) if self.passes_frames_on() => {}
            Some(FrameBound::All) => {
                for _ in 0..MOST_DRAINED {
                    if !taken.full {
                        return;
                    }
                    let more = self.take(deferred);
                    *taken = DriverBatches { frames: taken.frames + more.frames, ..more };
                }
            }
            _ => self.catch_up(taken, deferred),
        }
    }

    /// Whether it puts its frames into an input for threads of the architecture's own, and processes none of them. It
    /// then acts like a hardware interrupt handler.
    fn passes_frames_on(&self) -> bool {
        self.input.as_ref().is_some_and(|input| input.has_workers())
    }

    /// A queue returned a full batch, and may hold frames that arrived before a deadline that has passed since. They
    /// are processed first, or a thread that was delayed would time out although the peer had answered. Their number is
    /// bounded, because frames may arrive as fast as they are processed.
    #[cold]
    fn catch_up(&mut self, taken: &mut DriverBatches, deferred: &mut DeferredEffects<P>) {
        while taken.frames < MOST_FRAMES {
            if !taken.full || !self.active.timer_is_due(taken.now) {
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
        let open = if self.opens_ring() { self.sources.len() } else { 0 };
        for index in 0..open {
            let mut vector = self.take_vector();
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
            if let (Some(interface), Some(input)) = (interface, &self.input) {
                let input = input.clone();
                self.share(&input, (interface, &mut vector), now, deferred);
            } else if let Some(interface) = interface {
                let mut left = vector.len() as u64;
                self.unserved = left;
                if left >= WORTH_EXPECTING && self.active.may_have_many() {
                    self.expect(&vector, deferred);
                }
                for frame in vector.drain() {
                    let followed = frame.followed;
                    if framing == Framing::Ethernet {
                        self.ethernet(interface, frame, now, deferred);
                    } else {
                        self.ingress(interface, frame.ingress(framing), now, deferred);
                    }
                    left -= 1;
                    self.served((left, followed), now, deferred);
                }
            } else {
                Counters::count_drops(&self.counters, DropReason::NotForUs, vector.len() as u64);
                vector.clear();
            }
            self.vector = Some(vector);
        }
        self.at = self.sources.len();
        if self.polled && open != 0 && !taken.full {
            self.active.ring_is_empty(self.index);
        }
        if self.has_looped() {
            self.take_loopback(&mut taken, deferred);
        }
        deferred.flush(self.shared.links());
        self.announce(deferred);
        taken
    }

    /// The vector for a batch.
    #[inline(always)]
    fn take_vector(&mut self) -> Box<Vector> {
        self.vector.take().unwrap_or_else(|| self.new_vector())
    }

    /// A vector that receives as many frames as the architecture lets the driver take.
    #[cold]
    fn new_vector(&self) -> Box<Vector> {
        let mut vector = Box::new(Vector::new());
        vector.limit(match self.bound {
            Some(FrameBound::AtMost(most)) => most.min(self.batch),
            _ => self.batch,
        });
        vector
    }

    /// Has the architecture ask for the connections of the frames.
    /// Counts the flows of the frames. If more are in use than the caches hold, has the architecture ask for their connections.
    #[inline(never)]
    fn expect(&mut self, vector: &Vector, deferred: &mut DeferredEffects<P>) {
        self.flows.note(vector.flows().map(|flow| flow.mark));
        deferred.set_cached(self.flows.cached());
        if !self.flows.are_few() {
            let flows: SmallVec<[ArrivingFlow; path::VECTOR_LEN]> = vector.flows().collect();
            self.counters.add(Counter::ConnectionsPrefetched, self.active.expect(&flows) as u64);
        }
    }

    /// A frame of a vector has been processed, and `left` of that vector have not. Posts the run that it ends.
    #[inline(always)]
    fn served(&mut self, (left, followed): (u64, bool), now: Time, deferred: &mut DeferredEffects<P>) {
        if !self.run.is_empty() {
            if followed {
                return;
            }
            self.run.post(&*self.active, now, deferred);
        }
        self.unserved = left;
    }

    /// Wakes the threads of cells that were sent events.
    #[inline]
    fn announce(&self, deferred: &mut DeferredEffects<P>) {
        if deferred.has_announcements() {
            self.active.end_of_batch(deferred);
        }
    }

    /// A frame with an Ethernet header. The receive path asks only for this framing; the others are told apart in
    /// [`ingress`](Self::ingress).
    #[inline(always)]
    fn ethernet(&mut self, interface: usize, frame: Frame, now: Time, deferred: &mut DeferredEffects<P>) {
        if frame.headers.is_plain_v6() {
            self.frame::<true>(interface, frame, now, deferred);
        } else {
            self.frame::<false>(interface, frame, now, deferred);
        }
    }

    /// A frame of any framing.
    #[inline(never)]
    fn ingress(&mut self, interface: usize, ingress: path::StackInput, now: Time, deferred: &mut DeferredEffects<P>) {
        match ingress {
            path::StackInput::Frame(frame) => self.ethernet(interface, frame, now, deferred),
            path::StackInput::Fddi(frame) => self.fddi(interface, frame, now, deferred),
            path::StackInput::Packet(packet) => self.packet(interface, packet, now, deferred),
        }
    }

    /// Takes a frame with an Ethernet header; plain IPv6 if `V6`. One function for each family: either has the same code
    /// whether there is the other or not.
    #[inline(never)]
    fn frame<const V6: bool>(&mut self, interface: usize, frame: Frame, now: Time, deferred: &mut DeferredEffects<P>) {
        sync::walk::note(file!(), "takes a frame from the device's queue");
        let Frame { buffer, headers, followed } = frame;
        charge::frame::<P>(&buffer);
        let (links, counters) = (self.shared.links(), &*self.counters);
        let view = (links.view(interface), &mut self.accepted);
        let segment = |datagram| {
            let around = (&*self.shared, &*self.active, &self.rss, counters);
            Self::tcp(around, Some(&mut self.run), (datagram, followed), now, deferred);
            None
        };
        let other = if V6 {
            ip::input::ethernet_v6_to(buffer, headers, view, counters, segment, Some)
        } else {
            ip::input::ethernet_to(buffer, headers, view, counters, segment, Some)
        };
        if let Some(input) = other {
            self.input(interface, (input, followed), now, deferred);
        }
    }

    /// Parses a segment, classifies it and posts it, or adds it to `run`.
    #[inline(always)]
    fn tcp(
        (shared, active, rss, counters): DriverParts<'_, P>,
        run: Option<&mut PendingRun>,
        (datagram, followed): (ip::Datagram, bool),
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) {
        sync::walk::note(file!(), "ip/src/input.rs has checked it; parses the segment, classifies it, posts it");
        let known = datagram.buf.meta().flow_hash;
        let config = shared.control().tcp();
        let verify = match config.checksum_placement {
            tcp::config::ChecksumPlacement::Before => Verify::Now,
            tcp::config::ChecksumPlacement::Inside => Verify::Later,
            tcp::config::ChecksumPlacement::After => Verify::After,
        };
        let ip::Datagram { dst: local, src: remote, mut buf, .. } = datagram;
        if verify == Verify::Now {
            charge::checked::<P>(&buf);
        }
        if config.fast_lane
            && verify == Verify::Now
            && let Some(header) = tcp::Segment::timestamped_header(local, remote, &buf)
        {
            if let Some(run) = run
                && run.takes(followed)
            {
                return run.push(known, rss, || tcp::Segment::of_timestamped(local, remote, &header, buf, followed));
            }
            // Built in one expression, as below.
            let mut ingress = Ingress::Segment(ArrivingSegment {
                hash: known.unwrap_or_default(),
                segment: Some(tcp::Segment::of_timestamped(local, remote, &header, buf, followed)),
            });
            if known.is_none() {
                ingress.rehash(rss);
            }
            active.post(&mut ingress, now, deferred);
            // Dropped here: the other kinds of events would make it a call.
            if let Ingress::Segment(ArrivingSegment { segment, .. }) = &mut ingress {
                *segment = None;
                std::mem::forget(ingress);
            }
            return;
        }
        // It may be of the same flow.
        if let Some(run) = run
            && !run.is_empty()
        {
            run.post(active, now, deferred);
        }
        let checked = match tcp::Segment::check(local, remote, &mut buf, verify) {
            Ok(checked) => checked,
            Err(reason) => return counters.count_drop(reason),
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
        // Dropped here, as above; a function for both would copy the event.
        if let Ingress::Segment(ArrivingSegment { segment, .. }) = &mut ingress {
            *segment = None;
            std::mem::forget(ingress);
        }
    }
}
