//! A panic inside the stack, under every architecture, with all its threads: it ends one connection or loses a few
//! frames, while the process, the other connections and the listeners continue. Waits here have no timeout: a silently
//! lost thread would hang the test.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use every_arch::every_arch;
use heddle::mem::{self, MemConfig};
use heddle::{Architecture, Failure, FaultScope, Interface, Stack, TcpListener, TcpStream, UdpSocket};
use observe::Counter;
use testbed::panicking::{self, MARK, PanicSwitch, PanickingDevice};

/// Two stacks with their threads; the device of `server` panics on demand.
struct Bench {
    server: Stack,
    client: Stack,
    plant: Arc<PanicSwitch>,
    listener: TcpListener,
    /// Receives a message when the server's device is given up.
    gone: mpsc::Receiver<()>,
}

impl Bench {
    fn new(arch: Architecture) -> Bench {
        panicking::mute();
        let (left, right) = mem::pair(MemConfig::default());
        let (left, plant) = PanickingDevice::new(left);
        let (told, gone) = mpsc::channel();
        let told = std::sync::Mutex::new(told);
        // The test may have ended.
        let tell = move || told.lock().expect("nobody panics here").send(()).unwrap_or_default();
        let server = Stack::builder()
            .interface(Interface::new(left).address("10.0.0.1/24").expect("an address"))
            .architecture(arch)
            .cpus(2)
            .on_device_gone(tell);
        let server = server.build().expect("the server's stack");
        let client = Stack::builder()
            .interface(Interface::new(right).address("10.0.0.2/24").expect("an address"))
            .architecture(arch)
            .cpus(2)
            .build();
        let client = client.expect("the client's stack");
        let listener = TcpListener::bind(&server, "10.0.0.1:80").expect("the port is free");
        Bench { server, client, plant, listener, gone }
    }

    /// A connection: the client's end, the server's end.
    fn connected(&self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(&self.client, "10.0.0.1:80").expect("a connection");
        let (server, _) = self.listener.accept().expect("the same connection");
        (client, server)
    }

    fn failures(&self) -> Vec<Failure> {
        let failures = self.server.failures();
        let counted = self.server.stats().counters.get(Counter::PanicsContained);
        assert_eq!(counted, failures.len() as u64, "{failures:?}");
        assert!(failures.iter().all(|failure| failure.cause == "planted"), "{failures:?}");
        failures
    }
}

/// Data goes both ways.
fn works((client, server): (&TcpStream, &TcpStream)) {
    for (mut from, mut to) in [(client, server), (server, client)] {
        from.write_all(b"still here").expect("room");
        let mut data = [0; 10];
        to.read_exact(&mut data).expect("the data");
        assert_eq!(&data, b"still here");
    }
}

/// The event that panics is a user's call: the device panics on its data.
#[every_arch]
fn a_panic_in_a_call_ends_its_connection_and_no_other(arch: Architecture) {
    let bench = Bench::new(arch);
    let (mut client, mut server) = bench.connected();
    let (other_client, other_server) = bench.connected();
    bench.plant.transmit.store(1, Ordering::SeqCst);
    // Where another thread owns the connection the write may be posted: then the next call returns the error.
    let written = server.write_all(MARK);
    let error = written.and_then(|()| server.read(&mut [0; 10]).map(drop)).expect_err("the connection is given up");
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
    assert!(error.to_string().contains("panicked (planted)"), "{error}");
    let error = server.read(&mut [0; 10]).expect_err("and stays so");
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
    assert!(server.take_error().unwrap().is_some());
    // The peer is reset.
    let error = client.read(&mut [0; 10]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    works((&other_client, &other_server));
    let (client, server) = bench.connected();
    works((&client, &server));
    let failures = bench.failures();
    assert_eq!(failures.len(), 1);
    assert!(matches!(failures[0].scope, FaultScope::Connection(tuple) if tuple.local_port == 80), "{failures:?}");
}

/// The event that panics is the arrival of a segment: an acknowledgement makes room for data, and the device panics on
/// it.
#[every_arch]
fn a_panic_in_a_segments_arrival_wakes_who_waits_for_the_connection(arch: Architecture) {
    let bench = Bench::new(arch);
    let (client, mut server) = bench.connected();
    let (other_client, other_server) = bench.connected();
    // More than any window: the marked data leaves when the other end has read.
    let mut data = vec![b'x'; 16 << 20];
    // Several times, so that one is in a single segment.
    (0..4).for_each(|_| data.extend_from_slice(MARK));
    bench.plant.transmit.store(1, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let written = server.write_all(&data);
            // The last data may be in the send queue before it leaves: then a read returns the error.
            written.and_then(|()| server.read(&mut [0; 10]).map(drop)).expect_err("the connection is given up")
        });
        let reading = scope.spawn(|| {
            let mut buffer = vec![0; 1 << 16];
            loop {
                match (&client).read(&mut buffer) {
                    Ok(0) => panic!("the stream ends well"),
                    Ok(_) => {}
                    Err(error) => return error,
                }
            }
        });
        let error = writer.join().expect("the writer ends");
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
        // The reset may have been dropped at the peer's full queue, which a reader would not notice: this write is
        // answered by a reset, too.
        let _ = (&client).write(b"?");
        let error = reading.join().expect("the reader ends");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    });
    works((&other_client, &other_server));
    assert_eq!(bench.failures().len(), 1);
}

/// The panic belongs to no connection but to an incomplete handshake. The SYN is retransmitted, and answered.
#[every_arch]
fn a_panic_in_a_handshake_costs_one_segment(arch: Architecture) {
    let bench = Bench::new(arch);
    let (client, server) = bench.connected();
    bench.plant.syn_ack.store(1, Ordering::SeqCst);
    let late = bench.connected();
    works((&late.0, &late.1));
    works((&client, &server));
    let failures = bench.failures();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].scope, FaultScope::Work, "{failures:?}");
}

/// An active open that panics is refused, and the next one is not.
#[every_arch]
fn a_panic_in_an_open_is_that_opens_error(arch: Architecture) {
    let bench = Bench::new(arch);
    let listener = TcpListener::bind(&bench.client, "10.0.0.2:81").expect("the port is free");
    // Both know each other's link address from here on.
    let first = TcpStream::connect(&bench.server, "10.0.0.2:81").expect("a connection");
    let accepted = listener.accept().expect("the same").0;
    works((&first, &accepted));
    bench.plant.syn.store(1, Ordering::SeqCst);
    let error = TcpStream::connect(&bench.server, "10.0.0.2:81").expect_err("the SYN cannot be sent");
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::ConnectionAborted);
    let second = TcpStream::connect(&bench.server, "10.0.0.2:81").expect("a connection");
    works((&second, &listener.accept().expect("the same").0));
    works((&first, &accepted));
    assert_eq!(bench.failures().len(), 1);
}

/// A receive queue that panics now and then: its frames are retransmitted, and only the counters show it.
#[every_arch]
fn a_receive_thread_goes_on_after_panics(arch: Architecture) {
    let bench = Bench::new(arch);
    let (mut client, mut server) = bench.connected();
    bench.plant.receive.store(2, Ordering::SeqCst);
    client.write_all(MARK).expect("room");
    let mut data = [0; MARK.len()];
    server.read_exact(&mut data).expect("the data, in the end");
    assert_eq!(data, MARK);
    let datagrams = UdpSocket::bind(&bench.server, "10.0.0.1:53").expect("the port is free");
    let asker = UdpSocket::bind(&bench.client, "10.0.0.2:53").expect("the port is free");
    asker.send_to(b"hello", "10.0.0.1:53").expect("sent");
    assert_eq!(datagrams.recv_from(&mut [0; 10]).expect("received").0, 5);
    let failures = bench.failures();
    assert_eq!(failures.len(), 2);
    assert!(failures.iter().all(|failure| failure.thread == "heddle-rx0" && failure.scope == FaultScope::Work));
}

/// A device that always panics is given up: waiters are notified, new connections are refused at once, and the stack
/// still answers.
#[every_arch]
fn a_device_that_always_panics_counts_as_unplugged(arch: Architecture) {
    let bench = Bench::new(arch);
    let (mut client, mut server) = bench.connected();
    let reader = std::thread::spawn(move || server.read(&mut [0; 10]).expect_err("the connection ends"));
    bench.plant.always.store(u32::MAX, Ordering::SeqCst);
    client.write_all(b"anybody there?").expect("room");
    bench.gone.recv().expect("the end of the device is told");
    let error = reader.join().expect("the reader ends");
    assert_eq!(error.kind(), ErrorKind::NetworkDown, "{error}");
    let error = TcpStream::connect(&bench.server, "10.0.0.2:80").expect_err("no way out");
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::NetworkDown);
    let error = TcpListener::bind(&bench.server, "0.0.0.0:81").expect_err("no way in");
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::NetworkDown);
    let failures = bench.failures();
    assert_eq!(failures.last().map(|failure| &failure.scope), Some(&FaultScope::Device(0)), "{failures:?}");
    bench.gone.recv_timeout(Duration::ZERO).expect_err("it is told once");
}
