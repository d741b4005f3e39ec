//! The universal scalability law: contention and coherence, fitted to throughputs at several numbers of CPUs.
//!
//! X(n) = λn / (1 + σ(n - 1) + κn(n - 1)) (Gunther, "A General Theory of Computational Scalability Based on Rational
//! Functions", 2008). λ is the throughput of one CPU, σ the share of the work that one CPU at a time can do
//! (contention), κ the cost of agreement between each pair (coherence). Written as n/X it is linear in its
//! coefficients, so they come from least squares, weighted such that errors of X count relative to X. A coefficient
//! below 0 has no meaning and is set to 0.

use serde::{Deserialize, Serialize};

/// A fitted law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalabilityLaw {
    /// λ: the throughput of one CPU, in the unit of the points.
    pub lambda: f64,
    /// σ: contention, 0 or more; 1 is no gain from a second CPU.
    pub sigma: f64,
    /// κ: coherence, 0 or more.
    pub kappa: f64,
    /// Largest relative error of a point, 0 or more.
    pub worst_error: f64,
}

impl ScalabilityLaw {
    /// Fits the law to (CPUs, throughput); `None` with fewer than three numbers of CPUs, or with a throughput that is
    /// not above 0.
    pub fn fit(points: &[(f64, f64)]) -> Option<ScalabilityLaw> {
        let mut counts: Vec<f64> = points.iter().map(|point| point.0).collect();
        counts.sort_by(f64::total_cmp);
        counts.dedup();
        if counts.len() < 3 || points.iter().any(|(n, x)| *n < 1.0 || *x <= 0.0) {
            return None;
        }
        // The terms that take part: both, then without those whose coefficient was below 0.
        let candidates = [[true, true], [true, false], [false, true], [false, false]];
        let law = candidates.into_iter().find_map(|terms| solve(points, terms))?;
        let error = |(n, x): &(f64, f64)| (law.at(*n) / x - 1.0).abs();
        Some(ScalabilityLaw { worst_error: points.iter().map(error).fold(0.0, f64::max), ..law })
    }

    /// The throughput of `n` CPUs.
    pub fn at(&self, n: f64) -> f64 {
        self.lambda * n / (1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0))
    }

    /// The number of CPUs beyond which throughput falls; `None` if it never does.
    pub fn peak(&self) -> Option<f64> {
        (self.kappa > 0.0).then(|| ((1.0 - self.sigma).max(0.0) / self.kappa).sqrt().max(1.0))
    }
}

/// Least squares of n/X = a + b(n - 1) + cn(n - 1), without b or c if `terms` says so; `None` if one of those left is
/// below 0.
fn solve(points: &[(f64, f64)], terms: [bool; 2]) -> Option<ScalabilityLaw> {
    let mut matrix = [[0.0; 4]; 3];
    for &(n, x) in points {
        let row = [1.0, if terms[0] { n - 1.0 } else { 0.0 }, if terms[1] { n * (n - 1.0) } else { 0.0 }];
        let (y, weight) = (n / x, (x / n) * (x / n));
        for (i, left) in row.iter().enumerate() {
            for (j, right) in row.iter().enumerate() {
                matrix[i][j] += weight * left * right;
            }
            matrix[i][3] += weight * left * y;
        }
    }
    for (index, takes_part) in [(1, terms[0]), (2, terms[1])] {
        if !takes_part {
            matrix[index][index] = 1.0;
        }
    }
    let [a, b, c] = eliminate(matrix)?;
    (a > 0.0 && b >= 0.0 && c >= 0.0).then(|| ScalabilityLaw {
        lambda: 1.0 / a,
        sigma: b / a,
        kappa: c / a,
        worst_error: 0.0,
    })
}

/// Gauss's elimination with the largest pivot; `None` if there is no single solution.
fn eliminate(mut matrix: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let largest = |a: &usize, b: &usize| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs());
        let pivot = (column..3).max_by(largest)?;
        matrix.swap(column, pivot);
        if matrix[column][column].abs() < 1e-12 {
            return None;
        }
        let pivots = matrix[column];
        for (_, other) in matrix.iter_mut().enumerate().filter(|(row, _)| *row != column) {
            let factor = other[column] / pivots[column];
            for (value, pivot) in other.iter_mut().zip(pivots) {
                *value -= factor * pivot;
            }
        }
    }
    Some([0, 1, 2].map(|row| matrix[row][3] / matrix[row][row]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(law: ScalabilityLaw, counts: &[f64]) -> Vec<(f64, f64)> {
        counts.iter().map(|&n| (n, law.at(n))).collect()
    }

    /// Points of a law give that law back.
    #[test]
    fn a_law_is_found_again_from_its_points() {
        for (sigma, kappa) in [(0.05, 0.001), (0.4, 0.0), (0.0, 0.02), (0.0, 0.0)] {
            let law = ScalabilityLaw { lambda: 2.5, sigma, kappa, worst_error: 0.0 };
            let found = ScalabilityLaw::fit(&points(law, &[1.0, 2.0, 4.0, 8.0, 16.0])).expect("five points");
            let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
            assert!(near(found.lambda, 2.5) && near(found.sigma, sigma) && near(found.kappa, kappa), "{found:?}");
            assert!(found.worst_error < 1e-6, "{found:?}");
        }
        let peak = ScalabilityLaw { lambda: 1.0, sigma: 0.04, kappa: 0.0096, worst_error: 0.0 }.peak();
        assert!((peak.expect("it falls") - 10.0).abs() < 1e-9, "{peak:?}");
    }

    /// Throughput that rises faster than the CPUs has no contention below 0.
    #[test]
    fn coefficients_are_not_negative_and_few_points_are_no_law() {
        let rising = [(1.0, 1.0), (2.0, 2.2), (4.0, 4.6), (8.0, 9.5)];
        let law = ScalabilityLaw::fit(&rising).expect("four points");
        assert_eq!((law.sigma, law.kappa), (0.0, 0.0), "{law:?}");
        assert!(law.worst_error > 0.05);
        assert_eq!(ScalabilityLaw::fit(&rising[..2]), None);
        assert_eq!(ScalabilityLaw::fit(&[(1.0, 1.0), (2.0, 0.0), (4.0, 2.0)]), None);
    }
}
