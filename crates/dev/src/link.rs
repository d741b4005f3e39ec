//! One direction of a link in memory: the rings from every transmit queue to every receive queue, and the bells.
//!
//! There is a ring of its own from each transmit queue i to each receive queue j, so a ring has one producer and one
//! consumer and needs no lock, and frames of transmit queue i for receive queue j cannot overtake each other. Receive
//! queue j polls its N rings in turn.
//!
//! A receiver that finds all its rings empty may sleep. It first raises its `sleeping` flag, then looks once more; a
//! sender pushes first and looks at the flag afterwards, once per batch. With a full fence between the two steps on
//! each side at least one of them sees the other, so a frame is never left lying before a sleeping receiver, and a
//! receiver that is awake costs the sender one load of a line that nobody writes. The receiver's fence is the heavy one:
//! it comes there once a sleep, its senders once a batch, or once a call.
//!
//! What a sender touched is kept beside its rings; the bells are shared, so they can be rung without the sender.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pktbuf::PktBuf;
use sync::ring::spsc::{self, Consumer, Producer};
use sync::{Atomic, CachePadded, Parker, Platform, model_is_over};

use crate::{Bells, WaitOutcome, Wake};

/// Most queue pairs a port in memory may have: a transmit queue notes the receivers to wake in one word.
pub const MAX_QUEUES: usize = 64;

/// Where one receive queue sleeps.
pub struct Bell<P: Platform> {
    sleeping: CachePadded<P::AtomicBool>,
    woken: P::AtomicBool,
    /// Transmit queues still alive; at zero nothing more can arrive.
    senders: P::AtomicUsize,
    /// The receive queue has been dropped: nothing will ever be taken out.
    closed: P::AtomicBool,
    parker: Parker<P>,
}

impl<P: Platform> Bell<P> {
    fn new(senders: usize) -> Bell<P> {
        Bell {
            sleeping: CachePadded::new(P::AtomicBool::new(false)),
            woken: P::AtomicBool::new(false),
            senders: P::AtomicUsize::new(senders),
            closed: P::AtomicBool::new(false),
            parker: Parker::new(),
        }
    }

    /// Wakes the receiver if it has said that it sleeps. The caller has a light fence between its pushes and this.
    fn ring(&self) {
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::AcqRel) {
            self.parker.unpark();
        }
    }
}

impl<P: Platform> Wake for Bell<P> {
    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        P::light_fence();
        self.ring();
    }
}

/// The bells of one direction, for whoever holds no queue of it.
struct Shared<P: Platform>(Arc<[Arc<Bell<P>>]>);

impl<P: Platform> Bells for Shared<P> {
    fn ring(&self, touched: u64) {
        ring(&self.0, touched);
    }
}

/// Rings the bells named by bits. A bit beyond the bells names none.
#[inline]
fn ring<P: Platform>(bells: &[Arc<Bell<P>>], mut touched: u64) {
    if touched == 0 {
        return;
    }
    P::light_fence();
    while touched != 0 {
        let queue = touched.trailing_zeros() as usize;
        touched &= touched - 1;
        if let Some(bell) = bells.get(queue) {
            bell.ring();
        }
    }
}

/// Makes one direction with `queues` queues at each end and rings of `ring_frames` frames.
pub fn channel<P: Platform>(queues: usize, ring_frames: usize) -> (Vec<LinkTx<P>>, Vec<LinkRx<P>>) {
    let bells: Arc<[Arc<Bell<P>>]> = (0..queues).map(|_| Arc::new(Bell::new(queues))).collect();
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
        senders.push(LinkTx { rings, bells: bells.clone(), touched: 0, room: Cell::new(0), enough });
    }
    let receivers = consumers
        .into_iter()
        .zip(bells.iter())
        .map(|(rings, bell)| LinkRx { rings, next: 0, bell: bell.clone() })
        .collect();
    (senders, receivers)
}

/// The sending end of a direction: transmit queue i.
pub struct LinkTx<P: Platform> {
    rings: Vec<Producer<PktBuf, P>>,
    bells: Arc<[Arc<Bell<P>>]>,
    /// Bit j: something was pushed for receive queue j since its bell was last looked at.
    touched: u64,
    /// At least so many frames fit into every ring.
    room: Cell<usize>,
    /// The rings are looked at again when `room` falls below this.
    enough: usize,
}

impl<P: Platform> LinkTx<P> {
    /// Appends a frame to the ring to `queue`.
    #[inline]
    pub fn push(&mut self, queue: usize, frame: PktBuf) -> Result<(), PktBuf> {
        match self.rings[queue].push(frame) {
            Ok(()) => {
                self.touched |= 1 << queue;
                self.room.set(self.room.get().saturating_sub(1));
                Ok(())
            }
            Err(full) => Err(full.0),
        }
    }

    /// Wakes the receivers of what was pushed since the last call, those of them that sleep.
    #[inline]
    pub fn ring_bells(&mut self) {
        let touched = self.take_touched();
        ring(&self.bells, touched);
    }

    /// The receivers whose bells are to be rung for what was pushed since the last call; whoever asks rings them.
    #[inline]
    pub fn take_touched(&mut self) -> u64 {
        std::mem::take(&mut self.touched)
    }

    /// The bells of all receivers.
    pub fn bells(&self) -> Arc<dyn Bells> {
        Arc::new(Shared(self.bells.clone()))
    }

    /// Free places in the fullest ring, or fewer: so many frames fit whichever queues they are for.
    ///
    /// A push takes one place in one ring, so a count made earlier stays good when it is lowered by one per push; the
    /// consumers' words are read only when half of the places may be gone.
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
        !self.bells[queue].closed.load(Ordering::Relaxed)
    }
}

impl<P: Platform> Drop for LinkTx<P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        for bell in self.bells.iter() {
            bell.senders.fetch_sub(1, Ordering::AcqRel);
        }
        P::light_fence();
        for bell in self.bells.iter() {
            bell.ring();
        }
    }
}

/// The receiving end of a direction: receive queue j.
pub struct LinkRx<P: Platform> {
    rings: Vec<Consumer<PktBuf, P>>,
    next: usize,
    bell: Arc<Bell<P>>,
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

    /// Lets the next ring have its turn: called at the end of a batch, so that one busy ring cannot starve the others.
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
        // The order matters: what a sender pushed before it went is seen once its going is seen.
        self.bell.senders.load(Ordering::Acquire) == 0 && self.rings.iter().all(|ring| ring.len_hint() == 0)
    }

    /// Sleeps until a frame, a wake, the end of the link or the timeout.
    pub fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        if let Some(outcome) = self.outcome() {
            return outcome;
        }
        let deadline = timeout.map(|timeout| P::now().saturating_add(timeout.as_nanos() as u64));
        loop {
            self.bell.sleeping.store(true, Ordering::Relaxed);
            P::heavy_fence();
            if let Some(outcome) = self.outcome() {
                self.bell.sleeping.store(false, Ordering::Relaxed);
                return outcome;
            }
            let left = deadline.map(|deadline| Duration::from_nanos(deadline.saturating_sub(P::now())));
            if left == Some(Duration::ZERO) {
                self.bell.sleeping.store(false, Ordering::Relaxed);
                return WaitOutcome::TimedOut;
            }
            self.bell.parker.park(left);
        }
    }

    fn outcome(&mut self) -> Option<WaitOutcome> {
        if self.is_ready() {
            Some(WaitOutcome::Ready)
        } else if self.bell.woken.load(Ordering::Relaxed) && self.bell.woken.swap(false, Ordering::AcqRel) {
            Some(WaitOutcome::Woken)
        } else if self.is_gone() {
            Some(WaitOutcome::Gone)
        } else {
            None
        }
    }

    /// The bell, for others to ring.
    pub fn waker(&self) -> Arc<dyn Wake> {
        self.bell.clone()
    }
}

impl<P: Platform> Drop for LinkRx<P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.bell.closed.store(true, Ordering::Release);
        }
    }
}
