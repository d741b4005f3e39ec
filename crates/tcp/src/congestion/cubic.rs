//! CUBIC's congestion avoidance: RFC 9438 sections 4.1 to 4.8, in integers.
//!
//! After a cut the window follows W(t) = C * (t - K)^3 + W_max, where t is the time in congestion avoidance and K the
//! time after which the curve regains W_max; where an ideal Reno flow would be faster, the window follows that flow
//! instead (the Reno-friendly region). Called by [`Controller`](super::Controller) only.
//!
//! Times are milliseconds in 32 bits, windows bytes; the curve is computed in 64 bits, and fractions of a byte are
//! carried from one acknowledgement to the next, so that small acknowledgements of a large window do not vanish. What
//! may never happen: growth beyond the bytes acknowledged, or counting time in which the window was not used.

use core::time::Duration;

use observe::Time;

use super::hystart::HyStart;
use super::{Acked, CongestionWindow};

/// beta_cubic = 7/10: the share of the flight kept after a loss (section 4.6).
const BETA: (u64, u64) = (7, 10);

/// (1 + beta_cubic) / 2 = 17/20: the share of W_max kept by fast convergence (section 4.7).
const FAST_CONVERGENCE: (u64, u64) = (17, 20);

/// alpha_cubic = 3 * (1 - beta) / (1 + beta) = 9/17 (section 4.3), as numerator over [`ALPHA_UNIT`].
const ALPHA: u64 = 9;

/// Denominator of alpha_cubic; alpha = 1 is `ALPHA_UNIT / ALPHA_UNIT`.
const ALPHA_UNIT: u64 = 17;

/// The curve is not followed further than this from its plateau, ms (17 minutes); the cube then fits 64 bits.
const MAX_OFFSET_MS: u64 = 1 << 20;

/// CUBIC's state: 64 bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    /// Remainder of `w_est`, in units of 1 / (17 * cwnd) bytes.
    w_est_rest: u64,
    /// Beginning of this stage of congestion avoidance, ms; moved forward by the time that does not count.
    epoch: u32,
    /// When the last acknowledgement arrived, ms.
    last_ack: u32,
    /// W_max: the window before the last cut, bytes; 0 for none.
    w_max: u32,
    /// K: from the beginning of the stage to the plateau, ms.
    k: u32,
    /// W_est: the window of a Reno flow with the same average, bytes.
    w_est: u32,
    /// cwnd_prior: the window at the last cut, bytes; W_est grows as Reno from there on.
    cwnd_prior: u32,
    /// A stage of congestion avoidance has begun.
    running: bool,
    /// The end of the first slow start.
    pub(super) hystart: HyStart,
}

impl Cubic {
    /// The threshold after a loss with `flight` bytes outstanding, without its lower bound (sections 4.6 and 4.7).
    pub(super) fn threshold(&mut self, window: &CongestionWindow, flight: u32) -> u32 {
        self.w_max = if window.cwnd < self.w_max { scaled(window.cwnd, FAST_CONVERGENCE) } else { window.cwnd };
        self.cwnd_prior = window.cwnd;
        self.end_epoch();
        scaled(flight, BETA)
    }

    /// After a time-out the next stage starts from its own window, with K = 0 (section 4.8).
    pub(super) fn forget(&mut self) {
        self.w_max = 0;
        self.end_epoch();
    }

    /// The next acknowledgement in congestion avoidance begins a new stage.
    pub(super) fn end_epoch(&mut self) {
        self.running = false;
    }

    /// An acknowledgement arrived: time counts only while the window was the limit (section 5.8), and a silence counts
    /// as two round trips at most, because the window was not probed during it.
    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.2
    //# The elapsed time _t_ in Figure 1 MUST NOT include periods during which _cwnd_ has not been updated due to
    //# application-limited behavior (see Section 5.8).
    pub(super) fn advance_clock(&mut self, srtt: Option<Duration>, now: Time, limited: bool) {
        let now = millis(now);
        if self.running {
            let gap = now.wrapping_sub(self.last_ack);
            let counted = if limited { gap.min(2 * round_trip_ms(srtt) + 10) } else { 0 };
            self.epoch = self.epoch.wrapping_add(gap - counted);
        }
        self.last_ack = now;
    }

    /// Grows the window for an acknowledgement in congestion avoidance (sections 4.2 to 4.5).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
    //# An endpoint MAY implement such alternative algorithms provided that the algorithms are conformant with the TCP
    //# specifications from the IETF Standards Track as described in RFC 2914, RFC 5033 [7], and RFC 8961 [15] (MAY-18).
    pub(super) fn grow(&mut self, window: &mut CongestionWindow, ack: &Acked) {
        let now = millis(ack.now);
        if !self.running {
            self.begin_epoch(window, now);
        }
        self.grow_estimate(window, ack.bytes);
        let t = now.wrapping_sub(self.epoch);
        if self.curve(window.mss(), t) < self.w_est {
            window.set_cwnd(window.cwnd.max(self.w_est));
            return;
        }
        let cwnd = window.cwnd;
        let ahead = t.saturating_add(round_trip_ms(ack.srtt));
        let target = self.curve(window.mss(), ahead).clamp(cwnd, cwnd.saturating_add(cwnd / 2));
        //= https://www.rfc-editor.org/rfc/rfc9438#section-4.4
        //# In this region, _cwnd_ MUST be incremented by target - cwnd / cwnd for each received new ACK, where _target_
        //# is calculated as described in Section 4.2.
        //= https://www.rfc-editor.org/rfc/rfc9438#section-4.5
        //# In this region, _cwnd_ MUST be incremented by target - cwnd / cwnd for each received new ACK, where _target_
        //# is calculated as described in Section 4.2.
        let earned = u64::from(target - cwnd) * u64::from(ack.bytes.min(cwnd)) + u64::from(window.credit);
        window.credit = (earned % u64::from(cwnd)) as u32;
        window.set_cwnd(cwnd.saturating_add((earned / u64::from(cwnd)) as u32));
    }

    fn begin_epoch(&mut self, window: &mut CongestionWindow, now: u32) {
        if self.w_max <= window.cwnd {
            self.w_max = window.cwnd;
            self.k = 0;
        } else {
            self.k = plateau_ms(self.w_max - window.cwnd, window.mss());
        }
        self.w_est = window.cwnd;
        self.w_est_rest = 0;
        window.credit = 0;
        self.epoch = now;
        self.last_ack = now;
        self.running = true;
    }

    /// W_est += alpha * segments_acked / cwnd segments (section 4.3).
    fn grow_estimate(&mut self, window: &CongestionWindow, acked: u32) {
        let alpha = if self.w_est >= self.cwnd_prior { ALPHA_UNIT } else { ALPHA };
        let unit = ALPHA_UNIT * u64::from(window.cwnd);
        // An acknowledgement of more than a window, which slow start can leave, counts as one window.
        let earned = u64::from(acked.min(window.cwnd)) * u64::from(window.mss()) * alpha + self.w_est_rest;
        self.w_est = self.w_est.saturating_add((earned / unit) as u32);
        self.w_est_rest = earned % unit;
    }

    /// W_cubic(t) in bytes: C * (t - K)^3 + W_max with C = 0.4 segments per second cubed (section 4.2).
    fn curve(&self, mss: u32, t: u32) -> u32 {
        let offset = u64::from(t.abs_diff(self.k)).min(MAX_OFFSET_MS);
        // 0.4 * mss * (offset / 1000)^3, divided in two steps to stay within 64 bits.
        let bytes = offset.pow(3) / 100_000 * (4 * u64::from(mss)) / 100_000;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if t < self.k { self.w_max.saturating_sub(bytes) } else { self.w_max.saturating_add(bytes) }
    }
}

/// K in ms: the cube root of (W_max - cwnd) / C, both in segments (section 4.2, equation 2).
fn plateau_ms(below: u32, mss: u32) -> u32 {
    // below / mss / 0.4 s^3, and 10^9 ms^3 to the s^3; 2^30 * 2.5 * 10^9 is below 2^62.
    cube_root(u64::from(below) * 2_500_000_000 / u64::from(mss))
}

/// The largest integer whose cube does not exceed `n`, below 2^63: one binary digit per step, from the highest.
fn cube_root(n: u64) -> u32 {
    let mut root = 0u64;
    for bit in (0..21).rev() {
        let candidate = root | (1 << bit);
        if candidate * candidate * candidate <= n {
            root = candidate;
        }
    }
    root as u32
}

#[inline]
fn scaled(bytes: u32, (numerator, denominator): (u64, u64)) -> u32 {
    (u64::from(bytes) * numerator / denominator) as u32
}

/// Milliseconds of `time`, modulo 2^32 (49 days); only differences matter.
#[inline]
fn millis(time: Time) -> u32 {
    time.as_millis() as u32
}

/// The smoothed round-trip time in whole ms, 1 s before the first sample, at most a minute.
#[inline]
fn round_trip_ms(srtt: Option<Duration>) -> u32 {
    srtt.map_or(1_000, |rtt| (rtt.as_micros() / 1_000).min(60_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::super::{Controller, Kind};
    use super::*;
    use proptest::prelude::*;

    const MSS: u32 = 1460;

    /// RFC 9438 in real numbers, one acknowledgement of one segment at a time; windows in segments, times in seconds.
    struct Reference {
        cwnd: f64,
        w_max: f64,
        w_est: f64,
        cwnd_prior: f64,
        k: f64,
        epoch: f64,
    }

    impl Reference {
        fn after_cut(cwnd_prior: f64, w_max: f64, cwnd: f64, epoch: f64) -> Reference {
            let k = ((w_max - cwnd) / 0.4).cbrt();
            Reference { cwnd, w_max, w_est: cwnd, cwnd_prior, k, epoch }
        }

        fn ack(&mut self, now: f64, rtt: f64) {
            let alpha = if self.w_est >= self.cwnd_prior { 1.0 } else { 3.0 * 0.3 / 1.7 };
            self.w_est += alpha / self.cwnd;
            let curve = |t: f64| 0.4 * (t - self.k).powi(3) + self.w_max;
            let t = now - self.epoch;
            if curve(t) < self.w_est {
                self.cwnd = self.cwnd.max(self.w_est);
            } else {
                let target = curve(t + rtt).clamp(self.cwnd, 1.5 * self.cwnd);
                self.cwnd += (target - self.cwnd) / self.cwnd;
            }
        }
    }

    /// Runs controller and reference side by side for `seconds` after a cut at `segments`, on a path of `rtt_us`;
    /// returns the largest relative difference between the windows, and the final window in segments.
    fn compare(segments: u32, rtt_us: u64, seconds: u64) -> (f64, f64) {
        let rtt = Duration::from_micros(rtt_us);
        let start = Time::from_secs(5);
        let mut c = Controller::new(Kind::Cubic, MSS, segments * MSS);
        c.on_congestion(segments * MSS, start);
        c.on_recovery_exit(u32::MAX, start);
        let cut = f64::from(c.cwnd()) / f64::from(MSS);
        let mut reference = Reference::after_cut(f64::from(segments), f64::from(segments), cut, 5.0);
        let mut now = start;
        let mut worst = 0f64;
        while now < start + Duration::from_secs(seconds) {
            // One acknowledgement per segment of the window, spread over the round trip.
            let gap_ns = (u128::from(rtt_us) * 1000 * u128::from(MSS) / u128::from(c.cwnd())) as u64;
            c.on_ack(MSS, c.cwnd(), Some(rtt), now, true);
            reference.ack(now.as_nanos() as f64 / 1e9, rtt.as_secs_f64());
            let got = f64::from(c.cwnd()) / f64::from(MSS);
            worst = worst.max((got - reference.cwnd).abs() / reference.cwnd);
            now += Duration::from_nanos(gap_ns.max(1));
        }
        (worst, f64::from(c.cwnd()) / f64::from(MSS))
    }

    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.4
    //= type=test
    //# In this region, _cwnd_ MUST be incremented by target - cwnd / cwnd for each received new ACK, where _target_ is
    //# calculated as described in Section 4.2.
    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.5
    //= type=test
    //# In this region, _cwnd_ MUST be incremented by target - cwnd / cwnd for each received new ACK, where _target_ is
    //# calculated as described in Section 4.2.
    #[test]
    fn follows_the_reference_within_one_per_cent() {
        for (segments, rtt_us, seconds) in [
            (10, 100_000, 60),
            (100, 100_000, 30),
            (1000, 37_300, 20),
            (5000, 80_000, 20),
            (300, 10_000, 10),
            (64, 900, 4),
        ] {
            let (worst, reached) = compare(segments, rtt_us, seconds);
            assert!(worst < 0.01, "{segments} segments, {rtt_us} us: off by {:.3} %", worst * 100.0);
            assert!(reached > f64::from(segments), "{segments} segments, {rtt_us} us: only reached {reached}");
        }
    }

    /// Section 4.2: the window regains W_max after K seconds, having grown fast at first and hardly at all at the end.
    #[test]
    fn the_curve_is_concave_up_to_the_plateau_and_convex_after_it() {
        let cubic = Cubic { w_max: 1000 * MSS, k: plateau_ms(300 * MSS, MSS), ..Cubic::default() };
        let k = (300f64 / 0.4).cbrt();
        assert_eq!(cubic.k, (k * 1000.0) as u32);
        assert!(cubic.curve(MSS, 0).abs_diff(700 * MSS) < MSS);
        assert_eq!(cubic.curve(MSS, cubic.k), 1000 * MSS);
        let at = |ticks_of_2_18_ns: u32| cubic.curve(MSS, cubic.k / 4 * ticks_of_2_18_ns);
        let rises: Vec<u32> = (0..8).map(|q| at(q + 1) - at(q)).collect();
        assert!(rises[..4].is_sorted_by(|a, b| a > b) && rises[4..].is_sorted_by(|a, b| a < b), "{rises:?}");
    }

    #[test]
    fn fast_convergence_gives_way_when_the_window_shrinks() {
        let mut c = Controller::new(Kind::Cubic, MSS, 100 * MSS);
        c.on_congestion(100 * MSS, Time::ZERO);
        c.on_recovery_exit(u32::MAX, Time::ZERO);
        c.on_congestion(70 * MSS, Time::ZERO);
        let cubic = c.curve.as_ref().expect("a stage of congestion avoidance");
        assert_eq!(cubic.w_max, 70 * MSS / 20 * 17);
        assert_eq!(cubic.cwnd_prior, 70 * MSS);
    }

    /// Section 4.8: after a time-out the first stage of congestion avoidance starts on the plateau of its own window.
    #[test]
    fn after_a_timeout_the_curve_starts_at_its_plateau() {
        let mut c = Controller::new(Kind::Cubic, MSS, 100 * MSS);
        c.on_timeout(100 * MSS, Time::ZERO);
        c.on_recovery_exit(u32::MAX, Time::ZERO);
        let now = Time::from_secs(1);
        while c.in_slow_start() {
            c.on_ack(MSS, c.cwnd(), None, now, true);
        }
        assert_eq!(c.cwnd(), 70 * MSS);
        c.on_ack(MSS, c.cwnd(), None, now, true);
        let cubic = c.curve.as_ref().expect("a stage of congestion avoidance");
        assert_eq!((cubic.k, cubic.w_max), (0, 70 * MSS));
    }

    /// Section 5.8: ten idle seconds do not move the window along the curve.
    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.2
    //= type=test
    //# The elapsed time _t_ in Figure 1 MUST NOT include periods during which _cwnd_ has not been updated due to
    //# application-limited behavior (see Section 5.8).
    #[test]
    fn time_in_which_the_window_is_not_used_does_not_count() {
        let run = |idle_secs: u64, acks_while_idle: bool| {
            let rtt = Some(Duration::from_millis(50));
            let mut c = Controller::new(Kind::Cubic, MSS, 100 * MSS);
            c.on_congestion(100 * MSS, Time::ZERO);
            c.on_recovery_exit(u32::MAX, Time::ZERO);
            let mut now = Time::ZERO;
            (0..100).for_each(|_| {
                now += Duration::from_millis(10);
                c.on_ack(5 * MSS, c.cwnd(), rtt, now, true);
            });
            for _ in 0..idle_secs * 10 {
                now += Duration::from_millis(100);
                if acks_while_idle {
                    c.on_ack(MSS, MSS, rtt, now, false);
                }
            }
            (0..100).for_each(|_| {
                now += Duration::from_millis(10);
                c.on_ack(5 * MSS, c.cwnd(), rtt, now, true);
            });
            c.cwnd()
        };
        let busy = run(0, false);
        assert_eq!(run(10, true), busy);
        assert!(run(10, false).abs_diff(busy) < 2 * MSS, "silence counts as at most two round trips");
    }

    /// Section 4.3: on short paths CUBIC is at least as fast as Reno.
    #[test]
    fn short_paths_are_reno_friendly() {
        let mut cubic = Controller::new(Kind::Cubic, MSS, 20 * MSS);
        let mut reno = Controller::new(Kind::NewReno, MSS, 20 * MSS);
        let rtt = Some(Duration::from_millis(1));
        for c in [&mut cubic, &mut reno] {
            c.on_congestion(20 * MSS, Time::ZERO);
            c.on_recovery_exit(u32::MAX, Time::ZERO);
            let mut now = Time::ZERO;
            for _ in 0..60 {
                now += Duration::from_millis(1);
                (0..c.cwnd() / MSS).for_each(|_| c.on_ack(MSS, c.cwnd(), rtt, now, true));
            }
        }
        assert!(cubic.cwnd() > 30 * MSS, "{}", cubic.cwnd());
        assert!(cubic.cwnd() * 10 > reno.cwnd() * 8, "{} against {}", cubic.cwnd(), reno.cwnd());
    }

    #[test]
    fn small_acknowledgements_of_a_large_window_do_not_vanish() {
        let grow = |step: u32| {
            let mut c = Controller::new(Kind::Cubic, MSS, 10_000 * MSS);
            c.on_congestion(10_000 * MSS, Time::ZERO);
            c.on_recovery_exit(u32::MAX, Time::ZERO);
            let before = c.cwnd();
            let mut sent = 0;
            while sent < 1000 * MSS {
                c.on_ack(step, c.cwnd(), Some(Duration::from_millis(100)), Time::ZERO, true);
                sent += step;
            }
            f64::from(c.cwnd() - before)
        };
        let (whole, tenth) = (grow(MSS), grow(MSS / 10));
        assert!(whole > 0.0 && (whole - tenth).abs() < whole * 0.01, "{whole} against {tenth}");
    }

    proptest! {
        #[test]
        fn cube_roots_are_exact(n in 0u64..1 << 63) {
            let root = u128::from(cube_root(n));
            let n = u128::from(n);
            prop_assert!(root.pow(3) <= n && (n < (root + 1).pow(3) || root == (1 << 21) - 1));
        }
    }
}
