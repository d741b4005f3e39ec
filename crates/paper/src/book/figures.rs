//! The charts of a figure, one for each place that has samples, each with a caption and its numbers as sentences.

use std::collections::BTreeMap;

use lab::report::svg::{BarChart, Line, LineChart, Value};
use lab::units::significant;
use serde::Serialize;

use crate::data::{Axis, Metric};
use crate::findings::{FigureFindings, Row};
use crate::point::Place;

/// A chart as the page shows it.
#[derive(Debug, Serialize)]
pub(super) struct Chart {
    title: String,
    svg: String,
    caption: String,
    /// A sentence for each line or category.
    text: Vec<String>,
}

/// Values of a line by x.
type Points = Vec<(f64, Value)>;

/// The charts that a figure's rows allow.
pub(super) fn of(findings: &FigureFindings<'_>) -> Vec<Chart> {
    let Some(metric) = findings.figure.metric else { return Vec::new() };
    let bars = findings.figure.axis == Axis::Connections && metric != Metric::Throughput;
    let one = |on: Place| if bars { bar_chart(findings, metric, on) } else { line_chart(findings, metric, on) };
    Place::ALL.into_iter().filter_map(one).collect()
}

fn value(row: &Row<'_>, on: Place) -> Option<Value> {
    row.on(on).map(|ours| (ours.estimate.mean, ours.estimate.ci95))
}

fn caption(metric: Metric, axis: Axis, on: Place, elsewhere: bool) -> String {
    let source = match (on, metric) {
        (Place::Host, _) if axis == Axis::FrameBytes => {
            "Source: the test generator's and counter's numbers of frames, over wall time; means over the rounds."
        }
        (Place::Vsmp, _) => "Source: the account of the simulated machine, exact; means over the seeds.",
        (Place::Host, Metric::Throughput | Metric::SpeedUp) => {
            "Source: bytes that receivers read, over wall time; means over the rounds."
        }
        (Place::Host, Metric::VoluntarySwitches | Metric::InvoluntarySwitches) => {
            "Source: the kernel's counts for all threads, those of both ends and of the application; means over the rounds."
        }
        (Place::Host, Metric::LockTime) => {
            "Source: waits from a separate timed pass, and for each acquisition what a free lock takes on this host; means over \
             the rounds."
        }
        (Place::Host, Metric::Scheduler) => {
            "Source: samples of each CPU by the software clock of perf_event in slices of their own; the share of this process's samples \
             that are in functions of the kernel's scheduler, times the CPU time that the kernel counted, at the nominal frequency; means \
             over the rounds."
        }
        (Place::Host, Metric::Misses | Metric::MissesOutsideScheduler) => {
            "Source: the hardware counter of cache misses (perf_event; of the last cache on Intel's processors, of the second on AMD's), \
             sampled on each CPU in slices of their own; means over the rounds."
        }
        (Place::Host, _) => "Source: exact counters of the stack; means over the rounds.",
    };
    let dotted = if elsewhere {
        " Hollow marks are the paper's numbers; the lines between them are only a guide and not the paper's curve."
    } else {
        ""
    };
    format!("Bars are 95 % intervals (Student's t).{dotted} {source}")
}

fn title(findings: &FigureFindings<'_>, on: Place) -> String {
    let name = findings.figure.title.split(':').next().unwrap_or_default();
    match on {
        Place::Vsmp => format!("{name} on the simulated machine"),
        Place::Host => format!("{name} on this host"),
    }
}

fn line_chart(findings: &FigureFindings<'_>, metric: Metric, on: Place) -> Option<Chart> {
    let groups = findings.figure.axis == Axis::Groups;
    // Label, our points, the paper's points.
    let mut found: Vec<(String, Points, Points)> = Vec::new();
    for row in &findings.rows {
        let (label, x) = if groups {
            let Some(groups) = row.groups else { continue };
            (format!("{} connections", row.connections), f64::from(groups))
        } else {
            (row.subject.to_owned(), f64::from(row.connections))
        };
        if !found.iter().any(|(known, ..)| *known == label) {
            found.push((label.clone(), Vec::new(), Vec::new()));
        }
        let Some((_, ours, papers)) = found.iter_mut().find(|(known, ..)| *known == label) else { continue };
        ours.extend(value(row, on).map(|value| (x, value)));
        papers.extend(row.paper.filter(|_| on == Place::Vsmp).map(|number| (x, (number, None))));
    }
    found.retain(|(_, ours, _)| !ours.is_empty());
    for (_, ours, papers) in &mut found {
        ours.sort_by(|a, b| a.0.total_cmp(&b.0));
        papers.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let elsewhere = found.iter().any(|(.., papers)| !papers.is_empty());
    let text =
        found.iter().map(|(label, ours, papers)| sentence(label, ours, papers, metric, findings.figure.axis)).collect();
    let line = |label: String, points, elsewhere_of| Line {
        label,
        family: String::new(),
        is_kernel: false,
        elsewhere_of,
        points,
    };
    let (own, papers): (Vec<Line>, Vec<Option<Line>>) = found
        .into_iter()
        .enumerate()
        .map(|(place, (label, ours, papers))| {
            let paper = line(format!("{label}, paper"), papers, Some(place));
            (line(label, ours, None), Some(paper).filter(|paper| !paper.points.is_empty()))
        })
        .unzip();
    let lines = own.into_iter().chain(papers.into_iter().flatten()).collect();
    let x_label = match findings.figure.axis {
        Axis::Groups => "connection groups (logarithmic)",
        Axis::Connections => "connections (logarithmic)",
        Axis::Processors => "processors (logarithmic)",
        Axis::FrameBytes => "bytes of a frame (logarithmic)",
        Axis::PacketBytes => "bytes of payload in a packet (logarithmic)",
        Axis::Interfaces => "interfaces (logarithmic)",
    };
    let title = title(findings, on);
    let svg = LineChart { x_label, y_label: metric.label(), lines }.render(&title)?;
    Some(Chart { title, svg, caption: caption(metric, findings.figure.axis, on, elsewhere), text })
}

fn sentence(label: &str, ours: &Points, papers: &Points, metric: Metric, axis: Axis) -> String {
    let what = if axis == Axis::Groups { "groups" } else { axis.loads() };
    let list = |points: &Points| {
        let one = |(x, (y, _)): &(f64, Value)| format!("{} with {x} {what}", significant(*y));
        points.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let papers = if papers.is_empty() { String::new() } else { format!(" The paper: {}.", list(papers)) };
    format!("{label}, {}: {}.{papers}", metric.unit(), list(ours))
}

fn bar_chart(findings: &FigureFindings<'_>, metric: Metric, on: Place) -> Option<Chart> {
    let mut loads: Vec<u32> = findings.rows.iter().map(|row| row.connections).collect();
    loads.sort_unstable();
    loads.dedup();
    let mut by_subject: BTreeMap<usize, (String, Vec<Option<Value>>)> = BTreeMap::new();
    for row in &findings.rows {
        let place = findings.figure.subjects.iter().position(|name| name == row.subject)?;
        let category = by_subject.entry(place).or_insert_with(|| (row.subject.to_owned(), vec![None; loads.len()]));
        category.1[loads.binary_search(&row.connections).ok()?] = value(row, on);
    }
    let categories: Vec<(String, Vec<Option<Value>>)> = by_subject.into_values().collect();
    let text = categories.iter().map(|(name, values)| bar_sentence(name, values, &loads, metric)).collect();
    let series = loads.iter().map(|load| format!("{load} connections")).collect();
    let title = title(findings, on);
    let svg = BarChart { y_label: metric.label(), series, categories }.render(&title)?;
    Some(Chart { title, svg, caption: caption(metric, findings.figure.axis, on, false), text })
}

fn bar_sentence(name: &str, values: &[Option<Value>], loads: &[u32], metric: Metric) -> String {
    let one = |(value, load): (&Option<Value>, &u32)| {
        value.map(|(y, _)| format!("{} with {load} connections", significant(y)))
    };
    let list: Vec<String> = values.iter().zip(loads).filter_map(one).collect();
    format!("{name}, {}: {}.", metric.unit(), list.join(", "))
}
