//! A device's transmit queue behind a lock, for any thread, with the frames and senders that wait for room.
//!
//! # Waiting for room
//! A sender first reads the [credit](TransmitQueue::credit): how many frames it may send now. Without credit it leaves
//! a value `W` that names it ([`TransmitQueue::wait_for_room`]). When there is room again, senders are named
//! ([`TransmitQueue::pop_ready_sender`]), longest waiting first. That keeps rings short. A sender is queued once,
//! however often it finds no credit meanwhile. It is named when there is room for several frames, because one turn for
//! each free frame would cost more than the frames. Frames that are sent without credit, because several threads spend
//! the same credit at once or ignore it, wait here, ahead of all later ones, up to a limit.
//!
//! # Order
//! Frames of one thread reach the device in the order of its calls, and frames of different threads in the order of the
//! lock.
//!
//! # Claims
//! A thread that does all work of a stack [claims](TransmitQueue::claim) the queue and uses it without a lock from then
//! on. Other threads leave their frames as mail for the claimant, which gives them to the device when it serves the
//! queue ([`TransmitQueue::drain`]). A claim may be [bounded](TransmitQueue::claim_until): it ends once others have left much.
//!
//! # What may never happen
//! A frame stays in the mail after the claim has ended, or is overtaken there by a later frame of its sender. A receiver
//! is woken with the lock held: receivers to wake are recorded in a [`Dirty`], for [`TransmitQueue::notify`].

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use dev::{BitSet, Notify, TxQueue};
use observe::{Counters, DropReason};
use pktbuf::PktBuf;
use sync::{Atomic, ClaimLock, Claimed, Lock, LockClass, LockKind, Ordering, Platform};

use crate::Dirty;

/// Frames kept free in a device queue for senders that ignore the credit and for threads that read it at the same time;
/// at most a quarter of the queue, because a queue with room for half or more need not report how much.
const RESERVE: usize = 48;
/// A waiting sender is named when there is room for this many frames, or for a quarter of a smaller queue's usable
/// room.
const MIN_ROOM: usize = 32;
/// It is named with less room after this many checks: the device may be slow, or others may send.
const MAX_SKIPS: u32 = 8;
/// Memory for more senders than this is released when none waits any more.
const SHRINK_ABOVE: usize = 64;
/// Frames that may wait for room in a device beyond its own ring.
const MOST_WAITING: usize = 4096;

/// See the head of the file. `W` names a sender that waits for room.
///
/// Laid out by use: a transmission reads and writes the first line and, by the claim, the second; the rest is for
/// senders that wait and threads that have no claim.
#[repr(C, align(64))]
pub struct TransmitQueue<P: Platform, W> {
    /// Frames that may be sent now; a hint, refreshed at each transmission.
    credit: P::AtomicUsize,
    /// Frames of the credit that are kept in reserve.
    reserve: usize,
    /// Length of `QueueState::blocked`.
    blocked: P::AtomicUsize,
    number: usize,
    /// Notifies receivers without the lock, where the device can.
    notifier: Option<Arc<dyn Notify>>,
    /// The room needed before a waiting sender is named.
    turn: usize,
    /// The mail is not empty.
    has_mail: P::AtomicBool,
    /// Others have left as much as the claim allows.
    is_crowded: P::AtomicBool,
    state: ClaimLock<QueueState<W>, P>,
    /// Messages for the thread that has claimed the queue.
    mail: Lock<Mail<W>, P>,
}

#[repr(C)]
struct QueueState<W> {
    queue: Box<dyn TxQueue>,
    /// Frames that found no room, ahead of all later ones.
    waiting: VecDeque<PktBuf>,
    blocked: Blocked<W>,
    /// Frames and senders that others may leave before the claim ends.
    most_mail: usize,
}

/// Senders without credit, each once, longest waiting first.
struct Blocked<W> {
    queue: VecDeque<(u64, W)>,
    /// Their numbers.
    numbers: HashSet<u64>,
    /// How many times there was room for a frame, but not for a turn, since a sender was named.
    passed_over: u32,
}

impl<W> Blocked<W> {
    fn push(&mut self, number: u64, sender: W) {
        if self.numbers.insert(number) {
            self.queue.push_back((number, sender));
        }
    }

    /// The next sender, if the room of `room` frames suffices; `wanted` is the room needed for a turn.
    fn pop(&mut self, room: usize, wanted: usize) -> Option<W> {
        if room == 0 {
            return None;
        }
        if room < wanted && self.passed_over < MAX_SKIPS {
            self.passed_over += 1;
            return None;
        }
        self.passed_over = 0;
        let (number, sender) = self.queue.pop_front()?;
        self.numbers.remove(&number);
        if self.queue.is_empty() && self.queue.capacity() > SHRINK_ABOVE {
            *self = Blocked::default();
        }
        Some(sender)
    }
}

impl<W> Default for Blocked<W> {
    fn default() -> Self {
        Blocked { queue: VecDeque::new(), numbers: HashSet::new(), passed_over: 0 }
    }
}

/// Work of other threads for the claimant.
struct Mail<W> {
    frames: Vec<PktBuf>,
    blocked: Vec<(u64, W)>,
}

impl<W> Default for Mail<W> {
    fn default() -> Self {
        Mail { frames: Vec::new(), blocked: Vec::new() }
    }
}

impl<W> Mail<W> {
    fn put(&mut self, frame: PktBuf, counters: &Counters) {
        if self.frames.len() < MOST_WAITING {
            self.frames.push(frame);
        } else {
            counters.count_drop(DropReason::TxRingFull);
        }
    }
}

impl<W> QueueState<W> {
    /// Gives the device one frame, and records its receivers. Returns the credit that is left.
    #[inline(always)]
    fn transmit(&mut self, frame: PktBuf, counters: &Counters, receivers: &mut BitSet) -> usize {
        if !self.waiting.is_empty() {
            return self.transmit_behind(frame, counters, receivers);
        }
        match self.queue.transmit_one(frame, receivers) {
            Ok(credit) => credit,
            Err(frame) => self.keep(frame, receivers),
        }
    }

    /// There is no room: the frame waits. Frames that were mail may have been sent just before.
    #[cold]
    fn keep(&mut self, frame: PktBuf, receivers: &mut BitSet) -> usize {
        self.waiting.push_back(frame);
        self.queue.take_dirty(receivers);
        0
    }

    /// Frames wait: this one comes after them.
    #[cold]
    fn transmit_behind(&mut self, frame: PktBuf, counters: &Counters, receivers: &mut BitSet) -> usize {
        self.waiting.push_back(frame);
        self.drain();
        self.shed(counters);
        self.queue.take_dirty(receivers);
        self.credit()
    }

    /// Gives the waiting frames to the device.
    #[inline]
    fn drain(&mut self) {
        if !self.waiting.is_empty() {
            self.queue.transmit_batch(&mut self.waiting);
        }
    }

    /// Drops the frames beyond the limit, the latest first.
    #[cold]
    fn shed(&mut self, counters: &Counters) {
        while self.waiting.len() > MOST_WAITING {
            self.waiting.pop_back();
            counters.count_drop(DropReason::TxRingFull);
        }
    }

    #[inline]
    fn credit(&self) -> usize {
        if self.waiting.is_empty() { self.queue.credit() } else { 0 }
    }
}

impl<P: Platform, W> TransmitQueue<P, W> {
    /// A device's queue, which is empty. `number` names it in a [`Dirty`], unique among the queues recorded there.
    pub fn new(queue: Box<dyn TxQueue>, lock: LockKind, number: usize) -> Self {
        let (credit, notifier) = (queue.credit(), queue.notifier());
        let state = QueueState { queue, waiting: VecDeque::new(), blocked: Blocked::default(), most_mail: usize::MAX };
        // Nothing has been sent yet: the room now is the queue's whole capacity.
        let reserve = RESERVE.min(credit / 4);
        TransmitQueue {
            credit: P::AtomicUsize::new(credit),
            reserve,
            blocked: P::AtomicUsize::new(0),
            number,
            notifier,
            turn: MIN_ROOM.min((credit - reserve) / 4).max(1),
            has_mail: P::AtomicBool::new(false),
            is_crowded: P::AtomicBool::new(false),
            state: ClaimLock::new(lock, LockClass::DeviceTx, state),
            mail: Lock::new(LockKind::Blocking, LockClass::TransmitMail, Mail::default()),
        }
    }

    /// Its number in a [`Dirty`].
    #[inline]
    pub fn number(&self) -> usize {
        self.number
    }

    /// How many frames a sender that respects the credit may send now.
    #[inline]
    pub fn credit(&self) -> usize {
        self.credit.load(Ordering::Relaxed).saturating_sub(self.reserve)
    }

    /// Gives the device frames, all under one lock.
    #[inline]
    pub fn transmit(&self, frames: impl IntoIterator<Item = PktBuf>, counters: &Counters, dirty: &mut Dirty) {
        let Ok(mut state) = self.state.enter() else {
            return self.leave(dirty, |mail| frames.into_iter().for_each(|frame| mail.put(frame, counters)));
        };
        self.deliver_mail(&mut state);
        state.waiting.extend(frames);
        state.drain();
        if state.waiting.len() > MOST_WAITING {
            state.shed(counters);
        }
        self.given(&mut state, dirty);
    }

    /// [`TransmitQueue::transmit`] for one frame. Always inlined: nearly every frame of a connection takes it.
    #[inline(always)]
    pub fn transmit_one(&self, frame: PktBuf, counters: &Counters, dirty: &mut Dirty) {
        match self.state.enter_by_claim() {
            Some(mut state) => self.give_one(&mut state, frame, counters, dirty),
            None => self.transmit_one_by_lock(frame, counters, dirty),
        }
    }

    #[inline(never)]
    fn transmit_one_by_lock(&self, frame: PktBuf, counters: &Counters, dirty: &mut Dirty) {
        match self.state.enter() {
            Ok(mut state) => self.give_one(&mut state, frame, counters, dirty),
            Err(Claimed) => self.leave(dirty, |mail| mail.put(frame, counters)),
        }
    }

    #[inline(always)]
    fn give_one(&self, state: &mut QueueState<W>, frame: PktBuf, counters: &Counters, dirty: &mut Dirty) {
        self.deliver_mail(state);
        let credit = state.transmit(frame, counters, dirty.receivers());
        self.credit.store(credit, Ordering::Relaxed);
        // Usually all receivers are awake and no sender waits, so nothing is to be notified.
        if self.notifier.is_none() || dirty.has_receivers() || credit == 0 || self.has_blocked() || self.has_mail() {
            dirty.mark(self.number);
        } else {
            sync::walk::note(file!(), "its receiver is awake: no notification is needed");
        }
    }

    /// Mail that a claim left behind when it ended goes ahead of what is sent now: a frame of the same flow may be in it.
    /// The sender of that frame, and every thread that uses the flow after it, sees the flag.
    #[inline(always)]
    fn deliver_mail(&self, state: &mut QueueState<W>) {
        if self.has_mail() {
            self.take_out_mail(state);
        }
    }

    /// The device was given frames.
    #[inline(always)]
    fn given(&self, state: &mut QueueState<W>, dirty: &mut Dirty) {
        self.credit.store(state.credit(), Ordering::Relaxed);
        state.queue.take_dirty(dirty.receivers_of(self.number));
    }

    /// Claims the queue for the calling thread, which uses it without a lock from now on; see the head of the file.
    /// False: another thread has the claim.
    pub fn claim(&self) -> bool {
        self.claim_until(usize::MAX)
    }

    /// [`TransmitQueue::claim`], for a thread that is not the only one that may send: the claim ends when the claimant serves the
    /// queue ([`TransmitQueue::drain`]) after others have left so many frames and senders for it.
    pub fn claim_until(&self, most_mail: usize) -> bool {
        if !self.state.claim() {
            return false;
        }
        self.is_crowded.store(false, Ordering::Relaxed);
        if let Ok(mut state) = self.state.enter() {
            state.most_mail = most_mail;
        }
        true
    }

    /// Ends the calling thread's claim, if it has one. The mail goes to the device.
    pub fn release_claim(&self) {
        if self.state.release_claim() {
            // A thread that leaves mail checks for a claim after its own fence: at least one of the two sees the other.
            P::fence(Ordering::SeqCst);
            if self.take_mail(|_| ()) {
                self.flush();
            }
        }
    }

    /// Whether the calling thread has claimed the queue.
    #[inline]
    pub fn is_claimed_here(&self) -> bool {
        self.state.is_claimed_here()
    }

    /// Whether there is mail for the thread that has claimed the queue, which must be woken if it sleeps.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Relaxed)
    }

    /// Leaves mail for the thread that has claimed the queue.
    #[cold]
    #[inline(never)]
    fn leave(&self, dirty: &mut Dirty, put: impl FnOnce(&mut Mail<W>)) {
        let mut mail = self.mail.lock();
        put(&mut mail);
        self.has_mail.store(true, Ordering::Relaxed);
        drop(mail);
        P::fence(Ordering::SeqCst);
        // The claim has ended: the mail is taken out again.
        self.take_mail(|state| state.queue.take_dirty(dirty.receivers_of(self.number)));
        dirty.mark(self.number);
    }

    /// Processes the mail, if the calling thread is the claimant or there is none. Returns whether there was mail; then
    /// calls `given` with the device's queue still in use.
    #[cold]
    #[inline(never)]
    fn take_mail(&self, given: impl FnOnce(&mut QueueState<W>)) -> bool {
        if !self.has_mail() {
            return false;
        }
        let Ok(mut state) = self.state.enter() else { return false };
        self.take_out_mail(&mut state);
        given(&mut state);
        true
    }

    /// Gives the mail to the device. The flag falls while `state` is held, so a thread that enters later and finds it
    /// down comes behind these frames.
    #[cold]
    #[inline(never)]
    fn take_out_mail(&self, state: &mut QueueState<W>) {
        let mut mail = self.mail.lock();
        let Mail { frames, blocked } = std::mem::take(&mut *mail);
        self.has_mail.store(false, Ordering::Relaxed);
        drop(mail);
        if state.most_mail != usize::MAX {
            state.most_mail = state.most_mail.saturating_sub(frames.len() + blocked.len());
            self.is_crowded.store(state.most_mail == 0, Ordering::Relaxed);
        }
        state.waiting.extend(frames);
        state.drain();
        blocked.into_iter().for_each(|(number, sender)| state.blocked.push(number, sender));
        self.blocked.store(state.blocked.queue.len(), Ordering::Relaxed);
        self.credit.store(state.credit(), Ordering::Relaxed);
    }

    /// Notifies the receivers in `dirty`; all receivers, if the device cannot distinguish them. The caller holds no
    /// guard.
    #[inline]
    pub fn notify(&self, dirty: &BitSet) {
        match &self.notifier {
            Some(notifier) => notifier.notify(dirty),
            None => self.flush(),
        }
    }

    /// Notifies the device that it was given frames. Receivers are woken with no lock held, if the device supports
    /// that.
    pub fn flush(&self) {
        // The claimant notifies the device itself, also for others.
        let Ok(mut state) = self.state.enter() else { return };
        let Some(notifier) = &self.notifier else { return state.queue.flush() };
        let mut receivers = BitSet::new();
        state.queue.take_dirty(&mut receivers);
        drop(state);
        notifier.notify(&receivers);
    }

    /// Queues a sender without credit, to be named by [`TransmitQueue::pop_ready_sender`]. `number` identifies it: a
    /// sender that already waits is not queued again.
    pub fn wait_for_room(&self, number: u64, sender: W) {
        match self.state.enter() {
            Ok(mut state) => {
                state.blocked.push(number, sender);
                self.blocked.store(state.blocked.queue.len(), Ordering::Relaxed);
            }
            Err(Claimed) => self.leave(&mut Dirty::new(), |mail| mail.blocked.push((number, sender))),
        }
    }

    /// Whether senders wait for room.
    #[inline]
    pub fn has_blocked(&self) -> bool {
        self.blocked() != 0
    }

    /// How many senders wait for room.
    #[inline]
    pub fn blocked(&self) -> usize {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Whether senders or frames may be waiting for room: no event signals room, so a thread must check.
    #[inline]
    pub fn may_have_waiters(&self) -> bool {
        self.has_blocked() || self.credit.load(Ordering::Relaxed) == 0 || self.has_mail()
    }

    /// Takes the sender that has waited longest, if the device has room again and no other thread has claimed the
    /// queue. `before` senders were named in the same pass; they may not have sent yet, so their share of the room is
    /// subtracted.
    pub fn pop_ready_sender(&self, before: usize) -> Option<W> {
        let mut state = self.state.enter().ok()?;
        state.drain();
        let credit = state.credit();
        self.credit.store(credit, Ordering::Relaxed);
        let wanted = self.turn.saturating_mul(before + 1);
        let sender = state.blocked.pop(credit.saturating_sub(self.reserve), wanted);
        self.blocked.store(state.blocked.queue.len(), Ordering::Relaxed);
        sender
    }

    /// Gives the device the frames that wait for room, and, for the claimant, the mail. Returns whether there were any:
    /// the queue must then be flushed.
    pub fn drain(&self) -> bool {
        let left = self.has_mail() && self.take_mail(|_| ());
        if self.is_crowded.load(Ordering::Relaxed) {
            self.release_claim();
        }
        // There is no credit while frames wait, so the hint can be read without the lock.
        if self.credit.load(Ordering::Relaxed) != 0 {
            return left;
        }
        let Ok(mut state) = self.state.enter() else { return left };
        let waited = !state.waiting.is_empty();
        state.drain();
        self.credit.store(state.credit(), Ordering::Relaxed);
        waited | left
    }
}
