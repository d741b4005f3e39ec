//! Echo requests: whether a host answers, and in what time.
//!
//! ```
//! use heddle::{Interface, Stack, mem};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (a, b) = mem::pair(mem::MemConfig::default());
//! # let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).build()?;
//! # let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
//! let answer = client.ping("10.0.0.1".parse()?, 1, 56, Duration::from_secs(10))?;
//! assert_eq!(answer.map(|pong| pong.len), Some(56));
//! # drop(server);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use stack::ConnectRefused;

use crate::builder::Stack;

/// The most data in an echo request, in bytes: an IPv4 datagram without its header and the request's.
pub const MAX_PING: usize = 65_535 - 20 - 8;

/// The answer to an echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// The address that answered.
    pub from: IpAddr,
    /// Bytes of data in the reply.
    pub len: usize,
    /// Time to live or hop limit of the answer.
    pub ttl: u8,
    /// From the request to the answer.
    pub round_trip: Duration,
}

/// An echo request cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PingError {
    /// The stack refused the attempt.
    Refused(IpAddr, ConnectRefused),
    /// More than [`MAX_PING`] bytes of data.
    TooLong(usize),
}

impl fmt::Display for PingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PingError::Refused(address, refused) => write!(f, "{address}: {refused}"),
            PingError::TooLong(len) => {
                write!(f, "an echo request of {len} bytes does not fit into a datagram: send at most {MAX_PING}")
            }
        }
    }
}

impl std::error::Error for PingError {}

impl From<PingError> for io::Error {
    fn from(error: PingError) -> Self {
        let kind = match error {
            PingError::Refused(..) => io::ErrorKind::AddrNotAvailable,
            PingError::TooLong(_) => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}

impl Stack {
    /// Sends an ICMP or ICMPv6 echo request (RFC 792, RFC 4443) with `len` bytes of data and waits for its answer for
    /// at most `timeout`; `None`: none came.
    ///
    /// # Errors
    /// See [`PingError`].
    pub fn ping(
        &self,
        destination: IpAddr,
        sequence: u16,
        len: usize,
        timeout: Duration,
    ) -> Result<Option<Pong>, PingError> {
        if len > MAX_PING {
            return Err(PingError::TooLong(len));
        }
        let answer = self.raw().ping(destination, sequence, len, timeout);
        let answer = answer.map_err(|refused| PingError::Refused(destination, refused))?;
        Ok(answer.map(|(reply, round_trip)| Pong { from: reply.from, len: reply.len, ttl: reply.ttl, round_trip }))
    }
}
