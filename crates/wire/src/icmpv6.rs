//! ICMP for IPv6 (RFC 4443) with neighbour discovery (RFC 4861).
//!
//! Echo and error messages are a header of eight bytes and a body that stays where it is. Neighbour-discovery messages
//! have no body: their options are part of the value. [`parse`] checks everything that sections 6.1, 7.1 and 8.1 of RFC
//! 4861 require of the message itself; the caller, which has the IPv6 header, checks that the hop limit is 255.

mod discovery;

use core::net::Ipv6Addr;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ethernet::MacAddr;
use crate::{ParseError, checksum, protocol};

pub use discovery::{MAX_PREFIXES, PrefixInfo, Prefixes, RouterAdvert};

/// Bytes of the header of echo and error messages, and offset of their body.
pub const HEADER_LEN: usize = 8;
/// Hop limit of every neighbour-discovery message: proof that no router forwarded it.
pub const DISCOVERY_HOP_LIMIT: u8 = 255;

/// Codes of [`Message::Unreachable`] (RFC 4443 section 3.1).
pub mod unreachable {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// A filter forbids it.
    pub const PROHIBITED: u8 = 1;
    /// The neighbour does not answer.
    pub const ADDRESS: u8 = 3;
    /// No socket is bound to the port.
    pub const PORT: u8 = 4;
}

/// Codes of [`Message::ParamProblem`] (RFC 4443 section 3.4).
pub mod param_problem {
    /// A header field is wrong.
    pub const HEADER_FIELD: u8 = 0;
    /// A next-header value is not known.
    pub const NEXT_HEADER: u8 = 1;
    /// An option is not known.
    pub const OPTION: u8 = 2;
}

const UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAM_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const ROUTER_SOLICIT: u8 = 133;
const ROUTER_ADVERT: u8 = 134;
const NEIGHBOUR_SOLICIT: u8 = 135;
const NEIGHBOUR_ADVERT: u8 = 136;
const REDIRECT: u8 = 137;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct View {
    kind: u8,
    code: u8,
    checksum: U16,
    rest: U32,
}

/// A message: the header, and for neighbour discovery the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// The quoted packet could not be delivered.
    Unreachable {
        /// Why, see [`mod@unreachable`].
        code: u8,
    },
    /// The quoted packet does not fit the next link.
    PacketTooBig {
        /// MTU of that link, in bytes.
        mtu: u32,
    },
    /// The quoted packet ran out of hops (code 0) or its fragments out of time (code 1).
    TimeExceeded {
        /// Which of the two (see above).
        code: u8,
    },
    /// The quoted packet has a bad header.
    ParamProblem {
        /// The kind of error, see [`param_problem`].
        code: u8,
        /// Offset of the offending byte in the quoted packet.
        pointer: u32,
    },
    /// A request to return the body.
    EchoRequest {
        /// Identifies the requester.
        ident: u16,
        /// Numbers the requests.
        seq: u16,
    },
    /// The returned body.
    EchoReply {
        /// Of the request.
        ident: u16,
        /// Of the request.
        seq: u16,
    },
    /// Requests router advertisements (RFC 4861 section 4.1).
    RouterSolicit {
        /// Hardware address of the sender.
        source: Option<MacAddr>,
    },
    /// A router advertises itself and the parameters of its link (RFC 4861 section 4.2).
    RouterAdvert(RouterAdvert),
    /// Neighbour solicitation: requests the link address of the target, or probes it (RFC 4861 section 4.3).
    NeighbourSolicit {
        /// The requested address.
        target: Ipv6Addr,
        /// Hardware address of the sender; `None` in duplicate address detection.
        source: Option<MacAddr>,
    },
    /// The sender has the target address (RFC 4861 section 4.4).
    NeighbourAdvert {
        /// The advertised address.
        target: Ipv6Addr,
        /// Hardware address of the target.
        target_mac: Option<MacAddr>,
        /// R: the sender is a router.
        router: bool,
        /// S: this answers a solicitation.
        solicited: bool,
        /// O: replace the cached hardware address.
        override_flag: bool,
    },
    /// A better first hop for a destination (RFC 4861 section 4.5). The quoted packet is not kept.
    Redirect {
        /// The better hop, or `destination` itself if that is a neighbour.
        target: Ipv6Addr,
        /// The destination reached through it.
        destination: Ipv6Addr,
        /// Hardware address of the target.
        target_mac: Option<MacAddr>,
    },
    /// Any other message.
    Other {
        /// Type; below 128 it is an error.
        kind: u8,
        /// Code.
        code: u8,
        /// Bytes four to seven.
        rest: u32,
    },
}

/// Reads a message and checks its checksum; `message` is the whole payload of the IPv6 packet behind its extension
/// headers, `src` and `dst` are the packet's addresses.
///
/// # Errors
/// [`ParseError::Truncated`] below the header of the type, [`ParseError::BadChecksum`], [`ParseError::BadOption`] if an
/// option of neighbour discovery has length zero or overruns the message, [`ParseError::BadField`] if another rule of
/// RFC 4861 for receivers is broken.
pub fn parse(message: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Result<Message, ParseError> {
    let (view, rest) = View::ref_from_prefix(message).map_err(|_| ParseError::Truncated)?;
    if !pseudo_header(message, src, dst).add(checksum::sum(message)).is_valid() {
        return Err(ParseError::BadChecksum);
    }
    let (code, word) = (view.code, view.rest.get());
    let (high, low) = ((word >> 16) as u16, word as u16);
    Ok(match view.kind {
        UNREACHABLE => Message::Unreachable { code },
        PACKET_TOO_BIG => Message::PacketTooBig { mtu: word },
        TIME_EXCEEDED => Message::TimeExceeded { code },
        PARAM_PROBLEM => Message::ParamProblem { code, pointer: word },
        ECHO_REQUEST if code == 0 => Message::EchoRequest { ident: high, seq: low },
        ECHO_REPLY if code == 0 => Message::EchoReply { ident: high, seq: low },
        kind @ ROUTER_SOLICIT..=REDIRECT => {
            if code != 0 {
                return Err(ParseError::BadField);
            }
            discovery::parse(kind, word, rest, src, dst)?
        }
        kind => Message::Other { kind, code, rest: word },
    })
}

fn pseudo_header(message: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> checksum::Sum {
    checksum::pseudo_header(src.into(), dst.into(), protocol::ICMPV6, message.len() as u32)
}

impl Message {
    /// Whether this is an error message, which must never be answered by another (RFC 4443 section 2.4 e). Redirects
    /// count as such.
    pub const fn is_error(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::PacketTooBig { .. }
            | Self::TimeExceeded { .. }
            | Self::ParamProblem { .. }
            | Self::Redirect { .. } => true,
            Self::Other { kind, .. } => *kind < ECHO_REQUEST,
            _ => false,
        }
    }

    /// Whether this is neighbour discovery, which is valid only with hop limit [`DISCOVERY_HOP_LIMIT`].
    pub const fn is_discovery(&self) -> bool {
        matches!(
            self,
            Self::RouterSolicit { .. }
                | Self::RouterAdvert(_)
                | Self::NeighbourSolicit { .. }
                | Self::NeighbourAdvert { .. }
                | Self::Redirect { .. }
        )
    }

    /// Bytes of the message without the body: the whole message for neighbour discovery, otherwise [`HEADER_LEN`].
    pub fn header_len(&self) -> usize {
        HEADER_LEN + discovery::emitted_len(self)
    }

    /// Writes the header (and options) over the first [`header_len`](Self::header_len) bytes of `message`, which
    /// already contains the body, with the checksum over all of `message`. Returns the number of bytes written, or 0
    /// with nothing written if `message` is shorter.
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, message: &mut [u8]) -> usize {
        let len = self.header_len();
        let (kind, code, rest) = self.fields();
        let Some((view, behind)) = message.get_mut(..len).and_then(|head| View::mut_from_prefix(head).ok()) else {
            return 0;
        };
        *view = View { kind, code, checksum: U16::ZERO, rest: U32::new(rest) };
        discovery::emit(self, behind);
        let checksum = pseudo_header(message, src, dst).add(checksum::sum(message)).finish();
        if let Ok((view, _)) = View::mut_from_prefix(message) {
            view.checksum = U16::new(checksum);
        }
        len
    }

    fn fields(&self) -> (u8, u8, u32) {
        match *self {
            Self::Unreachable { code } => (UNREACHABLE, code, 0),
            Self::PacketTooBig { mtu } => (PACKET_TOO_BIG, 0, mtu),
            Self::TimeExceeded { code } => (TIME_EXCEEDED, code, 0),
            Self::ParamProblem { code, pointer } => (PARAM_PROBLEM, code, pointer),
            Self::EchoRequest { ident, seq } => (ECHO_REQUEST, 0, u32::from(ident) << 16 | u32::from(seq)),
            Self::EchoReply { ident, seq } => (ECHO_REPLY, 0, u32::from(ident) << 16 | u32::from(seq)),
            Self::RouterSolicit { .. } => (ROUTER_SOLICIT, 0, 0),
            Self::RouterAdvert(advert) => (ROUTER_ADVERT, 0, advert.word()),
            Self::NeighbourSolicit { .. } => (NEIGHBOUR_SOLICIT, 0, 0),
            Self::NeighbourAdvert { router, solicited, override_flag, .. } => {
                let word = u32::from(router) << 31 | u32::from(solicited) << 30 | u32::from(override_flag) << 29;
                (NEIGHBOUR_ADVERT, 0, word)
            }
            Self::Redirect { .. } => (REDIRECT, 0, 0),
            Self::Other { kind, code, rest } => (kind, code, rest),
        }
    }
}
