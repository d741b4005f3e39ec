//! A delayed driver finds both an expired deadline and a queue full of frames: it processes the frames first, however
//! many batches that takes, and only then runs the timer.

use std::time::Duration;

use every_arch::every_arch;
use observe::{Counter, CounterSnapshot};
use stack::Architecture;
use sync::Real;
use testbed::frames::{ISS, Segment, datagram, tcp_of};
use testbed::node::{Node, NodeConfig, send};

const PORTS: (u16, u16) = (5000, 80);
/// Frames queued before the acknowledgement: several batches, and fewer than the queue holds.
const BEFORE: usize = 400;

fn counters(node: &Node<Real>) -> CounterSnapshot {
    node.stack.stats().counters
}

/// A connection with unacknowledged data, and the acknowledgement for it.
fn waits_for_an_acknowledgement(arch: Architecture) -> (Node<Real>, Vec<u8>) {
    let mut node = Node::<Real>::with_known_peer(NodeConfig::new(arch));
    let listener = node.listen(PORTS.1, 4);
    let answers = node.exchange(&Segment::syn(PORTS.0, PORTS.1).frame());
    let iss = tcp_of(&answers[0]).expect("a SYN,ACK").0.seq.0;
    let ack = |ack: u32| Segment::ack(PORTS, ISS.wrapping_add(1), ack).frame();
    node.exchange(&ack(iss.wrapping_add(1)));
    let socket = listener.accept().expect("the handshake is complete");
    node.call(&socket, send(b"text"));
    assert_eq!(node.settle().len(), 1, "the data leaves");
    (node, ack(iss.wrapping_add(5)))
}

#[every_arch]
fn what_has_arrived_comes_before_what_is_due(arch: Architecture) {
    let (mut node, ack) = waits_for_an_acknowledgement(arch);
    for _ in 0..BEFORE {
        node.put(&datagram(9, 9, b"in the way"));
    }
    node.put(&ack);
    node.clock.advance(Duration::from_secs(2));
    node.settle();
    let counters = counters(&node);
    assert_eq!(counters.get(Counter::Timeouts) + counters.get(Counter::TailLossProbes), 0);
    assert_eq!(counters.get(Counter::Retransmits), 0, "it was acknowledged in time");
}

#[every_arch]
fn without_the_acknowledgement_the_time_out_comes(arch: Architecture) {
    let (mut node, _) = waits_for_an_acknowledgement(arch);
    for _ in 0..BEFORE {
        node.put(&datagram(9, 9, b"in the way"));
    }
    node.clock.advance(Duration::from_secs(2));
    node.settle();
    assert_eq!(counters(&node).get(Counter::Retransmits), 1);
}
