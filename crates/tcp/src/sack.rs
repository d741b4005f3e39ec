//! The sender's SACK scoreboard: which bytes between SND.UNA and SND.NXT the peer has reported (RFC 2018), and the
//! reading of D-SACK blocks (RFC 2883).
//!
//! The acknowledgement step calls [`Scoreboard::update`] with the blocks of every acceptable acknowledgement and
//! [`Scoreboard::ack_to`] when SND.UNA moves; `pcb/loss.rs` decides which of the other bytes are lost, and which are in
//! the network. SACK is advisory: data leaves the retransmit queue only by the cumulative acknowledgement, and
//! [`Scoreboard::ack_to`] detects a peer that reneges.
//!
//! Ranges are disjoint, never adjacent, sorted by sequence number, and at most [`MAX_RANGES`]. The work per block is
//! one binary search and one move of at most 2 KiB, whatever the peer sends (CVE-2019-11477 and its relatives). What
//! may never happen: counting the byte at SND.UNA as received, because it would never be retransmitted.

use wire::SeqNumber;
use wire::tcp::SackBlocks;

/// Most ranges kept. A block that would need one more is ignored, which is safe: the bytes count as not received and
/// are at worst sent twice.
pub const MAX_RANGES: usize = 256;

/// DupThresh: this many duplicate acknowledgements (RFC 5681), or SACKed segments (RFC 8985), indicate a loss, as long
/// as no reordering was observed on the path.
pub const DUP_THRESH: u32 = 3;

/// Bytes `[left, right)`.
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

/// Bytes from `left` to `right`; the caller knows that `left` is not after `right`.
#[inline]
fn distance(left: SeqNumber, right: SeqNumber) -> u32 {
    (right - left) as u32
}

/// The scoreboard. No heap before the first block.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    ranges: Vec<Range>,
    /// Sum of the lengths of `ranges`.
    bytes: u32,
}

impl Scoreboard {
    /// Nothing SACKed.
    pub const fn new() -> Scoreboard {
        Scoreboard { ranges: Vec::new(), bytes: 0 }
    }

    /// Discards all of the peer's information.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.bytes = 0;
    }

    /// Gives heap memory back if nothing is SACKed.
    pub fn shrink(&mut self) {
        if self.ranges.is_empty() {
            self.ranges = Vec::new();
        }
    }

    /// Whether no byte is SACKed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of bytes SACKed.
    #[inline]
    pub fn sacked_bytes(&self) -> u32 {
        self.bytes
    }

    /// Number of discontiguous ranges SACKed.
    #[inline]
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// One past the highest byte SACKed.
    #[inline]
    pub fn highest(&self) -> Option<SeqNumber> {
        self.ranges.last().map(|r| r.right)
    }

    /// Takes the blocks of an acknowledgement; `una` and `nxt` are SND.UNA after that acknowledgement, and SND.NXT.
    /// Calls `newly` with every run of bytes `[left, right)` that became SACKed, and returns the number of these bytes.
    ///
    /// Blocks at or below `una` (D-SACK, or older than the acknowledgement), above `nxt` (nonsense) or empty are
    /// ignored. So is one that begins at `una` itself: it contradicts the acknowledgement number.
    pub fn update(
        &mut self,
        blocks: &SackBlocks,
        una: SeqNumber,
        nxt: SeqNumber,
        mut newly: impl FnMut(SeqNumber, SeqNumber),
    ) -> u32 {
        let before = self.bytes;
        for (left, right) in blocks.iter() {
            // Both ends are compared with SND.NXT: a comparison across half the sequence space is not reliable.
            if left.gt(una) && left.lt(nxt) && left.lt(right) && right.le(nxt) {
                self.insert(Range { left, right }, &mut newly);
            }
        }
        self.bytes - before
    }

    /// Adds one range, merged with every range that it touches.
    fn insert(&mut self, new: Range, newly: &mut impl FnMut(SeqNumber, SeqNumber)) {
        let ranges = &mut self.ranges;
        let first = ranges.partition_point(|r| r.right.lt(new.left));
        let end = first + ranges[first..].partition_point(|r| r.left.le(new.right));
        if first == end {
            if ranges.len() < MAX_RANGES {
                ranges.insert(first, new);
                self.bytes += new.len();
                newly(new.left, new.right);
            }
            return;
        }
        let mut from = new.left;
        for known in &ranges[first..end] {
            if from.lt(known.left) {
                newly(from, known.left);
                self.bytes += distance(from, known.left);
            }
            from = from.max(known.right);
        }
        if from.lt(new.right) {
            newly(from, new.right);
            self.bytes += distance(from, new.right);
        }
        ranges[first] = Range { left: ranges[first].left.min(new.left), right: from.max(new.right) };
        ranges.drain(first + 1..end);
    }

    /// SND.UNA has moved to `una`: removes everything below. True if the peer reneged: it had reported the byte `una`,
    /// and would have acknowledged further if it still held it. The whole range is then removed.
    pub fn ack_to(&mut self, una: SeqNumber) -> bool {
        let passed = self.ranges.partition_point(|r| r.left.le(una));
        if passed == 0 {
            return false;
        }
        let reneged = self.ranges[passed - 1].right.gt(una);
        self.bytes -= self.ranges[..passed].iter().map(|r| r.len()).sum::<u32>();
        self.ranges.drain(..passed);
        reneged
    }

    /// Whether every byte of `[left, right)` is SACKed.
    #[inline]
    pub fn is_sacked(&self, left: SeqNumber, right: SeqNumber) -> bool {
        let i = self.ranges.partition_point(|r| r.right.le(left));
        self.ranges.get(i).is_some_and(|r| r.left.le(left) && r.right.ge(right))
    }

    /// Number of bytes SACKed below `seq`.
    pub fn sacked_below(&self, seq: SeqNumber) -> u32 {
        if self.highest().is_none_or(|highest| highest.le(seq)) {
            return self.bytes;
        }
        let whole = self.ranges.partition_point(|r| r.right.le(seq));
        let sum: u32 = self.ranges[..whole].iter().map(|r| r.len()).sum();
        sum + self.ranges.get(whole).map_or(0, |r| if r.left.lt(seq) { distance(r.left, seq) } else { 0 })
    }

    /// The first bytes of `[from, to)` that are not SACKed, up to the next that are, or to `to`.
    pub fn hole_from(&self, from: SeqNumber, to: SeqNumber) -> Option<(SeqNumber, SeqNumber)> {
        let i = self.ranges.partition_point(|r| r.right.le(from));
        let inside = self.ranges.get(i).filter(|r| r.left.le(from));
        // Ranges are never adjacent, so a hole follows each range.
        let (left, next) = inside.map_or((from, i), |r| (r.right, i + 1));
        let right = self.ranges.get(next).map_or(to, |r| r.left.min(to));
        left.lt(right).then_some((left, right))
    }
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

    /// The sequence space of the tests begins here and wraps after 1000 bytes.
    const UNA: SeqNumber = SeqNumber(u32::MAX - 999);

    fn at(offset: u32) -> SeqNumber {
        UNA + offset
    }

    fn blocks(ranges: &[(u32, u32)]) -> SackBlocks {
        ranges.iter().map(|&(l, r)| (at(l), at(r))).collect()
    }

    fn board(ranges: &[(u32, u32)]) -> Scoreboard {
        let mut board = Scoreboard::new();
        for range in ranges {
            board.update(&blocks(&[*range]), UNA, at(1_000_000), |_, _| {});
        }
        board
    }

    #[test]
    fn ranges_merge_and_the_newly_sacked_are_told_once() {
        let mut b = Scoreboard::new();
        let nxt = at(2000);
        let mut told = Vec::new();
        let mut update = |b: &mut Scoreboard, ranges: &[(u32, u32)]| {
            b.update(&blocks(ranges), UNA, nxt, |l, r| told.push(((l - UNA) as u32, (r - UNA) as u32)))
        };
        assert_eq!(update(&mut b, &[(100, 200)]), 100);
        assert_eq!(update(&mut b, &[(100, 200)]), 0);
        assert_eq!(update(&mut b, &[(300, 400), (100, 200)]), 100);
        assert_eq!(update(&mut b, &[(50, 450)]), 200);
        assert_eq!(b.ranges(), 1);
        assert_eq!(update(&mut b, &[(450, 500)]), 50);
        assert_eq!((b.ranges(), b.sacked_bytes(), b.highest()), (1, 450, Some(at(500))));
        assert_eq!(told, [(100, 200), (300, 400), (50, 100), (200, 300), (400, 450), (450, 500)]);
        assert!(b.is_sacked(at(50), at(500)) && !b.is_sacked(at(49), at(101)) && !b.is_sacked(at(499), at(501)));
    }

    #[test]
    fn nonsense_is_ignored() {
        let mut b = Scoreboard::new();
        let wrong = [(200, 200), (300, 200), (900, 1100), (0, 100), (2_000_000_000, 3_000_000_000)];
        let none = |_: SeqNumber, _: SeqNumber| panic!("nothing is SACKed");
        assert_eq!(b.update(&blocks(&wrong), UNA, at(1000), none), 0);
        let old = SackBlocks::from_iter([(UNA - 500, UNA - 400), (UNA - 10, UNA + 10)]);
        assert_eq!(b.update(&old, UNA, at(1000), none), 0);
        assert!(b.is_empty() && b.highest().is_none());
    }

    #[test]
    fn memory_is_bounded_and_returned() {
        let mut b = Scoreboard::new();
        for i in 0..100_000 {
            b.update(&blocks(&[(2 * i + 1, 2 * i + 2)]), UNA, at(200_001), |_, _| {});
        }
        assert_eq!((b.ranges(), b.sacked_bytes()), (MAX_RANGES, MAX_RANGES as u32));
        assert_eq!(b.update(&blocks(&[(1, 1000)]), UNA, at(200_001), |_, _| {}), 999 - MAX_RANGES as u32);
        assert!(!b.ack_to(at(1000)));
        b.shrink();
        assert_eq!(b.ranges.capacity(), 0);
    }

    #[test]
    fn a_cumulative_acknowledgement_removes_what_it_passes_and_finds_a_peer_that_reneges() {
        let mut b = board(&[(100, 200), (300, 400), (500, 600)]);
        assert!(b.ack_to(at(100)), "it had 100..200");
        assert_eq!((b.ranges(), b.sacked_bytes()), (2, 200));
        assert!(b.ack_to(at(350)), "and 350..400");
        assert_eq!((b.ranges(), b.sacked_bytes()), (1, 100));
        assert!(!b.ack_to(at(600)));
        assert!(b.is_empty());
    }

    #[test]
    fn holes_are_found() {
        let b = board(&[(100, 200), (300, 400)]);
        let hole = |l: u32, r: u32| Some((at(l), at(r)));
        assert_eq!(b.hole_from(UNA, at(1000)), hole(0, 100));
        assert_eq!(b.hole_from(UNA, at(50)), hole(0, 50));
        assert_eq!(b.hole_from(at(100), at(1000)), hole(200, 300));
        assert_eq!(b.hole_from(at(250), at(260)), hole(250, 260));
        assert_eq!(b.hole_from(at(350), at(1000)), hole(400, 1000));
        assert_eq!(b.hole_from(at(120), at(200)), None);
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
        fn agrees_with_a_set_of_bytes(steps in proptest::collection::vec(step(), 1..20), at_byte in 0u32..320) {
            const NXT: u32 = 320;
            let una_at = |offset: u32| at(offset + 900);
            let blocks = |ranges: &[(u32, u32)]| -> SackBlocks {
                ranges.iter().map(|&(l, r)| (una_at(l), una_at(r))).collect()
            };
            let (mut b, mut model, mut una) = (Scoreboard::new(), BTreeSet::new(), 0);
            for step in steps {
                match step {
                    Step::Sack(ranges) => {
                        let before = model.clone();
                        for &(l, r) in ranges.iter().filter(|(l, r)| *l > una && l < r && *r <= NXT) {
                            model.extend(l..r);
                        }
                        let mut told = BTreeSet::new();
                        let newly = b.update(&blocks(&ranges), una_at(una), una_at(NXT), |l, r| {
                            told.extend((l - una_at(0)) as u32..(r - una_at(0)) as u32);
                        });
                        prop_assert_eq!(newly as usize, told.len());
                        prop_assert_eq!(told, model.difference(&before).copied().collect::<BTreeSet<u32>>());
                    }
                    Step::Ack(n) => {
                        una = (una + n).min(NXT);
                        // The range that contains SND.UNA is removed up to its end.
                        let end = (una..).find(|o| !model.contains(o)).unwrap();
                        model = model.split_off(&end);
                        prop_assert_eq!(b.ack_to(una_at(una)), end > una);
                    }
                }
                prop_assert_eq!(b.sacked_bytes() as usize, model.len());
                prop_assert_eq!(b.is_empty(), model.is_empty());
                for o in una..NXT {
                    prop_assert_eq!(b.is_sacked(una_at(o), una_at(o + 1)), model.contains(&o));
                }
                prop_assert_eq!(b.sacked_below(una_at(at_byte)) as usize, model.range(..at_byte).count());
                let open = |o: &u32| !model.contains(o);
                let first = (una..at_byte).find(open);
                let hole = first.map(|l| (una_at(l), una_at((l..at_byte).find(|o| !open(o)).unwrap_or(at_byte))));
                prop_assert_eq!(b.hole_from(una_at(una), una_at(at_byte.max(una))), hole);
            }
        }
    }
}
