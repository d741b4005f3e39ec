//! ICMP and ICMPv6: messages received, echo, and the errors we send.
//!
//! [`receive`] classifies every ICMP datagram; echo replies are made in the request's own buffer. [`error`] builds the
//! error about a refused packet. Received errors are reduced to the fields that a transport can check against its own
//! state ([`ReceivedIcmpError`]): nothing in this crate acts on them.
//!
//! What may never happen: an error about an error, an error to a group or broadcast (two exceptions in IPv6), more
//! errors than the rate limits allow, overall or to one destination.

mod error;
mod per_destination;
mod rate_limit;
mod received;
mod request;

use core::net::{IpAddr, Ipv6Addr};

use observe::{Counter, Counters, DropReason};
use pktbuf::{Checksum, PktBuf};
use wire::{ParseError, checksum, icmpv4, icmpv6, mld, protocol};

pub use error::{ErrorKind, error};
pub use per_destination::PerDestination;
pub use rate_limit::RateLimit;
pub use received::{IcmpErrorKind, IcmpMeaning, ReceivedIcmpError, undelivered};
pub use request::echo_request;

use crate::autoconf::GroupQuery;
use crate::datagram::Datagram;
use crate::interface::{Cast, InterfaceView};
use crate::neighbour::Discovery;
use crate::output::{self, DEFAULT_TTL, Fragmentation};
use crate::redirect::Redirect;

/// The classification of an ICMP datagram.
#[derive(Debug)]
pub enum ReceivedIcmp {
    /// An echo request to us; the reply begins at its network header. If it exceeds the MTU it may be fragmented.
    Reply {
        /// The reply, beginning at its network header.
        packet: PktBuf,
        /// The destination, for the route look-up.
        destination: IpAddr,
    },
    /// An echo reply to a local sender; the buffer begins at the echoed data.
    EchoReply {
        /// The reply, its ICMP header pulled.
        datagram: Datagram,
        /// Identifier of the request.
        ident: u16,
        /// Sequence number of the request.
        seq: u16,
    },
    /// An error about a packet that we may have sent.
    Error(ReceivedIcmpError),
    /// A neighbour solicitation or advertisement, for the neighbour table.
    Neighbour(Discovery),
    /// A router's advertisement of itself and of the link.
    RouterAdvert {
        /// Its link-local address.
        from: Ipv6Addr,
        /// The advertisement.
        advert: icmpv6::RouterAdvert,
    },
    /// A router of the link queries which groups have listeners.
    ListenerQuery(GroupQuery),
    /// A router reports a better first hop.
    Redirect(Redirect),
    /// It needs no action; a faulty one has been counted.
    Nothing,
}

/// Reads an ICMP datagram from input: verifies the checksum, then classifies it.
pub fn receive(datagram: Datagram, interface: &InterfaceView, counters: &Counters) -> ReceivedIcmp {
    counters.increment(Counter::IcmpIn);
    let received = match (datagram.src, datagram.dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => icmpv6::parse(&datagram.buf, src, dst)
            .map_err(fault)
            .and_then(|message| receive_v6(datagram, message, interface, counters)),
        _ => icmpv4::parse(&datagram.buf)
            .map_err(fault)
            .and_then(|message| receive_v4(datagram, message, interface, counters)),
    };
    received.unwrap_or_else(|reason| {
        counters.count_drop(reason);
        ReceivedIcmp::Nothing
    })
}

/// Whether a message only concerns the link on which it arrived: neighbours, routers, groups, and unknown types.
pub(crate) fn concerns_link(message: &Datagram) -> bool {
    let kind = message.buf.first().copied();
    match message.dst {
        IpAddr::V4(_) => !matches!(kind, Some(0 | 3 | 8 | 11 | 12)),
        IpAddr::V6(_) => !matches!(kind, Some(1..=4 | 128 | 129)),
    }
}

#[cold]
fn fault(error: ParseError) -> DropReason {
    match error {
        ParseError::BadChecksum => DropReason::IcmpBadChecksum,
        ParseError::Truncated => DropReason::IcmpTruncated,
        // Only neighbour discovery has options and forbidden fields.
        _ => DropReason::NeighbourBadAdvert,
    }
}

fn receive_v4(
    datagram: Datagram,
    message: icmpv4::Message,
    interface: &InterfaceView,
    counters: &Counters,
) -> Result<ReceivedIcmp, DropReason> {
    match message {
        icmpv4::Message::EchoRequest { .. } => echo(datagram, interface, counters),
        icmpv4::Message::EchoReply { ident, seq } => Ok(echo_reply(datagram, ident, seq)),
        icmpv4::Message::Redirect { code, gateway } => {
            received::redirect_v4(&datagram, code, gateway, interface).map(ReceivedIcmp::Redirect)
        }
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
        //# TCP implementations MUST silently discard any received ICMP Source Quench messages (MUST-55).
        icmpv4::Message::Other { .. } => Err(DropReason::IcmpUnknownType),
        _ => received::error_v4(&datagram, message, interface, counters).map(ReceivedIcmp::Error),
    }
}

fn receive_v6(
    datagram: Datagram,
    message: icmpv6::Message,
    interface: &InterfaceView,
    counters: &Counters,
) -> Result<ReceivedIcmp, DropReason> {
    match message {
        icmpv6::Message::EchoRequest { .. } => echo(datagram, interface, counters),
        icmpv6::Message::EchoReply { ident, seq } => Ok(echo_reply(datagram, ident, seq)),
        icmpv6::Message::NeighbourSolicit { .. } | icmpv6::Message::NeighbourAdvert { .. } => {
            Discovery::new(&datagram, message).map(ReceivedIcmp::Neighbour)
        }
        // The hop limit proves that the sender is on the link (RFC 4861 sections 6.1.2 and 8.1).
        icmpv6::Message::RouterAdvert(_) | icmpv6::Message::Redirect { .. }
            if datagram.ttl != icmpv6::DISCOVERY_HOP_LIMIT =>
        {
            Err(DropReason::NeighbourBadAdvert)
        }
        icmpv6::Message::RouterAdvert(advert) => {
            received::link_local(&datagram).map(|from| ReceivedIcmp::RouterAdvert { from, advert })
        }
        icmpv6::Message::Redirect { target, destination, .. } => {
            let (destination, target) = (IpAddr::V6(destination), IpAddr::V6(target));
            Ok(ReceivedIcmp::Redirect(Redirect { reporter: datagram.src, destination, target }))
        }
        icmpv6::Message::Other { kind: mld::QUERY, .. } => {
            counters.increment(Counter::GroupQueriesIn);
            received::listener_query(&datagram).map(|query| ReceivedIcmp::ListenerQuery(query.into()))
        }
        // A host does not answer router solicitations.
        message if message.is_discovery() => Err(DropReason::IcmpUnknownType),
        message if message.is_error() => {
            received::error_v6(&datagram, message, interface, counters).map(ReceivedIcmp::Error)
        }
        _ => Err(DropReason::IcmpUnknownType),
    }
}

fn echo_reply(mut datagram: Datagram, ident: u16, seq: u16) -> ReceivedIcmp {
    datagram.buf.pull_front(icmpv4::HEADER_LEN);
    ReceivedIcmp::EchoReply { datagram, ident, seq }
}

/// Turns a request into its reply in place: the type and the checksum change (RFC 1624); the data is not touched.
/// Requests to an IPv4 broadcast or group are not answered (RFC 1122 section 3.2.2.6), those to an IPv6 group are, from
/// a unicast address (RFC 4443 section 4.2).
fn echo(datagram: Datagram, interface: &InterfaceView, counters: &Counters) -> Result<ReceivedIcmp, DropReason> {
    counters.increment(Counter::IcmpEchoRequestsIn);
    let to_group = datagram.cast != Cast::Unicast;
    if (to_group && datagram.dst.is_ipv4()) || datagram.src.is_unspecified() {
        return Err(DropReason::IcmpEchoIgnored);
    }
    let source = if to_group { interface.source_for(datagram.src) } else { Some(datagram.dst) };
    let source = source.ok_or(DropReason::NoSourceAddress)?;
    let Datagram { mut buf, src: destination, dst, tos, .. } = datagram;
    let (old_type, new_type) = if destination.is_ipv4() { (8u8, 0u8) } else { (128, 129) };
    let [kind, _, high, low, ..] = &mut *buf else { return Err(DropReason::IcmpTruncated) };
    let old = u16::from_be_bytes([*high, *low]);
    let mut updated = checksum::update_u16(old, u16::from(old_type) << 8, u16::from(new_type) << 8);
    if source != dst {
        // Our address replaces the group's in the pseudo-header; the length cancels out.
        let with_group = checksum::pseudo_header(dst, dst, 0, 0).fold();
        let with_ours = checksum::pseudo_header(source, dst, 0, 0).fold();
        updated = checksum::update_u16(updated, with_group, with_ours);
    }
    *kind = new_type;
    [*high, *low] = updated.to_be_bytes();
    buf.meta_mut().checksum = Checksum::None;
    // The DSCP is echoed (RFC 1122 section 3.2.2.6); ECN belongs to the request's path.
    put_header(&mut buf, source, destination, tos & !3, interface.mtu);
    counters.increment(Counter::IcmpEchoRepliesOut);
    counters.increment(Counter::IcmpOut);
    Ok(ReceivedIcmp::Reply { packet: buf, destination })
}

fn put_header(buf: &mut PktBuf, source: IpAddr, destination: IpAddr, tos: u8, mtu: usize) {
    match (source, destination) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            // A long message must be fragmented: `output::fragment` then sets its identification.
            let fits = buf.len() + wire::ipv4::HEADER_LEN <= mtu;
            let fragmentation = if fits { Fragmentation::Never } else { Fragmentation::Allowed { ident: 0 } };
            output::ipv4_header(buf, src, dst, protocol::ICMP, tos, DEFAULT_TTL, fragmentation);
        }
        _ => output::header(buf, source, destination, protocol::ICMPV6, tos, DEFAULT_TTL),
    }
}

#[cfg(test)]
mod tests;
