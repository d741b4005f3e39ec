//! `heddle simulate`: the stack on a machine that the user does not have.

use std::str::FromStr;

use clap::Args as ClapArgs;
use heddle::{Architecture, LockKind};
use vsmp::preset::{Kernel, Preset};
use vsmp::simulation::Simulation;

use crate::failure::Failure;

/// Run the stack on virtual CPUs, in virtual time.
///
/// A server sends as much as it can by several network cards on many connections, as in Willmann, Rixner and Cox (2006).
/// Printed twice: for Heddle as it is, and with the footprint and the habits of the machine's kernel of the year.
#[derive(ClapArgs)]
#[command(after_help = include_str!("help/simulate.txt").trim_end())]
pub struct Args {
    /// The machine
    #[arg(long, value_name = "NAME", default_value = "opteron-275")]
    machine: String,
    /// CPUs to use of it [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    cpus: Option<u16>,
    /// Architectures, by name (heddle compare --list); `uniprocessor` is the papers' kernel for one CPU
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", default_value = ARCHITECTURES.trim_end())]
    arch: Vec<Subject>,
    /// Connections
    #[arg(long, value_delimiter = ',', value_name = "N,..", default_value = "192", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    conns: Vec<u32>,
    /// Runs of each, with other flows and other delays of the clients
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Kind of lock [default: Heddle's, and the kernel's]
    #[arg(long, value_name = "KIND")]
    lock: Option<LockKind>,
    /// IPv6 instead of IPv4
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Print the machine's values with their origins, and run nothing
    #[arg(long)]
    values: bool,
}

/// The default architectures: those of the paper, and Heddle's own for one thread.
const ARCHITECTURES: &str = include_str!("help/simulate_architectures.txt");

/// What is run: an architecture, or the papers' UP.
#[derive(Clone, Copy)]
struct Subject(Option<Architecture>);

impl FromStr for Subject {
    type Err = <Architecture as FromStr>::Err;

    fn from_str(name: &str) -> Result<Subject, Self::Err> {
        if name == "uniprocessor" { Ok(Subject(None)) } else { name.parse().map(|arch| Subject(Some(arch))) }
    }
}

/// Runs `heddle simulate`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let preset = Preset::named(&args.machine).map_err(Failure::usage)?;
    if args.values {
        print_values(&preset);
        return Ok(());
    }
    if args.lock == Some(LockKind::Null) {
        return Err(Failure::usage("the null lock excludes on one CPU only: use --arch uniprocessor"));
    }
    let cpus = args.cpus.map_or(preset.cpus, usize::from);
    for (index, &connections) in args.conns.iter().enumerate() {
        for (place, &Subject(arch)) in args.arch.iter().enumerate() {
            let (connections, seeds, lock_kind) = (connections as usize, args.seeds, args.lock);
            let preset = preset.clone();
            let simulation = Simulation { preset, cpus, arch, connections, seeds, ipv6: args.ipv6, lock_kind };
            if (index, place) == (0, 0) {
                print!("{simulation}");
            }
            for kernel in [Kernel::Heddle, Kernel::OfThePaper] {
                print!("\n{}", simulation.run_all(kernel, |_| {}));
            }
        }
    }
    Ok(())
}

fn print_values(preset: &Preset) {
    println!("{}: {}\n", preset.name, preset.describes);
    for (name, value) in preset.values() {
        println!("{name:<28}{:>12}  {:<8}  {}", value.text(), value.origin, value.why);
    }
}
