//! One thread, no lock (Willmann's UP).
//!
//! The thread that first ticks owns the stack from then on. A call by the owner is a plain function call. A call by any
//! other thread is put into the mailbox, the owner is woken, and the caller sleeps until the answer is there: it costs
//! what a message costs, and the one-thread rule holds.

use std::sync::Arc;

use observe::Time;
use sync::{Atomic, Ordering, Platform, ThreadOwned, Writers, model_is_over};

use super::RunningArchitecture;
use super::cells::{Cells, Exclusion, Hub};
use super::declaration::{Declaration, Properties, TableRow, Variant};
use super::mailbox::Mailbox;
use super::select::ThreadConfig;
use crate::call::Reply;
use crate::connections::Upkeep;
use crate::deferred::DeferredEffects;
use crate::handoff::{CellMessage, PendingReply};
use crate::place::{Cell, Contents};
use crate::shared::Shared;
use crate::socket::HandlersRun;

/// The declaration of this architecture.
pub const DECLARATION: Declaration<()> = Declaration {
    name: "up",
    options: "",
    variants: &[Variant {
        name: "up",
        also: None,
        about: "one thread owns the stack, without locks; others send it messages",
        parameter: (),
    }],
    unlisted: &[],
    default: 0,
    numbers: None,
    properties: Properties {
        single_thread: true,
        has_locks: false,
        groups: false,
        own_threads: false,
        keeps_batches_together: true,
        handlers: HandlersRun::Inside,
        complexity: 0,
    },
    rows: &[TableRow {
        names: "`up`",
        cell: "the stack",
        exclusive_use: "nothing: one thread owns it; others send messages",
        thread: "the thread that polls",
        table: "plain",
        order: "structure",
    }],
};

struct Up<P: Platform> {
    cell: ThreadOwned<Cell<P>, P>,
    /// Calls by other threads than the owner.
    mailbox: Mailbox<P>,
    /// A polling thread found the cell in use. The thread that releases the cell wakes the drivers.
    turned_away: P::AtomicBool,
}

/// One cell, not owned yet.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    (): (),
    _: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let slab = contents.slab.clone();
    Arc::new(Cells::new(shared, 1, false, contents, || Up {
        cell: ThreadOwned::new(Cell::new(shared, &slab, Writers::One)),
        mailbox: Mailbox::list(shared.lock_kind_between_threads()),
        turned_away: P::AtomicBool::new(false),
    }))
}

impl<P: Platform> Up<P> {
    /// Uses the cell if it has no owner yet, and then releases it: the owner should be the thread that polls the
    /// devices, not the one that sets the stack up.
    #[cold]
    fn use_unowned<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        if self.cell.owner().is_some() {
            return None;
        }
        let visit = Visit { up: self, hub };
        let Ok(result) = self.cell.with(f) else {
            // Another thread came first.
            std::mem::forget(visit);
            return None;
        };
        drop(visit);
        Some(result)
    }

    /// Makes the polling thread the owner of the cell and of its transmit queues, unless another thread owns them.
    #[cold]
    fn take_over(&self, hub: &Hub<P>) -> bool {
        if self.cell.bind_here().is_err() {
            self.turned_away.store(true, Ordering::Relaxed);
            P::fence(Ordering::SeqCst);
            if self.cell.bind_here().is_err() {
                return false;
            }
        }
        hub.shared.claim();
        true
    }

    /// Releases the cell, and wakes a driver that was turned away meanwhile. Mail that arrived meanwhile is run here,
    /// because perhaps no other thread will check for it.
    fn release(&self, hub: &Hub<P>) {
        hub.shared.release_claims();
        loop {
            let _ = self.cell.release();
            P::fence(Ordering::SeqCst);
            if self.turned_away.load(Ordering::Relaxed) && self.turned_away.swap(false, Ordering::AcqRel) {
                hub.shared.links().wake_drivers();
            }
            if !self.take_over_for_mail() {
                return;
            }
            self.drain(hub, hub.shared.clock().now());
        }
    }

    /// Whether there is mail and no owner, and the calling thread has become the owner. Because of the fence before the
    /// call, here and in `assist`, either the sender of the mail sees that the cell is free, or the thread that leaves
    /// the cell sees the mail.
    fn take_over_for_mail(&self) -> bool {
        self.mailbox.pending() != 0 && self.cell.owner().is_none() && self.cell.bind_here().is_ok()
    }

    /// The owner runs the calls of other threads. True: there were some.
    fn drain(&self, hub: &Hub<P>, now: Time) -> bool {
        let mut ran = false;
        // Usually empty: one load.
        while self.mailbox.pending() != 0 {
            let Some(message) = self.mailbox.pop() else { break };
            let mut taken = self.mailbox.taken();
            taken.count = 1;
            ran = true;
            let mut deferred = DeferredEffects::default();
            let answer = match message {
                CellMessage::Job(job, asker) => Some(PendingReply::new(Reply::Job(job()), asker)),
                message => {
                    let answer = self.cell.with(|cell| message.run(cell, now, &mut deferred));
                    debug_assert!(answer.is_ok(), "only the owner drains the mailbox");
                    answer.ok().flatten()
                }
            };
            drop(taken);
            deferred.flush(hub.shared.links());
            answer.into_iter().for_each(PendingReply::give);
        }
        ran
    }
}

/// Guards a use of the cell by a thread that shall not own it: released at the end, also on panic.
struct Visit<'a, P: Platform> {
    up: &'a Up<P>,
    hub: &'a Hub<P>,
}

impl<P: Platform> Drop for Visit<'_, P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.up.release(self.hub);
        }
    }
}

impl<P: Platform> Exclusion<P> for Up<P> {
    const SINGLE: bool = true;
    const POLLED: bool = true;
    const NESTS: bool = false;

    #[inline(always)]
    fn enter<R>(&self, hub: &Hub<P>, f: impl FnOnce(&mut Cell<P>) -> R) -> Option<R> {
        match self.cell.borrow_mine() {
            Some(mut cell) => Some(f(&mut cell)),
            None => self.use_unowned(hub, f),
        }
    }

    fn withdraw(&self) -> Vec<CellMessage<P>> {
        self.mailbox.withdraw()
    }

    #[cold]
    fn send(&self, hub: &Hub<P>, message: CellMessage<P>, announce: bool) -> Result<(), CellMessage<P>> {
        self.mailbox.send(message, announce)?;
        hub.shared.links().wake_drivers();
        Ok(())
    }

    fn use_tables(&self, hub: &Hub<P>, work: &mut dyn FnMut()) -> bool {
        if self.cell.owner() == Some(P::thread_index()) {
            work();
            return true;
        }
        let free = self.cell.owner().is_none() && self.cell.bind_here().is_ok();
        if free {
            let visit = Visit { up: self, hub };
            work();
            drop(visit);
        }
        free
    }

    fn assist(&self, hub: &Hub<P>) {
        P::fence(Ordering::SeqCst);
        if self.take_over_for_mail() {
            self.drain(hub, hub.shared.clock().now());
            self.release(hub);
        }
    }

    fn deadline(&self) -> u64 {
        self.cell.borrow_mine().map_or(u64::MAX, |cell| cell.deadline_nanos())
    }

    fn tick(&self, hub: &Hub<P>, now: Time) -> bool {
        if self.cell.owner() != Some(P::thread_index()) && !self.take_over(hub) {
            return false;
        }
        let ran = self.drain(hub, now);
        if self.deadline() <= now.as_nanos() {
            let mut deferred = DeferredEffects::default();
            self.enter(hub, |cell| cell.timers(now, &mut deferred));
            deferred.flush(hub.shared.links());
        }
        ran
    }

    fn is_quiescent(&self) -> bool {
        self.mailbox.pending() == 0
    }

    fn retire(&self, hub: &Hub<P>) {
        if self.cell.owner() == Some(P::thread_index()) {
            self.drain(hub, hub.shared.clock().now());
            self.release(hub);
        }
    }
}
