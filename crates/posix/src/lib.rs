//! Linux-compatible sockets: a table of descriptors over the stack, with Linux's semantics and error numbers.
//!
//! [`Sockets`] is one process's table. Its methods are the system calls, for any thread; a failed call returns an
//! [`Errno`]. Numbers of options and flags are Linux's. The crate makes no system call of its own: threads sleep on the
//! platform's parker, so a program also runs on it under a model checker.
//!
//! A call that may block has two forms. `accept4`, `connect`, `recv`, `send`, `epoll_wait` and similar calls block the
//! calling thread. `try_accept`, `try_connect`, `try_receive`, `try_send`, `try_epoll_wait` make one attempt and return
//! [`Poll::Pending`] instead: for a caller that advances virtual time before the next attempt, such as the runner of
//! packet scripts.
//!
//! # Map
//!
//! | file | content |
//! |---|---|
//! | `descriptors.rs` | numbers, and the open file description that each refers to |
//! | `description.rs` | open file descriptions, shared by descriptors; when a socket closes |
//! | `lifecycle.rs`, `messages.rs`, `control.rs`, `options.rs`, `splice.rs`, `poll.rs`, `epoll/` | the calls |
//! | `tcp_socket.rs` (with `stream.rs`, `receive.rs`, `settings.rs`, `reports.rs`, `fast_open.rs`, `info.rs`), `udp_socket.rs` (with `groups.rs`) | sockets |
//! | `pipe.rs`, `zero_file.rs` | other kinds of files, for `splice` and `sendfile` |
//! | `wait_queue.rs`, `blocking.rs` | the waiters of a description, and blocking calls |
//! | `errno.rs`, `transfer.rs` | error numbers; the bytes of a write |
//!
//! # Locks
//!
//! In the order of [`sync::LockClass`]: `open-file` (the state of a socket; held while the stack opens, listens, shuts
//! down), `user-handle` (bytes taken from a connection and not read; held while more is received from the stack),
//! `wait-queue` and `descriptors` (held for one look-up, with no lock taken under them). No thread sleeps with one of
//! them.

#![forbid(unsafe_code)]

mod blocking;
mod control;
mod description;
mod descriptors;
mod epoll;
mod errno;
mod fast_open;
mod groups;
mod info;
mod lifecycle;
mod messages;
mod options;
mod pipe;
mod poll;
mod receive;
mod reports;
mod settings;
mod splice;
mod stream;
mod tcp_socket;
mod transfer;
mod udp_socket;
mod wait_queue;
mod zero_file;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;

use stack::{BindRefused, ConnectRefused, Stack};
use sync::{Lock, LockClass, LockKind, Platform};

pub use descriptors::{DescriptorNumbers, LowestFree};
pub use epoll::{EpollInterest, Reported};
pub use errno::Errno;
pub use groups::GroupRequest;
pub use info::{LinuxTcpInfo, state_number};
pub use messages::ReceivedMessage;
pub use options::{OptionValue, is_known};
pub use poll::PollFd;
pub use reports::{ErrorQueueEntry, Stamped};
pub use transfer::{MOST, Transfer};

use description::Description;
use descriptors::DescriptorTable;

/// The outcome of an attempt of a call: its result, or that a blocking descriptor would wait.
pub type CallProgress<T> = Poll<Result<T, Errno>>;

/// An immediate result.
fn now<T>(result: Result<T, Errno>) -> CallProgress<T> {
    Poll::Ready(result)
}

/// The descriptors of one process. Any thread. Descriptors that are open when it is dropped are closed.
pub struct Sockets<P: Platform> {
    stack: Stack<P>,
    table: DescriptorTable<P>,
    /// Files that `open` finds, with their length.
    disk: Lock<BTreeMap<String, usize>, P>,
    /// Held while an `epoll` instance begins to watch another.
    nesting: Lock<(), P>,
}

impl<P: Platform> Sockets<P> {
    /// A process over `stack` that takes the numbers of its descriptors from `numbers`.
    pub fn new(stack: Stack<P>, numbers: impl DescriptorNumbers + 'static) -> Self {
        let disk = Lock::new(LockKind::Blocking, LockClass::OpenFile, BTreeMap::new());
        let nesting = Lock::new(LockKind::Blocking, LockClass::OpenFile, ());
        Sockets { stack, table: DescriptorTable::new(Box::new(numbers)), disk, nesting }
    }

    /// The stack below.
    pub fn stack(&self) -> &Stack<P> {
        &self.stack
    }

    /// The description that `fd` refers to; it stays open as long as the caller holds it.
    fn file(&self, fd: i32) -> Result<Arc<Description<P>>, Errno> {
        self.table.get(fd)
    }

    /// Whether `fd` is open.
    pub fn is_open(&self, fd: i32) -> bool {
        self.file(fd).is_ok()
    }

    /// Descriptors that are open, in order.
    pub fn open_fds(&self) -> Vec<i32> {
        self.table.all().into_iter().map(|(fd, _)| fd).collect()
    }
}

/// The address that a socket uses on the wire: IPv4's for an IPv4-mapped one (RFC 4291 section 2.5.5.2).
///
/// # Errors
/// `EAFNOSUPPORT` for an address of another family than the socket's.
fn on_wire(v6: bool, address: SocketAddr) -> Result<SocketAddr, Errno> {
    match address {
        SocketAddr::V6(six) if v6 => {
            let mapped = six.ip().to_ipv4_mapped();
            Ok(mapped.map_or(address, |four| SocketAddr::new(four.into(), six.port())))
        }
        SocketAddr::V4(_) if !v6 => Ok(address),
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// An address on the wire in the form for the socket's user: the reverse of [`on_wire`].
fn as_seen(v6: bool, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(four) if v6 => SocketAddr::new(four.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}

/// Any address of a family.
fn unspecified(v6: bool) -> IpAddr {
    if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

impl From<BindRefused> for Errno {
    fn from(refused: BindRefused) -> Errno {
        match refused {
            BindRefused::InUse => Errno::EADDRINUSE,
            BindRefused::NotLocal => Errno::EADDRNOTAVAIL,
            BindRefused::NetworkDown => Errno::ENETDOWN,
            BindRefused::InHandler => Errno::EINVAL,
        }
    }
}

impl From<ConnectRefused> for Errno {
    fn from(refused: ConnectRefused) -> Errno {
        match refused {
            ConnectRefused::NoRoute => Errno::ENETUNREACH,
            ConnectRefused::NotAHost => Errno::ENETUNREACH,
            ConnectRefused::LoopbackSource => Errno::EINVAL,
            ConnectRefused::AddressInUse | ConnectRefused::NoPort => Errno::EADDRNOTAVAIL,
            ConnectRefused::NoBuffer => Errno::ENOBUFS,
            ConnectRefused::NetworkDown => Errno::ENETDOWN,
            ConnectRefused::Fault => Errno::ECONNABORTED,
            // A reason that this layer does not know: Linux's error for unspecified cases.
            _ => Errno::ENETUNREACH,
        }
    }
}
