//! Samples of this machine's CPUs. In a process of its own: all its threads are sampled.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Thread};

use lab::scheduler::{CpuSampler, SampleTally, SampledEvent};

/// Changes of threads from one to the other and back.
const ROUNDS: u32 = 20_000;
/// Steps of a thread that only computes.
const STEPS: u64 = 30_000_000;

/// Two threads that wake each other and wait, by turns (std parks threads on a futex).
fn alternate() {
    let turn = Arc::new(AtomicU32::new(0));
    let take = |turn: &AtomicU32, mine: u32, other: &Thread| {
        while turn.load(Ordering::Acquire) != mine {
            thread::park();
        }
        turn.store(mine + 1, Ordering::Release);
        other.unpark();
    };
    let (first, theirs) = (thread::current(), turn.clone());
    let second = thread::spawn(move || (0..ROUNDS).for_each(|round| take(&theirs, 2 * round + 1, &first)));
    (0..ROUNDS).for_each(|round| take(&turn, 2 * round, second.thread()));
    second.join().unwrap();
}

/// Two threads that wait for nothing.
fn compute() {
    let steps = || (0..STEPS).fold(1_u64, |x, step| black_box(x.wrapping_mul(6_364_136_223_846_793_005) ^ step));
    let threads = [(); 2].map(|()| thread::spawn(steps));
    threads.into_iter().for_each(|thread| _ = thread.join().unwrap());
}

fn share(tally: &SampleTally) -> f64 {
    tally.scheduler as f64 / tally.own.max(1) as f64
}

/// The share is about 0.6 on a virtual machine of two CPUs, and 0.002 of threads that compute beside other work.
#[test]
fn threads_that_wait_for_each_other_are_in_the_scheduler_and_threads_that_compute_are_not() {
    if let Some(reason) = SampledEvent::Time.lacks() {
        println!("skipped: {reason}");
        return;
    }
    let mut sampler = CpuSampler::open(SampledEvent::Time).unwrap();
    let [((), waiting), ((), computing)] = [sampler.during(alternate), sampler.during(compute)].map(Result::unwrap);
    println!("waiting: {waiting:?}\ncomputing: {computing:?}");
    assert!(waiting.samples > 0 && computing.samples > 0, "nothing was sampled");
    assert!(share(&waiting) > 4.0 * share(&computing), "{} and {}", share(&waiting), share(&computing));
    assert!(waiting.futex > 0, "std's parking waits for a futex");
}

/// A machine without counters says so in a sentence, and a sampler is never opened for what a machine lacks.
#[test]
fn what_a_machine_lacks_is_a_sentence_and_no_sampler() {
    for event in [SampledEvent::Time, SampledEvent::CacheMisses] {
        match event.lacks() {
            Some(reason) => {
                assert!(reason.len() > 40 && !reason.contains('\n'), "{reason}");
                assert_eq!(CpuSampler::open(event).err().as_deref(), Some(reason));
            }
            None => assert!(CpuSampler::open(event).is_ok(), "{event:?}"),
        }
    }
}
