//! Magazines of free blocks, and the depot where threads exchange them, with a lock for each thread and size class.
//!
//! Called by the caches of threads: `pool.rs` on the real machine, `platform_heap.rs` on others. Both run this code;
//! they differ in the platform of the locks that guard the shelves.
//!
//! **Shelves of threads.** If the free blocks of a load rise and fall by more than two magazines, it visits the depot all the time. So
//! each thread has shelves of its own there ([`SETS`]): what it puts there it takes again, from its own cache of the processor,
//! and takes no lock that another processor has had. They keep as many magazines as the thread has ever lacked, [`KEPT`] at
//! most: a thread that only releases has none. What is more goes to the common shelves, which also have the blocks of ended
//! threads and those of a class that is pressed. A thread takes from its own shelves, then from the common ones, then makes
//! the pool grow. Only where that cannot grow it takes from those of others: if it took from others first, threads would exchange the
//! blocks that their processors have in their caches for as long as they do not need most at the same time.
//!
//! What may never happen: a block in two places, a magazine that reallocates (each is made with its full capacity), two of
//! these locks held at once, or other work than moving pointers between lists under one.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};

use sync::{CachePadded, Guard, Lock, LockClass, LockKind, Platform};

use crate::block::{Block, CLASSES, HOMES, Home, SizeClass};
use crate::pool::grow;

/// Free blocks of one class. Its capacity is the class's rounds, given at creation.
pub(crate) type Magazine = Vec<Block>;

/// Whether an allocation failed against the limit; see the head of `pool.rs`. Read on every release, written rarely, so
/// the lines stay shared in all caches. The last belongs to no class and stays false.
static PRESSED: [CachePadded<AtomicBool>; HOMES] = [const { CachePadded::new(AtomicBool::new(false)) }; HOMES];

/// Whether threads must not cache blocks of this home.
#[inline]
pub(crate) fn is_pressed(home: Home) -> bool {
    PRESSED[home as usize].load(Relaxed)
}

/// Begins or ends pressure on one class.
pub(crate) fn press(class: SizeClass, pressed: bool) {
    PRESSED[class as usize].store(pressed, Relaxed);
}

/// Free blocks of one class that no thread has in its magazines.
#[derive(Default)]
pub(crate) struct Shelves {
    full: Vec<Magazine>,
    empty: Vec<Magazine>,
    /// Blocks that are not in whole magazines: from ended threads, under pressure, and what a trim has left.
    pub(crate) loose: Magazine,
    /// The fewest blocks that lay here since the last trim.
    least: usize,
    /// Of a thread's shelves: the magazines that it has lacked, [`KEPT`] at most.
    lacked: usize,
}

impl Shelves {
    /// Takes all blocks out, and returns how many of them were not needed since the last call.
    fn take_all(&mut self) -> (Magazine, usize) {
        self.note_least();
        let blocks = self.take_blocks();
        let unused = self.least.min(blocks.len());
        self.least = 0;
        (blocks, unused)
    }

    /// Takes all blocks out.
    fn take_blocks(&mut self) -> Magazine {
        let mut blocks = core::mem::take(&mut self.loose);
        self.full.drain(..).for_each(|mut magazine| blocks.append(&mut magazine));
        (self.full, self.empty) = (Vec::new(), Vec::new());
        blocks
    }

    /// Makes a magazine of blocks loose if none are.
    fn loosen(&mut self) {
        if self.loose.is_empty()
            && let Some(mut magazine) = self.full.pop()
        {
            self.loose.append(&mut magazine);
            self.empty.push(magazine);
        }
    }

    /// Puts blocks back after [`Shelves::take_all`].
    pub(crate) fn put_back(&mut self, mut blocks: Magazine) {
        self.loose.append(&mut blocks);
        self.least = self.blocks();
    }

    /// Blocks were taken from here.
    fn note_least(&mut self) {
        self.least = self.least.min(self.blocks());
    }

    /// The number of blocks in the depot.
    pub(crate) fn blocks(&self) -> usize {
        // All magazines are equally full.
        self.full.first().map_or(0, Vec::len) * self.full.len() + self.loose.len()
    }
}

/// Where free blocks are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Caching {
    /// In magazines of each thread, then on shelves of that thread in the depot. What a thread releases it allocates next, from its
    /// own cache of the processor.
    #[default]
    PerThread,
    /// In magazines of each thread, and then in a depot for all of them, as in most kernels (Bonwick and Adams 2001, "Magazines
    /// and vmem"). For measuring what these do.
    SharedDepot,
    /// In the depots alone: every allocation and every release takes the lock of its size class. For measuring what the
    /// magazines are good for (Nahum et al. 1994, "Managing data for cache affinity").
    Global,
}

/// Sets of shelves for threads; of more threads some share one. A model checker has two, which is enough for a thread to find a
/// block with another one.
const SETS: usize = 64;
/// The most magazines of a class on the shelves of a thread: 0.8 MiB of the smallest blocks, 4 MiB of those of frames, 8 MiB of
/// the largest. About what thousands of connections need more at one moment than at another.
const KEPT: usize = 32;
/// The shelves that belong to no thread.
const COMMON: usize = 0;

/// The shelves of a thread, or the common ones, by class.
type ShelfSet<P> = CachePadded<[Lock<Shelves, P>; CLASSES]>;

/// The depots of all classes.
pub(crate) struct Depots<P: Platform> {
    /// The common ones, then those of threads.
    sets: Box<[ShelfSet<P>]>,
    /// The last set that has ever had a block. Written rarely.
    last: AtomicUsize,
    /// A [`Caching`]. Read where a thread's own magazines do not suffice, and on platforms that are not real.
    caching: AtomicU8,
}

impl<P: Platform> Depots<P> {
    /// Empty ones.
    pub(crate) fn new(kind: LockKind, caching: Caching) -> Self {
        let lock = |_| Lock::new(kind, LockClass::BufferPool, Shelves::default());
        let sets = 1 + if P::EXPLORED { 2 } else { SETS };
        Depots {
            sets: (0..sets).map(|_| CachePadded::new(SizeClass::ALL.map(lock))).collect(),
            last: AtomicUsize::new(COMMON),
            caching: AtomicU8::new(caching as u8),
        }
    }

    pub(crate) fn set_caching(&self, caching: Caching) {
        self.caching.store(caching as u8, Relaxed);
    }

    /// Whether no thread keeps free blocks.
    pub(crate) fn are_global(&self) -> bool {
        self.caching.load(Relaxed) == Caching::Global as u8
    }

    /// The common shelves of a class.
    pub(crate) fn open(&self, class: SizeClass) -> Guard<'_, Shelves, P> {
        self.sets[COMMON][class as usize].lock()
    }

    /// The number of the calling thread's set.
    fn here(&self) -> usize {
        1 + P::thread_index() % (self.sets.len() - 1)
    }

    /// The shelves of the calling thread, if threads have their own.
    fn open_own(&self, class: SizeClass) -> Option<Guard<'_, Shelves, P>> {
        let has_own = self.caching.load(Relaxed) == Caching::PerThread as u8;
        has_own.then(|| self.sets[self.here()][class as usize].lock())
    }

    /// Puts a full magazine on the calling thread's shelves, or on the common ones, and returns an empty one if there is one.
    fn put(&self, class: SizeClass, magazine: Magazine) -> Option<Magazine> {
        let own = self.open_own(class).filter(|own| own.full.len() < own.lacked);
        if own.is_some() && self.last.load(Relaxed) < self.here() {
            self.last.fetch_max(self.here(), Relaxed);
        }
        let mut shelves = own.unwrap_or_else(|| self.open(class));
        shelves.full.push(magazine);
        shelves.empty.pop()
    }

    /// The sets that may have a block.
    fn used(&self) -> &[ShelfSet<P>] {
        &self.sets[..=self.last.load(Relaxed)]
    }

    /// The calling thread ends: what lies on its own shelves becomes common.
    pub(crate) fn retire(&self, class: SizeClass) {
        let mut own = self.sets[self.here()][class as usize].lock();
        own.lacked = 0;
        let mut blocks = own.take_blocks();
        drop(own);
        self.open(class).loose.append(&mut blocks);
    }

    /// The shelves of all threads that may have a block, one after the other.
    fn open_each(&self, class: SizeClass) -> impl Iterator<Item = Guard<'_, Shelves, P>> {
        self.used()[COMMON + 1..].iter().map(move |set| set[class as usize].lock())
    }

    /// Takes all blocks of a class out, and returns how many of them were not needed since the last call.
    pub(crate) fn take_all(&self, class: SizeClass) -> (Magazine, usize) {
        let (mut blocks, mut unused) = (Magazine::new(), 0);
        for set in self.used() {
            let (mut more, least) = set[class as usize].lock().take_all();
            blocks.append(&mut more);
            unused += least;
        }
        (blocks, unused)
    }

    /// The same without a lock: the borrow proves that nothing else uses them.
    pub(crate) fn drain(&mut self, class: SizeClass) -> Magazine {
        self.sets.iter_mut().flat_map(|set| set[class as usize].get_mut().take_all().0).collect()
    }

    /// Bytes of the free blocks of all classes. Takes each lock once.
    pub(crate) fn free_bytes(&self) -> usize {
        let of_class = |class: SizeClass| {
            let blocks = self.used().iter().map(|set| set[class as usize].lock().blocks());
            blocks.sum::<usize>() * class.stride()
        };
        SizeClass::ALL.into_iter().map(of_class).sum()
    }
}

/// The two magazines that a thread has of one class. `previous` is always full or empty.
pub(crate) struct Pair {
    pub(crate) loaded: Magazine,
    pub(crate) previous: Magazine,
    /// Capacity of a magazine; 0 in a pair that keeps nothing.
    pub(crate) rounds: usize,
}

impl Pair {
    /// A pair that keeps nothing.
    pub(crate) const NONE: Pair = Pair { loaded: Vec::new(), previous: Vec::new(), rounds: 0 };

    /// Two empty magazines.
    pub(crate) fn of(class: SizeClass) -> Pair {
        let magazine = || Vec::with_capacity(class.rounds());
        Pair { loaded: magazine(), previous: magazine(), rounds: class.rounds() }
    }

    /// A block from a magazine, the depot or a fresh slab; none if the limit is reached or the system has no memory.
    pub(crate) fn take<P: Platform>(&mut self, class: SizeClass, depots: &Depots<P>) -> Option<Block> {
        if let Some(block) = self.loaded.pop() {
            return Some(block);
        }
        if !self.previous.is_empty() {
            core::mem::swap(&mut self.loaded, &mut self.previous);
        } else if !self.refill(class, depots) && !grow(class, &mut self.loaded) && !self.refill_elsewhere(class, depots)
        {
            press(class, true);
            // A block may have been returned between the check of the depot and the announcement of pressure.
            self.refill(class, depots);
        }
        let block = self.loaded.pop();
        if depots.are_global() && !self.loaded.is_empty() {
            self.empty_into(&mut depots.open(class));
        }
        block
    }

    /// Keeps a free block, or gives it to the depot.
    pub(crate) fn put<P: Platform>(&mut self, class: SizeClass, block: Block, depots: &Depots<P>) {
        if is_pressed(class.home()) || depots.are_global() {
            let mut shelves = depots.open(class);
            shelves.loose.push(block);
            self.empty_into(&mut shelves);
            return;
        }
        if self.loaded.len() == self.rounds {
            if !self.previous.is_empty() {
                self.unload(class, depots);
            }
            core::mem::swap(&mut self.loaded, &mut self.previous);
        }
        self.loaded.push(block);
    }

    /// Gives the depot all blocks.
    pub(crate) fn empty_into(&mut self, shelves: &mut Shelves) {
        shelves.loose.append(&mut self.loaded);
        shelves.loose.append(&mut self.previous);
    }

    /// Gets blocks from the thread's own shelves or the common ones into the empty `loaded`; false if they have none.
    fn refill<P: Platform>(&mut self, class: SizeClass, depots: &Depots<P>) -> bool {
        if is_pressed(class.home()) || depots.are_global() {
            return self.refill_one(class, depots);
        }
        if let Some(mut own) = depots.open_own(class) {
            if self.refill_from(&mut own) {
                return true;
            }
            own.lacked = (own.lacked + 1).min(KEPT);
        }
        self.refill_from(&mut depots.open(class))
    }

    /// Gets blocks from the shelves of any thread.
    fn refill_elsewhere<P: Platform>(&mut self, class: SizeClass, depots: &Depots<P>) -> bool {
        depots.open_each(class).any(|mut shelves| self.refill_from(&mut shelves))
    }

    /// Gets a magazine from these shelves, or as many loose blocks; false if they have none.
    fn refill_from(&mut self, shelves: &mut Shelves) -> bool {
        if let Some(magazine) = shelves.full.pop() {
            shelves.empty.push(core::mem::replace(&mut self.loaded, magazine));
        } else {
            let left = shelves.loose.len().saturating_sub(self.rounds);
            self.loaded.extend(shelves.loose.drain(left..));
        }
        shelves.note_least();
        !self.loaded.is_empty()
    }

    /// Gets one block from the common shelves, and what a thread has on its own becomes common if there is none. Ends the pressure if
    /// plenty remain, unless it is to stay.
    fn refill_one<P: Platform>(&mut self, class: SizeClass, depots: &Depots<P>) -> bool {
        let mut shelves = depots.open(class);
        shelves.loosen();
        if shelves.loose.is_empty() {
            shelves.note_least();
            drop(shelves);
            let mut each = depots.open_each(class);
            let Some(found) = each.find_map(|mut own| Some(own.take_blocks()).filter(|blocks| !blocks.is_empty()))
            else {
                return false;
            };
            shelves = depots.open(class);
            shelves.loose.extend(found);
        }
        if shelves.loose.len() > 2 * self.rounds && !depots.are_global() {
            press(class, false);
        }
        self.loaded.extend(shelves.loose.pop());
        shelves.note_least();
        !self.loaded.is_empty()
    }

    /// Gives the full `previous` to the depot and gets an empty magazine for it.
    fn unload<P: Platform>(&mut self, class: SizeClass, depots: &Depots<P>) {
        let empty = depots.put(class, core::mem::take(&mut self.previous));
        self.previous = empty.unwrap_or_else(|| Vec::with_capacity(self.rounds));
    }
}
