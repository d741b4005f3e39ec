//! A bridge with spanning tree: each port treats frames according to its state in the tree.

mod support;

use bridge::{Decision, PortState, StpConfig, StpPortConfig};
use observe::{DropReason, Time};
use support::{World, frame, port, station};
use wire::ethernet::MacAddr;
use wire::stp::{Bpdu, PortRole};

/// A bridge of two ports in a tree, up at second 1000.
fn world() -> World {
    let mut world = World::new(2);
    let now = world.now;
    world.bridge.start_tree(StpConfig::default(), station(77)).unwrap();
    for number in 0..2 {
        world.bridge.join_tree(port(number), StpPortConfig { auto_edge: false, ..Default::default() }, now).unwrap();
        world.bridge.set_up(port(number), true, now);
    }
    world
}

/// Lets time pass, from deadline to deadline.
fn pass(world: &mut World, until: Time) {
    while let Some(due) = world.bridge.next_deadline().filter(|due| *due <= until) {
        world.bridge.advance(due);
    }
    world.now = until;
}

fn bpdus(world: &mut World, of: u16) -> Vec<Bpdu> {
    let taken: Vec<_> = std::iter::from_fn(|| world.bridge.next_bpdu()).collect();
    let of = taken.iter().filter(|(number, _)| number.get() == of);
    of.map(|(_, frame)| Bpdu::of_frame(frame).expect("a BPDU")).collect()
}

#[test]
fn a_port_forwards_when_the_tree_says_so() {
    let mut world = world();
    assert_eq!(world.ports(0, station(1), MacAddr::BROADCAST), Err(DropReason::BridgePortBlocked));
    assert!(world.bridge.table().is_empty());
    // Nobody agrees: Max Age until it learns, then Hello Time until it forwards.
    let until = Time::from_secs(1020);
    pass(&mut world, until);
    assert_eq!(world.bridge.members().get(port(0)).unwrap().state(), PortState::Learning);
    assert_eq!(world.ports(0, station(1), MacAddr::BROADCAST), Err(DropReason::BridgePortBlocked));
    assert_eq!(world.bridge.table().len(), 1, "learned");
    let until = Time::from_secs(1022);
    pass(&mut world, until);
    assert_eq!(world.ports(0, station(1), MacAddr::BROADCAST), Ok(vec![1]));
    // A port that goes down discards frames, and its addresses are removed.
    world.bridge.set_up(port(0), false, world.now);
    assert!(world.bridge.table().is_empty());
    assert_eq!(world.ports(1, station(2), MacAddr::BROADCAST), Ok(vec![]));
}

/// 17.10: a proposal from a better bridge is agreed to at once, after the other port has been blocked; 17.31: and the
/// learned addresses are removed.
#[test]
fn a_proposal_is_agreed_to_when_the_other_port_is_blocked() {
    let mut world = world();
    let until = Time::from_secs(1021);
    pass(&mut world, until);
    let Some(Bpdu::Rapid(mut better)) = bpdus(&mut world, 0).pop() else { panic!("an RST BPDU") };
    assert_eq!((better.role, better.learning, better.forwarding), (PortRole::Designated, true, false));
    better.priority.root.0 = 1;
    better.priority.bridge.0 = 1;
    (better.proposal, better.learning) = (true, false);
    let bytes = Bpdu::Rapid(better).emit(station(5));
    assert_eq!(world.decide(0, &bytes), Decision::Bpdu);
    world.bridge.take_bpdu(port(0), &bytes, &world.counters, world.now);
    let states = [0, 1].map(|number| world.bridge.members().get(port(number)).unwrap().state());
    assert_eq!(states, [PortState::Forwarding, PortState::Discarding]);
    let answers = bpdus(&mut world, 0);
    assert!(
        matches!(answers[..], [.., Bpdu::Rapid(last)] if last.agreement && last.role == PortRole::Root),
        "{answers:?}"
    );
    assert_eq!(world.bridge.tree().unwrap().root().0, 1);
    // The neighbour announces a topology change: the addresses learned by the other port are removed.
    (better.proposal, better.topology_change) = (false, true);
    let until = Time::from_secs(1060);
    pass(&mut world, until);
    world.ports(1, station(1), MacAddr::BROADCAST).unwrap();
    world.ports(0, station(9), MacAddr::BROADCAST).unwrap();
    world.bridge.take_bpdu(port(0), &Bpdu::Rapid(better).emit(station(5)), &world.counters, world.now);
    let left: Vec<u16> = world.bridge.table().iter().map(|(_, entry)| entry.port().get()).collect();
    assert_eq!(left, [0]);
}

#[test]
fn a_bpdu_that_is_of_no_use_is_counted() {
    let mut world = world();
    let good = frame(station(5), wire::stp::GROUP, None, 46);
    world.bridge.take_bpdu(port(0), &good, &world.counters, world.now);
    assert_eq!(world.counters.dropped(DropReason::BpduIgnored), 1, "malformed");
    let mut alone = World::new(1);
    let bytes = Bpdu::Notification.emit(station(5));
    alone.bridge.take_bpdu(port(0), &bytes, &alone.counters, alone.now);
    assert_eq!(alone.counters.dropped(DropReason::BpduIgnored), 1, "no spanning tree");
    let tagged = frame(station(5), wire::stp::GROUP, support::tag(5), 46);
    assert_eq!(alone.decide(0, &tagged), Decision::Drop(DropReason::BpduIgnored));
}
