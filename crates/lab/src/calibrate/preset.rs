//! The measured machine as a preset: each value with its origin, and how it was obtained.

use sync::Step;
use vsmp::Costs;
use vsmp::preset::{Measured, Origin, Preset, PresetError};

use super::sleeps::in_cycles;
use super::{Cost, Measurements};

/// What was measured, on top of a machine whose other values are assumed.
pub(super) fn of(measured: &Measurements, costs: &Costs) -> Result<Preset, PresetError> {
    let cpus = &measured.cpus;
    let describes = format!("this machine: {}, {} cores, calibrated by its own runs", cpus.model, cpus.cores);
    let values =
        [machine(measured), lines(measured, costs), scheduler(measured, costs), work(measured, costs)].concat();
    Preset::named("server-64")?.measured("calibrated", &describes, &values)
}

/// A value that no measured cost stands behind.
fn value(name: &str, number: u64, origin: Origin, why: &str) -> Measured {
    Measured { name: name.to_owned(), number, origin, why: why.to_owned() }
}

/// The value of a measured cost.
fn cost(costs: &Costs, name: &str, cost: Cost, what: &str) -> Measured {
    let Cost { nanos, spread, valid, batches } = cost;
    let why = format!("{what}: {nanos:.1} ns, quartiles ± {spread:.1}; {valid} of {batches} batches count");
    value(name, in_cycles(costs, nanos), Origin::Measured, &why)
}

/// CPUs and caches.
fn machine(measured: &Measurements) -> Vec<Measured> {
    let Measurements { cpus, together, .. } = measured;
    let (sets, ways) = super::sets_and_ways(cpus.private_cache);
    let percent = 100.0 * together.median;
    let together =
        format!("work that shares nothing; ± {:.1}; {} windows count", 100.0 * together.spread, together.valid);
    vec![
        value("machine.cpus", cpus.cores as u64, Origin::Measured, "cores that the process may use"),
        value(
            "machine.megahertz",
            cpus.megahertz,
            Origin::Measured,
            "as the kernel states it; the unit of the other values",
        ),
        value("machine.cpus_per_socket", 256, Origin::Assumed, "transfers were measured between two cores only"),
        value("machine.cache_sets", sets as u64, Origin::Derived, "the second-level cache, as the kernel states it"),
        value("machine.cache_ways", ways as u64, Origin::Derived, "the same"),
        value("machine.together", percent.round() as u64, Origin::Measured, &together),
    ]
}

/// Memory, and lines that CPUs share.
fn lines(measured: &Measurements, costs: &Costs) -> Vec<Measured> {
    let Measurements { lines, transfers, .. } = measured;
    let of = |name: &str, measured, what: &str| cost(costs, name, measured, what);
    let shared = |name: &str, number, measured, factor: f64, what: &str| {
        let why = format!("{}; times {factor:.2} for two runs", of(name, measured, what).why);
        value(name, number, Origin::Fitted, &why)
    };
    vec![
        of("machine.read_modify_write", lines.read_modify_write, "fetch_add on a line that the CPU has"),
        of("machine.memory", lines.memory, "a chain of lines, four times the private caches"),
        shared(
            "machine.near",
            costs.near,
            lines.transfer,
            transfers.line,
            "a chain of lines that another CPU has changed",
        ),
        shared("machine.far", costs.far, lines.transfer, transfers.line, "the same as near"),
        shared(
            "machine.upgrade",
            costs.upgrade,
            lines.upgrade,
            transfers.line,
            "read-modify-writes of lines that another CPU has read",
        ),
        shared(
            "machine.following",
            costs.following,
            lines.following,
            transfers.following,
            "a line behind one that another CPU has changed",
        ),
        Measured { number: costs.relax, ..of("machine.relax", lines.relax, "a turn of a spin loop") },
        of("machine.payload_line", lines.payload_line, "64 bytes copied and summed, or summed"),
    ]
}

/// Wake-ups and switches.
fn scheduler(measured: &Measurements, costs: &Costs) -> Vec<Measured> {
    let Measurements { sleeps, cpus, .. } = measured;
    let of = |name: &str, measured, what: &str| cost(costs, name, measured, what);
    vec![
        of("scheduler.system_call", sleeps.system_call, "getppid"),
        of(
            "scheduler.wake",
            sleeps.wake,
            "FUTEX_WAKE with a sleeper on the same CPU, less the system call; a third of the way there at most",
        ),
        of("scheduler.wake_idle", sleeps.wake_idle, "FUTEX_WAKE with a sleeper on an idle CPU, less that"),
        value("scheduler.wake_lines", 0, Origin::Derived, "in the cost of a wake-up"),
        of("scheduler.switch", sleeps.switch, "two threads that wake each other on one CPU, beside the model"),
        value("scheduler.switch_lines", 0, Origin::Derived, "in the cost of a switch"),
        of("scheduler.idle_exit", sleeps.idle_exit, "two threads that wake each other on two CPUs, beside the model"),
        value("scheduler.slice", 3_000 * cpus.megahertz, Origin::Assumed, "3 ms"),
    ]
}

/// The steps of the stack.
fn work(measured: &Measurements, costs: &Costs) -> Vec<Measured> {
    let Measurements { steps, transfers, .. } = measured;
    let windows: usize = transfers.runs.iter().map(|(_, run)| run.valid).sum();
    let of = |step: &Step| {
        let name = format!("work.{}", step.name());
        let (fitted, stamped) = (steps.nanos[*step as usize], steps.stamped.nanos[*step as usize]);
        let count = steps.stamped.counts[*step as usize];
        if count == 0 {
            // The order of a call's cost, and no more: no run of the fit set makes it.
            let number = in_cycles(costs, steps.nanos[Step::Call as usize] / 2.0);
            return value(&name, number, Origin::Assumed, "half of a call; the fit set does not make it");
        }
        let why =
            format!("{fitted:.0} ns; by {count} time stamps {stamped:.0}; {windows} windows of the fit set count");
        value(&name, in_cycles(costs, fitted), Origin::Fitted, &why)
    };
    Step::ALL.iter().map(of).collect()
}
