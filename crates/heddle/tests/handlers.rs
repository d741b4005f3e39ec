//! Handlers over the library, with all threads of the stacks: the handlers of the examples, under every architecture
//! and over both families; and calls that a handler must not make.

mod pair;

#[path = "../examples/handlers/mod.rs"]
mod handlers;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Mutex, mpsc};

use every_arch::every_arch;
use handlers::{Echo, Relay};
use heddle::device::PktBuf;
use heddle::handler::{Conn, Handler, HandlerRef};
use heddle::{Architecture, Connect, Stack, TcpListener, TcpStream, UdpSocket};
use pair::{pattern, stacks};

/// A listener of `a` and the address of a server at `b`, over each family.
const FAMILIES: [[&str; 2]; 2] = [["10.0.0.1:0", "10.0.0.2:0"], ["[fd00::1]:0", "[fd00::2]:0"]];

/// Sends `data` while it reads, and ends the stream; returns the data received until the peer ends it.
fn exchange(stream: TcpStream, data: &[u8]) -> Vec<u8> {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(data).expect("the peer reads");
            stream.shutdown(Shutdown::Write).expect("a connection");
        });
        let mut back = Vec::new();
        (&stream).read_to_end(&mut back).expect("the peer ends the stream");
        back
    })
}

#[every_arch]
fn an_echo_returns_more_than_any_buffer_holds(arch: Architecture) {
    let (a, b) = stacks(arch);
    for [at, _] in FAMILIES {
        let service = a.serve(at, |_| Echo::default()).expect("the port is free");
        let stream = TcpStream::connect(&b, service.local_addr()).expect("a connection");
        let data = pattern(7, 4 << 20);
        assert!(exchange(stream, &data) == data, "what comes back differs");
    }
}

/// Opens the connections that the clients' sides request, each to `to`.
fn join(stack: Stack, to: SocketAddr) -> mpsc::Sender<HandlerRef> {
    let (ask, asked) = mpsc::channel::<HandlerRef>();
    std::thread::spawn(move || {
        for client in asked {
            Connect::new().start_with_handler(&stack, to, Relay::of_server(client)).expect("a route");
        }
    });
    ask
}

/// The proxy of `examples/proxy.rs`: the data of A's handler is sent on B, whose cell may be another one, and back.
#[every_arch]
fn a_proxy_joins_connections_of_different_cells(arch: Architecture) {
    let (a, b) = stacks(arch);
    for [at, to] in FAMILIES {
        let echo = b.serve(to, |_| Echo::default()).expect("the port is free");
        let ask = join(a.clone(), echo.local_addr());
        let proxy = a.serve(at, move |_| Relay::of_client(ask.clone())).expect("the port is free");
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let stream = TcpStream::connect(&b, proxy.local_addr()).expect("a connection");
                scope.spawn(move || {
                    let data = pattern(seed, 1 << 20);
                    assert!(exchange(stream, &data) == data, "what comes back through the proxy differs");
                });
            }
        });
    }
}

/// The server's refusal reaches the client.
#[every_arch]
fn a_proxy_without_a_server_resets_its_client(arch: Architecture) {
    let (a, b) = stacks(arch);
    for [at, to] in FAMILIES {
        let mut nobody: SocketAddr = to.parse().expect("an address");
        nobody.set_port(9);
        let ask = join(a.clone(), nobody);
        let proxy = a.serve(at, move |_| Relay::of_client(ask.clone())).expect("the port is free");
        // The reset may come while the caller still waits for the connection.
        let opened = TcpStream::connect(&b, proxy.local_addr()).map_err(std::io::Error::from);
        let error = opened.and_then(|mut stream| stream.read(&mut [0; 10])).expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
}

/// Makes calls that a handler must not make, and sends the errors.
struct Offender {
    stack: Stack,
    stream: TcpStream,
    listener: TcpListener,
    datagrams: UdpSocket,
}

impl Handler for Offender {
    fn on_data(&mut self, conn: &mut Conn<'_>, _data: PktBuf) {
        let errors = [
            ("read", self.stream.read(&mut [0; 10]).expect_err("refused")),
            ("write", self.stream.write(b"x").expect_err("refused")),
            ("accept", self.listener.accept().map(drop).expect_err("refused")),
            ("recv", self.datagrams.recv(&mut [0; 10]).expect_err("refused")),
            ("connect", TcpStream::connect(&self.stack, "10.0.0.2:81").map(drop).expect_err("refused").into()),
            ("bind", TcpListener::bind(&self.stack, "10.0.0.1:82").map(drop).expect_err("refused").into()),
        ];
        for (call, error) in errors {
            let text = format!("{call}: {:?}: {error}\n", error.kind());
            conn.send(text.as_bytes()).expect("room");
        }
        conn.close();
    }
}

/// The call fails with one sentence, and no thread hangs.
#[every_arch]
fn blocking_in_a_handler_is_an_error(arch: Architecture) {
    let (a, b) = stacks(arch);
    let other = TcpListener::bind(&b, "10.0.0.2:81").expect("the port is free");
    let offender = Offender {
        stack: a.clone(),
        stream: TcpStream::connect(&a, "10.0.0.2:81").expect("a connection"),
        listener: TcpListener::bind(&a, "10.0.0.1:83").expect("the port is free"),
        datagrams: UdpSocket::bind(&a, "10.0.0.1:53").expect("the port is free"),
    };
    let offender = Mutex::new(Some(offender));
    let take = move |_| offender.lock().expect("no thread panics").take().expect("one connection");
    let service = a.serve("10.0.0.1:80", take).expect("the port is free");
    let mut stream = TcpStream::connect(&b, service.local_addr()).expect("a connection");
    stream.write_all(b"go").expect("room");
    let mut told = String::new();
    stream.read_to_string(&mut told).expect("the handler closes");
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 6, "{told}");
    for line in lines {
        assert!(line.contains(": Deadlock: ") && line.contains("a handler must not block or call the stack"), "{line}");
    }
    drop(other);
}
