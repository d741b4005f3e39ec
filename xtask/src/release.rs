//! `cargo xtask release`: the binary `heddle` with profile-guided optimisation and fat link-time optimisation.
//!
//! Three steps. The binary is built with counters in its code; it runs its own benchmarks (requests, bulk data, set-up
//! and close, each over both families), which writes the counters; it is built again with them. The gain is mostly one
//! of the instruction cache: code that the benchmarks never ran moves away from the code that they ran all the time.
//!
//! Both builds have the same flags otherwise, since counters are found by a function's name and the shape of its code.
//! The profile is made anew each time and depends on nothing but the source, the compiler and the benchmarks. Their
//! slices end by time, so two profiles differ by the number of rounds, but hardly in the share of each branch.
//!
//! `--compare` sets the result beside plain `cargo build --release`: both run alternately, and ratios are printed.
//! `--ratios` builds the benchmark `ratios` of `heddle-lab` in the same way and runs it. It is trained by itself, so that the
//! other stacks in it are optimised for what they do there just as ours is.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{metadata, names};

/// The benchmarks that make the profile, as arguments of `heddle`.
const TRAINING: &[&[&str]] = &[
    &["rpc", "--conns", "64", "--slice", "600"],
    &["rpc", "--conns", "1,1024", "--slice", "200"],
    &["rpc", "--connect", "--conns", "64", "--slice", "600"],
    &["compare", "--conns", "6", "--slice", "300"],
    &["compare", "--copy", "--conns", "192", "--slice", "200"],
];

/// Loads of `--compare`, which are not all among the benchmarks above.
const LOADS: &[&[&str]] = &[
    &["rpc", "--conns", "64"],
    &["rpc", "--conns", "4096"],
    &["rpc", "--connect", "--conns", "64"],
    &["compare", "--conns", "6"],
];

/// Alternations of `--compare`.
const ROUNDS: usize = 5;

/// What is built, by cargo's names.
struct Product {
    package: &'static str,
    name: &'static str,
    /// The arguments that select it in its package.
    selection: &'static [&'static str],
    /// Runs it, built with counters. They are written into the folder.
    train: fn(&Path, &Path) -> Result<(), String>,
}

/// The program.
const PROGRAM: Product =
    Product { package: "heddle-cli", name: "heddle", selection: &["--bin", "heddle"], train: train_program };

/// The benchmark beside other stacks.
const RATIOS: Product = Product {
    package: "heddle-lab",
    name: "ratios",
    selection: &["--bench", "ratios", "--features", "smoltcp"],
    train: train_ratios,
};

/// Builds the binary.
///
/// # Errors
/// A missing tool, with the command that installs it; a build or a benchmark that failed.
pub fn build() -> Result<(), String> {
    let binary = optimised(&PROGRAM)?;
    println!("built {}", binary.display());
    Ok(())
}

/// Builds the benchmark `ratios`, and runs its `sections`; none: all.
///
/// # Errors
/// As for [`build`].
pub fn ratios(sections: &[&str]) -> Result<(), String> {
    let bench = optimised(&RATIOS)?;
    println!("== running {} {}", bench.display(), sections.join(" "));
    run(Command::new(bench).args(sections))
}

/// Builds the binary, and prints its speed in ratios to that of `cargo build --release`.
///
/// # Errors
/// As for [`build`].
pub fn compare() -> Result<(), String> {
    let optimised = optimised(&PROGRAM)?;
    let mut cargo = metadata::cargo();
    run(cargo.current_dir(metadata::root()).args(["build", "--release", "--locked", "--package", "heddle-cli"]))?;
    let plain = metadata::target_directory()?.join("release/heddle");
    println!("{} / {}, medians of {ROUNDS} alternations (least to greatest)", optimised.display(), plain.display());
    for load in LOADS {
        for family in ["--", "-6"] {
            let mut ratios = Vec::new();
            for round in 0..ROUNDS {
                // Each is first in turn.
                let (first, second) = if round % 2 == 0 { (&plain, &optimised) } else { (&optimised, &plain) };
                let (first, second) = (speed(first, load, family)?, speed(second, load, family)?);
                ratios.push(if round % 2 == 0 { second / first } else { first / second });
            }
            ratios.sort_by(f64::total_cmp);
            let over = if family == "-6" { "IPv6" } else { "IPv4" };
            println!(
                "{:30} {over}  {:.2} ({:.2} to {:.2})",
                load.join(" "),
                ratios[ROUNDS / 2],
                ratios[0],
                ratios[ROUNDS - 1]
            );
        }
    }
    Ok(())
}

/// The path of the product, built.
fn optimised(product: &Product) -> Result<PathBuf, String> {
    let (host, merger) = tools()?;
    let folder = metadata::target_directory()?.join("pgo");
    let raw = folder.join(format!("{}.raw", product.name));
    // Counters of an earlier build do not belong to this one.
    let _ = std::fs::remove_dir_all(&raw);
    std::fs::create_dir_all(&raw).map_err(|error| format!("{}: {error}", raw.display()))?;

    let flag = format!("-Cprofile-generate={}", raw.display());
    let instrumented = build_with(product, &host, &folder.join("instrumented"), &flag)?;
    (product.train)(&instrumented, &raw)?;
    let profile = folder.join(format!("{}.profdata", product.name));
    let mut merge = Command::new(&merger);
    merge.args(["merge", "--output"]).arg(&profile).arg(&raw);
    run(&mut merge)?;
    build_with(product, &host, &folder.join("optimised"), &format!("-Cprofile-use={}", profile.display()))
}

/// The compiler's host, and `llvm-profdata` of the same LLVM: the format of profiles changes with its version.
fn tools() -> Result<(String, PathBuf), String> {
    let rustc = |arguments: &[&str]| {
        let output = Command::new("rustc").current_dir(metadata::root()).args(arguments).output();
        let output = output.map_err(|error| format!("rustc could not be run: {error}"))?;
        Ok::<String, String>(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let version = rustc(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc -vV names no host")?;
    let merger = Path::new(&rustc(&["--print", "sysroot"])?).join("lib/rustlib").join(host).join("bin/llvm-profdata");
    if merger.exists() {
        return Ok((host.to_owned(), merger));
    }
    Err(format!("{} is missing: rustup component add llvm-tools", merger.display()))
}

/// Builds the product in a target folder of its own and returns its path. With `--target`, `flag` does not reach build
/// scripts and macros.
fn build_with(product: &Product, host: &str, folder: &Path, flag: &str) -> Result<PathBuf, String> {
    println!("== building {} with {flag}", product.name);
    let mut cargo = metadata::cargo();
    cargo.current_dir(metadata::root()).args(["build", "--release", "--locked", "--package", product.package]);
    cargo.args(product.selection).args(["--target", host, "--config", "profile.release.lto=\"fat\""]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    // Incremental builds divide the code otherwise.
    cargo.env("CARGO_TARGET_DIR", folder).env("CARGO_ENCODED_RUSTFLAGS", flag).env("CARGO_INCREMENTAL", "0");
    let output = cargo.stderr(Stdio::inherit()).output().map_err(|error| format!("{cargo:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{cargo:?}: {}", output.status));
    }
    executable(&text(&output.stdout), product.name).ok_or_else(|| format!("{cargo:?} has built no {}", product.name))
}

/// The path of the executable of this name among cargo's messages.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut built = messages.filter(|message| message["target"]["name"] == name);
    built.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Arguments of a benchmark under the architectures whose instructions are counted, on one thread.
fn benchmark(arguments: &[&str], family: &str, repetitions: &str) -> Result<Vec<String>, String> {
    let architectures = names::counted()?.join(",");
    let rest = ["--arch", &architectures, "--threads", "1", "--no-kernel", "--reps", repetitions, "--json", "-"];
    let family = Some(family).filter(|family| *family != "--");
    Ok(arguments.iter().copied().chain(rest).chain(family).map(str::to_owned).collect())
}

fn train_program(binary: &Path, raw: &Path) -> Result<(), String> {
    for arguments in TRAINING {
        for family in ["--", "-6"] {
            let arguments = benchmark(arguments, family, "2")?;
            println!("== running heddle {}", arguments.join(" "));
            train(Command::new(binary).args(&arguments), raw)?;
        }
    }
    Ok(())
}

fn train_ratios(bench: &Path, raw: &Path) -> Result<(), String> {
    println!("== running ratios");
    train(&mut Command::new(bench), raw)
}

/// Runs a benchmark, which writes a file of its own with its counters.
fn train(benchmark: &mut Command, raw: &Path) -> Result<(), String> {
    benchmark.env("LLVM_PROFILE_FILE", raw.join("%m-%p.profraw")).stdout(Stdio::null());
    run(benchmark)
}

/// The geometric mean of the figures of the architectures.
fn speed(binary: &Path, load: &[&str], family: &str) -> Result<f64, String> {
    let output = Command::new(binary).args(benchmark(load, family, "2")?).output();
    let output = output.map_err(|error| format!("{}: {error}", binary.display()))?;
    let result: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{} {}: {error}: {}", binary.display(), load.join(" "), text(&output.stderr)))?;
    let figures: Vec<f64> = result["rows"].as_array().into_iter().flatten().filter_map(figure).collect();
    if figures.is_empty() {
        return Err(format!("{} {} measured nothing", binary.display(), load.join(" ")));
    }
    Ok((figures.iter().map(|figure| figure.ln()).sum::<f64>() / figures.len() as f64).exp())
}

/// Operations a second of a row of results, or Gb/s where there are none.
fn figure(row: &Value) -> Option<f64> {
    row["operations_per_s"]["mean"].as_f64().or_else(|| row["gbps"]["mean"].as_f64())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_is_compared_by_operations_or_else_by_data() {
        let bulk = json!({ "gbps": { "mean": 2.5 }, "operations_per_s": null });
        let rpc = json!({ "gbps": { "mean": 2.5 }, "operations_per_s": { "mean": 7.0 } });
        assert_eq!((figure(&bulk), figure(&rpc), figure(&json!({}))), (Some(2.5), Some(7.0), None));
    }

    #[test]
    fn the_executable_is_the_one_of_that_name() {
        let library = json!({ "target": { "name": "ratios" }, "executable": null });
        let other = json!({ "target": { "name": "heddle" }, "executable": "/target/heddle" });
        let bench = json!({ "target": { "name": "ratios" }, "executable": "/target/ratios-1" });
        let messages = format!("{library}\nnot a message\n{other}\n{bench}\n");
        assert_eq!(executable(&messages, "ratios"), Some("/target/ratios-1".into()));
        assert_eq!(executable(&messages, "quick"), None);
    }

    #[test]
    fn a_benchmark_runs_in_one_family_on_one_thread() {
        let four = benchmark(&["rpc"], "--", "2").unwrap();
        let six = benchmark(&["rpc"], "-6", "2").unwrap();
        assert_eq!(four[0], "rpc");
        assert!(four.windows(2).any(|pair| pair == ["--threads", "1"]) && !four.contains(&"-6".to_owned()));
        assert_eq!(six.last().map(String::as_str), Some("-6"));
    }
}
