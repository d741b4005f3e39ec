//! How a command ends when it does not succeed: one sentence for people, one number for scripts.

use std::fmt;
use std::process::ExitCode;

/// Why a command did not succeed. The text names the thing and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command was given something that it cannot do, before anything was tried. Exit status 2, as for a flag that
    /// does not exist.
    Usage(String),
    /// It was tried and went wrong. Exit status 1.
    Failed(String),
    /// It went wrong and has been reported already, as by a `ping` without an answer. Exit status 1.
    Reported,
}

impl Failure {
    /// A [`Failure::Usage`] from anything that explains itself.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure::Usage(message.to_string())
    }

    /// A [`Failure::Failed`] from anything that explains itself.
    pub fn failed(message: impl fmt::Display) -> Failure {
        Failure::Failed(message.to_string())
    }

    /// Prints the sentence to standard error and says how to exit.
    pub fn report(&self) -> ExitCode {
        match self {
            Failure::Usage(message) => {
                eprintln!("heddle: {message}");
                ExitCode::from(2)
            }
            Failure::Failed(message) => {
                eprintln!("heddle: {message}");
                ExitCode::FAILURE
            }
            Failure::Reported => ExitCode::FAILURE,
        }
    }
}
