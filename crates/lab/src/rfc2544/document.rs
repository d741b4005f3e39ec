//! The document of `heddle rfc2544`: the results, the machine and the parameters.
//!
//! As in [`crate::result`]: names of numbers include their units, an unknown value is `null`, and every mean has its samples.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::machine::{COMMIT, Machine};
use crate::result::{Series, rfc3339};
use crate::stats::Estimate;

/// Version of the document's shape; raised only when a field changes its meaning.
pub const RFC2544_VERSION: u32 = 1;

/// All results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rfc2544Results {
    /// [`RFC2544_VERSION`].
    pub rfc2544_version: u32,
    /// When the document was made, RFC 3339 in UTC.
    pub finished_at: String,
    /// Where it was measured.
    pub machine: Machine,
    /// The commit of the build.
    pub commit: String,
    /// Every parameter, by name; units are part of the names.
    pub parameters: Map<String, Value>,
    /// One for each bridge, number of workers and frame size.
    pub rows: Vec<Rfc2544Row>,
    /// The measurements that failed, and why.
    pub not_measured: Vec<String>,
}

/// A bridge with a number of workers, under frames of one size. Rates are of both directions together, as in the paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rfc2544Row {
    /// `generic`, `mpsafe`, `rcu`; `cable` for generator and counter without a bridge; `linux` for the kernel's bridge, which
    /// forwards on the CPU of the sender, and `linux-rps` if it forwards on another.
    pub bridge: String,
    /// Its worker threads.
    pub workers: u32,
    /// Length of a frame with its check sequence.
    pub frame_bytes: u32,
    /// Throughput (RFC 2544 section 26.1): frames a second without loss.
    pub throughput_fps: Series,
    /// The same in bits of frames, with their check sequences: Mb/s.
    pub throughput_mbps: f64,
    /// Percent of the line's rate; `null` without a line.
    pub line_percent: Option<f64>,
    /// Frames forwarded a second when the receive rings are never empty. A handler that drains its ring before it forwards
    /// forwards next to nothing then: receive livelock.
    pub overload_fps: Series,
    /// Throughput in relation to the first bridge with one worker, in the same repetition; `null` for itself.
    pub ratio_to_first: Option<Estimate>,
    /// Throughput in relation to the same bridge with one worker, in the same repetition.
    pub ratio_to_one_worker: Option<Estimate>,
    /// Frame loss rate (section 26.3), of the first repetition.
    pub loss: Vec<LossPoint>,
    /// Longest burst without loss, in frames to each port (section 26.4).
    pub back_to_back_frames: Option<Series>,
    /// Latency at the throughput (section 26.2), from the receive ring to the transmit queue.
    pub latency: Option<LatencyFigures>,
    /// A flush of the forwarding database under traffic.
    pub flush: Option<FlushFigures>,
    /// Frames that left after one that arrived later, in trials at the throughput.
    pub out_of_order: u64,
    /// Trials that lost frames at a rate at which a repeated trial did not.
    pub repeated_trials: u64,
}

/// A point of the frame loss rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossPoint {
    /// Offered, both directions together.
    pub offered_fps: f64,
    /// Percent of these frames that did not arrive.
    pub loss_percent: f64,
}

/// Latency in microseconds: percentiles of each repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyFigures {
    /// The middle.
    pub median_us: Series,
    /// One in a hundred is more.
    pub p99_us: Series,
    /// The longest.
    pub longest_us: Series,
}

/// The effect of a flush of the whole forwarding database on frames that are forwarded meanwhile, at half the
/// throughput.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlushFigures {
    /// Addresses that were removed.
    pub addresses: u64,
    /// How long the call took, in milliseconds.
    pub took_ms: Series,
    /// The longest latency of a frame without a flush, in microseconds: the effect of the machine alone.
    pub longest_without_us: Series,
    /// The longest latency of a frame while the table was flushed.
    pub longest_with_us: Series,
}

impl Rfc2544Results {
    /// Assembles the document.
    pub fn new(machine: Machine, parameters: Map<String, Value>, rows: Vec<Rfc2544Row>) -> Rfc2544Results {
        Rfc2544Results {
            rfc2544_version: RFC2544_VERSION,
            finished_at: rfc3339(SystemTime::now()),
            machine,
            commit: COMMIT.into(),
            parameters,
            rows,
            not_measured: Vec::new(),
        }
    }

    /// The document as indented JSON, with a final newline.
    ///
    /// # Panics
    /// Never: every key is a string.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("results have string keys only");
        text.push('\n');
        text
    }
}

impl Rfc2544Row {
    /// The bridge and its workers: "mpsafe, 2 workers".
    pub fn contender(&self) -> String {
        let workers = if self.workers == 1 { "worker" } else { "workers" };
        format!("{}, {} {workers}", self.bridge, self.workers)
    }
}
