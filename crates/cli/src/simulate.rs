//! `heddle simulate`: the stack on a simulated machine.

use std::io::{IsTerminal, stderr, stdout};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args as ClapArgs;
use heddle::{Architecture, LockKind};
use indicatif::{ProgressBar, ProgressStyle};
use lab::result::{Row, Scaling};
use lab::simulated::{self, WhatIf};
use lab::stats::Estimate;
use lab::{compare, report};
use vsmp::preset::{Kernel, Preset};
use vsmp::simulation::{Gain, Results, Simulation, Workload};

use crate::failure::Failure;
use crate::listed::{Listed, listed};

/// Run the stack on virtual CPUs, in virtual time.
///
/// A server sends as much as it can by several network cards on many connections, as in Willmann, Rixner and Cox
/// (2006); or messages arrive from a driver in memory, as in Schmidt and Suda (1995); or each CPU carries packets of a few
/// connections, as in Nahum et al. (1994); or a bridge forwards frames between two cards, as in Nakahara et al. (2015).
/// The results are printed twice: for Heddle as it is, and with the footprint and the habits of the kernel that the
/// machine ran.
#[derive(ClapArgs)]
#[command(after_help = include_str!("help/simulate.txt").trim_end())]
pub struct Args {
    /// The machine, by name, or a file that `heddle calibrate` has written (./NAME.toml)
    #[arg(long, value_name = "NAME|FILE", default_value = "opteron-275")]
    machine: String,
    /// The workload: `senders`; the messages of Schmidt and Suda, `messages` and `messages+xdr`; or the packets of Nahum et al.,
    /// `packets-receive` and `packets-send`, with `+udp`, `+checksum`, `+tickets`, `+each` (a connection for each CPU), `+fddi` (FDDI frames), `+bytes=N` (1 to 65495 over TCP and IPv4) and others;
    /// or the bridge of Nakahara et al., `bridge`, with `+generic`, `+rcu`, `+bytes=N`, `+flows=N`, `+work=N`, `+rate=N`
    #[arg(long, value_name = "NAME", default_value = "senders")]
    workload: Workload,
    /// Number of its CPUs to use; to the results of several numbers, the scalability law is fitted [default: all]
    #[arg(long, value_delimiter = ',', value_name = "N,..", value_parser = clap::value_parser!(u16).range(1..=256))]
    cpus: Vec<u16>,
    /// Architectures, by name (heddle compare --list), or `all`; `uniprocessor` is the papers' kernel for one CPU
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", default_value = ARCHITECTURES.trim_end())]
    arch: Vec<Subject>,
    /// Connections
    #[arg(long, value_delimiter = ',', value_name = "N,..", default_value = "192", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    conns: Vec<u32>,
    /// Number of runs of each point, with different flows and different delays of the clients
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Kind of lock [default: Heddle's, and the kernel's]
    #[arg(long, value_name = "KIND")]
    lock: Option<LockKind>,
    /// IPv6 instead of IPv4
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Change a value of the machine, by the name that --values prints
    #[arg(long, value_name = "NAME=NUMBER")]
    set: Vec<Change>,
    /// Run with each assumed value 30 % lower and 30 % higher, one at a time, and print the change of the throughput
    #[arg(long)]
    vary: bool,
    /// Run again with each class of costs lower by this many percent, one at a time, and print the gain
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, default_missing_value = "20", conflicts_with = "vary",
        value_parser = clap::value_parser!(u64).range(1..=99))]
    what_if: Option<u64>,
    /// Write a timeline of CPUs, locks and threads as an HTML page, for the first architecture and load, with seed 1
    /// and the kernel's footprint and habits
    #[arg(long, value_name = "FILE", conflicts_with = "vary")]
    timeline: Option<PathBuf>,
    /// Write the frames of the same run and time as a capture file (pcapng)
    #[arg(long, value_name = "FILE", conflicts_with = "vary")]
    pcap: Option<PathBuf>,
    /// Length of timeline and capture in microseconds of virtual time
    #[arg(long, value_name = "US", default_value_t = 2000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    stretch: u64,
    /// Print the machine's values with their origins, and run nothing
    #[arg(long)]
    values: bool,
    /// Write the results to FILE as JSON (docs/results.schema.json); `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "vary")]
    json: Option<PathBuf>,
    /// Write the results to standard output as JSON, as --json - does
    #[arg(short = 'j', conflicts_with_all = ["json", "vary"])]
    to_stdout: bool,
    /// Write a report to this directory: figures, tables of the accounts, CSV and JSON
    #[arg(long, value_name = "DIR", conflicts_with = "vary")]
    report: Option<PathBuf>,
}

/// A changed value of the machine.
#[derive(Clone)]
struct Change {
    name: String,
    number: u64,
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Change, String> {
        let (name, number) = text.split_once('=').ok_or("write NAME=NUMBER")?;
        let number = number.parse().map_err(|_| format!("`{number}` is not a number from 0 up"))?;
        Ok(Change { name: name.to_owned(), number })
    }
}

/// The change of a value by `--vary`, in percent.
const VARIED: u64 = 30;

/// The default architectures: those of the paper, and Heddle's own for one thread.
const ARCHITECTURES: &str = include_str!("help/simulate_architectures.txt");

/// A system under test, or several.
#[derive(Clone, Copy)]
enum Subject {
    /// The papers' UP.
    Uniprocessor,
    /// An architecture, or all.
    Heddle(Listed),
}

impl FromStr for Subject {
    type Err = <Listed as FromStr>::Err;

    fn from_str(name: &str) -> Result<Subject, Self::Err> {
        if name == "uniprocessor" { Ok(Subject::Uniprocessor) } else { name.parse().map(Subject::Heddle) }
    }
}

impl Subject {
    /// What a [`Simulation`] names it.
    fn architectures(self) -> Vec<Option<Architecture>> {
        match self {
            Subject::Uniprocessor => vec![None],
            Subject::Heddle(one_or_all) => listed(&[one_or_all]).into_iter().map(Some).collect(),
        }
    }
}

/// Runs `heddle simulate`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let is_file = args.machine.contains('/') || args.machine.ends_with(".toml");
    let preset = if is_file { Preset::load(Path::new(&args.machine)) } else { Preset::named(&args.machine) };
    let mut preset = preset.map_err(Failure::usage)?;
    for Change { name, number } in &args.set {
        preset = preset.with(name, *number).map_err(Failure::usage)?;
    }
    if args.values {
        print_values(&preset);
        return Ok(());
    }
    if args.lock == Some(LockKind::Null) {
        return Err(Failure::usage("the null lock excludes on one CPU only: use --arch uniprocessor"));
    }
    if args.workload != Workload::Senders && (args.timeline.is_some() || args.pcap.is_some()) {
        return Err(Failure::usage("timeline and capture are those of the senders: leave --workload out"));
    }
    args.simulations(&preset).iter().try_for_each(Simulation::check).map_err(Failure::usage)?;
    let quiet = args.to_stdout || args.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
    let mut rows = Vec::new();
    for (place, simulation) in args.simulations(&preset).iter().enumerate() {
        if place == 0 && !quiet {
            print!("{simulation}");
        }
        if args.vary {
            vary(simulation);
            continue;
        }
        for kernel in [Kernel::Heddle, Kernel::OfThePaper] {
            let results = run_all(simulation, kernel);
            let Some(mut row) = simulated::row(&results) else { continue };
            if !quiet {
                print!("\n{results}");
            }
            if let (Some(percent), Some(account)) = (args.what_if, &mut row.simulated) {
                let gains = what_if(simulation, &results, percent);
                if !quiet {
                    print_gains(&gains, percent);
                }
                account.what_if = gains.iter().map(|gain| WhatIf::of(gain, percent)).collect();
            }
            rows.push(row);
        }
    }
    if args.vary {
        return Ok(());
    }
    args.save(&preset, rows, quiet)
}

/// Runs all seeds of a simulation, with a progress bar.
fn run_all(simulation: &Simulation, kernel: Kernel) -> Results {
    let bar = progress_bar();
    bar.set_length(simulation.seeds);
    let results = simulation.run_all(kernel, |seed| {
        bar.set_position(seed - 1);
        bar.set_message(format!("{}, {} connections", simulation.arch_name(), simulation.connections));
    });
    bar.finish_and_clear();
    results
}

/// The causal profile of some results.
fn what_if(simulation: &Simulation, results: &Results, percent: u64) -> Vec<Gain> {
    let bar = progress_bar();
    let gains = simulation.what_if(results, percent, |class, done, of| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
        bar.set_message(format!("{class} lower by {percent} %"));
    });
    bar.finish_and_clear();
    gains
}

fn print_gains(gains: &[Gain], percent: u64) {
    println!("  {:<28}{:>18}{:>20}", format!("if lower by {percent} %"), "throughput, %", "busy cycles/KB, %");
    for Gain { class, throughput, cycles } in gains {
        println!("    {class:<26}{throughput:>18.1}{cycles:>20.1}");
    }
}

/// A line for each variant and load that ran on several numbers of CPUs.
fn print_scaling(scaling: &[Scaling]) {
    for Scaling { variant, points, law } in scaling {
        let at = |(cpus, gbps): &(u32, Estimate)| format!("{cpus}: {:.2}", gbps.mean);
        println!("\n{variant}, Gb/s by CPUs: {}", points.iter().map(at).collect::<Vec<_>>().join(", "));
        let Some(law) = law else { continue };
        let peak = law.peak().map_or_else(|| "no bound".to_owned(), |peak| format!("{peak:.0} CPUs"));
        println!(
            "  scalability law: one CPU {:.2} Gb/s, contention {:.4}, coherence {:.6}, useful up to {peak}; worst error {:.1} %",
            law.lambda,
            law.sigma,
            law.kappa,
            100.0 * law.worst_error
        );
    }
}

impl Args {
    /// One simulation for each number of CPUs, load and architecture.
    fn simulations(&self, preset: &Preset) -> Vec<Simulation> {
        let all = [preset.cpus as u16];
        let counts = if self.cpus.is_empty() { &all[..] } else { &self.cpus };
        let one = |cpus: u16, connections: u32, arch: Option<Architecture>| Simulation {
            workload: self.workload,
            seeds: self.seeds,
            ipv6: self.ipv6,
            lock_kind: self.lock,
            ..Simulation::new(preset.clone(), arch, usize::from(cpus), connections as usize)
        };
        let mut simulations = Vec::new();
        // A bridge has neither architecture nor connections.
        if let Workload::Bridge(load) = self.workload {
            let flows = load.flows as u32;
            simulations.extend(counts.iter().map(|&cpus| one(cpus, flows, None)));
            return simulations;
        }
        let architectures: Vec<_> = self.arch.iter().flat_map(|subject| subject.architectures()).collect();
        for &cpus in counts {
            for &load in &self.conns {
                simulations.extend(architectures.iter().map(|&arch| one(cpus, load, arch)));
            }
        }
        simulations
    }

    /// Runs a seed once more, and records the beginning of the measurement.
    fn look_closer(&self, simulation: &Simulation, quiet: bool) -> Result<(), Failure> {
        let run = simulation.run_and_record(Kernel::OfThePaper, 1, Duration::from_micros(self.stretch));
        let Simulation { preset, connections, cpus, .. } = simulation;
        let title = format!(
            "{}, {connections} connections on {cpus} CPUs of a model of {}, with the footprint and habits of its kernel",
            simulation.arch_name(),
            preset.name
        );
        let page = run.timeline.map(|timeline| lab::timeline::render(&timeline, &title).into_bytes());
        for (what, file, bytes) in [("Timeline", &self.timeline, page), ("Capture", &self.pcap, run.capture)] {
            let (Some(file), Some(bytes)) = (file, bytes) else { continue };
            report::write_file(file, &bytes).map_err(|error| Failure::failed(error.to_string()))?;
            if !quiet {
                println!("\n{what}: {}", file.display());
            }
        }
        Ok(())
    }

    /// Writes the document, if it was requested.
    fn save(&self, preset: &Preset, rows: Vec<Row>, quiet: bool) -> Result<(), Failure> {
        let Some(simulation) = self.simulations(preset).into_iter().next() else { return Ok(()) };
        let results = simulated::document(&simulation, rows);
        if quiet {
            print!("{}", results.to_json());
        } else {
            print_scaling(&results.scaling);
        }
        if let Some(path) = self.json.as_deref().filter(|_| !quiet) {
            compare::save_json(path, &results).map_err(|error| Failure::failed(error.to_string()))?;
        }
        if self.timeline.is_some() || self.pcap.is_some() {
            self.look_closer(&simulation, quiet)?;
        }
        if let Some(directory) = &self.report {
            let index = report::write_or_print(directory, &results, &mut stdout());
            let index = index.map_err(|error| Failure::failed(error.to_string()))?;
            if !quiet {
                println!("\nReport: {}", index.display());
            }
        }
        Ok(())
    }
}

/// Prints a line for each assumed value that matters: the throughput with a lower and with a higher value.
fn vary(simulation: &Simulation) {
    let kernel = Kernel::OfThePaper;
    let base = simulation.run(kernel, 1).megabits();
    println!("\n{}, {} connections: {base:.0} Mb/s, one seed", simulation.arch_name(), simulation.connections);
    println!("  {:<28}{:>14}{:>14}", "assumed value", "30 % less", "30 % more");
    let change = |megabits: f64| 100.0 * (megabits / base - 1.0);
    let bar = progress_bar();
    let variations = simulation.vary(kernel, VARIED, |name, done, of| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
        bar.set_message(name.to_owned());
    });
    bar.finish_and_clear();
    let (moves, still): (Vec<_>, Vec<_>) =
        variations.iter().partition(|varied| varied.megabits.iter().any(|megabits| change(*megabits).abs() >= 1.0));
    for varied in moves {
        let [less, more] = varied.megabits.map(change);
        println!("  {:<28}{less:>+12.1} %{more:>+12.1} %", varied.name);
    }
    println!("  {} others move it by less than 1 %", still.len());
}

/// Hidden where standard error is no terminal.
pub(crate) fn progress_bar() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len}  {msg}");
    ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn print_values(preset: &Preset) {
    println!("{}: {}\n", preset.name, preset.describes);
    for (name, value) in preset.values() {
        println!("{name:<28}{:>12}  {:<8}  {}", value.text(), value.origin, value.why);
    }
}
