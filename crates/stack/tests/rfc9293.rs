//! Requirements of RFC 9293 on TCP and IP together: addresses of OPEN, ICMP errors, advice to IP, and the IP header
//! fields that the user sets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use every_arch::every_arch;
use observe::DropReason;
use stack::call::{Call, Reply};
use stack::socket::{Readiness, TcpSocket};
use stack::{Architecture, ConnectRefused};
use sync::Real;
use tcp::{SetOption, SocketOption, State, StatusReport};
use testbed::frames::{self, PEER, STACK, Segment, tcp_of};
use testbed::node::{Node, NodeConfig, send};
use wire::tcp::TcpFlags;
use wire::{ethernet, icmpv4, ipv4};

const L3: usize = ethernet::HEADER_LEN;

fn status(node: &Node<Real>, socket: &TcpSocket<Real>) -> StatusReport {
    match node.call(socket, Call::Status(tcp::Status)) {
        Reply::Status(report) => *report,
        _ => panic!("the connection is gone"),
    }
}

/// A connection that the peer opened from this port.
fn connected(node: &mut Node<Real>, port: u16) -> Arc<TcpSocket<Real>> {
    let listener = node.listen(80, 8);
    let answers = node.exchange(&Segment::syn(port, 80).frame());
    let ack = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
    let seq = frames::ISS.wrapping_add(1);
    node.exchange(&Segment::ack((port, 80), seq, ack).frame());
    let socket = listener.accept().expect("a child waits");
    node.stack.unlisten(&listener);
    socket
}

/// The same with 400 bytes in flight, and their segment.
fn waiting(node: &mut Node<Real>) -> (Arc<TcpSocket<Real>>, Vec<u8>) {
    let socket = connected(node, 2000);
    node.call(&socket, send(&[5; 400]));
    let sent = node.settle();
    (socket, sent.into_iter().find(|frame| tcp_of(frame).is_some()).expect("the data"))
}

fn introduced(arch: Architecture) -> Node<Real> {
    Node::with_known_peer(NodeConfig::new(arch))
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
//= type=test
//# The application layer MUST be able to specify the Differentiated Services field for segments that are sent on a
//# connection (MUST-48).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
//= type=test
//# It is not required, but the application SHOULD be able to change the Differentiated Services field during the
//# connection lifetime (SHLD-21).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
//= type=test
//# TCP implementations SHOULD pass the current Differentiated Services field value without change to the IP layer, when
//# it sends segments on the connection (SHLD-22).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2
//= type=test
//# The TTL value used to send TCP segments MUST be configurable (MUST-49).
#[every_arch]
fn what_a_user_chooses_stands_in_the_ip_header(arch: Architecture) {
    let mut node = introduced(arch);
    let socket = connected(&mut node, 2000);
    let mut chosen = |class, hops| {
        let set = |option| {
            assert!(matches!(node.call(&socket, Call::SetOption(SetOption(option))), Reply::OptionSet(Ok(()))))
        };
        set(SocketOption::NoDelay(true));
        set(SocketOption::TrafficClass(class));
        set(SocketOption::HopLimit(hops));
        node.call(&socket, send(&[1; 100]));
        let sent = node.settle();
        assert_eq!(sent.len(), 1);
        let header = ipv4::parse(&sent[0][L3..]).expect("IPv4");
        (header.tos, header.ttl)
    };
    assert_eq!(chosen(0, None), (0, 64), "nothing is chosen");
    assert_eq!(chosen(0xb8, Some(9)), (0xb8, 9));
    assert_eq!(chosen(0x28, Some(255)), (0x28, 255), "changed while the connection lasts");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
//= type=test
//# TCP implementations MUST act on an ICMP error message passed up from the IP layer, directing it to the connection
//# that created the error (MUST-54).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
//= type=test
//# and it SHOULD make the information available to the application (SHLD-25).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
//= type=test
//# Since these Unreachable messages indicate soft error conditions, a TCP implementation MUST NOT abort the connection
//# (MUST-56),
#[every_arch]
fn soft_errors_reach_the_user_and_end_nothing(arch: Architecture) {
    use icmpv4::Message;
    let unreachable = |code| Message::Unreachable { code, mtu: 0 };
    let messages = [
        (unreachable(0), tcp::Error::NetworkUnreachable),
        (unreachable(1), tcp::Error::HostUnreachable),
        (unreachable(5), tcp::Error::HostUnreachable),
        (Message::TimeExceeded { code: 0 }, tcp::Error::HostUnreachable),
        (Message::ParamProblem { code: 0, pointer: 1 }, tcp::Error::HostUnreachable),
    ];
    for (message, error) in messages {
        let mut node = introduced(arch);
        let (socket, segment) = waiting(&mut node);
        assert_eq!(status(&node, &socket).soft_error, None);
        node.exchange(&frames::icmp_error(message, &segment));
        let report = status(&node, &socket);
        assert_eq!((report.state, report.error), (State::Established, None), "{message:?}");
        assert_eq!(report.soft_error, Some(error), "{message:?}");
        assert!(socket.ready.get().contains(Readiness::SOFT_ERROR), "{message:?}");
    }
}

/// A peer that sends but does not answer ARP for a while: the stack's own host-unreachable error does not end the
/// handshake. The SYN-ACK's timer solicits again, and the later acknowledgement opens the connection.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
//= type=test
//# Since these Unreachable messages indicate soft error conditions, a TCP implementation MUST NOT abort the connection
//# (MUST-56),
#[every_arch]
fn a_neighbour_that_is_silent_for_a_while_ends_no_handshake(arch: Architecture) {
    let mut node = Node::<Real>::new(NodeConfig::new(arch));
    let listener = node.listen(80, 8);
    node.put(&Segment::syn(4000, 80).frame());
    let mut sent = node.settle();
    for _ in 0..60 {
        node.clock.advance(Duration::from_millis(100));
        sent.extend(node.settle());
    }
    assert!(sent.len() >= 3 && sent.iter().all(|frame| frames::is_arp(frame)), "nobody answers");
    assert!(
        node.driver.counters().dropped(DropReason::NeighbourUnresolved) > 0,
        "what waited for an answer is given up"
    );
    assert_eq!(listener.occupancy(), (1, 0), "the handshake waits");
    let sent = node.pass(Duration::from_secs(10), Duration::from_millis(100));
    let (syn_ack, _) = sent.iter().find_map(|frame| tcp_of(frame)).expect("a SYN-ACK, when the peer answers again");
    assert_eq!(syn_ack.flags, TcpFlags::SYN | TcpFlags::ACK);
    let (seq, ack) = (frames::ISS.wrapping_add(1), syn_ack.seq.0.wrapping_add(1));
    let segment = Segment::ack((4000, 80), seq, ack);
    assert!(node.exchange(&segment.frame()).is_empty());
    assert!(listener.accept().is_some(), "the connection is established");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
//= type=test
//# TCP implementations MUST silently discard any received ICMP Source Quench messages (MUST-55).
#[every_arch]
fn a_source_quench_is_dropped_without_a_word(arch: Architecture) {
    let mut node = introduced(arch);
    let (socket, segment) = waiting(&mut node);
    let before = status(&node, &socket);
    let quench = icmpv4::Message::Other { kind: 4, code: 0, rest: 0 };
    assert!(node.exchange(&frames::icmp_error(quench, &segment)).is_empty());
    let deferred = status(&node, &socket);
    assert_eq!((deferred.cwnd, deferred.ssthresh, deferred.soft_error), (before.cwnd, before.ssthresh, None));
    assert_eq!(node.driver.counters().dropped(DropReason::IcmpUnknownType), 1);
}

/// Without the advice the neighbour, confirmed a moment ago, would not be probed for five seconds.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# The following procedure MUST be used to handle excessive retransmissions of data segments (MUST-20):
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# TCP implementations SHOULD inform the application of the delivery problem (unless such information has been disabled
//# by the application; see the "Asynchronous Reports" section (Section 3.9.1.8)), when R1 is reached and before R2
//# (SHLD-9).
#[every_arch]
fn when_nothing_is_heard_until_r1_the_neighbour_is_asked_whether_it_is_there(arch: Architecture) {
    let mut node = introduced(arch);
    let (socket, _) = waiting(&mut node);
    let start = node.clock.now();
    let mut asked = None;
    for _ in 0..300 {
        node.clock.advance(Duration::from_millis(10));
        if asked.is_none() && node.settle().iter().any(|frame| frames::is_arp(frame)) {
            asked = Some((node.clock.now() - start).as_millis());
        }
    }
    // The third retransmission: 200 + 400 + 800 ms.
    assert!(asked.is_some_and(|at| (1400..1500).contains(&at)), "{asked:?}");
    let report = status(&node, &socket);
    assert_eq!((report.state, report.soft_error), (State::Established, Some(tcp::Error::Unanswered)));
    assert!(socket.ready.get().contains(Readiness::SOFT_ERROR));
}

/// One emission finds both that the routes have changed and that R1 was reached.
#[every_arch]
fn routes_that_change_before_r1_do_not_hide_it(arch: Architecture) {
    let mut node = introduced(arch);
    let _connection = waiting(&mut node);
    let start = node.clock.now();
    let mut asked = None;
    for n in 0..300 {
        if n == 100 {
            node.stack.state_route(&"10.0.0.0/24".parse().expect("a route"), 0);
        }
        node.clock.advance(Duration::from_millis(10));
        if asked.is_none() && node.settle().iter().any(|frame| frames::is_arp(frame)) {
            asked = Some((node.clock.now() - start).as_millis());
        }
    }
    assert!(asked.is_some_and(|at| (1400..1500).contains(&at)), "{asked:?}");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.3
//= type=test
//# As a result, when the effective MTU of an interface varies packet-to- packet, TCP implementations SHOULD use the
//# smallest effective MTU of the interface to calculate the value to advertise in the MSS Option (SHLD-6).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//= type=test
//# where MMS_R is the maximum size for a transport-layer message that can be received (and reassembled at the IP layer)
//# (MUST-67).
#[every_arch]
fn the_mss_that_is_announced_follows_what_the_path_carries(arch: Architecture) {
    let mut node = introduced(arch);
    let announced = |node: &mut Node<Real>, port| {
        let listener = node.listen(80, 8);
        let answers = node.exchange(&Segment::syn(port, 80).frame());
        node.stack.unlisten(&listener);
        node.settle();
        tcp_of(&answers[0]).expect("a SYN-ACK").0.options.mss
    };
    assert_eq!(announced(&mut node, 3000), Some(1460), "the interface takes 1500 bytes");
    let (_socket, segment) = waiting(&mut node);
    let too_big = icmpv4::Message::Unreachable { code: icmpv4::unreachable::FRAGMENTATION_NEEDED, mtu: 560 };
    node.exchange(&frames::icmp_error(too_big, &segment));
    assert_eq!(announced(&mut node, 3001), Some(520));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
//= type=test
//# A TCP implementation MUST reject as an error a local OPEN call for an invalid remote IP address (e.g., a broadcast
//# or multicast address) (MUST-46).
#[every_arch]
fn an_open_to_what_is_no_host_is_an_error(arch: Architecture) {
    let mut node = introduced(arch);
    for remote in ["255.255.255.255", "10.0.0.255", "224.0.0.1", "239.1.2.3", "0.0.0.0", "ff02::1", "::"] {
        let remote = SocketAddr::new(remote.parse().expect("an address"), 80);
        let refused = node.stack.connect(None, remote, &Default::default()).err();
        assert_eq!(refused, Some(ConnectRefused::NotAHost), "{remote}");
    }
    assert!(node.settle().is_empty(), "and nothing is sent");
    assert!(node.stack.connect(None, SocketAddr::new(PEER.into(), 80), &Default::default()).is_ok(), "the control");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
//= type=test
//# A TCP implementation that supports multiple concurrent connections MUST provide an OPEN call that will functionally
//# allow an application to LISTEN on a port while a connection block with the same local port is in SYN-SENT or
//# SYN-RECEIVED state (MUST-42).
#[every_arch]
fn a_port_can_be_listened_on_while_a_connection_is_opened_from_it(arch: Architecture) {
    for answered in [false, true] {
        let mut node = introduced(arch);
        let (ours, theirs) = (SocketAddr::new(STACK.into(), 80), SocketAddr::new(PEER.into(), 9));
        let opening = node.stack.connect(Some(ours), theirs, &Default::default()).expect("it is free");
        if answered {
            // Both open at once.
            node.exchange(&Segment::syn(9, 80).frame());
        }
        let state = if answered { State::SynReceived } else { State::SynSent };
        assert_eq!(status(&node, &opening).state, state);
        let listener = node.listen(80, 8);
        let answers = node.exchange(&Segment::syn(3000, 80).frame());
        let flags = answers.iter().filter_map(|frame| tcp_of(frame)).find(|(header, _)| header.dst_port == 3000);
        assert_eq!(flags.map(|(header, _)| header.flags), Some(TcpFlags::SYN | TcpFlags::ACK));
        assert_eq!(status(&node, &opening).state, state, "the one that is being opened is what it was");
        drop(listener);
    }
}

fn source(frame: &[u8]) -> Ipv4Addr {
    ipv4::parse(&frame[L3..]).expect("IPv4").src
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
//= type=test
//# If an application on a multihomed host does not specify the local IP address when actively opening a TCP connection,
//# then the TCP implementation MUST ask the IP layer to select a local IP address before sending the (first) SYN
//# (MUST-44).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
//= type=test
//# At all other times, a previous segment has either been sent or received on this connection, and TCP implementations
//# MUST use the same local address that was used in those previous segments (MUST-45).
#[every_arch]
fn ip_chooses_the_address_of_an_open_and_a_connection_keeps_its_own(arch: Architecture) {
    let other = Ipv4Addr::new(10, 0, 0, 7);
    let far = Ipv4Addr::new(10, 1, 0, 1);
    let addresses: [IpAddr; 3] = [other.into(), STACK.into(), far.into()];
    let terms = NodeConfig { addresses: addresses.map(|address| (address, 24)).to_vec(), ..NodeConfig::new(arch) };
    let mut node = Node::with_known_peer(terms);
    for (remote, expected) in [(PEER, other), (Ipv4Addr::new(10, 1, 0, 9), far)] {
        let remote = SocketAddr::new(remote.into(), 80);
        let socket = node.stack.connect(None, remote, &Default::default()).expect("there is a route");
        assert_eq!(socket.tuple().local_addr, IpAddr::V4(expected), "to {remote}");
    }
    node.settle();
    // The peer has chosen the stack's other address, and still receives from that one.
    let (_socket, segment) = waiting(&mut node);
    assert_eq!(source(&segment), STACK);
    node.clock.advance(Duration::from_millis(250));
    let again: Vec<_> =
        node.settle().into_iter().filter(|frame| tcp_of(frame).is_some_and(|(h, _)| h.dst_port == 2000)).collect();
    assert_eq!(again.iter().map(|frame| source(frame)).collect::<Vec<_>>(), [STACK]);
}
