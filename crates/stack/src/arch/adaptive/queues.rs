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
//! Kept under the lock of the decisions, and used where a group's window ends.

/// After claims that others ended soon, the wait for the next is doubled so often at most.
const MOST_DOUBLINGS: u32 = 8;

/// What a receive thread knows of the transmit queues that it serves.
#[derive(Clone, Debug, Default)]
pub struct QueueUse {
    /// Windows in a row, of the groups that arrive here, at the end of which these were at home; since the claim, if there is one.
    alone: u32,
    is_claimed: bool,
    /// Claims in a row that others ended soon.
    failures: u32,
}

impl QueueUse {
    /// A window has ended, of a group that arrives here. `at_home`: it is at home here, and the calling thread is this one.
    /// `holds`: whether the claim has not ended yet, if there was one. Returns whether to claim the queues, after `first` such windows
    /// or more.
    pub fn window(&mut self, at_home: bool, first: u32, holds: impl FnOnce() -> bool) -> bool {
        if !at_home {
            self.alone = if self.is_claimed { self.alone } else { 0 };
            return false;
        }
        let wait = |failures: u32| first << failures.min(MOST_DOUBLINGS);
        if self.is_claimed && !holds() {
            let lasted = self.alone >= wait(self.failures);
            *self = QueueUse { failures: if lasted { 1 } else { self.failures + 1 }, ..QueueUse::default() };
        }
        self.alone = self.alone.saturating_add(1);
        let claims = !self.is_claimed && self.alone >= wait(self.failures);
        if claims {
            (self.is_claimed, self.alone) = (true, 0);
        }
        claims
    }

    /// A group leaves its home here, and the claim ends, if there is one.
    pub fn leaves(&mut self) {
        (self.is_claimed, self.alone) = (false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u32 = 4;

    /// The windows after which the queues are claimed.
    fn until_claimed(queues: &mut QueueUse) -> usize {
        1 + (0..10_000).take_while(|_| !queues.window(true, FIRST, || false)).count()
    }

    /// All groups in use are at home, for some windows in a row.
    #[test]
    fn a_window_elsewhere_begins_the_wait_again() {
        let mut queues = QueueUse::default();
        assert!((1..FIRST).all(|_| !queues.window(true, FIRST, || true)));
        assert!(!queues.window(false, FIRST, || true));
        assert_eq!(until_claimed(&mut queues), FIRST as usize);
    }

    /// Twice as long after each claim that others ended soon; as after the first of them, if it had lasted as long as the wait for it.
    #[test]
    fn a_claim_that_others_end_is_repeated_later_and_later() {
        let mut queues = QueueUse::default();
        let waits: Vec<usize> = (0..11).map(|_| until_claimed(&mut queues)).collect();
        assert_eq!(waits, [4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024]);
        let wait = FIRST << MOST_DOUBLINGS;
        assert!((0..wait).all(|_| !queues.window(true, FIRST, || true)), "it has claimed them");
        assert_eq!(until_claimed(&mut queues), 8);
    }

    /// What others send meanwhile is counted where it is left.
    #[test]
    fn a_window_elsewhere_does_not_end_a_claim_and_a_group_that_leaves_does() {
        let mut queues = QueueUse::default();
        assert_eq!(until_claimed(&mut queues), 4);
        assert!(!queues.window(false, FIRST, || true) && queues.is_claimed);
        queues.leaves();
        assert_eq!(until_claimed(&mut queues), 4);
    }
}
