//! The stack's reports to a platform that charges for plain work and memory (`Platform::{work, touch}`): each segment,
//! call and frame once, under every architecture and over both families. Segments are counted, not function calls.

use dev::{Capabilities, Device, QueuePair, RxQueue, WaitOutcome, Wake};
use every_arch::every_arch;
use pktbuf::PktBuf;
use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::{PollSet, TcpSocket};
use std::sync::Arc;
use std::time::Duration;
use sync::{LockClass, Object, Step};
use testbed::counting::{Charged, Counting, Spent, charged, loads, spent};
use testbed::frames::{self, Ends, ISS, Segment, tcp_of};
use testbed::node::{Node, NodeConfig, received, send};
use wire::tcp::TcpFlags;

const PORT: u16 = 80;

/// A stack with one open connection without received data, and the peer's next acknowledgement number.
fn connected(arch: Architecture, ends: Ends) -> (Node<Counting>, Arc<TcpSocket<Counting>>, u32) {
    connected_by(NodeConfig::new(arch), ends)
}

fn connected_by(config: NodeConfig, ends: Ends) -> (Node<Counting>, Arc<TcpSocket<Counting>>, u32) {
    let mut node = Node::<Counting>::with_known_peer(config);
    node.exchange(&frames::neighbour_solicitation());
    let listener = node.listen(PORT, 8);
    let answers = node.exchange(&Segment::syn(2000, PORT).frame_over(ends));
    let ack = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
    node.exchange(&Segment::ack((2000, PORT), ISS.wrapping_add(1), ack).frame_over(ends));
    (node, listener.accept().expect("a child waits"), ack)
}

fn data(at: u32, ack: u32, data: &[u8]) -> Segment<'_> {
    Segment { data, ..Segment::ack((2000, PORT), ISS.wrapping_add(1).wrapping_add(at), ack) }.and(TcpFlags::PSH)
}

/// `[frames, segments' events, emissions, calls, timers]`.
fn steps(charged: &Charged) -> [usize; 5] {
    [Step::Frame, Step::Event, Step::Emit, Step::Call, Step::Timer].map(|step| charged.steps(step))
}

#[every_arch]
fn a_segment_that_arrives_is_a_frame_and_an_event(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, _socket, ack) = connected(arch, ends);
        for (at, count) in [(0, 1), (4, 3)] {
            (0..count).for_each(|n| node.put(&data(at + 4 * n, ack, b"data").frame_over(ends)));
            let (frames, charged) = charged(|| node.driver.poll());
            let [taken, events, ..] = steps(&charged);
            assert_eq!((frames, taken, events), (count as usize, count as usize, count as usize), "{charged:?}");
            assert!(charged.steps(Step::Batch) > 0, "{charged:?}");
            // Headers of each frame, and the whole connection at each event.
            assert!(charged.bytes(Object::Buffer) >= count as usize * 54, "{charged:?}");
            assert!(charged.bytes(Object::Connection) >= count as usize * 400, "{charged:?}");
            node.settle();
        }
    }
}

/// Says of long frames that they were several of 400 bytes.
struct Joining(Box<dyn Device>);

impl Device for Joining {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }
    fn name(&self) -> &str {
        self.0.name()
    }
    fn take_queues(&mut self) -> Vec<QueuePair> {
        let joining = |QueuePair { rx, tx }| QueuePair { rx: Box::new(JoiningRx(rx)), tx };
        self.0.take_queues().into_iter().map(joining).collect()
    }
}

struct JoiningRx(Box<dyn RxQueue>);

impl RxQueue for JoiningRx {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let count = self.0.receive(batch, max);
        batch.iter_mut().filter(|frame| frame.len() > 1000).for_each(|frame| frame.meta_mut().segment_size = 400);
        count
    }
    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        self.0.wait(timeout)
    }
    fn waker(&self) -> Arc<dyn Wake> {
        self.0.waker()
    }
}

/// A super-segment of a device that coalesces counts as the segments it was, at the frame and at the event.
#[every_arch]
fn a_super_segment_counts_as_its_segments(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let around = |port| Box::new(Joining(port)) as Box<dyn Device>;
        let (mut node, _socket, ack) = connected_by(NodeConfig { around, ..NodeConfig::new(arch) }, ends);
        node.put(&data(0, ack, &[7; 1000]).frame_over(ends));
        let (_, charged) = charged(|| node.driver.poll());
        assert_eq!(steps(&charged)[..2], [3, 3], "{charged:?}");
    }
}

#[every_arch]
fn a_call_is_charged_with_the_data_that_it_moves(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, socket, ack) = connected(arch, ends);
        node.exchange(&data(0, ack, b"question").frame_over(ends));
        let receive = Call::Receive(tcp::Receive { max: 100 });
        let (reply, read) = charged(|| node.call(&socket, receive));
        assert_eq!(received(reply).expect("data").0, b"question");
        assert_eq!((read.steps(Step::Call), read.bytes(Object::Payload)), (1, 8), "{read:?}");
        assert_eq!(steps(&read)[..3], [0, 1, 0], "{read:?}");
    }
}

#[every_arch]
fn what_a_call_sends_is_counted_by_segments(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, socket, ack) = connected(arch, ends);
        // The peer receives the data in one batch.
        node.exchange(&data(0, ack, b"x").frame_over(ends));
        let (reply, wrote) = charged(|| node.call(&socket, send(&[7; 4000])));
        assert!(matches!(reply, Reply::Sent(Ok(_))));
        let sent = node.settle();
        let has_data = |frame: &&Vec<u8>| tcp_of(frame).is_some_and(|(_, data)| !data.is_empty());
        let segments = sent.iter().filter(has_data).count();
        assert!(segments > 1, "{segments}");
        assert_eq!(steps(&wrote), [0, 1, segments, 1, 0], "{wrote:?}");
        // Read once from the user, and once when it goes to the device.
        assert!(wrote.bytes(Object::Payload) >= 4000, "{wrote:?}");
        assert!(wrote.bytes(Object::Buffer) >= segments * 54, "{wrote:?}");
    }
}

/// What is there beside connections, and moves from thread to thread with the work, is reported where it is used: the counters of
/// each event, the entry of the frame's ring, the index in which its connection is found. Its socket is in no poll set at first.
#[every_arch]
fn counters_rings_tables_and_ready_sockets_are_charged(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut node, socket, ack) = connected(arch, ends);
        let arrives = |node: &mut Node<Counting>, at: u32| {
            node.put(&data(at, ack, b"data").frame_over(ends));
            let ((frames, charged), spent) = spent(|| charged(|| node.driver.poll()));
            assert_eq!(frames, 1);
            (charged, spent.locks)
        };
        let (charged, locks) = arrives(&mut node, 0);
        assert_eq!(charged.bytes(Object::Counters), 128 * charged.steps(Step::Event), "two lines: {charged:?}");
        assert!(charged.bytes(Object::Ring) >= size_of::<PktBuf>(), "{charged:?}");
        assert_eq!(charged.bytes(Object::Ready), 0, "{charged:?}");
        assert!(charged.bytes(Object::Table) >= 8, "{charged:?}");
        // Each use of a table that threads share is a look-up.
        let of_tables = locks.iter().find(|(class, _)| *class == LockClass::ConnTable).map_or(0, |(_, taken)| *taken);
        assert_eq!(charged.steps(Step::LookUp) as u64, of_tables, "{charged:?} {locks:?}");
        let set = PollSet::new(false).expect("a set without a descriptor");
        socket.ready.register(&socket, &set, 0);
        assert_eq!(received(node.call(&socket, Call::Receive(tcp::Receive { max: 100 }))).expect("data").0, b"data");
        set.try_wait(&mut Vec::new(), 8);
        let (charged, _) = arrives(&mut node, 4);
        // The list, the member and its entry.
        assert!(charged.bytes(Object::Ready) > 8, "{charged:?}");
        set.close();
    }
}

/// The cost of a data segment, a read and an answer on one connection.
fn cost_among(others: u16, arch: Architecture, ends: Ends) -> (Charged, Spent, u64) {
    let (mut node, socket, ack) = connected(arch, ends);
    let listener = node.listen(PORT + 1, usize::from(others));
    for port in 3000..3000 + others {
        let answers = node.exchange(&Segment::syn(port, PORT + 1).frame_over(ends));
        let ack = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
        node.exchange(&Segment::ack((port, PORT + 1), ISS.wrapping_add(1), ack).frame_over(ends));
    }
    assert_eq!(node.stack.stats().connections, usize::from(others) + 1);
    // The first of each makes what stays.
    let mut round = |at: u32| {
        node.put(&data(4 * at, ack.wrapping_add(6 * at), b"data").frame_over(ends));
        let work = || {
            node.driver.poll();
            assert_eq!(
                received(node.call(&socket, Call::Receive(tcp::Receive { max: 100 }))).expect("data").0,
                b"data"
            );
            assert!(matches!(node.call(&socket, send(b"answer")), Reply::Sent(Ok(_))));
        };
        let (((_, charged), spent), loads) = loads(|| spent(|| charged(work)));
        node.settle();
        (charged, spent, loads)
    };
    (0..4).for_each(|at| _ = round(at));
    let cost = round(4);
    drop(listener);
    cost
}

/// No data path looks at other connections: the stack reports the same work and the same memory, takes the same locks and
/// loads as many atomics whether there are two other connections or two hundred. (`adaptive` has more entries with more connections,
/// and so decides earlier: a segment at home costs less.)
#[every_arch(except(adaptive))]
fn a_segment_and_its_answer_cost_the_same_among_many_connections(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        assert_eq!(cost_among(2, arch, ends), cost_among(200, arch, ends), "{ends:?}");
    }
}

/// A receive thread looks at the cells that have work, and not at others: a segment, its answer and the ticks between load as
/// many atomics with a thousand groups as with four, although a timer is armed.
#[test]
fn a_segment_and_its_answer_cost_the_same_with_many_groups() {
    for ends in Ends::BOTH_FAMILIES {
        let [few, many] = ["connp-l:4", "connp-l:1024"].map(|name| cost_among(2, Architecture::named(name), ends));
        assert_eq!(few, many, "{ends:?}");
    }
}

/// The same of `adaptive`, with 16 groups, which have messages, too: a poll that finds nothing looks for its receive thread and
/// for marks, and at no group.
#[test]
fn an_idle_poll_looks_at_no_group() {
    for ends in Ends::BOTH_FAMILIES {
        let [locked, adaptive] = ["connp-l:4", "adaptive:16"].map(|name| {
            let (mut node, ..) = connected(Architecture::named(name), ends);
            let polls = [(); 3].map(|()| loads(|| node.driver.poll()));
            assert_eq!(polls[2].0, 0);
            polls[2].1
        });
        assert!(adaptive <= locked + 4, "{adaptive} loads, and {locked} where groups have only timers");
    }
}
