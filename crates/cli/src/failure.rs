//! Failure of a command: one sentence for the user, one exit status for scripts.

use std::fmt;
use std::process::ExitCode;

/// Why a command failed. The text names the thing and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line is invalid. Nothing was attempted. Exit status 2, as for an unknown flag.
    Usage(String),
    /// The command was attempted and failed. Exit status 1.
    Failed(String),
    /// The command failed and has reported the failure already, like a `ping` without an answer. Exit status 1.
    Reported,
}

impl Failure {
    /// A [`Failure::Usage`] with this message.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure::Usage(message.to_string())
    }

    /// A [`Failure::Failed`] with this message.
    pub fn failed(message: impl fmt::Display) -> Failure {
        Failure::Failed(message.to_string())
    }

    /// Prints the sentence to standard error and returns the exit status.
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
