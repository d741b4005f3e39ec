//! One producer, one consumer.
//!
//! ```text
//!   head (consumer's)      tail (producer's)      positions count up for ever and wrap; slot = position & mask
//!    v                      v
//! ---[#][#][#][#][#][#][#]--[ ][ ][ ]---          full when tail - head == number of slots
//! ```
//!
//! Each side keeps a private copy of its own position and of the last position it saw of the other, and reads the
//! other's word only when the copy shows "full" or "empty": under steady load the two cache lines are transferred once
//! per batch, not once per element. What may never happen: a slot touched by both sides at once. The producer's Release
//! of `tail` gives a slot to the consumer, the consumer's Release of `head` returns it.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::{Full, slots};
use crate::platform::model_is_over;
use crate::{Atomic, CachePadded, CellLike, Object, Platform, Real};

struct RingShared<T, P: Platform> {
    head: CachePadded<P::AtomicUsize>,
    tail: CachePadded<P::AtomicUsize>,
    slots: Box<[P::Cell<MaybeUninit<T>>]>,
    mask: usize,
}

// SAFETY: a slot is used by one side at a time, handed over with Release and Acquire: values only move between threads,
// which is what `T: Send` allows.
unsafe impl<T: Send, P: Platform> Sync for RingShared<T, P> {}
// SAFETY: as above.
unsafe impl<T: Send, P: Platform> Send for RingShared<T, P> {}

/// The end that pushes.
pub struct Producer<T, P: Platform = Real> {
    ring: Arc<RingShared<T, P>>,
    tail: usize,
    /// The consumer's position at the last read: at or behind the current one.
    head_seen: usize,
}

/// The end that pops.
pub struct Consumer<T, P: Platform = Real> {
    ring: Arc<RingShared<T, P>>,
    head: usize,
    /// The producer's position at the last read: at or behind the current one.
    tail_seen: usize,
}

/// A ring for `capacity` elements, rounded up to a power of two.
///
/// # Panics
/// If `capacity` is 0.
pub fn channel<T: Send, P: Platform>(capacity: usize) -> (Producer<T, P>, Consumer<T, P>) {
    let count = slots(capacity);
    let ring = Arc::new(RingShared {
        head: CachePadded::new(P::AtomicUsize::new(0)),
        tail: CachePadded::new(P::AtomicUsize::new(0)),
        slots: (0..count).map(|_| P::Cell::new(MaybeUninit::uninit())).collect(),
        mask: count - 1,
    });
    (Producer { ring: ring.clone(), tail: 0, head_seen: 0 }, Consumer { ring, head: 0, tail_seen: 0 })
}

/// Reports to a platform that charges for memory that an end of a ring uses this entry: it writes its own position, and, if it
/// is the producer, the entry.
#[inline(always)]
fn used<E, S, P: Platform>(end: &E, slot: &S, write: bool) {
    if P::CHARGED {
        P::touch(Object::Ring, std::ptr::from_ref(end).cast(), size_of::<E>(), true);
        P::touch(Object::Ring, std::ptr::from_ref(slot).cast(), size_of::<S>(), write);
    }
}

impl<T, P: Platform> RingShared<T, P> {
    fn capacity(&self) -> usize {
        self.mask + 1
    }

    fn len(&self) -> usize {
        // The head first: it only moves towards the tail, so the difference cannot be negative.
        let head = self.head.load(Acquire);
        self.tail.load(Acquire).wrapping_sub(head).min(self.capacity())
    }
}

impl<T, P: Platform> Producer<T, P> {
    /// Appends a value.
    ///
    /// # Errors
    /// [`Full`] with the value, when the ring has no room.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), Full<T>> {
        if self.room(1) == 0 {
            return Err(Full(value));
        }
        self.write(value);
        self.ring.tail.store(self.tail, Release);
        Ok(())
    }

    /// Appends the values of `next` until it has none, or the ring has no room, or `most` were appended. The consumer sees
    /// them all at once. Returns how many they are. `next` is not asked for a value that would have no room.
    #[inline]
    pub fn push_each(&mut self, most: usize, mut next: impl FnMut() -> Option<T>) -> usize {
        let room = self.room(most).min(most);
        let slots = &self.ring.slots;
        let Some(mask) = slots.len().checked_sub(1) else { return 0 };
        let first = self.tail;
        let mut tail = first;
        while tail.wrapping_sub(first) < room
            && let Some(value) = next()
        {
            used::<_, _, P>(self, &slots[tail & mask], true);
            // SAFETY: as in `write`. If `next` panics, the values before are never read, and never dropped.
            slots[tail & mask].with_mut(|slot| unsafe { (*slot).write(value) });
            tail = tail.wrapping_add(1);
        }
        let pushed = tail.wrapping_sub(first);
        if pushed > 0 {
            self.tail = tail;
            self.ring.tail.store(tail, Release);
        }
        pushed
    }

    /// Free slots, counted exactly if fewer than `wanted` seemed free.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> usize {
        let capacity = self.ring.capacity();
        let seen = capacity - self.tail.wrapping_sub(self.head_seen);
        if seen >= wanted {
            return seen;
        }
        self.head_seen = self.ring.head.load(Acquire);
        capacity - self.tail.wrapping_sub(self.head_seen)
    }

    /// Fills the next slot, which the caller knows to be free, without publishing it yet.
    #[inline]
    fn write(&mut self, value: T) {
        let slot = &self.ring.slots[self.tail & self.ring.mask];
        used::<_, _, P>(self, slot, true);
        // SAFETY: the slot lies in front of `tail` and not behind `head`, so it is ours and holds no value.
        slot.with_mut(|slot| unsafe { (*slot).write(value) });
        self.tail = self.tail.wrapping_add(1);
    }

    /// Free slots now; the consumer may free more at any time.
    pub fn free(&mut self) -> usize {
        self.room(usize::MAX)
    }

    /// How many elements the ring holds, a moment ago.
    pub fn len_hint(&self) -> usize {
        self.ring.len()
    }

    /// How many elements the ring can hold.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Whether the consumer has gone.
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.ring) == 1
    }
}

impl<T, P: Platform> Consumer<T, P> {
    /// Takes the oldest value, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.ready(1) == 0 {
            return None;
        }
        let value = self.read();
        self.ring.head.store(self.head, Release);
        Some(value)
    }

    /// Gives up to `most` values to `take`, oldest first, as [`pop`](Self::pop) would one by one, and ends early when `take`
    /// returns false. Returns how many it has given.
    #[inline]
    pub fn pop_each(&mut self, most: usize, mut take: impl FnMut(T) -> bool) -> usize {
        let mut left = most;
        while left > 0 {
            let ready = self.ready(1).min(left);
            let slots = &self.ring.slots;
            let Some(mask) = slots.len().checked_sub(1).filter(|_| ready > 0) else { break };
            for _ in 0..ready {
                used::<_, _, P>(self, &slots[self.head & mask], false);
                // SAFETY: as in `read`. The slot is given back before the value is passed on, which may panic.
                let value = slots[self.head & mask].with(|slot| unsafe { (*slot).assume_init_read() });
                self.head = self.head.wrapping_add(1);
                self.ring.head.store(self.head, Release);
                left -= 1;
                if !take(value) {
                    return most - left;
                }
            }
        }
        most - left
    }

    /// Moves up to `max` values to the end of `out`, oldest first; returns how many.
    pub fn pop_batch(&mut self, out: &mut Vec<T>, max: usize) -> usize {
        let count = self.ready(max).min(max);
        out.reserve(count);
        for _ in 0..count {
            out.push(self.read());
        }
        if count > 0 {
            self.ring.head.store(self.head, Release);
        }
        count
    }

    /// Values ready, counted exactly if fewer than `wanted` seemed ready.
    #[inline]
    fn ready(&mut self, wanted: usize) -> usize {
        let seen = self.tail_seen.wrapping_sub(self.head);
        if seen >= wanted {
            return seen;
        }
        self.tail_seen = self.ring.tail.load(Acquire);
        self.tail_seen.wrapping_sub(self.head)
    }

    /// Empties the next slot, which the caller knows to be full, without returning it yet.
    #[inline]
    fn read(&mut self) -> T {
        let slot = &self.ring.slots[self.head & self.ring.mask];
        used::<_, _, P>(self, slot, false);
        // SAFETY: the slot lies behind `tail` and not behind `head`, so it is ours and holds a value, which we move
        // out once: `head` moves past it.
        let value = slot.with(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        value
    }

    /// Whether the ring is empty now.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.ready(1) == 0
    }

    /// How many elements the ring holds, a moment ago.
    pub fn len_hint(&self) -> usize {
        self.ring.len()
    }

    /// How many elements the ring can hold.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Whether the producer has been dropped. Pushed values can still be popped.
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.ring) == 1
    }
}

impl<T, P: Platform> Drop for RingShared<T, P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        let tail = self.tail.load(Acquire);
        let mut head = self.head.load(Acquire);
        while head != tail {
            // SAFETY: both ends are gone; the slots between head and tail hold values, each dropped once.
            self.slots[head & self.mask].with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            head = head.wrapping_add(1);
        }
    }
}
