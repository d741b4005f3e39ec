//! Work that may panic. What is given up then, and how it is reported, is in [`crate::containment`].

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

/// What a thread panicked with.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Runs `work`; its panic, if it panics. That what it borrowed may be half changed is what [`crate::containment`] is
/// about.
#[inline(always)]
pub(crate) fn attempt<R>(work: impl FnOnce() -> R) -> Result<R, Panic> {
    panic::catch_unwind(AssertUnwindSafe(work))
}
