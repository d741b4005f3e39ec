//! What a flow group counts, and what follows from it.
//!
//! A group counts its entries in *windows*. The thread that ends one compares what exclusion cost in it with an estimate for
//! the other way, and changes the group's place if that is half or less. What it costs to share a group depends on how often another
//! thread comes than the one before. A home costs others a message for each frame; so it is at the thread that makes all calls. A call that had to wait for the home of the group ends the
//! window at once, and the stay there: the next call may wait as long. A change is on trial: the first window after it is not
//! measured, because the group changes hands in it; if the second costs more than before the change, the former place is restored, and the group
//! rests for a number of windows that doubles with each such failure, as it does where others soon use a group that has gone home. A change by load is judged by the packets and calls of all receive threads in a
//! second, over a period.
//!
//! Windows end after a number of entries: there is no timer, and no clock is read before. They are short at first, and each
//! that changes nothing doubles the next.
//!
//! Called by the thread that uses the group; nothing here is shared.

use observe::Time;

use super::decisions::{
    AWAITED, DecisionLog, DecisionMeasure, DecisionOutcome, DecisionReason, GroupDecision, GroupPlace, HANDOFF,
    WindowCounts,
};
use super::load::{self, Loads, ReceiveThreads};
use super::number::{NumberOfGroups, NumberWindow};
use super::queues::QueueUse;
use crate::arch::polled::{CellUse, UseCause};

/// The lengths of windows and periods, in entries.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// The first window, and those from a change on until it is judged.
    pub first: u32,
    /// The longest window.
    pub longest: u32,
    /// Packets and calls of a receive thread after which it looks at the load of the others.
    pub period: u64,
    /// Windows in a row of groups at home, after which their thread claims its transmit queues.
    pub alone: u32,
    /// Frames that other threads leave there before the claim ends.
    pub mail: usize,
    /// Windows of all groups, at home or shared, after which there are to be fewer or more groups.
    pub settled: u32,
}

/// Stands for the threads whose entries are handed over. It differs from the value that stands for a thread without an index.
const OTHERS: usize = usize::MAX - 1;
/// The most windows for which a group rests, as a power of two.
const LONGEST_REST: u32 = 8;
/// Windows at home after which it was right to go there, although other threads use the group now.
const LONG_STAY: u32 = 16;

/// A change that has not been measured yet.
#[derive(Debug)]
struct Trial {
    number: u64,
    from: GroupPlace,
    before: DecisionMeasure,
    /// The group has changed hands: since when, and the packets and calls of all receive threads then.
    settled: Option<(Time, u64)>,
}

/// The counts of one group. See the head of this file. What each entry changes is here, in a few words.
#[derive(Debug, Default)]
#[repr(C)]
pub struct GroupCounts {
    /// Entries until the window ends.
    left: u32,
    /// Entries in this window by threads that owned the group for this one alone.
    visits: u32,
    /// What the entries of `past.user` since the last turn would cost, if they were handed over. No vote yet.
    unvoted: u64,
    /// Packets and calls in this window: an entry may bring a run of packets.
    work: u64,
    /// The thread of the last entry.
    last: usize,
    past: Box<GroupPast>,
}

/// What changes where another thread has an entry, or a window ends.
#[derive(Debug, Default)]
struct GroupPast {
    /// All but the number of entries, which is known where the window ends, and of visits.
    counted: WindowCounts,
    /// The thread that makes the entries since the last turn.
    user: usize,
    /// The thread that has more than half of the entries, each by what it would cost to hand it over, if one has: Boyer and
    /// Moore's vote.
    candidate: usize,
    votes: u64,
    /// What all entries would cost, if they were handed over.
    weight: u64,
    /// Entries in this window, unless it ends early; 0: none has begun.
    length: u32,
    trial: Option<Trial>,
    /// Windows until the next change.
    rest: u32,
    /// Changes in a row that were wrong at once, or soon.
    failures: u32,
    /// Windows since the last change.
    stay: u32,
    /// The receive thread from which the group was moved by load, and how often that had slept at the end of the last window.
    came_from: Option<(usize, u64)>,
}

/// Where a window ends.
#[derive(Debug)]
pub struct WindowEnd<'a, T> {
    /// The group.
    pub group: usize,
    /// Its place.
    pub place: GroupPlace,
    /// The time.
    pub now: Time,
    /// The calling thread.
    pub caller: usize,
    /// The receive thread whose work the calling thread does.
    pub here: Option<usize>,
    /// The receive threads.
    pub known: &'a T,
}

/// What all groups share.
#[derive(Debug)]
pub struct Book {
    /// The load of receive threads.
    pub loads: Loads,
    /// The decisions so far.
    pub log: DecisionLog,
    /// The transmit queues, by receive thread.
    pub queues: Box<[QueueUse]>,
    /// How many groups there are.
    pub number: NumberOfGroups,
}

impl Book {
    /// Groups are made at `now`, for so many receive threads. Returns their number.
    pub fn begin(&mut self, threads: usize, period: u64, now: Time) -> usize {
        let groups = self.number.begin() * threads.max(1);
        self.loads = Loads::new((threads, groups), period, now);
        self.log.end_trials();
        groups
    }

    /// The window of a group ends. True: there are to be fewer or more of them.
    pub fn ends(&mut self, window: &NumberWindow) -> bool {
        self.number.window(window, &self.loads)
    }
}

impl GroupCounts {
    /// Counts an entry by `caller`. True: the window is over, and [`GroupCounts::end`] is to be called.
    #[inline(always)]
    pub fn add(&mut self, how: CellUse, caller: usize) -> bool {
        let cause = match how {
            CellUse::Message { waiting, packets, awaited } => return self.add_message(waiting, packets, awaited),
            CellUse::Look => return false,
            CellUse::Visit(cause) => {
                self.visits += 1;
                cause
            }
            CellUse::Owner(cause) => cause,
        };
        if caller != self.last {
            self.turn(caller);
            self.past.user = caller;
        }
        let (work, weight) = match cause {
            UseCause::Call => (1, AWAITED),
            UseCause::Arrival { packets } => (packets as u64, HANDOFF),
        };
        self.work += work;
        self.unvoted += weight;
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// [`GroupCounts::add`] for what was handed over. A call that was waited for ends the window.
    #[inline(never)]
    fn add_message(&mut self, waiting: usize, packets: usize, awaited: bool) -> bool {
        self.past.counted.handoffs += 1;
        self.past.counted.awaited += u32::from(awaited);
        self.past.counted.longest = self.past.counted.longest.max(u32::try_from(waiting).unwrap_or(u32::MAX));
        if self.last != OTHERS {
            self.turn(OTHERS);
        }
        self.work += packets as u64;
        self.left = self.left.saturating_sub(1);
        self.left == 0 || awaited
    }

    /// Another thread than that of the last entry has one.
    #[inline(never)]
    fn turn(&mut self, to: usize) {
        self.vote();
        self.past.counted.turns += 1;
        self.last = to;
    }

    /// The votes of `user` since the last turn, all at once: the outcome is the same.
    fn vote(&mut self) {
        let (caller, weight) = (self.past.user, std::mem::take(&mut self.unvoted));
        self.past.weight += weight;
        if caller == self.past.candidate {
            self.past.votes += weight;
        } else if self.past.votes < weight {
            (self.past.candidate, self.past.votes) = (caller, weight - self.past.votes);
        } else {
            self.past.votes -= weight;
        }
    }

    /// Whether a window has begun: the first entry ends none.
    pub fn has_begun(&self) -> bool {
        self.past.length != 0
    }

    /// Ends the window. Returns another place for the group, if it is to have one.
    pub fn end(
        &mut self,
        lengths: &Lengths,
        end: &WindowEnd<'_, impl ReceiveThreads>,
        book: &mut Book,
    ) -> Option<GroupPlace> {
        if self.past.length == 0 {
            (self.past.length, self.left) = (lengths.first, lengths.first - 1);
            return None;
        }
        self.vote();
        let (mut counts, work) = (std::mem::take(&mut self.past.counted), std::mem::take(&mut self.work));
        (counts.entries, counts.visits) = (self.past.length - self.left, std::mem::take(&mut self.visits));
        // Entries that were handed over are nobody's. Of the others the votes are what the candidate has more than the rest.
        counts.by_others = (std::mem::take(&mut self.past.weight) - std::mem::take(&mut self.past.votes)) / 2;
        if let (GroupPlace::Home(home), Some(here)) = (end.place, end.here)
            && home == here
        {
            book.loads.worked(here, end.group, work);
        }
        let next = if self.past.trial.is_some() {
            self.conclude(lengths, &counts, end, book)
        } else if self.past.rest > 0 {
            self.past.rest -= 1;
            None
        } else {
            self.decide(&counts, end, book)
        };
        let settles = self.past.trial.is_some() || next.is_some();
        self.past.stay = if next.is_some() { 0 } else { self.past.stay.saturating_add(1) };
        self.past.length = if settles { lengths.first } else { (2 * self.past.length).min(lengths.longest) };
        self.left = self.past.length;
        next
    }

    /// A window after a change.
    fn conclude(
        &mut self,
        lengths: &Lengths,
        counts: &WindowCounts,
        end: &WindowEnd<'_, impl ReceiveThreads>,
        book: &mut Book,
    ) -> Option<GroupPlace> {
        let mut trial = self.past.trial.take()?;
        let Some((since, total)) = trial.settled else {
            trial.settled = Some((end.now, book.loads.total()));
            self.past.trial = Some(trial);
            return None;
        };
        let after = match trial.before {
            DecisionMeasure::Cost(_) => DecisionMeasure::Cost(counts.cost_of_entry()),
            // They are counted where windows end: a few windows would say nothing.
            DecisionMeasure::Rate(_) if book.loads.total() - total < lengths.period => {
                self.past.trial = Some(trial);
                return None;
            }
            DecisionMeasure::Rate(_) => {
                DecisionMeasure::Rate(load::rate(book.loads.total() - total, since, end.now, u64::MAX))
            }
        };
        if !after.is_worse_than(trial.before) {
            book.log.conclude(trial.number, DecisionOutcome::Kept(after));
            if matches!(after, DecisionMeasure::Rate(_)) {
                self.past.failures = 0;
            }
            return None;
        }
        book.log.conclude(trial.number, DecisionOutcome::Reverted(after));
        self.fail(self.past.failures);
        self.past.came_from = None;
        Some(trial.from)
    }

    /// The last change was wrong, after so many others: the group rests, twice as long as the last time.
    fn fail(&mut self, before: u32) {
        self.past.failures = before + 1;
        self.past.rest = 1 << self.past.failures.min(LONGEST_REST);
    }

    fn decide(
        &mut self,
        counts: &WindowCounts,
        end: &WindowEnd<'_, impl ReceiveThreads>,
        book: &mut Book,
    ) -> Option<GroupPlace> {
        let cost = DecisionMeasure::Cost(counts.cost_of_entry());
        let (to, reason, before) = match (end.place, end.here) {
            (GroupPlace::Home(home), Some(here)) if home == here => {
                if let Some((busy, slept)) = self.past.came_from {
                    let now = end.known.slept(busy);
                    self.past.came_from = Some((busy, now));
                    if now == slept {
                        return None;
                    }
                    self.past.came_from = None;
                    (GroupPlace::Home(busy), DecisionReason::LoadIsOver, cost)
                } else if counts.cost() >= 2 * counts.cost_if_shared() {
                    self.fail(if self.past.stay < LONG_STAY { self.past.failures } else { 0 });
                    (GroupPlace::Shared, DecisionReason::OtherUsers, cost)
                } else {
                    let relief = book.loads.relief(here, end.group, end.now, end.known)?;
                    self.past.came_from = Some((here, end.known.slept(here)));
                    let reason = DecisionReason::Load { busy: relief.busy, idle: relief.idle };
                    (GroupPlace::Home(relief.to), reason, DecisionMeasure::Rate(relief.rate))
                }
            }
            // Shared; or its home does not poll, and all threads visit it.
            (_, Some(here)) if self.past.candidate == end.caller && 2 * counts.cost_at_home() <= counts.cost() => {
                (GroupPlace::Home(here), DecisionReason::OneUser, cost)
            }
            _ => return None,
        };
        let WindowEnd { group, place: from, now: at, .. } = *end;
        let outcome = DecisionOutcome::OnTrial;
        let decision = GroupDecision { number: 0, at, group, from, to, reason, counts: *counts, before, outcome };
        let number = book.log.add(decision);
        self.past.trial = Some(Trial { number, from, before, settled: None });
        Some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that have never slept. The one of this number sleeps now.
    struct Asleep(Option<usize>);

    impl ReceiveThreads for Asleep {
        fn sleeps(&self, thread: usize) -> bool {
            self.0 == Some(thread)
        }

        fn slept(&self, _: usize) -> u64 {
            0
        }
    }

    const LENGTHS: Lengths = Lengths { first: 4, longest: 8, period: 1000, alone: 4, mail: 4, settled: 4 };
    /// Of receive thread 0.
    const RECEIVER: usize = 7;
    /// Of no receive thread.
    const OTHER: usize = 8;
    /// Of receive thread 1.
    const SECOND: usize = 9;

    /// A group, the receive threads, and the log.
    struct Group {
        counts: GroupCounts,
        place: GroupPlace,
        book: Book,
        windows: usize,
        known: Asleep,
    }

    impl Group {
        fn new() -> Group {
            let loads = Loads::new((2, 2), LENGTHS.period, Time::from_nanos(0));
            let book =
                Book { loads, log: DecisionLog::default(), queues: Box::default(), number: NumberOfGroups::new(4) };
            let (counts, place, known) = (GroupCounts::default(), GroupPlace::Shared, Asleep(None));
            Group { counts, place, book, windows: 0, known }
        }

        fn entry(&mut self, how: CellUse, caller: usize) {
            if !self.counts.add(how, caller) {
                return;
            }
            let here = [RECEIVER, SECOND].iter().position(|receiver| *receiver == caller);
            let (place, now, known) = (self.place, Time::from_nanos(1), &self.known);
            let end = WindowEnd { group: 0, place, now, caller, here, known };
            self.windows += 1;
            self.place = self.counts.end(&LENGTHS, &end, &mut self.book).unwrap_or(self.place);
        }

        /// Entries until a window ends. Returns their number.
        fn window(&mut self, how: CellUse, caller: usize) -> usize {
            let before = self.windows;
            let until = |_: &usize| {
                self.entry(how, caller);
                self.windows > before
            };
            (1..).find(until).expect("windows end")
        }

        /// The receive thread has all entries, until the group is at home.
        fn goes_home(&mut self) {
            while self.place == GroupPlace::Shared {
                self.entry(CellUse::Visit(UseCause::Call), RECEIVER);
            }
        }

        /// As [`Group::goes_home`]; and then others have the entries, until it is not. Returns the number of windows that the first took.
        fn goes_home_wrongly(&mut self) -> usize {
            let before = self.windows;
            self.goes_home();
            let windows = self.windows - before;
            while self.place != GroupPlace::Shared {
                self.entry(CellUse::Message { waiting: 1, packets: 1, awaited: false }, RECEIVER);
            }
            windows
        }
    }

    /// Two windows of rest after the first failure, four after the second, at last 256: it does not change hands for ever.
    #[test]
    fn a_group_rests_twice_as_long_after_each_failure() {
        let mut group = Group::new();
        // The first entry begins the first window.
        assert_eq!(group.goes_home_wrongly(), 2);
        for rest in [2, 4, 8, 16, 32, 64, 128, 256, 256] {
            assert_eq!(group.goes_home_wrongly(), rest + 1);
        }
        let log = group.book.log.all();
        assert!(log.iter().all(|decision| matches!(decision.outcome, DecisionOutcome::Reverted(_))), "{log:?}");
    }

    /// A long stay ends the series of failures; one that others soon end is one of them, although it was kept.
    #[test]
    fn a_long_stay_makes_good_the_failures_before_it() {
        for (windows, failures) in [(15, 4), (16, 1)] {
            let mut group = Group::new();
            (0..3).for_each(|_| _ = group.goes_home_wrongly());
            group.goes_home();
            (0..windows).for_each(|_| _ = group.window(CellUse::Owner(UseCause::Call), RECEIVER));
            let kept = group.book.log.all().pop().expect("a decision");
            assert_eq!(kept.outcome, DecisionOutcome::Kept(DecisionMeasure::Cost(0)));
            group.entry(CellUse::Message { waiting: 1, packets: 1, awaited: true }, RECEIVER);
            assert_eq!((group.place, group.counts.past.failures), (GroupPlace::Shared, failures));
        }
    }

    /// The caller has lost a turn of the receive thread: the window ends at once, and the group with it leaves its home.
    #[test]
    fn one_call_that_waited_for_the_home_ends_it() {
        let mut group = Group::new();
        group.goes_home();
        (0..100).for_each(|_| group.entry(CellUse::Owner(UseCause::Call), RECEIVER));
        let before = group.windows;
        group.entry(CellUse::Message { waiting: 1, packets: 1, awaited: true }, RECEIVER);
        assert_eq!((group.place, group.windows), (GroupPlace::Shared, before + 1));
        let left = group.book.log.all().pop().expect("a decision");
        assert_eq!((left.reason, left.counts.awaited), (DecisionReason::OtherUsers, 1));
    }

    /// A run of packets is one entry, and moves the lines of the group once; but its receive thread has had all of its packets.
    #[test]
    fn a_run_is_one_entry_and_as_much_work_as_its_packets() {
        let mut group = Group::new();
        group.goes_home();
        let (before, run) = (group.book.loads.total(), UseCause::Arrival { packets: 5 });
        let entries = group.window(CellUse::Owner(run), RECEIVER);
        assert_eq!(group.book.loads.total() - before, 5 * entries as u64);
        let (before, message) = (group.book.loads.total(), CellUse::Message { waiting: 1, packets: 3, awaited: false });
        let entries = group.window(message, RECEIVER);
        assert_eq!(group.book.loads.total() - before, 3 * entries as u64);
    }

    /// What only reads counters is no use of the group.
    #[test]
    fn a_look_does_not_count() {
        let mut group = Group::new();
        (0..1000).for_each(|_| group.entry(CellUse::Look, RECEIVER));
        assert_eq!((group.windows, group.counts.past.counted), (0, WindowCounts::default()));
    }

    /// So many rounds: frames come by thread [`OTHER`], and two calls follow, by the receive thread and by `second`.
    fn rounds(group: &mut Group, rounds: usize, frames: usize, second: usize) {
        let by = |home: GroupPlace, cause, caller| match (home, cause) {
            (GroupPlace::Shared, _) => CellUse::Visit(cause),
            _ if caller == RECEIVER => CellUse::Owner(cause),
            (_, cause) => CellUse::Message { waiting: 1, packets: 1, awaited: cause == UseCause::Call },
        };
        for _ in 0..rounds {
            for (times, cause, caller) in [
                (frames, UseCause::Arrival { packets: 1 }, OTHER),
                (1, UseCause::Call, RECEIVER),
                (1, UseCause::Call, second),
            ] {
                for _ in 0..times {
                    let how = by(group.place, cause, caller);
                    // What was handed over is run by the home.
                    group.entry(how, if matches!(how, CellUse::Message { .. }) { RECEIVER } else { caller });
                }
            }
        }
    }

    /// A frame that is handed over costs no more than two changes of hands, and nobody waits for it: the group goes home to the
    /// thread that calls, and stays there.
    #[test]
    fn a_group_goes_home_to_the_thread_that_calls() {
        let mut group = Group::new();
        rounds(&mut group, 1000, 1, RECEIVER);
        let log = group.book.log.all();
        let [decision] = &*log else { panic!("one decision: {log:?}") };
        assert_eq!((decision.to, decision.reason), (GroupPlace::Home(0), DecisionReason::OneUser));
        assert!(matches!(decision.outcome, DecisionOutcome::Kept(_)), "{decision}");
    }

    /// Two frames and two calls are four visits with two turns, and the messages for the frames alone cost more than half of these. Eight
    /// frames and two calls are two turns, too, and the messages cost more than all visits.
    #[test]
    fn a_group_to_which_frames_come_in_batches_stays_shared() {
        for frames in [2, 8] {
            let mut group = Group::new();
            rounds(&mut group, 1000, frames, RECEIVER);
            assert_eq!(group.book.log.all(), []);
        }
    }

    /// Neither has more than half of the entries.
    #[test]
    fn a_group_with_as_many_frames_from_two_threads_stays_shared() {
        for threads in [[OTHER, RECEIVER], [RECEIVER, OTHER]] {
            let mut group = Group::new();
            for caller in threads.repeat(1000) {
                group.entry(CellUse::Visit(UseCause::Arrival { packets: 1 }), caller);
            }
            assert_eq!(group.book.log.all(), []);
        }
    }

    /// Its home has not taken it over yet, or has ended: all threads visit it.
    #[test]
    fn a_group_goes_from_a_home_that_does_not_poll_to_the_thread_that_calls() {
        let mut group = Group::new();
        group.place = GroupPlace::Home(1);
        (0..LENGTHS.first).for_each(|_| group.entry(CellUse::Visit(UseCause::Call), RECEIVER));
        let decision = group.book.log.all().pop().expect("a decision");
        assert_eq!((decision.from, decision.to), (GroupPlace::Home(1), GroupPlace::Home(0)));
        assert_eq!(decision.reason, DecisionReason::OneUser);
    }

    /// In a window of 8 entries, the last of which are handed over: visits would cost 8, and a turn.
    #[test]
    fn a_group_is_shared_if_messages_cost_twice_what_visits_would() {
        for (messages, place) in [(2, GroupPlace::Home(0)), (3, GroupPlace::Shared)] {
            let mut group = Group::new();
            group.goes_home();
            while group.window(CellUse::Owner(UseCause::Call), RECEIVER) < 8 {}
            (messages..8).for_each(|_| group.entry(CellUse::Owner(UseCause::Call), RECEIVER));
            (0..messages)
                .for_each(|_| group.entry(CellUse::Message { waiting: 1, packets: 1, awaited: false }, RECEIVER));
            assert_eq!(group.place, place, "{messages} messages");
        }
    }

    /// Each window in which nothing changes doubles the next one. Those from a change on until it is judged are short, as is the
    /// one after a change was undone.
    #[test]
    fn windows_are_short_after_a_change_and_double_where_nothing_changes() {
        let (visit, owner) = (CellUse::Visit(UseCause::Call), CellUse::Owner(UseCause::Call));
        let mut group = Group::new();
        group.entry(visit, RECEIVER);
        assert_eq!((group.window(visit, RECEIVER) + 1, group.place), (4, GroupPlace::Home(0)));
        assert_eq!([(); 4].map(|()| group.window(owner, RECEIVER)), [4, 4, 8, 8]);
        let mut group = Group::new();
        group.goes_home_wrongly();
        assert_eq!([(); 2].map(|()| group.window(visit, RECEIVER)), [4, 8]);
    }

    /// From the window on in which the group changes hands.
    #[test]
    fn a_move_by_load_is_judged_after_a_period_of_entries() {
        for (entries, judged) in [(LENGTHS.period - 1, false), (LENGTHS.period, true)] {
            let mut group = Group { known: Asleep(Some(1)), ..Group::new() };
            group.goes_home();
            while group.window(CellUse::Owner(UseCause::Call), RECEIVER) < 8 {}
            group.book.loads.worked(0, 1, LENGTHS.period);
            group.window(CellUse::Owner(UseCause::Call), RECEIVER);
            assert_eq!(group.place, GroupPlace::Home(1));
            group.window(CellUse::Owner(UseCause::Call), SECOND);
            group.book.loads.worked(0, 1, entries - u64::from(LENGTHS.first));
            group.window(CellUse::Owner(UseCause::Call), SECOND);
            let decision = group.book.log.all().pop().expect("a decision");
            assert!(matches!(decision.reason, DecisionReason::Load { .. }), "{decision}");
            assert_eq!(matches!(decision.outcome, DecisionOutcome::Kept(_)), judged, "{decision}");
        }
    }

    /// Their calls would wait.
    #[test]
    fn a_group_with_callers_on_two_threads_stays_shared() {
        let mut group = Group::new();
        rounds(&mut group, 1000, 1, OTHER);
        assert_eq!(group.book.log.all(), []);
        rounds(&mut group, 1000, 0, OTHER);
        assert_eq!(group.book.log.all(), []);
        // One of four.
        for call in 0..1000 {
            group.entry(CellUse::Visit(UseCause::Call), if call % 4 == 1 { OTHER } else { RECEIVER });
        }
        assert_eq!(group.book.log.all(), []);
    }

    /// The log is bounded, and numbers go on.
    #[test]
    fn old_decisions_are_forgotten() {
        let mut group = Group::new();
        (0..super::super::decisions::KEPT + 5).for_each(|_| {
            group.goes_home_wrongly();
            group.counts.past.rest = 0;
        });
        let log = group.book.log.all();
        assert_eq!((log.len(), log[0].number), (super::super::decisions::KEPT, 5));
    }
}
