//! Devices, by which frames enter and leave a stack.
//!
//! This crate has the traits that every back-end implements ([`Device`], [`RxQueue`], [`TxQueue`]) and the back-ends
//! that need no operating system: [`mem`] (two linked ports), [`peer`] (a simulated remote end), [`fault`] (loss,
//! delay, reordering and other faults, around any device) and [`pcap`] (recording, and replaying of captures).
//! Back-ends with system calls are in crates of their own (`dev-tap`). For authors of back-ends: [`channel`] makes a
//! receive queue for frames that another thread delivers, and [`conformance`] is a test of the contract.
//!
//! # Model
//!
//! A device has N *queue pairs*. A queue belongs to one thread at a time (`&mut self`), so that no queue needs a lock;
//! a stack that lets several threads use one queue puts its own lock around it. Frames move by ownership: a
//! [`PktBuf`] given to [`TxQueue::transmit`] is gone, one taken from [`RxQueue::receive`] is the receiver's. A frame that
//! leaves by several ports is given to each as one of several holders ([`TxQueue::transmit_shared`]); a device that only
//! reads it makes no copy.
//!
//! # What a frame carries
//!
//! The buffer starts at the Ethernet or FDDI header, or at the IP header ([`Capabilities::framing`]). Its [`pktbuf::Meta`]
//! shows what the device still has to do (`Checksum::Partial`, `segment_size`) or has already done
//! (`Checksum::Verified`, `segment_size` of a coalesced super-segment, `flow_hash`, `queue`). A frame that never
//! crossed a wire may be *received* as `Partial`: nothing can have corrupted it, so its receiver treats it as verified.
//! `Checksum::Partial { start, offset }` on a transmitted frame counts `start` from the first byte of the frame; the
//! checksum field at `start + offset` holds the folded, uncomplemented pseudo-header sum, as in virtio (section 5.1.6.2
//! of its specification).
//!
//! # What may never happen
//!
//! A frame is never lost without a [`DropReason`](observe::DropReason) counted in [`Device::counters`]; frames from one
//! transmit queue to one receive queue are never reordered (except by [`fault`]); there are no protocol rules here: a
//! device reads headers only to hash, to segment and to coalesce, as network interfaces do.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use observe::{Counters, Time};
use pktbuf::{PktBuf, RegionId, SharedBuf};
use wire::ethernet::MacAddr;

mod bit_set;
pub mod coalesce;
pub mod conformance;
pub mod fault;
mod frame_channel;
mod late_sums;
pub mod layout;
mod link;
pub mod mem;
pub mod pcap;
pub mod peer;
pub mod rss;
pub mod segment;

pub use crate::bit_set::BitSet;
pub use crate::frame_channel::{FrameReceiver, FrameSender, channel};
pub use crate::late_sums::LateSums;
pub use wire::Framing;

/// The capabilities of a device, fixed as long as it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Largest packet in a frame, in bytes (the link header not counted). At least 68 (RFC 791). A longer transmitted
    /// one is dropped and counted, unless it is a super-segment.
    pub mtu: usize,
    /// Frames begin with an Ethernet header, with an FDDI header or, if the link has none, with the IP header. Then the link
    /// has no addresses either.
    pub framing: Framing,
    /// The address of this end of the link; unspecified if the link has none.
    pub mac: MacAddr,
    /// Number of queue pairs, at least 1.
    pub queue_pairs: usize,
    /// Completes the checksum of transmitted frames marked `Checksum::Partial`.
    pub tx_checksum: bool,
    /// May mark received frames `Checksum::Verified`.
    pub rx_checksum: bool,
    /// Largest super-segment that may be transmitted (bytes of the frame without its link header), if the device
    /// segments.
    pub segmentation: Option<usize>,
    /// Received frames may be super-segments: `segment_size` set and longer than the MTU.
    pub coalescing: bool,
    /// The key of the Toeplitz hash that distributes received frames over the queues, if known.
    pub rss_key: Option<[u8; 40]>,
    /// The region in which frames should be allocated, so that the device sends them without a copy. It accepts other
    /// frames, too. `None`: the heap.
    pub region: Option<RegionId>,
}

impl Capabilities {
    /// Those of a plain device for Ethernet frames: one queue pair, no offload. Others are set as fields, in
    /// `Capabilities { rx_checksum: true, ..Capabilities::ethernet(mac, 1500) }`.
    pub const fn ethernet(mac: MacAddr, mtu: usize) -> Capabilities {
        Capabilities {
            mtu,
            framing: Framing::Ethernet,
            mac,
            queue_pairs: 1,
            tx_checksum: false,
            rx_checksum: false,
            segmentation: None,
            coalescing: false,
            rss_key: None,
            region: None,
        }
    }

    /// As [`Capabilities::ethernet`], for FDDI frames with the MTU of FDDI, 4352 bytes (RFC 1390).
    pub const fn fddi(mac: MacAddr) -> Capabilities {
        let mut capabilities = Capabilities::ethernet(mac, wire::fddi::MTU);
        capabilities.framing = Framing::Fddi;
        capabilities
    }

    /// As [`Capabilities::ethernet`], for bare IP packets: a link without headers and addresses, as in a tunnel.
    pub const fn packets(mtu: usize) -> Capabilities {
        let mut capabilities = Capabilities::ethernet(MacAddr::UNSPECIFIED, mtu);
        capabilities.framing = Framing::Packet;
        capabilities
    }
}

/// Why [`RxQueue::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// Frames can be received.
    Ready,
    /// [`Wake::wake`] was called.
    Woken,
    /// The time ran out.
    TimedOut,
    /// The device has vanished, and no more frames will arrive; see [`RxQueue::gone`].
    Gone,
}

/// Ends another thread's [`RxQueue::wait`] early.
pub trait Wake: Send + Sync {
    /// The current wait, or else the next one, returns [`WaitOutcome::Woken`]. Wakes do not accumulate.
    fn wake(&self);
}

/// The receiving half of a queue pair.
pub trait RxQueue: Send {
    /// Appends at most `max` frames to `batch` without waiting and returns how many.
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize;

    /// Waits until there are frames, a wake, or `timeout` has passed (`None`: for ever). Returns at once when frames
    /// are ready.
    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome;

    /// A handle with which any thread can end [`wait`](RxQueue::wait).
    fn waker(&self) -> Arc<dyn Wake>;

    /// A file descriptor that polls readable when frames may be ready, if the device has one.
    fn pollable(&self) -> Option<RawFd> {
        None
    }

    /// When the queue next has work of its own, such as delivering a frame that it holds back: for code that drives a
    /// device in virtual time and must know how far it may advance. `None`: only when frames arrive.
    fn next_due(&self) -> Option<Time> {
        None
    }

    /// True once the device has vanished (unplugged, deleted, other port closed) and every frame that had arrived was
    /// delivered. Becomes false again if the device comes back, at [`next_due`](RxQueue::next_due) if it knows when.
    fn gone(&self) -> bool {
        false
    }
}

/// The transmitting half of a queue pair.
pub trait TxQueue: Send {
    /// How many frames the queue will certainly accept now, whichever flows they belong to. A queue may report fewer
    /// free slots than it has only while it reports at least half its capacity; a smaller value is exact, and a larger
    /// one is reported once there is more room.
    fn credit(&self) -> usize;

    /// Gives one frame to the device. `Ok`: the device has accepted it, and sends it, or drops it with a counted
    /// reason. `Err` returns the frame because there is no room now; try again later.
    ///
    /// A sleeping receiver may not be woken for the frame before [`flush`](TxQueue::flush).
    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf>;

    /// As [`transmit`](TxQueue::transmit), for a frame that others may hold, too: one that a bridge floods. The frame is not
    /// written. A device that only reads the bytes of a frame sends these; by default, and in devices that write the frame or
    /// pass it on by ownership, it is [`transmit_own`].
    ///
    /// # Errors
    /// See [`NotTransmitted`].
    fn transmit_shared(&mut self, frame: SharedBuf) -> Result<(), NotTransmitted> {
        transmit_own(self, frame)
    }

    /// Gives frames to the device, in order, until it has no room or none is left: frames that stay in `frames` were
    /// refused and may be offered again. Equivalent to [`transmit`](TxQueue::transmit) for each; a queue with a cost
    /// per call (a lock, a clock, a system call) pays it once here.
    fn transmit_batch(&mut self, frames: &mut VecDeque<PktBuf>) {
        while let Some(frame) = frames.pop_front() {
            if let Err(back) = self.transmit(frame) {
                return frames.push_front(back);
            }
        }
    }

    /// [`transmit`](TxQueue::transmit), then [`take_dirty`](TxQueue::take_dirty) into `dirty`; returns the
    /// [`credit`](TxQueue::credit) that is left. One call of a trait object where it would be three. A receiver that was
    /// seen awake after its frame was there may be left out of `dirty`: it looks for frames before it sleeps.
    ///
    /// # Errors
    /// As [`transmit`](TxQueue::transmit).
    #[inline]
    fn transmit_one(&mut self, frame: PktBuf, dirty: &mut BitSet) -> Result<usize, PktBuf> {
        self.transmit(frame)?;
        self.take_dirty(dirty);
        Ok(self.credit())
    }

    /// Ends a batch: receivers that sleep at the other end are woken, and frames that the device gathers are sent.
    fn flush(&mut self);

    /// A handle that does the same as [`flush`](TxQueue::flush) without the queue, if that only wakes receivers. A
    /// queue behind a lock is then locked once for a frame instead of twice.
    fn notifier(&self) -> Option<Arc<dyn Notify>> {
        None
    }

    /// Moves into `dirty` the receivers of the frames transmitted since the last call or flush: the caller must pass
    /// them to the [`notifier`](TxQueue::notifier). Does nothing if there is none.
    fn take_dirty(&mut self, _dirty: &mut BitSet) {}
}

/// Why a queue has not accepted a frame that others may hold, too; see [`TxQueue::transmit_shared`].
#[derive(Debug)]
pub enum NotTransmitted {
    /// There is no room now. The frame is returned, perhaps in a buffer of its own; try again later.
    NoRoom(SharedBuf),
    /// The device needs the frame in a buffer of its own, and there is none. This holder has been dropped, and the caller
    /// counts the frame.
    NoBuffer,
}

/// Gives a frame to a queue in a buffer of its own: the frame itself if nobody else holds it now, or else a copy.
///
/// # Errors
/// See [`NotTransmitted`].
pub fn transmit_own<Q: TxQueue + ?Sized>(queue: &mut Q, frame: SharedBuf) -> Result<(), NotTransmitted> {
    let own = frame.into_unique().ok_or(NotTransmitted::NoBuffer)?;
    queue.transmit(own).map_err(|back| NotTransmitted::NoRoom(back.share()))
}

/// Wakes receivers that sleep; see [`TxQueue::notifier`]. Any thread.
pub trait Notify: Send + Sync {
    /// Wakes the sleeping receivers in `dirty`. Receivers that were given no frames, or do not exist, do no harm.
    fn notify(&self, dirty: &BitSet);
}

/// One receive and one transmit queue with the same index.
pub struct QueuePair {
    /// The receiving half.
    pub rx: Box<dyn RxQueue>,
    /// The transmitting half.
    pub tx: Box<dyn TxQueue>,
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").finish_non_exhaustive()
    }
}

/// A network interface.
pub trait Device: Send {
    /// The device's capabilities.
    fn capabilities(&self) -> &Capabilities;

    /// The interface's name, as in `tap0` or `mem-a`, for messages. The default is the name of the type.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// Returns all queue pairs in the order of their index; a second call returns none.
    fn take_queues(&mut self) -> Vec<QueuePair>;

    /// The device's counters: its drops by reason. `None` for a device that cannot lose a frame, or does not count.
    fn counters(&self) -> Option<Arc<Counters>> {
        None
    }
}

/// The lock index (class `Pool`) of a wrapping device that is being made. Wrappers are made from the inside out and
/// locked from the outside in, so later ones get lower numbers.
fn wrapper_lock_index() -> u32 {
    static MADE: AtomicU32 = AtomicU32::new(0);
    u32::MAX - MADE.fetch_add(1, Ordering::Relaxed)
}

/// Its name and capabilities.
impl fmt::Debug for dyn Device + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name())
            .field("capabilities", self.capabilities())
            .finish_non_exhaustive()
    }
}

impl Device for Box<dyn Device> {
    fn capabilities(&self) -> &Capabilities {
        (**self).capabilities()
    }

    fn name(&self) -> &str {
        (**self).name()
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        (**self).take_queues()
    }

    fn counters(&self) -> Option<Arc<Counters>> {
        (**self).counters()
    }
}
