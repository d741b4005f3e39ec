//! `heddle arch`: a running service and a running relay are switched through every architecture while the kernel's
//! programs use them, and no transfer fails. `heddle explain`: a running service says what its architecture has decided.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use heddle::ALL_ARCHITECTURES;
use serde_json::Value;

use crate::namespace::{OURS_V4, OURS_V6, in_namespace};
use crate::process::{Process, output};
use crate::relaying::Relaying;
use crate::serving::{Serving, curl, python};

const HEDDLE: &str = env!("CARGO_BIN_EXE_heddle");
const MIB: usize = 1 << 20;

fn ask(words: &[&str], control: &str) -> Value {
    let shown = output(&[&[HEDDLE, "arch"], words, &["--control", control, "-j"]].concat());
    serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{error}: {shown}"))
}

/// Switches through every architecture, each once a transfer from each of `urls` has ended since; all must get `expected`.
fn switch_under_load(urls: &[String], expected: &str, control: &str) {
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        for url in urls {
            let over = &over;
            threads.spawn(move || {
                while !over.load(Ordering::Acquire) {
                    assert_eq!(curl(&[url]), expected, "{url}");
                }
            });
        }
        for arch in ALL_ARCHITECTURES {
            let set = ask(&["set", arch], control);
            assert_eq!(set["arch"], arch, "{set}");
            assert!(set["pause_us"].is_u64(), "{set}");
            assert_eq!(ask(&["show"], control)["arch"], arch);
            // Transfers that began before the next switch and may still run.
            assert_eq!(curl(&[&urls[0]]), expected, "under {arch}");
        }
        over.store(true, Ordering::Release);
    });
}

#[test]
fn a_running_service_is_switched_through_every_architecture() {
    in_namespace(&["curl"], |space| {
        let site = space.site(8 * MIB);
        let control = Path::new(&space.directory("arch")).join("control.sock").display().to_string();
        let more = ["--control", &control, "--mode", "660", "--fault", "loss 1% reorder 2% seed 7"];
        let serving = Serving::start(space, &site, ALL_ARCHITECTURES[0], &more);
        assert_eq!(std::fs::metadata(&control).expect("the socket").permissions().mode() & 0o777, 0o660);
        let urls = [OURS_V4, OURS_V6].map(|host| serving.url(host, "big"));
        switch_under_load(&urls, &site.big, &control);
        let wrong = Process::start(&[HEDDLE, "arch", "set", "none-such", "--control", &control]);
        let (status, errors) = wrong.end();
        assert!(status.code() == Some(1) && errors.contains("unknown architecture"), "{status}: {errors}");
        serving.stop();
        assert!(!Path::new(&control).exists(), "the control socket is removed");
        let nobody = Process::start(&[HEDDLE, "arch", "show", "--control", &control]);
        let (status, errors) = nobody.end();
        assert!(status.code() == Some(1) && errors.contains("no service answers"), "{status}: {errors}");
    });
}

/// The threads of an HTTP service use its connections as much as the receive thread does: groups stay shared.
#[test]
fn a_running_service_says_what_it_has_decided() {
    in_namespace(&["curl"], |space| {
        let site = space.site(8 * MIB);
        let control = Path::new(&space.directory("arch")).join("control.sock").display().to_string();
        let serving = Serving::start(space, &site, "adaptive", &["--control", &control]);
        let explain = |more: &[&str]| output(&[&[HEDDLE, "explain", "--control", &control], more].concat());
        assert_eq!(explain(&[]), "adaptive has decided nothing\n");
        assert_eq!(curl(&[&serving.url(OURS_V4, "big")]), site.big);
        let answer: Value = serde_json::from_str(&explain(&["-j"])).expect("JSON");
        assert_eq!(answer["arch"], "adaptive");
        assert!(answer["decisions"].is_array(), "{answer}");
        serving.stop();
    });
}

#[test]
fn a_running_relay_is_switched_through_every_architecture() {
    in_namespace(&["curl", "python3"], |space| {
        let site = space.site(2 * MIB);
        let Some((_server, port)) = python(&site) else { return };
        let control = Path::new(&space.directory("arch")).join("relay.sock").display().to_string();
        let relaying = Relaying::start(space, port, ALL_ARCHITECTURES[0], &["--control", &control]);
        let urls = relaying.targets().map(|target| target.url("big"));
        switch_under_load(&urls, &site.big, &control);
        relaying.stop();
    });
}

/// `heddle rfc2544 --over tap` measures Heddle's bridge and the kernel's, at a rate that every machine keeps up with, and
/// leaves no interface behind.
#[test]
fn bridges_are_measured_between_interfaces() {
    in_namespace(&[], |_| {
        let before = output(&["ip", "-o", "link"]);
        let words = "rfc2544 --over tap --bridge linux,rcu,cable --size 64 --reps 2 --trial 50 --attempts 9 --line-rate 2M --tests latency -j";
        let words: Vec<&str> = [HEDDLE].into_iter().chain(words.split(' ')).collect();
        let shown = output(&words);
        let document: Value = serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{error}: {shown}"));
        let rows = document["rows"].as_array().expect("rows");
        let names: Vec<_> = rows.iter().map(|row| &row["bridge"]).collect();
        assert_eq!(names, ["linux", "rcu", "cable"], "{}", document["not_measured"]);
        for row in rows {
            let samples = row["throughput_fps"]["samples"].as_array().expect("samples");
            assert!(samples.len() == 2 && samples.iter().all(|rate| rate.as_f64() > Some(0.0)), "{row}");
            assert!(row["latency"]["median_us"]["mean"].as_f64() > Some(0.0) && row["out_of_order"] == 0, "{row}");
        }
        assert!(rows[1]["ratio_to_first"]["mean"].as_f64() > Some(0.0), "of the Linux bridge: {}", rows[1]);
        assert_eq!(document["parameters"]["over"], "tap");
        assert_eq!(output(&["ip", "-o", "link"]), before, "the interfaces were made elsewhere");
    });
}
