//! Connections served by protocol threads (Willmann, Rixner, Cox 2006, section 3.2.1: ConnP-T; DragonFly BSD).
//!
//! # Model
//! N protocol threads, each with its own cell that no other thread ever touches. Receive threads send segments without
//! waiting; callers send requests and wait until they are answered, except for the data of a stream, which goes over a
//! channel ([`crate::socket::channel`]) as in DragonFly's asynchronous sends. A thread runs a request to itself at once, because
//! a synchronous message to itself would never be answered.
//!
//! # Two kinds of queue
//! [`QueueKind::Mutex`] is the paper's. [`QueueKind::Ring`] is the question that the papers left open: lock-free rings.
//! Both are [`Mailbox`]es: a protocol thread is woken once for a receive batch, and only if it sleeps. A thread that waits
//! for messages, and a caller that waits for its answer, give up their processor some times before they sleep, so that
//! under load neither sleeps.
//!
//! With the fault `+async-wildcard` an arrival passes a new listener's replica in the queue ([`async_wildcard`](super::async_wildcard)).

use std::collections::VecDeque;
use std::sync::Arc;

use observe::Time;
use sync::{Atomic, Ordering, Platform, ThreadOwned, Writers};

use super::RunningArchitecture;
use super::async_wildcard::let_an_arrival_pass;
use super::cells::{Cells, Exclusion, Hub};
use super::declaration::{Declaration, NamedFault, Properties, TableRow, Variant};
use super::lwkt;
use super::mailbox::Mailbox;
use super::select::ThreadConfig;
use crate::connections::Upkeep;
use crate::deferred::{DeferredEffects, OwedEffects};
use crate::handoff::{CellMessage, PendingReply};
use crate::place::{Cell, Contents};
use crate::shared::Shared;
use crate::socket::HandlersRun;

/// Messages that a thread runs before it checks its timers again (DragonFly: 512).
pub(super) const ROUND: usize = 512;

/// The declaration of this architecture.
pub const DECLARATION: Declaration<Owners> = Declaration {
    name: "connp-t",
    options: "[:mutex|spsc|lwkt]",
    variants: &[
        Variant {
            name: "connp-t",
            also: Some("connp-t:mutex"),
            about: "protocol threads own connections; mutex and condition variable",
            parameter: Owners::waiting(QueueKind::Mutex),
        },
        Variant {
            name: "connp-t:spsc",
            also: None,
            about: "protocol threads own connections; lock-free rings",
            parameter: Owners::waiting(QueueKind::Ring),
        },
        Variant {
            name: "connp-t:lwkt",
            also: None,
            about: "the protocol thread is a second stack of the core's own thread, and its queue has no lock",
            parameter: Owners::waiting(QueueKind::Core),
        },
    ],
    unlisted: &[],
    default: 0,
    numbers: None,
    faults: &[NamedFault {
        name: "async-wildcard",
        about: "listen() returns before every protocol thread knows the listener (DragonFly)",
        with: |owners| Owners { async_wildcard: true, ..owners },
    }],
    properties: Properties {
        single_thread: false,
        polling_thread_owns: false,
        has_locks: false,
        groups: false,
        own_threads: true,
        keeps_batches_together: true,
        handlers: HandlersRun::Inside,
        complexity: 5,
    },
    exceptions: &[("connp-t:lwkt", lwkt::PROPERTIES)],
    rows: &[
        TableRow {
            names: "`connp-t`",
            cell: "a shard",
            exclusive_use: "message to the owner: mutex and condition variable; a stream's data over a channel, other calls with a synchronous reply",
            thread: "pinned protocol threads",
            table: "private, listeners replicated",
            order: "queue",
        },
        TableRow {
            names: "`connp-t:spsc`",
            cell: "a shard",
            exclusive_use: "the same, lock-free rings",
            thread: "the same",
            table: "the same",
            order: "queue",
        },
        TableRow {
            names: "`connp-t:lwkt`",
            cell: "the flows of one receive thread",
            exclusive_use: "message to the protocol thread: on its core an entry of a plain queue and a switch of stacks, from elsewhere a ring and a wake-up",
            thread: "the protocol thread, a coroutine of the receive thread",
            table: "private, listeners replicated; local ports chosen so that replies arrive at the same core",
            order: "queue",
        },
        TableRow {
            names: "`connp-t..+async-wildcard`",
            cell: "a shard",
            exclusive_use: "the same; `listen()` waits for one thread's replica only, and arrivals may be run before another's (a fault of DragonFly)",
            thread: "the same",
            table: "the same",
            order: "queue",
        },
    ],
};

/// How messages reach a protocol thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueKind {
    /// A list under a mutex, with a condition variable.
    Mutex,
    /// A lock-free ring.
    Ring,
    /// A queue without a lock, of the one thread that carries the protocol thread; a ring for other threads ([`lwkt`]).
    Core,
}

/// The protocol threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owners {
    /// How messages reach them.
    pub queue: QueueKind,
    /// See [`async_wildcard`](super::async_wildcard).
    pub async_wildcard: bool,
}

impl Owners {
    /// Without a fault: every change of replicas is waited for.
    pub const fn waiting(queue: QueueKind) -> Owners {
        Owners { queue, async_wildcard: false }
    }
}

/// One protocol thread's cell and the way to it.
struct OwnerThread<P: Platform> {
    cell: ThreadOwned<Cell<P>, P>,
    mailbox: Mailbox<P>,
    deadline: P::AtomicU64,
    stop: P::AtomicBool,
    /// See [`Owners`].
    async_wildcard: bool,
}

/// One protocol thread for each CPU; or as many cells, with the ticking thread doing their work.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    owners: Owners,
    threads: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    match owners.queue {
        QueueKind::Core => lwkt::new(shared, owners.async_wildcard, contents),
        QueueKind::Mutex | QueueKind::Ring => Arc::new(cells(shared, owners, threads, contents)),
    }
}

/// The cells alone, as [`new`] has them.
pub(super) fn cells<P: Platform>(
    shared: &Arc<Shared<P>>,
    Owners { queue, async_wildcard }: Owners,
    ThreadConfig { cpus, own_threads }: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Cells<P, impl Exclusion<P> + use<P>> {
    let slab = contents.slab.clone();
    Cells::new(shared, cpus, own_threads, contents, |_| OwnerThread {
        cell: ThreadOwned::new(Cell::new(shared, &slab, Writers::Many)),
        mailbox: match queue {
            QueueKind::Mutex => Mailbox::list(shared.lock_kind_between_threads()),
            QueueKind::Ring | QueueKind::Core => Mailbox::ring(),
        },
        deadline: P::AtomicU64::new(u64::MAX),
        stop: P::AtomicBool::new(false),
        async_wildcard,
    })
}

impl<P: Platform> OwnerThread<P> {
    /// Runs queued messages and due timers; the calling thread owns the cell. False: there were none.
    fn round(&self, hub: &Hub<P>, now: Time, batch: &mut VecDeque<CellMessage<P>>) -> bool {
        if batch.is_empty() {
            self.mailbox.take(batch, ROUND);
        }
        let mut taken = self.mailbox.taken();
        loop {
            let mut owed = OwedEffects::new(hub.shared.links());
            let answer =
                self.cell.with(|cell| self.run_until_answer(cell, now, batch, &mut taken.count, &mut owed.deferred));
            debug_assert!(answer.is_ok(), "only the owner runs its rounds");
            drop(owed);
            match answer.ok().flatten() {
                Some(answer) => answer.give(),
                None => return taken.count != 0,
            }
        }
    }

    /// Runs messages up to the first that a caller waits for, or all of them and then due timers. The cell is released,
    /// and the effects are performed, before that caller is answered: it may call at once, on this thread too.
    fn run_until_answer(
        &self,
        cell: &mut Cell<P>,
        now: Time,
        batch: &mut VecDeque<CellMessage<P>>,
        count: &mut usize,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<PendingReply<P>> {
        while let Some(mut message) = batch.pop_front() {
            if self.async_wildcard {
                let_an_arrival_pass(&mut message, batch);
            }
            *count += 1;
            sync::walk::note(file!(), "the protocol thread takes the message");
            let answer = message.run(cell, now, deferred);
            if answer.is_some() {
                cell.serve_channels(now, deferred);
                return answer;
            }
        }
        cell.serve_channels(now, deferred);
        // Compares with the bound that drivers read: after a cancelled timer it is too early until timers run.
        if cell.deadline_nanos() <= now.as_nanos() {
            cell.timers(now, deferred);
        }
        self.deadline.store(cell.deadline_nanos(), Ordering::Relaxed);
        None
    }
}

impl<P: Platform> Exclusion<P> for OwnerThread<P> {
    const THREAD: &'static str = "heddle-pt";
    const RUNS_TIMERS: bool = true;
    const CHANNELS: bool = true;

    #[inline]
    fn enter<R>(&self, _: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let mut cell = self.cell.borrow_mine()?;
        let result = f(&mut cell);
        self.deadline.store(cell.deadline_nanos(), Ordering::Relaxed);
        Some(result)
    }

    fn seize<R>(&self, _: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let result = self.cell.with(|cell| {
            let result = f(cell);
            self.deadline.store(cell.deadline_nanos(), Ordering::Relaxed);
            result
        });
        let result = result.ok()?;
        // For the thread that will own it.
        let _ = self.cell.release();
        Some(result)
    }

    fn withdraw(&self) -> Vec<CellMessage<P>> {
        self.mailbox.withdraw()
    }

    fn takes_arrivals(&self) -> bool {
        false
    }

    fn is_mine(&self) -> bool {
        self.cell.owner() == Some(P::thread_index())
    }

    #[inline]
    fn send(&self, _: &Hub<P>, message: CellMessage<P>, announce: bool) -> Result<(), CellMessage<P>> {
        sync::walk::note(file!(), "sends a message to the protocol thread that owns the flow");
        self.mailbox.send(message, announce)
    }

    fn announce(&self, _: &Hub<P>) {
        self.mailbox.announce();
    }

    fn replicates_without_waiting(&self) -> bool {
        self.async_wildcard
    }

    fn assist(&self, hub: &Hub<P>) {
        if !hub.own_threads && self.cell.bind_here().is_ok() {
            // Only this cell: another may be in the middle of a round, further up this thread's stack.
            let mut batch = VecDeque::new();
            while self.round(hub, hub.shared.clock().now(), &mut batch) {}
        }
    }

    fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    fn tick(&self, hub: &Hub<P>, now: Time) -> bool {
        self.cell.bind_here().is_ok() && self.round(hub, now, &mut VecDeque::new())
    }

    fn is_quiescent(&self) -> bool {
        self.mailbox.pending() == 0
    }

    fn retire(&self, hub: &Hub<P>) {
        if !hub.own_threads {
            // Refused where the calling thread does not do this owner's work.
            let _ = self.cell.release();
        }
    }

    /// The loop of a protocol thread: messages in order, then timers, then sleep.
    fn serve(&self, hub: &Hub<P>) {
        let bound = self.cell.bind_here();
        debug_assert!(bound.is_ok(), "a protocol thread's cell is its own");
        let mut batch = VecDeque::new();
        let shared = &hub.shared;
        // It runs the messages that it has taken.
        while !self.stop.load(Ordering::Acquire) || !batch.is_empty() {
            let round = shared.failures.survive(&shared.counters, || self.round(hub, shared.clock().now(), &mut batch));
            // The messages left in the batch after a panic run in the next round.
            if round == Some(false) {
                let deadline = self.deadline();
                let nap = (deadline != u64::MAX).then(|| Time::from_nanos(deadline) - shared.clock().now());
                self.mailbox.wait(&self.stop, nap);
            }
        }
        let _ = self.cell.release();
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.mailbox.wake();
    }

    fn resume(&self) {
        self.stop.store(false, Ordering::Release);
    }
}
