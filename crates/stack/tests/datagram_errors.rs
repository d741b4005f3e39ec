//! Errors of ICMP about datagrams that a socket has sent: which socket is notified of which error, and what its user sees of
//! it, in its readiness and in the calls that report it (RFC 1122 section 4.1.3.3).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use every_arch::every_arch;
use observe::DropReason;
use pktbuf::PktBuf;
use stack::Architecture;
use stack::socket::{Readiness, UdpShared};
use sync::Real;
use testbed::frames::{self, Datagram, Ends, Icmp};
use testbed::node::{Node, NodeConfig};
use udp::{ReceiveError, SendError};
use wire::ethernet;

const PORT: u16 = 4000;
const PEERS: u16 = 2000;
/// The least MTU of IPv6, which a router of either family may report.
const NARROW: u16 = 1280;

/// An error, and what a send and a receive report of it.
struct Case {
    kind: u8,
    code: u8,
    mtu: u16,
    sent: SendError,
    received: ReceiveError,
}

/// No such port, no way to the host, and a path that is too narrow. A receive does not report the last one.
fn cases(ends: Ends) -> [Case; 3] {
    let [refused, unreachable, narrow] =
        if ends.src.is_ipv6() { [(1, 4), (1, 3), (2, 0)] } else { [(3, 3), (3, 1), (3, 4)] };
    let case = |(kind, code), mtu, sent, received| Case { kind, code, mtu, sent, received };
    [
        case(refused, 0, SendError::Refused, ReceiveError::Refused),
        case(unreachable, 0, SendError::Unreachable, ReceiveError::Unreachable),
        case(narrow, NARROW, SendError::PathTooNarrow { mtu: NARROW.into() }, ReceiveError::WouldBlock),
    ]
}

/// The user of a datagram socket.
struct User {
    node: Node<Real>,
    ends: Ends,
    socket: Arc<UdpShared<Real>>,
}

impl User {
    fn new(arch: Architecture, ends: Ends) -> User {
        let mut node = Node::with_known_peer(NodeConfig::new(arch));
        node.exchange(&frames::neighbour_solicitation());
        let socket = node.stack.bind_udp(SocketAddr::new(ends.dst, PORT)).expect("the port is free");
        User { node, ends, socket }
    }

    fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.ends.src, PEERS)
    }

    fn send(&self, to: Option<SocketAddr>) -> Result<usize, SendError> {
        self.node.stack.send_udp(&self.socket, PktBuf::from_slice(&[7; 100]).expect("a packet buffer"), to)
    }

    /// The next datagram to the peer is answered by this error.
    fn fails(&mut self, case: &Case) {
        assert_eq!(self.send(Some(self.peer())), Ok(100));
        let sent = self.node.settle();
        let [high, low] = case.mtu.to_be_bytes();
        let message = Icmp::new(case.kind, case.code, [0, 0, high, low], &sent[0][ethernet::HEADER_LEN..]);
        self.node.exchange(&self.ends.bytes(message));
    }

    fn take_error(&self) -> Option<SendError> {
        self.node.stack.take_udp_error(&self.socket)
    }

    fn arrives(&mut self) {
        self.node.exchange(&Datagram::new(PEERS, PORT, b"datagram").frame_over(self.ends));
    }

    fn receive(&self) -> Result<IpAddr, ReceiveError> {
        self.node.stack.receive_udp(&self.socket).map(|datagram| datagram.source.ip())
    }

    fn is(&self) -> Readiness {
        self.socket.ready.get()
    }
}

/// A pending error is reported once, by the next call, and the socket is readable meanwhile; then it is readable only if
/// a datagram has arrived.
#[every_arch]
fn an_error_makes_a_connected_socket_ready_until_a_call_reports_it(arch: Architecture) {
    let (readable, writable) = (Readiness::READABLE, Readiness::WRITABLE);
    for ends in Ends::BOTH_FAMILIES {
        let mut user = User::new(arch, ends);
        user.node.stack.connect_udp(&user.socket, user.peer()).expect("a route");
        for case in cases(ends) {
            let what = format!("{} {:?}", ends.dst, case.sent);
            for datagrams in [0, 1] {
                let rest = if datagrams == 1 { readable | writable } else { writable };
                (0..datagrams).for_each(|_| user.arrives());
                for report in [User::take_error, |user: &User| user.send(None).err()] {
                    user.fails(&case);
                    assert_eq!(user.is(), Readiness::ERROR | readable | writable, "{what}");
                    assert_eq!(report(&user), Some(case.sent), "{what}");
                    assert_eq!(user.is(), rest, "{what}");
                    assert_eq!(user.take_error(), None, "{what}");
                }
                user.fails(&case);
                if case.received != ReceiveError::WouldBlock {
                    assert_eq!(user.receive(), Err(case.received), "{what}");
                    assert_eq!(user.is(), rest, "{what}");
                }
                (0..datagrams).for_each(|_| assert_eq!(user.receive(), Ok(ends.src), "{what}"));
                assert_eq!(user.receive(), Err(ReceiveError::WouldBlock), "{what}");
                let _ = user.take_error();
                assert_eq!(user.is(), writable, "{what}");
            }
        }
    }
}

/// A socket that is not connected could not tell which of its datagrams is meant: it is not told, and the error is
/// counted.
#[every_arch]
fn a_socket_without_a_peer_is_not_told(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut user = User::new(arch, ends);
        for (case, count) in cases(ends).iter().zip(1..) {
            user.fails(case);
            assert_eq!((user.is(), user.take_error()), (Readiness::WRITABLE, None));
            assert_eq!(user.node.stack.stats().counters.dropped(DropReason::IcmpNoConnection), count);
        }
    }
}
