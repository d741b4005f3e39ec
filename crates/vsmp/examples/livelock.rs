//! Receive livelock on one virtual CPU: the goodput of an application, in percent of the capacity, for arrivals of 50
//! to 400 percent of the capacity, under each named architecture (default: the table of docs/simulator.md).
//!
//! Frames are taken by a hardware interrupt handler, and after `--threads` by a thread with the application's priority.
//!
//! `cargo run -p heddle-vsmp --example livelock -- softint softint:all --threads softint+polling`

use std::net::SocketAddr;
use std::time::Duration;

use frames::{Datagram, Ends};
use stack::Architecture;
use vsmp::workload::overload::{CPUS, Goodput, Overload, card, interrupts_first};
use vsmp::{Arena, Costs, Machine};

#[global_allocator]
static ARENA: Arena = Arena::new();

const PORT: u16 = 9;
/// More than can be processed.
const TOO_MUCH: u64 = 4_000_000;
const LOADS: [u64; 6] = [50, 100, 150, 200, 300, 400];
const SEEDS: [u64; 4] = [1, 2, 3, 4];
const THREADS: &str = "--threads";
const SHOWN: [&str; 9] =
    ["softint:1", "softint:4", "softint", "softint:64", "softint:all", "msgp:1", THREADS, "softint+polling", "msgp:1"];

/// The means over all seeds, and the largest difference of goodputs.
struct Point {
    mean: Goodput,
    spread: u64,
}

fn run(arch: &str, interrupts: bool, rate: u64) -> Point {
    let ends = Ends::PEER_TO_STACK;
    let of_seed = |seed| {
        let overload = Overload {
            arch: Architecture::named(arch),
            card: card(),
            frame: Datagram::new(2000, PORT, b"text").frame_over(ends),
            to: SocketAddr::new(ends.dst, PORT),
            from: ends.src,
            rate,
            interrupts,
            warm_up: Duration::from_millis(20),
            time: Duration::from_millis(100),
        };
        let machine = Machine::new(CPUS, interrupts_first(Costs::opteron_275())).seed(seed);
        machine.run(move || overload.run()).0
    };
    let runs = SEEDS.map(of_seed);
    let mean = |part: fn(&Goodput) -> u64| runs.iter().map(part).sum::<u64>() / runs.len() as u64;
    let mean = Goodput {
        read: mean(|run| run.read),
        lost: mean(|run| run.lost),
        unprocessed: mean(|run| run.unprocessed),
        unread: mean(|run| run.unread),
    };
    let (least, most) = (runs.iter().map(|run| run.read).min(), runs.iter().map(|run| run.read).max());
    Point { mean, spread: most.unwrap_or_default() - least.unwrap_or_default() }
}

fn main() {
    let mut named: Vec<String> = std::env::args().skip(1).collect();
    if named.is_empty() {
        named = SHOWN.map(str::to_owned).to_vec();
    }
    let capacity = run("softint+polling", false, TOO_MUCH).mean.read;
    println!("A model of one CPU of an Opteron 275, seeds {SEEDS:?}.");
    println!("Capacity, a thread that polls fairly: {capacity} datagrams a second.");
    println!(
        "Read by the application, in percent of the capacity; of what arrives at 400 percent, also in percent of the"
    );
    println!("capacity: lost by the card, dropped before it is processed, dropped at the socket.");
    println!("{:<26}{}", "offered, percent", LOADS.map(|load| format!("{load:>7}")).concat());
    let percent = |count: u64| 100.0 * count as f64 / capacity as f64;
    let (mut interrupts, mut spread) = (true, 0);
    for name in named {
        if name == THREADS {
            interrupts = false;
            continue;
        }
        let curve = LOADS.map(|load| run(&name, interrupts, capacity * load / 100));
        spread = curve.iter().map(|at| at.spread).fold(spread, u64::max);
        let read = curve.iter().map(|at| format!("{:>7.1}", percent(at.mean.read))).collect::<String>();
        let last = curve[LOADS.len() - 1].mean;
        let [lost, unprocessed, unread] = [last.lost, last.unprocessed, last.unread].map(percent);
        let by = if interrupts { "handler" } else { "thread" };
        println!("{:<26}{read}   ({lost:.0}, {unprocessed:.0}, {unread:.0})", format!("{name}, {by}"));
    }
    println!("Seeds differ by {:.1} at most.", percent(spread));
}
