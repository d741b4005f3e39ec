//! Samples, added up.

use std::time::Duration;

use super::functions::KernelPart;

/// What samples of the CPUs say of this process. A sample counts with its period: nanoseconds, or cache misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleTally {
    /// Samples of threads of this process, counted.
    pub samples: u64,
    /// Their periods.
    pub own: u64,
    /// Of these, those in the scheduler.
    pub scheduler: u64,
    /// Of these, those in queues of futexes, without the scheduler.
    pub futex: u64,
    /// Periods of samples of the idle threads in the scheduler: a change to one ends there, whichever process caused it.
    pub idle_scheduler: u64,
    /// Samples of any process that the ring had no room for.
    pub lost: u64,
}

impl SampleTally {
    /// Adds a sample of a thread of the process `of`; 0 is the idle threads'. Those of processes other than `this` are left out.
    pub(super) fn add(&mut self, this: u32, of: u32, period: u64, part: KernelPart) {
        if of == this {
            self.samples += 1;
            self.own += period;
            match part {
                KernelPart::Scheduler => self.scheduler += period,
                KernelPart::FutexQueue => self.futex += period,
                KernelPart::Other => {}
            }
        } else if of == 0 && part == KernelPart::Scheduler {
            self.idle_scheduler += period;
        }
    }

    /// Adds another stretch of the same event.
    pub fn extend(&mut self, other: &SampleTally) {
        self.samples += other.samples;
        self.own += other.own;
        self.scheduler += other.scheduler;
        self.futex += other.futex;
        self.idle_scheduler += other.idle_scheduler;
        self.lost += other.lost;
    }

    /// Of the time that the process's threads have used, the nanoseconds of `part` periods: its share of their samples times
    /// `cpu`, which the kernel counts exactly. So samples that were lost change nothing but the error. 0 without samples.
    pub fn nanos(&self, part: u64, cpu: Duration) -> f64 {
        if self.own == 0 { 0.0 } else { part as f64 / self.own as f64 * cpu.as_nanos() as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use KernelPart::{FutexQueue, Other, Scheduler};

    const THIS: u32 = 70;

    #[test]
    fn only_threads_of_this_process_and_changes_to_idle_count() {
        let mut tally = SampleTally::default();
        for (of, part) in [
            (THIS, Scheduler),
            (THIS, Other),
            (THIS, FutexQueue),
            (THIS, Other),
            (71, Scheduler),
            (71, Other),
            (0, Scheduler),
            (0, Other),
        ] {
            tally.add(THIS, of, 100, part);
        }
        let wanted =
            SampleTally { samples: 4, own: 400, scheduler: 100, futex: 100, idle_scheduler: 100, ..Default::default() };
        assert_eq!(tally, wanted);
    }

    /// A quarter of the samples is in the scheduler: of 8 ms of CPU time 2 ms, whatever was lost.
    #[test]
    fn a_share_of_samples_is_that_share_of_cpu_time() {
        let mut tally = SampleTally { samples: 4, own: 400, scheduler: 100, ..Default::default() };
        let other = SampleTally { samples: 4, own: 400, scheduler: 100, futex: 40, lost: 3, ..Default::default() };
        tally.extend(&other);
        assert_eq!((tally.samples, tally.lost), (8, 3));
        let cpu = Duration::from_millis(8);
        assert_eq!((tally.nanos(tally.scheduler, cpu), tally.nanos(tally.futex, cpu)), (2e6, 4e5));
        assert_eq!(SampleTally::default().nanos(0, cpu), 0.0, "no sample says nothing");
    }
}
