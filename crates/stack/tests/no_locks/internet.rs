//! The thread that owns the stack uses the tables of IP without locks, too: the first packet to a neighbour, its
//! resolution, fragments, ICMP, limits and timers. Another thread that changes a table sends one message.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use every_arch::every_arch;
use pktbuf::PktBuf;
use stack::socket::{Readiness, UdpShared};
use stack::{AddressEvent, Addressing, Architecture};
use sync::LockClass;
use testbed::counting::{Counting, Spent, spent};
use testbed::frames::{
    Body, Datagram, Ends, Icmp, PEER_MAC, Packet, Payload, STACK, STACK6, Segment, arp, neighbour_discovery, tcp_of,
};
use testbed::limit::HANG;
use testbed::node::{Node, NodeConfig, send};
use wire::arp::Operation;
use wire::ethernet::{self, EtherType, MacAddr};
use wire::icmpv6::Message;

use super::{Echo, PORT, WARM, datagram_round, node};

const L3: usize = ethernet::HEADER_LEN;

/// Processes a frame; returns the frames that the stack sent.
fn free_of_charge(node: &mut Node<Counting>, frame: &[u8]) -> Vec<Vec<u8>> {
    node.put(frame);
    let (taken, spent) = spent(|| node.driver.poll());
    assert_eq!((taken, spent), (1, Spent::NOTHING));
    node.settle()
}

fn payload(len: usize) -> PktBuf {
    PktBuf::from_slice(&vec![7; len]).expect("a packet buffer")
}

/// A host that the stack has not heard of.
fn stranger(ends: Ends, n: u8) -> Ends {
    match ends.src {
        IpAddr::V4(_) => ends.from(Ipv4Addr::new(10, 0, 0, 100 + n)),
        IpAddr::V6(_) => ends.from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, n.into())),
    }
}

/// The answer to a request for the link address of `host`, or the request if the stack is to answer.
fn link_address_of(host: Ends, op: Operation) -> Vec<u8> {
    claim_of(host, op, PEER_MAC)
}

/// The same, of a host with this link address.
fn claim_of(host: Ends, op: Operation, mac: MacAddr) -> Vec<u8> {
    match (host.src, op) {
        (IpAddr::V4(host), _) => arp(op, mac, host),
        (IpAddr::V6(host), Operation::Request) => {
            neighbour_discovery(host, STACK6, &Message::NeighbourSolicit { target: STACK6, source: Some(mac) })
        }
        (IpAddr::V6(host), _) => {
            let (router, solicited, override_flag, target_mac) = (false, true, true, Some(mac));
            let advert = Message::NeighbourAdvert { target: host, router, solicited, override_flag, target_mac };
            neighbour_discovery(host, STACK6, &advert)
        }
    }
}

/// The frames of a packet that routers have cut for a path of 1,000 bytes.
fn in_pieces<'a>(ends: Ends, payload: impl Into<Payload<'a>>, ident: u32) -> Vec<Vec<u8>> {
    let ethertype = if ends.src.is_ipv4() { EtherType::Ipv4 } else { EtherType::Ipv6 };
    let pieces = ends.packet(payload).pieces(ident, 1000);
    pieces.iter().map(|piece| ends.frame(Body::Other(ethertype, piece)).bytes()).collect()
}

fn bound(node: &Node<Counting>, ends: Ends) -> std::sync::Arc<UdpShared<Counting>> {
    node.stack.bind_udp(SocketAddr::new(ends.dst, PORT)).expect("the port is free")
}

/// RFC 826, RFC 4861 section 7.2.2: the packet waits in the queue of its neighbour, which is solicited, solicited again
/// after a second, answers, and is sent what waits.
#[every_arch(only(up))]
fn the_first_packet_to_a_neighbour_and_its_resolution_take_no_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let socket = bound(&node, ends);
        for n in 0..4 {
            let host = stranger(ends, n);
            let send = || node.stack.send_udp(&socket, payload(100), Some(SocketAddr::new(host.src, 9)));
            assert_eq!(spent(send), (Ok(100), Spent::NOTHING));
            assert_eq!(node.settle().len(), 1, "a solicitation");
            node.clock.advance(Duration::from_millis(1001));
            let (_, spent) = spent(|| node.driver.poll());
            assert_eq!(spent, Spent::NOTHING);
            assert_eq!(node.settle().len(), 1, "a second solicitation");
            let sent = free_of_charge(&mut node, &link_address_of(host, Operation::Reply));
            assert!(sent.len() == 1 && sent[0].ends_with(&[7; 100]), "the datagram: {sent:?}");
        }
    }
}

#[every_arch(only(up))]
fn a_request_for_the_link_address_is_answered_without_a_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        for n in 0..4 {
            let sent = free_of_charge(&mut node, &link_address_of(stranger(ends, n), Operation::Request));
            assert_eq!(sent.len(), 1, "the answer");
        }
    }
}

/// RFC 826, RFC 4861 section 7.2.5: a neighbour has another link address, and the next datagram goes there. An ARP
/// packet, which has no override flag, is accepted only if the neighbour was not confirmed recently.
#[every_arch(only(up))]
fn an_advertisement_that_changes_a_neighbours_link_address_takes_no_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let socket = bound(&node, ends);
        drop(datagram_round(&mut node, &socket, ends));
        if ends.src.is_ipv4() {
            node.pass(Duration::from_secs(60), Duration::from_secs(1));
        }
        let mac = MacAddr([2, 0, 0, 0, 1, 1]);
        free_of_charge(&mut node, &claim_of(ends, Operation::Reply, mac));
        let send = || node.stack.send_udp(&socket, payload(100), Some(SocketAddr::new(ends.src, 2000)));
        assert_eq!(spent(send), (Ok(100), Spent::NOTHING));
        let sent = node.settle();
        let datagram = sent.iter().find(|frame| frame.ends_with(&[7; 100]));
        assert!(datagram.is_some_and(|frame| frame.starts_with(&mac.0)), "to {mac}: {sent:?}");
    }
}

/// The locks that polls take while time passes, one poll for each step.
fn locks_while(node: &mut Node<Counting>, time: Duration, step: Duration) -> Vec<(LockClass, u64)> {
    let mut locks = Vec::new();
    for _ in 0..time.as_nanos() / step.as_nanos() {
        node.clock.advance(step);
        locks.extend(spent(|| node.driver.poll()).1.locks);
        node.settle();
    }
    locks
}

/// A router's prefix gives the stack an address (RFC 4862 section 5.5.3). The group that the address is tested in, and
/// the address once it is tested, are published for all threads: each is a view of the interface, under `control`, and
/// the second an event, under `handoff`. The advertisement and the test take no other lock.
#[every_arch(only(up))]
fn an_advertisement_that_adds_an_address_takes_the_locks_of_its_publication_alone(arch: Architecture) {
    let addressing = Addressing { from_routers: true, ..Addressing::default() };
    let mut node = Node::<Counting>::with_known_peer(NodeConfig { addressing, ..NodeConfig::new(arch) });
    node.pass(Duration::from_secs(10), Duration::from_millis(100));
    let events = |node: &Node<Counting>| node.stack.shared().addresses().take_events();
    events(&node);
    let router: Ipv6Addr = "fe80::7".parse().expect("an address");
    let ends = Ends::PEER_TO_STACK_V6.from(router).to(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));
    // No default router, and a prefix for an hour, on the link and for addresses (RFC 4861 section 4.6.2).
    let mut body = vec![0; 8];
    body.extend([3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0]);
    body.extend("2001:db8:7::".parse::<Ipv6Addr>().expect("a prefix").octets());
    let advert = Icmp::new(134, 0, [64, 0, 0, 0], &body);
    let packet = Packet { ttl: wire::icmpv6::DISCOVERY_HOP_LIMIT, ..ends.packet(advert) };
    node.put(&ends.frame(packet).bytes());
    let mut locks = spent(|| node.driver.poll()).1.locks;
    locks.extend(locks_while(&mut node, Duration::from_secs(5), Duration::from_millis(100)));
    let events = events(&node);
    assert!(matches!(events[..], [(_, AddressEvent::Assigned(IpAddr::V6(_)))]), "{events:?}");
    assert_eq!(locks, [(LockClass::Control, 1), (LockClass::Control, 1), (LockClass::Handoff, 1)]);
}

/// Another station claims an IPv4 address that routers have not given (RFC 5227 section 2.4): it is kept and defended,
/// and the conflict is an event for other threads, under `handoff`.
#[every_arch(only(up))]
fn a_claim_on_an_address_takes_the_lock_of_its_event_alone(arch: Architecture) {
    let mut node = node(arch);
    let own = Ends::PEER_TO_STACK.from(STACK);
    let claim = claim_of(own, Operation::Reply, MacAddr([2, 0, 0, 0, 1, 1]));
    for _ in 0..2 {
        node.put(&claim);
        let (_, spent) = spent(|| node.driver.poll());
        assert_eq!(spent.locks, [(LockClass::Handoff, 1)]);
        node.settle();
    }
    assert_eq!(node.stack.shared().addresses().take_events().len(), 2);
}

/// The second claim on a tested IPv4 address takes it away (RFC 5227 section 2.4 b): the view without it is published, and
/// the address is passed to the driver that ends its connections.
#[every_arch(only(up))]
fn a_claim_that_takes_an_address_away_takes_the_locks_of_its_publication_alone(arch: Architecture) {
    let addressing = Addressing { checked: true, ..Addressing::default() };
    let mut node = Node::<Counting>::with_known_peer(NodeConfig { addressing, ..NodeConfig::new(arch) });
    node.pass(Duration::from_secs(10), Duration::from_millis(100));
    let own = Ends::PEER_TO_STACK.from(STACK);
    let claim = claim_of(own, Operation::Reply, MacAddr([2, 0, 0, 0, 1, 1]));
    node.exchange(&claim);
    let is_local = |node: &Node<Counting>| node.stack.shared().links().is_local(own.src);
    assert!(is_local(&node), "defended once");
    node.put(&claim);
    let (_, spent) = spent(|| node.driver.poll());
    assert!(!is_local(&node), "and given up");
    let mut classes: Vec<_> = spent.locks.iter().map(|(class, _)| *class).collect();
    classes.dedup();
    assert_eq!(classes, [LockClass::Control, LockClass::Handoff], "{spent:?}");
    assert_eq!(spent.handoffs, 0);
}

/// Every ten seconds a poll looks for memory that a peak has left behind: it takes the lock of the slab of connections
/// once, which threads share under every architecture, and no other.
#[every_arch(only(up))]
fn the_sweep_of_memory_takes_the_lock_of_the_slab_alone(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let mut echo = Echo::open(&mut node, ends);
        (0..WARM).for_each(|_| drop(echo.round(&mut node)));
        for _ in 0..3 {
            let locks = locks_while(&mut node, Duration::from_secs(10), Duration::from_millis(100));
            assert_eq!(locks, [(LockClass::ConnSlab, 1)]);
        }
    }
}

#[every_arch(only(up))]
fn a_datagram_in_fragments_comes_and_goes_without_a_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let socket = bound(&node, ends);
        // The first readiness of a socket publishes to all threads how the next ones are reported.
        drop(datagram_round(&mut node, &socket, ends));
        for ident in 0..4 {
            for piece in in_pieces(ends, Datagram::new(2000, PORT, &[5; 2500]), ident) {
                assert!(free_of_charge(&mut node, &piece).is_empty());
            }
            assert!(socket.ready.get().contains(Readiness::READABLE));
            let (datagram, taking) = spent(|| node.stack.receive_udp(&socket).expect("a datagram"));
            assert_eq!((datagram.buf.len(), taking), (2500, Spent::NOTHING));
            let send = || node.stack.send_udp(&socket, payload(4000), Some(SocketAddr::new(ends.src, 2000)));
            assert_eq!(spent(send), (Ok(4000), Spent::NOTHING));
            assert_eq!(node.settle().len(), 3, "fragments");
        }
    }
}

/// Fragments of a packet that never becomes whole are given up, with an ICMP error.
#[every_arch(only(up))]
fn fragments_are_given_up_without_a_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        free_of_charge(&mut node, &in_pieces(ends, Datagram::new(2000, PORT, &[5; 2500]), 1)[0]);
        let lifetime = if ends.src.is_ipv4() { ip::reassembly::LIFETIME_V4 } else { ip::reassembly::LIFETIME_V6 };
        node.clock.advance(lifetime - Duration::from_millis(1));
        // Every ten seconds, memory that a peak has left behind is looked for; that is not counted here.
        node.settle();
        node.clock.advance(Duration::from_millis(2));
        let (_, spent) = spent(|| node.driver.poll());
        assert_eq!(spent, Spent::NOTHING);
        // A neighbour that was not confirmed for this long may be solicited again first.
        assert!(!node.settle().is_empty());
    }
}

#[every_arch(only(up))]
fn an_echo_request_is_answered_without_a_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let request = Icmp::echo_request(ends.src.is_ipv6(), &[3; 56]);
        let long = Icmp::echo_request(ends.src.is_ipv6(), &[3; 2500]);
        for ident in 0..4 {
            assert_eq!(free_of_charge(&mut node, &ends.bytes(request)).len(), 1);
            let pieces = in_pieces(ends, long, ident);
            let answers: Vec<_> = pieces.iter().flat_map(|piece| free_of_charge(&mut node, piece)).collect();
            assert_eq!(answers.len(), 2, "the reply in fragments");
        }
    }
}

/// A datagram for no socket and a segment for no connection: an ICMP error and a reset, both of them limited.
#[every_arch(only(up))]
fn refusals_are_sent_and_limited_without_a_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let mut answers = 0;
        for from in 0..300 {
            answers += free_of_charge(&mut node, &Datagram::new(3000 + from, 99, b"?").frame_over(ends)).len();
            answers += free_of_charge(&mut node, &Segment::syn(3000 + from, 99).frame_over(ends)).len();
        }
        assert!((2..600).contains(&answers), "{answers}: the limits hold");
    }
}

/// An ICMP error about `sent`, which the stack sent: `mtu` if the packet was too big, otherwise an unreachable port.
fn error_about(ends: Ends, sent: &[u8], mtu: Option<u16>) -> Vec<u8> {
    let body = &sent[L3..sent.len().min(L3 + 60)];
    let [high, low] = mtu.unwrap_or(0).to_be_bytes();
    let (kind, code) = match (ends.src, mtu) {
        (IpAddr::V4(_), Some(_)) => (3, 4),
        (IpAddr::V4(_), None) => (3, 3),
        (IpAddr::V6(_), Some(_)) => (2, 0),
        (IpAddr::V6(_), None) => (1, 4),
    };
    ends.bytes(Icmp::new(kind, code, [0, 0, high, low], body))
}

/// RFC 1191, RFC 8201: the report of a router reduces the path MTU, and the data is sent again in smaller segments.
#[every_arch(only(up))]
fn a_path_mtu_is_learnt_without_a_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let mut echo = Echo::open(&mut node, ends);
        (0..WARM).for_each(|_| drop(echo.round(&mut node)));
        node.call(&echo.socket, send(&[5; 1400]));
        let segment = node.settle().into_iter().find(|frame| tcp_of(frame).is_some()).expect("the data");
        let again = free_of_charge(&mut node, &error_about(ends, &segment, Some(1280)));
        let data = again.iter().find_map(|frame| tcp_of(frame)).map(|(_, data)| data.len());
        assert_eq!(data, Some(1280 - if ends.src.is_ipv4() { 40 } else { 60 }));
    }
}

/// The bit of an error, which any thread may clear, is set by a read-modify-write.
#[every_arch(only(up))]
fn an_unreachable_port_is_reported_without_a_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let socket = bound(&node, ends);
        node.stack.connect_udp(&socket, SocketAddr::new(ends.src, 2000)).expect("a route");
        for _ in 0..4 {
            node.stack.send_udp(&socket, payload(100), None).expect("sent");
            let sent = node.settle();
            node.put(&error_about(ends, &sent[0], None));
            let (_, spent) = spent(|| node.driver.poll());
            assert!(spent.locks.is_empty() && spent.handoffs == 0, "{spent:?}");
            let refused = node.stack.take_udp_error(&socket);
            assert_eq!(refused, Some(udp::SendError::Refused));
        }
    }
}

/// A router's advertisement that repeats known values prolongs lifetimes; no lock is needed for that. (One that adds an
/// address publishes a new view of the interface, for all threads.)
#[every_arch(only(up))]
fn a_repeated_router_advertisement_takes_no_lock(arch: Architecture) {
    let addressing = Addressing { from_routers: true, ..Addressing::default() };
    let mut node = Node::<Counting>::with_known_peer(NodeConfig { addressing, ..NodeConfig::new(arch) });
    node.pass(Duration::from_secs(10), Duration::from_millis(100));
    let router: Ipv6Addr = "fe80::7".parse().expect("an address");
    let ends = Ends::PEER_TO_STACK_V6.from(router).to(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));
    // A default router for half an hour, and no prefix (RFC 4861 section 4.2).
    let advert = Icmp::new(134, 0, [64, 0, 0x07, 0x08], &[0; 8]);
    let packet = Packet { ttl: wire::icmpv6::DISCOVERY_HOP_LIMIT, ..ends.packet(advert) };
    let frame = ends.frame(packet).bytes();
    for _ in 0..2 {
        node.exchange(&frame);
        node.pass(Duration::from_secs(10), Duration::from_millis(100));
    }
    let routes = |node: &Node<Counting>| {
        let far = "2001:db8:1::1".parse().expect("an address");
        node.stack.shared().routes().lookup(node.stack.shared().links(), far).map(|(_, hop)| hop)
    };
    assert_eq!(routes(&node), Some(router.into()));
    for _ in 0..4 {
        free_of_charge(&mut node, &frame);
    }
}

/// The counters work: where threads share the tables, each of these packets takes their locks.
#[every_arch(except(up))]
fn others_lock_the_tables_of_ip(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        node.put(&link_address_of(stranger(ends, 1), Operation::Request));
        let (_, spent) = spent(|| node.driver.poll());
        assert!(spent.locks.iter().any(|(class, _)| *class == LockClass::Neighbours), "{spent:?}");
    }
}

/// A thread that does not own the stack states a route: it takes no lock of a table, and sends one message. The owner
/// takes the locks of the message and of the answer, and no other.
#[every_arch(only(up))]
fn a_route_stated_by_another_thread_is_one_message_each_way(arch: Architecture) {
    let mut node = node(arch);
    let stack = node.stack.clone();
    for ends in Ends::BOTH_FAMILIES {
        let to = if ends.src.is_ipv4() { "192.0.2.0/24 via 10.0.0.2" } else { "2001:db8::/32 via fd00::2" };
        let route = to.parse().expect("a route");
        let (asker, owner) = by_another_thread(&mut node, {
            let stack = stack.clone();
            move || stack.state_route(&route, 0)
        });
        assert_eq!(asker.handoffs, 1, "{asker:?}");
        assert_eq!(owner.handoffs, 0, "{owner:?}");
        let classes = |spent: &Spent| spent.locks.iter().map(|(class, _)| *class).collect::<Vec<_>>();
        // Handing over, and finding out how to wake a receive thread.
        assert!(
            classes(&asker).iter().all(|class| [LockClass::Handoff, LockClass::Control].contains(class)),
            "{asker:?}"
        );
        assert_eq!(owner.locks, [(LockClass::Handoff, 2)], "the message, the answer");
        let far: IpAddr = if ends.src.is_ipv4() { [192, 0, 2, 1].into() } else { "2001:db8::1".parse().expect("one") };
        let hop = node.stack.shared().routes().lookup(node.stack.shared().links(), far).map(|(_, hop)| hop);
        assert_eq!(hop, Some(ends.src));
    }
}

/// An open by another thread looks its route up where the tables are: the whole call is one message.
#[every_arch(only(up))]
fn an_open_by_another_thread_is_one_message_each_way(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = node(arch);
        let stack = node.stack.clone();
        let remote = SocketAddr::new(ends.src, 80);
        let (asker, owner) = by_another_thread(&mut node, move || {
            stack.connect(None, remote, &Default::default()).expect("it opens");
        });
        assert_eq!((asker.handoffs, owner.handoffs), (1, 0), "{asker:?}, {owner:?}");
        let syn = node.settle();
        assert!(syn.iter().any(|frame| tcp_of(frame).is_some_and(|(header, _)| header.dst_port == 80)), "{syn:?}");
    }
}

/// The cost of `work` on a thread of its own, and that of the owner, which polls meanwhile.
fn by_another_thread(node: &mut Node<Counting>, work: impl FnOnce() + Send + 'static) -> (Spent, Spent) {
    let asker = std::thread::spawn(|| spent(work).1);
    let ((), owner) = spent(|| {
        let start = Instant::now();
        while !asker.is_finished() {
            assert!(start.elapsed() < HANG, "the other thread has no answer");
            node.driver.poll();
            std::thread::yield_now();
        }
    });
    (asker.join().expect("it does not panic"), owner)
}
