//! Statistics of repeated measurements.
//!
//! The arithmetic that turns a few samples into "mean ± half-width". Samples are few (3 to 30), so the normal
//! distribution is never used: intervals are Student's t with n - 1 degrees of freedom, as in Nahum et al. 1994 (mean
//! of 10 runs with confidence intervals). Nothing here rounds, drops outliers or invents an interval where there is a
//! single sample.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// A mean with the half-width of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Arithmetic mean of the samples.
    pub mean: f64,
    /// Half-width of the 95 % confidence interval (Student's t); `None` from a single sample.
    pub ci95: Option<f64>,
}

impl Estimate {
    /// Estimate from samples; `None` where there are none.
    pub fn of(samples: &[f64]) -> Option<Estimate> {
        Some(Estimate { mean: mean(samples)?, ci95: ci95(samples) })
    }

    /// Half-width, counting a single sample's unknown interval as infinite.
    pub fn half_width(&self) -> f64 {
        self.ci95.unwrap_or(f64::INFINITY)
    }

    /// Whether the two intervals have a point in common. A single-sample estimate overlaps everything.
    pub fn overlaps(&self, other: &Estimate) -> bool {
        (self.mean - other.mean).abs() <= self.half_width() + other.half_width()
    }

    /// The mean of independent estimates, one of each load: half-widths add in quadrature.
    pub fn average(estimates: &[Estimate]) -> Option<Estimate> {
        let means: Vec<f64> = estimates.iter().map(|e| e.mean).collect();
        let squares = estimates.iter().map(|e| e.ci95.map(|c| c * c)).sum::<Option<f64>>();
        let n = estimates.len() as f64;
        Some(Estimate { mean: mean(&means)?, ci95: squares.map(|s| s.sqrt() / n) })
    }
}

/// Arithmetic mean; `None` of nothing.
pub fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// Sample standard deviation (divisor n - 1); `None` below two samples.
pub fn standard_deviation(samples: &[f64]) -> Option<f64> {
    let mean = mean(samples)?;
    let squares: f64 = samples.iter().map(|x| (x - mean) * (x - mean)).sum();
    (samples.len() > 1).then(|| (squares / (samples.len() - 1) as f64).sqrt())
}

/// Half-width of the 95 % confidence interval of the mean by Student's t; `None` below two samples.
pub fn ci95(samples: &[f64]) -> Option<f64> {
    let deviation = standard_deviation(samples)?;
    let n = samples.len();
    Some(t_quantile(0.975, n - 1) * deviation / (n as f64).sqrt())
}

/// Median; the mean of the middle two for an even count, `None` of nothing. NaN sorts last.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Quantile of Student's t distribution: the `t` with P(T <= t) = `p`, for 0.5 <= `p` < 1.
///
/// # Panics
/// If `degrees` is 0 or `p` lies outside that range.
pub fn t_quantile(p: f64, degrees: usize) -> f64 {
    assert!(degrees > 0, "Student's t needs at least one degree of freedom");
    assert!((0.5..1.0).contains(&p), "the quantile is for the upper half: 0.5 <= p < 1");
    let central = 2.0 * p - 1.0;
    let (mut low, mut high) = (0.0, 1.0);
    while t_central(high, degrees) < central {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if t_central(middle, degrees) < central { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// P(|T| <= t) for a whole number of degrees of freedom: the finite series of Abramowitz and Stegun 26.7.3 and 26.7.4,
/// exact and short for the few degrees of freedom that benchmarks have.
fn t_central(t: f64, degrees: usize) -> f64 {
    let v = degrees as f64;
    let theta = (t / v.sqrt()).atan();
    let (sin, cos) = theta.sin_cos();
    let odd = degrees % 2 == 1;
    let mut term = if odd { cos } else { 1.0 };
    let mut sum = if degrees == 1 { 0.0 } else { term };
    let mut k = if odd { 3 } else { 2 };
    while k + 2 <= degrees {
        term *= cos * cos * (k - 1) as f64 / k as f64;
        sum += term;
        k += 2;
    }
    if odd { 2.0 / PI * (theta + sin * sum) } else { sin * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64, within: f64) {
        assert!((left - right).abs() <= within, "{left} is not within {within} of {right}");
    }

    #[test]
    fn t_quantiles_agree_with_printed_tables() {
        let table = [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (9, 2.2622), (10, 2.2281)];
        for (degrees, t) in table.into_iter().chain([(29, 2.0452), (120, 1.9799)]) {
            close(t_quantile(0.975, degrees), t, 5e-5);
        }
        close(t_quantile(0.95, 6), 1.9432, 5e-5);
        close(t_quantile(0.995, 7), 3.4995, 5e-5);
        close(t_quantile(0.5, 3), 0.0, 1e-9);
    }

    #[test]
    fn interval_of_known_samples() {
        let samples = [9.0, 10.0, 11.0, 10.0];
        let estimate = Estimate::of(&samples).unwrap();
        close(estimate.mean, 10.0, 1e-12);
        close(standard_deviation(&samples).unwrap(), (2.0f64 / 3.0).sqrt(), 1e-12);
        close(estimate.ci95.unwrap(), 3.182_446 * (2.0f64 / 3.0).sqrt() / 2.0, 1e-5);
    }

    #[test]
    fn one_sample_has_no_interval_and_none_has_no_mean() {
        assert_eq!(Estimate::of(&[4.0]), Some(Estimate { mean: 4.0, ci95: None }));
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!((median(&[]), standard_deviation(&[1.0])), (None, None));
    }

    #[test]
    fn overlap_is_symmetric_and_unknown_intervals_overlap() {
        let narrow = Estimate { mean: 10.0, ci95: Some(0.5) };
        let wide = Estimate { mean: 12.0, ci95: Some(1.6) };
        let far = Estimate { mean: 14.0, ci95: Some(0.1) };
        let single = Estimate { mean: 99.0, ci95: None };
        assert!(narrow.overlaps(&wide) && wide.overlaps(&narrow));
        assert!(!narrow.overlaps(&far) && !far.overlaps(&narrow));
        assert!(narrow.overlaps(&single) && single.overlaps(&narrow));
    }

    #[test]
    fn average_adds_half_widths_in_quadrature() {
        let both = [Estimate { mean: 10.0, ci95: Some(3.0) }, Estimate { mean: 20.0, ci95: Some(4.0) }];
        let average = Estimate::average(&both).unwrap();
        close(average.mean, 15.0, 1e-12);
        close(average.ci95.unwrap(), 2.5, 1e-12);
        let unknown = [both[0], Estimate { mean: 1.0, ci95: None }];
        assert_eq!(Estimate::average(&unknown).unwrap().ci95, None);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
