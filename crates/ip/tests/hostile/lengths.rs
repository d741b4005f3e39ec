//! P1: false lengths. AMNESIA:33, Ripple20, INFRA:HALT and URGENT/11 were all of this kind.

use frames::{Packet, Payload};
use wire::protocol;

use super::host::*;

/// The allowed outcomes of a mutant besides silence.
#[derive(Clone, Copy, Debug, PartialEq)]
enum May {
    /// Nothing may.
    Nothing,
    /// A transport may get it, cut to the length in its header.
    Deliver,
    /// The echo may be answered.
    Answer,
    /// An ICMP error may.
    Complain,
}

struct Mutant {
    name: String,
    frame: Vec<u8>,
    may: May,
}

fn mutant(name: impl Into<String>, may: May, mut frame: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Mutant {
    change(&mut frame);
    if frame.get(12..14) == Some(&[8, 0]) {
        frames::repair(&mut frame, L3);
    }
    Mutant { name: name.into(), frame, may }
}

fn put16(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Total lengths around every edge; the frame carries a datagram of 36 bytes behind 20 of header.
fn total_lengths() -> Vec<Mutant> {
    let table = [
        (0, May::Nothing),
        (1, May::Nothing),
        (19, May::Nothing),
        (20, May::Deliver),
        (21, May::Deliver),
        (27, May::Deliver),
        (55, May::Deliver),
        (57, May::Nothing),
        (0x7fff, May::Nothing),
        (0xffff, May::Nothing),
    ];
    let of = |(len, may)| {
        mutant(format!("total length {len}"), may, frame(false, protocol::UDP, &udp(false, 28)), |f| {
            put16(f, L3 + 2, len)
        })
    };
    table.into_iter().map(of).collect()
}

fn header_lengths() -> Vec<Mutant> {
    let of = |words: u8| {
        let may = if words < 5 { May::Nothing } else { May::Deliver };
        mutant(format!("header of {words} words"), may, frame(false, protocol::UDP, &udp(false, 28)), |f| {
            f[L3] = 0x40 | words
        })
    };
    (0..16).map(of).collect()
}

/// Option lists: kind and length bytes, the rest no-operations. A loop must end on length 0 and 1.
fn ipv4_options() -> Vec<Mutant> {
    let bad: [(&str, &[u8]); 12] = [
        ("length 0", &[7, 0, 1, 1]),
        ("length 1", &[7, 1, 1, 1]),
        ("length 5 of 4", &[7, 5, 1, 1]),
        ("length 255", &[7, 255, 4, 1]),
        ("no length at the end", &[1, 1, 1, 7]),
        ("length 0 at the end", &[1, 1, 7, 0]),
        ("length 3 of 2 at the end", &[1, 1, 7, 3]),
        ("loose source route", &[131, 4, 4, 0]),
        ("strict source route", &[137, 4, 4, 0]),
        ("source route without end", &[131, 255, 4, 0]),
        ("timestamp, length 0", &[68, 0, 5, 0]),
        ("unknown, length 0 behind good ones", &[0x94, 4, 0, 0, 1, 1, 99, 0]),
    ];
    let good: [(&str, &[u8]); 4] = [
        ("end of list", &[0, 7, 0, 0]),
        ("no-operations", &[1; 40]),
        ("router alert", &[0x94, 4, 0, 0]),
        ("record route, pointer beyond", &[7, 4, 255, 1]),
    ];
    let of = |may| {
        move |(name, options): (&str, &[u8])| Mutant {
            name: format!("option: {name}"),
            frame: with_options(options),
            may,
        }
    };
    bad.into_iter().map(of(May::Nothing)).chain(good.into_iter().map(of(May::Deliver))).collect()
}

fn with_options(options: &[u8]) -> Vec<u8> {
    let datagram = udp(false, 28);
    ends(false).frame(Packet { options, ..packet(false, Payload::Other(protocol::UDP, &datagram)) }).bytes()
}

/// Frames cut anywhere, and false lengths in transport headers.
fn common(v6: bool) -> Vec<Mutant> {
    let header = if v6 { 40 } else { 20 };
    let l4 = L3 + header;
    let whole = || frame(v6, protocol::UDP, &udp(v6, 28));
    let cut = |len: usize| mutant(format!("cut to {len}"), May::Nothing, whole(), |f| f.truncate(len));
    let mut all: Vec<Mutant> = (0..l4 + 36).step_by(5).map(cut).collect();
    let icmp = if v6 { protocol::ICMPV6 } else { protocol::ICMP };
    for len in 0..8 {
        let short = frame(v6, icmp, &echo(v6, 0)[..len]);
        all.push(mutant(format!("ICMP of {len} bytes"), May::Nothing, short, |_| {}));
    }
    // UDP and TCP check their own lengths when they get the datagram; it must be no longer than the packet.
    for len in [0u16, 7, 8, 36, 37, 0xffff] {
        all.push(mutant(format!("UDP length {len}"), May::Deliver, whole(), |f| put16(f, l4 + 4, len)));
    }
    for protocol in [4, 41, 46, 47, 50, 51, 103, 132, 253, 254, 255] {
        let payload = frame(v6, protocol::UDP, &udp(v6, 28))[L3..].to_vec();
        all.push(mutant(
            format!("protocol {protocol}, a packet in a packet"),
            May::Complain,
            frame(v6, protocol, &payload),
            |_| {},
        ));
    }
    all.push(mutant("padded", May::Answer, ping(v6, 1), |f| f.resize(L3 + 46, 0xee)));
    all.push(mutant("wrong version", May::Nothing, whole(), |f| f[L3] = 0x50 | (f[L3] & 0x0f)));
    all.push(mutant("the other family's type", May::Nothing, whole(), |f| {
        (f[12], f[13]) = if v6 { (8, 0) } else { (0x86, 0xdd) }
    }));
    all
}

fn payload_lengths() -> Vec<Mutant> {
    let table = [
        (0u16, May::Deliver),
        (1, May::Deliver),
        (7, May::Deliver),
        (35, May::Deliver),
        (37, May::Nothing),
        (0x8000, May::Nothing),
        (0xffff, May::Nothing),
    ];
    let of = |(len, may)| {
        mutant(format!("payload length {len}"), may, frame(true, protocol::UDP, &udp(true, 28)), |f| {
            put16(f, L3 + 4, len)
        })
    };
    table.into_iter().map(of).collect()
}

/// Header extension lengths against the packet's end; each would lead a careless walk beyond it.
fn extension_lengths() -> Vec<Mutant> {
    let mut all = Vec::new();
    for kind in [protocol::HOP_BY_HOP, protocol::IPV6_ROUTING, protocol::IPV6_DESTINATION] {
        for len8 in [1u8, 3, 4, 5, 30, 31, 32, 255] {
            let payload = [&[protocol::UDP, len8, 1, 4, 0, 0, 0, 0][..], &udp(true, 28)].concat();
            // Its own eight bytes and 32 of the datagram can be covered; then the rest is no longer a datagram. As a
            // routing header it has four segments left, and is reported.
            let may = if kind == protocol::IPV6_ROUTING { May::Complain } else { May::Deliver };
            all.push(mutant(format!("header {kind} of {len8} units"), may, frame(true, kind, &payload), |_| {}));
        }
    }
    for (name, option) in [("length beyond", [5u8, 9]), ("length 255", [5, 255]), ("PadN beyond", [1, 5])] {
        let payload = [&[protocol::UDP, 0, option[0], option[1], 0, 0, 0, 0][..], &udp(true, 28)].concat();
        all.push(mutant(
            format!("option {name}"),
            May::Nothing,
            frame(true, protocol::IPV6_DESTINATION, &payload),
            |_| {},
        ));
    }
    all
}

fn judge(mutants: &[Mutant]) {
    let mut host = Host::new();
    for Mutant { name, frame, may } in mutants {
        let dropped = host.counters.snapshot().dropped_total();
        let outcome = host.answers_by_the_rules(name, frame);
        let allowed = match &outcome {
            Outcome::Silence => host.counters.snapshot().dropped_total() > dropped,
            Outcome::Delivered(_, bytes) => *may == May::Deliver && bytes.len() + 20 <= frame.len() - L3,
            Outcome::Reply(_) => {
                *may == May::Complain || (*may == May::Answer && matches!(outcome.reply(), Some((0 | 129, 0))))
            }
            Outcome::Held => false,
        };
        assert!(allowed, "{name}: {outcome:?} where {may:?}");
        still_lives(&mut host);
    }
}

#[test]
fn ipv4_lengths_that_lie() {
    let mutants: Vec<Mutant> =
        [total_lengths(), header_lengths(), ipv4_options(), common(false)].into_iter().flatten().collect();
    assert!(mutants.len() >= 60, "{} mutants", mutants.len());
    balanced(|| judge(&mutants));
}

#[test]
fn ipv6_lengths_that_lie() {
    let mutants: Vec<Mutant> = [payload_lengths(), extension_lengths(), common(true)].into_iter().flatten().collect();
    assert!(mutants.len() >= 60, "{} mutants", mutants.len());
    balanced(|| judge(&mutants));
}
