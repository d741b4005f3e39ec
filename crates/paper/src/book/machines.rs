//! The page that compares hosts: the samples of every machine in the store side by side, each with its own verdicts.
//!
//! A machine is a host by its name in points: CPU model, CPUs, kernel. A verdict is from the samples of one machine and one
//! commit; the page puts verdicts beside each other and computes nothing across machines. Simulated samples depend on no
//! machine, and are on the pages of their papers.

use std::collections::{BTreeMap, BTreeSet};

use lab::machine::{BUSY_PERCENT, COMMIT, Machine};
use lab::report::STYLE;
use lab::units::bytes;
use serde::Serialize;

use super::page::{OWN, Shown, estimate, fill, none, shown, sort};
use crate::claim::Verdict;
use crate::data::{Axis, Paper};
use crate::findings::{Findings, Row};
use crate::plan::host_name;
use crate::point::{Place, Sample};
use crate::store::Store;
use crate::summary::{counted, moved, other_programs};

/// The hosts that the samples of a store are from, in the order of their names. The last sample describes its machine.
pub(super) fn hosts(store: &Store) -> Vec<Machine> {
    let mut last: BTreeMap<&str, &Sample> = BTreeMap::new();
    for sample in store.samples().iter().filter(|sample| sample.point.on == Place::Host) {
        let one = last.entry(&sample.point.machine).or_insert(sample);
        if one.finished_at < sample.finished_at {
            *one = sample;
        }
    }
    last.into_values().map(|sample| sample.host.clone()).collect()
}

/// The names that the template uses.
#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    own: &'static str,
    script: &'static str,
    commit: &'static str,
    others: usize,
    machines: Vec<Column>,
    papers: Vec<Section<'a>>,
}

/// A machine.
#[derive(Serialize)]
struct Column {
    number: usize,
    /// CPU model, CPUs, kernel, commit, build, memory, clock source, rounds, samples, time of the last one.
    facts: [String; 10],
    is_this: bool,
    doubts: Vec<String>,
}

/// A paper of which a machine has samples.
#[derive(Serialize)]
struct Section<'a> {
    id: &'a str,
    title: &'a str,
    /// The verdicts of each machine, counted.
    counts: Vec<String>,
    figures: Vec<Numbers<'a>>,
    claims: Vec<Judged<'a>>,
    /// The claims that hold on one machine and not on another.
    disagreements: Vec<&'a str>,
}

/// A figure's numbers.
#[derive(Serialize)]
struct Numbers<'a> {
    name: &'a str,
    title: &'a str,
    unit: &'static str,
    load: &'static str,
    groups: bool,
    rows: Vec<Line>,
}

/// A subject at a load, with the number of each machine and the value by which a table sorts it.
#[derive(Serialize)]
struct Line {
    subject: String,
    load: u32,
    groups: String,
    cells: Vec<[String; 2]>,
}

/// A claim.
#[derive(Serialize)]
struct Judged<'a> {
    id: &'a str,
    says: &'a str,
    figure: &'a str,
    disagree: bool,
    sides: Vec<Shown<'a>>,
}

/// The page.
///
/// # Panics
/// Never with the template of this build: every name that it uses is defined here.
pub(super) fn render(papers: &[&Paper], store: &Store, this: &Machine) -> String {
    let hosts = hosts(store);
    let found: Vec<Vec<Findings<'_>>> = papers
        .iter()
        .map(|paper| hosts.iter().map(|host| Findings::of(paper, store.samples(), host)).collect())
        .collect();
    let page = Page {
        style: STYLE,
        own: OWN,
        script: include_str!("sort.js"),
        commit: COMMIT,
        others: store.others(),
        machines: (1..).zip(&hosts).map(|(number, host)| column(number, host, store, this)).collect(),
        papers: papers.iter().zip(&found).filter_map(|(paper, findings)| section(paper, findings)).collect(),
    };
    fill("machines.html", include_str!("machines.html"), &page)
}

fn column(number: usize, host: &Machine, store: &Store, this: &Machine) -> Column {
    let name = host_name(host);
    let own: Vec<Sample> = store.samples().iter().filter(|sample| sample.point.machine == name).cloned().collect();
    let rounds = own.iter().map(|sample| sample.point.seed).collect::<BTreeSet<_>>().len();
    let last = own.iter().map(|sample| sample.finished_at.as_str()).max().unwrap_or_default();
    let unknown = || "not known".to_owned();
    let facts = [
        host.cpu_model.clone(),
        host.cores.to_string(),
        host.kernel.clone(),
        COMMIT.to_owned(),
        host.profile.clone(),
        host.memory_bytes.map_or_else(unknown, |memory| bytes(memory as f64)),
        host.clock_source.clone().unwrap_or_else(unknown),
        rounds.to_string(),
        own.len().to_string(),
        last.to_owned(),
    ];
    Column { number, facts, is_this: name == host_name(this), doubts: doubts(&own) }
}

/// Reasons to doubt the numbers of a machine.
fn doubts(own: &[Sample]) -> Vec<String> {
    let mut doubts = Vec::new();
    let debug = own.iter().filter(|sample| sample.host.profile != "release").count();
    if debug > 0 {
        doubts.push(format!("{debug} of {} samples are of a debug build.", own.len()));
    }
    if let Some(percent) = other_programs(own).filter(|percent| *percent > BUSY_PERCENT) {
        doubts.push(format!("Other programs used {percent:.1} % of its processor time."));
    }
    if let Some((least, most)) = moved(own) {
        doubts.push(format!(
            "A hypervisor moved its processors: a cache line went there and back in {least:.0} to {most:.0} ns."
        ));
    }
    let stolen = own.iter().filter(|sample| sample.host.steal_percent.is_some_and(|steal| steal > 1.0)).count();
    if stolen > 0 {
        doubts.push(format!("A hypervisor took processor time during {stolen} of {} samples.", own.len()));
    }
    doubts
}

/// The section of a paper; `None` if no machine has a number of it.
fn section<'a>(paper: &'a Paper, findings: &'a [Findings<'a>]) -> Option<Section<'a>> {
    let of_first = findings.first()?;
    let figures: Vec<Numbers<'a>> = (0..of_first.figures.len()).filter_map(|index| numbers(findings, index)).collect();
    let places = of_first
        .figures
        .iter()
        .enumerate()
        .flat_map(|(figure, found)| (0..found.claims.len()).map(move |claim| (figure, claim)));
    let claims: Vec<Judged<'a>> = places.filter_map(|place| judged(findings, place)).collect();
    let disagreements = claims.iter().filter(|claim| claim.disagree).map(|claim| claim.id).collect();
    let counts = findings.iter().map(|found| counted(&found.count(Place::Host))).collect();
    (!figures.is_empty()).then_some(Section {
        id: &paper.id,
        title: &paper.title,
        counts,
        figures,
        claims,
        disagreements,
    })
}

/// The rows of a figure that any machine has; `None` if there are none. A machine with few CPUs has fewer rows.
fn numbers<'a>(findings: &'a [Findings<'a>], index: usize) -> Option<Numbers<'a>> {
    let figure = &findings.first()?.figures[index];
    let mut rows: Vec<Line> = Vec::new();
    let mut seen = BTreeSet::new();
    let all = || findings.iter().flat_map(|found| &found.figures[index].rows);
    for row in all().filter(|row| row.host.is_some()) {
        if !seen.insert((row.subject, row.connections)) {
            continue;
        }
        let is_same = |other: &&Row<'_>| (other.subject, other.connections) == (row.subject, row.connections);
        let cell = |found: &Findings<'_>| {
            let ours = found.figures[index].rows.iter().find(is_same).and_then(|row| row.host.as_ref());
            [ours.map_or_else(none, |ours| estimate(ours.estimate)), sort(ours.map(|ours| ours.estimate.mean))]
        };
        let groups = row.groups.map_or_else(none, |groups| groups.to_string());
        let cells = findings.iter().map(cell).collect();
        rows.push(Line { subject: row.subject.to_owned(), load: row.connections, groups, cells });
    }
    (!rows.is_empty()).then_some(Numbers {
        name: &figure.id,
        title: &figure.figure.title,
        unit: figure.unit,
        load: figure.figure.axis.loads(),
        groups: figure.figure.axis == Axis::Groups,
        rows,
    })
}

/// A claim with the verdict of each machine; `None` if no machine has measured it.
fn judged<'a>(findings: &'a [Findings<'a>], (figure, claim): (usize, usize)) -> Option<Judged<'a>> {
    let of = |found: &'a Findings<'a>| &found.figures[figure].claims[claim];
    let first = of(findings.first()?);
    let verdicts: Vec<Verdict> = findings.iter().map(|found| of(found).host.verdict).collect();
    let is_open = |verdict: &Verdict| matches!(verdict, Verdict::NotMeasured | Verdict::NotAsked);
    if verdicts.iter().all(is_open) {
        return None;
    }
    let disagree = verdicts.contains(&Verdict::Holds) && verdicts.contains(&Verdict::DoesNotHold);
    let sides = findings.iter().map(|found| shown(&of(found).host, Place::Host)).collect();
    Some(Judged { id: first.id, says: first.says, figure: &findings[0].figures[figure].figure.id, disagree, sides })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::made;
    use lab::machine::Probe;

    /// Samples of this host, and of another one where the order of the subjects is turned round.
    fn filled(directory: &std::path::Path, paper: &Paper) -> (Store, Machine, Machine) {
        let this = Probe::start().finish();
        let other = Machine { kernel: "7.7.7-other".to_owned(), cores: 64, ..this.clone() };
        let here = made(paper, Place::Host);
        let there = here.iter().cloned().map(|mut sample| {
            sample.point.machine = host_name(&other);
            sample.point.cpus = other.cores as u32;
            sample.host = other.clone();
            sample.values.values_mut().for_each(|value| *value = 1e6 / *value);
            sample
        });
        let mut store = Store::open(directory).unwrap();
        store.append(here.iter().cloned().chain(there).collect()).unwrap();
        (store, this, other)
    }

    #[test]
    fn machines_are_side_by_side_each_with_its_own_verdicts() {
        let directory = tempfile::tempdir().unwrap();
        let papers = Paper::all();
        let (store, this, other) = filled(directory.path(), &papers[0]);
        let machines = hosts(&store);
        let order: Vec<bool> = machines.iter().map(|host| host_name(host) == host_name(&this)).collect();
        let page = render(&papers.iter().collect::<Vec<_>>(), &store, &this);
        for text in
            [other.kernel.as_str(), "<td>64</td>", &this.kernel, COMMIT, "(this host)", "machine 2", "machines differ"]
        {
            assert!(page.contains(text), "no {text}: {page}");
        }
        // "UP is the slowest with many connections" or the like: what holds here does not there.
        let row = |id: &str| {
            let start = format!("<tr><td><a href=\"#{id}\">{id}</a></td>");
            page.lines().find(|line| line.contains(&start)).unwrap_or_else(|| panic!("no {id}")).to_owned()
        };
        let findings = machines.iter().map(|host| Findings::of(&papers[0], store.samples(), host)).collect::<Vec<_>>();
        let mut differ = 0;
        for (figure, of) in findings[0].figures.iter().enumerate() {
            for (claim, first) in of.claims.iter().enumerate() {
                let verdicts = findings.iter().map(|found| found.figures[figure].claims[claim].host.verdict);
                let verdicts: Vec<Verdict> = verdicts.collect();
                if verdicts[0] != verdicts[1] {
                    differ += 1;
                    let [one, two] = [verdicts[0], verdicts[1]].map(Verdict::words);
                    let line = row(first.id);
                    assert!(line.find(one) < line.rfind(two), "{line}");
                    assert!(
                        line.contains(&format!("</span> {one}</td>")) && line.contains(&format!("</span> {two}</td>"))
                    );
                }
            }
        }
        assert!(differ > 5 && order.iter().filter(|is_this| **is_this).count() == 1, "{differ} {order:?}");
        assert!(!page.contains("One machine so far") && !page.contains("id=\"nahum\""), "nothing of it runs on a host");
    }

    /// The pages of a book that was collected elsewhere say where the other hosts are.
    #[test]
    fn the_other_pages_lead_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let papers = Paper::all();
        let (store, ..) = filled(directory.path(), &papers[0]);
        super::super::write(directory.path(), &[&papers[0]], &store).unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(
            read("index.html").contains("href=\"machines.html\"")
                && read("index.html").contains("of 2 hosts side by side")
        );
        assert!(read("willmann.html").contains("Samples of 1 other host are not on this page"));
        drop(store);
        std::fs::remove_file(directory.path().join(crate::store::FILE)).unwrap();
        let empty = Store::open(directory.path()).unwrap();
        super::super::write(directory.path(), &[&papers[0]], &empty).unwrap();
        assert!(read("machines.html").contains("No sample of a host") && !read("willmann.html").contains("other host"));
        assert!(read("index.html").contains("of 0 hosts"));
    }
}
