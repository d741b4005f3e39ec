//! Exclusive use by structure and by thread number.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;

use sync::{ClaimLock, Claimed, LockClass, LockKind, NotOwner, PerThread, Platform, Qsbr, Real, ThreadOwned, Writers};

const COUNT: usize = if cfg!(miri) { 50 } else { 20_000 };

/// Held by tests that start hundreds of threads, or bound the numbers of threads, which the whole process shares.
static NUMBERS: Mutex<()> = Mutex::new(());

#[test]
fn the_first_user_owns_and_others_are_refused() {
    let cell: ThreadOwned<u32> = ThreadOwned::new(1);
    assert_eq!(cell.owner(), None);
    assert_eq!(cell.with(|value| std::mem::replace(value, 2)), Ok(1));
    let owner = Real::thread_index();
    assert_eq!(cell.owner(), Some(owner));
    thread::scope(|scope| {
        scope.spawn(|| {
            let caller = Real::thread_index();
            let refusal = Err(NotOwner::Foreign { owner, caller });
            assert_eq!(cell.with(|_| ()), refusal);
            assert_eq!(cell.bind_here(), refusal);
            assert_eq!(cell.release(), refusal);
        });
    });
    assert_eq!(cell.with(|value| *value), Ok(2));
}

/// The cheap way in is the owner's alone, and never a second way in.
#[test]
fn the_owner_borrows_and_nobody_else() {
    let cell: ThreadOwned<u32> = ThreadOwned::new(1);
    assert!(cell.borrow_mine().is_none(), "nobody owns it yet");
    cell.bind_here().expect("nobody owns it");
    {
        let mut inside = cell.borrow_mine().expect("ours");
        *inside += 1;
        assert!(cell.borrow_mine().is_none(), "in use");
        assert_eq!(cell.with(|_| ()), Err(NotOwner::Reentered));
    }
    assert_eq!(cell.with(|value| (*value, cell.borrow_mine().is_none())), Ok((2, true)), "in use");
    thread::scope(|scope| {
        scope.spawn(|| assert!(cell.borrow_mine().is_none(), "another thread's"));
    });
    assert_eq!(cell.borrow_mine().map(|inside| *inside), Some(2));
}

/// A grace period needs one report of each reader after its beginning, and no second one.
#[test]
fn a_grace_period_ends_with_the_first_report_of_each_reader() {
    let domain: Arc<Qsbr> = Qsbr::new();
    let ended = AtomicUsize::new(0);
    let mut reader = domain.reader();
    thread::scope(|scope| {
        scope.spawn(|| {
            domain.synchronize();
            ended.fetch_add(1, Release);
        });
        while ended.load(Acquire) == 0 {
            // No thread begins another grace period, whose number a later report would have.
            reader.quiescent();
            thread::yield_now();
        }
    });
    let alone = catch_unwind(AssertUnwindSafe(|| domain.synchronize()));
    assert!(alone.is_err(), "a thread does not wait for its own reader");
    reader.offline(|| domain.synchronize());
    drop(reader);
    domain.synchronize();
}

/// A reader that has gone is not waited for, and others are.
#[test]
fn a_grace_period_does_not_end_with_the_end_of_another_reader() {
    let domain: Arc<Qsbr> = Qsbr::new();
    let (_reader, gone) = (domain.reader(), domain.reader());
    drop(gone);
    let waits = catch_unwind(AssertUnwindSafe(|| domain.synchronize()));
    assert!(waits.is_err(), "the caller's own reader is still there");
}

#[test]
fn each_refusal_says_what_to_do() {
    let foreign = NotOwner::Foreign { owner: 3, caller: 8 }.to_string();
    assert!(foreign.contains('3') && foreign.contains('8') && foreign.contains("hand the work over"), "{foreign}");
    assert!(NotOwner::Reentered.to_string().contains("queue the work instead"));
    assert!(sync::TooManyVersions.to_string().contains("build a new stack"));
    assert!(sync::ring::Full(1).to_string().contains("full"));
    let unknown = "mutex".parse::<LockKind>().expect_err("no such kind").to_string();
    assert_eq!(
        unknown,
        "unknown kind of lock `mutex`; the kinds are null, tas, ttas, ticket, mcs, spin-park, blocking, reserved, \
         adaptive, adaptive-lending"
    );
}

#[test]
fn a_table_drops_the_values_of_all_threads() {
    struct Alive(&'static AtomicUsize);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    let values: PerThread<Alive> = PerThread::new(|_| {
        ALIVE.fetch_add(1, Relaxed);
        Alive(&ALIVE)
    });
    for index in [0, 63, 64, 1000, usize::MAX] {
        values.slot(index);
    }
    assert_eq!(ALIVE.load(Relaxed), 5);
    drop(values);
    assert_eq!(ALIVE.load(Relaxed), 0);
}

#[test]
fn ownership_moves_only_by_release() {
    let cell: ThreadOwned<u32> = ThreadOwned::new(0);
    cell.bind_here().expect("nobody owns it");
    cell.with(|value| *value = 5).expect("ours");
    cell.release().expect("ours");
    let got = thread::scope(|scope| scope.spawn(|| cell.with(|value| *value)).join()).expect("no panic");
    assert_eq!(got, Ok(5));
    assert!(matches!(cell.with(|_| ()), Err(NotOwner::Foreign { .. })) || cell.owner() == Some(Real::thread_index()));
}

#[test]
fn reentry_is_refused_also_after_a_panic_inside() {
    let cell: ThreadOwned<u32> = ThreadOwned::new(0);
    let inner = cell.with(|_| (cell.with(|_| ()), cell.release())).expect("ours");
    assert_eq!(inner, (Err(NotOwner::Reentered), Err(NotOwner::Reentered)));
    assert!(catch_unwind(AssertUnwindSafe(|| cell.with(|_| panic!("inside")))).is_err());
    assert_eq!(cell.with(|value| *value), Ok(0), "the panic ended the use");
}

#[test]
fn live_threads_have_different_numbers_and_ended_threads_give_theirs_back() {
    const AT_ONCE: usize = 8;
    let _turn = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut largest = 0;
    for _ in 0..20 {
        let barrier = Arc::new(Barrier::new(AT_ONCE));
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let barrier = barrier.clone();
                thread::spawn(move || {
                    let number = Real::thread_index();
                    barrier.wait();
                    assert_eq!(Real::thread_index(), number, "a number lasts");
                    number
                })
            })
            .collect();
        let numbers: HashSet<usize> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        assert_eq!(numbers.len(), AT_ONCE, "two live threads shared a number");
        largest = largest.max(numbers.into_iter().max().unwrap_or(0));
    }
    // 160 threads have lived; other tests of this program, with few threads each, run beside them.
    assert!(largest < 100, "numbers are not reused: {largest}");
}

#[test]
fn per_thread_values_are_apart_and_summed() {
    let counts: PerThread<AtomicUsize> = PerThread::new(|_| AtomicUsize::default());
    assert_eq!(counts.iter().count(), 0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..COUNT {
                    // The only writer of the slot: no read-modify-write.
                    let mine = counts.here();
                    mine.store(mine.load(Relaxed) + 1, Relaxed);
                }
            });
        }
    });
    assert_eq!(counts.iter().map(|count| count.load(Relaxed)).sum::<usize>(), 4 * COUNT);
}

/// Without a call there is a value only for a thread that has made it.
#[test]
fn a_value_is_found_at_once_by_the_thread_that_has_made_it() {
    let _turn = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    let counts: PerThread<AtomicUsize> = PerThread::new(|_| AtomicUsize::default());
    assert!(counts.here_at_once().is_none());
    let here = counts.here();
    assert!(counts.here_at_once().is_some_and(|found| std::ptr::eq(found, here)));
    thread::scope(|scope| {
        scope.spawn(|| assert!(counts.here_at_once().is_none(), "another thread's value"));
    });
}

#[test]
fn every_index_has_a_slot_of_its_own() {
    let counts: PerThread<(Writers, usize)> = PerThread::new(|writers| (writers, 0));
    let indices = [0, 1, 63, 64, 65, 127, 128, 255, 256, 1000, 70_000, PerThread::<(Writers, usize)>::LIMIT - 1];
    let places: HashSet<_> = indices.iter().map(|&index| std::ptr::from_ref(counts.slot(index))).collect();
    assert_eq!(places.len(), indices.len(), "two indices share a slot");
    for index in indices {
        assert!(places.contains(&std::ptr::from_ref(counts.slot(index))), "the slot of {index} has moved");
        assert_eq!(counts.slot(index).0, Writers::One);
    }
    assert_eq!(counts.iter().count(), indices.len());
}

#[test]
fn threads_without_an_index_share_a_slot_and_know_it() {
    let counts: PerThread<Writers> = PerThread::new(|writers| writers);
    assert!(std::ptr::eq(counts.slot(usize::MAX - 1), counts.slot(PerThread::<Writers>::LIMIT)));
    assert_eq!(*counts.slot(usize::MAX), Writers::Many);
    let counts: PerThread<Writers> = PerThread::new(|writers| writers);
    assert_eq!(*counts.slot(PerThread::<Writers>::LIMIT), Writers::Many, "the first that has none of its own");
    assert_eq!(counts.iter().count(), 1);
}

#[test]
fn six_hundred_live_threads_count_exactly() {
    const THREADS: usize = 600;
    let _turn = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    let counts: PerThread<AtomicUsize> = PerThread::new(|_| AtomicUsize::default());
    let barrier = Barrier::new(THREADS);
    // Joined one by one: a thread gives its number back as it ends, which is after the end of its closure.
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let count = || {
                let mine = counts.here();
                // All of them are alive from here on, so no index is used twice.
                barrier.wait();
                for _ in 0..100 {
                    mine.store(mine.load(Relaxed) + 1, Relaxed);
                }
                barrier.wait();
            };
            threads.push(thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, count).expect("a thread"));
        }
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    assert_eq!(counts.iter().map(|count| count.load(Relaxed)).sum::<usize>(), 100 * THREADS);
    assert_eq!(counts.iter().count(), THREADS);
}

#[test]
fn a_claimed_value_is_its_claimants_until_that_gives_it_up() {
    let value: ClaimLock<u32> = ClaimLock::new(LockKind::Blocking, LockClass::Group, 0);
    *value.enter().expect("nobody's") += 1;
    assert!(!value.is_claimed_here() && !value.release_claim());
    assert!(value.claim() && value.claim() && value.is_claimed_here());
    let refused = |value: &ClaimLock<u32>| {
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                assert!(!value.release_claim(), "only the claimant ends a claim");
                (value.enter().err(), value.claim())
            });
            other.join().expect("no panic")
        })
    };
    assert_eq!(refused(&value), (Some(Claimed), false));
    {
        let mut inside = value.enter().expect("mine");
        *inside += 1;
        assert_eq!(value.enter().err(), Some(Claimed), "one reference at a time, also on one thread");
        assert!(!value.release_claim(), "not while it is in use");
    }
    assert!(value.release_claim());
    assert_eq!(refused(&value), (None, true), "anybody's, and then the other thread's, which has ended");
}

/// The claimant's own way in, which takes no lock.
#[test]
fn a_claim_alone_lets_its_claimant_in_once_at_a_time() {
    let value: ClaimLock<u32> = ClaimLock::new(LockKind::Blocking, LockClass::Group, 0);
    assert!(value.enter_by_claim().is_none(), "there is no claim");
    drop(value.enter().expect("nobody's"));
    assert!(value.claim());
    {
        let mut inside = value.enter_by_claim().expect("mine");
        *inside += 1;
        assert!(value.enter_by_claim().is_none(), "one reference at a time");
        assert_eq!(value.enter().err(), Some(Claimed), "by either way");
        assert!(!value.release_claim(), "not while it is in use, and what was refused has not ended that");
    }
    let elsewhere =
        || thread::scope(|scope| scope.spawn(|| value.enter_by_claim().is_some()).join().expect("no panic"));
    assert!(!elsewhere(), "another thread's claim");
    {
        let _inside = value.enter().expect("mine again");
        assert!(value.enter_by_claim().is_none(), "in use by the other way");
    }
    assert_eq!(value.enter_by_claim().map(|inside| *inside), Some(1));
    assert!(value.release_claim());
    assert!(value.enter_by_claim().is_none(), "the claim has ended");
}

/// One thread claims and releases, the others use the lock: no increment is lost, whether they enter or are refused.
#[test]
fn a_claim_excludes() {
    const THREADS: usize = 3;
    let value: ClaimLock<usize> = ClaimLock::new(LockKind::Blocking, LockClass::Group, 0);
    let entered = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..COUNT {
                    if let Ok(mut inside) = value.enter() {
                        *inside += 1;
                        entered.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        for _ in 0..COUNT {
            assert!(value.claim());
            *value.enter().expect("mine") += 1;
            assert!(value.release_claim());
        }
    });
    assert_eq!(*value.enter().expect("nobody's"), COUNT + entered.into_inner());
}
