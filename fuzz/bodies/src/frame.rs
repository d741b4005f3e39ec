//! Frames that are nearly right: the parts that a check would refuse at once are in order, the rest is the input's.

use std::net::IpAddr;

use arbitrary::{Result, Unstructured};
use testbed::frames::{PEER, PEER_MAC, STACK, STACK_MAC, Segment, tcp_of};
use wire::ethernet::{self, EtherType};
use wire::tcp::TcpFlags;
use wire::{checksum, ipv4, protocol};

const L4: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;

/// A frame for the stack. `last` is what the stack sent last, which an answer is made from.
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
    let len = message.len() as u32;
    let Some(place) = message.get_mut(field..field + 2) else { return };
    place.fill(0);
    let sum = checksum::sum(message);
    let plain = matches!(protocol, protocol::ICMP | protocol::IGMP);
    let sum = if plain { sum } else { checksum::pseudo_header(src, dst, protocol, len).add(sum) };
    message[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
}

/// Octets behind a link header.
fn raw(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let ethertype = *u.choose(&[EtherType::Ipv4, EtherType::Ipv6, EtherType::Arp])?;
    let mut frame = link(ethertype);
    let len = u.int_in_range(0..=120)?;
    frame.extend_from_slice(u.bytes(len.min(u.len()))?);
    Ok(frame)
}

/// The stack's own frame, sent back to it with some octets changed.
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

/// A SYN, or something like it, to a port that may listen.
fn opening(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let besides = if u.ratio(1, 2)? { 0 } else { u.arbitrary::<u16>()? & 0x1ff };
    let segment = Segment {
        ports: (2000 + u.int_in_range(0..=3)?, port(u)?),
        flags: TcpFlags(besides | TcpFlags::SYN.0),
        seq: u.arbitrary()?,
        ack: u.arbitrary()?,
        text: &[],
    };
    with_options(u, &segment)
}

/// A segment of the connection that the stack sent last on: near what it expects.
fn answer(u: &mut Unstructured<'_>, last: &[u8]) -> Result<Vec<u8>> {
    let Some((header, text)) = tcp_of(last) else { return opening(u) };
    let control = u32::from(header.flags.contains(TcpFlags::SYN)) + u32::from(header.flags.contains(TcpFlags::FIN));
    let next = header.seq.0.wrapping_add(text.len() as u32).wrapping_add(control);
    let len = u.int_in_range(0..=64)?;
    let text = vec![b'f'; if u.ratio(1, 2)? { len } else { 0 }];
    let flags = if u.ratio(7, 8)? { TcpFlags::ACK.0 } else { u.arbitrary::<u16>()? & 0x1ff };
    // Whoever is told of an end often has nothing more to say.
    let often = if header.flags.contains(TcpFlags::FIN) { 3 } else { 1 };
    let fin = if u.ratio(often, 6)? { TcpFlags::FIN.0 } else { 0 };
    let mut segment = Segment {
        ports: (header.dst_port, header.src_port),
        flags: TcpFlags(flags | fin),
        seq: near(u, header.ack.0)?,
        ack: near(u, next)?,
        text: &text,
    };
    if u.ratio(1, 2)? {
        return with_options(u, &segment);
    }
    // What a peer would say: the timestamp that it saw, and text that came out of order.
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
    emitted(u, &segment, &options)
}

/// `value`, or something close to it, or at the other side of the circle.
fn near(u: &mut Unstructured<'_>, value: u32) -> Result<u32> {
    Ok(match u.int_in_range(0..=15)? {
        0..=12 => value,
        13 => value.wrapping_add(u32::from(u.arbitrary::<u8>()?)),
        14 => value.wrapping_sub(u32::from(u.arbitrary::<u8>()?)),
        _ => value.wrapping_add(u.arbitrary()?),
    })
}

/// The frame of `segment` with a window, an urgent pointer and options of the input's.
fn with_options(u: &mut Unstructured<'_>, segment: &Segment<'_>) -> Result<Vec<u8>> {
    let words = if u.ratio(1, 2)? { usize::from(u.int_in_range(0u8..=10)?) } else { 0 };
    let mut options = Vec::new();
    for _ in 0..words {
        options.extend_from_slice(&option_word(u)?);
    }
    emitted(u, segment, &options)
}

/// The frame of `segment` with these options, and a window and an urgent pointer of the input's.
fn emitted(u: &mut Unstructured<'_>, segment: &Segment<'_>, options: &[u8]) -> Result<Vec<u8>> {
    let frame = segment.frame();
    let mut tcp = frame[L4..L4 + 20].to_vec();
    tcp.extend_from_slice(options);
    tcp[12] = ((5 + options.len() as u8 / 4) << 4) | (u.arbitrary::<u8>()? & 1);
    if u.ratio(1, 4)? {
        tcp[14..16].copy_from_slice(&u.arbitrary::<u16>()?.to_be_bytes());
        tcp[18..20].copy_from_slice(&u.arbitrary::<u16>()?.to_be_bytes());
    }
    tcp.extend_from_slice(segment.text);
    fill_checksum(&mut tcp, 16, PEER.into(), STACK.into(), protocol::TCP);
    Ok(packet(protocol::TCP, &tcp, 0, 0x4000))
}

/// Four octets of options: the beginning of a known one, or anything.
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

/// A UDP datagram or an ICMP message whose checksum is right.
fn transport(u: &mut Unstructured<'_>, protocol: u8, field: usize) -> Result<Vec<u8>> {
    let len = u.int_in_range(0..=100)?;
    let mut message = u.bytes(len.min(u.len()))?.to_vec();
    if protocol == protocol::UDP && message.len() >= 8 && u.ratio(3, 4)? {
        message[2..4].copy_from_slice(&port(u)?.to_be_bytes());
        let len = message.len() as u16;
        message[4..6].copy_from_slice(&len.to_be_bytes());
    }
    fill_checksum(&mut message, field, PEER.into(), STACK.into(), protocol);
    Ok(packet(protocol, &message, 0, 0))
}

/// A message about groups, or a datagram to one, in a frame for it.
fn groups(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let group = *u.choose(&[[224, 0, 0, 1], [239, 1, 2, 3], [239, 1, 2, 4]])?;
    let mut frame = if u.ratio(1, 2)? {
        let kind = *u.choose(&[0x11, 0x11, 0x12, 0x16, 0x17, 0x22])?;
        let len = u.int_in_range(7..=20)?;
        let mut message = vec![0; len];
        let any = u.bytes(len.min(u.len()))?;
        message[..any.len()].copy_from_slice(any);
        (message[0], message[1]) = (kind, message[1] & 0x8f);
        message[4..7].copy_from_slice(&group[..3]);
        fill_checksum(&mut message, 2, PEER.into(), STACK.into(), protocol::IGMP);
        packet(protocol::IGMP, &message, 0, 0)
    } else {
        let port = port(u)?.to_be_bytes();
        packet(protocol::UDP, &[7, 208, port[0], port[1], 0, 12, 0, 0, 1, 2, 3, 4], 0, 0)
    };
    frame[..6].copy_from_slice(&[1, 0, 0x5e, group[1] & 0x7f, group[2], group[3]]);
    let ip = ethernet::HEADER_LEN;
    frame[ip + 8] = if u.ratio(7, 8)? { 1 } else { 64 };
    frame[ip + 16..ip + 20].copy_from_slice(&group);
    frame[ip + 10..ip + 12].fill(0);
    let sum = checksum::sum(&frame[ip..L4]).finish();
    frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    Ok(frame)
}

/// A fragment of one of a few datagrams.
fn fragment(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let protocol = *u.choose(&[protocol::UDP, protocol::TCP, protocol::ICMP])?;
    let len = u.int_in_range(0..=64)?;
    let payload = u.bytes(len.min(u.len()))?.to_vec();
    let offset = if u.ratio(3, 4)? { u.int_in_range(0..=8)? } else { u.arbitrary::<u16>()? & 0x1fff };
    let more = if u.ratio(1, 2)? { 0x2000 } else { 0 };
    Ok(packet(protocol, &payload, u.int_in_range(0..=3)?, offset | more))
}

/// An IPv6 packet with extension headers, fragments among them.
fn ipv6(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut frame = link(EtherType::Ipv6);
    let len = u.int_in_range(0..=100)?;
    let payload = u.bytes(len.min(u.len()))?.to_vec();
    let next = *u.choose(&[protocol::TCP, protocol::UDP, protocol::ICMPV6, 0, 43, 44, 60, 59])?;
    let solicited: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 1];
    let ours: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let theirs: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let to = if u.ratio(1, 4)? { solicited } else { ours };
    let mut message = payload;
    let field = if next == protocol::TCP { 16 } else { 2 };
    fill_checksum(&mut message, field, IpAddr::from(theirs), IpAddr::from(to), next);
    frame.extend_from_slice(&[0x60, 0, 0, 0]);
    frame.extend_from_slice(&(message.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[next, if u.ratio(3, 4)? { 255 } else { u.arbitrary()? }]);
    frame.extend_from_slice(&theirs);
    frame.extend_from_slice(&to);
    frame.extend_from_slice(&message);
    Ok(frame)
}

fn link(ethertype: EtherType) -> Vec<u8> {
    let mut frame = vec![0; ethernet::HEADER_LEN];
    let header = ethernet::Header { dst: STACK_MAC, src: PEER_MAC, ethertype };
    if let Some(head) = frame.first_chunk_mut() {
        header.emit(head);
    }
    frame
}

/// An IPv4 packet of the peer's; `flags` is the word of flags and fragment offset as on the wire.
pub fn packet(protocol: u8, payload: &[u8], ident: u16, flags: u16) -> Vec<u8> {
    let mut frame = link(EtherType::Ipv4);
    let header = ipv4::Header {
        src: PEER,
        dst: STACK,
        protocol,
        ttl: 64,
        tos: 0,
        ident,
        dont_fragment: flags & 0x4000 != 0,
        more_fragments: flags & 0x2000 != 0,
        fragment_offset: (flags & 0x1fff) << 3,
        header_len: ipv4::HEADER_LEN as u8,
        total_len: (ipv4::HEADER_LEN + payload.len()) as u16,
    };
    let mut head = [0; ipv4::HEADER_LEN];
    header.emit(&mut head);
    frame.extend_from_slice(&head);
    frame.extend_from_slice(payload);
    frame
}
