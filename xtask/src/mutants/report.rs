//! The outcomes of the mutants of a scope: a file with a line for each, which later runs continue.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::switches::Listed;
use super::{Found, mutant};

/// The mutant passes all tests.
pub const SURVIVED: &str = "survived";
/// It has no switch, and was not examined.
pub const LEFT: &str = "left";

/// The report of a scope. Each line is an outcome, the mutant's name, and which test caught it or how many passed.
pub struct Report {
    file: fs::File,
    lines: BTreeMap<String, (String, String)>,
}

impl Report {
    /// The report at `path`, without the lines of mutants that are not in `keep`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(path: &Path, keep: &BTreeSet<&str>) -> Result<Self, String> {
        let error = |error| format!("cannot write {}: {error}", path.display());
        let lines = read(&fs::read_to_string(path).unwrap_or_default(), keep);
        let text: String = lines.iter().map(|(name, (what, how))| format!("{what}\t{name}\t{how}\n")).collect();
        fs::write(path, text).map_err(error)?;
        let file = fs::OpenOptions::new().append(true).open(path).map_err(error)?;
        Ok(Self { file, lines })
    }

    /// Whether the report has an outcome of this mutant.
    pub fn has(&self, name: &str) -> bool {
        self.lines.contains_key(name)
    }

    /// Whether the mutant survived when it was last examined.
    pub fn survived(&self, name: &str) -> bool {
        self.lines.get(name).is_some_and(|(what, _)| what == SURVIVED)
    }

    /// Writes an outcome at once: a run may be ended at any time.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&mut self, what: &str, listed: &Listed, how: &str) -> Result<(), String> {
        let name = &listed.name;
        if what == SURVIVED {
            println!("{what} {how}: {name}");
        }
        writeln!(self.file, "{what}\t{name}\t{how}").map_err(|error| format!("cannot write: {error}"))?;
        self.lines.insert(name.clone(), (what.to_owned(), how.to_owned()));
        Ok(())
    }

    /// How many mutants have each outcome.
    pub fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for (what, _) in self.lines.values() {
            *counts.entry(what.as_str()).or_default() += 1;
        }
        counts
    }

    /// The survivors of `chosen`, and those of them that were not examined.
    pub fn found(&self, chosen: &BTreeSet<&str>) -> Found {
        let with = |wanted: &str| {
            let lines = self.lines.iter().filter(|(name, (what, _))| what == wanted && chosen.contains(name.as_str()));
            lines.filter_map(|(name, _)| mutant(name)).collect()
        };
        Found { survivors: with(SURVIVED), left: with(LEFT) }
    }
}

/// The lines of a report; of several for one mutant, the last.
fn read(text: &str, keep: &BTreeSet<&str>) -> BTreeMap<String, (String, String)> {
    let fields = text.lines().filter_map(|line| {
        let (what, rest) = line.split_once('\t')?;
        let (name, how) = rest.split_once('\t')?;
        keep.contains(name).then(|| (name.to_owned(), (what.to_owned(), how.to_owned())))
    });
    fields.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_outcome_of_a_mutant_that_still_exists_counts() {
        let [a, b] = ["a.rs:1:1: replace < with >", "b.rs:1:1: replace < with >"];
        let text = format!("survived\t{a}\t3 tests\ncaught\t{b}\tof_b\ncaught\t{a}\tof_a\nhung\tgone\t\n");
        let lines = read(&text, &BTreeSet::from([a, b]));
        let expected = [(a, "of_a"), (b, "of_b")];
        let expected = expected.map(|(name, how)| (name.to_owned(), ("caught".to_owned(), how.to_owned())));
        assert_eq!(lines, BTreeMap::from(expected));
    }
}
