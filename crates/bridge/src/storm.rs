//! Storm control: a limit on the rate of broadcast, multicast and unknown unicast frames, which are flooded, for each port
//! that receives them, whatever the number of its queues. The state of a limit is one word ([`NextDue`]), so that threads that
//! poll queues of one port can share it without a lock.

use observe::Time;

/// Why a frame is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloodKind {
    /// To all stations.
    Broadcast,
    /// To a group of stations.
    Multicast,
    /// To a station behind an unknown port.
    UnknownUnicast,
}

impl FloodKind {
    /// All kinds; the index of a kind is its place here.
    pub const ALL: [FloodKind; 3] = [FloodKind::Broadcast, FloodKind::Multicast, FloodKind::UnknownUnicast];

    /// The place in [`FloodKind::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A limit on the frames of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StormRate {
    /// Frames a second in the long run; at least 1.
    pub per_second: u32,
    /// Frames that may pass at once after a pause; at least 1.
    pub burst: u32,
}

/// Rates of the kinds, by [`FloodKind::index`]; `None`: all frames pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormLimits(pub [Option<StormRate>; 3]);

/// Units of the times here in a nanosecond: so the rate is exact to a part in ten thousand at 14.88 million frames a second, and
/// times end after 36 years.
const UNITS: u64 = 16;
const SECOND: u64 = 1_000_000_000 * UNITS;

/// When the next frame would arrive if frames came at the rate: all of the state of one limit. Zero at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextDue(u64);

impl NextDue {
    /// From a word that [`NextDue::to_bits`] made.
    pub fn from_bits(bits: u64) -> NextDue {
        NextDue(bits)
    }

    /// As one word, so that threads can share it.
    pub fn to_bits(self) -> u64 {
        self.0
    }
}

impl StormRate {
    /// Whether a frame may pass at `now`, and the state after it. The state before may be that of another rate, which was in
    /// force before: what exceeds the burst of this one is forgotten.
    ///
    /// The generic cell rate algorithm as virtual scheduling (ITU-T I.371, annex A).
    pub fn admit(self, due: NextDue, now: Time) -> (bool, NextDue) {
        let interval = SECOND / u64::from(self.per_second.max(1));
        let now = now.as_nanos().saturating_mul(UNITS);
        let tolerance = interval.saturating_mul(u64::from(self.burst.max(1)) - 1);
        let latest = now.saturating_add(tolerance);
        let due = due.0.clamp(now, latest.saturating_add(interval));
        if due <= latest { (true, NextDue(due.saturating_add(interval))) } else { (false, NextDue(due)) }
    }
}

/// The storm control of one receiving port; see the head of the file.
pub trait StormControl {
    /// Whether a frame of this kind may pass at `now`, if their rate is limited to `rate`.
    fn admit(&mut self, kind: FloodKind, rate: StormRate, now: Time) -> bool;
}

/// The storm control of a port that one thread polls.
#[derive(Clone, Debug, Default)]
pub struct Storm([NextDue; 3]);

impl StormControl for Storm {
    fn admit(&mut self, kind: FloodKind, rate: StormRate, now: Time) -> bool {
        let due = &mut self.0[kind.index()];
        let (passes, next) = rate.admit(*due, now);
        *due = next;
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let rate = StormRate { per_second: 100, burst: 10 };
        let mut storm = Storm::default();
        let mut passed = |times: &mut dyn Iterator<Item = Time>| {
            times.filter(|now| storm.admit(FloodKind::Broadcast, rate, *now)).count()
        };
        let start = Time::from_secs(5);
        assert_eq!(passed(&mut std::iter::repeat_n(start, 50)), 10);
        // One frame a millisecond for ten seconds.
        let at = |ms| start + core::time::Duration::from_millis(ms);
        assert_eq!(passed(&mut (1..=10_000).map(at)), 1000);
        // After a pause of any length no more than the burst.
        assert_eq!(passed(&mut std::iter::repeat_n(Time::from_secs(1 << 30), 50)), 10);
        assert!(storm.admit(FloodKind::Multicast, rate, start) && storm.admit(FloodKind::UnknownUnicast, rate, start));
    }

    #[test]
    fn a_lower_limit_and_a_higher_one_hold_at_once() {
        let (slow, fast) = (StormRate { per_second: 1, burst: 1000 }, StormRate { per_second: 1000, burst: 1 });
        let now = Time::from_secs(5);
        let mut due = NextDue::default();
        let mut passes = |rate: StormRate, now| {
            let (passes, next) = rate.admit(due, now);
            due = next;
            passes
        };
        while passes(slow, now) {}
        assert!(!passes(fast, now), "no burst is left");
        let later = now + core::time::Duration::from_millis(1);
        assert!(passes(fast, later), "the debt of the old rate is forgotten");
    }

    /// 10 Gb/s of the shortest frames.
    #[test]
    fn a_rate_that_divides_no_nanosecond_is_exact() {
        let rate = StormRate { per_second: 14_880_952, burst: 100 };
        let mut due = NextDue::default();
        let passes = |nanos: &u64| {
            let (passes, next) = rate.admit(due, Time::from_nanos(1_000_000_000 + nanos));
            due = next;
            passes
        };
        let passed = (0..100_000_000u64).step_by(20).filter(passes).count();
        assert!((1_488_000..=1_488_600).contains(&passed), "{passed} in a tenth of a second");
    }
}
