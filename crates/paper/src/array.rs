//! A job array: the points of a plan as tasks in a directory, which the nodes of a cluster measure one by one.
//!
//! | file | is |
//! |---|---|
//! | `tasks.jsonl` | a task on each line, with the commit that plans it; the number of the line is the task's number |
//! | `simulated-K.sh`, `host-K.sh` | scripts for `sbatch`, each for the tasks of one kind among a thousand lines ([`script`]) |
//! | `results/N.json` | what task N measured ([`task`], [`result`](mod@result)) |
//! | `log/N.txt` | what task N said |
//!
//! The directory is on a file system that all nodes share. Every task writes files of its own, so nothing on the nodes
//! depends on locks. Lines are only ever added to `tasks.jsonl`: a task that waits in a queue stays what it was when its
//! array was planned again. A simulated point is one task. A load of the host is one task with all its subjects and
//! rounds, because these are measured by turns in the same seconds; which subjects a node has enough CPUs for is decided
//! on the node.
//!
//! What may never happen: two tasks that write one file, a result that is taken for another task's, or one commit's
//! task measured by the build of another.

pub mod collect;
pub mod result;
pub mod script;
pub mod task;

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use lab::machine::COMMIT;
use serde::{Deserialize, Serialize};

use crate::data::{DataError, Selected};
use crate::plan::{Effort, LoadName, Plan, loads_of_host};
use crate::point::{Place, Point};
use crate::store::Store;

/// The name of the file of tasks.
pub const TASKS: &str = "tasks.jsonl";

/// What a task measures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// A point of the simulated machine.
    Simulated(Point),
    /// A load of the host that runs the task.
    Host(LoadOfHost),
}

/// A load of a paper, on any host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadOfHost {
    /// The paper.
    pub paper: String,
    /// The load.
    pub load: LoadName,
    /// Whether slices have the length of a full run.
    pub full: bool,
    /// The first round, from 1: an array that was planned again for more rounds has further tasks for these.
    pub first: u64,
    /// The last round.
    pub last: u64,
}

impl Work {
    /// Where it is measured.
    pub fn on(&self) -> Place {
        match self {
            Work::Simulated(_) => Place::Vsmp,
            Work::Host(_) => Place::Host,
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Simulated(point) => point.fmt(f),
            Work::Host(LoadOfHost { paper, load, first, last, .. }) => {
                write!(f, "{load} of {paper} on the host, rounds {first} to {last}")
            }
        }
    }
}

/// A line of the file of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The commit of the build that planned it. Only this commit may measure it.
    pub commit: String,
    /// What is measured.
    #[serde(flatten)]
    pub work: Work,
}

/// Why an array cannot be planned, run or collected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayError(String);

impl ArrayError {
    /// With this sentence.
    pub fn new(sentence: impl fmt::Display) -> ArrayError {
        ArrayError(sentence.to_string())
    }

    fn file(path: &Path, error: &io::Error) -> ArrayError {
        ArrayError(format!("{}: {error}", path.display()))
    }
}

impl fmt::Display for ArrayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ArrayError {}

/// The work of some figures, the simulated points in the order in which a run measures them.
///
/// # Errors
/// A paper's machine has no preset.
pub fn work(selected: &[Selected<'_>], on: &[Place], effort: Effort) -> Result<Vec<Work>, DataError> {
    let mut work = Vec::new();
    if on.contains(&Place::Vsmp) {
        let plan = Plan::new(selected, &[Place::Vsmp], effort, &lab::machine::Probe::start().finish())?;
        work.extend(plan.simulated.into_iter().map(Work::Simulated));
    }
    for selection in selected.iter().filter(|_| on.contains(&Place::Host)) {
        let paper = &selection.paper.id;
        work.extend(loads_of_host(selection, effort, None).into_iter().map(|load| {
            let (paper, full) = (paper.clone(), effort.full);
            Work::Host(LoadOfHost { paper, load, full, first: 1, last: effort.seeds })
        }));
    }
    Ok(work)
}

/// The tasks of a directory.
#[derive(Clone, Debug)]
pub struct Array {
    directory: PathBuf,
    tasks: Vec<Task>,
}

impl Array {
    /// The array of a directory, for a task or for its collection. Writes nothing.
    ///
    /// # Errors
    /// The directory has no array, or a line of it is not a task.
    pub fn open(directory: &Path) -> Result<Array, ArrayError> {
        let path = directory.join(TASKS);
        let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ArrayError(format!(
                "{} has no {TASKS}: `heddle paper run ID.. --slurm DIR` writes a job array",
                directory.display()
            )),
            _ => ArrayError::file(&path, &error),
        })?;
        Ok(Array { directory: absolute(directory)?, tasks: parse(&path, &text)? })
    }

    /// Adds the work that the array of a directory does not have yet; creates the directory if there is none.
    ///
    /// # Errors
    /// The array was planned by another commit, another process plans it, or the directory cannot be written.
    pub fn plan(directory: &Path, work: &[Work]) -> Result<Array, ArrayError> {
        for directory in [directory, &directory.join(RESULTS), &directory.join(LOG)] {
            fs::create_dir_all(directory).map_err(|error| ArrayError::file(directory, &error))?;
        }
        let path = directory.join(TASKS);
        let failed = |error: io::Error| ArrayError::file(&path, &error);
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(failed)?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(ArrayError(format!("another process plans {}: wait for its end", directory.display())));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        // What a kill or a full disk has cut off is no task: no number was given for it.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(failed)?;
        let mut array = Array { directory: absolute(directory)?, tasks: parse(&path, &text[..whole])? };
        if let Some(task) = array.tasks.iter().find(|task| task.commit != COMMIT) {
            return Err(ArrayError(format!(
                "{} was planned by commit {}, and this is {COMMIT}: name another directory for the array of this build",
                directory.display(),
                task.commit
            )));
        }
        array.add(&mut file, work).map_err(failed)?;
        Ok(array)
    }

    /// Adds the lines of new work; they are on the disk when this returns.
    fn add(&mut self, file: &mut File, work: &[Work]) -> io::Result<()> {
        let new: Vec<Work> = work.iter().filter_map(|work| self.lacks(work)).collect();
        let tasks: Vec<Task> = new.into_iter().map(|work| Task { commit: COMMIT.to_owned(), work }).collect();
        let line = |task| serde_json::to_string(task).expect("tasks have string keys only") + "\n";
        let lines: String = tasks.iter().map(line).collect();
        file.write_all(lines.as_bytes()).and_then(|()| file.sync_all())?;
        self.tasks.extend(tasks);
        Ok(())
    }

    /// What no task has of some work: for a load of a host the further rounds.
    fn lacks(&self, work: &Work) -> Option<Work> {
        let Work::Host(load) = work else {
            return (!self.tasks.iter().any(|task| task.work == *work)).then(|| work.clone());
        };
        let rounds = self.tasks.iter().filter_map(|task| match &task.work {
            Work::Host(LoadOfHost { paper, load: of, full, last, .. }) => {
                ((paper, *of, *full) == (&load.paper, load.load, load.full)).then_some(*last)
            }
            Work::Simulated(_) => None,
        });
        let first = rounds.max().map_or(load.first, |last| last + 1);
        (first <= load.last).then(|| Work::Host(LoadOfHost { first, ..load.clone() }))
    }

    /// A task by its number.
    ///
    /// # Errors
    /// There is none of this number.
    pub fn task(&self, number: usize) -> Result<&Task, ArrayError> {
        let task = number.checked_sub(1).and_then(|index| self.tasks.get(index));
        task.ok_or_else(|| {
            ArrayError(format!("{} has tasks 1 to {}, and no task {number}", self.directory.display(), self.len()))
        })
    }

    /// The tasks with their numbers.
    pub fn tasks(&self) -> impl Iterator<Item = (usize, &Task)> {
        (1..).zip(&self.tasks)
    }

    /// How many tasks there are, and so the number of the last one.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether it has no task.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The numbers of the tasks that have neither a whole result nor, if simulated, a sample in a store.
    pub fn missing(&self, store: Option<&Store>) -> Vec<usize> {
        let is_known = |work: &Work| match work {
            Work::Simulated(point) => store.is_some_and(|store| store.has(point)),
            Work::Host(_) => false,
        };
        let is_there = |number, task: &Task| is_known(&task.work) || matches!(self.result(number), Ok(Some(_)));
        self.tasks().filter(|(number, task)| !is_there(*number, task)).map(|(number, _)| number).collect()
    }

    /// Its directory, as an absolute path.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory of results.
    pub fn results(&self) -> PathBuf {
        self.directory.join(RESULTS)
    }

    /// The directory of messages.
    pub fn log(&self) -> PathBuf {
        self.directory.join(LOG)
    }
}

const RESULTS: &str = "results";
const LOG: &str = "log";

/// Not the canonical path: a file system that is mounted on demand has another one on each node.
fn absolute(directory: &Path) -> Result<PathBuf, ArrayError> {
    std::path::absolute(directory).map_err(|error| ArrayError::file(directory, &error))
}

fn parse(path: &Path, text: &str) -> Result<Vec<Task>, ArrayError> {
    let one = |(index, line): (usize, &str)| {
        serde_json::from_str(line)
            .map_err(|error| ArrayError(format!("{}, line {}: it is not a task ({error})", path.display(), index + 1)))
    };
    text.lines().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests;
