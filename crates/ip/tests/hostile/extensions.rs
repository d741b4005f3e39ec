//! P4: IPv6 extension headers. Bounded in number, bytes and work; with the errors of RFC 8200 and RFC 4443.

use super::host::*;
use wire::ipv6::{self, MAX_HEADERS, MAX_STEPS};
use wire::protocol::{HOP_BY_HOP, IPV6_DESTINATION, IPV6_FRAGMENT, IPV6_ROUTING, UDP};

/// A header of eight bytes with four of padding, and the next header.
fn header(next: u8) -> [u8; 8] {
    [next, 0, 1, 4, 0, 0, 0, 0]
}

/// `n` destination-options headers in front of a datagram.
fn chained(n: usize) -> (u8, Vec<u8>) {
    let headers: Vec<u8> = (0..n).flat_map(|at| header(if at + 1 == n { UDP } else { IPV6_DESTINATION })).collect();
    (if n == 0 { UDP } else { IPV6_DESTINATION }, [headers, udp(true, 8)].concat())
}

#[test]
fn ten_packets() {
    let options = |count: usize| {
        // Unknown options that may be skipped, of two bytes each, and padding to a multiple of eight.
        let mut bytes = vec![UDP, 0];
        bytes.extend([0x1e, 0].repeat(count));
        let pad = (8 - bytes.len() % 8) % 8;
        match pad {
            0 => {}
            1 => bytes.push(0),
            _ => bytes.extend([&[1, pad as u8 - 2][..], &vec![0; pad - 2]].concat()),
        }
        bytes[1] = (bytes.len() / 8 - 1) as u8;
        bytes
    };
    let routing = |left| vec![UDP, 2, 0, left, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    let two = |first: u8| [header(HOP_BY_HOP), header(first)].concat();
    // First header, the headers; type and code of the reply; whether it is delivered.
    type Case = (&'static str, u8, Vec<u8>, Option<(u8, u8)>, bool);
    let cases: [Case; 10] = [
        ("eight options", HOP_BY_HOP, options(8), None, true),
        ("thirty options", IPV6_DESTINATION, options(30), None, true),
        ("forty options", IPV6_DESTINATION, options(40), None, false),
        ("RH0 with a segment left", IPV6_ROUTING, routing(1), Some((4, 0)), false),
        ("RH0 at its end", IPV6_ROUTING, routing(0), None, true),
        ("hop-by-hop not first", IPV6_DESTINATION, two(UDP), Some((4, 1)), false),
        ("atomic fragment", IPV6_FRAGMENT, vec![UDP, 0, 0, 0, 0, 0, 0, 9], None, true),
        ("unknown option, to be reported", IPV6_DESTINATION, vec![UDP, 0, 0x9e, 4, 0, 0, 0, 0], Some((4, 2)), false),
        ("unknown option, to be dropped", IPV6_DESTINATION, vec![UDP, 0, 0x5e, 4, 0, 0, 0, 0], None, false),
        ("eight bytes of Pad1", IPV6_DESTINATION, vec![UDP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0], None, false),
    ];
    balanced(|| {
        let mut host = Host::new();
        for (name, first, mut headers, reply, delivered) in cases {
            if name == "hop-by-hop not first" {
                headers[0] = HOP_BY_HOP;
            }
            let outcome = host.answers_by_the_rules(name, &frame(true, first, &[headers, udp(true, 8)].concat()));
            assert_eq!(outcome.reply(), reply, "{name}");
            assert_eq!(matches!(outcome, Outcome::Delivered(UDP, _)), delivered, "{name}: {outcome:?}");
            still_lives(&mut host);
        }
    });
}

/// The reports point at the byte at fault (RFC 4443 section 3.4).
#[test]
fn pointers_of_parameter_problems() {
    let cases: [(&str, u8, Vec<u8>, u8, u32); 5] = [
        ("segments left", IPV6_ROUTING, [header(UDP), header(UDP)].concat(), 0, 42),
        ("hop-by-hop second", IPV6_DESTINATION, [header(HOP_BY_HOP), header(UDP)].concat(), 1, 40),
        ("unknown next header", 253, vec![0; 8], 1, 6),
        ("unknown behind another", IPV6_DESTINATION, [header(253), header(0)].concat(), 1, 40),
        ("unknown option", IPV6_DESTINATION, vec![UDP, 0, 1, 0, 0x9e, 2, 0, 0], 2, 44),
    ];
    let mut host = Host::new();
    for (name, first, mut bytes, code, pointer) in cases {
        if first == IPV6_ROUTING {
            bytes[3] = 1;
        }
        let Outcome::Reply(packet) = host.takes(&frame(true, first, &bytes)) else { panic!("{name}: no reply") };
        let found = u32::from_be_bytes([packet[44], packet[45], packet[46], packet[47]]);
        assert_eq!((packet[40], packet[41], found), (4, code, pointer), "{name}");
    }
}

/// A chain of any length costs no more than the bound; beyond eight headers it is dropped silently.
#[test]
fn chains_of_one_to_sixty_four_headers() {
    balanced(|| {
        let mut host = Host::new();
        for n in 0..=64 {
            let (first, bytes) = chained(n);
            let outcome = host.takes(&frame(true, first, &bytes));
            assert_eq!(matches!(outcome, Outcome::Delivered(..)), n <= MAX_HEADERS, "{n}: {outcome:?}");
            assert_eq!(outcome.is_silence(), n > MAX_HEADERS, "{n}");
        }
        still_lives(&mut host);
    });
}

/// The work of a walk over chains of the smallest headers and options in 256 bytes.
#[test]
fn work_is_bounded_whatever_the_chain_holds() {
    let fillings: [&[u8]; 5] = [&[0], &[1, 0], &[0x1e, 0], &[0, 1, 0], &[0x1e, 1, 0, 1, 0]];
    for filling in fillings {
        for len8 in 0..=31u8 {
            let mut header = vec![UDP, len8];
            header.extend(filling.iter().cycle().take(6 + 8 * usize::from(len8)));
            for headers in [1, 2, 8, 64] {
                let mut chain = header.repeat(headers);
                let len = header.len();
                (0..headers - 1).for_each(|n| chain[n * len] = IPV6_DESTINATION);
                if let Ok(walked) = ipv6::walk(IPV6_DESTINATION, &chain) {
                    assert!(walked.steps <= MAX_STEPS && walked.offset <= ipv6::MAX_CHAIN_LEN, "{walked:?}");
                }
            }
        }
    }
}
