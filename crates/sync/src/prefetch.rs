//! A hint to the processor: these bytes are about to be used.
//!
//! A thread that knows what it will touch, because it has a batch of frames, asks for all of it first, so that the
//! processor waits for memory once and not for each frame. The hint changes nothing but caches.

/// Asks for the cache line with the byte at `address`, which may be any address.
#[inline(always)]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), expect(unused_variables, reason = "no hint"))]
pub fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads no value and does not fault, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above; the instruction writes no register and no flag.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

/// [`prefetch`] of `count` lines from the one with `address` on.
#[inline(always)]
pub fn prefetch_lines<T>(address: *const T, count: usize) {
    let first = address.cast::<u8>();
    (0..count).for_each(|line| prefetch(first.wrapping_add(line * LINE)));
}

/// Bytes of a cache line.
const LINE: usize = 64;
