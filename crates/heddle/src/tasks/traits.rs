//! The traits of tokio and of futures-io, for whole connections and for halves, all based on the same few polls.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use super::stream::TcpStream;

macro_rules! read {
    ($($reader:ty),*) => {$(
        #[cfg(feature = "tokio")]
        impl ::tokio::io::AsyncRead for $reader {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                out: &mut ::tokio::io::ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let came = std::task::ready!(self.poll_read_slice(cx, out.initialize_unfilled()))?;
                out.advance(came);
                Poll::Ready(Ok(()))
            }
        }

        #[cfg(feature = "futures-io")]
        impl futures_io::AsyncRead for $reader {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
                self.poll_read_slice(cx, out)
            }

            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                parts: &mut [std::io::IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                self.poll_read_slices(cx, parts)
            }
        }
    )*};
}

/// The methods common to both write traits.
macro_rules! write_methods {
    () => {
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
            self.poll_write_slices(cx, &[IoSlice::new(data)])
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.poll_write_slices(cx, parts)
        }

        /// There is no buffer here: written data already belongs to the connection.
        fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    };
}

macro_rules! write {
    ($($writer:ty),*) => {$(
        #[cfg(feature = "tokio")]
        impl ::tokio::io::AsyncWrite for $writer {
            write_methods!();

            fn is_write_vectored(&self) -> bool {
                true
            }

            /// Shuts down the write direction; data written before is still delivered.
            fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.end_writing())
            }
        }

        #[cfg(feature = "futures-io")]
        impl futures_io::AsyncWrite for $writer {
            write_methods!();

            /// Shuts down the write direction; data written before is still delivered.
            fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.end_writing())
            }
        }
    )*};
}

read!(TcpStream, ReadHalf<'_>, OwnedReadHalf);
write!(TcpStream, WriteHalf<'_>, OwnedWriteHalf);
