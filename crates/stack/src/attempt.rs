//! Runs work that may panic. For the consequences of a panic see [`crate::containment`].

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

/// The payload of a panic.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Runs `work`; an error is its panic. [`crate::containment`] deals with borrowed values that a panic leaves half
/// changed.
#[inline(always)]
pub(crate) fn attempt<R>(work: impl FnOnce() -> R) -> Result<R, Panic> {
    panic::catch_unwind(AssertUnwindSafe(work))
}
