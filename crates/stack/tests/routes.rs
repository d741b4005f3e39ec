//! Routes that change under open connections, observed from outside a whole stack: the destination and size of the next
//! segment, and the error when there is no route any more.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use every_arch::every_arch;
use observe::DropReason;
use stack::call::{Call, Reply};
use stack::socket::TcpSocket;
use stack::{Architecture, ConnectRefused};
use sync::Real;
use tcp::StatusReport;
use testbed::frames::{self, PEER, PEER_MAC, STACK, Segment, tcp_of};
use testbed::node::{Node, NodeConfig, send};
use wire::ethernet::MacAddr;
use wire::icmpv4::Message;
use wire::tcp::TcpFlags;

const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const GATEWAY_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
/// The MSS of the peer, which announces none (RFC 9293 section 3.7.1).
const PEER_MSS: usize = 536;

/// A connection to the peer, and the progress of both sides.
struct Line {
    node: Node<Real>,
    socket: Arc<TcpSocket<Real>>,
    /// The peer's acknowledgement number.
    theirs: u32,
    /// The peer's sequence number.
    ours: u32,
}

impl Line {
    fn new(arch: Architecture) -> Line {
        let mut node = Node::with_known_peer(NodeConfig::new(arch));
        node.put(&introduction());
        node.settle();
        let (listener, theirs) = half_open(&mut node);
        node.exchange(&acknowledgement(theirs).frame());
        let socket = listener.accept().expect("a child waits");
        Line { node, socket, theirs, ours: frames::ISS + 1 }
    }

    fn route(&self, stated: &str) {
        self.node.stack.state_route(&stated.parse().expect("a route"), 0);
    }

    fn lose(&self, named: &str) {
        let taken = self.node.stack.remove_route(&named.parse().expect("a name"));
        assert!(taken.is_some(), "{named}");
    }

    fn send(&mut self, bytes: usize) -> Vec<Vec<u8>> {
        let reply = self.node.call(&self.socket, send(&vec![7; bytes]));
        assert!(matches!(reply, Reply::Sent(Ok(_))));
        self.node.settle()
    }

    /// Sends data and has all of it acknowledged; returns the size of each segment, without duplicates.
    fn carry(&mut self, bytes: usize) -> Vec<usize> {
        let mut left = self.send(bytes);
        let (mut sizes, end) = (Vec::new(), self.theirs.wrapping_add(bytes as u32));
        while self.theirs != end {
            assert!(!left.is_empty(), "{sizes:?} and no more");
            for frame in left.drain(..) {
                let (header, data) = tcp_of(&frame).expect("a segment");
                assert_eq!(header.seq.0, self.theirs, "in order and once: {sizes:?}");
                self.theirs = self.theirs.wrapping_add(data.len() as u32);
                sizes.push(data.len());
            }
            let ack = Segment { seq: self.ours, ..acknowledgement(self.theirs) };
            left = self.node.exchange(&ack.frame());
        }
        sizes
    }

    /// The peer sends data, and has it acknowledged in time.
    fn hear(&mut self) {
        let data = Segment { seq: self.ours, data: b"any", ..acknowledgement(self.theirs) };
        self.node.put(&data.frame());
        self.ours += 3;
        self.node.pass(Duration::from_millis(300), Duration::from_millis(50));
    }

    /// Sends some data and has it acknowledged; returns its link destination.
    fn hop(&mut self) -> MacAddr {
        let frames = self.send(10);
        let [frame] = &frames[..] else { panic!("{} frames", frames.len()) };
        self.theirs = self.theirs.wrapping_add(10);
        self.node.exchange(&Segment { seq: self.ours, ..acknowledgement(self.theirs) }.frame());
        MacAddr(*frame.first_chunk().expect("a link header"))
    }

    fn status(&self) -> StatusReport {
        match self.node.call(&self.socket, Call::Status(tcp::Status)) {
            Reply::Status(report) => *report,
            _ => panic!("the connection is gone"),
        }
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.node.stack.stats().counters.dropped(reason)
    }
}

/// An ARP request of the gateway, which contains its link address.
fn introduction() -> Vec<u8> {
    let mut frame = frames::arp_request();
    frame[6..12].copy_from_slice(&GATEWAY_MAC.0);
    frame[22..28].copy_from_slice(&GATEWAY_MAC.0);
    frame[28..32].copy_from_slice(&GATEWAY.octets());
    frame
}

fn half_open(node: &mut Node<Real>) -> (Arc<stack::socket::ListenerShared<Real>>, u32) {
    let listener = node.listen(80, 8);
    let answers = node.exchange(&Segment::syn(2000, 80).frame());
    let theirs = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
    (listener, theirs)
}

fn acknowledgement(ack: u32) -> Segment<'static> {
    Segment::ack((2000, 80), frames::ISS + 1, ack)
}

#[every_arch]
fn the_next_segment_goes_by_the_new_next_hop(arch: Architecture) {
    let mut line = Line::new(arch);
    assert_eq!(line.hop(), PEER_MAC);
    line.route("10.0.0.2 via 10.0.0.3");
    assert_eq!(line.hop(), GATEWAY_MAC);
    line.lose("10.0.0.2 via 10.0.0.3");
    assert_eq!(line.hop(), PEER_MAC);
    assert_eq!(line.dropped(DropReason::TooBigToSend), 0);
}

#[every_arch]
fn segments_shrink_with_the_mtu_of_the_route_and_grow_again(arch: Architecture) {
    let mut line = Line::new(arch);
    assert_eq!(line.carry(3 * PEER_MSS), [PEER_MSS; 3]);
    line.route("10.0.0.0/24 mtu 300");
    // Those made for the old path do not leave.
    assert_eq!(line.carry(2 * 260), [260; 2]);
    assert_eq!((line.dropped(DropReason::TooBigToSend), line.status().mss), (1, 260));
    line.route("10.0.0.0/24 mtu lock 400");
    assert_eq!(line.carry(1), [1], "the first to leave finds the route changed");
    assert_eq!(line.carry(2 * 360), [360; 2]);
    line.route("10.0.0.0/24");
    line.hear();
    assert_eq!(line.carry(2 * PEER_MSS), [PEER_MSS; 2], "and no more than the peer takes");
    line.route("10.0.0.0/24 mtu 500");
    line.hear();
    assert_eq!(line.carry(2 * 460), [460; 2]);
    assert!(line.status().cwnd >= 10 * 460, "no sign of congestion");
    assert_eq!(line.dropped(DropReason::TooBigToSend), 1, "an acknowledgement has found it out");
}

#[every_arch]
fn without_a_route_a_connection_goes_on_and_says_so(arch: Architecture) {
    let mut line = Line::new(arch);
    line.lose("10.0.0.0/24");
    assert!(line.send(100).is_empty());
    assert_eq!(line.status().soft_error, Some(tcp::Error::NetworkUnreachable));
    let silence = line.node.pass(Duration::from_secs(5), Duration::from_millis(100));
    assert!(silence.is_empty());
    assert!(line.dropped(DropReason::NoRoute) >= 3, "it goes on trying");
    line.route("10.0.0.0/24");
    let again = line.node.pass(Duration::from_secs(8), Duration::from_millis(100));
    let (header, data) = tcp_of(&again[0]).expect("a segment");
    assert_eq!((header.seq.0, data.len()), (line.theirs, 100));
    line.hear();
    assert_eq!(line.status().soft_error, None, "the peer is heard");
}

/// A thread remembers where the connections to a destination leave, and only as long as that is so.
#[every_arch]
fn an_open_follows_the_routes_of_the_moment(arch: Architecture) {
    let node = Node::<Real>::with_known_peer(NodeConfig::new(arch));
    let open = || {
        let opened = node.stack.connect(None, SocketAddr::new(PEER.into(), 80), &Default::default());
        opened.map(|socket| socket.tuple().local_addr)
    };
    for _ in 0..2 {
        assert_eq!((open(), open()), (Ok(STACK.into()), Ok(STACK.into())));
        let taken = node.stack.remove_route(&"10.0.0.0/24".parse().expect("a name"));
        assert!(taken.is_some());
        assert_eq!((open(), open()), (Err(ConnectRefused::NoRoute), Err(ConnectRefused::NoRoute)));
        node.stack.state_route(&"10.0.0.0/24".parse().expect("a route"), 0);
    }
}

#[every_arch]
fn a_route_that_changes_during_the_handshake_is_not_missed(arch: Architecture) {
    let mut node = Node::with_known_peer(NodeConfig::new(arch));
    let (listener, theirs) = half_open(&mut node);
    node.stack.state_route(&"10.0.0.0/24 mtu 300".parse().expect("a route"), 0);
    let again = node.pass(Duration::from_millis(1500), Duration::from_millis(100));
    assert!(tcp_of(&again[0]).is_some_and(|(header, _)| header.flags.contains(TcpFlags::SYN)), "the SYN-ACK, again");
    node.exchange(&acknowledgement(theirs).frame());
    let socket = listener.accept().expect("a child waits");
    let mut line = Line { node, socket, theirs, ours: frames::ISS + 1 };
    // Segments cut for the old path keep their boundaries; later ones have the new size.
    assert_eq!(line.carry(PEER_MSS), [260, 260, 16]);
    assert_eq!(line.carry(2 * 260), [260; 2]);
    assert_eq!(line.dropped(DropReason::TooBigToSend), 1);
}

/// RFC 1191 section 6.3: a path MTU from a router expires after ten minutes, for open connections too.
#[every_arch]
fn what_a_router_said_of_the_path_is_forgotten_in_time(arch: Architecture) {
    let mut line = Line::new(arch);
    let first = line.send(PEER_MSS);
    let narrow = Message::Unreachable { code: 4, mtu: 560 };
    let again = line.node.exchange(&frames::icmp_error(narrow, &first[0]));
    assert_eq!(tcp_of(&again[0]).map(|(_, data)| data.len()), Some(520));
    line.theirs = line.theirs.wrapping_add(PEER_MSS as u32);
    line.hear();
    line.route("192.0.2.0/24 via 10.0.0.3");
    line.hear();
    assert_eq!(line.carry(2 * 520), [520; 2], "another route says nothing of it");
    line.node.pass(Duration::from_secs(700), Duration::from_secs(10));
    line.hear();
    assert_eq!(line.carry(2 * PEER_MSS), [PEER_MSS; 2]);
}
