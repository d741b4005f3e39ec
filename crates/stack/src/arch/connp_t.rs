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
//! A thread that waits for another owner's answer, in a user's code, runs the messages to its own cell meanwhile (`connp_t/rounds.rs`).
//!
//! With the fault `+async-wildcard` an arrival passes a new listener's replica in the queue ([`async_wildcard`](super::async_wildcard)).

mod owner;
mod rounds;

use std::sync::Arc;

use sync::{Atomic, Platform, ThreadOwned, Writers};

use self::owner::OwnerThread;
use self::rounds::OwnerState;
use super::RunningArchitecture;
use super::cells::{Cells, Exclusion};
use super::declaration::{Declaration, NamedFault, Properties, TableRow, Variant};
use super::lwkt;
use super::mailbox::Mailbox;
use super::select::ThreadConfig;
use crate::handoff::OwnerWait;
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
    // A constructor with the cell, some kilobytes, as an argument would copy it once more on the stack of a thread that may have
    // 32 KiB.
    Cells::new(shared, cpus, own_threads, contents, |_| OwnerThread {
        owned: ThreadOwned::new(OwnerState::new(Cell::new(shared, &slab, Writers::Many))),
        mailbox: match queue {
            QueueKind::Mutex => Mailbox::list(shared.lock_kind_between_threads()),
            QueueKind::Ring | QueueKind::Core => Mailbox::ring(),
        },
        wait: OwnerWait::default(),
        deadline: P::AtomicU64::new(u64::MAX),
        stop: P::AtomicBool::new(false),
        async_wildcard,
    })
}
