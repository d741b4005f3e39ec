//! Which transmit queues were given frames, and which receivers behind them are still to be notified.
//!
//! A sender collects here while it holds guards, and passes it on when the last guard has dropped: a receiver is never
//! woken with a lock held. Of one thread.

use dev::BitSet;

/// See the head of the file.
#[derive(Default)]
pub struct Dirty {
    /// Numbers of transmit queues; see [`TransmitQueue::new`](crate::TransmitQueue::new).
    queues: BitSet,
    /// Receivers by their number in the device, those of all devices in one set: to notify one too many does no harm.
    receivers: BitSet,
}

impl Dirty {
    /// Nothing.
    pub const fn new() -> Dirty {
        Dirty { queues: BitSet::new(), receivers: BitSet::new() }
    }

    /// The queue of this number is to be looked after, though it may have been given nothing: something waits for room.
    #[inline]
    pub fn mark(&mut self, queue: usize) {
        self.queues.insert(queue);
    }

    /// Where the queue of this number puts the receivers of what it was given.
    #[inline]
    pub(crate) fn receivers_of(&mut self, queue: usize) -> &mut BitSet {
        self.queues.insert(queue);
        &mut self.receivers
    }

    /// Whether no queue is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether it has no memory of its own, so that dropping it does nothing.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.queues.is_plain() & self.receivers.is_plain()
    }

    /// Takes a queue out, with the receivers that are to be notified through it:
    /// [`TransmitQueue::notify`](crate::TransmitQueue::notify).
    #[inline]
    pub fn next_queue(&mut self) -> Option<(usize, &BitSet)> {
        let queue = self.queues.pop()?;
        Some((queue, &self.receivers))
    }

    /// Forgets the receivers: all queues have been taken out, and notified.
    #[inline]
    pub fn finish(&mut self) {
        debug_assert!(self.queues.is_empty(), "a queue is left that was not notified");
        self.receivers.clear();
    }
}
