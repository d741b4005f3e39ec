//! A set of sockets that one thread watches: edge-triggered, O(ready), with one pollable file descriptor.
//!
//! Sockets push themselves into the set's queue when they become ready (at most one entry each); the watching thread
//! takes them out. Nobody scans.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

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

/// The ready queue of one watching thread. Any thread may push; one thread at a time waits.
pub struct PollSet<P: Platform> {
    queue: Lock<VecDeque<Arc<dyn Pollable<P>>>, P>,
    /// Entries in the queue, readable without the lock.
    length: P::AtomicUsize,
    parker: Parker<P>,
    /// [`PollSet::wake`] was called and nobody has come back for it yet.
    woken: P::AtomicBool,
    doorbell: Option<P::Doorbell>,
}

impl<P: Platform> PollSet<P> {
    /// A set with a pollable descriptor where the platform has one and `pollable` asks for it.
    ///
    /// # Errors
    /// The descriptor cannot be had (the process has too many open files).
    pub fn new(pollable: bool) -> std::io::Result<Arc<Self>> {
        let doorbell = if pollable { Some(P::Doorbell::new()?) } else { None };
        Ok(Arc::new(PollSet {
            queue: Lock::new(LockKind::Blocking, LockClass::SocketBuffer, VecDeque::new()),
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
        self.length.load(Ordering::SeqCst) == 0
    }

    pub(super) fn push(&self, socket: Arc<dyn Pollable<P>>) {
        let mut queue = self.queue.lock();
        queue.push_back(socket);
        let first = queue.len() == 1;
        self.length.store(queue.len(), Ordering::SeqCst);
        drop(queue);
        if first {
            self.parker.unpark();
            if let Some(doorbell) = &self.doorbell {
                doorbell.ring();
            }
        }
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
            let socket = {
                let mut queue = self.queue.lock();
                let socket = queue.pop_front();
                self.length.store(queue.len(), Ordering::SeqCst);
                socket
            };
            let Some(socket) = socket else { break };
            if let Some((token, ready)) = socket.ready_state().dequeue() {
                events.push(PollEvent { token, ready });
            }
        }
        events.len()
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
