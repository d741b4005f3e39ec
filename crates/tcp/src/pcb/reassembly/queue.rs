//! The runs of the out-of-order queue, and how a segment finds its place among them.
//!
//! [`Reassembly`](super::Reassembly) owns the one [`ReassemblyHeap`] of a connection while anything is queued, and is its only
//! caller. What may never happen: two runs that touch or overlap, a run without data, a piece of a segment stored
//! beyond the FIN, more work for a segment than one binary search and [`MAX_PIECES`] pieces.

use std::collections::VecDeque;

use observe::DropReason;
use pktbuf::PktBuf;
use wire::SeqNumber;

use super::{MAX_BLOCKS, MAX_RUNS};

/// Most pieces in which a segment that bridges runs is stored; each but one costs an allocation and a copy. The rest
/// counts as lost, and is retransmitted.
pub(super) const MAX_PIECES: usize = 4;

/// Charged for a run beside its buffers: its place in the queue, and its own queue of buffers.
const RUN_COST: u32 = (size_of::<ByteRun>() + 4 * size_of::<PktBuf>()) as u32;

/// Charged for a buffer beside its block: the block's header, and the handle.
const BUFFER_COST: u32 = 64 + size_of::<PktBuf>() as u32;

/// A buffer above this size whose data fills less than a quarter of it is exchanged for a smaller one.
const COPY_ABOVE: usize = 4096;

/// Bytes `[left, right)` without a hole. The FIN, if it is known and adjacent, is the last of them.
#[derive(Debug)]
pub(super) struct ByteRun {
    pub(super) left: SeqNumber,
    pub(super) right: SeqNumber,
    /// The data from `left` on, in order; never empty. Only the buffer of a FIN without data has no bytes.
    payloads: VecDeque<PktBuf>,
}

/// A segment to be inserted, cut to the acceptable bytes.
pub(super) struct InsertedSegment {
    pub(super) left: SeqNumber,
    pub(super) right: SeqNumber,
    pub(super) data: PktBuf,
    pub(super) fin: bool,
}

/// The heap part, present while anything is queued.
#[derive(Debug)]
pub(super) struct ReassemblyHeap {
    pub(super) runs: VecDeque<ByteRun>,
    /// Bytes of data.
    pub(super) bytes: u32,
    /// Charged memory.
    pub(super) memory: u32,
    /// Sequence number of the peer's FIN once a queued segment carried it.
    fin: Option<SeqNumber>,
    /// Edges of the runs touched lately, the last touched first, no run twice. A run changes only when touched, except
    /// that its left edge moves up to RCV.NXT.
    recent: [(SeqNumber, SeqNumber); MAX_BLOCKS],
    recent_len: u8,
}

impl InsertedSegment {
    /// Drops the bytes below `seq`, which is not beyond the right edge.
    pub(super) fn cut_left(&mut self, seq: SeqNumber) {
        let n = (seq - self.left) as usize;
        self.data.pull_front(n.min(self.data.len()));
        self.left = seq;
    }

    /// Drops the bytes from `seq` on, FIN included, which is not before the left edge.
    pub(super) fn cut_right(&mut self, seq: SeqNumber) {
        if self.right.gt(seq) {
            self.data.truncate((seq - self.left) as usize);
            self.right = seq;
            self.fin = false;
        }
    }

    /// The first bytes, up to `seq`, as a buffer of their own, copied; `None` if there is no buffer.
    fn split_left(&mut self, seq: SeqNumber) -> Option<PktBuf> {
        let n = (seq - self.left) as usize;
        let piece = PktBuf::from_slice(&self.data[..n])?;
        self.cut_left(seq);
        Some(piece)
    }
}

impl ReassemblyHeap {
    pub(super) fn new() -> ReassemblyHeap {
        ReassemblyHeap {
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

    pub(super) fn recent(&self) -> &[(SeqNumber, SeqNumber)] {
        &self.recent[..usize::from(self.recent_len)]
    }

    /// Stores the bytes that are new, in as many pieces as there are holes for them; false if there are none. The first
    /// bytes that are not new become the `duplicate`, unless there is one.
    pub(super) fn store(
        &mut self,
        mut incoming: InsertedSegment,
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

    /// Cuts the segment at the known end of the stream; false if all of it lies beyond a FIN.
    ///
    /// The first FIN received counts, and only if no data beyond it is queued.
    fn reconcile_fin(&mut self, incoming: &mut InsertedSegment) -> bool {
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
            let data_beyond = self.runs.back().is_some_and(|r| r.right.gt(incoming.right));
            if data_beyond || self.fin.is_some_and(|fin| fin != position) {
                incoming.cut_right(position);
            } else {
                self.fin = Some(position);
            }
        }
        true
    }

    /// Drops leading bytes that are already queued; returns the index of the first run after the rest.
    fn skip_duplicate(
        &mut self,
        incoming: &mut InsertedSegment,
        duplicate: &mut Option<(SeqNumber, SeqNumber)>,
    ) -> usize {
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

    /// Stores the bytes up to run `next`, and returns the part beyond that run. The segment begins in the hole before
    /// that run.
    fn fill_hole(
        &mut self,
        next: usize,
        mut incoming: InsertedSegment,
        limit: u32,
        duplicate: &mut Option<(SeqNumber, SeqNumber)>,
    ) -> Result<Option<InsertedSegment>, DropReason> {
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
        self.place(next, (left, end), incoming.data, limit)?;
        Ok(None)
    }

    /// Queues `data`, with the FIN if `right` lies one byte beyond it, in the hole before run `next`.
    fn place(
        &mut self,
        next: usize,
        (left, right): (SeqNumber, SeqNumber),
        data: PktBuf,
        limit: u32,
    ) -> Result<(), DropReason> {
        let extends = next > 0 && self.runs[next - 1].right == left;
        let precedes = self.runs.get(next).is_some_and(|r| r.left == right);
        if extends && data.is_empty() {
            // A FIN alone needs no buffer after data.
            self.runs[next - 1].right = right;
            self.touch(next - 1);
            return Ok(());
        }
        let new_run = !extends && !precedes;
        let cost = charge(&data) + if new_run { RUN_COST } else { 0 };
        if self.memory.saturating_add(cost) > limit || new_run && self.runs.len() >= MAX_RUNS {
            return Err(DropReason::TcpReassemblyFull);
        }
        self.memory += cost;
        self.bytes += data.len() as u32;
        match (extends, precedes) {
            (false, false) => self.runs.insert(next, ByteRun { left, right, payloads: VecDeque::from([data]) }),
            (false, true) => self.runs[next].push_front(data, left),
            (true, joins) => {
                self.runs[next - 1].push_back(data, right);
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
        if lower.payloads.len() >= upper.payloads.len() {
            lower.payloads.append(&mut upper.payloads);
        } else {
            lower.payloads.drain(..).rev().for_each(|data| upper.payloads.push_front(data));
            lower.payloads = upper.payloads;
        }
        self.memory -= RUN_COST;
    }

    /// Makes run `i` the first to be reported, in place of itself and of the runs that it has absorbed.
    fn touch(&mut self, i: usize) {
        let ByteRun { left, right, .. } = self.runs[i];
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

    /// Run 0 is gone, all of it below `rcv_nxt`: no record of it may remain when the sequence numbers wrap.
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

    /// See [`Reassembly::pop_ready`]. Also drops data below `rcv_nxt`.
    pub(super) fn pop(&mut self, rcv_nxt: SeqNumber) -> Option<(PktBuf, bool)> {
        loop {
            let run = self.runs.front_mut().filter(|r| r.left.le(rcv_nxt))?;
            let mut data = run.payloads.pop_front()?;
            let (begin, len) = (run.left, data.len() as u32);
            run.left = begin + len;
            self.bytes -= len;
            self.memory -= charge(&data);
            let last = run.payloads.is_empty();
            let fin = last && run.left != run.right;
            let end = if fin { run.right } else { run.left };
            if last {
                self.runs.pop_front();
                self.memory -= RUN_COST;
                self.forget_recent(rcv_nxt);
            }
            if end.gt(rcv_nxt) {
                data.pull_front(((rcv_nxt - begin) as usize).min(data.len()));
                return Some((data, fin));
            }
        }
    }
}

impl ByteRun {
    fn push_back(&mut self, data: PktBuf, right: SeqNumber) {
        self.payloads.push_back(data);
        self.right = right;
    }

    fn push_front(&mut self, data: PktBuf, left: SeqNumber) {
        self.payloads.push_front(data);
        self.left = left;
    }
}

/// Bytes of the block that holds `data`, used or not; trimming does not change it.
#[inline]
fn capacity(data: &PktBuf) -> usize {
    data.headroom() + data.len() + data.tailroom()
}

/// The memory charged for `data`.
#[inline]
fn charge(data: &PktBuf) -> u32 {
    capacity(data) as u32 + BUFFER_COST
}

/// The same data in a smaller block, if it wastes most of its own: a device may receive small frames in 64 KiB blocks.
pub(super) fn fitted(data: PktBuf) -> PktBuf {
    if capacity(&data) > COPY_ABOVE && data.len() * 4 < capacity(&data) {
        return PktBuf::from_slice(&data).unwrap_or(data);
    }
    data
}
