//! Storm control: a limit on the rate of broadcast, multicast and unknown unicast frames, which are flooded, for each port
//! that receives them. There is one token bucket for each kind of frame and port, or for each of the port's queues if the
//! rate is divided among them.

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
    /// Frames a second in the long run.
    pub per_second: u32,
    /// Frames that may pass at once after a pause; at least 1.
    pub burst: u32,
}

/// Rates of the kinds, by [`FloodKind::index`]; `None`: all frames pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormLimits(pub [Option<StormRate>; 3]);

/// Billionths of a frame: what one nanosecond adds at one frame a second.
const FRAME: u64 = 1_000_000_000;

/// A token bucket, full at first.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: StormRate,
    /// In billionths of a frame.
    level: u64,
    filled: Time,
}

impl Bucket {
    fn new(rate: StormRate) -> Bucket {
        Bucket { rate, level: Bucket::depth(rate), filled: Time::ZERO }
    }

    fn depth(rate: StormRate) -> u64 {
        u64::from(rate.burst.max(1)) * FRAME
    }

    fn take(&mut self, now: Time) -> bool {
        let added = now.nanos_since(self.filled).saturating_mul(self.rate.per_second.into());
        self.level = self.level.saturating_add(added).min(Bucket::depth(self.rate));
        self.filled = self.filled.max(now);
        let passes = self.level >= FRAME;
        self.level -= if passes { FRAME } else { 0 };
        passes
    }
}

/// The storm control of one receiving port; see the head of the file. Of the thread that polls the port.
#[derive(Clone, Debug, Default)]
pub struct Storm {
    buckets: [Option<Bucket>; 3],
}

impl Storm {
    /// With these limits; all buckets are full.
    pub fn new(limits: StormLimits) -> Storm {
        Storm { buckets: limits.0.map(|rate| rate.map(Bucket::new)) }
    }

    /// Whether a frame of this kind may pass at `now`. A time before the last counts as the last.
    #[inline]
    pub fn admit(&mut self, kind: FloodKind, now: Time) -> bool {
        self.buckets[kind.index()].as_mut().is_none_or(|bucket| bucket.take(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let rate = StormRate { per_second: 100, burst: 10 };
        let mut storm = Storm::new(StormLimits([Some(rate), None, None]));
        let passed = (0..50).filter(|_| storm.admit(FloodKind::Broadcast, Time::from_secs(5))).count();
        assert_eq!(passed, 10);
        // One frame a millisecond for ten seconds.
        let at = |ms| Time::from_secs(5) + core::time::Duration::from_millis(ms);
        let passed = (1..=10_000).filter(|ms| storm.admit(FloodKind::Broadcast, at(*ms))).count();
        assert_eq!(passed, 1000);
        assert!(storm.admit(FloodKind::Multicast, at(0)) && storm.admit(FloodKind::UnknownUnicast, at(0)));
        // After a pause of any length no more than the burst.
        let passed = (0..50).filter(|_| storm.admit(FloodKind::Broadcast, Time::MAX)).count();
        assert_eq!(passed, 10);
    }
}
