//! A program with both ends on one stack, with the stack's own threads: it works like std's sockets over the kernel's
//! loopback interface, for loopback addresses and the stack's own. The receive threads sleep while idle.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use every_arch::every_arch;
use heddle::{Architecture, Connect, Interface, Stack, TcpListener, TcpStream, UdpSocket, mem};
use testbed::limit::HANG;

/// Addresses at which a stack with an interface reaches itself.
const OWN: [&str; 4] = ["10.0.0.1", "fd00::1", "127.0.0.1", "::1"];
const BYTES: usize = 3_000_000;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A stack on a link of several queues, without a host at the other end.
fn stack(arch: Architecture, queues: usize) -> (Stack, mem::MemDevice) {
    let (device, other_end) = mem::pair(mem::MemConfig { queues, ..Default::default() });
    let interface = Interface::new(device).addresses(["10.0.0.1/24", "fd00::1/64"]).expect("addresses");
    (Stack::builder().interface(interface).architecture(arch).cpus(2).build().expect("it builds"), other_end)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// An echo server for one connection, and its client.
fn echo(stack: &Stack, address: IpAddr) {
    let listener = TcpListener::bind(stack, SocketAddr::new(address, 0)).expect("a free port");
    let server = listener.local_addr().expect("it has one");
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut buffer = vec![0; 100_000];
        loop {
            match stream.read(&mut buffer).expect("read") {
                0 => return,
                count => stream.write_all(&buffer[..count]).expect("written"),
            }
        }
    });
    let mut client = TcpStream::connect(stack, server).expect("a way to itself");
    assert_eq!(
        (client.local_addr().expect("it has one").ip(), client.peer_addr().expect("it has one")),
        (address, server)
    );
    let mut writer = client.try_clone().expect("another handle");
    let writing = thread::spawn(move || {
        writer.write_all(&pattern(BYTES)).expect("written");
        writer.shutdown(std::net::Shutdown::Write).expect("shut down");
    });
    let mut came = Vec::new();
    client.set_read_timeout(Some(HANG)).expect("set");
    client.read_to_end(&mut came).expect("all comes back");
    assert!(came == pattern(BYTES), "{} bytes to {address}", came.len());
    writing.join().expect("it did not panic");
    echo.join().expect("it did not panic");
}

#[every_arch]
fn streams_between_threads_of_one_stack(arch: Architecture) {
    let (stack, _other_end) = stack(arch, 2);
    OWN.map(ip).into_iter().for_each(|address| echo(&stack, address));
}

#[every_arch]
fn a_stack_without_interfaces_is_its_own_network(arch: Architecture) {
    let stack = Stack::builder().architecture(arch).build().expect("it builds");
    assert_eq!(stack.addresses(), Vec::<IpAddr>::new());
    ["127.0.0.1", "::1"].map(ip).into_iter().for_each(|address| echo(&stack, address));
}

/// A request and its answer are four wakes of threads that sleep; a lost one would hang the test.
#[every_arch]
fn datagrams_and_echo_requests_wake_threads_that_sleep(arch: Architecture) {
    let (stack, _other_end) = stack(arch, 1);
    for address in OWN.map(ip) {
        let server = UdpSocket::bind(&stack, SocketAddr::new(address, 0)).expect("a free port");
        let client = UdpSocket::bind(&stack, SocketAddr::new(address, 0)).expect("a free port");
        let to = server.local_addr().expect("it has one");
        client.connect(to).expect("a way to itself");
        client.set_read_timeout(Some(HANG)).expect("set");
        let serving = thread::spawn(move || {
            let mut buffer = [0; 100];
            for _ in 0..200 {
                let (count, from) = server.recv_from(&mut buffer).expect("a request");
                server.send_to(&buffer[..count], from).expect("sent");
            }
        });
        for number in 0..200u32 {
            client.send(&number.to_be_bytes()).expect("sent");
            let mut answer = [0; 100];
            assert_eq!(client.recv(&mut answer).expect("the answer"), 4);
            assert_eq!(answer[..4], number.to_be_bytes());
        }
        serving.join().expect("it did not panic");
        let pong = stack.ping(address, 1, 60_000, HANG).expect("a way to itself").expect("an answer");
        assert_eq!((pong.from, pong.len), (address, 60_000));
    }
}

/// Without a listener a connection is refused at once.
#[every_arch]
fn nobody_there_is_refused(arch: Architecture) {
    let (stack, _other_end) = stack(arch, 1);
    for address in OWN.map(ip) {
        let refused = TcpStream::connect(&stack, SocketAddr::new(address, 9)).expect_err("nobody listens");
        assert_eq!(std::io::Error::from(refused).kind(), ErrorKind::ConnectionRefused, "{address}");
        let socket = UdpSocket::bind(&stack, SocketAddr::new(address, 0)).expect("a free port");
        socket.connect(SocketAddr::new(address, 9)).expect("a way to itself");
        socket.set_read_timeout(Some(HANG)).expect("set");
        socket.send(b"?").expect("sent");
        let refused = socket.recv(&mut [0; 10]).expect_err("nobody is there");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{address}");
    }
    let out = Connect::new().local("127.0.0.1:0".parse().expect("an address")).start(&stack, "10.0.0.2:80");
    let out = std::io::Error::from(out.expect_err("it would leave the stack"));
    assert_eq!(out.kind(), ErrorKind::InvalidInput, "{out}");
}

/// Without threads of the stack the caller's polling carries loopback packets.
#[every_arch]
fn a_polled_stack_carries_it_too(arch: Architecture) {
    let (stack, mut polled) = Stack::builder().architecture(arch).own_threads(false).build_polled().expect("it builds");
    let listener = TcpListener::bind(&stack, "127.0.0.1:0").expect("a free port");
    let mut client = Connect::new().start(&stack, listener.local_addr().expect("it has one")).expect("a way to itself");
    listener.set_nonblocking(true).expect("set");
    let settle = |polled: &mut Vec<heddle::Polled>| while polled.iter_mut().map(|one| one.poll()).sum::<usize>() > 0 {};
    settle(&mut polled);
    let (mut server, peer) = listener.accept().expect("the handshake is complete");
    assert_eq!(peer, client.local_addr().expect("it has one"));
    client.write_all(b"to myself").expect("it fits");
    // Loopback packets are due at once, so sleeping ends at once.
    polled[0].wait(Some(Duration::from_secs(3600)));
    settle(&mut polled);
    let mut data = [0; 9];
    server.read_exact(&mut data).expect("it is there");
    assert_eq!(&data, b"to myself");
}
