//! Data both ways under every architecture, in virtual time on one thread.

mod world;

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use every_arch::every_arch;
use heddle::mem::MemConfig;
use heddle::{Architecture, Connect, TcpListener, TcpStream};
use observe::Counter;
use world::World;

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Opens a connection from `b` to a listener on `a`.
fn connect(world: &mut World, address: &str) -> (TcpStream, TcpStream, TcpListener) {
    let listener = TcpListener::bind(&world.a, address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let client = Connect::new().start(&world.b, address).unwrap();
    world.settle();
    let (server, peer) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    (client, server, listener)
}

/// Moves `data` from one stream to the other and returns the received data.
fn transfer(world: &mut World, mut from: &TcpStream, mut to: &TcpStream, data: &[u8]) -> Vec<u8> {
    let mut received = Vec::new();
    let mut sent = 0;
    let mut buffer = vec![0; 1 << 16];
    let mut idle = 0;
    while received.len() < data.len() {
        let before = (sent, received.len());
        while sent < data.len() {
            match from.write(&data[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("write: {error}"),
            }
        }
        world.settle();
        loop {
            match to.read(&mut buffer) {
                Ok(0) => panic!("end of stream after {} bytes", received.len()),
                Ok(count) => received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("read: {error}"),
            }
        }
        if (sent, received.len()) == before {
            idle += 1;
            assert!(idle < 5_000, "no progress at {} of {} bytes", received.len(), data.len());
            world.pass(Duration::from_millis(1));
        } else {
            idle = 0;
        }
    }
    received
}

#[every_arch]
fn a_megabyte_each_way(arch: Architecture) {
    let mut world = World::new(arch);
    let (client, server, _listener) = connect(&mut world, "10.0.0.1:80");
    let data = pattern(1 << 20);
    assert!(transfer(&mut world, &client, &server, &data) == data);
    assert!(transfer(&mut world, &server, &client, &data) == data);
}

#[every_arch]
fn the_same_over_ipv6(arch: Architecture) {
    let mut world = World::new(arch);
    let (client, server, _listener) = connect(&mut world, "[fd00::1]:80");
    let data = pattern(300_000);
    assert!(transfer(&mut world, &client, &server, &data) == data);
}

/// However few frames a device has room for, each connection gets its turn when there is room: no virtual time passes,
/// so no connection waited for a retransmission.
#[every_arch]
fn a_device_with_room_for_a_frame_or_a_few(arch: Architecture) {
    for ring_frames in [1, 2, 7, 32, 64, 100] {
        let mut world = World::with(arch, |_| {}, MemConfig { ring_frames, ..MemConfig::default() });
        let (client, server, _listener) = connect(&mut world, "10.0.0.1:80");
        let data = pattern(200_000);
        let begun = world.clock.now();
        assert!(transfer(&mut world, &client, &server, &data) == data);
        assert!(transfer(&mut world, &server, &client, &data) == data);
        let took = world.clock.now() - begun;
        assert!(took < Duration::from_millis(200), "{took:?} with room for {ring_frames}");
        assert_eq!(world.counters().get(Counter::Retransmits), 0, "with room for {ring_frames}");
    }
}

#[every_arch]
fn closing_leaves_nothing_behind(arch: Architecture) {
    let mut world = World::new(arch);
    let (client, server, listener) = connect(&mut world, "10.0.0.1:80");
    let data = pattern(10_000);
    assert!(transfer(&mut world, &client, &server, &data) == data);
    drop(client);
    world.settle();
    let mut rest = [0; 10];
    assert_eq!((&server).read(&mut rest).unwrap(), 0);
    drop(server);
    drop(listener);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.a.stats().connections, 0, "the passive closer");
    world.pass(Duration::from_secs(61));
    assert_eq!(world.b.stats().connections, 0, "TIME-WAIT is over");
    assert_eq!((world.a.stats().timers, world.b.stats().timers), (0, 0));
}
