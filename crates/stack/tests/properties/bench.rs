//! A stack under observation, with a device at which its threads can be stopped, and a peer made of hand-made segments.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dev::{Capabilities, Device, QueuePair, TxQueue, mem};
use pktbuf::PktBuf;
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, TcpSocket};
use stack::{Clock, Driver, InterfaceConfig, Plan, Stack, StackConfig, VirtualClock};
use sync::walk::{Step, record};
use sync::{LockKind, Platform};
use testbed::frames::{self, ISS, PEER, STACK, Segment, tcp_of};
use testbed::node::START;
use wire::tcp::TcpFlags;

use crate::scene::{self, Observed, PATIENCE, Scene, Thread};

const PORT: u16 = 80;
/// Cells that an architecture with one for each processor has.
pub const CELLS: usize = 2;

/// A device that reports what is transmitted, and by which thread with which locks.
struct Reporting<D>(D);

impl<D: Device> Device for Reporting<D> {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }
    fn name(&self) -> &str {
        self.0.name()
    }
    fn take_queues(&mut self) -> Vec<QueuePair> {
        let report = |pair: QueuePair| QueuePair { rx: pair.rx, tx: Box::new(ReportingTx(pair.tx)) };
        self.0.take_queues().into_iter().map(report).collect()
    }
}

struct ReportingTx(Box<dyn TxQueue>);

impl TxQueue for ReportingTx {
    fn credit(&self) -> usize {
        self.0.credit()
    }
    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        if let Some((header, text)) = tcp_of(&frame) {
            scene::send(header.dst_port, text.len());
        }
        self.0.transmit(frame)
    }
    fn flush(&mut self) {
        scene::flush();
        self.0.flush();
    }
}

/// The peer's end of an open connection, and the socket at the stack's end.
pub struct Connection {
    /// The peer's port.
    pub port: u16,
    /// The stack's end.
    pub socket: Arc<TcpSocket<Observed>>,
    /// Bytes that the peer has sent.
    sent: u32,
    /// What the peer acknowledges.
    pub acknowledged: u32,
}

impl Connection {
    /// The peer's next segment.
    pub fn segment(&mut self, flags: TcpFlags, text: &[u8]) -> Vec<u8> {
        let seq = ISS.wrapping_add(1).wrapping_add(self.sent);
        self.sent += text.len() as u32;
        Segment { text, ..Segment::ack((self.port, PORT), seq, self.acknowledged) }.and(flags).frame()
    }

    /// The peer's next payload.
    pub fn data(&mut self, text: &[u8]) -> Vec<u8> {
        self.segment(TcpFlags::PSH, text)
    }

    /// The peer acknowledges `octets` more.
    pub fn ack(&mut self, octets: u32) -> Vec<u8> {
        self.acknowledged = self.acknowledged.wrapping_add(octets);
        self.segment(TcpFlags::ACK, &[])
    }
}

/// See the head of this file. The thread that made it is its receive thread.
pub struct Bench {
    /// What its threads do.
    pub scene: Arc<Scene>,
    /// The stack under test.
    pub stack: Stack<Observed>,
    /// What receives.
    pub driver: Driver<Observed>,
    /// The time that the stack reads.
    pub clock: Arc<VirtualClock<Observed>>,
    /// Open for business.
    pub listener: Arc<ListenerShared<Observed>>,
    far: QueuePair,
}

impl Bench {
    /// A stack all of whose work is done by the calling thread.
    pub fn on_one_thread(plan: Plan) -> Bench {
        Bench::new(plan, false)
    }

    /// A stack with the threads that its architecture has of its own.
    pub fn with_threads(plan: Plan) -> Bench {
        Bench::new(plan, true)
    }

    fn new(plan: Plan, own_threads: bool) -> Bench {
        let scene = Scene::new();
        let (near, mut far) = mem::pair::<Observed>(mem::MemConfig::default());
        let clock = VirtualClock::new(START);
        let mut config = StackConfig::new(plan);
        config.cpus = CELLS;
        config.own_threads = own_threads;
        config.lock_kind = LockKind::Blocking;
        config.clock = Clock::Virtual(clock.clone());
        config.seed = Some(1);
        let interface = InterfaceConfig {
            device: Box::new(Reporting(near)),
            addresses: vec![(STACK.into(), 24)],
            gateways: Vec::new(),
            addressing: Default::default(),
        };
        let (stack, mut drivers) = Stack::build(config, vec![interface]).expect("the stack builds");
        let driver = drivers.pop().expect("a driver for the queue pair");
        let far = far.take_queues().pop().expect("a queue pair");
        let any = SocketAddr::new(STACK.into(), PORT);
        let listener = stack.listen(any, 64, Default::default()).expect("the port is free");
        let mut bench = Bench { scene, stack, driver, clock, listener, far };
        bench.put(&frames::arp_request());
        bench.settle();
        bench
    }

    /// Puts a frame on the link towards the stack.
    pub fn put(&mut self, frame: &[u8]) {
        let buffer = PktBuf::from_slice(frame).expect("a packet buffer");
        assert!(self.far.tx.transmit(buffer).is_ok(), "the ring to the stack is full");
        self.far.tx.flush();
    }

    /// Lets everything happen that happens at this moment; the frames that the stack sent.
    pub fn settle(&mut self) -> Vec<PktBuf> {
        let (mut sent, start) = (Vec::new(), Instant::now());
        loop {
            assert!(start.elapsed() < PATIENCE, "something is never run");
            let taken = self.driver.poll();
            let collected = self.far.rx.receive(&mut sent, 64);
            if taken == 0 && collected == 0 && self.stack.is_quiescent() {
                return sent;
            }
            Observed::yield_now();
        }
    }

    /// Takes what the stack has sent off the link, without running anything.
    pub fn collect(&mut self) -> usize {
        let mut sent = Vec::new();
        while self.far.rx.receive(&mut sent, 64) > 0 {}
        sent.len()
    }

    /// A connection from the peer's port, on which nothing is under way.
    pub fn connect(&mut self, port: u16) -> Connection {
        self.put(&Segment::syn(port, PORT).frame());
        let sent = self.settle();
        let mut headers = sent.iter().filter_map(|frame| tcp_of(frame)).map(|(header, _)| header);
        let answer = headers.rfind(|header| header.dst_port == port).expect("a SYN-ACK");
        let next = answer.seq.0.wrapping_add(1);
        let ack = Segment { flags: TcpFlags::ACK, seq: ISS.wrapping_add(1), ack: next, ..Segment::syn(port, PORT) };
        self.put(&ack.frame());
        self.settle();
        let socket = self.listener.accept().expect("the handshake is complete");
        let mut connection = Connection { port, socket, sent: 0, acknowledged: next };
        // What is done once only, such as to look up a route or to send the first acknowledgements at once, is over.
        for _ in 0..40 {
            let data = connection.data(&[7; 1000]);
            self.put(&data);
            self.settle();
            // Until it would block: the socket is not readable any more.
            while matches!(self.call(&connection, Call::Receive(tcp::Receive { max: 1000 })), Reply::Received(Ok(_))) {}
        }
        self.call(&connection, testbed::node::send(b"text"));
        self.settle();
        self.put(&connection.ack(4));
        self.settle();
        self.pass(Duration::from_millis(300));
        connection
    }

    /// Ports of peers whose flows lie in cells `a` and `b` of `n`.
    pub fn ports(&self, n: usize, a: usize, b: usize) -> (u16, u16) {
        let first = self.port_from(n, a, 2000);
        (first, self.port_from(n, b, first + 1))
    }

    /// The first port of a peer from `from` on whose flow lies in cell `cell` of `n`.
    pub fn port_from(&self, n: usize, cell: usize, from: u16) -> u16 {
        let index = |port: u16| self.stack.flow((STACK, PORT).into(), (PEER, port).into()).index(n);
        (from..).find(|port| index(*port) == cell).expect("a port")
    }

    /// What the user of a connection asks.
    pub fn call(&self, connection: &Connection, call: Call<Observed>) -> Reply {
        self.stack.call(&connection.socket.target(), call)
    }

    /// As [`Bench::call`], by a thread of this name.
    pub fn calls(&self, name: &str, connection: &Connection, call: Call<Observed>) -> Thread {
        let (stack, target) = (self.stack.clone(), connection.socket.target());
        self.scene.spawn(name, move || drop(stack.call(&target, call)))
    }

    /// A thread of this name writes on the connection and is stopped in the device with all that it holds; or whichever
    /// thread sends the text for it.
    pub fn stop_in_a_write(&self, name: &str, connection: &Connection) -> Thread {
        self.scene.close(connection.port);
        let thread = self.calls(name, connection, testbed::node::send(b"busy"));
        drop(self.scene.until(|state| !state.stopped.is_empty()));
        thread
    }

    /// Polls until this thread has ended.
    pub fn poll_until_done(&mut self, thread: &str) {
        let start = Instant::now();
        while !self.scene.state().done.contains(thread) {
            self.driver.poll();
            Observed::yield_now();
            assert!(start.elapsed() < PATIENCE, "{thread} does not end");
        }
    }

    /// Which of the cells serves a connection.
    pub fn cell(&self, connection: &Connection) -> usize {
        connection.socket.flow().index(CELLS)
    }

    /// Lets time pass.
    pub fn pass(&mut self, span: Duration) {
        for _ in 0..span.as_millis() {
            self.clock.advance(Duration::from_millis(1));
            self.settle();
        }
    }

    /// What the receive thread does with one batch.
    pub fn walk(&mut self, frames: &[Vec<u8>]) -> Vec<Step> {
        frames.iter().for_each(|frame| self.put(frame));
        record(|| self.driver.poll()).1
    }
}
