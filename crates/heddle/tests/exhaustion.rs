//! When no packet buffer is left: no panic, no hang, the right error; and with free buffers everything continues.
//!
//! The bound of the pool is per process, so this is one test in a binary of its own.

mod world;

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use heddle::{ALL_ARCHITECTURES, Connect, TcpListener, TcpStream};
use world::World;

/// Bytes that one small block takes: 2 KiB and a header of one cache line.
const SMALL: usize = 2048 + 64;
const BUFFERS: usize = 64;

/// An established connection: the client's end at `b`, the server's at `a`.
fn connected(world: &mut World) -> (TcpStream, TcpStream, TcpListener) {
    let listener = TcpListener::bind(&world.a, "10.0.0.1:80").expect("the port is free");
    listener.set_nonblocking(true).unwrap();
    let client = Connect::new().start(&world.b, "10.0.0.1:80");
    let client = client.expect("a route");
    world.settle();
    let (server, _) = listener.accept().expect("the handshake is complete");
    server.set_nonblocking(true).unwrap();
    (client, server, listener)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Moves `data` both ways at once, in pieces that fit one small buffer; returns how often there was no buffer.
fn both_ways(world: &mut World, ends: [&TcpStream; 2], data: &[u8]) -> u64 {
    let (mut sent, mut received, mut refused) = ([0; 2], [Vec::new(), Vec::new()], 0);
    let mut buffer = vec![0; 4096];
    let end = world.clock.now() + Duration::from_secs(600);
    while received.iter().any(|received| received.len() < data.len()) {
        let mut moved = false;
        for (index, mut stream) in ends.into_iter().enumerate() {
            while sent[index] < data.len() {
                match stream.write(&data[sent[index]..data.len().min(sent[index] + 1400)]) {
                    Ok(count) => (sent[index], moved) = (sent[index] + count, true),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                        refused += 1;
                        break;
                    }
                }
            }
            // Half of the time there are no reads, so that buffers accumulate at the receiver as well.
            while world.clock.now().as_millis().is_multiple_of(2) {
                match stream.read(&mut buffer) {
                    Ok(0) => panic!("the stream ends"),
                    Ok(count) => received[1 - index].extend_from_slice(&buffer[..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("read: {error}"),
                }
                moved = true;
            }
        }
        world.settle();
        if !moved {
            assert!(world.clock.now() < end, "stuck at {sent:?} and {:?}", received.map(|received| received.len()));
            world.pass(Duration::from_millis(1));
        }
    }
    assert!(received.iter().all(|received| received == data));
    refused
}

/// Two stacks that share 64 buffers, and then have no limit.
#[test]
fn sixty_four_buffers_are_enough() {
    let data = pattern(150_000);
    pktbuf::set_limit(BUFFERS * SMALL);
    let transfer = |name: &str| {
        let buffers = pktbuf::balance();
        let mut world = World::new(name.parse().expect("a plan"));
        let (client, server, listener) = connected(&mut world);
        let refused = both_ways(&mut world, [&client, &server], &data);
        drop((client, server, listener, world));
        assert_eq!(pktbuf::balance(), buffers, "{name}");
        refused
    };
    for name in ALL_ARCHITECTURES {
        assert!(transfer(name) > 0, "{name}: the pool was never exhausted");
        assert!(pktbuf::footprint() <= BUFFERS * SMALL, "{name}: {}", pktbuf::footprint());
    }
    pktbuf::set_limit(usize::MAX);
    assert_eq!(transfer("up"), 0, "with buffers it goes on as if nothing had been");
}
