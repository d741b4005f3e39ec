//! The fast lane changes nothing: every script under `conformance/scripts` gives the same packets at the same times, and
//! the same counters, with the lane on and off.

use std::path::Path;

use heddle_drill::Family;
use heddle_drill::batch::find;
use heddle_drill::check::{Checked, check};
use heddle_drill::run::Options;
use observe::Counter;
use stack::Architecture;

/// Runs the script in a family with the lane on or off.
fn ran(path: &Path, text: &str, family: Family, fast_lane: bool) -> Checked {
    let arch = Architecture::named("up");
    let directory = path.parent().map(Path::to_owned);
    check(text, &[arch], &Options { family, directory, fast_lane, ..Options::new(arch) }, &[])
}

/// Returns how many segments header prediction has taken.
fn same_with_and_without(path: &Path, family: Family) -> u64 {
    let text = std::fs::read_to_string(path).expect("it is text");
    let (with, without) = (ran(path, &text, family, true), ran(path, &text, family, false));
    let fault = with.fault.iter().chain(&without.fault).map(|fault| fault.at(path).to_string()).next();
    assert_eq!(fault, None, "over {family}");
    assert_eq!(with.traces, without.traces, "{} over {family}", path.display());
    assert_eq!(with.counters, without.counters, "{} over {family}", path.display());
    with.counters.iter().map(|counters| counters.get(Counter::FastPathIn)).sum()
}

#[test]
fn every_script_gives_the_same_packets_and_counters() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/scripts");
    let paths = find(&[scripts]).expect("the scripts are there");
    assert!(paths.len() >= 300, "only {} scripts were found", paths.len());
    for family in [Family::V4, Family::V6] {
        let predicted: u64 = paths.iter().map(|path| same_with_and_without(path, family)).sum();
        assert!(predicted > 100, "{predicted} segments over {family} were predicted");
    }
}
