//! The reserved lock (Kawachiya, Koseki and Onodera 2002): after some acquisitions in a row by one thread, that thread
//! takes and releases it without a locked instruction. Each time another thread ends the reservation, the number that the
//! next one takes doubles.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use planted::{Planted, Sound, WAITS, updates};
use sync::raw::Reserved;
use sync::{Platform, RawLock, Real};

type Watched = Reserved<Planted<Real, Sound>>;

/// Takes the lock as [`sync::Lock`] does, and releases it; how many locked instructions that took.
fn turn(lock: &Watched) -> usize {
    updates(|| {
        if !lock.try_lock() {
            lock.lock();
        }
        lock.unlock();
    })
}

fn another_thread(act: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(act).join()).expect("it ends well");
}

/// How many turns take locked instructions before one takes none.
fn streak(lock: &Watched) -> usize {
    (0..5000).position(|_| turn(lock) == 0).expect("it is reserved in the end")
}

#[test]
fn the_only_user_soon_needs_no_locked_instruction() {
    let lock = Watched::new();
    assert_eq!(streak(&lock), 64);
    assert!((0..1000).all(|_| turn(&lock) == 0), "a reservation lasts");
}

#[test]
fn the_owner_is_refused_inside_and_so_are_others() {
    let lock = Watched::new();
    streak(&lock);
    assert!(lock.try_lock());
    assert!(!lock.try_lock(), "it is held, by the caller itself");
    another_thread(|| assert!(!lock.try_lock(), "it is held"));
    lock.unlock();
    assert!(lock.try_lock(), "it is free");
    lock.unlock();
}

#[test]
fn each_end_doubles_what_the_next_reservation_takes() {
    let lock = Watched::new();
    assert_eq!(streak(&lock), 64);
    for expected in [128, 256, 512, 1024] {
        another_thread(|| assert!(turn(&lock) > 0, "its owner alone has a reserved lock"));
        assert_eq!(streak(&lock), expected);
    }
}

/// A thread that was interrupted before it entered might still write what only an owner writes.
#[test]
fn a_lock_is_only_ever_reserved_for_one_thread() {
    // The number of a thread that has ended is another's soon.
    let me = Real::thread_index();
    let lock = Watched::new();
    another_thread(|| {
        assert_ne!(Real::thread_index(), me);
        assert_eq!(streak(&lock), 64);
    });
    assert!((0..5000).all(|_| turn(&lock) > 0), "the first owner's, which has ended");
}

#[test]
fn users_that_take_turns_have_a_plain_lock() {
    let lock = Watched::new();
    for _ in 0..10 {
        assert!((0..63).all(|_| turn(&lock) > 0));
        another_thread(|| assert!(turn(&lock) > 0));
    }
    assert!((0..10).all(|_| turn(&lock) > 0), "no thread has used it 64 times in a row");
}

/// The owner is inside when another thread ends its reservation: that thread waits until the owner has left.
#[test]
fn a_newcomer_waits_for_an_owner_that_is_inside() {
    let lock = Watched::new();
    streak(&lock);
    assert!(lock.try_lock());
    let before = WAITS.load(Relaxed);
    thread::scope(|scope| {
        let newcomer = scope.spawn(|| {
            lock.lock();
            lock.unlock();
        });
        while WAITS.load(Relaxed) == before {
            thread::yield_now();
        }
        assert!(!newcomer.is_finished());
        lock.unlock();
        newcomer.join().expect("it gets the lock");
    });
    assert!(turn(&lock) > 0, "it is not reserved any more");
}
