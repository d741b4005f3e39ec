//! VLAN filtering, from the sentences of IEEE 802.1Q clauses 6.9, 8.6 and 8.8.

mod support;

use bridge::{FdbControl, FdbKey, TagAction};
use observe::DropReason;
use support::{World, frame, port, station, tag, vid};
use wire::ethernet::{MacAddr, VlanTag};

const ALL: MacAddr = MacAddr::BROADCAST;

/// Ports 0 and 1 are untagged members of VLAN 10, port 2 of 20; port 3 is a tagged member of both, without PVID.
fn world() -> World {
    let mut world = World::new(4);
    world.bridge.set_filtering(true);
    for (number, id) in [(0, 10), (1, 10), (2, 20)] {
        world.bridge.leave(vid(1), port(number));
        world.bridge.configure(port(number), |config| config.pvid = Some(vid(id)));
        world.bridge.join(vid(id), port(number), true);
        world.bridge.join(vid(id), port(3), false);
    }
    world.bridge.leave(vid(1), port(3));
    world.bridge.configure(port(3), |config| config.pvid = None);
    world
}

fn actions(world: &mut World, from: u16, tag: Option<VlanTag>) -> Result<Vec<(u16, TagAction)>, DropReason> {
    let copies = world.send(from, &frame(station(1), ALL, tag, 46))?;
    Ok(copies.iter().map(|egress| (egress.port.get(), egress.tag)).collect())
}

fn plain(id: u16) -> VlanTag {
    VlanTag { priority: 0, drop_eligible: false, id }
}

/// 6.9: a frame without a tag gets the PVID's VLAN; 8.8.2: the untagged set determines whether it leaves without a tag.
#[test]
fn an_untagged_frame_is_of_the_ports_vlan_and_is_tagged_where_that_is_asked() {
    let mut world = world();
    let pushed = TagAction::Push(plain(10));
    assert_eq!(actions(&mut world, 0, None), Ok(vec![(1, TagAction::Keep), (3, pushed)]));
    assert_eq!(actions(&mut world, 2, None), Ok(vec![(3, TagAction::Push(plain(20)))]));
}

#[test]
fn a_tagged_frame_loses_its_tag_where_that_is_asked() {
    let mut world = world();
    assert_eq!(actions(&mut world, 3, tag(10)), Ok(vec![(0, TagAction::Pop), (1, TagAction::Pop)]));
    assert_eq!(actions(&mut world, 3, tag(20)), Ok(vec![(2, TagAction::Pop)]));
    // Tagged at both ends: priority and drop eligibility are as they came.
    world.bridge.join(vid(20), port(0), false);
    assert_eq!(actions(&mut world, 3, tag(20)), Ok(vec![(0, TagAction::Keep), (2, TagAction::Pop)]));
}

/// 6.9: a priority tag names no VLAN; 9.6: a frame that leaves tagged has the VLAN's identifier, and the priority
/// stays.
#[test]
fn a_priority_tagged_frame_is_of_the_ports_vlan() {
    let mut world = world();
    let replaced = TagAction::Replace(VlanTag { id: 10, ..tag(10).unwrap() });
    assert_eq!(actions(&mut world, 0, tag(0)), Ok(vec![(1, TagAction::Pop), (3, replaced)]));
}

#[test]
fn what_a_port_is_not_a_member_of_does_not_come_in() {
    let mut world = world();
    assert_eq!(actions(&mut world, 0, tag(20)), Err(DropReason::VlanIngress));
    assert_eq!(actions(&mut world, 3, None), Err(DropReason::VlanIngress), "a port without PVID");
    assert_eq!(actions(&mut world, 3, tag(0)), Err(DropReason::VlanIngress));
    assert_eq!(actions(&mut world, 3, tag(99)), Err(DropReason::VlanIngress), "a VLAN without members");
    assert_eq!(actions(&mut world, 3, tag(4095)), Err(DropReason::VlanInvalid));
    assert!(world.bridge.table().is_empty(), "nothing was learned");
    // 8.6.2: without ingress filtering the frame is taken, and leaves by the members.
    world.bridge.configure(port(0), |config| config.ingress_filtering = false);
    assert_eq!(actions(&mut world, 0, tag(20)), Ok(vec![(2, TagAction::Pop), (3, TagAction::Keep)]));
}

/// 8.8.8, independent learning: one address is behind one port in one VLAN, and behind another in another.
#[test]
fn each_vlan_learns_for_itself() {
    let mut world = world();
    world.bridge.join(vid(20), port(0), false);
    let send = |world: &mut World, from, src, dst, tag| {
        let copies = world.send(from, &frame(station(src), station(dst), tag, 46)).unwrap();
        copies.iter().map(|egress| egress.port.get()).collect::<Vec<_>>()
    };
    send(&mut world, 1, 7, 99, None);
    send(&mut world, 2, 7, 99, None);
    assert_eq!(send(&mut world, 3, 8, 7, tag(10)), [1]);
    assert_eq!(send(&mut world, 3, 8, 7, tag(20)), [2]);
    assert_eq!(world.bridge.table().len(), 4);
    assert_eq!(world.bridge.table_mut().flush_vlan(vid(10)), 2);
    assert_eq!(send(&mut world, 3, 8, 7, tag(20)), [2]);
}

#[test]
fn a_static_entry_beyond_the_vlan_is_not_reached() {
    let mut world = world();
    let now = world.now;
    world.bridge.set_fixed(FdbKey::new(station(5), Some(vid(10))), port(2), true, now);
    assert_eq!(world.ports(0, station(1), station(5)), Err(DropReason::VlanEgress));
}

#[test]
fn a_bridge_that_does_not_filter_leaves_tags_alone() {
    let mut world = world();
    world.bridge.set_filtering(false);
    let kept = |ports: &[u16]| Ok(ports.iter().map(|n| (*n, TagAction::Keep)).collect::<Vec<_>>());
    assert_eq!(actions(&mut world, 0, tag(20)), kept(&[1, 2, 3]));
    assert_eq!(actions(&mut world, 0, tag(4095)), kept(&[1, 2, 3]));
    assert_eq!(world.ports(2, station(3), station(1)), Ok(vec![0]), "one table for all");
}

#[test]
fn the_tag_does_not_count_for_the_mtu() {
    let mut world = world();
    let long = frame(station(1), ALL, tag(10), 1500);
    assert_eq!(world.send(3, &long).map(|copies| copies.len()), Ok(2));
    assert_eq!(world.send(3, &frame(station(1), ALL, tag(10), 1501)).map(|copies| copies.len()), Ok(0));
}
