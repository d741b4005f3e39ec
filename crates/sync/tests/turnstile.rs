//! A turnstile with more waiting threads than words.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sync::{Platform, Real, Turnstile};

/// How often a thread has gone to sleep.
static SLEEPS: AtomicUsize = AtomicUsize::new(0);

/// The real machine, which counts threads that go to sleep.
#[derive(Clone, Copy, Debug, Default)]
struct Sleepy;

impl Platform for Sleepy {
    sync::forward_platform!(Real: atomics cells doorbell join spawn spin now random thread fences profile held);

    fn futex_wait(atom: &Self::AtomicU32, expected: u32, timeout: Option<Duration>) {
        SLEEPS.fetch_add(1, Ordering::SeqCst);
        // A thread that is not woken ends in any case, and the test fails.
        Real::futex_wait(atom, expected, timeout.or(Some(Duration::from_secs(5))));
    }

    fn futex_wake(atom: &Self::AtomicU32, n: u32) {
        Real::futex_wake(atom, n);
    }
}

/// The second thread that goes to sleep on a word does not hide the first one from the thread that passes the turn.
#[test]
fn two_threads_that_sleep_on_one_word_are_both_woken() {
    let turnstile = Turnstile::<Sleepy>::new(1);
    let woken = std::thread::scope(|scope| {
        for ticket in [1, 2] {
            let turnstile = &turnstile;
            scope.spawn(move || {
                turnstile.wait(ticket);
                turnstile.pass(ticket);
            });
        }
        while SLEEPS.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        turnstile.pass(0)
    });
    assert!(woken, "two threads slept");
    assert!(!turnstile.pass(3), "none sleeps any more");
}
