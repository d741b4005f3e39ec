//! The state of a running machine: CPUs, threads, clocks, events, and the effect of memory accesses on them.
//!
//! Plain data behind `&mut`; nothing here switches threads or calls code that could. The running thread has the machine's
//! `clock`; the clocks of the other CPUs are in their entries. `horizon` is the time until which it may run before
//! another CPU or an event is due; an action that schedules an earlier event lowers it.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Weak;

use pktbuf::PlatformHeap;
use sync::lock_order::HeldLocks;
use sync::{LockKind, Object, Real, Step};

use crate::account::Account;
use crate::coroutine::{Fiber, control_block};
use crate::costs::{Costs, PRIORITIES};
use crate::ledger::{Ledger, Part, SwitchKind};
use crate::memory::{Access, Memory, Zone, line_of, lines_of};
use crate::order::{Candidate, Generator, Order};
use crate::timeline::Recorder;

/// The life of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It waits for a CPU.
    Ready,
    /// It has one.
    Running,
    /// It sleeps on the word at this address, or waits for a thread.
    Asleep(Wait),
    /// It has ended.
    Over,
}

/// The wake-up condition of a sleeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Wait {
    /// A wake at the word of this address.
    Word(usize),
    /// The end of this thread.
    End(usize),
    /// No thread masks the machine's CPU.
    Unmasked,
}

/// A virtual thread.
pub(crate) struct Thread {
    pub(crate) name: String,
    /// Taken out while it runs.
    pub(crate) fiber: Option<Fiber>,
    pub(crate) life: Life,
    pub(crate) priority: u8,
    /// Its own priority, without a lent one.
    pub(crate) own_priority: u8,
    pub(crate) pinned: Option<usize>,
    pub(crate) last_cpu: usize,
    /// The time at which it last lost a CPU. A CPU whose clock is behind takes it no earlier.
    pub(crate) reached: u64,
    /// Counts its sleeps: a timer of an earlier one finds another number.
    pub(crate) sleeps: u64,
    pub(crate) held: Rc<HeldLocks>,
    /// See [`Platform::in_callback`](sync::Platform::in_callback).
    pub(crate) in_callback: bool,
    pub(crate) panic: Option<Box<dyn Any + Send>>,
}

/// A virtual CPU.
pub(crate) struct Cpu {
    number: usize,
    pub(crate) clock: u64,
    pub(crate) thread: Option<usize>,
    pub(crate) slice_end: u64,
    pub(crate) idle_since: Option<u64>,
    /// The line that its thread spins on: it takes no turns until that is written.
    pub(crate) spins_on: Option<usize>,
    /// Counts its spins, as `sleeps` of a thread.
    pub(crate) spins: u64,
    /// Cycles, by [`Part`]. While it idles or spins, those since it began are missing.
    pub(crate) spent: [u64; Part::COUNT],
}

impl Cpu {
    fn new(number: usize) -> Cpu {
        let spent = [0; Part::COUNT];
        Cpu { number, clock: 0, thread: None, slice_end: 0, idle_since: Some(0), spins_on: None, spins: 0, spent }
    }

    /// Its cycles until `now`, or until its clock if that is further. `running`: the clock of the thread that it runs
    /// just now.
    fn ledger(&self, now: u64, running: Option<u64>) -> Ledger {
        let mut parts = self.spent;
        if let Some(clock) = running {
            return Ledger::new(clock, parts);
        }
        let waits = match (self.idle_since, self.spins_on) {
            (Some(_), _) => Part::Idle,
            (None, Some(_)) => Part::Spin,
            (None, None) => return Ledger::new(self.clock, parts),
        };
        parts[waits.index()] += now.saturating_sub(self.clock);
        Ledger::new(now.max(self.clock), parts)
    }
}

/// An event that is scheduled for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A sleep of a thread has lasted long enough.
    Timeout { thread: usize, sleep: u64 },
    /// A CPU has spun long enough.
    SpinEnds { cpu: usize, spin: u64 },
    /// An event of a device.
    Device { device: usize, what: u32 },
}

/// Hashes the numbers of lines by a multiplication, because they are not the input of an attacker (Knuth, volume 3,
/// section 6.4).
#[derive(Default)]
pub(crate) struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }
}

/// Chains of turnstiles, as in FreeBSD: a lock belongs to one by its address, and each has a lock in a line of its own.
const CHAINS: usize = 128;
const CHAIN_LINES: usize = Zone::LINES + Zone::IMAGINED - CHAINS;

/// Maximum number of lines that all CPUs write at one kind of step.
const SHARED_LINES: usize = 64;

/// The first line that all CPUs write at a step. Steps that were added later have theirs before the chains, because the
/// numbers of lines choose their places in caches: those of the others, and the figures of the presets, stay the same.
const fn first_shared(step: usize) -> usize {
    if step < FIRST_STEPS {
        Zone::LINES + step * SHARED_LINES
    } else {
        CHAIN_LINES - (Step::ALL.len() - step) * SHARED_LINES
    }
}

/// The steps of the first presets.
const FIRST_STEPS: usize = Step::Application as usize + 1;
/// Lines that exist only in the simulator end here.
const IMAGINED_END: usize = CHAIN_LINES - (Step::ALL.len() - FIRST_STEPS) * SHARED_LINES;

/// A device of the machine, with scheduled events. No thread runs while one is processed.
pub(crate) trait Occurs: Send + Sync {
    /// Processes a scheduled event, which is due now.
    fn occur(&self, what: u32);
}

/// See the head of the file.
pub(crate) struct State {
    pub(crate) costs: Costs,
    pub(crate) order: Box<dyn Order>,
    pub(crate) clock: u64,
    pub(crate) horizon: u64,
    /// The thread that runs, and its CPU; `None`: the run loop does.
    pub(crate) current: Option<usize>,
    pub(crate) cpu: usize,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) ready: [VecDeque<usize>; PRIORITIES],
    /// The thread that masks the CPU, and the depth of its masks.
    pub(crate) masked: Option<(usize, u32)>,
    /// That thread must give up the CPU when it unmasks it.
    pub(crate) preemption_due: bool,
    pub(crate) sleepers: HashMap<Wait, VecDeque<usize>>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    pub(crate) random: Generator,
    pub(crate) account: Account,
    /// Quarters of each step that have been done and are no whole step yet.
    begun: [usize; Step::ALL.len()],
    memory: Memory,
    /// The simulated extra lines of an object, by its kind and its first line.
    imagined: HashMap<u64, usize, BuildHasherDefault<LineHasher>>,
    next_imagined: usize,
    /// When each chain of turnstiles will be unlocked.
    chains_free: [u64; CHAINS],
    /// The devices.
    pub(crate) devices: Vec<Weak<dyn Occurs>>,
    /// The heap for code that is not part of the machine.
    pub(crate) outside: Rc<PlatformHeap<Real>>,
    /// The line that the running thread has read last from an atomic.
    pub(crate) last_read: Option<usize>,
    /// The CPU and the line of the last access to plain memory.
    last_touched: Option<(usize, usize)>,
    /// When the memory bus will have carried all lines that were requested.
    bus_free: u64,
    /// See [`Machine::spin_for_good`](crate::Machine::spin_for_good).
    pub(crate) spins_for_good: bool,
    /// Empty between uses; kept for its memory.
    candidates: Vec<Candidate>,
    /// The recorder, if a caller has started a recording.
    pub(crate) recorder: Option<Box<Recorder>>,
}

impl State {
    pub(crate) fn new(cpus: usize, costs: Costs, order: Box<dyn Order>, seed: u64) -> State {
        let costs = costs.on(cpus);
        State {
            memory: Memory::new(cpus, costs.cache),
            costs,
            order,
            clock: 0,
            horizon: 0,
            current: None,
            cpu: 0,
            cpus: (0..cpus).map(Cpu::new).collect(),
            threads: Vec::new(),
            ready: Default::default(),
            masked: None,
            preemption_due: false,
            sleepers: HashMap::new(),
            events: BinaryHeap::new(),
            scheduled: 0,
            imagined: HashMap::default(),
            next_imagined: first_shared(FIRST_STEPS - 1) + SHARED_LINES,
            chains_free: [0; CHAINS],
            devices: Vec::new(),
            outside: Rc::new(PlatformHeap::new(LockKind::SpinPark)),
            random: Generator::new(seed),
            account: Account::default(),
            begun: [0; Step::ALL.len()],
            last_read: None,
            last_touched: None,
            bus_free: 0,
            spins_for_good: false,
            candidates: Vec::new(),
            recorder: None,
        }
    }

    /// Schedules an event at `at`. Events of one time are processed in the order of scheduling.
    pub(crate) fn schedule(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, event)));
        self.horizon = self.horizon.min(at);
    }

    /// When the next event is.
    pub(crate) fn next_event(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn take_event(&mut self) -> Option<(u64, Event)> {
        self.events.pop().map(|Reverse((at, _, event))| (at, event))
    }

    /// The CPUs that can run.
    pub(crate) fn candidates(&mut self) -> Vec<Candidate> {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        let busy = self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.spins_on.is_none());
        candidates
            .extend(busy.filter_map(|(cpu, entry)| Some(Candidate { cpu, thread: entry.thread?, clock: entry.clock })));
        candidates
    }

    pub(crate) fn recycle(&mut self, candidates: Vec<Candidate>) {
        self.candidates = candidates;
    }

    /// The running CPU spends cycles.
    #[inline(always)]
    pub(crate) fn spend(&mut self, part: Part, cycles: u64) {
        let from = self.clock;
        self.clock += cycles;
        let cpu = &mut self.cpus[self.cpu];
        cpu.spent[part.index()] += cycles;
        if let Some(recorder) = &mut self.recorder {
            recorder.spent(self.cpu, cpu.thread, part.group(), from, from + cycles);
        }
    }

    /// Advances the clock of a CPU that does not run now to `at`, if it is behind.
    pub(crate) fn pass(&mut self, cpu: usize, part: Part, at: u64) {
        pass(&mut self.cpus[cpu], &mut self.recorder, part, at);
    }

    /// The totals so far.
    pub(crate) fn read_account(&self) -> Account {
        let running = |cpu: usize| (self.current.is_some() && cpu == self.cpu).then_some(self.clock);
        let ledger = |(cpu, entry): (usize, &Cpu)| entry.ledger(self.clock, running(cpu));
        let mut account = self.account.clone();
        account.close(self.cpus.iter().enumerate().map(ledger).collect());
        account
    }

    /// A CPU has another thread than before.
    pub(crate) fn count_switch(&mut self, kind: SwitchKind) {
        self.account.switches += 1;
        self.account.switch_kinds[kind as usize] += 1;
    }

    /// Plain work of the running thread.
    pub(crate) fn work(&mut self, step: Step, n: usize) {
        if self.current.is_some() {
            self.spend(Part::Work(step), self.costs.work[step as usize] * n as u64);
            let step = step as usize;
            self.account.steps[step] += n as u64;
            let descriptors = (self.costs.footprint.descriptors[step] * n) as u64;
            self.account.footprint_misses += descriptors;
            self.spend(Part::FootprintMiss, descriptors * self.costs.memory);
            let shared = self.costs.footprint.shared[step];
            for line in (0..n).flat_map(|_| 0..shared) {
                self.imagine(first_shared(step) + line);
            }
        }
    }

    /// A part of a step of the running thread, in quarters. Steps are counted when they are whole.
    pub(crate) fn work_in_part(&mut self, step: Step, quarters: usize) {
        if self.current.is_some() {
            self.spend(Part::Work(step), self.costs.work[step as usize] * quarters as u64 / 4);
            let begun = &mut self.begun[step as usize];
            *begun += quarters;
            self.account.steps[step as usize] += (*begun / 4) as u64;
            *begun %= 4;
        }
    }

    /// The running thread writes a simulated line without memory.
    fn imagine(&mut self, line: usize) {
        self.account.touches += 1;
        let missed = self.access(line, true, Part::FootprintMiss).is_miss();
        self.account.footprint_misses += u64::from(missed);
    }

    /// The running thread accesses simulated extra lines of an object. `kind` distinguishes those of one place.
    pub(crate) fn use_footprint(&mut self, kind: u8, address: usize, lines: usize) {
        let Some(place) = line_of(address).filter(|_| self.current.is_some() && lines > 0) else { return };
        let next = &mut self.next_imagined;
        let first = *self.imagined.entry((place as u64) << 8 | u64::from(kind)).or_insert_with(|| {
            let first = *next;
            *next += lines;
            first
        });
        assert!(self.next_imagined <= IMAGINED_END, "the footprints of too many objects");
        (first..first + lines).for_each(|line| self.imagine(line));
    }

    /// A device has written this memory.
    pub(crate) fn written_by_device(&mut self, address: usize, length: usize) {
        let Some(first) = line_of(address) else { return };
        lines_of(first, address, length).for_each(|line| self.memory.written_by_device(line));
    }

    /// The running thread handles an interrupt.
    pub(crate) fn interrupt(&mut self) {
        self.account.interrupts += 1;
        self.spend(Part::Interrupt, self.costs.interrupt);
    }

    /// The running thread accesses a line, charged to `part`; the cost has passed when this returns.
    #[inline]
    fn access(&mut self, line: usize, write: bool, part: Part) -> Access {
        self.access_at(line, write, part, 100)
    }

    /// The same for so many percent of the cost.
    #[inline]
    fn access_at(&mut self, line: usize, write: bool, part: Part, percent: u64) -> Access {
        let (clock, cpus, horizon) = (self.clock, &mut self.cpus, &mut self.horizon);
        let recorder = &mut self.recorder;
        let found = self.memory.access(self.cpu, line, write, |other| {
            if cpus[other].spins_on == Some(line) {
                stop_spinning(&mut cpus[other], recorder, clock, horizon);
            }
        });
        self.spend(part, found.cost(&self.costs, self.cpu) * percent / 100);
        self.account.transfers += u64::from(matches!(found, Access::Transfer(_)));
        found
    }

    /// An operation on an atomic at `address`. The caller has ensured that no other CPU comes first.
    #[inline]
    pub(crate) fn atomic(&mut self, address: usize, write: bool, read_modify_write: bool) {
        self.account.operations += 1;
        self.account.read_modify_writes += u64::from(read_modify_write);
        let line = line_of(address);
        if let Some(line) = line {
            let missed = self.access(line, write, Part::AtomicMiss).is_miss();
            self.account.atomic_misses += u64::from(missed);
        }
        self.last_read = line;
        if read_modify_write {
            self.spend(Part::ReadModifyWrite, self.costs.read_modify_write);
        }
        // Memory outside the arena has no line number.
        self.account.note(self.clock, line.map_or(0, |line| line as u64 + 1));
    }

    /// Plain memory of the running thread.
    pub(crate) fn touch(&mut self, object: Object, address: usize, length: usize, write: bool) {
        let Some(first) = line_of(address).filter(|_| self.current.is_some()) else { return };
        if self.costs.footprint.within_shared[object as usize] {
            return;
        }
        let lines = lines_of(first, address, length * self.costs.extent[object as usize] / 100);
        let (count, began) = (lines.len(), self.clock);
        if object == Object::Payload {
            if self.costs.footprint.zero_copy {
                return;
            }
            self.spend(Part::Payload, self.costs.payload_line * count as u64);
        }
        self.touch_lines(object, lines, write);
        if object == Object::Payload {
            self.wait_for_bus(began, count);
        }
        let total = self.costs.footprint.objects[object as usize];
        self.use_footprint(object as u8, address, total.saturating_sub(count));
        self.account.note(self.clock, first as u64 + 1);
    }

    /// Payload that the running thread reads for a checksum, whether it is copied or not.
    pub(crate) fn sum(&mut self, address: usize, length: usize) {
        let Some(first) = line_of(address).filter(|_| self.current.is_some()) else { return };
        let lines = lines_of(first, address, length);
        let (count, began) = (lines.len(), self.clock);
        self.spend(Part::Payload, self.costs.payload_line * count as u64);
        self.touch_lines(Object::Payload, lines, false);
        self.wait_for_bus(began, count);
        self.account.note(self.clock, first as u64 + 1);
    }

    fn touch_lines(&mut self, object: Object, lines: Range<usize>, write: bool) {
        let mut percent = if self.follows(lines.start) { self.costs.following } else { 100 };
        if let Some(last) = lines.clone().last() {
            self.last_touched = Some((self.cpu, last));
        }
        for line in lines {
            self.account.touches += 1;
            let missed = self.access_at(line, write, Part::Miss(object), percent).is_miss();
            self.account.object_misses[object as usize] += u64::from(missed);
            percent = self.costs.following;
        }
    }

    /// Whether a line of plain memory is the next of those that the running CPU has accessed last, as the data behind a header is.
    fn follows(&self, line: usize) -> bool {
        self.last_touched.is_some_and(|(cpu, last)| cpu == self.cpu && last + 1 == line)
    }

    /// The bus carries this many lines of payload, which the running thread has begun to use at `began`, after those of
    /// other threads.
    fn wait_for_bus(&mut self, began: u64, lines: usize) {
        self.bus_free = self.bus_free.max(began) + self.costs.bus_line * lines as u64;
        if self.costs.bus_line > 0 && self.bus_free > self.clock {
            self.spend(Part::Payload, self.bus_free - self.clock);
        }
    }

    /// Work of the scheduler on the control block of a thread, charged to the running CPU.
    pub(crate) fn schedule_work(&mut self, thread: usize, part: Part, cycles: u64, lines: usize) {
        self.spend(part, cycles);
        if let Some(first) = line_of(control_block(thread)) {
            for line in first..first + lines {
                let missed = self.access(line, true, Part::SchedulerMiss).is_miss();
                self.account.scheduler_misses += u64::from(missed);
            }
        }
    }

    /// The running thread locks the chain of a lock's turnstile when others have unlocked it, and unlocks it.
    pub(crate) fn consult_turnstile(&mut self, address: usize) {
        let chain = (address >> 8) % CHAINS;
        let waits = self.chains_free[chain].saturating_sub(self.clock);
        self.spend(Part::Turnstile, waits);
        let missed = self.access(CHAIN_LINES + chain, true, Part::SchedulerMiss).is_miss();
        self.account.scheduler_misses += u64::from(missed);
        self.spend(Part::Turnstile, self.costs.turnstile);
        self.chains_free[chain] = self.clock;
        self.account.note(self.clock, chain as u64);
    }

    /// The running CPU takes no turn until the line that its thread has read last is written, or `until`. False: there
    /// is no such line, or it has been written already.
    pub(crate) fn spin(&mut self, until: u64) -> bool {
        let cpu = self.cpu;
        let Some(line) = self.last_read.filter(|&line| self.memory.has(cpu, line)) else { return false };
        self.cpus[cpu].spins_on = Some(line);
        let spin = self.cpus[cpu].spins;
        self.schedule(until, Event::SpinEnds { cpu, spin });
        true
    }

    pub(crate) fn end_spin(&mut self, cpu: usize, at: u64) {
        if self.cpus[cpu].spins_on.is_some() {
            stop_spinning(&mut self.cpus[cpu], &mut self.recorder, at, &mut self.horizon);
        }
    }

    /// A thread has lost its CPU, or its priority has changed: threads that spin for it check again.
    pub(crate) fn end_all_spins(&mut self, at: u64) {
        (0..self.cpus.len()).for_each(|cpu| self.end_spin(cpu, at));
    }
}

/// Ends a spin.
fn stop_spinning(cpu: &mut Cpu, recorder: &mut Option<Box<Recorder>>, at: u64, horizon: &mut u64) {
    cpu.spins_on = None;
    cpu.spins += 1;
    pass(cpu, recorder, Part::Spin, at);
    *horizon = (*horizon).min(cpu.clock);
}

/// See [`State::pass`].
fn pass(cpu: &mut Cpu, recorder: &mut Option<Box<Recorder>>, part: Part, at: u64) {
    cpu.spent[part.index()] += at.saturating_sub(cpu.clock);
    if let Some(recorder) = recorder {
        recorder.spent(cpu.number, cpu.thread, part.group(), cpu.clock, at);
    }
    cpu.clock = cpu.clock.max(at);
}
