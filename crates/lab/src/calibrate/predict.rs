//! Predictions of the calibrated model, beside the machine: architectures, locks and loads that nothing was fitted to.
//!
//! Each run is made on one CPU and on several, alternately, on the machine ([`measured`](super::measured)); and once on the
//! model. The figure that counts is the ratio of the two, because that is what the simulator is asked for; the rate on one
//! CPU is printed too.
//! Runs in which threads sleep and wake each other are flagged: a real scheduler's choices are not in the model.

use stack::Architecture;
use sync::LockKind;
use vsmp::Costs;
use vsmp::workload::pair::{Load, Pair};

use super::measured::{Relative, relative};
use super::transfers::efficiency;
use super::{Effort, on_the_model};

/// The kinds of locks of architectures that have locks.
const LOCKS: [LockKind; 3] = [LockKind::SpinPark, LockKind::Ttas, LockKind::Mcs];
/// Connections of every run.
const CONNECTIONS: usize = 64;

/// A prediction and its measurement.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The run on several CPUs.
    pub pair: Pair,
    /// Whether its threads sleep and wake each other under load, so that the scheduler decides.
    pub scheduler_bound: bool,
    /// On the machine; `None` where no round was without an interruption.
    pub real: Option<Relative>,
    /// On the model: the rate of one CPU for each segment of the floor, and the efficiency of several.
    pub model: [f64; 2],
}

/// Errors of predictions, relative to the machine: 0.05 is 5 % too much.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    /// Of the ratio of several CPUs to one, both relative to that of work that shares nothing, in the same seconds.
    pub ratio: Vec<f64>,
    /// Of the rate of one CPU.
    pub alone: Vec<f64>,
}

impl Prediction {
    /// The relative errors of the ratio and of the rate of one CPU; `None`: not measured.
    pub fn errors(&self) -> Option<[f64; 2]> {
        let Relative { alone, efficiency, .. } = self.real?;
        Some([self.model[1] / efficiency - 1.0, self.model[0] / alone - 1.0])
    }
}

impl Errors {
    /// Of predictions that are not flagged and were measured.
    pub fn of(predictions: &[Prediction]) -> Errors {
        let mut errors = Errors::default();
        for prediction in predictions.iter().filter(|prediction| !prediction.scheduler_bound) {
            if let Some([ratio, alone]) = prediction.errors() {
                errors.ratio.push(ratio);
                errors.alone.push(alone);
            }
        }
        errors
    }

    /// The median and the greatest of the absolute errors; `None` of none.
    pub fn median_and_worst(errors: &[f64]) -> Option<[f64; 2]> {
        let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        Some([*sizes.get(sizes.len() / 2)?, *sizes.last()?])
    }
}

/// Every run to predict.
fn cases(cpus: usize, stride: usize) -> Vec<Pair> {
    let mut cases = Vec::new();
    for name in include_str!("predicted.txt").lines() {
        let arch = Architecture::named(name);
        let locks =
            if arch.properties().has_locks && !arch.properties().own_threads { &LOCKS[..] } else { &LOCKS[..1] };
        for load in [Load::Bulk, Load::Requests(64)] {
            for &lock_kind in locks {
                let pair = Pair { cpus, stride, connections: CONNECTIONS, load, lock_kind, ..Pair::new(arch) };
                cases.push(pair);
            }
        }
    }
    cases
}

pub(super) fn all(
    costs: &Costs,
    floor: f64,
    stride: usize,
    effort: &Effort,
    mut progress: impl FnMut(usize, usize, &Pair),
) -> Vec<Prediction> {
    let cases = cases(effort.cpus, stride);
    let count = cases.len();
    let one = |(place, pair): (usize, Pair)| {
        progress(place, count, &pair);
        let alone =
            on_the_model(&Pair { cpus: 1, ..pair.clone() }, costs, effort).map_or(0.0, |(rate, ..)| rate.median);
        let model = [alone / floor, efficiency(&pair, costs, effort).unwrap_or(0.0)];
        let real = relative(&pair, effort);
        Prediction { scheduler_bound: pair.arch.properties().own_threads, pair, real, model }
    };
    cases.into_iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prediction(model: [f64; 2], [alone, efficiency]: [f64; 2], scheduler_bound: bool) -> Prediction {
        let arch = Architecture::named(include_str!("fit.txt").trim_end());
        let real = Some(Relative { alone, efficiency, ratio: 1.8, valid: 9 });
        Prediction { pair: Pair::new(arch), scheduler_bound, real, model }
    }

    #[test]
    fn errors_are_relative_to_the_machine_and_leave_out_what_is_flagged() {
        let predictions = [
            prediction([100.0, 0.99], [110.0, 0.90], false),
            prediction([100.0, 0.76], [100.0, 0.80], false),
            prediction([100.0, 0.90], [100.0, 0.10], true),
            Prediction { real: None, ..prediction([1.0, 1.0], [1.0, 1.0], false) },
        ];
        let errors = Errors::of(&predictions);
        let close = |found: &[f64], expected: [f64; 2]| found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(close(&errors.ratio, [0.1, -0.05]) && errors.ratio.len() == 2, "{errors:?}");
        assert!(close(&errors.alone, [-1.0 / 11.0, 0.0]), "{errors:?}");
        let [median, worst] = Errors::median_and_worst(&errors.ratio).expect("there are two");
        assert!((median - 0.1).abs() < 1e-9 && (worst - 0.1).abs() < 1e-9);
        assert_eq!(Errors::median_and_worst(&[]), None);
    }
}
