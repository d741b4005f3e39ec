//! Why a stream, a configuration or a change failed.

use std::fmt;

/// Why a stream has failed. The first error stays: every later call returns the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// A module could not process a message.
    Module {
        /// The module's name.
        module: String,
        /// The error.
        reason: String,
    },
    /// The bottom could not send or receive.
    Bottom(String),
    /// A queue of this module, or the bottom, has panicked.
    Panicked(String),
    /// A message was written after the end of the write side.
    Ended,
    /// The stream was closed by its owner.
    Closed,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Module { module, reason } => write!(f, "module `{module}`: {reason}"),
            StreamError::Bottom(reason) => write!(f, "the bottom of the stream: {reason}"),
            StreamError::Panicked(module) => write!(f, "`{module}` panicked"),
            StreamError::Ended => f.write_str("the write side was ended; nothing can be written after that"),
            StreamError::Closed => f.write_str("the stream was closed"),
        }
    }
}

impl std::error::Error for StreamError {}

impl From<StreamError> for std::io::Error {
    fn from(error: StreamError) -> std::io::Error {
        std::io::Error::other(error)
    }
}

/// Why the modules of a stream were not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeError {
    /// No module of the stream has this name.
    NoSuchModule(String),
    /// The stream has a module of this name already.
    NameInUse(String),
    /// The stream has no module.
    NoModules,
    /// The stream failed, before or during the change.
    Stream(StreamError),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::NoSuchModule(name) => write!(f, "the stream has no module `{name}`"),
            ChangeError::NameInUse(name) => {
                write!(f, "the stream has a module `{name}` already; choose another name")
            }
            ChangeError::NoModules => f.write_str("the stream has no module"),
            ChangeError::Stream(error) => write!(f, "the stream failed: {error}"),
        }
    }
}

impl std::error::Error for ChangeError {}

impl From<StreamError> for ChangeError {
    fn from(error: StreamError) -> ChangeError {
        ChangeError::Stream(error)
    }
}
