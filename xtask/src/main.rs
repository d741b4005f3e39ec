//! `cargo xtask`: the tasks of the workspace. `cargo xtask help` lists them; `docs/ci.md` explains each step.
//!
//! `main` parses the command and turns failures into one line and an exit status; each command has its own file.
#![forbid(unsafe_code)]

mod api;
mod coverage;
mod cycles;
mod deps;
mod exclusive;
mod failures;
mod instructions;
mod licences;
mod metadata;
mod mutants;
mod names;
mod pages;
mod publish;
mod release;
mod rules;
mod steps;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask deps            print the rooms and their edges; fail on one that xtask/deps.txt does not have
cargo xtask deps --bless    write the edges as they are to xtask/deps.txt (edges that go up are refused all the same)
cargo xtask rules           no protocol word in an architecture, no wire offset in stack, no counter that is never counted
cargo xtask cycles          modules of tcp, ip and stack import one way, but for the pairs in xtask/cycles.txt
cargo xtask names           fail where a crate other than stack names an architecture, or two types have one name
                            (xtask/names.txt)
cargo xtask pages           fail where a page names a file or a test that does not exist
cargo xtask api             the public interface of heddle; fail where it is not as in docs/api.txt
cargo xtask api --bless     write docs/api.txt as the interface is
cargo xtask check           formatting, clippy, deps, rules, cycles, names, pages, coverage, api, documentation,
                            features
cargo xtask ci              everything that `make test` runs: check, tests, models, explore, benches, licences
cargo xtask ci STEP..       some steps of it
cargo xtask explore         search schedules on virtual CPUs for broken invariants, and find every planted bug
cargo xtask explore [--seeds N] [--scene NAME] [--arch NAME] [--bug NAME] [--seed N]   more of them, or one run again
cargo xtask exclusive       count what the simplest architecture adds to a plain call (needs valgrind)
cargo xtask coverage        which RFC requirement is met and shown where; fail if docs/rfc-coverage.md says otherwise
cargo xtask coverage --bless  write docs/rfc-coverage.md and docs/rfc9293.md as the comments have it
cargo xtask instructions    count the fast path piece by piece; fail where it grew by more than 3 % (needs valgrind)
cargo xtask instructions --bless    make what is counted now the baseline, docs/instructions.json, and write docs/performance.md
cargo xtask instructions --bridge   count a frame through the bridge by function, and write docs/bridge.md
cargo xtask release         the binary with profile-guided and link-time optimisation (needs rustup component add llvm-tools)
cargo xtask release --compare   the same, and its speed in ratios to plain cargo build --release
cargo xtask release --ratios [SECTION..]   cargo bench -p heddle-lab --bench ratios --features smoltcp, optimised in the same way
cargo xtask inheriting      all tests with descriptors 9 and 200 open, 256 files, 1 MiB of stack and no standard input
cargo xtask mutants [SCOPE..] [--shard K/N] [--changed COMMIT] [--file PATH].. [--survivors] [--quick] [--each] [--list]
                            plant mistakes that a test must notice (needs cargo-mutants; minutes to an hour a scope; xtask/mutants.toml)
cargo xtask switch-matrix [ARCH..]   switch a stack under load between all pairs of variants, or from these
cargo xtask walk            follow one segment and one write through the stack under several architectures
cargo xtask soak --minutes N [--seed S]   the fault matrix without end, cells drawn from a seed (docs/faults.md)
cargo xtask soak --replay SEED [--pcap FILE]   one of its cells again
cargo xtask help            this text";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["deps"] => deps::check(),
        ["deps", "--bless"] => deps::bless(),
        ["rules"] => rules::check(),
        ["cycles"] => cycles::check(),
        ["names"] => names::check(),
        ["pages"] => pages::check(),
        ["check"] => steps::run(steps::CHECK),
        ["api"] => api::check(),
        ["api", "--bless"] => api::bless(),
        ["release"] => release::build(),
        ["release", "--compare"] => release::compare(),
        ["release", "--ratios", ref sections @ ..] => release::ratios(sections),
        ["coverage"] => coverage::check(),
        ["coverage", "--bless"] => coverage::bless(),
        ["inheriting"] => steps::all_inheriting(),
        ["mutants", ref words @ ..] => mutants::run(words),
        ["walk"] => steps::walk(),
        ["switch-matrix", ref from @ ..] => steps::switch_matrix(from),
        ["soak", ref options @ ..] => steps::soak(options),
        ["explore", ref options @ ..] => steps::explore(options),
        ["exclusive"] => steps::run(&["exclusive"]),
        ["instructions"] => steps::run(&["instructions"]),
        ["instructions", "--bless"] => instructions::bless(),
        ["instructions", "--bridge"] => instructions::bridge::write(),
        ["ci"] => steps::run(steps::ALL),
        ["ci", ref names @ ..] => steps::run(names),
        ["help" | "--help"] => {
            println!("{USAGE}\nSteps: {}", steps::ALL.join(", "));
            Ok(())
        }
        _ => Err(format!("no such chore: cargo xtask {}\n{USAGE}", words.join(" "))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
