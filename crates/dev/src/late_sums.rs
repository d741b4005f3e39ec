//! Checksums of transmitted frames that are summed after the sender has released its locks: an experiment of Nahum et al. (1994), where
//! the checksum is one of the few costs of a packet that need no lock.
//!
//! [`LateSums`] wraps a device that computes no checksums. To the stack it is one that does, so a frame comes with its checksum open
//! ([`Checksum::Partial`]), given by a thread that holds the connection. The frame waits here. A device's receivers are notified by
//! the sender when it has dropped its last guard ([`TxQueue::notifier`]), and it is then that the frame is summed.
//!
//! # Order
//! Frames leave in the order in which they were given. Of several threads each sums one frame after the other, and holds the lock of the
//! queue only to take a frame out and to put it back. A frame that is summed before an earlier one waits for that; the thread that
//! completes the earlier one gives both to the device.
//!
//! What may never happen: a frame that was taken here and finds no room in the device. So the credit is the device's less the frames that
//! are here. A super-segment is cut by the device, which computes the checksums of the parts: it is not summed here.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use observe::Counters;
use pktbuf::{Checksum, PktBuf};
use sync::{Lock, LockClass, LockKind, Platform};
use wire::Framing;

use crate::layout::complete_checksum_framed;
use crate::{BitSet, Capabilities, Device, Notify, QueuePair, TxQueue};

/// A frame that was given, and has not reached the device.
enum LateFrame {
    /// Its checksum is open.
    Open(PktBuf),
    /// A thread sums it.
    Summed,
    /// It is complete.
    Complete(PktBuf),
}

impl LateFrame {
    fn of(frame: PktBuf) -> LateFrame {
        let open = matches!(frame.meta().checksum, Checksum::Partial { .. }) && frame.meta().segment_size == 0;
        if open { LateFrame::Open(frame) } else { LateFrame::Complete(frame) }
    }
}

struct LateState {
    device: Box<dyn TxQueue>,
    /// In the order in which they were given.
    frames: VecDeque<LateFrame>,
    /// The number of the first of them, of all that were ever given.
    first: u64,
    /// The device has been given frames, and its receivers have not been notified.
    given: bool,
}

impl LateState {
    fn credit(&self) -> usize {
        self.device.credit().saturating_sub(self.frames.len())
    }

    fn put(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        if self.credit() == 0 {
            return Err(frame);
        }
        self.frames.push_back(LateFrame::of(frame));
        self.pass_on();
        Ok(())
    }

    /// Gives the device the frames that are complete, up to the first that is not.
    fn pass_on(&mut self) {
        while let Some(LateFrame::Complete(_)) = self.frames.front() {
            let Some(LateFrame::Complete(frame)) = self.frames.pop_front() else { return };
            if let Err(frame) = self.device.transmit(frame) {
                debug_assert!(false, "the device has as much room as it said");
                return self.frames.push_front(LateFrame::Complete(frame));
            }
            (self.first, self.given) = (self.first + 1, true);
        }
    }

    /// The first frame that nobody sums, with its number.
    fn take(&mut self) -> Option<(u64, PktBuf)> {
        let at = self.frames.iter().position(|frame| matches!(frame, LateFrame::Open(_)))?;
        match std::mem::replace(&mut self.frames[at], LateFrame::Summed) {
            LateFrame::Open(frame) => Some((self.first + at as u64, frame)),
            _ => None,
        }
    }

    /// The frame with this number, which was taken, is complete.
    fn complete(&mut self, number: u64, frame: PktBuf) {
        self.frames[(number - self.first) as usize] = LateFrame::Complete(frame);
        self.pass_on();
    }
}

/// A transmit queue of the device, with the frames that wait.
struct LateQueue<P: Platform> {
    state: Lock<LateState, P>,
    lock_index: u32,
    /// Wakes the device's receivers without the queue, if it can.
    notifier: Option<Arc<dyn Notify>>,
    framing: Framing,
}

impl<P: Platform> LateQueue<P> {
    fn with<R>(&self, f: impl FnOnce(&mut LateState) -> R) -> R {
        f(&mut self.state.lock_nested(self.lock_index))
    }

    /// Sums the frames that nobody sums, each without the lock.
    fn sum(&self) {
        while let Some((number, mut frame)) = self.with(LateState::take) {
            sync::walk::note(file!(), "sums a frame whose connection has been released");
            P::sum(frame.as_ptr(), frame.len());
            complete_checksum_framed(self.framing, &mut frame);
            self.with(|state| state.complete(number, frame));
        }
    }
}

impl<P: Platform> Notify for LateQueue<P> {
    /// The caller has no guard. Which receivers have frames is known only here.
    fn notify(&self, _: &BitSet) {
        self.sum();
        let receivers = self.with(|state| {
            let mut receivers = BitSet::new();
            if std::mem::take(&mut state.given) {
                match self.notifier {
                    Some(_) => state.device.take_dirty(&mut receivers),
                    None => state.device.flush(),
                }
            }
            receivers
        });
        if let Some(notifier) = self.notifier.as_ref().filter(|_| !receivers.is_empty()) {
            notifier.notify(&receivers);
        }
    }
}

/// The stack's end of it.
struct LateTx<P: Platform>(Arc<LateQueue<P>>);

impl<P: Platform> TxQueue for LateTx<P> {
    fn credit(&self) -> usize {
        self.0.with(|state| state.credit())
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        self.0.with(|state| state.put(frame))
    }

    fn flush(&mut self) {
        self.0.notify(&BitSet::new());
    }

    fn notifier(&self) -> Option<Arc<dyn Notify>> {
        Some(self.0.clone())
    }

    /// A thread that gave a frame must notify: any receiver stands for that.
    fn take_dirty(&mut self, dirty: &mut BitSet) {
        if self.0.with(|state| state.given || !state.frames.is_empty()) {
            dirty.insert(0);
        }
    }
}

/// See the head of the file.
pub struct LateSums<P: Platform> {
    device: Box<dyn Device>,
    capabilities: Capabilities,
    platform: PhantomData<fn() -> P>,
}

impl<P: Platform> LateSums<P> {
    /// Around a device, which has its queues. One that computes checksums itself is left as it is.
    pub fn around(device: Box<dyn Device>) -> Box<dyn Device>
    where
        P: 'static,
    {
        if device.capabilities().tx_checksum {
            return device;
        }
        let capabilities = Capabilities { tx_checksum: true, ..device.capabilities().clone() };
        Box::new(LateSums::<P> { device, capabilities, platform: PhantomData })
    }
}

impl<P: Platform> Device for LateSums<P> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name(&self) -> &str {
        self.device.name()
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        let framing = self.capabilities.framing;
        let late = |QueuePair { rx, tx: device }: QueuePair| {
            let notifier = device.notifier();
            let state = LateState { device, frames: VecDeque::new(), first: 0, given: false };
            let state = Lock::new(LockKind::Blocking, LockClass::Pool, state);
            let queue = LateQueue::<P> { state, lock_index: crate::wrapper_lock_index(), notifier, framing };
            QueuePair { rx, tx: Box::new(LateTx(Arc::new(queue))) }
        };
        self.device.take_queues().into_iter().map(late).collect()
    }

    fn counters(&self) -> Option<Arc<Counters>> {
        self.device.counters()
    }
}

#[cfg(test)]
mod tests {
    use pktbuf::Meta;
    use sync::Real;

    use super::*;
    use crate::mem::{MemConfig, pair};

    /// A TCP segment with this byte of data, and an open checksum.
    fn open(byte: u8) -> PktBuf {
        let mut frame =
            PktBuf::from_slice(&frames::Ends::PEER_TO_STACK.bytes(frames::Segment::data((1, 2), 3, 4, &[byte])))
                .expect("a packet buffer");
        let pseudo = frames::pseudo_header([10, 0, 0, 2].into(), [10, 0, 0, 1].into(), 6, 21);
        frame[50..52].copy_from_slice(&pseudo.to_be_bytes());
        *frame.meta_mut() = Meta { checksum: Checksum::Partial { start: 34, offset: 16 }, ..*frame.meta() };
        frame
    }

    /// The queue, and what has reached the far end.
    fn queue(ring_frames: usize) -> (Arc<LateQueue<Real>>, LateTx<Real>, impl FnMut() -> Vec<u8>) {
        let (a, mut b) = pair::<Real>(MemConfig { ring_frames, ..MemConfig::default() });
        let mut device =
            LateSums::<Real> { capabilities: a.capabilities().clone(), device: Box::new(a), platform: PhantomData };
        let QueuePair { tx, .. } = device.device.take_queues().swap_remove(0);
        let notifier = tx.notifier();
        let state = LateState { device: tx, frames: VecDeque::new(), first: 0, given: false };
        let state = Lock::new(LockKind::Blocking, LockClass::Pool, state);
        let queue = Arc::new(LateQueue { state, lock_index: 0, notifier, framing: Framing::Ethernet });
        let mut far = b.take_queues().swap_remove(0).rx;
        let arrived = move || {
            let mut frames = Vec::new();
            far.receive(&mut frames, 64);
            assert!(frames.iter().all(|frame| frame.meta().checksum == Checksum::None));
            frames.iter().map(|frame| frame[54]).collect()
        };
        (queue.clone(), LateTx(queue), arrived)
    }

    /// One thread sums the first, another the second, and the second is complete first.
    #[test]
    fn a_frame_that_is_complete_waits_for_earlier_ones() {
        let (queue, mut tx, mut arrived) = queue(64);
        for byte in [1, 2, 3] {
            assert!(tx.transmit(open(byte)).is_ok());
        }
        let (first, a) = queue.with(LateState::take).expect("nobody sums it");
        let (second, b) = queue.with(LateState::take).expect("nobody sums it");
        let complete = |number, mut frame| {
            complete_checksum_framed(Framing::Ethernet, &mut frame);
            queue.with(|state| state.complete(number, frame));
        };
        complete(second, b);
        queue.notify(&BitSet::new());
        assert_eq!(arrived(), [0; 0], "the third is complete, too");
        let already = PktBuf::from_slice(&frames::Ends::PEER_TO_STACK.bytes(frames::Segment::data((1, 2), 3, 4, &[4])));
        assert!(tx.transmit(already.expect("a packet buffer")).is_ok());
        assert_eq!(arrived(), [0; 0], "nor does one overtake them that needs no sum");
        complete(first, a);
        assert_eq!(arrived(), [1, 2, 3, 4]);
    }

    /// The room of the device is promised to frames that are here.
    #[test]
    fn no_more_frames_are_taken_than_the_device_has_room_for() {
        let (_, mut tx, mut arrived) = queue(8);
        let taken = (0..20).take_while(|byte| tx.transmit(open(*byte)).is_ok()).count();
        assert!((1..20).contains(&taken) && tx.credit() == 0, "{taken}");
        tx.flush();
        assert_eq!(arrived(), (0..taken as u8).collect::<Vec<_>>());
        assert!(tx.transmit(open(9)).is_ok(), "there is room again");
    }

    /// The receivers are those of the device; that there are any is said before they are known.
    #[test]
    fn a_thread_that_gives_a_frame_has_to_notify() {
        let (queue, mut tx, mut arrived) = queue(64);
        let mut dirty = BitSet::new();
        tx.take_dirty(&mut dirty);
        assert!(dirty.is_empty());
        assert!(tx.transmit(open(1)).is_ok());
        tx.take_dirty(&mut dirty);
        assert!(!dirty.is_empty());
        queue.notify(&dirty);
        assert_eq!(arrived(), [1]);
        let mut dirty = BitSet::new();
        tx.take_dirty(&mut dirty);
        assert!(dirty.is_empty());
    }
}
