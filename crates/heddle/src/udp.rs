//! The user's handle of a datagram socket.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pktbuf::PktBuf;
use stack::JoinRefused;
use stack::socket::{Readiness, UdpShared};
use sync::{Atomic, Lock, LockClass, LockKind, OnceBox, Ordering, Platform, Real};

use crate::address::ToAddr;
use crate::builder::Stack;
use crate::error::{BindError, may_wait};
use crate::stream::hop_limit;
use crate::timeout::Timeout;

/// Sends and receives datagrams, like [`std::net::UdpSocket`]. Any number of threads may use it at once.
///
/// ```
/// use heddle::{Interface, Stack, UdpSocket, mem};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = mem::pair(mem::MemConfig::default());
/// # let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).build()?;
/// # let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
/// let service = UdpSocket::bind(&server, "10.0.0.1:53")?;
/// let socket = UdpSocket::bind(&client, "0.0.0.0:0")?;
/// socket.connect("10.0.0.1:53")?;
/// socket.send(b"question")?;
/// let mut buffer = [0; 1500];
/// let (len, from) = service.recv_from(&mut buffer)?;
/// assert_eq!(&buffer[..len], b"question");
/// service.send_to(b"answer", from)?;
/// let len = socket.recv(&mut buffer)?;
/// assert_eq!(&buffer[..len], b"answer");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct UdpSocket {
    inner: Arc<UdpInner>,
}

struct UdpInner {
    stack: Stack,
    socket: Arc<UdpShared<Real>>,
    nonblocking: <Real as Platform>::AtomicBool,
    read_timeout: Timeout,
    /// Sending does not wait; the value is kept only to be returned.
    write_timeout: Timeout,
    /// Whether datagrams may be sent to broadcast addresses.
    broadcast: <Real as Platform>::AtomicBool,
    /// Datagrams that were peeked and not taken, oldest first; allocated by the first peek.
    peeked: OnceBox<Lock<VecDeque<udp::ReceivedDatagram>, Real>>,
}

impl Drop for UdpInner {
    fn drop(&mut self) {
        self.socket.ready.deregister();
        self.stack.raw().unbind_udp(&self.socket);
    }
}

impl UdpSocket {
    /// Binds `address`; port 0 takes any free port.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(stack: &Stack, address: impl ToAddr) -> Result<UdpSocket, BindError> {
        let address = address.to_addr()?;
        let socket = stack.raw().bind_udp(address).map_err(|refused| BindError::new(address, refused))?;
        let inner = UdpInner {
            stack: stack.clone(),
            socket,
            nonblocking: Atomic::new(false),
            read_timeout: Timeout::default(),
            write_timeout: Timeout::default(),
            broadcast: Atomic::new(false),
            peeked: OnceBox::new(),
        };
        Ok(UdpSocket { inner: Arc::new(inner) })
    }

    /// The address it is bound to; once it is connected, the one that it sends from.
    ///
    /// # Errors
    /// None; as in [`std::net::UdpSocket`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.inner.stack.raw().udp_local(&self.inner.socket))
    }

    /// The peer it is connected to.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotConnected`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner
            .stack
            .raw()
            .udp_remote(&self.inner.socket)
            .ok_or_else(|| send_error(None, udp::SendError::NoDestination))
    }

    /// Another handle of the same socket, as from [`Clone`].
    ///
    /// # Errors
    /// None; as in [`std::net::UdpSocket`].
    pub fn try_clone(&self) -> io::Result<UdpSocket> {
        Ok(self.clone())
    }

    /// Fixes the peer: [`UdpSocket::send`] sends to it, datagrams of others are dropped, and errors about it are
    /// reported.
    ///
    /// # Errors
    /// No route, or an address of another family.
    pub fn connect(&self, peer: impl ToAddr) -> io::Result<()> {
        let peer = peer.to_addr()?;
        self.check_broadcast(peer)?;
        self.inner.stack.raw().connect_udp(&self.inner.socket, peer).map_err(|error| send_error(Some(peer), error))
    }

    /// Sends `data` as one datagram to `to`.
    ///
    /// # Errors
    /// Too long, no route, or the error of an earlier datagram.
    pub fn send_to(&self, data: &[u8], to: impl ToAddr) -> io::Result<usize> {
        let to = to.to_addr()?;
        self.transmit(data, Some(to))
    }

    /// Sends `data` as one datagram to the connected peer.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`], or not connected.
    pub fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.transmit(data, None)
    }

    fn transmit(&self, data: &[u8], to: Option<SocketAddr>) -> io::Result<usize> {
        if let Some(to) = to {
            self.check_broadcast(to)?;
        }
        // A buffer is allocated only if IP can carry the datagram at all.
        let most = udp::max_payload(to.unwrap_or(self.inner.socket.local()).ip());
        if data.len() > most {
            return Err(send_error(
                to.or(self.inner.stack.raw().udp_remote(&self.inner.socket)),
                udp::SendError::TooLong { len: data.len(), most },
            ));
        }
        let payload = PktBuf::from_slice(data).ok_or_else(|| {
            io::Error::new(io::ErrorKind::OutOfMemory, "no packet buffer for the datagram: send less, or wait")
        })?;
        let sent = self.inner.stack.raw().send_udp(&self.inner.socket, payload, to);
        sent.map_err(|error| send_error(to.or(self.inner.stack.raw().udp_remote(&self.inner.socket)), error))
    }

    /// A broadcast must be enabled first, as on other systems.
    fn check_broadcast(&self, to: SocketAddr) -> io::Result<()> {
        let ip = to.ip();
        if !ip.is_ipv4() || ip.is_multicast() || ip.is_unspecified() || self.inner.broadcast.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.inner.stack.raw().shared().links().may_be_host(ip) {
            return Ok(());
        }
        let message = format!("{to} is a broadcast address: allow it with set_broadcast(true) first");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }

    /// Receives one datagram; bytes that do not fit into `out` are lost. Returns its length and its sender.
    ///
    /// # Errors
    /// No datagram arrived in time, or the connected peer refused an earlier datagram.
    pub fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            if let Some(datagram) = self.try_receive()? {
                let length = datagram.buf.len().min(out.len());
                out[..length].copy_from_slice(&datagram.buf[..length]);
                return Ok((length, datagram.source));
            }
            self.wait()?;
        }
    }

    /// As [`UdpSocket::recv_from`], but the datagram stays, to be received again.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn peek_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            if let Some(seen) = self.try_peek(out)? {
                return Ok(seen);
            }
            self.wait()?;
        }
    }

    /// As [`UdpSocket::peek_from`]; `None`: there is no datagram now.
    pub(crate) fn try_peek(&self, out: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        let make = || Box::new(Lock::new(LockKind::Blocking, LockClass::UserHandle, VecDeque::new()));
        let mut peeked = self.inner.peeked.get_or_init(make).lock();
        if peeked.is_empty() {
            peeked.extend(self.try_receive_new()?);
        }
        let Some(datagram) = peeked.front() else { return Ok(None) };
        // The queue may be empty, but there is a peeked datagram.
        self.inner.socket.ready.restore(Readiness::READABLE);
        let length = datagram.buf.len().min(out.len());
        out[..length].copy_from_slice(&datagram.buf[..length]);
        Ok(Some((length, datagram.source)))
    }

    /// As [`UdpSocket::peek_from`], for a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
        self.peek_from(out).map(|(length, _)| length)
    }

    /// The oldest datagram; `None`: there is none now.
    pub(crate) fn try_receive(&self) -> io::Result<Option<udp::ReceivedDatagram>> {
        if let Some(peeked) = self.inner.peeked.get()
            && let Some(datagram) = peeked.lock().pop_front()
        {
            return Ok(Some(datagram));
        }
        self.try_receive_new()
    }

    /// The oldest datagram that was not peeked.
    fn try_receive_new(&self) -> io::Result<Option<udp::ReceivedDatagram>> {
        match self.inner.stack.raw().receive_udp(&self.inner.socket) {
            Ok(datagram) => Ok(Some(datagram)),
            Err(udp::ReceiveError::WouldBlock) => Ok(None),
            Err(error) => Err(receive_error(self.inner.socket.local(), error)),
        }
    }

    /// As [`UdpSocket::recv_from`], for a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.recv_from(out).map(|(length, _)| length)
    }

    fn wait(&self) -> io::Result<()> {
        let would_block = || receive_error(self.inner.socket.local(), udp::ReceiveError::WouldBlock);
        if self.inner.nonblocking.load(Ordering::Relaxed) {
            return Err(would_block());
        }
        let ready = self.inner.socket.ready.wait(Readiness::READABLE, self.inner.read_timeout.get());
        if ready.intersects(Readiness::READABLE) { Ok(()) } else { Err(would_block()) }
    }

    /// Whether receiving returns [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// None; as in [`std::net::UdpSocket`].
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.block(!nonblocking);
        Ok(())
    }

    /// Whether receiving waits.
    pub(crate) fn block(&self, blocking: bool) {
        self.inner.nonblocking.store(!blocking, Ordering::Relaxed);
    }

    /// How long receiving waits before it fails with [`io::ErrorKind::WouldBlock`]; `None`: for ever.
    ///
    /// # Errors
    /// The time is zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.read_timeout.set(timeout)
    }

    /// The value of [`UdpSocket::set_read_timeout`].
    ///
    /// # Errors
    /// None; as in [`std::net::UdpSocket`].
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.inner.read_timeout.get())
    }

    /// How long sending waits. It never does: a datagram without room is lost, as in the network.
    ///
    /// # Errors
    /// The time is zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.write_timeout.set(timeout)
    }

    /// The value of [`UdpSocket::set_write_timeout`].
    ///
    /// # Errors
    /// None; as in [`std::net::UdpSocket`].
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.inner.write_timeout.get())
    }

    /// Whether datagrams may be sent to broadcast addresses (`SO_BROADCAST`); off by default.
    ///
    /// # Errors
    /// None; as in [`std::net::UdpSocket`].
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.inner.broadcast.store(broadcast, Ordering::Relaxed);
        Ok(())
    }

    /// The value of [`UdpSocket::set_broadcast`].
    ///
    /// # Errors
    /// None; as in [`std::net::UdpSocket`].
    pub fn broadcast(&self) -> io::Result<bool> {
        Ok(self.inner.broadcast.load(Ordering::Relaxed))
    }

    /// Takes the error of an earlier datagram to the connected peer that no call has reported yet (`SO_ERROR`);
    /// otherwise the next call would report it.
    ///
    /// # Errors
    /// None; as in [`std::net::UdpSocket`].
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let (stack, socket) = (self.inner.stack.raw(), &self.inner.socket);
        let error = stack.take_udp_error(socket);
        Ok(error.map(|error| send_error(stack.udp_remote(socket), error)))
    }

    /// Sends with this IPv4 time to live or IPv6 hop limit from now on, 1 to 255. Datagrams to groups have their own:
    /// [`UdpSocket::set_multicast_ttl_v4`].
    ///
    /// # Errors
    /// The value is out of range.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.inner.stack.raw().set_udp_ttl(&self.inner.socket, hop_limit(ttl)?);
        Ok(())
    }

    /// The value of [`UdpSocket::set_ttl`], or the default, 64.
    ///
    /// # Errors
    /// None; as in [`std::net::UdpSocket`].
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(self.inner.stack.raw().udp_ttl(&self.inner.socket).into())
    }

    /// Whether datagrams are sent without checksum, and whether IPv6 datagrams without one are accepted: for tunnels
    /// whose payload has a checksum of its own (RFC 6936). Over IPv4 both are legal (RFC 768), and accepting them is
    /// always on.
    pub fn set_checksum_free(&self, sent: bool, taken: bool) {
        self.inner.stack.raw().set_checksum_free(&self.inner.socket, sent, taken);
    }

    /// Receives datagrams to an IPv4 group on the interface with the address `interface`; the unspecified address
    /// leaves the choice to the stack. As [`std::net::UdpSocket::join_multicast_v4`].
    ///
    /// # Errors
    /// Not a group, joined already, too many groups, or no such interface.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        let interface = self.interface_of(*interface)?;
        self.inner.stack.raw().join_group(&self.inner.socket, (*group).into(), interface).map_err(join_error)
    }

    /// Stops receiving datagrams to an IPv4 group.
    ///
    /// # Errors
    /// The group was not joined on this interface.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        let interface = self.interface_of(*interface)?;
        self.inner.stack.raw().leave_group(&self.inner.socket, (*group).into(), interface).map_err(join_error)
    }

    /// Receives datagrams to an IPv6 group on the interface with this number, counted from 1; 0 leaves the choice to
    /// the stack. As [`std::net::UdpSocket::join_multicast_v6`].
    ///
    /// # Errors
    /// As [`UdpSocket::join_multicast_v4`].
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        let interface = interface.checked_sub(1).map(|index| index as usize);
        self.inner.stack.raw().join_group(&self.inner.socket, (*group).into(), interface).map_err(join_error)
    }

    /// Stops receiving datagrams to an IPv6 group.
    ///
    /// # Errors
    /// The group was not joined on this interface.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        let interface = interface.checked_sub(1).map(|index| index as usize);
        self.inner.stack.raw().leave_group(&self.inner.socket, (*group).into(), interface).map_err(join_error)
    }

    /// Time to live, or hop limit, of datagrams to groups, 0 to 255: 1 by default, which does not leave the link.
    ///
    /// # Errors
    /// The value is out of range.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        let wrong = |_| io::Error::new(io::ErrorKind::InvalidInput, "a time to live is 0 to 255");
        self.inner.stack.raw().set_group_ttl(&self.inner.socket, u8::try_from(ttl).map_err(wrong)?);
        Ok(())
    }

    /// The value of [`UdpSocket::set_multicast_ttl_v4`].
    ///
    /// # Errors
    /// None; as in [`std::net::UdpSocket`].
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        Ok(self.inner.stack.raw().group_ttl(&self.inner.socket).into())
    }

    /// Whether datagrams to IPv4 groups that this stack is in come back to it, to sockets that have joined; on by
    /// default. As in Linux, they always do if they leave by the loopback interface.
    ///
    /// ```
    /// use heddle::{Interface, Stack, UdpSocket, mem};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (device, _peer) = mem::pair(mem::MemConfig::default());
    /// # let stack = Stack::builder().interface(Interface::new(device).address("10.0.0.1/24")?).build()?;
    /// let socket = UdpSocket::bind(&stack, "0.0.0.0:5353")?;
    /// socket.join_multicast_v4(&"239.1.2.3".parse()?, &"10.0.0.1".parse()?)?;
    /// assert!(socket.multicast_loop_v4()?);
    /// socket.send_to(b"to all", "239.1.2.3:5353")?;
    /// assert_eq!(socket.recv(&mut [0; 16])?, 6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The socket is bound to an IPv6 address other than `[::]`.
    pub fn set_multicast_loop_v4(&self, multicast_loop_v4: bool) -> io::Result<()> {
        self.set_group_loop(false, multicast_loop_v4)
    }

    /// The value of [`UdpSocket::set_multicast_loop_v4`].
    ///
    /// # Errors
    /// The socket is bound to an IPv6 address other than `[::]`.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.group_loop(false)
    }

    /// The same as [`UdpSocket::set_multicast_loop_v4`], for IPv6 groups.
    ///
    /// # Errors
    /// The socket is bound to an IPv4 address.
    pub fn set_multicast_loop_v6(&self, multicast_loop_v6: bool) -> io::Result<()> {
        self.set_group_loop(true, multicast_loop_v6)
    }

    /// The value of [`UdpSocket::set_multicast_loop_v6`].
    ///
    /// # Errors
    /// The socket is bound to an IPv4 address.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.group_loop(true)
    }

    fn set_group_loop(&self, v6: bool, on: bool) -> io::Result<()> {
        self.check_family(v6)?;
        self.inner.stack.raw().set_group_loop(&self.inner.socket, v6, on);
        Ok(())
    }

    fn group_loop(&self, v6: bool) -> io::Result<bool> {
        self.check_family(v6)?;
        Ok(self.inner.stack.raw().group_loop(&self.inner.socket, v6))
    }

    /// Whether the socket can send to groups of a family at all.
    fn check_family(&self, v6: bool) -> io::Result<()> {
        let local = self.inner.socket.local();
        if local.is_ipv6() == v6 || local.ip() == Ipv6Addr::UNSPECIFIED {
            return Ok(());
        }
        let (has, other) = if v6 { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
        let message = format!("{local} is an address of {has}: bind the socket to one of {other}, or to [::]");
        Err(io::Error::new(io::ErrorKind::Unsupported, message))
    }

    /// The number of the interface that has an address; `None` for the unspecified address.
    fn interface_of(&self, address: Ipv4Addr) -> io::Result<Option<usize>> {
        if address.is_unspecified() {
            return Ok(None);
        }
        let interfaces = &self.inner.stack.raw().shared().links().interfaces();
        let found = interfaces.iter().position(|interface| interface.view.get().is_local(address.into()));
        found.map(Some).ok_or_else(|| {
            let message = format!("{address} is none of the stack's addresses: give that of the interface to join on");
            io::Error::new(io::ErrorKind::AddrNotAvailable, message)
        })
    }

    /// The current readiness.
    pub fn readiness(&self) -> Readiness {
        self.inner.socket.ready.get()
    }

    pub(crate) fn shared(&self) -> &Arc<UdpShared<Real>> {
        &self.inner.socket
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without its peer: only the thread that uses its home knows it, and printing must not wait for that thread.
        f.debug_struct("UdpSocket").field("local", &self.inner.socket.local()).finish_non_exhaustive()
    }
}

fn send_error(to: Option<SocketAddr>, error: udp::SendError) -> io::Error {
    if let Err(refused) = may_wait() {
        return refused;
    }
    let kind = match error {
        udp::SendError::Refused => io::ErrorKind::ConnectionRefused,
        udp::SendError::Unreachable => io::ErrorKind::HostUnreachable,
        udp::SendError::NetworkDown => io::ErrorKind::NetworkDown,
        udp::SendError::NoDestination => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::InvalidInput,
    };
    let message = to.map_or_else(|| error.to_string(), |to| format!("{to}: {error}"));
    io::Error::new(kind, message)
}

fn join_error(error: JoinRefused) -> io::Error {
    let kind = match error {
        JoinRefused::Socket(udp::JoinError::Joined(_)) => io::ErrorKind::AddrInUse,
        JoinRefused::Socket(udp::JoinError::Closed) => io::ErrorKind::NotConnected,
        JoinRefused::Socket(udp::JoinError::NotAGroup(_)) => io::ErrorKind::InvalidInput,
        JoinRefused::Socket(udp::JoinError::TooMany) | JoinRefused::Interface(_) => io::ErrorKind::QuotaExceeded,
        JoinRefused::NoInterface | JoinRefused::NotJoined(_) => io::ErrorKind::AddrNotAvailable,
    };
    io::Error::new(kind, error.to_string())
}

fn receive_error(local: SocketAddr, error: udp::ReceiveError) -> io::Error {
    if let Err(refused) = may_wait() {
        return refused;
    }
    let kind = match error {
        udp::ReceiveError::WouldBlock => io::ErrorKind::WouldBlock,
        udp::ReceiveError::Refused => io::ErrorKind::ConnectionRefused,
        udp::ReceiveError::Unreachable => io::ErrorKind::HostUnreachable,
        udp::ReceiveError::Closed => io::ErrorKind::NotConnected,
    };
    io::Error::new(kind, format!("{local}: {error}"))
}
