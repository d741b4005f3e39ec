//! `heddle ttcp`: Schmidt and Suda's message benchmark.

use std::time::Duration;

use clap::Args as ClapArgs;
use heddle::device::fault::FaultPlan;
use heddle::{Architecture, LockKind};
use lab::sampling::Contender;
use lab::workload::{Bench, Params, SendMode};

use crate::failure::Failure;
use crate::headroom;

/// Send messages over several connections and time them, as ttcp does.
///
/// The defaults are those of Schmidt and Suda (INFOCOM 1995): 20 connections, 4096-byte messages, 20000 of them timed
/// after 10000 to warm up. Both ends run in this process on a pair of memory ports.
#[derive(ClapArgs)]
#[command(after_help = include_str!("help/ttcp.txt").trim_end())]
pub struct Args {
    /// Architectures to measure, by name (`heddle compare --list` lists them)
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", default_value = ARCHITECTURES.trim_end())]
    arch: Vec<Architecture>,
    /// Kind of lock: tas, ttas, ticket, mcs, spin-park, blocking, reserved, adaptive or adaptive-lending
    #[arg(long, value_name = "KIND", default_value_t)]
    lock: LockKind,
    /// Number of threads that run application and stack [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Option<u32>,
    /// Number of connections
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    conns: u32,
    /// Number of messages that are timed
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20_000)]
    messages: u64,
    /// Number of messages that are sent before, to warm up
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    warmup: u64,
    /// Size of a message in bytes
    #[arg(short = 'l', long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    length: u32,
    /// Faults of the memory link, such as "loss 0.1% delay 5ms" (docs/faults.md)
    #[arg(long, value_name = "PLAN", long_help = crate::network::fault_help())]
    fault: Option<FaultPlan>,
    /// Print the results as one JSON object
    #[arg(short, long)]
    json: bool,
}

/// The default architectures: connections owned by threads, a lock for each connection, and a lock for each group of
/// connections.
pub const ARCHITECTURES: &str = include_str!("help/ttcp_architectures.txt");

/// One architecture's result.
struct Run {
    arch: Architecture,
    messages: u64,
    seconds: f64,
    cpu: f64,
    voluntary: u64,
    involuntary: u64,
    sync_ms: f64,
}

impl Run {
    fn mbps(&self, length: u32) -> f64 {
        self.messages as f64 * f64::from(length) * 8e-6 / self.seconds
    }
}

/// Runs `heddle ttcp`.
pub fn run(args: Args) -> Result<(), Failure> {
    if args.lock == LockKind::Null {
        return Err(Failure::usage(
            "the null lock does not exclude other threads: choose tas, ttas, ticket, mcs, spin-park, blocking, reserved or adaptive",
        ));
    }
    let most = args.arch.iter().map(|arch| params(&args, *arch).effective_threads()).max();
    // Those of two stacks, and those that load them.
    headroom::check(3 * most.unwrap_or(0) as usize)?;
    let mut runs = Vec::new();
    for arch in &args.arch {
        runs.push(measure(&args, *arch).map_err(|error| Failure::failed(format!("{arch}: {error}")))?);
    }
    if args.json {
        let rows: Vec<_> = runs.iter().map(|run| row(run, &args)).collect();
        println!("{}", serde_json::json!({ "messages": args.messages, "length": args.length, "rows": rows }));
    } else {
        print(&runs, &args);
    }
    Ok(())
}

fn params(args: &Args, arch: Architecture) -> Params {
    let mut params = Params::new(arch);
    params.lock = args.lock;
    params.connections = args.conns;
    params.threads = args.threads.unwrap_or(params.threads);
    params.message = args.length as usize;
    params.send = SendMode::Write;
    params.fault.clone_from(&args.fault);
    params
}

fn measure(args: &Args, arch: Architecture) -> std::io::Result<Run> {
    let params = params(args, arch);
    let mut bench = Bench::open(&params)?;
    let length = u64::from(args.length);
    deliver(&mut bench, args.warmup * length, arch)?;
    // Timing a lock costs several times the lock: it is done while the messages are timed, as in the paper.
    sync::profile::set_timed(true);
    let timed = deliver(&mut bench, args.messages * length, arch);
    sync::profile::set_timed(false);
    let mut run = timed?;
    run.messages /= length;
    Ok(run)
}

/// Runs slices until `bytes` bytes have been delivered.
fn deliver(bench: &mut Bench, bytes: u64, arch: Architecture) -> std::io::Result<Run> {
    let before = waited();
    let mut run = Run { arch, messages: 0, seconds: 0.0, cpu: 0.0, voluntary: 0, involuntary: 0, sync_ms: 0.0 };
    while run.messages < bytes {
        let slice = bench.run_slice(Duration::from_millis(5))?;
        run.messages += slice.bytes;
        run.seconds += slice.wall.as_secs_f64();
        run.cpu += slice.cpu.as_secs_f64();
        run.voluntary += slice.switches.voluntary;
        run.involuntary += slice.switches.involuntary;
    }
    run.sync_ms = (waited() - before) as f64 * 1e-6;
    Ok(run)
}

/// Nanoseconds waited for locks so far, all classes.
fn waited() -> u64 {
    sync::profile::snapshot().iter().map(|class| class.wait_ns).sum()
}

fn row(run: &Run, args: &Args) -> serde_json::Value {
    serde_json::json!({
        "arch": run.arch.to_string(),
        "mbps": run.mbps(args.length),
        "messages": run.messages,
        "seconds": run.seconds,
        "cpu_seconds": run.cpu,
        "switches": { "voluntary": run.voluntary, "involuntary": run.involuntary },
        "lock_wait_ms": run.sync_ms,
    })
}

fn print(runs: &[Run], args: &Args) {
    use lab::table::{Align, Table};
    let mut table = Table::new()
        .column("arch", Align::Left, 0)
        .column("Mb/s", Align::Right, 0)
        .column("messages", Align::Right, 0)
        .column("seconds", Align::Right, 0)
        .column("CPU s", Align::Right, 1)
        .column("voluntary", Align::Right, 1)
        .column("involuntary", Align::Right, 1)
        .column("lock wait ms", Align::Right, 1);
    for run in runs {
        table.row(vec![
            run.arch.to_string(),
            format!("{:.0}", run.mbps(args.length)),
            run.messages.to_string(),
            format!("{:.3}", run.seconds),
            format!("{:.3}", run.cpu),
            run.voluntary.to_string(),
            run.involuntary.to_string(),
            format!("{:.1}", run.sync_ms),
        ]);
    }
    println!("{}", table.render(100));
    println!("{} messages of {} bytes over {} connections; locks timed.", args.messages, args.length, args.conns);
}
