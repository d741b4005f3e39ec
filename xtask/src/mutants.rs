//! `cargo xtask mutants`: makes one mistake at a time in the selected code, and fails if no test detects it.
//!
//! The mistakes are those of cargo-mutants: a replaced operator, a negated condition, a body replaced by a constant. All
//! of a scope are in one build of a copy of the tree, each behind a switch ([`switches`], [`tree`]); a mutant costs only
//! the tests that reach it, until one fails ([`trial`]). Those that cannot have a switch, such as the operators of a
//! constant, are left out; `--each` lets cargo-mutants build each mutant by itself, which takes about a minute for each.
//!
//! `xtask/mutants.toml` has the configuration: a *scope* names files, their tests and a time limit; a mutant that hangs
//! is caught. It also lists the mutants that survive for a stated reason, each identified by its file, its change and
//! the text of the source line, so that lines may move; if the line or the result has changed, the entry fails the run.
//!
//! `--shard K/N` runs the K-th of N parts of a scope (from 0), `--file` one file of it (or several, each with the
//! option), `--changed` only the changes of the working tree against a commit, `--survivors` those that survived the last
//! time, `--resume` those that a run which was ended has left. `--near` builds and runs only the nearest tests, and
//! `--quick` leaves out slow ones: their survivors are to be run again.

mod report;
mod switches;
mod tree;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use self::report::Report;
use self::switches::Listed;
use self::tree::Plan;
use self::trial::{Outcome, Trial};
use crate::metadata;

const LIST: &str = "xtask/mutants.toml";
const INSTALL: &str = "cargo install --locked cargo-mutants";

/// The contents of `xtask/mutants.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    scope: Vec<Scope>,
    #[serde(default)]
    accepted: Vec<Accepted>,
}

/// Files, and their tests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scope {
    name: String,
    /// The package that the files are of.
    package: String,
    /// Paths from the root, with `*`.
    files: Vec<String>,
    /// Those of them that are not examined.
    #[serde(default)]
    except: Vec<String>,
    /// Arguments of `cargo test` for the nearest tests, which catch most and are built fastest: with `--near` only they
    /// run, with `--each` they run first.
    near: Vec<String>,
    /// Arguments of `cargo test` for all tests: they run on the mutants that pass the near ones.
    tests: Vec<String>,
    /// How long the tests may take for one mutant that is built by itself.
    seconds: u32,
}

/// A mutant that no test has to catch.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Accepted {
    file: String,
    /// In cargo-mutants' words: `replace < with <= in process`.
    mutant: String,
    /// The source line that it changes, without the spaces around it.
    line: String,
    reason: String,
}

/// A mutant as cargo-mutants lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mutant {
    file: String,
    row: usize,
    column: usize,
    mutant: String,
}

/// The options of a run.
#[derive(Default)]
struct Wanted<'a> {
    scopes: Vec<&'a str>,
    shard: Option<&'a str>,
    changed: Option<&'a str>,
    files: Vec<&'a str>,
    list: bool,
    each: bool,
    survivors: bool,
    resume: bool,
    quick: bool,
    near: bool,
}

/// `cargo xtask mutants [SCOPE..] [--shard K/N] [--changed COMMIT] [--file PATH].. [--survivors] [--resume]
/// [--near] [--quick] [--each] [--list]`.
///
/// # Errors
/// A survivor that is not in the list, an obsolete entry of the list, or tests that fail without a mutant.
pub fn run(words: &[&str]) -> Result<(), String> {
    let wanted = parse(words)?;
    let text =
        fs::read_to_string(metadata::root().join(LIST)).map_err(|error| format!("cannot read {LIST}: {error}"))?;
    let list: List = toml::from_str(&text).map_err(|error| format!("{LIST}: {error}"))?;
    let mut scopes = chosen(&list.scope, &wanted.scopes)?;
    if !wanted.files.is_empty() {
        scopes = with_files(scopes, &wanted.files)?;
    }
    if !command(&["mutants", "--version"]).output().is_ok_and(|output| output.status.success()) {
        return Err(format!("cargo-mutants is not installed: {INSTALL}"));
    }
    let mut complaints = Vec::new();
    for scope in scopes {
        if wanted.list {
            finish(narrow(examine(scope, &wanted), &wanted)?.arg("--list"), &[0])?;
            continue;
        }
        let found = if wanted.each { each(scope, &wanted)? } else { switched(scope, &list.scope, &wanted)? };
        let part = wanted.shard.or(wanted.changed).is_some() || !wanted.files.is_empty();
        let whole = !part && !wanted.quick && !wanted.near;
        complaints.extend(check_survivors(scope, &list.accepted, &found, whole)?);
    }
    match complaints.len() {
        0 => Ok(()),
        count => Err(format!("{count} mutants want a test, or a reason in {LIST}:\n{}", complaints.join("\n"))),
    }
}

fn parse<'a>(words: &[&'a str]) -> Result<Wanted<'a>, String> {
    let mut wanted = Wanted::default();
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        let mut value = |name: &str| words.next().ok_or(format!("{name} wants a value"));
        match word {
            "--shard" => wanted.shard = Some(value("--shard")?),
            "--changed" => wanted.changed = Some(value("--changed")?),
            "--file" => wanted.files.push(value("--file")?),
            "--list" => wanted.list = true,
            "--each" => wanted.each = true,
            "--survivors" => wanted.survivors = true,
            "--resume" => wanted.resume = true,
            "--quick" => wanted.quick = true,
            "--near" => wanted.near = true,
            option if option.starts_with('-') => return Err(format!("cargo xtask mutants has no option {option}")),
            scope => wanted.scopes.push(scope),
        }
    }
    Ok(wanted)
}

/// The scopes that have one of these files.
fn with_files<'a>(scopes: Vec<&'a Scope>, files: &[&str]) -> Result<Vec<&'a Scope>, String> {
    let has = |scope: &Scope, file: &str| scope.files.iter().any(|files| matches(files, file));
    if let Some(file) = files.iter().find(|file| !scopes.iter().any(|scope| has(scope, file))) {
        return Err(format!("no scope in {LIST} has the file {file}"));
    }
    Ok(scopes.into_iter().filter(|scope| files.iter().any(|file| has(scope, file))).collect())
}

/// The scopes of these names, all where none is named.
fn chosen<'a>(scopes: &'a [Scope], names: &[&str]) -> Result<Vec<&'a Scope>, String> {
    let known: Vec<&str> = scopes.iter().map(|scope| scope.name.as_str()).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        return Err(format!("no such scope: {name}; there are {}", known.join(", ")));
    }
    Ok(scopes.iter().filter(|scope| names.is_empty() || names.contains(&scope.name.as_str())).collect())
}

fn command(arguments: &[&str]) -> Command {
    let mut command = metadata::cargo();
    command.current_dir(metadata::root()).args(arguments);
    command
}

fn finish(command: &mut Command, fine: &[i32]) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cargo could not be run: {error}"))?;
    match status.code() {
        Some(code) if fine.contains(&code) => Ok(()),
        _ => Err(format!("cargo mutants ended with {status}")),
    }
}

/// `cargo mutants` on the files of a scope, or on those of them that are wanted.
fn examine(scope: &Scope, wanted: &Wanted) -> Command {
    let mut command = command(&["mutants", "--no-config", "--package", &scope.package]);
    let wanted_here = wanted.files.iter().copied().filter(|file| scope.files.iter().any(|files| matches(files, file)));
    let files = scope.files.iter().map(String::as_str).filter(|_| wanted.files.is_empty());
    for file in files.chain(wanted_here) {
        command.args(["--file", file]);
    }
    for file in &scope.except {
        command.args(["--exclude", file]);
    }
    // Debug output is not guaranteed, so no test must check it.
    command.args(["--exclude-re", r"<impl (fmt::)?Debug for .*>::fmt"]);
    command
}

/// Restricts the command to the requested part.
fn narrow(mut command: Command, wanted: &Wanted) -> Result<Command, String> {
    if let Some(shard) = wanted.shard {
        command.args(["--shard", shard]);
    }
    if let Some(commit) = wanted.changed {
        command.arg("--in-diff").arg(changes_since(commit)?);
    }
    Ok(command)
}

/// A file with the diff of the working tree against `commit`.
fn changes_since(commit: &str) -> Result<PathBuf, String> {
    let output = Command::new("git").current_dir(metadata::root()).args(["diff", commit, "--", "crates"]).output();
    let output = output.map_err(|error| format!("git could not be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("git diff {commit}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let file = directory()?.join("changes.diff");
    fs::write(&file, output.stdout).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(file)
}

/// The directory that keeps reports and builds from run to run.
fn directory() -> Result<PathBuf, String> {
    let directory = metadata::target_directory()?.join("mutants");
    fs::create_dir_all(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    Ok(directory)
}

/// The mutants of a scope that pass all tests, and those that were not examined.
#[derive(Default)]
struct Found {
    survivors: Vec<Mutant>,
    left: Vec<Mutant>,
}

impl Found {
    fn all(&self) -> impl Iterator<Item = &Mutant> {
        self.survivors.iter().chain(&self.left)
    }
}

/// Runs the tests against the mutants of a scope, each built by itself: the near ones, then all of them on the mutants
/// that pass.
fn each(scope: &Scope, wanted: &Wanted) -> Result<Found, String> {
    let near = passing(narrow(examine(scope, wanted), wanted)?, scope, &scope.near, "near")?;
    if near.is_empty() || scope.near == scope.tests {
        return Ok(Found { survivors: near, left: Vec::new() });
    }
    let mut command = examine(scope, wanted);
    for Mutant { file, row, column, mutant } in &near {
        command.arg("--re").arg(format!("^{}$", escaped(&format!("{file}:{row}:{column}: {mutant}"))));
    }
    Ok(Found { survivors: passing(command, scope, &scope.tests, "all")?, left: Vec::new() })
}

/// Runs all tests against the mutants of a scope in one build. `SCOPE/outcomes.txt` gets a line for each.
fn switched(scope: &Scope, scopes: &[Scope], wanted: &Wanted) -> Result<Found, String> {
    let directory = directory()?;
    let records = directory.join(&scope.name);
    fs::create_dir_all(&records).map_err(|error| format!("cannot make {}: {error}", records.display()))?;
    // The build has the mutants of all scopes of the package, so that it stays the same for each part of them.
    let mut all = Vec::new();
    let tests = |scope: &Scope| if wanted.near { scope.near.clone() } else { scope.tests.clone() };
    for scope in scopes.iter().filter(|other| (&other.package, tests(other)) == (&scope.package, tests(scope))) {
        all.extend(listed(examine(scope, &Wanted::default()))?);
    }
    let chosen = listed(narrow(examine(scope, wanted), wanted)?)?;
    let chosen: BTreeSet<&str> = chosen.iter().map(|mutant| mutant.name.as_str()).collect();
    let whole = listed(examine(scope, &Wanted::default()))?;
    let kept = whole.iter().map(|mutant| mutant.name.as_str());
    let kept = kept.filter(|name| wanted.survivors || wanted.resume || !chosen.contains(name)).collect();
    let mut report = Report::open(&records.join("outcomes.txt"), &kept)?;
    let due = |report: &Report, name: &str| match (wanted.survivors, wanted.resume) {
        _ if !chosen.contains(name) => false,
        (survivors, resume) if survivors || resume => survivors && report.survived(name) || resume && !report.has(name),
        _ => true,
    };
    let tests = tests(scope);
    let plan = Plan { package: &scope.package, tests: &tests, directory: directory.clone() };
    let built = plan.build(&all)?;
    let trial = Trial { package: plan.package_directory()?, records };
    let mut tests = trial.record(&built.programs)?;
    tests.retain(|test| !wanted.quick || test.is_quick());
    for (number, mutant) in (1..).zip(&all).filter(|(_, mutant)| due(&report, &mutant.name)).collect::<Vec<_>>() {
        if built.unviable.contains(&number) {
            report.add("unviable", mutant, "")?;
        } else if !built.switched.contains(&number) {
            report.add(report::LEFT, mutant, "")?;
        } else {
            match trial.run(number, &tests) {
                Outcome::Caught(test) => report.add("caught", mutant, &test)?,
                Outcome::Hung => report.add("hung", mutant, "")?,
                Outcome::Survived(count) => report.add(report::SURVIVED, mutant, &format!("{count} tests"))?,
            }
        }
    }
    println!("{}: {} mutants: {:?}", scope.name, whole.len(), report.counts());
    Ok(report.found(&chosen))
}

/// The output of `cargo mutants --list`.
fn listed(mut command: Command) -> Result<Vec<Listed>, String> {
    let output = command.args(["--list", "--json"]).output();
    let output = output.map_err(|error| format!("cargo could not be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo mutants ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    if output.stdout.is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("the list of cargo mutants: {error}"))
}

/// `text` as a regular expression that nothing else matches.
fn escaped(text: &str) -> String {
    let special = |c: char| !c.is_alphanumeric() && !" _:<>=!&/-".contains(c);
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Runs `tests` against the mutants that `command` selects; returns those that pass.
fn passing(mut command: Command, scope: &Scope, tests: &[String], stage: &str) -> Result<Vec<Mutant>, String> {
    let directory = directory()?;
    let reports = directory.join(&scope.name).join(stage);
    let missed = reports.join("mutants.out/missed.txt");
    fs::create_dir_all(&reports).map_err(|error| format!("cannot make {}: {error}", reports.display()))?;
    // Left by an earlier run. There may be none.
    let _ = fs::remove_file(&missed);
    // Builds of the copies are separate from those of the tree, and kept from one run to the next.
    command.env("CARGO_TARGET_DIR", directory.join("build"));
    command.args(["--profile", "mutants", "--test-package", &scope.package, "--build-timeout", "900"]);
    command.args(["--timeout", &scope.seconds.to_string()]).arg("--output").arg(&reports);
    command.args(["--", "--locked"]).args(tests);
    // 2: some survive; 3: some hang.
    finish(&mut command, &[0, 2, 3])?;
    match fs::read_to_string(&missed) {
        Ok(text) => Ok(text.lines().filter_map(mutant).collect()),
        // There were no mutants: nothing of the scope has changed, or there are more shards than mutants.
        Err(_) => Ok(Vec::new()),
    }
}

/// `crates/tcp/src/state.rs:12:34: replace < with <= in process`.
fn mutant(line: &str) -> Option<Mutant> {
    let (place, mutant) = line.split_once(": ")?;
    let mut place = place.split(':');
    let (file, row, column) = (place.next()?.to_owned(), place.next()?.parse().ok()?, place.next()?.parse().ok()?);
    Some(Mutant { file, row, column, mutant: mutant.to_owned() })
}

/// The lines of a source file, without the spaces around them.
fn source(file: &str) -> Result<Vec<String>, String> {
    let path = metadata::root().join(Path::new(file));
    let text = fs::read_to_string(&path).map_err(|error| format!("{LIST}: cannot read {file}: {error}"))?;
    Ok(text.lines().map(|line| line.trim().to_owned()).collect())
}

/// The faults of a scope's survivors: those not in the list; entries whose line is not in the file; if the `whole`
/// scope was run, entries that did not survive.
fn check_survivors(scope: &Scope, accepted: &[Accepted], found: &Found, whole: bool) -> Result<Vec<String>, String> {
    let of_scope = |entry: &&Accepted| scope.files.iter().any(|files| matches(files, &entry.file));
    let entries: Vec<&Accepted> = accepted.iter().filter(of_scope).collect();
    let files: BTreeSet<&str> = entries
        .iter()
        .map(|entry| &entry.file)
        .chain(found.all().map(|mutant| &mutant.file))
        .map(|file| &**file)
        .collect();
    let mut sources = BTreeMap::new();
    for file in files {
        sources.insert(file, source(file)?);
    }
    Ok(compare(&entries, found, &sources, whole))
}

fn compare(entries: &[&Accepted], found: &Found, sources: &BTreeMap<&str, Vec<String>>, whole: bool) -> Vec<String> {
    let line_of = |mutant: &Mutant| sources[&*mutant.file].get(mutant.row - 1).cloned().unwrap_or_default();
    let is = |entry: &Accepted, mutant: &Mutant| {
        (&entry.file, &entry.mutant, &entry.line) == (&mutant.file, &mutant.mutant, &line_of(mutant))
    };
    let mut complaints = Vec::new();
    for mutant in found.survivors.iter().filter(|mutant| !entries.iter().any(|entry| is(entry, mutant))) {
        let Mutant { file, row, mutant: change, .. } = mutant;
        complaints.push(format!("{file}:{row}: {change}: {}", line_of(mutant)));
    }
    for entry in entries {
        let Accepted { file, mutant: change, line, .. } = entry;
        if !sources[&**file].contains(line) {
            complaints.push(format!("{file}: {change}: is listed for a line that is gone: {line}"));
        } else if whole && !found.all().any(|mutant| is(entry, mutant)) {
            complaints.push(format!("{file}: {change}: is listed and caught: {line}"));
        }
    }
    complaints
}

/// Whether `path` is one of `pattern`, in which each `*` stands for part of a name.
fn matches(pattern: &str, path: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| path.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        let found = if parts.peek().is_none() { rest.len().checked_sub(part.len()) } else { rest.find(part) };
        match found {
            Some(at) if rest[at..].starts_with(part) && !rest[..at].contains('/') => rest = &rest[at + part.len()..],
            _ => return false,
        }
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survivor() -> Mutant {
        mutant("crates/tcp/src/sack.rs:2:9: replace < with <= in take").expect("a mutant")
    }

    fn entry(line: &str) -> Accepted {
        let [file, mutant] = ["crates/tcp/src/sack.rs", "replace < with <= in take"].map(str::to_owned);
        Accepted { file, mutant, line: line.to_owned(), reason: "equal numbers come to the same".to_owned() }
    }

    fn complaints(entries: &[&Accepted], survivors: &[Mutant], whole: bool) -> Vec<String> {
        let found = Found { survivors: survivors.to_vec(), left: Vec::new() };
        complaints_of(entries, &found, whole)
    }

    fn complaints_of(entries: &[&Accepted], found: &Found, whole: bool) -> Vec<String> {
        let source = ["fn take() {", "if a < b {"].map(str::to_owned).to_vec();
        compare(entries, found, &BTreeMap::from([("crates/tcp/src/sack.rs", source)]), whole)
    }

    #[test]
    fn one_file_is_looked_for_in_the_scopes() {
        let list: List =
            toml::from_str(&fs::read_to_string(metadata::root().join(LIST)).expect("the list")).expect("TOML");
        let named = |file| {
            let found = with_files(list.scope.iter().collect(), &[file])?;
            Ok::<_, String>(found.iter().map(|scope| scope.name.clone()).collect::<Vec<_>>())
        };
        assert_eq!(named("crates/stack/src/alarm.rs"), Ok(vec!["place".to_owned()]));
        assert_eq!(named("crates/stack/src/arch/cells.rs"), Ok(vec!["arch".to_owned()]));
        assert!(named("crates/stack/src/nothing.rs").is_err());
        let files = ["crates/stack/src/alarm.rs", "crates/stack/src/arch/cells.rs"];
        let wanted = parse(&["place", "--file", files[0], "--file", files[1]]).expect("words");
        assert_eq!((wanted.scopes, &wanted.files[..]), (vec!["place"], &files[..]));
        let of_both = with_files(list.scope.iter().collect(), &files).expect("scopes");
        assert_eq!(of_both.iter().map(|scope| &*scope.name).collect::<Vec<_>>(), ["arch", "place"]);
    }

    #[test]
    fn a_survivor_is_a_complaint_unless_its_line_is_listed() {
        let found = complaints(&[], &[survivor()], true);
        assert_eq!(found, ["crates/tcp/src/sack.rs:2: replace < with <= in take: if a < b {"]);
        assert!(complaints(&[&entry("if a < b {")], &[survivor()], true).is_empty());
    }

    #[test]
    fn an_entry_ends_with_its_line_and_with_its_mutant() {
        let moved = complaints(&[&entry("if c < d {")], &[], false);
        assert!(moved[0].contains("a line that is gone: if c < d {"), "{moved:?}");
        assert!(complaints(&[&entry("if a < b {")], &[], false).is_empty(), "another shard has it");
        assert!(complaints(&[&entry("if a < b {")], &[], true)[0].contains("listed and caught"));
        let left = Found { survivors: Vec::new(), left: vec![survivor()] };
        assert!(complaints_of(&[&entry("if a < b {")], &left, true).is_empty(), "it was not examined");
    }

    #[test]
    fn a_name_is_a_regular_expression_for_itself() {
        let name = "crates/tcp/src/sack.rs:2:9: replace take -> Option<(u32, bool)> with None in <impl A for B>::f";
        assert_eq!(
            escaped("a.rs: replace f -> (u32) with *x | y + 1"),
            r"a\.rs: replace f -> \(u32\) with \*x \| y \+ 1"
        );
        assert!(!escaped(name).contains("\\<"), "`\\<` is the beginning of a word");
    }

    #[test]
    fn a_star_stands_within_a_name() {
        assert!(matches("crates/stack/src/arch/*.rs", "crates/stack/src/arch/up.rs"));
        assert!(matches("crates/ip/src/input.rs", "crates/ip/src/input.rs"));
        assert!(!matches("crates/ip/src/input.rs", "crates/ip/src/input.rs.old"));
        assert!(!matches("crates/stack/src/*.rs", "crates/stack/src/arch/up.rs"));
        assert!(!matches("crates/stack/src/arch/*.rs", "crates/stack/src/arch/up.txt"));
    }

    #[test]
    fn the_list_names_files_that_exist_and_gives_reasons() {
        let text = fs::read_to_string(metadata::root().join(LIST)).expect("the list");
        let list: List = toml::from_str(&text).expect("a list");
        for entry in &list.accepted {
            assert!(entry.reason.len() > 20, "{entry:?}");
            assert!(source(&entry.file).expect("the file").contains(&entry.line), "{entry:?}");
            let of_one = |scope: &Scope| scope.files.iter().any(|files| matches(files, &entry.file));
            assert!(list.scope.iter().any(of_one), "no scope examines {}", entry.file);
        }
        for file in list
            .scope
            .iter()
            .flat_map(|scope| scope.files.iter().chain(&scope.except))
            .filter(|file| !file.contains('*'))
        {
            assert!(metadata::root().join(file).is_file(), "{file}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(parse(&["--polish"]).is_err());
        assert!(parse(&["tcp", "--shard"]).is_err());
        let wanted = parse(&["tcp", "--shard", "0/4"]).unwrap_or_default();
        assert_eq!((wanted.scopes, wanted.shard), (vec!["tcp"], Some("0/4")));
        assert!(chosen(&[], &["tcp"]).is_err());
    }
}
