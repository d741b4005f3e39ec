//! How much each receive thread has to do, counted where the windows of its groups end.
//!
//! A thread looks at the others once a *period* of its own entries. It is overloaded if it has not slept in that time. A thread
//! that sleeps at that moment and had few entries is idle, and takes a group from it, if the two are nearer to each other then.

use observe::Time;

/// What a thread knows of the receive threads at the end of a window. Any thread may ask.
pub trait ReceiveThreads {
    /// Whether this one sleeps now.
    fn sleeps(&self, thread: usize) -> bool;
    /// How often this one has slept.
    fn slept(&self, thread: usize) -> u64;
}

/// One receive thread.
#[derive(Clone, Debug)]
struct ThreadLoad {
    /// Entries of the groups that have their home here, ever.
    entries: u64,
    /// When its period began.
    since: Time,
    /// How often it had slept then.
    slept: u64,
    /// The entries of every receive thread then.
    then: Vec<u64>,
    /// Its entries in the period, by group.
    by_group: Vec<u64>,
}

/// The receive threads of a stack.
#[derive(Debug)]
pub struct Loads {
    threads: Vec<ThreadLoad>,
    /// Entries in a period.
    period: u64,
}

/// A group is to be moved from a busy thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relief {
    /// To this thread.
    pub to: usize,
    /// Entries of the busy thread in its period.
    pub busy: u64,
    /// Entries of the other one.
    pub idle: u64,
    /// Entries of all receive threads in a second.
    pub rate: u64,
}

impl Loads {
    /// For so many threads and groups, from `now` on; a thread looks at the others after `period` entries.
    pub fn new((threads, groups): (usize, usize), period: u64, now: Time) -> Self {
        let (then, by_group) = (vec![0; threads], vec![0; groups]);
        let first = ThreadLoad { entries: 0, since: now, slept: 0, then, by_group };
        let thread = |_| first.clone();
        Loads { threads: (0..threads).map(thread).collect(), period }
    }

    /// Entries of all receive threads, ever.
    pub fn total(&self) -> u64 {
        self.threads.iter().map(|thread| thread.entries).sum()
    }

    /// A window of a group ended at its home.
    pub fn worked(&mut self, thread: usize, group: usize, entries: u32) {
        let load = &mut self.threads[thread];
        load.entries += u64::from(entries);
        load.by_group[group] += u64::from(entries);
    }

    /// Whether `group` is to be moved from `thread`, its home, and where to. Ends a period that is over.
    pub fn relief(&mut self, thread: usize, group: usize, now: Time, known: &impl ReceiveThreads) -> Option<Relief> {
        let load = &self.threads[thread];
        let (busy, own) = (load.by_group.iter().sum::<u64>(), load.by_group[group]);
        if busy < self.period {
            return None;
        }
        let (slept, since) = (known.slept(thread), load.since);
        let overloaded = slept == load.slept;
        let idle = |other: usize| self.threads[other].entries - load.then[other];
        let takes = |other: &usize| {
            *other != thread && known.sleeps(*other) && 4 * idle(*other) <= busy && 2 * own + idle(*other) <= busy
        };
        let found = (0..self.threads.len()).find(takes).filter(|_| overloaded).map(|to| (to, idle(to)));
        let entries = self.total() - load.then.iter().sum::<u64>();
        // Perhaps the next group whose window ends is small enough.
        if overloaded && found.is_none() && busy < 2 * self.period {
            return None;
        }
        for other in 0..self.threads.len() {
            self.threads[thread].then[other] = self.threads[other].entries;
        }
        let load = &mut self.threads[thread];
        (load.since, load.slept) = (now, slept);
        load.by_group.fill(0);
        found.map(|(to, idle)| Relief { to, busy, idle, rate: rate(entries, since, now, 0) })
    }
}

/// In a second; `at_once` if no time has passed.
pub fn rate(entries: u64, since: Time, now: Time, at_once: u64) -> u64 {
    let each = (u128::from(entries) * 1_000_000_000).checked_div((now - since).as_nanos());
    each.map_or(at_once, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
}
