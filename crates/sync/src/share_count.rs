//! A count of holders, the last of which frees the object: the count of `Arc`, without its pointer.
//!
//! For values with memory managed elsewhere (a packet buffer's header has room for a word and not for an allocation).
//! What may never happen: two holders that are both the last, or a last one that does not see the writes of the others.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::{Atomic, Platform, Real};

/// The most holders at once. A program with more leaks them.
const MOST: u32 = u32::MAX / 2;

/// A count of holders.
pub struct ShareCount<P: Platform = Real>(P::AtomicU32);

impl<P: Platform> ShareCount<P> {
    /// One holder.
    pub fn new() -> Self {
        Self(P::AtomicU32::new(1))
    }

    /// One holder again. The caller must be the only user of the object.
    #[inline]
    pub fn reset(&self) {
        self.0.store(1, Relaxed);
    }

    /// Adds a holder; called by an existing holder.
    ///
    /// # Panics
    /// At 2^31 holders: the program leaks them.
    #[inline]
    pub fn share(&self) {
        // Relaxed: the new holder got the object from the old one, which orders them.
        let before = self.0.fetch_add(1, Relaxed);
        if before > MOST {
            self.0.fetch_sub(1, Relaxed);
            panic!("an object is shared {before} times; its holders are leaked");
        }
    }

    /// Removes a holder. True: it was the last, and all uses by the others happened before.
    #[inline]
    #[must_use = "the last holder frees the thing"]
    pub fn release(&self) -> bool {
        if self.0.fetch_sub(1, Release) != 1 {
            return false;
        }
        P::fence(Acquire);
        true
    }

    /// Whether the caller is the only holder; all uses by former ones happened before.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.0.load(Acquire) == 1
    }
}

impl<P: Platform> Default for ShareCount<P> {
    fn default() -> Self {
        Self::new()
    }
}
