//! The effects of an event. The caller performs them once the PCB is no longer held.

use core::net::IpAddr;

use observe::Counters;
use pktbuf::PktBuf;
use smallvec::SmallVec;

/// Readiness of a socket as a set of bits, with the same values as TCP's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UdpReadiness(u16);

impl UdpReadiness {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// A datagram can be received.
    pub const READABLE: Self = Self(1);
    /// A datagram can be sent; always so until the socket is closed.
    pub const WRITABLE: Self = Self(2);
    /// The next call reports an error.
    pub const ERROR: Self = Self(32);
    /// The socket is closed.
    pub const CLOSED: Self = Self(64);

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether no bit is set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl core::ops::BitOr for UdpReadiness {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl core::ops::BitOrAssign for UdpReadiness {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// A datagram ready for IP.
#[derive(Debug)]
pub struct OutgoingDatagram {
    /// UDP header and payload, checksum done or left to the device.
    pub buf: PktBuf,
    /// Source address, part of the checksum.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// The destination is a group, and this host receives the datagram too if it is a member.
    pub loops: bool,
    /// The destination is a group, and the datagram leaves by this interface, whatever the routes are.
    pub interface: Option<u16>,
}

/// Effects of one event, and the resources that the event may use.
pub struct UdpOutbox<'c> {
    /// The counters of this thread.
    pub counters: &'c Counters,
    /// The device computes transport checksums.
    pub offload: bool,
    /// Memory is short in the stack: a receive queue grows to [`crate::LEAST_RECEIVE_LIMIT`] and no further.
    pub memory_short: bool,
    /// Datagrams to send, in order.
    pub datagrams: SmallVec<[OutgoingDatagram; 2]>,
    /// Readiness bits that rose.
    pub ready: UdpReadiness,
}

impl<'c> UdpOutbox<'c> {
    /// An empty outbox; checksums are computed here.
    pub fn new(counters: &'c Counters) -> Self {
        Self { counters, offload: false, memory_short: false, datagrams: SmallVec::new(), ready: UdpReadiness::NONE }
    }
}
