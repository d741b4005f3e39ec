//! A paper's figures filled with samples: for each subject and load the paper's number and ours, and the verdict on
//! each claim.
//!
//! All of it is computed from a store's samples; nothing is measured and nothing is written here. The same findings are
//! also written as JSON beside the page.

mod cross_check;

use std::collections::{BTreeMap, BTreeSet};

use lab::machine::{COMMIT, Machine};
use lab::stats::Estimate;
use serde::Serialize;
use vsmp::Preset;

use crate::claim::{Finding, Samples, Term, Verdict};
use crate::data::{Axis, Claim, Figure, Metric, Paper, PaperValue, Subject};
use crate::plan::host_name;
use crate::point::{Place, Point, Sample};

pub use cross_check::CrossCheck;

/// Everything about a paper.
#[derive(Clone, Debug, Serialize)]
pub struct Findings<'a> {
    /// The paper's name.
    pub paper: &'a str,
    /// The commit whose samples these are.
    pub commit: &'static str,
    /// The preset of its machine.
    pub machine: &'a str,
    /// The host, by its name in samples.
    pub host: String,
    /// By figure, in reading order.
    pub figures: Vec<FigureFindings<'a>>,
}

/// A figure with numbers and verdicts.
#[derive(Clone, Debug, Serialize)]
pub struct FigureFindings<'a> {
    /// The figure.
    #[serde(skip)]
    pub figure: &'a Figure,
    /// Its name on the command line.
    pub id: String,
    /// Its unit.
    pub unit: &'static str,
    /// A row for each subject and load that has any number.
    pub rows: Vec<Row<'a>>,
    /// What this host cannot measure though other hosts can, each with the reason: the figure, or its subjects and loads.
    pub left_out: Vec<(String, String)>,
    /// Samples of this host's CPUs beside counts.
    pub cross_checks: Vec<CrossCheck>,
    /// The claims about it.
    pub claims: Vec<ClaimFindings<'a>>,
}

/// A subject at a load.
#[derive(Clone, Debug, Serialize)]
pub struct Row<'a> {
    /// By its name in the paper.
    pub subject: &'a str,
    /// Connections, or what the figure's axis says.
    pub connections: u32,
    /// Groups of the subject.
    pub groups: Option<u32>,
    /// The paper's number.
    pub paper: Option<f64>,
    /// Its place in the paper.
    pub place: Option<String>,
    /// Whether it was computed from other numbers of the paper.
    pub derived: bool,
    /// Whether the simulated machine was fitted to it; `None` where the paper has no number or nothing was fitted to
    /// its kind.
    pub fitted: Option<bool>,
    /// On the simulated machine.
    pub simulated: Option<Ours>,
    /// On this host.
    pub host: Option<Ours>,
}

/// Our number.
#[derive(Clone, Debug, Serialize)]
pub struct Ours {
    /// Mean with its interval.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// By seed, or by round.
    pub samples: BTreeMap<u64, f64>,
    /// Samples whose rate never became steady.
    pub unsteady: usize,
}

/// A claim with its verdicts.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimFindings<'a> {
    /// Its name.
    pub id: &'a str,
    /// In one line.
    pub says: &'a str,
    /// Where in the paper.
    pub place: &'a str,
    /// On the simulated machine.
    pub simulated: Side,
    /// On this host.
    pub host: Side,
}

/// The verdict on a claim from one place's samples.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// The verdict on the whole claim.
    pub verdict: Verdict,
    /// Why it cannot be measured there.
    pub reason: Option<String>,
    /// The verdicts on its conditions.
    pub conditions: Vec<Finding>,
}

/// The samples of one figure at one place.
struct View<'a, 'h> {
    paper: &'a Paper,
    figure: &'a Figure,
    metric: Metric,
    /// Processors of the paper's machine, where that is simulated, or of this host: those of a subject for which the paper
    /// does not state a number.
    processors: u32,
    on: Place,
    host: &'h Machine,
    samples: Vec<&'a Sample>,
}

impl<'a, 'h> View<'a, 'h> {
    /// Samples of the paper's machine, or of its subjects on this host with the longest slices.
    fn new(
        (paper, figure): (&'a Paper, &'a Figure),
        metric: Metric,
        on: Place,
        samples: &'a [Sample],
        host: &'h Machine,
    ) -> View<'a, 'h> {
        let name = host_name(host);
        let is_subject = |point: &Point| {
            let machine = |subject| machine(paper, subject, on).unwrap_or(&name);
            let stands_for = |subject: &Subject| arch(subject, on) == Some(point.arch.as_str());
            paper.subjects.iter().any(|subject| stands_for(subject) && machine(subject) == point.machine)
        };
        let is_own = |point: &Point| point.on == on && is_subject(point);
        let own = || samples.iter().filter(|sample| is_own(&sample.point));
        let slice = own().map(|sample| sample.point.slice_ms).max();
        let preset = if on == Place::Vsmp { Preset::named(&paper.machine).ok() } else { None };
        let processors = preset.map_or(host.cores as u32, |preset| preset.cpus as u32);
        let samples = own().filter(|sample| Some(sample.point.slice_ms) == slice).collect();
        View { paper, figure, metric, processors, on, host, samples }
    }

    /// Seed, value, and whether it was steady.
    fn of(&self, subject: &str, load: u32) -> Vec<(u64, f64, bool)> {
        let values = self.measured(subject, load);
        if self.metric != Metric::SpeedUp {
            return values;
        }
        let of_one: BTreeMap<u64, f64> =
            self.measured(subject, 1).into_iter().map(|(seed, value, _)| (seed, value)).collect();
        let by_one = |(seed, value, steady): (u64, f64, bool)| Some((seed, value / of_one.get(&seed)?, steady));
        values.into_iter().filter_map(by_one).collect()
    }

    fn measured(&self, subject: &str, load: u32) -> Vec<(u64, f64, bool)> {
        let name = self.paper.subject(subject).and_then(|subject| self.metric.value(subject));
        let value = |sample: &Sample| Some((sample.point.seed, *sample.values.get(name.as_deref()?)?, sample.steady));
        self.samples_of(subject, load).into_iter().filter_map(value).collect()
    }

    fn samples_of(&self, subject: &str, load: u32) -> Vec<&'a Sample> {
        let Some(subject) = self.paper.subject(subject) else { return Vec::new() };
        let workload = self.figure.workload(subject, load);
        let (connections, processors) = self.figure.point(subject, load, self.processors);
        let (arch, machine) = (arch(subject, self.on), machine(self.paper, subject, self.on));
        let own = |sample: &&&Sample| {
            Some(sample.point.arch.as_str()) == arch
                && machine.is_none_or(|machine| sample.point.machine == machine)
                && sample.point.connections == connections
                && sample.point.workload == workload
                && sample.point.cpus == processors
        };
        self.samples.iter().filter(own).copied().collect()
    }

    fn ours(&self, subject: &str, connections: u32) -> Option<Ours> {
        let found = self.of(subject, connections);
        let samples: BTreeMap<u64, f64> = found.iter().map(|(seed, value, _)| (*seed, *value)).collect();
        let unsteady = found.iter().filter(|(.., steady)| !steady).count();
        let values: Vec<f64> = samples.values().copied().collect();
        Some(Ours { estimate: Estimate::of(&values)?, samples, unsteady })
    }

    fn loads(&self) -> BTreeSet<u32> {
        let load = |point: &Point| match self.figure.axis {
            Axis::Processors => Some(point.cpus),
            Axis::FrameBytes | Axis::PacketBytes => point.bytes(),
            Axis::Interfaces => point.cards(),
            Axis::Connections | Axis::Groups => Some(point.connections),
        };
        self.samples.iter().filter_map(|sample| load(&sample.point)).collect()
    }
}

impl Samples for View<'_, '_> {
    fn values(&self, term: &Term) -> BTreeMap<u64, f64> {
        self.of(&term.subject, term.connections).into_iter().map(|(seed, value, _)| (seed, value)).collect()
    }

    fn left_out(&self, term: &Term) -> Option<String> {
        let subject = self.paper.subject(&term.subject).filter(|_| self.on == Place::Host)?;
        let cores = self.host.cores;
        subject.lacks_on_host(cores).or_else(|| self.figure.lacks_on_host(term.connections, cores))
    }
}

/// The preset on which a subject is simulated; `None` on this host.
fn machine<'a>(paper: &'a Paper, subject: &'a Subject, on: Place) -> Option<&'a str> {
    (on == Place::Vsmp).then(|| subject.machine.as_deref().unwrap_or(&paper.machine))
}

/// What stands for a subject there.
fn arch(subject: &Subject, on: Place) -> Option<&str> {
    if on == Place::Vsmp { subject.simulated.as_deref() } else { subject.host.as_deref() }
}

impl<'a> Findings<'a> {
    /// Of a paper, from samples of one commit.
    pub fn of(paper: &'a Paper, samples: &'a [Sample], host: &Machine) -> Findings<'a> {
        let figures = paper.figures.iter().map(|figure| of_figure(paper, figure, samples, host)).collect();
        Findings { paper: &paper.id, commit: COMMIT, machine: &paper.machine, host: host_name(host), figures }
    }

    /// Verdicts by place, counted in the order of [`Verdict`].
    pub fn count(&self, on: Place) -> BTreeMap<Verdict, usize> {
        let mut count = BTreeMap::new();
        for claim in self.figures.iter().flat_map(|figure| &figure.claims) {
            *count.entry(claim.on(on).verdict).or_default() += 1;
        }
        count
    }
}

impl ClaimFindings<'_> {
    /// The verdict from this place's samples.
    pub fn on(&self, on: Place) -> &Side {
        if on == Place::Vsmp { &self.simulated } else { &self.host }
    }
}

impl Row<'_> {
    /// Our number there.
    pub fn on(&self, on: Place) -> Option<&Ours> {
        if on == Place::Vsmp { self.simulated.as_ref() } else { self.host.as_ref() }
    }

    /// The error of the simulated machine relative to the paper's number, in percent.
    pub fn error_percent(&self) -> Option<f64> {
        let (paper, ours) = (self.paper?, self.simulated.as_ref()?);
        Some(100.0 * (ours.estimate.mean / paper - 1.0)).filter(|error| error.is_finite())
    }
}

fn of_figure<'a>(paper: &'a Paper, figure: &'a Figure, samples: &'a [Sample], host: &Machine) -> FigureFindings<'a> {
    let id = format!("{}.{}", paper.id, figure.id);
    let views = figure.metric.map(|metric| Place::ALL.map(|on| View::new((paper, figure), metric, on, samples, host)));
    let rows = views.as_ref().map(|views| rows(paper, figure, views)).unwrap_or_default();
    let claims = paper.claims.iter().filter(|claim| claim.figure == figure.id);
    let is_measured = rows.iter().any(|row| row.host.is_some());
    // Samples may be older than what the host permits today.
    let lacks = figure.lacking_on(host).filter(|_| !is_measured);
    let is_permitted = figure.lacking_on(host).is_none();
    let left_out = if is_permitted || lacks.is_some() { paper.left_out(figure, host) } else { Vec::new() };
    let claims = claims.map(|claim| of_claim(paper, figure, claim, views.as_ref(), lacks)).collect();
    let cross_checks = views.as_ref().map(|[_, host]| CrossCheck::all(figure, host, &loads_of(&rows)));
    let cross_checks = cross_checks.unwrap_or_default();
    FigureFindings { figure, id, unit: figure.metric.map_or("", Metric::unit), rows, left_out, cross_checks, claims }
}

/// The loads of some rows, in order.
fn loads_of(rows: &[Row<'_>]) -> Vec<u32> {
    rows.iter().map(|row| row.connections).collect::<BTreeSet<u32>>().into_iter().collect()
}

fn rows<'a>(paper: &'a Paper, figure: &'a Figure, views: &[View<'a, '_>; 2]) -> Vec<Row<'a>> {
    let values = figure.values();
    let preset = Preset::named(&paper.machine).ok();
    let mut loads: BTreeSet<u32> = figure.loads(false).iter().copied().collect();
    let measured: BTreeSet<u32> = views.iter().flat_map(View::loads).collect();
    loads.extend(figure.loads(true).iter().filter(|load| measured.contains(load)));
    let row = |name: &'a str, connections: u32| {
        let subject = paper.subject(name)?;
        let value: Option<&PaperValue> = values.iter().find(|value| value.subject == name && value.at == connections);
        let point = subject.simulated.as_deref().and_then(|arch| preset.as_ref()?.point(arch, connections as usize));
        let fitted =
            point.filter(|_| figure.metric == Some(Metric::Throughput) && value.is_some()).map(|point| point.fitted);
        let [simulated, host] = [0, 1].map(|place| views[place].ours(name, connections));
        let row = Row {
            subject: name,
            connections,
            groups: subject.groups,
            paper: value.map(|value| value.is),
            place: value.map(|value| value.place.clone()),
            derived: value.is_some_and(|value| value.derived),
            fitted: value.and_then(|value| value.fitted).or(fitted),
            simulated,
            host: host.filter(|_| figure.host.is_none()),
        };
        (row.paper.is_some() || row.simulated.is_some() || row.host.is_some()).then_some(row)
    };
    figure.subjects.iter().flat_map(|name| loads.iter().filter_map(move |load| row(name, *load))).collect()
}

fn of_claim<'a>(
    paper: &'a Paper,
    figure: &'a Figure,
    claim: &'a Claim,
    views: Option<&[View<'a, '_>; 2]>,
    lacks: Option<&str>,
) -> ClaimFindings<'a> {
    let conditions = paper.conditions(claim).unwrap_or_default();
    let side = |on: Place| {
        let lacks = lacks.filter(|_| on == Place::Host);
        let reason = figure.reason_not_to_run(on).or(lacks).map(str::to_owned);
        let view = views.filter(|_| reason.is_none()).map(|views| &views[usize::from(on == Place::Host)]);
        let found: Vec<Finding> =
            view.map(|view| conditions.iter().map(|condition| condition.find(view, on)).collect()).unwrap_or_default();
        let verdicts: Vec<Verdict> = found.iter().map(|finding| finding.verdict).collect();
        Side { verdict: Verdict::of_all(&verdicts), reason, conditions: found }
    };
    ClaimFindings {
        id: &claim.id,
        says: &claim.says,
        place: &claim.place,
        simulated: side(Place::Vsmp),
        host: side(Place::Host),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use lab::machine::Probe;

    /// Artificial samples of figure 2 and table 1: the paper's numbers, with a spread of a thousandth over three seeds.
    pub(crate) fn made(paper: &Paper, on: Place) -> Vec<Sample> {
        let host = Probe::start().finish();
        let machine = if on == Place::Vsmp { paper.machine.clone() } else { host_name(&host) };
        let mut samples: Vec<Sample> = Vec::new();
        for figure in &paper.figures {
            for value in figure.values() {
                let subject = paper.subject(&value.subject).unwrap();
                let name = figure.metric.unwrap().value(subject).unwrap();
                for seed in 1..=3 {
                    let (lock, workload) = ("adaptive".to_owned(), figure.workload(subject, value.at));
                    let (connections, cpus) =
                        figure.point(subject, value.at, if on == Place::Host { host.cores as u32 } else { 4 });
                    let Some(arch) = arch(subject, on).map(str::to_owned) else { continue };
                    let point = Point {
                        on,
                        machine: machine.clone(),
                        arch,
                        connections,
                        cpus,
                        lock,
                        slice_ms: 0,
                        workload,
                        seed,
                    };
                    let number = value.is * (1.0 + 0.001 * (seed as f64 - 2.0));
                    match samples.iter_mut().find(|sample| sample.point == point) {
                        Some(sample) => _ = sample.values.insert(name.clone(), number),
                        None => {
                            let mut sample = Sample::now(point, 1.0, host.clone());
                            sample.values.insert(name.clone(), number);
                            samples.push(sample);
                        }
                    }
                }
            }
        }
        samples
    }

    fn verdict(findings: &Findings<'_>, id: &str, on: Place) -> Verdict {
        let claims = findings.figures.iter().flat_map(|figure| &figure.claims);
        claims.filter(|claim| claim.id == id).map(|claim| claim.on(on).verdict).next().unwrap()
    }

    /// If the simulator gives the paper's numbers, the claims of the paper's text hold.
    #[test]
    fn the_papers_own_numbers_bear_out_its_claims() {
        let papers = Paper::all();
        let samples = made(&papers[0], Place::Vsmp);
        let findings = Findings::of(&papers[0], &samples, &Probe::start().finish());
        for id in [
            "W01", "W03", "W04", "W05", "W06", "W09", "W10", "W11", "W13", "W17", "W18", "W19", "W24", "W25", "W26",
            "W27", "W28", "W30", "W31", "W32", "W35", "W36", "W37",
        ] {
            assert_eq!(verdict(&findings, id, Place::Vsmp), Verdict::Holds, "{id}");
            let host = verdict(&findings, id, Place::Host);
            assert!(matches!(host, Verdict::NotMeasured | Verdict::NotAsked), "{id}: {host:?}");
        }
        assert_eq!(
            verdict(&findings, "W14", Place::Vsmp),
            Verdict::NotMeasured,
            "the text gives no number of UP at 96"
        );
        assert_eq!(verdict(&findings, "W20", Place::Vsmp), Verdict::NotMeasured);
        let count = findings.count(Place::Vsmp);
        assert_eq!(count.get(&Verdict::DoesNotHold), None, "{count:?}");
        let bridge = papers.iter().find(|paper| paper.id == "netbsd").unwrap();
        let samples = made(bridge, Place::Vsmp);
        let findings = Findings::of(bridge, &samples, &Probe::start().finish());
        assert_eq!(findings.count(Place::Vsmp), BTreeMap::from([(Verdict::Holds, bridge.claims.len())]));
    }

    /// Frame sizes: a subject has its own processors, its workload has the size, and the table says which cells were fitted.
    #[test]
    fn a_table_over_frame_sizes_has_the_points_of_its_cells() {
        let papers = Paper::all();
        let bridge = papers.iter().find(|paper| paper.id == "netbsd").unwrap();
        let samples = made(bridge, Place::Vsmp);
        let findings = Findings::of(bridge, &samples, &Probe::start().finish());
        let row = |figure: usize, subject: &str, at| {
            let mut rows = findings.figures[figure].rows.iter();
            rows.find(|row| row.subject == subject && row.connections == at).unwrap()
        };
        let (fitted, held_out) = (row(0, "2 cores", 74), row(0, "4 cores", 74));
        assert_eq!((fitted.paper, fitted.fitted), (Some(527.7), Some(true)));
        assert_eq!((held_out.paper, held_out.fitted), (Some(705.4), Some(false)));
        assert!(row(1, "8 cores", 1518).error_percent().unwrap().abs() < 1e-9);
    }

    /// On the host two subjects differ in their processors alone. One that needs more than there are is left out, and so are the
    /// claims about it, with the reason.
    #[test]
    fn a_host_with_few_processors_decides_what_needs_no_more() {
        let papers = Paper::all();
        let bridge = papers.iter().find(|paper| paper.id == "netbsd").unwrap();
        let host = Machine { cores: 2, ..Probe::start().finish() };
        let mut samples = made(bridge, Place::Host);
        samples.iter_mut().for_each(|sample| sample.point.machine = host_name(&host));
        samples.retain(|sample| sample.point.cpus <= 2);
        let findings = Findings::of(bridge, &samples, &host);
        let row = |subject: &str| {
            let row = findings.figures[0].rows.iter().find(|row| row.subject == subject && row.connections == 74);
            row.unwrap().host.as_ref().map(|ours| ours.estimate.mean.round())
        };
        assert_eq!(["GENERIC", "1 core", "2 cores", "4 cores"].map(row), [Some(99.0), Some(329.0), Some(528.0), None]);
        let lacks = |processors| format!("it needs {processors} CPUs, this host has 2");
        let left_out = [("4 cores".to_owned(), lacks(4)), ("8 cores".to_owned(), lacks(8))];
        assert_eq!(findings.figures[0].left_out, left_out);
        assert_eq!(findings.figures[2].left_out, []);
        assert_eq!(["B04", "B06", "B07"].map(|id| verdict(&findings, id, Place::Host)), [Verdict::Holds; 3]);
        assert_eq!(verdict(&findings, "B08", Place::Host), Verdict::NotMeasured);
        let claim = findings.figures[0].claims.iter().find(|claim| claim.id == "B08").unwrap();
        let numbers = &claim.host.conditions[0].numbers;
        assert_eq!(*numbers, format!("no sample of 4 cores at 74: {}", lacks(4)));
    }

    /// Where loads are processors, a host has those up to its own number, and a claim about more of them says why it has no
    /// sample.
    #[test]
    fn a_host_leaves_out_loads_of_more_processors_than_it_has() {
        let papers = Paper::all();
        let paper = papers.iter().find(|paper| paper.id == "schmidt").unwrap();
        let host = Machine { cores: 2, ..Probe::start().finish() };
        let findings = Findings::of(paper, &[], &host);
        let lacking = ("4, 8, 12, 16, 20 processors".to_owned(), "this host has 2".to_owned());
        assert_eq!(findings.figures[0].left_out, [lacking]);
        let seven = findings.figures.iter().find(|figure| figure.id == "schmidt.fig7").unwrap();
        assert_eq!(seven.left_out, [], "its loads are connections");
        let claim = findings.figures.iter().flat_map(|figure| &figure.claims).find(|claim| claim.id == "S03").unwrap();
        let numbers = &claim.host.conditions[0].numbers;
        assert_eq!(*numbers, "no sample of CP at 4: it needs 4 CPUs, this host has 2");
    }

    /// Samples of another paper do not decide which slices count.
    #[test]
    fn slices_are_compared_within_a_paper() {
        let papers = Paper::all();
        let bridge = papers.iter().find(|paper| paper.id == "netbsd").unwrap();
        let host = Machine { cores: 8, ..Probe::start().finish() };
        let mut samples = made(bridge, Place::Host);
        samples.extend(made(&papers[0], Place::Host).into_iter().map(|mut sample| {
            sample.point.slice_ms = 250;
            sample
        }));
        samples.iter_mut().for_each(|sample| sample.point.machine = host_name(&host));
        let findings = Findings::of(bridge, &samples, &host);
        assert!(findings.figures[0].rows.iter().all(|row| row.host.is_some()));
    }

    #[test]
    fn rows_have_the_papers_number_ours_and_whether_it_was_fitted() {
        let papers = Paper::all();
        let samples = made(&papers[0], Place::Vsmp);
        let findings = Findings::of(&papers[0], &samples, &Probe::start().finish());
        let figure = &findings.figures[0];
        let row = |subject: &str, at| figure.rows.iter().find(|row| row.subject == subject && row.connections == at);
        let up = row("UP", 6).unwrap();
        assert_eq!((up.paper, up.fitted, up.place.as_deref()), (Some(4034.0), Some(true), Some("section 4.3")));
        assert!(up.error_percent().unwrap().abs() < 1e-9 && up.simulated.as_ref().unwrap().samples.len() == 3);
        assert_eq!(row("MsgP", 16_384).unwrap().fitted, Some(false));
        assert!(row("UP", 192).is_none(), "neither has a number");
    }

    /// The host's samples decide orders and ratios, and no number of the paper's machine.
    #[test]
    fn the_host_is_not_asked_for_numbers_of_another_machine() {
        let papers = Paper::all();
        let samples = made(&papers[0], Place::Host);
        let findings = Findings::of(&papers[0], &samples, &Probe::start().finish());
        assert_eq!(verdict(&findings, "W01", Place::Host), Verdict::NotAsked);
        assert_eq!(verdict(&findings, "W19", Place::Host), Verdict::Holds);
        assert_eq!(
            verdict(&findings, "W19", Place::Vsmp),
            Verdict::NotMeasured,
            "a sample counts where it was measured"
        );
    }

    /// Table 2 needs hardware counters: without them the paper's place and the simulator's numbers stand alone, with the reason once on
    /// the page and once at the claim.
    #[test]
    fn a_host_without_counters_says_so_and_one_with_samples_is_asked() {
        let papers = Paper::all();
        let lacks = "the kernel finds no hardware counter";
        let host = Machine { no_cache_misses: Some(lacks.to_owned()), ..Probe::start().finish() };
        let samples = made(&papers[0], Place::Vsmp);
        let findings = Findings::of(&papers[0], &samples, &host);
        let table =
            |findings: &Findings<'_>| findings.figures.iter().position(|figure| figure.id == "willmann.tab2").unwrap();
        let two = &findings.figures[table(&findings)];
        assert_eq!(two.left_out, [("L2 misses/KB".to_owned(), lacks.to_owned())]);
        assert!(two.rows.iter().all(|row| row.simulated.is_some() && row.host.is_none()));
        let claim = two.claims.iter().find(|claim| claim.id == "W32").unwrap();
        let side = (claim.host.verdict, claim.host.reason.as_deref(), claim.host.conditions.len());
        assert_eq!(side, (Verdict::NotMeasured, Some(lacks), 0));
        // Samples that someone with the permission took are shown to one without it.
        let samples = made(&papers[0], Place::Host);
        let findings = Findings::of(&papers[0], &samples, &host);
        let two = &findings.figures[table(&findings)];
        assert_eq!((two.left_out.len(), verdict(&findings, "W32", Place::Host)), (0, Verdict::Holds));
    }

    /// Of two rounds the mean; a subject without samples of the CPUs has no line.
    #[test]
    fn samples_stand_beside_counts() {
        let papers = Paper::all();
        let host = Probe::start().finish();
        let mut samples = made(&papers[0], Place::Host);
        samples.retain(|sample| sample.point.seed < 3);
        for sample in samples.iter_mut().filter(|sample| sample.values.contains_key("scheduler_cycles_per_kb")) {
            let round = sample.point.seed as f64;
            for (name, value) in [
                ("scheduler_cycles_by_counts_per_kb", 100.0 * round),
                ("futex_cycles_per_kb", 10.0),
                ("idle_scheduler_cycles_per_kb", 5.0),
                ("switches_per_kb", 0.5),
                ("samples_of_cpus", 1000.0),
            ] {
                sample.values.insert(name.to_owned(), value);
            }
        }
        let one_cpu = arch(papers[0].subject("UP").unwrap(), Place::Host).unwrap();
        samples.iter_mut().filter(|sample| sample.point.arch == one_cpu).for_each(|sample| sample.values.clear());
        let findings = Findings::of(&papers[0], &samples, &host);
        let checks = &findings.figures.iter().find(|figure| figure.id == "willmann.tab3").unwrap().cross_checks;
        assert_eq!(checks.len(), 9, "three subjects at three loads");
        let check = checks.iter().find(|check| check.subject == "MsgP" && check.connections == 6).unwrap();
        assert_eq!((check.counted, check.samples, check.switches), (150.0, 2000.0, 0.5));
        assert!((check.sampled / 2904.09 - 1.0).abs() < 1e-3, "{check:?}");
        assert!(findings.figures[0].cross_checks.is_empty());
    }

    #[test]
    fn samples_of_another_machine_are_no_samples() {
        let papers = Paper::all();
        let mut samples = made(&papers[0], Place::Vsmp);
        samples.iter_mut().for_each(|sample| sample.point.machine = "cray-1".to_owned());
        let findings = Findings::of(&papers[0], &samples, &Probe::start().finish());
        assert!(findings.figures.iter().flat_map(|figure| &figure.rows).all(|row| row.simulated.is_none()));
    }
}
