//! Totals of losses since the connection began, for status reports. Part of the record of losses, which a connection
//! without losses does not have.

use observe::Time;

use crate::tick::Tick;

/// Reordering by more segments is reported as this: `tcp_max_reordering` of Linux.
const MAX_REORDERING: u32 = 300;

/// See the module documentation. Counts stop at their largest value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Segments sent again, SYNs among them.
    pub(crate) retransmits: u32,
    /// Bytes of data sent again.
    pub(crate) bytes_again: u64,
    /// D-SACK blocks received.
    pub(crate) duplicates: u32,
    /// Times that reordering was seen.
    pub(crate) reorderings: u32,
    /// The largest distance in segments by which one was late; 0 before any was seen.
    pub(crate) reordering: u16,
    /// Retransmission time-outs.
    pub(crate) timeouts: u16,
    /// Recoveries that began with one.
    pub(crate) timeout_recoveries: u16,
    /// Time in such recoveries that are over, in ms.
    timeout_ms: u32,
    /// When the present one began.
    since: Option<Tick>,
}

impl Totals {
    /// A segment with `bytes` of data was sent again.
    pub(crate) fn sent_again(&mut self, bytes: u32) {
        self.retransmits = self.retransmits.saturating_add(1);
        self.bytes_again += u64::from(bytes);
    }

    /// `bytes` of data were sent with a SYN that was acknowledged without them, and are sent again in `segments`
    /// segments.
    pub(crate) fn left_with_syn(&mut self, segments: u32, bytes: u32) {
        self.retransmits = self.retransmits.saturating_add(segments);
        self.bytes_again += u64::from(bytes);
    }

    /// A segment was late that `segments` had overtaken.
    pub(crate) fn reordered(&mut self, segments: u32) {
        self.reorderings = self.reorderings.saturating_add(1);
        self.reordering = self.reordering.max(segments.min(MAX_REORDERING) as u16);
    }

    /// The retransmission timer has expired; `first`: something has arrived since it did before.
    pub(crate) fn timed_out(&mut self, first: bool, now: Time) {
        self.timeouts = self.timeouts.saturating_add(1);
        if first {
            self.timeout_recoveries = self.timeout_recoveries.saturating_add(1);
            self.since.get_or_insert(Tick::of(now));
        }
    }

    /// All data outstanding when the timer expired has arrived.
    pub(crate) fn recovered(&mut self, now: Time) {
        self.timeout_ms = self.in_timeouts(now);
        self.since = None;
    }

    /// The handshake needed `retries` more SYNs; `ms` have passed since the first time-out.
    pub(crate) fn opened_late(&mut self, retries: u8, ms: u32) {
        self.retransmits = retries.into();
        self.timeouts = retries.into();
        self.timeout_recoveries = 1;
        self.timeout_ms = ms;
    }

    /// Milliseconds in recoveries from time-outs, the present one included.
    pub(crate) fn in_timeouts(&self, now: Time) -> u32 {
        self.timeout_ms.saturating_add(self.since.map_or(0, |since| since.elapsed_ms(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_is_counted_once_and_timed_from_its_first_time_out() {
        let mut totals = Totals::default();
        totals.timed_out(true, Time::from_millis(1000));
        totals.timed_out(false, Time::from_millis(1400));
        assert_eq!((totals.timeouts, totals.timeout_recoveries), (2, 1));
        assert_eq!(totals.in_timeouts(Time::from_millis(1500)), 500);
        totals.recovered(Time::from_millis(1600));
        assert_eq!(totals.in_timeouts(Time::from_millis(9000)), 600);
        totals.timed_out(true, Time::from_millis(9000));
        totals.recovered(Time::from_millis(9001));
        assert_eq!((totals.timeout_recoveries, totals.in_timeouts(Time::from_millis(9999))), (2, 601));
    }
}
