//! The ways into a cell: by whichever thread may use it, as a part of a call or an arrival ([`Cells::hold`] and its like), and by
//! the thread that owns it because it polls, which does not pass the gate ([`Cells::hold_as_owner`]). They differ in their record of
//! effects, because each call pays for the one that it makes.
//!
//! What may never happen: effects performed while the cell is held, or left in the record.

use observe::Time;
use sync::Platform;

use super::{Cells, Exclusion};
use crate::call::Call;
use crate::connections::Calls;
use crate::deferred::{DeferredEffects, LazyEffects, SendEffects};
use crate::flow::Target;
use crate::links::Links;
use crate::place::Cell;
use crate::socket::handler::in_handler;

impl<P: Platform, E: Exclusion<P>> Cells<P, E> {
    /// Whether the calling thread may be inside the cell already: it runs a handler, and the architecture does not find that out.
    #[inline(always)]
    pub(super) fn is_refused_here() -> bool {
        E::NESTS && in_handler::<P>()
    }

    /// Runs `f` in a cell, if the calling thread may use it, and performs the deferred effects.
    #[inline(always)]
    pub(super) fn hold<R>(
        &self,
        index: usize,
        f: impl FnOnce(&mut Cell<P>, &mut DeferredEffects<P>) -> R,
    ) -> Option<R> {
        let hub = &self.inner.hub;
        if Self::is_refused_here() {
            return None;
        }
        let mut deferred = DeferredEffects::default();
        self.inner.cells[index].await_turn();
        let result = self.inner.cells[index].enter(hub, |cell| f(cell, &mut deferred));
        deferred.flush(hub.shared.links());
        if deferred.is_plain() {
            std::mem::forget(deferred);
        }
        result
    }

    /// [`Cells::hold`] for work that rarely has effects.
    #[inline(always)]
    pub(super) fn hold_briefly<R>(
        &self,
        index: usize,
        f: impl FnOnce(&mut Cell<P>, &mut LazyEffects<'_, P>) -> R,
    ) -> Option<R> {
        let hub = &self.inner.hub;
        if Self::is_refused_here() {
            return None;
        }
        let mut effects = LazyEffects::none();
        self.inner.cells[index].await_turn();
        let result = self.inner.cells[index].enter(hub, |cell| f(cell, &mut effects));
        effects.flush(hub.shared.links());
        result
    }

    /// The same for a send, which gives frames to a device and rarely has other effects.
    #[inline(always)]
    pub(super) fn hold_to_send<R>(
        &self,
        index: usize,
        f: impl FnOnce(&mut Cell<P>, &mut SendEffects<P>) -> R,
    ) -> Option<R> {
        let hub = &self.inner.hub;
        if Self::is_refused_here() {
            return None;
        }
        let mut effects = SendEffects::none();
        self.inner.cells[index].await_turn();
        let result = self.inner.cells[index].enter(hub, |cell| f(cell, &mut effects));
        if effects.is_plain() {
            std::mem::forget(effects);
        } else {
            effects.flush(hub.shared.links());
        }
        result
    }

    /// Performs the effects of a call that has not passed the gate. Users may be notified: they find the calling thread inside
    /// the stack, as in any other call.
    #[cold]
    #[inline(never)]
    pub(super) fn perform_as_owner(&self, perform: impl FnOnce(&Links<P>)) {
        let shared = &self.inner.hub.shared;
        let _inside = shared.gate().always();
        perform(shared.links());
    }

    /// SEND of more than a short piece by the thread that owns the cell, as [`RunningArchitecture::send_as_owner`](crate::arch::RunningArchitecture::send_as_owner).
    #[inline(never)]
    pub(super) fn send_much_as_owner(
        &self,
        target: &Target,
        send: &mut tcp::Send,
    ) -> Option<Option<Result<u32, tcp::Error>>> {
        let clock = self.inner.hub.shared.clock();
        self.hold_as_owner(self.home(target.hash), |cell, deferred| cell.send(target.key, send, clock.now(), deferred))
    }

    /// The time of a call on a connection in cell `index`.
    #[inline(always)]
    pub(super) fn time_of(&self, index: usize, call: &Call<P>) -> Time {
        let clock = self.inner.hub.shared.clock();
        match call {
            // Reading starts no timer and measures nothing.
            Call::Receive(_) if self.inner.cells[index].has_batch_time() => clock.batch_now(),
            _ => clock.now(),
        }
    }

    /// [`Cells::hold`] by the thread that owns cell `index`, as [`RunningArchitecture::send_as_owner`](crate::arch::RunningArchitecture::send_as_owner).
    #[inline(always)]
    pub(super) fn hold_as_owner<R>(
        &self,
        index: usize,
        f: impl FnOnce(&mut Cell<P>, &mut DeferredEffects<P>) -> R,
    ) -> Option<R> {
        let cells = &self.inner.cells;
        if !E::POLLED || Self::is_refused_here() {
            return None;
        }
        let mut deferred = DeferredEffects::default();
        let answer = cells[index].enter_mine(|cell| f(cell, &mut deferred));
        if deferred.has_effects() {
            self.perform_as_owner(|links| deferred.flush(links));
        }
        if deferred.is_plain() {
            std::mem::forget(deferred);
        }
        answer
    }
}
