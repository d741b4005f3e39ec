//! Rules about frames: their integrity, order, number, size and metadata.

use std::collections::VecDeque;

use pktbuf::{Checksum, PktBuf};
use wire::Framing;
use wire::ethernet::MacAddr;

use super::link::{Arrived, End, Findings, TestFlow, frame, leave_checksum, segment, sized};
use crate::layout::Layout;

/// Any flow.
pub(super) const FLOW: TestFlow = TestFlow { v6: false, port: 40_000 };
/// A queue that accepts more frames than this is treated as unlimited.
const NO_LIMIT: usize = 1 << 14;
/// Frames in flight at a time where the queue must not fill.
const BURST: usize = 16;

pub(super) fn capabilities(from: End, _to: End, found: &mut Findings) {
    let (name, says) = (from.name.as_str(), &from.capabilities);
    found.expect(name, !name.is_empty(), "the device has no name");
    found.expect(name, says.mtu >= 68, format_args!("an MTU of {} bytes is below 68 (RFC 791)", says.mtu));
    let (said, there) = (says.queue_pairs, from.queues.len());
    let all = said >= 1 && said == there;
    found.expect(name, all, format_args!("queue_pairs is {said} and take_queues handed out {there}"));
    let again = from.handed_out_again;
    found.expect(name, again == 0, format_args!("a second take_queues handed out {again} queues"));
    match says.framing {
        Framing::Ethernet | Framing::Fddi => {
            let good = says.mac != MacAddr::UNSPECIFIED && says.mac.is_unicast();
            found.expect(name, good, format_args!("{} is not the address of a station", says.mac))
        }
        Framing::Packet => {
            found.expect(name, says.mac == MacAddr::UNSPECIFIED, "a link of bare packets has no link addresses")
        }
    };
    let short = says.segmentation.is_some_and(|longest| longest < says.mtu);
    found.expect(name, !short, "super-segments are shorter than the MTU");
    let usable = says.region.is_none_or(|region| PktBuf::alloc_in(region, 64).is_some());
    found.expect(name, usable, "the region gives no buffer of 64 bytes");
}

pub(super) fn intact(mut from: End, mut to: End, found: &mut Findings) {
    let peer = to.capabilities.clone();
    let mtu = from.capabilities.mtu.min(peer.mtu);
    let mut number = 0;
    for queue in 0..from.queues.len() {
        for flow in from.flows(40_000 + queue as u16) {
            for packet in [0, mtu / 2, mtu / 2 + 1, mtu - 1, mtu] {
                number += 1;
                let sent = sized(&from, &peer, flow, number, packet);
                let bytes = sent.to_vec();
                if !from.send(queue, sent, found) {
                    return;
                }
                let arrived = to.collect(1, found.patience);
                one(&arrived, &bytes, number, &to, found);
            }
        }
    }
    // It "accepts other frames, too".
    if from.capabilities.region.is_some() {
        let elsewhere = PktBuf::from_slice(&frame(&from, &peer, FLOW, 0)).expect("memory for a frame");
        let bytes = elsewhere.to_vec();
        if from.send(0, elsewhere, found) {
            one(&to.collect(1, found.patience), &bytes, 0, &to, found);
        }
    }
}

/// Exactly one frame has arrived, with these bytes.
pub(super) fn one(arrived: &[Arrived], bytes: &[u8], number: u32, to: &End, found: &mut Findings) {
    let len = bytes.len();
    match arrived {
        [only] if *only.frame != *bytes => {
            let differs = only.frame.iter().zip(bytes).position(|(came, sent)| came != sent);
            let at = differs.unwrap_or(len.min(only.frame.len()));
            let came = only.frame.len();
            found.note(
                &to.name,
                format_args!("a frame of {len} bytes arrived as {came} bytes, other from byte {at} on"),
            );
        }
        [only] if only.number == number => {
            let said = only.frame.meta().segment_size;
            found.expect(&to.name, said == 0, format_args!("a plain frame has a segment_size of {said}"));
        }
        [] => found.note(&to.name, format_args!("a frame of {len} bytes did not arrive")),
        more => found.note(&to.name, format_args!("one frame was sent and {} arrived", more.len())),
    }
}

pub(super) fn order(mut from: End, mut to: End, found: &mut Findings) {
    let peer = to.capabilities.clone();
    for queue in 0..from.queues.len() {
        let (mut next, mut came_on) = (0, None);
        for flow in from.flows(41_000 + queue as u16) {
            let first = next;
            while next < first + 200 {
                let burst = from.queues[queue].tx.credit().min(BURST);
                for _ in 0..burst {
                    let sent = frame(&from, &peer, flow, next);
                    let taken = from.queues[queue].tx.transmit(sent).is_ok();
                    found.expect(&from.name, taken, "a queue refused what it has credit for");
                    next += 1;
                }
                from.queues[queue].tx.flush();
                let arrived = to.collect(burst, found.patience);
                let numbers: Vec<u32> = arrived.iter().map(|arrived| arrived.number).collect();
                let in_order = numbers.iter().copied().eq(next - burst as u32..next);
                let what = format_args!("frames {} to {} arrived as {numbers:?}", next - burst as u32, next - 1);
                if burst == 0 || !found.expect(&to.name, in_order, what) {
                    found.expect(&from.name, burst > 0, format_args!("queue {queue}, which is empty, has no credit"));
                    return;
                }
                let on = came_on.get_or_insert((flow, arrived[0].queue));
                if on.0 != flow {
                    *on = (flow, arrived[0].queue);
                }
                let one_queue = arrived.iter().all(|arrived| arrived.queue == on.1);
                found.expect(&to.name, one_queue, "frames of one flow arrived on several queues");
            }
        }
    }
}

pub(super) fn batch(mut from: End, mut to: End, found: &mut Findings) {
    let peer = to.capabilities.clone();
    for number in 0..5 {
        let sent = frame(&from, &peer, FLOW, number);
        if !from.send(0, sent, found) {
            return;
        }
    }
    let Some(first) = to.collect_one(found) else { return };
    let mut batch = vec![PktBuf::from_slice(b"before").expect("memory for a frame")];
    let rx = &mut to.queues[first].rx;
    let none = rx.receive(&mut batch, 0);
    found.expect(&to.name, (none, batch.len()) == (0, 1), "receive with a maximum of 0 handed out frames");
    let end = std::time::Instant::now() + found.patience;
    let mut ours = 1;
    while ours < 5 && std::time::Instant::now() < end {
        let before = batch.len();
        let said = rx.receive(&mut batch, 2);
        let grown = batch.len().wrapping_sub(before);
        let right = said <= 2 && said == grown;
        if !found.expect(
            &to.name,
            right,
            format_args!("receive of at most 2 said {said} and appended {}", grown as isize),
        ) {
            return;
        }
        ours += batch[before..].iter().filter(|frame| super::link::number(peer.framing, frame).is_some()).count();
    }
    found.expect(&to.name, ours == 5, format_args!("of 5 frames {ours} arrived"));
    let kept = batch.first().is_some_and(|frame| **frame == *b"before");
    found.expect(&to.name, kept, "receive changed what was in the batch before");
}

impl End {
    /// The queue on which the first of several frames of a flow arrives.
    fn collect_one(&mut self, found: &mut Findings) -> Option<usize> {
        let end = std::time::Instant::now() + found.patience;
        while std::time::Instant::now() < end {
            for (index, pair) in self.queues.iter_mut().enumerate() {
                let mut batch = Vec::new();
                pair.rx.receive(&mut batch, 1);
                if batch.iter().any(|frame| super::link::number(self.capabilities.framing, frame).is_some()) {
                    return Some(index);
                }
            }
        }
        found.note(&self.name, "frames that were sent did not arrive");
        None
    }
}

pub(super) fn room(mut from: End, mut to: End, found: &mut Findings) {
    let peer = to.capabilities.clone();
    let Some(filled) = fill(&mut from, &peer, found) else { return };
    // All are refused, in order; a frame refused one by one is returned unchanged.
    let more = filled as u32;
    let mut frames: VecDeque<PktBuf> = (more..more + 3).map(|number| frame(&from, &peer, FLOW, number)).collect();
    let before: Vec<Vec<u8>> = frames.iter().map(|frame| frame.to_vec()).collect();
    from.queues[0].tx.transmit_batch(&mut frames);
    let same = frames.iter().map(|frame| frame.to_vec()).eq(before);
    if !found.expect(&from.name, same, "transmit_batch of a full queue did not leave all frames in their order") {
        return;
    }
    from.queues[0].tx.flush();
    all(&to.collect(filled, found.patience), 0..more, &to, found);
    // Room again, and a batch longer than it.
    let has_room = from.queues[0].tx.credit() > 0;
    found.expect(&from.name, has_room, "there is no credit though every frame was received");
    let mut frames: VecDeque<PktBuf> = (more..2 * more + 10).map(|number| frame(&from, &peer, FLOW, number)).collect();
    from.queues[0].tx.transmit_batch(&mut frames);
    from.queues[0].tx.flush();
    let left = frames.iter().filter_map(|frame| super::link::number(peer.framing, frame));
    let taken = 2 * more + 10 - more - frames.len() as u32;
    let suffix = left.eq(more + taken..2 * more + 10);
    found.expect(&from.name, suffix, "transmit_batch did not leave the last frames in their order");
    all(&to.collect(taken as usize, found.patience), more..more + taken, &to, found);
}

/// Fills queue 0 with frames from number 0 on; returns how many it accepted. `None`: it has no limit, or breaks the
/// rule.
pub(super) fn fill(from: &mut End, peer: &crate::Capabilities, found: &mut Findings) -> Option<usize> {
    let mut filled = 0;
    loop {
        let credit = from.queues[0].tx.credit();
        for _ in 0..credit.min(NO_LIMIT) {
            let sent = frame(from, peer, FLOW, filled as u32);
            let taken = from.queues[0].tx.transmit(sent).is_ok();
            let what = format_args!("a credit of {credit} was promised, and frame {filled} refused");
            if !found.expect(&from.name, taken, what) {
                return None;
            }
            filled += 1;
        }
        if filled >= NO_LIMIT {
            return None;
        }
        let sent = frame(from, peer, FLOW, filled as u32);
        let bytes = sent.to_vec();
        match from.queues[0].tx.transmit(sent) {
            Err(back) => {
                let same = *back == *bytes;
                return found.expect(&from.name, same, "a full queue gave back another frame").then_some(filled);
            }
            Ok(()) => filled += 1,
        }
    }
}

/// All frames with these numbers have arrived, in their order.
fn all(arrived: &[Arrived], numbers: core::ops::Range<u32>, to: &End, found: &mut Findings) {
    let (wanted, came) = (numbers.len(), arrived.len());
    let same = arrived.iter().map(|arrived| arrived.number).eq(numbers);
    found.expect(
        &to.name,
        same,
        format_args!("of {wanted} frames that were taken {came} arrived, or in another order"),
    );
}

pub(super) fn size(mut from: End, mut to: End, found: &mut Findings) {
    let peer = to.capabilities.clone();
    let mtu = from.capabilities.mtu;
    if mtu >= 65_535 {
        return;
    }
    let before = from.dropped();
    let long = sized(&from, &peer, FLOW, 1, mtu + 1);
    let taken = from.queues[0].tx.transmit(long).is_ok();
    found.expect(&from.name, taken, "a frame longer than the MTU was given back, though there is room");
    let fits = sized(&from, &peer, FLOW, 2, mtu);
    if !from.send(0, fits, found) {
        return;
    }
    let arrived = to.collect(1, found.patience);
    let only = matches!(&arrived[..], [only] if only.number == 2);
    let what = format_args!("of a frame longer than the MTU and one that fits {} arrived", arrived.len());
    found.expect(&to.name, only, what);
    let counted = from.dropped() > before;
    found.expect(&from.name, !only || counted, "a frame longer than the MTU vanished without a counted reason");
}

pub(super) fn checksum(mut from: End, mut to: End, found: &mut Findings) {
    let peer = to.capabilities.clone();
    let framing = from.capabilities.framing;
    for flow in from.flows(42_000) {
        let good = frame(&from, &peer, flow, 1);
        let mut bad = frame(&from, &peer, flow, 2);
        if let Some(last) = bad.last_mut() {
            *last ^= 0x55;
        }
        let mut open = frame(&from, &peer, flow, 3);
        leave_checksum(framing, &mut open);
        let sent = if from.capabilities.tx_checksum { vec![good, bad, open] } else { vec![good, bad] };
        for sent in sent {
            let (sum, number) = (sent.meta().checksum, super::link::number(framing, &sent));
            if !from.send(0, sent, found) {
                return;
            }
            // A device may drop a damaged frame, if it counts it.
            let damaged = number == Some(2);
            let patience = if damaged { core::time::Duration::ZERO } else { found.patience };
            for arrived in to.collect(1, patience) {
                let what = format!("sent as {sum:?}, arrived as {:?}", arrived.frame.meta().checksum);
                let true_said = says_the_truth(framing, &arrived.frame, sum, arrived.number == 2);
                found.expect(&to.name, true_said, what);
                let verified = arrived.frame.meta().checksum == Checksum::Verified;
                let may = peer.rx_checksum || !verified;
                found.expect(&to.name, may, "a frame is marked as verified by a device without rx_checksum");
            }
        }
    }
}

/// Whether the checksum mark of a received frame is right.
fn says_the_truth(framing: Framing, frame: &PktBuf, sent: Checksum, damaged: bool) -> bool {
    let Some(layout) = Layout::framed(framing, frame) else { return false };
    match frame.meta().checksum {
        Checksum::None => damaged || layout.checksum_is_good(frame),
        Checksum::Verified => !damaged,
        open => open == sent,
    }
}

pub(super) fn segmentation(mut from: End, mut to: End, found: &mut Findings) {
    let Some(longest) = from.capabilities.segmentation else { return };
    let peer = to.capabilities.clone();
    let (framing, mtu) = (from.capabilities.framing, from.capabilities.mtu.min(peer.mtu));
    for flow in from.flows(43_000) {
        let headers = if flow.v6 { 60 } else { 40 };
        let size = mtu - headers;
        let sent = segment(&from, &peer, flow, 7, longest.min(headers + 3 * size + 1), size as u16);
        let Some(layout) = Layout::framed(framing, &sent) else { return };
        let data = sent[layout.data..layout.end].to_vec();
        let mut sent = sent;
        if from.capabilities.tx_checksum {
            leave_checksum(framing, &mut sent);
        }
        if !from.send(0, sent, found) {
            return;
        }
        let mut came = Vec::new();
        let end = std::time::Instant::now() + found.patience;
        while came.len() < data.len() && std::time::Instant::now() < end {
            for frame in to.receive_all() {
                let Some(layout) = Layout::framed(framing, &frame) else { continue };
                let whole = frame.meta().segment_size != 0;
                let fits = frame.len() <= mtu + to.link_header();
                let may = if peer.coalescing { whole || fits } else { fits && !whole };
                found.expect(&to.name, may, "a super-segment arrived at a device that does not coalesce, or unmarked");
                came.extend_from_slice(&frame[layout.data..layout.end]);
            }
        }
        found.expect(&to.name, came == data, "the data of a super-segment did not arrive as they were");
    }
}

impl End {
    /// All frames now on all queues, including foreign ones.
    fn receive_all(&mut self) -> Vec<PktBuf> {
        let mut batch = Vec::new();
        for pair in &mut self.queues {
            pair.rx.receive(&mut batch, 64);
        }
        let flow = |frame: &PktBuf| {
            Layout::framed(self.capabilities.framing, frame).map(|layout| layout.receiver_tuple(frame))
        };
        batch.retain(|frame| flow(frame).is_some_and(|tuple| tuple.local_port == 9));
        batch
    }
}
