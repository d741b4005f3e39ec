//! A stack at rest is switched to another architecture (invariant G9): no byte is lost or altered, and it sends the
//! same frames afterwards as without the switch.
//!
//! A scene is recorded once, under the reference architecture and without a switch: connections in many states, and
//! their further course. It is replayed into a stack for every ordered pair of architectures, with the switch in the
//! middle. (`differential.rs` covers all pairs in one run, with random traffic.)

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock, mpsc};
use std::time::Duration;

use dev::Device;
use dev::mem::{self, MemConfig};
use every_arch::every_arch;
use observe::CounterSnapshot;
use pktbuf::PktBuf;
use stack::call::{Call, Reply};
use stack::socket::{Readiness, UdpShared};
use stack::stack::SwitchRefused;
use stack::{Addressing, Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig, StackStats, VirtualClock};
use sync::slab::Key;
use sync::{LockKind, Real};
use testbed::frames::{self, Datagram, Ends, ISS, Icmp, Segment, tcp_of};
use testbed::limit::HANG;
use testbed::node::{Node, NodeConfig, START, received, send};
use testbed::panicking::{self, PanickingDevice};
use testbed::subject::{Outcome, Step, Subject, differ};
use wire::tcp::TcpFlags;

const PORT: u16 = 80;
const SEED: u64 = 5;

/// The peer's end of one connection.
#[derive(Clone, Copy, Default)]
struct Peer {
    port: u16,
    /// Sequence numbers that it has sent, from its SYN on.
    sent: u32,
    /// The next sequence number that it expects.
    expects: u32,
}

/// The scene, while it is recorded.
struct Stage {
    subject: Subject,
    steps: Vec<(Step, Outcome)>,
}

impl Stage {
    fn happen(&mut self, step: Step) -> Outcome {
        let outcome = self.subject.step(&step);
        self.steps.push((step, outcome.clone()));
        outcome
    }

    /// Delivers a segment of the peer, and processes the answers.
    fn segment(&mut self, peer: &mut Peer, flags: TcpFlags, data: &[u8]) {
        let ends = ((peer.port, PORT), ISS.wrapping_add(peer.sent), peer.expects);
        let segment = Segment { data, ..Segment::ack(ends.0, ends.1, ends.2) }.and(flags);
        peer.sent += data.len() as u32 + u32::from(flags.contains(TcpFlags::FIN));
        let outcome = self.happen(Step::Frame(segment.frame()));
        Self::hear(peer, &outcome);
    }

    /// The peer accepts the data sent to it, in order.
    fn hear(peer: &mut Peer, outcome: &Outcome) {
        for (header, data) in outcome.frames.iter().filter_map(|frame| tcp_of(frame)) {
            if header.dst_port == peer.port {
                let ends = header.flags.contains(TcpFlags::SYN) || header.flags.contains(TcpFlags::FIN);
                peer.expects = header.seq.0.wrapping_add(data.len() as u32 + u32::from(ends));
            }
        }
    }

    fn syn(&mut self, port: u16) -> Peer {
        let mut peer = Peer { port, sent: 1, expects: 0 };
        let outcome = self.happen(Step::Frame(Segment::syn(port, PORT).frame()));
        Self::hear(&mut peer, &outcome);
        peer
    }

    fn open(&mut self, port: u16) -> Peer {
        let mut peer = self.syn(port);
        self.segment(&mut peer, TcpFlags::NONE, b"");
        peer
    }

    /// The next child, by number.
    fn accept(&mut self) -> usize {
        self.happen(Step::Accept(0));
        self.subject.sockets.len() - 1
    }

    /// An action of the user on the connection of `peer`.
    fn user(&mut self, peer: &mut Peer, step: Step) {
        let outcome = self.happen(step);
        Self::hear(peer, &outcome);
    }

    fn pass(&mut self, span: Duration) {
        self.happen(Step::Pass(span));
    }
}

/// The recorded data.
struct Scene {
    before: Vec<(Step, Outcome)>,
    /// At the switch.
    then: StackStats,
    deferred: Vec<(Step, Outcome)>,
    counters: CounterSnapshot,
    connections: usize,
}

static SCENE: LazyLock<Scene> = LazyLock::new(record);

fn record() -> Scene {
    let none = TcpFlags::NONE;
    let mut stage = Stage { subject: Subject::new(Architecture::reference(), SEED), steps: Vec::new() };
    stage.happen(Step::Frame(frames::arp_request()));
    stage.happen(Step::Listen { port: PORT, backlog: 8 });
    stage.happen(Step::Bind(5000));
    // ESTABLISHED, with unread data and unacknowledged data.
    let mut busy = stage.open(2000);
    let busy_socket = stage.accept();
    stage.segment(&mut busy, TcpFlags::PSH, b"first, unread. ");
    stage.user(&mut busy, Step::Send { socket: busy_socket, len: 3000 });
    // ESTABLISHED, with a hole in the received data.
    let mut holed = stage.open(2001);
    let holed_socket = stage.accept();
    let missing = holed;
    holed.sent += 10;
    stage.segment(&mut holed, TcpFlags::PSH, b"behind the hole");
    // FIN-WAIT-1, FIN-WAIT-2, TIME-WAIT, CLOSE-WAIT, LAST-ACK.
    let mut fin_wait_1 = stage.open(2002);
    let socket = stage.accept();
    stage.happen(Step::Shutdown(socket));
    let mut fin_wait_2 = stage.open(2003);
    let half_closed = stage.accept();
    stage.user(&mut fin_wait_2, Step::Shutdown(half_closed));
    stage.segment(&mut fin_wait_2, none, b"");
    let mut time_wait = stage.open(2004);
    let socket = stage.accept();
    stage.user(&mut time_wait, Step::Close(socket));
    stage.segment(&mut time_wait, TcpFlags::FIN, b"");
    let mut close_wait = stage.open(2005);
    let left_open = stage.accept();
    stage.segment(&mut close_wait, TcpFlags::FIN, b"the last words");
    let mut last_ack = stage.open(2006);
    let socket = stage.accept();
    stage.segment(&mut last_ack, TcpFlags::FIN, b"");
    stage.user(&mut last_ack, Step::Close(socket));
    // SYN-SENT.
    stage.happen(Step::Connect { v6: false, port: 9 });
    // In the accept queue, with data; and two incomplete handshakes, the second with a retransmitted SYN-ACK.
    let mut queued = stage.open(2007);
    stage.segment(&mut queued, TcpFlags::PSH, b"waits to be accepted");
    let mut half_open = stage.syn(2008);
    stage.pass(Duration::from_millis(40));
    let mut later = stage.syn(2009);
    stage.pass(Duration::from_millis(35));
    let (before, then) = (std::mem::take(&mut stage.steps), stage.subject.node.stack.stats());

    stage.segment(&mut half_open, TcpFlags::PSH, b"the handshake is complete");
    stage.happen(Step::Receive { socket: busy_socket, max: 5 });
    stage.segment(&mut busy, none, b"");
    stage.user(&mut busy, Step::Send { socket: busy_socket, len: 2000 });
    stage.happen(Step::Receive { socket: busy_socket, max: 1000 });
    let mut filling = missing;
    stage.segment(&mut filling, TcpFlags::PSH, b"0123456789");
    stage.happen(Step::Receive { socket: holed_socket, max: 1000 });
    let first = stage.accept();
    stage.happen(Step::Receive { socket: first, max: 1000 });
    let second = stage.accept();
    stage.happen(Step::Receive { socket: second, max: 1000 });
    stage.happen(Step::Accept(0));
    // The peer does not acknowledge for a while, so that every timer fires.
    (0..40).for_each(|_| stage.pass(Duration::from_millis(50)));
    stage.segment(&mut later, none, b"");
    let third = stage.accept();
    stage.user(&mut later, Step::Send { socket: third, len: 10 });
    stage.segment(&mut fin_wait_1, TcpFlags::FIN, b"");
    stage.segment(&mut fin_wait_2, TcpFlags::FIN, b"and out");
    stage.happen(Step::Receive { socket: half_closed, max: 1000 });
    time_wait.sent -= 1;
    stage.segment(&mut time_wait, TcpFlags::FIN, b"");
    stage.happen(Step::Receive { socket: left_open, max: 1000 });
    stage.user(&mut close_wait, Step::Close(left_open));
    stage.segment(&mut close_wait, none, b"");
    stage.segment(&mut last_ack, none, b"");
    stage.happen(Step::Frame(frames::datagram(7, 5000, b"a datagram")));
    stage.happen(Step::SendDatagram { socket: 0, port: 7, len: 20 });
    let mut fresh = stage.open(2010);
    stage.segment(&mut fresh, TcpFlags::PSH, b"came afterwards");
    stage.happen(Step::Unlisten(0));
    stage.happen(Step::Frame(Segment::syn(2011, PORT).frame()));
    // TIME-WAIT ends, and unanswered connections are given up.
    (0..100).for_each(|_| stage.pass(Duration::from_secs(2)));
    let StackStats { counters, connections, .. } = stage.subject.node.stack.stats();
    Scene { before, then, deferred: stage.steps, counters, connections }
}

fn play(subject: &mut Subject, steps: &[(Step, Outcome)], what: &str) {
    for (number, (step, expected)) in steps.iter().enumerate() {
        let outcome = subject.step(step);
        if let Some(difference) = differ(step, &outcome, expected) {
            panic!("{what}, step {number} {difference}");
        }
    }
}

/// The connections that still exist have not moved in memory.
fn stay(before: &HashMap<Key, usize>, deferred: &HashMap<Key, usize>) -> usize {
    let both = before.iter().filter_map(|(key, place)| Some((place, deferred.get(key)?)));
    both.map(|(before, deferred)| assert_eq!(before, deferred, "a PCB has moved")).count()
}

/// One pair: the scene, with the switch in the middle.
fn switches(from: Architecture, to: Architecture) {
    let mut subject = Subject::new(from, SEED);
    play(&mut subject, &SCENE.before, &format!("{from}"));
    let stack = subject.node.stack.clone();
    let names: Vec<Key> = subject.sockets.iter().map(|socket| socket.target().key).collect();
    let places = stack.switch(to).unwrap_or_else(|refused| panic!("{from} to {to}: {refused}"));
    assert_eq!(stack.architecture(), to);
    assert!(subject.sockets.iter().map(|socket| socket.target().key).eq(names), "{from} to {to}: names of sockets");
    let stats = stack.stats();
    assert_eq!(stats.counters, SCENE.then.counters, "{from} to {to}: what was counted before the switch");
    assert_eq!(
        (stats.connections, stats.timers, stats.time_wait),
        (SCENE.then.connections, SCENE.then.timers, SCENE.then.time_wait),
        "{from} to {to}"
    );
    play(&mut subject, &SCENE.deferred[..20], &format!("{from} to {to}"));
    let again = stack.switch(from).unwrap_or_else(|refused| panic!("{to} back to {from}: {refused}"));
    assert!(stay(&places, &again) >= 6, "{from} to {to}: {places:?} {again:?}");
    play(&mut subject, &SCENE.deferred[20..], &format!("{from} to {to} and back"));
    let stats = stack.stats();
    assert_eq!(stats.counters, SCENE.counters, "{from} to {to}: what was counted in the end");
    assert_eq!(stats.connections, SCENE.connections, "{from} to {to}");
}

#[every_arch]
fn a_stack_goes_on_under_every_other_architecture(arch: Architecture) {
    Architecture::all().for_each(|to| switches(arch, to));
}

/// The scene has the intended states at the switch.
#[test]
fn the_scene_holds_what_it_promises() {
    let then = &SCENE.then;
    assert_eq!((then.connections, then.time_wait), (11, 1));
    assert!(then.timers >= 7, "{}", then.timers);
    use observe::Counter::*;
    for counter in [Retransmits, Timeouts, ConnectionsAccepted, ConnectionsClosed, ResetsOut, DatagramsIn] {
        assert!(SCENE.counters.get(counter) > then.counters.get(counter), "no {counter:?} after the switch");
    }
}

/// A datagram socket's port, and the port of a socket that is connected to the peer's port [`ECHO`].
const BOUND: u16 = 5000;
const CONNECTED: u16 = 5001;
const ECHO: u16 = 7;

/// A port unreachable of the peer for `sent`, a frame of the stack.
fn port_unreachable(ends: Ends, sent: &[u8]) -> Vec<u8> {
    let (kind, code) = if ends.src.is_ipv6() { (1, 4) } else { (3, 3) };
    ends.bytes(Icmp::new(kind, code, [0; 4], &sent[wire::ethernet::HEADER_LEN..]))
}

/// The UDP header of the only frame.
fn udp_of(frames: &[Vec<u8>], v6: bool) -> &[u8] {
    let [frame] = frames else { panic!("one frame: {frames:?}") };
    &frame[wire::ethernet::HEADER_LEN + if v6 { wire::ipv6::HEADER_LEN } else { wire::ipv4::HEADER_LEN }..][..8]
}

/// The data and the sender's port of the next datagram.
fn next(node: &Node<Real>, socket: &UdpShared<Real>) -> Result<(Vec<u8>, u16), udp::ReceiveError> {
    node.stack.receive_udp(socket).map(|datagram| (datagram.buf.to_vec(), datagram.source.port()))
}

/// Two datagram sockets with all kinds of state, used under one architecture and then under the other.
fn datagram_sockets_go_along(from: Architecture, to: Architecture, ends: Ends) {
    let what = format!("{from} to {to}, {}", ends.dst);
    let mut node = Node::<Real>::with_known_peer(NodeConfig::new(from));
    node.exchange(&frames::neighbour_solicitation());
    let v6 = ends.dst.is_ipv6();
    let group: IpAddr = if v6 { "ff15::77".parse().expect("a group") } else { [239, 1, 2, 3].into() };
    let (stack, peer) = (node.stack.clone(), SocketAddr::new(ends.src, ECHO));
    let [bound, connected] =
        [BOUND, CONNECTED].map(|port| stack.bind_udp(SocketAddr::new(ends.dst, port)).expect("the port is free"));
    let joined = stack.bind_udp(SocketAddr::new(group, BOUND)).expect("the port is free there");
    stack.join_group(&joined, group, None).expect("it joins");
    stack.set_group_ttl(&joined, 9);
    stack.connect_udp(&connected, peer).expect("the peer can be reached");
    stack.set_checksum_free(&connected, true, false);
    node.settle();
    for (from, data) in [(2000, "first"), (2001, "second")] {
        node.exchange(&Datagram::new(from, BOUND, data.as_bytes()).frame_over(ends));
    }
    node.exchange(&Datagram::new(ECHO, CONNECTED, b"of the peer").frame_over(ends));
    let payload = |data: &[u8]| PktBuf::from_slice(data).expect("a packet buffer");
    stack.send_udp(&connected, payload(b"refused"), None).expect("it is connected");
    let sent = node.settle();
    node.exchange(&port_unreachable(ends, &sent[0]));

    stack.switch(to).unwrap_or_else(|refused| panic!("{what}: {refused}"));

    // Queued datagrams, in order; then new ones.
    assert_eq!(next(&node, &bound), Ok((b"first".to_vec(), 2000)), "{what}");
    node.exchange(&Datagram::new(2002, BOUND, b"third").frame_over(ends));
    assert_eq!(next(&node, &bound), Ok((b"second".to_vec(), 2001)), "{what}");
    assert_eq!(next(&node, &bound), Ok((b"third".to_vec(), 2002)), "{what}");
    assert_eq!(next(&node, &bound), Err(udp::ReceiveError::WouldBlock), "{what}");
    assert!(!bound.ready.get().contains(Readiness::READABLE), "{what}");
    // The error, the peer, its datagram, and no other peer's datagram.
    assert_eq!(stack.udp_remote(&connected), Some(peer), "{what}");
    assert_eq!(next(&node, &connected), Err(udp::ReceiveError::Refused), "{what}");
    node.exchange(&Datagram::new(ECHO + 1, CONNECTED, b"of another").frame_over(ends));
    assert_eq!(next(&node, &connected), Ok((b"of the peer".to_vec(), ECHO)), "{what}");
    assert_eq!(next(&node, &connected), Err(udp::ReceiveError::WouldBlock), "{what}");
    // Options: no checksum is sent; the group, and the hops that its datagrams may take.
    stack.send_udp(&connected, payload(b"back"), None).expect("it is connected");
    let ports = [CONNECTED.to_be_bytes(), ECHO.to_be_bytes(), 12_u16.to_be_bytes(), [0; 2]].concat();
    assert_eq!(udp_of(&node.settle(), v6), ports, "{what}");
    assert_eq!(stack.group_ttl(&joined), 9, "{what}");
    node.exchange(&Datagram::new(2000, BOUND, b"to all").frame_over(ends.to(group)));
    assert_eq!(next(&node, &joined), Ok((b"to all".to_vec(), 2000)), "{what}");
    stack.leave_group(&joined, group, None).unwrap_or_else(|refused| panic!("{what}: {refused:?}"));
    // Then both are unbound, with their queues.
    node.exchange(&Datagram::new(2000, BOUND, b"never read").frame_over(ends));
    for socket in [&bound, &connected, &joined] {
        stack.unbind_udp(socket);
        assert_eq!(stack.udp_remote(socket), None, "{what}");
    }
    stack.bind_udp(SocketAddr::new(ends.dst, BOUND)).unwrap_or_else(|refused| panic!("{what}: {refused:?}"));
}

#[every_arch]
fn datagram_sockets_go_on_under_every_other_architecture(arch: Architecture) {
    for (to, ends) in Architecture::all().flat_map(|to| Ends::BOTH_FAMILIES.map(|ends| (to, ends))) {
        datagram_sockets_go_along(arch, to, ends);
    }
}

/// A connection over a node's link; and the stack's next sequence number.
fn open(node: &mut Node<Real>) -> (Arc<stack::socket::TcpSocket<Real>>, u32) {
    let listener = node.listen(PORT, 8);
    let answers = node.exchange(&Segment::syn(2000, PORT).frame());
    let next = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
    node.exchange(&segment(0, next, b"").frame());
    (listener.accept().expect("a child waits"), next)
}

fn segment(at: u32, ack: u32, data: &[u8]) -> Segment<'_> {
    let seq = ISS.wrapping_add(1).wrapping_add(at);
    Segment { data, ..Segment::ack((2000, PORT), seq, ack) }.and(TcpFlags::PSH)
}

/// Architectures with threads of their own end them and start them.
#[every_arch]
fn threads_end_and_begin_with_their_architecture(arch: Architecture) {
    let mut node = Node::<Real>::with_known_peer(NodeConfig { own_threads: true, ..NodeConfig::new(arch) });
    let (socket, mut next) = open(&mut node);
    let mut at = 0;
    for to in Architecture::all().filter(|to| to.properties().own_threads).chain([arch]) {
        node.stack.switch(to).unwrap_or_else(|refused| panic!("{arch} to {to}: {refused}"));
        node.exchange(&segment(at, next, b"text").frame());
        at += 4;
        let (data, _) = received(node.call(&socket, Call::Receive(tcp::Receive { max: 100 }))).expect("text");
        assert_eq!(data, b"text", "{arch} to {to}");
        assert!(matches!(node.call(&socket, send(b"back")), Reply::Sent(Ok(_))));
        let sent = node.settle();
        assert_eq!(sent.iter().filter_map(|frame| tcp_of(frame)).next_back().expect("a segment").1, b"back");
        next = next.wrapping_add(4);
        node.exchange(&segment(at, next, b"").frame());
    }
}

/// A connection allocates memory under one architecture and releases it under the next. The account is exact, and has
/// entries only for the cells of the current architecture and for threads, however often the stack was switched.
#[every_arch]
fn the_account_of_memory_does_not_grow_with_switches(arch: Architecture) {
    let mut node = Node::<Real>::with_known_peer(NodeConfig::new(arch));
    let (socket, next) = open(&mut node);
    let mut first = None;
    for round in 0..12 {
        node.exchange(&segment(4 * round, next, b"data").frame());
        for to in Architecture::all().filter(|to| *to != arch) {
            node.stack.switch(to).unwrap_or_else(|refused| panic!("{arch} to {to}: {refused}"));
        }
        assert_ne!(node.stack.shared().control().memory(), 0, "it is not read");
        let (data, _) = received(node.call(&socket, Call::Receive(tcp::Receive { max: 100 }))).expect("data");
        assert_eq!(data, b"data");
        assert_eq!(node.stack.shared().control().memory(), 0, "all of it is given back");
        node.stack.switch(arch).expect("it rests");
        let accounts = node.stack.shared().control().accounts();
        assert_eq!(*first.get_or_insert(accounts), accounts, "after {} rounds", round + 1);
    }
}

/// A receive thread panics when it has left a segment in the queue of a cell. The next architecture runs it.
#[every_arch(only(connp_t, connp_t_spsc, squeue_fill))]
fn what_a_panic_has_left_is_run_under_the_next_architecture(arch: Architecture) {
    panicking::mute();
    let [(near, mut far), (other, _other_far)] = [(); 2].map(|()| mem::pair::<Real>(MemConfig::default()));
    let (other, panics) = PanickingDevice::new(other);
    let interface = |(n, device): (u8, Box<dyn Device>)| InterfaceConfig {
        device,
        addresses: vec![(IpAddr::from([10, 0, n, 1]), 24)],
        gateways: vec![],
        addressing: Addressing::default(),
    };
    let clock = Clock::Virtual(VirtualClock::new(START));
    let config = StackConfig { seed: Some(SEED), own_threads: false, clock, ..StackConfig::new(arch) };
    let devices: [Box<dyn Device>; 2] = [Box::new(near), Box::new(other)];
    let (stack, mut drivers) =
        Stack::build(config, (0..).zip(devices).map(interface).collect()).expect("the stack builds");
    let [driver] = &mut drivers[..] else { panic!("one driver for both") };
    let mut far = far.take_queues().pop().expect("a queue pair");
    let mut exchange = |driver: &mut Driver<Real>, frame: Option<Vec<u8>>| {
        if let Some(frame) = frame {
            let buffer = PktBuf::from_slice(&frame).expect("a packet buffer");
            assert!(far.tx.transmit(buffer).is_ok(), "there is room");
            far.tx.flush();
        }
        let polled = catch_unwind(AssertUnwindSafe(|| driver.poll()));
        let mut sent = Vec::new();
        while far.rx.receive(&mut sent, 64) > 0 {}
        (polled.ok(), sent.iter().filter_map(|frame| tcp_of(frame)).map(|(header, _)| header.flags).collect::<Vec<_>>())
    };
    exchange(driver, Some(frames::arp_request()));
    let _listener =
        stack.listen("[::]:80".parse().expect("an address"), 8, Default::default()).expect("the port is free");
    panics.always.store(1, Relaxed);
    assert_eq!(exchange(driver, Some(Segment::syn(2000, PORT).frame())), (None, vec![]), "the segment waits");
    stack.switch(Architecture::named("giant")).expect("no other thread is in the stack");
    assert_eq!(exchange(driver, None), (Some(0), vec![TcpFlags::SYN | TcpFlags::ACK]));
}

/// The polling thread, which owns the one cell of the reference architecture, has not rested.
#[test]
fn a_stack_whose_driver_has_not_rested_is_not_switched() {
    let Node { stack, mut driver, .. } = Node::<Real>::with_known_peer(NodeConfig::new(Architecture::reference()));
    driver.rest();
    let (to_poller, orders) = mpsc::channel::<bool>();
    let (done, reports) = mpsc::channel();
    let poller = std::thread::spawn(move || {
        while let Ok(rest) = orders.recv() {
            driver.poll();
            if rest {
                driver.rest();
            }
            done.send(()).expect("the test waits");
        }
    });
    let poll = |rest| {
        to_poller.send(rest).expect("the poller lives");
        reports.recv_timeout(HANG).expect("the poller polls");
    };
    poll(false);
    assert_eq!(stack.switch(Architecture::named("giant")), Err(SwitchRefused::NotAtRest));
    assert_eq!(stack.architecture(), Architecture::reference());
    poll(true);
    assert_eq!(stack.switch(Architecture::named("giant")), Ok(HashMap::new()));
    poll(false);
    drop(to_poller);
    poller.join().expect("no panic");
}

#[test]
fn a_lock_that_never_waits_is_not_taken_to_threads_that_share_it() {
    let mut config = stack::StackConfig::new(Architecture::reference());
    config.lock_kind = LockKind::Null;
    let (near, _far) = dev::mem::pair::<Real>(Default::default());
    let interface = stack::InterfaceConfig {
        device: Box::new(near),
        addresses: vec![],
        gateways: vec![],
        addressing: Default::default(),
    };
    let (stack, _drivers) = stack::Stack::<Real>::build(config, vec![interface]).expect("the stack builds");
    let giant = Architecture::named("giant");
    assert_eq!(stack.switch(giant), Err(SwitchRefused::NullLock(giant)));
    assert_eq!(stack.switch(Architecture::reference()), Ok(HashMap::new()));
}
