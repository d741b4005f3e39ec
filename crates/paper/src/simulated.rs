//! A point on the simulated machine: the senders of Willmann, Rixner and Cox with the footprint and the habits of the
//! paper's kernel, until the rate is steady, and then measured.
//!
//! Called by a process of its own for each point (`heddle paper point`): memory that an earlier simulation has freed
//! would change the addresses, and so the false sharing, of a later one. So a sample depends on its point and on the
//! build alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use lab::machine::Probe;
use serde_json::json;
use vsmp::Preset;
use vsmp::preset::Kernel;
use vsmp::simulation::{Simulation, WHOLE, Workload};
use vsmp::workload::messages;
use vsmp::workload::senders::Measured;

use crate::point::{Point, Sample};

/// The papers' kernel for one CPU, which is not an architecture of Heddle.
const UNIPROCESSOR: &str = "uniprocessor";

/// Measures it.
///
/// # Errors
/// The point names no machine or no architecture, or the simulation fails: why.
pub fn measure(point: &Point) -> Result<Sample, String> {
    let (probe, began) = (Probe::start(), Instant::now());
    let preset = Preset::named(&point.machine).map_err(|error| error.to_string())?;
    let arch = match point.arch.as_str() {
        UNIPROCESSOR => None,
        name => Some(name.parse().map_err(|error| format!("{error}"))?),
    };
    let workload = match point.workload.as_str() {
        "" => Workload::Senders,
        name => name.parse()?,
    };
    let simulation = Simulation {
        workload,
        cpus: point.cpus as usize,
        arch,
        connections: point.connections as usize,
        seeds: 1,
        ipv6: false,
        lock_kind: None,
        extent: WHOLE,
        preset,
    };
    let run = catch_unwind(AssertUnwindSafe(|| simulation.run(Kernel::OfThePaper, point.seed)));
    let measured = run.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("the simulation panicked").lines().next().unwrap_or_default().to_owned()
    })?;
    let mut sample = Sample::now(point.clone(), began.elapsed().as_secs_f64(), probe.finish());
    fill(&mut sample, &measured);
    if workload != Workload::Senders {
        fill_messages(&mut sample, &measured, &simulation.preset);
    }
    Ok(sample)
}

/// What the figures of Schmidt and Suda show.
fn fill_messages(sample: &mut Sample, measured: &Measured, preset: &Preset) {
    let [voluntary, involuntary] = messages::switches(measured);
    for (name, number) in [
        ("voluntary_switches", voluntary),
        ("involuntary_switches", involuntary),
        ("lock_ms", messages::lock_milliseconds(measured, preset)),
    ] {
        sample.values.insert(name.to_owned(), number);
    }
}

fn fill(sample: &mut Sample, measured: &Measured) {
    let (account, kilobytes) = (&measured.account, measured.kilobytes());
    sample.steady = measured.steady;
    let mut value = |name: &str, number: f64| _ = sample.values.insert(name.to_owned(), number);
    value("throughput_mbps", measured.megabits());
    for (name, count) in [
        ("misses_per_kb", account.misses()),
        ("misses_outside_scheduler_per_kb", account.misses() - account.scheduler_misses),
        ("misses_of_atomics_per_kb", account.atomic_misses),
        ("misses_of_footprint_per_kb", account.footprint_misses),
        ("scheduler_cycles_per_kb", account.scheduler_cycles),
        ("spin_cycles_per_kb", account.spin_cycles),
        ("idle_cycles_per_kb", account.idle),
        ("switches_per_kb", account.switches),
        ("involuntary_switches_per_kb", account.preemptions),
        ("wakes_per_kb", account.wakes),
    ] {
        value(name, count as f64 / kilobytes);
    }
    for lock in measured.locks.iter().filter(|lock| lock.acquired > 0) {
        let failed = 100.0 * lock.first_try_failed as f64 / lock.acquired as f64;
        value(&format!("failures_percent.{}", lock.class.name()), failed);
        value(&format!("acquisitions_per_kb.{}", lock.class.name()), lock.acquired as f64 / kilobytes);
    }
    let parameters = json!({
        "workload": "senders",
        "kernel": "footprint and habits of the paper",
        "ipv6": false,
        "warm_up_s": measured.warm_up.as_secs_f64(),
        "measured_s": measured.time.as_secs_f64(),
        "windows_mbps": measured.windows,
    });
    if let serde_json::Value::Object(parameters) = parameters {
        sample.parameters = parameters;
    }
}
