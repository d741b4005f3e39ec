//! `heddle intrctl`: which worker of a running bridge polls which queue, with the commands of NetBSD's intrctl(8).

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};
use switch::{InterruptReport, VectorRole, Work};

use super::Target;
use super::request::{Request, Running};
use crate::failure::Failure;

/// Show the interrupts of a running bridge, and move them between its workers.
///
/// A worker thread stands for a CPU, and a vector for the polling of a queue. Moving a vector loses no frame and keeps
/// the order of frames.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  heddle intrctl list                    vectors, their CPUs, and interrupts by CPU
  heddle intrctl affinity vm1:rx0 1      CPU 1 polls the receive queue 0 of vm1 from now on
  heddle intrctl nointr 0                CPU 0 polls nothing; its vectors go to the others
  heddle intrctl distribute              spread all vectors over the CPUs
  heddle intrctl work drain              an interrupt takes all frames in the ring, like the paper's INTx handler")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
enum Command {
    /// List the vectors
    List,
    /// Move a vector to a CPU
    Affinity {
        /// As in vm1:rx0
        vector: String,
        /// Number of the worker, from 0
        cpu: usize,
    },
    /// Keep interrupts away from a CPU
    Nointr {
        /// Number of the worker, from 0
        cpu: usize,
    },
    /// Let a CPU take interrupts again
    Intr {
        /// Number of the worker, from 0
        cpu: usize,
    },
    /// Spread all vectors over the CPUs
    Distribute,
    /// Set the work per interrupt
    Work {
        /// Number of frames that an interrupt takes, or `drain` for all frames in the ring
        #[arg(value_parser = super::work)]
        work: Work,
    },
}

/// Runs `heddle intrctl`.
///
/// # Errors
/// No bridge answers, or it refuses.
pub fn run(args: Args) -> Result<(), Failure> {
    let request = match args.command {
        Command::List => Request::IntrList,
        Command::Affinity { vector, cpu } => Request::IntrAffinity { vector, cpu },
        Command::Nointr { cpu } => Request::IntrShield { cpu, shielded: true },
        Command::Intr { cpu } => Request::IntrShield { cpu, shielded: false },
        Command::Distribute => Request::IntrDistribute,
        Command::Work { work } => Request::IntrWork {
            frames: match work {
                Work::Drain => None,
                Work::Frames(frames) => Some(frames),
            },
        },
    };
    super::ask_and_print(&args.target, &request)
}

/// The answer to [`Request::IntrList`].
pub fn list(running: &Running) -> Value {
    let shown = |report: InterruptReport| {
        let by_cpu =
            report.by_processor.iter().map(|count| json!({ "interrupts": count.interrupts, "frames": count.frames }));
        json!({
            "vector": report.name(), "kind": report.kind.name(), "cpu": report.processor,
            "by_cpu": by_cpu.collect::<Vec<_>>(),
        })
    };
    let work = match running.switch.work() {
        Work::Drain => json!("drain"),
        Work::Frames(frames) => json!(frames),
    };
    let vectors: Vec<Value> = running.switch.interrupts().into_iter().map(shown).collect();
    json!({ "cpus": running.switch.workers(), "nointr": running.switch.shielded(), "work": work, "vectors": vectors })
}

/// The answer to [`Request::IntrAffinity`].
///
/// # Errors
/// A sentence for the user.
pub fn affinity(running: &Running, vector: &str, cpu: usize) -> Result<Value, String> {
    let (port, role) = vector.rsplit_once(':').unwrap_or((vector, ""));
    let role: VectorRole =
        role.parse().map_err(|_| format!("`{vector}` is not a vector: name a port and its vector, as in vm1:rx0"))?;
    moved(running.switch.set_affinity(port, role, cpu).map_err(|error| format!("{vector}: {error}")))
}

/// The number of moved queues, as an answer.
///
/// # Errors
/// That of `result`.
pub fn moved(result: Result<usize, impl ToString>) -> Result<Value, String> {
    result.map(|queues| json!({ "moved": queues })).map_err(|error| error.to_string())
}

/// The lines of [`list`].
pub fn lines(text: &mut String, answer: &Value) -> std::fmt::Result {
    use std::fmt::Write;
    let cpus = answer["cpus"].as_u64().unwrap_or(0);
    write!(text, "{:<20} {:<5} {:>4}", "vector", "kind", "cpu")?;
    (0..cpus).try_for_each(|cpu| write!(text, " {:>12}", format!("CPU{cpu}")))?;
    writeln!(text)?;
    for vector in answer["vectors"].as_array().into_iter().flatten() {
        let (name, kind) = (vector["vector"].as_str().unwrap_or(""), vector["kind"].as_str().unwrap_or(""));
        let cpu = vector["cpu"].as_u64().map_or("-".to_owned(), |cpu| cpu.to_string());
        write!(text, "{name:<20} {kind:<5} {cpu:>4}")?;
        for count in vector["by_cpu"].as_array().into_iter().flatten() {
            write!(text, " {:>12}", count["interrupts"])?;
        }
        writeln!(text)?;
    }
    let work = answer["work"].as_str().map_or_else(|| answer["work"].to_string(), str::to_owned);
    writeln!(text, "work per interrupt: {work}")?;
    for cpu in answer["nointr"].as_array().into_iter().flatten() {
        writeln!(text, "CPU{cpu}: nointr")?;
    }
    Ok(())
}
