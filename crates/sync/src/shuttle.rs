//! The platform of the randomised checker shuttle: many schedules of larger programs, sequentially consistent memory.
//!
//! Valid only inside `shuttle::check_random` and similar functions. Shuttle sees atomics, joins and the futex. It does
//! not see plain memory, so [`ShuttleCell`] checks by itself that a write overlaps no other access, and adds a scheduling
//! point in the middle of each. Shuttle cannot find an ordering that is too weak; loom does.

use std::cell::{Cell as Plain, UnsafeCell};

use ::shuttle::rand::RngCore;
use ::shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
use ::shuttle::sync::{Condvar, Mutex};
use ::shuttle::{current, rand, thread};

use crate::forward_atomic::forward_atomic;
use crate::lock_order::HeldLocks;
use crate::model_platform::{model_platform, sleepers};
use crate::{CellLike, Platform};

/// Threads, memory and scheduling by shuttle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shuttle;

forward_atomic!(AtomicU32, u32, fetch_add, fetch_sub);
forward_atomic!(AtomicU64, u64, fetch_add, fetch_sub);
forward_atomic!(AtomicUsize, usize, fetch_add, fetch_sub);
forward_atomic!(AtomicBool, bool);

sleepers!(ShuttleSleepers, ::shuttle::lazy_static);

::shuttle::thread_local! {
    static HELD: HeldLocks = HeldLocks::new();
    static IN_CALLBACK: std::cell::Cell<bool> = std::cell::Cell::new(false);
    static CALLS: Plain<u64> = Plain::new(0);
}

impl Platform for Shuttle {
    type Cell<T> = ShuttleCell<T>;

    model_platform!();

    /// The calling thread's number of calls so far, in microseconds.
    fn now() -> u64 {
        CALLS.with(|calls| {
            calls.set(calls.get() + 1);
            calls.get() * 1_000
        })
    }

    fn random() -> u64 {
        rand::thread_rng().next_u64()
    }

    fn thread_index() -> usize {
        current::me().into()
    }
}

/// Memory that checks its own accesses: several readers or one writer at a time.
#[derive(Debug)]
pub struct ShuttleCell<T> {
    /// Readers inside, or -1 for a writer. Every model thread runs on one thread of the kernel, so a plain cell does.
    inside: Plain<i32>,
    value: UnsafeCell<T>,
}

/// Ends an access, also on panic.
struct AccessGuard<'a>(&'a Plain<i32>, i32);

impl<'a> AccessGuard<'a> {
    fn begin(inside: &'a Plain<i32>, change: i32) -> Self {
        if std::thread::panicking() {
            // The execution has failed and is unwinding: nothing is checked any more.
            return Self(inside, 0);
        }
        let now = inside.get();
        let free = if change > 0 { now >= 0 } else { now == 0 };
        assert!(free, "data race: a cell is written while another thread uses it");
        inside.set(now + change);
        thread::yield_now();
        Self(inside, change)
    }
}

impl Drop for AccessGuard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - self.1);
    }
}

impl<T> CellLike<T> for ShuttleCell<T> {
    fn new(value: T) -> Self {
        Self { inside: Plain::new(0), value: UnsafeCell::new(value) }
    }

    fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        let _access = AccessGuard::begin(&self.inside, 1);
        read(self.value.get())
    }

    fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        let _access = AccessGuard::begin(&self.inside, -1);
        write(self.value.get())
    }

    fn into_inner(self) -> T {
        self.value.into_inner()
    }
}
