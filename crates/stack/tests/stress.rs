//! Two stacks with all their threads, two queue pairs and several callers on each connection, on a link that loses
//! nothing.
//!
//! A panic of *any* thread fails the test: cells refuse a second runner (G1), debug builds check the order of the locks
//! (G2) and that no thread sleeps with one held (G4), each by a panic. Then, at rest: the counters of all cells add up
//! to what the devices saw (G6), the data of every connection left in the order in which it was assigned (G7), and no
//! segment was out of order when it reached TCP (O1). Nothing is sent twice, because the link is perfect and the timers
//! are too slow for a spurious retransmission.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::thread::{self, JoinHandle};

use dev::mem;
use every_arch::every_arch;
use observe::Counter;
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, Readiness, TcpSocket};
use stack::{Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig, StoppableClock};
use sync::{LockKind, Real};
use tcp::config::{BufferSizes, ConnectionOptions};
use testbed::frames::{PEER, STACK};
use testbed::limit::{LONG_HANG, within};
use testbed::node::send;
use testbed::order_check::{OrderCheck, Seen};

const CONNECTIONS: usize = 8;
const WRITERS: usize = 2;
/// Bytes that each writer writes, and the size of its pieces.
const LENGTH: usize = 192 << 10;
const PIECE: usize = 3000;

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts the panics of all threads from now on.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            print(panic);
        }));
    });
}

type Receiver = JoinHandle<Driver<Real>>;

/// A stack with its receive threads.
struct Host {
    stack: Stack<Real>,
    receivers: Vec<Receiver>,
    stop: Arc<AtomicBool>,
    seen: Arc<Seen>,
}

impl Host {
    fn start(
        device: mem::MemDevice,
        address: std::net::Ipv4Addr,
        (arch, kind, buffers): (Architecture, LockKind, BufferSizes),
        clock: Clock<Real>,
    ) -> Host {
        let (device, seen) = OrderCheck::new(device);
        let mut config = StackConfig::new(arch);
        config.lock_kind = kind;
        config.cpus = 2;
        config.clock = clock;
        // Timer-driven loss recovery must never start, however busy the machine is.
        config.tcp.sack = false;
        config.tcp.receive_buffer = buffers;
        config.resets_per_second = 1_000_000;
        config.tcp.rto.initial_rto = LONG_HANG;
        config.tcp.rto.min_rto = LONG_HANG;
        config.tcp.rto.max_rto = 2 * LONG_HANG;
        let interface = InterfaceConfig {
            device: Box::new(device),
            addresses: vec![(address.into(), 24)],
            gateways: vec![],
            addressing: Default::default(),
        };
        let (stack, drivers) = Stack::build(config, vec![interface]).expect("the stack builds");
        let stop = Arc::new(AtomicBool::new(false));
        let receivers = drivers.into_iter().map(|driver| receive(driver, stop.clone())).collect();
        Host { stack, receivers, stop, seen }
    }

    /// Ends the receive threads and returns their drivers.
    fn stop(&mut self) -> Vec<Driver<Real>> {
        self.stop.store(true, Ordering::SeqCst);
        self.stack.shared().links().wake_drivers();
        self.receivers.drain(..).map(|receiver| receiver.join().expect("the receive thread ends well")).collect()
    }
}

fn receive(mut driver: Driver<Real>, stop: Arc<AtomicBool>) -> Receiver {
    thread::spawn(move || {
        while !stop.load(Ordering::SeqCst) {
            if driver.poll() == 0 {
                driver.wait(None);
            }
        }
        driver.rest();
        driver
    })
}

fn accept(listener: &ListenerShared<Real>) -> Arc<TcpSocket<Real>> {
    loop {
        if let Some(child) = listener.accept() {
            return child;
        }
        listener.ready.wait(Readiness::ACCEPTABLE, None);
    }
}

/// Reads until the stream ends; gives each piece to `take`.
fn read(stack: &Stack<Real>, socket: &TcpSocket<Real>, mut take: impl FnMut(&[u8])) {
    loop {
        match stack.call(&socket.target(), Call::Receive(tcp::Receive { max: 16_000 })) {
            Reply::Received(Ok(got)) => {
                got.data.iter().for_each(|data| take(data));
                if got.end {
                    return;
                }
            }
            Reply::Received(Err(tcp::Error::WouldBlock)) => {
                socket.ready.wait(Readiness::READABLE, None);
            }
            Reply::Received(Err(error)) => panic!("a read fails: {error:?}"),
            _ => panic!("the connection is gone"),
        }
    }
}

fn write(stack: &Stack<Real>, socket: &TcpSocket<Real>, data: &[u8]) {
    let mut written = 0;
    while written < data.len() {
        match stack.call(&socket.target(), send(&data[written..])) {
            Reply::Sent(Ok(sent)) if sent.accepted > 0 => written += sent.accepted,
            Reply::Sent(Ok(_)) => {
                socket.ready.wait(Readiness::WRITABLE, None);
            }
            Reply::Sent(Err(error)) => panic!("a write fails: {error:?}"),
            _ => panic!("the connection is gone"),
        }
    }
}

fn end(stack: &Stack<Real>, socket: &TcpSocket<Real>) {
    stack.call(&socket.target(), Call::Shutdown(tcp::Shutdown::Write));
}

fn echo(stack: &Stack<Real>, socket: &TcpSocket<Real>) {
    read(stack, socket, |data| write(stack, socket, data));
    stack.call(&socket.target(), Call::Close(tcp::Close));
}

/// Several threads write to one connection, each its own byte value, and one reads the echo.
fn client(stack: &Stack<Real>) {
    let options = ConnectionOptions { no_delay: true, ..Default::default() };
    let socket = stack.connect(None, SocketAddr::new(STACK.into(), 7), &options).expect("a connection");
    socket.ready.wait(Readiness::CONNECTED, None);
    let mut counts = [0; WRITERS];
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::scope(|scope| {
                for writer in 0..WRITERS {
                    let socket = &socket;
                    scope.spawn(move || {
                        (0..LENGTH / PIECE).for_each(|_| write(stack, socket, &[writer as u8; PIECE]));
                    });
                }
            });
            end(stack, &socket);
        });
        read(stack, &socket, |data| data.iter().for_each(|byte| counts[usize::from(*byte)] += 1));
    });
    assert_eq!(counts, [LENGTH / PIECE * PIECE; WRITERS], "what comes back is what was sent");
    stack.call(&socket.target(), Call::Close(tcp::Close));
}

fn run(arch: Architecture, kind: LockKind) {
    run_with(arch, kind, buffers());
}

/// The usual sizes of receive buffers.
fn buffers() -> BufferSizes {
    tcp::Config::default().receive_buffer
}

fn run_with(arch: Architecture, kind: LockKind, buffers: BufferSizes) {
    watch_panics();
    let before = PANICS.load(Ordering::SeqCst);
    let clock = StoppableClock::<Real>::new();
    let (left, right) = mem::pair::<Real>(mem::MemConfig { queues: 2, ..Default::default() });
    let host = |device, address| Host::start(device, address, (arch, kind, buffers), Clock::Stoppable(clock.clone()));
    let mut hosts = [host(left, STACK), host(right, PEER)];
    let listener = hosts[0].stack.listen(SocketAddr::new(STACK.into(), 7), 64, Default::default()).expect("a listener");
    thread::scope(|scope| {
        let [server, clients] = [&hosts[0].stack, &hosts[1].stack];
        for _ in 0..CONNECTIONS {
            scope.spawn(move || client(clients));
            let socket = accept(&listener);
            scope.spawn(move || echo(server, &socket));
        }
    });
    clock.stop();
    rest(&mut hosts);
    let told: Vec<String> = hosts.iter().flat_map(differences).collect();
    let counters = hosts.each_ref().map(|host| host.stack.stats().counters);
    assert!(told.is_empty(), "{arch}, {kind}: {told:#?}\nof {counters:#?}");
    hosts[0].stack.unlisten(&listener);
    assert_eq!(PANICS.load(Ordering::SeqCst), before, "a thread has panicked");
}

/// Delivers all frames in transit, with time stopped.
fn rest(hosts: &mut [Host; 2]) {
    let mut drivers: Vec<Driver<Real>> = hosts.iter_mut().flat_map(Host::stop).collect();
    loop {
        let frames: usize = drivers.iter_mut().map(Driver::poll).sum();
        let quiet = hosts.iter().all(|host| host.stack.is_quiescent());
        let sent = |hosts: &[Host; 2]| hosts.each_ref().map(|host| host.seen.sent.load(Ordering::SeqCst));
        let received = hosts.each_ref().map(|host| host.seen.received.load(Ordering::SeqCst));
        let [a, b] = sent(hosts);
        if frames == 0 && quiet && received == [b, a] {
            return;
        }
        thread::yield_now();
    }
}

/// Counters that should be zero but are not, at rest on a perfect link.
fn differences(host: &Host) -> Vec<String> {
    let counters = host.stack.stats().counters;
    let seen = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::SeqCst);
    let pairs = [
        ("segments sent again", counters.get(Counter::Retransmits), 0),
        ("segments that left in another order", seen(&host.seen.displaced), 0),
        ("segments that came in another order", counters.get(Counter::OutOfOrderAtEntry), 0),
        ("segments counted and seen to leave", counters.get(Counter::SegmentsOut), seen(&host.seen.sent)),
        ("segments counted and seen to come", counters.get(Counter::SegmentsIn), seen(&host.seen.received)),
        ("packets dropped", counters.dropped_total(), 0),
    ];
    let differ = pairs.iter().filter(|(_, found, expected)| found != expected);
    differ.map(|(what, found, expected)| format!("{what}: {found}, not {expected}")).collect()
}

/// A queue of `netisr` or `softint` drops packets beyond 256; there is a test of its own for them.
#[every_arch(except(netisr_hybrid, netisr_deferred, softint))]
fn order_counters_and_exclusion(arch: Architecture) {
    within(move || run(arch, LockKind::Blocking));
}

/// All windows together are less than the queue of one thread: 8 connections with 8 to 12 segments each, and as many
/// acknowledgements for them.
#[every_arch(only(netisr_hybrid, netisr_deferred, softint))]
fn order_counters_and_exclusion_in_short_queues(arch: Architecture) {
    let buffers = BufferSizes { initial: 8 << 10, max: 8 << 10, ..buffers() };
    within(move || run_with(arch, LockKind::Blocking, buffers));
}

/// The other kinds of lock, for architectures with several shared locks.
#[every_arch(only(giant, msgp_1, msgp_6, connp_l_4, squeue_process))]
fn every_kind_of_lock(arch: Architecture) {
    for kind in [LockKind::Tas, LockKind::Ttas, LockKind::Ticket, LockKind::Mcs, LockKind::SpinPark] {
        within(move || run(arch, kind));
    }
}

/// Listeners open and close while clients connect: a client is served or refused, never left waiting; and none is
/// accepted once `unlisten` has returned.
fn churn(arch: Architecture) {
    const ROUNDS: usize = 30;
    watch_panics();
    let before = PANICS.load(Ordering::SeqCst);
    let (left, right) = mem::pair::<Real>(mem::MemConfig { queues: 2, ..Default::default() });
    let terms = (arch, LockKind::Blocking, buffers());
    let host = |device, address| Host::start(device, address, terms, Clock::Platform);
    let mut hosts = [host(left, STACK), host(right, PEER)];
    let remote = SocketAddr::new(STACK.into(), 7);
    let over = AtomicBool::new(false);
    let connect = |stack: &Stack<Real>| {
        let socket = stack.connect(None, remote, &Default::default()).expect("a connection");
        let done = Readiness::CONNECTED | Readiness::ERROR | Readiness::CLOSED;
        let ready = socket.ready.wait(done, None);
        (socket, ready)
    };
    thread::scope(|scope| {
        let [server, clients] = [&hosts[0].stack, &hosts[1].stack];
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let (socket, ready) = connect(clients);
                    if !ready.intersects(Readiness::ERROR | Readiness::CLOSED) {
                        // The connection is not accepted: when the listener closes, it is reset.
                        socket.ready.wait(Readiness::ERROR | Readiness::CLOSED | Readiness::PEER_CLOSED, None);
                    }
                    clients.call(&socket.target(), Call::Close(tcp::Close));
                }
            });
        }
        for _ in 0..ROUNDS {
            let listener = server.listen(remote, 64, Default::default()).expect("the port is free again");
            listener.ready.wait(Readiness::ACCEPTABLE, None);
            server.unlisten(&listener);
            let (socket, ready) = connect(clients);
            assert!(ready.intersects(Readiness::ERROR | Readiness::CLOSED), "let in after unlisten: {ready:?}");
            clients.call(&socket.target(), Call::Close(tcp::Close));
            assert!(listener.accept().is_none());
        }
        over.store(true, Ordering::SeqCst);
    });
    hosts.iter_mut().for_each(|host| drop(host.stop()));
    assert_eq!(PANICS.load(Ordering::SeqCst), before, "a thread has panicked");
}

#[every_arch]
fn listeners_come_and_go(arch: Architecture) {
    within(move || churn(arch));
}
