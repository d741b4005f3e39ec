//! Tests of the hint that a segment is followed by another; `tests/headers.rs` compares offsets with the parsers.

use std::vec::Vec;

use super::Headers;

const ETHERTYPE: usize = 12;
const IP: usize = 14;

fn continues(frame: &[u8], next: &[u8]) -> bool {
    Headers::of_frame(frame).continues(frame, (Headers::of_frame(next), next))
}

fn v4(port: u8, text: u8) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[ETHERTYPE..=IP].copy_from_slice(&[0x08, 0, 0x45]);
    frame[IP + 3] = 40 + text;
    frame[IP + 9] = crate::protocol::TCP;
    frame[IP + 21] = port;
    frame[IP + 32] = 0x50;
    frame
}

fn v6(port: u8, text: u8) -> [u8; 80] {
    let mut frame = [0; 80];
    frame[ETHERTYPE..=IP].copy_from_slice(&[0x86, 0xdd, 0x60]);
    frame[IP + 5] = 20 + text;
    frame[IP + 6] = crate::protocol::TCP;
    frame[IP + 41] = port;
    frame[IP + 52] = 0x50;
    frame
}

#[test]
fn text_of_the_same_connection_continues() {
    assert!(continues(&v4(1, 0), &v4(1, 1)));
    assert!(continues(&v6(1, 0), &v6(1, 1)));
}

fn tagged(frame: &[u8], tag: u8) -> Vec<u8> {
    [&frame[..ETHERTYPE], &[0x81, 0, 0xa0, tag], &frame[ETHERTYPE..]].concat()
}

#[test]
fn a_tag_changes_nothing_if_both_have_the_same() {
    for (frame, next, other, headers) in [
        (v4(1, 0).to_vec(), v4(1, 1).to_vec(), v4(2, 1).to_vec(), 58),
        (v6(1, 0).to_vec(), v6(1, 1).to_vec(), v6(2, 1).to_vec(), 78),
    ] {
        assert!(continues(&tagged(&frame, 0), &tagged(&next, 0)));
        assert!(!continues(&tagged(&frame, 0), &tagged(&next, 1)), "another VLAN");
        assert!(!continues(&tagged(&frame, 0), &next));
        assert!(!continues(&frame, &tagged(&next, 0)));
        assert!(!continues(&tagged(&frame, 0), &tagged(&other, 0)));
        assert!(!continues(&tagged(&tagged(&frame, 0), 0), &tagged(&tagged(&next, 0), 0)), "two tags");
        for len in 0..headers {
            assert!(!continues(&tagged(&frame, 0), &tagged(&next, 0)[..len]), "{len} bytes");
        }
    }
}

#[test]
fn what_is_another_connections_or_has_no_text_does_not() {
    assert!(!continues(&v4(1, 1), &v4(2, 1)));
    assert!(!continues(&v6(1, 1), &v6(2, 1)));
    assert!(!continues(&v4(1, 1), &v4(1, 0)));
    assert!(!continues(&v6(1, 1), &v6(1, 0)));
    assert!(!continues(&v4(1, 1), &v6(1, 1)));
}

#[test]
fn what_is_not_plain_does_not() {
    let mut fragment = v4(1, 1);
    fragment[IP + 6] = 0x20;
    assert!(!continues(&v4(1, 1), &fragment));
    let mut datagram = v6(1, 1);
    datagram[IP + 6] = crate::protocol::UDP;
    assert!(!continues(&v6(1, 1), &datagram));
    assert!(!continues(&datagram, &v6(1, 1)));
    assert!(!continues(&v4(1, 1), &v4(1, 1)[..53]));
    assert!(!continues(&v6(1, 1), &v6(1, 1)[..73]));
}
