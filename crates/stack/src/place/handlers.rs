//! The handlers of a cell's connections, and how one is run inside: between the event and the emission of its segments,
//! with the same outbox.

use observe::{Counters, Time};
use pktbuf::PktBuf;
use sync::Platform;
use tcp::{Outbox, Pcb, Readiness, TcpEvent};

use super::trim_slots;
use crate::attempt::{Panic, attempt};
use crate::deferred::DeferredEffects;
use crate::flow::Flow;
use crate::shared::Shared;
use crate::socket::handler::{HandlerState, Post, RunsEvents};

/// See the module documentation.
pub(super) struct Handlers<P: Platform> {
    by_slot: Vec<Option<Box<HandlerState<P>>>>,
}

impl<P: Platform> Handlers<P> {
    /// None.
    pub(super) fn new() -> Self {
        Handlers { by_slot: Vec::new() }
    }

    pub(super) fn put(&mut self, slot: u32, handler: Box<HandlerState<P>>) {
        let slot = slot as usize;
        if self.by_slot.len() <= slot {
            self.by_slot.resize_with(slot + 1, || None);
        }
        self.by_slot[slot] = Some(handler);
    }

    pub(super) fn take(&mut self, slot: u32) -> Option<Box<HandlerState<P>>> {
        self.by_slot.get_mut(slot as usize)?.take()
    }

    /// Whether this connection has one.
    pub(super) fn has(&self, slot: u32) -> bool {
        self.by_slot.get(slot as usize).is_some_and(Option::is_some)
    }

    /// Whether this connection has one that takes data at once ([`HandlerState::takes_at_once`]).
    #[inline(always)]
    pub(super) fn take_at_once(&self, slot: u32) -> bool {
        matches!(self.by_slot.get(slot as usize), Some(Some(handler)) if handler.takes_at_once())
    }

    /// When the handler of this connection set its timer to.
    #[inline]
    pub(super) fn deadline(&self, slot: u32) -> Option<Time> {
        self.by_slot.get(slot as usize)?.as_ref()?.deadline()
    }

    /// Gives back the memory that a peak has left behind.
    pub(super) fn trim(&mut self) {
        trim_slots(&mut self.by_slot);
    }

    /// [`Handlers::run`], after an event that is mostly not for a handler.
    #[cold]
    #[inline(never)]
    pub(super) fn run_rarely(
        &mut self,
        slot: u32,
        held: (&Flow, &mut Pcb, &mut Outbox<'_>),
        around: (&Shared<P>, Time),
        deferred: &mut DeferredEffects<P>,
    ) {
        self.run(slot, held, around, deferred);
    }

    /// Calls the handler of the connection in `slot`, if it has one still, for the bits that the event has put into
    /// `out`. Data that the handler sends is added to `out`.
    #[inline(always)]
    pub(super) fn run(
        &mut self,
        slot: u32,
        (flow, pcb, out): (&Flow, &mut Pcb, &mut Outbox<'_>),
        around: (&Shared<P>, Time),
        deferred: &mut DeferredEffects<P>,
    ) {
        let bits = std::mem::replace(&mut out.ready, Readiness::NONE);
        let Some(Some(handler)) = self.by_slot.get_mut(slot as usize) else { return };
        let (mut posts, now) = (Vec::new(), around.1);
        let ran = attempt(|| handler.run(&mut Inside { pcb: &mut *pcb, out: &mut *out, now }, bits, &mut posts));
        self.conclude(slot, (flow, pcb, out), (ran, posts), around, deferred);
    }

    /// Calls the handler of the connection in `slot` for data that it has taken as it arrived, and then, as [`Handlers::run`] does,
    /// for the bits in `out`: [`Handlers::take_at_once`] holds.
    #[inline(always)]
    pub(super) fn hand_on(
        &mut self,
        slot: u32,
        (flow, pcb, out): (&Flow, &mut Pcb, &mut Outbox<'_>),
        data: PktBuf,
        (shared, now): (&Shared<P>, Time),
        deferred: &mut DeferredEffects<P>,
    ) {
        let Some(Some(handler)) = self.by_slot.get_mut(slot as usize) else { return };
        let mut posts = Vec::new();
        let ran = attempt(|| handler.receive(&mut Inside { pcb: &mut *pcb, out: &mut *out, now }, data, &mut posts));
        self.conclude(slot, (flow, pcb, out), (ran, posts), (shared, now), deferred);
    }

    /// The handler of the connection in `slot` was called, and has left these posts.
    #[inline(always)]
    fn conclude(
        &mut self,
        slot: u32,
        (flow, pcb, out): (&Flow, &mut Pcb, &mut Outbox<'_>),
        (ran, posts): (Result<(), Panic>, Vec<Post<P>>),
        (shared, now): (&Shared<P>, Time),
        deferred: &mut DeferredEffects<P>,
    ) {
        if posts.capacity() == 0 {
            // Dropping it would be a call that does nothing.
            std::mem::forget(posts);
        } else {
            deferred.post(posts);
        }
        let Some(place) = self.by_slot.get_mut(slot as usize) else { return };
        let Some(handler) = place else { return };
        if let Err(panic) = ran {
            handler.give_up();
            shared.failures.note_handler(panic, flow.tuple, out.counters);
            tcp::Abort.run(pcb, out, now);
        }
        out.ready = Readiness::NONE;
        if handler.is_over() {
            place.take().into_iter().for_each(|handler| deferred.dispose(handler));
        } else if let Some(deadline) = handler.deadline() {
            out.deadline = Some(out.deadline.map_or(deadline, |other| other.min(deadline)));
        }
    }
}

/// A connection of a cell, in the middle of one of its events.
struct Inside<'a, 'c> {
    pcb: &'a mut Pcb,
    out: &'a mut Outbox<'c>,
    now: Time,
}

impl RunsEvents for Inside<'_, '_> {
    const HOLDS: bool = true;

    #[inline(always)]
    fn run<E: TcpEvent>(&mut self, event: E) -> Option<E::Reply> {
        Some(event.run(self.pcb, self.out, self.now))
    }

    fn raised(&mut self) -> Readiness {
        std::mem::replace(&mut self.out.ready, Readiness::NONE)
    }

    fn now(&self) -> Time {
        self.now
    }
}

/// A connection that was taken from its handler by a panic of the stack.
pub(super) struct Gone(pub(super) Time);

impl RunsEvents for Gone {
    const HOLDS: bool = false;

    fn run<E: TcpEvent>(&mut self, _: E) -> Option<E::Reply> {
        None
    }

    fn raised(&mut self) -> Readiness {
        Readiness::NONE
    }

    fn now(&self) -> Time {
        self.0
    }
}

/// The last callback of a handler whose connection was ended by a panic of the stack.
#[cold]
pub(super) fn abort<P: Platform>(
    mut handler: Box<HandlerState<P>>,
    (shared, flow, counters): (&Shared<P>, &Flow, &Counters),
    now: Time,
    deferred: &mut DeferredEffects<P>,
) {
    let mut posts = Vec::new();
    if let Err(panic) = attempt(|| handler.run_aborted(&mut Gone(now), &mut posts)) {
        shared.failures.note_handler(panic, flow.tuple, counters);
    }
    deferred.post(posts);
    deferred.dispose(handler);
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;

    #[test]
    fn handlers_that_are_gone_leave_no_memory() {
        let mut handlers = Handlers::<Real> { by_slot: (0..1000).map(|_| None).collect() };
        handlers.trim();
        assert_eq!(handlers.by_slot.capacity(), 0);
    }
}
