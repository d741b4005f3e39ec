//! Groups that users join: the reports on the link, their version, and their times.

use super::*;
use wire::{igmp, ipv4};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const OTHER: Ipv4Addr = Ipv4Addr::new(239, 9, 9, 9);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x77);

fn fixed() -> Story {
    let mut view = InterfaceView::new(0, OUR_MAC, 1500);
    view.add_address(ip("10.0.0.1"), 24).unwrap();
    view.add_address(ip("fd00::1"), 64).unwrap();
    let (events, routes) = (Vec::new(), Vec::new());
    let machine = Autoconf::fixed(view, 3);
    Story { machine, counters: Counters::new(), now: Time::from_secs(1000), events, routes }
}

impl Story {
    fn join(&mut self, group: impl Into<IpAddr>) -> Vec<PktBuf> {
        let changes = self.machine.join(self.now, group.into(), &self.counters).expect("there is room");
        self.keep(changes)
    }

    fn leave(&mut self, group: impl Into<IpAddr>) -> Vec<PktBuf> {
        let changes = self.machine.leave(self.now, group.into(), &self.counters);
        self.keep(changes)
    }

    fn asked(&mut self, group: impl Into<IpAddr>, version: GroupVersion) {
        let query = GroupQuery { group: group.into(), max_response: Duration::from_secs(10), version };
        self.machine.query(self.now, &query);
    }

    fn hears(&self, group: impl Into<IpAddr>) -> bool {
        self.machine.view().cast(group.into()) == crate::Cast::Multicast
    }
}

/// An IGMP message: destination, type, and records with their groups.
type Told = (Ipv4Addr, u8, Vec<(u8, Ipv4Addr)>);

/// The IGMP message of a frame.
fn igmp_of(frame: &PktBuf) -> Option<Told> {
    let (header, at) = ethernet::parse(frame).unwrap();
    if header.ethertype != EtherType::Ipv4 {
        return None;
    }
    let ip = ipv4::parse(&frame[at..]).expect("a good header");
    assert_eq!((ip.protocol, ip.ttl, ip.tos, ip.header_len), (protocol::IGMP, 1, 0xc0, 24));
    assert_eq!(frame[at + 20..at + 24], [148, 4, 0, 0], "a router alert");
    assert_eq!(header.dst, MacAddr::from_ipv4_multicast(ip.dst));
    assert_eq!(IpAddr::V4(ip.src), super::ip("10.0.0.1"));
    let message = &frame[at + 24..];
    assert!(igmp::parse(message).is_ok(), "its checksum holds");
    Some((ip.dst, message[0], igmp::parse_report(message).collect()))
}

fn said(frames: &[PktBuf]) -> Vec<Told> {
    frames.iter().filter_map(igmp_of).collect()
}

fn frames(sent: Vec<(Time, PktBuf)>) -> Vec<PktBuf> {
    sent.into_iter().map(|(_, frame)| frame).collect()
}

#[test]
fn the_first_user_joins_and_the_last_leaves() {
    let mut story = fixed();
    assert!(!story.hears(GROUP));
    let joined = [(igmp::ALL_V3_ROUTERS, igmp::V3_REPORT, vec![(igmp::RecordKind::Joined as u8, GROUP)])];
    assert_eq!(said(&story.join(GROUP)), joined);
    assert!(story.hears(GROUP));
    let start = story.now;
    let again = story.pass(Duration::from_secs(5));
    assert!(again.iter().all(|(at, _)| *at <= start + Duration::from_secs(2)));
    assert_eq!(said(&frames(again)), joined, "said twice, for a report may be lost");
    assert!(story.join(GROUP).is_empty() && story.leave(GROUP).is_empty(), "another user changes nothing");
    assert!(story.hears(GROUP));
    let left = [(igmp::ALL_V3_ROUTERS, igmp::V3_REPORT, vec![(igmp::RecordKind::Left as u8, GROUP)])];
    assert_eq!(said(&story.leave(GROUP)), left);
    assert_eq!(said(&frames(story.pass(Duration::from_secs(5)))), left);
    assert!(!story.hears(GROUP) && story.leave(GROUP).is_empty());
    assert_eq!(story.counters.get(Counter::ListenerReportsOut), 4);
}

#[test]
fn queries_about_all_and_about_one_are_answered_within_their_time() {
    let mut story = fixed();
    story.join(GROUP);
    story.join(OTHER);
    story.pass(Duration::from_secs(5));
    story.asked(Ipv4Addr::UNSPECIFIED, GroupVersion::Current);
    let start = story.now;
    let answer = story.pass(Duration::from_secs(11));
    assert!(answer.iter().all(|(at, _)| *at <= start + Duration::from_secs(10)));
    let listening = |group| (igmp::RecordKind::Listening as u8, group);
    let all = vec![listening(GROUP), listening(OTHER)];
    assert_eq!(said(&frames(answer)), [(igmp::ALL_V3_ROUTERS, igmp::V3_REPORT, all)]);
    story.asked(OTHER, GroupVersion::Current);
    let answer = frames(story.pass(Duration::from_secs(11)));
    assert_eq!(said(&answer), [(igmp::ALL_V3_ROUTERS, igmp::V3_REPORT, vec![listening(OTHER)])]);
    story.asked(Ipv4Addr::new(239, 0, 0, 9), GroupVersion::Current);
    story.asked(igmp::ALL_HOSTS, GroupVersion::Current);
    assert!(story.pass(Duration::from_secs(11)).is_empty(), "nobody listens, and everybody is not reported");
}

#[test]
fn older_queriers_are_spoken_to_in_their_version_for_a_while() {
    let mut story = fixed();
    story.join(GROUP);
    // Pending repetitions in version 3 would not be understood.
    story.asked(Ipv4Addr::UNSPECIFIED, GroupVersion::Old);
    let answer = frames(story.pass(Duration::from_secs(11)));
    assert_eq!(said(&answer), [(GROUP, igmp::V2_REPORT, vec![(igmp::V2_REPORT, GROUP)])]);
    assert_eq!(said(&story.join(OTHER)), [(OTHER, igmp::V2_REPORT, vec![(igmp::V2_REPORT, OTHER)])]);
    assert_eq!(said(&story.leave(OTHER)), [(igmp::ALL_ROUTERS, igmp::V2_LEAVE, vec![(igmp::V2_LEAVE, OTHER)])]);
    story.pass(Duration::from_secs(10));
    story.asked(Ipv4Addr::UNSPECIFIED, GroupVersion::Oldest);
    let answer = frames(story.pass(Duration::from_secs(11)));
    assert_eq!(said(&answer), [(GROUP, igmp::V1_REPORT, vec![(igmp::V1_REPORT, GROUP)])]);
    // A newer one beside it changes nothing until the older has been silent long enough.
    story.asked(Ipv4Addr::UNSPECIFIED, GroupVersion::Current);
    assert_eq!(said(&frames(story.pass(Duration::from_secs(11))))[0].1, igmp::V1_REPORT);
    assert!(story.leave(GROUP).is_empty(), "version 1 does not say that it leaves");
    story.pass(OLDER_QUERIER_PRESENT);
    assert_eq!(said(&story.join(GROUP))[0].1, igmp::V3_REPORT);
}

#[test]
fn ipv6_groups_are_told_by_listener_discovery_in_both_versions() {
    let mut story = fixed();
    let sent = story.join(GROUP6);
    assert_eq!(mld::parse_report(&sent[0][14 + 40 + 8..]).collect::<Vec<_>>(), [(4, GROUP6)]);
    story.pass(Duration::from_secs(5));
    story.asked(Ipv6Addr::UNSPECIFIED, GroupVersion::Old);
    let sent = story.pass(Duration::from_secs(11));
    let told: Vec<_> = sent.iter().filter_map(|(_, frame)| message_of(frame)).collect();
    let about: Vec<_> = told.iter().map(|(_, dst, _)| *dst).collect();
    assert!(about.contains(&GROUP6) && about.contains(&ipv6::solicited_node("fd00::1".parse().unwrap())));
    assert!(told.iter().all(|(.., m)| matches!(m, Message::Other { kind: mld::V1_REPORT, .. })), "{told:?}");
    let done = story.leave(GROUP6);
    let (_, dst, message) = message_of(&done[0]).expect("ICMPv6");
    assert_eq!(dst, crate::interface::ALL_ROUTERS);
    assert!(matches!(message, Message::Other { kind: mld::V1_DONE, .. }));
}

#[test]
fn an_interface_is_in_so_many_groups_and_no_more() {
    let mut story = fixed();
    let group = |n: usize| IpAddr::V4(Ipv4Addr::from_bits(GROUP.to_bits() + n as u32));
    (0..MAX_GROUPS).for_each(|n| drop(story.join(group(n))));
    let refused = story.machine.join(story.now, group(MAX_GROUPS), &story.counters);
    assert_eq!(refused.err(), Some(TooManyGroups));
    assert!(story.join(group(0)).is_empty(), "one that is joined takes no room");
    story.leave(group(1));
    assert_eq!(story.join(group(MAX_GROUPS)).len(), 1);
    story.asked(Ipv4Addr::UNSPECIFIED, GroupVersion::Current);
    let told: usize =
        said(&frames(story.pass(Duration::from_secs(11)))).iter().map(|(.., records)| records.len()).sum();
    assert!(told >= MAX_GROUPS, "{told} in one answer");
}

/// A user in the solicited-node group of an address, before, while and after that address is assigned.
#[test]
fn a_users_group_outlives_the_address_that_shares_it() {
    let target: Ipv6Addr = LINK_LOCAL.parse().unwrap();
    let group = ipv6::solicited_node(target);
    let mut story = Story::begin(settings());
    story.join(group);
    story.leave(group);
    assert!(story.hears(group), "the address is under test and needs it");
    story.join(group);
    story.pass(Duration::from_secs(5));
    assert!(story.has(LINK_LOCAL) && story.hears(group));
    story.leave(group);
    assert!(story.hears(group), "owning the address is enough");
}

#[test]
fn routers_set_the_times_of_neighbour_discovery() {
    let mut story = Story::begin(settings());
    let advert =
        RouterAdvert { router_lifetime: 1800, reachable_time: 20_000, retrans_timer: 300, ..Default::default() };
    let changes = story.machine.router_advert(story.now, ROUTER, &advert, &story.counters);
    let timing = changes.timing.expect("a change");
    assert_eq!((timing.reachable, timing.retrans), (Duration::from_secs(20), Duration::from_millis(300)));
    let changes = story.machine.router_advert(story.now, ROUTER, &advert, &story.counters);
    assert_eq!(changes.timing, None, "said before");
    let silent = RouterAdvert { router_lifetime: 1800, ..Default::default() };
    let changes = story.machine.router_advert(story.now, ROUTER, &silent, &story.counters);
    assert_eq!(changes.timing, None, "says nothing of it");
}
