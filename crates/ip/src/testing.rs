//! One interface, one peer and the packets between them, for the tests of this crate.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use frames::{Body, Ends, Fragment, Packet, Payload};
use observe::Counters;
use pktbuf::PktBuf;
use wire::ethernet::{EtherType, MacAddr};
use wire::protocol;

pub use frames::repair;

use crate::input::{self, Input};
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

/// From the peer to us.
pub const ENDS: Ends = Ends { src_mac: PEER_MAC, dst_mac: OUR_MAC, src: IpAddr::V4(PEER), dst: IpAddr::V4(OURS) };

/// From the peer to us, over IPv6.
pub const ENDS6: Ends = Ends { src_mac: PEER_MAC, dst_mac: OUR_MAC, src: IpAddr::V6(PEER6), dst: IpAddr::V6(OURS6) };

/// A packet from the peer to us, which routers may fragment.
pub fn packet_v4(protocol: u8, payload: &[u8]) -> PktBuf {
    let fragment = Some(Fragment { ident: 7, ..Fragment::default() });
    let packet = ENDS.packet(Payload::Other(protocol, payload));
    buffer(&Packet { fragment, dont_fragment: false, ..packet }.bytes())
}

/// A packet from the peer to us; `payload` may begin with extension headers, by `next_header`.
pub fn packet_v6(next_header: u8, payload: &[u8]) -> PktBuf {
    buffer(&ENDS6.packet(Payload::Other(next_header, payload)).bytes())
}

/// These bytes in a packet buffer.
pub fn buffer(bytes: &[u8]) -> PktBuf {
    PktBuf::from_slice(bytes).unwrap()
}

/// The packet in a frame from the peer's link address to ours.
pub fn framed(packet: PktBuf) -> PktBuf {
    let ethertype = if packet[0] >> 4 == 4 { EtherType::Ipv4 } else { EtherType::Ipv6 };
    buffer(&ENDS.frame(Body::Other(ethertype, &packet)).bytes())
}

pub fn received(frame: PktBuf) -> Input {
    input::ethernet(frame, &interface(), &Counters::new())
}

/// A UDP datagram as input returns it.
pub fn udp_datagram(v6: bool, payload: &[u8]) -> Datagram {
    let packet = if v6 { packet_v6(protocol::UDP, payload) } else { packet_v4(protocol::UDP, payload) };
    match received(framed(packet)) {
        Input::Udp(datagram) => datagram,
        other => panic!("{other:?}"),
    }
}
