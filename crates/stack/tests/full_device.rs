//! Many connections have data for a full device that accepts frames one by one: each connection gets its turn, for
//! several frames at once. A turn costs an event; counted over both families.

use std::sync::Arc;

use dev::{Capabilities, Device, QueuePair};
use every_arch::every_arch;
use observe::Counter;
use stack::Architecture;
use stack::call::Reply;
use stack::socket::{ListenerShared, TcpSocket};
use sync::Real;
use testbed::frames::{self, Ends, ISS, Segment, tcp_of};
use testbed::node::{Node, NodeConfig, send};

const PORT: u16 = 80;
const RING: usize = 64;
/// Segments that a connection may send at first.
const WINDOW: usize = 10;

/// Data in a segment to a peer that announces no MSS.
fn mss(ends: Ends) -> usize {
    if ends.src.is_ipv4() { 536 } else { 1220 }
}

/// A device without segmentation offload.
struct Plain(Box<dyn Device>, Capabilities);

impl Device for Plain {
    fn capabilities(&self) -> &Capabilities {
        &self.1
    }
    fn name(&self) -> &str {
        self.0.name()
    }
    fn take_queues(&mut self) -> Vec<QueuePair> {
        self.0.take_queues()
    }
}

/// A stack with a ring of 64 frames and a known peer.
fn node(arch: Architecture) -> Node<Real> {
    let config = NodeConfig { ring_frames: RING, ..NodeConfig::new(arch) };
    let mut node = Node::with_device(config, |device| {
        let capabilities = Capabilities { segmentation: None, ..device.capabilities().clone() };
        Box::new(Plain(device, capabilities))
    });
    for introduction in [frames::arp_request(), frames::neighbour_solicitation()] {
        node.put(&introduction);
        node.settle();
    }
    node
}

fn open(node: &mut Node<Real>, listener: &ListenerShared<Real>, ends: Ends, from: u16) -> Arc<TcpSocket<Real>> {
    let answers = node.exchange(&Segment::syn(from, PORT).frame_over(ends));
    let next = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
    node.exchange(&Segment::ack((from, PORT), ISS.wrapping_add(1), next).frame_over(ends));
    listener.accept().expect("a child waits")
}

fn write(node: &Node<Real>, socket: &TcpSocket<Real>, data: &[u8]) {
    assert!(matches!(node.call(socket, send(data)), Reply::Sent(Ok(sent)) if sent.accepted == data.len()));
}

/// The far end takes one frame after another, and the stack serves the device each time. Returns the frames.
fn trickle(node: &mut Node<Real>) -> Vec<Vec<u8>> {
    let (mut sent, mut batch) = (Vec::new(), Vec::new());
    loop {
        node.driver.poll();
        while !node.stack.is_quiescent() {
            node.driver.poll();
        }
        if node.far.rx.receive(&mut batch, 1) == 0 {
            return sent;
        }
        sent.extend(batch.drain(..).map(|frame| frame.to_vec()));
    }
}

fn turns(node: &Node<Real>) -> u64 {
    node.driver.counters().get(Counter::RoomTurns)
}

#[every_arch]
fn a_device_that_takes_frames_one_by_one_costs_an_event_for_several(arch: Architecture) {
    const CONNECTIONS: u16 = 24;
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let listener = node.listen(PORT, CONNECTIONS.into());
        let sockets: Vec<_> = (0..CONNECTIONS).map(|n| open(&mut node, &listener, ends, 2000 + n)).collect();
        let before = turns(&node);
        sockets.iter().for_each(|socket| write(&node, socket, &vec![7; WINDOW * mss(ends)]));
        let sent = trickle(&mut node);
        let data = |from: u16| {
            let of =
                |frame: &Vec<u8>| tcp_of(frame).filter(|(header, _)| header.dst_port == from).map(|(_, d)| d.len());
            sent.iter().filter_map(of).sum::<usize>()
        };
        assert!((0..CONNECTIONS).all(|n| data(2000 + n) == WINDOW * mss(ends)), "everything leaves");
        let waited = usize::from(CONNECTIONS) * WINDOW - RING;
        let turns = (turns(&node) - before) as usize;
        assert!(turns * 4 <= waited && turns > 0, "{turns} events for {waited} segments that had to wait");
    }
}

/// User calls while a connection waits for room do not queue it twice.
#[every_arch]
fn a_connection_that_finds_no_room_again_and_again_gets_one_turn(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let listener = node.listen(PORT, 8);
        let sockets: Vec<_> = (0..7).map(|n| open(&mut node, &listener, ends, 2000 + n)).collect();
        let (last, others) = sockets.split_last().expect("seven");
        others.iter().for_each(|socket| write(&node, socket, &vec![7; WINDOW * mss(ends)]));
        let before = turns(&node);
        for _ in 0..WINDOW {
            write(&node, last, &vec![8; mss(ends)]);
        }
        // The connections that filled the device, and wait with the rest of their data, come first.
        let waiting = others.len() as u64;
        let sent = node.settle();
        let eights = sent.iter().filter_map(|frame| tcp_of(frame)).filter(|(_, data)| data.first() == Some(&8));
        assert_eq!(eights.map(|(_, data)| data.len()).sum::<usize>(), WINDOW * mss(ends));
        let turns = turns(&node) - before;
        assert!((1..=waiting + 1).contains(&turns), "{turns} turns");
    }
}
