//! A count of uses of an object that may be closed: no use begins after closing, and the thread that ends the last use
//! learns it from the return value.
//!
//! One word holds the generation of the object, whether it is open, and the number of uses, so a place in a static
//! table can hold one object after another, and a user with a stale name is refused. A refused attempt counts for a
//! moment, so "closed and unused" may be reported twice: the thread that frees the object checks again under a lock of
//! its own.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::{Atomic, Platform, Real};

const OPEN: u64 = 1 << 32;
const USES: u64 = OPEN - 1;
const GENERATION_SHIFT: u32 = 33;

/// A closable count of uses. Starts closed, in generation 0.
pub struct UseCount<P: Platform = Real>(P::AtomicU64);

impl UseCount<Real> {
    /// Closed and unused, for a `static`.
    pub const fn closed_static() -> Self {
        UseCount(std::sync::atomic::AtomicU64::new(0))
    }
}

impl<P: Platform> UseCount<P> {
    /// Closed and unused.
    pub fn closed() -> Self {
        Self(P::AtomicU64::new(0))
    }

    /// Opens the next generation and returns its number (1 to 65,535, then 1 again); `None` if the word is open or in
    /// use.
    pub fn open(&self) -> Option<u16> {
        let seen = self.0.load(Relaxed);
        if seen & (OPEN | USES) != 0 {
            return None;
        }
        let generation = u16::try_from((seen >> GENERATION_SHIFT) + 1).unwrap_or(1);
        let opened = u64::from(generation) << GENERATION_SHIFT | OPEN;
        // Acquire: the last use of the generation before has happened.
        self.0.compare_exchange(seen, opened, AcqRel, Relaxed).is_ok().then_some(generation)
    }

    /// Begins a use of `generation`. `Err` if it is closed: true if the attempt was the last to leave, see
    /// [`leave`](Self::leave).
    pub fn enter(&self, generation: u16) -> Result<(), bool> {
        let before = self.0.fetch_add(1, Acquire);
        let is_open = before & OPEN != 0 && before >> GENERATION_SHIFT == u64::from(generation);
        if is_open { Ok(()) } else { Err(self.leave()) }
    }

    /// Begins another use while the caller has one.
    pub fn enter_again(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Ends a use. True: the word is closed and this was the last use.
    pub fn leave(&self) -> bool {
        let before = self.0.fetch_sub(1, AcqRel);
        before & OPEN == 0 && before & USES == 1
    }

    /// Closes: no further use begins. True: there is none.
    pub fn close(&self) -> bool {
        self.0.fetch_and(!OPEN, AcqRel) & USES == 0
    }

    /// Whether the word is closed and unused; all uses have happened before.
    pub fn is_drained(&self) -> bool {
        self.0.load(Acquire) & (OPEN | USES) == 0
    }

    /// Uses at this moment.
    pub fn uses(&self) -> usize {
        (self.0.load(Relaxed) & USES) as usize
    }

    /// Reopens the same generation after a premature [`close`](Self::close).
    pub fn reopen(&self) {
        self.0.fetch_or(OPEN, Release);
    }
}
