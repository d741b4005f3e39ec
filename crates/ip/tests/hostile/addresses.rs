//! P6: packets from impossible senders, to other receivers, and unicast protocols sent to broadcast or multicast
//! addresses.

use std::net::IpAddr;

use frames::{Icmp, Packet, Payload};
use wire::ethernet::MacAddr;
use wire::protocol;

use super::host::*;

/// A datagram with another source and destination.
fn v4(protocol: u8, src: [u8; 4], dst: [u8; 4]) -> Vec<u8> {
    between(protocol, src.into(), dst.into())
}

fn v6(protocol: u8, src: &str, dst: &str) -> Vec<u8> {
    let address = |text: &str| text.parse().expect("an address");
    between(protocol, address(src), address(dst))
}

fn between(protocol: u8, src: IpAddr, dst: IpAddr) -> Vec<u8> {
    let v6 = src.is_ipv6();
    let datagram = super::host::udp(v6, 28);
    ends(v6).frame(Packet { src, dst, ..packet(v6, Payload::Other(protocol, &datagram)) }).bytes()
}

fn linked(mut frame: Vec<u8>, to: [u8; 6]) -> Vec<u8> {
    frame[..6].copy_from_slice(&to);
    frame
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
//= type=test
//# A TCP implementation MUST silently discard an incoming SYN segment that is addressed to a broadcast or multicast
//# address [(MUST-57)].
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
//= type=test
//# An incoming SYN with an invalid source address MUST be ignored either by TCP or by the IP layer [(MUST-63)] (see
//# Section 3.2.1.3).
#[test]
fn fourteen_packets_of_each_family_are_met_with_silence() {
    let (us, peer) = (OURS.octets(), PEER.octets());
    let (tcp, udp) = (protocol::TCP, protocol::UDP);
    let broadcast = [0xff; 6];
    let four = [
        ("LAND", v4(tcp, us, us)),
        ("loop-back source", v4(udp, [127, 0, 0, 1], us)),
        ("network zero", v4(udp, [0, 1, 2, 3], us)),
        ("no source", v4(udp, [0; 4], us)),
        ("group source", v4(udp, [224, 0, 0, 1], us)),
        ("class E source", v4(udp, [240, 0, 0, 1], us)),
        ("limited broadcast source", v4(udp, [255; 4], us)),
        ("directed broadcast source", v4(udp, [10, 255, 255, 255], us)),
        ("loop-back destination", v4(udp, peer, [127, 0, 0, 1])),
        ("another's address", v4(tcp, peer, [10, 9, 9, 9])),
        ("another's link address", linked(v4(tcp, peer, us), [2, 0, 0, 0, 0, 9])),
        ("TCP in a broadcast frame", linked(v4(tcp, peer, us), broadcast)),
        ("TCP in a group frame", linked(v4(tcp, peer, us), [1, 0, 0x5e, 0, 0, 1])),
        ("TCP to the broadcast", linked(v4(tcp, peer, [10, 255, 255, 255]), broadcast)),
    ];
    let (us, peer) = ("2001:db8::1", "2001:db8::2");
    let six = [
        ("LAND", v6(tcp, us, us)),
        ("loop-back source", v6(udp, "::1", us)),
        ("no source", v6(udp, "::", us)),
        ("group source", v6(udp, "ff02::1", us)),
        ("mapped source", v6(udp, "::ffff:10.0.0.2", us)),
        ("mapped loop-back", v6(udp, "::ffff:127.0.0.1", us)),
        ("loop-back destination", v6(udp, peer, "::1")),
        ("no destination", v6(udp, peer, "::")),
        ("another's address", v6(tcp, peer, "2001:db8::99")),
        ("a group not joined", linked(v6(udp, peer, "ff02::99"), [0x33, 0x33, 0, 0, 0, 0x99])),
        ("another's link address", linked(v6(tcp, peer, us), [2, 0, 0, 0, 0, 9])),
        ("TCP in a broadcast frame", linked(v6(tcp, peer, us), broadcast)),
        ("TCP in a group frame", linked(v6(tcp, peer, us), [0x33, 0x33, 0, 0, 0, 1])),
        ("TCP to all nodes", linked(v6(tcp, peer, "ff02::1"), [0x33, 0x33, 0, 0, 0, 1])),
    ];
    balanced(|| {
        let mut host = Host::new();
        for (family, packets) in [("IPv4", four), ("IPv6", six)] {
            for (name, packet) in packets {
                let before = host.counters.snapshot().dropped_total();
                let outcome = host.takes(&packet);
                assert!(outcome.is_silence(), "{family}, {name}: {outcome:?}");
                assert_eq!(host.counters.snapshot().dropped_total(), before + 1, "{family}, {name}: one reason");
            }
        }
        still_lives(&mut host);
        for v6 in [false, true] {
            let control = host.takes(&frame(v6, udp, &super::host::udp(v6, 28)));
            assert!(matches!(control, Outcome::Delivered(..)), "unicast is delivered");
        }
    });
}

/// Echo to a broadcast or group is smurf's amplifier: IPv4 is silent, IPv6 answers from its own address.
#[test]
fn echo_to_everybody() {
    let mut host = Host::new();
    let dst = [10, 255, 255, 255].into();
    let smurf = Packet { dst, ..packet(false, Icmp::echo_request(false, &[0x66; 56])) };
    assert!(host.takes(&ends(false).to_mac(MacAddr::BROADCAST).frame(smurf).bytes()).is_silence());
}
