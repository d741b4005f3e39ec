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
///
/// It begins a cache line. The owner and the generation take 8 bytes together, so a value that is 8 bytes shorter than
/// whole lines fills them, and its first fields are in the line that the comparison with the owner reads.
#[repr(C, align(64))]
pub(super) struct SlabEntry<T, P: Platform> {
    pub(super) owner: P::AtomicU32,
    pub(super) generation: P::Cell<u32>,
    /// Read by each look-up, written when the memory is about to be freed: a checker sees both. Nothing elsewhere.
    pub(super) memory: P::Cell<()>,
    /// In a free entry: the index of the next one in its list.
    pub(super) value: P::Cell<MaybeUninit<T>>,
}

impl<T, P: Platform> SlabEntry<T, P> {
    /// A free entry.
    pub(super) fn new(generation: u32, next: u32) -> Self {
        let entry = SlabEntry {
            owner: P::AtomicU32::new(FREE),
            generation: P::Cell::new(generation),
            memory: P::Cell::new(()),
            value: P::Cell::new(MaybeUninit::uninit()),
        };
        // SAFETY: the entry is free, and this alone has it.
        unsafe { entry.set_next(next) };
        entry
    }

    /// # Safety
    /// The entry is free and in no list: the caller alone has it.
    pub(super) unsafe fn set_next(&self, next: u32) {
        const { assert!(size_of::<T>() >= size_of::<u32>(), "a free entry keeps the index of the next in its place") };
        // SAFETY: the place is large enough (asserted), need not be aligned, and holds no value; the caller has it.
        self.value.with_mut(|value| unsafe { value.cast::<u32>().write_unaligned(next) });
    }

    /// # Safety
    /// The entry is free and the caller alone has it, and [`SlabEntry::set_next`] was called since it last held a value.
    pub(super) unsafe fn next(&self) -> u32 {
        // SAFETY: the caller's promise: the bytes were written as a `u32`.
        self.value.with(|value| unsafe { value.cast::<u32>().read_unaligned() })
    }

    /// Makes the key of the value that it holds, or held, stale. The caller has the entry.
    pub(super) fn outdate(&self) {
        // SAFETY: the caller has the entry.
        self.generation.with_mut(|generation| unsafe { *generation = (*generation).wrapping_add(1) });
    }

    /// Drops the value of an entry that the caller has, and makes its key stale; the entry is then free and in no list.
    pub(super) fn clear(&self) {
        // First, so that a value that panics on drop is not reached again; its entry is then lost.
        self.owner.store(FREE, Ordering::Relaxed);
        self.outdate();
        // SAFETY: the caller has the entry, whose state word was that of an entry with a value; it says `FREE` now, so
        // the value is dropped once.
        self.value.with_mut(|value| unsafe { (*value).assume_init_drop() });
    }

    /// How many times it was freed. The caller has the entry.
    pub(super) fn generation(&self) -> u32 {
        // SAFETY: the caller has the entry.
        self.generation.with(|generation| unsafe { *generation })
    }

    pub(super) fn key(&self, index: u32) -> Key {
        Key { slot: index, generation: self.generation() }
    }
}
