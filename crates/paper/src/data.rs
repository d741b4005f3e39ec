//! The data files of the papers: their content and its checks.
//!
//! [`Paper::all`] reads the files that come with the crate. A test parses them; a file with a claim about a figure
//! that does not exist, or about a load that the figure does not have, is refused with a sentence that names both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use lab::machine::Machine;
use serde::{Deserialize, Serialize};

use crate::claim::{Condition, Test};
use crate::point::{BYTES, CARDS, Place};

/// The files, in the order in which they are listed.
const FILES: [&str; 5] = [
    include_str!("../papers/willmann.toml"),
    include_str!("../papers/schmidt.toml"),
    include_str!("../papers/nahum.toml"),
    include_str!("../papers/netbsd.toml"),
    include_str!("../papers/yates.toml"),
];

/// In the place of an architecture on the host: the TCP of its Linux kernel, on loopback.
pub const LINUX: &str = "linux";

/// A paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Its name on the command line.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Its authors.
    pub authors: String,
    /// Where and when.
    pub published: String,
    /// The preset of its machine in the simulator.
    pub machine: String,
    /// How the paper's runs were done, and how ours are: a sentence or more for each.
    pub habits: Vec<String>,
    /// The subjects of its curves.
    #[serde(default, rename = "subject")]
    pub subjects: Vec<Subject>,
    /// Its figures and tables, in reading order.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
    /// Its claims.
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
}

/// A curve, bar or row of a paper: a system under test.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// Its name in the paper.
    pub name: String,
    /// The corresponding architecture on the simulated machine.
    pub simulated: Option<String>,
    /// The corresponding architecture on this host; [`LINUX`]: its kernel.
    pub host: Option<String>,
    /// What runs; empty: bulk data is sent. Where a figure's loads are sizes or interfaces, a word for the load is added
    /// ([`Figure::workload`]).
    #[serde(default)]
    pub workload: String,
    /// The preset of its machine in the simulator, if that is not the paper's.
    pub machine: Option<String>,
    /// Processors that it uses, where they are not the load; all of the machine if not stated. A host with fewer leaves it out.
    pub processors: Option<u32>,
    /// The class of the lock that all connections, or those of a group, share.
    pub lock: Option<String>,
    /// Connection groups.
    pub groups: Option<u32>,
    /// A note to the reader.
    #[serde(default)]
    pub note: String,
}

impl Subject {
    /// Why it cannot be measured on a host with so many CPUs; `None` if it can.
    pub fn lacks_on_host(&self, cores: usize) -> Option<String> {
        let processors = self.processors.filter(|processors| *processors as usize > cores)?;
        Some(needs(processors, cores))
    }
}

fn needs(processors: u32, cores: usize) -> String {
    format!("it needs {processors} CPUs, this host has {cores}")
}

/// The quantity that a figure measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Payload delivered, in megabits a second; of a bridge whole frames.
    Throughput,
    /// Frames forwarded, in thousands a second.
    Frames,
    /// Acquisitions of a subject's shared lock whose first try fails, in percent.
    Failures,
    /// Cache misses for each kilobyte of payload.
    Misses,
    /// The same without those of the scheduler.
    MissesOutsideScheduler,
    /// Cycles of the scheduler for each kilobyte of payload.
    Scheduler,
    /// Throughput by that of one processor, seed by seed.
    SpeedUp,
    /// Switches of a process's LWPs because no thread could run, in 20000 messages.
    VoluntarySwitches,
    /// The same at the end of a time slice.
    InvoluntarySwitches,
    /// Milliseconds for acquiring and releasing locks, in 20000 messages.
    LockTime,
    /// Segments whose sequence number is not the next one when they come to TCP, in percent.
    OutOfOrder,
    /// Packets that come to the application after one that follows them in the stream, in percent.
    Inversions,
    /// How evenly connections are served: Jain's index of their bytes, from 1/n to 1.
    Fairness,
    /// The share of the processors' time, in percent, that they wait for the locks of connections.
    Waiting,
}

impl Metric {
    /// The name of its value in a sample; `None` where a subject has no such value (no shared lock).
    pub fn value(self, subject: &Subject) -> Option<String> {
        Some(match self {
            Metric::Throughput | Metric::SpeedUp => "throughput_mbps".to_owned(),
            Metric::Frames => "frames_kfps".to_owned(),
            Metric::VoluntarySwitches => "voluntary_switches".to_owned(),
            Metric::InvoluntarySwitches => "involuntary_switches".to_owned(),
            Metric::LockTime => "lock_ms".to_owned(),
            Metric::OutOfOrder => "out_of_order_percent".to_owned(),
            Metric::Inversions => "inversions_percent".to_owned(),
            Metric::Waiting => "waiting_percent".to_owned(),
            Metric::Fairness => "fairness".to_owned(),
            Metric::Failures => format!("failures_percent.{}", subject.lock.as_deref()?),
            Metric::Misses => "misses_per_kb".to_owned(),
            Metric::MissesOutsideScheduler => "misses_outside_scheduler_per_kb".to_owned(),
            Metric::Scheduler => "scheduler_cycles_per_kb".to_owned(),
        })
    }

    /// Whether a host finds it by samples of its CPUs.
    pub fn is_of_sampled_cpus(self) -> bool {
        self.needs_on_host().is_some()
    }

    /// Whether a host finds it by a second run in which locks are timed.
    pub fn is_of_timed_locks(self) -> bool {
        matches!(self, Metric::LockTime | Metric::Waiting)
    }

    /// The host that can measure it, in words; `None` if any can.
    pub fn needs_on_host(self) -> Option<&'static str> {
        match self {
            Metric::Scheduler => Some("a host whose CPUs perf_event may sample"),
            Metric::Misses | Metric::MissesOutsideScheduler => Some("a host with hardware counters of cache misses"),
            _ => None,
        }
    }

    /// Why this host cannot measure it, with the setting that would permit it; `None` if it can.
    pub fn lacking_on(self, host: &Machine) -> Option<&str> {
        match self {
            Metric::Scheduler => host.no_scheduler_samples.as_deref(),
            Metric::Misses | Metric::MissesOutsideScheduler => host.no_cache_misses.as_deref(),
            _ => None,
        }
    }

    /// The label of its axis.
    pub fn label(self) -> &'static str {
        match self {
            Metric::Throughput => "Mb/s",
            Metric::Frames => "kilo frames/s",
            Metric::Failures => "% of acquisitions that do not succeed immediately",
            Metric::Misses => "L2 misses/KB",
            Metric::MissesOutsideScheduler => "misses/KB outside the scheduler",
            Metric::Scheduler => "scheduler cycles/KB",
            Metric::SpeedUp => "speed-up",
            Metric::VoluntarySwitches => "voluntary switches",
            Metric::InvoluntarySwitches => "involuntary switches",
            Metric::LockTime => "time for locks, ms",
            Metric::OutOfOrder => "% of segments out of order at TCP",
            Metric::Inversions => "% of packets out of order at the application",
            Metric::Waiting => "% of the processors' time",
            Metric::Fairness => "fairness between connections (Jain)",
        }
    }

    /// Its unit after a number.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Throughput => "Mb/s",
            Metric::Frames => "kfps",
            Metric::Failures | Metric::OutOfOrder | Metric::Inversions | Metric::Waiting => "%",
            Metric::Misses | Metric::MissesOutsideScheduler => "misses/KB",
            Metric::Scheduler => "cycles/KB",
            Metric::SpeedUp => "times",
            Metric::VoluntarySwitches | Metric::InvoluntarySwitches => "switches",
            Metric::LockTime => "ms",
            Metric::Fairness => "index",
        }
    }
}

/// The horizontal axis of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Axis {
    /// Connections; a line for each subject.
    #[default]
    Connections,
    /// Groups of the subjects that have some; a line for each number of connections.
    Groups,
    /// Processors, with the figure's `connections`; a line for each subject. Loads are processors then.
    Processors,
    /// Bytes of a frame; a line for each subject, which states its processors.
    FrameBytes,
    /// Bytes of payload in a packet, with the figure's `connections`; a line for each subject.
    PacketBytes,
    /// Interfaces of the simulated machine, with the figure's `connections`; a line for each subject.
    Interfaces,
}

impl Axis {
    /// Whether a figure with this axis has one number of connections.
    pub fn has_connections(self) -> bool {
        matches!(self, Axis::Processors | Axis::PacketBytes | Axis::Interfaces)
    }

    /// What the loads of a figure are.
    pub fn loads(self) -> &'static str {
        match self {
            Axis::Processors => "processors",
            Axis::FrameBytes | Axis::PacketBytes => "bytes",
            Axis::Interfaces => "interfaces",
            Axis::Connections | Axis::Groups => "connections",
        }
    }
}

/// A figure or table of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its name on the command line, after the paper's and a dot.
    pub id: String,
    /// Number and title.
    pub title: String,
    /// Where in the paper.
    pub place: String,
    /// The quantity that it measures; `None` if it cannot be run yet.
    pub metric: Option<Metric>,
    /// Its horizontal axis.
    #[serde(default)]
    pub axis: Axis,
    /// Connections, where loads are something else ([`Axis::has_connections`]).
    #[serde(default)]
    pub connections: u32,
    /// Names of the subjects that it shows.
    #[serde(default)]
    pub subjects: Vec<String>,
    /// Loads of a quick run, and of every claim: numbers of connections, or what the axis says.
    #[serde(default)]
    pub loads: Vec<u32>,
    /// Loads of a full run, if there are more.
    #[serde(default)]
    full: Vec<u32>,
    /// Numbers of `rows` to which the simulated machine was fitted, as `SUBJECT @ LOAD`.
    #[serde(default)]
    fitted: Vec<String>,
    /// Numbers that the paper gives.
    #[serde(default, rename = "value")]
    values: Vec<PaperValue>,
    /// Numbers of a table by subject, one for each load.
    #[serde(default, rename = "row")]
    rows: BTreeMap<String, Vec<f64>>,
    /// Numbers of the paper that nothing here measures, as a table of text.
    pub stated: Option<Stated>,
    /// What the paper shows step by step, beside the same steps as a debug build recorded them.
    pub sequence: Option<Sequence>,
    /// Why it cannot run on this host, if it runs on the simulated machine.
    pub host: Option<String>,
    /// Why it cannot run on the simulated machine, if it runs on this host.
    pub simulated: Option<String>,
    /// The missing parts without which it cannot run at all.
    pub missing: Option<String>,
    /// A paragraph: the result and its cause.
    pub explains: String,
}

/// A number of the paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperValue {
    /// The name of the subject that was measured.
    pub subject: String,
    /// Connections.
    pub at: u32,
    /// The number, in the unit of the figure.
    pub is: f64,
    /// Where in the paper.
    pub place: String,
    /// Whether it was computed from numbers that the paper gives.
    #[serde(default)]
    pub derived: bool,
    /// Whether the simulated machine was fitted to it; without it the preset's points say so.
    pub fitted: Option<bool>,
}

/// A table of text.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stated {
    /// Titles of columns.
    pub head: Vec<String>,
    /// Rows, with as many cells.
    #[serde(rename = "row")]
    pub rows: Vec<Vec<String>>,
}

/// Steps of the paper beside recorded ones. A test of the crate `heddle` records them and writes them into the file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sequence {
    /// The architecture under which they were recorded.
    pub arch: String,
    /// Titles of columns.
    pub head: [String; 2],
    /// The paper's step, and ours up to the same one.
    #[serde(rename = "row")]
    pub rows: Vec<[String; 2]>,
}

/// A claim that the paper's text makes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name: the paper's letter and a number.
    pub id: String,
    /// The figure that it is about.
    pub figure: String,
    /// One line. Our additions are in brackets ("here: ..").
    pub says: String,
    /// Where in the paper.
    pub place: String,
    /// The tests that decide it; none while its figure cannot run.
    #[serde(default)]
    tests: Vec<Test>,
}

/// An error in a data file, or in a name on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataError(String);

impl DataError {
    /// With this sentence.
    pub fn new(sentence: impl fmt::Display) -> DataError {
        DataError(sentence.to_string())
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DataError {}

/// A paper with its selected figures.
#[derive(Clone, Debug)]
pub struct Selected<'a> {
    /// The paper.
    pub paper: &'a Paper,
    /// Its figures, in reading order.
    pub figures: Vec<&'a Figure>,
}

impl Paper {
    /// The papers that come with the crate.
    ///
    /// # Panics
    /// Never: a test reads the files.
    pub fn all() -> Vec<Paper> {
        FILES.iter().map(|text| Paper::parse(text).unwrap_or_else(|error| panic!("{error}"))).collect()
    }

    /// Reads a data file.
    ///
    /// # Errors
    /// The text is not a paper, or contradicts itself; the message names the place.
    pub fn parse(text: &str) -> Result<Paper, DataError> {
        let paper: Paper = toml::from_str(text).map_err(DataError::new)?;
        paper.check()?;
        Ok(paper)
    }

    fn check(&self) -> Result<(), DataError> {
        let wrong = |what: String| Err(DataError(format!("{}: {what}", self.id)));
        let mut names = BTreeSet::new();
        if let Some(twice) = self.figures.iter().map(|figure| &figure.id).find(|id| !names.insert(id.as_str())) {
            return wrong(format!("two figures are called `{twice}`"));
        }
        for figure in &self.figures {
            figure.check(self)?;
        }
        let mut names = BTreeSet::new();
        for claim in &self.claims {
            if !names.insert(claim.id.as_str()) {
                return wrong(format!("two claims are called `{}`", claim.id));
            }
            self.conditions(claim)?;
        }
        Ok(())
    }

    /// The figure of this name.
    pub fn figure(&self, id: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.id == id)
    }

    /// What this host cannot measure of a figure, each with the reason: the whole figure, or subjects and loads that need more
    /// CPUs. None of a figure that runs on no host.
    pub fn left_out(&self, figure: &Figure, host: &Machine) -> Vec<(String, String)> {
        if figure.reason_not_to_run(Place::Host).is_some() {
            return Vec::new();
        }
        if let (Some(metric), Some(reason)) = (figure.metric, figure.lacking_on(host)) {
            return vec![(metric.label().to_owned(), reason.to_owned())];
        }
        let cores = host.cores;
        let subjects = figure.subjects.iter().filter_map(|name| self.subject(name));
        let subjects = subjects.filter_map(|subject| Some((subject.name.clone(), subject.lacks_on_host(cores)?)));
        let lacking = |load: &&u32| figure.lacks_on_host(**load, cores).is_some();
        let loads: Vec<String> = figure.loads(false).iter().filter(lacking).map(u32::to_string).collect();
        let loads = (!loads.is_empty())
            .then(|| (format!("{} {}", loads.join(", "), figure.axis.loads()), format!("this host has {cores}")));
        subjects.chain(loads).collect()
    }

    /// The subject of this name.
    pub fn subject(&self, name: &str) -> Option<&Subject> {
        self.subjects.iter().find(|subject| subject.name == name)
    }

    /// The conditions that decide a claim; none while its figure cannot run.
    ///
    /// # Errors
    /// The claim is about a figure, a subject or a load that does not exist.
    pub fn conditions(&self, claim: &Claim) -> Result<Vec<Condition>, DataError> {
        let wrong = |what: String| DataError(format!("{}, claim {}: {what}", self.id, claim.id));
        let figure = self.figure(&claim.figure);
        let figure = figure.ok_or_else(|| wrong(format!("there is no figure `{}`", claim.figure)))?;
        if claim.tests.is_empty() && figure.metric.is_some() {
            return Err(wrong(format!("`{}` runs, but no test uses it", claim.figure)));
        }
        let mut conditions = Vec::new();
        for test in &claim.tests {
            conditions.extend(test.conditions().map_err(&wrong)?);
        }
        for term in conditions.iter().flat_map(Condition::terms) {
            let (subject, at) = (&term.subject, term.connections);
            if !figure.subjects.contains(subject) || !figure.loads.contains(&at) {
                return Err(wrong(format!("`{}` has no value of {subject} at {at}", figure.id)));
            }
        }
        Ok(conditions)
    }

    /// The papers and figures that are named, each as `PAPER` or `PAPER.FIGURE`, or all.
    ///
    /// # Errors
    /// A name is unknown: the message lists the valid names.
    pub fn select<'a>(papers: &'a [Paper], ids: &[String]) -> Result<Vec<Selected<'a>>, DataError> {
        if let Some(unknown) = ids.iter().find(|id| *id != "all" && !papers.iter().any(|paper| paper.is_named(id))) {
            let known: Vec<&str> = papers.iter().map(|paper| paper.id.as_str()).collect();
            let figure = unknown.split_once('.').and_then(|(paper, _)| papers.iter().find(|known| known.id == paper));
            return Err(DataError(match figure {
                Some(paper) => {
                    format!("{} has no figure `{unknown}`; there are {}", paper.id, paper.names().join(", "))
                }
                None => format!(
                    "no paper is called `{unknown}`; there are {}, and all (`heddle paper list` has their figures)",
                    known.join(", ")
                ),
            }));
        }
        let wanted = |paper: &Paper, name: &str| ids.iter().any(|id| id == "all" || *id == paper.id || id == name);
        let select = |paper: &'a Paper| {
            let names = paper.names();
            let figures: Vec<&Figure> = paper
                .figures
                .iter()
                .zip(&names)
                .filter(|(_, name)| wanted(paper, name))
                .map(|(figure, _)| figure)
                .collect();
            (!figures.is_empty()).then_some(Selected { paper, figures })
        };
        Ok(papers.iter().filter_map(select).collect())
    }

    /// The names of its figures on the command line.
    pub fn names(&self) -> Vec<String> {
        self.figures.iter().map(|figure| format!("{}.{}", self.id, figure.id)).collect()
    }

    fn is_named(&self, id: &str) -> bool {
        id == self.id || self.names().iter().any(|name| name == id)
    }
}

impl Figure {
    fn check(&self, paper: &Paper) -> Result<(), DataError> {
        let wrong = |what: String| Err(DataError(format!("{}.{}: {what}", paper.id, self.id)));
        if let Some(unknown) = self.subjects.iter().find(|name| paper.subject(name).is_none()) {
            return wrong(format!("there is no subject `{unknown}`"));
        }
        let kinds = [self.metric.is_some(), self.sequence.is_some(), self.missing.is_some()];
        if kinds.into_iter().filter(|is| *is).count() != 1 {
            return wrong("a figure has a metric, or a sequence, or a sentence on what is missing".to_owned());
        }
        if self.axis.has_connections() != (self.connections > 0) {
            return wrong("a figure over anything but connections and frames has a number of connections".to_owned());
        }
        if self.metric == Some(Metric::SpeedUp) && (self.axis != Axis::Processors || !self.loads.contains(&1)) {
            return wrong("a speed-up needs the throughput of one processor".to_owned());
        }
        if self.metric.is_some() && (self.loads.is_empty() || self.subjects.is_empty()) {
            return wrong("it runs, but without subjects or loads".to_owned());
        }
        if let Some(unknown) = self.fitted.iter().find(|name| !self.is_cell(name)) {
            return wrong(format!("nothing was fitted to `{unknown}`, which is in no row"));
        }
        if let Some((name, row)) = self.rows.iter().find(|(_, row)| row.len() != self.loads.len()) {
            return wrong(format!("the row of {name} has {} numbers for {} loads", row.len(), self.loads.len()));
        }
        let values = self.values();
        let out = |value: &&PaperValue| !self.subjects.contains(&value.subject) || !self.loads.contains(&value.at);
        if let Some(value) = values.iter().find(out) {
            return wrong(format!("no figure measures {} at {}", value.subject, value.at));
        }
        match &self.stated {
            Some(stated) if stated.rows.iter().any(|row| row.len() != stated.head.len()) => {
                wrong("a row of its table is as long as no other".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Whether it is a number of a row, as `SUBJECT @ LOAD`.
    fn is_cell(&self, name: &str) -> bool {
        let cell = |(subject, load): (&str, &str)| {
            self.rows.contains_key(subject) && load.parse().is_ok_and(|load| self.loads.contains(&load))
        };
        name.split_once(" @ ").is_some_and(cell)
    }

    /// The numbers that the paper gives, each with its place.
    pub fn values(&self) -> Vec<PaperValue> {
        let cells = self.rows.iter().flat_map(|(subject, row)| {
            self.loads.iter().zip(row).map(|(&at, &is)| {
                let (subject, place) = (subject.clone(), self.title.split(':').next().unwrap_or_default().to_owned());
                // Without a list the preset's points say so.
                let fitted = (!self.fitted.is_empty()).then(|| self.fitted.contains(&format!("{subject} @ {at}")));
                PaperValue { subject, at, is, place, derived: false, fitted }
            })
        });
        self.values.iter().cloned().chain(cells).collect()
    }

    /// Numbers of connections of a run.
    pub fn loads(&self, full: bool) -> &[u32] {
        if full && !self.full.is_empty() { &self.full } else { &self.loads }
    }

    /// The same on a host with so many CPUs. Where loads are processors, those that it has, and all of its own if the
    /// figure has that number at all.
    pub fn loads_on_host(&self, full: bool, cores: usize) -> BTreeSet<u32> {
        let own = self.full.iter().filter(|_| self.axis == Axis::Processors).filter(|load| **load as usize == cores);
        self.loads(full).iter().filter(|load| self.lacks_on_host(**load, cores).is_none()).chain(own).copied().collect()
    }

    /// Why a load cannot be measured on a host with so many CPUs; `None` if it can.
    pub fn lacks_on_host(&self, load: u32, cores: usize) -> Option<String> {
        let lacks = self.axis == Axis::Processors && load as usize > cores;
        lacks.then(|| needs(load, cores))
    }

    /// Connections and processors of a subject at a load, on a machine with so many processors. A bridge has no connection.
    pub fn point(&self, subject: &Subject, load: u32, all: u32) -> (u32, u32) {
        match self.axis {
            Axis::Processors => (self.connections, load),
            Axis::FrameBytes => (0, subject.processors.unwrap_or(all)),
            Axis::PacketBytes | Axis::Interfaces => (self.connections, subject.processors.unwrap_or(all)),
            Axis::Connections | Axis::Groups => (load, subject.processors.unwrap_or(all)),
        }
    }

    /// What a subject runs at a load.
    pub fn workload(&self, subject: &Subject, load: u32) -> String {
        let own = &subject.workload;
        match self.axis {
            Axis::FrameBytes | Axis::PacketBytes => format!("{own}+{BYTES}{load}"),
            Axis::Interfaces if own.is_empty() => format!("{CARDS}{load}"),
            Axis::Interfaces => format!("{own}+{CARDS}{load}"),
            Axis::Connections | Axis::Groups | Axis::Processors => own.clone(),
        }
    }

    /// Why this host cannot measure it though others can; `None` if it can.
    pub fn lacking_on<'a>(&self, host: &'a Machine) -> Option<&'a str> {
        self.metric.and_then(|metric| metric.lacking_on(host))
    }

    /// Why it does not run there; `None` if it does.
    pub fn reason_not_to_run(&self, on: Place) -> Option<&str> {
        if self.sequence.is_some() {
            return Some("recorded, not measured");
        }
        let there = match on {
            Place::Vsmp => &self.simulated,
            Place::Host => &self.host,
        };
        self.missing.as_deref().or(there.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_read_and_every_claim_is_about_something() {
        let papers = Paper::all();
        assert_eq!(
            papers.iter().map(|paper| paper.id.as_str()).collect::<Vec<_>>(),
            ["willmann", "schmidt", "nahum", "netbsd", "yates"]
        );
        let claims: usize = papers.iter().map(|paper| paper.claims.len()).sum();
        assert!(claims >= 60, "{claims} claims");
        let willmann = &papers[0];
        let decided = willmann.claims.iter().filter(|claim| !willmann.conditions(claim).unwrap().is_empty()).count();
        assert!(decided >= 30, "{decided} claims have tests");
    }

    #[test]
    fn the_numbers_are_those_of_the_paper() {
        let papers = Paper::all();
        let number = |figure: &str, subject: &str, at| {
            let values = papers[0].figure(figure).unwrap().values();
            values.iter().find(|value| value.subject == subject && value.at == at).map(|value| value.is)
        };
        assert_eq!(number("fig2", "ConnP-L(128)", 16_384), Some(4747.0));
        assert_eq!(number("tab1", "ConnP-L(16)", 192), Some(18.0));
        assert_eq!(number("tab2", "MsgP", 6), Some(37.29));
        assert_eq!(number("tab3", "ConnP-T(4)", 16_384), Some(4535.38));
        assert_eq!(number("fig2", "UP", 192), None, "the text does not say it");
    }

    /// The presets of the simulator have the same numbers, too, beside the values fitted to them.
    #[test]
    fn the_simulators_points_agree() {
        let papers = Paper::all();
        let preset = vsmp::Preset::named(&papers[0].machine).unwrap();
        let mut compared = 0;
        for figure in &papers[0].figures {
            for value in figure.values() {
                let subject = papers[0].subject(&value.subject).unwrap();
                let Some(point) = preset.point(subject.simulated.as_deref().unwrap(), value.at as usize) else {
                    continue;
                };
                let theirs = match figure.metric.unwrap() {
                    Metric::Throughput => point.megabits,
                    Metric::Failures => point.failures,
                    Metric::Misses => point.misses,
                    Metric::Scheduler => point.scheduler,
                    _ => None,
                };
                if let Some(theirs) = theirs {
                    assert!(
                        (theirs - value.is).abs() < 0.6,
                        "{}: {} at {}: {theirs}",
                        figure.id,
                        value.subject,
                        value.at
                    );
                    compared += 1;
                }
            }
        }
        assert!(compared > 40, "{compared} numbers compared");
    }

    #[test]
    fn a_claim_about_nothing_is_refused_by_name() {
        let text = FILES[0];
        let refused = |from: &str, to: &str| {
            assert!(text.contains(from));
            Paper::parse(&text.replacen(from, to, 1)).unwrap_err().to_string()
        };
        let claim = "id = \"W01\"\nfigure = \"fig2\"";
        assert_eq!(refused(claim, "id = \"W01\"\nfigure = \"fig9\""), "willmann, claim W01: there is no figure `fig9`");
        assert_eq!(
            refused("value = \"UP @ 6\", near", "value = \"UP @ 7\", near"),
            "willmann, claim W01: `fig2` has no value of UP at 7"
        );
        assert_eq!(
            refused("value = \"UP @ 6\", near", "value = \"Up @ 6\", near"),
            "willmann, claim W01: `fig2` has no value of Up at 6"
        );
        assert_eq!(refused("id = \"W02\"", "id = \"W01\""), "willmann: two claims are called `W01`");
        assert_eq!(refused("[89, 100, 100]", "[89, 100]"), "willmann.tab1: the row of MsgP has 2 numbers for 3 loads");
        assert!(refused("near = 4034", "nearly = 4034").contains("nearly"), "an unknown word");
    }

    #[test]
    fn names_select_papers_and_figures() {
        let papers = Paper::all();
        let select = |ids: &[&str]| Paper::select(&papers, &ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
        let count =
            |ids: &[&str]| select(ids).unwrap().iter().map(|selected| selected.figures.len()).collect::<Vec<_>>();
        assert_eq!(count(&["willmann.fig2", "willmann.tab1"]), [2]);
        assert_eq!(count(&["nahum", "willmann.fig2"]), [1, 14]);
        assert_eq!(count(&["all"]).len(), 5);
        let said = select(&["wilmann"]).unwrap_err().to_string();
        assert_eq!(
            said,
            "no paper is called `wilmann`; there are willmann, schmidt, nahum, netbsd, yates, and all (`heddle paper list` has \
             their figures)"
        );
        let said = select(&["nahum.fig2"]).unwrap_err().to_string();
        assert!(said.starts_with("nahum has no figure `nahum.fig2`; there are nahum.locking, "), "{said}");
    }
}
