//! From an index to its entry: tables of chunks, each twice as long as the one before, so that nothing moves when the
//! slab grows.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::entry::SlabEntry;
use super::{RUN, RUN_SHIFT, Slab};
use crate::{CellLike, Platform};

/// Tables of chunks, each twice as long as the one before: together they hold every chunk that an index can name.
pub(super) const TABLES: usize = 29;

/// The table of a chunk, and the place there.
#[inline(always)]
pub(super) fn locate(chunk: u32) -> (usize, usize) {
    let place = chunk as usize + 1;
    let table = place.ilog2();
    (table as usize, place ^ (1 << table))
}

impl<T, P: Platform> Slab<T, P> {
    /// The entry of this index, if its chunk has been allocated.
    #[inline(always)]
    pub(super) fn entry(&self, index: u32) -> Option<&SlabEntry<T, P>> {
        let (table, place) = locate(index >> RUN_SHIFT);
        let table = self.tables[table].load(Ordering::Acquire);
        if table.is_null() {
            return None;
        }
        // SAFETY: a table is published with its whole length, which `locate` keeps to, and lives as long as the slab.
        let chunk = unsafe { &*table.add(place) }.load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: a chunk is published with `RUN` initialised entries. It is freed when every owner has announced that
        // it accesses no chunk that has left its table (see the head of the module). The other callers have an entry of
        // the chunk that is not in the depot, or the depot's lock: it is in its table.
        let entry = unsafe { &*chunk.add((index % RUN) as usize) };
        entry.memory.with(|_| ());
        Some(entry)
    }

    /// Whether it may have had `count` values (at least 1) at a time; false: it never had. One load.
    #[inline(always)]
    pub fn may_have_had(&self, count: u32) -> bool {
        let (table, _) = locate((count - 1) >> RUN_SHIFT);
        !self.tables[table].load(Ordering::Relaxed).is_null()
    }

    /// The place of a chunk's address. Its table exists.
    pub(super) fn place(&self, chunk: u32) -> &AtomicPtr<SlabEntry<T, P>> {
        let (table, place) = locate(chunk);
        // SAFETY: the table was published with its whole length, which `locate` keeps to, and lives as long as the
        // slab.
        unsafe { &*self.tables[table].load(Ordering::Acquire).add(place) }
    }
}
