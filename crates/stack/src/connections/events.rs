//! An event runs on a connection, and what it leaves to be done is done: timers, tables, listeners, destinations; and the
//! containment of a panic, which ends the connection and nothing else.

use std::sync::Arc;

use observe::{Counter, Time};
use sync::Writers;
use tcp::{Event, PathNews, TableChange};

use crate::after::After;
use crate::attempt::{Panic, attempt};
use crate::containment::{CONDEMNED, Casualty};
use crate::place::{Effects, Place};
use crate::socket::{Admitted, TcpSocket};

/// Events and their effects; see the module documentation.
pub trait Events: Place {
    /// Runs one event of one connection and performs its effects. `None`: the connection has gone.
    #[inline(always)]
    fn run<E: Event>(
        &mut self,
        id: &Self::Id,
        held: Self::Held,
        event: E,
        now: Time,
        after: &mut After<Self::Platform>,
    ) -> Option<E::Reply> {
        let (reply, effects) = self.work(id, held, event, now, after)?;
        self.settle(id, effects, now, after);
        Some(reply)
    }

    /// [`Events::run`], whose panic ends this connection and nothing else; `None` then.
    #[inline(always)]
    fn run_contained<E: Event>(
        &mut self,
        id: &Self::Id,
        held: Self::Held,
        event: E,
        now: Time,
        after: &mut After<Self::Platform>,
    ) -> Option<E::Reply> {
        let mut reply = None;
        if let Err(panic) = attempt(|| reply = self.run(id, held, event, now, after)) {
            reply = None;
            self.contain(id, panic, now, after);
        }
        reply
    }

    /// An event of this connection has panicked: the panic is noted, the connection ends, its user is told.
    #[cold]
    #[inline(never)]
    fn contain(&mut self, id: &Self::Id, panic: Panic, now: Time, after: &mut After<Self::Platform>) {
        let casualty = self.flow(id).map_or(Casualty::Work, |flow| Casualty::Connection(flow.tuple));
        self.shared().failures.note(panic, casualty, self.counters());
        if let Some(socket) = self.condemn(id, now, after) {
            after.wake(&socket, CONDEMNED, Writers::Many);
        }
    }

    /// Ends a connection whose event has panicked. A reset for the peer is tried; what is left of the PCB may panic again. A
    /// thread that waits for the connection finds it closed.
    #[cold]
    #[inline(never)]
    fn condemn(
        &mut self,
        id: &Self::Id,
        now: Time,
        after: &mut After<Self::Platform>,
    ) -> Option<Arc<TcpSocket<Self::Platform>>> {
        let socket = self.socket(id)?;
        let _ = attempt(|| self.work(id, Self::Held::default(), tcp::Abort, now, after));
        self.remove(id);
        socket.condemn();
        Some(socket)
    }

    /// Performs the effects of an event. Mostly there are none.
    #[inline(always)]
    fn settle(&mut self, id: &Self::Id, effects: Effects, now: Time, after: &mut After<Self::Platform>) {
        if let Some(deadline) = effects.deadline {
            let due = self.arm(id, deadline);
            self.call_for(due, after);
        }
        if effects.path != PathNews::None {
            self.path_news(id, effects.path, now, after);
        }
        if effects.table != TableChange::None {
            self.change(id, effects.table, now, after);
        }
    }

    /// Something is due at `nanos`, or nothing (`u64::MAX`): the thread that runs timers is to look then.
    #[inline]
    fn call_for(&self, nanos: u64, after: &mut After<Self::Platform>) {
        if nanos != u64::MAX && self.shared().alarms.run_timers() {
            after.due(nanos);
        }
    }

    /// The event learnt something of the connection's path.
    #[cold]
    #[inline(never)]
    fn path_news(&mut self, id: &Self::Id, news: PathNews, now: Time, after: &mut After<Self::Platform>) {
        let Some(flow) = self.flow(id) else { return };
        if let Some(changed) = self.shared().path_news(flow.tuple.remote_addr, news, now, after) {
            self.run_contained(id, Self::Held::default(), changed, now, after);
        }
    }

    /// The event changes what the table, a listener or the memory of destinations knows of the connection.
    #[inline(never)]
    fn change(&mut self, id: &Self::Id, change: TableChange, now: Time, after: &mut After<Self::Platform>) {
        match change {
            TableChange::None => {}
            TableChange::Established => self.established(id, now, after),
            TableChange::Remove => self.remove(id),
            TableChange::Unfinished { reset, remove } => self.unfinished(id, (reset, remove), now),
            TableChange::News => self.learn(id, now, after),
        }
    }

    /// A connection that was opened with its SYN has failed.
    #[cold]
    fn unfinished(&mut self, id: &Self::Id, (reset, remove): (bool, bool), now: Time) {
        let owed = self.with_directory(|directory, _| {
            let slot = Self::slot(directory, id)?;
            directory.owed(slot)
        });
        if let Some(admission) = owed {
            if reset { admission.reset(now) } else { admission.abandon() }
        }
        if remove {
            self.remove(id);
        }
    }

    /// A connection has learnt something of its destination.
    #[cold]
    fn learn(&mut self, id: &Self::Id, now: Time, after: &mut After<Self::Platform>) {
        let Some(flow) = self.flow(id) else { return };
        let news = self.run_contained(id, Self::Held::default(), tcp::TakeNews, now, after);
        if let Some(news) = news.flatten() {
            let shared = self.shared();
            let timeout = shared.tcp().fast_open_black_hole_timeout;
            shared.destinations.learn(flow.tuple.remote_addr, &news, timeout, now);
        }
    }

    /// The handshake of a connection that was opened with its SYN is complete: it enters the accept queue, if it has not, and
    /// owes its listener nothing more.
    #[inline(never)]
    fn established(&mut self, id: &Self::Id, now: Time, after: &mut After<Self::Platform>) {
        let admitted = self.with_directory(|directory, _| {
            let slot = Self::slot(directory, id)?;
            let admission = directory.owed(slot)?;
            let admitted = admission.enter(&Self::user(directory, slot)?);
            if let Admitted::New(listener, Some(rest)) = admitted {
                directory.early.insert(slot, rest);
                return Some(Admitted::New(listener, None));
            }
            Some(admitted)
        });
        if let Some(admitted) = admitted {
            self.admitted(id, admitted, now, after);
        }
    }

    /// A connection has entered the accept queue, or its listener has closed.
    #[inline]
    fn admitted(
        &mut self,
        id: &Self::Id,
        admitted: Admitted<Self::Platform>,
        now: Time,
        after: &mut After<Self::Platform>,
    ) {
        match admitted {
            Admitted::New(listener, _) => {
                self.counters().add(Counter::ConnectionsAccepted, 1);
                after.wake_listener(&listener);
            }
            Admitted::Known => {}
            Admitted::Closed => {
                self.run_contained(id, Self::Held::default(), tcp::Abort, now, after);
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

/// A segment is being run. If that panics, the connection is ended while the place is still held, and the code that contains
/// the panic tells its user; otherwise it is forgotten. A guard costs nothing where catching the panic would cost a call.
pub(super) struct Doomed<'a, L: Place> {
    pub(super) place: &'a mut L,
    pub(super) id: &'a L::Id,
    pub(super) now: Time,
    pub(super) after: &'a mut After<L::Platform>,
}

impl<L: Place> Drop for Doomed<'_, L> {
    #[cold]
    fn drop(&mut self) {
        let shared = self.place.shared().clone();
        if shared.failures.contains() {
            let condemned = attempt(|| self.place.condemn(self.id, self.now, self.after));
            condemned.ok().flatten().into_iter().for_each(|socket| shared.failures.owe(socket));
        }
    }
}
