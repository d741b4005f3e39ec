//! What can go wrong: one enum per operation, with the address in the message and the remedy beside it.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use stack::{BindRefused, ConnectRefused};

/// A stack cannot be built.
#[derive(Debug)]
pub enum BuildError {
    /// An interface address cannot be read.
    Cidr(String),
    /// A route cannot be read, or goes by a device that there is not.
    Route(String),
    /// The architecture's name is not known.
    Architecture(stack::UnknownPlan),
    /// The parts do not fit together.
    Stack(stack::BuildError),
    /// A knob cannot be set so.
    Knob(tcp::knobs::KnobError),
    /// A directory of knobs cannot be used.
    KnobFile(crate::knob_files::KnobFileError),
    /// The system gives no thread for a queue pair of a device: there is no memory for its stack, or the process may have no
    /// more threads.
    Thread(io::Error),
    /// There is no memory for a packet buffer, or none is left of the limit that was set for all of them.
    NoBuffer,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Cidr(message) | BuildError::Route(message) => f.write_str(message),
            BuildError::Architecture(error) => error.fmt(f),
            BuildError::Stack(error) => error.fmt(f),
            BuildError::Knob(error) => error.fmt(f),
            BuildError::KnobFile(error) => error.fmt(f),
            BuildError::Thread(error) => write!(
                f,
                "cannot start a receive thread ({error}): raise the limits of memory and of processes (`ulimit -v`, \
                 `ulimit -u`), or give the device fewer queues"
            ),
            BuildError::NoBuffer => f.write_str(
                "no memory for packet buffers: raise the limit of memory (`ulimit -v`), or the limit of packet buffers",
            ),
        }
    }
}

impl std::error::Error for BuildError {}

/// A socket cannot be bound to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindError {
    /// The text is not an address.
    BadAddress(String),
    /// Another socket of this stack has the address, or no port is left.
    InUse(SocketAddr),
    /// The address is not one of this stack's.
    NotLocal(SocketAddr),
    /// Every device that could bring anything to the address has vanished.
    NetworkDown(SocketAddr),
}

impl BindError {
    pub(crate) fn new(address: SocketAddr, refused: BindRefused) -> Self {
        match refused {
            BindRefused::InUse => BindError::InUse(address),
            BindRefused::NotLocal => BindError::NotLocal(address),
            BindRefused::NetworkDown => BindError::NetworkDown(address),
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::BadAddress(text) => write!(f, "{text:?} is not an address: write it as 10.0.0.1:80"),
            BindError::InUse(address) => {
                write!(f, "{address} is in use by another socket of this stack: close it or choose another port")
            }
            BindError::NotLocal(address) => {
                write!(f, "{address} is not an address of this stack: bind one of its own, or 0.0.0.0 or [::]")
            }
            BindError::NetworkDown(address) => {
                write!(f, "{address}: network down: the device has vanished; open it again")
            }
        }
    }
}

impl std::error::Error for BindError {}

impl From<BindError> for io::Error {
    fn from(error: BindError) -> Self {
        let kind = match error {
            BindError::BadAddress(_) => io::ErrorKind::InvalidInput,
            BindError::InUse(_) => io::ErrorKind::AddrInUse,
            BindError::NotLocal(_) => io::ErrorKind::AddrNotAvailable,
            BindError::NetworkDown(_) => io::ErrorKind::NetworkDown,
        };
        io::Error::new(kind, error)
    }
}

/// A connection cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectError {
    /// The text is not an address.
    BadAddress(String),
    /// The stack would not even try.
    Refused(SocketAddr, ConnectRefused),
    /// The attempt failed.
    Failed(SocketAddr, tcp::Error),
    /// It took longer than the caller would wait.
    TimedOut(SocketAddr),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::BadAddress(text) => write!(f, "{text:?} is not an address: write it as 10.0.0.1:80"),
            ConnectError::Refused(address, refused) => write!(f, "{address}: {}", remedy(*refused)),
            ConnectError::Failed(address, error) => write!(f, "{address}: {error}"),
            ConnectError::TimedOut(address) => {
                write!(f, "{address}: no answer in the time allowed: is the host up and the address right?")
            }
        }
    }
}

pub(crate) fn remedy(refused: ConnectRefused) -> &'static str {
    match refused {
        ConnectRefused::NoRoute => "no route: give the interface an address of this family, or a gateway",
        ConnectRefused::NotAHost => "a broadcast, group or unspecified address: connect to that of one host",
        ConnectRefused::OwnAddress => "the address is this stack's own, and it has no loopback: use a second stack",
        ConnectRefused::AddressInUse => "the local port already has a connection there: choose another port",
        ConnectRefused::NoPort => "every local port has a connection there: close some, or add an address",
        ConnectRefused::NetworkDown => "network down: the device that leads there has vanished; open it again",
        ConnectRefused::Fault => "the stack panicked over it, and goes on: Stack::failures says why",
        ConnectRefused::NoBuffer => "no packet buffer left: raise the buffer limit or close connections",
    }
}

impl std::error::Error for ConnectError {}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        let kind = match &error {
            ConnectError::BadAddress(_) => io::ErrorKind::InvalidInput,
            ConnectError::Refused(_, ConnectRefused::NotAHost) => io::ErrorKind::InvalidInput,
            ConnectError::Refused(_, ConnectRefused::AddressInUse) => io::ErrorKind::AddrInUse,
            ConnectError::Refused(_, ConnectRefused::NetworkDown) => io::ErrorKind::NetworkDown,
            ConnectError::Refused(_, ConnectRefused::Fault) => io::ErrorKind::ConnectionAborted,
            ConnectError::Refused(..) => io::ErrorKind::AddrNotAvailable,
            ConnectError::Failed(_, error) => kind(*error),
            ConnectError::TimedOut(_) => io::ErrorKind::TimedOut,
        };
        io::Error::new(kind, error)
    }
}

/// No connection can be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcceptError {
    /// None waits, and the listener does not block (or has waited as long as it may).
    WouldBlock(SocketAddr),
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcceptError::WouldBlock(address) => write!(f, "no connection waits at {address}: try again when ready"),
        }
    }
}

impl std::error::Error for AcceptError {}

impl From<AcceptError> for io::Error {
    fn from(error: AcceptError) -> Self {
        io::Error::new(io::ErrorKind::WouldBlock, error)
    }
}

/// TCP's reason as the standard library names it.
pub(crate) fn kind(error: tcp::Error) -> io::ErrorKind {
    match error {
        tcp::Error::Refused => io::ErrorKind::ConnectionRefused,
        tcp::Error::Reset => io::ErrorKind::ConnectionReset,
        tcp::Error::TimedOut => io::ErrorKind::TimedOut,
        tcp::Error::Aborted => io::ErrorKind::ConnectionAborted,
        tcp::Error::Unanswered => io::ErrorKind::TimedOut,
        tcp::Error::HostUnreachable => io::ErrorKind::HostUnreachable,
        tcp::Error::NetworkUnreachable => io::ErrorKind::NetworkUnreachable,
        tcp::Error::NetworkDown => io::ErrorKind::NetworkDown,
        tcp::Error::NotConnected => io::ErrorKind::NotConnected,
        tcp::Error::Shutdown => io::ErrorKind::BrokenPipe,
        tcp::Error::WouldBlock => io::ErrorKind::WouldBlock,
        tcp::Error::InvalidOption => io::ErrorKind::InvalidInput,
        tcp::Error::NoBuffer => io::ErrorKind::OutOfMemory,
        _ => io::ErrorKind::Other,
    }
}

/// TCP's reason on a connection to `peer`.
pub(crate) fn on_connection(peer: SocketAddr, error: tcp::Error) -> io::Error {
    io::Error::new(kind(error), OnConnection { peer, error })
}

/// A connection that was given up because the stack panicked over it.
pub(crate) fn given_up(peer: SocketAddr, failure: Option<stack::Failure>) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, GivenUp { peer, failure })
}

#[derive(Debug)]
struct GivenUp {
    peer: SocketAddr,
    failure: Option<stack::Failure>,
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            Some(failure) => write!(f, "{}: {failure}", self.peer),
            None => write!(f, "{}: the stack panicked over this connection and reset it", self.peer),
        }
    }
}

impl std::error::Error for GivenUp {}

#[derive(Debug)]
struct OnConnection {
    peer: SocketAddr,
    error: tcp::Error,
}

impl fmt::Display for OnConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.peer, self.error)
    }
}

impl std::error::Error for OnConnection {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
