//! Knobs from a directory with one file for each, named as under `/proc/sys/net/ipv4`.
//!
//! Scripts write there while they run (`sysctl`, a shell's `echo`), through other programs; so the files are read again
//! before every call. Only changed values are set.

use std::collections::HashMap;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The directory whose files Linux's own programs write.
const PROC: &CStr = c"/proc/sys/net/ipv4";

pub(crate) struct Sysctls {
    directory: Option<PathBuf>,
    /// The text of each file at the last read.
    seen: Mutex<HashMap<&'static str, String>>,
}

impl Sysctls {
    /// Those of `directory`; without one those of `/proc/sys/net/ipv4` if plain files are mounted over it.
    pub(crate) fn new(directory: Option<PathBuf>) -> Sysctls {
        let mounted = || covers_proc().then(|| Path::new("/proc/sys/net/ipv4").to_owned());
        Sysctls { directory: directory.or_else(mounted), seen: Mutex::default() }
    }

    /// Knobs whose file has changed since the last call: name and value.
    ///
    /// Reads files: must not be called by the machine's thread, which `close` may wait for.
    pub(crate) fn changes(&self) -> Vec<(&'static str, String)> {
        let Some(directory) = &self.directory else { return Vec::new() };
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut changes = Vec::new();
        for knob in tcp::knobs::KNOBS {
            // A directory need not have every knob.
            let Ok(text) = std::fs::read_to_string(directory.join(knob.name)) else { continue };
            let text = text.trim();
            if seen.get(knob.name).is_none_or(|old| old != text) {
                seen.insert(knob.name, text.to_owned());
                changes.push((knob.name, text.to_owned()));
            }
        }
        changes
    }
}

/// Whether other files are mounted over the kernel's at `/proc/sys/net/ipv4`.
fn covers_proc() -> bool {
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path is a C string and `stat` has room for the result.
    if unsafe { libc::statfs(PROC.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the call has succeeded, so it has written all of `stat`.
    let kind = unsafe { stat.assume_init() }.f_type;
    kind != libc::PROC_SUPER_MAGIC
}
