//! A TCP connection as a task holds it.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use atomic_waker::AtomicWaker;
use stack::socket::{Readiness, TcpSocket};
use sync::Real;

use super::wakers::{Attachment, Halves};
use crate::address::ToAddr;
use crate::builder::Stack;
use crate::connect::Connect;
use crate::error::ConnectError;
use crate::stream::OPENED;

const ENDED: u16 = Readiness::ERROR.0 | Readiness::CLOSED.0;
const READABLE: Readiness = Readiness(Readiness::READABLE.0 | Readiness::PEER_CLOSED.0 | ENDED);
const WRITABLE: Readiness = Readiness(Readiness::WRITABLE.0 | ENDED);

/// A TCP connection: [`AsyncRead`] and [`AsyncWrite`]. To read and write in two tasks use `tokio::io::split`. Dropping
/// it closes gracefully.
pub struct TcpStream {
    attachment: Attachment<TcpSocket<Real>, Halves>,
    stream: crate::TcpStream,
}

impl TcpStream {
    /// Opens a connection. Dropping the future gives up the attempt.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(stack: &Stack, address: impl ToAddr) -> Result<TcpStream, ConnectError> {
        TcpStream::connect_with(&Connect::new(), stack, address).await
    }

    /// As [`TcpStream::connect`], with what `connect` says: a local address, options, first data.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect_with(
        connect: &Connect<'_>,
        stack: &Stack,
        address: impl ToAddr,
    ) -> Result<TcpStream, ConnectError> {
        Self::finish(connect.start(stack, address)?.into()).await
    }

    async fn finish(stream: TcpStream) -> Result<TcpStream, ConnectError> {
        let write = &stream.attachment.wakers().write;
        poll_fn(|cx| try_twice(cx, write, || Ok(stream.stream.readiness().intersects(OPENED).then_some(()))))
            .await
            .ok();
        match stream.stream.outcome() {
            None => Ok(stream),
            Some(error) => Err(error),
        }
    }

    /// The connection without the wakers, non-blocking.
    pub fn into_inner(self) -> crate::TcpStream {
        self.stream
    }

    /// The connection, for its options, its addresses and its status. (To read, write or watch it by other means is to
    /// interfere with the tasks that wait for it.)
    pub fn get_ref(&self) -> &crate::TcpStream {
        &self.stream
    }

    /// The other end's address.
    ///
    /// # Errors
    /// None; as in tokio.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// This end's address.
    ///
    /// # Errors
    /// None; as in tokio.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Sends small segments at once (true) or gathers them while data is unacknowledged (Nagle; false, the default).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.stream.set_nodelay(nodelay)
    }

    /// Waits until a read is worth a try: there is text, or its end, or an error. With [`TcpStream::get_ref`] this reads
    /// without `&mut`; one task at a time may wait to read.
    pub async fn readable(&self) {
        self.until(&self.attachment.wakers().read, READABLE).await;
    }

    /// Waits until a write is worth a try: there is room, or an error. One task at a time may wait to write.
    pub async fn writable(&self) {
        self.until(&self.attachment.wakers().write, WRITABLE).await;
    }

    /// Waits until the connection has failed: a reset came, or no answer for too long. For whoever does not read at the
    /// moment; it waits in the place of [`TcpStream::readable`], so that both belong into one task.
    pub async fn failed(&self) {
        self.until(&self.attachment.wakers().read, Readiness::ERROR).await;
    }

    async fn until(&self, waker: &AtomicWaker, wanted: Readiness) {
        // It never fails: the closure does not.
        let ready = || Ok(self.stream.readiness().intersects(wanted).then_some(()));
        let _ = poll_fn(|cx| try_twice(cx, waker, ready)).await;
    }

    fn poll_write_parts<'a>(
        &self,
        cx: &mut Context<'_>,
        parts: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Poll<io::Result<usize>> {
        if parts.clone().all(<[u8]>::is_empty) {
            return Poll::Ready(Ok(0));
        }
        try_twice(cx, &self.attachment.wakers().write, || {
            // The bit is never clear while there is room: a full send queue costs no copy.
            if !self.stream.readiness().intersects(WRITABLE) {
                return Ok(None);
            }
            let accepted = self.stream.try_write(parts.clone())?;
            Ok((accepted > 0).then_some(accepted))
        })
    }
}

/// Tries, and if nothing is to be had leaves the waker and tries again.
fn try_twice<T>(
    cx: &mut Context<'_>,
    waker: &AtomicWaker,
    mut attempt: impl FnMut() -> io::Result<Option<T>>,
) -> Poll<io::Result<T>> {
    if let Some(result) = attempt().transpose() {
        return Poll::Ready(result);
    }
    waker.register(cx.waker());
    attempt().transpose().map_or(Poll::Pending, Poll::Ready)
}

impl From<crate::TcpStream> for TcpStream {
    /// Attaches a connection to tasks. Clones of it should not be read, written or watched by other means meanwhile.
    fn from(stream: crate::TcpStream) -> Self {
        stream.block(false);
        TcpStream { attachment: Attachment::new(stream.socket()), stream }
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = out.remaining();
        if room == 0 {
            return Poll::Ready(Ok(()));
        }
        let read = &self.attachment.wakers().read;
        ready!(try_twice(cx, read, || self.stream.try_read(room, |piece| out.put_slice(piece))))?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_parts(cx, std::iter::once(data))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_parts(cx, parts.iter().map(|part| &**part))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing is kept here: what was written is the connection's already.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the direction of sending; what was written before is still delivered.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.shutdown(Shutdown::Write))
    }
}

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stream.fmt(f)
    }
}
