//! User calls on a datagram socket, as values, and their answers: they can be run at once, or sent to the thread that
//! uses the socket's home.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pktbuf::PktBuf;
use sync::Platform;

use crate::flow::UdpName;
use crate::socket::UdpShared;

/// One request of a user to one socket.
pub struct UdpCall<P: Platform> {
    /// The socket.
    pub name: UdpName,
    /// The request.
    pub request: UdpRequest<P>,
}

impl<P: Platform> UdpCall<P> {
    /// Takes the call out of a value that is passed by reference.
    pub fn take(&mut self) -> UdpCall<P> {
        UdpCall { name: self.name, request: std::mem::replace(&mut self.request, UdpRequest::Remote) }
    }
}

/// The kinds of requests.
pub enum UdpRequest<P: Platform> {
    /// Create the PCB, which receives datagrams from now on.
    Bind(Arc<UdpShared<P>>),
    /// Drop the PCB and its queue.
    Unbind,
    /// Send a datagram.
    Send {
        /// Its payload, with headroom for all headers.
        payload: PktBuf,
        /// The destination; `None`: the connected peer.
        to: Option<SocketAddr>,
    },
    /// Take the oldest datagram.
    Receive,
    /// Fix the peer.
    Connect {
        /// The peer.
        remote: SocketAddr,
        /// The source address chosen by routing.
        source: IpAddr,
    },
    /// Record that the socket has joined a group.
    Join(udp::Membership),
    /// Record that it has left a group.
    Leave(udp::Membership),
    /// Return its groups.
    Memberships,
    /// Name its own end: the address that it is bound to, or that connecting has chosen.
    Local,
    /// Return the connected peer.
    Remote,
    /// Take the error that the next call would report.
    TakeError,
    /// Set the time to live, or hop limit, of datagrams to hosts.
    SetTtl(u8),
    /// Say it.
    Ttl,
    /// Set the time to live of datagrams to groups.
    SetGroupTtl(u8),
    /// Say it.
    GroupTtl,
    /// Set whether datagrams to groups come back to this host.
    SetGroupLoop {
        /// To groups of IPv6, or of IPv4.
        v6: bool,
        /// Whether they do.
        on: bool,
    },
    /// Say it.
    GroupLoop {
        /// To groups of IPv6, or of IPv4.
        v6: bool,
    },
    /// Set how datagrams to groups leave; `None`: by the route to the group.
    SetGroupEgress {
        /// To groups of IPv6, or of IPv4.
        v6: bool,
        /// The interface and source address.
        egress: Option<udp::GroupEgress>,
    },
    /// Set from which groups it receives without being in them.
    SetOthersGroups {
        /// Groups of IPv6, or of IPv4.
        v6: bool,
        /// Which.
        groups: udp::OthersGroups,
    },
    /// Set whether datagrams are sent without checksum, and whether they are taken without one over IPv6 (RFC 6936).
    SetChecksumFree {
        /// Sent without.
        sent: bool,
        /// Taken without.
        taken: bool,
    },
}

/// The answer to a [`UdpCall`].
pub enum UdpReply {
    /// To `Bind`, `Unbind` and settings.
    Done,
    /// To `Send`: the length of the payload.
    Sent(Result<usize, udp::SendError>),
    /// To `Receive`.
    Received(Result<udp::ReceivedDatagram, udp::ReceiveError>),
    /// To `Connect`.
    Connected(Result<(), udp::SendError>),
    /// To `Join`.
    Joined(Result<(), udp::JoinError>),
    /// To `Leave`: whether it was in the group.
    Left(bool),
    /// To `Memberships`.
    Memberships(Vec<udp::Membership>),
    /// To `Local`.
    Local(SocketAddr),
    /// To `Remote`.
    Remote(Option<SocketAddr>),
    /// To `Ttl` and `GroupTtl`.
    Ttl(u8),
    /// To `GroupLoop`.
    GroupLoop(bool),
    /// To `TakeError`.
    Failure(Option<udp::SendError>),
    /// The socket is no longer there.
    Gone,
}
