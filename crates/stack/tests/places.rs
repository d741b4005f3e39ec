//! Places of connections, used without an architecture: what takes two threads at once there, or a peak.

use std::sync::Arc;

use every_arch::every_arch;
use pktbuf::PktBuf;
use stack::Architecture;
use stack::call::ArrivingSegment;
use stack::connections::Place;
use stack::deferred::DeferredEffects;
use stack::place::connection::connections;
use stack::place::pcb::{ConnectionLocks, LockPlan};
use stack::place::{Cell, Habits, Locked};
use stack::socket::{Admission, ListenerReplica, ListenerShared};
use sync::{LockKind, Real, Writers};
use tcp::Verify;
use testbed::frames::{Ends, Segment, neighbour_solicitation, tcp_of};
use testbed::node::{Node, NodeConfig};
use wire::tcp::TcpFlags;

const PORTS: (u16, u16) = (2000, 80);

/// Another thread has inserted the connection of a segment since the look-up. The segment is looked up once more: here
/// that connection has gone meanwhile, and its peer is told.
#[every_arch(only(msgp_1))]
fn a_segment_whose_connection_has_appeared_is_processed_again(arch: Architecture) {
    for plan in [LockPlan::One, LockPlan::Two, LockPlan::Six, LockPlan::Backlog] {
        for ends in Ends::BOTH_FAMILIES {
            let mut node = Node::<Real>::with_known_peer(NodeConfig::new(arch));
            node.exchange(&neighbour_solicitation());
            let shared = node.stack.shared();
            let locks = ConnectionLocks::new(plan, LockKind::Blocking);
            let place = Locked::<Real>::new(shared, &connections(), locks, Habits::PLAIN);
            let bytes = Segment::ack(PORTS, 1, 1000).bytes(ends.src, ends.dst);
            let buf = PktBuf::from_slice(&bytes).expect("a packet buffer");
            let segment = tcp::Segment::parse(ends.dst, ends.src, buf, Verify::Now).expect("a good segment");
            let flow = node.stack.flow((ends.dst, PORTS.1).into(), (ends.src, PORTS.0).into());
            let mut arrival = ArrivingSegment { hash: flow.hash, segment: Some(segment) };
            let mut deferred = DeferredEffects::default();
            (&mut &place).appeared(&mut arrival, shared.clock().now(), &mut deferred);
            deferred.flush(shared.links());
            assert!(arrival.segment.is_none());
            let sent = node.settle();
            let (reset, _) = sent.iter().find_map(|frame| tcp_of(frame)).expect("an answer");
            assert_eq!((reset.flags, reset.seq.0), (TcpFlags::RST, 1000), "{plan:?}");
        }
    }
}

/// The places in backlogs that connections hold which were opened early: after a peak there is room for twice as many as
/// there are.
fn gives_back_memory_of_admissions(mut place: impl Place<Platform = Real>, listener: &Arc<ListenerShared<Real>>) {
    let replica = ListenerReplica::of(listener.clone());
    place.with_directory(|directory, _| {
        directory.early.reserve(1000);
        directory.early.extend((0..100).map(|slot| (slot, Admission::Entered(replica.clone()))));
    });
    place.trim();
    let capacity = place.with_directory(|directory, _| (directory.early.len(), directory.early.capacity()));
    assert!(capacity.0 == 100 && (200..400).contains(&capacity.1), "{capacity:?}");
}

#[test]
fn places_give_back_memory_of_admissions() {
    let node = Node::<Real>::new(NodeConfig::new(Architecture::named("up")));
    let (shared, listener) = (node.stack.shared(), node.listen(PORTS.1, 4));
    gives_back_memory_of_admissions(Cell::new(shared, &connections(), Writers::One), &listener);
    let locks = ConnectionLocks::new(LockPlan::One, LockKind::Blocking);
    let locked = Locked::<Real>::new(shared, &connections(), locks, Habits::PLAIN);
    gives_back_memory_of_admissions(&locked, &listener);
}
