//! One neighbour: its state, its link address, and the packets that wait for it.

use core::net::IpAddr;
use std::collections::VecDeque;

use observe::{Counters, Time};
use pktbuf::PktBuf;
use wire::ethernet::MacAddr;

use super::{DELAY_FIRST_PROBE_TIME, DOUBT_TIME, IDLE_TIME, message};
use crate::interface::InterfaceView;
use crate::link::{LinkEnd, LinkHeader};

/// The state of a neighbour (RFC 4861 section 7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// Its link address is being resolved; packets wait.
    Incomplete,
    /// It was confirmed recently.
    Reachable,
    /// It may have moved; it is checked when it is next used.
    Stale,
    /// A packet was sent to it while stale; a transport may confirm it before it is probed.
    Delay,
    /// It is being probed.
    Probe,
}

/// Value of an entry created by a request and never confirmed.
pub(super) const VALUE_UNSOLICITED: u8 = 0;
/// Value of an entry that is being resolved, or was confirmed once and has been idle since: evicted when our own
/// traffic needs the room.
const VALUE_UNPROVEN: u8 = 1;
/// Value of an entry confirmed and used recently: evicted when our own traffic needs the room and no other entry is
/// left.
pub(super) const VALUE_STALE: u8 = 2;
const VALUE_IN_USE: u8 = 3;

#[derive(Debug)]
pub(super) struct NeighbourEntry {
    pub address: IpAddr,
    pub mac: MacAddr,
    pub state: NeighbourState,
    /// Solicitations sent in this state.
    pub solicits: u8,
    /// It has answered us, or a transport, at least once.
    pub confirmed: bool,
    /// In DELAY: the grace is nearly over.
    pub in_doubt: bool,
    pub deadline: Time,
    pub used: Time,
    /// When it was last confirmed.
    pub heard: Time,
    pub pending: VecDeque<PktBuf>,
    /// The sender's addresses in our solicitations.
    local: LinkEnd,
    local_addr: IpAddr,
}

impl NeighbourEntry {
    pub(super) fn new(address: IpAddr, local: LinkEnd, local_addr: IpAddr) -> Self {
        Self {
            address,
            mac: MacAddr::UNSPECIFIED,
            state: NeighbourState::Incomplete,
            solicits: 0,
            confirmed: false,
            in_doubt: false,
            deadline: Time::MAX,
            used: Time::ZERO,
            heard: Time::ZERO,
            pending: VecDeque::new(),
            local,
            local_addr,
        }
    }

    pub(super) fn set(&mut self, state: NeighbourState, deadline: Time) {
        self.state = state;
        self.deadline = deadline;
        self.solicits = 0;
        self.in_doubt = false;
    }

    /// Whether it is being probed, or about to be.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.state == NeighbourState::Probe || (self.state == NeighbourState::Delay && self.in_doubt)
    }

    /// A packet is sent to a stale address: starts DELAY. True when a deadline was set.
    pub(super) fn start_delay(&mut self, now: Time) -> bool {
        let stale = self.state == NeighbourState::Stale;
        if stale {
            self.set(NeighbourState::Delay, now + (DELAY_FIRST_PROBE_TIME - DOUBT_TIME));
        }
        stale
    }

    /// The value of the entry in eviction; see the head of `neighbour.rs`.
    pub(super) fn value(&self, now: Time) -> u8 {
        match self.state {
            NeighbourState::Stale if !self.confirmed => VALUE_UNSOLICITED,
            NeighbourState::Incomplete => VALUE_UNPROVEN,
            NeighbourState::Stale if now >= self.used + IDLE_TIME => VALUE_UNPROVEN,
            NeighbourState::Stale => VALUE_STALE,
            NeighbourState::Delay | NeighbourState::Probe if !self.confirmed => VALUE_UNPROVEN,
            _ => VALUE_IN_USE,
        }
    }

    pub(super) fn link_header(&self) -> LinkHeader {
        self.local.header_to(self.mac, self.address)
    }

    /// The solicitation due: multicast or broadcast while the address is unknown, unicast while it is checked. An ARP
    /// probe that went unanswered once is broadcast from then on, so that an address that moved is found at once.
    pub(super) fn solicit(&self, counters: &Counters) -> Option<PktBuf> {
        let unicast = match self.state {
            NeighbourState::Incomplete => None,
            _ if self.address.is_ipv4() && self.solicits > 1 => None,
            _ => Some(self.mac),
        };
        match (self.local_addr, self.address) {
            (IpAddr::V4(ours), IpAddr::V4(target)) => message::arp_request(self.local, ours, target, unicast, counters),
            (IpAddr::V6(ours), IpAddr::V6(target)) => {
                message::neighbour_solicit(self.local, ours, target, unicast, counters)
            }
            _ => None,
        }
    }

    /// Updates the sender's addresses if the interface was readdressed since the entry was made.
    pub(super) fn update_source(&mut self, interface: &InterfaceView) {
        self.local = interface.link_end();
        if !interface.is_local(self.local_addr)
            && let Some(source) = interface.source_for(self.address)
        {
            self.local_addr = source;
        }
    }
}
