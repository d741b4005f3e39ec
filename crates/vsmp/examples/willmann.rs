//! Figure 2 and tables 1 to 3 of Willmann, Rixner and Cox (2006), from the model: a line for each architecture and load,
//! for Heddle with the footprint and habits of the year, and for Heddle as it is. Arguments: numbers of connections
//! (6 192 16384), the number of seeds after `--seeds` (1), architectures after `--arch`.
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

/// The figures of the paper: architecture, connections, Mb/s, misses/KB, scheduler cycles/KB, first try fails in
/// percent. NaN: the paper does not say.
const N: f64 = f64::NAN;
const PAPER: [(&str, usize, [f64; 4]); 12] = [
    ("uniprocessor", 6, [4034.0, 1.83, 482.0, N]),
    ("uniprocessor", 192, [N, 4.08, 440.0, N]),
    ("uniprocessor", 16384, [2100.0, 18.49, 423.0, N]),
    ("msgp:1+coupled", 6, [3308.0, 37.29, 2904.0, 89.0]),
    ("msgp:1+coupled", 192, [4630.0, 28.39, 1818.0, 100.0]),
    ("msgp:1+coupled", 16384, [3403.0, 40.45, 2448.0, 100.0]),
    ("connp-t", 6, [3123.0, 52.25, 3488.0, N]),
    ("connp-t", 192, [3123.0, 50.38, 3602.0, N]),
    ("connp-t", 16384, [3123.0, 51.39, 4535.0, N]),
    ("connp-l:128", 6, [N, 28.91, 2135.0, 33.0]),
    ("connp-l:128", 192, [5440.0, 26.18, 924.0, 5.0]),
    ("connp-l:128", 16384, [4747.0, 40.36, 1064.0, 2.0]),
];

struct Args {
    loads: Vec<usize>,
    seeds: u64,
    archs: Vec<String>,
}

fn args() -> Args {
    let (mut args, mut words) = (Args { loads: vec![], seeds: 1, archs: vec![] }, std::env::args().skip(1));
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seeds" => args.seeds = words.next().and_then(|n| n.parse().ok()).expect("a number of seeds"),
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
    let Args { loads, seeds, archs } = args();
    for kernel in [Kernel::OfThePaper, Kernel::Heddle] {
        println!("{kernel:?}");
        for name in &archs {
            for &load in &loads {
                line(kernel, name, load, seeds);
            }
        }
    }
}

fn line(kernel: Kernel, name: &str, connections: usize, seeds: u64) {
    let arch: Option<Architecture> = (name != "uniprocessor").then(|| name.parse().expect("an architecture"));
    let preset = Preset::named("opteron-275").expect("it comes with the crate");
    let simulation = Simulation { preset, cpus: 4, arch, connections, seeds, ipv6: false, lock_kind: None };
    let began = Instant::now();
    let results = simulation.run_all(kernel, |_| {});
    let host = began.elapsed().as_secs_f64() / seeds as f64;
    let class = if name.starts_with("msgp") { LockClass::ConnTable } else { LockClass::Group };
    let paper = PAPER.iter().find(|(arch, load, _)| *arch == name && *load == connections);
    let [rate, misses, scheduler, failures] = paper.map_or([N; 4], |(.., values)| *values);
    let first = &results.runs[0];
    let all = (first.warm_up + first.time).as_secs_f64();
    println!(
        "{name:15}{connections:>6}{:>14.0} Mb/s ({rate:.0}){:>16.2} misses/KB ({misses}){:>12.0} sched ({scheduler}){:>14.1} % ({failures}) idle {:.0} % steady {} after {:.2} s ooo {} lost {} host {host:.1} s for {all:.2} s, {:.1} Mop/s",
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
