//! The loopback path of a stack: an interface with the loopback addresses, over a port that receives the frames that it
//! transmits.
//!
//! Packets to one of the stack's own addresses, or to a loopback address, leave by this port, regardless of the routing
//! table ([`Routes::lookup`](crate::routes::Routes::lookup)), as Linux first consults its table of local addresses.
//! They return as bare packets, and are processed like any other: checks, classification, the architecture's dispatch.
//! A datagram to a group that an interface is a member of leaves by that interface, and a copy by this port.
//! So a connection of a stack with itself is two connections, each served where its own flow leads.
//!
//! Each driver receives by one of the port's queues, besides those of its devices. It does not sleep on it: a sender
//! that has given the port frames sets a flag of the queue and wakes the driver, wherever it sleeps ([`Alarms`]). The
//! driver checks the flag once a batch, the only cost for a stack without loopback traffic.
//!
//! What may never happen: a packet with a loopback address leaves by another port (RFC 1122 section 3.2.1.3 g, RFC 4291
//! section 2.5.3), or a driver sleeps while the flag of its queue is set.

use std::net::IpAddr;
use std::sync::Arc;

use dev::mem::{self, MemConfig, MemDevice};
use dev::{BitSet, Capabilities, Device, Notify, QueuePair, RxQueue, TxQueue};
use ip::InterfaceView;
use ip::interface::Cast;
use pktbuf::{Checksum, PktBuf};
use sync::{Atomic, CachePadded, LockKind, Ordering, Platform};
use wire::Framing;

use crate::alarm::Alarms;
use crate::interface::{Port, StackInterface};
use crate::links::Links;
use crate::tx::Egress;

/// The MTU of the loopback interface: the largest packet of IPv4. Linux's is one byte larger, which no packet of IPv4
/// can be.
pub(crate) const MTU: usize = 65_535;

/// Most queues of the port. There is a ring from each to each; with more drivers, some have none.
const MOST_QUEUES: usize = 32;
/// Frames that the rings to one queue hold together, while no ring holds more than [`MOST_RING_FRAMES`] or fewer than
/// [`LEAST_RING_FRAMES`].
const FRAMES: usize = 2048;
const MOST_RING_FRAMES: usize = 512;
const LEAST_RING_FRAMES: usize = 64;

/// The flags, one for each receive queue, by which senders announce frames.
struct AnnouncedQueues<P: Platform> {
    raised: Box<[Arc<CachePadded<P::AtomicBool>>]>,
    alarms: Arc<Alarms<P>>,
}

impl<P: Platform> AnnouncedQueues<P> {
    /// The driver of this queue must check for frames. The caller has put them into the ring and holds no guard.
    fn raise(&self, queue: usize) {
        // A read-modify-write: a driver that clears the flag sees the frames of all senders that found it set.
        if let Some(raised) = self.raised.get(queue)
            && !raised.swap(true, Ordering::AcqRel)
        {
            self.alarms.due_at(queue, 0);
        }
    }
}

impl<P: Platform> Notify for AnnouncedQueues<P> {
    fn notify(&self, receivers: &BitSet) {
        receivers.for_each(|queue| self.raise(queue));
    }
}

/// The transmitting half of a queue.
struct Sender<P: Platform> {
    queue: Box<dyn TxQueue>,
    flags: Arc<AnnouncedQueues<P>>,
}

impl<P: Platform> TxQueue for Sender<P> {
    fn credit(&self) -> usize {
        self.queue.credit()
    }

    fn transmit(&mut self, mut frame: PktBuf) -> Result<(), PktBuf> {
        // Memory does not damage it: the receiver need not verify its checksum.
        let meta = frame.meta_mut();
        if meta.checksum == Checksum::None {
            meta.checksum = Checksum::Verified;
        }
        self.queue.transmit(frame)
    }

    fn flush(&mut self) {
        let mut receivers = BitSet::new();
        self.queue.take_dirty(&mut receivers);
        self.flags.notify(&receivers);
    }

    fn notifier(&self) -> Option<Arc<dyn Notify>> {
        Some(self.flags.clone())
    }

    fn take_dirty(&mut self, dirty: &mut BitSet) {
        self.queue.take_dirty(dirty);
    }
}

/// The receiving half of a queue: belongs to one driver.
pub(crate) struct LoopbackReceiver<P: Platform> {
    /// The queue. No thread sleeps on it.
    pub queue: Box<dyn RxQueue>,
    /// The flag of the queue.
    raised: Arc<CachePadded<P::AtomicBool>>,
}

impl<P: Platform> LoopbackReceiver<P> {
    /// Whether frames may have arrived since [`LoopbackReceiver::begin`].
    #[inline]
    pub(crate) fn has_frames(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// The driver is about to take frames: later ones set the flag again.
    pub(crate) fn begin(&self) {
        self.raised.swap(false, Ordering::AcqRel);
    }

    /// The driver has left frames in the queue.
    pub(crate) fn keep_raised(&self) {
        self.raised.swap(true, Ordering::AcqRel);
    }
}

/// The device under the port.
struct Loopback<P: Platform> {
    memory: MemDevice,
    flags: Arc<AnnouncedQueues<P>>,
}

impl<P: Platform> Device for Loopback<P> {
    fn capabilities(&self) -> &Capabilities {
        self.memory.capabilities()
    }

    fn name(&self) -> &str {
        self.memory.name()
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        let sender = |queue| Box::new(Sender { queue, flags: self.flags.clone() });
        self.memory.take_queues().into_iter().map(|QueuePair { rx, tx }| QueuePair { rx, tx: sender(tx) }).collect()
    }
}

/// Opens the port for this many drivers; its transmit queues are numbered from `first_queue`. The receiving halves go
/// to the drivers of their index. `lock_kind`: of the transmit queues.
///
/// # Panics
/// Never: the device was just made, and has its queues.
pub(crate) fn open<P: Platform>(
    drivers: usize,
    lock_kind: LockKind,
    rss_key: [u8; 40],
    first_queue: usize,
    alarms: &Arc<Alarms<P>>,
) -> (Port<P>, Vec<LoopbackReceiver<P>>) {
    let queues = drivers.clamp(1, MOST_QUEUES);
    let ring_frames = (FRAMES / queues).clamp(LEAST_RING_FRAMES, MOST_RING_FRAMES);
    let (framing, checksum_offload) = (Framing::Packet, true);
    let config = MemConfig { queues, mtu: MTU, ring_frames, framing, checksum_offload, rss_key, ..Default::default() };
    let raised = (0..queues).map(|_| Arc::new(CachePadded::new(P::AtomicBool::new(false)))).collect();
    let flags = Arc::new(AnnouncedQueues::<P> { raised, alarms: alarms.clone() });
    let mut device = Loopback { memory: mem::loopback::<P>(config), flags: flags.clone() };
    let (port, queues) = Port::open(&mut device, lock_kind, first_queue).expect("a new device has its queues");
    let receiver =
        |(queue, raised): (Box<dyn RxQueue>, &Arc<_>)| LoopbackReceiver { queue, raised: Arc::clone(raised) };
    (port, queues.into_iter().zip(&flags.raised).map(receiver).collect())
}

/// The view of the loopback interface, with number `index`.
pub(crate) fn view(index: usize) -> InterfaceView {
    InterfaceView::of_host(index as u16, MTU)
}

impl<P: Platform> Links<P> {
    /// The number of the loopback interface: the last.
    #[inline]
    pub(crate) fn loopback(&self) -> usize {
        self.interfaces().len() - 1
    }

    /// The configured interfaces, by index: all but the loopback interface.
    pub fn attached(&self) -> &[StackInterface<P>] {
        &self.interfaces()[..self.loopback()]
    }

    /// Whether an interface is the loopback interface.
    #[inline]
    pub(crate) fn is_loopback(&self, interface: usize) -> bool {
        interface == self.loopback()
    }

    /// The source address for packets to `destination`, with a route through `interface`. To one of its own addresses a
    /// stack sends from that address.
    #[inline]
    pub(crate) fn source_by(&self, interface: usize, destination: IpAddr) -> Option<IpAddr> {
        let own = self.is_loopback(interface) && !destination.is_loopback() && !destination.is_multicast();
        if own { Some(destination) } else { self.view(interface).source_for(destination) }
    }

    /// Whether packets from `source` may leave by an interface: those from a loopback address stay in the host.
    #[inline]
    pub(crate) fn may_leave(&self, source: IpAddr, interface: usize) -> bool {
        self.is_loopback(interface) || !source.is_loopback()
    }

    /// The interface that has `address` or is a member of that group, including the loopback interface: for packets of
    /// the stack to itself.
    pub(crate) fn owner_including_loopback(&self, address: IpAddr) -> Option<usize> {
        let takes = |cast| matches!(cast, Cast::Unicast | Cast::Multicast);
        self.interfaces().iter().position(|interface| takes(interface.view.get().cast(address)))
    }
}

impl<P: Platform> Egress<P> {
    /// The interface and next hop from `source` towards `destination`; none from a loopback address to another host
    /// (RFC 1122 section 3.2.1.3 g: "Addresses of this form MUST NOT appear outside a host").
    pub(crate) fn route_from(&self, source: IpAddr, destination: IpAddr) -> Option<(usize, IpAddr)> {
        self.routes()
            .lookup(self.links(), destination)
            .filter(|(interface, _)| self.links().may_leave(source, *interface))
    }
}
