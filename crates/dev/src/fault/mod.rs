//! A device that loses, delays, reorders, duplicates, corrupts and truncates frames, by plan and by seed.
//!
//! [`Fault`] wraps any device. Faults befall single frames as they would be on a wire: the wrapped device's
//! segmentation and coalescing are not passed on, and super-segments received from it are cut up first. What is lost
//! is counted as `FaultInjected`.
//!
//! # Time
//!
//! Delays run on the caller's [`Clock`]: virtual in tests, the machine's in a run. Nobody else drives a device, so
//! frames that are being delayed move when the queues are used. The receive queue does it for both directions: each
//! [`receive`](RxQueue::receive) sends off transmitted frames that have come due, and
//! [`wait`](RxQueue::wait) does not sleep past the next one. The out-path is therefore shared by the two queues of a
//! pair, under a lock of class `Pool`: the class innermost, since a stack may use a queue under locks of its own.
//!
//! # What may never happen
//!
//! A frame is not handed out before it is due, and (without `reorder`) not before an earlier one of its queue.

mod path;
mod plan;
mod random;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use observe::{Counters, DropReason, Time};
use pktbuf::PktBuf;
use sync::{Atomic, Guard, Lock, LockClass, LockKind, Platform, Real};

pub use self::plan::{Burst, Direction, FaultPlan, ParsePlanError, Ppm};
pub use self::random::Pcg;

use self::path::{Pace, Path};
use crate::segment::{NoBuffer, Splitter};
use crate::{Capabilities, Device, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};

/// Where a device takes the time from.
pub trait Clock: Send + Sync {
    /// The time now; it never goes back.
    fn now(&self) -> Time;
}

impl<F: Fn() -> Time + Send + Sync> Clock for F {
    fn now(&self) -> Time {
        self()
    }
}

/// The clock of a platform.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlatformClock<P: Platform>(P);

impl<P: Platform> Clock for PlatformClock<P> {
    fn now(&self) -> Time {
        Time::from_nanos(P::now())
    }
}

/// A device with faults.
pub struct Fault<P: Platform = Real> {
    name: String,
    capabilities: Capabilities,
    inner: Box<dyn Device>,
    plan: Arc<FaultPlan>,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    lock_index: u32,
    platform: PhantomData<P>,
}

impl Fault<Real> {
    /// Wraps `device` on the real platform.
    pub fn new(device: Box<dyn Device>, plan: FaultPlan, clock: impl Clock + 'static) -> Fault<Real> {
        Fault::on_platform(device, plan, clock)
    }
}

impl<P: Platform> Fault<P> {
    /// Wraps `device` on platform `P`.
    pub fn on_platform(device: Box<dyn Device>, plan: FaultPlan, clock: impl Clock + 'static) -> Fault<P> {
        let capabilities = Capabilities { segmentation: None, coalescing: false, ..device.capabilities().clone() };
        Fault {
            name: format!("{}+fault", device.name()),
            capabilities,
            counters: device.counters().unwrap_or_else(|| Arc::new(Counters::shared())),
            inner: device,
            plan: Arc::new(plan),
            clock: Arc::new(clock),
            lock_index: crate::wrapper_lock_index(),
            platform: PhantomData,
        }
    }

    /// The plan.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    fn pair(&self, index: usize, pair: QueuePair, paces: &[Arc<Pace<P>>; 2]) -> QueuePair {
        let nothing = Arc::new(FaultPlan { limit: usize::MAX, ..FaultPlan::default() });
        let path = |number: usize, applies: bool, full| {
            let plan = if applies { self.plan.clone() } else { nothing.clone() };
            Path::new(plan, number as u64, paces[number % 2].clone(), full, self.counters.clone())
        };
        let inbound = path(2 * index, self.plan.direction.includes_in(), DropReason::RxRingFull);
        let outbound = path(2 * index + 1, self.plan.direction.includes_out(), DropReason::TxRingFull);
        let out = Out { tx: pair.tx, path: outbound, blocked: None, clock: self.clock.clone() };
        let shared = Arc::new(Shared {
            out: Lock::new(LockKind::Blocking, LockClass::Pool, out),
            lock_index: self.lock_index,
            sleeping: P::AtomicBool::new(false),
            woken: P::AtomicBool::new(false),
            waker: pair.rx.waker(),
        });
        let rx = FaultRx {
            rx: pair.rx,
            path: inbound,
            shared: shared.clone(),
            clock: self.clock.clone(),
            holds: self.plan.holds_frames(),
            arrived: Vec::new(),
            counters: self.counters.clone(),
        };
        QueuePair { rx: Box::new(rx), tx: Box::new(FaultTx { shared }) }
    }
}

impl<P: Platform> Device for Fault<P> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        let paces = [Arc::new(Pace::new()), Arc::new(Pace::new())];
        let queues = self.inner.take_queues();
        queues.into_iter().enumerate().map(|(index, pair)| self.pair(index, pair, &paces)).collect()
    }

    fn counters(&self) -> Option<Arc<Counters>> {
        Some(self.counters.clone())
    }
}

/// The way out: the wrapped transmit queue and the path before it.
struct Out<P: Platform> {
    tx: Box<dyn TxQueue>,
    path: Path<P>,
    /// A frame that has come due and found the device full.
    blocked: Option<PktBuf>,
    clock: Arc<dyn Clock>,
}

impl<P: Platform> Out<P> {
    /// Frames that the device takes behind those that are only waiting for the end of the batch.
    fn credit(&self) -> usize {
        if self.blocked.is_some() { 0 } else { self.tx.credit().saturating_sub(self.path.arrived()) }
    }

    /// Sends off what is due.
    fn drive(&mut self) {
        let now = self.clock.now();
        let mut sent = false;
        while let Some(frame) = self.blocked.take().or_else(|| self.path.release(now)) {
            match self.tx.transmit(frame) {
                Ok(()) => sent = true,
                Err(frame) => {
                    self.blocked = Some(frame);
                    break;
                }
            }
        }
        if sent {
            self.tx.flush();
        }
    }
}

/// What the two queues of a pair share.
struct Shared<P: Platform> {
    out: Lock<Out<P>, P>,
    lock_index: u32,
    /// The receive queue is waiting.
    sleeping: P::AtomicBool,
    /// Somebody outside asked for a wake (and not our own transmit queue, to set an earlier time).
    woken: P::AtomicBool,
    waker: Arc<dyn Wake>,
}

impl<P: Platform> Shared<P> {
    /// The wrapped device may have a lock of its own, below this one.
    fn lock_out(&self) -> Guard<'_, Out<P>, P> {
        self.out.lock_nested(self.lock_index)
    }
}

impl<P: Platform> Wake for Shared<P> {
    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.waker.wake();
    }
}

struct FaultTx<P: Platform> {
    shared: Arc<Shared<P>>,
}

impl<P: Platform> TxQueue for FaultTx<P> {
    fn credit(&self) -> usize {
        self.shared.lock_out().credit()
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        let mut out = self.shared.lock_out();
        // A full device pushes back before any choice is made: the frame will be offered again.
        if out.credit() == 0 {
            return Err(frame);
        }
        let now = out.clock.now();
        out.path.admit(frame, now);
        Ok(())
    }

    fn flush(&mut self) {
        let waits = {
            let mut out = self.shared.lock_out();
            out.drive();
            out.path.len() > 0
        };
        // The receive queue keeps the time for us: if it sleeps, it has to learn of the new one.
        if waits {
            P::fence(Ordering::SeqCst);
            if self.shared.sleeping.load(Ordering::Relaxed) {
                self.shared.waker.wake();
            }
        }
    }
}

struct FaultRx<P: Platform> {
    rx: Box<dyn RxQueue>,
    path: Path<P>,
    shared: Arc<Shared<P>>,
    clock: Arc<dyn Clock>,
    holds: bool,
    arrived: Vec<PktBuf>,
    counters: Arc<Counters>,
}

impl<P: Platform> FaultRx<P> {
    /// Puts a received frame on the path, cut up if it is a super-segment.
    fn admit(&mut self, frame: PktBuf, now: Time) {
        if frame.meta().segment_size == 0 {
            return self.path.admit(frame, now);
        }
        match Splitter::new(frame) {
            Err(frame) => self.path.admit(frame, now),
            Ok(mut pieces) => {
                while let Some(piece) = pieces.next_piece() {
                    match piece {
                        Ok(piece) => self.path.admit(piece, now),
                        Err(NoBuffer) => self.counters.drop_many(DropReason::NoBuffer, 1),
                    }
                }
            }
        }
    }

    /// Waits on the wrapped queue, for `timeout` or until something on a path comes due. `None`: look again.
    fn wait_once(&mut self, deadline: Option<Time>) -> Option<WaitOutcome> {
        let due_out = self.shared.lock_out().path.next_due();
        let due_in = self.path.next_due();
        let now = self.clock.now();
        if due_in.is_some_and(|due| due <= now) {
            return Some(WaitOutcome::Ready);
        }
        let until = deadline.into_iter().chain(due_in).chain(due_out).min();
        match self.rx.wait(until.map(|until| until - now)) {
            WaitOutcome::Woken if self.shared.woken.swap(false, Ordering::AcqRel) => Some(WaitOutcome::Woken),
            WaitOutcome::Woken => None,
            WaitOutcome::TimedOut if deadline.is_some_and(|deadline| deadline <= self.clock.now()) => {
                Some(WaitOutcome::TimedOut)
            }
            WaitOutcome::TimedOut => None,
            WaitOutcome::Gone if self.path.len() > 0 => Some(WaitOutcome::TimedOut),
            outcome => Some(outcome),
        }
    }
}

impl<P: Platform> RxQueue for FaultRx<P> {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        self.shared.lock_out().drive();
        let now = self.clock.now();
        let mut arrived = std::mem::take(&mut self.arrived);
        self.rx.receive(&mut arrived, max);
        for frame in arrived.drain(..) {
            self.admit(frame, now);
        }
        self.arrived = arrived;
        let from = batch.len();
        while batch.len() - from < max {
            match self.path.release(now) {
                Some(frame) => batch.push(frame),
                None => break,
            }
        }
        batch.len() - from
    }

    fn wait(&mut self, timeout: Option<Duration>) -> WaitOutcome {
        let deadline = timeout.map(|timeout| self.clock.now() + timeout);
        loop {
            self.shared.lock_out().drive();
            self.shared.sleeping.store(true, Ordering::Relaxed);
            P::fence(Ordering::SeqCst);
            let outcome = self.wait_once(deadline);
            self.shared.sleeping.store(false, Ordering::Relaxed);
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.shared.clone()
    }

    /// The wrapped queue's descriptor, unless frames may be held here: no descriptor tells when those come due.
    fn pollable(&self) -> Option<std::os::fd::RawFd> {
        if self.holds { None } else { self.rx.pollable() }
    }

    fn gone(&self) -> bool {
        self.path.len() == 0 && self.rx.gone()
    }
}
