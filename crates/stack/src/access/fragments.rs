//! Fragments that wait for the rest of their packets.

use ip::{Datagram, Fragment, Reassembled, ReassemblyAccess, ReassemblyTable};
use observe::{Counters, Time};
use smallvec::SmallVec;
use sync::{ClaimLock, LockClass, LockKind, Platform};

use crate::control::Control;
use crate::deferred::DeferredEffects;
use crate::internet_deadline::InternetDeadline;

/// The table of fragments, as all threads share it.
pub(crate) struct SharedFragments<P: Platform> {
    table: ClaimLock<ReassemblyTable, P>,
}

/// The table for the length of an event. It records the event's effects: when there is work next, and the memory in use.
pub(crate) struct FragmentsInEvent<'a, P: Platform> {
    table: &'a ClaimLock<ReassemblyTable, P>,
    deadline: &'a InternetDeadline<P>,
    control: &'a Control<P>,
    deferred: &'a mut DeferredEffects<P>,
}

impl<P: Platform> Default for SharedFragments<P> {
    fn default() -> Self {
        SharedFragments { table: ClaimLock::new(LockKind::Blocking, LockClass::Neighbours, ReassemblyTable::new()) }
    }
}

impl<P: Platform> SharedFragments<P> {
    /// The calling thread uses the table without its lock from now on.
    pub(crate) fn claim(&self) {
        self.table.claim();
    }

    /// Ends the calling thread's claim, if it has one.
    pub(crate) fn release_claim(&self) {
        self.table.release_claim();
    }

    /// The table, for an event.
    pub(crate) fn within<'a>(
        &'a self,
        (deadline, control): (&'a InternetDeadline<P>, &'a Control<P>),
        deferred: &'a mut DeferredEffects<P>,
    ) -> FragmentsInEvent<'a, P> {
        FragmentsInEvent { table: &self.table, deadline, control, deferred }
    }
}

impl<P: Platform> FragmentsInEvent<'_, P> {
    fn change<R>(&mut self, change: impl FnOnce(&mut ReassemblyTable) -> R) -> R {
        let mut table = self.table.hold();
        let result = change(&mut table);
        self.deadline.note(table.next_deadline(), self.deferred);
        self.control.note_fragments(table.memory());
        result
    }
}

impl<P: Platform> ReassemblyAccess for FragmentsInEvent<'_, P> {
    fn insert(&mut self, now: Time, fragment: Fragment, counters: &Counters) -> Reassembled {
        self.change(|table| table.insert(now, fragment, counters))
    }

    fn timeouts(&mut self, now: Time, counters: &Counters) -> SmallVec<[Datagram; 2]> {
        self.change(|table| table.timeouts(now, counters))
    }
}
