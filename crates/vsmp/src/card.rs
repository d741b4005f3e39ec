//! Network cards, and the clients at the other end of their wires.
//!
//! A [`Card`] has transmit and receive rings for each of its queue pairs, a wire of a fixed rate in each direction, and
//! an interrupt for each pair, whose rate is limited. It fetches frames by DMA and writes received ones to memory, so
//! that no CPU has their lines. The thread that polls a queue pair takes back the frames that have been sent, so
//! buffers move from the CPU that filled them to the one that frees them. While it polls, the interrupt is off.
//!
//! At the far end is a [`dev::peer`], which costs nothing: it runs between two steps of the machine. It processes
//! frames a while after the first has arrived, like a computer with interrupt moderation.
//!
//! Frames may also arrive at a fixed rate, whether or not the stack processes them ([`Card::arrivals`]).
//!
//! The card computes and verifies checksums, and cuts super-segments if that is configured.
//!
//! Clients and wires have a separate heap, so that the far end never waits for a lock of the machine. A frame that
//! arrives is copied into a buffer of the receiving thread, to which a real card would have written it.
//!
//! What may never happen: a step of the machine that can switch threads while the card's state is locked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dev::mem::MemConfig;
use dev::pcap::Direction;
use dev::peer::{Peer, PeerConfig, PeerMonitor};
use dev::{Capabilities, Device, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};
use pktbuf::PktBuf;
use sync::Object;

use crate::Vsmp;
use crate::capture::WireCapture;
use crate::machine;
use crate::state::Occurs;

/// Bytes that a frame takes on the wire besides its own: preamble, checksum and gap. The shortest has 64 of its own.
const BESIDE: u64 = 24;
const SHORTEST: u64 = 60;

/// Cycles that a frame of this many bytes has the wire to itself.
pub(crate) fn wire_cycles(len: usize, megabits: u64) -> u64 {
    ((len as u64).max(SHORTEST) + BESIDE) * 8 * machine::cycles(1_000) / megabits
}

/// Maximum number of frames that the client takes at once.
const CLIENT_BATCH: usize = 256;

/// Bytes of a sent buffer that the freeing thread accesses.
pub(crate) const FREED: usize = 64;

/// A card and its wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardConfig {
    /// Queue pairs, each with an interrupt of its own.
    pub queues: usize,
    /// Frames that each ring holds.
    pub ring: usize,
    /// Rate of the wire, in millions of bits a second, in each direction.
    pub megabits: u64,
    /// From the doorbell until the first bit is on the wire, in nanoseconds.
    pub dma: u64,
    /// From the last bit sent until it has arrived, in nanoseconds.
    pub latency: u64,
    /// Nanoseconds between two interrupts of a queue pair, at least.
    pub interrupt_gap: u64,
    /// Nanoseconds after which the client processes the frames that have arrived. Varies by an eighth to either side,
    /// by the machine's seed.
    pub client_delay: u64,
    /// The largest IP packet on the wire, in bytes.
    pub mtu: usize,
    /// Largest super-segment that the card cuts, in bytes; `None`: it cuts none.
    pub segmentation: Option<usize>,
}

/// The totals of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardTotals {
    /// Frames sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Frames that found the receive ring full, and were lost.
    pub lost: u64,
    /// Times that a frame found the transmit ring full.
    pub full: u64,
    /// Interrupts.
    pub interrupts: u64,
}

/// The interrupt of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interrupt {
    /// Enabled; nothing to report.
    Armed,
    /// Scheduled.
    Due,
    /// Raised; its handler has not run yet.
    Raised,
    /// Disabled, because its thread polls.
    Off,
}

/// A queue pair.
struct Queue {
    /// Frames given to the card, with the time at which each has left.
    sending: VecDeque<(u64, PktBuf)>,
    /// Copies in flight to the client.
    to_client: VecDeque<(u64, PktBuf)>,
    client_due: bool,
    far: QueuePair,
    /// Frames from the client, with the time at which each has arrived.
    arriving: VecDeque<(u64, PktBuf)>,
    interrupt: Interrupt,
    /// The earliest time of the next interrupt.
    next_interrupt: u64,
    /// A thread has called its waker.
    woken: bool,
}

/// The state of a card: times in cycles of the machine.
struct State {
    queues: Vec<Queue>,
    wire_free: u64,
    back_free: u64,
    /// Cycles of a byte on the wire, as a fraction.
    byte: (u64, u64),
    totals: CardTotals,
    /// The frame that arrives again and again, and the cycles between two.
    arrivals: Option<(Vec<u8>, u64)>,
    /// The capture of its frames, and its number there.
    capture: Option<(WireCapture, u32)>,
}

impl State {
    fn capture(&self, at: u64, direction: Direction, frame: &PktBuf) {
        if let Some((capture, interface)) = &self.capture {
            capture.frame(*interface, at, direction, frame);
        }
    }

    fn on_wire(&self, frame: &PktBuf) -> u64 {
        let (len, parts) = match u64::from(frame.meta().segment_size) {
            0 => (frame.len() as u64, 1),
            size => (frame.len() as u64, (frame.len() as u64 / size).max(1)),
        };
        (len.max(SHORTEST) + parts * BESIDE) * self.byte.0 / self.byte.1
    }
}

/// The part of a card that both halves of a queue pair and the machine share.
struct Shared {
    state: Mutex<State>,
    config: CardConfig,
    /// Its number on the machine.
    number: usize,
}

/// An event of a queue pair.
const CLIENT: u32 = 0;
const INTERRUPT: u32 = 1;
const ARRIVAL: u32 = 2;
/// How many there are.
const KINDS: u32 = 3;

impl Shared {
    /// One thread of the kernel runs the machine: never contended, if the rule at the head of the file is kept.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn schedule(&self, at: u64, queue: usize, what: u32) {
        machine::schedule(at, self.number, queue as u32 * KINDS + what);
    }

    /// Where the threads that wait for this queue pair sleep.
    fn sleepers(&self, queue: usize) -> usize {
        std::ptr::from_ref(self).addr() + queue
    }

    fn client_looks(&self, index: usize) {
        let (now, latency) = (machine::clock(), machine::cycles(self.config.latency));
        let mut state = self.state();
        let state = &mut *state;
        state.queues[index].client_due = false;
        let mut answers = Vec::new();
        loop {
            let queue = &mut state.queues[index];
            let mut taken = 0;
            while taken < CLIENT_BATCH && queue.to_client.front().is_some_and(|(at, _)| at + latency <= now) {
                let Some((_, frame)) = queue.to_client.pop_front() else { break };
                // The client's ring is emptied below before it is full.
                let _ = queue.far.tx.transmit(frame);
                taken += 1;
            }
            if queue.far.rx.receive(&mut answers, CLIENT_BATCH) == 0 && taken == 0 {
                break;
            }
        }
        for frame in answers {
            self.arrives(state, index, frame, now);
        }
        let queue = &mut state.queues[index];
        if let Some(&(at, _)) = queue.to_client.front() {
            queue.client_due = true;
            self.schedule((at + latency).max(now) + self.client_delay(), index, CLIENT);
        }
    }

    fn client_delay(&self) -> u64 {
        let (delay, spread) = (self.config.client_delay, self.config.client_delay / 4 + 1);
        machine::cycles(delay - delay / 8 + machine::random() % spread)
    }

    /// The next of the frames that arrive at a fixed rate; the time between two varies from nothing to twice its mean, by the
    /// machine's seed.
    fn next_arrival(&self, index: usize) {
        let now = machine::clock();
        let mut state = self.state();
        let Some((frame, gap)) = &state.arrivals else { return };
        let (frame, next) = (PktBuf::from_slice(frame), now + machine::random() % (2 * gap + 1));
        if let Some(frame) = frame {
            self.arrives(&mut state, index, frame, now);
        }
        self.schedule(next, index, ARRIVAL);
    }

    /// A frame from the client reaches the card.
    fn arrives(&self, state: &mut State, index: usize, frame: PktBuf, now: u64) {
        let end = state.back_free.max(now) + state.on_wire(&frame);
        state.back_free = end;
        let at = end + machine::cycles(self.config.latency);
        if state.queues[index].arriving.len() >= self.config.ring {
            state.totals.lost += 1;
            return;
        }
        state.totals.received += 1;
        state.capture(at, Direction::Inbound, &frame);
        state.queues[index].arriving.push_back((at, frame));
        self.request(state, index, at);
    }

    /// An interrupt is wanted at this time, if it is on.
    fn request(&self, state: &mut State, index: usize, at: u64) {
        let queue = &mut state.queues[index];
        if queue.interrupt == Interrupt::Armed {
            queue.interrupt = Interrupt::Due;
            self.schedule(at.max(queue.next_interrupt), index, INTERRUPT);
        }
    }

    fn interrupts(&self, index: usize) {
        let mut state = self.state();
        state.totals.interrupts += 1;
        let queue = &mut state.queues[index];
        queue.interrupt = Interrupt::Raised;
        queue.next_interrupt = machine::clock() + machine::cycles(self.config.interrupt_gap);
        drop(state);
        machine::wake(self.sleepers(index), 1);
    }
}

impl Occurs for Shared {
    fn occur(&self, what: u32) {
        let queue = (what / KINDS) as usize;
        match what % KINDS {
            CLIENT => self.client_looks(queue),
            INTERRUPT => self.interrupts(queue),
            _ => self.next_arrival(queue),
        }
    }
}

/// A card of the machine, to be given to a stack.
pub struct Card {
    name: String,
    capabilities: Capabilities,
    queues: Vec<QueuePair>,
    shared: Arc<Shared>,
    monitor: PeerMonitor,
}

impl Card {
    /// A card with a client at its other end. Called by a thread of a machine. Of `client.link`, the card decides queues,
    /// offloads, rings and the MTU.
    pub fn new(name: &str, config: CardConfig, mut client: PeerConfig) -> Card {
        client.link = MemConfig {
            queues: config.queues,
            ring_frames: 2 * CLIENT_BATCH,
            checksum_offload: true,
            coalescing: false,
            segmentation: config.segmentation,
            mtu: config.mtu,
            ..client.link
        };
        let mut peer = Peer::<Vsmp>::new(client);
        let (capabilities, monitor) = (peer.capabilities().clone(), peer.monitor());
        let queue = |far| Queue {
            sending: VecDeque::new(),
            to_client: VecDeque::new(),
            client_due: false,
            far,
            arriving: VecDeque::new(),
            interrupt: Interrupt::Armed,
            next_interrupt: 0,
            woken: false,
        };
        let state = State {
            queues: peer.take_queues().into_iter().map(queue).collect(),
            wire_free: 0,
            back_free: 0,
            byte: (8 * machine::cycles(1_000), config.megabits),
            totals: CardTotals::default(),
            arrivals: None,
            capture: None,
        };
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
            let number = machine::attach(shared.clone());
            Shared { state: Mutex::new(state), config, number }
        });
        let pair = |index| QueuePair {
            rx: Box::new(Rx { shared: shared.clone(), index }),
            tx: Box::new(Tx { shared: shared.clone(), index }),
        };
        let queues = (0..capabilities.queue_pairs).map(pair).collect();
        Card { name: name.to_owned(), capabilities, queues, shared, monitor }
    }

    /// Captures its frames.
    pub fn capture(&self, capture: &WireCapture) {
        let interface = capture.interface(&self.name);
        self.shared.state().capture = Some((capture.clone(), interface));
    }

    /// A handle to the totals of its client.
    pub fn client(&self) -> PeerMonitor {
        self.monitor.clone()
    }

    /// Returns a function that makes a frame arrive at the first queue pair this many times a second from then on;
    /// valid after the card has been moved. It may be called once.
    pub fn arrivals(&self) -> impl Fn(&[u8], u64) + use<> {
        let shared = Arc::downgrade(&self.shared);
        move |frame, rate| {
            let Some(shared) = shared.upgrade() else { return };
            shared.state().arrivals = Some((frame.to_vec(), machine::cycles(1_000_000_000) / rate.max(1)));
            shared.schedule(machine::clock(), 0, ARRIVAL);
        }
    }

    /// A handle to its own totals, valid after the card has been moved.
    pub fn totals(&self) -> impl Fn() -> CardTotals + use<> {
        let shared = Arc::downgrade(&self.shared);
        move || shared.upgrade().map(|shared| shared.state().totals).unwrap_or_default()
    }
}

impl Device for Card {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        std::mem::take(&mut self.queues)
    }
}

struct Tx {
    shared: Arc<Shared>,
    index: usize,
}

impl TxQueue for Tx {
    fn credit(&self) -> usize {
        let state = self.shared.state();
        let sending = &state.queues[self.index].sending;
        let now = machine::clock();
        let gone = sending.partition_point(|(at, _)| *at <= now);
        // Like drivers that take sent frames back only when they need their places.
        self.shared.config.ring.saturating_sub(sending.len() - gone)
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        machine::point();
        if self.credit() == 0 {
            self.shared.state().totals.full += 1;
            return Err(frame);
        }
        let Shared { config, .. } = &*self.shared;
        let Some(copy) = machine::outside(|| frame.duplicate()) else { return Err(frame) };
        let mut state = self.shared.state();
        let start = state.wire_free.max(machine::clock() + machine::cycles(config.dma));
        let end = start + state.on_wire(&frame);
        (state.wire_free, state.totals.sent) = (end, state.totals.sent + 1);
        state.capture(end, Direction::Outbound, &frame);
        let queue = &mut state.queues[self.index];
        queue.sending.push_back((end, frame));
        queue.to_client.push_back((end, copy));
        if !std::mem::replace(&mut queue.client_due, true) {
            let at = end + machine::cycles(config.latency) + self.shared.client_delay();
            self.shared.schedule(at, self.index, CLIENT);
        }
        Ok(())
    }

    fn flush(&mut self) {}
}

/// The frame in a buffer of the calling thread, to which the card has written it. `None`: there is no memory, and the
/// frame is lost.
pub(crate) fn written(frame: &[u8]) -> Option<PktBuf> {
    let buffer = PktBuf::from_slice(frame)?;
    machine::written_by_device(&buffer);
    Some(buffer)
}

struct Rx {
    shared: Arc<Shared>,
    index: usize,
}

impl Rx {
    /// Takes back the sent frames.
    fn complete(&self, now: u64) {
        let sent: Vec<PktBuf> = {
            let mut state = self.shared.state();
            let sending = &mut state.queues[self.index].sending;
            let gone = sending.partition_point(|(at, _)| *at <= now);
            sending.drain(..gone).map(|(_, frame)| frame).collect()
        };
        for frame in sent {
            machine::touch(Object::Buffer, frame.as_ptr().addr(), frame.len().min(FREED), true);
            machine::completed(&frame);
        }
    }

    /// The polling thread has left frames and waits: the interrupt is enabled again, and is raised for these frames.
    fn end_polling(&self) {
        let mut state = self.shared.state();
        let queue = &mut state.queues[self.index];
        if queue.interrupt == Interrupt::Off {
            queue.interrupt = Interrupt::Armed;
            if let Some(at) = queue.arriving.front().map(|(at, _)| *at) {
                self.shared.request(&mut state, self.index, at.max(machine::clock()));
            }
        }
    }
}

impl RxQueue for Rx {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        machine::point();
        let raised = {
            let mut state = self.shared.state();
            let interrupt = &mut state.queues[self.index].interrupt;
            let raised = *interrupt == Interrupt::Raised;
            if raised {
                *interrupt = Interrupt::Off;
            }
            raised
        };
        if raised {
            machine::interrupt();
        }
        self.complete(machine::clock());
        let now = machine::clock();
        let mut state = self.shared.state();
        let queue = &mut state.queues[self.index];
        let count = queue.arriving.partition_point(|(at, _)| *at <= now).min(max);
        let arrived: Vec<PktBuf> = queue.arriving.drain(..count).map(|(_, frame)| frame).collect();
        if count < max {
            // No frame is left: the interrupt is enabled again.
            let next = queue.arriving.front().map(|(at, _)| *at);
            if queue.interrupt == Interrupt::Off {
                queue.interrupt = Interrupt::Armed;
            }
            if let Some(at) = next {
                self.shared.request(&mut state, self.index, at);
            }
        }
        drop(state);
        let before = batch.len();
        let with_meta = |frame: &PktBuf| {
            let mut buffer = written(frame)?;
            *buffer.meta_mut() = *frame.meta();
            Some(buffer)
        };
        batch.extend(arrived.iter().filter_map(with_meta));
        machine::outside(|| drop(arrived));
        batch.len() - before
    }

    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        self.end_polling();
        let ready = || {
            let mut state = self.shared.state();
            let queue = &mut state.queues[self.index];
            let woken = std::mem::take(&mut queue.woken);
            (queue.interrupt == Interrupt::Raised, woken)
        };
        let (mut raised, mut woken) = ready();
        if !raised && !woken {
            let nanos = timeout.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
            let still = || {
                let state = self.shared.state();
                let queue = &state.queues[self.index];
                queue.interrupt != Interrupt::Raised && !queue.woken
            };
            machine::sleep(self.shared.sleepers(self.index), still, nanos);
            (raised, woken) = ready();
        }
        match (raised, woken) {
            (true, _) => WaitOutcome::Ready,
            (_, true) => WaitOutcome::Woken,
            _ => WaitOutcome::TimedOut,
        }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(Waker { shared: Arc::downgrade(&self.shared), index: self.index })
    }
}

struct Waker {
    shared: Weak<Shared>,
    index: usize,
}

impl Wake for Waker {
    fn wake(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        shared.state().queues[self.index].woken = true;
        machine::wake(shared.sleepers(self.index), 1);
    }
}
