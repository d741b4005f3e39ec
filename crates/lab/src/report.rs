//! The report: `index.html` with its figures, `results.json` and `results.csv` side by side in one directory.
//!
//! The page opens from disk, fetches nothing and needs no script. The document with the samples is written first, each
//! file under a temporary name and then renamed: a full disk, or an interruption, never leaves half a report in place
//! of a whole one. A program calls [`write_or_print`] at the end of a run, so that results are never lost.

mod accounts;
mod figures;
mod page;
mod rfc2544;
pub mod svg;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::csv;
use crate::result::Results;
use crate::rfc2544::document::Rfc2544Results;

pub use page::{STYLE, facts, render};
pub use rfc2544::render_rfc2544;

/// A file of the report that could not be written.
#[derive(Debug)]
pub struct ReportError {
    path: PathBuf,
    source: io::Error,
}

impl ReportError {
    /// The file or directory that could not be written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn remedy(&self) -> &'static str {
        match self.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space, or choose another directory",
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "choose a directory that you may write to"
            }
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                "a file is in the place of a directory: remove it, or choose another directory"
            }
            _ => "choose another directory",
        }
    }
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} could not be written ({}): {}", self.path.display(), self.source, self.remedy())
    }
}

impl std::error::Error for ReportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Writes the report into `directory`, which is made if it is not there, and returns the path of `index.html`.
///
/// # Errors
/// [`ReportError`] for the first file that could not be written; those before it are complete.
pub fn write(directory: &Path, results: &Results) -> Result<PathBuf, ReportError> {
    fs::create_dir_all(directory).map_err(|source| ReportError { path: directory.into(), source })?;
    save(&directory.join("results.json"), results.to_json().as_bytes())?;
    save(&directory.join("results.csv"), csv::write(&results.rows).as_bytes())?;
    let index = directory.join("index.html");
    save(&index, render(results).as_bytes())?;
    Ok(index)
}

/// Writes the report of RFC 2544 into `directory`, which is made if it is not there: `results.json` and `index.html`, the path of
/// which is returned.
///
/// # Errors
/// As [`write()`].
pub fn write_rfc2544(directory: &Path, results: &Rfc2544Results) -> Result<PathBuf, ReportError> {
    fs::create_dir_all(directory).map_err(|source| ReportError { path: directory.into(), source })?;
    save(&directory.join("results.json"), results.to_json().as_bytes())?;
    let index = directory.join("index.html");
    save(&index, render_rfc2544(results).as_bytes())?;
    Ok(index)
}

/// Writes a text to `path`: all of it, or nothing.
///
/// # Errors
/// [`ReportError`], with the path and a remedy.
pub fn save_text(path: &Path, text: &str) -> Result<(), ReportError> {
    save(path, text.as_bytes())
}

/// Writes the document alone to `path`, for `--json FILE`.
///
/// # Errors
/// [`ReportError`], with the path and a remedy.
pub fn write_json(path: &Path, results: &Results) -> Result<(), ReportError> {
    save(path, results.to_json().as_bytes())
}

/// Writes a file of another kind, such as a timeline, to `path`.
///
/// # Errors
/// [`ReportError`], with the path and a remedy.
pub fn write_file(path: &Path, content: &[u8]) -> Result<(), ReportError> {
    save(path, content)
}

/// Writes the report, or, if that fails, the document as JSON to `fallback` (standard output), so that no measurement
/// is lost.
///
/// # Errors
/// [`ReportError`] of the report, after the document went to `fallback`. An error of the fallback is ignored.
pub fn write_or_print(directory: &Path, results: &Results, fallback: &mut impl Write) -> Result<PathBuf, ReportError> {
    write(directory, results).inspect_err(|_| {
        let _ = fallback.write_all(results.to_json().as_bytes()).and_then(|()| fallback.flush());
    })
}

/// Writes beside `path` and renames. An existing file that is not regular (a pipe, `/dev/stdout`) is written to
/// directly.
///
/// # Errors
/// [`ReportError`], with the path and a remedy.
pub fn save(path: &Path, content: &[u8]) -> Result<(), ReportError> {
    let failed = |source| ReportError { path: path.into(), source };
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return File::create(path).and_then(|mut file| file.write_all(content)).map_err(failed);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let written = File::create(&beside)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&beside, path));
    written.map_err(|source| {
        // Half a file is useless and takes scarce space.
        let _ = fs::remove_file(&beside);
        failed(source)
    })
}
