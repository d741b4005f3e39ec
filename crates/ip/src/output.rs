//! IP and link headers in front of a transport packet, and fragmentation.
//!
//! Called by the `stack` when it performs an outbox, and by this crate for its own packets. Headers are written into
//! the headroom; nothing moves. A checksum left to the device ([`Checksum::Partial`]) is adjusted for every header put
//! in front of it, and computed here when the packet has to be fragmented.
//!
//! **Identification** (RFC 6864). A packet that may not be fragmented is atomic and its identification is zero. Only
//! [`Fragmentation::Allowed`] uses an identification from [`Identifications`], whose counters are chosen by a keyed
//! hash so that a peer cannot infer our traffic to others from its own.

use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::hash::{DefaultHasher, Hash};

use observe::DropReason;
use pktbuf::{Checksum, PktBuf};
use smallvec::SmallVec;
use wire::ethernet;
use wire::ipv6::{FRAGMENT_HEADER_LEN, FragmentHeader};
use wire::{ipv4, ipv6, protocol};

use crate::link::{LinkHeader, front};

/// Time to live and hop limit of packets not confined to the link (RFC 1700).
pub const DEFAULT_TTL: u8 = 64;

/// Whether an IPv4 packet may be fragmented on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragmentation {
    /// "Don't fragment" is set; the identification is zero.
    Never,
    /// The packet may be fragmented under this identification.
    Allowed {
        /// Unique for source, destination and protocol within a packet's lifetime.
        ident: u16,
    },
}

/// Puts an IPv4 header of 20 bytes in front of a transport packet of at most 65,515 bytes.
///
/// # Panics
/// When the packet has less than 20 bytes of headroom.
#[inline]
pub fn ipv4_header(
    packet: &mut PktBuf,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    protocol: u8,
    tos: u8,
    ttl: u8,
    fragmentation: Fragmentation,
) {
    let total_len = packet.len() + ipv4::HEADER_LEN;
    debug_assert!(total_len <= usize::from(u16::MAX), "an IPv4 packet of {total_len} bytes");
    let (dont_fragment, ident) = match fragmentation {
        Fragmentation::Never => (true, 0),
        Fragmentation::Allowed { ident } => (false, ident),
    };
    let header = ipv4::Header {
        src,
        dst,
        protocol,
        ttl,
        tos,
        ident,
        dont_fragment,
        more_fragments: false,
        fragment_offset: 0,
        header_len: ipv4::HEADER_LEN as u8,
        total_len: total_len as u16,
    };
    header.emit(front(packet));
    packet.mark_network_header();
}

/// Puts an IPv6 header in front of a payload of at most 65,535 bytes. `flow_label` is 20 bits (RFC 6437); zero is
/// always valid.
///
/// # Panics
/// When the packet has less than 40 bytes of headroom.
#[inline]
pub fn ipv6_header(
    packet: &mut PktBuf,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    next_header: u8,
    traffic_class: u8,
    hop_limit: u8,
    flow_label: u32,
) {
    debug_assert!(packet.len() <= usize::from(u16::MAX), "an IPv6 payload of {} bytes", packet.len());
    let payload_len = packet.len() as u16;
    let header = ipv6::Header { src, dst, next_header, hop_limit, traffic_class, flow_label, payload_len };
    header.emit(front(packet));
    packet.mark_network_header();
}

/// Puts the header of `dst`'s family in front: not to be fragmented, flow label zero.
///
/// # Panics
/// When the packet has too little headroom, or the addresses are of different families.
#[inline(always)]
pub fn header(packet: &mut PktBuf, src: IpAddr, dst: IpAddr, protocol: u8, tos: u8, ttl: u8) {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            ipv4_header(packet, src, dst, protocol, tos, ttl, Fragmentation::Never);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => ipv6_header(packet, src, dst, protocol, tos, ttl, 0),
        (src, dst) => panic!("a packet from {src} to {dst}: source selection mixed the families"),
    }
}

/// Puts the header of `dst`'s family and the link header in front, as [`header`] and [`LinkHeader::prepend`] do.
///
/// # Panics
/// As these.
#[inline(always)]
pub fn framed(packet: &mut PktBuf, src: IpAddr, dst: IpAddr, protocol: u8, tos: u8, ttl: u8, link: &LinkHeader) {
    const LINK: usize = ethernet::HEADER_LEN;
    let len = packet.len() as u16;
    match (src, dst, link) {
        (IpAddr::V4(src), IpAddr::V4(dst), LinkHeader::Ethernet(link)) => {
            let front = front::<{ LINK + ipv4::HEADER_LEN }>(packet);
            let header = v4(src, dst, protocol, tos, ttl, len + ipv4::HEADER_LEN as u16);
            if let Some((to, rest)) = front.split_first_chunk_mut()
                && let Some(rest) = rest.first_chunk_mut()
            {
                *to = *link;
                header.emit(rest);
            }
            packet.mark_network_header_after(LINK);
        }
        (IpAddr::V6(src), IpAddr::V6(dst), LinkHeader::Ethernet(link)) => {
            let front = front::<{ LINK + ipv6::HEADER_LEN }>(packet);
            let (next_header, hop_limit, traffic_class) = (protocol, ttl, tos);
            let header =
                ipv6::Header { src, dst, next_header, hop_limit, traffic_class, flow_label: 0, payload_len: len };
            if let Some((to, rest)) = front.split_first_chunk_mut()
                && let Some(rest) = rest.first_chunk_mut()
            {
                *to = *link;
                header.emit(rest);
            }
            packet.mark_network_header_after(LINK);
        }
        _ => {
            header(packet, src, dst, protocol, tos, ttl);
            link.prepend(packet);
        }
    }
}

/// A header of 20 bytes of a packet that is not to be fragmented.
#[inline(always)]
fn v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, tos: u8, ttl: u8, total_len: u16) -> ipv4::Header {
    ipv4::Header {
        src,
        dst,
        protocol,
        ttl,
        tos,
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        header_len: ipv4::HEADER_LEN as u8,
        total_len,
    }
}

/// Computes a checksum that was left to the device; does nothing when none was. For fragmented packets, and for devices
/// without this offload. `Partial::start` counts from the packet's present first byte.
pub fn complete_checksum(packet: &mut PktBuf) {
    let Checksum::Partial { start, offset } = packet.meta().checksum else { return };
    let (start, offset) = (usize::from(start), usize::from(offset));
    packet.meta_mut().checksum = Checksum::None;
    let Some(covered) = packet.get_mut(start..) else { return };
    // The field holds the pseudo-header's sum, so summing over it adds just that.
    let checksum = pktbuf::sum(covered).finish_udp();
    if let Some(field) = covered.get_mut(offset..offset + 2) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Fragments in the order of their offsets.
pub type Fragments = SmallVec<[PktBuf; 4]>;

/// Cuts a packet that begins at its network header into fragments of at most `mtu` bytes under the identification
/// `ident` (its low 16 bits in IPv4). The first fragment stays in the packet's own buffer; the others are copied,
/// because a buffer has one owner. A packet that fits is returned unchanged, without `ident`.
///
/// # Errors
/// [`DropReason::TooBigToSend`] when an IPv4 packet has "don't fragment" set or `mtu` has no room for eight bytes of
/// payload, [`DropReason::NoBuffer`] when the pool is empty; the packet is then dropped whole.
pub fn fragment(mut packet: PktBuf, mtu: usize, ident: u32) -> Result<Fragments, DropReason> {
    if packet.len() <= mtu {
        return Ok(SmallVec::from_iter([packet]));
    }
    complete_checksum(&mut packet);
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => fragment_v4(packet, mtu, ident as u16),
        Some(6) => fragment_v6(packet, mtu, ident),
        _ => Err(DropReason::IpBadVersion),
    }
}

fn fragment_v4(mut packet: PktBuf, mtu: usize, ident: u16) -> Result<Fragments, DropReason> {
    let whole = ipv4::parse_unverified(&packet).map_err(|_| DropReason::IpBadHeader)?;
    if whole.dont_fragment {
        return Err(DropReason::TooBigToSend);
    }
    packet.pull_front(usize::from(whole.header_len));
    let room = mtu.saturating_sub(ipv4::HEADER_LEN);
    cut(packet, room, |piece, offset, more| {
        let header = ipv4::Header {
            ident,
            more_fragments: more || whole.more_fragments,
            fragment_offset: whole.fragment_offset + offset as u16,
            total_len: (piece.len() + ipv4::HEADER_LEN) as u16,
            ..whole
        };
        header.emit(front(piece));
    })
}

fn fragment_v6(mut packet: PktBuf, mtu: usize, ident: u32) -> Result<Fragments, DropReason> {
    let whole = ipv6::parse(&packet).map_err(|_| DropReason::IpBadHeader)?;
    packet.pull_front(ipv6::HEADER_LEN);
    let room = mtu.saturating_sub(ipv6::HEADER_LEN + FRAGMENT_HEADER_LEN);
    cut(packet, room, |piece, offset, more| {
        FragmentHeader { next_header: whole.next_header, offset: offset as u16, more, ident }.emit(front(piece));
        let payload_len = piece.len() as u16;
        ipv6::Header { payload_len, next_header: protocol::IPV6_FRAGMENT, ..whole }.emit(front(piece));
    })
}

/// Cuts `payload` into pieces of at most `room` bytes (rounded down to eight), each finished by `head`, which gets the
/// piece, its offset in bytes and whether more follow.
fn cut(mut payload: PktBuf, room: usize, head: impl Fn(&mut PktBuf, usize, bool)) -> Result<Fragments, DropReason> {
    let step = room & !7;
    if step == 0 {
        return Err(DropReason::TooBigToSend);
    }
    let mut fragments = Fragments::new();
    let len = payload.len();
    let queue = payload.meta().queue;
    for offset in (step..len).step_by(step) {
        let end = len.min(offset + step);
        let mut piece = PktBuf::from_slice(&payload[offset..end]).ok_or(DropReason::NoBuffer)?;
        piece.meta_mut().queue = queue;
        head(&mut piece, offset, end < len);
        piece.mark_network_header();
        fragments.push(piece);
    }
    payload.truncate(step);
    head(&mut payload, 0, len > step);
    payload.mark_network_header();
    fragments.insert(0, payload);
    Ok(fragments)
}

/// Counters for identifications, one of [`Identifications::BUCKETS`] by a keyed hash of source, destination and
/// protocol: unique for 65,536 packets of a pair, and not related to those of other pairs (RFC 7739 section 5.3, RFC
/// 6864 section 4).
#[derive(Clone, Debug)]
pub struct Identifications {
    secret: u64,
    counters: Box<[u32]>,
}

impl Identifications {
    /// Independent counters.
    pub const BUCKETS: usize = 1024;

    /// Counters under a random secret; the same secret gives the same identifications.
    pub fn new(secret: u64) -> Self {
        Self { secret, counters: vec![0; Self::BUCKETS].into() }
    }

    /// The next identification for packets of `protocol` from `src` to `dst`; IPv4 uses the low 16 bits.
    pub fn next(&mut self, src: IpAddr, dst: IpAddr, protocol: u8) -> u32 {
        let mut hasher = DefaultHasher::new();
        (self.secret, src, dst, protocol).hash(&mut hasher);
        let hash = hasher.finish();
        let counter = &mut self.counters[hash as usize % Self::BUCKETS];
        *counter = counter.wrapping_add(1);
        // The offset hides the count of a bucket shared with another pair.
        counter.wrapping_add((hash >> 32) as u32)
    }
}

#[cfg(test)]
mod tests;
