//! How `tcp_rmem` counts: octets of memory, of which a share is for text.

/// The part of a receive buffer's memory that is for text, as `tcp_adv_win_scale` of Linux states it: for n above 0 all but
/// the part 1/2^n, else the part 1/2^-n. From -31 to 31; what lies outside counts as the nearest of these.
///
/// Memory is what the knob `tcp_rmem` sets and what `SO_RCVBUF` answers; [`super::BufferSizes`] are octets of text, as
/// are the sizes that connections ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextShare(pub i8);

impl TextShare {
    /// All of it.
    pub const ALL: TextShare = TextShare(0);
    /// A half, as Linux assumes.
    pub const HALF: TextShare = TextShare(1);

    /// Octets of text, at least 1, for which there is room in `memory` octets.
    pub const fn text(self, memory: u32) -> u32 {
        let text = match self.bounded() {
            overhead @ 1.. => memory - (memory >> overhead),
            share => memory >> -share,
        };
        if text == 0 { 1 } else { text }
    }

    /// The memory in octets of which `text` octets are the share: [`TextShare::text`] of it is `text` again, unless it were
    /// more than 2^32 - 1, which is the most. Of two such amounts it is the larger, which is the rounder one.
    pub const fn memory(self, text: u32) -> u32 {
        let text = text as u64;
        let memory = match self.bounded() {
            overhead @ 1.. => text + text / ((1 << overhead) - 1),
            share => text << -share,
        };
        if memory > u32::MAX as u64 { u32::MAX } else { memory as u32 }
    }

    const fn bounded(self) -> i8 {
        match self.0 {
            ..-31 => -31,
            32.. => 31,
            share => share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_linux_s() {
        for (scale, text) in [(0, 6000), (1, 3000), (2, 4500), (-1, 3000), (-2, 1500), (31, 6000), (-31, 1)] {
            assert_eq!(TextShare(scale).text(6000), text, "{scale}");
        }
        assert_eq!((TextShare(i8::MIN), TextShare(i8::MAX)).0.text(u32::MAX), 1);
    }

    #[test]
    fn memory_has_room_for_its_text_and_round_numbers_come_back() {
        for scale in -31..=31 {
            let share = TextShare(scale);
            for text in [1, 2, 3, 1000, 65_535, 131_072, 3 << 20] {
                let memory = share.memory(text);
                assert!(memory == u32::MAX || share.text(memory) == text, "{scale} {text}");
            }
        }
        for scale in -12..=12 {
            let share = TextShare(scale);
            for memory in [4096, 131_072, 6 << 20, 15 << 20] {
                assert_eq!(share.memory(share.text(memory)), memory, "{scale}");
            }
        }
    }
}
