//! The one's-complement sum in vector instructions of x86.
//!
//! A vector is read as 16-bit words, of which one instruction adds each pair to a 32-bit word. It takes the words as
//! signed, so each is reduced by 2^15 before, which changing its highest bit does, and as much is added to the sum at
//! the end: three instructions a vector. Only `sum.rs` calls this, after checking the processor's features. What may
//! never happen: a load beyond the slice; the tail is left to the portable kernel (AVX2) or masked (AVX-512).

use std::arch::x86_64::*;

use wire::checksum::{Sum, sum_kernel};

/// Bytes whose pairs are added in 32-bit words: a pair is between -2^16 and 2^16, and all lanes together add 2^14 of them.
const RUN: usize = 64 << 10;

/// For processors with AVX2.
#[target_feature(enable = "avx2")]
pub(super) fn sum_avx2(bytes: &[u8]) -> Sum {
    let (half, one) = (_mm256_set1_epi16(i16::MIN), _mm256_set1_epi16(1));
    let (vectors, tail) = bytes.as_chunks::<32>();
    let mut sum = 0i64;
    for run in vectors.chunks(RUN / 32) {
        let mut pairs = _mm256_setzero_si256();
        for vector in run {
            // SAFETY: an unaligned load of the 32 bytes of `vector`.
            let words = unsafe { _mm256_loadu_si256(vector.as_ptr().cast()) };
            pairs = _mm256_add_epi32(pairs, _mm256_madd_epi16(_mm256_xor_si256(words, half), one));
        }
        let four = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs));
        let two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
        let sums = _mm_add_epi32(two, _mm_shuffle_epi32::<1>(two));
        sum += i64::from(_mm_cvtsi128_si32(sums)) + ((run.len() as i64 * 16) << 15);
    }
    joined(sum as u64).add(sum_kernel(tail))
}

/// For processors with AVX-512F and AVX-512BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn sum_avx512(bytes: &[u8]) -> Sum {
    let (half, one) = (_mm512_set1_epi16(i16::MIN), _mm512_set1_epi16(1));
    let mut sum = 0i64;
    for run in bytes.chunks(RUN) {
        let (vectors, tail) = run.as_chunks::<64>();
        let mut pairs = _mm512_setzero_si512();
        let mut words_read = vectors.len() as i64 * 32;
        for vector in vectors {
            // SAFETY: an unaligned load of the 64 bytes of `vector`.
            let words = unsafe { _mm512_loadu_si512(vector.as_ptr().cast()) };
            pairs = _mm512_add_epi32(pairs, _mm512_madd_epi16(_mm512_xor_si512(words, half), one));
        }
        if !tail.is_empty() {
            let present = u64::MAX >> (64 - tail.len());
            // SAFETY: the mask names the bytes of `tail`, of which there are 1 to 63; the others are not read and are zero.
            let words = unsafe { _mm512_maskz_loadu_epi8(present, tail.as_ptr().cast()) };
            pairs = _mm512_add_epi32(pairs, _mm512_madd_epi16(_mm512_xor_si512(words, half), one));
            words_read += 32;
        }
        sum += i64::from(_mm512_reduce_add_epi32(pairs)) + (words_read << 15);
    }
    joined(sum as u64)
}

/// A sum of 16-bit words as a [`Sum`]: eight bytes in the machine's order are a value of that sum.
fn joined(sum: u64) -> Sum {
    sum_kernel(&sum.to_ne_bytes())
}
