//! One workload under one architecture, for profiling: `quick ARCH CONNECTIONS THREADS SECONDS [rpc|connect]`, with
//! `LOCK=KIND`, `IPV6=1`, `NO_RUNS=1`, `EVEN_SPREAD=1` (connections on any thread, as in the papers), `BUFFER=BYTES` (of a
//! socket), `MESSAGE=BYTES` (in one call) and `RING=FRAMES` (of the link) in the environment.
use std::time::Duration;

use lab::sampling::Contender;
use lab::workload::{Bench, Params};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let arg = |n: usize, default: &str| args.get(n).cloned().unwrap_or_else(|| default.to_owned());
    let mut params = Params::new(arg(1, "up").parse()?);
    params.connections = arg(2, "6").parse()?;
    params.threads = arg(3, "1").parse()?;
    if let Ok(kind) = std::env::var("LOCK") {
        params.lock = kind.parse()?;
    }
    params.affinity = std::env::var_os("EVEN_SPREAD").is_none();
    params.runs = std::env::var_os("NO_RUNS").is_none();
    params.ipv6 = std::env::var_os("IPV6").is_some();
    if let Ok(size) = std::env::var("BUFFER") {
        params.buffer = Some(size.parse()?);
    }
    if let Ok(size) = std::env::var("MESSAGE") {
        params.message = size.parse()?;
    }
    if let Ok(size) = std::env::var("RING") {
        params.ring = size.parse()?;
    }
    let seconds: f64 = arg(4, "1").parse()?;
    let mut bench = match arg(5, "bulk").as_str() {
        "rpc" => Bench::open_rpc(&params)?,
        "connect" => Bench::open_connect(&params)?,
        _ => Bench::open(&params)?,
    };
    let with_floor = std::env::var_os("FLOOR").is_some();
    let mut floor = lab::workload::Floor::new(1448, params.connections);
    for _ in 0..3 {
        let slice = bench.run_slice(Duration::from_secs_f64(seconds))?;
        if with_floor {
            let bare = floor.run_slice(Duration::from_secs_f64(seconds / 2.0))?;
            println!("floor {:.2} Gb/s for each CPU second", 8.0 / bare.cpu_s_per_gb());
        }
        println!(
            "{:.2} Gb/s, {:.0} ops/s, cpu {:.2} s, out of order {}, retransmits {}",
            slice.gbps(),
            slice.operations_per_second(),
            slice.cpu.as_secs_f64(),
            slice.exact.out_of_order,
            slice.exact.retransmits
        );
        for lock in slice.exact.locks.iter().filter(|lock| lock.acquired > 0) {
            print!("  {} {} of {}", lock.class, lock.first_try_failed, lock.acquired);
        }
        println!("  switches {:?} wakes {:?} handoffs {}", slice.switches, slice.exact.wakes, slice.exact.handoffs);
    }
    for (name, value) in bench.counters().iter().filter(|(_, value)| *value > 0) {
        println!("  {name}: {value}");
    }
    bench.decided().iter().for_each(|line| println!("  {line}"));
    Ok(())
}
