//! A datagram socket as a task holds it.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use stack::socket::UdpShared;
use sync::Real;

use super::wakers::{Attachment, Crowd};
use crate::address::ToAddr;
use crate::builder::Stack;
use crate::error::BindError;

/// Sends and receives datagrams. Several tasks may share it.
pub struct UdpSocket {
    attachment: Attachment<UdpShared<Real>, Crowd>,
    socket: crate::UdpSocket,
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

    /// Sends `data` as one datagram to `to`. It never waits: like a network that is full, it may lose the datagram.
    ///
    /// # Errors
    /// Too long, no route, or what an earlier datagram met.
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

    /// Receives one datagram; what does not fit into `out` is lost. Its length and its sender.
    ///
    /// # Errors
    /// The connected peer refused an earlier datagram.
    pub async fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_recv_from(cx, out)).await
    }

    /// As [`UdpSocket::recv_from`], for a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.recv_from(out).await.map(|(length, _)| length)
    }

    /// As [`UdpSocket::recv_from`], for futures written by hand.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn poll_recv_from(&self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut datagram = self.socket.try_receive()?;
        if datagram.is_none() {
            self.attachment.wakers().register(cx.waker());
            datagram = self.socket.try_receive()?;
        }
        let Some(datagram) = datagram else { return Poll::Pending };
        let length = datagram.buf.len().min(out.len());
        out[..length].copy_from_slice(&datagram.buf[..length]);
        Poll::Ready(Ok((length, datagram.source)))
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
