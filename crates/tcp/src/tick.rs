//! A point in time in 4 bytes, for times that a connection records but never waits for.
//!
//! Deadlines are [`Time`]s, because the stack compares them across connections. A time that is only used for an age
//! does not need 64 bits in every PCB. What may never happen: a deadline kept as a tick, which would recur after 50
//! days.

use core::time::Duration;

use observe::Time;

/// Maximum time that a clock reading may be earlier than the tick it is compared with: threads with batches of
/// different age alternate on a connection.
pub(crate) const SKEW_MS: u32 = 3_600_000;

/// How much later than `later` `earlier` may be in [`since`]: two threads may have clock readings of different age.
const SKEW_US: u32 = 10_000_000;

/// `time` in units of 2^20 ns, about a millisecond, modulo 2^32: a shift, for times recorded with every segment.
#[inline]
pub(crate) fn ticks_of_2_20_ns(time: Time) -> u32 {
    (time.as_nanos() >> 20) as u32
}

/// Whole milliseconds modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick(u32);

impl Tick {
    /// The tick that `now` falls into.
    #[inline]
    pub(crate) fn of(now: Time) -> Tick {
        Tick(now.as_millis() as u32)
    }

    /// A tick so early that any limit of less than 24 days has passed at `now`.
    pub(crate) fn long_before(now: Time) -> Tick {
        Tick((now.as_millis() as u32).wrapping_sub(1 << 31))
    }

    /// Time from this tick to `now` in whole milliseconds, as far as 49 days; zero if `now` is a little earlier.
    #[inline]
    pub(crate) fn elapsed(self, now: Time) -> Duration {
        Duration::from_millis(u64::from(self.elapsed_ms(now)))
    }

    /// [`Tick::elapsed`] in milliseconds.
    #[inline]
    pub(crate) fn elapsed_ms(self, now: Time) -> u32 {
        let ms = (now.as_millis() as u32).wrapping_sub(self.0);
        if ms > u32::MAX - SKEW_MS { 0 } else { ms }
    }
}

/// How long `later` is after `earlier`, both in microseconds modulo 2^32; 0 if it is a little earlier. A time hours ago
/// never counts as now: a timer that waits for an age would never expire.
#[inline]
pub(crate) fn since(later: u32, earlier: u32) -> u32 {
    let elapsed = later.wrapping_sub(earlier);
    if elapsed > u32::MAX - SKEW_US { 0 } else { elapsed }
}

/// The transmission time to record at `now`, not before `noted`: a thread with an older clock reading may send later
/// than another one, and RACK must not count its segments as sent first.
#[inline]
pub(crate) fn not_before(now: u32, noted: u32) -> u32 {
    if now.wrapping_sub(noted) > u32::MAX - SKEW_US { noted } else { now }
}

/// Time from `now` until `due`, both in microseconds modulo 2^32; 0 if that has passed.
#[inline]
pub(crate) fn until(due: u32, now: u32) -> u32 {
    if is_before(due, now) { 0 } else { due.wrapping_sub(now) }
}

/// Whether `a` is before `b`, both in microseconds modulo 2^32.
#[inline]
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_across_its_own_wrap_and_never_backwards() {
        let wrap = Time::from_millis(1 << 32);
        let before = Tick::of(wrap - Duration::from_millis(10));
        assert_eq!(before.elapsed_ms(wrap + Duration::from_millis(5)), 15);
        assert_eq!(Tick::of(wrap + Duration::from_millis(5)).elapsed_ms(wrap), 0);
        assert!(Tick::long_before(wrap).elapsed(wrap) > Duration::from_secs(24 * 86_400));
        assert!(Tick::long_before(Time::ZERO).elapsed(Time::ZERO) > Duration::from_secs(24 * 86_400));
    }
}
