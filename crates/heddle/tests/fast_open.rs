//! TCP Fast Open (RFC 7413) between two whole stacks, in virtual time, under every architecture.

mod world;

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use every_arch::every_arch;
use heddle::{Architecture, Connect, TcpListener, TcpStream};
use observe::{Counter, DropReason};
use tcp::State;
use tcp::config::FastOpenMode;
use world::{World, WorldConfig};

const SERVER: &str = "10.0.0.1:80";
/// From one stack to the other.
const DELAY: Duration = Duration::from_millis(20);

fn world(arch: Architecture, mode: u32) -> World {
    let faults = format!("delay {}ms", DELAY.as_millis()).parse().expect("a fault plan");
    let mut terms = WorldConfig { faults, ..WorldConfig::new([arch; 2]) };
    terms.tcp.fast_open = FastOpenMode(mode);
    World::on(terms)
}

fn listen(world: &World, address: &str, limit: usize) -> TcpListener {
    let listener = TcpListener::bind(&world.a, address).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener.set_fast_open(limit);
    listener
}

fn open(world: &World, address: &str, data: &[u8]) -> TcpStream {
    Connect::new().first_data(data).start(&world.b, address).unwrap()
}

fn read(mut stream: &TcpStream) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 16];
    match stream.read(&mut buffer) {
        Ok(count) => buffer.truncate(count),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            buffer.clear();
        }
    }
    buffer
}

fn accept(listener: &TcpListener) -> Option<TcpStream> {
    let (stream, _) = listener.accept().ok()?;
    stream.set_nonblocking(true).unwrap();
    Some(stream)
}

fn state(stream: &TcpStream) -> State {
    stream.status().expect("a connection").state
}

/// Opens, exchanges a request and an answer, closes; returns the round trips until the answer.
fn exchange(world: &mut World, listener: &TcpListener, address: &str, request: &[u8]) -> u32 {
    let client = open(world, address, request);
    let (mut server, mut got, mut answer) = (None, Vec::new(), Vec::new());
    let started = world.clock.now();
    while answer != b"answer" {
        assert!(world.clock.now() - started < Duration::from_secs(5), "{} bytes arrived", got.len());
        world.pass(Duration::from_millis(1));
        server = server.or_else(|| accept(listener));
        if let Some(server) = &server
            && got.len() < request.len()
        {
            got.extend(read(server));
            if got.len() == request.len() {
                (&*server).write_all(b"answer").unwrap();
            }
        }
        answer.extend(read(&client));
    }
    assert!(got == request, "the request arrives once and whole");
    let passed = world.clock.now() - started;
    drop((client, server));
    world.pass(Duration::from_secs(1));
    passed.as_millis() as u32 / (2 * DELAY.as_millis() as u32)
}

/// The first connection gets the cookie, the second saves a round trip; a request that does not fit the SYN still
/// arrives.
#[every_arch]
fn the_second_connection_saves_a_round_trip(arch: Architecture) {
    for address in [SERVER, "[fd00::1]:80"] {
        let mut world = world(arch, FastOpenMode::CLIENT | FastOpenMode::SERVER);
        let listener = listen(&world, address, 16);
        // Neighbours are resolved before.
        exchange(&mut world, &listener, address, b"hello");
        let request = vec![7; 300];
        assert_eq!(exchange(&mut world, &listener, address, &request), 1, "{address}");
        let long = vec![9; 14_000];
        assert_eq!(exchange(&mut world, &listener, address, &long), 2, "{address}");
        assert_eq!((listener.early(), listener.occupancy()), (0, (0, 0)));
        assert_eq!(world.counters().get(Counter::Retransmits), 0);
    }
}

/// Without the knob, the socket option or the architecture's support only the round trip is not saved.
#[every_arch]
fn without_the_knobs_it_is_a_connection_like_any_other(arch: Architecture) {
    let all = FastOpenMode::CLIENT | FastOpenMode::SERVER;
    for (mode, limit, trips) in [
        (FastOpenMode::CLIENT, 16, 2),
        (FastOpenMode::SERVER, 16, 2),
        (all, 0, 2),
        (all | FastOpenMode::ALL_LISTENERS, 0, 1),
        (0, 16, 2),
    ] {
        let mut world = world(arch, mode);
        let listener = listen(&world, SERVER, limit);
        exchange(&mut world, &listener, SERVER, b"hello");
        assert_eq!(exchange(&mut world, &listener, SERVER, b"request"), trips, "{mode:#x} {limit}");
    }
}

/// Bits 4 and 0x200: no cookie is required. With only the client's bit the server ignores the data, which is
/// retransmitted.
#[every_arch]
fn without_cookies(arch: Architecture) {
    let client = FastOpenMode::CLIENT | FastOpenMode::CLIENT_WITHOUT_COOKIE | FastOpenMode::SERVER;
    for (mode, trips, refused) in [(client | FastOpenMode::SERVER_WITHOUT_COOKIE, 1, 0), (client, 2, 1)] {
        let mut world = world(arch, mode);
        let listener = listen(&world, SERVER, 16);
        // Resolves the neighbour.
        let client = Connect::new().start(&world.b, SERVER).unwrap();
        world.pass(Duration::from_secs(1));
        drop((accept(&listener), client));
        assert_eq!(exchange(&mut world, &listener, SERVER, b"request"), trips);
        assert_eq!(world.counters().dropped(DropReason::TcpFastOpenRefused), refused);
    }
}

/// After a change of keys the old cookie is valid as long as its key is the second, and gets a new one.
#[every_arch]
fn keys_are_rotated(arch: Architecture) {
    let keys = ["00000001-00000002-00000003-00000004", "00000005-00000006-00000007-00000008"];
    let mut world = world(arch, FastOpenMode::CLIENT | FastOpenMode::SERVER);
    let listener = listen(&world, SERVER, 16);
    let set = |world: &World, key: &str| world.a.set_knob("net.ipv4.tcp_fastopen_key", key).unwrap();
    set(&world, keys[0]);
    exchange(&mut world, &listener, SERVER, b"hello");
    set(&world, &format!("{},{}", keys[1], keys[0]));
    assert_eq!(exchange(&mut world, &listener, SERVER, b"by the old key"), 1);
    set(&world, keys[1]);
    assert_eq!(exchange(&mut world, &listener, SERVER, b"by the new key"), 1);
    set(&world, keys[0]);
    assert_eq!(exchange(&mut world, &listener, SERVER, b"a key too late"), 2);
    assert_eq!(exchange(&mut world, &listener, SERVER, b"and learnt again"), 1);
}

/// The server answers, and closes, before the handshake is complete.
#[every_arch]
fn an_early_connection_is_accepted_before_its_handshake_is_complete(arch: Architecture) {
    let mut world = world(arch, FastOpenMode::CLIENT | FastOpenMode::SERVER);
    let listener = listen(&world, SERVER, 16);
    exchange(&mut world, &listener, SERVER, b"hello");
    let client = open(&world, SERVER, b"request");
    world.pass(DELAY + Duration::from_millis(1));
    let mut server = accept(&listener).expect("a connection waits");
    assert_eq!((state(&server), listener.early(), listener.occupancy()), (State::SynReceived, 1, (0, 0)));
    assert_eq!(read(&server), b"request");
    server.write_all(b"answer").unwrap();
    drop(server);
    world.pass(DELAY + Duration::from_millis(1));
    assert_eq!(read(&client), b"answer");
    assert_eq!(listener.early(), 1, "the acknowledgement is on its way");
    world.pass(DELAY);
    assert_eq!(listener.early(), 0);
    drop(client);
    world.pass(Duration::from_secs(90));
    assert_eq!((world.a.stats().connections, world.b.stats().connections), (0, 0));
}

/// The limit bounds early connections: one more gets a normal handshake. The clients' acknowledgements never arrive.
#[every_arch]
fn the_limit_bounds_early_connections(arch: Architecture) {
    let mut world = world(arch, FastOpenMode::CLIENT | FastOpenMode::SERVER);
    let listener = listen(&world, SERVER, 3);
    exchange(&mut world, &listener, SERVER, b"hello");
    let clients: Vec<TcpStream> = (0..5).map(|_| open(&world, SERVER, b"request")).collect();
    world.pass(DELAY + Duration::from_millis(1));
    assert_eq!((listener.early(), listener.occupancy()), (3, (2, 3)));
    let early: Vec<TcpStream> = std::iter::from_fn(|| accept(&listener)).collect();
    assert_eq!(early.iter().map(read).collect::<Vec<_>>(), vec![b"request".to_vec(); 3]);
    world.pass(4 * DELAY);
    let late: Vec<TcpStream> = std::iter::from_fn(|| accept(&listener)).collect();
    assert_eq!(late.iter().map(read).collect::<Vec<_>>(), vec![b"request".to_vec(); 2]);
    assert_eq!((listener.early(), listener.occupancy()), (0, (0, 0)));
    drop((clients, early, late));
}

/// A client that aborts at once: the reset ends the connection and keeps its place for a while (RFC 7413 section 5.1).
#[every_arch]
fn a_reset_keeps_its_place_for_a_while(arch: Architecture) {
    let mut world = world(arch, FastOpenMode::CLIENT | FastOpenMode::SERVER);
    let listener = listen(&world, SERVER, 1);
    exchange(&mut world, &listener, SERVER, b"hello");
    // A client in SYN-SENT sends nothing when it closes; its stack answers the SYN-ACK with a reset.
    drop(open(&world, SERVER, b"request"));
    world.pass(4 * DELAY);
    let failed = accept(&listener).expect("it was open");
    assert_eq!((state(&failed), listener.early()), (State::Closed, 1));
    drop(failed);
    assert_eq!(exchange(&mut world, &listener, SERVER, b"request"), 2, "the place is taken");
    world.pass(Duration::from_secs(61));
    assert_eq!(exchange(&mut world, &listener, SERVER, b"request"), 1);
    assert_eq!(listener.early(), 0);
    world.pass(Duration::from_secs(90));
    assert_eq!((world.a.stats().connections, world.b.stats().connections), (0, 0));
}

/// A listener that closes resets what it has opened early.
#[every_arch]
fn closing_the_listener_resets_early_connections(arch: Architecture) {
    let mut world = world(arch, FastOpenMode::CLIENT | FastOpenMode::SERVER);
    let listener = listen(&world, SERVER, 16);
    exchange(&mut world, &listener, SERVER, b"hello");
    let client = open(&world, SERVER, b"request");
    world.pass(DELAY + Duration::from_millis(1));
    drop(listener);
    world.pass(4 * DELAY);
    assert_eq!(state(&client), State::Closed);
    drop(client);
    world.pass(Duration::from_secs(90));
    assert_eq!((world.a.stats().connections, world.b.stats().connections), (0, 0));
}

/// A server that stops answering: the open falls back, and Fast Open is disabled for the destination for a minute.
#[every_arch]
fn silence_is_suspected(arch: Architecture) {
    let mut world = world(arch, FastOpenMode::CLIENT | FastOpenMode::SERVER);
    let listener = listen(&world, SERVER, 16);
    exchange(&mut world, &listener, SERVER, b"hello");
    let offer = |world: &World| {
        let shared = world.b.inner_stack().shared().clone();
        shared.destinations.offer(
            "10.0.0.1".parse().unwrap(),
            1460,
            shared.control().tcp().fast_open,
            world.clock.now(),
        )
    };
    assert!(offer(&world).max_data > 0);
    let client = open(&world, "10.0.0.77:80", b"request");
    world.pass(Duration::from_secs(2));
    let shared = world.b.inner_stack().shared().clone();
    let silent = shared.destinations.offer(
        "10.0.0.77".parse().unwrap(),
        1460,
        shared.control().tcp().fast_open,
        world.clock.now(),
    );
    assert_eq!(silent, Default::default(), "no offer to who does not answer");
    assert!(offer(&world).max_data > 0, "others are not suspected");
    drop(client);
}
