//! One entry of a slab: the word that states its owner, the generation, and the place of the value.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use super::Key;
use crate::{Atomic, CellLike, Platform};

/// Instead of an owner's number: the entry holds no value and is in a list of free entries, or about to be.
pub(super) const FREE: u32 = 0;
/// The same, but its key is in use; a [`super::ReservedEntry`] exists for it.
pub(super) const RESERVED: u32 = 1;
/// A [`super::Detached`] exists for it.
pub(super) const DETACHED: u32 = 2;
/// The number of the first owner.
pub(super) const FIRST_OWNER: u32 = 3;

/// A slot for one value. Only the thread that has the entry by `owner` touches the other fields.
#[repr(C)]
pub(super) struct SlabEntry<T, P: Platform> {
    pub(super) owner: P::AtomicU32,
    /// Read by each look-up, written when the memory is about to be freed: a checker sees both. Nothing elsewhere.
    pub(super) memory: P::Cell<()>,
    pub(super) inner: P::Cell<SlabInner<T>>,
}

#[repr(C)]
pub(super) struct SlabInner<T> {
    pub(super) generation: u32,
    /// In a free entry: the index of the next one in its list.
    pub(super) value: MaybeUninit<T>,
}

impl<T> SlabInner<T> {
    pub(super) fn set_next(&mut self, next: u32) {
        const { assert!(size_of::<T>() >= size_of::<u32>(), "a free entry keeps the index of the next in its place") };
        // SAFETY: the place is large enough (asserted), need not be aligned, and holds no value.
        unsafe { self.value.as_mut_ptr().cast::<u32>().write_unaligned(next) };
    }

    /// # Safety
    /// The entry is free, and [`SlabInner::set_next`] was called since it last held a value.
    pub(super) unsafe fn next(&self) -> u32 {
        // SAFETY: the caller's promise: the bytes were written as a `u32`.
        unsafe { self.value.as_ptr().cast::<u32>().read_unaligned() }
    }
}

impl<T, P: Platform> SlabEntry<T, P> {
    /// Drops the value of an entry that the caller has, and makes its key stale; the entry is then free and in no list.
    pub(super) fn clear(&self) {
        // First, so that a value that panics on drop is not reached again; its entry is then lost.
        self.owner.store(FREE, Ordering::Relaxed);
        self.inner.with_mut(|inner| {
            // SAFETY: the caller has the entry, whose state word was that of an entry with a value.
            let inner = unsafe { &mut *inner };
            inner.generation = inner.generation.wrapping_add(1);
            // SAFETY: as above; the word says `FREE` now, so the value is dropped once.
            unsafe { inner.value.assume_init_drop() };
        });
    }

    pub(super) fn key(&self, index: u32) -> Key {
        // SAFETY: the caller has the entry.
        Key { slot: index, generation: self.inner.with(|inner| unsafe { (*inner).generation }) }
    }
}
