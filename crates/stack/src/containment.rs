//! Panic handling: the scope of a panic, the parts that are given up, and the users that are notified.
//!
//! A fault in the stack must not end the process, and must not disable a queue silently either. The smallest unit with
//! possibly broken invariants is given up:
//!
//! | the panic comes from | given up | handled in |
//! |---|---|---|
//! | an event of a connection (a segment, a call, a timer), its emission included | that connection: it is reset, its user receives `Aborted` | `connections/events.rs` |
//! | a connection's handler ([`handler`](crate::socket::handler)) | that connection: it is reset | `socket/handler`, `place/` |
//! | the rest of a thread's work (a device, the IP checks, a handshake) | that work: the frame, the batch behind it | `rx.rs`, the architectures' threads |
//! | a device's queue, [`PANICS_IN_A_ROW`] times in a row | the device: it counts as unplugged | `rx.rs` |
//! | other work of a receive thread, as many times in a row | the thread, and its devices | `rx.rs` |
//!
//! Each is counted (`PanicsContained`) and kept here with the thread's name and the panic's message. Memory stays sound
//! in every case: guards release their locks, and no `unsafe` code relies on a value that a panic leaves half changed.
//!
//! A stack that its user polls ([`StackConfig::contain`](crate::StackConfig::contain) false) passes every panic on to
//! the polling thread: tests and fuzz targets rely on that. Under a model checker nothing is contained: there a panic
//! *is* the finding.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic;

use std::sync::Arc;

use observe::{Counter, Counters};
use sync::{Atomic, Lock, LockClass, LockKind, Ordering, Platform};
use wire::FourTuple;

use crate::attempt::{Panic, attempt};
use crate::batch_checks::BatchChecks;
use crate::socket::{Readiness, TcpSocket};

/// A device or thread is given up after this many panics in a row without progress in between.
pub(crate) const PANICS_IN_A_ROW: u32 = 8;
/// The number of latest failures that are kept.
const KEPT: usize = 64;

/// The readiness bits set on a connection that is given up after a panic: all that its user could be waiting for.
pub(crate) const ABORTED: Readiness =
    Readiness::READABLE.union(Readiness::WRITABLE).union(Readiness::ERROR).union(Readiness::CLOSED);

/// One panic that was contained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The thread that panicked, by name.
    pub thread: String,
    /// Its message.
    pub cause: String,
    /// The scope that was given up.
    pub scope: FaultScope,
}

/// The scope that was given up after a panic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultScope {
    /// The connection on which an event was running.
    Connection(FourTuple),
    /// The connection whose handler was running.
    Handler(FourTuple),
    /// The thread's work in progress.
    Work,
    /// A device, by the number of its port: it panicked too often.
    Device(usize),
    /// The thread itself.
    Thread,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} panicked ({}): ", self.thread, self.cause)?;
        match &self.scope {
            FaultScope::Connection(tuple) => write!(
                f,
                "the connection of {} port {} with {} port {} was reset",
                tuple.local_addr, tuple.local_port, tuple.remote_addr, tuple.remote_port
            ),
            FaultScope::Handler(tuple) => write!(
                f,
                "the handler of the connection of {} port {} with {} port {}, which was reset",
                tuple.local_addr, tuple.local_port, tuple.remote_addr, tuple.remote_port
            ),
            FaultScope::Work => f.write_str("the work in progress is lost, and the thread continues"),
            FaultScope::Device(port) => write!(f, "device {port} is given up; open it again"),
            FaultScope::Thread => {
                f.write_str("it panics repeatedly and is given up, with its devices; restart the stack")
            }
        }
    }
}

/// A connection that was ended while a panic unwound out of its cell, with the thread's index; the code that contains
/// the panic notifies its user.
type PendingNotice<P> = (usize, Arc<TcpSocket<P>>);

/// The panics of one stack. Any thread.
pub struct Failures<P: Platform> {
    contains: bool,
    kept: Lock<VecDeque<Failure>, P>,
    /// Announced in `checks`.
    pending: Lock<Vec<PendingNotice<P>>, P>,
    checks: Arc<BatchChecks<P>>,
}

impl<P: Platform> Failures<P> {
    /// No failures yet. Without `contains` a caught panic is resumed.
    pub(crate) fn new(contains: bool, checks: Arc<BatchChecks<P>>) -> Self {
        let kept = Lock::new(LockKind::Blocking, LockClass::Failures, VecDeque::new());
        let pending = Lock::new(LockKind::Blocking, LockClass::Failures, Vec::new());
        Failures { contains: contains && !P::EXPLORED, kept, pending, checks }
    }

    /// Whether panics are contained.
    pub(crate) fn contains(&self) -> bool {
        self.contains
    }

    /// Records a connection ended by a panic that still unwinds.
    pub(crate) fn defer_notification(&self, socket: Arc<TcpSocket<P>>) {
        self.pending.lock().push((P::thread_index(), socket));
        self.checks.failures.store(true, Ordering::Release);
    }

    /// Notifies the users of connections that were ended while a panic unwound. The caller holds no guard.
    #[inline]
    pub(crate) fn notify_pending(&self) {
        if self.checks.failures.load(Ordering::Relaxed) {
            self.notify();
        }
    }

    #[cold]
    fn notify(&self) {
        self.checks.failures.store(false, Ordering::Release);
        let pending = std::mem::take(&mut *self.pending.lock());
        pending.into_iter().for_each(|(_, socket)| socket.ready.raise(ABORTED));
    }

    /// The connection that the calling thread's panic has ended, if any.
    fn victim(&self) -> Option<FourTuple> {
        let pending = self.pending.lock();
        let own = pending.iter().rev().find(|(thread, _)| *thread == P::thread_index());
        own.map(|(_, socket)| socket.tuple())
    }

    /// The latest failures, oldest first.
    pub fn list(&self) -> Vec<Failure> {
        self.kept.lock().iter().cloned().collect()
    }

    /// Why the connection of `tuple` was given up, if it is among the latest failures.
    pub fn of(&self, tuple: &FourTuple) -> Option<Failure> {
        let kept = self.kept.lock();
        kept.iter().rev().find(|failure| failure.scope == FaultScope::Connection(*tuple)).cloned()
    }

    /// Records a caught panic and counts it in `counters`.
    ///
    /// # Panics
    /// With the same panic, where panics are not contained.
    #[cold]
    pub(crate) fn note(&self, panic: Panic, scope: FaultScope, counters: &Counters) {
        if !self.contains {
            panic::resume_unwind(panic);
        }
        let scope = self.victim().map_or(scope, FaultScope::Connection);
        self.keep(panic, scope, counters);
    }

    /// Records a panic of a connection's handler. The program of one connection is not the stack: its panic is contained
    /// in a stack that its user polls, too.
    ///
    /// # Panics
    /// With the same panic, under a model checker.
    #[cold]
    pub(crate) fn note_handler(&self, panic: Panic, tuple: FourTuple, counters: &Counters) {
        if P::EXPLORED {
            panic::resume_unwind(panic);
        }
        counters.add(Counter::HandlerPanics, 1);
        self.keep(panic, FaultScope::Handler(tuple), counters);
    }

    fn keep(&self, panic: Panic, scope: FaultScope, counters: &Counters) {
        counters.add(Counter::PanicsContained, 1);
        let failure = Failure { thread: P::thread_name(), cause: message(&*panic), scope };
        let mut kept = self.kept.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(failure);
        drop(kept);
        // Dropped last and guarded: the payload of a panic may panic when it is dropped.
        let _ = attempt(|| drop(panic));
    }

    /// Runs one piece of work of one of the stack's own threads. `None`: it panicked, and its result is lost.
    #[inline]
    pub(crate) fn survive<R>(&self, counters: &Counters, work: impl FnOnce() -> R) -> Option<R> {
        match attempt(work) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.note(panic, FaultScope::Work, counters);
                self.notify_pending();
                None
            }
        }
    }
}

/// The message of a panic: nearly always a string.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sync::Real;

    fn caught(message: &'static str) -> Panic {
        attempt(|| std::panic::panic_any(message)).expect_err("it panics")
    }

    #[test]
    fn the_latest_failures_are_kept_with_thread_and_cause() {
        let (failures, counters) = (Failures::<Real>::new(true, Arc::default()), Counters::new());
        failures.note(caught("the first"), FaultScope::Work, &counters);
        for _ in 0..KEPT {
            assert_eq!(failures.survive(&counters, || panic!("number {}", 2)), None::<()>);
        }
        let kept = failures.list();
        assert_eq!(kept.len(), KEPT);
        assert!(kept.iter().all(|failure| failure.cause == "number 2"), "the first was pushed out");
        assert!(kept[0].thread.contains("the_latest_failures"), "{}", kept[0].thread);
        assert!(kept[0].to_string().contains("panicked (number 2)"), "{}", kept[0]);
        assert_eq!(counters.snapshot().get(Counter::PanicsContained), KEPT as u64 + 1);
    }

    #[test]
    fn a_stack_that_does_not_contain_lets_the_same_panic_through() {
        let (failures, counters) = (Failures::<Real>::new(false, Arc::default()), Counters::new());
        let panic = attempt(|| failures.survive(&counters, || std::panic::panic_any("mine"))).expect_err("it goes on");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"mine"));
        assert!(failures.list().is_empty());
    }
}
