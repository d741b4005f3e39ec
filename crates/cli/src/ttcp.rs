//! `heddle ttcp`: Schmidt and Suda's message benchmark.

use std::time::Duration;

use clap::Args as ClapArgs;
use heddle::device::fault::FaultPlan;
use heddle::{Architecture, LockKind};
use lab::sampling::{Contender, Slice};
use lab::stats::Estimate;
use lab::workload::{Bench, Codec, Params, SendMode, presented_length};

use crate::failure::Failure;
use crate::headroom;
use crate::listed::{Listed, listed};

/// Send messages over several connections and time them, as ttcp does.
///
/// The defaults are those of Schmidt and Suda (INFOCOM 1995): 20 connections, 4096-byte messages, 20000 of them timed
/// after 10000 to warm up. Both ends run in this process on a pair of memory ports.
#[derive(ClapArgs)]
#[command(after_help = include_str!("help/ttcp.txt").trim_end())]
pub struct Args {
    /// Architectures to measure, by name (`heddle compare --list` lists them), or `all`
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", default_value = ARCHITECTURES.trim_end())]
    arch: Vec<Listed>,
    /// Kind of lock: tas, ttas, ticket, mcs, spin-park, blocking, reserved, adaptive or adaptive-lending
    #[arg(long, value_name = "KIND", default_value_t)]
    lock: LockKind,
    /// Number of threads that run application and stack [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Number of connections
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    conns: u32,
    /// Number of messages that are timed
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20_000)]
    messages: u64,
    /// Number of messages to warm up, sent before the timed ones
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    warmup: u64,
    /// Size of a message in bytes
    #[arg(short = 'l', long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    length: u32,
    /// Encode each message by the sender, and decode it by the receiver: arrays of structures, as XDR (RFC 4506).
    /// `field-by-field` is a stub generator's code of the 1990s, `bulk` encodes a whole array at once
    #[arg(long, value_name = "CODEC", num_args = 0..=1, default_missing_value = "field-by-field")]
    xdr: Option<Presentation>,
    /// Number of times that the messages are timed; with two or more, the mean and its 95 % confidence interval are printed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
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

/// The values of `--xdr`.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Presentation {
    FieldByField,
    Bulk,
}

impl Presentation {
    fn codec(self) -> Codec {
        match self {
            Presentation::FieldByField => Codec::FieldByField,
            Presentation::Bulk => Codec::Bulk,
        }
    }

    /// The value as it is written on the command line.
    fn name(self) -> &'static str {
        match self {
            Presentation::FieldByField => "field-by-field",
            Presentation::Bulk => "bulk",
        }
    }
}

impl Args {
    /// Bytes of a message. With `--xdr`, as many whole structures as fit into `--length`.
    fn message(&self) -> u64 {
        let length = self.length as usize;
        self.xdr.map_or(length, |_| presented_length(length)) as u64
    }
}

/// One architecture's result: the sums over all repetitions.
struct Run {
    arch: Architecture,
    messages: u64,
    /// The throughput of each repetition, in Mb/s.
    rates: Vec<f64>,
    seconds: f64,
    cpu: f64,
    voluntary: u64,
    involuntary: u64,
    sync_ms: f64,
}

impl Run {
    fn rate(&self) -> Estimate {
        Estimate::of(&self.rates).unwrap_or(Estimate { mean: 0.0, ci95: None })
    }
}

/// Runs `heddle ttcp`.
pub fn run(args: Args) -> Result<(), Failure> {
    if args.lock == LockKind::Null {
        return Err(Failure::usage(
            "the null lock does not exclude other threads: choose tas, ttas, ticket, mcs, spin-park, blocking, reserved or adaptive",
        ));
    }
    let architectures = listed(&args.arch);
    let most = architectures.iter().map(|arch| params(&args, *arch).effective_threads()).max();
    // The threads of two stacks, and those that load them.
    headroom::check(3 * most.unwrap_or(0) as usize)?;
    let mut runs = Vec::new();
    for arch in architectures {
        runs.push(measure(&args, arch).map_err(|error| Failure::failed(format!("{arch}: {error}")))?);
    }
    if args.json {
        let rows: Vec<_> = runs.iter().map(row).collect();
        let xdr = args.xdr.map(Presentation::name);
        let all = serde_json::json!({
            "messages": args.messages, "length": args.message(), "xdr": xdr, "repetitions": args.reps, "rows": rows,
        });
        println!("{all}");
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
    // As in the papers that it is from.
    (params.affinity, params.runs) = (false, false);
    params.presentation = args.xdr.map(Presentation::codec);
    params.fault.clone_from(&args.fault);
    params
}

fn measure(args: &Args, arch: Architecture) -> std::io::Result<Run> {
    let params = params(args, arch);
    let mut bench = Bench::open(&params)?;
    let length = args.message();
    let mut run = Run {
        arch,
        messages: 0,
        rates: Vec::new(),
        seconds: 0.0,
        cpu: 0.0,
        voluntary: 0,
        involuntary: 0,
        sync_ms: 0.0,
    };
    deliver(&mut bench, args.warmup * length)?;
    for _ in 0..args.reps {
        let waited_before = waited();
        // Timing a lock costs several times as much as the lock itself. As in the paper, locks are timed while the
        // messages are.
        sync::profile::set_timed(true);
        let timed = deliver(&mut bench, args.messages * length);
        sync::profile::set_timed(false);
        let timed = timed?;
        run.sync_ms += (waited() - waited_before) as f64 * 1e-6;
        run.messages += timed.bytes / length;
        run.rates.push(timed.gbps() * 1e3);
        run.seconds += timed.wall.as_secs_f64();
        run.cpu += timed.cpu.as_secs_f64();
        run.voluntary += timed.switches.voluntary;
        run.involuntary += timed.switches.involuntary;
    }
    Ok(run)
}

/// Runs slices until `bytes` bytes have been delivered, and returns their sum.
fn deliver(bench: &mut Bench, bytes: u64) -> std::io::Result<Slice> {
    let mut sum = Slice::default();
    while sum.bytes < bytes {
        let slice = bench.run_slice(Duration::from_millis(5))?;
        sum.bytes += slice.bytes;
        sum.wall += slice.wall;
        sum.cpu += slice.cpu;
        sum.switches += slice.switches;
    }
    Ok(sum)
}

/// Nanoseconds waited for locks so far, all classes.
fn waited() -> u64 {
    sync::profile::snapshot().iter().map(|class| class.wait_ns).sum()
}

fn row(run: &Run) -> serde_json::Value {
    let Estimate { mean, ci95 } = run.rate();
    serde_json::json!({
        "arch": run.arch.to_string(),
        "mbps": mean,
        "mbps_ci95": ci95,
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
            rate(&run.rate()),
            run.messages.to_string(),
            format!("{:.3}", run.seconds),
            format!("{:.3}", run.cpu),
            run.voluntary.to_string(),
            run.involuntary.to_string(),
            format!("{:.1}", run.sync_ms),
        ]);
    }
    println!("{}", table.render(100));
    let Args { messages, conns, .. } = args;
    let presentation = args.xdr.map_or(String::new(), |xdr| format!(", as XDR {}", xdr.name()));
    let often = if args.reps > 1 { format!(", {} times", args.reps) } else { String::new() };
    println!(
        "{messages} messages of {} bytes{presentation} over {conns} connections{often}; locks timed.",
        args.message()
    );
}

/// A throughput with its interval, where there is one.
fn rate(estimate: &Estimate) -> String {
    match estimate.ci95 {
        Some(ci95) => format!("{:.0} ±{ci95:.0}", estimate.mean),
        None => format!("{:.0}", estimate.mean),
    }
}
