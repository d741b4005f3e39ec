//! Writes the counted part of `docs/bridge.md`: where the instructions of one frame go, by function.
//!
//! Callgrind gives the source line of each instruction, even of inlined functions; a line belongs to the last function
//! that begins above it. So the counts are those of the source, however the compiler has cut it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::missing;
use super::origin::{self, Origin};
use crate::metadata;

const BEGIN: &str = "<!-- counted: written by cargo xtask instructions --bridge -->";
const END: &str = "<!-- end of counted -->";
/// Exclusions, by the example's names.
const EXCLUSIONS: [&str; 3] = ["generic", "mpsafe", "rcu"];
const ROUNDS: u64 = 50;
/// Stations behind each port: the addresses for which the page has rates.
const STATIONS: u64 = 512;
/// Functions that the page names.
const FUNCTIONS: usize = 32;

/// Instructions by function, under each exclusion.
type Table = BTreeMap<String, [u64; EXCLUSIONS.len()]>;

fn page() -> PathBuf {
    metadata::root().join("docs/bridge.md")
}

/// Counts one frame under each exclusion and writes the page.
///
/// # Errors
/// Valgrind is missing, the example does not build, or the page has lost its markers.
pub fn write() -> Result<(), String> {
    if let Some(reason) = missing() {
        return Err(reason);
    }
    let mut build = metadata::cargo();
    build.current_dir(metadata::root()).env("CARGO_INCREMENTAL", "0");
    build.args(["build", "--quiet", "--release", "--locked", "--package", "heddle-switch", "--example", "frame"]);
    if !build.status().is_ok_and(|status| status.success()) {
        return Err("the example `frame` of heddle-switch does not build".to_owned());
    }
    let program = metadata::target_directory()?.join("release/examples/frame");
    let (mut functions, mut totals) = (Table::new(), [0; EXCLUSIONS.len()]);
    let mut sources = Sources::default();
    for (column, exclusion) in EXCLUSIONS.iter().enumerate() {
        let (profile, frames) = count(&program, exclusion)?;
        for ((file, line), instructions) in origin::by_line(&profile)? {
            let function = sources.function(&file, line);
            functions.entry(function).or_default()[column] += instructions;
            totals[column] += instructions;
        }
        totals[column] /= frames;
        functions.values_mut().for_each(|counts| counts[column] /= frames);
    }
    let text = std::fs::read_to_string(page()).map_err(|error| format!("docs/bridge.md: {error}"))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("docs/bridge.md has lost a marker, {BEGIN} or {END}"))?;
    let table = table(functions, totals);
    print!("{table}");
    std::fs::write(page(), format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
        .map_err(|error| format!("docs/bridge.md cannot be written: {error}"))
}

fn count(program: &Path, exclusion: &str) -> Result<(String, u64), String> {
    let file = metadata::target_directory()?.join("frame.callgrind");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=frame::counted*"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args([exclusion, &ROUNDS.to_string(), &STATIONS.to_string()])
        .output()
        .map_err(|error| format!("valgrind could not be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let frames = said.lines().find_map(|line| line.strip_suffix(" operations")?.parse::<u64>().ok());
    let profile = std::fs::read_to_string(&file).unwrap_or_default();
    match frames {
        Some(frames) if frames > 0 => Ok((profile, frames)),
        _ => Err(format!("`frame {exclusion}` under callgrind: {said}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// The heads of functions in source files, by line.
#[derive(Default)]
struct Sources(HashMap<String, Vec<(u64, String)>>);

impl Sources {
    /// The name of a line's function with its file, or of where the line comes from.
    fn function(&mut self, path: &str, line: u64) -> String {
        let origin = Origin::of(path);
        let Origin::Workspace { room, file } = &origin else { return origin.row() };
        let heads = self.0.entry(path.to_owned()).or_insert_with(|| {
            let source = metadata::root().join(format!("crates/{room}/src/{file}"));
            heads(&std::fs::read_to_string(source).unwrap_or_default())
        });
        let name = heads.iter().rev().find(|(at, _)| *at <= line).map_or("", |(_, name)| name);
        format!("`{room}/{file}` {name}")
    }
}

/// The functions of a source file: the line of each head, and its name.
fn heads(source: &str) -> Vec<(u64, String)> {
    let head = |(number, line): (usize, &str)| {
        let (before, rest) = line.trim_start().split_once("fn ")?;
        let qualifiers = ["pub", "pub(crate)", "pub(super)", "const", "unsafe", "extern"];
        let is_head = before.split_whitespace().all(|word| qualifiers.contains(&word));
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        (is_head && !name.is_empty()).then_some((number as u64 + 1, name))
    };
    source.lines().enumerate().filter_map(head).collect()
}

/// The table of the page: the functions with most, and all others in one row.
fn table(functions: Table, totals: [u64; EXCLUSIONS.len()]) -> String {
    let mut rows: Vec<(String, [u64; EXCLUSIONS.len()])> = functions.into_iter().collect();
    rows.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.iter().sum::<u64>()));
    let mut text = format!(
        "| function | {} |\n|---|{}\n",
        EXCLUSIONS.map(|name| format!("`{name}`")).join(" | "),
        "---:|".repeat(3)
    );
    let mut named = [0; EXCLUSIONS.len()];
    for (name, counts) in rows.iter().take(FUNCTIONS).filter(|(_, counts)| counts.iter().any(|count| *count > 0)) {
        let _ = writeln!(text, "| {name} | {} |", counts.map(|count| count.to_string()).join(" | "));
        counts.iter().zip(&mut named).for_each(|(count, sum)| *sum += count);
    }
    let rest: Vec<String> = totals.iter().zip(named).map(|(total, named)| (total - named).to_string()).collect();
    let _ = writeln!(text, "| all others | {} |", rest.join(" | "));
    let _ = writeln!(text, "| **one frame** | {} |", totals.map(|total| format!("**{total}**")).join(" | "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_belongs_to_the_last_head_above_it() {
        let source = "//! fn no\nimpl X {\n    pub(crate) fn first(&self) {\n        call();\n    }\n\n    unsafe fn second<T>() {}\n}\nlet f = |fn_like| 1;\n";
        assert_eq!(heads(source), [(3, "first".to_owned()), (7, "second".to_owned())]);
    }

    #[test]
    fn the_rows_add_up_to_a_frame() {
        let functions: Table = (0..40).map(|n| (format!("f{n:02}"), [n, 2 * n, 0])).collect();
        let text = table(functions, [800, 1600, 3]);
        let column = |row: &str| row.split(" | ").nth(1).and_then(|cell| cell.trim().parse::<u64>().ok());
        assert_eq!(text.lines().skip(2).filter_map(column).sum::<u64>(), 800);
        assert!(text.contains("**1600**"));
    }
}
