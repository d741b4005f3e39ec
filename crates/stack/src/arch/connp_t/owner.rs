//! A protocol thread: its cell, its mailbox, and the loop in which it runs messages and timers.
//!
//! The rounds of that loop are in `rounds.rs`. Under `connp-t`, `conn-thread` and `layer` the kind of the mailbox is a parameter.
//!
//! What may never happen: another thread uses the cell while the protocol thread owns it.

use std::sync::Arc;

use observe::Time;
use sync::{Atomic, Ordering, Platform, ThreadOwned};

use super::rounds::OwnerState;
use crate::arch::cells::{Exclusion, Hub};
use crate::arch::mailbox::Mailbox;
use crate::handoff::{CellMessage, Interrupt, OwnerWait};
use crate::place::Cell;

/// One protocol thread's cell and the way to it.
pub(super) struct OwnerThread<P: Platform> {
    /// Its cell, and what it alone uses.
    pub(super) owned: ThreadOwned<OwnerState<P>, P>,
    /// Messages from other threads.
    pub(super) mailbox: Mailbox<P>,
    /// Where the owner waits for another owner's answer.
    pub(super) wait: OwnerWait<P>,
    /// When its timers are due, in nanoseconds.
    pub(super) deadline: P::AtomicU64,
    /// The thread is to end, or has ended.
    pub(super) stop: P::AtomicBool,
    /// See [`Owners`](super::Owners).
    pub(super) async_wildcard: bool,
}

impl<P: Platform> Exclusion<P> for OwnerThread<P> {
    const THREAD: &'static str = "heddle-pt";
    const RUNS_TIMERS: bool = true;
    const RUNS: bool = true;
    const CHANNELS: bool = true;
    const READS_MAIL: bool = true;

    #[inline]
    fn enter<R>(&self, _: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let mut owned = self.owned.borrow_mine()?;
        let result = f(&mut owned.cell);
        self.deadline.store(owned.cell.deadline_nanos(), Ordering::Relaxed);
        Some(result)
    }

    fn seize<R>(&self, _: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        let result = self.owned.with(|OwnerState { cell, .. }| {
            let result = f(cell);
            self.deadline.store(cell.deadline_nanos(), Ordering::Relaxed);
            result
        });
        let result = result.ok()?;
        // For the thread that will own it.
        let _ = self.owned.release();
        Some(result)
    }

    fn withdraw(&self) -> Vec<CellMessage<P>> {
        // Those that a panic has left.
        let taken = self.owned.with(|owned| std::mem::take(&mut owned.batch));
        let _ = self.owned.release();
        let mut messages: Vec<_> = taken.into_iter().flatten().collect();
        messages.append(&mut self.mailbox.withdraw());
        messages
    }

    fn takes_arrivals(&self) -> bool {
        false
    }

    fn is_mine(&self) -> bool {
        self.owned.owner() == Some(P::thread_index())
    }

    #[inline]
    fn send(&self, _: &Hub<P>, message: CellMessage<P>, announce: bool) -> Result<(), CellMessage<P>> {
        sync::walk::note(file!(), "sends a message to the protocol thread that owns the flow");
        self.mailbox.send(message, announce)?;
        if announce {
            self.wait.interrupt();
        }
        Ok(())
    }

    fn announce(&self, _: &Hub<P>) {
        self.mailbox.announce();
        self.wait.interrupt();
    }

    fn wait_at(&self, slot: Option<Arc<dyn Interrupt>>) -> Option<Arc<dyn Interrupt>> {
        self.wait.set(slot)
    }

    fn read_mail(&self, hub: &Hub<P>) -> bool {
        self.contained_round(hub)
    }

    fn replicates_without_waiting(&self) -> bool {
        self.async_wildcard
    }

    fn assist(&self, hub: &Hub<P>) {
        if hub.own_threads {
            // After the fence of the message that was sent.
            if self.stop.load(Ordering::Relaxed) {
                self.run_after_the_end(hub);
            }
        } else if self.own(hub) {
            while self.round(hub, hub.shared.clock().now()) {}
        }
    }

    fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    fn tick(&self, hub: &Hub<P>, now: Time) -> bool {
        self.own(hub) && self.round(hub, now)
    }

    fn is_quiescent(&self) -> bool {
        self.mailbox.pending() == 0
    }

    fn retire(&self, hub: &Hub<P>) {
        if !hub.own_threads {
            // Refused where the calling thread does not do this owner's work.
            let _ = self.owned.release();
        }
    }

    /// The loop of a protocol thread: messages in order, then timers, then sleep.
    fn serve(&self, hub: &Hub<P>) {
        let owns = self.own(hub);
        debug_assert!(owns, "a protocol thread's cell is its own");
        let shared = &hub.shared;
        while !self.stop.load(Ordering::Acquire) {
            // The messages left in the batch after a panic run in the next round.
            if !self.contained_round(hub) {
                let deadline = self.deadline();
                let nap = (deadline != u64::MAX).then(|| Time::from_nanos(deadline) - shared.clock().now());
                self.mailbox.wait(&self.stop, nap);
            }
        }
        // Also what a panic has left: messages, and pending upcalls.
        while self.contained_round(hub) {}
        let _ = self.owned.release();
        self.run_after_the_end(hub);
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.mailbox.wake();
    }

    fn resume(&self) {
        self.stop.store(false, Ordering::Release);
    }
}
