//! The adaptive lock of Solaris and FreeBSD, on a platform that can tell whether a thread is running: a waiter spins as
//! long as the holder runs, and sleeps if it does not; with priorities, a waiter that sleeps lends its own.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use planted::{InjectedFault, LockNotice, Planted};
use sync::raw::Adaptive;
use sync::{Platform, RawLock, Real};

/// The answers of the platform, and the calls that it has received.
struct Scene {
    runs: Option<bool>,
    asked: Vec<usize>,
    seen: Vec<LockNotice>,
}

static SCENE: Mutex<Scene> = Mutex::new(Scene { runs: None, asked: Vec::new(), seen: Vec::new() });
/// One test at a time has the scene.
static TURN: Mutex<()> = Mutex::new(());

fn scene() -> MutexGuard<'static, Scene> {
    SCENE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new scene, for as long as the guard lives.
fn begin(runs: Option<bool>) -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    *scene() = Scene { runs, asked: Vec::new(), seen: Vec::new() };
    turn
}

#[derive(Clone, Copy, Debug, Default)]
struct Watched;

impl InjectedFault for Watched {
    fn runs(thread: usize) -> Option<bool> {
        let mut scene = scene();
        scene.asked.push(thread);
        scene.runs
    }

    fn sees(told: LockNotice) {
        scene().seen.push(told);
    }
}

type Observed = Planted<Real, Watched>;

fn count(told: LockNotice) -> usize {
    scene().seen.iter().filter(|seen| **seen == told).count()
}

/// Holds a lock until the other thread, which wants it, has made the platform see enough; returns once both are done.
fn contended<const LENDS: bool>(enough: impl Fn() -> bool) {
    let lock = Adaptive::<Observed, LENDS>::new();
    lock.lock();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            lock.lock();
            lock.unlock();
        });
        while !enough() {
            thread::yield_now();
        }
        assert!(!waiter.is_finished(), "the lock is held");
        lock.unlock();
        waiter.join().expect("it gets the lock");
    });
    assert!(lock.try_lock(), "it is free");
}

/// Runs `act` on a thread whose number is above the first ones.
fn on_a_later_thread(act: &(dyn Fn() + Sync)) {
    if Real::thread_index() >= 6 {
        return act();
    }
    // The calling thread keeps its number meanwhile.
    thread::scope(|scope| scope.spawn(|| on_a_later_thread(act)).join()).expect("it ends well");
}

#[test]
fn a_waiter_spins_as_long_as_the_holder_runs() {
    let _turn = begin(Some(true));
    on_a_later_thread(&|| {
        contended::<false>(|| count(LockNotice::Relax) > 2000);
        assert_eq!((count(LockNotice::Sleep), count(LockNotice::Wake)), (0, 0), "nobody slept");
        let scene = scene();
        assert!(scene.asked.iter().all(|thread| *thread == Real::thread_index()), "the holder is asked about");
    });
}

#[test]
fn a_waiter_sleeps_at_once_if_the_holder_does_not_run() {
    let _turn = begin(Some(false));
    contended::<false>(|| count(LockNotice::Sleep) > 0);
    assert_eq!(count(LockNotice::Relax), 0, "it did not spin");
    // The waiter cannot know that it was the last, and wakes once without need.
    assert!((1..=2).contains(&count(LockNotice::Wake)));
    let scene = scene();
    assert!(scene.asked.iter().all(|thread| *thread == Real::thread_index()), "the holder is asked about");
}

/// A bit of the word marks that there are sleepers; it is not part of the holder's number.
#[test]
fn a_second_waiter_asks_about_the_same_holder() {
    let _turn = begin(Some(false));
    let lock = Adaptive::<Observed>::new();
    lock.lock();
    thread::scope(|scope| {
        for sleepers in 1..=2 {
            scope.spawn(|| {
                lock.lock();
                lock.unlock();
            });
            while count(LockNotice::Sleep) < sleepers {
                thread::yield_now();
            }
        }
        assert!(scene().asked.iter().all(|thread| *thread == Real::thread_index()), "the holder is asked about");
        lock.unlock();
    });
    assert!(lock.try_lock(), "both had it");
}

#[test]
fn where_nothing_is_known_a_waiter_spins_for_a_while_and_sleeps() {
    let _turn = begin(None);
    contended::<false>(|| count(LockNotice::Sleep) > 0);
    let seen = scene().seen.clone();
    let spins = seen.iter().take_while(|told| **told == LockNotice::Relax).count();
    assert_eq!(spins, 300);
    assert_eq!(seen[spins], LockNotice::Sleep);
}

#[test]
fn a_lock_that_nobody_waits_for_wakes_nobody() {
    let _turn = begin(Some(false));
    let lock = Adaptive::<Observed, true>::new();
    for _ in 0..10 {
        lock.lock();
        lock.unlock();
        assert!(lock.try_lock());
        assert!(!lock.try_lock(), "it is held");
        lock.unlock();
    }
    assert_eq!(scene().seen, []);
}

/// Sha, Rajkumar and Lehoczky 1990: the holder runs at the priority of its waiters until it has unlocked.
#[test]
fn a_sleeping_waiter_lends_its_priority_until_the_holder_unlocks() {
    let _turn = begin(Some(false));
    contended::<true>(|| count(LockNotice::Sleep) > 0);
    let seen = scene().seen.clone();
    assert_eq!(seen[..2], [LockNotice::Lend { to: Real::thread_index() }, LockNotice::Sleep], "before it sleeps");
    let repaid = seen.iter().position(|told| *told == LockNotice::Repay).expect("it is returned");
    assert!(seen[..repaid].contains(&LockNotice::Wake), "woken first: the waiter would wait for the former holder");
}
