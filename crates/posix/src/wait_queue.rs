//! Waiters for a descriptor's readiness: threads in a blocking call, and `epoll` instances that watch it.
//!
//! Every open file description has one queue. It is the watch of the socket below
//! ([`stack::socket::readiness::Watch`]), so the thread that raises readiness in the stack calls it; calls that change
//! readiness themselves (`shutdown`, a write to a pipe) do so as well. Bits are those of `epoll`. An entry has the bits
//! that it waits for; a wake-up without any of them skips it.
//!
//! What may never happen: a wake-up between a waiter's last check and its sleep is lost (a thread joins the queue
//! first, checks again and sleeps on a permit), or a callback runs while the queue is locked.

use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use stack::socket::Readiness;
use stack::socket::readiness::Watch;
use sync::{Lock, LockClass, LockKind, Parker, Platform};

use crate::epoll::{Instance, RegistrationKey};

/// Bits of `epoll`, which are those of `poll` as well.
pub(crate) mod bits {
    pub(crate) const IN: u32 = libc::EPOLLIN as u32;
    pub(crate) const OUT: u32 = libc::EPOLLOUT as u32;
    pub(crate) const PRI: u32 = libc::EPOLLPRI as u32;
    pub(crate) const ERR: u32 = libc::EPOLLERR as u32;
    pub(crate) const HUP: u32 = libc::EPOLLHUP as u32;
    pub(crate) const RDHUP: u32 = libc::EPOLLRDHUP as u32;
    /// Reported even if not requested.
    pub(crate) const ALWAYS: u32 = ERR | HUP;
    /// All events of a descriptor.
    pub(crate) const ALL: u32 = IN | OUT | PRI | ERR | HUP | RDHUP;
}

/// The bits that an edge of the socket below may have made ready.
fn bits_of(raised: Readiness) -> u32 {
    let map = [
        (Readiness::READABLE, bits::IN),
        (Readiness::ACCEPTABLE, bits::IN),
        (Readiness::WRITABLE, bits::OUT),
        (Readiness::CONNECTED, bits::OUT),
        (Readiness::PEER_CLOSED, bits::IN | bits::RDHUP | bits::HUP),
        (Readiness::URGENT, bits::PRI),
        // The error queue may have new reports of sends.
        (Readiness::ACKNOWLEDGED, bits::ERR),
        (Readiness::ERROR, bits::ALL),
        (Readiness::CLOSED, bits::ALL),
    ];
    map.iter().filter(|(bit, _)| raised.intersects(*bit)).fold(0, |all, (_, bits)| all | bits)
}

/// One waiter.
pub(crate) enum Waiter<P: Platform> {
    /// A thread in a blocking call.
    Thread(Arc<Parker<P>>),
    /// An `epoll` instance, and its key for the descriptor.
    Epoll(Weak<Instance<P>>, RegistrationKey),
}

impl<P: Platform> Clone for Waiter<P> {
    fn clone(&self) -> Self {
        match self {
            Waiter::Thread(parker) => Waiter::Thread(parker.clone()),
            Waiter::Epoll(instance, key) => Waiter::Epoll(instance.clone(), *key),
        }
    }
}

struct QueuedWaiter<P: Platform> {
    ticket: WaitTicket,
    bits: u32,
    waiter: Waiter<P>,
}

/// A waiter's name in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitTicket(u64);

/// The waiters of one open file description. Any thread.
pub(crate) struct WaitQueue<P: Platform> {
    entries: Lock<(u64, Vec<QueuedWaiter<P>>), P>,
}

impl<P: Platform> WaitQueue<P> {
    /// No thread waits.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(WaitQueue { entries: Lock::new(LockKind::Blocking, LockClass::WaitQueue, (0, Vec::new())) })
    }

    /// Notifies `waiter` of everything in `bits` until it leaves.
    pub(crate) fn join(&self, bits: u32, waiter: Waiter<P>) -> WaitTicket {
        let mut entries = self.entries.lock();
        entries.0 += 1;
        let ticket = WaitTicket(entries.0);
        entries.1.push(QueuedWaiter { ticket, bits: bits | bits::ALWAYS, waiter });
        ticket
    }

    /// Ends what [`WaitQueue::join`] began.
    pub(crate) fn leave(&self, ticket: WaitTicket) {
        let mut entries = self.entries.lock();
        let place = entries.1.iter().position(|entry| entry.ticket == ticket);
        let left = place.map(|place| entries.1.swap_remove(place));
        // Dropped with the queue released.
        drop(entries);
        drop(left);
    }

    /// Notifies every waiter for one of `bits`. The caller holds no lock.
    pub(crate) fn wake(&self, bits: u32) {
        let told: SmallVec<[Waiter<P>; 4]> = {
            let entries = self.entries.lock();
            entries.1.iter().filter(|entry| entry.bits & bits != 0).map(|entry| entry.waiter.clone()).collect()
        };
        for waiter in told {
            match waiter {
                Waiter::Thread(parker) => drop(parker.unpark()),
                Waiter::Epoll(instance, key) => {
                    if let Some(instance) = instance.upgrade() {
                        instance.mark(key);
                    }
                }
            }
        }
    }

    /// Takes out all waiters: the description has ended.
    pub(crate) fn empty(&self) -> Vec<Waiter<P>> {
        let entries = std::mem::take(&mut self.entries.lock().1);
        entries.into_iter().map(|entry| entry.waiter).collect()
    }
}

impl<P: Platform> Watch for WaitQueue<P> {
    fn ready(&self, raised: Readiness, _: Readiness) {
        self.wake(bits_of(raised));
    }
}
