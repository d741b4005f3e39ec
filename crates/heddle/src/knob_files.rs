//! Knobs from a directory of files, each named after a knob and containing its value: `/proc/sys/net/ipv4`, or a copy
//! of it.
//!
//! ```
//! use heddle::{config::Config, knob_files};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = std::env::temp_dir().join(format!("heddle-knobs-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! std::fs::write(directory.join("tcp_sack"), "0\n")?;
//! let mut config = Config::default();
//! assert_eq!(knob_files::read(&directory, &mut config)?, ["tcp_sack"]);
//! assert!(!config.sack);
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tcp::Config;
use tcp::knobs::{KNOBS, KnobError};

/// Sets in `config` every knob that has a file in `directory`; returns their names. Other files (Linux has many more)
/// are ignored.
///
/// # Errors
/// See [`KnobFileError`]; knobs earlier in the alphabet have been set.
pub fn read(directory: &Path, config: &mut Config) -> Result<Vec<&'static str>, KnobFileError> {
    fs::read_dir(directory).map_err(|error| KnobFileError::NoDirectory(directory.to_owned(), error.kind()))?;
    let mut set = Vec::new();
    for knob in KNOBS {
        let path = directory.join(knob.name);
        match fs::read_to_string(&path) {
            Ok(text) => knob.set(config, &text).map_err(|error| KnobFileError::Value(path, error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(KnobFileError::Unreadable(path, error.kind())),
        }
        set.push(knob.name);
    }
    if set.is_empty() {
        return Err(KnobFileError::NoKnob(directory.to_owned()));
    }
    Ok(set)
}

/// A directory of knobs cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KnobFileError {
    /// The directory cannot be read.
    NoDirectory(PathBuf, io::ErrorKind),
    /// No file in the directory has a knob's name: it is the wrong directory.
    NoKnob(PathBuf),
    /// A file cannot be read.
    Unreadable(PathBuf, io::ErrorKind),
    /// A file contains an invalid value for its knob.
    Value(PathBuf, KnobError),
}

impl fmt::Display for KnobFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KnobFileError::NoDirectory(path, io::ErrorKind::NotFound) => {
                write!(f, "there is no directory {}: name a directory of files such as tcp_sack", path.display())
            }
            KnobFileError::NoDirectory(path, kind) => {
                write!(f, "cannot read {}: {kind}; name a directory of files such as tcp_sack", path.display())
            }
            KnobFileError::NoKnob(path) => {
                write!(
                    f,
                    "no file in {} has the name of a knob, such as tcp_sack: name another directory",
                    path.display()
                )
            }
            KnobFileError::Unreadable(path, kind) => {
                write!(
                    f,
                    "cannot read {}: {kind}; make it a text file with the knob's value, or remove it",
                    path.display()
                )
            }
            KnobFileError::Value(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for KnobFileError {}
