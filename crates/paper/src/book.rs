//! The book: a page for each paper, one that compares machines, an index, and the papers' numbers as JSON and CSV, in one
//! directory.
//!
//! A page opens from disk, fetches nothing, and is whole without its script, which only sorts tables. It has a
//! section for each figure: charts with a text alternative, a table of the paper's numbers beside ours, the claims
//! with their verdicts and the numbers behind them, and a paragraph. Style and charts are those of the lab's report
//! ([`lab::report`]).

mod figures;
mod machines;
mod page;

use std::path::{Path, PathBuf};

use lab::csv::quoted;
use lab::machine::{Machine, Probe};
use lab::report::{ReportError, save};

use crate::data::Paper;
use crate::findings::{Findings, Ours, Row};
use crate::store::Store;

/// Writes the pages of some papers into the store's directory, and returns the path of the index.
///
/// # Errors
/// [`ReportError`] for the first file that could not be written.
pub fn write(directory: &Path, papers: &[&Paper], store: &Store) -> Result<PathBuf, ReportError> {
    let host = Probe::start().finish();
    let mut entries = Vec::new();
    for paper in papers {
        let findings = Findings::of(paper, store.samples(), &host);
        save(&directory.join(format!("{}.json", paper.id)), json(&findings).as_bytes())?;
        save(&directory.join(format!("{}.csv", paper.id)), csv(&findings).as_bytes())?;
        let page = page::render(paper, &findings, store, &host);
        save(&directory.join(format!("{}.html", paper.id)), page.as_bytes())?;
        entries.push(page::Entry::of(paper, &findings));
    }
    save(&directory.join("machines.html"), machines::render(papers, store, &host).as_bytes())?;
    let index = directory.join("index.html");
    save(&index, page::index(&entries, machines::hosts(store).len()).as_bytes())?;
    Ok(index)
}

/// The page of a paper, as text.
pub fn render(paper: &Paper, store: &Store, host: &Machine) -> String {
    page::render(paper, &Findings::of(paper, store.samples(), host), store, host)
}

/// The document: figures with rows, claims with verdicts and numbers.
fn json(findings: &Findings<'_>) -> String {
    serde_json::to_string_pretty(findings).expect("findings have string keys only") + "\n"
}

const HEADER: [&str; 16] = [
    "figure",
    "unit",
    "subject",
    "connections",
    "groups",
    "paper",
    "place",
    "derived",
    "fitted",
    "simulated_mean",
    "simulated_ci95",
    "simulated_samples",
    "error_percent",
    "host_mean",
    "host_ci95",
    "host_samples",
];

/// A line for each row of each figure (RFC 4180); samples are separated by spaces.
fn csv(findings: &Findings<'_>) -> String {
    let mut text = HEADER.join(",") + "\r\n";
    for figure in &findings.figures {
        for row in &figure.rows {
            text.push_str(&line(&figure.id, figure.unit, row).map(|cell| quoted(&cell)).join(","));
            text.push_str("\r\n");
        }
    }
    text
}

fn line(figure: &str, unit: &str, row: &Row<'_>) -> [String; HEADER.len()] {
    let ours = |ours: Option<&Ours>| {
        let samples = |ours: &Ours| ours.samples.values().map(f64::to_string).collect::<Vec<_>>().join(" ");
        [
            optional(ours.map(|ours| ours.estimate.mean)),
            optional(ours.and_then(|ours| ours.estimate.ci95)),
            ours.map(samples).unwrap_or_default(),
        ]
    };
    let ([mean, half, samples], [host_mean, host_half, host_samples]) =
        (ours(row.simulated.as_ref()), ours(row.host.as_ref()));
    [
        figure.to_owned(),
        unit.to_owned(),
        row.subject.to_owned(),
        row.connections.to_string(),
        optional(row.groups),
        optional(row.paper),
        row.place.clone().unwrap_or_default(),
        row.derived.to_string(),
        optional(row.fitted),
        mean,
        half,
        samples,
        optional(row.error_percent()),
        host_mean,
        host_half,
        host_samples,
    ]
}

fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::made;
    use crate::point::Place;

    fn filled(directory: &Path) -> (Paper, Store) {
        let paper = Paper::all().remove(0);
        let mut store = Store::open(directory).unwrap();
        let samples = Place::ALL.into_iter().flat_map(|on| made(&paper, on)).collect();
        store.append(samples).unwrap();
        (paper, store)
    }

    #[test]
    fn a_page_stands_beside_its_data_and_needs_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let (paper, store) = filled(directory.path());
        let index = write(directory.path(), &[&paper], &store).unwrap();
        assert_eq!(index, directory.path().join("index.html"));
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        let document: serde_json::Value = serde_json::from_str(&read("willmann.json")).unwrap();
        assert_eq!(document["figures"][0]["rows"][0]["paper"], 4034.0);
        assert_eq!(document["figures"][0]["claims"][0]["simulated"]["verdict"], "holds");
        let csv = read("willmann.csv");
        assert!(csv.lines().all(|line| line.split(',').count() >= HEADER.len()), "{csv}");
        assert!(csv.contains("willmann.tab2,misses/KB,ConnP-T(4),192,,50.38,Table 2,false,,50.3"), "{csv}");
        for name in ["willmann.html", "index.html", "machines.html"] {
            let page = read(name);
            for fetched in ["<link", "<img", "src=", "@import", "url(", "NaN", "inf\""] {
                assert!(!page.contains(fetched), "{name} contains {fetched}");
            }
            assert_eq!(page.matches("http").count(), page.matches("http://www.w3.org/2000/svg").count(), "{name}");
        }
    }

    #[test]
    fn a_page_has_every_figure_and_claim_with_both_verdicts() {
        let directory = tempfile::tempdir().unwrap();
        let (paper, store) = filled(directory.path());
        let page = render(&paper, &store, &Probe::start().finish());
        for figure in &paper.figures {
            assert!(page.contains(&format!("id=\"{}\"", figure.id)), "{}", figure.id);
        }
        for claim in &paper.claims {
            assert!(page.contains(&format!("id=\"{}\"", claim.id)), "{}", claim.id);
        }
        for text in [
            "--no-runs",
            "A model of four cores",
            "fitted",
            "held out",
            "not applicable",
            "± ",
            "sortable",
            "points.jsonl",
        ] {
            assert!(page.contains(text), "no {text}");
        }
        let (charts, texts) = (page.matches("<svg").count(), page.matches("As text").count());
        assert!(charts >= 6 && charts == texts, "{charts} charts, {texts} with text");
    }

    #[test]
    fn a_paper_of_which_nothing_runs_has_a_page_that_says_what_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let host = Probe::start().finish();
        for paper in Paper::all() {
            let page = render(&paper, &store, &host);
            assert!(!page.contains("<svg"), "{}: nothing was measured", paper.id);
            assert!(page.contains("not measured") || paper.claims.is_empty());
            let sequences = paper.figures.iter().filter(|figure| figure.sequence.is_some()).count();
            assert_eq!(page.matches("Step by step, recorded under ").count(), sequences);
            assert_eq!(page.contains("<td style=\"text-align:left\">route hash table, acquired</td>"), sequences > 0);
            assert_eq!(page.matches("Missing: ").count(), paper.figures.iter().filter(|f| f.missing.is_some()).count());
        }
    }
}
