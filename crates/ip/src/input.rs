//! Every check that a host makes on a packet before a transport sees it, in the order in which they are made: link
//! address, IP header, destination, validity of the source, extension headers, fragment or whole.
//!
//! Called once per frame by the `stack` ([`ethernet_to`], with the headers that were found when the frame was
//! received), and once more per packet put together ([`reassembled`]). Nothing is copied: the buffer is trimmed of link
//! padding and advanced to the transport header; the network header stays in the headroom, marked in the metadata, so
//! that ICMP can quote it.
//!
//! What may never happen: a packet is passed on with a source that cannot be a single host, or with wrong lengths. A
//! host that does not forward drops packets to others before anything else is read.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use observe::{Counter, Counters, DropReason};
use pktbuf::PktBuf;
use wire::ethernet::{self, EtherType};
use wire::ipv6::{ExtChain, FragmentHeader, Problem, ProblemKind};
use wire::{Headers, ParseError, arp, ipv4, ipv6, protocol};

use crate::datagram::{Datagram, Fragment};
use crate::icmp::{self, ErrorKind};
use crate::interface::{Cast, InterfaceView};

mod fddi_frame;

pub use fddi_frame::{fddi, fddi_to};

/// Bytes of an Ethernet header.
const L2: usize = ethernet::HEADER_LEN;

/// The classification of a frame.
#[derive(Debug)]
pub enum Input {
    /// A TCP segment to one of our unicast addresses.
    Tcp(Datagram),
    /// A UDP datagram, unicast, broadcast or to a joined group.
    Udp(Datagram),
    /// An ICMP or ICMPv6 message, checksum not yet verified: see [`icmp::receive`].
    Icmp(Datagram),
    /// A message about groups, for [`igmp::receive`](crate::igmp::receive).
    Igmp(Datagram),
    /// A piece of a packet, for the reassembly table.
    Fragment(Fragment),
    /// An ARP packet, for the neighbour table.
    Arp(arp::Packet),
    /// A packet to an address that this interface does not have: another interface may, see [`for_another`].
    Elsewhere {
        /// The packet, from its network header on.
        packet: PktBuf,
        /// Source address, as the packet states it.
        src: IpAddr,
        /// Destination address.
        dst: IpAddr,
    },
    /// Dropped, with an ICMP error to the sender if the rules and the rate limit allow one.
    Refused(Refused),
    /// Dropped; the caller counts the reason.
    Drop(DropReason),
}

/// A packet that is dropped with an answer: count `reason`, and send the result of [`icmp::error`] for `error`.
#[derive(Debug)]
pub struct Refused {
    /// The packet, for the error to quote.
    pub datagram: Datagram,
    /// The error that is due.
    pub error: ErrorKind,
    /// Why the packet was dropped.
    pub reason: DropReason,
}

/// How the link delivered a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkCast {
    Unicast,
    Group,
    /// Not at all: this host has sent it to itself.
    Loopback,
}

/// The addresses of the packet of each family that was accepted last. Whether a packet's addresses are acceptable
/// depends on them and on the interface's view alone, and the next packet usually has the same: so the check is made
/// once.
///
/// A view is recognised by its place in memory. So a value of this type is for views that neither change nor end while it
/// is in use, as published versions do; for another view at the same place, make a new one.
#[derive(Debug, Default)]
pub struct LastAccepted {
    v4: AcceptedAddresses<8>,
    v6: AcceptedAddresses<32>,
}

/// The addresses of a packet, `N` bytes behind those of its link header.
#[derive(Debug)]
struct AcceptedAddresses<const N: usize> {
    /// Where the view of the interface is, by which it was accepted; 0: there was none.
    view: usize,
    link: [u8; ethernet::ADDRESSES_LEN],
    addresses: [u8; N],
}

impl<const N: usize> Default for AcceptedAddresses<N> {
    fn default() -> Self {
        AcceptedAddresses { view: 0, link: [0; ethernet::ADDRESSES_LEN], addresses: [0; N] }
    }
}

impl<const N: usize> AcceptedAddresses<N> {
    /// Whether these are the addresses of the packet that begins with `head`, which ends in the network addresses.
    #[inline(always)]
    fn are_of<const LEN: usize>(&self, head: &[u8; LEN], interface: &InterfaceView) -> bool {
        self.view == core::ptr::from_ref(interface).addr()
            && head.first_chunk() == Some(&self.link)
            && head.last_chunk() == Some(&self.addresses)
    }

    /// The packet with this beginning is accepted.
    #[inline(always)]
    fn note<const LEN: usize>(&mut self, head: &[u8; LEN], interface: &InterfaceView) {
        if let (Some(link), Some(addresses)) = (head.first_chunk(), head.last_chunk()) {
            (self.view, self.link, self.addresses) = (core::ptr::from_ref(interface).addr(), *link, *addresses);
        }
    }
}

/// A packet of IPv6 and how the link delivered it.
struct Ipv6Packet {
    packet: PktBuf,
    link: LinkCast,
}

/// Takes a frame from an Ethernet interface.
pub fn ethernet(frame: PktBuf, interface: &InterfaceView, counters: &Counters) -> Input {
    let headers = Headers::of_frame(&frame);
    let view = (interface, &mut LastAccepted::default());
    if headers.is_plain_v6() {
        ethernet_v6_to(frame, headers, view, counters, Input::Tcp, |input| input)
    } else {
        ethernet_to(frame, headers, view, counters, Input::Tcp, |input| input)
    }
}

/// As [`ethernet()`], with the frame's `headers` and the addresses that were accepted last, but goes on with one of two
/// continuations: `segment` for a TCP segment over IPv4, `other` for all the rest. A caller that has asked
/// [`Headers::is_plain_v6`] gives such a frame to [`ethernet_v6_to`], which is made for it.
///
/// For the receive path: the path of a plain segment is inlined, and the segment is passed on in registers. As a
/// variant of [`Input`] it would be stored and loaded again in pieces of other sizes, which stalls. Each family has a
/// function of its own, because a continuation called in two places is inlined in neither.
///
/// Lengths and types are those of `headers`, and are not read again. A frame that fails any check takes the
/// [`slow_path`], which finds the reason.
#[inline(always)]
pub fn ethernet_to<R>(
    mut frame: PktBuf,
    headers: Headers,
    (interface, last): (&InterfaceView, &mut LastAccepted),
    counters: &Counters,
    segment: impl FnOnce(Datagram) -> R,
    other: impl FnOnce(Input) -> R,
) -> R {
    if headers.is_plain_v4()
        && headers.is_tcp()
        && let Some(header) = plain_v4::<L2, 0, { L2 + ipv4::HEADER_LEN }>(&mut frame, headers, interface, &mut last.v4)
    {
        counters.increment(Counter::PacketsIn);
        return segment(v4_datagram(frame, &header, Cast::Unicast));
    }
    other(slow_path(frame, interface, counters))
}

/// [`ethernet_to`] for a frame that is [plain IPv6](Headers::is_plain_v6).
#[inline(always)]
pub fn ethernet_v6_to<R>(
    mut frame: PktBuf,
    headers: Headers,
    (interface, last): (&InterfaceView, &mut LastAccepted),
    counters: &Counters,
    segment: impl FnOnce(Datagram) -> R,
    other: impl FnOnce(Input) -> R,
) -> R {
    if headers.is_tcp()
        && let Some(header) = plain_v6::<L2, 0, { L2 + ipv6::HEADER_LEN }>(&mut frame, headers, interface, &mut last.v6)
    {
        counters.increment(Counter::PacketsIn);
        return segment(v6_datagram(frame, &header, protocol::TCP, Cast::Unicast));
    }
    other(slow_path(frame, interface, counters))
}

/// Checks a unicast packet to us and advances it to its transport header, with no further checks before the transport.
/// `None`, with the frame unchanged: it is another packet, or a faulty one.
///
/// `LINK`: bytes of the link header, of which `headers` have said that it is plain. `AT`: where its addresses are. `LEN`: bytes from
/// there to the end of the IP header.
#[inline(always)]
fn plain_v4<const LINK: usize, const AT: usize, const LEN: usize>(
    frame: &mut PktBuf,
    headers: Headers,
    interface: &InterfaceView,
    last: &mut AcceptedAddresses<8>,
) -> Option<ipv4::Header> {
    const { assert!(AT + LEN == LINK + ipv4::HEADER_LEN) };
    let head = frame.get(AT..)?.first_chunk::<LEN>()?;
    let link = head.first_chunk::<{ ethernet::HEADER_LEN }>()?;
    let header = ipv4::parse_plain(head.last_chunk()?).ok()?;
    if !last.are_of(head, interface) {
        if !ethernet::is_from_one_to(link, interface.mac)
            || !interface.is_own_v4(header.dst)
            || v4_martian(header.src, LinkCast::Unicast, interface)
        {
            return None;
        }
        last.note(head, interface);
    }
    frame.narrow(LINK, AT + LEN..headers.end());
    frame.meta_mut().traffic_class = header.tos;
    Some(header)
}

/// The same for IPv6.
#[inline(always)]
fn plain_v6<const LINK: usize, const AT: usize, const LEN: usize>(
    frame: &mut PktBuf,
    headers: Headers,
    interface: &InterfaceView,
    last: &mut AcceptedAddresses<32>,
) -> Option<ipv6::Header> {
    const { assert!(AT + LEN == LINK + ipv6::HEADER_LEN) };
    let head = frame.get(AT..)?.first_chunk::<LEN>()?;
    let link = head.first_chunk::<{ ethernet::HEADER_LEN }>()?;
    let header = ipv6::parse_plain(head.last_chunk()?);
    if !last.are_of(head, interface) {
        if !ethernet::is_from_one_to(link, interface.mac)
            || !interface.is_own_v6(&header.dst)
            || header.src.is_unspecified()
            || v6_martian(header.src, LinkCast::Unicast, interface)
        {
            return None;
        }
        last.note(head, interface);
    }
    frame.narrow(LINK, AT + LEN..headers.end());
    Some(header)
}

/// Classifies a frame without known headers, by all steps.
#[inline(never)]
pub fn slow_path(mut frame: PktBuf, interface: &InterfaceView, counters: &Counters) -> Input {
    let Ok((header, payload)) = ethernet::parse(&frame) else {
        return Input::Drop(DropReason::FrameTooShort);
    };
    let link = match link_cast(&header, payload, &frame, interface) {
        Ok(link) => link,
        Err(reason) => return Input::Drop(reason),
    };
    frame.pull_front(payload);
    by_type(frame, header.ethertype, link, interface, counters)
}

/// Classifies the payload of a frame that is for us.
#[inline(always)]
fn by_type(
    payload: PktBuf,
    ethertype: EtherType,
    link: LinkCast,
    interface: &InterfaceView,
    counters: &Counters,
) -> Input {
    match ethertype {
        EtherType::Ipv4 => v4_input(payload, link, interface, counters),
        EtherType::Ipv6 => v6_input(Ipv6Packet { packet: payload, link }, interface, counters),
        other => no_packet(&payload, other),
    }
}

/// The link-layer cast of the frame, if it is for us.
#[inline(always)]
fn link_cast(
    header: &ethernet::Header,
    payload: usize,
    frame: &[u8],
    interface: &InterfaceView,
) -> Result<LinkCast, DropReason> {
    let link = station_cast(header, interface)?;
    // A tag with identifier zero carries only a priority (IEEE 802.1Q clause 6.9).
    if payload != ethernet::HEADER_LEN && ethernet::vlan_tag(frame).is_none_or(|tag| tag.id != 0) {
        return Err(DropReason::UnknownVlan);
    }
    Ok(link)
}

/// By the two addresses alone.
#[inline(always)]
fn station_cast(header: &ethernet::Header, interface: &InterfaceView) -> Result<LinkCast, DropReason> {
    let link = if header.dst == interface.mac {
        LinkCast::Unicast
    } else if header.dst.is_multicast() {
        LinkCast::Group
    } else {
        return Err(DropReason::NotForUs);
    };
    if header.src.is_unicast() { Ok(link) } else { Err(DropReason::FrameBadSource) }
}

/// Classifies a frame without IP.
#[inline(never)]
fn no_packet(frame: &[u8], ethertype: EtherType) -> Input {
    match ethertype {
        EtherType::Arp => arp::parse(frame).map_or(Input::Drop(DropReason::ArpBadPacket), Input::Arp),
        EtherType::Vlan => Input::Drop(DropReason::UnknownVlan),
        EtherType::Other(length) if length < 0x600 => Input::Drop(DropReason::LlcUnsupported),
        EtherType::Other(_) | EtherType::Ipv4 | EtherType::Ipv6 => Input::Drop(DropReason::UnknownEtherType),
    }
}

fn v6_input(packet: Ipv6Packet, interface: &InterfaceView, counters: &Counters) -> Input {
    let Ipv6Packet { mut packet, link } = packet;
    match v6(&mut packet, link, interface) {
        Ok((header, cast)) => v6_rarer(packet, &header, cast, counters),
        Err(reason) => v6_dropped(packet, link, reason),
    }
}

/// Takes a packet that begins at its network header: from a device without link headers.
pub fn packet(packet: PktBuf, interface: &InterfaceView, counters: &Counters) -> Input {
    by_version(packet, LinkCast::Unicast, interface, counters)
}

fn by_version(packet: PktBuf, link: LinkCast, interface: &InterfaceView, counters: &Counters) -> Input {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => v4_input(packet, link, interface, counters),
        Some(6) => v6_input(Ipv6Packet { packet, link }, interface, counters),
        Some(_) => Input::Drop(DropReason::IpBadVersion),
        None => Input::Drop(DropReason::IpTruncated),
    }
}

/// Takes a packet that arrived on another interface than the one that has its address ([`Input::Elsewhere`]): addresses
/// belong to the host, not to the interface (RFC 1122 section 3.3.4.2, the weak model, as in Linux and FreeBSD).
/// Messages about neighbours, routers and groups concern only their own link and are dropped.
pub fn for_another(packet: PktBuf, owner: &InterfaceView, counters: &Counters) -> Input {
    match without_link(packet, owner, counters) {
        Input::Elsewhere { .. } => Input::Drop(DropReason::NotForUs),
        other => other,
    }
}

/// Takes a packet that begins at its network header, from a link without headers and addresses: messages about
/// neighbours, routers and groups are dropped there.
pub fn without_link(packet: PktBuf, interface: &InterfaceView, counters: &Counters) -> Input {
    unconcerned(self::packet(packet, interface, counters))
}

/// Drops packets about a link that does not exist.
fn unconcerned(input: Input) -> Input {
    match input {
        Input::Icmp(message) if icmp::concerns_link(&message) => Input::Drop(DropReason::NotForUs),
        Input::Igmp(_) => Input::Drop(DropReason::NotForUs),
        other => other,
    }
}

/// The destination of a packet that begins at its network header; `None`: it has none.
pub fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::V4(ipv4::parse_unverified(packet).ok()?.dst)),
        6 => Some(IpAddr::V6(ipv6::parse_unverified(packet).ok()?.dst)),
        _ => None,
    }
}

/// Takes a packet that this host has sent to itself. `owner` has its destination. Its source is not looked at as that
/// of a packet from a link is: it may be an address of this host, above all the one that the packet goes to, or a
/// loop-back address, which no packet on a link may have (RFC 1122 section 3.2.1.3 g, RFC 4291 section 2.5.3). Messages
/// about a link have no meaning here either.
pub fn looped_back(packet: PktBuf, owner: &InterfaceView, counters: &Counters) -> Input {
    unconcerned(by_version(packet, LinkCast::Loopback, owner, counters))
}

/// Takes a packet from reassembly: its header was checked fragment by fragment, the rest was not. A nested fragment
/// header is refused.
pub fn reassembled(mut datagram: Datagram) -> Input {
    if datagram.dst.is_ipv4() {
        return v4_deliver(datagram);
    }
    let chain = match ipv6::walk(datagram.protocol, &datagram.buf) {
        Ok(chain) if chain.fragment.is_none() => chain,
        Err(ParseError::ChainTooLong) => return Input::Drop(DropReason::Ipv6ExtensionChainTooLong),
        _ => return Input::Drop(DropReason::Ipv6BadExtension),
    };
    if datagram.cast != Cast::Unicast && chain.next_header == protocol::TCP {
        return Input::Drop(DropReason::IpBroadcastTransport);
    }
    datagram.protocol = chain.next_header;
    datagram.buf.pull_front(chain.offset);
    v6_deliver(datagram, &chain)
}

fn v4_input(mut packet: PktBuf, link: LinkCast, interface: &InterfaceView, counters: &Counters) -> Input {
    match v4(&mut packet, link, interface, counters) {
        Ok((header, cast)) => v4_rarer(packet, &header, cast),
        Err(reason) => v4_dropped(packet, link, reason),
    }
}

/// The result for a packet that this interface does not accept.
#[cold]
fn v4_dropped(packet: PktBuf, link: LinkCast, reason: DropReason) -> Input {
    match ipv4::parse(&packet) {
        Ok(header) if reason == DropReason::NotForUs && link == LinkCast::Unicast => {
            Input::Elsewhere { packet, src: IpAddr::V4(header.src), dst: IpAddr::V4(header.dst) }
        }
        _ => Input::Drop(reason),
    }
}

/// Checks a packet and advances it to its payload, or returns why it is dropped. The result is small, so that it is
/// returned in registers.
#[inline(always)]
fn v4(
    buf: &mut PktBuf,
    link: LinkCast,
    interface: &InterfaceView,
    counters: &Counters,
) -> Result<(ipv4::Header, Cast), DropReason> {
    buf.mark_network_header();
    let header = ipv4::parse(buf).map_err(|error| v4_fault(error, buf.len()))?;
    buf.truncate(header.total_len.into());
    let cast = interface.cast_v4(header.dst);
    v4_addresses(&header, cast, link, interface)?;
    if usize::from(header.header_len) > ipv4::HEADER_LEN {
        v4_options(&buf[ipv4::HEADER_LEN..header.header_len.into()])?;
    }
    counters.increment(Counter::PacketsIn);
    buf.pull_front(header.header_len.into());
    buf.meta_mut().traffic_class = header.tos;
    Ok((header, cast))
}

#[inline(always)]
fn v4_datagram(buf: PktBuf, header: &ipv4::Header, cast: Cast) -> Datagram {
    let ipv4::Header { protocol, tos, ttl, .. } = *header;
    Datagram { buf, src: IpAddr::V4(header.src), dst: IpAddr::V4(header.dst), protocol, tos, ttl, cast }
}

/// Classifies a packet that is not a whole segment.
#[inline(never)]
fn v4_rarer(buf: PktBuf, header: &ipv4::Header, cast: Cast) -> Input {
    let datagram = v4_datagram(buf, header, cast);
    if !header.is_fragment() {
        return v4_deliver(datagram);
    }
    let (offset, more) = (header.fragment_offset.into(), header.more_fragments);
    Input::Fragment(Fragment { datagram, ident: header.ident.into(), offset, more })
}

#[inline]
fn v4_deliver(datagram: Datagram) -> Input {
    match datagram.protocol {
        protocol::TCP => Input::Tcp(datagram),
        protocol::UDP => Input::Udp(datagram),
        protocol::ICMP => Input::Icmp(datagram),
        protocol::IGMP => Input::Igmp(datagram),
        _ => refuse(datagram, ErrorKind::ProtocolUnreachable, DropReason::IpUnknownProtocol),
    }
}

#[cold]
fn refuse(datagram: Datagram, error: ErrorKind, reason: DropReason) -> Input {
    Input::Refused(Refused { datagram, error, reason })
}

#[cold]
fn v4_fault(error: ParseError, len: usize) -> DropReason {
    match error {
        ParseError::Truncated if len < ipv4::HEADER_LEN => DropReason::IpTruncated,
        ParseError::Truncated => DropReason::IpBadLength,
        ParseError::BadVersion => DropReason::IpBadVersion,
        ParseError::BadLength => DropReason::Ipv4BadHeader,
        ParseError::BadChecksum => DropReason::IpBadChecksum,
        _ => DropReason::IpBadHeader,
    }
}

/// Checks the destination, and that the source can be a host (RFC 1122 sections 3.2.1.3, 3.3.6 and 4.2.3.10).
#[inline]
fn v4_addresses(
    header: &ipv4::Header,
    cast: Cast,
    link: LinkCast,
    interface: &InterfaceView,
) -> Result<(), DropReason> {
    if cast == Cast::NotOurs {
        let martian = header.dst.is_loopback() || header.dst.is_unspecified();
        return Err(if martian { DropReason::IpMartianDestination } else { DropReason::NotForUs });
    }
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
    //# An incoming SYN with an invalid source address MUST be ignored either by TCP or by the IP layer [(MUST-63)] (see
    //# Section 3.2.1.3).
    if v4_martian(header.src, link, interface) {
        // A switch without an address sends queries from the unspecified one (RFC 4541 section 2.1.1).
        let switch = header.src.is_unspecified() && header.protocol == protocol::IGMP;
        return if switch { Ok(()) } else { Err(DropReason::IpMartianSource) };
    }
    let to_one = cast == Cast::Unicast;
    // A unicast packet in a group frame could be an attempt to reach every host of the link.
    if to_one && link == LinkCast::Group {
        return Err(DropReason::IpBroadcastTransport);
    }
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
    //# A TCP implementation MUST silently discard an incoming SYN segment that is addressed to a broadcast or multicast
    //# address [(MUST-57)].
    if !to_one && header.protocol == protocol::TCP {
        return Err(DropReason::IpBroadcastTransport);
    }
    Ok(())
}

/// Whether no single other host can have sent from `src`: network zero, loop-back, groups, class E, broadcasts, and our
/// own addresses (the LAND attack among them). There is no DHCP client, so nothing is expected from 0.0.0.0. Packets
/// that this host has sent to itself come from no other host; only the first block, the groups and class E are invalid.
#[inline]
fn v4_martian(src: Ipv4Addr, link: LinkCast, interface: &InterfaceView) -> bool {
    let first = src.octets()[0];
    if first == 0 || first >= 224 {
        return true;
    }
    if link == LinkCast::Loopback {
        return false;
    }
    first == 127 || interface.is_local_or_broadcast(src)
}

/// Options are skipped. Source routes are refused (RFC 7126 sections 4.3 and 4.4), and so is a list whose lengths do
/// not add up.
#[cold]
fn v4_options(mut options: &[u8]) -> Result<(), DropReason> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    while let Some((&kind, rest)) = options.split_first() {
        options = match kind {
            END => return Ok(()),
            NO_OPERATION => rest,
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return Err(DropReason::IpSourceRoute),
            _ => {
                //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2
                //# When received options are passed up to TCP from the IP layer, a TCP implementation MUST ignore
                //# options that it does not understand (MUST-50).
                let len = usize::from(*rest.first().ok_or(DropReason::IpBadOption)?);
                let after = if len >= 2 { options.get(len..) } else { None };
                after.ok_or(DropReason::IpBadOption)?
            }
        };
    }
    Ok(())
}

/// The result for a packet that this interface does not accept.
#[cold]
fn v6_dropped(packet: PktBuf, link: LinkCast, reason: DropReason) -> Input {
    match ipv6::parse(&packet) {
        Ok(header) if reason == DropReason::NotForUs && link == LinkCast::Unicast => {
            Input::Elsewhere { packet, src: IpAddr::V6(header.src), dst: IpAddr::V6(header.dst) }
        }
        _ => Input::Drop(reason),
    }
}

/// Checks the header of a packet and trims the link's padding, or returns why the packet is dropped.
#[inline(always)]
fn v6(buf: &mut PktBuf, link: LinkCast, interface: &InterfaceView) -> Result<(ipv6::Header, Cast), DropReason> {
    buf.mark_network_header();
    let header = ipv6::parse(buf).map_err(|error| v6_fault(error, buf.len()))?;
    buf.truncate(ipv6::HEADER_LEN + usize::from(header.payload_len));
    let cast = interface.cast_v6(header.dst);
    v6_addresses(&header, cast, link, interface)?;
    Ok((header, cast))
}

#[inline(always)]
fn v6_datagram(mut buf: PktBuf, header: &ipv6::Header, protocol: u8, cast: Cast) -> Datagram {
    let ipv6::Header { traffic_class: tos, hop_limit: ttl, .. } = *header;
    buf.meta_mut().traffic_class = tos;
    Datagram { buf, src: IpAddr::V6(header.src), dst: IpAddr::V6(header.dst), protocol, tos, ttl, cast }
}

/// Classifies a packet without a segment right after its IPv6 header.
#[inline(never)]
fn v6_rarer(mut buf: PktBuf, header: &ipv6::Header, cast: Cast, counters: &Counters) -> Input {
    let chain = match ipv6::walk(header.next_header, &buf[ipv6::HEADER_LEN..]) {
        Ok(chain) => chain,
        Err(ParseError::ChainTooLong) => return Input::Drop(DropReason::Ipv6ExtensionChainTooLong),
        Err(_) => return Input::Drop(DropReason::Ipv6BadExtension),
    };
    if header.src.is_unspecified() && chain.next_header != protocol::ICMPV6 {
        return Input::Drop(DropReason::IpMartianSource);
    }
    if cast != Cast::Unicast && chain.next_header == protocol::TCP {
        return Input::Drop(DropReason::IpBroadcastTransport);
    }
    counters.increment(Counter::PacketsIn);
    buf.pull_front(ipv6::HEADER_LEN + chain.offset);
    v6_deliver(v6_datagram(buf, header, chain.next_header, cast), &chain)
}

#[inline]
fn v6_deliver(datagram: Datagram, chain: &ExtChain) -> Input {
    if let Some(problem) = chain.problem {
        return v6_problem(datagram, problem);
    }
    if let Some(fragment) = chain.fragment.filter(|_| chain.is_fragment()) {
        return v6_fragment(datagram, fragment);
    }
    match chain.next_header {
        protocol::TCP => Input::Tcp(datagram),
        protocol::UDP => Input::Udp(datagram),
        protocol::ICMPV6 => Input::Icmp(datagram),
        protocol::IPV6_NO_NEXT => Input::Drop(DropReason::IpUnknownProtocol),
        _ => {
            let pointer = chain.next_header_pointer.into();
            refuse(datagram, ErrorKind::UnknownNextHeader { pointer }, DropReason::IpUnknownProtocol)
        }
    }
}

#[cold]
fn v6_fault(error: ParseError, len: usize) -> DropReason {
    match error {
        ParseError::BadVersion => DropReason::IpBadVersion,
        _ if len < ipv6::HEADER_LEN => DropReason::IpTruncated,
        _ => DropReason::IpBadLength,
    }
}

/// Checks the destination, and that the source can be a host (RFC 4291 sections 2.5.2, 2.5.3 and 2.7; mapped addresses
/// never belong on a wire, RFC 4942 section 2.2).
#[inline]
fn v6_addresses(
    header: &ipv6::Header,
    cast: Cast,
    link: LinkCast,
    interface: &InterfaceView,
) -> Result<(), DropReason> {
    if cast == Cast::NotOurs {
        let martian = header.dst.is_loopback() || header.dst.is_unspecified();
        return Err(if martian { DropReason::IpMartianDestination } else { DropReason::NotForUs });
    }
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
    //# An incoming SYN with an invalid source address MUST be ignored either by TCP or by the IP layer [(MUST-63)] (see
    //# Section 3.2.1.3).
    if v6_martian(header.src, link, interface) {
        return Err(DropReason::IpMartianSource);
    }
    if cast == Cast::Unicast && link == LinkCast::Group {
        return Err(DropReason::IpBroadcastTransport);
    }
    Ok(())
}

#[inline]
fn v6_martian(src: Ipv6Addr, link: LinkCast, interface: &InterfaceView) -> bool {
    if src.is_multicast() || src.to_ipv4_mapped().is_some() {
        return true;
    }
    link != LinkCast::Loopback && (src.is_loopback() || interface.is_local(IpAddr::V6(src)))
}

#[cold]
fn v6_problem(datagram: Datagram, problem: Problem) -> Input {
    let pointer = problem.pointer.into();
    let to_group = datagram.cast != Cast::Unicast;
    match problem.kind {
        ProblemKind::DiscardOption => Input::Drop(DropReason::Ipv6UnknownOption),
        ProblemKind::UnknownOptionUnlessMulticast if to_group => Input::Drop(DropReason::Ipv6UnknownOption),
        ProblemKind::UnknownOption | ProblemKind::UnknownOptionUnlessMulticast => {
            refuse(datagram, ErrorKind::UnknownOption { pointer }, DropReason::Ipv6UnknownOption)
        }
        ProblemKind::UnknownRouting => refuse(datagram, ErrorKind::BadHeader { pointer }, DropReason::Ipv6BadExtension),
        ProblemKind::MisplacedHopByHop => {
            refuse(datagram, ErrorKind::UnknownNextHeader { pointer }, DropReason::Ipv6BadExtension)
        }
    }
}

/// A real fragment. The first must hold every header up to and including the transport's (RFC 7112 section 5), or a
/// filter and this host could see different headers.
#[cold]
fn v6_fragment(mut datagram: Datagram, fragment: FragmentHeader) -> Input {
    datagram.protocol = fragment.next_header;
    if fragment.offset == 0 {
        let chain = ipv6::walk(fragment.next_header, &datagram.buf);
        let transport = chain.ok().filter(|chain| chain.problem.is_none() && chain.fragment.is_none());
        let complete =
            transport.is_some_and(|chain| datagram.buf.len() >= chain.offset + least_header(chain.next_header));
        if !complete || fragment.next_header == protocol::HOP_BY_HOP {
            return refuse(datagram, ErrorKind::IncompleteHeaderChain, DropReason::FragmentTiny);
        }
    }
    let FragmentHeader { offset, more, ident, .. } = fragment;
    Input::Fragment(Fragment { datagram, ident, offset: offset.into(), more })
}

const fn least_header(protocol: u8) -> usize {
    match protocol {
        protocol::TCP => 20,
        protocol::UDP | protocol::ICMPV6 => 8,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
