//! Modifications of a frame's bytes by rules. Plain functions on one frame; each leaves the frame so that its receiver
//! verifies it like a frame from a wire.

use pktbuf::{Checksum, PktBuf};
use wire::{Framing, Headers, checksum};

use super::random::Pcg;
use crate::layout::{self, Layout};

/// How often [`swap_words`] looks for two different words before it treats the data as uniform.
const FORGE_TRIES: usize = 32;
/// The most bytes that [`pad`] appends to a frame: Ethernet's padding of an empty packet.
const MOST_PADDING: usize = 46;

/// Completes the frame's checksum as on a wire, and makes the receiver verify it.
fn unverify(framing: Framing, frame: &mut PktBuf) {
    layout::complete_checksum_framed(framing, frame);
    let meta = frame.meta_mut();
    meta.checksum = Checksum::None;
    meta.flow_hash = None;
}

/// Bytes behind the link header of an IP packet; none of anything else. Link headers and ARP are excluded, because they
/// rely on the link's frame check sequence: Ethernet delivers no frame in which it is wrong.
fn behind_link_header(framing: Framing, frame: &PktBuf) -> usize {
    let headers = Headers::of(framing, frame);
    let is_ip = (headers.is_v4() || headers.is_v6()) && !headers.is_tagged();
    if is_ip { frame.len() - framing.header_len() } else { 0 }
}

/// Flips `bits` different bits behind the link header. False: there is nothing to flip.
pub fn corrupt(framing: Framing, frame: &mut PktBuf, rng: &mut Pcg, bits: u32) -> bool {
    unverify(framing, frame);
    let all = behind_link_header(framing, frame) as u32 * 8;
    let mut flipped: Vec<u32> = Vec::with_capacity(bits as usize);
    while flipped.len() < bits.min(all) as usize {
        let bit = rng.below(all);
        // Flipping a bit twice would leave the frame as it was.
        if !flipped.contains(&bit) {
            frame[framing.header_len() + bit as usize / 8] ^= 1 << (bit % 8);
            flipped.push(bit);
        }
    }
    all > 0
}

/// Replaces `bytes` bytes in a row behind the link header by random ones that differ. False: there are none.
pub fn scramble(framing: Framing, frame: &mut PktBuf, rng: &mut Pcg, bytes: u32) -> bool {
    unverify(framing, frame);
    let all = behind_link_header(framing, frame) as u32;
    let bytes = bytes.min(all);
    if bytes == 0 {
        return false;
    }
    let start = framing.header_len() + rng.below(all - bytes + 1) as usize;
    for byte in &mut frame[start..start + bytes as usize] {
        *byte ^= 1 + rng.below(255) as u8;
    }
    true
}

/// Swaps two different 16-bit words of the data, which the Internet checksum does not detect. False: the frame has no
/// data, or all its words are equal.
pub fn swap_words(framing: Framing, frame: &mut PktBuf, rng: &mut Pcg) -> bool {
    let Some(layout) = Layout::framed(framing, frame) else { return false };
    unverify(framing, frame);
    // Words as the checksum counts them, from the transport header on.
    let first = (layout.data - layout.l4).div_ceil(2);
    let words = ((layout.end - layout.l4) / 2).saturating_sub(first) as u32;
    if words < 2 {
        return false;
    }
    for _ in 0..FORGE_TRIES {
        let [a, b] = [0; 2].map(|_: u32| layout.l4 + 2 * (first + rng.below(words) as usize));
        if frame[a..a + 2] != frame[b..b + 2] {
            (frame[a], frame[b]) = (frame[b], frame[a]);
            (frame[a + 1], frame[b + 1]) = (frame[b + 1], frame[a + 1]);
            return true;
        }
    }
    false
}

/// Truncates the frame anywhere after its first byte.
pub fn truncate(framing: Framing, frame: &mut PktBuf, rng: &mut Pcg) {
    unverify(framing, frame);
    let len = 1 + rng.below(frame.len().saturating_sub(1) as u32);
    frame.truncate(len as usize);
}

/// Appends random bytes to the frame, up to a length of `longest`. False: there was no room.
pub fn pad(framing: Framing, frame: &mut PktBuf, rng: &mut Pcg, longest: usize) -> bool {
    unverify(framing, frame);
    let room = longest.saturating_sub(frame.len()).min(MOST_PADDING).min(frame.tailroom());
    let len = (1 + rng.below(MOST_PADDING as u32) as usize).min(room);
    let mut padding = [0; MOST_PADDING];
    padding.iter_mut().for_each(|byte| *byte = rng.next_u32() as u8);
    len > 0 && frame.extend_from_slice(&padding[..len])
}

/// Marks the packet CE, if it is ECN-capable (RFC 3168 section 5: ECT(0) or ECT(1) becomes CE). False: it is not.
pub fn mark(framing: Framing, frame: &mut PktBuf) -> bool {
    let Some(Layout { l3, l4, v6, .. }) = Layout::framed(framing, frame) else { return false };
    // IPv6 has the class in the low half of the first byte and the high half of the second.
    let shift = if v6 { 4 } else { 0 };
    let field = (frame[l3 + 1] >> shift) & 0b11;
    if field == 0b00 || field == 0b11 {
        return false;
    }
    frame[l3 + 1] |= 0b11 << shift;
    if !v6 {
        frame[l3 + 10..l3 + 12].fill(0);
        let sum = checksum::sum(&frame[l3..l4]).finish();
        frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    }
    true
}
