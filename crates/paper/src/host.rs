//! A load on this host: all subjects of a paper by turns, in the same seconds, with the lab's benchmark.
//!
//! Each round begins with another subject ([`lab::sampling`] says why), and the samples of a round go into the store
//! together. So a pair of samples with one number of the round is a pair of neighbours in time.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use lab::machine::{Machine, Probe};
use lab::sampling::{Contender, Slice};
use lab::workload::{Bench, Params, SendMode};
use serde_json::json;

use crate::plan::{HostLoad, Plan, warm_up};
use crate::point::{Point, Sample};
use crate::run::{Outcome, Progress};
use crate::store::{Store, StoreError};

/// Socket buffers, in bytes, as in the paper.
const BUFFER: u32 = 256 << 10;

/// Measures the loads of a plan that are missing.
///
/// # Errors
/// The store cannot be written. Earlier samples are kept.
pub fn measure(
    plan: &Plan,
    store: &mut Store,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, StoreError> {
    let loads = plan.missing(store).host;
    let mut outcome = Outcome::default();
    for (index, load) in loads.iter().enumerate() {
        let mut tell = |doing: String, store: &Store| {
            let rest = Plan { host: loads[index..].to_vec(), rounds: plan.rounds, ..Plan::default() };
            progress(&Progress { doing, done: index, of: loads.len(), left: rest.estimate(store, 1) });
        };
        if stop.load(Relaxed) {
            outcome.stopped = true;
            break;
        }
        outcome = outcome.and(one_load(load, plan.rounds, store, stop, &mut tell)?);
    }
    Ok(outcome)
}

fn one_load(
    load: &HostLoad,
    rounds: u64,
    store: &mut Store,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(String, &Store),
) -> Result<Outcome, StoreError> {
    let mut outcome = Outcome::default();
    let connections = load.connections();
    let mut contenders: Vec<(Point, Bench)> = Vec::new();
    for point in &load.points {
        tell(format!("opening {}, {connections} connections", point.arch), store);
        match params(point).and_then(|params| Bench::open(&params).map_err(|error| error.to_string())) {
            Ok(bench) => contenders.push((point.clone(), bench)),
            Err(reason) => outcome.failed.push((format!("{} on this host", point.arch), reason)),
        }
    }
    let warming = warm_up(connections);
    let mut number = load.last(store);
    let mut done = load.rounds(store);
    for turn in 0.. {
        if done >= rounds || contenders.is_empty() {
            break;
        }
        if stop.load(Relaxed) {
            outcome.stopped = true;
            break;
        }
        let warm = turn < warming;
        let what = if warm { "warming up".to_owned() } else { format!("round {} of {rounds}", done + 1) };
        tell(format!("{connections} connections, {what}"), store);
        // The store is in the order of measurement; the first subject changes from round to round.
        contenders.rotate_left(usize::from(turn > 0));
        let round = one_round(&mut contenders, number + 1, &mut outcome);
        if !warm && !round.is_empty() {
            (number, done) = (number + 1, done + 1);
            outcome.measured += round.len();
            store.append(round)?;
        }
    }
    Ok(outcome)
}

/// A slice of each. One that fails is left out from now on.
fn one_round(contenders: &mut Vec<(Point, Bench)>, number: u64, outcome: &mut Outcome) -> Vec<Sample> {
    let mut round = Vec::new();
    contenders.retain_mut(|(point, bench)| {
        let (probe, began) = (Probe::start(), Instant::now());
        match bench.run_slice(std::time::Duration::from_millis(point.slice_ms)) {
            Ok(slice) => {
                round.push(sample(Point { seed: number, ..point.clone() }, &slice, began, probe.finish()));
                true
            }
            Err(error) => {
                outcome.failed.push((format!("{} on this host", point.arch), error.to_string()));
                false
            }
        }
    });
    round
}

fn params(point: &Point) -> Result<Params, String> {
    let arch = point.arch.parse().map_err(|error| format!("{error}"))?;
    let lock = point.lock.parse().map_err(|error| format!("{error}"))?;
    let (connections, threads, send) = (point.connections, point.cpus, SendMode::Shared);
    Ok(Params { lock, connections, threads, send, buffer: Some(BUFFER), ..Params::new(arch) })
}

fn sample(point: Point, slice: &Slice, began: Instant, host: Machine) -> Sample {
    let mut sample = Sample::now(point, began.elapsed().as_secs_f64(), host);
    let mut value = |name: &str, number: f64| _ = sample.values.insert(name.to_owned(), number);
    value("throughput_mbps", 1e3 * slice.gbps());
    value("cpu_s_per_gb", slice.cpu_s_per_gb());
    value("switches_per_gb", slice.switches_per_gb());
    value("handoffs_per_kb", slice.exact.handoffs as f64 / (slice.bytes as f64 / 1024.0).max(1.0));
    for lock in slice.exact.locks.iter().filter(|lock| lock.acquired > 0) {
        value(&format!("failures_percent.{}", lock.class), 100.0 * lock.first_try_failed as f64 / lock.acquired as f64);
    }
    let parameters = json!({
        "workload": "bulk", "send": "zero-copy", "buffer_bytes": BUFFER, "mtu": 1500, "message_bytes": 64 << 10,
        "segmentation_offload": false, "ipv6": false, "checksums": "computed and verified in software",
        "device": "mem (two linked ports in this process)",
    });
    if let serde_json::Value::Object(parameters) = parameters {
        sample.parameters = parameters;
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Effort;
    use crate::{Paper, data::Selected};

    /// One small load for real: two rounds, then none, then one more.
    #[test]
    fn a_load_of_this_host_is_measured_once() {
        let directory = tempfile::tempdir().unwrap();
        let papers = Paper::all();
        let host = Probe::start().finish();
        let selected = [Selected { paper: &papers[0], figures: vec![papers[0].figure("fig2").unwrap()] }];
        let whole =
            Plan::new(&selected, &[crate::point::Place::Host], Effort { full: false, seeds: 2 }, &host).unwrap();
        let mut load = whole.host[0].clone();
        load.points.truncate(2);
        load.points.iter_mut().for_each(|point| point.slice_ms = 5);
        let plan = |rounds| Plan { host: vec![load.clone()], rounds, ..Plan::default() };
        let mut store = Store::open(directory.path()).unwrap();
        let mut measured = |rounds| measure(&plan(rounds), &mut store, &AtomicBool::new(false), &mut |_| {}).unwrap();
        let first = measured(2);
        assert_eq!((first.measured, first.failed.len(), first.stopped), (4, 0, false), "{first:?}");
        assert_eq!(measured(2).measured, 0);
        assert_eq!(measured(3).measured, 2);
        let stopped = measure(&plan(9), &mut store, &AtomicBool::new(true), &mut |_| {}).unwrap();
        assert!(stopped.stopped && stopped.measured == 0);
        // A slice of five milliseconds may be over before a busy host has moved anything.
        assert!(store.samples().iter().all(|sample| sample.values["throughput_mbps"].is_finite()));
        assert_eq!(load.rounds(&store), 3);
    }
}
