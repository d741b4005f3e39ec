//! The effects of ARP and discovery packets on the table.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use observe::{Counter, Counters, DropReason, Time};
use pktbuf::PktBuf;
use smallvec::SmallVec;
use wire::arp::{self, Operation};
use wire::ethernet::MacAddr;
use wire::icmpv6::{DISCOVERY_HOP_LIMIT, Message};

use super::{Creator, DEFEND_INTERVAL, NeighbourState, NeighbourTable, Resolution, message};
use crate::datagram::Datagram;
use crate::interface::{ALL_NODES, InterfaceView};

/// The effects of an arrival or a time-out.
#[derive(Debug, Default)]
pub struct NeighbourEffects {
    /// Whole frames to send through the table's interface, in this order: answers or solicitations, then packets that
    /// waited for their neighbour.
    pub frames: SmallVec<[PktBuf; 4]>,
    /// Packets to neighbours that did not answer, beginning at their network header; counted as dropped already. Their
    /// senders may be sent an error (address unreachable).
    pub unreachable: SmallVec<[PktBuf; 4]>,
    /// Neighbours that did not answer.
    pub failed: SmallVec<[IpAddr; 2]>,
    /// Another station claims one of our addresses.
    pub conflict: Option<Conflict>,
    /// Whether cached link headers became invalid.
    pub changed: bool,
}

/// Another station claims one of our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The address.
    pub address: IpAddr,
    /// The other station, if it gave its link address.
    pub by: Option<MacAddr>,
    /// We have just announced our ownership on the link; otherwise that was done within the last ten seconds.
    pub defended: bool,
}

/// A neighbour solicitation or advertisement known to come from the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discovery {
    src: Ipv6Addr,
    target: Ipv6Addr,
    mac: Option<MacAddr>,
    kind: DiscoveryKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiscoveryKind {
    Solicit,
    Advert { solicited: bool, override_flag: bool },
}

impl Discovery {
    /// The address that the message is about.
    pub fn target(&self) -> Ipv6Addr {
        self.target
    }

    /// The sender; unspecified when it tests the target address.
    pub fn source(&self) -> Ipv6Addr {
        self.src
    }

    /// The link address that it carries, if any.
    pub fn mac(&self) -> Option<MacAddr> {
        self.mac
    }

    /// Whether it is a solicitation.
    pub fn is_solicitation(&self) -> bool {
        self.kind == DiscoveryKind::Solicit
    }

    /// Checks that no router forwarded it (RFC 4861 section 7.1), which the message itself does not show.
    pub(crate) fn new(datagram: &Datagram, message: Message) -> Result<Self, DropReason> {
        let IpAddr::V6(src) = datagram.src else { return Err(DropReason::NeighbourBadAdvert) };
        if datagram.ttl != DISCOVERY_HOP_LIMIT {
            return Err(DropReason::NeighbourBadAdvert);
        }
        let (target, mac, kind) = match message {
            Message::NeighbourSolicit { target, source } => (target, source, DiscoveryKind::Solicit),
            Message::NeighbourAdvert { target, target_mac, solicited, override_flag, .. } => {
                (target, target_mac, DiscoveryKind::Advert { solicited, override_flag })
            }
            _ => return Err(DropReason::IcmpUnknownType),
        };
        if mac.is_some_and(|mac| !mac.is_unicast()) {
            return Err(DropReason::NeighbourBadAdvert);
        }
        Ok(Self { src, target, mac, kind })
    }
}

/// A packet's claim about a neighbour in the table.
struct Claim {
    mac: MacAddr,
    /// It answers our solicitation.
    solicited: bool,
    /// It may replace another link address at once.
    replaces: bool,
}

impl NeighbourTable {
    /// Takes an ARP packet. One that has no effect is counted as dropped.
    pub fn arp_arrives(
        &mut self,
        now: Time,
        interface: &InterfaceView,
        packet: &arp::Packet,
        counters: &Counters,
    ) -> NeighbourEffects {
        match packet.op {
            Operation::Request => counters.increment(Counter::ArpRequestsIn),
            Operation::Reply => counters.increment(Counter::ArpRepliesIn),
            Operation::Other(_) => return dropped(DropReason::ArpBadPacket, counters),
        }
        let probe = packet.spa.is_unspecified();
        if !packet.sha.is_unicast() || (!probe && !may_own(packet.spa)) {
            return dropped(DropReason::ArpBadPacket, counters);
        }
        if packet.sha == interface.mac {
            // Our own broadcast, reflected by a hub or a bridge.
            return dropped(DropReason::ArpNotForUs, counters);
        }
        if interface.is_local(IpAddr::V4(packet.spa)) {
            return self.defend(now, interface, packet, counters);
        }
        let asks_us = packet.op == Operation::Request && interface.is_local(IpAddr::V4(packet.tpa));
        if probe && !asks_us {
            return dropped(DropReason::ArpNotForUs, counters);
        }
        let mut effects = NeighbourEffects::default();
        if asks_us {
            effects.frames.extend(message::arp_reply(interface.link_end(), packet, counters));
        }
        if !probe {
            self.learn_arp(now, interface, packet, asks_us, &mut effects, counters);
        }
        effects
    }

    fn learn_arp(
        &mut self,
        now: Time,
        interface: &InterfaceView,
        packet: &arp::Packet,
        asks_us: bool,
        effects: &mut NeighbourEffects,
        counters: &Counters,
    ) {
        let address = IpAddr::V4(packet.spa);
        let useful = self.by_address.contains_key(&address) || (asks_us && interface.on_link(address));
        if !useful {
            // A request to us was answered already; anything else is not for us.
            if !asks_us {
                counters.count_drop(DropReason::ArpNotForUs);
            }
            return;
        }
        let Some(slot) = self.find_or_create(now, address, interface, Creator::Remote, counters) else { return };
        let answers_us = packet.op == Operation::Reply && packet.tha == interface.mac;
        let entry = self.entry(slot);
        entry.update_source(interface);
        let solicited = answers_us && matches!(entry.state, NeighbourState::Incomplete | NeighbourState::Probe);
        // An entry that was never confirmed, or that is being probed, may be replaced by the answer.
        let replaces = solicited || entry.state == NeighbourState::Stale;
        self.apply(now, slot, Claim { mac: packet.sha, solicited, replaces }, effects, counters);
    }

    /// Another station claims an address of ours: defend it at most once in ten seconds, or two stations would answer
    /// each other for ever (RFC 5227 section 2.4 b).
    fn defend(
        &mut self,
        now: Time,
        interface: &InterfaceView,
        packet: &arp::Packet,
        counters: &Counters,
    ) -> NeighbourEffects {
        let address = IpAddr::V4(packet.spa);
        let mut effects = dropped(DropReason::ArpConflict, counters);
        counters.increment(Counter::AddressConflicts);
        self.defences.retain(|(_, last)| now < *last + DEFEND_INTERVAL);
        let defended = self.defences.iter().all(|(ours, _)| *ours != address);
        if defended {
            self.defences.push((address, now));
            effects.frames.extend(message::arp_announcement(interface.link_end(), packet.spa, counters));
        }
        effects.conflict = Some(Conflict { address, by: Some(packet.sha), defended });
        effects
    }

    /// Takes a neighbour solicitation or advertisement. One that has no effect is counted as dropped.
    pub fn discovery_arrives(
        &mut self,
        now: Time,
        interface: &InterfaceView,
        discovery: &Discovery,
        counters: &Counters,
    ) -> NeighbourEffects {
        match discovery.kind {
            DiscoveryKind::Solicit => {
                counters.increment(Counter::NeighbourSolicitsIn);
                self.take_solicit(now, interface, discovery, counters)
            }
            DiscoveryKind::Advert { solicited, override_flag } => {
                counters.increment(Counter::NeighbourAdvertsIn);
                self.take_advert(now, interface, discovery, (solicited, override_flag), counters)
            }
        }
    }

    /// RFC 4861 section 7.2.3.
    fn take_solicit(
        &mut self,
        now: Time,
        interface: &InterfaceView,
        discovery: &Discovery,
        counters: &Counters,
    ) -> NeighbourEffects {
        let Discovery { src, target, mac, .. } = *discovery;
        if !interface.is_local(IpAddr::V6(target)) {
            return dropped(DropReason::NotForUs, counters);
        }
        let mut effects = NeighbourEffects::default();
        effects.frames.extend(self.advertise(now, interface, target, src, mac, counters));
        if let Some(mac) = mac.filter(|_| !src.is_unspecified())
            && let Some(slot) = self.find_or_create(now, IpAddr::V6(src), interface, Creator::Remote, counters)
        {
            self.entry(slot).update_source(interface);
            let claim = Claim { mac, solicited: false, replaces: true };
            self.apply(now, slot, claim, &mut effects, counters);
        }
        effects
    }

    /// Answers a solicitation: to the link address it names, else by resolving the sender like any destination.
    fn advertise(
        &mut self,
        now: Time,
        interface: &InterfaceView,
        target: Ipv6Addr,
        asker: Ipv6Addr,
        mac: Option<MacAddr>,
        counters: &Counters,
    ) -> Option<PktBuf> {
        let mut packet = message::neighbour_advert(interface.mac, target, asker, counters)?;
        if let Some(mac) = mac {
            interface.link_header(mac, IpAddr::V6(asker)).prepend(&mut packet);
            return Some(packet);
        }
        let dst = if asker.is_unspecified() { ALL_NODES } else { asker };
        match self.resolve(now, interface, IpAddr::V6(dst), packet, counters) {
            Resolution::Ready(mac, mut packet) => {
                interface.link_header(mac, IpAddr::V6(dst)).prepend(&mut packet);
                Some(packet)
            }
            Resolution::Queued { solicit } => solicit,
            Resolution::Dropped(reason) => {
                counters.count_drop(reason);
                None
            }
        }
    }

    /// RFC 4861 section 7.2.5.
    fn take_advert(
        &mut self,
        now: Time,
        interface: &InterfaceView,
        discovery: &Discovery,
        (solicited, override_flag): (bool, bool),
        counters: &Counters,
    ) -> NeighbourEffects {
        let address = IpAddr::V6(discovery.target);
        if interface.is_local(address) && discovery.mac == Some(interface.mac) {
            // Our own message, reflected by a hub or a bridge.
            return dropped(DropReason::ArpNotForUs, counters);
        }
        if interface.is_local(address) {
            counters.increment(Counter::AddressConflicts);
            let mut effects = dropped(DropReason::ArpConflict, counters);
            effects.conflict = Some(Conflict { address, by: discovery.mac, defended: false });
            return effects;
        }
        let Some(&slot) = self.by_address.get(&address) else {
            // Unsolicited (section 7.2.5: no entry, no effect).
            return dropped(DropReason::ArpNotForUs, counters);
        };
        let entry = self.entry(slot);
        entry.update_source(interface);
        let mac = match (discovery.mac, entry.state) {
            (Some(mac), _) => mac,
            (None, NeighbourState::Incomplete) => return dropped(DropReason::NeighbourBadAdvert, counters),
            (None, _) => entry.mac,
        };
        if mac != entry.mac && entry.state != NeighbourState::Incomplete && !override_flag {
            return self.doubt_advert(slot, counters);
        }
        let mut effects = NeighbourEffects::default();
        self.apply(now, slot, Claim { mac, solicited, replaces: true }, &mut effects, counters);
        effects
    }

    /// Another link address without the override flag: a proxy's. The known address is kept, but is in doubt.
    fn doubt_advert(&mut self, slot: u32, counters: &Counters) -> NeighbourEffects {
        let entry = self.entry(slot);
        if entry.state != NeighbourState::Reachable {
            return dropped(DropReason::ArpNotForUs, counters);
        }
        entry.set(NeighbourState::Stale, Time::MAX);
        self.generation += 1;
        NeighbourEffects { changed: true, ..NeighbourEffects::default() }
    }

    /// Applies a claim to the entry: the only place where a link address changes.
    fn apply(&mut self, now: Time, slot: u32, claim: Claim, effects: &mut NeighbourEffects, counters: &Counters) {
        let entry = self.entry(slot);
        let (same, fresh) = (entry.mac == claim.mac, entry.state == NeighbourState::Incomplete);
        if !same && !fresh && !claim.replaces {
            // A confirmed neighbour seems to have moved: probe it first.
            if matches!(entry.state, NeighbourState::Reachable | NeighbourState::Delay) {
                entry.set(NeighbourState::Probe, now);
                self.earliest = self.earliest.min(now);
            }
            return;
        }
        entry.mac = claim.mac;
        if fresh {
            entry.used = now;
            counters.increment(Counter::NeighboursResolved);
        }
        let moved = !same && !fresh;
        if claim.solicited {
            entry.confirmed = true;
            entry.heard = now;
            let until = self.reachable_until(now, slot);
            self.entry(slot).set(NeighbourState::Reachable, until);
        } else if fresh || moved {
            entry.confirmed &= !moved;
            entry.set(NeighbourState::Stale, Time::MAX);
        }
        self.generation += u64::from(moved);
        effects.changed |= moved;
        self.release(now, slot, effects);
    }

    fn release(&mut self, now: Time, slot: u32, effects: &mut NeighbourEffects) {
        let entry = self.entry(slot);
        if entry.pending.is_empty() {
            return;
        }
        let link = entry.link_header();
        let released = core::mem::take(&mut entry.pending);
        if entry.start_delay(now) {
            let deadline = entry.deadline;
            self.earliest = self.earliest.min(deadline);
        }
        self.pending -= released.len();
        self.pending_bytes -= released.iter().map(super::pinned).sum::<usize>();
        effects.frames.extend(released.into_iter().map(|mut packet| {
            link.prepend(&mut packet);
            packet
        }));
    }
}

fn dropped(reason: DropReason, counters: &Counters) -> NeighbourEffects {
    counters.count_drop(reason);
    NeighbourEffects::default()
}

fn may_own(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}
