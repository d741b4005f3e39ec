//! [`PerThreadCounters`]: one block of counters for each thread that counts, added up when read.
//!
//! For work by any thread: on shared, locked connections, and calls that belong to no cell. Each thread counts with a
//! load and a store in cache lines that no other thread writes. What may never happen: a lost count, or a cache line
//! that two threads write.
//!
//! [`PerThreadCounters::racy`] is the exception, on purpose: one block for all threads, counted in the same two steps, as
//! BSD's kernels of 2006 counted. Two threads that count at once may lose a count.

use core::ops::Deref;

use sync::{PerThread, Platform, Real, Writers};

use crate::{CounterSnapshot, Counters};

/// Counters that any number of threads write at once. Dereferences to the calling thread's block.
///
/// Blocks are found by [`Platform::thread_index`], so that each thread of a simulator has its own, too.
///
/// ```
/// use observe::{Counter, PerThreadCounters};
/// let counters: PerThreadCounters = PerThreadCounters::new();
/// counters.increment(Counter::SegmentsIn);
/// assert_eq!(counters.snapshot().get(Counter::SegmentsIn), 1);
/// ```
pub struct PerThreadCounters<P: Platform = Real> {
    blocks: PerThread<Counters, P>,
    /// The bits of a thread's index that choose its block: all, or none.
    chooses: usize,
}

impl<P: Platform> PerThreadCounters<P> {
    /// All zero.
    pub const fn new() -> Self {
        Self::chosen_by(usize::MAX)
    }

    /// All zero, in one block for all threads; see the head of the file. Counts may be lost, and none is invented.
    pub const fn racy() -> Self {
        Self::chosen_by(0)
    }

    const fn chosen_by(chooses: usize) -> Self {
        let make = |writers| match writers {
            Writers::One => Counters::new(),
            Writers::Many => Counters::shared(),
        };
        PerThreadCounters { blocks: PerThread::new(make), chooses }
    }

    /// The calling thread's block.
    #[inline]
    pub fn here(&self) -> &Counters {
        self.blocks.slot(P::thread_index() & self.chooses)
    }

    /// The sum over all threads, ended ones included. Exact when no thread is counting, unless they are
    /// [racy](PerThreadCounters::racy).
    pub fn snapshot(&self) -> CounterSnapshot {
        Counters::fold(self.blocks.iter())
    }
}

impl<P: Platform> Deref for PerThreadCounters<P> {
    type Target = Counters;

    #[inline]
    fn deref(&self) -> &Counters {
        self.here()
    }
}

impl<P: Platform> Default for PerThreadCounters<P> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::Counter;

    /// One block for all threads. What they count after one another is exact; nothing is invented.
    #[test]
    fn racy_threads_share_a_block_and_count_at_most_what_happened() {
        let counters = PerThreadCounters::<Real>::racy();
        let count = || {
            for _ in 0..10_000 {
                counters.increment(Counter::SegmentsIn);
            }
            core::ptr::from_ref(counters.here()).addr()
        };
        let one_by_one: HashSet<usize> =
            (0..2).map(|_| thread::scope(|scope| scope.spawn(count).join().unwrap())).collect();
        assert_eq!((counters.snapshot().get(Counter::SegmentsIn), one_by_one.len()), (20_000, 1));
        thread::scope(|scope| (0..2).map(|_| scope.spawn(count)).for_each(drop));
        let counted = counters.snapshot().get(Counter::SegmentsIn);
        assert!((20_001..=40_000).contains(&counted), "{counted}");
    }

    /// Eight threads at once, each with its own block and cache line.
    #[test]
    fn threads_count_apart_and_the_sum_is_exact() {
        let (counters, barrier) = (PerThreadCounters::<Real>::new(), Barrier::new(8));
        let count = || {
            barrier.wait();
            for _ in 0..10_000 {
                counters.increment(Counter::SegmentsIn);
            }
            barrier.wait();
            let block = core::ptr::from_ref(counters.here()).addr();
            assert_eq!(counters.get(Counter::SegmentsIn), 10_000, "another thread counted here");
            block
        };
        let blocks: HashSet<usize> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(counters.snapshot().get(Counter::SegmentsIn), 80_000);
        assert!(blocks.iter().all(|block| block % 128 == 0) && blocks.len() == 8, "blocks share lines: {blocks:?}");
    }
}
