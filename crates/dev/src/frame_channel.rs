//! A channel of frames from one thread to the receiver of a device, for the authors of devices: the part of a device
//! that is hardest to write, a bounded queue that a receiver can sleep on and that any thread can wake, is done.
//!
//! The receiving end is an [`RxQueue`], and goes into a [`QueuePair`](crate::QueuePair) as it is. The sending end
//! belongs to the source of the frames: the transmit queue at the other end of a link in memory, or a thread that reads
//! frames from another source.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::TrySendError;
use std::time::Duration;

use pktbuf::PktBuf;
use sync::Platform;

use crate::link::{self, LinkRx, LinkTx};
use crate::{RxQueue, WaitOutcome, Wake};

/// Makes a channel for at least `frames` frames.
///
/// # Panics
/// If `frames` is 0.
pub fn channel<P: Platform>(frames: usize) -> (FrameSender<P>, FrameReceiver<P>) {
    assert!(frames > 0, "a channel holds at least one frame");
    let (mut senders, mut receivers) = link::channel(1, frames);
    match (senders.pop(), receivers.pop()) {
        (Some(link), Some(receiver)) => (FrameSender { link }, FrameReceiver { link: receiver }),
        _ => unreachable!("a link of one queue has one queue"),
    }
}

/// The sending end of a [`channel`]. Without it the receiver is [gone](RxQueue::gone) as soon as it is empty.
pub struct FrameSender<P: Platform> {
    link: LinkTx<P>,
}

impl<P: Platform> fmt::Debug for FrameSender<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameSender").field("credit", &self.credit()).finish_non_exhaustive()
    }
}

impl<P: Platform> FrameSender<P> {
    /// How many frames there is room for, as [`TxQueue::credit`](crate::TxQueue::credit) requires it.
    pub fn credit(&self) -> usize {
        self.link.credit()
    }

    /// Appends a frame. A receiver that sleeps is woken by the next [`flush`](FrameSender::flush), not before.
    ///
    /// # Errors
    /// There is no room now, or the receiver was dropped. The frame is in the error.
    pub fn try_send(&mut self, frame: PktBuf) -> Result<(), TrySendError<PktBuf>> {
        if self.link.is_open(0) {
            self.link.push(0, frame).map_err(TrySendError::Full)
        } else {
            Err(TrySendError::Disconnected(frame))
        }
    }

    /// Wakes the receiver if it sleeps and frames were sent since the last call. Costs a load if it does not sleep.
    pub fn flush(&mut self) {
        self.link.notify();
    }
}

/// The receiving end of a [`channel`].
pub struct FrameReceiver<P: Platform> {
    link: LinkRx<P>,
}

impl<P: Platform> fmt::Debug for FrameReceiver<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReceiver").field("gone", &self.gone()).finish_non_exhaustive()
    }
}

impl<P: Platform> RxQueue for FrameReceiver<P> {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let before = batch.len();
        batch.extend(std::iter::from_fn(|| self.link.pop()).take(max));
        batch.len() - before
    }

    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        self.link.wait(timeout)
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.link.waker()
    }

    fn gone(&self) -> bool {
        self.link.is_gone()
    }
}
