//! The numbers of the pcapng format (draft-ietf-opsawg-pcapng) and of classic pcap (draft-ietf-opsawg-pcap).

use wire::Framing;

/// Section header block.
pub const SECTION_HEADER: u32 = 0x0a0d_0d0a;
/// Interface description block.
pub const INTERFACE_DESCRIPTION: u32 = 1;
/// Packet block, obsolete but still in use.
pub const PACKET: u32 = 2;
/// Simple packet block.
pub const SIMPLE_PACKET: u32 = 3;
/// Enhanced packet block.
pub const ENHANCED_PACKET: u32 = 6;
/// The byte-order magic of a section header.
pub const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Classic pcap with microseconds.
pub const CLASSIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
/// Classic pcap with nanoseconds.
pub const CLASSIC_NANOSECONDS: u32 = 0xa1b2_3c4d;

/// Link type of Ethernet.
const LINKTYPE_ETHERNET: u16 = 1;
/// Link type of FDDI: frames from their frame control on.
const LINKTYPE_FDDI: u16 = 10;
/// Link type of IP packets without link header; their version says which.
const LINKTYPE_RAW: u16 = 101;

/// The link type of frames with this framing.
pub fn link_type(framing: Framing) -> u16 {
    match framing {
        Framing::Ethernet => LINKTYPE_ETHERNET,
        Framing::Fddi => LINKTYPE_FDDI,
        Framing::Packet => LINKTYPE_RAW,
    }
}

/// Option that ends a list of options.
pub const OPT_END: u16 = 0;
/// Section header: the writing application.
pub const SHB_USERAPPL: u16 = 4;
/// Interface description: the interface's name.
pub const IF_NAME: u16 = 2;
/// Interface description: resolution of time stamps.
pub const IF_TSRESOL: u16 = 9;
/// Interface description: seconds to add to time stamps.
pub const IF_TSOFFSET: u16 = 14;
/// Enhanced packet: flags, whose lowest two bits are the direction.
pub const EPB_FLAGS: u16 = 2;

/// Longest block or frame that a reader takes: a frame is at most 64 KiB and its headers; the rest is room for options.
pub const LONGEST: u32 = 16 << 20;

/// The direction of a captured frame, if recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Not recorded.
    #[default]
    Unknown,
    /// Received.
    Inbound,
    /// Transmitted.
    Outbound,
}

impl Direction {
    /// The value of the two direction bits of `epb_flags`.
    pub fn bits(self) -> u32 {
        match self {
            Direction::Unknown => 0,
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        }
    }

    /// The direction that `epb_flags` names.
    pub fn from_bits(flags: u32) -> Direction {
        match flags & 3 {
            1 => Direction::Inbound,
            2 => Direction::Outbound,
            _ => Direction::Unknown,
        }
    }
}
