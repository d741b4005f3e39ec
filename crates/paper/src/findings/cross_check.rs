//! Table 3 of Willmann et al. on a host: cycles that samples give, and cycles that counts give.
//!
//! Both are of the same slices. They need not agree: a sample knows the function, and a count does not know what a switch cost. A
//! ratio far from one says that one of them is wrong, or that threads enter the scheduler without a switch.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::data::{Figure, Metric};
use crate::findings::View;
use crate::point::Sample;

/// A subject at a load, in means over the rounds. Cycles are of the nominal frequency, for each kilobyte of payload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CrossCheck {
    /// By its name in the paper.
    pub subject: String,
    /// Connections.
    pub connections: u32,
    /// Samples of the process, of all rounds.
    pub samples: f64,
    /// Cycles of the scheduler, by samples.
    pub sampled: f64,
    /// Switches for each kilobyte, as the kernel counted them.
    pub switches: f64,
    /// Cycles of these switches, at what one with its wake-up takes on this host.
    pub counted: f64,
    /// Cycles in queues of futexes, by samples; not in `sampled`.
    pub futex: f64,
    /// Cycles of the idle threads in the scheduler, by samples; not in `sampled`.
    pub idle: f64,
}

impl CrossCheck {
    /// Of each subject and load that the host has sampled; none of a figure of something else.
    pub(super) fn all(figure: &Figure, host: &View<'_, '_>, loads: &[u32]) -> Vec<CrossCheck> {
        if figure.metric != Some(Metric::Scheduler) {
            return Vec::new();
        }
        let of = |subject: &String, load: u32| CrossCheck::of(subject, load, &host.samples_of(subject, load));
        figure.subjects.iter().flat_map(|subject| loads.iter().filter_map(move |load| of(subject, *load))).collect()
    }

    fn of(subject: &str, connections: u32, samples: &[&Sample]) -> Option<CrossCheck> {
        let sampled: Vec<&BTreeMap<String, f64>> = samples.iter().map(|sample| &sample.values).collect();
        let values = |name: &str| sampled.iter().filter_map(|values| values.get(name).copied()).collect::<Vec<f64>>();
        let mean = |name: &str| lab::stats::mean(&values(name));
        Some(CrossCheck {
            subject: subject.to_owned(),
            connections,
            samples: values("samples_of_cpus").iter().sum(),
            sampled: mean("scheduler_cycles_per_kb")?,
            switches: mean("switches_per_kb")?,
            counted: mean("scheduler_cycles_by_counts_per_kb")?,
            futex: mean("futex_cycles_per_kb")?,
            idle: mean("idle_scheduler_cycles_per_kb")?,
        })
    }
}
