//! Packets as bytes: built for a script's injections, parsed from the stack's frames.
//!
//! Independent of the stack's own emitters, so that a mistake there is not repeated here. Every checksum of a parsed
//! packet is checked.

use std::net::IpAddr;

use wire::ethernet::{self, EtherType, MacAddr};
use wire::{checksum, ipv4, ipv6, protocol};

use crate::host::link_header;
use crate::icmp;
use crate::script::{IcmpSpec, Quoted, TcpOption, flag};

const FAST_OPEN_EXPERIMENT: [u8; 2] = [0xf9, 0x89];

/// The IP header's part of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub tos: u8,
    pub ttl: u8,
    pub flow_label: u32,
}

/// A TCP segment on the wire; sequence numbers are live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tcp {
    pub ports: (u16, u16),
    pub flags: u16,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub urgent: u16,
    pub options: Vec<TcpOption>,
    pub data: Vec<u8>,
}

/// The payload of a packet of the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Tcp(Tcp),
    Udp { ports: (u16, u16), data: Vec<u8> },
    Icmp(IcmpSpec),
    Other(u8),
}

/// The link addresses of the stack and of its neighbour.
pub(crate) type Macs = (MacAddr, MacAddr);

/// A frame to the stack with `transport` behind its IP header.
///
/// # Errors
/// A sentence: the packet is longer than its header can express.
fn packet(macs: Macs, ip: &Ip, protocol: u8, transport: &[u8]) -> Result<Vec<u8>, String> {
    let counted = if ip.src.is_ipv4() { ipv4::HEADER_LEN } else { 0 } + transport.len();
    if counted > usize::from(u16::MAX) {
        return Err(format!("the packet is too large: its length field would have to say {counted}"));
    }
    let v4 = ip.src.is_ipv4();
    let mut out = link_header(macs.0, macs.1, if v4 { EtherType::Ipv4 } else { EtherType::Ipv6 });
    out.extend(ip_header(ip, protocol, transport.len()));
    out.extend_from_slice(transport);
    Ok(out)
}

fn ip_header(ip: &Ip, protocol: u8, len: usize) -> Vec<u8> {
    match (ip.src, ip.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut out = vec![0x45, ip.tos];
            out.extend(((ipv4::HEADER_LEN + len) as u16).to_be_bytes());
            // Identification 0, do not fragment.
            out.extend([0, 0, 0x40, 0, ip.ttl, protocol, 0, 0]);
            out.extend(src.octets());
            out.extend(dst.octets());
            let sum = checksum::sum(&out).finish();
            out[10..12].copy_from_slice(&sum.to_be_bytes());
            out
        }
        (src, dst) => {
            let word = 6_u32 << 28 | u32::from(ip.tos) << 20 | ip.flow_label;
            let mut out = word.to_be_bytes().to_vec();
            out.extend((len as u16).to_be_bytes());
            out.extend([protocol, ip.ttl]);
            for address in [src, dst] {
                if let IpAddr::V6(address) = address {
                    out.extend(address.octets());
                }
            }
            out
        }
    }
}

fn complete(transport: &mut [u8], ip: &Ip, protocol: u8, field: usize) {
    let pseudo = checksum::pseudo_header(ip.src, ip.dst, protocol, transport.len() as u32);
    let sum = pseudo.add(checksum::sum(transport)).finish();
    // In UDP zero means no checksum.
    let sum = if sum == 0 && protocol == protocol::UDP { 0xffff } else { sum };
    transport[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// A TCP segment to the stack.
pub(crate) fn tcp(macs: Macs, ip: &Ip, segment: &Tcp) -> Result<Vec<u8>, String> {
    let mut transport = tcp_header(segment)?;
    transport.extend_from_slice(&segment.data);
    complete(&mut transport, ip, protocol::TCP, 16);
    packet(macs, ip, protocol::TCP, &transport)
}

fn tcp_header(segment: &Tcp) -> Result<Vec<u8>, String> {
    let options = option_bytes(&segment.options)?;
    let mut out = Vec::with_capacity(60);
    out.extend(segment.ports.0.to_be_bytes());
    out.extend(segment.ports.1.to_be_bytes());
    out.extend(segment.seq.to_be_bytes());
    out.extend(segment.ack.to_be_bytes());
    let words = (20 + options.len()) as u16 / 4;
    out.extend((words << 12 | segment.flags & 0x1ff).to_be_bytes());
    out.extend(segment.window.to_be_bytes());
    out.extend([0, 0]);
    out.extend(segment.urgent.to_be_bytes());
    out.extend(options);
    Ok(out)
}

/// Options as bytes.
///
/// # Errors
/// A sentence: a header cannot have them. Its length counts in units of four bytes, so a script must pad its options.
pub(crate) fn option_bytes(options: &[TcpOption]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    options.iter().for_each(|option| emit(option, &mut bytes));
    match bytes.len() {
        len if len > 40 => Err(format!("the options take {len} bytes; a header has room for 40")),
        len if !len.is_multiple_of(4) => {
            Err(format!("the options take {len} bytes: pad them to a multiple of four with nop or eol"))
        }
        _ => Ok(bytes),
    }
}

fn emit(option: &TcpOption, out: &mut Vec<u8>) {
    let mut put = |kind: u8, body: &[u8]| {
        out.extend([kind, body.len() as u8 + 2]);
        out.extend_from_slice(body);
    };
    match option {
        TcpOption::Eol => out.push(0),
        TcpOption::Nop => out.push(1),
        TcpOption::Mss(mss) => put(2, &mss.to_be_bytes()),
        TcpOption::WindowScale(shift) => put(3, &[*shift]),
        TcpOption::SackPermitted => put(4, &[]),
        TcpOption::Sack(blocks) => {
            let body: Vec<u8> = blocks.iter().flat_map(|(a, b)| [a.to_be_bytes(), b.to_be_bytes()]).flatten().collect();
            put(5, &body);
        }
        TcpOption::Timestamps { val, ecr } => put(8, &[val.to_be_bytes(), ecr.to_be_bytes()].concat()),
        TcpOption::FastOpen(cookie) => put(34, cookie),
        TcpOption::FastOpenExperimental(cookie) => put(254, &[&FAST_OPEN_EXPERIMENT, &cookie[..]].concat()),
        TcpOption::AccEcn { order1, fields } => {
            let body: Vec<u8> = fields.iter().flat_map(|field| field.to_be_bytes()[1..].to_vec()).collect();
            put(if *order1 { 174 } else { 172 }, &body);
        }
        TcpOption::Other(kind, body) => put(*kind, body),
    }
}

/// Reads option bytes; an option without a length, or with a wrong one, ends them as [`TcpOption::Other`].
fn options(mut rest: &[u8]) -> Vec<TcpOption> {
    let mut options = Vec::new();
    while let Some((kind, after)) = rest.split_first() {
        match kind {
            0 => {
                options.push(TcpOption::Eol);
                rest = after;
                // Padding after the end of the list is shown as further ends.
                continue;
            }
            1 => {
                options.push(TcpOption::Nop);
                rest = after;
                continue;
            }
            _ => {}
        }
        let body = after.split_first().and_then(|(len, after)| {
            let len = usize::from(*len).checked_sub(2)?;
            Some((after.get(..len)?, after.get(len..)?))
        });
        let Some((body, after)) = body else {
            options.push(TcpOption::Other(*kind, after.to_vec()));
            return options;
        };
        options.push(option(*kind, body));
        rest = after;
    }
    options
}

fn option(kind: u8, body: &[u8]) -> TcpOption {
    let word =
        |at: usize| body.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]])).unwrap_or_default();
    match (kind, body.len()) {
        (2, 2) => TcpOption::Mss(u16::from_be_bytes([body[0], body[1]])),
        (3, 1) => TcpOption::WindowScale(body[0]),
        (4, 0) => TcpOption::SackPermitted,
        (5, len) if len > 0 && len.is_multiple_of(8) => {
            TcpOption::Sack((0..len / 8).map(|block| (word(block * 8), word(block * 8 + 4))).collect())
        }
        (8, 8) => TcpOption::Timestamps { val: word(0), ecr: word(4) },
        (34, _) => TcpOption::FastOpen(body.to_vec()),
        (254, 2..) if body[..2] == FAST_OPEN_EXPERIMENT => TcpOption::FastOpenExperimental(body[2..].to_vec()),
        (172 | 174, 0 | 3 | 6 | 9) => {
            let fields = body.chunks(3).map(|c| u32::from_be_bytes([0, c[0], c[1], c[2]])).collect();
            TcpOption::AccEcn { order1: kind == 174, fields }
        }
        _ => TcpOption::Other(kind, body.to_vec()),
    }
}

/// A UDP datagram to the stack.
pub(crate) fn udp(macs: Macs, ip: &Ip, ports: (u16, u16), data: &[u8]) -> Result<Vec<u8>, String> {
    let mut transport = udp_header(ports, data.len());
    transport.extend_from_slice(data);
    complete(&mut transport, ip, protocol::UDP, 6);
    packet(macs, ip, protocol::UDP, &transport)
}

fn udp_header(ports: (u16, u16), len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(ports.0.to_be_bytes());
    out.extend(ports.1.to_be_bytes());
    // A packet that is too long is refused as a whole.
    out.extend((8 + len as u32).to_be_bytes()[2..].iter());
    out.extend([0, 0]);
    out
}

/// A packet of the stack that an ICMP error quotes.
pub(crate) struct Offender {
    pub ip: Ip,
    pub ports: (u16, u16),
    /// Sequence number, live; the length of the data is in [`Offender::quoted`].
    pub seq: u32,
    pub quoted: Quoted,
}

/// An ICMP message to the stack.
pub(crate) fn icmp(macs: Macs, ip: &Ip, spec: &IcmpSpec, offender: &Offender) -> Result<Vec<u8>, String> {
    let v4 = ip.src.is_ipv4();
    let (kind, code) = icmp::numbers(spec, v4)?;
    let mut body = vec![kind, code, 0, 0];
    match (spec.mtu, spec.id) {
        (Some(mtu), _) if v4 => {
            let mtu = u16::try_from(mtu).map_err(|_| format!("an MTU of ICMP is 0 to 65535, not {mtu}"))?;
            body.extend([[0, 0], mtu.to_be_bytes()].concat());
        }
        (Some(mtu), _) => body.extend(mtu.to_be_bytes()),
        (None, Some(id)) => body.extend([id.to_be_bytes(), [0, 1]].concat()),
        (None, None) => body.extend([0; 4]),
    }
    if icmp::quotes(kind, v4) {
        let (protocol, transport, data) = match offender.quoted {
            Quoted::Tcp { len, .. } => {
                let segment = Tcp {
                    ports: offender.ports,
                    flags: flag::ACK,
                    seq: offender.seq,
                    ack: 0,
                    window: 0,
                    urgent: 0,
                    options: Vec::new(),
                    data: Vec::new(),
                };
                (protocol::TCP, tcp_header(&segment)?, len as usize)
            }
            Quoted::Udp(len) => (protocol::UDP, udp_header(offender.ports, usize::from(len)), usize::from(len)),
        };
        body.extend(ip_header(&offender.ip, protocol, transport.len() + data));
        // RFC 792 requires eight bytes of it; present routers quote more, and so does this one.
        body.extend(transport);
    }
    let protocol = if v4 { protocol::ICMP } else { protocol::ICMPV6 };
    if v4 {
        let sum = checksum::sum(&body).finish();
        body[2..4].copy_from_slice(&sum.to_be_bytes());
    } else {
        complete(&mut body, ip, protocol, 2);
    }
    packet(macs, ip, protocol, &body)
}

/// Reads a frame that the stack sent.
pub(crate) fn read(frame: &[u8]) -> Result<(Ip, Payload), String> {
    let (link, start) = ethernet::parse(frame).map_err(|error| format!("link header: {error:?}"))?;
    let packet = &frame[start..];
    match link.ethertype {
        EtherType::Ipv4 => {
            let header = ipv4::parse(packet).map_err(|error| format!("IPv4 header: {error:?}"))?;
            let ip =
                Ip { src: header.src.into(), dst: header.dst.into(), tos: header.tos, ttl: header.ttl, flow_label: 0 };
            if header.is_fragment() {
                return Ok((ip, Payload::Other(header.protocol)));
            }
            let body = &packet[usize::from(header.header_len)..usize::from(header.total_len)];
            Ok((ip, transport(&ip, header.protocol, body)?))
        }
        EtherType::Ipv6 => {
            let header = ipv6::parse(packet).map_err(|error| format!("IPv6 header: {error:?}"))?;
            let ip = Ip {
                src: header.src.into(),
                dst: header.dst.into(),
                tos: header.traffic_class,
                ttl: header.hop_limit,
                flow_label: header.flow_label,
            };
            let body = &packet[ipv6::HEADER_LEN..ipv6::HEADER_LEN + usize::from(header.payload_len)];
            Ok((ip, transport(&ip, header.next_header, body)?))
        }
        other => Err(format!("a frame of type {other:?}")),
    }
}

fn transport(ip: &Ip, protocol: u8, body: &[u8]) -> Result<Payload, String> {
    let pseudo = || checksum::pseudo_header(ip.src, ip.dst, protocol, body.len() as u32).add(checksum::sum(body));
    let short = || "a packet shorter than its header".to_owned();
    match protocol {
        protocol::TCP => {
            if !pseudo().is_valid() {
                return Err("a TCP segment with a wrong checksum".into());
            }
            let fixed = body.first_chunk::<20>().ok_or_else(short)?;
            let short16 = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
            let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
            let len = usize::from(fixed[12] >> 4) * 4;
            Ok(Payload::Tcp(Tcp {
                ports: (short16(0), short16(2)),
                flags: short16(12) & 0x1ff,
                seq: word(4),
                ack: word(8),
                window: short16(14),
                urgent: short16(18),
                options: options(body.get(20..len).ok_or_else(short)?),
                data: body[len..].to_vec(),
            }))
        }
        protocol::UDP => {
            let fixed = body.first_chunk::<8>().ok_or_else(short)?;
            if fixed[6..8] != [0, 0] && !pseudo().is_valid() {
                return Err("a UDP datagram with a wrong checksum".into());
            }
            let port = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
            Ok(Payload::Udp { ports: (port(0), port(2)), data: body[8..].to_vec() })
        }
        protocol::ICMP | protocol::ICMPV6 => {
            let v4 = protocol == protocol::ICMP;
            let valid = if v4 { checksum::sum(body).is_valid() } else { pseudo().is_valid() };
            if !valid {
                return Err("an ICMP message with a wrong checksum".into());
            }
            let fixed = body.first_chunk::<8>().ok_or_else(short)?;
            Ok(Payload::Icmp(icmp::spec(fixed, v4)))
        }
        other => Ok(Payload::Other(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Addresses;

    #[test]
    fn what_is_made_is_read_back() {
        for addresses in [Addresses::V4, Addresses::V6] {
            let ip = Ip { src: addresses.remote, dst: addresses.local, tos: 2, ttl: 64, flow_label: 0 };
            let macs = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
            let segment = Tcp {
                ports: (5, 6),
                flags: flag::SYN | flag::AE,
                seq: 0xffff_fff0,
                ack: 7,
                window: 8,
                urgent: 9,
                options: vec![
                    TcpOption::Mss(1460),
                    TcpOption::SackPermitted,
                    TcpOption::Timestamps { val: 1, ecr: 2 },
                    TcpOption::Nop,
                    TcpOption::AccEcn { order1: true, fields: vec![1, 0xff_ffff] },
                    TcpOption::FastOpenExperimental(vec![1, 2, 3, 4]),
                    TcpOption::Nop,
                    TcpOption::Eol,
                    TcpOption::Eol,
                ],
                data: b"abc".to_vec(),
            };
            let frame = tcp(macs, &ip, &segment).expect("it fits");
            assert_eq!(read(&frame), Ok((ip, Payload::Tcp(segment))));
            let frame = udp(macs, &ip, (1, 2), b"x").expect("it fits");
            assert_eq!(read(&frame), Ok((ip, Payload::Udp { ports: (1, 2), data: b"x".to_vec() })));
        }
    }
}
