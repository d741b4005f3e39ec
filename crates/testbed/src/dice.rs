//! A small generator of random numbers, the same in every run and with every version of a library.

/// A xorshift generator (Marsaglia 2003). The seed must not be 0.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `n`, which must not be 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    /// True about `n` times in a thousand.
    pub fn chance(&mut self, n: usize) -> bool {
        self.below(1000) < n
    }
}
