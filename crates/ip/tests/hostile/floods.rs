//! T8, T9, R7: errors under flood, identifications without information, and the neighbour table under a million unknown
//! senders.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use frames::{Frame, Payload};
use ip::neighbour::{CAPACITY, NeighbourState};
use ip::output::{self, Fragmentation, Identifications};
use ip::{ErrorKind, PerDestination, Resolution, icmp};
use observe::DropReason;
use pktbuf::PktBuf;
use wire::arp::{self, Operation};
use wire::ethernet::MacAddr;
use wire::icmpv6::Message;
use wire::{ipv4, ipv6, protocol};

use super::host::*;

/// Twenty thousand datagrams a second to an unbound port: at most a thousand errors in any second, at most a quarter of
/// them to one sender; the number is randomised, and an error is no longer than its cause.
#[test]
fn errors_under_flood() {
    let mut host = Host::new();
    let cause = frame(false, protocol::UDP, &udp(false, 100));
    let mut seconds = Vec::new();
    for (stations, most) in [(1, 250), (8, 1000), (8, 1000), (8, 1000)] {
        host.limit = PerDestination::errors(99);
        let mut sent = 0;
        for n in 0..20_000 {
            host.now += Duration::from_micros(50);
            let buffer = PktBuf::from_slice(&cause).expect("a buffer");
            let ip::Input::Udp(mut datagram) = ip::input::ethernet(buffer, &host.view, &host.counters) else {
                panic!("a datagram")
            };
            datagram.src = Ipv4Addr::from_bits(0x0a09_0000 + n % stations).into();
            let kind = ErrorKind::PortUnreachable;
            let error = icmp::error(&datagram, kind, &host.view, &mut host.limit, host.now);
            if let Ok(error) = error {
                assert!(error.len() <= cause.len() - L3, "{} bytes about {}", error.len(), cause.len() - L3);
                sent += 1;
            }
        }
        assert!((most * 4 / 5..=most).contains(&sent), "{sent} in a second to {stations}");
        seconds.push(sent);
    }
    assert_eq!(seconds.len(), 4);
}

/// An atomic packet has identification zero (RFC 6864); one that may be fragmented has one that reveals nothing about
/// others.
#[test]
fn identifications_tell_nothing() {
    let mut atomic = PktBuf::from_slice(b"segment").expect("a buffer");
    output::ipv4_header(&mut atomic, OURS, PEER, protocol::TCP, 0, 64, Fragmentation::Never);
    let header = ipv4::parse(&atomic).expect("a header");
    assert_eq!((header.ident, header.dont_fragment), (0, true));

    // An observer at one address watches its own sequence while we send to another: it sees no gaps.
    let mut identifications = Identifications::new(0x1234_5678_9abc_def0);
    let mut next = |dst: Ipv4Addr| identifications.next(OURS.into(), dst.into(), protocol::UDP) as u16;
    let observer = Ipv4Addr::new(203, 0, 113, 5);
    let mut last = next(observer);
    for n in 0..2000u32 {
        // If the observer shares a counter with another address, one in a thousand, the step is two.
        let _ = next(Ipv4Addr::from_bits(0x0a00_0000 + n % 50));
        let now = next(observer);
        assert!(now.wrapping_sub(last) <= 2, "{last} {now}");
        last = now;
    }
    // First identifications of many destinations, as an observer would collect them: they have no pattern.
    let firsts: Vec<u16> = (0..4096u32).map(|n| next(Ipv4Addr::from_bits(0xc000_0000 + n))).collect();
    let mut buckets = [0u32; 64];
    firsts.iter().for_each(|ident| buckets[usize::from(ident >> 10)] += 1);
    let chi: f64 = buckets.iter().map(|n| (f64::from(*n) - 64.0).powi(2) / 64.0).sum();
    // 63 degrees of freedom: 103.4 at p = 0.001.
    assert!(chi < 103.4, "{chi}");
    let neighbours = firsts.windows(2).filter(|pair| pair[1].wrapping_sub(pair[0]) <= 8).count();
    assert!(neighbours < 20, "{neighbours} of 4095 follow each other");
}

fn arp_frame(op: Operation, sha: MacAddr, spa: Ipv4Addr) -> Vec<u8> {
    Frame::new(sha, OUR_MAC, arp::Packet { op, sha, spa, tha: OUR_MAC, tpa: OURS }).bytes()
}

fn discovery(src: Ipv6Addr, dst: Ipv6Addr, message: &Message, hop_limit: u8) -> Vec<u8> {
    let mut bytes = vec![0; message.header_len()];
    message.emit(src, dst, &mut bytes);
    let ends = ends(true).from(src).to(dst);
    let packet = ends.packet(Payload::Other(protocol::ICMPV6, &bytes));
    ends.frame(frames::Packet { ttl: hop_limit, ..packet }).bytes()
}

fn state(host: &Host, address: IpAddr) -> Option<(Option<MacAddr>, NeighbourState)> {
    host.neighbours.entries().find(|(a, ..)| *a == address).map(|(_, mac, state)| (mac, state))
}

/// We talk to the peer, so it is in the table and confirmed.
fn befriend(host: &mut Host) {
    let packet = PktBuf::from_slice(b"to the peer").expect("a buffer");
    let asked = host.neighbours.resolve(host.now, &host.view, PEER.into(), packet, &host.counters);
    assert!(matches!(asked, Resolution::Queued { solicit: Some(_) }));
    host.takes(&arp_frame(Operation::Reply, PEER_MAC, PEER));
    assert_eq!(state(host, PEER.into()), Some((Some(PEER_MAC), NeighbourState::Reachable)));
}

#[test]
fn a_million_spoofed_requests() {
    balanced(|| {
        let mut host = Host::new();
        befriend(&mut host);
        let group = ipv6::solicited_node(OURS6);
        for n in 0..500_000u32 {
            let mac = MacAddr([2, 9, (n >> 24) as u8, (n >> 16) as u8, (n >> 8) as u8, n as u8]);
            host.takes(&arp_frame(Operation::Request, mac, Ipv4Addr::from_bits(0x0a10_0000 + n)));
            let src = Ipv6Addr::from_bits(OURS6.to_bits() + 100 + u128::from(n));
            let asks = Message::NeighbourSolicit { target: OURS6, source: Some(mac) };
            host.takes(&discovery(src, group, &asks, 255));
            if n % 10_000 == 0 {
                host.now += Duration::from_secs(1);
                host.neighbours.timeouts(host.now, &host.counters);
                assert!(host.neighbours.len() <= CAPACITY);
                assert_eq!(state(&host, PEER.into()).map(|found| found.0), Some(Some(PEER_MAC)), "the peer stays");
            }
        }
        assert!(host.neighbours.len() <= CAPACITY && host.neighbours.pending() == 0);
        still_lives(&mut host);
    });
}

#[test]
fn what_nobody_asked_for_creates_nothing_and_moves_nobody() {
    balanced(|| {
        let mut host = Host::new();
        befriend(&mut host);
        let thief = MacAddr([2, 0, 0, 0, 0, 66]);
        for n in 0..3000u32 {
            host.takes(&arp_frame(Operation::Reply, thief, Ipv4Addr::from_bits(0x0a20_0000 + n)));
            let target = Ipv6Addr::from_bits(OURS6.to_bits() + 5000 + u128::from(n));
            let told = Message::NeighbourAdvert {
                target,
                target_mac: Some(thief),
                router: false,
                solicited: n % 2 == 0,
                override_flag: true,
            };
            host.takes(&discovery(target, OURS6, &told, 255));
        }
        assert_eq!(host.neighbours.len(), 1, "the peer alone");
        // A gratuitous reply does not overwrite a confirmed neighbour; the old address is probed first.
        host.takes(&arp_frame(Operation::Reply, thief, PEER));
        let (mac, now) = state(&host, PEER.into()).expect("the peer");
        assert_eq!((mac, now), (Some(PEER_MAC), NeighbourState::Probe));
        host.neighbours.timeouts(host.now, &host.counters);
        host.takes(&arp_frame(Operation::Reply, PEER_MAC, PEER));
        assert_eq!(state(&host, PEER.into()), Some((Some(PEER_MAC), NeighbourState::Reachable)));
    });
}

#[test]
fn discovery_from_beyond_the_link_is_dropped() {
    let mut host = Host::new();
    let packet = PktBuf::from_slice(b"to the peer").expect("a buffer");
    host.neighbours.resolve(host.now, &host.view, PEER6.into(), packet, &host.counters);
    let told = Message::NeighbourAdvert {
        target: PEER6,
        target_mac: Some(PEER_MAC),
        router: false,
        solicited: true,
        override_flag: true,
    };
    for hop_limit in [0, 1, 64, 254] {
        host.takes(&discovery(PEER6, OURS6, &told, hop_limit));
    }
    assert_eq!(host.counters.dropped(DropReason::NeighbourBadAdvert), 4);
    assert_eq!(state(&host, PEER6.into()).map(|found| found.1), Some(NeighbourState::Incomplete));
    host.takes(&discovery(PEER6, OURS6, &told, 255));
    assert_eq!(state(&host, PEER6.into()), Some((Some(PEER_MAC), NeighbourState::Reachable)));
}
