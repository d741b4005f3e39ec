//! `heddle rfc2544`: bridges under the tests of RFC 2544.

use std::io::{IsTerminal, stderr, stdout};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args as ClapArgs;
use indicatif::{ProgressBar, ProgressStyle};
use lab::rfc2544::bench::{Between, RING, STATIONS};
use lab::rfc2544::document::{Rfc2544Results, Rfc2544Row};
use lab::rfc2544::line::{Buffers, LONGEST, SHORTEST};
use lab::rfc2544::method::Limits;
use lab::rfc2544::run::{self, Over, PAPER_SIZES, RFC_SIZES, Rfc2544Options, Rfc2544Progress, Tests};
use lab::rfc2544::wires;
use lab::stats::Estimate;
use lab::table::{Align, Table};
use lab::units::{estimate, significant};
use switch::{BridgeExclusion, Work};

use crate::failure::Failure;
use crate::headroom;

/// Measure the bridge according to RFC 2544: throughput without loss, frame loss rate, back-to-back frames, latency.
///
/// A generator and a counter of test frames are the two ports of a bridge, in memory: no root, no network. With --over tap they
/// are at two network interfaces, and the Linux bridge is measured, too. Both directions are loaded at once. All bridges of a run
/// are measured in turn, and ratios are computed within one repetition.
#[derive(ClapArgs)]
#[command(after_help = include_str!("help/rfc2544.txt").trim_end())]
pub struct Args {
    /// What the bridges forward between: `memory`, or `tap`, which are network interfaces that the command makes in a network
    /// namespace of its own: TAP for Heddle's bridges, veth for the Linux bridge. It needs root, or `unshare -rn` before the
    /// command
    #[arg(long, value_name = "WHAT", default_value = "memory", value_parser = over)]
    over: Over,
    /// Bridges, by exclusion: generic, mpsafe, rcu; and `cable`, which is the generator and counter alone. Over TAP also `linux`,
    /// the bridge of the kernel, which forwards on the CPU of the generator, and `linux-rps`, the same on the CPU that a worker of
    /// Heddle has [default: generic,mpsafe,rcu, and over TAP linux,linux-rps before these]
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    bridge: Vec<Contender>,
    /// Numbers of worker threads [default: 1 and one for each processor]. `generic` always has one, and so has each bridge over
    /// TAP
    #[arg(long, value_delimiter = ',', value_name = "N,..", value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: Vec<u32>,
    /// Frame sizes in bytes, with the check sequence [default: 64,128,256,512,1024,1280,1518, those of the RFC; over TAP
    /// 64,1518]
    #[arg(long, value_delimiter = ',', value_name = "BYTES,..", value_parser = clap::value_parser!(u32).range(SHORTEST as i64..=LONGEST as i64))]
    size: Vec<u32>,
    /// The frame sizes of Nakahara et al. 2015, tables 3 and 4
    #[arg(long, conflicts_with = "size")]
    paper: bool,
    /// Tests besides throughput: loss, back-to-back, latency, all of these, or none; and flush: how long the longest frame
    /// waits while the forwarding database is flushed at half the throughput (--stations 50000 makes 100000 addresses). Over TAP:
    /// loss and latency
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", default_value = "latency",
          value_parser = ["loss", "back-to-back", "latency", "flush", "all", "none"])]
    tests: Vec<String>,
    /// Rate of the line of each port in bits a second, such as 1G or 100M: no more is offered [default: as fast as
    /// memory]
    #[arg(long, value_name = "RATE")]
    line_rate: Option<BitRate>,
    /// Length of a trial in milliseconds [default: 20, over TAP 200]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=600_000))]
    trial: Option<u32>,
    /// Number of times that each measurement is repeated
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// Number of trials at a rate, of which one must be without loss; 1 is the RFC's rule
    #[arg(long, value_name = "N", default_value_t = Limits::USUAL.attempts, value_parser = clap::value_parser!(u32).range(1..=100))]
    attempts: u32,
    /// Resolution of the search in percent
    #[arg(long, value_name = "PERCENT", default_value_t = Limits::USUAL.resolution * 100.0)]
    resolution: f64,
    /// Frames that a receive ring holds
    #[arg(long, value_name = "N", default_value_t = RING as u32, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    ring: u32,
    /// Stations behind each port
    #[arg(long, value_name = "N", default_value_t = STATIONS as u32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    stations: u32,
    /// Work per interrupt: a number of frames, or `drain` for all frames in the ring [default: drain for generic, 1 for
    /// mpsafe, a vector for rcu]
    #[arg(long, value_name = "N", value_parser = crate::bridge::work)]
    work: Option<Work>,
    /// Reuse the buffers, as a device with shared memory does, instead of copying every frame in and out
    #[arg(long)]
    by_pointer: bool,
    /// Write the results to FILE as JSON; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results to standard output as JSON, as --json - does
    #[arg(short = 'j', conflicts_with = "json")]
    to_stdout: bool,
    /// Write a report to this directory: figures and JSON
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// A name in `--bridge`.
#[derive(Clone, Copy)]
struct Contender(Between);

impl FromStr for Contender {
    type Err = String;

    fn from_str(name: &str) -> Result<Contender, String> {
        let others = [Between::Cable, Between::Linux { steered: false }, Between::Linux { steered: true }];
        if let Some(other) = others.into_iter().find(|other| other.name() == name) {
            return Ok(Contender(other));
        }
        let exclusion: Result<BridgeExclusion, _> = name.parse();
        let exclusion = exclusion.map_err(|_| "use generic, mpsafe, rcu, cable, linux or linux-rps".to_owned())?;
        Ok(Contender(Between::Bridge(exclusion)))
    }
}

fn over(name: &str) -> Result<Over, String> {
    let all = [Over::Memory, Over::Tap];
    all.into_iter().find(|over| over.name() == name).ok_or_else(|| "use memory or tap".to_owned())
}

/// Bits a second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BitRate(f64);

impl FromStr for BitRate {
    type Err = String;

    fn from_str(text: &str) -> Result<BitRate, String> {
        let (digits, unit) = match text.char_indices().last() {
            Some((at, 'k' | 'K')) => (&text[..at], 1e3),
            Some((at, 'M')) => (&text[..at], 1e6),
            Some((at, 'G')) => (&text[..at], 1e9),
            _ => (text, 1.0),
        };
        let rate = digits.parse::<f64>().ok().map(|number| number * unit).filter(|rate| (1e5..=1e13).contains(rate));
        rate.map(BitRate).ok_or_else(|| "use bits a second from 100k up, as in 1G or 100M".to_owned())
    }
}

/// Runs `heddle rfc2544`.
///
/// # Errors
/// Nothing could be measured, there is no permission to make interfaces, or the results cannot be written.
pub fn run(args: Args) -> Result<(), Failure> {
    let options = options(&args)?;
    let threads: u32 = options.workers.iter().map(|workers| workers + 1).sum();
    headroom::check(threads as usize * options.bridges.len())?;
    if options.over == Over::Tap {
        wires::enter_namespace().map_err(Failure::failed)?;
    }
    let bar = progress_bar();
    let results = run::run(&options, &mut |standing| show(&bar, &standing));
    bar.finish_and_clear();
    let quiet = args.to_stdout || args.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
    if quiet {
        print!("{}", results.to_json());
    } else {
        print(&results, &options);
    }
    save(&args, &results, quiet)
}

fn options(args: &Args) -> Result<Rfc2544Options, Failure> {
    if !(0.01..=50.0).contains(&args.resolution) {
        return Err(Failure::usage("--resolution takes 0.01 to 50 percent"));
    }
    check_what_goes_over(args)?;
    let named = |name: &str| args.tests.iter().any(|test| test == name || test == "all");
    Ok(Rfc2544Options {
        over: args.over,
        bridges: bridges(args),
        workers: workers(args),
        sizes: sizes(args),
        tests: Tests {
            loss: named("loss"),
            back_to_back: named("back-to-back") && args.over == Over::Memory,
            latency: named("latency"),
            flush: args.tests.iter().any(|test| test == "flush"),
        },
        limits: Limits {
            trial_s: f64::from(args.trial.unwrap_or(usual_trial_ms(args.over))) * 1e-3,
            resolution: args.resolution / 100.0,
            attempts: args.attempts,
            line_bits: args.line_rate.map(|rate| rate.0),
            ..Limits::USUAL
        },
        repetitions: args.reps,
        ring: args.ring,
        stations: args.stations,
        buffers: if args.by_pointer { Buffers::Passed } else { Buffers::Copied },
        work: args.work,
    })
}

/// Refuses what exists in memory only, or over TAP only.
fn check_what_goes_over(args: &Args) -> Result<(), Failure> {
    let is_linux = |contender: &Contender| matches!(contender.0, Between::Linux { .. });
    let asked = |name: &str| args.tests.iter().any(|test| test == name);
    let wrong = match args.over {
        Over::Memory if args.bridge.iter().any(is_linux) => "the Linux bridge has no ports in memory: add --over tap",
        Over::Memory => return Ok(()),
        Over::Tap if args.by_pointer => "--by-pointer is for memory: the kernel copies every frame",
        Over::Tap if args.workers.iter().any(|workers| *workers != 1) => {
            "with --over tap a bridge has one worker: the kernel takes the test frames for one flow, which has one queue"
        }
        Over::Tap if asked("back-to-back") || asked("flush") => {
            "--tests back-to-back and flush are for memory: use loss, latency or none with --over tap"
        }
        Over::Tap => return Ok(()),
    };
    Err(Failure::usage(wrong))
}

fn bridges(args: &Args) -> Vec<Between> {
    if !args.bridge.is_empty() {
        return args.bridge.iter().map(|contender| contender.0).collect();
    }
    let linux: &[bool] = if args.over == Over::Tap { &[false, true] } else { &[] };
    let linux = linux.iter().map(|steered| Between::Linux { steered: *steered });
    linux.chain(BridgeExclusion::ALL.map(Between::Bridge)).collect()
}

fn workers(args: &Args) -> Vec<u32> {
    let most = if args.over == Over::Tap { 1 } else { lab::machine::cores() as u32 };
    let mut workers = if args.workers.is_empty() { vec![1, most] } else { args.workers.clone() };
    workers.dedup();
    workers
}

fn sizes(args: &Args) -> Vec<u32> {
    match (args.paper, args.size.is_empty(), args.over) {
        (true, ..) => PAPER_SIZES.to_vec(),
        (_, true, Over::Memory) => RFC_SIZES.to_vec(),
        (_, true, Over::Tap) => vec![64, 1518],
        _ => args.size.clone(),
    }
}

/// A TAP interface holds a thousand frames, which would be a large part of a shorter trial.
fn usual_trial_ms(over: Over) -> u32 {
    match over {
        Over::Memory => (Limits::USUAL.trial_s * 1e3) as u32,
        Over::Tap => 200,
    }
}

fn save(args: &Args, results: &Rfc2544Results, quiet: bool) -> Result<(), Failure> {
    let mut failed = None;
    if let Some(path) = args.json.as_deref().filter(|path| path.as_os_str() != "-") {
        failed = lab::report::save_text(path, &results.to_json()).err().map(|error| error.to_string());
    }
    if let Some(directory) = &args.report {
        match lab::report::write_rfc2544(directory, results) {
            Ok(index) if !quiet => println!("\nFigures: {}", index.display()),
            Ok(_) => {}
            Err(error) => failed = Some(error.to_string()),
        }
    }
    if results.rows.is_empty() {
        let why = results.not_measured.first().map_or("there was nothing to measure", String::as_str);
        failed = failed.or_else(|| Some(format!("nothing was measured: {why}")));
    }
    failed.map_or(Ok(()), |message| Err(Failure::failed(message)))
}

fn print(results: &Rfc2544Results, options: &Rfc2544Options) {
    println!("{}", table(&results.rows).render(crate::compare::width()));
    for row in &results.rows {
        let Some(flush) = &row.flush else { continue };
        println!(
            "{}, {} bytes: {} addresses flushed in {} ms; longest latency {} us meanwhile, {} us without a flush.",
            row.contender(),
            row.frame_bytes,
            flush.addresses,
            estimate(flush.took_ms.estimate()),
            estimate(flush.longest_with_us.estimate()),
            estimate(flush.longest_without_us.estimate())
        );
    }
    let machine = &results.machine;
    println!(
        "Measured on this machine ({}, {} cores), {}, both directions together, {} repetitions of trials of {} ms.",
        machine.cpu_model,
        machine.cores,
        match options.over {
            Over::Memory => "in memory",
            Over::Tap => "between network interfaces",
        },
        options.repetitions,
        options.limits.trial_s * 1e3
    );
    for remark in machine.remarks() {
        println!("Note: {remark}");
    }
    for remark in &results.not_measured {
        println!("Not measured: {remark}");
    }
}

fn table(rows: &[Rfc2544Row]) -> Table {
    let mut table = Table::new()
        .column("bridge", Align::Left, 0)
        .column("workers", Align::Right, 0)
        .column("bytes", Align::Right, 0)
        .column("kfps, no loss", Align::Right, 0)
        .column("Mb/s", Align::Right, 1)
        .column("% of line", Align::Right, 2)
        .column("kfps, overload", Align::Right, 3)
        .column("x first", Align::Right, 1)
        .column("x 1 worker", Align::Right, 2)
        .column("burst", Align::Right, 4)
        .column("median us", Align::Right, 4)
        .column("99 % us", Align::Right, 5)
        .column("misorder", Align::Right, 6);
    for row in rows {
        let kilo =
            |estimate: Estimate| Estimate { mean: estimate.mean * 1e-3, ci95: estimate.ci95.map(|ci95| ci95 * 1e-3) };
        let latency = row.latency.as_ref();
        table.row(vec![
            row.bridge.clone(),
            row.workers.to_string(),
            row.frame_bytes.to_string(),
            estimate(kilo(row.throughput_fps.estimate())),
            significant(row.throughput_mbps),
            row.line_percent.map_or("-".into(), |percent| format!("{percent:.1}")),
            estimate(kilo(row.overload_fps.estimate())),
            row.ratio_to_first.map_or("-".into(), estimate),
            row.ratio_to_one_worker.map_or("-".into(), estimate),
            row.back_to_back_frames.as_ref().map_or("-".into(), |series| significant(series.mean)),
            latency.map_or("-".into(), |latency| significant(latency.median_us.mean)),
            latency.map_or("-".into(), |latency| significant(latency.p99_us.mean)),
            row.out_of_order.to_string(),
        ]);
    }
    table
}

fn progress_bar() -> ProgressBar {
    if !stderr().is_terminal() || !stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len}  {msg}");
    let bar = ProgressBar::new(1);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn show(bar: &ProgressBar, standing: &Rfc2544Progress) {
    bar.set_length(standing.done.1 as u64);
    bar.set_position(standing.done.0 as u64);
    bar.set_message(standing.doing.clone());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units() {
        assert_eq!("1G".parse(), Ok(BitRate(1e9)));
        assert_eq!("2.5G".parse(), Ok(BitRate(2.5e9)));
        assert_eq!("100M".parse(), Ok(BitRate(1e8)));
        for wrong in ["", "G", "1", "-1G", "1T", "nan"] {
            assert!(wrong.parse::<BitRate>().is_err(), "{wrong}");
        }
    }
}
