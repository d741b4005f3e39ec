//! How many flow groups there are for each receive thread.
//!
//! Groups have lines of their own, and connections of a group lie together: where all are at home, more than one for each receive
//! thread only costs misses. Where threads share them, each visit keeps the others out of a group, and more groups meet less often. So
//! there are [`FEW`] at first; [`SOME`] once some of these have ended windows elsewhere than at home where their flows arrive, because all
//! connections of a receive thread are elsewhere with its group, or once there is load that could be moved if groups were smaller;
//! [`MANY`] once most windows have ended with their groups shared; and [`FEW`] again once all groups have been at home where
//! their flows arrive for many windows in a row.
//!
//! The next wait for few is twice as long, unless they had lasted as long as the wait for them. So the number does not change to and
//! fro, and there is a bound on all changes ([`MOST_CHANGES`]).
//!
//! Kept under the lock of the decisions. A change is asked for where a window ends; a receive thread builds the architecture again in
//! its next turn (`exchange.rs`), and may find that others do not yield.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use observe::Time;

use super::decisions::Seconds;
use super::load::Loads;

/// Groups for each receive thread at first, and where all are at home. A power of two, as the others: so all flows of a group arrive by
/// one queue.
pub const FEW: usize = 1;
/// After few.
pub const SOME: usize = 16;
/// There are always [`SOME`], if changes are to wait for so many windows.
pub const NEVER: u32 = u32::MAX;
/// The part of the wait for few that ends them.
const AWAY: u32 = 32;
/// Where most are shared, unless those of all receive threads together would be more than 128.
pub const MANY: usize = 64;
/// The most groups of all receive threads together where most are shared, unless [`SOME`] for each are more: with as many, threads seldom meet, and each
/// one more makes a change take longer.
const IN_ALL: usize = 128;

/// The most changes of one stack: what is left of each group that is given up is some kilobytes.
pub const MOST_CHANGES: u32 = 32;
/// The wait for few groups, or after a refusal, is doubled so often at most.
const MOST_DOUBLINGS: u32 = 16;
/// Entries of the log that are kept.
const KEPT: usize = 64;

/// Why `adaptive` wants another number of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberReason {
    /// In so many windows in a row all groups in use were at home where their flows arrive, and no receive thread had four times
    /// the work of another one.
    AllAtHome {
        /// Of all groups together.
        windows: u32,
    },
    /// So many more windows have ended with their groups shared than at home.
    MostlyShared {
        /// Of all groups together.
        windows: u32,
    },
    /// So many more windows have ended elsewhere than at home where the flows arrive.
    Elsewhere {
        /// Of all groups that have more of them elsewhere.
        windows: u32,
    },
    /// A receive thread has not slept, another one sleeps and has a quarter of its work or less, and no group is small enough to move
    /// there.
    Load,
}

/// What became of a change of the number of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberOutcome {
    /// A receive thread makes it in its next turn.
    Asked,
    /// It was made. For so long no other thread was in the stack.
    Changed(Duration),
    /// Another thread was in the stack for a millisecond, or owned groups and did not poll. It is tried again much later, if it is still wanted.
    Refused,
}

/// A change of the number of groups of `adaptive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupNumber {
    /// When it was asked for, by the stack's clock.
    pub at: Time,
    /// Groups for each receive thread before.
    pub from: usize,
    /// And after.
    pub to: usize,
    /// Why.
    pub reason: NumberReason,
    /// What became of it.
    pub outcome: NumberOutcome,
}

impl fmt::Display for GroupNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupNumber { at, from, to, reason, outcome } = self;
        write!(f, "{} s: {from} -> {to} groups for each receive thread: ", Seconds(*at))?;
        match reason {
            NumberReason::AllAtHome { windows } => write!(f, "all were at home in {windows} windows")?,
            NumberReason::MostlyShared { windows } => write!(f, "shared in {windows} windows more than at home")?,
            NumberReason::Elsewhere { windows } => write!(f, "elsewhere in {windows} windows more than at home")?,
            NumberReason::Load => f.write_str("none is small enough to move to a thread that sleeps")?,
        }
        match outcome {
            NumberOutcome::Asked => f.write_str("; asked for"),
            NumberOutcome::Changed(pause) => write!(f, "; in {} us", pause.as_micros()),
            NumberOutcome::Refused => f.write_str("; refused: another thread did not yield"),
        }
    }
}

/// The end of a group's window.
#[derive(Clone, Copy, Debug)]
pub struct NumberWindow {
    /// The group.
    pub group: usize,
    /// Of a group that is at home where its flows arrive and stays there; the calling thread is that one.
    pub at_home: bool,
    /// Of one that is shared and stays so.
    pub shared: bool,
    /// Of one that is not, or will not be, at home where its flows arrive.
    pub elsewhere: bool,
    /// The time.
    pub now: Time,
}

/// [`MANY`] for each of so many receive threads, or fewer: a power of two.
fn many(threads: usize) -> usize {
    (1 << (IN_ALL / threads.max(1)).max(1).ilog2()).clamp(SOME, MANY)
}

/// The number of groups, and what is known about it.
#[derive(Debug)]
pub struct NumberOfGroups {
    /// For each receive thread.
    groups: usize,
    /// What a receive thread is to change it to.
    asked: Option<usize>,
    /// The first wait, in windows.
    first: u32,
    /// Windows in a row at home; since the change, if there are few groups.
    home: u32,
    /// The work of each receive thread when they began.
    then: Vec<u64>,
    /// Windows that ended shared, less those that ended at home.
    shared: u32,
    /// Of each group, if there are few: windows that ended elsewhere, less those that ended at home. Those of another group that
    /// stays at home do not make up for them.
    elsewhere: Vec<u32>,
    /// Groups that were too large to move, when there began to be few.
    too_large: u64,
    /// Times in a row that few groups did not last.
    failures: u32,
    /// Windows until it may be changed, after so many refusals in a row.
    rest: u32,
    refusals: u32,
    changes: u32,
    log: VecDeque<GroupNumber>,
}

impl NumberOfGroups {
    /// [`FEW`]; these again, or many, after `first` windows at the earliest.
    pub fn new(first: u32) -> Self {
        let (then, elsewhere, log) = (Vec::new(), Vec::new(), VecDeque::with_capacity(KEPT));
        let (home, shared, too_large, failures, rest, refusals, changes) = (0, 0, 0, 0, 0, 0, 0);
        let groups = if first == NEVER { SOME } else { FEW };
        NumberOfGroups {
            groups,
            asked: None,
            first,
            home,
            then,
            shared,
            elsewhere,
            too_large,
            failures,
            rest,
            refusals,
            changes,
            log,
        }
    }

    /// The groups are made, with new counts of their loads. Returns how many there are for each receive thread.
    pub fn begin(&mut self) -> usize {
        self.too_large = 0;
        self.forget_windows();
        self.groups()
    }

    fn groups(&self) -> usize {
        self.asked.unwrap_or(self.groups)
    }

    /// Whether those that are made are few, and begin at home.
    pub fn begins_at_home(&self) -> bool {
        self.asked == Some(FEW)
    }

    /// The changes so far, oldest first.
    pub fn log(&self) -> Vec<GroupNumber> {
        self.log.iter().copied().collect()
    }

    /// Whether a receive thread is to build the architecture again.
    pub fn is_asked_for(&self) -> bool {
        self.asked.is_some()
    }

    /// It has, and no other thread was in the stack for this time.
    pub fn is_changed(&mut self, pause: Duration) {
        self.groups = self.groups();
        self.changes += 1;
        self.refusals = 0;
        self.ends(NumberOutcome::Changed(pause));
    }

    /// It has not, because others did not yield.
    pub fn is_refused(&mut self) {
        self.refusals += 1;
        self.rest = self.wait(self.refusals);
        self.ends(NumberOutcome::Refused);
    }

    fn ends(&mut self, outcome: NumberOutcome) {
        self.asked = None;
        self.forget_windows();
        self.log.back_mut().into_iter().for_each(|last| last.outcome = outcome);
    }

    fn forget_windows(&mut self) {
        (self.home, self.shared) = (0, 0);
        self.elsewhere.clear();
    }

    fn wait(&self, doublings: u32) -> u32 {
        self.first.saturating_mul(1 << doublings.min(MOST_DOUBLINGS))
    }

    /// The window of a group ends. True: another number is asked for.
    pub fn window(&mut self, end: &NumberWindow, loads: &Loads) -> bool {
        if self.first == NEVER || self.asked.is_some() || self.changes >= MOST_CHANGES {
            return false;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return false;
        }
        let next = if self.groups == FEW { self.with_few(end, loads) } else { self.with_more(end, loads) };
        let Some((to, reason)) = next else { return false };
        self.asked = Some(to);
        if self.log.len() == KEPT {
            self.log.pop_front();
        }
        self.log.push_back(GroupNumber { at: end.now, from: self.groups, to, reason, outcome: NumberOutcome::Asked });
        true
    }

    fn with_few(&mut self, end: &NumberWindow, loads: &Loads) -> Option<(usize, NumberReason)> {
        if self.elsewhere.len() <= end.group {
            self.elsewhere.resize(end.group + 1, 0);
        }
        let of_group = &mut self.elsewhere[end.group];
        *of_group = if end.elsewhere { *of_group + 1 } else { of_group.saturating_sub(u32::from(end.at_home)) };
        // One says little: in the first window of a group its connections are opened.
        let windows = self.elsewhere.iter().filter(|windows| **windows > 1).sum();
        let reason = if windows >= (self.first / AWAY).max(1) {
            NumberReason::Elsewhere { windows }
        } else if loads.too_large() > self.too_large {
            NumberReason::Load
        } else {
            self.home = self.home.saturating_add(1);
            return None;
        };
        self.failures = if self.home >= self.wait(self.failures) { 1 } else { self.failures + 1 };
        Some((SOME, reason))
    }

    fn with_more(&mut self, end: &NumberWindow, loads: &Loads) -> Option<(usize, NumberReason)> {
        if !end.at_home {
            self.home = 0;
            self.shared += u32::from(end.shared);
            let windows = self.shared;
            let many = many(loads.threads());
            let more = self.groups < many && windows >= self.first;
            return more.then_some((many, NumberReason::MostlyShared { windows }));
        }
        if self.home == 0 {
            self.then = loads.work();
        }
        self.home += 1;
        self.shared = self.shared.saturating_sub(1);
        if self.home < self.wait(self.failures) {
            return None;
        }
        let windows = std::mem::take(&mut self.home);
        self.too_large = loads.too_large();
        loads.is_even_since(&self.then).then_some((FEW, NumberReason::AllAtHome { windows }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::ReceiveThreads;
    use super::*;

    const WAIT: u32 = 2 * AWAY;
    const NOW: Time = Time::from_nanos(1_000_002_003);
    const HOME: NumberWindow = NumberWindow { group: 1, at_home: true, shared: false, elsewhere: false, now: NOW };
    const SHARED: NumberWindow = NumberWindow { group: 1, at_home: false, shared: true, elsewhere: true, now: NOW };
    /// Of a group the calls of which are made elsewhere: its home is not where its flows arrive.
    const AWAY_FROM_HOME: NumberWindow =
        NumberWindow { group: 1, at_home: false, shared: false, elsewhere: true, now: NOW };

    struct Known {
        numbers: NumberOfGroups,
        loads: Loads,
    }

    impl Known {
        fn new() -> Known {
            Known { numbers: NumberOfGroups::new(WAIT), loads: Loads::new((2, 4), 1000, Time::from_nanos(0)) }
        }

        /// With [`SOME`] groups, because few were not at home.
        fn with_some() -> Known {
            let mut known = Known::new();
            assert_eq!((known.until_asked(&SHARED), known.changed()), (WAIT / AWAY, SOME));
            known.numbers.failures = 0;
            known
        }

        /// Both threads have work, and a window ends.
        fn window(&mut self, end: &NumberWindow) -> bool {
            [0, 1].into_iter().for_each(|thread| self.loads.worked(thread, thread, 100));
            self.numbers.window(end, &self.loads)
        }

        /// Windows until another number is asked for, with those.
        fn until_asked(&mut self, end: &NumberWindow) -> u32 {
            1 + (0..WAIT << 14).take_while(|_| !self.window(end)).count() as u32
        }

        fn changed(&mut self) -> usize {
            self.numbers.is_changed(Duration::from_micros(250));
            self.numbers.groups
        }
    }

    #[test]
    fn there_are_few_at_first_and_while_all_are_at_home() {
        let mut known = Known::new();
        assert_eq!(known.numbers.groups(), FEW);
        assert!((0..4 * WAIT).all(|_| !known.window(&HOME)), "there is nothing to change");
        assert!(!known.window(&AWAY_FROM_HOME) && !known.window(&HOME), "a window elsewhere now and then");
        for end in [SHARED, AWAY_FROM_HOME] {
            let mut known = Known::new();
            assert_eq!((known.until_asked(&end), known.changed()), (WAIT / AWAY, SOME));
            let windows = WAIT / AWAY;
            assert_eq!(known.numbers.log()[0].reason, NumberReason::Elsewhere { windows });
        }
    }

    /// The group of one receive thread is at home, and the other receive thread's is not.
    #[test]
    fn there_are_some_once_one_of_few_is_elsewhere() {
        let mut known = Known::new();
        let elsewhere = |window: &u32| {
            assert!((0..window % 4).all(|_| !known.window(&NumberWindow { group: 0, ..HOME })));
            known.window(&SHARED)
        };
        assert_eq!((1..WAIT).find(elsewhere), Some(WAIT / AWAY));
    }

    /// Of as many receive threads as windows elsewhere ask for more groups.
    #[test]
    fn the_first_window_of_each_group_does_not_count() {
        let mut known = Known::new();
        let of = |group| NumberWindow { group, ..SHARED };
        assert!((0..8 * WAIT as usize).all(|group| !known.window(&of(group))));
        let groups = (WAIT / AWAY / 2) as usize;
        assert_eq!((0..).find(|group| known.window(&of(*group))), Some(groups - 1), "two of each");
    }

    #[test]
    fn there_are_few_again_once_all_have_been_at_home_for_a_while() {
        let mut known = Known::with_some();
        assert!((1..WAIT).all(|_| !known.window(&HOME)));
        assert!(!known.window(&AWAY_FROM_HOME), "one is not at home where its flows arrive");
        assert_eq!(known.until_asked(&HOME), WAIT);
        assert!(known.numbers.begins_at_home());
        assert_eq!(known.changed(), FEW);
    }

    /// A group could be moved to the other thread.
    #[test]
    fn there_are_not_few_where_one_thread_has_four_times_the_work_of_another_one() {
        for (work, few) in [(399, true), (400, false)] {
            let mut known = Known::with_some();
            known.numbers.window(&HOME, &known.loads);
            known.loads.worked(0, 0, work);
            known.loads.worked(1, 1, 100);
            (2..WAIT).for_each(|_| _ = known.numbers.window(&HOME, &known.loads));
            assert_eq!(known.numbers.window(&HOME, &known.loads), few, "{work} and 100");
        }
    }

    /// Its only group is too large to move to the other thread, which sleeps.
    #[test]
    fn there_are_not_few_where_load_is_to_be_moved() {
        let mut known = Known::new();
        assert!(!known.window(&HOME));
        known.loads.worked(0, 0, 5000);
        assert_eq!(known.loads.relief(0, 0, NOW, &Asleep), None);
        assert!(known.window(&HOME));
        assert_eq!((known.numbers.log()[0].reason, known.changed()), (NumberReason::Load, SOME));
    }

    /// Thread 1 sleeps, and none has slept before.
    struct Asleep;

    impl ReceiveThreads for Asleep {
        fn sleeps(&self, thread: usize) -> bool {
            thread == 1
        }

        fn slept(&self, _: usize) -> u64 {
            0
        }
    }

    /// Twice the wait after each time that few did not last; as after the first of them, if they had lasted as long as the wait for
    /// them. And not for ever.
    #[test]
    fn few_are_tried_later_and_later() {
        let mut known = Known::with_some();
        let tries = |known: &mut Known, stay: u32| {
            let waited = known.until_asked(&HOME);
            known.changed();
            (0..stay).for_each(|_| assert!(!known.window(&HOME)));
            known.until_asked(&SHARED);
            known.changed();
            waited / WAIT
        };
        assert_eq!([0, 0, 0, 8 * WAIT, 0].map(|stay| tries(&mut known, stay)), [1, 2, 4, 8, 2]);
        while known.numbers.changes < MOST_CHANGES {
            tries(&mut known, 8 * WAIT);
        }
        assert!((0..WAIT << 8).all(|_| !known.window(&HOME)));
    }

    /// Those at home count against the others.
    #[test]
    fn there_are_many_once_most_windows_end_shared() {
        let mut known = Known::with_some();
        assert!((0..4 * WAIT).all(|window| !known.window(if window % 2 == 0 { &SHARED } else { &HOME })));
        let asked = known.until_asked(&SHARED);
        assert!(asked == WAIT && known.changed() == MANY, "{asked}");
        assert!((0..4 * WAIT).all(|_| !known.window(&SHARED)), "there are no more");
        assert_eq!((known.until_asked(&HOME), known.changed()), (WAIT, FEW));
    }

    #[test]
    fn many_threads_do_not_have_many_groups_each() {
        let groups = [0, 1, 2, 3, 4, 7, 8, 64, 256].map(|threads| (threads, many(threads)));
        assert_eq!(groups, [(0, 64), (1, 64), (2, 64), (3, 32), (4, 32), (7, 16), (8, 16), (64, 16), (256, 16)]);
        let mut known = Known::with_some();
        known.loads = Loads::new((8, 128), 1000, Time::from_nanos(0));
        assert!((0..4 * WAIT).all(|_| !known.window(&SHARED)), "there are as many already");
    }

    /// And the number stays as it is.
    #[test]
    fn a_change_is_tried_again_much_later_if_others_do_not_yield() {
        let mut known = Known::with_some();
        for wait in [0, 2, 4, 8] {
            assert_eq!(known.until_asked(&HOME), (wait + 1) * WAIT);
            assert!(known.numbers.is_asked_for() && !known.window(&HOME), "it is asked for once");
            known.numbers.is_refused();
            assert_eq!((known.numbers.groups(), known.numbers.is_asked_for()), (SOME, false));
        }
        assert!(known.numbers.log()[1..].iter().all(|change| change.outcome == NumberOutcome::Refused));
    }

    /// A user has switched to the same architecture: loads are counted from nothing.
    #[test]
    fn windows_before_the_groups_are_made_do_not_count() {
        let mut known = Known::with_some();
        (1..WAIT).for_each(|_| assert!(!known.window(&HOME)));
        known.loads = Known::new().loads;
        assert_eq!(known.numbers.begin(), SOME);
        assert_eq!(known.until_asked(&HOME), WAIT);
    }

    #[test]
    fn the_number_may_be_fixed() {
        let mut known = Known { numbers: NumberOfGroups::new(NEVER), ..Known::new() };
        assert!((0..4 * WAIT).all(|_| !known.window(&SHARED)) && (0..4 * WAIT).all(|_| !known.window(&HOME)));
        assert_eq!(known.numbers.groups(), SOME);
    }

    #[test]
    fn a_change_says_why() {
        let mut known = Known::with_some();
        known.until_asked(&HOME);
        let said: Vec<String> = known.numbers.log().iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "1.000002 s: 1 -> 16 groups for each receive thread: elsewhere in 2 windows more than at home; in 250 us",
                "1.000002 s: 16 -> 1 groups for each receive thread: all were at home in 64 windows; asked for"
            ]
        );
    }
}
