//! The UDP protocol control block: both ends and the receive queue.
//!
//! The queue is bounded in memory, not in datagrams: each is charged the whole block it pins, so that datagrams of one
//! byte cannot hold a hundred times the limit. A datagram that does not fit is dropped; the queue stays (an application
//! waits for the oldest).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::VecDeque;

use observe::DropReason;
use pktbuf::PktBuf;

use crate::{ReceivedDatagram, UdpReadiness};

/// Memory that a socket's receive queue may hold by default, in bytes: some 250 full frames.
pub const DEFAULT_RECEIVE_LIMIT: usize = 512 << 10;

/// The limit of a socket's receive queue while memory is short, in bytes, as `udp_rmem_min` in Linux: a request still
/// gets its answer.
pub const LEAST_RECEIVE_LIMIT: usize = 4096;

/// Most groups of one socket (Linux's `igmp_max_memberships`).
pub const MAX_MEMBERSHIPS: usize = 20;
/// The all-hosts and all-nodes groups.
const ALL_HOSTS: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(224, 0, 0, 1), Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));

/// A group that a socket is in, on one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The group.
    pub group: IpAddr,
    /// Number of the interface.
    pub interface: u16,
}

/// The groups of this host from which a socket receives although it has not joined them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OthersGroups {
    /// None.
    None,
    /// The group that every host is in.
    #[default]
    AllHosts,
    /// All, also those that only other sockets have joined: Linux's `IP_MULTICAST_ALL` and `IPV6_MULTICAST_ALL`, which
    /// are on there unless cleared.
    All,
}

/// How datagrams to groups leave: by this interface, regardless of routes, and from this address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupEgress {
    /// Number of the interface.
    pub interface: u16,
    /// The source address of a socket that is not bound to one. `None`: that of the interface.
    pub source: Option<Ipv4Addr>,
}

/// An error that the next call reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingError {
    Refused,
    Unreachable,
    PathTooNarrow { mtu: u32 },
}

/// One UDP socket.
#[derive(Debug)]
pub struct UdpPcb {
    /// Our end; the unspecified address stands for every address of its family.
    pub local: SocketAddr,
    /// The peer of a connected socket.
    pub remote: Option<SocketAddr>,
    /// Type of service of datagrams sent.
    pub tos: u8,
    /// Time to live of datagrams sent.
    pub ttl: u8,
    /// Time to live of datagrams sent to groups: 1 unless set, so that they stay on the link (RFC 1112 section 6.1).
    pub group_ttl: u8,
    /// Datagrams sent to IPv4 groups that this host is in come back to it: on unless cleared (RFC 1112 section 6.1).
    pub loop_v4: bool,
    /// The same for IPv6 groups (RFC 3493 section 5.2).
    pub loop_v6: bool,
    /// How datagrams to IPv4 groups leave (RFC 1112 section 6.1). `None`: by the route to the group.
    pub egress_v4: Option<GroupEgress>,
    /// The same for IPv6 groups (RFC 3493 section 5.2).
    pub egress_v6: Option<GroupEgress>,
    /// The groups of IPv4 that this socket receives from without being in them.
    pub others_v4: OthersGroups,
    /// The same of IPv6.
    pub others_v6: OthersGroups,
    /// Send without checksum: Linux's `SO_NO_CHECK`, and over IPv6 `UDP_NO_CHECK6_TX`. Over IPv6 it is for tunnels
    /// whose payload has a checksum of its own (RFC 6936 section 4), and the receiver must allow it.
    pub omit_checksum: bool,
    /// Accept datagrams without checksum over IPv6, which are dropped otherwise (RFC 8200 section 8.1, RFC 6936 section
    /// 5): Linux's `UDP_NO_CHECK6_RX`. Over IPv4 they are always legal (RFC 768).
    pub accept_without_checksum: bool,
    pub(crate) queue: VecDeque<ReceivedDatagram>,
    pub(crate) held: usize,
    limit: usize,
    pub(crate) error: Option<PendingError>,
    pub(crate) closed: bool,
    pub(crate) memberships: Vec<Membership>,
}

impl UdpPcb {
    /// A socket bound to `local`, not connected.
    pub fn new(local: SocketAddr) -> Self {
        Self {
            local,
            remote: None,
            tos: 0,
            ttl: 64,
            group_ttl: 1,
            loop_v4: true,
            loop_v6: true,
            egress_v4: None,
            egress_v6: None,
            others_v4: OthersGroups::default(),
            others_v6: OthersGroups::default(),
            omit_checksum: false,
            accept_without_checksum: false,
            queue: VecDeque::new(),
            held: 0,
            limit: DEFAULT_RECEIVE_LIMIT,
            error: None,
            closed: false,
            memberships: Vec::new(),
        }
    }

    /// Bounds the memory of the receive queue, in bytes. Datagrams already queued stay.
    pub fn set_receive_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Memory that the receive queue pins, in bytes.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Datagrams in the receive queue.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// The level of every readiness bit.
    pub fn readiness(&self) -> UdpReadiness {
        let mut ready = UdpReadiness::NONE;
        if !self.queue.is_empty() || self.closed {
            ready |= UdpReadiness::READABLE;
        }
        if self.error.is_some() {
            ready |= UdpReadiness::ERROR | UdpReadiness::READABLE | UdpReadiness::WRITABLE;
        }
        ready |= if self.closed { UdpReadiness::CLOSED } else { UdpReadiness::WRITABLE };
        ready
    }

    /// How datagrams to `destination` leave, if that is a group and the user has chosen.
    pub fn group_egress(&self, destination: IpAddr) -> Option<GroupEgress> {
        let chosen = if destination.is_ipv4() { self.egress_v4 } else { self.egress_v6 };
        chosen.filter(|_| destination.is_multicast())
    }

    /// Groups that the socket is in.
    pub fn memberships(&self) -> &[Membership] {
        &self.memberships
    }

    /// Whether datagrams to `group`, which this host is in, are for this socket: it has joined the group, or receives
    /// without that.
    fn is_member(&self, group: IpAddr) -> bool {
        let (others, all_hosts) = match group {
            IpAddr::V4(group) => (self.others_v4, group == ALL_HOSTS.0),
            IpAddr::V6(group) => (self.others_v6, group == ALL_HOSTS.1),
        };
        let unasked = match others {
            OthersGroups::None => false,
            OthersGroups::AllHosts => all_hosts,
            OthersGroups::All => true,
        };
        unasked || self.memberships.iter().any(|membership| membership.group == group)
    }

    /// How well the socket matches a datagram, or `None` when it does not: exact addresses score higher than wildcards,
    /// and of all sockets of a port the one with the highest score receives. Datagrams to a group are for its members.
    pub fn score(&self, source: SocketAddr, destination: SocketAddr) -> Option<u8> {
        // `[::]` accepts both families, as a listener there does.
        let family = self.local.is_ipv6() || destination.is_ipv4();
        let wildcard = self.local.ip().is_unspecified() && family;
        let address = wildcard || self.local.ip() == destination.ip();
        if !address || self.local.port() != destination.port() {
            return None;
        }
        if destination.ip().is_multicast() && !self.is_member(destination.ip()) {
            return None;
        }
        let connected = match self.remote {
            Some(remote) if remote != source => return None,
            remote => remote.is_some(),
        };
        Some(u8::from(connected) * 2 + u8::from(!self.local.ip().is_unspecified()))
    }

    pub(crate) fn enqueue(&mut self, datagram: ReceivedDatagram) -> Result<(), DropReason> {
        let charge = charge(&datagram.buf);
        if self.held + charge > self.limit {
            return Err(DropReason::SocketQueueFull);
        }
        self.held += charge;
        self.queue.push_back(datagram);
        Ok(())
    }

    pub(crate) fn dequeue(&mut self) -> Option<ReceivedDatagram> {
        let datagram = self.queue.pop_front()?;
        self.held -= charge(&datagram.buf);
        Some(datagram)
    }
}

/// The whole block, regardless of the datagram's length.
fn charge(buf: &PktBuf) -> usize {
    buf.headroom() + buf.len() + buf.tailroom()
}
