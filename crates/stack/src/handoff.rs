//! Work that crosses threads: a message, and the slot in which a caller waits for the answer.
//!
//! Used by the architectures in which a thread other than the caller runs the event. A message is run in a cell by
//! [`Message::run`], which leaves what is to be said to the caller in an [`Answer`]: it is given when the cell has been
//! let go and the effects have been performed, because whoever is woken may call back at once, on this very thread.

use std::sync::Arc;

use observe::Time;
use sync::{Condvar, Lock, LockClass, LockKind, Platform};

use crate::after::After;
use crate::call::{Call, Control, Ingress, Reply};
use crate::cell::Cell;
use crate::flow::Target;

/// One piece of work for the runner of a cell.
pub enum Message<P: Platform> {
    /// From a device or timer; nobody waits.
    Ingress(Ingress),
    /// A user's call; the caller sleeps at the slot.
    Call(Target, Call<P>, Arc<ReplySlot<P>>),
    /// A change of the replicas; the caller sleeps at the slot.
    Control(Control<P>, Arc<ReplySlot<P>>),
    /// A look at the cell; the caller sleeps at the slot.
    Census(Arc<ReplySlot<P>>),
}

impl<P: Platform> Message<P> {
    /// Runs the message in `cell`, which the caller holds exclusively. Returns the answer if somebody waits for one.
    pub fn run(self, cell: &mut Cell<P>, now: Time, after: &mut After<P>) -> Option<Answer<P>> {
        let (reply, slot) = match self {
            Message::Ingress(ingress) => {
                cell.ingress(ingress, now, after);
                return None;
            }
            Message::Call(target, call, slot) => (cell.call(&target, call, now, after), slot),
            Message::Control(change, slot) => {
                cell.control(change, now, after);
                (Reply::Done, slot)
            }
            Message::Census(slot) => (Reply::Census(Box::new(cell.census())), slot),
        };
        Some(Answer { reply, slot })
    }
}

/// The answer to a message, not given yet.
#[must_use = "a caller sleeps until the answer is given"]
pub struct Answer<P: Platform> {
    reply: Reply,
    slot: Arc<ReplySlot<P>>,
}

impl<P: Platform> Answer<P> {
    /// Wakes the caller. The cell has been let go, and what the event left to do has been done.
    pub fn give(self) {
        self.slot.fill(self.reply);
    }
}

/// Where one caller waits for one answer: a mutex and a condition variable, as the paper's synchronous requests.
pub struct ReplySlot<P: Platform> {
    reply: Lock<Option<Reply>, P>,
    filled: Condvar<P>,
}

impl<P: Platform> ReplySlot<P> {
    /// An empty slot.
    pub fn new() -> Arc<Self> {
        Arc::new(ReplySlot { reply: Lock::new(LockKind::Blocking, LockClass::Handoff, None), filled: Condvar::new() })
    }

    /// Puts the answer in and wakes the caller.
    pub fn fill(&self, reply: Reply) {
        sync::walk::note(file!(), "the answer, and a wake for the caller");
        *self.reply.lock() = Some(reply);
        self.filled.notify_one();
    }

    /// Sleeps until the answer is there.
    pub fn wait(&self) -> Reply {
        sync::walk::note(file!(), "the caller waits for the answer");
        let mut guard = self.reply.lock();
        loop {
            if let Some(reply) = guard.take() {
                return reply;
            }
            guard = self.filled.wait(guard);
        }
    }
}
