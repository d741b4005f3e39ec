//! The rule about frames that others hold, too ([`TxQueue::transmit_shared`](crate::TxQueue::transmit_shared)).

use pktbuf::SharedBuf;

use super::carrying::{FLOW, fill, one};
use super::link::{End, Findings, frame, leave_checksum};
use crate::NotTransmitted;

pub(super) fn shared(mut from: End, mut to: End, found: &mut Findings) {
    let peer = to.capabilities.clone();
    for (number, flow) in (1..).zip(from.flows(44_000)) {
        let held = frame(&from, &peer, flow, number).share();
        for queue in 0..from.queues.len() {
            if !cross(&mut from, &mut to, queue, (&held, number), found) {
                return;
            }
        }
        // The last holder.
        let bytes = held.to_vec();
        if !send(&mut from, 0, held, found) {
            return;
        }
        one(&to.collect(1, found.patience), &bytes, number, &to, found);
    }
    if from.capabilities.tx_checksum {
        let mut open = frame(&from, &peer, FLOW, 3);
        leave_checksum(from.capabilities.framing, &mut open);
        let (bytes, held) = (open.to_vec(), open.share());
        if send(&mut from, 0, held.clone(), found) {
            let came = to.collect(1, found.patience);
            found.expect(&to.name, came.len() == 1, "a frame with an open checksum did not arrive");
            let same = *held == *bytes;
            found.expect(&from.name, same, "an open checksum was completed in the buffer of another holder");
        }
    }
    full(from, &peer, found);
}

/// A frame crosses while there is another holder. Its receiver may write what it gets.
fn cross(from: &mut End, to: &mut End, queue: usize, (held, number): (&SharedBuf, u32), found: &mut Findings) -> bool {
    let bytes = held.to_vec();
    if !send(from, queue, held.clone(), found) {
        return false;
    }
    let mut arrived = to.collect(1, found.patience);
    one(&arrived, &bytes, number, to, found);
    arrived.iter_mut().for_each(|arrived| arrived.frame.fill(0xee));
    found.expect(&from.name, **held == *bytes, "the bytes of a frame changed for another holder")
}

fn send(from: &mut End, queue: usize, frame: SharedBuf, found: &mut Findings) -> bool {
    let taken = from.queues[queue].tx.transmit_shared(frame).is_ok();
    from.queues[queue].tx.flush();
    found.expect(&from.name, taken, format_args!("queue {queue} has no room for the only frame on its way"))
}

/// A full queue returns the frame.
fn full(mut from: End, peer: &crate::Capabilities, found: &mut Findings) {
    let Some(filled) = fill(&mut from, peer, found) else { return };
    let held = frame(&from, peer, FLOW, filled as u32).share();
    let bytes = held.to_vec();
    let back = match from.queues[0].tx.transmit_shared(held.clone()) {
        Err(NotTransmitted::NoRoom(back)) => *back == *bytes,
        Err(NotTransmitted::NoBuffer) | Ok(()) => false,
    };
    found.expect(&from.name, back && *held == *bytes, "a full queue did not return a frame that others hold, too");
}
