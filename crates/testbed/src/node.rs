//! One stack on one thread, in virtual time, and the other end of its link.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dev::{Device, QueuePair, mem};
use observe::Time;
use pktbuf::{Chunk, PktBuf};
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, TcpSocket};
use stack::{Addressing, Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig, VirtualClock};
use sync::{LockKind, Platform, RefCounting};

use crate::frames;
use crate::limit::HANG;

/// The start of virtual time: not zero, which is a special value.
pub const START: Time = Time::from_nanos(1_000_000_000);

/// The configuration of a node.
#[derive(Clone)]
pub struct NodeConfig {
    /// The process architecture.
    pub arch: Architecture,
    /// Seed of all secrets.
    pub seed: u64,
    /// Cells that an architecture with one per CPU has.
    pub cpus: usize,
    /// Whether the architecture starts the threads that it has of its own.
    pub own_threads: bool,
    /// Whether the stack contains panics.
    pub contain: bool,
    /// Parameters of TCP.
    pub tcp: tcp::Config,
    /// Addresses of the stack.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Whether it tests them, and whether it finds some for itself.
    pub addressing: Addressing,
    /// Default routers.
    pub gateways: Vec<IpAddr>,
    /// The stack is at the second port of the pair.
    pub second: bool,
    /// The link, but for its rings. The node's own frames of ARP are Ethernet's.
    pub link: mem::MemConfig,
    /// Frames that each direction of the link holds.
    pub ring_frames: usize,
    /// The kind of the architecture's locks, if not the usual one.
    pub lock_kind: Option<LockKind>,
    /// See [`StackConfig::counting`].
    pub counting: Option<RefCounting>,
    /// See [`StackConfig::runs`].
    pub runs: bool,
    /// The stack reads the platform's clock, which the test moves, and not the node's.
    pub platform_clock: bool,
    /// A wrapper around the stack's port.
    pub around: fn(Box<dyn Device>) -> Box<dyn Device>,
}

impl NodeConfig {
    /// The defaults.
    pub fn new(arch: Architecture) -> NodeConfig {
        NodeConfig {
            arch,
            seed: 1,
            cpus: 2,
            own_threads: false,
            contain: false,
            tcp: tcp::Config::default(),
            addresses: vec![(frames::STACK.into(), 24), ("fd00::1".parse().expect("an address"), 64)],
            addressing: Addressing::default(),
            gateways: Vec::new(),
            second: false,
            link: mem::MemConfig::default(),
            ring_frames: 512,
            lock_kind: None,
            counting: None,
            runs: true,
            platform_clock: false,
            around: |port| port,
        }
    }
}

/// A stack, its driver, its clock, and the port that it is linked to.
pub struct Node<P: Platform> {
    /// The stack under test.
    pub stack: Stack<P>,
    /// The driver that runs it.
    pub driver: Driver<P>,
    /// The time it reads, unless that is the platform's.
    pub clock: Arc<VirtualClock<P>>,
    /// The other end of its link.
    pub far: QueuePair,
    batch: Vec<PktBuf>,
}

impl<P: Platform> Node<P> {
    /// A stack on a link of its own.
    pub fn new(terms: NodeConfig) -> Node<P> {
        Node::with_device(terms, |near| near)
    }

    /// As [`Node::new`], with the stack's end of the link wrapped by `wrap`.
    pub fn with_device(terms: NodeConfig, wrap: impl FnOnce(Box<dyn Device>) -> Box<dyn Device>) -> Node<P> {
        let (a, b) = mem::pair::<P>(mem::MemConfig { ring_frames: terms.ring_frames, ..terms.link });
        let (near, mut far) = if terms.second { (b, a) } else { (a, b) };
        let clock = VirtualClock::new(START);
        let mut config = StackConfig::new(terms.arch);
        config.cpus = terms.cpus;
        config.own_threads = terms.own_threads;
        config.contain = terms.contain;
        config.tcp = terms.tcp;
        config.clock = if terms.platform_clock { Clock::Platform } else { Clock::Virtual(clock.clone()) };
        config.seed = Some(terms.seed);
        config.lock_kind = terms.lock_kind.unwrap_or(config.lock_kind);
        config.counting = terms.counting;
        config.runs = terms.runs;
        let (addresses, addressing) = (terms.addresses, terms.addressing);
        let interface = InterfaceConfig {
            device: wrap((terms.around)(Box::new(near))),
            addresses,
            gateways: terms.gateways,
            addressing,
        };
        let (stack, mut drivers) = Stack::build(config, vec![interface]).expect("the stack builds");
        let driver = drivers.pop().expect("a driver for each queue pair");
        let far = far.take_queues().pop().expect("a queue pair");
        Node { stack, driver, clock, far, batch: Vec::new() }
    }

    /// As [`Node::new`], and the stack knows the peer's link address.
    pub fn with_known_peer(terms: NodeConfig) -> Node<P> {
        let mut node = Node::new(terms);
        node.put(&frames::arp_request());
        node.settle();
        node
    }

    /// Sends a frame to the stack.
    pub fn put(&mut self, frame: &[u8]) {
        let buffer = PktBuf::from_slice(frame).expect("a packet buffer");
        assert!(self.far.tx.transmit(buffer).is_ok(), "the ring to the stack is full");
        self.far.tx.flush();
    }

    /// Runs everything that is due at this moment; returns the frames that the stack sent, in order.
    ///
    /// # Panics
    /// If pending work is not run within [`HANG`].
    pub fn settle(&mut self) -> Vec<Vec<u8>> {
        let (mut sent, mut idle, start) = (Vec::new(), 0, Instant::now());
        // A round may give work to a thread of the architecture, which sends after the frames of that round were taken.
        // The round after it takes them.
        while idle < 2 {
            assert!(start.elapsed() < HANG, "something is never run");
            let taken = self.driver.poll();
            let before = sent.len();
            self.collect(&mut sent);
            let quiet = taken == 0 && sent.len() == before && self.stack.is_quiescent();
            idle = if quiet { idle + 1 } else { 0 };
            P::yield_now();
        }
        sent
    }

    /// Takes the frames that the stack has sent, without running it.
    pub fn collect(&mut self, sent: &mut Vec<Vec<u8>>) {
        while self.far.rx.receive(&mut self.batch, 64) > 0 {
            sent.extend(self.batch.drain(..).map(|frame| frame.to_vec()));
        }
    }

    /// Delivers a frame; returns the answers except ARP.
    pub fn exchange(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.put(frame);
        let mut sent = self.settle();
        sent.retain(|frame| !frames::is_arp(frame));
        sent
    }

    /// Lets `span` pass in steps of `step`, and answers ARP for the peer; returns the other frames.
    pub fn pass(&mut self, span: Duration, step: Duration) -> Vec<Vec<u8>> {
        let mut sent = self.settle();
        let end = self.clock.now() + span;
        while self.clock.now() < end {
            self.clock.advance(step);
            sent.extend(self.settle());
            let replies: Vec<_> = sent.iter().filter_map(|frame| frames::arp_reply(frame)).collect();
            sent.retain(|frame| !frames::is_arp(frame));
            for reply in replies {
                sent.extend(self.exchange(&reply));
            }
        }
        sent
    }

    /// A listener on every address.
    pub fn listen(&self, port: u16, backlog: usize) -> Arc<ListenerShared<P>> {
        let any = SocketAddr::new(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), port);
        self.stack.listen(any, backlog, Default::default()).expect("the port is free")
    }

    /// A call by the user of `socket`.
    pub fn call(&self, socket: &TcpSocket<P>, call: Call<P>) -> Reply {
        self.stack.call(&socket.target(), call)
    }
}

/// A call that sends `data`.
pub fn send<P: Platform>(data: &[u8]) -> Call<P> {
    let mut chunks = tcp::Chunks::new();
    chunks.push(Chunk::shared(data.into()));
    Call::Send(tcp::Send { chunks })
}

/// The data of a receive's reply, and whether the stream has ended; `None` if it would block.
pub fn received(reply: Reply) -> Option<(Vec<u8>, bool)> {
    match reply {
        Reply::Received(Ok(received)) => {
            Some((received.data.iter().flat_map(|data| data.to_vec()).collect(), received.end))
        }
        Reply::Received(Err(tcp::Error::WouldBlock)) => None,
        Reply::Received(Err(error)) => panic!("the connection has failed: {error:?}"),
        _ => panic!("the connection is gone"),
    }
}
