//! One direction of a link in memory: the rings from every transmit queue to every receive queue, and the wake-up of
//! receivers.
//!
//! Each pair of transmit queue i and receive queue j has its own ring, so a ring has one producer and one consumer and
//! needs no lock, and frames of transmit queue i for receive queue j cannot overtake each other. Receive queue j polls
//! its N rings in turn.
//!
//! A receiver that finds all its rings empty may sleep. It first sets its `sleeping` flag, then checks once more; a
//! sender pushes first and checks the flag afterwards, once per batch. With a full fence between the two steps on each
//! side at least one of them sees the other, so a frame never waits for a sleeping receiver, and an awake receiver
//! costs the sender one load of an unmodified cache line. The receiver's fence is the heavy one: it executes once a
//! sleep, the senders' once a batch or call.
//!
//! The receivers that a sender has given frames to, and not yet notified, are kept beside its rings; the doorbells are
//! shared, so that receivers can be notified without the sender.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pktbuf::PktBuf;
use sync::ring::spsc::{self, Consumer, Producer};
use sync::{Atomic, CachePadded, Object, Parker, Platform, model_is_over};

use crate::{BitSet, Notify, WaitOutcome, Wake};

/// The sleep of one receive queue, and its state that senders read.
pub struct RxDoorbell<P: Platform> {
    sleeping: CachePadded<P::AtomicBool>,
    woken: P::AtomicBool,
    /// Transmit queues still alive; at zero nothing more can arrive.
    senders: P::AtomicUsize,
    /// The receive queue has been dropped: no frame will be taken out.
    closed: P::AtomicBool,
    parker: Parker<P>,
}

impl<P: Platform> RxDoorbell<P> {
    fn new(senders: usize) -> RxDoorbell<P> {
        RxDoorbell {
            sleeping: CachePadded::new(P::AtomicBool::new(false)),
            woken: P::AtomicBool::new(false),
            senders: P::AtomicUsize::new(senders),
            closed: P::AtomicBool::new(false),
            parker: Parker::new(),
        }
    }

    /// Wakes the receiver if it has announced that it sleeps. The caller has a light fence between its pushes and this.
    fn ring(&self) {
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::AcqRel) {
            self.parker.ring();
        }
    }
}

impl<P: Platform> Wake for RxDoorbell<P> {
    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        P::light_fence();
        self.ring();
    }
}

/// The doorbells of one direction, without a queue of it.
struct Notifier<P: Platform>(Arc<[Arc<RxDoorbell<P>>]>);

impl<P: Platform> Notify for Notifier<P> {
    fn notify(&self, dirty: &BitSet) {
        notify(&self.0, dirty);
    }
}

/// Wakes the receivers in a set. Numbers beyond the receivers are ignored. Usually no receiver sleeps, and nothing is
/// called.
#[inline]
fn notify<P: Platform>(doorbells: &[Arc<RxDoorbell<P>>], dirty: &BitSet) {
    if dirty.is_empty() {
        return;
    }
    P::light_fence();
    let Some(mut mask) = dirty.as_mask() else { return ring_all(doorbells, dirty) };
    while mask != 0 {
        let queue = mask.trailing_zeros() as usize;
        if doorbells.get(queue).is_some_and(|doorbell| doorbell.sleeping.load(Ordering::Relaxed)) {
            return ring_all(doorbells, dirty);
        }
        mask &= mask - 1;
    }
}

#[cold]
#[inline(never)]
fn ring_all<P: Platform>(doorbells: &[Arc<RxDoorbell<P>>], dirty: &BitSet) {
    dirty.for_each(|queue| {
        if let Some(doorbell) = doorbells.get(queue) {
            doorbell.ring();
        }
    });
}

/// Makes one direction with `queues` queues at each end and rings of `ring_frames` frames.
pub fn channel<P: Platform>(queues: usize, ring_frames: usize) -> (Vec<LinkTx<P>>, Vec<LinkRx<P>>) {
    let doorbells: Arc<[Arc<RxDoorbell<P>>]> = (0..queues).map(|_| Arc::new(RxDoorbell::new(queues))).collect();
    let mut consumers: Vec<Vec<Consumer<PktBuf, P>>> = (0..queues).map(|_| Vec::with_capacity(queues)).collect();
    let mut senders = Vec::with_capacity(queues);
    for _ in 0..queues {
        let mut rings = Vec::with_capacity(queues);
        for consumer in &mut consumers {
            let (tx, rx) = spsc::channel(ring_frames);
            rings.push(tx);
            consumer.push(rx);
        }
        let enough = rings.first().map_or(0, Producer::capacity).div_ceil(2);
        senders.push(LinkTx { rings, doorbells: doorbells.clone(), dirty: BitSet::new(), room: Cell::new(0), enough });
    }
    let receivers = consumers
        .into_iter()
        .zip(doorbells.iter())
        .map(|(rings, doorbell)| LinkRx { rings, next: 0, doorbell: doorbell.clone() })
        .collect();
    (senders, receivers)
}

/// The sending end of a direction: transmit queue i.
pub struct LinkTx<P: Platform> {
    rings: Vec<Producer<PktBuf, P>>,
    doorbells: Arc<[Arc<RxDoorbell<P>>]>,
    /// Receive queues that were given frames since they were last notified.
    dirty: BitSet,
    /// At least this many frames fit into every ring.
    room: Cell<usize>,
    /// The rings are read again when `room` falls below this.
    enough: usize,
}

impl<P: Platform> LinkTx<P> {
    /// Reports to a platform that charges for memory that a thread changes what is kept beside the rings.
    #[inline(always)]
    fn charge(&self) {
        if P::CHARGED {
            P::touch(Object::Ring, std::ptr::from_ref(self).cast(), size_of::<Self>(), true);
        }
    }

    /// Appends a frame to the ring to `queue`.
    #[inline(always)]
    pub fn push(&mut self, queue: usize, frame: PktBuf) -> Result<(), PktBuf> {
        self.charge();
        match self.rings[queue].push(frame) {
            Ok(()) => {
                self.dirty.insert(queue);
                self.room.set(self.room.get().saturating_sub(1));
                Ok(())
            }
            Err(full) => Err(full.0),
        }
    }

    /// [`LinkTx::push`], and then [`LinkTx::take_dirty`], but the receiver of this frame is in `dirty` only if it may sleep:
    /// otherwise it looks for frames before it does, and is not to be notified.
    #[inline(always)]
    pub fn push_and_look(&mut self, queue: usize, frame: PktBuf, dirty: &mut BitSet) -> Result<(), PktBuf> {
        self.charge();
        self.rings[queue].push(frame).map_err(|full| full.0)?;
        self.room.set(self.room.get().saturating_sub(1));
        P::light_fence();
        if self.doorbells[queue].sleeping.load(Ordering::Relaxed) {
            dirty.insert(queue);
        }
        if !self.dirty.is_empty() {
            self.take_dirty(dirty);
        }
        Ok(())
    }

    /// Free places in the ring to `queue`, counted exactly if fewer than `wanted` seemed free.
    #[inline]
    pub fn room_for(&mut self, queue: usize, wanted: usize) -> usize {
        self.rings[queue].room(wanted)
    }

    /// Appends the frames of `next` to the ring to `queue` until it has none, or the ring has no room, or `most` were
    /// appended. `next` is not asked for a frame that would have no room. The receiver sees them all at once.
    #[inline(always)]
    pub fn push_each(&mut self, queue: usize, most: usize, next: impl FnMut() -> Option<PktBuf>) {
        self.charge();
        let pushed = self.rings[queue].push_each(most, next);
        if pushed > 0 {
            self.dirty.insert(queue);
            self.room.set(self.room.get().saturating_sub(pushed));
        }
    }

    /// Wakes the sleeping receivers of the frames pushed since the last call.
    #[inline]
    pub fn notify(&mut self) {
        notify(&self.doorbells, &self.dirty);
        self.dirty.clear();
    }

    /// Moves the receivers of the frames pushed since the last call into `dirty`; the caller notifies them.
    #[inline]
    pub fn take_dirty(&mut self, dirty: &mut BitSet) {
        self.dirty.move_to(dirty);
    }

    /// A handle that notifies receivers.
    pub fn notifier(&self) -> Arc<dyn Notify> {
        Arc::new(Notifier(self.doorbells.clone()))
    }

    /// Free places in the fullest ring, or fewer: that many frames fit whichever queues they are for.
    ///
    /// A push takes one place in one ring, so an earlier count stays valid if it is decremented for each push; the
    /// consumers' words are read only when half of the places may be used.
    pub fn credit(&self) -> usize {
        if self.room.get() < self.enough {
            let free = |ring: &Producer<PktBuf, P>| ring.capacity() - ring.len_hint();
            self.room.set(self.rings.iter().map(free).min().unwrap_or(0));
        }
        self.room.get()
    }

    /// Whether the receive queue still exists.
    #[inline]
    pub fn is_open(&self, queue: usize) -> bool {
        !self.doorbells[queue].closed.load(Ordering::Relaxed)
    }
}

impl<P: Platform> Drop for LinkTx<P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        for doorbell in self.doorbells.iter() {
            doorbell.senders.fetch_sub(1, Ordering::AcqRel);
        }
        P::light_fence();
        for doorbell in self.doorbells.iter() {
            doorbell.ring();
        }
    }
}

/// The receiving end of a direction: receive queue j.
pub struct LinkRx<P: Platform> {
    rings: Vec<Consumer<PktBuf, P>>,
    next: usize,
    doorbell: Arc<RxDoorbell<P>>,
}

impl<P: Platform> LinkRx<P> {
    /// Takes one frame, from the ring whose turn it is or the next that has one. The turn passes on when a ring is
    /// found empty, or after [`LinkRx::yield_turn`].
    #[inline]
    pub fn pop(&mut self) -> Option<PktBuf> {
        for _ in 0..self.rings.len() {
            if let Some(frame) = self.rings[self.next].pop() {
                return Some(frame);
            }
            self.yield_turn();
        }
        None
    }

    /// Whether there is one ring, and it is empty.
    #[inline(always)]
    pub fn is_only_ring_empty(&mut self) -> bool {
        if let [ring] = &mut self.rings[..] { ring.is_empty() } else { false }
    }

    /// Moves frames to the end of `batch`, at most `most`, and none after the first for which `special` is true: that one is
    /// returned. Each ring has its turn once at most.
    #[inline]
    pub fn pop_each(
        &mut self,
        batch: &mut Vec<PktBuf>,
        most: usize,
        special: impl Fn(&PktBuf) -> bool,
    ) -> Option<PktBuf> {
        let (mut left, mut found) = (most, None);
        for _ in 0..self.rings.len() {
            left -= self.rings[self.next].pop_each(left, |frame| {
                if special(&frame) {
                    found = Some(frame);
                    return false;
                }
                batch.push(frame);
                true
            });
            if left == 0 || found.is_some() {
                break;
            }
            self.yield_turn();
        }
        found
    }

    /// Passes the turn to the next ring: called at the end of a batch, so that one busy ring cannot starve the others.
    #[inline]
    pub fn yield_turn(&mut self) {
        self.next += 1;
        if self.next == self.rings.len() {
            self.next = 0;
        }
    }

    /// Whether a frame can be taken.
    pub fn is_ready(&mut self) -> bool {
        self.rings.iter_mut().any(|ring| !ring.is_empty())
    }

    /// Whether all senders are gone and all rings are empty.
    pub fn is_gone(&self) -> bool {
        // The order matters: once a sender is seen to be dropped, its pushes are visible.
        self.doorbell.senders.load(Ordering::Acquire) == 0 && self.rings.iter().all(|ring| ring.len_hint() == 0)
    }

    /// Sleeps until a frame arrives, a wake, the end of the link or the timeout.
    pub fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        if let Some(outcome) = self.outcome() {
            return outcome;
        }
        let deadline = timeout.map(|timeout| P::now().saturating_add(timeout.as_nanos() as u64));
        loop {
            self.doorbell.sleeping.store(true, Ordering::Relaxed);
            P::heavy_fence();
            if let Some(outcome) = self.outcome() {
                self.doorbell.sleeping.store(false, Ordering::Relaxed);
                return outcome;
            }
            let left = deadline.map(|deadline| Duration::from_nanos(deadline.saturating_sub(P::now())));
            if left == Some(Duration::ZERO) {
                self.doorbell.sleeping.store(false, Ordering::Relaxed);
                return WaitOutcome::TimedOut;
            }
            self.doorbell.parker.park(left);
        }
    }

    fn outcome(&mut self) -> Option<WaitOutcome> {
        if self.is_ready() {
            Some(WaitOutcome::Ready)
        } else if self.doorbell.woken.load(Ordering::Relaxed) && self.doorbell.woken.swap(false, Ordering::AcqRel) {
            Some(WaitOutcome::Woken)
        } else if self.is_gone() {
            Some(WaitOutcome::Gone)
        } else {
            None
        }
    }

    /// A handle with which any thread wakes the receiver.
    pub fn waker(&self) -> Arc<dyn Wake> {
        self.doorbell.clone()
    }
}

impl<P: Platform> Drop for LinkRx<P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.doorbell.closed.store(true, Ordering::Release);
        }
    }
}
