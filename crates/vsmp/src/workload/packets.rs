//! The workload of Nahum, Yates, Kurose and Towsley (OSDI 1994): packet-level parallelism on few connections.
//!
//! There is one thread on each CPU, and no other. On the receive side each thread takes the next packet from the in-memory
//! driver ([`MemoryDriver`]), carries it through the stack, and reads the data that has become available, as an upcall
//! would. On the send side each thread processes the acknowledgments that have arrived, and sends a packet. The threads are
//! the pool of `msgp-pool`, which starts none of its own here; any other architecture can run that lets several threads use
//! one connection.
//!
//! *Order.* TCP counts segments that reach it out of order. Above TCP the threads race once more: the application counts
//! the packets that reach it after a later one, with their distances ([`Disorder`]). With *application tickets* each thread
//! waits for the turn of the data that it has taken ([`tcp::ReceiveInOrder`]), so that there are none.
//!
//! *Machine.* The workload runs on a virtual machine ([`Packets::simulate`]), or on this one ([`Packets::run_here`]).
//!
//! *Costs.* The stack reports its work for segments. For datagrams it reports frames and checksums only, so this file charges
//! a call for each, and an emission for each that is sent.
//!
//! *Account.* Throughput is the data that the application takes. The remote end makes more in the same time while packets
//! gather in the receive queue: after a timer has become due, [`Driver::poll`] carries the packets that are there before it returns,
//! and a thread does not read while the call of another has cleared the readiness of the connection. [`PacketBalance`] says how many were
//! made and taken, and [`PacketAccount`] where each packet of a run is at its end.
//!
//! What may never happen: a thread waits for the turn of data that it holds itself, or that no thread has taken.

mod account;
mod disorder;
mod spec;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dev::Device as _;
use dev::mem::MemConfig;
use dev::peer::{Opens, PeerConfig, PeerMonitor, PeerTraffic};
use observe::{Counter, CounterSnapshot, Counters};
use pktbuf::{Caching, Chunk, PktBuf};
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, Readiness, TcpSocket, UdpShared};
use stack::{Addressing, Architecture, Driver, InterfaceConfig, Stack, StackConfig};
use sync::profile::{self, ClassProfile, HandoffProfile, ProfileTable};
use sync::{Atomic, LockKind, Ordering, Platform, Real, RefCounting, Step, ThreadClass};
use tcp::config::{BufferSizes, ChecksumPlacement, ConnectionOptions, SendAccounting};

use super::measured::Measured;
use super::nap;
use crate::account::Account;
use crate::ledger::Part;
use crate::memory_driver::{MemoryDriver, PacketsMade};
use crate::order::Arbitrated;
use crate::preset::{Kernel, Preset};
use crate::{Machine, lock_profile, machine};

pub use account::{PacketAccount, PacketBalance};
pub use disorder::{DISTANCES, Disorder};
pub use spec::{SpecError, Traffic};

use disorder::{Arrivals, differing};

type Socket<P> = Arc<TcpSocket<P>>;

const PORT: u16 = 5001;
/// The remote port of the first connection.
const FIRST_REMOTE: u16 = 2000;
/// The period of the remote end's data, in bytes.
const PERIOD: usize = 251;
/// Socket buffers of a connection, and the remote end's window, in bytes; see [`IN_WINDOW`].
const BUFFER: u32 = 256 << 10;
/// Packets for which they have room at least. A quarter of them may be in flight.
const IN_WINDOW: usize = 16;
/// The most packets in flight. Out of order, each takes up a packet buffer of the socket's, however short it is.
const MOST_IN_FLIGHT: usize = 128;
/// Longer than any round trip: nothing is lost, so no timer may expire.
const LEAST_RTO: Duration = Duration::from_secs(3);

/// Which side of the stack is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Packets arrive, and the application reads them.
    Receive,
    /// The application sends, and acknowledgments arrive.
    Send,
}

/// Where checksums are computed and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summing {
    /// Nowhere: a card would do it.
    Card,
    /// By the stack; of received segments before their connection is held.
    Before,
    /// By the stack, and of received segments while their connection is held.
    Inside,
    /// By the stack when the connection has been released: of sent segments before the driver has them, and of received ones, where that is
    /// possible, before the application has the data.
    After,
}

/// How `msgp-pool` counts the holders of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceCounts {
    /// By an atomic instruction.
    Atomic,
    /// Under a lock of the kernel's kind.
    Locked,
}

/// The parameters of a run. [`Packets::parse`] reads most of them from a line.
#[derive(Clone, Debug)]
pub struct Packets {
    /// The architecture.
    pub arch: Architecture,
    /// CPUs, and threads.
    pub cpus: usize,
    /// Connections, if not [`Traffic::each`]; thread n sends on connection n modulo their number.
    pub connections: usize,
    /// The load.
    pub traffic: Traffic,
    /// Whether the addresses are IPv6.
    pub ipv6: bool,
    /// The machine.
    pub preset: Preset,
    /// The kernel with the footprint and the habits.
    pub kernel: Kernel,
    /// Which of several waiting CPUs is served first.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Carried {
    /// Virtual time of the measurement.
    pub time: Duration,
    /// Bytes that the application took, or that the remote end received in order.
    pub bytes: u64,
    /// Megabits a second in the first half of the time, and in the second.
    pub halves: [f64; 2],
    /// Segments with data that the remote end has made, on the receive side, or received. Of a datagram none.
    pub segments: u64,
    /// Segments that came to TCP with another sequence number than the next one.
    pub out_of_order: u64,
    /// The packets that were made for the stack in the time of the measurement, and those that the application took; on the receive side.
    pub balance: Option<PacketBalance>,
    /// Where the packets are that were made for the stack since the beginning of the run; on the receive side.
    pub packets: Option<PacketAccount>,
    /// The counters of the stack and of its drivers since the beginning of the run.
    pub counters: CounterSnapshot,
    /// Packets at the application, and their order.
    pub disorder: Disorder,
    /// Bytes since the beginning of the run that differed from the sent ones, or arrived twice.
    pub wrong: u64,
    /// The account of the machine.
    pub account: Account,
    /// The locks, by class.
    pub locks: Vec<ClassProfile>,
    /// PacketWorker-offs between threads.
    pub handoffs: HandoffProfile,
    /// The hash of all that has happened on the machine.
    pub trace: u64,
}

impl Carried {
    /// Payload in megabits a second.
    pub fn megabits(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.time.as_secs_f64() / 1e6
    }

    /// Segments that reached TCP out of order, in percent.
    pub fn out_of_order_percent(&self) -> f64 {
        100.0 * self.out_of_order as f64 / self.segments.max(1) as f64
    }

    /// Packets that reached the application after a later one, in percent.
    pub fn inversions_percent(&self) -> f64 {
        100.0 * self.disorder.inversions as f64 / self.disorder.packets.max(1) as f64
    }

    /// The share of the time of all CPUs, in percent, in which they waited for the locks of connections.
    pub fn waiting_percent(&self, cpus: usize) -> f64 {
        let of_connections = self.locks.iter().filter(|lock| lock.class.name().starts_with("pcb-"));
        let waited: u64 = of_connections.map(|lock| lock.wait_ns).sum();
        100.0 * waited as f64 / (self.time.as_nanos() as f64 * cpus as f64)
    }

    /// The same in the form of the other workloads, for this warm-up and number of CPUs: without the CPU of the thread that
    /// measures. Steady if the two halves differ by less than a twentieth.
    pub fn measured(self, warm_up: Duration, cpus: usize) -> Measured {
        let mut account = Account { trace: self.trace, ..self.account };
        let others = account.cpus.split_off(cpus);
        account.idle -= others.iter().map(|ledger| ledger.of(Part::Idle)).sum::<u64>();
        Measured {
            warm_up,
            steady: (self.halves[0] / self.halves[1] - 1.0).abs() < 0.05,
            time: self.time,
            bytes: self.bytes,
            windows: self.halves.to_vec(),
            account,
            locks: self.locks,
            handoffs: self.handoffs,
            cards: Vec::new(),
            out_of_order: self.out_of_order,
            by_connection: Vec::new(),
            placement: Vec::new(),
            timeline: None,
            capture: None,
            packets: self.balance,
        }
    }
}

impl Packets {
    /// Connections.
    pub fn connections(&self) -> usize {
        if self.traffic.each { self.cpus } else { self.connections }
    }

    /// Runs it. One more CPU measures.
    ///
    /// # Panics
    /// See [`Packets::run`] and [`Machine::run`].
    pub fn simulate(&self) -> Carried {
        let costs = self.preset.costs(self.kernel);
        let (packets, seed, memory) = (self.clone(), self.seed, costs.memory);
        let machine = Machine::new(self.cpus + 1, costs).seed(seed).order(Arbitrated::new(seed, memory));
        // There is one thread for each CPU.
        let machine = machine.spin_for_good();
        let machine = match self.traffic.caching {
            Caching::PerThread | Caching::SharedDepot => machine,
            Caching::Global => machine.buffers(self.kind(), Caching::Global),
        };
        let (mut carried, outcome) = machine.run(move || packets.run());
        carried.trace = outcome.account.trace;
        carried
    }

    /// To be run by the first thread of a virtual machine with one CPU more.
    ///
    /// # Panics
    /// The stack cannot be built, connections do not open, or a thread of the run panics.
    pub fn run(&self) -> Carried {
        self.run_on(lock_profile())
    }

    /// Runs it on the real machine: its times are those of the clock. The calling thread measures, while one thread on each of
    /// the first CPUs carries packets. The account of the machine is empty. Waits for locks are known where they are `timed`, which
    /// costs several times an uncontended lock.
    ///
    /// # Panics
    /// As [`Packets::run`].
    pub fn run_here(&self, timed: bool) -> Carried {
        profile::set_timed(timed);
        let carried = self.run_on(Real::profile());
        profile::set_timed(false);
        carried
    }

    fn run_on<P: Platform>(&self, locks: &ProfileTable<P>) -> Carried {
        let driver = MemoryDriver::<P>::new(self.cpus, self.kind(), self.remote(), !self.sums_held());
        let (monitor, made, carried) = (driver.monitor(), driver.made(), driver.carried());
        if self.traffic.udp && self.traffic.side == Side::Receive {
            let datagram = self.remote().datagram(FIRST_REMOTE, self.local(), &self.data());
            driver.make_datagrams(&datagram.expect("there is memory"));
        }
        let (stack, drivers) = self.stack(driver);
        let listener = (!self.traffic.udp && self.traffic.side == Side::Receive).then(|| {
            let options = ConnectionOptions::default();
            stack.listen(self.local(), 64, options).expect("the port is free")
        });
        let workers = Arc::new(Workers::new(self, &stack, made));
        let counters: Vec<Arc<Counters>> = drivers.iter().map(|driver| driver.counters().clone()).collect();
        let spawn = |(index, driver): (usize, Driver<P>)| {
            let worker = PacketWorker { packets: self.clone(), workers: workers.clone(), driver, index, rest: None };
            let carried = carried.clone();
            P::spawn(&format!("worker{index}"), Some(index), ThreadClass::Worker, move || worker.work(&carried))
        };
        let threads: Vec<P::JoinHandle> = drivers.into_iter().enumerate().map(spawn).collect();
        self.open(&workers, listener.as_deref());
        nap::<P>(self.traffic.warm_up());
        let measured = self.measure(&workers, &monitor, locks);
        workers.over.store(true, Relaxed);
        workers.stop.store(true, Ordering::Release);
        for thread in threads {
            if let Err(panic) = P::join(thread) {
                std::panic::resume_unwind(panic);
            }
        }
        let mut counted = workers.stack.stats().counters;
        counters.iter().for_each(|driver| counted.absorb(driver));
        let packets = (self.traffic.side == Side::Receive).then(|| workers.account(&counted));
        let wrong = workers.wrong() + monitor.totals().mismatches;
        Carried { wrong, packets, counters: counted, ..measured }
    }

    /// The stack sums the segments that it sends while it holds their connection, if the driver does not.
    fn sums_held(&self) -> bool {
        !self.traffic.udp && self.traffic.summing != Summing::After
    }

    fn kind(&self) -> LockKind {
        let habit = match self.kernel {
            Kernel::Heddle => LockKind::default(),
            Kernel::OfThePaper => self.preset.habits.lock_kind,
        };
        self.traffic.lock_kind.unwrap_or(habit)
    }

    fn addresses(&self) -> [IpAddr; 2] {
        let texts = if self.ipv6 { ["fd09::1", "fd09::2"] } else { ["10.9.0.1", "10.9.0.2"] };
        texts.map(|text| text.parse().expect("an address"))
    }

    fn local(&self) -> SocketAddr {
        SocketAddr::new(self.addresses()[0], PORT)
    }

    /// The data of the packets to send: a whole number of periods, so that each packet has the bytes that the remote end
    /// expects.
    fn data(&self) -> Vec<u8> {
        (0..self.traffic.payload).map(|at| (at % PERIOD) as u8).collect()
    }

    /// Socket buffers of a connection, and the remote end's window, in bytes.
    fn buffer(&self) -> u32 {
        BUFFER.max((IN_WINDOW * self.traffic.payload) as u32)
    }

    fn remote(&self) -> PeerConfig {
        let mut remote = PeerConfig::new(self.addresses()[1]);
        let link = if self.traffic.fddi { MemConfig::fddi() } else { MemConfig { mtu: self.mtu(), ..remote.link } };
        // The MTU may have room for more than a packet.
        remote.mss = u16::try_from(self.traffic.payload).ok().filter(|_| !self.traffic.udp);
        remote.link = MemConfig { checksum_offload: self.traffic.summing == Summing::Card, ..link };
        (remote.window, remote.timestamps, remote.resends) = (self.buffer(), false, false);
        // A packet that waits for an unfair lock, or its thread for a CPU, may be overtaken by all that are in flight, and TCP
        // keeps no more than these.
        remote.in_flight = (self.buffer() / 4).min((MOST_IN_FLIGHT * self.traffic.payload) as u32);
        if self.traffic.side == Side::Receive && !self.traffic.udp {
            remote.traffic = PeerTraffic::Source { bytes: None };
            let connections = self.connections() as u16;
            remote.opens = Some(Opens { connections, to: self.local(), first_port: FIRST_REMOTE });
        }
        remote.verify =
            self.traffic.side == Side::Send && self.traffic.payload.is_multiple_of(PERIOD) && self.connections() == 1;
        remote
    }

    fn stack<P: Platform>(&self, driver: MemoryDriver<P>) -> (Stack<P>, Vec<Driver<P>>) {
        let mut config = StackConfig::<P>::new(self.arch);
        (config.cpus, config.seed, config.lock_kind) = (self.cpus, Some(self.seed), self.kind());
        config.counting = self.traffic.counts.map(|counts| match counts {
            ReferenceCounts::Atomic => RefCounting::Atomic,
            ReferenceCounts::Locked => RefCounting::Locked(self.kind()),
        });
        // The threads of the run are the workers, as in the paper.
        (config.own_threads, config.homing, config.receive_batch, config.runs) = (false, false, 1, false);
        let buffer = self.buffer();
        let size = BufferSizes { min: buffer, initial: buffer, max: buffer };
        (config.tcp.send_buffer, config.tcp.receive_buffer) = (size, size);
        config.tcp.send_accounting = SendAccounting::Bytes;
        if self.kernel == Kernel::OfThePaper {
            config.tcp.send_low_water = self.preset.habits.low_water;
        }
        (config.tcp.rto.min_rto, config.tcp.rto.initial_rto) = (LEAST_RTO, LEAST_RTO);
        config.tcp.timestamps = false;
        config.tcp.checksum_placement = match self.traffic.summing {
            Summing::Card | Summing::Before => ChecksumPlacement::Before,
            Summing::Inside => ChecksumPlacement::Inside,
            Summing::After => ChecksumPlacement::After,
        };
        let prefix = if self.ipv6 { 64 } else { 24 };
        let addresses = vec![(self.addresses()[0], prefix)];
        let addressing = Addressing::default();
        debug_assert_eq!(driver.capabilities().queue_pairs, self.cpus);
        let interface = InterfaceConfig { device: Box::new(driver), addresses, gateways: vec![], addressing };
        Stack::build(config, vec![interface]).expect("the stack builds")
    }

    /// Opens the connections, or has the remote end open them, and gives them to the threads.
    fn open<P: Platform>(&self, workers: &Workers<P>, listener: Option<&ListenerShared<P>>) {
        let mut sockets: Vec<Option<Socket<P>>> = vec![None; if self.traffic.udp { 0 } else { self.connections() }];
        if listener.is_none() {
            for (index, socket) in sockets.iter_mut().enumerate() {
                let remote = SocketAddr::new(self.addresses()[1], FIRST_REMOTE + index as u16);
                let options = ConnectionOptions { no_delay: true, ..Default::default() };
                *socket = Some(workers.stack.connect(None, remote, &options).expect("it opens"));
            }
        }
        for turn in 0.. {
            while let Some(socket) = listener.and_then(ListenerShared::accept) {
                let index = socket.tuple().remote_port - FIRST_REMOTE;
                sockets[usize::from(index)] = Some(socket);
            }
            let open = |socket: &Socket<P>| socket.ready.get().intersects(Readiness::CONNECTED);
            if sockets.iter().all(|socket| socket.as_ref().is_some_and(|socket| listener.is_some() || open(socket))) {
                break;
            }
            assert!(turn < 10_000, "connections do not open: {:?}", workers.stack.stats().counters);
            nap::<P>(Duration::from_micros(200));
        }
        let _ = workers.sockets.set(sockets.into_iter().flatten().collect());
    }

    fn measure<P: Platform>(&self, workers: &Workers<P>, monitor: &PeerMonitor, locks: &ProfileTable<P>) -> Carried {
        let counted = |counter| workers.stack.stats().counters.get(counter);
        let count = || {
            let bytes = match self.traffic.side {
                Side::Receive => workers.bytes.load(Relaxed),
                Side::Send if self.traffic.udp => workers.bytes.load(Relaxed),
                Side::Send => monitor.totals().bytes_in,
            };
            let segments = match self.traffic.side {
                Side::Receive => monitor.totals().segments_out,
                Side::Send => monitor.totals().segments_in,
            };
            (bytes, segments, counted(Counter::OutOfOrderAtEntry), workers.disorder())
        };
        let receives = self.traffic.side == Side::Receive;
        let (before, made) = (count(), receives.then(|| workers.made_and_taken()));
        locks.reset();
        let (account, start) = (machine::account(), P::now());
        nap::<P>(self.traffic.time / 2);
        let middle = (count().0, P::now());
        nap::<P>(self.traffic.time / 2);
        let rate = |bytes: u64, nanos: u64| bytes as f64 * 8e3 / nanos as f64;
        let (time, classes) = (P::now() - start, locks.snapshot().to_vec());
        let (account, after) = (machine::account().since(&account), count());
        let balance = made.map(|made| PacketBalance::between(made, workers.made_and_taken()));
        Carried {
            time: Duration::from_nanos(time),
            bytes: after.0 - before.0,
            halves: [rate(middle.0 - before.0, middle.1 - start), rate(after.0 - middle.0, start + time - middle.1)],
            segments: after.1 - before.1,
            out_of_order: after.2 - before.2,
            balance,
            packets: None,
            counters: Counters::default().snapshot(),
            disorder: after.3.since(&before.3),
            wrong: 0,
            account,
            locks: classes,
            handoffs: locks.handoffs(),
            trace: 0,
        }
    }
}

/// The state that the threads of a run share. The atomics of `std` are not part of a virtual machine, and not charged.
struct Workers<P: Platform> {
    stack: Stack<P>,
    stop: P::AtomicBool,
    /// The same, asked for free before each packet that is read: what is unread at the end stays where it is.
    over: AtomicBool,
    /// The connections, once they are open.
    sockets: OnceLock<Vec<Socket<P>>>,
    /// Their order at the application.
    arrivals: Vec<Arrivals<P>>,
    datagrams: Option<Arc<UdpShared<P>>>,
    bytes: AtomicU64,
    /// The data of a packet that a thread sends, or of a datagram that arrives.
    chunk: Arc<[u8]>,
    /// Bytes of datagrams that are not those.
    wrong: AtomicU64,
    made: PacketsMade<P>,
}

impl<P: Platform> Workers<P> {
    fn new(packets: &Packets, stack: &Stack<P>, made: PacketsMade<P>) -> Workers<P> {
        let datagrams = packets.traffic.udp.then(|| stack.bind_udp(packets.local()).expect("the port is free"));
        Workers {
            stack: stack.clone(),
            stop: P::AtomicBool::new(false),
            over: AtomicBool::new(false),
            sockets: OnceLock::new(),
            arrivals: (0..packets.connections()).map(|_| Arrivals::new(packets.traffic.payload)).collect(),
            datagrams,
            bytes: AtomicU64::new(0),
            chunk: packets.data().into(),
            wrong: AtomicU64::new(0),
            made,
        }
    }

    fn disorder(&self) -> Disorder {
        self.arrivals.iter().map(Arrivals::disorder).fold(Disorder::default(), |sum, other| sum.and(&other))
    }

    fn wrong(&self) -> u64 {
        self.arrivals.iter().map(Arrivals::wrong).sum::<u64>() + self.wrong.load(Relaxed)
    }
}

/// The thread of a CPU.
struct PacketWorker<P: Platform> {
    packets: Packets,
    workers: Arc<Workers<P>>,
    driver: Driver<P>,
    index: usize,
    /// The part of a packet for which there was no room.
    rest: Option<Chunk>,
}

impl<P: Platform> PacketWorker<P> {
    fn work(mut self, carried: &dyn Fn(usize) -> u16) {
        while !self.workers.stop.load(Ordering::Acquire) {
            let took = self.driver.poll() > 0;
            let busy = match (self.packets.traffic.side, self.packets.traffic.udp) {
                (Side::Receive, true) => took && self.take_datagram(),
                (Side::Receive, false) => self.take_up(took.then(|| carried(self.index))),
                (Side::Send, true) => self.send_datagram(),
                (Side::Send, false) => self.send(),
            };
            if !took && !busy {
                P::yield_now();
            }
        }
        self.driver.rest();
    }

    /// Reads what the packet from this remote port has made readable; without a packet, what other threads have left.
    fn take_up(&self, port: Option<u16>) -> bool {
        let Some(sockets) = self.workers.sockets.get() else { return false };
        match port.map(|port| usize::from(port.wrapping_sub(FIRST_REMOTE))) {
            Some(connection) if connection < sockets.len() => self.receive(&sockets[connection], connection),
            Some(_) => false,
            None => (0..sockets.len()).any(|connection| self.receive(&sockets[connection], connection)),
        }
    }

    /// Receives a packet at a time while there is data. False: there was none.
    fn receive(&self, socket: &Socket<P>, connection: usize) -> bool {
        let mut any = false;
        while !self.workers.over.load(Relaxed) && socket.ready.get().contains(Readiness::READABLE) {
            let call = Call::ReceiveInOrder(tcp::ReceiveInOrder { max: 1 });
            let Reply::ReceivedInOrder(Ok(taken)) = self.workers.stack.call(&socket.target(), call) else { break };
            let (ticket, more) = (taken.ticket.0, taken.received.more);
            any = true;
            self.upcall(connection, ticket, taken.received);
            if !more {
                break;
            }
        }
        any
    }

    /// Brings data to the application.
    fn upcall(&self, connection: usize, ticket: u32, received: tcp::Received) {
        let arrivals = &self.workers.arrivals[connection];
        let len: usize = received.data.iter().map(|data| data.len()).sum();
        if self.packets.traffic.tickets {
            arrivals.wait_for(ticket, self.workers.made.first(FIRST_REMOTE + connection as u16) == Some(ticket));
        }
        machine::point();
        arrivals.note(ticket, received.data.iter().map(|data| &data[..]));
        P::work(Step::Application, 1);
        if self.packets.traffic.tickets {
            arrivals.pass(ticket.wrapping_add(len as u32));
        }
        self.workers.bytes.fetch_add(len as u64, Relaxed);
    }

    fn take_datagram(&self) -> bool {
        let Some(socket) = &self.workers.datagrams else { return false };
        P::work(Step::Call, 1);
        let Ok(datagram) = self.workers.stack.receive_udp(socket) else { return false };
        P::work(Step::Application, 1);
        let missing = datagram.buf.len().abs_diff(self.workers.chunk.len()) as u64;
        self.workers.wrong.fetch_add(differing(&datagram.buf, 0) + missing, Relaxed);
        self.workers.bytes.fetch_add(datagram.buf.len() as u64, Relaxed);
        true
    }

    /// Sends a packet, or the rest of one. False: there is no room.
    fn send(&mut self) -> bool {
        let Some(sockets) = self.workers.sockets.get() else { return false };
        let socket = &sockets[self.index % sockets.len()];
        let chunk = self.rest.take().unwrap_or_else(|| {
            P::work(Step::Application, 1);
            Chunk::part(self.workers.chunk.clone(), 0..self.packets.traffic.payload)
        });
        let len = chunk.len();
        let mut send = tcp::Send { chunks: tcp::Chunks::from_iter([chunk]) };
        let taken = self.workers.stack.send(&socket.target(), &mut send);
        self.rest = send.chunks.into_iter().next();
        matches!(taken, Some(Ok(taken)) if taken == len)
    }

    fn send_datagram(&self) -> bool {
        let Some(socket) = &self.workers.datagrams else { return false };
        P::work(Step::Application, 1);
        P::work(Step::Call, 1);
        let Some(mut buffer) = PktBuf::alloc(self.packets.traffic.payload) else { return false };
        buffer.append(self.packets.traffic.payload).copy_from_slice(&self.workers.chunk);
        if self.packets.traffic.summing != Summing::Card {
            P::sum(buffer.as_ptr(), buffer.len());
        }
        P::work(Step::Emit, 1);
        let to = SocketAddr::new(self.packets.addresses()[1], FIRST_REMOTE);
        let sent = self.workers.stack.send_udp(socket, buffer, Some(to)).is_ok();
        if sent {
            self.workers.bytes.fetch_add(self.packets.traffic.payload as u64, Relaxed);
        }
        sent
    }
}
