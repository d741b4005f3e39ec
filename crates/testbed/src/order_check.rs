//! A device that observes its frames: counts TCP segments, and checks that the data of each connection leaves in the
//! order of its sequence numbers.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dev::{Capabilities, Device, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};
use pktbuf::PktBuf;
use wire::tcp::TcpFlags;

use crate::frames::tcp_of;

/// The observations.
#[derive(Default)]
pub struct Seen {
    /// TCP segments that left.
    pub sent: AtomicU64,
    /// TCP segments that came.
    pub received: AtomicU64,
    /// Segments sent with data that does not begin where the data before it ended.
    pub displaced: AtomicU64,
}

/// A device that checks the order of segments.
pub struct OrderCheck<D> {
    inner: D,
    seen: Arc<Seen>,
}

impl<D: Device> OrderCheck<D> {
    /// The device, and its observations.
    pub fn new(inner: D) -> (OrderCheck<D>, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        (OrderCheck { inner, seen: seen.clone() }, seen)
    }
}

impl<D: Device> Device for OrderCheck<D> {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn take_queues(&mut self) -> Vec<QueuePair> {
        let watch = |pair: QueuePair| QueuePair {
            rx: Box::new(Receiving { inner: pair.rx, seen: self.seen.clone() }),
            tx: Box::new(Sending { inner: pair.tx, seen: self.seen.clone(), next: HashMap::new() }),
        };
        self.inner.take_queues().into_iter().map(watch).collect()
    }
}

struct Receiving {
    inner: Box<dyn RxQueue>,
    seen: Arc<Seen>,
}

impl RxQueue for Receiving {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let before = batch.len();
        let count = self.inner.receive(batch, max);
        let segments = batch[before..].iter().filter(|frame| tcp_of(frame).is_some()).count();
        self.seen.received.fetch_add(segments as u64, Relaxed);
        count
    }
    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        self.inner.wait(timeout)
    }
    fn waker(&self) -> Arc<dyn Wake> {
        self.inner.waker()
    }
    fn pollable(&self) -> Option<RawFd> {
        self.inner.pollable()
    }
    fn gone(&self) -> bool {
        self.inner.gone()
    }
}

struct Sending {
    inner: Box<dyn TxQueue>,
    seen: Arc<Seen>,
    /// The next sequence number of each connection. A connection has one queue.
    next: HashMap<(u16, u16), u32>,
}

impl TxQueue for Sending {
    fn credit(&self) -> usize {
        self.inner.credit()
    }
    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        let segment = tcp_of(&frame).map(|(header, data)| (header, data.len() as u32));
        self.inner.transmit(frame)?;
        if let Some((header, len)) = segment {
            self.seen.sent.fetch_add(1, Relaxed);
            let key = (header.src_port, header.dst_port);
            if header.flags.contains(TcpFlags::SYN) {
                self.next.insert(key, header.seq.0.wrapping_add(1));
            } else if len > 0 {
                let expected = self.next.insert(key, header.seq.0.wrapping_add(len));
                // A SYN that waited for the link address may have left by another queue.
                if expected.is_some_and(|expected| expected != header.seq.0) {
                    self.seen.displaced.fetch_add(1, Relaxed);
                }
            }
        }
        Ok(())
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
}
