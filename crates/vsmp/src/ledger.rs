//! The purposes of each CPU's cycles: every advance of its clock has an entry.
//!
//! A clock advances by `State::spend` while a thread runs, and at the ends of idling, spinning and delays; each of
//! these names its [`Part`]. A [`Ledger`] has the parts of one CPU, and in `total` the advance of its clock. The two
//! are kept apart, so that a charge without an entry, or an entry without a charge, makes them differ. Read by
//! `machine::account`, shown by `simulation`.
//!
//! What may never happen: an advance of a clock without a part.

use sync::{Object, Step};

/// The purpose of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Plain work that the stack or an application has announced, without its cache misses.
    Work(Step),
    /// Handlers of interrupts.
    Interrupt,
    /// Reading payload, beyond its misses.
    Payload,
    /// Atomic read-modify-writes and fences, beyond their misses.
    ReadModifyWrite,
    /// Misses on lines of plain memory.
    Miss(Object),
    /// Misses on lines of atomics and locks.
    AtomicMiss,
    /// Misses on lines that a preset adds for memory that its kernel touches and Heddle does not, and on descriptors of
    /// devices.
    FootprintMiss,
    /// Spin loops: their turns, and the time until the word changes.
    Spin,
    /// Entering the kernel and leaving it.
    SystemCall,
    /// Offers of a CPU to other threads.
    Yield,
    /// Waking threads, without misses.
    Wake,
    /// Turnstiles of locks that are held, and waiting for their chains.
    Turnstile,
    /// Changes of threads, without misses.
    Switch,
    /// Misses of the scheduler.
    SchedulerMiss,
    /// Leaving idleness.
    IdleExit,
    /// The CPU has a thread that makes no progress: another thread takes the CPU a little later, or an order of the run
    /// that does not follow time prefers other threads.
    HeldUp,
    /// No thread.
    Idle,
}

/// A sum of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartGroup {
    /// The cost on one CPU with perfect caches.
    Work,
    /// Cache misses, except the scheduler's.
    Memory,
    /// Waiting for a lock or another word, on the CPU.
    Spinning,
    /// The scheduler with its misses.
    Scheduling,
    /// No thread.
    Idle,
}

impl PartGroup {
    /// Every group, in the order of reports.
    pub const ALL: [PartGroup; 5] = [Self::Work, Self::Memory, Self::Spinning, Self::Scheduling, Self::Idle];

    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Memory => "memory",
            Self::Spinning => "spinning",
            Self::Scheduling => "scheduling",
            Self::Idle => "idle",
        }
    }

    /// Its parts.
    pub fn parts(self) -> impl Iterator<Item = Part> {
        Part::all().filter(move |part| part.group() == self)
    }
}

const STEPS: usize = Step::ALL.len();
const OBJECTS: usize = Object::ALL.len();

impl Part {
    /// Their number.
    pub const COUNT: usize = STEPS + OBJECTS + 15;

    /// The parts that are neither a step nor an object, in the order of their numbers, after the steps.
    const OTHERS: [Part; Self::COUNT - STEPS - OBJECTS] = [
        Part::Interrupt,
        Part::Payload,
        Part::ReadModifyWrite,
        Part::AtomicMiss,
        Part::FootprintMiss,
        Part::Spin,
        Part::SystemCall,
        Part::Yield,
        Part::Wake,
        Part::Turnstile,
        Part::Switch,
        Part::SchedulerMiss,
        Part::IdleExit,
        Part::HeldUp,
        Part::Idle,
    ];

    /// Every part, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Part> {
        let steps = Step::ALL.into_iter().map(Part::Work);
        steps.chain(Object::ALL.into_iter().map(Part::Miss)).chain(Self::OTHERS)
    }

    /// Its number, below [`Part::COUNT`].
    #[inline(always)]
    pub const fn index(self) -> usize {
        let other = match self {
            Part::Work(step) => return step as usize,
            Part::Miss(object) => return STEPS + object as usize,
            Part::Interrupt => 0,
            Part::Payload => 1,
            Part::ReadModifyWrite => 2,
            Part::AtomicMiss => 3,
            Part::FootprintMiss => 4,
            Part::Spin => 5,
            Part::SystemCall => 6,
            Part::Yield => 7,
            Part::Wake => 8,
            Part::Turnstile => 9,
            Part::Switch => 10,
            Part::SchedulerMiss => 11,
            Part::IdleExit => 12,
            Part::HeldUp => 13,
            Part::Idle => 14,
        };
        STEPS + OBJECTS + other
    }

    /// The sum that it is part of.
    pub const fn group(self) -> PartGroup {
        match self {
            Part::Work(_) | Part::Interrupt | Part::Payload | Part::ReadModifyWrite => PartGroup::Work,
            Part::Miss(_) | Part::AtomicMiss | Part::FootprintMiss => PartGroup::Memory,
            Part::Spin => PartGroup::Spinning,
            Part::Idle => PartGroup::Idle,
            Part::SystemCall
            | Part::Yield
            | Part::Wake
            | Part::Turnstile
            | Part::Switch
            | Part::SchedulerMiss
            | Part::IdleExit
            | Part::HeldUp => PartGroup::Scheduling,
        }
    }

    /// The name used in reports; no two parts have one.
    pub fn name(self) -> String {
        let name = match self {
            Part::Work(step) => return step.name().to_owned(),
            Part::Miss(object) => return format!("misses, {}", object.name()),
            Part::Interrupt => "interrupts",
            Part::Payload => "reading payload",
            Part::ReadModifyWrite => "atomic operations",
            Part::AtomicMiss => "misses, atomics and locks",
            Part::FootprintMiss => "misses, footprint",
            Part::Spin => "spinning",
            Part::SystemCall => "system calls",
            Part::Yield => "yields",
            Part::Wake => "wake-ups",
            Part::Turnstile => "turnstiles",
            Part::Switch => "switches",
            Part::SchedulerMiss => "misses, scheduler",
            Part::IdleExit => "leaving idleness",
            Part::HeldUp => "held up",
            Part::Idle => "idle",
        };
        name.to_owned()
    }
}

/// The cycles of one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// The advance of its clock, in cycles.
    pub total: u64,
    parts: [u64; Part::COUNT],
}

impl Ledger {
    pub(crate) fn new(total: u64, parts: [u64; Part::COUNT]) -> Ledger {
        Ledger { total, parts }
    }

    /// The cycles of a part.
    pub fn of(&self, part: Part) -> u64 {
        self.parts[part.index()]
    }

    /// The cycles of a group.
    pub fn group(&self, group: PartGroup) -> u64 {
        group.parts().map(|part| self.of(part)).sum()
    }

    /// The sum of all parts. It differs from `total` only if the machine has a bug.
    pub fn sum(&self) -> u64 {
        self.parts.iter().sum()
    }

    /// The difference to an earlier reading of the same CPU.
    pub fn since(&self, earlier: &Ledger) -> Ledger {
        let mut parts = self.parts;
        parts.iter_mut().zip(earlier.parts).for_each(|(now, then)| *now -= then);
        Ledger { total: self.total - earlier.total, parts }
    }
}

/// Why a CPU changed its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SwitchKind {
    /// It had none.
    FromIdle,
    /// Its thread went to sleep, or ended.
    AfterSleep,
    /// A more important thread was ready.
    Preempted,
    /// Others of its thread's priority waited, and its slice was over.
    SliceOver,
    /// Its thread offered the CPU.
    GaveWay,
}

impl SwitchKind {
    /// Every kind, in the order of declaration.
    pub const ALL: [SwitchKind; 5] =
        [Self::FromIdle, Self::AfterSleep, Self::Preempted, Self::SliceOver, Self::GaveWay];

    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FromIdle => "from idle",
            Self::AfterSleep => "after a sleep",
            Self::Preempted => "preempted",
            Self::SliceOver => "slice over",
            Self::GaveWay => "gave way",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_numbers_names_and_groups_of_their_own() {
        let parts: Vec<Part> = Part::all().collect();
        assert_eq!(parts.len(), Part::COUNT);
        for (index, part) in parts.iter().enumerate() {
            assert_eq!(part.index(), index, "{part:?}");
        }
        let names: std::collections::HashSet<String> = parts.iter().map(|part| part.name()).collect();
        assert_eq!(names.len(), Part::COUNT);
        assert_eq!(PartGroup::ALL.into_iter().flat_map(PartGroup::parts).count(), Part::COUNT);
    }
}
