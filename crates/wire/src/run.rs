//! Runs of segments: frames of one connection that came one behind the other.
//!
//! A receiver that knows that more is right behind acknowledges once for all of it (RFC 9293 section 3.10.7.4). The
//! question is asked of every frame before it is looked at in earnest, so it is answered from a few loads and never with
//! more than "no" for what is not plain: options in the IP header, extension headers, fragments, a second tag. IPv4 and IPv6
//! are answered alike, and so are frames with one tag, the priority tags of IEEE 802.1Q clause 6.9 among them.

const ETHERTYPE: usize = 12;
const IP: usize = 14;

/// Whether `next` carries text of the same TCP connection, in the same direction, as `frame`.
///
/// Both begin with an Ethernet header; nothing is verified, lengths least of all: a segment that does not deserve its
/// name is found out when it is parsed.
#[inline]
pub fn continues(frame: &[u8], next: &[u8]) -> bool {
    let (Some(head), Some(next_head)) = (frame.first_chunk::<54>(), next.first_chunk::<54>()) else { return false };
    // The ports in IPv4, a quarter of the source address in IPv6, addresses behind a tag: most frames that belong to others
    // differ in them.
    if head[IP + 20..IP + 24] != next_head[IP + 20..IP + 24] {
        return false;
    }
    if head[ETHERTYPE..=IP] != next_head[ETHERTYPE..=IP] {
        return false;
    }
    match head[ETHERTYPE..=IP] {
        [0x08, 0x00, 0x45] => continues_v4(head, next_head),
        [0x86, 0xdd, 0x60..=0x6f] => continues_v6(frame, next),
        [0x81, 0x00, _] => continues_tagged(frame, next),
        _ => false,
    }
}

/// The same behind a tag, which both frames have. Whether the tag is one that this host listens to is found out later.
#[cold]
fn continues_tagged(frame: &[u8], next: &[u8]) -> bool {
    const TAG: usize = 4;
    let (Some(inner), Some(next_inner)) = (frame.get(TAG..), next.get(TAG..)) else { return false };
    let same_tag = frame.get(ETHERTYPE..IP + 2) == next.get(ETHERTYPE..IP + 2);
    let another_tag = inner.get(ETHERTYPE..IP) == Some(&[0x81, 0x00]);
    same_tag && !another_tag && continues(inner, next_inner)
}

#[inline]
fn continues_v4(frame: &[u8; 54], next: &[u8; 54]) -> bool {
    const PROTOCOL: usize = IP + 9;
    const FLOW: core::ops::Range<usize> = IP + 12..IP + 24;
    let total = usize::from(u16::from_be_bytes([next[IP + 2], next[IP + 3]]));
    let whole = next[IP + 6] & 0x3f == 0 && next[IP + 7] == 0;
    next[PROTOCOL] == crate::protocol::TCP
        && frame[PROTOCOL] == crate::protocol::TCP
        && frame[FLOW] == next[FLOW]
        && whole
        && total > 20 + header_len(next[IP + 20 + 12])
}

#[inline]
fn continues_v6(frame: &[u8], next: &[u8]) -> bool {
    const NEXT_HEADER: usize = IP + 6;
    const FLOW: core::ops::Range<usize> = IP + 8..IP + 44;
    let (Some(frame), Some(next)) = (frame.first_chunk::<74>(), next.first_chunk::<74>()) else { return false };
    let payload = usize::from(u16::from_be_bytes([next[IP + 4], next[IP + 5]]));
    next[NEXT_HEADER] == crate::protocol::TCP
        && frame[NEXT_HEADER] == crate::protocol::TCP
        && frame[FLOW] == next[FLOW]
        && payload > header_len(next[IP + 40 + 12])
}

/// Octets of the TCP header whose data offset stands in `octet`.
#[inline]
fn header_len(octet: u8) -> usize {
    usize::from(octet >> 4) * 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

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
}
