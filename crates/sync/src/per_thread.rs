//! A value per thread, found by the platform's thread index: counters that never share a cache line.
//!
//! Written by its own thread, read by anyone who wants the sum. Slots are made on first use and live as long as the
//! table, so a total still counts threads that have ended. What may never happen: two live threads being told that
//! they are alone on one slot.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::{CachePadded, Platform, Real};

/// A `T` for each thread, up to [`PerThread::SLOTS`]; threads numbered beyond share the last slot.
///
/// The table of slots is written once per thread index, which no checker needs to explore; so its pointers are plain
/// atomics and only `T` is the platform's business.
pub struct PerThread<T, P: Platform = Real> {
    slots: [AtomicPtr<CachePadded<T>>; 256],
    make: fn() -> T,
    _owns: PhantomData<(Box<T>, P)>,
}

// SAFETY: a slot is reached by shared reference only, from any thread, which is what `T: Sync` allows; the table's drop
// may run on any thread, which is what `T: Send` allows.
unsafe impl<T: Send + Sync, P: Platform> Sync for PerThread<T, P> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, P: Platform> Send for PerThread<T, P> {}

impl<T, P: Platform> PerThread<T, P> {
    /// How many slots there are. Threads with an index of `SLOTS - 1` or more share the last.
    pub const SLOTS: usize = 256;

    /// An empty table whose slots are filled by `make` when first used.
    pub const fn new(make: fn() -> T) -> Self {
        Self { slots: [const { AtomicPtr::new(ptr::null_mut()) }; 256], make, _owns: PhantomData }
    }

    /// Whether the slot of `index` belongs to one thread at a time. If not, writers need read-modify-writes.
    #[inline(always)]
    pub const fn is_exclusive(index: usize) -> bool {
        index < Self::SLOTS - 1
    }

    /// The calling thread's value.
    #[inline]
    pub fn here(&self) -> &T {
        self.slot(P::thread_index())
    }

    /// The value of thread `index`, made if it is not there yet.
    #[inline]
    pub fn slot(&self, index: usize) -> &T {
        let slot = &self.slots[index.min(Self::SLOTS - 1)];
        let found = slot.load(Ordering::Acquire);
        if found.is_null() {
            return self.fill(slot);
        }
        // SAFETY: a non-null slot points to a box that lives until the table is dropped; Acquire pairs with the
        // Release that published it.
        unsafe { &*found }
    }

    #[cold]
    fn fill(&self, slot: &AtomicPtr<CachePadded<T>>) -> &T {
        let fresh = Box::into_raw(Box::new(CachePadded::new((self.make)())));
        match slot.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: `fresh` is a box we just gave to the table, which keeps it until its drop.
            Ok(_) => unsafe { &*fresh },
            Err(winner) => {
                // SAFETY: `fresh` was never published, so we are its only owner.
                drop(unsafe { Box::from_raw(fresh) });
                // SAFETY: `winner` was published by another thread, as in `slot`.
                unsafe { &*winner }
            }
        }
    }

    /// The values made so far, in index order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| {
            let found = slot.load(Ordering::Acquire);
            // SAFETY: as in `slot`; null becomes `None`.
            unsafe { found.as_ref() }.map(|padded| &**padded)
        })
    }
}

impl<T, P: Platform> Drop for PerThread<T, P> {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            let found = *slot.get_mut();
            if !found.is_null() {
                // SAFETY: the table owns its boxes and nobody else can reach them any more.
                drop(unsafe { Box::from_raw(found) });
            }
        }
    }
}
