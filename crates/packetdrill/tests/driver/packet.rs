//! Packets made and read by hand, independent of the stack's own code.

use std::net::IpAddr;

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
    pub text: Vec<u8>,
}

fn sum(octets: &[u8]) -> u64 {
    octets.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum()
}

fn checksum(octets: &[&[u8]]) -> u16 {
    let mut total: u64 = octets.iter().map(|part| sum(part)).sum();
    while total > 0xffff {
        total = (total >> 16) + (total & 0xffff);
    }
    !(total as u16)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// An IP packet with `segment`.
pub fn packet(from: IpAddr, to: IpAddr, segment: &Segment) -> Vec<u8> {
    let (from, to) = (octets(from), octets(to));
    let header_len = 20 + segment.options.len();
    let len = header_len + segment.text.len();
    let mut tcp = Vec::new();
    tcp.extend(segment.ports.0.to_be_bytes());
    tcp.extend(segment.ports.1.to_be_bytes());
    tcp.extend(segment.seq.to_be_bytes());
    tcp.extend(segment.ack.to_be_bytes());
    tcp.extend([((header_len / 4) << 4) as u8, segment.flags]);
    tcp.extend(32768_u16.to_be_bytes());
    tcp.extend([0; 4]);
    tcp.extend(&segment.options);
    tcp.extend(&segment.text);
    let check = checksum(&[&from, &to, &[0, 6], &(len as u16).to_be_bytes(), &tcp]);
    tcp[16..18].copy_from_slice(&check.to_be_bytes());
    let mut ip = if from.len() == 4 {
        let total = (20 + len) as u16;
        let mut ip = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0x40, 0, 64, 6, 0, 0];
        ip.extend(from.iter().chain(&to));
        let check = checksum(&[&ip]);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        ip
    } else {
        let mut ip = vec![0x60, 0, 0, 0, (len >> 8) as u8, len as u8, 6, 64];
        ip.extend(from.iter().chain(&to));
        ip
    };
    ip.extend(tcp);
    ip
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
    let check = checksum(&[addresses, &[0, 6], &(tcp.len() as u16).to_be_bytes(), tcp]);
    assert_eq!(check, 0, "a wrong checksum: {packet:02x?}");
    let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().expect("four octets"));
    let header_len = usize::from(tcp[12] >> 4) * 4;
    Segment {
        ports: (u16::from_be_bytes([tcp[0], tcp[1]]), u16::from_be_bytes([tcp[2], tcp[3]])),
        flags: tcp[13],
        seq: word(4),
        ack: word(8),
        options: tcp[20..header_len].to_vec(),
        text: tcp[header_len..].to_vec(),
    }
}
