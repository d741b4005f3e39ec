//! Connections whose backlogs one thread runs, a *processor*, which alone runs what no caller waits for (gVisor; see
//! [`arch::processor`](crate::arch::processor)).
//!
//! A processor owns a connection for a turn. It performs the effects of an event before the turn ends, as the owner: an event
//! that these need is run at once ([`Backlogged::own_again`]), where a thread that has released the connection would have to
//! wait for the next owner. What may never happen: a processor waits for a connection.
//!
//! [`Backlogged::own_again`]: crate::place::pcb::Backlogged::own_again

use std::sync::Arc;

use observe::Time;
use sync::{Atomic, Ordering, Platform, model_is_over};
use tcp::TcpEvent;

use super::super::pcb::{LeftForProcessor, SharedPcb};
use super::left::{self, ConnectionOwnership, LeftEvent, OwnedConnection};
use super::{ConnectionRef, Locked, LockedConnection, TableGuard};
use crate::attempt::attempt;
use crate::charge;
use crate::connections::{Effects, Events, UnawaitedEvent};
use crate::deferred::DeferredEffects;

/// The most events that a processor runs in one turn on a connection, before others have theirs (gVisor:
/// `maxSegmentsPerWake`).
const MOST_IN_A_TURN: usize = 100;

/// Where connections wait for their processors.
pub trait QueuesForProcessors<P: Platform, R = Arc<LockedConnection<P>>>: Send + Sync {
    /// The connection waits for a turn from now on, and its processor is woken. The caller holds no guard.
    fn queue(&self, connection: &R);
}

/// A connection, and what it has behind it.
type Owned<'a, P, R> = (&'a R, &'a OwnedConnection<P>);

/// The calling thread owns a connection. Releases and hands it over when it is dropped, also on panic.
struct Holding<'a, P: Platform, R> {
    connection: &'a R,
    owner: Option<ConnectionOwnership<'a, P>>,
    processors: Option<&'a dyn QueuesForProcessors<P, R>>,
}

impl<P: Platform, R> Drop for Holding<'_, P, R> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        if self.owner.take().is_some_and(ConnectionOwnership::hand_over)
            && let Some(processors) = self.processors
        {
            sync::walk::note(file!(), "hands the connection over to its processor");
            processors.queue(self.connection);
        }
    }
}

impl<P: Platform, R: ConnectionRef<P>> Locked<P, R> {
    /// Processors run the events left for connections from now on; connections wait for them here. No event has been left
    /// yet.
    pub(crate) fn hand_over_to(&mut self, processors: Arc<dyn QueuesForProcessors<P, R>>) {
        self.processors = Some(processors);
    }

    /// Leaves an event for the connection's processor.
    pub(super) fn leave_for_processor(
        &self,
        (connection, owned): Owned<'_, P, R>,
        processors: &dyn QueuesForProcessors<P, R>,
        event: UnawaitedEvent<'_>,
        now: Time,
    ) {
        let (cost, mut event) = (left::cost(&event), Some(event));
        match owned.leave(cost, self.most_left(), || self.left(&mut event, now)) {
            LeftForProcessor::Queue => {
                sync::walk::note(file!(), "leaves it for the connection's processor, and queues the connection");
                processors.queue(connection);
            }
            LeftForProcessor::Known => {
                sync::walk::note(file!(), "leaves it for the connection's processor, which knows of the connection");
            }
            LeftForProcessor::Full => self.drop_event(event),
        }
    }

    /// Runs an event on a connection that may be in use, and hands over what was left meanwhile.
    #[inline(never)]
    pub(super) fn work_beside_processor<E: TcpEvent>(
        &self,
        (connection, owned): Owned<'_, P, R>,
        held: TableGuard<'_, P, R>,
        event: E,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> (E::Reply, Option<Effects>) {
        if let Some(mut again) = owned.own_again() {
            return self.run_under(connection, (held, Some(&mut *again)), event, now, deferred);
        }
        let mut holding = self.holding(connection, owned.own_patiently());
        self.run_under(connection, (held, holding.owner.as_mut()), event, now, deferred)
    }

    /// The calling thread, which is the connection's processor, has taken it from its queue: runs what was left for it, unless
    /// it is in use. Its owner queues it then.
    pub(crate) fn run_turn(&self, connection: &R, deferred: &mut DeferredEffects<P>) {
        let SharedPcb::Owned(owned) = &connection.pcb else { return };
        let Some((mut event, owner)) = owned.turn(LeftEvent::cost) else {
            sync::walk::note(file!(), "the processor passes over the connection: it is in use");
            return;
        };
        let mut holding = self.holding(connection, owner);
        for _ in 1..MOST_IN_A_TURN {
            self.run_in_turn(&mut holding, event, deferred);
            let next = holding.owner.take().and_then(|owner| owner.next_in_turn(LeftEvent::cost));
            let Some((next, owner)) = next else { return };
            (event, holding.owner) = (next, Some(owner));
        }
        self.run_in_turn(&mut holding, event, deferred);
    }

    /// Runs an event, and performs its effects. A panic ends the connection.
    fn run_in_turn(&self, holding: &mut Holding<'_, P, R>, event: LeftEvent, deferred: &mut DeferredEffects<P>) {
        let (mut place, connection, at) = (self, holding.connection, event.at());
        let Some(owner) = &mut holding.owner else { return };
        charge::left::<P, _>(&event, false);
        sync::walk::note(file!(), "the processor takes what was left for the connection");
        let ran = attempt(|| {
            let remains = self.run_left(connection, event, owner, deferred);
            self.settle_left(connection, remains, deferred);
        });
        self.left.fetch_sub(1, Ordering::AcqRel);
        if let Err(panic) = ran {
            place.contain(connection, panic, at, deferred);
        }
    }

    fn holding<'a>(&'a self, connection: &'a R, owner: ConnectionOwnership<'a, P>) -> Holding<'a, P, R> {
        Holding { connection, owner: Some(owner), processors: self.processors.as_deref() }
    }
}
