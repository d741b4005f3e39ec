//! The page of `heddle rfc2544`: figures and tables after those of the paper (Nakahara 2015, figures 4 to 7, tables 3 and 4).

use std::collections::BTreeSet;

use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use super::figures::Figure;
use super::page;
use super::svg::{Line, LineChart, Value};
use crate::machine::Machine;
use crate::result::Series;
use crate::rfc2544::document::{Rfc2544Results, Rfc2544Row};
use crate::rfc2544::run::Over;
use crate::units::{count, estimate, significant};

const SEARCH: &str = "Source: trials on this machine: the highest rate at which every frame arrived. Bars are 95 % confidence \
                      intervals over the repetitions (Student's t).";
const COUNTED: &str = "Source: frames offered and frames that arrived, counted exactly, in one trial for each point.";

/// The whole report as one self-contained HTML document.
///
/// # Panics
/// Never with the template of this build: every name it uses is defined here.
pub fn render_rfc2544(results: &Rfc2544Results) -> String {
    let mut environment = Environment::new();
    let text = include_str!("rfc2544.html");
    environment.add_template("rfc2544.html", text).expect("the template of this build parses");
    let template = environment.get_template("rfc2544.html").expect("it was added above");
    let values = Rfc2544Page {
        style: page::STYLE,
        machine: &results.machine,
        remarks: results.machine.remarks(),
        commit: &results.commit,
        finished_at: &results.finished_at,
        over_tap: results.parameters.get("over").is_some_and(|over| over == Over::Tap.name()),
        figures: figures(&results.rows),
        columns: COLUMNS,
        rows: results.rows.iter().map(cells).collect(),
        not_measured: &results.not_measured,
        facts: page::facts(&results.machine, &results.commit),
        parameters: page::parameters(&results.parameters),
    };
    template.render(Serde(&values)).expect("the template uses only what it is given")
}

/// The names that the template uses.
#[derive(Serialize)]
struct Rfc2544Page<'a> {
    style: &'static str,
    machine: &'a Machine,
    remarks: Vec<String>,
    commit: &'a str,
    finished_at: &'a str,
    over_tap: bool,
    figures: Vec<Figure>,
    columns: [&'static str; 14],
    rows: Vec<Vec<String>>,
    not_measured: &'a [String],
    facts: Vec<(&'static str, String)>,
    parameters: Vec<(String, String)>,
}

const COLUMNS: [&str; 14] = [
    "bridge",
    "frame bytes",
    "frames/s without loss",
    "Mb/s",
    "% of the line",
    "frames/s, overload",
    "× first",
    "× one worker",
    "burst, frames",
    "latency median, µs",
    "99 %, µs",
    "longest at a flush, µs",
    "out of order",
    "trials repeated",
];

fn cells(row: &Rfc2544Row) -> Vec<String> {
    let none = || "–".to_owned();
    let series = |series: Option<&Series>| series.map_or_else(none, |series| estimate(series.estimate()));
    vec![
        row.contender(),
        row.frame_bytes.to_string(),
        estimate(row.throughput_fps.estimate()),
        significant(row.throughput_mbps),
        row.line_percent.map_or_else(none, |percent| format!("{percent:.1}")),
        estimate(row.overload_fps.estimate()),
        row.ratio_to_first.map_or_else(none, estimate),
        row.ratio_to_one_worker.map_or_else(none, estimate),
        series(row.back_to_back_frames.as_ref()),
        series(row.latency.as_ref().map(|latency| &latency.median_us)),
        series(row.latency.as_ref().map(|latency| &latency.p99_us)),
        series(row.flush.as_ref().map(|flush| &flush.longest_with_us)),
        count(row.out_of_order as f64),
        count(row.repeated_trials as f64),
    ]
}

fn figures(rows: &[Rfc2544Row]) -> Vec<Figure> {
    let kfps = |row: &Rfc2544Row| scaled(&row.throughput_fps, 1e-3);
    let mbps = |row: &Rfc2544Row| scaled(&row.throughput_fps, f64::from(row.frame_bytes) * 8e-6);
    [
        over_sizes(
            rows,
            "Frames a second against frame size",
            "1000 frames/s",
            &kfps,
            "Both directions together. Compare the paper's figure 4.",
        ),
        over_workers(rows),
        over_sizes(rows, "Throughput against frame size", "Mb/s", &mbps, "Bits of frames, as in the paper's figure 6."),
        loss(rows),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn scaled(series: &Series, by: f64) -> Value {
    (series.mean * by, series.ci95.map(|ci| ci * by))
}

fn contenders(rows: &[Rfc2544Row]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        if !names.contains(&row.contender()) {
            names.push(row.contender());
        }
    }
    names
}

fn over_sizes(
    rows: &[Rfc2544Row],
    title: &str,
    y_label: &str,
    figure: &dyn Fn(&Rfc2544Row) -> Value,
    caption: &str,
) -> Option<Figure> {
    let line = |name: String| {
        let mut points: Vec<(f64, Value)> = rows
            .iter()
            .filter(|row| row.contender() == name)
            .map(|row| (f64::from(row.frame_bytes), figure(row)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { is_kernel: is_reference(&name), label: name, family: String::new(), elsewhere_of: None, points }
    };
    let lines = contenders(rows).into_iter().map(line).collect();
    drawn(title, ("frame size in bytes (logarithmic)", y_label), lines, caption, SEARCH)
}

fn over_workers(rows: &[Rfc2544Row]) -> Option<Figure> {
    let workers: BTreeSet<u32> = rows.iter().map(|row| row.workers).collect();
    let shortest = rows.iter().map(|row| row.frame_bytes).min()?;
    let mut names: Vec<&str> = rows.iter().map(|row| row.bridge.as_str()).collect();
    names.dedup();
    let line = |name: &str| Line {
        is_kernel: is_reference(name),
        label: name.to_owned(),
        family: String::new(),
        elsewhere_of: None,
        points: rows
            .iter()
            .filter(|row| row.bridge == name && row.frame_bytes == shortest)
            .map(|row| (f64::from(row.workers), scaled(&row.throughput_fps, 1e-3)))
            .collect(),
    };
    let lines = names.into_iter().map(line).collect();
    let caption = format!("Frames of {shortest} bytes. Compare the paper's figure 5.");
    let axes = ("workers (logarithmic)", "1000 frames/s");
    (workers.len() > 1).then(|| drawn("Frames a second against workers", axes, lines, &caption, SEARCH))?
}

fn loss(rows: &[Rfc2544Row]) -> Option<Figure> {
    let shortest = rows.iter().filter(|row| !row.loss.is_empty()).map(|row| row.frame_bytes).min()?;
    let line = |row: &Rfc2544Row| {
        let mut points: Vec<(f64, Value)> =
            row.loss.iter().map(|point| (point.offered_fps * 1e-3, (point.loss_percent, None))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line {
            is_kernel: is_reference(&row.bridge),
            label: row.contender(),
            family: String::new(),
            elsewhere_of: None,
            points,
        }
    };
    let lines = rows.iter().filter(|row| row.frame_bytes == shortest && !row.loss.is_empty()).map(line).collect();
    let axes = ("offered, 1000 frames/s (logarithmic)", "% lost");
    let caption = format!("Frame loss rate (RFC 2544 section 26.3), frames of {shortest} bytes.");
    drawn("Loss against offered rate", axes, lines, &caption, COUNTED)
}

/// Lines that are only for comparison are dashed.
fn is_reference(name: &str) -> bool {
    name.starts_with("cable") || name.starts_with("linux")
}

fn drawn(title: &str, axes: (&str, &str), lines: Vec<Line>, caption: &str, provenance: &'static str) -> Option<Figure> {
    let chart = LineChart { x_label: axes.0, y_label: axes.1, lines };
    Some(Figure { svg: chart.render(title)?, title: title.into(), caption: caption.into(), provenance })
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::machine::Probe;
    use crate::rfc2544::document::{LatencyFigures, LossPoint};

    fn row(bridge: &str, workers: u32, frame_bytes: u32, rate: f64) -> Rfc2544Row {
        let series = |mean: f64| Series::of(vec![mean, mean * 1.02]).expect("samples");
        Rfc2544Row {
            bridge: bridge.into(),
            workers,
            frame_bytes,
            throughput_fps: series(rate),
            throughput_mbps: rate * f64::from(frame_bytes) * 8e-6,
            line_percent: None,
            overload_fps: series(rate * 1.1),
            ratio_to_first: None,
            ratio_to_one_worker: None,
            loss: vec![LossPoint { offered_fps: rate, loss_percent: 1.5 }],
            back_to_back_frames: Some(series(256.0)),
            latency: Some(LatencyFigures { median_us: series(3.0), p99_us: series(9.0), longest_us: series(90.0) }),
            flush: None,
            out_of_order: 0,
            repeated_trials: 2,
        }
    }

    /// The numbers are those of the paper's table 3.
    fn page() -> String {
        let rows = vec![
            row("generic", 1, 74, 99.3e3),
            row("generic", 1, 128, 81.3e3),
            row("mpsafe", 1, 74, 329.0e3),
            row("mpsafe", 2, 74, 527.7e3),
        ];
        let mut results = Rfc2544Results::new(Probe::start().finish(), Map::new(), rows);
        results.not_measured = vec!["rcu with 9 workers: <no> descriptor".into()];
        render_rfc2544(&results)
    }

    #[test]
    fn every_figure_is_drawn() {
        let page = page();
        let titles = [
            "Frames a second against frame size",
            "Frames a second against workers",
            "Throughput against frame size",
            "Loss against offered rate",
            "All rows",
            "Measured on this machine",
        ];
        for title in titles {
            assert!(page.contains(title), "no {title}");
        }
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(page.contains("mpsafe, 2 workers") && page.contains("--accent"), "rows and style");
        assert!(page.contains("&lt;no&gt;"), "what was not measured is said, and escaped");
    }

    /// The page describes the generator that was used.
    #[test]
    fn the_generator_is_described() {
        assert!(page().contains("devices in memory") && !page().contains("packet sockets"));
        let parameters = [("over".to_owned(), Over::Tap.name().into())].into_iter().collect();
        let rows = vec![row("linux", 1, 64, 600e3), row("rcu", 1, 64, 500e3)];
        let over_tap = render_rfc2544(&Rfc2544Results::new(Probe::start().finish(), parameters, rows));
        assert!(over_tap.contains("packet sockets") && !over_tap.contains("devices in memory"));
    }

    #[test]
    fn the_page_needs_nothing_but_itself() {
        let page = page();
        for fetched in ["<script", "<link", "<img", "src=", "@import", "url("] {
            assert!(!page.contains(fetched), "the page contains {fetched}");
        }
    }
}
