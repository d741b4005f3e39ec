//! Locks on the real machine: exclusion and exactness under load, fairness, refusals.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use sync::raw::{Adaptive, Blocking, Mcs, Null, Reserved, SpinPark, Tas, Ticket, Ttas};
use sync::{Condvar, Lock, LockClass, LockKind, Platform, RawLock, Real};

type L<T> = Lock<T, Real>;

fn waiting_kinds() -> impl Iterator<Item = LockKind> {
    LockKind::ALL.iter().copied().filter(|&kind| kind != LockKind::Null)
}

/// Several threads per core, so that holders are preempted; fewer turns where an interpreter runs the test.
const THREADS: usize = 4;
const TURNS: usize = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn every_kind_excludes() {
    for kind in waiting_kinds() {
        // Two words that stay equal only under exclusive use.
        let lock: L<(usize, usize)> = Lock::new(kind, LockClass::Group, (0, 0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..TURNS {
                        let mut pair = lock.lock();
                        assert_eq!(pair.0, pair.1, "{kind} let two threads in");
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(lock.into_inner(), (THREADS * TURNS, THREADS * TURNS), "{kind} lost an increment");
    }
}

/// One thread gets the reservation again and again, interrupted by other threads.
#[test]
fn a_reserved_lock_excludes_a_thread_that_comes_in_between() {
    let lock: L<(usize, usize)> = Lock::new(LockKind::Reserved, LockClass::Group, (0, 0));
    let turn = |lock: &L<(usize, usize)>| {
        let mut pair = lock.lock();
        assert_eq!(pair.0, pair.1, "two threads are in");
        pair.0 += 1;
        pair.1 += 1;
    };
    let done = std::sync::atomic::AtomicBool::new(false);
    let (owner, strangers) = thread::scope(|scope| {
        let stranger = || {
            scope.spawn(|| {
                let mut turns = 0;
                while !done.load(Acquire) {
                    turn(&lock);
                    turns += 1;
                    thread::yield_now();
                }
                turns
            })
        };
        let strangers = [stranger(), stranger()];
        let owner = 20 * TURNS;
        (0..owner).for_each(|_| turn(&lock));
        done.store(true, Release);
        (owner, strangers.map(|stranger| stranger.join().expect("it ends well")))
    });
    let all = owner + strangers[0] + strangers[1];
    assert_eq!(lock.into_inner(), (all, all), "an increment was lost");
}

#[test]
fn try_lock_refuses_while_held_and_admits_after() {
    for &kind in LockKind::ALL {
        let mut lock: L<u32> = Lock::new(kind, LockClass::Group, 7);
        assert_eq!(lock.kind(), kind);
        let held = lock.lock();
        assert!(lock.try_lock().is_none(), "{kind}");
        drop(held);
        *lock.try_lock().expect("free") += 1;
        assert_eq!(*lock.get_mut(), 8, "{kind}");
    }
}

#[test]
fn a_panic_releases_the_lock() {
    for &kind in LockKind::ALL {
        let lock: L<u32> = Lock::new(kind, LockClass::Group, 0);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = lock.lock();
            panic!("while holding {kind}");
        }));
        assert!(panicked.is_err());
        assert!(lock.try_lock().is_some(), "{kind} stayed locked");
    }
}

#[test]
fn null_refuses_contention_with_a_sentence() {
    let lock: L<u32> = Lock::new(LockKind::Null, LockClass::Group, 0);
    let _held = lock.lock();
    let text = thread::scope(|scope| scope.spawn(|| drop(lock.lock())).join())
        .expect_err("a second user is refused")
        .downcast::<&str>()
        .expect("a text");
    assert!(text.contains("null") && text.contains("private"), "{text}");
}

/// Queue locks serve in the order of arrival. Threads arrive one at a time: each announces that it is about to wait,
/// and the next starts only after it can be seen in the queue.
fn served_in_order<R: RawLock + 'static>(arrived: impl Fn(&R, usize) -> bool) {
    const WAITERS: usize = 4;
    let lock = R::new();
    let served = AtomicUsize::new(0);
    lock.lock();
    thread::scope(|scope| {
        for turn in 0..WAITERS {
            let (lock, served) = (&lock, &served);
            scope.spawn(move || {
                lock.lock();
                assert_eq!(served.fetch_add(1, Relaxed), turn, "served out of order");
                lock.unlock();
            });
            while !arrived(lock, turn + 1) {
                thread::yield_now();
            }
        }
        lock.unlock();
    });
    assert_eq!(served.load(Relaxed), WAITERS);
}

#[test]
fn ticket_is_first_come_first_served() {
    served_in_order::<Ticket>(|lock, waiters| lock.queued() as usize == waiters);
}

#[test]
fn mcs_is_first_come_first_served() {
    // The tail names the last waiter: it changes once per arrival.
    let seen = std::sync::Mutex::new(Vec::new());
    served_in_order::<Mcs>(|lock, waiters| {
        let mut seen = seen.lock().expect("no panic while held");
        let tail = lock.last_waiter();
        if tail.is_some() && seen.last() != Some(&tail) {
            seen.push(tail);
        }
        seen.len() == waiters
    });
}

#[test]
fn queue_locks_are_not_overtaken_by_try_lock() {
    fn check<R: RawLock + 'static>(queued: impl Fn(&R) -> bool) {
        let lock = R::new();
        lock.lock();
        thread::scope(|scope| {
            scope.spawn(|| {
                lock.lock();
                lock.unlock();
            });
            while !queued(&lock) {
                thread::yield_now();
            }
            assert!(!lock.try_lock());
            lock.unlock();
        });
        assert!(lock.try_lock());
    }
    check::<Ticket>(|lock| lock.queued() == 1);
    check::<Mcs>(|lock| lock.last_waiter().is_some());
}

#[test]
fn names_round_trip_and_strangers_are_told_the_choice() {
    for &kind in LockKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    let error = "spinlock".parse::<LockKind>().expect_err("no such kind").to_string();
    assert!(error.contains("`spinlock`") && LockKind::ALL.iter().all(|kind| error.contains(kind.name())), "{error}");
}

#[test]
fn raw_locks_are_small() {
    fn size<R: RawLock>() -> usize {
        size_of::<R>()
    }
    assert_eq!([size::<Null>(), size::<Tas>(), size::<Ttas>(), size::<SpinPark>(), size::<Blocking>()], [4; 5]);
    assert_eq!([size::<Adaptive>(), size::<Adaptive<Real, true>>()], [4; 2]);
    assert_eq!((size::<Ticket>(), size::<Mcs>(), size::<Reserved>()), (8, 16, 20));
    assert!(size_of::<L<()>>() <= 32, "a lock fits half a cache line: {}", size_of::<L<()>>());
}

#[test]
fn condvar_passes_every_message() {
    for kind in waiting_kinds() {
        let queue: (L<Vec<usize>>, Condvar) = (Lock::new(kind, LockClass::Squeue, Vec::new()), Condvar::new());
        let messages = TURNS / 20;
        thread::scope(|scope| {
            for sender in 0..2 {
                let queue = &queue;
                scope.spawn(move || {
                    for i in 0..messages {
                        queue.0.lock().push(2 * i + sender);
                        queue.1.notify_one();
                    }
                });
            }
            let mut got = Vec::new();
            while got.len() < 2 * messages {
                got.append(&mut queue.1.wait_while(queue.0.lock(), |messages| messages.is_empty()));
            }
            got.sort_unstable();
            assert!(got.into_iter().eq(0..2 * messages), "{kind}");
        });
    }
}

#[test]
fn condvar_wait_times_out_holding_the_lock_again() {
    let queue: (L<u32>, Condvar) = (Lock::new(LockKind::Blocking, LockClass::Squeue, 1), Condvar::new());
    let guard = queue.1.wait_timeout(queue.0.lock(), Duration::from_nanos(1));
    assert_eq!(*guard, 1);
    assert!(queue.0.try_lock().is_none());
}

#[test]
fn notify_all_wakes_all() {
    let gate: Arc<(L<bool>, Condvar, Barrier)> =
        Arc::new((Lock::new(LockKind::Blocking, LockClass::Squeue, false), Condvar::new(), Barrier::new(4)));
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let gate = gate.clone();
            thread::spawn(move || {
                gate.2.wait();
                drop(gate.1.wait_while(gate.0.lock(), |open| !*open));
            })
        })
        .collect();
    gate.2.wait();
    *gate.0.lock() = true;
    gate.1.notify_all();
    waiters.into_iter().for_each(|waiter| waiter.join().expect("woken"));
}

/// Each waiter is known to sleep, or to be about to: it looked at the gate under the lock, which has been taken since.
#[test]
fn notify_all_says_whether_anybody_waits() {
    let gate: Arc<(L<(usize, bool)>, Condvar)> =
        Arc::new((Lock::new(LockKind::Blocking, LockClass::Squeue, (0, false)), Condvar::new()));
    assert!(!gate.1.notify_all(), "nobody does");
    let wait = |gate: Arc<(L<(usize, bool)>, Condvar)>| {
        let looks = std::cell::Cell::new(false);
        drop(gate.1.wait_while(gate.0.lock(), |(waiters, open)| {
            *waiters += usize::from(!looks.replace(true));
            !*open
        }));
    };
    let waiters: Vec<_> =
        (0..3).map(|_| (gate.clone(), wait)).map(|(gate, wait)| thread::spawn(move || wait(gate))).collect();
    while gate.0.lock().0 < 3 {
        thread::yield_now();
    }
    gate.0.lock().1 = true;
    assert!(gate.1.notify_all());
    waiters.into_iter().for_each(|waiter| waiter.join().expect("woken"));
}

#[test]
fn a_lock_that_nobody_waits_for_has_no_last_waiter() {
    let lock = sync::raw::Mcs::<Real>::new();
    assert_eq!(lock.last_waiter(), None, "free");
    lock.lock();
    assert_eq!(lock.last_waiter(), None, "held");
    lock.unlock();
    assert_eq!(lock.last_waiter(), None);
}

thread_local! {
    /// How deep the thread has masked its processor.
    static MASKED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// A machine that counts how often it is masked.
#[derive(Clone, Copy, Debug, Default)]
struct Masking;

impl Platform for Masking {
    sync::forward_platform!(Real: atomics futex cells doorbell join spawn spin now random thread fences profile held);

    fn mask() {
        MASKED.set(MASKED.get() + 1);
    }
    fn unmask() {
        MASKED.set(MASKED.get() - 1);
    }
}

/// The holder of a null lock keeps the processor until it has released it, and a refused one does not.
#[test]
fn a_null_lock_masks_as_long_as_it_is_held() {
    let lock = sync::raw::Null::<Masking>::new();
    lock.lock();
    assert_eq!(MASKED.get(), 1);
    assert!(!lock.try_lock());
    assert_eq!(MASKED.get(), 1, "as before");
    lock.unlock();
    assert_eq!(MASKED.get(), 0);
    assert!(!Real::null_lock_excludes(), "threads of the real machine run beside each other");
}
