//! The results of an array, folded into the store of a report.
//!
//! Results stay where they are, so a collection may be repeated while tasks run: it adds what is new. A file that is not a
//! task's result is named with the reason and is not touched.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use super::result::UNFINISHED;
use super::{Array, ArrayError};
use crate::store::{Folded, Store};

/// What was found.
#[derive(Clone, Debug)]
pub struct Collected {
    /// Whole results.
    pub results: usize,
    /// Tasks without a result, and without a sample in the store.
    pub missing: Vec<usize>,
    /// What became of the samples.
    pub folded: Folded,
    /// A sentence for each file that is not a result.
    pub faults: Vec<String>,
}

/// Folds the results of an array into a store.
///
/// # Errors
/// The directory of results cannot be read, or the store cannot be written. The results stay where they are.
pub fn collect(array: &Array, store: &mut Store) -> Result<Collected, ArrayError> {
    let mut faults = strangers(array)?;
    let (mut samples, mut results) = (Vec::new(), 0);
    for (number, _) in array.tasks() {
        match array.result(number) {
            Ok(None) => {}
            Ok(Some(result)) => {
                results += 1;
                samples.extend(result.samples);
            }
            Err(reason) => faults.push(format!(
                "{}: {reason}; it is left out, and the next run of task {number} replaces it",
                array.path_of_result(number).display()
            )),
        }
    }
    let folded = store.fold(samples).map_err(ArrayError::new)?;
    Ok(Collected { results, missing: array.missing(Some(store)), folded, faults })
}

/// A sentence for each file among the results that has not the name of one.
fn strangers(array: &Array) -> Result<Vec<String>, ArrayError> {
    let directory = array.results();
    let expected: BTreeSet<PathBuf> = array.tasks().map(|(number, _)| array.path_of_result(number)).collect();
    let failed = |error: std::io::Error| ArrayError::file(&directory, &error);
    let mut paths = BTreeSet::new();
    for entry in fs::read_dir(&directory).map_err(failed)? {
        paths.insert(entry.map_err(failed)?.path());
    }
    // A network file system keeps an open file that was deleted under a hidden name.
    let is_hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let is_unfinished =
        |path: &PathBuf| path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.ends_with(UNFINISHED));
    let sentence = |path: &PathBuf| {
        let what = if is_unfinished(path) {
            "a task was ended while it wrote this, or is still writing; it is left out, and may be deleted when no task runs"
        } else {
            "it has not the name of a task's result; it is left out"
        };
        format!("{}: {what}", path.display())
    };
    Ok(paths.difference(&expected).filter(|path| !is_hidden(path)).map(sentence).collect())
}
