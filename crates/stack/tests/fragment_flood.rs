//! A flood of junk fragments (R4), in a binary of its own: it counts the packet buffers of the whole process.

use std::time::Duration;

use stack::Architecture;
use sync::Real;
use testbed::frames::{Body, Datagram, Ends, Fragment, Icmp, Packet};
use testbed::node::{Node, NodeConfig};
use wire::ethernet::{self, EtherType};

const L3: usize = ethernet::HEADER_LEN;

/// R4 for a whole stack: junk fragments hold no more than their share, and a fragmented ping is answered.
#[test]
fn junk_fragments_leave_room_for_a_ping_in_pieces() {
    let mut node =
        Node::<Real>::with_known_peer(NodeConfig { ring_frames: 4096, ..NodeConfig::new(Architecture::named("up")) });
    let (ends, before) = (Ends::PEER_TO_STACK, pktbuf::live());
    for n in 0..60_000u32 {
        // More fragments, each at its own offset: no packet is ever complete.
        let fragment = Some(Fragment { ident: n & 0xffff, offset: (1 + (n >> 10)) as u16 * 8, more: true });
        let packet = ends.packet(Datagram::new(n as u16, 99, &[1; 24]));
        node.put(&ends.frame(Packet { fragment, dont_fragment: false, ..packet }).bytes());
        if n % 1000 == 0 {
            assert!(node.settle().is_empty());
            node.clock.advance(Duration::from_millis(50));
            let answers: Vec<_> = ping_in_pieces(n as u16).iter().flat_map(|piece| node.exchange(piece)).collect();
            let whole: usize = answers.iter().map(|frame| frame.len() - L3 - 20).sum();
            assert_eq!((answers.len(), whole), (3, 4008), "the reply is cut as the request was");
        } else if n % 100 == 0 {
            node.settle();
        }
    }
    node.settle();
    let held = (pktbuf::live() - before) * 256;
    assert!(held <= ip::reassembly::MEMORY_CAP + (1 << 20), "{held} bytes at least");
    node.clock.advance(ip::reassembly::LIFETIME_V6);
    node.settle();
    assert_eq!(pktbuf::live(), before, "all of it is given back");
}

/// An echo request of 4,000 bytes of data in three frames.
fn ping_in_pieces(seq: u16) -> Vec<Vec<u8>> {
    let [high, low] = seq.to_be_bytes();
    let request = Icmp { word: [0, 77, high, low], ..Icmp::echo_request(false, &[3; 4000]) };
    let ends = Ends::PEER_TO_STACK;
    let pieces = ends.packet(request).pieces(u32::from(seq) ^ 0x5555, 1500);
    pieces.iter().map(|piece| ends.frame(Body::Other(EtherType::Ipv4, piece)).bytes()).collect()
}
