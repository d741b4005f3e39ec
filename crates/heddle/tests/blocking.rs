//! Sockets that block, used by several threads, over stacks with threads of their own.

mod pair;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use every_arch::every_arch;
use heddle::{Architecture, Connect, ConnectError, Readiness, TcpListener, TcpStream, UdpSocket};
use pair::{connected, pattern, stacks};
use testbed::limit::{HANG, within};

/// Long enough to distinguish a read that waits from one that does not.
const SHORT: Duration = Duration::from_millis(20);

#[every_arch]
fn a_read_waits_for_the_peer(arch: Architecture) {
    within(move || {
        let (a, b) = stacks(arch);
        let (mut client, mut server) = connected(&a, &b);
        let reader = thread::spawn(move || {
            let mut greeting = [0; 5];
            server.read_exact(&mut greeting).map(|()| greeting)
        });
        client.write_all(b"hello").unwrap();
        assert_eq!(&reader.join().unwrap().unwrap(), b"hello");
    });
}

#[every_arch]
fn a_read_gives_up_after_its_time(arch: Architecture) {
    within(move || {
        let (a, b) = stacks(arch);
        let (_client, mut server) = connected(&a, &b);
        server.set_read_timeout(Some(SHORT)).unwrap();
        let start = Instant::now();
        let error = server.read(&mut [0; 8]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
        assert!(start.elapsed() >= SHORT, "{:?} is too early", start.elapsed());
        assert!(error.to_string().contains("10.0.0.2"), "{error} names the peer");
    });
}

#[every_arch]
fn a_write_gives_up_after_its_time(arch: Architecture) {
    within(move || {
        let (a, b) = stacks(arch);
        let (mut client, _server) = connected(&a, &b);
        client.set_write_timeout(Some(SHORT)).unwrap();
        let data = vec![0; 64 << 10];
        let mut written = 0;
        let error = loop {
            match client.write(&data) {
                Ok(count) => written += count,
                Err(error) => break error,
            }
            assert!(written < 64 << 20, "the peer does not read, and the buffers have a limit");
        };
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    });
}

#[every_arch]
fn without_blocking_nobody_waits(arch: Architecture) {
    within(move || {
        let (a, b) = stacks(arch);
        let (_client, mut server) = connected(&a, &b);
        server.set_nonblocking(true).unwrap();
        assert_eq!(server.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let socket = UdpSocket::bind(&a, "10.0.0.1:53").unwrap();
        socket.set_nonblocking(true).unwrap();
        assert_eq!(socket.recv_from(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(SHORT)).unwrap();
        assert_eq!(socket.recv_from(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[every_arch]
fn a_listener_waits_no_longer_than_it_is_told(arch: Architecture) {
    within(move || {
        let (a, _b) = stacks(arch);
        let listener = TcpListener::bind(&a, "10.0.0.1:80").unwrap();
        let start = Instant::now();
        let error = listener.accept_timeout(SHORT).unwrap_err();
        assert!(start.elapsed() >= SHORT);
        assert!(error.to_string().contains("10.0.0.1:80"), "{error} names the listener");
    });
}

#[every_arch]
fn one_thread_reads_while_another_writes(arch: Architecture) {
    const LENGTH: usize = 2 << 20;
    within(move || {
        let (a, b) = stacks(arch);
        let (client, server) = connected(&a, &b);
        let both_ways = |stream: TcpStream, sends: usize, expects: usize| {
            let mut writing = stream.clone();
            let writer = thread::spawn(move || {
                writing.write_all(&pattern(sends, LENGTH)).unwrap();
                writing.shutdown(Shutdown::Write).unwrap();
            });
            let reader = thread::spawn(move || {
                let mut received = Vec::new();
                (&stream).read_to_end(&mut received).unwrap();
                assert!(received == pattern(expects, LENGTH), "{} bytes, not what was sent", received.len());
            });
            [writer, reader]
        };
        let threads = [both_ways(client, 1, 2), both_ways(server, 2, 1)];
        threads.into_iter().flatten().for_each(|thread| thread.join().unwrap());
    });
}

#[every_arch]
fn shutting_down_ends_the_wait_of_another_thread(arch: Architecture) {
    within(move || {
        let (a, b) = stacks(arch);
        let (mut client, server) = connected(&a, &b);
        let reading = server.clone();
        let reader = thread::spawn(move || (&reading).read(&mut [0; 8]));
        server.shutdown(Shutdown::Read).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), 0);

        let writing = client.clone();
        let writer = thread::spawn(move || {
            loop {
                if let Err(error) = (&writing).write(&[0; 64 << 10]) {
                    return error;
                }
            }
        });
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(writer.join().unwrap().kind(), ErrorKind::BrokenPipe);
        assert_eq!(client.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[every_arch]
fn nobody_listens_there(arch: Architecture) {
    within(move || {
        let (_a, b) = stacks(arch);
        let error = TcpStream::connect(&b, "10.0.0.1:81").unwrap_err();
        assert!(matches!(error, ConnectError::Failed(_, _)), "{error:?}");
        assert!(error.to_string().contains("10.0.0.1:81"), "{error} names the address");
        assert_eq!(std::io::Error::from(error).kind(), ErrorKind::ConnectionRefused);
    });
}

#[every_arch]
fn nobody_is_there(arch: Architecture) {
    within(move || {
        let (_a, b) = stacks(arch);
        let error = TcpStream::connect_timeout(&b, "10.0.0.9:80", SHORT).unwrap_err();
        assert_eq!(error, ConnectError::TimedOut("10.0.0.9:80".parse().unwrap()));
        assert!(error.to_string().contains("10.0.0.9:80"), "{error} names the address");
    });
}

/// The peer's stack and device are gone: the rest can still be used and dropped.
#[every_arch]
fn a_stack_outlives_its_peer(arch: Architecture) {
    within(move || {
        let (a, b) = stacks(arch);
        let (mut client, server) = connected(&a, &b);
        let listener = TcpListener::bind(&b, "10.0.0.2:80").unwrap();
        drop((server, a));
        // The device is gone with the other end of the link: its connection ends with an error, unless the peer's end
        // of the stream arrived before.
        client.wait(Readiness::ERROR, Some(HANG));
        match client.read(&mut [0; 8]) {
            Ok(count) => assert_eq!(count, 0, "the peer closed before it went"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NetworkDown, "{error}"),
        }
        assert!(client.write(b"anybody?").is_err());
        assert_eq!(b.stats().connections, 1, "it stays until it is closed");
        // Time passes without a device: a connection opened now ends, too. Fewer tries suffice here; the connection
        // above had to be established on a possibly busy machine.
        b.set_knob("tcp_syn_retries", "1").unwrap();
        let error = std::io::Error::from(TcpStream::connect(&b, "10.0.0.1:80").unwrap_err());
        assert!([ErrorKind::TimedOut, ErrorKind::NetworkDown].contains(&error.kind()), "{error}");
        drop((listener, client, b));
    });
}

#[every_arch]
fn a_stack_with_open_sockets_ends(arch: Architecture) {
    within(move || {
        let (a, b) = stacks(arch);
        let listener = TcpListener::bind(&a, "10.0.0.1:80").unwrap();
        let clients: Vec<_> = (0..4).map(|_| TcpStream::connect(&b, "10.0.0.1:80").unwrap()).collect();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"nobody reads this").unwrap();
        let opening = Connect::new().start(&b, "10.0.0.9:80").unwrap();
        let socket = UdpSocket::bind(&b, "10.0.0.2:53").unwrap();
        // The handles of the stacks are dropped first: the sockets keep the stacks alive, and the last one ends them.
        drop((a, b));
        drop((server, listener, socket, opening, clients));
    });
}

/// A call of [`TcpStream::wait`] is woken by the bits that it waits for, whatever other threads wait for.
#[every_arch]
fn many_wait_for_one_connection(arch: Architecture) {
    within(move || {
        let (a, b) = stacks(arch);
        let (mut client, server) = connected(&a, &b);
        let wait = |bit| {
            let stream = server.clone();
            thread::spawn(move || stream.wait(bit, None))
        };
        let threads = [wait(Readiness::READABLE), wait(Readiness::READABLE), wait(Readiness::PEER_CLOSED)];
        client.write_all(b"x").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        for thread in threads {
            assert!(thread.join().unwrap().intersects(Readiness::READABLE | Readiness::PEER_CLOSED));
        }
    });
}

#[every_arch]
fn datagrams_of_several_threads_arrive(arch: Architecture) {
    const EACH: usize = 16;
    within(move || {
        let (a, b) = stacks(arch);
        let server = UdpSocket::bind(&a, "10.0.0.1:53").unwrap();
        let client = Arc::new(UdpSocket::bind(&b, "10.0.0.2:0").unwrap());
        // One at a time until the neighbour is known; the queue for an address is bounded.
        client.send_to(b"first", "10.0.0.1:53").unwrap();
        assert_eq!(server.recv_from(&mut [0; 8]).unwrap(), (5, client.local_addr().unwrap()));
        let send = |thread: usize| {
            let client = client.clone();
            thread::spawn(move || {
                (0..EACH).for_each(|n| {
                    client.send_to(&pattern(thread * EACH + n, 900), "10.0.0.1:53").unwrap();
                });
            })
        };
        let senders: Vec<_> = (0..4).map(send).collect();
        let mut expected: Vec<Vec<u8>> = (0..4 * EACH).map(|n| pattern(n, 900)).collect();
        let mut buffer = [0; 2000];
        while !expected.is_empty() {
            let (length, _) = server.recv_from(&mut buffer).unwrap();
            let found = expected.iter().position(|one| one == &buffer[..length]);
            expected.swap_remove(found.expect("each datagram arrives once, whole"));
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

/// `SO_LINGER`: after dropping a stream with a linger time, all written data has arrived.
#[every_arch]
fn closing_waits_until_all_is_acknowledged(arch: Architecture) {
    within(move || {
        let (a, b) = stacks(arch);
        let (mut client, server) = connected(&a, &b);
        client.set_linger(Some(HANG)).unwrap();
        client.write_all(&[7; 20_000]).unwrap();
        drop(client);
        assert_eq!(server.unread().unwrap(), 20_000);
    });
}

/// The peer accepts no data, and the wait ends.
#[every_arch]
fn closing_does_not_wait_longer_than_it_may(arch: Architecture) {
    within(move || {
        let (a, b) = stacks(arch);
        let (mut client, _server) = connected(&a, &b);
        client.set_nonblocking(true).unwrap();
        while client.write(&[0; 64 << 10]).is_ok() {}
        client.set_nonblocking(false).unwrap();
        client.set_linger(Some(SHORT)).unwrap();
        let start = Instant::now();
        drop(client);
        assert!(start.elapsed() >= SHORT, "{:?} is too early", start.elapsed());
    });
}
