//! The Fast Open requests of a listener with handshakes that are not complete: PendingFastOpenRequests of RFC 7413 section
//! 5.1, which bounds the work that an attacker with one valid cookie can cause.

use core::time::Duration;
use std::collections::VecDeque;

use observe::Time;

/// Time for which a request that was reset still counts.
const RESET_COUNTS: Duration = Duration::from_secs(60);

/// Pending requests, counted.
#[derive(Clone, Debug, Default)]
pub struct PendingRequests {
    count: usize,
    /// Until when each reset request counts, earliest first.
    resets: VecDeque<Time>,
}

impl PendingRequests {
    /// Takes one more request, unless `limit` are pending. Reset requests free their places only after a while, or the
    /// resets provoked by forged SYNs would make room for ever more of them (RFC 7413 section 5.1).
    pub fn admit(&mut self, limit: usize, now: Time) -> bool {
        if self.count >= limit && self.resets.front().is_some_and(|until| *until <= now) {
            self.resets.pop_front();
            self.count -= 1;
        }
        let admitted = self.count < limit;
        self.count += usize::from(admitted);
        admitted
    }

    /// A request is no longer pending: its handshake is complete, or it has ended otherwise than by a reset.
    pub fn finish(&mut self) {
        self.count -= 1;
    }

    /// The peer has reset a pending request at `now`.
    pub fn reset(&mut self, now: Time) {
        self.resets.push_back(now + RESET_COUNTS);
    }

    /// Requests that count as pending.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none is pending.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_gives_its_place_back_after_a_minute() {
        let (mut pending, start) = (PendingRequests::default(), Time::from_secs(1));
        assert_eq!([(); 3].map(|()| pending.admit(2, start)), [true, true, false]);
        pending.reset(start);
        assert!(!pending.admit(2, start + RESET_COUNTS - Duration::from_nanos(1)));
        assert!(pending.admit(2, start + RESET_COUNTS), "in its place");
        assert!(!pending.admit(2, start + 2 * RESET_COUNTS), "a reset gives back one place");
        pending.finish();
        assert!(pending.admit(2, start));
        assert_eq!((pending.len(), pending.is_empty()), (2, false));
    }
}
