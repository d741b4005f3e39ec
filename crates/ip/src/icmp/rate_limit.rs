//! A rate limit for packets that untrusted hosts can provoke: a token bucket of randomised size.
//!
//! A bucket of known size is an oracle: an attacker who empties it learns from the next answer whether another packet
//! took a token, and so whether a guessed port was open (CVE-2020-25705). The size therefore changes a little, by a
//! seeded generator, each time the bucket is full.

use core::time::Duration;

use observe::Time;

/// A token bucket: at most `rate` packets a second in the long run, at most `burst` at once.
#[derive(Clone, Debug)]
pub struct RateLimit {
    interval: u64,
    burst: u32,
    tokens: u32,
    /// When the last token was granted.
    granted: Time,
    random: u64,
}

impl RateLimit {
    /// A full bucket. `rate` is in packets a second and `burst` in packets, both at least 1; `seed` randomises the
    /// size.
    pub fn new(rate: u32, burst: u32, seed: u64) -> Self {
        // The clock's own step bounds the rate: a thousand million a second.
        let interval = (Duration::from_secs(1).as_nanos() as u64 / u64::from(rate.max(1))).max(1);
        let burst = burst.max(1);
        Self { interval, burst, tokens: burst, granted: Time::ZERO, random: seed | 1 }
    }

    /// The limit for ICMP errors of one stack: 50 at once, and never more than 1,000 in any second (as in Linux and
    /// gVisor): the rate and a full bucket together.
    pub fn icmp(seed: u64) -> Self {
        Self::new(1000 - 50, 50, seed)
    }

    /// The limit for TCP resets to segments of no connection, for one worker: never more than `rate` (at least 4) in
    /// any second, a quarter of them at once.
    pub fn resets(rate: u32, seed: u64) -> Self {
        Self::new(rate - rate / 4, rate / 4, seed)
    }

    /// Takes a token if there is one.
    pub fn allow(&mut self, now: Time) -> bool {
        self.refill(now);
        let allowed = self.tokens > 0;
        self.tokens -= u32::from(allowed);
        allowed
    }

    fn refill(&mut self, now: Time) {
        let earned = now.nanos_since(self.granted) / self.interval;
        if earned == 0 {
            return;
        }
        let filled = u64::from(self.tokens) + earned;
        if filled < u64::from(self.burst) {
            self.tokens = filled as u32;
            self.granted += Duration::from_nanos(earned * self.interval);
        } else {
            self.tokens = self.burst - self.blur();
            self.granted = now;
        }
    }

    /// Up to a quarter of the burst, never all of it (xorshift64).
    fn blur(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 32) as u32) % (self.burst / 4 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_flood_gets_the_rate_and_no_more_than_the_burst_at_once() {
        let mut limit = RateLimit::new(1000, 50, 7);
        let at_once = (0..1000).filter(|_| limit.allow(Time::from_secs(1))).count();
        assert!((38..=50).contains(&at_once), "{at_once}");
        let over_a_second = (0..20_000u64).filter(|n| limit.allow(Time::from_secs(1) + micros(n * 50))).count();
        assert!((900..=1050).contains(&over_a_second), "{over_a_second}");
    }

    #[test]
    fn no_second_sees_more_than_a_thousand() {
        for mut limit in [RateLimit::icmp(3), RateLimit::resets(1000, 3)] {
            // A flood that begins after a rest: the bucket is full, the worst case.
            let grants: Vec<u64> =
                (0..60_000u64).filter(|n| limit.allow(Time::from_secs(5) + micros(n * 50))).collect();
            let worst =
                grants.iter().map(|from| grants.iter().filter(|at| (*from..from + 20_000).contains(at)).count());
            let worst = worst.max().unwrap();
            assert!((900..=1000).contains(&worst), "{worst}");
        }
    }

    #[test]
    fn the_brim_moves() {
        let mut limit = RateLimit::new(1000, 50, 7);
        let sizes: std::collections::BTreeSet<usize> =
            (1..20).map(|second| (0..100).filter(|_| limit.allow(Time::from_secs(second))).count()).collect();
        assert!(sizes.len() > 3, "{sizes:?}");
    }

    fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }
}
