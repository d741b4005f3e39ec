//! [`Bottom`]: the lower end of a stream: a connection, a device, a pair in memory.

use std::io;

use crate::message::Message;

/// The lower end of a stream. Several threads may call it, depending on the process architecture: one at a time calls
/// `send`, and one at a time `receive`, possibly both at once.
pub trait Bottom: Send + Sync + 'static {
    /// Sends a message; waits until it is accepted.
    ///
    /// # Errors
    /// Why the message never will be accepted. The stream then ends with
    /// [`StreamError::Bottom`](crate::StreamError::Bottom).
    fn send(&self, message: Message) -> io::Result<()>;

    /// Waits for the next message. `None`: no more will come.
    ///
    /// # Errors
    /// Why nothing can be received.
    fn receive(&self) -> io::Result<Option<Message>>;

    /// No message follows the last one sent.
    ///
    /// # Errors
    /// Why the peer cannot be notified of that.
    fn end(&self) -> io::Result<()> {
        Ok(())
    }

    /// The stream is closed: a thread in `receive` or `send` must return soon, with any result.
    fn close(&self) {}
}
