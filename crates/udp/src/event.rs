//! Events of a UDP socket, as values: user calls (RFC 768 "user interface", RFC 1122 section 4.1.4) and arrivals from
//! the network.

use core::net::{IpAddr, SocketAddr};

use observe::{Counter, DropReason};
use pktbuf::PktBuf;

use crate::output;
use crate::pcb::{LEAST_RECEIVE_LIMIT, MAX_MEMBERSHIPS, Membership, PendingError};
use crate::{JoinError, OutgoingDatagram, ReceiveError, ReceivedDatagram, SendError, UdpOutbox, UdpPcb, UdpReadiness};

/// Something that happens to a socket. UDP has no timers, so no event needs to know the time.
pub trait UdpEvent {
    /// The result of the event.
    type Reply;
    /// Runs the event.
    fn run(self, pcb: &mut UdpPcb, out: &mut UdpOutbox<'_>) -> Self::Reply;
}

/// A datagram arrives for the socket. The reply is the reason if it was dropped, to be counted by the caller.
#[derive(Debug)]
pub struct DatagramArrives(pub ReceivedDatagram);

impl UdpEvent for DatagramArrives {
    type Reply = Result<(), DropReason>;

    fn run(self, pcb: &mut UdpPcb, out: &mut UdpOutbox<'_>) -> Self::Reply {
        let Self(datagram) = self;
        if pcb.closed {
            return Err(DropReason::UdpNoSocket);
        }
        if pcb.remote.is_some_and(|remote| remote != datagram.source) {
            return Err(DropReason::UdpWrongPeer);
        }
        if datagram.without_checksum && datagram.destination.is_ipv6() && !pcb.accept_without_checksum {
            return Err(DropReason::UdpNoChecksum);
        }
        if out.memory_short && pcb.held() >= LEAST_RECEIVE_LIMIT {
            return Err(DropReason::UdpMemoryShort);
        }
        let was_empty = pcb.queue.is_empty();
        pcb.enqueue(datagram)?;
        out.counters.increment(Counter::DatagramsIn);
        if was_empty {
            out.ready |= UdpReadiness::READABLE;
        }
        Ok(())
    }
}

/// The user sends a datagram. The reply is the payload's length in bytes.
#[derive(Debug)]
pub struct SendTo {
    /// The payload, with headroom for all headers.
    pub payload: PktBuf,
    /// The destination; `None`: the connected peer.
    pub to: Option<SocketAddr>,
    /// The source address chosen by routing; a bound socket's own address takes precedence.
    pub source: IpAddr,
}

impl UdpEvent for SendTo {
    type Reply = Result<usize, SendError>;

    fn run(self, pcb: &mut UdpPcb, out: &mut UdpOutbox<'_>) -> Self::Reply {
        if pcb.closed {
            return Err(SendError::Closed);
        }
        if let Some(error) = pcb.error.take() {
            return Err(error.into());
        }
        let to = self.to.or(pcb.remote).ok_or(SendError::NoDestination)?;
        if to.port() == 0 || to.ip().is_unspecified() {
            return Err(SendError::BadDestination);
        }
        let (local, egress) = (pcb.local.ip(), pcb.group_egress(to.ip()));
        let routed = egress.and_then(|egress| egress.source).map_or(self.source, IpAddr::V4);
        let src = if local.is_unspecified() || local.is_multicast() { routed } else { local };
        let len = self.payload.len();
        let from = SocketAddr::new(src, pcb.local.port());
        let checksum = match (pcb.omit_checksum, out.offload) {
            (true, _) => output::Checksumming::None,
            (false, true) => output::Checksumming::Device,
            (false, false) => output::Checksumming::Here,
        };
        let buf = output::emit(self.payload, from, to, checksum)?;
        out.counters.increment(Counter::DatagramsOut);
        let loops = if to.is_ipv4() { pcb.loop_v4 } else { pcb.loop_v6 };
        let (ttl, loops) = if to.ip().is_multicast() { (pcb.group_ttl, loops) } else { (pcb.ttl, false) };
        let interface = egress.map(|egress| egress.interface);
        out.datagrams.push(OutgoingDatagram { buf, src, dst: to.ip(), tos: pcb.tos, ttl, loops, interface });
        Ok(len)
    }
}

impl From<PendingError> for SendError {
    fn from(error: PendingError) -> Self {
        match error {
            PendingError::Refused => Self::Refused,
            PendingError::Unreachable => Self::Unreachable,
            PendingError::PathTooNarrow { mtu } => Self::PathTooNarrow { mtu },
        }
    }
}

/// The user takes the oldest datagram.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveFrom;

impl UdpEvent for ReceiveFrom {
    type Reply = Result<ReceivedDatagram, ReceiveError>;

    fn run(self, pcb: &mut UdpPcb, _out: &mut UdpOutbox<'_>) -> Self::Reply {
        match pcb.error {
            Some(PendingError::Refused) => {
                pcb.error = None;
                return Err(ReceiveError::Refused);
            }
            Some(PendingError::Unreachable) => {
                pcb.error = None;
                return Err(ReceiveError::Unreachable);
            }
            // Does not concern a receiver; it is kept for the next send.
            Some(PendingError::PathTooNarrow { .. }) | None => {}
        }
        let empty = if pcb.closed { ReceiveError::Closed } else { ReceiveError::WouldBlock };
        pcb.dequeue().ok_or(empty)
    }
}

/// Takes the error that the next call would report (`SO_ERROR`).
#[derive(Clone, Copy, Debug)]
pub struct UdpTakeError;

impl UdpEvent for UdpTakeError {
    type Reply = Option<SendError>;

    fn run(self, pcb: &mut UdpPcb, _out: &mut UdpOutbox<'_>) -> Self::Reply {
        pcb.error.take().map(SendError::from)
    }
}

/// The user joins a group.
#[derive(Clone, Copy, Debug)]
pub struct JoinGroup(pub Membership);

impl UdpEvent for JoinGroup {
    /// # Errors
    /// See [`JoinError`].
    type Reply = Result<(), JoinError>;

    fn run(self, pcb: &mut UdpPcb, _out: &mut UdpOutbox<'_>) -> Self::Reply {
        let Self(membership) = self;
        let group = membership.group;
        if pcb.closed {
            return Err(JoinError::Closed);
        }
        if !group.is_multicast() {
            return Err(JoinError::NotAGroup(group));
        }
        if pcb.memberships.contains(&membership) {
            return Err(JoinError::Joined(group));
        }
        if pcb.memberships.len() >= MAX_MEMBERSHIPS {
            return Err(JoinError::TooMany);
        }
        pcb.memberships.push(membership);
        Ok(())
    }
}

/// The user leaves a group. The reply is whether the socket was in it.
#[derive(Clone, Copy, Debug)]
pub struct LeaveGroup(pub Membership);

impl UdpEvent for LeaveGroup {
    type Reply = bool;

    fn run(self, pcb: &mut UdpPcb, _out: &mut UdpOutbox<'_>) -> Self::Reply {
        let Self(membership) = self;
        let before = pcb.memberships.len();
        pcb.memberships.retain(|other| *other != membership);
        pcb.memberships.len() < before
    }
}

/// The user sets the peer: datagrams from others are dropped from now on, and errors about the peer are reported.
/// Queued datagrams from others are dropped, or the first receive could return one.
#[derive(Clone, Copy, Debug)]
pub struct UdpConnect {
    /// The peer.
    pub remote: SocketAddr,
    /// The address that routing chose; becomes the local address of a socket that has none.
    pub source: IpAddr,
}

impl UdpEvent for UdpConnect {
    type Reply = Result<(), SendError>;

    fn run(self, pcb: &mut UdpPcb, out: &mut UdpOutbox<'_>) -> Self::Reply {
        let Self { remote, source } = self;
        if pcb.closed {
            return Err(SendError::Closed);
        }
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(SendError::BadDestination);
        }
        if remote.is_ipv4() != pcb.local.is_ipv4() {
            return Err(SendError::FamilyMismatch { source: pcb.local.ip(), destination: remote.ip() });
        }
        if pcb.local.ip().is_unspecified() {
            pcb.local.set_ip(source);
        }
        pcb.remote = Some(remote);
        pcb.error = None;
        for _ in 0..pcb.queue.len() {
            match pcb.dequeue() {
                Some(datagram) if datagram.source != remote => out.counters.count_drop(DropReason::UdpWrongPeer),
                Some(datagram) => pcb.enqueue(datagram).unwrap_or_else(|reason| out.counters.count_drop(reason)),
                None => break,
            }
        }
        Ok(())
    }
}

/// The user removes the peer: datagrams from all hosts are accepted again.
#[derive(Clone, Copy, Debug)]
pub struct Disconnect;

impl UdpEvent for Disconnect {
    type Reply = ();

    fn run(self, pcb: &mut UdpPcb, _out: &mut UdpOutbox<'_>) {
        pcb.remote = None;
        pcb.error = None;
    }
}

/// An ICMP error about a datagram from this socket to `remote`. Only a connected socket gets it: another one could not
/// know which of its datagrams is meant (RFC 1122 section 4.1.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpIcmpError {
    /// The peer's host has no such port.
    Refused {
        /// Destination of the quoted datagram.
        remote: SocketAddr,
    },
    /// The peer's host or network could not be reached. This may be transient: the error is reported, the socket stays
    /// connected.
    Unreachable {
        /// Destination of the quoted datagram.
        remote: SocketAddr,
    },
    /// The datagram did not fit the path.
    PacketTooBig {
        /// Destination of the quoted datagram.
        remote: SocketAddr,
        /// The size that fits, in bytes with the IP header.
        mtu: u32,
    },
}

impl UdpEvent for UdpIcmpError {
    type Reply = Result<(), DropReason>;

    fn run(self, pcb: &mut UdpPcb, out: &mut UdpOutbox<'_>) -> Self::Reply {
        let (remote, error) = match self {
            Self::Refused { remote } => (remote, PendingError::Refused),
            Self::Unreachable { remote } => (remote, PendingError::Unreachable),
            Self::PacketTooBig { remote, mtu } => (remote, PendingError::PathTooNarrow { mtu }),
        };
        if pcb.closed || pcb.remote != Some(remote) {
            return Err(DropReason::IcmpNoConnection);
        }
        pcb.error = Some(error);
        out.ready |= UdpReadiness::ERROR | UdpReadiness::READABLE | UdpReadiness::WRITABLE;
        Ok(())
    }
}

/// The user closes the socket; the queue is dropped.
#[derive(Clone, Copy, Debug)]
pub struct UdpClose;

impl UdpEvent for UdpClose {
    type Reply = ();

    fn run(self, pcb: &mut UdpPcb, out: &mut UdpOutbox<'_>) {
        pcb.closed = true;
        out.counters.count_drops(DropReason::UdpNoSocket, pcb.queue.len() as u64);
        while pcb.dequeue().is_some() {}
        out.ready |= UdpReadiness::CLOSED | UdpReadiness::READABLE;
    }
}
