//! For how long an acknowledgement waits: quick acknowledgements, dialogues, and the acknowledgement time-out.
//!
//! At the start of a connection acknowledgements leave at once, so that a delay does not hold back the peer's slow
//! start. That is a waste if the user answers the data: the answer carries an acknowledgement too. As in Linux (its
//! ping-pong mode), data that we send within the acknowledgement time-out (ATO) of the peer's data begins a *dialogue*,
//! whatever its segment acknowledges, and in a dialogue no acknowledgement is quick. An acknowledgement whose delay
//! ends before an answer ends the dialogue; quick acknowledgements that are left are quick again. A FIN without data begins a
//! dialogue too, where the user has not closed: its own FIN mostly follows, and carries the acknowledgement.
//!
//! The ATO doubles when a delay ends outside a dialogue, up to the smoothed round trip and within
//! `Config::{delayed_ack, delayed_ack_max}` (Linux: 40 ms and 200 ms), and short gaps between the peer's segments lead
//! it back. Linux lets the ATO itself grow further, also by gaps, and applies the bound to each delay. The round trip
//! is the send side's, which the receive side does not hold when data arrives; a timer holds both, so it grows here
//! only.

use core::time::Duration;

use crate::config::Config;

/// Milliseconds of a unit of the ATO.
const ATO_UNIT: u32 = 2;

/// Nanoseconds of a unit of gaps, as a shift: see `ReceiveWindow::last_data`.
const GAP_SHIFT: u32 = 18;

/// The user answers the peer's data: acknowledgements wait for the answers.
const DIALOGUE: u8 = 0x80;

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckDelay {
    /// Acknowledgements that may leave without delay, at most 127, and [`DIALOGUE`].
    quick: u8,
    /// The ATO beyond `Config::delayed_ack`, in units of 2 ms.
    ato: u8,
}

impl AckDelay {
    pub(crate) fn new(quick: u8) -> AckDelay {
        AckDelay { quick: quick.min(DIALOGUE - 1), ato: 0 }
    }

    /// Whether the next acknowledgement leaves at once.
    #[inline]
    pub(crate) fn is_quick(self) -> bool {
        (1..DIALOGUE).contains(&self.quick)
    }

    /// An acknowledgement of data leaves at once.
    #[inline]
    pub(crate) fn count_quick(&mut self) {
        if self.quick & !DIALOGUE > 0 {
            self.quick -= 1;
        }
    }

    /// The user has chosen: `quick` acknowledgements at once, or none.
    pub(crate) fn set_quick(&mut self, quick: u8) {
        self.quick = quick.min(DIALOGUE - 1);
    }

    /// Data was sent `gap` after the peer's last data: within the ATO it is an answer.
    #[inline]
    pub(crate) fn data_sent(&mut self, gap: Gap, config: &Config) {
        if self.quick & DIALOGUE == 0 && gap.is_shorter_than(self.time(config)) {
            self.begin_dialogue();
        }
    }

    /// The user's answer is expected.
    pub(crate) fn begin_dialogue(&mut self) {
        self.quick |= DIALOGUE;
    }

    /// The peer's data arrived `gap` after the data before it: the ATO goes to twice the gap, by half of the way and not
    /// up.
    #[inline]
    pub(crate) fn data_arrived(&mut self, gap: Gap, config: &Config) {
        if self.ato > 0 {
            self.shorten(gap, config);
        }
    }

    #[cold]
    fn shorten(&mut self, gap: Gap, config: &Config) {
        let least = config.delayed_ack;
        let ato = self.time(config);
        if gap.is_shorter_than(ato) {
            self.ato = self.ato.min(units(ato / 2 + gap.time().max(least / 2), least));
        }
    }

    /// The ATO: for how long an acknowledgement waits.
    #[inline(always)]
    pub(crate) fn time(self, config: &Config) -> Duration {
        if self.ato == 0 {
            return config.delayed_ack;
        }
        config.delayed_ack + Duration::from_millis(u64::from(self.ato) * u64::from(ATO_UNIT))
    }

    /// A delay ended before data carried the acknowledgement. `srtt`: the smoothed round trip.
    pub(crate) fn missed(&mut self, srtt: Option<Duration>, config: &Config) {
        if self.quick & DIALOGUE != 0 {
            self.quick &= !DIALOGUE;
            self.ato = 0;
        } else {
            let most = srtt.unwrap_or(Duration::MAX).min(config.delayed_ack_max);
            self.ato = units((2 * self.time(config)).min(most), config.delayed_ack);
        }
    }
}

/// A time between two events of the connection, to a quarter of a millisecond.
#[derive(Clone, Copy)]
pub(crate) struct Gap {
    /// In units of 2^18 ns, modulo 2^32.
    units: u32,
}

impl Gap {
    #[inline]
    pub(crate) fn new(units: u32) -> Gap {
        Gap { units }
    }

    /// Of two threads, the one with the older clock reading may run later: its gap is negative, and short.
    #[inline]
    fn is_shorter_than(self, time: Duration) -> bool {
        i64::from(self.units.cast_signed()) << GAP_SHIFT < time.as_nanos() as i64
    }

    /// Of a gap that is shorter than some time.
    fn time(self) -> Duration {
        Duration::from_nanos(u64::from(self.units.cast_signed().max(0).unsigned_abs()) << GAP_SHIFT)
    }
}

/// `time` beyond `least` in units of the ATO.
fn units(time: Duration, least: Duration) -> u8 {
    let units = time.saturating_sub(least).as_millis() / u128::from(ATO_UNIT);
    u8::try_from(units).unwrap_or(u8::MAX)
}
