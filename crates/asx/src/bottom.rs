//! [`Bottom`]: what a stream stands on: a connection, a device, a pair in memory.

use std::io;

use crate::message::Message;

/// The lower end of a stream. The process architecture has it called by different threads; one at a time calls `send`, and one
/// at a time `receive`, possibly both at once.
pub trait Bottom: Send + Sync + 'static {
    /// Sends a message; waits until it is accepted.
    ///
    /// # Errors
    /// Why it never will be. The stream then ends with [`StreamError::Bottom`](crate::StreamError::Bottom).
    fn send(&self, message: Message) -> io::Result<()>;

    /// Waits for the next message. `None`: no more will come.
    ///
    /// # Errors
    /// Why nothing can be received.
    fn receive(&self) -> io::Result<Option<Message>>;

    /// No message follows the last one sent.
    ///
    /// # Errors
    /// Why that cannot be told.
    fn end(&self) -> io::Result<()> {
        Ok(())
    }

    /// The stream is closed: a thread in `receive` or `send` must return soon, with any result.
    fn close(&self) {}
}
