//! Two linked ports in memory, or one that is linked to itself.
//!
//! [`pair`] makes two; each receives what the other transmits. [`loopback`] makes one, which receives what it
//! transmits. A frame moves by ownership: the sender's copy into the buffer is the only one. Each port has N queue
//! pairs; [`rss`](crate::rss) chooses the receiving queue, and the rings are those of `link`: one per pair of queues,
//! without locks.
//!
//! The link itself loses no frames: with a full ring [`TxQueue::transmit`] returns the frame. Invalid frames are
//! dropped with a reason, counted at the sending port: frames longer than the MTU, frames too short for a link header,
//! frames for a port that is gone.
//!
//! With [`Framing::Fddi`] the frames are those of an FDDI ring; [`MemConfig::fddi`] has its MTU. The ring is an ideal one: it has no
//! token, and takes any MTU.
//!
//! With [`Framing::Packet`] the link has no header and no addresses: frames are bare IP packets, as on a TUN device.
//!
//! Super-segments (`segment_size` set) are accepted if `segmentation` is configured. They cross whole; a coalescing
//! receiver gets them whole, any other gets the frames that a segmenting interface would have sent, made when it takes
//! them. Checksum offload is as cheap as on real hardware: a frame marked `Partial` arrives with an incomplete checksum
//! field. Since memory does not corrupt, the receiver need not verify it, and code that forwards it can complete it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use observe::{Counters, DropReason};
use pktbuf::{Checksum, Meta, PktBuf};
use sync::Platform;
use wire::ethernet::MacAddr;
use wire::rss::SYMMETRIC_KEY;
use wire::{Framing, ipv4, ipv6};

use crate::layout::{self, Layout};
use crate::link::{self, LinkRx, LinkTx};
use crate::rss::Rss;
use crate::segment::{NoBuffer, Splitter};
use crate::{BitSet, Capabilities, Device, Notify, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake, coalesce};

/// Most queue pairs of a port: a bound on memory, which grows with their square.
pub const MAX_QUEUES: usize = 256;
/// The longest packet without IPv6's jumbo payload option: an IPv6 header, and as much as its payload length can say.
const LONGEST_PACKET: usize = ipv6::HEADER_LEN + u16::MAX as usize;

/// The configuration of the two ports of a [`pair`], which differ only in their addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemConfig {
    /// Queue pairs per port, 1 to [`MAX_QUEUES`].
    pub queues: usize,
    /// Largest payload of a frame in bytes, 68 to 65,575: the longest IPv6 packet.
    pub mtu: usize,
    /// Frames each ring holds; rounded up to a power of two. There are `queues` squared rings per direction.
    pub ring_frames: usize,
    /// Largest super-segment taken (bytes behind the link header, up to 65,535); `None`: the port does not segment.
    pub segmentation: Option<usize>,
    /// Receivers accept super-segments whole, and in-order segments of a batch are merged.
    pub coalescing: bool,
    /// Transmitted `Partial` checksums need not be completed; they arrive unchanged.
    pub checksum_offload: bool,
    /// The framing. Ports of bare packets have no addresses.
    pub framing: Framing,
    /// Address of the first port.
    pub mac_a: MacAddr,
    /// Address of the second port.
    pub mac_b: MacAddr,
    /// Key of the hash that chooses receive queues.
    pub rss_key: [u8; 40],
}

impl Default for MemConfig {
    fn default() -> MemConfig {
        MemConfig {
            queues: 1,
            mtu: 1500,
            ring_frames: 512,
            segmentation: None,
            coalescing: false,
            checksum_offload: false,
            framing: Framing::Ethernet,
            // Locally administered, unicast.
            mac_a: MacAddr([0x02, 0x68, 0x65, 0x64, 0x00, 0x0a]),
            mac_b: MacAddr([0x02, 0x68, 0x65, 0x64, 0x00, 0x0b]),
            rss_key: SYMMETRIC_KEY,
        }
    }
}

impl MemConfig {
    /// The default with FDDI framing, and the MTU of FDDI: 4352 bytes (RFC 1390).
    pub fn fddi() -> MemConfig {
        MemConfig { framing: Framing::Fddi, mtu: wire::fddi::MTU, ..MemConfig::default() }
    }

    pub(crate) fn check(&self) {
        assert!((1..=MAX_QUEUES).contains(&self.queues), "queues must be 1 to {MAX_QUEUES}, not {}", self.queues);
        let mtus = ipv4::MIN_MTU..=LONGEST_PACKET;
        assert!(mtus.contains(&self.mtu), "the MTU must be 68 to {LONGEST_PACKET} bytes, not {}", self.mtu);
        assert!(self.ring_frames > 0, "a ring must hold at least one frame");
        let segmentation = self.segmentation.unwrap_or_default();
        assert!(segmentation <= 65_535, "a super-segment has at most 65535 bytes, not {segmentation}");
    }

    pub(crate) fn capabilities(&self, mac: MacAddr) -> Capabilities {
        let mac = if self.framing.has_addresses() { mac } else { MacAddr::UNSPECIFIED };
        Capabilities {
            mtu: self.mtu,
            framing: self.framing,
            mac,
            queue_pairs: self.queues,
            tx_checksum: self.checksum_offload,
            rx_checksum: self.checksum_offload,
            segmentation: self.segmentation,
            coalescing: self.coalescing,
            rss_key: Some(self.rss_key),
            region: None,
        }
    }
}

/// One port of a linked pair.
pub struct MemDevice {
    name: &'static str,
    capabilities: Capabilities,
    queues: Vec<QueuePair>,
    counters: Arc<Counters>,
}

/// Makes two linked ports, `mem-a` and `mem-b`.
///
/// # Panics
///
/// If a value of the configuration is outside its range.
pub fn pair<P: Platform>(config: MemConfig) -> (MemDevice, MemDevice) {
    config.check();
    let rss = || Rss::new(&config.rss_key, config.queues).framed(config.framing);
    let (to_b, at_b) = direction::<P>(&config, rss());
    let (to_a, at_a) = direction::<P>(&config, rss());
    let port = |name, mac, tx: Sending<P>, rx: Vec<MemRx<P>>| {
        let queues = tx.queues.into_iter().zip(rx);
        MemDevice {
            name,
            capabilities: config.capabilities(mac),
            queues: queues.map(|(tx, rx)| QueuePair { rx: Box::new(rx), tx: Box::new(tx) }).collect(),
            counters: tx.counters,
        }
    };
    (port("mem-a", config.mac_a, to_b, at_a), port("mem-b", config.mac_b, to_a, at_b))
}

/// Makes one port linked to itself, for loopback: it receives the frames that it transmits. It has the first of the two
/// addresses.
///
/// # Panics
///
/// If a value of the configuration is outside its range.
pub fn loopback<P: Platform>(config: MemConfig) -> MemDevice {
    config.check();
    let rss = Rss::new(&config.rss_key, config.queues).framed(config.framing);
    let (sending, receiving) = direction::<P>(&config, rss);
    let queues = sending.queues.into_iter().zip(receiving);
    MemDevice {
        name: "loopback",
        capabilities: config.capabilities(config.mac_a),
        queues: queues.map(|(tx, rx)| QueuePair { rx: Box::new(rx), tx: Box::new(tx) }).collect(),
        counters: sending.counters,
    }
}

/// The transmit queues of one direction and the counters they share.
pub(crate) struct Sending<P: Platform> {
    pub queues: Vec<MemTx<P>>,
    pub counters: Arc<Counters>,
}

/// One direction of a link: its transmit queues at one end, its receive queues at the other.
pub(crate) fn direction<P: Platform>(config: &MemConfig, rss: Rss) -> (Sending<P>, Vec<MemRx<P>>) {
    let counters = Arc::new(Counters::shared());
    let rss = Arc::new(rss);
    let (senders, receivers) = link::channel::<P>(config.queues, config.ring_frames);
    let tx = senders.into_iter().map(|link| MemTx {
        link,
        rss: rss.clone(),
        limits: Limits {
            mtu: config.mtu,
            framing: config.framing,
            shortest: config.framing.least(),
            longest: config.mtu + config.framing.header_len(),
            segmentation: config.segmentation,
            checksum_offload: config.checksum_offload,
            split: !config.coalescing,
        },
        counters: counters.clone(),
    });
    let rx = receivers.into_iter().map(|link| MemRx {
        link,
        coalescing: config.coalescing,
        framing: config.framing,
        verified: config.checksum_offload,
        splitting: None,
        counters: counters.clone(),
    });
    (Sending { queues: tx.collect(), counters: counters.clone() }, rx.collect())
}

impl fmt::Debug for MemDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemDevice")
            .field("name", &self.name)
            .field("capabilities", &self.capabilities)
            .finish_non_exhaustive()
    }
}

impl Device for MemDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name(&self) -> &str {
        self.name
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        std::mem::take(&mut self.queues)
    }

    fn counters(&self) -> Option<Arc<Counters>> {
        Some(self.counters.clone())
    }
}

/// The limits of a transmit queue.
struct Limits {
    mtu: usize,
    framing: Framing,
    /// Bytes of the shortest frame.
    shortest: usize,
    /// Bytes of the longest frame without a tag.
    longest: usize,
    segmentation: Option<usize>,
    checksum_offload: bool,
    /// Super-segments will be split at the other end.
    split: bool,
}

impl Limits {
    /// Validates one frame and completes the offload work that the receiver's port does not accept.
    #[inline]
    fn admit(&self, frame: &mut PktBuf) -> Result<(), DropReason> {
        let len = frame.len();
        let Meta { segment_size, checksum, .. } = *frame.meta();
        // Fast path: most frames are long enough, short enough without a tag, and have no offload work.
        let fits = (self.shortest..=self.longest).contains(&len);
        if fits && segment_size == 0 && checksum == Checksum::None { Ok(()) } else { self.admit_rarer(frame) }
    }

    #[inline(never)]
    fn admit_rarer(&self, frame: &mut PktBuf) -> Result<(), DropReason> {
        let len = frame.len();
        if len < self.framing.least() {
            return Err(DropReason::FrameTooShort);
        }
        let tagged = self.framing == Framing::Ethernet && frame[12..14] == [0x81, 0x00];
        let link_header = if tagged { self.framing.longest_header() } else { self.framing.header_len() };
        let segment_size = usize::from(frame.meta().segment_size);
        if segment_size != 0 {
            let layout = Layout::framed(self.framing, frame).ok_or(DropReason::SegmentationFailed)?;
            if layout.end - layout.data > segment_size {
                return self.admit_super_segment(frame, &layout, link_header, segment_size);
            }
            frame.meta_mut().segment_size = 0;
        }
        if len > self.mtu + link_header {
            return Err(DropReason::FrameTooLong);
        }
        self.settle_checksum(frame);
        Ok(())
    }

    #[cold]
    fn admit_super_segment(
        &self,
        frame: &mut PktBuf,
        layout: &Layout,
        link_header: usize,
        segment_size: usize,
    ) -> Result<(), DropReason> {
        let most = self.segmentation.ok_or(DropReason::FrameTooLong)?;
        if layout.end - link_header > most || layout.data - link_header + segment_size > self.mtu {
            return Err(DropReason::FrameTooLong);
        }
        // Pieces get their checksums when they are made.
        if !self.split {
            self.settle_checksum(frame);
        }
        Ok(())
    }

    fn settle_checksum(&self, frame: &mut PktBuf) {
        match (frame.meta().checksum, self.checksum_offload) {
            (Checksum::Partial { .. }, false) => layout::complete_checksum_framed(self.framing, frame),
            // The receiver of a link without offload must verify it.
            (Checksum::Verified, false) => frame.meta_mut().checksum = Checksum::None,
            (Checksum::Partial { .. } | Checksum::Verified, true) | (Checksum::None | Checksum::Later { .. }, _) => {}
        }
    }
}

/// A transmit queue of a port.
pub(crate) struct MemTx<P: Platform> {
    link: LinkTx<P>,
    rss: Arc<Rss>,
    limits: Limits,
    counters: Arc<Counters>,
}

/// Writes the hash of a frame's flow and its receive queue into its metadata.
#[inline(always)]
fn mark(frame: &mut PktBuf, hash: Option<u32>, queue: usize) {
    let meta = frame.meta_mut();
    meta.flow_hash = hash;
    meta.queue = queue as u16;
}

impl<P: Platform> MemTx<P> {
    /// The queue that receives the frame, which is marked for it. `None`: the frame is dropped, and that is counted.
    #[inline(always)]
    fn receiver_of(&self, frame: &mut PktBuf) -> Option<usize> {
        if let Err(reason) = self.limits.admit(frame) {
            self.counters.count_drop(reason);
            return None;
        }
        let hash = self.rss.hash(frame);
        let queue = self.rss.queue(hash);
        if !self.link.is_open(queue) {
            self.counters.count_drop(DropReason::InterfaceDown);
            return None;
        }
        mark(frame, hash, queue);
        Some(queue)
    }
}

impl<P: Platform> TxQueue for MemTx<P> {
    /// Free places in the fullest of the rings to the receive queues.
    fn credit(&self) -> usize {
        self.link.credit()
    }

    fn transmit(&mut self, mut frame: PktBuf) -> Result<(), PktBuf> {
        match self.receiver_of(&mut frame) {
            Some(queue) => self.link.push(queue, frame),
            None => Ok(()),
        }
    }

    /// With one queue its ring is looked at once, and the receiver sees all frames at once.
    fn transmit_batch(&mut self, frames: &mut VecDeque<PktBuf>) {
        let MemTx { link, rss, limits, counters } = self;
        if rss.queues() > 1 || !link.is_open(0) {
            while let Some(frame) = frames.pop_front() {
                if let Err(back) = self.transmit(frame) {
                    return frames.push_front(back);
                }
            }
            return;
        }
        // Usually the deque begins at the begin of its memory, and nothing is moved.
        let mut left = Vec::from(std::mem::take(frames));
        while !left.is_empty() {
            let room = link.room_for(0, left.len()).min(left.len());
            if room == 0 {
                break;
            }
            let mut offered = left.drain(..room);
            link.push_each(0, room, || {
                loop {
                    let mut frame = offered.next()?;
                    if let Err(reason) = limits.admit(&mut frame) {
                        counters.count_drop(reason);
                        continue;
                    }
                    let hash = rss.hash(&frame);
                    mark(&mut frame, hash, 0);
                    return Some(frame);
                }
            });
        }
        *frames = VecDeque::from(left);
    }

    fn flush(&mut self) {
        self.link.notify();
    }

    fn notifier(&self) -> Option<Arc<dyn Notify>> {
        Some(self.link.notifier())
    }

    #[inline]
    fn take_dirty(&mut self, dirty: &mut BitSet) {
        self.link.take_dirty(dirty);
    }

    #[inline]
    fn transmit_one(&mut self, mut frame: PktBuf, dirty: &mut BitSet) -> Result<usize, PktBuf> {
        if let Some(queue) = self.receiver_of(&mut frame) {
            self.link.push_and_look(queue, frame, dirty)?;
        }
        Ok(self.credit())
    }
}

/// A receive queue of a port.
pub(crate) struct MemRx<P: Platform> {
    link: LinkRx<P>,
    coalescing: bool,
    framing: Framing,
    verified: bool,
    /// A super-segment that has been delivered in part.
    splitting: Option<Splitter>,
    counters: Arc<Counters>,
}

impl<P: Platform> MemRx<P> {
    /// The next frame in the form for the receiver.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<PktBuf> {
        if self.splitting.is_some()
            && let Some(piece) = self.next_piece()
        {
            return Some(piece);
        }
        loop {
            let frame = self.link.pop()?;
            if self.coalescing || frame.meta().segment_size == 0 {
                return Some(frame);
            }
            match Splitter::framed(self.framing, frame) {
                Ok(splitter) => self.splitting = Some(splitter),
                Err(frame) => return Some(frame),
            }
            if let Some(piece) = self.next_piece() {
                return Some(piece);
            }
        }
    }

    fn next_piece(&mut self) -> Option<PktBuf> {
        loop {
            match self.splitting.as_mut()?.next_piece() {
                Some(Ok(mut piece)) => {
                    if self.verified {
                        piece.meta_mut().checksum = Checksum::Verified;
                    }
                    return Some(piece);
                }
                Some(Err(NoBuffer)) => self.counters.count_drop(DropReason::NoBuffer),
                None => self.splitting = None,
            }
        }
    }

    /// Fills `batch` up to `full` frames with the pieces of a super-segment and the frames after it.
    #[cold]
    fn split(&mut self, frame: PktBuf, batch: &mut Vec<PktBuf>, full: usize) {
        match Splitter::framed(self.framing, frame) {
            Ok(splitter) => self.splitting = Some(splitter),
            Err(frame) => batch.push(frame),
        }
        self.receive_pieces(batch, full - batch.len());
    }

    /// Appends up to `most` frames, pieces of super-segments among them.
    #[cold]
    fn receive_pieces(&mut self, batch: &mut Vec<PktBuf>, most: usize) {
        for _ in 0..most {
            match self.next() {
                Some(frame) => batch.push(frame),
                None => return,
            }
        }
    }

    /// Appends up to `max` frames to `batch`; returns how many.
    #[inline(never)]
    fn receive_some(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let from = batch.len();
        if self.splitting.is_some() {
            self.receive_pieces(batch, max);
        } else if max == 1 {
            match self.link.pop() {
                Some(frame) if self.coalescing || frame.meta().segment_size == 0 => batch.push(frame),
                Some(frame) => self.split(frame, batch, from + 1),
                None => {}
            }
        } else {
            let whole = self.coalescing;
            let long = self.link.pop_each(batch, max, |frame| !whole && frame.meta().segment_size != 0);
            if let Some(frame) = long {
                self.split(frame, batch, from + max);
            }
        }
        self.end_batch();
        if self.coalescing {
            coalesce::coalesce_framed(self.framing, batch, from);
        }
        batch.len() - from
    }

    /// Passes the turn to the ring of the next transmit queue.
    pub(crate) fn end_batch(&mut self) {
        self.link.yield_turn();
    }
}

impl<P: Platform> RxQueue for MemRx<P> {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        // Many polls find nothing.
        if self.splitting.is_none() && self.link.is_only_ring_empty() { 0 } else { self.receive_some(batch, max) }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        if self.splitting.is_some() {
            return WaitOutcome::Ready;
        }
        self.link.wait(timeout)
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.link.waker()
    }

    fn gone(&self) -> bool {
        self.splitting.is_none() && self.link.is_gone()
    }
}
