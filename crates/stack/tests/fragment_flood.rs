//! A flood of junk fragments (R4), in a binary of its own: it counts the packet buffers of the whole process.

use pktbuf::PktBuf;
use stack::Plan;
use std::time::Duration;
use sync::Real;
use testbed::frames::{self, PEER, PEER_MAC, STACK, STACK_MAC};
use testbed::node::{Node, Terms};
use wire::{checksum, ethernet};

const L3: usize = ethernet::HEADER_LEN;

/// R4 with a stack around it: junk fragments hold no more than their share, and a ping in pieces gets its answer.
#[test]
fn junk_fragments_leave_room_for_a_ping_in_pieces() {
    let mut node = Node::<Real>::introduced(Terms { ring_frames: 4096, ..Terms::new(Plan::named("up")) });
    let before = pktbuf::live();
    for n in 0..60_000u32 {
        let mut junk = frames::datagram(n as u16, 99, &[1; 24]);
        junk[L3 + 4..L3 + 6].copy_from_slice(&(n as u16).to_be_bytes());
        // More fragments, at an offset of its own: no packet is ever whole.
        let offset = 0x2000 | (1 + (n >> 10)) as u16;
        junk[L3 + 6..L3 + 8].copy_from_slice(&offset.to_be_bytes());
        node.put(&repaired(junk));
        if n % 1000 == 0 {
            assert!(node.settle().is_empty());
            node.clock.advance(Duration::from_millis(50));
            let answers: Vec<_> = ping_in_pieces(n as u16).iter().flat_map(|piece| node.answers(piece)).collect();
            let whole: usize = answers.iter().map(|frame| frame.len() - L3 - 20).sum();
            assert_eq!((answers.len(), whole), (3, 4008), "the reply is cut as the request was");
        } else if n % 100 == 0 {
            node.settle();
        }
    }
    node.settle();
    let held = (pktbuf::live() - before) * 256;
    assert!(held <= ip::reassembly::MEMORY_CAP + (1 << 20), "{held} octets at least");
    node.clock.advance(ip::reassembly::LIFETIME_V6);
    node.settle();
    assert_eq!(pktbuf::live(), before, "all of it is given back");
}

fn repaired(mut frame: Vec<u8>) -> Vec<u8> {
    frame[L3 + 10..L3 + 12].fill(0);
    let sum = checksum::sum(&frame[L3..L3 + 20]).finish();
    frame[L3 + 10..L3 + 12].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// An echo request of 4,000 bytes of data in three frames.
fn ping_in_pieces(seq: u16) -> Vec<Vec<u8>> {
    let packet = ip::icmp::echo_request(PEER.into(), STACK.into(), 77, seq, &[3; 4000], 1500).expect("a buffer");
    let link = ip::LinkHeader::new(PEER_MAC, STACK_MAC, STACK.into());
    let pieces = ip::output::fragment(packet, 1500, u32::from(seq) ^ 0x5555).expect("cut");
    let framed = |mut piece: PktBuf| {
        link.prepend(&mut piece);
        piece.to_vec()
    };
    pieces.into_iter().map(framed).collect()
}
