use super::*;
use crate::datagram::Datagram;
use crate::icmp::{self, ReceivedIcmp};
use crate::input::{self, Input};
use crate::testing::*;
use core::net::Ipv4Addr;
use wire::arp::{self, Operation};
use wire::icmpv6::Message;
use wire::{ethernet, protocol};

const MOVED: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

/// A table, its clock and its counters; the tests are sequences of events in seconds.
struct Story {
    table: NeighbourTable,
    view: InterfaceView,
    counters: Counters,
    now: Time,
}

impl Story {
    fn begin() -> Self {
        let now = Time::from_secs(1000);
        Self { table: NeighbourTable::new(1), view: interface(), counters: Counters::new(), now }
    }

    fn pass(&mut self, time: Duration) -> NeighbourEffects {
        self.now += time;
        self.table.timeouts(self.now, &self.counters)
    }

    fn send(&mut self, to: IpAddr) -> Resolution {
        let packet = PktBuf::from_slice(b"payload").unwrap();
        self.table.resolve(self.now, &self.view, to, packet, &self.counters)
    }

    fn arp(&mut self, op: Operation, mac: MacAddr, spa: Ipv4Addr, tpa: Ipv4Addr) -> NeighbourEffects {
        let tha = if op == Operation::Reply { OUR_MAC } else { MacAddr::UNSPECIFIED };
        let packet = arp::Packet { op, sha: mac, spa, tha, tpa };
        self.table.arp_arrives(self.now, &self.view, &packet, &self.counters)
    }

    fn answered(&mut self, mac: MacAddr) -> NeighbourEffects {
        self.arp(Operation::Reply, mac, PEER, OURS)
    }

    fn discovery(&mut self, src: core::net::Ipv6Addr, message: Message, hop_limit: u8) -> NeighbourEffects {
        match discovery(src, OURS6, message, hop_limit) {
            Ok(discovery) => self.table.discovery_arrives(self.now, &self.view, &discovery, &self.counters),
            Err(reason) => {
                self.counters.count_drop(reason);
                NeighbourEffects::default()
            }
        }
    }

    fn state(&self, address: IpAddr) -> Option<NeighbourState> {
        self.table.entries().find(|entry| entry.0 == address).map(|entry| entry.2)
    }
}

/// Sends the message as a packet through input and ICMP.
fn discovery(
    src: core::net::Ipv6Addr,
    dst: core::net::Ipv6Addr,
    message: Message,
    hop_limit: u8,
) -> Result<Discovery, DropReason> {
    let mut bytes = vec![0; message.header_len()];
    message.emit(src, dst, &mut bytes);
    let mut packet = PktBuf::from_slice(&bytes).unwrap();
    crate::output::ipv6_header(&mut packet, src, dst, protocol::ICMPV6, 0, hop_limit, 0);
    let counters = Counters::new();
    let Input::Icmp(datagram) = input::packet(packet, &interface(), &counters) else { panic!("ICMP") };
    match icmp::receive(datagram, &interface(), &counters) {
        ReceivedIcmp::Neighbour(discovery) => Ok(discovery),
        _ => Err(*DropReason::ALL.iter().find(|reason| counters.dropped(**reason) > 0).unwrap()),
    }
}

fn advert(mac: MacAddr, solicited: bool, override_flag: bool) -> Message {
    Message::NeighbourAdvert { target: PEER6, target_mac: Some(mac), router: false, solicited, override_flag }
}

fn asks(frame: &PktBuf) -> (MacAddr, arp::Packet) {
    let (header, payload) = ethernet::parse(frame).unwrap();
    assert_eq!(header.src, OUR_MAC);
    (header.dst, arp::parse(&frame[payload..]).unwrap())
}

fn parts(datagram: &Datagram) -> (IpAddr, IpAddr, u8) {
    (datagram.src, datagram.dst, datagram.ttl)
}

#[test]
fn a_neighbour_is_asked_for_once_a_second_and_answers_release_the_queue_in_order() {
    let mut story = Story::begin();
    let Resolution::Queued { solicit: Some(request) } = story.send(PEER.into()) else { panic!("a request") };
    let (to, request) = asks(&request);
    assert_eq!((to, request.op, request.spa, request.tpa), (MacAddr::BROADCAST, Operation::Request, OURS, PEER));
    assert!(matches!(story.send(PEER.into()), Resolution::Queued { solicit: None }), "one request is outstanding");
    assert_eq!(story.table.next_deadline(), Some(story.now + RETRANS_TIMER));
    assert_eq!(story.pass(RETRANS_TIMER).frames.len(), 1);
    let effects = story.answered(PEER_MAC);
    assert_eq!((effects.frames.len(), effects.changed), (2, false));
    let (header, _) = ethernet::parse(&effects.frames[0]).unwrap();
    assert_eq!((header.dst, header.src), (PEER_MAC, OUR_MAC));
    assert_eq!(&effects.frames[0][14..], b"payload");
    assert_eq!((story.table.pending(), story.state(PEER.into())), (0, Some(NeighbourState::Reachable)));
    assert_eq!(story.table.lookup(PEER.into()), Some(PEER_MAC));
    assert!(matches!(story.send(PEER.into()), Resolution::Ready(PEER_MAC, _)));
}

#[test]
fn silence_gives_the_packets_up_after_three_requests() {
    let mut story = Story::begin();
    story.send(PEER.into());
    for _ in 1..MAX_SOLICITS {
        assert_eq!(story.pass(RETRANS_TIMER).frames.len(), 1);
    }
    let effects = story.pass(RETRANS_TIMER);
    assert_eq!((effects.frames.len(), effects.unreachable.len()), (0, 1));
    assert_eq!(&*effects.unreachable[0], b"payload");
    assert!(story.table.is_empty() && story.table.next_deadline().is_none());
    assert_eq!(story.counters.dropped(DropReason::NeighbourUnresolved), 1);
}

#[test]
fn reachable_stale_delay_probe_and_back() {
    let mut story = Story::begin();
    story.send(PEER.into());
    story.answered(PEER_MAC);
    let generation = story.table.generation();
    assert!(!story.pass(REACHABLE_TIME / 2 - Duration::from_millis(1)).changed);
    assert!(story.pass(REACHABLE_TIME).changed, "no later than 1.5 times the mean");
    assert_eq!(story.state(PEER.into()), Some(NeighbourState::Stale));
    assert!(story.table.generation() > generation, "cached headers come back through resolve");
    assert_eq!(story.table.lookup(PEER.into()), None);
    assert!(matches!(story.send(PEER.into()), Resolution::Ready(PEER_MAC, _)));
    assert_eq!(story.state(PEER.into()), Some(NeighbourState::Delay));
    assert_eq!(story.table.lookup(PEER.into()), Some(PEER_MAC));
    let probe = story.pass(DELAY_FIRST_PROBE_TIME).frames.remove(0);
    assert_eq!(asks(&probe).0, PEER_MAC, "the first probe goes to the neighbour alone");
    assert_eq!(story.state(PEER.into()), Some(NeighbourState::Probe));
    story.answered(PEER_MAC);
    assert_eq!(story.state(PEER.into()), Some(NeighbourState::Reachable));
}

#[test]
fn a_transport_confirms_without_a_packet() {
    let mut story = Story::begin();
    story.send(PEER.into());
    story.table.confirm(story.now, PEER.into());
    assert_eq!(story.state(PEER.into()), Some(NeighbourState::Incomplete), "there is nothing to confirm yet");
    story.answered(PEER_MAC);
    story.pass(REACHABLE_TIME * 2);
    story.send(PEER.into());
    story.table.confirm(story.now, PEER.into());
    assert_eq!(story.state(PEER.into()), Some(NeighbourState::Reachable));
    assert!(story.pass(DELAY_FIRST_PROBE_TIME).frames.is_empty());
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# The following procedure MUST be used to handle excessive retransmissions of data segments (MUST-20):
#[test]
fn a_transport_that_hears_nothing_has_the_neighbour_asked_unless_another_hears_it() {
    let mut story = Story::begin();
    story.table.suspect(story.now, PEER.into());
    assert!(story.table.is_empty(), "nobody is asked for of whom nothing is known");
    story.send(PEER.into());
    story.answered(PEER_MAC);
    story.pass(Duration::from_secs(1));
    assert!(story.table.suspect(story.now, PEER.into()), "a sender to that address asks");
    assert_eq!(story.table.lookup(PEER.into()), Some(PEER_MAC), "until it is known to be gone it is used");
    assert!(story.pass(Duration::from_secs(3)).frames.is_empty(), "it was heard from a short while ago");
    assert!(story.table.is_in_doubt(PEER.into()));
    story.table.confirm(story.now, PEER.into());
    assert!(story.pass(Duration::from_secs(6)).frames.is_empty(), "another hears it, so it need not be asked");
    assert!(story.table.suspect(story.now, PEER.into()), "now that is longer ago");
    let probe = story.pass(DOUBT_TIME).frames.remove(0);
    assert_eq!(asks(&probe).0, PEER_MAC);
    story.answered(PEER_MAC);
    assert_eq!(story.state(PEER.into()), Some(NeighbourState::Reachable));
    story.table.suspect(story.now, PEER.into());
    story.pass(TRUST_TIME);
    let silence = (0..MAX_SOLICITS).map(|_| story.pass(RETRANS_TIMER).failed).last().unwrap_or_default();
    assert_eq!(silence.as_slice(), [IpAddr::from(PEER)], "and one that is silent is given up");
}

#[test]
fn a_confirmed_address_yields_to_another_only_when_it_is_silent() {
    let mut story = Story::begin();
    story.send(PEER.into());
    story.answered(PEER_MAC);
    let effects = story.arp(Operation::Request, MOVED, PEER, PEER);
    assert!(!effects.changed && story.table.lookup(PEER.into()) == Some(PEER_MAC), "an announcement is not believed");
    let probe = story.pass(Duration::ZERO).frames.remove(0);
    assert_eq!(asks(&probe).0, PEER_MAC, "the old address is asked at once");
    let probe = story.pass(RETRANS_TIMER).frames.remove(0);
    assert_eq!(asks(&probe).0, MacAddr::BROADCAST, "it was silent: everybody is asked");
    let effects = story.answered(MOVED);
    assert!(effects.changed && story.table.lookup(PEER.into()) == Some(MOVED));
}

#[test]
fn an_unconfirmed_address_is_replaced_and_announced_to_caches() {
    let mut story = Story::begin();
    story.arp(Operation::Request, PEER_MAC, PEER, OURS);
    assert_eq!(story.state(PEER.into()), Some(NeighbourState::Stale));
    let generation = story.table.generation();
    assert!(story.arp(Operation::Request, MOVED, PEER, OURS).changed);
    assert!(story.table.generation() > generation);
    assert!(matches!(story.send(PEER.into()), Resolution::Ready(MOVED, _)));
}

#[test]
fn requests_are_answered_and_strangers_answers_create_nothing() {
    let mut story = Story::begin();
    let reply = story.arp(Operation::Request, PEER_MAC, PEER, OURS).frames.remove(0);
    let (to, reply) = asks(&reply);
    let expected = arp::Packet { op: Operation::Reply, sha: OUR_MAC, spa: OURS, tha: PEER_MAC, tpa: PEER };
    assert_eq!((to, reply), (PEER_MAC, expected));
    let stranger = Ipv4Addr::new(10, 0, 0, 77);
    assert!(story.arp(Operation::Reply, MOVED, stranger, OURS).frames.is_empty());
    assert!(story.arp(Operation::Request, MOVED, stranger, PEER).frames.is_empty());
    assert_eq!((story.table.len(), story.counters.dropped(DropReason::ArpNotForUs)), (1, 2));
    let probe = story.arp(Operation::Request, MOVED, Ipv4Addr::UNSPECIFIED, OURS);
    assert_eq!((probe.frames.len(), story.table.len()), (1, 1), "a probe is answered and teaches nothing");
    let off_link = story.arp(Operation::Request, MOVED, Ipv4Addr::new(192, 0, 2, 1), OURS);
    assert_eq!((off_link.frames.len(), story.table.len()), (1, 1));
}

#[test]
fn nonsense_ends_in_a_reason() {
    let mut story = Story::begin();
    let group = MacAddr([3, 0, 0, 0, 0, 2]);
    for (op, mac, spa) in [
        (Operation::Request, group, PEER),
        (Operation::Reply, MacAddr::UNSPECIFIED, PEER),
        (Operation::Request, PEER_MAC, Ipv4Addr::BROADCAST),
        (Operation::Request, PEER_MAC, Ipv4Addr::LOCALHOST),
        (Operation::Other(3), PEER_MAC, PEER),
    ] {
        assert!(story.arp(op, mac, spa, OURS).frames.is_empty());
    }
    assert_eq!((story.counters.dropped(DropReason::ArpBadPacket), story.table.len()), (5, 0));
    assert!(story.arp(Operation::Request, OUR_MAC, PEER, OURS).frames.is_empty(), "our own echo");
}

#[test]
fn our_address_is_defended_once_in_ten_seconds() {
    let mut story = Story::begin();
    let defence = story.arp(Operation::Request, MOVED, OURS, PEER).frames.remove(0);
    let (to, packet) = asks(&defence);
    assert_eq!((to, packet.spa, packet.tpa), (MacAddr::BROADCAST, OURS, OURS));
    assert!(story.arp(Operation::Request, MOVED, OURS, PEER).frames.is_empty());
    story.pass(DEFEND_INTERVAL);
    assert_eq!(story.arp(Operation::Reply, MOVED, OURS, PEER).frames.len(), 1);
    assert_eq!(story.counters.dropped(DropReason::ArpConflict), 3);
}

#[test]
fn groups_and_broadcasts_need_no_question() {
    let mut story = Story::begin();
    for (to, mac) in [
        ("224.0.0.251", MacAddr([1, 0, 0x5e, 0, 0, 251])),
        ("10.0.0.255", MacAddr::BROADCAST),
        ("ff02::1", MacAddr([0x33, 0x33, 0, 0, 0, 1])),
    ] {
        assert!(matches!(story.send(ip(to)), Resolution::Ready(found, _) if found == mac), "{to}");
    }
    assert!(story.table.is_empty());
}

#[test]
fn solicitations_go_to_the_group_of_the_target_and_adverts_answer_them() {
    let mut story = Story::begin();
    let Resolution::Queued { solicit: Some(frame) } = story.send(PEER6.into()) else { panic!("a solicitation") };
    // The peer receives the solicitation through its own input and answers, and we receive the answer through ours.
    let peer = InterfaceView::new(0, PEER_MAC, 1500).with_address(PEER6.into(), 64).unwrap();
    let Input::Icmp(datagram) = input::ethernet(frame, &peer, &story.counters) else { panic!("ICMP") };
    let group = wire::ipv6::solicited_node(PEER6);
    assert_eq!(parts(&datagram), (OURS6.into(), group.into(), 255));
    let ReceivedIcmp::Neighbour(asked) = icmp::receive(datagram, &peer, &story.counters) else { panic!("discovery") };
    let mut theirs = NeighbourTable::new(2);
    let answer = theirs.discovery_arrives(story.now, &peer, &asked, &story.counters).frames.remove(0);
    assert_eq!(theirs.entries().next().map(|e| (e.0, e.2)), Some((OURS6.into(), NeighbourState::Stale)));
    let Input::Icmp(datagram) = input::ethernet(answer, &story.view, &story.counters) else { panic!("ICMP") };
    let ReceivedIcmp::Neighbour(told) = icmp::receive(datagram, &story.view, &story.counters) else { panic!("advert") };
    let effects = story.table.discovery_arrives(story.now, &story.view, &told, &story.counters);
    assert_eq!(effects.frames.len(), 1);
    assert_eq!(
        (story.table.lookup(PEER6.into()), story.state(PEER6.into())),
        (Some(PEER_MAC), Some(NeighbourState::Reachable))
    );
}

#[test]
fn adverts_follow_the_flags() {
    // Held address, solicited, override, advertised address -> address held after, state.
    let table = [
        (true, true, MOVED, MOVED, NeighbourState::Reachable),
        (false, true, MOVED, MOVED, NeighbourState::Stale),
        (true, false, MOVED, PEER_MAC, NeighbourState::Stale),
        (false, false, PEER_MAC, PEER_MAC, NeighbourState::Reachable),
        (true, false, PEER_MAC, PEER_MAC, NeighbourState::Reachable),
    ];
    for (solicited, override_flag, told, held, state) in table {
        let mut story = Story::begin();
        story.send(PEER6.into());
        story.discovery(PEER6, advert(PEER_MAC, true, true), 255);
        story.discovery(PEER6, advert(told, solicited, override_flag), 255);
        let found = story.table.entries().next().unwrap();
        assert_eq!((found.1, found.2), (Some(held), state), "S={solicited} O={override_flag} {told}");
    }
}

#[test]
fn adverts_from_beyond_the_link_or_unasked_for_have_no_effect() {
    let mut story = Story::begin();
    story.discovery(PEER6, advert(PEER_MAC, true, true), 255);
    assert!(story.table.is_empty(), "nobody asked");
    story.send(PEER6.into());
    story.discovery(PEER6, advert(PEER_MAC, true, true), 254);
    assert_eq!(story.state(PEER6.into()), Some(NeighbourState::Incomplete), "a router forwarded it");
    assert_eq!(story.counters.dropped(DropReason::NeighbourBadAdvert), 1);
}

#[test]
fn address_detection_is_answered_to_all_nodes() {
    let mut story = Story::begin();
    let unspecified = core::net::Ipv6Addr::UNSPECIFIED;
    let question = Message::NeighbourSolicit { target: OURS6, source: None };
    let group = wire::ipv6::solicited_node(OURS6);
    let asked = discovery(unspecified, group, question, 255).unwrap();
    let effects = story.table.discovery_arrives(story.now, &story.view, &asked, &story.counters);
    let (header, _) = ethernet::parse(&effects.frames[0]).unwrap();
    assert_eq!((header.dst, story.table.len()), (MacAddr([0x33, 0x33, 0, 0, 0, 1]), 0));
}

#[test]
fn queues_are_bounded_for_one_neighbour_and_for_all() {
    let mut story = Story::begin();
    for _ in 0..MAX_PENDING_PER_NEIGHBOUR + 4 {
        story.send(PEER.into());
    }
    assert_eq!(story.table.pending(), MAX_PENDING_PER_NEIGHBOUR);
    assert_eq!(story.counters.dropped(DropReason::NeighbourQueueFull), 4);
    // Full frames to a whole subnet that does not answer: the memory is bounded.
    let mut refused = 0;
    for host in 10..200 {
        for _ in 0..4 {
            let packet = PktBuf::from_slice(&[0; 1400]).unwrap();
            let next_hop = Ipv4Addr::new(10, 0, 0, host).into();
            let resolution = story.table.resolve(story.now, &story.view, next_hop, packet, &story.counters);
            refused += usize::from(matches!(resolution, Resolution::Dropped(DropReason::NeighbourQueueFull)));
            assert!(story.table.pending_bytes() <= MAX_PENDING_BYTES);
        }
    }
    assert!(refused > 100 && story.table.pending() > 200, "{refused} of 760 refused, {} wait", story.table.pending());
    // All are given up in the end, and the counters balance.
    (0..5).for_each(|_| drop(story.pass(RETRANS_TIMER)));
    assert_eq!((story.table.pending(), story.table.pending_bytes(), story.table.len()), (0, 0, 0));
}

/// Handshakes with senders that do not exist cause many resolutions: a neighbour that answered recently stays.
#[test]
fn a_flood_of_made_up_destinations_displaces_no_confirmed_neighbour() {
    let mut story = Story::begin();
    story.view = InterfaceView::new(0, OUR_MAC, 1500).with_address(OURS.into(), 8).unwrap();
    story.send(PEER.into());
    story.answered(PEER_MAC);
    story.pass(REACHABLE_TIME * 2);
    assert_eq!(story.state(PEER.into()), Some(NeighbourState::Stale));
    for n in 0..100_000u32 {
        story.send(Ipv4Addr::from_bits(0x0a64_0000 + n).into());
        if n % 1000 == 0 {
            story.pass(Duration::from_millis(100));
        }
        assert!(story.table.len() <= CAPACITY && story.table.pending_bytes() <= MAX_PENDING_BYTES);
    }
    assert_eq!(story.state(PEER.into()), Some(NeighbourState::Stale), "an established peer, idle for a minute");
    assert!(matches!(story.send(PEER.into()), Resolution::Ready(PEER_MAC, _)));
}

#[test]
fn a_flood_of_strangers_displaces_strangers_only() {
    let mut story = Story::begin();
    story.view = InterfaceView::new(0, OUR_MAC, 1500).with_address(OURS.into(), 8).unwrap();
    story.send(PEER.into());
    story.answered(PEER_MAC);
    story.pass(REACHABLE_TIME * 2);
    let wanted = Ipv4Addr::new(10, 9, 9, 9);
    story.send(wanted.into());
    for n in 0..2000u32 {
        let stranger = Ipv4Addr::from_bits(0x0a64_0000 + n);
        let effects = story.arp(Operation::Request, MOVED, stranger, OURS);
        assert_eq!(effects.frames.len(), 1, "everybody is answered");
    }
    assert_eq!(story.table.len(), CAPACITY);
    assert_eq!(story.state(PEER.into()), Some(NeighbourState::Stale), "once confirmed, never displaced by strangers");
    assert_eq!(story.state(wanted.into()), Some(NeighbourState::Incomplete));
    assert!(matches!(story.send(Ipv4Addr::new(10, 8, 8, 8).into()), Resolution::Queued { .. }), "we find room");
}

#[test]
fn a_family_without_a_source_address_cannot_be_asked_for() {
    let mut story = Story::begin();
    story.view = InterfaceView::new(0, OUR_MAC, 1500);
    assert!(matches!(story.send(PEER.into()), Resolution::Dropped(DropReason::NoSourceAddress)));
}

/// Three seconds into the grace senders must resolve again; a confirmation by one of them avoids the probe.
#[test]
fn before_a_neighbour_is_asked_its_users_are() {
    for confirmed in [false, true] {
        let mut story = Story::begin();
        story.send(PEER.into());
        story.answered(PEER_MAC);
        story.pass(REACHABLE_TIME * 2);
        story.send(PEER.into());
        let generation = story.table.generation();
        assert!(!story.table.is_in_doubt(PEER.into()) && !story.pass(Duration::from_secs(2)).changed);
        assert!(story.pass(Duration::from_secs(1)).changed && story.table.is_in_doubt(PEER.into()));
        assert!(story.table.generation() > generation && story.table.lookup(PEER.into()) == Some(PEER_MAC));
        if confirmed {
            story.table.confirm(story.now, PEER.into());
            assert!(!story.table.is_in_doubt(PEER.into()));
        }
        let asked = story.pass(DOUBT_TIME).frames.len();
        assert_eq!(
            (asked, story.state(PEER.into())),
            match confirmed {
                true => (0, Some(NeighbourState::Reachable)),
                false => (1, Some(NeighbourState::Probe)),
            }
        );
    }
}
