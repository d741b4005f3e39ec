//! CPU time and context switches of a process and its threads.
//!
//! Read from the kernel's counters, never estimated. A process's context switches are the sum over its threads in
//! `/proc/self/task`; a thread that has ended is no longer counted, so workloads keep their threads alive for the whole
//! measurement. Loopback work in a softirq is charged to the interrupted thread, on most kernels the sender; work
//! deferred to `ksoftirqd` is charged to no process.

use std::fs;
use std::io;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Context switches of a thread, or of all threads of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switches {
    /// The thread blocked.
    pub voluntary: u64,
    /// The scheduler preempted the thread.
    pub involuntary: u64,
}

impl Switches {
    /// Both kinds together.
    pub fn total(self) -> u64 {
        self.voluntary + self.involuntary
    }
}

impl Add for Switches {
    type Output = Switches;
    fn add(self, other: Switches) -> Switches {
        Switches { voluntary: self.voluntary + other.voluntary, involuntary: self.involuntary + other.involuntary }
    }
}

impl AddAssign for Switches {
    fn add_assign(&mut self, other: Switches) {
        *self = *self + other;
    }
}

/// Saturating: a thread that ended between two readings reduces the later one.
impl Sub for Switches {
    type Output = Switches;
    fn sub(self, earlier: Switches) -> Switches {
        Switches {
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }
}

/// CPU time and context switches at one moment; a measurement is the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time.
    pub cpu: Duration,
    /// Context switches.
    pub switches: Switches,
}

impl Usage {
    /// The usage of the calling thread.
    ///
    /// # Errors
    /// Where `/proc` is not mounted.
    pub fn of_thread() -> io::Result<Usage> {
        let status = fs::read_to_string("/proc/thread-self/status")?;
        Ok(Usage { cpu: cpu_clock(ClockId::ThreadCPUTime), switches: switches_in(&status) })
    }

    /// The usage of this process: CPU time of all threads, ended ones included; switches of the threads alive.
    ///
    /// # Errors
    /// Where `/proc` is not mounted.
    pub fn of_process() -> io::Result<Usage> {
        let mut switches = Switches::default();
        for task in fs::read_dir("/proc/self/task")? {
            // A thread may end between the listing and the reading.
            if let Ok(status) = fs::read_to_string(task?.path().join("status")) {
                switches += switches_in(&status);
            }
        }
        Ok(Usage { cpu: cpu_clock(ClockId::ProcessCPUTime), switches })
    }
}

impl Add for Usage {
    type Output = Usage;
    fn add(self, other: Usage) -> Usage {
        Usage { cpu: self.cpu + other.cpu, switches: self.switches + other.switches }
    }
}

/// Saturating, as [`Switches`]' subtraction is.
impl Sub for Usage {
    type Output = Usage;
    fn sub(self, earlier: Usage) -> Usage {
        Usage { cpu: self.cpu.saturating_sub(earlier.cpu), switches: self.switches - earlier.switches }
    }
}

fn cpu_clock(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// The two counts in the text of a `/proc/<pid>/status` file; zero where a line is missing.
fn switches_in(status: &str) -> Switches {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
    };
    Switches { voluntary: field("voluntary_ctxt_switches:"), involuntary: field("nonvoluntary_ctxt_switches:") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines_are_told_apart() {
        let text = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(switches_in(text), Switches { voluntary: 12, involuntary: 7 });
        assert_eq!(switches_in("Name:\tx\n"), Switches::default());
    }

    #[test]
    fn work_shows_as_cpu_time_of_thread_and_process() {
        // The process first: its reading takes time, which must not count for the process alone.
        let process = Usage::of_process().unwrap();
        let thread = Usage::of_thread().unwrap();
        let mut x = 1u64;
        while (Usage::of_thread().unwrap() - thread).cpu < Duration::from_millis(2) {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005));
        }
        assert!((Usage::of_process().unwrap() - process).cpu >= Duration::from_millis(2));
    }

    #[test]
    fn blocking_is_a_voluntary_switch() {
        let before = Usage::of_process().unwrap();
        let (to_peer, from_us) = std::sync::mpsc::channel::<u32>();
        let (to_us, from_peer) = std::sync::mpsc::channel::<u32>();
        let peer = std::thread::spawn(move || from_us.into_iter().try_for_each(|x| to_us.send(x)));
        for round in 0..64 {
            to_peer.send(round).unwrap();
            assert_eq!(from_peer.recv(), Ok(round));
        }
        let after = Usage::of_process().unwrap();
        drop(to_peer);
        peer.join().unwrap().unwrap();
        assert!((after - before).switches.total() > 0);
    }

    #[test]
    fn subtraction_saturates_when_a_thread_has_ended() {
        let more = Switches { voluntary: 5, involuntary: 1 };
        let fewer = Switches { voluntary: 2, involuntary: 3 };
        assert_eq!(fewer - more, Switches { voluntary: 0, involuntary: 2 });
        assert_eq!(more.total(), 6);
    }
}
