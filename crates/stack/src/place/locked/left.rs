//! Connections that threads own in turn ([`LockPlan::Backlog`](super::LockPlan)): the events left for an owner, their
//! limit, and their processing by the owner.
//!
//! Called by [`Locked`](super::Locked) before an event that no caller waits for, and after each event. What may never
//! happen: effects are performed while the connection is owned, because performing them may run an event on it.

use observe::{DropReason, Time};
use sync::slab::Detached;
use sync::{Atomic, Ordering, Platform};
use tcp::{Disposition, TcpEvent};

use super::super::connection::Connection;
use super::super::pcb::{Admittance, Backlogged, Ownership, SharedPcb};
use super::{ConnectionRef, Locked};
use crate::call::ArrivingSegment;
use crate::charge;
use crate::connections::{Arrivals, Effects, Events, HandledConnections, Place, UnawaitedEvent};
use crate::deferred::DeferredEffects;

/// Room in a backlog beyond the largest receive buffer, in bytes: acknowledgements, and segments out of order (Linux:
/// `LIMIT_MIN_OVERHEAD`, 64 KiB).
const ROOM_BESIDE_THE_BUFFER: usize = 64 << 10;
/// Cost of a segment besides its data, in bytes, so that segments without data are bounded, too.
const OVERHEAD: usize = 256;

/// An event that was left for the owner of its connection, and when it arrived.
pub struct LeftEvent {
    at: Time,
    kind: LeftKind,
}

enum LeftKind {
    Segment(Option<tcp::Segment>),
    TransmitReady,
    Timeouts,
}

/// A connection that threads own in turn.
pub type OwnedConnection<P> = Backlogged<Detached<Connection<P>, P>, LeftEvent, P>;
/// The calling thread's ownership of one.
pub(super) type ConnectionOwnership<'a, P> = Ownership<'a, Detached<Connection<P>, P>, LeftEvent, P>;

impl LeftEvent {
    /// What it counts for in the backlog: see [`cost`].
    pub(super) fn cost(&self) -> usize {
        match &self.kind {
            LeftKind::Segment(segment) => segment_cost(segment.as_ref()),
            LeftKind::TransmitReady | LeftKind::Timeouts => 0,
        }
    }

    /// When it arrived.
    pub(super) fn at(&self) -> Time {
        self.at
    }
}

/// What an event counts for in a backlog, in bytes.
#[inline]
pub(super) fn cost(event: &UnawaitedEvent<'_>) -> usize {
    match event {
        UnawaitedEvent::Segment(segment) => segment_cost(segment.as_ref()),
        UnawaitedEvent::TransmitReady | UnawaitedEvent::Timeouts => 0,
    }
}

#[inline]
fn segment_cost(segment: Option<&tcp::Segment>) -> usize {
    segment.map_or(0, |segment| segment.data.len() + OVERHEAD)
}

/// The rest of the work for an event that was left, once the connection is free; or while its processor owns it.
pub(super) struct Remains {
    at: Time,
    effects: Option<Effects>,
    recycled: Option<Box<tcp::Segment>>,
    was_timer: bool,
}

impl<P: Platform, R: ConnectionRef<P>> Locked<P, R> {
    /// Whether the calling thread runs the event. False: the thread that uses the connection does, or there was no
    /// room.
    pub(super) fn admit(&self, connection: &R, event: UnawaitedEvent<'_>, now: Time) -> bool {
        let SharedPcb::Owned(owned) = &connection.pcb else { return true };
        if let Some(processors) = &self.processors {
            self.leave_for_processor((connection, owned), &**processors, event, now);
            return false;
        }
        let (cost, most, mut event) = (cost(&event), self.most_left(), Some(event));
        match owned.admit(cost, most, || self.left(&mut event, now)) {
            Admittance::Owner => true,
            Admittance::Left => {
                sync::walk::note(file!(), "leaves it in the connection's backlog");
                false
            }
            Admittance::Full => {
                self.drop_event(event);
                false
            }
        }
    }

    /// The most that may be left for a connection, in bytes.
    #[inline]
    pub(super) fn most_left(&self) -> usize {
        self.shared.control().tcp().receive_buffer.max as usize + ROOM_BESIDE_THE_BUFFER
    }

    /// An event as it is left. It is taken.
    pub(super) fn left(&self, event: &mut Option<UnawaitedEvent<'_>>, now: Time) -> LeftEvent {
        let kind = match event.take() {
            Some(UnawaitedEvent::Segment(segment)) => LeftKind::Segment(segment.take()),
            Some(UnawaitedEvent::Timeouts) => LeftKind::Timeouts,
            Some(UnawaitedEvent::TransmitReady) | None => LeftKind::TransmitReady,
        };
        let left = LeftEvent { at: now, kind };
        charge::left::<P, _>(&left, true);
        self.left.fetch_add(1, Ordering::AcqRel);
        left
    }

    /// There was no room for an event.
    pub(super) fn drop_event(&self, event: Option<UnawaitedEvent<'_>>) {
        self.counters.here().count_drop(DropReason::TcpBacklogFull);
        if let Some(UnawaitedEvent::Segment(segment)) = event {
            drop(segment.take());
        }
    }

    /// Whether no event is left for the owner of its connection.
    pub(crate) fn is_quiescent(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// The calling thread has run its event: it runs the events left meanwhile, releases the connection, and performs
    /// the effects.
    #[inline(always)]
    pub(super) fn let_go(&self, connection: &R, owner: ConnectionOwnership<'_, P>, deferred: &mut DeferredEffects<P>) {
        if let Some((left, owner)) = owner.next_left() {
            self.drain(connection, left, owner, deferred);
        }
    }

    #[cold]
    fn drain(
        &self,
        connection: &R,
        mut left: LeftEvent,
        mut owner: ConnectionOwnership<'_, P>,
        deferred: &mut DeferredEffects<P>,
    ) {
        let mut remains = Vec::new();
        loop {
            charge::left::<P, _>(&left, false);
            sync::walk::note(file!(), "the owner takes what was left for it");
            remains.push(self.run_left(connection, left, &mut owner, deferred));
            self.left.fetch_sub(1, Ordering::AcqRel);
            match owner.next_left() {
                Some(next) => (left, owner) = next,
                None => break,
            }
        }
        remains.into_iter().for_each(|remains| self.settle_left(connection, remains, deferred));
    }

    /// Does the rest of the work for an event that was left.
    pub(super) fn settle_left(
        &self,
        connection: &R,
        Remains { at, effects, recycled, was_timer }: Remains,
        deferred: &mut DeferredEffects<P>,
    ) {
        let mut place = self;
        if let Some(effects) = effects {
            place.settle(connection, effects, at, deferred);
        }
        if let Some(segment) = recycled {
            let arrival = ArrivingSegment { hash: connection.flow.hash, segment: Some(*segment) };
            place.recycled(arrival, at, deferred);
        }
        if was_timer && place.has_handler_timer(connection) {
            place.call_handler(connection, at, deferred);
        }
    }

    /// Runs an event that was left.
    pub(super) fn run_left(
        &self,
        connection: &R,
        LeftEvent { at, kind }: LeftEvent,
        owner: &mut ConnectionOwnership<'_, P>,
        deferred: &mut DeferredEffects<P>,
    ) -> Remains {
        let was_timer = matches!(kind, LeftKind::Timeouts);
        let (effects, recycled) = match kind {
            LeftKind::Segment(mut segment) => {
                let event = tcp::SegmentArrives(&mut segment);
                let (disposition, effects) = self.run_owned(connection, owner, event, at, deferred);
                match disposition {
                    Disposition::Recycled(segment) => (effects, Some(segment)),
                    _ => (effects, None),
                }
            }
            LeftKind::TransmitReady => (self.run_owned(connection, owner, tcp::TransmitReady, at, deferred).1, None),
            LeftKind::Timeouts => (self.run_owned(connection, owner, tcp::Timeouts, at, deferred).1, None),
        };
        Remains { at, effects, recycled, was_timer }
    }

    fn run_owned<E: TcpEvent>(
        &self,
        connection: &R,
        owner: &mut ConnectionOwnership<'_, P>,
        event: E,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> (E::Reply, Option<Effects>) {
        self.run_under(connection, (None, Some(owner)), event, now, deferred)
    }
}
