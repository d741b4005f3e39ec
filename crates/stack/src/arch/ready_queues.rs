//! A queue of ready connections for each core, from which an idle core takes one (ZygOS: the shuffle layer).
//!
//! Any thread adds a connection, to the queue of its home core. The home core takes the oldest of its queue. Another core
//! looks through the queues, takes the oldest of the first that has one, and passes over a queue that is in use. A
//! connection is added once each time it becomes ready ([`HandlerTurns`](crate::place::turns::HandlerTurns)), so it is in
//! one queue at most. Generic over the connections, so that models run it with numbers.
//!
//! What may never happen: a connection is taken twice.

use std::collections::VecDeque;

use sync::{Atomic, CachePadded, Lock, LockClass, LockKind, Ordering, Platform};

/// See the head of this file. Any thread.
pub struct ReadyQueues<T, P: Platform>(Box<[CachePadded<CoreQueue<T, P>>]>);

struct CoreQueue<T, P: Platform> {
    ready: Lock<VecDeque<T>, P>,
    /// The length, readable without the lock.
    length: P::AtomicUsize,
}

impl<T, P: Platform> ReadyQueues<T, P> {
    /// Empty queues of this many cores, at least one; a lock of this kind guards each.
    pub fn new(kind: LockKind, cores: usize) -> Self {
        let queue = |_| {
            let ready = Lock::new(kind, LockClass::Handoff, VecDeque::new());
            CachePadded::new(CoreQueue { ready, length: P::AtomicUsize::new(0) })
        };
        ReadyQueues((0..cores.max(1)).map(queue).collect())
    }

    /// The number of cores.
    pub fn cores(&self) -> usize {
        self.0.len()
    }

    /// The number of connections that wait in the queue of a core. A hint, where other threads add and take.
    #[inline]
    pub fn length(&self, core: usize) -> usize {
        self.0[core].length.load(Ordering::Acquire)
    }

    /// Whether no connection waits. Only a hint, too.
    #[inline]
    pub fn is_empty(&self) -> bool {
        (0..self.cores()).all(|core| self.length(core) == 0)
    }

    /// A connection waits from now on. The caller ensures that its home core checks the queue.
    pub fn add(&self, home: usize, connection: T) {
        let queue = &self.0[home];
        let mut ready = queue.ready.lock();
        ready.push_back(connection);
        queue.length.store(ready.len(), Ordering::Release);
        sync::profile::handoff::<P>(1);
    }

    /// The home core takes its oldest connection.
    pub fn take(&self, home: usize) -> Option<T> {
        let queue = &self.0[home];
        if self.length(home) == 0 {
            return None;
        }
        queue.oldest(&mut queue.ready.lock())
    }

    /// An idle core takes one connection: the oldest of the first queue that has one, from the next core on, its own at last.
    pub fn steal(&self, thief: usize) -> Option<T> {
        let others = (1..=self.cores()).map(|step| (thief + step) % self.cores());
        let mut queues = others.filter(|core| self.length(*core) != 0).map(|core| &self.0[core]);
        queues.find_map(|queue| queue.oldest(&mut *queue.ready.try_lock()?))
    }
}

impl<T, P: Platform> CoreQueue<T, P> {
    fn oldest(&self, ready: &mut VecDeque<T>) -> Option<T> {
        let oldest = ready.pop_front();
        self.length.store(ready.len(), Ordering::Release);
        oldest
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;

    /// ZygOS, 4.2: idle cores "steal" from the shuffle queue of a remote core; its home core and the thieves take the
    /// connections in the order in which they became ready.
    #[test]
    fn the_home_core_and_thieves_take_the_oldest() {
        let queues = ReadyQueues::<u32, Real>::new(LockKind::Blocking, 3);
        (1..=4).for_each(|connection| queues.add(1, connection));
        assert_eq!(
            (queues.take(0), queues.take(1), queues.steal(0), queues.steal(2)),
            (None, Some(1), Some(2), Some(3))
        );
        assert_eq!((queues.length(1), queues.is_empty()), (1, false));
        assert_eq!((queues.steal(1), queues.steal(1), queues.is_empty()), (Some(4), None, true));
    }

    /// A thief skips a queue that is in use.
    #[test]
    fn a_thief_does_not_wait_for_a_queue() {
        let queues = ReadyQueues::<u32, Real>::new(LockKind::Blocking, 3);
        queues.add(1, 1);
        queues.add(2, 2);
        let held = queues.0[1].ready.lock();
        assert_eq!((queues.steal(0), queues.steal(0)), (Some(2), None));
        drop(held);
        assert_eq!(queues.steal(0), Some(1));
    }
}
