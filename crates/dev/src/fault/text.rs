//! The text form of a plan: words with their values.
//!
//! `loss 1% reorder 2% distance 5 delay 5ms seed 7` applies to both directions; the words after `in` and `out` apply
//! only to received or transmitted frames, those after `both` to both again: `delay 10ms out loss 5% in dup 1%`. A plan
//! prints itself in the same form, and the output parses to an equal plan.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::plan::{Burst, Cycle, DeviceFaults, FaultPlan, FaultRule, Faults, Ppm, Timing, Unplug};

/// The grammar, for help texts: one line for each word.
pub const GRAMMAR: &str = "\
A plan is a list of faults with their values. Loss, burst, mtu, flap, corrupt, scramble, forge, truncate, pad, ce and dup \
apply to a frame in the order in which they are written; then the frame is reordered, delayed and paced.
  loss P                  the frame is lost                                                           loss 1%
  burst P P [P]           losses in bursts (Gilbert-Elliott): chance to enter, to leave, loss inside  burst 0.1% 30% 100%
  dup P                   the frame is duplicated                                                     dup 1%
  corrupt P [bits N]      N bits are flipped (default 1)                                              corrupt 0.1% bits 3
  scramble P N            N consecutive bytes become random                                           scramble 0.1% 40
  forge P                 the payload changes, the checksum remains right                             forge 0.1%
  truncate P              the end is cut off                                                          truncate 0.1%
  pad P                   bytes are added at the end                                                  pad 5%
  ce P                    marked \"congestion experienced\"                                             ce 2%
  mtu N                   longer frames are lost (a black hole)                                       mtu 1400
  flap T T                the link is up for T, then down for T                                       flap 10s 100ms
  reorder P [distance N]  held back until N later frames have passed (default 1)                      reorder 2% distance 5
  reorder T               random delay up to T, without order                                         reorder 5ms
  delay T, jitter T       delayed by T, and by up to T more, in order                                 delay 20ms jitter 2ms
  rate R, limit N         R bits per second; at most N frames wait                                    rate 10mbit limit 100
  full T T                transmit queue accepts frames for T, then none for T                        full 100ms 5ms
  stall T T               receive queue delivers frames for T, then none for T                        stall 100ms 5ms
  lostwake P              the wake-up for a frame is lost                                             lostwake 1%
  spuriouswake P          a receiver is woken without a frame                                         spuriouswake 10%
  unplug T [back T]       the device is removed after T, and returns after T more                     unplug 2s back 1s
  seed N                  the same random choices in each run                                         seed 7
  in, out, both           the faults that follow apply to received frames, transmitted frames, or both
P: 0% to 100%, up to four decimals. T: ns, us, ms or s. R: bit, kbit, mbit or gbit. N: a whole number, 1 or more.";

/// Why a text is not a valid plan. The message names the word and the expected input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParsePlanError {
    /// A word that is no fault.
    UnknownWord(String),
    /// A word without its value.
    MissingValue(&'static str),
    /// An invalid value: word, value, what is expected.
    BadValue(&'static str, String, &'static str),
    /// A word that must follow another: word, the other.
    Misplaced(&'static str, &'static str),
}

const WORDS: &str = "loss, burst, dup, corrupt, bits, scramble, forge, truncate, pad, ce, mtu, flap, reorder, \
                     distance, delay, jitter, rate, limit, full, stall, lostwake, spuriouswake, unplug, back, seed, in, out, \
                     both";
const PERCENT: &str = "a percentage from 0% to 100% with at most four decimals, as in 0.5%";
const TIME: &str = "a time with its unit, as in 5ms (units: ns, us, ms, s)";
const RATE: &str = "a rate with its unit, as in 100mbit (units: bit, kbit, mbit, gbit)";
const COUNT: &str = "a whole number, 1 or more";

impl fmt::Display for ParsePlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParsePlanError::UnknownWord(word) => {
                write!(f, "\"{word}\" is not a fault; a plan consists of these words and their values: {WORDS}")
            }
            ParsePlanError::MissingValue(word) => {
                write!(f, "\"{word}\" needs a value; write {}", example(word))
            }
            ParsePlanError::BadValue(word, value, expected) => {
                write!(f, "\"{value}\" is not a value for \"{word}\", which takes {expected}")
            }
            ParsePlanError::Misplaced(word, other) => {
                write!(f, "\"{word}\" must follow \"{other}\"; write {}", example(other))
            }
        }
    }
}

impl std::error::Error for ParsePlanError {}

fn example(word: &str) -> String {
    let value = match word {
        "burst" => "0.1% 30% (chance to enter a burst, chance to leave it, and optionally the loss inside)",
        "corrupt" => "1% bits 3",
        "scramble" => "1% 40 (chance, bytes)",
        "distance" => "5",
        "delay" | "jitter" => "5ms",
        "unplug" | "back" => "2s",
        "rate" => "100mbit",
        "limit" => "1000",
        "bits" => "3",
        "mtu" => "1400",
        "flap" => "10s 1s (time up, time down)",
        "full" | "stall" => "100ms 5ms (time in which it works, time in which it does not)",
        "seed" => "7",
        _ => "1%",
    };
    format!("\"{word} {value}\"")
}

/// The directions that the following words apply to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    In,
    Out,
    Both,
}

/// Applies a change to the timing of every direction in scope.
type SetTiming<'a> = &'a mut dyn FnMut(&dyn Fn(&mut Timing));

struct Words<'a> {
    rest: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
}

impl Words<'_> {
    fn value<T>(
        &mut self,
        word: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ParsePlanError> {
        let text = self.rest.next().ok_or(ParsePlanError::MissingValue(word))?;
        parse(text).ok_or_else(|| ParsePlanError::BadValue(word, text.to_owned(), expected))
    }

    fn percent(&mut self, word: &'static str) -> Result<Ppm, ParsePlanError> {
        self.value(word, PERCENT, percent)
    }

    fn cycle(&mut self, word: &'static str) -> Result<Cycle, ParsePlanError> {
        let good = self.value(word, TIME, positive_time)?;
        Ok(Cycle { good, bad: self.value(word, TIME, positive_time)? })
    }

    fn burst(&mut self) -> Result<Burst, ParsePlanError> {
        let (enter, leave) = (self.percent("burst")?, self.percent("burst")?);
        let loss = match self.rest.peek() {
            Some(text) if text.ends_with('%') => self.percent("burst")?,
            _ => Ppm::ONE,
        };
        Ok(Burst { enter, leave, loss })
    }

    /// A rule of the chain, if `word` names one.
    fn rule(&mut self, word: &str) -> Result<Option<FaultRule>, ParsePlanError> {
        Ok(Some(match word {
            "loss" => FaultRule::Loss(self.percent("loss")?),
            "burst" => FaultRule::Burst(self.burst()?),
            "dup" => FaultRule::Duplicate(self.percent("dup")?),
            "corrupt" => FaultRule::Corrupt { chance: self.percent("corrupt")?, bits: 1 },
            "scramble" => {
                let chance = self.percent("scramble")?;
                FaultRule::Scramble { chance, bytes: self.value("scramble", COUNT, count)? }
            }
            "forge" => FaultRule::Forge(self.percent("forge")?),
            "truncate" => FaultRule::Truncate(self.percent("truncate")?),
            "pad" => FaultRule::Pad(self.percent("pad")?),
            "ce" => FaultRule::Mark(self.percent("ce")?),
            "mtu" => FaultRule::Mtu(self.value("mtu", COUNT, count)? as usize),
            "flap" => FaultRule::Flap(self.cycle("flap")?),
            _ => return Ok(None),
        }))
    }

    /// Applies a word about timing. False: it is none.
    fn timing(&mut self, word: &str, set: SetTiming<'_>) -> Result<bool, ParsePlanError> {
        match word {
            "reorder" => {
                let expected = "a percentage (as in 2%, see also distance) or a time (as in 5ms)";
                let (chance, within) = self.value("reorder", expected, |text| match percent(text) {
                    Some(chance) => Some((Some(chance), None)),
                    None => time(text).map(|within| (None, Some(within))),
                })?;
                set(&|timing| {
                    timing.reorder = chance.unwrap_or(timing.reorder);
                    timing.reorder_within = within.unwrap_or(timing.reorder_within);
                });
            }
            "distance" => {
                let distance = self.value("distance", COUNT, count)?;
                set(&|timing| timing.distance = distance);
            }
            "delay" => {
                let delay = self.value("delay", TIME, time)?;
                set(&|timing| timing.delay = delay);
            }
            "jitter" => {
                let jitter = self.value("jitter", TIME, time)?;
                set(&|timing| timing.jitter = jitter);
            }
            "rate" => {
                let rate = self.value("rate", RATE, rate)?;
                set(&|timing| timing.rate = Some(rate));
            }
            "limit" => {
                let limit = self.value("limit", COUNT, count)? as usize;
                set(&|timing| timing.limit = limit);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Applies a word about the device. False: it is none.
    fn trouble(&mut self, word: &str, trouble: &mut DeviceFaults) -> Result<bool, ParsePlanError> {
        match word {
            "full" => trouble.full = Some(self.cycle("full")?),
            "stall" => trouble.stall = Some(self.cycle("stall")?),
            "lostwake" => trouble.lost_wake = self.percent("lostwake")?,
            "spuriouswake" => trouble.spurious_wake = self.percent("spuriouswake")?,
            "unplug" => {
                trouble.unplug = Some(Unplug { after: self.value("unplug", TIME, time)?, away: None });
            }
            "back" => match &mut trouble.unplug {
                Some(unplug) => unplug.away = Some(self.value("back", TIME, time)?),
                None => return Err(ParsePlanError::Misplaced("back", "unplug")),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl FaultPlan {
    /// The faults of the directions in `scope`.
    fn concerned(&mut self, scope: Scope) -> impl Iterator<Item = &mut Faults> {
        let inbound = (scope != Scope::Out).then_some(&mut self.inbound);
        let outbound = (scope != Scope::In).then_some(&mut self.outbound);
        inbound.into_iter().chain(outbound)
    }
}

impl FromStr for FaultPlan {
    type Err = ParsePlanError;

    fn from_str(text: &str) -> Result<FaultPlan, ParsePlanError> {
        let mut plan = FaultPlan::default();
        let mut scope = Scope::Both;
        let mut words = Words { rest: text.split_whitespace().peekable() };
        while let Some(word) = words.rest.next() {
            match word {
                "in" => scope = Scope::In,
                "out" => scope = Scope::Out,
                "both" => scope = Scope::Both,
                "seed" => plan.seed = words.value("seed", "a whole number", |text| text.parse().ok())?,
                "bits" => {
                    let count = words.value("bits", COUNT, count)?;
                    for faults in plan.concerned(scope) {
                        match faults.rules.last_mut() {
                            Some(FaultRule::Corrupt { bits, .. }) => *bits = count,
                            _ => return Err(ParsePlanError::Misplaced("bits", "corrupt")),
                        }
                    }
                }
                word => {
                    if let Some(rule) = words.rule(word)? {
                        plan.concerned(scope).for_each(|faults| faults.rules.push(rule));
                    } else if !words.trouble(word, &mut plan.trouble)?
                        && !words.timing(word, &mut |change| {
                            plan.concerned(scope).for_each(|faults| change(&mut faults.timing));
                        })?
                    {
                        return Err(ParsePlanError::UnknownWord(word.to_owned()));
                    }
                }
            }
        }
        Ok(plan)
    }
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

impl fmt::Display for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultRule::Loss(chance) => write!(f, "loss {chance}"),
            FaultRule::Burst(Burst { enter, leave, loss }) => write!(f, "burst {enter} {leave} {loss}"),
            FaultRule::Mtu(mtu) => write!(f, "mtu {mtu}"),
            FaultRule::Flap(cycle) => write!(f, "flap {cycle}"),
            FaultRule::Corrupt { chance, bits: 1 } => write!(f, "corrupt {chance}"),
            FaultRule::Corrupt { chance, bits } => write!(f, "corrupt {chance} bits {bits}"),
            FaultRule::Scramble { chance, bytes } => write!(f, "scramble {chance} {bytes}"),
            FaultRule::Forge(chance) => write!(f, "forge {chance}"),
            FaultRule::Truncate(chance) => write!(f, "truncate {chance}"),
            FaultRule::Pad(chance) => write!(f, "pad {chance}"),
            FaultRule::Mark(chance) => write!(f, "ce {chance}"),
            FaultRule::Duplicate(chance) => write!(f, "dup {chance}"),
        }
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", ShownTime(self.good), ShownTime(self.bad))
    }
}

/// The words of one direction: only values that differ from the default, so that a plan prints as it was written.
fn words_of(faults: &Faults) -> Vec<String> {
    let mut words: Vec<String> = faults.rules.iter().map(FaultRule::to_string).collect();
    let (timing, usual) = (&faults.timing, Timing::default());
    let mut word = |differs: bool, text: String| words.extend(differs.then_some(text));
    word(timing.reorder != usual.reorder, format!("reorder {}", timing.reorder));
    word(timing.distance != usual.distance, format!("distance {}", timing.distance));
    word(!timing.reorder_within.is_zero(), format!("reorder {}", ShownTime(timing.reorder_within)));
    word(!timing.delay.is_zero(), format!("delay {}", ShownTime(timing.delay)));
    word(!timing.jitter.is_zero(), format!("jitter {}", ShownTime(timing.jitter)));
    if let Some(rate) = timing.rate {
        word(true, format!("rate {}", ShownRate(rate)));
    }
    word(timing.limit != usual.limit, format!("limit {}", timing.limit));
    words
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceFaults { full, stall, lost_wake, spurious_wake, unplug } = &self.trouble;
        let mut words: Vec<String> = Vec::new();
        words.extend(full.map(|cycle| format!("full {cycle}")));
        words.extend(stall.map(|cycle| format!("stall {cycle}")));
        words.extend((*lost_wake != Ppm(0)).then(|| format!("lostwake {lost_wake}")));
        words.extend((*spurious_wake != Ppm(0)).then(|| format!("spuriouswake {spurious_wake}")));
        words.extend(unplug.map(|unplug| format!("unplug {}", ShownTime(unplug.after))));
        words.extend(unplug.and_then(|unplug| unplug.away).map(|away| format!("back {}", ShownTime(away))));
        words.extend((self.seed != 0).then(|| format!("seed {}", self.seed)));
        let (inbound, outbound) = (words_of(&self.inbound), words_of(&self.outbound));
        if self.inbound == self.outbound {
            words.splice(0..0, inbound);
        } else {
            for (scope, more) in [("in", inbound), ("out", outbound)] {
                words.extend((!more.is_empty()).then(|| scope.to_owned()));
                words.extend(more);
            }
        }
        f.write_str(&words.join(" "))
    }
}

/// A time in the largest unit that needs no fraction.
struct ShownTime(Duration);

impl fmt::Display for ShownTime {
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
struct ShownRate(u64);

impl fmt::Display for ShownRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)]
            .into_iter()
            .find(|(_, size)| self.0.is_multiple_of(*size))
            .unwrap_or(("bit", 1));
        write!(f, "{}{unit}", self.0 / size)
    }
}
