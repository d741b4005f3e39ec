//! What goes wrong: the plan of a [`Fault`](super::Fault) device, as values and as text.
//!
//! The text form is a list of words with their values, in any order:
//! `loss 1% reorder 2% distance 5 delay 5ms jitter 1ms seed 7`. [`FaultPlan`] prints itself in the same form, and what
//! it prints parses to an equal plan.

use std::fmt;
use std::str::FromStr;
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

/// Which frames a plan applies to, as seen from the stack that owns the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Received frames only.
    In,
    /// Transmitted frames only.
    Out,
    /// All frames.
    #[default]
    Both,
}

impl Direction {
    /// Whether received frames are meant.
    pub fn includes_in(self) -> bool {
        self != Direction::Out
    }

    /// Whether transmitted frames are meant.
    pub fn includes_out(self) -> bool {
        self != Direction::In
    }
}

/// A plan of faults. The default plan changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Chance of losing a frame, each frame for itself.
    pub loss: Ppm,
    /// Losses that come in bursts, besides `loss`.
    pub burst: Option<Burst>,
    /// Chance of a frame arriving twice.
    pub duplicate: Ppm,
    /// Chance of a frame being held back until `distance` later ones have passed it.
    pub reorder: Ppm,
    /// How many frames overtake a held one; at least 1.
    pub distance: u32,
    /// Every frame is delayed by a random time up to this, without regard to order.
    pub reorder_within: Duration,
    /// Added to every frame's way.
    pub delay: Duration,
    /// A random time up to this is added too; frames keep their order.
    pub jitter: Duration,
    /// Bits per second that the device passes, all its queues together, in each direction.
    pub rate: Option<u64>,
    /// Frames that a path holds at most while they wait for `rate` and `delay`; more are dropped.
    pub limit: usize,
    /// Chance of `bits` bits of a frame being flipped.
    pub corrupt: Ppm,
    /// How many bits a corruption flips; at least 1.
    pub bits: u32,
    /// Chance of a frame losing its end.
    pub truncate: Ppm,
    /// Frames with more than so many bytes behind the link header vanish, without any word.
    pub mtu: Option<usize>,
    /// The link is up for the first time, down for the second, and so on.
    pub flap: Option<(Duration, Duration)>,
    /// Which frames all this applies to.
    pub direction: Direction,
    /// What the random choices depend on.
    pub seed: u64,
}

impl Default for FaultPlan {
    fn default() -> FaultPlan {
        FaultPlan {
            loss: Ppm(0),
            burst: None,
            duplicate: Ppm(0),
            reorder: Ppm(0),
            distance: 1,
            reorder_within: Duration::ZERO,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            limit: 1000,
            corrupt: Ppm(0),
            bits: 1,
            truncate: Ppm(0),
            mtu: None,
            flap: None,
            direction: Direction::Both,
            seed: 0,
        }
    }
}

impl FaultPlan {
    /// Whether frames may have to be held for some time.
    pub fn holds_frames(&self) -> bool {
        self.reorder != Ppm(0) || self.rate.is_some() || self.longest_delay() > Duration::ZERO
    }

    fn longest_delay(&self) -> Duration {
        self.delay.max(self.jitter).max(self.reorder_within)
    }
}

/// Why a text is no plan. The message names the word and says what would have been understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsePlanError {
    /// A word that is no fault.
    UnknownWord(String),
    /// A word without its value.
    MissingValue(&'static str),
    /// A value that does not suit its word: word, value, what is expected.
    BadValue(&'static str, String, &'static str),
}

const WORDS: &str = "loss, burst, dup, reorder, distance, delay, jitter, rate, limit, corrupt, bits, truncate, mtu, \
                     flap, direction, seed";
const PERCENT: &str = "a percentage from 0% to 100% with at most four decimals, as in 0.5%";
const TIME: &str = "a time with its unit, as in 5ms (units: ns, us, ms, s)";
const RATE: &str = "a rate with its unit, as in 100mbit (units: bit, kbit, mbit, gbit)";
const COUNT: &str = "a whole number from 1 up";

impl fmt::Display for ParsePlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParsePlanError::UnknownWord(word) => {
                write!(f, "\"{word}\" is no fault; a plan is made of these words and their values: {WORDS}")
            }
            ParsePlanError::MissingValue(word) => {
                write!(f, "\"{word}\" has no value behind it; write {}", example(word))
            }
            ParsePlanError::BadValue(word, value, expected) => {
                write!(f, "\"{value}\" is no value for \"{word}\": it takes {expected}")
            }
        }
    }
}

impl std::error::Error for ParsePlanError {}

fn example(word: &str) -> String {
    let value = match word {
        "burst" => "0.1% 30% (chance to enter a burst, chance to leave it, and optionally the loss inside)",
        "distance" => "5",
        "delay" | "jitter" => "5ms",
        "rate" => "100mbit",
        "limit" => "1000",
        "bits" => "3",
        "mtu" => "1400",
        "flap" => "10s 1s (time up, time down)",
        "direction" => "in, out or both",
        "seed" => "7",
        _ => "1%",
    };
    format!("\"{word} {value}\"")
}

struct Words<'a> {
    rest: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
}

impl<'a> Words<'a> {
    fn value<T>(
        &mut self,
        word: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ParsePlanError> {
        let text = self.rest.next().ok_or(ParsePlanError::MissingValue(word))?;
        parse(text).ok_or_else(|| ParsePlanError::BadValue(word, text.to_owned(), expected))
    }
}

impl FromStr for FaultPlan {
    type Err = ParsePlanError;

    fn from_str(text: &str) -> Result<FaultPlan, ParsePlanError> {
        let mut plan = FaultPlan::default();
        let mut words = Words { rest: text.split_whitespace().peekable() };
        while let Some(word) = words.rest.next() {
            match word {
                "loss" => plan.loss = words.value("loss", PERCENT, percent)?,
                "burst" => plan.burst = Some(burst(&mut words)?),
                "dup" => plan.duplicate = words.value("dup", PERCENT, percent)?,
                "reorder" => reorder(&mut plan, &mut words)?,
                "distance" => plan.distance = words.value("distance", COUNT, count)?,
                "delay" => plan.delay = words.value("delay", TIME, time)?,
                "jitter" => plan.jitter = words.value("jitter", TIME, time)?,
                "rate" => plan.rate = Some(words.value("rate", RATE, rate)?),
                "limit" => plan.limit = words.value("limit", COUNT, count)? as usize,
                "corrupt" => plan.corrupt = words.value("corrupt", PERCENT, percent)?,
                "bits" => plan.bits = words.value("bits", COUNT, count)?,
                "truncate" => plan.truncate = words.value("truncate", PERCENT, percent)?,
                "mtu" => plan.mtu = Some(words.value("mtu", COUNT, count)? as usize),
                "flap" => {
                    let up = words.value("flap", TIME, positive_time)?;
                    plan.flap = Some((up, words.value("flap", TIME, positive_time)?));
                }
                "direction" => plan.direction = words.value("direction", "in, out or both", direction)?,
                "seed" => plan.seed = words.value("seed", "a whole number", |text| text.parse().ok())?,
                other => return Err(ParsePlanError::UnknownWord(other.to_owned())),
            }
        }
        Ok(plan)
    }
}

fn burst(words: &mut Words<'_>) -> Result<Burst, ParsePlanError> {
    let enter = words.value("burst", PERCENT, percent)?;
    let leave = words.value("burst", PERCENT, percent)?;
    let loss = match words.rest.peek() {
        Some(text) if text.ends_with('%') => words.value("burst", PERCENT, percent)?,
        _ => Ppm::ONE,
    };
    Ok(Burst { enter, leave, loss })
}

/// `reorder 2%` holds frames back by distance, `reorder 5ms` scatters them in time.
fn reorder(plan: &mut FaultPlan, words: &mut Words<'_>) -> Result<(), ParsePlanError> {
    let expected = "a percentage (as in 2%, see also distance) or a time (as in 5ms)";
    let (chance, within) = words.value("reorder", expected, |text| match percent(text) {
        Some(chance) => Some((Some(chance), None)),
        None => time(text).map(|within| (None, Some(within))),
    })?;
    plan.reorder = chance.unwrap_or(plan.reorder);
    plan.reorder_within = within.unwrap_or(plan.reorder_within);
    Ok(())
}

fn percent(text: &str) -> Option<Ppm> {
    let ppm = decimal(text.strip_suffix('%')?, 4)?;
    u32::try_from(ppm).ok().map(Ppm).filter(|ppm| *ppm <= Ppm::ONE)
}

fn time(text: &str) -> Option<Duration> {
    // The longest suffix first: "ms" ends in "s" as well.
    for (unit, digits) in [("ns", 0), ("us", 3), ("ms", 6), ("s", 9)] {
        if let Some(number) = text.strip_suffix(unit) {
            return decimal(number, digits).map(Duration::from_nanos);
        }
    }
    None
}

fn positive_time(text: &str) -> Option<Duration> {
    time(text).filter(|time| !time.is_zero())
}

fn rate(text: &str) -> Option<u64> {
    for (unit, digits) in [("kbit", 3), ("mbit", 6), ("gbit", 9), ("bit", 0)] {
        if let Some(number) = text.strip_suffix(unit) {
            return decimal(number, digits).filter(|rate| *rate > 0);
        }
    }
    None
}

fn count(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n| *n > 0)
}

fn direction(text: &str) -> Option<Direction> {
    match text {
        "in" => Some(Direction::In),
        "out" => Some(Direction::Out),
        "both" => Some(Direction::Both),
        _ => None,
    }
}

/// A decimal number times ten to the power `digits`, exactly; `None` if it has more decimals than that.
fn decimal(text: &str, digits: usize) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let misses_digits = whole.is_empty() || (text.contains('.') && fraction.is_empty());
    if misses_digits || fraction.len() > digits || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let scale = 10u64.pow((digits - fraction.len()) as u32);
    let fraction = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? };
    let whole = whole.parse::<u64>().ok()?.checked_mul(10u64.pow(digits as u32))?;
    whole.checked_add(fraction.checked_mul(scale)?)
}

/// Prints only what differs from the default, so that a plan reads as it was written.
impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = FaultPlan::default();
        let mut words: Vec<String> = Vec::new();
        let mut word = |differs: bool, text: String| {
            if differs {
                words.push(text);
            }
        };
        word(self.loss != usual.loss, format!("loss {}", self.loss));
        if let Some(burst) = self.burst {
            word(true, format!("burst {} {} {}", burst.enter, burst.leave, burst.loss));
        }
        word(self.reorder != usual.reorder, format!("reorder {}", self.reorder));
        word(self.distance != usual.distance, format!("distance {}", self.distance));
        word(!self.reorder_within.is_zero(), format!("reorder {}", Time(self.reorder_within)));
        word(!self.delay.is_zero(), format!("delay {}", Time(self.delay)));
        word(!self.jitter.is_zero(), format!("jitter {}", Time(self.jitter)));
        word(self.duplicate != usual.duplicate, format!("dup {}", self.duplicate));
        word(self.corrupt != usual.corrupt, format!("corrupt {}", self.corrupt));
        word(self.bits != usual.bits, format!("bits {}", self.bits));
        word(self.truncate != usual.truncate, format!("truncate {}", self.truncate));
        if let Some(rate) = self.rate {
            word(true, format!("rate {}", Rate(rate)));
        }
        word(self.limit != usual.limit, format!("limit {}", self.limit));
        if let Some(mtu) = self.mtu {
            word(true, format!("mtu {mtu}"));
        }
        if let Some((up, down)) = self.flap {
            word(true, format!("flap {} {}", Time(up), Time(down)));
        }
        match self.direction {
            Direction::Both => {}
            Direction::In => word(true, "direction in".to_owned()),
            Direction::Out => word(true, "direction out".to_owned()),
        }
        word(self.seed != usual.seed, format!("seed {}", self.seed));
        f.write_str(&words.join(" "))
    }
}

/// A time in the largest unit that needs no fraction.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        let (unit, size) = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)]
            .into_iter()
            .find(|(_, size)| ns.is_multiple_of(*size))
            .unwrap_or(("ns", 1));
        write!(f, "{}{unit}", ns / size)
    }
}

/// A rate in the largest unit that needs no fraction.
struct Rate(u64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)]
            .into_iter()
            .find(|(_, size)| self.0.is_multiple_of(*size))
            .unwrap_or(("bit", 1));
        write!(f, "{}{unit}", self.0 / size)
    }
}
