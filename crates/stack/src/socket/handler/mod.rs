//! Handlers: programs that run where their connection's data arrives.
//!
//! # Model
//! A [`ConnectionHandler`] belongs to one connection, as the PCB does, and is called by the thread that has run an event
//! of it. There is no other user: no thread polls the connection, sleeps on it or makes calls. Its callbacks get a
//! [`Conn`], which is the connection for the length of the callback: sending by it needs no call.
//!
//! # Where it runs
//! The architecture declares it ([`HandlersRun`]). *Inside*: between the event and the emission of its segments, in the
//! cell and with the same outbox; so an answer leaves with the acknowledgement of the request, and costs no second entry.
//! This is the one exception from the rule that no user's code runs while a cell is held. *After*: connections with locks
//! of their own release them first. The handler then takes the data and sends its answer by events of their own, on the
//! same thread; a thread that finds the handler running leaves its event to the thread that runs it.
//!
//! # The order of callbacks
//! `open`, then `data` for each buffer in the order of the stream, `end` once after the last, `closed` once and last.
//! `writable` follows a send that was not taken whole; `timer` and `message` come at any time between `open` and
//! `closed`.
//!
//! # What may never happen
//! Two callbacks of one handler at once; a callback before `open` (but `closed`) or after `closed`; a call of the stack
//! by a handler, which would enter a cell from within a cell ([`in_handler`]: such calls are refused, and nothing
//! sleeps); a handler's panic that ends more than its connection. A handler acts on another connection by a
//! [`HandlerMessage`] to that one's handler, posted when the last guard has dropped.

mod conn;
mod held;
mod inbox;
mod state;
mod within;

pub use conn::Conn;
pub use held::{HeldConnection, RunsEvents};
pub use inbox::{HandlerMessage, HandlerRef, NotifyOwner, Post, PostRefused};
pub use state::HandlerState;
pub use within::{IN_HANDLER, in_handler};

use std::fmt;
use std::sync::Arc;

use pktbuf::PktBuf;
use sync::Platform;

use super::TcpSocket;

/// Where an architecture runs handlers: see the [module documentation](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlersRun {
    /// In the cell, before the event's segments leave: an answer joins them.
    Inside,
    /// When no guard is held any more: an answer is an ordinary send.
    After,
}

impl fmt::Display for HandlersRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            HandlersRun::Inside => "inside",
            HandlersRun::After => "after the guards",
        })
    }
}

/// The program of one connection. See the [module documentation](self) for the order of its callbacks; all of them may
/// send, close and post. None may sleep or call the stack: that is refused (see [`in_handler`]). A callback that panics
/// resets the connection, and is the last.
pub trait ConnectionHandler<P: Platform>: Send + 'static {
    /// The connection is open: it was accepted, or its active open is complete.
    fn open(&mut self, _conn: &mut Conn<'_, P>) {}

    /// Data has arrived: the next bytes of the stream, in the buffer in which they came. At least one byte.
    fn data(&mut self, conn: &mut Conn<'_, P>, data: PktBuf);

    /// The peer sends no more. Closes the connection unless it is replaced.
    fn end(&mut self, conn: &mut Conn<'_, P>) {
        conn.close();
    }

    /// There is room again for data that a send did not take.
    fn writable(&mut self, _conn: &mut Conn<'_, P>) {}

    /// The time of [`Conn::set_timer`] has come.
    fn timer(&mut self, _conn: &mut Conn<'_, P>) {}

    /// Another handler, or another thread, has posted this.
    fn message(&mut self, _conn: &mut Conn<'_, P>, _message: HandlerMessage) {}

    /// The connection is over for this handler. `Ok`: both directions have ended, or the handler has closed it. Otherwise
    /// the reason why it failed. Sending is refused; posting is not.
    fn closed(&mut self, _conn: &mut Conn<'_, P>, _outcome: Result<(), tcp::Error>) {}
}

/// Makes the handlers of a listener's connections.
pub struct Acceptor<P: Platform> {
    make: Box<MakeHandler<P>>,
    owners: Arc<dyn NotifyOwner<P>>,
}

/// Makes the handler of a connection, which is not open yet.
type MakeHandler<P> = dyn Fn(&TcpSocket<P>) -> Box<dyn ConnectionHandler<P>> + Send + Sync;

impl<P: Platform> Acceptor<P> {
    /// `make` is called for each connection where its handler will run; `owners` leads to the owners of connections.
    pub fn new(
        make: impl Fn(&TcpSocket<P>) -> Box<dyn ConnectionHandler<P>> + Send + Sync + 'static,
        owners: Arc<dyn NotifyOwner<P>>,
    ) -> Self {
        Acceptor { make: Box::new(make), owners }
    }

    /// A connection has been accepted: its handler.
    pub(crate) fn accept(&self, socket: &Arc<TcpSocket<P>>) -> Box<HandlerState<P>> {
        let inside = within::enter::<P>();
        let handler = (self.make)(socket);
        drop(inside);
        HandlerState::accepted(handler, HandlerRef::new(socket, &self.owners))
    }
}
