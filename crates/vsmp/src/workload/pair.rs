//! Two stacks on a link in memory, with a thread on each CPU that polls its queue of both and runs the applications of
//! its connections: one stack sends as much as the other accepts, or one sends a request and waits for the response of
//! the other, or connections are opened and closed. Each receiver checks every byte. With
//! [`Applications::OwnThreads`] the applications run on threads that poll nothing, as programs do that block in calls.
//!
//! The workload runs on any platform: on a virtual machine, or on the real one to compare the two. Everything happens
//! on the machine, set-up and tear-down included. An architecture for one thread (`up`) has one queue and one polling thread,
//! whatever CPUs there are.

mod connections;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dev::mem::{self, MemConfig, MemDevice};
use pktbuf::Chunk;
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, PollEvent, PollSet, Readiness, TcpSocket};
use stack::{Addressing, Architecture, Driver, InterfaceConfig, Stack, StackConfig};
use sync::{Atomic, LockKind, Ordering, Platform, Step, ThreadClass};
use tcp::config::{BufferSizes, ConnectionOptions};

use super::windows::{Window, Windows};
use super::{Turns, nap};
use crate::Vsmp;

type Socket<P> = Arc<TcpSocket<P>>;

const PORT: u16 = 5001;
/// Ports from here on belong to no service.
const FIRST_PORT: u16 = 10_000;
/// Bytes of one call with bulk data.
const WRITE: usize = 16 << 10;
/// Bytes of one read.
const READ: usize = 64 << 10;
/// Period of the sent data in bytes: not a power of two, so that data at a wrong position is detected.
const PERIOD: usize = 251;
/// Events that one round of a thread takes.
const EVENTS: usize = 16;
/// The token of what is no established connection: a listener, or a connection that is opened or closed.
const NO_END: usize = usize::MAX;
/// The longest sleep of an application's thread. It looks then whether the run is over.
const SLEEP: Duration = Duration::from_millis(1);

/// The applications on the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// One end sends as much as the other accepts.
    Bulk,
    /// One end sends so many bytes, 1 to 16384, and waits for as many from the other.
    Requests(usize),
    /// Connections are opened and closed by both ends, without payload. Each thread opens its whole share of
    /// [`Pair::connections`] at a time, rounded down, but at least one.
    SetupAndClose,
}

impl Load {
    /// What a run with this load is to do as much of as it can: bytes, responses, or connections closed.
    pub fn progress(self, transferred: &Transferred) -> u64 {
        match self {
            Load::Bulk => transferred.bytes,
            Load::Requests(_) => transferred.responses,
            Load::SetupAndClose => transferred.closed,
        }
    }
}

/// The receive queues by which the connections' segments arrive. Every thread opens as many connections as the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    /// Any: most connections are received by another thread than the one that opened them.
    Spread,
    /// The one of the thread that opens the connection.
    Home,
    /// Three of four connections arrive by the first queue, whichever thread opens them.
    Uneven,
}

/// The threads that run the applications, one on each CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applications {
    /// Those that poll the queues. They never sleep.
    ReceiveThreads,
    /// Threads of their own, which sleep while none of their connections is ready. Each queue of each stack has a receive thread,
    /// which sleeps while there is nothing to receive.
    OwnThreads,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The architecture of both stacks.
    pub arch: Architecture,
    /// CPUs of the machine; the stacks spread over them.
    pub cpus: usize,
    /// The CPU of thread `n` is `n` times this: 2 on a real machine on which neighbours share a core; else 1.
    pub stride: usize,
    /// The kind of lock of both stacks.
    pub lock_kind: LockKind,
    /// Connections, spread over the CPUs.
    pub connections: usize,
    /// What they carry.
    pub load: Load,
    /// The queues by which they arrive.
    pub flows: Flows,
    /// The threads that use them.
    pub applications: Applications,
    /// The seed of both stacks: other seeds have other ports.
    pub seed: u64,
    /// Whether the addresses are IPv6.
    pub ipv6: bool,
    /// Time from the first SYN until the last thread stops.
    pub time: Duration,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Connections that were opened.
    pub opened: usize,
    /// Bytes that the receivers read.
    pub bytes: u64,
    /// Responses that arrived.
    pub responses: u64,
    /// Connections that both ends have closed.
    pub closed: u64,
    /// Bytes that differed from the sent ones.
    pub wrong: u64,
}

impl Transferred {
    fn add(&mut self, other: &Transferred) {
        self.opened += other.opened;
        self.bytes += other.bytes;
        self.responses += other.responses;
        self.closed += other.closed;
        self.wrong += other.wrong;
    }
}

impl Pair {
    /// One CPU, six connections with bulk data over IPv4, 20 ms. Flows are spread, as in the lab with an even spread. But a
    /// thread that owns a cell opens connections in it.
    pub fn new(arch: Architecture) -> Pair {
        let flows = if arch.properties().polling_thread_owns { Flows::Home } else { Flows::Spread };
        Pair {
            arch,
            cpus: 1,
            stride: 1,
            lock_kind: LockKind::default(),
            connections: 6,
            load: Load::Bulk,
            flows,
            applications: Applications::ReceiveThreads,
            seed: 1,
            ipv6: false,
            time: Duration::from_millis(20),
        }
    }

    fn addresses(&self) -> [IpAddr; 2] {
        let [client, server] = if self.ipv6 { ["fd09::1", "fd09::1:1"] } else { ["10.9.0.1", "10.9.1.1"] };
        [client, server].map(|text| text.parse().expect("an address"))
    }

    /// Runs the workload on a virtual machine. Must be called by the first thread of a machine with as many CPUs.
    ///
    /// # Panics
    /// The stacks cannot be built, or a thread of the run panics.
    pub fn run(&self) -> Transferred {
        self.run_on::<Vsmp>().0
    }

    /// Runs the workload on a platform. The windows are those of its whole time; their progress is that of [`Load::progress`].
    ///
    /// # Panics
    /// As [`Pair::run`].
    pub fn run_on<P: Platform>(&self) -> (Transferred, Vec<Window>) {
        let pollers = if self.arch.properties().single_thread { 1 } else { self.cpus };
        let (left, right) = mem::pair::<P>(MemConfig { queues: pollers, ring_frames: 256, ..MemConfig::default() });
        let [from, to] = self.addresses();
        let (client, client_drivers) = self.stack::<P>(left, from, pollers);
        let (server, server_drivers) = self.stack::<P>(right, to, pollers);
        let remote = SocketAddr::new(to, PORT);
        // A client may close, and open another connection, before this one has been accepted.
        let backlog = self.connections.max(1024);
        let listener = server.listen(remote, backlog, ConnectionOptions::default()).expect("the port is free");
        let longest = WRITE.max(READ) + PERIOD;
        let pattern: Arc<[u8]> = (0..longest).map(|at| (at % PERIOD) as u8).collect();
        let (stop, results) = (Arc::new(P::AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let start = P::now();
        let mut drivers: Vec<_> =
            client_drivers.into_iter().zip(server_drivers).map(|(ours, theirs)| [ours, theirs]).collect();
        let receiving = match self.applications {
            Applications::ReceiveThreads => None,
            Applications::OwnThreads => Some(ReceiveThreads::<P>::start(drivers.drain(..), self.stride)),
        };
        let (count, class, name) = match receiving {
            None => (pollers, ThreadClass::Receive, "poll"),
            Some(_) => (self.cpus, ThreadClass::Application, "application"),
        };
        let mut drivers = drivers.into_iter();
        let threads: Vec<_> = (0..count)
            .map(|index| {
                let thread = ApplicationThread {
                    drivers: drivers.next(),
                    stacks: [client.clone(), server.clone()],
                    load: self.load,
                    local: SocketAddr::new(from, 0),
                    remote,
                    queues: pollers,
                    threads: count as u16,
                    uneven: (self.flows == Flows::Uneven).then_some((0, FIRST_PORT + index as u16)),
                    listener: listener.clone(),
                    set: PollSet::new(false).expect("a set without a descriptor"),
                    events: Vec::new(),
                    to_open: self.share(index, count),
                    connections: connections::Ends::new(self.connections / count),
                    opening: Vec::new(),
                    ends: Vec::new(),
                    turns: Turns::default(),
                    pattern: pattern.clone(),
                    transferred: Transferred::default(),
                };
                let (stop, results) = (stop.clone(), results.clone());
                P::spawn(&format!("{name}{index}"), Some(index * self.stride), class, move || {
                    let result = thread.run(&stop, Windows::from(start));
                    results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
                })
            })
            .collect();
        nap::<P>(self.time);
        stop.store(true, Ordering::Release);
        threads.into_iter().for_each(join::<P>);
        if let Some(receiving) = receiving {
            receiving.stop([&client, &server]);
        }
        let mut total = Transferred::default();
        let results = std::mem::take(&mut *results.lock().unwrap_or_else(PoisonError::into_inner));
        results.iter().for_each(|(transferred, _)| total.add(transferred));
        let windows: Vec<_> = results.into_iter().map(|(_, windows)| windows).collect();
        (total, Windows::sum(&windows))
    }

    /// The connections that thread `index` opens, or without end.
    fn share(&self, index: usize, threads: usize) -> usize {
        match self.load {
            Load::SetupAndClose => usize::MAX,
            _ => self.connections / threads + usize::from(index < self.connections % threads),
        }
    }

    fn stack<P: Platform>(&self, device: MemDevice, address: IpAddr, cpus: usize) -> (Stack<P>, Vec<Driver<P>>) {
        let mut config = StackConfig::<P>::new(self.arch);
        (config.cpus, config.lock_kind, config.seed) = (cpus, self.lock_kind, Some(self.seed));
        config.homing = self.flows == Flows::Home;
        // The work of a segment is charged alike wherever it is, so it must cost alike.
        config.runs = false;
        let size = 256 << 10;
        config.tcp.send_buffer = BufferSizes { min: size, initial: size, max: size };
        config.tcp.receive_buffer = BufferSizes { min: size, initial: size, max: size };
        let prefix = if address.is_ipv6() { 64 } else { 16 };
        let count = if self.load == Load::SetupAndClose { connections::ADDRESSES } else { 1 };
        let addresses = (0..count).map(|number| (connections::source(address, number), prefix)).collect();
        let addressing = Addressing::default();
        let interface = InterfaceConfig { device: Box::new(device), addresses, gateways: vec![], addressing };
        Stack::build(config, vec![interface]).expect("the stack builds")
    }
}

fn join<P: Platform>(thread: P::JoinHandle) {
    if let Err(panic) = P::join(thread) {
        std::panic::resume_unwind(panic);
    }
}

/// With [`Applications::OwnThreads`].
struct ReceiveThreads<P: Platform> {
    stop: Arc<P::AtomicBool>,
    threads: Vec<P::JoinHandle>,
}

impl<P: Platform> ReceiveThreads<P> {
    /// A thread for each driver, on the CPU of its queue's number.
    fn start(drivers: impl Iterator<Item = [Driver<P>; 2]>, stride: usize) -> Self {
        let stop = Arc::new(P::AtomicBool::new(false));
        let spawn = |(queue, name, mut driver): (usize, &str, Driver<P>)| {
            let stop = stop.clone();
            let serve = move || driver.serve(&stop, || {});
            P::spawn(&format!("{name}{queue}"), Some(queue * stride), ThreadClass::Receive, serve)
        };
        let threads = drivers
            .enumerate()
            .flat_map(|(queue, [client, server])| [(queue, "client", client), (queue, "server", server)].map(&spawn));
        let threads = threads.collect();
        ReceiveThreads { stop, threads }
    }

    /// Ends them. The applications have ended.
    fn stop(self, stacks: [&Stack<P>; 2]) {
        self.stop.store(true, Ordering::Release);
        stacks.iter().for_each(|stack| stack.shared().links().wake_drivers());
        self.threads.into_iter().for_each(join::<P>);
    }
}

/// One end of a connection.
struct End<P: Platform> {
    /// Whether this end opened the connection: it sends the bulk data, or the requests.
    is_client: bool,
    socket: Socket<P>,
    /// Bytes sent so far, and bytes read.
    sent: usize,
    read: usize,
}

impl<P: Platform> End<P> {
    /// The stack's number.
    fn side(&self) -> usize {
        usize::from(!self.is_client)
    }
}

/// The thread that runs the applications of a CPU.
struct ApplicationThread<P: Platform> {
    /// With [`Applications::ReceiveThreads`].
    drivers: Option<[Driver<P>; 2]>,
    stacks: [Stack<P>; 2],
    load: Load,
    local: SocketAddr,
    remote: SocketAddr,
    queues: usize,
    /// How many of these threads there are.
    threads: u16,
    /// With [`Flows::Uneven`], the address, by number, and the port to look at next; threads look at different ports.
    uneven: Option<(u8, u16)>,
    listener: Arc<ListenerShared<P>>,
    set: Arc<PollSet<P>>,
    events: Vec<PollEvent>,
    to_open: usize,
    /// With [`Load::SetupAndClose`].
    connections: connections::Ends<P>,
    opening: Vec<Socket<P>>,
    ends: Vec<End<P>>,
    /// The ends, by index, with data to read or room to write: one call for each.
    turns: Turns,
    /// What is sent, over and over; as long as the longest read from any position.
    pattern: Arc<[u8]>,
    transferred: Transferred,
}

impl<P: Platform> ApplicationThread<P> {
    fn run(mut self, stop: &P::AtomicBool, mut windows: Windows) -> (Transferred, Windows) {
        if self.drivers.is_none() {
            self.listener.ready.register(&self.listener, &self.set, NO_END);
        }
        while !stop.load(Ordering::Acquire) {
            let before = self.progress();
            let mut busy = false;
            for driver in self.drivers.iter_mut().flatten() {
                busy |= driver.poll() > 0;
            }
            if self.load == Load::SetupAndClose {
                busy |= self.open_and_close();
            } else {
                busy |= self.open_and_accept();
                P::work(Step::Poll, 1);
                busy |= self.take_events(Duration::ZERO);
                busy |= self.serve();
            }
            windows.report(P::now(), self.progress() - before);
            if !busy {
                self.rest();
            }
        }
        self.set.close();
        self.drivers.iter_mut().flatten().for_each(Driver::rest);
        (self.transferred, windows)
    }

    /// Gives turns to the ends that are ready; waits so long for one. False: there was none.
    fn take_events(&mut self, wait: Duration) -> bool {
        let count = match wait {
            Duration::ZERO => self.set.try_wait(&mut self.events, EVENTS),
            _ => self.set.wait(&mut self.events, EVENTS, Some(wait)),
        };
        self.events.iter().filter(|event| event.token != NO_END).for_each(|event| self.turns.add(event.token));
        count > 0
    }

    /// There was nothing to do.
    fn rest(&mut self) {
        if self.drivers.is_some() {
            P::yield_now();
        } else {
            self.take_events(SLEEP);
        }
    }

    /// A thread that sleeps is woken by a connection that is being opened, or is to be closed.
    fn watch(&self, socket: &Socket<P>) {
        if self.drivers.is_none() {
            socket.ready.register(socket, &self.set, NO_END);
        }
    }

    fn progress(&self) -> u64 {
        self.load.progress(&self.transferred)
    }

    /// A few at a time: rings are short.
    fn open_and_accept(&mut self) -> bool {
        let before = (self.to_open, self.opening.len(), self.ends.len());
        if self.to_open > 0 && self.opening.len() < 16 {
            let local = self.uneven_end();
            let socket = self.connect(local);
            self.opening.push(socket);
        }
        let open = |socket: &Socket<P>| socket.ready.get().intersects(Readiness::CONNECTED);
        while let Some(place) = self.opening.iter().position(open) {
            let socket = self.opening.swap_remove(place);
            self.transferred.opened += 1;
            self.register(true, socket);
        }
        while let Some(socket) = self.listener.accept() {
            self.register(false, socket);
        }
        before != (self.to_open, self.opening.len(), self.ends.len())
    }

    fn connect(&mut self, local: Option<SocketAddr>) -> Socket<P> {
        self.to_open -= 1;
        let options = ConnectionOptions { no_delay: true, ..Default::default() };
        let socket = self.stacks[0].connect(local, self.remote, &options).expect("it opens");
        self.watch(&socket);
        socket
    }

    /// With [`Flows::Uneven`], the local end of the next connection; otherwise the stack chooses.
    fn uneven_end(&mut self) -> Option<SocketAddr> {
        let queue = if self.to_open.is_multiple_of(4) { self.queues - 1 } else { 0 };
        loop {
            let (source, port) = self.uneven?;
            let end = SocketAddr::new(connections::source(self.local.ip(), source), port);
            self.uneven = Some(match port.checked_add(self.threads) {
                Some(next) => (source, next),
                None => (source + 1, FIRST_PORT + port % self.threads),
            });
            if self.stacks[0].flow(end, self.remote).index(self.queues) == queue {
                return Some(end);
            }
        }
    }

    fn register(&mut self, is_client: bool, socket: Socket<P>) {
        socket.ready.register(&socket, &self.set, self.ends.len());
        self.ends.push(End { is_client, socket, sent: 0, read: 0 });
    }

    /// Makes one call for each end that is ready, or two for a response. An end that can continue waits for its next
    /// turn, behind the others.
    fn serve(&mut self) -> bool {
        let count = self.turns.len();
        for _ in 0..count {
            let Some(end) = self.turns.take() else { break };
            P::work(Step::Application, 1);
            let goes_on = match self.load {
                Load::Bulk if self.ends[end].is_client => self.send(end, WRITE),
                Load::Bulk => self.receive(end) > 0,
                Load::Requests(length) => self.exchange(end, length),
                Load::SetupAndClose => false,
            };
            if goes_on {
                self.turns.add(end);
            }
        }
        count > 0
    }

    /// Reads what there is, and sends the next message if the one before has arrived as a whole.
    fn exchange(&mut self, end: usize, length: usize) -> bool {
        let (is_client, first) = (self.ends[end].is_client, self.ends[end].sent == 0);
        let read = if is_client && first { 0 } else { self.receive(end) };
        let End { sent, read: so_far, .. } = self.ends[end];
        // Both count in whole messages once the last one is complete.
        if so_far % length == 0 && (if is_client { so_far == sent } else { so_far > sent }) {
            self.transferred.responses += u64::from(is_client && !first);
            self.send(end, length);
        }
        // A short read emptied the queue.
        read == READ
    }

    /// Writes once. False: there is no room left, or the connection is over.
    fn send(&mut self, end: usize, length: usize) -> bool {
        let side = self.ends[end].side();
        let End { socket, sent, .. } = &mut self.ends[end];
        let start = *sent % PERIOD;
        let mut chunks = tcp::Chunks::new();
        chunks.push(Chunk::part(self.pattern.clone(), start..start + length));
        match self.stacks[side].call(&socket.target(), Call::Send(tcp::Send { chunks })) {
            Reply::Sent(Ok(reply)) => {
                *sent += reply.accepted;
                reply.rest.is_empty()
            }
            _ => false,
        }
    }

    /// Reads once; returns the number of bytes, 0 if there was nothing or the connection is over.
    fn receive(&mut self, end: usize) -> usize {
        let side = self.ends[end].side();
        let End { socket, read, .. } = &mut self.ends[end];
        let receive = Call::Receive(tcp::Receive { max: READ });
        let Reply::Received(Ok(received)) = self.stacks[side].call(&socket.target(), receive) else { return 0 };
        let before = *read;
        for data in &received.data {
            let start = *read % PERIOD;
            let expected = &self.pattern[start..start + data.len()];
            if **data != *expected {
                let differ = data.iter().zip(expected).filter(|(is, should)| is != should);
                self.transferred.wrong += differ.count() as u64;
            }
            *read += data.len();
        }
        self.transferred.bytes += (*read - before) as u64;
        *read - before
    }
}
