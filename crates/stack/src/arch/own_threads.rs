//! The threads that an architecture has of its own.
//!
//! They are started with it, and again where it could not be dissolved. Each passes the gate as long as it lives: callers inside
//! may need it until the architecture ends.
//!
//! Architectures call this when they start and end. What may never happen: a lock is held while a thread is waited for.

use std::ops::Range;
use std::sync::Arc;

use sync::{Lock, LockClass, LockKind, Platform, ThreadClass};

use crate::shared::Shared;

/// See the head of this file.
pub struct OwnThreads<P: Platform>(Lock<Vec<P::JoinHandle>, P>);

impl<P: Platform> OwnThreads<P> {
    /// None yet.
    pub fn none() -> Self {
        OwnThreads(Lock::new(LockKind::Blocking, LockClass::Control, Vec::new()))
    }

    /// Starts a thread for each of these CPUs. The name of the `n`-th is `name` and `n`, and it does `work(n)`.
    pub fn start(
        &self,
        shared: &Arc<Shared<P>>,
        (name, class): (&str, ThreadClass),
        cpus: Range<usize>,
        work: impl Fn(usize) + Clone + Send + 'static,
    ) {
        let spawn = |index: usize| {
            let (shared, work) = (shared.clone(), work.clone());
            P::spawn(&format!("{name}{index}"), Some(cpus.start + index), class, move || {
                let _passes = shared.gate().always();
                work(index);
            })
        };
        let threads = (0..cpus.len()).map(spawn).collect();
        *self.0.lock() = threads;
    }

    /// Waits for their end, which the caller has requested.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *self.0.lock());
        for thread in threads {
            // A thread that panicked has reported it already.
            let _ = P::join(thread);
        }
    }
}
