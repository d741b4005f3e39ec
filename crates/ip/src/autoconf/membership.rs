//! Reports our group memberships to multicast routers and snooping switches: IGMP (RFC 3376, and RFC 2236 and RFC 1112
//! for older queriers) and MLD (RFC 3810, RFC 2710) as one machine.
//!
//! Needed even on a link without a multicast router: a snooping switch forwards neighbour solicitations only to ports
//! from which it received a report for the solicited-node group. A change is reported at once and repeated once; a
//! query is answered within its response time, at one moment for all groups that it covers. After a query from an older
//! querier, reports use its version ([`OLDER_QUERIER_PRESENT`]). Reports of other hosts are ignored and do not suppress
//! ours: a snooping switch needs a report from every host (RFC 3376 appendix A.2).
//!
//! **Users.** Groups that sockets join are counted: the first joins, the last leaves. [`MAX_GROUPS`] on an interface.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use observe::{Counters, Time};
use pktbuf::PktBuf;
use smallvec::SmallVec;
use wire::igmp;
use wire::ipv6::solicited_node;
use wire::mld::{self, RecordKind};

use super::{random_below, report};
use crate::interface::{ALL_NODES, InterfaceView};

/// Most groups that users may join on one interface: as many as fit one report beside those of addresses.
pub const MAX_GROUPS: usize = 40;
/// Times a change is reported (RFC 3376 section 8.1, RFC 3810 section 9.1: the robustness variable).
const REPORTS: u8 = 2;
/// Longest time between two reports of a change (RFC 3376 section 8.11, RFC 3810 section 9.11).
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How long after a query from an older querier its version is used: twice the interval of general queries, plus the
/// response time (RFC 3376 section 8.12, RFC 3810 section 9.12).
pub const OLDER_QUERIER_PRESENT: Duration = Duration::from_secs(260);
/// Most changes that wait to be reported. Further ones are reported when a router queries.
const MAX_CHANGES: usize = mld::MAX_RECORDS;

const _: () = assert!(MAX_CHANGES <= igmp::MAX_RECORDS && MAX_GROUPS < MAX_CHANGES);

/// A membership query of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupQuery {
    /// The group; the unspecified address of a family means all its groups.
    pub group: IpAddr,
    /// Reports must be sent within this time, spread over it.
    pub max_response: Duration,
    /// The version of the querier.
    pub version: GroupVersion,
}

/// Versions of the two protocols, from oldest to current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupVersion {
    /// IGMP version 1.
    Oldest,
    /// IGMP version 2, MLD version 1.
    Old,
    /// IGMP version 3, MLD version 2.
    Current,
}

impl From<igmp::Query> for GroupQuery {
    fn from(query: igmp::Query) -> Self {
        let version = match query.version {
            igmp::Version::One => GroupVersion::Oldest,
            igmp::Version::Two => GroupVersion::Old,
            igmp::Version::Three => GroupVersion::Current,
        };
        GroupQuery { group: query.group.into(), max_response: query.max_response, version }
    }
}

impl From<mld::Query> for GroupQuery {
    fn from(query: mld::Query) -> Self {
        let version = if query.is_v1 { GroupVersion::Old } else { GroupVersion::Current };
        GroupQuery { group: query.group.into(), max_response: query.max_response, version }
    }
}

/// A change that is still to be reported.
#[derive(Clone, Copy, Debug)]
struct Change {
    group: IpAddr,
    kind: RecordKind,
    left: u8,
}

/// Reports of one interface in one family.
#[derive(Debug)]
struct GroupReports {
    changes: SmallVec<[Change; 4]>,
    next_change: Time,
    /// When the last query is answered, and its group.
    answer: Time,
    asked: IpAddr,
    /// The oldest querier seen recently, and until when it counts as recent.
    version: GroupVersion,
    version_until: Time,
}

/// The records that are due, and the version of the report.
type Due = (SmallVec<[(RecordKind, IpAddr); 8]>, GroupVersion);

impl GroupReports {
    fn new(all_groups: IpAddr) -> Self {
        Self {
            changes: SmallVec::new(),
            next_change: Time::MAX,
            answer: Time::MAX,
            asked: all_groups,
            version: GroupVersion::Current,
            version_until: Time::MAX,
        }
    }

    fn change(&mut self, group: IpAddr, kind: RecordKind, now: Time) {
        self.changes.retain(|change| change.group != group);
        if self.changes.len() < MAX_CHANGES {
            self.changes.push(Change { group, kind, left: REPORTS });
            self.next_change = now;
        }
    }

    /// A query from an older querier: pending reports of a newer version are dropped (RFC 3376 section 7.2.1).
    fn note_querier(&mut self, version: GroupVersion, now: Time) {
        if now >= self.version_until {
            self.version = GroupVersion::Current;
        }
        if version < self.version {
            self.version = version;
            (self.next_change, self.answer) = (Time::MAX, Time::MAX);
            self.changes.clear();
        }
        if version == self.version && version != GroupVersion::Current {
            self.version_until = now + OLDER_QUERIER_PRESENT;
        }
    }

    fn query(&mut self, group: IpAddr, latest: Time) {
        // Two pending queries for different groups are answered as one for all groups.
        let pending = self.answer != Time::MAX && self.asked != group;
        self.asked = if pending { all_groups(group) } else { group };
        self.answer = self.answer.min(latest);
    }

    fn next_deadline(&self) -> Time {
        self.next_change.min(self.answer)
    }

    /// Changes that are due; each is scheduled again, or removed after its last report.
    fn due_changes(&mut self, now: Time, random: &mut u64) -> Option<Due> {
        if now < self.next_change {
            return None;
        }
        let records = self.changes.iter().map(|change| (change.kind, change.group)).collect();
        self.changes.iter_mut().for_each(|change| change.left -= 1);
        self.changes.retain(|change| change.left > 0);
        let again = now + Duration::from_millis(1) + random_below(random, REPORT_INTERVAL);
        self.next_change = if self.changes.is_empty() { Time::MAX } else { again };
        Some((records, self.version_at(now)))
    }

    /// The answer that is due.
    fn due_answer(&mut self, now: Time, view: &InterfaceView) -> Option<Due> {
        if now < self.answer {
            return None;
        }
        self.answer = Time::MAX;
        let asked = |group: &IpAddr| group.is_ipv4() == self.asked.is_ipv4() && covers(self.asked, *group);
        let groups = listened(view).filter(asked).take(MAX_CHANGES);
        let mut records: SmallVec<[_; 8]> = groups.map(|group| (RecordKind::Listening, group)).collect();
        records.sort_unstable_by_key(|(_, group)| *group);
        records.dedup();
        Some((records, self.version_at(now)))
    }

    fn version_at(&self, now: Time) -> GroupVersion {
        if now < self.version_until { self.version } else { GroupVersion::Current }
    }
}

/// The address that means all groups of a group's family.
fn all_groups(group: IpAddr) -> IpAddr {
    if group.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

fn covers(asked: IpAddr, group: IpAddr) -> bool {
    asked.is_unspecified() || asked == group
}

/// Group membership of one interface.
#[derive(Debug)]
pub(super) struct InterfaceGroups {
    v4: GroupReports,
    v6: GroupReports,
    /// Groups that users have joined, each with the number of users.
    users: SmallVec<[(IpAddr, u32); 2]>,
}

impl Default for InterfaceGroups {
    fn default() -> Self {
        let (v4, v6) = (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into());
        Self { v4: GroupReports::new(v4), v6: GroupReports::new(v6), users: SmallVec::new() }
    }
}

impl InterfaceGroups {
    /// An address, or the first user, needs the group.
    pub(super) fn joined(&mut self, group: IpAddr, now: Time) {
        self.change(group, RecordKind::Joined, now);
    }

    /// There is no member any more.
    pub(super) fn left(&mut self, group: IpAddr, now: Time) {
        self.change(group, RecordKind::Left, now);
    }

    fn change(&mut self, group: IpAddr, kind: RecordKind, now: Time) {
        if is_reported(group) {
            self.reports(group).change(group, kind, now);
        }
    }

    fn reports(&mut self, group: IpAddr) -> &mut GroupReports {
        if group.is_ipv4() { &mut self.v4 } else { &mut self.v6 }
    }

    /// One more user; returns whether it is the first. `None`: there is no room for another group.
    pub(super) fn enter(&mut self, group: IpAddr) -> Option<bool> {
        if let Some((_, users)) = self.users.iter_mut().find(|(joined, _)| *joined == group) {
            *users += 1;
            return Some(false);
        }
        (self.users.len() < MAX_GROUPS).then(|| {
            self.users.push((group, 1));
            true
        })
    }

    /// One user less; returns whether it was the last.
    pub(super) fn exit(&mut self, group: IpAddr) -> bool {
        let Some(at) = self.users.iter().position(|(joined, _)| *joined == group) else { return false };
        self.users[at].1 -= 1;
        let last = self.users[at].1 == 0;
        if last {
            self.users.swap_remove(at);
        }
        last
    }

    /// Whether a user has joined the group.
    pub(super) fn is_wanted(&self, group: IpAddr) -> bool {
        self.users.iter().any(|(joined, _)| *joined == group)
    }

    /// A query has arrived; it is to be answered by `latest`, a moment within its response time.
    pub(super) fn query(&mut self, query: &GroupQuery, now: Time, latest: Time, view: &InterfaceView) {
        let reports = self.reports(query.group);
        reports.note_querier(query.version, now);
        if query.group.is_unspecified() || listened(view).any(|group| group == query.group) {
            reports.query(query.group, latest);
        }
    }

    pub(super) fn next_deadline(&self) -> Time {
        self.v4.next_deadline().min(self.v6.next_deadline())
    }

    /// Makes the reports that are due.
    pub(super) fn send(
        &mut self,
        now: Time,
        view: &InterfaceView,
        random: &mut u64,
        frames: &mut SmallVec<[PktBuf; 4]>,
        counters: &Counters,
    ) {
        for reports in [&mut self.v4, &mut self.v6] {
            let due = [reports.due_changes(now, random), reports.due_answer(now, view)];
            for (records, version) in due.into_iter().flatten().filter(|(records, _)| !records.is_empty()) {
                report::send(view, &records, version, frames, counters);
            }
        }
    }
}

/// All groups but those that are never reported: the all-nodes groups (RFC 3376 section 5, RFC 3810 section 6), and
/// IPv6 ones that do not leave the host.
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group != igmp::ALL_HOSTS,
        IpAddr::V6(group) => group != ALL_NODES && group.octets()[1] & 0x0f > 1,
    }
}

/// The groups that we report.
fn listened(view: &InterfaceView) -> impl Iterator<Item = IpAddr> + '_ {
    let of_addresses = view.addresses().filter_map(|(address, _)| match address {
        IpAddr::V6(address) => Some(IpAddr::V6(solicited_node(address))),
        IpAddr::V4(_) => None,
    });
    of_addresses.chain(view.groups().iter().copied()).filter(|group| is_reported(*group))
}
