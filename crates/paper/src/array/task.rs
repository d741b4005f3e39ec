//! The run of a task, on whatever node it comes to.
//!
//! A task with a result ends at once. One that is stopped or fails leaves no result, so its number stays missing.

use std::sync::atomic::AtomicBool;

use lab::machine::{COMMIT, Machine, Probe};

use super::{Array, ArrayError, LoadOfHost, Work};
use crate::data::Paper;
use crate::plan::{Effort, HostLoad, Plan, load_of_host};
use crate::point::{Point, Sample};
use crate::run::Measure;
use crate::store::Store;
use crate::{host, run};

/// How the run of a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its result was there.
    There,
    /// It was measured: samples.
    Measured(usize),
    /// A signal ended it, and there is no result.
    Stopped,
}

/// Runs a task; `measure` measures a simulated point. When `stop` is set, a load of the host ends without a result.
///
/// # Errors
/// There is no such task, another commit planned it, the measurement failed, or the result cannot be written.
pub fn run(array: &Array, number: usize, measure: &Measure<'_>, stop: &AtomicBool) -> Result<Ended, ArrayError> {
    let task = array.task(number)?;
    // A damaged result is measured again, and replaced.
    if matches!(array.result(number), Ok(Some(_))) {
        return Ok(Ended::There);
    }
    if task.commit != COMMIT {
        return Err(ArrayError::new(format!(
            "task {number} was planned by commit {}, and this program is {COMMIT}: run the program that planned the array, or \
             plan one of this program in another directory",
            task.commit
        )));
    }
    let samples = match &task.work {
        Work::Simulated(point) => measure(point).map(|sample| sample.map(|sample| vec![sample])),
        Work::Host(load) => measure_load(load, stop),
    };
    let samples = samples.map_err(|reason| ArrayError::new(format!("task {number}, {}: {reason}", task.work)))?;
    let Some(samples) = samples else { return Ok(Ended::Stopped) };
    // Another run of this task may have been faster. Both are whole; the first is kept.
    if matches!(array.result(number), Ok(Some(_))) {
        return Ok(Ended::There);
    }
    let count = samples.len();
    array.publish(number, samples).map_err(|error| ArrayError::file(&array.path_of_result(number), &error))?;
    Ok(Ended::Measured(count))
}

impl LoadOfHost {
    /// The load with its subjects on a host.
    ///
    /// # Errors
    /// This build has no such load.
    pub fn on(&self, host: &Machine) -> Result<HostLoad, String> {
        let papers = Paper::all();
        let effort = Effort { full: self.full, seeds: self.last };
        let paper = papers.iter().find(|paper| paper.id == self.paper);
        let load = paper.and_then(|paper| load_of_host(paper, self.load, effort, host).transpose()).transpose();
        let load = load.map_err(|error| error.to_string())?;
        load.filter(|load| !load.points.is_empty())
            .ok_or_else(|| format!("a host with {} CPUs has no subject of this load", host.cores))
    }
}

/// Measures the rounds of a load. `None`: stopped.
fn measure_load(load: &LoadOfHost, stop: &AtomicBool) -> Result<Option<Vec<Sample>>, String> {
    let rounds = load.last - load.first + 1;
    let plan = Plan { host: vec![load.on(&Probe::start().finish())?], rounds, ..Plan::default() };
    let mut store = Store::in_memory();
    let outcome: run::Outcome =
        host::measure(&plan, &mut store, stop, &mut |_| {}).map_err(|error| error.to_string())?;
    if let Some((what, reason)) = outcome.failed.first() {
        return Err(format!("{what}: {reason}"));
    }
    let numbered = |sample: &Sample| {
        let seed = sample.point.seed + load.first - 1;
        Sample { point: Point { seed, ..sample.point.clone() }, ..sample.clone() }
    };
    Ok((!outcome.stopped).then(|| store.samples().iter().map(numbered).collect()))
}
