//! Connections with handlers: accepting one, giving a handler to one that a user has opened, and calling a handler for
//! reasons other than an event of TCP.

use observe::Time;
use tcp::{Outbox, PcbAccess, Readiness, TcpEvent};

use super::events::Events;
use super::place::Place;
use crate::attempt::attempt;
use crate::deferred::DeferredEffects;
use crate::socket::ListenerShared;
use crate::socket::handler::HandlerState;

/// Connections with handlers; see the module documentation.
pub trait HandledConnections: Place {
    /// A listener whose connections get handlers has accepted this one.
    #[cold]
    fn accept_by(
        &mut self,
        id: &Self::Id,
        listener: &ListenerShared<Self::Platform>,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) {
        let (Some(acceptor), Some(socket)) = (listener.acceptor(), self.socket(id)) else { return };
        match attempt(|| acceptor.accept(&socket)) {
            Ok(handler) => self.give_handler(id, handler, now, deferred),
            Err(panic) => {
                self.shared().failures.note_handler(panic, socket.tuple(), self.counters());
                self.run_contained(id, Self::Held::default(), tcp::Abort, now, deferred);
            }
        }
    }

    /// The connection has this handler from now on, which is called for all earlier events.
    #[cold]
    fn give_handler(
        &mut self,
        id: &Self::Id,
        handler: Box<HandlerState<Self::Platform>>,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) {
        let Some(socket) = self.socket(id) else { return };
        self.keep_handler(id, handler);
        socket.ready.hand_over();
        // Read after the handler was installed: bits that rise later call the handler anyway.
        let level = socket.ready.get();
        self.run_contained(id, Self::Held::default(), CallHandler(level), now, deferred);
    }

    /// Calls the handler of this connection, if it has one, for its timer or its messages.
    #[cold]
    fn call_handler(&mut self, id: &Self::Id, now: Time, deferred: &mut DeferredEffects<Self::Platform>) {
        if self.socket(id).is_some_and(|socket| socket.ready.is_handled()) {
            self.run_contained(id, Self::Held::default(), CallHandler(Readiness::NONE), now, deferred);
        }
    }
}

impl<L: Events> HandledConnections for L {}

/// An event that changes nothing: the connection's handler is called, with these bits besides. A bit that no connection
/// raises itself represents the call, so that it is processed like all others.
struct CallHandler(Readiness);

impl TcpEvent for CallHandler {
    type Reply = ();

    fn run<A: PcbAccess>(self, _: &mut A, out: &mut Outbox<'_>, _: Time) {
        out.ready |= self.0 | Readiness::ACCEPTABLE;
    }
}
