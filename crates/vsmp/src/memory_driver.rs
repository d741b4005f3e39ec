//! The in-memory driver of Nahum, Yates, Kurose and Towsley (OSDI 1994): a device without hardware, from which many threads
//! take packets.
//!
//! It has a queue pair for each thread, and one remote end for all of them ([`dev::peer`]). A thread that receives gets the
//! next packet, under a lock, so that packets leave the driver in order. To load the receive side of a stack the remote end
//! makes the next segment that the window allows, and discards acknowledgments. To load the send side it discards data, and
//! makes an acknowledgment for every second segment, which the next thread that receives gets. It makes any number of
//! datagrams from a template.
//!
//! It keeps the place in its stream of every segment with data that was made ([`PacketsMade`]), so that a workload can account for
//! each. A packet for which there is no buffer is counted as [`DropReason::NoBuffer`].
//!
//! On a virtual machine the remote end costs nothing but the lock and one [`Step::Message`] under it. Only the headers of a
//! packet are written into the buffer of the thread that takes it, as by a driver with buffers that keep their data. On the real
//! machine a thread makes a packet while it holds the lock, data included, and processes there what the stack has sent.
//!
//! What may never happen: a step of the machine that can switch threads while the remote end is borrowed.

mod made;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dev::mem::MemConfig;
use dev::peer::{Peer, PeerConfig, PeerMonitor};
use dev::{Capabilities, Device, Framing, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};
use observe::{Counters, DropReason};
use pktbuf::{Checksum, PktBuf};
use sync::{Lock, LockClass, LockKind, Object, Platform, Step};

use crate::machine;

pub use made::PacketsMade;

use made::MadePackets;

/// Frames that a thread may give to it at once.
const ROOM: usize = 1024;
/// Bytes of a packet that it writes behind the link header: the other headers.
const HEADERS: usize = 50;

/// A driver.
pub struct MemoryDriver<P: Platform> {
    capabilities: Capabilities,
    queues: Vec<QueuePair>,
    monitor: PeerMonitor,
    shared: Arc<Shared<P>>,
}

/// The state that all threads share.
struct Shared<P: Platform> {
    /// Held while a packet is made.
    turn: Lock<(), P>,
    /// One thread of the kernel runs a virtual machine: never contended there, if the rule at the head of the file is kept.
    remote: Mutex<Remote>,
    /// By queue: the remote port of the packet that its thread took last.
    carried: Box<[AtomicU32]>,
    /// Packets that were made and found no buffer.
    lost: Counters,
    /// The remote end's.
    counters: Arc<Counters>,
    monitor: PeerMonitor,
}

struct Remote {
    far: QueuePair,
    /// Made and not taken.
    ready: VecDeque<PktBuf>,
    /// The datagram that is made again and again.
    datagram: Option<PktBuf>,
    framing: Framing,
    made: MadePackets,
}

impl Remote {
    /// The next packet.
    fn next(&mut self) -> Option<PktBuf> {
        if let Some(frame) = &self.datagram {
            let copy = frame.duplicate()?;
            self.made.note_datagram();
            return Some(copy);
        }
        if self.ready.is_empty() {
            self.look(1);
        }
        self.ready.pop_front()
    }

    /// Lets the remote end process the frames that it has, and make up to `most` packets.
    fn look(&mut self, most: usize) {
        let mut made = Vec::new();
        self.far.rx.receive(&mut made, most);
        made.iter().for_each(|frame| self.made.note(self.framing, frame));
        self.ready.extend(made);
    }

    /// Gives the remote end a frame.
    fn accept(&mut self, frame: PktBuf) {
        if let Err(frame) = self.far.tx.transmit(frame) {
            self.look(ROOM);
            // There is room now: it has processed all frames.
            let _ = self.far.tx.transmit(frame);
        }
    }
}

impl<P: Platform> Shared<P> {
    fn remote(&self) -> MutexGuard<'_, Remote> {
        self.remote.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Platform> MemoryDriver<P> {
    /// A driver for `threads` threads, with a lock of this kind. The driver sets queues and rings of `remote.link` itself.
    /// `elsewhere`: the checksums of what the stack sends are charged elsewhere. Called by a thread of the machine on which it runs.
    pub fn new(threads: usize, kind: LockKind, mut remote: PeerConfig, elsewhere: bool) -> MemoryDriver<P> {
        let sums = !remote.link.checksum_offload && !elsewhere;
        remote.link = MemConfig { queues: 1, ring_frames: ROOM, coalescing: false, ..remote.link };
        let mut peer = Peer::<P>::new(remote);
        let capabilities = Capabilities { queue_pairs: threads, ..peer.capabilities().clone() };
        let monitor = peer.monitor();
        let counters = peer.counters().unwrap_or_default();
        let far = peer.take_queues().swap_remove(0);
        let framing = capabilities.framing;
        let made = MadePackets::default();
        let shared = Arc::new(Shared {
            turn: Lock::new(kind, LockClass::Pool, ()),
            remote: Mutex::new(Remote { far, ready: VecDeque::new(), datagram: None, framing, made }),
            carried: (0..threads).map(|_| AtomicU32::new(0)).collect(),
            lost: Counters::default(),
            counters,
            monitor: monitor.clone(),
        });
        let pair = |index| QueuePair {
            rx: Box::new(Rx { shared: shared.clone(), index, framing }),
            tx: Box::new(Tx { shared: shared.clone(), sums }),
        };
        MemoryDriver { capabilities, queues: (0..threads).map(pair).collect(), monitor, shared }
    }

    /// Lets the remote end make this datagram from now on, and nothing else.
    pub fn make_datagrams(&self, frame: &PktBuf) {
        machine::outside(|| self.shared.remote().datagram = frame.duplicate());
    }

    /// The totals of its remote end.
    pub fn monitor(&self) -> PeerMonitor {
        self.monitor.clone()
    }

    /// What its remote end has made. Valid after the driver has been moved.
    pub fn made(&self) -> PacketsMade<P> {
        PacketsMade(self.shared.clone())
    }

    /// The remote port of the packet that the thread of a queue took last; 0 before the first. Valid after the driver has been
    /// moved.
    pub fn carried(&self) -> impl Fn(usize) -> u16 + Clone + Send + use<P> {
        let shared = self.shared.clone();
        move |index| shared.carried[index].load(Relaxed) as u16
    }
}

impl<P: Platform> Device for MemoryDriver<P> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name(&self) -> &str {
        "memory"
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        std::mem::take(&mut self.queues)
    }

    fn counters(&self) -> Option<Arc<Counters>> {
        Some(self.shared.counters.clone())
    }
}

struct Rx<P: Platform> {
    shared: Arc<Shared<P>>,
    index: usize,
    framing: Framing,
}

impl<P: Platform> RxQueue for Rx<P> {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        if max == 0 {
            return 0;
        }
        let turn = self.shared.turn.lock();
        P::work(Step::Message, 1);
        machine::point();
        let frame = machine::outside(|| self.shared.remote().next());
        drop(turn);
        let Some(frame) = frame else { return 0 };
        self.shared.carried[self.index].store(remote_port(self.framing, &frame).into(), Relaxed);
        let Some(buffer) = own::<P>(frame) else {
            self.shared.lost.count_drop(DropReason::NoBuffer);
            return 0;
        };
        let headers = self.framing.header_len() + HEADERS;
        P::touch(Object::Buffer, buffer.as_ptr(), buffer.len().min(headers), true);
        batch.push(buffer);
        1
    }

    /// It never waits: its threads poll.
    fn wait(&mut self, _: Option<Duration>) -> WaitOutcome {
        WaitOutcome::TimedOut
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(Nobody)
    }
}

/// A packet of the remote end in a buffer of the thread that takes it: on a virtual machine a copy, because the remote end
/// has a heap of its own there. `None`: there is no buffer.
fn own<P: Platform>(frame: PktBuf) -> Option<PktBuf> {
    if !P::CHARGED {
        return Some(frame);
    }
    let copy = PktBuf::from_slice(&frame);
    let meta = *frame.meta();
    machine::outside(|| drop(frame));
    let mut buffer = copy?;
    *buffer.meta_mut() = meta;
    Some(buffer)
}

/// The source port of a segment or datagram; 0 if it is none.
fn remote_port(framing: Framing, frame: &[u8]) -> u16 {
    let link = framing.header_len();
    let version = frame.get(link).map_or(0, |byte| byte >> 4);
    let network = if version == 6 { wire::ipv6::HEADER_LEN } else { wire::ipv4::HEADER_LEN };
    let at = link + network;
    frame.get(at..at + 2).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]))
}

struct Tx<P: Platform> {
    shared: Arc<Shared<P>>,
    /// The stack computes checksums of segments while it holds their connections.
    sums: bool,
}

impl<P: Platform> TxQueue for Tx<P> {
    fn credit(&self) -> usize {
        ROOM
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        // The stack has just computed the checksum of a segment, because the driver does not. The workload charges those of datagrams,
        // and `LateSums` those that it computes.
        if self.sums && frame.meta().checksum == Checksum::None {
            P::sum(frame.as_ptr(), frame.len());
        }
        if !P::CHARGED {
            self.shared.remote().accept(frame);
            return Ok(());
        }
        machine::point();
        machine::outside(|| match frame.duplicate() {
            Some(copy) => self.shared.remote().accept(copy),
            None => self.shared.counters.count_drop(DropReason::NoBuffer),
        });
        Ok(())
    }

    fn flush(&mut self) {}
}

/// Nobody sleeps.
struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}
