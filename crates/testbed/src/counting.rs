//! The real machine, with counts of the read-modify-writes and locks of each thread, and of the stack's reports of
//! plain work and memory.
//!
//! It also notes which cache lines a thread writes ([`written`]), of the platform's atomics.
//!
//! Counts operations on the platform's atomics: an exchange, a compare-and-exchange and a fetch-and-modify count as one
//! each; stores and fences do not count, and loads are counted by themselves ([`loads`]). Other atomics, such as the count in an `Arc`, are not included.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::time::Duration;

use sync::profile::{ProfileTable, ThreadCounters};
use sync::{Atomic, LockClass, Object, Ordering, Platform, Real, Step};

/// Bytes of a cache line.
const LINE: usize = 64;

thread_local! {
    static WRITTEN: RefCell<Option<BTreeSet<usize>>> = const { RefCell::new(None) };
    static READ_MODIFY_WRITES: Cell<u64> = const { Cell::new(0) };
    static LOADS: Cell<u64> = const { Cell::new(0) };
    static WORK: Cell<[usize; Step::ALL.len()]> = const { Cell::new([0; Step::ALL.len()]) };
    /// Quarters of each step that are no whole step yet.
    static BEGUN: Cell<[usize; Step::ALL.len()]> = const { Cell::new([0; Step::ALL.len()]) };
    static TOUCHED: Cell<[usize; Object::ALL.len()]> = const { Cell::new([0; Object::ALL.len()]) };
}

/// See the head of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counting;

/// An atomic word with counted read-modify-writes.
#[derive(Debug, Default)]
pub struct Counted<A>(A);

fn count<A>(word: &A) {
    READ_MODIFY_WRITES.set(READ_MODIFY_WRITES.get() + 1);
    note_write(word);
}

fn note_write<A>(word: &A) {
    WRITTEN
        .with_borrow_mut(|lines| _ = lines.as_mut().map(|lines| lines.insert(std::ptr::from_ref(word).addr() / LINE)));
}

/// The cache lines of the platform's atomics that `work` writes on the calling thread, by number.
pub fn written<R>(work: impl FnOnce() -> R) -> (R, BTreeSet<usize>) {
    let outer = WRITTEN.replace(Some(BTreeSet::new()));
    let result = work();
    (result, WRITTEN.replace(outer).unwrap_or_default())
}

/// How often `work` loads one of the platform's atomics on the calling thread.
pub fn loads<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let before = LOADS.get();
    let result = work();
    (result, LOADS.get() - before)
}

impl<T: Copy + PartialEq, A: Atomic<T>> Atomic<T> for Counted<A> {
    fn new(value: T) -> Self {
        Counted(A::new(value))
    }
    fn load(&self, order: Ordering) -> T {
        LOADS.set(LOADS.get() + 1);
        self.0.load(order)
    }
    fn store(&self, value: T, order: Ordering) {
        note_write(&self.0);
        self.0.store(value, order);
    }
    fn swap(&self, value: T, order: Ordering) -> T {
        count(&self.0);
        self.0.swap(value, order)
    }
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        count(&self.0);
        self.0.compare_exchange(current, new, success, failure)
    }
    fn compare_exchange_weak(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        count(&self.0);
        self.0.compare_exchange_weak(current, new, success, failure)
    }
    fn fetch_and(&self, mask: T, order: Ordering) -> T {
        count(&self.0);
        self.0.fetch_and(mask, order)
    }
    fn fetch_or(&self, mask: T, order: Ordering) -> T {
        count(&self.0);
        self.0.fetch_or(mask, order)
    }
}

/// The cost of one thread's work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Read-modify-writes of the platform's atomics.
    pub read_modify_writes: u64,
    /// Locks taken, by class.
    pub locks: Vec<(LockClass, u64)>,
    /// Messages sent to other threads. An answer to a message is not counted.
    pub handoffs: u64,
}

impl Spent {
    /// Neither a lock nor a read-modify-write, and no message.
    pub const NOTHING: Spent = Spent { read_modify_writes: 0, locks: Vec::new(), handoffs: 0 };
}

/// The cost of `work` on the calling thread.
pub fn spent<R>(work: impl FnOnce() -> R) -> (R, Spent) {
    let counters = LOCKS.slot(Counting::thread_index());
    let taken = || LockClass::ALL.map(|class| counters.acquisitions(class));
    let (before, locks_before, handed_over) = (READ_MODIFY_WRITES.get(), taken(), counters.handed_over());
    let result = work();
    let read_modify_writes = READ_MODIFY_WRITES.get() - before;
    let more = LockClass::ALL.into_iter().zip(taken().into_iter().zip(locks_before));
    let locks = more.filter(|(_, (now, then))| now != then).map(|(class, (now, then))| (class, now - then)).collect();
    (result, Spent { read_modify_writes, locks, handoffs: counters.handed_over() - handed_over })
}

/// The stack's reports on the plain code of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    work: [usize; Step::ALL.len()],
    touched: [usize; Object::ALL.len()],
}

impl Charged {
    /// How often the step was made.
    pub fn steps(&self, step: Step) -> usize {
        self.work[step as usize]
    }

    /// Bytes of such memory that were read or written.
    pub fn bytes(&self, object: Object) -> usize {
        self.touched[object as usize]
    }
}

/// The charges of the calling thread's `work`.
pub fn charged<R>(work: impl FnOnce() -> R) -> (R, Charged) {
    let (steps, bytes) = (WORK.take(), TOUCHED.take());
    let result = work();
    let charged = Charged { work: WORK.get(), touched: TOUCHED.get() };
    WORK.set(std::array::from_fn(|step| steps[step] + charged.work[step]));
    TOUCHED.set(std::array::from_fn(|object| bytes[object] + charged.touched[object]));
    (result, charged)
}

static LOCKS: ProfileTable<Counting> = ProfileTable::new();

impl Platform for Counting {
    const CHARGED: bool = true;

    type AtomicU32 = Counted<AtomicU32>;
    type AtomicU64 = Counted<AtomicU64>;
    type AtomicUsize = Counted<AtomicUsize>;
    type AtomicBool = Counted<AtomicBool>;
    sync::forward_platform!(Real: cells doorbell spawn join spin now random thread fences);

    fn futex_wait(atom: &Self::AtomicU32, expected: u32, timeout: Option<Duration>) {
        Real::futex_wait(&atom.0, expected, timeout);
    }
    fn futex_wake(atom: &Self::AtomicU32, n: u32) {
        Real::futex_wake(&atom.0, n);
    }
    fn work(step: Step, n: usize) {
        let mut work = WORK.get();
        work[step as usize] += n;
        WORK.set(work);
    }
    fn work_in_part(step: Step, quarters: usize) {
        let mut begun = BEGUN.get();
        let quarters = begun[step as usize] + quarters;
        begun[step as usize] = quarters % 4;
        BEGUN.set(begun);
        Self::work(step, quarters / 4);
    }
    fn touch(object: Object, _address: *const u8, length: usize, _write: bool) {
        let mut touched = TOUCHED.get();
        touched[object as usize] += length;
        TOUCHED.set(touched);
    }
    fn lock_counters() -> Option<&'static ThreadCounters> {
        Some(LOCKS.slot(Counting::thread_index()))
    }
}
