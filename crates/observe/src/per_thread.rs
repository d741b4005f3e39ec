//! [`PerThreadCounters`]: one block of counters for each thread that counts, added up when read.
//!
//! For work by any thread: on shared, locked connections, and calls that belong to no cell. Each thread counts with a
//! load and a store in cache lines that no other thread writes. What may never happen: a lost count, or a cache line
//! that two threads write.

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
}

impl<P: Platform> PerThreadCounters<P> {
    /// All zero.
    pub const fn new() -> Self {
        let make = |writers| match writers {
            Writers::One => Counters::new(),
            Writers::Many => Counters::shared(),
        };
        PerThreadCounters { blocks: PerThread::new(make) }
    }

    /// The calling thread's block.
    #[inline]
    pub fn here(&self) -> &Counters {
        self.blocks.here()
    }

    /// The sum over all threads, ended ones included. Exact when no thread is counting.
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
