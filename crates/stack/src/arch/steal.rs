//! Handlers that idle cores take from busy ones (ZygOS).
//!
//! # Model
//! A core is a receive thread. It runs the segments that it receives, on connections that threads own in turn
//! ([`backlog`]). A connection whose handler has work is *ready*: it waits in the queue of its home core, which is
//! chosen by the hash of its flow, as the device chooses the receive queue. After each batch a core runs the handlers
//! of the connections that wait in its own queue then, one after the other. A core that finds none there takes one
//! connection from another core's queue, and runs its handler. So a connection waits for the handlers of others only
//! while every core runs one.
//!
//! # Order
//! One thread at a time runs a connection's handler, and takes the data in the order of the stream. Data that arrives
//! meanwhile makes the connection ready again: it goes to the end of its home core's queue.
//!
//! # What differs from ZygOS
//! In ZygOS only the home core runs TCP: a thief sends the handler's calls back to it, and interrupts a home core that
//! runs a handler while packets wait for it. Here the thief makes these calls itself, as the connection's owner, so
//! that the home core leaves a segment in the connection's backlog meanwhile; and packets in the device's queue of a
//! core that runs a handler wait until that returns. Cores that are idle sleep; one is woken where a core has more
//! ready connections than the one that it runs. Users without handlers make their calls on their own threads, as under
//! `backlog`.
//!
//! What may never happen: two threads run one connection's handler; a connection is ready, and no core is about to
//! check its queue.

use std::sync::Arc;

use observe::Time;
use sync::Platform;

use super::declaration::{Declaration, Properties, TableRow, Variant};
use super::msgp::{HandlerDispatch, MsgP};
use super::ready_queues::ReadyQueues;
use super::select::ThreadConfig;
use super::{NotAtRest, RunningArchitecture, backlog};
use crate::call::{Call, ControlRequest, Ingress, Reply};
use crate::deferred::{DeferredEffects, EffectsGuard};
use crate::flow::Target;
use crate::handoff::CellMessage;
use crate::place::pcb::{ConnectionLocks, LockPlan};
use crate::place::{Contents, Habits, Locked};
use crate::shared::Shared;
use crate::stats::StackStats;
use crate::udp_call::{UdpCall, UdpReply};

/// The declaration of this architecture.
pub const DECLARATION: Declaration<()> = Declaration {
    name: "steal",
    options: "",
    variants: &[Variant {
        name: "steal",
        also: None,
        about: "each receive thread queues its ready connections; an idle one takes a handler from a busy one",
        parameter: (),
    }],
    unlisted: &[],
    default: 0,
    numbers: None,
    faults: &[],
    properties: Properties { complexity: 6, ..backlog::DECLARATION.properties },
    exceptions: &[],
    rows: &[TableRow {
        names: "`steal`",
        cell: "a connection",
        exclusive_use: "own it, or leave the segment in its backlog; its handler: take the connection from a queue of ready ones",
        thread: "segments: the receive thread; handlers: the home core, or an idle one that takes the connection",
        table: "global, locked",
        order: "backlog; a connection is in one ready queue, and one thread has its handler",
    }],
};

/// The architecture `steal`.
pub struct Steal<P: Platform> {
    msgp: MsgP<P, ToHomeCores<P>>,
}

/// Connections become ready, and wait for a core.
struct ToHomeCores<P: Platform> {
    shared: Arc<Shared<P>>,
    queues: ReadyQueues<Target, P>,
}

/// A queue for each receive thread.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    (): (),
    _: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let locks = ConnectionLocks::new(LockPlan::Backlog, shared.lock_kind);
    let queues = ReadyQueues::new(shared.lock_kind_between_threads(), shared.links().alarms().threads());
    let dispatch = ToHomeCores { shared: shared.clone(), queues };
    Arc::new(Steal { msgp: MsgP::of(shared, (locks, Habits::PLAIN), dispatch, contents) })
}

impl<P: Platform> HandlerDispatch<P> for ToHomeCores<P> {
    #[inline]
    fn dispatch(&self, place: &Locked<P>, _: impl Fn() -> Time, deferred: &mut DeferredEffects<P>) {
        while let Some((socket, bits)) = deferred.next_handled() {
            let target = socket.target();
            if place.leave_for_handler(&target, bits) {
                self.make_ready(target);
            }
        }
    }
}

impl<P: Platform> ToHomeCores<P> {
    /// The connection waits for a core from now on. Its home core is woken, if it sleeps.
    #[cold]
    fn make_ready(&self, target: Target) {
        sync::walk::note(file!(), "the connection is ready: it waits in the queue of its home core");
        let home = target.index(self.queues.cores());
        self.queues.add(home, target);
        let links = self.shared.links();
        if links.alarms().has_ended(home) {
            links.wake_drivers();
        } else {
            links.alarms().due_at(home, 0);
        }
    }

    /// Wakes a core that sleeps, if connections wait for a core that runs a handler.
    fn share(&self, core: usize, runs: usize) {
        if self.queues.length(core) > runs {
            self.shared.links().alarms().call_sleeper();
        }
    }
}

impl<P: Platform> Steal<P> {
    /// The calling thread runs the handler of a connection that it has taken from a queue.
    fn run(&self, target: Target) {
        sync::walk::note(file!(), "takes a ready connection, and runs its handler");
        let (cores, place) = (self.msgp.dispatch(), self.msgp.place());
        let (now, mut effects) = (cores.shared.clock().now(), EffectsGuard::new(cores.shared.links()));
        let again = place.run_ready(&target, now, &mut effects.deferred);
        cores.dispatch(place, || now, &mut effects.deferred);
        drop(effects);
        if again {
            cores.make_ready(target);
        }
    }

    /// Runs the handlers that wait for a core, but not those that get ready meanwhile: segments come first. True: there were
    /// some.
    fn run_own(&self, core: usize) -> bool {
        let cores = self.msgp.dispatch();
        let ready = cores.queues.length(core);
        if ready != 0 {
            cores.share(core, 1);
        }
        let taken = (0..ready).map_while(|_| cores.queues.take(core));
        taken.map(|target| self.run(target)).count() != 0
    }

    /// The calling thread, which serves this core, is idle: it runs the handler of one connection that waits for another.
    fn run_stolen(&self, here: usize) {
        let cores = self.msgp.dispatch();
        let Some(target) = cores.queues.steal(here) else { return };
        cores.share(target.index(cores.queues.cores()), 0);
        self.run(target);
    }
}

impl<P: Platform> RunningArchitecture<P> for Steal<P> {
    fn post(&self, ingress: &mut Ingress, now: Time, deferred: &mut DeferredEffects<P>) {
        self.msgp.post(ingress, now, deferred);
    }

    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        self.msgp.call(target, call, reply);
    }

    fn udp(&self, call: &mut UdpCall<P>) -> UdpReply {
        self.msgp.udp(call)
    }

    fn control(&self, change: ControlRequest<P>) {
        self.msgp.control(change);
    }

    fn tick(&self, now: Time) {
        self.msgp.tick(now);
        let ToHomeCores { shared, queues } = self.msgp.dispatch();
        let (mut here, mut busy) = (0, false);
        for core in (0..queues.cores()).filter(|core| shared.links().alarms().is_run_here(*core)) {
            here = core;
            busy |= self.run_own(core);
        }
        if !busy {
            self.run_stolen(here);
        }
    }

    fn trim(&self) -> bool {
        self.msgp.trim()
    }

    /// Any core may take the waiting connections.
    fn next_deadline(&self) -> Option<Time> {
        if self.msgp.dispatch().queues.is_empty() { self.msgp.next_deadline() } else { Some(Time::from_nanos(0)) }
    }

    fn is_quiescent(&self) -> bool {
        self.msgp.dispatch().queues.is_empty() && self.msgp.is_quiescent()
    }

    fn dissolve(&self) -> Result<Contents<P>, NotAtRest> {
        let mut contents = self.msgp.dissolve()?;
        // Events that the handlers have not received move with them.
        let queues = &self.msgp.dispatch().queues;
        let ready = (0..queues.cores()).flat_map(|core| std::iter::from_fn(move || queues.take(core)));
        contents.messages.extend(ready.map(|target| CellMessage::Ingress(Ingress::Posted(target))));
        Ok(contents)
    }

    fn stats(&self) -> StackStats {
        self.msgp.stats()
    }
}
