//! The transmit queues that were given frames, and the receivers behind them that must still be notified.
//!
//! A sender collects here while it holds guards, and passes the set on when the last guard has dropped: a receiver is
//! never woken with a lock held. Belongs to one thread.

use dev::BitSet;

/// See the head of the file.
#[derive(Default)]
pub struct Dirty {
    /// Numbers of transmit queues; see [`TransmitQueue::new`](crate::TransmitQueue::new).
    queues: BitSet,
    /// Receivers by their number in the device, those of all devices in one set: notifying one too many does no harm.
    receivers: BitSet,
}

impl Dirty {
    /// Nothing.
    pub const fn new() -> Dirty {
        Dirty { queues: BitSet::new(), receivers: BitSet::new() }
    }

    /// Marks the queue of this number to be served, even if it was given no frames: a sender or frame waits for room.
    #[inline]
    pub fn mark(&mut self, queue: usize) {
        self.queues.insert(queue);
    }

    /// The set in which the queue of this number records the receivers of its frames.
    #[inline]
    pub(crate) fn receivers_of(&mut self, queue: usize) -> &mut BitSet {
        self.queues.insert(queue);
        &mut self.receivers
    }

    /// The same set, for a queue that is marked later if it must be.
    #[inline]
    pub(crate) fn receivers(&mut self) -> &mut BitSet {
        &mut self.receivers
    }

    /// Whether receivers are recorded, of whichever queue.
    #[inline]
    pub(crate) fn has_receivers(&self) -> bool {
        !self.receivers.is_empty()
    }

    /// Whether no queue is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether it has no memory of its own, so that dropping it does nothing.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.queues.is_inline() & self.receivers.is_inline()
    }

    /// Takes out a queue, with the receivers to notify through it by
    /// [`TransmitQueue::notify`](crate::TransmitQueue::notify).
    #[inline]
    pub fn next_queue(&mut self) -> Option<(usize, &BitSet)> {
        let queue = self.queues.pop()?;
        Some((queue, &self.receivers))
    }

    /// The only queue in it with its receivers, if all numbers here are small: what a single call leaves.
    #[inline]
    pub fn only(&self) -> Option<(usize, &BitSet)> {
        let number = self.queues.single().filter(|_| self.receivers.is_inline())?;
        Some((number, &self.receivers))
    }

    /// Clears what [`Dirty::only`] found.
    #[inline]
    pub(crate) fn finish_only(&mut self) {
        self.queues.clear_low();
        self.receivers.clear_low();
    }

    /// Clears the receivers, after all queues have been taken out and notified.
    #[inline]
    pub fn finish(&mut self) {
        debug_assert!(self.queues.is_empty(), "a queue is left that was not notified");
        self.receivers.clear();
    }
}
