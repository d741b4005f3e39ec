//! How much each receive thread has to do, counted where the windows of its groups end.
//!
//! Each packet and each call is counted, also where a run of packets enters its group as one event: a thread with much to do gets
//! longer runs. A thread looks at the others once a *period* of these. It is overloaded if it has not slept in that time. A thread
//! that sleeps at that moment and had few of them is idle, and takes a group from it, if it has no more to do than that one then.

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
    /// Packets and calls of the groups that have their home here, ever.
    work: u64,
    /// When its period began.
    since: Time,
    /// How often it had slept then.
    slept: u64,
    /// The work of every receive thread then.
    then: Vec<u64>,
    /// Its packets and calls in the period, by group.
    by_group: Vec<u64>,
}

/// The receive threads of a stack.
#[derive(Debug)]
pub struct Loads {
    threads: Vec<ThreadLoad>,
    /// Packets and calls in a period.
    period: u64,
    /// Times that a group would have been moved if it had been smaller.
    too_large: u64,
}

/// A group is to be moved from a busy thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relief {
    /// To this thread.
    pub to: usize,
    /// Packets and calls of the busy thread in its period.
    pub busy: u64,
    /// Those of the other one.
    pub idle: u64,
    /// Those of all receive threads in a second.
    pub rate: u64,
}

impl Loads {
    /// For so many threads and groups, from `now` on; a thread looks at the others after `period` packets and calls.
    pub fn new((threads, groups): (usize, usize), period: u64, now: Time) -> Self {
        let (then, by_group) = (vec![0; threads], vec![0; groups]);
        let first = ThreadLoad { work: 0, since: now, slept: 0, then, by_group };
        let thread = |_| first.clone();
        Loads { threads: (0..threads).map(thread).collect(), period, too_large: 0 }
    }

    /// Packets and calls of all receive threads, ever.
    pub fn total(&self) -> u64 {
        self.threads.iter().map(|thread| thread.work).sum()
    }

    /// How often a thread has found that it is overloaded and another one is idle, and that its group was too large to be moved there.
    pub fn too_large(&self) -> u64 {
        self.too_large
    }

    /// The number of receive threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Packets and calls of each receive thread, ever.
    pub fn work(&self) -> Vec<u64> {
        self.threads.iter().map(|thread| thread.work).collect()
    }

    /// Whether no receive thread has had four times the work of another one since each had what `then` says.
    pub fn is_even_since(&self, then: &[u64]) -> bool {
        let since = |(thread, then): (&ThreadLoad, &u64)| thread.work - then;
        let work = || self.threads.iter().zip(then).map(since);
        work().max().unwrap_or(0) < 4 * work().min().unwrap_or(0)
    }

    /// A window of a group ended at its home, with so many packets and calls.
    pub fn worked(&mut self, thread: usize, group: usize, work: u64) {
        let load = &mut self.threads[thread];
        load.work += work;
        load.by_group[group] += work;
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
        let idle = |other: usize| self.threads[other].work - load.then[other];
        let is_idle = |other: &usize| *other != thread && known.sleeps(*other) && 4 * idle(*other) <= busy;
        let takes = |other: &usize| is_idle(other) && 2 * own + idle(*other) <= busy;
        let found = (0..self.threads.len()).find(takes).filter(|_| overloaded).map(|to| (to, idle(to)));
        let too_large = overloaded && found.is_none() && (0..self.threads.len()).any(|other| is_idle(&other));
        let all = self.total() - load.then.iter().sum::<u64>();
        self.too_large += u64::from(too_large);
        // Perhaps the next group whose window ends is small enough.
        if overloaded && found.is_none() && busy < 2 * self.period {
            return None;
        }
        for other in 0..self.threads.len() {
            self.threads[thread].then[other] = self.threads[other].work;
        }
        let load = &mut self.threads[thread];
        (load.since, load.slept) = (now, slept);
        load.by_group.fill(0);
        found.map(|(to, idle)| Relief { to, busy, idle, rate: rate(all, since, now, 0) })
    }
}

/// In a second; `at_once` if no time has passed.
pub fn rate(work: u64, since: Time, now: Time, at_once: u64) -> u64 {
    let each = (u128::from(work) * 1_000_000_000).checked_div((now - since).as_nanos());
    each.map_or(at_once, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 1000;
    const BUSY: usize = 0;
    const IDLE: usize = 1;

    /// Thread [`IDLE`] sleeps, and [`BUSY`] has slept so often.
    struct Slept(u64);

    impl ReceiveThreads for Slept {
        fn sleeps(&self, thread: usize) -> bool {
            thread == IDLE
        }

        fn slept(&self, _: usize) -> u64 {
            self.0
        }
    }

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// Two threads and three groups; so much work at [`BUSY`], by group.
    fn loads(work: [u64; 2]) -> Loads {
        let mut loads = Loads::new((2, 3), PERIOD, at(0));
        (0..2).for_each(|group| loads.worked(BUSY, group, work[group]));
        loads
    }

    fn relief(loads: &mut Loads, group: usize) -> Option<Relief> {
        loads.relief(BUSY, group, at(500), &Slept(0))
    }

    #[test]
    fn a_thread_looks_at_the_others_once_it_has_a_period_of_work() {
        let mut loads = loads([400, 599]);
        assert_eq!(relief(&mut loads, 0), None);
        loads.worked(BUSY, 1, 1);
        assert_eq!(relief(&mut loads, 0), Some(Relief { to: IDLE, busy: 1000, idle: 0, rate: 2000 }));
        assert_eq!(relief(&mut loads, 0), None, "a period begins");
    }

    /// A quarter of the busy one's work, and no more than that one has left after the move.
    #[test]
    fn a_group_moves_if_the_other_thread_has_little_to_do_and_does_not_become_the_busier_one() {
        for (idle, own, moves) in
            [(250, 375, true), (251, 374, false), (200, 400, true), (200, 401, false), (0, 500, true), (0, 501, false)]
        {
            let mut loads = loads([own, PERIOD - own]);
            loads.worked(IDLE, 2, idle);
            let found = relief(&mut loads, 0).map(|relief| (relief.to, relief.busy, relief.idle));
            assert_eq!(found, moves.then_some((IDLE, PERIOD, idle)), "{own} of {PERIOD}, {idle} there");
        }
    }

    /// The thread has slept in the first period, and not in the second.
    #[test]
    fn what_was_before_the_period_does_not_count() {
        let mut loads = loads([400, 600]);
        loads.worked(IDLE, 2, 900);
        assert_eq!(loads.relief(BUSY, 0, at(500), &Slept(1)), None);
        (0..2).for_each(|group| loads.worked(BUSY, group, 500));
        let found = loads.relief(BUSY, 0, at(750), &Slept(1));
        assert_eq!(found, Some(Relief { to: IDLE, busy: 1000, idle: 0, rate: 4000 }));
    }

    /// Not where no thread is idle, or the busy one sleeps.
    #[test]
    fn a_group_that_is_too_large_to_move_is_counted() {
        for (work, idle, slept, too_large) in
            [(501, 0, 0, true), (500, 0, 0, false), (501, 251, 0, false), (501, 0, 1, false)]
        {
            let mut loads = loads([work, PERIOD - work]);
            loads.worked(IDLE, 2, idle);
            let _ = loads.relief(BUSY, 0, at(500), &Slept(slept));
            assert_eq!(loads.too_large() == 1, too_large, "{work} of {PERIOD}, {idle} there, {slept} sleeps");
        }
    }

    /// Each group is looked at when its window ends, until a second period is over.
    #[test]
    fn a_thread_without_sleep_goes_on_to_look_for_a_group_that_is_small_enough() {
        for (large, small, moves) in [(600, 400, true), (1200, 799, true), (1200, 800, false)] {
            let mut loads = loads([large, small]);
            assert_eq!(relief(&mut loads, 0), None);
            let found = relief(&mut loads, 1).map(|relief| relief.busy);
            assert_eq!(found, moves.then_some(large + small));
        }
    }
}
