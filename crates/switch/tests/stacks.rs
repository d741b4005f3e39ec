//! Three whole stacks that a bridge connects: echo requests and TCP between each two, over VLANs, over two bridges with a
//! loop between them, and past a port that goes down. Virtual time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bridge::{PortConfig, PortNumber, StpConfig, StpPortConfig, Vid};
use dev::{Device, mem};
use observe::{DropReason, Time};
use pktbuf::{Checksum, Chunk};
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, TcpSocket};
use stack::{Architecture, Stack};
use switch::{Generic, GenericConfig, PortError, Work};
use sync::Real;
use testbed::frames::Frame;
use testbed::turns::{Forwards, Turns};
use testbed::world::End;
use wire::ethernet::MacAddr;

const PORT: u16 = 80;
const DATA: usize = 100_000;
/// The sender of single frames.
const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

struct Host {
    stack: Stack<Real>,
    listeners: [Arc<ListenerShared<Real>>; 2],
}

/// Addresses of host `n`.
fn addresses(n: usize) -> [IpAddr; 2] {
    [Ipv4Addr::new(10, 0, 0, n as u8 + 1).into(), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n as u16 + 1).into()]
}

fn host(n: usize, device: mem::MemDevice, turns: &mut Turns) -> Host {
    let [v4, v6] = addresses(n);
    let (addresses, clock) = ([(v4, 24), (v6, 64)], turns.clock.clone());
    let (arch, tcp, seed) = (Architecture::default(), Default::default(), n as u64 + 1);
    let (stack, drivers) = End { devices: vec![Box::new(device)], addresses, arch, cpus: 1, tcp, seed, clock }.build();
    turns.drivers.extend(drivers);
    let listen = |any: IpAddr| stack.listen(SocketAddr::new(any, PORT), 16, Default::default()).expect("a free port");
    let listeners = [listen(v4), listen(v6)];
    Host { stack, listeners }
}

/// The bridges between the hosts.
struct Bridges(Vec<Generic<Real>>);

impl Forwards for Bridges {
    fn poll(&mut self, now: Time) -> usize {
        self.0.iter_mut().map(|bridge| bridge.poll(now)).sum()
    }

    fn next_deadline(&self) -> Time {
        self.0.iter().map(Generic::next_deadline).min().unwrap_or(Time::MAX)
    }
}

/// Hosts, the driver of each at its place in `turns`, and bridges.
struct Network {
    hosts: Vec<Host>,
    turns: Turns<Real, Bridges>,
}

/// Ends of a link; the address of the first is that of station `n`.
fn link(n: u8, offload: bool) -> (mem::MemDevice, mem::MemDevice) {
    let (mac_a, mac_b) = (MacAddr([2, 0, 0, 0, 1, n]), MacAddr([2, 0, 0, 0, 2, n]));
    mem::pair::<Real>(mem::MemConfig { mac_a, mac_b, checksum_offload: offload, ..Default::default() })
}

impl Network {
    /// Three hosts; bridge `of[n]` has host `n`, at the next of its ports. Behind those come the ends of `trunks`, each
    /// between two bridges.
    fn new(of: [usize; 3], trunks: &[(usize, usize)], config: GenericConfig) -> Network {
        let mut turns = Turns::new();
        let count = of.iter().chain(trunks.iter().flat_map(|(a, b)| [a, b])).max().unwrap() + 1;
        let mut devices: Vec<Vec<(Box<dyn Device>, PortConfig)>> = (0..count).map(|_| Vec::new()).collect();
        let mut hosts = Vec::new();
        for (n, bridge) in of.into_iter().enumerate() {
            // The first host leaves checksums to its device, the others compute their own.
            let (near, far) = link(n as u8, n == 0);
            hosts.push(host(n, near, &mut turns));
            devices[bridge].push((Box::new(far), PortConfig::default()));
        }
        for (n, (a, b)) in (100..).zip(trunks) {
            let (left, right) = link(n, false);
            devices[*a].push((Box::new(left), PortConfig::default()));
            devices[*b].push((Box::new(right), PortConfig::default()));
        }
        let build =
            |devices| Generic::build(config, devices).unwrap_or_else(|(n, error)| panic!("device {n}: {error}"));
        let bridges = Bridges(devices.into_iter().map(build).collect());
        Network { hosts, turns: turns.with(bridges) }
    }

    fn pass(&mut self, span: Duration) {
        self.turns.pass(span);
    }

    /// Bridge `n`.
    fn bridge(&mut self, n: usize) -> &mut Generic<Real> {
        &mut self.turns.between.0[n]
    }

    /// An echo request from one host to another; whether the answer came.
    fn ping(&mut self, from: usize, to: IpAddr) -> bool {
        // The caller waits, by the clock that this thread moves.
        let stack = self.hosts[from].stack.clone();
        let answer = std::thread::spawn(move || stack.ping(to, 1, 56, Duration::from_secs(5)));
        while !answer.is_finished() {
            self.pass(Duration::from_millis(5));
            std::thread::yield_now();
        }
        answer.join().expect("no panic").expect("a route").is_some()
    }

    /// Whether data sent from one host arrive at another, as they were sent.
    fn carries(&mut self, from: usize, to: usize, family: usize) -> bool {
        let address = SocketAddr::new(addresses(to)[family], PORT);
        let client = self.hosts[from].stack.connect(None, address, &Default::default()).expect("a route");
        self.pass(Duration::from_secs(2));
        let Some(server) = self.hosts[to].listeners[family].accept() else { return false };
        let data: Arc<[u8]> = (0..DATA).map(|n| (n * 7 / 3) as u8).collect();
        let mut chunks = tcp::Chunks::new();
        chunks.push(Chunk::shared(data.clone()));
        let reply = self.hosts[from].stack.call(&client.target(), Call::Send(tcp::Send { chunks }));
        let Reply::Sent(Ok(mut sent)) = reply else { panic!("not sent") };
        let mut came: Vec<u8> = Vec::new();
        for _ in 0..1000 {
            self.pass(Duration::from_millis(5));
            came.extend(self.receive(to, &server));
            if came.len() == data.len() {
                break;
            }
            if !sent.rest.is_empty() {
                let chunks = std::mem::take(&mut sent.rest);
                if let Reply::Sent(Ok(more)) =
                    self.hosts[from].stack.call(&client.target(), Call::Send(tcp::Send { chunks }))
                {
                    sent = more;
                }
            }
        }
        came[..] == data[..]
    }

    fn receive(&self, at: usize, socket: &Arc<TcpSocket<Real>>) -> Vec<u8> {
        match self.hosts[at].stack.call(&socket.target(), Call::Receive(tcp::Receive { max: usize::MAX })) {
            Reply::Received(Ok(received)) => received.data.iter().flat_map(|data| data.to_vec()).collect(),
            _ => Vec::new(),
        }
    }
}

fn port(n: u16) -> PortNumber {
    PortNumber::new(n).unwrap()
}

fn vid(id: u16) -> Vid {
    Vid::new(id).unwrap()
}

#[test]
fn three_stacks_reach_each_other() {
    for work in [Work::Drain, Work::Frames(1)] {
        let mut network = Network::new([0; 3], &[], GenericConfig { work, ..Default::default() });
        for (from, to) in [(0, 1), (1, 2), (2, 0), (1, 0)] {
            for family in [0, 1] {
                assert!(network.ping(from, addresses(to)[family]), "{from} to {to}, {work:?}");
                assert!(network.carries(from, to, family), "{from} to {to}, {work:?}");
            }
        }
        assert_eq!(network.bridge(0).bridge().table().len(), 3);
        assert_eq!(network.bridge(0).counters().dropped(DropReason::TxRingFull), 0);
    }
}

/// Hosts 0 and 1 are in VLAN 10 of two bridges, host 2 is in VLAN 20; a trunk carries both, tagged.
#[test]
fn vlans_cross_a_trunk_and_stay_apart() {
    let mut network = Network::new([0, 1, 0], &[(0, 1)], GenericConfig::default());
    // Ports of bridge 0: hosts 0 and 2, the trunk; of bridge 1: host 1, the trunk.
    let access = [(0, 0, 10), (0, 1, 20), (1, 0, 10)];
    for (at, trunk) in [(0, 2), (1, 1)] {
        let bridge = network.bridge(at).bridge_mut();
        bridge.set_filtering(true);
        bridge.leave(vid(1), port(trunk));
        bridge.configure(port(trunk), |config| config.pvid = None);
        assert!([10, 20].into_iter().all(|id| bridge.join(vid(id), port(trunk), false)));
    }
    for (at, number, id) in access {
        let bridge = network.bridge(at).bridge_mut();
        bridge.leave(vid(1), port(number));
        bridge.configure(port(number), |config| config.pvid = Some(vid(id)));
        assert!(bridge.join(vid(id), port(number), true));
    }
    for family in [0, 1] {
        assert!(
            network.ping(0, addresses(1)[family]) && network.carries(0, 1, family) && network.carries(1, 0, family)
        );
        assert!(!network.carries(0, 2, family) && !network.carries(2, 1, family));
    }
    // Host 1 moves to VLAN 20.
    let bridge = network.bridge(1).bridge_mut();
    bridge.leave(vid(10), port(0));
    bridge.configure(port(0), |config| config.pvid = Some(vid(20)));
    bridge.join(vid(20), port(0), true);
    assert!(network.carries(2, 1, 0) && !network.carries(0, 1, 1));
}

/// Two bridges with two trunks: without spanning tree the first broadcast would go round for ever.
#[test]
fn a_loop_is_broken_and_heals() {
    let mut network = Network::new([0, 1, 0], &[(0, 1), (0, 1)], GenericConfig::default());
    let now = network.turns.clock.now();
    for (n, ports) in [(0, 4), (1, 3)] {
        let bridge = network.bridge(n);
        let address = MacAddr([2, 0, 0, 0, 9, n as u8]);
        bridge.bridge_mut().start_tree(StpConfig::default(), address).expect("a configuration");
        for number in 0..ports {
            bridge.bridge_mut().join_tree(port(number), StpPortConfig::default(), now).expect("a configuration");
            bridge.set_up(port(number), true, now);
        }
    }
    // Ports towards hosts are found out to be edge ports after 3 s.
    network.pass(Duration::from_secs(4));
    for family in [0, 1] {
        assert!(
            network.ping(0, addresses(1)[family]) && network.carries(0, 1, family) && network.carries(1, 2, family)
        );
    }
    // The trunk in use: both ends see it go down.
    let now = network.turns.clock.now();
    network.bridge(0).set_up(port(2), false, now);
    network.bridge(1).set_up(port(1), false, now);
    assert!(network.carries(0, 1, 0), "by the other trunk");
    assert!(network.carries(2, 1, 1));
}

#[test]
fn a_full_input_queue_drops_and_counts() {
    let (near, mut far) = link(0, false);
    let config = GenericConfig { input_queue: 4, ..Default::default() };
    let devices: Vec<(Box<dyn Device>, PortConfig)> = vec![(Box::new(near), PortConfig::default())];
    let mut bridge = Generic::<Real>::build(config, devices).unwrap_or_else(|(_, error)| panic!("{error}"));
    let mut queue = far.take_queues().pop().unwrap();
    for _ in 0..10 {
        let bytes = Frame::experiment(STATION, MacAddr::BROADCAST, &[]).bytes();
        assert!(queue.tx.transmit(pktbuf::PktBuf::from_slice(&bytes).unwrap()).is_ok());
    }
    assert_eq!(bridge.poll(Time::from_secs(1)), 10);
    assert_eq!(bridge.counters().dropped(DropReason::InputQueueFull), 6);
    assert_eq!(bridge.counters().dropped(DropReason::BridgeNoPort), 4, "there is no other port");
}

/// Checksums that a sender leaves to its device are completed if the frame leaves by a port that does not complete
/// them, and only then.
#[test]
fn a_checksum_left_to_the_device_is_completed() {
    let ((near, mut sender), (plain, mut first), (able, mut second)) = (link(0, true), link(1, false), link(2, true));
    let devices: Vec<(Box<dyn Device>, PortConfig)> =
        [near, plain, able].map(|device| (Box::new(device) as Box<dyn Device>, PortConfig::default())).into();
    let mut bridge =
        Generic::<Real>::build(GenericConfig::default(), devices).unwrap_or_else(|(_, error)| panic!("{error}"));
    let bytes = Frame::experiment(STATION, MacAddr::BROADCAST, &[0x12, 0x34, 0, 7, 0, 0, 0x40, 0]).bytes();
    let mut frame = pktbuf::PktBuf::from_slice(&bytes).unwrap();
    let left = Checksum::Partial { start: 14, offset: 2 };
    frame.meta_mut().checksum = left;
    let mut queue = sender.take_queues().pop().unwrap();
    assert!(queue.tx.transmit(frame).is_ok());
    bridge.poll(Time::from_secs(1));
    let receive = |device: &mut mem::MemDevice| {
        let mut batch = Vec::new();
        device.take_queues().pop().unwrap().rx.receive(&mut batch, 8);
        let frame = batch.pop().expect("a copy of the frame");
        (frame[14..22].to_vec(), frame.meta().checksum)
    };
    // 0x1234 + 7 + 0x4000 = 0x523b, complemented.
    assert_eq!(receive(&mut first), (vec![0x12, 0x34, 0xad, 0xc4, 0, 0, 0x40, 0], Checksum::None));
    assert_eq!(receive(&mut second), (bytes[14..].to_vec(), left));
}

/// A virtual machine ends: its device vanishes, and the others continue.
#[test]
fn a_port_that_vanishes_is_left_out() {
    let mut network = Network::new([0; 3], &[], GenericConfig::default());
    assert!(network.carries(0, 1, 0) && network.carries(2, 1, 0));
    assert_eq!(network.bridge(0).bridge().table().len(), 3);
    drop((network.hosts.pop(), network.turns.drivers.pop()));
    assert!(network.carries(0, 1, 0) && network.carries(1, 0, 1));
    let bridge = network.bridge(0);
    assert_eq!(bridge.bridge().table().len(), 2, "its address is forgotten");
    assert_eq!(bridge.counters().dropped(DropReason::InterfaceDown), 0, "nothing is flooded to it");
}

#[test]
fn a_device_that_cannot_be_a_port_is_refused() {
    let refused = |config| {
        let (near, _) = mem::pair::<Real>(config);
        let devices: Vec<(Box<dyn Device>, PortConfig)> = vec![(Box::new(near), PortConfig::default())];
        Generic::<Real>::build(GenericConfig::default(), devices).err()
    };
    let merging = mem::MemConfig { coalescing: true, ..Default::default() };
    assert_eq!(refused(merging), Some((0, PortError::Coalesces)));
    let bare = mem::MemConfig { framing: wire::Framing::Packet, ..Default::default() };
    assert_eq!(refused(bare), Some((0, PortError::NotEthernet)));
    assert_eq!(refused(mem::MemConfig::fddi()), Some((0, PortError::NotEthernet)));
    let said = PortError::NotEthernet.to_string();
    assert!(said.contains("FDDI") && said.contains("Ethernet frames"), "{said}");
}
