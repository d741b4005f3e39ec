//! The number of clock readings of a stack, and the maximum age of a time that it uses instead (ARCHITECTURE.md,
//! invariants): a driver reads it once a batch, whatever the number of segments.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use every_arch::every_arch;
use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::TcpSocket;
use sync::{Platform, Real};
use tcp::Received;
use tcp::config::{BufferSizes, ConnectionOptions};
use testbed::frames::{self, Ends, ISS, Segment, tcp_of};
use testbed::node::{Node, NodeConfig};
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
struct Opened {
    node: Node<Timed>,
    ends: Ends,
    socket: Option<Arc<TcpSocket<Timed>>>,
    /// Bytes that the peer has sent, and its acknowledgement number.
    sent: u32,
    acknowledged: u32,
}

impl Opened {
    fn new(arch: Architecture, ends: Ends) -> Opened {
        let mut terms = NodeConfig { platform_clock: true, ..NodeConfig::new(arch) };
        terms.tcp.receive_buffer = BufferSizes { min: 8_000, initial: 8_000, max: 8_000 };
        let mut node = Node::with_known_peer(terms);
        node.exchange(&frames::neighbour_solicitation());
        let mut opened = Opened { node, ends, socket: None, sent: 0, acknowledged: 0 };
        opened.connect();
        opened
    }

    fn connect(&mut self) {
        let listener = self.node.listen(PORT, 8);
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
        self.node.put(frame);
    }

    /// Runs the stack until nothing is left to do; returns the segments that it has sent.
    fn settle(&mut self) -> Vec<(wire::tcp::Header, usize)> {
        segments(&self.node.settle())
    }

    /// The segments that the stack has sent, without running it.
    fn received(&mut self) -> Vec<(wire::tcp::Header, usize)> {
        let mut sent = Vec::new();
        self.node.collect(&mut sent);
        segments(&sent)
    }

    fn socket(&self) -> Arc<TcpSocket<Timed>> {
        self.socket.clone().expect("the connection is open")
    }
}

/// The headers of the segments among frames, and the lengths of their data.
fn segments(sent: &[Vec<u8>]) -> Vec<(wire::tcp::Header, usize)> {
    sent.iter().filter_map(|frame| tcp_of(frame).map(|(header, data)| (header, data.len()))).collect()
}

/// The two ways in which a user's RECEIVE enters a stack; each returns the number of bytes read.
const RECEIVES: [fn(&Opened) -> usize; 2] = [by_call, by_method];

fn by_call(opened: &Opened) -> usize {
    match opened.node.stack.call(&opened.socket().target(), Call::Receive(tcp::Receive { max: usize::MAX })) {
        Reply::Received(Ok(received)) => received.data.iter().map(|data| data.len()).sum(),
        _ => 0,
    }
}

fn by_method(opened: &Opened) -> usize {
    let mut received = Received::default();
    let answer = opened.node.stack.receive(&opened.socket().target(), tcp::Receive { max: usize::MAX }, &mut received);
    assert_eq!(answer, Some(Ok(())));
    received.data.iter().map(|data| data.len()).sum()
}

#[every_arch]
fn segments_of_a_batch_read_the_clock_no_oftener_than_one(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut opened = Opened::new(arch, ends);
        let [one, many] = [1, 16].map(|count| {
            for _ in 0..count {
                let frame = opened.segment(&[7; 100]);
                opened.put(&frame);
            }
            let (taken, read) = reads(|| opened.node.driver.poll());
            assert_eq!(taken, count, "one batch");
            opened.settle();
            assert_eq!(by_call(&opened), count * 100);
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
        let mut opened = Opened::new(arch, ends);
        let frame = opened.segment(&[7; LENGTH]);
        opened.put(&frame);
        opened.settle();
        assert_eq!(reads(|| receive(&opened)), (LENGTH, 0));
    }
}

/// The sequence number, the timestamp and the timer of its SYN have one time.
#[every_arch(only(up, shared_nothing))]
fn the_thread_that_polls_opens_a_connection_with_one_reading(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut opened = Opened::new(arch, ends);
        let peer = SocketAddr::new(ends.src, PEER + 1);
        let open = || opened.node.stack.connect(None, peer, &ConnectionOptions::default());
        let (socket, read) = reads(open);
        assert_eq!(read, 1);
        let (syn, _) = opened.received().pop().expect("a SYN");
        assert!(syn.flags.contains(TcpFlags::SYN));
        drop(socket.expect("a port is free"));
    }
}

/// RFC 7323, 4.1: TSval is "the current value of the timestamp clock". A user's thread that does not poll reads when it
/// likes, long after the last batch: the window update that it causes has the time of the read. (Under `up` and
/// `shared-nothing` the reader is the thread that polls.)
#[every_arch(except(up, shared_nothing, connp_t_lwkt))]
fn a_window_update_has_the_time_of_the_read_not_of_the_last_batch(arch: Architecture) {
    for (ends, receive) in Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| RECEIVES.map(|receive| (ends, receive))) {
        let mut opened = Opened::new(arch, ends);
        let last = loop {
            let frame = opened.segment(&[7; LENGTH]);
            opened.put(&frame);
            let (header, _) = opened.settle().pop().expect("an acknowledgement");
            if usize::from(header.window) < LENGTH {
                break header;
            }
        };
        NOW.set(NOW.get() + Duration::from_secs(5).as_nanos() as u64);
        assert_eq!(receive(&opened), opened.sent as usize);
        let (update, _) = opened.received().pop().expect("a window update");
        let value = |header: &wire::tcp::Header| header.options.timestamps.expect("a timestamp").value;
        assert_eq!(value(&update).wrapping_sub(value(&last)), 5_000, "in milliseconds");
    }
}
