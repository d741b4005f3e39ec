//! `connp-t:lwkt`: protocol threads as light-weight kernel threads (DragonFly BSD; the open question of Willmann, Rixner, Cox
//! 2006: there, protocol threads were threads of a kernel that switches slowly between them).
//!
//! A core is one thread of the kernel: a receive thread. It owns the cell of the flows that its queues receive, as under
//! [`shared_nothing`](super::shared_nothing), and has two stacks. On its own it runs the driver and the application; on the
//! other, a [`Coroutine`], it runs the *protocol thread*, which alone uses the cell. Both are the same thread of the kernel, so
//! the queue between them needs no lock and no atomic operation, and a hand-over is a switch of stacks.
//!
//! - Arrivals are messages. The driver queues a batch of them, and switches once.
//! - A call of the core's own application takes its place in the queue, is lent to the protocol thread, and runs in its turn:
//!   after all that was queued before. Then the protocol thread suspends itself, also in the middle of its queue: its caller goes
//!   first.
//! - Another core, or a thread that carries none, sends a message by a ring and wakes the core. The receive thread moves the ring
//!   to the queue.
//! - Code that the protocol thread calls outside the cell (wake-ups, notifications) may call the stack. That call runs at once: a
//!   synchronous message to one's own port would never be answered (DragonFly: `lwkt_domsg` to the running thread).
//!
//! After 512 messages (`ROUND`) the protocol thread lets the driver run. The tables of IP, transmit queues and the passing of a
//! cell from thread to thread are those of [`PolledCell`]; a cell without an owner is used by any thread, and has no protocol
//! thread.
//!
//! What may never happen: a switch to the other stack while the cell is borrowed (the protocol thread suspends itself between
//! messages only); a message in the queue, and a core that sleeps or gives the cell up.

use std::cell::Cell as Slot;
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;

use observe::{DropReason, Time};
use sync::{Atomic, Coroutine, Ordering, Platform, Suspender, ThreadOwned, Writers};

use super::RunningArchitecture;
use super::async_wildcard::let_an_arrival_pass;
use super::cells::{Cells, Exclusion, Hub};
use super::connp_t::ROUND;
use super::declaration::Properties;
use super::mailbox::Mailbox;
use super::polled::PolledCell;
use super::shared_nothing::CoreDomain;
use crate::attempt::attempt;
use crate::charge;
use crate::connections::Upkeep;
use crate::deferred::{DeferredEffects, EffectsGuard};
use crate::handoff::{CellMessage, Interrupt, PendingReply};
use crate::place::{Cell, Contents};
use crate::shared::{Shared, boxed};
use crate::socket::HandlersRun;

/// The properties of `connp-t:lwkt`: its protocol threads are the receive threads'.
pub(super) const PROPERTIES: Properties = Properties {
    single_thread: false,
    polling_thread_owns: true,
    has_locks: false,
    groups: false,
    own_threads: false,
    keeps_batches_together: true,
    handlers: HandlersRun::Inside,
    complexity: 5,
};

/// Messages in a core's queue with which it takes none from the ring: others then find that full.
const MOST: usize = 4096;

/// The queue of a core's protocol thread. Only that core's thread of the kernel uses it.
struct LwktQueue<P: Platform> {
    messages: VecDeque<CellMessage<P>>,
    /// The core's own caller waits, and runs after so many of them.
    caller: Option<usize>,
    /// When the thread was given the latest of its work.
    now: Time,
    /// Whether due timers run then: only in a tick, when the driver has taken what had arrived. An acknowledgement that waits in
    /// the device comes before the time-out that it prevents.
    timers: bool,
}

/// A call of the core's own application, lent to the protocol thread.
type LentCall<'a, P> = &'a mut dyn FnMut(&mut Cell<P>);

/// One entry of the queue, taken out.
enum Next<P: Platform> {
    Message(CellMessage<P>),
    Caller,
}

/// Why the protocol thread has left the cell. There is no job among its messages: any thread may use the tables of IP.
enum Left<P: Platform> {
    /// A caller waits for this answer.
    Answer(PendingReply<P>),
    /// The core's own caller has its answer.
    Caller,
    /// It has run as many messages as it may.
    Bound,
    /// Nothing is queued.
    Empty,
}

/// The cell and the queue of a core.
struct LwktCore<P: Platform> {
    /// In memory of its own, because the thread that makes the core may have a small stack.
    polled: Box<PolledCell<P, CoreDomain<P>>>,
    queue: ThreadOwned<LwktQueue<P>, P>,
    /// Something is queued, or runs. Written by the owner alone, for other threads that ask whether the stack is at rest.
    works: P::AtomicBool,
    /// See [`Owners`](super::connp_t::Owners).
    async_wildcard: bool,
}

/// A core: see the head of this file.
struct LightweightThread<P: Platform> {
    /// The protocol thread, made when it is first needed. It is borrowed while it runs, also below another switch further up
    /// the same stack.
    protocol: ThreadOwned<Option<Coroutine<Cell<P>>>, P>,
    core: Arc<LwktCore<P>>,
}

/// A core for each receive thread.
pub(super) fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    async_wildcard: bool,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let (slab, cores) = (contents.slab.clone(), shared.links().alarms().threads());
    Arc::new(Cells::of_boxes(shared, cores, false, contents, |index| {
        let cell = boxed(|| Cell::new(shared, &slab, Writers::One));
        let polled = boxed(move || PolledCell::new(CoreDomain::new(shared, index), *cell, Mailbox::ring()));
        let queue = LwktQueue { messages: VecDeque::new(), caller: None, now: Time::from_nanos(0), timers: false };
        let (queue, works) = (ThreadOwned::new(queue), P::AtomicBool::new(false));
        let core = Arc::new(LwktCore { polled, queue, works, async_wildcard });
        Box::new(LightweightThread { protocol: ThreadOwned::new(None), core })
    }))
}

impl<P: Platform> LwktQueue<P> {
    /// Takes the next entry. Without `lent` the caller is passed over: another one of this thread's stacks has its call.
    fn next(&mut self, lent: bool, async_wildcard: bool) -> Option<Next<P>> {
        if lent && self.caller == Some(0) {
            charge::left::<P, _>(&self.caller, false);
            self.caller = None;
            return Some(Next::Caller);
        }
        let mut message = self.messages.pop_front()?;
        if async_wildcard {
            let_an_arrival_pass(&mut message, &mut self.messages);
        }
        charge::messages::<P, _>(Some(&message), false);
        self.caller = self.caller.map(|before| before.saturating_sub(1));
        Some(Next::Message(message))
    }
}

impl<P: Platform> LwktCore<P> {
    /// Uses the queue. `None`: it is another thread's, which does the core's work.
    fn queue<R>(&self, work: impl FnOnce(&mut LwktQueue<P>) -> R) -> Option<R> {
        self.queue.borrow_mine().map(|mut queue| work(&mut queue))
    }

    /// Whether messages wait.
    fn has_messages(&self) -> bool {
        self.queue(|queue| !queue.messages.is_empty()).unwrap_or(false)
    }

    /// The core has work; see `works`.
    fn begin_work(&self) {
        if !self.works.load(Ordering::Relaxed) {
            self.works.store(true, Ordering::Release);
        }
    }

    /// The protocol thread is about to wait, or has no work after all.
    fn end_work(&self) {
        if self.works.load(Ordering::Relaxed) && !self.has_messages() {
            self.works.store(false, Ordering::Release);
        }
    }

    /// Queues a message of this core.
    fn push(&self, message: CellMessage<P>) {
        self.begin_work();
        charge::messages::<P, _>(Some(&message), true);
        self.queue(|queue| queue.messages.push_back(message));
    }

    /// Moves what other threads have sent to the queue, as far as that is not full. True: there was something.
    fn take_mail(&self) -> bool {
        let mailbox = self.polled.mailbox();
        if mailbox.pending() == 0 {
            return false;
        }
        let mut taken = mailbox.taken();
        let moved = self.queue(|queue| {
            let before = queue.messages.len();
            mailbox.take(&mut queue.messages, MOST);
            queue.messages.len() - before
        });
        taken.count = moved.unwrap_or(0);
        let found = taken.count != 0;
        if found {
            // Before the mailbox counts them no more.
            self.begin_work();
        }
        found
    }

    /// The body of the protocol thread.
    fn serve(&self, shared: &Shared<P>, suspender: &mut Suspender<'_, Cell<P>>) {
        loop {
            self.round(shared, Some(suspender));
            if !suspender.suspend() {
                return;
            }
        }
    }

    /// Runs what is queued: until it is empty, the bound is reached, or the core's own caller, which has lent its call, has the
    /// answer.
    fn round(&self, shared: &Shared<P>, mut suspender: Option<&mut Suspender<'_, Cell<P>>>) {
        let (mut rest, now) = (ROUND, self.queue(|queue| queue.now).unwrap_or_else(|| shared.clock().now()));
        loop {
            let call = suspender.as_mut().and_then(|suspender| suspender.lent());
            let left = shared.failures.survive(&shared.counters, || {
                let mut effects = EffectsGuard::new(shared.links());
                let left = self.polled.with_mine(|cell| self.run(cell, now, &mut rest, call, &mut effects.deferred));
                drop(effects);
                left
            });
            match left {
                Some(Some(Left::Answer(answer))) => answer.give(),
                // The effects may have queued more.
                Some(Some(Left::Empty)) if self.has_messages() => {}
                Some(Some(Left::Empty | Left::Caller | Left::Bound)) => return self.end_work(),
                Some(None) => {
                    debug_assert!(false, "the owner's messages run outside the cell");
                    return;
                }
                None => shared.counters.count_drop(DropReason::ReceiverPanicked),
            }
        }
    }

    /// Runs messages in the cell until it has to leave it. The cell is released, and the effects are performed, before anyone is
    /// answered.
    fn run(
        &self,
        cell: &mut Cell<P>,
        now: Time,
        rest: &mut usize,
        mut call: Option<LentCall<'_, P>>,
        deferred: &mut DeferredEffects<P>,
    ) -> Left<P> {
        loop {
            if *rest == 0 && self.has_messages() {
                return Left::Bound;
            }
            let next = self.queue(|queue| queue.next(call.is_some(), self.async_wildcard)).flatten();
            match (next, &mut call) {
                (Some(Next::Message(message)), _) => {
                    *rest = rest.saturating_sub(1);
                    sync::walk::note(file!(), "the protocol thread takes the message from the core's queue");
                    if let Some(answer) = message.run(cell, now, deferred) {
                        return Left::Answer(answer);
                    }
                }
                (Some(Next::Caller), Some(call)) => {
                    sync::walk::note(file!(), "the protocol thread runs the call of its core");
                    call(cell);
                    return Left::Caller;
                }
                _ => {
                    let timers = self.queue(|queue| queue.timers) == Some(true);
                    if timers && cell.deadline_nanos() <= now.as_nanos() {
                        cell.timers(now, deferred);
                    }
                    return Left::Empty;
                }
            }
        }
    }
}

impl<P: Platform> LightweightThread<P> {
    /// Switches to the protocol thread, and lends it `call`. False: it runs already, further up the calling thread's stack.
    fn switch(&self, hub: &Hub<P>, call: Option<LentCall<'_, P>>) -> bool {
        let Some(mut protocol) = self.protocol.borrow_mine() else { return false };
        if !protocol.as_ref().is_some_and(Coroutine::can_resume) {
            // The first; or the last one has ended with a panic, or with a thread that left its number to this one.
            let (core, shared) = (self.core.clone(), hub.shared.clone());
            *protocol = Some(Coroutine::new(move |suspender| core.serve(&shared, suspender)));
        }
        sync::walk::note(file!(), "switches to the stack of the protocol thread");
        if let Some(protocol) = &mut *protocol {
            protocol.resume(call);
        }
        sync::walk::note(file!(), "the protocol thread switches back");
        true
    }

    /// Has the protocol thread run what is queued, and due timers if `timers`, as of `now`; or runs it here if that thread waits
    /// further up the stack.
    fn work(&self, hub: &Hub<P>, now: Time, timers: bool) {
        self.core.queue(|queue| (queue.now, queue.timers) = (now, timers));
        if !self.switch(hub, None) {
            self.core.round(&hub.shared, None);
        }
    }

    /// The calling thread has become the owner of the cell.
    fn bind(&self) -> bool {
        let bound = self.protocol.bind_here().is_ok() && self.core.queue.bind_here().is_ok();
        debug_assert!(bound, "the queue of a cell without an owner has none");
        bound
    }

    /// A call of the core's own, when the protocol thread does not run. A panic may leave its turn in the queue, which nobody takes
    /// and the next call replaces.
    fn call<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let core = &*self.core;
        core.queue(|queue| {
            queue.caller = Some(queue.messages.len());
            charge::left::<P, _>(&queue.caller, true);
        });
        let (mut f, result) = (Some(f), Slot::new(None));
        let mut call = |cell: &mut Cell<P>| result.set(f.take().map(|f| attempt(|| f(cell))));
        while core.queue(|queue| queue.caller.is_some()) == Some(true) && self.switch(hub, Some(&mut call)) {}
        result.into_inner().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl<P: Platform> Exclusion<P> for LightweightThread<P> {
    const POLLED: bool = true;

    fn enter<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        if self.core.polled.is_polled_by_me() && self.protocol.borrow_mine().is_some() {
            return self.call(hub, f);
        }
        self.core.polled.enter(hub, f)
    }

    fn seize<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        self.core.polled.seize(hub, f)
    }

    fn has_batch_time(&self) -> bool {
        self.core.polled.has_batch_time()
    }

    fn takes_arrivals(&self) -> bool {
        !self.core.polled.is_polled_by_me()
    }

    fn is_mine(&self) -> bool {
        self.core.polled.is_mine()
    }

    fn replicates_without_waiting(&self) -> bool {
        self.core.async_wildcard
    }

    fn withdraw(&self) -> Vec<CellMessage<P>> {
        let queued = self.core.queue.with(|queue| std::mem::take(&mut queue.messages)).unwrap_or_default();
        let mut messages = Vec::from(queued);
        messages.append(&mut self.core.polled.withdraw());
        messages
    }

    fn send(&self, hub: &Hub<P>, message: CellMessage<P>, announce: bool) -> Result<(), CellMessage<P>> {
        if !self.core.polled.is_polled_by_me() {
            return self.core.polled.send(hub, message, announce);
        }
        sync::walk::note(file!(), "queues a message for the protocol thread of its core");
        self.core.push(message);
        if announce {
            self.announce(hub);
        }
        Ok(())
    }

    fn announce(&self, hub: &Hub<P>) {
        if !self.core.polled.is_polled_by_me() {
            return self.core.polled.announce(hub);
        }
        let now = hub.shared.clock().batch_now();
        self.core.queue(|queue| (queue.now, queue.timers) = (now, false));
        // If it runs already, it goes on with these.
        self.switch(hub, None);
    }

    fn assist(&self, hub: &Hub<P>) {
        self.core.polled.assist(hub);
    }

    fn wait_at(&self, slot: Option<Arc<dyn Interrupt>>) -> Option<Arc<dyn Interrupt>> {
        self.core.polled.wait_at(slot)
    }

    fn read_mail(&self, hub: &Hub<P>) -> bool {
        if !self.core.polled.is_polled_by_me() {
            return self.core.polled.read_mail(hub);
        }
        let found = self.core.take_mail() || self.core.has_messages();
        if found {
            self.work(hub, hub.shared.clock().now(), false);
        }
        found
    }

    fn deadline(&self) -> u64 {
        let polled = &self.core.polled;
        if polled.is_polled_by_me() && self.core.has_messages() { 0 } else { polled.deadline() }
    }

    fn tick(&self, hub: &Hub<P>, now: Time) -> bool {
        let polled = &self.core.polled;
        let owns = polled.is_polled_by_me() || (polled.take_over(hub) && self.bind());
        if !owns {
            return false;
        }
        let more = self.core.take_mail();
        if more || self.core.has_messages() || polled.next_timer() <= now.as_nanos() {
            self.work(hub, now, true);
        }
        // The driver goes on, if the protocol thread has suspended itself in the middle of its queue.
        more && !self.core.has_messages()
    }

    fn is_quiescent(&self) -> bool {
        self.core.polled.is_quiescent() && !self.core.works.load(Ordering::Acquire)
    }

    fn retire(&self, hub: &Hub<P>) {
        if !self.core.polled.is_polled_by_me() {
            return;
        }
        while self.core.take_mail() || self.core.has_messages() {
            self.work(hub, hub.shared.clock().now(), false);
        }
        let ended = self.protocol.with(|protocol| *protocol = None);
        debug_assert!(ended.is_ok(), "a receive thread stops outside the protocol thread");
        let _ = (self.protocol.release(), self.core.queue.release());
        self.core.polled.retire(hub);
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;
    use crate::handoff::ReplySender;

    /// What the protocol thread takes from a queue of two messages with the caller between them: `m` a message, `c` the caller.
    fn taken(lent: bool) -> String {
        let job = || CellMessage::Job(Box::new(|| Box::new(())), ReplySender::nobody());
        let mut queue = LwktQueue::<Real> {
            messages: [job(), job()].into(),
            caller: Some(1),
            now: Time::from_nanos(0),
            timers: false,
        };
        let next = std::iter::from_fn(|| queue.next(lent, false));
        next.map(|next| if matches!(next, Next::Caller) { 'c' } else { 'm' }).collect()
    }

    #[test]
    fn a_caller_has_its_turn_in_the_queue() {
        assert_eq!(taken(true), "mcm");
    }

    /// The stack on which the caller's call is lent runs further down: what is behind the caller must not wait for that.
    #[test]
    fn a_caller_whose_call_is_not_here_is_passed_over() {
        assert_eq!(taken(false), "mm");
    }
}
