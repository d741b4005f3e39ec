//! Connections that several threads may enter: the six parts of a PCB behind one, two or six locks.
//!
//! Or a thread owns the connection as long as an event runs, and others leave their events in its backlog
//! ([`backlog`]).
//!
//! A [`SharedPcb`] keeps the parts. A guard ([`halves::HalvesGuard`], [`six::SixGuard`]) is one thread's access to
//! them, and implements `tcp::PcbAccess`. With one lock (TCP-1 of Nahum et al.) it is held for the whole event: the
//! *whole* driver. With two (TCP-2) or six (TCP-6) each lock is taken when TCP requests a hold-set, always in the
//! canonical order, and released when the hold-set ends: the *staged* driver. Segments made in a hold-set are given to
//! the device before its guards drop, so their order on the wire is the order in which they were assigned (G7).

pub mod backlog;
pub mod halves;
pub mod single;
pub mod six;

use sync::slab::{Detached, ReservedEntry};
use sync::{Atomic, LockKind, Ordering, Platform, RefCounting};
use tcp::pcb::{HeaderIn, HeaderOut, Reassembly, ReceiveWindow, RetransmitQueue, SendWindow};
use tcp::{Outbox, Pcb, PcbAccess, PcbMut};

use super::connection::Connection;
use super::locked::OwnedConnection;
use crate::deferred::DeferredEffects;
use crate::flow::Flow;
use crate::route_cache::RouteCache;
use crate::tx::Egress;

pub use backlog::{Admittance, Backlogged, LeftForProcessor, Ownership};
pub use halves::Halves;
pub use single::Single;
pub use six::Six;

/// The number of locks that guard one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockPlan {
    /// TCP-1: one lock, held for the whole event.
    One,
    /// TCP-2: receive side and send side.
    Two,
    /// TCP-6: one lock for each part.
    Six,
    /// One lock, of a backlog; the event runs without it ([`backlog`]).
    Backlog,
}

/// The locks of each connection in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionLocks {
    /// The number and the kind.
    pub plan: LockPlan,
    /// Their kind.
    pub kind: LockKind,
    /// How the holders of a connection are counted, where that is not `Arc`'s choice
    /// ([`ConnectionRef`](super::locked::ConnectionRef)).
    pub counting: RefCounting,
}

impl ConnectionLocks {
    /// These locks; `Arc` counts the holders.
    pub const fn new(plan: LockPlan, kind: LockKind) -> Self {
        ConnectionLocks { plan, kind, counting: RefCounting::Atomic }
    }
}

/// The parts of one connection behind their locks.
pub enum SharedPcb<P: Platform> {
    /// One lock; the connection is in the slab.
    Single(Single<P>),
    /// Two locks. The parts have been moved out of the slab, where the connection's slot is reserved for its key.
    Halves(Box<Halves<P>>, ReservedEntry<Connection<P>, P>),
    /// Six locks, the same.
    Six(Box<Six<P>>, ReservedEntry<Connection<P>, P>),
    /// One owner at a time; the connection is in the slab.
    Owned(Box<OwnedConnection<P>>),
}

impl<P: Platform> SharedPcb<P> {
    /// Puts a connection behind one lock, or gives it a backlog.
    pub fn whole(arch: LockPlan, kind: LockKind, connection: Detached<Connection<P>, P>) -> Self {
        match arch {
            LockPlan::Backlog => SharedPcb::Owned(Box::new(Backlogged::new(kind, connection))),
            _ => SharedPcb::Single(Single::new(kind, connection)),
        }
    }

    /// Puts the parts of a PCB behind two locks or six.
    pub fn apart(
        arch: LockPlan,
        kind: LockKind,
        pcb: Pcb,
        route: RouteCache,
        place: ReservedEntry<Connection<P>, P>,
    ) -> Self {
        match arch {
            LockPlan::Six => SharedPcb::Six(Box::new(Six::new(kind, pcb, route)), place),
            _ => SharedPcb::Halves(Box::new(Halves::new(kind, pcb, route)), place),
        }
    }
}

impl<P: Platform> SharedPcb<P> {
    /// The connection in its place in the slab, without locks. `whole` reassembles separated parts.
    pub fn into_whole(self, whole: impl FnOnce(Pcb, RouteCache) -> Connection<P>) -> Detached<Connection<P>, P> {
        let ((pcb, route), place) = match self {
            SharedPcb::Single(single) => return single.into_inner(),
            SharedPcb::Owned(owned) => return owned.into_inner(),
            SharedPcb::Halves(halves, place) => (halves.into_pcb(), place),
            SharedPcb::Six(six, place) => (six.into_pcb(), place),
        };
        place.fill(whole(pcb, route))
    }
}

/// Where the segments of one event go: the emission path of one flow.
pub struct EmitContext<'a, P: Platform> {
    /// The stack's transmit path.
    pub egress: &'a Egress<P>,
    /// The connection's flow.
    pub flow: &'a Flow,
    /// The port by which the connection's segments leave, for a thread that begins an event before it holds the route.
    pub leaves_by: &'a P::AtomicU32,
    /// The port for which the event's outbox was made.
    pub made_for: u16,
    /// The locks of the routing table and of the route are taken for each segment: `Routes::pass`.
    pub locks_routes: bool,
    /// Effects to perform once the guards are dropped.
    pub deferred: &'a mut DeferredEffects<P>,
}

impl<P: Platform> EmitContext<'_, P> {
    /// Gives the segments in `out` to the device. Phase *inside*: called while the guard that orders them is held.
    #[inline]
    pub fn emit(&mut self, route: &mut RouteCache, out: &mut Outbox<'_>) {
        if route.port() != self.made_for {
            // Another event has changed the route since: segments made for the other device are checked again.
            route.invalidate();
        }
        if self.locks_routes {
            out.segments.iter().for_each(|_| self.egress.routes().pass(self.flow.tuple.remote_addr));
        }
        self.egress.emit(self.flow, route, out, self.deferred);
        self.made_for = route.port();
        let port = u32::from(route.port());
        if self.leaves_by.load(Ordering::Relaxed) != port {
            self.leaves_by.store(port, Ordering::Relaxed);
        }
    }
}

/// A lock that is held beside the connection and released once the acknowledgement has been processed: the table lock
/// of the hand-over-hand policy.
pub trait HeldBeside {
    /// Lets go.
    fn release(&mut self);
    /// Whether it has not released it yet.
    fn is_held(&self) -> bool;
    /// The connection is held, and its earlier wake-ups are no longer needed ([`tcp::TableChange::replaces_wake_up`]).
    fn cancel_wake_up(&mut self) {}
}

/// A whole driver that releases a second lock as soon as the send side has been processed.
pub struct CoupledGuard<'a, 'p, H: HeldBeside> {
    /// The connection, exclusively held.
    pub pcb: &'p mut Pcb,
    /// The lock to be released.
    pub held: &'a mut H,
}

impl<H: HeldBeside> PcbAccess for CoupledGuard<'_, '_, H> {
    fn header_in<R>(&mut self, f: impl FnOnce(&mut HeaderIn) -> R) -> R {
        self.pcb.header_in(f)
    }

    fn receive_side<R>(&mut self, f: impl FnOnce(&mut ReceiveWindow, &mut Reassembly) -> R) -> R {
        self.pcb.receive_side(f)
    }

    fn send_side<R>(&mut self, f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue) -> R) -> R {
        let result = self.pcb.send_side(f);
        self.held.release();
        result
    }

    /// Not while the second lock must be released in the middle of the event.
    #[inline(always)]
    fn all(&mut self) -> Option<&mut Pcb> {
        (!self.held.is_held()).then_some(&mut *self.pcb)
    }

    fn transmit<R>(
        &mut self,
        out: &mut Outbox<'_>,
        f: impl FnOnce(&mut SendWindow, &mut RetransmitQueue, &mut HeaderOut, &mut Outbox<'_>) -> R,
    ) -> R {
        self.held.release();
        self.pcb.transmit(out, f)
    }

    fn whole<R>(&mut self, out: &mut Outbox<'_>, f: impl FnOnce(PcbMut<'_>, &mut Outbox<'_>) -> R) -> R {
        let result = self.pcb.whole(out, f);
        if out.table.replaces_wake_up() {
            self.held.cancel_wake_up();
        }
        result
    }
}
