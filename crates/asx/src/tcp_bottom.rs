//! [`TcpBottom`]: a TCP connection of the crate `heddle` as the bottom of a stream, so that modules can be pushed onto a socket.
//!
//! TCP carries bytes without message boundaries: the bytes that one call receives depend on segments and timing. Most
//! streams over it have a module at the bottom that adds boundaries, such as [`frame`](crate::modules::frame).

use std::io::{self, Read, Write};
use std::net::Shutdown;

use heddle::TcpStream;

use crate::bottom::Bottom;
use crate::message::Message;

/// The most bytes of a message that is received.
const CHUNK: usize = 16 << 10;

/// A connection in blocking mode. It stays usable through other handles ([`TcpStream::try_clone`]), for its options and status;
/// a thread that reads or writes beside the stream takes bytes from it, or puts bytes between its messages.
#[derive(Debug)]
pub struct TcpBottom(TcpStream);

impl TcpBottom {
    /// The bottom over `stream`, which it puts into blocking mode.
    ///
    /// # Errors
    /// The mode cannot be set.
    pub fn new(stream: TcpStream) -> io::Result<TcpBottom> {
        stream.set_nonblocking(false)?;
        Ok(TcpBottom(stream))
    }
}

impl Bottom for TcpBottom {
    fn send(&self, message: Message) -> io::Result<()> {
        let bytes = message.into_bytes().map_err(|message| {
            let said = format!("{message:?} is not bytes; put a module that encodes it above the connection");
            io::Error::new(io::ErrorKind::InvalidInput, said)
        })?;
        (&self.0).write_all(&bytes)
    }

    fn receive(&self) -> io::Result<Option<Message>> {
        let mut chunk = [0; CHUNK];
        let length = (&self.0).read(&mut chunk)?;
        // Copied, so that a short message does not keep a long buffer alive: queues count its bytes, not its buffer.
        Ok((length > 0).then(|| Message::bytes(&chunk[..length])))
    }

    fn end(&self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }

    /// Both directions end, and a thread that waits in one returns.
    fn close(&self) {
        // It fails if the connection is gone: then no thread waits.
        _ = self.0.shutdown(Shutdown::Both);
    }
}
