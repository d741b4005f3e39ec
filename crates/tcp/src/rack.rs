//! RACK (RFC 8985): loss detection by time. A segment is lost if one that was sent sufficiently later has arrived.
//!
//! This file owns RACK's state: the most recently sent segment that was delivered, how much reordering the path shows,
//! and the resulting reordering window. The transmission times are in the send log (first transmissions) and in
//! `pcb/loss.rs` (retransmissions), which apply the rule [`Rack::is_overdue`]; the acknowledgement step reports
//! deliveries and duplicates. Times are microseconds modulo 2^32.
//!
//! What may never happen: a retransmission that counts as delivered although the acknowledgement may be for the original
//! transmission.

use wire::SeqNumber;

use crate::tick::{is_before, since, until};

/// The reordering window is at least this while reordering is allowed for: timers have a granularity of about a
/// millisecond, and on a path of microseconds the threads of a host reorder by more than a quarter of the round trip.
const MIN_WINDOW_US: u32 = 1_000;
/// A delivery that took longer is ignored (18 minutes: a suspended machine). Times are kept modulo 2^32 and compared
/// within half of that, round trip and window together.
pub(crate) const LONGEST_US: u32 = 1 << 30;

/// Recoveries for which a window widened by D-SACKs stays wide (RFC 8985 section 6.2, step 4).
const PERSIST: u8 = 16;

/// Bit of [`Config::recovery`](crate::Config::recovery): D-SACKs do not widen the window.
pub(crate) const STATIC_WINDOW: u8 = 2;
/// The same: three SACKed segments do not shorten the window.
pub(crate) const NO_DUP_THRESH: u8 = 4;

/// One transmission that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeliveredSegment {
    /// When it left.
    pub(crate) at: u32,
    /// One past its last byte.
    pub(crate) end: SeqNumber,
}

impl DeliveredSegment {
    /// Whether this was sent after `other`. Of segments sent together, the higher sequence number was sent later.
    pub(crate) fn is_after(self, other: DeliveredSegment) -> bool {
        is_before(other.at, self.at) || self.left_with(other)
    }

    /// The same, for any age of `other` at `now` that the times can express (71 minutes).
    fn is_after_at(self, other: DeliveredSegment, now: u32) -> bool {
        since(now, other.at) > since(now, self.at) || self.left_with(other)
    }

    /// Whether this was sent at the same time as `other`, and after it.
    fn left_with(self, other: DeliveredSegment) -> bool {
        other.at == self.at && self.end.gt(other.end)
    }
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rack {
    /// RACK.xmit_ts and RACK.end_seq.
    newest: Option<DeliveredSegment>,
    /// It was a retransmission.
    newest_again: bool,
    /// RACK.rtt: of the last delivery.
    rtt: u32,
    /// RACK.dsack_round: SND.NXT when a D-SACK last widened the window.
    round: Option<SeqNumber>,
    /// RACK.reo_wnd_mult less one.
    widened: u8,
    /// RACK.reo_wnd_persist.
    persist: u8,
    /// RACK.reordering_seen.
    pub(crate) reordering: bool,
}

impl Rack {
    /// Section 6.2, step 2: `sent` was delivered at `now`. For a retransmission, `again`, only a delivery that cannot
    /// be that of an earlier transmission counts: its timestamp echo must not be older (the caller's check), and it
    /// must have taken the least round-trip time.
    pub(crate) fn delivered(&mut self, sent: DeliveredSegment, again: bool, now: u32, min_rtt: u32) {
        let rtt = since(now, sent.at);
        if again && rtt < min_rtt || rtt >= LONGEST_US {
            return;
        }
        self.rtt = rtt;
        if self.newest.is_none_or(|newest| sent.is_after_at(newest, now)) {
            self.newest = Some(sent);
            self.newest_again = again;
        }
    }

    /// The most recently sent segment that was delivered.
    pub(crate) fn newest(&self) -> Option<DeliveredSegment> {
        self.newest
    }

    /// Discards a delivery of a segment sent too long before `now` to be compared with present ones.
    pub(crate) fn forget_what_is_too_old(&mut self, now: u32) {
        if self.newest.is_some_and(|newest| since(now, newest.at) >= LONGEST_US) {
            self.newest = None;
        }
    }

    /// A new round of losses: old deliveries are discarded (sequence numbers may have wrapped since).
    pub(crate) fn forget_deliveries(&mut self) {
        self.newest = None;
    }

    /// Section 6.2, step 4: a D-SACK shows that the window was too narrow; widen it once per round trip.
    pub(crate) fn duplicate_reported(&mut self, una: SeqNumber, nxt: SeqNumber) {
        if self.round.is_none_or(|round| una.ge(round)) {
            self.round = Some(nxt);
            self.widened = self.widened.saturating_add(1);
        }
        self.persist = PERSIST;
    }

    /// A recovery has ended.
    pub(crate) fn recovery_ended(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.widened = 0;
        }
        self.round = None;
    }

    /// The reordering window in microseconds (section 6.2, step 4). `certain`: recovery is under way, or three segments
    /// are SACKed; then, as long as no reordering was seen, the window is zero. `fixed`: D-SACKs do not count.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-3.3.2
    //# The RACK reordering window MUST be bounded, and this bound SHOULD be SRTT.
    pub(crate) fn window(&self, min_rtt: u32, srtt: u32, certain: bool, fixed: bool) -> u32 {
        if certain && !self.reordering {
            return 0;
        }
        let widened = if fixed { 0 } else { u64::from(self.widened) };
        let step = u64::from((min_rtt / 4).max(MIN_WINDOW_US));
        (step * (widened + 1)).min(u64::from(srtt.max(MIN_WINDOW_US))) as u32
    }

    /// The latest transmission time that is overdue at `now`: segments sent until then, and before the newest
    /// delivered, are lost (section 6.2, step 5).
    pub(crate) fn overdue(&self, window: u32, now: u32) -> u32 {
        now.wrapping_sub(self.rtt).wrapping_sub(window)
    }

    /// Whether a segment sent after the retransmission `sent` has arrived by `now`. Segments sent together are ordered
    /// by sequence number only if both were retransmissions.
    pub(crate) fn overtook(&self, sent: DeliveredSegment, now: u32) -> bool {
        self.newest.is_some_and(|newest| newest.is_after_at(sent, now) && (self.newest_again || newest.at != sent.at))
    }

    /// Whether the retransmission `sent` is lost at `now`, with this reordering window.
    pub(crate) fn is_overdue(&self, sent: DeliveredSegment, window: u32, now: u32) -> bool {
        self.overtook(sent, now) && since(now, sent.at) >= self.rtt.saturating_add(window)
    }

    /// Time from `now` until every segment sent before the newest delivered is overdue.
    pub(crate) fn settles_in(&self, window: u32, now: u32) -> u32 {
        let at = self.newest.map_or(now, |newest| newest.at);
        let due = at.wrapping_add(self.rtt).wrapping_add(window);
        until(due, now)
    }

    /// RACK.reo_wnd_mult.
    #[cfg(test)]
    fn multiplier(&self) -> u32 {
        u32::from(self.widened) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(at: u32, end: u32) -> DeliveredSegment {
        DeliveredSegment { at, end: SeqNumber(end) }
    }

    #[test]
    fn what_left_later_decides_and_ties_go_by_sequence_number() {
        assert!(sent(2, 10).is_after(sent(1, 20)) && !sent(1, 20).is_after(sent(2, 10)));
        assert!(sent(2, 20).is_after(sent(2, 10)) && !sent(2, 10).is_after(sent(2, 10)));
        assert!(sent(1, 0).is_after(sent(u32::MAX, 0)), "the clock wraps");
    }

    #[test]
    fn a_segment_is_lost_once_the_window_has_passed() {
        let mut rack = Rack::default();
        rack.delivered(sent(1000, 200), false, 51_000, 50_000);
        let old = sent(900, 100);
        for (now, lost) in [(51_000, false), (63_399, false), (63_400, true)] {
            assert_eq!(rack.is_overdue(old, 12_500, now), lost, "at {now}");
        }
        assert!(!rack.is_overdue(sent(1001, 100), 0, 1_000_000), "it left after the one that arrived");
        assert_eq!(rack.settles_in(12_500, 51_000), 12_500);
    }

    /// Found by the soak: after a jump of the clock by an hour each acknowledgement retransmitted everything, and each
    /// retransmission caused an acknowledgement.
    #[test]
    fn a_delivery_from_long_ago_does_not_make_overdue_what_leaves_now() {
        const HOUR: u32 = 3_600_000_000;
        let mut rack = Rack::default();
        rack.delivered(sent(0, 100), false, HOUR, 5_000);
        assert!(!rack.is_overdue(sent(HOUR, 200), 0, HOUR));
        rack.delivered(sent(HOUR, 200), false, HOUR + 5_000, 5_000);
        assert_eq!(rack.newest(), Some(sent(HOUR, 200)));
    }

    /// Found by the soak: the hour passed after the delivery, and before any other transmission.
    #[test]
    fn a_delivery_before_a_long_silence_does_not_make_overdue_what_leaves_after_it() {
        const HOUR: u32 = 3_600_000_000;
        let mut rack = Rack::default();
        rack.delivered(sent(0, 100), false, 5_000, 5_000);
        assert!(!rack.is_overdue(sent(HOUR, 200), 0, HOUR + 5_000));
        let mut late = rack.clone();
        late.delivered(sent(HOUR, 200), false, HOUR + 5_000, 5_000);
        assert_eq!(late.newest(), Some(sent(HOUR, 200)), "the first delivery after it is the newest");
        rack.forget_what_is_too_old(HOUR + 5_000);
        assert_eq!(rack.newest(), None);
        rack.delivered(sent(HOUR, 200), false, HOUR + 5_000, 5_000);
        rack.forget_what_is_too_old(HOUR + 10_000);
        assert_eq!(rack.newest(), Some(sent(HOUR, 200)));
        assert!(rack.is_overdue(sent(1_000, 50), 0, HOUR + 10_000), "and what left before the silence is lost");
    }

    #[test]
    fn a_retransmission_that_returns_too_soon_is_the_original() {
        let mut rack = Rack::default();
        rack.delivered(sent(1000, 100), true, 1200, 50_000);
        assert_eq!(rack.newest(), None);
        rack.delivered(sent(1000, 100), true, 50_999, 50_000);
        assert_eq!(rack.newest(), None);
        rack.delivered(sent(1000, 100), true, 51_000, 50_000);
        assert_eq!(rack.newest(), Some(sent(1000, 100)));
    }

    //= https://www.rfc-editor.org/rfc/rfc8985#section-3.3.2
    //= type=test
    //# The RACK reordering window MUST be bounded, and this bound SHOULD be SRTT.
    #[test]
    fn the_window_follows_reordering_and_d_sacks() {
        let mut rack = Rack::default();
        assert_eq!(rack.window(40_000, 50_000, false, false), 10_000);
        assert_eq!(rack.window(40_000, 50_000, true, false), 0, "three SACKed segments, and no reordering known");
        rack.reordering = true;
        assert_eq!(rack.window(40_000, 50_000, true, false), 10_000);
        let (una, nxt) = (SeqNumber(100), SeqNumber(1000));
        rack.duplicate_reported(una, nxt);
        rack.duplicate_reported(una, nxt);
        assert_eq!(rack.multiplier(), 2, "once per round trip");
        rack.duplicate_reported(nxt, nxt + 900);
        assert_eq!((rack.multiplier(), rack.window(40_000, 50_000, true, false)), (3, 30_000));
        assert_eq!(rack.window(40_000, 50_000, true, true), 10_000, "static");
        for _ in 0..10 {
            rack.duplicate_reported(nxt + 900, nxt + 900);
        }
        assert_eq!(rack.window(40_000, 50_000, true, false), 50_000, "never more than SRTT");
        for _ in 0..15 {
            rack.recovery_ended();
        }
        assert!(rack.multiplier() > 1);
        rack.recovery_ended();
        assert_eq!(rack.multiplier(), 1, "after 16 recoveries without a D-SACK");
        assert_eq!(rack.window(100, 100, true, false), 1000, "a timer cannot tell less");
        rack.duplicate_reported(nxt + 900, nxt + 1800);
        assert_eq!(rack.window(2_000, 5_000, true, false), 2_000, "what a D-SACK adds is no less than that either");
    }
}
