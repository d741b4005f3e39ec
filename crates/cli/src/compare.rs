//! `heddle compare`, `heddle rpc`: every architecture and the kernel under the same load, in the same seconds.

use std::io::{IsTerminal, stderr, stdout};
use std::path::PathBuf;

use clap::Args as ClapArgs;
use heddle::device::fault::FaultPlan;
use heddle::{Architecture, LockKind};
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use lab::compare::{self, ComparisonProgress, Options};
use lab::result::{Results, Workload};
use lab::workload::SendMode;

use crate::failure::Failure;
use crate::headroom;
use crate::listed::{Listed, listed};

/// Compare process architectures, and the Linux kernel, under the parallel TCP benchmark.
///
/// Both ends run in this process on a pair of memory ports: no root, no network. The kernel's own TCP runs on loopback
/// at the same time. Prints a table and a recommendation for this machine; with --report, also writes figures as HTML
/// files.
#[derive(ClapArgs)]
#[command(after_help = include_str!("help/compare.txt").trim_end())]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// Numbers of connections; each is measured as one load [default: 6,192,3072,16384]
    #[arg(long, value_delimiter = ',', value_name = "N,..", default_values_t = compare::CONNECTIONS, hide_default_value = true)]
    conns: Vec<u32>,
    /// Bytes that the sender writes in one call, and the size of the receiver's buffer
    #[arg(long, value_name = "BYTES", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    message: u32,
    /// Copy the payload into the send queue (write) instead of sending shared bytes (sendfile)
    #[arg(long)]
    copy: bool,
}

/// Measure the rate of small requests, or the rate at which connections are opened and closed.
#[derive(ClapArgs)]
#[command(after_help = include_str!("help/rpc.txt").trim_end())]
pub struct RpcArgs {
    #[command(flatten)]
    common: Common,
    /// Numbers of connections; each is measured as one load
    #[arg(long, value_delimiter = ',', value_name = "N,..", default_value = "64")]
    conns: Vec<u32>,
    /// Size of a request and of its response, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    request: u32,
    /// Measure opening and closing of connections instead of requests
    #[arg(long, conflicts_with_all = ["handlers", "idle"])]
    connect: bool,
    /// Let both ends be handlers, which run where their data arrives, instead of threads that wait for events
    #[arg(long)]
    handlers: bool,
    /// Open N more connections that stay idle; other stacks are not measured then
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    idle: u32,
}

#[derive(ClapArgs)]
struct Common {
    /// Architectures to measure, by name (`heddle compare --list` lists them), or `all`
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    arch: Vec<Listed>,
    /// List the architectures and exit
    #[arg(long)]
    list: bool,
    /// Kinds of lock: tas, ttas, ticket, mcs, spin-park, blocking, reserved, adaptive, adaptive-lending
    #[arg(long, value_delimiter = ',', value_name = "KIND,..", default_values_t = [LockKind::default()])]
    lock: Vec<LockKind>,
    /// Number of threads that run application and stack [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// A short comparison: under three minutes on two cores (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// A long comparison: more architectures, loads and repetitions; about an hour
    #[arg(long)]
    full: bool,
    /// Repetitions of each measurement, at least 2
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    reps: Option<u32>,
    /// Length of one measurement in milliseconds
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    slice: Option<u64>,
    /// Size of the socket buffers in bytes; 0 for automatic sizes
    #[arg(long, value_name = "BYTES", default_value_t = 262_144)]
    buffer: u32,
    /// Largest IP packet on the memory link, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65_535))]
    mtu: u32,
    /// Use IPv6 instead of IPv4; other stacks are not measured then
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Let the memory link accept super-segments, as network cards with segmentation offload do
    #[arg(long)]
    offload: bool,
    /// Spread connections evenly over the threads, as in the benchmark's paper, so that another thread receives most of
    /// them. Without this option, each connection is used by the thread that receives its segments
    #[arg(long)]
    even_spread: bool,
    /// Process each segment by itself: one entry, one lock and one event for each, as in the systems of the papers. Without
    /// this option, segments of a connection that arrive together are processed together where the architecture can
    #[arg(long)]
    no_runs: bool,
    /// Faults of the memory link, such as "loss 0.1% delay 5ms" (docs/faults.md); the kernel is not measured then
    #[arg(long, value_name = "PLAN", long_help = crate::network::fault_help())]
    fault: Option<FaultPlan>,
    /// Do not measure the kernel's TCP, nor the row with segmentation and coalescing by the device
    #[arg(long)]
    no_kernel: bool,
    /// Do not measure smoltcp
    #[cfg(feature = "smoltcp")]
    #[arg(long)]
    no_smoltcp: bool,
    /// Write the results to FILE as JSON (docs/results.schema.json); `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results to standard output as JSON, as --json - does
    #[arg(short = 'j', conflicts_with = "json")]
    to_stdout: bool,
    /// Write a report to this directory: figures, CSV and JSON
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// Runs `heddle compare`.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut options = args.common.options(Workload::Bulk)?;
    if !args.common.full || args.conns != compare::CONNECTIONS {
        options.connections.clone_from(&args.conns);
    }
    options.message = args.message as usize;
    options.send = if args.copy { SendMode::Write } else { SendMode::Shared };
    args.common.measure(&options)
}

/// Runs `heddle rpc`.
pub fn run_rpc(args: RpcArgs) -> Result<(), Failure> {
    let mut options = args.common.options(if args.connect { Workload::Connect } else { Workload::Rpc })?;
    options.connections.clone_from(&args.conns);
    options.request = args.request as usize;
    options.handlers = args.handlers;
    options.idle = args.idle;
    options.kernel &= args.idle == 0;
    args.common.measure(&options)
}

impl Common {
    fn options(&self, workload: Workload) -> Result<Options, Failure> {
        let base = if self.full { Options::full() } else { Options::quick() };
        let mut options = Options { workload, locks: self.lock.clone(), ..base };
        if self.lock.contains(&LockKind::Null) {
            return Err(Failure::usage(
                "the null lock does not exclude other threads: choose tas, ttas, ticket, mcs, spin-park, blocking, reserved or adaptive",
            ));
        }
        if !self.arch.is_empty() {
            options.architectures = listed(&self.arch);
        }
        options.threads = self.threads.unwrap_or(options.threads);
        options.buffer = (self.buffer > 0).then_some(self.buffer);
        options.mtu = self.mtu as usize;
        options.offload = self.offload;
        options.affinity = !self.even_spread;
        options.runs = !self.no_runs;
        options.fault.clone_from(&self.fault);
        options.ipv6 = self.ipv6;
        options.kernel = !self.no_kernel && self.fault.is_none() && !self.ipv6;
        #[cfg(feature = "smoltcp")]
        {
            options.smoltcp = !self.no_smoltcp;
        }
        options.schedule.repetitions = self.reps.map_or(options.schedule.repetitions, |reps| reps as usize);
        options.schedule.slice_ms = self.slice.unwrap_or(options.schedule.slice_ms);
        Ok(options)
    }

    fn measure(&self, options: &Options) -> Result<(), Failure> {
        if self.list {
            print!("{}", Architecture::catalogue());
            return Ok(());
        }
        if let Some(zero) = options.connections.iter().find(|n| **n == 0 || **n > 100_000) {
            return Err(Failure::usage(format!("{zero} connections cannot be measured: give 1 to 100000")));
        }
        // All architectures of one load and the kernel are open at a time; each has two stacks and its load threads.
        headroom::check(3 * options.threads as usize * (options.architectures.len() + 3))?;
        let quiet = self.to_stdout || self.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
        let bar = progress_bar();
        let results = compare::run(options, &mut |standing| show(&bar, &standing));
        bar.finish_and_clear();
        if quiet {
            print!("{}", results.to_json());
        } else {
            print_results(&results);
        }
        self.save(&results, quiet)
    }

    fn save(&self, results: &Results, quiet: bool) -> Result<(), Failure> {
        let mut failed = None;
        if let Some(path) = self.json.as_deref().filter(|path| path.as_os_str() != "-") {
            failed = compare::save_json(path, results).err().map(|error| error.to_string());
        }
        if let Some(directory) = &self.report {
            match lab::report::write_or_print(directory, results, &mut stdout()) {
                Ok(index) if !quiet => println!("\nFigures: {}", index.display()),
                Ok(_) => {}
                Err(error) => failed = Some(error.to_string()),
            }
        }
        if results.rows.is_empty() {
            failed = failed.or_else(|| Some("nothing was measured: the lines above say why".to_owned()));
        }
        failed.map_or(Ok(()), |message| Err(Failure::failed(message)))
    }
}

fn progress_bar() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1000);
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn show(bar: &ProgressBar, standing: &ComparisonProgress) {
    bar.set_position((standing.done * 1000.0) as u64);
    bar.set_message(format!(
        "load {} of {}: {}, {} connections; {} left",
        standing.load.0,
        standing.load.1,
        standing.doing,
        standing.connections,
        HumanDuration(standing.left),
    ));
}

fn print_results(results: &Results) {
    println!("{}", lab::table::comparison(&results.rows).render(width()));
    for remark in results.machine.remarks() {
        println!("Note: {remark}");
    }
    let remarks = results.parameters.get("not_measured").and_then(|value| value.as_array());
    for remark in remarks.into_iter().flatten().filter_map(|value| value.as_str()) {
        println!("Not measured: {remark}");
    }
    let mut notes: Vec<&str> = results.rows.iter().flat_map(|row| row.notes.iter().map(String::as_str)).collect();
    notes.sort_unstable();
    notes.dedup();
    for note in notes {
        println!("Note: {note}");
    }
    if let Some(recommendation) = &results.recommendation {
        println!("\n{}", recommendation.reason);
    }
}

/// Columns of the terminal; wide enough for every figure if the output is not a terminal.
pub fn width() -> usize {
    if !stdout().is_terminal() {
        return 160;
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.or_else(|| rustix::termios::tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col))).unwrap_or(100)
}
