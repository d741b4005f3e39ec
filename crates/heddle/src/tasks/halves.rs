//! The halves of a connection, for a task that reads and one that writes.
//!
//! The borrowed halves cost nothing and end with the borrow; the owned ones share the connection, for use in separate
//! tasks.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::interest::{Interest, Ready};
use super::stream::TcpStream;

/// The reading half of [`TcpStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a>(pub(super) &'a TcpStream);

/// The writing half of [`TcpStream::split`].
#[derive(Debug)]
pub struct WriteHalf<'a>(pub(super) &'a TcpStream);

/// The reading half of [`TcpStream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<TcpStream>);

/// The writing half of [`TcpStream::into_split`]. Dropping it shuts down the write direction;
/// [`OwnedWriteHalf::forget`] does not.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    /// `None` once it is forgotten or reunited.
    stream: Option<Arc<TcpStream>>,
}

/// The halves belong to two connections; contains both.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are of two connections: reunite those of one into_split")
    }
}

impl std::error::Error for ReuniteError {}

/// Two halves of `stream`.
pub(super) fn into_split(stream: TcpStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let stream = Arc::new(stream);
    (OwnedReadHalf(stream.clone()), OwnedWriteHalf { stream: Some(stream) })
}

impl OwnedReadHalf {
    /// Reunites the halves of one connection.
    ///
    /// # Errors
    /// They belong to two connections.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        other.reunite(self)
    }
}

impl OwnedWriteHalf {
    /// As [`OwnedReadHalf::reunite`].
    ///
    /// # Errors
    /// They belong to two connections.
    pub fn reunite(mut self, other: OwnedReadHalf) -> Result<TcpStream, ReuniteError> {
        match self.stream.take() {
            Some(stream) if Arc::ptr_eq(&stream, &other.0) => {
                drop(other);
                // There are only two halves, and one is gone.
                Arc::try_unwrap(stream).map_err(|stream| {
                    ReuniteError(OwnedReadHalf(stream.clone()), OwnedWriteHalf { stream: Some(stream) })
                })
            }
            stream => Err(ReuniteError(other, OwnedWriteHalf { stream })),
        }
    }

    /// Drops the half, and leaves the write direction open.
    pub fn forget(mut self) {
        self.stream = None;
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            // A connection that is gone has nothing to shut down.
            let _ = stream.get_ref().shutdown(Shutdown::Write);
        }
    }
}

impl AsRef<TcpStream> for ReadHalf<'_> {
    fn as_ref(&self) -> &TcpStream {
        self.0
    }
}

impl AsRef<TcpStream> for WriteHalf<'_> {
    fn as_ref(&self) -> &TcpStream {
        self.0
    }
}

impl AsRef<TcpStream> for OwnedReadHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.0
    }
}

impl AsRef<TcpStream> for OwnedWriteHalf {
    fn as_ref(&self) -> &TcpStream {
        self.stream.as_ref().expect("only a half that is consumed has none")
    }
}

/// Methods of all halves.
macro_rules! half {
    ($($half:ty),*) => {$(
        impl $half {
            /// See [`TcpStream::ready`].
            ///
            /// # Errors
            /// None; as in tokio.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                self.as_ref().ready(interest).await
            }

            /// The other end's address.
            ///
            /// # Errors
            /// None; as in tokio.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.as_ref().peer_addr()
            }

            /// This end's address.
            ///
            /// # Errors
            /// None; as in tokio.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.as_ref().local_addr()
            }
        }
    )*};
}

half!(ReadHalf<'_>, WriteHalf<'_>, OwnedReadHalf, OwnedWriteHalf);

/// Methods of a half that reads.
macro_rules! reading {
    ($($half:ty),*) => {$(
        impl $half {
            /// See [`TcpStream::readable`].
            ///
            /// # Errors
            /// None; as in tokio.
            pub async fn readable(&self) -> io::Result<()> {
                self.as_ref().readable().await
            }

            /// See [`TcpStream::try_read`].
            ///
            /// # Errors
            /// As [`TcpStream::try_read`].
            pub fn try_read(&self, out: &mut [u8]) -> io::Result<usize> {
                self.as_ref().try_read(out)
            }

            /// See [`TcpStream::peek`].
            ///
            /// # Errors
            /// As a read.
            pub async fn peek(&mut self, out: &mut [u8]) -> io::Result<usize> {
                self.as_ref().peek(out).await
            }

            pub(super) fn poll_read_slice(&self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
                self.as_ref().poll_read_slice(cx, out)
            }

            #[cfg(feature = "futures-io")]
            pub(super) fn poll_read_slices(
                &self,
                cx: &mut Context<'_>,
                parts: &mut [io::IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                self.as_ref().poll_read_slices(cx, parts)
            }
        }
    )*};
}

reading!(ReadHalf<'_>, OwnedReadHalf);

/// Methods of a half that writes.
macro_rules! writing {
    ($($half:ty),*) => {$(
        impl $half {
            /// See [`TcpStream::writable`].
            ///
            /// # Errors
            /// None; as in tokio.
            pub async fn writable(&self) -> io::Result<()> {
                self.as_ref().writable().await
            }

            /// See [`TcpStream::try_write`].
            ///
            /// # Errors
            /// As [`TcpStream::try_write`].
            pub fn try_write(&self, data: &[u8]) -> io::Result<usize> {
                self.as_ref().try_write(data)
            }

            /// See [`TcpStream::try_write_vectored`].
            ///
            /// # Errors
            /// As [`TcpStream::try_write`].
            pub fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                self.as_ref().try_write_vectored(parts)
            }

            pub(super) fn poll_write_slices(
                &self,
                cx: &mut Context<'_>,
                parts: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.as_ref().poll_write_slices(cx, parts)
            }

            pub(super) fn end_writing(&self) -> io::Result<()> {
                self.as_ref().end_writing()
            }
        }
    )*};
}

writing!(WriteHalf<'_>, OwnedWriteHalf);
