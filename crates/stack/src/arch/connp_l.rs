//! Connections in groups, one lock each (Willmann, Rixner, Cox 2006, section 3.2.2: ConnP-L).
//!
//! Every entry into the stack classifies, takes exactly one group lock, does everything and releases it. Listeners are
//! replicated into every group, in index order, one lock at a time. A group's next deadline is kept beside its lock, so
//! that a tick takes no lock where nothing is due.
//!
//! With the fault `+lazy-broadcast` a timer takes the lock of every group in turn ([`lazy_broadcast`](super::lazy_broadcast)).

use std::sync::Arc;

use observe::Time;
use sync::{Atomic, Lock, LockClass, Ordering, Platform};

use super::RunningArchitecture;
use super::cells::{Cells, Exclusion, Hub};
use super::declaration::{Declaration, NamedFault, NumericOption, Properties, TableRow, Variant};
use super::due_cells::DueCells;
use super::lazy_broadcast::{Broadcast, BroadcastPart, Groups};
use super::select::ThreadConfig;
use crate::connections::Upkeep;
use crate::deferred::DeferredEffects;
use crate::place::{Cell, Contents};
use crate::shared::Shared;
use crate::socket::HandlersRun;

const ABOUT: &str = "groups of connections, one lock each";

/// The declaration of this architecture.
pub const DECLARATION: Declaration<Groups> = Declaration {
    name: "connp-l",
    options: "[:1..1024]",
    variants: &[
        Variant { name: "connp-l:4", also: None, about: ABOUT, parameter: Groups::new(4) },
        Variant { name: "connp-l:128", also: None, about: ABOUT, parameter: Groups::new(128) },
        Variant { name: "connp-l:1024", also: None, about: ABOUT, parameter: Groups::new(1024) },
    ],
    unlisted: &[],
    // The paper's best, ConnP-L(128).
    default: 1,
    numbers: Some(NumericOption { unit: "groups", least: 1, most: 1024, parameter: Groups::new }),
    faults: &[NamedFault {
        name: "lazy-broadcast",
        about: "a timer tells every group of changes among half-open connections (Willmann et al.)",
        with: |groups| Groups { lazy_broadcast: true, ..groups },
    }],
    properties: Properties {
        single_thread: false,
        polling_thread_owns: false,
        has_locks: true,
        groups: true,
        own_threads: false,
        keeps_batches_together: true,
        handlers: HandlersRun::Inside,
        complexity: 2,
    },
    exceptions: &[],
    rows: &[
        TableRow {
            names: "`connp-l:G`",
            cell: "a group of connections",
            exclusive_use: "the group's lock",
            thread: "caller or receive thread",
            table: "one per group",
            order: "lock",
        },
        TableRow {
            names: "`connp-l:G+lazy-broadcast`",
            cell: "the same",
            exclusive_use: "the same; after changes among half-open connections a timer takes every group's lock in turn (a fault of the paper's kernel)",
            thread: "the same",
            table: "the same",
            order: "lock",
        },
    ],
};

struct Group<P: Platform> {
    cell: Lock<Cell<P>, P>,
    /// In nanoseconds; `u64::MAX` when nothing is armed. Written under the lock, read without.
    deadline: P::AtomicU64,
    due: Arc<DueCells<P>>,
    broadcast: Option<Box<BroadcastPart<P>>>,
}

/// `count` (at least 1) cells, each behind a lock of the stack's kind.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    Groups { count, lazy_broadcast }: Groups,
    _: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let slab = contents.slab.clone();
    let broadcast = lazy_broadcast.then(Broadcast::new);
    let (due, threads) = (Arc::new(DueCells::new(0, count.into())), shared.links().alarms().threads());
    Arc::new(Cells::new(shared, count.into(), false, contents, |_| {
        let cell = Cell::of_threads(shared, &slab, (count.into(), threads));
        Group {
            cell: Lock::new(shared.lock_kind, LockClass::Group, cell),
            deadline: P::AtomicU64::new(u64::MAX),
            due: due.clone(),
            broadcast: broadcast.as_ref().map(Broadcast::part),
        }
    }))
}

impl<P: Platform> Exclusion<P> for Group<P> {
    const RUNS: bool = true;

    #[inline(always)]
    fn enter<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let mut cell = self.cell.lock();
        sync::walk::note(file!(), "holds the flow's group");
        let result = f(&mut cell);
        let mut deadline = cell.deadline_nanos();
        if let Some(part) = &self.broadcast {
            deadline = deadline.min(part.note(cell.half_open(), || hub.shared.clock().now()));
        }
        self.due.publish(&self.deadline, deadline);
        Some(result)
    }

    fn due(&self) -> Option<&DueCells<P>> {
        Some(&self.due)
    }

    #[inline]
    fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    fn tick(&self, hub: &Hub<P>, now: Time) -> bool {
        let mut deferred = DeferredEffects::default();
        self.enter(hub, |cell| cell.timers(now, &mut deferred));
        deferred.flush(hub.shared.links());
        if self.broadcast.as_ref().is_some_and(|part| part.takes_the_turn(now)) {
            hub.cells.upgrade().iter().for_each(|cells| cells.tell_all());
        }
        false
    }

    #[cold]
    fn hear(&self, hub: &Hub<P>) {
        let Some(part) = &self.broadcast else { return };
        self.enter(hub, |_| {
            sync::walk::note(file!(), "is notified of the half-open connections of all groups");
            part.hear();
        });
    }
}
