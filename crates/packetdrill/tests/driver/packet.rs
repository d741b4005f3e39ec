//! Packets made and read independently of the stack's own code.

use std::net::IpAddr;

use frames::{Packet, TcpOptions, sum};
use wire::tcp::TcpFlags;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

/// A segment without its IP header.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    pub ports: (u16, u16),
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub options: Vec<u8>,
    pub data: Vec<u8>,
}

/// An IP packet with `segment`.
pub fn packet(from: IpAddr, to: IpAddr, segment: &Segment) -> Vec<u8> {
    let Segment { ports, flags, seq, ack, options, data } = segment;
    let built = frames::Segment { flags: TcpFlags((*flags).into()), data, ..frames::Segment::ack(*ports, *seq, *ack) };
    Packet::new(from, to, built.window(32_768).options(TcpOptions::new(options))).bytes()
}

/// The segment in an IP packet, whose checksum must be right.
pub fn read(packet: &[u8]) -> Segment {
    let (start, addresses, protocol) = match packet[0] >> 4 {
        4 => (usize::from(packet[0] & 15) * 4, &packet[12..20], packet[9]),
        6 => (40, &packet[8..40], packet[6]),
        other => panic!("version {other} of IP"),
    };
    assert_eq!(protocol, 6, "not TCP: {packet:02x?}");
    let tcp = &packet[start..];
    let pseudo = sum(addresses, sum(&[0, 6], tcp.len() as u16));
    assert_eq!(sum(tcp, pseudo), 0xffff, "a wrong checksum: {packet:02x?}");
    let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().expect("four bytes"));
    let header_len = usize::from(tcp[12] >> 4) * 4;
    Segment {
        ports: (u16::from_be_bytes([tcp[0], tcp[1]]), u16::from_be_bytes([tcp[2], tcp[3]])),
        flags: tcp[13],
        seq: word(4),
        ack: word(8),
        options: tcp[20..header_len].to_vec(),
        data: tcp[header_len..].to_vec(),
    }
}
