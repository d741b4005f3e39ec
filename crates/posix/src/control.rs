//! Calls on a descriptor that move no data: `fcntl`, `ioctl`, `dup`, `getsockname`, `getpeername`.

use std::net::SocketAddr;
use std::time::Duration;

use sync::Platform;

use crate::description::{Description, OpenObject};
use crate::lifecycle::end;
use crate::tcp_socket::Stage;
use crate::{Errno, Sockets, as_seen, unspecified};

/// The local and the remote address, as far as a socket has them.
type AddressPair = (Option<SocketAddr>, Option<SocketAddr>);

impl<P: Platform> Sockets<P> {
    /// `fcntl(2)`: `F_GETFL`, `F_SETFL`, `F_GETFD`, `F_SETFD`, `F_DUPFD`, `F_DUPFD_CLOEXEC`.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL`, `EMFILE`.
    pub fn fcntl(&self, fd: i32, command: i32, argument: i32) -> Result<i32, Errno> {
        let file = self.file(fd)?;
        match command {
            libc::F_GETFL => Ok(file.access | if file.is_nonblocking() { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                file.set_nonblocking(argument & libc::O_NONBLOCK != 0);
                Ok(0)
            }
            libc::F_GETFD => Ok(if self.table.close_on_exec(fd)? { libc::FD_CLOEXEC } else { 0 }),
            libc::F_SETFD => self.table.set_close_on_exec(fd, argument & libc::FD_CLOEXEC != 0).map(|()| 0),
            libc::F_DUPFD => self.table.add(file, false, argument),
            libc::F_DUPFD_CLOEXEC => self.table.add(file, true, argument),
            _ => Err(Errno::EINVAL),
        }
    }

    /// `dup(2)`: another descriptor for the same open file description, the lowest free one.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`.
    pub fn dup(&self, fd: i32) -> Result<i32, Errno> {
        self.table.add(self.file(fd)?, false, 0)
    }

    /// `dup3(2)`, and `dup2(2)` without flags for different numbers: makes `new` refer to the description of `fd`. The
    /// previous description of `new` is closed.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL` for equal numbers or a flag other than `O_CLOEXEC`.
    pub fn dup3(&self, fd: i32, new: i32, flags: i32) -> Result<i32, Errno> {
        if fd == new || flags & !libc::O_CLOEXEC != 0 {
            return Err(Errno::EINVAL);
        }
        let before = self.table.replace(new, self.file(fd)?, flags & libc::O_CLOEXEC != 0)?;
        before.into_iter().for_each(end);
        Ok(new)
    }

    /// `ioctl(2)`: `SIOCINQ`, `SIOCOUTQ`, `SIOCOUTQNSD`; the number that it stores.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` for a listener, `ENOTTY` for an unknown request.
    pub fn ioctl(&self, fd: i32, request: u64) -> Result<i32, Errno> {
        match &self.file(fd)?.object {
            OpenObject::Tcp(socket) => socket.ioctl(&self.stack, request),
            _ => Err(Errno::ENOTTY),
        }
    }

    /// The local and the remote address of `fd` on the wire, as far as it has them.
    pub fn addresses(&self, fd: i32) -> (Option<SocketAddr>, Option<SocketAddr>) {
        self.names(fd).map_or((None, None), |(_, addresses)| addresses)
    }

    /// `getsockname(2)`: the unspecified address and port 0 before the socket is bound.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`.
    pub fn getsockname(&self, fd: i32) -> Result<SocketAddr, Errno> {
        let (v6, (local, _)) = self.names(fd)?;
        Ok(as_seen(v6, local.unwrap_or(SocketAddr::new(unspecified(v6), 0))))
    }

    /// `getpeername(2)`.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`, `ENOTCONN`.
    pub fn getpeername(&self, fd: i32) -> Result<SocketAddr, Errno> {
        let (v6, (_, remote)) = self.names(fd)?;
        remote.map(|remote| as_seen(v6, remote)).ok_or(Errno::ENOTCONN)
    }

    /// Whether the socket is an IPv6 socket, and its addresses.
    fn names(&self, fd: i32) -> Result<(bool, AddressPair), Errno> {
        match &self.file(fd)?.object {
            OpenObject::Tcp(socket) => Ok((socket.is_v6(), socket.addresses())),
            OpenObject::Udp(socket) => Ok((socket.is_v6(), socket.addresses(&self.stack))),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    /// How long a receive or accept on `fd` may wait (`SO_RCVTIMEO`), or a send or connect (`SO_SNDTIMEO`); `None`: for
    /// ever.
    pub fn timeout(&self, fd: i32, receives: bool) -> Option<Duration> {
        self.file(fd).ok()?.timeout(receives)
    }

    /// Whether `fd` is an IPv6 socket, which may still exchange IPv4 packets.
    pub fn is_v6(&self, fd: i32) -> bool {
        self.names(fd).is_ok_and(|(v6, _)| v6)
    }

    /// Whether `fd` is a socket for datagrams.
    pub fn is_datagram(&self, fd: i32) -> bool {
        self.file(fd).is_ok_and(|file| matches!(file.object, OpenObject::Udp(_)))
    }

    /// Whether `fd` is a socket that listens.
    pub fn is_listening(&self, fd: i32) -> bool {
        let listens = |file: &Description<P>| match &file.object {
            OpenObject::Tcp(socket) => matches!(socket.lock().stage, Stage::Listener(_)),
            _ => false,
        };
        self.file(fd).is_ok_and(|file| listens(&file))
    }
}
