//! The result of a task: a file of its own, whole or not there.
//!
//! It is written under a name that no other process uses, synced, and then renamed, so that a task that is killed, or two
//! that run one number at a time, leave no half of a file under a result's name. A file that was damaged later, or copied
//! there from another task, is recognized: a result has its task in it, and samples that answer this task.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::{Array, Task, Work};
use crate::point::{Place, Sample};

/// The end of the name of a file that is being written.
pub const UNFINISHED: &str = ".part";

/// A task with its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    /// The task, as it was planned.
    pub task: Task,
    /// Its samples in the order of measurement.
    pub samples: Vec<Sample>,
}

impl TaskResult {
    /// Why it is not the result of this task.
    fn fault(&self, task: &Task) -> Option<String> {
        if self.task != *task {
            return Some(format!("it is the result of another task ({})", self.task.work));
        }
        if let Some(other) = self.samples.iter().find(|sample| sample.commit != task.commit) {
            return Some(format!("it has a sample of commit {}, and not of {}", other.commit, task.commit));
        }
        let answers = match &task.work {
            Work::Simulated(point) => self.samples.len() == 1 && self.samples[0].point == *point,
            Work::Host(load) => {
                let mut rounds: BTreeMap<u64, usize> = BTreeMap::new();
                for sample in self.samples.iter().filter(|sample| sample.point.on == Place::Host) {
                    *rounds.entry(sample.point.seed).or_default() += 1;
                }
                let subjects = self.samples.len() as u64 / (load.last - load.first + 1);
                subjects > 0
                    && rounds.keys().copied().eq(load.first..=load.last)
                    && rounds.values().all(|count| *count as u64 == subjects)
            }
        };
        (!answers).then(|| "its samples are not those of its task".to_owned())
    }
}

impl Array {
    /// The path of a task's result.
    pub fn path_of_result(&self, number: usize) -> PathBuf {
        self.results().join(format!("{number}.json"))
    }

    /// The result of a task; `None` if there is none yet.
    ///
    /// # Errors
    /// There is a file that is not the result of this task: why.
    pub fn result(&self, number: usize) -> Result<Option<TaskResult>, String> {
        let task = self.task(number).map_err(|error| error.to_string())?;
        let text = match fs::read_to_string(self.path_of_result(number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("it cannot be read ({error})")),
            Ok(text) => text,
        };
        let result: TaskResult =
            serde_json::from_str(&text).map_err(|error| format!("it is damaged or half-written ({error})"))?;
        result.fault(task).map_or(Ok(Some(result)), Err)
    }

    /// Writes the result of a task. It is on the disk, whole, when this returns.
    ///
    /// # Errors
    /// It cannot be written; nothing is left under its name.
    pub fn publish(&self, number: usize, samples: Vec<Sample>) -> io::Result<()> {
        let task = self.task(number).map_err(io::Error::other)?.clone();
        let mut text = serde_json::to_string(&TaskResult { task, samples }).map_err(io::Error::other)?;
        text.push('\n');
        let beside = self.results().join(unique(number));
        let written = File::create_new(&beside)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&beside, self.path_of_result(number)))
            // The name is on the disk, too.
            .and_then(|()| File::open(self.results())?.sync_all());
        written.inspect_err(|_| {
            // Half a file is useless and takes scarce space.
            let _ = fs::remove_file(&beside);
        })
    }
}

/// A name that no other process uses, on this node or on another one.
fn unique(number: usize) -> String {
    let node = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{number}.{}.{}.{since}{UNFINISHED}", node.trim(), std::process::id())
}
