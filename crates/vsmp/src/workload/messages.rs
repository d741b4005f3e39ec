//! The workload of Schmidt and Suda (1995): messages of 4 KB from a network driver in memory, up the stack to the
//! application, with or without a presentation layer that decodes each of them.
//!
//! The driver is one thread over a pseudo-device ([`dev::peer`]), which has the next messages of each connection as far
//! as the window is open, and swallows acknowledgments. Messages are in memory, and in no cache, when the driver gets
//! them. The application is a handler of each connection, so the thread that carries a message through TCP also carries
//! it through the presentation layer and into the application: the connection's thread under Connectional Parallelism
//! (`conn-thread:N`), a thread of the pool under Message Parallelism (`msgp-pool`).
//!
//! *Costs.* A message is copied once, by the thread that carries it, which computes TCP's checksum from the copy: each line
//! of it is on the bus twice. The way between device and TCP and from there to the application is a [`Step::Call`], for which
//! no lock is held; under Connectional Parallelism the owner of the connection spends it. A unit of [`Step::Application`] is
//! one decoded structure. The presentation layer allocates a list that grows, like the code of a stub generator.
//!
//! The paper's message boundaries are those of segments here: the device's MTU has room for one message.
//!
//! What may never happen: a message that is counted and is not what was sent, or not the next one of its connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dev::mem::MemConfig;
use dev::peer::{Peer, PeerConfig, PeerTraffic, pattern};
use dev::{Capabilities, Device, QueuePair, RxQueue, WaitOutcome, Wake};
use pktbuf::PktBuf;
use stack::socket::handler::{Conn, ConnectionHandler};
use stack::{Addressing, Architecture, Driver, InterfaceConfig, Stack, StackConfig};
use sync::{Atomic, LockKind, Object, Ordering, Platform, Step, ThreadClass};
use tcp::config::{BufferSizes, ConnectionOptions};
use xdr::{Codec, DecodeError, Decoder, Xdr};

use super::measured::Measured;
use super::nap;
use crate::ledger::SwitchKind;
use crate::preset::{Kernel, Preset};
use crate::{Vsmp, lock_profile, machine};

type Flag = <Vsmp as Platform>::AtomicBool;

/// Bytes of a message.
pub const MESSAGE: usize = 4096;
/// Messages of a run to warm up, and those that are measured, with so many connections. The paper has ten times and five times
/// as many, on a machine that also does other work. More than a hundred connections have forty measured messages each.
pub fn counts(connections: usize) -> (u64, u64) {
    let connections = connections as u64;
    (1_000.max(10 * connections), 4_000.max(40 * connections))
}

/// Messages for which the paper gives switches and times.
const OF_THE_PAPER: f64 = 20_000.0;
/// Messages that a connection may have under way: 16 KB of receive buffer. Assumed: the paper does not say.
const WINDOW: usize = 4;
/// Structures in a message through the presentation layer.
const SAMPLES: usize = MESSAGE / Sample::BYTES;
const PORT: u16 = 5001;
/// How often the measuring thread checks for the end.
const LOOK: Duration = Duration::from_millis(2);
/// Longer than the slowest round trip: 80 messages under way on one CPU, with presentation layer.
const NOTHING_IS_LOST: Duration = Duration::from_secs(10);

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Messages {
    /// The process architecture.
    pub arch: Architecture,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Connections.
    pub connections: usize,
    /// Whether each message is decoded.
    pub presentation: bool,
    /// The machine.
    pub preset: Preset,
    /// The kernel with the habits.
    pub kernel: Kernel,
    /// Selects the flows.
    pub seed: u64,
    /// Whether the addresses are IPv6.
    pub ipv6: bool,
    /// The kind of locks, if not the kernel's.
    pub lock_kind: Option<LockKind>,
    /// Messages before the measurement, and measured.
    pub counts: (u64, u64),
}

/// What has reached the application. Not of the machine: nothing is charged.
struct Delivered {
    opened: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
    /// By connection.
    each: Box<[AtomicU64]>,
    /// Bytes that differ from the sent ones.
    wrong: AtomicU64,
    /// A digest of the decoded structures, so that decoding has a result.
    digest: AtomicU64,
}

impl Delivered {
    /// To so many connections.
    fn to(connections: usize) -> Delivered {
        let zero = || AtomicU64::new(0);
        let each = (0..connections).map(|_| zero()).collect();
        Delivered { opened: zero(), messages: zero(), bytes: zero(), each, wrong: zero(), digest: zero() }
    }

    /// The bytes of each connection.
    fn by_connection(&self) -> Vec<u64> {
        self.each.iter().map(|bytes| bytes.load(Relaxed)).collect()
    }
}

impl Messages {
    /// To be run by the first thread of a machine with as many CPUs.
    ///
    /// # Panics
    /// The stack cannot be built, connections do not open, a message is not what was sent, or a thread of the run
    /// panics.
    pub fn run(&self) -> Measured {
        let delivered = Arc::new(Delivered::to(self.connections));
        let (stack, mut drivers) = self.stack();
        let stop = Arc::new(Flag::new(false));
        let mut driver = drivers.pop().expect("the device has one queue");
        let thread = Vsmp::spawn("driver", None, ThreadClass::Receive, {
            let stop = stop.clone();
            move || driver.serve(&stop, || {})
        });
        self.open(&stack, &delivered);
        let count = || delivered.messages.load(Relaxed);
        let (warm_up, began) = (self.counts.0, Vsmp::now());
        wait_until(|| count() >= warm_up);
        let warm = Duration::from_nanos(Vsmp::now() - began);
        let measured = measure(&delivered, self.counts.1, warm);
        stop.store(true, Ordering::Release);
        stack.shared().links().wake_drivers();
        if let Err(panic) = Vsmp::join(thread) {
            std::panic::resume_unwind(panic);
        }
        let wrong = delivered.wrong.load(Relaxed);
        assert_eq!(wrong, 0, "{wrong} bytes are not what was sent there");
        measured
    }

    fn addresses(&self) -> [IpAddr; 2] {
        let [ours, theirs] = if self.ipv6 { ["fd09::1", "fd09::2"] } else { ["10.9.0.1", "10.9.0.2"] };
        [ours, theirs].map(|text| text.parse().expect("an address"))
    }

    fn stack(&self) -> (Stack<Vsmp>, Vec<Driver<Vsmp>>) {
        let [ours, theirs] = self.addresses();
        let mut config = StackConfig::<Vsmp>::new(self.arch);
        (config.cpus, config.seed, config.homing) = (self.cpus, Some(self.seed), false);
        if self.kernel == Kernel::OfThePaper {
            config.lock_kind = self.preset.habits.lock_kind;
            config.receive_batch = self.preset.habits.receive_batch;
            config.runs = false;
        }
        config.lock_kind = self.lock_kind.unwrap_or(config.lock_kind);
        let size = (WINDOW * MESSAGE) as u32;
        config.tcp.receive_buffer = BufferSizes { min: size, initial: size, max: size };
        let device = Box::new(PseudoDevice::new(theirs, self.preset.card.ring));
        let addresses = vec![(ours, if self.ipv6 { 64 } else { 24 })];
        let interface = InterfaceConfig { device, addresses, gateways: vec![], addressing: Addressing::default() };
        Stack::build(config, vec![interface]).expect("the stack builds")
    }

    /// The places over which connections are spread evenly: the threads that own them, where the architecture has a number of
    /// those, and otherwise as many as the machine has CPUs.
    fn places(&self) -> usize {
        let owners = self.arch.parameter().filter(|_| self.arch.properties().own_threads);
        owners.map_or(self.preset.cpus, usize::from).max(1)
    }

    /// Opens the connections.
    fn open(&self, stack: &Stack<Vsmp>, delivered: &Arc<Delivered>) {
        let [ours, theirs] = self.addresses();
        let (remote, places) = (SocketAddr::new(theirs, PORT), self.places());
        let options = ConnectionOptions::default();
        // Other seeds have other flows.
        let first = 1024 + (self.seed.wrapping_mul(0x9e37_79b9) % 16_384) as u16;
        // Of each place: a port belongs to one of them.
        let mut free = vec![first..=u16::MAX; places];
        for n in 0..self.connections {
            let fits = |port: &u16| stack.flow(SocketAddr::new(ours, *port), remote).index(places) == n % places;
            let port = free[n % places].find(fits).expect("a port of each place is free");
            let handler = Box::new(Receiver {
                index: n,
                at: 0,
                presentation: self.presentation,
                copy: Vec::with_capacity(MESSAGE),
                delivered: delivered.clone(),
            });
            let local = Some(SocketAddr::new(ours, port));
            stack.connect_with_handler(local, remote, &options, &[], handler).expect("it opens");
        }
        let connections = self.connections as u64;
        wait_until(|| delivered.opened.load(Relaxed) == connections);
    }
}

/// Waits for a condition, which it checks now and then.
///
/// # Panics
/// The condition is still false after an hour of virtual time.
fn wait_until(done: impl Fn() -> bool) {
    let end = Vsmp::now() + Duration::from_secs(3600).as_nanos() as u64;
    while !done() {
        assert!(Vsmp::now() < end, "messages do not arrive");
        nap::<Vsmp>(LOOK);
    }
}

/// Waits for so many messages; steady if the second half took as long as the first, within a twentieth.
fn measure(delivered: &Delivered, messages: u64, warm_up: Duration) -> Measured {
    lock_profile().reset();
    let now = || (delivered.messages.load(Relaxed), delivered.bytes.load(Relaxed), Vsmp::now());
    let account = machine::account();
    let (start, before) = (now(), delivered.by_connection());
    wait_until(|| delivered.messages.load(Relaxed) >= start.0 + messages / 2);
    let middle = now();
    wait_until(|| delivered.messages.load(Relaxed) >= start.0 + messages);
    let end = now();
    let by_connection = delivered.by_connection().iter().zip(before).map(|(after, before)| after - before).collect();
    let rate = |from: (u64, u64, u64), to: (u64, u64, u64)| (to.1 - from.1) as f64 * 8e3 / (to.2 - from.2) as f64;
    let windows = vec![rate(start, middle), rate(middle, end)];
    Measured {
        warm_up,
        steady: (windows[0] / windows[1] - 1.0).abs() < 0.05,
        windows,
        by_connection,
        ..Measured::since(&account, Duration::from_nanos(end.2 - start.2), end.1 - start.1)
    }
}

/// A count of a run that delivered `bytes`, for as many messages as the paper measured.
pub fn of_the_paper(bytes: u64, count: f64) -> f64 {
    count * OF_THE_PAPER / (bytes as f64 / MESSAGE as f64)
}

/// Voluntary and involuntary switches of LWPs for as many messages as the paper measured. An LWP gives up its CPU when
/// no thread can run there; that a thread sleeps while another can is no switch of an LWP. An involuntary one ends a
/// slice, or makes way for a more important thread.
pub fn switches(measured: &Measured) -> [f64; 2] {
    let of_kind = |kind: &SwitchKind| measured.account.switch_kinds[*kind as usize];
    [&[SwitchKind::FromIdle][..], &[SwitchKind::Preempted, SwitchKind::SliceOver]]
        .map(|kinds| of_the_paper(measured.bytes, kinds.iter().map(of_kind).sum::<u64>() as f64))
}

/// Time to acquire and release locks, for as many messages as the paper measured, in milliseconds: the waiting after a
/// first try that failed, and for each acquisition the atomic instruction that takes it and the one that releases it.
pub fn lock_milliseconds(measured: &Measured, preset: &Preset) -> f64 {
    let costs = preset.costs(Kernel::OfThePaper);
    let pair = 2 * costs.nanos(costs.read_modify_write);
    let nanos: u64 = measured.locks.iter().map(|lock| lock.wait_ns + lock.acquired * pair).sum();
    of_the_paper(measured.bytes, nanos as f64) / 1e6
}

/// The application of a connection.
struct Receiver {
    /// The connection's.
    index: usize,
    /// Where in the stream it is.
    at: u64,
    presentation: bool,
    /// The latest message.
    copy: Vec<u8>,
    delivered: Arc<Delivered>,
}

impl ConnectionHandler<Vsmp> for Receiver {
    fn open(&mut self, _: &mut Conn<'_, Vsmp>) {
        self.delivered.opened.fetch_add(1, Relaxed);
    }

    fn data(&mut self, _: &mut Conn<'_, Vsmp>, data: PktBuf) {
        Vsmp::work(Step::Call, 1);
        Vsmp::touch(Object::Payload, data.as_ptr(), data.len(), false);
        self.copy.clear();
        self.copy.extend_from_slice(&data);
        Vsmp::touch(Object::Payload, self.copy.as_ptr(), self.copy.len(), true);
        if self.presentation {
            let samples = decode(&self.copy).expect("a message has as many bytes as its structures");
            let digest = samples.iter().fold(0, |digest: u64, sample| digest.wrapping_add(sample.digest()));
            self.delivered.digest.fetch_add(digest, Relaxed);
        }
        let wrong = self.copy.iter().zip(pattern(self.at, data.len())).filter(|(is, should)| is != should).count();
        self.delivered.wrong.fetch_add(wrong as u64, Relaxed);
        self.at += data.len() as u64;
        self.delivered.bytes.fetch_add(data.len() as u64, Relaxed);
        self.delivered.each[self.index].fetch_add(data.len() as u64, Relaxed);
        self.delivered.messages.fetch_add(1, Relaxed);
    }
}

/// A structure of integral and real values, as the paper's messages have them.
#[derive(Clone, Copy, Debug)]
struct Sample {
    channel: i32,
    sequence: u32,
    at: i64,
    level: f32,
    reading: f64,
}

impl Sample {
    /// Bytes of its encoding.
    const BYTES: usize = 28;

    fn decode(from: &mut Decoder<'_>) -> Result<Sample, DecodeError> {
        Ok(Sample {
            channel: i32::decode(from)?,
            sequence: u32::decode(from)?,
            at: i64::decode(from)?,
            level: f32::decode(from)?,
            reading: f64::decode(from)?,
        })
    }

    fn digest(&self) -> u64 {
        let whole = (self.channel as u64) ^ u64::from(self.sequence) ^ (self.at as u64);
        whole ^ u64::from(self.level.to_bits()) ^ self.reading.to_bits()
    }
}

/// Decodes the structures of a message, each appended to a list that grows. The length of the array is that of the
/// message: its bytes are the device's pattern, and any bits are values of these types.
fn decode(message: &[u8]) -> Result<Vec<Sample>, DecodeError> {
    let mut from = Decoder::new(message, Codec::FieldByField);
    let mut samples: Vec<Sample> = Vec::new();
    let bytes = |count: usize| count * size_of::<Sample>();
    for _ in 0..SAMPLES.min(message.len() / Sample::BYTES) {
        if samples.len() == samples.capacity() && !samples.is_empty() {
            // The list moves.
            Vsmp::touch(Object::Payload, samples.as_ptr().cast(), bytes(samples.len()), false);
            samples.reserve(samples.len());
            Vsmp::touch(Object::Payload, samples.as_ptr().cast(), bytes(samples.len()), true);
        }
        samples.push(Sample::decode(&mut from)?);
        Vsmp::work(Step::Application, 1);
    }
    Vsmp::touch(Object::Payload, message.as_ptr(), message.len(), false);
    Vsmp::touch(Object::Payload, samples.as_ptr().cast(), bytes(samples.len()), true);
    Ok(samples)
}

/// The paper's pseudo-device.
struct PseudoDevice(Peer<Vsmp>);

impl PseudoDevice {
    /// With the remote end at this address.
    fn new(address: IpAddr, ring: usize) -> PseudoDevice {
        let headers = if address.is_ipv4() { 40 } else { 60 };
        let mut peer = PeerConfig::new(address);
        peer.traffic = PeerTraffic::Source { bytes: None };
        (peer.timestamps, peer.retransmit_after) = (false, NOTHING_IS_LOST);
        // TCP's checksum comes with the copy.
        peer.link = MemConfig { mtu: MESSAGE + headers, ring_frames: ring, checksum_offload: true, ..peer.link };
        PseudoDevice(Peer::new(peer))
    }
}

impl Device for PseudoDevice {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn name(&self) -> &str {
        "pseudo"
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        let in_memory = |QueuePair { rx, tx }: QueuePair| QueuePair { rx: Box::new(InMemory(rx)), tx };
        self.0.take_queues().into_iter().map(in_memory).collect()
    }
}

/// What is received is in memory, and in no cache.
struct InMemory(Box<dyn RxQueue>);

impl RxQueue for InMemory {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let before = batch.len();
        let count = self.0.receive(batch, max);
        batch[before..].iter().for_each(|frame| machine::written_by_device(frame));
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        self.0.wait(timeout)
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.0.waker()
    }

    fn gone(&self) -> bool {
        self.0.gone()
    }
}
