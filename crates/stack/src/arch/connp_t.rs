//! Connections served by protocol threads (Willmann, Rixner, Cox 2006, section 3.2.1: ConnP-T; DragonFly BSD).
//!
//! | cell | exclusive use by | thread | table | order |
//! |---|---|---|---|---|
//! | a shard of connections | message to its owner thread | pinned protocol threads | private, wildcards replicated | queue |
//!
//! # Model
//! N protocol threads, each with its own cell that no other thread ever touches. Receive threads send segments without
//! waiting; callers send requests and sleep until they are answered. A thread that asks itself runs the request at
//! once: a synchronous call to oneself would never be answered.
//!
//! # Two kinds of queue
//! [`QueueKind::Mutex`] is the paper's: a queue under a mutex, a condition variable, a wake for every message that
//! finds the thread asleep. [`QueueKind::Ring`] is the question that the papers left open: lock-free rings, and wakes
//! held back to the end of a receive batch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use observe::{DropReason, Time};
use sync::ring::Mpsc;
use sync::{
    Atomic, CachePadded, Condvar, Lock, LockClass, LockKind, Ordering, OwnerCell, Parker, Platform, model_is_over,
};

use super::{Architecture, Census};
use crate::after::After;
use crate::call::{Call, Control, Ingress, Reply};
use crate::connections::{Calls, Upkeep};
use crate::flow::{self, Target};
use crate::handoff::{Answer, Asker, Message, ReplySlot};
use crate::place::Cell;
use crate::shared::Shared;

/// Messages that a thread runs before it looks at its timers again (DragonFly: 512).
const ROUND: usize = 512;
/// Slots of a lock-free ring. A segment that finds it full is dropped and counted; a caller waits.
const RING: usize = 4096;
/// How messages reach a protocol thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueKind {
    /// A list under a mutex, with a condition variable.
    Mutex,
    /// A lock-free ring; wakes at the end of a batch.
    Ring,
}

/// The architecture `connp-t`.
pub struct ConnPT<P: Platform> {
    inner: Arc<Inner<P>>,
    threads: Lock<Vec<P::JoinHandle>, P>,
}

struct Inner<P: Platform> {
    shared: Arc<Shared<P>>,
    owners: Box<[CachePadded<Owner<P>>]>,
    /// Each owner has its own thread; without, the thread that ticks plays them all.
    own_threads: bool,
}

/// One protocol thread's cell and the way to it.
struct Owner<P: Platform> {
    cell: OwnerCell<Cell<P>, P>,
    queue: Queue<P>,
    deadline: P::AtomicU64,
    /// Sent and not yet run.
    pending: P::AtomicUsize,
    stop: P::AtomicBool,
}

enum Queue<P: Platform> {
    Mutex { list: Lock<VecDeque<Message<P>>, P>, arrived: Condvar<P> },
    Ring { ring: Mpsc<Message<P>, P>, parker: Parker<P> },
}

/// Messages that have been taken from the queue; they are no longer pending when this goes, also if one panicked.
struct Done<'a, P: Platform> {
    pending: &'a P::AtomicUsize,
    count: usize,
}

impl<P: Platform> Drop for Done<'_, P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.pending.fetch_sub(self.count, Ordering::AcqRel);
        }
    }
}

impl<P: Platform> ConnPT<P> {
    /// `count` protocol threads (at least 1), or as many cells played by whoever ticks.
    pub fn new(shared: &Arc<Shared<P>>, kind: QueueKind, count: usize, own_threads: bool) -> Self {
        let owner = |_| {
            CachePadded::new(Owner {
                cell: OwnerCell::new(Cell::new(shared)),
                queue: Queue::new(kind),
                deadline: P::AtomicU64::new(u64::MAX),
                pending: P::AtomicUsize::new(0),
                stop: P::AtomicBool::new(false),
            })
        };
        let owners = (0..count.max(1)).map(owner).collect();
        if own_threads {
            shared.alarms.timers_are_run_elsewhere();
        }
        let inner = Arc::new(Inner { shared: shared.clone(), owners, own_threads });
        let spawn = |index: usize| {
            let inner = inner.clone();
            P::spawn(&format!("heddle-pt{index}"), Some(index), move || inner.serve(index))
        };
        let handles = if own_threads { (0..count.max(1)).map(spawn).collect() } else { vec![] };
        ConnPT { inner, threads: Lock::new(LockKind::Blocking, LockClass::Control, handles) }
    }
}

impl<P: Platform> Queue<P> {
    fn new(kind: QueueKind) -> Self {
        match kind {
            QueueKind::Mutex => Queue::Mutex {
                list: Lock::new(LockKind::Blocking, LockClass::Handoff, VecDeque::new()),
                arrived: Condvar::new(),
            },
            QueueKind::Ring => Queue::Ring { ring: Mpsc::new(RING), parker: Parker::new() },
        }
    }

    /// Sends without waiting; gives the message back when a ring is full.
    fn send(&self, message: Message<P>, announce: bool) -> Result<(), Message<P>> {
        match self {
            Queue::Mutex { list, arrived } => {
                let mut list = list.lock();
                list.push_back(message);
                drop(list);
                arrived.notify_one();
            }
            Queue::Ring { ring, parker } => {
                ring.push(message).map_err(|full| full.0)?;
                if announce {
                    parker.unpark();
                }
            }
        }
        Ok(())
    }

    /// Wakes the owner for what the calling thread has sent without announcement.
    fn announce(&self) {
        if let Queue::Ring { parker, .. } = self {
            parker.unpark();
        }
    }

    /// Moves at most [`ROUND`] messages to `batch`. Only the owner calls it.
    fn take(&self, batch: &mut VecDeque<Message<P>>) {
        match self {
            Queue::Mutex { list, .. } => {
                let mut list = list.lock();
                if list.len() <= ROUND {
                    std::mem::swap(&mut *list, batch);
                } else {
                    batch.extend(list.drain(..ROUND));
                }
            }
            Queue::Ring { ring, .. } => {
                while batch.len() < ROUND {
                    let Some(message) = ring.pop() else { break };
                    batch.push_back(message);
                }
            }
        }
    }

    /// Sleeps until a message comes or `timeout` has passed. Only the owner calls it.
    fn wait(&self, stop: &P::AtomicBool, timeout: Option<Duration>) {
        match self {
            Queue::Mutex { list, arrived } => {
                let list = list.lock();
                // Looked at behind the lock as `wake` goes through it: who stops this thread is seen here, or sees it
                // asleep.
                if list.is_empty() && !stop.load(Ordering::Acquire) {
                    drop(match timeout {
                        Some(timeout) => arrived.wait_timeout(list, timeout),
                        None => arrived.wait(list),
                    });
                }
            }
            Queue::Ring { ring, parker } => {
                if ring.is_empty() {
                    parker.park(timeout);
                }
            }
        }
    }

    fn wake(&self) {
        match self {
            Queue::Mutex { list, arrived } => {
                // Behind the lock, or an owner that has looked and not yet slept would miss it.
                drop(list.lock());
                arrived.notify_one();
            }
            Queue::Ring { parker, .. } => {
                parker.unpark();
            }
        }
    }
}

impl<P: Platform> Inner<P> {
    /// A protocol thread: messages in order, then timers, then sleep.
    fn serve(&self, index: usize) {
        let owner = &self.owners[index];
        let bound = owner.cell.bind_here();
        debug_assert!(bound.is_ok(), "a protocol thread's cell is its own");
        let mut batch = VecDeque::new();
        while !owner.stop.load(Ordering::Acquire) {
            let (failures, counters) = (&self.shared.failures, &self.shared.counters);
            let round = failures.survive(counters, || self.round(owner, self.shared.clock.now(), &mut batch));
            // What a panic has left of the batch is run in the next round.
            if round == Some(false) {
                let deadline = owner.deadline.load(Ordering::Relaxed);
                let nap = (deadline != u64::MAX).then(|| Time::from_nanos(deadline) - self.shared.clock.now());
                owner.queue.wait(&owner.stop, nap);
            }
        }
        let _ = owner.cell.release();
    }

    /// Runs what waits for `owner`, and its timers; the calling thread owns the cell. False: there was nothing.
    fn round(&self, owner: &Owner<P>, now: Time, batch: &mut VecDeque<Message<P>>) -> bool {
        if batch.is_empty() {
            owner.queue.take(batch);
        }
        let mut done = Done::<P> { pending: &owner.pending, count: 0 };
        let mut after = After::default();
        // Between two messages the cell is let go: who is told of the first may call this thread's cell from here.
        while let Some(message) = batch.pop_front() {
            done.count += 1;
            sync::walk::note(file!(), "the protocol thread takes the message");
            let answer = owner.cell.with(|cell| message.run(cell, now, &mut after));
            debug_assert!(answer.is_ok(), "only the owner runs its rounds");
            after.perform(&self.shared);
            answer.ok().flatten().into_iter().for_each(Answer::give);
        }
        let ran = owner.cell.with(|cell| {
            // By the bound that is shown to the drivers, which a cancelled timer leaves too early until timers run.
            if cell.deadline_nanos() <= now.as_nanos() {
                cell.timers(now, &mut after);
            }
            owner.deadline.store(cell.deadline_nanos(), Ordering::Relaxed);
        });
        debug_assert!(ran.is_ok(), "only the owner runs its rounds");
        after.perform(&self.shared);
        done.count != 0
    }

    fn send(&self, owner: &Owner<P>, message: Message<P>, announce: bool) -> Result<(), Message<P>> {
        sync::walk::note(file!(), "sends a message to the protocol thread that owns the flow");
        owner.pending.fetch_add(1, Ordering::AcqRel);
        let sent = owner.queue.send(message, announce);
        match sent {
            Ok(()) => sync::profile::handoff::<P>(1),
            Err(_) => {
                owner.pending.fetch_sub(1, Ordering::AcqRel);
            }
        }
        sent
    }

    /// Sends a request and sleeps until it is answered.
    fn ask(&self, owner: &Owner<P>, message: impl FnOnce(Asker<P>) -> Message<P>) -> Reply {
        let slot = ReplySlot::new();
        let mut message = message(Asker::new(&slot));
        while let Err(back) = self.send(owner, message, true) {
            message = back;
            owner.queue.wake();
            P::yield_now();
        }
        if !self.own_threads && owner.cell.bind_here().is_ok() {
            // Only the one that is asked: another may be in the middle of a round, further up this thread's stack.
            let mut batch = VecDeque::new();
            while self.round(owner, self.shared.clock.now(), &mut batch) {}
        }
        slot.wait()
    }

    /// Without threads of their own, the calling thread plays all owners until none has work.
    fn play(&self, now: Time) {
        let mut batch = VecDeque::new();
        loop {
            let mut worked = false;
            for owner in &self.owners {
                if owner.cell.bind_here().is_ok() {
                    worked |= self.round(owner, now, &mut batch);
                }
            }
            if !worked {
                return;
            }
        }
    }

    fn owner(&self, hash: u32) -> &Owner<P> {
        &self.owners[flow::index(hash, self.owners.len())]
    }
}

impl<P: Platform> Architecture<P> for ConnPT<P> {
    #[inline]
    fn post(&self, ingress: &mut Ingress, _now: Time, after: &mut After<P>) {
        let index = flow::index(ingress.hash(), self.inner.owners.len());
        let owner = &self.inner.owners[index];
        after.announce(index);
        if self.inner.send(owner, Message::Ingress(std::mem::take(ingress)), false).is_err() {
            self.inner.shared.counters.drop(DropReason::RxRingFull);
        }
    }

    fn end_of_batch(&self, after: &mut After<P>) {
        let sent = after.take_announcements();
        if sent == 0 {
            return;
        }
        for (index, owner) in self.inner.owners.iter().enumerate() {
            if sent & (1 << (index & 63)) != 0 {
                owner.queue.announce();
            }
        }
    }

    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        let inner = &self.inner;
        let owner = inner.owner(target.hash);
        if owner.cell.owner() == Some(P::thread_index()) {
            let mut after = After::default();
            let now = inner.shared.clock.now();
            let own = owner.cell.with(|cell| cell.call(target, call, now, &mut after, reply));
            after.perform(&inner.shared);
            if own.is_ok() {
                return;
            }
        }
        *reply = inner.ask(owner, |asker| Message::Call(*target, call.take(), asker));
    }

    fn control(&self, change: Control<P>) {
        // Every owner answers for its replica before this returns: nobody can find a stale listener afterwards.
        for owner in &self.inner.owners {
            let own = owner.cell.owner() == Some(P::thread_index());
            let mut after = After::default();
            let now = self.inner.shared.clock.now();
            if !own || owner.cell.with(|cell| cell.control(change.clone(), now, &mut after)).is_err() {
                self.inner.ask(owner, |asker| Message::Control(change.clone(), asker));
            }
            after.perform(&self.inner.shared);
        }
    }

    fn tick(&self, now: Time) {
        if !self.inner.own_threads {
            self.inner.play(now);
        }
    }

    fn retire(&self) {
        if self.inner.own_threads {
            return;
        }
        for owner in &self.inner.owners {
            // Refused where the calling thread does not play this owner.
            let _ = owner.cell.release();
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        if self.inner.own_threads {
            return None;
        }
        let earliest = self.inner.owners.iter().map(|owner| owner.deadline.load(Ordering::Relaxed)).min()?;
        (earliest != u64::MAX).then(|| Time::from_nanos(earliest))
    }

    fn is_quiescent(&self) -> bool {
        self.inner.owners.iter().all(|owner| owner.pending.load(Ordering::Acquire) == 0)
    }

    fn census(&self) -> Census {
        let mut sum = Census::default();
        for owner in &self.inner.owners {
            let own = owner.cell.owner() == Some(P::thread_index());
            match own.then(|| owner.cell.with(|cell| cell.census())) {
                Some(Ok(census)) => sum.add(&census),
                _ => {
                    if let Reply::Census(census) = self.inner.ask(owner, Message::Census) {
                        sum.add(&census);
                    }
                }
            }
        }
        sum
    }

    fn shutdown(&self) {
        for owner in &self.inner.owners {
            owner.stop.store(true, Ordering::Release);
            owner.queue.wake();
        }
        for handle in std::mem::take(&mut *self.threads.lock()) {
            // A thread that panicked has said so already.
            let _ = P::join(handle);
        }
    }
}
