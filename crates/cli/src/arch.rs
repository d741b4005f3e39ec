//! `heddle arch`: shows and changes the process architecture of a running service or relay. `heddle explain`: what an
//! architecture that adapts itself has decided there, and why.
//!
//! This file owns both sides: the commands, and the answers of the process that was started with `--name` or `--control`
//! ([`ControlArgs`]). The socket between the two is in `control.rs`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use heddle::Stack;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::control::{self, ControlMode, ControlSocket, Kind};
use crate::failure::Failure;

/// A process with a stack.
const KIND: Kind = Kind { what: "service", start: "heddle serve ... --name NAME" };

/// Show or change the process architecture of a running service or relay.
///
/// Its connections stay open; its clients notice at most a short pause.
#[derive(ClapArgs)]
#[command(after_help = include_str!("help/arch.txt").trim_end())]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

/// Show what the architecture of a running service or relay has decided by itself, and why.
///
/// `adaptive` counts the uses of its groups of flows, and changes their places. Each line is such a change: when, the group,
/// its place before and after, the counts that led to it, and whether it was kept or undone after a trial.
/// The lines behind these are changes of the number of groups, made or refused. The last ones tell, for each receive thread,
/// since when it sends without a lock, because all groups of its transmit queues are at home there, and what ended the earlier
/// claims of these queues.
#[derive(ClapArgs)]
#[command(after_help = include_str!("help/explain.txt").trim_end())]
pub struct ExplainArgs {
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
enum Command {
    /// Print the architecture in use
    Show(Target),
    /// Switch to another architecture
    Set {
        /// The architecture (`heddle serve --list-arch` lists them)
        architecture: String,
        #[command(flatten)]
        target: Target,
    },
}

/// The process that a command addresses.
#[derive(ClapArgs)]
struct Target {
    /// Name of the service, as it was given to `heddle serve` or `heddle relay`
    #[arg(long, value_name = "NAME", required_unless_present = "control")]
    name: Option<String>,
    /// Path of the service's control socket, if it is not the default one
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

/// The options for the control socket of a service. Without them it has none.
#[derive(ClapArgs)]
#[command(next_help_heading = "Control")]
pub struct ControlArgs {
    /// Name of this service, with which `heddle arch --name NAME` shows and changes it while it runs
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Path of the control socket [default: with --name, in the user's runtime directory or, for root, in /run]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    #[command(flatten)]
    mode: ControlMode,
}

impl ControlArgs {
    /// Opens the control socket, if one was requested. Must be called while the process has its user's rights.
    ///
    /// # Errors
    /// See [`control::listen`].
    pub fn open(&self) -> Result<Option<ControlSocket>, Failure> {
        let path = match (&self.control, &self.name) {
            (Some(path), _) => path.clone(),
            (None, Some(name)) => control::usual_place(&KIND, name)?,
            (None, None) => return Ok(None),
        };
        control::listen(&KIND, &path, self.mode.mode).map(Some)
    }
}

/// A request, as it is sent over the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
enum Request {
    /// The architecture.
    Show,
    /// Change it.
    Set { arch: String },
    /// What it has decided by itself.
    Explain,
}

/// Starts to answer requests about this stack.
///
/// # Errors
/// The system refuses a thread.
pub fn answer_for(stack: &Stack, socket: Option<&mut ControlSocket>) -> Result<(), Failure> {
    let Some(socket) = socket else { return Ok(()) };
    let stack = stack.clone();
    socket.answer_by(move |request| answer(&stack, request))
}

fn answer(stack: &Stack, request: Request) -> Result<Value, String> {
    let before = stack.architecture();
    match request {
        Request::Show => Ok(json!({ "arch": before.to_string(), "about": before.describe() })),
        Request::Explain => {
            let decisions: Vec<String> = stack.decisions().iter().map(ToString::to_string).collect();
            let claims: Vec<String> = stack.queue_claims().iter().map(ToString::to_string).collect();
            let numbers: Vec<String> = stack.group_numbers().iter().map(ToString::to_string).collect();
            let arch = before.to_string();
            Ok(json!({ "arch": arch, "decisions": decisions, "numbers": numbers, "claims": claims }))
        }
        Request::Set { arch } => {
            let pause = stack.set_architecture(&*arch).map_err(|error| error.to_string())?;
            let arch = stack.architecture().to_string();
            let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
            Ok(json!({ "before": before.to_string(), "arch": arch, "pause_us": micros }))
        }
    }
}

/// Runs `heddle arch`.
///
/// # Errors
/// No process answers, or it refuses.
pub fn run(args: Args) -> Result<(), Failure> {
    let (request, target) = match args.command {
        Command::Show(target) => (Request::Show, target),
        Command::Set { architecture, target } => (Request::Set { arch: architecture }, target),
    };
    ask(&request, &target)
}

/// Runs `heddle explain`.
///
/// # Errors
/// No process answers.
pub fn explain(args: ExplainArgs) -> Result<(), Failure> {
    ask(&Request::Explain, &args.target)
}

/// Sends a request to the process, and prints its answer.
fn ask(request: &Request, target: &Target) -> Result<(), Failure> {
    let path = match (&target.control, &target.name) {
        (Some(path), _) => path.clone(),
        (None, Some(name)) => control::usual_place(&KIND, name)?,
        (None, None) => return Err(Failure::usage("name the service with --name or --control")),
    };
    let answer = control::ask(&KIND, &path, request)?;
    let word = |name: &str| answer[name].as_str().unwrap_or("?").to_owned();
    if target.json {
        println!("{answer}");
        return Ok(());
    }
    match request {
        Request::Explain => {
            let list = |name: &str| answer[name].as_array().map_or(&[][..], Vec::as_slice);
            let (decisions, numbers, claims) = (list("decisions"), list("numbers"), list("claims"));
            decisions.iter().chain(numbers).chain(claims).filter_map(Value::as_str).for_each(|line| println!("{line}"));
            if decisions.is_empty() && numbers.is_empty() {
                println!("{} has decided nothing", word("arch"));
            }
        }
        Request::Show => println!("{}: {}", word("arch"), word("about")),
        Request::Set { .. } => {
            println!("{} -> {}; calls waited for {} us at most", word("before"), word("arch"), answer["pause_us"]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_answers_and_refuses_in_words() {
        let stack = Stack::builder().build().expect("it builds");
        for name in heddle::ALL_ARCHITECTURES {
            let set = answer(&stack, Request::Set { arch: name.to_owned() }).expect("it is switched");
            assert_eq!(set["arch"], name);
            assert!(set["pause_us"].is_u64(), "{set}");
            assert_eq!(answer(&stack, Request::Show).expect("it is shown")["arch"], name);
        }
        let refused = answer(&stack, Request::Set { arch: "none-such".to_owned() }).expect_err("there is none");
        assert!(refused.contains("unknown architecture"), "{refused}");
    }

    #[test]
    fn a_stack_that_has_decided_nothing_says_so() {
        let stack = Stack::builder().architecture("adaptive").build().expect("it builds");
        let answer = answer(&stack, Request::Explain).expect("it explains");
        assert_eq!(answer, json!({ "arch": "adaptive", "decisions": [], "numbers": [], "claims": [] }));
    }

    #[test]
    fn requests_cross_the_socket_as_they_are() {
        for request in [Request::Show, Request::Explain, Request::Set { arch: "any".to_owned() }] {
            let text = serde_json::to_string(&request).expect("it is written");
            assert_eq!(serde_json::from_str::<Request>(&text).expect("it is read"), request);
        }
    }
}
