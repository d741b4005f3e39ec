//! Seventh: process the segment data (RFC 9293 section 3.10.7.4). Written against the receive side alone.

use observe::{Counter, DropReason, Time};
use pktbuf::PktBuf;
use wire::SeqNumber;

use crate::outbox::{LocalEffects, Outbox, Readiness};
use crate::pcb::reassembly::Inserted;
use crate::pcb::{Ack, COALESCE, IDLE_CHECK, ReadMode, Reassembly, ReceiveWindow, RecvSnapshot};

/// The disposition of the data.
#[derive(Debug)]
pub(crate) struct TakenData {
    pub(crate) ack: Ack,
    pub(crate) snapshot: RecvSnapshot,
    /// The peer's FIN is next in sequence.
    pub(crate) fin: bool,
    /// The reason why none of it was kept; not counted yet.
    pub(crate) dropped: Option<DropReason>,
}

/// Take `data` at `seq`, with a FIN behind it if `fin`; `followed` if a segment with more of it is right behind.
#[inline]
pub(crate) fn accept(
    rw: &mut ReceiveWindow,
    ra: &mut Reassembly,
    (seq, data, fin): (SeqNumber, PktBuf, bool),
    followed: bool,
    out: &mut Outbox<'_>,
    now: Time,
) -> TakenData {
    let mut dropped = None;
    let ack = if out.scarcity.is_severe() && over_memory_limit(rw, out) && !data.is_empty() {
        dropped = Some(DropReason::TcpReceiveBufferFull);
        Ack::Pure
    } else if seq == rw.nxt && ra.is_empty() && data.len() as u32 <= rw.window() && rw.state.accepts_data() {
        out.count(Counter::FastPathIn, 1);
        let ends = fin && data.is_empty();
        in_order(rw, data, false, out, now);
        rw.note_fin(fin);
        rw.grow(out.config, out.scarcity, now);
        rw.open_window();
        if ends {
            rw.expect_close(out.config);
        }
        rw.schedule_ack(followed, out, now)
    } else {
        let (ack, reason) = in_disorder(rw, ra, (seq, data, fin), out, now);
        dropped = reason;
        rw.grow(out.config, out.scarcity, now);
        rw.open_window();
        ack
    };
    let snapshot = rw.snapshot(ra);
    if ack >= Ack::Now {
        rw.acked(snapshot.nxt, snapshot.edge);
    }
    TakenData { ack, snapshot, fin: rw.fin_next(), dropped }
}

/// Whether the data would be queued in the buffer in which it is, as a whole: its checksum may then be checked when it is taken.
#[inline]
pub(crate) fn keeps_whole(rw: &ReceiveWindow, ra: &Reassembly, seq: SeqNumber, data: &PktBuf) -> bool {
    let fits = data.len() > COALESCE && data.len() as u32 <= rw.window();
    fits && seq == rw.nxt && ra.is_empty() && rw.state.accepts_data() && !rw.discards()
}

/// Memory use exceeds the limit, and this user leaves more unread than the least buffer holds: data is dropped until it
/// reads or others free memory, although the window was advertised for it. The peer retransmits it.
#[cold]
fn over_memory_limit(rw: &ReceiveWindow, out: &Outbox<'_>) -> bool {
    !rw.discards() && rw.queued >= out.config.receive_buffer.min
}

/// Queue data that begins at RCV.NXT. `usual`: nothing is rare about the receive side, and there is data.
#[inline(always)]
pub(crate) fn in_order(rw: &mut ReceiveWindow, data: PktBuf, usual: bool, out: &mut LocalEffects<'_>, now: Time) {
    if !usual && data.is_empty() {
        return;
    }
    note_arrival(rw, &data, usual, out, now);
    let appended = rw.append(data, usual);
    out.memory += i64::from(appended.memory);
    if appended.spilled {
        out.wake_by(now + IDLE_CHECK);
    }
}

/// [`in_order`] of data that the user takes at once, where nothing is rare about the receive side: it is not queued, and counts
/// as unread until it is taken.
#[inline(always)]
pub(crate) fn pass(rw: &mut ReceiveWindow, data: &PktBuf, out: &mut LocalEffects<'_>, now: Time) {
    note_arrival(rw, data, true, out, now);
    rw.nxt += data.len() as u32;
    rw.queued += data.len() as u32;
}

/// Data has arrived at RCV.NXT: the notification of the user, and the counts.
#[inline(always)]
fn note_arrival(rw: &mut ReceiveWindow, data: &PktBuf, usual: bool, out: &mut LocalEffects<'_>, now: Time) {
    let len = data.len();
    let meta = data.meta().segment_size;
    let segment = if meta == 0 { len.min(usize::from(u16::MAX)) as u16 } else { meta };
    rw.peer_segment = rw.peer_segment.max(segment);
    let discards = !usual && rw.discards();
    if rw.queued < rw.low_water && !discards && len >= (rw.low_water - rw.queued) as usize
        || !usual && rw.reading == ReadMode::EveryArrival
    {
        out.ready |= Readiness::READABLE;
    }
    out.count(Counter::DataBytesIn, len as u64);
    rw.tally(len, usual, out.config, now);
}

/// Data that does not begin at RCV.NXT, that fills a hole, or that exceeds the window.
#[cold]
fn in_disorder(
    rw: &mut ReceiveWindow,
    ra: &mut Reassembly,
    (seq, mut data, mut fin): (SeqNumber, PktBuf, bool),
    out: &mut Outbox<'_>,
    now: Time,
) -> (Ack, Option<DropReason>) {
    if !rw.state.accepts_data() {
        return (Ack::None, Some(DropReason::TcpAfterFin));
    }
    let end = seq + data.len() as u32;
    if seq.gt(rw.nxt) {
        out.count(Counter::OutOfOrderAtEntry, 1);
        return insert(rw, ra, (seq, data, fin), out);
    }
    let old = seq.lt(rw.nxt);
    if old {
        out.count(Counter::DuplicateDataIn, 1);
        if out.config.dsack {
            ra.record_duplicate(seq, rw.nxt.min(end));
        }
        if end.lt(rw.nxt) || end == rw.nxt && !fin {
            return (Ack::Pure, Some(DropReason::TcpOldDuplicate));
        }
        data.pull_front((rw.nxt - seq) as usize);
    }
    let window = rw.window() as usize;
    if data.len() > window {
        data.truncate(window);
        fin = false;
        if window == 0 {
            return (Ack::Pure, Some(DropReason::TcpZeroWindow));
        }
    }
    if out.config.dsack && !old {
        // RFC 2883 section 4.2: of several duplicate parts, the first is reported.
        ra.record_overlap(rw.nxt + (data.len() as u32 + u32::from(fin)));
    }
    (fill(rw, ra, (data, fin), out, now), None)
}

/// Data at RCV.NXT, before queued data.
fn fill(
    rw: &mut ReceiveWindow,
    ra: &mut Reassembly,
    (data, fin): (PktBuf, bool),
    out: &mut Outbox<'_>,
    now: Time,
) -> Ack {
    in_order(rw, data, false, out, now);
    rw.note_fin(fin);
    let filled = !ra.is_empty();
    drain(rw, ra, out, now);
    // RFC 5681 section 4.2: at once when all or part of a gap is filled, so that the sender's recovery continues. A
    // segment with data would not carry the blocks.
    let reports = rw.sack && ra.has_duplicate();
    if reports || filled && !ra.is_empty() { Ack::Pure } else { Ack::Now }
}

/// Store data and FIN of a SYN, which begin at RCV.NXT, until the connection is established.
#[cold]
pub(crate) fn store_syn_data(
    rw: &mut ReceiveWindow,
    ra: &mut Reassembly,
    (seq, data, fin): (SeqNumber, PktBuf, bool),
    out: &mut Outbox<'_>,
) -> Option<DropReason> {
    match hold(rw, ra, (seq, data, fin), out) {
        Inserted::Dropped(reason) => Some(reason),
        Inserted::Stored | Inserted::Duplicate(..) => None,
    }
}

/// The connection is established: deliver the data that [`store_syn_data`] has stored. `None` if that is nothing.
#[cold]
pub(crate) fn deliver_syn_data(
    rw: &mut ReceiveWindow,
    ra: &mut Reassembly,
    out: &mut Outbox<'_>,
    now: Time,
) -> Option<RecvSnapshot> {
    let before = rw.nxt;
    drain(rw, ra, out, now);
    if rw.nxt == before && !rw.fin_next() {
        return None;
    }
    rw.grow(out.config, out.scarcity, now);
    rw.open_window();
    let snapshot = rw.snapshot(ra);
    rw.acked(snapshot.nxt, snapshot.edge);
    Some(snapshot)
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//# Segments with higher beginning sequence numbers SHOULD be held for later processing (SHLD-31).
fn insert(
    rw: &mut ReceiveWindow,
    ra: &mut Reassembly,
    (seq, data, fin): (SeqNumber, PktBuf, bool),
    out: &mut Outbox<'_>,
) -> (Ack, Option<DropReason>) {
    let reason = match hold(rw, ra, (seq, data, fin), out) {
        Inserted::Stored => {
            out.count(Counter::OutOfOrderQueued, 1);
            None
        }
        Inserted::Duplicate(..) => {
            out.count(Counter::DuplicateDataIn, 1);
            Some(DropReason::TcpOldDuplicate)
        }
        Inserted::Dropped(reason) => Some(reason),
    };
    if !out.config.dsack {
        ra.forget_duplicate();
    }
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
    //# A TCP implementation MAY send an ACK segment acknowledging RCV.NXT when a valid segment arrives that is in the
    //# window but not at the left window edge (MAY-13).
    out.count(Counter::DupAcksOut, 1);
    (Ack::Pure, reason)
}

/// Puts the segment into the out-of-order queue, as far as memory allows.
fn hold(
    rw: &ReceiveWindow,
    ra: &mut Reassembly,
    (seq, data, fin): (SeqNumber, PktBuf, bool),
    out: &mut Outbox<'_>,
) -> Inserted {
    // Twice the buffer in memory: blocks are larger than the data in them.
    let mut limit = rw.limit.saturating_mul(2);
    if out.scarcity.is_severe() {
        limit = out.config.receive_buffer.min.saturating_mul(2).min(limit);
        if ra.bytes() > out.config.receive_buffer.min {
            // The peer must expect that (RFC 2018 section 8). It will retransmit the data, and as the whole queue is
            // gone none of it is reported, neither by SACK nor later as a duplicate.
            ra.give_up(out);
            out.count(Counter::ReassemblyPruned, 1);
        }
    }
    let before = ra.memory();
    let inserted = ra.insert(seq, data, fin, rw.nxt, rw.accept_edge(), limit);
    out.memory += i64::from(ra.memory()) - i64::from(before);
    inserted
}

/// Moves data that has become contiguous into the receive queue.
fn drain(rw: &mut ReceiveWindow, ra: &mut Reassembly, out: &mut Outbox<'_>, now: Time) {
    let before = ra.memory();
    while !rw.fin_next()
        && let Some((data, fin)) = ra.pop_ready(rw.nxt)
    {
        in_order(rw, data, false, out, now);
        rw.note_fin(fin);
    }
    out.memory += i64::from(ra.memory()) - i64::from(before);
}
