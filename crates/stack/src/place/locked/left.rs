//! Connections that threads own in turn ([`LockPlan::Backlog`](super::LockPlan)): the events left for an owner, their
//! limit, and their processing by the owner.
//!
//! Called by [`Locked`](super::Locked) before an event that no caller waits for, and after each event. What may never
//! happen: effects are performed while the connection is owned, because performing them may run an event on it.

use std::sync::Arc;

use observe::{DropReason, Time};
use sync::slab::Detached;
use sync::{Atomic, Ordering, Platform};
use tcp::{Disposition, TcpEvent};

use super::super::connection::Connection;
use super::super::pcb::{Admittance, Backlogged, Ownership, SharedPcb};
use super::super::{Effects, Place, UnawaitedEvent};
use super::{Locked, LockedConnection};
use crate::call::ArrivingSegment;
use crate::charge;
use crate::connections::{Arrivals, Events, HandledConnections};
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

/// The rest of the work for an event that was left, once the connection is free.
struct Remains {
    at: Time,
    effects: Option<Effects>,
    recycled: Option<Box<tcp::Segment>>,
    was_timer: bool,
}

impl<P: Platform> Locked<P> {
    /// Whether the calling thread runs the event. False: the thread that uses the connection does, or there was no
    /// room.
    pub(super) fn admit(&self, connection: &LockedConnection<P>, event: UnawaitedEvent<'_>, now: Time) -> bool {
        let SharedPcb::Owned(owned) = &connection.pcb else { return true };
        let cost = match &event {
            UnawaitedEvent::Segment(segment) => segment.as_ref().map_or(0, |segment| segment.data.len() + OVERHEAD),
            UnawaitedEvent::TransmitReady | UnawaitedEvent::Timeouts => 0,
        };
        let most = self.shared.control().tcp().receive_buffer.max as usize + ROOM_BESIDE_THE_BUFFER;
        let mut event = Some(event);
        let admitted = owned.admit(cost, most, || {
            let kind = match event.take() {
                Some(UnawaitedEvent::Segment(segment)) => LeftKind::Segment(segment.take()),
                Some(UnawaitedEvent::Timeouts) => LeftKind::Timeouts,
                Some(UnawaitedEvent::TransmitReady) | None => LeftKind::TransmitReady,
            };
            let left = LeftEvent { at: now, kind };
            charge::left::<P, _>(&left, true);
            self.left.fetch_add(1, Ordering::AcqRel);
            left
        });
        match admitted {
            Admittance::Owner => true,
            Admittance::Left => {
                sync::walk::note(file!(), "leaves it in the connection's backlog");
                false
            }
            Admittance::Full => {
                self.counters.here().count_drop(DropReason::TcpBacklogFull);
                if let Some(UnawaitedEvent::Segment(segment)) = event {
                    drop(segment.take());
                }
                false
            }
        }
    }

    /// Whether no event is left for the owner of its connection.
    pub(crate) fn is_quiescent(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// The calling thread has run its event: it runs the events left meanwhile, releases the connection, and performs
    /// the effects.
    #[inline(always)]
    pub(super) fn let_go(
        &self,
        connection: &Arc<LockedConnection<P>>,
        owner: ConnectionOwnership<'_, P>,
        deferred: &mut DeferredEffects<P>,
    ) {
        if let Some((left, owner)) = owner.next_left() {
            self.drain(connection, left, owner, deferred);
        }
    }

    #[cold]
    fn drain(
        &self,
        connection: &Arc<LockedConnection<P>>,
        mut left: LeftEvent,
        mut owner: ConnectionOwnership<'_, P>,
        deferred: &mut DeferredEffects<P>,
    ) {
        let (mut place, mut remains) = (self, Vec::new());
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
        for Remains { at, effects, recycled, was_timer } in remains {
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
    }

    fn run_left(
        &self,
        connection: &Arc<LockedConnection<P>>,
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
        connection: &Arc<LockedConnection<P>>,
        owner: &mut ConnectionOwnership<'_, P>,
        event: E,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> (E::Reply, Option<Effects>) {
        self.run_under(connection, (None, Some(owner)), event, now, deferred)
    }
}
