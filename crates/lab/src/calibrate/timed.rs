//! [`Timed`]: a platform with a time stamp at each step of plain work.
//!
//! The stack reports each [`Step`] where it begins. The time until the next report belongs to that step: the next one, or
//! the end of a call into the platform that waits. A step that another one interrupts (a call runs an event) loses the
//! time after it to that one, so the sum is correct and the division approximate. [`Timed::overhead`] is the time that
//! a report itself takes.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sync::{Ordering, Platform, Step};
use vsmp::workload::windows::PAUSE;

/// The platform `P`, and a clock for the steps of its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timed<P>(PhantomData<P>);

const STEPS: usize = Step::ALL.len();

/// Of all threads, by step.
static NANOS: [AtomicU64; STEPS] = [const { AtomicU64::new(0) }; STEPS];
static REPORTS: [AtomicU64; STEPS] = [const { AtomicU64::new(0) }; STEPS];
static COUNTS: [AtomicU64; STEPS] = [const { AtomicU64::new(0) }; STEPS];

thread_local! {
    /// The step that runs, when it began, and how many it stands for.
    static RUNNING: Cell<Option<(usize, u64, usize)>> = const { Cell::new(None) };
}

/// The time of each step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    /// Nanoseconds of one step, without the overhead of its report. 0 of a step that was not made.
    pub nanos: [f64; STEPS],
    /// How often it was made.
    pub counts: [u64; STEPS],
}

/// The step that runs ends.
fn end(now: u64) {
    let Some((step, began, n)) = RUNNING.take() else { return };
    let took = now.saturating_sub(began);
    // The thread did not have its CPU all the time.
    if took > PAUSE {
        return;
    }
    NANOS[step].fetch_add(took, Ordering::Relaxed);
    REPORTS[step].fetch_add(1, Ordering::Relaxed);
    COUNTS[step].fetch_add(n as u64, Ordering::Relaxed);
}

impl<P: Platform> Timed<P> {
    /// The times of the steps that all threads make during `run`. One run at a time.
    pub fn during(run: impl FnOnce()) -> StepTimes {
        let overhead = Self::overhead();
        let counters = || [&NANOS, &REPORTS, &COUNTS].map(|all| all.each_ref().map(|one| one.load(Ordering::Relaxed)));
        let before = counters();
        run();
        let after = counters();
        let [nanos, reports, counts] = std::array::from_fn(|kind| {
            std::array::from_fn::<u64, STEPS, _>(|step| after[kind][step] - before[kind][step])
        });
        let each = |step: usize| {
            let without = nanos[step] as f64 - overhead * reports[step] as f64;
            without.max(0.0) / (counts[step] as f64).max(1.0)
        };
        StepTimes { nanos: std::array::from_fn(each), counts }
    }

    /// Nanoseconds between two reports with nothing between them.
    fn overhead() -> f64 {
        let nanos = || NANOS[Step::Timer as usize].load(Ordering::Relaxed);
        let before = nanos();
        let reports = 20_000;
        (0..=reports).for_each(|_| Self::work(Step::Timer, 1));
        RUNNING.set(None);
        (nanos() - before) as f64 / f64::from(reports)
    }
}

impl<P: Platform> Platform for Timed<P> {
    const CHARGED: bool = true;
    sync::forward_platform!(P: atomics cells doorbell spawn join now random thread priority runs fences profile held);

    fn futex_wait(atom: &Self::AtomicU32, expected: u32, timeout: Option<Duration>) {
        end(P::now());
        P::futex_wait(atom, expected, timeout);
    }
    fn futex_wake(atom: &Self::AtomicU32, n: u32) {
        P::futex_wake(atom, n);
    }
    fn relax(spins: u32) {
        P::relax(spins);
    }
    fn yield_now() {
        end(P::now());
        P::yield_now();
    }
    fn work(step: Step, n: usize) {
        end(P::now());
        // Read again: the time that the end takes belongs to no step.
        RUNNING.set(Some((step as usize, P::now(), n)));
    }
    fn work_in_part(step: Step, quarters: usize) {
        // Parts of one step that follow each other are reported once.
        if quarters == 4 || RUNNING.get().is_none_or(|(running, ..)| running != step as usize) {
            Self::work(step, quarters.div_ceil(4));
        }
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;

    /// The real machine with a clock that the test sets, and that a reading advances by 3.
    #[derive(Clone, Copy, Debug, Default)]
    struct Stepped;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    impl Platform for Stepped {
        sync::forward_platform!(Real: atomics futex cells doorbell join spawn spin random thread priority runs fences profile held);

        fn now() -> u64 {
            NOW.set(NOW.get() + 3);
            NOW.get()
        }
    }

    fn pass(nanos: u64) {
        NOW.set(NOW.get() + nanos);
    }

    #[test]
    fn the_time_until_the_next_report_is_the_steps() {
        let times = Timed::<Stepped>::during(|| {
            for _ in 0..200 {
                Timed::<Stepped>::work(Step::Batch, 1);
                pass(5_000);
                Timed::<Stepped>::work(Step::Frame, 4);
                pass(20_000);
                // Waits for a CPU: no step's time.
                Timed::<Stepped>::yield_now();
                pass(50_000);
                // The thread lost its CPU.
                Timed::<Stepped>::work(Step::Emit, 1);
                pass(PAUSE + 1);
                Timed::<Stepped>::work(Step::Call, 1);
                pass(7);
                Timed::<Stepped>::work_in_part(Step::Event, 2);
                pass(11);
                Timed::<Stepped>::work_in_part(Step::Event, 2);
                pass(13);
                Timed::<Stepped>::yield_now();
            }
        });
        let of = |step: Step| (times.nanos[step as usize], times.counts[step as usize]);
        assert_eq!([of(Step::Batch), of(Step::Frame)], [(5_000.0, 200), (5_000.0, 800)]);
        assert_eq!([of(Step::Emit), of(Step::Call), of(Step::Event)], [(0.0, 0), (7.0, 200), (24.0, 200)]);
    }
}
