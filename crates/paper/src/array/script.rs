//! The scripts that `sbatch` takes, and lists of task numbers as Slurm writes them.
//!
//! A site's MaxArraySize is 1001 unless it is set, so the greatest index of an array is 1000: a script is for the tasks of
//! one kind among a thousand lines, and adds its offset to the index. Simulated points share a node, each on a CPU of its
//! own; a load of the host has a node to itself.

use std::path::{Path, PathBuf};

use lab::report::save_text;

use super::{Array, ArrayError};
use crate::point::Place;

/// The greatest index of an array where MaxArraySize is not set.
pub const MOST: usize = 1000;

/// The variable that names another binary.
pub const PROGRAM: &str = "HEDDLE";

/// Some tasks of a script: their indices in its array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The script.
    pub script: PathBuf,
    /// What it adds to an index for the number of a task.
    pub offset: usize,
    /// Where its tasks are measured.
    pub on: Place,
    /// Indices, ascending.
    pub indices: Vec<usize>,
}

impl Part {
    /// The command that submits these tasks.
    pub fn command(&self) -> String {
        format!("sbatch --array={} {}", ranges(&self.indices), quoted(&self.script.display().to_string()))
    }
}

/// Some tasks of an array, by script.
pub fn parts(array: &Array, numbers: &[usize]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (number, task) in array.tasks().filter(|(number, _)| numbers.binary_search(number).is_ok()) {
        let (on, chunk) = (task.work.on(), (number - 1) / MOST);
        let name = format!("{}-{}.sh", if on == Place::Vsmp { "simulated" } else { "host" }, chunk + 1);
        let (script, offset) = (array.directory().join(name), chunk * MOST);
        match parts.iter_mut().find(|part| part.script == script) {
            Some(part) => part.indices.push(number - offset),
            None => parts.push(Part { script, offset, on, indices: vec![number - offset] }),
        }
    }
    parts
}

/// Writes the scripts of these parts. `program` runs the tasks, at most `limit` of a script at a time.
///
/// # Errors
/// A path is not text, or a script cannot be written.
pub fn write(array: &Array, parts: &[Part], program: &Path, limit: u32) -> Result<(), ArrayError> {
    let text = |path: &Path| {
        let refusal = || ArrayError::new(format!("{}: a script can name only a path that is UTF-8", path.display()));
        path.to_str().map(quoted).ok_or_else(refusal)
    };
    let (directory, program) = (text(array.directory())?, text(program)?);
    let save = |part: &Part| save_text(&part.script, &script(part, &directory, &program, limit));
    parts.iter().try_for_each(save).map_err(ArrayError::new)
}

fn script(part: &Part, directory: &str, program: &str, limit: u32) -> String {
    let (share, why) = match part.on {
        Place::Vsmp => ("--cpus-per-task=1", "A task is one simulated point, on one CPU."),
        Place::Host => ("--exclusive", "A task is one load of the host, on a node that nobody else uses meanwhile."),
    };
    let (array, offset) = (ranges(&part.indices), part.offset);
    format!(
        "#!/bin/sh
# A job array of `heddle paper run --slurm`. {why}
# Submit it with sbatch, as often as you like: a task with a result ends at once. `heddle paper collect` reads the
# results. {PROGRAM} names another binary of the same commit.
#SBATCH --job-name=heddle-paper
#SBATCH --array={array}%{limit}
#SBATCH --ntasks=1
#SBATCH {share}
#SBATCH --requeue
#SBATCH --output=/dev/null
directory={directory}
program={program}
: \"${{SLURM_ARRAY_TASK_ID:?is not set: submit this script with sbatch}}\"
number=$(({offset} + SLURM_ARRAY_TASK_ID))
exec >>\"$directory/log/$number.txt\" 2>&1
exec \"${{{PROGRAM}:-$program}}\" paper task \"$directory\" \"$number\"
"
    )
}

/// A list of ascending numbers as in `--array`: `1-3,7`.
pub fn ranges(numbers: &[usize]) -> String {
    let chunks = numbers.chunk_by(|one, next| one + 1 == *next);
    let one = |chunk: &[usize]| match chunk {
        [first, .., last] => format!("{first}-{last}"),
        [only] => only.to_string(),
        [] => String::new(),
    };
    chunks.map(one).collect::<Vec<_>>().join(",")
}

/// A word of a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-+:,@%".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
