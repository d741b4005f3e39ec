//! Receive rings that are polled while their cell is in use (Solaris: `SQS_POLLING`).
//!
//! # Model
//! A receive thread is the interrupt of its ring: it takes frames whenever there are some. Once a frame had to be queued, because
//! another thread was using its cell, the ring is *polled* for that cell: the receive thread leaves the frames in the device while
//! the cell is in use, and takes one batch when its user has emptied the queue and given up the cell. So a queue without a bound
//! holds no more than a batch of each ring, and further frames wait in the device, which has a bound. The ring is in interrupt mode
//! again once it is empty and its cells are free.
//!
//! # A turn
//! A receive thread that finds a cell in use enters itself into the cell's list of waiting rings, under the lock of the cell's queue, and
//! sleeps where no frame wakes it. The thread that gives up the cell takes the list under the same lock, gives each ring a *turn*, and
//! wakes its thread. A turn is one batch, whether the cell has been taken meanwhile or not: a cell that is never found free starves no
//! ring.
//!
//! A ring may carry the flows of several cells. It is polled for those that had to queue its frames.
//!
//! What may never happen: a ring is shut, no cell has it in its list, and its thread is not about to be woken.

use std::sync::Arc;

use dev::BitSet;
use sync::{Atomic, CachePadded, Ordering, Platform};

use crate::shared::Shared;

/// The receive thread may take frames, unless a cell for which the ring is polled is in use.
const OPEN: u32 = 0;
/// It waits for a cell.
const SHUT: u32 = 1;
/// It may take one batch.
const TURN: u32 = 2;

/// The receive rings of a stack, by the number of their driver.
pub struct PolledRings<P: Platform> {
    shared: Arc<Shared<P>>,
    rings: Box<[CachePadded<PolledRing<P>>]>,
}

struct PolledRing<P: Platform> {
    /// [`OPEN`], [`SHUT`] or [`TURN`]. Its receive thread shuts it, and a thread that gives up a cell gives it a turn.
    state: P::AtomicU32,
    /// Whether it is polled for any cell. Only its receive thread uses this and the rest.
    polled: P::AtomicBool,
    /// The cells for which it is polled.
    cells: Box<[P::AtomicBool]>,
}

impl<P: Platform> PolledRings<P> {
    /// Those of a stack with so many cells, all in interrupt mode.
    pub fn new(shared: &Arc<Shared<P>>, cells: usize) -> Arc<Self> {
        let ring = |_| {
            CachePadded::new(PolledRing {
                state: P::AtomicU32::new(OPEN),
                polled: P::AtomicBool::new(false),
                cells: (0..cells).map(|_| P::AtomicBool::new(false)).collect(),
            })
        };
        let rings = (0..shared.links().alarms().threads()).map(ring).collect();
        Arc::new(PolledRings { shared: shared.clone(), rings })
    }

    /// A frame from this ring is queued, because another thread uses its cell. Called by the ring's receive thread.
    pub fn poll_for(&self, ring: usize, cell: usize) {
        if let Some(ring) = self.rings.get(ring)
            && let Some(polled_for) = ring.cells.get(cell)
        {
            polled_for.store(true, Ordering::Relaxed);
            ring.polled.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the ring's receive thread may take a batch now. Otherwise the ring is shut until its turn. `awaits(cell)`: the cell is
    /// in use, and has this ring in its list from now on.
    pub fn opens(&self, ring: usize, awaits: impl Fn(usize) -> bool) -> bool {
        let Some(ring) = self.rings.get(ring) else { return true };
        if !ring.polled.load(Ordering::Relaxed) {
            return true;
        }
        match ring.state.load(Ordering::Acquire) {
            SHUT => false,
            TURN => {
                ring.state.store(OPEN, Ordering::Relaxed);
                true
            }
            _ => !ring.polled_for().any(awaits),
        }
    }

    /// The ring's thread waits for its turn: called inside `awaits`, with the lock of the cell's queue held.
    pub fn shut(&self, ring: usize) {
        if let Some(ring) = self.rings.get(ring) {
            ring.state.store(SHUT, Ordering::Release);
        }
    }

    /// Whether the ring's receive thread waits for its turn, which wakes it.
    pub fn is_shut(&self, ring: usize) -> bool {
        self.rings.get(ring).is_some_and(|ring| ring.state.load(Ordering::Acquire) == SHUT)
    }

    /// The ring's receive thread has found it empty: it is in interrupt mode for cells that are not in use.
    pub fn emptied(&self, ring: usize, in_use: impl Fn(usize) -> bool) {
        let Some(ring) = self.rings.get(ring).filter(|ring| ring.polled.load(Ordering::Relaxed)) else { return };
        for cell in ring.polled_for().filter(|cell| !in_use(*cell)) {
            ring.cells[cell].store(false, Ordering::Relaxed);
        }
        ring.polled.store(ring.polled_for().next().is_some(), Ordering::Relaxed);
    }

    /// A thread has given up a cell whose queue is empty, and these rings were in its list. It holds no lock.
    #[cold]
    pub fn give_turns(&self, mut waiting: BitSet) {
        while let Some(ring) = waiting.pop() {
            if let Some(state) = self.rings.get(ring).map(|ring| &ring.state) {
                state.store(TURN, Ordering::Release);
                // Due at once.
                self.shared.links().alarms().due_at(ring, 0);
            }
        }
    }
}

impl<P: Platform> PolledRing<P> {
    fn polled_for(&self) -> impl Iterator<Item = usize> {
        self.cells.iter().enumerate().filter(|(_, polled)| polled.load(Ordering::Relaxed)).map(|(cell, _)| cell)
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;
    use crate::arch::cells::tests::shared;

    /// "A turn is one batch, whether the cell has been taken meanwhile or not", and a ring that is shut waits for it, even if no cell is
    /// in use any more: the thread that has given up the cell gives it.
    #[test]
    fn a_ring_that_is_shut_waits_for_its_turn() {
        let rings = PolledRings::new(&shared::<Real>(1), 1);
        assert!(rings.opens(0, |_| panic!("it is polled for no cell")));
        rings.poll_for(0, 0);
        let in_use = |cell: usize| {
            assert_eq!(cell, 0);
            rings.shut(0);
            true
        };
        assert!(!rings.is_shut(0));
        assert!(!rings.opens(0, in_use));
        assert!(rings.is_shut(0));
        assert!(!rings.opens(0, |_| false), "its turn has not come");
        let mut waiting = BitSet::default();
        waiting.insert(0);
        rings.give_turns(waiting);
        assert!(!rings.is_shut(0));
        assert!(rings.opens(0, |_| panic!("it has a turn")));
        assert!(!rings.opens(0, in_use), "a turn is one batch");
    }
}
