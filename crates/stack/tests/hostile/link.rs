//! Floods of ARP and neighbour discovery (R7) beside honest clients: their router is known before, and neither forged
//! claims, requests, answers nor invented destinations displace it.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use every_arch::every_arch;
use ip::neighbour::{CAPACITY, MAX_PENDING_BYTES};
use observe::DropReason;
use stack::Architecture;
use sync::Real;
use testbed::frames::{self, PEER, STACK, STACK6, Segment};
use testbed::node::Node;
use wire::arp::Operation;
use wire::ethernet::MacAddr;
use wire::icmpv6::Message;
use wire::ipv6;

use super::clients::Clients;
use super::peers::{Draw, PORT, routed, turn};

const STEPS: usize = 60;
const STEP: Duration = Duration::from_millis(10);
const HONEST: u8 = 10;
/// Attack packets in each step: ten thousand a second of each kind.
const STRANGERS: usize = 100;

/// Each attacker sends a request, an unsolicited answer and a SYN from an unused address, and claims to be the router.
fn strangers(node: &mut Node<Real>, draw: &mut Draw) {
    for _ in 0..STRANGERS {
        let bits = draw.next();
        let mac = MacAddr([2, 9, (bits >> 24) as u8, (bits >> 16) as u8, (bits >> 8) as u8, bits as u8]);
        let v4 = Ipv4Addr::new(10, 1 | (bits >> 40) as u8, (bits >> 32) as u8, (bits >> 48) as u8 | 1);
        let v6 = Ipv6Addr::from_bits(STACK6.to_bits() & !u128::from(u64::MAX) | u128::from(bits | 1 << 63));
        node.put(&frames::arp(Operation::Request, mac, v4));
        node.put(&frames::arp(Operation::Reply, mac, v4));
        let asks = Message::NeighbourSolicit { target: STACK6, source: Some(mac) };
        node.put(&frames::neighbour_discovery(v6, ipv6::solicited_node(STACK6), &asks));
        let tells = Message::NeighbourAdvert {
            target: v6,
            target_mac: Some(mac),
            router: true,
            solicited: true,
            override_flag: true,
        };
        node.put(&frames::neighbour_discovery(v6, STACK6, &tells));
        node.put(&Segment::syn(4000, PORT).frame_from(v4));
        if bits.is_multiple_of(16) {
            node.put(&frames::arp(Operation::Reply, mac, PEER));
        }
    }
}

struct Outcome {
    clients: Clients,
    /// Most entries of the neighbour table, bytes of tables, and packet buffers.
    neighbours: usize,
    bytes: usize,
    buffers: usize,
    /// How many times the router was solicited by broadcast.
    lost: usize,
    turned_away: u64,
}

fn run(arch: Architecture, flooded: bool) -> Outcome {
    let live = pktbuf::live();
    let mut node = routed(arch, |terms| {
        terms.addresses = vec![(STACK.into(), 8), (STACK6.into(), 64)];
        terms.tcp.syn_backlog = 256;
        terms.tcp.max_time_wait = 0;
    });
    let listener = node.listen(PORT, 64);
    let mut clients = Clients::new(HONEST, node.clock.now());
    let mut draw = Draw(11);
    let (mut neighbours, mut bytes, mut buffers, mut lost) = (0, 0, 0, 0);
    // Before the flood the router's reachability is confirmed, as with established connections.
    for step in 0..2 * STEPS {
        clients.act(&mut node);
        if step >= STEPS && flooded {
            strangers(&mut node, &mut draw);
        }
        loop {
            let sent = node.settle();
            clients.hear(&mut node, &sent);
            clients.serve(&node, &listener);
            for (frame, reply) in sent.iter().filter_map(|frame| Some((frame, frames::arp_reply(frame)?))) {
                lost += usize::from(step >= STEPS && frame[..6] == [0xff; 6]);
                node.put(&reply);
            }
            if sent.is_empty() {
                break;
            }
        }
        neighbours = neighbours.max(node.stack.shared().egress().neighbours().count());
        bytes = bytes.max(node.stack.stats().bytes);
        buffers = buffers.max(pktbuf::live() - live);
        node.clock.advance(if step < STEPS { Duration::from_millis(200) } else { STEP });
        if step + 1 == STEPS {
            (clients.answered, clients.bytes) = (0, 0);
        }
    }
    let turned_away = node.driver.counters().dropped(DropReason::NeighbourTableFull)
        + node.driver.counters().dropped(DropReason::NeighbourQueueFull)
        + node.stack.stats().counters.dropped(DropReason::NeighbourTableFull)
        + node.stack.stats().counters.dropped(DropReason::NeighbourQueueFull);
    Outcome { clients, neighbours, bytes, buffers, lost, turned_away }
}

#[every_arch]
fn floods_of_neighbours_cost_established_ones_nothing(arch: Architecture) {
    let _turn = turn();
    let calm = run(arch, false);
    let flooded = run(arch, true);
    let (done, under) = (calm.clients.answered, flooded.clients.answered);
    assert!(done >= STEPS * usize::from(HONEST) / 2, "the control works: {done}");
    assert!(under * 10 >= done * 8, "{under} answers under the flood, {done} without");
    assert!(flooded.clients.bytes * 10 >= calm.clients.bytes * 8);
    assert_eq!((flooded.clients.refused, flooded.clients.repeated), (0, 0), "failures and repetitions");
    assert_eq!(flooded.lost, 0, "nobody was ever asked again who the router is");
    assert!(flooded.neighbours > CAPACITY / 2, "{} neighbours: the flood is one", flooded.neighbours);
    assert!(flooded.neighbours <= CAPACITY, "{} neighbours", flooded.neighbours);
    assert!(flooded.turned_away > 0, "the table was full of those whom we asked for");
    // Packets that wait for neighbours pin at most their share, in blocks of at least a kilobyte; the rest is in the
    // ring.
    let most = calm.buffers + MAX_PENDING_BYTES / 256 + 64;
    assert!(flooded.buffers <= most, "{} buffers, {most} at most", flooded.buffers);
    let cap = calm.bytes + 256 * if arch.properties().groups { 2400 } else { 160 };
    assert!(flooded.bytes <= cap, "{} bytes, {} without the flood", flooded.bytes, calm.bytes);
}
