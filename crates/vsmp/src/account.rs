//! Totals of a machine's work, and a hash of its accesses in order.

use sync::{Object, Step};

use crate::ledger::{Ledger, Part, SwitchKind};

/// Totals of a run. Those that are sums over [`Account::cpus`] are computed when the account is read.
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
    /// Misses that another CPU's cache answered.
    pub transfers: u64,
    /// Cache misses on lines that a preset adds for memory that its kernel touches and Heddle does not.
    pub footprint_misses: u64,
    /// Steps of plain work, by [`Step`].
    pub steps: [u64; Step::ALL.len()],
    /// Cycles of each CPU, by purpose.
    pub cpus: Vec<Ledger>,
    /// Cycles of plain work, by [`Step`], without cache misses, on all CPUs.
    pub step_cycles: [u64; Step::ALL.len()],
    /// Cycles that cache misses took, of every kind.
    pub miss_cycles: u64,
    /// Cycles that CPUs spun.
    pub spin_cycles: u64,
    /// Interrupts, and cycles of their handlers.
    pub interrupts: u64,
    /// See `interrupts`.
    pub interrupt_cycles: u64,
    /// Cycles that system calls, wake-ups and changes of threads took, with their misses.
    pub scheduler_cycles: u64,
    /// Changes of threads, by [`SwitchKind`].
    pub switch_kinds: [u64; SwitchKind::ALL.len()],
    /// Switches of threads; of these, the involuntary ones.
    pub switches: u64,
    /// See `switches`.
    pub preemptions: u64,
    /// Threads woken.
    pub wakes: u64,
    /// Turns of spin loops. A turn may stand for many: until the word changes.
    pub spins: u64,
    /// How many times the machine changed to another thread.
    pub turns: u64,
    /// Cycles that CPUs were idle.
    pub idle: u64,
}

impl Account {
    /// The difference to an earlier reading of the same account.
    pub fn since(&self, earlier: &Account) -> Account {
        let less = |now: &[u64], then: &[u64]| now.iter().zip(then).map(|(now, then)| now - then).collect::<Vec<_>>();
        let mut difference = self.clone();
        difference.object_misses.copy_from_slice(&less(&self.object_misses, &earlier.object_misses));
        difference.steps.copy_from_slice(&less(&self.steps, &earlier.steps));
        difference.step_cycles.copy_from_slice(&less(&self.step_cycles, &earlier.step_cycles));
        difference.switch_kinds.copy_from_slice(&less(&self.switch_kinds, &earlier.switch_kinds));
        difference.cpus = self.cpus.iter().zip(&earlier.cpus).map(|(now, then)| now.since(then)).collect();
        for (now, then) in difference.scalars().into_iter().zip(earlier.clone().scalars()) {
            *now -= *then;
        }
        difference
    }

    /// Every count that is one number.
    fn scalars(&mut self) -> [&mut u64; 18] {
        [
            &mut self.operations,
            &mut self.read_modify_writes,
            &mut self.touches,
            &mut self.atomic_misses,
            &mut self.scheduler_misses,
            &mut self.transfers,
            &mut self.footprint_misses,
            &mut self.miss_cycles,
            &mut self.spin_cycles,
            &mut self.interrupts,
            &mut self.interrupt_cycles,
            &mut self.scheduler_cycles,
            &mut self.switches,
            &mut self.preemptions,
            &mut self.wakes,
            &mut self.spins,
            &mut self.turns,
            &mut self.idle,
        ]
    }

    /// Adds the cycles of the CPUs, and computes the sums over them.
    pub(crate) fn close(&mut self, cpus: Vec<Ledger>) {
        self.cpus = cpus;
        self.step_cycles = Step::ALL.map(|step| self.cycles(Part::Work(step)));
        let misses = |part: &Part| matches!(part, Part::Miss(_) | Part::AtomicMiss | Part::FootprintMiss);
        let missed: u64 = Part::all().filter(misses).map(|part| self.cycles(part)).sum();
        self.miss_cycles = missed + self.cycles(Part::SchedulerMiss);
        self.spin_cycles = self.cycles(Part::Spin);
        self.interrupt_cycles = self.cycles(Part::Interrupt);
        let scheduler = [Part::SystemCall, Part::Wake, Part::Switch, Part::SchedulerMiss];
        self.scheduler_cycles = scheduler.map(|part| self.cycles(part)).iter().sum();
        self.idle = self.cycles(Part::Idle);
    }

    /// Cycles of all CPUs in a part.
    pub fn cycles(&self, part: Part) -> u64 {
        self.cpus.iter().map(|cpu| cpu.of(part)).sum()
    }

    /// Cycles of all CPUs.
    pub fn total(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.total).sum()
    }

    /// Cache misses of every kind.
    pub fn misses(&self) -> u64 {
        self.atomic_misses + self.object_misses.iter().sum::<u64>() + self.scheduler_misses + self.footprint_misses
    }

    /// Adds an access to the trace.
    #[inline]
    pub(crate) fn note(&mut self, clock: u64, line: u64) {
        // FNV's multiplier; the rotation carries high bits down.
        self.trace = (self.trace ^ clock ^ line << 20).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(11);
    }
}
