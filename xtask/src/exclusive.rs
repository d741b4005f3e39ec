//! The cost of the architecture with exclusive access: counts the instructions of the same segments passed to a cell by
//! a plain call and through the reference architecture, and prints the ratio. Instructions are counted because they are
//! the same in every run, unlike times on a shared machine.

use std::process::Command;

use crate::metadata;

/// Segments in the longer and in the shorter run; the common part (set-up, loading) is subtracted.
const SEGMENTS: (u32, u32) = (40_000, 10_000);
/// Largest overhead of the reference architecture (one thread, no lock), which consists of the ownership check and one
/// virtual call. Above this the step fails. The event is passed by reference, so that the result does not depend on
/// copies chosen by the compiler.
const BOUND: f64 = 1.02;

/// Why the comparison was not made.
pub enum Outcome {
    /// It is within the bound.
    Within,
    /// There is no valgrind.
    NoValgrind,
}

/// Builds the example and compares.
pub fn compare() -> Result<Outcome, String> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Ok(Outcome::NoValgrind);
    }
    let mut build = metadata::cargo();
    build.current_dir(metadata::root());
    // An incremental build cuts the program into other units and inlines otherwise: it counts another program.
    build.env("CARGO_INCREMENTAL", "0");
    build.args(["build", "--quiet", "--release", "--locked", "--package", "heddle-stack", "--example", "exclusive"]);
    if !build.status().is_ok_and(|status| status.success()) {
        return Err("the example `exclusive` of heddle-stack does not build".to_owned());
    }
    let direct = per_segment("direct")?;
    let through = per_segment("trait")?;
    let ratio = through / direct;
    println!(
        "instructions per data segment: {direct:.0} by a plain call, {through:.0} through the architecture: ratio {ratio:.4}"
    );
    if ratio > BOUND {
        return Err(format!("the reference architecture costs {ratio:.4} times a plain call, more than {BOUND}"));
    }
    Ok(Outcome::Within)
}

fn per_segment(mode: &str) -> Result<f64, String> {
    let (more, fewer) = (count(mode, SEGMENTS.0)?, count(mode, SEGMENTS.1)?);
    Ok((more - fewer) as f64 / f64::from(SEGMENTS.0 - SEGMENTS.1))
}

fn count(mode: &str, segments: u32) -> Result<u64, String> {
    let target = metadata::target_directory()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(target.join("release/examples/exclusive"))
        .args([mode, &segments.to_string()])
        .output()
        .map_err(|error| format!("valgrind could not be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, count)| count.trim());
    line.and_then(|count| count.parse().ok())
        .ok_or_else(|| format!("callgrind printed no count for `exclusive {mode} {segments}`: {text}"))
}
