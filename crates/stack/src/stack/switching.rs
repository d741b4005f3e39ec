//! Another process architecture for a stack that runs: the old one is dissolved, the new one is built from its contents.
//!
//! *At rest.* No driver polls and no call is in progress while [`Stack::switch`] runs; drivers have rested
//! ([`Driver::rest`](crate::Driver::rest)) or are the calling thread's. What comes from elsewhere is safe, and lost to its user: a call finds
//! its connection gone. An architecture that can tell that it is not at rest refuses, and goes on.
//!
//! *What remains.* Connections lie where they lie, and their users' names for them are good. Listeners, datagram sockets with what
//! is queued in them, half-open connections, timers and counters go along; what was queued is run by the new architecture, in its order.
//!
//! Drivers read the slot ([`Running`]) once per batch, callers at each call: one load. So an architecture that was left is kept, without
//! its contents, until the stack ends, and there is a bound on switches.

use std::collections::HashMap;
use std::fmt;

use observe::Counters;
use sync::slab::Key;
use sync::{Atomic, LockKind, Ordering, Platform, TooManyVersions};

use super::Stack;
use crate::after::After;
use crate::arch::NotAtRest;
use crate::arch::running::Running;
use crate::arch::select::{self, Plan};
use crate::call::Reply;
use crate::handoff::Message;
use crate::place::Contents;

/// Switches of one stack at most: each leaves some kilobytes for each cell of the old architecture.
pub const MOST_SWITCHES: u32 = 1024;

/// Why a stack keeps its architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchRefused {
    /// Its locks never wait, and the other architecture shares them between threads.
    NullLock(Plan),
    /// A driver has not rested, or a thread is inside a connection.
    NotAtRest,
    /// Another thread is switching.
    Busy,
    /// It was switched [`MOST_SWITCHES`] times.
    TooOften,
}

impl fmt::Display for SwitchRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwitchRefused::NullLock(plan) => {
                write!(
                    f,
                    "the null lock excludes nobody, and {plan} shares its locks: build the stack with another lock kind"
                )
            }
            SwitchRefused::NotAtRest => {
                f.write_str("the stack is in use: let its drivers rest, and end all calls first")
            }
            SwitchRefused::Busy => f.write_str("another thread is switching the stack: wait for it"),
            SwitchRefused::TooOften => write!(f, "a stack is switched {MOST_SWITCHES} times at most: build a new one"),
        }
    }
}

impl std::error::Error for SwitchRefused {}

impl From<NotAtRest> for SwitchRefused {
    fn from(NotAtRest: NotAtRest) -> Self {
        SwitchRefused::NotAtRest
    }
}

impl From<TooManyVersions> for SwitchRefused {
    fn from(_: TooManyVersions) -> Self {
        SwitchRefused::TooOften
    }
}

impl<P: Platform> Stack<P> {
    /// Goes on under another architecture, at rest: see the head of this file. Returns where the PCBs of the connections lay in
    /// between, by key.
    ///
    /// # Errors
    /// See [`SwitchRefused`]; nothing has changed then.
    pub fn switch(&self, plan: Plan) -> Result<HashMap<Key, usize>, SwitchRefused> {
        let core = &*self.core;
        if core.shared.lock_kind == LockKind::Null && !plan.properties().single_thread {
            return Err(SwitchRefused::NullLock(plan));
        }
        if core.switching.swap(true, Ordering::AcqRel) {
            return Err(SwitchRefused::Busy);
        }
        let result = self.switch_alone(plan);
        core.switching.store(false, Ordering::Release);
        result
    }

    fn switch_alone(&self, plan: Plan) -> Result<HashMap<Key, usize>, SwitchRefused> {
        let core = &*self.core;
        let old = core.running.get();
        if old.version >= MOST_SWITCHES {
            return Err(SwitchRefused::TooOften);
        }
        let mut contents = old.arch.dissolve()?;
        let places = contents.places();
        add_up(&contents, &core.shared.counters);
        let messages = std::mem::take(&mut contents.messages);
        let arch = select::build(plan, &core.shared, core.staffing, contents);
        let next = Running { arch, plan, version: old.version + 1 };
        core.running.update(|running| {
            *running = next;
            Ok::<_, SwitchRefused>(())
        })?;
        messages.into_iter().for_each(|message| self.deliver(message));
        core.shared.wake_drivers();
        Ok(places)
    }

    /// Runs what the old architecture had queued.
    fn deliver(&self, message: Message<P>) {
        let Stack { core } = self;
        let (arch, now) = (self.arch(), core.shared.clock.now());
        match message {
            Message::Ingress(mut ingress) => {
                let mut after = After::default();
                arch.post(&mut ingress, now, &mut after);
                after.perform(&core.shared);
                arch.end_of_batch(&mut after);
            }
            Message::Call(target, mut call, asker) => {
                let mut reply = Reply::Gone;
                arch.call(&target, &mut call, &mut reply);
                asker.answer(reply);
            }
            Message::Udp(mut call, asker) => asker.answer(Reply::Udp(Box::new(arch.udp(&mut call)))),
            Message::Control(change, asker) => {
                arch.control(change);
                asker.answer(Reply::Done);
            }
            Message::Census(asker) => asker.answer(Reply::Census(Box::new(arch.census()))),
        }
    }
}

/// What was counted in the cells of the old architecture counts on for the stack.
fn add_up<P: Platform>(contents: &Contents<P>, counters: &Counters) {
    for (counter, n) in contents.counted.counters() {
        counters.add(counter, n);
    }
    for (reason, n) in contents.counted.drops() {
        counters.drop_many(reason, n);
    }
}
