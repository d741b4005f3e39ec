//! Names of process architectures: the only place in the workspace that matches on one.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sync::Platform;

use super::Architecture;
use super::connp_t::QueueKind;
use super::msgp::MsgP;
use super::squeue::Mode;
use super::{connp_l, connp_t, giant, squeue, up};
use crate::place::TablePolicy;
use crate::place::pcb::LockPlan;
use crate::shared::Shared;

/// Groups of `connp-l` when the name gives none: the paper's best (Willmann et al., ConnP-L(128)).
const DEFAULT_GROUPS: usize = 128;

/// A process architecture with its parameters, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// `up`
    Up,
    /// `giant`
    Giant,
    /// `msgp:1`, `msgp:2`, `msgp:6`, each also `+coupled`
    MsgP(LockPlan, TablePolicy),
    /// `connp-t`, `connp-t:spsc`
    ConnPT(QueueKind),
    /// `connp-l:4` to `connp-l:1024`
    ConnPL(usize),
    /// `squeue:fill`, `squeue:nodrain`, `squeue:process`
    Squeue(Mode),
}

/// Every name that is run by `#[every_arch]` tests and offered by `--help`, simplest first.
pub const ALL: [&str; 16] = [
    "up",
    "giant",
    "msgp:1",
    "msgp:2",
    "msgp:6",
    "msgp:1+coupled",
    "msgp:2+coupled",
    "msgp:6+coupled",
    "connp-t",
    "connp-t:spsc",
    "connp-l:4",
    "connp-l:128",
    "connp-l:1024",
    "squeue:fill",
    "squeue:nodrain",
    "squeue:process",
];

/// The name is not one of an architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPlan(String);

impl fmt::Display for UnknownPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unknown architecture {:?}: use up, giant, msgp[:1|2|6][+coupled], connp-t[:mutex|spsc], \
             connp-l[:1..1024], or squeue[:fill|nodrain|process]",
            self.0
        )
    }
}

impl std::error::Error for UnknownPlan {}

impl FromStr for Plan {
    type Err = UnknownPlan;

    fn from_str(name: &str) -> Result<Self, UnknownPlan> {
        let unknown = || UnknownPlan(name.to_owned());
        let (head, options) = name.split_once(':').unwrap_or((name, ""));
        match head {
            "up" if options.is_empty() => Ok(Plan::Up),
            "giant" if options.is_empty() => Ok(Plan::Giant),
            "msgp" | "msgp+coupled" => {
                let (locks, policy) = match options.split_once('+') {
                    Some((locks, "coupled")) => (locks, TablePolicy::Coupled),
                    Some(_) => return Err(unknown()),
                    None if head == "msgp+coupled" => (options, TablePolicy::Coupled),
                    None => (options, TablePolicy::Dropped),
                };
                let locks = match locks {
                    "" | "1" => LockPlan::One,
                    "2" => LockPlan::Two,
                    "6" => LockPlan::Six,
                    _ => return Err(unknown()),
                };
                Ok(Plan::MsgP(locks, policy))
            }
            "connp-t" => match options {
                "" | "mutex" => Ok(Plan::ConnPT(QueueKind::Mutex)),
                "spsc" => Ok(Plan::ConnPT(QueueKind::Ring)),
                _ => Err(unknown()),
            },
            "connp-l" if options.is_empty() => Ok(Plan::ConnPL(DEFAULT_GROUPS)),
            "connp-l" => match options.parse() {
                Ok(groups @ 1..=1024) => Ok(Plan::ConnPL(groups)),
                _ => Err(unknown()),
            },
            "squeue" => match options {
                "fill" => Ok(Plan::Squeue(Mode::Fill)),
                "nodrain" => Ok(Plan::Squeue(Mode::NoDrain)),
                "" | "process" => Ok(Plan::Squeue(Mode::Process)),
                _ => Err(unknown()),
            },
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Plan::Up => "up",
            Plan::Giant => "giant",
            Plan::MsgP(LockPlan::One, TablePolicy::Dropped) => "msgp:1",
            Plan::MsgP(LockPlan::Two, TablePolicy::Dropped) => "msgp:2",
            Plan::MsgP(LockPlan::Six, TablePolicy::Dropped) => "msgp:6",
            Plan::MsgP(LockPlan::One, TablePolicy::Coupled) => "msgp:1+coupled",
            Plan::MsgP(LockPlan::Two, TablePolicy::Coupled) => "msgp:2+coupled",
            Plan::MsgP(LockPlan::Six, TablePolicy::Coupled) => "msgp:6+coupled",
            Plan::ConnPT(QueueKind::Mutex) => "connp-t",
            Plan::ConnPT(QueueKind::Ring) => "connp-t:spsc",
            Plan::ConnPL(groups) => return f.pad(&format!("connp-l:{groups}")),
            Plan::Squeue(Mode::Fill) => "squeue:fill",
            Plan::Squeue(Mode::NoDrain) => "squeue:nodrain",
            Plan::Squeue(Mode::Process) => "squeue:process",
        };
        f.pad(name)
    }
}

impl Plan {
    /// One line that says what it is, for help texts and reports.
    pub fn describe(&self) -> &'static str {
        match self {
            Plan::Up => "one thread, no locks",
            Plan::Giant => "one lock around the stack",
            Plan::MsgP(_, TablePolicy::Dropped) => "any thread; table lock, then the connection's lock(s)",
            Plan::MsgP(_, TablePolicy::Coupled) => {
                "as FreeBSD 7: the table lock is kept while waiting for a connection"
            }
            Plan::ConnPT(QueueKind::Mutex) => "protocol threads own connections; mutex and condition variable",
            Plan::ConnPT(QueueKind::Ring) => "protocol threads own connections; lock-free rings, batched wakes",
            Plan::ConnPL(_) => "groups of connections, one lock each",
            Plan::Squeue(_) => "serialisation queues: own it or queue for it",
        }
    }

    /// Whether the architecture brings threads of its own besides receive threads and callers.
    pub fn has_own_threads(&self) -> bool {
        matches!(self, Plan::ConnPT(_) | Plan::Squeue(_))
    }
}

/// What an architecture may be given besides its name.
#[derive(Clone, Copy, Debug)]
pub struct Staffing {
    /// CPUs to spread cells and threads over, at least 1.
    pub cpus: usize,
    /// Whether an architecture that has threads of its own starts them. Without, whoever ticks does their work: the
    /// same code on one thread, in an order that can be repeated.
    pub own_threads: bool,
}

/// Makes the architecture that `plan` names.
pub fn build<P: Platform>(plan: Plan, shared: &Arc<Shared<P>>, staffing: Staffing) -> Arc<dyn Architecture<P>> {
    let Staffing { cpus, own_threads } = staffing;
    match plan {
        Plan::Up => up::new(shared),
        Plan::Giant => giant::new(shared),
        Plan::MsgP(locks, policy) => Arc::new(MsgP::new(shared, locks, policy)),
        Plan::ConnPT(kind) => connp_t::new(shared, kind, cpus, own_threads),
        Plan::ConnPL(groups) => connp_l::new(shared, groups),
        Plan::Squeue(mode) => squeue::new(shared, mode, cpus, own_threads),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_as_itself() {
        for name in ALL {
            assert_eq!(name.parse::<Plan>().map(|plan| plan.to_string()).as_deref(), Ok(name));
        }
    }

    #[test]
    fn short_names_mean_the_papers_choice() {
        assert_eq!("connp-l".parse(), Ok(Plan::ConnPL(128)));
        assert_eq!("msgp".parse(), Ok(Plan::MsgP(LockPlan::One, TablePolicy::Dropped)));
        assert_eq!("squeue".parse(), Ok(Plan::Squeue(Mode::Process)));
    }

    #[test]
    fn unknown_names_are_refused_with_the_list() {
        for name in ["", "UP", "up:1", "msgp:3", "msgp:1+loose", "connp-l:0", "connp-l:1025", "squeue:drain"] {
            let error = name.parse::<Plan>().unwrap_err().to_string();
            assert!(error.contains("connp-l"), "{error}");
        }
    }
}
