//! Buffers are freed exactly once (invariant G5): when everything is dropped, all are back in the pool.
//!
//! The pool is per process, so this is a binary of its own with tests that run one at a time.

mod pair;
mod world;

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use every_arch::every_arch;
use heddle::{Architecture, Connect, TcpListener, TcpStream, UdpSocket};
use pair::{pattern, stacks};
use world::World;

static TURN: Mutex<()> = Mutex::new(());

/// Runs `test` alone and counts the buffers that it leaks.
fn balanced(test: impl FnOnce()) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = pktbuf::live();
    test();
    assert_eq!(pktbuf::live(), before, "buffers in use at the end, and at the beginning");
}

/// Every queue of the stack still has contents when it is dropped.
#[every_arch]
fn in_the_middle_of_everything(arch: Architecture) {
    balanced(|| {
        let mut world = World::new(arch);
        let listener = TcpListener::bind(&world.a, "10.0.0.1:80").unwrap();
        let open = |world: &World| Connect::new().start(&world.b, "10.0.0.1:80").unwrap();
        let mut first = open(&world);
        world.settle();
        let (mut server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        // Established and not accepted.
        let second = open(&world);
        world.settle();
        // Received and not read; read in part; sent and not received; queued for want of a window.
        first.write_all(&pattern(1, 5000)).unwrap();
        world.settle();
        assert_eq!(server.read(&mut [0; 100]).unwrap(), 100);
        let data: Arc<[u8]> = pattern(2, 900_000).into();
        while first.send_shared(&data, 0..900_000).is_ok() {
            world.settle();
        }
        server.write_all(&pattern(3, 20_000)).unwrap();
        // Received and not read; on the link.
        let datagrams = UdpSocket::bind(&world.b, "10.0.0.2:53").unwrap();
        let receiver = UdpSocket::bind(&world.a, "10.0.0.1:53").unwrap();
        datagrams.send_to(&pattern(4, 9000), "10.0.0.1:53").unwrap();
        world.settle();
        datagrams.send_to(&pattern(5, 9000), "10.0.0.1:53").unwrap();
        // Waiting for a neighbour that does not exist.
        datagrams.send_to(b"anybody?", "10.0.0.9:53").unwrap();
        let nobody = Connect::new().start(&world.b, "10.0.0.9:80").unwrap();
        drop((first, second, server, listener, datagrams, receiver, nobody));
        assert!(pktbuf::live() > 0, "the test leaves something to be freed");
    });
}

/// A lossy link, with time for recovery.
#[every_arch]
fn after_losses(arch: Architecture) {
    balanced(|| {
        let mut world = World::lossy(arch, "loss 5% reorder 1ms seed 3");
        let listener = TcpListener::bind(&world.a, "10.0.0.1:80").unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut client = Connect::new().start(&world.b, "10.0.0.1:80").unwrap();
        let mut server = None;
        let (data, mut sent, mut received) = (pattern(6, 400_000), 0, Vec::new());
        let mut buffer = vec![0; 65_536];
        for _ in 0..60_000 {
            world.pass(Duration::from_millis(1));
            if server.is_none() {
                server = listener.accept().ok();
                server.iter().for_each(|(stream, _)| stream.set_nonblocking(true).unwrap());
            }
            sent += client.write(&data[sent..]).unwrap_or(0);
            while let Some((stream, _)) = &mut server
                && let Ok(count @ 1..) = stream.read(&mut buffer)
            {
                received.extend_from_slice(&buffer[..count]);
            }
            if received.len() == data.len() {
                break;
            }
        }
        assert!(received == data, "{} of {} bytes came", received.len(), data.len());
    });
}

#[every_arch]
fn with_threads(arch: Architecture) {
    balanced(|| {
        let (a, b) = stacks(arch);
        let listener = TcpListener::bind(&a, "10.0.0.1:80").unwrap();
        let writers = [(); 4].map(|()| {
            let mut stream = TcpStream::connect(&b, "10.0.0.1:80").unwrap();
            thread::spawn(move || {
                // Until the peer resets the connection, with data in flight.
                while stream.write(&[7; 30_000]).is_ok() {}
            })
        });
        let mut servers: Vec<TcpStream> = listener.incoming().take(4).map(|stream| stream.unwrap()).collect();
        for stream in &mut servers {
            stream.read_exact(&mut [0; 100_000]).unwrap();
        }
        drop((servers, listener));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}
