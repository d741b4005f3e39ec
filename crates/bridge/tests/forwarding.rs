//! Learning, ageing, flooding and the options of ports: sentences of IEEE 802.1D-2004 clause 7, and of the manual of
//! iproute2's `bridge` about the options.

mod support;

use std::time::Duration;

use bridge::{Decision, FdbConfig, FdbControl, FdbKey, FloodKind, PortConfig, PortState, StormLimits, StormRate};
use observe::{Counter, DropReason, Time};
use support::{World, frame, port, station};
use wire::ethernet::MacAddr;

const GROUP: MacAddr = MacAddr([0x01, 0, 0x5e, 0, 0, 9]);

#[test]
fn an_unknown_station_is_flooded_and_a_known_one_is_not() {
    let mut world = World::new(4);
    assert_eq!(world.ports(0, station(1), station(2)), Ok(vec![1, 2, 3]));
    assert_eq!(world.ports(2, station(2), station(1)), Ok(vec![0]));
    assert_eq!(world.ports(0, station(1), station(2)), Ok(vec![2]));
    // 7.7.1: the frame is not forwarded to the port that received it.
    assert_eq!(world.ports(2, station(3), station(2)), Err(DropReason::BridgeSamePort));
    assert_eq!(world.counters.get(Counter::AddressesLearned), 3);
}

#[test]
fn a_station_that_moves_is_found_where_it_sent_last() {
    let mut world = World::new(4);
    world.ports(0, station(1), GROUP).unwrap();
    world.ports(3, station(1), GROUP).unwrap();
    assert_eq!(world.ports(1, station(2), station(1)), Ok(vec![3]));
    assert_eq!(world.counters.get(Counter::AddressesMoved), 1);
    assert_eq!(world.bridge.table().len(), 2);
}

/// 7.9.2: entries not heard from for the ageing time are removed; 7.8: each frame heard renews them.
#[test]
fn a_silent_station_is_forgotten_after_the_ageing_time() {
    let mut world = World::new(3);
    world.ports(0, station(1), GROUP).unwrap();
    world.now += Duration::from_secs(299);
    world.ports(0, station(1), GROUP).unwrap();
    world.now += Duration::from_secs(299);
    assert_eq!(world.ports(1, station(2), station(1)), Ok(vec![0]));
    assert_eq!(world.bridge.table_mut().age(world.now), 0);
    world.now += Duration::from_secs(2);
    assert_eq!(world.ports(1, station(2), station(1)), Ok(vec![0, 2]), "not used though still there");
    assert_eq!(world.bridge.table_mut().age(world.now), 1);
    assert_eq!(world.bridge.table().len(), 1);
}

#[test]
fn groups_are_flooded_by_their_kind_of_port() {
    let mut world = World::new(5);
    world.bridge.configure(port(1), |config| config.flood = false);
    world.bridge.configure(port(2), |config| config.multicast_flood = false);
    world.bridge.configure(port(3), |config| config.broadcast_flood = false);
    assert_eq!(world.ports(0, station(1), station(9)), Ok(vec![2, 3, 4]));
    assert_eq!(world.ports(0, station(1), GROUP), Ok(vec![1, 3, 4]));
    assert_eq!(world.ports(0, station(1), MacAddr::BROADCAST), Ok(vec![1, 2, 4]));
    // A port that is not flooded still gets frames for a station behind it.
    world.ports(1, station(9), GROUP).unwrap();
    assert_eq!(world.ports(0, station(1), station(9)), Ok(vec![1]));
}

#[test]
fn an_isolated_port_reaches_only_ports_that_are_not() {
    let mut world = World::new(4);
    (1..3).for_each(|n| assert!(world.bridge.configure(port(n), |config| config.isolated = true)));
    assert_eq!(world.ports(1, station(1), MacAddr::BROADCAST), Ok(vec![0, 3]));
    assert_eq!(world.ports(0, station(10), MacAddr::BROADCAST), Ok(vec![1, 2, 3]));
    world.ports(2, station(2), GROUP).unwrap();
    assert_eq!(world.ports(1, station(1), station(2)), Err(DropReason::BridgeIsolated));
    assert_eq!(world.ports(2, station(2), station(10)), Ok(vec![0]));
}

#[test]
fn hairpin_sends_back_by_the_port_of_arrival() {
    let mut world = World::new(2);
    world.bridge.configure(port(0), |config| config.hairpin = true);
    assert_eq!(world.ports(0, station(1), MacAddr::BROADCAST), Ok(vec![0, 1]));
    assert_eq!(world.ports(0, station(2), station(1)), Ok(vec![0]));
}

#[test]
fn a_port_that_does_not_learn_leaves_no_entry() {
    let mut world = World::new(3);
    world.bridge.configure(port(0), |config| config.learning = false);
    world.ports(0, station(1), GROUP).unwrap();
    assert!(world.bridge.table().is_empty());
    assert_eq!(world.ports(1, station(2), station(1)), Ok(vec![0, 2]));
}

/// Linux: a static entry does not age but moves; a sticky one keeps its port.
#[test]
fn static_entries_do_not_age_and_sticky_ones_do_not_move() {
    let mut world = World::new(4);
    let now = world.now;
    assert!(world.bridge.set_fixed(FdbKey::new(station(1), None), port(1), false, now));
    assert!(world.bridge.set_fixed(FdbKey::new(station(2), None), port(2), true, now));
    assert!(!world.bridge.set_fixed(FdbKey::new(station(3), None), port(9), true, now), "no such port");
    world.now += Duration::from_secs(1_000_000);
    assert_eq!(world.bridge.table_mut().age(world.now), 0);
    assert_eq!(world.ports(0, station(7), station(1)), Ok(vec![1]));
    assert_eq!(world.ports(3, station(2), station(7)), Ok(vec![0]), "the frame is forwarded nevertheless");
    assert_eq!(world.ports(0, station(7), station(2)), Ok(vec![2]));
    world.ports(3, station(1), GROUP).unwrap();
    assert_eq!(world.ports(0, station(7), station(1)), Ok(vec![3]));
    assert_eq!(world.bridge.table_mut().flush(|_, _| true), 1, "a flush takes what was learned");
    assert_eq!(world.bridge.table().len(), 2);
}

/// Table 7-10, and 7.12.6: relayed by no bridge.
#[test]
fn reserved_addresses_are_not_forwarded() {
    let mut world = World::new(3);
    for last in 0..=0xff {
        let dst = MacAddr([0x01, 0x80, 0xc2, 0, 0, last]);
        let bytes = frame(station(1), dst, None, 46);
        match (last, world.decide(0, &bytes)) {
            (0, Decision::Bpdu) | (1..16, Decision::Drop(DropReason::BridgeReservedAddress)) => {}
            (16.., Decision::Flood(flood)) => assert_eq!(flood.kind(), FloodKind::Multicast),
            (last, other) => panic!("01-80-C2-00-00-{last:02X}: {other:?}"),
        }
    }
}

#[test]
fn a_source_that_is_no_station_is_dropped_and_not_learned() {
    let mut world = World::new(2);
    for source in [GROUP, MacAddr::BROADCAST, MacAddr::UNSPECIFIED] {
        assert_eq!(world.ports(0, source, station(1)), Err(DropReason::FrameBadSource));
    }
    assert!(world.bridge.table().is_empty());
    for len in 0..14 {
        assert_eq!(world.send(0, &vec![2; len]), Err(DropReason::FrameTooShort));
    }
    assert_eq!(world.ports(7, station(1), GROUP), Err(DropReason::InterfaceDown), "no such port");
}

/// Table 7-1 and 7.8: Discarding neither learns nor forwards, Learning learns, and neither is forwarded to.
#[test]
fn states_of_ports_decide_who_learns_and_forwards() {
    let mut world = World::new(4);
    world.bridge.set_state(port(1), PortState::Discarding);
    world.bridge.set_state(port(2), PortState::Learning);
    assert_eq!(world.ports(1, station(1), GROUP), Err(DropReason::BridgePortBlocked));
    assert_eq!(world.ports(2, station(2), GROUP), Err(DropReason::BridgePortBlocked));
    assert_eq!(world.ports(0, station(3), station(1)), Ok(vec![3]), "not learned: flooded");
    assert_eq!(world.ports(0, station(3), station(2)), Err(DropReason::BridgePortBlocked));
    assert_eq!(world.decide(1, &frame(station(9), wire::stp::GROUP, None, 46)), Decision::Bpdu);
}

#[test]
fn a_frame_that_a_port_cannot_carry_is_dropped_there_and_counted() {
    let mut world = World::new(4);
    (0..3).for_each(|n| assert!(world.bridge.configure(port(n), |config| config.mtu = bridge::LONGEST_FRAME - 14)));
    let jumbo = frame(station(1), MacAddr::BROADCAST, None, bridge::LONGEST_FRAME - 14);
    assert_eq!(jumbo.len(), 9216);
    let copies = world.send(0, &jumbo).unwrap();
    assert_eq!(copies.iter().map(|egress| egress.port.get()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(world.counters.dropped(DropReason::FrameTooLong), 1);
    world.ports(3, station(3), GROUP).unwrap();
    assert_eq!(world.send(0, &frame(station(1), station(3), None, 1500)).map(|copies| copies.len()), Ok(1));
    assert_eq!(world.send(0, &frame(station(1), station(3), None, 1501)), Err(DropReason::FrameTooLong));
}

#[test]
fn a_frame_with_nowhere_to_go_is_counted() {
    let mut world = World::new(1);
    assert_eq!(world.ports(0, station(1), MacAddr::BROADCAST), Ok(vec![]));
    assert_eq!(world.counters.dropped(DropReason::BridgeNoPort), 1);
}

#[test]
fn a_full_table_floods_and_drops_nothing() {
    let mut world = World::with(3, FdbConfig { capacity: 16, ..FdbConfig::default() });
    world.bridge.configure(port(0), |config| config.max_addresses = Some(u32::MAX));
    for n in 0..100 {
        assert_eq!(world.ports(0, station(n), station(1000)), Ok(vec![1, 2]));
    }
    assert_eq!(world.bridge.table().len(), 16);
    assert_eq!(world.counters.get(Counter::AddressesRefused), 84);
    assert_eq!(world.ports(1, station(1000), station(99)), Ok(vec![0, 2]));
    // An address that is in the table moves though it is full.
    assert_eq!(world.ports(1, station(3), station(4)), Ok(vec![0]));
    assert_eq!(world.counters.get(Counter::AddressesMoved), 1);
    assert_eq!(world.counters.snapshot().dropped_total(), 0);
}

#[test]
fn a_maximum_of_addresses_bounds_a_port() {
    let mut world = World::new(3);
    world.bridge.configure(port(0), |config| config.max_addresses = Some(2));
    (0..5).for_each(|n| drop(world.ports(0, station(n), GROUP)));
    assert_eq!(world.bridge.table().len(), 2);
    (10..20).for_each(|n| drop(world.ports(1, station(n), GROUP)));
    assert_eq!(world.bridge.table().len(), 12);
    // A station from another port does not move here either: it stays where it was.
    world.ports(0, station(10), GROUP).unwrap();
    assert_eq!(world.ports(2, station(30), station(10)), Ok(vec![1]));
}

/// The flooded port has at most half of the table, and the stations of every other port are learned.
#[test]
fn a_flood_of_addresses_costs_only_its_port() {
    let mut world = World::with(9, FdbConfig { capacity: 1024, ..FdbConfig::default() });
    for n in 0..100_000 {
        world.ports(0, station(n), GROUP).unwrap();
    }
    assert_eq!(world.bridge.table().len(), 512);
    for from in 1..8 {
        let first = 1_000_000 * u32::from(from);
        (0..40).for_each(|n| drop(world.ports(from, station(first + n), GROUP)));
        (0..40).for_each(|n| assert_eq!(world.ports(8, station(9_999_999), station(first + n)), Ok(vec![from])));
    }
}

#[test]
fn a_port_that_leaves_takes_its_addresses_along() {
    let mut world = World::new(3);
    let now = world.now;
    world.ports(1, station(1), GROUP).unwrap();
    world.bridge.set_fixed(FdbKey::new(station(2), None), port(1), true, now);
    assert!(world.bridge.remove_port(port(1), world.now) && !world.bridge.remove_port(port(1), world.now));
    assert!(world.bridge.table().is_empty());
    assert_eq!(world.ports(0, station(3), station(1)), Ok(vec![2]));
    world.bridge.add_port(port(1), PortConfig::default(), PortState::Forwarding);
    assert_eq!(world.ports(0, station(3), station(1)), Ok(vec![1, 2]));
}

#[test]
fn a_port_that_is_down_is_left_out_and_forgets() {
    let mut world = World::new(3);
    world.ports(1, station(1), GROUP).unwrap();
    world.bridge.set_up(port(1), false, world.now);
    assert_eq!(world.ports(0, station(3), station(1)), Ok(vec![2]));
    assert_eq!(world.ports(1, station(1), GROUP), Err(DropReason::BridgePortBlocked));
    world.bridge.set_up(port(1), true, world.now);
    assert_eq!(world.ports(0, station(3), station(1)), Ok(vec![1, 2]));
}

#[test]
fn storm_control_bounds_what_is_flooded_and_nothing_else() {
    let mut world = World::new(3);
    let rate = Some(StormRate { per_second: 10, burst: 5 });
    world.bridge.configure(port(0), |config| config.storm = StormLimits([rate, None, rate]));
    world.ports(1, station(2), GROUP).unwrap();
    let mut pass = |dst| (0..100).filter(|_| world.ports(0, station(1), dst).is_ok()).count();
    assert_eq!((pass(MacAddr::BROADCAST), pass(GROUP), pass(station(9)), pass(station(2))), (5, 100, 5, 100));
    world.now += Duration::from_millis(200);
    assert_eq!((0..100).filter(|_| world.ports(0, station(1), MacAddr::BROADCAST).is_ok()).count(), 2);
    assert_eq!(world.ports(0, station(1), MacAddr::BROADCAST), Err(DropReason::BridgeStorm));
    assert_eq!(world.ports(1, station(2), MacAddr::BROADCAST), Ok(vec![0, 2]), "another port's");
}

#[test]
fn more_than_64_ports_are_flooded_and_reached() {
    let mut world = World::new(200);
    world.now = Time::ZERO;
    assert_eq!(world.ports(70, station(1), MacAddr::BROADCAST), Ok((0..200).filter(|n| *n != 70).collect()));
    world.ports(199, station(2), MacAddr::BROADCAST).unwrap();
    assert_eq!(world.ports(3, station(3), station(2)), Ok(vec![199]));
}
