//! `adaptive` beside the best of the fixed architectures, on a model of a machine: a line for each load, with the rate of each
//! architecture in its share of the best fixed one's. The last one named is compared with the others.
//!
//! `cargo run -p heddle-vsmp --example best_fixed -- --cpus 1,2,4,8 --conns 6,64 --seeds 3`; also `--loads bulk,rpc,connect`,
//! `--flows spread,home,uneven`, `--first N`, the first of the seeds, `--ms N`, `--machine NAME`, and names of architectures.
//! `--applications own`: they have threads of their own, instead of the receive threads. `--on real`: on this machine instead of a model,
//! with the architectures by turns in each of as many rounds as there are seeds; each share is the median of those of the rounds, with the
//! least and the greatest.

use std::str::FromStr;
use std::time::Duration;

use stack::Architecture;
use sync::Real;
use vsmp::preset::{Kernel, Preset};
use vsmp::workload::pair::{Applications, Flows, Load, Pair};
use vsmp::workload::windows::{Rate, Window, Windows};
use vsmp::{Arena, Machine, Vsmp};

#[global_allocator]
static ARENA: Arena = Arena::new();

/// Fixed architectures that are the best somewhere, and the one that is compared with them.
const ARCHITECTURES: &str = "up,connp-l:4,connp-l:128,msgp:1,squeue:process,backlog,shared-nothing,steal,adaptive";

struct Args {
    preset: Preset,
    archs: Vec<Architecture>,
    loads: Vec<String>,
    flows: Vec<String>,
    cpus: Vec<usize>,
    conns: Vec<usize>,
    first: u64,
    seeds: u64,
    ms: u64,
    applications: Applications,
    on_real: bool,
}

fn listed<T: FromStr>(text: &str) -> Vec<T> {
    text.split(',').map(|word| word.parse().ok().expect("a value of this list")).collect()
}

fn args() -> Args {
    let mut args = Args {
        preset: Preset::named("server-64").expect("it is built in"),
        archs: listed(ARCHITECTURES),
        loads: listed("bulk,rpc,connect"),
        flows: listed("spread,home,uneven"),
        cpus: vec![1, 2, 4, 8],
        conns: vec![6, 64],
        first: 1,
        seeds: 3,
        ms: 12,
        applications: Applications::ReceiveThreads,
        on_real: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().expect("a value follows");
        match word.as_str() {
            "--machine" => args.preset = Preset::named(&value).expect("a machine"),
            "--arch" => args.archs = listed(&value),
            "--loads" => args.loads = listed(&value),
            "--flows" => args.flows = listed(&value),
            "--cpus" => args.cpus = listed(&value),
            "--conns" => args.conns = listed(&value),
            "--first" => args.first = value.parse().expect("a number"),
            "--seeds" => args.seeds = value.parse().expect("a number"),
            "--ms" => args.ms = value.parse().expect("a number"),
            "--applications" if value == "own" => args.applications = Applications::OwnThreads,
            "--on" if value == "real" => args.on_real = true,
            _ => panic!("no option is called {word}"),
        }
    }
    args
}

fn main() {
    let args = args();
    print!("{:<8}{:<8}{:>5}{:>7}", "load", "flows", "CPUs", "conns");
    args.archs.iter().for_each(|arch| print!("{:>16}", arch.to_string()));
    println!("  compared, to the best");
    for load in &args.loads {
        for flows in &args.flows {
            for &cpus in &args.cpus {
                for &connections in &args.conns {
                    line(&args, (load, flows), cpus, connections);
                }
            }
        }
    }
}

fn line(args: &Args, (load, flows): (&str, &str), cpus: usize, connections: usize) {
    let pair = |arch| Pair {
        cpus,
        connections,
        load: match load {
            "rpc" => Load::Requests(64),
            "connect" => Load::SetupAndClose,
            _ => Load::Bulk,
        },
        flows: match flows {
            "home" => Flows::Home,
            "uneven" => Flows::Uneven,
            _ => Flows::Spread,
        },
        applications: args.applications,
        time: Duration::from_millis(args.ms),
        ..Pair::new(arch)
    };
    if args.on_real {
        print!("{load:<8}{flows:<8}{cpus:>5}{connections:>7}");
        return rounds(args, pair);
    }
    let rates: Vec<f64> = args.archs.iter().map(|arch| rate(args, &pair(*arch))).collect();
    let (compared, fixed) = rates.split_last().expect("an architecture");
    let best = fixed.iter().copied().fold(0.0, f64::max);
    print!("{load:<8}{flows:<8}{cpus:>5}{connections:>7}");
    rates.iter().for_each(|rate| print!("{:>16.3}", rate / best));
    let name = fixed.iter().zip(&args.archs).find(|(rate, _)| **rate == best).map(|(_, arch)| arch.to_string());
    println!("  {:.3} of {}", compared / best, name.unwrap_or_default());
}

/// The mean of all seeds: of windows of a millisecond in the second half of the time, the median, or with threads of their
/// own the mean.
fn rate(args: &Args, pair: &Pair) -> f64 {
    let of = |seed| {
        let (pair, costs) = (Pair { seed, ..pair.clone() }, args.preset.costs(Kernel::Heddle).on(pair.cpus));
        let ((transferred, windows), _) = Machine::new(pair.cpus, costs).seed(seed).run(move || pair.run_on::<Vsmp>());
        assert_eq!(transferred.wrong, 0, "no byte is another one");
        if args.applications == Applications::OwnThreads { mean(&windows) } else { steady(&windows) }
    };
    (args.first..args.first + args.seeds).map(of).sum::<f64>() / args.seeds as f64
}

/// The rates on this machine, relative to the architecture that is the best in the median.
fn rounds(args: &Args, pair: impl Fn(Architecture) -> Pair) {
    let run = |arch: Architecture, seed| {
        let (transferred, windows) = Pair { seed, ..pair(arch) }.run_on::<Real>();
        assert_eq!(transferred.wrong, 0, "no byte is another one");
        mean(&windows)
    };
    let round = |seed| args.archs.iter().map(|arch| run(*arch, seed)).collect::<Vec<f64>>();
    let rounds: Vec<Vec<f64>> = (args.first..args.first + args.seeds).map(round).collect();
    let all = |arch: usize| rounds.iter().map(move |round| round[arch]);
    let best = (0..args.archs.len()).max_by(|one, other| median(all(*one)).total_cmp(&median(all(*other))));
    let Some(best) = best else { return };
    for arch in 0..args.archs.len() {
        let shares = || rounds.iter().map(|round| round[arch] / round[best]);
        let (least, greatest) = (shares().fold(f64::MAX, f64::min), shares().fold(0.0, f64::max));
        print!("  {} {:.2} ({least:.2} to {greatest:.2})", args.archs[arch], median(shares()));
    }
    println!();
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn steady(windows: &[Window]) -> f64 {
    Rate::of(&Windows::trusting(windows), windows.len() / 2).map_or(0.0, |rate| rate.median)
}

/// Threads that share a CPU take turns of milliseconds, so single windows say little.
fn mean(windows: &[Window]) -> f64 {
    let half = &windows[windows.len() / 2..];
    half.iter().map(|window| window.progress as f64).sum::<f64>() / half.len() as f64
}
