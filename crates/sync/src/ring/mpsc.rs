//! Many producers, one consumer at a time.
//!
//! Vyukov's bounded queue: each slot has a sequence number that shows which side may use it next.
//!
//! | slot's number, for position `p` | the slot |
//! |---|---|
//! | `p` | is free for the producer that draws position `p` |
//! | `p + 1` | holds the value of position `p` |
//! | `p + slots` | is free for the next round |
//!
//! Producers draw positions from `tail` with a compare-exchange and then publish by the slot's number, so a producer
//! that is interrupted between the two delays the consumer at its slot but no other producer. Values of one producer
//! are popped in the order in which it pushed them; the order of all values is that of the draws.
//!
//! The consumer's role is a flag: [`Mpsc::consumer`] takes it for a batch, [`Mpsc::channel`] permanently. What may
//! never happen: two consumers at once, in any build; the second is refused.

use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{Full, slots};
use crate::platform::model_is_over;
use crate::{Atomic, CachePadded, CellLike, Platform, Real};

struct RingSlot<T, P: Platform> {
    turn: P::AtomicUsize,
    value: P::Cell<MaybeUninit<T>>,
}

/// The consumer's words, on lines that no producer touches.
struct ConsumerLine<P: Platform> {
    head: P::AtomicUsize,
    claimed: P::AtomicBool,
}

/// See the head of this file.
pub struct Mpsc<T, P: Platform = Real> {
    tail: CachePadded<P::AtomicUsize>,
    consumer: CachePadded<ConsumerLine<P>>,
    slots: Box<[RingSlot<T, P>]>,
    mask: usize,
}

// SAFETY: a slot's value is touched by the producer that drew its position, then by the consumer, handed over by the
// slot's turn with Release and Acquire; values only move between threads, which is what `T: Send` allows.
unsafe impl<T: Send, P: Platform> Sync for Mpsc<T, P> {}
// SAFETY: as above.
unsafe impl<T: Send, P: Platform> Send for Mpsc<T, P> {}

impl<T, P: Platform> Mpsc<T, P> {
    /// A queue for `capacity` elements, rounded up to a power of two and to at least 2.
    ///
    /// # Panics
    /// If `capacity` is 0.
    pub fn new(capacity: usize) -> Self {
        // With one slot, "full" (p + 1) and "free for the next round" (p + slots) would be the same number.
        let count = slots(capacity).max(2);
        let slot = |p| RingSlot { turn: P::AtomicUsize::new(p), value: P::Cell::new(MaybeUninit::uninit()) };
        Self {
            tail: CachePadded::new(P::AtomicUsize::new(0)),
            consumer: CachePadded::new(ConsumerLine {
                head: P::AtomicUsize::new(0),
                claimed: P::AtomicBool::new(false),
            }),
            slots: (0..count).map(slot).collect(),
            mask: count - 1,
        }
    }

    /// A queue with one permanent receiver, which therefore need not claim the consumer's role for each batch.
    ///
    /// # Panics
    /// If `capacity` is 0.
    pub fn channel(capacity: usize) -> (MpscSender<T, P>, MpscReceiver<T, P>) {
        let queue = Arc::new(Self::new(capacity));
        queue.consumer.claimed.store(true, Relaxed);
        (MpscSender { queue: queue.clone() }, MpscReceiver { queue })
    }

    /// Appends a value, from any thread.
    ///
    /// # Errors
    /// [`Full`] with the value, when the queue has no room.
    #[inline]
    pub fn push(&self, value: T) -> Result<(), Full<T>> {
        let Some(position) = self.draw() else {
            return Err(Full(value));
        };
        let slot = &self.slots[position & self.mask];
        // SAFETY: the draw made this position ours alone, and its slot was free.
        slot.value.with_mut(|slot| unsafe { (*slot).write(value) });
        slot.turn.store(position.wrapping_add(1), Release);
        Ok(())
    }

    /// Draws a position whose slot is free; `None` if the queue is full.
    #[inline]
    fn draw(&self) -> Option<usize> {
        let mut position = self.tail.load(Relaxed);
        let mut spins = 0;
        loop {
            // Acquire: the consumer's Release of the turn says that it is done with the slot.
            let turn = self.slots[position & self.mask].turn.load(Acquire);
            match turn.wrapping_sub(position) as isize {
                0 => match self.tail.compare_exchange_weak(position, position.wrapping_add(1), Relaxed, Relaxed) {
                    Ok(_) => return Some(position),
                    Err(now) => position = now,
                },
                behind if behind < 0 => return None,
                _ => position = self.tail.load(Relaxed),
            }
            P::relax(spins);
            spins = spins.saturating_add(1);
        }
    }

    /// Takes the consumer's role until the result is dropped; `None` while another has it.
    #[inline]
    pub fn consumer(&self) -> Option<Consuming<'_, T, P>> {
        let claim = self.consumer.claimed.compare_exchange(false, true, Acquire, Relaxed);
        // Not `and`: its argument would be built first and, dropped on failure, would end another consumer's role.
        claim.is_ok().then(|| Consuming { queue: self })
    }

    /// Takes the oldest value, if there is one: the consumer's role for one element. `None` also while another thread
    /// consumes, which then sees the value itself.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        self.consumer()?.pop()
    }

    /// Moves up to `max` values to the end of `out`, oldest first; returns how many. 0 also while another thread
    /// consumes.
    #[inline]
    pub fn pop_batch(&self, out: &mut Vec<T>, max: usize) -> usize {
        self.consumer().map_or(0, |mut consuming| consuming.pop_batch(out, max))
    }

    /// Whether the oldest position holds no value yet. Exact for the consumer; a hint for others.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let head = self.consumer.head.load(Relaxed);
        self.slots[head & self.mask].turn.load(Acquire) != head.wrapping_add(1)
    }

    /// About how many elements the queue holds, those being pushed included.
    #[inline]
    pub fn len_hint(&self) -> usize {
        let head = self.consumer.head.load(Relaxed);
        self.tail.load(Relaxed).wrapping_sub(head).min(self.capacity())
    }

    /// How many elements the queue can hold.
    pub fn capacity(&self) -> usize {
        self.mask + 1
    }

    /// Takes the oldest value.
    ///
    /// # Safety
    /// The caller has the consumer's role.
    #[inline]
    unsafe fn pop_as_consumer(&self) -> Option<T> {
        let head = self.consumer.head.load(Relaxed);
        let slot = &self.slots[head & self.mask];
        if slot.turn.load(Acquire) != head.wrapping_add(1) {
            return None;
        }
        // SAFETY: the turn says that the slot holds the value of this position, and only the consumer takes it; the
        // new turn says that it has.
        let value = slot.value.with(|slot| unsafe { (*slot).assume_init_read() });
        slot.turn.store(head.wrapping_add(self.slots.len()), Release);
        self.consumer.head.store(head.wrapping_add(1), Relaxed);
        Some(value)
    }

    /// Moves up to `max` values to the end of `out`.
    ///
    /// # Safety
    /// The caller has the consumer's role.
    unsafe fn pop_batch_as_consumer(&self, out: &mut Vec<T>, max: usize) -> usize {
        let before = out.len();
        while out.len() - before < max {
            // SAFETY: the caller's promise.
            match unsafe { self.pop_as_consumer() } {
                Some(value) => out.push(value),
                None => break,
            }
        }
        out.len() - before
    }
}

impl<T, P: Platform> Drop for Mpsc<T, P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        // SAFETY: `&mut self`: every producer and consumer is gone.
        while let Some(value) = unsafe { self.pop_as_consumer() } {
            drop(value);
        }
    }
}

/// The consumer's role, for a while.
#[must_use = "the consumer's role ends when this is dropped"]
pub struct Consuming<'a, T, P: Platform = Real> {
    queue: &'a Mpsc<T, P>,
}

impl<T, P: Platform> Consuming<'_, T, P> {
    /// Takes the oldest value, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        // SAFETY: this has the consumer's role, and `&mut` keeps it to one thread.
        unsafe { self.queue.pop_as_consumer() }
    }

    /// Moves up to `max` values to the end of `out`, oldest first; returns how many.
    pub fn pop_batch(&mut self, out: &mut Vec<T>, max: usize) -> usize {
        // SAFETY: as in `pop`.
        unsafe { self.queue.pop_batch_as_consumer(out, max) }
    }
}

impl<T, P: Platform> Drop for Consuming<'_, T, P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        self.queue.consumer.claimed.store(false, Release);
    }
}

/// An end that pushes. Clone it for each producer.
pub struct MpscSender<T, P: Platform = Real> {
    queue: Arc<Mpsc<T, P>>,
}

impl<T, P: Platform> Clone for MpscSender<T, P> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone() }
    }
}

impl<T, P: Platform> Deref for MpscSender<T, P> {
    type Target = Mpsc<T, P>;
    fn deref(&self) -> &Mpsc<T, P> {
        &self.queue
    }
}

/// The end that pops.
pub struct MpscReceiver<T, P: Platform = Real> {
    queue: Arc<Mpsc<T, P>>,
}

impl<T, P: Platform> MpscReceiver<T, P> {
    /// Takes the oldest value, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        // SAFETY: `channel` gave the consumer's role to the one receiver, and `&mut` keeps it to one thread.
        unsafe { self.queue.pop_as_consumer() }
    }

    /// Moves up to `max` values to the end of `out`, oldest first; returns how many.
    pub fn pop_batch(&mut self, out: &mut Vec<T>, max: usize) -> usize {
        // SAFETY: as in `pop`.
        unsafe { self.queue.pop_batch_as_consumer(out, max) }
    }

    /// Whether there is nothing to pop now.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// About how many elements the queue holds.
    pub fn len_hint(&self) -> usize {
        self.queue.len_hint()
    }

    /// Whether every sender has been dropped. Pushed values can still be popped.
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.queue) == 1
    }
}
