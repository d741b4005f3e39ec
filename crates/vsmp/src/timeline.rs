//! A stretch of a run in detail: the activity of each CPU and its thread, and the threads that waited for a lock or
//! held it.
//!
//! The state of the machine reports advances of clocks and operations on locks to a `Recorder`, from `machine::record`
//! until the stretch is over; `machine::recorded` takes the [`Timeline`]. Recording charges nothing: a run with it is
//! the same run.
//!
//! What may never happen: a timeline that grows with the run. Beyond [`MOST_SPANS`] of each kind nothing is recorded,
//! and the timeline is marked as cut.

use std::collections::HashMap;

use sync::{LockClass, LockStep};

use crate::ledger::PartGroup;
use crate::memory::from_system;

/// Maximum number of spans of CPUs, and of locks.
pub const MOST_SPANS: usize = 20_000;

/// The activity of a CPU for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doing {
    /// It works, or waits for memory.
    Runs,
    /// It spins.
    Spins,
    /// It runs the scheduler.
    Schedules,
}

impl Doing {
    fn of(group: PartGroup) -> Option<Doing> {
        match group {
            PartGroup::Work | PartGroup::Memory => Some(Doing::Runs),
            PartGroup::Spinning => Some(Doing::Spins),
            PartGroup::Scheduling => Some(Doing::Schedules),
            PartGroup::Idle => None,
        }
    }
}

/// One activity of a CPU for one thread. Times are cycles of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSpan {
    /// The CPU.
    pub cpu: usize,
    /// The thread, by its place in [`Timeline::threads`].
    pub thread: usize,
    /// The activity.
    pub doing: Doing,
    /// From this time on.
    pub from: u64,
    /// Until this time.
    pub to: u64,
}

/// A thread has a lock. Times are cycles of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockSpan {
    /// The class of the lock.
    pub class: LockClass,
    /// Its number among the locks of the timeline, in the order in which they were first released.
    pub lock: usize,
    /// The thread, by its place in [`Timeline::threads`].
    pub thread: usize,
    /// When it began to wait, if the first try failed.
    pub waits: Option<u64>,
    /// When it had the lock.
    pub takes: u64,
    /// When it released it.
    pub releases: u64,
}

/// See the head of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Clock of the CPUs, in megahertz.
    pub megahertz: u64,
    /// CPUs of the machine.
    pub cpus: usize,
    /// The names of all threads.
    pub threads: Vec<String>,
    /// The stretch, in cycles of the machine.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// By CPU and time. A CPU is idle between spans.
    pub spans: Vec<CpuSpan>,
    /// In the order in which they were released.
    pub locks: Vec<LockSpan>,
    /// Whether there were more than [`MOST_SPANS`] spans of a kind.
    pub is_cut: bool,
}

/// Records a stretch.
pub(crate) struct Recorder {
    from: u64,
    to: u64,
    /// By CPU.
    spans: Vec<Vec<CpuSpan>>,
    most: usize,
    locks: Vec<LockSpan>,
    /// The numbers of locks, by address.
    numbers: HashMap<usize, usize>,
    /// Waits and holds that have not ended, by thread and address.
    open: HashMap<(usize, usize), (Option<u64>, Option<u64>)>,
    is_cut: bool,
}

impl Recorder {
    /// From `from` until `to`, in cycles.
    pub(crate) fn new(cpus: usize, from: u64, to: u64) -> Recorder {
        Recorder {
            from,
            to,
            spans: vec![Vec::new(); cpus],
            most: (MOST_SPANS / cpus).max(1),
            locks: Vec::new(),
            numbers: HashMap::new(),
            open: HashMap::new(),
            is_cut: false,
        }
    }

    /// A CPU has spent the time between two moments, for a thread.
    pub(crate) fn spent(&mut self, cpu: usize, thread: Option<usize>, group: PartGroup, from: u64, to: u64) {
        let (from, to) = (from.max(self.from), to.min(self.to));
        let (Some(doing), Some(thread)) = (Doing::of(group), thread) else { return };
        if from >= to {
            return;
        }
        let spans = &mut self.spans[cpu];
        let has_room = spans.len() < self.most;
        match spans.last_mut() {
            Some(last) if (last.thread, last.doing, last.to) == (thread, doing, from) => last.to = to,
            _ if has_room => from_system(|| spans.push(CpuSpan { cpu, thread, doing, from, to })),
            _ => self.is_cut = true,
        }
    }

    /// Records a thread's operation on the lock at an address.
    pub(crate) fn lock(&mut self, thread: usize, step: LockStep, class: LockClass, address: usize, now: u64) {
        if self.from <= now && (now <= self.to || step == LockStep::Releases) {
            from_system(|| self.note(thread, step, class, address, now));
        }
    }

    fn note(&mut self, thread: usize, step: LockStep, class: LockClass, address: usize, now: u64) {
        let key = (thread, address);
        match step {
            LockStep::Waits => {
                self.open.insert(key, (Some(now), None));
            }
            LockStep::Takes => self.open.entry(key).or_default().1 = Some(now),
            LockStep::Releases => {
                let (waits, takes) = self.open.remove(&key).unwrap_or_default();
                let takes = match takes {
                    Some(takes) => takes,
                    // Taken after the stretch.
                    None if now > self.to => return,
                    // Taken before the stretch: held from its beginning.
                    None => self.from,
                };
                if self.locks.len() == MOST_SPANS {
                    self.is_cut = true;
                    return;
                }
                let next = self.numbers.len();
                let lock = *self.numbers.entry(address).or_insert(next);
                self.locks.push(LockSpan { class, lock, thread, waits, takes, releases: now.min(self.to) });
            }
        }
    }

    pub(crate) fn finish(self, megahertz: u64, threads: Vec<String>) -> Timeline {
        let Recorder { from, to, spans, locks, is_cut, .. } = self;
        Timeline { megahertz, cpus: spans.len(), threads, from, to, spans: spans.concat(), locks, is_cut }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_joined_clipped_and_bounded() {
        let mut recorder = Recorder::new(2, 100, 200);
        recorder.spent(0, Some(1), PartGroup::Work, 90, 120);
        recorder.spent(0, Some(1), PartGroup::Memory, 120, 130);
        recorder.spent(0, Some(1), PartGroup::Spinning, 130, 140);
        recorder.spent(0, None, PartGroup::Idle, 140, 150);
        recorder.spent(1, Some(2), PartGroup::Work, 190, 300);
        recorder.spent(1, Some(2), PartGroup::Work, 300, 400);
        let timeline = recorder.finish(1000, Vec::new());
        let of = |span: &CpuSpan| (span.cpu, span.doing, span.from, span.to);
        let spans: Vec<_> = timeline.spans.iter().map(of).collect();
        assert_eq!(spans, [(0, Doing::Runs, 100, 130), (0, Doing::Spins, 130, 140), (1, Doing::Runs, 190, 200)]);
        assert!(!timeline.is_cut);

        let mut recorder = Recorder::new(4, 0, u64::MAX);
        for at in 0..MOST_SPANS as u64 {
            recorder.spent(0, Some(1), PartGroup::Work, 2 * at, 2 * at + 1);
            recorder.lock(1, LockStep::Takes, LockClass::Group, 8, 2 * at);
            recorder.lock(1, LockStep::Releases, LockClass::Group, 8, 2 * at + 1);
        }
        recorder.lock(1, LockStep::Releases, LockClass::Group, 8, 7);
        let timeline = recorder.finish(1000, Vec::new());
        assert_eq!((timeline.spans.len(), timeline.locks.len()), (MOST_SPANS / 4, MOST_SPANS));
        assert!(timeline.is_cut);
    }

    #[test]
    fn a_lock_is_waited_for_and_had() {
        let mut recorder = Recorder::new(1, 100, 200);
        recorder.lock(2, LockStep::Waits, LockClass::Group, 64, 105);
        recorder.lock(1, LockStep::Releases, LockClass::Group, 64, 110);
        recorder.lock(2, LockStep::Takes, LockClass::Group, 64, 112);
        recorder.lock(2, LockStep::Releases, LockClass::Group, 64, 500);
        recorder.lock(1, LockStep::Takes, LockClass::Group, 64, 510);
        recorder.lock(1, LockStep::Releases, LockClass::Group, 64, 520);
        let timeline = recorder.finish(1000, Vec::new());
        let of = |span: &LockSpan| (span.lock, span.thread, span.waits, span.takes, span.releases);
        let spans: Vec<_> = timeline.locks.iter().map(of).collect();
        assert_eq!(spans, [(0, 1, None, 100, 110), (0, 2, Some(105), 112, 200)]);
    }
}
