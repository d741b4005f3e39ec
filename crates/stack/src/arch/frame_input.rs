//! An input of workers: frames as they were received, taken by any of its workers, one at a time.
//!
//! Receive threads put frames here without examining them; a worker takes the next one and carries it up to its
//! connection. One worker carries them in the order of arrival. Several overtake each other unless there are *arrival
//! tickets*: a worker draws a number under the lock of the input, where the order of arrival is known, and waits for
//! its turn before it uses a connection ([`FrameInput::turn`]): so events run in the order of arrival, whatever the
//! workers do between.
//!
//! Tickets are per *lane*, chosen by the hash of the flow, so that connections seldom wait for each other. Frames without a
//! flow share the first lane.
//!
//! What may never happen: a frame in the input, a worker asleep, and no thread about to wake it; a ticket that is drawn
//! after the lock was released; a ticket whose turn is never passed on, so that all later frames of its lane wait.

use std::collections::VecDeque;
use std::sync::Arc;

use observe::{Counters, Time};
use path::StackInput;
use sync::{
    Atomic, CachePadded, Lock, LockClass, LockKind, OnceBox, Ordering, Parker, PerThread, PlantedMistake, Platform,
    Turnstile, model_is_over, yield_until,
};

use super::RunningArchitecture;
use crate::charge;
use crate::deferred::DeferredEffects;
use crate::flow;

/// Lanes of arrival tickets.
const LANES: usize = 16;
/// The thread carries no frame with a ticket.
const NOTHING: u64 = u64::MAX;

/// The number of frames that a receive thread takes from a queue in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameBound {
    /// No more than this; at least 1.
    AtMost(usize),
    /// All that the queue has.
    All,
}

/// A frame on its way from a receive thread to a worker.
pub struct ArrivedFrame {
    /// The interface at which it arrived.
    pub interface: usize,
    /// The frame, as it was received.
    pub input: StackInput,
    /// The time of its batch.
    pub now: Time,
    /// The hash of its flow, if it has one: frames of one flow keep their order.
    pub hash: Option<u32>,
}

/// Carries frames from the device up to [`RunningArchitecture::post`]. One for each worker.
pub trait CarriesFrames<P: Platform>: Send {
    /// Carries one frame. Drops are counted in `counters`.
    fn carry(
        &mut self,
        frame: ArrivedFrame,
        active: &dyn RunningArchitecture<P>,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    );
}

/// Makes the carrier for the frames of a worker.
pub type CarrierMaker<P> = Box<dyn Fn() -> Box<dyn CarriesFrames<P>> + Send + Sync>;

/// See the head of this file.
pub struct FrameInput<P: Platform> {
    queue: Lock<WaitingFrames, P>,
    /// The most frames that wait. Later ones are dropped and counted, like segments for a full ring.
    most: usize,
    /// One turnstile for each lane; empty: no arrival tickets.
    lanes: Box<[Turnstile<P>]>,
    /// One for each worker; empty: the receive threads do the workers' work.
    workers: Box<[CachePadded<Parker<P>>]>,
    /// The number of waiting frames. A hint for workers before they sleep; written under the lock.
    waiting: CachePadded<P::AtomicUsize>,
    /// Frames that were put here and have not been carried to the end.
    unfinished: CachePadded<P::AtomicUsize>,
    stop: P::AtomicBool,
    maker: OnceBox<CarrierMaker<P>>,
    /// The ticket of the frame that a thread carries: its lane in the upper half, or [`NOTHING`].
    carried: PerThread<CarriedTicket<P>, P>,
}

/// The state under the lock of the input.
struct WaitingFrames {
    frames: VecDeque<ArrivedFrame>,
    /// Workers that sleep, or are about to; the last to come is the first to be woken.
    idle: Vec<usize>,
    /// The next ticket of each lane.
    next: [u32; LANES],
}

struct CarriedTicket<P: Platform>(P::AtomicU64);

impl<P: Platform> FrameInput<P> {
    /// An empty input for `workers` threads, in which `most` frames may wait; without workers, receive threads take the frames
    /// themselves. `ordered`: with arrival tickets.
    pub fn new(kind: LockKind, workers: usize, most: usize, ordered: bool) -> Arc<Self> {
        let queue = WaitingFrames { frames: VecDeque::new(), idle: Vec::new(), next: [0; LANES] };
        Arc::new(FrameInput {
            queue: Lock::new(kind, LockClass::Handoff, queue),
            most,
            lanes: (0..if ordered { LANES } else { 0 }).map(|_| Turnstile::new(workers)).collect(),
            workers: (0..workers).map(|_| CachePadded::new(Parker::new())).collect(),
            waiting: CachePadded::new(P::AtomicUsize::new(0)),
            unfinished: CachePadded::new(P::AtomicUsize::new(0)),
            stop: P::AtomicBool::new(false),
            maker: OnceBox::new(),
            carried: PerThread::new(|_| CarriedTicket(P::AtomicU64::new(NOTHING))),
        })
    }

    /// Whether threads of the architecture's own take the frames. Otherwise, and once these have been stopped, the receive
    /// thread that has put frames here takes them out, and carries them.
    #[inline]
    pub fn has_workers(&self) -> bool {
        !self.workers.is_empty() && !self.is_stopped()
    }

    /// Sets the carrier of frames, unless it is set already.
    pub fn carry_by(&self, maker: impl FnOnce() -> CarrierMaker<P>) {
        self.maker.get_or_init(|| Box::new(maker()));
    }

    /// The carrier for the frames of one worker; `None` before a receive thread has set it.
    pub fn carrier(&self) -> Option<Box<dyn CarriesFrames<P>>> {
        self.maker.get().map(|make| make())
    }

    /// Puts a batch of frames here, in the order in which they were received, and wakes a worker. `frames` is empty
    /// afterwards. Returns the number of frames that did not fit. The caller holds no guard.
    pub fn put(&self, frames: &mut Vec<ArrivedFrame>) -> usize {
        let mut queue = self.queue.lock();
        let room = self.most - queue.frames.len();
        let count = frames.len().min(room);
        let refused = frames.len() - count;
        for frame in frames.drain(..).take(count) {
            queue.frames.push_back(frame);
            charge::shared_frame::<P, _>(queue.frames.back(), true);
        }
        if refused > 0 {
            queue.frames.back_mut().into_iter().for_each(|last| last.input.end_run());
        }
        // Under the lock: a frame that can be taken is counted.
        self.unfinished.fetch_add(count, Ordering::AcqRel);
        self.waiting.store(queue.frames.len(), Ordering::Relaxed);
        let idle = if count == 0 { None } else { queue.idle.pop() };
        drop(queue);
        sync::profile::handoff::<P>(count as u64);
        self.wake(idle);
        refused
    }

    /// Takes the next frame, and with it a ticket. The caller holds no guard.
    #[inline]
    pub fn take(&self) -> Option<TakenFrame<'_, P>> {
        let mut queue = self.queue.lock();
        charge::shared_frame::<P, _>(queue.frames.front(), false);
        let frame = queue.frames.pop_front()?;
        self.waiting.store(queue.frames.len(), Ordering::Relaxed);
        // Each worker that finds more wakes the next, so as many wake as there is work for.
        let idle = if queue.frames.is_empty() { None } else { queue.idle.pop() };
        if P::makes(PlantedMistake::TicketAfterRelease) {
            drop(queue);
            queue = self.queue.lock();
        }
        let mut ticket = NOTHING;
        if !self.lanes.is_empty() {
            let lane = frame.hash.map_or(0, |hash| flow::index(hash, LANES));
            let next = &mut queue.next[lane];
            ticket = (lane as u64) << 32 | u64::from(*next);
            *next = next.wrapping_add(1);
        }
        drop(queue);
        self.carried.here().0.store(ticket, Ordering::Relaxed);
        self.wake(idle);
        Some(TakenFrame { input: self, frame: Some(frame) })
    }

    fn wake(&self, idle: Option<usize>) {
        if let Some(worker) = idle {
            self.workers[worker].unpark();
        }
    }

    /// Waits until the frame that the calling thread carries has its turn. The turn passes on when the value is dropped.
    /// `None`: the thread carries none, or there are no tickets. The caller holds no guard.
    #[inline]
    pub fn turn(&self) -> Option<ArrivalTurn<'_, P>> {
        if self.lanes.is_empty() {
            return None;
        }
        let carried = &self.carried.here().0;
        let (lane, ticket) = match carried.load(Ordering::Relaxed) {
            NOTHING => return None,
            carried => (&self.lanes[(carried >> 32) as usize], carried as u32),
        };
        carried.store(NOTHING, Ordering::Relaxed);
        lane.wait(ticket);
        Some(ArrivalTurn { lane, ticket })
    }

    /// Worker `worker` sleeps until there are frames, or [`FrameInput::stop`] was called. Returns whether it should go on.
    pub fn wait(&self, worker: usize) -> bool {
        yield_until::<P>(|| self.waiting.load(Ordering::Relaxed) != 0 || self.stop.load(Ordering::Acquire));
        let mut queue = self.queue.lock();
        // `stop` is set under the lock: either it is seen here, or the thread that sets it finds this worker idle.
        if self.stop.load(Ordering::Acquire) {
            return false;
        }
        if queue.frames.is_empty() || P::makes(PlantedMistake::IdleDespiteWork) {
            queue.idle.push(worker);
            drop(queue);
            self.workers[worker].park(None);
        }
        !self.stop.load(Ordering::Acquire)
    }

    /// Ends the waiting of all workers, which stop with the frame that they carry.
    pub fn stop(&self) {
        let mut queue = self.queue.lock();
        self.stop.store(true, Ordering::Release);
        let idle = std::mem::take(&mut queue.idle);
        drop(queue);
        idle.into_iter().for_each(|worker| self.wake(Some(worker)));
    }

    /// Whether [`FrameInput::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Whether every frame that was put here has been carried to the end.
    pub fn is_empty(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0
    }
}

/// A frame that a thread carries. Dropped when it has been carried to the end, also by a panic: its turn passes on then,
/// if no event has used it.
pub struct TakenFrame<'a, P: Platform> {
    input: &'a FrameInput<P>,
    /// The frame, until it is carried.
    pub frame: Option<ArrivedFrame>,
}

impl<P: Platform> Drop for TakenFrame<'_, P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        drop(self.input.turn());
        self.input.unfinished.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The turn of a frame among those of its lane.
pub struct ArrivalTurn<'a, P: Platform> {
    lane: &'a Turnstile<P>,
    ticket: u32,
}

impl<P: Platform> Drop for ArrivalTurn<'_, P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.lane.pass(self.ticket);
        }
    }
}
