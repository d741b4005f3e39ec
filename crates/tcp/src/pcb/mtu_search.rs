//! The search for the largest segment that the path carries, without help from ICMP (RFC 4821, RFC 8899 section 5):
//! what `tcp_mtu_probing` of Linux does.
//!
//! A probe is a segment of new data that is larger than the others: halfway between the largest size known to pass and
//! the smallest known not to. Once it is acknowledged all segments have its size. Its loss is no sign of congestion:
//! its data is sent again in segments of the usual size, the window stays, and nothing as large is tried until the
//! search starts again. Kept among the limits that few connections have. `output` calls it before new data is sent; the
//! acknowledgement step reports losses to it, and the time-outs report silence. Sizes are bytes of data and options.
//!
//! What may never happen: two probes in flight, or a size counted as passing without an acknowledged segment of that
//! size.

use core::time::Duration;

use observe::Time;
use wire::SeqNumber;

/// A segment larger than the largest known to pass.
#[derive(Clone, Copy, Debug)]
struct MtuProbe {
    left: SeqNumber,
    right: SeqNumber,
    size: u16,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct MtuSearch {
    /// Passes.
    low: u16,
    /// Nothing larger passes.
    high: u16,
    /// The largest size of the peer and the first hop, from which the search starts again.
    limit: u16,
    probe: Option<MtuProbe>,
    /// When the search began.
    began: Time,
    /// The generation of the routes that `limit` is from ([`crate::Outbox::routes`]); 0: of the time when the
    /// connection opened.
    routes: u32,
}

impl MtuSearch {
    /// A search between `low`, which passes nearly everywhere, and `limit`.
    pub(crate) fn new(low: u16, limit: u16, now: Time) -> MtuSearch {
        MtuSearch { low: low.min(limit), high: limit, limit, probe: None, began: now, routes: 0 }
    }

    /// The largest size that passes.
    pub(crate) fn low(&self) -> u16 {
        self.low
    }

    /// If everything below `una` has arrived, and the probe with it: the size that passes now.
    pub(crate) fn passed(&mut self, una: SeqNumber) -> Option<u16> {
        let probe = self.probe.take_if(|probe| una.ge(probe.right))?;
        self.low = self.low.max(probe.size);
        self.high = self.high.max(self.low);
        Some(self.low)
    }

    /// The size to probe next, if there is one larger than `in_use`: sizes closer than `threshold` are not
    /// distinguished, and after each `interval` the search starts again.
    pub(crate) fn next(&mut self, in_use: u16, threshold: u16, interval: Duration, now: Time) -> Option<u16> {
        if self.probe.is_some() {
            return None;
        }
        if now - self.began >= interval {
            self.high = self.limit;
            self.began = now;
        }
        let middle = |low: u16, high: u16| {
            let gap = high.saturating_sub(low);
            (gap >= threshold.max(1)).then(|| high - gap / 2)
        };
        // A search that began with the route's MTU relies on it until a loss refutes it.
        middle(self.low, self.high)
            .filter(|size| *size > in_use)
            .or_else(|| middle(self.low.max(in_use), self.high).filter(|size| *size > in_use))
    }

    /// Whether the routes have changed, to generation `routes`, since the search last saw them.
    pub(crate) fn is_behind(&self, routes: u32) -> bool {
        self.routes != routes
    }

    /// The search has seen the routes of this generation.
    pub(crate) fn heard_of(&mut self, routes: u32) {
        self.routes = routes;
    }

    /// Whether a probe is in flight.
    pub(crate) fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// A probe of `size` has left.
    pub(crate) fn sent(&mut self, left: SeqNumber, right: SeqNumber, size: u16) {
        self.probe = Some(MtuProbe { left, right, size });
    }

    /// The segment at `una` is lost: returns the end of the probe, if it is the probe.
    pub(crate) fn lost(&mut self, una: SeqNumber) -> Option<SeqNumber> {
        let probe = self.probe.take_if(|probe| probe.left == una)?;
        self.high = self.high.min(probe.size.saturating_sub(1)).max(self.low);
        Some(probe.right)
    }

    /// The loss of the probe is inconclusive: other segments are lost, too.
    pub(crate) fn inconclusive(&mut self) {
        self.probe = None;
    }

    /// A router or the user allows no more than `size`.
    pub(crate) fn at_most(&mut self, size: u16) {
        self.limit = self.limit.min(size);
        self.high = self.high.min(size);
        self.low = self.low.min(size);
    }

    /// The first hop carries `size` now: raises the limit of the search to it.
    pub(crate) fn may_pass(&mut self, size: u16) {
        if size > self.limit {
            (self.limit, self.high) = (size, size);
        }
    }

    /// Even the size `in_use` seems not to pass: falls back to the size known to pass or, if that is no less, half of
    /// it, within `floor..=base`.
    pub(crate) fn retreat(&mut self, in_use: u16, base: u16, floor: u16) -> u16 {
        if self.low >= in_use {
            self.low = (self.low / 2).min(base).max(floor).min(self.low);
        }
        self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn search() -> MtuSearch {
        MtuSearch::new(512, 1460, Time::ZERO)
    }

    #[test]
    fn sizes_are_halved_until_they_are_too_close() {
        let mut s = search();
        let path = 1300;
        let (mut una, mut sizes) = (SeqNumber(u32::MAX - 3000), Vec::new());
        while let Some(size) = s.next(512, 8, HOUR, Time::ZERO) {
            let end = una + u32::from(size);
            s.sent(una, end, size);
            assert_eq!(s.next(512, 8, HOUR, Time::ZERO), None, "one at a time");
            assert!(s.passed(una).is_none() && s.passed(end - 1).is_none());
            if size <= path {
                assert_eq!(s.passed(end), Some(size));
            } else {
                assert_eq!(s.lost(una + 1), None, "something else is lost");
                assert_eq!(s.lost(una), Some(end));
            }
            una = end;
            sizes.push(size);
        }
        assert_eq!(sizes, [986, 1223, 1342, 1282, 1312, 1297, 1304]);
        assert_eq!(s.low(), 1297, "within the threshold of {path}");
    }

    #[test]
    fn the_path_is_looked_at_anew() {
        let mut s = search();
        s.sent(SeqNumber(0), SeqNumber(986), 986);
        s.lost(SeqNumber(0));
        assert_eq!(s.next(512, 8, HOUR, Time::ZERO + HOUR / 2), Some(749));
        assert_eq!(s.next(512, 8, HOUR, Time::ZERO + HOUR), Some(986));
        s.at_most(700);
        assert_eq!(s.next(512, 8, HOUR, Time::ZERO + 3 * HOUR), Some(606), "what a router says stays");
    }

    #[test]
    fn a_wider_first_hop_is_searched_and_a_narrower_one_is_not_widened() {
        let mut s = search();
        s.at_most(600);
        assert_eq!(s.next(512, 8, HOUR, Time::ZERO), Some(556));
        s.may_pass(500);
        assert_eq!(s.next(512, 8, HOUR, Time::ZERO), Some(556));
        s.may_pass(1460);
        assert_eq!(s.next(512, 8, HOUR, Time::ZERO), Some(986));
    }

    #[test]
    fn silence_says_nothing_of_a_probe_and_makes_the_rest_smaller() {
        let mut s = search();
        s.sent(SeqNumber(0), SeqNumber(986), 986);
        s.inconclusive();
        assert_eq!(s.next(512, 8, HOUR, Time::ZERO), Some(986), "tried again");
        assert_eq!([s.retreat(512, 1024, 48), s.retreat(256, 1024, 48), s.retreat(128, 1024, 100)], [256, 128, 100]);
        assert_eq!(s.retreat(100, 1024, 300), 100, "never upwards");
    }

    /// The initial size of the accepting end in Linux's profile.
    #[test]
    fn what_is_in_use_is_neither_probed_nor_given_up_at_once() {
        let mut s = search();
        assert_eq!(s.next(1460, 8, HOUR, Time::ZERO), None, "there is nothing above");
        assert_eq!(s.next(600, 8, HOUR, Time::ZERO), Some(986), "between what passes nearly everywhere and what may");
        s.at_most(1100);
        assert_eq!(s.next(900, 8, HOUR, Time::ZERO), Some(1000), "that would be 806, which is in use");
        assert_eq!([s.retreat(900, 1024, 48), s.retreat(512, 1024, 48)], [512, 256]);
    }

    #[test]
    fn routes_are_heard_of_once() {
        let mut s = search();
        assert!(!s.is_behind(0) && s.is_behind(7));
        s.heard_of(7);
        assert!(!s.is_behind(7) && s.is_behind(9));
    }
}
