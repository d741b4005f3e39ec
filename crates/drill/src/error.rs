//! Errors of scripts: a line and one sentence.

use std::fmt;

/// A script that cannot be parsed, or needs a feature that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// Line of the script, from 1.
    pub line: u32,
    /// One sentence that names the thing.
    pub message: String,
}

impl ScriptError {
    /// An error at `line`.
    pub fn new(line: u32, message: impl Into<String>) -> Self {
        ScriptError { line, message: message.into() }
    }

    /// A feature of the language that this runner, or the stack, lacks.
    pub fn unsupported(line: u32, what: impl fmt::Display) -> Self {
        ScriptError { line, message: format!("not supported: {what}") }
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (line {})", self.message, self.line)
    }
}

impl std::error::Error for ScriptError {}
