//! What `adaptive` has decided, and why: a bounded log, oldest entries first.
//!
//! Written where a group's window ends ([`policy`](super::policy)), read by any thread that asks
//! ([`RunningArchitecture::decisions`](crate::arch::RunningArchitecture::decisions)).

use std::collections::VecDeque;
use std::fmt;

use observe::Time;

/// Decisions that are kept; older ones are forgotten.
pub const KEPT: usize = 256;

/// A time in seconds, with six decimals.
pub(super) struct Seconds(pub(super) Time);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        write!(f, "{}.{:06}", nanos / 1_000_000_000, nanos % 1_000_000_000 / 1000)
    }
}

/// The threads that may use a flow group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPlace {
    /// Any thread, in turn: it owns the group for an event, or queues the event for the thread that does.
    Shared,
    /// The receive thread of this number owns it; others queue.
    Home(usize),
}

impl fmt::Display for GroupPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupPlace::Shared => f.write_str("shared"),
            GroupPlace::Home(thread) => write!(f, "thread {thread}"),
        }
    }
}

/// What was counted about a group in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCounts {
    /// Events and calls that were run.
    pub entries: u32,
    /// What the entries of all threads would cost that are not those of the thread with the most, if they were handed over.
    pub by_others: u64,
    /// Entries by another thread than the one before; all that is handed over counts as another thread's.
    pub turns: u32,
    /// Entries by threads that owned the group for that event alone.
    pub visits: u32,
    /// Entries that another thread than their own ran: it found the group taken, and queued them.
    pub handoffs: u32,
    /// Of these, calls whose callers waited for the thread where the group is at home.
    pub awaited: u32,
    /// The longest queue that an owner found.
    pub longest: u32,
}

/// Costs are in visits: two read-modify-writes of a word that no other thread uses at that moment. This is what the first visit
/// after one of another thread costs more: the lines of the group and of its connections move between two caches.
const TURN: u64 = 16;
/// Cost of a hand-off: a message, its queue's lock on both sides, cache lines that move, and perhaps a wake-up.
pub(super) const HANDOFF: u64 = 16;
/// Cost of a call that waits for the thread where the group is at home. That thread looks for messages between two turns, in each
/// of which it may serve a batch of frames and many connections of its application: some hundred microseconds in which the caller does nothing.
pub(super) const AWAITED: u64 = 4096;

impl WindowCounts {
    /// The estimated cost of exclusion: nothing for an entry by the thread where the group is at home.
    pub fn cost(&self) -> u64 {
        let queued = u64::from(self.handoffs - self.awaited.min(self.handoffs));
        let turns = self.turns.min(self.visits);
        self.cost_of_visits(self.visits, turns) + queued * HANDOFF + u64::from(self.awaited) * AWAITED
    }

    /// The estimate if the group had its home at the thread with most entries.
    pub fn cost_at_home(&self) -> u64 {
        self.by_others
    }

    /// The estimate if each entry were a visit, and none had to queue.
    pub fn cost_if_shared(&self) -> u64 {
        self.cost_of_visits(self.entries, self.turns)
    }

    fn cost_of_visits(&self, visits: u32, turns: u32) -> u64 {
        u64::from(visits) + u64::from(turns) * TURN
    }

    /// In thousandths of a visit for each entry.
    pub fn cost_of_entry(&self) -> u64 {
        self.cost() * 1000 / u64::from(self.entries.max(1))
    }
}

/// Why a group was given another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionReason {
    /// All calls are those of one receive thread, to which the frames of others are handed over from then on.
    OneUser,
    /// Other threads than the owner use the group, and one of them has waited for it; or they have too many of the entries.
    OtherUsers,
    /// Its receive thread has not slept, and another one sleeps.
    Load {
        /// Packets and calls of its receive thread since that last looked.
        busy: u64,
        /// Those of the other one in that time.
        idle: u64,
    },
    /// The receive thread from which it was moved by load has slept since.
    LoadIsOver,
}

/// By what a decision is judged, before and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionMeasure {
    /// Cost of exclusion, in thousandths of a visit for each entry: less is better.
    Cost(u64),
    /// Packets and calls of all receive threads in a second: more is better.
    Rate(u64),
}

impl DecisionMeasure {
    /// Whether the decision was wrong, if it was taken at `before` and this was measured after it. Rates vary by
    /// themselves: up to a tenth less is no loss.
    pub(super) fn is_worse_than(self, before: DecisionMeasure) -> bool {
        match (self, before) {
            (DecisionMeasure::Cost(after), DecisionMeasure::Cost(before)) => after > before,
            (DecisionMeasure::Rate(after), DecisionMeasure::Rate(before)) => after < before - before / 10,
            _ => false,
        }
    }
}

impl fmt::Display for DecisionMeasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecisionMeasure::Cost(cost) => write!(f, "{}.{:02} visits an entry", cost / 1000, cost % 1000 / 10),
            DecisionMeasure::Rate(u64::MAX) => f.write_str("no measurable time"),
            DecisionMeasure::Rate(rate) => write!(f, "{rate} packets and calls/s"),
        }
    }
}

/// What became of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// It is not measured yet.
    OnTrial,
    /// It was no loss.
    Kept(DecisionMeasure),
    /// It was a loss, and the group has its former place again.
    Reverted(DecisionMeasure),
    /// The number of groups was changed before it was measured.
    Unmeasured,
}

/// One decision of `adaptive`: a flow group gets another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupDecision {
    /// Counted from 0, in the order in which they were taken.
    pub number: u64,
    /// When, by the stack's clock.
    pub at: Time,
    /// The group.
    pub group: usize,
    /// Its place before.
    pub from: GroupPlace,
    /// Its place from then on.
    pub to: GroupPlace,
    /// Why.
    pub reason: DecisionReason,
    /// What was counted in the window that led to it.
    pub counts: WindowCounts,
    /// What it is compared with.
    pub before: DecisionMeasure,
    /// What became of it.
    pub outcome: DecisionOutcome,
}

impl fmt::Display for GroupDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WindowCounts { entries, turns, handoffs, awaited, longest, .. } = self.counts;
        let GroupDecision { at, group, from, to, .. } = self;
        write!(f, "{} s: group {group}, {from} -> {to}: ", Seconds(*at))?;
        match self.reason {
            DecisionReason::OneUser => {
                write!(f, "its calls are one thread's, {turns} of {entries} entries came after another thread's")?;
            }
            DecisionReason::OtherUsers => write!(f, "other threads have {handoffs} of {entries} entries")?,
            DecisionReason::Load { busy, idle } => {
                write!(f, "its thread had {busy} packets and calls without a sleep, the other one {idle}, and sleeps")?;
            }
            DecisionReason::LoadIsOver => f.write_str("the thread that it came from has slept")?,
        }
        write!(f, " ({handoffs} handed over, {awaited} waited for, longest queue {longest}); ")?;
        match self.outcome {
            DecisionOutcome::OnTrial => write!(f, "on trial against {}", self.before),
            DecisionOutcome::Kept(after) => write!(f, "kept: {after}, {} before", self.before),
            DecisionOutcome::Reverted(after) => write!(f, "reverted: {after}, {} before", self.before),
            DecisionOutcome::Unmeasured => f.write_str("the groups were made anew before it was measured"),
        }
    }
}

/// The latest decisions.
#[derive(Debug)]
pub struct DecisionLog {
    latest: VecDeque<GroupDecision>,
    next: u64,
}

impl Default for DecisionLog {
    /// Empty, with the memory that it will need.
    fn default() -> Self {
        DecisionLog { latest: VecDeque::with_capacity(KEPT), next: 0 }
    }
}

impl DecisionLog {
    /// Records a decision under the next number, which is returned.
    pub fn add(&mut self, decision: GroupDecision) -> u64 {
        let number = self.next;
        self.next += 1;
        if self.latest.len() == KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(GroupDecision { number, ..decision });
        number
    }

    /// Records what became of a decision, unless it is forgotten already.
    pub fn conclude(&mut self, number: u64, outcome: DecisionOutcome) {
        if let Some(decision) = self.latest.iter_mut().rev().find(|decision| decision.number == number) {
            decision.outcome = outcome;
        }
    }

    /// The groups are made anew, and nothing is on trial any more.
    pub fn end_trials(&mut self) {
        let on_trial = |decision: &&mut GroupDecision| decision.outcome == DecisionOutcome::OnTrial;
        self.latest.iter_mut().filter(on_trial).for_each(|decision| decision.outcome = DecisionOutcome::Unmeasured);
    }

    /// All that are kept, oldest first.
    pub fn all(&self) -> Vec<GroupDecision> {
        self.latest.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In visits: a turn is 16 more, a hand-off 16, a call that is waited for 4096 in place of that, and an entry by the home nothing.
    #[test]
    fn a_window_costs_its_visits_turns_and_messages() {
        let counts =
            WindowCounts { entries: 20, by_others: 77, turns: 3, visits: 5, handoffs: 4, awaited: 1, longest: 2 };
        let cost = 5 + 3 * 16 + 3 * 16 + 4096;
        assert_eq!((counts.cost(), counts.cost_of_entry()), (cost, cost * 1000 / 20));
        assert_eq!((counts.cost_if_shared(), counts.cost_at_home()), (20 + 3 * 16, 77));
        // At home the lines do not move, whichever thread's entries follow each other.
        assert_eq!(WindowCounts { visits: 0, turns: 9, ..counts }.cost(), 3 * 16 + 4096);
    }

    #[test]
    fn a_decision_was_wrong_if_it_costs_more_or_more_than_a_tenth_of_the_rate() {
        use DecisionMeasure::{Cost, Rate};
        for (before, after, worse) in [
            (Cost(1000), Cost(1000), false),
            (Cost(1000), Cost(1001), true),
            (Rate(1000), Rate(900), false),
            (Rate(1000), Rate(899), true),
            // Neither can be compared with the other.
            (Rate(1000), Cost(2000), false),
            (Cost(1000), Rate(1), false),
        ] {
            assert_eq!(after.is_worse_than(before), worse, "{after} after {before}");
        }
    }
}
