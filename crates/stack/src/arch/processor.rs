//! A processor for each CPU runs what arrives for its connections (gVisor's netstack: `dispatcher.go`, `endpoint.go`).
//!
//! # Model
//! A variant of [`backlog`](super::backlog): a thread owns a connection while it uses it. There the owner also runs what others
//! have left. Here only a *processor* does, a pinned thread of each CPU. The hash of a connection's flow chooses its processor.
//! A receive thread leaves each segment in the connection's bounded backlog, whether the connection is in use or not. If it is
//! free, the receive thread also puts the connection into the queue of its processor, unless it is there. A user's call owns the
//! connection, and runs on the user's thread; it looks for a free connection a few times before it sleeps. When it releases the
//! connection, it puts it into the processor's queue if something was left meanwhile.
//!
//! A processor takes the connections from its queue, one after the other, and runs at most 100 events for each before the next
//! has its turn. It passes over a connection that is in use: the user's thread will queue it again. Timers, and connections
//! that waited for room in a device, come the same way. So a receive thread never runs TCP for a connection, a call never runs
//! another's segments, and a processor never waits for a user.
//!
//! # What differs from gVisor
//! - There a listener has a segment queue, too, and its processor answers SYNs. Here a segment that matches no connection is
//!   processed by the receive thread, under the lock of the table: handshakes of passive opens and resets.
//! - There a timer runs on a thread of its own, which waits for the endpoint. Here it is left for the processor.
//! - There one lock and atomic flags keep the rules; here the lock of the backlog, which is never held while an event runs.
//! - Rare events (an ICMP error, a link that goes down, messages for a handler) wait for the connection like calls, as under
//!   `backlog`, on the thread that brings them. A handler runs on the processor after the turn of its connection; its calls
//!   wait like a user's.
//! - Connections are found in a table under one lock, as in [`msgp`](super::msgp).
//!
//! The queue of a connection and its mark are in [`place::pcb::backlog`](crate::place::pcb::backlog), a turn is in
//! `place::locked::processed`. What may never happen: something is left for a connection that is free and not queued; a
//! connection is in the queue twice; a processor waits for a connection.

use std::sync::Arc;

use observe::{DropReason, Time};
use sync::{Atomic, CachePadded, Ordering, Parker, Platform, ThreadClass};

use super::msgp::{AtOnce, MsgP};
use super::own_threads::OwnThreads;
use super::ready_queues::ReadyQueues;
use super::select::ThreadConfig;
use super::{NotAtRest, RunningArchitecture};
use crate::call::{Call, ControlRequest, Ingress, Reply};
use crate::deferred::{DeferredEffects, EffectsGuard};
use crate::flow::{self, Target};
use crate::place::locked::{LockedConnection, QueuesForProcessors};
use crate::place::pcb::{ConnectionLocks, LockPlan};
use crate::place::{Contents, Habits};
use crate::shared::Shared;
use crate::stats::StackStats;
use crate::udp_call::{UdpCall, UdpReply};

/// The architecture `backlog:processor`.
pub struct Processors<P: Platform> {
    inner: Arc<ProcessorsInner<P>>,
    threads: OwnThreads<P>,
}

struct ProcessorsInner<P: Platform> {
    shared: Arc<Shared<P>>,
    msgp: MsgP<P>,
    queues: Arc<ProcessorQueues<P>>,
    stop: P::AtomicBool,
}

/// The connections that wait for each processor.
struct ProcessorQueues<P: Platform> {
    shared: Arc<Shared<P>>,
    queues: ReadyQueues<Arc<LockedConnection<P>>, P>,
    /// Where the processors sleep. None: the ticking thread does their work.
    asleep: Box<[CachePadded<Parker<P>>]>,
}

impl<P: Platform> QueuesForProcessors<P> for ProcessorQueues<P> {
    fn queue(&self, connection: &Arc<LockedConnection<P>>) {
        let processor = flow::index(connection.flow_hash(), self.queues.cores());
        self.queues.add(processor, connection.clone());
        match self.asleep.get(processor) {
            Some(asleep) => {
                asleep.unpark();
            }
            None => self.shared.links().alarms().due(0),
        }
    }
}

/// A processor for each CPU; or none, and the ticking thread does their work.
pub(super) fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    ThreadConfig { cpus, own_threads }: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let locks = ConnectionLocks::new(LockPlan::Backlog, shared.lock_kind);
    let queues = ReadyQueues::new(shared.lock_kind_between_threads(), cpus);
    let threads = if own_threads { queues.cores() } else { 0 };
    let asleep = (0..threads).map(|_| CachePadded::new(Parker::new())).collect();
    let queues = Arc::new(ProcessorQueues { shared: shared.clone(), queues, asleep });
    let mut msgp = MsgP::of(shared, (locks, Habits::PLAIN), AtOnce, contents);
    msgp.place_mut().hand_over_to(queues.clone());
    let stop = P::AtomicBool::new(false);
    let inner = Arc::new(ProcessorsInner { shared: shared.clone(), msgp, queues, stop });
    let processors = Processors { inner, threads: OwnThreads::none() };
    processors.start();
    Arc::new(processors)
}

impl<P: Platform> ProcessorsInner<P> {
    /// Gives the connections in a processor's queue their turns, until none waits or the architecture ends.
    fn run_waiting(&self, processor: usize) {
        let mut next = self.queues.queues.take(processor);
        while let Some(connection) = next {
            self.run(&connection);
            drop(connection);
            next = if self.stop.load(Ordering::Acquire) { None } else { self.queues.queues.take(processor) };
        }
    }

    /// A panic outside the events of the connection ends its turn.
    fn run(&self, connection: &Arc<LockedConnection<P>>) {
        let (shared, counters) = (&self.shared, self.msgp.place().here());
        let ran = shared.failures.survive(counters, || {
            let (now, mut effects) = (shared.clock().now(), EffectsGuard::new(shared.links()));
            self.msgp.place().run_turn(connection, &mut effects.deferred);
            self.msgp.run_handlers(now, &mut effects.deferred);
        });
        if ran.is_none() {
            counters.count_drop(DropReason::ReceiverPanicked);
        }
    }

    /// The loop of a processor.
    fn serve(&self, processor: usize) {
        while !self.stop.load(Ordering::Acquire) {
            self.run_waiting(processor);
            self.queues.asleep[processor].park(None);
        }
    }
}

impl<P: Platform> Processors<P> {
    fn start(&self) {
        self.inner.stop.store(false, Ordering::Release);
        let inner = self.inner.clone();
        let serve = move |processor: usize| inner.serve(processor);
        let threads = 0..self.inner.queues.asleep.len();
        self.threads.start(&self.inner.shared, ("heddle-bp", ThreadClass::Protocol), threads, serve);
    }
}

impl<P: Platform> RunningArchitecture<P> for Processors<P> {
    fn post(&self, ingress: &mut Ingress, now: Time, deferred: &mut DeferredEffects<P>) {
        self.inner.msgp.post(ingress, now, deferred);
    }

    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        self.inner.msgp.call(target, call, reply);
    }

    fn udp(&self, call: &mut UdpCall<P>) -> UdpReply {
        self.inner.msgp.udp(call)
    }

    fn control(&self, change: ControlRequest<P>) {
        self.inner.msgp.control(change);
    }

    fn tick(&self, now: Time) {
        self.inner.msgp.tick(now);
        if self.inner.queues.asleep.is_empty() {
            (0..self.inner.queues.queues.cores()).for_each(|processor| self.inner.run_waiting(processor));
        }
    }

    fn trim(&self) -> bool {
        self.inner.msgp.trim()
    }

    /// At once, if the ticking thread does the work of the processors and connections wait for it.
    fn next_deadline(&self) -> Option<Time> {
        let ProcessorQueues { queues, asleep, .. } = &*self.inner.queues;
        let waits = asleep.is_empty() && !queues.is_empty();
        if waits { Some(Time::from_nanos(0)) } else { self.inner.msgp.next_deadline() }
    }

    fn is_quiescent(&self) -> bool {
        self.inner.queues.queues.is_empty() && self.inner.msgp.is_quiescent()
    }

    /// Runs what is left for the processors. No user is in a connection, so none is passed over.
    fn dissolve(&self) -> Result<Contents<P>, NotAtRest> {
        self.shutdown();
        let ProcessorQueues { queues, .. } = &*self.inner.queues;
        while !queues.is_empty() {
            (0..queues.cores()).filter_map(|processor| queues.take(processor)).for_each(|next| self.inner.run(&next));
        }
        self.inner.msgp.dissolve().inspect_err(|_| self.start())
    }

    fn stats(&self) -> StackStats {
        self.inner.msgp.stats()
    }

    fn shutdown(&self) {
        self.inner.stop.store(true, Ordering::Release);
        for processor in &self.inner.queues.asleep {
            processor.unpark();
        }
        self.threads.join();
    }
}
