//! Nearly valid frames: the fields that a check would refuse at once are correct, the rest is from the input.

use std::net::IpAddr;

use arbitrary::{Result, Unstructured};
use testbed::frames::{
    Body, Ends, Fragment, PEER, Packet, Payload, STACK, STACK6, Segment, TcpOptions, pseudo_header, sum, tcp_of,
};
use wire::ethernet::EtherType;
use wire::protocol;
use wire::tcp::TcpFlags;

/// A frame for the stack. `last` is the stack's last frame, from which an answer is made.
pub fn any(u: &mut Unstructured<'_>, last: &[u8]) -> Result<Vec<u8>> {
    Ok(match u.int_in_range(0..=17)? {
        0 => raw(u)?,
        1 => mutated(u, last)?,
        2 => fragment(u)?,
        3 => ipv6(u)?,
        4 => transport(u, protocol::UDP, 6)?,
        5 if u.ratio(1, 3)? => groups(u)?,
        5 => transport(u, protocol::ICMP, 2)?,
        6 => opening(u)?,
        _ => answer(u, last)?,
    })
}

/// Fills in a checksum over the pseudo-header (none for ICMP and IGMP over IPv4), if there is room for one at `field`.
pub fn fill_checksum(message: &mut [u8], field: usize, src: IpAddr, dst: IpAddr, protocol: u8) {
    let len = message.len();
    let Some(place) = message.get_mut(field..field + 2) else { return };
    place.fill(0);
    let plain = matches!(protocol, protocol::ICMP | protocol::IGMP);
    let sum = !sum(message, if plain { 0 } else { pseudo_header(src, dst, protocol, len) });
    message[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Bytes after a link header.
fn raw(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let ethertype = *u.choose(&[EtherType::Ipv4, EtherType::Ipv6, EtherType::Arp])?;
    let len = u.int_in_range(0..=120)?;
    let bytes = u.bytes(len.min(u.len()))?;
    Ok(Ends::PEER_TO_STACK.frame(Body::Other(ethertype, bytes)).bytes())
}

/// The stack's own frame, sent back to it with some bytes changed.
fn mutated(u: &mut Unstructured<'_>, last: &[u8]) -> Result<Vec<u8>> {
    let mut frame = last.to_vec();
    if let Some(link) = frame.get_mut(..12) {
        link.rotate_left(6);
    }
    for _ in 0..u.int_in_range(1..=4)? {
        if !frame.is_empty() {
            let at = u.choose_index(frame.len())?;
            frame[at] = u.arbitrary()?;
        }
    }
    Ok(frame)
}

/// A SYN, or something similar, to a port that may listen.
fn opening(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let besides = if u.ratio(1, 2)? { 0 } else { u.arbitrary::<u16>()? & 0x1ff };
    let ports = (2000 + u.int_in_range(0..=3)?, port(u)?);
    let segment = Segment::ack(ports, u.arbitrary()?, u.arbitrary()?);
    with_options(u, Segment { flags: TcpFlags(besides | TcpFlags::SYN.0), ..segment })
}

/// A segment of the connection of the stack's last frame, close to what it expects.
fn answer(u: &mut Unstructured<'_>, last: &[u8]) -> Result<Vec<u8>> {
    let Some((header, data)) = tcp_of(last) else { return opening(u) };
    let control = u32::from(header.flags.contains(TcpFlags::SYN)) + u32::from(header.flags.contains(TcpFlags::FIN));
    let next = header.seq.0.wrapping_add(data.len() as u32).wrapping_add(control);
    let len = u.int_in_range(0..=64)?;
    let data = vec![b'f'; if u.ratio(1, 2)? { len } else { 0 }];
    let flags = if u.ratio(7, 8)? { TcpFlags::ACK.0 } else { u.arbitrary::<u16>()? & 0x1ff };
    // An answer to a FIN often has a FIN itself.
    let often = if header.flags.contains(TcpFlags::FIN) { 3 } else { 1 };
    let fin = if u.ratio(often, 6)? { TcpFlags::FIN.0 } else { 0 };
    let ports = (header.dst_port, header.src_port);
    let segment = Segment::ack(ports, near(u, header.ack.0)?, near(u, next)?);
    let mut segment = Segment { flags: TcpFlags(flags | fin), data: &data, ..segment };
    if u.ratio(1, 2)? {
        return with_options(u, segment);
    }
    // Options of a real peer: the echoed timestamp, and SACK of data out of order.
    let mut options = Vec::new();
    if let Some(stamps) = header.options.timestamps {
        options.extend_from_slice(&[1, 1, 8, 10]);
        options.extend_from_slice(&near(u, stamps.echo)?.to_be_bytes());
        options.extend_from_slice(&near(u, stamps.value)?.to_be_bytes());
    }
    if u.ratio(1, 3)? {
        options.extend_from_slice(&[1, 1, 5, 10]);
        options.extend_from_slice(&near(u, header.seq.0)?.to_be_bytes());
        options.extend_from_slice(&near(u, next)?.to_be_bytes());
        segment.ack = near(u, header.seq.0.wrapping_sub(1460))?;
    }
    with_window(u, segment.options(TcpOptions::new(&options)))
}

/// `value`, or one close to it, or half the number space away.
fn near(u: &mut Unstructured<'_>, value: u32) -> Result<u32> {
    Ok(match u.int_in_range(0..=15)? {
        0..=12 => value,
        13 => value.wrapping_add(u32::from(u.arbitrary::<u8>()?)),
        14 => value.wrapping_sub(u32::from(u.arbitrary::<u8>()?)),
        _ => value.wrapping_add(u.arbitrary()?),
    })
}

/// The frame of `segment` with a window, an urgent pointer and options from the input.
fn with_options(u: &mut Unstructured<'_>, segment: Segment<'_>) -> Result<Vec<u8>> {
    let words = if u.ratio(1, 2)? { usize::from(u.int_in_range(0u8..=10)?) } else { 0 };
    let mut options = Vec::new();
    for _ in 0..words {
        options.extend_from_slice(&option_word(u)?);
    }
    with_window(u, segment.options(TcpOptions::new(&options)))
}

/// The frame of `segment` with a window, an urgent pointer and a ninth flag from the input.
fn with_window(u: &mut Unstructured<'_>, mut segment: Segment<'_>) -> Result<Vec<u8>> {
    let ninth = u16::from(u.arbitrary::<u8>()? & 1) << 8;
    segment.flags = TcpFlags(segment.flags.0 & 0xff | ninth);
    if u.ratio(1, 4)? {
        (segment.window, segment.urgent) = (u.arbitrary()?, u.arbitrary()?);
    }
    Ok(segment.frame())
}

/// Four bytes of options: the beginning of a known one, or anything.
fn option_word(u: &mut Unstructured<'_>) -> Result<[u8; 4]> {
    let any: [u8; 4] = u.arbitrary()?;
    let known: [[u8; 4]; 8] = [
        [1, 1, 8, 10],
        [2, 4, any[0], any[1]],
        [1, 3, 3, any[0]],
        [1, 1, 4, 2],
        [1, 1, 5, 10],
        [34, 6, any[0], any[1]],
        [172, 11, any[0], any[1]],
        [0, 0, 0, 0],
    ];
    Ok(if u.ratio(1, 2)? { *u.choose(&known)? } else { any })
}

fn port(u: &mut Unstructured<'_>) -> Result<u16> {
    Ok(*u.choose(&crate::sequence::PORTS)?)
}

/// A UDP datagram or an ICMP message with a correct checksum.
fn transport(u: &mut Unstructured<'_>, protocol: u8, field: usize) -> Result<Vec<u8>> {
    let len = u.int_in_range(0..=100)?;
    let mut message = u.bytes(len.min(u.len()))?.to_vec();
    if protocol == protocol::UDP && message.len() >= 8 && u.ratio(3, 4)? {
        message[2..4].copy_from_slice(&port(u)?.to_be_bytes());
        let len = message.len() as u16;
        message[4..6].copy_from_slice(&len.to_be_bytes());
    }
    fill_checksum(&mut message, field, PEER.into(), STACK.into(), protocol);
    Ok(Ends::PEER_TO_STACK.frame(packet(protocol, &message)).bytes())
}

/// A message about groups, or a datagram to one, in a frame for it.
fn groups(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let group = *u.choose(&[[224, 0, 0, 1], [239, 1, 2, 3], [239, 1, 2, 4]])?;
    let (protocol, message) = if u.ratio(1, 2)? {
        let kind = *u.choose(&[0x11, 0x11, 0x12, 0x16, 0x17, 0x22])?;
        let len = u.int_in_range(7..=20)?;
        let mut message = vec![0; len];
        let any = u.bytes(len.min(u.len()))?;
        message[..any.len()].copy_from_slice(any);
        (message[0], message[1]) = (kind, message[1] & 0x8f);
        message[4..7].copy_from_slice(&group[..3]);
        fill_checksum(&mut message, 2, PEER.into(), STACK.into(), protocol::IGMP);
        (protocol::IGMP, message)
    } else {
        let port = port(u)?.to_be_bytes();
        (protocol::UDP, vec![7, 208, port[0], port[1], 0, 12, 0, 0, 1, 2, 3, 4])
    };
    let ends = Ends::PEER_TO_STACK.to(group);
    let ttl = if u.ratio(7, 8)? { 1 } else { 64 };
    Ok(ends.frame(Packet { dst: ends.dst, ttl, ..packet(protocol, &message) }).bytes())
}

/// A fragment of one of a few datagrams.
fn fragment(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let protocol = *u.choose(&[protocol::UDP, protocol::TCP, protocol::ICMP])?;
    let len = u.int_in_range(0..=64)?;
    let payload = u.bytes(len.min(u.len()))?.to_vec();
    let offset = if u.ratio(3, 4)? { u.int_in_range(0..=8)? } else { u.arbitrary::<u16>()? & 0x1fff } << 3;
    let more = u.ratio(1, 2)?;
    let fragment = Some(Fragment { ident: u.int_in_range(0..=3)?, offset, more });
    Ok(Ends::PEER_TO_STACK.frame(Packet { fragment, ..packet(protocol, &payload) }).bytes())
}

/// An IPv6 packet with extension headers, fragments among them.
fn ipv6(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let len = u.int_in_range(0..=100)?;
    let mut message = u.bytes(len.min(u.len()))?.to_vec();
    let next = *u.choose(&[protocol::TCP, protocol::UDP, protocol::ICMPV6, 0, 43, 44, 60, 59])?;
    let ends = Ends::PEER_TO_STACK_V6;
    // To the stack's link address, whatever the packet's destination.
    let dst = if u.ratio(1, 4)? { wire::ipv6::solicited_node(STACK6).into() } else { ends.dst };
    let field = if next == protocol::TCP { 16 } else { 2 };
    fill_checksum(&mut message, field, ends.src, dst, next);
    let ttl = if u.ratio(3, 4)? { 255 } else { u.arbitrary()? };
    Ok(ends.frame(Packet { ttl, ..Packet::new(ends.src, dst, Payload::Other(next, &message)) }).bytes())
}

/// An IPv4 packet of the peer that routers may fragment.
fn packet(protocol: u8, payload: &[u8]) -> Packet<'_> {
    Packet { dont_fragment: false, ..Ends::PEER_TO_STACK.packet(Payload::Other(protocol, payload)) }
}
