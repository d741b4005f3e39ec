//! `cargo xtask cycles`: imports between modules have no cycles.
//!
//! For each directory in [`DIRECTORIES`] the files and folders in it are the nodes of a graph; an edge is a path in the
//! code of one that names another, by `crate::`, `super::` or the name of a child, with re-exports followed to the
//! definition. A re-export in `mod.rs` is not an edge, and tests do not count. Two nodes that reach each other are a
//! cycle. The remedy is to move the items that both need into a file below both.
//!
//! `xtask/cycles.txt` lists the allowed upward imports, each with a reason. The list is exact: a pair that is no longer
//! in a cycle fails the check, like a new cycle.

mod graph;
mod modules;
mod tokens;

use std::collections::BTreeMap;
use std::fs;

use graph::Graph;
use modules::Crate;

use crate::metadata;

/// Directories that are searched.
const DIRECTORIES: &[&str] = &[
    "crates/tcp/src",
    "crates/tcp/src/event",
    "crates/tcp/src/event/segment_arrives",
    "crates/ip/src",
    "crates/stack/src",
];

const LIST: &str = "xtask/cycles.txt";

/// An upward import that is allowed: directory, importing module, imported module.
type Pair = (String, String, String);

/// Fails if imports of modules form a cycle.
pub fn check() -> Result<(), String> {
    let text =
        fs::read_to_string(metadata::root().join(LIST)).map_err(|error| format!("cannot read {LIST}: {error}"))?;
    let allowed = parse(&text)?;
    let mut wrong = Vec::new();
    for directory in DIRECTORIES {
        let graph = graph_of(directory)?;
        let pairs: Vec<&Pair> = allowed.keys().filter(|(place, ..)| place == directory).collect();
        wrong.extend(check_directory(directory, graph, &pairs));
    }
    let elsewhere = allowed.keys().filter(|(place, ..)| !DIRECTORIES.contains(&place.as_str()));
    wrong.extend(elsewhere.map(|(place, ..)| format!("{LIST}: {place} is not searched")));
    if wrong.is_empty() {
        println!("modules of {} directories import one way, but for {} pairs", DIRECTORIES.len(), allowed.len());
        return Ok(());
    }
    Err(format!("{}\nMove what both need into a file below both.", wrong.join("\n")))
}

/// The imports between the files and folders of one directory.
fn graph_of(directory: &str) -> Result<Graph, String> {
    let (root, inner) = directory.split_once("/src").unwrap_or((directory, ""));
    let modules = Crate::read(&metadata::root().join(root).join("src"), &format!("{root}/src"))?;
    let within: Vec<&str> = inner.split('/').filter(|part| !part.is_empty()).collect();
    Ok(modules.graph(&within))
}

/// The faults in one directory: cycles without the allowed pairs, and pairs that no cycle needs.
fn check_directory(directory: &str, graph: Graph, allowed: &[&Pair]) -> Vec<String> {
    let mut rest = graph.clone();
    for (_, from, to) in allowed {
        rest.remove(from, to);
    }
    let mut wrong: Vec<String> =
        rest.cycles().iter().map(|cycle| format!("{directory} imports in a circle:\n{cycle}")).collect();
    for (_, from, to) in allowed {
        let line = format!("{directory} {from} -> {to}");
        if !graph.has(from, to) {
            wrong.push(format!("{LIST}: {line} is no import any more; take the line out"));
        } else if !rest.reaches(to, from) {
            wrong.push(format!("{LIST}: {line} is in no cycle any more; take the line out"));
        }
    }
    wrong
}

/// The lines `DIRECTORY FROM -> TO: reason`.
fn parse(text: &str) -> Result<BTreeMap<Pair, String>, String> {
    let mut pairs = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (pair, reason) = line.split_once(": ").unwrap_or((line, ""));
        match pair.split(' ').collect::<Vec<_>>()[..] {
            [directory, from, "->", to] if !reason.is_empty() => {
                pairs.insert((directory.to_owned(), from.to_owned(), to.to_owned()), reason.to_owned());
            }
            _ => return Err(format!("{LIST}: {line:?} is not `DIRECTORY FROM -> TO: reason`")),
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests;
