//! How many hold a thing together, so that the last one may free it: the count of `Arc`, without its pointer.
//!
//! For values whose memory is managed elsewhere (a packet buffer's header has room for a word and not for an
//! allocation). What may never happen: two holders that both count as the last, or a last one that does not see the
//! writes of the others.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::{Atomic, Platform, Real};

/// The most holders at once. Beyond, a program leaks holders.
const MOST: u32 = u32::MAX / 2;

/// A count of holders.
pub struct ShareCount<P: Platform = Real>(P::AtomicU32);

impl<P: Platform> ShareCount<P> {
    /// One holder.
    pub fn new() -> Self {
        Self(P::AtomicU32::new(1))
    }

    /// One holder again. The caller must be the only one to know of the thing.
    #[inline]
    pub fn reset(&self) {
        self.0.store(1, Relaxed);
    }

    /// One holder more, made by one that holds already.
    ///
    /// # Panics
    /// At 2^31 holders: the program leaks them.
    #[inline]
    pub fn share(&self) {
        // Relaxed: the new holder got the thing from the old one, which orders them.
        let before = self.0.fetch_add(1, Relaxed);
        if before > MOST {
            self.0.fetch_sub(1, Relaxed);
            panic!("a packet is shared {before} times; its holders are leaked");
        }
    }

    /// One holder less. True: it was the last, and all that the others did with the thing has happened before.
    #[inline]
    #[must_use = "the last holder frees the thing"]
    pub fn release(&self) -> bool {
        if self.0.fetch_sub(1, Release) != 1 {
            return false;
        }
        P::fence(Acquire);
        true
    }

    /// Whether the caller is the only holder; all that former ones did has happened before.
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
