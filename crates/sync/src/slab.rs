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
//! threads that may still look at its memory are those that are comparing the owner's word of an entry that is not
//! theirs, after an index that was stale or invented: values are never reached there. Each of them does so through an
//! owner. [`Owner::trim`] takes its owner by `&mut`, so no such comparison is in progress, and no reference that the
//! owner has given out exists (the compiler refuses to keep one); it announces that under the depot's lock, and the
//! next look-up through that owner finds no chunk. When every owner has announced it since the chunk left its table,
//! the memory is freed. Nothing is paid for this by a look-up: it compares the chunk's address with null anyway.
//! [`Detached`] and [`ReservedEntry`] handles need no announcement: their entry is not free, so its chunk stays.
//!
//! A chunk that is allocated again at the same place begins with later generations, so that keys of values that were
//! there before remain stale.
//!
//! *What may never happen.* A value reached by two owners, or after it was dropped; an entry in two lists; a value that
//! moves; memory freed while an owner may look at it.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::platform::model_is_over;
use crate::{Atomic, CellLike, Lock, LockClass, LockKind, Platform, Real};

/// Entries of a chunk, and of the run of free entries that an owner and the depot pass to each other.
pub const RUN: u32 = 1 << RUN_SHIFT;
const RUN_SHIFT: u32 = 4;
/// Tables of chunks, each twice as long as the one before: together they hold every chunk that an index can name.
const TABLES: usize = 29;
const NONE: u32 = u32::MAX;
/// A chunk that has seen so many generations is kept: later ones could not be told from the first.
const MOST_GENERATIONS: u32 = 1 << 31;

/// Instead of an owner's number: the entry holds no value and is in a list of free entries, or about to be.
const FREE: u32 = 0;
/// The same, but its key is in use; a [`ReservedEntry`] exists for it.
const RESERVED: u32 = 1;
/// A [`Detached`] exists for it.
const DETACHED: u32 = 2;
/// The number of the first owner.
const FIRST_OWNER: u32 = 3;

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

/// A slot for one value. Only the thread that has the entry by `owner` touches the other fields.
#[repr(C)]
struct SlabEntry<T, P: Platform> {
    owner: P::AtomicU32,
    /// Read by each look-up, written when the memory is about to be freed: a checker sees both. Nothing elsewhere.
    memory: P::Cell<()>,
    inner: P::Cell<SlabInner<T>>,
}

#[repr(C)]
struct SlabInner<T> {
    generation: u32,
    /// In a free entry: the index of the next one in its list.
    value: MaybeUninit<T>,
}

impl<T> SlabInner<T> {
    fn set_next(&mut self, next: u32) {
        const { assert!(size_of::<T>() >= size_of::<u32>(), "a free entry keeps the index of the next in its place") };
        // SAFETY: the place is large enough (asserted), need not be aligned, and holds no value.
        unsafe { self.value.as_mut_ptr().cast::<u32>().write_unaligned(next) };
    }

    /// # Safety
    /// The entry is free, and [`SlabInner::set_next`] was called since it last held a value.
    unsafe fn next(&self) -> u32 {
        // SAFETY: the caller's promise: the bytes were written as a `u32`.
        unsafe { self.value.as_ptr().cast::<u32>().read_unaligned() }
    }
}

/// See the head of this file. Made by [`Slab::new`]; used through owners.
pub struct Slab<T, P: Platform = Real> {
    /// Chunk `c` is found in table `log2(c + 1)`. Plain atomics: they order only the initialisation of what they point
    /// to. That nobody uses what a chunk's pointer was before is ordered by the depot's lock.
    tables: [AtomicPtr<AtomicPtr<SlabEntry<T, P>>>; TABLES],
    depot: Lock<Depot<T, P>, P>,
}

/// The entries that no owner has.
struct Depot<T, P: Platform> {
    /// Chunks that were ever allocated.
    chunks: u32,
    /// Those of them that are not in their tables now, the first one last, and the generation of their next entries.
    vacant: Vec<(u32, u32)>,
    /// Chunks that have left their tables and that an owner may still look at; oldest first.
    retired: VecDeque<Retired<T, P>>,
    /// Incremented after chunks have left their tables.
    era: u64,
    /// Each owner's number, and the era of its latest announcement.
    announced: Vec<(u32, u64)>,
    /// The number of the next owner.
    next_owner: u32,
    /// Heads of lists of free entries, each [`RUN`] long.
    runs: Vec<u32>,
    /// Free entries, fewer than a run.
    loose: FreeList,
}

/// The memory of a chunk that has left its table, and the era in which it did.
struct Retired<T, P: Platform> {
    entries: Entries<T, P>,
    era: u64,
}

/// The memory of a chunk that no look-up finds any more.
type Entries<T, P> = Box<[SlabEntry<T, P>]>;

impl<T, P: Platform> Depot<T, P> {
    /// Chunks that every owner has announced not to look at since they left their tables. To be dropped without the
    /// lock.
    fn unobserved(&mut self) -> Vec<Entries<T, P>> {
        let announced = self.announced.iter().map(|(_, era)| *era).min().unwrap_or(u64::MAX);
        let count = self.retired.partition_point(|retired| retired.era < announced);
        self.retired.drain(..count).map(|retired| retired.entries).collect()
    }
}

/// Frees chunks.
fn free<T, P: Platform>(chunks: Vec<Entries<T, P>>) {
    for chunk in &chunks {
        chunk.iter().for_each(|entry| entry.memory.with_mut(|_| ()));
    }
}

/// Free entries, linked through their places.
#[derive(Clone, Copy)]
struct FreeList {
    head: u32,
    len: u32,
}

impl FreeList {
    const EMPTY: FreeList = FreeList { head: NONE, len: 0 };
}

// SAFETY: a value is reached by `&mut` through the one owner or `Detached` that has its entry, and by `&` through a
// shared borrow of that; all else in an entry is touched by the thread that has it. Values pass between threads: `T:
// Send`.
unsafe impl<T: Send, P: Platform> Sync for Slab<T, P> {}
// SAFETY: as above.
unsafe impl<T: Send, P: Platform> Send for Slab<T, P> {}

/// The table of a chunk, and the place there.
#[inline(always)]
fn locate(chunk: u32) -> (usize, usize) {
    let place = chunk as usize + 1;
    let table = place.ilog2();
    (table as usize, place ^ (1 << table))
}

impl<T, P: Platform> Slab<T, P> {
    /// An empty slab; its depot has a lock of class `class`.
    pub fn new(class: LockClass) -> Arc<Self> {
        let depot = Depot {
            chunks: 0,
            vacant: Vec::new(),
            retired: VecDeque::new(),
            era: 0,
            announced: Vec::new(),
            next_owner: FIRST_OWNER,
            runs: Vec::new(),
            loose: FreeList::EMPTY,
        };
        Arc::new(Slab {
            tables: [const { AtomicPtr::new(ptr::null_mut()) }; TABLES],
            depot: Lock::new(LockKind::Blocking, class, depot),
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
        Owner { slab: self.clone(), id, live: 0, free: FreeList::EMPTY, spare: NONE, _owns: PhantomData }
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

    /// Bytes of one entry.
    pub const ENTRY: usize = size_of::<SlabEntry<T, P>>();

    /// The entry of this index, if its chunk has been allocated.
    #[inline(always)]
    fn entry(&self, index: u32) -> Option<&SlabEntry<T, P>> {
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
        // it looks at none that has left its table (see the head of the file). The other callers have an entry of the
        // chunk that is not in the depot, or the depot's lock: it is in its table.
        let entry = unsafe { &*chunk.add((index % RUN) as usize) };
        entry.memory.with(|_| ());
        Some(entry)
    }

    /// The place of a chunk's address. Its table exists.
    fn place(&self, chunk: u32) -> &AtomicPtr<SlabEntry<T, P>> {
        let (table, place) = locate(chunk);
        // SAFETY: the table was published with its whole length, which `locate` keeps to, and lives as long as the
        // slab.
        unsafe { &*self.tables[table].load(Ordering::Acquire).add(place) }
    }

    /// Allocates a chunk; the head of a list of its entries.
    #[cold]
    fn grow(&self, depot: &mut Depot<T, P>) -> u32 {
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
        let entry = |index: u32| {
            let mut inner = SlabInner { generation, value: MaybeUninit::uninit() };
            inner.set_next(if index % RUN == RUN - 1 { NONE } else { index + 1 });
            SlabEntry { owner: P::AtomicU32::new(FREE), memory: P::Cell::new(()), inner: P::Cell::new(inner) }
        };
        let entries: Entries<T, P> = (first..first + RUN).map(entry).collect();
        self.place(chunk).store(Box::into_raw(entries).cast(), Ordering::Release);
        first
    }

    /// Whether more than `kept` chunks' worth of free entries are in the depot, or memory waits for owners to announce
    /// that they do not look at it.
    pub fn has_surplus(&self, kept: usize) -> bool {
        let depot = self.depot.lock();
        depot.runs.len() > kept || !depot.retired.is_empty()
    }

    /// Whether memory waits for owners to announce that they do not look at it.
    pub fn awaits_owners(&self) -> bool {
        !self.depot.lock().retired.is_empty()
    }

    /// Takes chunks whose entries are all free and in the depot out of their tables, but for `kept` of them, so that a
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
        // What is put back last is used first: low indices, so that high chunks become free.
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
        let entry = unsafe { self.entry(index).unwrap_unchecked() };
        // SAFETY: the entry is free and in no list: the caller alone has it.
        entry.inner.with(|inner| unsafe { (*inner).generation })
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

    /// A list of free entries: a run, the loose ones, or a new chunk.
    #[cold]
    fn refill(&self) -> FreeList {
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
    fn put_back(&self, depot: &mut Depot<T, P>, index: u32) {
        let Some(entry) = self.entry(index) else { return };
        let next = depot.loose.head;
        // SAFETY: the entry is free and in no list: the caller alone has it.
        entry.inner.with_mut(|inner| unsafe { (*inner).set_next(next) });
        depot.loose = FreeList { head: index, len: depot.loose.len + 1 };
        if depot.loose.len == RUN {
            depot.runs.push(index);
            depot.loose = FreeList::EMPTY;
        }
    }

    /// A free entry out of a list that is not empty, and its index.
    #[inline(always)]
    fn pop(&self, free: &mut FreeList) -> (u32, &SlabEntry<T, P>) {
        let index = free.head;
        // SAFETY: a list that is not empty names entries of this slab.
        let entry = unsafe { self.entry(index).unwrap_unchecked() };
        // SAFETY: it is free, and was put into the list by `set_next`.
        let next = entry.inner.with(|inner| unsafe { (*inner).next() });
        *free = FreeList { head: next, len: free.len - 1 };
        (index, entry)
    }

    /// Drops the value of an entry that the caller has, and makes its key stale; the entry is then free and in no list.
    fn clear(entry: &SlabEntry<T, P>) {
        // First, so that a value that panics on drop is not reached again; its entry is then lost.
        entry.owner.store(FREE, Ordering::Relaxed);
        entry.inner.with_mut(|inner| {
            // SAFETY: the caller has the entry, whose state word was that of an entry with a value.
            let inner = unsafe { &mut *inner };
            inner.generation = inner.generation.wrapping_add(1);
            // SAFETY: as above; the word says `FREE` now, so the value is dropped once.
            unsafe { inner.value.assume_init_drop() };
        });
    }

    fn key(entry: &SlabEntry<T, P>, index: u32) -> Key {
        // SAFETY: the caller has the entry.
        Key { slot: index, generation: entry.inner.with(|inner| unsafe { (*inner).generation }) }
    }
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
            entries.iter().filter(holds).for_each(Self::clear);
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

/// The permission to use the entries of a [`Slab`] that store its number. Values that it still owns when it is dropped
/// are dropped with the slab.
pub struct Owner<T, P: Platform = Real> {
    slab: Arc<Slab<T, P>>,
    id: u32,
    /// Entries with a value of this owner.
    live: u32,
    /// At most [`RUN`] of them.
    free: FreeList,
    /// The head of a second list, which is a whole run, or [`NONE`].
    spare: u32,
    /// A shared borrow of an owner gives shared borrows of its values.
    _owns: PhantomData<T>,
}

impl<T, P: Platform> Owner<T, P> {
    /// The value of this index, if it is this owner's.
    #[inline(always)]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let entry = self.owned(index)?;
        // SAFETY: the entry states this owner, so it holds a value, which is reached through this owner alone; the
        // result borrows the owner mutably, and no other owner has its number.
        Some(entry.inner.with_mut(|inner| unsafe { (*inner).value.assume_init_mut() }))
    }

    /// As [`Owner::get_mut`], for shared access.
    #[inline(always)]
    pub fn get(&self, index: u32) -> Option<&T> {
        let entry = self.owned(index)?;
        // SAFETY: as in `get_mut`; the shared borrow of the owner excludes mutable ones.
        Some(entry.inner.with(|inner| unsafe { (*inner).value.assume_init_ref() }))
    }

    /// The value that `key` names, if it is this owner's and still that one.
    #[inline(always)]
    pub fn get_by_key(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.owned(key.slot)?;
        entry.inner.with_mut(|inner| {
            // SAFETY: as in `get_mut`.
            let inner = unsafe { &mut *inner };
            // SAFETY: as in `get_mut`.
            (inner.generation == key.generation).then(|| unsafe { inner.value.assume_init_mut() })
        })
    }

    /// The key of an entry of this owner.
    pub fn key(&self, index: u32) -> Option<Key> {
        self.owned(index).map(|entry| Slab::key(entry, index))
    }

    /// How many values it owns.
    pub fn len(&self) -> usize {
        self.live as usize
    }

    /// Whether it owns none.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The slab.
    pub fn slab(&self) -> &Arc<Slab<T, P>> {
        &self.slab
    }

    /// Relaxed is enough: the word is this owner's number only if it was written through this owner, which the caller
    /// has.
    #[inline(always)]
    fn owned(&self, index: u32) -> Option<&SlabEntry<T, P>> {
        let entry = self.slab.entry(index)?;
        (entry.owner.load(Ordering::Relaxed) == self.id).then_some(entry)
    }

    /// Inserts a value and owns it.
    #[inline(always)]
    pub fn insert(&mut self, value: T) -> Key {
        if self.free.len == 0 {
            self.restock();
        }
        let (index, entry) = self.slab.pop(&mut self.free);
        entry.inner.with_mut(|inner| {
            // SAFETY: the entry is free and in no list: this owner alone has it. Nothing stands there to be dropped.
            unsafe { (&raw mut (*inner).value).cast::<T>().write(value) };
        });
        entry.owner.store(self.id, Ordering::Relaxed);
        let key = Slab::key(entry, index);
        self.live += 1;
        key
    }

    /// Takes a value out; its key is stale from now on.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.owned(index)?;
        // SAFETY: as in `get_mut`; the word says `FREE` from here on, so the value is not reached again.
        let value = entry.inner.with(|inner| unsafe { (*inner).value.assume_init_read() });
        entry.owner.store(FREE, Ordering::Relaxed);
        // SAFETY: this owner has the entry, which holds no value any more.
        entry.inner.with_mut(|inner| unsafe { (*inner).generation = (*inner).generation.wrapping_add(1) });
        self.live -= 1;
        self.keep(index);
        Some(value)
    }

    /// As [`Owner::remove`], but drops the value in place. False: there is none.
    pub fn free(&mut self, index: u32) -> bool {
        let Some(entry) = self.owned(index) else { return false };
        Slab::clear(entry);
        self.live -= 1;
        self.keep(index);
        true
    }

    /// Gives a value up, so that another owner can use or own it.
    pub fn detach(&mut self, index: u32) -> Option<Detached<T, P>> {
        let entry = self.owned(index)?;
        entry.owner.store(DETACHED, Ordering::Relaxed);
        let entry = NonNull::from(entry);
        self.live -= 1;
        Some(Detached { slab: self.slab.clone(), entry, index })
    }

    /// Takes ownership of a detached value; its key stays the same.
    ///
    /// # Errors
    /// The value belongs to another slab; it is returned.
    pub fn attach(&mut self, value: Detached<T, P>) -> Result<Key, Detached<T, P>> {
        if !Arc::ptr_eq(&self.slab, &value.slab) {
            return Err(value);
        }
        let key = value.key();
        value.entry().owner.store(self.id, Ordering::Relaxed);
        value.forget();
        self.live += 1;
        Ok(key)
    }

    /// Returns all free entries to the depot, and announces that nothing that was looked up through this owner is in
    /// use; see the head of the file. Frees the memory that only this announcement was missing for.
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

    /// Returns all free entries to the depot.
    fn give_back(&mut self, depot: &mut Depot<T, P>) {
        let spare = std::mem::replace(&mut self.spare, NONE);
        if spare != NONE {
            depot.runs.push(spare);
        }
        let mut free = std::mem::replace(&mut self.free, FreeList::EMPTY);
        if free.len == RUN {
            depot.runs.push(free.head);
            return;
        }
        while free.len != 0 {
            let (index, _) = self.slab.pop(&mut free);
            self.slab.put_back(depot, index);
        }
    }

    #[cold]
    #[inline(never)]
    fn restock(&mut self) {
        self.free = match std::mem::replace(&mut self.spare, NONE) {
            NONE => self.slab.refill(),
            head => FreeList { head, len: RUN },
        };
    }

    /// Keeps a free entry that is in no list. Beyond two runs, one goes to the depot.
    fn keep(&mut self, index: u32) {
        if self.free.len == RUN {
            let run = std::mem::replace(&mut self.free, FreeList::EMPTY).head;
            let surplus = std::mem::replace(&mut self.spare, run);
            if surplus != NONE {
                self.slab.depot.lock().runs.push(surplus);
            }
        }
        let Some(entry) = self.slab.entry(index) else { return };
        let next = self.free.head;
        // SAFETY: the entry is free and in no list: this owner alone has it.
        entry.inner.with_mut(|inner| unsafe { (*inner).set_next(next) });
        self.free = FreeList { head: index, len: self.free.len + 1 };
    }
}

impl<T, P: Platform> Drop for Owner<T, P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        let slab = self.slab.clone();
        let mut depot = slab.depot.lock();
        self.give_back(&mut depot);
        depot.announced.retain(|(id, _)| *id != self.id);
        let unobserved = depot.unobserved();
        drop(depot);
        free(unobserved);
    }
}

impl<T, P: Platform> fmt::Debug for Owner<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("id", &self.id).field("live", &self.live).finish_non_exhaustive()
    }
}

/// A value without an owner, and the only access to it. Dropping it drops the value and frees the entry.
pub struct Detached<T, P: Platform = Real> {
    slab: Arc<Slab<T, P>>,
    entry: NonNull<SlabEntry<T, P>>,
    index: u32,
}

// SAFETY: it is the one way to its value, as a box is.
unsafe impl<T: Send, P: Platform> Send for Detached<T, P> {}
// SAFETY: as above: a shared borrow of it gives a shared one of the value.
unsafe impl<T: Send + Sync, P: Platform> Sync for Detached<T, P> {}

impl<T, P: Platform> Detached<T, P> {
    #[inline(always)]
    fn entry(&self) -> &SlabEntry<T, P> {
        // SAFETY: the entry is not free, so its chunk stays, as long as the slab, of which there is a reference beside it.
        unsafe { self.entry.as_ref() }
    }

    /// The value's key.
    pub fn key(&self) -> Key {
        Slab::key(self.entry(), self.index)
    }

    /// Another handle is responsible for the entry now: it is not freed. Returns the slab.
    fn forget(self) -> Arc<Slab<T, P>> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither dropped nor used again.
        unsafe { ptr::read(&this.slab) }
    }

    /// Moves the value out. Its key remains in use.
    pub fn take(self) -> (ReservedEntry<T, P>, T) {
        let index = self.index;
        // SAFETY: the entry holds a value, and its word is `RESERVED` before it could be reached again.
        let value = self.entry().inner.with(|inner| unsafe { (*inner).value.assume_init_read() });
        self.entry().owner.store(RESERVED, Ordering::Relaxed);
        (ReservedEntry { slab: self.forget(), index }, value)
    }
}

impl<T, P: Platform> Deref for Detached<T, P> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the entry holds a value, which is reached through this alone.
        self.entry().inner.with(|inner| unsafe { (*inner).value.assume_init_ref() })
    }
}

impl<T, P: Platform> DerefMut for Detached<T, P> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes this borrow the only one.
        self.entry().inner.with_mut(|inner| unsafe { (*inner).value.assume_init_mut() })
    }
}

impl<T, P: Platform> Drop for Detached<T, P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            Slab::clear(self.entry());
            self.slab.put_back(&mut self.slab.depot.lock(), self.index);
        }
    }
}

impl<T: fmt::Debug, P: Platform> fmt::Debug for Detached<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detached").field("key", &self.key()).field("value", &**self).finish()
    }
}

/// An entry without a value, but with its key in use. Dropping it frees the entry.
pub struct ReservedEntry<T, P: Platform = Real> {
    slab: Arc<Slab<T, P>>,
    index: u32,
}

impl<T, P: Platform> ReservedEntry<T, P> {
    fn entry(&self) -> &SlabEntry<T, P> {
        // SAFETY: it was made from an entry of this slab with this index.
        unsafe { self.slab.entry(self.index).unwrap_unchecked() }
    }

    /// The key that is in use.
    pub fn key(&self) -> Key {
        Slab::key(self.entry(), self.index)
    }

    /// Inserts a value, which has the key.
    pub fn fill(self, value: T) -> Detached<T, P> {
        let this = ManuallyDrop::new(self);
        let entry = this.entry();
        entry.inner.with_mut(|inner| {
            // SAFETY: the entry is reserved, by `this` alone. Nothing stands there to be dropped.
            unsafe { (&raw mut (*inner).value).cast::<T>().write(value) };
        });
        entry.owner.store(DETACHED, Ordering::Relaxed);
        let entry = NonNull::from(entry);
        // SAFETY: `this` is neither dropped nor used again.
        Detached { slab: unsafe { ptr::read(&this.slab) }, entry, index: this.index }
    }
}

impl<T, P: Platform> Drop for ReservedEntry<T, P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        let entry = self.entry();
        entry.owner.store(FREE, Ordering::Relaxed);
        // SAFETY: the entry is reserved, by this alone.
        entry.inner.with_mut(|inner| unsafe { (*inner).generation = (*inner).generation.wrapping_add(1) });
        self.slab.put_back(&mut self.slab.depot.lock(), self.index);
    }
}

impl<T, P: Platform> fmt::Debug for ReservedEntry<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReservedEntry").field("key", &self.key()).finish()
    }
}
