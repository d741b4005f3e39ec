mod groups;

use super::*;
use crate::input::{self, Input};
use crate::neighbour::Discovery;
use crate::testing::{OUR_MAC, PEER_MAC, ip};
use core::net::Ipv4Addr;
use observe::{Counter, DropReason};
use wire::arp::Operation;
use wire::ethernet::EtherType;
use wire::icmpv6::{Message, PrefixInfo};
use wire::{ethernet, icmpv6, ipv6, mld, protocol};

/// A state machine, its clock, and its recorded effects.
struct Story {
    machine: Autoconf,
    counters: Counters,
    now: Time,
    events: Vec<AddressEvent>,
    routes: Vec<RouteChange>,
}

impl Story {
    fn begin(settings: AutoconfConfig) -> Self {
        let view = InterfaceView::new(0, OUR_MAC, 1500);
        let machine = Autoconf::new(settings, view);
        let now = Time::from_secs(1000);
        let mut story = Self { machine, counters: Counters::new(), now, events: Vec::new(), routes: Vec::new() };
        let changes = story.machine.start(story.now, &story.counters);
        story.keep(changes);
        story
    }

    fn keep(&mut self, changes: Changes) -> Vec<PktBuf> {
        self.events.extend(changes.events);
        self.routes.extend(changes.routes);
        changes.frames.into_vec()
    }

    /// Runs the machine at its deadlines for `span`; returns the frames it sent, with their times.
    fn pass(&mut self, span: Duration) -> Vec<(Time, PktBuf)> {
        let (end, mut sent) = (self.now + span, Vec::new());
        while let Some(next) = self.machine.next_deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            let changes = self.machine.timeouts(self.now, &self.counters);
            sent.extend(self.keep(changes).into_iter().map(|frame| (self.now, frame)));
        }
        self.now = end;
        sent
    }

    fn has(&self, address: &str) -> bool {
        self.machine.view().is_local(ip(address))
    }

    fn arp(&mut self, op: Operation, spa: &str, tpa: &str) -> bool {
        let v4 = |text: &str| text.parse::<Ipv4Addr>().unwrap();
        let packet = arp::Packet { op, sha: PEER_MAC, spa: v4(spa), tha: MacAddr::UNSPECIFIED, tpa: v4(tpa) };
        let changes = self.machine.arp_arrives(self.now, &packet, &self.counters);
        let heard = changes.is_some();
        changes.map(|changes| self.keep(changes));
        heard
    }

    /// A neighbour message that has passed the checks of input.
    fn discovery(&mut self, src: Ipv6Addr, dst: Ipv6Addr, message: Message) -> bool {
        let Some(discovery) = discovery(self.machine.view(), src, dst, message) else { return false };
        let changes = self.machine.discovery_arrives(self.now, &discovery, &self.counters);
        let heard = changes.is_some();
        changes.map(|changes| self.keep(changes));
        heard
    }

    fn advert(&mut self, lifetime: u16, prefixes: &[PrefixInfo]) {
        let mut advert = RouterAdvert { router_lifetime: lifetime, ..RouterAdvert::default() };
        prefixes.iter().for_each(|prefix| assert!(advert.prefixes.push(*prefix)));
        self.told(ROUTER, &advert);
    }

    fn told(&mut self, from: Ipv6Addr, advert: &RouterAdvert) {
        let changes = self.machine.router_advert(self.now, from, advert, &self.counters);
        self.keep(changes);
    }
}

fn discovery(view: &InterfaceView, src: Ipv6Addr, dst: Ipv6Addr, message: Message) -> Option<Discovery> {
    let mut bytes = vec![0; message.header_len()];
    message.emit(src, dst, &mut bytes);
    let mut packet = PktBuf::from_slice(&bytes).unwrap();
    crate::output::ipv6_header(&mut packet, src, dst, protocol::ICMPV6, 0, 255, 0);
    let counters = Counters::new();
    let Input::Icmp(datagram) = input::packet(packet, view, &counters) else { return None };
    match crate::icmp::receive(datagram, view, &counters) {
        crate::icmp::ReceivedIcmp::Neighbour(discovery) => Some(discovery),
        _ => None,
    }
}

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xff);
const LINK_LOCAL: &str = "fe80::ff:fe00:1";
const FORMED: &str = "2001:db8:1::ff:fe00:1";

fn settings() -> AutoconfConfig {
    AutoconfConfig {
        addresses: Vec::new(),
        from_routers: true,
        identifiers: Identifiers::Eui64,
        keep_contested: false,
        own_default_route: false,
        seed: 7,
    }
}

fn with_v4() -> AutoconfConfig {
    AutoconfConfig { addresses: vec![(ip("10.0.0.1"), 24)], from_routers: false, ..settings() }
}

fn prefix(preferred: u32, valid: u32) -> PrefixInfo {
    PrefixInfo {
        prefix: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0),
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime: valid,
        preferred_lifetime: preferred,
    }
}

fn arp_of(frame: &PktBuf) -> Option<arp::Packet> {
    let (header, at) = ethernet::parse(frame).unwrap();
    (header.ethertype == EtherType::Arp).then(|| arp::parse(&frame[at..]).unwrap())
}

/// The ICMPv6 message of a frame: source, destination, message.
fn message_of(frame: &PktBuf) -> Option<(Ipv6Addr, Ipv6Addr, Message)> {
    let (header, at) = ethernet::parse(frame).unwrap();
    if header.ethertype != EtherType::Ipv6 {
        return None;
    }
    let ip = ipv6::parse(&frame[at..]).unwrap();
    let payload = &frame[at + ipv6::HEADER_LEN..];
    let chain = ipv6::walk(ip.next_header, payload).unwrap();
    let message = icmpv6::parse(&payload[chain.offset..], ip.src, ip.dst).unwrap();
    Some((ip.src, ip.dst, message))
}

fn reports(sent: &[(Time, PktBuf)]) -> Vec<(u8, Ipv6Addr)> {
    let is_report = |frame: &PktBuf| matches!(message_of(frame), Some((.., Message::Other { kind: mld::REPORT, .. })));
    let of = |frame: &PktBuf| mld::parse_report(&frame[14 + 40 + 8..]).collect::<Vec<_>>();
    sent.iter().filter(|(_, frame)| is_report(frame)).flat_map(|(_, frame)| of(frame)).collect()
}

#[test]
fn an_ipv4_address_is_probed_three_times_and_announced_twice() {
    let mut story = Story::begin(with_v4());
    let start = story.now;
    assert!(!story.has("10.0.0.1") && !story.machine.is_settled());
    let sent = story.pass(Duration::from_secs(20));
    let arps: Vec<_> = sent.iter().filter_map(|(at, frame)| Some((*at, arp_of(frame)?))).collect();
    let ours: Ipv4Addr = "10.0.0.1".parse().unwrap();
    let probes = arps.iter().filter(|(_, p)| p.spa.is_unspecified() && p.tpa == ours).count();
    let announcements = arps.iter().filter(|(_, p)| p.spa == ours && p.tpa == ours).count();
    assert_eq!((arps.len(), probes, announcements), (5, 3, 2));
    assert!(arps.iter().all(|(_, p)| p.op == Operation::Request && p.sha == OUR_MAC));
    assert!(arps[0].0 <= start + Duration::from_secs(1));
    for pair in arps[..3].windows(2) {
        let gap = pair[1].0 - pair[0].0;
        assert!((Duration::from_secs(1)..=Duration::from_secs(2)).contains(&gap), "{gap:?}");
    }
    assert_eq!(arps[3].0 - arps[2].0, Duration::from_secs(2), "ANNOUNCE_WAIT");
    assert_eq!(arps[4].0 - arps[3].0, Duration::from_secs(2), "ANNOUNCE_INTERVAL");
    assert!(story.has("10.0.0.1") && story.machine.is_settled());
    assert!(story.events.contains(&AddressEvent::Assigned(ip("10.0.0.1"))));
    let row = RouteEntry { network: ip("10.0.0.1"), prefix_len: 24, gateway: None, interface: 0 };
    assert!(story.routes.contains(&RouteChange::Insert(row)));
}

#[test]
fn an_ipv4_address_that_is_taken_is_not_used_and_tried_again_later() {
    for (op, spa, tpa) in [
        (Operation::Reply, "10.0.0.1", "0.0.0.0"),
        (Operation::Request, "10.0.0.1", "10.0.0.9"),
        (Operation::Request, "0.0.0.0", "10.0.0.1"),
    ] {
        let mut story = Story::begin(with_v4());
        story.pass(Duration::from_secs(2));
        assert!(!story.arp(Operation::Reply, "10.0.0.7", "10.0.0.1"), "somebody else's address");
        assert!(story.arp(op, spa, tpa), "{op:?} {spa} {tpa}");
        assert!(!story.arp(op, spa, tpa), "heard once");
        let duplicate = AddressEvent::Duplicate { address: ip("10.0.0.1"), by: Some(PEER_MAC) };
        assert_eq!(story.events.last(), Some(&duplicate));
        let quiet = story.pass(Duration::from_secs(59));
        assert!(quiet.iter().all(|(_, frame)| arp_of(frame).is_none()) && !story.has("10.0.0.1"));
        story.pass(Duration::from_secs(20));
        assert!(story.has("10.0.0.1"), "the other has left");
    }
}

#[test]
fn our_own_probe_handed_back_by_a_hub_is_no_objection() {
    let mut story = Story::begin(with_v4());
    let tpa = "10.0.0.1".parse().unwrap();
    let own = arp::Packet {
        op: Operation::Request,
        sha: OUR_MAC,
        spa: Ipv4Addr::UNSPECIFIED,
        tha: MacAddr::UNSPECIFIED,
        tpa,
    };
    assert!(story.machine.arp_arrives(story.now, &own, &story.counters).is_none());
    story.pass(Duration::from_secs(10));
    assert!(story.has("10.0.0.1"));
}

#[test]
fn a_contested_address_is_given_up_unless_it_must_be_kept() {
    for keep_contested in [false, true] {
        let mut story = Story::begin(AutoconfConfig { keep_contested, ..with_v4() });
        story.pass(Duration::from_secs(20));
        let mut contest = |defended| {
            let (now, address) = (story.now, ip("10.0.0.1"));
            let changes = story.machine.conflict(now, address, Some(PEER_MAC), defended, &story.counters);
            story.keep(changes);
        };
        contest(true);
        contest(false);
        let lost = !keep_contested;
        let last = AddressEvent::Conflict { address: ip("10.0.0.1"), by: Some(PEER_MAC), lost };
        assert_eq!(story.events.last(), Some(&last));
        assert_eq!(story.has("10.0.0.1"), keep_contested);
        assert_eq!(story.routes.contains(&RouteChange::Remove(ip("10.0.0.1"), 24)), lost);
    }
}

#[test]
fn the_link_local_address_is_tested_and_its_group_reported() {
    let mut story = Story::begin(settings());
    let start = story.now;
    let group = ipv6::solicited_node(LINK_LOCAL.parse().unwrap());
    assert!(!story.has(LINK_LOCAL), "tentative");
    assert_eq!(story.machine.view().cast(group.into()), crate::Cast::Multicast, "objections are heard");
    let sent = story.pass(Duration::from_millis(2500));
    let solicits: Vec<_> = sent
        .iter()
        .filter_map(|(at, frame)| Some((*at, message_of(frame)?)))
        .filter(|(_, (.., message))| matches!(message, Message::NeighbourSolicit { .. }))
        .collect();
    let (at, (src, dst, message)) = &solicits[0];
    assert_eq!((solicits.len(), src.is_unspecified(), *dst), (1, true, group));
    let target = LINK_LOCAL.parse().unwrap();
    assert_eq!(*message, Message::NeighbourSolicit { target, source: None });
    assert!(*at <= start + Duration::from_secs(1));
    assert!(story.has(LINK_LOCAL));
    assert_eq!(story.events, [AddressEvent::Assigned(ip(LINK_LOCAL))]);
    let told = reports(&sent);
    assert!(told.iter().all(|record| *record == (mld::RecordKind::Joined as u8, group)), "{told:?}");
    // The first report was sent at the start, in `start`'s changes.
    assert_eq!(told.len(), 1, "and once more");
    assert_eq!(story.machine.view().cast(group.into()), crate::Cast::Multicast, "by owning the address");
}

#[test]
fn objections_to_an_ipv6_address_under_test() {
    let target: Ipv6Addr = LINK_LOCAL.parse().unwrap();
    let group = ipv6::solicited_node(target);
    let advert = |solicited| Message::NeighbourAdvert {
        target,
        target_mac: Some(PEER_MAC),
        router: false,
        solicited,
        override_flag: true,
    };
    let solicit = |source| Message::NeighbourSolicit { target, source };
    let peer = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    let cases = [
        ("advert", target, crate::interface::ALL_NODES, advert(false), true),
        ("another's test", Ipv6Addr::UNSPECIFIED, group, solicit(None), true),
        ("a question", peer, group, solicit(Some(PEER_MAC)), false),
    ];
    for (name, src, dst, message, fatal) in cases {
        let mut story = Story::begin(settings());
        story.now += Duration::from_millis(10);
        assert!(story.discovery(src, dst, message), "{name}");
        story.pass(Duration::from_secs(10));
        assert_eq!(story.has(LINK_LOCAL), !fatal, "{name}");
        assert_eq!(story.counters.get(Counter::AddressesDuplicate), u64::from(fatal));
        assert_eq!(story.counters.get(Counter::RouterSolicitsOut) == 0, fatal, "{name}: no IPv6 without an address");
    }
}

#[test]
fn a_stable_identifier_gets_three_more_chances() {
    let mut story = Story::begin(AutoconfConfig { identifiers: Identifiers::Stable { key: [3; 16] }, ..settings() });
    let mut tried = Vec::new();
    for attempt in 0..4 {
        story.pass(Duration::from_millis(if attempt == 0 { 1 } else { 1010 }));
        let Some(at) = story.machine.tracked.iter().position(|t| t.phase == DetectionPhase::Probing) else { break };
        let IpAddr::V6(target) = story.machine.tracked[at].address else { panic!("IPv6") };
        tried.push(target);
        let message = Message::NeighbourSolicit { target, source: None };
        assert!(story.discovery(Ipv6Addr::UNSPECIFIED, ipv6::solicited_node(target), message));
    }
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried.len(), 4, "each time another");
    let sent = story.pass(Duration::from_secs(3600));
    assert!(sent.iter().all(|(at, _)| *at <= story.now - Duration::from_secs(3598)), "the last group is left, no more");
    assert_eq!(story.machine.view().addresses().count(), 0);
}

#[test]
fn routers_are_solicited_until_one_answers() {
    let mut story = Story::begin(settings());
    let solicits = |sent: &[(Time, PktBuf)]| -> Vec<Time> {
        let is = |frame: &PktBuf| matches!(message_of(frame), Some((.., Message::RouterSolicit { .. })));
        sent.iter().filter(|(_, frame)| is(frame)).map(|(at, _)| *at).collect()
    };
    let times = solicits(&story.pass(Duration::from_secs(40)));
    let gaps: Vec<u64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert!((3..=4).contains(&times.len()), "4, 8, 16 seconds apart: {gaps:?}");
    assert!((3..=4).contains(&gaps[0]) && (7..=8).contains(&gaps[1]), "{gaps:?}");
    story.advert(1800, &[]);
    assert!(solicits(&story.pass(Duration::from_secs(1000))).is_empty());
}

#[test]
fn a_prefix_becomes_an_address_a_neighbourhood_and_a_default_route() {
    let mut story = Story::begin(settings());
    story.pass(Duration::from_secs(3));
    story.advert(1800, &[prefix(3600, 7200)]);
    assert!(!story.has(FORMED), "it is tested first");
    story.pass(Duration::from_secs(3));
    assert!(story.has(FORMED) && story.machine.is_settled());
    let v6 = |text: &str| ip(text);
    let default = RouteEntry { network: v6("::"), prefix_len: 0, gateway: Some(ROUTER.into()), interface: 0 };
    let on_link = RouteEntry { network: v6("2001:db8:1::"), prefix_len: 64, gateway: None, interface: 0 };
    assert!(story.routes.contains(&RouteChange::Insert(default)));
    assert!(story.routes.contains(&RouteChange::Insert(on_link)));
    assert_eq!(story.machine.view().source_for(v6("2600::1")), Some(v6(FORMED)));

    story.pass(Duration::from_secs(1800));
    assert_eq!(story.routes.last(), Some(&RouteChange::Remove(v6("::"), 0)), "the router's time is over");
    story.pass(Duration::from_secs(1800));
    assert_eq!(story.events.last(), Some(&AddressEvent::Deprecated(v6(FORMED))));
    assert_eq!(story.machine.view().source_for(v6("2600::1")), Some(v6(FORMED)), "better than none");
    story.pass(Duration::from_secs(3600));
    assert_eq!(story.events.last(), Some(&AddressEvent::Expired(v6(FORMED))));
    assert!(!story.has(FORMED));
    assert_eq!(story.routes.last(), Some(&RouteChange::Remove(v6("2001:db8:1::"), 64)));
}

#[test]
fn lifetimes_are_renewed_and_not_cut_below_two_hours() {
    let after = |start: u32, told: u32| {
        let mut story = Story::begin(settings());
        story.advert(1800, &[prefix(start.min(60), start)]);
        story.pass(Duration::from_secs(10));
        story.advert(1800, &[prefix(told.min(60), told)]);
        let tracked = story.machine.tracked.iter().find(|t| t.address == ip(FORMED)).unwrap();
        tracked.valid_until - story.now
    };
    assert_eq!(after(86_400, 43_200), Duration::from_secs(43_200), "above two hours: as told");
    assert_eq!(after(86_400, 1), Duration::from_secs(7200), "an attacker cannot take it away at once");
    assert_eq!(after(3600, 1), Duration::from_secs(3590), "below two hours: only longer");
    assert_eq!(after(3600, 5000), Duration::from_secs(5000));
    assert!(after(3600, u32::MAX) > Duration::from_secs(1 << 32), "for ever");
}

#[test]
fn a_renewed_preference_ends_the_deprecation() {
    let mut story = Story::begin(settings());
    story.advert(1800, &[prefix(10, 7200)]);
    story.pass(Duration::from_secs(20));
    assert!(story.events.contains(&AddressEvent::Deprecated(ip(FORMED))));
    story.advert(1800, &[prefix(3600, 7200)]);
    let (counted, before) = (story.events.len(), story.machine.view().clone());
    story.pass(Duration::from_secs(600));
    assert_eq!((story.events.len(), story.machine.view()), (counted, &before), "preferred, and for an hour");
}

#[test]
fn nonsense_in_advertisements_has_no_effect() {
    let mut story = Story::begin(settings());
    story.pass(Duration::from_secs(3));
    let before = story.machine.view().clone();
    let bad = [
        PrefixInfo { preferred_lifetime: 9000, ..prefix(0, 7200) },
        PrefixInfo { prefix_len: 63, on_link: false, ..prefix(60, 60) },
        PrefixInfo { prefix: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), ..prefix(60, 60) },
        PrefixInfo { prefix_len: 0, autonomous: false, ..prefix(60, 60) },
    ];
    story.routes.clear();
    story.told(ROUTER, &RouterAdvert { mtu: Some(1279), ..RouterAdvert::default() });
    story.told(ROUTER, &RouterAdvert { mtu: Some(9000), hop_limit: 1, ..RouterAdvert::default() });
    story.advert(0, &bad);
    let on_link = |change: &RouteChange| matches!(change, RouteChange::Insert(r) if r.prefix_len == 64);
    assert!(story.routes.iter().all(on_link), "{:?}", story.routes);
    assert_eq!(story.machine.view(), &before);
    assert_eq!(story.counters.dropped(DropReason::RouterAdvertIgnored), 4);
    story.told(ROUTER, &RouterAdvert { mtu: Some(1280), ..RouterAdvert::default() });
    assert_eq!((story.machine.view().mtu_v6, story.machine.view().mtu), (1280, 1500));
}

#[test]
fn a_flood_of_advertisements_is_bounded() {
    let mut story = Story::begin(settings());
    story.pass(Duration::from_secs(3));
    for n in 0..100_000u32 {
        let router = Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(n));
        let net = Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(n) << 64);
        let mut advert = RouterAdvert { router_lifetime: 9000, ..RouterAdvert::default() };
        assert!(advert.prefixes.push(PrefixInfo { prefix: net, ..prefix(1, 1) }));
        story.told(router, &advert);
        if n % 1000 == 0 {
            story.pass(Duration::from_secs(5));
        }
    }
    assert!(story.machine.routers.next_deadline() <= story.now + Duration::from_secs(9000));
    assert!(story.machine.tracked.len() <= MAX_ADDRESSES + 1);
    // 500 seconds passed: sixteen at once and one a minute.
    let formed = story.events.iter().filter(|event| matches!(event, AddressEvent::Assigned(_))).count();
    assert!(formed <= NEW_ADDRESSES as usize + 9 + 1, "{formed}");
    assert!(story.has(LINK_LOCAL));
}

#[test]
fn a_silent_router_makes_way_for_another() {
    let mut story = Story::begin(settings());
    let second = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfe);
    let advert = RouterAdvert { router_lifetime: 1800, ..RouterAdvert::default() };
    story.told(ROUTER, &advert);
    story.told(second, &advert);
    let leads = |story: &Story| match story.routes.last() {
        Some(RouteChange::Insert(route)) => route.gateway,
        _ => None,
    };
    assert_eq!(leads(&story), Some(ROUTER.into()));
    for (failed, used) in [(ROUTER, second), (second, ROUTER), (ROUTER, second)] {
        let changes = story.machine.neighbour_failed(story.now, failed.into(), &story.counters);
        story.keep(changes);
        assert_eq!(leads(&story), Some(used.into()), "{failed} is silent");
    }
    story.told(second, &RouterAdvert::default());
    assert_eq!(leads(&story), Some(ROUTER.into()), "the other says that it is none any more");
}

#[test]
fn queries_are_answered_with_every_group_within_their_time() {
    let mut story = Story::begin(settings());
    story.advert(1800, &[prefix(3600, 7200)]);
    story.pass(Duration::from_secs(30));
    let max_response = Duration::from_secs(10);
    let version = GroupVersion::Current;
    let general = GroupQuery { group: Ipv6Addr::UNSPECIFIED.into(), max_response, version };
    story.machine.query(story.now, &general);
    let start = story.now;
    let sent = story.pass(Duration::from_secs(11));
    let group = ipv6::solicited_node(FORMED.parse().unwrap());
    // Both addresses end alike, so they share the group.
    assert_eq!(reports(&sent), [(mld::RecordKind::Listening as u8, group)]);
    assert!(sent.iter().all(|(at, _)| *at <= start + max_response));
    let (src, dst, _) = message_of(&sent[0].1).unwrap();
    assert_eq!((IpAddr::V6(src), dst), (ip(LINK_LOCAL), mld::ALL_V2_ROUTERS));
    let other = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x99);
    story.machine.query(story.now, &GroupQuery { group: other.into(), max_response, version });
    assert!(story.pass(Duration::from_secs(11)).is_empty(), "nobody here");
    assert_eq!(sent[0].1[14 + 7], mld::HOP_LIMIT);
    assert_eq!(sent[0].1[14 + 40..14 + 48], mld::ROUTER_ALERT);
}
