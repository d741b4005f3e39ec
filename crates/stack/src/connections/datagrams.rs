//! Events of datagram sockets: a datagram or an ICMP error arrives, a user calls.
//!
//! A socket has a home, chosen by its port ([`UdpName::home`](crate::flow::UdpName::home)): the place that keeps its
//! PCB, to which datagrams for the port and calls are passed. A queue of datagrams has one consuming end, so replicas
//! in every cell would all need access to it. With a home it is used like a connection, without a lock of its own.

use std::net::{IpAddr, SocketAddr};

use ip::icmp::IcmpErrorKind;
use observe::DropReason;
use sync::Platform;
use udp::UdpEvent;
use wire::FourTuple;

use super::DatagramAccess;
use crate::call::ArrivingDatagram;
use crate::deferred::DeferredEffects;
use crate::route_cache::RouteCache;
use crate::shared::Shared;
use crate::socket::{Readiness, UdpShared};
use crate::udp_call::{UdpCall, UdpReply, UdpRequest};
use crate::udp_table::HeldSocket;

/// Datagram sockets; see the module documentation.
pub trait Datagrams: DatagramAccess {
    /// A datagram arrives.
    fn datagram(&mut self, datagram: ArrivingDatagram, deferred: &mut DeferredEffects<Self::Platform>) {
        let ArrivingDatagram { tuple, datagram, .. } = datagram;
        let mut arriving = Some(datagram);
        let taken = self.with_socket_for(&tuple, |mut held| {
            if let Some(datagram) = arriving.take() {
                match arrives(datagram, &mut held) {
                    Ok(()) => deferred.wake_datagrams(held.socket, Readiness::READABLE, held.writers),
                    Err(reason) => held.counters.count_drop(reason),
                }
            }
        });
        if taken.is_none()
            && let Some(datagram) = arriving
        {
            self.counters().count_drop(DropReason::UdpNoSocket);
            self.shared().egress().refuse(&datagram, ip::ErrorKind::PortUnreachable, self.counters(), deferred);
        }
    }

    /// An ICMP error about a datagram of ours.
    #[cold]
    fn datagram_error(&mut self, error: &ip::ReceivedIcmpError, deferred: &mut DeferredEffects<Self::Platform>) {
        let remote = SocketAddr::new(error.tuple.remote_addr, error.tuple.remote_port);
        let event = match error.kind {
            IcmpErrorKind::PacketTooBig { mtu } => {
                match self.shared().routes().estimate(
                    self.shared().links(),
                    error,
                    mtu,
                    self.shared().clock().batch_now(),
                ) {
                    Some(path) => udp::UdpIcmpError::PacketTooBig { remote, mtu: path.mtu.into() },
                    None => return self.counters().count_drop(DropReason::NoRoute),
                }
            }
            _ if error.is_refusal() => udp::UdpIcmpError::Refused { remote },
            _ => udp::UdpIcmpError::Unreachable { remote },
        };
        self.with_socket_for(&error.tuple, |held| match event.run(held.pcb, &mut udp::UdpOutbox::new(held.counters)) {
            Ok(()) => {
                let bits = Readiness::ERROR | Readiness::READABLE | Readiness::WRITABLE;
                deferred.wake_datagrams(held.socket, bits, held.writers);
            }
            Err(reason) => held.counters.count_drop(reason),
        });
    }

    /// Runs a user's call.
    fn udp_call(
        &mut self,
        call: &mut UdpCall<Self::Platform>,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> UdpReply {
        let UdpCall { name, request } = call.take();
        match request {
            UdpRequest::Bind(socket) => self.bind_socket(socket),
            UdpRequest::Unbind => self.unbind_socket(name),
            UdpRequest::Send { payload, to } => {
                let sent = self.with_socket(name, |held| send(held, payload, to, deferred));
                return UdpReply::Sent(sent.unwrap_or(Err(udp::SendError::Closed)));
            }
            other => return self.with_socket(name, |held| settled(other, held)).unwrap_or(UdpReply::Gone),
        }
        UdpReply::Done
    }
}

impl<L: DatagramAccess> Datagrams for L {}

/// A datagram arrives at its socket, header and all.
fn arrives<P: Platform>(datagram: ip::Datagram, held: &mut HeldSocket<'_, P>) -> Result<(), DropReason> {
    let ip::Datagram { buf, src, dst, tos, .. } = datagram;
    let datagram = udp::parse(buf, src, dst, tos, held.counters)?;
    let mut out = udp::UdpOutbox::new(held.counters);
    out.memory_short = held.shared.control().scarcity().memory() == tcp::Pressure::Severe;
    udp::DatagramArrives(datagram).run(held.pcb, &mut out)
}

/// SEND. A datagram leaves while its socket is held, as segments do, so that datagrams of one socket leave in the order
/// in which they were made. The route to the peer is looked up once for as long as routes and neighbours do not change.
fn send<P: Platform>(
    held: HeldSocket<'_, P>,
    payload: pktbuf::PktBuf,
    to: Option<SocketAddr>,
    deferred: &mut DeferredEffects<P>,
) -> Result<usize, udp::SendError> {
    let HeldSocket { pcb, routes, socket, counters, shared, writers } = held;
    let destination = to.or(pcb.remote).ok_or(udp::SendError::NoDestination)?;
    let mut route = routes.recall(destination.ip(), shared.routes().generation());
    let chosen = pcb.group_egress(destination.ip()).map(|egress| usize::from(egress.interface));
    let source = source(shared, &route, chosen, (pcb.local.ip(), destination.ip()))?;
    let mut out = udp::UdpOutbox::new(counters);
    let sent = udp::SendTo { payload, to, source }.run(pcb, &mut out);
    if sent.is_err() {
        error_reported(pcb, socket, writers);
    }
    for datagram in out.datagrams {
        let tuple = FourTuple {
            local_addr: datagram.src,
            local_port: socket.name().port,
            remote_addr: datagram.dst,
            remote_port: destination.port(),
        };
        shared.egress().send_datagram(datagram, &mut route, shared.egress().rss().hash_tcp(&tuple), counters, deferred);
    }
    routes.note(destination.ip(), &route);
    sent
}

/// A pending error may have been reported: a socket that was readable only because of it is not readable any more. The
/// caller holds the socket, so a later error or datagram raises readiness again.
fn error_reported<P: Platform>(pcb: &udp::UdpPcb, socket: &UdpShared<P>, writers: sync::Writers) {
    let now = pcb.readiness();
    if now.contains(udp::UdpReadiness::ERROR) {
        return;
    }
    let readable = now.contains(udp::UdpReadiness::READABLE);
    let over = if readable { Readiness::ERROR } else { Readiness::ERROR | Readiness::READABLE };
    socket.ready.clear_as(over, writers);
}

/// The source address for `destination` unless the socket has one (`local`), if it is reachable. `route` is the cached
/// route; `chosen` is the interface by which the user has it leave.
fn source<P: Platform>(
    shared: &Shared<P>,
    route: &RouteCache,
    chosen: Option<usize>,
    (local, destination): (IpAddr, IpAddr),
) -> Result<IpAddr, udp::SendError> {
    let known = route.leaves_by(shared.routes().generation()).and_then(|port| shared.links().interface_of(port));
    let looked_up = || shared.routes().lookup(shared.links(), destination).map(|(interface, _)| interface);
    let interface = chosen.or(known).or_else(looked_up).ok_or(udp::SendError::Unreachable)?;
    if shared.links().is_down(interface) {
        return Err(udp::SendError::NetworkDown);
    }
    if !shared.links().may_leave(local, interface) {
        return Err(udp::SendError::LoopbackSource);
    }
    shared.links().source_by(interface, destination).ok_or(udp::SendError::Unreachable)
}

/// A request that concerns the socket only.
fn settled<P: Platform>(request: UdpRequest<P>, held: HeldSocket<'_, P>) -> UdpReply {
    let HeldSocket { pcb, socket, counters, writers, .. } = held;
    let mut out = udp::UdpOutbox::new(counters);
    match request {
        UdpRequest::Receive => {
            let received = udp::ReceiveFrom.run(pcb, &mut out);
            // Cleared while the socket is held: a later arrival sets it again.
            match received {
                Err(udp::ReceiveError::WouldBlock) => socket.ready.clear_as(Readiness::READABLE, writers),
                Err(udp::ReceiveError::Refused | udp::ReceiveError::Unreachable) => {
                    error_reported(pcb, socket, writers);
                }
                _ => {}
            }
            return UdpReply::Received(received);
        }
        UdpRequest::Connect { remote, source } => {
            return UdpReply::Connected(udp::UdpConnect { remote, source }.run(pcb, &mut out));
        }
        UdpRequest::Join(membership) => return UdpReply::Joined(udp::JoinGroup(membership).run(pcb, &mut out)),
        UdpRequest::Leave(membership) => return UdpReply::Left(udp::LeaveGroup(membership).run(pcb, &mut out)),
        UdpRequest::Memberships => return UdpReply::Memberships(pcb.memberships().to_vec()),
        UdpRequest::Local => return UdpReply::Local(pcb.local),
        UdpRequest::Remote => return UdpReply::Remote(pcb.remote),
        UdpRequest::TakeError => {
            let error = udp::UdpTakeError.run(pcb, &mut out);
            error_reported(pcb, socket, writers);
            return UdpReply::Failure(error);
        }
        UdpRequest::Ttl => return UdpReply::Ttl(pcb.ttl),
        UdpRequest::SetTtl(ttl) => pcb.ttl = ttl,
        UdpRequest::GroupTtl => return UdpReply::Ttl(pcb.group_ttl),
        UdpRequest::SetGroupTtl(ttl) => pcb.group_ttl = ttl,
        UdpRequest::GroupLoop { v6 } => return UdpReply::GroupLoop(if v6 { pcb.loop_v6 } else { pcb.loop_v4 }),
        UdpRequest::SetGroupLoop { v6: false, on } => pcb.loop_v4 = on,
        UdpRequest::SetGroupLoop { v6: true, on } => pcb.loop_v6 = on,
        UdpRequest::SetGroupEgress { v6: false, egress } => pcb.egress_v4 = egress,
        UdpRequest::SetGroupEgress { v6: true, egress } => pcb.egress_v6 = egress,
        UdpRequest::SetOthersGroups { v6: false, groups } => pcb.others_v4 = groups,
        UdpRequest::SetOthersGroups { v6: true, groups } => pcb.others_v6 = groups,
        UdpRequest::SetChecksumFree { sent, taken } => {
            (pcb.omit_checksum, pcb.accept_without_checksum) = (sent, taken);
        }
        UdpRequest::Bind(_) | UdpRequest::Unbind | UdpRequest::Send { .. } => {
            debug_assert!(false, "a request that concerns more than the socket");
        }
    }
    UdpReply::Done
}
