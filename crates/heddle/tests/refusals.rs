//! The pool refuses the n-th buffer of a scenario, for every n, under every architecture: callers get an error, other
//! data is not lost, and no state leaks.
//!
//! It refuses on one thread only, and everything here runs on one; other tests of the process notice nothing.

mod world;

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use every_arch::every_arch;
use heddle::{
    Architecture, BuildError, Connect, ConnectError, Interface, Stack, TcpListener, TcpStream, UdpSocket, mem,
};
use world::World;

/// More than any scenario needs.
const MOST: u64 = 2000;
/// Two segments and a half, and more than fits one small buffer.
const LENGTH: usize = 3500;
/// A refused buffer costs at most one retransmission time-out, that of a SYN at the longest, and a second refusal in a
/// row another one. In virtual time.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

fn data(seed: u8) -> Vec<u8> {
    (0..LENGTH).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// `None`: no progress now, or no buffer; every other error fails the test.
fn progress(result: io::Result<usize>) -> Option<usize> {
    match result {
        Ok(count) => Some(count),
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::OutOfMemory].contains(&error.kind()) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Lets time pass until `step` is done.
fn until(world: &mut World, what: &str, mut step: impl FnMut(&mut World) -> bool) {
    let end = world.clock.now() + LONGEST_PAUSE;
    loop {
        world.settle();
        if step(world) {
            return;
        }
        assert!(world.clock.now() < end, "{what}: nothing for {LONGEST_PAUSE:?}");
        world.step(end);
    }
}

fn connect(world: &mut World) -> TcpStream {
    let remote = "10.0.0.1:80";
    let mut stream = None;
    until(world, "connect", |world| {
        match Connect::new().start(&world.b, remote) {
            Ok(opened) => stream = Some(opened),
            Err(ConnectError::Refused(_, stack::ConnectRefused::NoBuffer)) => {}
            Err(error) => panic!("{error}"),
        }
        stream.is_some()
    });
    stream.expect("until it is there")
}

/// One direction: the data still to be sent, and the data received.
struct Way {
    left: Vec<u8>,
    come: Vec<u8>,
    ended: bool,
}

impl Way {
    fn new(seed: u8) -> Way {
        Way { left: data(seed), come: Vec::new(), ended: false }
    }

    fn step(&mut self, mut from: &TcpStream, mut to: &TcpStream) {
        while !self.left.is_empty() {
            let Some(count) = progress(from.write(&self.left)) else { break };
            self.left.drain(..count);
            if self.left.is_empty() {
                from.shutdown(std::net::Shutdown::Write).expect("it is established");
            }
        }
        let mut buffer = [0; 1000];
        while !self.ended {
            let Some(count) = progress(to.read(&mut buffer)) else { break };
            self.come.extend_from_slice(&buffer[..count]);
            self.ended = count == 0;
        }
    }
}

/// A connection with data both ways and a pair of datagrams.
fn conversation(world: &mut World) {
    let listener = TcpListener::bind(&world.a, "10.0.0.1:80").expect("the port is free");
    listener.set_nonblocking(true).unwrap();
    let client = connect(world);
    let mut server = None;
    until(world, "accept", |_| {
        server = listener.accept().ok();
        server.is_some()
    });
    let (server, _) = server.expect("until it is there");
    server.set_nonblocking(true).unwrap();
    let (mut up, mut down) = (Way::new(1), Way::new(2));
    until(world, "the data", |_| {
        up.step(&client, &server);
        down.step(&server, &client);
        up.ended && down.ended
    });
    assert!(up.come == data(1) && down.come == data(2), "what arrived is not what was sent");
    datagrams(world);
}

/// A datagram may be lost; its sender may get the error that there is no buffer.
fn datagrams(world: &mut World) {
    let [a, b] = [(&world.a, "10.0.0.1:53"), (&world.b, "10.0.0.2:53")].map(|(stack, address)| {
        let socket = UdpSocket::bind(stack, address).expect("the port is free");
        socket.set_nonblocking(true).unwrap();
        socket
    });
    let mut buffer = [0; 3000];
    until(world, "the datagram", |_| {
        let _ = progress(b.send_to(&[7; 2500], "10.0.0.1:53"));
        progress(a.recv_from(&mut buffer).map(|(count, _)| count)).is_some()
    });
    assert_eq!(buffer[..2500], [7; 2500]);
}

/// Refusals that a scenario must at least have met. Only this thread's buffers are refused: a thread of the architecture
/// takes as many of the others as the scheduler gives it the time for.
fn least(arch: Architecture) -> u64 {
    if arch.properties().own_threads { 0 } else { 10 }
}

/// Whether the scenario took enough buffers for all refusals to happen.
fn refused(arch: Architecture, before: u64, refusals: u64) -> bool {
    let buffers = pktbuf::balance();
    let mut world = World::new(arch);
    pktbuf::refuse(before, refusals);
    conversation(&mut world);
    let happened = pktbuf::refusals_left() == 0;
    pktbuf::refuse(0, 0);
    world.pass(Duration::from_secs(120));
    for stack in [&world.a, &world.b] {
        let stats = stack.stats();
        assert_eq!((stats.connections, stats.timers), (0, 0), "{arch}: left after refusal {before}");
    }
    drop(world);
    assert_eq!(pktbuf::balance(), buffers, "{arch}: buffers left after refusal {before}");
    happened
}

#[every_arch]
fn every_single_buffer_may_be_refused(arch: Architecture) {
    let mut before = 0;
    while refused(arch, before, 1) {
        before += 1;
        assert!(before < MOST);
    }
    assert!(before > least(arch), "the conversation took only {before} buffers");
}

#[every_arch]
fn three_in_a_row_may_be_refused(arch: Architecture) {
    let mut before = 0;
    while refused(arch, before, 3) {
        before += 1;
        assert!(before < MOST);
    }
    assert!(before > least(arch), "the conversation took only {before} buffers");
}

/// A stack without a buffer for a frame could not receive: it is not built.
#[every_arch]
fn a_stack_is_not_built_without_a_buffer(arch: Architecture) {
    let build = || {
        let (device, _peer) = mem::pair(mem::MemConfig::default());
        Stack::builder()
            .interface(Interface::new(device).address("10.0.0.1/24").expect("an address"))
            .architecture(arch)
            .cpus(1)
            .build()
    };
    pktbuf::refuse(0, u64::MAX);
    let refused = build();
    pktbuf::refuse(0, 0);
    let error = refused.expect_err("there is no buffer");
    assert!(matches!(error, BuildError::NoBuffer), "{error}");
    assert!(error.to_string().contains("ulimit -v"), "{error}");
    assert!(build().is_ok());
}
