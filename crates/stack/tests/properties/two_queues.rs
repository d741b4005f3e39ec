//! A stack with two receive queues and three CPUs, so that a flow's queue does not determine its CPU. The thread of the
//! test polls both queues.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dev::{Capabilities, Device, QueuePair, mem};
use observe::Counter;
use pktbuf::PktBuf;
use stack::call::{Call, Reply};
use stack::socket::ListenerShared;
use stack::{Addressing, Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig, VirtualClock};
use testbed::frames::{self, Ends};
use testbed::node::START;
use wire::tcp::TcpFlags;

use crate::bench::{Connection, PORT, Reporting};
use crate::scene::{Observed, Scene, State};

/// Receive queues, and drivers.
pub const QUEUES: usize = 2;
/// Processors.
pub const CPUS: usize = 3;

/// See the head of this file.
pub struct TwoQueues {
    /// The state of its threads.
    pub scene: Arc<Scene>,
    /// The stack.
    pub stack: Stack<Observed>,
    /// One for each queue.
    pub drivers: Vec<Driver<Observed>>,
    far: Vec<QueuePair>,
    clock: Arc<VirtualClock<Observed>>,
    /// An open listener.
    pub listener: Arc<ListenerShared<Observed>>,
    /// From the peer to the stack.
    pub ends: Ends,
}

/// A device with a link for each of its receive queues, so that the test chooses the queue of each frame.
struct LinkPerQueue([mem::MemDevice; QUEUES], Capabilities);

impl Device for LinkPerQueue {
    fn capabilities(&self) -> &Capabilities {
        &self.1
    }
    fn name(&self) -> &str {
        self.0[0].name()
    }
    fn take_queues(&mut self) -> Vec<QueuePair> {
        self.0.iter_mut().flat_map(Device::take_queues).collect()
    }
}

impl TwoQueues {
    /// With the threads that its architecture has of its own.
    pub fn new(arch: &str, ends: Ends) -> TwoQueues {
        let (near, mut far) = mem::pair::<Observed>(mem::MemConfig { queues: QUEUES, ..Default::default() });
        TwoQueues::on(arch, ends, Box::new(near), far.take_queues())
    }

    /// The same on a device that chooses the queue by something else than the hash of a flow: see [`TwoQueues::put_on`].
    pub fn steered(arch: &str, ends: Ends) -> TwoQueues {
        let links = [(); QUEUES].map(|()| mem::pair::<Observed>(mem::MemConfig::default()));
        let capabilities = Capabilities { queue_pairs: QUEUES, ..links[0].0.capabilities().clone() };
        let mut far = Vec::new();
        let near = links.map(|(near, mut other)| {
            far.extend(other.take_queues());
            near
        });
        TwoQueues::on(arch, ends, Box::new(LinkPerQueue(near, capabilities)), far)
    }

    fn on(arch: &str, ends: Ends, near: Box<dyn Device>, far: Vec<QueuePair>) -> TwoQueues {
        let (scene, clock) = (Scene::new(), VirtualClock::new(START));
        let config = StackConfig {
            seed: Some(1),
            cpus: CPUS,
            own_threads: true,
            clock: Clock::Virtual(clock.clone()),
            ..StackConfig::new(Architecture::named(arch))
        };
        let addresses = vec![(frames::STACK.into(), 24), ("fd00::1".parse().expect("an address"), 64)];
        let device = Box::new(Reporting(near));
        let interface = InterfaceConfig { device, addresses, gateways: vec![], addressing: Addressing::default() };
        let (stack, drivers) = Stack::build(config, vec![interface]).expect("the stack builds");
        let any = SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), PORT);
        let listener = stack.listen(any, 64, Default::default()).expect("the port is free");
        let mut bench = TwoQueues { scene, stack, drivers, far, clock, listener, ends };
        for frame in [frames::arp_request(), frames::neighbour_solicitation()] {
            bench.exchange(&frame);
        }
        bench
    }

    /// Gives the link a frame.
    pub fn put(&mut self, frame: &[u8]) {
        self.put_on(frame, 0);
    }

    /// Gives the link a frame, for this queue of a device that is [steered](TwoQueues::steered).
    pub fn put_on(&mut self, frame: &[u8], queue: usize) {
        let buffer = PktBuf::from_slice(frame).expect("a packet buffer");
        assert!(self.far[queue].tx.transmit(buffer).is_ok(), "there is room");
        self.far[queue].tx.flush();
    }

    /// Lets time pass, in steps, and runs all drivers; returns the sent frames.
    pub fn pass(&mut self, span: Duration, step: Duration) -> Vec<Vec<u8>> {
        let (end, mut sent) = (self.clock.now() + span, Vec::new());
        while self.clock.now() < end {
            self.clock.advance(step);
            sent.extend(self.settle());
        }
        sent
    }

    /// Delivers a frame, and runs all drivers until the stack is idle; returns the sent frames.
    pub fn exchange(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.put(frame);
        self.settle()
    }

    /// Runs all drivers until the stack is idle; returns the sent frames.
    pub fn settle(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        let mut idle = 0;
        while idle < 2 {
            let taken: usize = self.drivers.iter_mut().map(Driver::poll).sum();
            drop(self.scene.until(State::own_threads_sleep));
            let batch = self.sent();
            idle = if taken == 0 && batch.is_empty() && self.stack.is_quiescent() { idle + 1 } else { 0 };
            sent.extend(batch);
        }
        sent
    }

    /// The frames that the stack has sent and the peer has not taken yet.
    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        self.far.iter_mut().for_each(|pair| while pair.rx.receive(&mut frames, 64) > 0 {});
        frames.iter().map(|frame| frame.to_vec()).collect()
    }

    /// A peer's port with a flow that arrives on this queue and hashes to this CPU.
    pub fn port(&self, to: u16, (queue, cpu): (usize, usize), from: u16) -> u16 {
        let hash = |port: u16| self.stack.flow((self.ends.dst, to).into(), (self.ends.src, port).into());
        (from..).find(|port| (hash(*port).index(QUEUES), hash(*port).index(CPUS)) == (queue, cpu)).expect("a port")
    }

    /// A connection with a flow of this queue and CPU.
    pub fn connect(&mut self, on: (usize, usize)) -> Connection {
        self.connect_from(on, 2000)
    }

    /// The same with a port of the peer from this on.
    pub fn connect_from(&mut self, on: (usize, usize), from: u16) -> Connection {
        let (port, listener) = (self.port(PORT, on, from), self.listener.clone());
        let connection = Connection::open((self.ends, port), &listener, |frame| self.exchange(frame));
        self.scene.state().sent.clear();
        connection
    }

    /// Delivers a frame to the thread that polls `queue`, which does not wait for another thread.
    pub fn bring(&mut self, frame: &[u8], queue: usize) {
        self.put(frame);
        assert_eq!(self.drivers[queue].poll(), 1, "it arrives on this queue");
    }

    /// Reads the available data.
    pub fn read(&self, connection: &Connection) -> Vec<u8> {
        match self.stack.call(&connection.socket.target(), Call::Receive(tcp::Receive { max: 1 << 20 })) {
            Reply::Received(Ok(got)) => got.data.iter().flat_map(|data| data.to_vec()).collect(),
            _ => Vec::new(),
        }
    }

    /// Segments that were not the next expected.
    pub fn misordered(&self) -> u64 {
        self.stack.stats().counters.get(Counter::OutOfOrderAtEntry)
    }

    /// A thread of the architecture's own is stopped in the device, while it processes a segment of a connection of its own
    /// with a flow of this queue and CPU. Returns that connection.
    pub fn stop(&mut self, thread: &str, on: (usize, usize)) -> Connection {
        let mut busy = self.connect_from(on, 30_000);
        self.scene.close(busy.port);
        self.bring(&fin(&mut busy), on.0);
        let state = self.scene.until(|state| !state.stopped.is_empty());
        assert!(state.stopped.contains(thread), "{:?}", *state);
        drop(state);
        busy
    }
}

/// The peer's FIN with payload: it is answered at once.
pub fn fin(connection: &mut Connection) -> Vec<u8> {
    connection.segment(TcpFlags::FIN | TcpFlags::PSH, b"the end")
}
