//! Offloads of devices: segments merged to super-segments, super-segments cut again.

use arbitrary::{Result, Unstructured};
use dev::coalesce::coalesce;
use dev::layout::{self, Layout};
use dev::segment::Splitter;
use pktbuf::PktBuf;
use testbed::frames::{Checksum, Segment, TcpOptions};
use wire::tcp::TcpFlags;

use crate::frame;

/// Most frames of an input: one batch.
const MOST: usize = 32;

/// Reads `data` as a batch of frames, most of them segments of one connection in sequence; merges them, and cuts the
/// result. This must neither lose nor add data, and the pieces must have correct checksums.
pub fn offloads(data: &[u8]) {
    let mut batch = frames(&mut Unstructured::new(data)).unwrap_or_default();
    let (before, count) = (data_lens(&batch), batch.len());
    let merged = coalesce(&mut batch, 0);
    assert_eq!(batch.len() + merged, count, "frames are merged or stay");
    assert_eq!(data_lens(&batch), before, "text was lost or made by merging");
    for mut frame in batch {
        if frame.meta().segment_size == 0 {
            continue;
        }
        let whole = data_len(&frame);
        layout::complete_checksum(&mut frame);
        let Ok(mut splitter) = Splitter::new(frame) else { panic!("a merged frame cannot be cut") };
        let (mut cut, pieces) = (0, splitter.remaining());
        for _ in 0..pieces {
            let Some(Ok(piece)) = splitter.next_piece() else { panic!("a piece is missing") };
            let Some(layout) = Layout::of(&piece) else { panic!("a piece is no frame") };
            assert!(layout.checksum_is_good(&piece), "a piece's checksum is wrong");
            cut += data_len(&piece);
        }
        assert!(splitter.next_piece().is_none() && cut == whole, "{cut} bytes of {whole} in {pieces} pieces");
    }
}

fn frames(u: &mut Unstructured<'_>) -> Result<Vec<PktBuf>> {
    let mut next: u32 = u.arbitrary()?;
    let length = usize::from(u.arbitrary::<u16>()?) % 1460;
    let mut batch = Vec::new();
    while !u.is_empty() && batch.len() < MOST {
        let frame = match u.int_in_range(0..=9)? {
            0 => frame::any(u, &[])?,
            1 => u.bytes(u.len().min(60))?.to_vec(),
            _ => {
                let len = if u.ratio(1, 8)? { usize::from(u.arbitrary::<u8>()?) } else { length };
                let frame = segment(u, next, len)?;
                next = next.wrapping_add(len as u32);
                frame
            }
        };
        look(&frame);
        batch.extend(PktBuf::from_slice(&frame));
    }
    Ok(batch)
}

/// The functions that devices call for every frame.
fn look(frame: &[u8]) {
    let Some(layout) = Layout::of(frame) else { return };
    let tuple = layout.receiver_tuple(frame);
    assert_eq!((tuple.remote_addr, tuple.local_addr), layout.addresses(frame));
    if let Some(mut frame) = PktBuf::from_slice(frame) {
        let _ = layout.checksum_is_good(&frame);
        frame.meta_mut().segment_size = 7;
        if let Ok(mut splitter) = Splitter::new(frame) {
            while splitter.next_piece().is_some() {}
        }
    }
}

/// A segment of the connection; sometimes with other flags, another window, a number out of sequence or a bad checksum.
fn segment(u: &mut Unstructured<'_>, seq: u32, len: usize) -> Result<Vec<u8>> {
    let seq = if u.ratio(1, 16)? { u.arbitrary()? } else { seq };
    let flags = if u.ratio(1, 8)? { u.arbitrary::<u8>()?.into() } else { TcpFlags::ACK.0 };
    let options = if u.ratio(1, 8)? { usize::from(u.int_in_range(0u8..=10)?) * 4 } else { 12 };
    let window = if u.ratio(1, 16)? { u.arbitrary()? } else { 0x100 };
    let data = vec![seq as u8; len];
    let mut segment = Segment { data: &data, ..Segment::ack((2000, 80), seq, 0) };
    (segment.flags, segment.window) = (TcpFlags(flags), window);
    segment.options = TcpOptions::new(&[0; 40][..options]);
    if u.ratio(1, 32)? {
        segment.checksum = Checksum::OffBy(1);
    }
    Ok(segment.frame())
}

/// Bytes of TCP data in a frame.
fn data_len(frame: &[u8]) -> usize {
    Layout::of(frame).filter(|layout| layout.protocol == layout::TCP).map_or(0, |layout| layout.end - layout.data)
}

fn data_lens(batch: &[PktBuf]) -> usize {
    batch.iter().map(|frame| data_len(frame)).sum()
}
