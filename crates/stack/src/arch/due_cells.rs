//! [`DueCells`]: the cells that the next tick of a receive thread has to look at.
//!
//! A receive thread ticks once for each batch, and most cells have no work for it then. A thread that gives a cell work notes
//! that here, so that a tick without work costs a few loads, however many cells there are.
//!
//! # Timers
//! `earliest` is at most the deadline of each cell. A thread that has published an earlier deadline of a cell lowers it
//! ([`DueCells::publish`]). A thread that finds it expired raises it: it writes "never", reads all deadlines, and lowers it to
//! the least of them ([`DueCells::look`]). Both have a fence between their write and their reads, so that either the one finds
//! "never" and lowers it, or the other finds the deadline.
//!
//! # Messages
//! Each receive thread has a bit for each cell. A thread that has queued a message for a cell sets the bit of the receive thread
//! that owns the cell ([`DueCells::mark`]), and that thread clears it before it looks at the cell ([`DueCells::take`]).
//!
//! What may never happen: a cell has work, and neither a bit nor `earliest` says so, nor is a thread about to look at the cell.

use observe::Time;
use sync::{Atomic, CachePadded, Ordering, Platform};

/// Nothing is armed.
const NEVER: u64 = u64::MAX;
/// Cells in a word.
const WORD: usize = u64::BITS as usize;

/// A bit for each cell, on lines of their own.
type MarkedCells<P> = CachePadded<Box<[<P as Platform>::AtomicU64]>>;

/// See the head of the file. Any thread.
pub struct DueCells<P: Platform> {
    /// In nanoseconds.
    earliest: CachePadded<P::AtomicU64>,
    /// The marked cells, by receive thread.
    marked: Box<[MarkedCells<P>]>,
}

impl<P: Platform> DueCells<P> {
    /// For so many receive threads that have messages for so many cells; no cell has work.
    pub fn new(threads: usize, cells: usize) -> Self {
        let words = |_| CachePadded::new((0..cells.div_ceil(WORD)).map(|_| P::AtomicU64::new(0)).collect());
        DueCells { earliest: CachePadded::new(P::AtomicU64::new(NEVER)), marked: (0..threads).map(words).collect() }
    }

    /// Publishes the deadline of a cell, in nanoseconds, in the cell's own word. Called by the thread that uses the cell; and by
    /// one that has left work in it, with 0: it need not be seen where another thread uses the cell meanwhile.
    #[inline(always)]
    pub fn publish(&self, word: &P::AtomicU64, deadline: u64) {
        let before = word.load(Ordering::Relaxed);
        if before != deadline {
            word.store(deadline, Ordering::Relaxed);
            if deadline < before {
                self.advance(deadline);
            }
        }
    }

    /// The word of a cell has an earlier deadline now.
    #[inline(never)]
    fn advance(&self, deadline: u64) {
        P::fence(Ordering::SeqCst);
        self.lower(deadline);
    }

    fn lower(&self, deadline: u64) {
        let mut earliest = self.earliest.load(Ordering::Relaxed);
        while deadline < earliest {
            let lowered = self.earliest.compare_exchange_weak(earliest, deadline, Ordering::Relaxed, Ordering::Relaxed);
            match lowered {
                Ok(_) => return,
                Err(seen) => earliest = seen,
            }
        }
    }

    /// Whether a timer may be due.
    #[inline(always)]
    pub fn has_expired(&self, now: Time) -> bool {
        self.earliest.load(Ordering::Relaxed) <= now.as_nanos()
    }

    /// Runs the due timers of `cells` cells that the calling thread may run. `deadline` reads that of a cell as it was published, and
    /// whether the calling thread may run its timers; `run` runs them.
    #[cold]
    #[inline(never)]
    pub fn look(&self, cells: usize, now: Time, deadline: impl Fn(usize) -> (u64, bool), mut run: impl FnMut(usize)) {
        // All writes of the word are read-modify-writes, so that loom has them in the order in which they are made.
        let _ = self.earliest.swap(NEVER, Ordering::Relaxed);
        P::fence(Ordering::SeqCst);
        let is_due = |(deadline, may_run): (u64, bool)| may_run && deadline <= now.as_nanos();
        // First, so that no other thread waits until the timers have run.
        let others = (0..cells).map(&deadline).filter(|cell| !is_due(*cell));
        self.lower(others.map(|(deadline, _)| deadline).min().unwrap_or(NEVER));
        for cell in 0..cells {
            if is_due(deadline(cell)) {
                run(cell);
                self.lower(deadline(cell).0);
            }
        }
    }

    /// Receive thread `thread` has to look at a cell: the calling thread has queued a message for it, or it is to change hands.
    pub fn mark(&self, thread: usize, cell: usize) {
        if let Some(words) = self.marked.get(thread) {
            words[cell / WORD].fetch_or(1 << (cell % WORD), Ordering::Release);
        }
    }

    /// Calls `look` for the marked cells of receive thread `thread`, which the calling thread is; again for those for which it
    /// returned true, and for those that were marked meanwhile, until there are none.
    #[inline]
    pub fn take(&self, thread: usize, mut look: impl FnMut(usize) -> bool) {
        let mut again = true;
        while again {
            again = false;
            for (at, word) in self.marked[thread].iter().enumerate() {
                if word.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                let mut bits = word.swap(0, Ordering::Acquire);
                while bits != 0 {
                    let cell = at * WORD + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    if look(cell) {
                        self.mark(thread, cell);
                        again = true;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;

    /// One bit for each cell, whatever the word that it is in; a cell that has more to do, or that is marked meanwhile, is looked
    /// at again before the end.
    #[test]
    fn a_receive_thread_looks_at_the_cells_that_are_marked_for_it() {
        let due = DueCells::<Real>::new(2, 2 * WORD + 2);
        let marked = [0, 1, WORD - 1, WORD, 2 * WORD + 1];
        marked.iter().for_each(|cell| due.mark(1, *cell));
        let (mut looked, mut again) = (Vec::new(), true);
        due.take(0, |cell| panic!("cell {cell} is marked for another thread"));
        due.take(1, |cell| {
            looked.push(cell);
            cell == WORD && std::mem::take(&mut again)
        });
        assert_eq!(looked, [&marked[..], &[WORD]].concat());
        due.take(1, |cell| panic!("cell {cell} was looked at"));
        due.mark(2, 0);
    }
}
