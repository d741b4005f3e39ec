//! The Internet checksum (RFC 1071) over payloads, with the widest vectors that the processor has.
//!
//! A compiler turns the portable kernel of `wire` into eight instructions for 32 bytes and uses at most 256 bits;
//! hand-written code needs three, and with AVX-512 three for 64 bytes (`sum/x86.rs`). The choice is made at run time.
//! Summing while copying works in pieces that fit the first-level cache: for long data a fused loop was measured to be
//! slower than a copy followed by a sum from the cache.

use wire::checksum::{Sum, sum_kernel};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

/// Below this many bytes the dispatch and the reduction of the lanes cost more than wide vectors gain.
const SHORT: usize = 128;

/// Piece of a copy: its source is summed while it is still in the first-level cache. Even, so that pieces join without a
/// byte swap.
const PIECE: usize = 8 * 1024;

/// The one's-complement sum of `bytes` as 16-bit words in network order, an odd last byte padded with zero.
#[inline]
pub fn sum(bytes: &[u8]) -> Sum {
    if bytes.len() < SHORT { sum_kernel(bytes) } else { sum_long(bytes) }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn sum_long(bytes: &[u8]) -> Sum {
    // The macro caches its result in an atomic.
    if std::arch::is_x86_feature_detected!("avx512bw") {
        // SAFETY: the processor has AVX-512F and BW (the second implies the first).
        return unsafe { x86::sum_avx512(bytes) };
    }
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { x86::sum_avx2(bytes) };
    }
    sum_kernel(bytes)
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn sum_long(bytes: &[u8]) -> Sum {
    sum_kernel(bytes)
}

/// Copies `src` to `dst` and returns the sum of the bytes, as [`sum`] would.
///
/// # Panics
/// If the lengths differ.
pub fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> Sum {
    assert!(dst.len() == src.len(), "a copy between slices of different lengths");
    if src.len() < SHORT { copy_short(dst, src) } else { copy_long(dst, src) }
}

/// [`copy_and_sum`] to two places.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_twice_and_sum(first: &mut [u8], second: &mut [u8], src: &[u8]) -> Sum {
    assert!(first.len() == src.len() && second.len() == src.len(), "a copy between slices of different lengths");
    if src.len() >= SHORT {
        first.copy_from_slice(src);
        return copy_long(second, src);
    }
    let ((one, one_tail), (two, two_tail)) = (first.as_chunks_mut::<32>(), second.as_chunks_mut::<32>());
    let (from, from_tail) = src.as_chunks::<32>();
    let (mut total, mut odd) = (Sum::zero(), Sum::zero());
    for ((one, two), from) in one.iter_mut().zip(two).zip(from) {
        (*one, *two) = (*from, *from);
        let ([a, b, c, d], _) = from.as_chunks::<8>() else { continue };
        total = total.add(word(a)).add(word(c));
        odd = odd.add(word(b)).add(word(d));
    }
    if !from_tail.is_empty() {
        one_tail.copy_from_slice(from_tail);
        two_tail.copy_from_slice(from_tail);
        total = total.add(sum_kernel(from_tail));
    }
    total.add(odd)
}

/// Adds each block while it is copied: a request or an answer is too short to pay for two loops and a call of `memcpy`.
#[inline(always)]
fn copy_short(dst: &mut [u8], src: &[u8]) -> Sum {
    let ((to, to_tail), (from, from_tail)) = (dst.as_chunks_mut::<32>(), src.as_chunks::<32>());
    let (mut total, mut odd) = (Sum::zero(), Sum::zero());
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
        let ([a, b, c, d], _) = from.as_chunks::<8>() else { continue };
        total = total.add(word(a)).add(word(c));
        odd = odd.add(word(b)).add(word(d));
    }
    if !from_tail.is_empty() {
        to_tail.copy_from_slice(from_tail);
        total = total.add(sum_kernel(from_tail));
    }
    total.add(odd)
}

#[inline(always)]
fn word(bytes: &[u8; 8]) -> Sum {
    Sum::zero().add_u64(u64::from_be_bytes(*bytes))
}

/// Not inlined: its registers would be saved for a short copy as well.
///
/// The source is summed, which the copy has brought into the first-level cache. The copy itself is still in the store buffer,
/// and a load that crosses two stores in there waits until both have left it.
#[inline(never)]
fn copy_long(dst: &mut [u8], src: &[u8]) -> Sum {
    if src.len() <= PIECE {
        dst.copy_from_slice(src);
        return sum(src);
    }
    let mut total = Sum::zero();
    for (to, from) in dst.chunks_mut(PIECE).zip(src.chunks(PIECE)) {
        to.copy_from_slice(from);
        total = total.add(sum(from));
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071 section 1, word by word, with the carry folded at every step.
    fn naive(bytes: &[u8]) -> u16 {
        let mut acc = 0u32;
        for pair in bytes.chunks(2) {
            acc += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            acc = (acc & 0xFFFF) + (acc >> 16);
        }
        !(acc as u16)
    }

    fn bytes(n: usize) -> Vec<u8> {
        let mut x = 0x9E37_79B9_7F4A_7C15_u64;
        (0..n)
            .map(|_| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (x >> 56) as u8
            })
            .collect()
    }

    const LONGEST: usize = if cfg!(miri) { 140 } else { 3000 };

    #[test]
    fn agrees_with_the_definition_at_every_length_and_offset() {
        let all = bytes(LONGEST + 3);
        let mut copy = vec![0; LONGEST];
        for offset in 0..3 {
            for len in 0..=LONGEST {
                let part = &all[offset..offset + len];
                let want = naive(part);
                assert_eq!(sum(part).finish(), want, "sum of {len} bytes at offset {offset}");
                let copied = copy_and_sum(&mut copy[..len], part);
                assert_eq!(copied.finish(), want, "copy of {len} bytes at offset {offset}");
                assert_eq!(&copy[..len], part);
                let (mut one, mut two) = (vec![0; len], vec![0; len]);
                assert_eq!(copy_twice_and_sum(&mut one, &mut two, part).finish(), want, "two copies of {len} bytes");
                assert!(one == part && two == part, "{len} bytes at offset {offset}");
            }
        }
    }

    /// Each instance that this processor has, not only the widest, against the definition.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn every_instance_agrees_with_the_definition() {
        let all = bytes(LONGEST + 1);
        for len in (0..=LONGEST).step_by(if cfg!(debug_assertions) { 7 } else { 1 }) {
            let part = &all[1..1 + len];
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: just detected.
                assert_eq!(unsafe { x86::sum_avx2(part) }.finish(), naive(part), "AVX2, {len} bytes");
            }
            if std::arch::is_x86_feature_detected!("avx512bw") {
                // SAFETY: just detected.
                assert_eq!(unsafe { x86::sum_avx512(part) }.finish(), naive(part), "AVX-512, {len} bytes");
            }
        }
    }

    #[test]
    fn long_runs_do_not_overflow() {
        let len = if cfg!(miri) { 20_001 } else { 200_001 };
        for value in [0x00, 0xFF, 0x01, 0x80, 0x7F] {
            let run = vec![value; len];
            assert_eq!(sum(&run).finish(), naive(&run));
            assert_eq!(copy_and_sum(&mut vec![0; len], &run).finish(), naive(&run));
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: just detected.
                assert_eq!(unsafe { x86::sum_avx2(&run) }.finish(), naive(&run), "AVX2, {value}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "different lengths")]
    fn copying_between_different_lengths_panics() {
        let _ = copy_and_sum(&mut [0; 3], &[0; 4]);
    }
}
