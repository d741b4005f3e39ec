//! Sleeping and waking on the real machine: permits, the doorbell's descriptor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread;
use std::time::Duration;

use sync::ring::Mpsc;
use sync::{Doorbell, DoorbellLike, NoDoorbell, Parker, Platform, Real, ThreadClass};

const COUNT: usize = if cfg!(miri) { 50 } else { 20_000 };

#[test]
fn a_permit_given_before_is_taken_at_once_and_only_once() {
    let parker: Parker = Parker::new();
    assert!(!parker.unpark(), "nobody slept");
    assert!(!parker.unpark());
    assert!(parker.park(None));
    assert!(!parker.park(Some(Duration::from_nanos(1))), "permits do not add up");
    assert_eq!(parker.wakes_sent(), 0);
}

#[test]
fn a_worker_that_parks_misses_nothing() {
    let shared: Arc<(Mpsc<usize>, Parker)> = Arc::new((Mpsc::new(8), Parker::new()));
    let worker = {
        let shared = shared.clone();
        thread::spawn(move || {
            let mut sum = 0;
            for _ in 0..COUNT {
                sum += loop {
                    match shared.0.pop() {
                        Some(value) => break value,
                        None => drop(shared.1.park(None)),
                    }
                };
            }
            sum
        })
    };
    let mut woken = 0;
    for value in 0..COUNT {
        while shared.0.push(value).is_err() {
            thread::yield_now();
        }
        woken += u64::from(shared.1.unpark());
    }
    assert_eq!(shared.1.wakes_sent(), woken, "what it returned adds up");
    assert_eq!(worker.join().expect("the worker ends"), COUNT * (COUNT - 1) / 2);
}

#[cfg(not(miri))]
fn readable(bell: &Doorbell, timeout_ms: i32) -> bool {
    let fd = bell.fd().expect("a real doorbell has a descriptor");
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd on our stack.
    unsafe { libc::poll(&mut poll, 1, timeout_ms) == 1 }
}

#[test]
#[cfg(not(miri))]
fn a_doorbell_sounds_only_while_armed() {
    let bell = Doorbell::new().expect("a descriptor is free");
    assert!(!bell.ring() && !readable(&bell, 0), "nobody listens");
    bell.arm();
    assert!(bell.ring() && readable(&bell, 0));
    assert!(!bell.ring(), "once is enough");
    bell.drain();
    assert!(!readable(&bell, 0));
    bell.arm();
    bell.drain();
    assert!(!bell.ring(), "the reader is awake");
}

#[test]
#[cfg(not(miri))]
fn a_polling_reader_misses_nothing() {
    let shared: Arc<(Mpsc<usize>, Doorbell)> = Arc::new((Mpsc::new(8), Doorbell::new().expect("a descriptor is free")));
    let other = shared.clone();
    let writer = thread::spawn(move || {
        for value in 0..COUNT {
            while other.0.push(value).is_err() {
                thread::yield_now();
            }
            other.1.ring();
        }
    });
    let mut expected = 0;
    while expected < COUNT {
        let Some(value) = shared.0.pop() else {
            shared.1.arm();
            if shared.0.is_empty() {
                assert!(readable(&shared.1, 120_000), "a ring was lost");
            }
            shared.1.drain();
            continue;
        };
        assert_eq!(value, expected);
        expected += 1;
    }
    writer.join().expect("the writer ends");
}

#[test]
fn a_silent_doorbell_keeps_the_protocol() {
    let bell = NoDoorbell::<Real>::new().expect("needs nothing");
    assert!(!bell.ring());
    bell.arm();
    assert!(bell.ring() && !bell.ring());
    bell.arm();
    bell.drain();
    assert!(!bell.ring(), "the reader is awake");
    assert!(bell.fd().is_none());
}

#[test]
fn a_thread_has_the_name_that_it_was_given() {
    let body = || assert_eq!(Real::thread_name(), "worker-7");
    Real::join(Real::spawn("worker-7", None, ThreadClass::Application, body)).expect("it has");
}

#[test]
fn the_clock_rises_and_numbers_differ() {
    let before = Real::now();
    let numbers: std::collections::HashSet<u64> = (0..100).map(|_| Real::random()).collect();
    assert_eq!(numbers.len(), 100);
    assert!(Real::now() >= before);
}

#[test]
#[cfg(not(miri))]
fn a_thread_may_ask_for_a_cpu() {
    let ran = Arc::new(AtomicUsize::new(0));
    let there = ran.clone();
    let body = move || {
        // SAFETY: the call has no arguments.
        there.store(1 + unsafe { libc::sched_getcpu() } as usize, Relaxed);
    };
    Real::join(Real::spawn("pinned", Some(0), ThreadClass::Application, body)).expect("it ends");
    let allowed = thread::spawn(|| Real::pin(0).is_ok()).join().expect("it ends");
    assert!(!allowed || ran.load(Relaxed) == 1, "it ran elsewhere");
    let error = Real::pin(1 << 20).expect_err("no such CPU").to_string();
    assert!(error.contains("CPU 1048576"), "{error}");
}
