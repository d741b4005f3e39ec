//! The out-of-order queue: segments that arrived before RCV.NXT reached them, and the SACK blocks that report them.
//!
//! The receive side calls [`Reassembly::insert`] with a segment that does not begin at RCV.NXT, drains
//! [`Reassembly::pop_ready`] after RCV.NXT has advanced, and asks [`Reassembly::sack_blocks`] for the blocks of an
//! acknowledgement. Text that arrives in order never passes through here.
//!
//! Segments are kept as *runs*: a run is text without a hole, as the queue of the buffers that it came in. Runs are
//! disjoint, never adjacent, and sorted, so the runs are also the SACK ranges, a segment is placed by one binary search,
//! and text that extends a run costs constant time however long the run is. Of octets received twice the first copy
//! stays.
//!
//! Memory is bounded in what buffers really occupy (a segment of one byte holds a whole block: CVE-2018-5390), and the
//! number of runs by [`MAX_RUNS`], so the work per segment is bounded too. What may never happen: text handed out twice,
//! out of order or beyond a FIN; heap kept by an empty queue.

use std::collections::VecDeque;

use observe::DropReason;
use pktbuf::PktBuf;
use wire::SeqNumber;
use wire::tcp::SackBlocks;

/// The most runs, and so holes, of one connection. A segment that would begin one more is dropped.
pub const MAX_RUNS: usize = 512;

/// The most pieces that one segment is stored in when it bridges runs; each but one costs an allocation and a copy. What
/// is left over counts as lost, and its sender sends it again.
const MAX_PIECES: usize = 4;

/// Charged for a run beside its buffers: its place in the queue, and its own queue of buffers.
const RUN_COST: u32 = (size_of::<Run>() + 4 * size_of::<PktBuf>()) as u32;

/// Charged for a buffer beside its block: the block's header, and the handle.
const BUFFER_COST: u32 = 64 + size_of::<PktBuf>() as u32;

/// A buffer above this size whose text fills less than a quarter of it is exchanged for a smaller one.
const COPY_ABOVE: usize = 4096;

/// Blocks in a SACK option.
const MAX_BLOCKS: usize = SackBlocks::CAPACITY;

/// No octets.
const NOTHING: (SeqNumber, SeqNumber) = (SeqNumber(0), SeqNumber(0));

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Inserted {
    /// At least some of its octets are new and are queued.
    Stored,
    /// All of its octets, `[left, right)`, were received before. The next [`Reassembly::sack_blocks`] reports it.
    Duplicate(SeqNumber, SeqNumber),
    /// Nothing of it was kept.
    Dropped(DropReason),
}

/// Octets `[left, right)` without a hole. The FIN, if it is known and adjacent, is the last of them.
#[derive(Debug)]
struct Run {
    left: SeqNumber,
    right: SeqNumber,
    /// The text from `left` on, in order; never empty. Only the buffer of a FIN without text has no bytes.
    texts: VecDeque<PktBuf>,
}

/// A segment on its way in, cut to the octets that can be wanted.
struct Incoming {
    left: SeqNumber,
    right: SeqNumber,
    text: PktBuf,
    fin: bool,
}

/// What is on the heap while anything is queued.
#[derive(Debug)]
struct Queue {
    runs: VecDeque<Run>,
    /// Octets of text.
    bytes: u32,
    /// Charged memory.
    memory: u32,
    /// Sequence number of the peer's FIN once a queued segment carried it.
    fin: Option<SeqNumber>,
    /// Edges of the runs touched lately, the last touched first, no run twice. A run does not change without being
    /// touched, but that its left edge moves up to RCV.NXT.
    recent: [(SeqNumber, SeqNumber); MAX_BLOCKS],
    recent_len: u8,
}

/// The out-of-order queue of a connection. No heap while it is empty.
#[derive(Debug, Default)]
pub struct Reassembly {
    queue: Option<Box<Queue>>,
    /// From the first segment out of order, or received twice, on.
    record: Option<Box<Record>>,
}

/// What is kept of disorder when the queue is empty again.
#[derive(Debug)]
struct Record {
    /// A duplicate not yet reported (RFC 2883); empty for none.
    dsack: (SeqNumber, SeqNumber),
    /// Segments that did not begin at RCV.NXT, modulo 2^32.
    out_of_order: u32,
}

impl Reassembly {
    /// An empty queue.
    pub const fn new() -> Reassembly {
        Reassembly { queue: None, record: None }
    }

    /// Whether no segment is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_none()
    }

    /// Whether [`Reassembly::sack_blocks`] has anything to say.
    #[inline]
    pub fn has_blocks(&self) -> bool {
        self.queue.is_some() || self.record.as_ref().is_some_and(|record| record.dsack.0 != record.dsack.1)
    }

    /// Octets of text queued.
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.queue.as_ref().map_or(0, |q| q.bytes)
    }

    /// Bytes of memory that the queue occupies: whole blocks and book-keeping, not only text.
    #[inline]
    pub fn memory(&self) -> u32 {
        self.queue.as_ref().map_or(0, |q| q.memory)
    }

    /// Number of runs, which is the number of holes.
    #[inline]
    pub fn runs(&self) -> usize {
        self.queue.as_ref().map_or(0, |q| q.runs.len())
    }

    /// Segments that came out of order since the connection began, modulo 2^32.
    pub fn out_of_order(&self) -> u32 {
        self.record.as_ref().map_or(0, |record| record.out_of_order)
    }

    fn record(&mut self) -> &mut Record {
        self.record.get_or_insert_with(|| Box::new(Record { dsack: NOTHING, out_of_order: 0 }))
    }

    /// Drops everything: the connection is reset or the user will not read.
    pub fn clear(&mut self) {
        *self = Reassembly::new();
    }

    /// Remembers that the peer sent `[left, right)` although it was received before, for the next
    /// [`Reassembly::sack_blocks`]; for segments that are found to be old before they get here.
    #[inline]
    pub fn record_duplicate(&mut self, left: SeqNumber, right: SeqNumber) {
        if left.lt(right) {
            self.record().dsack = (left, right);
        }
    }

    /// Nothing is to be reported as duplicate.
    #[inline]
    pub fn forget_duplicate(&mut self) {
        self.record.iter_mut().for_each(|record| record.dsack = NOTHING);
    }

    /// Queues the segment of `text` at `seq`, followed by a FIN if `fin`.
    ///
    /// Octets below `rcv_nxt`, from `window_end` (RCV.NXT + RCV.WND) on, beyond a FIN, or queued already are cut off. If
    /// the memory in use, see [`Reassembly::memory`], would exceed `limit_bytes`, nothing more is stored; a limit of
    /// about twice the receive buffer lets a sender of full segments fill its window.
    pub fn insert(
        &mut self,
        seq: SeqNumber,
        text: PktBuf,
        fin: bool,
        rcv_nxt: SeqNumber,
        window_end: SeqNumber,
        limit_bytes: u32,
    ) -> Inserted {
        let right = seq + (text.len() as u32 + u32::from(fin));
        if right.le(rcv_nxt) || right == seq {
            self.record_duplicate(seq, right);
            return Inserted::Duplicate(seq, right);
        }
        if seq.ge(window_end) {
            return Inserted::Dropped(DropReason::TcpOutOfWindow);
        }
        if seq.gt(rcv_nxt) {
            let record = self.record();
            record.out_of_order = record.out_of_order.wrapping_add(1);
        }
        let mut incoming = Incoming { left: seq, right, text: fitted(text), fin };
        let mut duplicate = None;
        if seq.lt(rcv_nxt) {
            duplicate = Some((seq, rcv_nxt));
            incoming.cut_left(rcv_nxt);
        }
        incoming.cut_right(window_end);
        let queue = self.queue.get_or_insert_with(|| Box::new(Queue::new()));
        let stored = queue.store(incoming, limit_bytes, &mut duplicate);
        if queue.runs.is_empty() {
            self.queue = None;
        }
        let record = self.record();
        record.dsack = duplicate.unwrap_or(record.dsack);
        match stored {
            Ok(true) => Inserted::Stored,
            Ok(false) => Inserted::Duplicate(seq, right),
            Err(reason) => Inserted::Dropped(reason),
        }
    }

    /// Takes the next text in order if it begins at or below `rcv_nxt`, without the octets below; true if the peer's
    /// FIN follows it. The caller advances RCV.NXT over the text (and the FIN), and asks again. The text may be empty
    /// only with a FIN.
    #[inline]
    pub fn pop_ready(&mut self, rcv_nxt: SeqNumber) -> Option<(PktBuf, bool)> {
        let queue = self.queue.as_mut()?;
        let ready = queue.pop(rcv_nxt);
        if queue.runs.is_empty() {
            self.queue = None;
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
        let Some(queue) = &self.queue else { return blocks };
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

impl Incoming {
    /// Drops the octets below `seq`, which is not beyond the right edge.
    fn cut_left(&mut self, seq: SeqNumber) {
        let n = (seq - self.left) as usize;
        self.text.pull_front(n.min(self.text.len()));
        self.left = seq;
    }

    /// Drops the octets from `seq` on, FIN included, which is not before the left edge.
    fn cut_right(&mut self, seq: SeqNumber) {
        if self.right.gt(seq) {
            self.text.truncate((seq - self.left) as usize);
            self.right = seq;
            self.fin = false;
        }
    }

    /// The first octets, up to `seq`, as a buffer of their own, copied; `None` if there is no buffer.
    fn split_left(&mut self, seq: SeqNumber) -> Option<PktBuf> {
        let n = (seq - self.left) as usize;
        let piece = PktBuf::from_slice(&self.text[..n])?;
        self.cut_left(seq);
        Some(piece)
    }
}

impl Queue {
    fn new() -> Queue {
        Queue {
            runs: VecDeque::new(),
            bytes: 0,
            memory: 0,
            fin: None,
            recent: [(SeqNumber(0), SeqNumber(0)); MAX_BLOCKS],
            recent_len: 0,
        }
    }

    /// Index of the first run that ends after `seq`: the one that contains it, or else the next.
    #[inline]
    fn index_after(&self, seq: SeqNumber) -> usize {
        match self.runs.back() {
            Some(last) if last.right.gt(seq) => self.runs.partition_point(|r| r.right.le(seq)),
            _ => self.runs.len(),
        }
    }

    fn recent(&self) -> &[(SeqNumber, SeqNumber)] {
        &self.recent[..usize::from(self.recent_len)]
    }

    /// Stores the octets that are new, in as many pieces as there are holes for them; false if there are none. The first
    /// octets that are not new become the `duplicate`, unless there is one.
    fn store(
        &mut self,
        mut incoming: Incoming,
        limit: u32,
        duplicate: &mut Option<(SeqNumber, SeqNumber)>,
    ) -> Result<bool, DropReason> {
        if !self.reconcile_fin(&mut incoming) {
            return Err(DropReason::TcpAfterFin);
        }
        let mut stored = false;
        for _ in 0..MAX_PIECES {
            let next = self.skip_duplicate(&mut incoming, duplicate);
            if incoming.left == incoming.right {
                break;
            }
            match self.fill_hole(next, incoming, limit, duplicate) {
                Ok(Some(rest)) => incoming = rest,
                Ok(None) => return Ok(true),
                Err(_) if stored => break,
                Err(reason) => return Err(reason),
            }
            stored = true;
        }
        Ok(stored)
    }

    /// Makes the segment agree with what is known about the end of the stream; false if all of it lies beyond a FIN.
    ///
    /// The first FIN received counts, and only if no text beyond it is queued.
    fn reconcile_fin(&mut self, incoming: &mut Incoming) -> bool {
        if let Some(fin) = self.fin
            && incoming.right.gt(fin + 1)
        {
            if incoming.left.ge(fin) {
                return false;
            }
            incoming.cut_right(fin);
        }
        if incoming.fin {
            let position = incoming.right - 1;
            let text_beyond = self.runs.back().is_some_and(|r| r.right.gt(incoming.right));
            if text_beyond || self.fin.is_some_and(|fin| fin != position) {
                incoming.cut_right(position);
            } else {
                self.fin = Some(position);
            }
        }
        true
    }

    /// Drops the octets in front that are queued already; returns the index of the first run behind the rest.
    fn skip_duplicate(&mut self, incoming: &mut Incoming, duplicate: &mut Option<(SeqNumber, SeqNumber)>) -> usize {
        let i = self.index_after(incoming.left);
        let Some(run) = self.runs.get(i).filter(|r| r.left.le(incoming.left)) else { return i };
        let end = run.right.min(incoming.right);
        if incoming.left.lt(end) {
            duplicate.get_or_insert((incoming.left, end));
            self.touch(i);
            incoming.cut_left(end);
        }
        i + 1
    }

    /// Stores the octets up to run `next`, and returns what reaches beyond that run. The segment begins in the hole before
    /// that run.
    fn fill_hole(
        &mut self,
        next: usize,
        mut incoming: Incoming,
        limit: u32,
        duplicate: &mut Option<(SeqNumber, SeqNumber)>,
    ) -> Result<Option<Incoming>, DropReason> {
        let left = incoming.left;
        let above = self.runs.get(next).filter(|r| r.left.lt(incoming.right));
        let (end, bridges) = above.map_or((incoming.right, false), |r| (r.left, r.right.lt(incoming.right)));
        if bridges {
            let piece = incoming.split_left(end).ok_or(DropReason::NoBuffer)?;
            self.place(next, (left, end), piece, limit)?;
            return Ok(Some(incoming));
        }
        if end != incoming.right {
            duplicate.get_or_insert((end, incoming.right));
            incoming.cut_right(end);
        }
        self.place(next, (left, end), incoming.text, limit)?;
        Ok(None)
    }

    /// Queues `text`, with the FIN if `right` lies one octet beyond it, in the hole before run `next`.
    fn place(
        &mut self,
        next: usize,
        (left, right): (SeqNumber, SeqNumber),
        text: PktBuf,
        limit: u32,
    ) -> Result<(), DropReason> {
        let extends = next > 0 && self.runs[next - 1].right == left;
        let precedes = self.runs.get(next).is_some_and(|r| r.left == right);
        if extends && text.is_empty() {
            // A FIN alone needs no buffer behind text.
            self.runs[next - 1].right = right;
            self.touch(next - 1);
            return Ok(());
        }
        let new_run = !extends && !precedes;
        let cost = charge(&text) + if new_run { RUN_COST } else { 0 };
        if self.memory.saturating_add(cost) > limit || new_run && self.runs.len() >= MAX_RUNS {
            return Err(DropReason::TcpReassemblyFull);
        }
        self.memory += cost;
        self.bytes += text.len() as u32;
        match (extends, precedes) {
            (false, false) => self.runs.insert(next, Run { left, right, texts: VecDeque::from([text]) }),
            (false, true) => self.runs[next].push_front(text, left),
            (true, joins) => {
                self.runs[next - 1].push_back(text, right);
                if joins {
                    self.join(next);
                }
            }
        }
        self.touch(if extends { next - 1 } else { next });
        Ok(())
    }

    /// Joins run `i` to the adjacent one before it, moving the fewer buffers.
    fn join(&mut self, i: usize) {
        let Some(mut upper) = self.runs.remove(i) else { return };
        let lower = &mut self.runs[i - 1];
        lower.right = upper.right;
        if lower.texts.len() >= upper.texts.len() {
            lower.texts.append(&mut upper.texts);
        } else {
            lower.texts.drain(..).rev().for_each(|text| upper.texts.push_front(text));
            lower.texts = upper.texts;
        }
        self.memory -= RUN_COST;
    }

    /// Makes run `i` the first to be reported, in place of itself and of the runs that it has absorbed.
    fn touch(&mut self, i: usize) {
        let Run { left, right, .. } = self.runs[i];
        let mut recent = [(left, right); MAX_BLOCKS];
        let mut n = 1;
        for &old in self.recent() {
            let absorbed = old.0.ge(left) && old.0.lt(right);
            if !absorbed && n < MAX_BLOCKS {
                recent[n] = old;
                n += 1;
            }
        }
        self.recent = recent;
        self.recent_len = n as u8;
    }

    /// Run 0 is gone, all of it below `rcv_nxt`: nothing may remember it when the sequence numbers come round again.
    fn forget_recent(&mut self, rcv_nxt: SeqNumber) {
        let mut n = 0;
        for i in 0..usize::from(self.recent_len) {
            if self.recent[i].0.gt(rcv_nxt) {
                self.recent[n] = self.recent[i];
                n += 1;
            }
        }
        self.recent_len = n as u8;
    }

    /// See [`Reassembly::pop_ready`]. Drops what lies below `rcv_nxt` on the way.
    fn pop(&mut self, rcv_nxt: SeqNumber) -> Option<(PktBuf, bool)> {
        loop {
            let run = self.runs.front_mut().filter(|r| r.left.le(rcv_nxt))?;
            let mut text = run.texts.pop_front()?;
            let (begin, len) = (run.left, text.len() as u32);
            run.left = begin + len;
            self.bytes -= len;
            self.memory -= charge(&text);
            let last = run.texts.is_empty();
            let fin = last && run.left != run.right;
            let end = if fin { run.right } else { run.left };
            if last {
                self.runs.pop_front();
                self.memory -= RUN_COST;
                self.forget_recent(rcv_nxt);
            }
            if end.gt(rcv_nxt) {
                text.pull_front(((rcv_nxt - begin) as usize).min(text.len()));
                return Some((text, fin));
            }
        }
    }
}

impl Run {
    fn push_back(&mut self, text: PktBuf, right: SeqNumber) {
        self.texts.push_back(text);
        self.right = right;
    }

    fn push_front(&mut self, text: PktBuf, left: SeqNumber) {
        self.texts.push_front(text);
        self.left = left;
    }
}

/// Bytes of the block that holds `text`, used or not; trimming does not change it.
#[inline]
fn capacity(text: &PktBuf) -> usize {
    text.headroom() + text.len() + text.tailroom()
}

/// What `text` is charged with.
#[inline]
fn charge(text: &PktBuf) -> u32 {
    capacity(text) as u32 + BUFFER_COST
}

/// The same text in a smaller block, if it wastes its own: a device may receive small frames in 64 KiB blocks.
fn fitted(text: PktBuf) -> PktBuf {
    if capacity(&text) > COPY_ABOVE && text.len() * 4 < capacity(&text) {
        return PktBuf::from_slice(&text).unwrap_or(text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// RCV.NXT of the tests; the sequence space wraps after 500 octets.
    const NXT: SeqNumber = SeqNumber(u32::MAX - 499);
    const WINDOW: u32 = 100_000;
    const LIMIT: u32 = 10 << 20;

    fn at(offset: u32) -> SeqNumber {
        NXT + offset
    }

    /// The octet that the peer sends at `offset`.
    fn octet(offset: u32) -> u8 {
        (offset.wrapping_mul(31) >> 2) as u8
    }

    fn text(left: u32, right: u32) -> PktBuf {
        PktBuf::from_slice(&(left..right).map(octet).collect::<Vec<u8>>()).unwrap()
    }

    fn put(r: &mut Reassembly, left: u32, right: u32) -> Inserted {
        r.insert(at(left), text(left, right), false, NXT, at(WINDOW), LIMIT)
    }

    fn blocks(ranges: &[(u32, u32)]) -> SackBlocks {
        ranges.iter().map(|&(l, r)| (at(l), at(r))).collect()
    }

    /// Takes everything that is ready from `nxt` on; returns the new RCV.NXT offset, checking each octet, and the FIN.
    fn drain(r: &mut Reassembly, mut nxt: u32) -> (u32, bool) {
        while let Some((text, fin)) = r.pop_ready(at(nxt)) {
            assert!(!text.is_empty() || fin);
            for &byte in text.iter() {
                assert_eq!(byte, octet(nxt), "octet {nxt}");
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
        assert!(size_of::<Reassembly>() <= 32, "{} octets", size_of::<Reassembly>());
        let mut r = Reassembly::new();
        assert_eq!(put(&mut r, 100, 200), Inserted::Stored);
        assert!(!r.is_empty() && r.bytes() == 100 && r.memory() > 2048);
        assert_eq!(r.pop_ready(at(99)).map(|_| ()), None);
        assert_eq!(drain(&mut r, 100), (200, false));
        assert!(r.queue.is_none() && r.bytes() == 0 && r.memory() == 0);
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
    fn the_first_copy_of_an_octet_stays() {
        let mut r = Reassembly::new();
        assert_eq!(put(&mut r, 100, 200), Inserted::Stored);
        let liar = PktBuf::from_slice(&[0xEE; 300]).unwrap();
        assert_eq!(r.insert(at(50), liar, false, NXT, at(WINDOW), LIMIT), Inserted::Stored);
        let mut bytes = Vec::new();
        let mut nxt = 50;
        while let Some((text, _)) = r.pop_ready(at(nxt)) {
            nxt += text.len() as u32;
            bytes.extend_from_slice(&text);
        }
        let expected: Vec<u8> = (50..350).map(|o| if (100..200).contains(&o) { octet(o) } else { 0xEE }).collect();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn octets_outside_the_window_are_cut_off() {
        let mut r = Reassembly::new();
        let end = at(150);
        assert_eq!(r.insert(NXT - 50, text(0, 150), false, NXT, end, LIMIT), Inserted::Stored);
        assert_eq!((r.bytes(), r.sack_blocks(NXT - 1).as_slice()[0]), (100, (NXT - 50, NXT)));
        r.clear();
        assert_eq!(r.insert(at(100), text(100, 200), true, NXT, end, LIMIT), Inserted::Stored);
        assert_eq!(drain(&mut r, 100), (150, false), "the FIN was beyond the window");
        assert_eq!(
            r.insert(end, text(150, 160), false, NXT, end, LIMIT),
            Inserted::Dropped(DropReason::TcpOutOfWindow)
        );
        assert_eq!(r.insert(NXT - 50, text(0, 50), false, NXT, end, LIMIT), Inserted::Duplicate(NXT - 50, NXT));
    }

    #[test]
    fn the_fin_follows_the_last_text() {
        let fin = |r: &mut Reassembly, left, right| r.insert(at(left), text(left, right), true, NXT, at(WINDOW), LIMIT);
        // With text; alone behind queued text; alone in front of a hole.
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
        // All text in front of the FIN arrived in order meanwhile.
        let _ = fin(&mut r, 100, 200);
        let (rest, fin) = r.pop_ready(at(200)).unwrap();
        assert_eq!((rest.len(), fin, r.is_empty()), (0, true, true));
    }

    #[test]
    fn the_end_of_the_stream_does_not_move() {
        let mut r = Reassembly::new();
        let _ = r.insert(at(100), text(100, 200), true, NXT, at(WINDOW), LIMIT);
        assert_eq!(put(&mut r, 200, 300), Inserted::Dropped(DropReason::TcpAfterFin));
        assert_eq!(put(&mut r, 400, 500), Inserted::Dropped(DropReason::TcpAfterFin));
        assert!(matches!(put(&mut r, 150, 300), Inserted::Duplicate(..)), "what lies before the FIN is known");
        let _ = r.insert(at(50), text(50, 80), true, NXT, at(WINDOW), LIMIT);
        let _ = put(&mut r, 80, 100);
        assert_eq!(drain(&mut r, 50), (200, true), "the FIN at 80 was a lie");
        let _ = put(&mut r, 100, 200);
        let _ = r.insert(at(50), text(50, 80), true, NXT, at(WINDOW), LIMIT);
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

    /// RFC 2018 section 4, case 3: the second, fourth, sixth and eighth are lost; then the fourth and the second arrive.
    #[test]
    fn every_other_segment_lost_as_in_rfc_2018() {
        let mut r = Reassembly::new();
        let rcv_nxt = at(500);
        let put = |r: &mut Reassembly, left| {
            let _ = r.insert(at(left), text(left, left + 500), false, rcv_nxt, at(WINDOW), LIMIT);
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
        let old = r.insert(NXT - 500, text(0, 500), false, NXT, at(WINDOW), LIMIT);
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

    /// RFC 2883 section 4.3: of a partial duplicate the duplicate part is reported.
    #[test]
    fn a_partial_duplicate_is_reported() {
        let mut r = Reassembly::new();
        let _ = put(&mut r, 1000, 1500);
        assert_eq!(put(&mut r, 1000, 2000), Inserted::Stored);
        assert_eq!(r.sack_blocks(NXT), blocks(&[(1000, 1500), (1000, 2000)]));
        assert_eq!(put(&mut r, 900, 1100), Inserted::Stored);
        assert_eq!(r.sack_blocks(NXT), blocks(&[(1000, 1100), (900, 2000)]));
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
            (0..1000).map(|n| r.insert(at(2 * n + 1), text(0, 1), false, NXT, at(WINDOW), limit)).collect();
        let stored = outcomes.iter().filter(|&&o| o == Inserted::Stored).count();
        assert!((20..32).contains(&stored), "{stored} one-octet segments in 64 KiB");
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
        assert!(big.extend_from_slice(&text(100, 200)));
        let mut r = Reassembly::new();
        assert_eq!(r.insert(at(100), big, false, NXT, at(WINDOW), LIMIT), Inserted::Stored);
        assert!(r.memory() < 4096, "{}", r.memory());
        assert_eq!(drain(&mut r, 100), (200, false));
    }

    /// CVE-2018-5390: thousands of one-octet segments, in four orders, lose nothing and leave nothing.
    #[test]
    fn one_octet_segments_in_any_order() {
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
                    r.insert(at(left), text(left, left + 1), false, NXT, at(WINDOW), u32::MAX),
                    Inserted::Stored
                );
            }
            assert_eq!((r.runs(), r.bytes()), (1, N));
            assert_eq!(drain(&mut r, 1), (N + 1, false));
            assert!(r.is_empty());
        }
    }

    proptest! {
        /// Against a map of octets to the copy that came first: what is stored, reported and handed out agrees.
        #[test]
        fn agrees_with_a_map_of_octets(
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
                // At most four holes are filled; what lies beyond is not stored.
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
                // RCV.NXT moves on by text that arrived in order, and takes what is queued behind it.
                nxt += advance;
                model = model.split_off(&nxt);
                while let Some((text, fin)) = r.pop_ready(at(nxt)) {
                    prop_assert!(!fin);
                    for &b in text.iter() {
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
