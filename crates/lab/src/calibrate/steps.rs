//! The cost of each step of plain work, from the rates of one CPU.
//!
//! Time stamps at the steps ([`Timed`]) say how the time of a run divides between them, approximately. The rate of a run
//! without time stamps says how much it is in all, exactly; and the model says how much of that it charges for something
//! else (atomics, cache lines, payload). The costs that are nearest to the time stamps and reproduce the rates are the
//! calibrated ones. The runs are the fit set. No cell looks a connection up in a table that threads share, so the cost of that is
//! what one more run needs besides, in which each event begins so. Every other run is a prediction.

use stack::Architecture;
use sync::{Real, Step};
use vsmp::Costs;
use vsmp::workload::pair::{Load, Pair};

use super::sleeps::in_cycles;
use super::timed::{StepTimes, Timed};
use super::{Effort, measured::relative, on_the_model};

const STEPS: usize = Step::ALL.len();

/// A run of the fit set: on the machine, for one byte or one response.
#[derive(Clone, Debug)]
struct Observation {
    /// Steps.
    steps: [f64; STEPS],
    /// Nanoseconds in all.
    total: f64,
    /// Nanoseconds of plain work: what the model does not charge for anything else.
    work: f64,
}

/// The calibrated steps.
#[derive(Clone, Debug)]
pub struct Steps {
    /// Nanoseconds of each step.
    pub nanos: [f64; STEPS],
    /// By time stamps alone.
    pub stamped: StepTimes,
    /// The rates of the fit set: bytes or responses a second, on the machine and on the model.
    pub rates: Vec<(Pair, [f64; 2])>,
}

/// Weight of the relative distance to the time stamps, against that of the relative errors of the rates.
const WEIGHT: f64 = 0.003;
/// How often the model runs with better costs: the steps for a byte depend on them.
const TURNS: usize = 3;

impl Steps {
    /// The architecture of the fit set, and its loads.
    pub fn fit_set() -> Vec<Pair> {
        let arch = Architecture::named(include_str!("fit.txt").trim_end());
        [(64, Load::Bulk), (64, Load::Requests(64))]
            .map(|(connections, load)| Pair { connections, load, ..Pair::new(arch) })
            .into()
    }

    /// The run on one CPU that the cost of a look-up is fitted to.
    fn with_look_ups() -> Pair {
        let arch = Architecture::named(include_str!("look_ups.txt").trim_end());
        Pair { connections: 64, load: Load::Requests(64), ..Pair::new(arch) }
    }

    /// Measures, with `costs` for everything but the steps, and puts the steps into them. The floor of one CPU, segments a
    /// second, is the speed of the machine. `None`: no window of a run was without an interruption.
    pub fn measure(costs: &mut Costs, floor: f64, effort: &Effort) -> Option<Steps> {
        let set = Steps::fit_set();
        let stamped = stamped(&set, effort);
        let real: Option<Vec<f64>> = set.iter().map(|pair| Some(relative(pair, effort)?.alone * floor)).collect();
        let real = real?;
        let mut nanos = stamped.nanos;
        let mut rates = Vec::new();
        for _ in 0..TURNS {
            put(costs, &nanos);
            let runs = set.iter().zip(&real).map(|(pair, real)| observe(pair, *real, costs, effort));
            let runs: Option<Vec<(Observation, f64)>> = runs.collect();
            let (observations, models): (Vec<Observation>, Vec<f64>) = runs?.into_iter().unzip();
            rates = set.iter().cloned().zip(real.iter().zip(models).map(|(real, model)| [*real, model])).collect();
            nanos = fit(&observations, scaled(&observations, &stamped.nanos));
        }
        put(costs, &nanos);
        let mut steps = Steps { nanos, stamped, rates };
        steps.measure_look_ups(costs, floor, effort)?;
        Some(steps)
    }

    /// The other steps have been measured, and are in `costs`.
    fn measure_look_ups(&mut self, costs: &mut Costs, floor: f64, effort: &Effort) -> Option<()> {
        let (pair, at) = (Steps::with_look_ups(), Step::LookUp as usize);
        let stamped = stamped(std::slice::from_ref(&pair), effort);
        (self.stamped.nanos[at], self.stamped.counts[at]) = (stamped.nanos[at], stamped.counts[at]);
        let real = relative(&pair, effort)?.alone * floor;
        let (run, _) = observe(&pair, real, costs, effort)?;
        self.nanos[at] = rest(&run, &self.nanos, at);
        put(costs, &self.nanos);
        let (_, model) = observe(&pair, real, costs, effort)?;
        self.rates.push((pair, [real, model]));
        Some(())
    }
}

/// The time stamps of runs, as many as [`Effort::rounds`] says.
fn stamped(set: &[Pair], effort: &Effort) -> StepTimes {
    let on_timed = |pair: &Pair| {
        let _ = Pair { time: effort.time, ..pair.clone() }.run_on::<Timed<Real>>();
    };
    Timed::<Real>::during(|| (0..effort.rounds).for_each(|_| set.iter().for_each(on_timed)))
}

/// The cost of a step that gives a run the right amount of work, if the others cost this. At least 0.
fn rest(run: &Observation, nanos: &[f64; STEPS], step: usize) -> f64 {
    let others: f64 = (0..STEPS).filter(|other| *other != step).map(|other| run.steps[other] * nanos[other]).sum();
    (run.work - others).max(0.0) / run.steps[step].max(f64::MIN_POSITIVE)
}

/// Sets the costs of the steps.
fn put(costs: &mut Costs, nanos: &[f64; STEPS]) {
    for (step, nanos) in nanos.iter().enumerate() {
        costs.work[step] = in_cycles(costs, *nanos);
    }
}

/// The machine's rate beside a run of the model with these costs.
fn observe(pair: &Pair, real: f64, costs: &Costs, effort: &Effort) -> Option<(Observation, f64)> {
    let (model, transferred, outcome) = on_the_model(pair, costs, effort)?;
    let progress = pair.load.progress(&transferred);
    let steps = outcome.account.steps.map(|count| count as f64 / progress.max(1) as f64);
    let of_model = 1e9 / model.median;
    let nanos = |step: usize| costs.work[step] as f64 * 1000.0 / costs.megahertz as f64;
    let charged: f64 = (0..STEPS).map(|step| steps[step] * nanos(step)).sum();
    let total = 1e9 / real;
    Some((Observation { steps, total, work: total - (of_model - charged) }, model.median))
}

/// Time stamps times the factor that gives all runs together the right amount of work.
fn scaled(observations: &[Observation], stamped: &[f64; STEPS]) -> [f64; STEPS] {
    // Relative to the total, or a load with large units would count alone.
    let stamp = |run: &Observation| (0..STEPS).map(|step| run.steps[step] * stamped[step]).sum::<f64>() / run.total;
    let by_stamps: f64 = observations.iter().map(stamp).sum();
    let by_rates: f64 = observations.iter().map(|run| run.work / run.total).sum();
    let factor = if by_stamps > 0.0 { (by_rates / by_stamps).max(0.0) } else { 1.0 };
    stamped.map(|nanos| nanos * factor)
}

/// The costs w that minimise the squares of the relative errors of the observations' work, and of the relative distances
/// to `prior`, with a small weight. Costs that would be negative are 0.
fn fit(observations: &[Observation], prior: [f64; STEPS]) -> [f64; STEPS] {
    // In units of the prior: x = w / prior, 1 where nothing is learned.
    let mut matrix = [[0.0; STEPS + 1]; STEPS];
    for (row, line) in matrix.iter_mut().enumerate() {
        line[row] = WEIGHT;
        line[STEPS] = WEIGHT;
        for run in observations {
            let share = |step: usize| run.steps[step] * prior[step] / run.total;
            (0..STEPS).for_each(|column| line[column] += share(row) * share(column));
            line[STEPS] += share(row) * run.work / run.total;
        }
    }
    let solved = solve(matrix);
    std::array::from_fn(|step| (solved[step] * prior[step]).max(0.0))
}

/// Gauss's elimination. The matrix is positive definite, so no pivot is 0.
fn solve(mut rows: [[f64; STEPS + 1]; STEPS]) -> [f64; STEPS] {
    for pivot in 0..STEPS {
        let top = rows[pivot];
        for line in rows.iter_mut().skip(pivot + 1) {
            let factor = line[pivot] / top[pivot];
            line.iter_mut().zip(top).for_each(|(value, above)| *value -= factor * above);
        }
    }
    let mut solution = [0.0; STEPS];
    for row in (0..STEPS).rev() {
        let known: f64 = (row + 1..STEPS).map(|column| rows[row][column] * solution[column]).sum();
        solution[row] = (rows[row][STEPS] - known) / rows[row][row];
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(steps: [f64; STEPS], costs: [f64; STEPS], other: f64) -> Observation {
        let work: f64 = steps.iter().zip(costs).map(|(count, cost)| count * cost).sum();
        Observation { steps, total: work + other, work }
    }

    #[test]
    fn costs_reproduce_the_rates_and_stay_near_the_time_stamps() {
        let truth = [50.0, 300.0, 400.0, 350.0, 100.0, 30.0, 20.0, 80.0, 60.0, 40.0];
        let bulk = observation([0.1, 1.5, 1.5, 1.5, 0.2, 0.0, 0.0, 0.1, 0.2, 0.0], truth, 500.0);
        let requests = observation([1.0, 2.0, 4.0, 2.0, 4.0, 0.0, 0.0, 1.0, 4.0, 0.0], truth, 300.0);
        let observations = [bulk, requests];
        // The time stamps are off by a quarter, and by another quarter for calls.
        let mut stamped = truth.map(|cost| cost * 1.25);
        stamped[4] *= 1.25;
        let costs = fit(&observations, scaled(&observations, &stamped));
        for run in &observations {
            let work: f64 = run.steps.iter().zip(costs).map(|(count, cost)| count * cost).sum();
            assert!((work / run.work - 1.0).abs() < 0.1, "{work} of {}: {costs:?}", run.work);
        }
        for (step, (cost, truth)) in costs.iter().zip(truth).enumerate() {
            assert!((cost / truth - 1.0).abs() < 0.3, "step {step}: {cost} of {truth}");
        }
    }

    #[test]
    fn a_look_up_costs_what_the_other_steps_leave() {
        let mut truth = [50.0; STEPS];
        truth[Step::LookUp as usize] = 37.0;
        let mut run = observation([2.0; STEPS], truth, 300.0);
        let cost = rest(&run, &truth, Step::LookUp as usize);
        assert!((cost - 37.0).abs() < 1e-9, "{cost}");
        run.work -= 2.0 * 50.0;
        assert_eq!(rest(&run, &truth, Step::LookUp as usize), 0.0, "the others cost too much");
    }

    #[test]
    fn a_step_that_no_run_makes_keeps_its_time_stamp() {
        let truth = [10.0; STEPS];
        let mut steps = [1.0; STEPS];
        steps[Step::Message as usize] = 0.0;
        let costs = fit(&[observation(steps, truth, 20.0)], [12.0; STEPS]);
        assert!((costs[Step::Message as usize] - 12.0).abs() < 1e-9, "{costs:?}");
        assert!((costs[0] - 10.0).abs() < 0.5, "{costs:?}");
    }
}
