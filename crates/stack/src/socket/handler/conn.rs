//! A connection as its handler uses it.

use std::net::SocketAddr;
use std::time::Duration;

use observe::Time;
use pktbuf::{Chunk, PktBuf};
use sync::Platform;
use tcp::BytesSent;

use super::held::HeldConnection;
use super::inbox::{HandlerMessage, HandlerRef, Post};
use super::state::HandlerControl;

/// The most that is copied into one buffer: the largest pooled one.
const COPY: usize = 64 << 10;
/// Buffers that a send leaves in a bounded pool: for the segments that carry the data, and for arriving frames.
const SPARE: usize = 24;

/// A connection, for the length of a callback of its handler ([`ConnectionHandler`](super::ConnectionHandler)).
///
/// Nothing here waits. If a send takes only a part for lack of room, the handler keeps the rest, and is called when
/// there is room again.
pub struct Conn<'a, P: Platform> {
    pub(super) held: &'a mut dyn HeldConnection,
    pub(super) control: &'a mut HandlerControl<P>,
    pub(super) posts: &'a mut Vec<Post<P>>,
}

impl<P: Platform> Conn<'_, P> {
    /// Sends from the front of `data`, which is copied once; returns how many bytes were taken. If fewer than all, the
    /// handler's `writable` is called when there is room for more.
    ///
    /// # Errors
    /// [`tcp::Error::NotConnected`] before it is open and after it is over, or why it failed; [`tcp::Error::Shutdown`]
    /// after [`Conn::shutdown_write`]; [`tcp::Error::NoBuffer`].
    pub fn send(&mut self, data: &[u8]) -> Result<usize, tcp::Error> {
        // Mostly an answer, in one piece.
        if (1..=COPY).contains(&data.len()) { self.send_piece(data) } else { self.send_pieces(data) }
    }

    /// [`Conn::send`] of up to [`COPY`] bytes.
    #[inline(always)]
    fn send_piece(&mut self, piece: &[u8]) -> Result<usize, tcp::Error> {
        if !self.control.is_open() {
            return Err(tcp::Error::NotConnected);
        }
        let BytesSent { accepted, waits } = self.held.send_bytes(piece, SPARE)?;
        self.control.waits_for_room |= waits;
        Ok(accepted as usize)
    }

    #[inline(never)]
    fn send_pieces(&mut self, data: &[u8]) -> Result<usize, tcp::Error> {
        let mut taken = 0;
        for piece in data.chunks(COPY) {
            let accepted = self.send_piece(piece)?;
            taken += accepted;
            if accepted < piece.len() {
                break;
            }
        }
        Ok(taken)
    }

    /// Sends the bytes of a buffer without copying them into another: a buffer that a callback has received, or a new
    /// one. Returns the rest that was not taken. A small packet in a large buffer is copied, so that it does not keep
    /// the memory.
    ///
    /// # Errors
    /// As [`Conn::send`].
    pub fn send_buffer(&mut self, buffer: PktBuf) -> Result<Option<PktBuf>, tcp::Error> {
        if buffer.is_oversized() {
            let taken = self.send(&buffer)?;
            return Ok(rest_of(buffer, taken));
        }
        let mut chunk = Some(Chunk::Pooled(buffer));
        self.give(&mut chunk)?;
        match chunk {
            None => Ok(None),
            Some(Chunk::Pooled(rest)) => Ok(Some(rest)),
            Some(other) => PktBuf::from_slice(other.as_slice()).map(Some).ok_or(tcp::Error::NoBuffer),
        }
    }

    /// SEND of one chunk; what was not taken stays in it. Returns the number of bytes taken.
    #[inline(always)]
    fn give(&mut self, chunk: &mut Option<Chunk>) -> Result<usize, tcp::Error> {
        if !self.control.is_open() {
            return Err(tcp::Error::NotConnected);
        }
        let accepted = self.held.send(chunk)?;
        self.control.waits_for_room |= chunk.is_some();
        Ok(accepted)
    }

    /// From now on the handler gets no data: it stays in the receive buffer, and the peer's window closes.
    pub fn pause(&mut self) {
        self.control.paused = true;
    }

    /// Ends [`Conn::pause`]; waiting data is passed to the handler when this callback has returned.
    pub fn resume(&mut self) {
        self.control.paused = false;
    }

    /// Calls the handler's `timer` once, when `after` has passed; `None`: never. Replaces the time set before.
    pub fn set_timer(&mut self, after: Option<Duration>) {
        self.control.deadline = after.map(|after| self.held.now() + after);
    }

    /// No more data will be sent: the peer reads the end of the stream. Data still arrives.
    pub fn shutdown_write(&mut self) {
        if self.control.is_open() && !std::mem::replace(&mut self.control.shut, true) {
            // A connection that has just failed is closed by the event that reports the failure.
            let _ = self.held.shut_down(tcp::Shutdown::Write);
        }
    }

    /// Closes the connection: sent data is still delivered, and then the end of the stream. The handler's `closed` is
    /// called when this callback has returned; it is the last callback.
    pub fn close(&mut self) {
        if self.control.release(Ok(())) {
            self.held.close();
        }
    }

    /// Resets the connection. `closed` is called as after [`Conn::close`], with [`tcp::Error::Aborted`].
    pub fn abort(&mut self) {
        if self.control.release(Err(tcp::Error::Aborted)) {
            self.held.abort();
        }
    }

    /// This end's address.
    pub fn local_addr(&self) -> SocketAddr {
        let tuple = self.control.name.tuple();
        SocketAddr::new(tuple.local_addr, tuple.local_port)
    }

    /// The other end's address.
    pub fn peer_addr(&self) -> SocketAddr {
        let tuple = self.control.name.tuple();
        SocketAddr::new(tuple.remote_addr, tuple.remote_port)
    }

    /// The time of the event that called the handler, on the stack's clock.
    pub fn now(&self) -> Time {
        self.held.now()
    }

    /// A name of this connection, for others to post to.
    pub fn name(&self) -> HandlerRef<P> {
        self.control.name.clone()
    }

    /// Posts a message to the handler of another connection, or of this one, on this stack or another. That handler is
    /// called when the guards of the current event have dropped; messages from one connection to another keep their
    /// order. A message for a connection that is over is dropped.
    pub fn post(&mut self, to: &HandlerRef<P>, message: HandlerMessage) {
        // Queued now, because the next callback of this handler may be on another thread, which may post first.
        if to.put(message).is_ok() {
            self.posts.push(Post { to: to.clone() });
        }
    }
}

/// `buffer` without its first `taken` bytes; `None`: nothing is left.
fn rest_of(mut buffer: PktBuf, taken: usize) -> Option<PktBuf> {
    if taken == buffer.len() {
        return None;
    }
    if taken > 0 {
        buffer.pull_front(taken);
    }
    Some(buffer)
}
