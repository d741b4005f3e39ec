//! One thread, no lock (Willmann's UP).
//!
//! | cell | exclusive use by | thread | table | order |
//! |---|---|---|---|---|
//! | the stack | nothing: one thread | the thread that polls the devices | plain | structure |
//!
//! The thread that first ticks owns the stack from then on. A call by the owner is a plain function call. A call by any
//! other thread is put into the mailbox, the owner is woken, and the caller sleeps until the answer is there: it costs
//! what a message costs, and the one-thread rule holds.

use std::collections::VecDeque;
use std::sync::Arc;

use observe::Time;
use sync::{Atomic, Lock, LockClass, LockKind, Ordering, OwnerCell, OwnerGuard, Platform, model_is_over};

use super::{Architecture, Census};
use crate::after::After;
use crate::call::{Call, Control, Ingress, Reply};
use crate::connections::{Arrivals, Calls, Upkeep};
use crate::flow::Target;
use crate::handoff::{Answer, Asker, Message, ReplySlot};
use crate::place::Cell;
use crate::shared::Shared;

/// The architecture `up`.
pub struct Up<P: Platform> {
    shared: Arc<Shared<P>>,
    cell: OwnerCell<Cell<P>, P>,
    /// From other threads than the owner.
    mailbox: Lock<VecDeque<Message<P>>, P>,
    waiting: P::AtomicUsize,
    /// A thread that polls found the cell in use. Whoever gives it up wakes the drivers.
    turned_away: P::AtomicBool,
}

impl<P: Platform> Up<P> {
    /// One cell, not owned yet.
    pub fn new(shared: &Arc<Shared<P>>) -> Self {
        Up {
            shared: shared.clone(),
            cell: OwnerCell::new(Cell::new(shared)),
            mailbox: Lock::new(LockKind::Blocking, LockClass::Handoff, VecDeque::new()),
            waiting: P::AtomicUsize::new(0),
            turned_away: P::AtomicBool::new(false),
        }
    }

    /// Whether the calling thread may use the cell now: it is the owner, or nobody is.
    #[inline]
    fn admits(&self) -> bool {
        self.cell.owner().is_none_or(|owner| owner == P::thread_index())
    }

    /// Runs `f` in the cell if the calling thread owns it; or if nobody does yet, and then gives it up again.
    #[inline]
    fn hold<R>(&self, f: impl FnOnce(&mut Cell<P>, &mut After<P>) -> R) -> Option<R> {
        // Not "somebody's": whoever uses the cell now may give it up before this thread takes it.
        let owned = self.cell.owner() == Some(P::thread_index());
        let mut after = After::default();
        let visit = Visit { up: self, owned };
        let Ok(result) = self.cell.with(|cell| f(cell, &mut after)) else {
            std::mem::forget(visit);
            return None;
        };
        drop(visit);
        after.perform(&self.shared);
        if after.is_plain() {
            std::mem::forget(after);
        }
        Some(result)
    }

    /// Gives the cell up. A driver that was turned away meanwhile is woken; mail that came meanwhile, and that perhaps
    /// nobody else will look for, is run first.
    fn let_go(&self) {
        loop {
            let _ = self.cell.release();
            P::fence(Ordering::SeqCst);
            if self.turned_away.load(Ordering::Relaxed) && self.turned_away.swap(false, Ordering::AcqRel) {
                self.shared.wake_drivers();
            }
            if !self.adopts_mail() {
                return;
            }
            self.drain(self.shared.clock.now());
        }
    }

    /// Whether there is mail and no owner, and the calling thread has become the owner. The fence before the call, here
    /// and in `ask`, makes one of the two see the other: who leaves mail, or who leaves the cell.
    fn adopts_mail(&self) -> bool {
        self.waiting.load(Ordering::Acquire) != 0 && self.cell.owner().is_none() && self.cell.bind_here().is_ok()
    }

    #[cold]
    fn send(&self, message: Message<P>) {
        let mut mailbox = self.mailbox.lock();
        mailbox.push_back(message);
        self.waiting.store(mailbox.len(), Ordering::Release);
        drop(mailbox);
        sync::profile::handoff::<P>(1);
        self.shared.wake_drivers();
    }

    /// An event from a thread that does not own the cell. Not inlined, or its message would be built in the caller's frame.
    #[cold]
    #[inline(never)]
    fn post_from_elsewhere(&self, ingress: &mut Ingress) {
        self.send(Message::Ingress(std::mem::take(ingress)));
    }

    /// The owner runs what other threads have asked for.
    fn drain(&self, now: Time) {
        while self.waiting.load(Ordering::Acquire) != 0 {
            let message = {
                let mut mailbox = self.mailbox.lock();
                let message = mailbox.pop_front();
                self.waiting.store(mailbox.len(), Ordering::Release);
                message
            };
            let Some(message) = message else { return };
            let answer = self.hold(|cell, after| message.run(cell, now, after));
            debug_assert!(answer.is_some(), "only the owner drains the mailbox");
            answer.flatten().into_iter().for_each(Answer::give);
        }
    }

    /// A call by the owner.
    #[inline(always)]
    fn call_here(&self, mut guard: OwnerGuard<'_, Cell<P>, P>, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        let mut after = After::default();
        let now = match call {
            // To read starts no timer and measures nothing, and who owns the stack has just polled: no clock is read.
            Call::Receive(_) => self.shared.batch_now(),
            _ => self.shared.clock.now(),
        };
        let cell = &mut *guard;
        cell.call(target, call, now, &mut after, reply);
        drop(guard);
        after.perform(&self.shared);
        if after.is_plain() {
            std::mem::forget(after);
        }
    }

    /// A call by a thread that does not own the cell.
    #[cold]
    fn call_from_elsewhere(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        if self.admits() {
            let now = self.shared.clock.now();
            if self.hold(|cell, after| cell.call(target, call, now, after, reply)).is_some() {
                return;
            }
            // Another thread came first.
        }
        *reply = self.ask(|asker| Message::Call(*target, call.take(), asker));
    }
}

/// A use of the cell by a thread that may not be its owner. The thread that polls the devices is to be the owner, and not
/// the one that sets things up: that one gives the cell up again, also when it panics.
struct Visit<'a, P: Platform> {
    up: &'a Up<P>,
    owned: bool,
}

impl<P: Platform> Drop for Visit<'_, P> {
    #[inline]
    fn drop(&mut self) {
        if !self.owned && !model_is_over::<P>() {
            self.up.let_go();
        }
    }
}

impl<P: Platform> Architecture<P> for Up<P> {
    #[inline]
    fn post(&self, ingress: &mut Ingress, now: Time, after: &mut After<P>) {
        let Some(mut guard) = self.cell.borrow_mine() else {
            return self.post_from_elsewhere(ingress);
        };
        let cell = &mut *guard;
        cell.ingress(ingress, now, after);
    }

    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        match self.cell.borrow_mine() {
            Some(guard) => self.call_here(guard, target, call, reply),
            None => self.call_from_elsewhere(target, call, reply),
        }
    }

    fn control(&self, change: Control<P>) {
        if self.hold(|cell, after| cell.control(change.clone(), self.shared.clock.now(), after)).is_none() {
            self.ask(|asker| Message::Control(change, asker));
        }
    }

    fn tick(&self, now: Time) {
        if self.cell.bind_here().is_err() {
            self.turned_away.store(true, Ordering::Relaxed);
            P::fence(Ordering::SeqCst);
            if self.cell.bind_here().is_err() {
                return;
            }
        }
        self.drain(now);
        let _ = self.hold(|cell, after| {
            if cell.next_deadline().is_some_and(|deadline| deadline <= now) {
                cell.timers(now, after);
            }
        });
    }

    fn retire(&self) {
        if self.cell.owner() == Some(P::thread_index()) {
            self.drain(self.shared.clock.now());
            self.let_go();
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        if self.cell.owner() != Some(P::thread_index()) {
            return None;
        }
        self.cell.with(|cell| cell.next_deadline()).ok().flatten()
    }

    fn is_quiescent(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    fn census(&self) -> Census {
        if let Some(census) = self.hold(|cell, _| cell.census()) {
            return census;
        }
        match self.ask(Message::Census) {
            Reply::Census(census) => *census,
            _ => Census::default(),
        }
    }
}

impl<P: Platform> Up<P> {
    fn ask(&self, message: impl FnOnce(Asker<P>) -> Message<P>) -> Reply {
        let slot = ReplySlot::new();
        self.send(message(Asker::new(&slot)));
        P::fence(Ordering::SeqCst);
        if self.adopts_mail() {
            self.drain(self.shared.clock.now());
            self.let_go();
        }
        slot.wait()
    }
}
