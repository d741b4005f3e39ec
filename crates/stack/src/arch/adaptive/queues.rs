//! When a receive thread claims the transmit queues that it serves.
//!
//! The flows of a group leave by the queue of the number by which they arrive, if a device has as many queues as the stack has
//! receive threads. While all groups of a queue that are in use have their home at the thread that serves it, that thread alone
//! sends there, and a lock would exclude nobody: so it claims the queue, as under [`shared_nothing`](crate::arch::shared_nothing).
//!
//! A group that is not in use is shared, and another thread may use it at any time. Its frames are left for the claimant then
//! ([`path::TransmitQueue`]), which costs far more than a lock. So the claim ends after a few of them, and the thread waits twice as
//! long as the last time before it claims again. It ends, too, when a group leaves its home.
//!
//! Kept under the lock of the decisions, and used where a group's window ends. How many claims there were, and what ended them, is
//! kept for users ([`QueueClaims`]).

use std::fmt;

use observe::Time;

use super::decisions::Seconds;

/// After claims that others ended soon, the wait for the next is doubled so often at most.
const MOST_DOUBLINGS: u32 = 8;

/// The claims that a receive thread has made of the transmit queues that it serves: it sends without a lock while it has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueClaims {
    /// The number of the receive thread.
    pub thread: usize,
    /// Since when it has the last one, by the stack's clock; `None`: it has none now. That other threads have ended it is noticed where
    /// the next window of a group ends.
    pub since: Option<Time>,
    /// How many it has made.
    pub made: u64,
    /// Those that ended because other threads had left frames for it.
    pub ended_by_others: u64,
    /// Those that ended because a group had left its home here, or the thread polled no more.
    pub ended_by_groups: u64,
}

impl fmt::Display for QueueClaims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QueueClaims { thread, since, made, ended_by_others, ended_by_groups } = self;
        match since {
            Some(since) => write!(f, "thread {thread}: transmit queues claimed since {} s", Seconds(*since))?,
            None => write!(f, "thread {thread}: transmit queues not claimed now")?,
        }
        write!(f, "; {made} claims, of which {ended_by_others} ended by frames of other threads, ")?;
        write!(f, "{ended_by_groups} by a group that left")
    }
}

/// What a receive thread knows of the transmit queues that it serves.
#[derive(Clone, Debug, Default)]
pub struct QueueUse {
    /// Windows in a row, of the groups that arrive here, at the end of which these were at home; since the claim, if there is one.
    alone: u32,
    claims: QueueClaims,
    /// Claims in a row that others ended soon.
    failures: u32,
}

impl QueueUse {
    /// Of receive thread `thread`, which has claimed nothing.
    pub fn of(thread: usize) -> QueueUse {
        QueueUse { claims: QueueClaims { thread, ..QueueClaims::default() }, ..QueueUse::default() }
    }

    /// Its claims so far.
    pub fn claims(&self) -> QueueClaims {
        self.claims
    }

    /// A window has ended at `now`, of a group that arrives here. `at_home`: it is at home here, and the calling thread is this one.
    /// `holds`: whether the claim has not ended yet, if there was one. Returns whether to claim the queues, after `first` such windows
    /// or more.
    pub fn window(&mut self, at_home: bool, first: u32, now: Time, holds: impl FnOnce() -> bool) -> bool {
        let is_claimed = self.claims.since.is_some();
        if !at_home {
            self.alone = if is_claimed { self.alone } else { 0 };
            return false;
        }
        let wait = |failures: u32| first << failures.min(MOST_DOUBLINGS);
        if is_claimed && !holds() {
            let lasted = self.alone >= wait(self.failures);
            (self.alone, self.failures) = (0, if lasted { 1 } else { self.failures + 1 });
            self.claims.since = None;
            self.claims.ended_by_others += 1;
        }
        self.alone = self.alone.saturating_add(1);
        let claims = self.claims.since.is_none() && self.alone >= wait(self.failures);
        if claims {
            (self.claims.since, self.alone) = (Some(now), 0);
            self.claims.made += 1;
        }
        claims
    }

    /// A group leaves its home here, and the claim ends, if there is one.
    pub fn leaves(&mut self) {
        self.claims.ended_by_groups += u64::from(self.claims.since.take().is_some());
        self.alone = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u32 = 4;
    const NOW: Time = Time::from_nanos(1_000_002_003);

    /// The windows after which the queues are claimed.
    fn until_claimed(queues: &mut QueueUse) -> usize {
        1 + (0..10_000).take_while(|_| !queues.window(true, FIRST, NOW, || false)).count()
    }

    /// All groups in use are at home, for some windows in a row.
    #[test]
    fn a_window_elsewhere_begins_the_wait_again() {
        let mut queues = QueueUse::default();
        assert!((1..FIRST).all(|_| !queues.window(true, FIRST, NOW, || true)));
        assert!(!queues.window(false, FIRST, NOW, || true));
        assert_eq!(until_claimed(&mut queues), FIRST as usize);
    }

    /// Twice as long after each claim that others ended soon; as after the first of them, if it had lasted as long as the wait for it.
    #[test]
    fn a_claim_that_others_end_is_repeated_later_and_later() {
        let mut queues = QueueUse::default();
        let waits: Vec<usize> = (0..11).map(|_| until_claimed(&mut queues)).collect();
        assert_eq!(waits, [4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024]);
        let wait = FIRST << MOST_DOUBLINGS;
        assert!((0..wait).all(|_| !queues.window(true, FIRST, NOW, || true)), "it has claimed them");
        assert_eq!(until_claimed(&mut queues), 8);
    }

    /// What others send meanwhile is counted where it is left.
    #[test]
    fn a_window_elsewhere_does_not_end_a_claim_and_a_group_that_leaves_does() {
        let mut queues = QueueUse::default();
        assert_eq!(until_claimed(&mut queues), 4);
        assert!(!queues.window(false, FIRST, NOW, || true) && queues.claims().since.is_some());
        queues.leaves();
        assert_eq!(until_claimed(&mut queues), 4);
    }

    /// Since when, how many, and what ended each.
    #[test]
    fn claims_say_how_many_there_were_and_what_ended_them() {
        let mut queues = QueueUse::of(3);
        queues.leaves();
        assert_eq!(queues.claims(), QueueClaims { thread: 3, ..QueueClaims::default() }, "there was none to end");
        (0..3).for_each(|_| _ = until_claimed(&mut queues));
        let claimed = QueueClaims { thread: 3, since: Some(NOW), made: 3, ended_by_others: 2, ended_by_groups: 0 };
        assert_eq!(queues.claims(), claimed);
        assert_eq!(
            claimed.to_string(),
            "thread 3: transmit queues claimed since 1.000002 s; 3 claims, of which 2 ended by frames of other threads, 0 by a \
             group that left"
        );
        queues.leaves();
        queues.leaves();
        assert_eq!(queues.claims(), QueueClaims { since: None, ended_by_groups: 1, ..claimed });
        assert!(queues.claims().to_string().starts_with("thread 3: transmit queues not claimed now; 3 claims, "));
    }
}
