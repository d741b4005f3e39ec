//! Errors of calls on a connection: one sentence each, with the remedy where there is one.

use core::fmt;

/// Failure of a user call, or the reason for which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// The peer answered the SYN with a RST.
    Refused,
    /// The peer sent a RST.
    Reset,
    /// Retransmissions, keep-alive probes or the user time-out ran out.
    TimedOut,
    /// The connection was aborted on this side.
    Aborted,
    /// An ICMP error reported that the host cannot be reached.
    HostUnreachable,
    /// An ICMP error reported that the network cannot be reached.
    NetworkUnreachable,
    /// The interface to the peer has been removed, or the local address is no longer ours.
    NetworkDown,
    /// No answer, although data was retransmitted several times; retransmission continues (R1, RFC 9293 section 3.8.3).
    Unanswered,
    /// The connection is not (or no longer) established.
    NotConnected,
    /// This direction was shut down by an earlier close or shutdown.
    Shutdown,
    /// Nothing can be done now: wait for the readiness bit and call again.
    WouldBlock,
    /// An option has a value that the connection cannot take.
    InvalidOption,
    /// No packet buffer was left.
    NoBuffer,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Refused => "connection refused: no listener at the peer's port; check address and port",
            Error::Reset => "connection reset by the peer",
            Error::TimedOut => "connection timed out: the peer stopped answering; check the path to it",
            Error::Aborted => "connection aborted on this side",
            Error::HostUnreachable => "host unreachable: a router reported it; check the address and the route",
            Error::NetworkUnreachable => "network unreachable: a router reported it; check the route",
            Error::NetworkDown => "network down: the interface to the peer, or the address on it, has vanished; open the device again, or connect from another address",
            Error::Unanswered => "the peer does not answer, and is tried further: check the path to it",
            Error::NotConnected => "not connected: open the connection (again) first",
            Error::Shutdown => "this direction of the connection was shut down before; open a new connection",
            Error::WouldBlock => "not ready: wait for the socket to become readable or writable and call again",
            Error::InvalidOption => "the value of the option is out of range for this connection",
            Error::NoBuffer => "no packet buffer left: raise the buffer limit or close connections",
        })
    }
}

impl core::error::Error for Error {}
