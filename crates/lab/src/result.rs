//! The document of a run: `results.json`, described by `docs/results.schema.json`.
//!
//! These types define exactly that file. Names of numbers include their units, an unknown value is `null` and never 0,
//! and every mean has its samples or its interval. Fields may be added; an existing one keeps its name and meaning,
//! because results are kept longer than programs.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cpu::Switches;
use crate::machine::{COMMIT, Machine};
use crate::recommend;
use crate::sampling::{LockCount, Samples, Slice, Wakes};
use crate::simulated::Account;
use crate::stats::Estimate;
use crate::usl::ScalabilityLaw;

/// The name of the Linux kernel's own TCP in the rows.
pub const KERNEL: &str = "linux";

/// The name of smoltcp in the rows.
pub const SMOLTCP: &str = "smoltcp";

/// End of an architecture's name in a row whose segmentation and coalescing were left to the device, as the kernel
/// leaves them to its loopback interface.
pub const OFFLOADED: &str = ", offloaded";

/// Version of the document's shape; raised only when a field changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// All results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// When the document was made, RFC 3339 in UTC.
    pub finished_at: String,
    /// Where it was measured.
    pub machine: Machine,
    /// The commit of the build.
    pub commit: String,
    /// Every parameter of the run, by name; units are part of the names (`slice_ms`).
    pub parameters: Map<String, Value>,
    /// One row for each contender and load.
    pub rows: Vec<Row>,
    /// The recommended architecture, and why; `null` when there was no choice.
    pub recommendation: Option<Recommendation>,
    /// Throughput over numbers of CPUs, where a simulator ran several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaling: Vec<Scaling>,
}

/// The throughput of one variant and load at several numbers of CPUs, and the law fitted to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Variant and load.
    pub variant: String,
    /// CPUs and Gb/s, by ascending CPUs.
    pub points: Vec<(u32, Estimate)>,
    /// The universal scalability law; `null` with fewer than three numbers of CPUs.
    pub law: Option<ScalabilityLaw>,
}

impl Scaling {
    /// One for each set of at least two rows that differ only in their CPUs.
    pub fn of(rows: &[Row]) -> Vec<Scaling> {
        let name = |row: &Row| format!("{}, {} connections", row.key.variant(), row.key.connections);
        let mut variants: Vec<String> = rows.iter().map(name).collect();
        variants.sort_unstable();
        variants.dedup();
        let one = |variant: String| {
            let of_variant = rows.iter().filter(|row| name(row) == variant);
            let mut points: Vec<_> = of_variant.map(|row| (row.key.threads, row.gbps.estimate())).collect();
            points.sort_by_key(|point| point.0);
            points.dedup_by_key(|point| point.0);
            let fitted: Vec<_> = points.iter().map(|(cpus, gbps)| (f64::from(*cpus), gbps.mean)).collect();
            (points.len() > 1).then(|| Scaling { variant, law: ScalabilityLaw::fit(&fitted), points })
        };
        variants.into_iter().filter_map(one).collect()
    }
}

impl Results {
    /// Assembles the document of a run, with its recommendation.
    pub fn new(machine: Machine, parameters: Map<String, Value>, rows: Vec<Row>) -> Results {
        Results {
            schema_version: SCHEMA_VERSION,
            finished_at: rfc3339(SystemTime::now()),
            machine,
            commit: COMMIT.into(),
            parameters,
            recommendation: recommend::recommend(&rows),
            rows,
            scaling: Vec::new(),
        }
    }

    /// The document as indented JSON, with a final newline.
    ///
    /// # Panics
    /// Never: every key is a string, and numbers that JSON cannot hold become `null`.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("results have string keys only");
        text.push('\n');
        text
    }
}

/// The kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Bulk data, each connection as fast as possible: Willmann et al.'s parallel TCP benchmark.
    Bulk,
    /// A small request, a small response, on persistent connections.
    Rpc,
    /// Connections set up and closed.
    Connect,
}

/// The key of a row: its load and its variant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The load.
    pub workload: Workload,
    /// Process architecture, with [`OFFLOADED`] at its end if the device did part of its work; [`KERNEL`] for the kernel's
    /// own TCP, [`SMOLTCP`] for smoltcp.
    pub arch: String,
    /// Lock kind; `null` where there is none to choose.
    pub lock: Option<String>,
    /// Connection groups; `null` where the architecture has none.
    pub groups: Option<u32>,
    /// Connections open at once.
    pub connections: u32,
    /// Threads that run application and stack.
    pub threads: u32,
}

impl Key {
    /// The family of the architecture, by which a report groups its lines: its name up to its first option. Letters, digits
    /// and hyphens only. Empty for the kernel, which is always shown.
    pub fn family(&self) -> &str {
        let end = self.arch.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        if self.is_kernel() { "" } else { &self.arch[..end.unwrap_or(self.arch.len())] }
    }

    /// The variant compared across loads: architecture, groups and lock, "connp-l, 128 groups, spin-park".
    pub fn variant(&self) -> String {
        let groups = self.groups.map(|groups| format!(", {groups} groups")).unwrap_or_default();
        let lock = self.lock.as_ref().map(|lock| format!(", {lock}")).unwrap_or_default();
        format!("{}{groups}{lock}", self.arch)
    }

    /// Whether this is the kernel's row.
    pub fn is_kernel(&self) -> bool {
        self.arch == KERNEL
    }

    /// Whether this is the row of another stack, whose counters are not visible.
    pub fn is_other_stack(&self) -> bool {
        self.is_kernel() || self.arch == SMOLTCP
    }

    /// Whether this row may be recommended: it is ours, and did all the work that the other rows did.
    pub fn is_candidate(&self) -> bool {
        !self.is_other_stack() && !self.arch.ends_with(OFFLOADED)
    }
}

/// A mean, its interval and its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half-width of the 95 % confidence interval; `null` from a single sample.
    pub ci95: Option<f64>,
    /// The samples in the order they were measured.
    pub samples: Vec<f64>,
}

impl Series {
    /// A series of samples; `None` where there are none.
    pub fn of(samples: Vec<f64>) -> Option<Series> {
        let Estimate { mean, ci95 } = Estimate::of(&samples)?;
        Some(Series { mean, ci95, samples })
    }

    /// Mean and interval alone.
    pub fn estimate(&self) -> Estimate {
        Estimate { mean: self.mean, ci95: self.ci95 }
    }
}

/// One contender under one load. Counters are sums over all samples; divide by `bytes` or `seconds` to compare.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Contender and load.
    #[serde(flatten)]
    pub key: Key,
    /// Payload delivered to the receiving application, Gb/s.
    pub gbps: Series,
    /// Transactions or connections a second; `null` for bulk data.
    pub operations_per_s: Option<Series>,
    /// Ratio to the kernel in the same seconds, of Gb/s for bulk data and of operations otherwise; `null` without one.
    pub ratio_to_kernel: Option<Estimate>,
    /// CPU seconds, user and system, for each 10^9 bytes.
    pub cpu_s_per_gb: f64,
    /// Half-width of its 95 % interval.
    pub cpu_s_per_gb_ci95: Option<f64>,
    /// Bytes delivered over all samples.
    pub bytes: u64,
    /// Wall time of all samples, in seconds.
    pub seconds: f64,
    /// Locks by class; exact counts, times only after a timed pass.
    pub locks: Vec<LockCount>,
    /// Lock acquisitions of all classes for each 10^6 bytes; `null` for the kernel, whose locks are not visible.
    pub acquisitions_per_mb: Option<Estimate>,
    /// Events passed from one thread to another; `null` for the kernel.
    pub handoffs: Option<u64>,
    /// Wake-ups sent and suppressed; `null` for the kernel.
    pub wakes: Option<Wakes>,
    /// Context switches of the threads that took part.
    pub switches: Switches,
    /// Context switches for each 10^9 bytes.
    pub switches_per_gb: Option<Estimate>,
    /// Segments that reached TCP with a sequence number other than RCV.NXT; `null` for the kernel.
    pub out_of_order: Option<u64>,
    /// Segments sent again; `null` for the kernel.
    pub retransmits: Option<u64>,
    /// Memory of an open connection, both ends, in bytes; `null` where it was not measured.
    pub bytes_per_connection: Option<u64>,
    /// Round-trip time of a cache line between two processors in nanoseconds, just before each sample; `null` if
    /// unknown (one processor). Samples of several threads are comparable only at similar distances.
    #[serde(default)]
    pub round_trip_ns: Vec<Option<f64>>,
    /// The account of the virtual CPUs; absent if real ones were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Account>,
    /// Remarks for the reader of the figures.
    pub notes: Vec<String>,
}

impl Row {
    /// The row of a contender's samples; `kernel` holds the same rounds of the kernel. `None` if no slice was
    /// completed.
    pub fn new(key: Key, samples: &Samples, kernel: Option<&Samples>) -> Option<Row> {
        let figure = match key.workload {
            Workload::Bulk => Slice::gbps,
            Workload::Rpc | Workload::Connect => Slice::operations_per_second,
        };
        let cpu = samples.estimate(Slice::cpu_s_per_gb)?;
        let sum = samples.sum();
        let ours = !key.is_other_stack();
        let bulk = key.workload == Workload::Bulk;
        let mut notes = Vec::new();
        if let Some(reason) = &samples.failed {
            notes.push(format!("stopped after {} samples: {reason}", samples.slices.len()));
        }
        Some(Row {
            gbps: Series::of(samples.series(Slice::gbps))?,
            operations_per_s: Series::of(samples.series(Slice::operations_per_second)).filter(|_| !bulk),
            ratio_to_kernel: kernel.and_then(|kernel| samples.ratio_to(kernel, figure)),
            cpu_s_per_gb: cpu.mean,
            cpu_s_per_gb_ci95: cpu.ci95,
            bytes: sum.bytes,
            seconds: sum.wall.as_secs_f64(),
            acquisitions_per_mb: samples.estimate(Slice::acquisitions_per_mb).filter(|_| ours),
            handoffs: ours.then_some(sum.exact.handoffs),
            wakes: ours.then_some(sum.exact.wakes),
            switches: sum.switches,
            switches_per_gb: samples.estimate(Slice::switches_per_gb),
            out_of_order: ours.then_some(sum.exact.out_of_order),
            retransmits: ours.then_some(sum.exact.retransmits),
            locks: sum.exact.locks,
            bytes_per_connection: None,
            round_trip_ns: samples.slices.iter().map(|slice| slice.round_trip_ns).collect(),
            simulated: None,
            notes,
            key,
        })
    }

    /// The figure by which contenders of this workload are compared: Gb/s, or operations a second.
    pub fn figure(&self) -> Estimate {
        self.operations_per_s.as_ref().unwrap_or(&self.gbps).estimate()
    }

    /// Percentage of acquisitions of the stack's own locks (tables, groups, connections; not devices, sockets or
    /// mailboxes) that did not succeed at once; `None` without locks. As in table 1 of Willmann et al. 2006.
    pub fn contended_percent(&self) -> Option<f64> {
        let stack = || self.locks.iter().filter(|lock| is_stack_lock(&lock.class));
        let acquired: u64 = stack().map(|lock| lock.acquired).sum();
        let failed: u64 = stack().map(|lock| lock.first_try_failed).sum();
        (acquired > 0).then(|| 100.0 * failed as f64 / acquired as f64)
    }

    /// The class whose first tries failed most often by share, with the percentage; `None` without locks.
    pub fn most_contended(&self) -> Option<(&str, f64)> {
        let share = |lock: &LockCount| 100.0 * lock.first_try_failed as f64 / lock.acquired as f64;
        let taken = self.locks.iter().filter(|lock| lock.acquired > 0 && is_stack_lock(&lock.class));
        taken.map(|lock| (lock.class.as_str(), share(lock))).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Adds the lock times of a separate timed pass: the mean wait and hold of an acquisition there, times the
    /// acquisitions here. Classes that the timed pass did not take stay without times.
    pub fn add_timed_pass(&mut self, timed: &Slice) {
        self.locks.iter_mut().for_each(|lock| lock.add_times(&timed.exact.locks));
    }

    /// Nanoseconds waited for locks for each 10^3 bytes, from a timed pass; `None` without one.
    pub fn wait_ns_per_kb(&self) -> Option<f64> {
        let waited: Vec<u64> = self.locks.iter().filter_map(|lock| lock.wait_ns).collect();
        let any = !waited.is_empty() && self.bytes > 0;
        any.then(|| waited.iter().sum::<u64>() as f64 * 1e3 / self.bytes as f64)
    }
}

/// Whether a class, by name, is one of the architecture's own locks.
fn is_stack_lock(class: &str) -> bool {
    let class = class.to_ascii_lowercase();
    ["conn-table", "conntable", "flow-bindings", "group", "squeue", "backlog"].contains(&class.as_str())
        || class.starts_with("pcb")
}

/// The architecture for this machine and load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The architecture's name, as `--arch` takes it.
    pub arch: String,
    /// The kind of lock with which it was fastest, as `--lock` takes it; `None` where there is none to choose.
    #[serde(default)]
    pub lock: Option<String>,
    /// One sentence with the supporting figures.
    pub reason: String,
}

/// A moment as RFC 3339 in UTC, to the second. Days are turned into a date in the proleptic Gregorian calendar by
/// counting 400-year eras of 146 097 days from 1 March of year 0, so that leap days fall at the end of a year.
pub fn rfc3339(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::Exact;
    use std::time::Duration;

    fn key(arch: &str, workload: Workload) -> Key {
        Key { workload, arch: arch.into(), lock: None, groups: None, connections: 6, threads: 2 }
    }

    fn samples(bytes: &[u64]) -> Samples {
        let slice = |&bytes| Slice {
            bytes,
            operations: bytes / 1000,
            wall: Duration::from_secs(1),
            cpu: Duration::from_millis(500),
            round_trip_ns: Some(80.0),
            fairness: None,
            switches: Switches { voluntary: 4, involuntary: 1 },
            exact: Exact {
                locks: vec![LockCount {
                    class: "Group".into(),
                    acquired: 80,
                    first_try_failed: 20,
                    ..LockCount::default()
                }],
                handoffs: 3,
                ..Exact::default()
            },
        };
        Samples { name: "x".into(), slices: bytes.iter().map(slice).collect(), failed: None }
    }

    #[test]
    fn a_row_holds_means_sums_and_ratios() {
        let kernel = samples(&[250_000_000, 500_000_000]);
        let ours = samples(&[500_000_000, 1_000_000_000]);
        let row = Row::new(key("up", Workload::Bulk), &ours, Some(&kernel)).unwrap();
        assert_eq!((row.gbps.mean, row.gbps.samples.as_slice()), (6.0, [4.0, 8.0].as_slice()));
        assert_eq!(row.ratio_to_kernel.unwrap().mean, 2.0);
        assert_eq!((row.bytes, row.seconds, row.cpu_s_per_gb), (1_500_000_000, 2.0, 0.75));
        assert_eq!((row.handoffs, row.switches.total()), (Some(6), 10));
        assert_eq!(row.contended_percent(), Some(25.0));
        assert_eq!(row.most_contended(), Some(("Group", 25.0)));
        assert_eq!((row.operations_per_s.as_ref(), row.wait_ns_per_kb()), (None, None));
        assert_eq!(row.figure().mean, 6.0);
    }

    #[test]
    fn the_kernels_row_claims_no_counters_it_cannot_see() {
        let row = Row::new(key(KERNEL, Workload::Rpc), &samples(&[1_000_000]), None).unwrap();
        assert_eq!((row.handoffs, row.out_of_order, row.retransmits), (None, None, None));
        assert_eq!((row.acquisitions_per_mb, row.ratio_to_kernel), (None, None));
        assert_eq!(row.figure().mean, 1000.0);
    }

    #[test]
    fn a_timed_pass_is_scaled_to_the_acquisitions_of_the_row() {
        let mut row = Row::new(key("giant", Workload::Bulk), &samples(&[1_000_000]), None).unwrap();
        let timed = |acquired| Slice {
            exact: Exact {
                locks: vec![LockCount {
                    class: "Group".into(),
                    acquired,
                    wait_ns: Some(500),
                    hold_ns: Some(80),
                    ..LockCount::default()
                }],
                ..Exact::default()
            },
            ..Slice::default()
        };
        row.add_timed_pass(&timed(0));
        assert_eq!(row.locks[0].wait_ns, None);
        row.add_timed_pass(&timed(40));
        assert_eq!((row.locks[0].wait_ns, row.locks[0].hold_ns), (Some(1000), Some(160)));
        assert_eq!((row.locks[0].acquired, row.wait_ns_per_kb()), (80, Some(1.0)));
    }

    #[test]
    fn a_failed_contender_keeps_its_row_and_a_note() {
        let stopped = Samples { failed: Some("out of ports".into()), ..samples(&[1000]) };
        let row = Row::new(key("up", Workload::Bulk), &stopped, None).unwrap();
        assert_eq!(row.notes, ["stopped after 1 samples: out of ports"]);
        assert_eq!(Row::new(key("up", Workload::Bulk), &samples(&[]), None), None);
    }

    #[test]
    fn variants_name_what_differs() {
        let grouped = Key { groups: Some(128), lock: Some("ticket".into()), ..key("connp-l", Workload::Bulk) };
        assert_eq!(grouped.variant(), "connp-l, 128 groups, ticket");
        assert_eq!(key("up", Workload::Bulk).variant(), "up");
    }

    #[test]
    fn a_family_is_a_name_without_its_options() {
        let families = ["connp-l", "msgp:1+coupled", "giant, offloaded", "up (2006)", "<b>", KERNEL];
        let found = families.map(|name| key(name, Workload::Bulk).family().to_owned());
        assert_eq!(found, ["connp-l", "msgp", "giant", "up", "", ""]);
    }

    #[test]
    fn dates() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn json_round_trips() {
        let row = Row::new(key("up", Workload::Bulk), &samples(&[1000, 2000]), None).unwrap();
        let machine = crate::machine::Probe::start().finish();
        let results = Results::new(machine, Map::new(), vec![row]);
        let again: Results = serde_json::from_str(&results.to_json()).unwrap();
        assert_eq!(again.rows, results.rows);
        assert!(results.to_json().contains("\"arch\": \"up\""));
    }
}
