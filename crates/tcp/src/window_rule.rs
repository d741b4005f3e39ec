//! The part of the receive buffer's free space that is announced: three rules against the receiver's silly-window
//! syndrome (RFC 9293 section 3.8.6.2.2). Profiles choose among them, because they are visible in every
//! acknowledgement.
//!
//! Pure arithmetic for `receive_window`, which calls it at each segment of data and at each read. The result may be
//! less than what was advertised to the peer; the caller ensures that the edge never moves back.

/// How the receive window is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowRule {
    /// The edge stays until it can move by a segment, or by half of the buffer (RFC 9293 section 3.8.6.2.2).
    Rfc,
    /// As Linux: all free space with scaled windows, multiples of the peer's segment with unscaled ones, the first
    /// window included; zero if less than half is free, and less than a segment or a sixteenth of the buffer. Where
    /// Linux keeps the window because no further segment would fit, it still opens to more than half of the buffer: a
    /// peer with larger segments (Linux sends none) would wait for ever.
    #[default]
    Linux,
    /// As FreeBSD: all free space; zero if that is less than a segment and less than a quarter of the buffer.
    FreeBsd,
}

/// The inputs of the choice, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowInputs {
    /// Free space, limited by the window field and by the user.
    pub(crate) free: u32,
    /// Size of the buffer.
    pub(crate) limit: u32,
    /// The user's limit.
    pub(crate) clamp: u32,
    /// Still open beyond RCV.NXT.
    pub(crate) open: u32,
    /// The window sent last.
    pub(crate) offered: u32,
    /// The largest segment of the peer.
    pub(crate) segment: u32,
    /// Our window shift.
    pub(crate) shift: u8,
}

impl WindowRule {
    /// The window to announce.
    #[inline]
    pub(crate) fn choose(self, room: WindowInputs) -> u32 {
        let WindowInputs { free, limit, open, segment, .. } = room;
        match self {
            WindowRule::Linux if room.shift != 0 && free >= limit / 2 => free,
            WindowRule::Linux => linux(room),
            // Rounded up to a unit, more may be open than intended.
            WindowRule::Rfc if free.saturating_sub(open) + ((1 << room.shift) - 1) < segment.min(limit / 2) => open,
            WindowRule::FreeBsd if free < segment.min(limit / 4) => 0,
            WindowRule::Rfc | WindowRule::FreeBsd => free,
        }
    }

    /// The window of a SYN, for `space` bytes in the buffer and data in segments of `mss`.
    pub(crate) fn first(self, space: u32, mss: u16) -> u32 {
        match self {
            WindowRule::Linux if space > u32::from(mss) && mss > 0 => space - space % u32::from(mss),
            _ => space,
        }
    }
}

fn linux(room: WindowInputs) -> u32 {
    let WindowInputs { mut free, limit, clamp, offered, shift, .. } = room;
    let full = limit.min(clamp);
    let segment = room.segment.min(full).max(1);
    if free < full / 2 {
        // The window field would round it up.
        free = free >> shift << shift;
        if free < limit >> 4 || free < segment {
            return 0;
        }
    }
    if shift != 0 {
        free
    } else if offered.saturating_add(segment) <= free || offered > free {
        free - free % segment
    } else if offered < full / 2 && free > full / 2 {
        free
    } else {
        offered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(free: u32) -> WindowInputs {
        WindowInputs { free, limit: 65_536, clamp: 1 << 30, open: 0, offered: 64_000, segment: 1000, shift: 0 }
    }

    fn chosen(rule: WindowRule, frees: &[u32], shift: u8) -> Vec<u32> {
        frees.iter().map(|free| rule.choose(WindowInputs { shift, ..room(*free) })).collect()
    }

    #[test]
    fn linux_offers_whole_segments_unless_it_scales() {
        let frees = [65_535, 64_999, 64_000, 63_999, 20_500, 4_500, 4_000];
        // The first two are within a segment of the offered window.
        assert_eq!(chosen(WindowRule::Linux, &frees, 0), [65_000, 64_000, 64_000, 63_000, 20_000, 4_000, 0]);
        assert_eq!(chosen(WindowRule::Linux, &frees, 7), [65_535, 64_999, 64_000, 63_999, 20_480, 4_480, 0]);
        let tiny = WindowInputs { limit: 3000, free: 900, ..room(0) };
        assert_eq!(WindowRule::Linux.choose(tiny), 0, "less than a segment");
    }

    /// Less than half of the buffer was open to the peer; the user has read all.
    #[test]
    fn an_empty_buffer_is_offered_to_large_segments_too() {
        for segment in [1, 700, 1024, 2000, 3734, 5000, 8191, 65_000] {
            for offered in [0, 700, 3734, 4095] {
                let empty = WindowInputs { limit: 8192, free: 8192, offered, open: offered, segment, ..room(0) };
                let window = WindowRule::Linux.choose(empty);
                assert!(window > 8192 / 2, "segments of {segment}, {offered} offered before: {window}");
            }
        }
    }

    #[test]
    fn freebsd_offers_what_is_free_and_nothing_below_a_segment() {
        assert_eq!(chosen(WindowRule::FreeBsd, &[65_535, 20_500, 1000, 999], 0), [65_535, 20_500, 1000, 0]);
        assert_eq!(
            WindowRule::FreeBsd.choose(WindowInputs { limit: 2000, ..room(500) }),
            500,
            "a quarter of the buffer"
        );
    }

    #[test]
    fn the_rfc_has_the_edge_stay_until_it_moves_by_a_segment() {
        let rfc = |free, open| WindowRule::Rfc.choose(WindowInputs { open, ..room(free) });
        assert_eq!([rfc(64_999, 64_000), rfc(65_000, 64_000), rfc(10, 20)], [64_000, 65_000, 20]);
    }

    #[test]
    fn linux_begins_with_whole_segments() {
        let first = |mss| WindowRule::Linux.first(65_536, mss);
        assert_eq!([first(1460), first(1448), first(1440), first(0)], [64_240, 65_160, 64_800, 65_536]);
        assert_eq!(WindowRule::Linux.first(1000, 1460), 1000);
        assert_eq!(WindowRule::FreeBsd.first(65_536, 1460), 65_536);
    }
}
