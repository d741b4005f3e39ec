//! ICMP errors sent: types, restrictions, and how much of the packet they quote.

use core::net::IpAddr;

use observe::{DropReason, Time};
use pktbuf::PktBuf;
use wire::{icmpv4, icmpv6, ipv4, ipv6, protocol};

use super::PerDestination;
use crate::datagram::Datagram;
use crate::interface::{Cast, InterfaceView};
use crate::output::{self, DEFAULT_TTL};

/// The error of a packet, independent of the family; [`error`] chooses type and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No socket is bound to the UDP port.
    PortUnreachable,
    /// No transport has the protocol number (IPv4; IPv6 has [`ErrorKind::UnknownNextHeader`]).
    ProtocolUnreachable,
    /// The destination does not answer on its link.
    AddressUnreachable,
    /// The packet exceeds the next link.
    PacketTooBig {
        /// The size that fits, in bytes.
        mtu: u32,
    },
    /// The rest of a fragmented packet did not arrive in time.
    ReassemblyTimeExceeded,
    /// A header field has an impossible value.
    BadHeader {
        /// Offset of the field in the packet, in bytes.
        pointer: u32,
    },
    /// An IPv6 header of unknown type, or in a wrong place.
    UnknownNextHeader {
        /// Offset of the byte that names it.
        pointer: u32,
    },
    /// An unknown IPv6 option that requires an error.
    UnknownOption {
        /// Offset of the option.
        pointer: u32,
    },
    /// The first fragment lacks a part of the header chain (RFC 7112; IPv6).
    IncompleteHeaderChain,
}

/// Packets carrying an ICMPv4 error are at most this long (RFC 1812 section 4.3.2.3).
const MOST_V4: usize = 576;
const INCOMPLETE_CHAIN: u8 = 3;

/// The error about `cause`, as a packet that begins at its network header and goes back to `cause.src`.
///
/// # Errors
/// [`DropReason::IcmpErrorForbidden`] when none may be sent (RFC 1122 section 3.2.2, RFC 4443 section 2.4),
/// [`DropReason::RateLimited`], [`DropReason::NoBuffer`], [`DropReason::NoSourceAddress`]: why the error, not `cause`,
/// is dropped.
pub fn error(
    cause: &Datagram,
    kind: ErrorKind,
    interface: &InterfaceView,
    limit: &mut PerDestination,
    now: Time,
) -> Result<PktBuf, DropReason> {
    if !may_answer(kind, cause) {
        return Err(DropReason::IcmpErrorForbidden);
    }
    if !limit.allow(now, cause.src) {
        return Err(DropReason::RateLimited);
    }
    let source = match cause.cast {
        Cast::Unicast => cause.dst,
        _ => interface.source_for(cause.src).ok_or(DropReason::NoSourceAddress)?,
    };
    match (source, cause.src) {
        (IpAddr::V4(_), IpAddr::V4(_)) => {
            let message = message_v4(kind).ok_or(DropReason::IcmpErrorForbidden)?;
            let mut packet = quote(cause.packet(), room_v4(cause))?;
            message.emit(&mut packet);
            output::header(&mut packet, source, cause.src, protocol::ICMP, 0, DEFAULT_TTL);
            Ok(packet)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut packet = quote(cause.packet(), ipv6::MIN_MTU - ipv6::HEADER_LEN - icmpv6::HEADER_LEN)?;
            message_v6(kind).emit(src, dst, &mut packet);
            output::ipv6_header(&mut packet, src, dst, protocol::ICMPV6, 0, DEFAULT_TTL, 0);
            Ok(packet)
        }
        _ => Err(DropReason::NoSourceAddress),
    }
}

/// Whether the rules let `cause` be answered with an error at all. Input has checked that the source is a single host;
/// only the unspecified address, legal in IPv6 address detection, remains.
fn may_answer(kind: ErrorKind, cause: &Datagram) -> bool {
    if cause.src.is_unspecified() || is_error(cause) {
        return false;
    }
    let to_groups_too = matches!(kind, ErrorKind::PacketTooBig { .. } | ErrorKind::UnknownOption { .. });
    cause.cast == Cast::Unicast || (cause.dst.is_ipv6() && to_groups_too)
}

/// Whether the packet is an ICMP message that reports an error, or cannot be distinguished from one.
fn is_error(cause: &Datagram) -> bool {
    const ECHO_REPLY_V4: u8 = 0;
    const ECHO_V4: u8 = 8;
    const TIMESTAMP_V4: core::ops::RangeInclusive<u8> = 13..=18;
    const REDIRECT_V6: u8 = 137;
    let kind = cause.buf.first().copied();
    match cause.protocol {
        protocol::ICMP => !kind.is_some_and(|k| matches!(k, ECHO_REPLY_V4 | ECHO_V4) || TIMESTAMP_V4.contains(&k)),
        protocol::ICMPV6 => kind.is_none_or(|k| k < 128 || k == REDIRECT_V6),
        _ => false,
    }
}

/// The number of bytes of `cause` that an ICMPv4 error quotes: its header and eight bytes, which every error must (RFC
/// 1122 section 3.2.2), and more only as long as the error is no longer than its cause, so that there is no
/// amplification. IPv6 leaves no choice (RFC 4443 section 2.4 c: as much as fits 1,280 bytes): an error is 48 bytes
/// longer than its cause.
fn room_v4(cause: &Datagram) -> usize {
    const OWN_HEADERS: usize = ipv4::HEADER_LEN + icmpv4::HEADER_LEN;
    let least = cause.network_header_len() + 8;
    cause.packet().len().min(MOST_V4).saturating_sub(OWN_HEADERS).max(least)
}

/// A buffer with eight bytes for the ICMP header and as much of `packet` as `room` allows behind it.
fn quote(packet: &[u8], room: usize) -> Result<PktBuf, DropReason> {
    let quoted = &packet[..packet.len().min(room)];
    let mut message = PktBuf::alloc(icmpv4::HEADER_LEN + quoted.len()).ok_or(DropReason::NoBuffer)?;
    message.append(icmpv4::HEADER_LEN).fill(0);
    message.append(quoted.len()).copy_from_slice(quoted);
    Ok(message)
}

fn message_v4(kind: ErrorKind) -> Option<icmpv4::Message> {
    use icmpv4::{Message, unreachable};
    let unreachable = |code| Message::Unreachable { code, mtu: 0 };
    Some(match kind {
        ErrorKind::PortUnreachable => unreachable(unreachable::PORT),
        ErrorKind::ProtocolUnreachable => unreachable(unreachable::PROTOCOL),
        ErrorKind::AddressUnreachable => unreachable(unreachable::HOST),
        ErrorKind::PacketTooBig { mtu } => {
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            Message::Unreachable { code: unreachable::FRAGMENTATION_NEEDED, mtu }
        }
        ErrorKind::ReassemblyTimeExceeded => Message::TimeExceeded { code: 1 },
        ErrorKind::BadHeader { pointer } => Message::ParamProblem { code: 0, pointer: u8::try_from(pointer).ok()? },
        // IPv4 has no such headers.
        ErrorKind::UnknownNextHeader { .. } | ErrorKind::UnknownOption { .. } | ErrorKind::IncompleteHeaderChain => {
            return None;
        }
    })
}

fn message_v6(kind: ErrorKind) -> icmpv6::Message {
    use icmpv6::{Message, param_problem, unreachable};
    const NEXT_HEADER_FIELD: u32 = 6;
    match kind {
        ErrorKind::PortUnreachable => Message::Unreachable { code: unreachable::PORT },
        ErrorKind::AddressUnreachable => Message::Unreachable { code: unreachable::ADDRESS },
        ErrorKind::PacketTooBig { mtu } => Message::PacketTooBig { mtu },
        ErrorKind::ReassemblyTimeExceeded => Message::TimeExceeded { code: 1 },
        ErrorKind::BadHeader { pointer } => Message::ParamProblem { code: param_problem::HEADER_FIELD, pointer },
        ErrorKind::ProtocolUnreachable => {
            Message::ParamProblem { code: param_problem::NEXT_HEADER, pointer: NEXT_HEADER_FIELD }
        }
        ErrorKind::UnknownNextHeader { pointer } => Message::ParamProblem { code: param_problem::NEXT_HEADER, pointer },
        ErrorKind::UnknownOption { pointer } => Message::ParamProblem { code: param_problem::OPTION, pointer },
        ErrorKind::IncompleteHeaderChain => Message::ParamProblem { code: INCOMPLETE_CHAIN, pointer: 0 },
    }
}
