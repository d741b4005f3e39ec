//! A CPU's private cache: its lines, and the choice of the line that it evicts.
//!
//! Sets of ways, first in first out within a set. The directory decides whether a line is in the cache; the tags only
//! determine the line to evict.

/// See the head of the file.
pub(crate) struct Cache {
    tags: Box<[u32]>,
    /// In each set, the way that is filled next.
    hands: Box<[u8]>,
    ways: usize,
}

const EMPTY: u32 = u32::MAX;

impl Cache {
    /// `sets` is a power of two; at most 255 ways.
    pub(crate) fn new(sets: usize, ways: usize) -> Cache {
        Cache { tags: vec![EMPTY; sets * ways].into(), hands: vec![0; sets].into(), ways }
    }

    /// Inserts a line; returns the evicted line.
    #[inline]
    pub(crate) fn fill(&mut self, line: usize) -> Option<usize> {
        // Physical addresses spread over the sets, but equal offsets of large blocks would not. The number is
        // multiplied (Knuth, volume 3, section 6.4), so that lines with and without memory spread alike.
        let set = (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) & (self.hands.len() - 1);
        let hand = &mut self.hands[set];
        let place = set * self.ways + usize::from(*hand);
        *hand = if usize::from(*hand) + 1 == self.ways { 0 } else { *hand + 1 };
        let old = std::mem::replace(&mut self.tags[place], line as u32);
        (old != EMPTY && old as usize != line).then_some(old as usize)
    }
}
