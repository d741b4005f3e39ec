//! Own the connection or leave the event in its backlog (Linux: `tcp_v4_rcv`, `lock_sock`, `release_sock`).
//!
//! # Model
//! The cell is a connection. A thread that finds it free owns it and runs its event, without any lock. A receive thread
//! that finds it in use leaves a segment, a timer or a notice of room in the device in the connection's bounded
//! backlog, and goes on: it never waits for a connection in use. The owner runs the events of the backlog, in order,
//! before it releases the connection. If the backlog is full the segment is dropped, and counted. A user's call owns
//! the connection while it runs; its caller sleeps until the connection is free.
//!
//! # What differs from Linux
//! There only a user's call owns a connection; a receive thread that finds another one at work spins for it, here it
//! leaves the segment too. Rare events (an ICMP error, a link that goes down, messages for a handler) wait like calls.
//! Connections are found in a table under one lock, as in [`msgp`], where Linux reads it under RCU.
//!
//! [`processor`] is the way of gVisor: what is left is not run by the owner, but by a thread of the architecture's.
//!
//! The ownership and the backlog are in [`place::pcb::backlog`](crate::place::pcb::backlog); all else is `msgp:1`. What
//! may never happen: an event in a backlog, and no thread that will run it.

use std::sync::Arc;

use sync::Platform;

use super::RunningArchitecture;
use super::declaration::{Declaration, Properties, TableRow, Variant};
use super::select::ThreadConfig;
use super::{msgp, processor};
use crate::place::pcb::LockPlan;
use crate::place::{Contents, Habits};
use crate::shared::Shared;
use crate::socket::HandlersRun;

/// The declaration of this architecture.
pub const DECLARATION: Declaration<LeftBehind> = Declaration {
    name: "backlog",
    options: "[:processor]",
    variants: &[
        Variant {
            name: "backlog",
            also: None,
            about: "any thread owns the connection, or leaves the segment in its backlog for the owner",
            parameter: LeftBehind::ForOwner,
        },
        Variant {
            name: "backlog:processor",
            also: None,
            about: "a segment waits in the connection's backlog for the processor of its CPU; calls own the connection",
            parameter: LeftBehind::ForProcessor,
        },
    ],
    unlisted: &[],
    default: 0,
    numbers: None,
    faults: &[],
    properties: PROPERTIES,
    exceptions: &[("backlog:processor", WITH_PROCESSORS)],
    rows: &[
        TableRow {
            names: "`backlog`",
            cell: "a connection",
            exclusive_use: "own it, or leave the segment in its bounded backlog, which the owner drains",
            thread: "caller or receive thread",
            table: "global, locked",
            order: "backlog",
        },
        TableRow {
            names: "`backlog:processor`",
            cell: "a connection",
            exclusive_use: "own it; a segment waits in its bounded backlog for a thread that never waits for the connection",
            thread: "segments: the pinned thread of a CPU; calls: the caller",
            table: "global, locked",
            order: "backlog; a connection is in the queue of its thread once",
        },
    ],
};

const PROPERTIES: Properties = Properties {
    single_thread: false,
    polling_thread_owns: false,
    has_locks: true,
    groups: false,
    own_threads: false,
    keeps_batches_together: true,
    handlers: HandlersRun::After,
    complexity: 4,
};

const WITH_PROCESSORS: Properties = Properties { own_threads: true, complexity: 5, ..PROPERTIES };

/// The thread that runs what is left in the backlog of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeftBehind {
    /// The owner, before it releases the connection (Linux).
    ForOwner,
    /// The processor of the connection (gVisor).
    ForProcessor,
}

/// A global table, and a backlog with a lock of the stack's kind for each connection.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    left: LeftBehind,
    thread_config: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    match left {
        LeftBehind::ForOwner => msgp::new(shared, (LockPlan::Backlog, Habits::PLAIN), thread_config, contents),
        LeftBehind::ForProcessor => processor::new(shared, thread_config, contents),
    }
}
