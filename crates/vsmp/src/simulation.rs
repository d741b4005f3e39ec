//! A workload on a preset, once for each seed: means with intervals, as a page of text.
//!
//! The output describes a model. It names the machine, the kernel whose footprint and habits were used, and the numbers
//! of fitted and assumed values of the preset.

mod text;
mod what_if;

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use stack::Architecture;
use sync::profile::ClassProfile;
use sync::{LockKind, Object};

use crate::preset::{Kernel, Origin, Point, Preset};
use crate::workload::bridges::{BridgeLoad, BridgeLoadError, BridgeTrial};
use crate::workload::measured::Measured;
use crate::workload::messages::{self, Messages};
use crate::workload::packets::{Packets, SpecError, Traffic};
use crate::workload::senders::{Senders, uniprocessor};
use crate::{Costs, Machine};

pub use what_if::Gain;

/// What runs on the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workload {
    /// [`workload::senders`](crate::workload::senders).
    #[default]
    Senders,
    /// [`workload::messages`](crate::workload::messages).
    Messages {
        /// Whether each message is decoded.
        presentation: bool,
    },
    /// [`workload::packets`](crate::workload::packets).
    Packets(Traffic),
    /// [`workload::bridges`](crate::workload::bridges).
    Bridge(BridgeLoad),
}

/// In front of the words for the [`Traffic`] in a workload's name.
const PACKETS: &str = "packets-";
/// The same for the [`BridgeLoad`].
const BRIDGE: &str = "bridge";

impl Display for Workload {
    /// Its name on the command line and in results.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Senders => f.write_str("senders"),
            Workload::Messages { presentation: false } => f.write_str("messages"),
            Workload::Messages { presentation: true } => f.write_str("messages+xdr"),
            Workload::Packets(traffic) => write!(f, "{PACKETS}{traffic}"),
            Workload::Bridge(load) => write!(f, "{BRIDGE}+{load}"),
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Workload, String> {
        match name {
            "senders" => Ok(Workload::Senders),
            "messages" => Ok(Workload::Messages { presentation: false }),
            "messages+xdr" => Ok(Workload::Messages { presentation: true }),
            _ => Workload::with_words(name).unwrap_or_else(|| {
                Err(format!(
                    "no workload is called `{name}`; there are senders, messages, messages+xdr, packets-receive, packets-send, bridge"
                ))
            }),
        }
    }
}

impl Workload {
    /// A workload with words for its load in its name; `None`: it is none of these.
    fn with_words(name: &str) -> Option<Result<Workload, String>> {
        if let Some(words) = name.strip_prefix(PACKETS) {
            return Some(words.parse().map(Workload::Packets).map_err(|error: SpecError| error.to_string()));
        }
        let words = name.strip_prefix(BRIDGE).filter(|words| words.is_empty() || words.starts_with('+'))?;
        Some(words.parse().map(Workload::Bridge).map_err(|error: BridgeLoadError| error.to_string()))
    }
}

/// The runs of a simulation.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// The workload.
    pub workload: Workload,
    /// The machine.
    pub preset: Preset,
    /// CPUs to use of it.
    pub cpus: usize,
    /// The process architecture; `None`: the papers' UP ([`Senders::uniprocessor`]).
    pub arch: Option<Architecture>,
    /// Connections.
    pub connections: usize,
    /// Runs, with seeds from 1 on.
    pub seeds: u64,
    /// Whether addresses are IPv6.
    pub ipv6: bool,
    /// The kind of locks, if not the kernel's.
    pub lock_kind: Option<LockKind>,
    /// See [`Costs::extent`](crate::Costs::extent).
    pub extent: [usize; Object::ALL.len()],
}

/// The runs of one kernel.
#[derive(Clone, Debug)]
pub struct Results {
    /// The simulation.
    pub simulation: Simulation,
    /// Which kernel: its footprint and habits.
    pub kernel: Kernel,
    /// By seed.
    pub runs: Vec<Measured>,
}

/// All bytes that Heddle touches count.
pub const WHOLE: [usize; Object::ALL.len()] = [100; Object::ALL.len()];

/// The throughput after one value of the machine was changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Variation {
    /// The value, by section and name.
    pub name: String,
    /// Megabits a second with the lower value, and with the higher one.
    pub megabits: [f64; 2],
}

impl Simulation {
    /// One run of senders over IPv4 on so many CPUs, with so many connections and the kernel's kind of locks.
    pub fn new(preset: Preset, arch: Option<Architecture>, cpus: usize, connections: usize) -> Simulation {
        Simulation {
            workload: Workload::Senders,
            preset,
            cpus,
            arch,
            connections,
            seeds: 1,
            ipv6: false,
            lock_kind: None,
            extent: WHOLE,
        }
    }

    /// Runs the first seed with each assumed value lower and higher by `percent`; calls `progress` with the name of the
    /// value, the number of completed values, and their total. A value that cannot be changed by that little (a single
    /// cache way) is omitted, and so is a value of zero, which has no effect.
    pub fn vary(&self, kernel: Kernel, percent: u64, mut progress: impl FnMut(&str, usize, usize)) -> Vec<Variation> {
        let changed = |number: u64| [number * (100 - percent) / 100, (number * (100 + percent)).div_ceil(100)];
        let assumed = self.preset.values().filter(|(_, value)| value.origin == Origin::Assumed);
        let values: Vec<_> = assumed
            .filter_map(|(name, value)| Some((name, value.number().filter(|number| *number > 0)?)))
            .filter_map(|(name, number)| {
                let [less, more] = changed(number).map(|number| self.preset.with(name, number).ok());
                Some((name.to_owned(), [less?, more?]))
            })
            .collect();
        let count = values.len();
        let one = |(done, (name, presets)): (usize, (String, [Preset; 2]))| {
            progress(&name, done, count);
            let megabits = presets.map(|preset| Simulation { preset, ..self.clone() }.run(kernel, 1).megabits());
            Variation { name, megabits }
        };
        values.into_iter().enumerate().map(one).collect()
    }

    fn senders(&self, kernel: Kernel, seed: u64) -> Senders {
        let (preset, arch) = (self.preset.clone(), self.arch.unwrap_or_else(uniprocessor));
        let Simulation { cpus, connections, ipv6, lock_kind, .. } = *self;
        let senders = Senders { arch, cpus, connections, preset, kernel, seed, ipv6, lock_kind };
        if self.arch.is_none() { senders.uniprocessor() } else { senders }
    }

    /// Runs one seed.
    ///
    /// # Panics
    /// See [`Senders::run`] and [`Machine::run`]. The bridge has lost a frame that it does not account for, or changed one.
    pub fn run(&self, kernel: Kernel, seed: u64) -> Measured {
        self.run_and_record(kernel, seed, Duration::ZERO)
    }

    /// As [`Simulation::run`] with senders, and records the first part of the measured time, of this length
    /// ([`Measured::timeline`]).
    ///
    /// # Panics
    /// As [`Simulation::run`].
    pub fn run_and_record(&self, kernel: Kernel, seed: u64, stretch: Duration) -> Measured {
        if let Workload::Messages { presentation } = self.workload {
            return self.run_messages(kernel, seed, presentation);
        }
        if let Some(packets) = self.packets(kernel, seed) {
            return packets.simulate().measured(packets.traffic.warm_up(), packets.cpus);
        }
        if let Some(trial) = self.bridge(kernel, seed) {
            let found = trial.throughput().unwrap_or_else(|error| panic!("{error}"));
            return found.trial.measured(trial.load.bytes);
        }
        let senders = self.senders(kernel, seed);
        // An architecture for one thread has nothing for a second CPU to do.
        let cpus = if senders.arch.properties().single_thread { 1 } else { senders.cpus };
        let senders = Senders { cpus, ..senders };
        let costs = Costs { extent: self.extent, ..self.preset.costs(kernel) };
        Machine::new(cpus, costs).seed(seed).run(move || senders.run_and_record(stretch)).0
    }

    /// The run of packets of a seed; `None` if the workload is another.
    pub fn packets(&self, kernel: Kernel, seed: u64) -> Option<Packets> {
        let Workload::Packets(traffic) = self.workload else { return None };
        let traffic = Traffic { lock_kind: self.lock_kind.or(traffic.lock_kind), ..traffic };
        let (arch, preset) = (self.arch.unwrap_or_else(uniprocessor), self.preset.clone());
        let Simulation { cpus, connections, ipv6, .. } = *self;
        Some(Packets { arch, cpus, connections, traffic, ipv6, preset, kernel, seed })
    }

    /// The trials of the bridge with a seed; `None` if the workload is another. Their rate is to be searched.
    pub fn bridge(&self, kernel: Kernel, seed: u64) -> Option<BridgeTrial> {
        let Workload::Bridge(load) = self.workload else { return None };
        Some(BridgeTrial { load, cpus: self.cpus, rate: 1, preset: self.preset.clone(), kernel, seed })
    }

    /// Whether the workload can run so.
    ///
    /// # Errors
    /// Packets are to be carried by one thread alone, or a number is out of their range ([`Packets::check`]).
    pub fn check(&self) -> Result<(), String> {
        match self.packets(Kernel::OfThePaper, 1) {
            Some(_) if self.arch.is_none() => {
                Err("packets are carried by several threads, not by a uniprocessor".to_owned())
            }
            Some(packets) => packets.check().map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    fn run_messages(&self, kernel: Kernel, seed: u64, presentation: bool) -> Measured {
        let arch = self.arch.unwrap_or_else(uniprocessor);
        let alone = self.arch.is_none() || arch.properties().single_thread;
        let cpus = if alone { 1 } else { self.cpus };
        let lock_kind = if self.arch.is_none() { Some(LockKind::Null) } else { self.lock_kind };
        let Simulation { connections, ipv6, .. } = *self;
        let (preset, counts) = (self.preset.clone(), messages::counts(connections));
        let messages =
            Messages { arch, cpus, connections, presentation, preset, kernel, seed, ipv6, lock_kind, counts };
        let costs = Costs { extent: self.extent, ..self.preset.costs(kernel) };
        Machine::new(cpus, costs).seed(seed).run(move || messages.run()).0
    }

    /// Runs all seeds; calls `progress` before each.
    pub fn run_all(&self, kernel: Kernel, mut progress: impl FnMut(u64)) -> Results {
        let run = |seed| {
            progress(seed);
            self.run(kernel, seed)
        };
        Results { simulation: self.clone(), kernel, runs: (1..=self.seeds).map(run).collect() }
    }

    /// The name of the architecture, or of the papers' UP, as on the command line; of a bridge that of its exclusion.
    pub fn arch_name(&self) -> String {
        if let Workload::Bridge(load) = self.workload {
            return load.exclusion.name().to_owned();
        }
        self.arch.map_or_else(|| "uniprocessor".to_owned(), |arch| arch.to_string())
    }
}

/// A mean with the half width of its 95 % interval (Student's t); no interval for a single run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half of the interval's width.
    pub half: Option<f64>,
}

/// Quantiles of Student's t for 95 %, by degrees of freedom from 1 on; further ones are like the last.
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

impl Mean {
    /// The mean of these values, at least one.
    pub fn of(values: &[f64]) -> Mean {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let freedom = values.len().saturating_sub(1);
        let half = (freedom > 0).then(|| {
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom as f64;
            STUDENT[freedom.min(STUDENT.len()) - 1] * (variance / n).sqrt()
        });
        Mean { mean, half }
    }
}

impl Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let half = self.half.map_or_else(String::new, |half| format!(" ±{half:.digits$}"));
        let text = format!("{:.digits$}{half}", self.mean);
        // A precision would cut the text where it is padded.
        write!(f, "{text:>width$}", width = f.width().unwrap_or(0))
    }
}

impl Results {
    /// The mean of a quantity over the runs.
    pub fn mean(&self, of: impl Fn(&Measured) -> f64) -> Mean {
        Mean::of(&self.runs.iter().map(of).collect::<Vec<_>>())
    }

    /// Payload, in megabits a second.
    pub fn megabits(&self) -> Mean {
        self.mean(Measured::megabits)
    }

    /// The mean of a count, for each kilobyte of payload.
    pub fn by_kilobyte(&self, of: impl Fn(&Measured) -> u64) -> Mean {
        self.mean(|run| of(run) as f64 / run.kilobytes())
    }

    /// The paper's measurement of this point.
    pub fn point(&self) -> Option<&Point> {
        let Simulation { preset, connections, workload, .. } = &self.simulation;
        if *workload != Workload::Senders {
            return None;
        }
        preset.point(&self.simulation.arch_name(), *connections)
    }

    /// Cache misses for each kilobyte.
    pub fn misses(&self) -> Mean {
        self.by_kilobyte(|run| run.account.misses())
    }

    /// Cycles of the scheduler for each kilobyte.
    pub fn scheduler_cycles(&self) -> Mean {
        self.by_kilobyte(|run| run.account.scheduler_cycles)
    }

    /// The share of acquisitions of the locks of a class, in percent, that did not succeed at the first try.
    pub fn first_try_failures(&self, class: sync::LockClass) -> Mean {
        let of = |run: &Measured| run.locks.iter().find(|lock| lock.class == class).map_or(0.0, failed);
        self.mean(of)
    }
}

/// Acquisitions that did not succeed at the first try, in percent.
fn failed(lock: &ClassProfile) -> f64 {
    if lock.acquired == 0 { 0.0 } else { 100.0 * lock.first_try_failed as f64 / lock.acquired as f64 }
}

impl Display for Simulation {
    /// The heading: the origin and the limits of the numbers below it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Simulation { preset, cpus, seeds, .. } = self;
        let count = |origin| preset.count(origin);
        let (fitted, assumed) = (count(Origin::Fitted), count(Origin::Assumed));
        let stated = count(Origin::Paper) + count(Origin::Measured) + count(Origin::Derived);
        writeln!(f, "A model of {}.", preset.describes)?;
        writeln!(
            f,
            "{cpus} CPUs, {seeds} seeds; values stated, measured or derived {stated}, fitted {fitted}, assumed {assumed}."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Student's interval of 1, 2, 3: s = 1, t(2) = 4.303, divided by the root of 3.
    #[test]
    fn a_mean_has_the_interval_of_student() {
        let Mean { mean, half } = Mean::of(&[1.0, 2.0, 3.0]);
        assert_eq!(mean, 2.0);
        assert!((half.expect("three runs") - 2.4843).abs() < 1e-3, "{half:?}");
        let text = format!("[{:>12.1}]", Mean { mean: 1234.56, half: Some(7.0) });
        assert_eq!(text, "[ 1234.6 ±7.0]");
        assert_eq!(Mean::of(&[5.0]), Mean { mean: 5.0, half: None });
    }
}
