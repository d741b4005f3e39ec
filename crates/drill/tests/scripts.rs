//! Every script under `conformance/scripts` passes under every architecture, with the same packets at the same times.

use std::path::{Path, PathBuf};

use heddle_drill::Family;
use heddle_drill::batch::{Batch, Outcome, find};
use heddle_drill::run::Options;
use stack::{ALL_ARCHITECTURES, Architecture};
use tcp::knobs::KNOBS;

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/scripts")
}

fn architectures() -> Vec<Architecture> {
    ALL_ARCHITECTURES.iter().map(|name| name.parse().expect("a plan")).collect()
}

/// Scripts that fail in a family because of a known fault of the stack, which the text names. The commit that fixes the
/// fault deletes the line: a script that passes is refused here.
const WAITING: &[(Family, &str, &str)] = &[];

/// Scripts in which one acknowledgement answers a batch of segments (RFC 9293, MUST-58 and MUST-59). Packet-level
/// parallelism takes each segment of a batch by itself, on any worker, so that it answers every second one.
const BATCHES: &[&str] = &[
    "audit/rfc9293/batch_that_ends_with_fin.pkt",
    "audit/rfc9293/ten_segments_one_ack.pkt",
    "audit/rfc9293/ten_segments_one_ack_ipv4.pkt",
    "delayed_ack/ten_segments_at_once.pkt",
];

fn run(architectures: Vec<Architecture>, family: Family, paths: &[PathBuf]) -> Vec<Outcome> {
    let options = Options::new(architectures[0]);
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    Batch { architectures, families: vec![family], options, defines: Vec::new(), jobs, captures: None }.run(paths)
}

fn all_go_through(family: Family) {
    let paths = find(&[scripts()]).expect("the scripts are there");
    assert!(paths.len() >= 300, "only {} scripts were found", paths.len());
    let (batches, others): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.iter().cloned().partition(|path| BATCHES.iter().any(|batch| path.ends_with(batch)));
    assert_eq!(batches.len(), BATCHES.len(), "a script was renamed");
    let (together, apart): (Vec<_>, Vec<_>) =
        architectures().into_iter().partition(|arch| arch.properties().keeps_batches_together);
    for outcome in run(apart, family, &batches) {
        assert!(outcome.fault.is_some(), "{} goes through over {family}: it is no exception", outcome.path.display());
    }
    let mut outcomes = run(architectures(), family, &others);
    outcomes.extend(run(together, family, &batches));
    let waits = |outcome: &Outcome| WAITING.iter().any(|(of, path, _)| *of == family && outcome.path.ends_with(path));
    let (waiting, outcomes): (Vec<Outcome>, Vec<Outcome>) = outcomes.into_iter().partition(waits);
    let faults: Vec<String> = outcomes.iter().filter_map(Outcome::line).collect();
    for outcome in &waiting {
        assert!(outcome.fault.is_some(), "{} goes through over {family}: it waits no more", outcome.path.display());
    }
    assert!(faults.is_empty(), "{} of {} scripts failed:\n{}", faults.len(), paths.len(), faults.join("\n"));
}

#[test]
fn every_script_goes_through_over_ipv4() {
    all_go_through(Family::V4);
}

/// Those that declare IPv4 run over IPv4.
#[test]
fn every_script_goes_through_over_ipv6() {
    all_go_through(Family::V6);
}

/// Those that declare IPv6 run over IPv6.
#[test]
fn every_script_goes_through_over_mapped_addresses() {
    all_go_through(Family::Mapped);
}

/// A script that is not for all families has the reason on the line of its declaration.
#[test]
fn a_script_for_one_family_says_why() {
    let paths = find(&[scripts()]).expect("the scripts are there");
    let silent = paths.iter().filter(|path| {
        let text = std::fs::read_to_string(path).expect("it is text");
        let why = |line: &str| line.split_once("//").is_some_and(|(_, why)| why.trim().len() > 10);
        text.lines().any(|line| line.starts_with("--ip_version") && !why(line))
    });
    let silent: Vec<_> = silent.collect();
    assert!(silent.is_empty(), "no reason for --ip_version in {silent:?}");
}

/// The effect of each knob is visible in a script that sets it.
#[test]
fn every_knob_that_works_is_turned_in_a_script() {
    // Limits of a whole stack, which one connection cannot reach, and the choice of a port: tests of `heddle` and
    // `stack` set these (`options.rs`, `knobs.rs`, `hostile/held.rs`).
    const ELSEWHERE: [&str; 4] = ["tcp_max_orphans", "tcp_max_tw_buckets", "tcp_mem", "tcp_tw_reuse"];
    let paths = find(&[scripts()]).expect("the scripts are there");
    let texts: String = paths.iter().map(|path| std::fs::read_to_string(path).expect("it is text")).collect();
    let working = KNOBS.iter().filter(|knob| knob.idle.is_none()).map(|knob| knob.name);
    let untried: Vec<_> =
        working.filter(|name| !ELSEWHERE.contains(name) && !texts.contains(&format!("{name}="))).collect();
    assert!(untried.is_empty(), "no script turns {untried:?}");
}
