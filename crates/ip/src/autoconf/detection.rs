//! One address from the first probe to the end of its lifetime: address conflict detection for IPv4 (RFC 5227) and
//! duplicate address detection for IPv6 (RFC 4862 section 5.4) as one machine.
//!
//! ```text
//!              all probes unanswered              second announcement (IPv4)
//!   PROBING -----------------------> ANNOUNCING ---------------------------> ASSIGNED
//!      |  ^                              |   (IPv6 goes straight to ASSIGNED)   |
//!      |  | 60 s, if configured          +------------ contested --------------+
//!      v  |                                                                    |
//!   REJECTED <------------------- taken by another ----------------------------+
//! ```

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use observe::{Counter, DropReason, Time};
use wire::arp;
use wire::ethernet::MacAddr;
use wire::ipv6::solicited_node;

use super::routers::Solicitation;
use super::{AddressEvent, Autoconf, RETRY_INTERVAL, RouteChange, StepContext};
use crate::neighbour::message;
use crate::route::RouteEntry;

/// Longest wait before the first probe (RFC 5227 section 1.1 `PROBE_WAIT`, RFC 4861 section 10
/// `MAX_RTR_SOLICITATION_DELAY`).
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// ARP probes (RFC 5227 section 1.1).
const PROBE_NUM: u8 = 3;
const PROBE_MIN: Duration = Duration::from_secs(1);
const PROBE_MAX: Duration = Duration::from_secs(2);
const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);
const ANNOUNCE_NUM: u8 = 2;
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);
/// Solicitations of IPv6 duplicate detection; the wait after each is the link's (RFC 4862 section 5.1).
const DAD_TRANSMITS: u8 = 1;
/// Further identifiers tried after a duplicate, and the wait before each (RFC 7217 section 6).
const IDGEN_RETRIES: u8 = 3;
const IDGEN_DELAY: Duration = Duration::from_secs(1);

/// Why an address is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Configured by the operator.
    Static,
    /// Every interface has one.
    LinkLocal,
    /// Formed in this prefix of a router.
    Router(Ipv6Addr),
}

/// The phase of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DetectionPhase {
    /// Probing whether another station has it.
    Probing,
    /// In use, and being announced on the link (IPv4).
    Announcing,
    /// In use.
    Assigned,
    /// Another station has it.
    Rejected,
}

/// One managed address.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub address: IpAddr,
    pub prefix_len: u8,
    pub origin: Origin,
    pub phase: DetectionPhase,
    /// When the phase has work.
    pub deadline: Time,
    /// Probes or announcements sent in this phase.
    sent: u8,
    /// Identifiers that were duplicates before this one.
    attempt: u8,
    pub preferred_until: Time,
    pub valid_until: Time,
    pub deprecated: bool,
}

impl Tracked {
    pub(super) fn new(address: IpAddr, prefix_len: u8, origin: Origin) -> Self {
        Self {
            address,
            prefix_len,
            origin,
            phase: DetectionPhase::Probing,
            deadline: Time::MAX,
            sent: 0,
            attempt: 0,
            preferred_until: Time::MAX,
            valid_until: Time::MAX,
            deprecated: false,
        }
    }

    pub(super) fn is_in_use(&self) -> bool {
        matches!(self.phase, DetectionPhase::Announcing | DetectionPhase::Assigned)
    }

    pub(super) fn next_deadline(&self) -> Time {
        let preferred = if self.deprecated || !self.is_in_use() { Time::MAX } else { self.preferred_until };
        self.deadline.min(preferred).min(self.valid_until)
    }

    fn v6(&self) -> Option<Ipv6Addr> {
        match self.address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        }
    }
}

impl Autoconf {
    /// The link-local address after `attempt` duplicates.
    pub(super) fn link_local(&self, attempt: u8) -> Ipv6Addr {
        let prefix = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
        self.settings.identifiers.address(prefix, self.view.mac, attempt).unwrap_or(self.view.link_local())
    }

    pub(super) fn under_test(&self, address: IpAddr) -> Option<usize> {
        self.tracked.iter().position(|tracked| tracked.address == address && tracked.phase == DetectionPhase::Probing)
    }

    /// The address under test that an ARP packet claims or tests as well (RFC 5227 section 2.1.1).
    pub(super) fn objected_by_arp(&self, packet: &arp::Packet) -> Option<usize> {
        if packet.sha == self.view.mac || !packet.sha.is_unicast() {
            return None;
        }
        let probed = (packet.op == arp::Operation::Request && packet.spa.is_unspecified()).then_some(packet.tpa);
        let claimed = if packet.spa.is_unspecified() { probed } else { Some(packet.spa) };
        self.under_test(IpAddr::V4(claimed?))
    }

    /// Starts to test an address.
    pub(super) fn begin(&mut self, mut tracked: Tracked, step: &mut StepContext<'_>) {
        tracked.phase = DetectionPhase::Probing;
        tracked.sent = 0;
        tracked.deadline = step.now + self.random_below(FIRST_WAIT);
        self.listen(&tracked, step);
        self.tracked.push(tracked);
    }

    /// Joins the group in which objections to an address are made.
    fn listen(&mut self, tracked: &Tracked, step: &mut StepContext<'_>) {
        let Some(address) = tracked.v6() else { return };
        let group = solicited_node(address);
        self.view.join(group.into());
        self.membership.joined(group.into(), step.now);
        step.changes.view = true;
    }

    /// The next probe or announcement is due, or the last was not answered.
    pub(super) fn advance(&mut self, at: usize, step: &mut StepContext<'_>) {
        match (self.tracked[at].phase, self.tracked[at].address) {
            (DetectionPhase::Probing, IpAddr::V4(address)) => {
                if self.tracked[at].sent == PROBE_NUM {
                    return self.assign(at, step);
                }
                step.changes.frames.extend(message::arp_probe(self.view.link_end(), address, step.counters));
                let wait = PROBE_MIN + self.random_below(PROBE_MAX - PROBE_MIN);
                let tracked = &mut self.tracked[at];
                tracked.sent += 1;
                tracked.deadline = step.now + if tracked.sent == PROBE_NUM { ANNOUNCE_WAIT } else { wait };
            }
            (DetectionPhase::Probing, IpAddr::V6(address)) => {
                if self.tracked[at].sent == DAD_TRANSMITS {
                    return self.assign(at, step);
                }
                step.changes.frames.extend(message::duplicate_solicit(self.view.link_end(), address, step.counters));
                self.tracked[at].sent += 1;
                self.tracked[at].deadline = step.now + self.timing.retrans;
            }
            (DetectionPhase::Announcing, IpAddr::V4(_)) => self.announce(at, step),
            (DetectionPhase::Rejected, _) => {
                let tracked = &mut self.tracked[at];
                (tracked.phase, tracked.sent) = (DetectionPhase::Probing, 0);
                tracked.deadline = step.now;
                let tracked = tracked.clone();
                self.listen(&tracked, step);
                self.advance(at, step);
            }
            (DetectionPhase::Announcing | DetectionPhase::Assigned, _) => self.tracked[at].deadline = Time::MAX,
        }
    }

    /// There was no objection: the address is in use from now on.
    fn assign(&mut self, at: usize, step: &mut StepContext<'_>) {
        let Tracked { address, prefix_len, origin, .. } = self.tracked[at];
        if let IpAddr::V6(address) = address {
            // An assigned address implies membership of its group.
            self.forget(solicited_node(address).into());
        }
        // The control plane has checked the prefix; this fails only for an address configured twice.
        let added = self.view.add_address(address, prefix_len).is_ok();
        step.changes.view = true;
        self.tracked[at].phase = DetectionPhase::Assigned;
        self.tracked[at].deadline = Time::MAX;
        if added {
            step.changes.events.push(AddressEvent::Assigned(address));
        }
        if !matches!(origin, Origin::Router(_)) {
            let row = RouteEntry { network: address, prefix_len, gateway: None, interface: self.view.index };
            step.changes.routes.push(RouteChange::Insert(row));
        }
        if address.is_ipv4() {
            (self.tracked[at].phase, self.tracked[at].sent) = (DetectionPhase::Announcing, 0);
            self.announce(at, step);
        }
        if origin == Origin::LinkLocal && self.settings.from_routers && !self.routers.any() {
            let wait = self.random_below(FIRST_WAIT);
            self.solicitation = Some(Solicitation::first(step.now + wait));
        }
    }

    /// Announces the address on the link (RFC 5227 section 2.3).
    fn announce(&mut self, at: usize, step: &mut StepContext<'_>) {
        let IpAddr::V4(address) = self.tracked[at].address else { return };
        step.changes.frames.extend(message::arp_announcement(self.view.link_end(), address, step.counters));
        let tracked = &mut self.tracked[at];
        tracked.sent += 1;
        tracked.deadline = step.now + ANNOUNCE_INTERVAL;
        if tracked.sent == ANNOUNCE_NUM {
            (tracked.phase, tracked.deadline) = (DetectionPhase::Assigned, Time::MAX);
        }
    }

    /// Another station has an address under test, or tests it too.
    pub(super) fn taken(&mut self, at: usize, by: Option<MacAddr>, step: &mut StepContext<'_>) {
        step.counters.increment(Counter::AddressesDuplicate);
        let address = self.tracked[at].address;
        step.changes.events.push(AddressEvent::Duplicate { address, by });
        self.stop_listening(address, step);
        let tracked = &mut self.tracked[at];
        (tracked.phase, tracked.deadline) = (DetectionPhase::Rejected, Time::MAX);
        if tracked.origin == Origin::Static {
            tracked.deadline = step.now + RETRY_INTERVAL;
            return;
        }
        let attempt = tracked.attempt + 1;
        let prefix = match tracked.origin {
            Origin::Router(prefix) => prefix,
            _ => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0),
        };
        let next = self.settings.identifiers.address(prefix, self.view.mac, attempt);
        if let Some(next) = next.filter(|_| attempt <= IDGEN_RETRIES) {
            let tracked = &mut self.tracked[at];
            (tracked.address, tracked.attempt) = (IpAddr::V6(next), attempt);
            tracked.deadline = step.now + IDGEN_DELAY;
        }
    }

    /// Another station claims an address in use (RFC 5227 section 2.4).
    pub(super) fn contested(
        &mut self,
        address: IpAddr,
        by: Option<MacAddr>,
        defended: bool,
        step: &mut StepContext<'_>,
    ) {
        let at = self.tracked.iter().position(|tracked| tracked.address == address && tracked.is_in_use());
        let lost = at.filter(|_| address.is_ipv4() && !defended && !self.settings.keep_contested);
        step.changes.events.push(AddressEvent::Conflict { address, by, lost: lost.is_some() });
        if let Some(at) = lost {
            self.withdraw(at, step);
            let tracked = &mut self.tracked[at];
            (tracked.phase, tracked.deadline) = (DetectionPhase::Rejected, step.now + RETRY_INTERVAL);
        }
    }

    /// Takes an address out of use.
    pub(super) fn withdraw(&mut self, at: usize, step: &mut StepContext<'_>) {
        let Tracked { address, prefix_len, origin, .. } = self.tracked[at];
        step.changes.view |= self.view.remove_address(address);
        self.stop_listening(address, step);
        if !matches!(origin, Origin::Router(_)) && !self.view.on_link(address) {
            step.changes.routes.push(RouteChange::Remove(address, prefix_len));
        }
    }

    fn stop_listening(&mut self, address: IpAddr, step: &mut StepContext<'_>) {
        let IpAddr::V6(address) = address else { return };
        let group = solicited_node(address);
        step.changes.view |= self.forget(group.into());
        let others =
            self.view.addresses().any(|(other, _)| matches!(other, IpAddr::V6(a) if solicited_node(a) == group));
        if !others && !self.membership.is_wanted(group.into()) {
            self.membership.left(group.into(), step.now);
        }
    }

    /// Leaves a group that no test needs any more, unless a user has joined it. Returns whether the view has changed.
    fn forget(&mut self, group: IpAddr) -> bool {
        !self.membership.is_wanted(group) && self.view.leave(group)
    }

    /// Whether objections to an address under test are received through `group`.
    pub(super) fn tests_in(&self, group: IpAddr) -> bool {
        let needs = |tracked: &Tracked| tracked.v6().is_some_and(|address| group == solicited_node(address));
        self.tracked.iter().any(|tracked| tracked.phase == DetectionPhase::Probing && needs(tracked))
    }

    /// Applies the lifetimes of an address from a router's prefix.
    pub(super) fn lifetimes(&mut self, at: usize, step: &mut StepContext<'_>) {
        let Tracked { address, preferred_until, valid_until, deprecated, .. } = self.tracked[at];
        let in_use = self.tracked[at].is_in_use();
        if step.now >= valid_until {
            if in_use {
                step.changes.events.push(AddressEvent::Expired(address));
            }
            self.withdraw(at, step);
            self.tracked.remove(at);
        } else if in_use && !deprecated && step.now >= preferred_until {
            self.set_deprecated(at, true, step);
        }
    }

    pub(super) fn set_deprecated(&mut self, at: usize, deprecated: bool, step: &mut StepContext<'_>) {
        let tracked = &mut self.tracked[at];
        let Some(address) = tracked.v6().filter(|_| tracked.deprecated != deprecated) else { return };
        tracked.deprecated = deprecated;
        step.changes.view |= self.view.set_deprecated(address, deprecated);
        if deprecated {
            step.changes.events.push(AddressEvent::Deprecated(IpAddr::V6(address)));
        }
    }

    /// Counts a router advertisement, or a part of one, that has no effect.
    pub(super) fn ignored(step: &StepContext<'_>) {
        step.counters.count_drop(DropReason::RouterAdvertIgnored);
    }
}
