//! The report: complete, self-contained, and without loss of measurements on errors.

mod synthetic;

use std::fs;
use std::path::Path;

use lab::report::{render, write, write_json, write_or_print};
use lab::result::Results;

#[test]
fn three_files_stand_side_by_side() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("a/report");
    let results = synthetic::results();
    let index = write(&directory, &results).unwrap();
    assert_eq!(index, directory.join("index.html"));
    let again: Results = serde_json::from_str(&fs::read_to_string(directory.join("results.json")).unwrap()).unwrap();
    assert_eq!(again, results);
    let csv = fs::read_to_string(directory.join("results.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + results.rows.len());
    // Overwrites itself, and leaves no other files.
    write(&directory, &results).unwrap();
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
}

#[test]
fn the_page_needs_nothing_but_itself() {
    let page = render(&synthetic::results());
    for fetched in ["<script", "<link", "<img", "src=", "@import", "url("] {
        assert!(!page.contains(fetched), "the page contains {fetched}");
    }
    let links = page.matches("http").count();
    let namespaces = page.matches("http://www.w3.org/2000/svg").count();
    assert_eq!(links, namespaces, "the only addresses are names of the SVG format");
}

#[test]
fn the_page_shows_everything_that_was_asked_for() {
    let results = synthetic::results();
    let page = render(&results);
    let page = page.replace("&#x2f;", "/").replace("&#x27;", "'");
    let advice = results.recommendation.as_ref().unwrap();
    assert!(page.find(&advice.reason).unwrap() < page.find("<h2>").unwrap(), "the recommendation comes first");
    for title in [
        "Throughput against connections",
        "Lock contention against groups",
        "Throughput against groups",
        "Processor time",
        "Context switches",
        "Locks taken",
        "Waiting for locks",
        "did not succeed at once",
        "All rows",
    ] {
        assert!(page.contains(title), "no {title}");
    }
    for fact in ["Synthetic processor", "tsc", "congestion_control", "cubic", "slice_ms", "The hypervisor took 2.5 %"] {
        assert!(page.contains(fact), "no {fact}");
    }
    let figures = page.matches("<figure>").count();
    assert_eq!(figures, page.matches("<small>Source: ").count(), "every figure names its source");
    assert!(page.matches("class=\"s0 error\"").count() >= 4, "error bars are drawn");
    assert!(!page.contains("NaN") && !page.contains("inf\""));
}

#[test]
fn names_cannot_break_the_page() {
    let mut results = synthetic::results();
    results.rows[0].key.arch = "<b>&\"".into();
    results.parameters.insert("flag".into(), "</table><script>".into());
    let page = render(&results);
    assert!(!page.contains("<b>") && !page.contains("<script>"));
    assert!(page.contains("&lt;b&gt;"));
}

/// A reader can leave out each family of architectures, but not the kernel.
#[test]
fn the_reader_chooses_the_lines() {
    let results = synthetic::results();
    let page = render(&results);
    let mut families: Vec<&str> =
        results.rows.iter().map(|row| row.key.family()).filter(|name| !name.is_empty()).collect();
    families.sort_unstable();
    families.dedup();
    assert!(families.len() >= 3, "{families:?}");
    for family in &families {
        assert!(page.contains(&format!(r#"<input type="checkbox" checked value="{family}">"#)), "{family}");
        assert!(page.contains(&format!(r#"not(:checked)) g[data-family="{family}"] "#)), "{family}");
        assert!(page.contains(&format!(r#"<g data-family="{family}">"#)), "no line of {family}");
    }
    assert_eq!(page.matches("<input").count(), families.len());
}

#[test]
fn nothing_measured_still_makes_a_page() {
    let machine = synthetic::results().machine;
    let page = render(&Results::new(machine, serde_json::Map::new(), Vec::new()));
    assert!(page.contains("No recommendation") && !page.contains("<figure>"));
}

#[test]
fn an_impossible_directory_is_named_and_the_result_is_printed() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("taken");
    fs::write(&file, "a file").unwrap();
    let results = synthetic::results();
    for directory in [file.clone(), file.join("below")] {
        let mut printed = Vec::new();
        let error = write_or_print(&directory, &results, &mut printed).unwrap_err();
        let sentence = error.to_string();
        assert!(sentence.starts_with(&directory.display().to_string()), "{sentence}");
        assert!(sentence.contains("choose another directory") && !sentence.contains('\n'), "{sentence}");
        assert_eq!(serde_json::from_slice::<Results>(&printed).unwrap(), results);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "a file");
}

#[test]
fn a_full_disk_says_to_free_space() {
    let error = write_json(Path::new("/dev/full"), &synthetic::results()).unwrap_err();
    assert!(error.to_string().contains("free some space"), "{error}");
    assert_eq!(error.path(), Path::new("/dev/full"));
}
