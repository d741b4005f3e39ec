//! The sender's SACK scoreboard: which octets between SND.UNA and SND.NXT the peer says it holds, what follows from it
//! for loss recovery (RFC 6675), and the reading of D-SACK blocks (RFC 2883).
//!
//! The send side calls [`Scoreboard::update`] with the blocks of every acceptable acknowledgement,
//! [`Scoreboard::ack_to`] when SND.UNA moves, and during recovery asks [`Scoreboard::next_segment`] what to send while
//! [`Scoreboard::pipe`] leaves room below the congestion window. On a retransmission time-out it calls
//! [`Scoreboard::clear`], because SACK is advisory and the peer may have reneged (RFC 2018 section 8); data leaves the
//! retransmit queue only by the cumulative acknowledgement, never from here.
//!
//! Ranges are disjoint, never adjacent, sorted by sequence number, and at most [`MAX_RANGES`]. The work per block is
//! one binary search and one move of at most 1 KiB, whatever the peer sends (CVE-2019-11477 and its relatives). What may
//! never happen: an octet at SND.UNA counts as received, for then nobody would send it again.

use wire::SeqNumber;
use wire::tcp::SackBlocks;

/// The most ranges remembered. A block that would need one more is ignored, which is safe: the octets count as not
/// received and are at worst sent twice.
pub const MAX_RANGES: usize = 128;

/// DupThresh of RFC 6675: so many duplicate acknowledgements, or discontiguous SACKed ranges above an octet, say that
/// the octet is lost.
pub const DUP_THRESH: u32 = 3;

/// Octets `[left, right)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    left: SeqNumber,
    right: SeqNumber,
}

impl Range {
    #[inline]
    fn len(self) -> u32 {
        distance(self.left, self.right)
    }
}

/// Octets from `left` to `right`; the caller knows that `left` is not after `right`.
#[inline]
fn distance(left: SeqNumber, right: SeqNumber) -> u32 {
    (right - left) as u32
}

/// What is on the heap while anything is SACKed.
#[derive(Clone, Debug)]
struct Board {
    ranges: Vec<Range>,
    /// Sum of the lengths of `ranges`.
    octets: u32,
}

/// What RFC 6675's NextSeg() says to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextSegment {
    /// Rules 1 and 3: send `[left, right)` again, and advance HighRxt to `right`.
    Retransmit {
        /// First octet.
        left: SeqNumber,
        /// One past the last octet; at most one MSS after `left`.
        right: SeqNumber,
    },
    /// Rule 2: send new data from SND.NXT.
    New,
    /// Rule 4: send `[left, right)` again, set RescueRxt to the recovery point, and leave HighRxt alone.
    Rescue {
        /// First octet.
        left: SeqNumber,
        /// One past the last octet; at most one MSS after `left`.
        right: SeqNumber,
    },
    /// There is nothing to send.
    None,
}

/// What the sender knows beyond the scoreboard when it asks for the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits {
    /// There is unsent data and the peer's window has room for it (rule 2).
    pub new_data: bool,
    /// No rescue retransmission was made in this recovery, or HighACK has passed RescueRxt since (rule 4).
    pub rescue: bool,
}

/// The scoreboard. Eight bytes and no heap while nothing is SACKed.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    board: Option<Box<Board>>,
}

impl Scoreboard {
    /// Nothing SACKed.
    pub const fn new() -> Scoreboard {
        Scoreboard { board: None }
    }

    /// Forgets everything the peer said: after a retransmission time-out (RFC 2018 section 8), or at the end.
    pub fn clear(&mut self) {
        self.board = None;
    }

    /// Whether no octet is SACKed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.board.is_none()
    }

    /// Number of octets SACKed.
    #[inline]
    pub fn sacked_octets(&self) -> u32 {
        self.board.as_ref().map_or(0, |b| b.octets)
    }

    /// One past the highest octet SACKed.
    #[inline]
    pub fn highest(&self) -> Option<SeqNumber> {
        self.ranges().last().map(|r| r.right)
    }

    #[inline]
    fn ranges(&self) -> &[Range] {
        self.board.as_ref().map_or(&[], |b| &b.ranges)
    }

    /// Takes the blocks of an acknowledgement; `una` and `nxt` are SND.UNA after that acknowledgement, and SND.NXT.
    /// Returns how many octets became SACKed.
    ///
    /// Blocks at or below `una` (D-SACK, or older than the acknowledgement), above `nxt` (nonsense) or empty are
    /// ignored. So is one that begins at `una` itself: it contradicts the acknowledgement that it came with.
    #[inline]
    pub fn update(&mut self, blocks: &SackBlocks, una: SeqNumber, nxt: SeqNumber) -> u32 {
        let mut newly = 0;
        for (left, right) in blocks.iter() {
            if left.gt(una) && left.lt(right) && right.le(nxt) {
                newly += self.insert(Range { left, right });
            }
        }
        newly
    }

    /// Adds one range, merged with every range that it touches; returns how many of its octets are new.
    fn insert(&mut self, new: Range) -> u32 {
        let board = self.board.get_or_insert_with(|| Box::new(Board { ranges: Vec::with_capacity(4), octets: 0 }));
        let ranges = &mut board.ranges;
        let first = ranges.partition_point(|r| r.right.lt(new.left));
        let end = first + ranges[first..].partition_point(|r| r.left.le(new.right));
        if first == end {
            if ranges.len() >= MAX_RANGES {
                return 0;
            }
            ranges.insert(first, new);
            board.octets += new.len();
            return new.len();
        }
        let merged = Range { left: ranges[first].left.min(new.left), right: ranges[end - 1].right.max(new.right) };
        let known: u32 = ranges[first..end].iter().map(|r| r.len()).sum();
        ranges[first] = merged;
        ranges.drain(first + 1..end);
        board.octets += merged.len() - known;
        merged.len() - known
    }

    /// SND.UNA has moved to `una`: forgets what lies below.
    ///
    /// A range that contains `una` goes whole: had the peer still held `una`, it would have acknowledged further.
    #[inline]
    pub fn ack_to(&mut self, una: SeqNumber) {
        if let Some(board) = &mut self.board {
            let passed = board.ranges.partition_point(|r| r.left.le(una));
            if passed == board.ranges.len() {
                self.board = None;
            } else if passed > 0 {
                board.octets -= board.ranges[..passed].iter().map(|r| r.len()).sum::<u32>();
                board.ranges.drain(..passed);
            }
        }
    }

    /// Whether every octet of `[left, right)` is SACKed.
    #[inline]
    pub fn is_sacked(&self, left: SeqNumber, right: SeqNumber) -> bool {
        let ranges = self.ranges();
        let i = ranges.partition_point(|r| r.right.le(left));
        ranges.get(i).is_some_and(|r| r.left.le(left) && r.right.ge(right))
    }

    /// The octet below which everything that is not SACKed counts as lost: IsLost() of RFC 6675 section 4, for all
    /// octets at once. `None`: nothing is lost.
    ///
    /// An octet is lost when `dup_thresh` discontiguous ranges, or more than `(dup_thresh - 1) * mss` octets, are SACKed
    /// above it. Both only grow downwards, so the answer is the left edge of a range, found after at most `dup_thresh`
    /// steps from the top.
    #[inline]
    pub fn lost_below(&self, mss: u32, dup_thresh: u32) -> Option<SeqNumber> {
        self.lost_edge(mss, dup_thresh).map(|(edge, _)| edge)
    }

    /// [`Scoreboard::lost_below`], and the number of octets SACKed above it.
    fn lost_edge(&self, mss: u32, dup_thresh: u32) -> Option<(SeqNumber, u32)> {
        let thresh = dup_thresh.max(1);
        let enough_octets = (thresh - 1).saturating_mul(mss);
        let mut above = 0u32;
        for (n, range) in (1u32..).zip(self.ranges().iter().rev()) {
            above += range.len();
            if n >= thresh || above > enough_octets {
                return Some((range.left, above));
            }
        }
        None
    }

    /// IsLost() of RFC 6675 for the octet `seq`: it is not SACKed, but enough above it is.
    #[inline]
    pub fn is_lost(&self, seq: SeqNumber, mss: u32, dup_thresh: u32) -> bool {
        self.lost_below(mss, dup_thresh).is_some_and(|edge| seq.lt(edge)) && !self.is_sacked(seq, seq + 1)
    }

    /// SetPipe() of RFC 6675 section 4: an estimate of the octets in the network, between `una` (HighACK + 1) and `nxt`
    /// (HighData + 1).
    ///
    /// `high_rxt` is one past the highest octet retransmitted in this recovery, or `una` if there is none. Every octet
    /// not SACKed counts once unless it is lost, and once more if it was retransmitted. DupThresh is [`DUP_THRESH`].
    pub fn pipe(&self, una: SeqNumber, nxt: SeqNumber, high_rxt: SeqNumber, mss: u32) -> u32 {
        let retransmitted = high_rxt.max(una);
        let again = distance(una, retransmitted).saturating_sub(self.sacked_below(retransmitted));
        let once = match self.lost_edge(mss, DUP_THRESH) {
            Some((edge, above)) => distance(edge, nxt).saturating_sub(above),
            None => distance(una, nxt).saturating_sub(self.sacked_octets()),
        };
        once + again
    }

    /// Number of octets SACKed below `seq`.
    pub fn sacked_below(&self, seq: SeqNumber) -> u32 {
        let ranges = self.ranges();
        let whole = ranges.partition_point(|r| r.right.le(seq));
        let sum: u32 = ranges[..whole].iter().map(|r| r.len()).sum();
        sum + ranges.get(whole).map_or(0, |r| if r.left.lt(seq) { distance(r.left, seq) } else { 0 })
    }

    /// NextSeg() of RFC 6675 section 4: what to send while the pipe has room. `high_rxt` as in [`Scoreboard::pipe`];
    /// DupThresh is [`DUP_THRESH`].
    pub fn next_segment(
        &self,
        una: SeqNumber,
        nxt: SeqNumber,
        high_rxt: SeqNumber,
        mss: u32,
        permits: Permits,
    ) -> NextSegment {
        let hole = self.hole_from(high_rxt.max(una));
        if let Some(Range { left, right }) = hole
            && self.lost_below(mss, DUP_THRESH).is_some_and(|edge| left.lt(edge))
        {
            return NextSegment::Retransmit { left, right: first_segment(left, right, mss) };
        }
        if permits.new_data {
            return NextSegment::New;
        }
        if let Some(Range { left, right }) = hole {
            return NextSegment::Retransmit { left, right: first_segment(left, right, mss) };
        }
        match self.last_hole(una, nxt) {
            Some(Range { left, right }) if permits.rescue => {
                NextSegment::Rescue { left: right - distance(left, right).min(mss), right }
            }
            _ => NextSegment::None,
        }
    }

    /// The first octets at or after `from` that are not SACKed but lie below some that are.
    fn hole_from(&self, from: SeqNumber) -> Option<Range> {
        let ranges = self.ranges();
        let i = ranges.partition_point(|r| r.right.le(from));
        let next = ranges.get(i)?;
        if from.lt(next.left) {
            return Some(Range { left: from, right: next.left });
        }
        // `from` is inside a range; ranges are never adjacent, so the hole after it is not empty.
        Some(Range { left: next.right, right: ranges.get(i + 1)?.left })
    }

    /// The highest octets below `nxt` that are not SACKed.
    fn last_hole(&self, una: SeqNumber, nxt: SeqNumber) -> Option<Range> {
        let ranges = self.ranges();
        let (below, right) = match ranges.split_last() {
            Some((last, below)) if last.right == nxt => (below, last.left),
            _ => (ranges, nxt),
        };
        let left = below.last().map_or(una, |r| r.right);
        left.lt(right).then_some(Range { left, right })
    }
}

/// The right edge of the first segment of a hole.
#[inline]
fn first_segment(left: SeqNumber, right: SeqNumber, mss: u32) -> SeqNumber {
    left + distance(left, right).min(mss)
}

/// The duplicate that the peer reports in an acknowledgement of `ack`, if the first block is a D-SACK block: it lies
/// below the acknowledgement number, or inside the second block (RFC 2883 section 4).
#[inline]
pub fn dsack(blocks: &SackBlocks, ack: SeqNumber) -> Option<(SeqNumber, SeqNumber)> {
    let (&(left, right), others) = blocks.as_slice().split_first()?;
    let inside_second = others.first().is_some_and(|&(l, r)| l.le(left) && r.ge(right));
    (left.lt(right) && (right.le(ack) || inside_second)).then_some((left, right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const MSS: u32 = 100;
    /// The sequence space of the tests begins here and wraps after 1000 octets.
    const UNA: SeqNumber = SeqNumber(u32::MAX - 999);
    const MAY: Permits = Permits { new_data: true, rescue: true };
    const MAY_NOT: Permits = Permits { new_data: false, rescue: false };

    fn at(offset: u32) -> SeqNumber {
        UNA + offset
    }

    fn blocks(ranges: &[(u32, u32)]) -> SackBlocks {
        ranges.iter().map(|&(l, r)| (at(l), at(r))).collect()
    }

    fn board(ranges: &[(u32, u32)]) -> Scoreboard {
        let mut board = Scoreboard::new();
        for range in ranges {
            board.update(&blocks(&[*range]), UNA, at(1_000_000));
        }
        board
    }

    fn retransmit(left: u32, right: u32) -> NextSegment {
        NextSegment::Retransmit { left: at(left), right: at(right) }
    }

    #[test]
    fn is_eight_octets() {
        assert_eq!(size_of::<Scoreboard>(), 8);
    }

    #[test]
    fn ranges_merge_and_the_newly_sacked_are_counted_once() {
        let mut b = Scoreboard::new();
        let nxt = at(2000);
        assert_eq!(b.update(&blocks(&[(100, 200)]), UNA, nxt), 100);
        assert_eq!(b.update(&blocks(&[(100, 200)]), UNA, nxt), 0);
        assert_eq!(b.update(&blocks(&[(300, 400), (100, 200)]), UNA, nxt), 100);
        assert_eq!(b.update(&blocks(&[(150, 350)]), UNA, nxt), 100);
        assert_eq!(b.ranges().len(), 1);
        assert_eq!(b.update(&blocks(&[(400, 500)]), UNA, nxt), 100);
        assert_eq!((b.ranges().len(), b.sacked_octets(), b.highest()), (1, 400, Some(at(500))));
        assert!(b.is_sacked(at(100), at(500)) && !b.is_sacked(at(99), at(101)) && !b.is_sacked(at(499), at(501)));
    }

    #[test]
    fn nonsense_is_ignored() {
        let mut b = Scoreboard::new();
        let wrong = [(200, 200), (300, 200), (900, 1100), (0, 100)];
        assert_eq!(b.update(&blocks(&wrong), UNA, at(1000)), 0);
        assert_eq!(b.update(&SackBlocks::from_iter([(UNA - 500, UNA - 400), (UNA - 10, UNA + 10)]), UNA, at(1000)), 0);
        assert!(b.is_empty() && b.highest().is_none());
    }

    #[test]
    fn memory_is_bounded_and_returned() {
        let mut b = Scoreboard::new();
        for i in 0..100_000 {
            b.update(&blocks(&[(2 * i + 1, 2 * i + 2)]), UNA, at(200_001));
        }
        assert_eq!((b.ranges().len(), b.sacked_octets()), (MAX_RANGES, MAX_RANGES as u32));
        assert_eq!(b.update(&blocks(&[(1, 1000)]), UNA, at(200_001)), 999 - MAX_RANGES as u32);
        b.ack_to(at(1000));
        assert!(b.board.is_none());
    }

    #[test]
    fn a_cumulative_acknowledgement_removes_what_it_passes() {
        let mut b = board(&[(100, 200), (300, 400), (500, 600)]);
        b.ack_to(at(100));
        assert_eq!((b.ranges().len(), b.sacked_octets()), (2, 200), "the peer reneged on 100..200");
        b.ack_to(at(350));
        assert_eq!((b.ranges().len(), b.sacked_octets()), (1, 100), "and on 350..400");
        b.ack_to(at(600));
        assert!(b.is_empty());
    }

    #[test]
    fn three_ranges_or_more_than_two_segments_above_make_an_octet_lost() {
        let b = board(&[(100, 101), (200, 201)]);
        assert!(!b.is_lost(UNA, MSS, DUP_THRESH));
        let b = board(&[(100, 101), (200, 201), (300, 301)]);
        assert!(b.is_lost(UNA, MSS, DUP_THRESH) && b.is_lost(at(99), MSS, DUP_THRESH));
        assert!(!b.is_lost(at(100), MSS, DUP_THRESH), "it is SACKed");
        assert!(!b.is_lost(at(150), MSS, DUP_THRESH), "two ranges are above it");
        assert!(!board(&[(100, 300)]).is_lost(UNA, MSS, DUP_THRESH), "exactly two segments");
        assert!(board(&[(100, 301)]).is_lost(UNA, MSS, DUP_THRESH));
        assert!(!board(&[(100, 301)]).is_lost(at(301), MSS, DUP_THRESH));
    }

    /// One segment of ten is lost; pipe before and after its retransmission.
    #[test]
    fn pipe_follows_set_pipe() {
        let nxt = at(1000);
        let mut b = Scoreboard::new();
        assert_eq!(b.pipe(UNA, nxt, UNA, MSS), 1000);
        b.update(&blocks(&[(100, 200)]), UNA, nxt);
        assert_eq!(b.pipe(UNA, nxt, UNA, MSS), 900);
        b.update(&blocks(&[(100, 400)]), UNA, nxt);
        assert_eq!(b.pipe(UNA, nxt, UNA, MSS), 600, "the first segment is lost now");
        assert_eq!(b.pipe(UNA, nxt, at(100), MSS), 700, "and sent again");
        assert_eq!(b.pipe(UNA, nxt, at(400), MSS), 700, "what is SACKed below HighRxt does not count");
    }

    #[test]
    fn next_segment_follows_the_rules_in_order() {
        let b = board(&[(250, 300), (400, 700)]);
        let nxt = at(1000);
        let next = |high_rxt: u32, permits| b.next_segment(UNA, nxt, at(high_rxt), MSS, permits);
        // Rule 1: the lost holes, segment by segment, cut at what is SACKed.
        assert_eq!(next(0, MAY), retransmit(0, 100));
        assert_eq!(next(100, MAY), retransmit(100, 200));
        assert_eq!(next(200, MAY), retransmit(200, 250));
        assert_eq!(next(250, MAY), retransmit(300, 400));
        // Rule 2: nothing lost is left; the tail above the highest SACK is not taken for lost.
        assert_eq!(next(400, MAY), NextSegment::New);
        // Rule 4: without new data, the highest octets outstanding, once.
        let rescue = Permits { new_data: false, rescue: true };
        assert_eq!(next(400, rescue), NextSegment::Rescue { left: at(900), right: at(1000) });
        assert_eq!(next(400, MAY_NOT), NextSegment::None);
    }

    #[test]
    fn a_hole_that_is_not_yet_lost_waits_for_new_data() {
        let b = board(&[(100, 200)]);
        let nxt = at(1000);
        assert_eq!(b.next_segment(UNA, nxt, UNA, MSS, MAY), NextSegment::New);
        assert_eq!(b.next_segment(UNA, nxt, UNA, MSS, MAY_NOT), retransmit(0, 100));
    }

    #[test]
    fn the_rescue_includes_the_highest_octet_not_sacked() {
        let rescue = Permits { new_data: false, rescue: true };
        let ask = |ranges: &[(u32, u32)], nxt: u32| board(ranges).next_segment(UNA, at(nxt), at(nxt), MSS, rescue);
        assert_eq!(ask(&[(100, 200)], 250), NextSegment::Rescue { left: at(200), right: at(250) });
        assert_eq!(ask(&[(150, 200)], 200), NextSegment::Rescue { left: at(50), right: at(150) });
        assert_eq!(ask(&[(150, 160), (180, 200)], 200), NextSegment::Rescue { left: at(160), right: at(180) });
        assert_eq!(ask(&[], 50), NextSegment::Rescue { left: UNA, right: at(50) });
        assert_eq!(ask(&[], 0), NextSegment::None);
    }

    /// The acknowledgements of RFC 2883 section 4: below the cumulative acknowledgement, and inside the second block.
    #[test]
    fn dsack_is_recognised() {
        let ack = at(400);
        assert_eq!(dsack(&blocks(&[(300, 350), (450, 500)]), ack), Some((at(300), at(350))));
        assert_eq!(dsack(&blocks(&[(500, 550), (450, 600)]), ack), Some((at(500), at(550))));
        assert_eq!(dsack(&blocks(&[(450, 600), (500, 550)]), ack), None);
        assert_eq!(dsack(&blocks(&[(450, 600)]), ack), None);
        assert_eq!(dsack(&SackBlocks::EMPTY, ack), None);
    }

    /// The scoreboard as a set of octets, and RFC 6675's definitions read literally.
    #[derive(Default)]
    struct Octets(BTreeSet<u32>);

    impl Octets {
        const MSS: u32 = 20;

        fn is_lost(&self, octet: u32) -> bool {
            let above: Vec<u32> = self.0.range(octet + 1..).copied().collect();
            let ranges = above.iter().filter(|&&o| o == octet + 1 || !self.0.contains(&(o - 1))).count();
            !self.0.contains(&octet) && (ranges >= 3 || above.len() as u32 > 2 * Self::MSS)
        }

        fn pipe(&self, una: u32, nxt: u32, high_rxt: u32) -> u32 {
            let open = (una..nxt).filter(|o| !self.0.contains(o));
            open.map(|o| u32::from(!self.is_lost(o)) + u32::from(o < high_rxt)).sum()
        }

        fn next_segment(&self, una: u32, nxt: u32, high_rxt: u32, permits: Permits) -> NextSegment {
            let open = |o: &u32| !self.0.contains(o);
            let run = |left: u32| (left..nxt).take(Self::MSS as usize).take_while(open).count() as u32;
            let highest = self.0.last().copied().unwrap_or(0);
            let candidate = (high_rxt.max(una)..highest).find(open);
            match candidate {
                Some(o) if self.is_lost(o) => retransmit(o, o + run(o)),
                _ if permits.new_data => NextSegment::New,
                Some(o) => retransmit(o, o + run(o)),
                None => match (una..nxt).rev().find(open) {
                    Some(last) if permits.rescue => {
                        let n = (una..=last).rev().take(Self::MSS as usize).take_while(open).count() as u32;
                        NextSegment::Rescue { left: at(last + 1 - n), right: at(last + 1) }
                    }
                    _ => NextSegment::None,
                },
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Sack(Vec<(u32, u32)>),
        Ack(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let block = (0u32..300, 0u32..40).prop_map(|(left, len)| (left, left + len));
        prop_oneof![
            5 => proptest::collection::vec(block, 1..=4).prop_map(Step::Sack),
            1 => (0u32..80).prop_map(Step::Ack),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_octets(steps in proptest::collection::vec(step(), 1..20), high_rxt in 0u32..300) {
            const NXT: u32 = 320;
            let una_at = |offset: u32| at(offset + 900);
            let blocks = |ranges: &[(u32, u32)]| -> SackBlocks {
                ranges.iter().map(|&(l, r)| (una_at(l), una_at(r))).collect()
            };
            let shift = |next| match next {
                NextSegment::Retransmit { left, right } => NextSegment::Retransmit { left: left + 900, right: right + 900 },
                NextSegment::Rescue { left, right } => NextSegment::Rescue { left: left + 900, right: right + 900 },
                other => other,
            };
            let (mut b, mut model, mut una) = (Scoreboard::new(), Octets::default(), 0);
            for step in steps {
                match step {
                    Step::Sack(ranges) => {
                        let before = model.0.len();
                        for &(l, r) in ranges.iter().filter(|(l, r)| *l > una && l < r && *r <= NXT) {
                            model.0.extend(l..r);
                        }
                        let newly = b.update(&blocks(&ranges), una_at(una), una_at(NXT));
                        prop_assert_eq!(newly as usize, model.0.len() - before);
                    }
                    Step::Ack(n) => {
                        una = (una + n).min(NXT);
                        // The range that contains SND.UNA is given up to its end.
                        let end = (una..).find(|o| !model.0.contains(o)).unwrap();
                        model.0 = model.0.split_off(&end);
                        b.ack_to(una_at(una));
                    }
                }
                let high = high_rxt.max(una);
                prop_assert_eq!(b.sacked_octets() as usize, model.0.len());
                prop_assert_eq!(b.is_empty(), model.0.is_empty());
                for o in una..NXT {
                    prop_assert_eq!(b.is_sacked(una_at(o), una_at(o + 1)), model.0.contains(&o));
                    prop_assert_eq!(b.is_lost(una_at(o), Octets::MSS, DUP_THRESH), model.is_lost(o), "octet {}", o);
                }
                let pipe = b.pipe(una_at(una), una_at(NXT), una_at(high), Octets::MSS);
                prop_assert_eq!(pipe, model.pipe(una, NXT, high));
                for permits in [MAY, MAY_NOT, Permits { new_data: false, rescue: true }] {
                    let next = b.next_segment(una_at(una), una_at(NXT), una_at(high), Octets::MSS, permits);
                    prop_assert_eq!(next, shift(model.next_segment(una, NXT, high, permits)));
                }
            }
        }
    }
}
