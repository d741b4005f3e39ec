//! What a user asks of a datagram socket, as values, and the answers: they can be run here, or sent to the thread that
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
    /// The call, out of a place that is handed on by reference.
    pub fn take(&mut self) -> UdpCall<P> {
        UdpCall { name: self.name, request: std::mem::replace(&mut self.request, UdpRequest::Remote) }
    }
}

/// What is asked.
pub enum UdpRequest<P: Platform> {
    /// Make the PCB: datagrams are taken from now on.
    Bind(Arc<UdpShared<P>>),
    /// Let go of the PCB, and of what is queued.
    Unbind,
    /// Send a datagram.
    Send {
        /// Its payload, with headroom for all headers.
        payload: PktBuf,
        /// To whom; `None`: to the connected peer.
        to: Option<SocketAddr>,
    },
    /// Take the oldest datagram.
    Receive,
    /// Fix the peer.
    Connect {
        /// The peer.
        remote: SocketAddr,
        /// The address that routing chose to send from.
        source: IpAddr,
    },
    /// Note that the socket is in a group.
    Join(udp::Membership),
    /// Note that it no longer is.
    Leave(udp::Membership),
    /// Name the groups that it is in.
    Memberships,
    /// Name its own end: what it is bound to, or the address that connecting has chosen.
    Local,
    /// Name the connected peer.
    Remote,
    /// Take the error that the next call would report.
    TakeError,
    /// Set the time to live, or hop limit, of what is sent to hosts.
    SetTtl(u8),
    /// Say it.
    Ttl,
    /// Set the time to live of what is sent to groups.
    SetGroupTtl(u8),
    /// Say it.
    GroupTtl,
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
    Received(Result<udp::Datagram, udp::ReceiveError>),
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
    /// To `TakeError`.
    Failure(Option<udp::SendError>),
    /// The socket is no longer there.
    Gone,
}
