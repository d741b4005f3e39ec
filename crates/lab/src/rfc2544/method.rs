//! The tests of RFC 2544, section 26: their trials and the conclusions from them.
//!
//! Rates are frames a second of one port, and both ports are offered the same at the same time, unless a name says `total`.
//! There is no clock and no bridge here: a trial is a call of [`TrialBed`].

use std::io;

use super::line::{GAP, Offer, Pace, TrialCount};

/// The system on which trials are run.
pub trait TrialBed {
    /// Runs a trial to its end.
    ///
    /// # Errors
    /// The trial did not end.
    fn trial(&mut self, offer: &Offer) -> io::Result<TrialCount>;
}

/// The precision of the tests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Seconds in which frames are due, in a trial.
    pub trial_s: f64,
    /// Relative precision at which the search ends.
    pub resolution: f64,
    /// A rate counts as free of loss if one of this many trials is. 1 is the RFC's rule.
    pub attempts: u32,
    /// Bits a second of a port's line; `None`: as fast as memory.
    pub line_bits: Option<f64>,
    /// Maximum duration of a burst on the line, in seconds. The RFC uses 2.
    pub burst_s: f64,
}

impl Limits {
    /// Those of `heddle rfc2544` and of the papers' tables, on a machine whose threads lose their processors now and then.
    pub const USUAL: Limits = Limits { trial_s: 0.02, resolution: 0.01, attempts: 4, line_bits: None, burst_s: 2.0 };
}

/// Longest burst that is tried; a longer one would measure a rate.
pub const LONGEST_BURST: u64 = 1 << 20;

/// The result of the search for the throughput.
#[derive(Clone, Debug, PartialEq)]
pub struct Throughput {
    /// The highest rate at which a trial was free of loss.
    pub rate: f64,
    /// The trial at that rate.
    pub trial: TrialCount,
    /// The highest rate that was considered: the line's, or slightly more than the bridge ever took.
    pub highest: f64,
    /// Frames a second that arrived, both directions together, when the rings were never empty. A handler that drains its
    /// ring before it forwards then forwards next to nothing: receive livelock.
    pub overload_total: f64,
    /// Trials that lost frames at a rate at which another did not.
    pub repeated: u32,
}

/// Share of the offered frames that were lost at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossAt {
    /// Percent of the highest rate.
    pub percent: u32,
    /// The offered rate.
    pub rate: f64,
    /// Share of the frames, 0 to 1.
    pub loss: f64,
}

impl Limits {
    /// Frames a second that a line carries at most.
    pub fn line_rate(&self, frame_bytes: usize) -> Option<f64> {
        self.line_bits.map(|bits| bits / (8 * (frame_bytes + GAP)) as f64)
    }

    fn at(&self, frame_bytes: usize, rate: f64) -> Offer {
        let frames = ((rate * self.trial_s).round() as u64).max(1);
        Offer::new(frame_bytes, frames, Pace::At(rate))
    }

    /// Runs trials at a rate until one is free of loss. Returns it and the number of trials before it; if none is, the
    /// best one as `Err`.
    fn attempt(&self, bed: &mut dyn TrialBed, offer: &Offer) -> io::Result<(Result<TrialCount, TrialCount>, u32)> {
        let mut best: Option<TrialCount> = None;
        for before in 0..self.attempts.max(1) {
            let trial = bed.trial(offer)?;
            if trial.lost() == 0 {
                return Ok((Ok(trial), before));
            }
            if best.as_ref().is_none_or(|best| trial.lost() < best.lost()) {
                best = Some(trial);
            }
        }
        Ok((Err(best.unwrap_or_default()), 0))
    }

    /// Section 26.1: the highest rate at which as many frames arrive as were offered, by bisection.
    ///
    /// # Errors
    /// As [`TrialBed::trial`].
    pub fn throughput(&self, bed: &mut dyn TrialBed, frame_bytes: usize) -> io::Result<Throughput> {
        let overload = self.overload(bed, frame_bytes)?;
        let line = self.line_rate(frame_bytes).unwrap_or(f64::INFINITY);
        // A bridge cannot forward frames that it does not take from its rings.
        let taken = overload.taken as f64 / overload.seconds.max(1e-9) / super::line::PORTS as f64;
        let highest = line.min(taken * 1.25).max(1.0);
        let overload_total = overload.rate();
        let mut found = Throughput { rate: 0.0, trial: TrialCount::default(), highest, overload_total, repeated: 0 };
        let mut high = highest;
        let mut rate = highest;
        while high > 1.0 && high - found.rate > self.resolution * high {
            let (outcome, before) = self.attempt(bed, &self.at(frame_bytes, rate))?;
            match outcome {
                Ok(trial) => {
                    found.repeated += before;
                    (found.rate, found.trial) = (rate, trial);
                }
                Err(_) => high = rate,
            }
            rate = f64::midpoint(found.rate, high);
        }
        Ok(found)
    }

    /// A trial in which the rings are never empty.
    fn overload(&self, bed: &mut dyn TrialBed, frame_bytes: usize) -> io::Result<TrialCount> {
        let mut frames = 1000;
        loop {
            let trial = bed.trial(&Offer::new(frame_bytes, frames, Pace::AsTaken))?;
            if trial.seconds >= self.trial_s * 0.5 || frames >= 1 << 32 {
                return Ok(trial);
            }
            let wanted = frames as f64 * self.trial_s / trial.seconds.max(1e-9);
            // The first frames arrive slowly, so the rate is not raised at once to its estimate.
            frames = (wanted as u64).clamp(frames + 1, frames * 16);
        }
    }

    /// Section 26.3: the loss at 100 %, 90 %, ... of the highest rate, until two trials in a row lose nothing.
    ///
    /// # Errors
    /// As [`TrialBed::trial`].
    pub fn loss_rates(&self, bed: &mut dyn TrialBed, frame_bytes: usize, highest: f64) -> io::Result<Vec<LossAt>> {
        let mut found: Vec<LossAt> = Vec::new();
        for percent in (1..=10).rev().map(|tenth| tenth * 10) {
            let rate = highest * f64::from(percent) / 100.0;
            let trial = bed.trial(&self.at(frame_bytes, rate))?;
            let loss = trial.lost() as f64 / (trial.offered.max(1)) as f64;
            found.push(LossAt { percent, rate, loss });
            if found.iter().rev().take(2).filter(|at| at.loss == 0.0).count() == 2 {
                break;
            }
        }
        Ok(found)
    }

    /// Section 26.4: the longest burst, in frames to each port, of which none is lost; at the line's rate, or, without a
    /// line, all at once.
    ///
    /// # Errors
    /// As [`TrialBed::trial`].
    pub fn back_to_back(&self, bed: &mut dyn TrialBed, frame_bytes: usize) -> io::Result<u64> {
        let line = self.line_rate(frame_bytes).unwrap_or(f64::INFINITY);
        let (pace, most) = (Pace::At(line), ((line * self.burst_s) as u64).clamp(1, LONGEST_BURST));
        let mut passes =
            |frames| -> io::Result<bool> { Ok(self.attempt(bed, &Offer::new(frame_bytes, frames, pace))?.0.is_ok()) };
        let (mut longest, mut high) = (0, most.min(64));
        while passes(high)? {
            if high == most {
                return Ok(most);
            }
            (longest, high) = (high, (high * 2).min(most));
        }
        while high - longest > 1 + (longest as f64 * self.resolution) as u64 {
            let middle = longest + (high - longest) / 2;
            if passes(middle)? { longest = middle } else { high = middle }
        }
        Ok(longest)
    }

    /// Section 26.2: a trial at the throughput. The RFC's result is the mean over repetitions, which is the caller's.
    ///
    /// # Errors
    /// As [`TrialBed::trial`].
    pub fn latency(&self, bed: &mut dyn TrialBed, frame_bytes: usize, rate: f64) -> io::Result<TrialCount> {
        let (outcome, _) = self.attempt(bed, &self.at(frame_bytes, rate.max(1.0)))?;
        Ok(match outcome {
            Ok(trial) | Err(trial) => trial,
        })
    }
}

/// The given percentile of sorted values.
pub fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let at = (sorted.len() * percent / 100).min(sorted.len().checked_sub(1)?);
    sorted.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bridge that forwards up to a rate, and buffers a number of frames of a burst. If `disturbed`, it loses a frame
    /// in two trials of three.
    struct Model {
        capacity: f64,
        room: u64,
        disturbed: bool,
        trials: u32,
    }

    impl TrialBed for Model {
        fn trial(&mut self, offer: &Offer) -> io::Result<TrialCount> {
            self.trials += 1;
            let offered = 2 * offer.frames;
            let (rate, lost) = match offer.pace {
                Pace::AsTaken => (self.capacity, 0),
                Pace::At(rate) if rate <= self.capacity => {
                    (rate, u64::from(self.disturbed && !self.trials.is_multiple_of(3)))
                }
                Pace::At(rate) => {
                    let over = (offer.frames as f64 * (1.0 - self.capacity / rate)) as u64;
                    (rate, 2 * over.saturating_sub(self.room))
                }
            };
            let seconds = offer.frames as f64 / rate;
            Ok(TrialCount { offered, taken: offered, arrived: offered - lost, seconds, ..TrialCount::default() })
        }
    }

    const LIMITS: Limits = Limits { trial_s: 0.01, resolution: 0.01, attempts: 1, line_bits: None, burst_s: 2.0 };

    fn model() -> Model {
        Model { capacity: 3e6, room: 0, disturbed: false, trials: 0 }
    }

    #[test]
    fn the_search_finds_the_rate_to_its_resolution() {
        let found = LIMITS.throughput(&mut model(), 64).unwrap();
        assert!(found.rate <= 3e6 && found.rate > 3e6 * 0.98, "{}", found.rate);
        assert_eq!((found.trial.lost(), found.overload_total, found.repeated), (0, 6e6, 0));
    }

    /// NetBSD's handler that drains the ring: under overload it forwards almost none of the frames that it takes.
    #[test]
    fn a_bridge_that_drowns_in_overload_has_a_throughput() {
        struct Drowning(Model);
        impl TrialBed for Drowning {
            fn trial(&mut self, offer: &Offer) -> io::Result<TrialCount> {
                let trial = self.0.trial(offer)?;
                let arrived = if offer.pace == Pace::AsTaken { 256 } else { trial.arrived };
                Ok(TrialCount { arrived, ..trial })
            }
        }
        let found = LIMITS.throughput(&mut Drowning(model()), 64).unwrap();
        assert!(found.rate > 3e6 * 0.98 && found.overload_total < 1e5, "{found:?}");
    }

    #[test]
    fn a_line_is_the_limit_of_a_fast_bridge() {
        let limits = Limits { line_bits: Some(1e9), ..LIMITS };
        let mut bed = model();
        let found = limits.throughput(&mut bed, 64).unwrap();
        // 1 488 095 frames of 64 bytes a second: the well-known rate of gigabit Ethernet.
        assert_eq!(found.rate.round(), 1_488_095.0);
        assert!(bed.trials < 6, "the line's rate is tried first");
        assert_eq!(limits.back_to_back(&mut bed, 64).unwrap(), LONGEST_BURST);
    }

    #[test]
    fn disturbed_trials_are_repeated_if_so_said() {
        let mut bed = Model { disturbed: true, ..model() };
        let found = Limits { attempts: 3, ..LIMITS }.throughput(&mut bed, 64).unwrap();
        assert!(found.rate > 3e6 * 0.98 && found.repeated > 0, "{found:?}");
        let mut bed = Model { disturbed: true, ..model() };
        assert!(LIMITS.throughput(&mut bed, 64).unwrap().rate < 3e6 * 0.9, "the RFC's rule");
    }

    #[test]
    fn a_bridge_that_forwards_nothing_has_no_throughput() {
        struct Broken;
        impl TrialBed for Broken {
            fn trial(&mut self, offer: &Offer) -> io::Result<TrialCount> {
                Ok(TrialCount { offered: 2 * offer.frames, seconds: 1.0, ..TrialCount::default() })
            }
        }
        assert_eq!(LIMITS.throughput(&mut Broken, 64).unwrap().rate, 0.0);
        assert_eq!(LIMITS.back_to_back(&mut Broken, 64).unwrap(), 0);
    }

    #[test]
    fn loss_is_measured_down_to_two_rates_without() {
        let losses = LIMITS.loss_rates(&mut model(), 64, 4e6).unwrap();
        let percent: Vec<u32> = losses.iter().map(|at| at.percent).collect();
        assert_eq!(percent, [100, 90, 80, 70, 60]);
        assert!((losses[0].loss - 0.25).abs() < 0.001 && losses[2].loss > 0.0 && losses[3].loss == 0.0, "{losses:?}");
    }

    #[test]
    fn a_burst_is_as_long_as_the_room_for_it() {
        let longest = LIMITS.back_to_back(&mut Model { room: 1000, ..model() }, 64).unwrap();
        assert!((990..=1000).contains(&longest), "{longest}");
    }

    #[test]
    fn percentiles() {
        let sorted: Vec<u64> = (0..100).collect();
        assert_eq!([0, 50, 99, 100].map(|percent| percentile(&sorted, percent)), [0, 50, 99, 99].map(Some));
        assert_eq!(percentile(&[], 50), None);
    }
}
