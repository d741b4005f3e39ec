//! A hint to the processor: these bytes are about to be used.
//!
//! A thread that knows what it will touch, because it has a batch of frames, asks for all of it first, so that the
//! processor waits for memory once and not for each frame. The hint changes nothing but caches.

use std::ptr;

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

/// Which cache lines will be used soon. It is for the processor alone and no way to what is there, which may have gone
/// meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefetchHint(
    /// The address of the first line. Its low bits are the number of lines.
    usize,
);

impl PrefetchHint {
    /// None.
    pub const NONE: PrefetchHint = PrefetchHint(0);

    /// Those of `value`, 63 at most.
    #[inline(always)]
    pub fn of<T: ?Sized>(value: &T) -> PrefetchHint {
        let address = ptr::from_ref(value).cast::<u8>().addr();
        let lines = (address % LINE + size_of_val(value)).div_ceil(LINE);
        PrefetchHint(address - address % LINE + lines.min(LINE - 1))
    }

    /// Whether it names none.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self == PrefetchHint::NONE
    }

    /// Asks for them.
    #[inline(always)]
    pub fn ask(self) {
        prefetch_lines(ptr::without_provenance::<u8>(self.0 - self.0 % LINE), self.0 % LINE);
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Lines([u8; 9 * LINE]);

    #[test]
    fn a_hint_names_the_lines_that_a_value_touches() {
        let lines = Lines([0; 9 * LINE]);
        let first = ptr::from_ref(&lines).addr();
        for (bytes, line, count) in [(0..9 * LINE, 0, 9), (8..64, 0, 1), (63..65, 0, 2), (64..65, 1, 1)] {
            let hint = PrefetchHint::of(&lines.0[bytes.clone()]);
            assert_eq!(hint, PrefetchHint(first + line * LINE + count), "{bytes:?}");
            hint.ask();
        }
        assert!(PrefetchHint::NONE.is_none() && !PrefetchHint::of(&lines).is_none());
        PrefetchHint::NONE.ask();
    }

    #[test]
    fn a_large_value_is_asked_for_in_part() {
        let large = vec![0_u8; 100 * LINE];
        assert_eq!(PrefetchHint::of(&large[..]).0 % LINE, LINE - 1);
    }
}
