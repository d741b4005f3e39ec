//! Sockets as a Linux program knows them: a table of descriptors over the stack, with Linux's semantics and error numbers.
//!
//! A call that would block on a blocking descriptor returns [`Poll::Pending`]; its caller makes the same call again when
//! something may have happened, as the packet-script runner does after virtual time has passed. Numbers of options and
//! flags are Linux's. The crate makes no system call and stands on `stack` alone.

#![forbid(unsafe_code)]

mod epoll;
mod errno;
mod fast_open;
mod file;
mod info;
mod options;
mod receive;
mod reports;
mod tcp_socket;
mod transfer;
mod udp_socket;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::Poll;

use stack::{BindRefused, ConnectRefused, Stack};
use sync::Platform;

pub use epoll::{Interest, PollFd, Reported};
pub use errno::Errno;
pub use file::Pipe;
pub use info::TcpInfo;
pub use info::state_number;
pub use options::{OptionValue, is_known};
pub use reports::{Report, Stamped};
pub use tcp_socket::TcpSock;
pub use transfer::{MOST, Transfer};
pub use udp_socket::UdpSock;

use file::File;
use tcp_socket::Stage;

/// What a call that may block answers.
pub type Answer<T> = Poll<Result<T, Errno>>;

/// Answers at once.
fn now<T>(result: Result<T, Errno>) -> Answer<T> {
    Poll::Ready(result)
}

/// One process' descriptors.
pub struct Sockets<P: Platform> {
    stack: Stack<P>,
    files: BTreeMap<i32, Descriptor<P>>,
    /// Files that `open` finds, with their contents' length.
    disk: BTreeMap<String, usize>,
    lowest: i32,
}

struct Descriptor<P: Platform> {
    object: Object<P>,
    nonblocking: bool,
    /// The access mode of `F_GETFL`.
    access: i32,
}

enum Object<P: Platform> {
    Tcp(Box<TcpSock<P>>),
    Udp(UdpSock<P>),
    Epoll(epoll::Epoll),
    File(File),
}

impl<P: Platform> Sockets<P> {
    /// A process over `stack` whose first descriptor is `lowest` (3, where a program has three already).
    pub fn new(stack: Stack<P>, lowest: i32) -> Self {
        Sockets { stack, files: BTreeMap::new(), disk: BTreeMap::new(), lowest }
    }

    /// The stack below.
    pub fn stack(&self) -> &Stack<P> {
        &self.stack
    }

    fn add(&mut self, object: Object<P>, nonblocking: bool, access: i32) -> i32 {
        let fd = (self.lowest..).find(|fd| !self.files.contains_key(fd)).unwrap_or(i32::MAX);
        self.files.insert(fd, Descriptor { object, nonblocking, access });
        fd
    }

    fn file(&mut self, fd: i32) -> Result<&mut Descriptor<P>, Errno> {
        self.files.get_mut(&fd).ok_or(Errno::EBADF)
    }

    fn tcp(&mut self, fd: i32) -> Result<(&mut TcpSock<P>, bool, &Stack<P>), Errno> {
        let file = self.files.get_mut(&fd).ok_or(Errno::EBADF)?;
        match &mut file.object {
            Object::Tcp(sock) => Ok((sock, file.nonblocking, &self.stack)),
            Object::Udp(_) => Err(Errno::EOPNOTSUPP),
            Object::Epoll(_) | Object::File(_) => Err(Errno::ENOTSOCK),
        }
    }

    /// Whether `fd` is open.
    pub fn is_open(&self, fd: i32) -> bool {
        self.files.contains_key(&fd)
    }

    /// Descriptors that are open, in order.
    pub fn open_fds(&self) -> Vec<i32> {
        self.files.keys().copied().collect()
    }

    /// `socket(2)`.
    ///
    /// # Errors
    /// `EAFNOSUPPORT`, `ESOCKTNOSUPPORT`, `EPROTONOSUPPORT`.
    pub fn socket(&mut self, domain: i32, kind: i32, protocol: i32) -> Result<i32, Errno> {
        let v6 = match domain {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return Err(Errno::EAFNOSUPPORT),
        };
        let nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        let object = match (kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC), protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Object::Tcp(Box::new(TcpSock::new(v6))),
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Object::Udp(UdpSock::new(v6)),
            (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => return Err(Errno::EPROTONOSUPPORT),
            _ => return Err(Errno::ESOCKTNOSUPPORT),
        };
        Ok(self.add(object, nonblocking, libc::O_RDWR))
    }

    /// `bind(2)`.
    ///
    /// # Errors
    /// `EINVAL` if it is bound already, `EADDRINUSE`, `EADDRNOTAVAIL`, `EAFNOSUPPORT`.
    pub fn bind(&mut self, fd: i32, address: SocketAddr) -> Result<(), Errno> {
        let stack = self.stack.clone();
        match &mut self.file(fd)?.object {
            Object::Tcp(sock) => sock.bind(&stack, address),
            Object::Udp(sock) => sock.bind(&stack, address),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    /// `listen(2)`.
    ///
    /// # Errors
    /// `EINVAL` on a connected socket, `EADDRINUSE`, `EOPNOTSUPP`.
    pub fn listen(&mut self, fd: i32, backlog: i32) -> Result<(), Errno> {
        let (sock, _, stack) = self.tcp(fd)?;
        sock.listen(stack, backlog)
    }

    /// `accept4(2)`: the new descriptor and the peer.
    pub fn accept(&mut self, fd: i32, flags: i32) -> Answer<(i32, SocketAddr)> {
        let (sock, nonblocking, stack) = match self.tcp(fd) {
            Ok(found) => found,
            Err(error) => return now(Err(error)),
        };
        match sock.accept(stack) {
            Ok(Some((child, peer))) => {
                let peer = as_seen(child.is_v6(), peer);
                let object = Object::Tcp(Box::new(child));
                let child = self.add(object, flags & libc::SOCK_NONBLOCK != 0, libc::O_RDWR);
                now(Ok((child, peer)))
            }
            Ok(None) if nonblocking => now(Err(Errno::EAGAIN)),
            Ok(None) => Poll::Pending,
            Err(error) => now(Err(error)),
        }
    }

    /// `connect(2)`. `None` is an address of family `AF_UNSPEC`: the connection is given up.
    pub fn connect(&mut self, fd: i32, address: Option<SocketAddr>) -> Answer<()> {
        let stack = self.stack.clone();
        match self.file(fd) {
            Ok(Descriptor { object: Object::Tcp(sock), nonblocking, .. }) => {
                sock.connect(&stack, address, *nonblocking)
            }
            Ok(Descriptor { object: Object::Udp(sock), .. }) => now(sock.connect(&stack, address)),
            Ok(_) => now(Err(Errno::ENOTSOCK)),
            Err(error) => now(Err(error)),
        }
    }

    /// `recvfrom(2)`, `recv(2)` and `read(2)`: at most `max` octets, and who sent them.
    pub fn receive(&mut self, fd: i32, max: usize, flags: i32) -> Answer<(Vec<u8>, Option<SocketAddr>)> {
        let stack = self.stack.clone();
        let file = match self.file(fd) {
            Ok(file) => file,
            Err(error) => return now(Err(error)),
        };
        let nonblocking = file.nonblocking || flags & libc::MSG_DONTWAIT != 0;
        match &mut file.object {
            Object::Tcp(sock) => {
                sock.receive(&stack, max, flags, nonblocking).map(|done| done.map(|data| (data, None)))
            }
            Object::Udp(sock) => match sock.receive(&stack, max, flags) {
                Err(Errno::EAGAIN) if !nonblocking => Poll::Pending,
                received => now(received),
            },
            Object::File(file) => now(file.read(max).map(|data| (data, None))),
            Object::Epoll(_) => now(Err(Errno::EINVAL)),
        }
    }

    /// What the control message `TCP_CM_INQ` says after a receive, if `TCP_INQ` was set.
    pub fn waiting(&self, fd: i32) -> Option<i32> {
        match &self.files.get(&fd)?.object {
            Object::Tcp(sock) => sock.waiting(&self.stack),
            _ => None,
        }
    }

    /// `sendto(2)`, `send(2)` and `write(2)`. `transfer` keeps what was taken before the call had to wait.
    pub fn send(&mut self, fd: i32, transfer: &mut Transfer, flags: i32, to: Option<SocketAddr>) -> Answer<usize> {
        let stack = self.stack.clone();
        let file = match self.file(fd) {
            Ok(file) => file,
            Err(error) => return now(Err(error)),
        };
        let nonblocking = file.nonblocking || flags & libc::MSG_DONTWAIT != 0;
        match &mut file.object {
            Object::Tcp(sock) => sock.send(&stack, transfer, flags, nonblocking, to),
            Object::Udp(sock) => now(sock.send(&stack, transfer, to)),
            Object::File(file) => now(file.write(transfer)),
            Object::Epoll(_) => now(Err(Errno::EINVAL)),
        }
    }

    /// `shutdown(2)`.
    ///
    /// # Errors
    /// `ENOTCONN`, `EINVAL`, `ENOTSOCK`.
    pub fn shutdown(&mut self, fd: i32, how: i32) -> Result<(), Errno> {
        let (sock, _, stack) = self.tcp(fd)?;
        sock.shutdown(stack, how)
    }

    /// `close(2)`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&mut self, fd: i32) -> Result<(), Errno> {
        let file = self.files.remove(&fd).ok_or(Errno::EBADF)?;
        for other in self.files.values_mut() {
            if let Object::Epoll(epoll) = &mut other.object {
                epoll.forget(fd);
            }
        }
        match file.object {
            Object::Tcp(sock) => sock.close(&self.stack),
            Object::Udp(sock) => sock.close(&self.stack),
            Object::Epoll(_) | Object::File(_) => {}
        }
        Ok(())
    }

    /// `fcntl(2)`: `F_GETFL`, `F_SETFL`, `F_GETFD`, `F_SETFD`.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL`.
    pub fn fcntl(&mut self, fd: i32, command: i32, argument: i32) -> Result<i32, Errno> {
        let file = self.file(fd)?;
        match command {
            libc::F_GETFL => Ok(file.access | if file.nonblocking { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                file.nonblocking = argument & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }

    /// `ioctl(2)`: `SIOCINQ`, `SIOCOUTQ`, `SIOCOUTQNSD`; the number that it stores.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` for a listener, `ENOTTY` for a request that is not known.
    pub fn ioctl(&mut self, fd: i32, request: u64) -> Result<i32, Errno> {
        let stack = self.stack.clone();
        match &mut self.file(fd)?.object {
            Object::Tcp(sock) => sock.ioctl(&stack, request),
            _ => Err(Errno::ENOTTY),
        }
    }

    /// The local and the remote address of `fd`, as far as it has them.
    pub fn addresses(&self, fd: i32) -> (Option<SocketAddr>, Option<SocketAddr>) {
        match self.files.get(&fd).map(|file| &file.object) {
            Some(Object::Tcp(sock)) => sock.addresses(),
            Some(Object::Udp(sock)) => sock.addresses(),
            _ => (None, None),
        }
    }

    /// Whether `fd` is a socket of IPv6, which may exchange packets of IPv4 all the same.
    pub fn is_v6(&self, fd: i32) -> bool {
        match self.files.get(&fd).map(|file| &file.object) {
            Some(Object::Tcp(sock)) => sock.is_v6(),
            Some(Object::Udp(sock)) => sock.is_v6(),
            _ => false,
        }
    }

    /// Whether `fd` is a socket for datagrams.
    pub fn is_datagram(&self, fd: i32) -> bool {
        matches!(self.files.get(&fd), Some(Descriptor { object: Object::Udp(_), .. }))
    }

    /// Whether `fd` is a socket that listens.
    pub fn is_listening(&self, fd: i32) -> bool {
        matches!(self.files.get(&fd), Some(Descriptor { object: Object::Tcp(sock), .. })
            if matches!(sock.stage, Stage::Listener(_)))
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

/// An address on the wire as a socket's user sees it: the reverse of [`on_wire`].
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
        }
    }
}

impl From<ConnectRefused> for Errno {
    fn from(refused: ConnectRefused) -> Errno {
        match refused {
            ConnectRefused::NoRoute => Errno::ENETUNREACH,
            ConnectRefused::NotAHost => Errno::ENETUNREACH,
            ConnectRefused::OwnAddress => Errno::ECONNREFUSED,
            ConnectRefused::AddressInUse | ConnectRefused::NoPort => Errno::EADDRNOTAVAIL,
            ConnectRefused::NoBuffer => Errno::ENOBUFS,
            ConnectRefused::NetworkDown => Errno::ENETDOWN,
            ConnectRefused::Fault => Errno::ECONNABORTED,
        }
    }
}
