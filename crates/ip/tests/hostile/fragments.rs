//! P5: fragments. Overlap discards the packet, exact duplicates are tolerated, order does not matter, tiny ones are
//! legal over IPv4, and nothing exceeds 65,535 bytes; R4: a flood of junk stays within its memory and does not block
//! others.

use frames::{Fragment, Packet, Payload};
use ip::reassembly::{LIFETIME_V4, LIFETIME_V6, MEMORY_CAP};
use observe::DropReason;
use wire::protocol;

use super::host::*;

/// One fragment of an experiment, in units of eight bytes: offset, length, fill letter, whether more follow.
#[derive(Clone, Copy)]
struct Piece {
    at: u16,
    units: u16,
    fill: u8,
    more: bool,
}

/// Parses `0+2a`: at unit 0, two units of `a`; a dot at the end marks the last fragment.
fn script(text: &str) -> Vec<Piece> {
    let read = |word: &str| {
        let (at, rest) = word.split_once('+').expect("a plus");
        let more = !rest.ends_with('.');
        let rest = rest.trim_end_matches('.');
        let (units, fill) = rest.split_at(rest.len() - 1);
        Piece {
            at: at.parse().expect("a number"),
            units: units.parse().expect("a number"),
            fill: fill.as_bytes()[0],
            more,
        }
    };
    text.split_whitespace().map(read).collect()
}

fn fragment_v6(next: u8, ident: u32, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    cut(packet(true, Payload::Other(next, payload)), Fragment { ident, offset, more })
}

fn fragment(v6: bool, ident: u16, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    cut(packet(v6, Payload::Other(protocol::UDP, payload)), Fragment { ident: ident.into(), offset, more })
}

fn cut(packet: Packet<'_>, fragment: Fragment) -> Vec<u8> {
    ends(packet.src.is_ipv6()).frame(Packet { fragment: Some(fragment), ..packet }).bytes()
}

/// The payload that the transport gets from a script, one letter per unit; `None` if none.
fn outcome(host: &mut Host, v6: bool, ident: u16, text: &str) -> Option<String> {
    let mut got = None;
    for Piece { at, units, fill, more } in script(text) {
        let bytes = vec![fill; usize::from(units) * 8];
        let outcome = host.answers_by_the_rules(text, &fragment(v6, ident, at * 8, more, &bytes));
        assert!(outcome.reply().is_none(), "{text}: answered");
        if let Outcome::Delivered(_, bytes) = outcome {
            assert!(got.is_none(), "{text}: delivered twice");
            got = Some(bytes.chunks(8).map(|unit| char::from(unit[0])).collect());
        }
    }
    got
}

#[test]
fn overlap_order_and_duplicates() {
    let cases = [
        ("in order", "0+2a 2+2b 4+1c.", Some("aabbc")),
        ("reversed", "4+1c. 2+2b 0+2a", Some("aabbc")),
        ("last first", "4+1c. 0+2a 2+2b", Some("aabbc")),
        ("middle last", "0+2a 4+1c. 2+2b", Some("aabbc")),
        ("many of one unit", "3+1d 1+1b 0+1a 4+1e. 2+1c", Some("abcde")),
        ("exact duplicate of the first", "0+2a 0+2a 2+2b.", Some("aabb")),
        ("exact duplicate of the middle", "0+1a 1+1b 1+1b 2+1c.", Some("abc")),
        ("exact duplicate of the last", "2+1c. 2+1c. 0+2a", Some("aac")),
        ("every one twice", "0+1a 0+1a 1+1b 1+1b 3+1d. 3+1d. 2+1c", Some("abcd")),
        ("duplicate with other bytes", "0+2a 0+2x 2+2b.", None),
        ("head overlap", "0+2a 1+2x 3+1b.", None),
        ("head overlap, equal bytes", "0+2a 1+2a 3+1b.", None),
        ("tail overlap", "2+2b 1+2x 0+1a 4+1c.", None),
        ("teardrop: inside the first", "0+4a 1+1x 4+1b.", None),
        ("teardrop: ends inside", "0+4a 1+2x.", None),
        ("inside at the start", "0+4a 0+2a 4+1b.", None),
        ("inside at the end", "0+4a 2+2a 4+1b.", None),
        ("around", "1+1a 0+3x 3+1b.", None),
        ("same start, longer", "0+1a 0+2a 2+1b.", None),
        ("same start, shorter", "0+2a 0+1a 2+1b.", None),
        ("refrag: the whole again in one", "0+1a 1+1a 0+2a 2+1b.", None),
        ("overlap comes last", "0+2a 3+1c. 1+2x", None),
        ("overlap after a gap", "0+1a 4+2c 3+2x 1+2b 6+1d.", None),
        ("two ends", "0+1a 2+1c. 3+1d. 1+1b", None),
        ("the end moves back", "0+1a 3+1d. 1+1b. 2+1c", None),
        ("beyond the end", "2+1c. 3+1d 0+2a", None),
        ("the end comes first and is overlapped", "2+1c. 1+2x 0+1a", None),
        ("never the first", "1+1b 2+1c.", None),
        ("never the last", "0+1a 1+1b", None),
        ("a hole of one unit", "0+1a 2+1c.", None),
    ];
    balanced(|| {
        for v6 in [false, true] {
            let mut host = Host::new();
            for (ident, (name, text, expected)) in (1u16..).zip(cases) {
                let got = outcome(&mut host, v6, ident, text);
                assert_eq!(got.as_deref(), expected, "{name}, IPv6: {v6}");
                still_lives(&mut host);
            }
            host.reassembly.timeouts(observe::Time::MAX, &host.counters);
            assert_eq!((host.reassembly.len(), host.reassembly.memory()), (0, 0));
        }
    });
}

#[test]
fn a_killed_packet_stays_dead_until_its_time_is_over() {
    for (v6, lifetime) in [(false, LIFETIME_V4), (true, LIFETIME_V6)] {
        let mut host = Host::new();
        assert_eq!(outcome(&mut host, v6, 1, "0+2a 1+2x"), None);
        assert_eq!(outcome(&mut host, v6, 1, "0+2a 2+2b."), None, "fragments of the killed packet yet to come");
        assert_eq!(outcome(&mut host, v6, 2, "0+2a 2+2b.").as_deref(), Some("aabb"), "another packet");
        host.now += lifetime;
        assert_eq!(outcome(&mut host, v6, 1, "0+2a 2+2b.").as_deref(), Some("aabb"), "the name is free again");
    }
}

#[test]
fn sizes_that_cannot_be() {
    balanced(|| {
        for v6 in [false, true] {
            let mut host = Host::new();
            // Ping of death: the last fragment reaches beyond 65,535.
            let beyond = host.answers_by_the_rules("death", &fragment(v6, 1, 65_528, false, &[1; 8]));
            assert_eq!(beyond.reply(), v6.then_some((4, 0)), "{beyond:?}");
            let far = host.answers_by_the_rules("far", &fragment(v6, 2, 65_520, false, &[1; 400]));
            assert_eq!(far.reply(), v6.then_some((4, 0)));
            // Not a multiple of eight, and empty.
            let odd = host.answers_by_the_rules("odd", &fragment(v6, 3, 0, true, &[1; 13]));
            assert_eq!(odd.reply(), v6.then_some((4, 0)), "{odd:?}");
            let empty = host.answers_by_the_rules("empty", &fragment(v6, 4, 8, true, &[]));
            assert!(!matches!(empty, Outcome::Delivered(..)));
            assert!(host.reassembly.is_empty(), "none of them is kept");
            // One byte, eight bytes, a last fragment of one byte: legal.
            assert!(matches!(host.takes(&fragment(v6, 5, 8, false, &[2])), Outcome::Held));
            let done = host.takes(&fragment(v6, 5, 0, true, &[1; 8]));
            assert!(matches!(done, Outcome::Delivered(_, bytes) if bytes.len() == 9));
            still_lives(&mut host);
        }
    });
}

/// RFC 8200 section 4.5 and RFC 7112: the first fragment must have all headers, and its next header counts.
#[test]
fn ipv6_header_chains_in_fragments() {
    let tcp_start = [0u8; 16];
    let options = [protocol::UDP, 0, 1, 4, 0, 0, 0, 0];
    let nested = [[protocol::UDP, 0, 0, 1, 0, 0, 0, 9].as_slice(), &[0; 24]].concat();
    let refused = [
        ("TCP header incomplete", protocol::TCP, tcp_start.as_slice(), (4, 3)),
        ("ends in an extension header", protocol::IPV6_DESTINATION, &[protocol::UDP, 9, 1, 4, 0, 0, 0, 0], (4, 3)),
        ("nothing behind the extension header", protocol::IPV6_DESTINATION, options.as_slice(), (4, 3)),
        ("a fragment in a fragment", protocol::IPV6_FRAGMENT, nested.as_slice(), (4, 3)),
        (
            "hop-by-hop inside",
            protocol::HOP_BY_HOP,
            &[protocol::UDP, 0, 1, 4, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
            (4, 3),
        ),
    ];
    balanced(|| {
        let mut host = Host::new();
        for (ident, (name, next, bytes, reply)) in (100u32..).zip(refused) {
            let outcome = host.answers_by_the_rules(name, &fragment_v6(next, ident, 0, true, bytes));
            assert_eq!(outcome.reply(), Some(reply), "{name}: {outcome:?}");
        }
        // The whole chain in the first, the data in the second; the second's next header is not read.
        let first = [options.as_slice(), &udp(true, 8)].concat();
        assert!(matches!(host.takes(&fragment_v6(protocol::IPV6_DESTINATION, 200, 0, true, &first)), Outcome::Held));
        let done = host.takes(&fragment_v6(protocol::TCP, 200, 24, false, &[9; 8]));
        assert!(matches!(done, Outcome::Delivered(protocol::UDP, ref bytes) if bytes.len() == 24), "{done:?}");
        // An atomic fragment is independent of another packet's fragments with the same identification (RFC 6946).
        assert!(matches!(host.takes(&fragment_v6(protocol::UDP, 300, 0, true, &[1; 16])), Outcome::Held));
        let atomic = host.takes(&fragment_v6(protocol::UDP, 300, 0, false, &udp(true, 16)));
        assert!(matches!(atomic, Outcome::Delivered(..)));
        let done = host.takes(&fragment_v6(protocol::UDP, 300, 16, false, &[1; 8]));
        assert!(matches!(done, Outcome::Delivered(_, bytes) if bytes.len() == 24));
        // A routing header with segments left in the fragmented part is found when the packet is whole.
        let routed = [[protocol::UDP, 0, 0, 1, 0, 0, 0, 0].as_slice(), &udp(true, 8)].concat();
        let outcome = host.takes(&fragment_v6(protocol::IPV6_ROUTING, 400, 0, true, &routed));
        assert_eq!(outcome.reply(), Some((4, 3)), "and even before");
        still_lives(&mut host);
    });
}

/// A SYN in pieces of eight bytes: legal for an IPv4 host, though filters may drop it (RFC 3128).
#[test]
fn a_segment_in_tiny_fragments_arrives() {
    let mut host = Host::new();
    let segment: Vec<u8> = (0..24).collect();
    let piece = |(n, chunk)| {
        let fragment = Fragment { ident: 9, offset: n as u16 * 8, more: n < 2 };
        cut(packet(false, Payload::Other(protocol::TCP, chunk)), fragment)
    };
    let pieces: Vec<Vec<u8>> = segment.chunks(8).enumerate().map(piece).collect();
    let done = pieces.iter().rev().map(|piece| host.takes(piece)).last().expect("three pieces");
    assert!(matches!(done, Outcome::Delivered(protocol::TCP, bytes) if bytes == segment));
}

/// R4, FragmentSmack: the memory is bounded and another source's packets are reassembled meanwhile.
#[test]
fn sixty_thousand_junk_fragments() {
    balanced(|| {
        let mut host = Host::new();
        let (mut whole, mut tried) = (0, 0);
        for n in 0..60_000u32 {
            let v6 = n % 2 == 1;
            // Each of a separate packet, or many holes in one: both were attacks.
            let (ident, offset) = if n % 3 == 0 { (n as u16, 0) } else { (n as u16 & 0xff, (n >> 8) as u16 * 16 + 8) };
            let junk = vec![n as u8; if n % 5 == 0 { 1200 } else { 8 }];
            let from = fragment(v6, ident | 1, offset & 0x7ff8, true, &junk);
            host.takes(&from);
            assert!(host.reassembly.memory() <= MEMORY_CAP, "{} bytes", host.reassembly.memory());
            if n % 500 == 0 {
                host.now += std::time::Duration::from_millis(100);
                host.reassembly.timeouts(host.now, &host.counters);
                tried += 1;
                let name = (n / 500 * 2) as u16;
                whole += usize::from(outcome(&mut host, v6, name, "0+100a 100+100b 200+1c.").is_some());
            }
        }
        assert_eq!(whole, tried, "the legitimate packets");
        assert!(host.counters.dropped(DropReason::ReassemblyFull) > 0, "the bound was reached");
        host.reassembly.timeouts(observe::Time::MAX, &host.counters);
        assert_eq!((host.reassembly.len(), host.reassembly.memory()), (0, 0));
    });
}
