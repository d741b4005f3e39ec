//! A record of one thread's steps: locks taken and released, and notes left by the code.
//!
//! Keeps documentation up to date: `cargo xtask walk` follows one segment and one `send()` through the stack and prints
//! this record, and a test compares it with the page. Debug builds only; it compiles to nothing in release builds.

use std::cell::RefCell;

use crate::LockClass;

/// One step of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// A note by the code in `file`.
    Note {
        /// Path of the source file in the workspace.
        file: &'static str,
        /// The text of the note.
        text: &'static str,
    },
    /// A lock was taken.
    Take(LockClass),
    /// A lock was released.
    Release(LockClass),
    /// Work was handed to another thread's queue.
    HandOff,
    /// The thread that ran a caller's work answers the caller, which waits.
    Answer,
}

thread_local! {
    static STEPS: RefCell<Option<Vec<WalkStep>>> = const { RefCell::new(None) };
}

/// Records the calling thread's steps in `work`. Empty in release builds.
pub fn record<R>(work: impl FnOnce() -> R) -> (R, Vec<WalkStep>) {
    STEPS.with(|steps| *steps.borrow_mut() = Some(Vec::new()));
    let result = work();
    let steps = STEPS.with(|steps| steps.borrow_mut().take());
    (result, steps.unwrap_or_default())
}

/// Leaves a note, if the calling thread is being recorded. Use `file!()` for `file`.
#[inline(always)]
pub fn note(file: &'static str, text: &'static str) {
    step(|| WalkStep::Note { file, text });
}

/// Records an answer to a caller that waits, if the calling thread is being recorded.
#[inline(always)]
pub fn answer() {
    step(|| WalkStep::Answer);
}

#[inline(always)]
pub(crate) fn step(step: impl FnOnce() -> WalkStep) {
    if cfg!(debug_assertions) {
        // A thread that ends has no record any more.
        let _ = STEPS.try_with(|steps| {
            if let Ok(mut steps) = steps.try_borrow_mut()
                && let Some(steps) = steps.as_mut()
            {
                steps.push(step());
            }
        });
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use crate::{Lock, LockKind};

    #[test]
    fn a_walk_has_locks_and_notes_in_order_and_ends() {
        let lock: Lock<()> = Lock::new(LockKind::Tas, LockClass::Group, ());
        let ((), steps) = record(|| {
            let guard = lock.lock();
            note("here.rs", "inside");
            drop(guard);
        });
        let inside = WalkStep::Note { file: "here.rs", text: "inside" };
        assert_eq!(steps, [WalkStep::Take(LockClass::Group), inside, WalkStep::Release(LockClass::Group)]);
        drop(lock.lock());
        assert_eq!(record(|| ()).1, []);
        assert_eq!(record(answer).1, [WalkStep::Answer]);
    }
}
