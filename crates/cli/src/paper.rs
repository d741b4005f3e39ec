//! `heddle paper`: the figures, tables and claims of the papers, by one command, with the papers' numbers beside ours.
//!
//! A process of its own (`heddle paper point`) measures each simulated point, so that a point does not depend on the
//! points before it, and prints the sample as a line of JSON. As many processes run at a time as there are CPUs. Loads
//! of the host are measured in this process. Ctrl-C ends a run; finished points are in the store. The file `array.rs` has
//! the same as a job array of a cluster.

mod array;

use std::io::{IsTerminal, stderr};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use lab::machine::{Machine, Probe, cores};
use lab::units::duration;
use paper::data::{Figure, Selected};
use paper::plan::{Effort, Plan};
use paper::point::{Place, Point, Sample};
use paper::run::{Outcome, Progress};
use paper::{Paper, Store, book, list, run, simulated, summary};
use tokio::runtime::Runtime;

use crate::failure::Failure;
use crate::{headroom, runtime};

/// Run the figures, tables and claims of the papers, and write a book with the papers' numbers beside ours.
#[derive(ClapArgs)]
#[command(after_help = include_str!("help/paper.txt").trim_end())]
pub struct Args {
    #[command(subcommand)]
    command: Step,
}

#[derive(Subcommand)]
enum Step {
    /// List the papers and figures, where each can run, and what the others lack
    List {
        /// Papers and figures [default: all]
        #[arg(value_name = "ID")]
        ids: Vec<String>,
    },
    Run(RunArgs),
    Collect(array::CollectArgs),
    /// Print docs/claims.md: every claim with the verdicts of the samples of a directory
    Claims {
        /// The directory of `heddle paper run`
        #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
        report: PathBuf,
    },
    /// Run one task of a job array
    #[command(hide = true)]
    Task(array::TaskArgs),
    /// Measure one simulated point, described by JSON, and print its sample
    #[command(hide = true)]
    Point {
        #[arg(value_name = "JSON")]
        point: String,
    },
}

/// Measure what papers or figures need, and write their pages.
///
/// A stopped run continues where it ended: finished points are in DIR/points.jsonl and are not measured again.
#[derive(ClapArgs)]
struct RunArgs {
    /// Papers (`willmann`), figures (`willmann.fig2`), or `all`
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// Place to measure: this host, or the simulated machine of the paper [default: both]
    #[arg(long, value_name = "PLACE")]
    on: Option<On>,
    /// Only the loads of the claims, three seeds each: minutes (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// All loads, ten seeds each: an hour or more; prints its estimate first
    #[arg(long)]
    full: bool,
    /// Seeds of each point, and rounds on the host; a single one gives no interval
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// The directory of pages and samples
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    report: PathBuf,
    /// Measure nothing now: write what is missing as a Slurm job array into DIR, which all nodes must see
    #[arg(long, value_name = "DIR")]
    slurm: Option<PathBuf>,
    /// Tasks of an array that Slurm runs at a time
    #[arg(long, value_name = "N", default_value_t = 100, requires = "slurm", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

const DIRECTORY: &str = "report/papers";

#[derive(Clone, Copy, ValueEnum)]
enum On {
    Host,
    Vsmp,
}

/// Runs `heddle paper`.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Step::List { ids } => {
            let papers = Paper::all();
            let all = ["all".to_owned()];
            let selected = Paper::select(&papers, if ids.is_empty() { &all } else { ids }).map_err(Failure::usage)?;
            print!("{}", list::text(&selected));
            Ok(())
        }
        Step::Run(args) => measure(args),
        Step::Collect(args) => array::collect(args),
        Step::Task(args) => array::task(args),
        Step::Claims { report } => {
            let store = Store::open(report).map_err(Failure::failed)?;
            print!("{}", summary::markdown(&Paper::all(), store.samples(), &host()));
            Ok(())
        }
        Step::Point { point } => one_point(point),
    }
}

fn one_point(point: &str) -> Result<(), Failure> {
    let point: Point = serde_json::from_str(point).map_err(Failure::usage)?;
    let sample = simulated::measure(&point).map_err(Failure::failed)?;
    println!("{}", serde_json::to_string(&sample).map_err(Failure::failed)?);
    Ok(())
}

fn host() -> Machine {
    Probe::start().finish()
}

fn measure(args: &RunArgs) -> Result<(), Failure> {
    let papers = Paper::all();
    let selected = Paper::select(&papers, &args.ids).map_err(Failure::usage)?;
    let base = if args.full { Effort::FULL } else { Effort::QUICK };
    let effort = Effort { seeds: args.seeds.unwrap_or(base.seeds), ..base };
    let places = match args.on {
        Some(On::Host) => vec![Place::Host],
        Some(On::Vsmp) => vec![Place::Vsmp],
        None => Place::ALL.to_vec(),
    };
    let host = host();
    let plan = Plan::new(&selected, &places, effort, &host).map_err(Failure::failed)?;
    let skipped = not_run(&selected, &places, &host);
    if plan.is_empty() && !args.ids.iter().any(|id| id == "all") {
        return Err(Failure::usage(format!(
            "no figure of {} can run there: {}",
            args.ids.join(", "),
            skipped.join("; ")
        )));
    }
    if let Some(directory) = &args.slurm {
        return array::plan(args, directory, &array::Wanted { selected: &selected, places: &places, effort, skipped });
    }
    let mut store = Store::open(&args.report).map_err(Failure::failed)?;
    announce(&plan, &store);
    let outcome = run_plan(&plan, &mut store);
    // The pages show what was measured, even if other points failed.
    let shown: Vec<&Paper> = selected.iter().map(|selected| selected.paper).collect();
    let index = book::write(&args.report, &shown, &store).map_err(Failure::failed)?;
    let outcome = outcome?;
    report(&selected, &store);
    for line in &skipped {
        println!("Not run: {line}");
    }
    println!("\nPages: {}", index.display());
    end(&outcome, args)
}

/// What runs at none of the places, and what this host leaves out: a line for each reason, with its figures.
fn not_run(selected: &[Selected<'_>], places: &[Place], host: &Machine) -> Vec<String> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for Selected { paper, figures } in selected {
        for figure in figures {
            let name = format!("{}.{}", paper.id, figure.id);
            for reason in reasons_not_to_run(paper, figure, places, host) {
                match lines.iter_mut().find(|(known, _)| *known == reason) {
                    Some((_, names)) => names.push(name.clone()),
                    None => lines.push((reason, vec![name.clone()])),
                }
            }
        }
    }
    lines.into_iter().map(|(reason, names)| format!("{}: {reason}", names.join(", "))).collect()
}

/// Why a figure runs at none of the places, or what this host cannot measure of it.
fn reasons_not_to_run(paper: &Paper, figure: &Figure, places: &[Place], host: &Machine) -> Vec<String> {
    let reason = |on: &Place| {
        let lacking = figure.lacking_on(host).filter(|_| *on == Place::Host);
        figure.reason_not_to_run(*on).or(lacking).map(str::to_owned)
    };
    let reasons: Option<Vec<String>> = places.iter().map(reason).collect();
    if let Some(nowhere) = reasons.and_then(|reasons| reasons.into_iter().next()) {
        return vec![nowhere];
    }
    let left_out = if places.contains(&Place::Host) { paper.left_out(figure, host) } else { Vec::new() };
    left_out.into_iter().map(|(what, reason)| format!("{what} on this host ({reason})")).collect()
}

/// Says what is missing, before it is measured.
fn announce(plan: &Plan, store: &Store) {
    let missing = plan.missing(store);
    let there = plan.simulated.len() - missing.simulated.len();
    let left = duration(missing.estimate(store, cores()));
    if !plan.is_empty() {
        println!(
            "To be measured: {} simulated points ({there} more are there), {} loads of this host with {} rounds; about {left}.",
            missing.simulated.len(),
            missing.host.len(),
            plan.rounds
        );
    }
}

fn run_plan(plan: &Plan, store: &mut Store) -> Result<Outcome, Failure> {
    let (stop, _runtime) = listen()?;
    let bar = progress_bar();
    let mut show = |progress: &Progress| {
        bar.set_length(progress.of as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(format!("{}; {} left", progress.doing, duration(progress.left)));
    };
    let measured = run::simulate(plan, store, cores(), &in_a_process, &stop, &mut show).map_err(Failure::failed)?;
    let most = plan.missing(store).host.iter().map(|load| load.points.len()).max().unwrap_or(0);
    if most == 0 || stop.load(Relaxed) || measured.stopped {
        bar.finish_and_clear();
        return Ok(Outcome { stopped: measured.stopped || stop.load(Relaxed), ..measured });
    }
    // All subjects of a load are open at a time; each has two stacks and its threads.
    headroom::check(3 * cores() * (most + 1))?;
    let outcome = paper::host::measure(plan, store, &stop, &mut show).map_err(Failure::failed)?;
    bar.finish_and_clear();
    Ok(measured.and(outcome))
}

/// Measures a simulated point in a process of its own. `None`: a signal has ended it.
fn in_a_process(point: &Point) -> Result<Option<Sample>, String> {
    let program = std::env::current_exe().map_err(|error| format!("the path of this program is not known: {error}"))?;
    let described = serde_json::to_string(point).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["paper", "point", &described]).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("no process can be started: {error}"))?;
    // SIGINT and SIGTERM end the run, not only this point.
    if matches!(output.status.signal(), Some(2 | 15)) {
        return Ok(None);
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let reason =
            said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("the process ended without a message");
        return Err(reason.trim_start_matches("heddle: ").to_owned());
    }
    serde_json::from_slice(&output.stdout).map(Some).map_err(|error| error.to_string())
}

/// A flag that a signal sets; a second signal ends the program. The runtime listens while it lives.
fn listen() -> Result<(Arc<AtomicBool>, Runtime), Failure> {
    let (runtime, flag) = (runtime::new()?, Arc::new(AtomicBool::new(false)));
    let mut signals = {
        let _inside = runtime.enter();
        runtime::Stop::listen()?
    };
    let set = flag.clone();
    runtime.spawn(async move {
        signals.wait().await;
        set.store(true, Relaxed);
        eprintln!("\nheddle: finishing the current measurement; a second Ctrl-C ends at once");
        signals.wait().await;
        // Finished points are on the disk.
        std::process::exit(130);
    });
    Ok((flag, runtime))
}

/// A line for each paper: its verdicts.
fn report(selected: &[Selected<'_>], store: &Store) {
    let host = host();
    for Selected { paper, .. } in selected {
        let findings = paper::findings::Findings::of(paper, store.samples(), &host);
        for on in Place::ALL {
            println!("{}, {}: {}", paper.id, on.words(), summary::counted(&findings.count(on)));
        }
    }
}

fn end(outcome: &Outcome, args: &RunArgs) -> Result<(), Failure> {
    for (what, reason) in &outcome.failed {
        eprintln!("heddle: {what}: {reason}");
    }
    if outcome.stopped {
        return Err(Failure::failed(format!(
            "stopped: {} keeps what is new, samples: {}; the same command continues from there",
            args.report.display(),
            outcome.measured
        )));
    }
    if !outcome.failed.is_empty() {
        return Err(Failure::failed(format!(
            "points that failed, above: {}; the same command tries them again",
            outcome.failed.len()
        )));
    }
    Ok(())
}

fn progress_bar() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len}  {msg}");
    ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
