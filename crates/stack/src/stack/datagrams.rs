//! The calls of datagram sockets: binding, groups, sending and receiving. Each is a call of the architecture, which
//! runs it in the socket's home.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pktbuf::PktBuf;
use sync::{Atomic, Ordering, Platform};

use super::{BindRefused, Stack};
use crate::deferred::DeferredEffects;
use crate::flow::UdpName;
use crate::ports::Transport;
use crate::socket::{Readiness, UdpShared};
use crate::udp_call::{UdpCall, UdpReply, UdpRequest};

impl<P: Platform> Stack<P> {
    /// Binds a datagram socket (port 0: any). Once it returns, the socket receives datagrams.
    ///
    /// # Errors
    /// See [`BindRefused`].
    pub fn bind_udp(&self, address: SocketAddr) -> Result<Arc<UdpShared<P>>, BindRefused> {
        let local = if address.ip().is_multicast() {
            // Once the group is joined, receives only datagrams to the group.
            let ports = &self.core.ports;
            ports.bind(Transport::Udp, &self.core.shared.secrets, address).map_err(|_| BindRefused::InUse)?
        } else {
            self.bind(Transport::Udp, address)?
        };
        let socket = UdpShared::new(local, self.core.datagrams.fetch_add(1, Ordering::Relaxed));
        self.udp(&socket, UdpRequest::Bind(socket.clone()));
        Ok(socket)
    }

    /// Makes a datagram socket receive datagrams to `group`: on the interface with this number or, if none is given, on
    /// that of the route to the group, or else on the first.
    ///
    /// # Errors
    /// See [`JoinRefused`].
    pub fn join_group(
        &self,
        socket: &UdpShared<P>,
        group: IpAddr,
        interface: Option<usize>,
    ) -> Result<(), JoinRefused> {
        let name = socket.name();
        let joined = self.at_tables(move |stack| stack.join_group_here(name, group, interface));
        joined.unwrap_or(Err(JoinRefused::Socket(udp::JoinError::Closed)))
    }

    fn join_group_here(&self, socket: UdpName, group: IpAddr, interface: Option<usize>) -> Result<(), JoinRefused> {
        let shared = &self.core.shared;
        let membership = self.membership(group, interface)?;
        match self.udp_named(socket, UdpRequest::Join(membership)) {
            UdpReply::Joined(joined) => joined.map_err(JoinRefused::Socket)?,
            _ => return Err(JoinRefused::Socket(udp::JoinError::Closed)),
        }
        let mut deferred = DeferredEffects::default();
        let mut context = shared.context(membership.interface.into(), &mut deferred);
        let joined = shared.addresses().join_group(&mut context, group);
        deferred.flush(shared.links());
        joined.map_err(|error| {
            self.udp_named(socket, UdpRequest::Leave(membership));
            JoinRefused::Interface(error)
        })
    }

    /// The opposite of [`Stack::join_group`].
    ///
    /// # Errors
    /// See [`JoinRefused`].
    pub fn leave_group(
        &self,
        socket: &UdpShared<P>,
        group: IpAddr,
        interface: Option<usize>,
    ) -> Result<(), JoinRefused> {
        let name = socket.name();
        let left = self.at_tables(move |stack| {
            let membership = stack.membership(group, interface)?;
            stack.leave_membership(name, membership).then_some(()).ok_or(JoinRefused::NotJoined(group))
        });
        left.unwrap_or(Err(JoinRefused::NotJoined(group)))
    }

    /// The interface of the route to `group` or, without one, the first: the one that [`Stack::join_group`] takes if none
    /// is given.
    pub fn group_interface(&self, group: IpAddr) -> Option<usize> {
        self.at_tables(move |stack| stack.membership(group, None).ok().map(|one| one.interface.into())).flatten()
    }

    fn membership(&self, group: IpAddr, interface: Option<usize>) -> Result<udp::Membership, JoinRefused> {
        let shared = &self.core.shared;
        let interface = interface
            .or_else(|| shared.routes().lookup(shared.links(), group).map(|(interface, _)| interface))
            .unwrap_or(0);
        if interface >= shared.links().interfaces().len() {
            return Err(JoinRefused::NoInterface);
        }
        Ok(udp::Membership { group, interface: interface as u16 })
    }

    /// Removes the socket from the group, and its interface too; whether it was in it.
    fn leave_membership(&self, socket: UdpName, membership: udp::Membership) -> bool {
        if !matches!(self.udp_named(socket, UdpRequest::Leave(membership)), UdpReply::Left(true)) {
            return false;
        }
        let (shared, mut deferred) = (&self.core.shared, DeferredEffects::default());
        let udp::Membership { group, interface } = membership;
        shared.addresses().leave_group(&mut shared.context(interface.into(), &mut deferred), group);
        deferred.flush(shared.links());
        true
    }

    /// Unbinds a datagram socket; queued datagrams are dropped, and its groups are left.
    pub fn unbind_udp(&self, socket: &UdpShared<P>) {
        if let UdpReply::Memberships(memberships) = self.udp(socket, UdpRequest::Memberships)
            && !memberships.is_empty()
        {
            let name = socket.name();
            self.at_tables(move |stack| {
                memberships.into_iter().for_each(|membership| _ = stack.leave_membership(name, membership));
            });
        }
        self.udp(socket, UdpRequest::Unbind);
        self.core.ports.release(Transport::Udp, socket.local());
    }

    /// Sends a datagram; returns the length of its payload.
    ///
    /// # Errors
    /// See [`udp::SendError`]; a destination without a route is [`udp::SendError::Unreachable`].
    pub fn send_udp(
        &self,
        socket: &UdpShared<P>,
        payload: PktBuf,
        to: Option<SocketAddr>,
    ) -> Result<usize, udp::SendError> {
        match self.udp(socket, UdpRequest::Send { payload, to }) {
            UdpReply::Sent(sent) => sent,
            _ => Err(udp::SendError::Closed),
        }
    }

    /// Takes the oldest datagram.
    ///
    /// # Errors
    /// See [`udp::ReceiveError`]; `WouldBlock` has cleared the readiness.
    pub fn receive_udp(&self, socket: &UdpShared<P>) -> Result<udp::ReceivedDatagram, udp::ReceiveError> {
        // A readable socket has its bit set: without it no call is made.
        if !socket.ready.get().contains(Readiness::READABLE) {
            return Err(udp::ReceiveError::WouldBlock);
        }
        match self.udp(socket, UdpRequest::Receive) {
            UdpReply::Received(received) => received,
            _ => Err(udp::ReceiveError::Closed),
        }
    }

    /// Fixes the peer of a datagram socket.
    ///
    /// # Errors
    /// See [`udp::SendError`].
    pub fn connect_udp(&self, socket: &UdpShared<P>, remote: SocketAddr) -> Result<(), udp::SendError> {
        let (name, local) = (socket.name(), socket.local().ip());
        let connected = self.at_tables(move |stack| stack.connect_udp_here((name, local), remote));
        connected.unwrap_or(Err(udp::SendError::Closed))
    }

    fn connect_udp_here(&self, (socket, local): (UdpName, IpAddr), remote: SocketAddr) -> Result<(), udp::SendError> {
        let (routes, links) = (self.core.shared.routes(), self.core.shared.links());
        let (interface, _) = routes.lookup(links, remote.ip()).ok_or(udp::SendError::Unreachable)?;
        if !links.may_leave(local, interface) {
            return Err(udp::SendError::LoopbackSource);
        }
        let source = links.source_by(interface, remote.ip()).ok_or(udp::SendError::Unreachable)?;
        match self.udp_named(socket, UdpRequest::Connect { remote, source }) {
            UdpReply::Connected(connected) => connected,
            _ => Err(udp::SendError::Closed),
        }
    }

    /// The end of a datagram socket that is its own: the address that it is bound to or, if that is none, the one that
    /// connecting has chosen for it.
    pub fn udp_local(&self, socket: &UdpShared<P>) -> SocketAddr {
        if !socket.local().ip().is_unspecified() {
            return socket.local();
        }
        match self.udp(socket, UdpRequest::Local) {
            UdpReply::Local(local) => local,
            _ => socket.local(),
        }
    }

    /// The peer that a datagram socket is connected to.
    pub fn udp_remote(&self, socket: &UdpShared<P>) -> Option<SocketAddr> {
        match self.udp(socket, UdpRequest::Remote) {
            UdpReply::Remote(remote) => remote,
            _ => None,
        }
    }

    /// Takes the error that the next call would report.
    pub fn take_udp_error(&self, socket: &UdpShared<P>) -> Option<udp::SendError> {
        match self.udp(socket, UdpRequest::TakeError) {
            UdpReply::Failure(error) => error,
            _ => None,
        }
    }

    /// Sets the time to live, or hop limit, of datagrams to hosts, 1 to 255.
    pub fn set_udp_ttl(&self, socket: &UdpShared<P>, ttl: u8) {
        self.udp(socket, UdpRequest::SetTtl(ttl));
    }

    /// See [`Stack::set_udp_ttl`].
    pub fn udp_ttl(&self, socket: &UdpShared<P>) -> u8 {
        match self.udp(socket, UdpRequest::Ttl) {
            UdpReply::Ttl(ttl) => ttl,
            _ => 0,
        }
    }

    /// Sets the time to live of datagrams to groups, 0 to 255: with 0 they do not leave the host, with 1 they do not
    /// leave the link.
    pub fn set_group_ttl(&self, socket: &UdpShared<P>, ttl: u8) {
        self.udp(socket, UdpRequest::SetGroupTtl(ttl));
    }

    /// See [`Stack::set_group_ttl`].
    pub fn group_ttl(&self, socket: &UdpShared<P>) -> u8 {
        match self.udp(socket, UdpRequest::GroupTtl) {
            UdpReply::Ttl(ttl) => ttl,
            _ => 0,
        }
    }

    /// Sets whether datagrams to IPv4 or IPv6 groups come back to this host if it is a member.
    pub fn set_group_loop(&self, socket: &UdpShared<P>, v6: bool, on: bool) {
        self.udp(socket, UdpRequest::SetGroupLoop { v6, on });
    }

    /// See [`Stack::set_group_loop`].
    pub fn group_loop(&self, socket: &UdpShared<P>, v6: bool) -> bool {
        matches!(self.udp(socket, UdpRequest::GroupLoop { v6 }), UdpReply::GroupLoop(true))
    }

    /// Sets how datagrams to IPv4 or IPv6 groups leave; `None`: by the route to the group.
    pub fn set_group_egress(&self, socket: &UdpShared<P>, v6: bool, egress: Option<udp::GroupEgress>) {
        self.udp(socket, UdpRequest::SetGroupEgress { v6, egress });
    }

    /// Sets from which IPv4 or IPv6 groups of the stack the socket receives without having joined them: from the
    /// all-hosts group unless set.
    pub fn set_others_groups(&self, socket: &UdpShared<P>, v6: bool, groups: udp::OthersGroups) {
        self.udp(socket, UdpRequest::SetOthersGroups { v6, groups });
    }

    /// Sets whether datagrams are sent without checksum, and whether they are taken without one over IPv6 (RFC 6936).
    pub fn set_checksum_free(&self, socket: &UdpShared<P>, sent: bool, taken: bool) {
        self.udp(socket, UdpRequest::SetChecksumFree { sent, taken });
    }

    fn udp(&self, socket: &UdpShared<P>, request: UdpRequest<P>) -> UdpReply {
        self.udp_named(socket.name(), request)
    }

    fn udp_named(&self, name: UdpName, request: UdpRequest<P>) -> UdpReply {
        self.active().udp(&mut UdpCall { name, request })
    }
}

/// Why a group could not be joined or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinRefused {
    /// The socket cannot.
    Socket(udp::JoinError),
    /// The interface cannot.
    Interface(ip::autoconf::TooManyGroups),
    /// There is no such interface.
    NoInterface,
    /// The socket is not in this group.
    NotJoined(IpAddr),
}

impl fmt::Display for JoinRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinRefused::Socket(error) => error.fmt(f),
            JoinRefused::Interface(error) => error.fmt(f),
            JoinRefused::NoInterface => {
                f.write_str("the stack has no such interface: give the address of one of its own")
            }
            JoinRefused::NotJoined(group) => write!(f, "the socket is not in {group}: there is nothing to leave"),
        }
    }
}

impl std::error::Error for JoinRefused {}
