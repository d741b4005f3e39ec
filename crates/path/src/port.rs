//! A device as its consumer sees it: its transmit queues, its capabilities, and whether it is present.
//!
//! A port has no address and no route. It may belong to an interface of a stack, alone or with others (a bond), to a
//! bridge, or to nothing. When it is [opened](Port::open) its receive queues are returned, each for the thread that
//! polls it. Any thread.

use dev::{Capabilities, Device, QueuePair, RxQueue};
use pktbuf::RegionId;
use sync::{Atomic, LockKind, Ordering, Platform};

use crate::TransmitQueue;

/// The part of a device's [`Capabilities`] that a sender reads for each segment.
#[derive(Clone, Copy, Debug)]
pub struct SendCapabilities {
    /// The most data that the device segments; 0: it segments none.
    pub segmentation: usize,
    /// The memory region in which frames should be allocated, if it prefers one.
    pub region: Option<RegionId>,
}

/// See the head of the file. `W` names a sender that waits for room in a transmit queue.
///
/// Its first cache line has all that a transmission reads.
#[repr(C, align(64))]
pub struct Port<P: Platform, W> {
    queues: Box<[TransmitQueue<P, W>]>,
    for_sending: SendCapabilities,
    /// What [`index`] leaves of a hash, where that needs no division; otherwise all bits.
    mask: u32,
    /// The device was removed.
    down: P::AtomicBool,
    capabilities: Capabilities,
}

impl<P: Platform, W> Port<P, W> {
    /// Takes over a device's queues; returns the receiving halves by index. The transmit queues are numbered from
    /// `first_queue`, and use locks of this kind. `None`: the device has no queue left.
    pub fn open(device: &mut dyn Device, lock: LockKind, first_queue: usize) -> Option<(Self, Vec<Box<dyn RxQueue>>)> {
        let capabilities = device.capabilities().clone();
        let pairs = device.take_queues();
        if pairs.is_empty() {
            return None;
        }
        let numbered = pairs.into_iter().zip(first_queue..);
        let halves = |(pair, number): (QueuePair, usize)| (pair.rx, TransmitQueue::new(pair.tx, lock, number));
        let (receivers, queues): (_, Vec<_>) = numbered.map(halves).unzip();
        let for_sending =
            SendCapabilities { segmentation: capabilities.segmentation.unwrap_or(0), region: capabilities.region };
        let mask = if queues.len().is_power_of_two() { queues.len() as u32 - 1 } else { u32::MAX };
        let queues = queues.into();
        Some((Port { queues, for_sending, mask, down: P::AtomicBool::new(false), capabilities }, receivers))
    }

    /// The device's capabilities.
    #[inline]
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The part of them that a sender reads for each segment.
    #[inline]
    pub fn send_capabilities(&self) -> &SendCapabilities {
        &self.for_sending
    }

    /// The transmit queues, by index.
    #[inline]
    pub fn queues(&self) -> &[TransmitQueue<P, W>] {
        &self.queues
    }

    /// The transmit queue for flows of this hash: it belongs to the receive queue on which the device delivers their
    /// frames.
    #[inline]
    pub fn queue(&self, hash: u32) -> &TransmitQueue<P, W> {
        // A hash below the number of queues is its own remainder.
        match self.queues.get((hash & self.mask) as usize) {
            Some(queue) => queue,
            None => self.queue_by_division(hash),
        }
    }

    #[cold]
    #[inline(never)]
    fn queue_by_division(&self, hash: u32) -> &TransmitQueue<P, W> {
        &self.queues[index(hash, self.queues.len())]
    }

    /// Whether the device has vanished.
    #[inline]
    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire)
    }

    /// The device has vanished, or is back.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Release);
    }
}

/// Which of `n` queues, ports or cells serves the flows of this hash; `n` must not be 0. The low bits choose, as a
/// network interface's redirection table does.
#[inline]
pub fn index(hash: u32, n: usize) -> usize {
    // If at most one bit is set, `n & (n - 1)` is 0: avoids a population count, for which not every processor has an
    // instruction.
    if n & (n - 1) == 0 { hash as usize & (n - 1) } else { hash as usize % n }
}

/// All ports of one stack or bridge, by number. Their transmit queues are numbered consecutively.
pub struct Ports<P: Platform, W> {
    ports: Box<[Port<P, W>]>,
    /// For each transmit queue the number of its port, and its index there.
    places: Box<[(u32, u32)]>,
}

impl<P: Platform, W> Ports<P, W> {
    /// The set of these ports, each opened with the number after the last queue of the previous one.
    pub fn new(ports: Vec<Port<P, W>>) -> Self {
        let queues = |(port, of): (u32, &Port<P, W>)| (0..of.queues.len() as u32).map(move |queue| (port, queue));
        let places: Box<[_]> = (0..).zip(&ports).flat_map(queues).collect();
        debug_assert!(ports.iter().flat_map(Port::queues).map(TransmitQueue::number).eq(0..places.len()));
        Ports { ports: ports.into(), places }
    }

    /// The port of this number.
    #[inline]
    pub fn get(&self, port: usize) -> Option<&Port<P, W>> {
        self.ports.get(port)
    }

    /// All of them, by number.
    pub fn iter(&self) -> std::slice::Iter<'_, Port<P, W>> {
        self.ports.iter()
    }

    /// Claims all transmit queues for the calling thread, which uses them without locks from now on: see
    /// [`TransmitQueue::claim`].
    pub fn claim(&self) {
        self.queues().for_each(|queue| _ = queue.claim());
    }

    /// Ends the calling thread's claims, if it has any.
    pub fn release_claims(&self) {
        self.queues().for_each(TransmitQueue::release_claim);
    }

    fn queues(&self) -> impl Iterator<Item = &TransmitQueue<P, W>> {
        self.ports.iter().flat_map(Port::queues)
    }

    /// The port of the transmit queue of this number, and the queue's index there.
    #[inline]
    pub fn place_of(&self, number: usize) -> Option<(usize, usize)> {
        self.places.get(number).map(|(port, index)| (*port as usize, *index as usize))
    }

    /// The transmit queue of this number.
    #[inline]
    pub fn transmit_queue(&self, number: usize) -> Option<&TransmitQueue<P, W>> {
        let (port, index) = self.place_of(number)?;
        self.ports.get(port)?.queues.get(index)
    }

    /// Chooses the port that carries the flows of this hash among those that are up, always the same one, so that no
    /// frame of a flow overtakes another. If none is up, chooses among all. `None`: there are no candidates.
    #[inline]
    pub fn choose(&self, candidates: &[usize], hash: u32) -> Option<usize> {
        match candidates {
            [only] => Some(*only),
            _ => self.choose_among(candidates, hash),
        }
    }

    #[cold]
    fn choose_among(&self, candidates: &[usize], hash: u32) -> Option<usize> {
        let is_up = |port: &&usize| self.get(**port).is_some_and(|port| !port.is_down());
        // Other bits than those that choose the queue.
        let hash = hash.rotate_right(16);
        let up: Vec<&usize> = candidates.iter().filter(is_up).collect();
        match (up.len(), candidates.len()) {
            (0, 0) => None,
            (0, all) => Some(candidates[index(hash, all)]),
            (some, _) => Some(*up[index(hash, some)]),
        }
    }
}

impl<P: Platform, W> std::ops::Index<usize> for Ports<P, W> {
    type Output = Port<P, W>;

    #[inline]
    fn index(&self, port: usize) -> &Port<P, W> {
        &self.ports[port]
    }
}
