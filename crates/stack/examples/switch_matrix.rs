//! Every ordered pair of variants: a stack under load is switched from one to the other and back, again and again, in
//! virtual time ([`load`]). Prints a line for each pair that fails, and the totals. `cargo xtask switch-matrix` runs it;
//! arguments limit it to pairs from these architectures.

#[path = "../tests/live_switching/load.rs"]
mod load;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use stack::Architecture;

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let froms: Result<Vec<Architecture>, _> = names.iter().map(|name| name.parse()).collect();
    let froms = match froms {
        Ok(froms) if froms.is_empty() => Architecture::all().collect(),
        Ok(froms) => froms,
        Err(unknown) => {
            eprintln!("{unknown}");
            return ExitCode::from(2);
        }
    };
    let (start, mut failed, mut pairs, mut switches, mut longest) = (Instant::now(), 0, 0, 0, Duration::ZERO);
    for from in froms {
        for to in Architecture::all() {
            pairs += 1;
            match load::carry(from, to) {
                Ok(shown) => {
                    switches += shown.switches;
                    longest = longest.max(shown.longest);
                }
                Err(wrong) => {
                    failed += 1;
                    println!("{from} to {to}: {wrong}");
                }
            }
        }
    }
    println!(
        "{pairs} ordered pairs, {failed} failed; {switches} switches under load, the longest pause {longest:?}; {} s",
        start.elapsed().as_secs()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
