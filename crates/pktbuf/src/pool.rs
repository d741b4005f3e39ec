//! The pool: per-thread magazines in front of a depot, in front of slabs.
//!
//! Called by `buffer.rs` alone: [`allocate`] and [`release`]. A thread's cache holds per size class two magazines,
//! `loaded` and `previous`; `previous` is always full or empty. Only when both are empty (or both full) does a thread
//! visit the depot, so the cost of the mutex is spread over a magazine's rounds however a program alternates.
//!
//! **Limit.** [`set_limit`] bounds the memory of slabs. When an allocation fails against it, the class is *pressed*:
//! releases flush their thread's cache to the depot and allocations take one block at a time, so that no thread sits on
//! blocks that another waits for. Pressure ends when the depot is well filled again or the limit is changed.
//!
//! **Counting.** Each thread counts its allocations minus its releases in a cell of its own, which outlives the thread;
//! the sum over all cells is exact when no thread is inside the pool.
//!
//! **Refusing.** [`refuse`] has a thread's allocations fail by number, for tests of what happens then. It keeps all classes
//! pressed meanwhile, so that every allocation takes the slow path, where the count is kept: the fast one knows nothing of
//! it.
//!
//! What may never happen: a block in two places, a magazine that reallocates (they are made with their full capacity),
//! a depot mutex held while anything but moves of pointers between lists happens.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::block::{Block, CLASSES, Class, carve};

/// Free blocks of one class. Its capacity is the class's rounds, given at creation.
type Magazine = Vec<Block>;

/// What all threads share of one size class.
#[repr(align(128))]
struct Depot {
    shelves: Mutex<Shelves>,
    /// An allocation failed against the limit; see the head of the file. Read on every release, written rarely, so the
    /// line stays shared in all caches.
    pressed: PressedLine,
}

#[repr(align(128))]
struct PressedLine(AtomicBool);

struct Shelves {
    full: Vec<Magazine>,
    empty: Vec<Magazine>,
    /// Blocks that came in other numbers than a magazine's: from ended threads, under pressure.
    loose: Magazine,
}

static DEPOTS: [Depot; CLASSES] = [const {
    Depot {
        shelves: Mutex::new(Shelves { full: Vec::new(), empty: Vec::new(), loose: Vec::new() }),
        pressed: PressedLine(AtomicBool::new(false)),
    }
}; CLASSES];

static FOOTPRINT: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

impl Depot {
    fn of(class: Class) -> &'static Depot {
        &DEPOTS[class as usize]
    }

    fn open(&self) -> MutexGuard<'_, Shelves> {
        // Nothing that could panic runs under this mutex; should it be poisoned, the shelves are whole nevertheless.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn is_pressed(&self) -> bool {
        self.pressed.0.load(Relaxed)
    }
}

/// Allocations minus releases of one thread at a time; written by that thread only.
#[repr(align(128))]
struct LiveCell {
    net: AtomicI64,
    in_use: AtomicBool,
}

/// Cells are made as threads come, are passed on when threads go, and are never freed.
static LIVE_CELLS: Mutex<Vec<&'static LiveCell>> = Mutex::new(Vec::new());

/// Counts for threads whose cache is gone: code in late thread-local destructors. Shared, hence atomic addition.
static ORPHANS: LiveCell = LiveCell { net: AtomicI64::new(0), in_use: AtomicBool::new(true) };

fn live_cells() -> MutexGuard<'static, Vec<&'static LiveCell>> {
    LIVE_CELLS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lease_live_cell() -> &'static LiveCell {
    let mut cells = live_cells();
    if let Some(cell) = cells.iter().find(|cell| !cell.in_use.swap(true, Relaxed)) {
        return cell;
    }
    let cell: &'static LiveCell =
        Box::leak(Box::new(LiveCell { net: AtomicI64::new(0), in_use: AtomicBool::new(true) }));
    cells.push(cell);
    cell
}

/// The two magazines of one class.
struct Pair {
    loaded: Magazine,
    previous: Magazine,
    /// Capacity of a magazine; 0 until the thread is registered, so that the first use takes the slow path.
    rounds: usize,
}

/// A thread's cache.
struct Cache {
    pairs: [Pair; CLASSES],
    live: &'static LiveCell,
    /// What [`refuse`] has asked for, while something of it is left.
    refusal: Option<Refusal>,
}

/// Allocations that still succeed, and those behind them that do not.
#[derive(Clone, Copy)]
struct Refusal {
    before: u64,
    refused: u64,
}

thread_local! {
    static CACHE: UnsafeCell<Cache> = const {
        UnsafeCell::new(Cache {
            pairs: [const { Pair { loaded: Vec::new(), previous: Vec::new(), rounds: 0 } }; CLASSES],
            live: &ORPHANS,
            refusal: None,
        })
    };
}

impl Cache {
    #[inline]
    fn count(&self, change: i64) {
        self.live.net.store(self.live.net.load(Relaxed) + change, Relaxed);
    }

    #[inline]
    fn allocate(&mut self, class: Class) -> Option<Block> {
        let block = match self.pairs[class as usize].loaded.pop() {
            Some(block) => block,
            None => self.allocate_slowly(class)?,
        };
        self.count(1);
        Some(block)
    }

    #[inline]
    fn release(&mut self, class: Class, block: Block) {
        let pair = &mut self.pairs[class as usize];
        if pair.loaded.len() < pair.rounds && !Depot::of(class).is_pressed() {
            pair.loaded.push(block);
        } else {
            self.release_slowly(class, block);
        }
        self.count(-1);
    }

    #[cold]
    #[inline(never)]
    fn allocate_slowly(&mut self, class: Class) -> Option<Block> {
        self.register();
        if self.is_refused() {
            return None;
        }
        let pair = &mut self.pairs[class as usize];
        if !pair.previous.is_empty() {
            core::mem::swap(&mut pair.loaded, &mut pair.previous);
        } else if !pair.refill(class) && !grow(class, &mut pair.loaded) {
            Depot::of(class).pressed.0.store(true, Relaxed);
            // A block may have come back between the look into the depot and the announcement of pressure.
            pair.refill(class);
        }
        pair.loaded.pop()
    }

    #[cold]
    #[inline(never)]
    fn release_slowly(&mut self, class: Class, block: Block) {
        self.register();
        let pair = &mut self.pairs[class as usize];
        if Depot::of(class).is_pressed() {
            let mut shelves = Depot::of(class).open();
            shelves.loose.push(block);
            shelves.loose.append(&mut pair.loaded);
            shelves.loose.append(&mut pair.previous);
            return;
        }
        if pair.loaded.len() == pair.rounds {
            if !pair.previous.is_empty() {
                pair.unload(class);
            }
            core::mem::swap(&mut pair.loaded, &mut pair.previous);
        }
        pair.loaded.push(block);
    }

    /// Whether this allocation is one that a test wants to fail.
    fn is_refused(&mut self) -> bool {
        let Some(Refusal { before, refused }) = &mut self.refusal else { return false };
        let now = *before == 0;
        *if now { &mut *refused } else { before } -= 1;
        if *refused == 0 {
            self.refusal = None;
        }
        // Anybody's refill may have ended the pressure.
        DEPOTS.iter().for_each(|depot| depot.pressed.0.store(self.refusal.is_some(), Relaxed));
        now
    }

    /// Gives the depot all that the thread keeps.
    fn empty(&mut self) {
        for (pair, class) in self.pairs.iter_mut().zip(Class::ALL) {
            let mut shelves = Depot::of(class).open();
            shelves.loose.append(&mut pair.loaded);
            shelves.loose.append(&mut pair.previous);
        }
    }

    /// Makes the magazines and takes a live cell, once per thread.
    fn register(&mut self) {
        if self.pairs[0].rounds != 0 {
            return;
        }
        for (pair, class) in self.pairs.iter_mut().zip(Class::ALL) {
            pair.rounds = class.rounds();
            pair.loaded = Vec::with_capacity(pair.rounds);
            pair.previous = Vec::with_capacity(pair.rounds);
        }
        self.live = lease_live_cell();
    }
}

impl Pair {
    /// Gets blocks from the depot into the empty `loaded`; false if the depot has none.
    fn refill(&mut self, class: Class) -> bool {
        let depot = Depot::of(class);
        let mut shelves = depot.open();
        if depot.is_pressed() {
            return self.refill_one(depot, &mut shelves);
        }
        if let Some(magazine) = shelves.full.pop() {
            shelves.empty.push(core::mem::replace(&mut self.loaded, magazine));
            return true;
        }
        let left = shelves.loose.len().saturating_sub(self.rounds);
        self.loaded.extend(shelves.loose.drain(left..));
        !self.loaded.is_empty()
    }

    /// Gets one block, and ends the pressure if plenty remain.
    fn refill_one(&mut self, depot: &Depot, shelves: &mut Shelves) -> bool {
        if shelves.loose.is_empty()
            && let Some(mut magazine) = shelves.full.pop()
        {
            shelves.loose.append(&mut magazine);
            shelves.empty.push(magazine);
        }
        if shelves.loose.len() > 2 * self.rounds {
            depot.pressed.0.store(false, Relaxed);
        }
        self.loaded.extend(shelves.loose.pop());
        !self.loaded.is_empty()
    }

    /// Gives the full `previous` to the depot and gets an empty magazine for it.
    fn unload(&mut self, class: Class) {
        let mut shelves = Depot::of(class).open();
        let empty = shelves.empty.pop();
        let full = core::mem::take(&mut self.previous);
        shelves.full.push(full);
        drop(shelves);
        self.previous = empty.unwrap_or_else(|| Vec::with_capacity(self.rounds));
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.empty();
        if self.pairs[0].rounds != 0 {
            // Under the registry's mutex, so that the next owner of the cell sees this thread's last count.
            let _cells = live_cells();
            self.live.in_use.store(false, Relaxed);
        }
    }
}

/// Adds a slab's worth of blocks to `into`, fewer if the limit leaves less; false if none.
fn grow(class: Class, into: &mut Magazine) -> bool {
    let mut count = 0;
    let reserve = |footprint: usize| {
        let room = LIMIT.load(Relaxed).saturating_sub(footprint);
        count = (room / class.stride()).min(class.rounds());
        (count > 0).then_some(footprint + count * class.stride())
    };
    if FOOTPRINT.fetch_update(Relaxed, Relaxed, reserve).is_err() {
        return false;
    }
    let grown = carve(class, count, |block| into.push(block));
    if !grown {
        FOOTPRINT.fetch_sub(count * class.stride(), Relaxed);
    }
    grown
}

/// A block of the class; none if the limit is reached or the system has no memory.
#[inline]
pub(crate) fn allocate(class: Class) -> Option<Block> {
    CACHE
        .try_with(|cache| {
            // SAFETY: the cache belongs to this thread and nothing in `allocate` can come back here.
            unsafe { &mut *cache.get() }.allocate(class)
        })
        .unwrap_or_else(|_| allocate_orphan(class))
}

/// Takes back a block.
#[inline]
pub(crate) fn release(class: Class, block: Block) {
    let cached = CACHE.try_with(|cache| {
        // SAFETY: as in `allocate`.
        unsafe { &mut *cache.get() }.release(class, block);
    });
    if cached.is_err() {
        release_orphan(class, block);
    }
}

/// For a thread whose cache is gone already.
#[cold]
fn allocate_orphan(class: Class) -> Option<Block> {
    let mut blocks = Magazine::with_capacity(class.rounds());
    {
        let mut shelves = Depot::of(class).open();
        match shelves.loose.pop() {
            Some(block) => blocks.push(block),
            None => blocks.extend(shelves.full.pop().into_iter().flatten()),
        }
    }
    if blocks.is_empty() {
        grow(class, &mut blocks);
    }
    let block = blocks.pop()?;
    Depot::of(class).open().loose.append(&mut blocks);
    ORPHANS.net.fetch_add(1, Relaxed);
    Some(block)
}

#[cold]
fn release_orphan(class: Class, block: Block) {
    Depot::of(class).open().loose.push(block);
    ORPHANS.net.fetch_sub(1, Relaxed);
}

/// How many packet buffers exist, in all threads. Exact when no thread is inside the pool: at rest, after the threads
/// have been joined, or in a single-threaded test.
pub fn live() -> usize {
    let cells = live_cells();
    let net: i64 = cells.iter().map(|cell| cell.net.load(Relaxed)).sum::<i64>() + ORPHANS.net.load(Relaxed);
    // While threads run, a release may be seen whose allocation is not.
    usize::try_from(net).unwrap_or(0)
}

/// Buffers that the calling thread has allocated less those that it has released, plus a constant of the thread: two
/// readings tell what a piece of work that never leaves this thread has left behind, whatever other threads do.
pub fn balance() -> i64 {
    let read = |cache: &UnsafeCell<Cache>| {
        // SAFETY: as in `allocate`: the cache belongs to this thread and nothing in `register` can come back here.
        let cache = unsafe { &mut *cache.get() };
        cache.register();
        cache.live.net.load(Relaxed)
    };
    CACHE.try_with(read).unwrap_or_default()
}

/// Whether a block of `class` can be had such that about `reserve` more can be had after it. Always, unless the pool is
/// bounded; then the answer costs a look at every thread's count.
pub(crate) fn leaves(class: Class, reserve: usize) -> bool {
    let limit = LIMIT.load(Relaxed);
    if limit == usize::MAX {
        return true;
    }
    let blocks = limit.max(FOOTPRINT.load(Relaxed)) / class.stride();
    // Blocks of all classes: where several are in use, the answer errs towards no.
    live() + reserve < blocks
}

/// Bounds the memory of the pool to `bytes` from now on; `usize::MAX`, the default, means no bound. Memory already
/// taken is not given back: below [`footprint`], nothing new is taken. At the limit allocations return `None` once the
/// free blocks are used up; other threads that make no call meanwhile may still cache up to two magazines each (less
/// than 600 KiB per size class).
pub fn set_limit(bytes: usize) {
    LIMIT.store(bytes, Relaxed);
    for depot in &DEPOTS {
        depot.pressed.0.store(false, Relaxed);
    }
}

/// Has the calling thread's allocations fail by number: the next `before` succeed, the `refused` behind them return `None`,
/// and what comes after succeeds again. Replaces what was asked for before; `refuse(0, 0)` ends it. For tests: while it
/// lasts every allocation of the process takes a mutex.
pub fn refuse(before: u64, refused: u64) {
    let refusal = (refused > 0).then_some(Refusal { before, refused });
    let set = |cache: &UnsafeCell<Cache>| {
        // SAFETY: as in `allocate`: the cache belongs to this thread and nothing here can come back to it.
        let cache = unsafe { &mut *cache.get() };
        cache.register();
        cache.refusal = refusal;
        cache.empty();
    };
    let known = CACHE.try_with(set).is_ok();
    DEPOTS.iter().for_each(|depot| depot.pressed.0.store(known && refusal.is_some(), Relaxed));
}

/// Refusals that [`refuse`] has asked for on this thread and that have not happened yet.
pub fn refusals_left() -> u64 {
    let left = |cache: &UnsafeCell<Cache>| {
        // SAFETY: as in `refuse`.
        unsafe { &*cache.get() }.refusal.map_or(0, |refusal| refusal.refused)
    };
    CACHE.try_with(left).unwrap_or(0)
}

/// Bytes of the blocks that hold packets or lie in a thread's cache: [`footprint`] less what every thread could have. Takes
/// a mutex for each size class.
pub fn in_use() -> usize {
    let free = |class: &Class| {
        let shelves = Depot::of(*class).open();
        let blocks = shelves.full.iter().map(Vec::len).sum::<usize>() + shelves.loose.len();
        blocks * class.stride()
    };
    footprint().saturating_sub(Class::ALL.iter().map(free).sum())
}

/// Bytes that the pool has taken from the system, used or free. Never shrinks.
pub fn footprint() -> usize {
    FOOTPRINT.load(Relaxed)
}
