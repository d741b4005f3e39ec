//! A value for whoever gets in; those who do not get in leave their work to the one inside.
//!
//! The ownership flag of a serialisation queue (the PROC bit of Solaris's squeue) together with the value that it
//! guards, so that the value cannot be reached without it. The protocol around it:
//!
//! ```text
//! loop { queue the work
//!        try_enter: refused  -> done, the one inside will find it
//!                   admitted -> drain the queue, leave; if the queue is not empty now, try_enter again }
//! ```
//!
//! Entering and leaving are both swaps on one word. A refused swap is therefore read by the holder's next leave, and
//! what the refused thread had queued before is visible to the holder after it: no further fence is needed, and work
//! is not forgotten so long as the holder looks at the queue once more *after* leaving. What may never happen: two
//! threads inside, in any build.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::platform::model_is_over;
use crate::{Atomic, CellLike, Platform, Real};

/// See the head of this file.
pub struct GateCell<T, P: Platform = Real> {
    entered: P::AtomicU32,
    value: P::Cell<T>,
}

// SAFETY: the value is reached by the one thread inside, or after it by the next, in order: `T: Send` allows that.
unsafe impl<T: Send, P: Platform> Sync for GateCell<T, P> {}
// SAFETY: as above; moving the cell moves the value.
unsafe impl<T: Send, P: Platform> Send for GateCell<T, P> {}

impl<T, P: Platform> GateCell<T, P> {
    /// An empty gate before `value`.
    pub fn new(value: T) -> Self {
        Self { entered: P::AtomicU32::new(0), value: P::Cell::new(value) }
    }

    /// Enters if nobody is inside. When refused, what the caller published before is visible to the thread inside once
    /// it has left, and that thread looks again.
    #[inline]
    pub fn try_enter(&self) -> Option<GateGuard<'_, T, P>> {
        // A swap, not "look, then swap": a refusal has to leave a mark for the holder to read.
        // And no guard before the verdict: dropping one opens the gate.
        (self.entered.swap(1, AcqRel) == 0).then(|| GateGuard { gate: self })
    }

    /// Whether somebody was inside a moment ago. A hint: for statistics and for choosing whether to wake a worker.
    #[inline]
    pub fn is_entered(&self) -> bool {
        self.entered.load(Relaxed) != 0
    }

    /// The value, without the gate: the borrow proves that nobody is inside.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes every guard for as long as the reference lives.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T, P: Platform> fmt::Debug for GateCell<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateCell").field("entered", &self.is_entered()).finish_non_exhaustive()
    }
}

/// Being inside; dropping it leaves. It may be handed to another thread, as a squeue hands its run to its worker.
#[must_use = "the gate is left when the guard is dropped"]
pub struct GateGuard<'a, T, P: Platform = Real> {
    gate: &'a GateCell<T, P>,
}

impl<T, P: Platform> Deref for GateGuard<'_, T, P> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (its swap found the gate empty), and references borrow from it.
        self.gate.value.with(|value| unsafe { &*value })
    }
}

impl<T, P: Platform> DerefMut for GateGuard<'_, T, P> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes this borrow the only one.
        self.gate.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T, P: Platform> Drop for GateGuard<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        let was = self.gate.entered.swap(0, AcqRel);
        debug_assert_eq!(was, 1, "a gate was left that nobody had entered");
    }
}
