//! Packets of few connections that several threads of this host carry, as on the machine of Nahum et al.: a thread on each of the
//! first CPUs, and the driver in memory of the simulated machine's workload ([`vsmp::workload::packets`]).
//!
//! Each sample is a run of its own, with its stack, connections and warm-up. Times of waits are from a second run, where a
//! figure shows them, because timing a lock costs several times the lock.

use std::time::Duration;

use serde_json::json;
use vsmp::Preset;
use vsmp::preset::Kernel;
use vsmp::workload::packets::{Carried, Packets, Traffic};

use crate::point::{Point, Sample};
use crate::simulated::{caught, fill_packets};

/// The preset of the paper's machine: its habits are the stack's.
const MACHINE: &str = "sgi-challenge";

/// The runs of a point.
pub(super) struct PacketsOfHost(Packets);

/// What they have carried.
pub(super) struct CarriedHere {
    carried: Carried,
    /// With timed locks.
    timed: Option<Carried>,
}

impl PacketsOfHost {
    /// # Errors
    /// The point names no architecture, or one under which a single thread carries all packets.
    pub(super) fn new(point: &Point, traffic: Traffic) -> Result<PacketsOfHost, String> {
        let packets = Packets {
            arch: point.arch.parse().map_err(|error| format!("{error}"))?,
            cpus: point.cpus as usize,
            connections: point.connections as usize,
            traffic: Traffic { time: Duration::from_millis(point.measured_ms()), ..traffic },
            ipv6: false,
            preset: Preset::named(MACHINE).map_err(|error| error.to_string())?,
            kernel: Kernel::OfThePaper,
            seed: point.seed,
        };
        packets.check().map_err(|error| error.to_string())?;
        Ok(PacketsOfHost(packets))
    }

    /// Runs it, and once more with timed locks if `timed`.
    pub(super) fn measure(&self, timed: bool) -> Result<CarriedHere, String> {
        let run = |timed| caught(|| self.0.run_here(timed));
        Ok(CarriedHere { carried: run(false)?, timed: if timed { Some(run(true)?) } else { None } })
    }

    /// What the figures show. An error if a byte came to the wrong place.
    pub(super) fn fill(&self, sample: &mut Sample, CarriedHere { carried, timed }: &CarriedHere) -> Result<(), String> {
        let packets = &self.0;
        fill_packets(sample, packets, carried)?;
        sample.values.insert("throughput_mbps".to_owned(), carried.megabits());
        if let Some(timed) = timed {
            sample.values.insert("waiting_percent".to_owned(), timed.waiting_percent(packets.cpus));
        }
        for (name, value) in [
            ("device", json!("a driver in memory whose remote end makes and takes packets under a lock")),
            ("warm_up_ms", json!(packets.traffic.warm_up().as_millis() as u64)),
            ("ipv6", json!(false)),
        ] {
            sample.parameters.insert(name.to_owned(), value);
        }
        Ok(())
    }
}
