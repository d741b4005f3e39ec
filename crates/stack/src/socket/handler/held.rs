//! The connection that a handler uses, as the place that runs the handler gives it out.

use observe::Time;
use pktbuf::{Chunk, PktBuf};
use tcp::{BytesSent, Readiness, Received, Shutdown, TcpEvent};

/// Runs events on one connection for its handler: in the outbox of the event that called the handler, or each by itself.
pub trait RunsEvents {
    /// The connection is held between the events, too: what concerns the memory of data need not be done before.
    const HOLDS: bool;

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

    /// SEND of bytes that are copied, with `leaving` as in [`tcp::SendBytes`].
    ///
    /// # Errors
    /// As for [`tcp::SendBytes`].
    fn send_bytes(&mut self, data: &[u8], leaving: usize) -> Result<BytesSent, tcp::Error>;

    /// RECEIVE of one buffer: returned, or put into `rest`, which is `None`.
    ///
    /// # Errors
    /// As for [`tcp::ReceivePiece`].
    fn receive(&mut self, rest: &mut Option<Received>) -> Result<Option<PktBuf>, tcp::Error>;

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

    fn send_bytes(&mut self, data: &[u8], leaving: usize) -> Result<BytesSent, tcp::Error> {
        if T::HOLDS {
            return self.run(tcp::SendBytes { data, leaving }).unwrap_or(Err(tcp::Error::NotConnected));
        }
        let mut buffer = PktBuf::alloc_from(None, data.len(), leaving).ok_or(tcp::Error::NoBuffer)?;
        buffer.copy_from_slice(data);
        let mut chunk = Some(Chunk::Pooled(buffer));
        let accepted = self.run(tcp::SendChunk(&mut chunk)).unwrap_or(Err(tcp::Error::NotConnected))?;
        Ok(BytesSent { accepted, waits: chunk.is_some() })
    }

    #[inline(always)]
    fn receive(&mut self, rest: &mut Option<Received>) -> Result<Option<PktBuf>, tcp::Error> {
        let taken = self.run(tcp::ReceivePiece { rest: &mut *rest }).unwrap_or(Err(tcp::Error::NotConnected))?;
        if taken.is_none() && rest.as_mut().is_some_and(|rest| !rest.check()) {
            self.run(tcp::DamagedData);
            return Err(tcp::Error::Aborted);
        }
        Ok(taken)
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
