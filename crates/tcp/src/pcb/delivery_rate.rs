//! The rate at which our data is delivered (Cheng et al., "Delivery Rate Estimation",
//! draft-cheng-iccrg-delivery-rate-estimation), as `tcpi_delivery_rate` reports it.
//!
//! Bytes sent at one moment have a mark: the time, and the bytes delivered until then. When they are acknowledged, the
//! bytes delivered since, divided by the longer of delivery time and sending time, are a sample. Kept only for
//! connections whose limits are measured, boxed with their account. What may never happen: a rate above the sending
//! rate, caused by acknowledgements that arrived in a burst.

use std::collections::VecDeque;

use wire::SeqNumber;

use crate::tick::since;

/// Most marks; bytes sent while all are unacknowledged give no sample.
const MARKS: usize = 32;

/// Bytes sent at one moment. Times are microseconds modulo 2^32, bytes modulo 2^32.
#[derive(Clone, Copy, Debug)]
struct Mark {
    end: SeqNumber,
    sent: u32,
    /// When the last delivered segment was sent.
    first_sent: u32,
    delivered: u32,
    delivered_at: u32,
    limited: bool,
}

/// A rate of delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Bytes delivered.
    pub bytes: u32,
    /// In this time, in microseconds; 0 before the first sample.
    pub interval_us: u32,
    /// The user, not the network, limited it.
    pub limited: bool,
}

impl Rate {
    /// Bytes per second; 0 before the first sample.
    pub fn per_second(&self) -> u64 {
        (u64::from(self.bytes) * 1_000_000).checked_div(self.interval_us.into()).unwrap_or(0)
    }

    fn is_above(&self, other: &Rate) -> bool {
        u64::from(self.bytes) * u64::from(other.interval_us) >= u64::from(other.bytes) * u64::from(self.interval_us)
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct DeliveryRate {
    marks: VecDeque<Mark>,
    /// When something was last delivered, or began to be sent after an idle time.
    delivered_at: u32,
    /// When that was sent.
    first_sent: u32,
    /// Bytes sent until this is acknowledged are limited by the user.
    limited_until: Option<SeqNumber>,
    /// The user has sent before.
    began: bool,
    rate: Rate,
}

impl DeliveryRate {
    /// Bytes `[from, nxt)` were sent at `now`, with SND.UNA at `una` and `delivered` bytes delivered so far.
    pub(crate) fn sent(&mut self, una: SeqNumber, (from, nxt): (SeqNumber, SeqNumber), delivered: u32, now: u32) {
        if una == from {
            self.first_sent = now;
            self.delivered_at = now;
            self.marks.clear();
        }
        let limited = !self.began || self.limited_until.is_some();
        let mark = Mark {
            end: nxt,
            sent: now,
            first_sent: self.first_sent,
            delivered,
            delivered_at: self.delivered_at,
            limited,
        };
        let full = self.marks.len() >= MARKS;
        match self.marks.back_mut() {
            Some(last) if last.sent == now && last.delivered == delivered && last.limited == limited => last.end = nxt,
            _ if full => {}
            _ => self.marks.push_back(mark),
        }
    }

    /// The user's data ends at `nxt`, and the network would take more.
    pub(crate) fn ran_dry(&mut self, nxt: SeqNumber) {
        self.began = true;
        self.limited_until = Some(nxt);
    }

    /// The sender is not limited by the user.
    pub(crate) fn is_busy(&mut self) {
        self.began = true;
    }

    /// The acknowledgement of everything below `una` has arrived, with `delivered` bytes delivered in all. An interval
    /// shorter than the least round trip gives no sample.
    pub(crate) fn acknowledged(&mut self, una: SeqNumber, delivered: u32, now: u32, min_rtt: u32) {
        let mut acked = None;
        while let Some(mark) = self.marks.front().copied().filter(|mark| mark.end.le(una)) {
            acked = Some(mark);
            self.marks.pop_front();
        }
        self.delivered_at = now;
        self.limited_until = self.limited_until.filter(|until| until.gt(una));
        let Some(mark) = acked else { return };
        self.first_sent = mark.sent;
        let interval_us = since(mark.sent, mark.first_sent).max(since(now, mark.delivered_at));
        if interval_us == 0 || min_rtt != u32::MAX && interval_us < min_rtt {
            return;
        }
        let sample = Rate { bytes: delivered.wrapping_sub(mark.delivered), interval_us, limited: mark.limited };
        // A sample limited by the user is only a lower bound for the network.
        if !sample.limited || sample.is_above(&self.rate) {
            self.rate = sample;
        }
    }

    /// The latest sample limited by the network, or a higher one limited by the user.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seq(n: u32) -> SeqNumber {
        SeqNumber(n)
    }

    /// Ten segments in a burst, acknowledged one by one in the time that the bottleneck needs: the rate is that of all
    /// ten over a round trip, because the user sent no more.
    #[test]
    fn a_burst_counts_as_one() {
        let mut rate = DeliveryRate::default();
        for i in 0..10 {
            rate.sent(seq(0), (seq(i * 1000), seq(i * 1000 + 1000)), 0, 500);
        }
        rate.ran_dry(seq(10_000));
        for i in 1..=10 {
            rate.acknowledged(seq(i * 1000), i * 1000, 100_500 + i * 10, 100_000);
        }
        let rate = rate.rate();
        assert_eq!(rate, Rate { bytes: 10_000, interval_us: 100_100, limited: true });
        assert_eq!(rate.per_second(), 99_900);
    }

    /// A sender that is clocked by acknowledgements: each sample spans one round trip.
    #[test]
    fn a_steady_flow_has_the_rate_of_its_bottleneck() {
        let mut rate = DeliveryRate::default();
        let (mut nxt, mut now) = (0, 0);
        for _ in 0..8 {
            rate.sent(seq(0), (seq(nxt), seq(nxt + 1000)), 0, now);
            nxt += 1000;
        }
        rate.is_busy();
        now = 40_000;
        for una in (1000..60_000).step_by(1000) {
            now += 5_000;
            rate.acknowledged(seq(una), una, now, 40_000);
            rate.sent(seq(una), (seq(nxt), seq(nxt + 1000)), una, now);
            nxt += 1000;
        }
        assert_eq!(rate.rate().per_second(), 200_000, "one segment in 5 ms");
        assert!(!rate.rate().limited);
    }

    #[test]
    fn acknowledgements_in_a_bunch_do_not_raise_the_rate() {
        let mut rate = DeliveryRate::default();
        rate.sent(seq(0), (seq(0), seq(1000)), 0, 0);
        rate.is_busy();
        rate.acknowledged(seq(1000), 1000, 50_000, 50_000);
        for i in 1..5 {
            rate.sent(seq(1000), (seq(i * 1000), seq(i * 1000 + 1000)), 1000, 50_000 + i * 20_000);
        }
        rate.acknowledged(seq(5000), 5000, 180_000, 50_000);
        // They were sent within 60 ms, but delivered 110 ms after the first was sent.
        assert_eq!(rate.rate(), Rate { bytes: 4000, interval_us: 110_000, limited: false });
        assert_eq!(Rate::default().per_second(), 0);
    }
}
