//! The costs of operations on a machine, in cycles of its CPUs.
//!
//! Each number has its origin beside it: *paper* (stated there), *derived* (from a paper's figures), *fitted* (to
//! reproduce a paper's figure), *assumed*. Fitted and assumed numbers describe the model, not a machine.

use pktbuf::Caching;
use sync::{Object, Step, ThreadClass};

/// See the head of the file.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Clock of the CPUs, in megahertz.
    pub megahertz: u64,
    /// The clock of each CPU on a machine of several, in percent of [`Costs::megahertz`]: caches, memory and power that
    /// they share slow all of them down.
    pub together: u64,
    /// CPUs that share a socket: transfers between their caches are near.
    pub cpus_per_socket: usize,
    /// Plain work, by [`Step`].
    pub work: [u64; Step::ALL.len()],
    /// An atomic read-modify-write, or a fence, beyond its cache line.
    pub read_modify_write: u64,
    /// A cache line from memory.
    pub memory: u64,
    /// A cache line that another CPU of the socket has changed.
    pub near: u64,
    /// A cache line that a CPU of another socket has changed.
    pub far: u64,
    /// A write to a line that other caches have, too.
    pub upgrade: u64,
    /// The cost of a line of plain memory that follows another one in the same access, or in the access before, in percent of
    /// its cost alone, 0 to 100: a processor fetches such lines while it works on the first.
    pub following: u64,
    /// One turn of a spin loop.
    pub relax: u64,
    /// Entering the kernel and leaving it.
    pub system_call: u64,
    /// Waking a thread.
    pub wake: u64,
    /// What the thread that wakes another pays in addition if that one gets an idle CPU: an interrupt to it.
    pub wake_idle: u64,
    /// Looking for the sleepers of an adaptive lock that is held, beyond the line of their chain, which is locked
    /// meanwhile: a waiter does it for each holder that it waits for, and a holder if others wait for it. 0: neither does.
    pub turnstile: u64,
    /// A change of threads on a CPU.
    pub switch: u64,
    /// Lines of the thread that a wake-up accesses, and lines that a switch of threads accesses.
    pub wake_lines: usize,
    /// See `wake_lines`.
    pub switch_lines: usize,
    /// An idle CPU begins to run.
    pub idle_exit: u64,
    /// The time slice of a thread while others of its priority wait.
    pub slice: u64,
    /// Priorities by [`ThreadClass`]; 0 comes first, and [`PRIORITIES`] - 1 last.
    pub priorities: [u8; ThreadClass::ALL.len()],
    /// Sets and ways of each CPU's cache of 64-byte lines.
    pub cache: (usize, usize),
    /// An interrupt, up to the thread that it wakes.
    pub interrupt: u64,
    /// Reading a line of payload, beyond its miss.
    pub payload_line: u64,
    /// Time that a line of payload, read or written, has the memory bus to itself; 0: the bus bounds nothing. Other lines
    /// find it free.
    pub bus_line: u64,
    /// Memory that a kernel accesses in addition to Heddle's.
    pub footprint: Footprint,
    /// Where the kernel keeps free packet buffers.
    pub caching: Caching,
    /// The percentage of the lines that Heddle touches of each [`Object`] that counts: shows the effect of a leaner
    /// Heddle.
    pub extent: [usize; Object::ALL.len()],
}

/// The cache lines that the kernel of a preset uses: in total for each object and event, so that a leaner or a fatter
/// Heddle leaves the totals as they are. Lines that Heddle touches of an object count towards its total; the rest are
/// lines of that object which exist only in the simulator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Lines of each [`Object`] whenever it is used. If Heddle touches more, no lines are added.
    pub objects: [usize; Object::ALL.len()],
    /// Whether the lines of an [`Object`] are among those of [`Footprint::shared`], which then are all that is charged.
    pub within_shared: [bool; Object::ALL.len()],
    /// Lines of a socket that the application's side of the kernel uses for each of its events: descriptor, event
    /// filter, file.
    pub application: usize,
    /// Lines of a buffer that are used when its frame has been sent: buffer, page, reference counts.
    pub completion: usize,
    /// Lines that all CPUs write at each [`Step`]: statistics, allocators' zones, the protocols' queues.
    pub shared: [usize; Step::ALL.len()],
    /// Lines that a device has written, at each [`Step`]: descriptors.
    pub descriptors: [usize; Step::ALL.len()],
    /// Whether the CPU touches payload: not if the card computes checksums and data is not copied.
    pub zero_copy: bool,
}

/// The number of priorities.
pub const PRIORITIES: usize = 4;

impl Costs {
    /// Four cores of two AMD Opteron 275, as in Willmann, Rixner and Cox (2006).
    ///
    /// Paper: four cores. Derived: 247 cycles a line from memory, from UP's rates and misses at 6 and 16384 connections.
    /// Assumed: clock, cache and sockets of that processor, priorities. Fitted with a prototype of this crate, by hand
    /// and a hill climb over the paper's figure 2: the rest. No figure was held out.
    pub fn opteron_275() -> Costs {
        Costs {
            megahertz: 2200,
            together: 100,
            cpus_per_socket: 2,
            // Batch, frame, event, emit, call, message, timer, poll, application; a look-up is part of an event.
            work: [100, 1700, 1500, 2600, 900, 300, 300, 800, 1000, 0],
            read_modify_write: 20,
            memory: 247,
            near: 247,
            far: 247,
            upgrade: 150,
            following: 100,
            relax: 60,
            system_call: 400,
            wake: 2038,
            wake_idle: 0,
            turnstile: 0,
            switch: 2601,
            wake_lines: 7,
            switch_lines: 18,
            idle_exit: 2500,
            slice: 220_000,
            priorities: [2; ThreadClass::ALL.len()],
            cache: (1024, 16),
            interrupt: 1500,
            payload_line: 8,
            bus_line: 0,
            footprint: Footprint::default(),
            caching: Caching::SharedDepot,
            extent: [100; Object::ALL.len()],
        }
    }

    /// On a machine of so many CPUs: their clock as it is while all of them work ([`Costs::together`]).
    pub fn on(mut self, cpus: usize) -> Costs {
        if cpus > 1 {
            self.megahertz = (self.megahertz * self.together / 100).max(1);
            self.together = 100;
        }
        self
    }

    /// Nanoseconds in cycles.
    pub fn cycles(&self, nanos: u64) -> u64 {
        (u128::from(nanos) * u128::from(self.megahertz) / 1000) as u64
    }

    /// Cycles in nanoseconds.
    pub fn nanos(&self, cycles: u64) -> u64 {
        (u128::from(cycles) * 1000 / u128::from(self.megahertz)) as u64
    }
}
