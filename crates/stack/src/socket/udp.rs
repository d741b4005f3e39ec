//! A datagram socket: the PCB with its queue behind one lock, shared by all replicas and all users.
//!
//! A datagram is run in the cell of its flow, which takes this lock for the length of an enqueue. Sending touches no
//! cell: a datagram has no state that must be ordered with it.

use std::net::SocketAddr;
use std::sync::Arc;

use observe::{Counters, DropReason};
use pktbuf::PktBuf;
use sync::{Lock, LockClass, LockKind, Platform};
use udp::{Event, Outgoing, UdpPcb};
use wire::FourTuple;

use super::readiness::{Pollable, Readiness, ReadyState};

/// What all replicas and handles of one datagram socket share. Any thread.
pub struct UdpShared<P: Platform> {
    /// Readiness, and who waits for it.
    pub ready: ReadyState<P>,
    local: SocketAddr,
    pcb: Lock<UdpPcb, P>,
}

impl<P: Platform> UdpShared<P> {
    /// A socket bound to `local`.
    pub fn new(local: SocketAddr) -> Arc<Self> {
        let pcb = Lock::new(LockKind::Blocking, LockClass::SocketBuffer, UdpPcb::new(local));
        let socket = Arc::new(UdpShared { ready: ReadyState::default(), local, pcb });
        socket.ready.restore(Readiness::WRITABLE);
        socket
    }

    /// The address it is bound to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The peer it is connected to.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.pcb.lock().remote
    }

    /// How well a datagram of this tuple fits: `None` not at all, larger is more specific.
    pub fn fits(&self, tuple: &FourTuple) -> Option<u8> {
        let source = SocketAddr::new(tuple.remote_addr, tuple.remote_port);
        let destination = SocketAddr::new(tuple.local_addr, tuple.local_port);
        self.pcb.lock().score(source, destination)
    }

    /// Takes a datagram in, header and all. The caller counts the reason of a drop, and raises readiness when no guard
    /// is held.
    ///
    /// # Errors
    /// Why the datagram was dropped.
    pub fn arrives(&self, datagram: ip::Datagram, counters: &Counters) -> Result<(), DropReason> {
        let ip::Datagram { buf, src, dst, tos, .. } = datagram;
        let datagram = udp::parse(buf, src, dst, tos, counters)?;
        let mut out = udp::Outbox::new(counters);
        udp::DatagramArrives(datagram).run(&mut self.pcb.lock(), &mut out)
    }

    /// Whether datagrams are sent without checksum, and whether they are taken without one over IPv6 (RFC 6936).
    pub fn set_checksum_free(&self, sent: bool, taken: bool) {
        let mut pcb = self.pcb.lock();
        (pcb.omit_checksum, pcb.accept_without_checksum) = (sent, taken);
    }

    /// Notes that the socket is in a group; the interface is another's business ([`Stack::join_group`](crate::Stack::join_group)).
    ///
    /// # Errors
    /// See [`udp::JoinError`].
    pub(crate) fn join(&self, membership: udp::Membership, counters: &Counters) -> Result<(), udp::JoinError> {
        udp::JoinGroup(membership).run(&mut self.pcb.lock(), &mut udp::Outbox::new(counters))
    }

    /// Notes that it is no longer; whether it was.
    pub(crate) fn leave(&self, membership: udp::Membership, counters: &Counters) -> bool {
        udp::LeaveGroup(membership).run(&mut self.pcb.lock(), &mut udp::Outbox::new(counters))
    }

    /// Groups that the socket is in.
    pub fn memberships(&self) -> Vec<udp::Membership> {
        self.pcb.lock().memberships().to_vec()
    }

    /// Time to live, or hop limit, of what is sent to hosts, 1 to 255.
    pub fn set_ttl(&self, ttl: u8) {
        self.pcb.lock().ttl = ttl;
    }

    /// See [`UdpShared::set_ttl`].
    pub fn ttl(&self) -> u8 {
        self.pcb.lock().ttl
    }

    /// The error that the next call would report, which reports it no more.
    pub fn take_error(&self, counters: &Counters) -> Option<udp::SendError> {
        let mut pcb = self.pcb.lock();
        let error = udp::TakeError.run(&mut pcb, &mut udp::Outbox::new(counters));
        // Inside the lock: an error that comes now raises it again.
        self.ready.clear(Readiness::ERROR);
        error
    }

    /// Time to live of what is sent to groups, 0 to 255: 0 does not leave the host, 1 does not leave the link.
    pub fn set_group_ttl(&self, ttl: u8) {
        self.pcb.lock().group_ttl = ttl;
    }

    /// See [`UdpShared::set_group_ttl`].
    pub fn group_ttl(&self) -> u8 {
        self.pcb.lock().group_ttl
    }

    /// An ICMP error about a datagram of ours has come; the caller raises readiness.
    ///
    /// # Errors
    /// Why it is of no concern.
    pub fn icmp_error(&self, error: udp::IcmpError, counters: &Counters) -> Result<(), DropReason> {
        error.run(&mut self.pcb.lock(), &mut udp::Outbox::new(counters))
    }

    /// Takes the oldest datagram.
    ///
    /// # Errors
    /// See [`udp::ReceiveError`]; `WouldBlock` has cleared the readiness.
    pub fn receive(&self, counters: &Counters) -> Result<udp::Datagram, udp::ReceiveError> {
        let mut pcb = self.pcb.lock();
        let received = udp::ReceiveFrom.run(&mut pcb, &mut udp::Outbox::new(counters));
        // Inside the lock: what comes now raises it again.
        match received {
            Err(udp::ReceiveError::WouldBlock) => self.ready.clear(Readiness::READABLE),
            Err(udp::ReceiveError::Refused | udp::ReceiveError::Unreachable) => self.ready.clear(Readiness::ERROR),
            _ => {}
        }
        received
    }

    /// Makes the datagram that carries `payload`: with its UDP header, ready for IP.
    ///
    /// # Errors
    /// See [`udp::SendError`].
    pub fn send(
        &self,
        payload: PktBuf,
        to: Option<SocketAddr>,
        source: std::net::IpAddr,
        counters: &Counters,
    ) -> Result<(usize, Vec<Outgoing>), udp::SendError> {
        let mut out = udp::Outbox::new(counters);
        let mut pcb = self.pcb.lock();
        let sent = udp::SendTo { payload, to, source }.run(&mut pcb, &mut out);
        if sent.is_err() && !pcb.readiness().contains(udp::Readiness::ERROR) {
            // It has been reported. Inside the lock: what comes now raises it again.
            self.ready.clear(Readiness::ERROR);
        }
        Ok((sent?, out.datagrams.into_vec()))
    }

    /// Fixes the peer.
    ///
    /// # Errors
    /// See [`udp::SendError`].
    pub fn connect(
        &self,
        remote: SocketAddr,
        source: std::net::IpAddr,
        counters: &Counters,
    ) -> Result<(), udp::SendError> {
        udp::Connect { remote, source }.run(&mut self.pcb.lock(), &mut udp::Outbox::new(counters))
    }

    /// Drops what is queued; nothing enters any more.
    pub fn close(&self, counters: &Counters) {
        udp::Close.run(&mut self.pcb.lock(), &mut udp::Outbox::new(counters));
    }
}

impl<P: Platform> Pollable<P> for UdpShared<P> {
    fn ready_state(&self) -> &ReadyState<P> {
        &self.ready
    }
}
