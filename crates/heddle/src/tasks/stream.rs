//! An asynchronous TCP connection.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use stack::socket::{Readiness, TcpSocket};
use sync::Real;

use super::halves::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use super::interest::{Interest, Ready, WRITABLE};
use super::wakers::{Attachment, StreamWakers};
use crate::address::ToAddr;
use crate::builder::Stack;
use crate::connect::Connect;
use crate::error::ConnectError;
use crate::stream::OPENED;

/// A TCP connection: `AsyncRead` and `AsyncWrite`. To read and write in two tasks use [`TcpStream::split`] or
/// [`TcpStream::into_split`]; one task at a time waits for each direction. Dropping it closes gracefully.
pub struct TcpStream {
    attachment: Attachment<TcpSocket<Real>, StreamWakers>,
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

    /// As [`TcpStream::connect`], with the parameters of `connect`: a local address, options, first data.
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

    /// The connection, for its options, its addresses and its status. (Reading, writing or watching it by other means
    /// interferes with the tasks that wait for it.)
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

    /// Whether small segments are sent at once.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.stream.nodelay()
    }

    /// See [`crate::TcpStream::set_linger`].
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.stream.set_linger(linger)
    }

    /// See [`crate::TcpStream::linger`].
    ///
    /// # Errors
    /// The connection is gone.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.stream.linger()
    }

    /// See [`crate::TcpStream::set_ttl`].
    ///
    /// # Errors
    /// The value is out of range, or the connection is gone.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.stream.set_ttl(ttl)
    }

    /// See [`crate::TcpStream::ttl`].
    ///
    /// # Errors
    /// The connection is gone.
    pub fn ttl(&self) -> io::Result<u32> {
        self.stream.ttl()
    }

    /// See [`crate::TcpStream::take_error`].
    ///
    /// # Errors
    /// None; as in tokio.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.stream.take_error()
    }

    /// Two halves that borrow the connection, for one task that does both.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        (ReadHalf(self), WriteHalf(self))
    }

    /// Two halves that share the connection, for two tasks. Dropping the write half shuts down the write direction.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        halves::into_split(self)
    }

    /// Waits until one of the directions is ready; returns which. An error or the end makes a direction ready, too.
    ///
    /// # Errors
    /// None; as in tokio.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        poll_fn(|cx| {
            let ready = || Some(self.stream.readiness()).filter(|ready| ready.intersects(interest.bits()));
            if let Some(ready) = ready() {
                return Poll::Ready(Ok(Ready(ready)));
            }
            let wakers = self.attachment.wakers();
            if interest.is_readable() {
                wakers.read.register(cx.waker());
            }
            if interest.is_writable() {
                wakers.write.register(cx.waker());
            }
            ready().map_or(Poll::Pending, |ready| Poll::Ready(Ok(Ready(ready))))
        })
        .await
    }

    /// Waits until a read should be tried: there is data, or its end, or an error. One task at a time may wait to read.
    ///
    /// # Errors
    /// None; as in tokio.
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::READABLE).await.map(drop)
    }

    /// Waits until a write should be tried: there is room, or an error. One task at a time may wait to write.
    ///
    /// # Errors
    /// None; as in tokio.
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::WRITABLE).await.map(drop)
    }

    /// As [`TcpStream::readable`], for futures written by hand.
    ///
    /// # Errors
    /// None; as in tokio.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(cx, &self.attachment.wakers().read, Interest::READABLE)
    }

    /// As [`TcpStream::writable`], for futures written by hand.
    ///
    /// # Errors
    /// None; as in tokio.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(cx, &self.attachment.wakers().write, Interest::WRITABLE)
    }

    fn poll_ready(&self, cx: &mut Context<'_>, waker: &AtomicWaker, interest: Interest) -> Poll<io::Result<()>> {
        try_twice(cx, waker, || Ok(self.stream.readiness().intersects(interest.bits()).then_some(())))
    }

    /// Reads the available data; 0: the end of the stream.
    ///
    /// # Errors
    /// As a read; [`io::ErrorKind::WouldBlock`]: there is no data now.
    pub fn try_read(&self, out: &mut [u8]) -> io::Result<usize> {
        (&self.stream).read(out)
    }

    /// As [`TcpStream::try_read`], into several buffers.
    ///
    /// # Errors
    /// As [`TcpStream::try_read`].
    pub fn try_read_vectored(&self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&self.stream).read_vectored(parts)
    }

    /// Writes as much as there is room for now.
    ///
    /// # Errors
    /// As a write; [`io::ErrorKind::WouldBlock`]: there is no room now.
    pub fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        (&self.stream).write(data)
    }

    /// As [`TcpStream::try_write`], from several buffers.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    pub fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.stream).write_vectored(parts)
    }

    /// Calls `attempt`, which should use [`TcpStream::get_ref`], if one of the directions may be ready.
    ///
    /// # Errors
    /// Those of `attempt`; [`io::ErrorKind::WouldBlock`] if neither is ready, without a call.
    pub fn try_io<R>(&self, interest: Interest, attempt: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        if !self.stream.readiness().intersects(interest.bits()) {
            return Err(self.stream.error(tcp::Error::WouldBlock));
        }
        attempt()
    }

    /// Reads and leaves the data to be read again; see [`crate::TcpStream::peek`].
    ///
    /// # Errors
    /// As a read.
    pub async fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        poll_fn(|cx| try_twice(cx, &self.attachment.wakers().read, || self.stream.try_peek(out))).await
    }

    /// Waits until the connection has failed: by a reset or a timeout. For a task that does not read at the moment; it
    /// uses the same waker slot as [`TcpStream::readable`], so both belong in one task.
    pub async fn failed(&self) {
        // It never fails: the closure does not.
        let failed = || Ok(self.stream.readiness().intersects(Readiness::ERROR).then_some(()));
        let _ = poll_fn(|cx| try_twice(cx, &self.attachment.wakers().read, failed)).await;
    }

    /// Copies the available data into `out`; 0: the end of the stream.
    pub(super) fn poll_read_slice(&self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        try_twice(cx, &self.attachment.wakers().read, || {
            let (length, mut filled) = (out.len(), 0);
            self.stream.try_read(length, |piece| {
                out[filled..filled + piece.len()].copy_from_slice(piece);
                filled += piece.len();
            })
        })
    }

    /// As `poll_read_slice`, into several buffers.
    #[cfg(feature = "futures-io")]
    pub(super) fn poll_read_slices(
        &self,
        cx: &mut Context<'_>,
        parts: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        try_twice(cx, &self.attachment.wakers().read, || self.stream.try_read_parts(parts))
    }

    pub(super) fn poll_write_slices(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_write_parts(cx, parts.iter().map(|part| &**part))
    }

    /// Shuts down the write direction; data written before is still delivered.
    pub(super) fn end_writing(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
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
            // The bit is never clear while there is room, so a full send queue costs no copy.
            if !self.stream.readiness().intersects(WRITABLE) {
                return Ok(None);
            }
            let accepted = self.stream.try_write(parts.clone())?;
            Ok((accepted > 0).then_some(accepted))
        })
    }
}

/// Tries; if not ready, registers the waker and tries again.
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

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stream.fmt(f)
    }
}
