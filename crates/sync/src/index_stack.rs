//! A lock-free stack of small numbers: the free list of an array with places that any thread takes and returns.
//!
//! Treiber's stack over an array of links (IBM RJ 5118, 1986). The head carries a tag that every change increments, so
//! the exchange of a thread that was interrupted after reading the head fails even if the same number is on top again.
//! What may never happen: a number that two threads hold at once, or one that is lost.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::{Atomic, Platform, Real};

/// Numbers below a bound, each at most once on the stack.
///
/// The push of a number happens before its pop.
///
/// ```
/// let free: sync::IndexStack = sync::IndexStack::new(3);
/// free.push(2);
/// free.push(0);
/// assert_eq!((free.pop(), free.pop(), free.pop()), (Some(0), Some(2), None));
/// ```
pub struct IndexStack<P: Platform = Real> {
    /// The top number plus 1 (0: empty) in the lower half, the tag in the upper.
    head: P::AtomicU64,
    /// Behind each number on the stack, the next one plus 1.
    links: Box<[P::AtomicU32]>,
}

impl<P: Platform> IndexStack<P> {
    /// An empty stack for the numbers below `bound`.
    pub fn new(bound: u32) -> Self {
        assert!(bound < u32::MAX, "a stack of {bound} numbers: one fewer is the most");
        Self { head: P::AtomicU64::new(0), links: (0..bound).map(|_| P::AtomicU32::new(0)).collect() }
    }

    /// Puts `index` on top.
    ///
    /// # Panics
    /// If `index` is not below the bound. A number that is already on the stack must not be pushed: it would be popped
    /// twice.
    pub fn push(&self, index: u32) {
        let link = &self.links[index as usize];
        let mut head = self.head.load(Relaxed);
        loop {
            link.store(head as u32, Relaxed);
            match self.head.compare_exchange_weak(head, above(head, index + 1), Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes the number on top, the one that was pushed last.
    pub fn pop(&self) -> Option<u32> {
        let mut head = self.head.load(Acquire);
        loop {
            let top = (head as u32).checked_sub(1)?;
            // May be stale when another thread has popped `top` meanwhile; then the tag has changed.
            let next = self.links[top as usize].load(Relaxed);
            match self.head.compare_exchange_weak(head, above(head, next), Acquire, Acquire) {
                Ok(_) => return Some(top),
                Err(now) => head = now,
            }
        }
    }
}

/// The word that replaces `head` with `top` (plus 1) on top.
fn above(head: u64, top: u32) -> u64 {
    (head >> 32).wrapping_add(1) << 32 | u64::from(top)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the same numbers on the stack in the same order, the head differs after each change: an exchange of a thread
    /// that read it before fails (Treiber 1986; the ABA problem).
    #[test]
    fn the_head_differs_after_every_change() {
        let stack: IndexStack = IndexStack::new(2);
        let head = || stack.head.load(Relaxed);
        stack.push(1);
        let mut seen = vec![head()];
        for _ in 0..100 {
            stack.push(0);
            assert_eq!((head() as u32, stack.pop()), (1, Some(0)), "the number on top plus 1");
            seen.push(head());
        }
        assert!(seen.iter().all(|head| *head as u32 == 2), "the same number is on top");
        seen.dedup();
        assert_eq!(seen.len(), 101);
        let tag = |head: u64| head >> 32;
        assert!(seen.windows(2).all(|pair| tag(pair[1]) == tag(pair[0]) + 2), "two changes, two tags");
    }

    #[test]
    fn the_tag_begins_again_after_the_largest() {
        assert_eq!(above(u64::MAX, 7), 7);
    }
}
