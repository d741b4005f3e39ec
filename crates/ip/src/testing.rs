//! One interface, one peer and the packets between them, for the tests of this crate.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use observe::Counters;
use pktbuf::PktBuf;
use wire::ethernet::MacAddr;
use wire::{checksum, protocol};

use crate::input::{self, Input};
use crate::output::{self, Fragmentation, LinkHeader};
use crate::{Datagram, InterfaceView};

pub const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
pub const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub const OURS6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub const PEER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// 10.0.0.1/24 and 2001:db8::1/64 with an MTU of 1500.
pub fn interface() -> InterfaceView {
    let view = InterfaceView::new(0, OUR_MAC, 1500);
    let view = view.with_address(OURS.into(), 24).unwrap();
    view.with_address(OURS6.into(), 64).unwrap()
}

/// A packet from the peer to us.
pub fn packet_v4(protocol: u8, payload: &[u8]) -> PktBuf {
    let mut packet = PktBuf::from_slice(payload).unwrap();
    output::ipv4_header(&mut packet, PEER, OURS, protocol, 0, 64, Fragmentation::Allowed { ident: 7 });
    packet
}

/// A packet from the peer to us; `payload` begins with extension headers if `next_header` says so.
pub fn packet_v6(next_header: u8, payload: &[u8]) -> PktBuf {
    let mut packet = PktBuf::from_slice(payload).unwrap();
    output::ipv6_header(&mut packet, PEER6, OURS6, next_header, 0, 64, 0);
    packet
}

/// The packet in a frame from the peer's link address to ours.
pub fn framed(mut packet: PktBuf) -> PktBuf {
    let destination = if packet[0] >> 4 == 4 { IpAddr::V4(OURS) } else { IpAddr::V6(OURS6) };
    LinkHeader::new(PEER_MAC, OUR_MAC, destination).prepend(&mut packet);
    packet
}

/// Makes the header checksum of the IPv4 packet at `at` right again.
pub fn repair(frame: &mut PktBuf, at: usize) {
    let header_len = usize::from(frame[at] & 0x0f) * 4;
    frame[at + 10..at + 12].fill(0);
    let end = (at + header_len).min(frame.len());
    let checksum = checksum::sum(&frame[at..end]).finish();
    frame[at + 10..at + 12].copy_from_slice(&checksum.to_be_bytes());
}

pub fn received(frame: PktBuf) -> Input {
    input::ethernet(frame, &interface(), &Counters::new())
}

/// A UDP datagram as input hands it on.
pub fn udp_datagram(v6: bool, payload: &[u8]) -> Datagram {
    let packet = if v6 { packet_v6(protocol::UDP, payload) } else { packet_v4(protocol::UDP, payload) };
    match received(framed(packet)) {
        Input::Udp(datagram) => datagram,
        other => panic!("{other:?}"),
    }
}
