//! Work that crosses threads: a message, and the slot in which a caller waits for the answer.
//!
//! Used by the architectures in which a thread other than the caller runs the event. [`CellMessage::run`]
//! (`arch/mailbox.rs`) runs a message in a cell and returns the reply as an [`PendingReply`]. The answer is delivered once
//! the cell has been left and the effects have been performed, because the woken caller may call back at once, on this
//! very thread.
//!
//! What may never happen: a caller that sleeps for a reply that will never come. A message that is dropped before it
//! was run, or by a panic while it runs, replies with [`Reply::Gone`].

use std::any::Any;
use std::sync::Arc;

use sync::{Atomic, Condvar, Lock, LockClass, LockKind, Ordering, Platform, model_is_over, yield_until};

use crate::call::{Call, ControlRequest, Ingress, Reply};
use crate::flow::Target;
use crate::socket::channel::OwnerEnd;
use crate::udp_call::UdpCall;

/// Work for the thread that owns the tables of IP, and its result.
///
/// A closure, unlike the calls of connections and sockets: it is off the data path, and most jobs are a call of the
/// control plane as a whole, which makes several calls of the architecture where it runs.
pub type TableJob = Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>;

/// One piece of work for the runner of a cell.
pub enum CellMessage<P: Platform> {
    /// From a device or timer; no caller waits.
    Ingress(Ingress),
    /// A user's call; the caller sleeps at the slot.
    Call(Target, Call<P>, ReplySender<P>),
    /// The owner's end of a channel for this connection.
    Attach(Target, Box<OwnerEnd<P>>),
    /// The user of a channel has taken data, and there is more.
    Continue(Target),
    /// A user's call of a datagram socket; the caller sleeps at the slot.
    Udp(UdpCall<P>, ReplySender<P>),
    /// A change of the replicas; the caller sleeps at the slot.
    Control(ControlRequest<P>, ReplySender<P>),
    /// Work that uses the tables of IP; a caller may sleep at the slot. Run outside the cell, which it may call.
    Job(TableJob, ReplySender<P>),
    /// A request for the cell's statistics; the caller sleeps at the slot.
    StackStats(ReplySender<P>),
}

/// The answer to a message, not delivered yet.
#[must_use = "a caller sleeps until the answer is given"]
pub struct PendingReply<P: Platform> {
    reply: Reply,
    asker: ReplySender<P>,
}

impl<P: Platform> PendingReply<P> {
    /// `reply` for the caller that waits at `asker`.
    pub fn new(reply: Reply, asker: ReplySender<P>) -> Self {
        PendingReply { reply, asker }
    }

    /// Wakes the caller. The cell has been released, and the deferred effects have been performed.
    pub fn give(self) {
        self.asker.answer(self.reply);
    }
}

/// The sending side of the reply to a caller that sleeps at a slot. Dropped without a reply, it replies
/// [`Reply::Gone`].
pub struct ReplySender<P: Platform>(Option<Arc<ReplySlot<P>>>);

impl<P: Platform> ReplySender<P> {
    /// Whether a caller waits.
    pub fn is_awaited(&self) -> bool {
        self.0.is_some()
    }

    /// For the caller that will wait at `slot`.
    pub fn new(slot: &Arc<ReplySlot<P>>) -> Self {
        ReplySender(Some(slot.clone()))
    }

    /// No caller waits.
    pub fn nobody() -> Self {
        ReplySender(None)
    }

    /// Wakes the caller with `reply`.
    pub fn answer(mut self, reply: Reply) {
        if let Some(slot) = self.0.take() {
            slot.fill(reply);
        }
    }
}

impl<P: Platform> Drop for ReplySender<P> {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take().filter(|_| !model_is_over::<P>()) {
            slot.fill(Reply::Gone);
        }
    }
}

/// A slot in which one caller waits for one answer: a mutex and a condition variable, as in the paper's synchronous
/// requests. The caller looks at the slot for a few turns before it sleeps, and a caller that does not sleep is not woken.
pub struct ReplySlot<P: Platform> {
    /// There has been an answer. A hint for the caller's turns: the answer itself is under the lock.
    answered: P::AtomicBool,
    state: Lock<ReplySlotState, P>,
    filled: Condvar<P>,
}

/// The messages that the caller at a slot has not seen yet.
#[derive(Default)]
struct ReplySlotState {
    reply: Option<Reply>,
    /// See [`Interrupt`].
    interrupted: bool,
}

impl<P: Platform> ReplySlot<P> {
    /// An empty slot.
    pub fn new() -> Arc<Self> {
        Arc::new(ReplySlot {
            answered: P::AtomicBool::new(false),
            state: Lock::new(LockKind::Blocking, LockClass::Handoff, ReplySlotState::default()),
            filled: Condvar::new(),
        })
    }

    /// Stores the answer and wakes the caller.
    pub fn fill(&self, reply: Reply) {
        sync::walk::note(file!(), "stores the answer and wakes the caller if it sleeps");
        sync::walk::answer();
        self.state.lock().reply = Some(reply);
        self.answered.store(true, Ordering::Release);
        self.filled.notify_one();
    }

    /// Whether the answer is there: a caller that waits would not sleep.
    pub fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    /// Waits until the answer is there: a few turns, then asleep.
    pub fn wait(&self) -> Reply {
        self.wait_interrupted(|| false)
    }

    /// Waits until the answer is there: a few turns, then asleep. Calls `work` at first and after each interruption, with
    /// no lock held, until it returns false: there was nothing to do.
    pub fn wait_interrupted(&self, mut work: impl FnMut() -> bool) -> Reply {
        sync::walk::note(file!(), "the caller waits for the answer");
        loop {
            while work() {}
            yield_until::<P>(|| self.is_answered());
            let mut state = self.state.lock();
            while !std::mem::take(&mut state.interrupted) {
                if let Some(reply) = state.reply.take() {
                    return reply;
                }
                state = self.filled.wait(state);
            }
        }
    }
}

/// A place where a thread waits, and can be given something to do meanwhile. Any thread may call it.
pub trait Interrupt: Send + Sync {
    /// The thread that waits has work, which it does before it sleeps again.
    fn interrupt(&self);
}

impl<P: Platform> Interrupt for ReplySlot<P> {
    fn interrupt(&self) {
        self.state.lock().interrupted = true;
        self.filled.notify_one();
    }
}

/// Where the owner of a cell waits for another cell's answer, for those that send to its cell meanwhile: it must read that
/// mail, because the other owner may be waiting for it.
///
/// Both sides write one word, fence, and read the other's: the sender its mail, the owner that it waits. So the sender
/// sees the owner wait, or the owner sees the mail before it sleeps.
pub struct OwnerWait<P: Platform> {
    waits: P::AtomicBool,
    slot: Lock<Option<Arc<dyn Interrupt>>, P>,
}

impl<P: Platform> Default for OwnerWait<P> {
    fn default() -> Self {
        let slot = Lock::new(LockKind::Blocking, LockClass::Handoff, None);
        OwnerWait { waits: P::AtomicBool::new(false), slot }
    }
}

impl<P: Platform> OwnerWait<P> {
    /// The calling thread, the owner, is about to wait at `slot`, and looks for mail after that; `None`: it waits no more.
    /// Returns the slot of an earlier wait, further up its stack.
    pub fn set(&self, slot: Option<Arc<dyn Interrupt>>) -> Option<Arc<dyn Interrupt>> {
        let waits = slot.is_some();
        let before = std::mem::replace(&mut *self.slot.lock(), slot);
        self.waits.store(waits, Ordering::Relaxed);
        P::fence(Ordering::SeqCst);
        before
    }

    /// The calling thread has sent mail: an owner that waits is interrupted.
    pub fn interrupt(&self) {
        P::fence(Ordering::SeqCst);
        if self.waits.load(Ordering::Relaxed) {
            let slot = self.slot.lock().clone();
            slot.iter().for_each(|slot| slot.interrupt());
        }
    }
}
