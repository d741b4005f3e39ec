//! A whole stack with address autoconfiguration: addresses are tested before use, formed from router advertisements,
//! given up when contested; and redirects.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ip::autoconf::AddressEvent;
use observe::{Counter, DropReason};
use stack::call::{Call, Reply};
use stack::socket::{ListenerShared, Readiness};
use stack::{Addressing, Architecture};
use sync::Real;
use testbed::frames::{
    Ends, Frame, PEER, PEER_MAC, Packet, Payload, STACK, STACK_MAC, Segment, is_arp, neighbour_discovery, tcp_of,
};
use testbed::node::{Node, NodeConfig};
use wire::arp::{self, Operation};
use wire::ethernet::{self, EtherType, MacAddr};
use wire::icmpv6::{Message, PrefixInfo, RouterAdvert};
use wire::tcp::TcpFlags;
use wire::{icmpv4, icmpv6, ipv6, protocol};

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xff);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// A peer beyond the router.
const FAR: Ipv6Addr = Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 9);
const STEP: Duration = Duration::from_millis(50);

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The address that the stack forms in 2001:db8:1::/64 from its link address.
fn formed() -> Ipv6Addr {
    let own = ip::interface::link_local_from(STACK_MAC);
    Ipv6Addr::from_bits(0x2001_0db8_0001_0000 << 64 | own.to_bits() & u128::from(u64::MAX))
}

fn advert(lifetime: u16) -> Vec<u8> {
    let mut advert = RouterAdvert { router_lifetime: lifetime, source: Some(PEER_MAC), ..RouterAdvert::default() };
    let prefix = PrefixInfo {
        prefix: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0),
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime: 7200,
        preferred_lifetime: 3600,
    };
    assert!(advert.prefixes.push(prefix));
    neighbour_discovery(ROUTER, ALL_NODES, &Message::RouterAdvert(advert))
}

/// A SYN over IPv6.
fn syn(src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
    Segment::syn(5000, 80).frame_over(Ends::PEER_TO_STACK_V6.from(src).to(dst))
}

/// A gratuitous reply: `sha` claims `spa`.
fn claim(sha: MacAddr, spa: Ipv4Addr) -> Vec<u8> {
    let packet = arp::Packet { op: Operation::Reply, sha, spa, tha: STACK_MAC, tpa: spa };
    Frame::new(sha, MacAddr::BROADCAST, packet).bytes()
}

fn discovered(frame: &[u8]) -> Option<(Ipv6Addr, Message)> {
    let (header, at) = ethernet::parse(frame).ok()?;
    let ip = (header.ethertype == EtherType::Ipv6).then(|| ipv6::parse(&frame[at..]).ok())??;
    let message = &frame[at + ipv6::HEADER_LEN..];
    (ip.next_header == protocol::ICMPV6).then(|| icmpv6::parse(message, ip.src, ip.dst).ok())?.map(|m| (ip.dst, m))
}

/// Lets time pass without answering; returns the frames that the stack sent.
fn listen(node: &mut Node<Real>, span: Duration) -> Vec<Vec<u8>> {
    let (mut sent, end) = (node.settle(), node.clock.now() + span);
    while node.clock.now() < end {
        node.clock.advance(STEP);
        sent.extend(node.settle());
    }
    sent
}

fn node(addresses: Vec<(IpAddr, u8)>, addressing: Addressing) -> Node<Real> {
    Node::new(NodeConfig { addresses, addressing, ..NodeConfig::new(Architecture::named("connp-l:4")) })
}

#[test]
fn an_interface_without_addresses_gets_them_from_its_router() {
    let mut node = node(Vec::new(), Addressing { from_routers: true, ..Addressing::default() });
    let _listener = node.listen(80, 8);
    let sent = listen(&mut node, Duration::from_secs(4));
    let asked =
        sent.iter().filter_map(|frame| discovered(frame)).any(|(_, m)| matches!(m, Message::RouterSolicit { .. }));
    assert!(asked, "routers are asked");
    assert!(node.exchange(&syn(FAR, formed())).is_empty(), "not an address yet");
    node.put(&advert(1800));
    node.settle();
    assert!(node.exchange(&syn(FAR, formed())).is_empty(), "under test");
    let sent = listen(&mut node, Duration::from_secs(3));
    let group = ipv6::solicited_node(formed());
    let test = Message::NeighbourSolicit { target: formed(), source: None };
    assert!(sent.iter().filter_map(|frame| discovered(frame)).any(|found| found == (group, test)), "it is tested");
    let events: Vec<AddressEvent> = node.stack.shared().addresses().take_events().into_iter().map(|(_, e)| e).collect();
    assert!(events.contains(&AddressEvent::Assigned(formed().into())), "{events:?}");

    // The answer to the far peer first resolves the router's link address, and then leaves through it.
    let sent = node.exchange(&syn(FAR, formed()));
    let (_, question) = sent.iter().find_map(|frame| discovered(frame)).expect("a solicitation");
    assert!(matches!(question, Message::NeighbourSolicit { target, .. } if target == ROUTER), "{question:?}");
    let reply = Message::NeighbourAdvert {
        target: ROUTER,
        target_mac: Some(PEER_MAC),
        router: true,
        solicited: true,
        override_flag: true,
    };
    let own = ip::interface::link_local_from(STACK_MAC);
    let sent = node.exchange(&neighbour_discovery(ROUTER, own, &reply));
    let (header, _) = sent.iter().find_map(|frame| tcp_of(frame)).expect("the SYN-ACK");
    assert!(header.flags.contains(TcpFlags::SYN | TcpFlags::ACK));
    assert_eq!(node.stack.stats().counters.get(Counter::RouterAdvertsIn), 0, "the driver counts what it hears");
    assert_eq!(node.driver.counters().get(Counter::RouterAdvertsIn), 1);
}

#[test]
fn a_configured_address_is_used_when_it_was_found_free() {
    let checked = || Addressing { checked: true, ..Addressing::default() };
    let mut node = node(vec![(STACK.into(), 24)], checked());
    let _listener = node.listen(80, 8);
    assert!(node.exchange(&Segment::syn(3000, 80).frame()).iter().all(|frame| tcp_of(frame).is_none()), "under test");
    let sent = listen(&mut node, Duration::from_secs(9));
    assert_eq!(sent.iter().filter(|frame| is_arp(frame)).count(), 5, "three probes, two announcements");
    node.put(&testbed::frames::arp_request());
    let answers = node.exchange(&Segment::syn(3000, 80).frame());
    assert!(answers.iter().any(|frame| tcp_of(frame).is_some()));

    // Another host claims it: defended once, then given up.
    let other = MacAddr([2, 0, 0, 0, 0, 0x77]);
    node.put(&claim(other, STACK));
    assert_eq!(node.settle().iter().filter(|frame| is_arp(frame)).count(), 1, "the defence");
    node.put(&claim(other, STACK));
    assert!(node.settle().is_empty());
    let events: Vec<_> = node.stack.shared().addresses().take_events().into_iter().map(|(_, e)| e).collect();
    let lost = AddressEvent::Conflict { address: STACK.into(), by: Some(other), lost: true };
    assert_eq!(events.last(), Some(&lost));
    assert!(node.exchange(&Segment::syn(3001, 80).frame()).is_empty(), "no longer ours");
}

#[test]
fn a_static_address_is_used_at_once_and_a_claim_is_reported() {
    let mut node = node(vec![(STACK.into(), 24)], Addressing::default());
    assert!(node.settle().is_empty(), "nothing is sent unasked");
    node.put(&advert(1800));
    assert!(node.settle().is_empty());
    assert_eq!(node.driver.counters().dropped(DropReason::RouterAdvertIgnored), 1);
    assert_eq!(node.stack.shared().links().view(0).addresses().count(), 2, "link-local and its own");
}

#[test]
fn redirects_lead_along_the_link_and_ipv4_ones_only_where_wanted() {
    for redirects_v4 in [false, true] {
        let addressing = Addressing { redirects_v4, ..Addressing::default() };
        let gateways = vec![IpAddr::V4(PEER), IpAddr::V6(ROUTER)];
        let mut node = Node::<Real>::with_known_peer(NodeConfig {
            addressing,
            gateways,
            ..NodeConfig::new(Architecture::named("up"))
        });
        let hop = |node: &Node<Real>, to: IpAddr| {
            node.stack.shared().routes().lookup(node.stack.shared().links(), to).map(|(_, hop)| hop)
        };
        let far: Ipv4Addr = "192.0.2.1".parse().expect("an address");
        // The quoted packet is one from the stack to the far host.
        let quoted = Packet::new(STACK, far, Payload::Other(protocol::UDP, &[0; 8])).bytes();
        let better = Ipv4Addr::new(10, 0, 0, 3);
        node.put(&redirect_v4(better, &quoted));
        node.settle();
        let expected = if redirects_v4 { better } else { PEER };
        assert_eq!(hop(&node, far.into()), Some(expected.into()));

        let target = ip("fe80::3");
        let IpAddr::V6(six) = target else { unreachable!("it was written so") };
        let own = ip::interface::link_local_from(STACK_MAC);
        let better = Message::Redirect { target: six, destination: FAR, target_mac: None };
        node.put(&neighbour_discovery(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xbad), own, &better));
        node.settle();
        assert_eq!(hop(&node, FAR.into()), Some(ROUTER.into()), "not from the router in use");
        node.put(&neighbour_discovery(ROUTER, own, &better));
        node.settle();
        assert_eq!(hop(&node, FAR.into()), Some(target));
        listen(&mut node, Duration::from_secs(1));
        node.clock.advance(ip::redirect::LIFETIME);
        node.settle();
        assert_eq!(hop(&node, FAR.into()), Some(ROUTER.into()), "for ten minutes");
    }
}

fn redirect_v4(better: Ipv4Addr, quoted: &[u8]) -> Vec<u8> {
    let mut body = vec![0; icmpv4::HEADER_LEN];
    body.extend_from_slice(quoted);
    icmpv4::Message::Redirect { code: 1, gateway: better }.emit(&mut body);
    Ends::PEER_TO_STACK.bytes(Payload::Other(protocol::ICMP, &body))
}

/// A stack that has checked these addresses, and listens at port 80.
fn listening_at(arch: Architecture, addresses: &[Ipv4Addr]) -> (Node<Real>, Arc<ListenerShared<Real>>) {
    let mut node = Node::<Real>::with_known_peer(NodeConfig {
        addresses: addresses.iter().map(|address| ((*address).into(), 24)).collect(),
        addressing: Addressing { checked: true, ..Addressing::default() },
        ..NodeConfig::new(arch)
    });
    let listener = node.listen(80, 8);
    listen(&mut node, Duration::from_secs(9));
    node.put(&testbed::frames::arp_request());
    node.settle();
    (node, listener)
}

/// The connections and handshakes of an address that is given up end; nothing is sent from it any more.
#[test]
fn connections_from_an_address_that_is_given_up_end() {
    for arch in ["up", "connp-l:4", "msgp:2"].map(|name| name.parse::<Architecture>().expect("a plan")) {
        let (mut node, listener) = listening_at(arch, &[STACK]);
        let syn = Segment::syn(3000, 80);
        let (answer, _) = node.exchange(&syn.frame()).iter().find_map(|frame| tcp_of(frame)).expect("a SYN-ACK");
        let ack = Segment { flags: TcpFlags::ACK, seq: answer.ack.0, ack: answer.seq.0.wrapping_add(1), ..syn };
        node.put(&ack.frame());
        node.settle();
        // One more handshake, which is never completed.
        node.exchange(&Segment::syn(3001, 80).frame());
        assert_eq!(node.stack.stats().connections, 2, "{arch:?}");
        let other = MacAddr([2, 0, 0, 0, 0, 0x77]);
        node.put(&claim(other, STACK));
        node.settle();
        node.put(&claim(other, STACK));
        assert!(node.settle().iter().all(|frame| tcp_of(frame).is_none()), "{arch:?}");
        let child = listener.accept().expect("it was established before");
        assert!(child.ready.get().contains(Readiness::ERROR | Readiness::CLOSED), "{arch:?}");
        let failure = node.call(&child, Call::TakeError(tcp::TakeError));
        assert!(matches!(failure, Reply::Failure(Some(tcp::Error::NetworkDown))), "{arch:?}");
        // The connection waits for its user; nothing else is left, and nothing more is sent.
        assert_eq!(node.stack.stats().connections, 1, "{arch:?}");
        assert!(listen(&mut node, Duration::from_secs(9)).iter().all(|frame| tcp_of(frame).is_none()), "{arch:?}");
    }
}

/// Only the connections of the address that is given up end, wherever they are kept.
#[test]
fn connections_from_other_addresses_go_on() {
    let second = Ipv4Addr::new(10, 0, 0, 7);
    for arch in ["up", "connp-l:4", "msgp:2"].map(|name| name.parse::<Architecture>().expect("a plan")) {
        for given_up in [STACK, second] {
            let (mut node, listener) = listening_at(arch, &[STACK, second]);
            let children = [STACK, second].map(|address| {
                let ends = Ends::PEER_TO_STACK.to(address);
                let syn = Segment::syn(3000, 80);
                let answers = node.exchange(&syn.frame_over(ends));
                let (answer, _) = answers.iter().find_map(|frame| tcp_of(frame)).expect("a SYN-ACK");
                let ack = Segment { flags: TcpFlags::ACK, seq: answer.ack.0, ack: answer.seq.0.wrapping_add(1), ..syn };
                node.put(&ack.frame_over(ends));
                node.settle();
                (address, listener.accept().expect("it is established"))
            });
            let source = |node: &Node<Real>| {
                let opened = node.stack.connect(None, SocketAddr::new(PEER.into(), 9), &Default::default());
                opened.map(|socket| socket.tuple().local_addr)
            };
            assert_eq!(source(&node), Ok(STACK.into()), "{arch:?}");
            for _ in 0..2 {
                node.put(&claim(MacAddr([2, 0, 0, 0, 0, 0x77]), given_up));
                node.settle();
            }
            let left = if given_up == STACK { second } else { STACK };
            assert_eq!(source(&node), Ok(left.into()), "{arch:?}: {given_up} is given up");
            for (address, child) in &children {
                let has_ended = child.ready.get().contains(Readiness::ERROR | Readiness::CLOSED);
                assert_eq!(has_ended, *address == given_up, "{arch:?}: {address}, where {given_up} is given up");
            }
        }
    }
}
