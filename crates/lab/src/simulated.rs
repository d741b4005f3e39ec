//! Results of the simulator as rows of the document: a run of a seed is a sample, and every row has the [`Account`] of
//! the virtual CPUs beside its figures.
//!
//! Called by `heddle simulate`. All figures are computed from a model, as the document's `machine` states;
//! [`OF_THE_YEAR`] marks the rows with the footprint of a paper's kernel. What may never happen: a row of a model in
//! the recommendation for a real machine, so these documents have none.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sync::{LockKind, Object};
use vsmp::preset::Kernel;
use vsmp::simulation::{self, Gain, Mean, Simulation};
use vsmp::workload::measured::Measured;
use vsmp::{Ledger, Part, PartGroup, SwitchKind};

use crate::cpu::Switches;
use crate::machine::{Machine, Probe};
use crate::result::{Key, Results, Row, Scaling, Workload};
use crate::sampling::{Exact, LockCount, Samples, Slice, Wakes};
use crate::stats::Estimate;

/// End of an architecture's name in a row with the footprint and the habits of the preset's kernel.
pub const OF_THE_YEAR: &str = " (year)";

/// Cycles and misses of a row by purpose: sums over its samples, under the names that `heddle simulate` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// Clock of the virtual CPUs, in megahertz.
    pub megahertz: u64,
    /// Cycles of each CPU.
    pub cpus: Vec<CpuAccount>,
    /// Cache misses by object; `atomics`, `scheduler` and `footprint` belong to no object of the stack.
    pub misses: BTreeMap<String, u64>,
    /// Misses that another CPU's cache answered.
    pub misses_from_caches: u64,
    /// Changes of threads by kind.
    pub switches: BTreeMap<String, u64>,
    /// Samples that never became steady: their figures are unreliable.
    pub unsteady_samples: u64,
    /// Virtual time before each sample was measured, in seconds.
    pub warm_up_s: Vec<f64>,
    /// The paper's measurement of this point, in Gb/s; `null` if it has none.
    pub paper_gbps: Option<f64>,
    /// Whether the machine's values were fitted to that point; the others are held out.
    pub fitted: bool,
    /// The effect of lower costs; empty unless it was computed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub what_if: Vec<WhatIf>,
}

/// The result of a row with a class of costs lowered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIf {
    /// The class, as `heddle simulate` prints it.
    pub class: String,
    /// The reduction of its costs, in percent.
    pub lower_by_percent: u64,
    /// Change of the throughput.
    pub throughput_percent: Estimate,
    /// Change of the busy cycles for a kilobyte.
    pub cycles_percent: Estimate,
}

impl WhatIf {
    /// The gain of costs that were lower by `percent`.
    pub fn of(gain: &Gain, percent: u64) -> WhatIf {
        let estimate = |mean: Mean| Estimate { mean: mean.mean, ci95: mean.half };
        WhatIf {
            class: gain.class.to_owned(),
            lower_by_percent: percent,
            throughput_percent: estimate(gain.throughput),
            cycles_percent: estimate(gain.cycles),
        }
    }
}

/// Cycles of a virtual CPU. The parts sum to `total`, and so do the groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuAccount {
    /// The advance of its clock.
    pub total: u64,
    /// Sums of parts: work, memory, spinning, scheduling, idle.
    pub groups: BTreeMap<String, u64>,
    /// Cycles by purpose; parts without a cycle are absent.
    pub parts: BTreeMap<String, u64>,
}

impl Account {
    fn of(results: &simulation::Results) -> Account {
        let runs = &results.runs;
        let sum = |of: &dyn Fn(&Measured) -> u64| runs.iter().map(of).sum::<u64>();
        let objects = Object::ALL.map(|object| {
            (object.name().to_owned(), sum(&|run: &Measured| run.account.object_misses[object as usize]))
        });
        let others = [
            ("atomics".to_owned(), sum(&|run: &Measured| run.account.atomic_misses)),
            ("scheduler".to_owned(), sum(&|run: &Measured| run.account.scheduler_misses)),
            ("footprint".to_owned(), sum(&|run: &Measured| run.account.footprint_misses)),
        ];
        let kinds = SwitchKind::ALL
            .map(|kind| (kind.name().to_owned(), sum(&|run: &Measured| run.account.switch_kinds[kind as usize])));
        let cpus = runs.first().map_or(0, |run| run.account.cpus.len());
        let point = results.point().filter(|_| results.kernel == Kernel::OfThePaper);
        Account {
            megahertz: megahertz(results),
            cpus: (0..cpus).map(|cpu| CpuAccount::of(runs.iter().map(|run| &run.account.cpus[cpu]))).collect(),
            misses: objects.into_iter().chain(others).collect(),
            misses_from_caches: sum(&|run: &Measured| run.account.transfers),
            switches: kinds.into_iter().collect(),
            unsteady_samples: runs.iter().filter(|run| !run.steady).count() as u64,
            warm_up_s: runs.iter().map(|run| run.warm_up.as_secs_f64()).collect(),
            paper_gbps: point.and_then(|point| point.megabits).map(|megabits| megabits / 1000.0),
            fitted: point.is_some_and(|point| point.fitted),
            what_if: Vec::new(),
        }
    }

    /// Cycles of all CPUs in a group.
    pub fn group(&self, group: PartGroup) -> u64 {
        self.cpus.iter().filter_map(|cpu| cpu.groups.get(group.name())).sum()
    }
}

impl CpuAccount {
    fn of<'a>(samples: impl Iterator<Item = &'a Ledger> + Clone) -> CpuAccount {
        let sum = |of: &dyn Fn(&Ledger) -> u64| samples.clone().map(of).sum::<u64>();
        let parts = Part::all().map(|part| (part.name(), sum(&|ledger: &Ledger| ledger.of(part))));
        let groups = PartGroup::ALL.map(|group| (group.name().to_owned(), sum(&|ledger: &Ledger| ledger.group(group))));
        CpuAccount {
            total: sum(&|ledger: &Ledger| ledger.total),
            groups: groups.into_iter().collect(),
            parts: parts.filter(|(_, cycles)| *cycles > 0).collect(),
        }
    }
}

fn megahertz(results: &simulation::Results) -> u64 {
    let simulation = &results.simulation;
    simulation.preset.costs(results.kernel).on(simulation.cpus).megahertz
}

/// A run as a sample. CPU time is that of the server's CPUs which were not idle; clients are no part of the machine.
fn slice(run: &Measured, megahertz: u64) -> Slice {
    let busy = run.account.total() - run.account.cycles(Part::Idle);
    let lock = |class: &sync::profile::ClassProfile| LockCount {
        class: class.class.name().to_owned(),
        acquired: class.acquired,
        first_try_failed: class.first_try_failed,
        wait_ns: Some(class.wait_ns),
        hold_ns: Some(class.hold_ns),
    };
    let involuntary = run.account.preemptions;
    Slice {
        bytes: run.bytes,
        operations: 0,
        wall: run.time,
        cpu: Duration::from_secs_f64(busy as f64 / (megahertz as f64 * 1e6)),
        switches: Switches { voluntary: run.account.switches.saturating_sub(involuntary), involuntary },
        exact: Exact {
            locks: run.locks.iter().filter(|lock| lock.acquired > 0).map(lock).collect(),
            handoffs: run.handoffs.handoffs,
            wakes: Wakes { sent: run.handoffs.wakes_sent, suppressed: run.handoffs.wakes_suppressed },
            out_of_order: run.out_of_order,
            retransmits: 0,
        },
        fairness: run.fairness(),
        round_trip_ns: None,
    }
}

/// The row of a simulation; `None` without runs.
pub fn row(results: &simulation::Results) -> Option<Row> {
    let simulation::Results { simulation, kernel, runs } = results;
    let arch = simulation.arch.filter(|arch| arch.properties().has_locks);
    let groups = arch.filter(|arch| arch.properties().groups).and_then(|arch| arch.parameter()).map(u32::from);
    let name = match (arch, groups) {
        (Some(arch), Some(_)) => arch.family().to_owned(),
        _ => simulation.arch_name(),
    };
    let habit = match kernel {
        Kernel::Heddle => LockKind::default(),
        Kernel::OfThePaper => simulation.preset.habits.lock_kind,
    };
    let key = Key {
        workload: Workload::Bulk,
        arch: if *kernel == Kernel::OfThePaper { name + OF_THE_YEAR } else { name },
        lock: arch.map(|_| simulation.lock_kind.unwrap_or(habit).to_string()),
        groups,
        connections: simulation.connections as u32,
        threads: runs.first()?.account.cpus.len() as u32,
    };
    let slices = runs.iter().map(|run| slice(run, megahertz(results))).collect();
    let samples = Samples { name: key.variant(), slices, failed: None };
    let mut row = Row::new(key, &samples, None)?;
    row.retransmits = None;
    let account = Account::of(results);
    if account.unsteady_samples > 0 {
        let remark = format!("{} of {} samples never became steady", account.unsteady_samples, runs.len());
        row.notes.push(remark);
    }
    row.simulated = Some(account);
    Some(row)
}

/// The document of simulations on one machine. It recommends nothing, because a model's differences below 10 % are not
/// significant.
pub fn document(simulation: &Simulation, rows: Vec<Row>) -> Results {
    let scaling = Scaling::of(&rows);
    let mut results = Results { scaling, ..Results::new(machine(simulation), parameters(simulation), rows) };
    results.recommendation = None;
    results
}

/// The virtual machine where the document names a machine; the compiler is that of this build.
fn machine(simulation: &Simulation) -> Machine {
    Machine {
        cpu_model: format!("a model of {}", simulation.preset.describes),
        cores: simulation.cpus,
        kernel: "none".into(),
        governor: None,
        load_before: None,
        load_after: None,
        other_programs_percent: None,
        steal_percent: None,
        clock_source: Some("virtual".into()),
        memory_bytes: None,
        mitigations: "none".into(),
        nominal_megahertz: None,
        no_scheduler_samples: None,
        no_cache_misses: None,
        ..Probe::start().finish()
    }
}

fn parameters(simulation: &Simulation) -> Map<String, Value> {
    let Simulation { preset, cpus, seeds, ipv6, .. } = simulation;
    let values: Map<String, Value> = preset
        .values()
        .map(|(name, value)| {
            let shown = value.number().map_or_else(|| json!(value.text()), |number| json!(number));
            (name.to_owned(), json!({ "value": shown, "origin": value.origin.to_string() }))
        })
        .collect();
    let mut parameters = Map::new();
    parameters.insert("workload".into(), json!(simulation.workload.to_string()));
    parameters.insert("machine".into(), json!(preset.name));
    parameters.insert("cpus".into(), json!(cpus));
    parameters.insert("seeds".into(), json!(seeds));
    parameters.insert("ipv6".into(), json!(ipv6));
    parameters.insert("machine_values".into(), Value::Object(values));
    parameters
}
