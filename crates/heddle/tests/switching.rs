//! A stack is switched through all architectures while threads use it: streams over IPv4 and IPv6 that stay open,
//! connections that are opened and closed all the time, datagrams, echo requests. No call fails, no byte is lost,
//! altered or repeated, no connection is reset; and after each switch every thread makes progress.
//!
//! In virtual time, with faults on the link, and for every pair: `stack/tests/live_switching`.

mod pair;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use every_arch::every_arch;
use heddle::error::{SetArchitectureError, SwitchRefused};
use heddle::{ALL_ARCHITECTURES, Architecture, Counter, Stack, TcpListener, TcpStream, UdpSocket};
use testbed::limit::{HANG, within};

/// The server's addresses, over both families.
const HOSTS: [&str; 2] = ["10.0.0.1", "[fd00::1]"];
/// Bytes of a stream's turn: more than the ring of a channel holds.
const TURN: usize = 100_000;
const SHORT: usize = 500;
/// Interval at which the accepting thread checks whether all clients have ended.
const LOOK: Duration = Duration::from_millis(50);

/// The work of the threads until they must stop, and the progress of each.
struct Load {
    stop: AtomicBool,
    turns: Mutex<Vec<usize>>,
    turned: Condvar,
    /// Threads that connect and have not ended. Their connections must be accepted even if the threads must stop
    /// meanwhile.
    clients: AtomicUsize,
}

impl Load {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Acquire)
    }

    fn turn(&self, thread: usize) {
        self.turns.lock().expect("no thread has panicked")[thread] += 1;
        self.turned.notify_all();
    }

    /// The calling thread is a client until this is dropped.
    fn client(&self) -> Client<'_> {
        Client(&self.clients)
    }

    /// Waits until every thread has begun and finished another turn.
    fn get_on(&self, what: &str) {
        let turns = self.turns.lock().expect("no thread has panicked");
        let before = turns.clone();
        let waits = |turns: &mut Vec<usize>| turns.iter().zip(&before).any(|(turns, before)| *turns < before + 2);
        let (turns, waited) = self.turned.wait_timeout_while(turns, HANG, waits).expect("no thread has panicked");
        assert!(!waited.timed_out(), "{what}: the threads were at {before:?}, and get on to {turns:?} only");
    }
}

/// See [`Load::client`].
struct Client<'a>(&'a AtomicUsize);

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answers each connection with what it sends, on a thread of its own, until it ends.
fn answer(load: &Load, listener: &TcpListener) {
    thread::scope(|threads| {
        while load.clients.load(Ordering::Acquire) > 0 {
            let Ok((mut stream, _)) = listener.accept_timeout(LOOK) else { continue };
            threads.spawn(move || {
                let mut buffer = vec![0; 8 << 10];
                loop {
                    let count = stream.read(&mut buffer).expect("the server reads");
                    if count == 0 {
                        return;
                    }
                    stream.write_all(&buffer[..count]).expect("the server writes");
                }
            });
        }
    });
}

/// Sends a pattern while another thread reads the echo.
fn exchange(stream: &TcpStream, seed: usize, length: usize) {
    let sent = pair::pattern(seed, length);
    thread::scope(|threads| {
        threads.spawn(|| (&*stream).write_all(&sent).expect("the client writes"));
        let mut back = vec![0; length];
        (&*stream).read_exact(&mut back).expect("the client reads");
        assert!(back == sent, "the stream is altered");
    });
}

fn long_stream(load: &Load, thread: usize, client: &Stack, host: &str) {
    let _client = load.client();
    let stream = TcpStream::connect(client, format!("{host}:80")).expect("it connects");
    for turn in 0.. {
        if !load.goes_on() {
            break;
        }
        exchange(&stream, thread + 10 * turn, TURN);
        load.turn(thread);
    }
    stream.shutdown(Shutdown::Write).expect("it ends");
    assert_eq!((&stream).read(&mut [0; 1]).expect("the other end ends"), 0);
}

fn short_streams(load: &Load, thread: usize, client: &Stack, host: &str) {
    let _client = load.client();
    for turn in 0.. {
        if !load.goes_on() {
            break;
        }
        let stream = TcpStream::connect(client, format!("{host}:80")).expect("it connects");
        exchange(&stream, turn, SHORT);
        stream.shutdown(Shutdown::Write).expect("it ends");
        assert_eq!((&stream).read(&mut [0; 1]).expect("the other end ends"), 0);
        load.turn(thread);
    }
}

/// Datagrams to the server's socket and back, one at a time: none is lost on this link.
fn datagrams(load: &Load, thread: usize, [server, client]: [&Stack; 2]) {
    let [a, b] = [(server, "10.0.0.1:5000"), (client, "10.0.0.2:0")];
    let a = UdpSocket::bind(a.0, a.1).expect("the port is free");
    let b = UdpSocket::bind(b.0, b.1).expect("a port is free");
    for turn in 0_usize.. {
        if !load.goes_on() {
            break;
        }
        let mut buffer = [0; 64];
        b.send_to(&turn.to_be_bytes(), "10.0.0.1:5000").expect("it is sent");
        let (count, from) = a.recv_from(&mut buffer).expect("it arrives");
        a.send_to(&buffer[..count], from).expect("it is sent back");
        let (count, _) = b.recv_from(&mut buffer).expect("it arrives");
        assert_eq!(buffer[..count], turn.to_be_bytes());
        load.turn(thread);
    }
}

fn pings(load: &Load, thread: usize, server: &Stack) {
    while load.goes_on() {
        let reply = server.ping("10.0.0.2".parse().expect("an address"), 7, 100, HANG);
        assert!(matches!(reply, Ok(Some(_))), "{reply:?}");
        load.turn(thread);
    }
}

#[every_arch]
fn threads_go_on_while_the_stack_is_switched(arch: Architecture) {
    within(move || {
        let (server, client) = pair::stacks(arch);
        let turns = Mutex::new(vec![0; 6]);
        let clients = AtomicUsize::new(2 * HOSTS.len());
        let load = Load { stop: AtomicBool::new(false), turns, turned: Condvar::new(), clients };
        let listeners = HOSTS.map(|host| TcpListener::bind(&server, format!("{host}:80")).expect("the port is free"));
        thread::scope(|threads| {
            let (load, server, client) = (&load, &server, &client);
            for listener in &listeners {
                threads.spawn(move || answer(load, listener));
            }
            for (number, host) in HOSTS.into_iter().enumerate() {
                threads.spawn(move || long_stream(load, number, client, host));
                threads.spawn(move || short_streams(load, 2 + number, client, host));
            }
            threads.spawn(move || datagrams(load, 4, [server, client]));
            threads.spawn(move || pings(load, 5, server));
            load.get_on("before the first switch");
            let first = ALL_ARCHITECTURES.iter().position(|name| *name == arch.to_string()).expect("it is listed");
            let mut longest = Duration::ZERO;
            for number in 1..=ALL_ARCHITECTURES.len() {
                let next = ALL_ARCHITECTURES[(first + number) % ALL_ARCHITECTURES.len()];
                let pause = server.set_architecture(next).expect("it is switched");
                assert_eq!(server.architecture().to_string(), next);
                longest = longest.max(pause);
                load.get_on(next);
            }
            println!("the longest pause: {longest:?}");
            load.stop.store(true, Ordering::Release);
        });
        for stack in [&server, &client] {
            let stats = stack.stats();
            assert_eq!(stats.counters.get(Counter::ConnectionsReset), 0, "{:?}", stats.counters);
            assert!(stack.failures().is_empty(), "{:?}", stack.failures());
        }
    });
}

/// Two stacks are switched at the same time, each by several threads; only one of these can switch at a time.
#[test]
fn threads_that_switch_at_once_exclude_each_other() {
    let (server, client) = pair::stacks(Architecture::default());
    let (mut stream, mut peer) = pair::connected(&server, &client);
    thread::scope(|threads| {
        for number in 0..3 {
            let server = &server;
            threads.spawn(move || {
                for turn in 0..10 {
                    let next = ALL_ARCHITECTURES[(3 * turn + number) % ALL_ARCHITECTURES.len()];
                    let switched = server.set_architecture(next).map(drop);
                    let busy = SetArchitectureError::Refused(SwitchRefused::Busy);
                    assert!(switched == Ok(()) || switched == Err(busy), "{switched:?}");
                }
            });
        }
        for turn in 0..50 {
            let text = pair::pattern(turn, 1000);
            stream.write_all(&text).expect("it is written");
            let mut back = vec![0; text.len()];
            peer.read_exact(&mut back).expect("it arrives");
            assert_eq!(back, text);
        }
    });
}

#[test]
fn a_name_that_is_none_is_refused() {
    let stack = Stack::builder().build().expect("it builds");
    let before = stack.architecture();
    assert!(matches!(stack.set_architecture("none-such"), Err(SetArchitectureError::Unknown(_))));
    assert_eq!(stack.architecture(), before);
}
