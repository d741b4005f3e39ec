//! Segmentation offload in software: one super-segment in, frames of at most one MSS of data out.
//!
//! Called by devices with another end that does not accept super-segments whole. The headers determine each piece: for
//! TCP the sequence number advances with the data, FIN and PSH stay with the last piece and CWR with the first (RFC
//! 3168 section 6.1.2); for UDP every piece is a datagram of its own; IPv4 pieces are whole datagrams with increasing
//! identification. Every piece carries complete IP and transport checksums.
//!
//! Pieces are made one at a time, so that a receiver with little room takes some now and the rest later, and no piece
//! is allocated before it is delivered.

use pktbuf::{Checksum, PktBuf};
use wire::Framing;
use wire::checksum::{self, Sum};

use crate::layout::{Layout, TCP, UDP};

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// The packet pool has reached its limit, so a piece was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoBuffer;

/// A super-segment being split.
pub struct Splitter {
    frame: PktBuf,
    layout: Layout,
    segment_size: usize,
    /// Offset of the first byte of data not yet delivered.
    next: usize,
    index: u16,
}

impl Splitter {
    /// Prepares to split `frame` into pieces of `frame.meta().segment_size` bytes of data. A frame that is not TCP or
    /// UDP, or has no segment size, is returned unchanged.
    pub fn new(frame: PktBuf) -> Result<Splitter, PktBuf> {
        Splitter::framed(Framing::Ethernet, frame)
    }

    /// As [`new`](Splitter::new), for a frame of this framing.
    pub fn framed(framing: Framing, frame: PktBuf) -> Result<Splitter, PktBuf> {
        let segment_size = usize::from(frame.meta().segment_size);
        match Layout::framed(framing, &frame) {
            Some(layout) if segment_size > 0 => {
                Ok(Splitter { next: layout.data, frame, layout, segment_size, index: 0 })
            }
            _ => Err(frame),
        }
    }

    /// How many pieces are still to come.
    pub fn remaining(&self) -> usize {
        let left = self.layout.end - self.next;
        // A super-segment without data is one piece, the first.
        left.div_ceil(self.segment_size).max(usize::from(self.index == 0))
    }

    /// The next piece. `Some(Err(NoBuffer))`: there was no buffer for it, the piece is lost and the next call continues
    /// after it. `None` after the last.
    pub fn next_piece(&mut self) -> Option<Result<PktBuf, NoBuffer>> {
        if self.remaining() == 0 {
            return None;
        }
        let from = self.next;
        let to = (from + self.segment_size).min(self.layout.end);
        let index = self.index;
        self.next = to;
        self.index += 1;
        let headers = self.layout.data;
        let Some(mut piece) = PktBuf::alloc(headers + to - from) else {
            return Some(Err(NoBuffer));
        };
        piece.append(headers).copy_from_slice(&self.frame[..headers]);
        let data = pktbuf::copy_and_sum(piece.append(to - from), &self.frame[from..to]);
        self.fix_ip(&mut piece, to - from, index);
        self.fix_transport(&mut piece, from - headers, to == self.layout.end, data);
        let meta = piece.meta_mut();
        meta.flow_hash = self.frame.meta().flow_hash;
        meta.queue = self.frame.meta().queue;
        meta.checksum = Checksum::None;
        meta.segment_size = 0;
        Some(Ok(piece))
    }

    fn fix_ip(&self, piece: &mut [u8], data_len: usize, index: u16) {
        let Layout { l3, l4, data, v6, .. } = self.layout;
        if v6 {
            let payload_len = (data - l4 + data_len) as u16;
            piece[l3 + 4..l3 + 6].copy_from_slice(&payload_len.to_be_bytes());
            return;
        }
        let total_len = (data - l3 + data_len) as u16;
        piece[l3 + 2..l3 + 4].copy_from_slice(&total_len.to_be_bytes());
        let ident = u16::from_be_bytes([piece[l3 + 4], piece[l3 + 5]]).wrapping_add(index);
        piece[l3 + 4..l3 + 6].copy_from_slice(&ident.to_be_bytes());
        piece[l3 + 10..l3 + 12].fill(0);
        let header = checksum::sum(&piece[l3..l4]).finish();
        piece[l3 + 10..l3 + 12].copy_from_slice(&header.to_be_bytes());
    }

    fn fix_transport(&self, piece: &mut [u8], data_offset: usize, last: bool, data_sum: Sum) {
        let Layout { l4, data, protocol, .. } = self.layout;
        let transport_len = piece.len() - l4;
        if protocol == TCP {
            let seq = u32::from_be_bytes([piece[l4 + 4], piece[l4 + 5], piece[l4 + 6], piece[l4 + 7]]);
            piece[l4 + 4..l4 + 8].copy_from_slice(&seq.wrapping_add(data_offset as u32).to_be_bytes());
            if !last {
                piece[l4 + 13] &= !(FIN | PSH);
            }
            if data_offset > 0 {
                piece[l4 + 13] &= !CWR;
            }
        } else {
            piece[l4 + 4..l4 + 6].copy_from_slice(&(transport_len as u16).to_be_bytes());
        }
        let field = self.layout.checksum_field();
        piece[field..field + 2].fill(0);
        let (src, dst) = self.layout.addresses(piece);
        // Header lengths are even (TCP: a multiple of 4, UDP: 8), so the data's sum is added without a byte swap.
        let sum = checksum::pseudo_header(src, dst, protocol, transport_len as u32)
            .add(checksum::sum(&piece[l4..data]))
            .add(data_sum);
        let checksum = if protocol == UDP { sum.finish_udp() } else { sum.finish() };
        piece[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}
