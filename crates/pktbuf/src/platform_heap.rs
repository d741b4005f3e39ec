//! [`PlatformHeap`]: the pool for threads that are not kernel threads.
//!
//! A simulator or a model checker runs many threads of its own on one thread of the kernel. With the real machine's
//! pool they would share that thread's magazines: buffers would never move between processors, and no thread would ever
//! wait for a depot. Here each of them, numbered by [`Platform::thread_index`], has its own magazines, and the depots
//! are behind the platform's locks, so that a wait for them is scheduled, charged and counted like any other. Blocks,
//! slabs, limit and the count of live buffers are those of the process.
//!
//! Installed by the owner of the platform's threads, for as long as they run. What may never happen: the cache of one
//! thread used by another, or a block that is lost when the heap is dropped.

use core::cell::UnsafeCell;

use sync::{LockKind, PerThread, Platform, Writers};

use crate::block::{Block, CLASSES, SizeClass};
use crate::depot::{Caching, Depots, Pair};
use crate::pool::{self, AlternateHeap};

/// The pool as threads of the platform `P` see it.
///
/// ```
/// use pktbuf::{PktBuf, PlatformHeap};
/// // A simulator names its own platform here.
/// let heap: PlatformHeap<sync::Real> = PlatformHeap::new(sync::LockKind::Mcs);
/// let sent = heap.enter(|| PktBuf::from_slice(b"from a magazine of this heap"));
/// assert!(sent.is_some());
/// ```
pub struct PlatformHeap<P: Platform> {
    depots: Depots<P>,
    caches: PerThread<ThreadCache, P>,
}

/// The magazines of one thread. `None` for threads without an index, which share one place and must not share
/// magazines.
struct ThreadCache(Option<UnsafeCell<[Pair; CLASSES]>>);

// SAFETY: the magazines are used by the thread with the cache's index only, which is one thread at a time, and by the
// heap's drop, when no thread uses the heap any more.
unsafe impl Sync for ThreadCache {}

impl<P: Platform> PlatformHeap<P> {
    /// An empty heap whose depots have locks of this kind.
    pub fn new(kind: LockKind) -> Self {
        PlatformHeap::with_caching(kind, Caching::PerThread)
    }

    /// The same, with free blocks in magazines or in the depots alone.
    pub fn with_caching(kind: LockKind, caching: Caching) -> Self {
        let make = |writers| match writers {
            Writers::One => ThreadCache(Some(UnsafeCell::new(SizeClass::ALL.map(Pair::of)))),
            Writers::Many => ThreadCache(None),
        };
        PlatformHeap { depots: Depots::new(kind, caching), caches: PerThread::new(make) }
    }

    /// Runs `work`, during which every allocation and every release on this thread of the kernel is one of the thread
    /// of `P` that runs at that moment. Threads of `P` that run on several threads of the kernel enter on each of them.
    ///
    /// To be called outside the threads of `P`, or in the one that outlives all others.
    pub fn enter<R>(&self, work: impl FnOnce() -> R) -> R {
        pool::enter(self, work)
    }

    /// Calls `use_pair` with the calling thread's magazines, or with two that are emptied afterwards.
    fn with_pair<R>(&self, class: SizeClass, use_pair: impl FnOnce(&mut Pair) -> R) -> R {
        if let ThreadCache(Some(pairs)) = self.caches.here() {
            // SAFETY: only this thread uses these magazines. It may be descheduled inside `use_pair`, while it waits
            // for a depot; it cannot re-enter before that ends, because a depot calls nothing.
            return use_pair(&mut unsafe { &mut *pairs.get() }[class as usize]);
        }
        let mut pair = Pair::of(class);
        let result = use_pair(&mut pair);
        pair.empty_into(&mut self.depots.open(class));
        result
    }
}

impl<P: Platform> AlternateHeap for PlatformHeap<P> {
    fn allocate(&self, class: SizeClass) -> Option<Block> {
        self.with_pair(class, |pair| pair.take(class, &self.depots))
    }

    fn release(&self, class: SizeClass, block: Block) {
        self.with_pair(class, |pair| pair.put(class, block, &self.depots));
    }

    fn free_bytes(&self) -> usize {
        self.depots.free_bytes()
    }
}

impl<P: Platform> Drop for PlatformHeap<P> {
    /// Gives all free blocks to the process. Takes no lock of the platform: its threads may already have ended.
    fn drop(&mut self) {
        for class in SizeClass::ALL {
            let mut blocks = self.depots.drain(class);
            for pairs in self.caches.iter().filter_map(|cache| cache.0.as_ref()) {
                // SAFETY: `&mut self`: no thread uses the heap any more.
                let pair = &mut unsafe { &mut *pairs.get() }[class as usize];
                blocks.append(&mut pair.loaded);
                blocks.append(&mut pair.previous);
            }
            pool::give_to_process(class, &mut blocks);
        }
    }
}
