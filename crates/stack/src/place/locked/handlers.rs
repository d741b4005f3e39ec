//! Handlers of connections that have locks of their own: run after the guards, by events of their own.
//!
//! Two threads may have events for one handler at once. One takes it out of the connection and runs it; the other
//! leaves its bits, and the first runs it again ([`HandlerTurns`]), or, as the architecture wants it, has another
//! thread do so.

use observe::Time;
use sync::Platform;
use tcp::{Readiness, TcpEvent};

use super::super::handlers::abort;
use super::super::turns::HandlerTurns;
use super::{ConnectionRef, Locked, LockedConnection};
use crate::attempt::attempt;
use crate::connections::{Events, Place};
use crate::deferred::DeferredEffects;
use crate::flow::Target;
use crate::socket::handler::{HandlerState, RunsEvents};

/// The handler of one connection.
pub(super) type LockedHandler<P> = HandlerTurns<Box<HandlerState<P>>, P>;

/// Takes the handler of a connection, if no thread runs it, with the bits left for it.
pub(super) fn take<P: Platform>(connection: &LockedConnection<P>) -> Option<Box<HandlerState<P>>> {
    let (mut handler, left) = connection.handler.get()?.take()?;
    handler.add_pending(left);
    Some(handler)
}

impl<P: Platform, R: ConnectionRef<P>> Locked<P, R> {
    /// Runs the handlers that the events so far have called for. The caller holds no guard.
    #[inline]
    pub(crate) fn run_handlers(&self, now: impl Fn() -> Time, deferred: &mut DeferredEffects<P>) {
        while let Some((socket, bits)) = deferred.next_handled() {
            if let Some(connection) = self.handled(&socket.target()) {
                self.run_handler(&connection, bits, now(), deferred);
            }
        }
    }

    #[cold]
    fn run_handler(&self, connection: &R, bits: Readiness, now: Time, deferred: &mut DeferredEffects<P>) {
        let mut ready = connection.handler.get().is_some_and(|handler| handler.leave(bits));
        while ready {
            ready = self.take_turn(connection, now, deferred);
        }
    }

    /// Leaves `bits` for the handler of a connection. True: it is ready from now on, and the caller has a thread run it.
    pub(crate) fn leave_for_handler(&self, target: &Target, bits: Readiness) -> bool {
        let connection = self.handled(target);
        connection.is_some_and(|found| found.handler.get().is_some_and(|handler| handler.leave(bits)))
    }

    /// Runs a handler that is ready, once. True: it is ready again. The caller holds no guard.
    pub(crate) fn run_ready(&self, target: &Target, now: Time, deferred: &mut DeferredEffects<P>) -> bool {
        self.handled(target).is_some_and(|connection| self.take_turn(&connection, now, deferred))
    }

    fn handled(&self, target: &Target) -> Option<R> {
        (&mut &*self).find_key(target.key).map(|(connection, held)| (connection, drop(held)).0)
    }

    /// True: the handler is ready again.
    fn take_turn(&self, connection: &R, now: Time, deferred: &mut DeferredEffects<P>) -> bool {
        let Some(turns) = connection.handler.get() else { return false };
        let Some((mut handler, bits)) = turns.take() else { return false };
        if !self.run_once(connection, &mut handler, bits, now, deferred) {
            deferred.dispose(handler);
            return false;
        }
        turns.put_back(handler).unwrap_or_else(|handler| {
            self.handler_aborted(connection, handler, now, deferred);
            false
        })
    }

    /// False: the handler is over.
    fn run_once(
        &self,
        connection: &R,
        handler: &mut HandlerState<P>,
        bits: Readiness,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> bool {
        let mut posts = Vec::new();
        let ran = attempt(|| {
            let mut after = After { place: self, connection, now, deferred: &mut *deferred };
            handler.run(&mut after, bits, &mut posts);
        });
        deferred.post(posts);
        let mut place = self;
        if let Err(panic) = ran {
            handler.give_up();
            self.shared.failures.note_handler(panic, connection.flow.tuple, self.counters.here());
            place.run_contained(connection, None, tcp::Abort, now, deferred);
        }
        if let Some(deadline) = handler.deadline() {
            let due = place.arm(connection, deadline);
            place.call_for(due, deferred);
        }
        !handler.is_over()
    }

    /// The connection was ended by a panic of the stack.
    pub(super) fn abort_handler(&self, connection: &LockedConnection<P>, now: Time, deferred: &mut DeferredEffects<P>) {
        if let Some(handler) = connection.handler.get().and_then(|turns| turns.abort()) {
            self.handler_aborted(connection, handler, now, deferred);
        }
    }

    fn handler_aborted(
        &self,
        connection: &LockedConnection<P>,
        handler: Box<HandlerState<P>>,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) {
        abort(handler, (&self.shared, &connection.flow, self.counters.here()), now, deferred);
    }
}

/// A connection whose locks are free.
struct After<'a, P: Platform, R> {
    place: &'a Locked<P, R>,
    connection: &'a R,
    now: Time,
    deferred: &'a mut DeferredEffects<P>,
}

impl<P: Platform, R: ConnectionRef<P>> RunsEvents for After<'_, P, R> {
    const HOLDS: bool = false;

    fn run<E: TcpEvent>(&mut self, event: E) -> Option<E::Reply> {
        let mut place = self.place;
        place.run_contained(self.connection, None, event, self.now, self.deferred)
    }

    /// They come by [`DeferredEffects::next_handled`], like those of other threads' events.
    fn raised(&mut self) -> Readiness {
        Readiness::NONE
    }

    fn now(&self) -> Time {
        self.now
    }
}
