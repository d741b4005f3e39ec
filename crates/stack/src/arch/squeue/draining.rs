//! Draining a shard's queue, and running the upcalls to users that the events cause.
//!
//! The thread that drains has the flag. It wakes threads and notifies devices meanwhile, but runs no user's code: it keeps
//! what might ([`Upcalls`]), and appends that to a list beside the queue when it gives up the flag. It gives the
//! flag up after each batch that causes upcalls; then the worker goes on, and another thread has drained enough, because
//! users' code has no bound.
//!
//! One thread at a time tells the users of a shard what is in its list, and has no flag then. So they are told in the order
//! of the events; and a call of the shard by a user's code, on that thread, does not begin to tell once more, which
//! would fill the stack while events arrive. A thread tells what the list had when it began, and leaves the rest to the worker.
//!
//! What may never happen: a thread that waits for a call with the flag of a shard; something pending to a user that no thread
//! tells; a call that waits in the queue of a free shard while its worker tells users, or after it has ended (the caller drains
//! the queue itself, [`Exclusion::assist`](crate::arch::cells::Exclusion::assist)).

use std::collections::VecDeque;
use std::time::Duration;

use observe::Time;
use sync::{Atomic, Guard, Ordering, Platform, model_is_over};

use super::Mode;
use super::event_queue::EventQueue;
use super::shard::Squeue;
use crate::arch::cells::Hub;
use crate::attempt::attempt;
use crate::charge;
use crate::connections::Upkeep;
use crate::deferred::DeferredEffects;
use crate::handoff::CellMessage;
use crate::upcalls::Upcalls;

/// The most events that a thread which is not the worker drains for others. Solaris bounds by 20 ms only.
const DRAIN_EVENTS: usize = 256;
/// Events that are drained before the clock is read again.
const DRAIN_BATCH: usize = 32;
/// The longest that such a thread drains for (Solaris: 20 ms), to the end of a batch.
const DRAIN_TIME: Duration = Duration::from_millis(20);

/// Held by a thread that has the flag and drains the queue. On panic the flag is released, the worker is woken for the
/// remaining events, and the upcalls that the events cause are run.
struct Draining<'a, P: Platform> {
    squeue: &'a Squeue<P>,
    hub: &'a Hub<P>,
    /// Taken from the queue and not run yet.
    batch: VecDeque<CellMessage<P>>,
    /// Effects of events that were run, not performed yet.
    deferred: DeferredEffects<P>,
    /// The upcalls that the events caused.
    upcalls: Upcalls<P>,
    has_ended: bool,
}

impl<'a, P: Platform> Draining<'a, P> {
    /// The calling thread has the flag of `squeue`.
    fn new(squeue: &'a Squeue<P>, hub: &'a Hub<P>) -> Self {
        let (deferred, upcalls) = (DeferredEffects::default(), Upcalls::default());
        Draining { squeue, hub, batch: VecDeque::new(), deferred, upcalls, has_ended: false }
    }

    /// Performs the effects that run no user's code. The calling thread has left the cell.
    fn perform_effects(&mut self) {
        self.deferred.flush_all_but_upcalls(self.hub.shared.links(), &mut self.upcalls);
    }

    /// Gives up the flag. Returns what the calling thread must tell users now.
    fn end(mut self, mut queue: Guard<'_, EventQueue<P>, P>) -> Option<Upcalls<P>> {
        self.has_ended = true;
        queue.upcalls.append(&mut self.upcalls);
        let pending = queue.begin_notifying();
        self.squeue.give_up(queue);
        pending
    }
}

impl<P: Platform> Drop for Draining<'_, P> {
    fn drop(&mut self) {
        if self.has_ended || model_is_over::<P>() {
            return;
        }
        let (squeue, hub) = (self.squeue, self.hub);
        let _ = attempt(|| self.perform_effects());
        let mut queue = squeue.queue.lock();
        queue.put_back(&mut self.batch);
        queue.upcalls.append(&mut self.upcalls);
        let pending = queue.begin_notifying();
        squeue.give_up(queue);
        squeue.worker.unpark();
        let _ = attempt(|| squeue.notify_users(hub, pending));
    }
}

/// The calling thread tells users; also on panic no more once this is dropped.
struct Telling<'a, P: Platform>(&'a Squeue<P>);

impl<P: Platform> Drop for Telling<'_, P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.0.queue.lock().tells = false;
        }
    }
}

impl<P: Platform> Squeue<P> {
    /// Releases the flag, after draining if the mode requires it. If work is left, the worker is woken for it.
    pub(super) fn release(&self, hub: &Hub<P>) {
        let queue = self.queue.lock();
        if queue.events.is_empty() || self.mode != Mode::Process {
            self.give_up(queue);
            return self.drain_after_the_end(hub);
        }
        drop(queue);
        self.drain_some(hub);
    }

    /// If the worker has been stopped, or is the calling thread and ends, drains the queue in its place: the worker of another
    /// shard may wait for a call that is in the queue, and could not end otherwise.
    pub(super) fn drain_after_the_end(&self, hub: &Hub<P>) {
        if self.stop.load(Ordering::Acquire) {
            self.drain(hub, hub.shared.clock().now());
        }
    }

    /// Drains the queue, up to the bound, and releases the flag.
    ///
    /// The events are other threads': if one panics, the calling thread, which may be a user's, goes on. The worker runs the
    /// rest of the batch.
    #[cold]
    pub(super) fn drain_some(&self, hub: &Hub<P>) {
        let pending = hub.shared.failures.survive(&hub.shared.counters, || self.drain_to_the_bound(hub));
        self.notify_users(hub, pending.flatten());
        self.drain_after_the_end(hub);
    }

    fn drain_to_the_bound(&self, hub: &Hub<P>) -> Option<Upcalls<P>> {
        let start = hub.shared.clock().now();
        let (mut now, mut left) = (start, DRAIN_EVENTS);
        let mut draining = Draining::new(self, hub);
        loop {
            let mut queue = self.queue.lock();
            let enough = left == 0 || now - start > DRAIN_TIME || !draining.upcalls.is_empty();
            if queue.events.is_empty() || enough {
                return draining.end(queue);
            }
            let batch = queue.events.len().min(DRAIN_BATCH).min(left);
            draining.batch.extend(queue.events.drain(..batch));
            drop(queue);
            self.run_all(&mut draining, now);
            left -= batch;
            now = hub.shared.clock().now();
        }
    }

    /// Takes the flag if it is free, drains everything and runs due timers. The worker's turn, or a tick's.
    pub(super) fn drain(&self, hub: &Hub<P>, now: Time) {
        let mut left = true;
        while left {
            let mut queue = self.queue.lock();
            if !self.take_flag() {
                // The thread that has the flag checks the queue before it releases it.
                let pending = queue.begin_notifying();
                drop(queue);
                return self.notify_users(hub, pending);
            }
            let mut draining = Draining::new(self, hub);
            draining.batch = std::mem::take(&mut queue.events);
            drop(queue);
            let queue = loop {
                self.run_all(&mut draining, now);
                let mut queue = self.queue.lock();
                if queue.events.is_empty() || !draining.upcalls.is_empty() {
                    break queue;
                }
                std::mem::swap(&mut queue.events, &mut draining.batch);
            };
            left = !queue.events.is_empty();
            let pending = draining.end(queue);
            self.notify_users(hub, pending);
        }
    }

    /// Runs a batch and due timers; the calling thread has the flag. The cell is released only to answer a waiting
    /// caller, and at the end.
    fn run_all(&self, draining: &mut Draining<'_, P>, now: Time) {
        charge::messages::<P, _>(draining.batch.iter(), false);
        loop {
            let answer = self.run_in_cell(|cell| {
                while let Some(message) = draining.batch.pop_front() {
                    let _until_it_has_run = self.bound_event(&message);
                    if let Some(answer) = message.run(cell, now, &mut draining.deferred) {
                        return Some(answer);
                    }
                }
                // Compares with the bound that drivers read: after a cancelled timer it is too early until timers run.
                if cell.deadline_nanos() <= now.as_nanos() {
                    cell.timers(now, &mut draining.deferred);
                }
                None
            });
            debug_assert!(answer.is_some(), "the thread that runs owns the cell");
            draining.perform_effects();
            match answer.flatten() {
                Some(answer) => answer.give(),
                None => return,
            }
        }
    }

    /// Tells users what is pending to them; the calling thread has begun to tell ([`EventQueue::begin_notifying`]) and has no
    /// flag. What is pending once it is done is left to the worker, if there is one.
    pub(super) fn notify_users(&self, hub: &Hub<P>, mut pending: Option<Upcalls<P>>) {
        while let Some(upcalls) = pending {
            let telling = Telling(self);
            upcalls.perform();
            drop(telling);
            let mut queue = self.queue.lock();
            if hub.own_threads {
                let left = !queue.upcalls.is_empty();
                drop(queue);
                if left {
                    self.worker.unpark();
                }
                return;
            }
            pending = queue.begin_notifying();
        }
    }
}
