//! A remote end simulated by the driver, to measure one side of a stack alone.
//!
//! This is the in-memory driver of Nahum, Yates, Kurose and Towsley ("Performance Issues in Parallelized Network
//! Protocols", OSDI 1994). Instead of another stack there is a driver that implements just enough TCP to load this one:
//! for a send-side test it discards data segments and generates an acknowledgment for every second one; for a
//! receive-side test it generates in-order segments within the advertised window and discards the acknowledgments. It
//! answers ARP and neighbour solicitations, opens N connections or has them opened to it, and closes.
//!
//! # Who runs it
//!
//! The callers of the queues: there is no thread. Frames from the stack cross the rings of [`mem`] to the receive queue
//! on which the connection's answers arrive; that queue's [`receive`](crate::RxQueue::receive) processes them and
//! returns the remote end's answers. So every connection belongs to one receive queue, and needs no lock. A stack that
//! does not receive gets no acknowledgments.
//!
//! # What may never happen
//!
//! The wire is perfect: the peer sends each connection's segments in order, so any observed reordering was caused by
//! the stack. The peer never sends beyond the advertised window.

mod connection;
mod frames;
mod remote;

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use observe::Counters;
use pktbuf::PktBuf;
use sync::Platform;
use wire::FourTuple;
use wire::rss::Toeplitz;

pub use self::frames::pattern;

pub(crate) use self::frames::Frames;

use self::connection::ConnectionConfig;
use self::remote::RemoteEnds;
use crate::mem::{self, MemConfig, Sending};
use crate::rss::Rss;
use crate::{Capabilities, Device, QueuePair};

/// The peer's behaviour on its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerTraffic {
    /// Acknowledges and discards data; closes when the stack does.
    #[default]
    Sink,
    /// Sends data within the window, and discards acknowledgments (and any received data).
    Source {
        /// Bytes to send on each connection before closing it; `None`: without end.
        bytes: Option<u64>,
    },
}

/// Connections that the peer opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opens {
    /// How many, at most 60,000.
    pub connections: u16,
    /// The stack's listener. Of the same family as the peer's address.
    pub to: SocketAddr,
    /// Their ports are this and the following ones.
    pub first_port: u16,
}

/// The configuration of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// The link: framing, queues, MTU, offloads, addresses (`mac_a` is the stack's, `mac_b` the peer's). With `coalescing` a
    /// source sends super-segments.
    pub link: MemConfig,
    /// The peer's IP address. Segments to any other address are dropped.
    pub address: IpAddr,
    /// The peer's behaviour.
    pub traffic: PeerTraffic,
    /// Connections that it opens; it always accepts connections on any port.
    pub opens: Option<Opens>,
    /// Receive window of each connection in bytes, up to 1 GiB.
    pub window: u32,
    /// Acknowledges after this many segments, at least 1; the rest are acknowledged when the stack stops sending.
    pub ack_every: u32,
    /// Timestamps are offered and accepted.
    pub timestamps: bool,
    /// Received data are compared with [`pattern`], and checksums verified.
    pub verify: bool,
    /// How long a connection waits for an acknowledgment before it sends again; twice as long each further time. Longer
    /// than a round trip through the stack under test, or the peer repeats what was not lost.
    pub retransmit_after: Duration,
    /// Sends again from SND.UNA after three duplicate acknowledgments. A peer that knows of no loss does not.
    pub resends: bool,
    /// The most bytes that a source has in flight on a connection, whatever the window.
    pub in_flight: u32,
    /// The most data of a segment, in bytes, less than the link's MTU would allow: the peer sends no more and offers it as its
    /// maximum segment size. `None`: as much as fits.
    pub mss: Option<u16>,
}

impl PeerConfig {
    /// A sink with the customary values at `address`.
    pub fn new(address: IpAddr) -> PeerConfig {
        PeerConfig {
            link: MemConfig::default(),
            address,
            traffic: PeerTraffic::Sink,
            opens: None,
            window: 1 << 20,
            ack_every: 2,
            timestamps: true,
            verify: false,
            retransmit_after: Duration::from_millis(200),
            resends: true,
            in_flight: u32::MAX,
            mss: None,
        }
    }

    /// A datagram of this peer from one of its ports. `None`: there is no packet buffer.
    ///
    /// # Panics
    /// `to` is of another family than the peer's address.
    pub fn datagram(&self, from: u16, to: SocketAddr, data: &[u8]) -> Option<PktBuf> {
        assert_eq!(self.address.is_ipv4(), to.is_ipv4(), "both ends of a datagram are of one family");
        Frames::between(&self.link).udp(SocketAddr::new(self.address, from), to, data)
    }

    fn terms(&self) -> ConnectionConfig {
        let headers = if self.address.is_ipv4() { 40 } else { 60 };
        ConnectionConfig {
            window: self.window.min(1 << 30),
            mss: self.mss.unwrap_or(u16::MAX).min((self.link.mtu - headers).min(65_535) as u16),
            timestamps: self.timestamps,
            ack_every: self.ack_every.max(1),
            send: match self.traffic {
                PeerTraffic::Sink => Some(0),
                PeerTraffic::Source { bytes } => bytes,
            },
            verify: self.verify,
            first_timeout: self.retransmit_after.as_nanos() as u64,
            resends: self.resends,
            in_flight: self.in_flight,
        }
    }
}

/// The counters of a peer, summed over its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerTotals {
    /// Connections that completed their handshake.
    pub established: u64,
    /// Connections that came to an end.
    pub closed: u64,
    /// Segments with data received (coalesced ones by their parts).
    pub segments_in: u64,
    /// Data bytes received in order, each once.
    pub bytes_in: u64,
    /// Segments with data that were not the next in sequence.
    pub out_of_order: u64,
    /// Segments with data that differ from the pattern, or with a wrong checksum.
    pub mismatches: u64,
    /// Acknowledgments without data sent.
    pub acks_out: u64,
    /// Segments with data sent (super-segments by their parts).
    pub segments_out: u64,
    /// Data bytes sent, retransmissions included.
    pub bytes_out: u64,
    /// Data bytes that the stack acknowledged.
    pub bytes_acked: u64,
    /// How often sending restarted from SND.UNA, after duplicate acknowledgments or a timeout.
    pub restarted: u64,
}

impl PeerTotals {
    const COUNT: usize = 11;

    fn to_words(self) -> [u64; PeerTotals::COUNT] {
        [
            self.established,
            self.closed,
            self.segments_in,
            self.bytes_in,
            self.out_of_order,
            self.mismatches,
            self.acks_out,
            self.segments_out,
            self.bytes_out,
            self.bytes_acked,
            self.restarted,
        ]
    }

    fn from_words(words: [u64; PeerTotals::COUNT]) -> PeerTotals {
        let [established, closed, segments_in, bytes_in, out_of_order, mismatches, rest @ ..] = words;
        let [acks_out, segments_out, bytes_out, bytes_acked, restarted] = rest;
        PeerTotals {
            established,
            closed,
            segments_in,
            bytes_in,
            out_of_order,
            mismatches,
            acks_out,
            segments_out,
            bytes_out,
            bytes_acked,
            restarted,
        }
    }
}

/// The totals of one queue, written by it alone after each batch. On cache lines of their own, so that queues do not
/// slow each other down.
#[repr(align(128))]
#[derive(Default)]
struct Published([AtomicU64; PeerTotals::COUNT]);

impl Published {
    fn store(&self, totals: PeerTotals) {
        for (word, value) in self.0.iter().zip(totals.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// Reads a peer's totals from any thread.
#[derive(Clone)]
pub struct PeerMonitor(Arc<[Arc<Published>]>);

impl fmt::Debug for PeerMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerMonitor").field("totals", &self.totals()).finish_non_exhaustive()
    }
}

impl PeerMonitor {
    /// The totals as of each queue's last batch.
    pub fn totals(&self) -> PeerTotals {
        let mut words = [0; PeerTotals::COUNT];
        for queue in self.0.iter() {
            for (word, value) in words.iter_mut().zip(&queue.0) {
                *word += value.load(Ordering::Relaxed);
            }
        }
        PeerTotals::from_words(words)
    }
}

/// The device with the peer on its other side.
pub struct Peer<P: Platform> {
    capabilities: Capabilities,
    queues: Vec<QueuePair>,
    counters: Arc<Counters>,
    monitor: PeerMonitor,
    platform: PhantomData<P>,
}

impl<P: Platform> fmt::Debug for Peer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("capabilities", &self.capabilities)
            .field("totals", &self.monitor.totals())
            .finish_non_exhaustive()
    }
}

impl<P: Platform> Peer<P> {
    /// Makes the device. The stack's end has the address `config.link.mac_a`.
    ///
    /// # Panics
    ///
    /// If the MTU leaves no room for data, if more than 60,000 connections are to be opened or their ports exceed
    /// 65,535, or if a value of the link's configuration is outside its range.
    pub fn new(config: PeerConfig) -> Peer<P> {
        config.link.check();
        assert!(config.link.mtu > 60 + 40, "an MTU of {} leaves no room for data", config.link.mtu);
        let published: Arc<[Arc<Published>]> = (0..config.link.queues).map(|_| Arc::default()).collect();
        // The rings do not split super-segments: the peer takes them whole.
        let rings = MemConfig { coalescing: true, ..config.link.clone() };
        let rss = || Rss::new(&config.link.rss_key, config.link.queues).reversed().framed(config.link.framing);
        let (Sending { queues: tx, counters }, rx) = mem::direction::<P>(&rings, rss());
        let opens = planned(&config, &rss());
        let queues = rx.into_iter().zip(tx).zip(opens).zip(published.iter());
        let queues = queues.map(|(((rx, tx), opens), published)| QueuePair {
            rx: Box::new(RemoteEnds::<P>::new(rx, &config, opens, published.clone(), counters.clone())),
            tx: Box::new(tx),
        });
        Peer {
            capabilities: config.link.capabilities(config.link.mac_a),
            queues: queues.collect(),
            counters,
            monitor: PeerMonitor(published),
            platform: PhantomData,
        }
    }

    /// A handle to the totals, valid after the device has been moved.
    pub fn monitor(&self) -> PeerMonitor {
        self.monitor.clone()
    }
}

/// The connections to open, by the queue on which they will live.
fn planned(config: &PeerConfig, rss: &Rss) -> Vec<VecDeque<FourTuple>> {
    let mut queues: Vec<VecDeque<FourTuple>> = (0..config.link.queues).map(|_| VecDeque::new()).collect();
    let Some(opens) = config.opens else { return queues };
    assert!(opens.connections <= 60_000, "a peer opens at most 60000 connections, not {}", opens.connections);
    let last = u32::from(opens.first_port) + u32::from(opens.connections);
    assert!(last <= 65_536, "the ports of {} connections from {} exceed 65535", opens.connections, opens.first_port);
    let toeplitz = Toeplitz::new(&config.link.rss_key);
    for index in 0..opens.connections {
        let tuple = FourTuple {
            local_addr: config.address,
            remote_addr: opens.to.ip(),
            local_port: opens.first_port + index,
            remote_port: opens.to.port(),
        };
        let hash = toeplitz.hash_tcp(&tuple.reversed());
        queues[rss.queue(Some(hash))].push_back(tuple);
    }
    queues
}

impl<P: Platform> Device for Peer<P> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name(&self) -> &str {
        "peer"
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        std::mem::take(&mut self.queues)
    }

    fn counters(&self) -> Option<Arc<Counters>> {
        Some(self.counters.clone())
    }
}
