//! The window that all algorithms share, and slow start, which is the same under each of them. The bytes that slow
//! start leaves over go to the algorithm's congestion avoidance.

use super::hystart::CSS_GROWTH_DIVISOR;
use super::{Kind, MAX_WINDOW};

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Slow start or congestion avoidance.
    Open,
    /// Slow start at a quarter of its pace (RFC 9406).
    Conservative,
    /// Fast recovery: acknowledgements do not open the window.
    Recovery,
    /// After a time-out, until an acknowledgement arrives.
    Silence,
    /// After a time-out and an acknowledgement, until all that was outstanding is acknowledged.
    Loss,
}

/// The part that all algorithms share.
#[derive(Clone, Debug)]
pub(super) struct CongestionWindow {
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Slow-start threshold, bytes.
    pub ssthresh: u32,
    /// In congestion avoidance the acknowledged bytes not yet turned into growth, in the algorithm's unit. In slow
    /// start the largest flight while the window was not the limit.
    pub credit: u32,
    /// Sender maximum segment size, bytes.
    pub mss: u16,
    pub phase: Phase,
    pub kind: Kind,
}

impl CongestionWindow {
    #[inline]
    pub(super) fn mss(&self) -> u32 {
        u32::from(self.mss)
    }

    pub(super) fn set_cwnd(&mut self, bytes: u32) {
        self.cwnd = bytes.clamp(self.mss(), MAX_WINDOW);
    }

    /// Whether at least half of the window was in flight in slow start. Then it grows although it was not the limit, up
    /// to twice the flight, so that a user that writes a little more than before finds room (as on Linux since version
    /// 3.16).
    #[inline]
    pub(super) fn half_used(&mut self, acked: u32, flight_before: u32) -> bool {
        if self.cwnd >= self.ssthresh || self.phase == Phase::Recovery {
            return false;
        }
        let most = self.credit.max(flight_before);
        // When nothing is left in flight, the measurement starts again.
        self.credit = if acked == flight_before { 0 } else { most };
        self.cwnd < most.saturating_mul(2)
    }

    /// Slow start for `acked` bytes; returns those left for congestion avoidance.
    ///
    /// Every byte acknowledged opens the window by one (RFC 3465 with L unlimited, as other stacks do now: a receiver
    /// that coalesces segments acknowledges dozens at once). After a time-out an acknowledgement may cover bytes that
    /// left the network long ago, and counts for one segment at most (RFC 3465 section 2.3).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
    //# A TCP endpoint MUST implement the basic congestion control algorithms slow start, congestion avoidance, and
    //# exponential backoff of RTO to avoid creating congestion collapse conditions (MUST-19).
    pub(super) fn slow_start(&mut self, acked: u32) -> u32 {
        let counted = match self.phase {
            Phase::Loss => acked.min(self.mss()),
            Phase::Conservative => acked / CSS_GROWTH_DIVISOR,
            _ => acked,
        };
        let grown = counted.min(self.ssthresh - self.cwnd);
        self.set_cwnd(self.cwnd + grown);
        counted - grown
    }
}
