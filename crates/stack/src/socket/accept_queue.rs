//! The connections of a listener that wait to be accepted, and the count of its handshakes: a shard for each receive thread.
//!
//! A receive thread that completes a handshake queues the connection in its own shard, and takes from it first when it accepts:
//! the connection stays on the core that receives its segments, and set-up writes no counter and no queue of another thread. It
//! leaves what waits in another shard to that one's thread, as long as that keeps up with accepting; otherwise threads that accept
//! until nothing is left would take each other's connections away from the cores that receive them. A thread does not keep up if
//! it has never accepted or has ended, if its queue is long (as in Affinity-Accept: Pesterev et al., EuroSys 2012), or if it has not
//! tried for a millisecond. A thread that is no receive thread (a protocol thread, a user's) uses the first shard, and accepts from
//! all by turns. So a stack with one receive thread has one queue, first in, first out; with several, the order of two connections
//! is only kept within a shard.
//!
//! Three things must never happen. A child must not enter a closed queue: the lock of its shard orders it and
//! [`AcceptQueues::close`]. A child must not wait while the listener looks idle: [`AcceptQueues::accept`] clears the
//! readiness and then looks at all shards again, and [`AcceptQueues::establish`] counts the child before its readiness is
//! raised, with a fence on both sides. And a child must not be left to a thread that is not notified, nor wait for ever for one
//! that no longer accepts: a thread that leaves one reports the readiness again, until it has been taken.

use std::collections::VecDeque;
use std::sync::Arc;

use sync::{Atomic, CachePadded, Lock, LockClass, LockKind, Ordering, Platform};

use super::TcpSocket;
use super::readiness::{Readiness, ReadyState};
use crate::alarm::Alarms;

/// How many connections in a row a receive thread takes from its own shard, while others wait in that of a thread that
/// does not accept.
const OWN_IN_A_ROW: usize = 16;
/// With so many connections in its queue a thread does not keep up.
const LONG_QUEUE: usize = 64;
/// For so long, in nanoseconds, a thread that has accepted before may leave a connection in its queue.
const PATIENCE: u64 = 1_000_000;

/// The clock, in nanoseconds.
type Now<'a> = &'a dyn Fn() -> u64;

/// The shards of one listener; see the head of this file. Any thread.
pub(super) struct AcceptQueues<P: Platform> {
    shards: Box<[CachePadded<Shard<P>>]>,
    /// Which of the receive threads is the calling one.
    alarms: Arc<Alarms<P>>,
    /// Counts what threads without a shard accept, so that they begin at another shard each time.
    turn: P::AtomicUsize,
}

/// What one receive thread uses of a listener.
struct Shard<P: Platform> {
    /// Handshakes begun on this thread less those abandoned on it. It may be negative (as a wrapped number), as may this less
    /// `completed`: a handshake may end on another thread. Only the sum over the shards has a meaning.
    begun: P::AtomicUsize,
    /// Handshakes that have ended on this thread with a connection. Written with `queue` locked.
    completed: P::AtomicUsize,
    /// The length of the queue.
    waiting: P::AtomicUsize,
    /// How often its thread has tried to accept. 0: it never has, and its connections are for the others. Written by that
    /// thread, as are the next three.
    accepts: P::AtomicUsize,
    /// The other shard where its thread last left a connection, and `accepts` of that one then.
    left_to: P::AtomicUsize,
    left_at: P::AtomicUsize,
    /// When that was, in nanoseconds.
    left_since: P::AtomicU64,
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
                begun: P::AtomicUsize::new(0),
                completed: P::AtomicUsize::new(0),
                waiting: P::AtomicUsize::new(0),
                accepts: P::AtomicUsize::new(0),
                left_to: P::AtomicUsize::new(usize::MAX),
                left_at: P::AtomicUsize::new(0),
                left_since: P::AtomicU64::new(0),
                // Usually one thread queues connections here and takes them.
                queue: Lock::new(LockKind::Reserved, LockClass::AcceptQueue, queue),
            })
        };
        let shards = (0..alarms.threads().max(1)).map(shard).collect();
        AcceptQueues { shards, alarms, turn: P::AtomicUsize::new(0) }
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
        self.own().begun.fetch_add(1, Ordering::SeqCst);
        let half_open = |shard: &Shard<P>| {
            // Loaded first: what is completed in between counts as half-open, never the other way round.
            let completed = shard.completed.load(Ordering::Acquire);
            shard.begun.load(Ordering::SeqCst).wrapping_sub(completed)
        };
        self.sum(half_open).wrapping_sub(1)
    }

    /// A handshake has ended without a connection.
    pub(super) fn abandon_handshake(&self) {
        self.own().begun.fetch_sub(1, Ordering::AcqRel);
    }

    /// Handshakes in progress.
    pub(super) fn half_open(&self) -> usize {
        self.sum(|shard| {
            let completed = shard.completed.load(Ordering::Relaxed);
            shard.begun.load(Ordering::Relaxed).wrapping_sub(completed)
        })
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

    /// A handshake has ended with a connection, which waits to be accepted, if `queued`; the caller raises the readiness then.
    /// Phase *inside*.
    ///
    /// # Errors
    /// The listener has been closed.
    pub(super) fn establish(&self, child: Arc<TcpSocket<P>>, queued: bool) -> Result<(), Closed> {
        let shard = self.own();
        let mut queue = shard.queue.lock();
        shard.completed.store(shard.completed.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        if queue.closed {
            return Err(Closed);
        }
        if !queued {
            return Ok(());
        }
        queue.established.push_back(child);
        shard.waiting.store(queue.established.len(), Ordering::Relaxed);
        drop(queue);
        if self.shards.len() > 1 {
            // Before the readiness is read: `accept` clears it, and then reads what was stored here.
            P::fence(Ordering::SeqCst);
        }
        Ok(())
    }

    /// A receive thread that asks for connections is one that accepts, although none waits.
    #[inline]
    pub(super) fn ask(&self) {
        if self.shards.len() > 1
            && let Some(own) = self.own_index()
            && self.shards[own].accepts.load(Ordering::Relaxed) == 0
        {
            self.count_accept(own);
        }
    }

    /// Takes a connection, and clears `ready` when none is left; see [`ListenerShared::accept`](super::ListenerShared::accept).
    #[inline]
    pub(super) fn accept(&self, ready: &ReadyState<P>) -> Option<Arc<TcpSocket<P>>> {
        self.accept_at(ready, &P::now)
    }

    fn accept_at(&self, ready: &ReadyState<P>, now: Now<'_>) -> Option<Arc<TcpSocket<P>>> {
        if self.shards.len() == 1 {
            return self.accept_from_the_only_one(ready);
        }
        loop {
            let (child, left) = match self.own_index() {
                Some(own) => self.accept_as(own, now),
                None => (self.take_by_turns(), false),
            };
            if self.waiting() == 0 {
                ready.clear(Readiness::ACCEPTABLE);
                P::fence(Ordering::SeqCst);
                if self.waiting() == 0 {
                    return child;
                }
                // One has been queued since, and found the bit still set.
                ready.restore(Readiness::ACCEPTABLE);
            }
            if child.is_none() && left {
                // The caller may have been the only one that was notified of it, and sleep now.
                ready.tell(Readiness::ACCEPTABLE);
                return None;
            }
            if child.is_some() {
                return child;
            }
        }
    }

    /// Clears `ready` under the lock when none is left, which then needs no second look.
    fn accept_from_the_only_one(&self, ready: &ReadyState<P>) -> Option<Arc<TcpSocket<P>>> {
        let shard = &self.shards[0];
        let mut queue = shard.queue.lock();
        let child = queue.established.pop_front();
        shard.waiting.store(queue.established.len(), Ordering::Relaxed);
        if queue.established.is_empty() {
            ready.clear(Readiness::ACCEPTABLE);
        }
        child
    }

    /// Takes a connection from shard `own`, that of the calling thread, or else from that of a thread that does not accept.
    /// Now and then the other way round, or connections would wait for ever in the shard of such a thread. True: it left
    /// a connection to another thread.
    fn accept_as(&self, own: usize, now: Now<'_>) -> (Option<Arc<TcpSocket<P>>>, bool) {
        let turn = self.count_accept(own);
        if turn % OWN_IN_A_ROW != OWN_IN_A_ROW - 1 {
            match self.take(own) {
                None => self.take_from_others(own, own, now),
                child => (child, false),
            }
        } else {
            match self.take_from_others(own, own + 1 + turn / OWN_IN_A_ROW, now) {
                (None, left) => (self.take(own), left),
                taken => taken,
            }
        }
    }

    /// Returns how often this thread had tried before.
    fn count_accept(&self, own: usize) -> usize {
        let accepts = &self.shards[own].accepts;
        let before = accepts.load(Ordering::Relaxed);
        // Never 0 again.
        accepts.store(before.wrapping_add(1).max(1), Ordering::Relaxed);
        before
    }

    /// Takes a connection from another shard than `own`, from `first` on, unless its thread keeps up. True: one was left.
    fn take_from_others(&self, own: usize, first: usize, now: Now<'_>) -> (Option<Arc<TcpSocket<P>>>, bool) {
        let (shards, mut left) = (self.shards.len(), None);
        let first = first % shards;
        for other in (first..shards).chain(0..first).filter(|other| *other != own) {
            if self.shards[other].waiting.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if !self.keeps_up(own, other, now) {
                if let Some(child) = self.take(other) {
                    return (Some(child), false);
                }
            } else if left.is_none() || self.is_left_since(own, other) {
                left = Some(other);
            }
        }
        if let Some(other) = left
            && !self.is_left_since(own, other)
        {
            let shard = &self.shards[own];
            shard.left_to.store(other, Ordering::Relaxed);
            shard.left_at.store(self.shards[other].accepts.load(Ordering::Relaxed), Ordering::Relaxed);
            shard.left_since.store(now(), Ordering::Relaxed);
        }
        (None, left.is_some())
    }

    /// Whether the thread of shard `other` may be expected to take what waits there.
    fn keeps_up(&self, own: usize, other: usize, now: Now<'_>) -> bool {
        let shard = &self.shards[other];
        if shard.accepts.load(Ordering::Relaxed) == 0
            || shard.waiting.load(Ordering::Relaxed) >= LONG_QUEUE
            || self.alarms.has_ended(other)
        {
            return false;
        }
        let since = self.shards[own].left_since.load(Ordering::Relaxed);
        !self.is_left_since(own, other) || now().saturating_sub(since) < PATIENCE
    }

    /// Whether the thread of shard `own` has left a connection in shard `other`, and that one's thread has not tried to accept since.
    fn is_left_since(&self, own: usize, other: usize) -> bool {
        let shard = &self.shards[own];
        shard.left_to.load(Ordering::Relaxed) == other
            && shard.left_at.load(Ordering::Relaxed) == self.shards[other].accepts.load(Ordering::Relaxed)
    }

    /// For a thread without a shard.
    fn take_by_turns(&self) -> Option<Arc<TcpSocket<P>>> {
        let shards = self.shards.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        (0..shards).find_map(|shard| self.take(first.wrapping_add(shard) % shards))
    }

    /// Takes the connection that has waited longest in this shard.
    fn take(&self, index: usize) -> Option<Arc<TcpSocket<P>>> {
        let shard = &self.shards[index];
        if shard.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut queue = shard.queue.lock();
        let child = queue.established.pop_front();
        shard.waiting.store(queue.established.len(), Ordering::Relaxed);
        child
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
    use crate::socket::poll::PollSet;
    use crate::socket::readiness::Pollable;
    use std::ops::Range;
    use std::sync::atomic::AtomicU64;
    use std::sync::{Mutex, mpsc};
    use std::thread;
    use sync::Real;

    fn child(port: u16) -> Arc<TcpSocket<Real>> {
        let address = std::net::IpAddr::from([10, 0, 0, 1]);
        let tuple = wire::FourTuple { local_addr: address, remote_addr: address, local_port: 80, remote_port: port };
        TcpSocket::new(Flow { tuple, hash: 0 })
    }

    /// The readiness of a listener.
    #[derive(Default)]
    struct Ready(ReadyState<Real>);

    impl Pollable<Real> for Ready {
        fn ready_state(&self) -> &ReadyState<Real> {
            &self.0
        }
    }

    struct World {
        queues: AcceptQueues<Real>,
        ready: Arc<Ready>,
        /// In nanoseconds.
        now: AtomicU64,
        /// What other threads do while one that accepts reads the clock.
        meanwhile: Mutex<Option<fn(&World)>>,
    }

    impl World {
        fn new(receivers: usize) -> Self {
            let queues = AcceptQueues::new(Arc::new(Alarms::new(receivers)));
            World { queues, ready: Arc::default(), now: AtomicU64::new(0), meanwhile: Mutex::default() }
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
        fn establish(&self, receiver: usize, ports: Range<u16>) {
            self.on(Some(receiver), |world| world.establish_here(ports));
        }

        fn establish_here(&self, ports: Range<u16>) {
            for port in ports {
                assert_eq!(self.queues.establish(child(port), true), Ok(()));
                self.ready.0.raise(Readiness::ACCEPTABLE);
            }
        }

        /// As a listener does.
        fn accept_here(&self) -> Option<u16> {
            if self.queues.waiting() == 0 {
                self.queues.ask();
                return None;
            }
            let now = || {
                let meanwhile = self.meanwhile.lock().expect("no panic").take();
                meanwhile.into_iter().for_each(|happens| happens(self));
                self.now.load(Ordering::Relaxed)
            };
            self.queues.accept_at(&self.ready.0, &now).map(|child| child.tuple().remote_port)
        }

        fn pass(&self, nanos: u64) {
            self.now.fetch_add(nanos, Ordering::Relaxed);
        }

        /// The ports of the next connections that this thread accepts.
        fn accept(&self, receiver: Option<usize>, count: usize) -> Vec<u16> {
            self.on(receiver, |world| {
                let next = |_| world.queues.accept(&world.ready.0).map(|child| child.tuple().remote_port);
                (0..count).map_while(next).collect()
            })
        }

        fn is_ready(&self) -> bool {
            self.ready.0.get().contains(Readiness::ACCEPTABLE)
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

    /// Two receive threads, both alive: `script` is called with what accepts so many times as one of them, and what queues
    /// connections from ports on one. Each accepts by [`AcceptQueues::ask`] where nothing waits, as a listener does.
    fn with_two_threads(script: impl FnOnce(&World, &dyn Fn(usize, usize) -> Vec<u16>, &dyn Fn(usize, Range<u16>))) {
        enum Order {
            Accept(usize),
            Establish(Range<u16>),
        }
        let world = World::new(2);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..2)
                .map(|receiver| {
                    let (orders, to_do) = mpsc::channel();
                    let (done, results) = mpsc::channel();
                    let world = &world;
                    scope.spawn(move || {
                        world.queues.alarms.run_here(receiver);
                        for order in to_do {
                            let mut ports = Vec::new();
                            match order {
                                Order::Accept(times) => ports.extend((0..times).filter_map(|_| world.accept_here())),
                                Order::Establish(range) => world.establish_here(range),
                            }
                            done.send(ports).expect("the test waits");
                        }
                    });
                    (orders, results)
                })
                .collect();
            let order = |receiver: usize, order| {
                workers[receiver].0.send(order).expect("the thread waits");
                workers[receiver].1.recv().expect("the thread answers")
            };
            // Both threads have begun: until then neither is known by its number.
            (0..2).for_each(|receiver| drop(order(receiver, Order::Establish(0..0))));
            script(&world, &|receiver, times| order(receiver, Order::Accept(times)), &|receiver, ports| {
                drop(order(receiver, Order::Establish(ports)))
            });
            drop(workers);
        });
    }

    /// Only a thread that does not keep up loses connections: here one that has not accepted for a while.
    #[test]
    fn a_connection_is_left_to_the_thread_that_received_it_if_that_accepts() {
        with_two_threads(|world, accept, establish| {
            establish(1, 20..21);
            assert_eq!(accept(1, 1), [20]);
            establish(1, 21..25);
            assert_eq!(accept(0, 1), [], "the other thread has accepted");
            world.pass(PATIENCE);
            assert!(world.is_ready());
            assert_eq!(accept(1, 1), [21]);
            assert_eq!(accept(0, 1), [], "it has again");
            world.pass(PATIENCE - 1);
            assert_eq!(accept(0, 1), [], "nor does one wait for long");
            world.pass(1);
            assert_eq!(accept(0, 9), [22, 23, 24]);
            assert!(!world.is_ready());
        });
    }

    /// Another thread was faster; and one that is no receive thread has queued a connection in the first queue meanwhile. A thread that asks
    /// for a connection gets it, although it has looked there before.
    #[test]
    fn a_thread_that_came_too_late_in_one_queue_looks_at_all_again() {
        with_two_threads(|world, accept, establish| {
            assert_eq!(accept(1, 1), []);
            establish(1, 20..21);
            assert_eq!(accept(0, 1), [], "it is left to the thread that received it");
            world.pass(PATIENCE);
            *world.meanwhile.lock().expect("no panic") = Some(|world| {
                assert!(world.queues.take(1).is_some());
                world.establish_here(30..31);
            });
            assert_eq!(accept(0, 1), [30]);
            assert!(!world.is_ready());
        });
    }

    /// A poll set is edge-triggered, and another thread may have taken the report of what is left to this one.
    #[test]
    fn a_connection_that_is_left_is_reported_again() {
        with_two_threads(|world, accept, establish| {
            let set = PollSet::new(false).expect("a set without a descriptor");
            let mut reported = Vec::new();
            let mut is_reported = || set.try_wait(&mut reported, 9) > 0;
            world.ready.0.register(&world.ready, &set, 7);
            assert_eq!(accept(1, 1), []);
            establish(1, 20..21);
            assert!(is_reported() && !is_reported());
            assert_eq!(accept(0, 1), []);
            assert!(is_reported());
            assert_eq!(accept(1, 1), [20]);
            assert!(!is_reported());
        });
    }

    /// The other way in which a thread does not keep up.
    #[test]
    fn a_long_queue_is_shortened_by_other_threads() {
        with_two_threads(|_, accept, establish| {
            assert_eq!(accept(1, 1), []);
            establish(1, 0..LONG_QUEUE as u16 + 1);
            assert_eq!(accept(0, 9), [0, 1]);
        });
    }

    /// It is about to take the first connection that it receives.
    #[test]
    fn a_thread_that_found_none_is_one_that_accepts() {
        with_two_threads(|_, accept, establish| {
            assert_eq!(accept(1, 1), []);
            establish(1, 20..21);
            establish(0, 10..11);
            assert_eq!((accept(0, 2), accept(1, 2)), (vec![10], vec![20]));
        });
    }

    /// It will not take them.
    #[test]
    fn what_waits_for_a_thread_that_has_ended_is_taken_at_once() {
        with_two_threads(|world, accept, establish| {
            assert_eq!(accept(1, 1), []);
            establish(1, 20..21);
            world.queues.alarms.leave(1);
            assert_eq!(accept(0, 1), [20]);
        });
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

    /// The others have turns, too: none has a second one before each had one.
    #[test]
    fn no_queue_waits_while_all_are_never_empty() {
        let world = World::new(4);
        world.establish(0, 1000..2000);
        let ports = [100..200, 200..300, 300..400];
        for (other, ports) in (1..).zip(&ports) {
            world.establish(other, ports.clone());
        }
        let accepted = world.accept(Some(0), ports.len() * OWN_IN_A_ROW);
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
        world.on(None, |world| assert_eq!(world.queues.establish(child(3), true), Ok(())));
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
        world.on(Some(0), |world| (0..2).for_each(|_| world.queues.abandon_handshake()));
        assert_eq!(world.queues.half_open(), 1);
        world.on(None, |world| world.queues.abandon_handshake());
        assert_eq!((world.queues.half_open(), world.queues.waiting()), (0, 0));
        assert_eq!(world.on(Some(0), |world| world.queues.begin_handshake()), 0);
        world.establish(1, 1..2);
        assert_eq!((world.queues.half_open(), world.queues.waiting()), (0, 1));
        assert_eq!(world.on(None, |world| world.queues.begin_handshake()), 0);
    }

    #[test]
    fn all_queues_close() {
        let world = World::new(2);
        world.establish(0, 1..2);
        world.establish(1, 2..4);
        assert_eq!((world.queues.close().len(), world.queues.waiting()), (3, 0));
        for receiver in [Some(0), Some(1), None] {
            assert_eq!(world.on(receiver, |world| world.queues.establish(child(9), true)), Err(Closed));
            assert_eq!(world.accept(receiver, 1), []);
        }
    }
}
