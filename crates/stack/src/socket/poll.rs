//! A set of sockets that one thread watches: edge-triggered, O(ready), with one pollable file descriptor.
//!
//! Sockets push themselves into the set's queue when they become ready (at most one entry each); the watching thread
//! takes them out. Nobody scans.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use sync::{Atomic, DoorbellLike, Lock, LockClass, LockKind, Ordering, Parker, Platform};

use super::readiness::{Pollable, Readiness};

/// One report of a [`PollSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollEvent {
    /// The token given when the socket was registered.
    pub token: usize,
    /// What is ready. Edge-triggered: use the socket until it would block.
    pub ready: Readiness,
}

/// Sockets taken out of the queue at a time.
const CHUNK: usize = 32;

/// The ready queue of one watching thread. Any thread may push; one thread at a time waits.
pub struct PollSet<P: Platform> {
    queue: Lock<Queue<P>, P>,
    /// Entries in the queue, written under its lock and readable without: a hint. Who sleeps does not rely on it: a push
    /// into an empty queue is followed by a permit for the parker, and [`PollSet::arm`] takes the lock.
    length: P::AtomicUsize,
    parker: Parker<P>,
    /// [`PollSet::wake`] was called and nobody has come back for it yet.
    woken: P::AtomicBool,
    doorbell: Option<P::Doorbell>,
}

struct Queue<P: Platform> {
    sockets: VecDeque<Arc<dyn Pollable<P>>>,
    /// Nobody will look again.
    closed: bool,
}

impl<P: Platform> PollSet<P> {
    /// A set with a pollable descriptor where the platform has one and `pollable` asks for it.
    ///
    /// # Errors
    /// The descriptor cannot be had (the process has too many open files).
    pub fn new(pollable: bool) -> std::io::Result<Arc<Self>> {
        let doorbell = if pollable { Some(P::Doorbell::new()?) } else { None };
        Ok(Arc::new(PollSet {
            queue: Lock::new(
                LockKind::Blocking,
                LockClass::SocketBuffer,
                Queue { sockets: VecDeque::new(), closed: false },
            ),
            length: P::AtomicUsize::new(0),
            parker: Parker::new(),
            woken: P::AtomicBool::new(false),
            doorbell,
        }))
    }

    /// The descriptor that polls readable while the queue is not empty, once [`PollSet::arm`] has been called.
    pub fn fd(&self) -> Option<i32> {
        self.doorbell.as_ref().and_then(DoorbellLike::fd)
    }

    /// What has that descriptor, for whoever borrows it.
    pub fn doorbell(&self) -> Option<&P::Doorbell> {
        self.doorbell.as_ref()
    }

    /// Says that the watcher is about to sleep on the descriptor; returns false if there is something already.
    pub fn arm(&self) -> bool {
        if let Some(doorbell) = &self.doorbell {
            doorbell.drain();
            doorbell.arm();
        }
        // Under the lock: whoever pushes after this look takes the lock after it, and sees the doorbell armed.
        self.queue.lock().sockets.is_empty()
    }

    pub(super) fn push(&self, socket: Arc<dyn Pollable<P>>) {
        self.push_all(std::iter::once(socket));
    }

    /// Appends sockets that have just set their queue bit, under one lock.
    pub(crate) fn push_all(&self, sockets: impl Iterator<Item = Arc<dyn Pollable<P>>>) {
        let mut queue = self.queue.lock();
        if queue.closed {
            // Dropped with the lock released: the last reference to a socket may take much with it.
            drop(queue);
            return sockets.for_each(drop);
        }
        let first = queue.sockets.is_empty();
        queue.sockets.extend(sockets);
        self.length.store(queue.sockets.len(), Ordering::Relaxed);
        drop(queue);
        if first {
            self.parker.unpark();
            if let Some(doorbell) = &self.doorbell {
                doorbell.ring();
            }
        }
    }

    /// Nobody will look again: the queue is emptied and stays empty. Sockets keep their registration, so without this
    /// a set with something in its queue and the sockets in it would keep each other alive.
    pub fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        let sockets = std::mem::take(&mut queue.sockets);
        self.length.store(0, Ordering::Relaxed);
        drop(queue);
        drop(sockets);
    }

    /// Takes what is ready into `events` (cleared first), at most `max` of them, without sleeping.
    pub fn try_wait(&self, events: &mut Vec<PollEvent>, max: usize) -> usize {
        self.woken.store(false, Ordering::Relaxed);
        self.take(events, max)
    }

    fn take(&self, events: &mut Vec<PollEvent>, max: usize) -> usize {
        events.clear();
        if self.length.load(Ordering::Acquire) == 0 {
            return 0;
        }
        while events.len() < max {
            let chunk = self.take_chunk((max - events.len()).min(CHUNK));
            if chunk.is_empty() {
                break;
            }
            for socket in chunk {
                if let Some((token, ready)) = socket.ready_state().dequeue(self) {
                    events.push(PollEvent { token, ready });
                }
            }
        }
        events.len()
    }

    #[inline]
    fn take_chunk(&self, most: usize) -> SmallVec<[Arc<dyn Pollable<P>>; CHUNK]> {
        let mut queue = self.queue.lock();
        let count = queue.sockets.len().min(most);
        let chunk = queue.sockets.drain(..count).collect();
        self.length.store(queue.sockets.len(), Ordering::Relaxed);
        chunk
    }

    /// As [`PollSet::try_wait`], but sleeps up to `timeout` (`None`: for ever) when nothing is ready. A
    /// [`PollSet::wake`] ends it early.
    pub fn wait(&self, events: &mut Vec<PollEvent>, max: usize, timeout: Option<Duration>) -> usize {
        let start = P::now();
        loop {
            if self.take(events, max) > 0 || self.woken.swap(false, Ordering::AcqRel) {
                return events.len();
            }
            let left = match timeout {
                None => None,
                Some(timeout) => {
                    let spent = Duration::from_nanos(P::now().saturating_sub(start));
                    match timeout.checked_sub(spent) {
                        Some(left) if !left.is_zero() => Some(left),
                        _ => return 0,
                    }
                }
            };
            self.parker.park(left);
        }
    }

    /// Wakes the watcher without an event.
    pub fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.parker.unpark();
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
    }
}
