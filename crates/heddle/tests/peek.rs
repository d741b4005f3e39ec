//! `peek` does not consume data, in virtual time over both families.

mod world;

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use every_arch::every_arch;
use heddle::config::ConnectionOptions;
use heddle::{Architecture, Connect, TcpListener, TcpStream};
use world::World;

/// Size of the receive buffer that is peeked.
const BUFFER: u32 = 16 << 10;

/// A client's and a server's end, non-blocking; the server's receive buffer has [`BUFFER`] bytes.
fn connect(world: &mut World, server: &str) -> (TcpStream, TcpStream) {
    let options = ConnectionOptions { receive_buffer: Some(BUFFER), ..ConnectionOptions::default() };
    let listener = TcpListener::bind_with(&world.a, server, 1, options).expect("the port is free");
    listener.set_nonblocking(true).expect("it can");
    let client = Connect::new().start(&world.b, server.parse::<SocketAddr>().expect("an address")).expect("a route");
    world.settle();
    let (server, _) = listener.accept().expect("a connection waits");
    server.set_nonblocking(true).expect("it can");
    (client, server)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| ((index * 31) >> 3) as u8).collect()
}

/// recv(2), `MSG_PEEK`: "causes the receive operation to return data from the beginning of the receive queue without
/// removing that data from the queue." It still occupies the window, so the peer may not send more.
#[every_arch]
fn a_peek_leaves_the_window_as_it_is(arch: Architecture) {
    for address in ["10.0.0.1:80", "[fd00::1]:80"] {
        let mut world = World::new(arch);
        let (mut client, mut server) = connect(&mut world, address);
        let sent = pattern(4 * BUFFER as usize);
        assert_eq!(client.write(&sent).expect("there is room"), sent.len());
        world.settle();
        let full = server.unread().expect("it lives");
        assert!(full > 0 && full <= BUFFER as usize, "{full}");
        let mut seen = vec![0; sent.len()];
        for _ in 0..3 {
            assert_eq!(server.peek(&mut seen).expect("data"), full);
            assert!(seen[..full] == sent[..full]);
            world.settle();
            assert_eq!(server.unread().expect("it lives"), full, "the window is as full as before");
        }
        // After a partial read the rest of the segment is in the leftover; a peek shows both.
        assert_eq!(server.read(&mut seen[..100]).expect("data"), 100);
        assert_eq!(server.peek(&mut seen).expect("data"), full - 100);
        assert!(seen[..full - 100] == sent[100..full]);
        let mut came = sent[..100].to_vec();
        while came.len() < sent.len() {
            let count = server.read(&mut seen).expect("data");
            came.extend(&seen[..count]);
            world.settle();
        }
        assert!(came == sent, "each byte once, in order");
    }
}

#[every_arch]
fn a_peek_stops_before_urgent_data_and_at_the_end(arch: Architecture) {
    for address in ["10.0.0.1:80", "[fd00::1]:80"] {
        let mut world = World::new(arch);
        let (mut client, mut server) = connect(&mut world, address);
        client.write_all(b"abc").expect("there is room");
        assert_eq!(client.send_urgent(b"!").expect("there is room"), 1);
        client.write_all(b"def").expect("there is room");
        world.settle();
        let mut seen = [0; 16];
        assert_eq!(server.peek(&mut seen).expect("data"), 3);
        assert_eq!(server.read(&mut seen[..1]).expect("data"), 1);
        assert_eq!(server.peek(&mut seen).expect("data"), 2, "with a part beside the connection, too");
        assert_eq!(server.read(&mut seen).expect("data"), 2);
        assert!(server.at_mark().expect("it lives"));
        assert_eq!(server.peek(&mut seen).expect("data"), 4);
        assert_eq!(&seen[..4], b"!def");
        assert_eq!(server.read(&mut seen).expect("data"), 4);
        assert_eq!(server.peek(&mut seen).expect_err("nothing came").kind(), ErrorKind::WouldBlock);
        drop(client);
        world.settle();
        assert_eq!(server.peek(&mut seen).expect("the end"), 0);
        assert_eq!(server.read(&mut seen).expect("the end"), 0);
    }
}

/// The error of a connection is reported once, by the call that has nothing else to return.
#[every_arch]
fn a_peek_leaves_the_error_for_the_call_that_has_no_data(arch: Architecture) {
    for address in ["10.0.0.1:80", "[fd00::1]:80"] {
        let mut world = World::new(arch);
        let (mut client, mut server) = connect(&mut world, address);
        client.write_all(b"abc").expect("there is room");
        world.settle();
        let mut seen = [0; 16];
        assert_eq!(server.read(&mut seen[..1]).expect("data"), 1);
        client.set_linger(Some(std::time::Duration::ZERO)).expect("it lives");
        drop(client);
        world.settle();
        assert_eq!(server.peek(&mut seen).expect("data"), 2, "{address}");
        assert_eq!(server.read(&mut seen).expect("data"), 2);
        assert_eq!(server.peek(&mut seen).expect_err("it was reset").kind(), ErrorKind::ConnectionReset);
    }
}
