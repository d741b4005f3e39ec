//! The link between the stack and the script: two queues in memory, without a limit of their own.
//!
//! Unlike a real link it carries packets of any length towards the stack, as a device that merges segments would
//! deliver them: scripts inject such packets. Towards the script the MTU applies.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dev::{Capabilities, Device, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};
use pktbuf::PktBuf;
use wire::ethernet::MacAddr;
use wire::rss::SYMMETRIC_KEY;

/// Transmit credit of the stack: a script reads frames at once.
const CREDIT: usize = 1024;

/// Frames in one direction.
type Frames = Arc<Mutex<VecDeque<PktBuf>>>;

fn lock(frames: &Frames) -> MutexGuard<'_, VecDeque<PktBuf>> {
    // No thread can leave the queue in an inconsistent state.
    frames.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stack's end.
pub(crate) struct Link {
    capabilities: Capabilities,
    queues: Option<QueuePair>,
}

/// The script's end.
pub(crate) struct ScriptEnd {
    to_stack: Frames,
    from_stack: Frames,
}

impl ScriptEnd {
    /// Puts a frame on the link; it must not be longer than a packet can be.
    pub(crate) fn put(&self, frame: PktBuf) {
        lock(&self.to_stack).push_back(frame);
    }

    /// Takes the oldest frame that the stack sent.
    pub(crate) fn take(&self) -> Option<PktBuf> {
        lock(&self.from_stack).pop_front()
    }
}

/// The largest super-segment of the link, without the link header.
const LARGEST: usize = 65_535;

/// A link whose stack side has the address `mac`, and takes super-segments if `super_segments`.
pub(crate) fn link(mtu: usize, mac: MacAddr, super_segments: bool) -> (Link, ScriptEnd) {
    let (to_stack, from_stack) = (Frames::default(), Frames::default());
    let capabilities = Capabilities {
        framing: dev::Framing::Ethernet,
        mtu,
        mac,
        queue_pairs: 1,
        tx_checksum: false,
        rx_checksum: false,
        segmentation: super_segments.then_some(LARGEST),
        coalescing: true,
        rss_key: Some(SYMMETRIC_KEY),
        region: None,
    };
    let queues = QueuePair { rx: Box::new(Rx(to_stack.clone())), tx: Box::new(Tx(from_stack.clone())) };
    (Link { capabilities, queues: Some(queues) }, ScriptEnd { to_stack, from_stack })
}

impl Device for Link {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name(&self) -> &str {
        "drill"
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        self.queues.take().into_iter().collect()
    }
}

struct Rx(Frames);

/// No thread sleeps on this link.
struct NoWaker;

impl Wake for NoWaker {
    fn wake(&self) {}
}

impl RxQueue for Rx {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let mut frames = lock(&self.0);
        let count = frames.len().min(max);
        batch.extend(frames.drain(..count));
        count
    }

    fn wait(&mut self, _timeout: Option<Duration>) -> WaitOutcome {
        WaitOutcome::TimedOut
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(NoWaker)
    }
}

struct Tx(Frames);

impl TxQueue for Tx {
    fn credit(&self) -> usize {
        CREDIT.saturating_sub(lock(&self.0).len())
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        lock(&self.0).push_back(frame);
        Ok(())
    }

    fn flush(&mut self) {}
}
