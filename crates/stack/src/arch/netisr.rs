//! Per-CPU work streams in front of connections with locks (FreeBSD: `netisr.c`).
//!
//! # Model
//! Connections, tables and locks are those of [`msgp`]. This architecture only chooses the thread that processes a
//! received packet. Each CPU has a [`WorkStream`]: a bounded queue, and a pinned thread of its own, the *swi*. The
//! *dispatch policy* decides:
//! - `direct`: the receive thread processes its packet at once.
//! - `deferred`: the packet waits in the work stream of a CPU, and the swi of that stream processes it.
//! - `hybrid`: directly if that work stream is the one of the receive thread's own CPU, no thread processes it and no
//!   packet waits in it; otherwise deferred.
//!
//! The *CPU selection policy* chooses the stream: by the receive thread (`source`), by the hash of the packet's flow
//! (`flow`), or the CPU that the protocol names (`cpu`). The source chooses the stream of a packet without a hash. A
//! full queue drops the packet, which is counted. Calls run on the thread of their caller, timers on receive threads.
//!
//! # Order
//! Each policy sends the packets of a flow in one receive queue to one stream, and a stream is processed in the order
//! of arrival: no packet is processed directly while others wait.
//!
//! # What differs from FreeBSD
//! There packets are handed over before IP, into a queue for each protocol of a stream; here after the checks of IP, into
//! one queue. CPU *n* is the one of receive queue *n*, modulo their number, wherever the thread that polls it runs.
//! Events that are not packets (room in a device, messages for a handler) are never queued, and so never dropped; nor
//! are events that another architecture has left.
//!
//! What may never happen: see [`work_stream`](super::work_stream). A receive thread never waits for a swi.

use std::sync::Arc;

use observe::{DropReason, Time};
use sync::{Atomic, CachePadded, Ordering, Platform, ThreadClass};

use super::declaration::{Declaration, Properties, TableRow, Variant};
use super::frame_workers::AboveWorkers;
use super::msgp::{self, AtOnce, MsgP};
use super::own_threads::OwnThreads;
use super::passes_on::passes_on;
use super::select::ThreadConfig;
use super::work_stream::WorkStream;
use super::{NotAtRest, RunningArchitecture};
use crate::call::Ingress;
use crate::deferred::{DeferredEffects, EffectsGuard};
use crate::flow;
use crate::handoff::CellMessage;
use crate::place::pcb::{ConnectionLocks, LockPlan};
use crate::place::{Contents, Habits};
use crate::shared::Shared;

use CpuPolicy::{Flow, Protocol, Source};
use DispatchPolicy::{Deferred, Direct, Hybrid};

/// The most packets that wait in a work stream (FreeBSD: `net.isr.defaultqlimit`).
const QUEUE_LIMIT: usize = 256;

/// The declaration of this architecture.
pub const DECLARATION: Declaration<NetisrVariant> = Declaration {
    name: "netisr",
    options: "[:direct|hybrid|hybrid+source|hybrid+cpu|deferred|deferred+source|deferred+cpu]",
    variants: VARIANTS.split_at(2).0,
    unlisted: VARIANTS.split_at(2).1,
    default: 0,
    numbers: None,
    faults: &[],
    properties: Properties { own_threads: true, complexity: 5, ..msgp::DECLARATION.properties },
    exceptions: &[],
    rows: &[TableRow {
        names: "`netisr:direct`, `:hybrid`, `:deferred`",
        cell: "a connection",
        exclusive_use: "global table lock, then connection lock; a deferred packet waits in the bounded queue of a CPU before",
        thread: "receive thread, or the thread of the queue that the packet's flow, source (`+source`) or protocol (`+cpu`) selects; callers",
        table: "global, locked",
        order: "queue, beside which nothing runs",
    }],
};

/// Lists have the first two alone: `direct` is [`msgp`], and the others differ in the policy only.
const VARIANTS: &[Variant<NetisrVariant>] = &[
    Variant::new("netisr:hybrid", Some("netisr:hybrid+flow"), HYBRID, (Hybrid, Flow)),
    Variant::new("netisr:deferred", Some("netisr:deferred+flow"), DEFERRED, (Deferred, Flow)),
    Variant::new("netisr:direct", None, "as msgp:1: a receive thread processes its packets", (Direct, Flow)),
    Variant::new("netisr:hybrid+source", None, HYBRID, (Hybrid, Source)),
    Variant::new("netisr:hybrid+cpu", None, HYBRID, (Hybrid, Protocol)),
    Variant::new("netisr:deferred+source", None, DEFERRED, (Deferred, Source)),
    Variant::new("netisr:deferred+cpu", None, DEFERRED, (Deferred, Protocol)),
];

const HYBRID: &str = "as msgp:1, but a packet for another CPU or a busy one waits for the thread of its CPU's queue";
const DEFERRED: &str = "as msgp:1, but each packet waits for the thread of its CPU's queue";

/// The packets that wait, and the thread that they wait for.
pub type NetisrVariant = (DispatchPolicy, CpuPolicy);

/// The packets that wait for the thread of a work stream (`NETISR_DISPATCH_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DispatchPolicy {
    /// None.
    Direct,
    /// Those for another CPU, or for a work stream that is not idle.
    Hybrid,
    /// All.
    Deferred,
}

/// The criterion that chooses the work stream of a packet (`NETISR_POLICY_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CpuPolicy {
    /// The receive thread.
    Source,
    /// The hash of its flow; the receive thread, if it has none.
    Flow,
    /// Its protocol: the CPU of its connection or of its socket's port.
    Protocol,
}

/// The architecture `netisr`.
pub struct Netisr<P: Platform> {
    inner: Arc<NetisrInner<P>>,
    threads: OwnThreads<P>,
}

struct NetisrInner<P: Platform> {
    msgp: MsgP<P>,
    dispatch: DispatchPolicy,
    policy: CpuPolicy,
    /// One for each CPU.
    streams: Box<[CachePadded<WorkStream<Ingress, P>>]>,
    /// Each stream has its swi. Otherwise the ticking thread does their work.
    own_threads: bool,
    stop: P::AtomicBool,
}

/// One work stream for each CPU, with its swi; or without, and the ticking thread does their work.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    (dispatch, policy): NetisrVariant,
    ThreadConfig { cpus, own_threads }: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let locks = ConnectionLocks::new(LockPlan::One, shared.lock_kind);
    let msgp = MsgP::of(shared, (locks, Habits::PLAIN), AtOnce, contents);
    let stream = |_| CachePadded::new(WorkStream::new(shared.lock_kind_between_threads(), QUEUE_LIMIT));
    let streams = (0..cpus.max(1)).map(stream).collect();
    let own_threads = own_threads && dispatch != Direct;
    let stop = P::AtomicBool::new(false);
    let inner = Arc::new(NetisrInner { msgp, dispatch, policy, streams, own_threads, stop });
    let netisr = Netisr { inner, threads: OwnThreads::none() };
    netisr.start();
    Arc::new(netisr)
}

impl<P: Platform> NetisrInner<P> {
    /// The stream of a packet that the thread of CPU `here` has received.
    #[inline]
    fn stream_of(&self, packet: &Ingress, here: usize) -> usize {
        let hash = match self.policy {
            Source => None,
            Flow => packet.flow_hash(),
            Protocol => Some(packet.hash()),
        };
        hash.map_or(here, |hash| flow::index(hash, self.streams.len()))
    }

    /// Queues a packet, or drops it. Not inlined, or the packet would be moved through the caller's frame.
    #[inline(never)]
    fn defer(&self, stream: usize, packet: &mut Ingress, deferred: &mut DeferredEffects<P>) {
        sync::walk::note(file!(), "leaves the packet in the work stream of a CPU");
        match self.streams[stream].leave(std::mem::take(packet)) {
            Ok(true) => deferred.announce(stream),
            Ok(false) => {}
            Err(_) => self.msgp.counters().count_drop(DropReason::InputQueueFull),
        }
    }

    /// Processes the packets that wait in a stream, until there are none or the architecture ends. The swi's work.
    fn drain(&self, stream: usize) {
        let Some(mut turn) = self.streams[stream].turn() else { return };
        let shared = self.msgp.shared();
        loop {
            let (now, mut effects) = (shared.clock().now(), EffectsGuard::new(shared.links()));
            while let Some(mut packet) = turn.taken.pop_front() {
                sync::walk::note(file!(), "the thread of the work stream takes the packet");
                self.msgp.post(&mut packet, now, &mut effects.deferred);
            }
            drop(effects);
            if self.stop.load(Ordering::Acquire) || !turn.more() {
                return;
            }
        }
    }

    /// The loop of a swi. A panic loses the packet that is being processed; the thread has been woken for the rest.
    fn serve(&self, stream: usize) {
        let (shared, counters) = (self.msgp.shared(), self.msgp.counters());
        while !self.stop.load(Ordering::Acquire) {
            if shared.failures.survive(counters, || self.drain(stream)).is_none() {
                counters.count_drop(DropReason::ReceiverPanicked);
            }
            self.streams[stream].wait();
        }
    }
}

impl<P: Platform> Netisr<P> {
    fn start(&self) {
        self.inner.stop.store(false, Ordering::Release);
        let streams = if self.inner.own_threads { self.inner.streams.len() } else { 0 };
        let inner = self.inner.clone();
        let serve = move |stream: usize| inner.serve(stream);
        self.threads.start(self.inner.msgp.shared(), ("heddle-ni", ThreadClass::Protocol), 0..streams, serve);
    }
}

impl<P: Platform> RunningArchitecture<P> for Netisr<P> {
    fn post(&self, ingress: &mut Ingress, now: Time, deferred: &mut DeferredEffects<P>) {
        let NetisrInner { msgp, dispatch, streams, .. } = &*self.inner;
        let receiver = deferred.receiver().filter(|_| *dispatch != Direct && ingress.is_packet());
        let Some(receiver) = receiver else { return msgp.post(ingress, now, deferred) };
        let here = receiver % streams.len();
        let stream = self.inner.stream_of(ingress, here);
        let may_run = *dispatch == Hybrid && stream == here;
        let Some(_direct) = may_run.then(|| streams[stream].dispatch()).flatten() else {
            return self.inner.defer(stream, ingress, deferred);
        };
        msgp.post(ingress, now, deferred);
    }

    fn end_of_batch(&self, deferred: &mut DeferredEffects<P>) {
        while let Some(stream) = deferred.next_announcement() {
            self.inner.streams[stream].wake();
        }
    }

    passes_on!(self => self.inner.msgp);

    fn tick(&self, now: Time) {
        if !self.inner.own_threads {
            (0..self.inner.streams.len()).for_each(|stream| self.inner.drain(stream));
        }
        self.inner.msgp.tick(now);
    }

    fn is_quiescent(&self) -> bool {
        self.inner.streams.iter().all(|stream| stream.is_idle()) && self.inner.msgp.is_quiescent()
    }

    fn dissolve(&self) -> Result<Contents<P>, NotAtRest> {
        self.shutdown();
        let mut contents = self.inner.msgp.dissolve().inspect_err(|_| self.start())?;
        for stream in &self.inner.streams {
            contents.messages.extend(stream.withdraw().into_iter().map(CellMessage::Ingress));
        }
        Ok(contents)
    }

    fn shutdown(&self) {
        self.inner.stop.store(true, Ordering::Release);
        self.inner.streams.iter().for_each(|stream| stream.wake());
        self.threads.join();
    }
}
