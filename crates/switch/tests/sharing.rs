//! Bridges that workers share, against the bridge of one thread: the same frames leave by the same ports. Also the
//! parts that only a shared bridge has: grace periods, addition and removal of ports, workers and queues. Workers are
//! polled in turn, in virtual time; the tests at the end run the threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge::{FdbConfig, FdbKey, PortConfig, PortNumber, StormLimits, StormRate, StpConfig, Vid};
use dev::mem::{self, MemConfig, MemDevice};
use dev::{Device, QueuePair};
use observe::{Counter, DropReason, Time};
use pktbuf::PktBuf;
use switch::{
    AffinityError, BridgeExclusion, BridgeWorker, Generic, GenericConfig, InterruptKind, InterruptReport, PortError,
    PortTraffic, SharedBridge, SharedConfig, Sharing, Switch, SwitchConfig, VectorRole, Work,
};
use sync::{Platform, Real};
use testbed::frames::Frame;
use testbed::limit::HANG;
use testbed::panicking::{self, PanickingDevice};
use wire::ethernet::MacAddr;

fn number(n: usize) -> PortNumber {
    PortNumber::new(n as u16).expect("a small number")
}

fn station(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn frame(dst: MacAddr, src: MacAddr, id: u16) -> PktBuf {
    padded(Frame::experiment(src, dst, &id.to_be_bytes()))
}

/// A frame of the least length.
fn padded(frame: Frame<'_>) -> PktBuf {
    PktBuf::from_slice(&Frame { padded_to: 60, ..frame }.bytes()).expect("a buffer")
}

fn id_of(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[14], frame[15]])
}

/// The stations' side of a port.
struct Wire {
    queues: Vec<QueuePair>,
}

impl Wire {
    /// A port of the bridge, and the stations' side of it.
    fn new(queues: usize, ring_frames: usize) -> (MemDevice, Wire) {
        let config = MemConfig { queues, ring_frames, ..MemConfig::default() };
        let (near, mut far) = mem::pair::<Real>(config);
        let queues = far.take_queues();
        (near, Wire { queues })
    }

    fn send(&mut self, frame: PktBuf) {
        assert!(self.queues[0].tx.transmit(frame).is_ok(), "the ring has room");
        self.queues[0].tx.flush();
    }

    /// The frames that have left by the port.
    fn take(&mut self) -> Vec<PktBuf> {
        let mut batch = Vec::new();
        self.queues.iter_mut().for_each(|pair| while pair.rx.receive(&mut batch, 64) > 0 {});
        batch
    }

    fn ids(&mut self) -> Vec<u16> {
        self.take().iter().map(|frame| id_of(frame)).collect()
    }
}

const SHARINGS: [Sharing; 2] = [Sharing::Mpsafe, Sharing::Rcu];

/// A shared bridge whose workers are polled by the test.
struct Bench {
    shared: Arc<SharedBridge<Real>>,
    workers: Vec<BridgeWorker<Real>>,
    wires: Vec<Wire>,
    now: Time,
}

impl Bench {
    fn new(sharing: Sharing, workers: usize, fdb: FdbConfig) -> Bench {
        let config = SharedConfig { sharing, fdb, work: Work::Frames(8), workers, interrupts: InterruptKind::Msix };
        let shared = SharedBridge::<Real>::new(config).expect("doorbells");
        let begin = |number| BridgeWorker::begin(&shared, number).expect("it has not begun");
        let workers = (0..workers).map(begin).collect();
        Bench { shared, workers, wires: Vec::new(), now: Time::from_secs(1) }
    }

    fn with_ports(sharing: Sharing, workers: usize, ports: usize) -> Bench {
        let mut bench = Bench::new(sharing, workers, FdbConfig::default());
        (0..ports).for_each(|_| _ = bench.add_port(1, PortConfig::default()));
        bench
    }

    fn add_port(&mut self, queues: usize, config: PortConfig) -> PortNumber {
        let (mut near, wire) = Wire::new(queues, 512);
        let name = format!("port{}", self.wires.len());
        self.wires.push(wire);
        self.shared.add_port(&name, &mut near, config, self.now).expect("a port")
    }

    /// Polls until no frame moves.
    fn rest(&mut self) {
        let now = self.now;
        while self.workers.iter_mut().map(|worker| worker.poll(now)).sum::<usize>() > 0 {
            self.shared.keep_house(now);
        }
        self.shared.keep_house(now);
        self.workers.iter_mut().for_each(|worker| _ = worker.poll(now));
    }

    fn send(&mut self, port: usize, frame: PktBuf) {
        self.wires[port].send(frame);
        self.rest();
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.shared.counters().dropped(reason)
    }

    /// The traffic of each port.
    fn traffic(&self) -> Vec<PortTraffic> {
        self.shared.look(|_, ports| ports.iter().flatten().map(|port| port.traffic).collect())
    }

    fn entries(&self) -> BTreeMap<FdbKey, usize> {
        let by_key = |(key, entry): (FdbKey, bridge::FdbEntry)| (key, entry.port().index());
        self.shared.look(|bridge, _| bridge.entries().into_iter().map(by_key).collect())
    }
}

/// Pseudo-random numbers (xorshift), the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Random frames among stations that sometimes move, with tags, groups and unknown destinations: each of the three
/// bridges sends the same frames by the same ports, learns the same addresses and drops for the same reasons.
#[test]
fn the_same_frames_leave_as_from_a_bridge_of_one_thread() {
    const PORTS: usize = 4;
    let devices = || (0..PORTS).map(|_| Wire::new(1, 512)).unzip::<_, _, Vec<_>, Vec<_>>();
    let (near, mut wires) = devices();
    let boxed = near.into_iter().map(|device| (Box::new(device) as Box<dyn Device>, PortConfig::default())).collect();
    let mut generic = Generic::<Real>::build(GenericConfig::default(), boxed).unwrap_or_else(|(_, e)| panic!("{e}"));
    let mut benches = SHARINGS.map(|sharing| Bench::with_ports(sharing, 2, PORTS));
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for id in 0..2000 {
        let (port, src) = (dice.below(PORTS as u64) as usize, dice.below(8) as u8);
        let dst = match dice.below(12) {
            0 => MacAddr::BROADCAST,
            1 => MacAddr([0x01, 0x80, 0xc2, 0, 0, 5]),
            n => station((n as u8) - 2),
        };
        // Longer than the port's time for posting an address again, so that each move is seen.
        let now = Time::from_secs(1) + Duration::from_millis(200) * u32::from(id);
        wires[port].send(frame(dst, station(src), id));
        generic.poll(now);
        let left: Vec<Vec<u16>> = wires.iter_mut().map(Wire::ids).collect();
        for bench in &mut benches {
            bench.now = now;
            bench.send(port, frame(dst, station(src), id));
            let ours: Vec<Vec<u16>> = bench.wires.iter_mut().map(Wire::ids).collect();
            assert_eq!(ours, left, "frame {id} from {src} to {dst} by port {port}");
        }
    }
    for bench in &benches {
        let (ours, theirs) = (bench.shared.counters(), generic.counters().snapshot());
        for reason in [DropReason::BridgeSamePort, DropReason::BridgeReservedAddress, DropReason::BridgeNoPort] {
            assert_eq!(ours.dropped(reason), theirs.dropped(reason), "{reason:?}");
        }
        for counter in [Counter::AddressesLearned, Counter::AddressesMoved] {
            assert_eq!(ours.get(counter), theirs.get(counter), "{counter:?}");
        }
    }
}

/// Section 3.2.2 of the paper: entries are removed at one pserialize, however many there are.
/// Frames that are received together leave by the same ports, and in the same order, as when each is received alone.
#[test]
fn a_batch_leaves_as_its_frames_one_by_one() {
    for sharing in SHARINGS {
        let [mut together, mut apart] = [(); 2].map(|()| Bench::with_ports(sharing, 1, 4));
        let mut dice = Dice(7);
        for round in 0..200u16 {
            // All stations are where they were, and 7 is nowhere. 5 is behind port 0, too.
            for (n, port) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 0)] {
                let hello = || frame(MacAddr::BROADCAST, station(n), 0);
                together.send(port, hello());
                apart.send(port, hello());
            }
            // The burst is a batch of its own, and often begins with frames of a flow that is remembered.
            together.rest();
            let mut burst: Vec<(MacAddr, MacAddr)> = Vec::new();
            // Most frames have the addresses of the frame before.
            for _ in 0..dice.below(8) {
                let dst = [2, 2, 3, 4, 5, 7, 255].map(station)[dice.below(7) as usize];
                let src = match dice.below(10) {
                    0 => MacAddr([1, 0, 0, 0, 0, 1]),
                    1..4 => station(5),
                    _ => station(1),
                };
                let dst = if dst == station(255) { MacAddr::BROADCAST } else { dst };
                let same = burst.last().copied().filter(|_| dice.below(3) > 0);
                burst.push(same.unwrap_or((dst, src)));
            }
            // A station that has come from port 1, to itself.
            burst.push((station(2), station(2)));
            for (id, (dst, src)) in (8 * round..).zip(burst) {
                together.wires[0].send(frame(dst, src, id));
                apart.send(0, frame(dst, src, id));
            }
            together.rest();
            for (port, (a, b)) in together.wires.iter_mut().zip(&mut apart.wires).enumerate() {
                assert_eq!(a.ids(), b.ids(), "{sharing:?}, round {round}, port {port}");
            }
        }
        for reason in [DropReason::BridgeSamePort, DropReason::FrameBadSource] {
            assert!(together.dropped(reason) > 0);
            assert_eq!(together.dropped(reason), apart.dropped(reason), "{sharing:?} {reason:?}");
        }
        let [of_batches, of_frames] = [together, apart].map(|bench| bench.traffic());
        assert_eq!(of_batches, of_frames, "{sharing:?}");
    }
}

/// A change of a bridge: its name, and the ports by which a frame to station 1 leaves after it.
type NamedChange<'a> = (&'a str, &'a [usize], &'a dyn Fn(&mut Bench));

/// The second and later frames of a flow go where they went before; after a change of the table or of a port's configuration, none
/// does that the change sends elsewhere.
#[test]
fn a_known_flow_follows_every_change() {
    let configure = |bench: &Bench, n, change: &mut dyn FnMut(&mut PortConfig)| {
        assert!(bench.shared.configure(|bridge| bridge.configure(number(n), change)));
    };
    let key = FdbKey::new(station(1), None);
    let changes: [NamedChange<'_>; 10] = [
        ("a flush", &[1, 2], &|bench| _ = bench.shared.configure(|bridge| bridge.flush(&|_, _| true))),
        ("the removal of the address", &[1, 2], &|bench| _ = bench.shared.configure(|bridge| bridge.remove(key))),
        ("an entry elsewhere", &[2], &|bench| {
            let now = bench.now;
            assert!(bench.shared.configure(|bridge| bridge.set_fixed(key, number(2), true, now)));
        }),
        ("a move", &[2], &|bench| bench.send(2, frame(MacAddr::BROADCAST, station(1), 9))),
        ("an ageing time of 0", &[1, 2], &|bench| bench.shared.configure(|bridge| bridge.set_ageing(Duration::ZERO))),
        ("an MTU that is too small", &[], &|bench| configure(bench, 1, &mut |config| config.mtu = 45)),
        ("isolation", &[], &|bench| {
            [0, 1].into_iter().for_each(|n| configure(bench, n, &mut |config| config.isolated = true));
        }),
        ("VLANs", &[1, 2], &|bench| bench.shared.configure(|bridge| bridge.set_filtering(true))),
        ("a port that is down", &[2], &|bench| {
            let now = bench.now;
            bench.shared.configure(|bridge| bridge.set_up(number(1), false, now));
        }),
        ("a port that is removed", &[2], &|bench| _ = bench.shared.remove_port(number(1), bench.now)),
    ];
    for sharing in SHARINGS {
        for (name, expected, change) in changes {
            let mut bench = Bench::with_ports(sharing, 1, 3);
            [1, 0].into_iter().for_each(|n| bench.send(n.into(), frame(MacAddr::BROADCAST, station(n), 0)));
            bench.wires.iter_mut().for_each(|wire| _ = wire.take());
            (1..5).for_each(|id| bench.send(0, frame(station(1), station(0), id)));
            let left: Vec<_> = bench.wires.iter_mut().map(Wire::ids).collect();
            assert_eq!(left, [vec![], vec![1, 2, 3, 4], vec![]], "{sharing:?}, before {name}");
            change(&mut bench);
            bench.wires.iter_mut().for_each(|wire| _ = wire.take());
            bench.send(0, frame(station(1), station(0), 5));
            let left: Vec<usize> = (0..3).filter(|n| bench.wires[*n].ids() == [5]).collect();
            assert_eq!(left, expected, "{sharing:?}, after {name}");
        }
    }
}

#[test]
fn a_flush_costs_one_grace_period() {
    for sharing in SHARINGS {
        let mut bench = Bench::with_ports(sharing, 2, 3);
        (0..200).for_each(|n| bench.send(n as usize % 3, frame(MacAddr::BROADCAST, station(n), 0)));
        assert_eq!(bench.entries().len(), 200);
        let before = bench.shared.grace_periods();
        assert_eq!(bench.shared.configure(|bridge| bridge.flush(&|_, _| true)), 200);
        assert_eq!((bench.entries().len(), bench.shared.grace_periods() - before), (0, 1), "{sharing:?}");
    }
}

#[test]
fn addresses_age_out_at_one_grace_period() {
    for sharing in SHARINGS {
        let mut bench = Bench::with_ports(sharing, 1, 2);
        (0..50).for_each(|n| bench.send(0, frame(MacAddr::BROADCAST, station(n), 0)));
        bench.now = Time::from_secs(200);
        bench.send(0, frame(MacAddr::BROADCAST, station(0), 0));
        let before = bench.shared.grace_periods();
        // Twice the period of the housekeeper, so that it looks after the 300 s of all but the first.
        bench.now = Time::from_secs(400);
        bench.shared.keep_house(bench.now);
        assert_eq!(bench.entries().len(), 1, "{sharing:?}");
        assert_eq!(bench.shared.grace_periods() - before, 1);
    }
}

#[test]
fn a_full_table_floods_and_does_not_drop() {
    for sharing in SHARINGS {
        let mut bench = Bench::new(sharing, 2, FdbConfig { capacity: 16, ..FdbConfig::default() });
        (0..3).for_each(|_| _ = bench.add_port(1, PortConfig::default()));
        bench.send(1, frame(MacAddr::BROADCAST, station(200), 0));
        (0..100).for_each(|n| bench.send(0, frame(MacAddr::BROADCAST, station(n), 0)));
        bench.wires.iter_mut().for_each(|wire| _ = wire.take());
        // One port has half of the table (the others' half is free): station 99 is not in it.
        bench.send(1, frame(station(99), station(200), 7));
        assert_eq!(bench.wires.iter_mut().map(Wire::ids).collect::<Vec<_>>(), [vec![7], vec![], vec![7]]);
        bench.send(2, frame(station(200), station(150), 8));
        assert_eq!(bench.wires.iter_mut().map(Wire::ids).collect::<Vec<_>>(), [vec![], vec![8], vec![]]);
        assert_eq!(bench.shared.counters().dropped_total(), 0);
        assert!(bench.shared.counters().get(Counter::AddressesRefused) > 0);
    }
}

#[test]
fn ports_come_and_go() {
    for sharing in SHARINGS {
        let mut bench = Bench::with_ports(sharing, 2, 3);
        for round in 0..20 {
            bench.send(1, frame(MacAddr::BROADCAST, station(1), 0));
            bench.send(0, frame(station(1), station(0), 1));
            assert_eq!(bench.wires[1].ids(), [1], "round {round}");
            // A frame that has arrived and is not forwarded when the port goes.
            bench.wires[1].send(frame(station(0), station(1), 2));
            let removal = bench.shared.remove_port(number(1), bench.now).expect("it is there");
            assert!(bench.shared.remove_port(number(1), bench.now).is_none());
            bench.rest();
            assert!(removal.is_complete());
            assert_eq!(bench.wires[1].queues[0].tx.transmit(frame(station(0), station(1), 3)).ok(), Some(()));
            assert!(bench.wires[1].queues[0].rx.gone(), "the device is closed");
            assert!(!bench.entries().values().any(|port| *port == 1), "its addresses are forgotten");
            bench.wires.iter_mut().for_each(|wire| _ = wire.take());
            bench.send(0, frame(station(1), station(0), 4));
            assert_eq!(bench.wires[2].ids(), [4], "flooded");
            let (mut near, wire) = Wire::new(2, 64);
            assert_eq!(bench.shared.add_port("new", &mut near, PortConfig::default(), bench.now), Ok(number(1)));
            let again = Wire::new(1, 64).0;
            let refused = bench.shared.add_port("new", &mut { again }, PortConfig::default(), bench.now);
            assert_eq!(refused, Err(PortError::Exists));
            bench.wires[1] = wire;
        }
    }
}

/// The device of a virtual machine that ends.
#[test]
fn a_device_that_vanishes_is_left_out() {
    for sharing in SHARINGS {
        let mut bench = Bench::with_ports(sharing, 1, 3);
        bench.send(1, frame(MacAddr::BROADCAST, station(1), 0));
        drop(bench.wires.remove(1));
        bench.rest();
        assert!(bench.entries().is_empty(), "its addresses are forgotten");
        bench.wires[1].take();
        bench.wires[0].send(frame(station(1), station(0), 5));
        bench.rest();
        assert_eq!(bench.wires[1].ids(), [5]);
        assert_eq!(bench.shared.counters().dropped_total(), 0, "nothing is flooded to it");
    }
}

/// Two bridges with two links between them.
#[test]
fn a_loop_is_broken_by_the_housekeepers() {
    for sharing in SHARINGS {
        let mut benches = [0, 1].map(|_| Bench::with_ports(sharing, 2, 1));
        let [first, second] = &mut benches;
        for link in 0..2 {
            let (mut a, mut b) = mem::pair::<Real>(MemConfig::default());
            let (name, config) = (format!("link{link}"), PortConfig::default());
            first.shared.add_port(&name, &mut a, config.clone(), first.now).expect("a port");
            second.shared.add_port(&name, &mut b, config, second.now).expect("a port");
        }
        for (n, bench) in (0..).zip(&mut benches) {
            let address = MacAddr([2, 0, 0, 0, 9, n]);
            let now = bench.now;
            let started = bench.shared.configure(|bridge| bridge.start_tree(StpConfig::default(), address, now));
            assert_eq!(started, Ok(()));
        }
        for _ in 0..1000 {
            for bench in &mut benches {
                bench.now += Duration::from_millis(10);
                bench.rest();
            }
        }
        let [first, second] = &mut benches;
        // Hellos.
        [&mut *first, &mut *second].into_iter().for_each(|bench| _ = bench.wires[0].take());
        first.wires[0].send(frame(MacAddr::BROADCAST, station(1), 9));
        (0..10).for_each(|_| [&mut *first, &mut *second].into_iter().for_each(Bench::rest));
        assert_eq!((second.wires[0].ids(), first.wires[0].ids()), (vec![9], vec![]), "{sharing:?}");
        let blocked = |bench: &Bench| bench.dropped(DropReason::BridgePortBlocked);
        assert_eq!(blocked(first) + blocked(second), 1, "the other link is blocked at one end");
    }
}

#[test]
fn vlans_and_limits_change_under_way() {
    for sharing in SHARINGS {
        let mut bench = Bench::with_ports(sharing, 2, 3);
        let vid = |id| Vid::new(id).expect("a VLAN");
        bench.shared.configure(|bridge| {
            bridge.set_filtering(true);
            assert!(bridge.join(vid(10), number(1), true) && bridge.join(vid(10), number(0), true));
            bridge.configure(number(0), &mut |config| config.pvid = Some(vid(10)));
        });
        bench.send(0, frame(MacAddr::BROADCAST, station(0), 1));
        assert_eq!([bench.wires[1].ids(), bench.wires[2].ids()], [vec![1], vec![]]);
        let rate = Some(StormRate { per_second: 1, burst: 2 });
        let limits = StormLimits([rate, None, None]);
        bench.shared.configure(|bridge| bridge.configure(number(0), &mut |config| config.storm = limits));
        (0..5).for_each(|id| bench.send(0, frame(MacAddr::BROADCAST, station(0), id)));
        assert_eq!((bench.wires[1].ids(), bench.dropped(DropReason::BridgeStorm)), (vec![0, 1], 3));
    }
}

/// The limit is the port's: frames by several of its queues, which different workers poll, do not pass it together.
#[test]
fn the_queues_of_a_port_share_its_storm_limit() {
    for sharing in SHARINGS {
        let mut bench = Bench::new(sharing, 4, FdbConfig::default());
        let storm = StormLimits([Some(StormRate { per_second: 10, burst: 6 }), None, None]);
        bench.add_port(4, PortConfig { storm, ..PortConfig::default() });
        bench.add_port(1, PortConfig::default());
        let flood = |bench: &mut Bench| {
            for n in 0..40 {
                let mut frame = frame(MacAddr::BROADCAST, station(0), n);
                // Determines the queue.
                frame.meta_mut().flow_hash = Some(n.into());
                bench.wires[0].send(frame);
            }
            bench.rest();
            bench.wires[1].ids()
        };
        let ids = flood(&mut bench);
        assert_eq!(ids.len(), 6, "{sharing:?}: {ids:?}");
        let reports = bench.shared.interrupts();
        let receives = reports.iter().filter(|report| report.name().starts_with("port0:rx"));
        let frames = |report: &InterruptReport| report.by_processor.iter().map(|count| count.frames).sum::<u64>();
        assert_eq!(receives.map(frames).collect::<Vec<_>>(), [10; 4], "each queue has had frames");
        bench.now += Duration::from_millis(300);
        assert_eq!(flood(&mut bench).len(), 3, "{sharing:?}");
    }
}

#[test]
fn a_stopped_bridge_takes_no_more() {
    for sharing in SHARINGS {
        let mut bench = Bench::with_ports(sharing, 1, 2);
        bench.send(0, frame(MacAddr::BROADCAST, station(0), 0));
        bench.shared.stop();
        let late = bench.shared.add_port("late", &mut Wire::new(1, 8).0, PortConfig::default(), bench.now);
        assert_eq!(late, Err(PortError::Stopped));
        bench.wires[0].send(frame(MacAddr::BROADCAST, station(0), 1));
        bench.rest();
        assert_eq!(bench.wires[1].ids(), [0]);
        let Bench { shared, workers, wires, .. } = bench;
        drop((shared, workers));
        assert!(wires[0].queues[0].rx.gone(), "the devices are closed");
    }
}

/// The frames of a flow that waits in the rings of the output device while its receive queue moves, there and back.
#[test]
fn a_queue_that_moves_loses_nothing_and_keeps_its_order() {
    for sharing in SHARINGS {
        let mut bench = Bench::new(sharing, 3, FdbConfig::default());
        let [from, to] = [1, 3].map(|queues| bench.add_port(queues, PortConfig::default()));
        assert_eq!((from, to), (number(0), number(1)));
        bench.send(1, frame(MacAddr::BROADCAST, station(9), 0));
        bench.wires.iter_mut().for_each(|wire| _ = wire.take());
        let mut sent = 0;
        for processor in [2, 1, 0, 2, 0] {
            for _ in 0..20 {
                bench.wires[0].send(frame(station(9), station(1), sent));
                sent += 1;
            }
            // In the middle of them.
            bench.workers.iter_mut().for_each(|worker| _ = worker.poll(bench.now));
            let shared = bench.shared.clone();
            let relocation = shared.set_affinity("port0", VectorRole::Rx(0), processor).expect("a vector");
            assert_eq!(relocation.is_complete(), relocation.queues() == 0);
            bench.rest();
            assert!(relocation.is_complete());
            let report = &shared.interrupts()[0];
            assert_eq!((report.name(), report.processor), ("port0:rx0".to_owned(), Some(processor)));
        }
        bench.rest();
        assert_eq!(bench.wires[1].ids(), (0..sent).collect::<Vec<_>>(), "{sharing:?}");
        assert_eq!(bench.shared.counters().dropped_total(), 0, "{sharing:?}");
        let counts = bench.shared.interrupts().swap_remove(0).by_processor;
        assert_eq!(counts.iter().map(|count| count.frames).sum::<u64>(), u64::from(sent));
        assert!(counts.iter().all(|count| count.interrupts > 0), "each processor has had it: {counts:?}");
    }
}

#[test]
fn vectors_are_shielded_and_distributed() {
    let mut bench = Bench::with_ports(Sharing::Mpsafe, 2, 0);
    bench.add_port(4, PortConfig::default());
    bench.add_port(1, PortConfig::default());
    let places = |bench: &mut Bench| -> Vec<Option<usize>> {
        bench.rest();
        let all = bench.shared.interrupts();
        all.iter().filter(|report| matches!(report.role, VectorRole::Rx(_))).map(|report| report.processor).collect()
    };
    let at = |processors: [usize; 5]| processors.map(Some).to_vec();
    assert_eq!(places(&mut bench), at([0, 1, 0, 1, 1]));
    let shared = bench.shared.clone();
    assert_eq!(shared.shield(1, true).expect("a processor").queues(), 3);
    assert_eq!((places(&mut bench), shared.shielded()), (at([0; 5]), vec![1]));
    let refused = |result: Result<switch::Relocation<'_, Real>, AffinityError>| result.err();
    assert_eq!(refused(shared.shield(0, true)), Some(AffinityError::Last));
    assert_eq!(refused(shared.set_affinity("port0", VectorRole::Rx(1), 1)), Some(AffinityError::Shielded));
    assert_eq!(refused(shared.set_affinity("port0", VectorRole::Rx(1), 2)), Some(AffinityError::NoProcessor));
    assert_eq!(refused(shared.set_affinity("port0", VectorRole::Rx(4), 0)), Some(AffinityError::NoVector));
    assert_eq!(refused(shared.set_affinity("port9", VectorRole::Rx(0), 0)), Some(AffinityError::NoVector));
    assert_eq!(refused(shared.set_affinity("port0", VectorRole::Tx(0), 0)), Some(AffinityError::Follows));
    bench.add_port(2, PortConfig::default());
    assert_eq!(places(&mut bench)[5..], [Some(0), Some(0)], "a new port keeps away, too");
    assert_eq!(shared.shield(1, false).expect("a processor").queues(), 0);
    assert_eq!(shared.distribute().queues(), 4);
    assert_eq!(places(&mut bench)[..5], at([0, 1, 0, 1, 1]));
}

/// A queue that is to move on before it has come.
#[test]
fn moves_follow_each_other() {
    for sharing in SHARINGS {
        let mut bench = Bench::with_ports(sharing, 3, 2);
        let shared = bench.shared.clone();
        let moves = [1, 2, 1, 0, 2].map(|to| shared.set_affinity("port0", VectorRole::Rx(0), to).expect("a vector"));
        bench.rest();
        bench.rest();
        bench.rest();
        assert!(moves.iter().all(switch::Relocation::is_complete));
        assert_eq!(shared.interrupts()[0].processor, Some(2), "{sharing:?}");
        bench.send(0, frame(MacAddr::BROADCAST, station(1), 3));
        assert_eq!(bench.wires[1].ids(), [3]);
        let removal = bench.shared.remove_port(number(0), bench.now).expect("it is there");
        bench.rest();
        assert!(removal.is_complete());
    }
}

#[test]
fn a_number_has_one_worker() {
    let bench = Bench::with_ports(Sharing::Mpsafe, 2, 1);
    assert!(BridgeWorker::begin(&bench.shared, 0).is_none() && BridgeWorker::begin(&bench.shared, 2).is_none());
}

/// The threads of each way to share: every frame that one side sends arrives at the other, in order.
#[test]
fn threads_forward_every_frame_in_order() {
    const FRAMES: u16 = 2000;
    for exclusion in BridgeExclusion::ALL {
        let switch = Switch::<Real>::new(SwitchConfig::new(exclusion)).expect("doorbells");
        let mut wires = Vec::new();
        for name in ["a", "b", "c"] {
            let (mut near, wire) = Wire::new(1, 256);
            switch.add_port(name, &mut near, PortConfig::default(), Time::ZERO).expect("a port");
            wires.push(wire);
        }
        let threads = switch.start();
        let (mut sent, mut came, begun) = ([0u16; 2], [const { Vec::new() }; 2], Instant::now());
        while came.iter().any(|came: &Vec<u16>| came.len() < usize::from(FRAMES)) {
            assert!(begun.elapsed() < HANG, "{}: {sent:?} sent, {:?} came", exclusion.name(), came.map(|c| c.len()));
            for side in 0..2 {
                // At most half a ring is on its way, so that no ring is ever full.
                let under_way = usize::from(sent[side]) - came[1 - side].len();
                if sent[side] < FRAMES && under_way < 64 {
                    wires[side].send(frame(station(2 - side as u8), station(1 + side as u8), sent[side]));
                    sent[side] += 1;
                }
                came[side].extend(wires[side].ids());
            }
            wires[2].take();
            std::thread::yield_now();
        }
        for came in &came {
            assert!(came.iter().copied().eq(0..FRAMES), "{}: in order", exclusion.name());
        }
        assert!(switch.remove_port(number(2), Time::from_secs(1)));
        let drops: Vec<_> = switch.counters().drops().filter(|(_, n)| *n > 0).collect();
        assert_eq!(drops, [], "{}", exclusion.name());
        switch.stop();
        threads.into_iter().for_each(|thread| Real::join(thread).expect("no panic"));
    }
}

/// A device panics while a frame is transmitted, received, or waits to be: its worker ends, and the port can still be
/// removed, as can the port that the frame came by.
#[test]
fn ports_of_a_worker_that_has_panicked_can_be_removed() {
    panicking::mute();
    for exclusion in BridgeExclusion::ALL {
        for by_transmission in [true, false] {
            let config = SwitchConfig { workers: 1, ..SwitchConfig::new(exclusion) };
            let switch = Arc::new(Switch::<Real>::new(config).expect("doorbells"));
            let (near, mut wire) = Wire::new(1, 256);
            let (mut sending, receives) = PanickingDevice::new(near);
            let (near, _other) = Wire::new(1, 256);
            let (mut receiving, transmits) = PanickingDevice::new(near);
            for (name, device) in [("in", &mut sending), ("out", &mut receiving)] {
                switch.add_port(name, device, PortConfig::default(), Time::ZERO).expect("a port");
            }
            let plant = if by_transmission { &transmits.transmit } else { &receives.receive };
            plant.store(1, std::sync::atomic::Ordering::SeqCst);
            let threads = switch.start();
            wire.send(padded(Frame::experiment(station(1), MacAddr::BROADCAST, panicking::MARK)));
            let mut threads = threads.into_iter();
            assert!(Real::join(threads.next().expect("a worker")).is_err(), "{}: it panics", exclusion.name());
            let late = switch.clone();
            testbed::limit::within(move || {
                let (mut near, _wire) = Wire::new(1, 8);
                let now = Time::from_secs(1);
                late.add_port("late", &mut near, PortConfig::default(), now).expect("a port that nobody polls");
                (0..3).for_each(|n| assert!(late.remove_port(number(n), now), "port {n}"));
            });
            switch.stop();
            threads.for_each(|thread| Real::join(thread).expect("no panic"));
        }
    }
}
