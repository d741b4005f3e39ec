//! Searches schedules of the shipped stack for broken invariants (G1 to G9), on virtual CPUs, with delays injected; and
//! shows that it finds bugs that are planted. `cargo xtask explore` runs it.
//!
//! ```text
//! explore                       the bounded search of the CI: some seeds of every scene under every architecture
//! explore --seeds N             N seeds of each
//! explore --scene NAME --arch NAME --seed N     one run again: the seed is the schedule
//! explore --bug NAME --seed N                   the same, with a bug planted
//! ```
//!
//! A seed chooses the order (at random, or by PCT's priorities), the delays, and the family of addresses. The scenes are
//! those of the model checker (`crates/stack/tests/shuttle`), which needs no machine, and those of `invariants.rs`.
//! In all of them cells refuse a second thread (G1), the order of locks is checked, and that none is held by a thread
//! that sleeps (G2, G4), and all packet buffers are back at the end (G5).

#[allow(dead_code, reason = "the model checker uses all of it")]
#[path = "../../../stack/tests/shuttle/models.rs"]
mod models;
#[allow(dead_code, reason = "the model checker uses all of it")]
#[path = "../../../stack/tests/shuttle/owners.rs"]
mod owners;

mod bugs;
mod invariants;
mod platform;
mod scene;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use stack::{ALL_ARCHITECTURES, Architecture};
use testbed::frames::Ends;
use vsmp::order::{Delayed, Order, Pct, Random, Recorded, Schedule};
use vsmp::{Arena, Costs, Machine};

use bugs::Bug;
use planted::{Mistake, choose};
use platform::Explored;

#[global_allocator]
static ARENA: Arena = Arena::new();

/// A scene of one run.
type Model = fn(Architecture, Ends);

/// Every scene, by name.
const SCENES: [(&str, Model); 12] = [
    ("connection", |arch, _| models::connection::<Explored>(arch)),
    ("listener_closes", |arch, _| models::listener_closes::<Explored>(arch)),
    ("crowd", |arch, _| models::crowd::<Explored>(arch)),
    ("several_owners", |arch, _| owners::several_owners::<Explored>(arch)),
    ("call_on_the_owners_thread", |arch, _| owners::call_on_the_owners_thread::<Explored>(arch)),
    ("several_pollers", |arch, _| owners::several_pollers::<Explored>(arch)),
    ("arrival_order", |arch, _| models::arrival_order::<Explored>(arch)),
    ("exchange", |arch, ends| invariants::exchange(arch, ends, |device| device)),
    ("stale_timer", invariants::stale_timer),
    ("switched", invariants::switched),
    ("abort", invariants::abort),
    ("close", |arch, ends| invariants::close(arch, ends, || ())),
];

/// At least as many as threads, so that every thread that can run is a candidate.
const CPUS: usize = 8;
/// Approximate number of steps of a scene, among which PCT changes its priorities.
const STEPS: u64 = 5_000;
/// Ordered steps of a bug that PCT looks for.
const DEPTH: usize = 3;
/// One in this many turns begins a delay, of up to this many turns.
const DELAYS: (usize, usize) = (200, 500);
/// A scene that takes more turns counts as one that does not end.
const MOST_TURNS: u64 = 3_000_000;
/// The seeds within which a planted bug has to be found.
const HUNT: u64 = 100_000;
/// Seeds of each scene and architecture in the bounded search.
const SEEDS: u64 = 6;

/// The order of a seed.
fn order(seed: u64) -> Box<dyn Order> {
    let (one_in, longest) = DELAYS;
    if seed.is_multiple_of(2) {
        Box::new(Delayed::new(Pct::new(seed, DEPTH, STEPS), seed, one_in, longest))
    } else {
        Box::new(Delayed::new(Random::new(seed), seed, one_in, longest))
    }
}

/// The result of a run: the CPUs in the order in which they were chosen, and the broken invariant.
#[derive(PartialEq, Eq)]
struct Run {
    chosen: Vec<u16>,
    broken: Option<String>,
}

/// Runs a scene on the schedule of a seed.
fn run(seed: u64, scene: impl FnOnce(Ends) + Send + 'static) -> Run {
    let ends = Ends::BOTH_FAMILIES[(seed / 2 % 2) as usize];
    let schedule = Schedule::default();
    let machine = Machine::new(CPUS, Costs::opteron_275()).seed(1).most_turns(MOST_TURNS);
    let machine = machine.order(Recorded::new(order(seed), schedule.clone()));
    // What a broken run has left is none of this one's.
    stack::arch::owned_cells::forget_all();
    let (result, _) = machine.try_run(move || {
        let before = pktbuf::live();
        scene(ends);
        assert_eq!(pktbuf::live(), before, "packet buffers in use at the end, and at the beginning (G5)");
    });
    choose(Mistake::Nothing);
    Run { chosen: schedule.take(), broken: result.err().map(|failed| failed.to_string()) }
}

/// The arguments.
#[derive(Default)]
struct Args {
    seeds: Option<u64>,
    seed: Option<u64>,
    scene: Option<String>,
    bug: Option<String>,
    arch: Option<Architecture>,
}

fn args() -> Result<Args, String> {
    let (mut args, mut words) = (Args::default(), std::env::args().skip(1));
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("{word}: {value} is no number"));
        match word.as_str() {
            "--seeds" => args.seeds = Some(number()?),
            "--seed" => args.seed = Some(number()?),
            "--scene" => args.scene = Some(value),
            "--bug" => args.bug = Some(value),
            "--arch" => args.arch = Some(value.parse().map_err(|error| format!("{error}"))?),
            _ => return Err(format!("{word} is unknown: there are --seeds, --seed, --scene, --bug and --arch")),
        }
    }
    Ok(args)
}

fn main() -> ExitCode {
    // The search looks for panics of scenes; it prints them with the seed.
    std::panic::set_hook(Box::new(|_| ()));
    let done = args().and_then(|args| match args.seed {
        Some(seed) => replay(&args, seed),
        None => explore(&args),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("explore: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The scenes that the arguments name.
fn scenes(args: &Args) -> Result<Vec<(&'static str, Model)>, String> {
    let named = |name: &str| args.scene.as_deref().is_none_or(|wanted| wanted == name);
    let scenes: Vec<_> = SCENES.into_iter().filter(|(name, _)| named(name)).collect();
    let names = || SCENES.map(|(name, _)| name).join(", ");
    if scenes.is_empty() { Err(format!("no such scene: there are {}", names())) } else { Ok(scenes) }
}

/// The bugs that the arguments name.
fn bugs(args: &Args) -> Result<Vec<Bug>, String> {
    let named = |name: &str| args.bug.as_deref().is_none_or(|wanted| wanted == name);
    let names = || bugs::ALL.map(|bug| bug.name).join(", ");
    let bugs: Vec<_> = bugs::ALL.into_iter().filter(|bug| named(bug.name)).collect();
    if bugs.is_empty() { Err(format!("no such bug: there are {}", names())) } else { Ok(bugs) }
}

/// The architectures that the arguments name. `connp-l:128` and `:1024` are the code of `connp-l:4` with more groups.
fn architectures(args: &Args) -> Vec<Architecture> {
    let left_out = ["connp-l:128", "connp-l:1024"];
    let all = ALL_ARCHITECTURES.into_iter().filter(|name| !left_out.contains(name));
    match args.arch {
        Some(arch) => vec![arch],
        None => all.map(|name| name.parse().expect("an architecture")).collect(),
    }
}

fn explore(args: &Args) -> Result<(), String> {
    if args.bug.is_none() {
        search(args)?;
    }
    if args.scene.is_none() {
        for bug in bugs(args)? {
            hunt(&bug)?;
        }
    }
    Ok(())
}

/// Runs every scene under every architecture; no invariant may be broken.
fn search(args: &Args) -> Result<(), String> {
    let (began, mut runs, mut turns) = (Instant::now(), 0, 0);
    for (name, scene) in scenes(args)? {
        for arch in architectures(args) {
            for seed in 1..=args.seeds.unwrap_or(SEEDS) {
                let Run { chosen, broken } = run(seed, move |ends| scene(arch, ends));
                (runs, turns) = (runs + 1, turns + chosen.len());
                if let Some(broken) = broken {
                    let again = format!("cargo xtask explore --scene {name} --arch {arch} --seed {seed}");
                    return Err(format!("{name} under {arch}, seed {seed}: {broken}\nAgain: {again}"));
                }
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{runs} schedules, {turns} turns, nothing broken; {:.0} schedules a second", runs as f64 / seconds);
    Ok(())
}

/// Searches for a planted bug: it must be found within [`HUNT`] seeds, and each finding must repeat exactly.
fn hunt(bug: &Bug) -> Result<(), String> {
    /// Findings that give the rate.
    const FINDINGS: u64 = 3;
    let (began, mut found, mut first, mut seed) = (Instant::now(), 0, None, 0);
    while found < FINDINGS && seed < HUNT {
        seed += 1;
        let once = planted(bug, seed);
        if once.broken.is_some() {
            let again = planted(bug, seed);
            if once != again {
                return Err(format!("{}: seed {seed} does not repeat itself", bug.name));
            }
            found += 1;
            first = first.or(Some(seed));
        }
    }
    let Some(first) = first else { return Err(format!("{} is not found within {HUNT} seeds", bug.name)) };
    let rate = seed as f64 / began.elapsed().as_secs_f64();
    println!("{:<26} found by {found} of {seed} seeds, first by seed {first}; {rate:.0} seeds a second", bug.name);
    Ok(())
}

fn planted(bug: &Bug, seed: u64) -> Run {
    let (model, arch, mistake) = (bug.model, bug.arch(), bug.mistake());
    run(seed, move |ends| {
        choose(mistake);
        model(arch, ends);
    })
}

/// Repeats one run, with all its output.
fn replay(args: &Args, seed: u64) -> Result<(), String> {
    let mut text = String::new();
    let runs: Vec<(String, Run)> = if args.bug.is_some() {
        bugs(args)?.iter().map(|bug| (format!("{}: {}", bug.name, bug.planted), planted(bug, seed))).collect()
    } else {
        let (name, scene) = scenes(args)?.remove(0);
        let one = |arch: Architecture| (format!("{name} under {arch}"), run(seed, move |ends| scene(arch, ends)));
        architectures(args).into_iter().map(one).collect()
    };
    for (what, Run { chosen, broken }) in runs {
        let said = broken.as_deref().unwrap_or("nothing is broken");
        let _ = writeln!(text, "{what}, seed {seed}, {} turns: {said}", chosen.len());
    }
    print!("{text}");
    Ok(())
}
