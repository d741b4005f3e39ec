//! Figure 2 and tables 1 to 3 of Willmann, Rixner and Cox (2006), from the model: a line for each architecture and load,
//! for Heddle with the footprint and habits of the paper's kernel, and for Heddle as it is. Arguments: numbers of connections
//! (6 192 16384), the number of seeds after `--seeds` (1), architectures after `--arch`, a changed value of the machine
//! after `--set` (`machine.near=300`); with `--paper` without Heddle as it is.
//!
//! `cargo run --release -p heddle-vsmp --example willmann -- 6 192 --seeds 4`

use std::time::Instant;

use stack::Architecture;
use sync::LockClass;
use vsmp::Arena;
use vsmp::preset::{Kernel, Preset};
use vsmp::simulation::Simulation;

#[global_allocator]
static ARENA: Arena = Arena::new();

struct Args {
    loads: Vec<usize>,
    seeds: u64,
    archs: Vec<String>,
    preset: Preset,
    /// Whether Heddle as it is runs, too.
    both: bool,
}

fn args() -> Args {
    let preset = Preset::named("opteron-275").expect("it comes with the crate");
    let mut args = Args { loads: vec![], seeds: 1, archs: vec![], preset, both: true };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seeds" => args.seeds = words.next().and_then(|n| n.parse().ok()).expect("a number of seeds"),
            "--paper" => args.both = false,
            "--set" => {
                let change = words.next().expect("NAME=NUMBER");
                let (name, number) = change.split_once('=').expect("NAME=NUMBER");
                args.preset =
                    args.preset.with(name, number.parse().expect("a number")).expect("a value of the machine");
            }
            "--arch" => args.archs.push(words.next().expect("an architecture")),
            load => args.loads.push(load.parse().expect("a number of connections")),
        }
    }
    if args.loads.is_empty() {
        args.loads = vec![6, 192, 16384];
    }
    if args.archs.is_empty() {
        args.archs = ["uniprocessor", "up", "msgp:1+coupled", "connp-t", "connp-l:128"].map(str::to_owned).to_vec();
    }
    args
}

fn main() {
    let args = args();
    for kernel in [Kernel::OfThePaper, Kernel::Heddle].into_iter().take(1 + usize::from(args.both)) {
        println!("{kernel:?}");
        for name in &args.archs {
            for &load in &args.loads {
                line(&args, kernel, name, load);
            }
        }
    }
}

fn line(args: &Args, kernel: Kernel, name: &str, connections: usize) {
    let arch: Option<Architecture> = (name != "uniprocessor").then(|| name.parse().expect("an architecture"));
    let (preset, seeds) = (args.preset.clone(), args.seeds);
    let simulation = Simulation { seeds, ..Simulation::new(preset, arch, 4, connections) };
    let began = Instant::now();
    let results = simulation.run_all(kernel, |_| {});
    let host = began.elapsed().as_secs_f64() / seeds as f64;
    let class = if name.starts_with("msgp") { LockClass::ConnTable } else { LockClass::Group };
    let stated = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let [rate, misses, scheduler, failures] = match results.point() {
        Some(point) => [point.megabits, point.misses, point.scheduler, point.failures].map(stated),
        None => [const { None }; 4].map(stated),
    };
    let first = &results.runs[0];
    let all = (first.warm_up + first.time).as_secs_f64();
    println!(
        "{name:15}{connections:>6}{:>14.0} Mb/s ({rate}){:>16.2} misses/KB ({misses}){:>12.0} sched ({scheduler}){:>14.1} % ({failures}) idle {:.0} % steady {} after {:.2} s ooo {} lost {} host {host:.1} s for {all:.2} s, {:.1} Mop/s",
        results.megabits(),
        results.misses(),
        results.scheduler_cycles(),
        results.first_try_failures(class),
        100.0 * first.account.idle as f64 / (first.time.as_secs_f64() * 2.2e9 * if arch.is_none() { 1.0 } else { 4.0 }),
        first.steady,
        first.warm_up.as_secs_f64(),
        first.out_of_order,
        first.cards.iter().map(|card| card.lost).sum::<u64>(),
        (first.account.operations + first.account.touches) as f64 / first.time.as_secs_f64() * all / host / 1e6,
    );
}
