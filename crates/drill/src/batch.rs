//! Many scripts: found under directories, run in parallel, one line each.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::stack::Architecture;
use dev::pcap::{Direction, Writer};

use crate::Family;
use crate::ScriptError;
use crate::check::{self, Checked, Fault};
use crate::host::Crossing;
use crate::run::Options;

/// How each script is run.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Architectures; the traces of the others are compared with the first one's.
    pub architectures: Vec<Architecture>,
    /// The address families of scripts that do not declare their own.
    pub families: Vec<Family>,
    /// How a script is run, except its family.
    pub options: Options,
    /// Names defined for every script.
    pub defines: Vec<(String, String)>,
    /// Scripts run at the same time, at least 1.
    pub jobs: usize,
    /// Directory for captures, one for each script, of its last run.
    pub captures: Option<PathBuf>,
}

/// One script's result.
#[derive(Debug)]
pub struct Outcome {
    /// The script.
    pub path: PathBuf,
    /// The families in which it ran.
    pub families: Vec<Family>,
    /// The fault; `None`: it passed in every family and under every architecture.
    pub fault: Option<(Family, Fault)>,
}

impl Outcome {
    /// The fault as one line, with the family if the script is for several.
    pub fn line(&self) -> Option<String> {
        let (family, fault) = self.fault.as_ref()?;
        let line = fault.at(&self.path);
        Some(if self.families.len() > 1 { format!("{line} (over {family})") } else { line.to_string() })
    }
}

/// All files that end in `.pkt` under `paths`, and files that are named directly; in order.
///
/// # Errors
/// A sentence that names the path that cannot be read, or the directory without scripts: an empty run is not a success.
pub fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        collect(path, &mut found).map_err(|(path, error)| unreadable(&path, &error))?;
        if found.len() == before {
            return Err(format!("there is no script in {}: names of scripts end in .pkt", path.display()));
        }
    }
    Ok(found)
}

/// The sentence about a path that was named and cannot be read.
fn unreadable(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no {path}: name a script, which ends in .pkt, or a directory that contains some")
        }
        io::ErrorKind::PermissionDenied => {
            format!("cannot read {path}: permission is denied; make it readable (chmod +r), or run as its owner")
        }
        _ => format!("cannot read {path}: {error}"),
    }
}

/// Adds the scripts at or below `path`; the error has the path that caused it.
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
                let outcome = self.script(path);
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

    /// Runs a script in each of its families, up to the first fault.
    fn script(&self, path: &Path) -> Outcome {
        let read = fs::read_to_string(path).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => "it is not text".to_owned(),
            io::ErrorKind::PermissionDenied => "it cannot be read: make it readable (chmod +r)".to_owned(),
            _ => format!("it cannot be read: {error}"),
        });
        let families = Family::of_script(read.as_deref().unwrap_or_default(), &self.families);
        let one = |family: &Family| {
            let fault = match &read {
                Ok(text) => self.one(path, text, *family, families.len() > 1),
                Err(message) => Some(fault(message.clone())),
            };
            Some((*family, fault?))
        };
        let fault = families.iter().find_map(one);
        Outcome { path: path.to_owned(), families, fault }
    }

    fn one(&self, path: &Path, text: &str, family: Family, several: bool) -> Option<Fault> {
        let directory = path.parent().map(Path::to_owned);
        let options = Options { family, directory, ..self.options.clone() };
        let Checked { traces, fault: wrong, .. } = check::check(text, &self.architectures, &options, &self.defines);
        if let (Some(directory), Some((_, trace))) = (&self.captures, traces.last())
            && let Err(error) = capture(directory, path, several.then_some(family), trace)
        {
            return Some(fault(format!("its capture cannot be written under {}: {error}", directory.display())));
        }
        wrong
    }
}

/// A fault of a script as a whole.
fn fault(message: String) -> Fault {
    Fault { arch: None, error: ScriptError::new(0, message) }
}

/// Writes a run as pcapng; virtual time counts from 1970. The file's name has the family, if there is one.
fn capture(directory: &Path, script: &Path, family: Option<Family>, trace: &[Crossing]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    // Scripts of the same name lie in different directories.
    let parts: Vec<_> =
        script.iter().map(|part| part.to_string_lossy()).filter(|part| !matches!(&**part, "/" | "." | "..")).collect();
    let tail = parts[parts.len().saturating_sub(2)..].join("-");
    let name = Path::new(&tail).with_extension(match family {
        Some(family) => format!("{family}.pcapng"),
        None => "pcapng".to_owned(),
    });
    let file = fs::File::create(directory.join(name))?;
    let mut writer = Writer::new(io::BufWriter::new(file))?;
    let interface = writer.interface("drill")?;
    for Crossing { at, outbound, frame, .. } in trace {
        let direction = if *outbound { Direction::Outbound } else { Direction::Inbound };
        writer.frame(interface, at.as_nanos() as u64, direction, frame)?;
    }
    writer.flush()
}
