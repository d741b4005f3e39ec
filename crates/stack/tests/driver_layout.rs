//! `StackConfig::drivers`: which driver serves which queue pair of which device, for receiving and for connections that
//! wait for room.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dev::mem::{self, MemConfig, MemDevice};
use dev::rss::Rss;
use dev::{Device, QueuePair};
use observe::{Counter, Time};
use pktbuf::PktBuf;
use stack::{Architecture, Clock, Driver, DriverLayout, InterfaceConfig, Stack, StackConfig, VirtualClock};
use sync::Real;
use testbed::frames::{Ends, Segment};

/// Queue pairs of the devices.
const QUEUES: [usize; 3] = [1, 3, 2];

fn interface(device: MemDevice, n: u8) -> InterfaceConfig {
    let v6 = IpAddr::from([0xfd00, 0, 0, u16::from(n), 0, 0, 0, 1]);
    let addresses = vec![(IpAddr::from([10, 0, n, 1]), 24), (v6, 64)];
    InterfaceConfig { device: Box::new(device), addresses, gateways: vec![], addressing: Default::default() }
}

/// A stack with these devices, and the far ends' queues by device.
fn build(drivers: DriverLayout) -> (Stack<Real>, Vec<Driver<Real>>, Vec<Vec<QueuePair>>) {
    let links = QUEUES.map(|queues| mem::pair::<Real>(MemConfig { queues, ..MemConfig::default() }));
    let (near, far): (Vec<_>, Vec<_>) = links.into_iter().unzip();
    let clock = Clock::Virtual(VirtualClock::new(Time::from_secs(1)));
    let arch = Architecture::named("giant");
    let config = StackConfig { seed: Some(1), clock, drivers, ..StackConfig::<Real>::new(arch) };
    let interfaces = (0..).zip(near).map(|(n, device)| interface(device, n)).collect();
    let (stack, drivers) = Stack::build(config, interfaces).expect("the stack builds");
    (stack, drivers, far.into_iter().map(|mut device| device.take_queues()).collect())
}

/// By driver, the queue pairs that it serves, as device and index.
fn expected(layout: DriverLayout) -> Vec<Vec<(usize, usize)>> {
    match layout {
        DriverLayout::PerIndex => vec![vec![(0, 0), (1, 0), (2, 0)], vec![(1, 1), (2, 1)], vec![(1, 2)]],
        DriverLayout::PerDevice => vec![vec![(0, 0)], vec![(1, 0), (1, 1), (1, 2)], vec![(2, 0), (2, 1)]],
        DriverLayout::PerQueue => [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1)].map(|queue| vec![queue]).to_vec(),
    }
}

const LAYOUTS: [DriverLayout; 3] = [DriverLayout::PerIndex, DriverLayout::PerDevice, DriverLayout::PerQueue];

#[test]
fn each_queue_is_received_by_its_driver() {
    for layout in LAYOUTS {
        let (_stack, mut drivers, mut far) = build(layout);
        let expected = expected(layout);
        assert_eq!(drivers.len(), expected.len(), "{layout:?}");
        for (driver, queues) in expected.iter().enumerate() {
            for &(device, queue) in queues {
                let frame = frame_for(queue, QUEUES[device]);
                let tx = &mut far[device][queue].tx;
                assert!(tx.transmit(frame).is_ok(), "there is room");
                tx.flush();
            }
            let before: Vec<u64> = drivers.iter().map(frames_in).collect();
            drivers.iter_mut().for_each(|driver| _ = driver.poll());
            let taken: Vec<u64> =
                drivers.iter().zip(before).map(|(driver, before)| frames_in(driver) - before).collect();
            let total: u64 = taken.iter().sum();
            assert_eq!((taken[driver], total), (queues.len() as u64, queues.len() as u64), "{layout:?}: {taken:?}");
        }
    }
}

/// A segment, not for the stack, that a device with this many queues puts into this one.
fn frame_for(queue: usize, queues: usize) -> PktBuf {
    let rss = Rss::new(&wire::rss::SYMMETRIC_KEY, queues);
    let frame =
        |port| PktBuf::from_slice(&Segment::syn(port, 80).frame_over(Ends::BOTH_FAMILIES[0])).expect("a buffer");
    (1..).map(frame).find(|frame| rss.queue(rss.hash(frame)) == queue).expect("a port leads there")
}

fn frames_in(driver: &Driver<Real>) -> u64 {
    driver.counters().snapshot().get(Counter::FramesIn)
}

/// A flow's driver is that of the queue of its hash, of the device on the way to its peer; over both families.
#[test]
fn the_driver_of_a_flow_is_that_of_its_queue() {
    for layout in LAYOUTS {
        let (stack, _drivers, _far) = build(layout);
        for (device, queues) in QUEUES.into_iter().enumerate() {
            for port in 1..=40 {
                let v4 = |last| IpAddr::from(Ipv4Addr::new(10, 0, device as u8, last));
                let v6 = |last| IpAddr::from([0xfd00, 0, 0, device as u16, 0, 0, 0, last]);
                for (local, remote) in [(v4(1), v4(2)), (v6(1), v6(2))] {
                    let flow = stack.flow(SocketAddr::new(local, port), SocketAddr::new(remote, 80));
                    let queue = (device, flow.index(queues));
                    let driver = stack.driver_of(&flow).expect("a route");
                    assert!(expected(layout)[driver].contains(&queue), "{layout:?}: {queue:?} is not of {driver}");
                }
            }
        }
    }
}
