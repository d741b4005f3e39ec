//! Magazines of free blocks, and the depot where threads exchange them, a lock for each size class.
//!
//! Called by the caches of threads: `pool.rs` on the real machine, `platform_heap.rs` on others. Both run this code;
//! they differ in the platform of the lock that guards the shelves. What may never happen: a block in two places, a
//! magazine that reallocates (each is made with its full capacity), or other work than moving pointers between lists
//! under a depot's lock.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

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

/// Free blocks of one class that no thread has.
#[derive(Default)]
pub(crate) struct Shelves {
    pub(crate) full: Vec<Magazine>,
    pub(crate) empty: Vec<Magazine>,
    /// Blocks that are not in whole magazines: from ended threads, under pressure, and what a trim has left.
    pub(crate) loose: Magazine,
    /// The fewest blocks that lay here since the last trim.
    least: usize,
}

impl Shelves {
    /// Takes all blocks out, and returns how many of them were not needed since the last call.
    pub(crate) fn take_all(&mut self) -> (Magazine, usize) {
        self.note_least();
        let mut blocks = core::mem::take(&mut self.loose);
        self.full.drain(..).for_each(|mut magazine| blocks.append(&mut magazine));
        (self.full, self.empty) = (Vec::new(), Vec::new());
        let unused = self.least.min(blocks.len());
        (blocks, unused)
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
    /// In magazines of each thread, and then in a depot. What a thread releases it allocates next, from its own cache of
    /// the processor.
    #[default]
    PerThread,
    /// In the depots alone: every allocation and every release takes the lock of its size class. For measuring what the
    /// magazines are good for (Nahum et al. 1994, "Managing data for cache affinity").
    Global,
}

/// The depots of all classes.
pub(crate) struct Depots<P: Platform> {
    shelves: [CachePadded<Lock<Shelves, P>>; CLASSES],
    /// [`Caching::Global`]. Read where a thread's own magazines do not suffice, and on platforms that are not real.
    global: AtomicBool,
}

impl<P: Platform> Depots<P> {
    /// Empty ones.
    pub(crate) fn new(kind: LockKind, caching: Caching) -> Self {
        let depot = |_| CachePadded::new(Lock::new(kind, LockClass::BufferPool, Shelves::default()));
        Depots { shelves: SizeClass::ALL.map(depot), global: AtomicBool::new(caching == Caching::Global) }
    }

    pub(crate) fn set_caching(&self, caching: Caching) {
        self.global.store(caching == Caching::Global, Relaxed);
    }

    /// Whether no thread keeps free blocks.
    pub(crate) fn are_global(&self) -> bool {
        self.global.load(Relaxed)
    }

    pub(crate) fn open(&self, class: SizeClass) -> Guard<'_, Shelves, P> {
        self.shelves[class as usize].lock()
    }

    /// The shelves without a lock: the borrow proves that nothing else uses them.
    pub(crate) fn shelves_mut(&mut self, class: SizeClass) -> &mut Shelves {
        self.shelves[class as usize].get_mut()
    }

    /// Bytes of the free blocks of all classes. Takes each lock once.
    pub(crate) fn free_bytes(&self) -> usize {
        SizeClass::ALL.iter().map(|&class| self.open(class).blocks() * class.stride()).sum()
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
        } else if !self.refill(class, depots) && !grow(class, &mut self.loaded) {
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

    /// Gets blocks from the depot into the empty `loaded`; false if the depot has none.
    fn refill<P: Platform>(&mut self, class: SizeClass, depots: &Depots<P>) -> bool {
        let mut shelves = depots.open(class);
        if is_pressed(class.home()) || depots.are_global() {
            return self.refill_one(class, &mut shelves, depots.are_global());
        }
        if let Some(magazine) = shelves.full.pop() {
            shelves.empty.push(core::mem::replace(&mut self.loaded, magazine));
            shelves.note_least();
            return true;
        }
        let left = shelves.loose.len().saturating_sub(self.rounds);
        self.loaded.extend(shelves.loose.drain(left..));
        shelves.note_least();
        !self.loaded.is_empty()
    }

    /// Gets one block, and ends the pressure if plenty remain, unless it is to stay.
    fn refill_one(&mut self, class: SizeClass, shelves: &mut Shelves, stays: bool) -> bool {
        if shelves.loose.is_empty()
            && let Some(mut magazine) = shelves.full.pop()
        {
            shelves.loose.append(&mut magazine);
            shelves.empty.push(magazine);
        }
        if shelves.loose.len() > 2 * self.rounds && !stays {
            press(class, false);
        }
        self.loaded.extend(shelves.loose.pop());
        shelves.note_least();
        !self.loaded.is_empty()
    }

    /// Gives the full `previous` to the depot and gets an empty magazine for it.
    fn unload<P: Platform>(&mut self, class: SizeClass, depots: &Depots<P>) {
        let full = core::mem::take(&mut self.previous);
        let mut shelves = depots.open(class);
        let empty = shelves.empty.pop();
        shelves.full.push(full);
        drop(shelves);
        self.previous = empty.unwrap_or_else(|| Vec::with_capacity(self.rounds));
    }
}
