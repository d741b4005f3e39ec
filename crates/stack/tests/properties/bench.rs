//! A stack under observation, with a device at which its threads can be stopped, and a peer controlled by the test.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dev::{Capabilities, Device, QueuePair, TxQueue};
use pktbuf::PktBuf;
use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, TcpSocket};
use sync::walk::{WalkStep, record};
use sync::{LockKind, Platform, RefCounting};
use testbed::frames::{Ends, ISS, Segment, neighbour_solicitation, tcp_of};
use testbed::limit::HANG;
use testbed::node::{Node, NodeConfig};
use wire::tcp::{Options, TcpFlags, Timestamps};

use crate::scene::{self, Observed, Scene, State, Thread};

/// The listener's.
pub const PORT: u16 = 80;
/// Cells that an architecture with one for each processor has.
pub const CELLS: usize = 2;

/// A device that reports transmitted frames, with the thread and its locks.
pub struct Reporting(pub Box<dyn Device>);

impl Device for Reporting {
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
        if let Some((header, data)) = tcp_of(&frame) {
            scene::send(header.dst_port, data.len());
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
    ends: Ends,
    /// The peer's port.
    pub port: u16,
    /// The stack's end.
    pub socket: Arc<TcpSocket<Observed>>,
    /// Bytes that the peer has sent.
    sent: u32,
    /// The peer's acknowledgement number.
    pub acknowledged: u32,
    /// The options of the peer's segments.
    options: Options,
}

impl Connection {
    /// A new connection from the peer's port. `exchange` delivers a frame and returns the frames that the stack sends.
    pub fn open(
        (ends, port): (Ends, u16),
        listener: &ListenerShared<Observed>,
        exchange: impl FnMut(&[u8]) -> Vec<Vec<u8>>,
    ) -> Connection {
        Connection::open_with(Options::NONE, (ends, port), listener, exchange)
    }

    /// The same, from a peer that sends these options in each segment.
    fn open_with(
        options: Options,
        (ends, port): (Ends, u16),
        listener: &ListenerShared<Observed>,
        mut exchange: impl FnMut(&[u8]) -> Vec<Vec<u8>>,
    ) -> Connection {
        let sent = exchange(&Segment::syn(port, PORT).options(options).frame_over(ends));
        let mut headers = sent.iter().filter_map(|frame| tcp_of(frame)).map(|(header, _)| header);
        let answer = headers.rfind(|header| header.dst_port == port).expect("a SYN-ACK");
        let next = answer.seq.0.wrapping_add(1);
        let ack = Segment { flags: TcpFlags::ACK, seq: ISS.wrapping_add(1), ack: next, ..Segment::syn(port, PORT) };
        exchange(&ack.options(options).frame_over(ends));
        let socket = listener.accept().expect("the handshake is complete");
        Connection { ends, port, socket, sent: 0, acknowledged: next, options }
    }

    /// The peer's next segment.
    pub fn segment(&mut self, flags: TcpFlags, data: &[u8]) -> Vec<u8> {
        let seq = ISS.wrapping_add(1).wrapping_add(self.sent);
        self.sent += data.len() as u32;
        let segment = Segment { data, ..Segment::ack((self.port, PORT), seq, self.acknowledged) };
        segment.and(flags).options(self.options).frame_over(self.ends)
    }

    /// The peer's next payload.
    pub fn data(&mut self, data: &[u8]) -> Vec<u8> {
        self.segment(TcpFlags::PSH, data)
    }

    /// The peer acknowledges `bytes` more.
    pub fn ack(&mut self, bytes: u32) -> Vec<u8> {
        self.acknowledged = self.acknowledged.wrapping_add(bytes);
        self.segment(TcpFlags::ACK, &[])
    }
}

/// See the head of this file. The thread that creates it is its receive thread.
pub struct Bench {
    /// The state of its threads.
    pub scene: Arc<Scene>,
    /// An open listener.
    pub listener: Arc<ListenerShared<Observed>>,
    /// From the peer to the stack.
    pub ends: Ends,
    node: Node<Observed>,
}

impl Deref for Bench {
    type Target = Node<Observed>;
    fn deref(&self) -> &Node<Observed> {
        &self.node
    }
}

impl DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut Node<Observed> {
        &mut self.node
    }
}

impl Bench {
    /// A stack with all work done by the calling thread.
    pub fn on_one_thread(arch: Architecture, ends: Ends) -> Bench {
        Bench::new(ends, NodeConfig::new(arch))
    }

    /// The same, with the holders of connections counted in this way where the architecture lets that be chosen.
    pub fn that_counts(arch: Architecture, ends: Ends, counting: RefCounting) -> Bench {
        Bench::new(ends, NodeConfig { counting: Some(counting), ..NodeConfig::new(arch) })
    }

    /// A stack with the threads that its architecture has of its own.
    pub fn with_threads(arch: Architecture, ends: Ends) -> Bench {
        Bench::new(ends, NodeConfig { own_threads: true, ..NodeConfig::new(arch) })
    }

    /// As [`Bench::with_threads`], with a device that holds so many frames.
    pub fn with_room_for(ring_frames: usize, arch: Architecture, ends: Ends) -> Bench {
        Bench::new(ends, NodeConfig { own_threads: true, ring_frames, ..NodeConfig::new(arch) })
    }

    /// As [`Bench::with_threads`]; the stack contains panics.
    pub fn that_contains_panics(arch: Architecture, ends: Ends) -> Bench {
        Bench::new(ends, NodeConfig { own_threads: true, contain: true, ..NodeConfig::new(arch) })
    }

    fn new(ends: Ends, config: NodeConfig) -> Bench {
        let scene = Scene::new();
        let lock_kind = Some(LockKind::Blocking);
        let around = |port| Box::new(Reporting(port)) as Box<dyn Device>;
        let mut node = Node::with_known_peer(NodeConfig { cpus: CELLS, lock_kind, around, ..config });
        node.put(&neighbour_solicitation());
        let listener = node.listen(PORT, 64);
        let mut bench = Bench { scene, listener, ends, node };
        bench.settle();
        bench
    }

    /// As [`Node::settle`]; and the architecture's own threads sleep afterwards.
    pub fn settle(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        loop {
            let before = sent.len();
            sent.extend(self.node.settle());
            drop(self.scene.until(State::own_threads_sleep));
            if sent.len() == before {
                return sent;
            }
        }
    }

    /// Removes the stack's frames from the link, without running anything.
    pub fn collect(&mut self) -> usize {
        let mut sent = Vec::new();
        self.node.collect(&mut sent);
        sent.len()
    }

    /// An idle connection from the peer's port.
    pub fn connect(&mut self, port: u16) -> Connection {
        self.connect_with(Options::NONE, port)
    }

    /// The same from a peer with timestamps: its usual segments are predicted.
    pub fn connect_stamped(&mut self, port: u16) -> Connection {
        self.connect_with(Options { timestamps: Some(Timestamps { value: 100, echo: 0 }), ..Options::NONE }, port)
    }

    fn connect_with(&mut self, options: Options, port: u16) -> Connection {
        let (ends, listener) = (self.ends, self.listener.clone());
        let mut connection = Connection::open_with(options, (ends, port), &listener, |frame| {
            self.put(frame);
            self.settle()
        });
        // One-time work, such as the look-up of a route or quick acknowledgements at the start, is done before.
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

    /// Ports of peers with flows in cells `a` and `b` of `n`.
    pub fn ports(&self, n: usize, a: usize, b: usize) -> (u16, u16) {
        let first = self.port_from(n, a, 2000);
        (first, self.port_from(n, b, first + 1))
    }

    /// The first port of a peer, from `from` on, with its flow in cell `cell` of `n`.
    pub fn port_from(&self, n: usize, cell: usize, from: u16) -> u16 {
        let index = |port: u16| self.stack.flow((self.ends.dst, PORT).into(), (self.ends.src, port).into()).index(n);
        (from..).find(|port| index(*port) == cell).expect("a port")
    }

    /// A call by the user of a connection.
    pub fn call(&self, connection: &Connection, call: Call<Observed>) -> Reply {
        self.stack.call(&connection.socket.target(), call)
    }

    /// As [`Bench::call`], by a thread of this name.
    pub fn calls(&self, name: &str, connection: &Connection, call: Call<Observed>) -> Thread {
        let (stack, target) = (self.stack.clone(), connection.socket.target());
        self.scene.spawn(name, move || drop(stack.call(&target, call)))
    }

    /// A thread of this name writes on the connection; the thread that sends the data is stopped in the device with all
    /// its locks.
    pub fn stop_in_a_write(&self, name: &str, connection: &Connection) -> Thread {
        self.scene.close(connection.port);
        let thread = self.calls(name, connection, testbed::node::send(b"busy"));
        drop(self.scene.until(|state| !state.stopped.is_empty()));
        thread
    }

    /// So many batches of so many segments with data arrive on the connection, each batch in a poll of its own; what was sent
    /// before is forgotten.
    pub fn receive_batches(&mut self, batches: usize, segments: usize, connection: &mut Connection) {
        for _ in 0..batches {
            let frames: Vec<_> = (0..segments).map(|_| connection.data(&[7; 40])).collect();
            frames.iter().for_each(|frame| self.put(frame));
            assert_eq!(self.driver.poll(), segments);
        }
        self.scene.state().sent.clear();
    }

    /// Polls until this thread has ended.
    pub fn poll_until_done(&mut self, thread: &str) {
        let start = Instant::now();
        while !self.scene.state().done.contains(thread) {
            self.driver.poll();
            Observed::yield_now();
            assert!(start.elapsed() < HANG, "{thread} does not end");
        }
    }

    /// Which of the cells serves a connection.
    pub fn cell(&self, connection: &Connection) -> usize {
        connection.socket.flow().index(CELLS)
    }

    /// Lets time pass.
    pub fn pass(&mut self, span: Duration) {
        self.node.pass(span, Duration::from_millis(1));
        self.settle();
    }

    /// The receive thread's walk for one batch.
    pub fn walk(&mut self, frames: &[Vec<u8>]) -> Vec<WalkStep> {
        frames.iter().for_each(|frame| self.put(frame));
        record(|| self.driver.poll()).1
    }
}
