//! Interfaces over ports: one, none, several, and more queues than a word has bits. Two whole stacks in virtual time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dev::mem;
use every_arch::every_arch;
use observe::{Counter, DropReason, Time};
use pktbuf::{Chunk, PktBuf};
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, TcpSocket};
use stack::{
    Addressing, Architecture, Clock, InterfaceConfig, InterfaceOverPorts, Stack, StackConfig, StackError, VirtualClock,
};
use sync::Real;
use testbed::frames::{PEER as SERVER, STACK as CLIENT};
use testbed::world::{self, WorldConfig};

type World = world::World<Stack<Real>>;
type Socket = Arc<TcpSocket<Real>>;

/// On no link.
const INNER: Ipv4Addr = Ipv4Addr::new(192, 168, 9, 1);
const PORT: u16 = 80;

fn config(arch: Architecture, clock: &Arc<VirtualClock<Real>>, seed: u64, cpus: usize) -> StackConfig<Real> {
    let clock = Clock::Virtual(clock.clone());
    StackConfig { own_threads: false, seed: Some(seed), clock, cpus, ..StackConfig::new(arch) }
}

fn over(ports: &[usize], address: Ipv4Addr) -> InterfaceOverPorts {
    let addresses = vec![(address.into(), 24)];
    InterfaceOverPorts { ports: ports.to_vec(), addresses, gateways: vec![], addressing: Addressing::default() }
}

/// A client over all of its devices, and a server with these interfaces over its.
fn world(arch: Architecture, (links, queues, cpus): (usize, usize, usize), server: Vec<InterfaceOverPorts>) -> World {
    over_faulty((arch, ""), (links, queues, cpus), server)
}

/// The same, with faults of the client's first device.
fn over_faulty(
    (arch, faults): (Architecture, &str),
    (links, queues, cpus): (usize, usize, usize),
    server: Vec<InterfaceOverPorts>,
) -> World {
    let link = mem::MemConfig { queues, ring_frames: 64, ..Default::default() };
    let faults = faults.parse().expect("a plan");
    World::over_ports(WorldConfig { links, link, cpus, faults, ..WorldConfig::new([arch; 2]) }, server)
}

fn open(world: &mut World, listener: &ListenerShared<Real>, to: Ipv4Addr) -> (Socket, Socket) {
    let client = world.a.connect(None, SocketAddr::new(to.into(), PORT), &Default::default());
    let client = client.expect("a free port and a route");
    world.settle();
    (client, listener.accept().expect("the handshake is complete"))
}

fn listen(stack: &Stack<Real>, address: Ipv4Addr) -> Arc<ListenerShared<Real>> {
    stack.listen(SocketAddr::new(address.into(), PORT), 1024, Default::default()).expect("a free port")
}

fn send(stack: &Stack<Real>, socket: &Socket, len: usize) {
    let mut buffer = PktBuf::alloc(len).expect("a buffer");
    buffer.append(len).fill(7);
    let mut chunks = tcp::Chunks::new();
    chunks.push(Chunk::Pooled(buffer));
    let reply = stack.call(&socket.target(), Call::Send(tcp::Send { chunks }));
    assert!(matches!(reply, Reply::Sent(Ok(sent)) if sent.rest.is_empty()));
}

fn receive(stack: &Stack<Real>, socket: &Socket) -> usize {
    match stack.call(&socket.target(), Call::Receive(tcp::Receive { max: usize::MAX })) {
        Reply::Received(Ok(received)) => received.data.iter().map(|buffer| buffer.len()).sum(),
        _ => 0,
    }
}

#[every_arch]
fn an_interface_without_ports_has_an_address_that_is_reached_by_others(arch: Architecture) {
    let mut world = world(arch, (1, 1, 1), vec![over(&[0], SERVER), over(&[], INNER)]);
    let route = format!("{INNER}/32 via {SERVER}").parse().expect("a route");
    world.a.state_route(&route, 0);
    let listener = listen(&world.b, INNER);
    let (client, server) = open(&mut world, &listener, INNER);
    send(&world.a, &client, 3000);
    world.settle();
    assert_eq!(receive(&world.b, &server), 3000);
    // Packets routed there are dropped and counted.
    let lost = Ipv4Addr::new(192, 168, 9, 77);
    world.b.connect(None, SocketAddr::new(lost.into(), 9), &Default::default()).expect("a route");
    world.pass(Duration::from_secs(2));
    assert!(world.b.stats().counters.dropped(DropReason::InterfaceDown) > 0);
}

#[every_arch]
fn a_stack_without_any_device_keeps_time(arch: Architecture) {
    let clock = VirtualClock::new(Time::from_secs(1));
    let built = Stack::build_over_ports(config(arch, &clock, 1, 1), vec![], vec![over(&[], INNER)]);
    let (stack, mut drivers) = built.expect("the stack builds");
    let lost = SocketAddr::new(IpAddr::from([192, 168, 9, 77]), 9);
    stack.connect(None, lost, &Default::default()).expect("a route");
    assert!(drivers.len() == 1 && !drivers[0].gone());
    for _ in 0..500 {
        clock.advance(Duration::from_millis(10));
        while drivers[0].poll() > 0 {}
    }
    assert!(stack.stats().counters.get(Counter::Retransmits) >= 1, "the SYN was repeated");
}

#[every_arch]
fn flows_are_spread_over_two_ports_and_go_on_by_the_one_that_is_left(arch: Architecture) {
    let mut world = over_faulty((arch, "unplug 3s"), (2, 1, 1), vec![over(&[0, 1], SERVER)]);
    let listener = listen(&world.b, SERVER);
    let pairs: Vec<_> = (0..16).map(|_| open(&mut world, &listener, SERVER)).collect();
    let port_of = |world: &World, socket: &Socket| world.a.shared().links().port_of(0, socket.target().hash);
    let by_first = pairs.iter().filter(|(client, _)| port_of(&world, client) == Some(0)).count();
    assert!((1..16).contains(&by_first), "{by_first} of 16 go by the first");
    let through = |world: &mut World| {
        pairs.iter().for_each(|(client, _)| send(&world.a, client, 2000));
        world.pass(Duration::from_secs(4));
        pairs.iter().all(|(_, server)| receive(&world.b, server) == 2000)
    };
    assert!(through(&mut world), "all arrives by both links");
    let down = [0, 1].map(|port| world.a.shared().links().ports()[port].is_down());
    assert_eq!(down, [true, false], "the first link was pulled out");
    assert!(pairs.iter().all(|(client, _)| port_of(&world, client) == Some(1)));
    assert!(through(&mut world), "all arrives by the link that is left");
    assert_eq!(world.b.stats().counters.get(Counter::ResetsOut), 0);
}

#[test]
fn a_port_belongs_to_one_interface() {
    let clock = VirtualClock::new(Time::from_secs(1));
    let build = |interfaces| {
        let (device, _far) = mem::pair::<Real>(mem::MemConfig::default());
        Stack::build_over_ports(config(Architecture::named("giant"), &clock, 1, 1), vec![Box::new(device)], interfaces)
            .err()
    };
    let twice = build(vec![over(&[0], CLIENT), over(&[0], INNER)]);
    assert!(matches!(twice, Some(StackError::Port(0))));
    assert!(matches!(build(vec![over(&[1], CLIENT)]), Some(StackError::Port(1))));
    assert!(build(vec![]).is_none(), "a stack without interfaces reaches itself");
    assert!(build(vec![over(&[], CLIENT)]).is_none(), "a device without an interface is no error");
}

/// The number of queues, cells and owners; more than a word has bits.
const MANY: usize = 70;

/// 70 queue pairs and 70 cells: each connection's frames are polled by the driver of its own queue, and its segments
/// run in its own cell. A lost or misdirected notification would leave frames or messages unprocessed.
#[every_arch]
fn seventy_queues_and_cells_serve_their_own_flows(arch: Architecture) {
    let mut world = world(arch, (1, MANY, MANY), vec![over(&[0], SERVER)]);
    assert_eq!(world.drivers_of_b().len(), MANY);
    let listener = listen(&world.b, SERVER);
    let pairs: Vec<_> = (0..200).map(|_| open(&mut world, &listener, SERVER)).collect();
    let beyond = pairs.iter().filter(|(client, _)| client.target().index(MANY) >= 64).count();
    assert!(beyond > 0, "some flow has a queue beyond a word");
    for (client, _) in &pairs {
        send(&world.a, client, 5000);
    }
    world.pass(Duration::from_millis(500));
    assert!(pairs.iter().all(|(_, server)| receive(&world.b, server) == 5000));
    assert!(world.a.is_quiescent() && world.b.is_quiescent());
    assert_eq!(world.a.stats().counters.get(Counter::Retransmits), 0, "nothing was left lying");
}

#[test]
fn the_usual_interface_has_the_port_of_its_number() {
    let clock = VirtualClock::new(Time::from_secs(1));
    let interface = |address: Ipv4Addr| {
        let (device, _far) = mem::pair::<Real>(mem::MemConfig::default());
        let addresses = vec![(address.into(), 24)];
        InterfaceConfig { device: Box::new(device), addresses, gateways: vec![], addressing: Addressing::default() }
    };
    let interfaces = vec![interface(CLIENT), interface(INNER)];
    let (stack, _) = Stack::build(config(Architecture::named("giant"), &clock, 1, 1), interfaces).expect("it builds");
    let ports = |interface: usize| stack.shared().links().interfaces()[interface].ports().to_vec();
    assert_eq!([ports(0), ports(1)], [[0], [1]]);
    assert_eq!([0, 1].map(|port| stack.shared().links().interface_of(port)), [Some(0), Some(1)]);
}
