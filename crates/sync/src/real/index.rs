//! The number of the calling thread, small and dense, and its block of counters.
//!
//! The number is taken from a free list on first use and returned when the thread ends: after every Rust thread-local
//! destructor, because those may still take locks and count. So the destructor of a POSIX thread key, which glibc runs
//! later, returns it. What may never happen: two live threads with one number.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, OnceLock};

use super::PROFILE;
use crate::profile::ThreadCounters;

/// The cached data of a thread.
#[derive(Clone, Copy)]
struct Current {
    index: usize,
    /// `None` only in the constant for "not initialised yet".
    counters: Option<&'static ThreadCounters>,
}

const UNKNOWN: Current = Current { index: usize::MAX, counters: None };

thread_local! {
    // No destructor, so reading it is one instruction and it may be read at any time of a thread's life.
    static CURRENT: Cell<Current> = const { Cell::new(UNKNOWN) };
}

/// The calling thread's number.
#[inline(always)]
pub(super) fn number() -> usize {
    let known = CURRENT.get().index;
    if known == usize::MAX { introduce().index } else { known }
}

/// The calling thread's number if it has one, else `usize::MAX`.
#[inline(always)]
pub(super) fn known_number() -> usize {
    // Not by `get`, which a large caller would call. A variable without a destructor is always there.
    CURRENT.try_with(Cell::get).unwrap_or(UNKNOWN).index
}

/// The calling thread's counters: one load and one compare once it is known.
#[inline(always)]
pub(super) fn counters() -> Option<&'static ThreadCounters> {
    let known = CURRENT.get().counters;
    if known.is_some() { known } else { introduce().counters }
}

struct IndexAllocator {
    /// Lowest first, so that numbers stay dense.
    returned: BinaryHeap<Reverse<usize>>,
    next: usize,
}

static NUMBERS: Mutex<IndexAllocator> = Mutex::new(IndexAllocator { returned: BinaryHeap::new(), next: 0 });

#[cold]
fn introduce() -> Current {
    super::fences::decide();
    let index = {
        let mut numbers = NUMBERS.lock().unwrap_or_else(|e| e.into_inner());
        match numbers.returned.pop() {
            Some(Reverse(index)) => index,
            None => {
                numbers.next += 1;
                numbers.next - 1
            }
        }
    };
    give_back_at_exit(index);
    let current = Current { index, counters: Some(PROFILE.slot(index)) };
    CURRENT.set(current);
    current
}

fn give_back_at_exit(index: usize) {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    let key = *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the call writes one key; the destructor below has the required signature and may run on any thread.
        let made = unsafe { libc::pthread_key_create(&mut key, Some(give_back)) } == 0;
        made.then_some(key)
    });
    if let Some(key) = key {
        // SAFETY: the key exists for the life of the process. The value is a number, never followed; not null, as
        // null means "no destructor". Should this fail, the number is never reused, which is safe.
        unsafe { libc::pthread_setspecific(key, ptr::without_provenance(index + 1)) };
    }
}

extern "C" fn give_back(value: *mut c_void) {
    CURRENT.set(UNKNOWN);
    let mut numbers = NUMBERS.lock().unwrap_or_else(|e| e.into_inner());
    numbers.returned.push(Reverse(value.addr() - 1));
}
