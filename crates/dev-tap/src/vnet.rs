//! The header before each frame (`struct virtio_net_hdr_mrg_rxbuf`, virtio 1.2 section 5.1.6): twelve bytes in the
//! machine's byte order, which describe the offload work left by the frame's sender.
//!
//! Received frames that the kernel of this machine sent were never on a wire; `NEEDS_CSUM` on them means that the
//! checksum field was never completed because nothing can have corrupted the frame. They are passed on as `Partial`, so
//! that a receiver need not verify them, and a stack that forwards them can complete the checksum.

use dev::Framing;
use dev::layout::{self, Layout, TCP};
use pktbuf::{Checksum, Meta, PktBuf};
use wire::checksum;

/// Length of the header in bytes.
pub const LEN: usize = 12;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The decoded header of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveOffload {
    /// The state of the transport checksum.
    pub checksum: Checksum,
    /// Segment size of a super-segment, else 0.
    pub segment_size: u16,
    /// The super-segment consists of UDP datagrams, which must be separated before a stack gets them.
    pub datagrams: bool,
}

/// Decodes a header. `None`: it has a kind of segmentation that was not enabled.
pub fn decode(header: &[u8; LEN]) -> Option<ReceiveOffload> {
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let checksum = match header[0] {
        flags if flags & NEEDS_CSUM != 0 => Checksum::Partial { start: word(6), offset: word(8) },
        flags if flags & DATA_VALID != 0 => Checksum::Verified,
        _ => Checksum::None,
    };
    let size = word(4);
    let (segment_size, datagrams) = match header[1] & !GSO_ECN {
        GSO_NONE => (0, false),
        GSO_TCPV4 | GSO_TCPV6 => (size, false),
        GSO_UDP_L4 => (size, true),
        _ => return None,
    };
    Some(ReceiveOffload { checksum, segment_size, datagrams })
}

/// The header for a frame to be transmitted that is sent as it is. `None`: it has to be [prepared](encode).
#[inline]
pub fn describe(framing: Framing, frame: &[u8], meta: &Meta, offloads: bool) -> Option<[u8; LEN]> {
    let mut header = [0; LEN];
    match (meta.checksum, meta.segment_size) {
        // The common frame without offload work is not parsed.
        (Checksum::None | Checksum::Verified, 0) => {}
        (Checksum::Partial { start, offset }, 0) if offloads => {
            let layout = Layout::framed(framing, frame);
            leave_checksum_at(&mut header, layout, start, offset);
        }
        _ => return None,
    }
    Some(header)
}

/// Writes the header for a frame to be transmitted, from its meta data. With `offloads` the kernel completes partial
/// checksums and segments super-segments; without, the checksum is completed here. `None`: the frame is a super-segment
/// that cannot be described.
pub fn encode(framing: Framing, frame: &mut PktBuf, offloads: bool) -> Option<[u8; LEN]> {
    if let Some(header) = describe(framing, frame, frame.meta(), offloads) {
        return Some(header);
    }
    let mut header = [0; LEN];
    let segment_size = usize::from(frame.meta().segment_size);
    let layout = Layout::framed(framing, frame);
    let is_super = layout.is_some_and(|layout| segment_size != 0 && layout.end - layout.data > segment_size);
    if !offloads {
        layout::complete_checksum_framed(framing, frame);
        return (!is_super).then_some(header);
    }
    if is_super {
        let layout = layout.filter(|layout| layout.protocol == TCP)?;
        header[1] = if layout.v6 { GSO_TCPV6 } else { GSO_TCPV4 };
        header[2..4].copy_from_slice(&(layout.data as u16).to_ne_bytes());
        header[4..6].copy_from_slice(&(segment_size as u16).to_ne_bytes());
        if !matches!(frame.meta().checksum, Checksum::Partial { .. }) {
            prime_checksum(frame, &layout);
        }
        leave_checksum(&mut header, layout.l4, layout.checksum_field());
    } else if let Checksum::Partial { start, offset } = frame.meta().checksum {
        leave_checksum_at(&mut header, layout, start, offset);
    }
    Some(header)
}

/// The checksum of a frame that is not a super-segment. Meta data describe it where the protocol is unknown.
fn leave_checksum_at(header: &mut [u8; LEN], layout: Option<Layout>, start: u16, offset: u16) {
    let start = usize::from(start);
    let (start, field) = match layout {
        Some(layout) => (layout.l4, layout.checksum_field()),
        None => (start, start + usize::from(offset)),
    };
    leave_checksum(header, start, field);
}

fn leave_checksum(header: &mut [u8; LEN], start: usize, field: usize) {
    header[0] = NEEDS_CSUM;
    header[6..8].copy_from_slice(&(start as u16).to_ne_bytes());
    header[8..10].copy_from_slice(&((field - start) as u16).to_ne_bytes());
}

/// Puts the pseudo-header sum where a complete checksum was: the kernel expects it in every super-segment.
fn prime_checksum(frame: &mut PktBuf, layout: &Layout) {
    let (src, dst) = layout.addresses(frame);
    let len = (layout.end - layout.l4) as u32;
    let sum = checksum::pseudo_header(src, dst, layout.protocol, len).fold();
    let field = layout.checksum_field();
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_received_frames() {
        let plain = [0; LEN];
        let expected = ReceiveOffload { checksum: Checksum::None, segment_size: 0, datagrams: false };
        assert_eq!(decode(&plain), Some(expected));

        let mut tso = [0; LEN];
        tso[0] = NEEDS_CSUM;
        tso[1] = GSO_TCPV4 | GSO_ECN;
        tso[4..6].copy_from_slice(&1448u16.to_ne_bytes());
        tso[6..8].copy_from_slice(&34u16.to_ne_bytes());
        tso[8..10].copy_from_slice(&16u16.to_ne_bytes());
        let open = Checksum::Partial { start: 34, offset: 16 };
        let expected = ReceiveOffload { checksum: open, segment_size: 1448, datagrams: false };
        assert_eq!(decode(&tso), Some(expected));

        let mut checked = plain;
        checked[0] = DATA_VALID;
        assert_eq!(decode(&checked).map(|received| received.checksum), Some(Checksum::Verified));

        let mut uso = tso;
        uso[1] = GSO_UDP_L4;
        assert!(decode(&uso).is_some_and(|received| received.datagrams));

        let mut unknown = tso;
        unknown[1] = 3;
        assert_eq!(decode(&unknown), None);
    }

    #[test]
    fn a_frame_without_work_has_an_empty_header() {
        let mut frame = PktBuf::from_slice(&[0; 60]).expect("a buffer");
        assert_eq!(encode(Framing::Ethernet, &mut frame, true), Some([0; LEN]));
    }

    #[test]
    fn a_partial_checksum_of_an_unknown_protocol_is_described_by_the_meta_data() {
        let mut frame = PktBuf::from_slice(&[0; 60]).expect("a buffer");
        frame.meta_mut().checksum = Checksum::Partial { start: 34, offset: 2 };
        let header = encode(Framing::Ethernet, &mut frame, true).expect("a header");
        assert_eq!(header[0], NEEDS_CSUM);
        assert_eq!(header[6..10], [34u16.to_ne_bytes(), 2u16.to_ne_bytes()].concat());
    }
}
