//! The papers as a job array of a cluster: `heddle paper run --slurm DIR` writes it, `heddle paper task` runs in each of its
//! tasks, and `heddle paper collect DIR` folds the results into a report.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use lab::machine::cores;
use lab::units::duration;
use paper::array::collect::Collected;
use paper::array::script::{self, Part};
use paper::array::task::{self, Ended};
use paper::array::{self, Array, Work};
use paper::data::Selected;
use paper::plan::{Effort, Plan};
use paper::point::{Place, Point};
use paper::store::{self, Folded};
use paper::{Paper, Store, book};

use super::{DIRECTORY, RunArgs, host, in_a_process, listen};
use crate::failure::Failure;
use crate::headroom;

/// Fold the results of a job array into a report, and write its pages.
///
/// Results stay in DIR, so this can be repeated while tasks run. Exit status 1 while tasks have no result.
#[derive(ClapArgs)]
pub struct CollectArgs {
    /// The directory of `heddle paper run --slurm`
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The directory of pages and samples
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    report: PathBuf,
}

/// A task of an array: what a script of the array runs.
#[derive(ClapArgs)]
pub struct TaskArgs {
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[arg(value_name = "NUMBER")]
    number: usize,
}

/// What a command line wants measured.
pub struct Wanted<'a> {
    pub selected: &'a [Selected<'a>],
    pub places: &'a [Place],
    pub effort: Effort,
    /// A line for each figure that does not run.
    pub skipped: Vec<String>,
}

/// Writes an array, or adds to it, and says how it is submitted.
pub fn plan(args: &RunArgs, directory: &Path, wanted: &Wanted<'_>) -> Result<(), Failure> {
    // A report that does not exist has no sample, and is not made for this.
    let store = args.report.join(store::FILE).exists().then(|| Store::open(&args.report));
    let store = store.transpose().map_err(Failure::failed)?;
    let has = |point: &Point| store.as_ref().is_some_and(|store| store.has(point));
    let mut work = array::work(wanted.selected, wanted.places, wanted.effort).map_err(Failure::failed)?;
    work.retain(|work| !matches!(work, Work::Simulated(point) if has(point)));
    let program = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("the path of this program is not known: {error}")))?;
    let array = Array::plan(directory, &work).map_err(Failure::failed)?;
    let missing = array.missing(store.as_ref());
    let parts = script::parts(&array, &missing);
    script::write(&array, &parts, &program, args.limit).map_err(Failure::failed)?;
    for line in &wanted.skipped {
        // What this host leaves out another node may have the CPUs for.
        if !line.contains(" on this host (") {
            println!("Not in the array: {line}");
        }
    }
    let collect = format!("heddle paper collect {}", script::quoted(&directory.display().to_string()));
    if parts.is_empty() {
        println!("Nothing is missing: `{collect}` writes the pages.");
        return Ok(());
    }
    let there = array.len() - missing.len();
    println!("{} tasks are to be run ({there} more are done), about {}.", missing.len(), length(&array, &missing));
    let scripts: Vec<String> = parts.iter().map(|part| submission(&part.script)).collect();
    println!("Submit them with `{}`; `{collect}` reads what is finished, at any time.", scripts.join("; "));
    Ok(())
}

/// The command that submits all tasks of a script.
fn submission(script: &Path) -> String {
    format!("sbatch {}", script::quoted(&script.display().to_string()))
}

/// How long the tasks take on one node after the other.
fn length(array: &Array, numbers: &[usize]) -> String {
    let mut plan = Plan::default();
    let mut loads = 0;
    for (_, task) in array.tasks().filter(|(number, _)| numbers.binary_search(number).is_ok()) {
        match &task.work {
            Work::Simulated(point) => plan.simulated.push(point.clone()),
            Work::Host(_) => loads += 1,
        }
    }
    let simulated = format!("{} of one CPU", duration(plan.estimate(&Store::in_memory(), 1)));
    let host = format!("{loads} loads of a host, minutes each");
    match (plan.simulated.is_empty(), loads) {
        (false, 0) => simulated,
        (true, _) => host,
        (false, _) => format!("{simulated} and {host}"),
    }
}

/// Runs a task.
pub fn task(args: &TaskArgs) -> Result<(), Failure> {
    let array = Array::open(&args.directory).map_err(Failure::failed)?;
    let number = args.number;
    let work = &array.task(number).map_err(Failure::failed)?.work;
    let (stop, _runtime) = listen()?;
    if let Work::Host(load) = work {
        // As for a run: each subject has two stacks and their threads.
        let subjects = load.on(&host()).map_err(Failure::failed)?.points.len();
        headroom::check(3 * cores() * (subjects + 1))?;
    }
    match task::run(&array, number, &in_a_process, &stop).map_err(Failure::failed)? {
        Ended::There => println!("task {number}, {work}: the result is there already"),
        Ended::Measured(samples) => println!("task {number}, {work}: measured, samples: {samples}"),
        Ended::Stopped => {
            return Err(Failure::failed(format!("task {number}, {work}: stopped by a signal, without a result")));
        }
    }
    Ok(())
}

/// Folds the results, writes the pages and lists what is missing.
pub fn collect(args: &CollectArgs) -> Result<(), Failure> {
    let array = Array::open(&args.directory).map_err(Failure::failed)?;
    let mut store = Store::open(&args.report).map_err(Failure::failed)?;
    let collected = array::collect::collect(&array, &mut store).map_err(Failure::failed)?;
    for fault in &collected.faults {
        eprintln!("heddle: {fault}");
    }
    let report = args.report.display();
    println!("{} of {} tasks have a result in {}.", collected.results, array.len(), args.directory.display());
    say_folded(&collected.folded, &report.to_string());
    let papers = Paper::all();
    let index = book::write(&args.report, &papers.iter().collect::<Vec<_>>(), &store).map_err(Failure::failed)?;
    println!("Pages: {}", index.display());
    missing(&array, &collected)
}

fn say_folded(folded: &Folded, report: &str) {
    println!("Samples in {report}: {} new, {} from before.", folded.added, folded.known);
    for (commit, count) in &folded.others {
        println!("Samples of commit {commit}: {count}, kept in {report} and not on its pages.");
    }
    for point in &folded.differing {
        println!(
            "{point} ({}) was measured before, with other values: {report} keeps the earlier sample.",
            point.machine
        );
    }
}

/// An error with the commands that submit the missing tasks, if there are any.
fn missing(array: &Array, collected: &Collected) -> Result<(), Failure> {
    if collected.missing.is_empty() {
        return Ok(());
    }
    let parts = script::parts(array, &collected.missing);
    let commands: Vec<String> = parts.iter().map(Part::command).collect();
    Err(Failure::failed(format!(
        "{} of {} tasks have no result: they wait, run or failed ({} has their messages); `{}` submits them again",
        collected.missing.len(),
        array.len(),
        array.log().display(),
        commands.join("; ")
    )))
}
