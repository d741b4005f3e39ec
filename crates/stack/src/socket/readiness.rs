//! Whether a socket has something for its user, and who is to be told.
//!
//! The truth is in the PCB. What is kept here are *level bits* that any thread may read without entering the cell:
//! a bit is set after the guard of the event that raised it has dropped, and cleared inside the guard of the call
//! that found nothing. So a bit may be set when there is nothing left (the user finds `WouldBlock`), but never clear
//! while there is something: no wake-up is lost.

use std::sync::Arc;
use std::time::Duration;

use sync::{Atomic, Lock, LockClass, LockKind, Ordering, Platform};
pub use tcp::Readiness;

use super::poll::PollSet;

/// Somebody sleeps on the word.
const WAITING: u32 = 1 << 31;
/// The socket is registered with a poll set.
const POLLED: u32 = 1 << 30;
/// The socket stands in its poll set's queue.
const QUEUED: u32 = 1 << 29;
const BITS: u32 = 0xffff;

/// A socket that has a readiness word: a connection, a listener, a datagram socket.
pub trait Pollable<P: Platform>: Send + Sync + 'static {
    /// Its readiness word.
    fn ready_state(&self) -> &ReadyState<P>;
}

/// The readiness word of one socket, with the ways to wait for it.
pub struct ReadyState<P: Platform> {
    word: P::AtomicU32,
    registration: Lock<Option<Registration<P>>, P>,
}

enum Registration<P: Platform> {
    Poll { set: Arc<PollSet<P>>, token: usize },
    Watch(Arc<dyn Watch>),
}

/// Told of every edge of one socket: how another event loop is attached. Called with no lock held.
pub trait Watch: Send + Sync + 'static {
    /// `level` are the bits that are set now.
    fn ready(&self, level: Readiness);
}

impl<P: Platform> Default for ReadyState<P> {
    fn default() -> Self {
        ReadyState {
            word: P::AtomicU32::new(0),
            registration: Lock::new(LockKind::Blocking, LockClass::SocketBuffer, None),
        }
    }
}

impl<P: Platform> ReadyState<P> {
    /// The bits that are set now.
    #[inline]
    pub fn get(&self) -> Readiness {
        level(self.word.load(Ordering::Acquire))
    }

    /// Sets `bits` of the socket `owner`, wakes who sleeps and queues the socket with its poll set. Phase *after*: no guard is held.
    pub fn raise<S: Pollable<P>>(&self, owner: &Arc<S>, bits: Readiness) {
        let old = self.word.fetch_or(u32::from(bits.0), Ordering::AcqRel);
        if old & WAITING != 0 {
            self.word.fetch_and(!WAITING, Ordering::AcqRel);
            P::futex_wake(&self.word, u32::MAX);
        }
        // A poll set is edge-triggered: an edge is news even when the bit was already set.
        if old & POLLED != 0 && old & QUEUED == 0 {
            self.enqueue(owner);
        }
    }

    /// Clears `bits`; phase *inside*: the caller holds the cell whose PCB has nothing more to offer.
    #[inline]
    pub fn clear(&self, bits: Readiness) {
        self.word.fetch_and(!u32::from(bits.0), Ordering::AcqRel);
    }

    /// Sets `bits` again after a call that cleared them found something. No edge: only who sleeps is told.
    pub fn restore(&self, bits: Readiness) {
        let old = self.word.fetch_or(u32::from(bits.0), Ordering::AcqRel);
        if old & WAITING != 0 {
            self.word.fetch_and(!WAITING, Ordering::AcqRel);
            P::futex_wake(&self.word, u32::MAX);
        }
    }

    /// Sleeps until one of `wanted` is set or `timeout` has passed; tells which are. `None` waits for ever.
    pub fn wait(&self, wanted: Readiness, timeout: Option<Duration>) -> Readiness {
        let start = timeout.map(|_| P::now());
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & u32::from(wanted.0) != 0 {
                return level(word);
            }
            let left = match (timeout, start) {
                (Some(timeout), Some(start)) => {
                    let spent = Duration::from_nanos(P::now().saturating_sub(start));
                    match timeout.checked_sub(spent) {
                        Some(left) if !left.is_zero() => Some(left),
                        _ => return level(word),
                    }
                }
                _ => None,
            };
            let advertised = word | WAITING;
            if word & WAITING == 0
                && self.word.compare_exchange(word, advertised, Ordering::AcqRel, Ordering::Acquire).is_err()
            {
                continue;
            }
            P::futex_wait(&self.word, advertised, left);
        }
    }

    /// Makes `set` hear of this socket under `token`; an earlier registration is replaced. What is ready already is
    /// reported at once.
    pub fn register<S: Pollable<P>>(&self, owner: &Arc<S>, set: &Arc<PollSet<P>>, token: usize) {
        *self.registration.lock() = Some(Registration::Poll { set: set.clone(), token });
        let old = self.word.fetch_or(POLLED, Ordering::AcqRel);
        if old & BITS != 0 && old & QUEUED == 0 {
            self.enqueue(owner);
        }
    }

    /// Makes `watch` hear of every edge; an earlier registration is replaced. Told at once of what is ready already.
    pub fn watch(&self, watch: Arc<dyn Watch>) {
        *self.registration.lock() = Some(Registration::Watch(watch.clone()));
        let old = self.word.fetch_or(POLLED, Ordering::AcqRel);
        if old & BITS != 0 {
            watch.ready(level(old));
        }
    }

    /// No poll set hears of this socket any more; events already queued are skipped.
    pub fn deregister(&self) {
        self.word.fetch_and(!POLLED, Ordering::AcqRel);
        *self.registration.lock() = None;
    }

    fn enqueue<S: Pollable<P>>(&self, owner: &Arc<S>) {
        if self.word.fetch_or(QUEUED, Ordering::AcqRel) & QUEUED != 0 {
            return;
        }
        let (set, watch) = match &*self.registration.lock() {
            Some(Registration::Poll { set, .. }) => (Some(set.clone()), None),
            Some(Registration::Watch(watch)) => (None, Some(watch.clone())),
            None => (None, None),
        };
        if let Some(set) = set {
            return set.push(owner.clone());
        }
        let word = self.word.fetch_and(!QUEUED, Ordering::AcqRel);
        if let Some(watch) = watch {
            watch.ready(level(word));
        }
    }

    /// Called by the poll set that takes the socket out of its queue: the token and what is ready.
    pub(super) fn dequeue(&self) -> Option<(usize, Readiness)> {
        // Cleared before the bits are read: an edge that comes now queues the socket again.
        let word = self.word.fetch_and(!QUEUED, Ordering::AcqRel);
        match &*self.registration.lock() {
            Some(Registration::Poll { token, .. }) => Some((*token, level(word))),
            _ => None,
        }
    }
}

fn level(word: u32) -> Readiness {
    Readiness((word & BITS) as u16)
}
