//! Frames: ARP requests and replies, neighbour solicitations and advertisements.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use observe::{Counter, Counters};
use pktbuf::PktBuf;
use wire::arp::{self, Operation};
use wire::ethernet::{EtherType, MacAddr};
use wire::icmpv6::{DISCOVERY_HOP_LIMIT, Message};
use wire::{ipv6, protocol};

use crate::interface::{ALL_NODES, ALL_ROUTERS, group_mac};
use crate::link::LinkEnd;
use crate::output;

fn arp_frame(link: LinkEnd, packet: &arp::Packet, link_dst: MacAddr) -> Option<PktBuf> {
    let mut frame = PktBuf::alloc(arp::PACKET_LEN)?;
    packet.emit(frame.append(arp::PACKET_LEN).first_chunk_mut()?);
    link.header_of_type(link_dst, EtherType::Arp).prepend(&mut frame);
    Some(frame)
}

/// An ARP request for `target`, broadcast or to `unicast` alone (RFC 1122 section 2.3.2.1).
pub(super) fn arp_request(
    link: LinkEnd,
    ours: Ipv4Addr,
    target: Ipv4Addr,
    unicast: Option<MacAddr>,
    counters: &Counters,
) -> Option<PktBuf> {
    let request =
        arp::Packet { op: Operation::Request, sha: link.mac, spa: ours, tha: MacAddr::UNSPECIFIED, tpa: target };
    counters.increment(Counter::ArpRequestsOut);
    arp_frame(link, &request, unicast.unwrap_or(MacAddr::BROADCAST))
}

/// An ARP probe for `target`, broadcast, with no sender address (RFC 5227 section 2.1.1).
pub(crate) fn arp_probe(link: LinkEnd, target: Ipv4Addr, counters: &Counters) -> Option<PktBuf> {
    arp_request(link, Ipv4Addr::UNSPECIFIED, target, None, counters)
}

/// The reply to `request`, unicast to its sender.
pub(super) fn arp_reply(link: LinkEnd, request: &arp::Packet, counters: &Counters) -> Option<PktBuf> {
    let reply =
        arp::Packet { op: Operation::Reply, sha: link.mac, spa: request.tpa, tha: request.sha, tpa: request.spa };
    counters.increment(Counter::ArpRepliesOut);
    arp_frame(link, &reply, request.sha)
}

/// An ARP announcement that defends one of our addresses (RFC 5227 section 2.3).
pub(crate) fn arp_announcement(link: LinkEnd, ours: Ipv4Addr, counters: &Counters) -> Option<PktBuf> {
    arp_request(link, ours, ours, None, counters)
}

fn discovery_packet(src: Ipv6Addr, dst: Ipv6Addr, message: &Message) -> Option<PktBuf> {
    let len = message.header_len();
    let mut packet = PktBuf::alloc(len)?;
    message.emit(src, dst, packet.append(len));
    output::ipv6_header(&mut packet, src, dst, protocol::ICMPV6, 0, DISCOVERY_HOP_LIMIT, 0);
    Some(packet)
}

/// A neighbour solicitation for `target`, to its solicited-node group or to `unicast` alone (RFC 4861 sections 7.2.2
/// and 7.3.3).
pub(super) fn neighbour_solicit(
    link: LinkEnd,
    ours: Ipv6Addr,
    target: Ipv6Addr,
    unicast: Option<MacAddr>,
    counters: &Counters,
) -> Option<PktBuf> {
    let dst = if unicast.is_some() { target } else { ipv6::solicited_node(target) };
    let mut frame = discovery_packet(ours, dst, &Message::NeighbourSolicit { target, source: Some(link.mac) })?;
    let link_dst = unicast.or_else(|| group_mac(IpAddr::V6(dst)))?;
    link.header_of_type(link_dst, EtherType::Ipv6).prepend(&mut frame);
    counters.increment(Counter::NeighbourSolicitsOut);
    Some(frame)
}

/// A solicitation that tests `target`, to its solicited-node group, from the unspecified address (RFC 4862 section
/// 5.4.2).
pub(crate) fn duplicate_solicit(link: LinkEnd, target: Ipv6Addr, counters: &Counters) -> Option<PktBuf> {
    counters.increment(Counter::NeighbourSolicitsOut);
    let message = Message::NeighbourSolicit { target, source: None };
    group_frame(link, Ipv6Addr::UNSPECIFIED, ipv6::solicited_node(target), &message)
}

/// A router solicitation (RFC 4861 section 6.3.7).
pub(crate) fn router_solicit(link: LinkEnd, ours: Ipv6Addr, counters: &Counters) -> Option<PktBuf> {
    counters.increment(Counter::RouterSolicitsOut);
    group_frame(link, ours, ALL_ROUTERS, &Message::RouterSolicit { source: Some(link.mac) })
}

fn group_frame(link: LinkEnd, src: Ipv6Addr, dst: Ipv6Addr, message: &Message) -> Option<PktBuf> {
    let mut frame = discovery_packet(src, dst, message)?;
    link.header_of_type(group_mac(IpAddr::V6(dst))?, EtherType::Ipv6).prepend(&mut frame);
    Some(frame)
}

/// An advertisement of `target`: a packet without link header, to `asker`, or to all nodes when the asker has no
/// address yet (RFC 4861 section 7.2.4).
pub(super) fn neighbour_advert(mac: MacAddr, target: Ipv6Addr, asker: Ipv6Addr, counters: &Counters) -> Option<PktBuf> {
    let solicited = !asker.is_unspecified();
    let dst = if solicited { asker } else { ALL_NODES };
    let message =
        Message::NeighbourAdvert { target, target_mac: Some(mac), router: false, solicited, override_flag: true };
    counters.increment(Counter::NeighbourAdvertsOut);
    discovery_packet(target, dst, &message)
}
