//! A short request keeps a small block from the call that sends it to the one that reads it: the segment that arrives is the
//! one that was sent, and the copy that waits for the acknowledgement is as small.
//!
//! The pool is the process's, so this is one test in a binary of its own.

mod world;

use std::io::{Read, Write};

use heddle::{ALL_ARCHITECTURES, Connect, TcpListener, TcpStream};
use world::World;

const CONNECTIONS: usize = 200;
/// Bytes of a small block, and how many of them are taken from the system at once.
const BLOCK: usize = 384;
const SLAB: usize = 64;

fn connected(world: &mut World, listener: &TcpListener) -> [TcpStream; 2] {
    let client = Connect::new().start(&world.b, "10.0.0.1:80").expect("a route");
    world.settle();
    let (server, _) = listener.accept().expect("the handshake is complete");
    server.set_nonblocking(true).expect("it can be set");
    [client, server]
}

#[test]
fn short_requests_keep_small_blocks() {
    let mut begin = None;
    for name in ALL_ARCHITECTURES {
        let mut world = World::new(name.parse().expect("a plan"));
        let listener = TcpListener::bind(&world.a, "10.0.0.1:80").expect("the port is free");
        listener.set_nonblocking(true).expect("it can be set");
        let mut pairs = vec![connected(&mut world, &listener)];
        let before = *begin.get_or_insert_with(pktbuf::footprint);
        pairs.extend((1..CONNECTIONS).map(|_| connected(&mut world, &listener)));
        for (index, [client, _]) in pairs.iter_mut().enumerate() {
            assert_eq!(client.write(&[index as u8; 64]).expect("room"), 64);
        }
        world.settle();
        // Each request may be there twice, unread and not acknowledged, and on its way between threads. A frame's block would be as
        // large as five of these.
        let taken = pktbuf::footprint() - before;
        assert!(taken <= (3 * CONNECTIONS).next_multiple_of(SLAB) * BLOCK, "{name}: {taken} bytes");
        for (index, [_, server]) in pairs.iter_mut().enumerate() {
            let mut request = [0; 100];
            assert_eq!(server.read(&mut request).expect("a request"), 64);
            assert_eq!(request[..64], [index as u8; 64]);
        }
    }
}
