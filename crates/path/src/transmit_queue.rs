//! A device's transmit queue behind a lock, for any thread, with what waits for room in it.
//!
//! # Waiting for room
//! A sender asks for the [credit](TransmitQueue::credit) first: how many frames it may send now. One that finds none leaves a
//! value `W` that names it ([`TransmitQueue::wait_for_room`]) and is named in turn when there is room again
//! ([`TransmitQueue::next_with_room`]), longest waiting first. That keeps rings short. Frames that are sent all the same,
//! because several threads spend the same credit at once or ask for none, wait here, in front of all later ones, up to a
//! limit.
//!
//! # Order
//! Frames that one thread gives reach the device in that order, and frames of different threads in the order of the lock.
//!
//! # What may never happen
//! A receiver is woken with the lock held: receivers to wake are left in a [`Dirty`], for [`TransmitQueue::notify`].

use std::collections::VecDeque;
use std::sync::Arc;

use dev::{BitSet, Notify, TxQueue};
use observe::{Counters, DropReason};
use pktbuf::PktBuf;
use sync::{Atomic, Lock, LockClass, LockKind, Ordering, Platform};

use crate::Dirty;

/// Frames kept free in a device queue for senders that ask for no credit and for threads that read it at the same time; no
/// more than a quarter of the queue, for a queue that has room for half or more need not say how much.
const RESERVE: usize = 48;
/// Frames that may wait for room in a device beyond its own ring.
const MOST_WAITING: usize = 4096;

/// See the head of the file. `W` names a sender that waits for room.
pub struct TransmitQueue<P: Platform, W> {
    state: Lock<State<W>, P>,
    /// Frames that may be sent now; a hint, refreshed at each transmission.
    credit: P::AtomicUsize,
    /// Of these, how many senders that ask leave alone.
    reserve: usize,
    /// Length of `State::blocked`.
    blocked: P::AtomicUsize,
    /// Notifies receivers without the lock, where the device can.
    notifier: Option<Arc<dyn Notify>>,
    number: usize,
}

struct State<W> {
    queue: Box<dyn TxQueue>,
    /// Frames that found no room, ahead of all later ones.
    waiting: VecDeque<PktBuf>,
    /// Senders that found no credit.
    blocked: VecDeque<W>,
}

impl<W> State<W> {
    #[inline]
    fn transmit(&mut self, frame: PktBuf, counters: &Counters) {
        if !self.waiting.is_empty() {
            return self.transmit_behind(frame, counters);
        }
        if let Err(frame) = self.queue.transmit(frame) {
            self.waiting.push_back(frame);
        }
    }

    /// Frames wait: this one comes after them.
    #[cold]
    fn transmit_behind(&mut self, frame: PktBuf, counters: &Counters) {
        self.waiting.push_back(frame);
        self.drain();
        self.shed(counters);
    }

    /// Gives the device what waits for it.
    #[inline]
    fn drain(&mut self) {
        if !self.waiting.is_empty() {
            self.queue.transmit_batch(&mut self.waiting);
        }
    }

    /// Drops the frames beyond the limit, last come first.
    #[cold]
    fn shed(&mut self, counters: &Counters) {
        while self.waiting.len() > MOST_WAITING {
            self.waiting.pop_back();
            counters.drop(DropReason::TxRingFull);
        }
    }

    #[inline]
    fn credit(&self) -> usize {
        if self.waiting.is_empty() { self.queue.credit() } else { 0 }
    }
}

impl<P: Platform, W> TransmitQueue<P, W> {
    /// A device's queue, which is empty. `number` names it in a [`Dirty`]: no other queue that is collected in the same one
    /// has it.
    pub fn new(queue: Box<dyn TxQueue>, lock: LockKind, number: usize) -> Self {
        let (credit, notifier) = (queue.credit(), queue.notifier());
        let state = State { queue, waiting: VecDeque::new(), blocked: VecDeque::new() };
        TransmitQueue {
            state: Lock::new(lock, LockClass::DeviceTx, state),
            credit: P::AtomicUsize::new(credit),
            // Nothing has been sent yet: what there is room for now is all that there ever is.
            reserve: RESERVE.min(credit / 4),
            blocked: P::AtomicUsize::new(0),
            notifier,
            number,
        }
    }

    /// Its number in a [`Dirty`].
    #[inline]
    pub fn number(&self) -> usize {
        self.number
    }

    /// How many frames a sender that waits for room may send now.
    #[inline]
    pub fn credit(&self) -> usize {
        self.credit.load(Ordering::Relaxed).saturating_sub(self.reserve)
    }

    /// Gives the device frames, all under one lock.
    #[inline]
    pub fn transmit(&self, frames: impl IntoIterator<Item = PktBuf>, counters: &Counters, dirty: &mut Dirty) {
        self.with_queue(dirty, |state| {
            state.waiting.extend(frames);
            state.drain();
            if state.waiting.len() > MOST_WAITING {
                state.shed(counters);
            }
        });
    }

    /// [`TransmitQueue::transmit`] for one frame.
    #[inline]
    pub fn transmit_one(&self, frame: PktBuf, counters: &Counters, dirty: &mut Dirty) {
        self.with_queue(dirty, |state| state.transmit(frame, counters));
    }

    #[inline]
    fn with_queue(&self, dirty: &mut Dirty, give: impl FnOnce(&mut State<W>)) {
        let mut state = self.state.lock();
        let state = &mut *state;
        give(state);
        self.credit.store(state.credit(), Ordering::Relaxed);
        state.queue.take_dirty(dirty.receivers_of(self.number));
    }

    /// Notifies the receivers in `dirty` of what they were sent; also the others, where the device cannot tell them apart. The
    /// caller holds no guard.
    #[inline]
    pub fn notify(&self, dirty: &BitSet) {
        match &self.notifier {
            Some(notifier) => notifier.notify(dirty),
            None => self.flush(),
        }
    }

    /// Tells the device that it was given frames.
    pub fn flush(&self) {
        self.state.lock().queue.flush();
    }

    /// A sender has found no credit: it will be named by [`TransmitQueue::next_with_room`].
    pub fn wait_for_room(&self, sender: W) {
        let mut state = self.state.lock();
        state.blocked.push_back(sender);
        self.blocked.store(state.blocked.len(), Ordering::Relaxed);
    }

    /// Whether senders wait for room.
    #[inline]
    pub fn has_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed) != 0
    }

    /// Whether senders, or frames, may be waiting for room: nobody tells when there is some, so somebody has to look.
    #[inline]
    pub fn may_wait(&self) -> bool {
        self.has_blocked() || self.credit.load(Ordering::Relaxed) == 0
    }

    /// Takes the sender that has waited longest, if the device has room again.
    pub fn next_with_room(&self) -> Option<W> {
        let mut state = self.state.lock();
        state.drain();
        let credit = state.credit();
        self.credit.store(credit, Ordering::Relaxed);
        if credit <= self.reserve {
            return None;
        }
        let sender = state.blocked.pop_front();
        self.blocked.store(state.blocked.len(), Ordering::Relaxed);
        sender
    }

    /// Gives the device what waits for room in it. Whether something did: it is to be flushed.
    pub fn drain(&self) -> bool {
        // No credit is left while something waits, so the hint tells without the lock.
        if self.credit.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let mut state = self.state.lock();
        let waited = !state.waiting.is_empty();
        state.drain();
        self.credit.store(state.credit(), Ordering::Relaxed);
        waited
    }
}
