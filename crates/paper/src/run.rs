//! The points of a plan that are missing, measured one after the other into the store.
//!
//! A sample is in the store before the next begins. When `stop` is set, no new measurement begins, and the current one
//! is finished and kept. A failed point does not affect the others; it is reported at the end with its reason, and a
//! later run tries it again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::plan::Plan;
use crate::point::{Point, Sample};
use crate::store::{Store, StoreError};

/// Progress of a run.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The point that was just finished, or is being measured.
    pub doing: String,
    /// Points of this run that are done.
    pub done: usize,
    /// Points of this run.
    pub of: usize,
    /// Time left.
    pub left: Duration,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Samples that were added to the store.
    pub measured: usize,
    /// The failed points, with the reasons.
    pub failed: Vec<(String, String)>,
    /// Whether it was stopped before its end.
    pub stopped: bool,
}

impl Outcome {
    /// Adds the outcome of another part.
    pub fn and(mut self, other: Outcome) -> Outcome {
        self.measured += other.measured;
        self.failed.extend(other.failed);
        self.stopped |= other.stopped;
        self
    }
}

/// Measures one point. `None`: a signal has interrupted it, and ends the run.
pub type Measure<'a> = dyn Fn(&Point) -> Result<Option<Sample>, String> + Sync + 'a;

/// Measures the simulated points of a plan, `jobs` at a time.
///
/// # Errors
/// The store cannot be written. Earlier samples are kept.
pub fn simulate(
    plan: &Plan,
    store: &mut Store,
    jobs: usize,
    measure: &Measure<'_>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, StoreError> {
    let missing = plan.missing(store).simulated;
    let of = missing.len();
    let left = |from: usize, store: &Store| {
        Plan { simulated: missing[from..].to_vec(), ..Plan::default() }.estimate(store, jobs)
    };
    let mut outcome = Outcome::default();
    let mut standing = Progress { doing: "starting".to_owned(), done: 0, of, left: left(0, store) };
    progress(&standing);
    let (queue, broken) = (Mutex::new(missing.iter()), AtomicBool::new(false));
    let next = || {
        let ends = stop.load(Relaxed) || broken.load(Relaxed);
        queue.lock().ok().filter(|_| !ends).and_then(|mut queue| queue.next())
    };
    let mut result = Ok(());
    std::thread::scope(|scope| {
        let (report, reports) = channel();
        for _ in 0..jobs.clamp(1, of.max(1)) {
            let (report, next) = (report.clone(), &next);
            scope.spawn(move || {
                while let Some(point) = next() {
                    // The receiver outlives the threads.
                    let _ = report.send((point, measure(point)));
                }
            });
        }
        drop(report);
        for (point, measured) in reports {
            match measured {
                Ok(Some(sample)) if result.is_ok() => match store.append(vec![sample]) {
                    Ok(()) => outcome.measured += 1,
                    Err(error) => {
                        broken.store(true, Relaxed);
                        result = Err(error);
                    }
                },
                Ok(Some(_)) => {}
                Ok(None) => broken.store(true, Relaxed),
                Err(reason) => outcome.failed.push((point.to_string(), reason)),
            }
            standing.done += 1;
            (standing.doing, standing.left) = (point.to_string(), left(standing.done, store));
            progress(&standing);
        }
    });
    outcome.stopped = standing.done < of || broken.load(Relaxed);
    result.map(|()| outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{point, sample};
    use std::sync::atomic::AtomicUsize;

    fn plan(count: u64) -> Plan {
        Plan { simulated: (1..=count).map(|seed| point("x", 6, seed)).collect(), ..Plan::default() }
    }

    fn never() -> AtomicBool {
        AtomicBool::new(false)
    }

    #[test]
    fn a_run_that_was_stopped_goes_on_where_it_was_and_measures_nothing_twice() {
        let directory = tempfile::tempdir().unwrap();
        let (stop, count) = (never(), AtomicUsize::new(0));
        let measure = |point: &Point| {
            if count.fetch_add(1, Relaxed) == 3 {
                stop.store(true, Relaxed);
            }
            Ok(Some(sample(point.clone(), 1.0)))
        };
        let mut store = Store::open(directory.path()).unwrap();
        let first = simulate(&plan(10), &mut store, 1, &measure, &stop, &mut |_| {}).unwrap();
        assert_eq!((first.measured, first.stopped), (4, true), "the point that ran is kept");
        drop(store);
        let mut store = Store::open(directory.path()).unwrap();
        let mut left = Vec::new();
        let second =
            simulate(&plan(10), &mut store, 2, &measure, &never(), &mut |progress| left.push(progress.left)).unwrap();
        assert_eq!((second.measured, second.stopped, count.load(Relaxed)), (6, false, 10));
        assert!(left.is_sorted_by(|a, b| a >= b) && left.last() == Some(&Duration::ZERO), "{left:?}");
        let third = simulate(&plan(10), &mut store, 1, &measure, &never(), &mut |_| {}).unwrap();
        assert_eq!((third.measured, third.stopped, count.load(Relaxed)), (0, false, 10));
    }

    #[test]
    fn a_point_that_fails_costs_no_other_and_is_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        let measure =
            |point: &Point| if point.seed == 2 { Err("stuck".into()) } else { Ok(Some(sample(point.clone(), 1.0))) };
        let outcome = simulate(&plan(3), &mut store, 1, &measure, &never(), &mut |_| {}).unwrap();
        assert_eq!((outcome.measured, outcome.stopped), (2, false));
        assert_eq!(outcome.failed, [("x, 6 connections, seed 2".to_owned(), "stuck".to_owned())]);
        let good = |point: &Point| Ok(Some(sample(point.clone(), 1.0)));
        assert_eq!(simulate(&plan(3), &mut store, 1, &good, &never(), &mut |_| {}).unwrap().measured, 1);
    }

    #[test]
    fn an_interruption_from_outside_ends_the_run() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        let measure = |point: &Point| Ok((point.seed < 2).then(|| sample(point.clone(), 1.0)));
        let outcome = simulate(&plan(9), &mut store, 1, &measure, &never(), &mut |_| {}).unwrap();
        assert_eq!((outcome.measured, outcome.stopped, outcome.failed.len()), (1, true, 0));
    }

    /// A measurement that returns another point's sample cannot get into the store twice.
    #[test]
    fn a_repeated_point_ends_the_run() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        let measure = |_: &Point| Ok(Some(sample(point("x", 6, 1), 1.0)));
        let error = simulate(&plan(3), &mut store, 1, &measure, &never(), &mut |_| {}).unwrap_err();
        assert!(matches!(error, StoreError::Repeated(_)), "{error}");
        assert_eq!(store.samples().len(), 1);
    }
}
