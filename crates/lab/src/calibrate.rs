//! Calibration of the virtual multiprocessor on the machine that this process runs on.
//!
//! | step | file | measures |
//! |---|---|---|
//! | 1 | `lines` | cache lines, atomics, payload: on one CPU, and between two |
//! | 2 | `sleeps` | system calls, wake-ups, changes of threads |
//! | 3 | `measured` | how much slower each CPU is while others work, with nothing shared; and every run below |
//! | 4 | `steps` | the plain work of the stack, from time stamps (`timed`) and the rates of one CPU |
//! | 5 | `transfers` | what sharing costs, from two runs on several CPUs |
//! | 6 | `predict` | the rates of architectures, locks and loads that nothing was fitted to, beside the model's |
//!
//! The result is a preset of the simulator, in which each measured value has its uncertainty, and a list of predictions with
//! their errors: how far the model may be trusted on this machine.
//!
//! A machine with other work is usable if the work leaves gaps: only [windows](vsmp::workload::windows) count in which
//! no thread of a run lost its CPU, and their number is printed. What may never happen: a value in the preset that was
//! neither measured nor marked as assumed.

mod cost;
mod lines;
mod measured;
mod predict;
mod preset;
mod sleeps;
mod steps;
mod text;
mod timed;
mod transfers;

use std::fs;
use std::time::Duration;

use pktbuf::Caching;
use sync::Step;
use vsmp::preset::{Kernel, Preset, PresetError};
use vsmp::workload::pair::{Pair, Transferred};
use vsmp::workload::windows::{Rate, Windows};
use vsmp::{Costs, Machine, Outcome, Vsmp};

pub use cost::Cost;
pub use lines::Lines;
pub use measured::Relative;
pub use predict::{Errors, Prediction};
pub use sleeps::{Sleeps, switch_with_wake};
pub use steps::Steps;
pub use text::{Predictions, name};
pub use timed::{StepTimes, Timed};
pub use transfers::Transfers;

use crate::distance::SameDistance;
use crate::machine;
use sleeps::in_cycles;

/// Why a machine cannot be calibrated.
#[derive(Debug, PartialEq, Eq)]
pub enum CalibrationError {
    /// Fewer CPUs than two, or than requested.
    TooFewCpus {
        /// Requested.
        wanted: usize,
        /// Usable by this process, one for each core.
        found: usize,
    },
    /// No window of a run was without an interruption.
    Interrupted,
    /// The measured values are no preset.
    Preset(PresetError),
}

impl std::fmt::Display for CalibrationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CalibrationError::TooFewCpus { wanted, found } => write!(
                f,
                "calibration needs {wanted} cores, and this process may use {found}: use a larger machine, or allow more of it (taskset -p)"
            ),
            CalibrationError::Interrupted => {
                f.write_str("every run was interrupted by other programs, or a hypervisor moved the CPUs around it: stop other programs, or try again later")
            }
            CalibrationError::Preset(error) => write!(f, "the measured values are no machine: {error}"),
        }
    }
}

impl std::error::Error for CalibrationError {}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Time of a run on the machine.
    pub time: Duration,
    /// Rounds of each run, alternately with one CPU and with several.
    pub rounds: usize,
    /// Virtual time of a run on the model.
    pub virtual_time: Duration,
    /// CPUs of the predicted runs, at least 2.
    pub cpus: usize,
    /// Nanoseconds in which a cache line goes from one CPU to another and back, where a run on several CPUs counts only if that is
    /// so around it. A hypervisor moves CPUs closer together and farther apart. `None`: each run counts.
    pub round_trip_ns: Option<f64>,
}

impl Effort {
    /// About two minutes.
    pub fn full() -> Effort {
        let (time, virtual_time) = (Duration::from_millis(50), Duration::from_millis(40));
        Effort { time, rounds: 9, virtual_time, cpus: 2, round_trip_ns: None }
    }

    /// About half a minute, for a first look.
    pub fn quick() -> Effort {
        let (time, virtual_time) = (Duration::from_millis(40), Duration::from_millis(20));
        Effort { time, rounds: 3, virtual_time, cpus: 2, round_trip_ns: None }
    }
}

/// The CPUs of the machine.
#[derive(Clone, Debug)]
pub struct Cpus {
    /// Model name.
    pub model: String,
    /// Clock in megahertz, as the kernel states it. The unit of all costs; no cost depends on it.
    pub megahertz: u64,
    /// Cores that this process may use, one CPU of each.
    pub cores: usize,
    /// The distance between the numbers of CPUs of different cores.
    pub stride: usize,
    /// Bytes of the private caches of a core.
    pub private_cache: usize,
}

/// What was measured of a machine.
#[derive(Clone, Debug)]
pub struct Measurements {
    /// Its CPUs.
    pub cpus: Cpus,
    /// The costs of memory.
    pub lines: Lines,
    /// The costs of the scheduler.
    pub sleeps: Sleeps,
    /// The speed of each CPU while all of [`Effort::cpus`] work, of its speed alone, 0 to 1, by windows that count.
    pub together: Rate,
    /// Work that shares nothing: segments of the floor that one CPU carries in a second.
    pub floor: f64,
    /// The plain work of the stack.
    pub steps: Steps,
    /// [`Effort::round_trip_ns`] of these measurements.
    pub round_trip_ns: Option<f64>,
    /// The cost of sharing.
    pub transfers: Transfers,
}

/// A calibrated machine.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// What was measured.
    pub measured: Measurements,
    /// The machine as a preset: [`Measurements`] on top of a machine whose other values are assumed.
    pub preset: Preset,
}

impl Cpus {
    fn of_this_machine() -> Cpus {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = info.lines().find(|line| line.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let megahertz = field("cpu MHz").and_then(|text| text.parse::<f64>().ok()).map_or(1000, |clock| clock as u64);
        let siblings = read("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
        let stride = stride(&siblings);
        let cache = read("/sys/devices/system/cpu/cpu0/cache/index2/size");
        Cpus {
            model: field("model name").unwrap_or_else(|| format!("unknown {}", std::env::consts::ARCH)),
            megahertz: megahertz.max(1),
            cores: machine::cores().div_ceil(stride),
            stride,
            private_cache: bytes(&cache).unwrap_or(1 << 20),
        }
    }
}

/// The first CPU that shares no core with CPU 0: "0-1" makes 2, "0,8" and "0" make 1.
fn stride(siblings: &str) -> usize {
    let mut shared = vec![0];
    for part in siblings.trim().split(',') {
        let mut ends = part.split('-').filter_map(|number| number.parse::<usize>().ok());
        if let Some(first) = ends.next() {
            shared.extend(first..=ends.next().unwrap_or(first).min(first + 1024));
        }
    }
    (1..).find(|cpu| !shared.contains(cpu)).unwrap_or(1)
}

/// The kernel's "2048K" or "2M" in bytes.
fn bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    digits.parse::<usize>().ok().map(|number| number * factor)
}

/// Sets and ways of a cache of 64-byte lines: the sets are a power of two.
fn sets_and_ways(bytes: usize) -> (usize, usize) {
    let lines = (bytes / 64).max(64);
    let sets = 1 << (lines / 8).ilog2();
    (sets, (lines / sets).clamp(1, 255))
}

/// The rate of a run on the model after a third of its time, what it transferred, and the model's account of it.
fn on_the_model(pair: &Pair, costs: &Costs, effort: &Effort) -> Option<(Rate, Transferred, Outcome)> {
    let run = Pair { time: effort.virtual_time, stride: 1, ..pair.clone() };
    let ((transferred, windows), outcome) = Machine::new(pair.cpus, costs.clone()).run(move || run.run_on::<Vsmp>());
    // Nothing interrupts a virtual machine: a long step is no pause.
    let rate = Rate::of(&Windows::trusting(&windows), windows.len() / 3)?;
    Some((rate, transferred, outcome))
}

impl Calibration {
    /// Measures this machine. `progress` is called with what is measured next.
    ///
    /// # Errors
    /// See [`CalibrationError`].
    pub fn measure(effort: &Effort, mut progress: impl FnMut(&str)) -> Result<Calibration, CalibrationError> {
        let cpus = Cpus::of_this_machine();
        if cpus.cores < effort.cpus {
            return Err(CalibrationError::TooFewCpus { wanted: effort.cpus, found: cpus.cores });
        }
        let two = [0, cpus.stride];
        progress("cache lines");
        let lines = Lines::measure(two, cpus.private_cache);
        let now = SameDistance::as_now();
        let effort = &Effort { round_trip_ns: now.map(|distance| distance.round_trip_ns()), ..*effort };
        let mut costs = memory_costs(&cpus, &lines);
        progress("wake-ups");
        let sleeps = Sleeps::measure(two, &costs);
        let unit = costs.clone();
        let cycles = |nanos| in_cycles(&unit, nanos);
        for (cost, into) in [
            (sleeps.system_call, &mut costs.system_call as &mut u64),
            (sleeps.wake, &mut costs.wake),
            (sleeps.wake_idle, &mut costs.wake_idle),
            (sleeps.switch, &mut costs.switch),
            (sleeps.idle_exit, &mut costs.idle_exit),
        ] {
            *into = cycles(cost.nanos);
        }
        progress("CPUs that share nothing");
        let together = measured::together(effort.cpus, cpus.stride, effort);
        let (together, floor) = together.ok_or(CalibrationError::Interrupted)?;
        costs.together = (100.0 * together.median).round() as u64;
        progress("the steps of the stack");
        let steps = Steps::measure(&mut costs, floor, effort).ok_or(CalibrationError::Interrupted)?;
        progress("lines that are shared");
        let transfers = Transfers::measure(&mut costs, cpus.stride, effort).ok_or(CalibrationError::Interrupted)?;
        let round_trip_ns = effort.round_trip_ns;
        let measured = Measurements { cpus, lines, sleeps, together, floor, steps, transfers, round_trip_ns };
        let preset = preset::of(&measured, &costs).map_err(CalibrationError::Preset)?;
        Ok(Calibration { measured, preset })
    }

    /// Predicts runs that nothing was fitted to, and measures them. `progress` is called before each with their number.
    pub fn predict(&self, effort: &Effort, progress: impl FnMut(usize, usize, &Pair)) -> Vec<Prediction> {
        let Measurements { cpus, floor, round_trip_ns, .. } = &self.measured;
        let effort = &Effort { round_trip_ns: *round_trip_ns, ..*effort };
        predict::all(&self.preset.costs(Kernel::Heddle), *floor, cpus.stride, effort, progress)
    }
}

/// The costs of memory in cycles; the others are 0 or those of another machine, and not used yet.
fn memory_costs(cpus: &Cpus, lines: &Lines) -> Costs {
    let mut costs = Costs { megahertz: cpus.megahertz, cpus_per_socket: 256, ..Costs::opteron_275() };
    let unit = costs.clone();
    let cycles = |cost: Cost| in_cycles(&unit, cost.nanos);
    costs.read_modify_write = cycles(lines.read_modify_write);
    costs.memory = cycles(lines.memory);
    (costs.near, costs.far) = (cycles(lines.transfer), cycles(lines.transfer));
    costs.upgrade = cycles(lines.upgrade);
    costs.following = percent_following(lines);
    costs.relax = cycles(lines.relax).max(1);
    costs.cache = sets_and_ways(cpus.private_cache);
    costs.payload_line = cycles(lines.payload_line);
    (costs.wake_lines, costs.switch_lines, costs.work) = (0, 0, [0; Step::ALL.len()]);
    costs.slice = 3_000 * cpus.megahertz;
    costs.caching = Caching::PerThread;
    costs
}

fn percent_following(lines: &Lines) -> u64 {
    (100.0 * lines.following.nanos / lines.transfer.nanos.max(0.1)).round().min(100.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_and_caches_are_read_as_the_kernel_writes_them() {
        assert_eq!([stride("0-1\n"), stride("0,8\n"), stride("0"), stride(""), stride("0-3")], [2, 1, 1, 1, 4]);
        assert_eq!(
            [bytes("2048K\n"), bytes("2M"), bytes("512"), bytes("")],
            [Some(2 << 20), Some(2 << 20), Some(512), None]
        );
        for size in [256 << 10, 1 << 20, 1280 << 10, 2 << 20] {
            let (sets, ways) = sets_and_ways(size);
            assert!(sets.is_power_of_two() && (8..16).contains(&ways), "{size}: {sets} {ways}");
            assert_eq!(sets * ways * 64, size);
        }
    }
}
