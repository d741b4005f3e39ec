//! Per-CPU work streams in front of connections with locks (FreeBSD: `netisr.c`).
//!
//! # Model
//! Connections, tables and locks are those of [`msgp`]. What is chosen here is the thread that processes a
//! received packet. Each CPU has a [`WorkStream`]: a bounded queue, and a pinned thread of its own, the *swi*. The
//! *dispatch policy* decides:
//! - `direct`: the receive thread processes its packet at once.
//! - `deferred`: the packet waits in the work stream of a CPU, and the swi of that stream processes it.
//! - `hybrid`: directly if that work stream is the one of the receive thread's own CPU, no thread processes it and no
//!   packet waits in it; otherwise deferred.
//!
//! The *CPU selection policy* chooses the stream: by the receive thread (`source`), by the hash of the packet's flow
//! (`flow`), or the CPU that the protocol says (`cpu`). A packet without a hash goes by its source. A full queue drops the
//! packet, which is counted. Calls run on the thread of their caller, timers on receive threads.
//!
//! # Order
//! Each policy sends a flow that one receive queue brings to one stream, and a stream is processed in the order in which
//! packets were brought: nothing is processed directly beside what waits.
//!
//! # What differs from FreeBSD
//! There packets are handed over before IP, into a queue for each protocol of a stream; here after the checks of IP, into
//! one queue. CPU *n* is the one of receive queue *n*, modulo their number, wherever the thread that polls it runs. What
//! was not received as a packet (room in a device, messages for a handler) is never queued, and so never dropped; nor is
//! what another architecture has left.
//!
//! What may never happen: see [`work_stream`](super::work_stream). A receive thread never waits for a swi.

use std::sync::Arc;

use observe::{DropReason, Time};
use sync::{Atomic, CachePadded, Lock, LockClass, LockKind, Ordering, Platform, ThreadClass};

use super::declaration::{Declaration, Properties, TableRow, Variant};
use super::frame_workers::AboveWorkers;
use super::msgp::{self, AtOnce, MsgP};
use super::select::ThreadConfig;
use super::work_stream::WorkStream;
use super::{NotAtRest, RunningArchitecture};
use crate::call::{Call, ControlRequest, Ingress, Reply};
use crate::deferred::{DeferredEffects, OwedEffects};
use crate::flow::{self, Target};
use crate::handoff::CellMessage;
use crate::place::pcb::{ConnectionLocks, LockPlan};
use crate::place::{Contents, Habits};
use crate::shared::Shared;
use crate::stats::StackStats;
use crate::udp_call::{UdpCall, UdpReply};

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
    variant("netisr:hybrid", Some("netisr:hybrid+flow"), HYBRID, (Hybrid, Flow)),
    variant("netisr:deferred", Some("netisr:deferred+flow"), DEFERRED, (Deferred, Flow)),
    variant("netisr:direct", None, "as msgp:1: a receive thread processes its packets", (Direct, Flow)),
    variant("netisr:hybrid+source", None, HYBRID, (Hybrid, Source)),
    variant("netisr:hybrid+cpu", None, HYBRID, (Hybrid, Protocol)),
    variant("netisr:deferred+source", None, DEFERRED, (Deferred, Source)),
    variant("netisr:deferred+cpu", None, DEFERRED, (Deferred, Protocol)),
];

const HYBRID: &str = "as msgp:1, but a packet for another CPU or a busy one waits for the thread of its CPU's queue";
const DEFERRED: &str = "as msgp:1, but each packet waits for the thread of its CPU's queue";

const fn variant(
    name: &'static str,
    also: Option<&'static str>,
    about: &'static str,
    parameter: NetisrVariant,
) -> Variant<NetisrVariant> {
    Variant { name, also, about, parameter }
}

/// Which packets wait, and for which thread.
pub type NetisrVariant = (DispatchPolicy, CpuPolicy);

/// Which packets wait for the thread of a work stream (`NETISR_DISPATCH_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DispatchPolicy {
    /// None.
    Direct,
    /// Those for another CPU, or for a work stream that is not idle.
    Hybrid,
    /// All.
    Deferred,
}

/// What chooses the work stream of a packet (`NETISR_POLICY_*`).
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
    threads: Lock<Vec<P::JoinHandle>, P>,
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
    let locks = ConnectionLocks { plan: LockPlan::One, kind: shared.lock_kind };
    let msgp = MsgP::of(shared, (locks, Habits::PLAIN), AtOnce, contents);
    let stream = |_| CachePadded::new(WorkStream::new(shared.lock_kind_between_threads(), QUEUE_LIMIT));
    let streams = (0..cpus.max(1)).map(stream).collect();
    let own_threads = own_threads && dispatch != Direct;
    let stop = P::AtomicBool::new(false);
    let inner = Arc::new(NetisrInner { msgp, dispatch, policy, streams, own_threads, stop });
    let netisr = Netisr { inner, threads: Lock::new(LockKind::Blocking, LockClass::Control, Vec::new()) };
    netisr.start();
    Arc::new(netisr)
}

impl<P: Platform> NetisrInner<P> {
    /// The stream of a packet that the thread of CPU `here` brings.
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

    /// Processes what waits in a stream, until nothing does or the architecture ends. The swi's work.
    fn drain(&self, stream: usize) {
        let Some(mut turn) = self.streams[stream].turn() else { return };
        let shared = self.msgp.shared();
        loop {
            let (now, mut owed) = (shared.clock().now(), OwedEffects::new(shared.links()));
            while let Some(mut packet) = turn.taken.pop_front() {
                sync::walk::note(file!(), "the thread of the work stream takes the packet");
                self.msgp.post(&mut packet, now, &mut owed.deferred);
            }
            drop(owed);
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
        let spawn = |stream: usize| {
            let inner = self.inner.clone();
            P::spawn(&format!("heddle-ni{stream}"), Some(stream), ThreadClass::Protocol, move || {
                // It ends with the architecture, and its packets may be needed until then.
                let _passes = inner.msgp.shared().gate().always();
                inner.serve(stream);
            })
        };
        let threads = (0..streams).map(spawn).collect();
        *self.threads.lock() = threads;
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
        if !self.inner.own_threads {
            (0..self.inner.streams.len()).for_each(|stream| self.inner.drain(stream));
        }
        self.inner.msgp.tick(now);
    }

    fn trim(&self) -> bool {
        self.inner.msgp.trim()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.inner.msgp.next_deadline()
    }

    fn is_quiescent(&self) -> bool {
        self.inner.streams.iter().all(|stream| stream.is_idle()) && self.inner.msgp.is_quiescent()
    }

    fn stats(&self) -> StackStats {
        self.inner.msgp.stats()
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
        for handle in std::mem::take(&mut *self.threads.lock()) {
            // A thread that panicked has reported it already.
            let _ = P::join(handle);
        }
    }
}
