//! The common part of all architectures whose unit of exclusion is a cell.
//!
//! Such an architecture is one type that implements [`Exclusion`]: how one thread at a time uses a cell, and how other
//! threads send work to that thread. The axes are its items:
//!
//! | axis | item | choices so far |
//! |---|---|---|
//! | exclusion | [`Exclusion::enter`] | a lock (always), ownership by one thread (else refuse), a flag (else refuse) |
//! | hand-over | [`Exclusion::send`] | a mailbox, a ring, a queue beside the flag |
//! | dispatch of arrivals | [`Exclusion::takes_arrivals`] | the thread that posts them, or the thread behind the queue |
//! | threads | [`Exclusion::serve`] | none, one for each cell |
//! | table | the number of cells | one for the stack, one for each shard or group, one for each receive thread |
//!
//! A connection's cell is chosen by the hash of its flow, as a NIC chooses a queue, or by the thread of its first event
//! ([`Exclusion::bindings`]). Listeners are replicated into every cell, in index order, one cell at a time.
//!
//! What may never happen: a caller sleeps for an answer although it is the thread that must do the cell's work.

mod exclusion;
mod hold;

use std::any::Any;
use std::sync::{Arc, Weak};

use observe::{Counters, DropReason, Time};
use path::ArrivingFlow;
use sync::{CachePadded, Lock, PlantedMistake, Platform};

use super::adaptive::decisions::GroupDecision;
use super::adaptive::policy::Book;
use super::adaptive::queues::QueueClaims;
use super::due_cells::DueCells;
use super::frame_input::ArrivalTurn;
use super::frame_workers::AboveWorkers;
use super::own_threads::OwnThreads;
use super::owned_cells::{self, OwnedCells, Waits};
use super::{NotAtRest, RunningArchitecture};
use crate::active_flows::CACHED;
use crate::call::{self, Call, ControlRequest, Ingress, OpenRefused, OpenRequest, Reply};
use crate::connections::{Calls, Datagrams, Upkeep};
use crate::deferred::{DeferredEffects, EffectsGuard, LazyEffects, SendEffects};
use crate::flow::{self, Key, Target, UdpName};
use crate::handoff::{CellMessage, Interrupt, ReplySender, ReplySlot, TableJob};
use crate::place::connection::{Connections, PrefetchPass};
use crate::place::{Cell, Contents};
use crate::shared::{Shared, boxed};
use crate::socket::handler::in_handler;
use crate::stats::StackStats;
use crate::table::flow_bindings::{BoundEvent, FlowBindings};
use crate::udp_call::{UdpCall, UdpReply};

pub use exclusion::{Exclusion, Hub};

/// In a frame of its own, below which nothing is built: see [`boxed`].
#[inline(never)]
#[expect(clippy::boxed_local, reason = "the value is built in place, and moved here alone")]
fn append<E>(cells: &mut Vec<CachePadded<E>>, cell: Box<E>) {
    cells.push(CachePadded::new(*cell));
}

/// An architecture with cells.
pub struct Cells<P: Platform, E: Exclusion<P>> {
    inner: Arc<CellsInner<P, E>>,
    threads: OwnThreads<P>,
}

struct CellsInner<P: Platform, E> {
    hub: Hub<P>,
    /// The slab with the connections of the stack.
    slab: Arc<Connections<P>>,
    cells: Box<[CachePadded<E>]>,
}

impl<P: Platform, E: Exclusion<P>> CellsInner<P, E> {
    /// Gives each cell its share; no other thread has access to the cells yet.
    fn install(&self, contents: Box<Contents<P>>) {
        if contents.is_empty() {
            return;
        }
        let count = self.cells.len();
        let shares = contents.split(count, |hash| flow::index(hash, count));
        for (cell, share) in self.cells.iter().zip(shares) {
            let installed = cell.seize(&self.hub, |cell| cell.install(share));
            debug_assert!(installed.is_some(), "no thread uses a cell before the architecture is built");
        }
    }
}

impl<P: Platform, E: Exclusion<P>> Cells<P, E> {
    /// `count` cells (at least 1) that `make` makes, by index.
    pub fn new(
        shared: &Arc<Shared<P>>,
        count: usize,
        own_threads: bool,
        contents: Box<Contents<P>>,
        make: impl Fn(usize) -> E,
    ) -> Self {
        // A cell is some kilobytes.
        Cells::of_boxes(shared, count, own_threads, contents, |index| boxed(|| make(index)))
    }

    /// The same, where `make` makes large parts of a cell one after another, each by [`boxed`], so that the place of one on the
    /// thread's stack is free when the next is made.
    pub(super) fn of_boxes(
        shared: &Arc<Shared<P>>,
        count: usize,
        own_threads: bool,
        contents: Box<Contents<P>>,
        make: impl Fn(usize) -> Box<E>,
    ) -> Self {
        let own_threads = own_threads && !E::THREAD.is_empty();
        shared.links().alarms().timers_are_run_elsewhere(own_threads && E::RUNS_TIMERS);
        let mut cells = Vec::with_capacity(count.max(1));
        for index in 0..count.max(1) {
            append(&mut cells, make(index));
        }
        let inner = Arc::new_cyclic(|inner: &Weak<CellsInner<P, E>>| {
            let hub = Hub { shared: shared.clone(), own_threads, cells: inner.clone() };
            CellsInner { hub, slab: contents.slab.clone(), cells: cells.into() }
        });
        inner.install(contents);
        let cells = Cells { inner, threads: OwnThreads::none() };
        cells.start();
        cells
    }

    /// Starts the cells' own threads, if they have any.
    fn start(&self) {
        let (inner, hub) = (self.inner.clone(), &self.inner.hub);
        if hub.own_threads {
            let serve = move |index: usize| inner.cells[index].serve(&inner.hub);
            self.threads.start(&hub.shared, (E::THREAD, E::CLASS), 0..self.inner.cells.len(), serve);
        }
    }

    #[inline(always)]
    fn index(&self, hash: impl FnOnce() -> u32) -> usize {
        if E::SINGLE { 0 } else { flow::index(hash(), self.inner.cells.len()) }
    }

    /// The cell of the connections with this hash.
    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        let bound = self.inner.cells[0].bindings().and_then(|bindings| bindings.find(hash));
        bound.unwrap_or_else(|| self.index(|| hash))
    }

    /// The cell of an event, and its reference to the binding of its flow.
    #[inline(always)]
    fn cell_of(&self, event: &Ingress, receiver: Option<usize>) -> (usize, Option<BoundEvent<'_, P>>) {
        let Some(bindings) = self.inner.cells[0].bindings().filter(|_| !event.is_for_a_port()) else {
            return (self.index(|| event.hash()), None);
        };
        match event.flow_hash() {
            Some(hash) => self.bind(bindings, hash, receiver),
            None => (self.home(event.hash()), None),
        }
    }

    /// The cell to which the flow is bound. One that is not is bound to the cell of the receive thread `receiver`, or of the calling
    /// thread: that of receive thread *n* is cell *n*, modulo their number.
    fn bind<'a>(
        &self,
        bindings: &'a FlowBindings<P>,
        hash: u32,
        receiver: Option<usize>,
    ) -> (usize, Option<BoundEvent<'a, P>>) {
        let CellsInner { hub, cells, .. } = &*self.inner;
        let thread = receiver.or_else(|| hub.shared.links().alarms().here()).unwrap_or_else(P::thread_index);
        let event = bindings.enter(hash, thread % cells.len());
        (event.cell(), Some(event))
    }

    /// The tick of an architecture that notes which cells have work.
    #[inline(always)]
    fn tick_due(&self, due: &DueCells<P>, now: Time) {
        let CellsInner { hub, cells, .. } = &*self.inner;
        if due.has_expired(now) {
            let deadline = |cell: usize| (cells[cell].noted_deadline(), !cells[cell].is_elsewhere());
            due.look(cells.len(), now, deadline, |cell| _ = cells[cell].tick(hub, now));
        }
        if E::POLLED {
            let alarms = hub.shared.links().alarms();
            for thread in (0..alarms.threads()).filter(|thread| alarms.is_run_here(*thread)) {
                due.take(thread, |cell| cells[cell].tick(hub, now));
            }
        }
    }

    /// [`RunningArchitecture::expect`] for a thread that may own several cells.
    #[inline(never)]
    fn expect_in_several(&self, flows: &[ArrivingFlow]) -> usize {
        let ask = |pass, flow: &ArrivingFlow| {
            let ask = |cell: &mut Cell<P>| cell.expect_one(pass, flow.mark);
            self.inner.cells[self.index(|| flow.hash)].glance_at_mine(ask).unwrap_or_default()
        };
        PrefetchPass::ALL.iter().map(|pass| flows.iter().map(|flow| ask(*pass, flow)).sum::<usize>()).sum()
    }

    /// Queues an arrival for the thread that uses the cell. Not inlined, or the message would be built in the caller's
    /// frame.
    #[inline(never)]
    fn hand_over(&self, index: usize, ingress: &mut Ingress, deferred: &mut DeferredEffects<P>) -> bool {
        let CellsInner { hub, cells, .. } = &*self.inner;
        deferred.announce(index);
        let packets = ingress.packets() as u64;
        if let Some(rings) = cells[index].rings()
            && let Some(ring) = deferred.receiver()
            && cells[index].is_in_use(hub)
        {
            rings.poll_for(ring, index);
        }
        let sent = cells[index].send(hub, CellMessage::Ingress(std::mem::take(ingress)), false).is_ok();
        if !sent {
            Counters::count_drops(&hub.shared.counters, DropReason::InputQueueFull, packets);
        }
        sent
    }

    /// Sends a request and sleeps until it is answered.
    #[cold]
    #[inline(never)]
    fn ask(&self, index: usize, message: impl FnOnce(ReplySender<P>) -> CellMessage<P>) -> Reply {
        let CellsInner { hub, cells, .. } = &*self.inner;
        if in_handler::<P>() {
            return Reply::Gone;
        }
        let slot = ReplySlot::new();
        let mut message = message(ReplySender::new(&slot));
        while let Err(back) = cells[index].send(hub, message, true) {
            message = back;
            // The owner may be waiting for room in a queue of the calling thread's.
            if !(E::READS_MAIL && owned_cells::read_mail()) {
                P::yield_now();
            }
        }
        cells[index].assist(hub);
        if E::READS_MAIL { owned_cells::answer_of(&slot) } else { slot.wait() }
    }
}

impl<P: Platform, E: Exclusion<P>> Cells<P, E> {
    fn replicates_without_waiting(&self, index: usize, change: &ControlRequest<P>) -> bool {
        matches!(change, ControlRequest::Listen(_)) && self.inner.cells[index].replicates_without_waiting()
    }

    /// Sends a replica without waiting until it is in its place.
    #[cold]
    fn send_replica(&self, index: usize, change: &ControlRequest<P>) {
        let CellsInner { hub, cells, .. } = &*self.inner;
        let mut message = CellMessage::Control(change.clone(), ReplySender::nobody());
        while let Err(back) = cells[index].send(hub, message, true) {
            message = back;
            cells[index].assist(hub);
            P::yield_now();
        }
    }
}

impl<P: Platform, E: Exclusion<P>> CellsInner<P, E> {
    /// The cells of the calling thread, by index.
    fn mine(&self) -> impl Iterator<Item = (usize, &E)> {
        self.cells.iter().map(|cell| &**cell).enumerate().filter(|(_, cell)| cell.is_mine())
    }
}

impl<P: Platform, E: Exclusion<P>> OwnedCells for CellsInner<P, E> {
    fn wait_at(&self, slot: &Arc<dyn Interrupt>) -> Waits {
        self.mine().map(|(index, cell)| (index, cell.wait_at(Some(slot.clone())))).collect()
    }

    fn wait_again(&self, before: Waits) {
        for (index, before) in before {
            self.cells[index].wait_at(before);
        }
    }

    fn tell_all(&self) {
        self.cells.iter().for_each(|cell| cell.hear(&self.hub));
    }

    fn read_mail(&self) -> bool {
        let Some(_inside) = self.hub.shared.gate().enter_as_driver_at_once() else { return false };
        self.mine().filter(|(_, cell)| cell.read_mail(&self.hub)).count() > 0
    }
}

impl<P: Platform, E: Exclusion<P>> AboveWorkers<P> for Cells<P, E> {
    fn shared(&self) -> &Arc<Shared<P>> {
        &self.inner.hub.shared
    }

    fn counters(&self) -> &Counters {
        &self.inner.hub.shared.counters
    }

    fn post_in_turn(
        &self,
        ingress: &mut Ingress,
        now: Time,
        deferred: &mut DeferredEffects<P>,
        turn: Option<ArrivalTurn<'_, P>>,
    ) {
        self.post(ingress, now, deferred);
        drop(turn);
    }
}

impl<P: Platform, E: Exclusion<P>> RunningArchitecture<P> for Cells<P, E> {
    #[inline]
    fn post(&self, ingress: &mut Ingress, now: Time, deferred: &mut DeferredEffects<P>) {
        let (index, event) = self.cell_of(ingress, deferred.receiver());
        let cell = &self.inner.cells[index];
        let packets = ingress.packets();
        let run = |cell: &mut Cell<P>| cell.arrival(ingress, now, deferred);
        let queues = !cell.takes_arrivals() || cell.enter_unawaited(&self.inner.hub, packets, run).is_none();
        if queues && self.hand_over(index, ingress, deferred) {
            event.into_iter().for_each(BoundEvent::is_sent);
        }
    }

    fn takes_runs(&self) -> bool {
        E::RUNS
    }

    fn may_have_many(&self) -> bool {
        self.inner.slab.may_have_had(CACHED)
    }

    fn expect(&self, flows: &[ArrivingFlow]) -> usize {
        if E::EXPECTS == 0 {
            return 0;
        }
        if E::EXPECTS > 1 {
            return self.expect_in_several(flows);
        }
        if let Some(first) = flows.first() {
            let cell = &self.inner.cells[self.index(|| first.hash)];
            if cell.is_mine() {
                return cell.look(&self.inner.hub, |cell| cell.expect(flows)).unwrap_or_default();
            }
        }
        0
    }

    fn polls_rings(&self) -> bool {
        self.inner.cells[0].rings().is_some()
    }

    fn opens_ring(&self, driver: usize) -> bool {
        let CellsInner { hub, cells, .. } = &*self.inner;
        cells[0].rings().is_none_or(|rings| rings.opens(driver, |cell| cells[cell].shuts(hub, driver)))
    }

    fn is_ring_shut(&self, driver: usize) -> bool {
        self.inner.cells[0].rings().is_some_and(|rings| rings.is_shut(driver))
    }

    fn ring_is_empty(&self, driver: usize) {
        let CellsInner { hub, cells, .. } = &*self.inner;
        cells[0].rings().into_iter().for_each(|rings| rings.emptied(driver, |cell| cells[cell].is_in_use(hub)));
    }

    fn end_of_batch(&self, deferred: &mut DeferredEffects<P>) {
        while let Some(cell) = deferred.next_announcement() {
            self.inner.cells[cell].announce(&self.inner.hub);
        }
    }

    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        let index = self.home(target.hash);
        let now = self.time_of(index, call);
        if self.hold(index, |cell, deferred| cell.call(target, call, now, deferred, reply)).is_none() {
            *reply = self.ask(index, |asker| CellMessage::Call(*target, call.take(), asker));
        }
    }

    fn open(&self, request: &mut OpenRequest<P>) -> Result<Key, OpenRefused> {
        let target = request.target();
        let (index, _until_it_is_open) = match self.inner.cells[0].bindings() {
            Some(bindings) => self.bind(bindings, target.hash, None),
            None => (self.index(|| target.hash), None),
        };
        let now = self.inner.hub.shared.clock().now();
        match self.hold(index, |cell, deferred| cell.open_actively(request, now, deferred)) {
            Some(opened) => opened,
            None => call::open_by(request, |call, reply| {
                *reply = self.ask(index, |asker| CellMessage::Call(target, call.take(), asker));
            }),
        }
    }

    fn is_home(&self, hash: u32) -> bool {
        self.inner.cells[self.index(|| hash)].is_home()
    }

    fn send(&self, target: &Target, send: &mut tcp::Send) -> Option<Result<u32, tcp::Error>> {
        let index = self.home(target.hash);
        let now = self.inner.hub.shared.clock().now();
        let sent = if send.is_short() {
            self.hold_to_send(index, |cell, effects| cell.send_briefly(target.key, send, now, effects))
        } else {
            self.hold(index, |cell, deferred| cell.send(target.key, send, now, deferred))
        };
        match sent {
            Some(answer) => answer,
            None => call::send_by(send, |call, reply| {
                *reply = self.ask(index, |asker| CellMessage::Call(*target, call.take(), asker));
            }),
        }
    }

    fn receive(
        &self,
        target: &Target,
        event: tcp::Receive,
        received: &mut tcp::Received,
    ) -> Option<Result<(), tcp::Error>> {
        let index = self.home(target.hash);
        let clock = self.inner.hub.shared.clock();
        // Reading starts no timer and measures nothing.
        let now = if self.inner.cells[index].has_batch_time() { clock.batch_now() } else { clock.now() };
        match self.hold_briefly(index, |cell, effects| cell.take(target.key, event, now, effects, received)) {
            Some(answer) => answer,
            None => call::receive_by(event, received, |call, reply| {
                *reply = self.ask(index, |asker| CellMessage::Call(*target, call.take(), asker));
            }),
        }
    }

    fn has_owners(&self) -> bool {
        E::POLLED
    }

    fn send_as_owner(&self, target: &Target, send: &mut tcp::Send) -> Option<Option<Result<u32, tcp::Error>>> {
        let CellsInner { hub, cells, .. } = &*self.inner;
        if !E::POLLED || Self::is_refused_here() {
            return None;
        }
        if !send.is_short() {
            return self.send_much_as_owner(target, send);
        }
        let mut effects = SendEffects::none();
        let answer = cells[self.home(target.hash)].enter_mine(|cell| {
            let now = hub.shared.clock().now();
            cell.send_here::<E>(target.key, send, now, &mut effects)
        });
        if effects.is_plain() {
            std::mem::forget(effects);
        } else {
            self.perform_as_owner(|links| effects.flush(links));
        }
        answer
    }

    fn receive_as_owner(
        &self,
        target: &Target,
        event: tcp::Receive,
        received: &mut tcp::Received,
    ) -> Option<Option<Result<(), tcp::Error>>> {
        let CellsInner { hub, cells, .. } = &*self.inner;
        if !E::POLLED || Self::is_refused_here() {
            return None;
        }
        let cell = &cells[self.home(target.hash)];
        let mut effects = LazyEffects::none();
        let answer = cell.enter_mine(|inside| {
            let (clock, has_batch_time) = (hub.shared.clock(), cell.has_batch_time_inside(inside));
            let now = || if has_batch_time { clock.batch_now() } else { clock.now() };
            inside.take_here::<E>(target.key, event, now, &mut effects, received)
        });
        if !effects.is_plain() {
            self.perform_as_owner(|links| effects.flush(links));
        }
        answer
    }

    fn call_as_owner(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) -> bool {
        let index = self.home(target.hash);
        let made = self.hold_as_owner(index, |cell, deferred| {
            let now = self.time_of(index, call);
            cell.call(target, call, now, deferred, reply);
        });
        made.is_some()
    }

    fn close_as_owner(&self, target: &Target) -> bool {
        let clock = self.inner.hub.shared.clock();
        let closed = self.hold_as_owner(self.home(target.hash), |cell, deferred| {
            cell.close(target.key, tcp::Close, clock.now(), deferred);
        });
        closed.is_some()
    }

    fn open_as_owner(&self, request: &mut OpenRequest<P>) -> Option<Result<(), OpenRefused>> {
        let index = self.home(request.hash());
        let now = request.at;
        self.hold_as_owner(index, |cell, deferred| cell.open_actively(request, now, deferred).map(drop))
    }

    fn owns_tables(&self) -> bool {
        E::POLLED && self.inner.cells[0].owns_tables()
    }

    fn has_channels(&self) -> bool {
        E::CHANNELS && self.inner.hub.own_threads
    }

    fn tell(&self, target: &Target, message: CellMessage<P>) -> Result<(), CellMessage<P>> {
        let cell = &self.inner.cells[self.home(target.hash)];
        // The user of a channel may not know yet that it has ended with an earlier architecture. The owner's own calls run
        // at once, so none of them may wait in its queue.
        if !E::CHANNELS || cell.is_mine() { Err(message) } else { cell.send(&self.inner.hub, message, true) }
    }

    fn udp(&self, call: &mut UdpCall<P>) -> UdpReply {
        let index = self.index(|| UdpName::home(call.name.port));
        if let Some(reply) = self.hold(index, |cell, deferred| cell.udp_call(call, deferred)) {
            return reply;
        }
        match self.ask(index, |asker| CellMessage::Udp(call.take(), asker)) {
            Reply::Udp(reply) => *reply,
            _ => UdpReply::Gone,
        }
    }

    fn use_tables(&self, work: &mut dyn FnMut()) -> bool {
        self.inner.cells[0].use_tables(&self.inner.hub, work)
    }

    #[cold]
    fn ask_tables(&self, job: TableJob) -> Reply {
        self.ask(0, |asker| CellMessage::Job(job, asker))
    }

    #[cold]
    fn tell_tables(&self, job: Box<dyn FnOnce() + Send>) {
        let CellsInner { hub, cells, .. } = &*self.inner;
        let job = Box::new(move || {
            job();
            Box::new(()) as Box<dyn Any + Send>
        });
        if cells[0].send(hub, CellMessage::Job(job, ReplySender::nobody()), true).is_err() {
            hub.shared.counters.count_drop(DropReason::InputQueueFull);
        }
    }

    fn control(&self, change: ControlRequest<P>) {
        // Every cell has its replica before this returns, so no thread finds a stale listener afterwards.
        let forgotten = usize::from(P::makes(PlantedMistake::ForgottenReplica));
        for index in 0..self.inner.cells.len() - forgotten {
            if index > 0 && self.replicates_without_waiting(index, &change) {
                self.send_replica(index, &change);
                continue;
            }
            let now = self.inner.hub.shared.clock().now();
            if self.hold(index, |cell, deferred| cell.control(change.clone(), now, deferred)).is_none() {
                self.ask(index, |asker| CellMessage::Control(change.clone(), asker));
            }
        }
    }

    fn tick(&self, now: Time) {
        let CellsInner { hub, cells, .. } = &*self.inner;
        if hub.own_threads && E::RUNS_TIMERS {
            return;
        }
        if let Some(due) = cells[0].due() {
            return self.tick_due(due, now);
        }
        let mut again = true;
        while again {
            again = false;
            for cell in cells {
                again |= cell.tick(hub, now);
            }
        }
    }

    fn trim(&self) -> bool {
        super::trim_slab(&self.inner.slab, || self.control(ControlRequest::Trim))
    }

    fn retire(&self) {
        self.inner.cells.iter().for_each(|cell| cell.retire(&self.inner.hub));
    }

    fn next_deadline(&self) -> Option<Time> {
        if self.inner.hub.own_threads && E::RUNS_TIMERS {
            return None;
        }
        let earliest = self.inner.cells.iter().map(|cell| cell.deadline()).min()?;
        (earliest != u64::MAX).then(|| Time::from_nanos(earliest))
    }

    #[cold]
    fn timer_is_due(&self, now: Time) -> bool {
        let elsewhere = self.inner.hub.own_threads && E::RUNS_TIMERS;
        let none = self.inner.cells[0].due().is_some_and(|due| !due.has_expired(now));
        !elsewhere && !none && self.inner.cells.iter().any(|cell| cell.timer_deadline() <= now.as_nanos())
    }

    fn is_quiescent(&self) -> bool {
        self.inner.cells.iter().all(|cell| cell.is_quiescent())
    }

    fn stats(&self) -> StackStats {
        let mut sum = StackStats::default();
        let inside = Self::is_refused_here();
        for (index, cell) in self.inner.cells.iter().enumerate() {
            let stats = if inside { None } else { cell.look(&self.inner.hub, |cell| cell.stats()) };
            match stats {
                Some(stats) => sum += &stats,
                None => {
                    if let Reply::StackStats(stats) = self.ask(index, CellMessage::StackStats) {
                        sum += &stats;
                    }
                }
            }
        }
        sum
    }

    fn decisions(&self) -> Vec<GroupDecision> {
        self.inner.cells[0].decisions()
    }

    fn queue_claims(&self) -> Vec<QueueClaims> {
        self.inner.cells[0].queue_claims()
    }

    fn book(&self) -> Option<&Arc<Lock<Book, P>>> {
        self.inner.cells[0].book()
    }

    fn dissolve(&self) -> Result<Contents<P>, NotAtRest> {
        let CellsInner { hub, slab, cells } = &*self.inner;
        if hub.own_threads {
            self.shutdown();
        }
        let mut contents = Contents::of(slab.clone());
        contents.kept = self.book().cloned().map(|book| book as Arc<dyn Any + Send + Sync>);
        if !cells.iter().all(|cell| cell.seize(hub, |_| ()).is_some()) {
            cells.iter().for_each(|cell| cell.resume());
            self.start();
            return Err(NotAtRest);
        }
        let (now, mut effects) = (hub.shared.clock().now(), EffectsGuard::new(hub.shared.links()));
        for cell in cells.iter().filter(|_| E::CHANNELS) {
            let ended = cell.seize(hub, |cell| cell.end_channels(now, &mut effects.deferred));
            contents.had_channels.extend(ended.into_iter().flatten());
        }
        drop(effects);
        for cell in cells {
            contents.messages.append(&mut cell.withdraw());
            cell.seize(hub, |cell| cell.dissolve(&mut contents));
            // Nothing is left of it that a thread could own.
            cell.retire(hub);
        }
        Ok(contents)
    }

    fn shutdown(&self) {
        self.inner.cells.iter().for_each(|cell| cell.stop());
        self.threads.join();
    }
}

#[cfg(test)]
pub(super) mod tests;
