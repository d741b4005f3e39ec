//! Flow groups that are shared or have a home, whichever costs less: ours.
//!
//! # A group
//! One exclusive cell is a *flow group*: the flows of one receive queue, or some of them. A group is
//! in one of two modes. *Shared*: any thread owns it for the time of an event ([`PolledCell`]), and a thread that finds it
//! taken queues the event and goes on; the thread that owned it runs what is queued, within a budget, and leaves the rest to a receive
//! thread. *At home* at one receive thread, which owns it all the time and needs neither a lock nor a read-modify-write to use
//! it; all others queue for it.
//!
//! A group starts shared, or at home where that is known ([`number`]). Its place is one word. A receive thread takes over the groups that are at home there, and gives up the others, in its
//! tick alone; so a change of the word needs no agreement, and what is queued meanwhile is run by the thread that gives up, or by
//! the next that owns the group.
//!
//! # What it decides
//! Each group counts entries, hand-offs and queue lengths in windows of entries, and the thread that ends one judges ([`policy`]): a group
//! goes home to the receive thread that makes its calls; becomes shared where other threads have many; and is moved from
//! a receive thread that never sleeps to one that does ([`load`]). Each change is on trial for a window and is undone if it made things worse. All
//! of them are in a log, with the counts that led to them ([`decisions`]). A receive thread where all groups that arrive there are at home claims its transmit
//! queues ([`queues`]).
//!
//! # What may never happen
//! Two owners; a message in a group that no thread owns or will look at; an event that overtakes an earlier one of the same
//! thread: a thread that could have the group queues behind what waits there.
//!
//! # Their number
//! There is one for each receive thread at first and where all are at home, and there are more where they are shared ([`number`]). For that the
//! architecture is built again from its contents, in a driver's turn, as when a stack is switched to another one
//! (`exchange.rs`). Claims and the log go on.

pub mod decisions;
mod group;
pub mod load;
pub mod number;
pub mod policy;
pub mod queues;

use std::sync::Arc;

use observe::Time;
use sync::{Lock, LockClass, LockKind, Platform};

use super::RunningArchitecture;
use super::cells::Cells;
use super::declaration::{Declaration, Properties, TableRow, Variant};
use super::due_cells::DueCells;
use super::mailbox::Mailbox;
use super::polled::PolledCell;
use super::select::ThreadConfig;
use crate::place::{Cell, Contents};
use crate::shared::{Shared, boxed};
use crate::socket::HandlersRun;
use decisions::DecisionLog;
use group::FlowGroup;
use load::Loads;
use number::{NEVER, NumberOfGroups};
use policy::{Book, Lengths};
use queues::QueueUse;

const LENGTHS: Lengths = Lengths { first: 64, longest: 1024, period: 32_768, alone: 16, mail: 32, settled: 256 };

/// The declaration of this architecture.
pub const DECLARATION: Declaration<Lengths> = Declaration {
    name: "adaptive",
    options: "",
    variants: &[Variant {
        name: "adaptive",
        also: None,
        about: "flow groups, shared or at home at a receive thread, whichever costs less",
        parameter: LENGTHS,
    }],
    // For tests and models: groups that change hands all the time, and groups the number of which never changes.
    unlisted: &[
        Variant {
            name: "adaptive:eager",
            also: None,
            about: "the same, decided after a few events",
            parameter: Lengths { first: 2, longest: 4, period: 16, alone: 1, mail: 1, settled: 8 },
        },
        Variant {
            name: "adaptive:16",
            also: None,
            about: "the same, always with 16 groups for each receive thread",
            parameter: Lengths { settled: NEVER, ..LENGTHS },
        },
    ],
    default: 0,
    numbers: None,
    faults: &[],
    properties: Properties {
        single_thread: false,
        polling_thread_owns: false,
        has_locks: true,
        groups: false,
        own_threads: false,
        keeps_batches_together: true,
        handlers: HandlersRun::Inside,
        complexity: 5,
    },
    exceptions: &[],
    rows: &[TableRow {
        names: "`adaptive`",
        cell: "a flow group",
        exclusive_use: "own it or queue for it, or nothing: its home owns it and others queue",
        thread: "caller or receive thread; or the receive thread that is its home",
        table: "private, listeners replicated",
        order: "queue",
    }],
};

/// Shared groups, so many for each receive thread as the contents' decisions ask for.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    lengths: Lengths,
    _: ThreadConfig,
    mut contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let (slab, threads) = (contents.slab.clone(), shared.links().alarms().threads());
    let book =
        contents.kept.take().and_then(|kept| kept.downcast().ok()).unwrap_or_else(|| first_book(threads, &lengths));
    let mut begun = book.lock();
    let (at_home, groups) = (begun.number.begins_at_home(), begun.begin(threads, lengths.period, shared.clock().now()));
    drop(begun);
    let due = Arc::new(DueCells::new(threads, groups));
    Arc::new(Cells::of_boxes(shared, groups, false, contents, |index| {
        let group = FlowGroup::new(shared.clone(), index, (lengths, at_home), due.clone(), book.clone());
        let mailbox = Mailbox::list(shared.lock_kind_between_threads());
        let cell = boxed(|| Cell::of_threads(shared, &slab, (groups, threads)));
        boxed(move || PolledCell::new(group, *cell, mailbox))
    }))
}

/// The book of a stack that has decided nothing.
fn first_book<P: Platform>(threads: usize, lengths: &Lengths) -> Arc<Lock<Book, P>> {
    let queues = (0..threads.max(1)).map(QueueUse::of).collect();
    let loads = Loads::new((threads, 0), lengths.period, Time::from_nanos(0));
    let book = Book { loads, log: DecisionLog::default(), queues, number: NumberOfGroups::new(lengths.settled) };
    Arc::new(Lock::new(LockKind::Blocking, LockClass::Decisions, book))
}
