//! The figures that the rows of a result allow, each with its caption and the source of its numbers.
//!
//! The first three are the questions of Willmann et al. 2006: throughput against connections (their comparison of the
//! organisations), the share of lock acquisitions that do not succeed at once (their table 1), and throughput against
//! the number of groups. A figure without measurements is omitted.

use std::collections::BTreeSet;

use serde::Serialize;

use super::svg::{BarChart, Line, LineChart, Value};
use crate::result::{KERNEL, OFFLOADED, Row, Workload};
use crate::stats::Estimate;

const EXACT: &str = "Source: exact counters, kept per thread and read at the edges of each slice; no sampling.";
const CLOCK: &str = "Source: bytes that receivers read, over wall time. Lock timing was off. Bars are 95 % confidence \
                     intervals (Student's t).";
const ACCOUNT: &str = "Source: the kernel's own account of each thread (CPU clock, context switches), at the edges of each \
                       slice. Bars are 95 % confidence intervals (Student's t).";
const TIMED: &str = "Source: a separate timed pass, because timing a lock costs several times the lock; throughput was not \
                     taken from it.";

/// A figure as the page shows it.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub title: String,
    pub svg: String,
    pub caption: String,
    pub provenance: &'static str,
}

/// All figures that the rows allow, in reading order.
pub(super) fn all(rows: &[Row]) -> Vec<Figure> {
    let bulk: Vec<&Row> = rows.iter().filter(|row| row.key.workload == Workload::Bulk).collect();
    let best = representatives(&bulk);
    [
        throughput(&best),
        offloaded(&best),
        operations(rows),
        contention(&bulk),
        groups(&bulk),
        cpu(&best),
        switches(&best),
        acquisitions(&best),
        waiting(&best),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// One variant of each architecture: that with the most loads, and of those the highest mean. The kernel is last.
pub(super) fn representatives<'a>(rows: &[&'a Row]) -> Vec<Vec<&'a Row>> {
    let mut arches: Vec<&str> = Vec::new();
    for row in rows {
        if !arches.contains(&row.key.arch.as_str()) {
            arches.push(&row.key.arch);
        }
    }
    arches.sort_by_key(|arch| *arch == KERNEL);
    arches.iter().filter_map(|arch| best_variant(rows, arch)).collect()
}

fn best_variant<'a>(rows: &[&'a Row], arch: &str) -> Option<Vec<&'a Row>> {
    let ours: Vec<&Row> = rows.iter().copied().filter(|row| row.key.arch == arch).collect();
    let variants: BTreeSet<String> = ours.iter().map(|row| row.key.variant()).collect();
    let of = |variant: &String| -> Vec<&'a Row> {
        let mut rows: Vec<&Row> = ours.iter().copied().filter(|row| row.key.variant() == *variant).collect();
        rows.sort_by_key(|row| row.key.connections);
        rows
    };
    let total = |rows: &[&Row]| rows.iter().map(|row| row.figure().mean).sum::<f64>();
    variants.iter().map(of).max_by(|a, b| a.len().cmp(&b.len()).then(total(a).total_cmp(&total(b))))
}

pub(super) fn value(estimate: Estimate) -> Value {
    (estimate.mean, estimate.ci95)
}

/// Lines over connections, one for each group of rows.
pub(super) fn over_connections(groups: &[Vec<&Row>], figure: impl Fn(&Row) -> Option<Value>) -> Vec<Line> {
    let line = |rows: &Vec<&Row>| Line {
        label: rows[0].key.variant(),
        family: rows[0].key.family().to_owned(),
        is_kernel: rows[0].key.is_kernel(),
        elsewhere_of: None,
        points: rows.iter().filter_map(|row| Some((f64::from(row.key.connections), figure(row)?))).collect(),
    };
    groups.iter().map(line).filter(|line| !line.points.is_empty()).collect()
}

pub(super) fn lines(
    title: &str,
    axes: (&str, &str),
    lines: Vec<Line>,
    caption: &str,
    provenance: &'static str,
) -> Option<Figure> {
    let chart = LineChart { x_label: axes.0, y_label: axes.1, lines };
    Some(Figure { svg: chart.render(title)?, title: title.into(), caption: caption.into(), provenance })
}

fn throughput(best: &[Vec<&Row>]) -> Option<Figure> {
    lines(
        "Throughput against connections",
        ("connections (logarithmic)", "Gb/s"),
        over_connections(&where_offloaded(best, false), |row| Some(value(row.gbps.estimate()))),
        "Payload delivered by each process architecture, and by the Linux kernel's own TCP (dashed) in the same seconds. \
         Where an architecture was measured with several group counts or locks, its fastest is drawn; the table has all. \
         Compare Willmann et al. 2006, figure 2 of the technical report.",
        CLOCK,
    )
}

/// The rows of those that leave segmentation and coalescing to the device, or of those that do not; the kernel's in both.
fn where_offloaded<'a>(best: &[Vec<&'a Row>], offloaded: bool) -> Vec<Vec<&'a Row>> {
    let of_kind = |rows: &&Vec<&Row>| {
        let key = &rows[0].key;
        key.is_kernel() || key.arch.ends_with(OFFLOADED) == offloaded
    };
    best.iter().filter(of_kind).cloned().collect()
}

fn offloaded(best: &[Vec<&Row>]) -> Option<Figure> {
    let best = where_offloaded(best, true);
    if best.iter().all(|rows| rows[0].key.is_kernel()) {
        return None;
    }
    lines(
        "Throughput with segmentation left to the device",
        ("connections (logarithmic)", "Gb/s"),
        over_connections(&best, |row| Some(value(row.gbps.estimate()))),
        "Both leave segmentation and coalescing to the device, the kernel to its loopback interface.",
        CLOCK,
    )
}

fn operations(rows: &[Row]) -> Option<Figure> {
    let measured: Vec<&Row> = rows.iter().filter(|row| row.operations_per_s.is_some()).collect();
    let first = measured.first()?.key.workload;
    let of_first: Vec<&Row> = measured.into_iter().filter(|row| row.key.workload == first).collect();
    let (title, unit) = match first {
        Workload::Connect => ("Connections set up and closed", "connections/s"),
        Workload::Bulk | Workload::Rpc => ("Transactions against connections", "transactions/s"),
    };
    let lines_of = over_connections(&representatives(&of_first), |row| Some(value(row.figure())));
    lines(title, ("connections (logarithmic)", unit), lines_of, "One transaction is a request and its response.", CLOCK)
}

/// Rows of architectures measured with several group counts, as one line for each number of connections.
fn over_groups(bulk: &[&Row], figure: impl Fn(&Row) -> Option<Value>) -> Vec<Line> {
    let grouped: Vec<&Row> = bulk.iter().copied().filter(|row| row.key.groups.is_some()).collect();
    let keys: BTreeSet<(&str, Option<&str>, u32)> = grouped.iter().map(|row| sweep(row)).collect();
    let several =
        |pick: fn(&(&str, Option<&str>, u32)) -> String| keys.iter().map(pick).collect::<BTreeSet<_>>().len() > 1;
    let (arches, locks) = (several(|k| k.0.into()), several(|k| k.1.unwrap_or("").into()));
    let mut found = Vec::new();
    for key in &keys {
        let of_key = grouped.iter().filter(|row| sweep(row) == *key);
        let mut points: Vec<(f64, Value)> =
            of_key.filter_map(|row| Some((f64::from(row.key.groups?), figure(row)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let arch = if arches { format!("{}, ", key.0) } else { String::new() };
        let lock = key.1.filter(|_| locks).map(|lock| format!("{lock}, ")).unwrap_or_default();
        if points.len() > 1 {
            found.push(Line {
                label: format!("{arch}{lock}{} connections", key.2),
                family: String::new(),
                is_kernel: false,
                elsewhere_of: None,
                points,
            });
        }
    }
    found
}

/// The parameters that are fixed while the groups vary.
fn sweep(row: &Row) -> (&str, Option<&str>, u32) {
    (&row.key.arch, row.key.lock.as_deref(), row.key.connections)
}

fn contention(bulk: &[&Row]) -> Option<Figure> {
    lines(
        "Lock contention against groups",
        ("connection groups (logarithmic)", "% of lock acquisitions that did not succeed at once"),
        over_groups(bulk, |row| Some((row.contended_percent()?, None))),
        "The stack's own locks together (tables, groups, connections); the table of contention has every row. Compare Willmann et al. 2006, table 1. No error \
         bars: the counts are complete over all slices.",
        EXACT,
    )
}

fn groups(bulk: &[&Row]) -> Option<Figure> {
    lines(
        "Throughput against groups",
        ("connection groups (logarithmic)", "Gb/s"),
        over_groups(bulk, |row| Some(value(row.gbps.estimate()))),
        "With more groups, fewer threads compete for the same lock. Compare Willmann et al. 2006, figure 5.",
        CLOCK,
    )
}

/// Bars for each architecture, one for each number of connections.
fn bars(
    title: &str,
    y_label: &str,
    groups: &[Vec<&Row>],
    figure: impl Fn(&Row) -> Option<Value>,
    (caption, provenance): (&str, &'static str),
) -> Option<Figure> {
    let loads: BTreeSet<u32> = groups.iter().flatten().map(|row| row.key.connections).collect();
    let of_load = |rows: &Vec<&Row>, load: u32| figure(rows.iter().find(|row| row.key.connections == load)?);
    let category = |rows: &Vec<&Row>| {
        (rows[0].key.variant(), loads.iter().map(|&load| of_load(rows, load)).collect::<Vec<Option<Value>>>())
    };
    let categories = groups.iter().map(category).filter(|(_, values)| values.iter().any(Option::is_some)).collect();
    let series = loads.iter().map(|load| format!("{load} connections")).collect();
    let chart = BarChart { y_label, series, categories };
    Some(Figure { svg: chart.render(title)?, title: title.into(), caption: caption.into(), provenance })
}

fn cpu(best: &[Vec<&Row>]) -> Option<Figure> {
    bars(
        "Processor time",
        "CPU seconds per GB",
        best,
        |row| Some((row.cpu_s_per_gb, row.cpu_s_per_gb_ci95)),
        (
            "User and system time of every thread that took part, for each 10\u{2079} bytes delivered; both ends are included. \
             Work that the kernel deferred to ksoftirqd is not in its bar.",
            ACCOUNT,
        ),
    )
}

fn switches(best: &[Vec<&Row>]) -> Option<Figure> {
    bars(
        "Context switches",
        "switches per GB",
        best,
        |row| row.switches_per_gb.map(value),
        ("Voluntary and involuntary together; the document has both.", ACCOUNT),
    )
}

fn acquisitions(best: &[Vec<&Row>]) -> Option<Figure> {
    bars(
        "Locks taken",
        "acquisitions per MB",
        best,
        |row| row.acquisitions_per_mb.filter(|_| !row.locks.is_empty()).map(value),
        ("All classes together, for each 10\u{2076} bytes delivered.", EXACT),
    )
}

fn waiting(best: &[Vec<&Row>]) -> Option<Figure> {
    bars(
        "Waiting for locks",
        "ns per KB",
        best,
        |row| row.wait_ns_per_kb().map(|ns| (ns, None)),
        ("Time from the request of a lock to its acquisition, all classes, for each 10\u{b3} bytes delivered.", TIMED),
    )
}
