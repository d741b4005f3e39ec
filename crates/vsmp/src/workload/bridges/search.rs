//! The throughput of RFC 2544, section 26.1: the highest rate at which a trial loses no frame, by bisection.
//!
//! The RFC's trials last 60 seconds, in which a ring of 256 frames holds nothing up: a bridge that is too slow by a
//! thousandth loses frames. Trials here last some milliseconds of virtual time, and the rings of eight queues would
//! hold all that such a bridge falls behind in them. So a trial also fails if more frames wait at the end of the load
//! than at half of its time: a longer one would lose them.

use super::{BridgeTrial, Forwarded};
use crate::test_card::PORTS;

/// The precision of the search: where it ends, as a share of the rate.
const RESOLUTION: f64 = 0.005;
/// Frames by which the backlog may grow in half of a trial: those that come and go.
const PLAY: u64 = 8;

/// The result of a search, or of one trial.
#[derive(Clone, Debug)]
pub struct Throughput {
    /// Frames a second, both directions together.
    pub rate: f64,
    /// The trial at that rate.
    pub trial: Forwarded,
    /// Trials of the search.
    pub trials: usize,
}

impl Forwarded {
    /// Whether it lost nothing, and a longer trial would not either.
    pub fn is_free_of_loss(&self) -> bool {
        let [middle, end] = self.backlog;
        // A quarter of a percent of the frames of half a trial: half of the search's precision.
        let play = PLAY.max(self.offered() / 800);
        self.dropped() == 0 && self.offered() == self.delivered() && end <= middle + play
    }
}

impl BridgeTrial {
    /// Frames a second that the wire of a port carries: with preamble and gap a frame takes 20 bytes more.
    pub fn line_rate(&self) -> u64 {
        self.preset.card.megabits * 1_000_000 / (8 * (self.load.bytes as u64 + 20))
    }

    /// Searches the throughput; with [`rate`](super::BridgeLoad::rate), makes one trial at that rate.
    ///
    /// # Errors
    /// See [`Forwarded::check`].
    ///
    /// # Panics
    /// See [`BridgeTrial::simulate`].
    pub fn throughput(&self) -> Result<Throughput, String> {
        let at = |rate| {
            let trial = BridgeTrial { rate, ..self.clone() }.simulate();
            trial.check().map(|()| trial)
        };
        let both = |rate: u64| (rate * PORTS as u64) as f64;
        if let Some(rate) = self.load.rate {
            let trial = at(rate.min(self.line_rate()))?;
            return Ok(Throughput { rate: trial.rate(), trial, trials: 1 });
        }
        let (mut low, mut high) = (0, self.line_rate());
        let first = at(high)?;
        if first.is_free_of_loss() {
            return Ok(Throughput { rate: both(high), trial: first, trials: 1 });
        }
        let (mut found, mut trials) = (None, 1);
        // A bridge forwards about as much as it did when it was overloaded, unless overload makes it slower.
        let guess = (first.rate() / PORTS as f64) as u64;
        let mut guesses = [guess, guess + guess / 50, guess - guess / 50].into_iter();
        while (high - low) as f64 > RESOLUTION * high as f64 && high - low > 1 {
            let rate = guesses.find(|rate| (low + 1..high).contains(rate)).unwrap_or(low.midpoint(high));
            let trial = at(rate)?;
            trials += 1;
            if trial.is_free_of_loss() {
                (low, found) = (rate, Some(trial));
            } else {
                high = rate;
            }
        }
        match found {
            Some(trial) => Ok(Throughput { rate: both(low), trial, trials }),
            None => Err("frames are lost at every rate".to_owned()),
        }
    }
}
