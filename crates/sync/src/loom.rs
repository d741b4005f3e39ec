//! The platform of the model checker loom: every interleaving and every reordering that C11 allows, within a bound.
//!
//! Valid inside `loom::model` only. Tracked by loom: atomics, [`LoomCell`]s, the futex, joins. Not tracked, so that they
//! add no ordering that the real machine lacks: thread numbers, clock, random numbers. What may never happen here:
//! state outside the model that influences the code under test, because loom replays executions and expects the same
//! steps.

use std::cell::Cell as Plain;

use ::loom::cell::UnsafeCell;
use ::loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
use ::loom::sync::{Condvar, Mutex};
use ::loom::thread;

use crate::forward_atomic::forward_atomic;
use crate::lock_order::HeldLocks;
use crate::model_platform::{model_platform, sleepers};
use crate::{CellLike, Platform};

/// Threads, memory and scheduling by loom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loom;

forward_atomic!(AtomicU32, u32, fetch_add, fetch_sub);
forward_atomic!(AtomicU64, u64, fetch_add, fetch_sub);
forward_atomic!(AtomicUsize, usize, fetch_add, fetch_sub);
forward_atomic!(AtomicBool, bool);

sleepers!(LoomSleepers, ::loom::lazy_static);

::loom::thread_local! {
    static HELD: HeldLocks = HeldLocks::new();
    static IN_CALLBACK: std::cell::Cell<bool> = std::cell::Cell::new(false);
    static NUMBER: usize = number();
    static CALLS: Plain<u64> = Plain::new(0);
}

/// Loom's own number of the calling thread: dense, and never used twice in one execution, so that no ordering has to
/// pass from an ended thread to its successor. Loom exposes it only through `Debug`.
fn number() -> usize {
    let shown = format!("{:?}", thread::current().id());
    let digits: String = shown.chars().filter(char::is_ascii_digit).collect();
    match digits.parse() {
        Ok(number) => number,
        Err(_) => panic!("loom prints a thread number as `{shown}`, in which this version of the crate finds none"),
    }
}

fn count_call() -> u64 {
    CALLS.with(|calls| {
        calls.set(calls.get() + 1);
        calls.get()
    })
}

impl Platform for Loom {
    type Cell<T> = LoomCell<T>;

    model_platform!();

    /// The calling thread's number of calls so far, in microseconds: increasing, and the same in every replay.
    fn now() -> u64 {
        count_call() * 1_000
    }

    fn random() -> u64 {
        mix(count_call() ^ (Self::thread_index() as u64) << 32)
    }

    fn thread_index() -> usize {
        // A thread that is destroying its thread-locals has no number any more; no ordering depends on the result.
        NUMBER.try_with(|&number| number).unwrap_or(usize::MAX - 1)
    }
}

/// Sixty-four bits from sixty-four, each depending on all (the finaliser of SplitMix64, Steele et al. 2014).
fn mix(seed: u64) -> u64 {
    let x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Memory that loom checks for data races.
#[derive(Debug)]
pub struct LoomCell<T>(UnsafeCell<T>);

impl<T> CellLike<T> for LoomCell<T> {
    fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        self.0.with(read)
    }

    fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        self.0.with_mut(write)
    }

    fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
