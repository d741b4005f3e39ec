//! What an architecture of cells declares: how one thread at a time uses a cell, and how work reaches that thread.

use std::sync::{Arc, Weak};

use observe::Time;
use sync::{Lock, Platform, ThreadClass};

use crate::arch::adaptive::decisions::GroupDecision;
use crate::arch::adaptive::policy::Book;
use crate::arch::adaptive::queues::QueueClaims;
use crate::arch::due_cells::DueCells;
use crate::arch::owned_cells::OwnedCells;
use crate::arch::polled_rings::PolledRings;
use crate::handoff::{CellMessage, Interrupt};
use crate::place::Cell;
use crate::shared::Shared;
use crate::table::flow_bindings::FlowBindings;

/// The context of an architecture's cells.
pub struct Hub<P: Platform> {
    /// The stack.
    pub shared: Arc<Shared<P>>,
    /// Each cell has its own thread. Otherwise the thread that calls or ticks does the work of all cells: the same code
    /// on one thread, in a repeatable order.
    pub own_threads: bool,
    /// The cells, for the threads that own some of them.
    pub cells: Weak<dyn OwnedCells>,
}

/// How one thread at a time uses a cell, and how work reaches that thread; see the module documentation. All methods
/// may be called by any thread.
pub trait Exclusion<P: Platform>: Send + Sync + 'static {
    /// The prefix of its threads' names; empty: it has none.
    const THREAD: &'static str = "";
    /// The class of its threads.
    const CLASS: ThreadClass = ThreadClass::Protocol;
    /// Its threads run the timers of connections; otherwise receive threads do.
    const RUNS_TIMERS: bool = false;
    /// There is only one cell: the flow hash is ignored.
    const SINGLE: bool = false;
    /// The thread that owns the cell polls, and calls.
    const POLLED: bool = false;
    /// While the thread that owns the cell waits for an answer, it reads the messages to its own cells ([`owned_cells`](crate::arch::owned_cells)).
    const READS_MAIL: bool = Self::POLLED;

    /// A thread in a cell could enter another one, or would wait for ever for its own: calls by handlers are looked for and
    /// refused. Otherwise [`Exclusion::enter`] refuses them.
    const NESTS: bool = true;

    /// See [`RunningArchitecture::takes_runs`](crate::arch::RunningArchitecture::takes_runs).
    const RUNS: bool = false;

    /// See [`RunningArchitecture::expect`](crate::arch::RunningArchitecture::expect): how many cells a thread that posts may own, and use without a lock: 0 if it
    /// uses none so, 1, or more; only which of the three matters here.
    const EXPECTS: u32 = 0;

    /// Its threads serve channels ([`crate::socket::channel`]).
    const CHANNELS: bool = false;

    /// Whether the calling thread is the cell's own.
    fn is_mine(&self) -> bool {
        false
    }

    /// Whether an active open by the calling thread prefers a flow of the cell.
    fn is_home(&self) -> bool {
        !Self::POLLED || self.is_mine()
    }

    /// Whether the calling thread uses the cell as the thread that polls: it has polled just now, and reading payload needs no clock.
    fn has_batch_time(&self) -> bool {
        false
    }

    /// The same for the thread that is in the cell.
    #[inline(always)]
    fn has_batch_time_inside(&self, _: &Cell<P>) -> bool {
        self.has_batch_time()
    }

    /// See [`RunningArchitecture::decisions`](crate::arch::RunningArchitecture::decisions).
    fn decisions(&self) -> Vec<GroupDecision> {
        Vec::new()
    }

    /// See [`RunningArchitecture::queue_claims`](crate::arch::RunningArchitecture::queue_claims).
    fn queue_claims(&self) -> Vec<QueueClaims> {
        Vec::new()
    }

    /// See [`RunningArchitecture::book`](crate::arch::RunningArchitecture::book).
    fn book(&self) -> Option<&Arc<Lock<Book, P>>> {
        None
    }

    /// Runs `f` in the cell now, on the calling thread, if that thread may use the cell. `None`: `f` was not called.
    fn enter<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R>;

    /// Runs `f` in the cell now, if the calling thread owns the cell already and is not in it: no other thread could enter it,
    /// nor take it away, before this thread gives it up. `None`: `f` was not called.
    #[inline(always)]
    fn enter_mine<R>(&self, _f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        None
    }

    /// [`Exclusion::enter`], for what no thread waits for: so many packets, or a timer that is due, which counts as one.
    #[inline(always)]
    fn enter_unawaited<R>(&self, hub: &Hub<P>, _packets: usize, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        self.enter(hub, f)
    }

    /// The same, for a look that changes nothing and is not counted.
    #[inline(always)]
    fn glance_at_mine<R>(&self, _f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        None
    }

    /// A user's thread is about to enter, and would have to sleep if it cannot: waits a few turns for a cell that is taken.
    #[inline(always)]
    fn await_turn(&self) {}

    /// [`Exclusion::enter`], to read the cell's counters: what is counted about its use leaves it out.
    fn look<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        self.enter(hub, f)
    }

    /// Whether the thread that posts an asynchronous event runs it, if it may enter.
    fn takes_arrivals(&self) -> bool {
        true
    }

    /// Queues a message for the thread that uses the cell. With `announce` that thread is woken now, otherwise at the
    /// end of the batch ([`Exclusion::announce`]) where the two differ.
    ///
    /// # Errors
    /// The queue is full; returns the message.
    fn send(&self, _hub: &Hub<P>, message: CellMessage<P>, _announce: bool) -> Result<(), CellMessage<P>> {
        debug_assert!(false, "a cell that never refuses is sent nothing");
        drop(message);
        Ok(())
    }

    /// The receive rings that are polled while a cell is in use; the same for all cells. `None`: receive threads take frames at any time.
    fn rings(&self) -> Option<&PolledRings<P>> {
        None
    }

    /// The cells that flows are bound to; the same for all cells. A flow that is not bound is bound to the cell of the thread that
    /// posts its event or opens its connection. `None`: the cell of a flow is that of its hash.
    fn bindings(&self) -> Option<&FlowBindings<P>> {
        None
    }

    /// Says which cells a tick has to look at; the same for all cells. `None`: at all of them.
    fn due(&self) -> Option<&DueCells<P>> {
        None
    }

    /// The deadline of the cell's timers as it was published ([`DueCells::publish`]).
    fn noted_deadline(&self) -> u64 {
        self.deadline()
    }

    /// Another receive thread owns the cell, and runs its timers.
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// Whether another thread uses the cell, or is about to: an arrival would be queued.
    fn is_in_use(&self, _hub: &Hub<P>) -> bool {
        false
    }

    /// Whether another thread uses the cell; if so, the cell has this ring in its list of those that are shut.
    fn shuts(&self, _hub: &Hub<P>, _ring: usize) -> bool {
        false
    }

    /// A new listener's replica is sent to this cell without waiting until it is there: a fault.
    fn replicates_without_waiting(&self) -> bool {
        false
    }

    /// The calling thread, which is in no cell, tells this one what concerns all of them. See [`OwnedCells::tell_all`].
    fn hear(&self, _hub: &Hub<P>) {}

    /// Wakes the thread that uses the cell, after the calling thread has sent messages without announcing them.
    fn announce(&self, _hub: &Hub<P>) {}

    /// See [`RunningArchitecture::owns_tables`](crate::arch::RunningArchitecture::owns_tables); the same for all cells.
    #[inline(always)]
    fn owns_tables(&self) -> bool {
        false
    }

    /// See [`RunningArchitecture::use_tables`](crate::arch::RunningArchitecture::use_tables).
    fn use_tables(&self, _hub: &Hub<P>, work: &mut dyn FnMut()) -> bool {
        work();
        true
    }

    /// Called before the calling thread sleeps for an answer: it does the cell's work if no other thread would.
    fn assist(&self, _hub: &Hub<P>) {}

    /// The calling thread, which owns the cell, waits at `slot` for another cell's answer: from now on the slot is
    /// interrupted when there is mail. `None`: it waits no more. Returns the slot of an earlier call, further up its stack.
    fn wait_at(&self, _slot: Option<Arc<dyn Interrupt>>) -> Option<Arc<dyn Interrupt>> {
        None
    }

    /// The calling thread, which owns the cell, runs the messages to the cell. True: there was something.
    fn read_mail(&self, _hub: &Hub<P>) -> bool {
        false
    }

    /// When [`Exclusion::tick`] next has something to do, in nanoseconds; `u64::MAX`: nothing is armed. May be early.
    fn deadline(&self) -> u64;

    /// [`Exclusion::deadline`], but of the cell's timers alone where they are known: other work makes it no earlier.
    fn timer_deadline(&self) -> u64 {
        self.deadline()
    }

    /// Runs due timers and, where the calling thread does the cell's work, the queued messages. True: the caller should
    /// go over all cells again.
    fn tick(&self, hub: &Hub<P>, now: Time) -> bool;

    /// Whether nothing that was sent waits to be run.
    fn is_quiescent(&self) -> bool {
        true
    }

    /// The calling receive thread stops: its cells pass to the next thread that ticks.
    fn retire(&self, _hub: &Hub<P>) {}

    /// At rest: runs `f` in the cell, ignoring queued messages. `None`: another thread uses the cell, and `f` was not
    /// called.
    fn seize<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        self.enter(hub, f)
    }

    /// At rest: takes the messages that have not been run.
    fn withdraw(&self) -> Vec<CellMessage<P>> {
        Vec::new()
    }

    /// The cell's own thread, until [`Exclusion::stop`].
    fn serve(&self, _hub: &Hub<P>) {}

    /// Ends the cell's own thread.
    fn stop(&self) {}

    /// After [`Exclusion::stop`], when that thread has ended: another one may [`serve`](Exclusion::serve).
    fn resume(&self) {}
}
