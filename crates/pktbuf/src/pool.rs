//! The pool: per-thread magazines in front of a depot, in front of slabs.
//!
//! Called by the kinds of buffers: [`allocate`] and [`release`]. A thread's cache holds two magazines for each size
//! class (`depot.rs`). A thread visits the depot only when both are empty (or both full), so the cost of the lock is
//! spread over a magazine's rounds for every pattern of use. There it has shelves of its own, so that blocks do not go from
//! processor to processor when its connections need more of them at one moment than at another.
//!
//! **Limit.** [`set_limit`] bounds the memory of slabs. When an allocation fails against it, the class is *pressed*:
//! releases flush their thread's cache to the depot and allocations take one block at a time, so that no thread caches
//! blocks that another needs. Pressure ends when the depot is well filled again or the limit is changed. Where there is no
//! block of the smallest class, the next larger one serves ([`substitutes`] counts it); a small packet finds memory as
//! long as a frame does. In return the smallest class has only a part of a bounded pool, so that its free blocks do not
//! take the memory that frames need.
//!
//! **Giving memory back.** [`trim`] frees slabs all of whose blocks lie in the depot: no magazine, buffer or thread has
//! one of them. It frees only blocks that were not needed since the last trim, so that a load that varies within that
//! time does not allocate again and again.
//!
//! **Counting.** Each thread counts its allocations minus its releases in a cell of its own, which outlives the thread;
//! the sum over all cells is exact when no thread is inside the pool.
//!
//! **Refusing.** [`refuse`] makes a thread's allocations fail by number, to test error handling. It keeps all classes
//! pressed meanwhile, so that every allocation takes the slow path, which keeps the count; the fast path is unaffected.
//!
//! **Platforms.** A simulator or a model checker runs many threads on one thread of the kernel, each of which must have
//! its own magazines. Meanwhile ([`PlatformHeap::enter`](crate::PlatformHeap::enter)) the kernel thread's own magazines
//! have no room, so every allocation and release takes the slow path, which uses that heap. Blocks of regions do the
//! same: their home is a pair of magazines without room. The fast path needs no check for either.
//!
//! What may never happen: a block in two places, or the cache of a thread borrowed while another thread may run.

use core::cell::{Cell, UnsafeCell};
use core::mem::ManuallyDrop;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use sync::{LockKind, Real};

use crate::block::{Block, BlockSlab, CLASSES, HOMES, Home, SizeClass, carve};
use crate::depot::{Caching, Depots, Magazine, Pair, is_pressed, press};
use crate::region;

static DEPOTS: LazyLock<Depots<Real>> = LazyLock::new(|| Depots::new(LockKind::SpinPark, Caching::PerThread));

static FOOTPRINT: AtomicUsize = AtomicUsize::new(0);
/// The part of the footprint that each class has.
static TAKEN: [AtomicUsize; CLASSES] = [const { AtomicUsize::new(0) }; CLASSES];
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Small packets that got the block of a frame; see [`substitutes`].
static SUBSTITUTES: AtomicU64 = AtomicU64::new(0);

/// Allocations minus releases of one thread at a time, by home; written by that thread only.
#[repr(align(128))]
struct LiveCell {
    net: [AtomicI64; HOMES],
    in_use: AtomicBool,
}

impl LiveCell {
    const fn in_use() -> LiveCell {
        LiveCell { net: [const { AtomicI64::new(0) }; HOMES], in_use: AtomicBool::new(true) }
    }

    /// Of all homes.
    fn sum(&self) -> i64 {
        self.net.iter().map(|net| net.load(Relaxed)).sum()
    }
}

/// Cells are created for new threads, reused after threads end, and never freed.
static LIVE_CELLS: Mutex<Vec<&'static LiveCell>> = Mutex::new(Vec::new());

/// Counts for threads without a cache: code in late thread-local destructors. Shared, hence atomic addition.
static ORPHANS: LiveCell = LiveCell::in_use();

/// All slabs, by class.
static SLABS: Mutex<[Vec<BlockSlab>; CLASSES]> = Mutex::new([const { Vec::new() }; CLASSES]);

fn slabs() -> MutexGuard<'static, [Vec<BlockSlab>; CLASSES]> {
    SLABS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn live_cells() -> MutexGuard<'static, Vec<&'static LiveCell>> {
    LIVE_CELLS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lease_live_cell() -> &'static LiveCell {
    let mut cells = live_cells();
    if let Some(cell) = cells.iter().find(|cell| !cell.in_use.swap(true, Relaxed)) {
        return cell;
    }
    let cell: &'static LiveCell = Box::leak(Box::new(LiveCell::in_use()));
    cells.push(cell);
    cell
}

/// The heap of a platform with threads that run on this kernel thread; see [`crate::PlatformHeap`].
pub(crate) trait AlternateHeap {
    /// As [`allocate`], without counting.
    fn allocate(&self, class: SizeClass) -> Option<Block>;
    /// As [`release`], without counting.
    fn release(&self, class: SizeClass, block: Block);
    /// Bytes of free blocks that no thread has.
    fn free_bytes(&self) -> usize;
}

/// A thread's cache.
struct Cache {
    /// By home. The pair of regions never has room, nor has any while another heap is entered or allocations are refused.
    pairs: [Pair; HOMES],
    live: &'static LiveCell,
    /// The rest of the request by [`refuse`], if any.
    refusal: Option<Refusal>,
}

/// Allocations that still succeed, and the following ones that fail.
#[derive(Clone, Copy)]
struct Refusal {
    before: u64,
    refused: u64,
}

thread_local! {
    /// Not dropped with the thread: [`KEEPER`] empties it. A variable without a destructor is accessed without a check of
    /// its state, and each buffer accesses this one twice.
    static CACHE: UnsafeCell<ManuallyDrop<Cache>> = const {
        UnsafeCell::new(ManuallyDrop::new(Cache { pairs: [const { Pair::NONE }; HOMES], live: &ORPHANS, refusal: None }))
    };

    /// Made with the thread's magazines, and dropped when the thread ends.
    static KEEPER: CacheKeeper = const { CacheKeeper };

    /// Set during [`enter`]; null otherwise.
    static ENTERED_HEAP: Cell<Option<*const dyn AlternateHeap>> = const { Cell::new(None) };
}

impl Cache {
    #[inline]
    fn count(&self, home: Home, change: i64) {
        let net = &self.live.net[home as usize];
        net.store(net.load(Relaxed) + change, Relaxed);
    }

    /// Whether this allocation must fail for a test.
    fn is_refused(&mut self) -> bool {
        let Some(Refusal { before, refused }) = &mut self.refusal else { return false };
        let now = *before == 0;
        *if now { &mut *refused } else { before } -= 1;
        if *refused == 0 {
            self.refusal = None;
        }
        now
    }

    /// Gives the depot all blocks that the thread keeps.
    fn empty(&mut self) {
        for (pair, class) in self.pairs.iter_mut().zip(SizeClass::ALL) {
            pair.empty_into(&mut DEPOTS.open(class));
        }
    }

    /// Takes a live cell, once per thread, and makes magazines, unless another heap is entered or allocations are refused.
    /// False: the thread ends, and has given up its cache.
    #[must_use]
    fn register(&mut self) -> bool {
        if KEEPER.try_with(|_| ()).is_err() {
            return false;
        }
        if ptr::eq(self.live, &ORPHANS) {
            self.live = lease_live_cell();
        }
        if self.pairs[0].rounds == 0 && self.refusal.is_none() && entered_heap().is_none() {
            for (pair, class) in self.pairs.iter_mut().zip(SizeClass::ALL) {
                *pair = Pair::of(class);
            }
        }
        true
    }

    /// The thread ends: gives up the magazines and the live cell. From here on every access takes the slow path.
    fn retire(&mut self) {
        if ptr::eq(self.live, &ORPHANS) {
            return;
        }
        self.empty();
        SizeClass::ALL.iter().for_each(|&class| DEPOTS.retire(class));
        self.pairs = [const { Pair::NONE }; HOMES];
        // Under the registry's mutex, so that the next owner of the cell sees this thread's last count.
        let _cells = live_cells();
        self.live.in_use.store(false, Relaxed);
        self.live = &ORPHANS;
    }
}

/// Retires the thread's cache when the thread ends.
struct CacheKeeper;

impl Drop for CacheKeeper {
    fn drop(&mut self) {
        // SAFETY: as in `allocate`: the cache belongs to this thread and nothing in `retire` can come back to it.
        let _ = CACHE.try_with(|cache| unsafe { &mut *cache.get() }.retire());
    }
}

/// Slabs' worth of blocks of each class that [`trim`] leaves.
const KEPT_SLABS: usize = 2;

/// Adds up to `most` blocks of the class to the bytes in `taken`, such that these do not exceed `bound`. Returns how many.
fn take_room(taken: &AtomicUsize, bound: usize, class: SizeClass, most: usize) -> usize {
    let mut count = 0;
    let more = |bytes: usize| {
        count = (bound.saturating_sub(bytes) / class.stride()).min(most);
        (count > 0).then_some(bytes + count * class.stride())
    };
    taken.fetch_update(Relaxed, Relaxed, more).map_or(0, |_| count)
}

/// Adds a slab's worth of blocks to `into`, fewer if the limit leaves less; false if none.
pub(crate) fn grow(class: SizeClass, into: &mut Magazine) -> bool {
    let (limit, taken) = (LIMIT.load(Relaxed), &TAKEN[class as usize]);
    let most = take_room(taken, class.share(limit), class, class.rounds());
    let count = take_room(&FOOTPRINT, limit, class, most);
    taken.fetch_sub((most - count) * class.stride(), Relaxed);
    match carve(class, count, |block| into.push(block)) {
        Some(slab) => slabs()[class as usize].push(slab),
        None => {
            give_room_back(class, count * class.stride());
            return false;
        }
    }
    true
}

fn give_room_back(class: SizeClass, bytes: usize) {
    FOOTPRINT.fetch_sub(bytes, Relaxed);
    TAKEN[class as usize].fetch_sub(bytes, Relaxed);
}

/// Returns memory of an earlier peak to the system: slabs whose blocks are all free and in no thread's magazines,
/// except a few, and no more than was unused since the last call. Returns the bytes. The calling thread's magazines are
/// emptied; those of other threads keep a block of each of so many slabs at most as they have room for.
///
/// To be called every few seconds, by any thread; other threads find the depots empty for that time.
pub fn trim() -> usize {
    if entered_heap().is_some() {
        return 0;
    }
    let empty = |cache: &UnsafeCell<ManuallyDrop<Cache>>| {
        // SAFETY: as in `allocate`: the cache belongs to this thread and nothing in `empty` can come back to it.
        unsafe { &mut *cache.get() }.empty();
    };
    // A thread that has given up its cache has nothing there.
    let _ = CACHE.try_with(empty);
    SizeClass::ALL.iter().map(|&class| trim_class(class)).sum()
}

fn trim_class(class: SizeClass) -> usize {
    let (mut blocks, unused) = DEPOTS.take_all(class);
    let mut surplus = unused.saturating_sub(KEPT_SLABS * class.rounds());
    blocks.sort_unstable_by_key(Block::address);
    let (mut freed, mut gone) = (0, vec![false; blocks.len()]);
    let mut known = slabs();
    known[class as usize].sort_unstable_by_key(|slab| core::cmp::Reverse(slab.address()));
    known[class as usize].retain(|slab| {
        let (first, count) = (blocks.partition_point(|block| block.address() < slab.address()), slab.count());
        // There are no more than `count` addresses of blocks from the first to the last.
        let is_whole = blocks.get(first + count - 1).is_some_and(|block| block.address() == slab.last_address());
        if !is_whole || surplus < count {
            return true;
        }
        surplus -= count;
        freed += count * class.stride();
        gone[first..first + count].fill(true);
        // SAFETY: all blocks of the slab are in `blocks`, which this thread alone has. From here on they are compared by
        // address only, and removed. The slab is removed from its list, so it is not freed again.
        unsafe { slab.free() };
        false
    });
    let left = known[class as usize].len();
    known[class as usize].shrink_to(2 * left);
    drop(known);
    give_room_back(class, freed);
    let mut gone = gone.into_iter();
    blocks.retain(|_| !gone.next().unwrap_or(false));
    // Those at low addresses are used first, so that slabs at high ones become free.
    blocks.reverse();
    DEPOTS.open(class).put_back(blocks);
    freed
}

/// Small blocks that are asked of the processor before their turn. Blocks that a wave of requests has freed are in no near
/// cache when the next one takes them, and each request waits for a few of their lines.
const AHEAD: usize = 4;

/// Asks the processor for a small block that is allocated soon.
#[inline(always)]
fn ask_ahead(loaded: &Magazine) {
    if let Some(later) = loaded.len().checked_sub(AHEAD).and_then(|at| loaded.get(at)) {
        later.prefetch_small();
    }
}

/// A block of the class; none if the limit is reached or the system has no memory.
#[inline]
pub(crate) fn allocate(class: SizeClass) -> Option<Block> {
    CACHE
        .try_with(|cache| {
            // SAFETY: the cache belongs to this kernel thread, and the borrow ends before anything else runs on it.
            let cached = unsafe { &mut *cache.get() };
            match cached.pairs[class as usize].loaded.pop() {
                Some(block) => {
                    cached.count(class.home(), 1);
                    if class == SizeClass::Tiny {
                        ask_ahead(&cached.pairs[class as usize].loaded);
                    }
                    Some(block)
                }
                None => allocate_slowly(cache, class),
            }
        })
        .unwrap_or_else(|_| allocate_orphan(class))
}

/// Takes back a block. What follows a full magazine is all in the slow path, so that the fast one keeps nothing across a
/// call and saves no register; inlined, it would make its callers save them.
#[inline(never)]
pub(crate) fn release(block: Block) {
    let home = block.header().home;
    let known = CACHE.try_with(|cache| {
        // SAFETY: as in `allocate`; the borrow is not used behind the slow path.
        let cached = unsafe { &mut *cache.get() };
        let pair = &mut cached.pairs[home as usize];
        // The capacity is at least the rounds; with the comparison no call is left that would make the vector grow.
        let has_room = pair.loaded.len() < pair.rounds && pair.loaded.len() < pair.loaded.capacity();
        if has_room && !is_pressed(home) {
            pair.loaded.push(block);
            cached.count(home, -1);
        } else {
            release_slowly(cache, home, block);
        }
    });
    if known.is_err() {
        release_orphan(home, block);
    }
}

#[cold]
#[inline(never)]
fn allocate_slowly(cache: &UnsafeCell<ManuallyDrop<Cache>>, class: SizeClass) -> Option<Block> {
    {
        // SAFETY: as in `allocate`; the borrow ends with this block.
        let cache = unsafe { &mut *cache.get() };
        if !cache.register() {
            return allocate_orphan(class);
        }
        if cache.is_refused() {
            return None;
        }
    }
    let block = or_substitute(class, |class| match entered_heap() {
        Some(heap) => heap.allocate(class),
        None => {
            // SAFETY: as in `allocate`: the depots' locks are the real machine's, so no other thread runs here meanwhile.
            let pair = &mut unsafe { &mut *cache.get() }.pairs[class as usize];
            if pair.rounds == 0 { take_one(class) } else { pair.take(class, &*DEPOTS) }
        }
    })?;
    // SAFETY: as in `allocate`.
    unsafe { &*cache.get() }.count(block.header().home, 1);
    Some(block)
}

/// What `take` has of the class, or of the one that serves in its place.
fn or_substitute(class: SizeClass, take: impl Fn(SizeClass) -> Option<Block>) -> Option<Block> {
    take(class).or_else(|| {
        let block = take(class.substitute()?)?;
        SUBSTITUTES.fetch_add(1, Relaxed);
        Some(block)
    })
}

#[cold]
#[inline(never)]
fn release_slowly(cache: &UnsafeCell<ManuallyDrop<Cache>>, home: Home, block: Block) {
    // SAFETY: as in `allocate`; the borrow ends at once.
    if !unsafe { &mut *cache.get() }.register() {
        return release_orphan(home, block);
    }
    match (home.class(), entered_heap()) {
        (None, _) => region::release(block),
        (Some(class), Some(heap)) => heap.release(class, block),
        (Some(class), None) => {
            // SAFETY: as in `allocate_slowly`.
            let pair = &mut unsafe { &mut *cache.get() }.pairs[class as usize];
            if pair.rounds == 0 { DEPOTS.open(class).loose.push(block) } else { pair.put(class, block, &DEPOTS) }
        }
    }
    // SAFETY: as in `allocate`.
    unsafe { &*cache.get() }.count(home, -1);
}

/// For a thread that has given up its cache.
#[cold]
fn allocate_orphan(class: SizeClass) -> Option<Block> {
    let block = or_substitute(class, take_one)?;
    ORPHANS.net[block.header().home as usize].fetch_add(1, Relaxed);
    Some(block)
}

/// For a thread that keeps no blocks: the others of a refill go back to the depot.
#[cold]
fn take_one(class: SizeClass) -> Option<Block> {
    let mut pair = Pair::of(class);
    let block = pair.take(class, &*DEPOTS)?;
    pair.empty_into(&mut DEPOTS.open(class));
    Some(block)
}

#[cold]
fn release_orphan(home: Home, block: Block) {
    match home.class() {
        Some(class) => DEPOTS.open(class).loose.push(block),
        None => region::release(block),
    }
    ORPHANS.net[home as usize].fetch_sub(1, Relaxed);
}

/// Counts buffers of regions, which are not made by an allocation here, or do not end by a release.
pub(crate) fn count(change: i64) {
    let counted = CACHE.try_with(|cache| {
        // SAFETY: as in `allocate`.
        let cache = unsafe { &mut *cache.get() };
        let known = cache.register();
        if known {
            cache.count(Home::Region, change);
        }
        known
    });
    if counted != Ok(true) {
        ORPHANS.net[Home::Region as usize].fetch_add(change, Relaxed);
    }
}

/// The heap that this kernel thread's allocations go to instead of its own cache.
fn entered_heap<'a>() -> Option<&'a dyn AlternateHeap> {
    let heap = ENTERED_HEAP.try_with(Cell::get).ok().flatten()?;
    // SAFETY: `enter` clears the pointer before its borrow of the heap ends, and no caller here keeps the reference.
    Some(unsafe { &*heap })
}

/// Runs `work`, during which this kernel thread allocates from `heap` and releases to it.
pub(crate) fn enter<R>(heap: &dyn AlternateHeap, work: impl FnOnce() -> R) -> R {
    struct Back(Option<*const dyn AlternateHeap>);
    impl Drop for Back {
        fn drop(&mut self) {
            ENTERED_HEAP.set(self.0);
        }
    }
    CACHE.with(|cache| {
        // SAFETY: as in `allocate`; the borrow ends with the closure.
        let cache = unsafe { &mut *cache.get() };
        cache.empty();
        cache.pairs = [const { Pair::NONE }; HOMES];
    });
    // SAFETY: only the lifetime changes; `Back` clears the pointer before the borrow ends.
    let heap: &'static dyn AlternateHeap =
        unsafe { core::mem::transmute::<&dyn AlternateHeap, &'static dyn AlternateHeap>(heap) };
    let _back = Back(ENTERED_HEAP.replace(Some(heap)));
    work()
}

/// Gives free blocks that no thread has to the depots of the process.
pub(crate) fn give_to_process(class: SizeClass, blocks: &mut Magazine) {
    DEPOTS.open(class).loose.append(blocks);
}

/// How many packet buffers exist, in all threads. Exact when no thread is inside the pool: at rest, after the threads
/// have been joined, or in a single-threaded test.
pub fn live() -> usize {
    let net: i64 = live_cells().iter().map(|cell| cell.sum()).sum::<i64>() + ORPHANS.sum();
    // While threads run, a release may be visible before its allocation.
    usize::try_from(net).unwrap_or(0)
}

/// How many blocks of a class are free, in the depots or with a thread.
fn unused(class: SizeClass) -> usize {
    let of_class = |cell: &LiveCell| cell.net[class as usize].load(Relaxed);
    let net = live_cells().iter().map(|cell| of_class(cell)).sum::<i64>() + of_class(&ORPHANS);
    (TAKEN[class as usize].load(Relaxed) / class.stride()).saturating_sub(usize::try_from(net).unwrap_or(0))
}

/// How often a small packet got the block of a frame because there was no small block: the pool is at its limit, or its part
/// for small blocks is. Of all threads, since the process began.
pub fn substitutes() -> u64 {
    SUBSTITUTES.load(Relaxed)
}

/// Buffers that the calling thread has allocated minus those that it has released, plus a constant of the thread: the
/// difference of two readings shows the buffers left by work on this thread, whatever other threads do.
pub fn balance() -> i64 {
    let read = |cache: &UnsafeCell<ManuallyDrop<Cache>>| {
        // SAFETY: as in `allocate`: the cache belongs to this thread and nothing in `register` can come back here.
        let cache = unsafe { &mut *cache.get() };
        if cache.register() { cache.live.sum() } else { 0 }
    };
    CACHE.try_with(read).unwrap_or_default()
}

/// Whether a block of `class` can be allocated such that about `reserve` more are left after it. Always true unless the
/// pool is bounded; then the call reads every thread's count.
#[inline(always)]
pub(crate) fn leaves(class: SizeClass, reserve: usize) -> bool {
    let limit = LIMIT.load(Relaxed);
    limit == usize::MAX || leaves_of(limit, class, reserve)
}

#[cold]
#[inline(never)]
fn leaves_of(limit: usize, class: SizeClass, reserve: usize) -> bool {
    let left = |class: SizeClass, room: usize| unused(class) + room / class.stride() > reserve;
    // What other classes may take counts as taken.
    let tiny = SizeClass::Tiny.share(limit).saturating_sub(TAKEN[SizeClass::Tiny as usize].load(Relaxed));
    let room = limit.saturating_sub(FOOTPRINT.load(Relaxed));
    match class {
        SizeClass::Tiny if left(class, tiny.min(room)) => true,
        _ => left(class.substitute().unwrap_or(class), room.saturating_sub(tiny)),
    }
}

/// Bounds the memory of the pool to `bytes` from now on; `usize::MAX`, the default, means no bound. Memory already
/// taken is not given back by this ([`trim`] does): below [`footprint`], nothing new is taken. At the limit allocations return `None` once the
/// free blocks are used up; other threads that make no call meanwhile may still cache up to two magazines each (less
/// than 600 KiB per size class).
pub fn set_limit(bytes: usize) {
    LIMIT.store(bytes, Relaxed);
    SizeClass::ALL.iter().for_each(|&class| press(class, DEPOTS.are_global()));
}

/// Says where the process keeps free blocks from now on; other threads give up their magazines at their next release. For
/// measurements: with [`Caching::Global`] all classes stay *pressed*, so the fast path needs no check for it.
pub fn set_caching(caching: Caching) {
    DEPOTS.set_caching(caching);
    SizeClass::ALL.iter().for_each(|&class| press(class, caching == Caching::Global));
}

/// Makes the calling thread's allocations fail by number: the next `before` succeed, the following `refused` return
/// `None`, and later ones succeed again. Replaces an earlier request; `refuse(0, 0)` ends it. For tests: meanwhile
/// the thread keeps no free blocks, and each of its allocations takes a lock.
pub fn refuse(before: u64, refused: u64) {
    let refusal = (refused > 0).then_some(Refusal { before, refused });
    let set = |cache: &UnsafeCell<ManuallyDrop<Cache>>| {
        // SAFETY: as in `allocate`: the cache belongs to this thread and nothing here can come back to it.
        let cache = unsafe { &mut *cache.get() };
        if cache.register() && refusal.is_some() {
            cache.empty();
            cache.pairs = [const { Pair::NONE }; HOMES];
        }
        cache.refusal = refusal;
    };
    let _ = CACHE.try_with(set);
}

/// Failures requested by [`refuse`] on this thread that have not happened yet.
pub fn refusals_left() -> u64 {
    let left = |cache: &UnsafeCell<ManuallyDrop<Cache>>| {
        // SAFETY: as in `refuse`.
        unsafe { &*cache.get() }.refusal.map_or(0, |refusal| refusal.refused)
    };
    CACHE.try_with(left).unwrap_or(0)
}

/// Bytes of the blocks that hold packets or are in a thread's cache: [`footprint`] minus the free blocks in the depots.
/// Takes a lock for each size class.
pub fn in_use() -> usize {
    let theirs = entered_heap().map_or(0, |heap| heap.free_bytes());
    footprint().saturating_sub(DEPOTS.free_bytes() + theirs)
}

/// Bytes that the pool has taken from the system, used or free. Shrinks by [`trim`] alone.
pub fn footprint() -> usize {
    FOOTPRINT.load(Relaxed)
}
