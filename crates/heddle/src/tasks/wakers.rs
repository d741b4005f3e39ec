//! Tasks that wait for a socket, and their wake-up by its edges.

use std::sync::Arc;
use std::task::Waker;

use atomic_waker::AtomicWaker;
use stack::socket::Readiness;
use stack::socket::readiness::{Pollable, Watch};
use sync::{Lock, LockClass, LockKind, Real};

const ENDED: Readiness = Readiness::ERROR.union(Readiness::CLOSED);
/// Bits after which a read, or an accept, should be tried.
const READ: Readiness = Readiness::READABLE.union(Readiness::ACCEPTABLE).union(Readiness::PEER_CLOSED).union(ENDED);
/// Bits after which a write, or a check of a connection being opened, should be tried.
const WRITE: Readiness = Readiness::WRITABLE.union(Readiness::CONNECTED).union(ENDED);

/// A socket's registration with its wakers; it ends when this is dropped.
pub(super) struct Attachment<S: Pollable<Real>, W: Watch> {
    socket: Arc<S>,
    wakers: Arc<W>,
}

impl<S: Pollable<Real>, W: Watch + Default> Attachment<S, W> {
    /// Attaches new wakers to `socket`; those attached before are not called any more.
    pub fn new(socket: &Arc<S>) -> Self {
        let wakers = Arc::new(W::default());
        socket.ready_state().watch(wakers.clone());
        Attachment { socket: socket.clone(), wakers }
    }

    pub fn wakers(&self) -> &W {
        &self.wakers
    }
}

impl<S: Pollable<Real>, W: Watch> Drop for Attachment<S, W> {
    fn drop(&mut self) {
        // Breaks the reference cycle of tasks and sockets.
        self.socket.ready_state().deregister();
    }
}

/// For a stream: one task reads, one writes, which `&mut` guarantees.
#[derive(Default)]
pub(super) struct StreamWakers {
    pub read: AtomicWaker,
    pub write: AtomicWaker,
}

impl Watch for StreamWakers {
    fn ready(&self, _: Readiness, level: Readiness) {
        if level.intersects(READ) {
            self.read.wake();
        }
        if level.intersects(WRITE) {
            self.write.wake();
        }
    }
}

/// For a socket whose methods take `&self`: any number of tasks wait to receive, and all try again after an edge.
pub(super) struct Crowd {
    waiting: Lock<Vec<Waker>, Real>,
}

impl Default for Crowd {
    fn default() -> Self {
        Crowd { waiting: Lock::new(LockKind::Blocking, LockClass::SocketBuffer, Vec::new()) }
    }
}

impl Crowd {
    /// Wakes `waker` at the next edge. A task that is already registered is not added again.
    pub fn register(&self, waker: &Waker) {
        let mut waiting = self.waiting.lock();
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }
}

impl Watch for Crowd {
    fn ready(&self, _: Readiness, level: Readiness) {
        if level.intersects(READ) {
            // Woken with the lock released: a waker runs code of the executor.
            let waiting = std::mem::take(&mut *self.waiting.lock());
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}
