//! Own it or queue for it: Solaris' serialisation queues (FireEngine; `squeue.c`).
//!
//! | cell | exclusive use by | thread | table | order |
//! |---|---|---|---|---|
//! | a shard | a flag: own-it-or-queue | whoever holds it, or its worker | buckets | queue |
//!
//! # Model
//! A small lock guards the queue and the flag and nothing else; the *flag* is the ownership of the cell. Who finds the
//! flag free and the queue empty may run its own event at once; who does not, queues it behind the others. So all
//! events of a shard, in both directions, run in the order of one queue.
//!
//! # Modes
//! The mode says what a thread does that brings a segment, and nobody waits for. `fill` always queues it and leaves the
//! work to the shard's worker. `nodrain` runs it if it can, and leaves what arrived meanwhile to the worker. `process`
//! drains what arrived meanwhile, too, up to a bound in events and time, and leaves only the rest to the worker.
//!
//! A user's call is not of that kind: its caller sleeps until it is done. Solaris lets such operations past the queue in
//! every mode (`squeue_synch_enter`): who finds the flag free and the queue empty takes the flag and runs the call on
//! the spot, and only who does not is queued. So does this file, `fill` included: there it is *asynchronous* events that
//! always wait for the worker. The order is that of the queue all the same, because nobody passes what stands in it.
//! A write is taken the same way, for its caller must be told how much of it was; Solaris would send it after the mode.
//!
//! # What may never happen
//! The queue is not empty, nobody runs, and no wake of the worker is pending: every path that gives up the flag with
//! work left wakes the worker first. A thread that is not the worker never drains more than the bound.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use observe::Time;
use sync::{Atomic, CachePadded, GateCell, Lock, LockClass, Ordering, Parker, Platform, model_is_over};

use super::{Architecture, Census};
use crate::after::After;
use crate::call::{Call, Control, Ingress, Reply};
use crate::connections::{Calls, Upkeep};
use crate::containment::attempt;
use crate::flow::{self, Target};
use crate::handoff::{Asker, Message, ReplySlot};
use crate::place::Cell;
use crate::shared::Shared;

/// The most events that a thread which is not the worker drains for others. Solaris bounds by 20 ms only.
const DRAIN_EVENTS: usize = 256;
/// The longest that such a thread drains for (Solaris: 20 ms).
const DRAIN_TIME: Duration = Duration::from_millis(20);
/// What the thread that brings an event does with the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Queue what nobody waits for, and leave it to the worker (`SQ_FILL`).
    Fill,
    /// Run one's own event if the shard is free (`SQ_NODRAIN`).
    NoDrain,
    /// Run one's own event, then what arrived meanwhile, up to the bound (`SQ_PROCESS`).
    Process,
}

/// The architecture `squeue`.
pub struct Squeues<P: Platform> {
    inner: Arc<Inner<P>>,
    workers: Lock<Vec<P::JoinHandle>, P>,
}

struct Inner<P: Platform> {
    shared: Arc<Shared<P>>,
    mode: Mode,
    /// Each shard has its own thread; without, whoever asks or ticks does the worker's part.
    has_workers: bool,
    queues: Box<[CachePadded<Squeue<P>>]>,
}

struct Squeue<P: Platform> {
    state: Lock<State<P>, P>,
    /// Entered by whoever has set `State::running`.
    cell: GateCell<Cell<P>, P>,
    worker: Parker<P>,
    deadline: P::AtomicU64,
    stop: P::AtomicBool,
}

struct State<P: Platform> {
    queue: VecDeque<Message<P>>,
    running: bool,
    /// Who runs, while somebody does.
    runner: usize,
}

impl<P: Platform> State<P> {
    /// The calling thread takes the flag, which is free.
    #[inline]
    fn take(&mut self) {
        self.running = true;
        self.runner = P::thread_index();
    }

    /// Whether the calling thread has the flag, further up its stack: it is telling somebody of an event, and that one
    /// calls. It has left the cell for that.
    #[inline]
    fn is_own(&self) -> bool {
        self.running && self.runner == P::thread_index()
    }
}

/// The flag, in the hands of a thread that is running something. If that panics, the flag is given up and the worker woken
/// for what is left; else nothing happens here, and the thread gives it up by [`Inner::leave`].
struct Running<'a, P: Platform> {
    squeue: &'a Squeue<P>,
    /// Taken from the queue and not run yet.
    batch: VecDeque<Message<P>>,
}

impl<'a, P: Platform> Running<'a, P> {
    /// The calling thread has the flag of `squeue`.
    #[inline]
    fn new(squeue: &'a Squeue<P>) -> Self {
        Running { squeue, batch: VecDeque::new() }
    }

    /// Nothing has panicked.
    #[inline]
    fn goes_on(mut self) {
        drop(std::mem::take(&mut self.batch));
        std::mem::forget(self);
    }
}

impl<P: Platform> Drop for Running<'_, P> {
    #[cold]
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        let mut state = self.squeue.state.lock();
        while let Some(message) = self.batch.pop_back() {
            state.queue.push_front(message);
        }
        state.running = false;
        drop(state);
        self.squeue.worker.unpark();
    }
}

/// What events have left to do: done when the cell has been let go, also if the last of them panics.
struct Owed<'a, P: Platform> {
    after: After<P>,
    shared: &'a Shared<P>,
}

impl<P: Platform> Drop for Owed<'_, P> {
    #[inline]
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        if std::thread::panicking() {
            let _ = attempt(|| self.after.perform(self.shared));
        } else {
            self.after.perform(self.shared);
        }
    }
}

impl<P: Platform> Squeues<P> {
    /// `count` shards. With `workers`, each has its own thread, pinned; without, [`Architecture::tick`] drains.
    pub fn new(shared: &Arc<Shared<P>>, mode: Mode, count: usize, workers: bool) -> Self {
        let squeue = |_| {
            let state = State { queue: VecDeque::new(), running: false, runner: 0 };
            CachePadded::new(Squeue {
                state: Lock::new(shared.lock_kind, LockClass::Squeue, state),
                cell: GateCell::new(Cell::new(shared)),
                worker: Parker::new(),
                deadline: P::AtomicU64::new(u64::MAX),
                stop: P::AtomicBool::new(false),
            })
        };
        let queues = (0..count.max(1)).map(squeue).collect();
        let inner = Arc::new(Inner { shared: shared.clone(), mode, has_workers: workers, queues });
        let handles =
            if workers { (0..count.max(1)).map(|index| spawn_worker(&inner, index)).collect() } else { vec![] };
        let workers = Lock::new(sync::LockKind::Blocking, LockClass::Control, handles);
        Squeues { inner, workers }
    }
}

fn spawn_worker<P: Platform>(inner: &Arc<Inner<P>>, index: usize) -> P::JoinHandle {
    let inner = inner.clone();
    P::spawn(&format!("heddle-sq{index}"), Some(index), move || inner.work(index))
}

impl<P: Platform> Inner<P> {
    /// Enters the shard with a message: runs it here if the mode and the shard allow, else queues it.
    fn enter(&self, index: usize, message: Message<P>, mode: Mode, now: Time, after: &mut After<P>) {
        let squeue = &self.queues[index];
        let mut state = squeue.state.lock();
        if mode == Mode::Fill || state.running || !state.queue.is_empty() {
            state.queue.push_back(message);
            let idle = !state.running;
            drop(state);
            sync::profile::handoff::<P>(1);
            if idle {
                squeue.worker.unpark();
            }
            return;
        }
        state.take();
        drop(state);
        let running = Running::new(squeue);
        self.run(squeue, message, now, after);
        running.goes_on();
        self.leave(squeue, mode == Mode::Process);
    }

    /// Runs a message in the cell, and answers who waits; the caller has set the flag. What is left to do stays in
    /// `after` unless somebody waits for it.
    #[inline]
    fn run(&self, squeue: &Squeue<P>, message: Message<P>, now: Time, after: &mut After<P>) {
        if let Some(answer) = self.occupy(squeue, |cell| message.run(cell, now, after)) {
            after.perform(&self.shared);
            answer.give();
        }
    }

    /// Runs `f` in the cell; the caller has set the flag.
    #[inline]
    fn occupy<R>(&self, squeue: &Squeue<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> R {
        let mut cell = squeue.cell.try_enter().expect("the flag admits one runner");
        let result = f(&mut cell);
        squeue.deadline.store(cell.deadline_nanos(), Ordering::Relaxed);
        result
    }

    fn process<R>(&self, squeue: &Squeue<P>, f: impl FnOnce(&mut Cell<P>, &mut After<P>) -> R) -> R {
        let mut owed = Owed { after: After::default(), shared: &self.shared };
        self.occupy(squeue, |cell| f(cell, &mut owed.after))
    }

    /// Gives up the flag, after draining if asked to. Work that is left is the worker's, and the worker is woken.
    fn leave(&self, squeue: &Squeue<P>, drain: bool) {
        let start = if drain { self.shared.clock.now() } else { Time::ZERO };
        let mut left = if drain { DRAIN_EVENTS } else { 0 };
        loop {
            let mut state = squeue.state.lock();
            if state.queue.is_empty() {
                state.running = false;
                return;
            }
            if left == 0 {
                state.running = false;
                drop(state);
                squeue.worker.unpark();
                return;
            }
            let message = state.queue.pop_front();
            drop(state);
            let now = self.shared.clock.now();
            if let Some(message) = message {
                let running = Running::new(squeue);
                let mut after = After::default();
                self.run(squeue, message, now, &mut after);
                after.perform(&self.shared);
                running.goes_on();
            }
            left = if now - start > DRAIN_TIME { 0 } else { left - 1 };
        }
    }

    /// Takes the flag if it is free, drains everything and runs due timers. The worker's turn, or a tick's.
    fn drain(&self, squeue: &Squeue<P>, now: Time) {
        let mut state = squeue.state.lock();
        if state.running {
            // Whoever runs sees the queue when it leaves.
            return;
        }
        state.take();
        let mut running = Running::new(squeue);
        running.batch = std::mem::take(&mut state.queue);
        drop(state);
        loop {
            self.run_all(squeue, &mut running.batch, now);
            let mut state = squeue.state.lock();
            if state.queue.is_empty() {
                state.running = false;
                return running.goes_on();
            }
            std::mem::swap(&mut state.queue, &mut running.batch);
        }
    }

    /// Runs a batch and due timers; the caller has set the flag. The cell is let go only where somebody waits for an
    /// answer, and at the end.
    fn run_all(&self, squeue: &Squeue<P>, batch: &mut VecDeque<Message<P>>, now: Time) {
        loop {
            let answer = self.process(squeue, |cell, after| {
                while let Some(message) = batch.pop_front() {
                    if let Some(answer) = message.run(cell, now, after) {
                        return Some(answer);
                    }
                }
                // By the bound that is shown to the drivers, which a cancelled timer leaves too early until timers run.
                if cell.deadline_nanos() <= now.as_nanos() {
                    cell.timers(now, after);
                }
                None
            });
            match answer {
                Some(answer) => answer.give(),
                None => return,
            }
        }
    }

    /// Waits for the flag and runs `f`: for the control plane, which is in no hurry.
    fn seize<R>(&self, squeue: &Squeue<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> R {
        loop {
            let mut state = squeue.state.lock();
            if state.is_own() {
                drop(state);
                return self.process(squeue, |cell, _| f(cell));
            }
            if !state.running {
                state.take();
                break;
            }
            drop(state);
            P::yield_now();
        }
        let running = Running::new(squeue);
        let result = self.process(squeue, |cell, _| f(cell));
        running.goes_on();
        self.leave(squeue, false);
        result
    }

    fn work(&self, index: usize) {
        let squeue = &self.queues[index];
        while !squeue.stop.load(Ordering::Acquire) {
            let (failures, counters) = (&self.shared.failures, &self.shared.counters);
            // A panic has woken this thread for what it left, if it left anything.
            failures.survive(counters, || self.drain(squeue, self.shared.clock.now()));
            // Timers are the business of whoever ticks; a worker is woken for work only.
            squeue.worker.park(None);
        }
    }

    fn ask(&self, index: usize, mode: Mode, message: impl FnOnce(Asker<P>) -> Message<P>) -> Reply {
        let slot = ReplySlot::new();
        let mut after = After::default();
        self.enter(index, message(Asker::new(&slot)), mode, self.shared.clock.now(), &mut after);
        after.perform(&self.shared);
        if !self.has_workers {
            self.drain(&self.queues[index], self.shared.clock.now());
        }
        slot.wait()
    }

    /// A user's call: taken straight if the shard is free (`squeue_synch_enter`), in every mode; else queued, and the caller
    /// sleeps.
    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        let index = target.index(self.queues.len());
        let squeue = &self.queues[index];
        let mut state = squeue.state.lock();
        let own = state.is_own();
        if own || (!state.running && state.queue.is_empty()) {
            state.take();
            drop(state);
            let now = self.shared.clock.now();
            let running = (!own).then(|| Running::new(squeue));
            self.process(squeue, |cell, after| cell.call(target, call, now, after, reply));
            running.into_iter().for_each(Running::goes_on);
            if !own {
                self.leave(squeue, self.mode == Mode::Process);
            }
            return;
        }
        drop(state);
        *reply = self.ask(index, self.mode, |asker| Message::Call(*target, call.take(), asker));
    }
}

impl<P: Platform> Architecture<P> for Squeues<P> {
    fn post(&self, ingress: &mut Ingress, now: Time, after: &mut After<P>) {
        let index = flow::index(ingress.hash(), self.inner.queues.len());
        self.inner.enter(index, Message::Ingress(std::mem::take(ingress)), self.inner.mode, now, after);
    }

    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        self.inner.call(target, call, reply);
    }

    fn control(&self, change: Control<P>) {
        for (index, squeue) in self.inner.queues.iter().enumerate() {
            let own = squeue.state.lock().is_own();
            if own {
                let now = self.inner.shared.clock.now();
                self.inner.process(squeue, |cell, after| cell.control(change.clone(), now, after));
            } else {
                self.inner.ask(index, self.inner.mode, |asker| Message::Control(change.clone(), asker));
            }
        }
    }

    fn tick(&self, now: Time) {
        for squeue in &self.inner.queues {
            let due = squeue.deadline.load(Ordering::Relaxed) <= now.as_nanos();
            if due || (!self.inner.has_workers && !squeue.state.lock().queue.is_empty()) {
                self.inner.drain(squeue, now);
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let earliest = self.inner.queues.iter().map(|squeue| squeue.deadline.load(Ordering::Relaxed)).min()?;
        (earliest != u64::MAX).then(|| Time::from_nanos(earliest))
    }

    fn is_quiescent(&self) -> bool {
        self.inner.queues.iter().all(|squeue| {
            let state = squeue.state.lock();
            !state.running && state.queue.is_empty()
        })
    }

    fn census(&self) -> Census {
        let mut sum = Census::default();
        for squeue in &self.inner.queues {
            sum.add(&self.inner.seize(squeue, |cell| cell.census()));
        }
        sum
    }

    fn shutdown(&self) {
        for squeue in &self.inner.queues {
            squeue.stop.store(true, Ordering::Release);
            squeue.worker.unpark();
        }
        for handle in std::mem::take(&mut *self.workers.lock()) {
            // A thread that panicked has said so already.
            let _ = P::join(handle);
        }
    }
}
