//! The values of the templates, as text: a paper's page, and the index.

use lab::machine::{BUSY_PERCENT, COMMIT, Machine};
use lab::report::{STYLE, facts};
use lab::stats::Estimate;
use lab::units::significant;
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;
use vsmp::Preset;
use vsmp::preset::Origin;

use super::figures::{self, Chart};
use super::machines::hosts;
use crate::claim::Verdict;
use crate::data::{Axis, Paper, Sequence, Stated};
use crate::findings::{ClaimFindings, CrossCheck, FigureFindings, Findings, Ours, Row, Side};
use crate::list;
use crate::plan::host_name;
use crate::point::{Place, Sample};
use crate::store::Store;
use crate::summary::{counted, moved, other_programs};

/// A line of the index.
#[derive(Serialize)]
pub(super) struct Entry {
    id: String,
    title: String,
    source: String,
    claims: usize,
    simulated: String,
    host: String,
}

impl Entry {
    pub(super) fn of(paper: &Paper, findings: &Findings<'_>) -> Entry {
        Entry {
            id: paper.id.clone(),
            title: paper.title.clone(),
            source: format!("{}. {}", paper.authors, paper.published),
            claims: paper.claims.len(),
            simulated: counted(&findings.count(Place::Vsmp)),
            host: counted(&findings.count(Place::Host)),
        }
    }
}

/// The index of some papers.
pub(super) fn index(entries: &[Entry], machines: usize) -> String {
    #[derive(Serialize)]
    struct Index<'a> {
        style: &'static str,
        own: &'static str,
        commit: &'static str,
        entries: &'a [Entry],
        /// Hosts with samples.
        machines: usize,
    }
    let index = Index { style: STYLE, own: OWN, commit: COMMIT, entries, machines };
    fill("index.html", include_str!("index.html"), &index)
}

/// Additions to the lab's style for the pages of papers.
pub(super) const OWN: &str = include_str!("book.css");

/// The names that the template of a page uses.
#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    own: &'static str,
    script: &'static str,
    id: &'a str,
    title: &'a str,
    source: String,
    commit: &'static str,
    model: String,
    counts: [(&'static str, String); 2],
    habits: &'a [String],
    subjects: Vec<[String; 4]>,
    doubts: Vec<String>,
    figures: Vec<Section<'a>>,
    facts: Vec<(&'static str, String)>,
    seeds: [u64; 2],
    /// Hosts with samples in the store, other than this one.
    other_hosts: usize,
}

/// A figure.
#[derive(Serialize)]
struct Section<'a> {
    id: &'a str,
    name: &'a str,
    title: &'a str,
    place: &'a str,
    explains: &'a str,
    runs: String,
    missing: Option<&'a str>,
    charts: Vec<Chart>,
    stated: Option<&'a Stated>,
    sequence: Option<&'a Sequence>,
    unit: &'static str,
    /// What loads are: connections, or processors.
    load: &'static str,
    groups: bool,
    rows: Vec<Line>,
    /// What this host leaves out, and why.
    left_out: &'a [(String, String)],
    /// Samples of the CPUs beside counts.
    cross_checks: Vec<Checked>,
    /// The number of the paper's numbers that the model meets.
    meets: Option<String>,
    claims: Vec<Judged<'a>>,
}

/// A row of numbers. Each number is followed by the value by which a table sorts it.
#[derive(Serialize)]
struct Line {
    subject: String,
    connections: u32,
    groups: Option<u32>,
    paper: [String; 2],
    place: String,
    simulated: [String; 2],
    error: [String; 2],
    fitted: &'static str,
    host: [String; 2],
}

/// A row of samples beside counts. Each number is followed by the value by which a table sorts it.
#[derive(Serialize)]
struct Checked {
    subject: String,
    connections: u32,
    cells: [[String; 2]; 6],
}

/// A claim.
#[derive(Serialize)]
struct Judged<'a> {
    id: &'a str,
    says: &'a str,
    place: &'a str,
    sides: [Shown<'a>; 2],
}

/// The text of a verdict.
#[derive(Serialize)]
pub(super) struct Shown<'a> {
    on: &'static str,
    words: &'static str,
    sign: &'static str,
    class: &'static str,
    reason: Option<&'a str>,
    conditions: Vec<[String; 3]>,
}

/// The page of a paper.
///
/// # Panics
/// Never with the template of this build: every name that it uses is defined here.
pub(super) fn render(paper: &Paper, findings: &Findings<'_>, store: &Store, host: &Machine) -> String {
    let samples: Vec<&Sample> = store.samples().iter().filter(|sample| belongs(sample, findings)).collect();
    let seeds = Place::ALL.map(|on| {
        let own = samples.iter().filter(|sample| sample.point.on == on);
        own.map(|sample| sample.point.seed).max().unwrap_or(0)
    });
    let page = Page {
        style: STYLE,
        own: OWN,
        script: include_str!("sort.js"),
        id: &paper.id,
        title: &paper.title,
        source: format!("{}. {}", paper.authors, paper.published),
        commit: COMMIT,
        model: model(paper),
        counts: Place::ALL.map(|on| (on.words(), counted(&findings.count(on)))),
        habits: &paper.habits,
        subjects: subjects(paper),
        doubts: doubts(&samples, store),
        figures: findings.figures.iter().map(section).collect(),
        facts: facts(host, COMMIT),
        seeds,
        other_hosts: hosts(store).iter().filter(|other| host_name(other) != host_name(host)).count(),
    };
    fill("paper.html", include_str!("paper.html"), &page)
}

pub(super) fn fill(name: &str, template: &str, values: &impl Serialize) -> String {
    let mut environment = Environment::new();
    environment.add_template(name, template).expect("the template of this build parses");
    let template = environment.get_template(name).expect("it was added above");
    template.render(Serde(values)).expect("the template uses only what it is given")
}

fn belongs(sample: &Sample, findings: &Findings<'_>) -> bool {
    let machine = if sample.point.on == Place::Vsmp { findings.machine } else { &findings.host };
    sample.point.machine == machine
}

fn model(paper: &Paper) -> String {
    let Ok(preset) = Preset::named(&paper.machine) else { return String::new() };
    let [stated, derived, fitted, assumed] =
        [Origin::Paper, Origin::Derived, Origin::Fitted, Origin::Assumed].map(|origin| preset.count(origin));
    format!(
        "A model of {}. Of its values the paper states {stated}; {derived} are derived, {fitted} fitted, {assumed} assumed \
         (heddle simulate --machine {} --values).",
        preset.describes, paper.machine
    )
}

fn subjects(paper: &Paper) -> Vec<[String; 4]> {
    let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "–".to_owned());
    let row = |subject: &crate::data::Subject| {
        [subject.name.clone(), name(&subject.simulated), name(&subject.host), subject.note.clone()]
    };
    paper.subjects.iter().map(row).collect()
}

/// Reasons to doubt the numbers of the page.
fn doubts(samples: &[&Sample], store: &Store) -> Vec<String> {
    let mut doubts = Vec::new();
    if COMMIT.ends_with("-dirty") {
        doubts.push(
            "The build differs from its commit, so samples of different changes cannot be distinguished.".to_owned(),
        );
    }
    let unsteady = samples.iter().filter(|sample| !sample.steady).count();
    if unsteady > 0 {
        doubts.push(format!("{unsteady} of {} samples never became steady and are unreliable.", samples.len()));
    }
    let own: Vec<Sample> = samples.iter().map(|sample| (*sample).clone()).collect();
    if let Some(percent) = other_programs(&own).filter(|percent| *percent > BUSY_PERCENT) {
        doubts.push(format!(
            "Other programs used {percent:.1} % of this host's processor time during the measurement: its intervals are wide, \
             and verdicts near a bound may be wrong."
        ));
    }
    if let Some((least, most)) = moved(&own) {
        doubts.push(format!(
            "A hypervisor moved this host's processors during the measurement: a cache line went to another one and back in \
             {least:.0} to {most:.0} ns, which changes figures of several threads as much as twofold."
        ));
    }
    let host = || samples.iter().filter(|sample| sample.point.on == Place::Host);
    if host().any(|sample| sample.host.profile != "release") {
        doubts.push(
            "The host's numbers are those of a debug build: build with --release before reading them.".to_owned(),
        );
    }
    let stolen = host().filter(|sample| sample.host.steal_percent.is_some_and(|steal| steal > 1.0)).count();
    if stolen > 0 {
        doubts.push(format!(
            "During {stolen} of {} samples of the host a hypervisor took processor time.",
            host().count()
        ));
    }
    if store.others() > 0 {
        doubts.push(format!("{} samples of other commits are in points.jsonl but not on this page.", store.others()));
    }
    doubts
}

fn section<'a>(findings: &'a FigureFindings<'a>) -> Section<'a> {
    let figure = findings.figure;
    Section {
        id: &figure.id,
        name: &findings.id,
        title: &figure.title,
        place: &figure.place,
        explains: &figure.explains,
        runs: list::runs(figure),
        missing: figure.missing.as_deref(),
        charts: figures::of(findings),
        stated: figure.stated.as_ref(),
        sequence: figure.sequence.as_ref(),
        unit: findings.unit,
        load: figure.axis.loads(),
        groups: figure.axis == Axis::Groups,
        rows: findings.rows.iter().map(line).collect(),
        left_out: &findings.left_out,
        cross_checks: findings.cross_checks.iter().map(checked).collect(),
        meets: meets(&findings.rows),
        claims: findings.claims.iter().map(judged).collect(),
    }
}

/// How far the model is from the paper's numbers.
fn meets(rows: &[Row<'_>]) -> Option<String> {
    let errors: Vec<f64> = rows.iter().filter_map(Row::error_percent).map(f64::abs).collect();
    let within = |percent: f64| errors.iter().filter(|error| **error <= percent).count();
    let worst = errors.iter().copied().fold(0.0, f64::max);
    (!errors.is_empty()).then(|| {
        format!(
            "Of {} numbers of the paper the model meets {} within 15 % and {} within 25 %; the worst is off by {worst:.0} %.",
            errors.len(),
            within(15.0),
            within(25.0)
        )
    })
}

fn line(row: &Row<'_>) -> Line {
    let ours = |ours: Option<&Ours>| {
        let text = |ours: &Ours| {
            let unsteady = if ours.unsteady > 0 { ", not steady" } else { "" };
            format!("{}{unsteady}", estimate(ours.estimate))
        };
        [ours.map_or_else(none, text), sort(ours.map(|ours| ours.estimate.mean))]
    };
    let paper =
        row.paper.map_or_else(none, |number| format!("{number}{}", if row.derived { " (derived)" } else { "" }));
    let error = row.error_percent();
    Line {
        subject: row.subject.to_owned(),
        connections: row.connections,
        groups: row.groups,
        paper: [paper, sort(row.paper)],
        place: row.place.clone().unwrap_or_default(),
        simulated: ours(row.simulated.as_ref()),
        error: [error.map_or_else(none, |error| format!("{error:+.0} %")), sort(error)],
        fitted: match row.fitted {
            Some(true) => "fitted",
            Some(false) => "held out",
            None => "",
        },
        host: ours(row.host.as_ref()),
    }
}

fn checked(check: &CrossCheck) -> Checked {
    let CrossCheck { subject, connections, samples, sampled, switches, counted, futex, idle } = check;
    let cell = |number: &f64| [significant(*number), sort(Some(*number))];
    let whole = [format!("{samples:.0}"), sort(Some(*samples))];
    let [sampled, switches, counted, futex, idle] = [sampled, switches, counted, futex, idle].map(cell);
    let cells = [sampled, whole, switches, counted, futex, idle];
    Checked { subject: subject.clone(), connections: *connections, cells }
}

pub(super) fn none() -> String {
    "–".to_owned()
}

pub(super) fn sort(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// A mean and its interval: the lab's, but without prefixes.
pub(super) fn estimate(estimate: Estimate) -> String {
    let mean = significant(estimate.mean);
    let decimals = mean.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    estimate.ci95.map_or(mean.clone(), |half| format!("{mean} ± {half:.decimals$}"))
}

fn judged<'a>(claim: &'a ClaimFindings<'a>) -> Judged<'a> {
    let ClaimFindings { id, says, place, .. } = claim;
    Judged { id, says, place, sides: Place::ALL.map(|on| shown(claim.on(on), on)) }
}

pub(super) fn shown(side: &Side, on: Place) -> Shown<'_> {
    let (sign, class) = match side.verdict {
        Verdict::Holds => ("✓", "holds"),
        Verdict::DoesNotHold => ("✗", "fails"),
        Verdict::CannotBeTold => ("?", "open"),
        Verdict::NotMeasured | Verdict::NotAsked => ("–", "soft"),
    };
    let conditions = side
        .conditions
        .iter()
        .map(|finding| [finding.verdict.words().to_owned(), finding.condition.clone(), finding.numbers.clone()]);
    let (words, reason) = (side.verdict.words(), side.reason.as_deref());
    Shown { on: on.words(), words, sign, class, reason, conditions: conditions.collect() }
}
