//! Loopback: a stack communicates with itself over its own addresses and over loopback addresses, under every
//! architecture, as Linux does over `lo`; and none of these packets appear on a link (RFC 1122 section 3.2.1.3 g, RFC
//! 4291 section 2.5.3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dev::{Device, mem};
use every_arch::every_arch;
use observe::{Counter, DropReason};
use pktbuf::{Chunk, PktBuf};
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, Readiness, TcpSocket};
use stack::stack::ConnectRefused;
use stack::{Addressing, Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig, VirtualClock};
use sync::Real;
use testbed::frames::{Datagram, Ends, Frame, PEER, PEER6, Payload, STACK, STACK_MAC, Segment, is_arp};
use testbed::node::{Node, NodeConfig, START, received, send};
use wire::arp::{self, Operation};
use wire::ethernet::MacAddr;

const PORT: u16 = 80;
/// The stack's address over IPv6.
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The addresses at which a stack reaches itself, with its source address: as in Linux the same, but 127.0.0.1 for
/// other addresses of that network.
fn own() -> [(IpAddr, IpAddr); 6] {
    let same = |address: IpAddr| (address, address);
    let link_local = ip::interface::link_local_from(STACK_MAC);
    let (home, home6) = (ip("127.0.0.1"), ip("::1"));
    [same(STACK.into()), same(OWN6.into()), same(link_local.into()), same(home), (ip("127.9.8.7"), home), same(home6)]
}

fn node(arch: Architecture) -> Node<Real> {
    Node::new(NodeConfig::new(arch))
}

/// Runs everything that is due now; checks that nothing leaves.
fn settle(node: &mut Node<Real>) {
    assert_eq!(node.settle(), Vec::<Vec<u8>>::new(), "nothing leaves");
}

/// Lets `span` pass in small steps; checks that nothing leaves.
fn pass(node: &mut Node<Real>, span: Duration) {
    let end = node.clock.now() + span;
    while node.clock.now() < end {
        settle(node);
        node.clock.advance(Duration::from_millis(1));
    }
    settle(node);
}

/// Both ends of a connection of the stack with itself.
struct Pair {
    client: Arc<TcpSocket<Real>>,
    server: Arc<TcpSocket<Real>>,
}

fn connect(node: &Node<Real>, to: IpAddr) -> Arc<TcpSocket<Real>> {
    node.stack.connect(None, SocketAddr::new(to, PORT), &Default::default()).expect("a way to itself")
}

fn open(node: &mut Node<Real>, listener: &ListenerShared<Real>, to: IpAddr) -> Pair {
    let client = connect(node, to);
    settle(node);
    Pair { client, server: listener.accept().expect("the handshake is complete") }
}

fn take(node: &Node<Real>, socket: &TcpSocket<Real>) -> Option<(Vec<u8>, bool)> {
    received(node.call(socket, Call::Receive(tcp::Receive { max: usize::MAX })))
}

fn shut(node: &Node<Real>, socket: &TcpSocket<Real>) {
    assert!(matches!(node.call(socket, Call::Shutdown(tcp::Shutdown::Write)), Reply::ShutDown(Ok(_))));
}

fn counted(node: &Node<Real>, counter: Counter) -> u64 {
    node.stack.stats().counters.get(counter) + node.driver.counters().get(counter)
}

/// Everything that was dropped, for any reason.
fn drops(node: &Node<Real>) -> u64 {
    let (stack, driver) = (node.stack.stats().counters, node.driver.counters());
    DropReason::ALL.iter().map(|reason| stack.dropped(*reason) + driver.dropped(*reason)).sum()
}

#[every_arch]
fn a_stack_connects_to_each_of_its_addresses_and_to_loopback(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 8);
    for (to, from) in own() {
        let Pair { client, server } = open(&mut node, &listener, to);
        let tuple = client.flow().tuple;
        assert_eq!((tuple.local_addr, tuple.remote_addr), (from, to));
        assert_eq!(server.flow().tuple, tuple.reversed());
        for (writer, reader) in [(&client, &server), (&server, &client)] {
            assert!(matches!(node.call(writer, send(b"to myself")), Reply::Sent(Ok(_))));
            settle(&mut node);
            assert_eq!(take(&node, reader), Some((b"to myself".to_vec(), false)), "{to}");
        }
        shut(&node, &client);
        settle(&mut node);
        assert_eq!(take(&node, &server), Some((vec![], true)), "{to}: the end of the stream");
        shut(&node, &server);
        settle(&mut node);
    }
    assert_eq!((counted(&node, Counter::Retransmits), drops(&node)), (0, 0));
}

/// Without a listener the segment is answered by a reset, which arrives like any other.
#[every_arch]
fn a_connection_to_a_port_of_ones_own_without_a_listener_is_refused(arch: Architecture) {
    let mut node = node(arch);
    for (to, _) in own() {
        let client = connect(&node, to);
        settle(&mut node);
        let error = node.call(&client, Call::TakeError(tcp::TakeError));
        assert!(matches!(error, Reply::Failure(Some(tcp::Error::Refused))), "{to}");
    }
}

/// The ephemeral port is never the destination port: the connection would open with itself without a listener.
#[every_arch]
fn a_connection_never_gets_its_own_port_by_chance_and_opens_with_itself_if_asked_to(arch: Architecture) {
    let mut node = node(arch);
    let to = SocketAddr::new(ip("127.0.0.1"), 49_152);
    let mut ports = std::collections::HashSet::new();
    for _ in 0..16_383 {
        let client = node.stack.connect(None, to, &Default::default()).expect("a free port");
        assert!(ports.insert(client.flow().tuple.local_port));
        node.call(&client, Call::Abort(tcp::Abort));
        settle(&mut node);
    }
    assert!(!ports.contains(&to.port()));
    // RFC 9293 section 3.5, simultaneous initiation, with one party.
    let alone = node.stack.connect(Some(to), to, &Default::default()).expect("the port is free");
    settle(&mut node);
    assert!(matches!(node.call(&alone, send(b"echo")), Reply::Sent(Ok(_))));
    settle(&mut node);
    assert_eq!(take(&node, &alone), Some((b"echo".to_vec(), false)));
    shut(&node, &alone);
    pass(&mut node, Duration::from_millis(50));
    assert_eq!(take(&node, &alone), Some((vec![], true)));
}

#[every_arch]
fn datagrams_reach_sockets_of_the_same_stack_whatever_their_length(arch: Architecture) {
    let mut node = node(arch);
    for (to, from) in own() {
        let server = node.stack.bind_udp(SocketAddr::new(to, 7)).expect("a free port");
        let client = node.stack.bind_udp(SocketAddr::new(unspecified(to), 0)).expect("a free port");
        for len in [0, 1, 1400, 9000, 65_507] {
            let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let sent =
                node.stack.send_udp(&client, PktBuf::from_slice(&payload).expect("a buffer"), Some(server.local()));
            assert_eq!(sent, Ok(len));
            settle(&mut node);
            let datagram = node.stack.receive_udp(&server).expect("it has arrived");
            assert_eq!((&*datagram.buf, datagram.source.ip(), datagram.destination.ip()), (&payload[..], from, to));
            let answer =
                node.stack.send_udp(&server, PktBuf::from_slice(b"yes").expect("a buffer"), Some(datagram.source));
            assert_eq!(answer, Ok(3));
            settle(&mut node);
            assert_eq!(&*node.stack.receive_udp(&client).expect("the answer").buf, b"yes");
        }
        node.stack.unbind_udp(&server);
        // Port unreachable: a connected socket gets the error.
        node.stack.connect_udp(&client, server.local()).expect("a way to itself");
        assert_eq!(node.stack.udp_local(&client).ip(), from, "getsockname");
        let sent = node.stack.send_udp(&client, PktBuf::from_slice(b"?").expect("a buffer"), None);
        assert_eq!(sent, Ok(1));
        settle(&mut node);
        assert_eq!(node.stack.take_udp_error(&client), Some(udp::SendError::Refused), "{to}");
    }
}

fn unspecified(address: IpAddr) -> IpAddr {
    if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// RFC 1122 section 3.2.1.3 g and RFC 4291 section 2.5.3: addresses of the host itself do not appear on a link. A frame
/// with one is dropped and counted, even if a listener and a socket accept every address.
#[every_arch]
fn what_comes_by_a_link_with_a_loopback_address_is_dropped_and_counted(arch: Architecture) {
    let mut node = Node::<Real>::with_known_peer(NodeConfig::new(arch));
    let listener = node.listen(PORT, 8);
    let socket = node.stack.bind_udp(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 7)).expect("a free port");
    let (v4, v6) = (Ends::PEER_TO_STACK, Ends::PEER_TO_STACK_V6.to(OWN6));
    let cases = [
        (v4.from(Ipv4Addr::LOCALHOST), DropReason::IpMartianSource),
        (v4.from(Ipv4Addr::new(127, 255, 0, 9)), DropReason::IpMartianSource),
        (v4.from(STACK), DropReason::IpMartianSource),
        (v4.to(Ipv4Addr::LOCALHOST), DropReason::IpMartianDestination),
        (v4.to(Ipv4Addr::new(127, 4, 4, 4)), DropReason::IpMartianDestination),
        (v4.from(Ipv4Addr::LOCALHOST).to(Ipv4Addr::LOCALHOST), DropReason::IpMartianDestination),
        (v6.from(Ipv6Addr::LOCALHOST), DropReason::IpMartianSource),
        (v6.from(OWN6), DropReason::IpMartianSource),
        (v6.to(Ipv6Addr::LOCALHOST), DropReason::IpMartianDestination),
    ];
    for (ends, reason) in cases {
        let ends = Ends { dst_mac: STACK_MAC, ..ends };
        let payloads = [Payload::from(Segment::syn(5000, PORT)), Datagram::new(5000, 7, b"from elsewhere").into()];
        for payload in payloads {
            let before = node.driver.counters().dropped(reason);
            assert!(node.exchange(&ends.bytes(payload)).is_empty(), "{} to {}", ends.src, ends.dst);
            assert_eq!(node.driver.counters().dropped(reason), before + 1, "{} to {}", ends.src, ends.dst);
        }
    }
    assert!(listener.accept().is_none() && node.stack.receive_udp(&socket).is_err());
    assert_eq!(node.stack.stats().connections, 0);
}

/// No packet with a loopback source goes to another host, whatever the routes are: Linux returns EINVAL.
#[every_arch]
fn nothing_leaves_with_a_loopback_address(arch: Architecture) {
    let gateways = vec![PEER.into(), PEER6.into()];
    let mut node = Node::<Real>::with_known_peer(NodeConfig { gateways, ..NodeConfig::new(arch) });
    for routes in ["127.0.0.0/8 via 10.0.0.2", "127.0.0.1/32 via 10.0.0.2", "10.0.0.1/32 via 10.0.0.2"] {
        node.stack.state_route(&routes.parse().expect("a route"), 0);
    }
    let listener = node.listen(PORT, 8);
    for to in ["127.0.0.1", "127.5.6.7", "10.0.0.1", "::1"].map(ip) {
        open(&mut node, &listener, to);
    }
    let cases = [("127.0.0.1", PEER.into()), ("127.3.2.1", ip("192.0.2.1")), ("::1", PEER6.into())];
    for (local, remote) in cases {
        let (local, remote) = (SocketAddr::new(ip(local), 9000), SocketAddr::new(remote, 9));
        let refused = node.stack.connect(Some(local), remote, &Default::default()).err();
        assert_eq!(refused, Some(ConnectRefused::LoopbackSource), "{local} to {remote}");
        let socket = node.stack.bind_udp(local).expect("a free port");
        let group = SocketAddr::new(if remote.is_ipv4() { ip("224.0.0.9") } else { ip("ff02::9") }, 9);
        for to in [remote, group] {
            let sent = node.stack.send_udp(&socket, PktBuf::from_slice(b"out").expect("a buffer"), Some(to));
            assert_eq!(sent, Err(udp::SendError::LoopbackSource), "{local} to {to}");
        }
        assert_eq!(node.stack.connect_udp(&socket, remote), Err(udp::SendError::LoopbackSource));
        settle(&mut node);
    }
}

/// More data than all windows and rings hold, both ways at once.
#[every_arch]
fn bulk_goes_both_ways_through_small_windows_and_rings_without_loss(arch: Architecture) {
    const BYTES: usize = 8 << 20;
    let mut node = node(arch);
    let listener = node.listen(PORT, 8);
    for to in [STACK.into(), ip("::1")] {
        let Pair { client, server } = open(&mut node, &listener, to);
        let (mut sent, mut got) = ([0; 2], [0; 2]);
        while got != [BYTES; 2] {
            for (way, (writer, reader)) in [(&client, &server), (&server, &client)].into_iter().enumerate() {
                sent[way] += write(&node, writer, (BYTES - sent[way]).min(256 << 10));
                settle(&mut node);
                let data = take(&node, reader).map(|(data, _)| data).unwrap_or_default();
                let expected = |at: usize| ((got[way] + at) / 251) as u8;
                assert!(data.iter().enumerate().all(|(at, byte)| *byte == expected(at)), "byte for byte");
                got[way] += data.len();
            }
            node.clock.advance(Duration::from_micros(50));
        }
    }
    assert_eq!((counted(&node, Counter::Retransmits), drops(&node)), (0, 0));
    assert!(
        node.clock.now() - START < Duration::from_secs(1),
        "nothing had to wait for a timer: {:?}",
        node.clock.now()
    );
}

thread_local! {
    /// Bytes written by connection of this test.
    static WRITTEN: std::cell::RefCell<std::collections::HashMap<wire::FourTuple, usize>> = Default::default();
}

/// Writes as many as possible of `len` bytes that continue the stream's pattern.
fn write(node: &Node<Real>, socket: &TcpSocket<Real>, len: usize) -> usize {
    let tuple = socket.flow().tuple;
    let at = WRITTEN.with_borrow(|written| written.get(&tuple).copied().unwrap_or(0));
    let data: Vec<u8> = (at..at + len).map(|at| (at / 251) as u8).collect();
    let chunks = tcp::Chunks::from_iter([Chunk::shared(data.into())]);
    let taken = match node.call(socket, Call::Send(tcp::Send { chunks })) {
        Reply::Sent(Ok(sent)) => len - sent.rest.iter().map(Chunk::len).sum::<usize>(),
        _ => 0,
    };
    WRITTEN.with_borrow_mut(|written| *written.entry(tuple).or_default() += taken);
    taken
}

#[every_arch]
fn many_connections_at_once_and_a_backlog_that_is_full(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 4);
    let clients: Vec<_> = (0..200).map(|_| connect(&node, ip("127.0.0.1"))).collect();
    let mut servers = Vec::new();
    let end = node.clock.now() + Duration::from_secs(120);
    while servers.len() < clients.len() && node.clock.now() < end {
        settle(&mut node);
        servers.extend(std::iter::from_fn(|| listener.accept()));
        node.clock.advance(Duration::from_millis(20));
    }
    assert_eq!(servers.len(), clients.len(), "a client that found the backlog full has tried again");
    for (server, number) in servers.iter().zip(0u32..) {
        node.call(server, send(&number.to_be_bytes()));
    }
    pass(&mut node, Duration::from_millis(10));
    let mut heard: Vec<_> = clients.iter().filter_map(|client| take(&node, client)).map(|(data, _)| data).collect();
    heard.sort();
    assert_eq!(heard, (0..200u32).map(|number| number.to_be_bytes().to_vec()).collect::<Vec<_>>());
}

/// RFC 9293 section 3.6, case 3: both ends close before either receives the other's FIN, and both go through TIME-WAIT.
#[every_arch]
fn both_ends_close_at_once(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 8);
    let Pair { client, server } = open(&mut node, &listener, OWN6.into());
    for end in [&client, &server] {
        assert!(matches!(node.call(end, Call::Close(tcp::Close)), Reply::Done));
    }
    settle(&mut node);
    assert_eq!(node.stack.stats().time_wait, 2);
    pass(&mut node, Duration::from_secs(61));
    let stats = node.stack.stats();
    assert_eq!((stats.connections, stats.time_wait), (0, 0));
}

/// The address goes, and with it both ends of a connection to itself. Further segments of the other end have a loopback
/// source, and do not leave by the default route, which leads to the address now.
#[every_arch]
fn connections_with_an_address_that_is_given_up_end_and_nothing_of_them_leaves(arch: Architecture) {
    let addressing = Addressing { checked: true, ..Addressing::default() };
    let (addresses, gateways) = (vec![(STACK.into(), 24), (ip("10.0.0.9"), 24)], vec![PEER.into()]);
    let mut node =
        Node::<Real>::with_known_peer(NodeConfig { addresses, gateways, addressing, ..NodeConfig::new(arch) });
    node.pass(Duration::from_secs(9), Duration::from_millis(50));
    let listener = node.listen(PORT, 8);
    let both = open(&mut node, &listener, STACK.into());
    let home = SocketAddr::new(ip("127.0.0.1"), 0);
    let half = node.stack.connect(Some(home), SocketAddr::new(STACK.into(), PORT), &Default::default());
    let half = half.expect("from one address of its own to another");
    settle(&mut node);
    for _ in 0..2 {
        let sha = MacAddr([2, 0, 0, 0, 0, 0x77]);
        let claim = arp::Packet { op: Operation::Reply, sha, spa: STACK, tha: STACK_MAC, tpa: STACK };
        node.put(&Frame::new(sha, MacAddr::BROADCAST, claim).bytes());
        node.settle();
    }
    for end in [&both.client, &both.server] {
        assert!(end.ready.get().contains(Readiness::ERROR | Readiness::CLOSED));
    }
    assert!(matches!(node.call(&half, send(b"is anybody there")), Reply::Sent(Ok(_))));
    let sent = node.pass(Duration::from_secs(5), Duration::from_millis(50));
    assert!(sent.iter().all(|frame| is_arp(frame) && !asks_for(frame, STACK)), "{sent:?}");
    assert!(node.stack.shared().routes().lookup(node.stack.shared().links(), STACK.into()).is_some());
    assert!(counted(&node, Counter::Retransmits) > 0, "it has tried");
    assert!(node.stack.stats().counters.dropped(DropReason::NoRoute) > 0);
}

fn asks_for(frame: &[u8], address: Ipv4Addr) -> bool {
    let packet = wire::ethernet::parse(frame).ok().and_then(|(_, at)| arp::parse(&frame[at..]).ok());
    packet.is_some_and(|packet| packet.op == Operation::Request && packet.tpa == address)
}

/// More than a batch at once, and nothing that comes behind: all of it is taken. And the poll that ran a timer
/// announces the segments that the timer sent.
#[every_arch]
fn a_poll_says_whether_something_is_left(arch: Architecture) {
    let mut node = node(arch);
    let socket = node.stack.bind_udp(SocketAddr::new(ip("127.0.0.1"), 7)).expect("a free port");
    for number in 0..200u8 {
        let payload = PktBuf::from_slice(&[number]).expect("a buffer");
        assert_eq!(node.stack.send_udp(&socket, payload, Some(socket.local())), Ok(1));
    }
    settle(&mut node);
    for number in 0..200u8 {
        assert_eq!(&*node.stack.receive_udp(&socket).expect("it has arrived").buf, &[number]);
    }
    let listener = node.listen(PORT, 8);
    let Pair { client, server } = open(&mut node, &listener, ip("::1"));
    let mut delayed = 0;
    for _ in 0..40 {
        assert!(matches!(node.call(&client, send(b"!")), Reply::Sent(Ok(_))));
        settle(&mut node);
        assert_eq!(take(&node, &server), Some((b"!".to_vec(), false)));
        settle(&mut node);
        node.clock.advance(Duration::from_millis(199));
        let before = counted(&node, Counter::FramesIn);
        let polled = node.driver.poll();
        assert_eq!(counted(&node, Counter::FramesIn), before, "nothing had been sent");
        settle(&mut node);
        let came = counted(&node, Counter::FramesIn) - before;
        assert_eq!(polled > 0, came > 0, "a poll after which something waits says so");
        delayed += came;
    }
    assert!(delayed > 0, "no acknowledgement was delayed");
}

/// Without an interface, with a driver for timers and callers.
#[every_arch]
fn a_stack_without_interfaces_reaches_itself(arch: Architecture) {
    let clock = VirtualClock::<Real>::new(START);
    let mut config = StackConfig::new(arch);
    (config.clock, config.own_threads, config.cpus) = (Clock::Virtual(clock), false, 2);
    let (stack, mut drivers) = Stack::build(config, vec![]).expect("it builds");
    assert_eq!((drivers.len(), drivers[0].gone(), stack.shared().links().attached().len()), (1, false, 0));
    let listener = stack.listen(SocketAddr::new(ip("::"), PORT), 8, Default::default()).expect("a free port");
    for to in ["127.0.0.1", "::1"].map(ip) {
        stack.connect(None, SocketAddr::new(to, PORT), &Default::default()).expect("a way to itself");
        assert_eq!(drivers[0].next_deadline(), START, "there is something to take at once");
        while drivers[0].poll() > 0 {}
        assert!(listener.accept().is_some(), "{to}");
    }
    let elsewhere = stack.connect(None, "10.0.0.1:80".parse().expect("an address"), &Default::default());
    assert_eq!(elsewhere.err(), Some(ConnectRefused::NoRoute));
}

/// With several queues each end of a connection is served by the driver to which its own hash leads, as if a network
/// interface had brought its segments; drivers that are not polled do not block other flows.
#[every_arch]
fn each_end_is_served_by_the_driver_of_its_flow(arch: Architecture) {
    const QUEUES: usize = 4;
    for rss_key in [wire::rss::SYMMETRIC_KEY, wire::rss::MICROSOFT_KEY] {
        let link = mem::MemConfig { queues: QUEUES, rss_key, ..Default::default() };
        let (device, _far) = mem::pair::<Real>(link);
        let mut config = StackConfig::new(arch);
        (config.clock, config.own_threads, config.cpus) = (Clock::Virtual(VirtualClock::new(START)), false, QUEUES);
        let (device, addresses) = (Box::new(device) as Box<dyn Device>, vec![(STACK.into(), 24)]);
        let interface = InterfaceConfig { device, addresses, gateways: vec![], addressing: Addressing::default() };
        let (stack, mut drivers) = Stack::build(config, vec![interface]).expect("it builds");
        let listener = stack.listen(SocketAddr::new(STACK.into(), PORT), 64, Default::default()).expect("a free port");
        let mut used = [0; QUEUES];
        for _ in 0..40 {
            let client = stack.connect(None, listener.local(), &Default::default()).expect("a way to itself");
            let there = client.flow();
            let from = SocketAddr::new(there.tuple.local_addr, there.tuple.local_port);
            let back = stack.flow(listener.local(), from);
            // SYN, SYN-ACK, ACK, each for the other end.
            for flow in [back, there, back] {
                let driver = stack.driver_of(&flow).expect("it has one");
                let others = (0..QUEUES).filter(|other| *other != driver);
                assert_eq!(others.map(|other| take_frames(&mut drivers[other])).sum::<u64>(), 0);
                assert_eq!(take_frames(&mut drivers[driver]), 1);
                used[driver] += 1;
            }
            assert!(listener.accept().is_some());
        }
        assert!(used.iter().all(|used| *used > 0), "{used:?}");
    }
}

/// Polls once; returns the number of frames taken.
fn take_frames(driver: &mut Driver<Real>) -> u64 {
    let before = driver.counters().get(Counter::FramesIn);
    driver.poll();
    driver.counters().get(Counter::FramesIn) - before
}

/// A stack that ends with open connections to itself frees everything; their handles are then useless.
#[every_arch]
fn a_stack_ends_while_it_talks_to_itself(arch: Architecture) {
    let mut node = node(arch);
    let listener = node.listen(PORT, 8);
    let pairs: Vec<Pair> = (0..20).map(|_| open(&mut node, &listener, ip("127.0.0.1"))).collect();
    for Pair { client, .. } in &pairs {
        write(&node, client, 20_000);
    }
    let shared = Arc::downgrade(node.stack.shared());
    drop(node);
    drop(pairs);
    drop(listener);
    assert!(shared.upgrade().is_none(), "nothing holds the stack");
}

/// `tcp_tw_reuse` is 2 unless it is set, as on Linux: between loopback addresses an active open takes over a tuple in
/// TIME-WAIT, between others it does not.
#[every_arch]
fn a_tuple_in_time_wait_is_taken_over_between_loopback_addresses_only(arch: Architecture) {
    for (address, taken) in [(ip("127.0.0.1"), true), (ip("::1"), true), (STACK.into(), false), (OWN6.into(), false)] {
        let mut node = node(arch);
        let listener = node.listen(PORT, 8);
        let (from, to) = (SocketAddr::new(address, 7000), SocketAddr::new(address, PORT));
        let client = node.stack.connect(Some(from), to, &Default::default()).expect("a way to itself");
        settle(&mut node);
        let server = listener.accept().expect("the handshake is complete");
        for end in [client, server] {
            assert!(matches!(node.call(&end, Call::Close(tcp::Close)), Reply::Done));
            settle(&mut node);
        }
        assert_eq!(node.stack.stats().time_wait, 1);
        pass(&mut node, Duration::from_millis(2500));
        let again = node.stack.connect(Some(from), to, &Default::default());
        assert_eq!(again.err(), if taken { None } else { Some(ConnectRefused::AddressInUse) }, "{address}");
    }
}
