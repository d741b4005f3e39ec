//! A point on the simulated machine: the workload of a paper, with the footprint and the habits of its kernel. The senders of
//! Willmann, Rixner and Cox run until the rate is steady, and then are measured.
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
use vsmp::simulation::{Simulation, Workload};
use vsmp::workload::bridges::{BridgeTrial, Throughput};
use vsmp::workload::measured::Measured;
use vsmp::workload::messages;
use vsmp::workload::packets::{Carried, Packets};

use crate::point::{Point, Sample};

/// The papers' kernel for one CPU, which is not an architecture of Heddle.
const UNIPROCESSOR: &str = "uniprocessor";

/// The longest super-segment that a card with segmentation offload takes, in bytes.
const SEGMENTATION: u32 = 65_535;

/// Measures it.
///
/// # Errors
/// The point names no machine, no architecture or no workload, or the simulation fails: why.
pub fn measure(point: &Point) -> Result<Sample, String> {
    let (probe, began) = (Probe::start(), Instant::now());
    let simulation = simulation(point)?;
    if let Some(trial) = simulation.bridge(Kernel::OfThePaper, point.seed) {
        let found = caught(|| trial.throughput())??;
        let mut sample = Sample::now(point.clone(), began.elapsed().as_secs_f64(), probe.finish());
        fill(&mut sample, &simulation, &found.trial.clone().measured(trial.load.bytes));
        fill_bridge(&mut sample, &trial, &found);
        return Ok(sample);
    }
    let carried = match simulation.packets(Kernel::OfThePaper, point.seed) {
        Some(packets) => Some((caught(|| packets.simulate())?, packets)),
        None => None,
    };
    let measured = match &carried {
        Some((carried, packets)) => carried.clone().measured(packets.traffic.warm_up(), packets.cpus),
        None => caught(|| simulation.run(Kernel::OfThePaper, point.seed))?,
    };
    let mut sample = Sample::now(point.clone(), began.elapsed().as_secs_f64(), probe.finish());
    fill(&mut sample, &simulation, &measured);
    if simulation.workload == Workload::Senders {
        fill_cards(&mut sample, &simulation.preset);
    }
    if matches!(simulation.workload, Workload::Messages { .. }) {
        fill_messages(&mut sample, &measured, &simulation.preset);
    }
    if let Some((carried, packets)) = &carried {
        fill_packets(&mut sample, packets, carried)?;
        sample.values.insert("waiting_percent".to_owned(), carried.waiting_percent(packets.cpus));
        sample.parameters.insert("trace".to_owned(), json!(format!("{:016x}", carried.trace)));
    }
    Ok(sample)
}

/// The simulation that a point describes.
fn simulation(point: &Point) -> Result<Simulation, String> {
    let preset = Preset::named(&point.machine).map_err(|error| error.to_string())?;
    let (preset, workload) = match card_words(point) {
        Some(values) => (with_values(preset, &values)?, Workload::Senders),
        None => (preset, point.workload.parse()?),
    };
    let arch = match (point.arch.as_str(), workload) {
        (UNIPROCESSOR, _) => None,
        // In the place of an architecture a bridge has its exclusion, which is also a word of its workload.
        (name, Workload::Bridge(load)) if name == load.exclusion.name() => None,
        (name, _) => Some(name.parse().map_err(|error| format!("{error}"))?),
    };
    let simulation =
        Simulation { workload, ..Simulation::new(preset, arch, point.cpus as usize, point.connections as usize) };
    simulation.check()?;
    Ok(simulation)
}

/// The values of the machine that the words of a workload of bulk data change; `None`: the workload is another.
fn card_words(point: &Point) -> Option<Vec<(&'static str, u32)>> {
    let values = [
        point.mtu().map(|bytes| ("card.mtu", bytes)),
        point.cards().map(|cards| ("card.cards", cards)),
        point.has_offload().then_some(("card.segmentation", SEGMENTATION)),
    ];
    let values: Vec<_> = values.into_iter().flatten().collect();
    let words = point.workload.split('+').filter(|word| !word.is_empty()).count();
    (words == values.len()).then_some(values)
}

fn with_values(preset: Preset, values: &[(&str, u32)]) -> Result<Preset, String> {
    let with = |preset: Preset, (name, number): &(&str, u32)| preset.with(name, u64::from(*number));
    values.iter().try_fold(preset, with).map_err(|error| error.to_string())
}

/// Runs a simulation; a panic is its error.
pub(crate) fn caught<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("the simulation panicked").lines().next().unwrap_or_default().to_owned()
    })
}

/// What the figures of Nahum et al. show. An error if a byte came to the wrong place.
pub(crate) fn fill_packets(sample: &mut Sample, packets: &Packets, carried: &Carried) -> Result<(), String> {
    if carried.wrong > 0 {
        return Err(format!("{} bytes are not what was sent there", carried.wrong));
    }
    for (name, number) in
        [("out_of_order_percent", carried.out_of_order_percent()), ("inversions_percent", carried.inversions_percent())]
    {
        sample.values.insert(name.to_owned(), number);
    }
    for (name, number) in [
        ("connections", json!(packets.connections())),
        ("bytes", json!(packets.traffic.payload)),
        ("distances", json!(carried.disorder.distances)),
    ] {
        sample.parameters.insert(name.to_owned(), number);
    }
    Ok(())
}

/// What the tables of Nakahara et al. show.
fn fill_bridge(sample: &mut Sample, trial: &BridgeTrial, found: &Throughput) {
    sample.values.insert("frames_kfps".to_owned(), found.rate / 1e3);
    sample.values.insert("throughput_mbps".to_owned(), found.rate * (8 * trial.load.bytes) as f64 / 1e6);
    let shares = trial.flows().map(|flows| flows.largest_share());
    for (name, number) in [
        ("bytes", json!(trial.load.bytes)),
        ("flows", json!(trial.load.flows)),
        ("largest_share_of_a_queue", json!(shares)),
        ("trials", json!(found.trials)),
        ("trace", json!(format!("{:016x}", found.trial.trace))),
    ] {
        sample.parameters.insert(name.to_owned(), number);
    }
}

/// The cards that carried bulk data.
fn fill_cards(sample: &mut Sample, preset: &Preset) {
    for (name, number) in [
        ("cards", json!(preset.cards)),
        ("mtu", json!(preset.card.mtu)),
        ("segmentation_offload", json!(preset.card.segmentation.is_some())),
    ] {
        sample.parameters.insert(name.to_owned(), number);
    }
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

fn fill(sample: &mut Sample, simulation: &Simulation, measured: &Measured) {
    let (account, kilobytes) = (&measured.account, measured.kilobytes());
    sample.steady = measured.steady;
    let mut value = |name: &str, number: f64| _ = sample.values.insert(name.to_owned(), number);
    value("throughput_mbps", measured.megabits());
    measured.fairness().into_iter().for_each(|fairness| value("fairness", fairness));
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
        "workload": simulation.workload.to_string(),
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
