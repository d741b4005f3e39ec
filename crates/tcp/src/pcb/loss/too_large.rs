//! The path MTU has fallen below some segments in flight: finds those that cannot arrive (RFC 1191 section 6.4), as
//! `tcp_simple_retransmit` of Linux does. Segments that fit the path were not dropped, and stay under way.
//!
//! Called by the event that lowers the MSS, once each time. Segments have no records of their own, so their sizes
//! follow from known boundaries: slices of the send log, SACKed ranges, retransmissions, the last partial segment, the
//! one that a router quotes. Between two boundaries there are full segments and at most one partial one. What may never
//! happen: a byte that the peer is known to hold counted as lost.

use wire::SeqNumber;

use super::{Loss, Resent, SendLog, bytes};

/// Segment sizes before and now, in bytes of data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Of a full segment.
    pub(crate) before: u32,
    /// Of the largest segment that passes, less than `before`.
    pub(crate) now: u32,
}

impl Sizes {
    /// The number of the `data` bytes, sent as full segments and a rest, that are in too large segments.
    fn too_large(self, data: u32) -> u32 {
        let rest = data % self.before.max(1);
        if rest > self.now { data } else { data - rest }
    }
}

/// The flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// SND.UNA.
    pub(crate) una: SeqNumber,
    /// SND.NXT.
    pub(crate) nxt: SeqNumber,
    /// A FIN is its last byte.
    pub(crate) fin: bool,
}

impl Loss {
    /// Marks segments larger than `sizes.now` as lost and not retransmitted; `ends`: further segment boundaries. False
    /// if nothing is too large.
    pub(crate) fn lose_larger(&mut self, log: &SendLog, flight: Flight, sizes: Sizes, ends: &[SeqNumber]) -> bool {
        let mut runs = self.classify(log, flight, sizes, ends);
        if !runs.iter().any(|run| run.lost) {
            return false;
        }
        // Later bytes sent only once are under way by the send log.
        let again = self.high_rxt;
        runs.truncate(runs.iter().rposition(|run| run.lost || run.right.le(again)).map_or(0, |last| last + 1));
        self.lose_everything(flight.una, flight.nxt);
        let Some(last) = runs.last() else { return false };
        self.lost_edge = last.right;
        if runs.iter().all(|run| run.lost) {
            return true;
        }
        self.high_rxt = self.lost_edge;
        self.resend_first = runs.first().is_some_and(|run| run.lost);
        for run in &runs {
            *if run.lost { &mut self.lost_again } else { &mut self.under_way } += run.len();
        }
        // No run under way is older, so RACK examines each of them once.
        self.oldest = runs.iter().find(|run| !run.lost).map_or(self.oldest, |run| run.first);
        self.resent = runs.into();
        true
    }

    /// All bytes neither acknowledged nor SACKed, in order: lost runs and others.
    fn classify(&self, log: &SendLog, flight: Flight, sizes: Sizes, ends: &[SeqNumber]) -> Vec<Resent> {
        let Flight { una, nxt, .. } = flight;
        let again = self.resent.iter().flat_map(|run| [run.left, run.right]);
        let known = log.edges(una).chain(again).chain([self.high_rxt, self.lost_edge]).chain(ends.iter().copied());
        let mut ends: Vec<SeqNumber> = known.filter(|end| end.gt(una) && end.lt(nxt)).collect();
        ends.sort_unstable_by_key(|end| bytes(una, *end));
        let (mut runs, mut next, mut at) = (Vec::new(), 0, una);
        while let Some((mut left, right)) = self.board.hole_from(at, nxt) {
            at = right;
            while left.lt(right) {
                while ends.get(next).is_some_and(|end| end.le(left)) {
                    next += 1;
                }
                let end = ends.get(next).map_or(right, |end| end.min(right));
                self.classify_piece(log, flight, sizes, (left, end), &mut runs);
                left = end;
            }
        }
        runs
    }

    /// `[left, right)` was sent as full segments and at most one partial one.
    fn classify_piece(
        &self,
        log: &SendLog,
        flight: Flight,
        sizes: Sizes,
        (left, right): (SeqNumber, SeqNumber),
        runs: &mut Vec<Resent>,
    ) {
        let run = self.resent.get(self.resent.partition_point(|run| run.right.le(left)));
        let run = run.filter(|run| run.left.le(left));
        let known = run.is_some_and(|run| run.lost) || left.ge(self.high_rxt) && left.lt(self.lost_edge);
        let len = bytes(left, right);
        let fin = u32::from(flight.fin && right == flight.nxt);
        let lost = match sizes.too_large(len - fin) {
            _ if known => len,
            // The FIN was part of the last segment.
            data if data > 0 && data == len - fin => len,
            data => data,
        };
        let (first, last) = run.map_or_else(|| log.span_of(right), |run| (run.first, run.last));
        let edge = left + lost;
        add(runs, Resent { left, right: edge, first, last, lost: true });
        add(runs, Resent { left: edge, right, first, last, lost: false });
    }
}

/// Appends a run. Adjacent lost runs are merged, because their times no longer matter.
fn add(runs: &mut Vec<Resent>, run: Resent) {
    match runs.last_mut().filter(|last| last.lost && run.lost && last.right == run.left) {
        Some(last) => last.right = run.right,
        None if run.len() > 0 => runs.push(run),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNA: SeqNumber = SeqNumber(u32::MAX - 2000);
    const SIZES: Sizes = Sizes { before: 1000, now: 700 };

    fn at(offset: u32) -> SeqNumber {
        UNA + offset
    }

    fn flight(len: u32) -> Flight {
        Flight { una: UNA, nxt: at(len), fin: false }
    }

    /// The retransmissions, in segments of the new size, and the bytes that count as under way.
    fn again(loss: &mut Loss, flight: Flight) -> (Vec<(u32, u32)>, u32) {
        let pipe = loss.pipe(flight.una, flight.nxt);
        let mut sent = Vec::new();
        while let Some((left, right)) = loss.next_lost(UNA, SIZES.now) {
            loss.sent_again(left, right, 100, 0);
            sent.push((bytes(UNA, left), bytes(UNA, right)));
        }
        (sent, pipe)
    }

    fn log(slices: &[(u32, u32)]) -> SendLog {
        let mut log = SendLog::new();
        slices.iter().for_each(|(from, now)| _ = log.sent(UNA, at(*from), *now, 0));
        log
    }

    #[test]
    fn full_segments_are_lost_and_the_small_one_behind_them_is_not() {
        let (mut loss, flight) = (Loss::new(UNA), flight(2300));
        assert!(loss.lose_larger(&log(&[(0, 1)]), flight, SIZES, &[]));
        assert!(loss.resend_first);
        let (sent, pipe) = again(&mut loss, flight);
        assert_eq!(sent, [(0, 700), (700, 1400), (1400, 2000)]);
        assert_eq!(pipe, 300);
    }

    #[test]
    fn small_segments_before_and_between_are_left_under_way() {
        let (mut loss, flight) = (Loss::new(UNA), flight(2900));
        let log = log(&[(0, 1), (500, 2), (1500, 3), (1900, 4)]);
        assert!(loss.lose_larger(&log, flight, SIZES, &[]));
        assert!(!loss.resend_first, "the first byte was not refused");
        let (sent, pipe) = again(&mut loss, flight);
        assert_eq!(sent, [(500, 1200), (1200, 1500), (1900, 2600), (2600, 2900)]);
        assert_eq!(pipe, 900);
        let delivery = loss.deliver_up_to(&log, UNA, at(500));
        assert_eq!(delivery.again.map(|sent| sent.at), Some(1), "when it left, and not when it was judged");
    }

    #[test]
    fn nothing_is_lost_of_small_segments() {
        let (mut loss, log) = (Loss::new(UNA), log(&[(0, 1), (600, 2)]));
        assert!(!loss.lose_larger(&log, flight(1300), SIZES, &[]));
        assert!(!loss.any_lost(UNA) && !loss.resend_first);
        assert!(loss.lose_larger(&log, flight(1301), SIZES, &[]), "but of one that is a byte too large");
        assert!(!Loss::new(UNA).lose_larger(&SendLog::new(), flight(1300), SIZES, &[at(600)]), "a known end tells");
    }

    #[test]
    fn what_is_sacked_is_not_sent_again_and_its_edges_tell_sizes() {
        let (mut loss, flight) = (Loss::new(UNA), flight(4000));
        let mut blocks = wire::tcp::SackBlocks::EMPTY;
        blocks.push(at(400), at(1400));
        loss.board.update(&blocks, UNA, at(4000), |_, _| {});
        assert!(loss.lose_larger(&log(&[(0, 1)]), flight, SIZES, &[at(3400)]));
        assert_eq!(again(&mut loss, flight).0, [(1400, 2100), (2100, 2800), (2800, 3400)]);
    }

    #[test]
    fn what_was_sent_again_too_large_is_lost_again() {
        let (mut loss, flight) = (Loss::new(UNA), flight(3000));
        loss.lose_everything(UNA, at(2000));
        loss.sent_again(at(0), at(1000), 50, 0);
        loss.sent_again(at(1000), at(1600), 60, 0);
        assert!(loss.lose_larger(&log(&[(0, 1)]), flight, SIZES, &[]));
        let (sent, pipe) = again(&mut loss, flight);
        assert_eq!(sent, [(0, 700), (700, 1000), (1600, 2300), (2300, 3000)]);
        assert_eq!(pipe, 600, "what left again and is small enough");
    }

    #[test]
    fn a_fin_shares_the_fate_of_its_segment() {
        for (data, lost) in [(1000, 1001), (1700, 1000), (1800, 1801), (300, 0)] {
            let (mut loss, flight) = (Loss::new(UNA), Flight { fin: true, ..flight(data + 1) });
            loss.lose_larger(&log(&[(0, 1)]), flight, SIZES, &[]);
            assert_eq!(loss.lost_in_all(UNA), lost, "{data}");
        }
    }

    proptest! {
        /// Every byte is SACKed, lost or under way, before and after; no SACKed byte is retransmitted, and none twice.
        #[test]
        fn every_byte_is_somewhere(
            cuts in prop::collection::vec(1u32..1500, 1..12),
            sacked in prop::collection::vec((0u32..6000, 1u32..900), 0..4),
            timed_out in any::<bool>(),
            resent in prop::collection::vec(1u32..900, 0..4),
            narrower in prop::collection::vec(1u32..900, 1..3),
        ) {
            let mut log = SendLog::new();
            let mut nxt = 0;
            for (cut, now) in cuts.iter().zip(1..) {
                log.sent(UNA, at(nxt), now, 0);
                nxt += cut;
            }
            let (mut loss, flight) = (Loss::new(UNA), flight(nxt));
            for (left, len) in sacked {
                let mut blocks = wire::tcp::SackBlocks::EMPTY;
                blocks.push(at(left), at(left + len));
                loss.board.update(&blocks, UNA, at(nxt), |_, _| {});
            }
            if timed_out {
                loss.lose_everything(UNA, at(nxt));
            }
            for len in resent {
                if let Some((left, right)) = loss.next_lost(UNA, len) {
                    loss.sent_again(left, right, 50, 0);
                }
            }
            let mut before = 1500;
            for now in narrower {
                let sizes = Sizes { before, now: now.min(before - 1).max(1) };
                loss.lose_larger(&log, flight, sizes, &[]);
                let whole = loss.pipe(UNA, at(nxt)) + loss.lost(UNA) + loss.board.sacked_bytes();
                prop_assert_eq!(whole, nxt, "{:?}", loss);
                before = sizes.now.max(2);
            }
            let mut left_again = 0;
            let lost = loss.lost(UNA);
            while let Some((left, right)) = loss.next_lost(UNA, 400) {
                prop_assert_eq!(loss.board.hole_from(left, right), Some((left, right)));
                loss.sent_again(left, right, 90, 0);
                left_again += bytes(left, right);
            }
            prop_assert_eq!((left_again, loss.lost(UNA)), (lost, 0));
        }
    }
}
