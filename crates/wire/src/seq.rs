//! TCP sequence numbers: a circle of 2^32, compared by signed distance (RFC 9293 section 3.4).

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A sequence number. There is no total order on a circle, so it has no `Ord`: `a.lt(b)` means that `b` lies at most
/// 2^31 - 1 ahead of `a`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// `self` comes before `other`.
    #[inline]
    pub const fn lt(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// `self` is `other` or comes before it.
    #[inline]
    pub const fn le(self, other: Self) -> bool {
        self.distance(other) <= 0
    }

    /// `self` comes after `other`.
    #[inline]
    pub const fn gt(self, other: Self) -> bool {
        self.distance(other) > 0
    }

    /// `self` is `other` or comes after it.
    #[inline]
    pub const fn ge(self, other: Self) -> bool {
        self.distance(other) >= 0
    }

    /// The later of the two.
    #[inline]
    pub const fn max(self, other: Self) -> Self {
        if self.lt(other) { other } else { self }
    }

    /// The earlier of the two.
    #[inline]
    pub const fn min(self, other: Self) -> Self {
        if other.lt(self) { other } else { self }
    }

    /// Signed distance `self - other`, in bytes of sequence space.
    #[inline]
    const fn distance(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

impl Add<u32> for SeqNumber {
    type Output = Self;
    #[inline]
    fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }
}

impl AddAssign<u32> for SeqNumber {
    #[inline]
    fn add_assign(&mut self, n: u32) {
        *self = *self + n;
    }
}

impl Sub<u32> for SeqNumber {
    type Output = Self;
    #[inline]
    fn sub(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n))
    }
}

impl SubAssign<u32> for SeqNumber {
    #[inline]
    fn sub_assign(&mut self, n: u32) {
        *self = *self - n;
    }
}

/// The signed distance from `other` to `self`.
impl Sub for SeqNumber {
    type Output = i32;
    #[inline]
    fn sub(self, other: Self) -> i32 {
        self.distance(other)
    }
}

impl fmt::Debug for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SeqNumber({})", self.0)
    }
}

impl fmt::Display for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::SeqNumber;

    #[test]
    fn order_survives_the_wrap() {
        let before = SeqNumber(u32::MAX - 1);
        let after = before + 4;
        assert_eq!(after, SeqNumber(2));
        assert!(before.lt(after) && before.le(after) && after.gt(before) && after.ge(before));
        assert!(before.le(before) && before.ge(before) && !before.lt(before) && !before.gt(before));
        assert_eq!(after - before, 4);
        assert_eq!(before - after, -4);
        assert_eq!(before.max(after), after);
        assert_eq!(before.min(after), before);
        assert_eq!(after - 4u32, before);
    }
}
