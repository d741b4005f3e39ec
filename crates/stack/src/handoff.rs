//! Work that crosses threads: a message, and the slot in which a caller waits for the answer.
//!
//! Used by the architectures in which a thread other than the caller runs the event. A message is run in a cell by
//! [`Message::run`], which answers as soon as the event is done and its effects performed.

use std::sync::Arc;

use observe::Time;
use sync::{Condvar, Lock, LockClass, LockKind, Platform};

use crate::after::After;
use crate::call::{Call, Control, Ingress, Reply};
use crate::cell::Cell;
use crate::flow::Target;
use crate::shared::Shared;

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
    /// Runs the message in `cell`, which the caller holds exclusively, and answers who waits.
    pub fn run(self, cell: &mut Cell<P>, now: Time, after: &mut After<P>, shared: &Shared<P>) {
        match self {
            Message::Ingress(ingress) => cell.ingress(ingress, now, after),
            Message::Call(target, call, slot) => {
                let reply = cell.call(&target, call, now, after);
                after.perform(shared);
                slot.fill(reply);
            }
            Message::Control(change, slot) => {
                cell.control(change);
                slot.fill(Reply::Done);
            }
            Message::Census(slot) => slot.fill(Reply::Census(Box::new(cell.census()))),
        }
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
        Arc::new(ReplySlot {
            reply: Lock::new(LockKind::Blocking, LockClass::Handoff, None),
            filled: Condvar::new(),
        })
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
