//! The out-of-order queue: segments that arrived before RCV.NXT reached them, and the SACK blocks that report them.
//!
//! The receive side calls [`Reassembly::insert`] with a segment that does not begin at RCV.NXT, drains
//! [`Reassembly::pop_ready`] after RCV.NXT has advanced, and gets the blocks of an acknowledgement from
//! [`Reassembly::sack_blocks`]. Data that arrives in order never passes through here.
//!
//! Segments are kept as *runs*: a run is contiguous data, as the queue of the buffers in which it arrived. Runs are
//! disjoint, never adjacent, and sorted, so the runs are also the SACK ranges, a segment is placed by one binary
//! search, and extending a run costs constant time. Of bytes received twice the first copy stays.
//!
//! Memory is bounded by what buffers really occupy (a segment of one byte holds a whole block: CVE-2018-5390), and the
//! number of runs by [`MAX_RUNS`], so the work per segment is bounded too. What may never happen: data handed out
//! twice, out of order or beyond a FIN; heap kept by an empty queue.

mod queue;

use observe::DropReason;
use pktbuf::PktBuf;
use wire::SeqNumber;
use wire::tcp::SackBlocks;

use self::queue::{InsertedSegment, ReassemblyHeap, fitted};
use crate::outbox::Outbox;

/// The most runs, and so holes, of one connection. A segment that would begin one more is dropped.
pub const MAX_RUNS: usize = 512;

/// Blocks in a SACK option.
const MAX_BLOCKS: usize = SackBlocks::CAPACITY;

/// No bytes.
const NOTHING: (SeqNumber, SeqNumber) = (SeqNumber(0), SeqNumber(0));

/// The disposition of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Inserted {
    /// At least some of its bytes are new and are queued.
    Stored,
    /// All of its bytes, `[left, right)`, were received before. The next [`Reassembly::sack_blocks`] reports it.
    Duplicate(SeqNumber, SeqNumber),
    /// Nothing of it was kept.
    Dropped(DropReason),
}

/// The out-of-order queue of a connection. No heap while it is empty.
#[derive(Debug, Default)]
pub struct Reassembly {
    /// Allocated by the first segment out of order, or received twice.
    record: Option<Box<Record>>,
}

/// The queue, and the records that stay when it is empty again.
#[derive(Debug)]
struct Record {
    queue: Option<Box<ReassemblyHeap>>,
    /// A duplicate not yet reported (RFC 2883); empty for none.
    dsack: (SeqNumber, SeqNumber),
    /// Segments that did not begin at RCV.NXT, modulo 2^32.
    out_of_order: u32,
}

impl Reassembly {
    /// An empty queue.
    pub const fn new() -> Reassembly {
        Reassembly { record: None }
    }

    #[inline]
    fn queue(&self) -> Option<&ReassemblyHeap> {
        self.record.as_ref()?.queue.as_deref()
    }

    /// Whether no segment is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue().is_none()
    }

    /// Whether [`Reassembly::sack_blocks`] would return a block.
    #[inline]
    pub fn has_blocks(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.queue.is_some() || record.dsack.0 != record.dsack.1)
    }

    /// Bytes of data queued.
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.queue().map_or(0, |q| q.bytes)
    }

    /// Bytes of memory that the queue occupies: whole blocks and book-keeping, not only data.
    #[inline]
    pub fn memory(&self) -> u32 {
        self.queue().map_or(0, |q| q.memory)
    }

    /// Number of runs, which is the number of holes.
    #[inline]
    pub fn runs(&self) -> usize {
        self.queue().map_or(0, |q| q.runs.len())
    }

    /// Segments that arrived out of order since the connection began, modulo 2^32.
    pub fn out_of_order(&self) -> u32 {
        self.record.as_ref().map_or(0, |record| record.out_of_order)
    }

    fn record(&mut self) -> &mut Record {
        self.record.get_or_insert_with(|| Box::new(Record { queue: None, dsack: NOTHING, out_of_order: 0 }))
    }

    /// Drops everything: the connection is reset or the user will not read.
    pub fn clear(&mut self) {
        *self = Reassembly::new();
    }

    /// The same, and reports the memory that this frees. Usually there is nothing.
    #[inline(always)]
    pub(crate) fn give_up(&mut self, out: &mut Outbox<'_>) {
        if self.record.is_some() {
            self.give_up_all(out);
        }
    }

    #[cold]
    fn give_up_all(&mut self, out: &mut Outbox<'_>) {
        out.memory -= i64::from(self.memory());
        self.clear();
    }

    /// Records `[left, right)` as a duplicate for the next [`Reassembly::sack_blocks`]; for segments that are found to
    /// be old before they get here.
    #[inline]
    pub fn record_duplicate(&mut self, left: SeqNumber, right: SeqNumber) {
        if left.lt(right) {
            self.record().dsack = (left, right);
        }
    }

    /// Data has arrived in order that ends before `right`: records the first part of it that is already queued, as
    /// [`Reassembly::record_duplicate`] does.
    pub fn record_overlap(&mut self, right: SeqNumber) {
        let first = self.queue().and_then(|queue| queue.runs.front()).map(|run| (run.left, run.right));
        if let Some((from, to)) = first {
            self.record_duplicate(from, to.min(right));
        }
    }

    /// Whether a duplicate is still to be reported.
    pub fn has_duplicate(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.dsack.0 != record.dsack.1)
    }

    /// Nothing is to be reported as duplicate.
    #[inline]
    pub fn forget_duplicate(&mut self) {
        self.record.iter_mut().for_each(|record| record.dsack = NOTHING);
    }

    /// Queues the segment of `data` at `seq`, followed by a FIN if `fin`.
    ///
    /// Bytes below `rcv_nxt`, from `window_end` (RCV.NXT + RCV.WND) on, beyond a FIN, or already queued are cut off. If
    /// the memory in use, see [`Reassembly::memory`], would exceed `limit_bytes`, nothing more is stored; a limit of
    /// about twice the receive buffer lets a sender of full segments fill its window.
    pub fn insert(
        &mut self,
        seq: SeqNumber,
        data: PktBuf,
        fin: bool,
        rcv_nxt: SeqNumber,
        window_end: SeqNumber,
        limit_bytes: u32,
    ) -> Inserted {
        let right = seq + (data.len() as u32 + u32::from(fin));
        if right.le(rcv_nxt) || right == seq {
            self.record_duplicate(seq, right);
            return Inserted::Duplicate(seq, right);
        }
        if seq.ge(window_end) {
            return Inserted::Dropped(DropReason::TcpOutOfWindow);
        }
        let record = self.record();
        if seq.gt(rcv_nxt) {
            record.out_of_order = record.out_of_order.wrapping_add(1);
        }
        let mut incoming = InsertedSegment { left: seq, right, data: fitted(data), fin };
        let mut duplicate = None;
        if seq.lt(rcv_nxt) {
            duplicate = Some((seq, rcv_nxt));
            incoming.cut_left(rcv_nxt);
        }
        incoming.cut_right(window_end);
        let queue = record.queue.get_or_insert_with(|| Box::new(ReassemblyHeap::new()));
        let stored = queue.store(incoming, limit_bytes, &mut duplicate);
        if queue.runs.is_empty() {
            record.queue = None;
        }
        record.dsack = duplicate.unwrap_or(record.dsack);
        match stored {
            Ok(true) => Inserted::Stored,
            Ok(false) => Inserted::Duplicate(seq, right),
            Err(reason) => Inserted::Dropped(reason),
        }
    }

    /// Takes the next data in order if it begins at or below `rcv_nxt`, without the bytes below; true if the peer's FIN
    /// follows it. The caller advances RCV.NXT over the data (and the FIN), and calls it again. The data may be empty
    /// only with a FIN.
    #[inline]
    pub fn pop_ready(&mut self, rcv_nxt: SeqNumber) -> Option<(PktBuf, bool)> {
        let held = &mut self.record.as_mut()?.queue;
        let queue = held.as_mut()?;
        let ready = queue.pop(rcv_nxt);
        if queue.runs.is_empty() {
            *held = None;
        }
        ready
    }

    /// The blocks for an acknowledgement of `rcv_nxt`: a duplicate not yet reported first (RFC 2883), then the run last
    /// touched (RFC 2018 section 4), then others by age of their last change, then the lowest.
    ///
    /// Up to four; the option has room for three beside a timestamp. Each duplicate is returned once.
    pub fn sack_blocks(&mut self, rcv_nxt: SeqNumber) -> SackBlocks {
        let mut blocks = SackBlocks::EMPTY;
        let mut duplicates = 0;
        let (left, right) =
            self.record.as_mut().map_or(NOTHING, |record| core::mem::replace(&mut record.dsack, NOTHING));
        if left != right {
            blocks.push(left, right);
            duplicates = 1;
        }
        let Some(queue) = self.queue() else { return blocks };
        let lowest = queue.runs.iter().take(MAX_BLOCKS).map(|run| (run.left, run.right));
        for (left, right) in queue.recent().iter().copied().chain(lowest) {
            if blocks.len() == MAX_BLOCKS {
                break;
            }
            let known = blocks.iter().skip(duplicates).any(|block| block == (left, right));
            if left.gt(rcv_nxt) && !known {
                blocks.push(left, right);
            }
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::queue::MAX_PIECES;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// RCV.NXT of the tests; the sequence space wraps after 500 bytes.
    const NXT: SeqNumber = SeqNumber(u32::MAX - 499);
    const WINDOW: u32 = 100_000;
    const LIMIT: u32 = 10 << 20;

    fn at(offset: u32) -> SeqNumber {
        NXT + offset
    }

    /// The byte that the peer sends at `offset`.
    fn pattern(offset: u32) -> u8 {
        (offset.wrapping_mul(31) >> 2) as u8
    }

    fn data(left: u32, right: u32) -> PktBuf {
        PktBuf::from_slice(&(left..right).map(pattern).collect::<Vec<u8>>()).unwrap()
    }

    fn put(r: &mut Reassembly, left: u32, right: u32) -> Inserted {
        r.insert(at(left), data(left, right), false, NXT, at(WINDOW), LIMIT)
    }

    fn blocks(ranges: &[(u32, u32)]) -> SackBlocks {
        ranges.iter().map(|&(l, r)| (at(l), at(r))).collect()
    }

    /// Takes everything that is ready from `nxt` on; returns the new RCV.NXT offset, checking each byte, and the FIN.
    fn drain(r: &mut Reassembly, mut nxt: u32) -> (u32, bool) {
        while let Some((data, fin)) = r.pop_ready(at(nxt)) {
            assert!(!data.is_empty() || fin);
            for &byte in data.iter() {
                assert_eq!(byte, pattern(nxt), "byte {nxt}");
                nxt += 1;
            }
            if fin {
                return (nxt, true);
            }
        }
        (nxt, false)
    }

    #[test]
    fn is_small_and_holds_nothing_while_empty() {
        assert!(size_of::<Reassembly>() <= 32, "{} bytes", size_of::<Reassembly>());
        let mut r = Reassembly::new();
        assert_eq!(put(&mut r, 100, 200), Inserted::Stored);
        assert!(!r.is_empty() && r.bytes() == 100 && (384..1024).contains(&r.memory()));
        assert_eq!(r.pop_ready(at(99)).map(|_| ()), None);
        assert_eq!(drain(&mut r, 100), (200, false));
        assert!(r.queue().is_none() && r.bytes() == 0 && r.memory() == 0);
    }

    #[test]
    fn a_filled_hole_joins_its_runs() {
        let mut r = Reassembly::new();
        for (left, right) in [(100, 200), (300, 400), (500, 600), (200, 300)] {
            assert_eq!(put(&mut r, left, right), Inserted::Stored);
        }
        assert_eq!(r.runs(), 2);
        assert_eq!(drain(&mut r, 100), (400, false));
        assert_eq!(drain(&mut r, 500), (600, false));
    }

    #[test]
    fn the_first_copy_of_an_byte_stays() {
        let mut r = Reassembly::new();
        assert_eq!(put(&mut r, 100, 200), Inserted::Stored);
        let liar = PktBuf::from_slice(&[0xEE; 300]).unwrap();
        assert_eq!(r.insert(at(50), liar, false, NXT, at(WINDOW), LIMIT), Inserted::Stored);
        let mut bytes = Vec::new();
        let mut nxt = 50;
        while let Some((data, _)) = r.pop_ready(at(nxt)) {
            nxt += data.len() as u32;
            bytes.extend_from_slice(&data);
        }
        let expected: Vec<u8> = (50..350).map(|o| if (100..200).contains(&o) { pattern(o) } else { 0xEE }).collect();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn bytes_outside_the_window_are_cut_off() {
        let mut r = Reassembly::new();
        let end = at(150);
        assert_eq!(r.insert(NXT - 50, data(0, 150), false, NXT, end, LIMIT), Inserted::Stored);
        assert_eq!((r.bytes(), r.sack_blocks(NXT - 1).as_slice()[0]), (100, (NXT - 50, NXT)));
        r.clear();
        assert_eq!(r.insert(at(100), data(100, 200), true, NXT, end, LIMIT), Inserted::Stored);
        assert_eq!(drain(&mut r, 100), (150, false), "the FIN was beyond the window");
        assert_eq!(
            r.insert(end, data(150, 160), false, NXT, end, LIMIT),
            Inserted::Dropped(DropReason::TcpOutOfWindow)
        );
        assert_eq!(r.insert(NXT - 50, data(0, 50), false, NXT, end, LIMIT), Inserted::Duplicate(NXT - 50, NXT));
    }

    #[test]
    fn the_fin_follows_the_last_data() {
        let fin = |r: &mut Reassembly, left, right| r.insert(at(left), data(left, right), true, NXT, at(WINDOW), LIMIT);
        // With data; alone behind queued data; alone in front of a hole.
        let mut r = Reassembly::new();
        assert_eq!(fin(&mut r, 100, 200), Inserted::Stored);
        assert_eq!(r.sack_blocks(NXT), blocks(&[(100, 201)]));
        assert_eq!(drain(&mut r, 100), (200, true));
        assert!(r.is_empty());
        let _ = (put(&mut r, 100, 200), fin(&mut r, 200, 200));
        assert_eq!((r.runs(), r.bytes()), (1, 100));
        assert_eq!(drain(&mut r, 100), (200, true));
        let _ = (fin(&mut r, 200, 200), put(&mut r, 100, 200));
        assert_eq!((r.runs(), r.bytes()), (1, 100));
        assert_eq!(fin(&mut r, 200, 200), Inserted::Duplicate(at(200), at(201)));
        assert_eq!(drain(&mut r, 100), (200, true));
        assert!(r.is_empty() && r.memory() == 0);
        // All data in front of the FIN arrived in order meanwhile.
        let _ = fin(&mut r, 100, 200);
        let (rest, fin) = r.pop_ready(at(200)).unwrap();
        assert_eq!((rest.len(), fin, r.is_empty()), (0, true, true));
    }

    #[test]
    fn the_end_of_the_stream_does_not_move() {
        let mut r = Reassembly::new();
        let _ = r.insert(at(100), data(100, 200), true, NXT, at(WINDOW), LIMIT);
        assert_eq!(put(&mut r, 200, 300), Inserted::Dropped(DropReason::TcpAfterFin));
        assert_eq!(put(&mut r, 400, 500), Inserted::Dropped(DropReason::TcpAfterFin));
        assert!(matches!(put(&mut r, 150, 300), Inserted::Duplicate(..)), "what lies before the FIN is known");
        let _ = r.insert(at(50), data(50, 80), true, NXT, at(WINDOW), LIMIT);
        let _ = put(&mut r, 80, 100);
        assert_eq!(drain(&mut r, 50), (200, true), "the FIN at 80 was a lie");
        let _ = put(&mut r, 100, 200);
        let _ = r.insert(at(50), data(50, 80), true, NXT, at(WINDOW), LIMIT);
        assert_eq!(drain(&mut r, 50), (80, false), "text beyond it is queued");
    }

    #[test]
    fn the_blocks_name_the_latest_runs_first() {
        let mut r = Reassembly::new();
        for left in [100, 300, 500, 700, 900] {
            let _ = put(&mut r, left, left + 50);
        }
        assert_eq!(r.sack_blocks(NXT), blocks(&[(900, 950), (700, 750), (500, 550), (300, 350)]));
        let _ = put(&mut r, 150, 160);
        assert_eq!(r.sack_blocks(NXT), blocks(&[(100, 160), (900, 950), (700, 750), (500, 550)]));
        let _ = put(&mut r, 550, 700);
        assert_eq!(r.sack_blocks(NXT), blocks(&[(500, 750), (100, 160), (900, 950), (300, 350)]));
    }

    #[test]
    fn a_run_that_grows_does_not_hide_the_others() {
        let mut r = Reassembly::new();
        for left in [100, 500, 300] {
            let _ = put(&mut r, left, left + 50);
        }
        (0..10).for_each(|n| assert_eq!(put(&mut r, 350 + n, 351 + n), Inserted::Stored));
        assert_eq!(r.sack_blocks(NXT), blocks(&[(300, 360), (500, 550), (100, 150)]));
    }

    /// The example of RFC 2018 section 4, case 2: of eight segments of 500 the first is lost.
    #[test]
    fn first_segment_lost_as_in_rfc_2018() {
        let mut r = Reassembly::new();
        for n in 1..8 {
            let _ = put(&mut r, 500 * n, 500 * (n + 1));
            assert_eq!(r.sack_blocks(NXT), blocks(&[(500, 500 * (n + 1))]));
        }
    }

    /// RFC 2018 section 4, case 3: the second, fourth, sixth and eighth are lost; then the fourth and the second
    /// arrive.
    #[test]
    fn every_other_segment_lost_as_in_rfc_2018() {
        let mut r = Reassembly::new();
        let rcv_nxt = at(500);
        let put = |r: &mut Reassembly, left| {
            let _ = r.insert(at(left), data(left, left + 500), false, rcv_nxt, at(WINDOW), LIMIT);
            r.sack_blocks(rcv_nxt)
        };
        assert_eq!(put(&mut r, 1000), blocks(&[(1000, 1500)]));
        assert_eq!(put(&mut r, 2000), blocks(&[(2000, 2500), (1000, 1500)]));
        assert_eq!(put(&mut r, 3000), blocks(&[(3000, 3500), (2000, 2500), (1000, 1500)]));
        assert_eq!(put(&mut r, 1500), blocks(&[(1000, 2500), (3000, 3500)]));
        assert_eq!(drain(&mut r, 1000), (2500, false));
        assert_eq!(r.sack_blocks(at(2500)), blocks(&[(3000, 3500)]));
    }

    /// RFC 2883 section 4.1: whole duplicates below and above the cumulative acknowledgement, each reported once.
    #[test]
    fn a_duplicate_is_reported_once_and_before_its_run() {
        let mut r = Reassembly::new();
        let old = r.insert(NXT - 500, data(0, 500), false, NXT, at(WINDOW), LIMIT);
        assert_eq!(old, Inserted::Duplicate(NXT - 500, NXT));
        assert_eq!(r.sack_blocks(NXT).as_slice(), [(NXT - 500, NXT)]);
        assert!(r.sack_blocks(NXT).is_empty());
        let _ = (put(&mut r, 500, 1500), put(&mut r, 2000, 2500));
        assert_eq!(put(&mut r, 1000, 1500), Inserted::Duplicate(at(1000), at(1500)));
        assert_eq!(r.sack_blocks(NXT), blocks(&[(1000, 1500), (500, 1500), (2000, 2500)]));
        assert_eq!(r.sack_blocks(NXT), blocks(&[(500, 1500), (2000, 2500)]));
        assert!(matches!(put(&mut r, 500, 1500), Inserted::Duplicate(..)));
        assert_eq!(r.sack_blocks(NXT), blocks(&[(500, 1500), (500, 1500), (2000, 2500)]), "section 4.2");
        let _ = (put(&mut r, 600, 700), put(&mut r, 2500, 2600));
        assert_eq!(r.sack_blocks(NXT), blocks(&[(600, 700), (2000, 2600), (500, 1500)]), "it waits for an ACK");
    }

    /// RFC 2883 section 4.3: only the duplicate part of a partial duplicate is reported.
    #[test]
    fn a_partial_duplicate_is_reported() {
        let mut r = Reassembly::new();
        let _ = put(&mut r, 1000, 1500);
        assert_eq!(put(&mut r, 1000, 2000), Inserted::Stored);
        assert_eq!(r.sack_blocks(NXT), blocks(&[(1000, 1500), (1000, 2000)]));
        assert_eq!(put(&mut r, 900, 1100), Inserted::Stored);
        assert_eq!(r.sack_blocks(NXT), blocks(&[(1000, 1100), (900, 2000)]));
    }

    /// RFC 2883 section 4.2: if data in order overlaps queued data, the first queued part is reported.
    #[test]
    fn an_overlap_with_queued_data_is_reported() {
        let mut r = Reassembly::new();
        r.record_overlap(at(500));
        assert!(!r.has_duplicate() && !r.has_blocks());
        for (left, right) in [(100, 200), (300, 400)] {
            let _ = put(&mut r, left, right);
        }
        for (right, block) in [(101, (100, 101)), (200, (100, 200)), (1000, (100, 200))] {
            r.record_overlap(at(right));
            assert!(r.has_duplicate());
            assert_eq!(r.sack_blocks(NXT).as_slice()[0], (at(block.0), at(block.1)));
            assert!(!r.has_duplicate());
        }
        r.record_overlap(at(100));
        r.record_overlap(at(50));
        assert!(!r.has_duplicate(), "it ends before what is queued");
    }

    #[test]
    fn a_segment_that_bridges_runs_fills_some_holes_and_leaves_the_rest() {
        let mut r = Reassembly::new();
        for n in 1..8 {
            let _ = put(&mut r, 100 * n, 100 * n + 50);
        }
        assert_eq!(put(&mut r, 60, 800), Inserted::Stored);
        assert_eq!(r.sack_blocks(NXT).as_slice()[1], (at(60), at(450)), "four holes");
        assert_eq!(put(&mut r, 60, 800), Inserted::Stored);
        assert_eq!((r.runs(), r.bytes()), (1, 740));
        assert_eq!(drain(&mut r, 60), (800, false));
    }

    #[test]
    fn the_limit_counts_whole_blocks() {
        let mut r = Reassembly::new();
        let limit = 64 << 10;
        let outcomes: Vec<Inserted> =
            (0..1000).map(|n| r.insert(at(2 * n + 1), data(0, 1), false, NXT, at(WINDOW), limit)).collect();
        let stored = outcomes.iter().filter(|&&o| o == Inserted::Stored).count();
        assert!((120..136).contains(&stored), "{stored} one-byte segments in 64 KiB");
        assert_eq!(outcomes[999], Inserted::Dropped(DropReason::TcpReassemblyFull));
        assert!(r.memory() <= limit && r.bytes() == stored as u32);
    }

    #[test]
    fn the_number_of_runs_is_bounded_but_runs_still_grow() {
        let mut r = Reassembly::new();
        for n in 0..2000 {
            let _ = put(&mut r, 2 * n + 1, 2 * n + 2);
        }
        assert_eq!(r.runs(), MAX_RUNS);
        assert_eq!(put(&mut r, 50_000, 50_001), Inserted::Dropped(DropReason::TcpReassemblyFull));
        assert_eq!(put(&mut r, 2, 3), Inserted::Stored);
        assert_eq!(r.runs(), MAX_RUNS - 1);
    }

    #[test]
    fn a_small_segment_in_a_large_block_is_charged_as_small() {
        let mut big = PktBuf::alloc(60_000).unwrap();
        assert!(big.extend_from_slice(&data(100, 200)));
        let mut r = Reassembly::new();
        assert_eq!(r.insert(at(100), big, false, NXT, at(WINDOW), LIMIT), Inserted::Stored);
        assert!(r.memory() < 4096, "{}", r.memory());
        assert_eq!(drain(&mut r, 100), (200, false));
    }

    /// CVE-2018-5390: thousands of one-byte segments, in four orders, lose nothing and leave nothing.
    #[test]
    fn one_byte_segments_in_any_order() {
        const N: u32 = 20_000;
        let orders: [Box<dyn Fn(u32) -> u32>; 4] = [
            Box::new(|i| i),
            Box::new(|i| N - 1 - i),
            Box::new(|i| if i % 2 == 0 { i / 2 } else { N - 1 - i / 2 }),
            Box::new(|i| i / 2 + (i % 2) * (N / 2)),
        ];
        for order in orders {
            let mut r = Reassembly::new();
            for i in 0..N {
                let left = 1 + order(i);
                assert_eq!(
                    r.insert(at(left), data(left, left + 1), false, NXT, at(WINDOW), u32::MAX),
                    Inserted::Stored
                );
            }
            assert_eq!((r.runs(), r.bytes()), (1, N));
            assert_eq!(drain(&mut r, 1), (N + 1, false));
            assert!(r.is_empty());
        }
    }

    proptest! {
        /// Compared with a map from bytes to their first copy: stored, reported and delivered data agree.
        #[test]
        fn agrees_with_a_map_of_bytes(
            segments in proptest::collection::vec((0u32..600, 0u32..120, any::<u8>(), 0u32..40), 1..60),
        ) {
            let mut r = Reassembly::new();
            let mut model: BTreeMap<u32, u8> = BTreeMap::new();
            let mut nxt = 0u32;
            for (left, len, byte, advance) in segments {
                let window_end = nxt + 500;
                let wanted: Vec<u32> = (left..left + len).filter(|o| *o >= nxt && *o < window_end).collect();
                let new: Vec<u32> = wanted.iter().copied().filter(|o| !model.contains_key(o)).collect();
                let buf = PktBuf::from_slice(&vec![byte; len as usize]).unwrap();
                let result = r.insert(at(left), buf, false, at(nxt), at(window_end), LIMIT);
                match result {
                    Inserted::Stored => prop_assert!(!new.is_empty()),
                    Inserted::Duplicate(..) => prop_assert!(new.is_empty()),
                    Inserted::Dropped(_) => prop_assert!(wanted.is_empty() && left >= window_end),
                }
                // At most four holes are filled; the rest is not stored.
                let (mut holes, mut previous) = (0, None);
                for o in new {
                    holes += usize::from(o == 0 || previous != Some(o - 1));
                    previous = Some(o);
                    if holes <= MAX_PIECES {
                        model.insert(o, byte);
                    }
                }
                prop_assert_eq!(r.bytes() as usize, model.len());
                check_blocks(&mut r, &model, nxt)?;
                // Data that arrives in order advances RCV.NXT, also past the queued data that follows it.
                nxt += advance;
                model = model.split_off(&nxt);
                while let Some((data, fin)) = r.pop_ready(at(nxt)) {
                    prop_assert!(!fin);
                    for &b in data.iter() {
                        prop_assert_eq!(Some(b), model.remove(&nxt));
                        nxt += 1;
                    }
                }
                prop_assert!(!model.contains_key(&nxt));
                prop_assert_eq!(r.is_empty(), model.is_empty());
                prop_assert_eq!(r.is_empty(), r.memory() == 0);
            }
        }
    }

    /// Every block but a duplicate is a whole run of the model, and none is named twice.
    fn check_blocks(r: &mut Reassembly, model: &BTreeMap<u32, u8>, nxt: u32) -> Result<(), TestCaseError> {
        let duplicates = usize::from(r.record.as_ref().is_some_and(|record| record.dsack.0 != record.dsack.1));
        let blocks = r.sack_blocks(at(nxt));
        let runs = &blocks.as_slice()[duplicates..];
        for (i, &(left, right)) in runs.iter().enumerate() {
            let (left, right) = ((left - NXT) as u32, (right - NXT) as u32);
            prop_assert!((left..right).all(|o| model.contains_key(&o)), "{left}..{right}");
            prop_assert!(!model.contains_key(&right) && (left == 0 || !model.contains_key(&(left - 1))));
            prop_assert!(!runs[..i].contains(&runs[i]));
        }
        Ok(())
    }
}
