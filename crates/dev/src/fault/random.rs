//! The random numbers of fault injection: a PCG generator (O'Neill, "PCG: A Family of Simple Fast Space-Efficient
//! Statistically Good Algorithms for Random Number Generation", 2014; the XSH-RR 64/32 member).
//!
//! Implemented here so that a seed gives the same faults for ever, even if a library changes. Every kind of fault of
//! every path draws from its own stream: adding `reorder` to a plan does not change which frames `loss` hits.

use super::plan::Ppm;

/// A stream of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Pcg {
    state: u64,
    increment: u64,
}

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

impl Pcg {
    /// Stream number `stream` of the family of `seed`.
    pub fn new(seed: u64, stream: u64) -> Pcg {
        let mut rng = Pcg { state: 0, increment: stream << 1 | 1 };
        rng.next_u32();
        rng.state = rng.state.wrapping_add(seed);
        rng.next_u32();
        rng
    }

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
        let shifted = ((old >> 18 ^ old) >> 27) as u32;
        shifted.rotate_right((old >> 59) as u32)
    }

    /// A number in `0..bound`; 0 when `bound` is 0. The bias is below `bound` / 2^32.
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(bound)) >> 32) as u32
    }

    /// A number in `0..=most` nanoseconds, in steps fine enough for any delay below an hour.
    pub fn up_to(&mut self, most: u64) -> u64 {
        let wide = u64::from(self.next_u32()) << 32 | u64::from(self.next_u32());
        ((u128::from(wide) * (u128::from(most) + 1)) >> 64) as u64
    }

    /// True with the given probability. Draws nothing when that is zero.
    pub fn chance(&mut self, probability: Ppm) -> bool {
        probability.0 != 0 && self.below(1_000_000) < probability.0
    }
}
