//! ARP for IPv4 over Ethernet (RFC 826), and over FDDI, where it has the same hardware type (RFC 1390).

use core::net::Ipv4Addr;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ParseError;
use crate::ethernet::{EtherType, MacAddr};

/// Bytes of a packet, without the padding of a short frame.
pub const PACKET_LEN: usize = 28;

const HARDWARE_ETHERNET: u16 = 1;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct View {
    hardware: U16,
    protocol: U16,
    hardware_len: u8,
    protocol_len: u8,
    op: U16,
    sha: [u8; 6],
    spa: [u8; 4],
    tha: [u8; 6],
    tpa: [u8; 4],
}

/// The operation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Requests the link address of the target protocol address.
    Request,
    /// The sender has the address.
    Reply,
    /// RARP and others, ignored by the stack.
    Other(u16),
}

impl From<u16> for Operation {
    fn from(value: u16) -> Self {
        match value {
            1 => Self::Request,
            2 => Self::Reply,
            other => Self::Other(other),
        }
    }
}

impl From<Operation> for u16 {
    fn from(value: Operation) -> Self {
        match value {
            Operation::Request => 1,
            Operation::Reply => 2,
            Operation::Other(other) => other,
        }
    }
}

/// An ARP packet; the fields have RFC 826's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Operation.
    pub op: Operation,
    /// Sender hardware address.
    pub sha: MacAddr,
    /// Sender protocol address; unspecified in a probe (RFC 5227).
    pub spa: Ipv4Addr,
    /// Target hardware address; zero in a request.
    pub tha: MacAddr,
    /// Target protocol address.
    pub tpa: Ipv4Addr,
}

/// Reads a packet. Bytes after it are the frame's padding and are ignored.
///
/// # Errors
/// [`ParseError::Truncated`] below 28 bytes, [`ParseError::Unsupported`] if it is not for IPv4 over Ethernet,
/// [`ParseError::BadLength`] if its address lengths are not 6 and 4.
pub fn parse(bytes: &[u8]) -> Result<Packet, ParseError> {
    let (view, _) = View::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
    if view.hardware.get() != HARDWARE_ETHERNET || view.protocol.get() != EtherType::Ipv4.into() {
        return Err(ParseError::Unsupported);
    }
    if view.hardware_len != 6 || view.protocol_len != 4 {
        return Err(ParseError::BadLength);
    }
    Ok(Packet {
        op: view.op.get().into(),
        sha: MacAddr(view.sha),
        spa: view.spa.into(),
        tha: MacAddr(view.tha),
        tpa: view.tpa.into(),
    })
}

impl Packet {
    /// Writes the packet.
    pub fn emit(&self, out: &mut [u8; PACKET_LEN]) {
        *out = zerocopy::transmute!(View {
            hardware: U16::new(HARDWARE_ETHERNET),
            protocol: U16::new(EtherType::Ipv4.into()),
            hardware_len: 6,
            protocol_len: 4,
            op: U16::new(self.op.into()),
            sha: self.sha.0,
            spa: self.spa.octets(),
            tha: self.tha.0,
            tpa: self.tpa.octets(),
        });
    }
}
