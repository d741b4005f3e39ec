//! Changes a frame's tag as forwarding has decided.

use bridge::TagAction;
use pktbuf::{Checksum, PktBuf};
use wire::ethernet::{self, TAG_LEN};

/// Headroom of a frame that is copied because it had none for a tag.
const HEADROOM: usize = 64;

/// The frame with its outgoing tag; `None`: there is no buffer for a copy with room for a tag.
pub(crate) fn retag(mut frame: PktBuf, action: TagAction) -> Option<PktBuf> {
    match action {
        TagAction::Keep => {}
        TagAction::Push(tag) => {
            if frame.headroom() < TAG_LEN {
                frame = with_headroom(&frame)?;
            }
            frame.push_front(TAG_LEN);
            ethernet::insert_tag(&mut frame, tag);
            move_checksum(&mut frame, |start| start.saturating_add(TAG_LEN as u16));
        }
        TagAction::Pop => {
            if ethernet::remove_tag(&mut frame) {
                frame.pull_front(TAG_LEN);
                move_checksum(&mut frame, |start| start.saturating_sub(TAG_LEN as u16));
            }
        }
        TagAction::Replace(tag) => ethernet::replace_tag(&mut frame, tag),
    }
    Some(frame)
}

fn with_headroom(frame: &PktBuf) -> Option<PktBuf> {
    let mut copy = PktBuf::alloc_with_headroom(HEADROOM, frame.len())?;
    copy.append(frame.len()).copy_from_slice(frame);
    let mut meta = *frame.meta();
    // Relative to the headroom of the other buffer.
    meta.l3 = 0;
    *copy.meta_mut() = meta;
    Some(copy)
}

/// The position of the incomplete checksum moves with the tag.
fn move_checksum(frame: &mut PktBuf, to: impl Fn(u16) -> u16) {
    if let Checksum::Partial { start, offset } = frame.meta().checksum {
        frame.meta_mut().checksum = Checksum::Partial { start: to(start), offset };
    }
}

#[cfg(test)]
mod tests {
    use wire::ethernet::VlanTag;

    use super::*;

    const TAG: VlanTag = VlanTag { priority: 0, drop_eligible: false, id: 10 };

    fn frame(headroom: usize) -> PktBuf {
        let mut frame = PktBuf::alloc_with_headroom(headroom, 64).unwrap();
        (0..64).zip(frame.append(64)).for_each(|(n, byte)| *byte = n);
        frame.meta_mut().checksum = Checksum::Partial { start: 34, offset: 16 };
        frame
    }

    #[test]
    fn a_tag_is_pushed_and_popped_with_and_without_headroom() {
        for headroom in [0, 3, 4, 100] {
            let tagged = retag(frame(headroom), TagAction::Push(TAG)).unwrap();
            assert_eq!((tagged.len(), ethernet::vlan_tag(&tagged)), (68, Some(TAG)));
            assert_eq!(tagged.meta().checksum, Checksum::Partial { start: 38, offset: 16 });
            let plain = retag(tagged, TagAction::Pop).unwrap();
            assert_eq!((&plain[..], plain.meta().checksum), (&frame(0)[..], frame(0).meta().checksum));
        }
    }
}
