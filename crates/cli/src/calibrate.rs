//! `heddle calibrate`: the machine that this runs on, as a machine of the simulator.

use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

use clap::Args as ClapArgs;
use indicatif::ProgressBar;
use lab::calibrate::{Calibration, Effort, Predictions};
use lab::{calibrate, report};

use crate::failure::Failure;
use crate::simulate::progress_bar;

/// Measure this machine for the simulator, and print how far its predictions are off.
///
/// Measures cache lines, atomics, wake-ups and the steps of the stack, writes them as a machine for
/// `heddle simulate --machine FILE`, and then runs architectures, locks and loads that nothing was fitted to, on the real
/// CPUs and on the model. Only stretches of time count in which no other program had one of the CPUs.
#[derive(ClapArgs)]
#[command(after_help = include_str!("help/calibrate.txt").trim_end())]
pub struct Args {
    /// Write the machine to FILE
    #[arg(long, value_name = "FILE", default_value = "this-machine.toml")]
    out: PathBuf,
    /// Number of cores of the predicted runs
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=64))]
    cpus: u16,
    /// Shorter runs, for a first look
    #[arg(long)]
    quick: bool,
    /// Leave the predictions out
    #[arg(long)]
    no_predictions: bool,
}

/// Runs `heddle calibrate`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let effort = if args.quick { Effort::quick() } else { Effort::full() };
    let effort = Effort { cpus: usize::from(args.cpus), ..effort };
    for remark in lab::machine::Probe::start().finish().remarks() {
        eprintln!("note: {remark}");
    }
    let bar = spinner();
    let measured = Calibration::measure(&effort, |what| bar.set_message(what.to_owned()));
    bar.finish_and_clear();
    let calibration = measured.map_err(|error| Failure::failed(error.to_string()))?;
    print!("{calibration}");
    let text = calibration.preset.to_toml();
    report::write_file(&args.out, text.as_bytes()).map_err(|error| Failure::failed(error.to_string()))?;
    println!("\nMachine: {} (heddle simulate --machine {})", args.out.display(), args.out.display());
    if args.no_predictions {
        return Ok(());
    }
    let bar = progress_bar();
    let predictions = calibration.predict(&effort, |place, count, pair| {
        bar.set_length(count as u64);
        bar.set_position(place as u64);
        bar.set_message(calibrate::name(pair));
    });
    bar.finish_and_clear();
    print!("\n{}", Predictions(&predictions));
    Ok(())
}

fn spinner() -> ProgressBar {
    if stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() }
}
