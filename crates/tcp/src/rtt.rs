//! The retransmission time-out of one connection: RFC 6298, with the per-sample gain of RFC 7323 appendix G.
//!
//! This file owns SRTT, RTTVAR, the back-off exponent, the measurement under way and nothing else. The send side calls
//! it with round-trip samples that already obey Karn's rule (never from a retransmitted segment, unless its timestamp
//! echo tells which copy was acknowledged), and reads [`RttEstimator::rto`] whenever it arms the timer. When the timer
//! expires it calls [`RttEstimator::backoff`].
//!
//! All state is in microseconds in 32 bits, 28 bytes in all. What may never happen: an RTO below the configured minimum
//! or above the configured maximum, whatever the samples.

use core::time::Duration;

use observe::Time;

/// Samples are cut to this: the scaled variables then stay below 2^32, and RFC 6298 caps the RTO far below anyway.
const MAX_SAMPLE_US: u32 = 1 << 28;

/// RFC 6298 section 5.7: the RTO to begin data transmission with, after the timer expired on a SYN.
const RTO_AFTER_LOST_SYN_US: u32 = 3_000_000;

/// The back-off exponent stops here; every sensible maximum RTO is reached long before.
const MAX_BACKOFF: u8 = 31;

/// The quantity to which the minimum RTO applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RtoFloor {
    /// RTO = max(minimum, SRTT + 4 * RTTVAR): RFC 6298 section 2.4.
    Total,
    /// RTO = SRTT + max(minimum, 4 * RTTVAR), as Linux and FreeBSD do: never below RFC 6298, and safe against a peer
    /// that delays an acknowledgement by up to the minimum on a path whose RTT is close to it.
    #[default]
    Variance,
}

/// The bounds of the retransmission time-out. All are cut to 2^32 microseconds (71 minutes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RttConfig {
    /// The RTO before the first sample. RFC 6298 section 2.1 requires 1 s.
    pub initial_rto: Duration,
    /// The smallest RTO. RFC 6298 section 2.4 requires 1 s; all current stacks use 200 ms.
    pub min_rto: Duration,
    /// The largest RTO, back-off included. RFC 6298 section 2.5 requires at least 60 s.
    pub max_rto: Duration,
    /// The quantity to which `min_rto` applies.
    pub floor: RtoFloor,
    /// Length of the window of the least round trip, up to a day (`tcp_min_rtt_wlen` of Linux).
    pub least_window: Duration,
}

impl Default for RttConfig {
    fn default() -> RttConfig {
        RttConfig {
            initial_rto: Duration::from_secs(1),
            min_rto: Duration::from_millis(200),
            max_rto: Duration::from_secs(120),
            floor: RtoFloor::Variance,
            least_window: Duration::from_secs(300),
        }
    }
}

/// Whether there were samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sampled {
    /// None.
    Never,
    /// None since the last tail loss probe.
    Before,
    /// Some since then.
    Since,
}

/// SRTT, RTTVAR, RTO and its back-off (RFC 6298 sections 2 and 5).
#[derive(Clone, Debug)]
pub struct RttEstimator {
    /// 8 * SRTT in microseconds; the three fraction bits keep the filter from sticking.
    srtt8: u32,
    /// 4 * RTTVAR in microseconds.
    rttvar4: u32,
    /// The RTO without back-off, within the bounds.
    base_us: u32,
    max_us: u32,
    least: Least,
    sampled: Sampled,
    backoff: u8,
    /// A measurement is under way; its start is in the send log.
    timing: bool,
}

/// The least sample of a window of time, in the manner of Kathleen Nichols' filter, with two samples instead of three:
/// the least, and the least since half a window after it, which replaces it when it is too old. The result is the least
/// over a period between half a window and a whole window.
#[derive(Clone, Debug)]
struct Least {
    /// Microseconds; `u32::MAX` before the first sample.
    us: u32,
    /// The next in line, rounded down ([`coarse`]); `u16::MAX`: none yet.
    next: u16,
    /// When the least was taken, in units of 2^32 ns (4.3 s) modulo 2^16.
    at: u16,
}

impl Least {
    const NONE: Least = Least { us: u32::MAX, next: u16::MAX, at: 0 };

    /// Takes a sample of `us` microseconds at `now`.
    #[inline(always)]
    fn take(&mut self, us: u32, now: Time, window: Duration) {
        let at = (now.as_nanos() >> 32) as u16;
        if us <= self.us {
            *self = Least { us, next: u16::MAX, at };
        } else if at != self.at {
            self.grow_old(us, at, window);
        }
    }

    /// A sample that is not the least, some time after that.
    fn grow_old(&mut self, us: u32, at: u16, window: Duration) {
        // The clock reading of another thread may be a little older: that counts as age zero.
        let age = u64::from(at.wrapping_sub(self.at).cast_signed().max(0).unsigned_abs()) << 32;
        let window = window.as_nanos() as u64;
        if age < window / 2 {
            return;
        }
        self.next = self.next.min(coarse(us));
        if age <= window {
            return;
        }
        // The next in line is no older than half a window, unless nothing was sampled for long.
        let next = fine(self.next);
        let half = ((window / 2) >> 32) as u16;
        let of_late = next < us && age <= window + window / 2;
        let (us, at) = if of_late { (next, at.wrapping_sub(half)) } else { (us, at) };
        *self = Least { us, next: u16::MAX, at };
    }
}

/// `us` as a mantissa of eleven bits and an exponent, rounded down by less than a thousandth.
fn coarse(us: u32) -> u16 {
    let shift = (u32::BITS - us.leading_zeros()).saturating_sub(11);
    (shift << 11 | us >> shift) as u16
}

/// The inverse of [`coarse`].
fn fine(coarse: u16) -> u32 {
    u32::from(coarse & 0x7ff) << (coarse >> 11)
}

impl RttEstimator {
    /// An estimator without a sample: its RTO is the initial one.
    pub fn new(config: &RttConfig) -> RttEstimator {
        let max_us = micros(config.max_rto).max(1);
        RttEstimator {
            srtt8: 0,
            rttvar4: 0,
            base_us: micros(config.initial_rto).clamp(least_rto(config, max_us), max_us),
            max_us,
            least: Least::NONE,
            sampled: Sampled::Never,
            backoff: 0,
            timing: false,
        }
    }

    /// A segment was sent, and its acknowledgement will give a sample; replaces an earlier one.
    #[inline]
    pub fn start(&mut self) {
        self.timing = true;
    }

    /// The timed segment was retransmitted: its acknowledgement is no sample (Karn's rule, section 3).
    #[inline]
    pub fn cancel(&mut self) {
        self.timing = false;
    }

    /// Whether a segment is being timed.
    #[inline]
    pub fn is_timing(&self) -> bool {
        self.timing
    }

    /// The segment that is timed was acknowledged at `now`, `elapsed` microseconds after it left: takes the sample.
    #[inline(always)]
    pub fn finish(&mut self, elapsed: u32, now: Time, config: &RttConfig) {
        self.timing = false;
        self.take(elapsed, 1, now, config);
    }

    /// Takes one of about `expected` samples per round trip, at `now`, and ends any back-off.
    ///
    /// With timestamps every acknowledgement yields a sample; dividing the gains by their number keeps the memory of
    /// the filter in round trips, as in RFC 6298 (RFC 7323 appendix G). `expected` is FlightSize / (2 * SMSS), rounded
    /// up; 0 counts as 1.
    pub fn sample_one_of(&mut self, rtt: Duration, expected: u32, now: Time, config: &RttConfig) {
        self.take(micros(rtt), expected, now, config);
    }

    #[inline(always)]
    fn take(&mut self, us: u32, expected: u32, now: Time, config: &RttConfig) {
        let r = us.min(MAX_SAMPLE_US);
        if self.has_sample() {
            self.smooth(r, expected.max(1));
        } else {
            // Section 2.2: SRTT = R, RTTVAR = R / 2.
            //= https://www.rfc-editor.org/rfc/rfc6298#section-2
            //# When the first RTT measurement R is made, the host MUST set SRTT <- R RTTVAR <- R/2 RTO <- SRTT + max
            //# (G, K*RTTVAR) where K = 4.
            self.srtt8 = r << 3;
            self.rttvar4 = r << 1;
        }
        self.sampled = Sampled::Since;
        self.least.take(r, now, config.least_window);
        self.base_us = self.computed(config);
        self.backoff = 0;
    }

    /// Section 2.3: RTTVAR moves by 1/4 of its error and SRTT by 1/8, RTTVAR first because it uses the old SRTT.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //# When a subsequent RTT measurement R' is made, a host MUST set RTTVAR <- (1 - beta) * RTTVAR + beta * |SRTT - R'|
    //# SRTT <- (1 - alpha) * SRTT + alpha * R'
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //# That is, updating RTTVAR and SRTT MUST be computed in the above order.
    #[inline(always)]
    fn smooth(&mut self, r: u32, expected: u32) {
        let error = i64::from(r) - i64::from(self.srtt8 >> 3);
        let deviation = error.abs() - i64::from(self.rttvar4 >> 2);
        // One sample per round trip is the common case, and needs no division.
        let share = |change: i64| if expected == 1 { change } else { change / i64::from(expected) };
        self.rttvar4 = (i64::from(self.rttvar4) + share(deviation)) as u32;
        self.srtt8 = (i64::from(self.srtt8) + share(error)) as u32;
    }

    /// Section 2.3 and 2.4: SRTT + max(G, 4 * RTTVAR) within the bounds; the clock granularity G is one microsecond.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-1
    //# However, a TCP MUST NOT be more aggressive than the following algorithms allow.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //# After the computation, a host MUST update RTO <- SRTT + max (G, K*RTTVAR)
    #[inline(always)]
    fn computed(&self, config: &RttConfig) -> u32 {
        let min_us = least_rto(config, self.max_us);
        let srtt = self.srtt8 >> 3;
        //= https://www.rfc-editor.org/rfc/rfc6298#section-4
        //# However, if the K*RTTVAR term in the RTO calculation equals zero, the variance term MUST be rounded to G
        //# seconds (i.e., use the equation given in step 2.3).
        let variance = self.rttvar4.max(1);
        let sum = match config.floor {
            RtoFloor::Total => srtt.saturating_add(variance),
            RtoFloor::Variance => srtt.saturating_add(variance.max(min_us)),
        };
        sum.max(min_us).min(self.max_us)
    }

    #[inline]
    fn has_sample(&self) -> bool {
        self.sampled != Sampled::Never
    }

    /// Whether a sample was taken since [`RttEstimator::probed`], or since the beginning (RFC 8985 section 7.3).
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.sampled == Sampled::Since
    }

    /// A tail loss probe has left.
    pub(crate) fn probed(&mut self) {
        if self.has_sample() {
            self.sampled = Sampled::Before;
        }
    }

    /// The smoothed round-trip time; `None` before the first sample. Microsecond resolution.
    #[inline]
    pub fn srtt(&self) -> Option<Duration> {
        self.has_sample().then(|| Duration::from_micros(u64::from(self.srtt8 >> 3)))
    }

    /// SRTT in microseconds, 0 before the first sample.
    #[inline]
    pub(crate) fn srtt_us(&self) -> u32 {
        self.srtt8 >> 3
    }

    /// The least round-trip time of the window (RACK.min_RTT); `None` before the first sample. Microsecond resolution.
    #[inline]
    pub fn min_rtt(&self) -> Option<Duration> {
        self.has_sample().then(|| Duration::from_micros(u64::from(self.least.us)))
    }

    /// [`RttEstimator::min_rtt`] in microseconds, 0 before the first sample.
    #[inline]
    pub(crate) fn min_rtt_us(&self) -> u32 {
        if self.has_sample() { self.least.us } else { 0 }
    }

    /// When a tail loss probe is due after a transmission or an acknowledgement at `now`: after two round trips and
    /// `ack_delay`, but not after the retransmission time-out (RFC 8985 section 7.2).
    #[inline(always)]
    pub(crate) fn probe_deadline(&self, now: Time, ack_delay: Duration) -> Time {
        let rto = self.rto_us();
        let us = if self.has_sample() {
            u64::from(self.srtt8 >> 2).min(rto) * 1000 + ack_delay.as_nanos() as u64
        } else {
            u64::MAX
        };
        Time::from_nanos(now.as_nanos().saturating_add(us.min(rto * 1000)))
    }

    /// Whether two probes, each after two round trips and `slack` later in all, come before the retransmission time-out
    /// would.
    pub(crate) fn has_time_for_two_probes(&self, slack: Duration) -> bool {
        self.has_sample() && u64::from(self.srtt8 >> 1) + slack.as_micros() as u64 <= self.rto_us()
    }

    /// The round-trip time variation; `None` before the first sample. Microsecond resolution.
    #[inline]
    pub fn rttvar(&self) -> Option<Duration> {
        self.has_sample().then(|| Duration::from_micros(u64::from(self.rttvar4 >> 2)))
    }

    /// The time to arm the retransmission timer with, back-off included, between the configured bounds.
    #[inline]
    pub fn rto(&self) -> Duration {
        Duration::from_micros(self.rto_us())
    }

    /// Whether `ms` are more milliseconds than the RTO has whole ones: a multiplication instead of a division.
    #[inline]
    pub(crate) fn is_exceeded_by(&self, ms: u32) -> bool {
        u64::from(ms) * 1000 > self.rto_us()
    }

    /// When a timer expires that is armed at `now`.
    #[inline]
    pub(crate) fn deadline(&self, now: Time) -> Time {
        Time::from_nanos(now.as_nanos().saturating_add(self.rto_us() * 1000))
    }

    #[inline]
    fn rto_us(&self) -> u64 {
        (u64::from(self.base_us) << self.backoff).min(u64::from(self.max_us))
    }

    /// Doubles the RTO after the timer expired (section 5.5), up to the maximum.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-5
    //# The host MUST set RTO <- RTO * 2 ("back off the timer").
    #[inline]
    pub fn backoff(&mut self) {
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
    }

    /// Ends the back-off of window probes without a sample, because the window has opened. After a retransmission only
    /// a sample ends it (section 5, Karn's rule), even if new data is acknowledged before.
    #[inline]
    pub fn reset_backoff(&mut self) {
        self.backoff = 0;
    }

    /// How many times the timer has expired since the last acknowledgement of new data.
    #[inline]
    pub fn backoff_count(&self) -> u32 {
        u32::from(self.backoff)
    }

    /// The handshake is complete, but its SYN had to be sent again: begins data transmission with an RTO of at least 3
    /// s (section 5.7), until the first sample.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-5
    //# If the timer expires awaiting the ACK of a SYN segment and the TCP implementation is using an RTO less than 3
    //# seconds, the RTO MUST be re-initialized to 3 seconds when data transmission begins (i.e., after the three-way
    //# handshake completes).
    pub fn restart_after_lost_syn(&mut self) {
        self.backoff = 0;
        if !self.has_sample() {
            self.base_us = self.base_us.max(RTO_AFTER_LOST_SYN_US).min(self.max_us);
        }
    }
}

/// The smallest RTO in microseconds, where the largest is `max_us`.
#[inline(always)]
fn least_rto(config: &RttConfig, max_us: u32) -> u32 {
    micros(config.min_rto).max(1).min(max_us)
}

/// Whole microseconds, saturating at 2^32 - 1.
#[inline(always)]
fn micros(d: Duration) -> u32 {
    // Not `as_micros`, which counts in 128 bits.
    if d.as_secs() >= u64::from(u32::MAX / 1_000_000) {
        return u32::try_from(d.as_micros()).unwrap_or(u32::MAX);
    }
    d.as_secs() as u32 * 1_000_000 + d.subsec_micros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn microseconds_saturate() {
        let most = Duration::from_micros(u32::MAX.into());
        for (d, us) in [(Duration::ZERO, 0), (Duration::from_nanos(1_999), 1), (ms(4_293_999), 4_293_999_000)] {
            assert_eq!(micros(d), us);
        }
        assert_eq!(micros(most - Duration::from_micros(1)), u32::MAX - 1);
        assert_eq!([most, most + Duration::from_micros(1), Duration::MAX].map(micros), [u32::MAX; 3]);
    }

    /// An estimator with its configuration, for samples at any time.
    struct Timed(RttEstimator, RttConfig);

    impl Timed {
        fn new(config: RttConfig) -> Timed {
            Timed(RttEstimator::new(&config), config)
        }

        fn sample(&mut self, rtt: Duration) {
            self.one_of(rtt, 1);
        }

        fn one_of(&mut self, rtt: Duration, expected: u32) {
            self.0.sample_one_of(rtt, expected, Time::ZERO, &self.1);
        }
    }

    impl core::ops::Deref for Timed {
        type Target = RttEstimator;
        fn deref(&self) -> &RttEstimator {
            &self.0
        }
    }

    impl core::ops::DerefMut for Timed {
        fn deref_mut(&mut self) -> &mut RttEstimator {
            &mut self.0
        }
    }

    fn estimator() -> Timed {
        Timed::new(RttConfig { floor: RtoFloor::Total, ..RttConfig::default() })
    }

    #[test]
    fn times_a_segment_unless_that_is_sent_again() {
        let mut e = estimator();
        e.start();
        assert!(e.is_timing());
        e.finish(7_000, Time::ZERO, &RttConfig::default());
        assert_eq!((e.srtt(), e.is_timing()), (Some(ms(7)), false));
        let mut e = estimator();
        e.start();
        e.cancel();
        assert!(!e.is_timing() && e.srtt().is_none());
    }

    #[test]
    fn is_small() {
        assert!(size_of::<RttEstimator>() <= 28, "{} bytes", size_of::<RttEstimator>());
    }

    /// The least round trip in milliseconds after these samples: milliseconds, each at a time in seconds.
    fn after(samples: &[(u64, u64)]) -> u32 {
        let (config, mut e) = (RttConfig::default(), estimator());
        for &(at, sample) in samples {
            e.0.sample_one_of(ms(sample), 1, Time::from_secs(at), &config);
        }
        e.min_rtt_us().div_ceil(1000)
    }

    #[test]
    fn the_least_round_trip_counts_for_five_minutes() {
        assert_eq!(after(&[(1000, 50), (1001, 90), (1290, 90)]), 50);
        assert_eq!(after(&[(1000, 50), (1001, 90), (1290, 95), (1310, 90)]), 90, "the path has changed");
        assert_eq!(after(&[(1000, 50), (1010, 60), (1200, 70), (1250, 60), (1310, 90)]), 60, "least of the last half");
        assert_eq!(after(&[(1000, 50), (1200, 60), (1310, 90), (1380, 90), (1470, 95)]), 90, "and that grows old too");
        assert_eq!(after(&[(1000, 50), (1200, 60), (9000, 90)]), 90, "after a long silence only what is new counts");
        assert_eq!(after(&[(1000, 50), (1200, 60), (1250, 40), (1540, 70)]), 40, "each new least begins a window");
        assert_eq!(after(&[(1000, 50), (990, 90)]), 50, "a clock reading that is a little older is no age");
    }

    #[test]
    fn a_sample_is_kept_in_short_to_a_thousandth() {
        for us in (0..30)
            .map(|bit| 1 << bit)
            .flat_map(|us| [us - 1, us, us + 1, us + us / 3])
            .filter(|us| *us <= MAX_SAMPLE_US)
        {
            let back = fine(coarse(us));
            assert!(back <= us && us - back <= us / 1000, "{us} became {back}");
            assert!(coarse(us) <= coarse(us + 1) && coarse(us) < u16::MAX);
        }
    }

    #[test]
    fn without_a_sample_the_rto_is_the_initial_one() {
        let e = estimator();
        assert_eq!((e.srtt(), e.rttvar(), e.rto()), (None, None, ms(1000)));
    }

    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //= type=test
    //# When the first RTT measurement R is made, the host MUST set SRTT <- R RTTVAR <- R/2 RTO <- SRTT + max (G,
    //# K*RTTVAR) where K = 4.
    #[test]
    fn first_sample_sets_srtt_and_half_of_it_as_variation() {
        let mut e = estimator();
        e.sample(ms(100));
        assert_eq!((e.srtt(), e.rttvar(), e.rto()), (Some(ms(100)), Some(ms(50)), ms(300)));
    }

    /// The formulas of section 2.3 worked by hand for the samples 100, 200, 100, 100 ms.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-1
    //= type=test
    //# However, a TCP MUST NOT be more aggressive than the following algorithms allow.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //= type=test
    //# When a subsequent RTT measurement R' is made, a host MUST set RTTVAR <- (1 - beta) * RTTVAR + beta * |SRTT - R'|
    //# SRTT <- (1 - alpha) * SRTT + alpha * R'
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //= type=test
    //# That is, updating RTTVAR and SRTT MUST be computed in the above order.
    //= https://www.rfc-editor.org/rfc/rfc6298#section-2
    //= type=test
    //# After the computation, a host MUST update RTO <- SRTT + max (G, K*RTTVAR)
    #[test]
    fn vector_of_section_2() {
        let expected_us = [(100_000, 50_000), (112_500, 62_500), (110_937, 50_000), (109_570, 40_234)];
        let mut e = estimator();
        for (sample, (srtt, rttvar)) in [100, 200, 100, 100].into_iter().zip(expected_us) {
            e.sample(ms(sample));
            let got = (e.srtt().unwrap().as_micros() as i64, e.rttvar().unwrap().as_micros() as i64);
            assert!((got.0 - srtt).abs() <= 1 && (got.1 - rttvar).abs() <= 1, "{got:?} is not {srtt}, {rttvar}");
            let rto = e.rto().as_micros() as i64;
            assert!((rto - (srtt + 4 * rttvar)).abs() <= 5, "RTO {rto}");
        }
    }

    #[test]
    fn floor_applies_to_the_total_or_to_the_variance() {
        let mut total = estimator();
        let mut variance = Timed::new(RttConfig { floor: RtoFloor::Variance, ..RttConfig::default() });
        for _ in 0..100 {
            total.sample(ms(100));
            variance.sample(ms(100));
        }
        assert_eq!(total.rto(), ms(200));
        assert_eq!(variance.rto(), ms(300));
    }

    //= https://www.rfc-editor.org/rfc/rfc6298#section-4
    //= type=test
    //# However, if the K*RTTVAR term in the RTO calculation equals zero, the variance term MUST be rounded to G seconds
    //# (i.e., use the equation given in step 2.3).
    #[test]
    fn no_variation_counts_as_one_tick_of_the_clock() {
        for floor in [RtoFloor::Total, RtoFloor::Variance] {
            let mut e = Timed::new(RttConfig { min_rto: Duration::ZERO, floor, ..RttConfig::default() });
            e.sample(ms(100));
            e.rttvar4 = 0;
            assert_eq!(e.computed(&e.1), 100_001, "microseconds");
        }
    }

    #[test]
    fn zero_rtt_is_a_sample_and_the_minimum_holds() {
        let mut e = estimator();
        e.sample(Duration::ZERO);
        assert_eq!((e.srtt(), e.rto()), (Some(Duration::ZERO), ms(200)));
    }

    //= https://www.rfc-editor.org/rfc/rfc6298#section-5
    //= type=test
    //# The host MUST set RTO <- RTO * 2 ("back off the timer").
    #[test]
    fn backoff_doubles_to_the_maximum_and_ends_with_a_sample() {
        let mut e = estimator();
        let rtos: Vec<u64> = (0..9)
            .map(|_| {
                let rto = e.rto().as_secs();
                e.backoff();
                rto
            })
            .collect();
        assert_eq!(rtos, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
        assert_eq!(e.backoff_count(), 9);
        e.reset_backoff();
        assert_eq!((e.rto(), e.backoff_count()), (ms(1000), 0));
        e.backoff();
        e.sample(ms(100));
        assert_eq!((e.rto(), e.backoff_count()), (ms(300), 0));
    }

    #[test]
    fn endless_backoff_stays_at_the_maximum() {
        let mut e = estimator();
        (0..1000).for_each(|_| e.backoff());
        assert_eq!(e.rto(), Duration::from_secs(120));
    }

    //= https://www.rfc-editor.org/rfc/rfc6298#section-5
    //= type=test
    //# If the timer expires awaiting the ACK of a SYN segment and the TCP implementation is using an RTO less than 3
    //# seconds, the RTO MUST be re-initialized to 3 seconds when data transmission begins (i.e., after the three-way
    //# handshake completes).
    #[test]
    fn lost_syn_raises_the_initial_rto_until_a_sample() {
        let mut e = estimator();
        e.backoff();
        e.restart_after_lost_syn();
        assert_eq!(e.rto(), ms(3000));
        e.sample(ms(50));
        e.restart_after_lost_syn();
        assert_eq!(e.rto(), ms(200));
    }

    #[test]
    fn many_samples_per_round_trip_move_the_filter_as_one() {
        let (mut one, mut many) = (estimator(), estimator());
        one.sample(ms(100));
        many.sample(ms(100));
        one.sample(ms(180));
        (0..10).for_each(|_| many.one_of(ms(180), 10));
        let difference = one.srtt().unwrap().abs_diff(many.srtt().unwrap());
        assert!(difference < ms(1), "SRTT differs by {difference:?}");
    }

    #[test]
    fn contradictory_bounds_are_put_in_order() {
        let config = RttConfig { min_rto: ms(500), max_rto: ms(100), ..RttConfig::default() };
        let mut e = Timed::new(config);
        assert_eq!(e.rto(), ms(100));
        e.sample(ms(1));
        assert_eq!(e.rto(), ms(100));
    }

    proptest! {
        /// The integers follow the real-number formulas of section 2.3, and the RTO keeps its bounds.
        #[test]
        fn follows_the_formulas(samples in proptest::collection::vec(0u64..90_000_000, 1..200)) {
            let mut e = estimator();
            let (mut srtt, mut rttvar) = (0f64, 0f64);
            for (i, us) in samples.into_iter().enumerate() {
                e.sample(Duration::from_micros(us));
                let r = us as f64;
                if i == 0 {
                    (srtt, rttvar) = (r, r / 2.0);
                } else {
                    rttvar += ((srtt - r).abs() - rttvar) / 4.0;
                    srtt += (r - srtt) / 8.0;
                }
                prop_assert!((e.srtt().unwrap().as_micros() as f64 - srtt).abs() <= 10.0);
                prop_assert!((e.rttvar().unwrap().as_micros() as f64 - rttvar).abs() <= 20.0);
                prop_assert!(e.rto() >= ms(200) && e.rto() <= Duration::from_secs(120));
            }
        }

        /// No sample, however absurd, breaks the bounds or the arithmetic.
        #[test]
        fn bounds_hold_for_any_sample(samples in proptest::collection::vec((any::<u64>(), any::<u32>()), 1..50)) {
            let mut e = estimator();
            for (us, n) in samples {
                e.one_of(Duration::from_micros(us), n);
                prop_assert!(e.rto() >= ms(200) && e.rto() <= Duration::from_secs(120));
            }
        }
    }
}
