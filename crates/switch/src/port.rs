//! [`BridgePort`]: a device as a member of a running bridge: its transmit queues, and the references to it.
//!
//! Frames leave by the transmit queue with the worker's number modulo the number of queues (section 5.4 of the paper), so
//! that the frames of one worker stay in order, and workers share a queue, and its lock, only if there are more workers than
//! queues. That number is the *lane* of the receive queue by which they arrived. The queue keeps its lane when it moves
//! to another worker; otherwise frames of one flow could overtake each other in two transmit queues.
//!
//! *References.* A worker that transmits after its read section holds a reference to the port, as with NetBSD's psref:
//! the count is in a word that only this worker writes. To remove a port, it is taken off the member list; after a
//! grace period no worker takes a new reference; and once all counts have been zero, no thread transmits any more.
//!
//! *Stopping.* Each queue has a stopping flag, which is set before any other step. It is checked after the lock of a
//! transmit queue has been acquired, and by the thread that polls the receive queue each time forwarding has returned.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bridge::{
    Bridge, FdbControl, FloodKind, NextDue, PortConfig, PortNumber, PortState, StormControl, StormRate, StpPortConfig,
    TagAction,
};
use dev::{BitSet, Capabilities, Device, Notify, RxQueue, TxQueue};
use observe::{Counters, DropReason, Time};
use pktbuf::{Checksum, PktBuf, SharedBuf};
use sync::{Atomic, CachePadded, Lock, LockClass, LockKind, Ordering, Platform};

use crate::charge;
use crate::flood::{EgressFrame, FloodedFrame};
use crate::interrupt::{InterruptController, InterruptKind, InterruptReport, PortVectors};
use crate::outgoing::{Outgoing, OutgoingPart};
use crate::port_error::PortError;
use crate::tag::retag;

/// See the head of the file.
pub(crate) struct BridgePort<P: Platform> {
    /// Its number.
    pub(crate) number: PortNumber,
    /// Its name: the device's.
    pub(crate) name: String,
    /// The device's.
    pub(crate) capabilities: Capabilities,
    /// The device's own.
    pub(crate) device: Option<Arc<Counters>>,
    /// Each with lines of its own: two workers use neighbours at once.
    queues: Box<[CachePadded<TransmitSide<P>>]>,
    /// By worker.
    references: Box<[CachePadded<P::AtomicU32>]>,
    /// Number of receive queues that workers still have.
    polled: P::AtomicU32,
    traffic: Box<[CachePadded<WorkerTraffic>]>,
    /// The state of storm control, by kind of frame; see [`SharedStorm`].
    storm: CachePadded<[P::AtomicU64; 3]>,
    pub(crate) vectors: PortVectors<P>,
}

/// The transmitting worker, and the lane of its frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transmitter {
    pub(crate) worker: usize,
    pub(crate) lane: usize,
}

/// The parameters of a new port.
pub(crate) struct Opening<'a> {
    pub(crate) workers: usize,
    /// Each worker owns a transmit queue exclusively, if there are enough.
    pub(crate) give_away: bool,
    pub(crate) kind: InterruptKind,
    pub(crate) controller: &'a mut InterruptController,
}

/// A transmit queue.
struct TransmitSide<P: Platform> {
    /// `None`: closed, or owned by a worker.
    queue: Lock<Option<Box<dyn TxQueue>>, P>,
    notifier: Option<Arc<dyn Notify>>,
    stopping: P::AtomicBool,
}

/// Frames and bytes of one worker; written by it alone.
#[derive(Default)]
struct WorkerTraffic {
    rx_frames: AtomicU64,
    rx_bytes: AtomicU64,
    tx_frames: AtomicU64,
    tx_bytes: AtomicU64,
}

/// The traffic of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortTraffic {
    /// Frames received.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames that the device has accepted.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
}

/// The storm control of a port, for each of the workers that poll its queues. It is used for frames to be flooded alone, and only
/// if their rate is limited.
pub(crate) struct SharedStorm<'a, P: Platform>(pub(crate) &'a BridgePort<P>);

impl<P: Platform> StormControl for SharedStorm<'_, P> {
    fn admit(&mut self, kind: FloodKind, rate: StormRate, now: Time) -> bool {
        let word = &self.0.storm[kind.index()];
        let mut due = word.load(Ordering::Relaxed);
        loop {
            let (passes, next) = rate.admit(NextDue::from_bits(due), now);
            if next.to_bits() == due {
                return passes;
            }
            match word.compare_exchange_weak(due, next.to_bits(), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return passes,
                Err(changed) => due = changed,
            }
        }
    }
}

/// A port, its receive queues, and the transmit queues that its workers get, by number of the worker.
pub(crate) type OpenedPort<P> = (Arc<BridgePort<P>>, Vec<Box<dyn RxQueue>>, Vec<Box<dyn TxQueue>>);

impl<P: Platform> BridgePort<P> {
    /// Opens a device.
    pub(crate) fn open(
        number: PortNumber,
        name: &str,
        device: &mut dyn Device,
        opening: Opening<'_>,
    ) -> Result<OpenedPort<P>, PortError> {
        let Opening { workers, give_away, kind, controller } = opening;
        let capabilities = device.capabilities().clone();
        if capabilities.framing != dev::Framing::Ethernet {
            return Err(PortError::NotEthernet);
        }
        if capabilities.coalescing {
            return Err(PortError::Coalesces);
        }
        let pairs = device.take_queues();
        if pairs.is_empty() {
            return Err(PortError::NoQueues);
        }
        let (rx, tx): (Vec<_>, Vec<_>) = pairs.into_iter().map(|pair| (pair.rx, pair.tx)).unzip();
        let give_away = give_away && tx.len() >= workers;
        let (mut queues, mut given) = (Vec::new(), Vec::new());
        for queue in tx {
            let notifier = queue.notifier();
            let kept = if give_away {
                given.push(queue);
                None
            } else {
                Some(queue)
            };
            let queue = Lock::new(LockKind::Blocking, LockClass::DeviceTx, kept);
            let stopping = P::AtomicBool::new(false);
            queues.push(CachePadded::new(TransmitSide { queue, notifier, stopping }));
        }
        given.truncate(workers);
        let port = BridgePort {
            number,
            name: name.to_owned(),
            capabilities,
            device: device.counters(),
            queues: queues.into(),
            references: (0..workers).map(|_| CachePadded::new(P::AtomicU32::new(0))).collect(),
            polled: P::AtomicU32::new(rx.len() as u32),
            storm: CachePadded::new([0; 3].map(P::AtomicU64::new)),
            traffic: (0..=workers).map(|_| CachePadded::new(WorkerTraffic::default())).collect(),
            vectors: PortVectors::establish(controller, kind, rx.len(), workers),
        };
        Ok((Arc::new(port), rx, given))
    }

    /// Whether the device need not be spared the checksum of the frame.
    #[inline(always)]
    pub(crate) fn takes_checksum_of(&self, frame: &PktBuf) -> bool {
        self.takes_checksum(frame.meta().checksum)
    }

    /// The same, for a checksum in this state.
    #[inline(always)]
    pub(crate) fn takes_checksum(&self, checksum: Checksum) -> bool {
        self.capabilities.tx_checksum || !matches!(checksum, Checksum::Partial { .. })
    }

    /// Prepares the frame for this port; `None`: there is no buffer for it, which is counted. Nearly always there is nothing to
    /// prepare.
    #[inline]
    pub(crate) fn prepare(&self, frame: PktBuf, tag: TagAction, counters: &Counters) -> Option<PktBuf> {
        if tag == TagAction::Keep && self.takes_checksum_of(&frame) {
            Some(frame)
        } else {
            self.rewrite(frame, tag, counters)
        }
    }

    #[inline(never)]
    fn rewrite(&self, frame: PktBuf, tag: TagAction, counters: &Counters) -> Option<PktBuf> {
        let Some(mut frame) = retag(frame, tag) else {
            counters.count_drop(DropReason::NoBuffer);
            return None;
        };
        if !self.capabilities.tx_checksum {
            dev::layout::complete_checksum(&mut frame);
        }
        Some(frame)
    }

    /// Prepares a frame for this port and transmits it.
    #[inline]
    pub(crate) fn send(&self, by: Transmitter, frame: impl EgressFrame, tag: TagAction, counters: &Counters) {
        if let Some(ready) = frame.prepare(self, tag, counters) {
            self.transmit(by, ready, counters);
        }
    }

    /// The number of the queue of a lane.
    #[inline]
    fn queue_of(&self, lane: usize) -> usize {
        if lane < self.queues.len() { lane } else { lane % self.queues.len() }
    }

    /// Transmits a frame by the queue of a lane, or drops and counts it. The other end is notified at once.
    pub(crate) fn transmit(&self, by: Transmitter, frame: impl EgressFrame, counters: &Counters) {
        let number = self.queue_of(by.lane);
        let side = &self.queues[number];
        let bytes = frame.bytes();
        charge::transmitted::<P>(1);
        let mut queue = side.queue.lock();
        // The lock may have been waited for.
        let stopping = side.stopping.load(Ordering::Acquire);
        let Some(open) = queue.as_mut().filter(|_| !stopping) else {
            drop(queue);
            return counters.count_drop(DropReason::InterfaceDown);
        };
        let sent = match &side.notifier {
            Some(notifier) => {
                let mut receivers = BitSet::new();
                let sent = frame.transmit_noting(&mut **open, &mut receivers);
                drop(queue);
                if sent.is_ok() {
                    notifier.notify(&receivers);
                }
                sent
            }
            None => {
                let sent = frame.transmit(&mut **open);
                open.flush();
                drop(queue);
                sent
            }
        };
        match sent {
            Ok(()) => self.count_sent(by.worker, number, 1, bytes),
            Err(reason) => counters.count_drop(reason),
        }
    }

    /// Transmits frames by the queue of a lane, all under one lock; frames for which the device has no room are dropped
    /// and counted.
    pub(crate) fn transmit_all(&self, by: Transmitter, frames: &mut Outgoing, counters: &Counters) {
        let side = &self.queues[self.queue_of(by.lane)];
        let mut queue = side.queue.lock();
        let stopping = side.stopping.load(Ordering::Acquire);
        match queue.as_mut().filter(|_| !stopping) {
            Some(open) => self.offer(&mut **open, by, frames, counters),
            None => {
                counters.count_drops(DropReason::InterfaceDown, frames.len() as u64);
                frames.clear();
            }
        }
        side.flush(queue);
    }

    /// Puts frames into a transmit queue; frames for which it has no room are dropped and counted.
    #[inline]
    pub(crate) fn offer(&self, queue: &mut dyn TxQueue, by: Transmitter, frames: &mut Outgoing, counters: &Counters) {
        match frames.only_own() {
            Some(own) => self.offer_run(queue, by, own, counters),
            None => self.offer_parts(queue, by, frames, counters),
        }
    }

    #[inline(never)]
    fn offer_parts(&self, queue: &mut dyn TxQueue, by: Transmitter, frames: &mut Outgoing, counters: &Counters) {
        frames.take_parts(|part| match part {
            OutgoingPart::Run(run, bytes) => self.offer_run(queue, by, (run, bytes), counters),
            OutgoingPart::Shared(frame) => self.offer_shared(queue, by, frame, counters),
        });
    }

    fn offer_shared(&self, queue: &mut dyn TxQueue, by: Transmitter, frame: SharedBuf, counters: &Counters) {
        let bytes = frame.len();
        charge::transmitted::<P>(1);
        match FloodedFrame::Shared(frame).transmit(queue) {
            Ok(()) => self.count_sent(by.worker, self.queue_of(by.lane), 1, bytes),
            Err(reason) => counters.count_drop(reason),
        }
    }

    fn offer_run(
        &self,
        queue: &mut dyn TxQueue,
        by: Transmitter,
        (frames, bytes): (&mut VecDeque<PktBuf>, usize),
        counters: &Counters,
    ) {
        let offered = frames.len();
        charge::transmitted::<P>(offered);
        queue.transmit_batch(frames);
        let refused = frames.iter().map(|frame| frame.len()).sum::<usize>();
        self.count_sent(by.worker, self.queue_of(by.lane), offered - frames.len(), bytes - refused);
        counters.count_drops(DropReason::TxRingFull, frames.len() as u64);
        frames.clear();
    }

    /// Whether the first worker owns the first transmit queue.
    pub(crate) fn is_given_away(&self) -> bool {
        self.queues[0].queue.lock().is_none()
    }

    /// Returns a transmit queue that a worker owned: from now on others use it, too, each under its lock.
    pub(crate) fn take_back(&self, worker: usize, queue: Box<dyn TxQueue>) {
        let side = &self.queues[worker % self.queues.len()];
        let mut place = side.queue.lock();
        // A port that was closed meanwhile does not take the queue back: the flag was set before.
        let closed = if side.stopping.load(Ordering::Acquire) { Some(queue) } else { place.replace(queue) };
        drop(place);
        drop(closed);
    }

    /// Begins a use of the port by a worker. Must be called in a read section in which the port is on the member list.
    #[inline]
    pub(crate) fn acquire(&self, worker: usize) {
        let count = &self.references[worker];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Ends a use.
    #[inline]
    pub(crate) fn release(&self, worker: usize) {
        let count = &self.references[worker];
        count.store(count.load(Ordering::Relaxed) - 1, Ordering::Release);
    }

    /// Ends all uses by a worker that has ended, perhaps in the middle of one.
    pub(crate) fn release_all(&self, worker: usize) {
        self.references[worker].store(0, Ordering::Release);
    }

    /// Waits until no worker uses the port. It is off the member list, and a grace period has passed since.
    pub(crate) fn wait_unused(&self) {
        for count in &self.references {
            let mut spins = 0;
            while count.load(Ordering::Acquire) != 0 {
                P::relax(spins);
                spins = spins.saturating_add(1);
            }
        }
    }

    /// From now on the port receives no frame, and a thread that is not already transmitting transmits none.
    pub(crate) fn stop(&self) {
        self.queues.iter().for_each(|side| side.stopping.store(true, Ordering::Release));
    }

    /// Whether the receive queue of this index must be given up.
    #[inline]
    pub(crate) fn is_stopping(&self, queue: usize) -> bool {
        self.queues[self.queue_of(queue)].stopping.load(Ordering::Acquire)
    }

    /// Closes the transmit queues. No thread uses the port any more.
    pub(crate) fn close(&self) {
        for side in &self.queues {
            let queue = side.queue.lock().take();
            if let Some(mut queue) = queue {
                queue.flush();
            }
        }
    }

    /// A receive queue has been given up.
    pub(crate) fn given_up(&self) {
        self.polled.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether workers still have receive queues of the port.
    pub(crate) fn is_polled(&self) -> bool {
        self.polled.load(Ordering::Acquire) != 0
    }

    /// Counts frames that a worker has received.
    #[inline]
    pub(crate) fn count_received(&self, worker: usize, frames: usize, bytes: usize) {
        let traffic = &self.traffic[worker];
        add(&traffic.rx_frames, frames as u64);
        add(&traffic.rx_bytes, bytes as u64);
    }

    /// Counts frames that a worker has transmitted by a queue.
    #[inline]
    pub(crate) fn count_sent(&self, worker: usize, queue: usize, frames: usize, bytes: usize) {
        let traffic = &self.traffic[worker];
        add(&traffic.tx_frames, frames as u64);
        add(&traffic.tx_bytes, bytes as u64);
        self.vectors.count_transmitted(queue, worker, frames);
    }

    /// The vectors in their current state.
    pub(crate) fn interrupts(&self) -> Vec<InterruptReport> {
        self.vectors.reports(&self.name)
    }

    /// The traffic, of all workers.
    pub(crate) fn traffic(&self) -> PortTraffic {
        let mut sum = PortTraffic::default();
        for traffic in &self.traffic {
            sum.rx_frames += traffic.rx_frames.load(Relaxed);
            sum.rx_bytes += traffic.rx_bytes.load(Relaxed);
            sum.tx_frames += traffic.tx_frames.load(Relaxed);
            sum.tx_bytes += traffic.tx_bytes.load(Relaxed);
        }
        sum
    }
}

/// The bytes of frames; often there is one.
#[inline]
pub(crate) fn bytes_of(frames: &[PktBuf]) -> usize {
    match frames {
        [frame] => frame.len(),
        frames => frames.iter().map(|frame| frame.len()).sum(),
    }
}

/// Adds to a count that one thread writes.
#[inline]
fn add(count: &AtomicU64, n: u64) {
    count.store(count.load(Relaxed).wrapping_add(n), Relaxed);
}

impl<P: Platform> TransmitSide<P> {
    /// Notifies receivers, with no lock held if the device allows that.
    fn flush(&self, mut queue: sync::Guard<'_, Option<Box<dyn TxQueue>>, P>) {
        let Some(open) = queue.as_mut() else { return };
        match &self.notifier {
            Some(notifier) => {
                let mut receivers = BitSet::new();
                open.take_dirty(&mut receivers);
                drop(queue);
                notifier.notify(&receivers);
            }
            None => open.flush(),
        }
    }
}

/// The number of a new port of this name.
pub(crate) fn free_number<P: Platform>(
    ports: &[Option<Arc<BridgePort<P>>>],
    name: &str,
) -> Result<PortNumber, PortError> {
    if ports.iter().flatten().any(|port| port.name == name) {
        return Err(PortError::Exists);
    }
    let free = ports.iter().position(Option::is_none).unwrap_or(ports.len());
    u16::try_from(free).ok().and_then(PortNumber::new).ok_or(PortError::TooMany)
}

/// Puts a port in its place.
pub(crate) fn put<P: Platform>(ports: &mut Vec<Option<Arc<BridgePort<P>>>>, port: Arc<BridgePort<P>>) {
    let at = port.number.index();
    if ports.len() <= at {
        ports.resize_with(at + 1, || None);
    }
    ports[at] = Some(port);
}

/// Makes a port a member of the bridge: it forwards at once or, with spanning tree, when the tree allows it.
pub(crate) fn enter<T: FdbControl, P: Platform>(
    bridge: &mut Bridge<T>,
    port: &BridgePort<P>,
    config: PortConfig,
    now: Time,
) {
    let mtu = config.mtu.min(port.capabilities.mtu);
    bridge.add_port(port.number, PortConfig { mtu, ..config }, PortState::Forwarding);
    if bridge.tree().is_some() {
        // The default configuration is valid.
        let _ = bridge.join_tree(port.number, StpPortConfig::default(), now);
        bridge.set_up(port.number, true, now);
    }
}

/// The current state of a port.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// Its number.
    pub number: PortNumber,
    /// Its name.
    pub name: String,
    /// Its traffic.
    pub traffic: PortTraffic,
    /// The frames that its device has dropped, by reason.
    pub device_drops: Vec<(&'static str, u64)>,
}

impl PortReport {
    pub(crate) fn of<P: Platform>(port: &BridgePort<P>) -> PortReport {
        let drops = |counters: &Arc<Counters>| {
            let snapshot = counters.snapshot();
            snapshot.drops().filter(|(_, n)| *n > 0).map(|(reason, n)| (reason.name(), n)).collect()
        };
        let device_drops = port.device.as_ref().map(drops).unwrap_or_default();
        PortReport { number: port.number, name: port.name.clone(), traffic: port.traffic(), device_drops }
    }
}

#[cfg(test)]
mod tests {
    use dev::mem::{self, MemConfig};
    use sync::Real;

    use super::*;

    /// Workers use neighbouring transmit queues at the same time, each under a lock: a line that two of them shared would move
    /// between their processors with every frame.
    #[test]
    fn transmit_queues_share_no_line() {
        let (mut device, _far) = mem::pair::<Real>(MemConfig { queues: 4, ..MemConfig::default() });
        let mut controller = InterruptController::new(4);
        let opening = Opening { workers: 4, give_away: false, kind: InterruptKind::Msix, controller: &mut controller };
        let number = PortNumber::new(0).expect("a small number");
        let Ok((port, ..)) = BridgePort::<Real>::open(number, "port0", &mut device, opening) else {
            panic!("a device in memory can be a port");
        };
        // The second address is that of the last byte of a queue's state.
        let places = |side: &TransmitSide<Real>| (std::ptr::from_ref(side) as usize, size_of_val(side) - 1);
        let sides: Vec<_> = port.queues.iter().map(|side| places(side)).collect();
        assert_eq!(sides.len(), 4);
        for pair in sides.windows(2) {
            let [(before, length), (after, _)] = *pair else { continue };
            // Processors fetch lines of 64 bytes in pairs.
            assert!((before + length) / 128 < after / 128, "{pair:x?}");
        }
    }
}
