//! The memory of a stack, counted by the program's allocator, in a process of its own: the memory of a peak is returned
//! after it, and a limit for the buffers of all connections (`tcp_mem`) bounds the memory of the whole program under
//! slow readers. Data that arrives in order allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dev::{Capabilities, Device, QueuePair, RxQueue, WaitOutcome, Wake};
use every_arch::every_arch;
use observe::Counter;
use pktbuf::PktBuf;
use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, TcpSocket};
use sync::Real;
use tcp::config::{BufferSizes, MemoryLimits};
use testbed::frames::{self, Ends, Segment};
use testbed::node::{Node, NodeConfig};

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator. Counts the bytes that the program holds, the most that it held since [`held`], and the
/// allocations of each thread.
struct Counting;

// SAFETY: every call is forwarded unchanged to the system's allocator; counting touches only integers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has none any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        MOST.fetch_max(HELD.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `ptr` came from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that the program holds; the maximum is counted from here.
fn held() -> usize {
    MOST.store(HELD.load(Relaxed), Relaxed);
    HELD.load(Relaxed)
}

/// One test at a time: the bytes are the program's.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const PORT: u16 = 80;

/// A connection, and its peer's side.
struct Peer {
    socket: Arc<TcpSocket<Real>>,
    /// The next sequence number that it expects.
    next: u32,
}

fn open(node: &mut Node<Real>, listener: &ListenerShared<Real>, ends: Ends, port: u16, window: u16) -> Peer {
    let answers = node.exchange(&Segment::syn(port, PORT).window(window).frame_over(ends));
    let (syn_ack, _) = answers.iter().find_map(|frame| frames::tcp_of(frame)).expect("a SYN-ACK");
    let next = syn_ack.seq.0.wrapping_add(1);
    node.exchange(&Segment::data((port, PORT), 0, next, &[]).window(window).frame_over(ends));
    Peer { socket: listener.accept().expect("a child waits"), next }
}

fn send(node: &Node<Real>, peer: &Peer, data: &[u8]) {
    let mut chunks = tcp::Chunks::new();
    chunks.push(PktBuf::from_slice(data).expect("a buffer").into());
    let sent = node.call(&peer.socket, Call::Send(tcp::Send { chunks }));
    assert!(matches!(sent, Reply::Sent(Ok(_))));
}

fn node(arch: Architecture, change: impl FnOnce(&mut tcp::Config)) -> Node<Real> {
    let mut config = NodeConfig::new(arch);
    change(&mut config.tcp);
    Node::with_known_peer(config)
}

/// Longer than a stack takes to return memory that was not needed for some time. The peer is known after it.
fn wait(node: &mut Node<Real>) {
    node.pass(Duration::from_secs(35), Duration::from_millis(500));
    node.exchange(&frames::arp_request());
    node.exchange(&frames::neighbour_solicitation());
}

/// The memory that may remain after a peak: in the stack a few chunks and slabs of each size, the addresses of chunks,
/// and the magazines of threads (1.3 MB in all after the first peak of a process); in each cell the allocations of its
/// first connections, and tables of the least size.
fn least(node: &Node<Real>) -> usize {
    (3 << 19) + node.stack.shared().control().accounts() * (24 << 10)
}

/// More segments are made in one event than an outbox has places for, and wait for their neighbour's address: their list
/// does not stay.
#[every_arch]
fn events_whose_segments_wait_leave_no_memory_behind(arch: Architecture) {
    let _turn = turn();
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch, |tcp| tcp.send_buffer = BufferSizes { initial: 1 << 20, ..tcp.send_buffer });
        node.exchange(&frames::neighbour_solicitation());
        let listener = node.listen(PORT, 8);
        let mut peer = open(&mut node, &listener, ends, 2000, 65_535);
        let datagrams = node.stack.bind_udp((ends.dst, 4000).into()).expect("the port is free");
        let mut round = |node: &mut Node<Real>| {
            // The peer does not answer questions for its address, and is known no more after that.
            node.clock.advance(Duration::from_secs(60));
            let payload = PktBuf::from_slice(b"text").expect("a packet buffer");
            assert_eq!(node.stack.send_udp(&datagrams, payload, Some((ends.src, 9).into())), Ok(4));
            for _ in 0..40 {
                node.clock.advance(Duration::from_millis(500));
                node.settle();
            }
            let made = node.stack.stats().counters.get(Counter::SegmentsOut);
            send(node, &peer, &[1; 30_000]);
            assert!(node.settle().iter().all(|frame| frames::tcp_of(frame).is_none()), "{arch}: nothing leaves");
            assert!(node.stack.stats().counters.get(Counter::SegmentsOut) > made + 8, "{arch}: in one event");
            let mut sent = node.exchange(&frames::arp_request());
            sent.extend(node.exchange(&frames::neighbour_solicitation()));
            let (all, start) = (peer.next.wrapping_add(30_000), node.clock.now());
            while peer.next != all {
                for (header, data) in sent.iter().filter_map(|frame| frames::tcp_of(frame)) {
                    if header.seq.0 == peer.next {
                        peer.next = peer.next.wrapping_add(data.len() as u32);
                    }
                }
                let acknowledgement = Segment::data((2000, PORT), 0, peer.next, &[]).window(65_535);
                sent = node.exchange(&acknowledgement.frame_over(ends));
                sent.extend(node.pass(Duration::from_millis(50), Duration::from_millis(50)));
                assert!(node.clock.now() < start + Duration::from_secs(30), "{arch}: the data arrives");
            }
        };
        (0..10).for_each(|_| round(&mut node));
        let before = held();
        (0..100).for_each(|_| round(&mut node));
        let grown = held().saturating_sub(before);
        assert!(grown < 8 << 10, "{arch}: {grown} bytes more after 100 rounds");
    }
}

#[every_arch]
fn connections_that_have_gone_leave_no_memory_behind(arch: Architecture) {
    const EACH: u16 = 10_000;
    let _turn = turn();
    let mut node = node(arch, |tcp| tcp.max_time_wait = 0);
    wait(&mut node);
    let listener = node.listen(PORT, 8);
    // The first connections make tables, counters and magazines that stay.
    for ends in Ends::BOTH_FAMILIES {
        let peer = open(&mut node, &listener, ends, 999, 1000);
        send(&node, &peer, &[1; 3000]);
        node.call(&peer.socket, Call::Abort(tcp::Abort));
        node.settle();
    }
    wait(&mut node);
    let before = held();
    for round in 0..2 {
        let mut peers = Vec::new();
        for ends in Ends::BOTH_FAMILIES {
            for port in 1000..1000 + EACH {
                let peer = open(&mut node, &listener, ends, port, 1000);
                node.put(&Segment::data((port, PORT), 0, peer.next, &[7; 200]).frame_over(ends));
                send(&node, &peer, &[1; 3000]);
                node.settle();
                peers.push(peer);
            }
        }
        let full = held() - before;
        assert!(full > 2 * usize::from(EACH) * 2048, "{full} bytes: each has a PCB and two buffers at least");
        for peer in peers {
            node.call(&peer.socket, Call::Abort(tcp::Abort));
            node.settle();
        }
        assert_eq!(node.stack.stats().connections, 0);
        wait(&mut node);
        let left = held().saturating_sub(before);
        println!("{arch}: {left} of {full} bytes are left in {} cells", node.stack.shared().control().accounts());
        assert!(left <= least(&node), "{arch}, round {round}: {left} of {full} bytes are left");
    }
}

/// Four hundred readers take nothing from connections that want to send them much. Their memory stops at the limit for
/// all of them; an earlier connection is answered meanwhile; and the memory is given back when they have gone.
#[every_arch]
fn slow_readers_keep_to_the_limit_and_leave_nothing(arch: Architecture) {
    const READERS: u16 = 400;
    const LIMIT: usize = 4 << 20;
    const LEAST: u32 = 4096;
    // Of each connection beside the buffers that the limit counts: the PCB and its queues, places in tables, the socket;
    // the block of data that is accepted beyond the limit; a segment in the device.
    const BESIDE: usize = (8 << 10) + (18 << 10);
    for ends in Ends::BOTH_FAMILIES {
        let _turn = turn();
        let mut node = node(arch, |tcp| {
            let limit = LIMIT as u64;
            tcp.memory = Some(MemoryLimits { low: limit / 2, pressure: limit * 3 / 4, high: limit });
            tcp.send_buffer = BufferSizes { min: LEAST, initial: 256 << 10, max: 4 << 20 };
            tcp.max_time_wait = 0;
        });
        wait(&mut node);
        let listener = node.listen(PORT, 8);
        let mut earlier = open(&mut node, &listener, ends, 999, 60_000);
        wait(&mut node);
        let before = held();
        let mut readers: Vec<Peer> =
            (0..READERS).map(|number| open(&mut node, &listener, ends, 1000 + number, 1000)).collect();
        for round in 0..8 {
            for reader in &readers {
                send(&node, reader, &[9; 60_000]);
                node.settle();
            }
            let used = node.stack.shared().control().memory();
            assert!(round == 0 || used >= LIMIT as u64, "{used} bytes: the limit is not reached");
        }
        let most = MOST.load(Relaxed) - before;
        let bound = LIMIT + LIMIT / 16 + usize::from(READERS) * BESIDE + (2 << 20);
        assert!(most <= bound, "{arch}: {most} bytes, {bound} are the limit and what is beside it");
        assert!(node.exchange(&Segment::syn(500, PORT).frame_over(ends)).is_empty(), "nobody new is let in");
        for question in 0..3u32 {
            let asked = Segment::data((999, PORT), question * 8, earlier.next, b"question");
            node.exchange(&asked.frame_over(ends));
            let reply = node.call(&earlier.socket, Call::Receive(tcp::Receive { max: 100 }));
            assert!(matches!(reply, Reply::Received(Ok(_))), "the question arrives");
            // More than the least buffer: the rest is sent when the first part is acknowledged.
            let mut left = vec![5; 10_000];
            while !left.is_empty() {
                let mut chunks = tcp::Chunks::new();
                chunks.push(PktBuf::from_slice(&left).expect("a buffer").into());
                let Reply::Sent(Ok(sent)) = node.call(&earlier.socket, Call::Send(tcp::Send { chunks })) else {
                    panic!("{arch}: an earlier connection has ended");
                };
                assert!(sent.accepted > 0, "{arch}: an earlier connection gets its least");
                left.drain(..sent.accepted);
                let frames = node.settle();
                let data = frames
                    .iter()
                    .filter_map(|frame| frames::tcp_of(frame))
                    .filter(|(header, _)| header.dst_port == 999);
                let arrived: usize = data.map(|(_, data)| data.len()).sum();
                assert_eq!(arrived, sent.accepted, "{arch}: what was accepted is sent at once");
                earlier.next = earlier.next.wrapping_add(arrived as u32);
                node.exchange(&Segment::data((999, PORT), (question + 1) * 8, earlier.next, &[]).frame_over(ends));
            }
        }
        for reader in readers.drain(..) {
            node.call(&reader.socket, Call::Abort(tcp::Abort));
            node.settle();
        }
        drop(readers);
        wait(&mut node);
        let left = held().saturating_sub(before);
        assert!(left <= least(&node), "{arch}: {left} of {most} bytes are left");
        assert_eq!(node.exchange(&Segment::syn(501, PORT).frame_over(ends)).len(), 1, "and new clients are welcome");
    }
}

/// Addresses of the frames that the device has brought.
type Brought = Arc<Mutex<Vec<Range<usize>>>>;

/// A device that notes where its frames are.
struct Noting(Box<dyn Device>, Brought);

impl Device for Noting {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }
    fn take_queues(&mut self) -> Vec<QueuePair> {
        let noting = |QueuePair { rx, tx }| QueuePair { rx: Box::new(NotingRx(rx, self.1.clone())), tx };
        self.0.take_queues().into_iter().map(noting).collect()
    }
}

struct NotingRx(Box<dyn RxQueue>, Brought);

impl RxQueue for NotingRx {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let (before, count) = (batch.len(), self.0.receive(batch, max));
        let places = batch[before..].iter().map(|frame| frame.as_ptr().addr()..frame.as_ptr().addr() + frame.len());
        self.1.lock().unwrap().extend(places);
        count
    }
    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        self.0.wait(timeout)
    }
    fn waker(&self) -> Arc<dyn Wake> {
        self.0.waker()
    }
}

/// Rounds of two segments and a read. The first half makes queues and magazines that stay.
const ROUNDS: u32 = 80;

/// Nothing is allocated for a segment in order, and the user is given the very bytes that the device has brought, so that
/// the only copy is the user's.
#[every_arch(except(connp_t, connp_t_spsc, conn_thread_2, layer, squeue_fill))]
fn data_in_order_is_neither_allocated_for_nor_copied(arch: Architecture) {
    data_in_order(arch, 0);
}

/// What waits in a queue for the owner of the connection costs one allocation for a batch and its read.
#[every_arch(only(connp_t, connp_t_spsc, conn_thread_2, layer, squeue_fill))]
fn data_in_order_for_an_owner_costs_an_allocation_a_batch(arch: Architecture) {
    data_in_order(arch, u64::from(ROUNDS / 2));
}

/// The allocations of the last half of the rounds are at most so many.
fn data_in_order(arch: Architecture, most: u64) {
    let _turn = turn();
    for ends in Ends::BOTH_FAMILIES {
        let brought = Brought::new(Mutex::new(Vec::with_capacity(1000)));
        let mut node = Node::<Real>::with_device(NodeConfig::new(arch), |near| Box::new(Noting(near, brought.clone())));
        node.exchange(&frames::arp_request());
        node.exchange(&frames::neighbour_solicitation());
        let listener = node.listen(PORT, 8);
        let peer = open(&mut node, &listener, ends, 2000, 1000);
        let mut during = 0;
        for round in 0..ROUNDS {
            let at = |n: u32| 1000 * (2 * round + n);
            for n in 0..2 {
                node.put(&Segment::data((2000, PORT), at(n), peer.next, &[n as u8; 1000]).frame_over(ends));
            }
            brought.lock().unwrap().clear();
            let before = ALLOCATIONS.get();
            while node.driver.poll() != 0 || !node.stack.is_quiescent() {}
            let reply = node.call(&peer.socket, Call::Receive(tcp::Receive { max: 2000 }));
            let allocations = ALLOCATIONS.get() - before;
            let Reply::Received(Ok(received)) = reply else { panic!("two segments have come") };
            assert_eq!(received.data.iter().map(|data| data.len()).sum::<usize>(), 2000);
            let places = brought.lock().unwrap();
            for data in &received.data {
                let address = data.as_ptr().addr();
                assert!(places.iter().any(|frame| frame.contains(&address)), "the payload was copied");
            }
            drop((places, received));
            node.settle();
            during += if round < ROUNDS / 2 { 0 } else { allocations };
        }
        assert!(during <= most, "{arch}: {during} allocations for {ROUNDS} segments in order");
    }
}
