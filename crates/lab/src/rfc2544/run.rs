//! All bridges, numbers of workers, frame sizes and repetitions.
//!
//! Every bridge is started before the first trial and runs until the end; it sleeps between its turns. In each
//! repetition and for each size all bridges are measured one after another, in an order that rotates from repetition to
//! repetition. So a disturbance of the machine affects all of them, and ratios are between neighbours in time.

use std::collections::BTreeMap;
use std::io;

use serde_json::{Map, Value, json};
use switch::{BridgeExclusion, Work};

use super::bench::{Bench, BenchConfig, Between, BridgeBench};
use super::document::{FlushFigures, LatencyFigures, LossPoint, Rfc2544Results, Rfc2544Row};
use super::line::{Buffers, Offer, PORTS, Pace, TrialCount};
use super::method::{Limits, LossAt, percentile};
use super::network::NetworkBench;
use crate::machine::Probe;
use crate::result::Series;
use crate::stats::Estimate;

/// The sizes of RFC 2544, section 9.1, for Ethernet.
pub const RFC_SIZES: [u32; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
/// The sizes of the paper's tables 3 and 4 (Nakahara 2015).
pub const PAPER_SIZES: [u32; 11] = [74, 128, 192, 256, 384, 512, 768, 1024, 1280, 1408, 1518];

/// Which tests are run. Throughput always is, because the others build on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tests {
    /// Frame loss rate.
    pub loss: bool,
    /// Back-to-back frames.
    pub back_to_back: bool,
    /// Latency.
    pub latency: bool,
    /// A flush of the forwarding database under traffic, which is not of the RFC.
    pub flush: bool,
}

/// What the bridges forward between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Devices in memory, which the bridge's workers poll.
    Memory,
    /// Interfaces of the kernel: TAP for Heddle's bridges, veth for the kernel's. The thread that calls [`run`] must be in a
    /// network namespace for the run ([`super::wires::enter_namespace`]).
    Tap,
}

impl Over {
    /// Its name on the command line and in documents.
    pub fn name(self) -> &'static str {
        match self {
            Over::Memory => "memory",
            Over::Tap => "tap",
        }
    }

    fn generator(self) -> &'static str {
        match self {
            Over::Memory => "in memory, polled by the bridge's workers",
            Over::Tap => "packet sockets at the kernel's interfaces, one thread",
        }
    }
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Rfc2544Options {
    /// What the bridges forward between.
    pub over: Over,
    /// The bridges to test; ratios are relative to the first.
    pub bridges: Vec<Between>,
    /// Numbers of workers. `generic` has one, and is tested once; over TAP each has one.
    pub workers: Vec<u32>,
    /// Lengths of frames with their check sequences.
    pub sizes: Vec<u32>,
    /// The tests.
    pub tests: Tests,
    /// Their precision.
    pub limits: Limits,
    /// Number of repetitions, at least 1.
    pub repetitions: u32,
    /// Frames that a receive ring holds.
    pub ring: u32,
    /// Stations behind each port.
    pub stations: u32,
    /// How frames come into being.
    pub buffers: Buffers,
    /// Work per interrupt; `None`: the default of the exclusion.
    pub work: Option<Work>,
}

/// Progress of a run.
#[derive(Clone, Debug)]
pub struct Rfc2544Progress {
    /// Measurements done, and of how many.
    pub done: (usize, usize),
    /// The current measurement.
    pub doing: String,
}

/// The samples of a row.
#[derive(Default)]
struct Samples {
    throughput: Vec<f64>,
    overload: Vec<f64>,
    loss: Vec<LossAt>,
    bursts: Vec<f64>,
    latency: [Vec<f64>; 3],
    flush: [Vec<f64>; 3],
    flushed: u64,
    out_of_order: u64,
    repeated: u64,
}

/// Runs all measurements.
pub fn run(options: &Rfc2544Options, progress: &mut dyn FnMut(Rfc2544Progress)) -> Rfc2544Results {
    let probe = Probe::start();
    let mut not_measured = Vec::new();
    let mut benches: Vec<Box<dyn Bench>> = Vec::new();
    for (number, config) in options.configs().into_iter().enumerate() {
        match options.start(number, config) {
            Ok(bench) => benches.push(bench),
            Err(error) => {
                not_measured.push(format!("{} with {} workers: {error}", config.between.name(), config.workers));
            }
        }
    }
    let mut samples: BTreeMap<(usize, u32), Samples> = BTreeMap::new();
    let total = options.repetitions as usize * options.sizes.len() * benches.len();
    let mut done = 0;
    for repetition in 0..options.repetitions {
        for &size in &options.sizes {
            for turn in 0..benches.len() {
                let at = (turn + repetition as usize) % benches.len();
                let bench = &mut *benches[at];
                let name = format!("{}, {} workers", bench.between().name(), bench.workers());
                progress(Rfc2544Progress { done: (done, total), doing: format!("{name}, {size} bytes") });
                done += 1;
                let of_row = samples.entry((at, size)).or_default();
                if let Err(error) = options.measure(bench, size, of_row) {
                    not_measured.push(format!("{name}, {size} bytes, repetition {}: {error}", repetition + 1));
                }
            }
        }
    }
    let rows = rows(options, &benches, &samples);
    drop(benches);
    let mut results = Rfc2544Results::new(probe.finish(), options.parameters(), rows);
    results.not_measured = not_measured;
    results
}

impl Rfc2544Options {
    fn start(&self, number: usize, config: BenchConfig) -> io::Result<Box<dyn Bench>> {
        let longest = self.sizes.iter().copied().max().unwrap_or_default() as usize;
        Ok(match self.over {
            Over::Memory => Box::new(BridgeBench::start(config)?),
            Over::Tap => Box::new(NetworkBench::start(config, number, longest)?),
        })
    }

    fn configs(&self) -> Vec<BenchConfig> {
        let mut configs = Vec::new();
        for &between in &self.bridges {
            for &workers in &self.workers {
                let one_thread = between == Between::Bridge(BridgeExclusion::Generic);
                let workers = if one_thread { 1 } else { workers as usize };
                let (ring, stations) = (self.ring as usize, self.stations as usize);
                let config = BenchConfig { between, workers, work: self.work, ring, stations, buffers: self.buffers };
                let known = |other: &BenchConfig| other.between == between && other.workers == workers;
                if !configs.iter().any(known) {
                    configs.push(config);
                }
            }
        }
        configs
    }

    fn measure(&self, bench: &mut dyn Bench, size: u32, samples: &mut Samples) -> io::Result<()> {
        let (limits, bytes) = (&self.limits, size as usize);
        let found = limits.throughput(bench, bytes)?;
        samples.throughput.push(found.rate * PORTS as f64);
        samples.overload.push(found.overload_total);
        samples.out_of_order += found.trial.out_of_order;
        samples.repeated += u64::from(found.repeated);
        if self.tests.loss && samples.loss.is_empty() {
            samples.loss = limits.loss_rates(bench, bytes, found.highest)?;
        }
        if self.tests.back_to_back {
            samples.bursts.push(limits.back_to_back(bench, bytes)? as f64);
        }
        if self.tests.flush && found.rate > 0.0 {
            self.measure_flush(bench, bytes, found.rate / 2.0, samples)?;
        }
        if self.tests.latency && found.rate > 0.0 {
            let latencies = limits.latency(bench, bytes, found.rate)?.latencies;
            for (series, percent) in samples.latency.iter_mut().zip([50, 99, 100]) {
                series.extend(percentile(&latencies, percent).map(|ns| ns as f64 * 1e-3));
            }
        }
        Ok(())
    }

    fn measure_flush(&self, bench: &mut dyn Bench, bytes: usize, rate: f64, samples: &mut Samples) -> io::Result<()> {
        let frames = ((rate * self.limits.trial_s) as u64).max(1);
        let offer = Offer { all_stamped: true, ..Offer::new(bytes, frames, Pace::At(rate)) };
        let without = bench.trial(&offer)?;
        let Some(with) = bench.flushed_trial(&offer)? else { return Ok(()) };
        let longest = |count: &TrialCount| count.latencies.last().map(|ns| *ns as f64 * 1e-3);
        samples.flushed = with.addresses as u64;
        samples.flush[0].push(with.took.as_secs_f64() * 1e3);
        samples.flush[1].extend(longest(&without));
        samples.flush[2].extend(longest(&with.count));
        Ok(())
    }

    fn parameters(&self) -> Map<String, Value> {
        let Limits { trial_s, resolution, attempts, line_bits, burst_s } = self.limits;
        let all = json!({
            "line_gbps": line_bits.map(|bits| bits * 1e-9), "trial_ms": trial_s * 1e3, "resolution_percent": resolution * 100.0,
            "longest_burst_s": line_bits.map(|_| burst_s),
            "attempts": attempts, "repetitions": self.repetitions, "ring_frames": self.ring,
            "stations_behind_each_port": self.stations, "ports": PORTS, "directions": "both",
            "buffers": match self.buffers { Buffers::Copied => "copied", Buffers::Passed => "passed" },
            "work_per_interrupt": match self.work {
                None => json!("usual"),
                Some(Work::Drain) => json!("drain"),
                Some(Work::Frames(frames)) => json!(frames),
            },
            "frame_bytes": self.sizes, "over": self.over.name(), "generator": self.over.generator(),
        });
        match all {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }
}

fn rows(
    options: &Rfc2544Options,
    benches: &[Box<dyn Bench>],
    samples: &BTreeMap<(usize, u32), Samples>,
) -> Vec<Rfc2544Row> {
    let mut rows = Vec::new();
    for (at, bench) in benches.iter().enumerate() {
        let of_one = benches.iter().position(|one| one.between() == bench.between() && one.workers() == 1);
        for &size in &options.sizes {
            let of = |at: usize| samples.get(&(at, size));
            let Some(ours) = of(at) else { continue };
            let Some(row) = row(options, &**bench, size, ours) else { continue };
            let ratio_to = |other: Option<usize>| {
                let other = of(other.filter(|other| *other != at)?)?;
                ratio(&ours.throughput, &other.throughput)
            };
            rows.push(Rfc2544Row { ratio_to_first: ratio_to(Some(0)), ratio_to_one_worker: ratio_to(of_one), ..row });
        }
    }
    rows
}

fn row(options: &Rfc2544Options, bench: &dyn Bench, size: u32, samples: &Samples) -> Option<Rfc2544Row> {
    let throughput_fps = Series::of(samples.throughput.clone())?;
    let line = options.limits.line_rate(size as usize).map(|rate| rate * PORTS as f64);
    let total = |at: &LossAt| LossPoint { offered_fps: at.rate * PORTS as f64, loss_percent: at.loss * 100.0 };
    let [median, p99, longest] = samples.latency.clone().map(Series::of);
    let [took, without, with] = samples.flush.clone().map(Series::of);
    let flush = || {
        let (took_ms, longest_without_us, longest_with_us) = (took?, without?, with?);
        Some(FlushFigures { addresses: samples.flushed, took_ms, longest_without_us, longest_with_us })
    };
    let latency = || Some(LatencyFigures { median_us: median?, p99_us: p99?, longest_us: longest? });
    Some(Rfc2544Row {
        bridge: bench.between().name().to_owned(),
        workers: bench.workers() as u32,
        frame_bytes: size,
        throughput_mbps: throughput_fps.mean * f64::from(size) * 8e-6,
        line_percent: line.map(|line| 100.0 * throughput_fps.mean / line),
        throughput_fps,
        overload_fps: Series::of(samples.overload.clone())?,
        ratio_to_first: None,
        ratio_to_one_worker: None,
        loss: samples.loss.iter().map(total).collect(),
        back_to_back_frames: Series::of(samples.bursts.clone()),
        latency: latency(),
        flush: flush(),
        out_of_order: samples.out_of_order,
        repeated_trials: samples.repeated,
    })
}

/// The mean of ratios of samples of the same repetition.
fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Estimate> {
    let both = ours.iter().zip(theirs).filter(|(_, theirs)| **theirs > 0.0);
    Estimate::of(&both.map(|(ours, theirs)| ours / theirs).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Rfc2544Options {
        Rfc2544Options {
            over: Over::Memory,
            bridges: [BridgeExclusion::Generic, BridgeExclusion::Rcu].map(Between::Bridge).to_vec(),
            workers: vec![1, 2],
            sizes: vec![64],
            tests: Tests { loss: true, back_to_back: true, latency: true, flush: false },
            // A line so slow that any machine keeps up.
            limits: Limits { trial_s: 0.005, resolution: 0.2, attempts: 3, line_bits: Some(1e7), burst_s: 0.01 },
            repetitions: 2,
            ring: 256,
            stations: 4,
            buffers: Buffers::Copied,
            work: None,
        }
    }

    #[test]
    fn every_bridge_has_a_row_with_every_test() {
        let mut seen = Vec::new();
        let results = run(&options(), &mut |progress| seen.push(progress.done));
        let names: Vec<String> = results.rows.iter().map(Rfc2544Row::contender).collect();
        assert_eq!(names, ["generic, 1 worker", "rcu, 1 worker", "rcu, 2 workers"], "{:?}", results.not_measured);
        assert_eq!((seen.len(), seen[5]), (6, (5, 6)));
        for row in &results.rows {
            assert_eq!(row.throughput_fps.samples.len(), 2);
            assert!(row.latency.is_some() && row.back_to_back_frames.is_some() && !row.loss.is_empty());
            assert_eq!(row.out_of_order, 0);
            assert!(row.line_percent.is_some_and(|percent| percent <= 100.1));
        }
        let again: Rfc2544Results = serde_json::from_str(&results.to_json()).expect("it is its own form");
        assert_eq!(again.rows, results.rows);
    }

    #[test]
    fn ratios_are_of_one_repetition() {
        let estimate = ratio(&[2.0, 4.0, 9.0], &[1.0, 2.0, 0.0]).expect("two");
        assert_eq!((estimate.mean, estimate.ci95), (2.0, Some(0.0)));
    }
}
