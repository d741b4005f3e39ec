//! A single measurement and its result: a line of the store.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use lab::machine::{COMMIT, Machine};
use lab::result::rfc3339;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where a point is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// On the simulated machine.
    Vsmp,
    /// On this host.
    Host,
}

impl Place {
    /// Both.
    pub const ALL: [Place; 2] = [Place::Vsmp, Place::Host];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Place::Vsmp => "simulated machine",
            Place::Host => "this host",
        }
    }
}

/// All parameters of a sample except the commit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Point {
    /// Where.
    pub on: Place,
    /// The simulator's preset, or the host with its kernel.
    pub machine: String,
    /// The architecture, by its name on the command line, or the papers' UP.
    pub arch: String,
    /// Connections, unless the workload says how many (`+each`: one for each CPU); a bridge has none.
    pub connections: u32,
    /// CPUs, and threads of the application.
    pub cpus: u32,
    /// The kind of lock.
    pub lock: String,
    /// On the host, the length of a measurement in milliseconds, or of a trial of a bridge; 0 on a simulated machine, which
    /// finds its steady state.
    pub slice_ms: u64,
    /// What runs, by its name on the command line; empty: bulk data is sent. That has words of its own: `longer=N` (for N times
    /// as long), `mtu=N`, `offload` (the device cuts super-segments) and `cards=N` (cards of the simulated machine).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// The seed; on the host the round, in which all subjects of a load are measured in turn.
    pub seed: u64,
}

/// The word of a workload for the bytes of a frame or of a packet, before the number.
pub(crate) const BYTES: &str = "bytes=";
/// The same for the number of cards.
pub(crate) const CARDS: &str = "cards=";

impl Point {
    /// Bytes of a frame, where a bridge forwards frames of one size.
    pub fn frame_bytes(&self) -> Option<u32> {
        self.bytes().filter(|_| self.connections == 0)
    }

    /// The same, or bytes of payload in a packet, where its workload says so.
    pub fn bytes(&self) -> Option<u32> {
        self.word(BYTES)
    }

    /// Cards of the simulated machine, where its workload says how many.
    pub fn cards(&self) -> Option<u32> {
        self.word(CARDS)
    }

    /// The largest IP packet on the wire, in bytes, where its workload says it.
    pub fn mtu(&self) -> Option<u32> {
        self.word("mtu=")
    }

    /// Whether the device cuts super-segments.
    pub fn has_offload(&self) -> bool {
        self.workload.split('+').any(|word| word == "offload")
    }

    /// Whether connections carry messages of the size that Schmidt and Suda measured, and not bulk data.
    pub fn has_messages(&self) -> bool {
        self.workload.split('+').next() == Some("messages")
    }

    /// Whether several threads carry the packets of few connections, as Nahum et al. measured.
    pub fn has_packets(&self) -> bool {
        self.workload.starts_with("packets-")
    }

    /// Length of its measurement on the host, in milliseconds: [`slice_ms`](Point::slice_ms), unless its workload takes several
    /// times as long.
    pub fn measured_ms(&self) -> u64 {
        self.slice_ms * self.word("longer=").map_or(1, u64::from)
    }

    /// The number of a word of its workload.
    fn word(&self, name: &str) -> Option<u32> {
        self.workload.split('+').find_map(|word| word.strip_prefix(name)?.parse().ok())
    }

    /// Its load in words, the same for all subjects.
    pub fn load(&self) -> String {
        match self.frame_bytes() {
            Some(bytes) => format!("frames of {bytes} bytes"),
            None => format!("{} connections", self.connections),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = if self.on == Place::Vsmp { "seed" } else { "round" };
        let workload =
            if self.workload.is_empty() { String::new() } else { format!(", {} on {}", self.workload, self.cpus) };
        let connections =
            if self.connections == 0 { String::new() } else { format!(", {} connections", self.connections) };
        write!(f, "{}{workload}{connections}, {count} {}", self.arch, self.seed)
    }
}

/// A measured point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The measured point.
    #[serde(flatten)]
    pub point: Point,
    /// The commit of the build, "-dirty" at its end where files differed.
    pub commit: String,
    /// The time of the measurement, RFC 3339 in UTC.
    pub finished_at: String,
    /// How long it took, in seconds of this host.
    pub seconds: f64,
    /// Whether the rate was steady when it was measured.
    pub steady: bool,
    /// The measured values, by name with unit.
    pub values: BTreeMap<String, f64>,
    /// All other parameters.
    pub parameters: Map<String, Value>,
    /// The host, and its other load meanwhile.
    pub host: Machine,
}

impl Sample {
    /// A sample of this build, finished now.
    pub fn now(point: Point, seconds: f64, host: Machine) -> Sample {
        Sample {
            point,
            commit: COMMIT.into(),
            finished_at: rfc3339(SystemTime::now()),
            seconds,
            steady: true,
            values: BTreeMap::new(),
            parameters: Map::new(),
            host,
        }
    }
}
