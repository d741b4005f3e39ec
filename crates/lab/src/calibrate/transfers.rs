//! The cost of sharing, from two runs on several CPUs.
//!
//! A chain of lines that another CPU has changed says what one transfer takes. What it costs in a run also depends on
//! how many are under way at once, in both directions, and on what the processor does meanwhile. So two numbers are fitted:
//! the cost of a line to what requests and responses gain on several CPUs, and that of the lines behind it, which are
//! payload, to what bulk data gains. Both start from the measured costs and stay within bounds around them.

use vsmp::Costs;
use vsmp::workload::pair::{Load, Pair};

use super::measured::{Relative, relative};
use super::{Effort, Steps, on_the_model};

/// The fitted costs, as factors of the measured ones, with the runs.
#[derive(Clone, Debug)]
pub struct Transfers {
    /// Of a line that another CPU has changed, and of a write to one that it has, too.
    pub line: f64,
    /// Of a line that follows such a line.
    pub following: f64,
    /// The runs of the fit set on the machine.
    pub runs: Vec<(Pair, Relative)>,
}

/// The least and the greatest factor.
const BOUNDS: [f64; 2] = [0.25, 32.0];
/// Halvings of the (logarithmic) interval, and how often the two factors are fitted in turn.
const HALVINGS: usize = 7;
const TURNS: usize = 2;

impl Transfers {
    /// Measures the fit set on several CPUs, fits, and changes `costs`. `None`: no window of a run was without an interruption.
    pub fn measure(costs: &mut Costs, stride: usize, effort: &Effort) -> Option<Transfers> {
        let on_several = |pair: Pair| Pair { cpus: effort.cpus, stride, ..pair };
        let set: Vec<Pair> = Steps::fit_set().into_iter().map(on_several).collect();
        // Two runs decide: they have more rounds than those that are predicted.
        let longer = Effort { rounds: 3 * effort.rounds, ..*effort };
        let runs: Option<Vec<_>> = set.iter().map(|pair| Some((pair.clone(), relative(pair, &longer)?))).collect();
        let runs = runs?;
        let base = costs.clone();
        let mut factors = [1.0; 2];
        for turn in 0..2 * TURNS {
            let which = turn % 2;
            let fits = |(pair, _): &&(Pair, Relative)| (pair.load == Load::Bulk) == (which == 1);
            let Some((pair, measured)) = runs.iter().find(fits) else { continue };
            factors[which] = search(|factor| {
                let mut tried = factors;
                tried[which] = factor;
                efficiency(pair, &scaled(&base, tried), effort).is_some_and(|model| model > measured.efficiency)
            });
        }
        *costs = scaled(&base, factors);
        let [line, following] = factors;
        Some(Transfers { line, following, runs })
    }
}

/// The factor above which the model gains no longer too much. Dearer sharing gains less.
fn search(gains_too_much: impl Fn(f64) -> bool) -> f64 {
    let [mut low, mut high] = BOUNDS;
    for _ in 0..HALVINGS {
        let middle = (low * high).sqrt();
        if gains_too_much(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low * high).sqrt()
}

fn scaled(base: &Costs, [line, following]: [f64; 2]) -> Costs {
    let times = |cycles: u64, factor: f64| (cycles as f64 * factor).round() as u64;
    Costs {
        near: times(base.near, line),
        far: times(base.far, line),
        upgrade: times(base.upgrade, line),
        // In percent of the cost of the first line, which has a factor of its own.
        following: times(base.following, following / line).min(100),
        ..base.clone()
    }
}

/// What several CPUs gain on the model, of what work that shares nothing gains.
pub fn efficiency(pair: &Pair, costs: &Costs, effort: &Effort) -> Option<f64> {
    let one = on_the_model(&Pair { cpus: 1, ..pair.clone() }, costs, effort)?.0.median;
    let several = on_the_model(pair, costs, effort)?.0.median;
    let sharing_nothing = pair.cpus as f64 * costs.together as f64 / 100.0;
    Some(several / one / sharing_nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_at_the_factor_that_separates() {
        for wanted in [0.3, 1.0, 5.0] {
            let found = search(|factor| factor < wanted);
            assert!((found / wanted).ln().abs() < 0.06, "{found} for {wanted}");
        }
        assert!(search(|_| true) > 30.0 && search(|_| false) < 0.3);
    }

    #[test]
    fn the_lines_behind_have_their_own_factor() {
        let base = Costs { near: 200, far: 300, upgrade: 50, following: 10, ..Costs::opteron_275() };
        let costs = scaled(&base, [2.0, 3.0]);
        // 20 cycles before, 60 now: 15 percent of 400.
        assert_eq!((costs.near, costs.far, costs.upgrade, costs.following), (400, 600, 100, 15));
    }
}
