//! The connection that a handler uses, as the place that runs the handler gives it out.

use observe::Time;
use pktbuf::{Chunk, PktBuf};
use tcp::{Readiness, Received, Shutdown, TcpEvent};

/// Runs events on one connection for its handler: in the outbox of the event that called the handler, or each by itself.
pub trait RunsEvents {
    /// Runs an event. `None`: the connection has gone.
    fn run<E: TcpEvent>(&mut self, event: E) -> Option<E::Reply>;

    /// Takes the readiness bits that the events so far have raised, if no other thread will pass them to the handler.
    fn raised(&mut self) -> Readiness;

    /// The time of the event.
    fn now(&self) -> Time;
}

/// The events that a handler needs, of any [`RunsEvents`].
pub trait HeldConnection {
    /// SEND of one chunk; what was not taken stays in it.
    ///
    /// # Errors
    /// As for [`tcp::SendChunk`].
    fn send(&mut self, chunk: &mut Option<Chunk>) -> Result<usize, tcp::Error>;

    /// RECEIVE of all data there is, if that is one buffer and nothing rare is on: see [`tcp::ReceivePiece`].
    fn receive_piece(&mut self) -> Option<PktBuf>;

    /// RECEIVE of one buffer into `received`, which is empty.
    ///
    /// # Errors
    /// As for [`tcp::Receive`].
    fn receive(&mut self, received: &mut Received) -> Result<(), tcp::Error>;

    /// No more data in one direction.
    ///
    /// # Errors
    /// As for [`tcp::Shutdown`].
    fn shut_down(&mut self, how: Shutdown) -> Result<(), tcp::Error>;

    /// CLOSE: the handler releases the connection.
    fn close(&mut self);

    /// ABORT, and release.
    fn abort(&mut self);

    /// Why the connection failed, once.
    fn failure(&mut self) -> Option<tcp::Error>;

    /// Acknowledgements wait for answers.
    fn expect_answers(&mut self);

    /// See [`RunsEvents::raised`].
    fn raised(&mut self) -> Readiness;

    /// The time of the event.
    fn now(&self) -> Time;
}

impl<T: RunsEvents> HeldConnection for T {
    fn send(&mut self, chunk: &mut Option<Chunk>) -> Result<usize, tcp::Error> {
        self.run(tcp::SendChunk(chunk)).unwrap_or(Err(tcp::Error::NotConnected)).map(|taken| taken as usize)
    }

    fn receive_piece(&mut self) -> Option<PktBuf> {
        self.run(tcp::ReceivePiece).flatten()
    }

    fn receive(&mut self, received: &mut Received) -> Result<(), tcp::Error> {
        self.run(tcp::ReceiveInto { max: 1, received: &mut *received }).unwrap_or(Err(tcp::Error::NotConnected))?;
        if !received.check() {
            self.run(tcp::DamagedData);
            return Err(tcp::Error::Aborted);
        }
        Ok(())
    }

    fn shut_down(&mut self, how: Shutdown) -> Result<(), tcp::Error> {
        self.run(how).unwrap_or(Err(tcp::Error::NotConnected))
    }

    fn close(&mut self) {
        self.run(tcp::Close);
    }

    fn abort(&mut self) {
        self.run(tcp::Abort);
    }

    fn failure(&mut self) -> Option<tcp::Error> {
        self.run(tcp::TakeError).flatten()
    }

    fn expect_answers(&mut self) {
        self.run(tcp::ExpectAnswers);
    }

    fn raised(&mut self) -> Readiness {
        RunsEvents::raised(self)
    }

    fn now(&self) -> Time {
        RunsEvents::now(self)
    }
}
