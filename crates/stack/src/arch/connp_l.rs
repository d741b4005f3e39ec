//! Connections in groups, one lock each (Willmann, Rixner, Cox 2006, section 3.2.2: ConnP-L).
//!
//! Every entry into the stack classifies, takes exactly one group lock, does everything and releases it. Listeners are
//! replicated into every group, in index order, one lock at a time. A group's next deadline is kept beside its lock, so
//! that a tick takes no lock where nothing is due.

use std::sync::Arc;

use observe::Time;
use sync::{Atomic, Lock, LockClass, Ordering, Platform, Writers};

use super::RunningArchitecture;
use super::cells::{Cells, Exclusion, Hub};
use super::declaration::{Declaration, NumericOption, Properties, TableRow, Variant};
use super::select::ThreadConfig;
use crate::connections::Upkeep;
use crate::deferred::DeferredEffects;
use crate::place::{Cell, Contents};
use crate::shared::Shared;
use crate::socket::HandlersRun;

const ABOUT: &str = "groups of connections, one lock each";

/// The declaration of this architecture.
pub const DECLARATION: Declaration<usize> = Declaration {
    name: "connp-l",
    options: "[:1..1024]",
    variants: &[
        Variant { name: "connp-l:4", also: None, about: ABOUT, parameter: 4 },
        Variant { name: "connp-l:128", also: None, about: ABOUT, parameter: 128 },
        Variant { name: "connp-l:1024", also: None, about: ABOUT, parameter: 1024 },
    ],
    unlisted: &[],
    // The paper's best, ConnP-L(128).
    default: 1,
    numbers: Some(NumericOption { unit: "groups", least: 1, most: 1024, parameter: usize::from }),
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
    rows: &[TableRow {
        names: "`connp-l:G`",
        cell: "a group of connections",
        exclusive_use: "the group's lock",
        thread: "caller or receive thread",
        table: "one per group",
        order: "lock",
    }],
};

struct Group<P: Platform> {
    cell: Lock<Cell<P>, P>,
    /// In nanoseconds; `u64::MAX` when nothing is armed. Written under the lock, read without.
    deadline: P::AtomicU64,
}

/// `groups` (at least 1) cells, each behind a lock of the stack's kind.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    groups: usize,
    _: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let slab = contents.slab.clone();
    Arc::new(Cells::new(shared, groups, false, contents, |_| Group {
        cell: Lock::new(shared.lock_kind, LockClass::Group, Cell::new(shared, &slab, Writers::Many)),
        deadline: P::AtomicU64::new(u64::MAX),
    }))
}

impl<P: Platform> Group<P> {
    #[inline(never)]
    fn run_timers(&self, hub: &Hub<P>, now: Time) {
        let mut deferred = DeferredEffects::default();
        self.enter(hub, |cell| cell.timers(now, &mut deferred));
        deferred.flush(hub.shared.links());
    }
}

impl<P: Platform> Exclusion<P> for Group<P> {
    #[inline(always)]
    fn enter<R>(&self, _: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let mut cell = self.cell.lock();
        sync::walk::note(file!(), "holds the flow's group");
        let result = f(&mut cell);
        let deadline = cell.deadline_nanos();
        if self.deadline.load(Ordering::Relaxed) != deadline {
            self.deadline.store(deadline, Ordering::Relaxed);
        }
        Some(result)
    }

    #[inline]
    fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn tick(&self, hub: &Hub<P>, now: Time) -> bool {
        if self.deadline() <= now.as_nanos() {
            self.run_timers(hub, now);
        }
        false
    }
}
