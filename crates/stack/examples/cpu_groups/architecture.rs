//! `cpu-groups`: connections in as many groups as there are CPUs, one lock each.
//!
//! An architecture outside the crate `stack`, as a program of yours can have one: it uses public items only. A cell is a
//! group of connections, a thread gets exclusive use of it by the group's lock, and the thread that brings an event runs
//! it. It is what ConnP-L was before Willmann, Rixner and Cox found that more groups than CPUs are better, and stands
//! between `giant` and `connp-l`.

use std::sync::Arc;

use observe::Time;
use stack::arch::RunningArchitecture;
use stack::arch::cells::{Cells, Exclusion, Hub};
use stack::arch::declaration::{Declaration, Properties, TableRow, ThreadConfig, Variant};
use stack::connections::Upkeep;
use stack::deferred::DeferredEffects;
use stack::place::{Cell, Contents};
use stack::shared::Shared;
use stack::socket::HandlersRun;
use sync::{Atomic, Lock, LockClass, Ordering, Platform, Writers};

/// The declaration of this architecture.
pub static DECLARATION: Declaration<()> = Declaration {
    name: "cpu-groups",
    options: "",
    variants: &[Variant {
        name: "cpu-groups",
        also: None,
        about: "a group of connections for each CPU, one lock each",
        parameter: (),
    }],
    unlisted: &[],
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
        complexity: 2,
    },
    exceptions: &[],
    rows: &[TableRow {
        names: "`cpu-groups`",
        cell: "a group of connections, as many as CPUs",
        exclusive_use: "the group's lock",
        thread: "caller or receive thread",
        table: "one per group",
        order: "lock",
    }],
};

struct Group<P: Platform> {
    cell: Lock<Cell<P>, P>,
    /// When a timer of the group is due, in nanoseconds; written under the lock, read without.
    deadline: P::AtomicU64,
}

/// The constructor.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    (): (),
    ThreadConfig { cpus, .. }: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let slab = contents.slab.clone();
    Arc::new(Cells::new(shared, cpus, false, contents, |_| Group {
        cell: Lock::new(shared.lock_kind(), LockClass::Group, Cell::new(shared, &slab, Writers::Many)),
        deadline: P::AtomicU64::new(u64::MAX),
    }))
}

impl<P: Platform> Exclusion<P> for Group<P> {
    fn enter<R>(&self, _: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let mut cell = self.cell.lock();
        let result = f(&mut cell);
        self.deadline.store(cell.deadline_nanos(), Ordering::Relaxed);
        Some(result)
    }

    fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    fn tick(&self, hub: &Hub<P>, now: Time) -> bool {
        if self.deadline() <= now.as_nanos() {
            let mut deferred = DeferredEffects::default();
            self.enter(hub, |cell| cell.timers(now, &mut deferred));
            // After the lock: what is woken may call.
            deferred.flush(hub.shared.links());
        }
        false
    }
}
