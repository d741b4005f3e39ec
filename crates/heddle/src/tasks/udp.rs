//! An asynchronous datagram socket.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use stack::socket::UdpShared;
use sync::Real;

use super::interest::{Interest, Ready};
use super::wakers::{Attachment, Crowd};
use crate::address::ToAddr;
use crate::builder::Stack;
use crate::error::BindError;

/// Sends and receives datagrams. Several tasks may share it.
pub struct UdpSocket {
    attachment: Attachment<UdpShared<Real>, Crowd>,
    socket: crate::UdpSocket,
}

impl std::fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.socket.fmt(f)
    }
}

impl UdpSocket {
    /// Binds `address`; port 0 takes any free port.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(stack: &Stack, address: impl ToAddr) -> Result<UdpSocket, BindError> {
        crate::UdpSocket::bind(stack, address).map(UdpSocket::from)
    }

    /// Fixes the peer; see [`crate::UdpSocket::connect`].
    ///
    /// # Errors
    /// No route, or an address of another family.
    pub fn connect(&self, peer: impl ToAddr) -> io::Result<()> {
        self.socket.connect(peer)
    }

    /// Sends `data` as one datagram to `to`. It never waits: like a congested network, it may lose the datagram.
    ///
    /// # Errors
    /// Too long, no route, or the error of an earlier datagram.
    pub async fn send_to(&self, data: &[u8], to: impl ToAddr) -> io::Result<usize> {
        self.socket.send_to(data, to)
    }

    /// As [`UdpSocket::send_to`], to the connected peer.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`], or not connected.
    pub async fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.socket.send(data)
    }

    /// Receives one datagram; bytes that do not fit into `out` are lost. Returns its length and its sender.
    ///
    /// # Errors
    /// The connected peer refused an earlier datagram.
    pub async fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_receive(cx, out)).await
    }

    /// As [`UdpSocket::recv_from`], for a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.recv_from(out).await.map(|(length, _)| length)
    }

    /// As [`UdpSocket::recv_from`], but the datagram stays, to be received again.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn peek_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_twice(cx, || self.socket.try_peek(out))).await
    }

    /// As [`UdpSocket::peek_from`], for a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
        self.peek_from(out).await.map(|(length, _)| length)
    }

    /// As [`UdpSocket::recv_from`], for futures written by hand.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    #[cfg(feature = "tokio")]
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        out: &mut ::tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        let (length, from) = std::task::ready!(self.poll_receive(cx, out.initialize_unfilled()))?;
        out.advance(length);
        Poll::Ready(Ok(from))
    }

    /// As [`UdpSocket::poll_recv_from`], for a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    #[cfg(feature = "tokio")]
    pub fn poll_recv(&self, cx: &mut Context<'_>, out: &mut ::tokio::io::ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_recv_from(cx, out).map_ok(drop)
    }

    /// Receives a datagram if there is one now.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`]; [`io::ErrorKind::WouldBlock`]: there is none now.
    pub fn try_recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.recv_from(out)
    }

    /// As [`UdpSocket::try_recv_from`], for a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::try_recv_from`].
    pub fn try_recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(out)
    }

    /// As [`UdpSocket::send_to`], which never waits either.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    pub fn try_send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.socket.send_to(data, to)
    }

    /// As [`UdpSocket::send`], which never waits either.
    ///
    /// # Errors
    /// As [`UdpSocket::send`].
    pub fn try_send(&self, data: &[u8]) -> io::Result<usize> {
        self.socket.send(data)
    }

    /// Calls `attempt`, which should use [`UdpSocket::get_ref`], if the socket may be ready.
    ///
    /// # Errors
    /// Those of `attempt`; [`io::ErrorKind::WouldBlock`] if the socket is not ready, without a call.
    pub fn try_io<R>(&self, interest: Interest, attempt: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        if !self.socket.readiness().intersects(interest.bits()) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "the socket is not ready: wait until it is"));
        }
        attempt()
    }

    /// Waits until the socket is ready; returns its readiness. Sending never waits.
    ///
    /// # Errors
    /// None; as in tokio.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        let ready = || Ok(Some(self.socket.readiness()).filter(|ready| ready.intersects(interest.bits())));
        poll_fn(|cx| self.poll_twice(cx, ready)).await.map(Ready)
    }

    /// Waits until receiving should be tried: there is a datagram, or an error.
    ///
    /// # Errors
    /// None; as in tokio.
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::READABLE).await.map(drop)
    }

    /// Returns at once: a datagram without room is lost, as in the network.
    ///
    /// # Errors
    /// None; as in tokio.
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::WRITABLE).await.map(drop)
    }

    fn poll_receive(&self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        let datagram = std::task::ready!(self.poll_twice(cx, || self.socket.try_receive()))?;
        let length = datagram.buf.len().min(out.len());
        out[..length].copy_from_slice(&datagram.buf[..length]);
        Poll::Ready(Ok((length, datagram.source)))
    }

    /// Tries; if not ready, registers the waker and tries again.
    fn poll_twice<T>(
        &self,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut() -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        if let Some(result) = attempt().transpose() {
            return Poll::Ready(result);
        }
        self.attachment.wakers().register(cx.waker());
        attempt().transpose().map_or(Poll::Pending, Poll::Ready)
    }

    /// The socket, for its options, its groups and its addresses.
    pub fn get_ref(&self) -> &crate::UdpSocket {
        &self.socket
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// None; as in tokio.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The peer it is connected to.
    ///
    /// # Errors
    /// It is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// The socket without the wakers, non-blocking.
    pub fn into_inner(self) -> crate::UdpSocket {
        self.socket
    }
}

impl From<crate::UdpSocket> for UdpSocket {
    fn from(socket: crate::UdpSocket) -> Self {
        socket.block(false);
        UdpSocket { attachment: Attachment::new(socket.shared()), socket }
    }
}
