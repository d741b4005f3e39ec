//! What a machine did, and a hash of it in order.

use sync::{Object, Step};

/// Totals of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// A hash of every charged access to memory with its time: equal for equal runs.
    pub trace: u64,
    /// Operations on atomics; of these, read-modify-writes.
    pub operations: u64,
    /// See `operations`.
    pub read_modify_writes: u64,
    /// Lines of plain memory that were touched.
    pub touches: u64,
    /// Cache misses of atomics.
    pub atomic_misses: u64,
    /// Cache misses of plain memory, by [`Object`].
    pub object_misses: [u64; Object::ALL.len()],
    /// Cache misses of the scheduler.
    pub scheduler_misses: u64,
    /// Of all misses, those that another CPU's cache answered.
    pub transfers: u64,
    /// Steps of plain work, by [`Step`].
    pub steps: [u64; Step::ALL.len()],
    /// Cycles that system calls, wake-ups and changes of threads took.
    pub scheduler_cycles: u64,
    /// Changes of threads; of these, those by which a thread lost its CPU against its will.
    pub switches: u64,
    /// See `switches`.
    pub preemptions: u64,
    /// Threads woken.
    pub wakes: u64,
    /// Turns of spin loops. A turn may stand for many: until the word changes.
    pub spins: u64,
    /// How often the machine went on with another thread.
    pub turns: u64,
    /// Cycles that CPUs were idle.
    pub idle: u64,
}

impl Account {
    /// Cache misses of every kind.
    pub fn misses(&self) -> u64 {
        self.atomic_misses + self.object_misses.iter().sum::<u64>() + self.scheduler_misses
    }

    /// Notes an access in the trace.
    #[inline]
    pub(crate) fn note(&mut self, clock: u64, line: u64) {
        // FNV's multiplier; the rotation carries high bits down.
        self.trace = (self.trace ^ clock ^ line << 20).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(11);
    }
}
