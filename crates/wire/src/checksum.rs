//! The Internet checksum (RFC 1071): sums that can be split, joined and patched.
//!
//! The one's-complement sum does not depend on byte order, so bytes are added as the machine reads them, four at a
//! time, into 64-bit lanes: no carry has to be looked at before 16 GiB, and a compiler turns the loop into vector
//! instructions. Byte order is put right once, in [`Sum::finish`]. Since 65535 divides 2^64 - 1, the 64-bit sum with
//! its carry wrapped round is congruent to the 16-bit sum, and a rotation by eight bits is the byte swap that an odd
//! offset asks for.

use core::net::IpAddr;
use core::ops::{Add, AddAssign};

/// From this many bytes on, lanes are worth their set-up.
const LANES_FROM: usize = 128;

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

    /// The sum of two runs of bytes, of which the first has an even length.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "`Add` is implemented too; this form is const")]
    pub const fn add(self, other: Self) -> Self {
        let (sum, carry) = self.0.overflowing_add(other.0);
        Self(sum + carry as u64)
    }

    /// Adds the sum of bytes that begin `offset` bytes after the start of the covered range. Only the parity of
    /// `offset` counts: at an odd offset every byte stands in the other half of its 16-bit word.
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

    /// The sum folded to 16 bits, in host order, not complemented: what a device wants in the field when it is to
    /// finish the checksum itself.
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
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        // At most 0x1_0001 before this fold, so it leaves at most 0xffff.
        ((sum & 0xffff) + (sum >> 16)) as u16
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

/// The sum of `bytes`, which stand at an even offset of the covered range.
#[inline]
pub fn sum(bytes: &[u8]) -> Sum {
    if bytes.len() < LANES_FROM { sum_short(bytes) } else { sum_long(bytes) }
}

#[inline(never)]
fn sum_long(bytes: &[u8]) -> Sum {
    sum_kernel(bytes)
}

/// The body of [`sum`], for callers that compile it again with more instructions enabled (`#[target_feature]`).
#[inline(always)]
pub fn sum_kernel(bytes: &[u8]) -> Sum {
    if bytes.len() < LANES_FROM {
        return sum_short(bytes);
    }
    let (blocks, rest) = bytes.as_chunks::<64>();
    // Lower and upper halves of eight 64-bit words: masking and shifting is cheaper than widening on every vector unit.
    let mut low = [0u64; 8];
    let mut high = [0u64; 8];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for ((low, high), word) in low.iter_mut().zip(&mut high).zip(words) {
            let word = u64::from_ne_bytes(*word);
            *low = low.wrapping_add(word & 0xffff_ffff);
            *high = high.wrapping_add(word >> 32);
        }
    }
    let total = low.iter().zip(&high).fold(0u64, |total, (low, high)| total.wrapping_add(*low).wrapping_add(*high));
    Sum(total).add(sum_short(rest))
}

/// The sum without lanes: headers, and the tail of [`sum_kernel`].
#[inline(always)]
fn sum_short(bytes: &[u8]) -> Sum {
    // Two chains of additions, because one waits for its own carry.
    let (pairs, tail) = bytes.as_chunks::<16>();
    let (mut total, mut odd) = (Sum(0), Sum(0));
    for pair in pairs {
        let pair = u128::from_ne_bytes(*pair);
        total = total.add(Sum(pair as u64));
        odd = odd.add(Sum((pair >> 64) as u64));
    }
    let tail = match tail.split_first_chunk::<8>() {
        Some((word, tail)) => {
            total = total.add(Sum(u64::from_ne_bytes(*word)));
            tail
        }
        None => tail,
    };
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
/// transport header with its payload (RFC 9293 section 3.1, RFC 8200 section 8.1). Addresses of different families
/// cannot meet in one packet; each is then summed as it is.
#[inline]
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

/// The checksum after an aligned, covered 32-bit field changed from `old` to `new` (RFC 1624 equation 3).
#[inline]
#[must_use]
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    Sum::zero().add_u16(!checksum).add_u32(!old).add_u32(new).finish()
}
