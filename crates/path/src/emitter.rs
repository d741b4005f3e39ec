//! The transmit interface of a consumer: a stack, a bridge.

use dev::BitSet;
use observe::{Counters, DropReason};
use pktbuf::PktBuf;
use sync::Platform;

use crate::{Dirty, Ports, Vector};

/// The transmit interface of one thread for one vector or call: the ports, the counters of drops, and the queues to
/// notify when the last guard has dropped ([`Ports::notify`]).
pub struct Emitter<'a, P: Platform, W> {
    ports: &'a Ports<P, W>,
    counters: &'a Counters,
    dirty: &'a mut Dirty,
}

impl<'a, P: Platform, W> Emitter<'a, P, W> {
    /// By these ports.
    #[inline(always)]
    pub fn new(ports: &'a Ports<P, W>, counters: &'a Counters, dirty: &'a mut Dirty) -> Self {
        Emitter { ports, counters, dirty }
    }

    /// The ports.
    #[inline]
    pub fn ports(&self) -> &'a Ports<P, W> {
        self.ports
    }

    /// Transmits one complete frame by a port. The hash of its flow chooses the queue, so that no frame of a flow
    /// overtakes another.
    #[inline(always)]
    pub fn transmit_one(&mut self, port: usize, hash: u32, frame: PktBuf) {
        self.ports[port].queue(hash).transmit_one(frame, self.counters, self.dirty);
    }

    /// Transmits frames of one flow by a port, all under one lock.
    #[inline]
    pub fn transmit(&mut self, port: usize, hash: u32, frames: impl IntoIterator<Item = PktBuf>) {
        self.ports[port].queue(hash).transmit(frames, self.counters, self.dirty);
    }

    /// Transmits all frames of a vector by a port, each by the queue of its flow; frames without a hash by the first.
    /// Drops them, counted, if the device has vanished.
    pub fn forward(&mut self, port: usize, frames: &mut Vector) {
        if self.ports[port].is_down() {
            self.counters.count_drops(DropReason::InterfaceDown, frames.len() as u64);
            return frames.clear();
        }
        for frame in frames.drain() {
            let hash = frame.buffer.meta().flow_hash.unwrap_or(0);
            self.transmit_one(port, hash, frame.buffer);
        }
    }
}

/// A consumer of the frames that ports receive; called by the thread that polls the queue, with no guard held.
pub trait Consume<P: Platform, W>: Send {
    /// Takes all frames out of `frames`, which `port` has received, in order. It counts frames that it drops.
    fn consume(&mut self, port: usize, frames: &mut Vector, out: &mut Emitter<'_, P, W>);
}

impl<P: Platform, W> Ports<P, W> {
    /// Notifies the receivers of frames given to devices. Calls `waiting` for each transmit queue in which a sender or
    /// frame waits for room, since no event signals room: with its number, and whether it has mail for the thread
    /// that has claimed it. The caller holds no guard.
    #[inline]
    pub fn notify(&self, dirty: &mut Dirty, mut waiting: impl FnMut(usize, bool)) {
        if !self.notify_only(dirty, &mut waiting) {
            self.notify_each(dirty, waiting);
        }
    }

    /// [`Ports::notify`], if frames were given to one queue: what a single call leaves. False: to several, or to none.
    #[inline(always)]
    pub fn notify_only(&self, dirty: &mut Dirty, waiting: impl FnMut(usize, bool)) -> bool {
        let Some((number, receivers)) = dirty.only() else { return false };
        self.notify_one(number, receivers, waiting);
        dirty.finish_only();
        true
    }

    #[inline(always)]
    fn notify_one(&self, number: usize, receivers: &BitSet, mut waiting: impl FnMut(usize, bool)) {
        let Some(queue) = self.transmit_queue(number) else { return };
        queue.notify(receivers);
        if queue.may_have_waiters() {
            waiting(number, queue.has_mail());
        }
    }

    #[inline(never)]
    fn notify_each(&self, dirty: &mut Dirty, mut waiting: impl FnMut(usize, bool)) {
        while let Some((number, receivers)) = dirty.next_queue() {
            self.notify_one(number, receivers, &mut waiting);
        }
        dirty.finish();
    }
}
