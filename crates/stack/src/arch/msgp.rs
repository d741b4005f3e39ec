//! Any thread, any connection, fine-grained locks (Willmann's MsgP, FreeBSD 5-7; Nahum's TCP-1, TCP-2, TCP-6).
//!
//! | cell | exclusive use by | thread | table | order |
//! |---|---|---|---|---|
//! | a connection (1 lock), its halves (2), its six parts (6) | global table lock, then connection lock(s) | caller or receive thread | global, locked | structure |
//!
//! The locks and their order are those of [`Locked`]. The thread that brings an event runs it: nothing is handed over, and
//! nothing waits in a queue.

use std::sync::Arc;

use observe::Time;
use sync::Platform;

use super::{Architecture, Census};
use crate::after::After;
use crate::call::{Call, Control, Ingress, Reply};
use crate::connections::{Arrivals, Calls, Upkeep};
use crate::flow::Target;
use crate::place::pcb::LockPlan;
use crate::place::{Locked, TablePolicy};
use crate::shared::Shared;

/// The architecture `msgp`.
pub struct MsgP<P: Platform> {
    shared: Arc<Shared<P>>,
    place: Locked<P>,
}

impl<P: Platform> MsgP<P> {
    /// A global table, and `locks` for each connection, all of the stack's lock kind.
    pub fn new(shared: &Arc<Shared<P>>, locks: LockPlan, policy: TablePolicy) -> Self {
        MsgP { shared: shared.clone(), place: Locked::new(shared, locks, policy) }
    }

    /// Runs `f`, and performs what it left to be done.
    fn enter<R>(&self, f: impl FnOnce(&mut &Locked<P>, &mut After<P>) -> R) -> R {
        let mut after = After::default();
        let result = f(&mut &self.place, &mut after);
        after.perform(&self.shared);
        result
    }
}

impl<P: Platform> Architecture<P> for MsgP<P> {
    fn post(&self, ingress: &mut Ingress, now: Time, after: &mut After<P>) {
        (&mut &self.place).ingress(ingress, now, after);
    }

    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        let now = self.shared.clock.now();
        self.enter(|place, after| place.call(target, call, now, after, reply));
    }

    fn control(&self, change: Control<P>) {
        let now = self.shared.clock.now();
        self.enter(|place, after| place.control(change, now, after));
    }

    fn tick(&self, now: Time) {
        self.enter(|place, after| place.tick(now, after));
    }

    fn next_deadline(&self) -> Option<Time> {
        self.place.next_deadline()
    }

    fn is_quiescent(&self) -> bool {
        true
    }

    fn census(&self) -> Census {
        (&mut &self.place).census()
    }
}
