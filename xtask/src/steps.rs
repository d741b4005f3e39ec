//! The steps of `make test`, in order; `docs/ci.md` has a paragraph on each.
//!
//! All of them use one target directory and, except for documentation and clippy, one profile, so that nothing is
//! compiled twice. A failed step does not stop the others: one run reports all faults.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Instant;

use crate::{
    api, coverage, cycles, deps, exclusive, failures, instructions, licences, metadata, names, pages, publish, rules,
};

/// All steps, in order.
pub const ALL: &[&str] = &[
    "fmt",
    "clippy",
    "deps",
    "rules",
    "cycles",
    "names",
    "pages",
    "coverage",
    "api",
    "docs",
    "features",
    "test",
    "descriptors",
    "models",
    "explore",
    "bench",
    "exclusive",
    "instructions",
    "licences",
    "publish",
];

/// The steps that do not run code of the product.
pub const CHECK: &[&str] =
    &["fmt", "clippy", "deps", "rules", "cycles", "names", "pages", "coverage", "api", "docs", "features"];

/// The result of a step that did not fail.
enum Done {
    Passed,
    /// With the reason, which names the remedy.
    Skipped(String),
}

/// Runs the named steps and fails if one of them does.
pub fn run(names: &[&str]) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| !ALL.contains(name)) {
        return Err(format!("no such step: {unknown}; there are {}", ALL.join(", ")));
    }
    let start = Instant::now();
    let (mut failed, mut skipped) = (Vec::new(), Vec::new());
    for name in names {
        println!("== {name}");
        let started = Instant::now();
        let outcome = step(name);
        let seconds = started.elapsed().as_secs();
        match outcome {
            Ok(Done::Passed) => println!("== {name}: passed in {seconds} s"),
            Ok(Done::Skipped(reason)) => {
                println!("== {name}: skipped, {reason}");
                skipped.push(*name);
            }
            Err(message) => {
                println!("== {name}: FAILED after {seconds} s: {message}");
                failed.push((*name, message));
            }
        }
    }
    summary(names.len(), &failed, &skipped, start.elapsed().as_secs())
}

/// Follows one segment and one write through the stack, in a debug build, which records them.
pub fn walk() -> Result<(), String> {
    cargo(&["run", "--quiet", "--locked", "--package", "heddle", "--example", "walk"]).map(|_| ())
}

/// Switches a stack under load between every ordered pair of variants, in virtual time.
pub fn switch_matrix(from: &[&str]) -> Result<(), String> {
    let run = ["run", "--quiet", "--locked", "--package", "heddle-stack", "--example", "switch_matrix", "--"];
    cargo(&[&run[..], from].concat()).map(|_| ())
}

/// The fault matrix in an endless loop, in a release build, for the most cells per time.
pub fn soak(options: &[&str]) -> Result<(), String> {
    let run = ["run", "--quiet", "--release", "--locked", "--package", "heddle", "--example", "soak", "--"];
    cargo(&[&run[..], options].concat()).map(|_| ())
}

/// Searches schedules of the stack on virtual CPUs. A debug build, for the checks of debug builds, such as the order of
/// locks.
pub fn explore(options: &[&str]) -> Result<(), String> {
    let run = ["run", "--quiet", "--locked", "--package", "heddle-vsmp", "--example", "explore", "--"];
    cargo(&[&run[..], options].concat()).map(|_| ())
}

/// The last lines: each failed step with its reason once more, and a final line that has all of it, because a report of a
/// run may quote that line alone.
fn summary(steps: usize, failed: &[(&str, String)], skipped: &[&str], seconds: u64) -> Result<(), String> {
    if !failed.is_empty() {
        let again = failed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" ");
        let reasons: String = failed.iter().map(|(name, reason)| format!("{name}: {reason}\n")).collect();
        let line = reasons.lines().map(str::trim).collect::<Vec<_>>().join("; ");
        return Err(format!(
            "{} of {steps} steps failed in {seconds} s.\n{reasons}Again: cargo xtask ci {again} ({line})",
            failed.len()
        ));
    }
    let note = if skipped.is_empty() { String::new() } else { format!(" (skipped: {})", skipped.join(", ")) };
    println!("All {} steps passed in {seconds} s{note}.", steps - skipped.len());
    Ok(())
}

fn step(name: &str) -> Result<Done, String> {
    match name {
        "fmt" => cargo(&["fmt", "--all", "--check"]),
        "clippy" => {
            cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--all-features", "--", "--deny=warnings"])
        }
        "deps" => deps::check().map(|()| Done::Passed),
        "rules" => rules::check().map(|()| Done::Passed),
        "cycles" => cycles::check().map(|()| Done::Passed),
        "names" => names::check().map(|()| Done::Passed),
        "pages" => pages::check().map(|()| Done::Passed),
        "coverage" => coverage::check().map(|()| Done::Passed),
        "api" => api::check().map(|()| Done::Passed),
        "docs" => docs(),
        "features" => features(),
        "test" => cargo(&["test", "--locked", "--workspace", "--no-fail-fast"]),
        "descriptors" => descriptors(),
        "models" => models(),
        "explore" => explore(&[]).map(|()| Done::Passed),
        // As tests and not with `cargo bench`: the same profile, so nothing is compiled again, and there is no
        // measurement.
        "bench" => cargo(&["test", "--locked", "--workspace", "--bench=*", "--", "--smoke"]),
        "exclusive" => exclusive(),
        "instructions" => instructions(),
        "licences" => licences(),
        "publish" => publish(),
        _ => Err("it has no body".to_owned()),
    }
}

/// Seeds of the cases and schedules of tests: the same in every run, so that a failure is caused by the change. Other
/// seeds are set in the environment, or used by the fuzzers.
const SEEDS: [&str; 2] = ["PROPTEST_RNG_SEED", "SHUTTLE_RANDOM_SEED"];

fn command(arguments: &[&str]) -> Command {
    let mut command = metadata::cargo();
    for seed in SEEDS {
        command.env(seed, std::env::var_os(seed).unwrap_or_else(|| "1".into()));
    }
    // A snapshot that differs is a failure, not a file to review.
    command.current_dir(metadata::root()).args(arguments).env("INSTA_UPDATE", "no");
    command
}

fn finish(command: Command) -> Result<Done, String> {
    failures::run(command).map(|()| Done::Passed)
}

fn cargo(arguments: &[&str]) -> Result<Done, String> {
    finish(command(arguments))
}

/// Libraries only: the binary `heddle` and the library of that name would write the same pages.
fn docs() -> Result<Done, String> {
    let mut command = command(&["doc", "--locked", "--workspace", "--all-features", "--no-deps", "--lib"]);
    command.env("RUSTDOCFLAGS", "--deny=warnings");
    finish(command)
}

/// The library with each of its features alone, with none, and its tests with none; `asx` without the library.
fn features() -> Result<Done, String> {
    const LIBRARY: &str = "heddle";
    let packages = metadata::packages()?;
    let library = packages.iter().find(|package| package.name == LIBRARY).ok_or("there is no package heddle")?;
    let alone = ["check", "--locked", "--package", LIBRARY, "--no-default-features"];
    for feature in library.features.iter().filter(|feature| *feature != "default") {
        let arguments = [&alone[..], &["--lib", "--features", feature]].concat();
        cargo(&arguments).map_err(|error| format!("feature {feature} alone: {error}"))?;
    }
    cargo(&["check", "--locked", "--package", "heddle-asx", "--no-default-features", "--lib"])?;
    cargo(&["test", "--locked", "--package", LIBRARY, "--no-default-features"])?;
    cargo(&["test", "--locked", "--package", LIBRARY, "--all-features", "--test", "halves"])
}

/// The packages whose tests open descriptors, count them or set their limit, by the arguments of `cargo test`.
const OPENING: [&[&str]; 4] = [
    &["--package", "heddle-dev-tap", "--package", "heddle-posix", "--package", "heddle-lab", "--tests"],
    &["--package", "heddle-cli", "--bin", "heddle"],
    &["--package", "heddle-cli", "--test", "cli"],
    &["--package", "heddle", "--test", "polling", "--test", "sockets"],
];

/// These tests once more with [`inheriting`].
fn descriptors() -> Result<Done, String> {
    for arguments in OPENING {
        finish(inheriting(&[&["test", "--quiet", "--locked"], arguments].concat()))?;
    }
    Ok(Done::Passed)
}

/// All tests with [`inheriting`].
pub fn all_inheriting() -> Result<(), String> {
    // Built first: the limits are not for the compiler.
    cargo(&["test", "--locked", "--workspace", "--no-run"])?;
    finish(inheriting(&["test", "--quiet", "--locked", "--workspace", "--no-fail-fast"])).map(|_| ())
}

/// cargo with unusual inherited state.
fn inheriting(arguments: &[&str]) -> Command {
    with_inherited(&command(arguments))
}

/// A command with unusual inherited state: open descriptors, one of them with a high number, a low limit of open files, a
/// small stack of its first thread, and no standard input.
fn with_inherited(plain: &Command) -> Command {
    const INHERITED: &str = "exec 9</dev/null 200</dev/null; ulimit -n 256 -s 1024; exec 0<&-; exec \"$@\"";
    let mut shell = Command::new("bash");
    shell.args(["-c", INHERITED, "bash"]).arg(plain.get_program()).args(plain.get_args());
    shell.current_dir(metadata::root()).envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

/// The cost of the architecture with exclusive access.
fn exclusive() -> Result<Done, String> {
    match exclusive::compare()? {
        exclusive::Outcome::Within => Ok(Done::Passed),
        exclusive::Outcome::NoValgrind => {
            Ok(Done::Skipped("valgrind is not installed: apt-get install valgrind".to_owned()))
        }
    }
}

/// Whether the fast path has kept its speed.
fn instructions() -> Result<Done, String> {
    match instructions::compare()? {
        instructions::Outcome::Within => Ok(Done::Passed),
        instructions::Outcome::Skipped(reason) => Ok(Done::Skipped(reason)),
    }
}

/// The model checkers: tests of packages that declare the features `loom` or `shuttle`, with these on.
fn models() -> Result<Done, String> {
    let mut ran = false;
    for package in metadata::packages()? {
        let features: Vec<&str> = ["loom", "shuttle"].into_iter().filter(|f| package.features.contains(*f)).collect();
        if features.is_empty() {
            continue;
        }
        ran = true;
        // The features add models, and change nothing else: the other tests have run in the step `test`.
        let is_model = |needed: &BTreeSet<String>| needed.iter().all(|feature| features.contains(&feature.as_str()));
        let models = package.tests_of_features.iter().filter(|(_, needed)| is_model(needed));
        let tests = models.map(|(name, _)| format!("--test={name}"));
        let features = format!("--features={}", features.join(","));
        let mut command = command(&["test", "--locked", "--package", &package.name, "--lib", &features]);
        command.args(tests);
        if std::env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
            // Two preemptions find nearly all known kinds of mistakes; three take hours.
            command.env("LOOM_MAX_PREEMPTIONS", "2");
        }
        finish(command).map_err(|error| format!("{}: {error}", package.name))?;
    }
    Ok(if ran { Done::Passed } else { Done::Skipped("no package has a feature `loom` or `shuttle`".to_owned()) })
}

/// The libraries can be packed as a registry takes them, without the network, and build from what was packed.
fn publish() -> Result<Done, String> {
    let order = publish::order()?;
    cargo(&publish::arguments(&order))?;
    let manifest = publish::unpack(&order)?;
    // Not `--locked`: the copy of the lock file names packages that libraries do not need.
    let mut build = command(&["build", "--quiet", "--offline", "--workspace", "--manifest-path"]);
    build.arg(manifest).arg("--target-dir").arg(metadata::target_directory()?);
    finish(build)?;
    println!("In this order: {}.", order.join(", "));
    Ok(Done::Passed)
}

/// Licences and sources of dependencies, without the network.
fn licences() -> Result<Done, String> {
    let seen = licences::check()?;
    let installed = command(&["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if !installed {
        println!("{seen} packages have allowed licences and sources. For advisories: cargo install cargo-deny.");
        return Ok(Done::Passed);
    }
    cargo(&["deny", "--offline", "check", "bans", "licenses", "sources"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_step_is_refused_before_anything_runs() {
        let message = run(&["fmt", "polish"]).unwrap_err();
        assert!(message.contains("no such step: polish"), "{message}");
    }

    #[test]
    fn a_failed_step_fails_the_whole_and_is_named() {
        let failed = [("clippy", "a".to_owned()), ("test", "b\n  c".to_owned())];
        let message = summary(3, &failed, &[], 7).unwrap_err();
        assert_eq!(
            message,
            "2 of 3 steps failed in 7 s.\nclippy: a\ntest: b\n  c\nAgain: cargo xtask ci clippy test (clippy: a; test: b; c)"
        );
        assert!(summary(3, &[], &["licences"], 7).is_ok());
    }

    #[test]
    fn check_is_part_of_everything() {
        assert!(CHECK.iter().all(|name| ALL.contains(name)));
    }

    /// The inherited state of every test under `cargo xtask inheriting` and in the step *descriptors*.
    #[test]
    fn the_inherited_state_is_as_unusual_as_documented() {
        let look = "for d in 0 9 200; do [ -e /proc/$$/fd/$d ] && echo $d; done; ulimit -n; ulimit -s";
        let mut plain = Command::new("bash");
        plain.args(["-c", look]);
        let output = with_inherited(&plain).output().expect("bash");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "9\n200\n256\n1024\n");
    }
}
