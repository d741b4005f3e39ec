//! Switches a running stack to another process architecture: the old one is dissolved, and the new one is built from
//! its contents.
//!
//! *At rest.* No driver polls and no call is in progress while [`Stack::switch`] runs; drivers have rested
//! ([`Driver::rest`](crate::Driver::rest)) or are the calling thread's. A call that violates this is memory-safe but
//! fails: it finds its connection gone. An architecture that detects that it is not at rest refuses, and continues.
//!
//! *What remains.* Connections stay in place, and their users' names for them remain valid. Listeners, datagram sockets
//! with their queues, half-open connections, timers and counters move to the new architecture, which runs the queued
//! messages in order.
//!
//! Drivers read the slot ([`Running`]) once per batch, callers at each call: one load. So an old architecture is kept,
//! without its contents, until the stack ends, and there is a bound on switches.

use std::collections::HashMap;
use std::fmt;

use observe::Counters;
use sync::slab::Key;
use sync::{Atomic, LockKind, Ordering, Platform, TooManyVersions};

use super::Stack;
use crate::arch::NotAtRest;
use crate::arch::running::Running;
use crate::arch::select::{self, Architecture};
use crate::call::Reply;
use crate::deferred::DeferredEffects;
use crate::handoff::CellMessage;
use crate::place::Contents;

/// The most switches of one stack: each leaves some kilobytes for each cell of the old architecture.
pub const MOST_SWITCHES: u32 = 1024;

/// Why a stack keeps its architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchRefused {
    /// Its locks never wait, but the other architecture shares them between threads.
    NullLock(Architecture),
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
            SwitchRefused::NullLock(arch) => {
                write!(
                    f,
                    "the null lock does not exclude other threads, and {arch} shares its locks: build the stack with another kind of lock"
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
    /// Switches to another architecture, at rest: see the head of this file. Returns the addresses of the connections'
    /// PCBs during the switch, by key.
    ///
    /// # Errors
    /// See [`SwitchRefused`]; nothing has changed then.
    pub fn switch(&self, arch: Architecture) -> Result<HashMap<Key, usize>, SwitchRefused> {
        let core = &*self.core;
        let excludes = core.shared.lock_kind != LockKind::Null || P::null_lock_excludes();
        if !excludes && !arch.properties().single_thread {
            return Err(SwitchRefused::NullLock(arch));
        }
        if core.switching.swap(true, Ordering::AcqRel) {
            return Err(SwitchRefused::Busy);
        }
        let result = self.switch_alone(arch);
        core.switching.store(false, Ordering::Release);
        result
    }

    fn switch_alone(&self, arch: Architecture) -> Result<HashMap<Key, usize>, SwitchRefused> {
        let core = &*self.core;
        let old = core.running.get();
        if old.version >= MOST_SWITCHES {
            return Err(SwitchRefused::TooOften);
        }
        let mut contents = old.active.dissolve()?;
        let places = contents.places();
        add_up(&contents, &core.shared.counters);
        let messages = std::mem::take(&mut contents.messages);
        let active = select::build(arch, &core.shared, core.staffing, Box::new(contents));
        let next = Running { active, arch, version: old.version + 1 };
        core.running.update(|running| {
            *running = next;
            Ok::<_, SwitchRefused>(())
        })?;
        messages.into_iter().for_each(|message| self.deliver(message));
        core.shared.links().wake_drivers();
        Ok(places)
    }

    /// Runs a message that the old architecture had queued.
    fn deliver(&self, message: CellMessage<P>) {
        let Stack { core } = self;
        let (active, now) = (self.active(), core.shared.clock().now());
        match message {
            CellMessage::Ingress(mut ingress) => {
                let mut deferred = DeferredEffects::default();
                active.post(&mut ingress, now, &mut deferred);
                deferred.flush(core.shared.links());
                active.end_of_batch(&mut deferred);
            }
            CellMessage::Call(target, mut call, asker) => {
                let mut reply = Reply::Gone;
                active.call(&target, &mut call, &mut reply);
                asker.answer(reply);
            }
            // Channels end with the architecture that has owners.
            CellMessage::Attach(..) | CellMessage::Continue(_) => {}
            CellMessage::Udp(mut call, asker) => asker.answer(Reply::Udp(Box::new(active.udp(&mut call)))),
            CellMessage::Control(change, asker) => {
                active.control(change);
                asker.answer(Reply::Done);
            }
            CellMessage::Job(job, asker) => {
                let (mut job, mut reply) = (Some(job), Reply::Gone);
                active.use_tables(&mut || {
                    if let Some(job) = job.take() {
                        reply = Reply::Job(job());
                    }
                });
                asker.answer(job.map_or(reply, |job| active.ask_tables(job)));
            }
            CellMessage::StackStats(asker) => asker.answer(Reply::StackStats(Box::new(active.stats()))),
        }
    }
}

/// Adds the counters of the old architecture's cells to those of the stack.
fn add_up<P: Platform>(contents: &Contents<P>, counters: &Counters) {
    for (counter, n) in contents.counted.counters() {
        counters.add(counter, n);
    }
    for (reason, n) in contents.counted.drops() {
        counters.count_drops(reason, n);
    }
}
