//! Errors of user calls.

use core::fmt;
use core::net::IpAddr;

/// Why a datagram cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The payload exceeds the limit of one datagram.
    TooLong {
        /// Bytes given.
        len: usize,
        /// Most bytes of one datagram.
        most: usize,
    },
    /// The socket is not connected and no destination was given.
    NoDestination,
    /// The destination has port 0 or an unspecified address.
    BadDestination,
    /// Source and destination are of different address families.
    FamilyMismatch {
        /// The address the socket sends from.
        source: IpAddr,
        /// The requested address.
        destination: IpAddr,
    },
    /// The socket sends from a loopback address, and the destination is another host's.
    LoopbackSource,
    /// The connected peer refused an earlier datagram. Reported once.
    Refused,
    /// The connected peer could not be reached by an earlier datagram. Reported once.
    Unreachable,
    /// The interface to the destination has been removed.
    NetworkDown,
    /// An earlier datagram did not fit the path. Reported once.
    PathTooNarrow {
        /// The path MTU, in bytes with the IP header.
        mtu: u32,
    },
    /// The socket is closed.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { len, most } => {
                write!(f, "a datagram of {len} bytes is too long; send at most {most}")
            }
            Self::NoDestination => f.write_str("the socket is not connected; connect it or give a destination"),
            Self::BadDestination => f.write_str("the destination has no address or no port; give both"),
            Self::FamilyMismatch { source, destination } => {
                write!(f, "{destination} cannot be reached from {source}; use a socket of the destination's family")
            }
            Self::LoopbackSource => {
                f.write_str("a loopback address reaches no other host; bind the socket to another address")
            }
            Self::Refused => f.write_str("the peer has no socket at that port; check that its program is running"),
            Self::Unreachable => f.write_str("the peer could not be reached; check address and route"),
            Self::NetworkDown => f.write_str("network down: the interface has vanished; open the device again"),
            Self::PathTooNarrow { mtu } => {
                write!(f, "an earlier datagram exceeded the path's {mtu} bytes; send shorter ones or allow fragments")
            }
            Self::Closed => f.write_str("the socket is closed; open another"),
        }
    }
}

impl core::error::Error for SendError {}

/// Why a socket cannot join a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// The address is not a group.
    NotAGroup(IpAddr),
    /// The socket is in the group already.
    Joined(IpAddr),
    /// The socket is in [`MAX_MEMBERSHIPS`](crate::MAX_MEMBERSHIPS) groups.
    TooMany,
    /// The socket is closed.
    Closed,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAGroup(address) => write!(f, "{address} is no group; give a multicast address"),
            Self::Joined(group) => write!(f, "the socket is in {group} already; leave it first"),
            Self::TooMany => {
                write!(f, "the socket is in {} groups; leave one, or open another socket", crate::MAX_MEMBERSHIPS)
            }
            Self::Closed => f.write_str("the socket is closed; open another"),
        }
    }
}

impl core::error::Error for JoinError {}

/// Why no datagram can be received now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveError {
    /// Nothing has arrived: wait for [`UdpReadiness::READABLE`](crate::UdpReadiness::READABLE).
    WouldBlock,
    /// The connected peer refused an earlier datagram. Reported once.
    Refused,
    /// The connected peer could not be reached by an earlier datagram. Reported once.
    Unreachable,
    /// The socket is closed.
    Closed,
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WouldBlock => "no datagram has arrived; wait until the socket is readable",
            Self::Refused => "the peer has no socket at that port; check that its program is running",
            Self::Unreachable => "the peer could not be reached; check address and route",
            Self::Closed => "the socket is closed; open another",
        })
    }
}

impl core::error::Error for ReceiveError {}
