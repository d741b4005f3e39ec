//! The lock profile: the cost of each class of lock, counted in place, without a shared cache line.
//!
//! Counters live in a block per thread ([`ThreadCounters`]) that only its thread writes, with plain loads and stores:
//! about 1 ns an acquisition. Counting is exact, not sampled: a lock is *tried* first and the failure counted, then it
//! is waited for. On the real machine times are taken only while [`set_timed`] is on, because two clock reads cost several
//! times the lock (about 29 ns each here, against 10 for an uncontended pair): throughput runs count, a separate pass times.
//!
//! What may never happen: a counter written by two threads at once without a read-modify-write, which would make the
//! totals approximate.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{LockClass, PerThread, Platform, Real, Writers};

/// The cost of one class of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassProfile {
    /// The class.
    pub class: LockClass,
    /// Times a lock of the class was obtained, by `lock`, `lock_nested` or `try_lock`.
    pub acquired: u64,
    /// Of these, times the first try failed and the thread had to wait.
    pub first_try_failed: u64,
    /// Times `try_lock` was refused (these are not in `acquired`).
    pub refused: u64,
    /// Nanoseconds spent waiting after a failed first try, while timing was on.
    pub wait_ns: u64,
    /// Nanoseconds held, while timing was on.
    pub hold_ns: u64,
}

/// Messages between threads, and their wake-ups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandoffProfile {
    /// Work handed to another thread, as recorded by [`handoff`].
    pub handoffs: u64,
    /// Wake-ups that entered the kernel, because the other side slept.
    pub wakes_sent: u64,
    /// Wake-ups that were not needed, because the other side was awake.
    pub wakes_suppressed: u64,
}

/// One thread's counters. Obtained from [`Platform::lock_counters`].
#[derive(Debug)]
pub struct ThreadCounters {
    /// Several threads count here at once; see [`Writers::Many`].
    shared: bool,
    classes: [ClassCounters; LockClass::COUNT],
    handoffs: AtomicU64,
    wakes_sent: AtomicU64,
    wakes_suppressed: AtomicU64,
}

#[derive(Debug, Default)]
struct ClassCounters {
    acquired: AtomicU64,
    first_try_failed: AtomicU64,
    refused: AtomicU64,
    wait_ns: AtomicU64,
    hold_ns: AtomicU64,
}

impl ThreadCounters {
    fn new(writers: Writers) -> Self {
        Self {
            shared: writers == Writers::Many,
            classes: std::array::from_fn(|_| ClassCounters::default()),
            handoffs: AtomicU64::new(0),
            wakes_sent: AtomicU64::new(0),
            wakes_suppressed: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn add(&self, count: &AtomicU64, n: u64) {
        if self.shared {
            count.fetch_add(n, Ordering::Relaxed);
        } else {
            count.store(count.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        }
    }

    /// How often the thread has obtained a lock of this class. Exact on the thread itself.
    pub fn acquisitions(&self, class: LockClass) -> u64 {
        self.classes[class.index()].acquired.load(Ordering::Relaxed)
    }

    /// How much work the thread has handed to other threads, as recorded by [`handoff`]. Exact on the thread itself.
    pub fn handed_over(&self) -> u64 {
        self.handoffs.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn acquired(&self, class: LockClass) {
        self.add(&self.classes[class.index()].acquired, 1);
    }

    pub(crate) fn first_try_failed(&self, class: LockClass, wait_ns: u64) {
        let counters = &self.classes[class.index()];
        self.add(&counters.first_try_failed, 1);
        self.add(&counters.wait_ns, wait_ns);
    }

    pub(crate) fn refused(&self, class: LockClass) {
        self.add(&self.classes[class.index()].refused, 1);
    }

    pub(crate) fn held(&self, class: LockClass, ns: u64) {
        self.add(&self.classes[class.index()].hold_ns, ns);
    }
}

/// The counters of every thread of one platform, and the point from which they are counted.
pub struct ProfileTable<P: Platform> {
    threads: PerThread<ThreadCounters, P>,
    /// Subtracted from every snapshot. A reset moves it, because a counter has no second writer.
    since: Mutex<Option<ProfileTotals>>,
}

#[derive(Clone)]
struct ProfileTotals {
    classes: [ClassProfile; LockClass::COUNT],
    handoffs: HandoffProfile,
}

impl<P: Platform> ProfileTable<P> {
    /// An empty table.
    pub const fn new() -> Self {
        Self { threads: PerThread::new(ThreadCounters::new), since: Mutex::new(None) }
    }

    /// The block of the thread with this index. A platform calls it once per thread and keeps the result.
    pub fn slot(&self, index: usize) -> &ThreadCounters {
        self.threads.slot(index)
    }

    /// Lock counts since the last [`reset`](Self::reset), by class. Exact when no counted thread is running.
    pub fn snapshot(&self) -> [ClassProfile; LockClass::COUNT] {
        self.since_reset().classes
    }

    /// Hand-off counts since the last [`reset`](Self::reset). Exact when no counted thread is running.
    pub fn handoffs(&self) -> HandoffProfile {
        self.since_reset().handoffs
    }

    /// Starts counting from here.
    pub fn reset(&self) {
        let now = self.totals();
        *self.since.lock().unwrap_or_else(|e| e.into_inner()) = Some(now);
    }

    fn since_reset(&self) -> ProfileTotals {
        let mut totals = self.totals();
        if let Some(since) = &*self.since.lock().unwrap_or_else(|e| e.into_inner()) {
            totals.subtract(since);
        }
        totals
    }

    fn totals(&self) -> ProfileTotals {
        let mut totals = ProfileTotals::zero();
        for thread in self.threads.iter() {
            totals.add(thread);
        }
        totals
    }
}

impl<P: Platform> Default for ProfileTable<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl ProfileTotals {
    fn zero() -> Self {
        let classes = LockClass::ALL.map(|class| ClassProfile {
            class,
            acquired: 0,
            first_try_failed: 0,
            refused: 0,
            wait_ns: 0,
            hold_ns: 0,
        });
        Self { classes, handoffs: HandoffProfile::default() }
    }

    fn add(&mut self, thread: &ThreadCounters) {
        for (sum, counters) in self.classes.iter_mut().zip(&thread.classes) {
            sum.acquired += counters.acquired.load(Ordering::Relaxed);
            sum.first_try_failed += counters.first_try_failed.load(Ordering::Relaxed);
            sum.refused += counters.refused.load(Ordering::Relaxed);
            sum.wait_ns += counters.wait_ns.load(Ordering::Relaxed);
            sum.hold_ns += counters.hold_ns.load(Ordering::Relaxed);
        }
        self.handoffs.handoffs += thread.handoffs.load(Ordering::Relaxed);
        self.handoffs.wakes_sent += thread.wakes_sent.load(Ordering::Relaxed);
        self.handoffs.wakes_suppressed += thread.wakes_suppressed.load(Ordering::Relaxed);
    }

    fn subtract(&mut self, since: &ProfileTotals) {
        for (sum, base) in self.classes.iter_mut().zip(&since.classes) {
            sum.acquired -= base.acquired;
            sum.first_try_failed -= base.first_try_failed;
            sum.refused -= base.refused;
            sum.wait_ns -= base.wait_ns;
            sum.hold_ns -= base.hold_ns;
        }
        self.handoffs.handoffs -= since.handoffs.handoffs;
        self.handoffs.wakes_sent -= since.handoffs.wakes_sent;
        self.handoffs.wakes_suppressed -= since.handoffs.wakes_suppressed;
    }
}

static TIMED: AtomicBool = AtomicBool::new(false);

/// Turns the timing of waits and holds on the real machine on or off, for locks taken from now on. Off at the start.
pub fn set_timed(on: bool) {
    TIMED.store(on, Ordering::Relaxed);
}

/// Whether waits and holds are timed on a platform: always where reading its clock costs nothing
/// ([`Platform::FREE_CLOCK`]), otherwise while [`set_timed`] is on.
#[inline(always)]
pub fn is_timed<P: Platform>() -> bool {
    P::FREE_CLOCK || TIMED.load(Ordering::Relaxed)
}

/// Lock counts of the real machine since the last [`reset`], by class.
pub fn snapshot() -> [ClassProfile; LockClass::COUNT] {
    Real::profile().snapshot()
}

/// Hand-off counts of the real machine since the last [`reset`].
pub fn handoffs() -> HandoffProfile {
    Real::profile().handoffs()
}

/// Starts the real machine's counts from here.
pub fn reset() {
    Real::profile().reset();
}

/// Records that the calling thread handed `n` pieces of work to another thread.
#[inline]
pub fn handoff<P: Platform>(n: u64) {
    crate::walk::step(|| crate::walk::WalkStep::HandOff);
    if let Some(counters) = P::lock_counters() {
        counters.add(&counters.handoffs, n);
    }
}

/// Records a wake-up by the calling thread: `sent` if it had to enter the kernel. [`Parker`](crate::Parker) and
/// [`DoorbellLike`](crate::DoorbellLike) record theirs; for a caller that knows that nothing sleeps there.
#[inline]
pub fn wake<P: Platform>(sent: bool) {
    if let Some(counters) = P::lock_counters() {
        let count = if sent { &counters.wakes_sent } else { &counters.wakes_suppressed };
        counters.add(count, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts `n` acquisitions of a class, and of each other event a different number.
    fn count(thread: &ThreadCounters, class: LockClass, n: u64) {
        for _ in 0..n {
            thread.acquired(class);
        }
        thread.first_try_failed(class, 10 * n);
        (0..2).for_each(|_| thread.refused(class));
        thread.held(class, 100 * n);
        thread.add(&thread.handoffs, 3 * n);
        thread.add(&thread.wakes_sent, 5 * n);
        thread.add(&thread.wakes_suppressed, 7 * n);
    }

    fn profile(class: LockClass, [acquired, first_try_failed, refused, wait_ns, hold_ns]: [u64; 5]) -> ClassProfile {
        ClassProfile { class, acquired, first_try_failed, refused, wait_ns, hold_ns }
    }

    /// A snapshot is the sum over all threads of what each has counted since the last reset, class by class.
    #[test]
    fn a_snapshot_is_the_sum_over_the_threads_since_the_reset() {
        let table = ProfileTable::<Real>::new();
        let [a, b] = [LockClass::ConnTable, LockClass::Pool];
        let of = |class: LockClass| table.snapshot()[class.index()];
        count(table.slot(0), a, 1);
        count(table.slot(1), a, 2);
        count(table.slot(1), b, 4);
        assert_eq!(of(a), profile(a, [3, 2, 4, 30, 300]));
        assert_eq!(of(b), profile(b, [4, 1, 2, 40, 400]));
        let of_one = |thread| [table.slot(thread).acquisitions(a), table.slot(thread).handed_over()];
        assert_eq!([of_one(0), of_one(1)], [[1, 3], [2, 18]]);
        let handoffs = |n: u64| HandoffProfile { handoffs: 3 * n, wakes_sent: 5 * n, wakes_suppressed: 7 * n };
        assert_eq!(table.handoffs(), handoffs(7));
        let counted = |table: &ProfileTable<Real>| table.snapshot().iter().map(|class| class.acquired).sum::<u64>();
        assert_eq!(counted(&table), 7, "no other class");
        table.reset();
        assert_eq!((counted(&table), table.handoffs()), (0, HandoffProfile::default()));
        count(table.slot(0), a, 3);
        count(table.slot(2), b, 5);
        assert_eq!(of(a), profile(a, [3, 1, 2, 30, 300]));
        assert_eq!(of(b), profile(b, [5, 1, 2, 50, 500]));
        assert_eq!(table.handoffs(), handoffs(8));
        // Counts are since the last reset, and one does not begin where the other did.
        table.reset();
        assert_eq!((counted(&table), table.handoffs()), (0, HandoffProfile::default()));
        count(table.slot(0), a, 1);
        assert_eq!(of(a), profile(a, [1, 1, 2, 10, 100]));
    }
}
