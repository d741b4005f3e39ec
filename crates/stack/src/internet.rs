//! Input of the Internet layer itself: ARP, neighbour discovery and fragments; and its timers.
//!
//! Off the data path: a segment of a connection with a valid route cache touches none of it. Any thread; the caller
//! holds no lock. The rules are in the `ip` crate; this file passes arrivals to their tables ([`Addresses`], the
//! neighbours of [`Egress`], fragments), and sends the packets that a table returns.

use std::sync::Arc;

use ip::autoconf::Autoconf;
use ip::{ErrorKind, Fragment, NeighbourEffects, NeighbourTable, Reassembled, ReassemblyAccess};
use observe::{Counters, Time};
use smallvec::{SmallVec, smallvec};
use sync::Platform;

use crate::access::SharedFragments;
use crate::addresses::{Addresses, Addressing, InterfaceContext};
use crate::batch_checks::BatchChecks;
use crate::control::Control;
use crate::deferred::DeferredEffects;
use crate::internet_deadline::InternetDeadline;
use crate::tx::Egress;

/// See the head of the file.
pub struct Internet<P: Platform> {
    addresses: Addresses<P>,
    fragments: SharedFragments<P>,
    checks: Arc<BatchChecks<P>>,
}

impl<P: Platform> Internet<P> {
    /// For these interfaces, with addresses that are not tested yet.
    pub(crate) fn new(interfaces: Vec<(Addressing, Box<Autoconf>)>, checks: Arc<BatchChecks<P>>) -> Self {
        Internet {
            addresses: Addresses::new(interfaces, checks.clone()),
            fragments: SharedFragments::default(),
            checks,
        }
    }

    /// The calling thread uses the tables without locks from now on; see [`Shared::claim`](crate::Shared::claim).
    pub(crate) fn claim(&self) {
        self.addresses.claim();
        self.fragments.claim();
        self.checks.deadline.claim();
    }

    /// Ends the calling thread's claims, if it has any.
    pub(crate) fn release_claims(&self) {
        self.addresses.release_claims();
        self.fragments.release_claim();
        self.checks.deadline.release_claim();
    }

    /// Addresses of interfaces, and their groups.
    pub fn addresses(&self) -> &Addresses<P> {
        &self.addresses
    }

    /// When memory is looked for that the stack may give back.
    pub(crate) fn schedule(&self) -> &InternetDeadline<P> {
        &self.checks.deadline
    }

    /// When [`Internet::timeouts`] next has work.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        self.checks.deadline.get()
    }

    /// An ARP packet arrives.
    pub fn arp_arrives(&self, context: &mut InterfaceContext<'_, P>, packet: &wire::arp::Packet) {
        if self.addresses.arp_under_test(context, packet) {
            return;
        }
        let (view, now, counters) = (context.egress.links().view(context.interface), context.now, context.counters);
        self.neighbour_event(context, |table| table.arp_arrives(now, view, packet, counters));
    }

    /// A neighbour solicitation or advertisement arrives.
    pub(crate) fn discovery_arrives(
        &self,
        context: &mut InterfaceContext<'_, P>,
        discovery: &ip::neighbour::Discovery,
    ) {
        if self.addresses.discovery_under_test(context, discovery) {
            return;
        }
        let (view, now, counters) = (context.egress.links().view(context.interface), context.now, context.counters);
        self.neighbour_event(context, |table| table.discovery_arrives(now, view, discovery, counters));
    }

    /// Applies an event to the interface's table of neighbours, and sends and reports what comes of it. Returns the
    /// errors for transports with packets that waited for a neighbour that does not answer.
    #[cold]
    fn neighbour_event(
        &self,
        context: &mut InterfaceContext<'_, P>,
        event: impl FnOnce(&mut NeighbourTable) -> NeighbourEffects,
    ) -> SmallVec<[ip::ReceivedIcmpError; 2]> {
        let InterfaceContext { egress, interface, now, counters, .. } = *context;
        let effects = egress.neighbours().event(interface, now, context.deferred, event, |frame, deferred| {
            // By the flow's own queue, or later packets could overtake those that waited (G7).
            let hash = frame.meta().flow_hash.unwrap_or(0);
            egress.send_frames(interface, hash, &mut smallvec![frame], counters, deferred);
        });
        if effects.changed {
            egress.routes().invalidate();
        }
        let view = egress.links().view(interface);
        let lost = effects.unreachable.iter().filter_map(|packet| ip::icmp::undelivered(packet, view)).collect();
        if let Some(conflict) = effects.conflict {
            self.addresses.address_conflict(context, conflict);
        }
        for address in effects.failed {
            self.addresses.neighbour_failed(context, address);
        }
        lost
    }

    /// A fragment arrives: returns the whole datagram, if this was the last missing piece.
    pub(crate) fn fragment_arrives(
        &self,
        (egress, control): (&Egress<P>, &Control<P>),
        fragment: Fragment,
        now: Time,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<ip::Datagram> {
        match self.fragments.within((&self.checks.deadline, control), deferred).insert(now, fragment, counters) {
            Reassembled::Whole(datagram) => return Some(datagram),
            Reassembled::Pending => {}
            Reassembled::Refused(refused) => {
                counters.count_drop(refused.reason);
                egress.refuse(&refused.datagram, refused.error, counters, deferred);
            }
        }
        None
    }

    /// Retransmits solicitations, gives up neighbours and fragments, and removes old path MTUs. Returns the errors for
    /// transports with packets that waited for a neighbour that does not answer.
    pub(crate) fn timeouts(
        &self,
        (egress, control): (&Egress<P>, &Control<P>),
        now: Time,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) -> SmallVec<[ip::ReceivedIcmpError; 2]> {
        self.checks.deadline.start_again(now);
        egress.routes().timeouts(now);
        let expired = self.fragments.within((&self.checks.deadline, control), deferred).timeouts(now, counters);
        for datagram in expired {
            egress.refuse(&datagram, ErrorKind::ReassemblyTimeExceeded, counters, deferred);
        }
        self.addresses.address_timeouts(egress, now, counters, deferred);
        let mut lost = SmallVec::new();
        for interface in 0..egress.links().interfaces().len() {
            let mut context = InterfaceContext { egress, interface, now, counters, deferred };
            lost.extend(self.neighbour_event(&mut context, |table| table.timeouts(now, counters)));
        }
        control.weigh_waiting();
        lost
    }
}
