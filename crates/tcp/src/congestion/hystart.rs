//! HyStart++ (RFC 9406): leaving the first slow start before it overflows the path's queue.
//!
//! Round trips are counted by sequence number; when the least round-trip time of a round exceeds that of the round
//! before by more than a threshold, a queue is building up, and slow start becomes *conservative* (CSS): it grows at a
//! quarter of the pace. If the delay falls back below its value at that point, the rise was noise and slow start
//! resumes; after five rounds the current window becomes the threshold. Called by [`Controller`](super::Controller)
//! only, from a window of [`LEAST_WINDOW`] segments on. Times are microseconds.
//!
//! What may never happen: a threshold set by fewer than [`SAMPLES`] samples of a round.

use wire::SeqNumber;

/// MIN_RTT_THRESH and MAX_RTT_THRESH (RFC 9406 section 4.3).
const THRESHOLD_US: (u32, u32) = (4_000, 16_000);
/// MIN_RTT_DIVISOR.
const DIVISOR: u32 = 8;
/// N_RTT_SAMPLE.
const SAMPLES: u8 = 8;
/// CSS_GROWTH_DIVISOR.
pub(super) const CSS_GROWTH_DIVISOR: u32 = 4;
/// CSS_ROUNDS.
const CSS_ROUNDS: u8 = 5;
/// Congestion window in segments below which delay is not watched: a round could not yield enough samples.
pub(super) const LEAST_WINDOW: u32 = 16;

/// The conclusion from a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelayVerdict {
    /// Slow start at full pace.
    Grow,
    /// Conservative slow start.
    Conserve,
    /// Congestion avoidance.
    Leave,
}

/// The measurement of rounds; 24 bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct HyStart {
    /// windowEnd: the round ends when this is acknowledged.
    end: Option<SeqNumber>,
    /// lastRoundMinRTT and currentRoundMinRTT; 0 for none yet.
    last: u32,
    current: u32,
    /// cssBaselineMinRtt; 0 while slow start is not conservative.
    baseline: u32,
    samples: u8,
    /// Rounds of conservative slow start.
    rounds: u8,
}

impl HyStart {
    /// A round-trip time of `rtt` was measured by the acknowledgement of everything below `una`, while everything below
    /// `nxt` is sent. The acknowledgement that ends a round is its last sample: the data it acknowledges left in that
    /// round, and in the next round it would hide a rise of the delay.
    pub(super) fn sample(&mut self, rtt: u32, una: SeqNumber, nxt: SeqNumber) -> DelayVerdict {
        let end = *self.end.get_or_insert(nxt);
        let rtt = rtt.max(1);
        self.current = if self.current == 0 { rtt } else { self.current.min(rtt) };
        self.samples = self.samples.saturating_add(1);
        if self.samples >= SAMPLES {
            self.compare();
        }
        if una.ge(end) && self.next_round(nxt) {
            return DelayVerdict::Leave;
        }
        if self.baseline > 0 { DelayVerdict::Conserve } else { DelayVerdict::Grow }
    }

    /// A round begins. True if that was the last one of conservative slow start.
    fn next_round(&mut self, nxt: SeqNumber) -> bool {
        self.end = Some(nxt);
        self.last = self.current;
        self.current = 0;
        self.samples = 0;
        if self.baseline > 0 {
            self.rounds += 1;
        }
        self.rounds >= CSS_ROUNDS
    }

    fn compare(&mut self) {
        if self.baseline > 0 {
            if self.current < self.baseline {
                self.baseline = 0;
                self.rounds = 0;
            }
        } else if self.last > 0 {
            let threshold = (self.last / DIVISOR).clamp(THRESHOLD_US.0, THRESHOLD_US.1);
            if self.current >= self.last.saturating_add(threshold) {
                self.baseline = self.current;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One round of `n` acknowledgements of one segment each, `rtt` after it left; the last verdict. Ten segments have
    /// left by then for the next round.
    fn round(h: &mut HyStart, at: &mut u32, rtt: u32, n: u32) -> DelayVerdict {
        let end = *at + n;
        let mut verdict = DelayVerdict::Grow;
        while *at < end {
            *at += 1;
            let nxt = if *at < end { end } else { end + 10 };
            verdict = h.sample(rtt, SeqNumber(*at), SeqNumber(nxt));
        }
        verdict
    }

    #[test]
    fn a_rise_beyond_the_threshold_conserves_and_five_rounds_leave() {
        let (mut h, mut at) = (HyStart::default(), 0);
        assert_eq!(round(&mut h, &mut at, 80_000, 10), DelayVerdict::Grow);
        assert_eq!(round(&mut h, &mut at, 89_999, 10), DelayVerdict::Grow, "an eighth of 80 ms is 10 ms");
        assert_eq!(round(&mut h, &mut at, 101_300, 10), DelayVerdict::Conserve);
        for _ in 0..3 {
            assert_eq!(round(&mut h, &mut at, 110_000, 10), DelayVerdict::Conserve);
        }
        assert_eq!(round(&mut h, &mut at, 110_000, 9), DelayVerdict::Conserve);
        assert_eq!(round(&mut h, &mut at, 110_000, 1), DelayVerdict::Leave, "the round of the rise and four more");
    }

    #[test]
    fn a_delay_that_falls_back_resumes_slow_start() {
        let (mut h, mut at) = (HyStart::default(), 0);
        round(&mut h, &mut at, 20_000, 10);
        assert_eq!(round(&mut h, &mut at, 30_000, 10), DelayVerdict::Conserve);
        assert_eq!(round(&mut h, &mut at, 29_000, 10), DelayVerdict::Grow);
        assert_eq!(h.rounds, 0);
    }

    #[test]
    fn the_threshold_is_bounded_and_few_samples_decide_nothing() {
        let (mut h, mut at) = (HyStart::default(), 0);
        round(&mut h, &mut at, 100, 10);
        assert_eq!(round(&mut h, &mut at, 4_099, 10), DelayVerdict::Grow, "4 ms at least");
        let (mut h, mut at) = (HyStart::default(), 0);
        round(&mut h, &mut at, 400_000, 10);
        assert_eq!(round(&mut h, &mut at, 416_000, 10), DelayVerdict::Conserve, "16 ms at most");
        let (mut h, mut at) = (HyStart::default(), 0);
        round(&mut h, &mut at, 20_000, 10);
        assert_eq!(round(&mut h, &mut at, 90_000, 7), DelayVerdict::Grow);
    }
}
