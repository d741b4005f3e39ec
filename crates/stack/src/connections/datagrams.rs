//! What happens to datagram sockets: a datagram or an ICMP error arrives, a user calls.
//!
//! A socket has a home, chosen by its port ([`UdpName::home`](crate::flow::UdpName::home)): the place that keeps its PCB, to
//! which datagrams for the port are brought and calls are made. A queue of datagrams has one end, where its user takes them,
//! so that replicas in every cell would have to meet in it again; with a home it is used like a connection, without a lock of
//! its own.

use std::net::{IpAddr, SocketAddr};

use ip::icmp::IcmpErrorKind;
use observe::{Counters, DropReason};
use sync::Platform;
use udp::{Event, UdpPcb};
use wire::FourTuple;

use crate::after::After;
use crate::call::Datagram;
use crate::flow::UdpName;
use crate::place::Place;
use crate::socket::Readiness;
use crate::udp_call::{UdpCall, UdpReply, UdpRequest};
use crate::udp_table::HeldSocket;

/// Datagram sockets; see the module documentation.
pub trait Datagrams: Place {
    /// A datagram arrives.
    fn datagram(&mut self, datagram: Datagram, after: &mut After<Self::Platform>) {
        let Datagram { tuple, datagram, .. } = datagram;
        let mut arriving = Some(datagram);
        let taken = self.with_socket_for(&tuple, |held| {
            if let Some(datagram) = arriving.take() {
                match arrives(datagram, held.pcb, held.counters) {
                    Ok(()) => after.wake_datagrams(held.socket, Readiness::READABLE),
                    Err(reason) => held.counters.drop(reason),
                }
            }
        });
        if taken.is_none()
            && let Some(datagram) = arriving
        {
            self.counters().drop(DropReason::UdpNoSocket);
            self.shared().refuse(&datagram, ip::ErrorKind::PortUnreachable, self.counters(), after);
        }
    }

    /// An ICMP error about a datagram of ours.
    #[cold]
    fn datagram_error(&mut self, error: &ip::IcmpError, after: &mut After<Self::Platform>) {
        let remote = SocketAddr::new(error.tuple.remote_addr, error.tuple.remote_port);
        let event = match error.kind {
            IcmpErrorKind::PacketTooBig { mtu } => {
                match self.shared().estimate(error, mtu, self.shared().batch_now()) {
                    Some(path) => udp::IcmpError::PacketTooBig { remote, mtu: path.mtu.into() },
                    None => return self.counters().drop(DropReason::NoRoute),
                }
            }
            _ if error.is_refusal() => udp::IcmpError::Refused { remote },
            _ => udp::IcmpError::Unreachable { remote },
        };
        self.with_socket_for(&error.tuple, |held| match event.run(held.pcb, &mut udp::Outbox::new(held.counters)) {
            Ok(()) => {
                after.wake_datagrams(held.socket, Readiness::ERROR | Readiness::READABLE | Readiness::WRITABLE);
            }
            Err(reason) => held.counters.drop(reason),
        });
    }

    /// Runs a user's call.
    fn udp_call(&mut self, call: &mut UdpCall<Self::Platform>, after: &mut After<Self::Platform>) -> UdpReply {
        let UdpCall { name, request } = call.take();
        match request {
            UdpRequest::Bind(socket) => self.bind_socket(socket),
            UdpRequest::Unbind => self.unbind_socket(name),
            UdpRequest::Send { payload, to } => return UdpReply::Sent(self.send_datagram(name, payload, to, after)),
            other => return self.with_socket(name, |held| settled(other, held)).unwrap_or(UdpReply::Gone),
        }
        UdpReply::Done
    }

    /// SEND. What the socket makes leaves when it is no longer held: datagrams have no order among threads that send.
    fn send_datagram(
        &mut self,
        name: UdpName,
        payload: pktbuf::PktBuf,
        to: Option<SocketAddr>,
        after: &mut After<Self::Platform>,
    ) -> Result<usize, udp::SendError> {
        let connected = || self.with_socket(name, |held| held.pcb.remote).flatten();
        let destination = to.or_else(connected).ok_or(udp::SendError::NoDestination)?;
        let source = self.source(destination.ip())?;
        let (sent, made) = self
            .with_socket(name, |held| {
                let mut out = udp::Outbox::new(held.counters);
                let sent = udp::SendTo { payload, to, source }.run(held.pcb, &mut out);
                if sent.is_err() && !held.pcb.readiness().contains(udp::Readiness::ERROR) {
                    // It has been reported. While the socket is held: what comes later raises it again.
                    held.socket.ready.clear(Readiness::ERROR);
                }
                (sent, out.datagrams)
            })
            .ok_or(udp::SendError::Closed)?;
        for datagram in made {
            let tuple = FourTuple {
                local_addr: datagram.src,
                local_port: name.port,
                remote_addr: datagram.dst,
                remote_port: destination.port(),
            };
            let shared = self.shared();
            shared.send_datagram(datagram, shared.rss.hash_tcp(&tuple), self.counters(), after);
        }
        sent
    }

    /// The address to send from to `destination`, if anything can be sent there.
    fn source(&self, destination: IpAddr) -> Result<IpAddr, udp::SendError> {
        let shared = self.shared();
        let (interface, _) = shared.route(destination).ok_or(udp::SendError::Unreachable)?;
        if shared.is_down(interface) {
            return Err(udp::SendError::NetworkDown);
        }
        shared.interfaces[interface].view.get().source_for(destination).ok_or(udp::SendError::Unreachable)
    }
}

impl<L: Place> Datagrams for L {}

/// A datagram arrives at its socket, header and all.
fn arrives(datagram: ip::Datagram, pcb: &mut UdpPcb, counters: &Counters) -> Result<(), DropReason> {
    let ip::Datagram { buf, src, dst, tos, .. } = datagram;
    let datagram = udp::parse(buf, src, dst, tos, counters)?;
    udp::DatagramArrives(datagram).run(pcb, &mut udp::Outbox::new(counters))
}

/// A request that concerns the socket and nothing else.
fn settled<P: Platform>(request: UdpRequest<P>, held: HeldSocket<'_, P>) -> UdpReply {
    let HeldSocket { pcb, socket, counters } = held;
    let mut out = udp::Outbox::new(counters);
    match request {
        UdpRequest::Receive => {
            let received = udp::ReceiveFrom.run(pcb, &mut out);
            // While the socket is held: what comes later raises it again.
            match received {
                Err(udp::ReceiveError::WouldBlock) => socket.ready.clear(Readiness::READABLE),
                Err(udp::ReceiveError::Refused | udp::ReceiveError::Unreachable) => {
                    socket.ready.clear(Readiness::ERROR);
                }
                _ => {}
            }
            return UdpReply::Received(received);
        }
        UdpRequest::Connect { remote, source } => {
            return UdpReply::Connected(udp::Connect { remote, source }.run(pcb, &mut out));
        }
        UdpRequest::Join(membership) => return UdpReply::Joined(udp::JoinGroup(membership).run(pcb, &mut out)),
        UdpRequest::Leave(membership) => return UdpReply::Left(udp::LeaveGroup(membership).run(pcb, &mut out)),
        UdpRequest::Memberships => return UdpReply::Memberships(pcb.memberships().to_vec()),
        UdpRequest::Remote => return UdpReply::Remote(pcb.remote),
        UdpRequest::TakeError => {
            let error = udp::TakeError.run(pcb, &mut out);
            socket.ready.clear(Readiness::ERROR);
            return UdpReply::Failure(error);
        }
        UdpRequest::Ttl => return UdpReply::Ttl(pcb.ttl),
        UdpRequest::SetTtl(ttl) => pcb.ttl = ttl,
        UdpRequest::GroupTtl => return UdpReply::Ttl(pcb.group_ttl),
        UdpRequest::SetGroupTtl(ttl) => pcb.group_ttl = ttl,
        UdpRequest::SetChecksumFree { sent, taken } => {
            (pcb.omit_checksum, pcb.accept_without_checksum) = (sent, taken);
        }
        UdpRequest::Bind(_) | UdpRequest::Unbind | UdpRequest::Send { .. } => {
            debug_assert!(false, "a request that concerns more than the socket");
        }
    }
    UdpReply::Done
}
