//! Instants as plain numbers. Protocol code never reads a clock: the time is an argument.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};
use core::time::Duration;

const NANOS_PER_MICRO: u64 = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SEC: u64 = 1_000_000_000;

/// An instant: nanoseconds since an arbitrary start, which is the same throughout a process or simulation.
///
/// All arithmetic saturates: a deadline beyond the range is [`Time::MAX`], a difference that would be negative is zero.
/// 64 bits of nanoseconds last for 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The start.
    pub const ZERO: Time = Time(0);
    /// Later than every other instant; used for "no deadline".
    pub const MAX: Time = Time(u64::MAX);

    /// The instant `nanos` nanoseconds after the start.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// The instant `micros` microseconds after the start; saturates.
    #[inline]
    pub const fn from_micros(micros: u64) -> Time {
        Time(micros.saturating_mul(NANOS_PER_MICRO))
    }

    /// The instant `millis` milliseconds after the start; saturates.
    #[inline]
    pub const fn from_millis(millis: u64) -> Time {
        Time(millis.saturating_mul(NANOS_PER_MILLI))
    }

    /// The instant `secs` seconds after the start; saturates.
    #[inline]
    pub const fn from_secs(secs: u64) -> Time {
        Time(secs.saturating_mul(NANOS_PER_SEC))
    }

    /// Nanoseconds since the start.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the start.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0 / NANOS_PER_MICRO
    }

    /// Whole milliseconds since the start. The low 32 bits serve as the RFC 7323 timestamp clock (section 5.4 requires
    /// 1 ms to 1 s per tick).
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0 / NANOS_PER_MILLI
    }

    /// Whole seconds since the start.
    #[inline]
    pub const fn as_secs(self) -> u64 {
        self.0 / NANOS_PER_SEC
    }

    /// Nanoseconds from `earlier` to `self`, 0 if `earlier` is later. Cheaper than a [`Duration`], which divides.
    #[inline]
    pub const fn nanos_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time from `earlier` to `self`, zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

#[inline]
const fn nanos(d: Duration) -> u64 {
    // A comparison costs less than two operations that saturate.
    if d.as_secs() < u64::MAX / NANOS_PER_SEC {
        d.as_secs() * NANOS_PER_SEC + d.subsec_nanos() as u64
    } else {
        d.as_secs().saturating_mul(NANOS_PER_SEC).saturating_add(d.subsec_nanos() as u64)
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    #[inline]
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(nanos(d)))
    }
}

impl AddAssign<Duration> for Time {
    #[inline]
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    #[inline]
    fn sub(self, d: Duration) -> Time {
        Time(self.0.saturating_sub(nanos(d)))
    }
}

impl SubAssign<Duration> for Time {
    #[inline]
    fn sub_assign(&mut self, d: Duration) {
        *self = *self - d;
    }
}

impl Sub for Time {
    type Output = Duration;
    #[inline]
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Time {
    /// Seconds with six decimals, as packet traces write them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::MAX {
            return f.pad("never");
        }
        write!(f, "{}.{:06}", self.as_secs(), self.as_micros() % 1_000_000)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::MAX {
            return f.pad("never");
        }
        write!(f, "{}.{:09}s", self.as_secs(), self.0 % NANOS_PER_SEC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Time::MAX + Duration::from_nanos(1), Time::MAX);
        assert_eq!(Time::from_secs(1) + Duration::MAX, Time::MAX);
        let most = Duration::from_nanos(u64::MAX);
        assert_eq!((Time::ZERO + most, Time::MAX - most), (Time::MAX, Time::ZERO));
        assert_eq!(Time::ZERO + (most - Duration::from_nanos(1)), Time::from_nanos(u64::MAX - 1));
        assert_eq!(Time::MAX - Duration::from_secs(most.as_secs() + 1), Time::ZERO);
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time::from_millis(1) - Time::from_millis(2), Duration::ZERO);
        assert_eq!(Time::from_secs(u64::MAX), Time::MAX);
    }

    #[test]
    fn units_agree() {
        let t = Time::from_millis(1_234) + Duration::from_micros(567);
        assert_eq!((t.as_secs(), t.as_millis(), t.as_micros(), t.as_nanos()), (1, 1_234, 1_234_567, 1_234_567_000));
        assert_eq!(t - Time::from_secs(1), Duration::from_nanos(234_567_000));
        assert_eq!(t.nanos_since(Time::from_secs(1)), 234_567_000);
        assert_eq!(t.to_string(), "1.234567");
        assert_eq!(format!("{:?} {}", t, Time::MAX), "1.234567000s never");
    }
}
