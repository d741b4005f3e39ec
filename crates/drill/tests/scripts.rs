//! Every script under `conformance/scripts` goes through under every architecture, with the same packets at the same times.

use std::path::{Path, PathBuf};

use heddle_drill::batch::{Batch, find};
use heddle_drill::run::Options;
use stack::{ALL_PLANS, Plan};

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/scripts")
}

fn plans() -> Vec<Plan> {
    ALL_PLANS.iter().map(|name| name.parse().expect("a plan")).collect()
}

fn all_go_through(ipv6: bool) {
    let paths = find(&[scripts()]).expect("the scripts are there");
    assert!(paths.len() >= 300, "only {} scripts were found", paths.len());
    let plans = plans();
    let mut options = Options::new(plans[0]);
    options.ipv6 = ipv6;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let batch = Batch { plans, options, defines: Vec::new(), jobs, captures: None };
    let faults: Vec<String> = batch
        .run(&paths)
        .into_iter()
        .filter_map(|outcome| outcome.fault.map(|fault| format!("{}:{fault}", outcome.path.display())))
        .collect();
    assert!(faults.is_empty(), "{} of {} scripts failed:\n{}", faults.len(), paths.len(), faults.join("\n"));
}

#[test]
fn every_script_goes_through_under_every_architecture() {
    all_go_through(false);
}

/// But those that say that they are for IPv4.
#[test]
fn every_script_goes_through_over_ipv6() {
    all_go_through(true);
}
