//! The parts of a simulation's page besides its rows: cycles and misses by purpose, the locks, the changes of threads,
//! the gain of lower costs, and throughput by the number of CPUs.
//!
//! All of it comes from [`Account`], which only rows of the simulator have; the page of a measurement has none of it.
//! The machine is a model, so every caption states the origin of its numbers.

use std::collections::BTreeMap;

use serde::Serialize;
use vsmp::{Part, PartGroup};

use super::figures::{Figure, lines, over_connections, representatives, value};
use super::svg::{Line, StackedChart};
use crate::result::{Results, Row, Scaling};
use crate::simulated::Account;
use crate::stats::Estimate;
use crate::units::significant;

const COUNTED: &str =
    "Source: every cycle of every virtual CPU, counted by the simulator; the parts sum to the clocks.";
const VIRTUAL: &str = "Source: bytes that the clients received, over virtual time. Bars are 95 % confidence intervals over \
                       the seeds (Student's t).";
const AGAIN: &str = "Change of the throughput, and in brackets of the busy cycles for a kilobyte. If the wires are the limit, only \
                     the second can change. The same seeds ran again with these costs lower; differences are within a seed.";

/// A table of the page.
#[derive(Debug, Serialize)]
pub(super) struct DataTable {
    pub title: &'static str,
    pub columns: Vec<String>,
    pub rows: Vec<TableLine>,
    pub caption: &'static str,
}

/// A line of it; a line with a sum of those below is emphasised.
#[derive(Debug, Serialize)]
pub(super) struct TableLine {
    pub sum: bool,
    pub cells: Vec<String>,
}

/// A row of the document with its account.
type Accounted<'a> = (&'a Row, &'a Account);

/// The rows of simulations.
fn accounted(results: &Results) -> Vec<Accounted<'_>> {
    results.rows.iter().filter_map(|row| Some((row, row.simulated.as_ref()?))).collect()
}

/// The figures, in reading order.
pub(super) fn figures(results: &Results) -> Vec<Figure> {
    let rows = accounted(results);
    let all: Vec<&Row> = rows.iter().map(|(row, _)| *row).collect();
    [throughput(&all), cycles_chart(&rows), scaling_chart(&results.scaling)].into_iter().flatten().collect()
}

/// The tables, in reading order; empty for a document of measurements.
pub(super) fn tables(results: &Results) -> Vec<DataTable> {
    let rows = accounted(results);
    if rows.is_empty() {
        return Vec::new();
    }
    let gains = gains(&rows);
    let scaling = (!results.scaling.is_empty()).then(|| scaling_table(&results.scaling));
    let counted = [cycles(&rows), misses(&rows), locks(&rows), switches(&rows), cpus(&rows)];
    gains.into_iter().chain(scaling).chain(counted).collect()
}

fn name(row: &Row) -> String {
    format!("{}, {} connections, {} CPUs", row.key.variant(), row.key.connections, row.key.threads)
}

fn kilobytes(row: &Row) -> f64 {
    (row.bytes as f64 / 1024.0).max(f64::MIN_POSITIVE)
}

fn throughput(rows: &[&Row]) -> Option<Figure> {
    lines(
        "Throughput against connections",
        ("connections (logarithmic)", "Gb/s"),
        over_connections(&representatives(rows), |row| Some(value(row.gbps.estimate()))),
        "Payload that the clients received. Differences below 10 % are not significant (docs/simulator.md).",
        VIRTUAL,
    )
}

fn cycles_chart(rows: &[Accounted<'_>]) -> Option<Figure> {
    let bar = |(row, account): &Accounted<'_>| {
        let share = |group: PartGroup| account.group(group) as f64 / kilobytes(row);
        (name(row), PartGroup::ALL.map(share).to_vec())
    };
    let chart = StackedChart {
        y_label: "cycles for each KB, all CPUs",
        series: PartGroup::ALL.map(PartGroup::name).to_vec(),
        categories: rows.iter().map(bar).collect(),
    };
    let title = "Cycles by purpose";
    Some(Figure {
        svg: chart.render(title)?,
        title: title.into(),
        caption: "Work is the cost on one CPU with perfect caches; memory is the cost of cache misses; spinning is waiting on the \
                  CPU; scheduling includes its own misses. Idle CPUs wait for the wires, or for work that another CPU has."
            .into(),
        provenance: COUNTED,
    })
}

fn cycles(rows: &[Accounted<'_>]) -> DataTable {
    let by_part = |cell: &dyn Fn(&Account) -> u64, title: String, sum: bool| {
        let cells = rows.iter().map(|(row, account)| significant(cell(account) as f64 / kilobytes(row)));
        TableLine { sum, cells: std::iter::once(title).chain(cells).collect() }
    };
    let part_of = |account: &Account, part: Part| -> u64 {
        account.cpus.iter().filter_map(|cpu| cpu.parts.get(&part.name())).sum()
    };
    let mut table = vec![by_part(&|account| account.cpus.iter().map(|cpu| cpu.total).sum(), "all".into(), true)];
    for group in PartGroup::ALL {
        table.push(by_part(&|account| account.group(group), group.name().to_owned(), true));
        let parts = || group.parts().filter(|part| rows.iter().any(|(_, account)| part_of(account, *part) > 0));
        for part in parts().filter(|_| parts().count() > 1) {
            table.push(by_part(&|account| part_of(account, part), part.name(), false));
        }
    }
    DataTable {
        title: "Cycles for each KB",
        columns: headed("cycles of all CPUs", rows),
        rows: table,
        caption: COUNTED,
    }
}

fn headed(first: &str, rows: &[Accounted<'_>]) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(rows.iter().map(|(row, _)| name(row))).collect()
}

/// A table of counts by name, for each kilobyte, with their sum in front.
fn counts(
    title: &'static str,
    first: &str,
    rows: &[Accounted<'_>],
    of: impl Fn(&Account) -> &BTreeMap<String, u64>,
    caption: &'static str,
) -> DataTable {
    let mut names: Vec<&String> = rows.iter().flat_map(|(_, account)| of(account).keys()).collect();
    names.sort_unstable();
    names.dedup();
    let line = |title: &str, sum: bool, cell: &dyn Fn(&Account) -> u64| {
        let cells = rows.iter().map(|(row, account)| significant(cell(account) as f64 / kilobytes(row)));
        TableLine { sum, cells: std::iter::once(title.to_owned()).chain(cells).collect() }
    };
    let mut table = vec![line("all", true, &|account| of(account).values().sum())];
    table.extend(names.iter().map(|name| line(name, false, &|account| of(account).get(*name).copied().unwrap_or(0))));
    DataTable { title, columns: headed(first, rows), rows: table, caption }
}

fn misses(rows: &[Accounted<'_>]) -> DataTable {
    let caption = "Lines of the stack's objects, of atomics and locks, of the scheduler, and those that the machine's kernel \
                   touched beyond Heddle (footprint).";
    counts("Cache misses for each KB", "misses", rows, |account| &account.misses, caption)
}

fn switches(rows: &[Accounted<'_>]) -> DataTable {
    counts("Changes of threads for each KB", "switches", rows, |account| &account.switches, COUNTED)
}

fn locks(rows: &[Accounted<'_>]) -> DataTable {
    let columns =
        ["", "lock class", "acquisitions/KB", "first try fails, %", "waiting, cycles/KB", "holding, cycles/KB"];
    let mut table = Vec::new();
    for (row, account) in rows {
        for lock in row.locks.iter().filter(|lock| lock.acquired > 0) {
            let cycles = |nanos: Option<u64>| {
                nanos.map_or("–".into(), |nanos| {
                    significant(nanos as f64 * account.megahertz as f64 / 1000.0 / kilobytes(row))
                })
            };
            let cells = vec![
                name(row),
                lock.class.clone(),
                significant(lock.acquired as f64 / kilobytes(row)),
                format!("{:.1}", 100.0 * lock.first_try_failed as f64 / lock.acquired as f64),
                cycles(lock.wait_ns),
                cycles(lock.hold_ns),
            ];
            table.push(TableLine { sum: false, cells });
        }
    }
    let caption = "Waiting is after a first try that failed. Times are virtual, and measuring them costs nothing.";
    DataTable { title: "Locks", columns: columns.map(str::to_owned).to_vec(), rows: table, caption }
}

fn cpus(rows: &[Accounted<'_>]) -> DataTable {
    let mut columns = vec![String::new(), "CPU".to_owned()];
    columns.extend(PartGroup::ALL.map(|group| format!("{}, %", group.name())));
    let mut table = Vec::new();
    for (row, account) in rows {
        for (number, cpu) in account.cpus.iter().enumerate() {
            let share = |group: PartGroup| {
                let cycles = cpu.groups.get(group.name()).copied().unwrap_or(0);
                format!("{:.1}", 100.0 * cycles as f64 / cpu.total.max(1) as f64)
            };
            let cells = [name(row), number.to_string()].into_iter().chain(PartGroup::ALL.map(share));
            table.push(TableLine { sum: false, cells: cells.collect() });
        }
    }
    DataTable { title: "Each CPU", columns, rows: table, caption: COUNTED }
}

fn gains(rows: &[Accounted<'_>]) -> Option<DataTable> {
    let tried: Vec<Accounted<'_>> = rows.iter().copied().filter(|(_, account)| !account.what_if.is_empty()).collect();
    let first = tried.first()?.1;
    let cell = |account: &Account, class: &str| {
        let found = account.what_if.iter().find(|what_if| what_if.class == class);
        found.map_or("–".into(), |what_if| {
            format!("{} % ({} %)", signed(what_if.throughput_percent), signed(what_if.cycles_percent))
        })
    };
    let line = |class: &String| {
        let cells = tried.iter().map(|(_, account)| cell(account, class));
        TableLine { sum: false, cells: std::iter::once(class.clone()).chain(cells).collect() }
    };
    let classes: Vec<String> = first.what_if.iter().map(|what_if| what_if.class.clone()).collect();
    Some(DataTable {
        title: "Throughput if a cost were lower",
        columns: headed(&format!("costs lower by {} %", first.what_if[0].lower_by_percent), &tried),
        rows: classes.iter().map(line).collect(),
        caption: AGAIN,
    })
}

fn signed(of: Estimate) -> String {
    let half = of.ci95.map_or(String::new(), |half| format!(" ± {half:.1}"));
    format!("{:+.1}{half}", of.mean)
}

fn scaling_chart(scaling: &[Scaling]) -> Option<Figure> {
    let line = |one: &Scaling| Line {
        label: one.variant.clone(),
        is_kernel: false,
        family: String::new(),
        elsewhere_of: None,
        points: one.points.iter().map(|(cpus, gbps)| (f64::from(*cpus), value(*gbps))).collect(),
    };
    lines(
        "Throughput against CPUs",
        ("CPUs (logarithmic)", "Gb/s"),
        scaling.iter().map(line).collect(),
        "The table of the scalability law has the fit to these points.",
        VIRTUAL,
    )
}

fn scaling_table(scaling: &[Scaling]) -> DataTable {
    let columns =
        ["", "one CPU (λ), Gb/s", "contention (σ)", "coherence (κ)", "most useful CPUs", "worst error of a point"];
    let line = |one: &Scaling| {
        let Some(law) = one.law else {
            let cells = [one.variant.clone(), "–".into(), "–".into(), "–".into(), "–".into(), "–".into()];
            return TableLine { sum: false, cells: cells.to_vec() };
        };
        let cells = vec![
            one.variant.clone(),
            significant(law.lambda),
            format!("{:.4}", law.sigma),
            format!("{:.6}", law.kappa),
            law.peak().map_or("no bound".into(), |peak| format!("{peak:.0}")),
            format!("{:.1} %", 100.0 * law.worst_error),
        ];
        TableLine { sum: false, cells }
    };
    DataTable {
        title: "The universal scalability law",
        columns: columns.map(str::to_owned).to_vec(),
        rows: scaling.iter().map(line).collect(),
        caption: "X(n) = λn / (1 + σ(n − 1) + κn(n − 1)), by least squares (Gunther 2008). If the wires are the limit, the fitted contention is that of the wires.",
    }
}
