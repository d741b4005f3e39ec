//! What a protocol thread does: it runs the messages to its cell in rounds, and runs the upcalls that these cause.
//!
//! Effects of messages are performed when the thread has left the cell. Those that may run a user's code, [`Upcalls`], come
//! last, after the answer: that code may call a cell of another protocol thread and wait. The thread then runs rounds
//! of its own cell while it waits, and keeps the upcalls that these cause until the code that waits is done. So its stack
//! has a bound, however much arrives, and users are told in the order of the events.
//!
//! What may never happen: a user's code that runs in the cell, or in the middle of other users' code on the same
//! thread; a caller that waits although the protocol thread has ended.

use std::collections::VecDeque;

use observe::Time;
use sync::{Atomic, Ordering, Platform, model_is_over};

use super::ROUND;
use super::owner::OwnerThread;
use crate::arch::async_wildcard::let_an_arrival_pass;
use crate::arch::cells::{Exclusion, Hub};
use crate::arch::owned_cells;
use crate::attempt::attempt;
use crate::connections::Upkeep;
use crate::deferred::DeferredEffects;
use crate::handoff::{CellMessage, PendingReply};
use crate::links::Links;
use crate::place::Cell;
use crate::upcalls::Upcalls;

/// What its protocol thread alone uses.
pub(super) struct OwnerState<P: Platform> {
    pub(super) cell: Cell<P>,
    /// Messages that it has taken from the mailbox and not run yet. Here, because it runs them while it waits for an answer.
    pub(super) batch: VecDeque<CellMessage<P>>,
    /// The upcalls that the messages caused.
    upcalls: Upcalls<P>,
    /// The owner is telling users, further up its stack if it is not doing so now.
    tells: bool,
}

/// The effects of messages. When it is dropped, also by a panic, they are performed, but those that may run a user's code
/// are kept ([`OwnerState::upcalls`]).
struct RoundEffects<'a, P: Platform> {
    thread: &'a OwnerThread<P>,
    links: &'a Links<P>,
    deferred: DeferredEffects<P>,
}

impl<P: Platform> RoundEffects<'_, P> {
    fn perform(&mut self) {
        let mut upcalls = Upcalls::default();
        self.deferred.flush_all_but_upcalls(self.links, &mut upcalls);
        if !upcalls.is_empty() {
            // The thread that has run the messages owns the cell, and has left it.
            let _ = self.thread.owned.with(|owned| owned.upcalls.append(&mut upcalls));
        }
    }
}

impl<P: Platform> Drop for RoundEffects<'_, P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        if std::thread::panicking() {
            let _ = attempt(|| self.perform());
        } else {
            self.perform();
        }
    }
}

/// The owner tells users; also on panic no more once this is dropped.
struct TellingUsers<'a, P: Platform>(&'a OwnerThread<P>);

impl<P: Platform> Drop for TellingUsers<'_, P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            let _ = self.0.owned.with(|owned| owned.tells = false);
        }
    }
}

impl<P: Platform> OwnerState<P> {
    /// A cell without messages.
    pub(super) fn new(cell: Cell<P>) -> Self {
        OwnerState { cell, batch: VecDeque::new(), upcalls: Upcalls::default(), tells: false }
    }
}

impl<P: Platform> OwnerThread<P> {
    /// The calling thread becomes the owner, unless another thread is. While it waits for another owner it reads its mail.
    pub(super) fn own(&self, hub: &Hub<P>) -> bool {
        if self.is_mine() {
            return true;
        }
        let is_free = self.owned.bind_here().is_ok();
        if is_free {
            owned_cells::own(&hub.cells);
        }
        is_free
    }

    /// Runs queued messages and due timers, and runs the upcalls that they cause; the calling thread owns the cell. False:
    /// there were no messages.
    pub(super) fn round(&self, hub: &Hub<P>, now: Time) -> bool {
        let mut taken = self.mailbox.taken();
        while let Some(answer) = self.run_until_answer(hub, now, &mut taken.count) {
            answer.give();
            self.notify_users();
        }
        self.notify_users();
        taken.count != 0
    }

    /// [`OwnerThread::round`] by a thread to which the messages are another's work: it goes on if one of them panics, and
    /// returns true, because more may be left.
    pub(super) fn contained_round(&self, hub: &Hub<P>) -> bool {
        let shared = &hub.shared;
        shared.failures.survive(&shared.counters, || self.round(hub, shared.clock().now())) != Some(false)
    }

    /// Runs messages up to the first that a caller waits for, or all of them and then due timers. The cell is released,
    /// and the effects are performed, before that caller is answered: it may call at once, on this thread too.
    fn run_until_answer(&self, hub: &Hub<P>, now: Time, count: &mut usize) -> Option<PendingReply<P>> {
        let mut effects =
            RoundEffects { thread: self, links: hub.shared.links(), deferred: DeferredEffects::default() };
        let answer = self.owned.with(|OwnerState { cell, batch, .. }| {
            // What was taken before is run first.
            if batch.is_empty() && *count == 0 {
                self.mailbox.take(batch, ROUND);
            }
            let answer = self.run_batch(cell, batch, now, count, &mut effects.deferred);
            cell.serve_channels(now, &mut effects.deferred);
            if answer.is_none() {
                // Compares with the bound that drivers read: after a cancelled timer it is too early until timers run.
                if cell.deadline_nanos() <= now.as_nanos() {
                    cell.timers(now, &mut effects.deferred);
                }
                self.deadline.store(cell.deadline_nanos(), Ordering::Relaxed);
            }
            answer
        });
        debug_assert!(answer.is_ok(), "only the owner runs its rounds");
        let answer = answer.ok().flatten();
        // Before the end of the function: a panic there would leak the answer that is returned, and its caller would wait for ever.
        drop(effects);
        answer
    }

    fn run_batch(
        &self,
        cell: &mut Cell<P>,
        batch: &mut VecDeque<CellMessage<P>>,
        now: Time,
        count: &mut usize,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<PendingReply<P>> {
        while let Some(mut message) = batch.pop_front() {
            if self.async_wildcard {
                let_an_arrival_pass(&mut message, batch);
            }
            *count += 1;
            sync::walk::note(file!(), "the protocol thread takes the message");
            if let Some(answer) = message.run(cell, now, deferred) {
                return Some(answer);
            }
        }
        None
    }

    /// Runs the pending upcalls. The calling thread owns the cell and has left it. Their code may call another
    /// owner's cell: the thread reads its mail while it waits, and runs the upcalls which that causes here, once their code is done.
    fn notify_users(&self) {
        while let Some(upcalls) = self.begin_notifying() {
            let _telling = TellingUsers(self);
            upcalls.perform();
        }
    }

    /// What the calling thread tells users from now on. `None`: there is nothing, or it tells users further up its stack.
    fn begin_notifying(&self) -> Option<Upcalls<P>> {
        let mut owned = self.owned.borrow_mine().filter(|owned| !owned.tells && !owned.upcalls.is_empty())?;
        owned.tells = true;
        Some(std::mem::take(&mut owned.upcalls))
    }

    /// The protocol thread has ended, and was not the calling one: runs what was sent to it since. A protocol thread that waits for the
    /// answer would not end otherwise.
    ///
    /// The thread that leaves the cell fences and looks for mail; so does the one that has sent mail, and looks for an owner.
    pub(super) fn run_after_the_end(&self, hub: &Hub<P>) {
        P::fence(Ordering::SeqCst);
        while self.mailbox.pending() != 0 && self.own(hub) {
            while self.contained_round(hub) {}
            let _ = self.owned.release();
            P::fence(Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use sync::{LockKind, Real, ThreadOwned, Writers};

    use super::*;
    use crate::arch::cells::tests::{hub, job_of};
    use crate::arch::mailbox::Mailbox;
    use crate::flow::Flow;
    use crate::handoff::OwnerWait;
    use crate::place::Contents;
    use crate::socket::readiness::Watch;
    use crate::socket::{Readiness, TcpSocket};
    use crate::upcalls::Risen;

    /// Counts what it is told.
    #[derive(Default)]
    struct Counts(AtomicUsize);

    impl Watch for Counts {
        fn ready(&self, _: Readiness, _: Readiness) {
            self.count();
        }
    }

    impl Counts {
        fn count(&self) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }

        fn times(&self) -> usize {
            self.0.load(std::sync::atomic::Ordering::Relaxed)
        }
    }

    /// A cell that the calling thread owns.
    fn owned(hub: &Hub<Real>) -> Arc<OwnerThread<Real>> {
        let cell = Cell::new(&hub.shared, &Contents::empty().slab, Writers::Many);
        let thread = Arc::new(OwnerThread {
            owned: ThreadOwned::new(OwnerState::new(cell)),
            mailbox: Mailbox::list(LockKind::Blocking),
            wait: OwnerWait::default(),
            deadline: <Real as Platform>::AtomicU64::new(u64::MAX),
            stop: <Real as Platform>::AtomicBool::new(false),
            async_wildcard: false,
        });
        assert!(thread.own(hub));
        thread
    }

    /// DragonFly: a protocol thread takes its messages, runs them, and then checks its timers. A caller that calls again as soon as
    /// it is answered is served in the next round.
    #[test]
    fn what_is_sent_in_a_round_is_left_to_the_next() {
        let hub = hub(false);
        let (thread, second) = (owned(&hub), Arc::new(Counts::default()));
        let (sends, ran) = (thread.clone(), second.clone());
        let first = job_of(move || {
            assert!(sends.mailbox.send(job_of(move || ran.count()), false).is_ok(), "a list has room");
        });
        assert!(thread.mailbox.send(first, false).is_ok(), "a list has room");
        let now = hub.shared.clock().now();
        assert!(thread.round(&hub, now));
        assert_eq!((second.times(), thread.mailbox.pending()), (0, 1));
        assert!(thread.round(&hub, now));
        assert!(!thread.round(&hub, now), "there are no more");
        assert_eq!((second.times(), thread.mailbox.pending()), (1, 0));
    }

    /// A protocol thread that ends runs the messages, and tells users, that a panic has left.
    #[test]
    fn a_protocol_thread_ends_when_nothing_is_left() {
        for messages in [0, 1] {
            assert_eq!(told_at_the_end(messages), messages + 1, "messages, and a user");
        }
    }

    /// What is run and told when a thread ends to which a panic has left so many messages and a user to tell.
    fn told_at_the_end(messages: usize) -> usize {
        let hub = hub(true);
        let (thread, ran) = (owned(&hub), Arc::new(Counts::default()));
        let address = std::net::IpAddr::from([10, 0, 0, 1]);
        let tuple = wire::FourTuple { local_addr: address, remote_addr: address, local_port: 1, remote_port: 2 };
        let socket = TcpSocket::<Real>::new(Flow { tuple, hash: 0 });
        socket.ready.watch(ran.clone());
        for _ in 0..messages {
            let counts = ran.clone();
            assert!(thread.mailbox.send(job_of(move || counts.count()), false).is_ok(), "a list has room");
        }
        let left = thread.owned.with(|owned| {
            owned.upcalls.keep(std::iter::once((Risen::Connection(socket.clone()), Readiness::READABLE)));
            thread.mailbox.take(&mut owned.batch, ROUND);
        });
        assert!(left.is_ok());
        thread.stop();
        thread.serve(&hub);
        ran.times()
    }
}
