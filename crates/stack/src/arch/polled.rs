//! Cells that belong to the threads that poll: no lock, and messages from all other threads.
//!
//! A thread that polls becomes the owner of a cell, and stays that until it rests. For the owner an event or a call is a
//! plain function call. A call by any other thread is put into the cell's mailbox, the polling thread is woken, and the
//! caller sleeps until the answer is there. Any thread may use a cell without an owner, and releases it at once: the
//! owner should be the thread that polls the devices, not the one that sets the stack up.
//!
//! The architectures of this kind differ in the part of the stack that one cell covers ([`Domain`]): all of it
//! ([`up`](super::up)), or the flows that one receive thread polls ([`shared_nothing`](super::shared_nothing)). Under
//! [`lwkt`](super::lwkt) the owner uses the cell on a second stack.
//!
//! What may never happen: mail in a cell's mailbox while its owner sleeps, or while it has no owner and no thread is
//! about to check it; two owners that wait for each other (a thread that waits for an answer reads the messages to all
//! cells that it owns, see [`owned_cells`]).

use std::sync::Arc;

use observe::Time;
use sync::{Atomic, CachePadded, Ordering, Platform, ThreadOwned, model_is_over};

use super::cells::{Exclusion, Hub};
use super::mailbox::Mailbox;
use super::owned_cells;
use crate::call::Reply;
use crate::connections::Upkeep;
use crate::deferred::DeferredEffects;
use crate::handoff::{CellMessage, Interrupt, OwnerWait, PendingReply};
use crate::place::Cell;

/// The index of no thread. It differs from the value that stands for a thread without an index.
const NO_THREAD: usize = usize::MAX - 1;

/// The part of the stack that a polled cell covers. All methods may be called by any thread.
pub trait Domain<P: Platform>: Send + Sync + 'static {
    /// The cell is the whole stack: its owner alone uses the tables of IP, and the hash of a flow is ignored.
    const WHOLE: bool;

    /// Whether the calling thread, which polls, may become the owner of a cell that has none.
    fn is_polled_here(&self) -> bool;

    /// The calling thread has become the owner: it claims the tables and queues that it will use without a lock.
    fn claim(&self);

    /// The calling thread, the owner, ends these claims.
    fn release_claims(&self);

    /// Wakes the thread that polls: there is mail, or the cell is free again.
    fn wake(&self);
}

/// A polled cell. See the head of this file.
pub struct PolledCell<P: Platform, D> {
    domain: D,
    cell: ThreadOwned<Cell<P>, P>,
    /// Calls and events of other threads than the owner.
    mailbox: Mailbox<P>,
    /// The index of the polling thread that owns the cell, or [`NO_THREAD`]. Other threads read it with each batch: it is on
    /// a line that is written only when the owner changes, and the cell's own words are not.
    owner: CachePadded<P::AtomicUsize>,
    /// A polling thread found the cell in use. The thread that releases the cell wakes it.
    turned_away: P::AtomicBool,
    /// Where the owner waits for another cell's answer.
    wait: OwnerWait<P>,
}

impl<P: Platform, D: Domain<P>> PolledCell<P, D> {
    /// A cell without an owner.
    pub fn new(domain: D, cell: Cell<P>, mailbox: Mailbox<P>) -> Self {
        PolledCell {
            domain,
            cell: ThreadOwned::new(cell),
            mailbox,
            owner: CachePadded::new(P::AtomicUsize::new(NO_THREAD)),
            turned_away: P::AtomicBool::new(false),
            wait: OwnerWait::default(),
        }
    }

    /// Uses the cell if it has no owner, and releases it.
    #[cold]
    fn use_unowned<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        if self.cell.owner().is_some() {
            return None;
        }
        let visit = Visit { polled: self, hub };
        let Ok(result) = self.cell.with(f) else {
            // Another thread came first.
            std::mem::forget(visit);
            return None;
        };
        drop(visit);
        Some(result)
    }

    /// Makes the polling thread the owner, unless another thread is.
    #[cold]
    pub(super) fn take_over(&self, hub: &Hub<P>) -> bool {
        if !self.domain.is_polled_here() {
            return false;
        }
        if self.cell.bind_here().is_err() {
            self.turned_away.store(true, Ordering::Relaxed);
            P::fence(Ordering::SeqCst);
            if self.cell.bind_here().is_err() {
                return false;
            }
        }
        self.owner.store(P::thread_index(), Ordering::Relaxed);
        owned_cells::own(&hub.cells);
        self.domain.claim();
        true
    }

    /// Releases the cell, and wakes a polling thread that was turned away meanwhile. Mail that arrived meanwhile is run
    /// here, because perhaps no other thread will look for it.
    fn release(&self, hub: &Hub<P>) {
        if self.owner.load(Ordering::Relaxed) != NO_THREAD {
            self.domain.release_claims();
            self.owner.store(NO_THREAD, Ordering::Relaxed);
        }
        loop {
            let _ = self.cell.release();
            P::fence(Ordering::SeqCst);
            if self.turned_away.load(Ordering::Relaxed) && self.turned_away.swap(false, Ordering::AcqRel) {
                self.domain.wake();
            }
            if !self.bind_for_mail() {
                return;
            }
            self.drain(hub, hub.shared.clock().now());
        }
    }

    /// Whether there is mail and no owner, and the calling thread has become the owner. Because of the fence before the
    /// call, here and in `assist`, either the sender of the mail sees that the cell is free, or the thread that leaves
    /// the cell sees the mail.
    fn bind_for_mail(&self) -> bool {
        self.mailbox.has_message() && self.cell.owner().is_none() && self.cell.bind_here().is_ok()
    }

    /// The owner runs the messages of other threads. True: there were some.
    fn drain(&self, hub: &Hub<P>, now: Time) -> bool {
        let mut ran = false;
        // Usually empty: one load.
        while self.mailbox.pending() != 0 {
            let Some(message) = self.mailbox.pop() else { break };
            let mut taken = self.mailbox.taken();
            taken.count = 1;
            ran = true;
            let mut deferred = DeferredEffects::default();
            let answer = match message {
                CellMessage::Job(job, asker) => Some(PendingReply::new(Reply::Job(job()), asker)),
                message => {
                    let answer = self.cell.with(|cell| message.run(cell, now, &mut deferred));
                    debug_assert!(answer.is_ok(), "only the owner drains the mailbox");
                    answer.ok().flatten()
                }
            };
            drop(taken);
            deferred.flush(hub.shared.links());
            answer.into_iter().for_each(PendingReply::give);
        }
        ran
    }

    /// Whether the calling thread owns the cell because it polls.
    #[inline]
    pub(super) fn is_polled_by_me(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == P::known_thread_index()
    }

    /// Uses the cell, which the calling thread owns. `None`: it does not, or uses it already.
    pub(super) fn with_mine<R>(&self, work: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        self.cell.borrow_mine().map(|mut cell| work(&mut cell))
    }

    /// The messages of other threads, for the owner.
    pub(super) fn mailbox(&self) -> &Mailbox<P> {
        &self.mailbox
    }

    /// The next deadline of the cell, which the calling thread owns.
    pub(super) fn next_timer(&self) -> u64 {
        self.cell.borrow_mine().map_or(u64::MAX, |cell| cell.deadline_nanos())
    }

    /// The cell has mail: its owner is woken where it polls, or where it waits for another cell's answer.
    fn tell_owner(&self) {
        self.domain.wake();
        self.wait.interrupt();
    }
}

/// Guards a use of the cell by a thread that shall not own it: released at the end, also on panic.
struct Visit<'a, P: Platform, D: Domain<P>> {
    polled: &'a PolledCell<P, D>,
    hub: &'a Hub<P>,
}

impl<P: Platform, D: Domain<P>> Drop for Visit<'_, P, D> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.polled.release(self.hub);
        }
    }
}

impl<P: Platform, D: Domain<P>> Exclusion<P> for PolledCell<P, D> {
    const SINGLE: bool = D::WHOLE;
    const POLLED: bool = true;
    const NESTS: bool = !D::WHOLE;

    #[inline(always)]
    fn enter<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        match self.cell.borrow_mine() {
            Some(mut cell) => Some(f(&mut cell)),
            None => self.use_unowned(hub, f),
        }
    }

    fn is_mine(&self) -> bool {
        self.cell.owner() == Some(P::thread_index())
    }

    fn withdraw(&self) -> Vec<CellMessage<P>> {
        self.mailbox.withdraw()
    }

    #[cold]
    fn send(&self, _: &Hub<P>, message: CellMessage<P>, announce: bool) -> Result<(), CellMessage<P>> {
        sync::walk::note(file!(), "sends a message to the thread that polls the flow's queue");
        self.mailbox.send(message, false)?;
        if announce || D::WHOLE {
            self.tell_owner();
        }
        Ok(())
    }

    #[cold]
    fn announce(&self, _: &Hub<P>) {
        if !D::WHOLE {
            self.tell_owner();
        }
    }

    fn use_tables(&self, hub: &Hub<P>, work: &mut dyn FnMut()) -> bool {
        if !D::WHOLE || self.cell.owner() == Some(P::thread_index()) {
            work();
            return true;
        }
        let free = self.cell.owner().is_none() && self.cell.bind_here().is_ok();
        if free {
            let visit = Visit { polled: self, hub };
            work();
            drop(visit);
        }
        free
    }

    fn assist(&self, hub: &Hub<P>) {
        P::fence(Ordering::SeqCst);
        if self.bind_for_mail() {
            self.drain(hub, hub.shared.clock().now());
            self.release(hub);
        }
    }

    fn wait_at(&self, slot: Option<Arc<dyn Interrupt>>) -> Option<Arc<dyn Interrupt>> {
        self.wait.set(slot)
    }

    fn read_mail(&self, hub: &Hub<P>) -> bool {
        self.drain(hub, hub.shared.clock().now())
    }

    fn deadline(&self) -> u64 {
        if self.is_polled_by_me() {
            return if self.mailbox.pending() == 0 { self.next_timer() } else { 0 };
        }
        // A thread that shall own the cell does not sleep before it does.
        let is_free = !D::WHOLE && self.owner.load(Ordering::Relaxed) == NO_THREAD && self.domain.is_polled_here();
        if is_free && self.cell.owner().is_none() { 0 } else { u64::MAX }
    }

    #[inline]
    fn tick(&self, hub: &Hub<P>, now: Time) -> bool {
        if !self.is_polled_by_me() && !self.take_over(hub) {
            return false;
        }
        let ran = self.drain(hub, now);
        if self.next_timer() <= now.as_nanos() {
            let mut deferred = DeferredEffects::default();
            self.enter(hub, |cell| cell.timers(now, &mut deferred));
            deferred.flush(hub.shared.links());
        }
        ran
    }

    fn is_quiescent(&self) -> bool {
        self.mailbox.pending() == 0
    }

    fn retire(&self, hub: &Hub<P>) {
        if self.is_polled_by_me() {
            self.drain(hub, hub.shared.clock().now());
            self.release(hub);
        }
    }
}
