//! The number of clock readings of a stack, and the maximum age of a time that it uses instead (ARCHITECTURE.md,
//! invariants): a driver reads it once a batch, whatever the number of segments.

use std::cell::Cell;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dev::{Device, QueuePair, mem};
use every_arch::every_arch;
use pktbuf::PktBuf;
use stack::call::{Call, Reply};
use stack::socket::TcpSocket;
use stack::{Addressing, Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig};
use sync::{Platform, Real};
use tcp::Received;
use tcp::config::BufferSizes;
use testbed::frames::{self, Ends, ISS, STACK, Segment, tcp_of};
use wire::tcp::{Options, TcpFlags, Timestamps};

const PORT: u16 = 80;
const PEER: u16 = 2000;
/// Bytes in a segment of the peer.
const LENGTH: usize = 1000;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(1_000_000_000) };
    static READS: Cell<u64> = const { Cell::new(0) };
}

/// The real machine, with a clock for each thread that is moved by hand, and counts its readings.
#[derive(Clone, Copy, Debug, Default)]
struct Timed;

impl Platform for Timed {
    sync::forward_platform!(Real: atomics futex cells doorbell spawn join spin random thread fences);

    fn now() -> u64 {
        READS.set(READS.get() + 1);
        NOW.get()
    }
}

/// The number of times that `work` reads the clock.
fn reads<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let before = READS.get();
    let result = work();
    (result, READS.get() - before)
}

/// A stack on the calling thread with an open connection, and the peer's end of it.
struct World {
    stack: Stack<Timed>,
    driver: Driver<Timed>,
    far: QueuePair,
    ends: Ends,
    socket: Option<Arc<TcpSocket<Timed>>>,
    /// Bytes that the peer has sent, and its acknowledgement number.
    sent: u32,
    acknowledged: u32,
}

impl World {
    fn new(arch: Architecture, ends: Ends) -> World {
        let (near, mut far) = mem::pair::<Timed>(mem::MemConfig::default());
        let mut config = StackConfig::new(arch);
        (config.clock, config.seed, config.cpus, config.own_threads) = (Clock::Platform, Some(1), 2, false);
        config.tcp.receive_buffer = BufferSizes { min: 8_000, initial: 8_000, max: 8_000 };
        let interface = InterfaceConfig {
            device: Box::new(near),
            addresses: vec![(STACK.into(), 24), ("fd00::1".parse().expect("an address"), 64)],
            gateways: Vec::new(),
            addressing: Addressing::default(),
        };
        let (stack, mut drivers) = Stack::build(config, vec![interface]).expect("the stack builds");
        let driver = drivers.pop().expect("a driver");
        let far = far.take_queues().pop().expect("a queue pair");
        let mut world = World { stack, driver, far, ends, socket: None, sent: 0, acknowledged: 0 };
        for frame in [frames::arp_request(), frames::neighbour_solicitation()] {
            world.put(&frame);
        }
        world.settle();
        world.connect();
        world
    }

    fn connect(&mut self) {
        let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT);
        let listener = self.stack.listen(any, 8, Default::default()).expect("the port is free");
        let options = Options { mss: Some(1_400), timestamps: Some(Timestamps { value: 1, echo: 0 }), ..Options::NONE };
        self.put(&Segment::syn(PEER, PORT).options(options).frame_over(self.ends));
        let (header, _) = self.settle().pop().expect("a SYN-ACK");
        self.acknowledged = header.seq.0.wrapping_add(1);
        let ack = self.segment(b"");
        self.put(&ack);
        self.settle();
        self.socket = listener.accept();
    }

    /// The peer's next segment.
    fn segment(&mut self, data: &[u8]) -> Vec<u8> {
        let seq = ISS.wrapping_add(1).wrapping_add(self.sent);
        self.sent += data.len() as u32;
        let options = Options { timestamps: Some(Timestamps { value: 1, echo: 0 }), ..Options::NONE };
        let flags = if data.is_empty() { TcpFlags::ACK } else { TcpFlags::PSH };
        Segment { data, ..Segment::ack((PEER, PORT), seq, self.acknowledged) }
            .and(flags)
            .options(options)
            .frame_over(self.ends)
    }

    fn put(&mut self, frame: &[u8]) {
        let buffer = PktBuf::from_slice(frame).expect("a packet buffer");
        assert!(self.far.tx.transmit(buffer).is_ok(), "the ring has room");
        self.far.tx.flush();
    }

    /// Polls until nothing is left to do; returns the segments that the stack has sent.
    fn settle(&mut self) -> Vec<(wire::tcp::Header, usize)> {
        while self.driver.poll() > 0 || !self.stack.is_quiescent() {}
        self.received()
    }

    /// The segments that the stack has sent.
    fn received(&mut self) -> Vec<(wire::tcp::Header, usize)> {
        let (mut batch, mut segments) = (Vec::new(), Vec::new());
        while self.far.rx.receive(&mut batch, 64) > 0 {
            segments
                .extend(batch.drain(..).filter_map(|frame| tcp_of(&frame).map(|(header, data)| (header, data.len()))));
        }
        segments
    }

    fn socket(&self) -> Arc<TcpSocket<Timed>> {
        self.socket.clone().expect("the connection is open")
    }
}

/// The two ways in which a user's RECEIVE enters a stack; each returns the number of bytes read.
const RECEIVES: [fn(&World) -> usize; 2] = [by_call, by_method];

fn by_call(world: &World) -> usize {
    match world.stack.call(&world.socket().target(), Call::Receive(tcp::Receive { max: usize::MAX })) {
        Reply::Received(Ok(received)) => received.data.iter().map(|data| data.len()).sum(),
        _ => 0,
    }
}

fn by_method(world: &World) -> usize {
    let mut received = Received::default();
    let answer = world.stack.receive(&world.socket().target(), tcp::Receive { max: usize::MAX }, &mut received);
    assert_eq!(answer, Some(Ok(())));
    received.data.iter().map(|data| data.len()).sum()
}

#[every_arch]
fn segments_of_a_batch_read_the_clock_no_oftener_than_one(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut world = World::new(arch, ends);
        let [one, many] = [1, 16].map(|count| {
            for _ in 0..count {
                let frame = world.segment(&[7; 100]);
                world.put(&frame);
            }
            let (taken, read) = reads(|| world.driver.poll());
            assert_eq!(taken, count, "one batch");
            world.settle();
            assert_eq!(by_call(&world), count * 100);
            read
        });
        assert_eq!(one, many, "the clock is read for each segment");
        assert!(one <= 3, "a batch reads the clock {one} times");
    }
}

/// The thread that reads has polled just now: it uses the time of that batch.
#[every_arch(only(up, shared_nothing, connp_t_lwkt))]
fn the_thread_that_polls_reads_payload_without_the_clock(arch: Architecture) {
    for (ends, receive) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| RECEIVES.map(|receive| (ends, receive))) {
        let mut world = World::new(arch, ends);
        let frame = world.segment(&[7; LENGTH]);
        world.put(&frame);
        world.settle();
        assert_eq!(reads(|| receive(&world)), (LENGTH, 0));
    }
}

/// RFC 7323, 4.1: TSval is "the current value of the timestamp clock". A user's thread that does not poll reads when it
/// likes, long after the last batch: the window update that it causes has the time of the read. (Under `up` and
/// `shared-nothing` the reader is the thread that polls.)
#[every_arch(except(up, shared_nothing, connp_t_lwkt))]
fn a_window_update_has_the_time_of_the_read_not_of_the_last_batch(arch: Architecture) {
    for (ends, receive) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| RECEIVES.map(|receive| (ends, receive))) {
        let mut world = World::new(arch, ends);
        let last = loop {
            let frame = world.segment(&[7; LENGTH]);
            world.put(&frame);
            let (header, _) = world.settle().pop().expect("an acknowledgement");
            if usize::from(header.window) < LENGTH {
                break header;
            }
        };
        NOW.set(NOW.get() + Duration::from_secs(5).as_nanos() as u64);
        assert_eq!(receive(&world), world.sent as usize);
        let (update, _) = world.received().pop().expect("a window update");
        let value = |header: &wire::tcp::Header| header.options.timestamps.expect("a timestamp").value;
        assert_eq!(value(&update).wrapping_sub(value(&last)), 5_000, "in milliseconds");
    }
}
