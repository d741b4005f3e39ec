//! The connections of a listener that wait to be accepted, and the count of its handshakes: a shard for each receive thread.
//!
//! A receive thread that completes a handshake queues the connection in its own shard, and takes from it first when it accepts:
//! the connection stays on the core that receives its segments, and set-up writes no counter and no queue of another thread. A
//! thread that is no receive thread (a protocol thread, a user's) uses the first shard, and accepts from all by turns. So a
//! stack with one receive thread has one queue, first in, first out; with several, the order of two connections is only kept
//! within a shard.
//!
//! Two things must never happen. A child must not enter a closed queue: the lock of its shard orders it and
//! [`AcceptQueues::close`]. And a child must not wait while the listener looks idle: [`AcceptQueues::accept`] clears the
//! readiness and then looks at all shards again, and [`AcceptQueues::establish`] counts the child before its readiness is
//! raised, with a fence on both sides.

use std::collections::VecDeque;
use std::sync::Arc;

use sync::{Atomic, CachePadded, Lock, LockClass, LockKind, Ordering, Platform};

use super::TcpSocket;
use super::readiness::{Readiness, ReadyState};
use crate::alarm::Alarms;

/// How many connections in a row a receive thread takes from its own shard, while others wait in another one.
const OWN_IN_A_ROW: usize = 16;

/// The shards of one listener; see the head of this file. Any thread.
pub(super) struct AcceptQueues<P: Platform> {
    shards: Box<[CachePadded<Shard<P>>]>,
    /// Which of the receive threads is the calling one.
    alarms: Arc<Alarms<P>>,
}

/// What one receive thread uses of a listener.
struct Shard<P: Platform> {
    /// Handshakes begun on this thread less those ended on it. It may be negative (as a wrapped number): a handshake may
    /// end on another thread. Only the sum over the shards has a meaning.
    half_open: P::AtomicUsize,
    /// The length of the queue.
    waiting: P::AtomicUsize,
    /// Connections that its thread has accepted. Written by that thread.
    accepted: P::AtomicUsize,
    queue: Lock<AcceptQueue<P>, P>,
}

struct AcceptQueue<P: Platform> {
    closed: bool,
    established: VecDeque<Arc<TcpSocket<P>>>,
}

/// The listener was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl<P: Platform> AcceptQueues<P> {
    /// One shard for each receive thread of `alarms`.
    pub(super) fn new(alarms: Arc<Alarms<P>>) -> Self {
        let shard = |_| {
            let queue = AcceptQueue { closed: false, established: VecDeque::new() };
            CachePadded::new(Shard {
                half_open: P::AtomicUsize::new(0),
                waiting: P::AtomicUsize::new(0),
                accepted: P::AtomicUsize::new(0),
                queue: Lock::new(LockKind::Blocking, LockClass::AcceptQueue, queue),
            })
        };
        AcceptQueues { shards: (0..alarms.threads().max(1)).map(shard).collect(), alarms }
    }

    /// The shard of the calling thread.
    #[inline]
    fn own(&self) -> &Shard<P> {
        &self.shards[self.own_index().unwrap_or(0)]
    }

    /// The number of the calling receive thread; `None`: it is none.
    #[inline]
    fn own_index(&self) -> Option<usize> {
        match self.shards.len() {
            1 => Some(0),
            _ => self.alarms.here(),
        }
    }

    /// A handshake begins: returns how many there were before. Two threads may both count each other, so that both are
    /// refused the last place; that never lets more in than there is room for.
    pub(super) fn begin_handshake(&self) -> usize {
        self.own().half_open.fetch_add(1, Ordering::SeqCst);
        self.sum(|shard| shard.half_open.load(Ordering::SeqCst)).wrapping_sub(1)
    }

    /// A handshake has ended, without a connection or with one.
    pub(super) fn end_handshake(&self) {
        self.own().half_open.fetch_sub(1, Ordering::AcqRel);
    }

    /// Handshakes in progress.
    pub(super) fn half_open(&self) -> usize {
        self.sum(|shard| shard.half_open.load(Ordering::Relaxed))
    }

    /// Connections that wait to be accepted.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.sum(|shard| shard.waiting.load(Ordering::Relaxed))
    }

    #[inline]
    fn sum(&self, of: impl Fn(&Shard<P>) -> usize) -> usize {
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(of(shard)))
    }

    /// A connection waits to be accepted, if `queued`; the caller raises the readiness then. Phase *inside*.
    ///
    /// # Errors
    /// The listener has been closed.
    pub(super) fn establish(&self, child: &Arc<TcpSocket<P>>, queued: bool) -> Result<(), Closed> {
        let shard = self.own();
        let mut queue = shard.queue.lock();
        if queue.closed {
            return Err(Closed);
        }
        if !queued {
            return Ok(());
        }
        queue.established.push_back(child.clone());
        shard.waiting.store(queue.established.len(), Ordering::Relaxed);
        drop(queue);
        if self.shards.len() > 1 {
            // Before the readiness is read: `accept` clears it, and then reads what was stored here.
            P::fence(Ordering::SeqCst);
        }
        Ok(())
    }

    /// Takes a connection, and clears `ready` when none is left; see [`ListenerShared::accept`](super::ListenerShared::accept).
    pub(super) fn accept(&self, ready: &ReadyState<P>) -> Option<Arc<TcpSocket<P>>> {
        loop {
            let child = self.take(ready);
            if self.shards.len() == 1 {
                return child;
            }
            if self.waiting() == 0 {
                ready.clear(Readiness::ACCEPTABLE);
                P::fence(Ordering::SeqCst);
                if self.waiting() == 0 {
                    return child;
                }
                // One has been queued since, and found the bit still set.
                ready.restore(Readiness::ACCEPTABLE);
            }
            if child.is_some() {
                return child;
            }
        }
    }

    /// Takes the connection that has waited longest in the first shard that has one. With a single shard, clears `ready`
    /// under its lock when none is left, which then needs no second look.
    fn take(&self, ready: &ReadyState<P>) -> Option<Arc<TcpSocket<P>>> {
        let first = self.first_to_look_at();
        let (before, from) = self.shards.split_at(first);
        for shard in from.iter().chain(before) {
            if shard.waiting.load(Ordering::Relaxed) == 0 && self.shards.len() > 1 {
                continue;
            }
            let mut queue = shard.queue.lock();
            let child = queue.established.pop_front();
            shard.waiting.store(queue.established.len(), Ordering::Relaxed);
            if self.shards.len() == 1 && queue.established.is_empty() {
                ready.clear(Readiness::ACCEPTABLE);
            }
            if child.is_some() {
                return child;
            }
        }
        None
    }

    /// The shard that an accepting thread looks at first: its own, but now and then the next one, or connections would
    /// wait for ever in the shard of a thread that does not accept. A thread without a shard takes them by turns.
    fn first_to_look_at(&self) -> usize {
        let shards = self.shards.len();
        if shards == 1 {
            return 0;
        }
        let own = self.own_index();
        let counted = &self.shards[own.unwrap_or(0)].accepted;
        let turn = counted.load(Ordering::Relaxed);
        counted.store(turn.wrapping_add(1), Ordering::Relaxed);
        match own {
            Some(own) if turn % OWN_IN_A_ROW != OWN_IN_A_ROW - 1 => own,
            Some(own) => (own + 1 + turn / OWN_IN_A_ROW) % shards,
            None => turn % shards,
        }
    }

    /// Closes the queues: no child can enter any more. Returns those that were not accepted.
    pub(super) fn close(&self) -> Vec<Arc<TcpSocket<P>>> {
        let mut left = Vec::new();
        for shard in &self.shards {
            let mut queue = shard.queue.lock();
            queue.closed = true;
            shard.waiting.store(0, Ordering::Relaxed);
            left.extend(std::mem::take(&mut queue.established));
        }
        left
    }

    /// Whether [`AcceptQueues::close`] has begun.
    pub(super) fn is_closed(&self) -> bool {
        self.shards[0].queue.lock().closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Flow;
    use std::thread;
    use sync::Real;

    fn child(port: u16) -> Arc<TcpSocket<Real>> {
        let address = std::net::IpAddr::from([10, 0, 0, 1]);
        let tuple = wire::FourTuple { local_addr: address, remote_addr: address, local_port: 80, remote_port: port };
        TcpSocket::new(Flow { tuple, hash: 0 })
    }

    struct World {
        queues: AcceptQueues<Real>,
        ready: ReadyState<Real>,
    }

    impl World {
        fn new(receivers: usize) -> Self {
            World { queues: AcceptQueues::new(Arc::new(Alarms::new(receivers))), ready: ReadyState::default() }
        }

        /// Does `work` on a new thread, which is this receive thread, if any.
        fn on<R: Send>(&self, receiver: Option<usize>, work: impl FnOnce(&Self) -> R + Send) -> R {
            let run = || {
                // A new thread has the number of one that has ended, and would be taken for it.
                let alarms = &self.queues.alarms;
                (0..alarms.threads()).for_each(|thread| alarms.leave(thread));
                receiver.into_iter().for_each(|receiver| alarms.run_here(receiver));
                receiver.into_iter().for_each(|receiver| alarms.unpark(receiver));
                work(self)
            };
            thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
        }

        /// Queues connections from these ports, on that receive thread.
        fn establish(&self, receiver: usize, ports: std::ops::Range<u16>) {
            self.on(Some(receiver), |world| {
                for port in ports {
                    assert_eq!(world.queues.establish(&child(port), true), Ok(()));
                    world.ready.raise(Readiness::ACCEPTABLE);
                }
            });
        }

        /// The ports of the next connections that this thread accepts.
        fn accept(&self, receiver: Option<usize>, count: usize) -> Vec<u16> {
            self.on(receiver, |world| {
                let next = |_| world.queues.accept(&world.ready).map(|child| child.tuple().remote_port);
                (0..count).map_while(next).collect()
            })
        }

        fn is_ready(&self) -> bool {
            self.ready.get().contains(Readiness::ACCEPTABLE)
        }
    }

    #[test]
    fn a_receive_thread_accepts_what_it_received_and_then_the_rest() {
        let world = World::new(3);
        world.establish(0, 10..12);
        world.establish(2, 20..22);
        assert_eq!(world.accept(Some(2), 2), [20, 21]);
        assert!(world.is_ready(), "others wait");
        assert_eq!(world.accept(Some(1), 1), [10]);
        assert_eq!(world.accept(Some(2), 3), [11], "it is idle, and takes the last one");
        assert!(!world.is_ready());
    }

    /// A thread that never accepts would keep its connections waiting.
    #[test]
    fn no_connection_waits_while_the_own_queue_is_never_empty() {
        let world = World::new(2);
        world.establish(0, 100..200);
        world.establish(1, 1..2);
        let accepted = world.accept(Some(0), OWN_IN_A_ROW);
        assert!(accepted.contains(&1), "{accepted:?}");
    }

    /// The others have turns, too.
    #[test]
    fn no_queue_waits_while_all_are_never_empty() {
        let world = World::new(4);
        world.establish(0, 1000..2000);
        let ports = [100..200, 200..300, 300..400];
        for (other, ports) in (1..).zip(&ports) {
            world.establish(other, ports.clone());
        }
        let accepted = world.accept(Some(0), 4 * OWN_IN_A_ROW);
        assert!(ports.iter().all(|ports| accepted.iter().any(|port| ports.contains(port))), "{accepted:?}");
    }

    #[test]
    fn other_threads_take_turns_over_the_queues() {
        let world = World::new(2);
        world.establish(0, 10..20);
        world.establish(1, 20..30);
        let accepted = world.accept(None, 4);
        assert_eq!(accepted.iter().filter(|port| **port < 20).count(), 2, "{accepted:?}");
        assert_eq!(world.accept(None, 100).len(), 16);
        assert!(!world.is_ready());
    }

    /// One receive thread: first in, first out, whichever thread completes the handshakes and accepts.
    #[test]
    fn with_one_receive_thread_the_order_is_kept() {
        let world = World::new(1);
        world.establish(0, 1..3);
        world.on(None, |world| assert_eq!(world.queues.establish(&child(3), true), Ok(())));
        world.establish(0, 4..5);
        assert_eq!(world.accept(None, 9), [1, 2, 3, 4]);
    }

    /// The bounds are the listener's: handshakes of all threads count, on whichever they end.
    #[test]
    fn handshakes_are_counted_over_all_threads() {
        let world = World::new(2);
        assert_eq!(world.on(Some(0), |world| world.queues.begin_handshake()), 0);
        assert_eq!(world.on(Some(1), |world| world.queues.begin_handshake()), 1);
        assert_eq!(world.on(Some(1), |world| world.queues.begin_handshake()), 2);
        world.on(Some(0), |world| (0..2).for_each(|_| world.queues.end_handshake()));
        assert_eq!(world.queues.half_open(), 1);
        world.on(None, |world| world.queues.end_handshake());
        assert_eq!((world.queues.half_open(), world.queues.waiting()), (0, 0));
    }

    #[test]
    fn all_queues_close() {
        let world = World::new(2);
        world.establish(0, 1..2);
        world.establish(1, 2..4);
        assert_eq!((world.queues.close().len(), world.queues.waiting()), (3, 0));
        for receiver in [Some(0), Some(1), None] {
            assert_eq!(world.on(receiver, |world| world.queues.establish(&child(9), true)), Err(Closed));
            assert_eq!(world.accept(receiver, 1), []);
        }
    }
}
