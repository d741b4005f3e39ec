//! The poller: many sockets, one thread, edges and a file descriptor.

mod pair;
mod world;

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::Duration;

use every_arch::every_arch;
use heddle::{Architecture, Connect, Event, Poller, Readiness, Source, TcpListener, TcpStream, UdpSocket};
use pair::{connected, stacks};
use rustix::event::{PollFd, PollFlags, Timespec};
use testbed::limit::{HANG, within};
use world::World;

const LISTENER: usize = 1000;
const DATAGRAMS: usize = 1001;

/// The current events of `poller`, by token.
fn events(poller: &Poller) -> Vec<(usize, Readiness)> {
    let mut events = Vec::new();
    poller.try_wait(&mut events, 1024);
    let mut events: Vec<_> = events.iter().map(|event: &Event| (event.token, event.ready)).collect();
    events.sort_by_key(|(token, _)| *token);
    events
}

fn tokens(poller: &Poller) -> Vec<usize> {
    events(poller).into_iter().map(|(token, _)| token).collect()
}

fn drain(mut stream: &TcpStream) -> usize {
    let mut buffer = [0; 4096];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return total,
            Ok(count) => total += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return total,
            Err(error) => panic!("read: {error}"),
        }
    }
}

#[every_arch]
fn only_what_is_ready_is_reported_and_once(arch: Architecture) {
    const MANY: usize = 50;
    let mut world = World::new(arch);
    let poller = Poller::new().unwrap();
    let listener = TcpListener::bind(&world.a, "10.0.0.1:80").unwrap();
    listener.set_nonblocking(true).unwrap();
    listener.register(&poller, LISTENER);
    assert!(tokens(&poller).is_empty());
    // The neighbour must be known: only few SYNs may wait for its address, the others are retransmitted after a second.
    UdpSocket::bind(&world.b, "10.0.0.2:0").unwrap().send_to(b"x", "10.0.0.1:9").unwrap();
    world.settle();
    let open = |_| Connect::new().start(&world.b, "10.0.0.1:80").unwrap();
    let mut clients: Vec<TcpStream> = (0..MANY).map(open).collect();
    world.settle();
    assert_eq!(events(&poller), [(LISTENER, Readiness::ACCEPTABLE)], "one entry, however many edges");
    let mut servers = Vec::new();
    while let Ok((server, _)) = listener.accept() {
        server.set_nonblocking(true).unwrap();
        server.register(&poller, servers.len());
        servers.push(server);
    }
    assert_eq!(servers.len(), MANY);
    // Registering reports present readiness: all are writable.
    assert_eq!(tokens(&poller), (0..MANY).collect::<Vec<_>>());
    assert!(tokens(&poller).is_empty(), "an edge is told once");

    clients[7].write_all(b"x").unwrap();
    clients[30].write_all(b"y").unwrap();
    world.settle();
    let mut seen = events(&poller);
    seen.retain(|(_, ready)| ready.contains(Readiness::READABLE));
    let ports: Vec<u16> = seen.iter().map(|(token, _)| servers[*token].peer_addr().unwrap().port()).collect();
    let mut expected = [clients[7].local_addr().unwrap().port(), clients[30].local_addr().unwrap().port()].to_vec();
    expected.sort_by_key(|port| servers.iter().position(|server| server.peer_addr().unwrap().port() == *port));
    assert_eq!(ports, expected);

    // After a read that found nothing, the next data is an edge.
    let token = seen[0].0;
    assert_eq!(drain(&servers[token]), 1);
    let client =
        clients.iter_mut().find(|client| client.local_addr().unwrap() == servers[token].peer_addr().unwrap()).unwrap();
    client.write_all(b"z").unwrap();
    world.settle();
    assert_eq!(tokens(&poller), [token]);
}

#[every_arch]
fn who_is_not_registered_is_not_reported(arch: Architecture) {
    let mut world = World::new(arch);
    let poller = Poller::new().unwrap();
    let socket = UdpSocket::bind(&world.a, "10.0.0.1:53").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.register(&poller, DATAGRAMS);
    events(&poller);
    let client = UdpSocket::bind(&world.b, "10.0.0.2:0").unwrap();
    let send = |world: &mut World| {
        client.send_to(b"x", "10.0.0.1:53").unwrap();
        world.settle();
    };
    send(&mut world);
    assert_eq!(tokens(&poller), [DATAGRAMS]);
    socket.register(&poller, 5);
    assert_eq!(tokens(&poller), [5], "another token replaces the first, and the level is told");
    // Queued, and then taken out.
    send(&mut world);
    socket.deregister();
    assert!(tokens(&poller).is_empty());
    send(&mut world);
    assert!(tokens(&poller).is_empty());
    socket.register(&poller, 6);
    assert_eq!(tokens(&poller), [6], "datagrams wait");
}

/// A token may be reused as soon as its socket is dropped.
#[every_arch]
fn a_dropped_socket_is_silent(arch: Architecture) {
    let mut world = World::new(arch);
    let poller = Poller::new().unwrap();
    let listener = TcpListener::bind(&world.a, "10.0.0.1:80").unwrap();
    let client = Connect::new().start(&world.b, "10.0.0.1:80").unwrap();
    client.register(&poller, 3);
    world.settle();
    assert_eq!(tokens(&poller), [3]);
    let (mut server, _) = listener.accept().unwrap();
    server.write_all(b"queued").unwrap();
    world.settle();
    drop(client);
    drop(server);
    world.pass(Duration::from_secs(1));
    assert!(tokens(&poller).is_empty());
}

/// Whether the descriptor polls readable within `timeout`.
fn readable(poller: &Poller, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(poller, PollFlags::IN)];
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    rustix::event::poll(&mut fds, Some(&timeout)).unwrap() == 1
}

#[every_arch]
fn the_descriptor_polls_readable_while_there_are_events(arch: Architecture) {
    within(move || {
        let (a, b) = stacks(arch);
        let (mut client, server) = connected(&a, &b);
        server.set_nonblocking(true).unwrap();
        let poller = Poller::new().unwrap();
        server.register(&poller, 1);
        assert_eq!(tokens(&poller), [1]);
        for _ in 0..20 {
            drain(&server);
            let writer = thread::spawn(move || {
                client.write_all(b"x").unwrap();
                client
            });
            let mut seen = tokens(&poller);
            while seen.is_empty() {
                // False: an event occurred between the check and the arming.
                if poller.arm() {
                    assert!(readable(&poller, HANG), "the descriptor stays silent");
                }
                seen = tokens(&poller);
            }
            assert_eq!(seen, [1]);
            client = writer.join().unwrap();
            while drain(&server) == 0 {
                server.wait(Readiness::READABLE, None);
            }
            while !tokens(&poller).is_empty() {}
        }
        // Of a socket to which nobody sends: the connection's last event may come later than its data.
        let (idle, poller) = (UdpSocket::bind(&a, "10.0.0.1:53").unwrap(), Poller::new().unwrap());
        idle.register(&poller, 2);
        while !tokens(&poller).is_empty() {}
        assert!(poller.arm(), "there is nothing left");
        assert!(!readable(&poller, Duration::ZERO));
    });
}

#[test]
fn a_wake_ends_a_wait_without_an_event() {
    within(|| {
        let poller = Poller::new().unwrap();
        let waiting = poller.clone();
        let waiter = thread::spawn(move || waiting.wait(&mut Vec::new(), 8, None));
        poller.wake();
        assert_eq!(waiter.join().unwrap(), 0);
        let start = std::time::Instant::now();
        assert_eq!(poller.wait(&mut Vec::new(), 8, Some(Duration::from_millis(5))), 0);
        assert!(start.elapsed() >= Duration::from_millis(5), "a wake ends one wait");
    });
}
