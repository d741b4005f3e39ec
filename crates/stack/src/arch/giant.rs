//! One lock around the whole stack: NetBSD's `KERNEL_LOCK`, the x-kernel's master lock.
//!
//! | cell | exclusive use by | thread | table | order |
//! |---|---|---|---|---|
//! | the stack | one lock | caller or receive thread | plain | structure |

use std::sync::Arc;

use observe::Time;
use sync::{Lock, LockClass, Platform};

use super::{Architecture, Census};
use crate::after::After;
use crate::call::{Call, Control, Ingress, Reply};
use crate::connections::{Arrivals, Calls, Upkeep};
use crate::flow::Target;
use crate::place::Cell;
use crate::shared::Shared;

/// The architecture `giant`.
pub struct Giant<P: Platform> {
    shared: Arc<Shared<P>>,
    cell: Lock<Cell<P>, P>,
}

impl<P: Platform> Giant<P> {
    /// One cell behind one lock of the stack's kind.
    pub fn new(shared: &Arc<Shared<P>>) -> Self {
        let cell = Lock::new(shared.lock_kind, LockClass::Group, Cell::new(shared));
        Giant { shared: shared.clone(), cell }
    }

    fn hold<R>(&self, f: impl FnOnce(&mut Cell<P>, &mut After<P>) -> R) -> R {
        let mut after = After::default();
        let result = f(&mut self.cell.lock(), &mut after);
        after.perform(&self.shared);
        result
    }
}

impl<P: Platform> Architecture<P> for Giant<P> {
    fn post(&self, ingress: &mut Ingress, now: Time, after: &mut After<P>) {
        self.cell.lock().ingress(ingress, now, after);
    }

    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        let now = self.shared.clock.now();
        self.hold(|cell, after| cell.call(target, call, now, after, reply));
    }

    fn control(&self, change: Control<P>) {
        let now = self.shared.clock.now();
        self.hold(|cell, after| cell.control(change, now, after));
    }

    fn tick(&self, now: Time) {
        if self.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.hold(|cell, after| cell.timers(now, after));
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.cell.lock().next_deadline()
    }

    fn is_quiescent(&self) -> bool {
        true
    }

    fn census(&self) -> Census {
        self.cell.lock().census()
    }
}
