//! The page: the values of the template, as text.
//!
//! Everything is converted to text here, so the template has only layout. The engine escapes every value except the
//! figures, which escape their own text.

use std::collections::BTreeSet;

use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;
use serde_json::{Map, Value};

use super::accounts::{self, DataTable};
use super::figures::{self, Figure};
use crate::machine::{Machine, Spread};
use crate::result::{Recommendation, Results, Row};
use crate::stats::Estimate;
use crate::units::{bytes, count, estimate};

const COLUMNS: [&str; 15] = [
    "architecture",
    "load",
    "connections",
    "threads",
    "Gb/s",
    "operations/s",
    "× linux",
    "CPU s/GB",
    "locks not immediate",
    "hand-offs",
    "wakes sent / suppressed",
    "switches vol. / invol.",
    "out of order",
    "retransmits",
    "bytes/ connection",
];

/// The number of families from which on a reader can select them.
const FAMILIES: usize = 3;

/// The style sheet of all reports: light, dark, paper; the classes that [`super::svg`] uses.
pub const STYLE: &str = include_str!("style.css");

/// The whole report as one self-contained HTML document.
///
/// # Panics
/// Never with the template of this build: every name it uses is defined here.
pub fn render(results: &Results) -> String {
    let mut environment = Environment::new();
    environment.add_template("index.html", include_str!("index.html")).expect("the template of this build parses");
    let template = environment.get_template("index.html").expect("it was added above");
    let (columns, rows) = all_rows(&results.rows);
    let tables = accounts::tables(results);
    let is_model = !tables.is_empty();
    let page = Page {
        style: STYLE,
        is_model,
        tables,
        machine: &results.machine,
        remarks: results.machine.remarks(),
        commit: &results.commit,
        finished_at: &results.finished_at,
        recommendation: results.recommendation.as_ref(),
        families: families(&results.rows),
        figures: if is_model { accounts::figures(results) } else { figures::all(&results.rows) },
        contention: Contention::of(&results.rows),
        columns,
        rows,
        notes: notes(&results.rows),
        facts: facts(&results.machine, &results.commit),
        parameters: parameters(&results.parameters),
    };
    template.render(Serde(&page)).expect("the template uses only what it is given")
}

/// The families of architectures whose lines a reader may leave out, in the order of the rows; none where there are few.
fn families(rows: &[Row]) -> Vec<&str> {
    let mut families: Vec<&str> = Vec::new();
    for family in rows.iter().map(|row| row.key.family()) {
        if !family.is_empty() && !families.contains(&family) {
            families.push(family);
        }
    }
    if families.len() < FAMILIES { Vec::new() } else { families }
}

/// The names that the template uses.
#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    /// Whether the rows are a simulator's.
    is_model: bool,
    /// The parts that only a simulator's rows have.
    tables: Vec<DataTable>,
    machine: &'a Machine,
    remarks: Vec<String>,
    commit: &'a str,
    finished_at: &'a str,
    recommendation: Option<&'a Recommendation>,
    /// The families whose lines a reader can select.
    families: Vec<&'a str>,
    figures: Vec<Figure>,
    contention: Option<Contention>,
    columns: Vec<&'static str>,
    rows: Vec<Cells>,
    notes: Vec<String>,
    facts: Vec<(&'static str, String)>,
    parameters: Vec<(String, String)>,
}

#[derive(Serialize)]
struct Cells {
    kernel: bool,
    cells: Vec<String>,
}

impl Cells {
    fn of(row: &Row) -> Cells {
        let number = |n: Option<u64>| n.map_or("–".into(), |n| count(n as f64));
        let wakes = row.wakes.map(|w| format!("{} / {}", count(w.sent as f64), count(w.suppressed as f64)));
        let switches = format!("{} / {}", count(row.switches.voluntary as f64), count(row.switches.involuntary as f64));
        let cells = vec![
            row.key.variant(),
            format!("{:?}", row.key.workload).to_lowercase(),
            row.key.connections.to_string(),
            row.key.threads.to_string(),
            estimate(row.gbps.estimate()),
            row.operations_per_s.as_ref().map_or("–".into(), |series| estimate(series.estimate())),
            row.ratio_to_kernel.map_or("–".into(), estimate),
            estimate(Estimate { mean: row.cpu_s_per_gb, ci95: row.cpu_s_per_gb_ci95 }),
            row.contended_percent().map_or("–".into(), |share| format!("{share:.1} %")),
            number(row.handoffs),
            wakes.unwrap_or("–".into()),
            switches,
            number(row.out_of_order),
            number(row.retransmits),
            row.bytes_per_connection.map_or("–".into(), |n| bytes(n as f64)),
        ];
        Cells { kernel: row.key.is_kernel(), cells }
    }
}

/// The table of all rows, without the columns that are empty in every row.
fn all_rows(rows: &[Row]) -> (Vec<&'static str>, Vec<Cells>) {
    let mut lines: Vec<Cells> = rows.iter().map(Cells::of).collect();
    let tells: Vec<bool> = (0..COLUMNS.len()).map(|c| lines.iter().any(|line| line.cells[c] != "–")).collect();
    for line in &mut lines {
        let mut column = tells.iter();
        line.cells.retain(|_| *column.next().unwrap_or(&true));
    }
    (COLUMNS.into_iter().zip(&tells).filter_map(|(title, tells)| tells.then_some(title)).collect(), lines)
}

/// Table 1 of Willmann et al.: a line for each variant and lock class, a column for each number of connections.
#[derive(Serialize)]
struct Contention {
    loads: Vec<u32>,
    lines: Vec<ContentionLine>,
}

#[derive(Serialize)]
struct ContentionLine {
    variant: String,
    class: String,
    cells: Vec<Option<Share>>,
}

#[derive(Serialize)]
struct Share {
    text: String,
    /// Opacity of the cell's colour, 0 to 0.6.
    shade: String,
}

impl Contention {
    fn of(rows: &[Row]) -> Option<Contention> {
        let locked: Vec<&Row> = rows.iter().filter(|row| row.contended_percent().is_some()).collect();
        let loads: BTreeSet<u32> = locked.iter().map(|row| row.key.connections).collect();
        let mut lines: Vec<ContentionLine> = Vec::new();
        for row in &locked {
            for lock in row.locks.iter().filter(|lock| lock.acquired > 0) {
                let variant = row.key.variant();
                if lines.iter().any(|line| line.variant == variant && line.class == lock.class) {
                    continue;
                }
                let cells = loads.iter().map(|&load| share(&locked, &variant, &lock.class, load)).collect();
                lines.push(ContentionLine { variant, class: lock.class.clone(), cells });
            }
        }
        (!lines.is_empty()).then(|| Contention { loads: loads.into_iter().collect(), lines })
    }
}

fn share(rows: &[&Row], variant: &str, class: &str, load: u32) -> Option<Share> {
    let row = rows.iter().find(|row| row.key.variant() == variant && row.key.connections == load)?;
    let lock = row.locks.iter().find(|lock| lock.class == class && lock.acquired > 0)?;
    let share = lock.first_try_failed as f64 / lock.acquired as f64;
    Some(Share { text: format!("{:.1}", 100.0 * share), shade: format!("{:.2}", 0.6 * share.clamp(0.0, 1.0)) })
}

fn notes(rows: &[Row]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for row in rows {
        for note in &row.notes {
            let note = format!("{}, {} connections: {note}", row.key.variant(), row.key.connections);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// The machine and the build, as rows of a table.
pub fn facts(machine: &Machine, commit: &str) -> Vec<(&'static str, String)> {
    let Machine { cpu_model, cores, kernel, mitigations, rustc, profile, .. } = machine;
    let none = || "not known".to_owned();
    let load = |load: Option<[f64; 3]>| load.map_or_else(none, |l| format!("{:.2}, {:.2}, {:.2}", l[0], l[1], l[2]));
    vec![
        ("processor", cpu_model.clone()),
        ("cores", cores.to_string()),
        ("memory", machine.memory_bytes.map_or_else(none, |n| bytes(n as f64))),
        ("kernel", kernel.clone()),
        ("clock source", machine.clock_source.clone().unwrap_or_else(none)),
        ("frequency governor", machine.governor.clone().unwrap_or_else(none)),
        ("load before (1, 5, 15 min)", load(machine.load_before)),
        ("load after", load(machine.load_after)),
        ("cache line to another processor and back", machine.round_trip_ns.map_or_else(none, round_trip)),
        ("used by other programs", machine.other_programs_percent.map_or_else(none, |s| format!("{s:.2} %"))),
        ("stolen by the hypervisor", machine.steal_percent.map_or_else(none, |s| format!("{s:.2} %"))),
        ("mitigations", mitigations.clone()),
        ("build", format!("{rustc}, {profile}, commit {commit}")),
    ]
}

/// The parameters, as rows of a table.
pub(super) fn parameters(parameters: &Map<String, Value>) -> Vec<(String, String)> {
    parameters.iter().map(|(name, value)| (name.clone(), words(value))).collect()
}

fn round_trip(Spread { p10, median, p90 }: Spread) -> String {
    format!("{median:.0} ns (median; eight in ten from {p10:.0} to {p90:.0})")
}

/// A parameter's value in plain words: a text without its quotes, a list with spaces.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| format!("{name}: {}", words(value))).collect::<Vec<_>>().join("; ")
        }
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
