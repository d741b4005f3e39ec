//! Queue lock: first come, first served, each waiter watching a word of its own.
//!
//! Mellor-Crummey and Scott's lock in the form of the K42 operating system (described by Scott, "Shared-Memory
//! Synchronization", 2013, section 4.3.1): a waiter's node is on its stack *only while it waits*. When it gets the lock
//! it moves its successor from the node into the lock itself. So a lock is two words, nothing is allocated, the guard
//! carries no node, and threads need not be registered.
//!
//! ```text
//! tail == FREE     free
//! tail == HELD     held, nobody waits
//! tail == node     held; node is the last waiter; `head` is the first one, or 0 while it is linking itself in
//! ```
//!
//! What may never happen: a thread leaving `lock` while another may still write its node. The two places where a
//! successor announces itself late wait for the announcement.

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::RawLock;
use crate::{Atomic, Platform, Real};

/// See the head of this file.
pub struct Mcs<P: Platform = Real> {
    tail: P::AtomicUsize,
    head: P::AtomicUsize,
}

const FREE: usize = 0;
/// Never a node's address: nodes are aligned.
const HELD: usize = 1;
/// No successor has announced itself.
const NONE: usize = 0;

/// A waiter, on its own pair of cache lines so that watching it disturbs no other thread.
#[repr(align(128))]
struct Node<P: Platform> {
    next: P::AtomicUsize,
    waiting: P::AtomicU32,
}

/// Turns that a waiter spins on its own word before it yields between checks.
const SPINS: u32 = 200;

fn pause<P: Platform>(spins: &mut u32) {
    if *spins < SPINS {
        P::relax(*spins);
        *spins += 1;
    } else {
        P::yield_now();
    }
}

impl<P: Platform> Mcs<P> {
    /// The number of the node that was last in the queue a moment ago; `None` if no thread waits.
    pub fn last_waiter(&self) -> Option<usize> {
        let tail = self.tail.load(Relaxed);
        (tail > HELD).then_some(tail)
    }

    /// The word in which the successor of `tail` registers itself.
    ///
    /// # Safety
    /// `tail` is [`HELD`], or the node that the caller has just replaced as the last of the queue.
    unsafe fn successor_word(&self, tail: usize) -> &P::AtomicUsize {
        if tail == HELD {
            return &self.head;
        }
        // SAFETY: the node's thread cannot leave `lock` before its successor, the caller, has announced itself in this
        // word, because its attempt to empty the queue fails while `tail` is not its node.
        unsafe { &(*ptr::with_exposed_provenance::<Node<P>>(tail)).next }
    }

    /// Joins the queue behind `tail` and waits to be first. False if the queue changed meanwhile.
    fn queue_behind(&self, tail: usize) -> bool {
        let node = Node::<P> { next: P::AtomicUsize::new(NONE), waiting: P::AtomicU32::new(1) };
        let me = (&raw const node).expose_provenance();
        // Release publishes the node; Acquire sees the predecessor's node published.
        if self.tail.compare_exchange(tail, me, AcqRel, Relaxed).is_err() {
            return false;
        }
        // SAFETY: the exchange has just replaced `tail` by our node.
        unsafe { self.successor_word(tail) }.store(me, Release);
        let mut spins = 0;
        while node.waiting.load(Acquire) != 0 {
            pause::<P>(&mut spins);
        }
        self.leave_node(&node, me);
        true
    }

    /// We hold the lock: moves our successor, if any, from our node into the lock.
    fn leave_node(&self, node: &Node<P>, me: usize) {
        let mut next = node.next.load(Acquire);
        if next == NONE {
            self.head.store(NONE, Relaxed);
            // Release publishes the store above to the thread that queues behind HELD and writes `head`.
            if self.tail.compare_exchange(me, HELD, AcqRel, Relaxed).is_ok() {
                return;
            }
            next = announced::<P>(&node.next);
        }
        self.head.store(next, Relaxed);
    }
}

/// Waits for a successor that has replaced the tail and has yet to write its address.
fn announced<P: Platform>(word: &P::AtomicUsize) -> usize {
    let mut spins = 0;
    loop {
        let next = word.load(Acquire);
        if next != NONE {
            return next;
        }
        pause::<P>(&mut spins);
    }
}

impl<P: Platform> RawLock for Mcs<P> {
    fn new() -> Self {
        Self { tail: P::AtomicUsize::new(FREE), head: P::AtomicUsize::new(NONE) }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.tail.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    fn lock(&self) {
        loop {
            let tail = self.tail.load(Relaxed);
            let done = if tail == FREE { self.try_lock() } else { self.queue_behind(tail) };
            if done {
                return;
            }
            P::relax(0);
        }
    }

    #[inline(always)]
    fn unlock(&self) {
        if self.head.load(Acquire) == NONE && self.tail.compare_exchange(HELD, FREE, Release, Relaxed).is_ok() {
            return;
        }
        self.hand_over();
    }
}

impl<P: Platform> Mcs<P> {
    #[cold]
    fn hand_over(&self) {
        let next = announced::<P>(&self.head);
        // `head` stays stale for a moment; the next holder overwrites it before its `lock` returns.
        // SAFETY: the first waiter stays in `lock` until we clear `waiting`, which is the last we do with its node.
        unsafe { &(*ptr::with_exposed_provenance::<Node<P>>(next)).waiting }.store(0, Release);
    }
}
