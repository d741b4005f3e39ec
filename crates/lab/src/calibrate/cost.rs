//! The cost of an operation from short batches of it, without those that something else interrupted.

use std::hint::black_box;
use std::time::Instant;

/// A measured cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The median over the batches that count, in nanoseconds.
    pub nanos: f64,
    /// Half of the distance between their quartiles, in nanoseconds.
    pub spread: f64,
    /// Batches that count: those that took less than twice what the fastest tenth took.
    pub valid: usize,
    /// Batches that were run.
    pub batches: usize,
}

impl Cost {
    /// Of the nanoseconds of each batch, for one operation. Needs at least one.
    pub fn of(mut nanos: Vec<f64>) -> Cost {
        nanos.sort_by(f64::total_cmp);
        let batches = nanos.len();
        let bound = 2.0 * nanos[batches / 10];
        nanos.retain(|nanos| *nanos <= bound);
        let at = |quarters: usize| nanos[(nanos.len() * quarters / 4).min(nanos.len() - 1)];
        Cost { nanos: at(2), spread: (at(3) - at(1)) / 2.0, valid: nanos.len(), batches }
    }

    /// Runs `batch`, which makes `operations` operations, over and over.
    pub fn measure(batches: usize, operations: u32, mut batch: impl FnMut()) -> Cost {
        batch();
        let one = |_| {
            let started = Instant::now();
            black_box(&mut batch)();
            started.elapsed().as_nanos() as f64 / f64::from(operations)
        };
        Cost::of((0..batches).map(one).collect())
    }

    /// The rest after so many nanoseconds for something else; at least 0.
    pub fn less(self, nanos: f64) -> Cost {
        Cost { nanos: (self.nanos - nanos).max(0.0), ..self }
    }

    /// A part of it, such as the cost of one of two equal operations.
    pub fn over(self, parts: f64) -> Cost {
        Cost { nanos: self.nanos / parts, spread: self.spread / parts, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_were_interrupted_do_not_count() {
        let mut nanos = vec![10.0, 11.0, 12.0, 11.0, 10.0, 12.0, 11.0];
        nanos.extend([5000.0, 25.0]);
        let cost = Cost::of(nanos);
        assert_eq!((cost.nanos, cost.valid, cost.batches), (11.0, 7, 9));
        assert_eq!(cost.less(4.0).nanos, 7.0);
        assert_eq!(cost.less(40.0).nanos, 0.0);
        assert_eq!((cost.over(2.0).nanos, cost.over(2.0).spread), (5.5, cost.spread / 2.0));
    }

    #[test]
    fn a_batch_that_works_costs_time() {
        let mut sum = 0_u64;
        let cost = Cost::measure(20, 1000, || (0..1000).for_each(|n| sum = black_box(sum.wrapping_mul(31) + n)));
        assert!(cost.nanos > 0.0 && cost.valid > 0 && cost.batches == 20, "{cost:?}");
    }
}
