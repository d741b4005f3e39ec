//! A value per thread, found by the platform's thread index: counters that never share a cache line.
//!
//! Written by its own thread, read by any thread that wants the sum. A slot is created on its thread's first access and
//! lives as long as the table, so a total includes threads that have ended. What may never happen: two live threads
//! that are both treated as the only writer of one slot.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::{CachePadded, Platform, Real};

/// Slots whose pointers lie in the table itself.
const DIRECT: usize = 64;
/// Blocks of further slots. Block `k` holds the slots `DIRECT << k .. DIRECT << (k + 1)`, so each doubles the table.
const BLOCKS: usize = 16;

type ThreadSlot<T> = AtomicPtr<CachePadded<T>>;

/// Which threads write a value that [`PerThread`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// One thread at a time, so plain loads and stores of atomics do.
    One,
    /// Several at once, so each change takes a read-modify-write.
    Many,
}

/// A `T` for each thread. The table grows with the largest index used.
///
/// Pointers to slots are written once per thread index, which no checker needs to explore; so they are plain atomics,
/// and only `T` uses the platform.
pub struct PerThread<T, P: Platform = Real> {
    direct: [ThreadSlot<T>; DIRECT],
    blocks: [AtomicPtr<ThreadSlot<T>>; BLOCKS],
    common: ThreadSlot<T>,
    make: fn(Writers) -> T,
    _owns: PhantomData<(Box<T>, P)>,
}

// SAFETY: a slot is reached by shared reference only, from any thread, which is what `T: Sync` allows; the table's drop
// may run on any thread, which is what `T: Send` allows.
unsafe impl<T: Send + Sync, P: Platform> Sync for PerThread<T, P> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, P: Platform> Send for PerThread<T, P> {}

impl<T, P: Platform> PerThread<T, P> {
    /// Indices below this have a slot each: 4,194,304, the most threads that Linux can number. Threads without a proper
    /// index (a checker's thread that is tearing down its locals) share one more slot, made for [`Writers::Many`].
    pub const LIMIT: usize = DIRECT << BLOCKS;

    /// An empty table whose slots are filled by `make` when first used.
    pub const fn new(make: fn(Writers) -> T) -> Self {
        Self {
            direct: [const { AtomicPtr::new(ptr::null_mut()) }; DIRECT],
            blocks: [const { AtomicPtr::new(ptr::null_mut()) }; BLOCKS],
            common: AtomicPtr::new(ptr::null_mut()),
            make,
            _owns: PhantomData,
        }
    }

    /// The calling thread's value.
    #[inline]
    pub fn here(&self) -> &T {
        self.slot(P::thread_index())
    }

    /// The calling thread's value, if that is in the table itself and has been made: a few instructions, and no call,
    /// so that the caller's registers are preserved.
    #[inline(always)]
    pub fn here_at_once(&self) -> Option<&T> {
        let found = self.direct.get(P::known_thread_index())?.load(Ordering::Acquire);
        // SAFETY: as in `slot`; null becomes `None`.
        unsafe { found.as_ref() }.map(|padded| &**padded)
    }

    /// The value of thread `index`, made if it is not there yet.
    #[inline]
    pub fn slot(&self, index: usize) -> &T {
        let slot = match self.direct.get(index) {
            Some(slot) => slot,
            None => self.far_slot(index),
        };
        let found = slot.load(Ordering::Acquire);
        if found.is_null() {
            return self.fill(slot, if index < Self::LIMIT { Writers::One } else { Writers::Many });
        }
        // SAFETY: a non-null slot points to a box that lives until the table is dropped; Acquire pairs with the
        // Release that published it.
        unsafe { &*found }
    }

    /// The slot of an index that is not in the table itself.
    #[cold]
    fn far_slot(&self, index: usize) -> &ThreadSlot<T> {
        if index >= Self::LIMIT {
            return &self.common;
        }
        let k = (index / DIRECT).ilog2() as usize;
        let mut block = self.blocks[k].load(Ordering::Acquire);
        if block.is_null() {
            block = self.grow(k);
        }
        // SAFETY: block `k` is an allocation of `DIRECT << k` slots that lives until the table is dropped, and `k` was
        // chosen so that `index` lies among the slots from `DIRECT << k` up to twice that.
        unsafe { &*block.add(index - (DIRECT << k)) }
    }

    /// Publishes block `k`, or finds that another thread has.
    fn grow(&self, k: usize) -> *mut ThreadSlot<T> {
        let slots: Box<[ThreadSlot<T>]> = (0..DIRECT << k).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        let fresh = Box::into_raw(slots).cast::<ThreadSlot<T>>();
        match self.blocks[k].compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(winner) => {
                // SAFETY: `fresh` came out of a box of `DIRECT << k` slots just now and was never published.
                drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(fresh, DIRECT << k)) });
                winner
            }
        }
    }

    #[cold]
    fn fill(&self, slot: &ThreadSlot<T>, writers: Writers) -> &T {
        let fresh = Box::into_raw(Box::new(CachePadded::new((self.make)(writers))));
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
        let far = (0..BLOCKS).flat_map(|k| self.block(k));
        self.direct.iter().chain(far).chain([&self.common]).filter_map(|slot| {
            let found = slot.load(Ordering::Acquire);
            // SAFETY: as in `slot`; null becomes `None`.
            unsafe { found.as_ref() }.map(|padded| &**padded)
        })
    }

    /// The slots of block `k`; none if it was never needed.
    fn block(&self, k: usize) -> &[ThreadSlot<T>] {
        let block = self.blocks[k].load(Ordering::Acquire);
        if block.is_null() {
            return &[];
        }
        // SAFETY: as in `far_slot`.
        unsafe { std::slice::from_raw_parts(block, DIRECT << k) }
    }
}

impl<T, P: Platform> Drop for PerThread<T, P> {
    fn drop(&mut self) {
        let far = (0..BLOCKS).flat_map(|k| self.block(k));
        for slot in self.direct.iter().chain(far).chain([&self.common]) {
            let found = slot.load(Ordering::Relaxed);
            if !found.is_null() {
                // SAFETY: the table owns its boxes and no other reference to them is left.
                drop(unsafe { Box::from_raw(found) });
            }
        }
        for (k, block) in self.blocks.iter().enumerate() {
            let found = block.load(Ordering::Relaxed);
            if !found.is_null() {
                // SAFETY: as in `grow`; the table is the block's only owner now.
                drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(found, DIRECT << k)) });
            }
        }
    }
}
