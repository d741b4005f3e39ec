//! The four-tuple that identifies a connection.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// Both ends of a flow, from the view of the local end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FourTuple {
    /// Address of this end: the destination of received packets.
    pub local_addr: IpAddr,
    /// Address of the other end: the source of received packets.
    pub remote_addr: IpAddr,
    /// Port of this end.
    pub local_port: u16,
    /// Port of the other end.
    pub remote_port: u16,
}

impl FourTuple {
    /// The flow between these ends.
    pub const fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { local_addr: local.ip(), remote_addr: remote.ip(), local_port: local.port(), remote_port: remote.port() }
    }

    /// The same flow as the other end sees it.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            local_addr: self.remote_addr,
            remote_addr: self.local_addr,
            local_port: self.remote_port,
            remote_port: self.local_port,
        }
    }

    /// The local end as a socket address.
    pub const fn local(&self) -> SocketAddr {
        SocketAddr::new(self.local_addr, self.local_port)
    }

    /// The remote end as a socket address.
    pub const fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.remote_addr, self.remote_port)
    }
}

/// `10.0.0.1:80 <- 10.0.0.2:4711`: local end first, arrow in the direction of received packets.
impl fmt::Display for FourTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <- {}", self.local(), self.remote())
    }
}

#[cfg(test)]
mod tests {
    use super::FourTuple;
    use std::string::ToString;

    #[test]
    fn display_and_reversal() {
        let tuple = FourTuple::new("10.0.0.1:80".parse().unwrap(), "10.0.0.2:4711".parse().unwrap());
        assert_eq!(tuple.to_string(), "10.0.0.1:80 <- 10.0.0.2:4711");
        assert_eq!(tuple.reversed().to_string(), "10.0.0.2:4711 <- 10.0.0.1:80");
        assert_eq!(tuple.reversed().reversed(), tuple);
    }
}
