//! A device that loses, delays, reorders, duplicates and damages frames, fills up, stalls and vanishes, by plan and by
//! seed.
//!
//! [`Fault`] wraps any device. Faults apply to single frames as they would be on a wire: the wrapped device's
//! segmentation and coalescing are not offered, and super-segments received from it are split first. Lost frames are
//! counted as `FaultInjected`.
//!
//! # Time
//!
//! Delays run on the caller's [`TimeSource`]: virtual in tests, the machine's in a run. A device has no thread of its own,
//! so delayed frames move when the queues are used. The receive queue moves both directions: each
//! [`receive`](RxQueue::receive) sends transmitted frames that have become due, and [`wait`](RxQueue::wait) does not
//! sleep past the next one. The out-path is therefore shared by the two queues of a pair, under a lock of class `Pool`,
//! the innermost class, since a stack may use a queue under its own locks.
//!
//! # What may never happen
//!
//! A frame is not delivered before it is due, nor (without `reorder`) before an earlier one of its queue. Every lost
//! frame is counted: `FaultInjected` for losses by a rule, the reasons of a real device for others.

mod damage;
mod path;
mod plan;
mod random;
mod text;

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use observe::{Counters, DropReason, Time};
use pktbuf::PktBuf;
use sync::{Atomic, Guard, Lock, LockClass, LockKind, Parker, Platform, Real};

pub use self::plan::{Burst, Cycle, DeviceFaults, FaultPlan, FaultRule, Faults, Ppm, Timing, Unplug};
pub use self::random::Pcg;
pub use self::text::{GRAMMAR, ParsePlanError};

use self::path::{Pace, Path, PathContext};
use crate::segment::{NoBuffer, Splitter};
use crate::{Capabilities, Device, Framing, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};

/// The time source of a device.
pub trait TimeSource: Send + Sync {
    /// The current time; it never goes back.
    fn now(&self) -> Time;
}

impl<F: Fn() -> Time + Send + Sync> TimeSource for F {
    fn now(&self) -> Time {
        self()
    }
}

/// The clock of a platform.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlatformClock<P: Platform>(P);

impl<P: Platform> TimeSource for PlatformClock<P> {
    fn now(&self) -> Time {
        Time::from_nanos(P::now())
    }
}

/// How long a receiver with a lost wake-up stays asleep: the slowest polling interval of interfaces.
const LOST_WAKE: Duration = Duration::from_millis(20);
/// The most frames that an unplugged device discards at a time.
const MISSED: usize = 64;
/// The stream of random numbers that decides about wake-ups; rules have lower numbers.
const WAKES: u64 = 0xffff;

/// A device with faults.
pub struct Fault<P: Platform = Real> {
    name: String,
    capabilities: Capabilities,
    inner: Box<dyn Device>,
    plan: Arc<FaultPlan>,
    clock: Arc<dyn TimeSource>,
    counters: Arc<Counters>,
    lock_index: u32,
    platform: PhantomData<P>,
}

impl<P: Platform> fmt::Debug for Fault<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("device", &self.inner).field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Fault<Real> {
    /// Wraps `device` on the real platform.
    pub fn new(device: Box<dyn Device>, plan: FaultPlan, clock: impl TimeSource + 'static) -> Fault<Real> {
        Fault::on_platform(device, plan, clock)
    }
}

impl<P: Platform> Fault<P> {
    /// Wraps `device` on platform `P`.
    pub fn on_platform(device: Box<dyn Device>, plan: FaultPlan, clock: impl TimeSource + 'static) -> Fault<P> {
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

    fn path(&self, number: usize, faults: &Faults, paces: &[Arc<Pace<P>>; 2], made: Time) -> Path<P> {
        let around = PathContext {
            pace: paces[number % 2].clone(),
            made,
            framing: self.capabilities.framing,
            longest: self.capabilities.mtu + self.capabilities.framing.header_len(),
            full: if number.is_multiple_of(2) { DropReason::RxRingFull } else { DropReason::TxRingFull },
            counters: self.counters.clone(),
        };
        Path::new(faults, self.plan.seed, number as u64, around)
    }

    fn pair(&self, index: usize, pair: QueuePair, paces: &[Arc<Pace<P>>; 2], made: Time) -> QueuePair {
        let trouble = &self.plan.trouble;
        let out = Out {
            tx: pair.tx,
            path: self.path(2 * index + 1, &self.plan.outbound, paces, made),
            blocked: None,
            clock: self.clock.clone(),
            full: trouble.full,
            made,
            unplug: trouble.unplug,
        };
        let shared = Arc::new(FaultShared {
            out: Lock::new(LockKind::Blocking, LockClass::Pool, out),
            lock_index: self.lock_index,
            sleeping: P::AtomicBool::new(false),
            woken: P::AtomicBool::new(false),
            waker: pair.rx.waker(),
            parker: Parker::new(),
        });
        let rx = FaultRx {
            rx: pair.rx,
            path: self.path(2 * index, &self.plan.inbound, paces, made),
            shared: shared.clone(),
            clock: self.clock.clone(),
            holds: self.plan.holds_frames(),
            arrived: Vec::new(),
            counters: self.counters.clone(),
            trouble: trouble.clone(),
            made,
            unplug: trouble.unplug,
            framing: self.capabilities.framing,
            wakes: Pcg::new(self.plan.seed, (index as u64) << 16 | WAKES),
            ignore_until: None,
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
        let made = self.clock.now();
        queues.into_iter().enumerate().map(|(index, pair)| self.pair(index, pair, &paces, made)).collect()
    }

    fn counters(&self) -> Option<Arc<Counters>> {
        Some(self.counters.clone())
    }
}

/// The transmit side: the wrapped transmit queue and the path before it.
struct Out<P: Platform> {
    tx: Box<dyn TxQueue>,
    path: Path<P>,
    /// A due frame that found the device full.
    blocked: Option<PktBuf>,
    clock: Arc<dyn TimeSource>,
    full: Option<Cycle>,
    made: Time,
    unplug: Option<Unplug>,
}

impl<P: Platform> Out<P> {
    /// Frames that the device accepts after those that only wait for the end of the batch.
    fn credit(&self) -> usize {
        let full = || self.full.is_some_and(|full| full.bad_for(self.clock.now() - self.made).is_some());
        if self.blocked.is_some() || full() { 0 } else { self.tx.credit().saturating_sub(self.path.arrived()) }
    }

    /// Accepts a frame, or returns it while the device has no room.
    fn transmit(&mut self, frame: PktBuf, now: Time) -> Result<(), PktBuf> {
        if self.is_unplugged(now) {
            self.path.refuse(DropReason::InterfaceDown);
            return Ok(());
        }
        // A full device refuses the frame before any random choice is made: the frame will be offered again.
        if self.credit() == 0 {
            return Err(frame);
        }
        self.path.admit(frame, now);
        Ok(())
    }

    /// Whether the device is unplugged at `now`.
    fn is_unplugged(&self, now: Time) -> bool {
        self.unplug.is_some_and(|unplug| unplug.is_out(now - self.made))
    }

    /// When there are frames to send, or the device may accept frames again.
    fn next_due(&self) -> Option<Time> {
        let now = self.clock.now();
        let room = self.full.and_then(|full| full.bad_for(now - self.made)).map(|left| now + left);
        self.path.next_due().into_iter().chain(room).min()
    }

    /// Sends the frames that are due.
    fn drive(&mut self) {
        let now = self.clock.now();
        if self.is_unplugged(now) {
            let blocked = self.blocked.take().map_or(0, |_| 1);
            return self.path.discard(DropReason::InterfaceDown, blocked);
        }
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

/// The state shared by the two queues of a pair.
struct FaultShared<P: Platform> {
    out: Lock<Out<P>, P>,
    lock_index: u32,
    /// The receive queue is waiting.
    sleeping: P::AtomicBool,
    /// An outside caller requested a wake (not this device's transmit queue, to set an earlier time).
    woken: P::AtomicBool,
    waker: Arc<dyn Wake>,
    /// Where the receive queue sleeps while it ignores the wrapped one.
    parker: Parker<P>,
}

impl<P: Platform> FaultShared<P> {
    /// The wrapped device may have a lock of its own, below this one.
    fn lock_out(&self) -> Guard<'_, Out<P>, P> {
        self.out.lock_nested(self.lock_index)
    }

    /// Ends the receive queue's sleep, on the parker or the wrapped queue.
    fn wake_receiver(&self) {
        self.waker.wake();
        self.parker.ring();
    }
}

impl<P: Platform> Wake for FaultShared<P> {
    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.wake_receiver();
    }
}

struct FaultTx<P: Platform> {
    shared: Arc<FaultShared<P>>,
}

impl<P: Platform> TxQueue for FaultTx<P> {
    fn credit(&self) -> usize {
        self.shared.lock_out().credit()
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        let mut out = self.shared.lock_out();
        let now = out.clock.now();
        out.transmit(frame, now)
    }

    /// One lock and one reading of the clock for all of them.
    fn transmit_batch(&mut self, frames: &mut VecDeque<PktBuf>) {
        let mut out = self.shared.lock_out();
        let now = out.clock.now();
        while let Some(frame) = frames.pop_front() {
            if let Err(back) = out.transmit(frame, now) {
                return frames.push_front(back);
            }
        }
    }

    fn flush(&mut self) {
        let waits = {
            let mut out = self.shared.lock_out();
            out.drive();
            out.path.len() > 0
        };
        // The receive queue watches the time for both: if it sleeps, it must learn of the new deadline.
        if waits {
            P::fence(Ordering::SeqCst);
            if self.shared.sleeping.load(Ordering::Relaxed) {
                self.shared.wake_receiver();
            }
        }
    }
}

struct FaultRx<P: Platform> {
    rx: Box<dyn RxQueue>,
    path: Path<P>,
    framing: Framing,
    shared: Arc<FaultShared<P>>,
    clock: Arc<dyn TimeSource>,
    holds: bool,
    arrived: Vec<PktBuf>,
    counters: Arc<Counters>,
    trouble: DeviceFaults,
    made: Time,
    unplug: Option<Unplug>,
    /// Decides about wake-ups.
    wakes: Pcg,
    /// A wake-up was lost: the wrapped queue is ignored until then.
    ignore_until: Option<Time>,
}

impl<P: Platform> FaultRx<P> {
    /// Puts a received frame on the path, split if it is a super-segment.
    fn admit(&mut self, frame: PktBuf, now: Time) {
        if frame.meta().segment_size == 0 {
            return self.path.admit(frame, now);
        }
        match Splitter::framed(self.framing, frame) {
            Err(frame) => self.path.admit(frame, now),
            Ok(mut pieces) => {
                while let Some(piece) = pieces.next_piece() {
                    match piece {
                        Ok(piece) => self.path.admit(piece, now),
                        Err(NoBuffer) => self.counters.count_drop(DropReason::NoBuffer),
                    }
                }
            }
        }
    }

    /// Whether the device is unplugged at `now`.
    fn is_out(&self, now: Time) -> bool {
        self.unplug.is_some_and(|unplug| unplug.is_out(now - self.made))
    }

    /// When it is next unplugged or plugged in.
    fn plugged_or_unplugged(&self, now: Time) -> Option<Time> {
        self.unplug.and_then(|unplug| unplug.next_change(now - self.made)).map(|age| self.made + age)
    }

    /// As [`FaultRx::is_out`]; frames in transit, and frames that the wrapped device has received meanwhile, are then
    /// lost.
    fn is_unplugged(&mut self, now: Time) -> bool {
        let unplugged = self.is_out(now);
        if unplugged {
            let mut missed = std::mem::take(&mut self.arrived);
            while self.rx.receive(&mut missed, MISSED) > 0 {}
            self.path.discard(DropReason::InterfaceDown, missed.len() as u64);
            missed.clear();
            self.arrived = missed;
        }
        unplugged
    }

    /// Until when the queue is stalled, if it is.
    fn stalled_until(&self, now: Time) -> Option<Time> {
        self.trouble.stall.and_then(|stall| stall.bad_for(now - self.made)).map(|left| now + left)
    }

    /// Waits on the wrapped queue until `deadline` or until a frame on a path is due. `None`: check again.
    fn wait_once(&mut self, deadline: Option<Time>) -> Option<WaitOutcome> {
        let due_out = self.shared.lock_out().next_due();
        let now = self.clock.now();
        if self.is_unplugged(now) {
            return Some(WaitOutcome::Gone);
        }
        let until = |more: Option<Time>| {
            let all = deadline.into_iter().chain(due_out).chain(self.plugged_or_unplugged(now)).chain(more);
            all.min().map(|until| until - now)
        };
        let deaf = self.stalled_until(now).into_iter().chain(self.ignore_until.filter(|until| *until > now)).max();
        if deaf.is_some() {
            self.shared.parker.park(until(deaf));
            return self.woken_for(WaitOutcome::TimedOut, deadline);
        }
        let due_in = self.path.next_due();
        if due_in.is_some_and(|due| due <= now) {
            return Some(WaitOutcome::Ready);
        }
        match self.rx.wait(until(due_in)) {
            WaitOutcome::Ready if self.ignore_until.is_none() && self.wakes.chance(self.trouble.lost_wake) => {
                self.ignore_until = Some(self.clock.now() + LOST_WAKE);
                None
            }
            WaitOutcome::Gone if self.path.len() > 0 => Some(WaitOutcome::TimedOut),
            outcome => self.woken_for(outcome, deadline),
        }
    }

    /// The outcome of a sleep for the caller. `None`: check again.
    fn woken_for(&self, outcome: WaitOutcome, deadline: Option<Time>) -> Option<WaitOutcome> {
        if outcome != WaitOutcome::Ready && self.shared.woken.swap(false, Ordering::AcqRel) {
            return Some(WaitOutcome::Woken);
        }
        match outcome {
            WaitOutcome::Woken => None,
            WaitOutcome::TimedOut => deadline.filter(|deadline| *deadline <= self.clock.now()).map(|_| outcome),
            outcome => Some(outcome),
        }
    }
}

impl<P: Platform> RxQueue for FaultRx<P> {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        self.shared.lock_out().drive();
        let now = self.clock.now();
        self.ignore_until = None;
        if self.is_unplugged(now) || self.stalled_until(now).is_some() {
            return 0;
        }
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
        if self.wakes.chance(self.trouble.spurious_wake) {
            return WaitOutcome::Ready;
        }
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

    fn next_due(&self) -> Option<Time> {
        let now = self.clock.now();
        let changes = self.plugged_or_unplugged(now);
        if self.is_out(now) {
            return changes;
        }
        let due_in = match self.stalled_until(now) {
            Some(end) => Some(end),
            None => self.path.next_due(),
        };
        let due_out = self.shared.lock_out().next_due();
        due_in.into_iter().chain(due_out).chain(changes).chain(self.rx.next_due()).min()
    }

    /// The wrapped queue's descriptor, unless frames may be held here: no descriptor signals when these become due.
    fn pollable(&self) -> Option<std::os::fd::RawFd> {
        if self.holds { None } else { self.rx.pollable() }
    }

    fn gone(&self) -> bool {
        self.is_out(self.clock.now()) || (self.path.len() == 0 && self.rx.gone())
    }
}
