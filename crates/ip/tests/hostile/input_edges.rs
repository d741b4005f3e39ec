//! Cases on the edge of a check of input, one for each: `cargo xtask mutants` found that no other test covers them.

use ip::input::{self, Input};
use ip::{Cast, Datagram};
use observe::DropReason;
use pktbuf::PktBuf;
use wire::ipv6::MAX_HEADERS;
use wire::protocol::{IPV6_DESTINATION, IPV6_FRAGMENT, TCP, UDP};

use super::host::*;

/// IEEE 802.3 clause 3.2.6: a value below 0x0600 is a length, "0x0600" and above a type.
#[test]
fn the_smallest_ethertype_is_no_length() {
    for (field, reason) in [(0x5ff_u16, DropReason::LlcUnsupported), (0x600, DropReason::UnknownEtherType)] {
        let mut bytes = frame(false, UDP, &udp(false, 28));
        bytes[12..14].copy_from_slice(&field.to_be_bytes());
        let host = Host::new();
        let input = input::ethernet(PktBuf::from_slice(&bytes).expect("a buffer"), &host.view, &host.counters);
        assert!(matches!(input, Input::Drop(found) if found == reason), "{field:#x}: {input:?}");
    }
}

/// The result of [`input::reassembled`] for a packet reassembled from fragments.
fn together(protocol: u8, payload: &[u8], cast: Cast) -> Input {
    let buf = PktBuf::from_slice(payload).expect("a buffer");
    let (src, dst) = (PEER6.into(), OURS6.into());
    input::reassembled(Datagram { buf, src, dst, protocol, tos: 0, ttl: 64, cast })
}

fn options(count: usize, next: u8) -> Vec<u8> {
    (1..=count).flat_map(|at| [if at == count { next } else { IPV6_DESTINATION }, 0, 1, 4, 0, 0, 0, 0]).collect()
}

/// Nested fragment headers would allow many layers of wrapping.
#[test]
fn a_fragment_header_within_a_reassembled_packet_is_refused() {
    let inner = [vec![UDP, 0, 0, 0, 0, 0, 0, 9], udp(true, 8)].concat();
    let input = together(IPV6_FRAGMENT, &inner, Cast::Unicast);
    assert!(matches!(input, Input::Drop(DropReason::Ipv6BadExtension)), "{input:?}");
    let cut = together(IPV6_DESTINATION, &[UDP, 9, 1, 4], Cast::Unicast);
    assert!(matches!(cut, Input::Drop(DropReason::Ipv6BadExtension)), "{cut:?}");
}

#[test]
fn a_chain_of_headers_in_a_reassembled_packet_has_its_limit() {
    let packet = |count| [options(count, UDP), udp(true, 8)].concat();
    let whole = together(IPV6_DESTINATION, &packet(1), Cast::Unicast);
    assert!(matches!(&whole, Input::Udp(datagram) if datagram.buf[..] == udp(true, 8)), "{whole:?}");
    let long = together(IPV6_DESTINATION, &packet(MAX_HEADERS + 1), Cast::Unicast);
    assert!(matches!(long, Input::Drop(DropReason::Ipv6ExtensionChainTooLong)), "{long:?}");
}

/// RFC 9293 section 3.9.2.3: "A TCP implementation MUST silently discard an incoming SYN segment that is addressed to a
/// broadcast or multicast address (MUST-57)", also if it arrives in fragments. A datagram may be for a group.
#[test]
fn what_is_reassembled_for_a_group_is_no_segment() {
    for (cast, protocol, taken) in [
        (Cast::Unicast, TCP, true),
        (Cast::Multicast, TCP, false),
        (Cast::Multicast, UDP, true),
        (Cast::Unicast, UDP, true),
    ] {
        let input = together(IPV6_DESTINATION, &[options(1, protocol), vec![0; 24]].concat(), cast);
        let found = match input {
            Input::Tcp(_) => Some(TCP),
            Input::Udp(_) => Some(UDP),
            Input::Drop(reason) => {
                assert_eq!(reason, DropReason::IpBroadcastTransport);
                None
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(found, taken.then_some(protocol), "{cast:?}, protocol {protocol}");
    }
}

/// RFC 4291 section 2.5.2: the unspecified address "must not be used as the source address" of packets that are
/// forwarded or answered; no segment comes from it.
#[test]
fn no_segment_comes_from_the_unspecified_address() {
    let mut host = Host::new();
    for (source, taken) in [(PEER6, true), (core::net::Ipv6Addr::UNSPECIFIED, false)] {
        let mut bytes = frame(true, TCP, &[0; 20]);
        bytes[L3 + 8..L3 + 24].copy_from_slice(&source.octets());
        let outcome = host.takes(&bytes);
        assert_eq!(matches!(outcome, Outcome::Delivered(TCP, _)), taken, "{source}: {outcome:?}");
    }
}
