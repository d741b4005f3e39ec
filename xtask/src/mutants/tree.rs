//! A copy of the working tree with switches in it, and its build.
//!
//! The copy stays from run to run, and a file is written only where it changes, so that cargo builds what is new only. A
//! mutant that does not compile is found by the place of the compiler's error, and left out of the next attempt and of
//! later runs until its file changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::switches::{self, Listed, Rewritten};
use crate::metadata;

/// More attempts than this find nothing new: each but the last leaves out at least one mutant.
const ATTEMPTS: usize = 40;

/// The built tests, and the outcomes of the mutants.
pub struct Built {
    /// The programs of the tests.
    pub programs: Vec<PathBuf>,
    /// The numbers of the mutants that are in them: their places in the list, from 1.
    pub switched: BTreeSet<usize>,
    /// Those that do not compile.
    pub unviable: BTreeSet<usize>,
}

/// The test programs of each package.
pub struct Plan<'a> {
    pub package: &'a str,
    /// Arguments of `cargo test`.
    pub tests: &'a [String],
    /// Where the copy and its builds are kept.
    pub directory: PathBuf,
}

impl Plan<'_> {
    fn tree(&self) -> PathBuf {
        self.directory.join("tree")
    }

    /// The directory of the package in the copy.
    ///
    /// # Errors
    /// There is no such package.
    pub fn package_directory(&self) -> Result<PathBuf, String> {
        let library = library(self.package)?;
        let package = library.split_once("/src/").map_or("", |(package, _)| package);
        Ok(self.tree().join(package))
    }

    /// Builds the tests with these mutants.
    ///
    /// # Errors
    /// It does not compile, and no mutant is at the place of the error.
    pub fn build(&self, mutants: &[Listed]) -> Result<Built, String> {
        let planted = mutants.iter().map(|mutant| mutant.file.clone()).chain([library(self.package)?]).collect();
        copy(&self.tree(), &planted)?;
        let known = self.directory.join(format!("{}.unviable.json", self.package));
        let mut unviable = known_unviable(&known, mutants);
        for _ in 0..ATTEMPTS {
            let files = self.plant(mutants, &unviable)?;
            let (compiled, messages) = self.compile()?;
            let errors = errors(&messages);
            if compiled {
                let switched = files.values().flat_map(|file| &file.switched).map(|(number, _)| *number).collect();
                return Ok(Built { programs: programs(&messages), switched, unviable });
            }
            let guilty: BTreeSet<usize> = errors.iter().flat_map(|error| blamed(error, &files)).collect();
            if guilty.is_empty() {
                let texts: Vec<&str> = errors.iter().filter_map(|error| error["rendered"].as_str()).collect();
                return Err(format!("with switches, it does not compile:\n{}", texts.join("\n")));
            }
            println!("{} mutants do not compile", guilty.len());
            unviable.extend(guilty);
            keep_unviable(&known, mutants, &unviable)?;
        }
        Err(format!("after {ATTEMPTS} attempts, it still does not compile"))
    }

    /// Writes the files of the scope with their switches, and the crate's root with the function that these ask.
    fn plant(&self, mutants: &[Listed], without: &BTreeSet<usize>) -> Result<BTreeMap<String, Rewritten>, String> {
        let mut of_file: BTreeMap<&str, Vec<(usize, &Listed)>> = BTreeMap::new();
        for (number, mutant) in (1..).zip(mutants) {
            let of_this = of_file.entry(&mutant.file).or_default();
            if !without.contains(&number) {
                of_this.push((number, mutant));
            }
        }
        let library = library(self.package)?;
        of_file.entry(&library).or_default();
        let mut files = BTreeMap::new();
        for (file, mutants) in of_file {
            let mut found = switches::rewrite(&read(&metadata::root().join(file))?, &mutants)
                .map_err(|error| format!("{file}: {error}"))?;
            if file == library {
                found.text += switches::ASKED;
            }
            write_if_new(&self.tree().join(file), found.text.as_bytes())?;
            files.insert(file.to_owned(), found);
        }
        Ok(files)
    }

    fn compile(&self) -> Result<(bool, Vec<Value>), String> {
        let output = metadata::cargo()
            .current_dir(self.tree())
            .args(["test", "--locked", "--no-run", "--profile", "mutants", "--message-format", "json"])
            .args(["--package", self.package])
            .args(self.tests)
            .env("CARGO_TARGET_DIR", self.directory.join("build"))
            .env("RUSTFLAGS", "--cap-lints=warn")
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cargo could not be run: {error}"))?;
        let lines = String::from_utf8_lossy(&output.stdout);
        Ok((output.status.success(), lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()))
    }
}

/// The names of mutants that do not compile, by the file that they are in, with the text of that file.
type Unviable = BTreeMap<String, (String, BTreeSet<String>)>;

/// The numbers of the mutants that did not compile when their file had the text that it has now.
fn known_unviable(known: &Path, mutants: &[Listed]) -> BTreeSet<usize> {
    let known: Unviable = fs::read(known).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let mut same = BTreeMap::new();
    for (file, (text, names)) in &known {
        if fs::read_to_string(metadata::root().join(file)).is_ok_and(|now| now == *text) {
            same.insert(file, names);
        }
    }
    let numbered = (1..).zip(mutants);
    let found = numbered.filter(|(_, mutant)| same.get(&mutant.file).is_some_and(|names| names.contains(&mutant.name)));
    found.map(|(number, _)| number).collect()
}

fn keep_unviable(known: &Path, mutants: &[Listed], unviable: &BTreeSet<usize>) -> Result<(), String> {
    let mut files = Unviable::new();
    for (_, mutant) in (1..).zip(mutants).filter(|(number, _)| unviable.contains(number)) {
        if !files.contains_key(&mutant.file) {
            let text = read(&metadata::root().join(&mutant.file))?;
            files.insert(mutant.file.clone(), (text, BTreeSet::new()));
        }
        if let Some((_, names)) = files.get_mut(&mutant.file) {
            names.insert(mutant.name.clone());
        }
    }
    let text = serde_json::to_vec(&files).map_err(|error| error.to_string())?;
    fs::write(known, text).map_err(|error| format!("cannot write {}: {error}", known.display()))
}

/// The root of a package's library, from the workspace's root.
fn library(package: &str) -> Result<String, String> {
    let packages = metadata::ours()?;
    let mut targets =
        packages.iter().filter(|found| found["name"] == package).flat_map(|found| list(&found["targets"]));
    let library = targets.find(|target| list(&target["kind"]).iter().any(|kind| kind == "lib"));
    let path = library.and_then(|target| target["src_path"].as_str()).unwrap_or_default();
    let path = Path::new(path).strip_prefix(metadata::root());
    path.map(|path| path.display().to_string()).map_err(|_| format!("{package} has no library"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Writes `bytes` unless the file has them: its time decides whether cargo builds it again.
fn write_if_new(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
    parent.and_then(|()| fs::write(path, bytes)).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Makes `tree` a copy of the files that git knows or would add, but for those that are `planted`.
fn copy(tree: &Path, planted: &BTreeSet<String>) -> Result<(), String> {
    let output = Command::new("git")
        .current_dir(metadata::root())
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .map_err(|error| format!("git could not be run: {error}"))?;
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: BTreeSet<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
    for name in names.iter().filter(|name| !planted.contains(**name)) {
        // A file that git knows may be deleted.
        if let Ok(bytes) = fs::read(metadata::root().join(name)) {
            write_if_new(&tree.join(name), &bytes)?;
        }
    }
    remove_others(tree, tree, &names)
}

/// Removes sources that are no longer in the working tree: cargo finds tests by their files.
fn remove_others(tree: &Path, directory: &Path, names: &BTreeSet<&str>) -> Result<(), String> {
    let entries = fs::read_dir(directory).map_err(|error| format!("cannot read {}: {error}", directory.display()))?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.strip_prefix(tree).unwrap_or(&path).display().to_string();
        if path.is_dir() {
            remove_others(tree, &path, names)?;
        } else if name.ends_with(".rs") && (!names.contains(name.as_str()) || !metadata::root().join(&name).exists()) {
            fs::remove_file(&path).map_err(|error| format!("cannot remove {}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// The compiler's errors that have a place.
fn errors(messages: &[Value]) -> Vec<&Value> {
    let messages = messages.iter().filter(|message| message["reason"] == "compiler-message");
    let errors = messages.map(|message| &message["message"]).filter(|message| message["level"] == "error");
    errors.filter(|error| !list(&error["spans"]).is_empty()).collect()
}

fn programs(messages: &[Value]) -> Vec<PathBuf> {
    let built = messages.iter().filter(|message| message["profile"]["test"] == true);
    built.filter_map(|message| message["executable"].as_str()).map(PathBuf::from).collect()
}

/// The mutants that an error is about: those whose text it points to; else those of the change around its place.
fn blamed(error: &Value, files: &BTreeMap<String, Rewritten>) -> BTreeSet<usize> {
    let mut spans: Vec<&Value> = list(&error["spans"]).iter().collect();
    spans.sort_by_key(|span| span["is_primary"] != true);
    let places = spans.iter().filter_map(|span| {
        let file = files.get(span["file_name"].as_str()?)?;
        let end = |name: &str| Some(usize::try_from(span[name].as_u64()?).unwrap_or_default());
        Some((file, end("byte_start")?..end("byte_end")?))
    });
    let places: Vec<(&Rewritten, Range<usize>)> = places.collect();
    let within = |inner: &Range<usize>, outer: &Range<usize>| outer.start <= inner.start && inner.end <= outer.end;
    let direct = |(file, place): &(&Rewritten, Range<usize>)| {
        let found = file.switched.iter().find(|(_, range)| within(place, range));
        found.map(|(number, _)| BTreeSet::from([*number]))
    };
    let around = |(file, place): &(&Rewritten, Range<usize>)| {
        let found = file.changed.iter().find(|(range, _)| within(place, range));
        found.map(|(_, numbers)| numbers.iter().copied().collect())
    };
    places.iter().find_map(direct).or_else(|| places.iter().find_map(around)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(start: usize, end: usize) -> Value {
        let span = json!({"file_name": "a.rs", "byte_start": start, "byte_end": end, "is_primary": true});
        json!({"level": "error", "spans": [span]})
    }

    #[test]
    fn an_error_is_of_the_mutant_at_its_place_or_around_it() {
        let rewritten = Rewritten {
            text: String::new(),
            switched: vec![(1, 10..20), (2, 20..30)],
            changed: vec![(10..50, vec![1, 2])],
        };
        let files = BTreeMap::from([("a.rs".to_owned(), rewritten)]);
        assert_eq!(blamed(&error(22, 25), &files), BTreeSet::from([2]));
        assert_eq!(blamed(&error(35, 40), &files), BTreeSet::from([1, 2]));
        assert!(blamed(&error(60, 61), &files).is_empty());
    }

    #[test]
    fn a_package_has_the_root_of_its_library() {
        assert_eq!(library("heddle-sync").as_deref(), Ok("crates/sync/src/lib.rs"));
        assert!(library("xtask").is_err());
    }
}
