//! What can be wrong with a script: always a line and one sentence.

use std::fmt;

/// A script that cannot be read or asks for something that does not exist.
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

    /// Something that the language has and this runner, or the stack, has not.
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
