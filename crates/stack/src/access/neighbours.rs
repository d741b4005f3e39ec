//! The tables of neighbours, one for each interface, behind locks that one thread may claim.
//!
//! Off the data path: a segment of a connection with a valid route cache touches none of them. Any thread. The rules
//! are in [`ip::neighbour`]. Packets that waited for a neighbour enter the device's queue before the lock of the table is
//! released; the caller processes whatever else a table returns afterwards.
//!
//! What may never happen: a packet to a neighbour overtakes an earlier one of its flow that waited for the answer.

use std::net::IpAddr;
use std::sync::Arc;

use ip::neighbour::NeighbourTiming;
use ip::{InterfaceView, NeighbourAccess, NeighbourEffects, NeighbourTable, Resolution};
use observe::{Counters, Time};
use pktbuf::PktBuf;
use sync::{Atomic, ClaimGuard, ClaimLock, LockClass, LockKind, Ordering, Platform};
use wire::ethernet::MacAddr;

use crate::account::WaitingPackets;
use crate::batch_checks::BatchChecks;
use crate::deferred::DeferredEffects;

/// See the head of the file.
pub struct Neighbours<P: Platform> {
    /// By interface.
    tables: Vec<ClaimLock<NeighbourTable, P>>,
    /// By interface: whether a neighbour's reachability is in doubt; written under the lock of its table.
    doubtful: Box<[P::AtomicBool]>,
    /// Number of interfaces with such a neighbour.
    doubts: P::AtomicUsize,
    /// By interface: bytes of waiting packets that are in the account; written under the lock of its table.
    accounted: Box<[P::AtomicU64]>,
    waiting: Arc<WaitingPackets<P>>,
    checks: Arc<BatchChecks<P>>,
}

impl<P: Platform> Neighbours<P> {
    /// Empty tables for this many interfaces; `seed` randomises their timing. Packets that wait are entered in
    /// `waiting`.
    pub(crate) fn new(
        interfaces: usize,
        seed: u64,
        checks: Arc<BatchChecks<P>>,
        waiting: Arc<WaitingPackets<P>>,
    ) -> Self {
        let table = |index: usize| NeighbourTable::new(seed.wrapping_add(index as u64));
        let locked = |index| ClaimLock::new(LockKind::Blocking, LockClass::Neighbours, table(index));
        Neighbours {
            tables: (0..interfaces).map(locked).collect(),
            doubtful: (0..interfaces).map(|_| P::AtomicBool::new(false)).collect(),
            doubts: P::AtomicUsize::new(0),
            accounted: (0..interfaces).map(|_| P::AtomicU64::new(0)).collect(),
            waiting,
            checks,
        }
    }

    /// The calling thread uses the tables without locks from now on; see [`Shared::claim`](crate::Shared::claim).
    pub(crate) fn claim(&self) {
        self.tables.iter().for_each(|table| _ = table.claim());
    }

    /// Ends the calling thread's claims, if it has any.
    pub(crate) fn release_claims(&self) {
        self.tables.iter().for_each(|table| _ = table.release_claim());
    }

    /// Entries of all tables.
    pub fn count(&self) -> usize {
        self.tables.iter().map(|table| table.hold().len()).sum()
    }

    /// Whether a neighbour's reachability may be in doubt: transports must then report forward progress.
    #[inline]
    pub(crate) fn has_doubts(&self) -> bool {
        self.doubts.load(Ordering::Relaxed) != 0
    }

    /// A router has set the times of neighbour discovery on an interface's link.
    pub(crate) fn set_timing(&self, interface: usize, timing: NeighbourTiming) {
        self.table(interface).set_timing(timing);
    }

    fn table(&self, interface: usize) -> ClaimGuard<'_, NeighbourTable, P> {
        self.tables[interface].hold()
    }

    /// Records whether a neighbour of the interface is in doubt, and when its table, which the caller holds, next has
    /// work.
    fn note(&self, interface: usize, table: &NeighbourTable, deferred: &mut DeferredEffects<P>) {
        self.checks.deadline.note(table.next_deadline(), deferred);
        let (noted, doubtful) = (&self.doubtful[interface], table.has_doubts());
        if noted.load(Ordering::Relaxed) == doubtful {
            return;
        }
        noted.store(doubtful, Ordering::Relaxed);
        let change = if doubtful { 1 } else { usize::MAX };
        // A thread that has claimed one table has claimed them all.
        if self.tables[interface].is_claimed_here() {
            self.doubts.store(self.doubts.load(Ordering::Relaxed).wrapping_add(change), Ordering::Relaxed);
        } else {
            self.doubts.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Enters the memory of the interface's waiting packets in the account. The caller holds `table`, the interface's.
    /// After a larger change, the next turn of a driver checks the limits.
    fn enter_waiting(&self, interface: usize, table: &NeighbourTable, now: Time, deferred: &mut DeferredEffects<P>) {
        let (accounted, bytes) = (&self.accounted[interface], table.pending_bytes() as u64);
        let before = accounted.load(Ordering::Relaxed);
        if before == bytes {
            return;
        }
        accounted.store(bytes, Ordering::Relaxed);
        // A thread that has claimed one table has claimed them all.
        if self.waiting.enter(bytes.wrapping_sub(before), self.tables[interface].is_claimed_here()) {
            self.checks.deadline.note(Some(now), deferred);
        }
    }

    /// The neighbours of one interface, for an event.
    #[inline]
    pub(crate) fn of<'a>(&'a self, interface: usize, deferred: &'a mut DeferredEffects<P>) -> NeighboursInEvent<'a, P> {
        NeighboursInEvent { all: self, interface, deferred }
    }

    /// Probes a neighbour. True: cached data about it is no longer valid.
    pub(crate) fn suspect(
        &self,
        interface: usize,
        next_hop: IpAddr,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> bool {
        let mut table = self.table(interface);
        let changed = table.suspect(now, next_hop);
        self.note(interface, &table, deferred);
        changed
    }

    /// A transport has seen forward progress through `next_hop`: if the neighbour is in doubt, it need not be probed.
    pub(crate) fn confirm(&self, interface: usize, next_hop: IpAddr, now: Time, deferred: &mut DeferredEffects<P>) {
        let mut table = self.table(interface);
        if table.is_in_doubt(next_hop) {
            table.confirm(now, next_hop);
            self.note(interface, &table, deferred);
        }
    }

    /// Applies an event to the interface's table: an arrival, or the passage of time. Frames to send are passed to
    /// `transmit` in order, with the table held: a packet that finds its neighbour resolved is sent after those that
    /// waited for it, whichever thread sends it (G7).
    pub(crate) fn event(
        &self,
        interface: usize,
        now: Time,
        deferred: &mut DeferredEffects<P>,
        event: impl FnOnce(&mut NeighbourTable) -> NeighbourEffects,
        mut transmit: impl FnMut(PktBuf, &mut DeferredEffects<P>),
    ) -> NeighbourEffects {
        let mut table = self.table(interface);
        let mut effects = event(&mut table);
        // Doubts arise with a change. The table is searched for them only then, or else a flood could have it searched.
        if effects.changed || self.doubtful[interface].load(Ordering::Relaxed) {
            self.note(interface, &table, deferred);
        } else {
            self.checks.deadline.note(table.next_deadline(), deferred);
        }
        self.enter_waiting(interface, &table, now, deferred);
        effects.frames.drain(..).for_each(|frame| transmit(frame, deferred));
        effects
    }
}

/// The neighbours of one interface for the length of an event. It records the event's effects: when there is work next, the
/// memory of waiting packets, and whether a neighbour is in doubt.
pub(crate) struct NeighboursInEvent<'a, P: Platform> {
    all: &'a Neighbours<P>,
    interface: usize,
    deferred: &'a mut DeferredEffects<P>,
}

impl<P: Platform> NeighbourAccess for NeighboursInEvent<'_, P> {
    #[inline]
    fn reach(&mut self, now: Time, next_hop: IpAddr, progress: bool) -> Option<(MacAddr, bool)> {
        let mut table = self.all.table(self.interface);
        let confirms = progress && table.is_in_doubt(next_hop);
        let found = table.reach(now, next_hop, progress);
        if confirms {
            self.all.note(self.interface, &table, self.deferred);
        }
        found
    }

    fn resolve(
        &mut self,
        now: Time,
        interface: &InterfaceView,
        next_hop: IpAddr,
        packet: PktBuf,
        counters: &Counters,
    ) -> Resolution {
        let mut table = self.all.table(self.interface);
        table.set_memory_short(self.all.waiting.is_memory_short());
        let resolution = table.resolve(now, interface, next_hop, packet, counters);
        self.all.checks.deadline.note(table.next_deadline(), self.deferred);
        self.all.enter_waiting(self.interface, &table, now, self.deferred);
        resolution
    }
}
