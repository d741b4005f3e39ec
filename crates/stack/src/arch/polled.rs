//! Cells that belong to the threads that poll: no lock, and messages from all other threads.
//!
//! A thread that polls becomes the owner of a cell, and stays that until it rests. For the owner an event or a call is a
//! plain function call. A call by any other thread is put into the cell's mailbox, the polling thread is woken, and the
//! caller sleeps until the answer is there. Any thread may use a cell without an owner, and releases it at once: the
//! owner should be the thread that polls the devices, not the one that sets the stack up.
//!
//! The architectures of this kind differ in the part of the stack that one cell covers ([`Domain`]): all of it
//! ([`up`](super::up)), the flows that one receive thread polls ([`shared_nothing`](super::shared_nothing)), or a group of
//! flows whose owner changes with the load ([`adaptive`](super::adaptive)). A group of the last kind may have no owner for long: then
//! each thread owns it for the time of an event. A thread that finds a cell taken, or messages that wait, sends a message, and the thread that
//! leaves the cell runs it. Under [`lwkt`](super::lwkt) the owner uses the cell on a second stack.
//!
//! What may never happen: mail in a cell's mailbox while its owner sleeps, or while it has no owner and no thread is
//! about to check it; an event that overtakes a message which its thread has sent before; two owners that wait for each
//! other (a thread that waits for an answer reads the messages to all cells that it owns, see [`owned_cells`]).

use std::sync::Arc;

use observe::Time;
use sync::{Atomic, CachePadded, Lock, Ordering, PlantedMistake, Platform, ThreadOwned, Writers, model_is_over};

use super::adaptive::decisions::GroupDecision;
use super::adaptive::policy::Book;
use super::adaptive::queues::QueueClaims;
use super::cells::{Exclusion, Hub};
use super::due_cells::DueCells;
use super::mailbox::Mailbox;
use super::owned_cells;
use crate::call::Reply;
use crate::connections::Upkeep;
use crate::deferred::DeferredEffects;
use crate::handoff::{CellMessage, Interrupt, OwnerWait, PendingReply};
use crate::place::Cell;
use crate::shared::Shared;

/// The index of no thread. It differs from the value that stands for a thread without an index.
const NO_THREAD: usize = usize::MAX - 1;

/// Why a thread uses a polled cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UseCause {
    /// A user calls, and would wait if another thread did it.
    Call,
    /// So many packets of one flow have arrived, or a timer is due, which counts as one: nobody waits.
    Arrival {
        /// More than one in a run.
        packets: usize,
    },
}

/// How a thread came to use a polled cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellUse {
    /// It owned the cell already.
    Owner(UseCause),
    /// It owns the cell for this use alone.
    Visit(UseCause),
    /// In either way, to read counters: no use of a connection.
    Look,
    /// It runs a message of another thread.
    Message {
        /// How many waited, this one included.
        waiting: usize,
        /// See [`UseCause::Arrival`]; 1 for a call.
        packets: usize,
        /// It is a call, and its caller has waited until the thread where the cell is at home looked for messages.
        awaited: bool,
    },
}

/// The part of the stack that a polled cell covers. All methods may be called by any thread.
pub trait Domain<P: Platform>: Send + Sync + 'static {
    /// The cell is the whole stack: its owner alone uses the tables of IP, and the hash of a flow is ignored.
    const WHOLE: bool;
    /// A cell without an owner is used by all threads, and any receive thread runs its timers and its messages.
    const SHARED: bool = false;
    /// The cells of the flows that a receive thread receives.
    const CELLS_OF_A_THREAD: u32 = 1;
    /// The most messages that a thread runs before it leaves the rest to the receive threads.
    const BUDGET: usize = usize::MAX;
    /// The most turns that a user's thread waits for a thread that uses the cell for one event, before it queues its call and sleeps.
    const TURNS: u32 = 0;
    /// What is counted about the cell, by the thread that uses it.
    type Counts: Default + Send + 'static;

    /// Whether the calling thread, which polls, may become the owner of a cell that has none.
    fn is_polled_here(&self) -> bool;

    /// The calling thread has become the owner: it claims the tables and queues that it will use without a lock.
    fn claim(&self);

    /// The calling thread, the owner, ends these claims.
    fn release_claims(&self);

    /// Wakes the thread that polls: there is mail, or the cell is free again.
    fn wake(&self);

    /// Work in the cell, which has no owner, is due at `nanos`, or now, if that is 0: wakes a receive thread if none would wake by then.
    fn leave(&self, _nanos: u64) {}

    /// The calling thread enters the cell. For walks.
    #[inline(always)]
    fn enters(&self, _how: CellUse) {}

    /// The calling thread is in the cell, which has changed.
    #[inline(always)]
    fn changed(&self, _cell: &Cell<P>) {}

    /// The calling thread has used the cell, and is still in it.
    #[inline(always)]
    fn used(&self, _counts: &mut Self::Counts, _how: CellUse) {}

    /// See [`Exclusion::due`].
    fn due(&self) -> Option<&DueCells<P>> {
        None
    }

    /// When a timer of the cell is due, in nanoseconds, if any receive thread may run it; earlier if work was left
    /// ([`Domain::leave`]).
    fn deadline(&self) -> u64 {
        u64::MAX
    }

    /// See [`RunningArchitecture::decisions`](super::RunningArchitecture::decisions).
    fn decisions(&self) -> Vec<GroupDecision> {
        Vec::new()
    }

    /// See [`RunningArchitecture::queue_claims`](super::RunningArchitecture::queue_claims).
    fn queue_claims(&self) -> Vec<QueueClaims> {
        Vec::new()
    }

    /// See [`RunningArchitecture::book`](super::RunningArchitecture::book).
    fn book(&self) -> Option<&Arc<Lock<Book, P>>> {
        None
    }
}

/// What one thread at a time has.
struct Counted<P: Platform, D: Domain<P>> {
    cell: Cell<P>,
    counts: D::Counts,
}

/// A polled cell. See the head of this file.
pub struct PolledCell<P: Platform, D: Domain<P>> {
    domain: D,
    cell: ThreadOwned<Counted<P, D>, P>,
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
    /// A cell without an owner. Inline, so that `cell`, some kilobytes, is not copied once more on the stack.
    #[inline(always)]
    pub fn new(domain: D, cell: Cell<P>, mailbox: Mailbox<P>) -> Self {
        PolledCell {
            domain,
            cell: ThreadOwned::new(Counted { cell, counts: D::Counts::default() }),
            mailbox,
            owner: CachePadded::new(P::AtomicUsize::new(NO_THREAD)),
            turned_away: P::AtomicBool::new(false),
            wait: OwnerWait::default(),
        }
    }

    /// Uses the cell if it has no owner and no messages, and releases it. A message may be the calling thread's, and comes first.
    #[inline(never)]
    fn use_unowned<R>(&self, hub: &Hub<P>, how: CellUse, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let waiting = self.mailbox.pending() != 0 && !P::makes(PlantedMistake::DirectDespiteWork);
        if waiting || self.cell.owner().is_some() {
            return None;
        }
        let visit = Visit { polled: self, hub };
        let Ok(result) = self.cell.with(|counted| self.run(counted, how, f)) else {
            // Another thread came first.
            std::mem::forget(visit);
            return None;
        };
        drop(visit);
        Some(result)
    }

    #[inline(always)]
    fn enter_for<R>(&self, hub: &Hub<P>, cause: UseCause, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        match self.cell.borrow_mine() {
            Some(mut counted) => Some(self.run(&mut counted, CellUse::Owner(cause), f)),
            None => self.use_unowned(hub, CellUse::Visit(cause), f),
        }
    }

    #[inline(always)]
    fn run<R>(&self, counted: &mut Counted<P, D>, how: CellUse, f: impl FnOnce(&mut Cell<P>) -> R) -> R {
        self.domain.enters(how);
        let result = f(&mut counted.cell);
        self.domain.changed(&counted.cell);
        self.domain.used(&mut counted.counts, how);
        result
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
        self.publish_as(Writers::One);
        owned_cells::own(&hub.cells);
        self.domain.claim();
        true
    }

    /// How the readiness of the cell's connections is written from now on, if threads may share the cell: by plain stores while the
    /// calling thread, which owns it, has it at home. A thread that sleeps until a socket is ready pays for them with a heavy fence,
    /// and the sockets of a cell at home are used by the thread that polls, which does not sleep so.
    #[inline]
    fn publish_as(&self, writers: Writers) {
        if D::SHARED
            && let Some(mut counted) = self.cell.borrow_mine()
        {
            counted.cell.publish_as(writers);
        }
    }

    /// Releases the cell, and wakes a polling thread that was turned away meanwhile. Mail that arrived meanwhile is run
    /// here, because perhaps no other thread will look for it; what exceeds the budget is left to the receive threads.
    fn release(&self, hub: &Hub<P>) {
        let was_home = self.owner.load(Ordering::Relaxed) != NO_THREAD;
        if was_home {
            self.domain.release_claims();
            self.publish_as(Writers::Many);
            self.owner.store(NO_THREAD, Ordering::Relaxed);
        }
        self.give_up(hub, D::BUDGET);
        if D::SHARED && was_home {
            // The thread where it is at home now, if there is one; and any other for its timers.
            self.domain.wake();
            self.domain.leave(self.domain.deadline());
        }
    }

    /// The calling thread, where the cell is not at home, releases it. It may run `left` messages before.
    fn give_up(&self, hub: &Hub<P>, mut left: usize) {
        loop {
            let _ = self.cell.release();
            P::fence(Ordering::SeqCst);
            if self.turned_away.load(Ordering::Relaxed) && self.turned_away.swap(false, Ordering::AcqRel) {
                self.domain.wake();
            }
            if left == 0 && self.mailbox.has_message() {
                return self.domain.leave(0);
            }
            if P::makes(PlantedMistake::ReleaseInTwoSteps) || !self.bind_for_mail(hub) {
                return;
            }
            left -= self.drain_for_others(hub, left);
        }
    }

    /// Runs messages in a cell that is not the calling thread's home. If one panics, the calling thread, which may be a user's, goes on.
    fn drain_for_others(&self, hub: &Hub<P>, most: usize) -> usize {
        let Shared { failures, counters, .. } = &*hub.shared;
        let ran = failures.survive(counters, || self.drain(hub, hub.shared.clock().now(), most));
        ran.unwrap_or(most.min(1))
    }

    /// Runs the messages to a cell that has no owner, within the budget. True: there were some.
    #[cold]
    fn run_mail(&self, hub: &Hub<P>) -> bool {
        let bound = self.bind_for_mail(hub);
        if bound {
            let ran = self.drain_for_others(hub, D::BUDGET);
            self.give_up(hub, D::BUDGET - ran);
        }
        bound
    }

    /// Whether there is mail and no owner, and the calling thread has become the owner. Because of the fence before the
    /// call, here and in `assist`, either the sender of the mail sees that the cell is free, or the thread that leaves
    /// the cell sees the mail.
    fn bind_for_mail(&self, hub: &Hub<P>) -> bool {
        let bound = self.mailbox.has_message() && self.cell.owner().is_none() && self.cell.bind_here().is_ok();
        if bound {
            // A message may wake a user's code on this thread, which calls and waits for the owner of another cell.
            owned_cells::own(&hub.cells);
        }
        bound
    }

    /// The owner runs the messages of other threads, at most `most`. Returns how many there were.
    fn drain(&self, hub: &Hub<P>, now: Time, most: usize) -> usize {
        let mut ran = 0;
        // Usually empty: one load.
        while ran < most {
            let waiting = self.mailbox.pending();
            if waiting == 0 {
                break;
            }
            let Some(message) = self.mailbox.pop() else { break };
            let mut taken = self.mailbox.taken();
            taken.count = 1;
            ran += 1;
            let mut deferred = DeferredEffects::default();
            let answer = match message {
                CellMessage::Job(job, asker) => Some(PendingReply::new(Reply::Job(job()), asker)),
                message => {
                    let how = self.use_by(&message, waiting);
                    let run = |cell: &mut Cell<P>| message.run(cell, now, &mut deferred);
                    let answer = self.cell.with(|counted| self.run(counted, how, run));
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

    /// How the calling thread, which drains the mailbox, uses the cell for a message. What concerns all cells is no use of this one.
    fn use_by(&self, message: &CellMessage<P>, waiting: usize) -> CellUse {
        let awaited = match message {
            CellMessage::Control(..) | CellMessage::StackStats(_) => return CellUse::Look,
            CellMessage::Call(_, _, asker) | CellMessage::Udp(_, asker) => asker.is_awaited(),
            _ => false,
        };
        let packets = if let CellMessage::Ingress(ingress) = message { ingress.packets() } else { 1 };
        CellUse::Message { waiting, packets, awaited: awaited && self.is_polled_by_me() }
    }

    /// Whether the calling thread owns the cell because it polls.
    #[inline]
    pub(super) fn is_polled_by_me(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == P::known_thread_index()
    }

    /// Uses the cell, which the calling thread owns. `None`: it does not, or uses it already.
    pub(super) fn with_mine<R>(&self, work: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        self.cell.borrow_mine().map(|mut counted| work(&mut counted.cell))
    }

    /// The messages of other threads, for the owner.
    pub(super) fn mailbox(&self) -> &Mailbox<P> {
        &self.mailbox
    }

    /// The next deadline of the cell, which the calling thread owns.
    pub(super) fn next_timer(&self) -> u64 {
        self.cell.borrow_mine().map_or(u64::MAX, |counted| counted.cell.deadline_nanos())
    }

    /// The next deadline of the cell, which the calling thread does not own, if it may run it. Early, if messages were left to
    /// the receive threads.
    fn timer_without_me(&self) -> u64 {
        if D::SHARED && self.owner.load(Ordering::Relaxed) == NO_THREAD { self.domain.deadline() } else { u64::MAX }
    }

    /// The tick of a receive thread that does not own the cell. True: it has run messages.
    fn tick_unowned(&self, hub: &Hub<P>, now: Time) -> bool {
        if !D::SHARED || self.domain.deadline() > now.as_nanos() {
            return false;
        }
        let ran = self.run_mail(hub);
        self.run_timers(hub, now);
        ran
    }

    #[inline(never)]
    fn run_timers(&self, hub: &Hub<P>, now: Time) {
        let mut deferred = DeferredEffects::default();
        self.enter_unawaited(hub, 1, |cell| cell.timers(now, &mut deferred));
        deferred.flush(hub.shared.links());
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
    const EXPECTS: u32 = D::CELLS_OF_A_THREAD;
    const RUNS: bool = true;
    const NESTS: bool = !D::WHOLE;

    #[inline(always)]
    fn enter<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        self.enter_for(hub, UseCause::Call, f)
    }

    #[inline(always)]
    fn enter_mine<R>(&self, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let mut counted = self.cell.borrow_mine()?;
        Some(self.run(&mut counted, CellUse::Owner(UseCause::Call), f))
    }

    #[inline(always)]
    fn enter_unawaited<R>(&self, hub: &Hub<P>, packets: usize, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        self.enter_for(hub, UseCause::Arrival { packets }, f)
    }

    #[inline(always)]
    fn glance_at_mine<R>(&self, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        self.with_mine(f)
    }

    #[inline(always)]
    fn await_turn(&self) {
        let turns = if P::EXPLORED { D::TURNS.min(1) } else { D::TURNS };
        let taken = || self.cell.owner().is_some_and(|owner| owner != P::known_thread_index());
        let mut turn = 0;
        // The word that changes is read last: on a simulated machine a turn lasts until the last one that was read is written.
        while turn < turns && self.owner.load(Ordering::Relaxed) == NO_THREAD && taken() {
            P::relax(turn);
            turn += 1;
        }
    }

    fn look<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        match self.cell.borrow_mine() {
            Some(mut counted) => Some(self.run(&mut counted, CellUse::Look, f)),
            None => self.use_unowned(hub, CellUse::Look, f),
        }
    }

    fn is_mine(&self) -> bool {
        self.cell.owner() == Some(P::thread_index())
    }

    fn due(&self) -> Option<&DueCells<P>> {
        self.domain.due()
    }

    fn noted_deadline(&self) -> u64 {
        self.domain.deadline()
    }

    fn is_elsewhere(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        D::SHARED && owner != NO_THREAD && owner != P::known_thread_index()
    }

    fn is_home(&self) -> bool {
        self.is_mine() || (D::SHARED && self.owner.load(Ordering::Relaxed) == NO_THREAD)
    }

    fn has_batch_time(&self) -> bool {
        !D::SHARED || self.is_polled_by_me()
    }

    #[inline(always)]
    fn has_batch_time_inside(&self, cell: &Cell<P>) -> bool {
        !D::SHARED || cell.is_published_plainly()
    }

    fn decisions(&self) -> Vec<GroupDecision> {
        self.domain.decisions()
    }

    fn queue_claims(&self) -> Vec<QueueClaims> {
        self.domain.queue_claims()
    }

    fn book(&self) -> Option<&Arc<Lock<Book, P>>> {
        self.domain.book()
    }

    /// Without the messages: they move on.
    fn seize<R>(&self, _: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let is_owned = self.cell.owner().is_some();
        let result = self.cell.with(|counted| {
            let result = f(&mut counted.cell);
            self.domain.changed(&counted.cell);
            result
        });
        let result = result.ok();
        if !is_owned && result.is_some() {
            let _ = self.cell.release();
        }
        result
    }

    fn withdraw(&self) -> Vec<CellMessage<P>> {
        self.mailbox.withdraw()
    }

    #[cold]
    fn send(&self, hub: &Hub<P>, message: CellMessage<P>, announce: bool) -> Result<(), CellMessage<P>> {
        sync::walk::note(file!(), "sends a message to the thread that polls the flow's queue");
        self.mailbox.send(message, false)?;
        if announce || D::WHOLE {
            self.tell_owner();
        } else if D::SHARED {
            // The thread that was in the cell may have left it just now.
            self.assist(hub);
        }
        Ok(())
    }

    #[cold]
    fn announce(&self, _: &Hub<P>) {
        if !D::WHOLE {
            self.tell_owner();
        }
    }

    #[inline(always)]
    fn owns_tables(&self) -> bool {
        D::WHOLE && self.cell.owner() == Some(P::thread_index())
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
        self.run_mail(hub);
    }

    fn wait_at(&self, slot: Option<Arc<dyn Interrupt>>) -> Option<Arc<dyn Interrupt>> {
        self.wait.set(slot)
    }

    fn read_mail(&self, hub: &Hub<P>) -> bool {
        self.drain(hub, hub.shared.clock().now(), usize::MAX) != 0
    }

    fn deadline(&self) -> u64 {
        if self.is_polled_by_me() {
            let stays = !D::SHARED || self.domain.is_polled_here();
            return if stays && self.mailbox.pending() == 0 { self.next_timer() } else { 0 };
        }
        // A thread that shall own the cell does not sleep before it does.
        let is_free = self.owner.load(Ordering::Relaxed) == NO_THREAD && self.domain.is_polled_here();
        let free = || self.cell.owner().is_none();
        if is_free && free() { 0 } else { self.timer_without_me() }
    }

    fn timer_deadline(&self) -> u64 {
        if !D::SHARED {
            // The timers of a cell without an owner are not known.
            return self.deadline();
        }
        if self.is_polled_by_me() { self.next_timer() } else { self.timer_without_me() }
    }

    #[inline]
    fn tick(&self, hub: &Hub<P>, now: Time) -> bool {
        let mut most = D::BUDGET;
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == P::known_thread_index() {
            if D::SHARED && !self.domain.is_polled_here() {
                // What the calling thread runs in the cell until it has left must not be overtaken.
                self.retire(hub);
                return true;
            }
        } else if D::SHARED && owner != NO_THREAD {
            // It is another thread's home, which wakes the next one when it gives the cell up. A message that was sent before that
            // thread took the cell over may have been announced here.
            if self.mailbox.pending() != 0 {
                self.domain.wake();
            }
            return false;
        } else if self.take_over(hub) {
            // Among the messages may be some of the calling thread, which enters the cell from now on.
            most = most.max(self.mailbox.pending());
        } else {
            return self.tick_unowned(hub, now);
        }
        let ran = self.drain(hub, now, most) != 0;
        if self.next_timer() <= now.as_nanos() {
            self.run_timers(hub, now);
        }
        ran
    }

    fn is_quiescent(&self) -> bool {
        self.mailbox.pending() == 0
    }

    fn retire(&self, hub: &Hub<P>) {
        if self.is_polled_by_me() {
            self.drain(hub, hub.shared.clock().now(), usize::MAX);
            self.release(hub);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
