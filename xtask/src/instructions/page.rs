//! Writes the counted part of `docs/performance.md`: the cost of each piece, by crate and file.
//!
//! `cargo xtask instructions --bless` writes it from the same counts as the baseline. A test compares the page's totals
//! with `docs/instructions.json`, so that they are committed together.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use serde_json::Value;

use super::origin::Origin;
use super::{Count, PIECES};
use crate::metadata;

/// The generated part is between these two lines.
const BEGIN: &str = "<!-- counted: written by cargo xtask instructions --bless -->";
const END: &str = "<!-- end of counted -->";
/// Files that the page names.
const FILES: usize = 20;

fn path() -> PathBuf {
    metadata::root().join("docs/performance.md")
}

/// Replaces the counted part of the page.
///
/// # Errors
/// The page or its markers are missing.
pub fn write(counts: &[Count], baseline: &Value) -> Result<(), String> {
    let page = std::fs::read_to_string(path()).map_err(|error| format!("docs/performance.md: {error}"))?;
    let (before, after) = around(&page)?;
    let mut counted = totals(baseline);
    if let Some(first) = counts.first() {
        let _ = write!(counted, "\n{}", places(&first.architecture, counts));
    }
    let page = format!("{before}{BEGIN}\n\n{counted}\n{END}{after}");
    std::fs::write(path(), page).map_err(|error| format!("docs/performance.md cannot be written: {error}"))
}

/// The text before and after the counted part.
fn around(page: &str) -> Result<(&str, &str), String> {
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    parts.ok_or_else(|| format!("docs/performance.md has lost one of its markers, {BEGIN} and {END}"))
}

fn pieces() -> impl Iterator<Item = &'static str> {
    PIECES.iter().map(|(piece, _)| *piece)
}

/// A row of a table of Markdown.
fn row(first: &str, cells: impl Iterator<Item = String>) -> String {
    let mut line = format!("| {first} |");
    cells.for_each(|cell| {
        let _ = write!(line, " {cell} |");
    });
    line + "\n"
}

/// The head of a table with a column for each piece.
fn head(first: &str) -> String {
    row(first, pieces().map(|piece| format!("`{piece}`"))) + &row("---", pieces().map(|_| "---:".to_owned()))
}

/// Instructions of each piece under each architecture.
fn totals(baseline: &Value) -> String {
    let mut table = head("instructions");
    for (architecture, counts) in baseline["instructions"].as_object().into_iter().flatten() {
        table += &row(&format!("`{architecture}`"), pieces().map(|piece| counts[piece].to_string()));
    }
    let fields = super::misses::FIELDS.iter().filter(|_| baseline["misses"].is_object());
    for (field, title) in fields {
        let _ = write!(table, "\n{}", head(title));
        for (architecture, counts) in baseline["misses"].as_object().into_iter().flatten() {
            let cells = pieces().map(|piece| counts[piece][*field].to_string());
            table += &row(&format!("`{architecture}`"), cells);
        }
    }
    table
}

/// Where the instructions of one architecture come from: by crate, and by file for the files with the most.
fn places(architecture: &str, counts: &[Count]) -> String {
    let counts: Vec<&Count> = counts.iter().filter(|count| count.architecture == architecture).collect();
    let (mut rooms, mut files) = (BTreeMap::new(), BTreeMap::new());
    for (column, count) in counts.iter().enumerate() {
        for (origin, instructions) in &count.origins {
            let room = rooms.entry(origin.row()).or_insert_with(|| vec![0; counts.len()]);
            room[column] += instructions;
            if let Origin::Workspace { room, file } = origin {
                files.entry(format!("`{room}/{file}`")).or_insert_with(|| vec![0; counts.len()])[column] +=
                    instructions;
            }
        }
    }
    let each = |table: &mut String, (name, sums): (String, Vec<u64>)| {
        *table += &row(&name, sums.iter().zip(&counts).map(|(sum, count)| (sum / count.operations).to_string()));
    };
    let mut text = format!("### By crate, under `{architecture}`\n\n{}", head("source"));
    sorted(rooms, &counts).into_iter().for_each(|entry| each(&mut text, entry));
    let _ = write!(text, "\n### The {FILES} files with most, under `{architecture}`\n\n{}", head("file"));
    sorted(files, &counts).into_iter().take(FILES).for_each(|entry| each(&mut text, entry));
    text
}

/// Rows by their share of all pieces, each piece weighing the same; the largest first.
fn sorted(rows: BTreeMap<String, Vec<u64>>, counts: &[&Count]) -> Vec<(String, Vec<u64>)> {
    let share = |sums: &[u64]| -> f64 {
        sums.iter().zip(counts).map(|(sum, count)| *sum as f64 / (count.each * count.operations) as f64).sum()
    };
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by(|(_, one), (_, other)| share(other).total_cmp(&share(one)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_totals_of_the_baseline() {
        let page = std::fs::read_to_string(path()).unwrap();
        assert!(around(&page).is_ok());
        let baseline = std::fs::read_to_string(super::super::baseline()).unwrap();
        let totals = totals(&serde_json::from_str(&baseline).unwrap());
        assert!(
            page.contains(&totals),
            "docs/performance.md is not of docs/instructions.json: --bless writes both\n{totals}"
        );
    }

    #[test]
    fn counts_are_given_for_one_operation_and_sorted_by_share() {
        let origins = BTreeMap::from([
            (Origin::of("/x/crates/tcp/src/output.rs"), 300),
            (Origin::of("/x/crates/stack/src/tx.rs"), 700),
        ]);
        let misses = super::super::Misses::default();
        let count = Count { architecture: "one".into(), piece: "data", operations: 10, each: 100, misses, origins };
        let text = places("one", &[count]);
        let (tcp, stack) = (text.find("| `tcp` | 30 |").unwrap(), text.find("| `stack` | 70 |").unwrap());
        assert!(stack < tcp, "{text}");
        assert!(text.contains("| `tcp/output.rs` | 30 |"), "{text}");
    }
}
