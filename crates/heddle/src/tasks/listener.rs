//! An asynchronous listening socket.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use stack::socket::ListenerShared;
use sync::Real;

use super::TcpStream;
use super::wakers::{Attachment, Crowd};
use crate::address::ToAddr;
use crate::builder::Stack;
use crate::error::BindError;

/// Accepts TCP connections. Dropping it stops listening; connections that were not accepted are reset.
pub struct TcpListener {
    attachment: Attachment<ListenerShared<Real>, Crowd>,
    listener: crate::TcpListener,
}

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.listener.fmt(f)
    }
}

impl TcpListener {
    /// Listens on `address`; see [`crate::TcpListener::bind`].
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(stack: &Stack, address: impl ToAddr) -> Result<TcpListener, BindError> {
        crate::TcpListener::bind(stack, address).map(TcpListener::from)
    }

    /// Takes the connection that has waited longest, or waits for one. Several tasks may wait.
    ///
    /// # Errors
    /// None; as in tokio.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`TcpListener::accept`], for futures written by hand.
    ///
    /// # Errors
    /// None; as in tokio.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let attempt = || self.listener.try_accept().map(|(stream, peer)| (TcpStream::from(stream), peer));
        if let Some(accepted) = attempt() {
            return Poll::Ready(Ok(accepted));
        }
        self.attachment.wakers().register(cx.waker());
        attempt().map_or(Poll::Pending, |accepted| Poll::Ready(Ok(accepted)))
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// None; as in tokio.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The listener without the wakers, non-blocking.
    pub fn into_inner(self) -> crate::TcpListener {
        self.listener
    }
}

impl From<crate::TcpListener> for TcpListener {
    fn from(listener: crate::TcpListener) -> Self {
        listener.block(false);
        TcpListener { attachment: Attachment::new(listener.shared()), listener }
    }
}
