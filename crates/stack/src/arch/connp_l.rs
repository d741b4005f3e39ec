//! Connections in groups, one lock each (Willmann, Rixner, Cox 2006, section 3.2.2: ConnP-L).
//!
//! | cell | exclusive use by | thread | table | order |
//! |---|---|---|---|---|
//! | a group of connections | the group's lock | caller or receive thread | one per group | lock |
//!
//! Every entry into the stack classifies, takes exactly one group lock, does everything and lets go. Listeners are
//! replicated into every group, in index order, one lock at a time. A group's next deadline is kept beside its lock, so
//! that a tick takes no lock where nothing is due.

use std::sync::Arc;

use observe::Time;
use sync::{Atomic, CachePadded, Lock, LockClass, Ordering, Platform};

use super::{Architecture, Census};
use crate::after::After;
use crate::call::{Call, Control, Ingress, Reply};
use crate::connections::{Arrivals, Calls, Upkeep};
use crate::flow::{self, Target};
use crate::place::Cell;
use crate::shared::Shared;

/// The architecture `connp-l`.
pub struct ConnPL<P: Platform> {
    shared: Arc<Shared<P>>,
    groups: Box<[CachePadded<Group<P>>]>,
}

struct Group<P: Platform> {
    cell: Lock<Cell<P>, P>,
    /// In nanoseconds; `u64::MAX` when nothing is armed. Written under the lock, read without.
    deadline: P::AtomicU64,
}

impl<P: Platform> ConnPL<P> {
    /// `groups` (at least 1) cells, each behind a lock of the stack's kind.
    pub fn new(shared: &Arc<Shared<P>>, groups: usize) -> Self {
        let group = |_| {
            CachePadded::new(Group {
                cell: Lock::new(shared.lock_kind, LockClass::Group, Cell::new(shared)),
                deadline: P::AtomicU64::new(u64::MAX),
            })
        };
        ConnPL { shared: shared.clone(), groups: (0..groups.max(1)).map(group).collect() }
    }

    /// Runs `f` under the lock of one group.
    #[inline]
    fn enter<R>(&self, group: usize, f: impl FnOnce(&mut Cell<P>) -> R) -> R {
        let group = &self.groups[group];
        let mut cell = group.cell.lock();
        sync::walk::note(file!(), "holds the flow's group");
        let result = f(&mut cell);
        let deadline = cell.deadline_nanos();
        if group.deadline.load(Ordering::Relaxed) != deadline {
            group.deadline.store(deadline, Ordering::Relaxed);
        }
        result
    }

    fn hold<R>(&self, group: usize, f: impl FnOnce(&mut Cell<P>, &mut After<P>) -> R) -> R {
        let mut after = After::default();
        let result = self.enter(group, |cell| f(cell, &mut after));
        after.perform(&self.shared);
        if after.is_plain() {
            std::mem::forget(after);
        }
        result
    }
}

impl<P: Platform> Architecture<P> for ConnPL<P> {
    #[inline]
    fn post(&self, ingress: &mut Ingress, now: Time, after: &mut After<P>) {
        let group = flow::index(ingress.hash(), self.groups.len());
        self.enter(group, |cell| cell.ingress(ingress, now, after));
    }

    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        let now = self.shared.clock.now();
        self.hold(target.index(self.groups.len()), |cell, after| cell.call(target, call, now, after, reply));
    }

    fn control(&self, change: Control<P>) {
        let now = self.shared.clock.now();
        for group in 0..self.groups.len() {
            self.hold(group, |cell, after| cell.control(change.clone(), now, after));
        }
    }

    fn tick(&self, now: Time) {
        for (index, group) in self.groups.iter().enumerate() {
            if group.deadline.load(Ordering::Relaxed) <= now.as_nanos() {
                self.hold(index, |cell, after| cell.timers(now, after));
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let earliest = self.groups.iter().map(|group| group.deadline.load(Ordering::Relaxed)).min()?;
        (earliest != u64::MAX).then(|| Time::from_nanos(earliest))
    }

    fn is_quiescent(&self) -> bool {
        true
    }

    fn census(&self) -> Census {
        let mut sum = Census::default();
        for group in &self.groups {
            sum.add(&group.cell.lock().census());
        }
        sum
    }
}
