//! Which points a selection of figures needs, in which order, and how long that takes.
//!
//! On the simulated machine every point stands alone: all points of the first seed come first, so that a stopped run
//! has whole figures with fewer seeds. On the host all subjects of a load are measured in turn in the same seconds, so
//! a load is planned as a whole, with every subject of the paper that has this load, whichever figures were selected.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use lab::machine::Machine;
use serde::{Deserialize, Serialize};
use vsmp::Preset;

use crate::data::{Axis, DataError, Figure, Metric, Paper, Selected, Subject};
use crate::point::{Place, Point};
use crate::store::Store;

/// The extent of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// All loads of each figure.
    pub full: bool,
    /// Seeds of each point, and rounds on the host.
    pub seeds: u64,
}

impl Effort {
    /// Minutes: the loads that claims are about, three seeds.
    pub const QUICK: Effort = Effort { full: false, seeds: 3 };
    /// An hour or more.
    pub const FULL: Effort = Effort { full: true, seeds: 10 };

    /// Length of a measurement on the host, in milliseconds.
    pub fn slice_ms(self) -> u64 {
        if self.full { 2000 } else { 250 }
    }
}

/// Length of a trial of a bridge on the host, in milliseconds. A longer one is interrupted more often, and loses frames.
const TRIAL_MS: u64 = 20;
/// The same in a quick run, in which a search takes a second.
const QUICK_TRIAL_MS: u64 = 10;
/// Length of a run of packets on the host in a quick run, in milliseconds, without its warm-up. It has hundreds of thousands of
/// packets, and a paper has many subjects.
const PACKETS_MS: u64 = 100;
/// Trials of a search for the throughput of a bridge, roughly, with those that are repeated.
const TRIALS: f64 = 50.0;

/// A load of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLoad {
    /// Its name in the paper.
    pub name: LoadName,
    /// A point of each subject, in the first round.
    pub points: Vec<Point>,
    /// Architectures that are measured a second time with samples of the CPUs, where they send bulk data as in the figures that
    /// show these.
    pub sampled: BTreeSet<String>,
    /// Subjects that are measured a second time with timed locks, for figures that show waits: architecture, workload and CPUs.
    timed: BTreeSet<(String, String, u32)>,
}

/// A load of a paper, on any host: how much, of what the axis of its figures has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LoadName {
    /// [`Axis::Connections`] for figures over groups as well: their loads are connections.
    axis: Axis,
    number: u32,
}

impl LoadName {
    /// A load of a figure with this axis.
    pub fn new(axis: Axis, number: u32) -> LoadName {
        LoadName { axis: if axis == Axis::Groups { Axis::Connections } else { axis }, number }
    }
}

impl fmt::Display for LoadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadName { axis, number } = self;
        let noun = axis.loads();
        match axis {
            Axis::FrameBytes => write!(f, "frames of {number} {noun}"),
            Axis::PacketBytes => write!(f, "packets of {number} {noun}"),
            _ if *number == 1 => write!(f, "1 {}", noun.trim_end_matches('s')),
            _ => write!(f, "{number} {noun}"),
        }
    }
}

/// The measurements to make.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Points of the simulated machine, in order.
    pub simulated: Vec<Point>,
    /// Loads of the host, the smallest first.
    pub host: Vec<HostLoad>,
    /// Rounds of each load of the host.
    pub rounds: u64,
}

/// The name of a host in a point.
pub fn host_name(machine: &Machine) -> String {
    format!("{}, {} CPUs, Linux {}", machine.cpu_model, machine.cores, machine.kernel)
}

impl Plan {
    /// The points of the figures that run there.
    ///
    /// # Errors
    /// A paper's machine has no preset.
    pub fn new(selected: &[Selected<'_>], on: &[Place], effort: Effort, host: &Machine) -> Result<Plan, DataError> {
        let mut plan = Plan { rounds: effort.seeds, ..Plan::default() };
        if on.contains(&Place::Vsmp) {
            let mut points = BTreeSet::new();
            for selection in selected {
                simulated(selection, effort, &mut points)?;
            }
            plan.simulated = points.into_iter().map(|(_, _, point)| point).collect();
        }
        if on.contains(&Place::Host) {
            for selection in selected {
                plan.host.extend(loads(selection, effort, host)?);
            }
        }
        Ok(plan)
    }

    /// Its points that the store does not have.
    pub fn missing(&self, store: &Store) -> Plan {
        let simulated = self.simulated.iter().filter(|point| !store.has(point)).cloned().collect();
        let host = self.host.iter().filter(|load| load.rounds(store) < self.rounds).cloned().collect();
        Plan { simulated, host, rounds: self.rounds }
    }

    /// Whether there is nothing to measure.
    pub fn is_empty(&self) -> bool {
        self.simulated.is_empty() && self.host.is_empty()
    }

    /// The duration with this many simulations at a time: an estimate, corrected by the durations of the store's
    /// points.
    pub fn estimate(&self, store: &Store, jobs: usize) -> Duration {
        let done = store.samples().iter().filter(|sample| sample.point.on == Place::Vsmp);
        let (took, guessed) =
            done.fold((0.0, 0.0), |(took, guessed), sample| (took + sample.seconds, guessed + guess(&sample.point)));
        let correction = if guessed > 0.0 { took / guessed } else { 1.0 };
        let simulated: f64 = self.simulated.iter().map(guess).sum::<f64>() * correction / jobs.max(1) as f64;
        let host: f64 =
            self.host.iter().map(|load| load.seconds(self.rounds - load.rounds(store).min(self.rounds))).sum();
        Duration::from_secs_f64(simulated + host)
    }
}

/// Seconds of a simulated point on a quiet host, roughly.
pub(crate) fn guess(point: &Point) -> f64 {
    0.5 + 0.0004 * f64::from(point.connections)
}

/// Points by seed, then by load.
fn simulated(
    selection: &Selected<'_>,
    effort: Effort,
    points: &mut BTreeSet<(u64, u32, Point)>,
) -> Result<(), DataError> {
    let Selected { paper, figures } = selection;
    let preset = Preset::named(&paper.machine).map_err(DataError::new)?;
    for figure in figures.iter().filter(|figure| figure.reason_not_to_run(Place::Vsmp).is_none()) {
        let subjects = figure.subjects.iter().filter_map(|name| paper.subject(name));
        for (arch, subject) in subjects.filter_map(|subject| Some((subject.simulated.as_ref()?, subject))) {
            let preset =
                subject.machine.as_deref().map_or(Ok(preset.clone()), Preset::named).map_err(DataError::new)?;
            for &load in figure.loads(effort.full) {
                let (connections, cpus) = figure.point(subject, load, preset.cpus as u32);
                let workload = figure.workload(subject, load);
                points.extend((1..=effort.seeds).map(|seed| {
                    let machine = subject.machine.as_ref().unwrap_or(&paper.machine).clone();
                    let lock = preset.habits.lock_kind.to_string();
                    let (on, arch, workload) = (Place::Vsmp, arch.clone(), workload.clone());
                    (
                        seed,
                        connections,
                        Point { on, machine, arch, connections, cpus, lock, slice_ms: 0, workload, seed },
                    )
                }));
            }
        }
    }
    Ok(())
}

/// The loads of the selected figures, each with every subject of the paper that has this load in any figure and enough
/// CPUs on the host.
fn loads(selection: &Selected<'_>, effort: Effort, host: &Machine) -> Result<Vec<HostLoad>, DataError> {
    let mut all = all_loads(selection.paper, effort, host)?;
    let wanted = loads_of_host(selection, effort, Some(host));
    Ok(wanted.into_iter().filter_map(|name| all.remove(&name)).collect())
}

/// The loads of the selected figures that run on this host, or, without one, on any host.
pub fn loads_of_host(selection: &Selected<'_>, effort: Effort, host: Option<&Machine>) -> BTreeSet<LoadName> {
    let lacks = |figure: &Figure| host.is_some_and(|host| figure.lacking_on(host).is_some());
    let runs = |figure: &Figure| figure.reason_not_to_run(Place::Host).is_none() && !lacks(figure);
    let runs = selection.figures.iter().copied().filter(|figure| runs(figure));
    let cores = host.map_or(usize::MAX, |host| host.cores);
    let of_figure = |figure: &Figure| {
        let axis = figure.axis;
        figure.loads_on_host(effort.full, cores).into_iter().map(move |number| LoadName::new(axis, number))
    };
    runs.flat_map(of_figure).collect()
}

/// A load of a paper on this host; `None` if no figure of the paper has it there.
///
/// # Errors
/// The paper's machine has no preset.
pub fn load_of_host(
    paper: &Paper,
    name: LoadName,
    effort: Effort,
    host: &Machine,
) -> Result<Option<HostLoad>, DataError> {
    Ok(all_loads(paper, effort, host)?.remove(&name))
}

/// The loads of a paper on a host.
fn all_loads(paper: &Paper, effort: Effort, host: &Machine) -> Result<BTreeMap<LoadName, HostLoad>, DataError> {
    let preset = Preset::named(&paper.machine).map_err(DataError::new)?;
    let point = |figure: &Figure, subject: &Subject, load: u32| {
        let (connections, cpus) = figure.point(subject, load, host.cores as u32);
        Some(Point {
            on: Place::Host,
            machine: host_name(host),
            arch: subject.host.clone().filter(|_| subject.lacks_on_host(host.cores).is_none())?,
            connections,
            cpus,
            lock: preset.habits.lock_kind.to_string(),
            slice_ms: effort.slice_ms(),
            workload: figure.workload(subject, load),
            seed: 1,
        })
    };
    let sliced = |point: Point| {
        let slice_ms = match point.frame_bytes() {
            Some(_) if effort.full => TRIAL_MS,
            Some(_) => QUICK_TRIAL_MS,
            None if point.has_packets() && !effort.full => PACKETS_MS,
            None => point.slice_ms,
        };
        Point { slice_ms, ..point }
    };
    let mut loads: BTreeMap<LoadName, HostLoad> = BTreeMap::new();
    for figure in paper.figures.iter().filter(|figure| figure.reason_not_to_run(Place::Host).is_none()) {
        let sampled = figure.metric.is_some_and(Metric::is_of_sampled_cpus) && figure.lacking_on(host).is_none();
        for load in figure.loads_on_host(effort.full, host.cores) {
            let name = LoadName::new(figure.axis, load);
            let of_load = loads.entry(name).or_insert_with(|| HostLoad::new(name));
            let subjects = figure.subjects.iter().filter_map(|name| paper.subject(name));
            for point in subjects.filter_map(|subject| point(figure, subject, load)).map(sliced) {
                if sampled {
                    of_load.sampled.insert(point.arch.clone());
                }
                if figure.metric.is_some_and(Metric::is_of_timed_locks) {
                    of_load.timed.insert((point.arch.clone(), point.workload.clone(), point.cpus));
                }
                if !of_load.points.contains(&point) {
                    of_load.points.push(point);
                }
            }
        }
    }
    Ok(loads)
}

impl HostLoad {
    fn new(name: LoadName) -> HostLoad {
        HostLoad { name, points: Vec::new(), sampled: BTreeSet::new(), timed: BTreeSet::new() }
    }

    /// Whether a point is measured a second time with samples of the CPUs.
    pub fn is_sampled(&self, point: &Point) -> bool {
        point.workload.is_empty() && self.sampled.contains(&point.arch)
    }

    /// Whether a point of any round is measured a second time with timed locks.
    pub fn is_timed(&self, point: &Point) -> bool {
        self.timed
            .iter()
            .any(|(arch, workload, cpus)| (arch, workload, *cpus) == (&point.arch, &point.workload, point.cpus))
    }

    /// Connections; 0 of a bridge.
    pub fn connections(&self) -> u32 {
        self.points.first().map_or(0, |point| point.connections)
    }

    /// Rounds that are run and thrown away: with thousands of connections each is served rarely, so its slow start takes
    /// longer. The search of a bridge begins with a trial that counts for nothing else, and a run of packets with a warm-up.
    pub fn warm_ups(&self) -> u64 {
        let warms_up = |point: &Point| point.frame_bytes().is_some() || point.has_packets();
        if self.points.iter().all(warms_up) { 0 } else { 1 + u64::from(self.connections() / 4096) }
    }

    /// Its points in a round.
    pub fn round(&self, round: u64) -> Vec<Point> {
        self.points.iter().map(|point| Point { seed: round, ..point.clone() }).collect()
    }

    /// Rounds that the store has of every subject.
    pub fn rounds(&self, store: &Store) -> u64 {
        (1..=self.last(store)).filter(|round| self.round(*round).iter().all(|point| store.has(point))).count() as u64
    }

    /// The last round with a sample in the store: further rounds begin after it.
    pub fn last(&self, store: &Store) -> u64 {
        let own = |sample: &&crate::point::Sample| {
            self.points.iter().any(|point| *point == Point { seed: 1, ..sample.point.clone() })
        };
        store.samples().iter().filter(own).map(|sample| sample.point.seed).max().unwrap_or(0)
    }

    /// Seconds of some rounds: slices with a warm-up, and opening.
    fn seconds(&self, rounds: u64) -> f64 {
        let runs = |point: &Point| {
            let again = [self.is_timed(point), self.is_sampled(point)].into_iter().filter(|again| *again).count();
            1.0 + again as f64
        };
        let passes = |point: &Point| match point.frame_bytes() {
            Some(_) => TRIALS,
            // Each run has a warm-up.
            None if point.has_packets() => 1.25 * runs(point),
            None => runs(point),
        };
        let slice = |point: &Point| point.measured_ms() as f64 / 1e3 * passes(point);
        let slices: f64 = self.points.iter().map(slice).sum();
        let opening = self.points.len() as f64 * (0.2 + 2e-4 * f64::from(self.connections()));
        slices * (rounds + self.warm_ups()) as f64 + opening
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::sample;
    use lab::machine::Probe;

    fn plan(ids: &[&str], effort: Effort) -> Plan {
        let papers = Paper::all();
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let selected = Paper::select(&papers, &ids).unwrap();
        Plan::new(&selected, &Place::ALL, effort, &Probe::start().finish()).unwrap()
    }

    #[test]
    fn figures_share_points_and_the_first_seed_comes_first() {
        let both = plan(&["willmann.fig2", "willmann.tab2"], Effort::QUICK);
        let alone = plan(&["willmann.fig2"], Effort::QUICK);
        assert_eq!(both.simulated, alone.simulated, "table 2 has no point of its own");
        assert_eq!(alone.simulated.len(), 4 * 6 * 3);
        assert!(alone.simulated.windows(2).all(|pair| pair[0].seed <= pair[1].seed));
        let more = plan(&["willmann"], Effort::QUICK);
        // Figure 2; table 1 has five further numbers of groups; jumbo frames and offload; one, three and six interfaces.
        assert_eq!(more.simulated.len(), (4 * 6 + 5 * 3 + 8 + 4 * 3) * 3);
        assert!(plan(&["willmann"], Effort::FULL).simulated.len() > 5 * more.simulated.len());
    }

    /// Packets: the loads are processors, and the workload of a subject is in its points.
    #[test]
    fn a_figure_over_processors_has_points_of_each() {
        let points = plan(&["nahum.receive"], Effort::QUICK).simulated;
        let of = |cpus| points.iter().filter(|point| point.cpus == cpus && point.connections == 1).count();
        assert_eq!((points.len(), [1, 4, 8].map(of)), (4 * 3 * 3, [12; 3]));
        assert!(points.iter().any(|point| point.workload == "packets-receive+checksum+locks=mcs"), "{points:?}");
    }

    #[test]
    fn a_load_of_the_host_has_every_subject_whatever_was_asked_for() {
        let loads = plan(&["willmann.tab1"], Effort::QUICK).host;
        assert_eq!(loads.iter().map(HostLoad::connections).collect::<Vec<_>>(), [6, 192, 16_384]);
        // Figure 3 has the kernel besides, in its own loads.
        assert_eq!(loads.iter().map(|load| load.points.len()).collect::<Vec<_>>(), [12, 20, 9], "{loads:?}");
        let lengths = loads[0].points.iter().filter(|point| point.arch == "linux").map(Point::measured_ms);
        assert_eq!(lengths.collect::<Vec<_>>(), [250, 250, 9 * 250]);
    }

    /// Table 3 asks for samples of its four subjects where the host permits them, and for nothing where it does not.
    #[test]
    fn a_table_of_samples_is_planned_where_the_host_permits_them() {
        let papers = Paper::all();
        let selected = Paper::select(&papers, &["willmann.tab3".to_owned()]).unwrap();
        let loads = |no_scheduler_samples: Option<&str>| {
            let no_scheduler_samples = no_scheduler_samples.map(str::to_owned);
            let host =
                Machine { no_scheduler_samples, no_cache_misses: Some("none".to_owned()), ..Probe::start().finish() };
            Plan::new(&selected, &[Place::Host], Effort::QUICK, &host).unwrap().host
        };
        let permitted = loads(None);
        let sampled = |load: &HostLoad| load.points.iter().filter(|point| load.is_sampled(point)).count();
        assert_eq!(permitted.iter().map(sampled).collect::<Vec<_>>(), [4, 4, 4]);
        assert!(permitted[1].points.iter().any(|point| point.workload == "offload" && !permitted[1].is_sampled(point)));
        assert_eq!(loads(Some("not permitted")), []);
    }

    /// Sizes of packets and interfaces are words of the workload, with all processors of the paper's machine.
    /// Figure 9 of Schmidt and Suda has the presentation layer; Yates et al. show no wait.
    #[test]
    fn locks_are_timed_where_a_figure_shows_waits() {
        let timed = |paper: &str| {
            let loads = plan(&[paper], Effort::QUICK).host;
            let points = loads.iter().flat_map(|load| load.round(2).into_iter().map(move |point| (load, point)));
            let timed = points.filter(|(load, point)| load.is_timed(point));
            timed.map(|(_, point)| (point.workload, point.connections)).collect::<BTreeSet<_>>()
        };
        assert_eq!(timed("schmidt"), BTreeSet::from([("messages+xdr".to_owned(), 20)]));
        assert_eq!(timed("yates"), BTreeSet::new());
        assert_eq!(timed("nahum").iter().map(|(_, connections)| *connections).collect::<BTreeSet<_>>(), [1].into());
    }

    #[test]
    fn loads_that_are_words_of_the_workload_have_the_figures_connections() {
        let points = |figure: &str| plan(&[figure], Effort { full: false, seeds: 1 }).simulated;
        let sizes = points("nahum.sizes");
        assert!(sizes.iter().all(|point| (point.connections, point.cpus) == (1, 8)), "{sizes:?}");
        let udp = sizes.iter().filter(|point| point.workload.starts_with("packets-send+udp+bytes="));
        assert_eq!(udp.map(|point| point.bytes().unwrap()).collect::<Vec<_>>(), [1024, 256, 4096], "in order of words");
        let interfaces = points("willmann.interfaces");
        assert!(interfaces.iter().all(|point| (point.connections, point.cpus) == (192, 4)), "{interfaces:?}");
        assert_eq!(interfaces.iter().filter(|point| point.workload == "cards=3").count(), 4);
        assert_eq!(interfaces.len(), 4 * 3);
    }

    /// All cells of a table and one step of interrupts. A host has those of as many processors as it has.
    #[test]
    fn a_bridge_has_a_point_for_each_cell_and_the_host_leaves_out_what_needs_more_processors() {
        assert_eq!(plan(&["netbsd"], Effort::QUICK).simulated.len(), (5 * 11 + 1) * 3);
        let papers = Paper::all();
        let selected = Paper::select(&papers, &["netbsd.interrupts".to_owned(), "netbsd.tab4".to_owned()]).unwrap();
        let subjects = |cores| {
            let host = Machine { cores, ..Probe::start().finish() };
            let loads = Plan::new(&selected, &[Place::Host], Effort::QUICK, &host).unwrap().host;
            assert_eq!((loads.len(), loads[0].name.to_string()), (11, "frames of 74 bytes".to_owned()));
            let all = loads.iter().flat_map(|load| &load.points);
            assert!(all.clone().all(|point| point.connections == 0 && point.slice_ms == QUICK_TRIAL_MS));
            [&loads[0], &loads[10]].map(|load| load.points.iter().map(|point| point.cpus).collect::<Vec<_>>())
        };
        assert_eq!(subjects(1), [vec![1, 1, 1], vec![1, 1]]);
        assert_eq!(subjects(2), [vec![1, 1, 2, 1], vec![1, 1, 2]]);
        assert_eq!(subjects(8), [vec![1, 1, 2, 4, 8, 1], vec![1, 1, 2, 4, 8]]);
    }

    /// A host has the processors of a quick run that it has, and all of its own. Loads of processors and of connections with
    /// one number are two loads.
    #[test]
    fn loads_of_processors_are_those_that_the_host_has() {
        let papers = Paper::all();
        let selected = Paper::select(&papers, &["schmidt.fig4".to_owned(), "schmidt.fig7".to_owned()]).unwrap();
        let loads = |cores, full| {
            let host = Machine { cores, ..Probe::start().finish() };
            let effort = if full { Effort::FULL } else { Effort::QUICK };
            Plan::new(&selected, &[Place::Host], effort, &host).unwrap().host
        };
        let names = |cores, full| {
            let named = loads(cores, full).into_iter().map(|load| load.name.to_string());
            named.filter(|name| name.contains("processor")).collect::<Vec<_>>()
        };
        assert_eq!(names(1, false), ["1 processor"]);
        assert_eq!(names(2, false), ["1 processor", "2 processors"]);
        assert_eq!(names(2, true), names(2, false));
        assert_eq!(names(9, false), ["1 processor", "4 processors", "8 processors", "9 processors"]);
        assert_eq!(names(64, false).len(), 6, "the figure ends at 20");
        let of_two = loads(2, false);
        let points = |name: &str| {
            let load = of_two.iter().find(|load| load.name.to_string() == name).unwrap();
            load.points.iter().map(|point| (point.connections, point.cpus)).collect::<Vec<_>>()
        };
        assert_eq!(points("1 processor"), [(20, 1); 4]);
        assert_eq!(points("2 processors"), [(20, 2); 4]);
        assert_eq!(points("1 connection"), [(1, 2); 2]);
        assert_eq!(points("20 connections"), [(20, 2); 2]);
    }

    #[test]
    fn what_the_store_has_is_not_measured_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        let plan = plan(&["willmann.fig2"], Effort { full: false, seeds: 2 });
        assert_eq!(plan.missing(&store).simulated, plan.simulated);
        store.append(plan.simulated[1..].iter().map(|point| sample(point.clone(), 1.0)).collect()).unwrap();
        assert_eq!(plan.missing(&store).simulated, plan.simulated[..1]);
        let load = &plan.host[0];
        let round = |round| load.round(round).into_iter().map(|point| sample(point, 1.0));
        // A round of which one subject is missing does not count, and its number is not used again.
        store.append(round(1).chain(round(2).skip(1)).collect()).unwrap();
        assert_eq!((load.rounds(&store), load.last(&store)), (1, 2));
        assert_eq!(plan.missing(&store).host[0], *load);
        store.append(round(3).collect()).unwrap();
        assert_eq!((load.rounds(&store), plan.missing(&store).host.len()), (2, plan.host.len() - 1));
    }

    #[test]
    fn an_estimate_learns_from_what_was_measured() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        let plan = Plan { host: Vec::new(), ..plan(&["willmann.fig2"], Effort::QUICK) };
        let first = plan.estimate(&store, 1);
        assert_eq!(plan.estimate(&store, 2), first / 2);
        let mut slow = sample(plan.simulated[0].clone(), 1.0);
        slow.seconds = 10.0 * guess(&slow.point);
        store.append(vec![slow]).unwrap();
        let ratio = plan.estimate(&store, 1).as_secs_f64() / first.as_secs_f64();
        assert!((ratio - 10.0).abs() < 1e-6, "{ratio}");
    }
}
