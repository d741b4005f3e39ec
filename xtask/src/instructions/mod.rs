//! Guards the speed of the fast path: counts the instructions of its pieces under callgrind and compares them with the
//! committed baseline, `docs/instructions.json`, piece by piece, as ratios.
//!
//! Times are useless on a shared machine, but the example `instructions` of heddle-stack executes the same instructions
//! in every run: one thread, a virtual clock, fixed seeds. The remaining noise is external: another compiler, another
//! processor (AVX2 selects the checksum loop), another C library (`memcpy`, `malloc`). The first two are recorded in
//! the baseline, and if they differ nothing is compared.
//!
//! Callgrind's simulation of caches counts misses in the same runs: of the first level for instructions (how much code
//! an operation walks through) and for data, and of the last level. The caches are those of [`CACHES`], not of the
//! machine, so that counts agree everywhere. Misses depend on the places of code and data as well, which any change
//! moves, so their bound is wider.

pub mod bridge;
mod misses;
mod origin;
mod page;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use self::misses::Misses;
use self::origin::Origin;
use crate::{metadata, names};

/// Pieces by the example's names, with their rounds: over IPv4, and over IPv6.
const PIECES: &[(&str, u32)] = &[
    ("data", 200),
    ("ack", 200),
    ("out", 200),
    ("rpc", 100),
    ("handler", 100),
    ("connect", 16),
    ("data6", 200),
    ("ack6", 200),
    ("out6", 200),
    ("rpc6", 100),
    ("handler6", 100),
    ("connect6", 16),
];
/// The step fails if a piece grows by more than this.
const BOUND: f64 = 1.03;
/// The most that a piece may cost over IPv6, as a multiple of the same over IPv4.
const FAMILIES: f64 = 1.05;
/// A piece that shrank below this should get a new baseline.
const BETTER: f64 = 0.97;

/// The simulated caches: a first level of 32 KiB for instructions and 48 KiB for data, 1 MiB behind them.
const CACHES: [&str; 4] = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=49152,12,64", "--LL=1048576,16,64"];

/// The result of the comparison when nothing has grown.
pub enum Outcome {
    /// Every piece is within the bound.
    Within,
    /// It was not made, for this reason.
    Skipped(String),
}

/// One piece under one architecture.
struct Count {
    architecture: String,
    piece: &'static str,
    /// Operations that were counted.
    operations: u64,
    /// Instructions of one operation.
    each: u64,
    /// Cache misses of one operation.
    misses: Misses,
    /// Where the instructions of all operations come from.
    origins: BTreeMap<Origin, u64>,
}

/// Counts every piece and compares it with the baseline.
pub fn compare() -> Result<Outcome, String> {
    if let Some(reason) = missing() {
        return Ok(Outcome::Skipped(reason));
    }
    let text = std::fs::read_to_string(baseline()).map_err(|error| {
        format!("docs/instructions.json cannot be read ({error}): cargo xtask instructions --bless")
    })?;
    let old: Value = serde_json::from_str(&text).map_err(|error| format!("docs/instructions.json: {error}"))?;
    let here = surroundings()?;
    if old["surroundings"] != here {
        return Ok(Outcome::Skipped(format!(
            "the baseline was counted elsewhere ({}, here {here}): cargo xtask instructions --bless makes one for here",
            old["surroundings"]
        )));
    }
    let counts = count_all()?;
    let (grown, dearer) = (grown_counts(&counts, &old["instructions"])?, dearer_over_ipv6(&counts));
    let grown = [grown, dearer, misses::grown(&counts, &old["misses"])?].concat();
    if grown.is_empty() {
        return Ok(Outcome::Within);
    }
    Err(format!(
        "the fast path has grown: {}; the bounds are {BOUND} for instructions, {FAMILIES} for IPv6 beside IPv4, and {} for misses. `valgrind \
         --tool=callgrind {}` on the example `instructions` shows where; if it must be, `cargo xtask instructions \
         --bless` and say why in the commit",
        grown.join(", "),
        misses::BOUND,
        CACHES.join(" ")
    ))
}

/// Writes the present baseline, and the counted part of `docs/performance.md`.
pub fn bless() -> Result<(), String> {
    if let Some(reason) = missing() {
        return Err(reason);
    }
    let counts = count_all()?;
    let (mut architectures, mut caches) = (Map::new(), Map::new());
    for Count { architecture, piece, each, misses, .. } in &counts {
        println!("{architecture:12} {piece:8} {each:6} {misses}");
        let pieces = architectures.entry(architecture).or_insert_with(|| json!({}));
        pieces[*piece] = (*each).into();
        let pieces = caches.entry(architecture).or_insert_with(|| json!({}));
        pieces[*piece] = misses.to_json();
    }
    let all = json!({ "surroundings": surroundings()?, "instructions": architectures, "misses": caches });
    let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())? + "\n";
    std::fs::write(baseline(), text).map_err(|error| format!("docs/instructions.json cannot be written: {error}"))?;
    page::write(&counts, &all)
}

/// The pieces whose instructions have grown beyond the bound.
fn grown_counts(counts: &[Count], old: &Value) -> Result<Vec<String>, String> {
    let mut grown = Vec::new();
    for Count { architecture, piece, each, .. } in counts {
        let Some(before) = old[architecture][*piece].as_u64().filter(|before| *before > 0) else {
            return Err(format!("the baseline has no {piece} under {architecture}: cargo xtask instructions --bless"));
        };
        let ratio = *each as f64 / before as f64;
        let remark = if ratio < BETTER { "  (better: --bless keeps it so)" } else { "" };
        println!("{architecture:12} {piece:8} {each:6} instructions, baseline {before:6}, ratio {ratio:.3}{remark}");
        if ratio > BOUND {
            grown.push(format!("instructions of {piece} under {architecture} to {ratio:.3}"));
        }
    }
    Ok(grown)
}

/// The pieces that cost more over IPv6 than they may.
fn dearer_over_ipv6(counts: &[Count]) -> Vec<String> {
    let over = |architecture: &str, piece: &str| {
        counts.iter().find(|count| count.architecture == architecture && count.piece == piece)
    };
    let mut dearer = Vec::new();
    for v6 in counts {
        let Some(v4) = v6.piece.strip_suffix('6').and_then(|piece| over(&v6.architecture, piece)) else { continue };
        let ratio = v6.each as f64 / v4.each as f64;
        println!("{:12} {:8} {ratio:.3} of {} over IPv4", v6.architecture, v6.piece, v4.piece);
        if ratio > FAMILIES {
            dearer.push(format!("{} under {} to {ratio:.3} of {}", v6.piece, v6.architecture, v4.piece));
        }
    }
    dearer
}

/// Why counting is not possible here.
fn missing() -> Option<String> {
    let found = Command::new("valgrind").arg("--version").output().is_ok();
    (!found).then(|| "valgrind is not installed: apt-get install valgrind".to_owned())
}

fn baseline() -> PathBuf {
    metadata::root().join("docs/instructions.json")
}

/// The environment on which the counts depend besides the source.
fn surroundings() -> Result<Value, String> {
    let output = Command::new("rustc").current_dir(metadata::root()).arg("-vV").output();
    let text = output.map_err(|error| format!("rustc could not be run: {error}"))?.stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim().to_owned();
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let avx2 = cpu.split_whitespace().any(|flag| flag == "avx2");
    Ok(json!({ "rustc": field("release:"), "host": field("host:"), "avx2": avx2 }))
}

fn count_all() -> Result<Vec<Count>, String> {
    let mut build = metadata::cargo();
    build.current_dir(metadata::root());
    // An incremental build cuts the program into other units and inlines otherwise: it counts another program.
    build.env("CARGO_INCREMENTAL", "0");
    build.args(["build", "--quiet", "--release", "--locked", "--package", "heddle-stack", "--example", "instructions"]);
    if !build.status().is_ok_and(|status| status.success()) {
        return Err("the example `instructions` of heddle-stack does not build".to_owned());
    }
    let program = metadata::target_directory()?.join("release/examples/instructions");
    let mut counts = Vec::new();
    for architecture in names::counted()? {
        for (piece, rounds) in PIECES {
            counts.push(count(&program, &architecture, piece, *rounds)?);
        }
    }
    Ok(counts)
}

fn count(program: &Path, architecture: &str, piece: &'static str, rounds: u32) -> Result<Count, String> {
    let profile = metadata::target_directory()?.join("instructions.callgrind");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=instructions::counted"])
        .args(CACHES)
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .args([architecture, piece, &rounds.to_string()])
        .output()
        .map_err(|error| format!("valgrind could not be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let operations = said.lines().find_map(|line| line.strip_suffix(" operations")?.parse::<u64>().ok());
    let profile = std::fs::read_to_string(&profile).unwrap_or_default();
    let mut origins = BTreeMap::new();
    for (file, instructions) in origin::by_file(&profile)? {
        *origins.entry(Origin::of(&file)).or_default() += instructions;
    }
    match (operations, origins.values().sum::<u64>()) {
        (Some(operations), collected) if operations > 0 && collected > 0 => Ok(Count {
            architecture: architecture.to_owned(),
            piece,
            operations,
            each: collected / operations,
            misses: Misses::read(&profile, operations)?,
            origins,
        }),
        _ => Err(format!(
            "`instructions {architecture} {piece} {rounds}` under callgrind gave no count: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(each: u64) -> [Count; 1] {
        let (misses, origins) = (Misses::default(), BTreeMap::new());
        [Count { architecture: "up".into(), piece: "ack", operations: 1, each, misses, origins }]
    }

    #[test]
    fn three_per_cent_are_within_the_bound_and_four_are_not() {
        let old = json!({ "up": { "ack": 1000 } });
        assert_eq!(grown_counts(&now(1030), &old), Ok(vec![]));
        assert_eq!(grown_counts(&now(500), &old), Ok(vec![]));
        assert_eq!(grown_counts(&now(1040), &old), Ok(vec!["instructions of ack under up to 1.040".to_owned()]));
    }

    #[test]
    fn five_per_cent_more_over_ipv6_are_within_the_bound_and_six_are_not() {
        let over_ipv6 = |each| now(each).map(|count| Count { piece: "ack6", ..count });
        let both = |each| now(1000).into_iter().chain(over_ipv6(each)).collect::<Vec<_>>();
        assert_eq!(dearer_over_ipv6(&both(1050)), Vec::<String>::new());
        assert_eq!(dearer_over_ipv6(&both(1060)), ["ack6 under up to 1.060 of ack"]);
        assert_eq!(dearer_over_ipv6(&now(1000)), Vec::<String>::new(), "one family alone");
    }

    #[test]
    fn a_piece_without_a_baseline_is_an_error_and_not_a_pass() {
        let message = grown_counts(&now(1000), &json!({ "up": {} })).err().unwrap_or_default();
        assert!(message.contains("--bless"), "{message}");
    }
}
