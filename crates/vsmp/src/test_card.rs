//! A network card with the tester of RFC 2544 at the other end of its wire: it offers frames at a fixed rate, and
//! checks those that the machine transmits.
//!
//! Each receive queue has an interrupt vector, which belongs to a CPU ([`Tester::set_affinity`]). Its interrupt
//! wakes the thread that waits on that CPU ([`Vectors`]). The card chooses the queue by the Toeplitz hash of the
//! frame's flow. The thread that transmits by a queue takes back the frames that the queue has sent, as in the paper of
//! the bridge, where transmit vectors are those of the transmitting CPU. So buffers do not move between CPUs.
//!
//! A frame has the number of its port and its own number in its payload. The tester at the other port computes the
//! bytes that it must have, and compares all of them ([`Totals`]). Frames of a flow must arrive in order.
//!
//! The tester costs nothing: it runs between two steps of the machine, and what it remembers is on a separate heap.
//!
//! What may never happen: a frame that was offered is in none of the totals, and in no ring. A step of the machine that
//! can switch threads while the state of a card is locked.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dev::rss::Rss;
use dev::{Capabilities, Device, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};
use pktbuf::PktBuf;
use sync::Object;
use wire::ethernet::{self, EtherType, MacAddr};
use wire::{ipv4, protocol, rss, udp};

use crate::card::{CardConfig, FREED, wire_cycles, written};
use crate::machine;
use crate::order::Generator;
use crate::state::Occurs;

/// Bytes of the frame check sequence, which a frame's length includes in RFC 2544, but not in memory.
pub const FCS: usize = 4;
/// Shortest and longest frame, with its check sequence.
pub const LENGTHS: std::ops::RangeInclusive<usize> = 64..=1518;
/// Ports of the bridge.
pub const PORTS: usize = 2;

/// Offset of the tester's words: the number of the frame, and that of its port.
const NUMBER: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;
const PORT: usize = NUMBER + 8;

/// The frames that the tester offers to a port.
pub struct Flows {
    port: usize,
    /// A frame of each flow, with the receive queue of the flow.
    flows: Vec<(Vec<u8>, usize)>,
}

impl Flows {
    /// Flows of UDP between one station behind each port, in frames of `bytes` with check sequence; the seed decides
    /// their ports, and so their queues. Frame n belongs to flow n modulo their number.
    pub fn new(port: usize, flows: usize, bytes: usize, queues: usize, seed: u64) -> Flows {
        let rss = Rss::new(&rss::MICROSOFT_KEY, queues);
        let mut random = Generator::new(seed.wrapping_mul(2).wrapping_add(port as u64 + 1));
        let one = |_| {
            let ports = [random.draw(), random.draw()].map(|number| 1024 + (number % 60_000) as u16);
            let frame = template(port, ports, bytes - FCS);
            let queue = rss.queue(rss.hash_bytes(&frame));
            (frame, queue)
        };
        Flows { port, flows: (0..flows).map(one).collect() }
    }

    /// The share of its frames that the queue with most of them gets.
    pub fn largest_share(&self) -> f64 {
        let of = |queue| self.flows.iter().filter(|(_, at)| *at == queue).count();
        let most = self.flows.iter().map(|(_, queue)| of(*queue)).max().unwrap_or(0);
        most as f64 / self.flows.len() as f64
    }

    /// The receive queue of a frame.
    fn queue(&self, number: u64) -> usize {
        self.flows[self.flow(number)].1
    }

    fn flow(&self, number: u64) -> usize {
        (number % self.flows.len() as u64) as usize
    }

    /// The bytes of a frame.
    pub fn frame(&self, number: u64) -> Vec<u8> {
        let mut frame = self.flows[self.flow(number)].0.clone();
        frame[NUMBER..PORT].copy_from_slice(&number.to_le_bytes());
        frame[PORT] = self.port as u8;
        frame
    }
}

/// A frame of a flow from the station behind `port` to the one behind the other port, with a pattern as its data.
fn template(port: usize, [src_port, dst_port]: [u16; 2], len: usize) -> Vec<u8> {
    let station = |port: usize| (MacAddr([2, 0, 0, 0, 0, port as u8]), Ipv4Addr::new(198, 18, port as u8, 2));
    let ((src_mac, src), (dst_mac, dst)) = (station(port), station(1 - port));
    let mut frame: Vec<u8> = (0..len).map(|at| at as u8).collect();
    let (mut link, mut internet, mut transport) =
        ([0; ethernet::HEADER_LEN], [0; ipv4::HEADER_LEN], [0; udp::HEADER_LEN]);
    ethernet::Header { dst: dst_mac, src: src_mac, ethertype: EtherType::Ipv4 }.emit(&mut link);
    ipv4::Header {
        src,
        dst,
        protocol: protocol::UDP,
        ttl: 64,
        tos: 0,
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        header_len: ipv4::HEADER_LEN as u8,
        total_len: (len - link.len()) as u16,
    }
    .emit(&mut internet);
    let payload = (len - link.len() - internet.len()) as u16;
    udp::Header { src_port, dst_port, len: payload, checksum: 0 }.emit(&mut transport);
    let headers = link.into_iter().chain(internet).chain(transport);
    frame.iter_mut().zip(headers).for_each(|(byte, header)| *byte = header);
    frame
}

/// What became of frames, as one card and its tester have seen it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames that the tester has sent to the card.
    pub offered: u64,
    /// Of these, those that found the receive ring full.
    pub ring_full: u64,
    /// Of these, those for which there was no buffer.
    pub no_buffer: u64,
    /// Of these, those that the machine has taken.
    pub taken: u64,
    /// Frames that the machine has transmitted and that are those that the other port was offered.
    pub delivered: u64,
    /// Frames that the machine has transmitted with other bytes, or twice.
    pub wrong: u64,
    /// Frames that the machine has transmitted after a later one of their flow.
    pub misordered: u64,
}

impl Totals {
    /// What has been added since `before`.
    pub fn since(&self, before: &Totals) -> Totals {
        Totals {
            offered: self.offered - before.offered,
            ring_full: self.ring_full - before.ring_full,
            no_buffer: self.no_buffer - before.no_buffer,
            taken: self.taken - before.taken,
            delivered: self.delivered - before.delivered,
            wrong: self.wrong - before.wrong,
            misordered: self.misordered - before.misordered,
        }
    }
}

/// The interrupt vectors of the cards of a machine: the CPUs that wait for them.
pub struct Vectors {
    /// By CPU: the frames in the receive queues of its vectors.
    waiting: Vec<AtomicUsize>,
    /// By CPU: something else has happened.
    kicked: Vec<AtomicBool>,
}

impl Vectors {
    /// Those of a machine with so many CPUs.
    pub fn new(cpus: usize) -> Arc<Vectors> {
        let (waiting, kicked) = (0..cpus).map(|_| (AtomicUsize::new(0), AtomicBool::new(false))).unzip();
        Arc::new(Vectors { waiting, kicked })
    }

    /// The calling thread, which handles the interrupts of a CPU, waits for one.
    pub fn wait(&self, cpu: usize, timeout: Option<Duration>) -> WaitOutcome {
        let is_ready = || self.waiting[cpu].load(Relaxed) > 0;
        let nothing = || !is_ready() && !self.kicked[cpu].load(Relaxed);
        if nothing() {
            let nanos = timeout.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
            machine::sleep(self.place(cpu), nothing, nanos);
        }
        match (is_ready(), self.kicked[cpu].swap(false, Relaxed)) {
            (true, _) => WaitOutcome::Ready,
            (_, true) => WaitOutcome::Woken,
            _ => WaitOutcome::TimedOut,
        }
    }

    /// Ends the wait of every CPU, or the next one.
    pub fn kick(&self) {
        for (cpu, kicked) in self.kicked.iter().enumerate() {
            kicked.store(true, Relaxed);
            machine::wake(self.place(cpu), 1);
        }
    }

    /// Where the handler of a CPU sleeps.
    fn place(&self, cpu: usize) -> usize {
        std::ptr::from_ref(&self.waiting[cpu]).addr()
    }
}

/// A queue pair: times in cycles of the machine.
struct Queue {
    /// The numbers of frames in the receive ring.
    arrived: VecDeque<u64>,
    /// Frames given to the card, with the time at which each has left.
    sending: VecDeque<(u64, PktBuf)>,
    /// The CPU of its vector.
    cpu: usize,
}

/// The frames that are still to be offered.
struct Load {
    start: u64,
    rate: u64,
    /// The numbers of the next one, of the first one, and of the first that is not offered.
    next: u64,
    first: u64,
    end: u64,
}

/// The frames of the other port that have been delivered.
#[derive(Default)]
struct Seen {
    /// By number.
    frames: Vec<bool>,
    /// By flow: the number of the last one.
    last: Vec<Option<u64>>,
}

struct State {
    queues: Vec<Queue>,
    wire_free: u64,
    totals: Totals,
    load: Option<Load>,
    seen: Seen,
}

struct Shared {
    state: Mutex<State>,
    config: CardConfig,
    number: usize,
    vectors: Arc<Vectors>,
    offers: Arc<Flows>,
    expects: Arc<Flows>,
}

impl Shared {
    /// One thread of the kernel runs the machine: never contended, if the rule at the head of the file is kept.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine has transmitted a frame: the tester checks it.
    fn check(&self, state: &mut State, frame: &[u8]) {
        let word = frame.get(NUMBER..PORT).and_then(|bytes| bytes.try_into().ok());
        let number = word.map_or(u64::MAX, u64::from_le_bytes);
        let State { totals, seen, .. } = state;
        let place = usize::try_from(number).ok().filter(|place| *place < 1 << 32);
        let Some(place) = place.filter(|_| frame == self.expects.frame(number)) else { return totals.wrong += 1 };
        if seen.frames.len() <= place {
            seen.frames.resize(place + 1, false);
        }
        if std::mem::replace(&mut seen.frames[place], true) {
            return totals.wrong += 1;
        }
        totals.delivered += 1;
        seen.last.resize(self.expects.flows.len(), None);
        let last = &mut seen.last[self.expects.flow(number)];
        if last.is_some_and(|last| last > number) {
            totals.misordered += 1;
        }
        *last = Some(last.map_or(number, |last| last.max(number)));
    }
}

impl Occurs for Shared {
    /// The next frame has arrived.
    fn occur(&self, _: u32) {
        let mut state = self.state();
        let State { queues, totals, load, .. } = &mut *state;
        let Some(load) = load.as_mut().filter(|load| load.next < load.end) else { return };
        let queue = &mut queues[self.offers.queue(load.next)];
        totals.offered += 1;
        if queue.arrived.len() >= self.config.ring {
            totals.ring_full += 1;
        } else {
            queue.arrived.push_back(load.next);
            self.vectors.waiting[queue.cpu].fetch_add(1, Relaxed);
        }
        let place = self.vectors.place(queue.cpu);
        load.next += 1;
        if load.next < load.end {
            let since = u128::from(load.next - load.first) * u128::from(machine::cycles(1_000_000_000));
            machine::schedule(load.start + (since / u128::from(load.rate)) as u64, self.number, 0);
        }
        drop(state);
        machine::wake(place, 1);
    }
}

/// See the head of the file.
pub struct TestCard {
    name: String,
    capabilities: Capabilities,
    queues: Vec<QueuePair>,
    shared: Arc<Shared>,
}

/// A handle to a card that has been given to a bridge.
#[derive(Clone)]
pub struct Tester {
    shared: Arc<Shared>,
}

impl TestCard {
    /// A card for the port of `offers`, whose frames to transmit are those that `expects` has offered to the other
    /// port. Called by a thread of a machine. Of `config` it uses queues, rings, rate and DMA: its interrupts are not
    /// moderated, and the tester is at the card.
    pub fn new(config: CardConfig, vectors: Arc<Vectors>, offers: Arc<Flows>, expects: Arc<Flows>) -> TestCard {
        let queue = |_| Queue { arrived: VecDeque::new(), sending: VecDeque::new(), cpu: 0 };
        let queues = (0..config.queues).map(queue).collect();
        let (totals, seen) = (Totals::default(), Seen::default());
        let state = State { queues, wire_free: 0, totals, load: None, seen };
        let port = offers.port;
        let longest = LENGTHS.end() - FCS - ethernet::HEADER_LEN;
        let capabilities = Capabilities {
            queue_pairs: config.queues,
            // Forwarded frames keep the checksum that they have.
            tx_checksum: true,
            rx_checksum: true,
            ..Capabilities::ethernet(MacAddr([2, 0, 0, 0, 1, port as u8]), longest)
        };
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
            let number = machine::attach(shared.clone());
            Shared { state: Mutex::new(state), config, number, vectors, offers, expects }
        });
        let pair = |index| QueuePair {
            rx: Box::new(Rx { shared: shared.clone(), index }),
            tx: Box::new(Tx { shared: shared.clone(), index }),
        };
        let queues = (0..capabilities.queue_pairs).map(pair).collect();
        TestCard { name: format!("wm{}", 2 * port), capabilities, queues, shared }
    }

    /// A handle to it.
    pub fn tester(&self) -> Tester {
        Tester { shared: self.shared.clone() }
    }
}

impl Tester {
    /// Offers so many frames, at a rate in frames a second, from a time in cycles on.
    pub(crate) fn offer(&self, frames: u64, rate: u64, start: u64) {
        let mut state = self.shared.state();
        let first = state.load.as_ref().map_or(0, |load| load.end);
        state.load = Some(Load { start, rate: rate.max(1), next: first, first, end: first + frames });
        drop(state);
        machine::schedule(start, self.shared.number, 0);
    }

    /// The totals.
    pub fn totals(&self) -> Totals {
        self.shared.state().totals
    }

    /// Frames in its receive rings.
    pub fn waiting(&self) -> u64 {
        self.shared.state().queues.iter().map(|queue| queue.arrived.len() as u64).sum()
    }

    /// Whether all frames have been offered.
    pub fn is_done(&self) -> bool {
        self.shared.state().load.as_ref().is_none_or(|load| load.next == load.end)
    }

    /// Gives the vector of a receive queue to a CPU. The queue is empty.
    pub fn set_affinity(&self, queue: usize, cpu: usize) {
        self.shared.state().queues[queue].cpu = cpu;
    }
}

impl Device for TestCard {
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

struct Rx {
    shared: Arc<Shared>,
    index: usize,
}

impl RxQueue for Rx {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        machine::point();
        let mut state = self.shared.state();
        let State { queues, totals, .. } = &mut *state;
        let queue = &mut queues[self.index];
        let count = queue.arrived.len().min(max);
        let numbers: Vec<u64> = queue.arrived.drain(..count).collect();
        self.shared.vectors.waiting[queue.cpu].fetch_sub(count, Relaxed);
        totals.taken += count as u64;
        drop(state);
        let before = batch.len();
        for number in numbers {
            let frame = machine::outside(|| self.shared.offers.frame(number));
            batch.extend(written(&frame));
            machine::outside(|| drop(frame));
        }
        let got = batch.len() - before;
        self.shared.state().totals.no_buffer += (count - got) as u64;
        got
    }

    /// Frames of the other queues of this CPU end the wait, too: their interrupts have one handler.
    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        let cpu = self.shared.state().queues[self.index].cpu;
        self.shared.vectors.wait(cpu, timeout)
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(Waker(self.shared.vectors.clone()))
    }
}

struct Waker(Arc<Vectors>);

impl Wake for Waker {
    fn wake(&self) {
        self.0.kick();
    }
}

struct Tx {
    shared: Arc<Shared>,
    index: usize,
}

impl Tx {
    /// Takes back the sent frames.
    fn complete(&self) {
        let now = machine::clock();
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
}

impl TxQueue for Tx {
    fn credit(&self) -> usize {
        let state = self.shared.state();
        self.shared.config.ring.saturating_sub(state.queues[self.index].sending.len())
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        machine::point();
        self.complete();
        if self.credit() == 0 {
            return Err(frame);
        }
        let config = &self.shared.config;
        let mut state = self.shared.state();
        machine::outside(|| self.shared.check(&mut state, &frame));
        let start = state.wire_free.max(machine::clock() + machine::cycles(config.dma));
        let end = start + wire_cycles(frame.len(), config.megabits);
        state.wire_free = end;
        state.queues[self.index].sending.push_back((end, frame));
        Ok(())
    }

    fn flush(&mut self) {}
}
