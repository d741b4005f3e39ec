//! The monotonic clock, read through the processor's cycle counter if the kernel uses that too.
//!
//! `clock_gettime` costs several times as much as the counter, and the stack reads the time once for each user call. So
//! a thread reads the kernel's clock once, stores counter and time, and extrapolates from the counter for a fraction of
//! a millisecond. The rate is measured against the kernel over tens of milliseconds. Until it is known, and where the
//! kernel does not trust the counter, every reading is the kernel's.
//!
//! What may never happen: a time that goes backwards on one thread. Between threads, readings differ by at most the
//! kernel's clock adjustment within one horizon (500 parts per million: 0.2 microseconds).

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a thread extrapolates, in cycles: 0.3 milliseconds at 3 GHz.
const HORIZON: u64 = 1 << 20;
/// The rate is measured over at least this many nanoseconds.
const BASELINE: u64 = 20_000_000;

/// Counter and kernel's clock read within this many cycles count as simultaneous: 0.3 microseconds at 3 GHz.
const CLOSE: u64 = 1_000;

/// Nanoseconds per cycle, in units of 2^-32; 0: unknown, or not to be used.
static RATE: AtomicU64 = AtomicU64::new(0);
/// The first reading, if the counter can be trusted.
static FIRST: OnceLock<Option<ClockReading>> = OnceLock::new();

/// Counter and kernel's clock at one moment.
#[derive(Clone, Copy)]
struct ClockReading {
    cycles: u64,
    nanos: u64,
}

thread_local! {
    static LATEST: Cell<ClockReading> = const { Cell::new(ClockReading { cycles: 0, nanos: 0 }) };
}

/// Nanoseconds of the monotonic clock.
#[inline]
pub(super) fn now() -> u64 {
    let rate = RATE.load(Ordering::Relaxed);
    if rate == 0 {
        return without_rate();
    }
    let (latest, cycles) = (LATEST.get(), counter());
    // A counter that went back, as after a migration of the virtual machine, appears far beyond the horizon.
    let passed = cycles.wrapping_sub(latest.cycles);
    if passed < HORIZON { latest.nanos + ((passed * rate) >> 32) } else { ask_again(latest, rate) }
}

/// Reads the kernel's clock, and never returns less than this thread may have read before.
#[cold]
fn ask_again(latest: ClockReading, rate: u64) -> u64 {
    let told_at_most = if latest.cycles == 0 { 0 } else { latest.nanos + ((HORIZON * rate) >> 32) };
    match both() {
        Ok(both) => {
            let nanos = both.nanos.max(told_at_most);
            LATEST.set(ClockReading { nanos, ..both });
            nanos
        }
        // Stored as expired: the next call reads the kernel's clock again, and never returns less than this reading.
        Err(nanos) => {
            let nanos = nanos.max(told_at_most);
            LATEST.set(ClockReading { nanos: nanos.saturating_sub((HORIZON * rate) >> 32), ..latest });
            nanos
        }
    }
}

/// The kernel's time; also computes the rate, once enough time has passed since the first reading.
#[cold]
fn without_rate() -> u64 {
    let first = FIRST.get_or_init(|| if trusted() { (0..8).find_map(|_| both().ok()) } else { None });
    let (Some(first), Ok(here)) = (first, both()) else { return kernel() };
    let passed = here.nanos.saturating_sub(first.nanos);
    let cycles = here.cycles.wrapping_sub(first.cycles);
    if passed >= BASELINE
        && let Ok(rate) = u64::try_from((u128::from(passed) << 32) / u128::from(cycles.max(1)))
        // Below 0.25 GHz it is not a cycle counter, and products with it could overflow.
        && rate < 1 << 34
    {
        RATE.store(rate, Ordering::Relaxed);
    }
    here.nanos
}

/// Counter and kernel's clock at one moment; only the kernel's if the thread was interrupted between the two.
fn both() -> Result<ClockReading, u64> {
    let before = counter();
    let nanos = kernel();
    let width = counter().wrapping_sub(before);
    if width <= CLOSE { Ok(ClockReading { cycles: before + width / 2, nanos }) } else { Err(nanos) }
}

/// Whether the kernel itself keeps time by the counter: then it is constant, and the same on all processors.
fn trusted() -> bool {
    cfg!(all(target_arch = "x86_64", not(miri)))
        && std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .is_ok_and(|source| source.trim() == "tsc")
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and the kernel lets programs use it by default; `trusted` has
    // found that it keeps time by it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
fn counter() -> u64 {
    0
}

fn kernel() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, ours. The monotonic clock always exists, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the clock with the kernel's until the rate is known. On a busy machine this takes more calls, because
    /// calls in which the thread was interrupted do not count.
    #[test]
    fn it_never_goes_back_and_stays_with_the_kernels() {
        let start = kernel();
        let mut last = now();
        let trusted = || FIRST.get().is_some_and(Option::is_some);
        let known = || RATE.load(Ordering::Relaxed) != 0;
        let mut more = 10_000;
        while kernel() < start + 3 * BASELINE || (trusted() && !known() && more > 0) {
            more -= i32::from(kernel() >= start + 3 * BASELINE);
            let before = kernel();
            let here = now();
            let after = kernel();
            assert!(here >= last, "{here} after {last}");
            // A microsecond is far more than a horizon at 500 parts per million.
            assert!(here + 1_000 >= before && here <= after + 1_000, "{here} is not within {before} to {after}");
            last = here;
        }
        assert_eq!(known(), trusted(), "a counter that is trusted has a rate by now");
    }

    #[test]
    fn an_old_reading_is_not_gone_back_behind() {
        let (cycles, nanos) = (counter(), kernel() + 5_000_000);
        let ahead = ClockReading { cycles: cycles.wrapping_sub(2 * HORIZON).max(1), nanos };
        let first = ask_again(ahead, 1 << 31);
        assert!(first >= nanos, "the kernel is behind what was told");
        assert!(ask_again(LATEST.get(), 1 << 31) >= first);
    }
}
