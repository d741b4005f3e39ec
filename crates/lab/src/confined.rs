//! Threads of a contender on some of the host's processors only.
//!
//! A figure over processors needs a contender on as many of them as its load says. Its threads are confined after they have
//! been started, because an architecture pins its own, each to a processor of its own. Only called while contenders are
//! opened; nothing here runs in a measured slice.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// The threads of this process at one moment.
#[derive(Clone, Debug)]
pub struct Threads(BTreeSet<i32>);

impl Threads {
    /// Those of now.
    ///
    /// # Errors
    /// Where `/proc` is not mounted.
    pub fn now() -> io::Result<Threads> {
        let entries = fs::read_dir("/proc/self/task")?;
        let numbers = entries.map(|entry| Ok(entry?.file_name().to_str().and_then(|name| name.parse().ok())));
        Ok(Threads(numbers.filter_map(io::Result::transpose).collect::<io::Result<_>>()?))
    }

    /// Confines the threads that were started since to the first `count` processors of this process. A thread that is
    /// pinned to some of these keeps them; one that is pinned elsewhere may run on all of these.
    ///
    /// # Errors
    /// The kernel refuses: the allowed processors have changed meanwhile.
    pub fn confine_later_ones(&self, count: usize) -> io::Result<()> {
        let first = &allowed_cpus()[..];
        let first = &first[..count.clamp(1, first.len().max(1)).min(first.len())];
        for number in Threads::now()?.0.difference(&self.0) {
            let thread = Pid::from_raw(*number);
            // A thread that has ended meanwhile is none to confine.
            let Ok(own) = sched_getaffinity(thread) else { continue };
            let kept: Vec<usize> = first.iter().copied().filter(|cpu| own.is_set(*cpu)).collect();
            match sched_setaffinity(thread, &set_of(if kept.is_empty() { first } else { &kept })) {
                Err(rustix::io::Errno::SRCH) => {}
                done => done?,
            }
        }
        Ok(())
    }
}

/// The set of these processors.
pub(crate) fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

/// Processors this process may run on; empty if unknown.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}
