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
//! *By itself.* An architecture may ask to be built again from its own contents with another number of cells
//! ([`Book::number`](crate::arch::adaptive::policy::Book::number)). A driver does that in the same way as the last step of its turn
//! (`rebuild` in `exchange.rs`), but gives up after a millisecond if a thread is not at rest by then.
//!
//! Drivers read the slot ([`Running`](super::Running)) once per batch, callers at each call: one load. Code that is not inside may still
//! read an old architecture (a driver that computes how long it may sleep), so each is kept, without its contents,
//! until the stack ends, and there is a bound on switches.

use std::collections::HashMap;
use std::time::Duration;

use sync::slab::Key;
use sync::{LockKind, Platform};

use super::Stack;
use crate::arch::select::Architecture;
use crate::exchange::exchange;
pub use crate::exchange::{MOST_SWITCHES, SwitchRefused};
use crate::gate::CloseRefused;
use crate::place::Contents;
use crate::socket::Readiness;
use crate::socket::handler::in_handler;

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
        let (looked, had_channels) = exchange(shared, &core.running, &closing, arch, look)?;
        let pause = closing.lasted();
        drop(closing);
        had_channels.into_iter().for_each(|socket| socket.ready.raise(Readiness::READABLE));
        links.wake_drivers();
        Ok((pause, looked))
    }
}
