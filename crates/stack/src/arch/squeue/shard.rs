//! A serialisation queue: a cell, the flag that is its ownership, the queue of those that found the flag taken, and the worker.
//!
//! How a thread enters is [`Mode`]'s; which thread drains, and which tells users, is in `draining.rs`. The flag changes hands under the lock of the
//! queue, and that lock is not held while an event runs.
//!
//! What may never happen: the queue is not empty, no thread runs it, and no wake-up of the worker is pending. Every path that gives up
//! the flag ends in [`Squeue::give_up`], which wakes the worker if anything is left.

use std::sync::Arc;

use dev::BitSet;
use observe::Time;
use sync::{
    Atomic, Guard, Lock, LockClass, LockKind, Ordering, Parker, Platform, ThreadClass, ThreadOwned, model_is_over,
};

use super::Mode;
use super::event_queue::EventQueue;
use crate::arch::cells::{Exclusion, Hub};
use crate::arch::polled_rings::PolledRings;
use crate::charge;
use crate::handoff::CellMessage;
use crate::place::Cell;
use crate::table::flow_bindings::{BoundEvent, FlowBindings};

/// A shard. See the head of the file.
pub(super) struct Squeue<P: Platform> {
    /// What a thread does with an asynchronous event.
    pub(super) mode: Mode,
    /// What waits for the shard.
    pub(super) queue: Lock<EventQueue<P>, P>,
    /// The flag: the owner of the cell runs. A thread takes and releases ownership with the queue's lock held.
    cell: ThreadOwned<Cell<P>, P>,
    /// Where the worker sleeps.
    pub(super) worker: Parker<P>,
    deadline: P::AtomicU64,
    /// The worker is to end, or has ended.
    pub(super) stop: P::AtomicBool,
    /// The receive rings that are polled while the shard is in use.
    rings: Option<Arc<PolledRings<P>>>,
    /// The shards that flows are bound to.
    bindings: Option<Arc<FlowBindings<P>>>,
    /// The number of the shard.
    index: usize,
}

/// Held by a thread that has the flag and runs its own work. On panic the flag is released and the worker woken for the
/// remaining work. Otherwise the guard is forgotten, and the thread releases the flag by [`Squeue::release`].
struct FlagGuard<'a, P: Platform>(&'a Squeue<P>);

impl<P: Platform> Drop for FlagGuard<'_, P> {
    #[cold]
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.0.give_up(self.0.queue.lock());
            self.0.worker.unpark();
        }
    }
}

impl<P: Platform> Squeue<P> {
    /// A free shard with a lock of this kind. Inline, so that `cell`, some kilobytes, is not copied once more on the stack.
    #[inline(always)]
    pub(super) fn new(mode: Mode, kind: LockKind, cell: Cell<P>, rings: Option<Arc<PolledRings<P>>>) -> Self {
        Squeue {
            mode,
            queue: Lock::new(kind, LockClass::Squeue, EventQueue::new()),
            cell: ThreadOwned::new(cell),
            worker: Parker::new(),
            deadline: P::AtomicU64::new(u64::MAX),
            stop: P::AtomicBool::new(false),
            rings,
            bindings: None,
            index: 0,
        }
    }

    /// Flows are bound to this shard, which has the number `index`. It has nothing yet.
    pub(super) fn bind(&mut self, bindings: &Arc<FlowBindings<P>>, index: usize) {
        (self.bindings, self.index) = (Some(bindings.clone()), index);
        self.cell.get_mut().bind(bindings, index);
    }

    /// The reference that a queued event has to the binding of its flow.
    #[inline]
    pub(super) fn bound_event(&self, message: &CellMessage<P>) -> Option<BoundEvent<'_, P>> {
        let CellMessage::Ingress(event) = message else { return None };
        let bindings = self.bindings.as_deref()?;
        Some(bindings.arrived(event.flow_hash()?, self.index))
    }

    /// The calling thread takes the flag, if it is free. The caller has the queue's lock.
    #[inline]
    pub(super) fn take_flag(&self) -> bool {
        self.cell.owner().is_none() && self.cell.bind_here().is_ok()
    }

    /// Runs `f` in the cell, if the calling thread has the flag and is not in the cell.
    #[inline]
    pub(super) fn run_in_cell<R>(&self, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let mut cell = self.cell.borrow_mine()?;
        let result = f(&mut cell);
        let deadline = cell.deadline_nanos();
        if self.deadline.load(Ordering::Relaxed) != deadline {
            self.deadline.store(deadline, Ordering::Relaxed);
        }
        Some(result)
    }

    /// Gives up the flag, and wakes the thread that has to do what is left. The caller has the lock of the queue.
    pub(super) fn give_up(&self, mut queue: Guard<'_, EventQueue<P>, P>) {
        let given_up = self.cell.release();
        debug_assert!(given_up.is_ok(), "the thread that runs owns the cell, and has left it");
        let left = !queue.events.is_empty();
        let shut = if left || self.rings.is_none() { BitSet::new() } else { std::mem::take(&mut queue.shut) };
        drop(queue);
        if left {
            self.worker.unpark();
        } else if !shut.is_empty() {
            self.rings.iter().for_each(|rings| rings.give_turns(shut.clone()));
        }
    }

    /// Whether a thread runs the queue, or is about to. The caller has its lock.
    fn is_run(&self, queue: &EventQueue<P>, hub: &Hub<P>) -> bool {
        self.cell.owner().is_some() || hub.own_threads && !queue.events.is_empty()
    }
}

impl<P: Platform> Exclusion<P> for Squeue<P> {
    const THREAD: &'static str = "heddle-sq";
    const CLASS: ThreadClass = ThreadClass::Worker;

    fn enter<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        debug_assert_ne!(self.cell.owner(), Some(P::thread_index()), "a thread with the flag runs no user's code");
        let queue = self.queue.lock();
        if !queue.events.is_empty() || !self.take_flag() {
            return None;
        }
        drop(queue);
        let running = FlagGuard(self);
        let result = self.run_in_cell(f);
        std::mem::forget(running);
        self.release(hub);
        result
    }

    /// Not while upcalls are pending: it does not move on.
    fn seize<R>(&self, _: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let queue = self.queue.lock();
        if queue.has_upcalls() || !self.take_flag() {
            return None;
        }
        drop(queue);
        let running = FlagGuard(self);
        let result = self.run_in_cell(f);
        std::mem::forget(running);
        self.give_up(self.queue.lock());
        result
    }

    fn withdraw(&self) -> Vec<CellMessage<P>> {
        std::mem::take(&mut self.queue.lock().events).into()
    }

    fn takes_arrivals(&self) -> bool {
        self.mode != Mode::Fill
    }

    fn send(&self, hub: &Hub<P>, message: CellMessage<P>, _: bool) -> Result<(), CellMessage<P>> {
        let mut queue = self.queue.lock();
        queue.events.push_back(message);
        charge::messages::<P, _>(queue.events.back(), true);
        sync::profile::handoff::<P>(1);
        if self.cell.owner().is_some() {
            // The thread that has the flag checks the queue before it releases it.
        } else if self.mode == Mode::Process && self.take_flag() {
            drop(queue);
            self.drain_some(hub);
        } else {
            drop(queue);
            self.worker.unpark();
        }
        Ok(())
    }

    fn rings(&self) -> Option<&PolledRings<P>> {
        self.rings.as_deref()
    }

    fn bindings(&self) -> Option<&FlowBindings<P>> {
        self.bindings.as_deref()
    }

    fn is_in_use(&self, hub: &Hub<P>) -> bool {
        self.is_run(&self.queue.lock(), hub)
    }

    fn shuts(&self, hub: &Hub<P>, ring: usize) -> bool {
        let mut queue = self.queue.lock();
        let is_run = self.is_run(&queue, hub);
        if let Some(rings) = self.rings.as_ref().filter(|_| is_run) {
            queue.shut.insert(ring);
            // Under the lock: the thread that gives up the shard gives the turn after this.
            rings.shut(ring);
        }
        is_run
    }

    /// The worker may have ended, or be the thread that tells users, and perhaps it is the calling one.
    fn assist(&self, hub: &Hub<P>) {
        if !hub.own_threads || self.queue.lock().tells || self.stop.load(Ordering::Acquire) {
            self.drain(hub, hub.shared.clock().now());
        }
    }

    fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    fn tick(&self, hub: &Hub<P>, now: Time) -> bool {
        let due = self.deadline() <= now.as_nanos();
        if due || (!hub.own_threads && !self.queue.lock().is_idle()) {
            self.drain(hub, now);
        }
        false
    }

    fn is_quiescent(&self) -> bool {
        self.queue.lock().is_idle() && self.cell.owner().is_none()
    }

    /// The loop of the shard's worker. Timers are run by the threads that tick; a worker is woken for queued work only.
    fn serve(&self, hub: &Hub<P>) {
        while !self.stop.load(Ordering::Acquire) {
            let (failures, counters) = (&hub.shared.failures, &hub.shared.counters);
            // After a panic this thread has been woken again if work is left.
            failures.survive(counters, || self.drain(hub, hub.shared.clock().now()));
            self.worker.park(None);
        }
        hub.shared.failures.survive(&hub.shared.counters, || self.drain_after_the_end(hub));
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.worker.unpark();
    }

    fn resume(&self) {
        self.stop.store(false, Ordering::Release);
    }
}
