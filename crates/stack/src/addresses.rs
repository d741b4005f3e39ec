//! Interfaces that configure their own addresses, their multicast groups, and messages from routers to hosts:
//! redirects, advertisements, queries.
//!
//! Off the data path: packets read an interface's published view (one load); this file changes it. The rules are in
//! [`ip::autoconf`] and [`ip::redirect`]. This file has the locks and performs the consequences of a change: it
//! publishes the view, changes routes, invalidates cached link headers, sends frames and notifies the user. Any thread;
//! the caller holds no lock.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ip::autoconf::{AddressEvent, Autoconf, Changes, GroupQuery, RouteChange, TooManyGroups};
use ip::neighbour::{Conflict, Discovery};
use ip::{InterfaceView, Redirect, RedirectTable};
use observe::{Counter, Counters, DropReason, Time};
use smallvec::SmallVec;
use sync::{Atomic, ClaimLock, Condvar, Lock, LockClass, LockKind, Ordering, Platform, TooManyVersions};
use wire::icmpv6::RouterAdvert;

use crate::batch_checks::{BatchChecks, LOST_ADDRESSES};
use crate::deferred::DeferredEffects;
use crate::tx::Egress;

/// Events kept until the user reads them; when there are more, the oldest is dropped.
const MOST_EVENTS: usize = 256;

/// How an interface obtains its addresses. The default: those given, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addressing {
    /// Addresses are used once no other host on the link has answered for them (RFC 5227, RFC 4862 section 5.4):
    /// seconds after the start.
    pub checked: bool,
    /// Routers' advertisements give further IPv6 addresses and the default route (RFC 4862). Implies `checked`.
    pub from_routers: bool,
    /// A secret from which addresses are formed that do not identify the host across networks (RFC 7217). Without it
    /// they are formed from the link address.
    pub stable_key: Option<[u8; 16]>,
    /// An IPv4 address that another station claims twice is kept nonetheless (RFC 5227 section 2.4 c).
    pub keep_contested: bool,
    /// IPv4 redirects are followed. Off by default: nothing in a redirect proves that it comes from the link.
    pub redirects_v4: bool,
}

impl Addressing {
    /// Whether addresses are tested before they are used.
    pub fn is_checked(&self) -> bool {
        self.checked || self.from_routers
    }
}

/// An event at an interface: the interface, the time, and the parts needed to process the event.
pub struct InterfaceContext<'a, P: Platform> {
    /// The transmit path.
    pub egress: &'a Egress<P>,
    /// The interface.
    pub interface: usize,
    /// When it happens.
    pub now: Time,
    /// The counters of the calling thread.
    pub counters: &'a Counters,
    /// Effects to be performed once no lock is held.
    pub deferred: &'a mut DeferredEffects<P>,
}

/// See the head of this file.
pub struct Addresses<P: Platform> {
    /// By interface.
    machines: Vec<Machine<P>>,
    redirects: ClaimLock<RedirectTable, P>,
    events: Lock<VecDeque<(usize, AddressEvent)>, P>,
    arrived: Condvar<P>,
    /// Addresses that were given up while their connections have not been ended yet; announced in `checks`.
    lost: Lock<Vec<IpAddr>, P>,
    checks: Arc<BatchChecks<P>>,
}

struct Machine<P: Platform> {
    /// Apart: it is large, and used on no data path.
    autoconf: ClaimLock<Box<Autoconf>, P>,
    /// Version of the view that was published last. Written inside the publication, which excludes others.
    versioned: P::AtomicU64,
    redirects_v4: bool,
}

impl<P: Platform> Addresses<P> {
    /// The machines of all interfaces, not started.
    pub(crate) fn new(interfaces: Vec<(Addressing, Box<Autoconf>)>, checks: Arc<BatchChecks<P>>) -> Self {
        let machine = |(addressing, autoconf): (Addressing, Box<Autoconf>)| Machine {
            autoconf: ClaimLock::new(LockKind::Blocking, LockClass::Neighbours, autoconf),
            versioned: P::AtomicU64::new(0),
            redirects_v4: addressing.redirects_v4,
        };
        Addresses {
            machines: interfaces.into_iter().map(machine).collect(),
            redirects: ClaimLock::new(LockKind::Blocking, LockClass::Neighbours, RedirectTable::new()),
            events: Lock::new(LockKind::Blocking, LockClass::Handoff, VecDeque::new()),
            arrived: Condvar::new(),
            lost: Lock::new(LockKind::Blocking, LockClass::Handoff, Vec::new()),
            checks,
        }
    }

    /// The calling thread uses the tables without locks from now on; see [`Shared::claim`](crate::Shared::claim).
    pub(crate) fn claim(&self) {
        self.machines.iter().for_each(|machine| _ = machine.autoconf.claim());
        self.redirects.claim();
    }

    /// Ends the calling thread's claims, if it has any.
    pub(crate) fn release_claims(&self) {
        self.machines.iter().for_each(|machine| _ = machine.autoconf.release_claim());
        self.redirects.release_claim();
    }

    /// Takes the address events since the last call: interface and event, oldest first.
    pub fn take_events(&self) -> Vec<(usize, AddressEvent)> {
        self.events.lock().drain(..).collect()
    }

    /// As [`Addresses::take_events`], but waits for at most `timeout` of the platform's time until there is one.
    pub fn wait_events(&self, timeout: Duration) -> Vec<(usize, AddressEvent)> {
        let start = P::now();
        let mut events = self.events.lock();
        loop {
            let spent = Duration::from_nanos(P::now().saturating_sub(start));
            let left = timeout.checked_sub(spent).filter(|left| !left.is_zero());
            match left {
                Some(left) if events.is_empty() => events = self.arrived.wait_timeout(events, left),
                _ => return events.drain(..).collect(),
            }
        }
    }

    /// Takes the addresses that were given up since the last call: the caller must end their connections. One load if
    /// there are none.
    pub fn take_lost(&self) -> Vec<IpAddr> {
        if !self.checks.has(LOST_ADDRESSES) {
            return Vec::new();
        }
        let mut lost = self.lost.lock();
        self.checks.take(LOST_ADDRESSES);
        std::mem::take(&mut lost)
    }

    fn note_lost(&self, event: &AddressEvent) {
        if let AddressEvent::Conflict { address, lost: true, .. } | AddressEvent::Expired(address) = event {
            let mut lost = self.lost.lock();
            lost.push(*address);
            self.checks.ask_for(LOST_ADDRESSES);
        }
    }

    fn report(&self, interface: usize, new: impl IntoIterator<Item = AddressEvent>) {
        let new: SmallVec<[AddressEvent; 2]> = new.into_iter().collect();
        new.iter().for_each(|event| self.note_lost(event));
        let mut events = self.events.lock();
        for event in new {
            if events.len() == MOST_EVENTS {
                events.pop_front();
            }
            events.push_back((interface, event));
        }
        drop(events);
        self.arrived.notify_all();
    }

    /// Runs an interface's state machine and performs its actions. `None`: the machine ignored the event.
    fn machine<R>(
        &self,
        context: &mut InterfaceContext<'_, P>,
        run: impl FnOnce(&mut Autoconf, Time, &Counters) -> Option<(R, Changes)>,
    ) -> Option<R> {
        let mut autoconf = self.machines[context.interface].autoconf.hold();
        let (reply, changes) = run(&mut autoconf, context.now, context.counters)?;
        let view = changes.view.then(|| (autoconf.version(), autoconf.view().clone()));
        let deadline = autoconf.next_deadline();
        drop(autoconf);
        self.checks.deadline.note(deadline, context.deferred);
        if let Some((version, view)) = view {
            self.publish(context, version, view);
        }
        self.perform(context, changes);
        Some(reply)
    }

    /// Publishes a view unless a newer one was published meanwhile.
    fn publish(&self, context: &InterfaceContext<'_, P>, version: u64, view: InterfaceView) {
        let InterfaceContext { egress, interface, counters, .. } = *context;
        let versioned = &self.machines[interface].versioned;
        let done = egress.links().interfaces()[interface].view.update(|current| {
            if versioned.load(Ordering::Relaxed) < version {
                versioned.store(version, Ordering::Relaxed);
                *current = view;
            }
            Ok::<_, TooManyVersions>(())
        });
        if done.is_err() {
            // The machine bounds the number of versions; a link exhausts it only after weeks of attack.
            counters.count_drop(DropReason::RouterAdvertIgnored);
        }
    }

    fn perform(&self, context: &mut InterfaceContext<'_, P>, changes: Changes) {
        let InterfaceContext { egress, interface, counters, .. } = *context;
        if changes.view || !changes.routes.is_empty() {
            change_routes(egress, changes.routes);
        }
        if let Some(timing) = changes.timing {
            egress.neighbours().set_timing(interface, timing);
        }
        // Groups are not reported on a link without headers: it has no neighbours.
        let has_neighbours = egress.links().view(interface).framing.has_addresses();
        for frame in changes.frames.into_iter().filter(|_| has_neighbours) {
            egress.send_frames(interface, 0, &mut smallvec::smallvec![frame], counters, context.deferred);
        }
        if !changes.events.is_empty() {
            self.report(interface, changes.events);
        }
    }

    /// Runs an interface's state machine with an event that it cannot ignore.
    fn change(
        &self,
        context: &mut InterfaceContext<'_, P>,
        run: impl FnOnce(&mut Autoconf, Time, &Counters) -> Changes,
    ) {
        self.machine(context, |autoconf, now, counters| Some(((), run(autoconf, now, counters))));
    }

    /// Begins to test the addresses of all interfaces that do so.
    pub(crate) fn start_addresses(&self, egress: &Egress<P>, counters: &Counters, deferred: &mut DeferredEffects<P>) {
        let now = egress.links().clock().now();
        for interface in 0..egress.links().interfaces().len() {
            self.change(&mut InterfaceContext { egress, interface, now, counters, deferred }, Autoconf::start);
        }
    }

    /// Whether an ARP packet concerned an address under test.
    pub(crate) fn arp_under_test(&self, context: &mut InterfaceContext<'_, P>, packet: &wire::arp::Packet) -> bool {
        let run = |autoconf: &mut Autoconf, now, counters: &_| Some(((), autoconf.arp_arrives(now, packet, counters)?));
        self.machine(context, run).is_some()
    }

    /// Whether a neighbour discovery message concerned an address under test.
    pub(crate) fn discovery_under_test(&self, context: &mut InterfaceContext<'_, P>, discovery: &Discovery) -> bool {
        let run = |autoconf: &mut Autoconf, now, counters: &_| {
            Some(((), autoconf.discovery_arrives(now, discovery, counters)?))
        };
        self.machine(context, run).is_some()
    }

    /// A router advertisement arrives.
    pub(crate) fn router_advert_arrives(
        &self,
        context: &mut InterfaceContext<'_, P>,
        (from, advert): (Ipv6Addr, &RouterAdvert),
    ) {
        self.change(context, |autoconf, now, counters| autoconf.router_advert(now, from, advert, counters));
    }

    /// A socket joins a group on an interface.
    ///
    /// # Errors
    /// The interface is a member of too many groups.
    pub(crate) fn join_group(&self, context: &mut InterfaceContext<'_, P>, group: IpAddr) -> Result<(), TooManyGroups> {
        let join = |autoconf: &mut Autoconf, now, counters: &_| match autoconf.join(now, group, counters) {
            Ok(changes) => Some((Ok(()), changes)),
            Err(error) => Some((Err(error), Changes::default())),
        };
        self.machine(context, join).unwrap_or(Ok(()))
    }

    /// A socket leaves a group on an interface.
    pub(crate) fn leave_group(&self, context: &mut InterfaceContext<'_, P>, group: IpAddr) {
        self.change(context, |autoconf, now, counters| autoconf.leave(now, group, counters));
    }

    /// Sets the MTU of an interface's link, in bytes. Open connections apply it when they next send.
    pub(crate) fn set_link_mtu(&self, context: &mut InterfaceContext<'_, P>, mtu: usize) {
        self.change(context, |autoconf, now, counters| autoconf.set_mtu(now, mtu, counters));
    }

    /// A router queries which groups have listeners.
    pub(crate) fn group_query_arrives(&self, context: &mut InterfaceContext<'_, P>, query: &GroupQuery) {
        self.change(context, |autoconf, now, _| autoconf.query(now, query));
    }

    /// A redirect arrives.
    pub(crate) fn redirect_arrives(&self, context: &mut InterfaceContext<'_, P>, redirect: &Redirect) {
        let InterfaceContext { egress, interface, now, counters, .. } = *context;
        let allowed = redirect.reporter.is_ipv6() || self.machines[interface].redirects_v4;
        if !allowed {
            return counters.count_drop(DropReason::RedirectRefused);
        }
        let view = egress.links().view(interface);
        let (accepted, deadline) = egress.routes().look(|routes| {
            let mut redirects = self.redirects.hold();
            (redirects.accept(now, redirect, view, routes), redirects.next_deadline())
        });
        match accepted {
            Ok(changes) => {
                counters.increment(Counter::RedirectsIn);
                self.checks.deadline.note(deadline, context.deferred);
                change_routes(egress, changes);
            }
            Err(reason) => counters.count_drop(reason),
        }
    }

    /// Another station claims one of our addresses.
    pub(crate) fn address_conflict(&self, context: &mut InterfaceContext<'_, P>, conflict: Conflict) {
        let Conflict { address, by, defended } = conflict;
        self.change(context, |autoconf, now, counters| autoconf.conflict(now, address, by, defended, counters));
    }

    /// A neighbour did not answer: routes through it move to another router, if there is one.
    pub(crate) fn neighbour_failed(&self, context: &mut InterfaceContext<'_, P>, address: IpAddr) {
        self.change(context, |autoconf, now, counters| autoconf.neighbour_failed(now, address, counters));
        let changes = self.redirects.hold().neighbour_failed(address);
        if !changes.is_empty() {
            change_routes(context.egress, changes);
        }
    }

    /// Lifetimes, probes, announcements and reports that are due.
    pub(crate) fn address_timeouts(
        &self,
        egress: &Egress<P>,
        now: Time,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        for interface in 0..egress.links().interfaces().len() {
            self.change(&mut InterfaceContext { egress, interface, now, counters, deferred }, Autoconf::timeouts);
        }
        let mut redirects = self.redirects.hold();
        let over = redirects.timeouts(now);
        let deadline = redirects.next_deadline();
        drop(redirects);
        self.checks.deadline.note(deadline, deferred);
        if !over.is_empty() {
            change_routes(egress, over);
        }
    }
}

fn change_routes<P: Platform>(egress: &Egress<P>, changes: SmallVec<[RouteChange; 2]>) {
    egress.routes().change(|routes| changes.into_iter().for_each(|change| change.apply(routes)));
}
