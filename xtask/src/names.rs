//! `cargo xtask names`: only `stack` names architectures in its source, and no two types have one name.
//!
//! The architectures declare their names in `stack`; `crates/every-arch/src/architectures.txt` lists them, and a test
//! keeps it so. The check reads the string literals of every other crate's `src`, without comments and without the unit
//! tests at the end of a file, and fails on a literal that names an architecture. Chosen lists (the quick comparison,
//! examples of a help text) are data files, which tests parse. Examples, benches and directories of tests are exempt;
//! `xtask/names.txt` lists literals with another meaning, and types that may share a name.

mod literals;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::metadata;
use literals::{Literal, literals};

const LIST: &str = "xtask/names.txt";
const ARCHITECTURES: &str = "crates/every-arch/src/architectures.txt";

/// The contents of `xtask/names.txt`.
#[derive(Default)]
struct Rules {
    english: BTreeSet<String>,
    /// Path and word.
    allowed: BTreeSet<(String, String)>,
    counted: Vec<String>,
    /// Types that may share a name.
    shared: Vec<types::Shared>,
    /// Crates whose types may have any name.
    outside: BTreeSet<String>,
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(metadata::root().join(path)).map_err(|error| format!("cannot read {path}: {error}"))
}

fn parse(text: &str) -> Result<Rules, String> {
    let mut rules = Rules::default();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (entry, reason) = line.split_once(": ").unwrap_or((line, ""));
        match entry.split(' ').collect::<Vec<_>>()[..] {
            ["english", word] => _ = rules.english.insert(word.to_owned()),
            ["allow", path, word] if !reason.is_empty() => {
                rules.allowed.insert((path.to_owned(), word.to_owned()));
            }
            ["counted", architecture] => rules.counted.push(architecture.to_owned()),
            ["outside", ref crates @ ..] if !reason.is_empty() => {
                rules.outside.extend(crates.iter().map(|name| (*name).to_owned()));
            }
            ["shared", name, ref paths @ ..] if !reason.is_empty() => {
                let paths = paths.iter().map(|path| (*path).to_owned()).collect();
                rules.shared.push(types::Shared { name: name.to_owned(), paths });
            }
            _ => {
                return Err(format!(
                    "{LIST}: {line:?} is not `english WORD`, `allow PATH WORD: reason`, `counted ARCHITECTURE`, `outside CRATE..: \
                     reason` or `shared TYPE PATH..: reason`"
                ));
            }
        }
    }
    Ok(rules)
}

/// The architectures that `cargo xtask instructions` counts.
pub fn counted() -> Result<Vec<String>, String> {
    Ok(parse(&read(LIST)?)?.counted)
}

/// A name without its options: `msgp` of `msgp:2+coupled`.
fn family(architecture: &str) -> &str {
    architecture.split([':', '+']).next().unwrap_or(architecture)
}

fn families(architectures: &str) -> BTreeSet<String> {
    architectures
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|architecture| family(architecture).to_owned())
        .collect()
}

/// The names in one literal.
fn named<'a>(text: &'a str, families: &BTreeSet<String>, english: &BTreeSet<String>) -> Vec<&'a str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let quoted = word.matches('`').count() == 2 || index > 0 && words[index - 1] == "--arch";
        let prose = words.len() > 1 && !quoted;
        for part in word.split(',') {
            let part = part.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            if families.contains(family(part)) && !(prose && english.contains(part)) {
                found.push(family(part));
            }
        }
    }
    found
}

/// Every Rust file below `directory` except `tests.rs`, which has unit tests.
fn sources(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(directory).map_err(|error| format!("cannot read {}: {error}", directory.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.is_dir() {
            sources(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The directories `src` of all crates of the workspace but `stack`.
fn directories() -> Result<Vec<PathBuf>, String> {
    let root = metadata::root();
    let mut found = vec![root.join("xtask/src"), root.join("fuzz/bodies/src")];
    let crates = root.join("crates");
    for entry in fs::read_dir(&crates).map_err(|error| format!("cannot read {}: {error}", crates.display()))? {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.join("src").is_dir() && !path.ends_with("stack") {
            found.push(path.join("src"));
        }
    }
    Ok(found)
}

/// The faults of one file; removes the exceptions that it uses from `unused`.
fn check_file(
    path: &str,
    source: &str,
    (families, rules): (&BTreeSet<String>, &Rules),
    unused: &mut BTreeSet<(String, String)>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for Literal { line, text } in literals(source) {
        for name in named(&text, families, &rules.english) {
            let allowance = (path.to_owned(), name.to_owned());
            unused.remove(&allowance);
            if !rules.allowed.contains(&allowance) {
                wrong.push(format!("{path}:{line}: a string names the architecture {name}"));
            }
        }
    }
    wrong
}

/// The name of a path below the root of the workspace.
fn relative(path: &Path) -> String {
    path.strip_prefix(metadata::root()).unwrap_or(path).to_string_lossy().into_owned()
}

/// The faults in the names of types, and how many types there are.
fn check_types(rules: &Rules) -> Result<(usize, Vec<String>), String> {
    let crates = metadata::root().join("crates");
    let mut files = Vec::new();
    for entry in fs::read_dir(&crates).map_err(|error| format!("cannot read {}: {error}", crates.display()))? {
        let path = entry.map_err(|error| error.to_string())?.path();
        let is_outside = path.file_name().is_some_and(|name| rules.outside.contains(&*name.to_string_lossy()));
        if path.join("src").is_dir() && !is_outside {
            sources(&path.join("src"), &mut files)?;
        }
    }
    files.sort();
    let mut declared = BTreeMap::<String, Vec<String>>::new();
    for file in &files {
        let source = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        for name in types::types(&source) {
            declared.entry(name).or_default().push(relative(file));
        }
    }
    Ok((declared.values().map(Vec::len).sum(), types::shared(&declared, &rules.shared)))
}

/// Fails if a crate other than `stack` names an architecture, or two types of the libraries have one name.
pub fn check() -> Result<(), String> {
    let (rules, families) = (parse(&read(LIST)?)?, families(&read(ARCHITECTURES)?));
    let (types, shared) = check_types(&rules)?;
    if !shared.is_empty() {
        let remedy = format!("Give each the name that says what it is; names that must be the same go into {LIST}.");
        return Err(format!("{}\n{remedy}", shared.join("\n")));
    }
    let (mut unused, mut wrong, mut files) = (rules.allowed.clone(), Vec::new(), Vec::new());
    for directory in directories()? {
        sources(&directory, &mut files)?;
    }
    files.sort();
    for file in &files {
        let source = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        wrong.extend(check_file(&relative(file), &source, (&families, &rules), &mut unused));
    }
    wrong.extend(unused.iter().map(|(path, word)| format!("{LIST} allows {word} in {path}, which does not name it")));
    let other = rules.counted.iter().filter(|architecture| !families.contains(family(architecture)));
    wrong.extend(other.map(|architecture| format!("{LIST} counts {architecture}, which is no architecture")));
    if wrong.is_empty() {
        println!("{} files name none of {} architectures; {types} types have a name each", files.len(), families.len());
        return Ok(());
    }
    let remedy = "Ask the architecture for its properties, or put the list into a data file that a test reads.";
    Err(format!("{}\n{remedy} What means something else goes into {LIST}.", wrong.join("\n")))
}

#[cfg(test)]
mod tests;
