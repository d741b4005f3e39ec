//! Many threads, many connections, every architecture: the echo equals the data sent.

mod pair;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use every_arch::every_arch;
use heddle::{Architecture, Poller, Source, Stack, TcpListener, TcpStream};
use pair::{pattern, stacks};
use testbed::limit::within;

const THREADS: usize = 8;
const CONNECTIONS: usize = 16;
const LENGTH: usize = 256 << 10;
/// Bytes that a client sends before it reads: less than any buffer on the path.
const ROUND: usize = 16 << 10;
const ECHOERS: usize = 2;

/// One connection of the server.
struct Echo {
    stream: TcpStream,
    /// Read and not written yet.
    pending: Vec<u8>,
}

impl Echo {
    /// Reads and writes until the socket would block; true when the peer has ended and all is written.
    fn step(&mut self) -> bool {
        let mut buffer = [0; 8192];
        loop {
            while !self.pending.is_empty() {
                match self.stream.write(&self.pending) {
                    Ok(count) => drop(self.pending.drain(..count)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                    Err(error) => panic!("server: {error}"),
                }
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(count) => self.pending.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("server: {error}"),
            }
        }
    }
}

/// A thread that serves connections from `incoming` until that is closed and every peer has ended.
fn echoer(poller: Poller, incoming: Receiver<TcpStream>) {
    let mut connections: Vec<Option<Echo>> = Vec::new();
    let mut events = Vec::new();
    let (mut open, mut admits) = (0, true);
    while admits || open > 0 {
        poller.wait(&mut events, 64, None);
        for event in &events {
            let ended = connections[event.token].as_mut().is_some_and(Echo::step);
            if ended {
                connections[event.token] = None;
                open -= 1;
            }
        }
        loop {
            match incoming.try_recv() {
                Ok(stream) => {
                    stream.set_nonblocking(true).unwrap();
                    stream.register(&poller, connections.len());
                    connections.push(Some(Echo { stream, pending: Vec::new() }));
                    open += 1;
                }
                Err(error) => {
                    admits = error == std::sync::mpsc::TryRecvError::Empty;
                    break;
                }
            }
        }
    }
}

/// A thread that holds many connections and sends on all of them before it reads from any.
fn client(stack: &Stack, thread: usize) {
    let open = |n| {
        let stream = TcpStream::connect(stack, "10.0.0.1:7").expect("the server answers");
        (stream, pattern(thread * CONNECTIONS + n, LENGTH))
    };
    let mut connections: Vec<_> = (0..CONNECTIONS).map(open).collect();
    let mut echoed = vec![0; ROUND];
    for at in (0..LENGTH).step_by(ROUND) {
        for (stream, data) in &mut connections {
            stream.write_all(&data[at..at + ROUND]).unwrap();
        }
        for (n, (stream, data)) in connections.iter_mut().enumerate() {
            stream.read_exact(&mut echoed).unwrap();
            assert!(echoed == data[at..at + ROUND], "thread {thread}, connection {n}: not what was sent at {at}");
        }
    }
    for (stream, _) in &mut connections {
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut echoed).unwrap(), 0, "nothing follows");
    }
}

#[every_arch]
fn what_comes_back_is_what_was_sent(arch: Architecture) {
    within(move || {
        let (a, b) = stacks(arch);
        let listener = TcpListener::bind(&a, "10.0.0.1:7").unwrap();
        let mut echoers: Vec<(Poller, Sender<TcpStream>, _)> = Vec::new();
        for _ in 0..ECHOERS {
            let poller = Poller::new().unwrap();
            let (sender, incoming) = channel();
            let watching = poller.clone();
            echoers.push((poller, sender, thread::spawn(move || echoer(watching, incoming))));
        }
        let clients: Vec<_> = (0..THREADS)
            .map(|n| {
                let stack = b.clone();
                thread::spawn(move || client(&stack, n))
            })
            .collect();
        for (n, stream) in listener.incoming().take(THREADS * CONNECTIONS).enumerate() {
            let (poller, sender, _) = &echoers[n % ECHOERS];
            sender.send(stream.unwrap()).unwrap();
            poller.wake();
        }
        for (poller, sender, thread) in echoers {
            drop(sender);
            poller.wake();
            thread.join().unwrap();
        }
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
}
