//! Finished points on disk: `points.jsonl` in the report's directory, a line of JSON for each sample.
//!
//! A sample is written and synced as soon as it is there, so that a run that is stopped or killed loses none, and a
//! line is never rewritten. A line that a kill or a full disk has cut off at the end of the file is taken off when
//! the file is opened again: its point counts as not measured. Samples of another commit stay in the file and are not
//! used: a difference between two subjects must not be one between two builds. One process at a time writes to a
//! store.
//!
//! What may never happen: a point twice for one commit. [`Store::append`] refuses it, and so does [`Store::open`] by
//! line. [`Store::fold`], which takes what other processes measured, leaves a second sample of a point out and says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use lab::machine::COMMIT;

use crate::point::{Point, Sample};

/// The name of the file in the report's directory.
pub const FILE: &str = "points.jsonl";

/// See the head of the file.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// `None`: in memory only.
    file: Option<File>,
    samples: Vec<Sample>,
    /// Points of this build's commit.
    finished: BTreeSet<Point>,
    /// Samples of other commits in the file, by commit.
    others: BTreeMap<String, Others>,
}

/// The samples of another commit: how many, and of which points. A file may have a point of these twice.
#[derive(Debug, Default)]
struct Others {
    count: usize,
    points: BTreeSet<Point>,
}

/// What became of samples that other processes measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// Samples of this build's commit that were added.
    pub added: usize,
    /// Samples that were in the store already, with the same values.
    pub known: usize,
    /// Points with other values in the store's sample. The store keeps its own.
    pub differing: Vec<Point>,
    /// Samples of other commits that were added, by commit. They are not used.
    pub others: BTreeMap<String, usize>,
}

/// Why a store cannot be used.
#[derive(Debug)]
pub enum StoreError {
    /// It cannot be read or written.
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line is not a sample, or repeats a point.
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The error.
        what: String,
    },
    /// Another process writes to it.
    Busy(PathBuf),
    /// The store has the point already.
    Repeated(Box<Point>),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::File { path, source } => {
                let remedy = match source.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        "free some space and run the command again"
                    }
                    _ => "name another place with --report",
                };
                write!(f, "{}: {source}; {remedy}. Earlier samples are kept", path.display())
            }
            StoreError::Line { path, line, what } => {
                write!(
                    f,
                    "{}, line {line}: {what}; take the line out, or name another place with --report",
                    path.display()
                )
            }
            StoreError::Busy(path) => {
                write!(
                    f,
                    "another run writes to {}: wait for its end, or name another place with --report",
                    path.display()
                )
            }
            StoreError::Repeated(point) => write!(f, "{point} was measured twice, which is a bug: please report it"),
        }
    }
}

impl std::error::Error for StoreError {}

impl Store {
    /// Opens the store of a directory for writing; creates both if they do not exist.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(directory: &Path) -> Result<Store, StoreError> {
        let path = directory.join(FILE);
        let failed = |source| StoreError::File { path: path.clone(), source };
        fs::create_dir_all(directory).map_err(|source| StoreError::File { path: directory.into(), source })?;
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(StoreError::Busy(path)),
            // A file system without locks cannot refuse one.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        let mut store = Store { path, ..Store::in_memory() };
        store.read(file)?;
        Ok(store)
    }

    /// An empty store that is never written to a disk.
    pub fn in_memory() -> Store {
        Store {
            path: PathBuf::new(),
            file: None,
            samples: Vec::new(),
            finished: BTreeSet::new(),
            others: BTreeMap::new(),
        }
    }

    fn read(&mut self, mut file: File) -> Result<(), StoreError> {
        let failed = |path: &Path, source| StoreError::File { path: path.into(), source };
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|error| failed(&self.path, error))?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if whole < text.len() {
            // Cut off by a kill or a full disk.
            file.set_len(whole as u64).map_err(|error| failed(&self.path, error))?;
            file.seek(io::SeekFrom::End(0)).map_err(|error| failed(&self.path, error))?;
        }
        self.file = Some(file);
        for (index, line) in text[..whole].lines().enumerate() {
            let wrong = |what: String| StoreError::Line { path: self.path.clone(), line: index + 1, what };
            let sample: Sample =
                serde_json::from_str(line).map_err(|error| wrong(format!("it is not a sample ({error})")))?;
            if sample.commit != COMMIT {
                self.note_other(sample);
                continue;
            }
            if !self.finished.insert(sample.point.clone()) {
                return Err(wrong(format!("{} exists already", sample.point)));
            }
            self.samples.push(sample);
        }
        Ok(())
    }

    /// Whether a point has been measured.
    pub fn has(&self, point: &Point) -> bool {
        self.finished.contains(point)
    }

    fn note_other(&mut self, sample: Sample) {
        let others = self.others.entry(sample.commit).or_default();
        others.count += 1;
        others.points.insert(sample.point);
    }

    /// Adds samples, all of them or, if this fails, none that is read again. They are on the disk when this returns.
    ///
    /// # Errors
    /// A point is there already, or the file cannot be written.
    pub fn append(&mut self, samples: Vec<Sample>) -> Result<(), StoreError> {
        let mut points = BTreeSet::new();
        for sample in &samples {
            if self.has(&sample.point) || !points.insert(&sample.point) {
                return Err(StoreError::Repeated(Box::new(sample.point.clone())));
            }
        }
        self.write(&samples)?;
        self.keep(samples);
        Ok(())
    }

    /// Adds the samples of other processes, of any commit, that are not there yet. Those that are added are on the disk
    /// when this returns; the same samples again add nothing.
    ///
    /// # Errors
    /// The file cannot be written. Nothing is lost: `samples` can be folded again.
    pub fn fold(&mut self, samples: Vec<Sample>) -> Result<Folded, StoreError> {
        let (own, others): (Vec<Sample>, Vec<Sample>) = samples.into_iter().partition(|sample| sample.commit == COMMIT);
        let mut folded = Folded::default();
        let mut there: BTreeMap<&Point, &Sample> = self.samples.iter().map(|sample| (&sample.point, sample)).collect();
        let mut is_new = Vec::new();
        for sample in &own {
            let first = *there.entry(&sample.point).or_insert(sample);
            is_new.push(std::ptr::eq(first, sample));
            if !std::ptr::eq(first, sample) {
                folded.known += usize::from(first.values == sample.values);
                folded.differing.extend((first.values != sample.values).then(|| sample.point.clone()));
            }
        }
        let new: Vec<Sample> = own.into_iter().zip(is_new).filter_map(|(sample, new)| new.then_some(sample)).collect();
        let is_new = |sample: &Sample| {
            self.others.get(&sample.commit).is_none_or(|others| !others.points.contains(&sample.point))
        };
        let (others, known): (Vec<Sample>, Vec<Sample>) = others.into_iter().partition(is_new);
        folded.known += known.len();
        self.write(&new)?;
        folded.added = new.len();
        self.keep(new);
        self.write(&others)?;
        for sample in others {
            *folded.others.entry(sample.commit.clone()).or_default() += 1;
            self.note_other(sample);
        }
        Ok(folded)
    }

    /// Writes lines; they are on the disk when this returns.
    fn write(&mut self, samples: &[Sample]) -> Result<(), StoreError> {
        let Some(file) = self.file.as_mut().filter(|_| !samples.is_empty()) else { return Ok(()) };
        let line = |sample| serde_json::to_string(sample).expect("samples have string keys only") + "\n";
        let lines: String = samples.iter().map(line).collect();
        let failed = |source| StoreError::File { path: self.path.clone(), source };
        file.write_all(lines.as_bytes()).and_then(|()| file.sync_data()).map_err(failed)
    }

    fn keep(&mut self, samples: Vec<Sample>) {
        self.finished.extend(samples.iter().map(|sample| sample.point.clone()));
        self.samples.extend(samples);
    }

    /// The samples of this build's commit.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// How many samples of other commits the file has.
    pub fn others(&self) -> usize {
        self.others.values().map(|others| others.count).sum()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::point::Place;
    use lab::machine::Probe;

    pub(crate) fn point(arch: &str, connections: u32, seed: u64) -> Point {
        let (arch, machine, lock) = (arch.to_owned(), "m".to_owned(), "adaptive".to_owned());
        Point { on: Place::Vsmp, machine, arch, connections, cpus: 4, lock, slice_ms: 0, workload: String::new(), seed }
    }

    pub(crate) fn sample(point: Point, megabits: f64) -> Sample {
        let mut sample = Sample::now(point, 0.5, Probe::start().finish());
        sample.values.insert("throughput_mbps".to_owned(), megabits);
        sample
    }

    #[test]
    fn what_was_measured_is_there_after_opening_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(&directory.path().join("a/b")).unwrap();
        store.append(vec![sample(point("x", 6, 1), 1.25), sample(point("x", 6, 2), 1.5)]).unwrap();
        let before = store.samples().to_vec();
        drop(store);
        let store = Store::open(&directory.path().join("a/b")).unwrap();
        assert_eq!(store.samples(), before);
        assert!(store.has(&point("x", 6, 2)) && !store.has(&point("x", 6, 3)));
    }

    #[test]
    fn a_point_is_there_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        store.append(vec![sample(point("x", 6, 1), 1.0)]).unwrap();
        let repeated = store.append(vec![sample(point("x", 6, 1), 2.0)]).unwrap_err();
        assert!(matches!(repeated, StoreError::Repeated(_)), "{repeated}");
        let twice = vec![sample(point("x", 6, 2), 1.0), sample(point("x", 6, 2), 1.0)];
        assert!(matches!(store.append(twice), Err(StoreError::Repeated(_))));
        assert_eq!(store.samples().len(), 1);
        drop(store);
        let path = directory.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.repeat(2)).unwrap();
        let said = Store::open(directory.path()).unwrap_err().to_string();
        assert!(said.contains("line 2: x, 6 connections, seed 1 exists already"), "{said}");
    }

    #[test]
    fn a_line_that_was_cut_off_is_measured_again_and_a_broken_one_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        store.append(vec![sample(point("x", 6, 1), 1.0), sample(point("x", 6, 2), 1.0)]).unwrap();
        drop(store);
        let path = directory.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 20]).unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        assert!(store.has(&point("x", 6, 1)) && !store.has(&point("x", 6, 2)));
        store.append(vec![sample(point("x", 6, 2), 1.0)]).unwrap();
        drop(store);
        assert_eq!(Store::open(directory.path()).unwrap().samples().len(), 2);
        fs::write(&path, format!("nonsense\n{text}")).unwrap();
        let said = Store::open(directory.path()).unwrap_err().to_string();
        assert!(said.contains("line 1: it is not a sample") && said.contains("take the line out"), "{said}");
    }

    #[test]
    fn samples_of_another_commit_are_kept_and_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let mut old = sample(point("x", 6, 1), 1.0);
        old.commit = "another".to_owned();
        let line = serde_json::to_string(&old).unwrap() + "\n";
        fs::write(directory.path().join(FILE), &line).unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        assert_eq!((store.samples().len(), store.others(), store.has(&old.point)), (0, 1, false));
        store.append(vec![sample(point("x", 6, 1), 2.0)]).unwrap();
        assert!(fs::read_to_string(directory.path().join(FILE)).unwrap().starts_with(&line));
    }

    #[test]
    fn one_process_writes_at_a_time_and_a_place_that_cannot_be_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let _first = Store::open(directory.path()).unwrap();
        assert!(matches!(Store::open(directory.path()), Err(StoreError::Busy(_))));
        let file = directory.path().join("taken");
        fs::write(&file, "").unwrap();
        let said = Store::open(&file.join("below")).unwrap_err().to_string();
        assert!(said.contains("taken") && said.contains("--report"), "{said}");
    }
}
