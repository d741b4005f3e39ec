//! Own it or queue for it: Solaris' serialisation queues (FireEngine; `squeue.c`).
//!
//! # Model
//! A small lock guards the queue and nothing else; the *flag* is the ownership of the cell ([`ThreadOwned`](sync::ThreadOwned)), and
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
mod shard;

use std::sync::Arc;

use sync::{Platform, Writers};

use super::RunningArchitecture;
use super::cells::Cells;
use super::declaration::{Declaration, Properties, TableRow, Variant};
use super::polled_rings::PolledRings;
use super::select::ThreadConfig;
use crate::place::{Cell, Contents};
use crate::shared::Shared;
use crate::socket::HandlersRun;
use crate::table::flow_bindings::FlowBindings;
use shard::Squeue;

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

#[cfg(test)]
mod tests;
