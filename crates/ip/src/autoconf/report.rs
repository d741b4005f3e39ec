//! Reports of group membership as frames, in the version of the link's queriers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use observe::{Counter, Counters};
use pktbuf::PktBuf;
use smallvec::SmallVec;
use wire::ethernet::EtherType;
use wire::mld::{self, RecordKind};
use wire::{igmp, ipv4, protocol};

use super::membership::GroupVersion;
use crate::interface::{ALL_ROUTERS, InterfaceView, group_mac};
use crate::output;

type Records<G> = SmallVec<[(RecordKind, G); 8]>;

/// Reports records of one family: in one message, or for older queriers in one for each group.
pub(super) fn send(
    view: &InterfaceView,
    records: &[(RecordKind, IpAddr)],
    version: GroupVersion,
    frames: &mut SmallVec<[PktBuf; 4]>,
    counters: &Counters,
) {
    let v4: Records<Ipv4Addr> = records.iter().filter_map(|(kind, group)| Some((*kind, v4(*group)?))).collect();
    let v6: Records<Ipv6Addr> = records.iter().filter_map(|(kind, group)| Some((*kind, v6(*group)?))).collect();
    let before = frames.len();
    if version == GroupVersion::Current {
        frames.extend((!v4.is_empty()).then(|| igmp_report(view, &v4)).flatten());
        frames.extend((!v6.is_empty()).then(|| mld_report(view, &v6)).flatten());
    } else {
        frames.extend(v4.iter().filter_map(|(kind, group)| igmp_old(view, *kind, *group, version)));
        frames.extend(v6.iter().filter_map(|(kind, group)| mld_old(view, *kind, *group)));
    }
    counters.add(Counter::ListenerReportsOut, (frames.len() - before) as u64);
}

fn v4(group: IpAddr) -> Option<Ipv4Addr> {
    match group {
        IpAddr::V4(group) => Some(group),
        IpAddr::V6(_) => None,
    }
}

fn v6(group: IpAddr) -> Option<Ipv6Addr> {
    match group {
        IpAddr::V6(group) => Some(group),
        IpAddr::V4(_) => None,
    }
}

fn igmp_report(view: &InterfaceView, records: &[(RecordKind, Ipv4Addr)]) -> Option<PktBuf> {
    let len = igmp::report_len(records.len());
    let mut packet = PktBuf::alloc(len)?;
    igmp::emit_report(records, packet.append(len));
    igmp_frame(view, packet, igmp::ALL_V3_ROUTERS)
}

/// Version 2 has a leave message; version 1 has none.
fn igmp_old(view: &InterfaceView, kind: RecordKind, group: Ipv4Addr, version: GroupVersion) -> Option<PktBuf> {
    let (message, to) = match (kind, version) {
        (RecordKind::Left, GroupVersion::Oldest) => return None,
        (RecordKind::Left, _) => (igmp::V2_LEAVE, igmp::ALL_ROUTERS),
        (_, GroupVersion::Oldest) => (igmp::V1_REPORT, group),
        _ => (igmp::V2_REPORT, group),
    };
    let mut packet = PktBuf::alloc(igmp::MESSAGE_LEN)?;
    igmp::emit_v1_or_v2(message, group, packet.append(igmp::MESSAGE_LEN));
    igmp_frame(view, packet, to)
}

/// From the interface's first address, or from none before it has one (RFC 3376 section 4.2.13).
fn igmp_frame(view: &InterfaceView, mut packet: PktBuf, dst: Ipv4Addr) -> Option<PktBuf> {
    let own = view.addresses().find_map(|(address, _)| v4(address));
    let header = ipv4::Header {
        src: own.unwrap_or(Ipv4Addr::UNSPECIFIED),
        dst,
        protocol: protocol::IGMP,
        ttl: igmp::TTL,
        tos: igmp::TOS,
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        header_len: ipv4::ROUTER_ALERT_HEADER_LEN as u8,
        total_len: (ipv4::ROUTER_ALERT_HEADER_LEN + packet.len()) as u16,
    };
    header.emit_with_router_alert(packet.push_front(ipv4::ROUTER_ALERT_HEADER_LEN).first_chunk_mut()?);
    let link = group_mac(IpAddr::V4(dst))?;
    view.link_end().header_of_type(link, EtherType::Ipv4).prepend(&mut packet);
    Some(packet)
}

fn mld_report(view: &InterfaceView, records: &[(RecordKind, Ipv6Addr)]) -> Option<PktBuf> {
    let len = mld::report_len(records.len());
    let (mut packet, source) = (mld_packet(len)?, mld_source(view));
    mld::emit_report(source, records, packet.append(len));
    mld_frame(view, packet, source, mld::ALL_V2_ROUTERS)
}

fn mld_old(view: &InterfaceView, kind: RecordKind, group: Ipv6Addr) -> Option<PktBuf> {
    let (message, to) = if kind == RecordKind::Left { (mld::V1_DONE, ALL_ROUTERS) } else { (mld::V1_REPORT, group) };
    let (mut packet, source) = (mld_packet(mld::V1_LEN)?, mld_source(view));
    mld::emit_v1(message, (source, to), group, packet.append(mld::V1_LEN));
    mld_frame(view, packet, source, to)
}

/// A packet with the router alert and room for `len` bytes behind it.
fn mld_packet(len: usize) -> Option<PktBuf> {
    let mut packet = PktBuf::alloc(mld::ROUTER_ALERT.len() + len)?;
    packet.append(mld::ROUTER_ALERT.len()).copy_from_slice(&mld::ROUTER_ALERT);
    Some(packet)
}

/// The link-local address, or none while that is under test (RFC 3590).
fn mld_source(view: &InterfaceView) -> Ipv6Addr {
    let own = view.addresses().filter_map(|(address, _)| v6(address)).find(Ipv6Addr::is_unicast_link_local);
    own.unwrap_or(Ipv6Addr::UNSPECIFIED)
}

fn mld_frame(view: &InterfaceView, mut packet: PktBuf, source: Ipv6Addr, dst: Ipv6Addr) -> Option<PktBuf> {
    output::ipv6_header(&mut packet, source, dst, protocol::HOP_BY_HOP, 0, mld::HOP_LIMIT, 0);
    let link = group_mac(IpAddr::V6(dst))?;
    view.link_end().header_of_type(link, EtherType::Ipv6).prepend(&mut packet);
    Some(packet)
}
