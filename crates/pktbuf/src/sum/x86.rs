//! The one's-complement sum in vector instructions of x86.
//!
//! A vector is read as 64-bit words whose lower and upper halves are added to two sums of 64-bit lanes: no carry is
//! lost before 16 GiB. Only `sum.rs` calls this, after checking the processor's features. What may never happen: a load
//! beyond the slice; the tail is left to the portable kernel (AVX2) or masked (AVX-512).

use std::arch::x86_64::*;

use wire::checksum::{Sum, sum_kernel};

/// The lower half of each 64-bit word.
const LOW: i64 = 0xffff_ffff;

/// For processors with AVX2.
#[target_feature(enable = "avx2")]
pub(super) fn sum_avx2(bytes: &[u8]) -> Sum {
    let (blocks, tail) = bytes.as_chunks::<64>();
    let low_half = _mm256_set1_epi64x(LOW);
    let (mut low, mut high) = ([_mm256_setzero_si256(); 2], [_mm256_setzero_si256(); 2]);
    for block in blocks {
        for (lane, part) in block.as_chunks::<32>().0.iter().enumerate() {
            // SAFETY: an unaligned load of the 32 bytes of `part`.
            let words = unsafe { _mm256_loadu_si256(part.as_ptr().cast()) };
            low[lane] = _mm256_add_epi64(low[lane], _mm256_and_si256(words, low_half));
            high[lane] = _mm256_add_epi64(high[lane], _mm256_srli_epi64::<32>(words));
        }
    }
    let total = _mm256_add_epi64(_mm256_add_epi64(low[0], low[1]), _mm256_add_epi64(high[0], high[1]));
    let half = _mm_add_epi64(_mm256_castsi256_si128(total), _mm256_extracti128_si256::<1>(total));
    let sum = _mm_cvtsi128_si64(half).wrapping_add(_mm_extract_epi64::<1>(half)) as u64;
    joined(sum).add(sum_kernel(tail))
}

/// For processors with AVX-512F and AVX-512BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn sum_avx512(bytes: &[u8]) -> Sum {
    let (blocks, tail) = bytes.as_chunks::<128>();
    let low_half = _mm512_set1_epi64(LOW);
    let (mut low, mut high) = ([_mm512_setzero_si512(); 2], [_mm512_setzero_si512(); 2]);
    for block in blocks {
        for (lane, part) in block.as_chunks::<64>().0.iter().enumerate() {
            // SAFETY: an unaligned load of the 64 bytes of `part`.
            let words = unsafe { _mm512_loadu_si512(part.as_ptr().cast()) };
            low[lane] = _mm512_add_epi64(low[lane], _mm512_and_si512(words, low_half));
            high[lane] = _mm512_add_epi64(high[lane], _mm512_srli_epi64::<32>(words));
        }
    }
    for (lane, part) in tail.chunks(64).enumerate() {
        let present = u64::MAX >> (64 - part.len());
        // SAFETY: the mask names the bytes of `part`, of which there are 1 to 64; the others are not read and are zero.
        let words = unsafe { _mm512_maskz_loadu_epi8(present, part.as_ptr().cast()) };
        low[lane] = _mm512_add_epi64(low[lane], _mm512_and_si512(words, low_half));
        high[lane] = _mm512_add_epi64(high[lane], _mm512_srli_epi64::<32>(words));
    }
    let total = _mm512_add_epi64(_mm512_add_epi64(low[0], low[1]), _mm512_add_epi64(high[0], high[1]));
    joined(_mm512_reduce_add_epi64(total) as u64)
}

/// A sum of 32-bit words as a [`Sum`]: eight bytes in the machine's order are a value of that sum.
fn joined(sum: u64) -> Sum {
    sum_kernel(&sum.to_ne_bytes())
}
