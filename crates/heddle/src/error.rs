//! Errors: one enum per operation, with the address and the remedy in the message. Every type inside a variant is
//! public here, so that a caller can match on it. Each converts to an [`io::Error`] of the corresponding kind, except
//! those of a builder only. A message is complete: it includes that of an error inside, which `source` therefore does
//! not return again.
//!
//! ```
//! use heddle::{BindError, ConnectError, Interface, Stack, TcpListener, TcpStream, error::TcpError, mem};
//! use std::io;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (a, b) = mem::pair(mem::MemConfig::default());
//! # let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).build()?;
//! # let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
//! let _listener = TcpListener::bind(&server, "10.0.0.1:7")?;
//! let again = TcpListener::bind(&server, "10.0.0.1:7").map(drop);
//! assert!(matches!(again, Err(BindError::InUse(address)) if address.port() == 7));
//!
//! let error = TcpStream::connect(&client, "10.0.0.1:9").map(drop).unwrap_err();
//! assert!(matches!(error, ConnectError::Failed(_, TcpError::Refused)));
//! assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionRefused);
//! # Ok(())
//! # }
//! ```

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use stack::socket::handler::{IN_HANDLER, in_handler};
use stack::{Architecture, BindRefused};
use sync::Real;

pub use crate::address::ParseAddrError;
pub use crate::knob_files::KnobFileError;
pub use crate::ping::PingError;
pub use stack::stack::SwitchRefused;
pub use stack::{AddressError, ConnectRefused, ParseCidrError, ParseRouteError, SetKnobError, UnknownArchitecture};
pub use sync::{TooManyVersions, UnknownLockKind};
pub use tcp::Error as TcpError;
pub use tcp::congestion::UnknownKind as UnknownCongestionControl;
pub use tcp::knobs::KnobError;
pub use tcp::profile::UnknownProfile;

/// A stack cannot be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The architecture's name is unknown.
    Architecture(UnknownArchitecture),
    /// This device returned no queues: it is already in use.
    NoQueues(String),
    /// An interface uses a device, by number, that does not exist or that another interface has.
    Device(usize),
    /// An interface uses devices with different framing: Ethernet, FDDI, bare packets; this one, by number, differs from
    /// the first.
    Framing(usize),
    /// An address cannot be assigned to an interface.
    Address(IpAddr, AddressError),
    /// A lock that never waits was configured, but this architecture shares its locks between threads.
    NullLock(Architecture),
    /// A knob cannot be set to this value.
    Knob(KnobError),
    /// A directory of knobs cannot be used.
    KnobFile(KnobFileError),
    /// [`Builder::on_device_gone`](crate::Builder::on_device_gone) was given to a polled stack, which would never call
    /// it.
    DeviceGonePolled,
    /// The system refuses a thread for a queue pair of a device: there is no memory for its stack, or the process has
    /// reached its limit of threads.
    Thread(io::Error),
    /// There is no memory for a packet buffer, or their common limit is reached.
    NoBuffer,
}

impl BuildError {
    pub(crate) fn below(error: stack::StackError) -> Self {
        match error {
            stack::StackError::NoQueues(device) => BuildError::NoQueues(device),
            stack::StackError::Port(device) => BuildError::Device(device),
            stack::StackError::Framing(device) => BuildError::Framing(device),
            stack::StackError::Address(address, error) => BuildError::Address(address, error),
            stack::StackError::NullLock(arch) => BuildError::NullLock(arch),
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Architecture(error) => error.fmt(f),
            BuildError::NoQueues(device) => {
                write!(f, "device {device} has no queue left: it already belongs to another stack; open it again")
            }
            BuildError::Device(device) => {
                write!(
                    f,
                    "device {device} does not exist or has another interface already: give each interface devices of its own"
                )
            }
            BuildError::Framing(device) => write!(
                f,
                "device {device} cannot share an interface with the others: all carry Ethernet frames, or all FDDI frames, or all bare packets"
            ),
            BuildError::Address(address, error) => write!(f, "address {address} cannot be used: {error}"),
            BuildError::NullLock(arch) => write!(
                f,
                "the null lock does not exclude other threads, and {arch} shares its locks between threads: choose another kind of lock"
            ),
            BuildError::Knob(error) => error.fmt(f),
            BuildError::KnobFile(error) => error.fmt(f),
            BuildError::DeviceGonePolled => {
                f.write_str("a polled stack has no thread to call on_device_gone: call Polled::gone after each poll")
            }
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

impl Error for BuildError {}

impl From<UnknownArchitecture> for BuildError {
    fn from(error: UnknownArchitecture) -> Self {
        BuildError::Architecture(error)
    }
}

impl From<KnobError> for BuildError {
    fn from(error: KnobError) -> Self {
        BuildError::Knob(error)
    }
}

impl From<KnobFileError> for BuildError {
    fn from(error: KnobFileError) -> Self {
        BuildError::KnobFile(error)
    }
}

/// A route of a running stack cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteError {
    /// The string is not a route or the name of one.
    Parse(ParseRouteError),
    /// There is no such interface.
    NoInterface {
        /// The number that was given.
        interface: usize,
        /// How many the stack has; they are counted from 0.
        interfaces: usize,
    },
    /// There is no such route.
    NotFound(stack::RouteName),
}

impl From<ParseRouteError> for RouteError {
    fn from(error: ParseRouteError) -> Self {
        RouteError::Parse(error)
    }
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteError::Parse(error) => error.fmt(f),
            RouteError::NoInterface { interface, interfaces } => {
                write!(f, "there is no interface {interface}: give a number from 0 to {}", interfaces - 1)
            }
            RouteError::NotFound(name) => write!(f, "there is no route {name} to remove"),
        }
    }
}

impl Error for RouteError {}

/// A running stack keeps its architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetArchitectureError {
    /// The architecture's name is unknown.
    Unknown(UnknownArchitecture),
    /// The stack cannot be switched now, or not to this architecture.
    Refused(SwitchRefused),
}

impl From<SwitchRefused> for SetArchitectureError {
    fn from(refused: SwitchRefused) -> Self {
        SetArchitectureError::Refused(refused)
    }
}

impl fmt::Display for SetArchitectureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetArchitectureError::Unknown(unknown) => unknown.fmt(f),
            SetArchitectureError::Refused(refused) => refused.fmt(f),
        }
    }
}

impl Error for SetArchitectureError {}

/// A socket cannot be bound to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindError {
    /// The string is not an address.
    BadAddress(ParseAddrError),
    /// Another socket of this stack has the address, or no port is left.
    InUse(SocketAddr),
    /// The address is not one of this stack's.
    NotLocal(SocketAddr),
    /// Every device that could receive packets for the address has vanished.
    NetworkDown(SocketAddr),
    /// The calling thread runs a handler, which must not call the stack.
    InHandler(SocketAddr),
}

impl BindError {
    pub(crate) fn new(address: SocketAddr, refused: BindRefused) -> Self {
        match refused {
            BindRefused::InUse => BindError::InUse(address),
            BindRefused::NotLocal => BindError::NotLocal(address),
            BindRefused::NetworkDown => BindError::NetworkDown(address),
            BindRefused::InHandler => BindError::InHandler(address),
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::BadAddress(error) => error.fmt(f),
            BindError::InUse(address) => {
                write!(f, "{address} is in use by another socket of this stack: close it or choose another port")
            }
            BindError::NotLocal(address) => {
                write!(f, "{address} is not an address of this stack: bind one of its own, or 0.0.0.0 or [::]")
            }
            BindError::NetworkDown(address) => {
                write!(f, "{address}: network down: the device was removed; open it again")
            }
            BindError::InHandler(address) => write!(f, "{address}: {IN_HANDLER}"),
        }
    }
}

impl Error for BindError {}

impl From<ParseAddrError> for BindError {
    fn from(error: ParseAddrError) -> Self {
        BindError::BadAddress(error)
    }
}

impl From<BindError> for io::Error {
    fn from(error: BindError) -> Self {
        let kind = match error {
            BindError::BadAddress(_) => io::ErrorKind::InvalidInput,
            BindError::InUse(_) => io::ErrorKind::AddrInUse,
            BindError::NotLocal(_) => io::ErrorKind::AddrNotAvailable,
            BindError::NetworkDown(_) => io::ErrorKind::NetworkDown,
            BindError::InHandler(_) => io::ErrorKind::Deadlock,
        };
        io::Error::new(kind, error)
    }
}

/// A connection cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The string is not an address.
    BadAddress(ParseAddrError),
    /// The stack refused the attempt.
    Refused(SocketAddr, ConnectRefused),
    /// There is more [first data](crate::Connect::first_data) than an open accepts.
    DataTooLong {
        /// Bytes that were given.
        len: usize,
        /// The most bytes that are accepted.
        most: usize,
    },
    /// The attempt failed.
    Failed(SocketAddr, TcpError),
    /// The caller's timeout has passed.
    TimedOut(SocketAddr),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::BadAddress(error) => error.fmt(f),
            ConnectError::Refused(address, refused) => write!(f, "{address}: {refused}"),
            ConnectError::DataTooLong { len, most } => {
                write!(
                    f,
                    "{len} bytes do not fit a connection that is being opened: give at most {most}, write the rest"
                )
            }
            ConnectError::Failed(address, error) => write!(f, "{address}: {error}"),
            ConnectError::TimedOut(address) => {
                write!(f, "{address}: no answer within the time-out: check that the host is up, and the address")
            }
        }
    }
}

impl Error for ConnectError {}

impl From<ParseAddrError> for ConnectError {
    fn from(error: ParseAddrError) -> Self {
        ConnectError::BadAddress(error)
    }
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        let kind = match &error {
            ConnectError::BadAddress(_) | ConnectError::DataTooLong { .. } => io::ErrorKind::InvalidInput,
            ConnectError::Refused(_, ConnectRefused::NotAHost | ConnectRefused::LoopbackSource) => {
                io::ErrorKind::InvalidInput
            }
            ConnectError::Refused(_, ConnectRefused::AddressInUse) => io::ErrorKind::AddrInUse,
            ConnectError::Refused(_, ConnectRefused::NetworkDown) => io::ErrorKind::NetworkDown,
            ConnectError::Refused(_, ConnectRefused::Fault) => io::ErrorKind::ConnectionAborted,
            ConnectError::Refused(_, ConnectRefused::InHandler) => io::ErrorKind::Deadlock,
            ConnectError::Refused(..) => io::ErrorKind::AddrNotAvailable,
            ConnectError::Failed(_, error) => kind(*error),
            ConnectError::TimedOut(_) => io::ErrorKind::TimedOut,
        };
        io::Error::new(kind, error)
    }
}

/// No connection can be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptError {
    /// None waits, and the listener does not block (or its timeout has passed).
    WouldBlock(SocketAddr),
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcceptError::WouldBlock(address) => write!(f, "no connection waits at {address}: try again when ready"),
        }
    }
}

impl Error for AcceptError {}

impl From<AcceptError> for io::Error {
    fn from(error: AcceptError) -> Self {
        io::Error::new(io::ErrorKind::WouldBlock, error)
    }
}

/// TCP's error as an error kind of the standard library.
pub(crate) fn kind(error: TcpError) -> io::ErrorKind {
    match error {
        TcpError::Refused => io::ErrorKind::ConnectionRefused,
        TcpError::Reset => io::ErrorKind::ConnectionReset,
        TcpError::TimedOut => io::ErrorKind::TimedOut,
        TcpError::Aborted => io::ErrorKind::ConnectionAborted,
        TcpError::Unanswered => io::ErrorKind::TimedOut,
        TcpError::HostUnreachable => io::ErrorKind::HostUnreachable,
        TcpError::NetworkUnreachable => io::ErrorKind::NetworkUnreachable,
        TcpError::NetworkDown => io::ErrorKind::NetworkDown,
        TcpError::NotConnected => io::ErrorKind::NotConnected,
        TcpError::Shutdown => io::ErrorKind::BrokenPipe,
        TcpError::WouldBlock => io::ErrorKind::WouldBlock,
        TcpError::InvalidOption => io::ErrorKind::InvalidInput,
        TcpError::NoBuffer => io::ErrorKind::OutOfMemory,
        _ => io::ErrorKind::Other,
    }
}

/// Whether the calling thread may sleep, and call the stack: not if it runs a handler. Asked before a wait, before the lock
/// of a handle, and where a call has failed.
#[inline]
pub(crate) fn may_wait() -> io::Result<()> {
    if in_handler::<Real>() { Err(io::Error::new(io::ErrorKind::Deadlock, IN_HANDLER)) } else { Ok(()) }
}

/// TCP's error on a connection to `peer`.
pub(crate) fn on_connection(peer: SocketAddr, error: TcpError) -> io::Error {
    io::Error::new(kind(error), ConnectionError { peer, error })
}

/// The error of a connection that was given up after a panic in the stack.
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
            None => write!(f, "{}: the stack panicked in this connection and reset it", self.peer),
        }
    }
}

impl Error for GivenUp {}

/// The cause of the [`io::Error`] that a call on a connection returns.
///
/// ```
/// use heddle::error::{ConnectionError, TcpError};
/// use heddle::{Stack, TcpListener, TcpStream};
/// use std::io::Read;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let stack = Stack::builder().build()?;
/// let listener = TcpListener::bind(&stack, "127.0.0.1:0")?;
/// let mut stream = TcpStream::connect(&stack, listener.local_addr()?)?;
/// stream.set_nonblocking(true)?;
/// let error = stream.read(&mut [0; 8]).unwrap_err();
/// let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<ConnectionError>());
/// assert_eq!(cause.map(ConnectionError::error), Some(TcpError::WouldBlock));
/// assert_eq!(cause.map(ConnectionError::peer), Some(listener.local_addr()?));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    peer: SocketAddr,
    error: TcpError,
}

impl ConnectionError {
    /// The other end of the connection.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// TCP's error.
    pub fn error(&self) -> TcpError {
        self.error
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.peer, self.error)
    }
}

impl Error for ConnectionError {}
