//! What waits for a shard.

use std::collections::VecDeque;

use dev::BitSet;
use sync::Platform;

use crate::handoff::CellMessage;
use crate::upcalls::Upcalls;

/// What the lock of a shard guards.
pub(super) struct EventQueue<P: Platform> {
    /// Events that no thread has run yet.
    pub events: VecDeque<CellMessage<P>>,
    /// Receive rings that are shut until the shard is given up.
    pub shut: BitSet,
    /// The upcalls to users that the drained events caused.
    pub upcalls: Upcalls<P>,
    /// A thread tells users, without the flag.
    pub tells: bool,
}

impl<P: Platform> EventQueue<P> {
    /// Nothing waits.
    pub(super) fn new() -> Self {
        EventQueue { events: VecDeque::new(), shut: BitSet::new(), upcalls: Upcalls::default(), tells: false }
    }

    /// What the calling thread tells users from now on. `None`: there is nothing, or another thread tells, or this one further
    /// up its stack.
    pub(super) fn begin_notifying(&mut self) -> Option<Upcalls<P>> {
        let begins = !self.tells && !self.upcalls.is_empty();
        self.tells |= begins;
        begins.then(|| std::mem::take(&mut self.upcalls))
    }

    /// Whether upcalls that the events caused have not been run.
    pub(super) fn has_upcalls(&self) -> bool {
        self.tells || !self.upcalls.is_empty()
    }

    /// Nothing waits to be run or to be told.
    pub(super) fn is_idle(&self) -> bool {
        self.events.is_empty() && !self.has_upcalls()
    }

    /// Puts events that were taken and not run in front of the others again.
    pub(super) fn put_back(&mut self, taken: &mut VecDeque<CellMessage<P>>) {
        while let Some(message) = taken.pop_back() {
            self.events.push_front(message);
        }
    }
}
