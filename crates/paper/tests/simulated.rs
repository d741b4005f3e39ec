//! Points on the simulated machine for real: every value that a figure of Willmann et al. or of Nahum et al. needs is in a sample.

use std::collections::BTreeSet;

use lab::machine::Probe;
use paper::claim::Verdict;
use paper::findings::Findings;
use paper::plan::{Effort, Plan};
use paper::point::{Place, Point};
use paper::{Paper, simulated};
use vsmp::{Arena, Preset};

#[global_allocator]
static ARENA: Arena = Arena::new();

fn point(paper: &Paper, arch: &str) -> Point {
    let preset = Preset::named(&paper.machine).unwrap();
    let (machine, arch, lock) = (paper.machine.clone(), arch.to_owned(), preset.habits.lock_kind.to_string());
    let cpus = preset.cpus as u32;
    Point { on: Place::Vsmp, machine, arch, connections: 6, cpus, lock, slice_ms: 0, workload: String::new(), seed: 1 }
}

/// A quick run of every subject with 6 connections and one seed, the smallest of all.
#[test]
fn a_sample_has_what_its_figures_show() {
    let paper = &Paper::all()[0];
    for subject in paper.subjects.iter().filter(|subject| subject.groups.is_none_or(|groups| groups == 128)) {
        // Others are measured on the host alone.
        let Some(arch) = subject.simulated.as_deref() else { continue };
        let point = point(paper, arch);
        let sample = simulated::measure(&point).unwrap();
        assert_eq!((&sample.point, sample.steady), (&point, true), "{sample:?}");
        for figure in paper.figures.iter().filter(|figure| figure.subjects.contains(&subject.name)) {
            let value = figure.metric.unwrap().value(subject).unwrap();
            let number =
                sample.values.get(&value).unwrap_or_else(|| panic!("{}: no {value} of {}", figure.id, subject.name));
            assert!(number.is_finite() && *number >= 0.0, "{value} of {}: {number}", subject.name);
        }
        // Six wires carry 5696 Mb/s in segments of 1460 bytes, frames of 1538. A client processes what has arrived up to 68
        // microseconds later, so that what arrived in these before the measured time may be in it.
        let measured_s = sample.parameters["measured_s"].as_f64().unwrap();
        let most = 6.0 * 1000.0 * 1460.0 / 1538.0 * (1.0 + 68e-6 / measured_s);
        assert!((500.0..most).contains(&sample.values["throughput_mbps"]), "{most}: {sample:?}");
    }
}

/// Words of a workload of bulk data change the cards: one wire carries less than 1 Gb/s, and where the processor is the limit
/// it sends more in jumbo frames and in super-segments.
#[test]
fn the_words_of_bulk_data_change_the_cards() {
    let paper = &Paper::all()[0];
    let megabits = |workload: &str| {
        let point = Point { workload: workload.to_owned(), ..point(paper, "uniprocessor") };
        let sample = simulated::measure(&point).unwrap();
        let card = ["cards", "mtu", "segmentation_offload"].map(|name| sample.parameters[name].to_string());
        (sample.values["throughput_mbps"], card.join(" "))
    };
    let (usual, cards) = megabits("");
    assert_eq!(cards, "6 1500 false");
    let (one, cards) = megabits("cards=1");
    assert!(cards == "1 1500 false" && (900.0..1000.0).contains(&one), "{cards}: {one}");
    let (jumbo, cards) = megabits("mtu=9000");
    assert!(cards == "6 9000 false" && jumbo > 1.2 * usual, "{cards}: {jumbo}, {usual}");
    let (offload, cards) = megabits("offload");
    assert!(cards == "6 1500 true" && offload > 1.2 * usual, "{cards}: {offload}, {usual}");
    let (both, cards) = megabits("mtu=9000+cards=2");
    assert!(cards == "2 9000 false" && both < 2000.0, "{cards}: {both}");
    let unknown = Point { workload: "mtu=9000+bigger".to_owned(), ..point(paper, "uniprocessor") };
    let refused = simulated::measure(&unknown).unwrap_err();
    assert!(refused.starts_with("no workload is called `mtu=9000+bigger`"), "{refused}");
}

/// Every subject of Nahum et al., for a short time: on two processors, or what needs more of them waits for nothing.
#[test]
fn a_sample_of_packets_has_what_its_figures_show() {
    let papers = Paper::all();
    let paper = papers.iter().find(|paper| paper.id == "nahum").unwrap();
    for subject in &paper.subjects {
        let workload = format!("{}+ms=20", subject.workload);
        let machine = subject.machine.as_ref().unwrap_or(&paper.machine).clone();
        let of_paper = point(paper, subject.simulated.as_deref().unwrap());
        let point = Point { machine, cpus: 2, connections: 1, workload, ..of_paper };
        let sample = simulated::measure(&point).unwrap();
        for figure in paper.figures.iter().filter(|figure| figure.subjects.contains(&subject.name)) {
            let value = figure.metric.unwrap().value(subject).unwrap();
            assert!(sample.values[&value].is_finite(), "{value} of {}", subject.name);
        }
        assert!((10.0..900.0).contains(&sample.values["throughput_mbps"]), "{sample:?}");
        let connections = if subject.workload.contains("+each") { 2 } else { 1 };
        assert_eq!(sample.parameters["connections"], connections, "{}", subject.name);
        assert_eq!(sample.parameters["workload"], point.workload.as_str());
        // An event takes the lock of a count twice, and the table's once.
        let of = |class: &str| sample.values.get(&format!("acquisitions_per_kb.{class}")).copied().unwrap_or_default();
        let locked = subject.workload.contains("counts=locked");
        let (expected, bound) = if locked { (2.0 * of("conn-table"), 0.02 * of("conn-table")) } else { (0.0, 0.0) };
        assert!((of("holders") - expected).abs() <= bound, "{}: {:?}", subject.name, sample.values);
        // Each packet has a buffer, which is allocated and released.
        let packets = 1024.0 / 4096.0;
        let global = subject.workload.contains("global-caches");
        assert!(
            if global { of("buffer-pool") >= 1.9 * packets } else { of("buffer-pool") < 0.2 * packets },
            "{}: {:?}",
            subject.name,
            sample.values
        );
    }
}

/// N08, whose numbers are far from its bounds, by what a run with three seeds would measure: an unfair lock loses the order, a queue
/// keeps it.
#[test]
fn a_claim_about_packets_is_borne_out_by_their_samples() {
    let papers = Paper::all();
    let selected = Paper::select(&papers, &["nahum.disorder".to_owned()]).unwrap();
    let host = Probe::start().finish();
    let plan = Plan::new(&selected, &[Place::Vsmp], Effort::QUICK, &host).unwrap();
    let needed =
        |point: &&Point| point.cpus > 1 && point.workload.contains("checksum") && point.arch.ends_with("+unordered");
    let samples: Vec<_> =
        plan.simulated.iter().filter(needed).map(|point| simulated::measure(point).unwrap()).collect();
    assert_eq!(samples.len(), 2 * 2 * 3);
    let findings = Findings::of(selected[0].paper, &samples, &host);
    let claim = findings.figures.iter().flat_map(|figure| &figure.claims).find(|claim| claim.id == "N08").unwrap();
    assert_eq!(claim.on(Place::Vsmp).verdict, Verdict::Holds, "{claim:?}");
    // The seeds are three samples, not one.
    let traces: BTreeSet<String> = samples.iter().map(|sample| sample.parameters["trace"].to_string()).collect();
    assert_eq!(traces.len(), samples.len());
}

#[test]
fn a_point_that_cannot_be_is_a_sentence() {
    let paper = &Paper::all()[0];
    let good = point(paper, "connp-t");
    let refused = |point: Point| simulated::measure(&point).unwrap_err();
    let said = refused(Point { machine: "cray-1".to_owned(), ..good.clone() });
    assert!(said.contains("cray-1") && said.contains("opteron-275"), "{said}");
    assert!(refused(Point { arch: "loom".to_owned(), ..good.clone() }).contains("loom"));
    let packets = |workload: &str| Point { workload: workload.to_owned(), ..good.clone() };
    assert!(refused(packets("packets-recieve")).contains("recieve"));
    assert!(refused(Point { arch: "uniprocessor".to_owned(), ..packets("packets-send") }).contains("uniprocessor"));
}
