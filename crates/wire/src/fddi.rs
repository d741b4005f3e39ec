//! Frames of the Fiber Distributed Data Interface (ISO 9314-2) that carry IP or ARP (RFC 1390, RFC 2467).
//!
//! | bytes | field | value |
//! |---|---|---|
//! | 1 | frame control | 0x50: asynchronous, addresses of 48 bits, LLC, priority 0; received with any priority, up to 0x57 |
//! | 6, 6 | destination, source | bit order as on Ethernet and in ARP (canonical) |
//! | 3 | LLC (IEEE 802.2) | both service access points 0xaa (SNAP), control 3 (unnumbered information) |
//! | 3 | SNAP: organisation | 0: the type is an EtherType |
//! | 2 | SNAP: type | |
//!
//! Only the addresses and the type vary, so an Ethernet header stands for the header of such a frame:
//! [`of_ethernet`] adds the rest, [`parse`] checks it and removes it. Group addresses are Ethernet's. Frames are not padded, and
//! have no tag. The ring's own protocols (MAC and SMT frames), synchronous frames and LLC's XID and TEST are not
//! served.

use core::fmt;

use crate::ethernet::{self, MacAddr};

/// Bytes of the header.
pub const HEADER_LEN: usize = 21;
/// Largest IP packet, in bytes (RFC 1390, RFC 2467 section 2).
pub const MTU: usize = 4352;

/// Frame control of transmitted frames.
const FRAME_CONTROL: u8 = 0x50;
/// The bits of frame control that are the priority.
const PRIORITY: u8 = 0x07;
/// LLC of SNAP, unnumbered information.
const LLC: [u8; 3] = [0xaa, 0xaa, 0x03];
/// The organisation of EtherTypes.
const ORGANISATION: [u8; 3] = [0; 3];

/// Why a frame carries neither IP nor ARP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FddiError {
    /// It ends before its header does.
    Truncated,
    /// Its frame control is not that of an asynchronous frame of LLC with addresses of 48 bits.
    FrameControl,
    /// Its LLC header is not that of SNAP with unnumbered information.
    Llc,
    /// The organisation of its SNAP header is another one: its type is no EtherType.
    Organisation,
}

impl fmt::Display for FddiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the frame ends before its FDDI, LLC and SNAP headers do",
            Self::FrameControl => "the FDDI frame is not asynchronous LLC with 48-bit addresses",
            Self::Llc => "the FDDI frame's LLC header is not SNAP with unnumbered information",
            Self::Organisation => "the FDDI frame's SNAP header names an organisation whose types are not known",
        })
    }
}

impl core::error::Error for FddiError {}

/// Reads the header. The packet begins at [`HEADER_LEN`].
///
/// # Errors
/// The first of the header's fields that has another value.
pub fn parse(frame: &[u8]) -> Result<ethernet::Header, FddiError> {
    let (head, _) = frame.split_first_chunk::<HEADER_LEN>().ok_or(FddiError::Truncated)?;
    let [control, a, b, c, d, e, f, g, h, i, j, k, l, llc @ .., o1, o2, o3, t1, t2] = *head;
    if control & !PRIORITY != FRAME_CONTROL {
        return Err(FddiError::FrameControl);
    }
    if llc != LLC {
        return Err(FddiError::Llc);
    }
    if [o1, o2, o3] != ORGANISATION {
        return Err(FddiError::Organisation);
    }
    let (dst, src) = (MacAddr([a, b, c, d, e, f]), MacAddr([g, h, i, j, k, l]));
    Ok(ethernet::Header { dst, src, ethertype: u16::from_be_bytes([t1, t2]).into() })
}

/// The header with the addresses and the type of an Ethernet header.
pub fn of_ethernet(header: &[u8; ethernet::HEADER_LEN]) -> [u8; HEADER_LEN] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, t1, t2] = *header;
    let ([s1, s2, s3], [o1, o2, o3]) = (LLC, ORGANISATION);
    [FRAME_CONTROL, a, b, c, d, e, f, g, h, i, j, k, l, s1, s2, s3, o1, o2, o3, t1, t2]
}

/// Writes the header with these addresses and this type.
pub fn emit(header: &ethernet::Header, out: &mut [u8; HEADER_LEN]) {
    let mut bytes = [0; ethernet::HEADER_LEN];
    header.emit(&mut bytes);
    *out = of_ethernet(&bytes);
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::vec::Vec;

    use super::*;
    use crate::ethernet::EtherType;

    const STATION: MacAddr = MacAddr([0x02, 0x60, 0x8c, 0x01, 0x02, 0x03]);
    const OTHER: MacAddr = MacAddr([0x08, 0x00, 0x2b, 0x0a, 0x0b, 0x0c]);

    fn header(dst: MacAddr, ethertype: EtherType) -> ethernet::Header {
        ethernet::Header { dst, src: OTHER, ethertype }
    }

    /// The frame as RFC 1390 draws it ("Frame Format"), with the addresses of a station, of all, and of groups, which are
    /// those of Ethernet.
    #[test]
    fn a_header_is_written_and_read_byte_for_byte() {
        let group = MacAddr::from_ipv4_multicast(Ipv4Addr::new(224, 0, 0, 251));
        let solicited = MacAddr::from_ipv6_multicast(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff01, 0x0203));
        let cases: [(MacAddr, EtherType, [u8; 6], [u8; 2]); 4] = [
            (STATION, EtherType::Ipv4, [0x02, 0x60, 0x8c, 0x01, 0x02, 0x03], [0x08, 0x00]),
            (MacAddr::BROADCAST, EtherType::Arp, [0xff; 6], [0x08, 0x06]),
            (group, EtherType::Ipv4, [0x01, 0x00, 0x5e, 0, 0, 0xfb], [0x08, 0x00]),
            (solicited, EtherType::Ipv6, [0x33, 0x33, 0xff, 0x01, 0x02, 0x03], [0x86, 0xdd]),
        ];
        for (dst, ethertype, address, number) in cases {
            let mut expected: Vec<u8> = std::vec![0x50];
            expected.extend(address);
            expected.extend([0x08, 0x00, 0x2b, 0x0a, 0x0b, 0x0c]);
            expected.extend([0xaa, 0xaa, 0x03, 0x00, 0x00, 0x00]);
            expected.extend(number);
            let mut bytes = [0; HEADER_LEN];
            emit(&header(dst, ethertype), &mut bytes);
            assert_eq!(bytes[..], expected[..]);
            assert_eq!(parse(&bytes), Ok(header(dst, ethertype)));
        }
    }

    /// Every value of each fixed byte: only the eight priorities of asynchronous LLC with long addresses pass, and one
    /// value of each byte of LLC and SNAP. No shorter frame passes.
    #[test]
    fn every_other_header_is_refused_with_its_reason() {
        let mut good = [0; HEADER_LEN];
        emit(&header(STATION, EtherType::Ipv4), &mut good);
        for at in [0, 13, 14, 15, 16, 17, 18] {
            for value in 0..=u8::MAX {
                let mut frame = good;
                frame[at] = value;
                let expected = match (at, value) {
                    (0, 0x50..=0x57) => Ok(()),
                    (0, _) => Err(FddiError::FrameControl),
                    (13 | 14, 0xaa) | (15, 3) | (16..=18, 0) => Ok(()),
                    (13..=15, _) => Err(FddiError::Llc),
                    _ => Err(FddiError::Organisation),
                };
                assert_eq!(parse(&frame).map(|_| ()), expected, "byte {at} is {value:#04x}");
            }
        }
        for len in 0..HEADER_LEN {
            assert_eq!(parse(&good[..len]), Err(FddiError::Truncated), "{len} bytes");
        }
    }
}
