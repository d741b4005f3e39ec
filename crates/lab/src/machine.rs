//! The machine of a measurement, and its other load.
//!
//! [`Probe::start`] is called before the first slice and [`Probe::finish`] after the last: together they give the load
//! before the run, the share of time that other programs used, and that stolen by the hypervisor. Every field is read from the kernel; one that cannot
//! be read is `None` or "unknown", never guessed. [`Machine::remarks`] lists in plain sentences the reasons to doubt
//! the figures.

use std::fs;
use std::thread;

use serde::{Deserialize, Serialize};

use crate::scheduler::SampledEvent;

/// The commit this library was built from, with "-dirty" where tracked files differed; "unknown" outside a checkout.
pub const COMMIT: &str = env!("HEDDLE_BUILD_COMMIT");

/// The record of a machine over one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the first processor.
    pub cpu_model: String,
    /// Processors this process may use (affinity and control groups counted).
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Frequency governor of the first processor; `None` where the machine has none (most guests).
    pub governor: Option<String>,
    /// Load averages over 1, 5 and 15 minutes when the run began.
    pub load_before: Option<[f64; 3]>,
    /// The same when it ended, our own threads included.
    pub load_after: Option<[f64; 3]>,
    /// Round-trip time of a cache line between two processors in nanoseconds, over the run; `None` with one processor,
    /// or if it was not measured.
    #[serde(default)]
    pub round_trip_ns: Option<Spread>,
    /// Percentage of the time of all processors that other programs used during the run, 0 to 100. Interrupts are left out: the
    /// kernel's loopback works in them for this process. A sample of a fraction of a second is off by some percent, because
    /// the kernel counts in ticks.
    #[serde(default)]
    pub other_programs_percent: Option<f64>,
    /// Percentage of processor time stolen by the hypervisor during the run, 0 to 100.
    pub steal_percent: Option<f64>,
    /// Clock source of the kernel, such as "tsc".
    pub clock_source: Option<String>,
    /// Physical memory in bytes.
    pub memory_bytes: Option<u64>,
    /// One line on processor mitigations: the number that are active, and the remaining vulnerabilities.
    pub mitigations: String,
    /// Nominal frequency of the processors in megahertz, by which nanoseconds are turned into cycles; `None` where the machine does
    /// not state it.
    #[serde(default)]
    pub nominal_megahertz: Option<f64>,
    /// Why the time of the kernel's scheduler cannot be sampled, and the setting that would permit it; `None` if it can.
    #[serde(default)]
    pub no_scheduler_samples: Option<String>,
    /// The same of cache misses, which need hardware counters.
    #[serde(default)]
    pub no_cache_misses: Option<String>,
    /// Compiler of this build.
    pub rustc: String,
    /// Cargo profile of this build: figures from "debug" are meaningless.
    pub profile: String,
}

/// Distribution of a figure over a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// One in ten samples is less.
    pub p10: f64,
    /// The middle one; the higher of two.
    pub median: f64,
    /// One in ten is more.
    pub p90: f64,
}

impl Spread {
    /// Of some samples; `None` of none.
    pub fn of<'a>(samples: impl IntoIterator<Item = &'a f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = samples.into_iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |tenths: usize| sorted.get(sorted.len() * tenths / 10).copied();
        Some(Spread { p10: at(1)?, median: at(5)?, p90: at(9)? })
    }
}

/// Percentage of the time of all processors beyond which a machine is busy with the work of other programs.
pub const BUSY_PERCENT: f64 = 5.0;

impl Machine {
    /// Reasons to doubt the figures of this run, one sentence each; empty on a quiet, well-configured machine.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.profile != "release" {
            remarks.push(format!("This is a {} build: build with --release before reading any figure.", self.profile));
        }
        if let Some(others) = self.other_programs_percent
            && others > BUSY_PERCENT
        {
            remarks.push(format!(
                "Other programs used {others:.1} % of the processor time during the run: stop other work and repeat."
            ));
        }
        if let Some(steal) = self.steal_percent
            && steal > 1.0
        {
            remarks.push(format!("The hypervisor took {steal:.1} % of the processor time during the run."));
        }
        if let Some(Spread { p10, median, p90 }) = self.round_trip_ns
            && p90 > 2.0 * p10
        {
            remarks.push(format!(
                "A cache line went to another processor and back in {p10:.0} to {p90:.0} ns (median {median:.0}): the processors \
                 were moved closer together and farther apart during the run, which changes figures of several threads \
                 as much as twofold. Compare samples of like distance: results.json has it beside each."
            ));
        }
        if let Some(governor) = &self.governor
            && governor != "performance"
        {
            remarks.push(format!(
                "The frequency governor is \"{governor}\": set it to \"performance\" for steadier figures."
            ));
        }
        remarks
    }
}

/// The first half of a machine record, taken before the run.
#[derive(Debug)]
pub struct Probe {
    load: Option<[f64; 3]>,
    ticks: Option<Ticks>,
    own: Option<u64>,
}

impl Probe {
    /// Reads load, used and stolen time before the run.
    pub fn start() -> Probe {
        Probe { load: load(), ticks: ticks(), own: own_ticks() }
    }

    /// Reads them again and fills in the record.
    pub fn finish(self) -> Machine {
        let ticks = self.ticks.zip(ticks());
        let own = self.own.zip(own_ticks()).map(|(before, after)| after.saturating_sub(before));
        let others = ticks.zip(own).and_then(|((before, after), own)| other_percent(before, after, own));
        Machine {
            cpu_model: cpu_model(),
            cores: cores(),
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            load_before: self.load,
            load_after: load(),
            round_trip_ns: None,
            other_programs_percent: others,
            steal_percent: ticks.and_then(|(before, after)| steal_percent(before, after)),
            clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            memory_bytes: fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_in(&text)),
            mitigations: mitigations(),
            nominal_megahertz: nominal_megahertz(),
            no_scheduler_samples: SampledEvent::Time.lacks().map(str::to_owned),
            no_cache_misses: SampledEvent::CacheMisses.lacks().map(str::to_owned),
            rustc: env!("HEDDLE_BUILD_RUSTC").into(),
            profile: env!("HEDDLE_BUILD_PROFILE").into(),
        }
    }
}

/// Processors this process may use, at least 1.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Processor time since boot, in clock ticks, summed over all processors.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    /// Of programs, and of the kernel on their behalf.
    used: u64,
    steal: u64,
    total: u64,
}

fn ticks() -> Option<Ticks> {
    ticks_in(&fs::read_to_string("/proc/stat").ok()?)
}

/// The "cpu" line of `/proc/stat`: user nice system idle iowait irq softirq steal. Guest time, which follows, is
/// already counted in user and nice.
fn ticks_in(stat: &str) -> Option<Ticks> {
    let fields: Vec<u64> =
        stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map_while(|f| f.parse().ok()).collect();
    Some(Ticks { used: fields[..3].iter().sum(), steal: *fields.get(7)?, total: fields.get(..8)?.iter().sum() })
}

fn steal_percent(before: Ticks, after: Ticks) -> Option<f64> {
    let total = after.total.checked_sub(before.total).filter(|total| *total > 0)?;
    Some(100.0 * after.steal.saturating_sub(before.steal) as f64 / total as f64)
}

/// Processor time of this process and of its ended children, in clock ticks.
fn own_ticks() -> Option<u64> {
    own_ticks_in(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// The fields utime, stime, cutime and cstime of `/proc/self/stat`: 14 to 17, of which 2 is the program's name in parentheses.
fn own_ticks_in(stat: &str) -> Option<u64> {
    let (_, behind_the_name) = stat.rsplit_once(')')?;
    let times = behind_the_name.split_whitespace().skip(11).take(4).map_while(|field| field.parse::<u64>().ok());
    let times: Vec<u64> = times.collect();
    (times.len() == 4).then(|| times.iter().sum())
}

/// What programs have used without `own`, as a share of all time.
fn other_percent(before: Ticks, after: Ticks, own: u64) -> Option<f64> {
    let total = after.total.checked_sub(before.total).filter(|total| *total > 0)?;
    Some(100.0 * after.used.saturating_sub(before.used).saturating_sub(own) as f64 / total as f64)
}

fn load() -> Option<[f64; 3]> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let mut fields = text.split_whitespace().map_while(|field| field.parse().ok());
    Some([fields.next()?, fields.next()?, fields.next()?])
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = text.lines().find(|line| line.starts_with("model name"));
    let model = named.and_then(|line| line.split_once(':')).map(|(_, model)| model.trim().to_owned());
    model.unwrap_or_else(|| format!("unknown {}", std::env::consts::ARCH))
}

/// The frequency without boosts: stated by the driver of some processors, and on others with a time-stamp counter that counter's.
fn nominal_megahertz() -> Option<f64> {
    let stated = line("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency").and_then(|text| text.parse::<f64>().ok());
    let counter = || counter_megahertz_in(&fs::read_to_string("/proc/cpuinfo").ok()?);
    stated.map(|kilohertz| kilohertz / 1e3).or_else(counter)
}

/// The kernel of an x86 processor derives its "BogoMIPS" from the frequency of the time-stamp counter, two for each megahertz.
/// ARM's are something else, and are written in capitals.
fn counter_megahertz_in(cpuinfo: &str) -> Option<f64> {
    let line = cpuinfo.lines().find(|line| line.starts_with("bogomips"))?;
    line.split_once(':')?.1.trim().parse::<f64>().ok().map(|twice| twice / 2.0).filter(|megahertz| *megahertz > 0.0)
}

fn memory_in(meminfo: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn mitigations() -> String {
    let Ok(directory) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return "unknown".into();
    };
    let mut states: Vec<(String, String)> = directory
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, fs::read_to_string(entry.path()).ok()?)))
        .collect();
    states.sort();
    mitigations_in(&states)
}

/// One line from pairs of a vulnerability and the kernel's status of it.
fn mitigations_in(states: &[(String, String)]) -> String {
    let named = |prefix: &str| -> Vec<&str> {
        states.iter().filter(|(_, state)| state.starts_with(prefix)).map(|(name, _)| name.as_str()).collect()
    };
    let (active, vulnerable) = (named("Mitigation"), named("Vulnerable"));
    let list = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("active: {}; left vulnerable: {}", list(&active), list(&vulnerable))
}

/// The first line of a small kernel file, `None` if it is absent or empty.
fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Machine {
        let others = Some(0.5);
        Machine { other_programs_percent: others, profile: "release".into(), governor: None, ..Probe::start().finish() }
    }

    #[test]
    fn this_machine_is_described() {
        let machine = Probe::start().finish();
        assert!(machine.cores >= 1 && !machine.kernel.is_empty() && !machine.cpu_model.is_empty());
        assert!(machine.memory_bytes.unwrap() > 1 << 20);
        assert!(machine.rustc.contains("rustc"));
        assert!(!COMMIT.is_empty());
    }

    #[test]
    fn steal_is_a_share_of_all_time() {
        let before = ticks_in("cpu  10 0 10 70 0 0 0 10 5 5\ncpu0 1\n").unwrap();
        let after = ticks_in("cpu  60 0 10 110 0 0 0 20 9 9\n").unwrap();
        assert_eq!(before, Ticks { used: 20, steal: 10, total: 100 });
        assert_eq!(steal_percent(before, after), Some(10.0));
        assert_eq!(steal_percent(before, before), None);
        assert_eq!(ticks_in("intr 5"), None);
        assert_eq!(ticks_in("cpu  1 2 3"), None);
    }

    #[test]
    fn other_programs_have_used_what_this_one_has_not() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 30 5 4 1 20 0";
        assert_eq!(own_ticks_in(&format!("77 (a program) with) {fields}")), Some(40));
        assert_eq!(own_ticks_in("77 (cut off) S 1 2 3 4 5 6 7 8 9 10 30 5"), None);
        let before = ticks_in("cpu  10 0 10 70 0 0 0 10 5 5\n").unwrap();
        let after = ticks_in("cpu  60 5 15 110 0 30 30 50 9 9\n").unwrap();
        // 60 of 200 ticks, without those of interrupts.
        assert_eq!(other_percent(before, after, 40), Some(10.0));
        assert_eq!(other_percent(before, after, 70), Some(0.0), "ticks are coarse");
        assert_eq!(other_percent(before, before, 0), None);
    }

    #[test]
    fn this_process_is_no_other_program() {
        let before = own_ticks().unwrap();
        let mut turns = 0_u64;
        while own_ticks().unwrap() < before + 3 {
            turns += std::hint::black_box(1);
        }
        assert!(turns > 0);
        assert!(ticks().unwrap().used >= 3);
    }

    #[test]
    fn each_doubt_is_one_sentence() {
        let clean = Machine { steal_percent: Some(0.1), cores: 2, ..quiet() };
        assert_eq!(clean.remarks(), Vec::<String>::new());
        let noisy = Machine {
            other_programs_percent: Some(31.0),
            steal_percent: Some(12.0),
            round_trip_ns: Spread::of(&[400.0, 80.0, 390.0, 400.0]),
            governor: Some("powersave".into()),
            profile: "debug".into(),
            ..clean
        };
        let remarks = noisy.remarks();
        assert_eq!(remarks.len(), 5);
        for word in ["debug build", "used 31.0 %", "12.0 %", "80 to 400 ns (median 400)", "powersave"] {
            assert!(remarks.iter().any(|remark| remark.contains(word)), "nothing says {word}");
        }
    }

    #[test]
    fn mitigations_name_what_is_open() {
        let states = [("mds", "Not affected\n"), ("spectre_v1", "Mitigation: barriers\n"), ("srso", "Vulnerable\n")]
            .map(|(name, state)| (name.to_owned(), state.to_owned()));
        assert_eq!(mitigations_in(&states), "active: spectre_v1; left vulnerable: srso");
        assert_eq!(mitigations_in(&[]), "active: none; left vulnerable: none");
    }

    #[test]
    fn the_nominal_frequency_of_x86_is_that_of_its_counter() {
        let x86 = "model name\t: AMD EPYC\ncpu MHz\t\t: 3911.2\nbogomips\t: 5192.28\n";
        assert_eq!(counter_megahertz_in(x86), Some(2596.14));
        assert_eq!(counter_megahertz_in("processor\t: 0\nBogoMIPS\t: 243.75\n"), None, "ARM's is another clock");
    }

    #[test]
    fn memory_is_in_bytes() {
        assert_eq!(memory_in("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16_384));
        assert_eq!(memory_in("MemFree: 1 kB\n"), None);
    }
}
