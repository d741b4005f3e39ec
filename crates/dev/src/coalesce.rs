//! Receive coalescing: consecutive segments of a connection inside one batch become one super-segment.
//!
//! A device with `coalescing` runs [`coalesce`] over each batch that it returns, as interfaces and kernels do (GRO), so
//! that the layers above pay once for many segments. Only TCP segments with equal headers are merged: same connection,
//! same IP header but for length, identification and checksum, same TCP flags but for PSH, equal options (so equal
//! timestamps), equal window, data in sequence, and equal length but for a shorter last one. SYN, FIN, RST, URG and
//! segments without data are not merged, and end the current merge, so that no segment overtakes another of its
//! connection.
//!
//! The merged frame has `segment_size` set. Parts without a verified checksum are verified here, and a part with a bad
//! checksum is not merged (the receiver will find and count it). The merged frame's own checksum is incomplete, marked
//! `Partial`: its receiver need not verify it, and code that forwards it knows that it must be completed.

use pktbuf::{Checksum, FRAME_CAPACITY, PktBuf};
use wire::{Framing, checksum};

use crate::layout::{Layout, TCP};

/// Largest IP datagram that merging builds, in bytes.
const MAX_DATAGRAM: usize = 65_535;
/// How many connections are merged at one time; the oldest is evicted. Batches are short, so a scan is cheap.
const OPEN: usize = 8;

const FLAGS: usize = 13;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// A super-segment under construction: its place in the batch, and its required continuation.
struct SuperSegment {
    at: usize,
    layout: Layout,
    next_seq: u32,
    segment_size: usize,
    parts: usize,
    /// A short or pushed segment was the last that may be merged.
    ended: bool,
}

/// Merges what can be merged among `batch[from..]`; the batch gets shorter. Returns how many frames were merged away.
/// If no buffer is available, frames stay unmerged.
pub fn coalesce(batch: &mut Vec<PktBuf>, from: usize) -> usize {
    coalesce_framed(Framing::Ethernet, batch, from)
}

/// As [`coalesce`], for frames of this framing.
pub fn coalesce_framed(framing: Framing, batch: &mut Vec<PktBuf>, from: usize) -> usize {
    if batch.len() < from + 2 {
        return 0;
    }
    let mut runs: [Option<SuperSegment>; OPEN] = Default::default();
    let mut oldest = 0;
    let mut kept = from;
    for at in from..batch.len() {
        let layout = Layout::framed(framing, &batch[at]).filter(|layout| layout.protocol == TCP);
        let run = layout.and_then(|layout| runs.iter().position(|run| same_flow(batch, run.as_ref(), at, &layout)));
        let mergeable = layout.filter(|layout| mergeable(&batch[at], layout));
        if let (Some(slot), Some(layout)) = (run, &mergeable)
            && let Some(open) = runs[slot].as_mut()
            && extend(batch, open, at, layout)
        {
            continue;
        }
        // Not merged: it keeps its place behind everything before it.
        batch.swap(kept, at);
        if run.is_some() || mergeable.is_some() {
            let slot = run.unwrap_or(oldest);
            oldest = if run.is_some() { oldest } else { (oldest + 1) % OPEN };
            let opened = mergeable.map(|layout| start(&batch[kept], kept, layout));
            if let Some(closed) = std::mem::replace(&mut runs[slot], opened) {
                finish(batch, &closed);
            }
        }
        kept += 1;
    }
    let merged = batch.len() - kept;
    batch.truncate(kept);
    for run in runs.into_iter().flatten() {
        finish(batch, &run);
    }
    merged
}

/// Whether the frame at `at` belongs to the connection of `run`: addresses and ports equal.
fn same_flow(batch: &[PktBuf], run: Option<&SuperSegment>, at: usize, layout: &Layout) -> bool {
    let Some(run) = run else { return false };
    let (a, b) = (&batch[run.at], &batch[at]);
    let addresses = if layout.v6 { 8..40 } else { 12..20 };
    run.layout.l3 == layout.l3
        && run.layout.v6 == layout.v6
        && a[layout.l3 + addresses.start..layout.l3 + addresses.end]
            == b[layout.l3 + addresses.start..layout.l3 + addresses.end]
        && a[run.layout.l4..run.layout.l4 + 4] == b[layout.l4..layout.l4 + 4]
}

/// Whether a segment may be part of a super-segment at all.
fn mergeable(frame: &PktBuf, layout: &Layout) -> bool {
    let flags = frame[layout.l4 + FLAGS];
    // The low bits of the byte before are accurate ECN's part of the flags.
    let plain = flags & !PSH == ACK
        && frame[layout.l4 + FLAGS - 1] & 0xf == 0
        && layout.data < layout.end
        && frame.meta().segment_size == 0;
    plain && (layout.v6 || layout.l4 - layout.l3 == 20) && layout.checksum_is_good(frame)
}

fn start(frame: &PktBuf, at: usize, layout: Layout) -> SuperSegment {
    let segment_size = layout.end - layout.data;
    let next_seq = seq(frame, &layout).wrapping_add(segment_size as u32);
    let ended = frame[layout.l4 + FLAGS] & PSH != 0;
    SuperSegment { at, layout, next_seq, segment_size, parts: 1, ended }
}

/// Appends the data of `batch[at]` to the run if it continues it. The buffer at `at` is left for the caller to discard.
fn extend(batch: &mut [PktBuf], run: &mut SuperSegment, at: usize, layout: &Layout) -> bool {
    let (head, tail) = batch.split_at_mut(at);
    let (first, part) = (&mut head[run.at], &tail[0]);
    let len = layout.end - layout.data;
    let fits = run.layout.end - run.layout.l3 + len <= MAX_DATAGRAM;
    if run.ended || !fits || len > run.segment_size || seq(part, layout) != run.next_seq {
        return false;
    }
    if !same_headers(first, part, &run.layout, layout) || !make_room(first, run, len) {
        return false;
    }
    first.append(len).copy_from_slice(&part[layout.data..layout.end]);
    run.layout.end += len;
    run.next_seq = run.next_seq.wrapping_add(len as u32);
    run.parts += 1;
    let pushed = part[layout.l4 + FLAGS] & PSH;
    first[run.layout.l4 + FLAGS] |= pushed;
    // The newest acknowledgment covers all; an older, reordered one is redundant.
    if ack(part, layout).wrapping_sub(ack(first, &run.layout)) as i32 > 0 {
        let (from, to) = (layout.l4 + 8, layout.l4 + 12);
        first[from..to].copy_from_slice(&part[from..to]);
    }
    run.ended = pushed != 0 || len < run.segment_size;
    true
}

/// Everything that must be equal besides addresses and ports.
fn same_headers(a: &[u8], b: &[u8], la: &Layout, lb: &Layout) -> bool {
    if la.l4 != lb.l4 || la.data != lb.data {
        return false;
    }
    let (l3, l4) = (la.l3, la.l4);
    let network = if la.v6 {
        a[l3..l3 + 4] == b[l3..l3 + 4] && a[l3 + 6..l3 + 8] == b[l3 + 6..l3 + 8]
    } else {
        a[l3..l3 + 2] == b[l3..l3 + 2] && a[l3 + 6..l3 + 10] == b[l3 + 6..l3 + 10]
    };
    let flags_but_push = (a[l4 + FLAGS] | PSH) == (b[l4 + FLAGS] | PSH);
    let window = a[l4 + 14..l4 + 16] == b[l4 + 14..l4 + 16];
    let options = a[l4 + 20..la.data] == b[l4 + 20..lb.data];
    network && flags_but_push && window && options && a[..l3] == b[..l3]
}

/// Makes sure that `len` more bytes fit behind the run's data, moving the run to a large buffer the first time, or to that
/// of a frame if it is no longer than one.
fn make_room(first: &mut PktBuf, run: &SuperSegment, len: usize) -> bool {
    first.truncate(run.layout.end);
    if first.tailroom() >= len {
        return true;
    }
    let needed = first.len() + len;
    let capacity = if needed <= FRAME_CAPACITY { FRAME_CAPACITY } else { run.layout.l3 + MAX_DATAGRAM };
    let Some(mut large) = PktBuf::alloc(capacity) else {
        return false;
    };
    large.append(first.len()).copy_from_slice(first);
    *large.meta_mut() = *first.meta();
    *first = large;
    true
}

/// Sets the header fields of a finished super-segment to its length.
fn finish(batch: &mut [PktBuf], run: &SuperSegment) {
    if run.parts < 2 {
        return;
    }
    let Layout { l3, l4, end, v6, .. } = run.layout;
    let frame = &mut batch[run.at];
    if v6 {
        frame[l3 + 4..l3 + 6].copy_from_slice(&((end - l4) as u16).to_be_bytes());
    } else {
        frame[l3 + 2..l3 + 4].copy_from_slice(&((end - l3) as u16).to_be_bytes());
        frame[l3 + 10..l3 + 12].fill(0);
        let header = checksum::sum(&frame[l3..l4]).finish();
        frame[l3 + 10..l3 + 12].copy_from_slice(&header.to_be_bytes());
    }
    let (src, dst) = run.layout.addresses(frame);
    let open = checksum::pseudo_header(src, dst, TCP, (end - l4) as u32).fold();
    let field = run.layout.checksum_field();
    frame[field..field + 2].copy_from_slice(&open.to_be_bytes());
    let meta = frame.meta_mut();
    meta.segment_size = run.segment_size as u16;
    meta.checksum = Checksum::Partial { start: l4 as u16, offset: (field - l4) as u16 };
}

fn seq(frame: &[u8], layout: &Layout) -> u32 {
    be32(frame, layout.l4 + 4)
}

fn ack(frame: &[u8], layout: &Layout) -> u32 {
    be32(frame, layout.l4 + 8)
}

fn be32(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
}
