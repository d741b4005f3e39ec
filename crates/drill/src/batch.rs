//! Many scripts: found under directories, run side by side, one line each.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::stack::Plan;
use dev::pcap::{Direction, Writer};

use crate::ScriptError;
use crate::check::{self, Checked, Fault};
use crate::host::Crossing;
use crate::run::Options;

/// What is to be done with each script.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Architectures; the first one's trace is what the others are compared with.
    pub plans: Vec<Plan>,
    /// How a script is run.
    pub options: Options,
    /// Names defined for every script.
    pub defines: Vec<(String, String)>,
    /// Scripts run at the same time, at least 1.
    pub jobs: usize,
    /// Where captures go, one for each script, of the last run of it.
    pub captures: Option<PathBuf>,
}

/// One script's result.
#[derive(Debug)]
pub struct Outcome {
    /// The script.
    pub path: PathBuf,
    /// What was wrong; `None`: it went through under every architecture.
    pub fault: Option<Fault>,
}

/// All files that end in `.pkt` under `paths`, and files that are named themselves; in order.
///
/// # Errors
/// A sentence that names the path that cannot be read, or the directory that has no script: nothing to run is no success.
pub fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        collect(path, &mut found)
            .map_err(|(path, error)| format!("cannot read {}: {}", path.display(), error.kind()))?;
        if found.len() == before {
            return Err(format!("there is no script in {}: their names end in .pkt", path.display()));
        }
    }
    Ok(found)
}

/// Adds what is at `path`, or below it; the error has the path that it is about.
fn collect(path: &Path, found: &mut Vec<PathBuf>) -> Result<(), (PathBuf, io::Error)> {
    let named = |error| (path.to_owned(), error);
    if !path.is_dir() {
        fs::metadata(path).map_err(named)?;
        found.push(path.to_owned());
        return Ok(());
    }
    let entries = fs::read_dir(path).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut entries: Vec<PathBuf> = entries.map_err(named)?;
    entries.sort();
    entries.retain(|entry| entry.is_dir() || entry.extension().is_some_and(|extension| extension == "pkt"));
    entries.iter().try_for_each(|entry| collect(entry, found))
}

impl Batch {
    /// Runs the scripts; the outcomes are in their order.
    pub fn run(&self, paths: &[PathBuf]) -> Vec<Outcome> {
        let next = AtomicUsize::new(0);
        let outcomes = Mutex::new(Vec::new());
        let work = || {
            while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                let outcome = Outcome { path: path.clone(), fault: self.one(path) };
                outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(outcome);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.jobs.max(1).min(paths.len()) {
                scope.spawn(work);
            }
            work();
        });
        let mut outcomes = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        outcomes.sort_by_key(|outcome| paths.iter().position(|path| *path == outcome.path));
        outcomes
    }

    fn one(&self, path: &Path) -> Option<Fault> {
        let fault = |message: String| Some(Fault { plan: None, error: ScriptError::new(0, message) });
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return fault("it is not text".to_owned()),
            Err(error) => return fault(format!("it cannot be read: {}", error.kind())),
        };
        let Checked { traces, fault: wrong } = check::check(&text, &self.plans, &self.options, &self.defines);
        if let (Some(directory), Some((_, trace))) = (&self.captures, traces.last())
            && let Err(error) = capture(directory, path, trace)
        {
            return fault(format!("its capture cannot be written under {}: {error}", directory.display()));
        }
        wrong
    }
}

/// Writes a run as pcapng; virtual time counts from 1970.
fn capture(directory: &Path, script: &Path, trace: &[Crossing]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    // Scripts of the same name lie in different directories.
    let parts: Vec<_> =
        script.iter().map(|part| part.to_string_lossy()).filter(|part| !matches!(&**part, "/" | "." | "..")).collect();
    let tail = parts[parts.len().saturating_sub(2)..].join("-");
    let file = fs::File::create(directory.join(tail).with_extension("pcapng"))?;
    let mut writer = Writer::new(io::BufWriter::new(file))?;
    let interface = writer.interface("drill")?;
    for Crossing { at, outbound, frame, .. } in trace {
        let direction = if *outbound { Direction::Outbound } else { Direction::Inbound };
        writer.frame(interface, at.as_nanos() as u64, direction, frame)?;
    }
    writer.flush()
}
