//! Rate limits for ICMP errors and TCP resets: overall, and per destination.
//!
//! With one bucket for all, a station that provokes errors could exhaust those due to others, and learn from its own
//! answers how many others provoke (CVE-2020-25705). So each destination has a bucket, found by a keyed hash among
//! [`DESTINATIONS`]; two that share one share its limit, and an attacker cannot find out which ones share.

use core::hash::Hasher;
use core::net::IpAddr;

use observe::Time;
use siphasher::sip::SipHasher13;

use super::RateLimit;

/// Buckets for destinations.
const DESTINATIONS: usize = 256;
/// ICMP errors to one destination in any second, and at once.
const RATE: u32 = 250;
const BURST: u32 = 25;

/// A limit for packets that untrusted hosts can provoke: one overall, and one per destination.
#[derive(Clone, Debug)]
pub struct PerDestination {
    all: RateLimit,
    each: Vec<RateLimit>,
    keys: (u64, u64),
}

impl PerDestination {
    /// The ICMP errors of a stack: 1,000 in any second, 250 of them to one destination. `seed` randomises both, and the
    /// hash of destinations.
    pub fn errors(seed: u64) -> Self {
        Self::new(RateLimit::icmp(seed), (RATE - BURST, BURST), seed)
    }

    /// The TCP resets of one worker to segments of no connection: `rate` (at least 16) in any second, a quarter of them
    /// to one destination.
    pub fn resets(rate: u32, seed: u64) -> Self {
        let quarter = rate / 4;
        Self::new(RateLimit::resets(rate, seed), (quarter - quarter / 4, quarter / 4), seed)
    }

    fn new(all: RateLimit, (rate, burst): (u32, u32), seed: u64) -> Self {
        let each = |n: usize| RateLimit::new(rate, burst, seed.rotate_left(23).wrapping_add(n as u64));
        let keys = (seed.rotate_left(7) ^ 0x6963_6d70, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        PerDestination { all, each: (0..DESTINATIONS).map(each).collect(), keys }
    }

    /// Whether one more may be sent to `destination` now.
    pub fn allow(&mut self, now: Time, destination: IpAddr) -> bool {
        let bucket = self.bucket(destination);
        self.each[bucket].allow(now) && self.all.allow(now)
    }

    /// An IPv6 station can use any number of addresses in its /64.
    fn bucket(&self, destination: IpAddr) -> usize {
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        match destination {
            IpAddr::V4(address) => hasher.write_u32(address.to_bits()),
            IpAddr::V6(address) => hasher.write_u64((address.to_bits() >> 64) as u64),
        }
        hasher.finish() as usize % DESTINATIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use core::time::Duration;

    fn station(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + n).into()
    }

    #[test]
    fn one_destination_has_its_limit_and_all_together_have_theirs() {
        let expected = [(1, 200..=250), (2, 400..=500), (20, 900..=1000)];
        for (limits, (stations, expected)) in [PerDestination::errors(5), PerDestination::resets(1000, 5)]
            .iter()
            .flat_map(|l| expected.iter().map(move |e| (l, e)))
        {
            let (mut limits, stations, mut sent) = (limits.clone(), *stations, 0);
            for n in 0..20_000u64 {
                let now = Time::from_secs(9) + Duration::from_micros(n * 50);
                sent += usize::from(limits.allow(now, station(n as u32 % stations)));
            }
            assert!(expected.contains(&sent), "{sent} to {stations}");
        }
    }

    #[test]
    fn who_is_noisy_does_not_silence_another() {
        let mut limits = PerDestination::errors(5);
        let mut heard = 0;
        for n in 0..20_000u64 {
            let now = Time::from_secs(9) + Duration::from_micros(n * 50);
            limits.allow(now, station(1));
            heard += usize::from(n % 200 == 0 && limits.allow(now, station(2)));
        }
        assert_eq!(heard, 100, "an error every ten milliseconds");
    }
}
