//! Addresses that an interface configures by itself: duplicate detection for IPv4 (RFC 5227) and IPv6 (RFC 4862 section
//! 5.4), addresses from router advertisements (RFC 4862 section 5.5) and their lifetimes, default routers and on-link
//! prefixes (RFC 4861 section 6.3), and the groups that the interface is in (RFC 3376, RFC 3810).
//!
//! **What it owns.** The interface's [`InterfaceView`]: the caller publishes this view and does not change it. An
//! address under test is not in the view, so nothing is received for it, sent from it or answered about it; only its
//! solicited-node group is joined, to receive objections.
//!
//! **Callers.** The `stack`: once to begin, per ARP packet, neighbour message, router advertisement and group query,
//! for each conflict and each neighbour that the neighbour table gave up, when a socket joins or leaves a group, and at
//! [`Autoconf::next_deadline`]. Effects are returned as a value, [`Changes`]. With static addresses that are not
//! tested, [`Autoconf::fixed`] manages the groups only.
//!
//! **Untrusted input.** Everything here is driven by messages that any host on the link can send, so everything is
//! bounded: [`MAX_ADDRESSES`], [`MAX_ROUTERS`] and [`MAX_PREFIXES`] of each kind, [`NEW_ADDRESSES`] addresses formed at
//! once and one a minute in the long run; a lifetime is shortened to no less than two hours (RFC 4862 section 5.5.3 e);
//! times for neighbour discovery are taken within bounds ([`NeighbourTiming`]); a router's hop limit is ignored, because a low
//! one would confine the host to its network (CVE-2015-2922), and a higher one than ours is useless.
//!
//! What may never happen: an address used before it was tested or after its lifetime, two defences of one address
//! within ten seconds.

mod detection;
pub mod identifier;
mod membership;
mod report;
mod routers;

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use observe::{Counters, Time};
use pktbuf::PktBuf;
use smallvec::SmallVec;
use wire::arp;
use wire::ethernet::MacAddr;
use wire::icmpv6::RouterAdvert;

pub use identifier::Identifiers;
pub use membership::{GroupQuery, GroupVersion, MAX_GROUPS, OLDER_QUERIER_PRESENT};

use crate::interface::InterfaceView;
use crate::neighbour::{Discovery, NeighbourTiming};
use crate::route::{RouteEntry, RouteTable};
use detection::{DetectionPhase, Tracked};
use membership::InterfaceGroups;
use routers::{Routers, Solicitation};

/// Most addresses formed from the prefixes of routers.
pub const MAX_ADDRESSES: usize = 16;
/// Most default routers kept (RFC 4861 section 6.3.4 requires at least two).
pub const MAX_ROUTERS: usize = 8;
/// Most on-link prefixes kept.
pub const MAX_PREFIXES: usize = 16;
/// Addresses that may be formed at once; then one a minute.
pub const NEW_ADDRESSES: u32 = 16;
/// After this long a configured address that was a duplicate is tested again (RFC 5227 section 2.1.1,
/// `RATE_LIMIT_INTERVAL`).
pub const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// How an interface gets its addresses.
#[derive(Clone, Debug)]
pub struct AutoconfConfig {
    /// Addresses given by the operator, with their prefix lengths. They are used once they have been tested.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Form addresses from router advertisements, and use their routes.
    pub from_routers: bool,
    /// How the lower half of an address is formed.
    pub identifiers: Identifiers,
    /// Keep an IPv4 address that another station claims again after we have defended it (RFC 5227 section 2.4 c), for
    /// example on a server; otherwise it is given up (2.4 b).
    pub keep_contested: bool,
    /// Leave the IPv6 default route alone: the operator has set one.
    pub own_default_route: bool,
    /// Spreads the first messages of stations that start together. The same seed gives the same times.
    pub seed: u64,
}

/// An event of an address, for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressEvent {
    /// It was tested and is in use.
    Assigned(IpAddr),
    /// Another station has it: it is not used.
    Duplicate {
        /// The address.
        address: IpAddr,
        /// The other station, if it gave its link address.
        by: Option<MacAddr>,
    },
    /// Another station claims an address that is in use here.
    Conflict {
        /// The address.
        address: IpAddr,
        /// The other station, if it gave its link address.
        by: Option<MacAddr>,
        /// The address was given up.
        lost: bool,
    },
    /// Its preferred lifetime is over: open connections continue, new ones use another address.
    Deprecated(IpAddr),
    /// Its lifetime is over, or that of its prefix.
    Expired(IpAddr),
}

/// A change of the routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteChange {
    /// Add or replace a row.
    Insert(RouteEntry),
    /// Remove the row of this network and prefix length.
    Remove(IpAddr, u8),
    /// Add or replace the host route of a redirect.
    Divert(RouteEntry),
    /// Remove that of this network and prefix length, unless it was replaced by another kind of row.
    EndDetour(IpAddr, u8),
}

impl RouteChange {
    /// Changes the table.
    pub fn apply(self, routes: &mut RouteTable) {
        match self {
            RouteChange::Insert(route) => drop(routes.insert(route)),
            RouteChange::Remove(network, prefix_len) => drop(routes.remove(network, prefix_len)),
            RouteChange::Divert(route) => drop(routes.insert_redirect(route)),
            RouteChange::EndDetour(network, prefix_len) => drop(routes.remove_detour(network, prefix_len)),
        }
    }
}

/// Effects for the caller to perform.
#[derive(Debug, Default)]
pub struct Changes {
    /// Whole frames to send.
    pub frames: SmallVec<[PktBuf; 4]>,
    /// Events for the user, in this order.
    pub events: SmallVec<[AddressEvent; 2]>,
    /// Changes of the routing table, in this order.
    pub routes: SmallVec<[RouteChange; 2]>,
    /// [`Autoconf::view`] has changed: publish it.
    pub view: bool,
    /// The link's times for neighbour discovery, if a router has changed them.
    pub timing: Option<NeighbourTiming>,
}

impl Changes {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
            && self.events.is_empty()
            && self.routes.is_empty()
            && !self.view
            && self.timing.is_none()
    }
}

/// The addresses of one interface; see the head of this file.
#[derive(Debug)]
pub struct Autoconf {
    settings: AutoconfConfig,
    view: InterfaceView,
    /// Rises with every change of the view.
    version: u64,
    tracked: Vec<Tracked>,
    routers: Routers,
    solicitation: Option<Solicitation>,
    membership: InterfaceGroups,
    timing: NeighbourTiming,
    /// Addresses are the operator's alone, and not tested.
    fixed: bool,
    budget: u32,
    budget_at: Time,
    random: u64,
}

/// The interface is in [`MAX_GROUPS`] groups already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyGroups;

impl core::fmt::Display for TooManyGroups {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the interface is in {MAX_GROUPS} groups, as many as it may be: leave one first")
    }
}

impl core::error::Error for TooManyGroups {}

/// The context of a step.
struct StepContext<'a> {
    now: Time,
    counters: &'a Counters,
    changes: Changes,
}

impl<'a> StepContext<'a> {
    fn new(now: Time, counters: &'a Counters) -> Self {
        Self { now, counters, changes: Changes::default() }
    }
}

impl Autoconf {
    /// Takes charge of `view` and removes its addresses: they, the link-local one and those of
    /// [`AutoconfConfig::addresses`] are tested first.
    pub fn new(settings: AutoconfConfig, mut view: InterfaceView) -> Self {
        let old: Vec<IpAddr> = view.addresses().map(|(address, _)| address).collect();
        for address in old {
            view.remove_address(address);
        }
        Self::over(settings, view, false)
    }

    /// Manages the groups of `view` and leaves its addresses unchanged: they are used as they are, and a conflict is
    /// only reported. `seed` randomises the delay of answers to queries.
    pub fn fixed(view: InterfaceView, seed: u64) -> Self {
        let settings = AutoconfConfig {
            addresses: Vec::new(),
            from_routers: false,
            identifiers: Identifiers::Eui64,
            keep_contested: true,
            own_default_route: true,
            seed,
        };
        Self::over(settings, view, true)
    }

    fn over(settings: AutoconfConfig, view: InterfaceView, fixed: bool) -> Self {
        let random = settings.seed | 1;
        Self {
            settings,
            view,
            version: 0,
            tracked: Vec::new(),
            routers: Routers::default(),
            solicitation: None,
            membership: InterfaceGroups::default(),
            timing: NeighbourTiming::default(),
            fixed,
            budget: NEW_ADDRESSES,
            budget_at: Time::ZERO,
            random,
        }
    }

    /// The interface as it is now. An address under test is not in it.
    pub fn view(&self) -> &InterfaceView {
        &self.view
    }

    /// Rises with every change of the view: of two copies the one with the higher number is newer.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether any address is under test or waits to be tried again.
    pub fn is_settled(&self) -> bool {
        self.tracked
            .iter()
            .all(|tracked| matches!(tracked.phase, DetectionPhase::Announcing | DetectionPhase::Assigned))
    }

    /// Begins to test the configured addresses.
    pub fn start(&mut self, now: Time, counters: &Counters) -> Changes {
        if self.fixed {
            return Changes::default();
        }
        let mut step = StepContext::new(now, counters);
        let link_local = IpAddr::V6(self.link_local(0));
        self.begin(Tracked::new(link_local, 64, detection::Origin::LinkLocal), &mut step);
        for (address, prefix_len) in core::mem::take(&mut self.settings.addresses) {
            self.begin(Tracked::new(address, prefix_len, detection::Origin::Static), &mut step);
        }
        self.finish(step)
    }

    /// An ARP packet arrives. `None` when it is no concern of an address under test: the neighbour table's, then.
    pub fn arp_arrives(&mut self, now: Time, packet: &arp::Packet, counters: &Counters) -> Option<Changes> {
        let at = self.objected_by_arp(packet)?;
        let mut step = StepContext::new(now, counters);
        self.taken(at, Some(packet.sha), &mut step);
        Some(self.finish(step))
    }

    /// A neighbour solicitation or advertisement arrives. `None` when its target is not under test.
    pub fn discovery_arrives(&mut self, now: Time, discovery: &Discovery, counters: &Counters) -> Option<Changes> {
        let at = self.under_test(IpAddr::V6(discovery.target()))?;
        let mut step = StepContext::new(now, counters);
        // A solicitation with a source address tries to resolve ours, which is not assigned yet. Without one, it tests
        // the same address.
        if !discovery.is_solicitation() || discovery.source().is_unspecified() {
            self.taken(at, discovery.mac(), &mut step);
        }
        Some(self.finish(step))
    }

    /// Another station claims an address in use; the neighbour table has defended it, now or a short while ago.
    pub fn conflict(
        &mut self,
        now: Time,
        address: IpAddr,
        by: Option<MacAddr>,
        defended: bool,
        counters: &Counters,
    ) -> Changes {
        let mut step = StepContext::new(now, counters);
        self.contested(address, by, defended, &mut step);
        self.finish(step)
    }

    /// A router advertisement has arrived. Its source is link-local and the message has not been forwarded.
    pub fn router_advert(&mut self, now: Time, from: Ipv6Addr, advert: &RouterAdvert, counters: &Counters) -> Changes {
        let mut step = StepContext::new(now, counters);
        if self.settings.from_routers {
            self.on_router_advert(from, advert, &mut step);
        } else {
            counters.count_drop(observe::DropReason::RouterAdvertIgnored);
        }
        self.finish(step)
    }

    /// A router queries which groups have listeners.
    pub fn query(&mut self, now: Time, query: &GroupQuery) -> Changes {
        let share = self.random_below(query.max_response);
        self.membership.query(query, now, now + share, &self.view);
        Changes::default()
    }

    /// A user joins `group`. The first join is reported to the link; each must [`leave`](Self::leave) again.
    ///
    /// # Errors
    /// [`TooManyGroups`]: the interface is in [`MAX_GROUPS`] already.
    pub fn join(&mut self, now: Time, group: IpAddr, counters: &Counters) -> Result<Changes, TooManyGroups> {
        let mut step = StepContext::new(now, counters);
        if self.membership.enter(group).ok_or(TooManyGroups)? && !self.view.groups().contains(&group) {
            self.view.join(group);
            self.membership.joined(group, now);
            step.changes.view = true;
        }
        Ok(self.finish(step))
    }

    /// A user leaves the group; the last leave is reported to the link.
    pub fn leave(&mut self, now: Time, group: IpAddr, counters: &Counters) -> Changes {
        let mut step = StepContext::new(now, counters);
        if self.membership.exit(group) && !self.tests_in(group) {
            step.changes.view = self.view.leave(group);
            self.membership.left(group, now);
        }
        self.finish(step)
    }

    /// The link's MTU was set to `mtu` bytes. IPv6 gets the same MTU, but at least the 1,280 bytes of every link; a
    /// router may lower it again.
    pub fn set_mtu(&mut self, now: Time, mtu: usize, counters: &Counters) -> Changes {
        let mut step = StepContext::new(now, counters);
        let wide = mtu.max(wire::ipv6::MIN_MTU);
        step.changes.view = (self.view.mtu, self.view.mtu_v6) != (mtu, wide);
        (self.view.mtu, self.view.mtu_v6) = (mtu, wide);
        self.finish(step)
    }

    /// The neighbour table gave up a neighbour: a silent default router is replaced by another.
    pub fn neighbour_failed(&mut self, now: Time, address: IpAddr, counters: &Counters) -> Changes {
        let mut step = StepContext::new(now, counters);
        self.router_silent(address, &mut step);
        self.finish(step)
    }

    /// Performs all work that is due.
    pub fn timeouts(&mut self, now: Time, counters: &Counters) -> Changes {
        let mut step = StepContext::new(now, counters);
        for at in (0..self.tracked.len()).rev() {
            self.lifetimes(at, &mut step);
        }
        for at in 0..self.tracked.len() {
            if self.tracked[at].deadline <= now {
                self.advance(at, &mut step);
            }
        }
        self.router_timeouts(&mut step);
        self.finish(step)
    }

    /// When [`Autoconf::timeouts`] has work.
    pub fn next_deadline(&self) -> Option<Time> {
        let addresses = self.tracked.iter().map(Tracked::next_deadline);
        let solicitation = self.solicitation.map_or(Time::MAX, |solicitation| solicitation.next);
        let others = [self.routers.next_deadline(), solicitation, self.membership.next_deadline()];
        addresses.chain(others).min().filter(|deadline| *deadline != Time::MAX)
    }

    /// Sends the reports that are due and ends the step.
    fn finish(&mut self, mut step: StepContext<'_>) -> Changes {
        self.membership.send(step.now, &self.view, &mut self.random, &mut step.changes.frames, step.counters);
        self.version += u64::from(step.changes.view);
        step.changes
    }

    fn random_below(&mut self, limit: Duration) -> Duration {
        random_below(&mut self.random, limit)
    }
}

/// A time below `limit` (xorshift64).
fn random_below(state: &mut u64, limit: Duration) -> Duration {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    limit * ((*state >> 32) as u32 % 1024) / 1024
}

#[cfg(test)]
mod tests;
