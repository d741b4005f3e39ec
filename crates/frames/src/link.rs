//! Ethernet frames, 802.1Q tags and ARP; and the same over FDDI.

use std::net::Ipv4Addr;

use wire::arp::{Operation, Packet as ArpPacket};
use wire::ethernet::{EtherType, MacAddr, VlanTag};

use crate::{Packet, STACK, STACK_MAC};

/// The type of a frame's payload.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// An IP packet.
    Packet(Packet<'a>),
    /// An ARP packet.
    Arp(ArpPacket),
    /// Bytes of this type.
    Other(EtherType, &'a [u8]),
}

impl<'a> From<Packet<'a>> for Body<'a> {
    fn from(packet: Packet<'a>) -> Self {
        Body::Packet(packet)
    }
}

impl From<ArpPacket> for Body<'_> {
    fn from(packet: ArpPacket) -> Self {
        Body::Arp(packet)
    }
}

/// An Ethernet frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Sender.
    pub src: MacAddr,
    /// Receiver.
    pub dst: MacAddr,
    /// 802.1Q tags, the outermost first.
    pub tags: &'a [VlanTag],
    /// The type of the payload, if not that of the body.
    pub ethertype: Option<EtherType>,
    /// The payload.
    pub body: Body<'a>,
    /// Zeros after the payload, up to this length of the frame.
    pub padded_to: usize,
    /// The maximum length of the frame.
    pub truncate_to: usize,
}

impl<'a> Frame<'a> {
    /// A frame without a tag.
    pub fn new(src: MacAddr, dst: MacAddr, body: impl Into<Body<'a>>) -> Frame<'a> {
        Frame { src, dst, tags: &[], ethertype: None, body: body.into(), padded_to: 0, truncate_to: usize::MAX }
    }

    /// A frame with these bytes, of the type for local experiments (IEEE 802 section 9.2.4), which no stack takes: for tests of
    /// devices and bridges.
    pub fn experiment(src: MacAddr, dst: MacAddr, bytes: &'a [u8]) -> Frame<'a> {
        Frame::new(src, dst, Body::Other(EtherType::Other(0x88b5), bytes))
    }

    /// The frame as on the wire, without preamble and frame check sequence.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = [self.dst.0, self.src.0].concat();
        for tag in self.tags {
            let control = u16::from(tag.priority) << 13 | u16::from(tag.drop_eligible) << 12 | tag.id & 0xfff;
            out.extend(u16::from(EtherType::Vlan).to_be_bytes());
            out.extend(control.to_be_bytes());
        }
        self.finish(out)
    }

    /// The frame on an FDDI ring, with priority 0 and LLC and SNAP headers (RFC 1390); tags are left out.
    pub fn fddi_bytes(&self) -> Vec<u8> {
        let head = [&[0x50][..], &self.dst.0, &self.src.0, &[0xaa, 0xaa, 0x03, 0x00, 0x00, 0x00]];
        self.finish(head.concat())
    }

    /// Type, payload and padding behind the beginning of a header.
    fn finish(&self, mut out: Vec<u8>) -> Vec<u8> {
        let (ethertype, body) = match &self.body {
            Body::Packet(packet) if packet.src.is_ipv4() => (EtherType::Ipv4, packet.bytes()),
            Body::Packet(packet) => (EtherType::Ipv6, packet.bytes()),
            Body::Arp(packet) => (EtherType::Arp, arp_bytes(packet)),
            Body::Other(ethertype, bytes) => (*ethertype, bytes.to_vec()),
        };
        out.extend(u16::from(self.ethertype.unwrap_or(ethertype)).to_be_bytes());
        out.extend(body);
        out.resize(out.len().max(self.padded_to), 0);
        out.truncate(self.truncate_to);
        out
    }
}

/// An ARP packet to the stack, in a frame: `sha` claims `spa`, with [`STACK`] as the target.
pub fn arp(op: Operation, sha: MacAddr, spa: Ipv4Addr) -> Vec<u8> {
    Frame::new(sha, STACK_MAC, ArpPacket { op, sha, spa, tha: STACK_MAC, tpa: STACK }).bytes()
}

fn arp_bytes(packet: &ArpPacket) -> Vec<u8> {
    let mut out = vec![0, 1, 8, 0, 6, 4];
    out.extend(u16::from(packet.op).to_be_bytes());
    out.extend(packet.sha.0);
    out.extend(packet.spa.octets());
    out.extend(packet.tha.0);
    out.extend(packet.tpa.octets());
    out
}
