//! A causal profile: the throughput if one class of costs were lower.
//!
//! A share of the cycles does not predict the gain of a saving: cycles off the critical path cost nothing, and a cycle
//! under a contended lock costs every CPU (Curtsinger and Berger, "Coz: Finding Code that Counts with Causal
//! Profiling", SOSP 2015). A profiler on real hardware must slow down all other code instead. Here the cost is lowered
//! and the same seeds run again, so that gains are differences within a seed.

use super::{Mean, Results, Simulation};
use crate::preset::{Kernel, Preset};
use crate::workload::measured::Measured;

/// Costs that are lowered together: the name in reports, and values of a preset.
type CostClass = (&'static str, &'static [&'static str]);

/// The classes, in the order of reports.
const CLASSES: [CostClass; 14] = [
    ("work, batch", &["work.batch"]),
    ("work, frame", &["work.frame"]),
    ("work, event", &["work.event"]),
    ("work, emit", &["work.emit"]),
    ("work, call", &["work.call"]),
    ("work, message", &["work.message"]),
    ("work, poll and application", &["work.poll", "work.application"]),
    ("lines from memory", &["machine.memory"]),
    ("lines from other CPUs", &["machine.near", "machine.far", "machine.upgrade"]),
    ("atomic operations", &["machine.read_modify_write"]),
    ("system calls", &["scheduler.system_call"]),
    ("wake-ups", &["scheduler.wake"]),
    ("switches and leaving idleness", &["scheduler.switch", "scheduler.idle_exit"]),
    ("interrupts", &["scheduler.interrupt"]),
];

/// The result of lowering a class of costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Gain {
    /// The class.
    pub class: &'static str,
    /// Change of the throughput in percent, over the seeds.
    pub throughput: Mean,
    /// Change of the busy cycles for a kilobyte, in percent: the gain if the wires are the limit.
    pub cycles: Mean,
}

impl Simulation {
    /// Runs every seed again for each class of costs, with these costs lower by `percent` (1 to 99); `base` are the
    /// runs with all of them whole. Calls `progress` with the class, the number of completed classes, and their total.
    /// A class is omitted if all its values are too small to be lowered.
    pub fn what_if(&self, base: &Results, percent: u64, mut progress: impl FnMut(&str, usize, usize)) -> Vec<Gain> {
        let mut gains = Vec::new();
        for (done, (class, values)) in CLASSES.into_iter().enumerate() {
            progress(class, done, CLASSES.len());
            if let Some(preset) = lowered(&self.preset, values, percent) {
                let cheaper = Simulation { preset, ..self.clone() };
                gains.push(gain(class, base, &cheaper, base.kernel));
            }
        }
        gains
    }
}

/// The preset with these values lower; `None` if that changes nothing.
fn lowered(preset: &Preset, names: &[&str], percent: u64) -> Option<Preset> {
    let mut changed = None;
    for name in names {
        let (_, value) = preset.values().find(|(other, _)| other == name)?;
        let number = value.number()?;
        let less = number * (100 - percent) / 100;
        if less < number {
            changed = Some(changed.as_ref().unwrap_or(preset).with(name, less).ok()?);
        }
    }
    changed
}

fn gain(class: &'static str, base: &Results, cheaper: &Simulation, kernel: Kernel) -> Gain {
    let runs: Vec<Measured> = (1..).zip(&base.runs).map(|(seed, _)| cheaper.run(kernel, seed)).collect();
    let change = |of: &dyn Fn(&Measured) -> f64| {
        let of_seed = |(before, after): (&Measured, &Measured)| 100.0 * (of(after) / of(before) - 1.0);
        Mean::of(&base.runs.iter().zip(&runs).map(of_seed).collect::<Vec<_>>())
    };
    Gain { class, throughput: change(&Measured::megabits), cycles: change(&Measured::busy_cycles_by_kilobyte) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_names_values_of_every_preset() {
        for name in Preset::names() {
            let preset = Preset::named(name).expect("it is built in");
            for (class, values) in CLASSES {
                let known = |value: &&str| preset.values().any(|(other, _)| other == *value);
                assert!(values.iter().all(known), "{name}: {class}");
                let less = lowered(&preset, values, 20).unwrap_or_else(|| panic!("{name}: {class} can be lower"));
                assert_ne!(format!("{less:?}"), format!("{preset:?}"));
            }
        }
    }
}
