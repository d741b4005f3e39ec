//! Two stacks on a link in memory, with a thread on each CPU that polls its queue of both and runs the applications of
//! its connections: one stack sends as much as the other accepts, and the receiver checks every byte.
//!
//! Everything happens on the machine, set-up and tear-down included. An architecture for one thread (`up`) has one queue
//! and one polling thread, whatever CPUs there are.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dev::mem::{self, MemConfig, MemDevice};
use pktbuf::Chunk;
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, PollEvent, PollSet, Readiness, TcpSocket};
use stack::{Addressing, Architecture, Driver, InterfaceConfig, Stack, StackConfig};
use sync::{Atomic, LockKind, Ordering, Platform, Step, ThreadClass};
use tcp::config::{BufferSizes, ConnectionOptions};

use super::{Turns, nap};
use crate::Vsmp;

type Socket = Arc<TcpSocket<Vsmp>>;
type Flag = <Vsmp as Platform>::AtomicBool;

const PORT: u16 = 5001;
/// Bytes of one call.
const WRITE: usize = 16 << 10;
/// Period of the sent data in bytes: not a power of two, so that data at a wrong position is detected.
const PERIOD: usize = 251;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The architecture of both stacks.
    pub arch: Architecture,
    /// CPUs of the machine; the stacks spread over them.
    pub cpus: usize,
    /// The kind of lock of both stacks.
    pub lock_kind: LockKind,
    /// Connections, spread over the CPUs.
    pub connections: usize,
    /// Whether the addresses are IPv6.
    pub ipv6: bool,
    /// Virtual time from the first SYN until the last thread stops.
    pub time: Duration,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// Connections that were opened.
    pub opened: usize,
    /// Bytes that the receivers read.
    pub bytes: u64,
    /// Bytes that differed from the sent ones.
    pub wrong: u64,
}

/// The counts of a polling thread.
#[derive(Default)]
struct Counted {
    opened: <Vsmp as Platform>::AtomicUsize,
    bytes: <Vsmp as Platform>::AtomicU64,
    wrong: <Vsmp as Platform>::AtomicU64,
}

impl Pair {
    fn addresses(&self) -> [IpAddr; 2] {
        let [client, server] = if self.ipv6 { ["fd09::1", "fd09::1:1"] } else { ["10.9.0.1", "10.9.1.1"] };
        [client, server].map(|text| text.parse().expect("an address"))
    }

    /// Runs the workload. Must be called by the first thread of a machine with as many CPUs.
    ///
    /// # Panics
    /// The stacks cannot be built, or a thread of the run panics.
    pub fn run(&self) -> Transferred {
        let hands = if self.arch.properties().single_thread { 1 } else { self.cpus };
        let (left, right) = mem::pair::<Vsmp>(MemConfig { queues: hands, ring_frames: 256, ..MemConfig::default() });
        let [from, to] = self.addresses();
        let (client, client_drivers) = self.stack(left, from, hands);
        let (server, server_drivers) = self.stack(right, to, hands);
        let remote = SocketAddr::new(to, PORT);
        let backlog = self.connections.max(16);
        let listener = server.listen(remote, backlog, ConnectionOptions::default()).expect("the port is free");
        let payload: Arc<[u8]> = (0..WRITE + PERIOD).map(|at| (at % PERIOD) as u8).collect();
        let (stop, counted) = (Arc::new(Flag::new(false)), Arc::new(Counted::default()));
        let threads: Vec<_> = (client_drivers.into_iter().zip(server_drivers).enumerate())
            .map(|(index, (ours, theirs))| {
                let hand = Hand {
                    drivers: [ours, theirs],
                    stacks: [client.clone(), server.clone()],
                    remote,
                    listener: listener.clone(),
                    set: PollSet::new(false).expect("a set without a descriptor"),
                    to_open: self.connections / hands + usize::from(index < self.connections % hands),
                    opening: Vec::new(),
                    ends: Vec::new(),
                    turns: Turns::default(),
                    payload: payload.clone(),
                    stop: stop.clone(),
                    counted: counted.clone(),
                };
                Vsmp::spawn(&format!("hand{index}"), Some(index), ThreadClass::Receive, move || hand.run())
            })
            .collect();
        nap(self.time);
        stop.store(true, Ordering::Release);
        for thread in threads {
            if let Err(panic) = Vsmp::join(thread) {
                std::panic::resume_unwind(panic);
            }
        }
        Transferred { opened: counted.opened.peek(), bytes: counted.bytes.peek(), wrong: counted.wrong.peek() }
    }

    fn stack(&self, device: MemDevice, address: IpAddr, cpus: usize) -> (Stack<Vsmp>, Vec<Driver<Vsmp>>) {
        let mut config = StackConfig::<Vsmp>::new(self.arch);
        (config.cpus, config.lock_kind, config.seed) = (cpus, self.lock_kind, Some(1));
        // Flows are spread evenly, whichever thread opens them, as in the lab. But a thread that owns a cell opens
        // connections in it: it polls both stacks, and a thread that waits for an answer in one stack does not read
        // messages of the other.
        config.homing = self.arch.properties().polling_thread_owns;
        let size = 256 << 10;
        config.tcp.send_buffer = BufferSizes { min: size, initial: size, max: size };
        config.tcp.receive_buffer = BufferSizes { min: size, initial: size, max: size };
        let prefix = if address.is_ipv6() { 64 } else { 16 };
        let addresses = vec![(address, prefix)];
        let addressing = Addressing::default();
        let interface = InterfaceConfig { device: Box::new(device), addresses, gateways: vec![], addressing };
        Stack::build(config, vec![interface]).expect("the stack builds")
    }
}

/// One end of a connection.
struct End {
    sends: bool,
    socket: Socket,
    /// Bytes so far.
    at: usize,
}

/// The thread of a CPU.
struct Hand {
    drivers: [Driver<Vsmp>; 2],
    stacks: [Stack<Vsmp>; 2],
    remote: SocketAddr,
    listener: Arc<ListenerShared<Vsmp>>,
    set: Arc<PollSet<Vsmp>>,
    to_open: usize,
    opening: Vec<Socket>,
    ends: Vec<End>,
    /// The ends, by index, with data to read or room to write: one call for each.
    turns: Turns,
    payload: Arc<[u8]>,
    stop: Arc<Flag>,
    counted: Arc<Counted>,
}

impl Hand {
    fn run(mut self) {
        let mut events = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            let mut busy = false;
            for driver in &mut self.drivers {
                busy |= driver.poll() > 0;
            }
            busy |= self.open_and_accept();
            Vsmp::work(Step::Poll, 1);
            busy |= self.set.try_wait(&mut events, 16) > 0;
            events.iter().for_each(|event: &PollEvent| self.turns.add(event.token));
            busy |= self.serve();
            if !busy {
                Vsmp::yield_now();
            }
        }
        self.set.close();
        self.drivers.iter_mut().for_each(Driver::rest);
    }

    /// A few at a time: rings are short.
    fn open_and_accept(&mut self) -> bool {
        let before = (self.to_open, self.opening.len(), self.ends.len());
        if self.to_open > 0 && self.opening.len() < 16 {
            let options = ConnectionOptions { no_delay: true, ..Default::default() };
            let socket = self.stacks[0].connect(None, self.remote, &options).expect("it opens");
            self.opening.push(socket);
            self.to_open -= 1;
        }
        let open = |socket: &Socket| socket.ready.get().intersects(Readiness::CONNECTED);
        while let Some(place) = self.opening.iter().position(open) {
            let socket = self.opening.swap_remove(place);
            self.counted.opened.fetch_add(1, Ordering::Relaxed);
            self.register(true, socket);
        }
        while let Some(socket) = self.listener.accept() {
            self.register(false, socket);
        }
        before != (self.to_open, self.opening.len(), self.ends.len())
    }

    fn register(&mut self, sends: bool, socket: Socket) {
        socket.ready.register(&socket, &self.set, self.ends.len());
        self.ends.push(End { sends, socket, at: 0 });
    }

    /// Makes one call for each end that is ready. An end that can continue waits for its next turn, behind the others.
    fn serve(&mut self) -> bool {
        let count = self.turns.len();
        for _ in 0..count {
            let Some(end) = self.turns.take() else { break };
            Vsmp::work(Step::Application, 1);
            let goes_on = if self.ends[end].sends { self.send(end) } else { self.receive(end) };
            if goes_on {
                self.turns.add(end);
            }
        }
        count > 0
    }

    /// Writes once. False: there is no room left, or the connection is over.
    fn send(&mut self, end: usize) -> bool {
        let End { socket, at, .. } = &mut self.ends[end];
        let start = *at % PERIOD;
        let mut chunks = tcp::Chunks::new();
        chunks.push(Chunk::part(self.payload.clone(), start..start + WRITE));
        match self.stacks[0].call(&socket.target(), Call::Send(tcp::Send { chunks })) {
            Reply::Sent(Ok(sent)) => {
                *at += sent.accepted;
                sent.rest.is_empty()
            }
            _ => false,
        }
    }

    /// Reads once. False: there was nothing, or the connection is over.
    fn receive(&mut self, end: usize) -> bool {
        let End { socket, at, .. } = &mut self.ends[end];
        let receive = Call::Receive(tcp::Receive { max: 64 << 10 });
        let Reply::Received(Ok(received)) = self.stacks[1].call(&socket.target(), receive) else { return false };
        let bytes = received.data.iter().flat_map(|data| data.iter());
        let (mut read, mut wrong) = (0, 0);
        for byte in bytes {
            wrong += u64::from(usize::from(*byte) != (*at + read) % PERIOD);
            read += 1;
        }
        *at += read;
        self.counted.bytes.fetch_add(read as u64, Ordering::Relaxed);
        if wrong > 0 {
            self.counted.wrong.fetch_add(wrong, Ordering::Relaxed);
        }
        read > 0
    }
}
