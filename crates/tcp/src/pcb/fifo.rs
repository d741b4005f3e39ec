//! A queue that keeps its first element inline and holds no heap memory until a second one arrives.
//!
//! Most connections hold no buffer, or one, most of the time. The spilled part is kept when it runs empty, so that a
//! busy connection does not allocate per segment; [`Fifo::shrink`], called from the time-outs event, frees it.

use std::collections::VecDeque;

use pktbuf::PktBuf;

/// The cost of appending to a queue of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    /// Bytes of memory by which the queue has grown.
    pub(crate) memory: u32,
    /// The queue itself allocated heap memory, which [`Fifo::shrink`] must free later.
    pub(crate) spilled: bool,
}

impl Appended {
    /// The item fitted into memory that the queue already held.
    pub(crate) const NOTHING: Appended = Appended { memory: 0, spilled: false };
}

/// Buffers that a queue leaves in a bounded pool when it asks for a larger one.
const SPARE: usize = 24;

/// `data` as it goes behind `tail`, which has no room for it: where that is a small block that has filled, more of the kind
/// follow, and have a place behind this one.
#[inline]
pub(crate) fn behind(tail: &PktBuf, data: PktBuf) -> PktBuf {
    if tail.is_narrow() { data.widened(SPARE) } else { data }
}

/// First-in first-out queue for buffers.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    first: Option<T>,
    #[expect(clippy::box_collection, reason = "8 bytes in an idle PCB instead of 32")]
    rest: Option<Box<VecDeque<T>>>,
}

impl<T> Fifo<T> {
    /// An empty queue.
    pub(crate) const fn new() -> Self {
        Fifo { first: None, rest: None }
    }

    /// Append `item`. True if heap memory was allocated, which [`Fifo::shrink`] must free later.
    #[inline(always)]
    pub(crate) fn push(&mut self, item: T) -> bool {
        if self.first.is_none() {
            // Nothing is replaced, and dropping that would be a call.
            core::mem::forget(self.first.replace(item));
            return false;
        }
        match &mut self.rest {
            Some(rest) if rest.len() < rest.capacity() => {
                rest.push_back(item);
                false
            }
            _ => self.spill(item),
        }
    }

    #[inline(never)]
    fn spill(&mut self, item: T) -> bool {
        let fresh = self.rest.is_none();
        self.rest.get_or_insert_default().push_back(item);
        fresh
    }

    /// The number of elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.len())
    }

    /// Gives `next` the elements from the first on, until it returns false.
    #[inline(always)]
    pub(crate) fn take_while(&mut self, mut next: impl FnMut(T) -> bool) {
        let Some(first) = self.first.take() else { return };
        let mut more = next(first);
        if let Some(rest) = &mut self.rest {
            while more && let Some(item) = rest.pop_front() {
                more = next(item);
            }
            self.first = rest.pop_front();
        }
    }

    /// Drops the first element, where it is.
    #[inline(always)]
    pub(crate) fn drop_first(&mut self) {
        self.first = match &mut self.rest {
            Some(rest) => rest.pop_front(),
            None => None,
        };
    }

    /// Take the only element; `None` also where there are, or were, more.
    #[inline(always)]
    pub(crate) fn pop_single(&mut self) -> Option<T> {
        if self.rest.is_none() { self.first.take() } else { None }
    }

    /// The first element.
    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }

    /// The first element.
    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        self.first.as_mut()
    }

    /// The last element.
    #[inline]
    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        match &mut self.rest {
            Some(rest) if !rest.is_empty() => rest.back_mut(),
            _ => self.first.as_mut(),
        }
    }

    /// The element at `index`.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        match index {
            0 => self.first.as_ref(),
            _ => self.rest.as_ref().and_then(|rest| rest.get(index - 1)),
        }
    }

    /// Drop everything, memory included.
    pub(crate) fn clear(&mut self) {
        *self = Fifo::new();
    }

    /// Whether heap memory is held.
    #[inline]
    pub(crate) fn is_spilled(&self) -> bool {
        self.rest.is_some()
    }

    /// Frees heap memory that is not in use.
    pub(crate) fn shrink(&mut self) {
        if self.rest.as_ref().is_some_and(|rest| rest.is_empty()) {
            self.rest = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use pktbuf::{Chunk, PktBuf};

    use super::Fifo;
    use crate::pcb::RetransmitQueue;

    /// As many short writes are few blocks, whatever is before them.
    #[test]
    fn short_writes_share_blocks() {
        let write = |len: usize| {
            let mut buffer = PktBuf::alloc_leaving(len, 0).expect("the pool is not bounded");
            buffer.append(len).fill(7);
            Chunk::Pooled(buffer)
        };
        let mut queue = RetransmitQueue::new(1460);
        let mut memory: usize = (0..300).map(|_| queue.push(write(64)).memory as usize).sum();
        assert!(memory <= (300 * 64 / 2048 + 1) * (384 + 2112), "{memory}");
        assert_eq!((queue.len, queue.memory()), (300 * 64, memory as i64));
        // A short end behind a large block has one of its own.
        for len in [2048, 64] {
            memory += queue.push(write(len)).memory as usize;
        }
        assert_eq!(memory as i64, queue.memory());
        let mut queue = RetransmitQueue::new(1460);
        assert_eq!([1900, 64].map(|len| queue.push(write(len)).memory), [2112, 384]);
    }

    #[test]
    fn keeps_order_and_gives_memory_back() {
        let mut queue = Fifo::new();
        assert_eq!(queue.back_mut(), None);
        assert!(!queue.push(1), "the first element is inline");
        assert!(queue.push(2), "the second one spills");
        assert!(!queue.push(3));
        assert_eq!((queue.get(0), queue.get(2), queue.get(3)), (Some(&1), Some(&3), None));
        let taken = |queue: &mut Fifo<i32>, most: usize| {
            let mut taken = Vec::new();
            queue.take_while(|item| {
                taken.push(item);
                taken.len() < most
            });
            taken
        };
        assert_eq!([taken(&mut queue, 2), taken(&mut queue, 2), taken(&mut queue, 2)], [vec![1, 2], vec![3], vec![]]);
        assert!(queue.is_spilled());
        queue.shrink();
        assert!(!queue.is_spilled());
        queue.drop_first();
        assert_eq!(queue.front_mut(), None);
        queue.push(4);
        queue.push(5);
        queue.drop_first();
        queue.shrink();
        assert_eq!(taken(&mut queue, 1), [5]);
        assert_eq!(queue.back_mut(), None);
    }
}
