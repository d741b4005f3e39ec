//! Between hyper and a connection: long pieces of files are passed to the stack as shared memory, everything else is
//! copied.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use heddle::tokio::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body::SharedPieces;

/// A connection, with the traits that hyper needs.
pub struct HttpStream {
    stream: TcpStream,
    pieces: SharedPieces,
}

impl HttpStream {
    /// Wraps `stream`; `pieces` are the pieces of files that may be written to it.
    pub fn new(stream: TcpStream, pieces: SharedPieces) -> HttpStream {
        HttpStream { stream, pieces }
    }

    /// Sends `bytes` without a copy if they are part of a piece in `pieces`. `None`: there is no room now, or they
    /// belong to no piece.
    fn send_shared(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        let (piece, start) = self.pieces.find(bytes)?;
        match self.stream.get_ref().send_shared(&piece, start..start + bytes.len()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            result => Some(result),
        }
    }

    fn note(&self, bytes: &[u8], result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = result {
            self.pieces.sent(&bytes[..count.min(bytes.len())]);
        }
        result
    }
}

impl AsyncWrite for HttpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = match self.send_shared(bytes) {
            Some(result) => Poll::Ready(result),
            // It registers the waker, or copies into room that has become free meanwhile.
            None => Pin::new(&mut self.stream).poll_write(cx, bytes),
        };
        self.note(bytes, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // Headers and short texts are sent together, in one segment if they fit, up to the first shared piece.
        let small = parts.iter().take_while(|part| self.pieces.find(part).is_none()).count();
        match parts.get(small) {
            Some(piece) if small == 0 => self.poll_write(cx, piece),
            _ => Pin::new(&mut self.stream).poll_write_vectored(cx, &parts[..small]),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl AsyncRead for HttpStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, out)
    }
}
