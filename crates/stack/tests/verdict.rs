//! The step before IP: frames that a rule gives to a bridge or drops never reach the stack, the others do, and captures
//! see all of them.

use every_arch::every_arch;
use observe::DropReason;
use path::{Consume, Emitter, Frame, Inspection, Vector, Verdict, capture};
use stack::Architecture;
use stack::flow::Target;
use sync::Real;
use testbed::frames::{self, Datagram, Ends, Segment, tcp_of};
use testbed::node::{Node, NodeConfig};

/// Sends everything back to its source.
struct Mirror;

impl Consume<Real, Target> for Mirror {
    fn consume(&mut self, port: usize, frames: &mut Vector, out: &mut Emitter<'_, Real, Target>) {
        out.forward(port, frames);
    }
}

/// Segments to port 80 are the stack's, others the bridge's; datagrams are dropped.
fn rule(frame: &Frame) -> Verdict {
    match frame.headers.receiver_tuple(&frame.buffer) {
        Some(_) if frame.headers.is_udp() => Verdict::Drop(DropReason::IpUnknownProtocol),
        Some(tuple) if tuple.local_port != 80 => Verdict::Bridge,
        _ => Verdict::Stack,
    }
}

#[every_arch]
fn the_stack_sees_what_the_rule_leaves_to_it_and_captures_see_all(arch: Architecture) {
    let mut node = Node::<Real>::new(NodeConfig::new(arch));
    let (near, mut captured) = capture(64);
    assert!(node.driver.inspect(0, Inspection::new(rule).with_capture(near), Some(Box::new(Mirror))));
    assert!(!node.driver.inspect(1, Inspection::transparent(), None), "there is one port");
    node.put(&frames::arp_request());
    node.settle();
    assert_eq!(captured.take().expect("ARP is captured").frame[..], frames::arp_request()[..]);
    let _listener = node.listen(80, 8);
    let _other = node.listen(81, 8);
    let ends = Ends::PEER_TO_STACK;
    let (to_stack, to_bridge) = (Segment::syn(2000, 80).frame_over(ends), Segment::syn(2000, 81).frame_over(ends));
    let dropped = Datagram::new(2000, 80, b"datagram").frame_over(ends);
    let answers = node.exchange(&to_stack);
    assert!(tcp_of(&answers[0]).is_some_and(|(header, _)| header.flags.contains(wire::tcp::TcpFlags::ACK)));
    let back = node.exchange(&to_bridge);
    assert_eq!(
        back.iter().map(|frame| frame.to_vec()).collect::<Vec<_>>(),
        std::slice::from_ref(&to_bridge),
        "mirrored, not answered"
    );
    assert!(node.exchange(&dropped).is_empty());
    let counted = node.driver.counters().dropped(DropReason::IpUnknownProtocol);
    assert_eq!(counted, 1, "dropped for the reason that the rule gave");
    let seen: Vec<Vec<u8>> = std::iter::from_fn(|| captured.take()).map(|one| one.frame.to_vec()).collect();
    assert_eq!(seen, [to_stack, to_bridge, dropped]);
}
