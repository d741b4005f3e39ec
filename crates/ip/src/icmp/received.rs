//! ICMP errors received, reduced to the fields that a transport can check against its own state (RFC 5927).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use observe::{Counter, Counters, DropReason};
use wire::{FourTuple, SeqNumber, icmpv4, icmpv6, ipv4, ipv6, mld, protocol};

use crate::datagram::Datagram;
use crate::interface::{Cast, InterfaceView};
use crate::path_mtu::FLOOR_V6;
use crate::redirect::Redirect;

/// The fate of a packet, as reported by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpErrorKind {
    /// It could not be delivered; the code is that of the family ([`wire::icmpv4::unreachable`],
    /// [`wire::icmpv6::unreachable`]).
    Unreachable {
        /// Why.
        code: u8,
    },
    /// It did not fit the next link.
    PacketTooBig {
        /// The size that would have, in bytes; 0 when the router does not report it.
        mtu: u32,
    },
    /// Its hop limit, or the reassembly time of its fragments, was exceeded.
    TimeExceeded,
    /// Its header was faulty.
    ParamProblem,
}

/// An error about a packet from one of our addresses. Any host can send one: the transport must find the connection and
/// check `seq` against the outstanding data before it acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedIcmpError {
    /// The flow from the view of our connection: local is the source of the quoted packet.
    pub tuple: FourTuple,
    /// Transport of the quoted packet.
    pub protocol: u8,
    /// The kind of error.
    pub kind: IcmpErrorKind,
    /// Sequence number of the quoted segment, if it was TCP.
    pub seq: Option<SeqNumber>,
    /// Length of the quoted packet when it was sent, in bytes, from its header.
    pub sent: usize,
    /// The host or router that reports it.
    pub reporter: IpAddr,
}

/// The meaning of an error for a transport, in either family (RFC 1122 sections 3.2.2.1 and 4.2.3.9, RFC 4443 section
/// 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpMeaning {
    /// The packet did not fit the next link, which carries `mtu` bytes; 0 if the router does not report it.
    PacketTooBig {
        /// MTU of the link, in bytes.
        mtu: u32,
    },
    /// The remote host reports that the port or the protocol has no service.
    Refused,
    /// There is no route to the network.
    NetworkUnreachable,
    /// The host cannot be reached, for any other reason.
    HostUnreachable,
    /// The packet was lost; later ones may pass.
    Transient,
}

impl ReceivedIcmpError {
    /// The meaning of the error for the transport whose packet it quotes.
    pub fn meaning(&self) -> IcmpMeaning {
        match self.kind {
            IcmpErrorKind::PacketTooBig { mtu } => IcmpMeaning::PacketTooBig { mtu },
            IcmpErrorKind::Unreachable { code } if self.is_refusal_code(code) => IcmpMeaning::Refused,
            // Both families have the same code (RFC 4443: no route to destination).
            IcmpErrorKind::Unreachable { code: icmpv4::unreachable::NETWORK } => IcmpMeaning::NetworkUnreachable,
            IcmpErrorKind::Unreachable { .. } => IcmpMeaning::HostUnreachable,
            IcmpErrorKind::TimeExceeded | IcmpErrorKind::ParamProblem => IcmpMeaning::Transient,
        }
    }

    /// Whether the peer's host reports that the port or protocol has no service: an error that ends an attempt to
    /// connect and that a connected UDP socket reports as "connection refused" (RFC 1122 sections 4.1.3.3 and 4.2.3.9).
    pub fn is_refusal(&self) -> bool {
        self.meaning() == IcmpMeaning::Refused
    }

    fn is_refusal_code(&self, code: u8) -> bool {
        if self.tuple.local_addr.is_ipv4() {
            matches!(code, icmpv4::unreachable::PORT | icmpv4::unreachable::PROTOCOL)
        } else {
            code == icmpv6::unreachable::PORT
        }
    }
}

pub(super) fn error_v4(
    datagram: &Datagram,
    message: icmpv4::Message,
    interface: &InterfaceView,
    counters: &Counters,
) -> Result<ReceivedIcmpError, DropReason> {
    counters.increment(Counter::IcmpErrorsIn);
    let kind = match message {
        icmpv4::Message::Unreachable { code: icmpv4::unreachable::FRAGMENTATION_NEEDED, mtu } => {
            IcmpErrorKind::PacketTooBig { mtu: mtu.into() }
        }
        icmpv4::Message::Unreachable { code, .. } => IcmpErrorKind::Unreachable { code },
        icmpv4::Message::TimeExceeded { .. } => IcmpErrorKind::TimeExceeded,
        icmpv4::Message::ParamProblem { .. } => IcmpErrorKind::ParamProblem,
        _ => return Err(DropReason::IcmpUnknownType),
    };
    let quoted = &datagram.buf[icmpv4::HEADER_LEN..];
    let header = ipv4::parse_unverified(quoted).map_err(|_| DropReason::IcmpTruncated)?;
    if header.fragment_offset != 0 {
        return Err(DropReason::IcmpNoConnection);
    }
    let (local, remote) = (IpAddr::V4(header.src), IpAddr::V4(header.dst));
    let transport = &quoted[header.header_len.into()..];
    let sent = header.total_len.into();
    build(interface, datagram.src, kind, (local, remote), header.protocol, transport, sent)
}

/// The error for a packet of ours that was not sent because its neighbour did not answer, like a router's "host
/// unreachable". `packet` begins at its network header; `None` when it does not belong to a transport.
pub fn undelivered(packet: &[u8], interface: &InterfaceView) -> Option<ReceivedIcmpError> {
    let unreachable = |code| IcmpErrorKind::Unreachable { code };
    if packet.first()? >> 4 == 4 {
        let header = ipv4::parse_unverified(packet).ok().filter(|header| header.fragment_offset == 0)?;
        let ends = (IpAddr::V4(header.src), IpAddr::V4(header.dst));
        let transport = packet.get(header.header_len.into()..)?;
        let kind = unreachable(icmpv4::unreachable::HOST);
        return build(interface, ends.0, kind, ends, header.protocol, transport, packet.len()).ok();
    }
    let header = ipv6::parse_unverified(packet).ok()?;
    let ends = (IpAddr::V6(header.src), IpAddr::V6(header.dst));
    let kind = unreachable(icmpv6::unreachable::ADDRESS);
    build(interface, ends.0, kind, ends, header.next_header, packet.get(ipv6::HEADER_LEN..)?, packet.len()).ok()
}

/// The source of a message that only a station of the link may send.
pub(super) fn link_local(datagram: &Datagram) -> Result<Ipv6Addr, DropReason> {
    match datagram.src {
        IpAddr::V6(src) if src.is_unicast_link_local() => Ok(src),
        _ => Err(DropReason::NeighbourBadAdvert),
    }
}

/// A listener query sent by a router of the link (RFC 3810 section 5.1.14).
pub(super) fn listener_query(datagram: &Datagram) -> Result<mld::Query, DropReason> {
    link_local(datagram)?;
    if datagram.ttl != mld::HOP_LIMIT {
        return Err(DropReason::NeighbourBadAdvert);
    }
    mld::parse_query(&datagram.buf).map_err(|_| DropReason::IcmpTruncated)
}

/// An IPv4 redirect; it must quote a packet of ours (RFC 1122 section 3.2.2.2). As in that section, a redirect for a
/// network applies only to the one destination.
pub(super) fn redirect_v4(
    datagram: &Datagram,
    code: u8,
    gateway: Ipv4Addr,
    interface: &InterfaceView,
) -> Result<Redirect, DropReason> {
    const MOST_CODE: u8 = 3;
    let quoted = ipv4::parse_unverified(&datagram.buf[icmpv4::HEADER_LEN..]).map_err(|_| DropReason::IcmpTruncated)?;
    let ours = interface.is_local(IpAddr::V4(quoted.src)) && datagram.cast == Cast::Unicast;
    if !ours || code > MOST_CODE {
        return Err(DropReason::RedirectRefused);
    }
    Ok(Redirect { reporter: datagram.src, destination: quoted.dst.into(), target: gateway.into() })
}

pub(super) fn error_v6(
    datagram: &Datagram,
    message: icmpv6::Message,
    interface: &InterfaceView,
    counters: &Counters,
) -> Result<ReceivedIcmpError, DropReason> {
    counters.increment(Counter::IcmpErrorsIn);
    let kind = match message {
        icmpv6::Message::Unreachable { code } => IcmpErrorKind::Unreachable { code },
        // RFC 8201 section 4: discarded, not raised to the least MTU of IPv6.
        icmpv6::Message::PacketTooBig { mtu } if mtu < u32::from(FLOOR_V6) => {
            return Err(DropReason::IcmpBelowLeastMtu);
        }
        icmpv6::Message::PacketTooBig { mtu } => IcmpErrorKind::PacketTooBig { mtu },
        icmpv6::Message::TimeExceeded { .. } => IcmpErrorKind::TimeExceeded,
        icmpv6::Message::ParamProblem { .. } => IcmpErrorKind::ParamProblem,
        _ => return Err(DropReason::IcmpUnknownType),
    };
    let quoted = &datagram.buf[icmpv6::HEADER_LEN..];
    let header = ipv6::parse_unverified(quoted).map_err(|_| DropReason::IcmpTruncated)?;
    let payload = &quoted[ipv6::HEADER_LEN..];
    let chain = ipv6::walk(header.next_header, payload).map_err(|_| DropReason::IcmpTruncated)?;
    let (mut protocol, transport) = (chain.next_header, payload.get(chain.offset..).unwrap_or_default());
    if let Some(fragment) = chain.fragment {
        if fragment.offset != 0 {
            return Err(DropReason::IcmpNoConnection);
        }
        protocol = chain.next_header;
    }
    let (local, remote) = (IpAddr::V6(header.src), IpAddr::V6(header.dst));
    let sent = ipv6::HEADER_LEN + usize::from(header.payload_len);
    build(interface, datagram.src, kind, (local, remote), protocol, transport, sent)
}

/// Reads ports and sequence number from the first eight bytes of the quoted transport header, the minimum quotation.
/// The ports have the same offsets in TCP and UDP.
fn build(
    interface: &InterfaceView,
    reporter: IpAddr,
    kind: IcmpErrorKind,
    (local_addr, remote_addr): (IpAddr, IpAddr),
    protocol: u8,
    transport: &[u8],
    sent: usize,
) -> Result<ReceivedIcmpError, DropReason> {
    if !interface.is_local(local_addr) || !matches!(protocol, protocol::TCP | protocol::UDP) {
        return Err(DropReason::IcmpNoConnection);
    }
    let &[a, b, c, d, e, f, g, h, ..] = transport else {
        return Err(DropReason::IcmpTruncated);
    };
    let (local_port, remote_port) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let seq = (protocol == protocol::TCP).then(|| SeqNumber(u32::from_be_bytes([e, f, g, h])));
    let tuple = FourTuple { local_addr, remote_addr, local_port, remote_port };
    Ok(ReceivedIcmpError { tuple, protocol, kind, seq, sent, reporter })
}
