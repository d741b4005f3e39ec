//! Calls that begin and end a socket's life: `socket`, `bind`, `listen`, `accept`, `connect`, `shutdown`, `close`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use stack::socket::Readiness;
use sync::Platform;

use crate::blocking::block;
use crate::description::{Description, OpenObject};
use crate::tcp_socket::{Accepted, TcpDescription};
use crate::udp_socket::UdpDescription;
use crate::wait_queue::{WaitQueue, bits};
use crate::{CallProgress, Errno, Sockets, as_seen, now};

impl<P: Platform> Sockets<P> {
    /// `socket(2)`. Supports the flags `SOCK_NONBLOCK` and `SOCK_CLOEXEC` in `kind`.
    ///
    /// # Errors
    /// `EAFNOSUPPORT`, `ESOCKTNOSUPPORT`, `EPROTONOSUPPORT`, `EMFILE`.
    pub fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Result<i32, Errno> {
        let v6 = match domain {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return Err(Errno::EAFNOSUPPORT),
        };
        let waiters = WaitQueue::new();
        let object = match (kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC), protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => OpenObject::Tcp(TcpDescription::new(v6, waiters.clone())),
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => OpenObject::Udp(UdpDescription::new(v6, waiters.clone())),
            (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => return Err(Errno::EPROTONOSUPPORT),
            _ => return Err(Errno::ESOCKTNOSUPPORT),
        };
        let status = (kind & libc::SOCK_NONBLOCK != 0, libc::O_RDWR);
        let file = Description::new(object, waiters, status, &self.stack);
        self.table.add(file, kind & libc::SOCK_CLOEXEC != 0, 0)
    }

    /// `bind(2)`.
    ///
    /// # Errors
    /// `EINVAL` if it is bound already, `EADDRINUSE`, `EADDRNOTAVAIL`, `EAFNOSUPPORT`.
    pub fn bind(&self, fd: i32, address: SocketAddr) -> Result<(), Errno> {
        match &self.file(fd)?.object {
            OpenObject::Tcp(socket) => socket.bind(&self.stack, address),
            OpenObject::Udp(socket) => socket.bind(&self.stack, address),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    /// `listen(2)`.
    ///
    /// # Errors
    /// `EINVAL` on a connected socket, `EADDRINUSE`, `EOPNOTSUPP`.
    pub fn listen(&self, fd: i32, backlog: i32) -> Result<(), Errno> {
        self.file(fd)?.tcp()?.listen(&self.stack, backlog)
    }

    /// One attempt of `accept4(2)`: the new descriptor and the peer. It is the last one if the time of the call has
    /// `expired`.
    pub fn try_accept(&self, fd: i32, flags: i32, expired: bool) -> CallProgress<(i32, SocketAddr)> {
        match self.file(fd) {
            Ok(file) => self.accept_of(&file, flags, expired),
            Err(error) => now(Err(error)),
        }
    }

    fn accept_of(&self, file: &Description<P>, flags: i32, expired: bool) -> CallProgress<(i32, SocketAddr)> {
        if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
            return now(Err(Errno::EINVAL));
        }
        let accepted = file.tcp().and_then(|socket| socket.accept(&self.stack));
        let Accepted { socket, waiters, peer } = match accepted {
            Ok(Some(accepted)) => accepted,
            Ok(None) if expired || file.is_nonblocking() => return now(Err(Errno::EAGAIN)),
            Ok(None) => return Poll::Pending,
            Err(error) => return now(Err(error)),
        };
        let peer = as_seen(socket.is_v6(), peer);
        // "On Linux, the new socket returned by accept() does not inherit file status flags such as O_NONBLOCK"
        // (accept(2)).
        let status = (flags & libc::SOCK_NONBLOCK != 0, libc::O_RDWR);
        let child = Description::new(OpenObject::Tcp(socket), waiters, status, &self.stack);
        for receives in [true, false] {
            child.set_timeout(receives, file.timeout(receives).unwrap_or_default());
        }
        now(self.table.add(child, flags & libc::SOCK_CLOEXEC != 0, 0).map(|child| (child, peer)))
    }

    /// `accept4(2)`: waits for a connection; the new descriptor and the peer.
    ///
    /// # Errors
    /// `EAGAIN`, `EBADF`, `EMFILE`; `EINVAL` for a socket that is not listening (any more).
    pub fn accept4(&self, fd: i32, flags: i32) -> Result<(i32, SocketAddr), Errno> {
        let file = self.file(fd)?;
        block(&file, bits::IN, file.timeout(true), |expired| self.accept_of(&file, flags, expired))
    }

    /// One attempt of `connect(2)`, the last one if the time of the call has `expired`. `None` is an address of family
    /// `AF_UNSPEC`: the connection is dissolved.
    pub fn try_connect(&self, fd: i32, address: Option<SocketAddr>, expired: bool) -> CallProgress<()> {
        match self.file(fd) {
            Ok(file) => self.connect_of(&file, address, expired),
            Err(error) => now(Err(error)),
        }
    }

    fn connect_of(&self, file: &Description<P>, address: Option<SocketAddr>, expired: bool) -> CallProgress<()> {
        match &file.object {
            OpenObject::Tcp(socket) => match socket.connect(&self.stack, address, expired || file.is_nonblocking()) {
                // The call that began it returns "EINPROGRESS (for connect(2))" when its time is over (socket(7)).
                Poll::Ready(Err(Errno::EALREADY)) if expired => now(Err(Errno::EINPROGRESS)),
                answer => answer,
            },
            OpenObject::Udp(socket) => now(socket.connect(&self.stack, address)),
            _ => now(Err(Errno::ENOTSOCK)),
        }
    }

    /// `connect(2)`: waits until the connection is established or has failed. After `SO_SNDTIMEO` opening continues, as
    /// if the descriptor did not block.
    ///
    /// # Errors
    /// `EINPROGRESS`, `EALREADY`, `EISCONN`, `ECONNREFUSED`, `ETIMEDOUT`, `ENETUNREACH` and other errors that end the
    /// attempt.
    pub fn connect(&self, fd: i32, address: Option<SocketAddr>) -> Result<(), Errno> {
        let file = self.file(fd)?;
        // "EALREADY: [...] a previous connection attempt has not yet been completed": another call's, which this one
        // only waits for.
        let joins = file.tcp().is_ok_and(TcpDescription::is_opening);
        block(&file, bits::OUT, file.timeout(false), |expired| match self.connect_of(&file, address, expired) {
            Poll::Ready(Err(Errno::EINPROGRESS)) if joins => now(Err(Errno::EALREADY)),
            answer => answer,
        })
    }

    /// `shutdown(2)`. It wakes threads that block in `accept`, `read` or `write`.
    ///
    /// # Errors
    /// `ENOTCONN`, `EINVAL`, `ENOTSOCK`.
    pub fn shutdown(&self, fd: i32, how: i32) -> Result<(), Errno> {
        self.file(fd)?.tcp()?.shutdown(&self.stack, how)
    }

    /// `close(2)`. The open file description ends with its last descriptor, but not before calls that other threads
    /// have begun on it: those continue, and none is woken. The call that ends a connection with a linger time
    /// (`SO_LINGER`) waits until the peer has acknowledged everything, for at most that time and whether the descriptor
    /// blocks or not, as on Linux; if a call of another thread lasts longer, there is no wait.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&self, fd: i32) -> Result<(), Errno> {
        self.table.remove(fd).map(end)
    }

    /// As [`Sockets::close`] without waiting, for a caller with virtual time: a linger time other than 0 has no effect.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close_at_once(&self, fd: i32) -> Result<(), Errno> {
        self.table.remove(fd).map(drop)
    }
}

/// A descriptor was removed, and perhaps its description ends with it; then waits according to `SO_LINGER`.
pub(crate) fn end<P: Platform>(file: Arc<Description<P>>) {
    let lingers = file.tcp().ok().and_then(TcpDescription::lingers);
    // Dropped in either case; dropping the last reference closes the connection.
    if let (Some(description), Some((connection, time))) = (Arc::into_inner(file), lingers) {
        drop(description);
        connection.ready.wait(Readiness::FLUSHED | Readiness::CLOSED | Readiness::ERROR, Some(time));
    }
}
