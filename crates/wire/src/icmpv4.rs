//! ICMP for IPv4 (RFC 792; next-hop MTU of RFC 1191).
//!
//! A message is a header of eight bytes and a body: the echoed data, or the header of the packet that caused an error
//! and at least eight bytes of it. Value and view end with the header; the body stays where it is.

use core::net::Ipv4Addr;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ParseError, checksum};

/// Bytes of the header, and offset of the body.
pub const HEADER_LEN: usize = 8;

/// Codes of [`Message::Unreachable`] (RFC 792, RFC 1122 section 3.2.2.1).
pub mod unreachable {
    /// No route to the network.
    pub const NETWORK: u8 = 0;
    /// The host does not answer on the last link.
    pub const HOST: u8 = 1;
    /// The protocol is not supported.
    pub const PROTOCOL: u8 = 2;
    /// No socket is bound to the UDP port.
    pub const PORT: u8 = 3;
    /// Fragmentation needed, but forbidden.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
}

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const REDIRECT: u8 = 5;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAM_PROBLEM: u8 = 12;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct View {
    kind: u8,
    code: u8,
    checksum: U16,
    rest: U32,
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
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
    /// The quoted packet could not be delivered.
    Unreachable {
        /// Why, see [`mod@unreachable`].
        code: u8,
        /// With [`unreachable::FRAGMENTATION_NEEDED`], the MTU of the next hop in bytes, or 0 from a router older than
        /// RFC 1191. Else zero.
        mtu: u16,
    },
    /// A better first hop for the destination of the quoted packet.
    Redirect {
        /// Scope: 0 network, 1 host, 2 and 3 the same by type of service.
        code: u8,
        /// The better hop.
        gateway: Ipv4Addr,
    },
    /// The quoted packet ran out of hops (code 0) or its fragments out of time (code 1).
    TimeExceeded {
        /// Which of the two (see above).
        code: u8,
    },
    /// The quoted packet has a bad header.
    ParamProblem {
        /// 0: `pointer` counts; 1: a required option is missing.
        code: u8,
        /// Offset of the offending byte in the quoted packet.
        pointer: u8,
    },
    /// Any other message.
    Other {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// Bytes four to seven.
        rest: u32,
    },
}

/// Reads a message and checks its checksum; `message` is the whole payload of the IPv4 packet.
///
/// # Errors
/// [`ParseError::Truncated`] below eight bytes, [`ParseError::BadChecksum`].
pub fn parse(message: &[u8]) -> Result<Message, ParseError> {
    let (view, _) = View::ref_from_prefix(message).map_err(|_| ParseError::Truncated)?;
    if !checksum::sum(message).is_valid() {
        return Err(ParseError::BadChecksum);
    }
    let rest = view.rest.get();
    let code = view.code;
    Ok(match view.kind {
        ECHO_REQUEST if code == 0 => Message::EchoRequest { ident: (rest >> 16) as u16, seq: rest as u16 },
        ECHO_REPLY if code == 0 => Message::EchoReply { ident: (rest >> 16) as u16, seq: rest as u16 },
        UNREACHABLE => {
            let mtu = if code == unreachable::FRAGMENTATION_NEEDED { rest as u16 } else { 0 };
            Message::Unreachable { code, mtu }
        }
        REDIRECT => Message::Redirect { code, gateway: rest.into() },
        TIME_EXCEEDED => Message::TimeExceeded { code },
        PARAM_PROBLEM => Message::ParamProblem { code, pointer: (rest >> 24) as u8 },
        kind => Message::Other { kind, code, rest },
    })
}

impl Message {
    /// Whether this is an error message, which must never be answered by another (RFC 1122 section 3.2.2).
    pub const fn is_error(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Redirect { .. } | Self::TimeExceeded { .. } | Self::ParamProblem { .. }
        )
    }

    /// Writes the header over the first eight bytes of `message`, which already contains the body, with the checksum
    /// over all of `message`. Returns the length of the header, or 0 with nothing written if `message` is shorter.
    pub fn emit(&self, message: &mut [u8]) -> usize {
        let (kind, code, rest) = self.fields();
        let Ok((view, _)) = View::mut_from_prefix(message) else {
            return 0;
        };
        *view = View { kind, code, checksum: U16::ZERO, rest: U32::new(rest) };
        let checksum = checksum::sum(message).finish();
        if let Ok((view, _)) = View::mut_from_prefix(message) {
            view.checksum = U16::new(checksum);
        }
        HEADER_LEN
    }

    fn fields(&self) -> (u8, u8, u32) {
        match *self {
            Self::EchoRequest { ident, seq } => (ECHO_REQUEST, 0, u32::from(ident) << 16 | u32::from(seq)),
            Self::EchoReply { ident, seq } => (ECHO_REPLY, 0, u32::from(ident) << 16 | u32::from(seq)),
            Self::Unreachable { code, mtu } => (UNREACHABLE, code, u32::from(mtu)),
            Self::Redirect { code, gateway } => (REDIRECT, code, gateway.to_bits()),
            Self::TimeExceeded { code } => (TIME_EXCEEDED, code, 0),
            Self::ParamProblem { code, pointer } => (PARAM_PROBLEM, code, u32::from(pointer) << 24),
            Self::Other { kind, code, rest } => (kind, code, rest),
        }
    }
}
