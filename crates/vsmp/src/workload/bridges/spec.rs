//! The name of the bridge's workload on the command line and in the papers' data files: `bridge`, and words joined to
//! it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use switch::{BridgeExclusion, Work};

use crate::test_card::LENGTHS;

/// The reason why words describe no load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeLoadError(String);

impl fmt::Display for BridgeLoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BridgeLoadError {}

/// The bridge and its load. Written as words with a `+` between them.
///
/// | word | |
/// |---|---|
/// | `generic`, `mpsafe`, `rcu` | the exclusion; `mpsafe` if none is named |
/// | `bytes=N` | length of a frame with its check sequence, 64 to 1518; 74 |
/// | `flows=N` | flows in each direction, 1 to 4096; 8 |
/// | `work=N`, `work=drain` | frames that an interrupt takes; the exclusion's usual number |
/// | `rate=N` | frames a second that each port is offered, in one trial; without it the throughput is searched |
/// | `ms=N` | virtual time of a trial, in milliseconds; 20 |
///
/// ```
/// # use vsmp::workload::bridges::BridgeLoad;
/// # use switch::BridgeExclusion;
/// let load: BridgeLoad = "generic+bytes=1518".parse()?;
/// assert_eq!((load.exclusion, load.bytes), (BridgeExclusion::Generic, 1518));
/// assert_eq!(load.to_string(), "generic+bytes=1518");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeLoad {
    /// How threads share the bridge.
    pub exclusion: BridgeExclusion,
    /// Length of a frame with its check sequence.
    pub bytes: usize,
    /// Flows in each direction.
    pub flows: usize,
    /// Work per interrupt; `None`: the exclusion's.
    pub work: Option<Work>,
    /// Frames a second that each port is offered; `None`: as many as are forwarded without loss.
    pub rate: Option<u64>,
    /// Virtual time of a trial.
    pub time: Duration,
}

impl Default for BridgeLoad {
    fn default() -> BridgeLoad {
        let (exclusion, time) = (BridgeExclusion::Mpsafe, Duration::from_millis(20));
        BridgeLoad { exclusion, bytes: 74, flows: 8, work: None, rate: None, time }
    }
}

impl FromStr for BridgeLoad {
    type Err = BridgeLoadError;

    fn from_str(words: &str) -> Result<BridgeLoad, BridgeLoadError> {
        let mut load = BridgeLoad::default();
        words.split('+').filter(|word| !word.is_empty()).try_for_each(|word| load.apply(word))?;
        let out = |what: &str| Err(BridgeLoadError(what.to_owned()));
        if !LENGTHS.contains(&load.bytes) {
            return out("frames have 64 to 1518 bytes");
        }
        if !(1..=4096).contains(&load.flows) {
            return out("there are 1 to 4096 flows");
        }
        if load.time.is_zero() || load.rate == Some(0) {
            return out("nothing is measured in no time, or at no rate");
        }
        Ok(load)
    }
}

impl fmt::Display for BridgeLoad {
    /// The exclusion, and each word for what is not usual.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = BridgeLoad::default();
        f.write_str(self.exclusion.name())?;
        if self.bytes != usual.bytes {
            write!(f, "+bytes={}", self.bytes)?;
        }
        if self.flows != usual.flows {
            write!(f, "+flows={}", self.flows)?;
        }
        match self.work {
            None => {}
            Some(Work::Drain) => f.write_str("+work=drain")?,
            Some(Work::Frames(frames)) => write!(f, "+work={frames}")?,
        }
        if let Some(rate) = self.rate {
            write!(f, "+rate={rate}")?;
        }
        if self.time == usual.time { Ok(()) } else { write!(f, "+ms={}", self.time.as_millis()) }
    }
}

impl BridgeLoad {
    fn apply(&mut self, word: &str) -> Result<(), BridgeLoadError> {
        let unknown = || BridgeLoadError(format!("`{word}` means nothing to the bridge's workload"));
        let Some((name, value)) = word.split_once('=') else {
            self.exclusion = word.parse().map_err(|_| unknown())?;
            return Ok(());
        };
        if (name, value) == ("work", "drain") {
            self.work = Some(Work::Drain);
            return Ok(());
        }
        let number: u64 = value.parse().map_err(|_| unknown())?;
        match name {
            "bytes" => self.bytes = number as usize,
            "flows" => self.flows = number as usize,
            "work" => self.work = Some(Work::Frames(number as usize)),
            "rate" => self.rate = Some(number),
            "ms" => self.time = Duration::from_millis(number),
            _ => return Err(unknown()),
        }
        Ok(())
    }
}
