//! Runs an event on a connection and performs its effects on timers, tables, listeners and destinations. Contains a
//! panic, which ends that connection only.

use std::sync::Arc;

use observe::{Counter, Time};
use sync::Writers;
use tcp::{PathUpdate, TableChange, TcpEvent};

use super::handlers::HandledConnections;
use super::place::{Effects, Place};
use crate::attempt::{Panic, attempt};
use crate::containment::{ABORTED, FaultScope};
use crate::deferred::DeferredEffects;
use crate::socket::{Admitted, TcpSocket};

/// Events and their effects; see the module documentation.
pub trait Events: Place {
    /// Runs one event of one connection and performs its effects. `None`: the connection has gone.
    #[inline(always)]
    fn run<E: TcpEvent>(
        &mut self,
        id: &Self::Id,
        held: Self::Held,
        event: E,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Option<E::Reply> {
        let (reply, effects) = self.work(id, held, event, now, deferred)?;
        if let Some(effects) = effects {
            self.settle(id, effects, now, deferred);
        }
        Some(reply)
    }

    /// As [`Events::run`], but a panic ends only this connection and returns `None`.
    #[inline(always)]
    fn run_contained<E: TcpEvent>(
        &mut self,
        id: &Self::Id,
        held: Self::Held,
        event: E,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Option<E::Reply> {
        let mut reply = None;
        if let Err(panic) = attempt(|| reply = self.run(id, held, event, now, deferred)) {
            reply = None;
            self.contain(id, panic, now, deferred);
        }
        reply
    }

    /// An event of this connection has panicked: the panic is recorded, the connection ends, its user is notified.
    #[cold]
    #[inline(never)]
    fn contain(&mut self, id: &Self::Id, panic: Panic, now: Time, deferred: &mut DeferredEffects<Self::Platform>) {
        let scope = self.flow(id).map_or(FaultScope::Work, |flow| FaultScope::Connection(flow.tuple));
        self.shared().failures.note(panic, scope, self.counters());
        if let Some(socket) = self.abort(id, now, deferred) {
            deferred.wake(&socket, ABORTED, Writers::Many);
        }
    }

    /// Ends a connection after a panic in one of its events. It tries to send a reset; using the rest of the PCB may
    /// panic again. A thread that waits for the connection finds it closed.
    #[cold]
    #[inline(never)]
    fn abort(
        &mut self,
        id: &Self::Id,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Option<Arc<TcpSocket<Self::Platform>>> {
        let socket = self.socket(id)?;
        self.abort_handler(id, now, deferred);
        let _ = attempt(|| self.work(id, Self::Held::default(), tcp::Abort, now, deferred));
        self.remove(id);
        socket.abort();
        Some(socket)
    }

    /// Performs the effects of an event.
    #[inline(always)]
    fn settle(&mut self, id: &Self::Id, effects: Effects, now: Time, deferred: &mut DeferredEffects<Self::Platform>) {
        let changes = effects.table != TableChange::None;
        // A change that sets the wake-up anew does so below: an entry made here would only be taken out again.
        if let Some(deadline) = effects.deadline
            && !(Self::REARMS && changes && effects.table.replaces_wake_up())
        {
            let due = self.arm(id, deadline);
            self.call_for(due, deferred);
        }
        if effects.path != PathUpdate::None {
            self.path_update(id, effects.path, now, deferred);
        }
        if changes {
            self.change(id, effects, now, deferred);
        }
    }

    /// Has the thread that runs timers check for work at `nanos` (`u64::MAX`: no work).
    #[inline]
    fn call_for(&self, nanos: u64, deferred: &mut DeferredEffects<Self::Platform>) {
        if nanos != u64::MAX && self.shared().links().alarms().run_timers() {
            deferred.due(nanos);
        }
    }

    /// The event learnt about the connection's path.
    #[cold]
    #[inline(never)]
    fn path_update(
        &mut self,
        id: &Self::Id,
        update: PathUpdate,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) {
        let Some(flow) = self.flow(id) else { return };
        if let Some(changed) = self.shared().egress().path_update(flow.tuple.remote_addr, update, now, deferred) {
            self.run_contained(id, Self::Held::default(), changed, now, deferred);
        }
    }

    /// Applies the event's changes to the table, the listener or the cache of destinations.
    #[inline(never)]
    fn change(&mut self, id: &Self::Id, effects: Effects, now: Time, deferred: &mut DeferredEffects<Self::Platform>) {
        match effects.table {
            TableChange::None => {}
            TableChange::Established => self.established(id, now, deferred),
            TableChange::Remove => self.remove(id),
            TableChange::Waits => {
                self.release_user(id);
                let due = self.wait(id, effects.deadline, now);
                self.call_for(due, deferred);
            }
            TableChange::Unfinished { reset, remove } => self.unfinished(id, (reset, remove), now),
            TableChange::DestinationLearnt => self.learn(id, now, deferred),
            TableChange::Opened { learnt } => {
                let due = self.rearm(id, effects.deadline);
                self.call_for(due, deferred);
                if learnt {
                    self.learn(id, now, deferred);
                }
            }
        }
    }

    /// A connection that was opened with its SYN has failed.
    #[cold]
    fn unfinished(&mut self, id: &Self::Id, (reset, remove): (bool, bool), now: Time) {
        let admission = self.with_directory(|directory, _| {
            let slot = Self::slot(directory, id)?;
            directory.take_admission(slot)
        });
        if let Some(admission) = admission {
            if reset { admission.reset(now) } else { admission.abandon() }
        }
        if remove {
            self.remove(id);
        }
    }

    /// A connection has learnt about its destination.
    #[cold]
    fn learn(&mut self, id: &Self::Id, now: Time, deferred: &mut DeferredEffects<Self::Platform>) {
        let Some(flow) = self.flow(id) else { return };
        let update = self.run_contained(id, Self::Held::default(), tcp::TakeDestinationUpdate, now, deferred);
        if let Some(update) = update.flatten() {
            let shared = self.shared();
            let timeout = shared.control().tcp().fast_open_black_hole_timeout;
            shared.destinations.learn(flow.tuple.remote_addr, &update, timeout, now);
        }
    }

    /// The handshake of a connection that was opened with its SYN is complete: it enters the accept queue, if it has
    /// not already, and returns its place in the backlog.
    #[inline(never)]
    fn established(&mut self, id: &Self::Id, now: Time, deferred: &mut DeferredEffects<Self::Platform>) {
        let admitted = self.with_directory(|directory, _| {
            let slot = Self::slot(directory, id)?;
            let admission = directory.take_admission(slot)?;
            let admitted = admission.enter(Self::user(directory, slot)?);
            if let Admitted::New(listener, Some(rest)) = admitted {
                directory.early.insert(slot, rest);
                return Some(Admitted::New(listener, None));
            }
            Some(admitted)
        });
        if let Some(admitted) = admitted {
            self.admitted(id, admitted, now, deferred);
        }
    }

    /// A connection has entered the accept queue, or its listener has closed.
    #[inline]
    fn admitted(
        &mut self,
        id: &Self::Id,
        admitted: Admitted<Self::Platform>,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) {
        match admitted {
            Admitted::New(listener, _) => {
                self.counters().add(Counter::ConnectionsAccepted, 1);
                if listener.acceptor().is_some() {
                    return self.accept_by(id, &listener, now, deferred);
                }
                deferred.wake_listener(&listener);
            }
            Admitted::Known => {}
            Admitted::Closed => {
                self.run_contained(id, Self::Held::default(), tcp::Abort, now, deferred);
            }
        }
    }

    /// The connection is finished, and no user holds it: it leaves the table.
    #[inline(never)]
    fn remove(&mut self, id: &Self::Id) {
        if let Some(admission) = self.unlink(id) {
            admission.abandon();
        }
    }
}

impl<L: Place> Events for L {}

/// Guards the run of a segment. On panic the connection is ended while the place is still held, and the code that
/// contains the panic notifies its user. Otherwise the guard is disarmed. The guard costs nothing; catching the panic
/// would cost a call.
pub(crate) struct ResetOnPanic<'a, L: Place> {
    pub(crate) place: &'a mut L,
    pub(crate) id: &'a L::Id,
    pub(crate) now: Time,
    pub(crate) deferred: &'a mut DeferredEffects<L::Platform>,
}

impl<L: Place> Drop for ResetOnPanic<'_, L> {
    #[cold]
    fn drop(&mut self) {
        let shared = self.place.shared().clone();
        if shared.failures.contains() {
            let aborted = attempt(|| self.place.abort(self.id, self.now, self.deferred));
            aborted.ok().flatten().into_iter().for_each(|socket| shared.failures.defer_notification(socket));
        }
    }
}
