//! What waits for a shard.

use std::collections::VecDeque;

use dev::BitSet;
use sync::Platform;

use crate::handoff::CellMessage;

/// What the lock of a shard guards.
pub(super) struct EventQueue<P: Platform> {
    /// Events that no thread has run yet.
    pub events: VecDeque<CellMessage<P>>,
    /// Receive rings that are shut until the shard is given up.
    pub shut: BitSet,
}

impl<P: Platform> EventQueue<P> {
    /// Nothing waits.
    pub fn new() -> Self {
        EventQueue { events: VecDeque::new(), shut: BitSet::new() }
    }

    /// Puts events that were taken and not run in front of the others again.
    pub fn put_back(&mut self, taken: &mut VecDeque<CellMessage<P>>) {
        while let Some(message) = taken.pop_back() {
            self.events.push_front(message);
        }
    }
}
