//! Handlers of connections that have locks of their own: run after the guards, by events of their own.
//!
//! Two threads may bring events to one handler at once. One takes it out of the connection and runs it; the other leaves
//! its bits, which the first takes before it puts the handler back.

use observe::Time;
use sync::{Lock, LockClass, LockKind, Platform};
use tcp::{Readiness, TcpEvent};

use std::sync::Arc;

use super::super::Place;
use super::super::handlers::condemn;
use super::{Locked, LockedConnection};
use crate::attempt::attempt;
use crate::connections::Events;
use crate::deferred::DeferredEffects;
use crate::socket::handler::{HandlerState, RunsEvents};

/// The handler of one connection, and what it has not been told.
pub(super) struct HandlerSlot<P: Platform> {
    /// `None` while a thread runs it, and when it is over.
    handler: Option<Box<HandlerState<P>>>,
    pending: Readiness,
}

pub(super) type HandlerLock<P> = Lock<HandlerSlot<P>, P>;

/// A slot with a handler.
pub(super) fn slot_for<P: Platform>(handler: Box<HandlerState<P>>) -> Box<HandlerLock<P>> {
    let slot = HandlerSlot { handler: Some(handler), pending: Readiness::NONE };
    Box::new(Lock::new(LockKind::Blocking, LockClass::SocketBuffer, slot))
}

/// Takes the handler of a connection that no thread is inside.
pub(super) fn take<P: Platform>(connection: &LockedConnection<P>) -> Option<Box<HandlerState<P>>> {
    connection.handler.get()?.lock().handler.take()
}

impl<P: Platform> Locked<P> {
    /// Runs the handlers that the events so far have called for. The caller holds no guard.
    #[inline]
    pub(crate) fn run_handlers(&self, now: impl Fn() -> Time, deferred: &mut DeferredEffects<P>) {
        while let Some((socket, bits)) = deferred.next_handled() {
            let now = now();
            let found = (&mut &*self).find_key(socket.target().key);
            if let Some((connection, _)) = found.map(|(connection, held)| (connection, drop(held))) {
                self.run_handler(&connection, bits, now, deferred);
            }
        }
    }

    #[cold]
    fn run_handler(
        &self,
        connection: &Arc<LockedConnection<P>>,
        bits: Readiness,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) {
        let Some(lock) = connection.handler.get() else { return };
        let mut slot = lock.lock();
        slot.pending |= bits;
        let Some(mut handler) = slot.handler.take() else { return };
        loop {
            let bits = std::mem::replace(&mut slot.pending, Readiness::NONE);
            drop(slot);
            if !self.run_once(connection, &mut handler, bits, now, deferred) {
                return deferred.dispose(handler);
            }
            slot = lock.lock();
            if slot.pending.is_empty() {
                slot.handler = Some(handler);
                return;
            }
        }
    }

    /// False: the handler is over.
    fn run_once(
        &self,
        connection: &Arc<LockedConnection<P>>,
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
    pub(super) fn condemn_handler(
        &self,
        connection: &LockedConnection<P>,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) {
        if let Some(handler) = take(connection) {
            condemn(handler, (&self.shared, &connection.flow, self.counters.here()), now, deferred);
        }
    }
}

/// A connection whose locks are free.
struct After<'a, P: Platform> {
    place: &'a Locked<P>,
    connection: &'a Arc<LockedConnection<P>>,
    now: Time,
    deferred: &'a mut DeferredEffects<P>,
}

impl<P: Platform> RunsEvents for After<'_, P> {
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
