//! Values in one store, each used by one owner at a time, never moved while they live.
//!
//! *Model.* A [`Slab`] belongs to many threads. An [`Owner`] is the permission to use some of its entries. There is one
//! owner for each exclusion (a cell, a lock), and it is kept behind that exclusion. An entry stores the number of its
//! owner. [`Owner::get_mut`] compares that word with its own number and borrows the owner for as long as the value: no
//! two references to a value can exist, whatever index the caller passes. The check is one comparison, in the cache
//! line in which the value begins.
//!
//! *Transfer.* An entry changes its owner by [`Owner::detach`], which makes it a [`Detached`], then the only access to
//! its value, and [`Owner::attach`]. Neither the value's address nor its [`Key`] changes. A [`Detached`] also serves to
//! put a value behind a lock of its own; [`Slab::detached`] makes one. [`Detached::take`] moves the value out and
//! leaves the entry [`ReservedEntry`]: its key remains in use, and [`ReservedEntry::fill`] puts a value back.
//!
//! *Free entries.* Each owner keeps up to two runs of [`RUN`] free entries; runs go to and come from a depot behind a
//! lock. So insertion and removal nearly always cost no shared atomic operation, and free memory moves from one owner
//! to another. Memory is allocated in chunks of one run.
//!
//! *Giving memory back.* [`Slab::trim`] takes a chunk out of its table if all its entries lie in the depot. The only
//! threads that may still access its memory are those that compare the owner's word of an entry that is not theirs,
//! because their index is stale or invalid: they never reach a value. Each of them does so through an owner.
//! [`Owner::trim`] takes its owner by `&mut`, so no such comparison is in progress, and no reference that the owner has
//! given out exists (the compiler refuses to keep one); it announces that under the depot's lock, and the next look-up
//! through that owner finds no chunk. When every owner has announced it since the chunk left its table, the memory is
//! freed. Nothing is paid for this by a look-up: it compares the chunk's address with null anyway. [`Detached`] and
//! [`ReservedEntry`] handles need no announcement: their entry is not free, so its chunk stays.
//!
//! A chunk that is allocated again at the same place begins with later generations, so that keys of values that were
//! there before remain stale.
//!
//! *What may never happen.* A value reached by two owners, or after it was dropped; an entry in two lists; a value that
//! moves; memory freed while an owner may access it.
mod depot;
mod detached;
mod entry;
mod look_up;
mod owner;
mod trim;

use std::fmt;
use std::mem::offset_of;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::platform::model_is_over;
use crate::{Atomic, Lock, LockClass, LockKind, Platform, Real};

pub use detached::{Detached, ReservedEntry};
pub use owner::Owner;

use depot::{Depot, FreeList};
use entry::{DETACHED, RESERVED, SlabEntry};
use look_up::TABLES;

/// Entries of a chunk, and of the run of free entries that an owner and the depot pass to each other.
pub const RUN: u32 = 1 << RUN_SHIFT;
const RUN_SHIFT: u32 = 4;
const NONE: u32 = u32::MAX;

/// The name of a value in a slab, as long as it lives. A stale key finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Index of the entry.
    pub slot: u32,
    /// Incremented each time the entry is freed.
    pub generation: u32,
}

impl Key {
    /// Packed into one word, so that it fits an atomic.
    pub fn to_bits(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.slot)
    }

    /// The inverse of [`Key::to_bits`].
    pub fn from_bits(bits: u64) -> Self {
        Key { slot: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// See the head of this module. Made by [`Slab::new`]; used through owners.
pub struct Slab<T, P: Platform = Real> {
    /// Chunk `c` is found in table `log2(c + 1)`. Plain atomics: they order only the initialisation of what they point
    /// to. The depot's lock ensures that no thread uses the former target of a chunk's pointer.
    tables: [AtomicPtr<AtomicPtr<SlabEntry<T, P>>>; TABLES],
    depot: Lock<Depot<T, P>, P>,
}

// SAFETY: a value is reached by `&mut` through the one owner or `Detached` that has its entry, and by `&` through a
// shared borrow of that; all else in an entry is touched by the thread that has it. Values pass between threads: `T:
// Send`.
unsafe impl<T: Send, P: Platform> Sync for Slab<T, P> {}
// SAFETY: as above.
unsafe impl<T: Send, P: Platform> Send for Slab<T, P> {}

impl<T, P: Platform> Slab<T, P> {
    /// An empty slab; its depot has a lock of class `class`.
    pub fn new(class: LockClass) -> Arc<Self> {
        Arc::new(Slab {
            tables: [const { AtomicPtr::new(ptr::null_mut()) }; TABLES],
            depot: Lock::new(LockKind::Blocking, class, Depot::new()),
        })
    }

    /// A new owner, which owns nothing yet.
    ///
    /// # Panics
    /// After about 2^32 owners.
    pub fn owner(self: &Arc<Self>) -> Owner<T, P> {
        let mut depot = self.depot.lock();
        let id = depot.next_owner;
        depot.next_owner = id.checked_add(1).expect("a slab has numbers for 4294967292 owners: build a new one");
        // Its look-ups come after this, and find no chunk that has left its table.
        let era = depot.era;
        depot.announced.push((id, era));
        drop(depot);
        Owner::numbered(self.clone(), id)
    }

    /// Inserts a value without an owner.
    pub fn detached(self: &Arc<Self>, value: T) -> Detached<T, P> {
        self.reserve().fill(value)
    }

    /// Takes an entry without a value: its key is in use from now on.
    pub fn reserve(self: &Arc<Self>) -> ReservedEntry<T, P> {
        let mut depot = self.depot.lock();
        if depot.loose.len == 0 {
            depot.loose = match depot.runs.pop() {
                Some(head) => FreeList { head, len: RUN },
                None => FreeList { head: self.grow(&mut depot), len: RUN },
            };
        }
        let (index, entry) = self.pop(&mut depot.loose);
        entry.owner.store(RESERVED, Ordering::Relaxed);
        drop(depot);
        ReservedEntry { slab: self.clone(), index }
    }

    /// Bytes that entries and their tables take, used or free.
    pub fn footprint(&self) -> usize {
        let depot = self.depot.lock();
        let (named, present) =
            (depot.chunks as usize, depot.chunks as usize - depot.vacant.len() + depot.retired.len());
        present * RUN as usize * Self::ENTRY + named * size_of::<usize>()
    }

    /// Bytes of one entry: whole cache lines, and it begins one.
    pub const ENTRY: usize = size_of::<SlabEntry<T, P>>();
    /// Bytes of an entry before its value: the owner and the generation.
    pub const BEFORE: usize = offset_of!(SlabEntry<T, P>, value);
}

impl<T, P: Platform> Drop for Slab<T, P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        let chunks = self.depot.get_mut().chunks;
        for chunk in 0..chunks {
            let entries = self.place(chunk).load(Ordering::Relaxed);
            if entries.is_null() {
                continue;
            }
            // SAFETY: it came from `Box::into_raw` of that many entries, and is freed only here.
            let entries = unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(entries, RUN as usize)) };
            let holds = |entry: &&SlabEntry<T, P>| entry.owner.load(Ordering::Relaxed) >= DETACHED;
            entries.iter().filter(holds).for_each(SlabEntry::clear);
        }
        for (table, places) in self.tables.iter_mut().enumerate() {
            let places = *places.get_mut();
            if !places.is_null() {
                // SAFETY: as for a chunk; a table has this length.
                drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(places, 1 << table)) });
            }
        }
    }
}

impl<T, P: Platform> fmt::Debug for Slab<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("chunks", &self.depot.lock().chunks).finish_non_exhaustive()
    }
}
