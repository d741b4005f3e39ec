//! The fast path in pieces to be counted: two stacks on a pair of memory ports, one thread, a virtual clock, a fixed
//! seed, so that every run executes the same instructions.
//!
//! `instructions ARCHITECTURE PIECE ROUNDS` does ROUNDS rounds and prints how many operations of PIECE were in them.
//! Exactly the work of the piece runs inside [`counted`]: `cargo xtask instructions` has callgrind collect in that
//! function only, divides, and compares with `docs/instructions.json`. Pieces:
//!
//! | piece | one operation |
//! |---|---|
//! | `data` | a segment of 1448 bytes taken from the device in a batch of eight, with its share of an acknowledgement |
//! | `ack` | an acknowledgement of two segments taken from the device, with nothing to send after it |
//! | `out` | a segment of 1448 bytes from the user's call to the device |
//! | `rpc` | 64 bytes there and 64 back, both ends: two segments, two readiness events, two reads, two writes |
//! | `handler` | as `rpc`, with handlers at both ends, which run where the data arrives |
//! | `connect` | a connection opened, accepted, closed by both ends and removed |
//!
//! A piece with a `6` after its name runs over IPv6, with segments of 1428 bytes, which fill a frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use observe::Time;
use pktbuf::{Chunk, PktBuf};
use stack::arch::select::Architecture;
use stack::flow::Target;
use stack::socket::handler::{Conn, ConnectionHandler};
use stack::socket::{ListenerShared, PollEvent, PollSet, Readiness, TcpSocket};
use stack::{Clock, Driver, InterfaceConfig, Stack, StackConfig, VirtualClock};
use sync::Real;

const PORT: u16 = 80;
/// Segments of a burst: fewer than the initial congestion window, and even, so that no acknowledgement is delayed.
const BURST: usize = 8;
/// Connections of `rpc`, and those opened at a time by `connect`.
const CONNECTIONS: usize = 64;
const REQUEST: usize = 64;
/// Rounds that are not counted: tables and pools grow, windows open.
const WARM_UP: usize = 64;
/// The virtual time of a round; longer than TIME-WAIT lasts here.
const ROUND: Duration = Duration::from_millis(5);
const TIME_WAIT: Duration = Duration::from_millis(2);

type Socket = Arc<TcpSocket<Real>>;

/// The ends' addresses, and how much data a full segment has between them.
#[derive(Clone, Copy)]
struct Family {
    client: IpAddr,
    server: IpAddr,
    prefix: u8,
    data: usize,
}

const V4: Family = Family {
    client: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    server: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
    prefix: 24,
    data: 1448,
};
const V6: Family = Family {
    client: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
    server: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
    prefix: 64,
    data: 1428,
};

/// The counted work runs in here. Callgrind knows the function by its name.
#[inline(never)]
fn counted(work: &mut dyn FnMut()) {
    work();
}

/// Runs `work` outside of the count while `warm` is true.
fn maybe_counted(warm: bool, mut work: impl FnMut()) {
    if warm { work() } else { counted(&mut work) }
}

struct World {
    clock: Arc<VirtualClock<Real>>,
    client: Stack<Real>,
    server: Stack<Real>,
    client_driver: Driver<Real>,
    server_driver: Driver<Real>,
    listener: Arc<ListenerShared<Real>>,
    family: Family,
}

impl World {
    fn new(arch: Architecture, family: Family) -> World {
        let clock = VirtualClock::new(Time::from_secs(1));
        let (left, right) = dev::mem::pair::<Real>(dev::mem::MemConfig::default());
        let end = |device: dev::mem::MemDevice, address, seed| {
            let tcp = tcp::Config { time_wait: TIME_WAIT, ..tcp::Config::default() };
            let config = StackConfig {
                own_threads: false,
                seed: Some(seed),
                clock: Clock::Virtual(clock.clone()),
                tcp,
                ..StackConfig::new(arch)
            };
            let interface = InterfaceConfig {
                device: Box::new(device),
                addresses: vec![(address, family.prefix)],
                gateways: vec![],
                addressing: Default::default(),
            };
            let (stack, mut drivers) = Stack::build(config, vec![interface]).expect("the stack builds");
            (stack, drivers.pop().expect("a driver for the one queue pair"))
        };
        let (client, client_driver) = end(left, family.client, 1);
        let (server, server_driver) = end(right, family.server, 2);
        let options = tcp::config::ConnectionOptions { no_delay: true, ..Default::default() };
        let listener = server.listen(SocketAddr::new(family.server, PORT), 1024, options).expect("the port is free");
        World { clock, client, server, client_driver, server_driver, listener, family }
    }

    /// Polls both ends until no frame is left.
    fn rest(&mut self) {
        while self.client_driver.poll() + self.server_driver.poll() > 0 {}
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::new(self.family.server, PORT)
    }

    fn open(&mut self) -> (Socket, Socket) {
        let options = tcp::config::ConnectionOptions { no_delay: true, ..Default::default() };
        let client = self.client.connect(None, self.address(), &options).expect("a port is free");
        self.rest();
        (client, self.listener.accept().expect("the handshake is complete"))
    }
}

fn message(bytes: usize) -> PktBuf {
    let mut buffer = PktBuf::alloc(bytes).expect("a buffer");
    buffer.append(bytes).fill(7);
    buffer
}

fn send(stack: &Stack<Real>, target: &Target, data: PktBuf) {
    let mut chunks = tcp::Chunks::new();
    chunks.push(Chunk::Pooled(data));
    let mut send = tcp::Send { chunks };
    let sent = stack.send(target, &mut send);
    assert!(matches!(sent, Some(Ok(_))) && send.chunks.is_empty(), "there is room for it");
}

/// Takes all available data; returns the bytes. Always inlined, as `serve` is, or the example's own work would vary
/// between builds.
#[inline(always)]
fn receive(stack: &Stack<Real>, target: &Target) -> usize {
    let mut received = tcp::Received::default();
    let _ = stack.receive(target, tcp::Receive { max: 1 << 20 }, &mut received);
    received.data.iter().map(|buffer| buffer.len()).sum()
}

/// Which step of a burst is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Data,
    Ack,
    Out,
}

/// Bursts from the client to the server on one connection. Counted: segments of the step.
fn bursts(world: &mut World, step: Step, rounds: usize) -> usize {
    let (client, server) = world.open();
    let (from, to) = (client.target(), server.target());
    let (mut operations, data) = (0, world.family.data);
    for round in 0..WARM_UP + rounds {
        let warm = |this: Step| round < WARM_UP || step != this;
        let mut payloads: Vec<PktBuf> = (0..BURST).map(|_| message(data)).collect();
        if step == Step::Ack {
            // Two by two, because a batch is acknowledged once.
            while !payloads.is_empty() {
                payloads.drain(..2).for_each(|data| send(&world.client, &from, data));
                world.server_driver.poll();
            }
        }
        maybe_counted(warm(Step::Out), || payloads.drain(..).for_each(|data| send(&world.client, &from, data)));
        maybe_counted(warm(Step::Data), || {
            world.server_driver.poll();
        });
        let mut acknowledgements = 0;
        maybe_counted(warm(Step::Ack), || acknowledgements = world.client_driver.poll());
        assert_eq!(receive(&world.server, &to), BURST * data, "nothing is lost and nothing is late");
        world.rest();
        world.clock.advance(ROUND);
        if round >= WARM_UP {
            operations += if step == Step::Ack { acknowledgements } else { BURST };
        }
    }
    operations
}

/// Requests and responses, one outstanding on each connection.
fn rpc(world: &mut World, rounds: usize) -> usize {
    let set = PollSet::new(false).expect("a poll set without a descriptor");
    let ends: Vec<(Socket, bool)> = (0..CONNECTIONS)
        .flat_map(|_| {
            let (client, server) = world.open();
            [(client, true), (server, false)]
        })
        .collect();
    for (token, (socket, _)) in ends.iter().enumerate() {
        socket.ready.register(socket, &set, token);
    }
    let mut events = Vec::new();
    while set.try_wait(&mut events, CONNECTIONS) > 0 {}
    let request = message(REQUEST);
    let data = || PktBuf::from_slice(&request).expect("a buffer");
    for (client, _) in ends.iter().filter(|(_, is_client)| *is_client) {
        send(&world.client, &client.target(), data());
    }
    let mut served = 0;
    for round in 0..WARM_UP + rounds {
        let warm = round < WARM_UP;
        maybe_counted(warm, || {
            world.client_driver.poll();
            world.server_driver.poll();
            while set.try_wait(&mut events, CONNECTIONS) > 0 {
                served += usize::from(!warm) * serve(world, &ends, &events, &data);
            }
        });
        world.clock.advance(Duration::from_micros(50));
    }
    served
}

/// Answers each message with the next one, and counts them.
struct Answers {
    answered: Arc<AtomicUsize>,
    next: PktBuf,
}

impl ConnectionHandler<Real> for Answers {
    fn data(&mut self, conn: &mut Conn<'_, Real>, _: PktBuf) {
        assert_eq!(conn.send(&self.next), Ok(REQUEST), "there is room for it");
        self.answered.store(self.answered.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// [`rpc`], with handlers at both ends.
fn handler(world: &mut World, rounds: usize) -> usize {
    let [requests, responses] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let make = |answered: &Arc<AtomicUsize>| -> Box<dyn ConnectionHandler<Real>> {
        Box::new(Answers { answered: answered.clone(), next: message(REQUEST) })
    };
    let options = tcp::config::ConnectionOptions { no_delay: true, ..Default::default() };
    let address = SocketAddr::new(world.family.server, PORT + 1);
    let (serves, served) = (make, responses.clone());
    world
        .server
        .listen_with_handlers(address, 1024, options.clone(), move |_| serves(&served))
        .expect("the port is free");
    let first = message(REQUEST);
    for _ in 0..CONNECTIONS {
        let opened = world.client.connect_with_handler(None, address, &options, &first, make(&requests));
        assert!(opened.is_ok(), "a port is free");
        // One poll each: the handshake, the first request, and the answer to it.
        for _ in 0..2 {
            world.server_driver.poll();
            world.client_driver.poll();
        }
    }
    for round in 0..WARM_UP + rounds {
        if round == WARM_UP {
            requests.store(0, Ordering::Relaxed);
        }
        maybe_counted(round < WARM_UP, || {
            world.client_driver.poll();
            world.server_driver.poll();
        });
        world.clock.advance(Duration::from_micros(50));
    }
    requests.load(Ordering::Relaxed)
}

/// Answers every event with the next message; returns the number of responses.
#[inline(always)]
fn serve(world: &World, ends: &[(Socket, bool)], events: &[PollEvent], data: &impl Fn() -> PktBuf) -> usize {
    let mut responses = 0;
    for event in events {
        let (socket, is_client) = &ends[event.token];
        let stack = if *is_client { &world.client } else { &world.server };
        let target = socket.target();
        if receive(stack, &target) == REQUEST {
            send(stack, &target, data());
            responses += usize::from(*is_client);
        }
    }
    responses
}

/// Connections opened, accepted, closed by the client, then by the server, until TIME-WAIT has ended.
fn connect(world: &mut World, rounds: usize) -> usize {
    let options = tcp::config::ConnectionOptions::default();
    // The first connection resolves the link addresses; many at once would overflow the queue of frames that wait for
    // them.
    let (client, server) = world.open();
    world.client.close(&client.target());
    world.server.close(&server.target());
    let (mut operations, address) = (0, world.address());
    for round in 0..WARM_UP + rounds {
        maybe_counted(round < WARM_UP, || {
            let opening: Vec<Socket> = (0..CONNECTIONS)
                .map(|_| world.client.connect(None, address, &options).expect("a port is free"))
                .collect();
            world.rest();
            for client in &opening {
                assert!(client.ready.get().intersects(Readiness::CONNECTED), "the handshake is complete");
                world.client.close(&client.target());
            }
            world.rest();
            while let Some(server) = world.listener.accept() {
                let mut received = tcp::Received::default();
                let end = world.server.receive(&server.target(), tcp::Receive { max: 1 }, &mut received);
                assert!(matches!(end, Some(Ok(()))) && received.end, "the client has closed");
                world.server.close(&server.target());
            }
            world.rest();
            world.clock.advance(ROUND);
            world.rest();
        });
        if round >= WARM_UP {
            operations += CONNECTIONS;
        }
    }
    let left = world.client.stats().connections + world.server.stats().connections;
    assert_eq!(left, 0, "every connection is forgotten");
    operations
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = || -> ! {
        eprintln!("usage: instructions ARCHITECTURE data|ack|out|rpc|handler|connect[6] ROUNDS");
        std::process::exit(2);
    };
    let [arch, piece, rounds] = &arguments[..] else { usage() };
    let (Ok(arch), Ok(rounds)) = (arch.parse::<Architecture>(), rounds.parse::<usize>()) else { usage() };
    let (piece, family) = piece.strip_suffix('6').map_or((piece.as_str(), V4), |piece| (piece, V6));
    let mut world = World::new(arch, family);
    let operations = match piece {
        "data" => bursts(&mut world, Step::Data, rounds),
        "ack" => bursts(&mut world, Step::Ack, rounds),
        "out" => bursts(&mut world, Step::Out, rounds),
        "rpc" => rpc(&mut world, rounds),
        "handler" => handler(&mut world, rounds),
        "connect" => connect(&mut world, rounds),
        _ => usage(),
    };
    println!("{operations} operations");
}
