//! What a memory of flows keeps, and where a run of remembered flows ends.

mod support;

use std::time::Duration;

use bridge::{FdbConfig, FdbKey, FdbTable, FlowMemory, InputPort, Members, PortConfig, PortState, Versions, learn};
use observe::{Counters, Time};
use support::{frame, port, station};
use wire::ethernet::MacAddr;

const NOW: Time = Time::from_secs(1000);

/// Stations behind three ports, all known.
struct Known {
    members: Members,
    table: FdbTable,
    counters: Counters,
}

impl Known {
    /// The stations of each port; port 1 takes shorter frames than the others.
    fn new(behind: [std::ops::Range<u32>; 3]) -> Known {
        let mut members = Members::new();
        let mut table = FdbTable::new(FdbConfig { capacity: 256, ageing: Duration::from_secs(300), seed: 1 });
        for (number, stations) in (0..).zip(behind) {
            let mtu = if number == 1 { 100 } else { 1500 };
            members.add(port(number), PortConfig { mtu, ..PortConfig::default() }, PortState::Forwarding);
            for n in stations {
                learn(&mut table, FdbKey::new(station(n), None), port(number), &Some(200), NOW);
            }
        }
        Known { members, table, counters: Counters::new() }
    }

    /// Decides about a frame of port 0 by the rules; the memory may keep its flow.
    fn meet(&mut self, memory: &mut FlowMemory, frame: &[u8]) {
        let input = InputPort::of(&self.members, port(0)).unwrap();
        let _ = input.at(NOW).receive_new(memory, &mut self.table, frame, &self.counters);
    }
}

fn to(n: u32, payload: usize) -> Vec<u8> {
    frame(station(0), station(n), None, payload)
}

/// Frames to stations of port 1, with flows that have one set in this memory.
fn of_one_set(memory: &FlowMemory, count: usize) -> Vec<Vec<u8>> {
    let set = memory.line_of(&to(1, 46));
    let flows: Vec<_> = (1..100).map(|n| to(n, 46)).filter(|frame| memory.line_of(frame) == set).take(count).collect();
    assert_eq!(flows.len(), count);
    flows
}

/// A set holds two flows. If it is full, a further one is kept in the set beside it, if there is room; otherwise it replaces the
/// older one of its set.
#[test]
fn flows_of_one_set_are_kept_until_the_set_beside_it_is_full() {
    let mut known = Known::new([0..1, 1..100, 100..101]);
    let mut memory = FlowMemory::with_room(4);
    let flows = of_one_set(&memory, 6);
    let remembered = |memory: &FlowMemory| -> Vec<usize> {
        let recalled = |flow: &usize| memory.recall(&flows[*flow]) == Some(port(1));
        (0..flows.len()).filter(recalled).collect()
    };
    for table in 1..4 {
        // A new version makes room for all.
        assert!(memory.begin(port(0), NOW, Versions { table, members: 1 }));
        for (met, expected) in
            [&[0][..], &[0, 1], &[0, 1, 2], &[0, 1, 2, 3], &[1, 2, 3, 4], &[2, 3, 4, 5]].iter().enumerate()
        {
            known.meet(&mut memory, &flows[met]);
            assert_eq!(remembered(&memory), *expected);
        }
    }
}

/// A run does not go on with a flow of the set beside that leaves by another port, whichever of four flows that is.
#[test]
fn a_run_ends_at_a_flow_beside_that_leaves_by_another_port() {
    for other in 0..4 {
        let mut memory = FlowMemory::with_room(4);
        let flows = of_one_set(&memory, 4);
        let mut known = Known::new([0..1, 1..100, 100..101]);
        let station_of = |frame: &[u8]| FdbKey::new(MacAddr(frame[..6].try_into().unwrap()), None);
        learn(&mut known.table, station_of(&flows[other]), port(2), &Some(200), NOW);
        memory.begin(port(0), NOW, Versions::default());
        flows.iter().for_each(|frame| known.meet(&mut memory, frame));
        assert_eq!(memory.recall(&flows[other]), Some(port(2)));
        assert_eq!(memory.run(&flows, port(1), |_| true).0, other);
        assert_eq!(memory.run(&flows[other..], port(2), |_| true).0, 1);
    }
}

/// A run has the frames that the memory sends to one port, up to the first that it does not, or that the caller does not take.
#[test]
fn a_run_ends_at_the_first_frame_that_leaves_otherwise() {
    let mut known = Known::new([0..1, 1..100, 100..101]);
    let usual: Vec<Vec<u8>> = (1..40).map(|n| to(n, 46)).collect();
    let others: [(&str, Vec<u8>); 5] = [
        ("by another port", to(100, 46)),
        ("too long for the port", to(1, 101)),
        ("of a flow that is not remembered", to(99, 46)),
        ("to all", frame(station(0), MacAddr::BROADCAST, None, 46)),
        ("so short that it may end in a tag", to(1, 3)),
    ];
    for room in [1024, 8192] {
        let mut memory = FlowMemory::with_room(room);
        memory.begin(port(0), NOW, Versions::default());
        usual.iter().chain([&others[0].1]).for_each(|frame| known.meet(&mut memory, frame));
        assert_eq!(memory.recall(&others[0].1), Some(port(2)));
        let all: usize = usual.iter().map(Vec::len).sum();
        assert_eq!(memory.run(&usual, port(1), |_| true), (39, all));
        assert_eq!(memory.run(&usual[..0], port(1), |_| true), (0, 0));
        assert_eq!(memory.run(&usual, port(2), |_| true), (0, 0));
        assert_eq!(memory.run(&usual, port(1), |frame| *frame != usual[7]), (7, 7 * 60), "one is not taken");
        for (what, other) in &others {
            for at in [0, 1, 38] {
                let mut frames = usual.clone();
                frames.insert(at, other.clone());
                assert_eq!(memory.run(&frames, port(1), |_| true), (at, at * 60), "{what} at {at}");
            }
        }
    }
}
