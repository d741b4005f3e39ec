//! A bridge of this host between two test lines in memory, under frames of one size: its throughput, as `heddle rfc2544`
//! measures it ([`lab::rfc2544`]).
//!
//! The lines are as fast as memory. On wires of a gigabit every bridge of a fast host would forward the same.

use std::io;

use lab::rfc2544::bench::{BenchConfig, Between, BridgeBench, RING, STATIONS};
use lab::rfc2544::line::{Buffers, PORTS};
use lab::rfc2544::method::{Limits, Throughput};
use serde_json::json;
use vsmp::workload::bridges::BridgeLoad;

use crate::point::{Point, Sample};

/// A bridge with its worker threads, which sleep between its turns.
pub(super) struct BridgeOfHost {
    load: BridgeLoad,
    /// The precision of the search, and the length of a trial.
    limits: Limits,
    bench: BridgeBench,
}

impl BridgeOfHost {
    /// The bridge of a point.
    pub(super) fn start(point: &Point, load: BridgeLoad) -> Result<BridgeOfHost, String> {
        let (between, workers) = (Between::Bridge(load.exclusion), point.cpus as usize);
        let (ring, stations, buffers) = (RING, STATIONS, Buffers::Copied);
        let config = BenchConfig { between, workers, work: load.work, ring, stations, buffers };
        let limits = Limits { trial_s: point.measured_ms() as f64 * 1e-3, ..Limits::USUAL };
        Ok(BridgeOfHost { load, limits, bench: BridgeBench::start(config).map_err(|error| error.to_string())? })
    }

    /// Searches its throughput.
    pub(super) fn measure(&mut self) -> io::Result<Throughput> {
        self.limits.throughput(&mut self.bench, self.load.bytes)
    }

    /// What the tables of Nakahara et al. show: both directions together, in bits of whole frames.
    pub(super) fn fill(&self, sample: &mut Sample, found: &Throughput) {
        let rate = found.rate * PORTS as f64;
        for (name, number) in [
            ("frames_kfps", rate / 1e3),
            ("throughput_mbps", rate * (8 * self.load.bytes) as f64 / 1e6),
            ("overload_kfps", found.overload_total / 1e3),
        ] {
            sample.values.insert(name.to_owned(), number);
        }
        let parameters = json!({
            "workload": "rfc2544", "bytes": self.load.bytes, "line": "as fast as memory",
            "resolution_percent": self.limits.resolution * 100.0, "attempts": self.limits.attempts,
            "repeated_trials": found.repeated, "ring_frames": RING, "stations_behind_each_port": STATIONS,
            "buffers": "copied", "directions": "both",
        });
        if let serde_json::Value::Object(parameters) = parameters {
            sample.parameters = parameters;
        }
    }
}
