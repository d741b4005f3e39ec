//! Default routers, on-link prefixes, and addresses from the prefixes that routers advertise (RFC 4861 section 6.3,
//! RFC 4862 section 5.5).

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use observe::{Counter, DropReason, Time};
use wire::icmpv6::{PrefixInfo, RouterAdvert};
use wire::ipv6;

use super::detection::{Origin, Tracked};
use super::{
    Autoconf, MAX_ADDRESSES, MAX_PREFIXES, MAX_ROUTERS, NEW_ADDRESSES, RouteChange, StepContext, random_below,
};
use crate::interface::mask_v6;
use crate::neighbour::message;
use crate::route::RouteEntry;

/// Between the first router solicitations (RFC 4861 section 10); doubled each time until
/// [`MOST_SOLICITATION_INTERVAL`], for as long as no router answers (RFC 7559).
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
const MOST_SOLICITATION_INTERVAL: Duration = Duration::from_secs(3600);
/// A lifetime that a router shortens is not made shorter than this (RFC 4862 section 5.5.3 e).
const TWO_HOURS: Duration = Duration::from_secs(7200);
/// Between the addresses that may be formed in the long run.
const BUDGET_INTERVAL: Duration = Duration::from_secs(60);
/// The default route.
const ANYWHERE: (IpAddr, u8) = (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// Router solicitations under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Solicitation {
    pub next: Time,
    interval: Duration,
}

impl Solicitation {
    pub(super) fn first(next: Time) -> Self {
        Self { next, interval: SOLICITATION_INTERVAL }
    }
}

#[derive(Clone, Copy, Debug)]
struct Router {
    address: Ipv6Addr,
    until: Time,
    /// It did not answer the neighbour table; used only when no other router answers.
    silent: bool,
}

#[derive(Clone, Copy, Debug)]
struct OnLink {
    prefix: Ipv6Addr,
    prefix_len: u8,
    until: Time,
}

/// The link parameters advertised by routers.
#[derive(Debug, Default)]
pub(super) struct Routers {
    defaults: Vec<Router>,
    prefixes: Vec<OnLink>,
    /// The router that the default route leads to.
    current: Option<Ipv6Addr>,
}

impl Routers {
    pub(super) fn next_deadline(&self) -> Time {
        let ends = self.defaults.iter().map(|router| router.until);
        ends.chain(self.prefixes.iter().map(|prefix| prefix.until)).min().unwrap_or(Time::MAX)
    }

    /// Whether any default router is known.
    pub(super) fn any(&self) -> bool {
        !self.defaults.is_empty()
    }

    /// The router to use: the oldest of those that answer, else the oldest.
    fn best(&self) -> Option<Ipv6Addr> {
        let answering = self.defaults.iter().find(|router| !router.silent);
        answering.or(self.defaults.first()).map(|router| router.address)
    }
}

/// The end of a lifetime in seconds; all ones is for ever.
fn end(now: Time, seconds: u32) -> Time {
    if seconds == u32::MAX { Time::MAX } else { now + Duration::from_secs(seconds.into()) }
}

impl Autoconf {
    /// RFC 4861 section 6.3.4.
    pub(super) fn on_router_advert(&mut self, from: Ipv6Addr, advert: &RouterAdvert, step: &mut StepContext<'_>) {
        step.counters.increment(Counter::RouterAdvertsIn);
        // An answer to a solicitation, or equivalent; a router that is not a default router does not end the
        // solicitations.
        if advert.router_lifetime != 0 {
            self.solicitation = None;
        }
        self.hear_default(from, advert.router_lifetime, step);
        if let Some(mtu) = advert.mtu.map(|mtu| mtu as usize)
            && (ipv6::MIN_MTU..=self.view.mtu).contains(&mtu)
            && mtu != self.view.mtu_v6
        {
            self.view.mtu_v6 = mtu;
            step.changes.view = true;
        }
        let timing = self.timing.hearing(advert.reachable_time, advert.retrans_timer);
        if timing != self.timing {
            self.timing = timing;
            step.changes.timing = Some(timing);
        }
        for prefix in advert.prefixes.as_slice() {
            if prefix.prefix.is_unicast_link_local() || prefix.prefix.is_multicast() {
                Self::ignored(step);
                continue;
            }
            if prefix.on_link {
                self.hear_on_link(prefix, step);
            }
            if prefix.autonomous {
                self.hear_autonomous(prefix, step);
            }
        }
    }

    fn hear_default(&mut self, from: Ipv6Addr, lifetime: u16, step: &mut StepContext<'_>) {
        let at = self.routers.defaults.iter().position(|router| router.address == from);
        let until = step.now + Duration::from_secs(lifetime.into());
        match (at, lifetime) {
            (Some(at), 0) => drop(self.routers.defaults.remove(at)),
            (None, 0) => {}
            (Some(at), _) => {
                let router = &mut self.routers.defaults[at];
                (router.until, router.silent) = (until, false);
            }
            (None, _) if self.routers.defaults.len() < MAX_ROUTERS => {
                self.routers.defaults.push(Router { address: from, until, silent: false });
            }
            (None, _) => Self::ignored(step),
        }
        self.choose_router(step);
    }

    /// Points the default route at the router to use.
    fn choose_router(&mut self, step: &mut StepContext<'_>) {
        let best = self.routers.best();
        if best == self.routers.current || self.settings.own_default_route {
            return;
        }
        self.routers.current = best;
        step.changes.routes.push(match best {
            Some(router) => RouteChange::Insert(RouteEntry {
                network: ANYWHERE.0,
                prefix_len: ANYWHERE.1,
                gateway: Some(IpAddr::V6(router)),
                interface: self.view.index,
            }),
            None => RouteChange::Remove(ANYWHERE.0, ANYWHERE.1),
        });
    }

    pub(super) fn router_silent(&mut self, address: IpAddr, step: &mut StepContext<'_>) {
        let silent = self.routers.defaults.iter_mut().find(|router| IpAddr::V6(router.address) == address);
        if let Some(router) = silent {
            router.silent = true;
            // When all are silent the others are tried again, in turn.
            if self.routers.defaults.iter().all(|router| router.silent) {
                for router in &mut self.routers.defaults {
                    router.silent = IpAddr::V6(router.address) == address;
                }
            }
            self.choose_router(step);
        }
    }

    fn hear_on_link(&mut self, info: &PrefixInfo, step: &mut StepContext<'_>) {
        let prefix = Ipv6Addr::from_bits(info.prefix.to_bits() & mask_v6(info.prefix_len));
        let known = self.routers.prefixes.iter().position(|p| (p.prefix, p.prefix_len) == (prefix, info.prefix_len));
        let until = end(step.now, info.valid_lifetime);
        match known {
            Some(at) => self.routers.prefixes[at].until = until,
            None if info.valid_lifetime == 0 => {}
            // A prefix of no bits would make every host a neighbour: no such link exists, but an attacker could
            // advertise it.
            None if self.routers.prefixes.len() == MAX_PREFIXES || info.prefix_len == 0 => Self::ignored(step),
            None => {
                self.routers.prefixes.push(OnLink { prefix, prefix_len: info.prefix_len, until });
                step.changes.routes.push(RouteChange::Insert(RouteEntry {
                    network: IpAddr::V6(prefix),
                    prefix_len: info.prefix_len,
                    gateway: None,
                    interface: self.view.index,
                }));
            }
        }
    }

    /// RFC 4862 section 5.5.3.
    fn hear_autonomous(&mut self, info: &PrefixInfo, step: &mut StepContext<'_>) {
        if info.preferred_lifetime > info.valid_lifetime || info.prefix_len != 64 {
            return Self::ignored(step);
        }
        let prefix = Ipv6Addr::from_bits(info.prefix.to_bits() & mask_v6(64));
        match self.tracked.iter().position(|tracked| tracked.origin == Origin::Router(prefix)) {
            Some(at) => self.renew(at, info, step),
            None if info.valid_lifetime == 0 => {}
            None => self.form(prefix, info, step),
        }
    }

    /// A known prefix is advertised again: its address gets a longer lifetime, or one not too much shorter.
    fn renew(&mut self, at: usize, info: &PrefixInfo, step: &mut StepContext<'_>) {
        let now = step.now;
        let tracked = &mut self.tracked[at];
        let proposed = end(now, info.valid_lifetime);
        let floor = now + TWO_HOURS;
        if proposed > floor || proposed > tracked.valid_until {
            tracked.valid_until = proposed;
        } else if tracked.valid_until > floor {
            tracked.valid_until = floor;
        }
        tracked.preferred_until = end(now, info.preferred_lifetime).min(tracked.valid_until);
        let deprecated = now >= tracked.preferred_until;
        if tracked.is_in_use() {
            self.set_deprecated(at, deprecated, step);
        }
    }

    /// A new prefix: forms an address and tests it.
    fn form(&mut self, prefix: Ipv6Addr, info: &PrefixInfo, step: &mut StepContext<'_>) {
        let formed = self.tracked.iter().filter(|tracked| matches!(tracked.origin, Origin::Router(_))).count();
        let address = self.settings.identifiers.address(prefix, self.view.mac, 0);
        let Some(address) = address.filter(|_| formed < MAX_ADDRESSES && self.may_form(step.now)) else {
            return Self::ignored(step);
        };
        let mut tracked = Tracked::new(IpAddr::V6(address), 64, Origin::Router(prefix));
        tracked.valid_until = end(step.now, info.valid_lifetime);
        tracked.preferred_until = end(step.now, info.preferred_lifetime);
        self.begin(tracked, step);
    }

    /// Whether one more address may be formed now: a token bucket, so that an endless series of prefixes does not keep
    /// the stack busy with changes.
    fn may_form(&mut self, now: Time) -> bool {
        let earned = now.since(self.budget_at).as_secs() / BUDGET_INTERVAL.as_secs();
        if earned > 0 {
            self.budget = NEW_ADDRESSES.min(self.budget.saturating_add(u32::try_from(earned).unwrap_or(u32::MAX)));
            self.budget_at = now;
        }
        let allowed = self.budget > 0;
        self.budget -= u32::from(allowed);
        allowed
    }

    /// Lifetimes of routers and prefixes, and the next solicitation.
    pub(super) fn router_timeouts(&mut self, step: &mut StepContext<'_>) {
        let now = step.now;
        self.routers.defaults.retain(|router| now < router.until);
        self.choose_router(step);
        let routes = &mut step.changes.routes;
        self.routers.prefixes.retain(|on_link| {
            let alive = now < on_link.until;
            if !alive {
                routes.push(RouteChange::Remove(IpAddr::V6(on_link.prefix), on_link.prefix_len));
            }
            alive
        });
        let Some(solicitation) = self.solicitation.as_mut().filter(|solicitation| solicitation.next <= now) else {
            return;
        };
        // Randomised by a tenth either way, so that stations that start together do not stay synchronised.
        let blur = random_below(&mut self.random, solicitation.interval / 5);
        solicitation.next = now + solicitation.interval - solicitation.interval / 10 + blur;
        solicitation.interval = (solicitation.interval * 2).min(MOST_SOLICITATION_INTERVAL);
        let own = self.tracked.iter().find(|tracked| tracked.origin == Origin::LinkLocal && tracked.is_in_use());
        let Some(IpAddr::V6(source)) = own.map(|tracked| tracked.address) else { return };
        match message::router_solicit(self.view.link_end(), source, step.counters) {
            Some(frame) => step.changes.frames.push(frame),
            None => step.counters.count_drop(DropReason::NoBuffer),
        }
    }
}
