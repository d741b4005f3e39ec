//! Floods a frame: the ports by which it leaves hold the same bytes, and no port gets a copy only because there are others.
//!
//! A device that only reads frames (TAP, a capture) sends from the buffer that all holders share; a device that gives its frames
//! one owner (a link in memory) copies it while there are other holders ([`dev::TxQueue::transmit_shared`]). The bridge itself
//! makes a copy for a port that requires another tag or a complete checksum, because that changes the bytes. The last holder
//! has the frame itself.
//!
//! What may never happen: a byte that changes for one port because of another.

use bridge::TagAction;
use dev::{BitSet, NotTransmitted, TxQueue};
use observe::{Counters, DropReason};
use pktbuf::{PktBuf, SharedBuf};
use sync::Platform;

use crate::port::BridgePort;

/// A frame that the bridge gives to a port: with one owner ([`PktBuf`]), or flooded ([`FloodedFrame`]).
pub(crate) trait EgressFrame: Sized {
    /// The frame with the tag and the checksum that the port requires; `None`: there is no buffer for it, which is counted.
    fn prepare<P: Platform>(self, port: &BridgePort<P>, tag: TagAction, counters: &Counters) -> Option<Self>;

    /// Its length.
    fn bytes(&self) -> usize;

    /// Gives it to a device.
    ///
    /// # Errors
    /// Why it is dropped.
    fn transmit(self, queue: &mut dyn TxQueue) -> Result<(), DropReason>;

    /// The same; `receivers` gets the receivers to notify.
    fn transmit_noting(self, queue: &mut dyn TxQueue, receivers: &mut BitSet) -> Result<(), DropReason>;
}

impl EgressFrame for PktBuf {
    #[inline(always)]
    fn prepare<P: Platform>(self, port: &BridgePort<P>, tag: TagAction, counters: &Counters) -> Option<PktBuf> {
        port.prepare(self, tag, counters)
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn transmit(self, queue: &mut dyn TxQueue) -> Result<(), DropReason> {
        queue.transmit(self).map_err(|_| DropReason::TxRingFull)
    }

    #[inline(always)]
    fn transmit_noting(self, queue: &mut dyn TxQueue, receivers: &mut BitSet) -> Result<(), DropReason> {
        queue.transmit_one(self, receivers).map(|_| ()).map_err(|_| DropReason::TxRingFull)
    }
}

/// What one port gets of a frame that is flooded.
pub(crate) enum FloodedFrame {
    /// A buffer that no other port has.
    Own(PktBuf),
    /// One of the holders of the frame.
    Shared(SharedBuf),
}

impl EgressFrame for FloodedFrame {
    fn prepare<P: Platform>(self, port: &BridgePort<P>, tag: TagAction, counters: &Counters) -> Option<FloodedFrame> {
        let own = match self {
            FloodedFrame::Own(frame) => Some(frame),
            FloodedFrame::Shared(frame) if tag == TagAction::Keep && port.takes_checksum(frame.meta().checksum) => {
                return Some(FloodedFrame::Shared(frame));
            }
            FloodedFrame::Shared(frame) => frame.into_unique(),
        };
        match own {
            Some(frame) => port.prepare(frame, tag, counters).map(FloodedFrame::Own),
            None => {
                counters.count_drop(DropReason::NoBuffer);
                None
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            FloodedFrame::Own(frame) => frame.len(),
            FloodedFrame::Shared(frame) => frame.len(),
        }
    }

    fn transmit(self, queue: &mut dyn TxQueue) -> Result<(), DropReason> {
        match self {
            FloodedFrame::Own(frame) => EgressFrame::transmit(frame, queue),
            FloodedFrame::Shared(frame) => queue.transmit_shared(frame).map_err(|refusal| match refusal {
                NotTransmitted::NoRoom(_) => DropReason::TxRingFull,
                NotTransmitted::NoBuffer => DropReason::NoBuffer,
            }),
        }
    }

    fn transmit_noting(self, queue: &mut dyn TxQueue, receivers: &mut BitSet) -> Result<(), DropReason> {
        EgressFrame::transmit(self, queue)?;
        queue.take_dirty(receivers);
        Ok(())
    }
}

/// Calls `leave` for each of the ports with what it gets of the frame: the frame itself if there is one port, otherwise one of
/// its holders.
pub(crate) fn flood<T>(frame: PktBuf, ports: impl Iterator<Item = T>, mut leave: impl FnMut(T, FloodedFrame)) {
    let mut ports = ports.peekable();
    let Some(mut port) = ports.next() else { return };
    if ports.peek().is_none() {
        return leave(port, FloodedFrame::Own(frame));
    }
    let shared = frame.share();
    for next in ports {
        leave(std::mem::replace(&mut port, next), FloodedFrame::Shared(shared.clone()));
    }
    leave(port, FloodedFrame::Shared(shared));
}
