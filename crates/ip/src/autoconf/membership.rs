//! Which groups we listen to, told to multicast routers and snooping switches (RFC 3810, version 2).
//!
//! Needed even on a link without a multicast router: a switch that snoops forwards neighbour solicitations only to those
//! who said that they listen to the solicited-node group. A change is reported at once and once more; a query is answered
//! within the time it allows, by one report of all groups. Queries of version 1 are answered in version 2.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use observe::{Counter, Counters, Time};
use pktbuf::PktBuf;
use smallvec::SmallVec;
use wire::ethernet::EtherType;
use wire::ipv6::solicited_node;
use wire::mld::{self, Query, RecordKind};
use wire::protocol;

use super::random_below;
use crate::interface::{ALL_NODES, InterfaceView, group_mac};
use crate::output::{self, LinkHeader};

/// Times a change is reported (RFC 3810 section 9.1, the robustness variable).
const REPORTS: u8 = 2;
/// Longest time between two reports of a change (section 9.11).
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A change that is still to be reported.
#[derive(Clone, Copy, Debug)]
struct Change {
    group: Ipv6Addr,
    kind: RecordKind,
    left: u8,
}

/// Reports of one interface.
#[derive(Debug)]
pub(super) struct Membership {
    changes: SmallVec<[Change; 4]>,
    next_change: Time,
    /// When the last query is answered, and for which group it asks.
    answer: Time,
    asked: Ipv6Addr,
}

impl Default for Membership {
    fn default() -> Self {
        Self { changes: SmallVec::new(), next_change: Time::MAX, answer: Time::MAX, asked: Ipv6Addr::UNSPECIFIED }
    }
}

impl Membership {
    pub fn joined(&mut self, group: Ipv6Addr, now: Time) {
        self.change(group, RecordKind::Joined, now);
    }

    pub fn left(&mut self, group: Ipv6Addr, now: Time) {
        self.change(group, RecordKind::Left, now);
    }

    fn change(&mut self, group: Ipv6Addr, kind: RecordKind, now: Time) {
        self.changes.retain(|change| change.group != group);
        // The bound is far above what addresses come to; what is not reported now is reported when a router asks.
        if self.changes.len() < mld::MAX_RECORDS {
            self.changes.push(Change { group, kind, left: REPORTS });
            self.next_change = now;
        }
    }

    /// A query has come; it may be answered at `latest`, a moment within the time it allows.
    pub fn query(&mut self, query: &Query, latest: Time, view: &InterfaceView) {
        let specific = !query.group.is_unspecified();
        if specific && !listened(view).any(|group| group == query.group) {
            return;
        }
        // A question about all covers one that is still to be answered.
        let pending = self.answer != Time::MAX;
        self.asked = if pending && self.asked != query.group { Ipv6Addr::UNSPECIFIED } else { query.group };
        self.answer = self.answer.min(latest);
    }

    pub fn next_deadline(&self) -> Time {
        self.next_change.min(self.answer)
    }

    /// Makes the reports that are due.
    pub fn send(
        &mut self,
        now: Time,
        view: &InterfaceView,
        random: &mut u64,
        frames: &mut SmallVec<[PktBuf; 4]>,
        counters: &Counters,
    ) {
        if self.next_change <= now {
            let records: SmallVec<[_; 8]> = self.changes.iter().map(|change| (change.kind, change.group)).collect();
            frames.extend(report(view, &records, counters));
            self.changes.iter_mut().for_each(|change| change.left -= 1);
            self.changes.retain(|change| change.left > 0);
            let again = now + Duration::from_millis(1) + random_below(random, REPORT_INTERVAL);
            self.next_change = if self.changes.is_empty() { Time::MAX } else { again };
        }
        if self.answer <= now {
            self.answer = Time::MAX;
            let asked = |group: &Ipv6Addr| self.asked.is_unspecified() || *group == self.asked;
            let groups = listened(view).filter(asked).take(mld::MAX_RECORDS);
            let mut records: SmallVec<[_; 8]> = groups.map(|group| (RecordKind::Listening, group)).collect();
            records.sort_unstable_by_key(|(_, group)| *group);
            records.dedup();
            if !records.is_empty() {
                frames.extend(report(view, &records, counters));
            }
        }
    }
}

/// The groups that we report: all of link scope or wider but all-nodes, which nobody reports (RFC 3810 section 6).
fn listened(view: &InterfaceView) -> impl Iterator<Item = Ipv6Addr> + '_ {
    let of_addresses = view.addresses().filter_map(|(address, _)| match address {
        IpAddr::V6(address) => Some(solicited_node(address)),
        IpAddr::V4(_) => None,
    });
    let joined = view.groups().iter().filter_map(|group| match group {
        IpAddr::V6(group) => Some(*group),
        IpAddr::V4(_) => None,
    });
    of_addresses.chain(joined).filter(|group| *group != ALL_NODES && group.octets()[1] & 0x0f > 1)
}

/// A report as a frame; from the link-local address, or from none while that is under test (RFC 3590).
fn report(view: &InterfaceView, records: &[(RecordKind, Ipv6Addr)], counters: &Counters) -> Option<PktBuf> {
    let own = view.addresses().find_map(|(address, _)| match address {
        IpAddr::V6(address) if address.is_unicast_link_local() => Some(address),
        _ => None,
    });
    let (source, len) = (own.unwrap_or(Ipv6Addr::UNSPECIFIED), mld::report_len(records.len()));
    let mut packet = PktBuf::alloc(mld::ROUTER_ALERT.len() + len)?;
    packet.append(mld::ROUTER_ALERT.len()).copy_from_slice(&mld::ROUTER_ALERT);
    mld::emit_report(source, records, packet.append(len));
    output::ipv6_header(&mut packet, source, mld::ALL_V2_ROUTERS, protocol::HOP_BY_HOP, 0, mld::HOP_LIMIT, 0);
    let link = group_mac(IpAddr::V6(mld::ALL_V2_ROUTERS))?;
    LinkHeader::with_type(view.mac, link, EtherType::Ipv6).prepend(&mut packet);
    counters.increment(Counter::ListenerReportsOut);
    Some(packet)
}
