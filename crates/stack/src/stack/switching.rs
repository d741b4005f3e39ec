//! Switches a stack in use to another process architecture: the old one is dissolved, and the new one is built from
//! its contents.
//!
//! *In use.* Threads that use the stack wait at the [gate](crate::gate) meanwhile, and no call fails. First new callers
//! wait outside, and the drivers and the architecture's own threads complete the calls inside; then drivers give up
//! their cells and wait; then the architecture's own threads end, and the state moves. The new architecture runs
//! messages that were sent and not run yet, before any other thread enters it.
//!
//! *What remains.* Connections stay in place, and their users' names for them remain valid. Listeners, datagram sockets
//! with their queues, half-open connections, timers, handlers and counters move to the new architecture. Routes,
//! neighbours, fragments, echo requests and sockets' readiness belong to none, and stay as they are. Only channels end
//! ([`crate::socket::channel`]): their users make calls from then on, and are woken to check for data.
//!
//! *Refusal.* An impossible switch is refused, and nothing has changed then: see [`SwitchRefused`].
//!
//! Drivers read the slot ([`Running`]) once per batch, callers at each call: one load. Code that is not inside may still
//! read an old architecture (a driver that computes how long it may sleep), so each is kept, without its contents,
//! until the stack ends, and there is a bound on switches.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use observe::Counters;
use sync::slab::Key;
use sync::{LockKind, Platform, TooManyVersions};

use super::Stack;
use crate::arch::running::Running;
use crate::arch::select::{self, Architecture};
use crate::call::Reply;
use crate::deferred::DeferredEffects;
use crate::gate::CloseRefused;
use crate::handoff::CellMessage;
use crate::place::Contents;
use crate::socket::Readiness;
use crate::socket::handler::in_handler;

/// The most switches of one stack: each leaves some kilobytes for each cell of the old architecture.
pub const MOST_SWITCHES: u32 = 1024;

/// Why a stack keeps its architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwitchRefused {
    /// Its locks never wait, but the other architecture shares them between threads.
    NullLock(Architecture),
    /// A thread that polls a driver by itself owns a cell, and has neither polled nor rested within some seconds; or a
    /// call did not end, because its owner does not poll.
    NotAtRest,
    /// Another thread is switching.
    Busy,
    /// The calling thread is inside the stack: it runs a handler, or a notification of readiness.
    Inside,
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
            SwitchRefused::NotAtRest => f.write_str(
                "a thread that polls a driver of the stack owns it and does not poll: poll on that thread, or let its driver rest",
            ),
            SwitchRefused::Busy => f.write_str("another thread is switching the stack: wait for it"),
            SwitchRefused::Inside => {
                f.write_str("a handler or a notification runs inside the stack: switch it from another thread")
            }
            SwitchRefused::TooOften => write!(f, "a stack is switched {MOST_SWITCHES} times at most: build a new one"),
        }
    }
}

impl std::error::Error for SwitchRefused {}

impl From<TooManyVersions> for SwitchRefused {
    fn from(_: TooManyVersions) -> Self {
        SwitchRefused::TooOften
    }
}

impl<P: Platform> Stack<P> {
    /// Switches to another architecture while the stack is used: see the head of this file. Returns the longest time
    /// that a caller may have waited. May be called by any thread that is not inside the stack, and waits for the
    /// drivers' threads.
    ///
    /// # Errors
    /// See [`SwitchRefused`]; nothing has changed then.
    pub fn set_architecture(&self, arch: Architecture) -> Result<Duration, SwitchRefused> {
        self.switch_and(arch, |_| ()).map(|(pause, ())| pause)
    }

    /// The same; returns the addresses of the connections' PCBs during the switch, by key. For tests: they do not move.
    ///
    /// # Errors
    /// See [`SwitchRefused`].
    pub fn switch(&self, arch: Architecture) -> Result<HashMap<Key, usize>, SwitchRefused> {
        self.switch_and(arch, Contents::places).map(|(_, places)| places)
    }

    fn switch_and<R>(
        &self,
        arch: Architecture,
        look: impl FnOnce(&Contents<P>) -> R,
    ) -> Result<(Duration, R), SwitchRefused> {
        let core = &*self.core;
        let (shared, links) = (&core.shared, core.shared.links());
        let excludes = shared.lock_kind != LockKind::Null || P::null_lock_excludes();
        if !excludes && !arch.properties().single_thread {
            return Err(SwitchRefused::NullLock(arch));
        }
        if in_handler::<P>() {
            return Err(SwitchRefused::Inside);
        }
        let closing = shared.gate().close().map_err(|refused| match refused {
            CloseRefused::Busy => SwitchRefused::Busy,
            CloseRefused::Inside => SwitchRefused::Inside,
        })?;
        let old = core.running.get();
        if old.version >= MOST_SWITCHES {
            return Err(SwitchRefused::TooOften);
        }
        let drained = closing.drain(|| {
            old.active.tick(shared.clock().now());
            old.active.retire();
        });
        if !drained {
            return Err(SwitchRefused::NotAtRest);
        }
        let dissolved = closing.rest(|| links.wake_drivers(), || old.active.dissolve().ok());
        let mut contents = dissolved.ok_or(SwitchRefused::NotAtRest)?;
        let looked = look(&contents);
        add_up(&contents, &shared.counters);
        let messages = std::mem::take(&mut contents.messages);
        let had_channels = std::mem::take(&mut contents.had_channels);
        let active = select::build(arch, shared, core.thread_config, Box::new(contents));
        let next = Running::new(active, arch, old.version + 1);
        core.running.update(|running| {
            *running = next;
            Ok::<_, SwitchRefused>(())
        })?;
        messages.into_iter().for_each(|message| self.deliver(message));
        let pause = closing.lasted();
        drop(closing);
        had_channels.into_iter().for_each(|socket| socket.ready.raise(Readiness::READABLE));
        links.wake_drivers();
        Ok((pause, looked))
    }

    /// Runs a message that the old architecture had queued. The calling thread passes the gate.
    fn deliver(&self, message: CellMessage<P>) {
        let Stack { core } = self;
        let (active, now) = (&*core.running.get().active, core.shared.clock().now());
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
