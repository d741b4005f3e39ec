//! NewReno's congestion avoidance: RFC 5681 section 3.1, with the byte counting of RFC 3465 section 2.1.
//!
//! The window grows by one segment for every window of bytes acknowledged, and is half of the flight after a loss.
//! Called by [`Controller`](super::Controller) only; the recovery procedure of RFC 6582 is the send side's.

use super::CongestionWindow;

/// The threshold after a loss with `flight` bytes outstanding (RFC 5681 equation 4, without its lower bound).
#[inline]
pub(super) fn threshold(flight: u32) -> u32 {
    flight / 2
}

/// Grows the window for `acked` bytes acknowledged in congestion avoidance.
///
/// `credit` counts bytes; one acknowledgement of several windows still opens the window by one segment, so that a peer
/// that is silent for long does not cause a burst.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//# A TCP endpoint MUST implement the basic congestion control algorithms slow start, congestion avoidance, and
//# exponential backoff of RTO to avoid creating congestion collapse conditions (MUST-19).
#[inline]
pub(super) fn grow(window: &mut CongestionWindow, acked: u32) {
    window.credit = window.credit.saturating_add(acked);
    if window.credit >= window.cwnd {
        window.credit = (window.credit - window.cwnd).min(window.cwnd);
        window.set_cwnd(window.cwnd + window.mss());
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Controller, Kind};
    use observe::Time;

    const MSS: u32 = 1000;

    fn avoiding(cwnd: u32) -> Controller {
        let mut c = Controller::new(Kind::NewReno, MSS, 2 * cwnd);
        c.on_congestion(2 * cwnd, Time::ZERO);
        c.on_recovery_exit(u32::MAX, Time::ZERO);
        assert_eq!((c.cwnd(), c.in_slow_start()), (cwnd, false));
        c
    }

    fn ack(c: &mut Controller, bytes: u32) {
        let flight = c.cwnd().max(bytes);
        c.on_ack(bytes, flight, None, Time::ZERO, true);
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
    //= type=test
    //# A TCP endpoint MUST implement the basic congestion control algorithms slow start, congestion avoidance, and
    //# exponential backoff of RTO to avoid creating congestion collapse conditions (MUST-19).
    #[test]
    fn one_segment_per_window_however_it_is_acknowledged() {
        for step in [1, 100, 1000, 2000, 10_000] {
            let mut c = avoiding(10 * MSS);
            for _ in 0..10 * MSS / step {
                ack(&mut c, step);
            }
            assert_eq!(c.cwnd(), 11 * MSS, "in steps of {step}");
        }
    }

    #[test]
    fn the_remainder_counts_towards_the_next_segment() {
        let mut c = avoiding(10 * MSS);
        ack(&mut c, 9_500);
        assert_eq!(c.cwnd(), 10 * MSS);
        ack(&mut c, 1_000);
        assert_eq!(c.cwnd(), 11 * MSS);
        ack(&mut c, 10_499);
        assert_eq!(c.cwnd(), 11 * MSS);
        ack(&mut c, 1);
        assert_eq!(c.cwnd(), 12 * MSS);
    }

    #[test]
    fn a_loss_halves_the_flight_and_leaves_two_segments() {
        let mut c = avoiding(10 * MSS);
        assert_eq!(c.on_congestion(9 * MSS, Time::ZERO), 4_500);
        assert_eq!(c.cwnd(), 4_500);
        c.on_recovery_exit(u32::MAX, Time::ZERO);
        assert_eq!(c.on_congestion(MSS, Time::ZERO), 2 * MSS);
    }
}
