//! A load of the host on fewer processors than there are. In a process of its own: all its threads are looked at.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::AtomicBool;

use lab::machine::Probe;
use paper::Paper;
use paper::data::Selected;
use paper::host;
use paper::plan::{Effort, Plan};
use paper::point::Place;
use paper::run::Progress;
use paper::store::Store;

/// The processors of each thread of this process, as the kernel writes them, by the thread's number.
fn threads() -> Vec<(u32, String)> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    let allowed = |path: std::path::PathBuf| {
        let status = fs::read_to_string(path.join("status")).ok()?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some((path.file_name()?.to_str()?.parse().ok()?, list.trim().to_owned()))
    };
    tasks.filter_map(allowed).collect()
}

/// Twenty connections with a thread each, and a pool: none of their threads, nor of the applications, may use a second
/// processor while one is measured. What the figures show of that is in the samples.
#[test]
fn a_subject_runs_on_as_many_processors_as_its_load_says() {
    let papers = Paper::all();
    let paper = papers.iter().find(|paper| paper.id == "schmidt").unwrap();
    let selected = [Selected { paper, figures: vec![paper.figure("fig4").unwrap()] }];
    let effort = Effort { full: false, seeds: 1 };
    let mut plan = Plan::new(&selected, &[Place::Host], effort, &Probe::start().finish()).unwrap();
    plan.host.truncate(1);
    assert_eq!(plan.host[0].name.to_string(), "1 processor");
    plan.host[0].points.iter_mut().for_each(|point| point.slice_ms = 50);
    let own: BTreeSet<u32> = threads().into_iter().map(|(number, _)| number).collect();
    let mut seen = BTreeSet::new();
    let mut most = 0;
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let mut look = |progress: &Progress| {
        if progress.doing.contains("round") {
            let others: Vec<_> = threads().into_iter().filter(|(number, _)| !own.contains(number)).collect();
            most = most.max(others.len());
            seen.extend(others.into_iter().map(|(_, cpus)| cpus));
        }
    };
    let outcome = host::measure(&plan, &mut store, &AtomicBool::new(false), &mut look).unwrap();
    assert_eq!((outcome.measured, outcome.failed.len()), (4, 0), "{outcome:?}");
    assert!(most > 40, "{most} threads");
    assert!(seen.len() == 1 && seen.iter().all(|cpus| cpus.parse::<u32>().is_ok()), "one processor: {seen:?}");
    for sample in store.samples() {
        for value in ["throughput_mbps", "voluntary_switches", "involuntary_switches"] {
            assert!(sample.values[value].is_finite() && sample.values[value] >= 0.0, "{sample:?}");
        }
        assert!(sample.values["throughput_mbps"] > 0.0, "{sample:?}");
        // The figures of the time for locks have the presentation layer.
        let lock_ms = sample.values.get("lock_ms");
        assert_eq!(lock_ms.is_some(), sample.point.workload == "messages+xdr", "{sample:?}");
        assert!(lock_ms.is_none_or(|ms| ms.is_finite() && *ms > 0.0), "{sample:?}");
    }
}
