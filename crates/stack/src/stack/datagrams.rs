//! The calls of datagram sockets: binding, groups, sending. No cell is entered but to tell all of them of a socket.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pktbuf::PktBuf;
use sync::Platform;

use super::{BindRefused, Stack};
use crate::after::After;
use crate::call::Control;
use crate::ports::Transport;
use crate::socket::UdpShared;

impl<P: Platform> Stack<P> {
    /// Binds a datagram socket (port 0: any). Complete when every cell has its replica.
    ///
    /// # Errors
    /// See [`BindRefused`].
    pub fn bind_udp(&self, address: SocketAddr) -> Result<Arc<UdpShared<P>>, BindRefused> {
        let local = if address.ip().is_multicast() {
            // What is sent to the group, and nothing else (once it is joined).
            let ports = &self.core.ports;
            ports.bind(Transport::Udp, &self.core.shared.secrets, address).map_err(|_| BindRefused::InUse)?
        } else {
            self.bind(Transport::Udp, address)?
        };
        let socket = UdpShared::new(local);
        self.arch().control(Control::BindUdp(socket.clone()));
        Ok(socket)
    }

    /// Has a datagram socket receive what is sent to `group`: on the interface with this number or, if none is given, on
    /// the one that the route to the group leads to, else the first.
    ///
    /// # Errors
    /// See [`JoinRefused`].
    pub fn join_group(
        &self,
        socket: &UdpShared<P>,
        group: IpAddr,
        interface: Option<usize>,
    ) -> Result<(), JoinRefused> {
        let shared = &self.core.shared;
        let membership = self.membership(group, interface)?;
        socket.join(membership, &shared.counters).map_err(JoinRefused::Socket)?;
        let mut after = After::default();
        let joined = shared.join_group(membership.interface.into(), group, &mut after);
        after.perform(shared);
        joined.map_err(|error| {
            socket.leave(membership, &shared.counters);
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
        let membership = self.membership(group, interface)?;
        if !socket.leave(membership, &self.core.shared.counters) {
            return Err(JoinRefused::NotJoined(group));
        }
        self.forget_group(membership);
        Ok(())
    }

    fn membership(&self, group: IpAddr, interface: Option<usize>) -> Result<udp::Membership, JoinRefused> {
        let shared = &self.core.shared;
        let interface = interface.or_else(|| shared.route(group).map(|(interface, _)| interface)).unwrap_or(0);
        if interface >= shared.interfaces.len() {
            return Err(JoinRefused::NoInterface);
        }
        Ok(udp::Membership { group, interface: interface as u16 })
    }

    fn forget_group(&self, membership: udp::Membership) {
        let mut after = After::default();
        self.core.shared.leave_group(membership.interface.into(), membership.group, &mut after);
        after.perform(&self.core.shared);
    }

    /// Unbinds a datagram socket; what is queued is dropped, and the groups that it is in are left.
    pub fn unbind_udp(&self, socket: &Arc<UdpShared<P>>) {
        for membership in socket.memberships() {
            if socket.leave(membership, &self.core.shared.counters) {
                self.forget_group(membership);
            }
        }
        self.arch().control(Control::UnbindUdp(socket.clone()));
        socket.close(&self.core.shared.counters);
        self.core.ports.release(Transport::Udp, socket.local());
    }

    /// Sends a datagram; returns the length of its payload. No cell is entered.
    ///
    /// # Errors
    /// See [`udp::SendError`]; a destination without a route is [`udp::SendError::Unreachable`].
    pub fn send_udp(
        &self,
        socket: &UdpShared<P>,
        payload: PktBuf,
        to: Option<SocketAddr>,
    ) -> Result<usize, udp::SendError> {
        let shared = &self.core.shared;
        let destination = to.or(socket.remote()).ok_or(udp::SendError::NoDestination)?;
        let (interface, _) = shared.route(destination.ip()).ok_or(udp::SendError::Unreachable)?;
        if shared.is_down(interface) {
            return Err(udp::SendError::NetworkDown);
        }
        let source =
            shared.interfaces[interface].view.get().source_for(destination.ip()).ok_or(udp::SendError::Unreachable)?;
        let (length, datagrams) = socket.send(payload, to, source, &shared.counters)?;
        let mut after = After::default();
        for datagram in datagrams {
            let local = SocketAddr::new(datagram.src, socket.local().port());
            let hash = self.flow(local, SocketAddr::new(datagram.dst, destination.port())).hash;
            shared.send_datagram(datagram, hash, &shared.counters, &mut after);
        }
        after.perform(shared);
        Ok(length)
    }

    /// Fixes the peer of a datagram socket.
    ///
    /// # Errors
    /// See [`udp::SendError`].
    pub fn connect_udp(&self, socket: &UdpShared<P>, remote: SocketAddr) -> Result<(), udp::SendError> {
        let source = self.core.shared.source_for(remote.ip()).ok_or(udp::SendError::Unreachable)?;
        socket.connect(remote, source, &self.core.shared.counters)
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
