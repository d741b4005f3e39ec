//! Messages from other threads for the one thread that uses a cell.
//!
//! [`Mailbox::list`] is the papers' message queue: a list under a mutex, and a condition variable. [`Mailbox::ring`] is a
//! lock-free ring. Under both, a sender of several messages wakes the receiver once, after the last, and only if it
//! sleeps; and the receiver looks for messages for a few turns before it sleeps.
//!
//! What may never happen: a message in the mailbox, its receiver asleep in [`Mailbox::wait`], and no thread about to
//! wake it.

use std::collections::VecDeque;
use std::time::Duration;

use observe::Time;
use sync::ring::Mpsc;
use sync::{Atomic, Condvar, Lock, LockClass, LockKind, Ordering, Parker, Platform, model_is_over, yield_until};

use crate::call::Reply;
use crate::charge;
use crate::connections::{Datagrams, Upkeep};
use crate::deferred::DeferredEffects;
use crate::handoff::{CellMessage, PendingReply};
use crate::place::Cell;

impl<P: Platform> CellMessage<P> {
    /// Runs the message in `cell`, which the caller holds exclusively. Returns the reply if a caller waits for one.
    pub fn run(self, cell: &mut Cell<P>, now: Time, deferred: &mut DeferredEffects<P>) -> Option<PendingReply<P>> {
        let (reply, asker) = match self {
            CellMessage::Ingress(mut ingress) => {
                if let Some(segment) = ingress.first_segment() {
                    cell.touch_flow(&segment.tuple, ingress.hash());
                }
                cell.arrival(&mut ingress, now, deferred);
                return None;
            }
            CellMessage::Call(target, mut call, asker) => {
                let reply = cell.call_of_user(&target, &mut call, now, deferred);
                if !asker.is_awaited() {
                    return None;
                }
                (reply, asker)
            }
            CellMessage::Attach(target, end) => {
                cell.attach(target.key, end);
                return None;
            }
            CellMessage::Continue(target) => {
                cell.touch(target.key);
                return None;
            }
            CellMessage::Udp(mut call, asker) => (Reply::Udp(Box::new(cell.udp_call(&mut call, deferred))), asker),
            CellMessage::Control(change, asker) => {
                cell.control(change, now, deferred);
                (Reply::Done, asker)
            }
            CellMessage::Job(job, asker) => (Reply::Job(job()), asker),
            CellMessage::StackStats(asker) => (Reply::StackStats(Box::new(cell.stats())), asker),
        };
        Some(PendingReply::new(reply, asker))
    }
}

/// Slots of a ring. An arrival that finds it full is dropped and counted; a caller waits.
const RING: usize = 4096;

enum MailboxQueue<P: Platform> {
    List { list: Lock<VecDeque<CellMessage<P>>, P>, arrived: Condvar<P> },
    Ring { ring: Mpsc<CellMessage<P>, P>, parker: Parker<P> },
}

/// See the module documentation.
pub struct Mailbox<P: Platform> {
    queue: MailboxQueue<P>,
    /// Sent and not yet run.
    pending: P::AtomicUsize,
}

/// Messages that have been taken out. Dropping this ends their pending state, even if one of them panicked.
pub struct TakenMessages<'a, P: Platform> {
    pending: &'a P::AtomicUsize,
    /// The number of threads that have been started.
    pub count: usize,
}

impl<P: Platform> Drop for TakenMessages<'_, P> {
    fn drop(&mut self) {
        if self.count != 0 && !model_is_over::<P>() {
            self.pending.fetch_sub(self.count, Ordering::AcqRel);
        }
    }
}

impl<P: Platform> Mailbox<P> {
    fn new(queue: MailboxQueue<P>) -> Self {
        Mailbox { queue, pending: P::AtomicUsize::new(0) }
    }

    /// A list under a mutex of this kind.
    pub fn list(kind: LockKind) -> Self {
        let list = Lock::new(kind, LockClass::Handoff, VecDeque::new());
        Self::new(MailboxQueue::List { list, arrived: Condvar::new() })
    }

    /// A lock-free ring.
    pub fn ring() -> Self {
        Self::new(MailboxQueue::Ring { ring: Mpsc::new(RING), parker: Parker::new() })
    }

    /// Sends without waiting, and wakes the receiver if `announce`; see [`Mailbox::announce`].
    ///
    /// # Errors
    /// The ring is full; returns the message.
    pub fn send(&self, message: CellMessage<P>, announce: bool) -> Result<(), CellMessage<P>> {
        match &self.queue {
            MailboxQueue::List { list, arrived } => {
                let mut list = list.lock();
                list.push_back(message);
                charge::messages::<P, _>(list.back(), true);
                // Under the lock: a thread that sees a message pending finds it in the list.
                self.pending.fetch_add(1, Ordering::AcqRel);
                drop(list);
                if announce {
                    arrived.notify_one();
                }
            }
            MailboxQueue::Ring { ring, parker } => {
                self.pending.fetch_add(1, Ordering::AcqRel);
                charge::messages::<P, _>(Some(&message), true);
                let sent = ring.push(message);
                if announce {
                    parker.unpark();
                }
                if let Err(full) = sent {
                    self.pending.fetch_sub(1, Ordering::AcqRel);
                    return Err(full.0);
                }
            }
        }
        sync::profile::handoff::<P>(1);
        Ok(())
    }

    /// Wakes the receiver if it sleeps, after the calling thread has sent messages without announcing them.
    pub fn announce(&self) {
        match &self.queue {
            // The messages were added under the lock: a receiver that did not find them there has been counted as a
            // waiter before.
            MailboxQueue::List { arrived, .. } => {
                arrived.notify_one();
            }
            MailboxQueue::Ring { parker, .. } => {
                parker.unpark();
            }
        }
    }

    /// Messages that were sent and have not been run.
    #[inline]
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Whether there is a message to take. Exact for the receiver that has run all that it took, and, where receivers take
    /// turns, for a thread that has fenced after the last one did.
    pub fn has_message(&self) -> bool {
        match &self.queue {
            MailboxQueue::List { .. } => self.pending() != 0,
            MailboxQueue::Ring { ring, .. } => !ring.is_empty(),
        }
    }

    /// Takes one message. Only the receiver calls it.
    pub fn pop(&self) -> Option<CellMessage<P>> {
        match &self.queue {
            MailboxQueue::List { list, .. } => {
                let mut list = list.lock();
                charge::messages::<P, _>(list.front(), false);
                list.pop_front()
            }
            MailboxQueue::Ring { ring, .. } => ring.pop(),
        }
    }

    /// Takes all messages, which the receiver will not run.
    pub fn withdraw(&self) -> Vec<CellMessage<P>> {
        let messages: Vec<CellMessage<P>> = std::iter::from_fn(|| self.pop()).collect();
        self.taken().count = messages.len();
        messages
    }

    /// Moves at most `most` messages to `batch`, which is empty. Only the receiver calls it.
    pub fn take(&self, batch: &mut VecDeque<CellMessage<P>>, most: usize) {
        match &self.queue {
            MailboxQueue::List { list, .. } => {
                let mut list = list.lock();
                charge::messages::<P, _>(list.iter().take(most), false);
                if list.len() <= most {
                    std::mem::swap(&mut *list, batch);
                } else {
                    batch.extend(list.drain(..most));
                }
            }
            MailboxQueue::Ring { ring, .. } => {
                while batch.len() < most {
                    let Some(message) = ring.pop() else { break };
                    charge::messages::<P, _>(Some(&message), false);
                    batch.push_back(message);
                }
            }
        }
    }

    /// Accounts for messages that the receiver takes out and runs.
    pub fn taken(&self) -> TakenMessages<'_, P> {
        TakenMessages { pending: &self.pending, count: 0 }
    }

    /// Waits until a message arrives, `stop` is set, or `timeout` has passed: a few turns, then asleep. Only the receiver
    /// calls it, when it has run all that it took.
    pub fn wait(&self, stop: &P::AtomicBool, timeout: Option<Duration>) {
        if yield_until::<P>(|| self.has_message() || stop.load(Ordering::Acquire)) {
            return;
        }
        match &self.queue {
            MailboxQueue::List { list, arrived } => {
                let list = list.lock();
                // Checked under the lock, which `wake` takes too: either `stop` is seen here, or the thread that sets
                // it finds this one asleep.
                if list.is_empty() && !stop.load(Ordering::Acquire) {
                    drop(match timeout {
                        Some(timeout) => arrived.wait_timeout(list, timeout),
                        None => arrived.wait(list),
                    });
                }
            }
            MailboxQueue::Ring { ring, parker } => {
                if ring.is_empty() {
                    parker.park(timeout);
                }
            }
        }
    }

    /// Wakes the receiver, whether there is a message or not.
    pub fn wake(&self) {
        match &self.queue {
            MailboxQueue::List { list, arrived } => {
                // Under the lock, or a receiver between its check and its sleep would miss the wake-up.
                drop(list.lock());
                arrived.notify_one();
            }
            MailboxQueue::Ring { parker, .. } => {
                parker.unpark();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;
    use crate::handoff::ReplySender;

    fn filled(mailbox: Mailbox<Real>, count: usize) -> Mailbox<Real> {
        for _ in 0..count {
            let job = CellMessage::Job(Box::new(|| Box::new(())), ReplySender::nobody());
            assert!(mailbox.send(job, false).is_ok(), "it has room");
        }
        mailbox
    }

    fn both(count: usize) -> [Mailbox<Real>; 2] {
        [filled(Mailbox::list(LockKind::Blocking), count), filled(Mailbox::ring(), count)]
    }

    /// DragonFly's `netmsg` loop: a bounded number of messages, and then the timers.
    #[test]
    fn a_round_takes_no_more_messages_than_it_may() {
        for mailbox in both(10) {
            let taken = [4, 4, 4].map(|most| {
                let mut batch = VecDeque::new();
                mailbox.take(&mut batch, most);
                batch.len()
            });
            assert_eq!(taken, [4, 4, 2]);
            assert_eq!(mailbox.pending(), 10, "none has been run");
        }
    }

    #[test]
    fn messages_that_are_withdrawn_are_not_pending() {
        for mailbox in both(3) {
            assert_eq!((mailbox.withdraw().len(), mailbox.pending()), (3, 0));
            assert!(mailbox.withdraw().is_empty());
        }
    }
}
