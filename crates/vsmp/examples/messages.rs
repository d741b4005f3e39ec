//! The messages of Schmidt and Suda on the model of their machine: a line for each architecture, number of CPUs and
//! seed.
//!
//! `cargo run --release -p heddle-vsmp --example messages -- --seeds 3 conn-thread:20 msgp-pool 1 8 20`; also `--xdr`,
//! `--conns N`, `--machine PRESET` and `--set NAME=NUMBER`.

use vsmp::preset::{Kernel, Preset};
use vsmp::workload::messages::{self, Messages, lock_milliseconds, switches};
use vsmp::{Arena, Machine, PartGroup};

#[global_allocator]
static ARENA: Arena = Arena::new();

struct Args {
    preset: Preset,
    archs: Vec<String>,
    cpus: Vec<usize>,
    connections: usize,
    seeds: u64,
    presentation: bool,
}

fn args() -> Args {
    let preset = Preset::named("sparccenter-2000").expect("it is built in");
    let mut args = Args { preset, archs: Vec::new(), cpus: Vec::new(), connections: 20, seeds: 1, presentation: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut next = || words.next().expect("a value follows");
        match word.as_str() {
            "--machine" => args.preset = Preset::named(&next()).expect("a preset"),
            "--xdr" => args.presentation = true,
            "--conns" => args.connections = next().parse().expect("a number"),
            "--seeds" => args.seeds = next().parse().expect("a number"),
            "--set" => {
                let change = next();
                let (name, number) = change.split_once('=').expect("NAME=NUMBER");
                args.preset = args.preset.with(name, number.parse().expect("a number")).expect("a value");
            }
            _ => match word.parse() {
                Ok(number) => args.cpus.push(number),
                Err(_) => args.archs.push(word),
            },
        }
    }
    args
}

fn main() {
    let args = args();
    print!("{:<24}{:>5}{:>5}", "", "CPUs", "seed");
    let counts = ["Mb/s", "fairness", "voluntary", "involunt.", "locks, ms"];
    counts.into_iter().chain(PartGroup::ALL.map(PartGroup::name)).for_each(|head| print!("{head:>11}"));
    println!();
    for arch in &args.archs {
        for &cpus in &args.cpus {
            (1..=args.seeds).for_each(|seed| line(&args, arch, cpus, seed));
        }
    }
}

fn line(args: &Args, arch: &str, cpus: usize, seed: u64) {
    let kernel = Kernel::OfThePaper;
    let run = Messages {
        arch: arch.parse().expect("an architecture"),
        cpus,
        connections: args.connections,
        presentation: args.presentation,
        preset: args.preset.clone(),
        kernel,
        seed,
        ipv6: false,
        lock_kind: None,
        counts: messages::counts(args.connections),
    };
    let (run, _) = Machine::new(cpus, args.preset.costs(kernel)).seed(seed).run(move || run.run());
    let [voluntary, involuntary] = switches(&run);
    let locks = lock_milliseconds(&run, &args.preset);
    let (rate, fairness) = (run.megabits(), run.fairness().unwrap_or(f64::NAN));
    print!("{arch:<24}{cpus:>5}{seed:>5}{rate:>11.1}{fairness:>11.3}{voluntary:>11.0}{involuntary:>11.0}{locks:>11.0}");
    for group in PartGroup::ALL {
        let cycles: u64 = run.account.cpus.iter().map(|cpu| cpu.group(group)).sum();
        print!("{:>10.1}%", 100.0 * cycles as f64 / run.account.total() as f64);
    }
    println!();
}
