//! The table compared with a map, and flooding compared with a check of each port.

mod support;

use std::collections::HashMap;
use std::time::Duration;

use bridge::{
    AgeLimit, Arrival, Decision, Fdb, FdbConfig, FdbControl, FdbEntry, FdbKey, FdbTable, FlowMemory, ForwardedFrame,
    InputPort, Members, PortConfig, PortNumber, PortState, TagAction, Versions, learn,
};
use observe::{Counters, Time};
use proptest::prelude::*;
use support::{World, frame, port, station, tag, vid};
use wire::ethernet::MacAddr;

#[derive(Clone, Debug)]
enum Step {
    Learn { station: u32, port: u16 },
    Fix { station: u32, port: u16, sticky: bool },
    Remove(u32),
    FlushPort(u16),
    Forget(u16),
    Age,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (station, port) = (0u32..60, 0u16..5);
    prop_oneof![
        20 => (station.clone(), port.clone()).prop_map(|(station, port)| Step::Learn { station, port }),
        2 => (station.clone(), port.clone(), any::<bool>())
            .prop_map(|(station, port, sticky)| Step::Fix { station, port, sticky }),
        4 => station.prop_map(Step::Remove),
        1 => port.clone().prop_map(Step::FlushPort),
        1 => port.prop_map(Step::Forget),
        2 => Just(Step::Age),
        2 => (0u64..200).prop_map(Step::Wait),
    ]
}

/// The expected content of the table: port, fixed, sticky, time of the last frame.
type Model = HashMap<u32, (u16, bool, bool, Time)>;

const CAPACITY: u32 = 24;
const AGEING: Duration = Duration::from_secs(300);

fn model_learn(model: &mut Model, station: u32, from: u16, now: Time) {
    let dynamic = model.values().filter(|entry| !entry.1).count();
    let of_port = model.values().filter(|entry| !entry.1 && entry.0 == from).count();
    let free = |dynamic: usize| CAPACITY as usize - dynamic;
    match model.get_mut(&station) {
        Some(entry) if entry.0 == from => entry.3 = now,
        Some((_, _, true, _)) => {}
        Some(entry) if entry.1 => *entry = (from, true, false, now),
        Some(entry) if of_port < free(dynamic - 1) => *entry = (from, false, false, now),
        None if of_port < free(dynamic) => drop(model.insert(station, (from, false, false, now))),
        _ => {}
    }
}

/// A port's options, MTU and state.
fn configured() -> impl Strategy<Value = (PortConfig, PortState)> {
    let state = prop::sample::select(vec![PortState::Discarding, PortState::Learning, PortState::Forwarding]);
    let mtu = prop::sample::select(vec![46usize, 50, 1500, usize::MAX]);
    let limit = prop::option::of(0u32..3);
    let rarely = || prop::bool::weighted(0.2);
    let rest = (mtu, limit, prop_oneof![4 => Just(PortState::Forwarding), 1 => state]);
    (rarely(), rarely(), rarely(), rest).prop_map(|(quiet, isolated, hairpin, (mtu, max_addresses, state))| {
        let learning = !quiet;
        (PortConfig { learning, isolated, hairpin, mtu, max_addresses, ..PortConfig::default() }, state)
    })
}

/// An address: of a few stations, none, a group, all.
fn address() -> impl Strategy<Value = MacAddr> {
    let rarer = [[0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1], [1, 0x80, 0xc2, 0, 0, 0], [1, 0x80, 0xc2, 0, 0, 9]];
    prop_oneof![9 => (0u32..5).prop_map(station), 1 => prop::sample::select(rarer.map(MacAddr).to_vec())]
}

/// Some frames: input port, source, destination, tag, bytes behind the header, bytes cut off, and seconds until the next one.
type Sent = (u16, MacAddr, MacAddr, Option<u16>, usize, usize, u64);

fn sent() -> impl Strategy<Value = Sent> {
    let data = prop::sample::select(vec![0usize, 4, 46, 47, 50, 51, 54, 1500, 1501]);
    let cut = prop_oneof![9 => Just(0), 1 => 0usize..20];
    let wait = prop_oneof![5 => Just(0u64), 4 => 1u64..15, 1 => 280u64..320];
    (0u16..5, address(), address(), prop::option::weighted(0.3, 0u16..3), data, cut, wait)
}

/// The input port and the bytes of a frame.
fn sent_bytes((from, src, dst, id, data, cut, _): Sent) -> (u16, Vec<u8>) {
    let mut bytes = frame(src, dst, id.and_then(tag), data);
    bytes.truncate(bytes.len() - cut.min(bytes.len()));
    (from, bytes)
}

/// Three equal frames, so that the third may be of a remembered flow: most from a station at its port.
fn again_and_again() -> impl Strategy<Value = Vec<Sent>> {
    (sent(), 0u16..4, 0u16..4, prop::bool::weighted(0.8)).prop_map(|(mut sent, a, b, usual)| {
        if usual {
            (sent.0, sent.1, sent.2) = (a, station(a.into()), station(b.into()));
        }
        vec![sent; 3]
    })
}

/// What happens to a bridge that remembers flows.
#[derive(Clone, Debug)]
enum Change {
    Frames(Vec<Sent>),
    Configure(u16, PortConfig),
    State(u16, PortState),
    Filter(bool),
    Ageing(u64),
    Remove(u32),
    Flush(u16),
    Wait(u64),
}

fn change() -> impl Strategy<Value = Change> {
    let states = [PortState::Discarding, PortState::Learning, PortState::Forwarding, PortState::Forwarding];
    prop_oneof![
        20 => proptest::collection::vec(again_and_again(), 1..4).prop_map(|frames| Change::Frames(frames.concat())),
        2 => (0u16..4, configured()).prop_map(|(number, (config, _))| Change::Configure(number, config)),
        2 => (0u16..4, prop::sample::select(states.to_vec())).prop_map(|(number, state)| Change::State(number, state)),
        1 => prop::bool::weighted(0.2).prop_map(Change::Filter),
        1 => prop::sample::select(vec![0u64, 10, 300]).prop_map(Change::Ageing),
        2 => (0u32..5).prop_map(Change::Remove),
        1 => (0u16..4).prop_map(Change::Flush),
        4 => prop_oneof![3 => 0u64..12, 1 => 280u64..320].prop_map(Change::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// After any steps the table has exactly the entries of the map, and the same counts.
    #[test]
    fn the_table_is_a_map_with_shares(steps in proptest::collection::vec(step(), 1..300), seed: u64) {
        let mut table = FdbTable::new(FdbConfig { capacity: CAPACITY, ageing: AGEING, seed });
        let (mut model, mut now) = (Model::new(), Time::from_secs(1));
        let key = |n| FdbKey::new(station(n), None);
        for step in steps {
            match step {
                Step::Learn { station, port: from } => {
                    learn(&mut table, key(station), port(from), &None, now);
                    model_learn(&mut model, station, from, now);
                }
                Step::Fix { station, port: to, sticky } => {
                    let fixed = model.values().filter(|entry| entry.1).count();
                    let room = fixed < CAPACITY as usize || model.get(&station).is_some_and(|entry| entry.1);
                    prop_assert_eq!(table.set_fixed(key(station), port(to), sticky, now), room);
                    if room {
                        model.insert(station, (to, true, sticky, now));
                    }
                }
                Step::Remove(station) => prop_assert_eq!(table.remove(key(station)), model.remove(&station).is_some()),
                Step::FlushPort(of) => {
                    table.flush_port(port(of));
                    model.retain(|_, entry| entry.1 || entry.0 != of);
                }
                Step::Forget(of) => {
                    table.forget_port(port(of));
                    model.retain(|_, entry| entry.0 != of);
                }
                // Seconds stay clear of the unit in which an entry's time is kept.
                Step::Age => {
                    table.age(now + Duration::from_millis(500));
                    let heard = |entry: &(u16, bool, bool, Time)| (now + Duration::from_millis(500)).since(entry.3);
                    model.retain(|_, entry| entry.1 || heard(entry) < AGEING);
                }
                Step::Wait(seconds) => now += Duration::from_secs(seconds),
            }
            prop_assert_eq!(table.len(), model.len());
            for station in 0..60 {
                let found = table.look_up(key(station)).map(|entry| (entry.port().get(), entry.flags().fixed));
                prop_assert_eq!(found, model.get(&station).map(|entry| (entry.0, entry.1)), "station {}", station);
            }
            prop_assert_eq!(table.iter().count(), model.len());
        }
    }

    #[test]
    fn an_entry_keeps_what_is_put_into_it(number in 0..=PortNumber::MAX, fixed: bool, sticky: bool, nanos: u64) {
        let (now, flags) = (Time::from_nanos(nanos), bridge::EntryFlags { fixed, sticky });
        let entry = FdbEntry::new(port(number), flags, now);
        prop_assert_eq!((entry.port().get(), entry.flags()), (number, flags));
        prop_assert_eq!(entry.age(now), Duration::ZERO);
        let later = now + Duration::from_secs(1000);
        let expected = later.since(now);
        prop_assert!(entry.age(later).abs_diff(expected) <= Duration::from_millis(17));
    }

    /// A flooded frame leaves by exactly the ports that the rules allow when applied port by port.
    #[test]
    fn a_flood_leaves_by_the_ports_that_may(
        ports in proptest::collection::vec(any::<(bool, bool, bool, bool, bool)>(), 1..150), from: prop::sample::Index,
    ) {
        let mut world = World::new(0);
        world.bridge.set_filtering(true);
        for (number, (flood, isolated, hairpin, member, forwarding)) in (0..).zip(&ports) {
            let config = PortConfig {
                broadcast_flood: *flood, isolated: *isolated, hairpin: *hairpin, ingress_filtering: false, ..PortConfig::default()
            };
            let state = if *forwarding { PortState::Forwarding } else { PortState::Discarding };
            world.bridge.add_port(port(number), config, state);
            if *member {
                world.bridge.join(vid(7), port(number), number % 2 == 0);
            }
        }
        let from = from.index(ports.len());
        let sent = world.send(from as u16, &frame(station(1), MacAddr::BROADCAST, tag(7), 46));
        let anyone = ports.iter().any(|port| port.3);
        if !ports[from].4 || !anyone {
            prop_assert!(sent.is_err());
            return Ok(());
        }
        let may = |(number, port): (usize, &(bool, bool, bool, bool, bool))| {
            let (flood, isolated, _, member, forwarding) = *port;
            let back = number != from || ports[from].2;
            (flood && member && forwarding && back && !(isolated && ports[from].1)).then_some(number)
        };
        let expected: Vec<usize> = ports.iter().enumerate().filter_map(may).collect();
        let sent: Vec<usize> = sent.unwrap().iter().map(|egress| egress.port.index()).collect();
        prop_assert_eq!(sent, expected);
    }

    /// The short way of a frame between known stations leads where the rules do, one by one: the same decisions, table and counters.
    #[test]
    fn the_short_way_decides_as_the_rules_do(
        ports in proptest::collection::vec(configured(), 4),
        filtering in prop::bool::weighted(0.2),
        fixed in proptest::collection::vec((0u32..5, 0u16..4, any::<bool>()), 0..3),
        frames in proptest::collection::vec(sent(), 1..100),
    ) {
        let fdb = FdbConfig { capacity: 6, ageing: AGEING, seed: 1 };
        let mut worlds = [World::with(0, fdb), World::with(0, fdb)];
        for world in &mut worlds {
            world.bridge.set_filtering(filtering);
            for (number, (config, state)) in (0..).zip(&ports) {
                world.bridge.add_port(port(number), config.clone(), *state);
            }
            for (n, to, sticky) in &fixed {
                world.bridge.set_fixed(FdbKey::new(station(*n), None), port(*to), *sticky, world.now);
            }
        }
        let [ruled, short] = &mut worlds;
        for (from, src, dst, id, data, cut, seconds) in frames {
            let mut bytes = frame(src, dst, id.and_then(tag), data);
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            let expected = ruled.decide(from, &bytes);
            let decision = match short.bridge.relay(port(from), &bytes, &short.counters, short.now) {
                Ok(port) => Decision::Forward(ForwardedFrame { port, tag: TagAction::Keep }),
                Err(exception) => short.bridge.explain(port(from), exception, &bytes, short.now),
            };
            prop_assert_eq!(decision, expected, "{:?} by port {}", bytes, from);
            let [of_ruled, of_short] = [&*ruled, &*short].map(|world| {
                let mut entries = world.bridge.table().entries();
                entries.sort_by_key(|(key, _)| *key);
                (entries, Counters::fold([&world.counters]))
            });
            prop_assert_eq!(of_short, of_ruled);
            ruled.now += Duration::from_secs(seconds);
            short.now += Duration::from_secs(seconds);
        }
    }

    /// A flow that is remembered goes where the rules send it at that moment, and so does each frame of a run of them, whatever has
    /// changed: addresses that move, expire or are removed, and the configuration of ports. In a memory for four flows they
    /// displace each other.
    #[test]
    fn a_remembered_flow_goes_where_the_rules_send_it(
        ports in proptest::collection::vec(configured(), 4), steps in proptest::collection::vec(change(), 1..300),
        room in prop::sample::select(vec![4usize, 8192]),
    ) {
        let mut members = Members::new();
        for (number, (config, state)) in (0..).zip(&ports) {
            members.add(port(number), config.clone(), *state);
        }
        let fdb = FdbConfig { capacity: 6, ageing: AGEING, seed: 1 };
        let [mut table, mut ruled] = [(); 2].map(|()| FdbTable::new(fdb));
        let (counters, mut storm) = (Counters::new(), bridge::Storm::default());
        let (mut memory, mut versions, mut now) = (FlowMemory::with_room(room), Versions::default(), Time::from_secs(1000));
        // Places of entries, as far as decisions depend on them.
        let places = |table: &FdbTable| -> HashMap<_, _> {
            table.iter().map(|(key, entry)| (key, (entry.port(), entry.flags().fixed, entry.flags().sticky))).collect()
        };
        for step in steps {
            let before = places(&table);
            match step {
                Change::Frames(frames) => {
                    let frames: Vec<(u16, Vec<u8>)> = frames.into_iter().map(sent_bytes).collect();
                    let mut rule = |(from, input): (u16, InputPort<'_>), bytes: &[u8]| {
                        let arrival = Arrival::of(port(from), bytes).map_err(Decision::Drop);
                        arrival.map_or_else(|dropped| dropped, |arrival| {
                            input.forward(&mut ruled, &mut storm, &arrival, &counters, now)
                        })
                    };
                    let mut left = &frames[..];
                    while let Some((from, first)) = left.first() {
                        let batch: Vec<&[u8]> = left.iter().take_while(|next| next.0 == *from).map(|next| &next.1[..]).collect();
                        left = &left[1..];
                        let Some(input) = InputPort::of(&members, port(*from)) else { continue };
                        // Frames that are not recalled are a batch each: learning may have changed the table.
                        let before = places(&table);
                        let recalls = memory.begin(port(*from), now, versions);
                        if let Some(exit) = memory.recall(first).filter(|_| recalls) {
                            let (count, bytes) = memory.run(&batch, exit, |_| true);
                            let run = &batch[..count];
                            for frame in run {
                                let expected = Decision::Forward(ForwardedFrame { port: exit, tag: TagAction::Keep });
                                prop_assert_eq!(rule((*from, input), frame), expected, "{:?} by port {}", frame, from);
                            }
                            prop_assert_eq!(bytes, run.iter().map(|frame| frame.len()).sum::<usize>());
                            prop_assert!(count > 0 && batch.get(count).is_none_or(|next| memory.recall(next) != Some(exit)));
                            memory.end(count);
                            left = &left[count - 1..];
                            continue;
                        }
                        let relayed = input.at(now).receive_new(&mut memory, &mut table, first, &counters);
                        memory.end(1);
                        let decision = match relayed {
                            Ok(port) => Decision::Forward(ForwardedFrame { port, tag: TagAction::Keep }),
                            Err(exception) => input.decide(exception, &mut bridge::Storm::default(), first, now),
                        };
                        prop_assert_eq!(decision, rule((*from, input), first), "{:?} by port {}", first, from);
                        let now_there = places(&table);
                        versions.table += u64::from(before.iter().any(|(key, place)| now_there.get(key) != Some(place)));
                    }
                    prop_assert_eq!(places(&table), places(&ruled));
                }
                Change::Configure(number, config) => {
                    members.configure(port(number), |old| *old = config);
                    versions.members += 1;
                }
                Change::State(number, state) => {
                    members.set_state(port(number), state);
                    versions.members += 1;
                }
                Change::Filter(filtering) => {
                    members.set_filtering(filtering);
                    versions.members += 1;
                }
                Change::Ageing(seconds) => {
                    let _ = [&mut table, &mut ruled].map(|table| table.set_ageing(Duration::from_secs(seconds)));
                    versions.table += 1;
                }
                Change::Remove(n) => _ = [&mut table, &mut ruled].map(|table| table.remove(FdbKey::new(station(n), None))),
                Change::Flush(of) => _ = [&mut table, &mut ruled].map(|table| table.flush_port(port(of))),
                Change::Wait(seconds) => now += Duration::from_secs(seconds),
            }
            let now_there = places(&table);
            versions.table += u64::from(before.iter().any(|(key, place)| now_there.get(key) != Some(place)));
        }
    }

    /// The limit compares as an entry's age does, up to a nanosecond around it, and for any other time.
    #[test]
    fn an_age_limit_is_the_age_at_which_entries_expire(
        heard: u64, later in prop_oneof![0u64..1 << 40, any::<u64>()], other: u64,
        near in prop::option::weighted(0.7, -2i64..3), fixed: bool, before: bool,
    ) {
        let after = heard.saturating_add(later);
        let (heard, now) = if before { (after, heard) } else { (heard, after) };
        let flags = bridge::EntryFlags { fixed, sticky: false };
        let (entry, now) = (FdbEntry::new(port(3), flags, Time::from_nanos(heard)), Time::from_nanos(now));
        let ageing = near.map_or(other, |near| bridge::nanos(entry.age(now)).saturating_add_signed(near));
        prop_assert_eq!(AgeLimit::new(now, ageing).is_past(entry), entry.is_expired(now, Duration::from_nanos(ageing)));
    }

    /// Whatever the bytes, a decision is made, and a frame goes to no reserved address.
    #[test]
    fn any_bytes_are_decided_about(bytes in proptest::collection::vec(any::<u8>(), 0..100), filtering: bool) {
        let mut world = World::new(3);
        world.bridge.set_filtering(filtering);
        let reserved = bytes.starts_with(&[0x01, 0x80, 0xc2, 0, 0]) && bytes.get(5).is_some_and(|b| *b < 16);
        let decision = world.decide(1, &bytes);
        prop_assert!(!reserved || matches!(decision, Decision::Bpdu | Decision::Drop(_)));
    }
}
