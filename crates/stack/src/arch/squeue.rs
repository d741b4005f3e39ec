//! Own it or queue for it: Solaris' serialisation queues (FireEngine; `squeue.c`).
//!
//! # Model
//! A small lock guards the queue and nothing else; the *flag* is the ownership of the cell ([`ThreadOwned`]), and
//! changes hands under that lock. A thread that finds the flag free and the queue empty may run its own event at once;
//! otherwise it queues the event behind the others. So all events of a shard, in both directions, run in the order of
//! one queue.
//!
//! # Modes
//! The mode decides what a thread does with a segment or another asynchronous event. `fill` always queues it for the
//! shard's worker. `nodrain` runs it if it can, and leaves events that arrived meanwhile to the worker. `process` also
//! drains the queue, up to a bound in events and time, and leaves the rest to the worker. The queue holds what arrived
//! while the thread's own event ran; if the thread finds a queue that no thread runs, it appends its own event and
//! drains that queue.
//!
//! With `+poll` the receive thread leaves frames in the device while their shard is in use, once it has found one in use, and
//! takes a batch when the shard is given up ([`polled_rings`](super::polled_rings)): so the queue, which has no bound, holds no more than
//! a batch of each receive thread and the calls of threads that sleep. In Solaris a poll thread takes the frames, and is handed the
//! flag for that; here it is the receive thread, which enters the shard as for any frame.
//!
//! # Binding
//! Without an option the shard of a connection is that of its flow's hash (Solaris: `ip_squeue_fanout`). With `+bind` it is that of the
//! CPU on which the connection began: of the receive thread that took its first segment, or of the thread that opens it. The
//! bindings are those of Solaris' classifier ([`flow_bindings`](crate::table::flow_bindings)): a segment that arrives elsewhere finds the shard
//! under the lock of a bucket, takes a reference, and enters that shard as any other thread does. The CPU of receive thread *n* is that
//! of shard *n*; a thread that receives nothing counts as the CPU of its number, modulo that of shards. A switch from another
//! architecture spreads the connections by their hashes, and these bindings remain.
//!
//! # Calls
//! A user's call is synchronous: its caller sleeps until it is done. As in Solaris (`squeue_synch_enter`), a caller
//! that finds the flag free and the queue empty takes the flag and runs the call at once, in every mode; otherwise the
//! call is queued. In mode `fill` only *asynchronous* events always wait for the worker. The order is still that of the
//! queue, because nothing overtakes a queued event. A write is synchronous too, because its caller must learn how much
//! was accepted; Solaris would treat it according to the mode.
//!
//! # Users are told without the flag
//! An event may cause an upcall to a user, which runs the user's code, and this code may call the stack and wait. Two threads
//! with the flags of two shards would wait for each other for ever. So the thread that drains keeps such notifications until
//! it has given up the flag (`draining.rs`). One thread at a time tells the users of a shard, in the order of the events.
//!
//! # What may never happen
//! The queue is not empty, no thread runs it, and no wake-up of the worker is pending: every path that gives up the
//! flag with work left wakes the worker first. A thread that is not the worker never drains more than the bound. A user's
//! code runs on a thread that has the flag of a shard.

mod draining;
mod entering;
mod event_queue;

use std::sync::Arc;

use dev::BitSet;
use observe::Time;
use sync::{
    Atomic, Lock, LockClass, LockKind, Ordering, Parker, Platform, ThreadClass, ThreadOwned, Writers, model_is_over,
};

use super::RunningArchitecture;
use super::cells::{Cells, Exclusion, Hub};
use super::declaration::{Declaration, Properties, TableRow, Variant};
use super::polled_rings::PolledRings;
use super::select::ThreadConfig;
use crate::charge;
use crate::handoff::CellMessage;
use crate::place::{Cell, Contents};
use crate::shared::Shared;
use crate::socket::HandlersRun;
use crate::table::flow_bindings::{BoundEvent, FlowBindings};
use event_queue::EventQueue;

pub use entering::{Entering, Mode};

/// The declaration of this architecture.
pub const DECLARATION: Declaration<Entering> = Declaration {
    name: "squeue",
    options: "[:fill|nodrain|process][+poll][+bind]",
    variants: &[
        Variant {
            name: "squeue:fill",
            also: None,
            about: "serialisation queues; a worker runs asynchronous events",
            parameter: Entering::by(Mode::Fill),
        },
        Variant {
            name: "squeue:nodrain",
            also: None,
            about: "serialisation queues; a thread that finds the shard free runs its own event",
            parameter: Entering::by(Mode::NoDrain),
        },
        Variant {
            name: "squeue:process",
            also: None,
            about: "serialisation queues; a thread that finds the shard free runs its event and the queued ones",
            parameter: Entering::by(Mode::Process),
        },
        Variant {
            name: "squeue:process+poll",
            also: Some("squeue+poll"),
            about: "as squeue:process, but frames for a shard in use wait in the device",
            parameter: Entering::polled(Mode::Process),
        },
        Variant {
            name: "squeue:process+bind",
            also: Some("squeue+bind"),
            about: "as squeue:process, but a connection is in the shard of the CPU on which it began",
            parameter: Entering::by(Mode::Process).bound(),
        },
    ],
    unlisted: &[
        Variant::new("squeue:fill+poll", None, POLL, Entering::polled(Mode::Fill)),
        Variant::new("squeue:nodrain+poll", None, POLL, Entering::polled(Mode::NoDrain)),
        Variant::new("squeue:fill+bind", None, BIND, Entering::by(Mode::Fill).bound()),
        Variant::new("squeue:nodrain+bind", None, BIND, Entering::by(Mode::NoDrain).bound()),
        Variant::new("squeue:fill+poll+bind", None, BIND, Entering::polled(Mode::Fill).bound()),
        Variant::new("squeue:nodrain+poll+bind", None, BIND, Entering::polled(Mode::NoDrain).bound()),
        Variant::new(
            "squeue:process+poll+bind",
            Some("squeue+poll+bind"),
            BIND,
            Entering::polled(Mode::Process).bound(),
        ),
    ],
    default: 2,
    numbers: None,
    faults: &[],
    properties: Properties {
        single_thread: false,
        polling_thread_owns: false,
        has_locks: true,
        groups: false,
        own_threads: true,
        keeps_batches_together: true,
        handlers: HandlersRun::Inside,
        complexity: 3,
    },
    exceptions: &[],
    rows: &[
        TableRow {
            names: "`squeue:fill`, `:nodrain`, `:process`",
            cell: "a shard",
            exclusive_use: "own it or queue for it",
            thread: "the thread that holds it, or its worker",
            table: "private",
            order: "queue",
        },
        TableRow {
            names: "`squeue..+poll`",
            cell: "the same",
            exclusive_use: "the same; frames for a shard in use wait in the device, and the receive thread takes a batch when it is given up",
            thread: "the same",
            table: "private",
            order: "queue",
        },
        TableRow {
            names: "`squeue..+bind`",
            cell: "the same, of the CPU on which the connection began",
            exclusive_use: "the same",
            thread: "the same",
            table: "private, found by a global one of flows with a lock for each bucket",
            order: "queue",
        },
    ],
};

const BIND: &str = "as without +bind, but a connection is in the shard of the CPU on which it began";
const POLL: &str = "as without +poll, but frames for a shard in use wait in the device";

struct Squeue<P: Platform> {
    mode: Mode,
    queue: Lock<EventQueue<P>, P>,
    /// The flag: the owner of the cell runs. A thread takes and releases ownership with the queue's lock held.
    cell: ThreadOwned<Cell<P>, P>,
    worker: Parker<P>,
    deadline: P::AtomicU64,
    stop: P::AtomicBool,
    /// The receive rings that are polled while the shard is in use.
    rings: Option<Arc<PolledRings<P>>>,
    /// The shards that flows are bound to.
    bindings: Option<Arc<FlowBindings<P>>>,
    /// The number of the shard.
    index: usize,
}

/// One shard for each CPU. With own threads each shard has a pinned worker; otherwise a tick drains it.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    Entering { mode, poll, bind }: Entering,
    ThreadConfig { cpus, own_threads }: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let (slab, rings) = (contents.slab.clone(), poll.then(|| PolledRings::new(shared, cpus.max(1))));
    let bindings = bind.then(|| FlowBindings::new(shared.lock_kind));
    Arc::new(Cells::new(shared, cpus, own_threads, contents, |index| {
        let mut squeue = Squeue::new(mode, shared.lock_kind, Cell::new(shared, &slab, Writers::Many), rings.clone());
        if let Some(bindings) = &bindings {
            squeue.bind(bindings, index);
        }
        squeue
    }))
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
    fn new(mode: Mode, kind: LockKind, cell: Cell<P>, rings: Option<Arc<PolledRings<P>>>) -> Self {
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
    fn bind(&mut self, bindings: &Arc<FlowBindings<P>>, index: usize) {
        (self.bindings, self.index) = (Some(bindings.clone()), index);
        self.cell.get_mut().bind(bindings, index);
    }

    /// The reference that a queued event has to the binding of its flow.
    #[inline]
    fn bound_event(&self, message: &CellMessage<P>) -> Option<BoundEvent<'_, P>> {
        let CellMessage::Ingress(event) = message else { return None };
        let bindings = self.bindings.as_deref()?;
        Some(bindings.arrived(event.flow_hash()?, self.index))
    }

    /// The calling thread takes the flag, if it is free. The caller has the queue's lock.
    #[inline]
    fn take_flag(&self) -> bool {
        self.cell.owner().is_none() && self.cell.bind_here().is_ok()
    }

    /// Runs `f` in the cell, if the calling thread has the flag and is not in the cell.
    #[inline]
    fn run_in_cell<R>(&self, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let mut cell = self.cell.borrow_mine()?;
        let result = f(&mut cell);
        let deadline = cell.deadline_nanos();
        if self.deadline.load(Ordering::Relaxed) != deadline {
            self.deadline.store(deadline, Ordering::Relaxed);
        }
        Some(result)
    }

    fn give_up(&self, mut queue: sync::Guard<'_, EventQueue<P>, P>) {
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
        charge::messages::<P>(queue.events.back(), true);
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

#[cfg(test)]
mod tests;
