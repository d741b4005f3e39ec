//! The one binary: parses the command line and calls the subcommand, each of which has its own file.
//!
//! Exit status: 0 success, 1 failure, 2 invalid command line.

#![forbid(unsafe_code)]

mod arch;
mod bridge;
#[cfg(test)]
mod broken;
mod calibrate;
mod compare;
mod control;
mod drill;
mod failure;
mod get;
mod headroom;
mod knobs;
mod listed;
mod network;
mod paper;
mod ping;
mod privileges;
mod relay;
mod rfc2544;
mod runtime;
mod serve;
mod simulate;
mod ttcp;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// The machines of `heddle simulate` identify objects by their addresses. All other commands get their memory from the
/// system.
#[global_allocator]
static ARENA: vsmp::Arena = vsmp::Arena::new();

/// A multi-core TCP/UDP/IP stack in user space whose process architecture is chosen at run time.
#[derive(Parser)]
#[command(name = "heddle", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
First steps, without root and without a network (both ends are in one process):
  heddle ping 10.0.0.1
  heddle get http://10.0.0.1/ -o index.html

Connect to this machine's own kernel over a TAP interface (as root):
  heddle serve http --dev tap:heddle0 --addr 10.0.0.2/24 --root .
  ip addr add 10.0.0.1/24 dev heddle0        (in a second terminal)
  curl http://10.0.0.2/

`heddle COMMAND --help` describes a command and its options.
Exit status: 0 success, 1 failure, 2 usage error.";

#[derive(Subcommand)]
enum Command {
    Compare(compare::Args),
    Rpc(compare::RpcArgs),
    Ttcp(ttcp::Args),
    Serve(serve::Args),
    Get(get::Args),
    Ping(ping::Args),
    Relay(relay::Args),
    Arch(arch::Args),
    Explain(arch::ExplainArgs),
    Bridge(bridge::Args),
    Rfc2544(rfc2544::Args),
    Intrctl(bridge::intrctl::Args),
    Knobs(knobs::Args),
    Drill(drill::Args),
    Simulate(simulate::Args),
    Calibrate(calibrate::Args),
    Paper(paper::Args),
}

fn main() -> ExitCode {
    if let Err(reason) = headroom::prepare() {
        eprintln!("heddle: {reason}");
        return ExitCode::FAILURE;
    }
    end_with_the_reader();
    // On a usage error clap prints the sentence itself and exits with 2.
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// The reader of the output may stop reading, as `head` does: the command then ends silently with a failure status,
/// because output is lost. A full disk is reported in one line. `print!` would panic in both cases.
fn end_with_the_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload_as_str().unwrap_or_default();
        let Some(why) = said.strip_prefix("failed printing to stdout: ") else { return usual(panic) };
        if !why.starts_with("Broken pipe") {
            let _ = writeln!(std::io::stderr(), "heddle: cannot write to the standard output: {why}");
        }
        std::process::exit(1);
    }));
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Compare(args) => compare::run(args),
        Command::Rpc(args) => compare::run_rpc(args),
        Command::Ttcp(args) => ttcp::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Get(args) => get::run(args),
        Command::Ping(args) => ping::run(args),
        Command::Relay(args) => relay::run(args),
        Command::Arch(args) => arch::run(args),
        Command::Explain(args) => arch::explain(args),
        Command::Bridge(args) => bridge::run(args),
        Command::Rfc2544(args) => rfc2544::run(args),
        Command::Intrctl(args) => bridge::intrctl::run(args),
        Command::Knobs(args) => knobs::run(args),
        Command::Drill(args) => drill::run(args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Paper(args) => paper::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use clap::CommandFactory;

    use crate::ttcp;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    /// `--arch LIST` in the examples of the help texts, and the list of `heddle ttcp`.
    #[test]
    fn the_architectures_that_help_texts_name_exist() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/help");
        let mut named: Vec<String> = ttcp::ARCHITECTURES.trim_end().split(',').map(str::to_owned).collect();
        for entry in fs::read_dir(directory).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            let words: Vec<&str> = text.split_whitespace().collect();
            let lists = words.windows(2).filter(|pair| pair[0] == "--arch").map(|pair| pair[1]);
            named.extend(lists.flat_map(|list| list.split(',')).map(str::to_owned));
        }
        assert!(named.len() > 8, "the examples name architectures");
        for name in named {
            assert!(name.parse::<crate::listed::Listed>().is_ok(), "{name} of a help text is no architecture");
        }
    }
}
