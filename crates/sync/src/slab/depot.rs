//! The entries that no owner has: runs of [`RUN`], which owners take and return whole, and new chunks when there are
//! none.

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::entry::{FIRST_OWNER, SlabEntry};
use super::look_up::locate;
use super::trim::Retired;
use super::{NONE, RUN, RUN_SHIFT, Slab};
use crate::Platform;

/// The memory of a chunk, where no look-up finds it.
pub(super) type Entries<T, P> = Box<[SlabEntry<T, P>]>;

/// The entries that no owner has.
pub(super) struct Depot<T, P: Platform> {
    /// Chunks that were ever allocated.
    pub(super) chunks: u32,
    /// Those of them that are not in their tables now, the first one last, and the generation of their next entries.
    pub(super) vacant: Vec<(u32, u32)>,
    /// Chunks that have left their tables and that an owner may still access; oldest first.
    pub(super) retired: VecDeque<Retired<T, P>>,
    /// Incremented after chunks have left their tables.
    pub(super) era: u64,
    /// Each owner's number, and the era of its latest announcement.
    pub(super) announced: Vec<(u32, u64)>,
    /// The number of the next owner.
    pub(super) next_owner: u32,
    /// Heads of lists of free entries, each [`RUN`] long.
    pub(super) runs: Vec<u32>,
    /// Free entries, fewer than a run.
    pub(super) loose: FreeList,
}

impl<T, P: Platform> Depot<T, P> {
    pub(super) fn new() -> Self {
        Depot {
            chunks: 0,
            vacant: Vec::new(),
            retired: VecDeque::new(),
            era: 0,
            announced: Vec::new(),
            next_owner: FIRST_OWNER,
            runs: Vec::new(),
            loose: FreeList::EMPTY,
        }
    }
}

/// Free entries, linked through their places.
#[derive(Clone, Copy)]
pub(super) struct FreeList {
    pub(super) head: u32,
    pub(super) len: u32,
}

impl FreeList {
    pub(super) const EMPTY: FreeList = FreeList { head: NONE, len: 0 };
}

impl<T, P: Platform> Slab<T, P> {
    /// Allocates a chunk; the head of a list of its entries.
    #[cold]
    pub(super) fn grow(&self, depot: &mut Depot<T, P>) -> u32 {
        let (chunk, generation) = depot.vacant.pop().unwrap_or_else(|| {
            depot.chunks += 1;
            (depot.chunks - 1, 0)
        });
        let first = chunk << RUN_SHIFT;
        assert!(chunk < NONE >> RUN_SHIFT, "a slab holds at most four thousand million entries");
        let (table, _) = locate(chunk);
        if self.tables[table].load(Ordering::Relaxed).is_null() {
            let fresh: Box<[AtomicPtr<SlabEntry<T, P>>]> =
                (0..1usize << table).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
            self.tables[table].store(Box::into_raw(fresh).cast(), Ordering::Release);
        }
        let next = |index: u32| if index % RUN == RUN - 1 { NONE } else { index + 1 };
        let entries: Entries<T, P> =
            (first..first + RUN).map(|index| SlabEntry::new(generation, next(index))).collect();
        self.place(chunk).store(Box::into_raw(entries).cast(), Ordering::Release);
        first
    }

    /// A list of free entries: a run, the loose ones, or a new chunk.
    #[cold]
    pub(super) fn refill(&self) -> FreeList {
        let mut depot = self.depot.lock();
        if let Some(head) = depot.runs.pop() {
            return FreeList { head, len: RUN };
        }
        if depot.loose.len != 0 {
            return std::mem::replace(&mut depot.loose, FreeList::EMPTY);
        }
        FreeList { head: self.grow(&mut depot), len: RUN }
    }

    /// Returns a free entry that is in no list.
    pub(super) fn put_back(&self, depot: &mut Depot<T, P>, index: u32) {
        let Some(entry) = self.entry(index) else { return };
        let next = depot.loose.head;
        // SAFETY: the entry is free and in no list: the caller alone has it.
        unsafe { entry.set_next(next) };
        depot.loose = FreeList { head: index, len: depot.loose.len + 1 };
        if depot.loose.len == RUN {
            depot.runs.push(index);
            depot.loose = FreeList::EMPTY;
        }
    }

    /// A free entry out of a list that is not empty, and its index.
    #[inline(always)]
    pub(super) fn pop(&self, free: &mut FreeList) -> (u32, &SlabEntry<T, P>) {
        let index = free.head;
        // SAFETY: a list that is not empty names entries of this slab.
        let entry = unsafe { self.entry(index).unwrap_unchecked() };
        // SAFETY: it is free, and was put into the list by `set_next`.
        let next = unsafe { entry.next() };
        *free = FreeList { head: next, len: free.len - 1 };
        (index, entry)
    }
}
