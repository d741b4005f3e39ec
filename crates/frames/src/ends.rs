//! The sender and the receiver of a frame, and the two hosts of most tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::ethernet::MacAddr;

use crate::{Body, Frame, Packet, Payload};

/// The stack under test.
pub const STACK: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The test's host.
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The stack's IPv6 address.
pub const STACK6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
/// The peer's IPv6 address.
pub const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
/// The stack's link address: that of the first port of a pair in memory.
pub const STACK_MAC: MacAddr = MacAddr([0x02, 0x68, 0x65, 0x64, 0x00, 0x0a]);
/// The peer's link address: that of the second port.
pub const PEER_MAC: MacAddr = MacAddr([0x02, 0x68, 0x65, 0x64, 0x00, 0x0b]);
/// The peer's initial sequence number.
pub const ISS: u32 = 0x1234_5678;

/// The two ends of a link, as the sender sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The sender's link address.
    pub src_mac: MacAddr,
    /// The receiver's link address.
    pub dst_mac: MacAddr,
    /// The sender's address.
    pub src: IpAddr,
    /// The receiver's address, of the same family.
    pub dst: IpAddr,
}

impl Ends {
    /// From the peer to the stack, over IPv4.
    pub const PEER_TO_STACK: Ends =
        Ends { src_mac: PEER_MAC, dst_mac: STACK_MAC, src: IpAddr::V4(PEER), dst: IpAddr::V4(STACK) };
    /// From the peer to the stack, over IPv6.
    pub const PEER_TO_STACK_V6: Ends =
        Ends { src_mac: PEER_MAC, dst_mac: STACK_MAC, src: IpAddr::V6(PEER6), dst: IpAddr::V6(STACK6) };

    /// Both, for properties that must hold over either family.
    pub const BOTH_FAMILIES: [Ends; 2] = [Ends::PEER_TO_STACK, Ends::PEER_TO_STACK_V6];

    /// The same with another sender's address.
    pub fn from(self, src: impl Into<IpAddr>) -> Ends {
        Ends { src: src.into(), ..self }
    }

    /// The same with another receiver's address. The link address is that of a group if the receiver is one.
    pub fn to(self, dst: impl Into<IpAddr>) -> Ends {
        let dst = dst.into();
        let dst_mac = match dst {
            IpAddr::V4(group) if group.is_multicast() => MacAddr::from_ipv4_multicast(group),
            IpAddr::V6(group) if group.is_multicast() => MacAddr::from_ipv6_multicast(group),
            _ => self.dst_mac,
        };
        Ends { dst, dst_mac, ..self }
    }

    /// The same with another receiver on the link.
    pub fn to_mac(self, dst_mac: MacAddr) -> Ends {
        Ends { dst_mac, ..self }
    }

    /// The reverse direction.
    pub fn reversed(self) -> Ends {
        Ends { src_mac: self.dst_mac, dst_mac: self.src_mac, src: self.dst, dst: self.src }
    }

    /// A packet from one end to the other.
    pub fn packet<'a>(self, payload: impl Into<Payload<'a>>) -> Packet<'a> {
        Packet::new(self.src, self.dst, payload)
    }

    /// A frame from one end to the other, to be modified.
    pub fn frame<'a>(self, body: impl Into<Body<'a>>) -> Frame<'a> {
        Frame::new(self.src_mac, self.dst_mac, body)
    }

    /// The bytes of a frame from one end to the other with this payload and nothing unusual.
    pub fn bytes<'a>(self, payload: impl Into<Payload<'a>>) -> Vec<u8> {
        self.frame(self.packet(payload)).bytes()
    }
}
