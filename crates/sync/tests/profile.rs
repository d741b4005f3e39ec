//! The lock profile is exact. One test, because the counts belong to the process.

use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use planted::{Planted, Sound, WAITS};
use sync::profile::{self, ClassProfile};
use sync::{Lock, LockClass, LockKind, Parker, Platform, RawLock, Real};

fn counts(class: LockClass) -> ClassProfile {
    profile::snapshot()[class.index()]
}

fn acquisitions_are_exact_under_contention() {
    let lock: Lock<u64> = Lock::new(LockKind::Blocking, LockClass::ConnTable, 0);
    let turns = if cfg!(miri) { 20 } else { 20_000 };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..turns).for_each(|_| *lock.lock() += 1));
        }
    });
    let counts = counts(LockClass::ConnTable);
    assert_eq!(counts.class, LockClass::ConnTable);
    assert_eq!(counts.acquired, 4 * turns);
    assert!(counts.first_try_failed <= counts.acquired);
    assert_eq!((counts.wait_ns, counts.hold_ns), (0, 0), "timing is off");
}

/// One thread holds, one waits; the holder releases only once the other is seen waiting.
fn a_failed_first_try_is_counted_once_and_timed() {
    profile::set_timed(true);
    let lock: Lock<u64, Planted<Real, Sound>> = Lock::new(LockKind::Ticket, LockClass::Fdb, 0);
    let held = lock.lock();
    assert!(lock.try_lock().is_none());
    thread::scope(|scope| {
        scope.spawn(|| drop(lock.lock()));
        while WAITS.load(Relaxed) == 0 {
            thread::yield_now();
        }
        let until = Real::now() + 1_000_000;
        while Real::now() < until {
            thread::yield_now();
        }
        drop(held);
    });
    profile::set_timed(false);
    let counts = counts(LockClass::Fdb);
    assert_eq!((counts.acquired, counts.first_try_failed, counts.refused), (2, 1, 1));
    // The waiter was seen waiting before the last millisecond of the hold began.
    assert!(counts.wait_ns >= 1_000_000 && counts.hold_ns >= 1_000_000, "{counts:?}");
}

fn handoffs_and_wakes_add_up() {
    let parker: Parker = Parker::new();
    let barrier = Barrier::new(2);
    profile::handoff::<Real>(3);
    thread::scope(|scope| {
        scope.spawn(|| {
            barrier.wait();
            while !parker.park(None) {}
        });
        barrier.wait();
        parker.unpark();
    });
    parker.unpark();
    let counts = profile::handoffs();
    assert_eq!(counts.handoffs, 3);
    assert_eq!(counts.wakes_sent, parker.wakes_sent());
    assert_eq!(counts.wakes_sent + counts.wakes_suppressed, 2);
}

fn a_reset_starts_from_zero() {
    profile::reset();
    assert!(profile::snapshot().iter().all(|class| class.acquired == 0 && class.hold_ns == 0));
    assert_eq!(profile::handoffs(), Default::default());
    let lock: Lock<()> = Lock::new(LockKind::Null, LockClass::Pool, ());
    drop(lock.lock());
    assert_eq!(counts(LockClass::Pool).acquired, 1);
    // Raw locks are not counted.
    let raw = sync::raw::Tas::<Real>::new();
    raw.lock();
    raw.unlock();
    assert_eq!(profile::snapshot().iter().map(|class| class.acquired).sum::<u64>(), 1);
}

#[test]
fn the_profile_is_exact() {
    acquisitions_are_exact_under_contention();
    a_failed_first_try_is_counted_once_and_timed();
    handoffs_and_wakes_add_up();
    a_reset_starts_from_zero();
}
