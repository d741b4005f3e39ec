//! Giving chunks back: which may leave their tables, and when their memory is freed.

use std::ptr;
use std::sync::atomic::Ordering;

use super::depot::{Depot, Entries, FreeList};
use super::{Owner, RUN, RUN_SHIFT, Slab};
use crate::{CellLike, Platform};

/// A chunk with this many generations is kept, because later generations could not be distinguished from the first.
const MOST_GENERATIONS: u32 = 1 << 31;

/// The memory of a chunk that has left its table, and the era in which it did.
pub(super) struct Retired<T, P: Platform> {
    pub(super) entries: Entries<T, P>,
    pub(super) era: u64,
}

impl<T, P: Platform> Depot<T, P> {
    /// Chunks that, since they left their tables, no owner accesses any more, as every owner has announced. To be
    /// dropped without the lock.
    pub(super) fn unobserved(&mut self) -> Vec<Entries<T, P>> {
        let announced = self.announced.iter().map(|(_, era)| *era).min().unwrap_or(u64::MAX);
        let count = self.retired.partition_point(|retired| retired.era < announced);
        self.retired.drain(..count).map(|retired| retired.entries).collect()
    }
}

/// Frees chunks.
pub(super) fn free<T, P: Platform>(chunks: Vec<Entries<T, P>>) {
    for chunk in &chunks {
        chunk.iter().for_each(|entry| entry.memory.with_mut(|_| ()));
    }
}

impl<T, P: Platform> Slab<T, P> {
    /// Whether more than `kept` chunks' worth of free entries are in the depot, or memory waits for owners to announce
    /// that they do not look at it.
    pub fn has_surplus(&self, kept: usize) -> bool {
        let depot = self.depot.lock();
        depot.runs.len() > kept || !depot.retired.is_empty()
    }

    /// Whether memory waits for owners to announce that they do not access it.
    pub fn awaits_owners(&self) -> bool {
        !self.depot.lock().retired.is_empty()
    }

    /// Takes chunks whose entries are all free and in the depot out of their tables, except `kept` of them, so that a
    /// load that changes little does not allocate. Their memory is freed once every owner has called [`Owner::trim`]
    /// since; at once if there are no owners. Any thread. Other threads find the depot empty meanwhile and allocate.
    pub fn trim(&self, kept: usize) {
        let mut free_entries = self.take_free();
        free_entries.sort_unstable();
        let mut staying = Vec::with_capacity(free_entries.len());
        let (mut spared, mut leaving) = (0, Vec::new());
        for chunk in free_entries.chunk_by(|one, other| one >> RUN_SHIFT == other >> RUN_SHIFT) {
            let generation = chunk.iter().map(|index| self.generation(*index)).max().unwrap_or(MOST_GENERATIONS);
            let whole = chunk.len() == RUN as usize && generation < MOST_GENERATIONS;
            if whole && spared >= kept {
                leaving.push((chunk[0] >> RUN_SHIFT, generation + 1));
            } else {
                spared += usize::from(whole);
                staying.extend_from_slice(chunk);
            }
        }
        let mut depot = self.depot.lock();
        // Entries put back last are used first: low indices come last, so that high chunks become free.
        staying.into_iter().rev().for_each(|index| self.put_back(&mut depot, index));
        if !leaving.is_empty() {
            self.retire(&mut depot, leaving);
        }
        let unobserved = depot.unobserved();
        drop(depot);
        free(unobserved);
    }

    /// Takes all entries out of the depot. They are in no list, and the caller alone has them.
    fn take_free(&self) -> Vec<u32> {
        let mut depot = self.depot.lock();
        let (runs, loose) = (std::mem::take(&mut depot.runs), std::mem::replace(&mut depot.loose, FreeList::EMPTY));
        drop(depot);
        let lists = runs.into_iter().map(|head| FreeList { head, len: RUN }).chain([loose]);
        let mut entries = Vec::new();
        for mut list in lists {
            while list.len != 0 {
                entries.push(self.pop(&mut list).0);
            }
        }
        entries
    }

    /// The generation of a free entry that the caller has.
    fn generation(&self, index: u32) -> u32 {
        // SAFETY: the caller has the entry, so its chunk is in its table.
        unsafe { self.entry(index).unwrap_unchecked() }.generation()
    }

    /// Takes these chunks, all of whose entries the caller has, out of their tables.
    fn retire(&self, depot: &mut Depot<T, P>, chunks: Vec<(u32, u32)>) {
        let era = depot.era;
        for (chunk, generation) in chunks {
            let entries = self.place(chunk).swap(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: it came from `Box::into_raw` of that many entries, and is in its table no more.
            let entries = unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(entries, RUN as usize)) };
            depot.retired.push_back(Retired { entries, era });
            depot.vacant.push((chunk, generation));
        }
        depot.vacant.sort_unstable_by_key(|(chunk, _)| std::cmp::Reverse(*chunk));
        depot.era += 1;
    }
}

impl<T, P: Platform> Owner<T, P> {
    /// Returns all free entries to the depot, and announces that nothing that was looked up through this owner is in
    /// use; see the head of the module. Frees the memory that only this announcement was missing for.
    pub fn trim(&mut self) {
        let slab = self.slab.clone();
        let mut depot = slab.depot.lock();
        self.give_back(&mut depot);
        let era = depot.era;
        depot.announced.iter_mut().filter(|(id, _)| *id == self.id).for_each(|(_, announced)| *announced = era);
        let unobserved = depot.unobserved();
        drop(depot);
        free(unobserved);
    }
}
