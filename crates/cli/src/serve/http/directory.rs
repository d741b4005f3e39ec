//! A directory whose requests cannot leave it.
//!
//! The kernel ensures this: every path is opened below the directory with `openat2` and `RESOLVE_BENEATH`, so neither
//! `..`, nor a symbolic link, nor a directory moved meanwhile can leave it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fsync, openat2, renameat, unlinkat};
use rustix::io::Errno;

use crate::failure::Failure;

/// An open directory.
pub struct Directory {
    fd: OwnedFd,
}

/// An entry of a listing.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// Whether it is a directory itself.
    pub is_directory: bool,
}

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

impl Directory {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// It is not a directory, or cannot be read.
    pub fn open(path: &Path) -> Result<Directory, Failure> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Ok(Directory { fd }),
            Err(error) => Err(Failure::Failed(format!(
                "cannot open the directory {}: {}; name one that exists and that you may read",
                path.display(),
                io::Error::from(error)
            ))),
        }
    }

    /// Opens the file at `path`, relative to the directory, without a leading slash.
    ///
    /// # Errors
    /// The kernel's; `EXDEV` if the path leads out of the directory.
    pub fn entry(&self, path: &[u8]) -> Result<File, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        // Non-blocking: opening a named pipe must not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat2(&self.fd, path, flags, Mode::empty(), BENEATH).map(File::from)
    }

    /// Creates the file `name` for writing, under a provisional name until [`Provisional::keep`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(&self, name: &str) -> Result<Provisional<'_>, Errno> {
        // Simultaneous uploads of one name get separate files; the one that ends last remains.
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let provisional = format!(".heddle-{}-{number}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = openat2(&self.fd, provisional.as_str(), flags, Mode::from(0o644), BENEATH)?;
        Ok(Provisional { directory: self, file: File::from(fd), provisional, name: name.to_owned(), kept: false })
    }
}

static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// A file that is deleted unless it is kept.
pub struct Provisional<'a> {
    directory: &'a Directory,
    file: File,
    provisional: String,
    name: String,
    kept: bool,
}

impl Provisional<'_> {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// The kernel's; a full disk, for one.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Renames it to its name, replacing an existing file.
    ///
    /// # Errors
    /// The kernel's.
    pub fn keep(mut self) -> io::Result<()> {
        fsync(&self.file)?;
        renameat(&self.directory.fd, self.provisional.as_str(), &self.directory.fd, self.name.as_str())?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Provisional<'_> {
    fn drop(&mut self) {
        if !self.kept {
            // A hidden file stays behind; nothing else can be done about it here.
            let _ = unlinkat(&self.directory.fd, self.provisional.as_str(), rustix::fs::AtFlags::empty());
        }
    }
}

/// The entries of an open directory by name, without hidden ones.
///
/// # Errors
/// The kernel's.
pub fn list(directory: impl AsFd) -> Result<Vec<Entry>, Errno> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !name.starts_with(b".") {
            entries.push(Entry { name: name.to_vec(), is_directory: entry.file_type() == FileType::Directory });
        }
    }
    entries.sort();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_opened() {
        let outside = tempfile::tempdir().unwrap();
        let inside = outside.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        std::fs::write(inside.join("open"), "open").unwrap();
        std::os::unix::fs::symlink("../secret", inside.join("link")).unwrap();
        let directory = Directory::open(&inside).unwrap();
        assert!(directory.entry(b"open").is_ok());
        assert!(directory.entry(b"").is_ok());
        for path in [&b"../secret"[..], b"link", b"/etc/passwd", b"open/../../secret"] {
            assert!(directory.entry(path).is_err(), "{}", String::from_utf8_lossy(path));
        }
    }

    #[test]
    fn a_file_that_is_not_kept_leaves_nothing() {
        let path = tempfile::tempdir().unwrap();
        let directory = Directory::open(path.path()).unwrap();
        let mut dropped = directory.create("a").unwrap();
        dropped.write(b"half").unwrap();
        drop(dropped);
        assert_eq!(std::fs::read_dir(path.path()).unwrap().count(), 0);
        let mut kept = directory.create("a").unwrap();
        kept.write(b"whole").unwrap();
        kept.keep().unwrap();
        assert_eq!(std::fs::read(path.path().join("a")).unwrap(), b"whole");
    }

    #[test]
    fn what_is_no_directory_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let Err(Failure::Failed(message)) = Directory::open(file.path()) else { panic!("opened") };
        assert!(message.contains(&file.path().display().to_string()), "{message}");
    }
}
