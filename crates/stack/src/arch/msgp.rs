//! Any thread, any connection, fine-grained locks (Willmann's MsgP, FreeBSD 5-7; Nahum's TCP-1, TCP-2, TCP-6).
//!
//! The locks and their order are those of [`Locked`]. The thread that posts an event runs it: there is no hand-over
//! and no queue. The named faults are [`Habits`] of the place.

use std::sync::Arc;

use observe::{Counters, Time};
use sync::Platform;

use super::declaration::{Declaration, NamedFault, Properties, TableRow, Variant};
use super::frame_input::ArrivalTurn;
use super::frame_workers::AboveWorkers;
use super::select::ThreadConfig;
use super::{NotAtRest, RunningArchitecture};
use crate::call::{Call, ControlRequest, Ingress, Reply};
use crate::connections::{Arrivals, Calls, Datagrams, Upkeep};
use crate::deferred::DeferredEffects;
use crate::flow::Target;
use crate::place::connection::Connections;
use crate::place::locked::{ConnectionRef, LockedConnection};
use crate::place::pcb::{ConnectionLocks, LockPlan};
use crate::place::{Contents, Habits, Locked, TablePolicy};
use crate::shared::Shared;
use crate::socket::HandlersRun;
use crate::socket::handler::in_handler;
use crate::stats::StackStats;
use crate::udp_call::{UdpCall, UdpReply};

const COUPLED: Habits = Habits::with_table(TablePolicy::Coupled);

/// The declaration of this architecture.
pub const DECLARATION: Declaration<(LockPlan, Habits)> = Declaration {
    name: "msgp",
    options: "[:1|2|6][+coupled]",
    variants: &[
        Variant {
            name: "msgp:1",
            also: None,
            about: "any thread; table lock, then the connection's lock",
            parameter: (LockPlan::One, Habits::PLAIN),
        },
        Variant {
            name: "msgp:2",
            also: None,
            about: "any thread; table lock, then the locks of a connection's two halves",
            parameter: (LockPlan::Two, Habits::PLAIN),
        },
        Variant {
            name: "msgp:6",
            also: None,
            about: "any thread; table lock, then the locks of a connection's six parts",
            parameter: (LockPlan::Six, Habits::PLAIN),
        },
        Variant {
            name: "msgp:1+coupled",
            also: Some("msgp+coupled"),
            about: "as msgp:1, but the table lock is kept while waiting for the connection (FreeBSD 7)",
            parameter: (LockPlan::One, COUPLED),
        },
        Variant {
            name: "msgp:2+coupled",
            also: None,
            about: "as msgp:2, but the table lock is kept while waiting for the connection (FreeBSD 7)",
            parameter: (LockPlan::Two, COUPLED),
        },
        Variant {
            name: "msgp:6+coupled",
            also: None,
            about: "as msgp:6, but the table lock is kept while waiting for the connection (FreeBSD 7)",
            parameter: (LockPlan::Six, COUPLED),
        },
    ],
    unlisted: &[],
    default: 0,
    numbers: None,
    faults: &[
        NamedFault {
            name: "routes",
            about: "each segment takes the lock of the route table and then of its route (FreeBSD 7)",
            with: |(locks, habits)| (locks, Habits { locks_routes: true, ..habits }),
        },
        NamedFault {
            name: "racy-stats",
            about: "all threads count in one block without synchronisation, and lose counts (BSD)",
            with: |(locks, habits)| (locks, Habits { racy_counters: true, ..habits }),
        },
    ],
    properties: Properties {
        single_thread: false,
        polling_thread_owns: false,
        has_locks: true,
        groups: false,
        own_threads: false,
        keeps_batches_together: true,
        handlers: HandlersRun::After,
        complexity: 4,
    },
    exceptions: &[],
    rows: &[
        TableRow {
            names: "`msgp:1`, `:2`, `:6`",
            cell: "a connection, its halves, its six parts",
            exclusive_use: "global table lock, then connection lock(s)",
            thread: "caller or receive thread",
            table: "global, locked",
            order: "structure",
        },
        TableRow {
            names: "`msgp:N+coupled`",
            cell: "the same",
            exclusive_use: "table lock kept while waiting for the connection and through ACK processing (FreeBSD 7)",
            thread: "the same",
            table: "the same",
            order: "structure",
        },
        TableRow {
            names: "`msgp..+routes`",
            cell: "the same",
            exclusive_use: "the same; each segment sent takes the lock of the route table and, with that held, of its route (a fault of FreeBSD 7)",
            thread: "the same",
            table: "the same",
            order: "structure",
        },
        TableRow {
            names: "`msgp..+racy-stats`",
            cell: "the same",
            exclusive_use: "the same; counters are shared and not synchronised: counts may be lost (a fault of BSD)",
            thread: "the same",
            table: "the same",
            order: "structure",
        },
    ],
};

/// Which thread runs the handlers of connections, once the thread that ran their events has released them.
pub trait HandlerDispatch<P: Platform, R = Arc<LockedConnection<P>>>: Send + Sync + 'static {
    /// Takes the handlers that events have called for out of `deferred`, and runs them or has them run. The caller holds no
    /// guard.
    fn dispatch(&self, place: &Locked<P, R>, now: impl Fn() -> Time, deferred: &mut DeferredEffects<P>);
}

/// The thread that ran the event runs the handler.
pub struct AtOnce;

impl<P: Platform, R: ConnectionRef<P>> HandlerDispatch<P, R> for AtOnce {
    #[inline]
    fn dispatch(&self, place: &Locked<P, R>, now: impl Fn() -> Time, deferred: &mut DeferredEffects<P>) {
        place.run_handlers(now, deferred);
    }
}

/// The architecture `msgp`.
pub struct MsgP<P: Platform, D = AtOnce, R = Arc<LockedConnection<P>>> {
    shared: Arc<Shared<P>>,
    slab: Arc<Connections<P>>,
    place: Locked<P, R>,
    dispatch: D,
}

/// A global table, and `locks` for each connection, all of the stack's lock kind.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    (locks, habits): (LockPlan, Habits),
    _: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let locks = ConnectionLocks::new(locks, shared.lock_kind);
    Arc::new(MsgP::<P>::of(shared, (locks, habits), AtOnce, contents))
}

impl<P: Platform, D: HandlerDispatch<P, R>, R: ConnectionRef<P>> MsgP<P, D, R> {
    /// With `contents` in it.
    pub(super) fn of(
        shared: &Arc<Shared<P>>,
        (locks, habits): (ConnectionLocks, Habits),
        dispatch: D,
        contents: Box<Contents<P>>,
    ) -> Self {
        let place = Locked::new(shared, &contents.slab, locks, habits);
        shared.links().alarms().timers_are_run_elsewhere(false);
        let slab = contents.slab.clone();
        contents.split(1, |_| 0).into_iter().for_each(|share| place.install(share));
        MsgP { shared: shared.clone(), slab, place, dispatch }
    }

    /// How handlers are run.
    pub(super) fn dispatch(&self) -> &D {
        &self.dispatch
    }

    /// The connections.
    pub(super) fn place(&self) -> &Locked<P, R> {
        &self.place
    }

    /// The same, before any thread uses them.
    pub(super) fn place_mut(&mut self) -> &mut Locked<P, R> {
        &mut self.place
    }

    /// Runs an event, but no handler.
    #[inline]
    pub(super) fn arrive(&self, ingress: &mut Ingress, now: Time, deferred: &mut DeferredEffects<P>) {
        (&mut &self.place).ingress(ingress, now, deferred);
    }

    /// Runs the handlers that the events so far have called for. The caller holds no guard.
    #[inline]
    pub(super) fn run_handlers(&self, now: Time, deferred: &mut DeferredEffects<P>) {
        self.dispatch.dispatch(&self.place, || now, deferred);
    }

    /// Runs `f` and performs the deferred effects.
    fn enter<T>(&self, f: impl FnOnce(&mut &Locked<P, R>, &mut DeferredEffects<P>) -> T) -> T {
        let mut deferred = DeferredEffects::default();
        let result = f(&mut &self.place, &mut deferred);
        self.dispatch.dispatch(&self.place, || self.shared.clock().now(), &mut deferred);
        deferred.flush(self.shared.links());
        result
    }
}

impl<P: Platform, D: HandlerDispatch<P, R>, R: ConnectionRef<P>> AboveWorkers<P> for MsgP<P, D, R> {
    fn shared(&self) -> &Arc<Shared<P>> {
        &self.shared
    }

    fn counters(&self) -> &Counters {
        self.place.here()
    }

    /// Handlers run after the turn.
    fn post_in_turn(
        &self,
        ingress: &mut Ingress,
        now: Time,
        deferred: &mut DeferredEffects<P>,
        turn: Option<ArrivalTurn<'_, P>>,
    ) {
        self.arrive(ingress, now, deferred);
        drop(turn);
        self.run_handlers(now, deferred);
    }
}

impl<P: Platform, D: HandlerDispatch<P, R>, R: ConnectionRef<P>> RunningArchitecture<P> for MsgP<P, D, R> {
    fn post(&self, ingress: &mut Ingress, now: Time, deferred: &mut DeferredEffects<P>) {
        self.arrive(ingress, now, deferred);
        self.run_handlers(now, deferred);
    }

    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        if in_handler::<P>() {
            *reply = Reply::Gone;
            return;
        }
        let now = self.shared.clock().now();
        self.enter(|place, deferred| place.call(target, call, now, deferred, reply));
    }

    fn udp(&self, call: &mut UdpCall<P>) -> UdpReply {
        if in_handler::<P>() {
            return UdpReply::Gone;
        }
        self.enter(|place, deferred| place.udp_call(call, deferred))
    }

    fn control(&self, change: ControlRequest<P>) {
        let now = self.shared.clock().now();
        self.enter(|place, deferred| place.control(change, now, deferred));
    }

    fn tick(&self, now: Time) {
        self.enter(|place, deferred| place.tick(now, deferred));
    }

    fn trim(&self) -> bool {
        super::trim_slab(&self.slab, || self.control(ControlRequest::Trim))
    }

    fn next_deadline(&self) -> Option<Time> {
        self.place.next_deadline()
    }

    fn is_quiescent(&self) -> bool {
        self.place.is_quiescent()
    }

    fn dissolve(&self) -> Result<Contents<P>, NotAtRest> {
        let mut contents = Contents::of(self.slab.clone());
        self.place.dissolve(&mut contents)?;
        Ok(contents)
    }

    fn stats(&self) -> StackStats {
        (&mut &self.place).stats()
    }
}
