//! Runs on the machine itself, relative to work that shares nothing.
//!
//! The CPUs of a shared or virtual machine change their speed for seconds at a time, without a pause that a thread could
//! notice: another guest uses the second half of a core. So each round measures the floor (copies and checksums, without
//! a protocol) right before and after the run, on the same CPUs, and only the rate relative to it counts.
//!
//! A hypervisor also moves CPUs to cores that share a cache and to others, within seconds, and a line then takes up to seven times
//! as long from one to another. A run counts only if it takes about as long before and after the run as when lines were measured.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use sync::{Platform, Real};
use vsmp::workload::pair::Pair;
use vsmp::workload::windows::{Rate, Windows};

use super::Effort;
use crate::distance::SameDistance;
use crate::workload::Floor;

/// Segments of the floor between two reports.
const REPORTED: u64 = 32;
/// Time of the floor in each round.
const FLOOR: Duration = Duration::from_millis(10);
/// A run on one CPU and on several, over all rounds.
#[derive(Clone, Copy, Debug)]
pub struct Relative {
    /// On one CPU, for each segment that the floor carries there.
    pub alone: f64,
    /// What several CPUs gain over one, of what work that shares nothing gains: 1 if the run scales as well.
    pub efficiency: f64,
    /// The ratio of several CPUs to one, without regard to the floor.
    pub ratio: f64,
    /// Windows that count.
    pub valid: usize,
}

/// The rate of this many threads that share nothing, in segments a second.
pub fn floor(cpus: usize, stride: usize) -> Option<Rate> {
    let barrier = Arc::new(Barrier::new(cpus));
    let start = Real::now();
    let threads: Vec<_> = (0..cpus)
        .map(|index| {
            let barrier = barrier.clone();
            thread::spawn(move || {
                let _ = Real::pin(index * stride);
                let (mut floor, mut windows) = (Floor::new(1448, 64), Windows::from(start));
                barrier.wait();
                let until = Real::now() + FLOOR.as_nanos() as u64;
                while Real::now() < until {
                    (0..REPORTED).for_each(|_| floor.segment());
                    windows.report(Real::now(), REPORTED);
                }
                windows
            })
        })
        .collect();
    let windows: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("it only computes")).collect();
    let sum = Windows::sum(&windows);
    Rate::of(&sum, 2)
}

/// The rate of a run, after a third of its time.
fn rate(pair: &Pair, effort: &Effort) -> Option<Rate> {
    let (_, windows) = Pair { time: effort.time, ..pair.clone() }.run_on::<Real>();
    Rate::of(&windows, windows.len() / 3)
}

fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied()
}

/// Runs on one CPU and on [`Pair::cpus`], alternately, in all rounds. `None`: no round was without an interruption, with the CPUs
/// as far apart as [`Effort::round_trip_ns`] says.
pub fn relative(pair: &Pair, effort: &Effort) -> Option<Relative> {
    let alone = Pair { cpus: 1, ..pair.clone() };
    let mut apart = effort.round_trip_ns.filter(|_| pair.cpus > 1).and_then(SameDistance::as_far_as);
    let round = |_| {
        if !apart.iter_mut().all(SameDistance::wait) {
            return None;
        }
        let floors = [floor(1, pair.stride)?, floor(pair.cpus, pair.stride)?];
        let rates = [rate(&alone, effort)?, rate(pair, effort)?];
        let gain = |of: [Rate; 2]| of[1].median / of[0].median;
        let efficiency = gain(rates) / gain(floors);
        if !apart.iter_mut().all(SameDistance::holds) {
            return None;
        }
        Some((rates[0].median / floors[0].median, efficiency, gain(rates), rates[0].valid.min(rates[1].valid)))
    };
    let rounds: Vec<_> = (0..effort.rounds).filter_map(round).collect();
    Some(Relative {
        alone: median(rounds.iter().map(|round| round.0).collect())?,
        efficiency: median(rounds.iter().map(|round| round.1).collect())?,
        ratio: median(rounds.iter().map(|round| round.2).collect())?,
        valid: rounds.iter().map(|round| round.3).sum(),
    })
}

/// What the speed of each of several CPUs is while all work and share nothing, of that of one alone: at most 1, with half
/// the distance of the quartiles of its rounds; and the floor of one CPU, in segments a second.
pub fn together(cpus: usize, stride: usize, effort: &Effort) -> Option<(Rate, f64)> {
    let round = |_| {
        let (one, all) = (floor(1, stride)?, floor(cpus, stride)?);
        Some((all.median / cpus as f64 / one.median, one.median, one.valid.min(all.valid)))
    };
    let rounds: Vec<_> = (0..4 * effort.rounds).filter_map(round).collect();
    let mut ratios: Vec<f64> = rounds.iter().map(|round| round.0).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |quarters: usize| ratios.get((ratios.len() * quarters / 4).min(ratios.len().saturating_sub(1))).copied();
    let valid = rounds.iter().map(|round| round.2).sum();
    let speed = Rate { median: at(2)?.min(1.0), spread: (at(3)? - at(1)?) / 2.0, valid };
    Some((speed, median(rounds.iter().map(|round| round.1).collect())?))
}
