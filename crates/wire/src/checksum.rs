//! The Internet checksum (RFC 1071): sums that can be split, joined and patched.
//!
//! The one's-complement sum does not depend on byte order, so bytes are added in the machine's order: 32-bit words into
//! 64-bit sums, which need no carry before 16 GiB and allow vector instructions; short runs as 64-bit words with their
//! carry. Byte order is corrected once, in [`Sum::finish`]. Since 65535 divides 2^64 - 1, the 64-bit sum with
//! end-around carry is congruent to the 16-bit sum, and a rotation by eight bits is the byte swap for an odd offset.

use core::net::IpAddr;
use core::ops::{Add, AddAssign};

/// From this many bytes on, vector instructions are worth their set-up.
const VECTOR_FROM: usize = 128;

/// A partial one's-complement sum, in the machine's byte order, folded on demand.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Sum(u64);

impl Sum {
    /// The sum of no bytes.
    #[inline]
    pub const fn zero() -> Self {
        Self(0)
    }

    /// The sum of two runs of bytes; the first must have an even length.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "`Add` is implemented too; this form is const")]
    pub const fn add(self, other: Self) -> Self {
        let (sum, carry) = self.0.overflowing_add(other.0);
        Self(sum + carry as u64)
    }

    /// Adds the sum of bytes that begin `offset` bytes after the start of the covered range. Only the parity of
    /// `offset` matters: at an odd offset every byte is in the other half of its 16-bit word.
    #[inline]
    pub const fn add_at(self, other: Self, offset: usize) -> Self {
        self.add(Self(other.0.rotate_left((offset as u32 & 1) * 8)))
    }

    /// Adds one 16-bit field given in host order.
    #[inline]
    pub const fn add_u16(self, value: u16) -> Self {
        self.add(Self(value.to_be() as u64))
    }

    /// Adds one 32-bit field given in host order.
    #[inline]
    pub const fn add_u32(self, value: u32) -> Self {
        self.add(Self(value.to_be() as u64))
    }

    /// Adds four 16-bit fields given as one word in host order, the first in the highest bits.
    #[inline]
    pub const fn add_u64(self, value: u64) -> Self {
        self.add(Self(value.to_be()))
    }

    /// The sum folded to 16 bits, in host order, not complemented: the value of the field for a device that completes
    /// the checksum.
    #[inline]
    pub const fn fold(self) -> u16 {
        u16::from_be(self.folded())
    }

    /// The value for the checksum field, in host order: the complement of the folded sum.
    #[inline]
    pub const fn finish(self) -> u16 {
        !self.fold()
    }

    /// The value for a UDP checksum field: as [`finish`](Self::finish), but zero, which means "none", becomes 0xffff
    /// (RFC 768).
    #[inline]
    pub const fn finish_udp(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// Whether bytes that include their checksum field sum to all ones, that is, whether the checksum is right.
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.folded() == 0xffff
    }

    #[inline]
    const fn folded(self) -> u16 {
        // Adds both halves in both orders at once; the upper half of the sum includes the lower one's carry.
        let sum = (self.0.wrapping_add(self.0.rotate_left(32)) >> 32) as u32;
        (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
    }
}

impl Add for Sum {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Sum::add(self, other)
    }
}

impl AddAssign for Sum {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = Sum::add(*self, other);
    }
}

/// The sum of `bytes`, at an even offset of the covered range.
#[inline]
pub fn sum(bytes: &[u8]) -> Sum {
    if bytes.len() < VECTOR_FROM { sum_short(bytes) } else { sum_long(bytes) }
}

#[inline(never)]
fn sum_long(bytes: &[u8]) -> Sum {
    sum_kernel(bytes)
}

/// The body of [`sum`], for callers that compile it again with more instructions enabled (`#[target_feature]`).
#[inline(always)]
pub fn sum_kernel(bytes: &[u8]) -> Sum {
    if bytes.len() < VECTOR_FROM {
        return sum_short(bytes);
    }
    // A plain reduction, which the compiler vectorises on every target, unlike explicit lanes. Lower and upper halves
    // separately, because masking and shifting is cheaper than widening.
    let (words, tail) = bytes.as_chunks::<8>();
    let (mut low, mut high) = (0u64, 0u64);
    for word in words {
        let word = u64::from_ne_bytes(*word);
        low = low.wrapping_add(word & 0xffff_ffff);
        high = high.wrapping_add(word >> 32);
    }
    Sum(low).add(Sum(high)).add(sum_short(tail))
}

#[inline(always)]
fn word(bytes: &[u8; 8]) -> Sum {
    Sum(u64::from_ne_bytes(*bytes))
}

/// The sum without vector instructions: headers, and the tail of [`sum_kernel`].
#[inline(always)]
fn sum_short(bytes: &[u8]) -> Sum {
    // Two chains of additions, because each addition waits for the carry of the previous one.
    let (blocks, mut tail) = bytes.as_chunks::<32>();
    let (mut total, mut odd) = (Sum(0), Sum(0));
    for block in blocks {
        let ([a, b, c, d], _) = block.as_chunks::<8>() else { continue };
        total = total.add(word(a)).add(word(c));
        odd = odd.add(word(b)).add(word(d));
    }
    if tail.is_empty() {
        return total.add(odd);
    }
    if let Some((pair, rest)) = tail.split_first_chunk::<16>() {
        let pair = u128::from_ne_bytes(*pair);
        total = total.add(Sum(pair as u64));
        odd = odd.add(Sum((pair >> 64) as u64));
        tail = rest;
    }
    if let Some((one, rest)) = tail.split_first_chunk::<8>() {
        total = total.add(word(one));
        tail = rest;
    }
    if tail.is_empty() {
        return total.add(odd);
    }
    let (half, tail) = match tail.split_first_chunk::<4>() {
        Some((half, tail)) => (u32::from_ne_bytes(*half), tail),
        None => (0, tail),
    };
    let last = match *tail {
        [] => [0; 4],
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c, ..] => [a, b, c, 0],
    };
    total.add(odd).add(Sum(u64::from(half) + u64::from(u32::from_ne_bytes(last))))
}

/// The sum over the pseudo-header of TCP, UDP and ICMPv6: addresses, protocol and `len`, the length in bytes of the
/// transport header with its payload (RFC 9293 section 3.1, RFC 8200 section 8.1). Addresses of different families,
/// which cannot occur in one packet, are each summed unchanged.
// Without `always` the compiler calls it for IPv6 where the program around it grows: 4 % of an acknowledgement.
#[inline(always)]
pub fn pseudo_header(src: IpAddr, dst: IpAddr, protocol: u8, len: u32) -> Sum {
    addr(src).add(addr(dst)).add_u16(u16::from(protocol)).add_u32(len)
}

#[inline]
fn addr(addr: IpAddr) -> Sum {
    match addr {
        IpAddr::V4(a) => sum_short(&a.octets()),
        IpAddr::V6(a) => sum_short(&a.octets()),
    }
}

/// The checksum after a covered 16-bit field changed from `old` to `new` (RFC 1624 equation 3). All in host order.
#[inline]
#[must_use]
pub const fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    Sum::zero().add_u16(!checksum).add_u16(!old).add_u16(new).finish()
}
