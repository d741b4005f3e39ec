//! The plan of faults of a [`Fault`](super::Fault) device, as values. Its text form is in `text.rs`.
//!
//! A plan has one chain of [`FaultRule`]s for each direction. A frame passes the rules in order, each on the result of the
//! previous one (modified, duplicated, lost). Then comes [`Timing`]: which frames are held back, and the delay of the
//! link. Faults of the device as a whole (full queues, stalls, wake-ups, being unplugged) are [`DeviceFaults`].

use std::fmt;
use std::time::Duration;

/// A probability in parts per million, 0 to 1,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ppm(pub u32);

impl Ppm {
    /// Certainty.
    pub const ONE: Ppm = Ppm(1_000_000);
}

impl fmt::Display for Ppm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000, self.0 % 10_000);
        if rest == 0 {
            return write!(f, "{whole}%");
        }
        let digits = format!("{rest:04}");
        write!(f, "{whole}.{}%", digits.trim_end_matches('0'))
    }
}

/// The two-state loss model of Gilbert (1960) and Elliott (1963): frames pass in the good state, and are lost with
/// probability `loss` in the bad one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Chance per frame of going from the good state to the bad one.
    pub enter: Ppm,
    /// Chance per frame of going back; the mean burst lasts 1 / `leave` frames.
    pub leave: Ppm,
    /// Chance of losing a frame in the bad state.
    pub loss: Ppm,
}

/// Alternates between a good and a bad time, starting with the good one when the device is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Duration of the good time; more than zero.
    pub good: Duration,
    /// Duration of the bad time; more than zero.
    pub bad: Duration,
}

impl Cycle {
    /// If `elapsed` after the start is in a bad time, how much longer it lasts.
    pub fn bad_for(&self, elapsed: Duration) -> Option<Duration> {
        let (good, period) = (self.good.as_nanos(), (self.good + self.bad).as_nanos());
        let phase = elapsed.as_nanos() % period;
        (phase >= good).then(|| Duration::from_nanos((period - phase) as u64))
    }
}

/// One rule of the chain: a possible fault of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultRule {
    /// Frames are lost independently.
    Loss(Ppm),
    /// Frames are lost in bursts.
    Burst(Burst),
    /// Frames with more bytes than this after the link header are dropped silently.
    Mtu(usize),
    /// The link is up, then down, then up: frames sent while it is down are lost.
    Flap(Cycle),
    /// This many bits are flipped, anywhere after the link header: receivers' checksums must detect it.
    Corrupt {
        /// Chance per frame.
        chance: Ppm,
        /// How many bits; at least 1.
        bits: u32,
    },
    /// This many consecutive bytes are replaced by random ones, anywhere after the link header.
    Scramble {
        /// Chance per frame.
        chance: Ppm,
        /// How many bytes; at least 1.
        bytes: u32,
    },
    /// Two words of the data are swapped, so that the checksum stays right: no receiver can notice. The negative
    /// control of every test that compares received with sent data.
    Forge(Ppm),
    /// The frame is truncated.
    Truncate(Ppm),
    /// Random bytes are appended to the frame, as Ethernet pads short ones; not beyond the device's MTU.
    Pad(Ppm),
    /// An ECN-capable packet is marked CE (RFC 3168).
    Mark(Ppm),
    /// The frame is duplicated; each copy passes the rest of the chain on its own.
    Duplicate(Ppm),
}

/// The delay of frames, and their reordering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Chance of a frame being held back until `distance` later ones have passed it.
    pub reorder: Ppm,
    /// How many frames overtake a held one; at least 1.
    pub distance: u32,
    /// Every frame is delayed by a random time up to this; order is not kept.
    pub reorder_within: Duration,
    /// Delay of every frame.
    pub delay: Duration,
    /// A random time up to this is added too; frames keep their order.
    pub jitter: Duration,
    /// Bits per second that the device passes in this direction, all its queues together.
    pub rate: Option<u64>,
    /// Frames that a path holds at most while they wait for `rate` and `delay`; more are dropped.
    pub limit: usize,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            reorder: Ppm(0),
            distance: 1,
            reorder_within: Duration::ZERO,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            limit: 1000,
        }
    }
}

/// Faults of the frames of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The chain, first rule first.
    pub rules: Vec<FaultRule>,
    /// The timing after the chain.
    pub timing: Timing,
}

impl Faults {
    /// No faults, and no limit on frames in transit.
    pub fn none() -> Faults {
        Faults { rules: Vec::new(), timing: Timing { limit: usize::MAX, ..Timing::default() } }
    }

    /// Whether frames may have to be held for some time.
    pub fn holds_frames(&self) -> bool {
        let timing = &self.timing;
        let delays = timing.delay.max(timing.jitter).max(timing.reorder_within) > Duration::ZERO;
        timing.reorder != Ppm(0) || timing.rate.is_some() || delays
    }
}

/// Faults of the device as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFaults {
    /// The transmit queue accepts nothing during the bad time: its user must wait or drop.
    pub full: Option<Cycle>,
    /// The receive queue delivers nothing during the bad time; frames accumulate in the device behind it.
    pub stall: Option<Cycle>,
    /// Chance that the wake-up for a frame is lost: the receiver stays asleep for 20 ms, unless something else wakes
    /// it.
    pub lost_wake: Ppm,
    /// Chance that a receiver about to sleep is woken spuriously.
    pub spurious_wake: Ppm,
    /// The device vanishes.
    pub unplug: Option<Unplug>,
}

/// When a device vanishes, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unplug {
    /// Time from its creation until it is unplugged.
    pub after: Duration,
    /// How long it stays unplugged; `None`: for ever.
    pub away: Option<Duration>,
}

impl Unplug {
    /// Whether the device is unplugged at `age` after its creation.
    pub fn is_out(&self, age: Duration) -> bool {
        age >= self.after && self.away.is_none_or(|away| age < self.after.saturating_add(away))
    }

    /// Its next change after `age`, as an age.
    pub fn next_change(&self, age: Duration) -> Option<Duration> {
        if age < self.after {
            return Some(self.after);
        }
        self.away.map(|away| self.after.saturating_add(away)).filter(|back| age < *back)
    }
}

/// A plan of faults. The default plan changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Faults of received frames.
    pub inbound: Faults,
    /// Faults of transmitted frames.
    pub outbound: Faults,
    /// Faults of the device.
    pub trouble: DeviceFaults,
    /// The seed of the random choices.
    pub seed: u64,
}

impl FaultPlan {
    /// Whether frames may have to be held for some time, in either direction: then no descriptor signals when they are
    /// due.
    pub fn holds_frames(&self) -> bool {
        let trouble = &self.trouble;
        let sleepless = trouble.stall.is_some() || trouble.lost_wake != Ppm(0) || trouble.unplug.is_some();
        sleepless || self.inbound.holds_frames() || self.outbound.holds_frames()
    }
}
